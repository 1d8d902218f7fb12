//! Connections to memcached, followed: what each command may change, and which commands have surely been executed.
//!
//! ```text
//! SYN, ACK of memcached -> both numbers known        client's data, in order -> Requests -> slots begin  \
//!                                                    memcached's data, in order -> Replies -> Outstanding -> slots end
//! ```
//! * A segment before which one is missing is dropped, in either direction, and TCP sends both again; bytes that were seen are not read twice. So each parser
//!   has every byte once, in order. Urgent data, and data of a SYN, are not let through: memcached might read them in another place.
//! * A command that is not answered (`noreply`) ends by the clock, `settle` after memcached's kernel has acknowledged it, unless one that is answered follows
//!   before: that one's reply is a proof.
//! * What cannot be followed is **blind**: a connection that was there before, a stream that memcached may read in another way, too many commands without an
//!   answer, one of those that bring a stream of Multipath TCP, one that was reset (nobody knows whether memcached's kernel took the reset for one). Whatever it
//!   has begun ends `settle` later, and each further segment with data, of either side, shuts the gate for as long, and until memcached has told what flush waits.
//!   So losing sight of a connection costs hits, and no truth, as long as memcached reads what has come within that time. Where it does later, because the client
//!   leaves answers unread, its answer voids what was kept; because it has not accepted the connection yet, it says so when it is asked (`server.rs`).
//! * With SYN cookies a kernel answers several SYNs of the same ends, and which of its answers counts is seen by none of them: a second one with other
//!   numbers, or data before the first byte, makes the connection blind.

use crate::cache::seconds;
use crate::counters::{Counter, Counters};
use crate::frame::Parts;
use crate::gate::{Gate, Slot};
use crate::keyhash::KeyHash;
use foldhash::quality::FixedState;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use tidemill_kv::codec::event::{Answer, Event};
use tidemill_kv::codec::outstanding::Outstanding;
use tidemill_kv::codec::replies::{Replies, Reply};
use tidemill_kv::codec::stream::{Place, Requests};
use tidemill_wire::Protocol;
use tidemill_wire::tcp::{self, Flags, TcpOption};

/// Commands of a connection that wait for their answers, and what they may change.
const COMMANDS: usize = 128;
const EFFECTS: usize = 256;
/// A SYN-ACK may be the beginning of a connection for so long (`MAX_SYNCOOKIE_AGE` in Linux, and one more minute).
const COOKIE_NS: u64 = 180_000_000_000;
/// Data of a client so far from the first byte may be before it only by the number's turn.
const GROWN: u32 = 1 << 30;
/// The option of Multipath TCP (RFC 8684, 3).
const MULTIPATH: u8 = 30;
/// A hole that stays so long has been filled another way.
const HOLE_NS: u64 = 3_000_000_000;

/// A client's address, memcached's, the client's port, the VLAN: in another one it is another connection.
type Key = (IpAddr, IpAddr, u16, u16);

