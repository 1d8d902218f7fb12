//! What may be given, and what may be kept: the rules of [`tidemill_kv::table::store`], with ends by the clock where memcached sends no proof.
//!
//! ```text
//! begin(k) -> slot: seq + 1, pending + 1 ......... end(slot): pending - 1      by memcached's own reply (TCP), or `settle` later (UDP, lost connections)
//! version(k) -> seq, epoch, only while nothing is pending and the gate is open
//! ```
//! Shut for everybody: while a mutation of everything may be under way, around the moment of a flush that was for later, unless memcached was
//! heard lately and is the same process, and in **doubt**: something has come that was not read, or a flush for later. When all of that has been executed
//! memcached is asked what flush waits (`stats settings`, `oldest`); that ends the doubt, unless there is a new one.

use std::collections::VecDeque;

/// What a value was read under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
}

/// A key's slot, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    pub(crate) const ALL: Slot = Slot(u32::MAX);
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    seq: u64,
    pending: u64,
}

/// The gate.
#[derive(Debug)]
pub(crate) struct Gate {
    slots: Box<[State]>,
    epoch: u64,
    /// Mutations of everything.
    pending: u64,
    shut_until_ns: u64,
    /// Moments of flushes to come.
    flushes: Vec<u64>,
    /// Ends by the clock, in order.
    ends: VecDeque<(u64, Slot)>,
    ends_most: usize,
    /// Times that there were too many.
    pub(crate) overflows: u64,
    settle_ns: u64,
    alive_until_ns: u64,
    /// How often it was in doubt, and up to which time of these memcached has told.
    doubt: u64,
    told: u64,
    told_ns: u64,
}

/// Ends by the clock that can wait, at least; else one for each slot. With more, everything waits.
const ENDS: usize = 1 << 16;
/// While a flush waits memcached is asked again so often: its clock and ours drift.
const AGAIN_NS: u64 = 600 * SECOND_NS;
/// Flushes that can wait for their time. With more, nothing is given until the last of them.
const FLUSHES: usize = 8;
const SECOND_NS: u64 = 1_000_000_000;
/// Around a later flush, beside `settle`: memcached's clock counts seconds, and now and then jumps by two.
const MARGIN_NS: u64 = 2 * SECOND_NS + SECOND_NS / 10;
/// A time above this is a date for memcached: 30 days.
const MONTH_S: u64 = 60 * 60 * 24 * 30;

impl Gate {
    pub(crate) fn new(slots: usize, settle_ns: u64) -> Self {
        let slots = slots.next_power_of_two();
        let ends_most = slots.max(ENDS);
        Gate {
            slots: vec![State::default(); slots].into(),
            epoch: 0,
            pending: 0,
            shut_until_ns: 0,
            flushes: Vec::with_capacity(FLUSHES),
            ends: VecDeque::with_capacity(ends_most),
            ends_most,
            overflows: 0,
            settle_ns,
            alive_until_ns: 0,
            doubt: 1,
            told: 0,
            told_ns: 0,
        }
    }

    fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    /// What time has brought: call it with every packet, before anything else.
    #[inline]
    pub(crate) fn turn(&mut self, now_ns: u64) {
        while let Some(&(at_ns, slot)) = self.ends.front()
            && at_ns <= now_ns
        {
            self.ends.pop_front();
            self.end(slot);
        }
        if !self.flushes.is_empty() {
            let (before, margin_ns) = (self.flushes.len(), self.margin_ns());
            self.flushes.retain(|at| now_ns < at.saturating_add(margin_ns));
            // What was kept before a flush's last moment is void.
            self.epoch += u64::from(self.flushes.len() < before);
        }
    }

    fn margin_ns(&self) -> u64 {
        self.settle_ns + MARGIN_NS
    }

    /// Whether nothing may be given or kept.
    #[inline]
    pub(crate) fn is_shut(&self, now_ns: u64) -> bool {
        let soon = |at: &u64| now_ns >= at.saturating_sub(self.margin_ns());
        self.pending > 0
            || self.doubt != self.told
            || now_ns < self.shut_until_ns
            || now_ns >= self.alive_until_ns
            || self.flushes.iter().any(soon)
    }

    /// What a value of this key would have to be read under now; `None` while that may not be kept.
    #[inline]
    pub(crate) fn version(&self, hash: u64, now_ns: u64) -> Option<Version> {
        let slot = self.slots[self.slot(hash)];
        let version = Version { seq: slot.seq, epoch: self.epoch };
        (slot.pending == 0 && !self.is_shut(now_ns)).then_some(version)
    }

