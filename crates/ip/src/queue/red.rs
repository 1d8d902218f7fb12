//! Random early detection (Floyd and Jacobson, "Random early detection gateways for congestion avoidance", 1993).
//!
//! The average length decides, an exponentially weighted one, so that a burst is let in and a standing queue is not:
//!
//! ```text
//! drop probability
//!   1 |                 +------     p_b = max_p * (average - min) / (max - min)
//!     |                 |           p_a = p_b / (1 - count * p_b)      count: packets let in since the last drop
//! max_p                /|
//!     |            .-'' |           average = (1 - w) average + w * length          the queue is not empty
//!   0 +----------+------+-------    average = (1 - w)^m average, m = idle / s       it has been empty
//!               min    max   average
//! ```
//!
//! `s` is the time that a typical small packet takes on the link: an empty queue is as if m such packets had found it empty.
//! Lengths are in packets. Randomness is handed in, so that a run can be repeated.

/// The constants of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedParameters {
    /// Average length in packets from which on packets are dropped.
    pub min: f64,
    /// Average length from which on every packet is.
    pub max: f64,
    /// The probability just below `max`, 0 to 1.
    pub max_p: f64,
    /// The weight of one packet's observation in the average, above 0 and up to 1.
    pub weight: f64,
    /// The time in ns that a typical small packet takes on the link.
    pub packet_ns: f64,
}

/// What is known of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Red {
    average: f64,
    /// Packets let in since the last drop; -1 while the average is below `min`.
    count: i64,
    idle_since_ns: u64,
}

impl Default for Red {
    fn default() -> Self {
        Red::EMPTY
    }
}

impl Red {
    /// A queue that has always been empty.
    pub const EMPTY: Red = Red { average: 0.0, count: -1, idle_since_ns: 0 };

    /// The average length.
    pub fn average(&self) -> f64 {
        self.average
    }

    /// A packet arrives at a queue of `len` packets; `random` is from [0, 1). Returns whether it is to be dropped.
    pub fn drops(&mut self, parameters: &RedParameters, len: usize, now_ns: u64, random: f64) -> bool {
        let RedParameters { min, max, max_p, weight, packet_ns } = *parameters;
        if len > 0 {
            self.average += weight * (len as f64 - self.average);
        } else if self.average > 0.0 {
            let idle = now_ns.saturating_sub(self.idle_since_ns) as f64 / packet_ns;
            self.average *= (1.0 - weight).powf(idle);
        }
        if self.average < min {
            self.count = -1;
            return false;
        }
        self.count += 1;
        let drop = self.average >= max || {
            let base = max_p * (self.average - min) / (max - min);
            let left = 1.0 - self.count as f64 * base;
            // Nothing left: this one is due.
            left <= 0.0 || random < base / left
        };
        if drop {
            self.count = 0;
        }
        drop
    }

