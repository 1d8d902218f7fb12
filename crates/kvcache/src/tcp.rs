//! Connections to memcached, followed: what each command may change, and which commands have surely been executed.
//!
//! ```text
//! SYN, ACK of memcached -> both numbers known        client's data, in order -> Requests -> slots begin  \
//!                                                    memcached's data, in order -> Replies -> Outstanding -> slots end
//! ```
//! * A segment before which one is missing is dropped, in either direction, and TCP sends both again; bytes that were seen are not read twice. So each parser
//!   has every byte once, in order. Urgent data, and data of a SYN, are not let through: memcached might read them in another place.
//! * What cannot be followed is **blind**: a connection that was there before, a stream that memcached may read in another way, too many commands without an
//!   answer. Whatever it has begun ends `settle` later, and each further segment with data shuts the gate for as long; only a flush for later is
//!   looked for in it. So losing sight of a connection costs hits, and no truth, as long as memcached reads what has come within that time.

use crate::blind::Blind;
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
    /// Nothing has come of the client yet.
    is_fresh: bool,
    last_ns: u64,
    /// It is not followed.
    blind: Option<Blind>,
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
            is_fresh: false,
            last_ns: 0,
            blind: None,
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
        if !parts.adds_up(frame, Protocol::TCP) {
            counters.one(Counter::BadChecksum);
            return Segment::Pass;
        }
        if flags.contains(Flags::URG) || flags.contains(Flags::SYN) {
            counters.one(Counter::TcpHole);
            return Segment::OutOfOrder;
        }
        let at = match self.by_key.get(&key) {
            Some(&at) => at,
            None => {
                let at = self.place(key, [segment.seq, 0], now_ns, gate, counters);
                self.conns[at as usize].blind = Some(Blind::new());
                at
            }
        };
        let conn = &mut self.conns[at as usize];
        (conn.is_fresh, conn.last_ns) = (false, now_ns);
        // What was never sent is acknowledged: the kernel takes none of it (a FIN has a number too).
        let ahead = segment.ack.wrapping_sub(conn.next[End::Server as usize]) as i32;
        if conn.blind.is_none() && ahead > 1 {
            counters.one(Counter::TcpHole);
            return Segment::OutOfOrder;
        }
        let data = match conn.fresh(End::Client, &segment, now_ns) {
            Fresh::Old => {
                counters.one(Counter::TcpOld);
                &[]
            }
            Fresh::Hole => {
                counters.one(Counter::TcpHole);
                return Segment::OutOfOrder;
            }
            Fresh::Lost => {
                // It has come another way.
                conn.next[End::Client as usize] = segment.seq.wrapping_add(segment.data.len() as u32);
                conn.lose(now_ns, gate, counters);
                segment.data
            }
            Fresh::Data(data) => data,
        };
        if conn.blind.is_none() && conn.commands(data, now_ns, hash, gate, counters).is_err() {
            conn.lose(now_ns, gate, counters);
        }
        if let Some(blind) = &mut conn.blind {
            counters.one(Counter::TcpUnknown);
            gate.shut(now_ns);
            blind.push(data, |delay| later(delay, now_ns, gate, counters));
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
        if conn.blind.is_none() {
            match conn.fresh(End::Server, &segment, now_ns) {
                Fresh::Old => {}
                // A reset ends it wherever it stands; what was begun ends by the clock.
                Fresh::Hole if flags.contains(Flags::RST) => {}
                Fresh::Hole => {
                    counters.one(Counter::TcpHole);
                    return Segment::OutOfOrder;
                }
                Fresh::Lost => conn.lose(now_ns, gate, counters),
                Fresh::Data(data) => {
                    if conn.answers(data, gate, counters).is_err() {
                        conn.lose(now_ns, gate, counters);
                    }
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
        let at = self.place(key, next, now_ns, gate, counters);
        self.conns[at as usize].is_fresh = true;
        counters.one(Counter::TcpOpened);
    }

    /// Memory for a connection. If there is none, the place of one of which nothing has come but its opening, or else of one that has been silent
    /// for longest: that one is blind when it speaks again.
    fn place(
        &mut self,
        key: Key,
        next: [u32; 2],
        now_ns: u64,
        gate: &mut Gate,
        counters: &mut Counters,
    ) -> u32 {
        if self.free.is_empty() {
            let conns = &self.conns;
            let rank = |at: u32| (!conns[at as usize].is_fresh, conns[at as usize].last_ns);
            let least = self.by_key.iter().min_by_key(|(_, at)| rank(**at)).map(|(key, _)| *key);
            counters.one(Counter::TcpFull);
            least.into_iter().for_each(|key| self.close(&key, now_ns, gate, counters));
        }
        // There is at least one, and it was given back.
        let at = self.free.pop().unwrap_or(0);
        let conn = &mut self.conns[at as usize];
        (conn.requests, conn.replies, conn.next, conn.opened) = (Requests::new(), Replies::new(), next, next);
        (conn.begun, conn.hole_since_ns, conn.is_fresh) = (0, [None; 2], false);
        (conn.last_ns, conn.blind) = (now_ns, None);
        self.by_key.insert(key, at);
        at
    }

    fn close(&mut self, key: &Key, now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
        let Some(at) = self.by_key.remove(key) else { return };
        counters.one(Counter::TcpClosed);
        self.conns[at as usize].release(now_ns, gate);
        self.free.push(at);
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

/// A flush for later.
fn later(delay: Delay, now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
    counters.one(Counter::FlushLater);
    match delay {
        Delay::Seconds(seconds) => gate.flush_later(seconds, now_ns),
        Delay::Unknown => gate.shut_for_good(),
    }
}

impl Conn {
    /// What it has begun ends by the clock.
    fn release(&mut self, now_ns: u64, gate: &mut Gate) {
        self.outstanding.end(|_| ());
        self.effects.drain(..).for_each(|slot| gate.end_later(slot, now_ns));
    }

    /// It cannot be followed any more.
    fn lose(&mut self, now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
        counters.one(Counter::TcpLost);
        self.release(now_ns, gate);
        self.blind = Some(Blind::new());
    }

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
            later(delay, now_ns, gate, counters);
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
