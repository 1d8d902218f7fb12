//! Where a worker's time goes: the time between two looks at a clock, several of them in each burst.
//!
//! A look at the system's clock takes as long as some packets do. The CPU's counter is cheaper; its ticks become nanoseconds by a rate that the
//! system's clock corrects every few milliseconds. Where the counter is not steady the system's clock is asked each time.

use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tidemill_lookup::cycles;

/// Bits behind the point of a rate.
const POINT: u32 = 32;
/// A first rate is good to some hundred parts in a million; the laps until the first correction are counted with it.
const FIRST: Duration = Duration::from_millis(1);
/// Longer laps than this are not worth a counter: a machine that was suspended, a debugger.
const LONGEST: u64 = 1 << 40;
/// From then on the rate is that of the whole run, and off by less than a millionth.
const ENOUGH_NS: u64 = 5_000_000;

/// A stopwatch that is never stopped.
pub(crate) struct Laps {
    started: Instant,
    /// Ticks are nanoseconds of `started`'s clock where the counter is not steady.
    counted: bool,
    first: u64,
    last: u64,
    /// Nanoseconds in a tick, with [`POINT`] bits behind the point.
    rate: u64,
    /// What was less than a nanosecond so far.
    rest: u64,
    /// Nanoseconds of all laps.
    at_ns: u64,
}

impl Laps {
    /// Starts now.
    pub(crate) fn start() -> Self {
        static RATE: LazyLock<u64> =
            LazyLock::new(|| ((1u64 << POINT) as f64 / cycles::per_ns(FIRST).max(1e-3)) as u64);
        let counted = cycles::steady();
        let rate = if counted { *RATE } else { 1 << POINT };
        let mut laps = Laps { started: Instant::now(), counted, first: 0, last: 0, rate, rest: 0, at_ns: 0 };
        laps.first = laps.ticks();
        laps.last = laps.first;
        laps
    }

    #[inline]
    fn ticks(&self) -> u64 {
        if self.counted { cycles::about_now() } else { self.started.elapsed().as_nanos() as u64 }
    }

    /// Nanoseconds since the last lap.
    #[inline]
    pub(crate) fn lap(&mut self) -> u64 {
        let ticks = self.ticks();
        let gone = ticks.wrapping_sub(self.last);
        self.last = ticks;
        if gone > LONGEST { self.odd() } else { self.pass(gone) }
    }

    #[inline]
    fn pass(&mut self, gone: u64) -> u64 {
        // 2^40 ticks of 2^33 at most (a tick is two nanoseconds, if it is slow): in 128 bits there is room.
        let exact = u128::from(gone) * u128::from(self.rate) + u128::from(self.rest);
        self.rest = exact as u64 & ((1 << POINT) - 1);
        let ns = (exact >> POINT) as u64;
        self.at_ns += ns;
        ns
    }

    /// A counter that went back, or very far ahead, is none: from now on the system's clock is asked.
    #[cold]
    fn odd(&mut self) -> u64 {
        let elapsed_ns = self.started.elapsed().as_nanos() as u64;
        (self.counted, self.rate, self.rest, self.last) = (false, 1 << POINT, 0, elapsed_ns);
        let ns = elapsed_ns.saturating_sub(self.at_ns);
        self.at_ns += ns;
        ns
    }

    /// The end of the last lap, in nanoseconds since the start.
    #[inline]
    pub(crate) fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Corrects the rate by the system's clock. The time since the start: by that clock, or by the laps if they are ahead.
    pub(crate) fn correct(&mut self) -> u64 {
        let (before, elapsed_ns, ticks) =
            (self.ticks(), self.started.elapsed().as_nanos() as u64, self.ticks());
        // Whoever was held up between these looks would have a rate that is off by that.
        let looked = ticks.wrapping_sub(before);
        let ticks = ticks.wrapping_sub(self.first);
        if self.counted && elapsed_ns > ENOUGH_NS && ticks > 0 && looked <= ticks >> 14 {
            self.rate = ((u128::from(elapsed_ns) << POINT) / u128::from(ticks)) as u64;
        }
        elapsed_ns.max(self.at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_add_up_to_what_the_system_says() {
        // Whoever is held up between two looks at clocks is so within these bounds, not beyond them.
        let before = Instant::now();
        let mut laps = Laps::start();
        let started = Instant::now();
        let mut sum = 0;
        while started.elapsed() < Duration::from_millis(30) {
            sum += laps.lap();
            laps.correct();
        }
        let least = started.elapsed().as_nanos() as u64;
        sum += laps.lap();
        let most = before.elapsed().as_nanos() as u64;
        assert_eq!(sum, laps.at_ns());
        assert!(laps.correct() >= sum);
        // A thousandth is ten times what the first rate may be off.
        assert!(sum <= most + most / 1000 && sum >= least - least / 1000, "{sum}: {least} to {most}");
    }

    #[test]
    fn a_counter_that_jumps_is_not_asked_again() {
        let mut laps = Laps::start();
        for last in [laps.last.wrapping_add(1 << 50), laps.last.wrapping_sub(1 << 50)] {
            laps = Laps::start();
            laps.counted = true;
            laps.last = last;
            let lap = laps.lap();
            // The jumps are of days: a machine that stands still for a while is none.
            assert!(!laps.counted && lap < 100_000_000_000, "{lap}");
            std::thread::sleep(Duration::from_millis(2));
            assert!((2_000_000..100_000_000_000).contains(&laps.lap()));
        }
    }

    #[test]
    fn nothing_is_lost_between_laps() {
        let mut laps = Laps { counted: true, rate: 3 << (POINT - 3), ..Laps::start() };
        let mut exact = 0u64;
        for gone in [1, 2, 3, 5, 8, 13, 1 << 39, 7] {
            exact += gone;
            laps.pass(gone);
        }
        assert_eq!(laps.at_ns, exact * 3 / 8);
    }
}
