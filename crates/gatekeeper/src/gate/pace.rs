//! How fast the table is swept: by time.
//!
//! A round of the table takes an eighth of the time that a silent flow is kept, but a second at least and eight at most, so that a flow lies there longer than it
//! is to by an eighth. Time brings credit; bursts spend some of it, the turns of a worker what they leave. No call is long, whatever the credit is: a worker that
//! looks at buckets empties no receive ring. Where that is too little (a worker that sleeps has few turns, and a large table) rounds are longer, and the worker
//! knows by how much.

use super::{Gate, Rules};
use crate::counters::{Counter, Counters};
use crate::family::Paired;
use crate::policy::{Choice, MOST_CHOICES};
use tidemill_flow::flowtable::Swept;

/// A burst looks at so many buckets of 31 flows at most.
pub const RECLAIM_BURST: usize = 8;
/// A turn of a worker at so many besides, packets or not: 1.3 MB would be 1,024 of them, and hold it up for 0.3 ms.
pub const RECLAIM_TURN: usize = 32;

const SECOND: u64 = 1_000_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Pace {
    buckets: u64,
    /// Time that has brought credit. None before the first call.
    seen_ns: Option<u64>,
    /// Buckets that nobody has looked at yet, times the nanoseconds of a round.
    credit: u64,
    /// Buckets that this round has looked at, when it began, and how long the one before it took.
    looked: u64,
    began_ns: u64,
    last_ns: u64,
}

impl Pace {
    /// Of a table of so many buckets.
    pub(super) fn new(buckets: usize) -> Self {
        let buckets = buckets.max(1) as u64;
        Pace { buckets, seen_ns: None, credit: 0, looked: 0, began_ns: 0, last_ns: 0 }
    }

    /// How long a round is to take.
    pub(super) fn round_ns(idle_ns: u64) -> u64 {
        (idle_ns / 8).clamp(SECOND, 8 * SECOND)
    }

    /// How many buckets are due now, of which `most` are looked at.
    #[inline]
    pub(super) fn due(&mut self, now_ns: u64, idle_ns: u64, most: usize) -> usize {
        let round_ns = Self::round_ns(idle_ns);
        let Some(seen_ns) = self.seen_ns.replace(now_ns) else {
            self.began_ns = now_ns;
            return 0;
        };
        // A round's worth at most: buckets are fewer than 2^28, so both fit.
        let all = round_ns * self.buckets;
        let more = now_ns.saturating_sub(seen_ns).min(round_ns) * self.buckets;
        self.credit = (self.credit + more).min(all);
        if self.credit < round_ns {
            return 0;
        }
        let due = (self.credit / round_ns).min(most as u64);
        self.credit -= due * round_ns;
        due as usize
    }

    /// So many were looked at.
    #[inline]
    pub(super) fn looked(&mut self, now_ns: u64, buckets: u64) {
        self.looked += buckets;
        if self.looked >= self.buckets {
            self.looked -= self.buckets;
            self.last_ns = now_ns.saturating_sub(self.began_ns);
            self.began_ns = now_ns;
        }
    }

    /// Within so long every bucket has been looked at, and within as long before that, too.
    pub(super) fn longest_ns(&self, now_ns: u64, idle_ns: u64) -> u64 {
        let so_far_ns = now_ns.saturating_sub(self.began_ns);
        Self::round_ns(idle_ns).max(self.last_ns).max(so_far_ns)
    }
}

