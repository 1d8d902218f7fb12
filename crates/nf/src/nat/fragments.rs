//! Fragments. Only the first one has the ports; the others get the addresses that it got (virtual reassembly: nothing is put together).
//!
//! * A fragment that comes before its first one waits, as a packet that the node keeps (RFC 4787, REQ-14: order does not matter).
//! * Packets are known by source, destination, protocol and identification, in places of four that a secret hash chooses. One that has come
//!   whole gives its place to the next. Where all four are taken one of them gives way: of a packet whose first fragment has not come, or was
//!   refused, its own source's before others'; else one that has been there for a second; else the oldest. So nobody's fragments are
//!   refused for others were there first, and what comes in order passes in a flood of what does not (REQ-14a).
//! * What comes from outside has one half of the places, and what comes from inside the other one.
//! * Fragments that overlap, reach beyond 65,535 bytes, or lie in more than eight pieces, have all fragments of their packet refused.

use tidemill_flow::hash::mix;

/// Places of one hash.
const WAYS: usize = 4;
/// Pieces that a packet may be known in.
const PIECES: usize = 8;

/// How long a packet that has come whole, but out of order, keeps its place for those that still wait, milliseconds.
const LINGER_MS: u64 = 1000;

/// Within this a packet's fragments come after each other, milliseconds: one that takes longer gives way before others.
const SOON_MS: u64 = 1000;

/// What a fragment belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole<A> {
    pub(crate) source: A,
    pub(crate) destination: A,
    pub(crate) ident: u32,
    pub(crate) protocol: u8,
    /// How its fragments come here, as a number: those of one way say nothing of another's.
    pub(crate) way: u16,
    /// Whether an inside host has sent them.
    pub(crate) from_inside: bool,
}

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known<A> {
    /// The first fragment has not come.
    Nothing,
    /// Whose it is: the worker's number.
    Worker(u16),
    /// Its addresses now.
    Addresses(A, A),
    /// No fragment of it passes.
    Refused,
}

/// A packet's place, as long as it is the same one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    place: u32,
    serial: u32,
    arrival: bool,
}

impl Token {
    /// As a number.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.place) << 32 | u64::from(self.serial) << 1 | u64::from(self.arrival)
    }

    #[cfg(test)]
    pub(crate) fn numbered(serial: u32) -> Self {
        Token { place: 0, serial, arrival: false }
    }

    /// Of the table that says whose fragments are.
    pub(crate) fn of_arrivals(self) -> Self {
        Token { arrival: true, ..self }
    }

    pub(crate) fn is_of_arrivals(self) -> bool {
        self.arrival
    }
}

#[derive(Clone, Copy)]
struct Entry<A> {
    whole: Option<Whole<A>>,
    known: Known<A>,
    until_ms: u64,
    serial: u32,
    pieces: [(u32, u32); PIECES],
    used: u8,
    /// Fragments that were told to wait.
    waiting: u8,
    /// Whether any ever was.
    waited: bool,
    /// Its bytes, once the last fragment has come; 0: it has not.
    total: u32,
    /// Whether it has come whole, in order: nobody needs the place any longer.
    done: bool,
}

/// See the [module](self).
pub(crate) struct Fragments<A> {
    entries: Box<[Entry<A>]>,
    secret: u64,
    serial: u32,
}

impl<A: Copy + Eq + Into<u128>> Fragments<A> {
    pub(crate) fn new(room: usize, secret: u64) -> Self {
        // Of each side.
        let places = 2 * WAYS * room.max(16).next_power_of_two();
        let empty = Entry {
            whole: None,
            known: Known::Nothing,
            until_ms: 0,
            serial: 0,
            pieces: [(0, 0); PIECES],
            used: 0,
            waiting: 0,
            waited: false,
            total: 0,
            done: false,
        };
        Fragments { entries: vec![empty; places].into(), secret, serial: 0 }
    }

    pub(crate) fn salt(&self) -> u64 {
        mix(self.secret)
    }

