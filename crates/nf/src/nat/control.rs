//! The control side: owns what nodes go by and publishes it, and reads the workers' sessions beside them.

use crate::nat::config::NatSection;
use crate::nat::counters::{Board, Counter, Counters};
use crate::nat::error::NatError;
use crate::nat::image::Sessions;
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::settings::{self, Checked, Plan, Rules, Whose};
use crate::nat::state::{Saved, Share, Shown, Statics, save, show};
use crate::nat::translate::{Nat, Now};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_flow::flowtable::FlowReader;
use tidemill_ip::Interfaces;
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;

/// What one worker has of one family.
pub(crate) struct Seat<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    pub(crate) nat: Nat<A, E, S, T>,
    board: Board,
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Seat<A, E, S, T> {
    /// Shows the numbers of now.
    pub(crate) fn show(&mut self) {
        let (mappings, sessions) = (self.nat.state().mappings() as u64, self.nat.state().sessions() as u64);
        let names = match A::V6 {
            false => (Counter::Mappings4, Counter::Sessions4),
            true => (Counter::Mappings6, Counter::Sessions6),
        };
        self.nat.counters_mut().set(names.0, mappings);
        self.nat.counters_mut().set(names.1, sessions);
        self.board.show(self.nat.counters());
    }
}

/// The workers' halves, until their nodes are made.
type Seats<A, const E: usize, const S: usize, const T: usize> = Mutex<Vec<Option<Box<Seat<A, E, S, T>>>>>;

/// A way to read one worker's sessions beside it.
type Reader<const S: usize, const T: usize> = FlowReader<S, [u64; T]>;

/// A way to read those of one family, and which of their mappings are static.
type Readers<A, const S: usize, const T: usize> = (Vec<Reader<S, T>>, Arc<Statics<A>>);

/// All sessions that live, as they are to be taken over. Packets may flow: what moves meanwhile may be there twice.
fn saved<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    of: Option<&Readers<A, S, T>>,
    now_ms: u64,
) -> Vec<Saved<A>> {
    let mut sessions = Vec::new();
    let Some((readers, statics)) = of else { return sessions };
    for reader in readers {
        // What an insertion moves may be missed by one round, hardly by two.
        for _ in 0..2 {
            let mut bucket = 0;
            loop {
                bucket = reader.scan(bucket, 64, |key, flow| {
                    sessions.extend(save::<A, E, S, T>(now_ms, statics, key, &flow.state));
                });
                if bucket == 0 {
                    break;
                }
            }
        }
    }
    sessions
}

/// Reads all sessions beside the workers, and beside the control side: a large table takes a while.
pub struct Exporter {
    v4: Option<Readers<u32, 2, 4>>,
    v6: Option<Readers<u128, 5, 5>>,
}

impl Exporter {
    /// All sessions that live, as an [image](crate::nat::image) that another NAT, or this one when it starts again, goes on with.
    pub fn export(&self, now_ms: u64) -> Vec<u8> {
        Sessions { v4: saved(self.v4.as_ref(), now_ms), v6: saved(self.v6.as_ref(), now_ms) }.encode()
    }
}

/// One family's half.
pub(crate) struct Half<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    pub(crate) plan: Plan<A>,
    pub(crate) pool: Arc<[A]>,
    statics: Arc<Statics<A>>,
    seats: Arc<Seats<A, E, S, T>>,
    workers: Vec<(Reader<S, T>, Board)>,
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Half<A, E, S, T> {
    fn new(plan: Plan<A>, workers: usize, secret: u128) -> Result<Self, NatError> {
        let (mut seats, mut shown) = (Vec::new(), Vec::new());
        for worker in 0..workers {
            let own = secret ^ (worker as u128) << 64;
            let nat = Nat::new(plan.clone(), Share { worker, workers }, own)?;
            let board = Board::default();
            shown.push((nat.state().reader(), board.clone()));
            seats.push(Some(Box::new(Seat { nat, board })));
        }
        let (pool, statics) = (plan.pool.clone().into(), Arc::new(Statics::new(&plan)));
        Ok(Half { plan, pool, statics, seats: Arc::new(Mutex::new(seats)), workers: shown })
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn seats(&self) -> Arc<Seats<A, E, S, T>> {
        self.seats.clone()
    }

    fn readers(&self) -> Readers<A, S, T> {
        (self.workers.iter().map(|(reader, _)| reader.clone()).collect(), self.statics.clone())
    }

    /// Has the workers go on with sessions; how many do not fit, or `None` if the workers have begun already.
    fn restore(&self, now: &Now<'_>, sessions: &[Saved<A>]) -> Option<usize> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = 0;
        for saved in sessions {
            let first = seats.first()?.as_ref()?;
            let worker = first.nat.state().worker_of_host(saved.about.inside.address);
            let seat = seats.get_mut(worker)?.as_mut()?;
            left_out += usize::from(seat.nat.restore(now, saved).is_err());
        }
        Some(left_out)
    }

    /// Adds sessions of worker `worker` from a bucket on; the bucket to go on with, 0 if there is none.
    fn page(
        &self,
        worker: usize,
        mut bucket: usize,
        wanted: &Wanted,
        now_ms: u64,
        lines: &mut Vec<Line>,
    ) -> usize {
        let Some((reader, _)) = self.workers.get(worker) else { return 0 };
        loop {
            bucket = reader.scan(bucket, 64, |key, flow| {
                let shown = show::<A, E, S, T>(key, &flow.state);
                if shown.until_ms > now_ms {
                    let line = Line::of(worker, now_ms, &shown);
                    if wanted.takes(&line) {
                        lines.push(line);
                    }
                }
            });
            if bucket == 0 || lines.len() >= wanted.limit {
                return bucket;
            }
        }
    }
}

/// Takes a worker's half.
pub(crate) fn take<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    seats: &Seats<A, E, S, T>,
    worker: usize,
) -> Option<Box<Seat<A, E, S, T>>> {
    seats.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
}

