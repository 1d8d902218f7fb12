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
//! * A **session** belongs to a mapping and a remote endpoint. It is made by packets from inside; from outside only where that has a right
//!   to come in and must be followed: a TCP connection, anything to a static mapping. Those have half of the room at most.
//! * A **static** mapping of a port is there from the start. An address that is one host's whole gets mappings whose port is the inside port,
//!   also by packets from outside.
//! * Nothing grows: tables, ports and the list of free mappings are made at the start. A silent session goes when the sweep comes round:
//!   never before its time, and after it a packet of it counts as a new one's.

mod ahead;
mod make;
mod shown;

pub(crate) use ahead::Ask;
pub use shown::{Shown, show};

use crate::nat::config::Filtering;
use crate::nat::ip::{About, Endpoint, Family, Proto};
use crate::nat::ports::Ports;
use crate::nat::settings::{Plan, Times};
use crate::nat::tcp::Tcp;
use ahead::{Ahead, Hint};
use tidemill_burst::DropReason;
use tidemill_flow::flowtable::{FlowReader, FlowTable, Outcome, Slot, Swept};
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

/// Buckets that one step of the sweep looks at.
const STEP: usize = 8;
const LANES: usize = 31;
/// Bits of a session's first word behind the time: what TCP has seen; whether it was begun from outside.
const FROM_OUTSIDE: u64 = 1 << 8;
const TIME_SHIFT: u32 = 16;

/// A session that has ended: mapping, remote address, whether it was begun from outside.
type Dead<A> = (u32, A, bool);