    /// A mutation of this key has come, and goes on to memcached after this.
    pub(crate) fn begin(&mut self, hash: u64) -> Slot {
        let at = self.slot(hash);
        self.slots[at].seq += 1;
        self.slots[at].pending += 1;
        Slot(at as u32)
    }

    /// The same of everything.
    pub(crate) fn begin_all(&mut self) -> Slot {
        self.epoch += 1;
        self.pending += 1;
        Slot::ALL
    }

    /// A mutation has been executed, or will not be.
    pub(crate) fn end(&mut self, slot: Slot) {
        let pending = match self.slots.get_mut(slot.0 as usize) {
            Some(state) => &mut state.pending,
            None => &mut self.pending,
        };
        *pending = pending.saturating_sub(1);
    }

    /// It will have been `settle` from now.
    pub(crate) fn end_later(&mut self, slot: Slot, now_ns: u64) {
        if self.ends.len() < self.ends_most {
            self.ends.push_back((now_ns.saturating_add(self.settle_ns), slot));
        } else {
            self.overflows += 1;
            self.shut(now_ns);
            self.end(slot);
        }
    }

    /// Something has come that was not read: everything is void, and nothing is kept for `settle`, nor until memcached has told what flush waits.
    pub(crate) fn shut(&mut self, now_ns: u64) {
        self.epoch += 1;
        self.doubt += 1;
        self.shut_until_ns = self.shut_until_ns.max(now_ns.saturating_add(self.settle_ns));
    }

    /// A flush comes for later: `seconds` from its execution. It was told as a mutation of everything as well. A date (more than 30 days), and a number that
    /// memcached may read in more than one way (`None`), are known when memcached has told: only its own clock counts.
    pub(crate) fn flush_later(&mut self, seconds: Option<u32>, now_ns: u64) {
        self.epoch += 1;
        self.doubt += 1;
        if let Some(seconds) = seconds.map(u64::from).filter(|&seconds| seconds <= MONTH_S) {
            self.flush_at(now_ns.saturating_add(seconds * SECOND_NS), now_ns);
        }
    }

    fn flush_at(&mut self, at_ns: u64, now_ns: u64) {
        if at_ns.saturating_add(self.margin_ns()) <= now_ns {
            return;
        }
        if self.flushes.len() < FLUSHES {
            self.flushes.push(at_ns);
        } else {
            self.shut_until_ns = self.shut_until_ns.max(at_ns.saturating_add(self.margin_ns()));
        }
    }

    /// Whether memcached is to be asked what flush waits, now that it has executed all that could have asked for one: the number of this doubt.
    #[inline]
    pub(crate) fn in_doubt(&self, now_ns: u64) -> Option<u64> {
        let again = !self.flushes.is_empty() && now_ns.saturating_sub(self.told_ns) > AGAIN_NS;
        let executed = self.pending == 0 && now_ns >= self.shut_until_ns;
        (executed && (self.doubt != self.told || again)).then_some(self.doubt)
    }

    /// memcached has told, when it was asked in this doubt: a flush waits for then, or none does. There is one at most, so others that are known are void, but
    /// for those that may be under way.
    pub(crate) fn told(&mut self, doubt: u64, flush_ns: Option<u64>, now_ns: u64) {
        if doubt != self.doubt {
            return;
        }
        (self.told, self.told_ns) = (doubt, now_ns);
        let margin_ns = self.margin_ns();
        self.flushes.retain(|at| now_ns >= at.saturating_sub(margin_ns));
        flush_ns.into_iter().for_each(|at| self.flush_at(at, now_ns));
    }

    /// memcached was the same process at `at_ns`: that is believed for `lease_ns`.
    pub(crate) fn alive(&mut self, at_ns: u64, lease_ns: u64) {
        self.alive_until_ns = self.alive_until_ns.max(at_ns.saturating_add(lease_ns));
    }

    /// What is kept counts no more.
    pub(crate) fn forget(&mut self) {
        self.epoch += 1;
    }

