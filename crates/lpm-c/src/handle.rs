//! What the handles hold, for both families: a domain, a table with the changes that wait for a commit, a worker, a reader.

use crate::api::{
    TM_LPM_ALGORITHM, TM_LPM_BUILD, TM_LPM_DOMAIN, TM_LPM_OFFLINE, TM_LPM_PANIC, TM_LPM_PREFIX,
};
use crate::guard::Error;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemill_lookup::numa::Copies;
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::{Domain, Reader as InDomain};
use tidemill_lpm::algorithm::Sharing;
use tidemill_lpm::{Address, Algorithm, BuildError, Change, Family, Fib, Label, Prefix, Rib, Table};

/// What stands for a structure that shares with others of its domain.
const SHARED: &str = "shared";

/// Tables with the same workers.
pub(crate) struct Group {
    domain: Domain,
    v4: Option<Sharing<u32>>,
    v6: Option<Sharing<u128>>,
}

impl Group {
    pub(crate) fn new() -> Self {
        let domain = Domain::new();
        let v4 = <u32 as Family>::sharing(Algorithm::Auto, &domain);
        let v6 = <u128 as Family>::sharing(Algorithm::Auto, &domain);
        Group { domain, v4, v6 }
    }

    pub(crate) fn member(&self) -> Member {
        Member(self.domain.register())
    }
}

/// A family whose tables can share in a group.
pub(crate) trait Shares: Family {
    fn sharing_in(group: &Group) -> Option<&Sharing<Self>>;
}

impl Shares for u32 {
    fn sharing_in(group: &Group) -> Option<&Sharing<u32>> {
        group.v4.as_ref()
    }
}

impl Shares for u128 {
    fn sharing_in(group: &Group) -> Option<&Sharing<u128>> {
        group.v6.as_ref()
    }
}

/// A table; any thread may change it, one at a time.
pub(crate) struct Control<A: Family> {
    domain: Domain,
    view: View<Arc<dyn Fib<A>>>,
    state: Mutex<State<A>>,
}

struct State<A: Family> {
    table: Table<A>,
    pending: Vec<Change<A>>,
}

/// A prefix without host bits.
pub(crate) fn prefix<A: Address>(addr: A, len: u8) -> Result<Prefix<A>, Error> {
    match Prefix::new(addr, len) {
        None => Err(Error::new(
            TM_LPM_PREFIX,
            format!("{}/{len}: the length is at most {}", addr.to_ip(), A::BITS),
        )),
        Some(prefix) if prefix.first() != addr => Err(Error::new(
            TM_LPM_PREFIX,
            format!("{}/{len} has host bits set: did you mean {prefix}?", addr.to_ip()),
        )),
        Some(prefix) => Ok(prefix),
    }
}

impl<A: Shares> Control<A> {
    /// In a domain of its own.
    pub(crate) fn new(
        algorithm: Option<&str>,
        routes: impl Iterator<Item = (A, u8, u32)>,
    ) -> Result<Self, Error> {
        let algorithm = parse::<A>(algorithm)?;
        Self::with(&Domain::new(), routes, |domain, rib| Table::new(domain, rib, &algorithm))
    }

    pub(crate) fn new_in(
        group: &Group,
        algorithm: Option<&str>,
        routes: impl Iterator<Item = (A, u8, u32)>,
    ) -> Result<Self, Error> {
        if let Some(sharing) = A::sharing_in(group).filter(|_| algorithm == Some(SHARED)) {
            return Self::with(&group.domain, routes, |domain, rib| {
                Table::sharing(domain, rib, vec![sharing.clone()], SHARED.into(), &Copies::one())
            });
        }
        let algorithm = parse::<A>(algorithm)?;
        Self::with(&group.domain, routes, |domain, rib| Table::new(domain, rib, &algorithm))
    }

