//! Sessions: begun, followed, answered, ended; and whose turn it is to go where there is no room.
//!
//! Whoever is outside costs little, whatever he sends:
//!
//! | session | counts | ends |
//! |---|---|---|
//! | begun from inside | for its host (`host_sessions`), keeps its mapping | when it is silent for too long |
//! | a connection from outside, not answered | an eighth of the room | so, or as the oldest of them where another needs the place |
//! | the same, answered: the handshake has gone both ways | a quarter of the room, three quarters of that at one mapping, `source_sessions` of one address; keeps its mapping | when it is silent for too long; reset from inside it is as one that was not answered |
//! | the same, closed by both | as one that was not answered: it gives way where another needs the place (what lingers of it may be long: RFC 5382, REQ-5) | so, or when it is silent for too long |
//! | a datagram or query from outside to a static mapping, or a datagram from there | an eighth of the room; without a place it passes, and nothing is noted | when it is silent for too long |
//!
//! So one half and more is always for what begins inside. A mapping that nobody inside keeps any more lets nobody new in, and goes with its
//! last session, which nobody outside can keep.

use super::hosts::network;
use super::{
    ANSWERED, FROM_OUTSIDE, LANES, Mapping, Piece, SERIAL, SERIAL_SHIFT, STEP, Sort, State, TIME_SHIFT,
    insert,
};
use crate::nat::config::Filtering;
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::settings::Times;
use crate::nat::tcp::{Tcp, flag};
use tidemill_burst::DropReason;
use tidemill_flow::flowtable::{Slot, Swept};
use tidemill_flow::hash::KeyHash;
use tidemill_flow::key::Key;

/// As whose a session counts that a packet begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// Its inside host's.
    Inside,
    /// Nobody's inside: from outside, or a datagram of a static mapping, which is its answer as often as not.
    Outside,
}

/// Notes of connections that wait for an answer that one packet looks at to find a place.
const TRIES: usize = 16;

/// What a packet makes of its session.
pub(super) struct Noted {
    /// The two words of the session's state that change, as they are with it.
    pub(super) words: [u64; 2],
    /// What else is to be done.
    pub(super) turn: Option<Turn>,
}

/// A session that was begun from outside comes to count otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// As one that was answered.
    Answered,
    /// As one that was answered no longer.
    Denied,
}