    /// A fragment of `whole` with these bytes: its packet's place and what is known of that.
    pub(crate) fn meet(
        &mut self,
        now_ms: u64,
        hold_ms: u64,
        whole: Whole<A>,
        bytes: std::ops::Range<u32>,
        more: bool,
    ) -> (Token, Known<A>) {
        let (is_first, end) = (bytes.start == 0, bytes.end);
        let place = self.place(now_ms, hold_ms, whole);
        let entry = &mut self.entries[place];
        // The next packet may have the same identification.
        if entry.whole != Some(whole) || entry.is_over(now_ms) {
            self.serial = self.serial.wrapping_add(1);
            *entry = Entry {
                whole: Some(whole),
                known: Known::Nothing,
                until_ms: now_ms + hold_ms,
                serial: self.serial,
                used: 0,
                waiting: 0,
                waited: false,
                total: 0,
                done: false,
                ..*entry
            };
        }
        if !entry.add(bytes) || !entry.ends(end, more) {
            entry.known = Known::Refused;
        }
        if entry.known == Known::Nothing && !is_first {
            entry.waiting = entry.waiting.saturating_add(1);
            entry.waited = true;
        }
        if entry.total > 0 && entry.used == 1 && entry.pieces[0] == (0, entry.total) {
            entry.done = !entry.waited;
            entry.until_ms = entry.until_ms.min(now_ms + LINGER_MS);
        }
        (Token { place: place as u32, serial: entry.serial, arrival: false }, entry.known)
    }

    /// Says what became of the first fragment.
    pub(crate) fn learn(&mut self, token: Token, known: Known<A>) {
        if let Some(entry) = self.entries.get_mut(token.place as usize)
            && entry.serial == token.serial
            && entry.known != Known::Refused
        {
            entry.known = known;
        }
    }

    /// Whether fragments were told to wait since it was last asked.
    pub(crate) fn take_waiting(&mut self, token: Token) -> bool {
        let entry = self.entries.get_mut(token.place as usize).filter(|entry| entry.serial == token.serial);
        entry.is_some_and(|entry| std::mem::take(&mut entry.waiting) > 0)
    }

    /// What is known now; `None` if the place is another packet's, or the time is over.
    pub(crate) fn look(&self, now_ms: u64, token: Token) -> Option<Known<A>> {
        let entry = self.entries.get(token.place as usize)?;
        (entry.serial == token.serial && entry.until_ms > now_ms).then_some(entry.known)
    }

    fn place(&self, now_ms: u64, hold_ms: u64, whole: Whole<A>) -> usize {
        let fold = |a: A| {
            let bits: u128 = a.into();
            (bits >> 64) as u64 ^ mix(bits as u64)
        };
        let rest = u64::from(whole.ident) << 24 | u64::from(whole.protocol) << 16 | u64::from(whole.way);
        let hash = mix(mix(mix(self.secret ^ fold(whole.source)) ^ fold(whole.destination)) ^ rest);
        let half = self.entries.len() / 2;
        let first = (hash as usize & (half - 1) & !(WAYS - 1)) + if whole.from_inside { half } else { 0 };
        let places = first..first + WAYS;
        let same = |at: &usize| self.entries[*at].whole == Some(whole) && self.entries[*at].until_ms > now_ms;
        let over = |at: &usize| self.entries[*at].is_over(now_ms);
        let found = places.clone().find(same).or_else(|| places.clone().find(over));
        found.unwrap_or_else(|| self.gives_way(now_ms, hold_ms, whole.source, places))
    }

    /// All of these places are taken: the one whose packet is forgotten.
    fn gives_way(&self, now_ms: u64, hold_ms: u64, source: A, places: std::ops::Range<usize>) -> usize {
        let until = |at: &usize| self.entries[*at].until_ms;
        let useless = |at: &usize| matches!(self.entries[*at].known, Known::Nothing | Known::Refused);
        let mine = |at: &usize| useless(at) && self.entries[*at].whole.is_some_and(|w| w.source == source);
        let oldest = places.clone().min_by_key(until).unwrap_or(places.start);
        if let Some(mine) = places.clone().filter(mine).min_by_key(until) {
            return mine;
        }
        if self.entries[oldest].until_ms + SOON_MS <= now_ms + hold_ms {
            return oldest;
        }
        places.filter(useless).min_by_key(until).unwrap_or(oldest)
    }
}

impl<A> Entry<A> {
    fn is_over(&self, now_ms: u64) -> bool {
        self.done || self.until_ms <= now_ms
    }

    /// Notes where the packet ends; false if that is not where it ended before, or bytes lie behind it.
    fn ends(&mut self, end: u32, more: bool) -> bool {
        if !more {
            let others = self.total > 0;
            self.total = end;
            if others {
                return false;
            }
        }
        self.total == 0 || self.pieces[..usize::from(self.used)].iter().all(|(_, last)| *last <= self.total)
    }