#[derive(Debug)]
struct Conn {
    requests: Requests,
    replies: Replies,
    /// Each with how many of the slots in `effects` are its.
    outstanding: Outstanding<u32>,
    effects: VecDeque<Slot>,
    /// Commands at the end of `outstanding` that are not answered.
    silent: usize,
    /// Slots of commands that are not answered, before any that is: they are in no `outstanding`, which is empty then.
    unowned: usize,
    /// Those among them of a command whose value is not whole.
    last: usize,
    /// When memcached's kernel has acknowledged this, so many of them end by the clock.
    mark: Option<(u32, usize)>,
    /// What comes next from the client and from memcached.
    next: [u32; 2],
    /// What it began with, and when.
    opened: [u32; 2],
    opened_ns: u64,
    is_grown: bool,
    /// Keys of a command whose line is not whole yet.
    begun: u32,
    hole_since_ns: [Option<u64>; 2],
    /// Nothing has come of the client yet, or nothing since a reset.
    is_fresh: bool,
    last_ns: u64,
    /// It is not followed.
    is_blind: bool,
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
    /// Until then some other SYN-ACK of a connection may have been forgotten.
    crowded_until_ns: u64,
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
            silent: 0,
            unowned: 0,
            last: 0,
            mark: None,
            next: [0; 2],
            opened: [0; 2],
            opened_ns: 0,
            is_grown: false,
            begun: 0,
            hole_since_ns: [None; 2],
            is_fresh: false,
            last_ns: 0,
            is_blind: false,
        };
        Connections {
            conns: (0..most).map(conn).collect(),
            free: (0..most as u32).rev().collect(),
            by_key: HashMap::with_capacity_and_hasher(2 * most, FixedState::with_seed(secret)),
            crowded_until_ns: 0,
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
        hash: &KeyHash,
        gate: &mut Gate,
        counters: &mut Counters,
    ) -> Segment {
        let key = (parts.src, parts.dst, parts.source_port, parts.vlan);
        let Some(segment) = Read::new(frame, parts) else { return Segment::Pass };
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            self.reset(&key, now_ns, gate, counters);
            return Segment::Pass;
        }
        if segment.data.is_empty() || !flags.contains(Flags::ACK) && !flags.contains(Flags::SYN) {
            // memcached gets nothing of it.
            return Segment::Pass;
        }
        if !parts.adds_up(frame, Protocol::TCP) {
            counters.one(Counter::BadChecksum);
            if parts.is_half_summed(frame) {
                // Nobody knows whether memcached has it.
                self.reset(&key, now_ns, gate, counters);
                gate.shut(now_ns);
            }
            return Segment::Pass;
        }
        if flags.contains(Flags::URG) || flags.contains(Flags::SYN) {
            counters.one(Counter::TcpHole);
            return Segment::OutOfOrder;
        }
        let Some(&at) = self.by_key.get(&key) else {
            counters.one(Counter::TcpUnknown);
            gate.shut(now_ns);
            return Segment::Pass;
        };
        let conn = &mut self.conns[at as usize];
        (conn.is_fresh, conn.last_ns) = (false, now_ns);
        let from = segment.seq.wrapping_sub(conn.opened[End::Client as usize]);
        if !conn.is_blind && !conn.is_grown && (from as i32) < 0 {
            // It began with another SYN-ACK.
            conn.lose(now_ns, gate, counters);
        }
        if !conn.is_blind && !parts.is_plain {
            // Of options memcached's kernel takes some, and drops others with what is behind them.
            conn.lose(now_ns, gate, counters);
        }
        // What was never sent is acknowledged: the kernel takes none of it, or it has come another way. (A FIN, which has a number too, has ended it here.)
        let ahead = segment.ack.wrapping_sub(conn.next[End::Server as usize]) as i32;
        if !conn.is_blind && ahead > 0 {
            if !conn.is_old_hole(End::Server, now_ns) {
                counters.one(Counter::TcpHole);
                return Segment::OutOfOrder;
            }
            conn.lose(now_ns, gate, counters);
        }
        if conn.is_blind {
            counters.one(Counter::TcpUnknown);
            gate.shut(now_ns);
            return Segment::Pass;
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
                conn.lose(now_ns, gate, counters);
                &[]
            }
            Fresh::Data(data) => data,
        };
        if !conn.is_blind && conn.commands(data, now_ns, hash, gate, counters).is_err() {
            conn.lose(now_ns, gate, counters);
        }
        if conn.is_blind {
            counters.one(Counter::TcpUnknown);
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
        let key = (parts.dst, parts.src, parts.destination_port, parts.vlan);
        let Some(segment) = Read::new(frame, parts) else { return Segment::Pass };
        let flags = segment.flags;
        if flags.contains(Flags::SYN) {
            if flags.contains(Flags::ACK) && parts.adds_up(frame, Protocol::TCP) {
                let next = [segment.ack, segment.seq.wrapping_add(1)];
                self.open(key, next, is_multipath(frame, parts), now_ns, gate, counters);
            }
            return Segment::Pass;
        }
        let ends = flags.contains(Flags::RST) || flags.contains(Flags::FIN);
        let at = self.by_key.get(&key).copied();
        if !segment.data.is_empty() && at.is_none_or(|at| self.conns[at as usize].is_blind) {
            // It may be the answer to what was not read, however long ago that came: memcached waits for a client that does not read. What is behind it and is not answered
            // is executed at once then.
            counters.one(Counter::TcpUnknown);
            gate.shut(now_ns);
        }
        let Some(at) = at else { return Segment::Pass };
        let conn = &mut self.conns[at as usize];
        if segment.data.is_empty() && !ends && conn.mark.is_none() {
            return Segment::Pass;
        }
        if !parts.adds_up(frame, Protocol::TCP) {
            counters.one(Counter::BadChecksum);
            return Segment::Pass;
        }
        if !conn.is_blind {
            let is_followed = match conn.fresh(End::Server, &segment, now_ns) {
                Fresh::Old => true,
                // A reset ends it wherever it stands; what was begun ends by the clock.
                Fresh::Hole if flags.contains(Flags::RST) => true,
                // It carries nothing but an acknowledgement.
                Fresh::Hole if segment.data.is_empty() && !ends => true,
                Fresh::Hole => {
                    counters.one(Counter::TcpHole);
                    return Segment::OutOfOrder;
                }
                Fresh::Lost => false,
                Fresh::Data(data) => conn.answers(data, gate, counters).is_ok(),
            };
            if !is_followed {
                conn.lose(now_ns, gate, counters);
                // It may be the answer to what was not read. Its client does not have it yet, and nothing from before is given any more.
                gate.shut(now_ns);
            }
            if flags.contains(Flags::ACK) {
                conn.acknowledged(segment.ack, now_ns, gate);
            }
        }
        if flags.contains(Flags::RST) {
            // It may be of another SYN-ACK.
            self.reset(&key, now_ns, gate, counters);
        } else if ends {
            self.close(&key, now_ns, gate, counters);
        }
        Segment::Pass
    }

    /// It was reset, or not: one with a wrong number is none for memcached's kernel.
    fn reset(&mut self, key: &Key, now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
        let Some(&at) = self.by_key.get(key) else { return };
        let conn = &mut self.conns[at as usize];
        conn.is_fresh = true;
        if !conn.is_blind {
            conn.lose(now_ns, gate, counters);
        }
    }

    fn open(
        &mut self,
        key: Key,
        next: [u32; 2],
        is_part: bool,
        now_ns: u64,
        gate: &mut Gate,
        counters: &mut Counters,
    ) {
        let mut is_blind = is_part || now_ns < self.crowded_until_ns;
        if let Some(&at) = self.by_key.get(&key) {
            let conn = &self.conns[at as usize];
            if conn.opened == next {
                // Sent again.
                return;
            }
            // Either of the two may be the beginning.
            is_blind |= now_ns < conn.opened_ns.saturating_add(COOKIE_NS);
            // The one before with these ends: what it has sent may not be executed yet.
            self.close(&key, now_ns, gate, counters);
        }
        let at = self.place(key, next, now_ns, gate, counters);
        let conn = &mut self.conns[at as usize];
        (conn.is_fresh, conn.is_blind) = (true, is_blind);
        counters.one(Counter::TcpOpened);
        if is_blind {
            counters.one(Counter::TcpLost);
        }
    }

    /// Memory for a connection that opens. If there is none, the place of one of which nothing has come but its opening or a reset, or else of one that has been silent
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
            if let Some(key) = least {
                let opened_ns = self.by_key.get(&key).map_or(0, |&at| self.conns[at as usize].opened_ns);
                self.crowded_until_ns = self.crowded_until_ns.max(opened_ns.saturating_add(COOKIE_NS));
                self.close(&key, now_ns, gate, counters);
            }
        }
        // There is at least one, and it was given back.
        let at = self.free.pop().unwrap_or(0);
        let conn = &mut self.conns[at as usize];
        (conn.requests, conn.replies, conn.next, conn.opened) = (Requests::new(), Replies::new(), next, next);
        (conn.hole_since_ns, conn.is_fresh, conn.is_blind) = ([None; 2], false, false);
        (conn.last_ns, conn.opened_ns, conn.is_grown) = (now_ns, now_ns, false);
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

