//! Mappings and sessions of one worker and family: a pure state machine; time is handed in.
//!
//! ```text
//! inside 10.0.0.5:4000 --+                                             +-- session with 198.51.100.1:80
//!                        +-- mapping, looks like 192.0.2.1:61002 ------+-- session with 198.51.100.9:53
//! outside 192.0.2.1:61002+                                             +-- ...
//! ```
//!
//! * A **mapping** belongs to an inside endpoint and a protocol, whatever it sends to (endpoint-independent: RFC 4787 REQ-1, RFC 5382 REQ-1,
//!   RFC 5508 REQ-1). It is found by what it is and by what it looks like, and lives as long as one of its sessions does.
//! * A **session** belongs to a mapping and a remote endpoint. It is found by what its packets show inside, and says itself what they look like
//!   outside. It is made by packets from inside; from outside only where that has a right to come in and must be followed: a TCP
//!   connection, anything to a static mapping. What those may take is in `follow.rs`.
//! * A **static** mapping of a port is there from the start. An address that is one host's whole gets mappings whose port is the inside port,
//!   also by packets from outside.
//! * A mapping is **kept** by sessions that were begun from inside, or answered from there. One that is not lets nobody new in.
//! * Nothing grows: tables, ports and the list of free mappings are made at the start. A silent session goes when the sweep comes round:
//!   never before its time, and after it a packet of it counts as a new one's.

mod ahead;
mod follow;
mod hosts;
mod make;
mod saved;
mod shown;
mod statics;

pub(crate) use ahead::{Ask, Known};
pub use saved::Saved;
pub(crate) use saved::save;
pub use shown::{Shown, show};
pub(crate) use statics::Statics;

use crate::nat::config::Filtering;
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::ports::Ports;
use crate::nat::settings::{Plan, Times};
use crate::nat::tcp::Tcp;
use ahead::Ahead;
use follow::Begins;
use hosts::Hosts;
use std::collections::VecDeque;
use tidemill_burst::DropReason;
use tidemill_flow::flowtable::{FlowReader, FlowTable, Outcome, Slot};
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;
use tidemill_flow::sharded::shard_of;
use tidemill_flow::table::SizeError;

/// What a packet is to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// A TCP segment with these flags ([`crate::nat::tcp::flag`]).
    Tcp(u8),
    /// A datagram.
    Udp,
    /// An ICMP query.
    Request,
    /// The answer to one.
    Reply,
}

impl Piece {
    /// Its protocol.
    pub fn proto(self) -> Proto {
        match self {
            Piece::Tcp(_) => Proto::Tcp,
            Piece::Udp => Proto::Udp,
            Piece::Request | Piece::Reply => Proto::Icmp,
        }
    }
}

/// Why a packet does not come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nothing is mapped there; it may be somebody else's.
    Unmapped,
    /// It is dropped.
    Drop(DropReason),
}

/// The sort of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Free,
    Dynamic,
    /// A static mapping of a port: never goes.
    Fixed,
    /// Of a host that has the whole address.
    Whole,
}

#[derive(Debug, Clone, Copy)]
struct Mapping<A> {
    inside: Endpoint<A>,
    outside: Endpoint<A>,
    sessions: u32,
    /// Of these, those that keep it: begun from inside, or answered.
    kept: u32,
    /// Of these, those that were begun from outside.
    answered: u32,
    /// The number of its inside host.
    host: u32,
    /// The number of the outside address in the pool.
    at: u16,
    proto: Proto,
    sort: Sort,
}

/// Which worker this is, of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its number.
    pub worker: usize,
    /// How many there are.
    pub workers: usize,
}

/// Slots of a table for each entry that it has room for: it takes new ones up to a load of 0.95.
const SLOTS: f64 = 17.0 / 16.0;
/// Buckets that one step of the sweep looks at.
const STEP: usize = 8;
const LANES: usize = 31;
/// Bits of a session's first word behind the time: what TCP has seen; whether it counts as begun from outside (or is a datagram of a static mapping,
/// whoever has sent it), and if so, answered; which of those that wait for an answer it is.
const FROM_OUTSIDE: u64 = 1 << 8;
const ANSWERED: u64 = 1 << 9;
const SERIAL_SHIFT: u32 = 10;
const SERIAL: u64 = 0x3f << SERIAL_SHIFT;
const TIME_SHIFT: u32 = 16;