/// See the [module](self).
pub struct State<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    plan: Plan<A>,
    share: Share,
    secret: u64,
    drawn: u64,
    inside: FlowTable<E, u64>,
    outside: FlowTable<E, u64>,
    sessions: FlowTable<S, [u64; T]>,
    /// With address-dependent filtering: sessions by mapping and remote address.
    remotes: FlowTable<S, u64>,
    /// Inside hosts: the number of their address in the pool above 32 bits of how many mappings they have.
    hosts: FlowTable<E, u64>,
    mappings: Box<[Mapping<A>]>,
    free: Vec<u32>,
    /// Numbers of the pool's addresses that are not one host's whole.
    shared: Box<[u16]>,
    /// By address of the pool and protocol.
    ports: Vec<[Ports; 3]>,
    /// Sessions begun from outside.
    unasked: usize,
    dead: Vec<Dead<A>>,
    ahead: Box<Ahead<A, E, S>>,
    /// Of the packet that is being looked at.
    hint: Option<Hint>,
    /// Sessions that have ended: with it, and with entries moved, slots may be others'.
    ended: u64,
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
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
        let empty =
            Mapping { inside: none, outside: none, sessions: 0, at: 0, proto: Proto::Udp, sort: Sort::Free };
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
            hosts: FlowTable::new(slots(plan.mappings), Keyed::new(keyed(5)))?,
            mappings: vec![empty; plan.mappings].into(),
            free: (0..plan.mappings as u32).rev().collect(),
            ports,
            shared,
            unasked: 0,
            dead: Vec::with_capacity(STEP * LANES),
            ahead: Box::new(Ahead::new()),
            hint: None,
            ended: 0,
            secret: keyed(6) as u64,
            drawn: 0,
            share,
            plan,
        };
        for (proto, inside, outside) in state.plan.fixed.clone() {
            let Ok(at) = state.plan.pool.binary_search(&outside.address) else { continue };
            state.ports[at][proto as usize].take(outside.port);
            let _ = state.enroll(proto, inside, outside, at, Sort::Fixed);
        }
        Ok(state)
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
            + self.hosts.bytes()
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

    /// What a mapping is, and what it looks like.
    pub fn ends(&self, mapping: u32) -> Option<(Endpoint<A>, Endpoint<A>)> {
        let mapping = self.mappings.get(mapping as usize)?;
        Some((mapping.inside, mapping.outside))
    }

    /// Whether a mapping has a session with this remote endpoint now.
    pub fn has_session(&self, now_ms: u64, mapping: u32, remote: Endpoint<A>) -> bool {
        let slot = self.find_session(&A::session(mapping, remote));
        slot.is_some_and(|slot| self.sessions.word(slot, 0) >> TIME_SHIFT > now_ms)
    }

    /// Whether a packet of `remote` has come in by a mapping, or may have: datagrams leave nothing behind where the filter is all that is asked.
    pub fn lets_in(&self, now_ms: u64, mapping: u32, remote: Endpoint<A>) -> bool {
        let Some(&Mapping { proto, sort, .. }) = self.mappings.get(mapping as usize) else { return false };
        self.has_session(now_ms, mapping, remote)
            || (proto != Proto::Tcp && self.is_allowed(mapping, sort, remote))
    }

    /// Whether an address is a host's that has mappings.
    pub fn is_host(&self, address: A) -> bool {
        let key = A::endpoint(Proto::Tcp, Endpoint { address, port: 0 });
        self.hosts.find(self.hosts.hasher().hash(&key), &key).is_some()
            || self.plan.fixed.iter().any(|(_, inside, _)| inside.address == address)
            || self.plan.whole.iter().any(|(_, host)| *host == address)
    }

    /// Whether the filter has a remote endpoint come in by a mapping.
    fn is_allowed(&self, mapping: u32, sort: Sort, remote: Endpoint<A>) -> bool {
        sort != Sort::Dynamic
            || match self.plan.filtering {
                Filtering::EndpointIndependent => true,
                Filtering::AddressDependent => {
                    let key = A::session(mapping, Endpoint { port: 0, ..remote });
                    self.remotes.find(self.remotes.hasher().hash(&key), &key).is_some()
                }
                Filtering::AddressAndPortDependent => false,
            }
    }

    /// A packet from inside to `remote`: its mapping, made if there is none, and what it looks like from now on.
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
    ) -> Result<(u32, Endpoint<A>), DropReason> {
        let may_begin = match piece {
            Piece::Tcp(flags) => Tcp::may_begin_inside(flags),
            Piece::Udp | Piece::Request => true,
            Piece::Reply => false,
        };
        let proto = piece.proto();
        let (mapping, made) = match self.find_inside(proto, inside) {
            Some(mapping) => (mapping, false),
            None if may_begin => (self.map(proto, inside)?, true),
            None => return Err(DropReason::NatUnasked),
        };
        match self.follow(now_ms, times, mapping, remote, piece, true, may_begin) {
            Ok(()) => Ok((mapping, self.mappings[mapping as usize].outside)),
            Err(reason) => {
                if made {
                    self.unmap(mapping);
                }
                Err(reason)
            }
        }
    }

    /// A packet from `remote` to what looks like `outside`: the mapping, and what it is.
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
    ) -> Result<(u32, Endpoint<A>), Refused> {
        let proto = piece.proto();
        let found = self.find_outside(proto, outside);
        let (mapping, made) = match found {
            Some(mapping) => (mapping, false),
            None => (self.map_whole(proto, outside, piece)?, true),
        };
        let &Mapping { inside, sort, .. } = &self.mappings[mapping as usize];
        // Who asks for an identifier asks the address: only a whole one has somebody to answer.
        if piece == Piece::Request && sort != Sort::Whole {
            return Err(Refused::Unmapped);
        }
        if !made && self.has_session(now_ms, mapping, remote) {
            let followed = self.follow(now_ms, times, mapping, remote, piece, false, false);
            return followed.map(|()| (mapping, inside)).map_err(Refused::Drop);
        }
        let is_static = sort != Sort::Dynamic;
        let allowed = self.is_allowed(mapping, sort, remote);
        let entered = match piece {
            _ if !allowed => Err(DropReason::NatFiltered),
            Piece::Tcp(flags) if !Tcp::may_begin_outside(flags) => Err(DropReason::NatUnasked),
            Piece::Reply if is_static => Err(DropReason::NatUnasked),
            Piece::Tcp(_) | Piece::Request => self.follow(now_ms, times, mapping, remote, piece, false, true),
            Piece::Udp if is_static => self.follow(now_ms, times, mapping, remote, piece, false, true),
            // Nothing to remember: it must not keep the mapping.
            Piece::Udp | Piece::Reply => Ok(()),
        };
        match entered {
            Ok(()) => Ok((mapping, inside)),
            Err(reason) => {
                if made {
                    self.unmap(mapping);
                }
                Err(Refused::Drop(reason))
            }
        }
    }

    /// Notes a packet in its session, which is made if `may_begin` and there is none.
    #[allow(clippy::too_many_arguments)] // a packet is that
    fn follow(
        &mut self,
        now_ms: u64,
        times: &Times,
        mapping: u32,
        remote: Endpoint<A>,
        piece: Piece,
        out: bool,
        may_begin: bool,
    ) -> Result<(), DropReason> {
        let key = A::session(mapping, remote);
        let slot = match self.find_session(&key) {
            Some(slot) => {
                let [until, _] = self.head(slot);
                if until >> TIME_SHIFT <= now_ms {
                    // Over, but not swept yet: what begins now has nothing of it.
                    if !may_begin {
                        return Err(DropReason::NatUnasked);
                    }
                    self.sessions.set_word(slot, 0, until & FROM_OUTSIDE);
                    self.sessions.set_word(slot, 1, 0);
                }
                slot
            }
            None if !may_begin => return Err(DropReason::NatUnasked),
            None => self.begin(mapping, remote, key, out)?,
        };
        let [first, packets] = self.head(slot);
        let (mut until_ms, mut low) = (first >> TIME_SHIFT, first & 0xffff);
        match piece {
            Piece::Tcp(flags) => {
                let before = Tcp(low as u8);
                // Who is outside keeps no session of a dynamic mapping that nobody inside has answered, nor one that is over.
                let keeps = out || packets == 0 || before.is_answered() || !self.is_dynamic(mapping);
                if keeps || !before.is_closed() || Tcp::is_anew(flags) {
                    let tcp = before.after(flags, out);
                    low = low & !0xff | u64::from(tcp.0);
                    until_ms = if keeps { now_ms + tcp.timeout_ms(times) } else { until_ms };
                }
            }
            // The first packet counts whoever sent it.
            Piece::Udp if out || times.inbound_refresh || packets == 0 => until_ms = now_ms + times.udp_ms,
            Piece::Request => until_ms = now_ms + times.icmp_ms,
            Piece::Udp | Piece::Reply => {}
        }
        self.sessions.set_word(slot, 0, until_ms << TIME_SHIFT | low);
        let (sent, came) = ((packets >> 32) as u32, packets as u32);
        let (sent, came) = if out { (sent.saturating_add(1), came) } else { (sent, came.saturating_add(1)) };
        self.sessions.set_word(slot, 1, u64::from(sent) << 32 | u64::from(came));
        Ok(())
    }

    fn is_dynamic(&self, mapping: u32) -> bool {
        self.mappings[mapping as usize].sort == Sort::Dynamic
    }

    fn head(&self, slot: Slot) -> [u64; 2] {
        [self.sessions.word(slot, 0), self.sessions.word(slot, 1)]
    }

    fn begin(
        &mut self,
        mapping: u32,
        remote: Endpoint<A>,
        key: Key<S>,
        out: bool,
    ) -> Result<Slot, DropReason> {
        let hash = self.sessions.hasher().hash(&key);
        // What comes unasked cannot take the room of what goes out.
        if self.sessions.len() >= self.plan.sessions
            || (!out && self.unasked >= self.plan.sessions.div_ceil(2))
        {
            return Err(DropReason::NatTableFull);
        }
        if self.plan.filtering == Filtering::AddressDependent {
            let key = A::session(mapping, Endpoint { port: 0, ..remote });
            let hash = self.remotes.hasher().hash(&key);
            let slot = insert(&mut self.remotes, hash, &key).ok_or(DropReason::NatTableFull)?;
            let count = self.remotes.word(slot, 0);
            self.remotes.set_word(slot, 0, count + 1);
        }
        let Some(slot) = insert(&mut self.sessions, hash, &key) else {
            self.forget_remote(mapping, remote.address);
            return Err(DropReason::NatTableFull);
        };
        self.unasked += usize::from(!out);
        let about = &mut self.mappings[mapping as usize];
        about.sessions += 1;
        let about = About { proto: about.proto, inside: about.inside, outside: about.outside };
        self.sessions.set_state(slot, A::state([if out { 0 } else { FROM_OUTSIDE }, 0], &about));
        Ok(slot)
    }

    fn forget_remote(&mut self, mapping: u32, address: A) {
        if self.plan.filtering != Filtering::AddressDependent {
            return;
        }
        let key = A::session(mapping, Endpoint { address, port: 0 });
        let hash = self.remotes.hasher().hash(&key);
        if let Some(slot) = self.remotes.find(hash, &key) {
            match self.remotes.word(slot, 0) {
                0 | 1 => drop(self.remotes.remove(hash, &key)),
                count => self.remotes.set_word(slot, 0, count - 1),
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
        self.mappings[number as usize] = Mapping { inside, outside, sessions: 0, at: at as u16, proto, sort };
        Ok(number)
    }

    fn unmap(&mut self, number: u32) {
        let Mapping { inside, outside, at, proto, sort, .. } = self.mappings[number as usize];
        if matches!(sort, Sort::Free | Sort::Fixed) {
            return;
        }
        let key = A::endpoint(proto, inside);
        self.inside.remove(self.inside.hasher().hash(&key), &key);
        let key = A::endpoint(proto, outside);
        self.outside.remove(self.outside.hasher().hash(&key), &key);
        self.ports[usize::from(at)][proto as usize].give_back(outside.port);
        if sort == Sort::Dynamic {
            self.leave_host(inside.address);
        }
        self.mappings[number as usize].sort = Sort::Free;
        self.free.push(number);
    }

    fn leave_host(&mut self, address: A) {
        let key = A::endpoint(Proto::Tcp, Endpoint { address, port: 0 });
        let hash = self.hosts.hasher().hash(&key);
        if let Some(slot) = self.hosts.find(hash, &key) {
            match self.hosts.word(slot, 0) {
                host if host as u32 <= 1 => drop(self.hosts.remove(hash, &key)),
                host => self.hosts.set_word(slot, 0, host - 1),
            }
        }
    }

    /// Looks at the sessions of the next `buckets` buckets, and ends those whose time is over; returns how many.
    pub fn reclaim(&mut self, now_ms: u64, buckets: usize) -> usize {
        let mut gone = 0;
        let mut left = buckets.min(self.sessions.slots() / LANES + 1);
        while left > 0 {
            let step = left.min(STEP);
            left -= step;
            let dead = &mut self.dead;
            gone += self.sessions.sweep(step, |key, _, state| {
                if state[0] >> TIME_SHIFT > now_ms || dead.len() == dead.capacity() {
                    return Swept::Stays;
                }
                let (mapping, remote) = A::of_session(key);
                dead.push((mapping, remote.address, state[0] & FROM_OUTSIDE != 0));
                Swept::Goes
            });
            self.ended = self.ended.wrapping_add(self.dead.len() as u64);
            while let Some((mapping, address, from_outside)) = self.dead.pop() {
                self.unasked -= usize::from(from_outside);
                self.forget_remote(mapping, address);
                let about = &mut self.mappings[mapping as usize];
                about.sessions -= 1;
                if about.sessions == 0 {
                    self.unmap(mapping);
                }
            }
        }
        gone
    }

    /// Buckets of the sweep's whole round.
    pub fn buckets(&self) -> usize {
        self.sessions.slots() / LANES
    }

    /// The worker that an inside host belongs to.
    pub fn worker_of_host(&self, address: A) -> usize {
        self.share.of_host(address.into())
    }

    /// The worker that what looks like this belongs to.
    pub fn worker_of(&self, proto: Proto, outside: Endpoint<A>) -> usize {
        if self.share.workers < 2 {
            return 0;
        }
        let fixed = self.plan.fixed.iter().find(|(p, _, out)| (*p, *out) == (proto, outside));
        let whole = || self.plan.whole.iter().find(|(out, _)| *out == outside.address);
        if let Some(host) = fixed.map(|(_, inside, _)| inside.address).or_else(|| whole().map(|w| w.1)) {
            return self.worker_of_host(host);
        }
        if let Some(deterministic) = self.plan.deterministic
            && let Ok(at) = self.plan.pool.binary_search(&outside.address)
            && let Some(number) = deterministic.host_of(at, outside.port)
        {
            return self.worker_of_host(A::of_bits(deterministic.first.into() + u128::from(number)));
        }
        usize::from(outside.port >> 1) % self.share.workers
    }
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
