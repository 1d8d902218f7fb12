//! What the handles hold, for both families: a table with the changes that wait for a commit, and a reader.

use crate::api::{TM_LPM_ALGORITHM, TM_LPM_BUILD, TM_LPM_OFFLINE, TM_LPM_PANIC, TM_LPM_PREFIX};
use crate::guard::Error;
use std::sync::{Arc, Mutex, MutexGuard};
use tidemill_lookup::publish::View;
use tidemill_lookup::qsbr::{Domain, Reader as Member};
use tidemill_lpm::{Address, Algorithm, Change, Family, Fib, Label, Prefix, Rib, Table};

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

impl<A: Family> Control<A> {
    pub(crate) fn new(
        algorithm: Option<&str>,
        routes: impl Iterator<Item = (A, u8, u32)>,
    ) -> Result<Self, Error> {
        let algorithm = Algorithm::parse::<A>(algorithm.unwrap_or("auto"))
            .map_err(|error| Error::new(TM_LPM_ALGORITHM, error))?;
        let mut rib = Rib::new();
        for (i, (addr, len, label)) in routes.enumerate() {
            let prefix = prefix(addr, len)
                .map_err(|error| Error::new(error.code, format!("route {i}: {}", error.text)))?;
            rib.insert(prefix, Label(label));
        }
        let domain = Domain::new();
        let table = Table::new(&domain, rib, &algorithm).map_err(|error| Error::new(TM_LPM_BUILD, error))?;
        let view = table.view();
        Ok(Control { domain, view, state: Mutex::new(State { table, pending: Vec::new() }) })
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
        Reader { view: self.view.clone(), member: self.domain.register() }
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
        if !self.member.is_online() {
            return Err(Error::new(TM_LPM_OFFLINE, "the reader is offline: call tm_lpm*_online first"));
        }
        Ok(&**self.view.get(&self.member))
    }

    pub(crate) fn quiescent(&mut self) {
        // An offline reader holds nothing, and stays offline.
        if self.member.is_online() {
            self.member.quiescent();
        }
    }

    pub(crate) fn offline(&mut self) {
        self.member.offline();
    }

    pub(crate) fn online(&mut self) {
        self.member.online();
    }
}