/// A bit of a session's key between protocol and ports, of hairpins: what looks ahead does not find them, so that nobody outside passes by one's session
/// with a forged source.
const HAIRPIN: u64 = 1 << 8;

/// A session that has ended: mapping, remote address, its first word.
type Dead<A> = (u32, A, u64);

/// See the [module](self).
pub struct State<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    plan: Plan<A>,
    share: Share,
    secret: u64,
    drawn: u64,
    inside: FlowTable<E, u64>,
    outside: FlowTable<E, u64>,
    sessions: FlowTable<S, [u64; T]>,
    /// With address-dependent filtering: how many sessions that keep a mapping there are with a remote address.
    remotes: FlowTable<S, u64>,
    /// How many connections an outside address has that it has begun, and that were answered.
    sources: FlowTable<E, u64>,
    hosts: Hosts<A, E, S, T>,
    statics: Statics<A>,
    mappings: Box<[Mapping<A>]>,
    free: Vec<u32>,
    /// Numbers of the pool's addresses that are not one host's whole.
    shared: Box<[u16]>,
    /// Where a search for an address with a port goes on, among these.
    further: usize,
    /// By address of the pool and protocol.
    ports: Vec<[Ports; 3]>,
    /// Mappings that nobody keeps, without static ones of ports.
    unkept: usize,
    /// Connections from outside in the order in which they began. Those that were answered or have ended are in it, too, until it is their turn.
    waiting: VecDeque<(Key<S>, u8)>,
    /// The last one's number among these.
    serial: u8,
    /// Connections from outside that were answered.
    answered: usize,
    /// Other sessions from outside.
    datagrams: usize,
    /// What gave way to others, and what passed without a session, since it was last asked.
    evicted: u64,
    unnoted: u64,
    dead: Vec<Dead<A>>,
    ahead: Box<Ahead<A, E, S>>,
    /// The place in the burst of the packet that is being looked at.
    turn: Option<usize>,
    /// Sessions that have ended: with it, and with entries moved, slots may be others'.
    ended: u64,
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
    /// Bytes of memory for each mapping that there is room for.
    pub(crate) const BYTES_PER_MAPPING: f64 = {
        let table = FlowTable::<E, u64>::BYTES_PER_SLOT * SLOTS;
        2.0 * table + size_of::<Mapping<A>>() as f64 + Hosts::<A, E, S, T>::BYTES_PER_HOST
    };
    /// Bytes of memory for each session that there is room for.
    pub(crate) const BYTES_PER_SESSION: f64 = {
        let tables = FlowTable::<S, [u64; T]>::BYTES_PER_SLOT + FlowTable::<E, u64>::BYTES_PER_SLOT / 4.0;
        tables * SLOTS + size_of::<(Key<S>, u8)>() as f64 / 8.0
    };
    /// And with address-dependent filtering so many more.
    pub(crate) const BYTES_PER_REMOTE: f64 = FlowTable::<S, u64>::BYTES_PER_SLOT * SLOTS;

    /// Tables for one worker. `secret` is what nobody outside can know: it places flows and chooses ports.
    ///
    /// # Errors
    /// Tables that are too large.
    pub fn new(plan: Plan<A>, share: Share, secret: u128) -> Result<Self, SizeError> {
        let keyed = |n: u64| {
            let (low, high) = (mix(secret as u64 ^ mix(n)), mix((secret >> 64) as u64 ^ mix(!n)));
            u128::from(high) << 64 | u128::from(low)
        };
        // Tables take new flows up to a load of 0.95.
        let slots = |room: usize| room + room / 16 + LANES;
        let remotes = if plan.filtering == Filtering::AddressDependent { plan.sessions } else { 0 };
        let none = Endpoint { address: A::default(), port: 0 };
        let empty = Mapping {
            inside: none,
            outside: none,
            sessions: 0,
            kept: 0,
            answered: 0,
            host: 0,
            at: 0,
            proto: Proto::Udp,
            sort: Sort::Free,
        };
        // Whole addresses have each port once, and belong to no worker's share.
        let ports = plan.pool.iter().map(|address| {
            let whole = plan.whole.iter().any(|(outside, _)| outside == address);
            Proto::ALL.map(|proto| {
                let range = if proto == Proto::Icmp { 0..=u16::MAX } else { plan.ports.clone() };
                let mine = |port| share.workers < 2 || plan.deterministic.is_some() || share.of_port(port);
                Ports::new(|port| whole || (range.contains(&port) && mine(port)))
            })
        });
        let ports = ports.collect();
        let is_shared = |at: &usize| !plan.whole.iter().any(|(outside, _)| *outside == plan.pool[*at]);
        let shared = (0..plan.pool.len()).filter(is_shared).map(|at| at as u16).collect();
        let mut state = State {
            inside: FlowTable::new(slots(plan.mappings), Keyed::new(keyed(1)))?,
            outside: FlowTable::new(slots(plan.mappings), Keyed::new(keyed(2)))?,
            sessions: FlowTable::new(slots(plan.sessions), Keyed::new(keyed(3)))?,
            remotes: FlowTable::new(slots(remotes), Keyed::new(keyed(4)))?,
            sources: FlowTable::new(slots(plan.sessions.div_ceil(4)), Keyed::new(keyed(7)))?,
            hosts: Hosts::new(&plan, [keyed(5), keyed(8)])?,
            statics: Statics::new(&plan),
            mappings: vec![empty; plan.mappings].into(),
            free: (0..plan.mappings as u32).rev().collect(),
            ports,
            shared,
            further: 0,
            unkept: 0,
            waiting: VecDeque::with_capacity(plan.sessions.div_ceil(8)),
            serial: 0,
            answered: 0,
            datagrams: 0,
            evicted: 0,
            unnoted: 0,
            dead: Vec::with_capacity(STEP * LANES),
            ahead: Box::new(Ahead::new()),
            turn: None,
            ended: 0,
            secret: keyed(6) as u64,
            drawn: 0,
            share,
            plan,
        };
        for (proto, inside, outside) in state.plan.fixed.clone() {
            let Ok(at) = state.plan.pool.binary_search(&outside.address) else { continue };
            state.ports[at][proto as usize].take(outside.port);
            if let Some(host) = state.pin(inside.address, at) {
                let _ = state.enroll(proto, inside, outside, at, Sort::Fixed, host);
            }
        }
        for (outside, host) in state.plan.whole.clone() {
            if let Ok(at) = state.plan.pool.binary_search(&outside) {
                state.pin(host, at);
            }
        }
        Ok(state)
    }

    /// A host that has something static is known for ever, and this address is its (RFC 4787, REQ-2).
    fn pin(&mut self, host: A, at: usize) -> Option<u32> {
        let number = self.hosts.find_or_make(host)?;
        self.hosts.settle(number, at);
        self.hosts.enroll(number);
        Some(number)
    }

    /// Mappings that there are.
    pub fn mappings(&self) -> usize {
        self.mappings.len() - self.free.len()
    }

    /// Sessions that there are; those whose time is over count until the sweep comes round.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// What it was made by.
    pub fn plan(&self) -> &Plan<A> {
        &self.plan
    }

    /// Bytes of its tables.
    pub fn bytes(&self) -> usize {
        self.inside.bytes()
            + self.outside.bytes()
            + self.sessions.bytes()
            + self.remotes.bytes()
            + self.sources.bytes()
            + self.hosts.bytes()
            + self.waiting.capacity() * size_of::<(Key<S>, u8)>()
            + self.mappings.len() * size_of::<Mapping<A>>()
            + self.ports.len() * 3 * 8192
    }

    /// For other threads, to look at sessions beside the worker.
    pub fn reader(&self) -> FlowReader<S, [u64; T]> {
        self.sessions.reader()
    }

    /// The mapping of an inside endpoint.
    #[inline]
    pub fn find_inside(&self, proto: Proto, inside: Endpoint<A>) -> Option<u32> {
        let hinted = self.hinted(|about| about.proto == proto && about.inside == inside);
        if hinted.is_some() {
            return hinted;
        }
        let key = A::endpoint(proto, inside);
        let slot = self.inside.find(self.inside.hasher().hash(&key), &key)?;
        Some(self.inside.state(slot) as u32)
    }

    /// The mapping that looks like this.
    #[inline]
    pub fn find_outside(&self, proto: Proto, outside: Endpoint<A>) -> Option<u32> {
        let hinted = self.hinted(|about| about.proto == proto && about.outside == outside);
        if hinted.is_some() {
            return hinted;
        }
        let key = A::endpoint(proto, outside);
        let slot = self.outside.find(self.outside.hasher().hash(&key), &key)?;
        Some(self.outside.state(slot) as u32)
    }

    /// The key of a mapping's session with a remote endpoint.
    fn session_of(&self, mapping: u32, remote: Endpoint<A>) -> Key<S> {
        let Mapping { proto, inside, .. } = self.mappings[mapping as usize];
        let mut key = A::session(proto, inside, remote);
        if self.is_pool(remote.address) {
            key.0[S - 1] |= HAIRPIN;
        }
        key
    }

    /// Whether an address is one of the pool.
    pub(crate) fn is_pool(&self, address: A) -> bool {
        self.plan.pool.binary_search(&address).is_ok()
    }

    /// Whether a mapping has a session with this remote endpoint now.
    fn has_session(&self, now_ms: u64, mapping: u32, remote: Endpoint<A>) -> bool {
        let slot = self.find_session(&self.session_of(mapping, remote));
        slot.is_some_and(|slot| self.sessions.word(slot, 0) >> TIME_SHIFT > now_ms)
    }

    /// Whether what looks like `outside` has asked `remote`: has a session with it, or has sent to its address, which the filter remembers.
    pub(crate) fn has_asked(
        &self,
        now_ms: u64,
        proto: Proto,
        outside: Endpoint<A>,
        remote: Endpoint<A>,
    ) -> bool {
        self.find_outside(proto, outside).is_some_and(|mapping| {
            let Mapping { sort, kept, .. } = self.mappings[mapping as usize];
            let remembers = self.plan.filtering == Filtering::AddressDependent && sort == Sort::Dynamic;
            self.has_session(now_ms, mapping, remote)
                || (remembers && kept > 0 && self.is_allowed(mapping, sort, remote))
        })
    }

    /// Whose packet to `remote` it was that left looking like `outside`; `None` if none can have.
    pub(crate) fn sent_by(
        &self,
        now_ms: u64,
        proto: Proto,
        outside: Endpoint<A>,
        remote: Endpoint<A>,
    ) -> Option<Endpoint<A>> {
        let Some(mapping) = self.find_outside(proto, outside) else {
            let host = self.statics.host_of(outside.address).filter(|_| proto != Proto::Tcp)?;
            return Some(Endpoint { address: host, ..outside });
        };
        let Mapping { inside, sort, .. } = self.mappings[mapping as usize];
        (is_unnoted(sort, proto) || self.has_session(now_ms, mapping, remote)).then_some(inside)
    }

    /// What `inside` looked like to `remote`, a packet of whom has come in to it; `None` if none can have. Datagrams leave nothing behind where the
    /// filter is all that is asked.
    pub(crate) fn reached_as(
        &self,
        now_ms: u64,
        proto: Proto,
        inside: Endpoint<A>,
        remote: Endpoint<A>,
    ) -> Option<Endpoint<A>> {
        let Some(mapping) = self.find_inside(proto, inside) else {
            let address = self.statics.address_of(inside.address).filter(|_| proto != Proto::Tcp)?;
            return Some(Endpoint { address, ..inside });
        };
        let Mapping { outside, sort, .. } = self.mappings[mapping as usize];
        let let_in = self.has_session(now_ms, mapping, remote)
            || (proto != Proto::Tcp && self.is_allowed(mapping, sort, remote));
        let_in.then_some(outside)
    }

    /// Who is mapped there, whoever asks.
    pub(crate) fn inside_of(&self, proto: Proto, outside: Endpoint<A>) -> Option<Endpoint<A>> {
        self.find_outside(proto, outside).map(|mapping| self.mappings[mapping as usize].inside)
    }

    /// Whether an address is a host's that has mappings.
    pub fn is_host(&self, address: A) -> bool {
        self.hosts.find(address).is_some()
    }

    /// Of an inside host: mappings that it keeps, sessions that it has begun.
    pub fn host_counts(&self, address: A) -> (u32, u32) {
        self.hosts.counts(address)
    }

    /// Static mappings.
    pub(crate) fn statics(&self) -> &Statics<A> {
        &self.statics
    }

    /// Since it was last asked: connections from outside that gave way to others; datagrams of static mappings that passed without a session.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.evicted), std::mem::take(&mut self.unnoted))
    }

    /// Whether the filter has a remote endpoint come in by a mapping.
    fn is_allowed(&self, mapping: u32, sort: Sort, remote: Endpoint<A>) -> bool {
        sort != Sort::Dynamic
            || match self.plan.filtering {
                Filtering::EndpointIndependent => true,
                Filtering::AddressDependent => {
                    let key = self.session_of(mapping, Endpoint { port: 0, ..remote });
                    self.remotes.find(self.remotes.hasher().hash(&key), &key).is_some()
                }
                Filtering::AddressAndPortDependent => false,
            }
    }

    /// A packet from inside to `remote`: what it looks like from now on; mapping and session are made if there are none.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn leave(
        &mut self,
        now_ms: u64,
        times: &Times,
        inside: Endpoint<A>,
        remote: Endpoint<A>,
        piece: Piece,
    ) -> Result<Endpoint<A>, DropReason> {
        let may_begin = match piece {
            Piece::Tcp(flags) => Tcp::may_begin_inside(flags),
            Piece::Udp | Piece::Request => true,
            Piece::Reply => false,
        };
        let proto = piece.proto();
        let mut is_new = false;
        let found = match self.find_inside(proto, inside) {
            Some(mapping) => Ok(mapping),
            None if may_begin => {
                is_new = true;
                self.map(proto, inside)
            }
            None => Err(DropReason::NatUnasked),
        };
        let is_datagram = matches!(piece, Piece::Udp | Piece::Reply);
        let mapping = match found {
            Ok(mapping) => mapping,
            Err(reason) => {
                // What a whole address looks like is known without a mapping.
                let address = self.statics.address_of(inside.address).filter(|_| is_datagram);
                let address = address.ok_or(reason)?;
                self.unnoted += 1;
                return Ok(Endpoint { address, ..inside });
            }
        };
        let Mapping { outside, sort, .. } = self.mappings[mapping as usize];
        // What a static mapping sends may be answers to datagrams that found no place: they must not use up its host's sessions.
        let counts = piece != Piece::Udp || !is_unnoted(sort, proto) || (sort == Sort::Whole && is_new);
        let begins = may_begin.then_some(if counts { Begins::Inside } else { Begins::Outside });
        match self.follow(now_ms, times, mapping, remote, piece, true, begins) {
            Ok(()) => Ok(outside),
            Err(reason) => {
                self.unmap_idle(mapping);
                if is_datagram && is_unnoted(sort, proto) {
                    self.unnoted += 1;
                    return Ok(outside);
                }
                Err(reason)
            }
        }
    }

    /// A packet from `remote` to what looks like `outside`: what it is.
    ///
    /// # Errors
    /// Why it does not come in.
    pub fn enter(
        &mut self,
        now_ms: u64,
        times: &Times,
        outside: Endpoint<A>,
        remote: Endpoint<A>,
        piece: Piece,
    ) -> Result<Endpoint<A>, Refused> {
        let proto = piece.proto();
        let is_datagram = matches!(piece, Piece::Udp | Piece::Request);
        let mapping = match self.find_outside(proto, outside) {
            Some(mapping) => mapping,
            None => {
                let host = self.statics.host_of(outside.address).ok_or(Refused::Unmapped)?;
                let inside = Endpoint { address: host, ..outside };
                match self.map_whole(inside, outside, piece) {
                    Ok(mapping) => mapping,
                    // What is behind a whole address is known without a mapping.
                    Err(_) if is_datagram => {
                        self.unnoted += 1;
                        return Ok(inside);
                    }
                    Err(reason) => return Err(Refused::Drop(reason)),
                }
            }
        };
        let Mapping { inside, sort, kept, .. } = self.mappings[mapping as usize];
        // Who asks for an identifier asks the address: only a whole one has somebody to answer.
        if piece == Piece::Request && sort != Sort::Whole {
            return Err(Refused::Unmapped);
        }
        if self.has_session(now_ms, mapping, remote) {
            let followed = self.follow(now_ms, times, mapping, remote, piece, false, None);
            return followed.map(|()| inside).map_err(Refused::Drop);
        }
        // It is there for those only whom it has let in before: nobody inside keeps it.
        if sort == Sort::Dynamic && kept == 0 {
            return Err(Refused::Unmapped);
        }
        let (is_static, begins) = (sort != Sort::Dynamic, Some(Begins::Outside));
        let allowed = self.is_allowed(mapping, sort, remote);
        let entered = match piece {
            _ if !allowed => Err(DropReason::NatFiltered),
            Piece::Tcp(flags) if !Tcp::may_begin_outside(flags) => Err(DropReason::NatUnasked),
            Piece::Reply if is_static => Err(DropReason::NatUnasked),
            Piece::Tcp(_) | Piece::Request => {
                self.follow(now_ms, times, mapping, remote, piece, false, begins)
            }
            Piece::Udp if is_static => self.follow(now_ms, times, mapping, remote, piece, false, begins),
            // Nothing to remember: it must not keep the mapping.
            Piece::Udp | Piece::Reply => Ok(()),
        };
        match entered {
            Ok(()) => Ok(inside),
            Err(reason) => {
                self.unmap_idle(mapping);
                if is_datagram && is_unnoted(sort, proto) {
                    self.unnoted += 1;
                    return Ok(inside);
                }
                Err(Refused::Drop(reason))
            }
        }
    }

    fn enroll(
        &mut self,
        proto: Proto,
        inside: Endpoint<A>,
        outside: Endpoint<A>,
        at: usize,
        sort: Sort,
        host: u32,
    ) -> Result<u32, DropReason> {
        let Some(&number) = self.free.last() else { return Err(DropReason::NatTableFull) };
        let (in_key, out_key) = (A::endpoint(proto, inside), A::endpoint(proto, outside));
        let in_hash = self.inside.hasher().hash(&in_key);
        let slot = insert(&mut self.inside, in_hash, &in_key).ok_or(DropReason::NatTableFull)?;
        self.inside.set_word(slot, 0, number.into());
        let out_hash = self.outside.hasher().hash(&out_key);
        let Some(slot) = insert(&mut self.outside, out_hash, &out_key) else {
            self.inside.remove(in_hash, &in_key);
            return Err(DropReason::NatTableFull);
        };
        self.outside.set_word(slot, 0, number.into());
        self.free.pop();
        self.unkept += usize::from(sort != Sort::Fixed);
        self.hosts.enroll(host);
        let (sessions, kept, answered, at) = (0, 0, 0, at as u16);
        self.mappings[number as usize] =
            Mapping { inside, outside, sessions, kept, answered, host, at, proto, sort };
        Ok(number)
    }

    fn unmap(&mut self, number: u32) {
        let Mapping { inside, outside, at, proto, sort, host, .. } = self.mappings[number as usize];
        if matches!(sort, Sort::Free | Sort::Fixed) {
            return;
        }
        let key = A::endpoint(proto, inside);
        self.inside.remove(self.inside.hasher().hash(&key), &key);
        let key = A::endpoint(proto, outside);
        self.outside.remove(self.outside.hasher().hash(&key), &key);
        self.ports[usize::from(at)][proto as usize].give_back(outside.port);
        self.unkept -= 1;
        self.hosts.leave(host);
        self.mappings[number as usize].sort = Sort::Free;
        self.free.push(number);
    }

    /// Buckets of the sweep's whole round.
    pub fn buckets(&self) -> usize {
        self.sessions.slots() / LANES
    }

    /// The worker that an inside host belongs to; hosts that share a block of ports have one.
    pub fn worker_of_host(&self, address: A) -> usize {
        self.share.of_host(self.plan.deterministic.map_or(address.into(), |rule| rule.block_of(address)))
    }

    /// The worker that what looks like this belongs to.
    pub fn worker_of(&self, proto: Proto, outside: Endpoint<A>) -> usize {
        if self.share.workers < 2 {
            return 0;
        }
        if let Some(host) = self.statics.host_at(proto, outside) {
            return self.worker_of_host(host);
        }
        if let Some(deterministic) = self.plan.deterministic
            && let Ok(at) = self.plan.pool.binary_search(&outside.address)
            && let Some(number) = deterministic.host_of(at, outside.port)
        {
            return self.worker_of_host(A::of_bits(deterministic.address_of(number)));
        }
        usize::from(outside.port >> 1) % self.share.workers
    }
}

/// Whether datagrams of such a mapping need no session: from everybody to one, always.
fn is_unnoted(sort: Sort, proto: Proto) -> bool {
    matches!(sort, Sort::Fixed | Sort::Whole) && proto != Proto::Tcp
}

impl Share {
    /// Whether a port is this worker's to give. By twos, so that both parities, and pairs, are everybody's.
    fn of_port(self, port: u16) -> bool {
        usize::from(port >> 1) % self.workers == self.worker
    }

    fn of_host(self, address: u128) -> usize {
        shard_of(mix((address >> 64) as u64 ^ mix(address as u64)), self.workers.max(1))
    }
}

/// Finds or inserts one key: in a flood into a full table searches rest, as in a batch.
fn insert<const W: usize, V: tidemill_flow::flowtable::State>(
    table: &mut FlowTable<W, V>,
    hash: u64,
    key: &Key<W>,
) -> Option<Slot> {
    let mut out = [Outcome::Full];
    table.find_or_insert_batch(0, &[hash], std::slice::from_ref(key), &mut out);
    out[0].slot()
}