/// IPv4's half.
pub(crate) type Half4 = Half<u32, 1, 2, 4>;
/// IPv6's half.
pub(crate) type Half6 = Half<u128, 3, 5, 5>;

/// The control side of a NAT. Workers hold views of what it publishes, and never wait for it.
pub struct NatControl {
    section: NatSection,
    pub(crate) rules: Publisher<Rules>,
    pub(crate) v4: Option<Half4>,
    pub(crate) v6: Option<Half6>,
}

/// An endpoint of either family, as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The address.
    pub address: IpAddr,
    /// The port; of ICMP queries the identifier.
    pub port: u16,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(f, "{address}:{}", self.port),
            IpAddr::V6(address) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// A session, as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The worker that has it.
    pub worker: usize,
    /// Its protocol.
    pub proto: Proto,
    /// The inside endpoint.
    pub inside: End,
    /// What it looks like.
    pub outside: End,
    /// Whom it talks to; of ICMP queries without a port.
    pub remote: End,
    /// Where a TCP connection is.
    pub tcp: Option<&'static str>,
    /// Milliseconds until it ends, unless something comes.
    pub left_ms: u64,
    /// Whether it was begun from outside.
    pub from_outside: bool,
    /// Packets from inside.
    pub packets_out: u32,
    /// Packets from outside.
    pub packets_in: u32,
}

impl Line {
    fn of<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
        worker: usize,
        now_ms: u64,
        shown: &Shown<A>,
    ) -> Line {
        let end = |end: Endpoint<A>| End { address: end.address.ip(), port: end.port };
        Line {
            worker,
            proto: shown.about.proto,
            inside: end(shown.about.inside),
            outside: end(shown.about.outside),
            remote: end(shown.remote),
            tcp: shown.tcp,
            left_ms: shown.until_ms - now_ms,
            from_outside: shown.from_outside,
            packets_out: shown.packets.0,
            packets_in: shown.packets.1,
        }
    }
}

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// With this address on any side.
    pub address: Option<IpAddr>,
    /// With this port on any side; an address must be given, too, and have it.
    pub port: Option<u16>,
    /// Of this protocol.
    pub proto: Option<Proto>,
    /// Where to go on.
    pub cursor: Option<u64>,
    /// So many, and up to a few buckets more.
    pub limit: usize,
}

impl Wanted {
    fn takes(&self, line: &Line) -> bool {
        let of = |end: &End| {
            self.address.is_none_or(|address| address == end.address)
                && self.port.is_none_or(|port| port == end.port)
        };
        self.proto.is_none_or(|proto| proto == line.proto)
            && [line.inside, line.outside, line.remote].iter().any(of)
    }
}

/// What follows for an address from the configuration alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// An address of the pool.
    Pool {
        /// Who has it besides.
        whose: &'static str,
    },
    /// An inside host that has this whole address; or the address, which is this host's.
    Whole(IpAddr),
    /// An endpoint with a static mapping: protocol, and the other endpoint.
    Static(Proto, End),
    /// Deterministic: an inside host, with its address and its ports.
    Ports(IpAddr, u16, u16),
    /// Deterministic: as an inside host it has no ports.
    Portless,
    /// Deterministic: an endpoint of the pool, and the inside host that it is.
    Host(IpAddr),
    /// The same, where hosts have prefixes: the first address, the length.
    Network(IpAddr, u8),
}