impl Conn {
    /// What it has begun ends by the clock.
    fn release(&mut self, now_ns: u64, gate: &mut Gate) {
        self.outstanding.end(|_| ());
        self.effects.drain(..).for_each(|slot| gate.end_later(slot, now_ns));
        (self.begun, self.silent, self.unowned, self.last, self.mark) = (0, 0, 0, 0, None);
    }

    /// It cannot be followed any more.
    fn lose(&mut self, now_ns: u64, gate: &mut Gate, counters: &mut Counters) {
        counters.one(Counter::TcpLost);
        self.release(now_ns, gate);
        self.is_blind = true;
    }

    /// Whether what is missing there has been missing for so long that it must have come another way.
    fn is_old_hole(&mut self, from: End, now_ns: u64) -> bool {
        let since_ns = *self.hole_since_ns[from as usize].get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) > HOLE_NS
    }

    fn fresh<'a>(&mut self, from: End, segment: &Read<'a>, now_ns: u64) -> Fresh<'a> {
        let ahead = segment.seq.wrapping_sub(self.next[from as usize]) as i32;
        if ahead > 0 {
            return if self.is_old_hole(from, now_ns) { Fresh::Lost } else { Fresh::Hole };
        }
        let next = &mut self.next[from as usize];
        // Behind a FIN nothing comes.
        match segment.data.get(ahead.unsigned_abs() as usize..) {
            None | Some([]) => Fresh::Old,
            Some(data) => {
                *next = next.wrapping_add(data.len() as u32);
                if from == End::Client {
                    self.is_grown |= next.wrapping_sub(self.opened[from as usize]) >= GROWN;
                }
                self.hole_since_ns[from as usize] = None;
                Fresh::Data(data)
            }
        }
    }

    fn commands(
        &mut self,
        data: &[u8],
        now_ns: u64,
        hash: &KeyHash,
        gate: &mut Gate,
        counters: &mut Counters,
    ) -> Result<(), Lost> {
        let Conn { requests, outstanding, effects, begun, silent, unowned, last, mark, .. } = self;
        let mut right = Ok(());
        requests.push(data, &mut |event| {
            let slot = match event {
                Event::Reads(_) => return,
                Event::Mutates(key) => gate.begin(hash.of(key)),
                Event::All => {
                    counters.one(Counter::Void);
                    gate.begin_all()
                }
                Event::Command(command) => {
                    let count = std::mem::take(begun);
                    if command.answer == Answer::Never && outstanding.is_empty() {
                        *last = count as usize;
                        *unowned += *last;
                        return;
                    }
                    // Its reply is a proof of those before, too.
                    let before = std::mem::take(unowned) as u32;
                    (*last, *mark) = (0, None);
                    *silent = if command.answer == Answer::Never { *silent + 1 } else { 0 };
                    if outstanding.command(command, before + count).is_err() {
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
            gate.flush_later(seconds(delay), now_ns);
        }
        if !matches!(requests.place(), Place::InValue(_)) {
            *last = 0;
        }
        debug_assert!(requests.place() != Place::Lost || right.is_err());
        self.mark();
        right
    }

    /// What is not answered, and is whole, ends by the clock when it is acknowledged.
    fn mark(&mut self) {
        let count = self.unowned - self.last;
        if self.mark.is_none() && count > 0 {
            self.mark = Some((self.next[End::Client as usize], count));
        }
    }

    /// memcached's kernel has all before this.
    fn acknowledged(&mut self, ack: u32, now_ns: u64, gate: &mut Gate) {
        let Some((seq, count)) = self.mark else { return };
        // A FIN has a number too.
        let ahead = ack.wrapping_sub(self.next[End::Client as usize]) as i32;
        if ahead > 1 || (ack.wrapping_sub(seq) as i32) < 0 {
            return;
        }
        self.effects.drain(..count.min(self.effects.len())).for_each(|slot| gate.end_later(slot, now_ns));
        self.unowned -= count;
        self.mark = None;
        self.mark();
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
        let Conn { requests, silent, unowned, last, .. } = self;
        if !outstanding.is_empty() && outstanding.len() <= *silent {
            // Nothing that is left is answered.
            outstanding.end(|count| {
                *last = count as usize;
                *unowned += *last;
            });
            if !matches!(requests.place(), Place::InValue(_)) {
                *last = 0;
            }
            self.mark();
        }
        right
    }
}

/// Whether the connection that this opens may be one of several that bring one stream: what is next to each other in it comes by one or another.
fn is_multipath(frame: &[u8], parts: &Parts) -> bool {
    let Ok(packet) = tcp::Packet::new_checked(parts.transport(frame)) else { return true };
    packet.options().any(|option| match option {
        Ok(TcpOption::Other { kind, .. }) => kind == MULTIPATH,
        other => other.is_err(),
    })
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
