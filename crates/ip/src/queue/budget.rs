//! A rate in bytes that any number of workers draw on: a token bucket in one atomic number.
//!
//! ```text
//!                     burst
//!               |<----------->|
//! ------------- + -----x----- + ------------> bytes
//!               ^      ^ spent: what was taken so far; below the window it counts as the window's lower end
//!               |      what may be taken now: from x to the window's upper end
//!               the window moves to the right at the rate, from the time of the first use on
//! ```
//!
//! Nobody has a part of his own: a worker with little to send leaves the rest to the others. They take in bulk, once per
//! burst, what they have waiting, and what is left over goes back. Over any time `t` the sum of what was taken is at most
//! `burst + rate * t`, whatever the workers do ([`charge`](Budget::charge) excepted, which asks nobody).
//!
//! Bytes are those on the wire ([`wire_bytes`](super::wire_bytes)). Times are handed in, in ns; workers' times may differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits per second in a byte per nanosecond.
const BYTE_PER_NS: u128 = 8_000_000_000;
const UNUSED: u64 = u64::MAX;

/// The rate, with what has been taken of it.
#[derive(Debug)]
pub struct Budget {
    bits_per_s: u64,
    burst: u64,
    start_ns: AtomicU64,
    spent: AtomicU64,
}

impl Budget {
    /// `bits_per_s`, of which `burst` bytes may go at once.
    pub fn new(bits_per_s: u64, burst: u64) -> Self {
        Budget { bits_per_s, burst, start_ns: AtomicU64::new(UNUSED), spent: AtomicU64::new(0) }
    }

    /// The same with a burst of what the rate allows in `burst_ns`, but at least two of Ethernet's longest usual frames.
    pub fn with_burst_ns(bits_per_s: u64, burst_ns: u64) -> Self {
        let bytes = u128::from(bits_per_s) * u128::from(burst_ns) / BYTE_PER_NS;
        Budget::new(bits_per_s, u64::try_from(bytes).unwrap_or(u64::MAX).max(2 * super::wire_bytes(1514)))
    }

    /// The rate.
    pub fn bits_per_s(&self) -> u64 {
        self.bits_per_s
    }

    /// Bytes that may go at once.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Takes up to `want` bytes; returns how many.
    #[inline]
    pub fn take(&self, now_ns: u64, want: u64) -> u64 {
        let top = self.top(now_ns);
        let mut spent = self.spent.load(Ordering::Relaxed);
        loop {
            let from = spent.max(top - self.burst);
            let taken = want.min(top.saturating_sub(from));
            if taken == 0 {
                return 0;
            }
            match self.spent.compare_exchange_weak(spent, from + taken, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return taken,
                Err(now) => spent = now,
            }
        }
    }

    /// Takes `bytes` whether they are there or not: others wait until they have been made up for.
    pub fn charge(&self, now_ns: u64, bytes: u64) {
        let bottom = self.top(now_ns) - self.burst;
        let charged = |spent: u64| Some(spent.max(bottom).saturating_add(bytes));
        let _ = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&self, bytes: u64) {
        let less = |spent: u64| Some(spent.saturating_sub(bytes));
        let _ = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// When `bytes` (or a whole burst, if that is less) can be taken, unless others take them first: `now_ns` or later.
    pub fn due_ns(&self, now_ns: u64, bytes: u64) -> u64 {
        let top = self.top(now_ns);
        let from = self.spent.load(Ordering::Relaxed).max(top - self.burst);
        let wanted = from.saturating_add(bytes.min(self.burst));
        if wanted <= top {
            return now_ns;
        }
        let earned = u128::from(self.age_ns(now_ns)) * u128::from(self.bits_per_s);
        let missing = (u128::from(wanted - self.burst) * BYTE_PER_NS).saturating_sub(earned);
        let wait = missing.div_ceil(u128::from(self.bits_per_s).max(1));
        let wait = if self.bits_per_s == 0 { u64::MAX } else { u64::try_from(wait).unwrap_or(u64::MAX) };
        now_ns.saturating_add(wait)
    }

    /// The window's upper end: at least `burst`.
    #[inline]
    fn top(&self, now_ns: u64) -> u64 {
        let earned = u128::from(self.age_ns(now_ns)) * u128::from(self.bits_per_s) / BYTE_PER_NS;
        self.burst.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX))
    }

    /// Time since the first use.
    #[inline]
    fn age_ns(&self, now_ns: u64) -> u64 {
        let mut start = self.start_ns.load(Ordering::Relaxed);
        if start == UNUSED {
            start = match self.start_ns.compare_exchange(UNUSED, now_ns, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => now_ns,
                Err(other) => other,
            };
        }
        now_ns.saturating_sub(start)
    }
}

