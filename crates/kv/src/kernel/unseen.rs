//! Connections that memcached has taken, against those that the programs saw: one that came by a way that is not attached, however short it was, is missing.
//!
//! The balance is what was opened less what was taken. It rises by a handshake that is not over, or never ends, and falls when memcached takes that connection: so
//! what it was lowest at for a while is nothing owing, and below that it falls only by connections that nobody saw.

use std::collections::VecDeque;

/// For so long a handshake may wait: a rise that lasts longer is no debt.
const PERIOD_NS: u64 = 60_000_000_000;
/// Its parts, each with its lowest.
const PARTS: u64 = 12;

#[derive(Debug, Default)]
pub(super) struct Balance {
    /// Lowest balances since the first was known, each with when its part of the time began.
    lowest: VecDeque<(u64, i64)>,
    /// Below it something is missing.
    floor: Option<i64>,
    /// What was taken until the last time.
    taken: u64,
}

impl Balance {
    /// How many connections are missing since the last time, by what was opened, and taken before that was counted.
    pub(super) fn weigh(&mut self, opened: u64, taken: u64, now_ns: u64) -> u64 {
        if taken < self.taken {
            // It counts anew (`stats reset`): what was owing is not known any more.
            *self = Balance::default();
        }
        self.taken = taken;
        let balance = opened.wrapping_sub(taken) as i64;
        match self.lowest.back_mut() {
            Some((since, lowest)) if now_ns.saturating_sub(*since) < PERIOD_NS / PARTS => {
                *lowest = (*lowest).min(balance);
            }
            _ => self.lowest.push_back((now_ns, balance)),
        }
        if self.lowest.len() as u64 > PARTS {
            self.lowest.pop_front();
            let lowest = self.lowest.iter().map(|(_, lowest)| *lowest).min();
            self.floor = self.floor.max(lowest);
        }
        let floor = *self.floor.get_or_insert(balance);
        if balance >= floor {
            return 0;
        }
        self.floor = Some(balance);
        floor.abs_diff(balance)
    }
}

#[cfg(test)]
mod tests {
    use super::Balance;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_nobody_saw_is_missing() {
        let mut balance = Balance::default();
        // memcached counts sockets of its own too.
        assert_eq!(balance.weigh(0, 7, SECOND), 0);
        // One that is opened, and taken later; two that nobody saw; and again none.
        assert_eq!(balance.weigh(1, 7, SECOND), 0);
        assert_eq!(balance.weigh(1, 8, SECOND), 0);
        assert_eq!(balance.weigh(1, 10, SECOND), 2);
        assert_eq!(balance.weigh(1, 10, SECOND), 0);
        assert_eq!(balance.weigh(5, 14, SECOND), 0);
        assert_eq!(balance.weigh(5, 15, SECOND), 1);
    }

    #[test]
    fn who_counts_anew_hides_none() {
        let mut balance = Balance::default();
        assert_eq!(balance.weigh(50, 50, SECOND), 0);
        // `stats reset`, and two that nobody saw.
        assert_eq!(balance.weigh(50, 0, 2 * SECOND), 0);
        assert_eq!(balance.weigh(50, 2, 3 * SECOND), 2);
    }

    #[test]
    fn handshakes_that_never_end_hide_one_for_a_minute_only() {
        let mut balance = Balance::default();
        assert_eq!(balance.weigh(10, 10, 0), 0);
        assert_eq!(balance.weigh(12, 10, SECOND), 0);
        assert_eq!(balance.weigh(12, 11, 2 * SECOND), 0, "hidden");
        for second in 3..80 {
            assert_eq!(balance.weigh(12, 11, second * SECOND), 0);
        }
        assert_eq!(balance.weigh(12, 12, 80 * SECOND), 1);
        // Another part of the time in which it was not lower.
        assert_eq!(balance.weigh(12, 12, 90 * SECOND), 0);
    }
}