    fn with(
        domain: &Domain,
        routes: impl Iterator<Item = (A, u8, u32)>,
        make: impl FnOnce(&Domain, Rib<A>) -> Result<Table<A>, BuildError>,
    ) -> Result<Self, Error> {
        let mut rib = Rib::new();
        for (i, (addr, len, label)) in routes.enumerate() {
            let prefix = prefix(addr, len)
                .map_err(|error| Error::new(error.code, format!("route {i}: {}", error.text)))?;
            rib.insert(prefix, Label(label));
        }
        let table = make(domain, rib).map_err(|error| Error::new(TM_LPM_BUILD, error))?;
        let view = table.view();
        let state = Mutex::new(State { table, pending: Vec::new() });
        Ok(Control { domain: domain.clone(), view, state })
    }

    fn state(&self) -> Result<MutexGuard<'_, State<A>>, Error> {
        let broken = |_| Error::new(TM_LPM_PANIC, "the table cannot be used after an internal error");
        self.state.lock().map_err(broken)
    }

    pub(crate) fn announce(&self, addr: A, len: u8, label: u32) -> Result<(), Error> {
        self.stage(Change::Announce(prefix(addr, len)?, Label(label)))
    }

    pub(crate) fn withdraw(&self, addr: A, len: u8) -> Result<(), Error> {
        self.stage(Change::Withdraw(prefix(addr, len)?))
    }

    fn stage(&self, change: Change<A>) -> Result<(), Error> {
        self.state()?.pending.push(change);
        Ok(())
    }

    /// Applies what waits; the number of prefixes that are different now.
    pub(crate) fn commit(&self) -> Result<usize, Error> {
        let mut state = self.state()?;
        let pending = std::mem::take(&mut state.pending);
        let applied = state.table.apply(&pending).map_err(|error| Error::new(TM_LPM_BUILD, error))?;
        state.table.collect();
        Ok(applied.changed)
    }

    /// Prefixes in the table, as committed.
    pub(crate) fn prefixes(&self) -> Result<usize, Error> {
        Ok(self.state()?.table.rib().len())
    }

    /// Bytes that lookups can touch.
    pub(crate) fn bytes(&self) -> Result<usize, Error> {
        Ok(self.state()?.table.fib().bytes())
    }

    /// The structure that lookups use.
    pub(crate) fn name(&self) -> Result<String, Error> {
        Ok(self.state()?.table.fib().name())
    }

    pub(crate) fn reader(&self) -> Reader<A> {
        Reader { view: self.view.clone(), member: Member(self.domain.register()) }
    }

    /// The structure published now, for a worker.
    pub(crate) fn fib<'a>(&'a self, worker: &'a Member) -> Result<&'a dyn Fib<A>, Error> {
        if !self.domain.same(worker.0.domain()) {
            return Err(Error::new(TM_LPM_DOMAIN, "the table is of another domain than the worker"));
        }
        Ok(&**self.view.get(worker.online("the worker is offline: call tm_lpm_worker_online first")?))
    }
}

fn parse<A: Family>(algorithm: Option<&str>) -> Result<Algorithm, Error> {
    Algorithm::parse::<A>(algorithm.unwrap_or("auto")).map_err(|error| Error::new(TM_LPM_ALGORITHM, error))
}

/// One thread's membership of a domain.
pub(crate) struct Member(InDomain);

impl Member {
    /// As what looks into tables.
    fn online(&self, otherwise: &str) -> Result<&InDomain, Error> {
        if self.0.is_online() { Ok(&self.0) } else { Err(Error::new(TM_LPM_OFFLINE, otherwise)) }
    }

    pub(crate) fn quiescent(&mut self) {
        self.0.quiescent();
    }

    pub(crate) fn offline(&mut self) {
        self.0.offline();
    }

    pub(crate) fn online_again(&mut self) {
        self.0.online();
    }
}

/// One thread's way to look into a table.
pub(crate) struct Reader<A: Family> {
    view: View<Arc<dyn Fib<A>>>,
    member: Member,
}

impl<A: Family> Reader<A> {
    /// The structure published now.
    pub(crate) fn fib(&self) -> Result<&dyn Fib<A>, Error> {
        let member = self.member.online("the reader is offline: call tm_lpm*_online first")?;
        Ok(&**self.view.get(member))
    }

    pub(crate) fn quiescent(&mut self) {
        self.member.quiescent();
    }

    pub(crate) fn offline(&mut self) {
        self.member.offline();
    }

    pub(crate) fn online(&mut self) {
        self.member.online_again();
    }
}