    /// Adds bytes to those known; false if some are there already, if there are none, or too many pieces.
    fn add(&mut self, bytes: std::ops::Range<u32>) -> bool {
        if bytes.is_empty() || bytes.end > 65_535 {
            return false;
        }
        let (mut start, mut end) = (bytes.start, bytes.end);
        let mut at = 0;
        while at < usize::from(self.used) {
            let (first, last) = self.pieces[at];
            if start < last && first < end {
                return false;
            }
            if first == end || last == start {
                (start, end) = (start.min(first), end.max(last));
                self.used -= 1;
                self.pieces[at] = self.pieces[usize::from(self.used)];
            } else {
                at += 1;
            }
        }
        if usize::from(self.used) == PIECES {
            return false;
        }
        self.pieces[usize::from(self.used)] = (start, end);
        self.used += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    fn whole(ident: u32) -> Whole<u32> {
        Whole { source: 1, destination: 2, ident, protocol: 17, way: 1, from_inside: false }
    }

    #[test]
    fn overlaps_are_found_in_any_order() {
        let mut random = StdRng::seed_from_u64(7);
        for round in 0..2000 {
            let mut fragments = Fragments::new(0, 5);
            let mut pieces: Vec<(u32, u32)> = (0..random.random_range(1..=6))
                .map(|_| {
                    let start = random.random_range(0..200) * 8;
                    (start, start + random.random_range(1..=4) * 8)
                })
                .collect();
            pieces.shuffle(&mut random);
            let (mut seen, mut refused) = (vec![false; 2000], false);
            for (start, end) in pieces.clone() {
                let bytes = start as usize..end as usize;
                refused |= seen[bytes.clone()].iter().any(|seen| *seen);
                seen[bytes].fill(true);
                let (_, known) = fragments.meet(1, 1000, whole(round), start..end, true);
                assert_eq!(known == Known::Refused, refused, "{pieces:?} at {start}..{end}");
            }
        }
    }

    #[test]
    fn time_and_room_end() {
        let mut fragments = Fragments::new(0, 5);
        let (token, known) = fragments.meet(10, 100, whole(1), 8..16, true);
        assert_eq!((known, fragments.look(109, token)), (Known::Nothing, Some(Known::Nothing)));
        fragments.learn(token, Known::Addresses(7, 8));
        assert_eq!(fragments.look(109, token), Some(Known::Addresses(7, 8)));
        assert_eq!(fragments.look(110, token), None);
        let (again, known) = fragments.meet(110, 100, whole(1), 8..16, true);
        assert_eq!((known, fragments.look(111, token)), (Known::Nothing, None));
        assert_ne!(again, token);
    }

    #[test]
    fn whoever_floods_pushes_out_his_own_first() {
        let mut fragments = Fragments::new(0, 5);
        let of = |source: u32, ident| Whole { source, ..whole(ident) };
        let mine: Vec<Token> = (0..16).map(|n| fragments.meet(1, 1000, of(1, n), 8..16, true).0).collect();
        let alive = |fragments: &Fragments<u32>| {
            mine.iter().filter(|token| fragments.look(2, **token).is_some()).count()
        };
        let before = alive(&fragments);
        assert!(before >= 14, "sixteen sets of four");
        // One other fills what is free, and then his own.
        for ident in 0..100_000 {
            fragments.meet(2, 1000, of(9, ident), 8..16, true);
        }
        assert!(alive(&fragments) >= before - 1, "{}", alive(&fragments));
        // Many others have the oldest go; but those that come now have their time.
        for source in 0..1000 {
            fragments.meet(2, 1000, of(100 + source, 1), 8..16, true);
        }
        assert_eq!(alive(&fragments), 0);
        let (token, _) = fragments.meet(3, 1000, of(1, 77), 8..16, true);
        for source in 0..16 {
            fragments.meet(3, 1000, of(5000 + source, 1), 8..16, true);
        }
        assert_eq!(fragments.look(3, token), Some(Known::Nothing));
    }

    #[test]
    fn who_begins_datagrams_and_never_ends_them_refuses_nobody() {
        let mut fragments = Fragments::new(0, 5);
        let of = |source: u32, ident| Whole { source, ..whole(ident) };
        for ident in 0..1000 {
            let (token, _) = fragments.meet(1, 15_000, of(9, ident), 0..8, true);
            fragments.learn(token, Known::Addresses(7, 8));
        }
        // In order and not, each of another source, all while the flood goes on.
        for n in 0..500_u32 {
            let now = 10 + u64::from(n);
            let (token, _) = fragments.meet(now, 15_000, of(9, 5000 + n), 0..8, true);
            fragments.learn(token, Known::Addresses(7, 8));
            let (first, second) = if n % 2 == 0 { (0..8, 8..12) } else { (8..12, 0..8) };
            let whole = of(100 + n, n);
            let (token, _) = fragments.meet(now, 15_000, whole, first.clone(), first.start == 0);
            fragments.learn(token, Known::Addresses(1, 2));
            fragments.meet(now, 15_000, of(9, 50_000 + n), 0..8, true);
            let again = fragments.meet(now, 15_000, whole, second.clone(), second.start == 0);
            assert_eq!(again, (token, Known::Addresses(1, 2)), "{n}");
        }
    }

    #[test]
    fn what_is_too_long_or_in_too_many_pieces_is_refused() {
        let mut fragments = Fragments::new(0, 5);
        assert_eq!(fragments.meet(1, 9, whole(1), 65_528..65_536, true).1, Known::Refused);
        for n in 0..9 {
            let known = fragments.meet(1, 9, whole(2), n * 16..n * 16 + 8, true).1;
            assert_eq!(known == Known::Refused, n == 8);
        }
    }

    #[test]
    fn what_has_come_in_order_gives_its_place_to_the_next() {
        let mut fragments = Fragments::new(0, 5);
        for ident in 0..2000 {
            let (token, known) = fragments.meet(1, 1000, whole(ident % 300), 0..8, true);
            assert_eq!(known, Known::Nothing, "{ident}");
            fragments.learn(token, Known::Addresses(7, 8));
            let (_, known) = fragments.meet(1, 1000, whole(ident % 300), 8..16, true);
            assert_eq!(known, Known::Addresses(7, 8));
            let (_, known) = fragments.meet(1, 1000, whole(ident % 300), 16..20, false);
            assert_eq!(known, Known::Addresses(7, 8));
        }
        // One that has come in another order is known as long as its fragments wait.
        let (token, _) = fragments.meet(1, 1000, whole(1), 8..12, false);
        assert_eq!(fragments.meet(1, 1000, whole(1), 0..8, true), (token, Known::Nothing));
        fragments.learn(token, Known::Addresses(7, 8));
        assert_eq!(fragments.look(1, token), Some(Known::Addresses(7, 8)));
    }

    #[test]
    fn a_first_fragment_finds_a_place_beside_those_that_have_none() {
        let mut fragments = Fragments::new(0, 5);
        for ident in 1000..3000 {
            fragments.meet(1, 1000, whole(ident), 8..16, true);
        }
        let (token, _) = fragments.meet(1, 1000, whole(1), 0..8, true);
        fragments.learn(token, Known::Addresses(7, 8));
        // Those whose first one was refused are in nobody's way either.
        for ident in 1000..3000 {
            let (token, _) = fragments.meet(1, 1000, whole(ident), 0..8, true);
            fragments.learn(token, Known::Refused);
        }
        assert_eq!(fragments.meet(1, 1000, whole(1), 8..12, false), (token, Known::Addresses(7, 8)));
        let from_inside = Whole { from_inside: true, ..whole(1) };
        let (token, known) = fragments.meet(1, 1000, from_inside, 8..16, true);
        assert_eq!(known, Known::Nothing);
        for ident in 1000..3000 {
            fragments.meet(1, 1000, whole(ident), 8..16, true);
        }
        assert_eq!(fragments.look(1, token), Some(Known::Nothing), "the other side has its own places");
    }

    #[test]
    fn a_packet_ends_once_and_nothing_is_behind_it() {
        let mut fragments = Fragments::new(0, 5);
        fragments.meet(1, 9, whole(1), 16..20, false);
        assert_eq!(fragments.meet(1, 9, whole(1), 24..32, true).1, Known::Refused);
        fragments.meet(1, 9, whole(2), 24..32, true);
        assert_eq!(fragments.meet(1, 9, whole(2), 8..16, false).1, Known::Refused);
    }
}
