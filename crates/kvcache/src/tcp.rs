//! Connections to memcached, followed: what each command may change, and which commands have surely been executed.
//!
//! ```text
//! SYN, ACK of memcached -> both numbers known        client's data, in order -> Requests -> slots begin  \
//!                                                    memcached's data, in order -> Replies -> Outstanding -> slots end
//! ```
//! * A segment before which one is missing is dropped, in either direction, and TCP sends both again; bytes that were seen are not read twice. So each parser
//!   has every byte once, in order.
//! * What cannot be followed is let go of: a connection that was there before, a stream that memcached may read in another way, too many commands without an
//!   answer. Whatever it has begun ends `settle` later, and each further segment with data shuts the gate for as long. Losing sight of a
//!   connection so costs hits, and no truth, as long as memcached reads what has come within that time.

use crate::counters::{Counter, Counters};
use crate::frame::Parts;
use crate::gate::{Gate, Slot};
use foldhash::quality::FixedState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::net::IpAddr;
use tidemill_kv::codec::event::Event;
use tidemill_kv::codec::outstanding::Outstanding;
use tidemill_kv::codec::replies::{Replies, Reply};
use tidemill_kv::codec::stream::{Delay, Place, Requests};
use tidemill_wire::Protocol;
use tidemill_wire::tcp::{self, Flags};

/// Commands of a connection that wait for their answers, and what they may change.
const COMMANDS: usize = 128;
const EFFECTS: usize = 256;
/// A hole that stays so long has been filled another way.
const HOLE_NS: u64 = 3_000_000_000;

type Key = (IpAddr, IpAddr, u16);

#[derive(Debug)]
struct Conn {
    requests: Requests,
    replies: Replies,
    /// Each with how many of the slots in `effects` are its.
    outstanding: Outstanding<u32>,
    effects: VecDeque<Slot>,
    /// What comes next from the client and from memcached.
    next: [u32; 2],
    /// What it began with.
    opened: [u32; 2],
    /// Keys of a command whose line is not whole yet.
    begun: u32,
    hole_since_ns: [Option<u64>; 2],
    /// When it was opened, until the client has sent something.
    fresh_ns: Option<u64>,
}

/// What becomes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment {
    Pass,
    /// One before it is missing.
    OutOfOrder,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Connections {
    conns: Vec<Conn>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32, FixedState>,
}

/// One way of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client = 0,
    Server = 1,
}

impl Connections {
    /// Memory for so many.
    pub(crate) fn new(most: usize, secret: u64) -> Self {
        let conn = |_| Conn {
            requests: Requests::new(),
            replies: Replies::new(),
            outstanding: Outstanding::new(COMMANDS),
            effects: VecDeque::with_capacity(EFFECTS),
            next: [0; 2],
            opened: [0; 2],
            begun: 0,
            hole_since_ns: [None; 2],
            fresh_ns: None,
        };
        Connections {
            conns: (0..most).map(conn).collect(),
            free: (0..most as u32).rev().collect(),
            by_key: HashMap::with_capacity_and_hasher(2 * most, FixedState::with_seed(secret)),
        }
    }