/// What was taken over of another NAT's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Sessions that go on.
    pub sessions: usize,
    /// Those that do not fit: their addresses or ports are others' by this configuration, their static mapping is gone, or they are more than there is room for.
    pub left_out: usize,
}

/// A configuration that was found right.
#[derive(Debug)]
pub struct Prepared {
    section: NatSection,
    rules: Rules,
}

impl NatControl {
    /// Checks a configuration against the interfaces, and makes the tables of so many workers of `domain`.
    ///
    /// # Errors
    /// Which key is wrong, and what to do; tables that are too large.
    pub fn new(
        section: &NatSection,
        interfaces: &Interfaces,
        workers: usize,
        domain: &Domain,
    ) -> Result<Self, NatError> {
        // Nobody can foresee it: an attacker picks the keys.
        let random = |n: u64| u128::from(RandomState::new().hash_one(n));
        Self::with_secret(section, interfaces, workers, domain, random(0) << 64 | random(1))
    }

    /// The same with a secret of the caller's, for runs that are to be repeated.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_secret(
        section: &NatSection,
        interfaces: &Interfaces,
        workers: usize,
        domain: &Domain,
        secret: u128,
    ) -> Result<Self, NatError> {
        Self::of(section, settings::check(section, interfaces)?, workers, domain, secret)
    }

    /// One to look at, of one worker: it judges the configuration as it is written, and its tables are small, for nothing will flow.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check(section: &NatSection, interfaces: &Interfaces, domain: &Domain) -> Result<Self, NatError> {
        let Checked { rules, v4, v6 } = settings::check(section, interfaces)?;
        let checked = Checked { rules, v4: v4.map(small), v6: v6.map(small) };
        Self::of(section, checked, 1, domain, 0)
    }

    fn of(
        section: &NatSection,
        checked: Checked,
        workers: usize,
        domain: &Domain,
        secret: u128,
    ) -> Result<Self, NatError> {
        let Checked { rules, v4, v6 } = checked;
        Ok(NatControl {
            section: section.clone(),
            rules: Publisher::new(domain, rules),
            v4: v4.map(|plan| Half::new(plan, workers, secret)).transpose()?,
            v6: v6.map(|plan| Half::new(plan, workers, !secret)).transpose()?,
        })
    }

    /// The configuration that holds.
    pub fn section(&self) -> &NatSection {
        &self.section
    }

    /// What nodes go by.
    pub fn rules(&self) -> &Rules {
        self.rules.current()
    }

    /// How many addresses the pool has, IPv4 and IPv6.
    pub fn pool(&self) -> (usize, usize) {
        (
            self.v4.as_ref().map_or(0, |half| half.pool.len()),
            self.v6.as_ref().map_or(0, |half| half.pool.len()),
        )
    }

    /// Addresses of the pool that are an interface's, too: what UDP and TCP send to these comes in only where it is mapped.
    pub fn ours(&self) -> impl Iterator<Item = IpAddr> {
        self.pool_of(Whose::Ours)
    }

    fn pool_of(&self, whose: Whose) -> impl Iterator<Item = IpAddr> {
        let rules = self.rules.current();
        let v4 = self.v4.iter().flat_map(|half| half.pool.iter().map(|a| a.ip()).zip(&rules.owners4));
        let v6 = self.v6.iter().flat_map(|half| half.pool.iter().map(|a| a.ip()).zip(&rules.owners6));
        v4.chain(v6).filter(move |(_, of)| **of == whose).map(|(address, _)| address)
    }

    /// What a configuration says that will not work as it seems: a line each, key first.
    pub fn remarks(&self, interfaces: &Interfaces) -> Vec<String> {
        let on_link = self.pool_of(Whose::Pool).filter_map(|address| {
            let interface = interfaces.iter().find(|interface| interface.on_link(address))?;
            Some(format!(
                "nat.pool: {address} is on the link of interface {:?}, where nobody answers for it: add it to that interface's addresses",
                interface.name
            ))
        });
        let all = on_link.take(3).chain(self.routed(interfaces));
        all.chain(self.limits()).chain(self.families()).chain(self.untranslated(interfaces)).collect()
    }

    /// Whose ports are computed, and would be outside but for a route.
    fn routed(&self, interfaces: &Interfaces) -> impl Iterator<Item = String> {
        let Rules { inside, outside, .. } = self.rules.current();
        let v4 = self.v4.as_ref().map(|half| &half.plan);
        let v6 = self.v6.as_ref().map(|half| &half.plan);
        let on_link = [
            settings::on_link_outside(interfaces, inside, outside, v4),
            settings::on_link_outside(interfaces, inside, outside, v6),
        ];
        on_link.into_iter().flatten().map(|(what, _)| {
            format!(
                "nat.deterministic.inside: {what}: who is there is not answered: have a route lead inside to these addresses, or give inside hosts' prefix"
            )
        })
    }

    /// What one host may take of everybody's room.
    fn limits(&self) -> impl Iterator<Item = String> {
        let NatSection { mappings, sessions, host_mappings, host_sessions, .. } = self.section;
        [
            ("host_mappings", host_mappings as usize, "mappings", mappings),
            ("host_sessions", host_sessions as usize, "sessions", sessions),
        ]
        .into_iter()
        .filter(|(_, of_host, _, room)| of_host >= room)
        .map(|(key, of_host, all, room)| {
            format!(
                "nat.{key}: {of_host} is not below nat.{all} = {room}: one host can take all of them; lower it, or raise nat.{all}"
            )
        })
    }

    /// Hosts inside with IPv4 that a pool of IPv6 alone leaves out. The other way round is the usual thing.
    fn untranslated(&self, interfaces: &Interfaces) -> Option<String> {
        if self.v4.is_some() {
            return None;
        }
        let mut all = interfaces.iter().zip(&self.rules.current().inside);
        let (interface, _) = all.find(|(interface, inside)| **inside && !interface.v4.is_empty())?;
        Some(format!(
            "nat.pool: has no IPv4 address, and interface {:?}, which is inside, has one: IPv4 leaves untranslated",
            interface.name
        ))
    }

    /// Which family of the pool has no deterministic ports, where the other one has.
    fn families(&self) -> Option<String> {
        let v4 = self.v4.as_ref().map(|half| half.plan.deterministic.is_some());
        let v6 = self.v6.as_ref().map(|half| half.plan.deterministic.is_some());
        let other = match (v4, v6) {
            (Some(true), Some(false)) => "IPv6",
            (Some(false), Some(true)) => "IPv4",
            _ => return None,
        };
        Some(format!(
            "nat.deterministic.inside: {other} ports of the pool are given as they come: give an {other} prefix, too, if they are to say whose they are"
        ))
    }

    /// Takes over a new configuration, or nothing of it.
    ///
    /// # Errors
    /// As of [`prepare`](Self::prepare).
    pub fn reload(&mut self, section: &NatSection, interfaces: &Interfaces) -> Result<(), NatError> {
        let prepared = self.prepare(section, interfaces)?;
        self.commit(prepared);
        Ok(())
    }

    /// Checks a new configuration against the interfaces that there will be; nothing changes yet.
    ///
    /// # Errors
    /// Which key is wrong, or cannot change.
    pub fn prepare(&self, section: &NatSection, interfaces: &Interfaces) -> Result<Prepared, NatError> {
        for (key, same) in section.fixed_keys(&self.section) {
            if !same {
                return Err(NatError::Restart(key.into()));
            }
        }
        let rules = settings::check(section, interfaces)?.rules;
        Ok(Prepared { section: section.clone(), rules })
    }

    /// Takes over what was prepared.
    pub fn commit(&mut self, prepared: Prepared) {
        self.section = prepared.section;
        self.publish(prepared.rules);
    }

    /// The interfaces have changed: they have other numbers perhaps, and other addresses.
    ///
    /// # Errors
    /// The configuration does not fit them any more; nothing has changed then.
    pub fn interfaces(&mut self, interfaces: &Interfaces) -> Result<(), NatError> {
        let checked = settings::check(&self.section, interfaces)?;
        self.publish(checked.rules);
        Ok(())
    }

    fn publish(&mut self, rules: Rules) {
        if rules != *self.rules.current() {
            self.rules.publish(rules);
        }
    }

    /// Frees what no worker sees any more.
    pub fn poll(&mut self) {
        self.rules.collect();
    }

    /// All numbers, of all workers together.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.v4.iter().flat_map(|half| &half.workers).for_each(|(_, board)| board.add_to(&mut sum));
        self.v6.iter().flat_map(|half| &half.workers).for_each(|(_, board)| board.add_to(&mut sum));
        sum
    }

    /// What reads all sessions, with nothing of this locked meanwhile.
    pub fn exporter(&self) -> Exporter {
        Exporter { v4: self.v4.as_ref().map(Half::readers), v6: self.v6.as_ref().map(Half::readers) }
    }

    /// Goes on with the sessions of an image: those that fit the configuration. Before the graph is made.
    ///
    /// # Errors
    /// The image is none; workers have begun already.
    pub fn import(&mut self, now_ms: u64, image: &[u8]) -> Result<Taken, NatError> {
        let Sessions { v4, v6 } = Sessions::decode(image)?;
        let rules = self.rules.current();
        // Whose a source is asks who translates packets.
        let now = |owners| Now { ms: now_ms, times: &rules.times, owners, near: &[] };
        let all = v4.len() + v6.len();
        let v4 = self.v4.as_ref().map_or(Some(v4.len()), |half| half.restore(&now(&rules.owners4), &v4));
        let v6 = self.v6.as_ref().map_or(Some(v6.len()), |half| half.restore(&now(&rules.owners6), &v6));
        let (Some(v4), Some(v6)) = (v4, v6) else { return Err(NatError::Begun) };
        Ok(Taken { sessions: all - v4 - v6, left_out: v4 + v6 })
    }

    /// A page of sessions in no order, and the cursor of the next one, if there is one.
    pub fn sessions(&self, wanted: &Wanted, now_ms: u64) -> (Vec<Line>, Option<u64>) {
        let mut lines = Vec::new();
        let workers = self.v4.as_ref().map_or(0, |half| half.workers.len());
        let all = workers + self.v6.as_ref().map_or(0, |half| half.workers.len());
        let (mut table, mut bucket) =
            wanted.cursor.map_or((0, 0), |cursor| ((cursor >> 48) as usize, cursor as u32 as usize));
        while table < all && lines.len() < wanted.limit.max(1) {
            bucket = match (table.checked_sub(workers), &self.v4, &self.v6) {
                (None, Some(half), _) => half.page(table, bucket, wanted, now_ms, &mut lines),
                (Some(worker), _, Some(half)) => half.page(worker, bucket, wanted, now_ms, &mut lines),
                _ => 0,
            };
            table += usize::from(bucket == 0);
        }
        (lines, (table < all).then_some((table as u64) << 48 | bucket as u64))
    }

    /// What the configuration says of an address, or of a port of it.
    pub fn roles(&self, address: IpAddr, port: Option<u16>) -> Vec<Role> {
        let mut roles = Vec::new();
        let rules = self.rules.current();
        if let (Some(half), Some(of)) = (&self.v4, <u32 as Family<1, 2, 4>>::of_ip(address)) {
            known(&half.plan, &rules.owners4, of, port, &mut roles);
        }
        if let (Some(half), Some(of)) = (&self.v6, <u128 as Family<3, 5, 5>>::of_ip(address)) {
            known(&half.plan, &rules.owners6, of, port, &mut roles);
        }
        roles
    }
}