/// What a packet makes of the two words of a session that lives; `is_dynamic`: whether its mapping is, asked where that matters.
#[inline]
pub(super) fn note(
    [first, packets]: [u64; 2],
    now_ms: u64,
    times: &Times,
    piece: Piece,
    out: bool,
    is_dynamic: impl FnOnce() -> bool,
) -> Noted {
    let (mut until_ms, mut low, mut turn) = (first >> TIME_SHIFT, first & 0xffff, None);
    match piece {
        Piece::Tcp(flags) => {
            let before = Tcp(low as u8);
            // Who is outside keeps no session of a dynamic mapping that nobody inside has answered, nor one that is over.
            let keeps = out || packets == 0 || before.is_answered() || !is_dynamic();
            if keeps || !before.is_closed() || Tcp::is_anew(flags) {
                let tcp = before.after(flags, out);
                if low & (FROM_OUTSIDE | ANSWERED) == FROM_OUTSIDE && tcp.is_proven() {
                    turn = Some(Turn::Answered);
                } else if low & ANSWERED != 0 && (tcp.is_finished() || (out && flags & flag::RST != 0)) {
                    // So a server tells forged handshakes from others: it has heard nothing of this one. And who has hung up holds no place.
                    turn = Some(Turn::Denied);
                }
                low = low & !0xff | u64::from(tcp.0);
                until_ms = if keeps { now_ms + tcp.timeout_ms(times) } else { until_ms };
            }
        }
        // The first packet counts whoever sent it.
        Piece::Udp if out || times.inbound_refresh || packets == 0 => until_ms = now_ms + times.udp_ms,
        Piece::Request => until_ms = now_ms + times.icmp_ms,
        Piece::Udp | Piece::Reply => {}
    }
    let (sent, came) = ((packets >> 32) as u32, packets as u32);
    let (sent, came) = if out { (sent.saturating_add(1), came) } else { (sent, came.saturating_add(1)) };
    Noted { words: [until_ms << TIME_SHIFT | low, u64::from(sent) << 32 | u64::from(came)], turn }
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
    /// Notes a packet in its session, which is made if the packet `begins` one and there is none.
    #[allow(clippy::too_many_arguments)] // a packet is that
    pub(super) fn follow(
        &mut self,
        now_ms: u64,
        times: &Times,
        mapping: u32,
        remote: Endpoint<A>,
        piece: Piece,
        out: bool,
        begins: Option<Begins>,
    ) -> Result<(), DropReason> {
        let key = self.session_of(mapping, remote);
        let slot = match self.find_session(&key) {
            Some(slot) if self.sessions.word(slot, 0) >> TIME_SHIFT > now_ms => slot,
            over => {
                let Some(begins) = begins else { return Err(DropReason::NatUnasked) };
                // Over, but not swept yet: what begins now has nothing of it.
                if over.is_some()
                    && let Some(state) = self.sessions.remove(self.sessions.hasher().hash(&key), &key)
                {
                    self.ended = self.ended.wrapping_add(1);
                    self.settle(mapping, remote.address, state[0]);
                }
                self.begin(mapping, remote, key, begins == Begins::Inside)?
            }
        };
        let words = [self.sessions.word(slot, 0), self.sessions.word(slot, 1)];
        let Noted { words: [mut first, packets], turn } =
            note(words, now_ms, times, piece, out, || self.is_dynamic(mapping));
        match turn {
            None => {}
            Some(Turn::Answered) => {
                self.answer(mapping, remote.address)?;
                first |= ANSWERED;
            }
            Some(Turn::Denied) => {
                first = first & !(ANSWERED | SERIAL) | self.deny(mapping, remote.address, key);
            }
        }
        self.sessions.set_word(slot, 0, first);
        self.sessions.set_word(slot, 1, packets);
        Ok(())
    }

    pub(super) fn is_dynamic(&self, mapping: u32) -> bool {
        self.mappings[mapping as usize].sort == Sort::Dynamic
    }

    /// A session that counts as its inside host's if `out`.
    pub(super) fn begin(
        &mut self,
        mapping: u32,
        remote: Endpoint<A>,
        key: Key<S>,
        out: bool,
    ) -> Result<Slot, DropReason> {
        // It stays, whoever gives way.
        self.mappings[mapping as usize].sessions += 1;
        self.begin_counted(mapping, remote, key, out)
            .inspect_err(|_| self.mappings[mapping as usize].sessions -= 1)
    }

    fn begin_counted(
        &mut self,
        mapping: u32,
        remote: Endpoint<A>,
        key: Key<S>,
        out: bool,
    ) -> Result<Slot, DropReason> {
        let host = self.mappings[mapping as usize].host;
        let is_tcp = self.mappings[mapping as usize].proto == Proto::Tcp;
        if out {
            self.hosts.may_begin(host)?;
            self.may_keep(mapping)?;
        }
        if !out && !is_tcp && self.datagrams >= self.eighth() {
            return Err(DropReason::NatTableFull);
        }
        // What could as well pass without a session takes nobody's.
        if !self.make_room(if out || is_tcp { TRIES } else { 0 }) {
            return Err(DropReason::NatTableFull);
        }
        if out {
            self.keep(mapping, remote.address)?;
        }
        let hash = self.sessions.hasher().hash(&key);
        let Some(slot) = insert(&mut self.sessions, hash, &key) else {
            if out {
                self.let_go(mapping, remote.address);
            }
            return Err(DropReason::NatTableFull);
        };
        let mut head = if out { 0 } else { FROM_OUTSIDE };
        if out {
            self.hosts.count_session(host, true);
        } else if is_tcp {
            head |= self.await_answer(key);
        } else {
            self.datagrams += 1;
        }
        let outside = self.mappings[mapping as usize].outside;
        self.sessions.set_state(slot, A::state([head, 0], mapping, outside));
        Ok(slot)
    }

    /// An eighth of the room for sessions.
    fn eighth(&self) -> usize {
        self.plan.sessions.div_ceil(8)
    }

    /// Whether there is a place for one more session; connections from outside that nobody has answered give way, the oldest first.
    fn make_room(&mut self, tries: usize) -> bool {
        for _ in 0..tries {
            if self.sessions.len() < self.plan.sessions {
                break;
            }
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.give_way(oldest);
        }
        self.sessions.len() < self.plan.sessions
    }

    /// Whether there is a place for one more mapping; the same give way, with mappings that are theirs alone.
    pub(super) fn make_mapping_room(&mut self, is_enough: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..TRIES {
            if self.unkept == 0 || is_enough(self) {
                break;
            }
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.give_way(oldest);
        }
        is_enough(self)
    }

    /// Ends a session that waits for an answer, if it still does.
    fn give_way(&mut self, (key, serial): (Key<S>, u8)) {
        let hash = self.sessions.hasher().hash(&key);
        let Some(slot) = self.sessions.find(hash, &key) else { return };
        let head = self.sessions.word(slot, 0);
        let is_it = head & SERIAL == u64::from(serial) << SERIAL_SHIFT & SERIAL;
        if !is_it || head & (FROM_OUTSIDE | ANSWERED) != FROM_OUTSIDE {
            return;
        }
        let Some(state) = self.sessions.remove(hash, &key) else { return };
        self.ended = self.ended.wrapping_add(1);
        self.evicted += 1;
        let ((mapping, _), (_, _, remote)) = (A::of_state(&state), A::of_session(&key));
        self.settle(mapping, remote.address, head);
        self.unmap_idle(mapping);
    }

    /// A connection from outside whose handshake has gone both ways.
    pub(super) fn answer(&mut self, mapping: u32, address: A) -> Result<(), DropReason> {
        let room = self.answered_room();
        let of_mapping = self.mappings[mapping as usize].answered as usize;
        if self.answered >= room || of_mapping >= (3 * room).div_ceil(4) {
            return Err(DropReason::NatTableFull);
        }
        let (key, hash) = self.source(address);
        let slot = insert(&mut self.sources, hash, &key).ok_or(DropReason::NatTableFull)?;
        let count = self.sources.word(slot, 0);
        if count >= u64::from(self.plan.source_sessions) {
            return Err(DropReason::NatSourceLimit);
        }
        self.keep(mapping, address).inspect_err(|_| {
            if count == 0 {
                self.sources.remove(hash, &key);
            }
        })?;
        if let Some(slot) = self.sources.find(hash, &key) {
            self.sources.set_word(slot, 0, count + 1);
        }
        self.answered += 1;
        self.mappings[mapping as usize].answered += 1;
        Ok(())
    }

    /// One that was answered is no longer: it waits again, as the last one. Its number among these, where that belongs.
    fn deny(&mut self, mapping: u32, address: A, key: Key<S>) -> u64 {
        self.forget_answer(mapping, address);
        self.await_answer(key)
    }

    /// Notes a connection that waits for its answer, behind all others; the oldest of them goes, if there is no room and it still waits.
    fn await_answer(&mut self, key: Key<S>) -> u64 {
        if self.waiting.len() >= self.eighth()
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.give_way(oldest);
        }
        self.serial = self.serial.wrapping_add(1);
        self.waiting.push_back((key, self.serial));
        u64::from(self.serial) << SERIAL_SHIFT & SERIAL
    }

    fn forget_answer(&mut self, mapping: u32, address: A) {
        self.let_go(mapping, address);
        self.answered -= 1;
        self.mappings[mapping as usize].answered -= 1;
        let (key, hash) = self.source(address);
        if let Some(slot) = self.sources.find(hash, &key) {
            match self.sources.word(slot, 0) {
                0 | 1 => drop(self.sources.remove(hash, &key)),
                count => self.sources.set_word(slot, 0, count - 1),
            }
        }
    }

    /// Answered sessions that were begun from outside: so many at most.
    pub(super) fn answered_room(&self) -> usize {
        self.plan.sessions.div_ceil(4)
    }

    /// What an outside address is counted by: of IPv6 its /64.
    fn source(&self, address: A) -> (Key<E>, u64) {
        let address = if A::V6 { A::of_bits(u128::from(network(address).0[0]) << 64) } else { address };
        let key = A::endpoint(Proto::Tcp, Endpoint { address, port: 0 });
        (key, self.sources.hasher().hash(&key))
    }

    fn may_keep(&self, mapping: u32) -> Result<(), DropReason> {
        match self.mappings[mapping as usize] {
            Mapping { kept: 0, sort: Sort::Dynamic | Sort::Whole, host, .. } => self.hosts.may_keep(host),
            _ => Ok(()),
        }
    }

    /// A session keeps a mapping, and has the filter let its remote address in.
    fn keep(&mut self, mapping: u32, address: A) -> Result<(), DropReason> {
        if self.plan.filtering == Filtering::AddressDependent {
            let key = self.session_of(mapping, Endpoint { address, port: 0 });
            let hash = self.remotes.hasher().hash(&key);
            let slot = insert(&mut self.remotes, hash, &key).ok_or(DropReason::NatTableFull)?;
            let count = self.remotes.word(slot, 0);
            self.remotes.set_word(slot, 0, count + 1);
        }
        let about = &mut self.mappings[mapping as usize];
        about.kept += 1;
        if about.kept == 1 && about.sort != Sort::Fixed {
            self.unkept -= 1;
            self.hosts.count_mapping(about.host, true);
        }
        Ok(())
    }

    fn let_go(&mut self, mapping: u32, address: A) {
        if self.plan.filtering == Filtering::AddressDependent {
            let key = self.session_of(mapping, Endpoint { address, port: 0 });
            let hash = self.remotes.hasher().hash(&key);
            if let Some(slot) = self.remotes.find(hash, &key) {
                match self.remotes.word(slot, 0) {
                    0 | 1 => drop(self.remotes.remove(hash, &key)),
                    count => self.remotes.set_word(slot, 0, count - 1),
                }
            }
        }
        let about = &mut self.mappings[mapping as usize];
        about.kept -= 1;
        if about.kept == 0 && about.sort != Sort::Fixed {
            self.unkept += 1;
            self.hosts.count_mapping(about.host, false);
        }
    }

    /// A session is gone whose first word was this; its mapping may have no other.
    fn settle(&mut self, mapping: u32, address: A, head: u64) {
        let Mapping { proto, host, .. } = self.mappings[mapping as usize];
        match (head & FROM_OUTSIDE != 0, head & ANSWERED != 0) {
            (false, _) => {
                self.let_go(mapping, address);
                self.hosts.count_session(host, false);
            }
            (true, true) => self.forget_answer(mapping, address),
            // Its note among those that wait says nothing any more.
            (true, false) if proto == Proto::Tcp => {}
            (true, false) => self.datagrams -= 1,
        }
        self.mappings[mapping as usize].sessions -= 1;
    }

    /// Ends a mapping that has no session.
    pub(super) fn unmap_idle(&mut self, mapping: u32) {
        if self.mappings[mapping as usize].sessions == 0 {
            self.unmap(mapping);
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
                let ((mapping, _), (_, _, remote)) = (A::of_state(&state), A::of_session(key));
                dead.push((mapping, remote.address, state[0]));
                Swept::Goes
            });
            self.ended = self.ended.wrapping_add(self.dead.len() as u64);
            while let Some((mapping, address, head)) = self.dead.pop() {
                self.settle(mapping, address, head);
                self.unmap_idle(mapping);
            }
        }
        gone
    }
}