    /// How many are followed.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// A segment of a client.
    pub(crate) fn request(
        &mut self,
        frame: &[u8],
        parts: &Parts,
        now_ns: u64,
        hash: &impl BuildHasher,
        gate: &mut Gate,
        counters: &mut Counters,
    ) -> Segment {
        let key = (parts.src, parts.dst, parts.source_port);
        let Some(segment) = Read::new(frame, parts) else { return Segment::Pass };
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            self.close(&key, now_ns, gate, counters);
            return Segment::Pass;
        }
        if segment.data.is_empty() || !flags.contains(Flags::ACK) && !flags.contains(Flags::SYN) {
            // memcached gets nothing of it.
            return Segment::Pass;
        }
        let Some(&at) = self.by_key.get(&key) else {
            counters.one(Counter::TcpUnknown);
            gate.shut(now_ns);
            return Segment::Pass;
        };
        if !parts.adds_up(frame, Protocol::TCP) {
            counters.one(Counter::BadChecksum);
            return Segment::Pass;
        }
        let conn = &mut self.conns[at as usize];
        if flags.contains(Flags::URG) || flags.contains(Flags::SYN) {
            // A byte of it is not in the stream that memcached reads; or it is another connection's.
            self.lose(&key, now_ns, gate, counters);
            gate.shut(now_ns);
            return Segment::Pass;
        }
        conn.fresh_ns = None;
        // What was never sent is acknowledged: the kernel takes none of it (a FIN has a number too).
        if segment.ack.wrapping_sub(conn.next[End::Server as usize]) as i32 > 1 {
            counters.one(Counter::TcpHole);
            return Segment::OutOfOrder;
        }
        let data = match conn.fresh(End::Client, &segment, now_ns) {
            Fresh::Old => {
                counters.one(Counter::TcpOld);
                return Segment::Pass;
            }
            Fresh::Hole => {
                counters.one(Counter::TcpHole);
                return Segment::OutOfOrder;
            }
            Fresh::Lost => {
                self.lose(&key, now_ns, gate, counters);
                gate.shut(now_ns);
                return Segment::Pass;
            }
            Fresh::Data(data) => data,
        };
        if conn.commands(data, now_ns, hash, gate, counters).is_err() {
            self.lose(&key, now_ns, gate, counters);
            gate.shut(now_ns);
        }
        Segment::Pass
    }

    /// A segment of memcached.
    pub(crate) fn reply(
        &mut self,
        frame: &[u8],
        parts: &Parts,
        now_ns: u64,
        gate: &mut Gate,
        counters: &mut Counters,
    ) -> Segment {
        let key = (parts.dst, parts.src, parts.destination_port);
        let Some(segment) = Read::new(frame, parts) else { return Segment::Pass };
        let flags = segment.flags;
        if flags.contains(Flags::SYN) {
            if flags.contains(Flags::ACK) && parts.adds_up(frame, Protocol::TCP) {
                self.open(key, [segment.ack, segment.seq.wrapping_add(1)], now_ns, gate, counters);
            }
            return Segment::Pass;
        }
        let ends = flags.contains(Flags::RST) || flags.contains(Flags::FIN);
        if segment.data.is_empty() && !ends {
            return Segment::Pass;
        }
        let Some(&at) = self.by_key.get(&key) else { return Segment::Pass };
        if !parts.adds_up(frame, Protocol::TCP) {
            counters.one(Counter::BadChecksum);
            return Segment::Pass;
        }
        let conn = &mut self.conns[at as usize];
        match conn.fresh(End::Server, &segment, now_ns) {
            Fresh::Old => {}
            // A reset ends it wherever it stands; what was begun ends by the clock.
            Fresh::Hole if !flags.contains(Flags::RST) => {
                counters.one(Counter::TcpHole);
                return Segment::OutOfOrder;
            }
            Fresh::Hole | Fresh::Lost => {
                self.lose(&key, now_ns, gate, counters);
                return Segment::Pass;
            }
            Fresh::Data(data) => {
                if conn.answers(data, gate, counters).is_err() {
                    self.lose(&key, now_ns, gate, counters);
                    return Segment::Pass;
                }
            }
        }
        if ends {
            self.close(&key, now_ns, gate, counters);
        }
        Segment::Pass
    }

    fn open(&mut self, key: Key, next: [u32; 2], now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
        if let Some(&at) = self.by_key.get(&key) {
            if self.conns[at as usize].opened == next {
                // Sent again.
                return;
            }
            // The one before with these ends: what it has sent may not be executed yet.
            self.close(&key, now_ns, gate, counters);
        }
        if self.free.is_empty() {
            // One of which nothing has come but its opening.
            let fresh =
                self.by_key.iter().filter_map(|(key, &at)| Some((self.conns[at as usize].fresh_ns?, *key)));
            if let Some((_, oldest)) = fresh.min() {
                self.close(&oldest, now_ns, gate, counters);
            }
        }
        let Some(at) = self.free.pop() else {
            counters.one(Counter::TcpFull);
            return;
        };
        let conn = &mut self.conns[at as usize];
        (conn.requests, conn.replies, conn.next) = (Requests::new(), Replies::new(), next);
        (conn.opened, conn.begun, conn.hole_since_ns, conn.fresh_ns) = (next, 0, [None; 2], Some(now_ns));
        self.by_key.insert(key, at);
        counters.one(Counter::TcpOpened);
    }

    fn close(&mut self, key: &Key, now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
        let Some(at) = self.by_key.remove(key) else { return };
        counters.one(Counter::TcpClosed);
        let conn = &mut self.conns[at as usize];
        conn.outstanding.end(|_| ());
        conn.effects.drain(..).for_each(|slot| gate.end_later(slot, now_ns));
        self.free.push(at);
    }

    fn lose(&mut self, key: &Key, now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
        counters.one(Counter::TcpLost);
        self.close(key, now_ns, gate, counters);
    }
}