    /// The queue has become empty.
    pub fn emptied(&mut self, now_ns: u64) {
        self.idle_since_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: RedParameters =
        RedParameters { min: 5.0, max: 15.0, max_p: 0.1, weight: 0.002, packet_ns: 1000.0 };

    #[test]
    fn the_average_follows_slowly_and_decays_while_idle() {
        let mut red = Red::default();
        for n in 1..=1000 {
            red.drops(&P, 10, 0, 0.999);
            let expected = 10.0 * (1.0 - 0.998f64.powi(n));
            assert!((red.average() - expected).abs() < 1e-9, "{n}: {}", red.average());
        }
        let before = red.average();
        red.emptied(5_000_000);
        // 300 us idle: as if 300 packets had found it empty.
        red.drops(&P, 0, 5_300_000, 0.999);
        assert!((red.average() - before * 0.998f64.powi(300)).abs() < 1e-9);
    }

    #[test]
    fn the_burst_that_is_let_in_is_the_papers() {
        // Floyd and Jacobson, section 6: with w = 0.001, a burst of L packets into an empty queue brings the average to
        // L + 1 + ((1 - w)^(L + 1) - 1) / w.
        let parameters = RedParameters { weight: 0.001, ..P };
        let mut red = Red::default();
        for len in 1..=100 {
            red.drops(&parameters, len, 0, 0.999);
        }
        let expected = 101.0 + (0.999f64.powi(101) - 1.0) / 0.001;
        assert!((red.average() - expected).abs() < 1e-6, "{} {expected}", red.average());
        assert!(red.average() < 5.0, "below min: not one was dropped");
    }

    /// A queue whose average stands still.
    fn standing(length: f64) -> Red {
        Red { average: length, ..Red::default() }
    }

    #[test]
    fn between_the_thresholds_gaps_between_drops_are_uniform() {
        // Probability 0.05: gaps are uniform from 1 to 1 / p_b = 20 (section 4 of the paper), here by walking through the
        // exact chances instead of by throwing dice.
        let mut red = standing(10.0);
        let parameters = RedParameters { weight: f64::MIN_POSITIVE, ..P };
        assert!(red.drops(&parameters, 10, 0, 0.0), "the first one may be");
        let mut alive = 1.0;
        for gap in 1..20 {
            // The chance is where the answer changes: p_a = p_b / (1 - count p_b).
            let chance = 0.05 / (1.0 - f64::from(gap) * 0.05);
            let answer = |random: f64| {
                let mut probe = red;
                probe.drops(&parameters, 10, 0, random)
            };
            assert!(answer((chance - 1e-9).min(0.999_999)), "{gap}");
            assert!(chance > 0.999_999 || !answer(chance + 1e-9), "{gap}");
            let here = alive * chance;
            assert!((here - 1.0 / 19.0).abs() < 1e-9, "gap {gap}: {here}");
            alive -= here;
            assert_eq!(red.drops(&parameters, 10, 0, 0.999_999_999_9), gap == 19, "one in 19 at the latest");
        }
    }

    #[test]
    fn outside_of_the_thresholds_there_is_no_chance() {
        for (average, dropped) in [(0.0, false), (4.9, false), (15.1, true), (1e6, true)] {
            for random in [0.0, 0.5, 0.999_999] {
                let mut red = standing(average);
                assert_eq!(red.drops(&P, average as usize, 0, random), dropped, "{average} {random}");
            }
        }
    }

    proptest! {
        /// Against the paper's figure 2, written down once more.
        #[test]
        fn does_what_the_papers_algorithm_does(
            steps in prop::collection::vec((0usize..40, 0u64..100_000, 0.0f64..1.0), 1..400),
            weight in 0.001f64..0.5,
        ) {
            let parameters = RedParameters { weight, ..P };
            let (mut red, mut now) = (Red::default(), 1_000_000);
            let (mut average, mut count, mut idle_since) = (0.0f64, -1i64, 0u64);
            for (len, pass, random) in steps {
                now += pass;
                average = if len > 0 {
                    (1.0 - weight) * average + weight * len as f64
                } else {
                    (1.0 - weight).powf((now - idle_since) as f64 / 1000.0) * average
                };
                let marked = if (5.0..15.0).contains(&average) {
                    count += 1;
                    let p_b = 0.1 * (average - 5.0) / 10.0;
                    let p_a = if count as f64 * p_b < 1.0 { p_b / (1.0 - count as f64 * p_b) } else { 1.0 };
                    random < p_a
                } else {
                    if average < 5.0 {
                        count = -1;
                    }
                    average >= 15.0
                };
                if marked {
                    count = 0;
                }
                prop_assert_eq!(red.drops(&parameters, len, now, random), marked);
                prop_assert!((red.average() - average).abs() < 1e-6);
                // Rounding must not add up until the two disagree.
                average = red.average();
                if len == 1 {
                    red.emptied(now);
                    idle_since = now;
                }
            }
        }
    }
}