/// The most that a worker takes at once.
const BULK: i64 = 64 << 10;

/// One worker's hold on a [`Budget`].
///
/// Who has anything left may send a packet, however long it is; what it was too long is owed to the budget at once
/// ([`settle`](Self::settle)), so all workers wait for that. So over any time `t` all workers together send at most
/// `burst + rate * t` and one packet for each of them.
#[derive(Debug)]
pub struct Purse {
    budget: Arc<Budget>,
    left: i64,
}

impl Purse {
    /// An empty one.
    pub fn new(budget: Arc<Budget>) -> Self {
        Purse { budget, left: 0 }
    }

    /// Takes from the budget until `want` bytes are in hand, as far as they are there; at most 64 KiB.
    #[inline]
    pub fn draw(&mut self, now_ns: u64, want: u64) {
        let missing = i64::try_from(want).unwrap_or(BULK).min(BULK) - self.left;
        if missing > 0 {
            self.left += self.budget.take(now_ns, missing as u64) as i64;
        }
    }

    /// Whether a packet may go.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.left > 0
    }

    /// A packet goes.
    #[inline]
    pub fn spend(&mut self, bytes: u64) {
        self.left -= bytes as i64;
    }

    /// Pays what is owed, and gives back what is left unless there is more to send.
    #[inline]
    pub fn settle(&mut self, now_ns: u64, more: bool) {
        if self.left < 0 {
            self.budget.charge(now_ns, self.left.unsigned_abs());
            self.left = 0;
        } else if self.left > 0 && !more {
            self.budget.give_back(self.left as u64);
            self.left = 0;
        }
    }

    /// When a packet may go, unless other workers are faster.
    pub fn due_ns(&self, now_ns: u64) -> u64 {
        if self.has_any() { now_ns } else { self.budget.due_ns(now_ns, 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    #[test]
    fn a_bucket_fills_at_its_rate_up_to_its_depth() {
        let budget = Budget::new(8_000_000, 10_000); // a byte per us
        assert_eq!(budget.take(START, 4_000), 4_000, "full at first");
        assert_eq!(budget.take(START, 10_000), 6_000);
        assert_eq!(budget.take(START, 1), 0);
        assert_eq!(budget.due_ns(START, 100), START + 100_000);
        assert_eq!(budget.take(START + 99_000, 1_000), 99);
        assert_eq!(budget.take(START + SECOND, 20_000), 10_000, "no more than a burst");
        budget.give_back(2_500);
        assert_eq!(budget.take(START + SECOND, 20_000), 2_500);
        budget.charge(START + SECOND, 1_000);
        assert_eq!(budget.take(START + SECOND + 999_999, 20_000), 0, "a debt is paid first");
        assert_eq!(budget.due_ns(START + SECOND + 1_000_000, 1), START + SECOND + 1_001_000);
        assert_eq!(budget.take(START, 5), 0, "a worker whose clock is behind gets nothing for it");
        // What lay idle is full, not fuller: a charge counts from there.
        budget.charge(START + 9 * SECOND, 9_000);
        assert_eq!(budget.take(START + 9 * SECOND, 20_000), 1_000);
    }

    #[test]
    fn extremes_neither_stick_nor_overflow() {
        let none = Budget::new(0, 10);
        assert_eq!((none.take(START, 20), none.take(START + SECOND, 20)), (10, 0));
        assert_eq!(none.due_ns(START, 1), u64::MAX);
        let all = Budget::new(u64::MAX, u64::MAX);
        assert_eq!(all.take(START, 1 << 40), 1 << 40);
        assert_eq!(all.take(u64::MAX, 1 << 40), 1 << 40);
        // 400 Gbps for ten years of nanoseconds.
        let fast = Budget::new(400_000_000_000, 1_000_000);
        assert_eq!(fast.take(START, 1_000_000), 1_000_000);
        let later = START + 10 * 365 * 86_400 * SECOND;
        assert_eq!(fast.take(later, u64::MAX), 1_000_000);
        assert_eq!(fast.take(later + 1_000, u64::MAX), 50_000);
        assert_eq!(Budget::with_burst_ns(10_000_000_000, 1_000_000).burst(), 1_250_000);
        assert_eq!(Budget::with_burst_ns(1_000, 1).burst(), 2 * 1538);
    }

    proptest! {
        /// Whatever is taken and given back: over any span, no more than the burst and the rate.
        #[test]
        fn no_window_holds_more(
            bits in 1_000u64..400_000_000_000,
            burst in 1u64..1_000_000,
            steps in prop::collection::vec((0u64..3_000_000, 0u64..2_000_000, 0u64..100), 1..60),
        ) {
            let budget = Budget::new(bits, burst);
            let (mut now, mut taken, mut all) = (START, Vec::new(), 0u64);
            for (pass, want, back) in steps {
                now += pass;
                let got = budget.take(now, want);
                prop_assert!(got <= want);
                let back = got * back / 300;
                budget.give_back(back);
                all += got - back;
                taken.push((now, got - back, all));
                if got < want {
                    prop_assert!(back > 0 || budget.due_ns(now, 1) > now);
                }
            }
            for (i, (from, first, before)) in taken.iter().enumerate() {
                for (to, _, after) in &taken[i..] {
                    // Rounding: a byte.
                    let most = 1 + u128::from(burst) + u128::from(to - from) * u128::from(bits) / 8_000_000_000;
                    prop_assert!(u128::from(after - before + first) <= most);
                }
            }
        }

        /// At the time that it says, the bytes are there, and the nanosecond before they are not.
        #[test]
        fn due_times_are_exact(bits in 1_000u64..400_000_000_000, burst in 1u64..1_000_000, want in 1u64..1_000_000) {
            let (budget, want) = (Budget::new(bits, burst), want.min(burst));
            prop_assert_eq!(budget.take(START, burst), burst);
            let due = budget.due_ns(START, want);
            prop_assert!(due > START);
            let at = |time| {
                let other = Budget::new(bits, burst);
                other.take(START, burst);
                other.take(time, want)
            };
            prop_assert_eq!(at(due), want);
            prop_assert!(at(due - 1) < want);
        }
    }

    #[test]
    fn packets_go_as_long_as_anything_is_left_and_debts_are_everybodys() {
        let budget = Arc::new(Budget::new(8_000_000, 2_000)); // a byte per us
        let (mut one, mut other) = (Purse::new(budget.clone()), Purse::new(budget.clone()));
        one.draw(START, 5_000);
        assert!(one.has_any());
        one.spend(1_500);
        one.spend(1_500);
        assert!(!one.has_any());
        one.settle(START, true);
        other.draw(START + 1_000_000, 84);
        assert!(!other.has_any(), "1,000 bytes were owed");
        assert_eq!(other.due_ns(START + 1_000_000), START + 1_001_000);
        other.draw(START + 2_000_000, 10_000);
        assert!(other.has_any());
        other.settle(START + 2_000_000, true);
        assert_eq!(budget.take(START + 2_000_000, 1), 0, "kept: there is more to send");
        other.settle(START + 2_000_000, false);
        assert_eq!(budget.take(START + 2_000_000, 9_999), 1_000, "given back");
    }

    #[test]
    fn workers_share_one_rate() {
        let budget = Arc::new(Budget::new(8_000_000_000, 1_000)); // a byte per ns
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let budget = budget.clone();
                std::thread::spawn(move || {
                    // The times of four workers do not quite agree.
                    (0..10_000u64)
                        .map(|step| {
                            let got = budget.take(START + step * 100 + worker, 700);
                            budget.give_back(got / 7);
                            got - got / 7
                        })
                        .sum::<u64>()
                })
            })
            .collect();
        let taken: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        let end = START + 9_999 * 100 + 3;
        let rest = budget.take(end, u64::MAX);
        assert!(taken + rest <= 1_000 + 999_903, "{taken} + {rest}");
        // In whichever order they ran, one of them went through all of the time, wanting more than came in.
        assert!(taken >= 6 * 999_900 / 7, "{taken}");
    }
}