/// What of a segment is new.
enum Fresh<'a> {
    Old,
    Hole,
    Lost,
    Data(&'a [u8]),
}

/// It cannot be followed any more.
struct Lost;

impl Conn {
    fn fresh<'a>(&mut self, from: End, segment: &Read<'a>, now_ns: u64) -> Fresh<'a> {
        let next = &mut self.next[from as usize];
        let ahead = segment.seq.wrapping_sub(*next) as i32;
        if ahead > 0 {
            let since_ns = *self.hole_since_ns[from as usize].get_or_insert(now_ns);
            return if now_ns.saturating_sub(since_ns) > HOLE_NS { Fresh::Lost } else { Fresh::Hole };
        }
        // Behind a FIN nothing comes.
        match segment.data.get(ahead.unsigned_abs() as usize..) {
            None | Some([]) => Fresh::Old,
            Some(data) => {
                *next = next.wrapping_add(data.len() as u32);
                self.hole_since_ns[from as usize] = None;
                Fresh::Data(data)
            }
        }
    }

    fn commands(
        &mut self,
        data: &[u8],
        now_ns: u64,
        hash: &impl BuildHasher,
        gate: &mut Gate,
        counters: &mut Counters,
    ) -> Result<(), Lost> {
        let Conn { requests, outstanding, effects, begun, .. } = self;
        let mut right = Ok(());
        requests.push(data, &mut |event| {
            let slot = match event {
                Event::Reads(_) => return,
                Event::Mutates(key) => gate.begin(hash.hash_one(key)),
                Event::All => {
                    counters.one(Counter::Void);
                    gate.begin_all()
                }
                Event::Command(command) => {
                    if outstanding.command(command, std::mem::take(begun)).is_err() {
                        right = Err(Lost);
                    }
                    return;
                }
                Event::Lost(_) => {
                    right = Err(Lost);
                    return;
                }
            };
            counters.one(Counter::TcpMutation);
            if effects.len() < EFFECTS {
                *begun += 1;
                effects.push_back(slot);
            } else {
                gate.end_later(slot, now_ns);
                right = Err(Lost);
            }
        });
        for delay in requests.take_delays() {
            counters.one(Counter::FlushLater);
            match delay {
                Delay::Seconds(seconds) => gate.flush_later(seconds, now_ns),
                Delay::Unknown => gate.shut_for_good(),
            }
        }
        debug_assert!(requests.place() != Place::Lost || right.is_err());
        right
    }

    fn answers(&mut self, data: &[u8], gate: &mut Gate, counters: &mut Counters) -> Result<(), Lost> {
        let Conn { replies, outstanding, effects, .. } = self;
        let mut right = Ok(());
        replies.push(data, |reply| {
            if reply == Reply::Lost {
                right = Err(Lost);
                return;
            }
            let done = outstanding.reply(reply, |count| {
                for _ in 0..count {
                    if let Some(slot) = effects.pop_front() {
                        gate.end(slot);
                        counters.one(Counter::TcpReleased);
                    }
                }
            });
            if done.is_err() {
                right = Err(Lost);
            }
        });
        right
    }
}

/// A segment's header and data.
struct Read<'a> {
    seq: u32,
    ack: u32,
    flags: Flags,
    data: &'a [u8],
}

impl<'a> Read<'a> {
    fn new(frame: &'a [u8], parts: &Parts) -> Option<Self> {
        let bytes = parts.transport(frame);
        let packet = tcp::Packet::new_checked(bytes).ok()?;
        let (seq, ack, flags) = (packet.seq(), packet.ack(), packet.flags());
        let data = bytes.get(packet.header_len()..)?;
        Some(Read { seq, ack, flags, data })
    }
}