/// With room for what is static, and little more.
fn small<A>(mut plan: Plan<A>) -> Plan<A> {
    const SMALL: usize = 1 << 12;
    plan.mappings = plan.mappings.min(plan.fixed.len().max(SMALL));
    plan.sessions = plan.sessions.min(SMALL);
    plan
}

fn known<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize>(
    plan: &Plan<A>,
    owners: &[Whose],
    address: A,
    port: Option<u16>,
    roles: &mut Vec<Role>,
) {
    if let Ok(at) = plan.pool.binary_search(&address) {
        let whose = match owners.get(at).copied().unwrap_or_default() {
            Whose::Pool => "nobody's besides",
            Whose::Ours => "an interface's",
        };
        roles.push(Role::Pool { whose });
    }
    for (outside, host) in &plan.whole {
        if *host == address {
            roles.push(Role::Whole(outside.ip()));
        } else if *outside == address {
            roles.push(Role::Whole(host.ip()));
        }
    }
    let end = |end: Endpoint<A>| End { address: end.address.ip(), port: end.port };
    for (proto, inside, outside) in &plan.fixed {
        let is = |end: &Endpoint<A>| end.address == address && port.is_none_or(|port| port == end.port);
        if is(inside) {
            roles.push(Role::Static(*proto, end(*outside)));
        } else if is(outside) {
            roles.push(Role::Static(*proto, end(*inside)));
        }
    }
    let Some(rule) = plan.deterministic else { return };
    match rule.of_host(address) {
        Some((at, ports)) => roles.push(Role::Ports(plan.pool[at].ip(), *ports.start(), *ports.end())),
        None if roles.is_empty() => roles.push(Role::Portless),
        None => {}
    }
    if let (Ok(at), Some(port)) = (plan.pool.binary_search(&address), port)
        && let Some(host) = rule.host_of(at, port)
    {
        let host = A::of_bits(rule.address_of(host)).ip();
        let length = if A::V6 { 128 - rule.own_bits } else { 32 };
        roles.push(if rule.own_bits == 0 { Role::Host(host) } else { Role::Network(host, length) });
    }
}

#[cfg(test)]
mod tests;
