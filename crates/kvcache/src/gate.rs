//! What may be given, and what may be kept: the rules of [`tidemill_kv::table::store`], with ends by the clock where memcached sends no proof.
//!
//! ```text
//! begin(k) -> slot: seq + 1, pending + 1 ......... end(slot): pending - 1      by memcached's own reply (TCP), or `settle` later (UDP, lost connections)
//! version(k) -> seq, epoch, only while nothing is pending and the gate is open
//! ```
//! Shut for everybody: while a mutation of everything may be under way, around the moment of a flush that was for later, and unless memcached was
//! heard lately and is the same process.

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
    settle_ns: u64,
    alive_until_ns: u64,
}

/// Ends by the clock that can wait. With more, everything waits.
const ENDS: usize = 1 << 16;
/// Flushes that can wait for their time. With more, nothing is given until the last of them.
const FLUSHES: usize = 8;
const SECOND_NS: u64 = 1_000_000_000;
/// Around a later flush, beside `settle`: memcached's clock counts seconds, and now and then jumps by two.
const MARGIN_NS: u64 = 2 * SECOND_NS + SECOND_NS / 10;
/// A time above this is a date for memcached: 30 days.
const MONTH_S: u64 = 60 * 60 * 24 * 30;

impl Gate {
    pub(crate) fn new(slots: usize, settle_ns: u64) -> Self {
        Gate {
            slots: vec![State::default(); slots.next_power_of_two()].into(),
            epoch: 0,
            pending: 0,
            shut_until_ns: 0,
            flushes: Vec::with_capacity(FLUSHES),
            ends: VecDeque::with_capacity(ENDS),
            settle_ns,
            alive_until_ns: 0,
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
        if self.ends.len() < ENDS {
            self.ends.push_back((now_ns.saturating_add(self.settle_ns), slot));
        } else {
            self.shut(now_ns);
            self.end(slot);
        }
    }

    /// Everything is void, and nothing is kept for `settle`.
    pub(crate) fn shut(&mut self, now_ns: u64) {
        self.epoch += 1;
        self.shut_until_ns = self.shut_until_ns.max(now_ns.saturating_add(self.settle_ns));
    }

    /// A flush comes for later: `seconds` from its execution, or at that date if it is more than 30 days. Times are since 1970.
    pub(crate) fn flush_later(&mut self, seconds: u32, now_ns: u64) {
        let seconds = u64::from(seconds);
        let from_ns = if seconds > MONTH_S { 0 } else { now_ns };
        let at_ns = from_ns.saturating_add(seconds * SECOND_NS);
        if at_ns.saturating_add(self.margin_ns()) <= now_ns {
            return;
        }
        if self.flushes.len() < FLUSHES {
            self.flushes.push(at_ns);
        } else {
            self.shut_until_ns = self.shut_until_ns.max(at_ns.saturating_add(self.margin_ns()));
        }
    }

    /// Something for later that cannot be read: nothing is given any more.
    pub(crate) fn shut_for_good(&mut self) {
        self.epoch += 1;
        self.shut_until_ns = u64::MAX;
    }

    /// memcached was the same process at `at_ns`: that is believed for `lease_ns`.
    pub(crate) fn alive(&mut self, at_ns: u64, lease_ns: u64) {
        self.alive_until_ns = self.alive_until_ns.max(at_ns.saturating_add(lease_ns));
    }

    /// It is another process.
    pub(crate) fn reborn(&mut self) {
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_NS;

    fn gate() -> Gate {
        let mut gate = Gate::new(16, 3 * S);
        gate.alive(0, u64::MAX);
        gate
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
        assert!(gate.is_shut(4 * S - 1) && !gate.is_shut(4 * S));
        // At 104 s, 5.1 s on either side.
        gate.flush_later(100, 4 * S);
        gate.turn(98 * S);
        assert!(!gate.is_shut(98 * S) && gate.is_shut(99 * S) && gate.is_shut(109 * S));
        let epoch = gate.version(5, 98 * S).unwrap().epoch;
        gate.turn(110 * S);
        assert_eq!(gate.version(5, 110 * S).unwrap().epoch, epoch + 1);
        // A date.
        let now = 3_000_000 * S;
        gate.flush_later(3_000_100, now);
        assert!(!gate.is_shut(now) && gate.is_shut(now + 100 * S));
        gate.flush_later(2_999_000, now);
        gate.turn(now);
        assert!(!gate.is_shut(now), "long ago");
        for _ in 0..FLUSHES {
            gate.flush_later(1000, now);
        }
        assert!(gate.is_shut(now), "more than can wait");
    }

    #[test]
    fn more_ends_than_can_wait_shut_the_gate() {
        let mut gate = gate();
        for _ in 0..ENDS {
            let slot = gate.begin(1);
            gate.end_later(slot, 0);
        }
        assert!(gate.version(2, 0).is_some());
        let slot = gate.begin(2);
        gate.end_later(slot, S);
        assert!(gate.is_shut(S));
        gate.turn(4 * S);
        assert!(gate.version(1, 4 * S).is_some() && gate.version(2, 4 * S).is_some());
    }

    #[test]
    fn without_a_word_of_memcached_nothing_is_given() {
        let mut gate = Gate::new(16, 3 * S);
        assert!(gate.is_shut(0));
        gate.alive(2 * S, S);
        assert!(!gate.is_shut(2 * S) && gate.is_shut(3 * S));
    }
}