    /// It is another process, or its clock is not what it was.
    pub(crate) fn reborn(&mut self) {
        self.epoch += 1;
        self.doubt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_NS;

    fn gate() -> Gate {
        let mut gate = Gate::new(16, 3 * S);
        gate.alive(0, u64::MAX);
        tell(&mut gate, None, 0);
        gate
    }

    fn tell(gate: &mut Gate, flush_ns: Option<u64>, now_ns: u64) {
        let doubt = gate.in_doubt(now_ns).unwrap();
        gate.told(doubt, flush_ns, now_ns);
    }

    #[test]
    fn a_mutation_moves_its_slot_and_shuts_it() {
        let mut gate = gate();
        let before = gate.version(5, S);
        assert!(before.is_some());
        let slot = gate.begin(5);
        assert_eq!(
            (gate.version(5, S), gate.version(5 + 16, S)),
            (None, None),
            "the slot's keys share its fate"
        );
        assert!(gate.version(6, S).is_some());
        gate.end_later(slot, S);
        gate.turn(4 * S - 1);
        assert_eq!(gate.version(5, 4 * S - 1), None);
        gate.turn(4 * S);
        let after = gate.version(5, 4 * S);
        assert!(after.is_some() && after != before);
    }

    #[test]
    fn all_and_time() {
        let mut gate = gate();
        let before = gate.version(5, S).unwrap();
        let all = gate.begin_all();
        assert_eq!(gate.version(5, S), None);
        gate.end(all);
        assert_eq!(gate.version(5, S).unwrap().epoch, before.epoch + 1);
        gate.shut(S);
        assert_eq!(gate.in_doubt(4 * S - 1), None);
        assert!(gate.is_shut(4 * S), "a flush may wait that nobody has seen");
        tell(&mut gate, None, 4 * S);
        assert!(!gate.is_shut(4 * S));
        // At 104 s, 5.1 s on either side; memcached tells the same.
        gate.flush_later(Some(100), 4 * S);
        assert!(gate.is_shut(4 * S));
        tell(&mut gate, Some(104 * S), 4 * S);
        gate.turn(98 * S);
        assert!(!gate.is_shut(98 * S) && gate.is_shut(99 * S) && gate.is_shut(109 * S));
        let epoch = gate.version(5, 98 * S).unwrap().epoch;
        gate.turn(110 * S);
        assert_eq!(gate.version(5, 110 * S).unwrap().epoch, epoch + 1);
    }

    #[test]
    fn in_doubt_memcached_says_what_flush_waits() {
        let mut gate = gate();
        // What was not read has asked for a flush.
        gate.shut(0);
        let old = gate.in_doubt(3 * S).unwrap();
        gate.shut(3 * S);
        gate.told(old, None, 4 * S);
        assert!(gate.is_shut(6 * S), "asked before the last doubt");
        tell(&mut gate, Some(100 * S), 6 * S);
        assert!(!gate.is_shut(90 * S) && gate.is_shut(96 * S) && gate.is_shut(104 * S));
        // A date, and one that nobody can read: memcached's word alone.
        for seconds in [Some(3_000_100), None] {
            let mut gate = self::gate();
            let all = gate.begin_all();
            gate.flush_later(seconds, 0);
            assert_eq!(gate.in_doubt(S), None, "it is under way");
            gate.end(all);
            assert!(gate.is_shut(S) && gate.is_shut(1000 * S));
            tell(&mut gate, Some(100 * S), S);
            assert!(!gate.is_shut(S) && gate.is_shut(100 * S));
            assert!(gate.in_doubt(600 * S).is_none() && gate.in_doubt(602 * S).is_some(), "clocks drift");
            // Another has come in its place.
            gate.flush_later(Some(50), 2 * S);
            tell(&mut gate, Some(52 * S), 2 * S);
            assert!(gate.is_shut(52 * S));
            gate.turn(58 * S);
            assert!(!gate.is_shut(100 * S));
        }
        for _ in 0..FLUSHES {
            gate.flush_later(Some(1000), 6 * S);
        }
        let doubt = gate.doubt;
        gate.told = doubt;
        assert!(gate.is_shut(7 * S), "more than can wait");
    }

    #[test]
    fn more_ends_than_can_wait_shut_the_gate() {
        let mut gate = gate();
        for _ in 0..gate.ends_most {
            let slot = gate.begin(1);
            gate.end_later(slot, 0);
        }
        assert!(gate.version(2, 0).is_some());
        let slot = gate.begin(2);
        gate.end_later(slot, S);
        assert!(gate.is_shut(S));
        assert_eq!(gate.overflows, 1);
        gate.turn(4 * S);
        tell(&mut gate, None, 4 * S);
        assert!(gate.version(1, 4 * S).is_some() && gate.version(2, 4 * S).is_some());
    }

    #[test]
    fn without_a_word_of_memcached_nothing_is_given() {
        let mut gate = Gate::new(16, 3 * S);
        assert!(gate.is_shut(0));
        gate.alive(2 * S, S);
        assert!(gate.is_shut(2 * S), "a flush from before may wait");
        tell(&mut gate, None, 2 * S);
        assert!(!gate.is_shut(2 * S) && gate.is_shut(3 * S));
    }
}