impl<A: Paired<W>, const W: usize> Gate<A, W> {
    /// Forgets those flows of the next `buckets` buckets that have been silent, or expired, for `idle_ns`; returns how many. One whose decision was revoked
    /// is forgotten when it has been silent, too, so that none keeps a rank for ever. Those whose policy is no more get the one that their destination has
    /// now, as by a packet; where that asks no Grantor, they are forgotten.
    pub fn reclaim(
        &mut self,
        now_ns: u64,
        idle_ns: u64,
        rules: &Rules<'_, A>,
        counters: &mut Counters,
        buckets: usize,
    ) -> usize {
        let Gate { table, programs, revoked, spread, uses, .. } = self;
        let (now_s, idle_s) = ((now_ns / 1_000_000_000) as u32, (idle_ns / 1_000_000_000) as u32);
        let choices = rules.choices();
        table.sweep(buckets, |key, stamp, mut state| {
            let note = state.note();
            let stands = || Self::stands(*spread, choices, revoked, &state, A::of_key(key), note.into());
            let silent = || now_s.saturating_sub(stamp) > idle_s;
            let mut next = Swept::Stays;
            if state.reclaimable(now_ns, idle_ns) || state.rank() != 0 && silent() && !stands() {
                next = Swept::Goes;
            } else if choices.is_retired(note.into()) {
                let flow = A::of_key(key);
                let (number, choices) = rules.of(flow.1);
                let stays = matches!(choices.get(number), Choice::Grantors(_));
                next = match stays {
                    true if !state.is_decided()
                        || Self::holds(*spread, choices, &mut state, flow, number) =>
                    {
                        Swept::Becomes(state)
                    }
                    // What has been decided about it counts no more, and a flow that does not ask has nothing to keep.
                    _ => Swept::Goes,
                };
                if let Swept::Becomes(state) = &mut next {
                    state.set_note(number as u16);
                    uses[number as usize % MOST_CHOICES] =
                        uses[number as usize % MOST_CHOICES].wrapping_add(1);
                } else if state.is_decided() {
                    counters.one(Counter::FlowsOutgrown);
                }
            }
            if !matches!(next, Swept::Stays) {
                let place = &mut uses[usize::from(note) % MOST_CHOICES];
                *place = place.wrapping_sub(1);
            }
            if next == Swept::Goes
                && let Some(program) = state.installed()
            {
                programs.release(program);
            }
            next
        })
    }

    /// As much of [`reclaim`](Self::reclaim) as is due by now, in `most` buckets at most; while policies' numbers wait to come back, `most`.
    pub fn keep_up(
        &mut self,
        now_ns: u64,
        idle_ns: u64,
        rules: &Rules<'_, A>,
        counters: &mut Counters,
        most: usize,
    ) -> usize {
        let mut buckets = self.pace.due(now_ns, idle_ns, most);
        if rules.choices().any_retired() {
            buckets = most;
        }
        if buckets == 0 {
            return 0;
        }
        let before = self.table.counters().swept;
        let gone = self.reclaim(now_ns, idle_ns, rules, counters, buckets);
        self.pace.looked(now_ns, self.table.counters().swept - before);
        gone
    }

    /// Says to revocations after how long no flow has a dead rank: within two rounds each has been visited when it had been silent for long enough, and stamps are whole seconds.
    pub(crate) fn settles(&mut self, now_ns: u64, idle_ns: u64) {
        self.revoked.settle_within(2 * self.pace.longest_ns(now_ns, idle_ns) + idle_ns + 2_000_000_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts and turns at any distances: a round takes what it is to take, no call is longer than it may be, and no time brings credit for more than a round.
    #[test]
    fn a_round_takes_its_time() {
        for (buckets, idle_ns) in [(1, 0), (40, SECOND), (40_000, 60 * SECOND), (1_400_000, 20 * SECOND)] {
            let mut pace = Pace::new(buckets);
            let round_ns = Pace::round_ns(idle_ns);
            assert!((SECOND..=8 * SECOND).contains(&round_ns));
            let start_ns = 1_700_000_000 * SECOND;
            let (mut now_ns, mut looked) = (start_ns, 0);
            while now_ns < start_ns + 2 * round_ns {
                for most in [RECLAIM_BURST, RECLAIM_TURN] {
                    let due = pace.due(now_ns, idle_ns, most);
                    assert!(due <= most);
                    looked += due;
                    pace.looked(now_ns, due as u64);
                }
                now_ns += 20_000 + now_ns % 7919;
            }
            assert!((2 * buckets - 2 * buckets / 1000 - 1..=2 * buckets).contains(&looked), "{looked}");
            let longest_ns = pace.longest_ns(now_ns, idle_ns);
            assert!((round_ns..round_ns + round_ns / 100).contains(&longest_ns), "{longest_ns}");
            // Asleep for an hour: a round's worth, in short calls; and the round before was long.
            now_ns += 3600 * SECOND;
            let mut calls = 0;
            loop {
                let due = pace.due(now_ns, idle_ns, RECLAIM_TURN);
                if due == 0 {
                    break;
                }
                assert!(due <= RECLAIM_TURN);
                pace.looked(now_ns, due as u64);
                calls += 1;
            }
            assert_eq!(calls, buckets.div_ceil(RECLAIM_TURN));
            assert!(pace.longest_ns(now_ns, idle_ns) >= 3600 * SECOND);
            // Two rounds later that is forgotten.
            for _ in 0..2 {
                now_ns += round_ns;
                pace.looked(now_ns, buckets as u64);
            }
            assert_eq!(pace.longest_ns(now_ns, idle_ns), round_ns);
        }
    }
}
