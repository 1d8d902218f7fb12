//! The CPU's time stamp counter: for measurements of a few nanoseconds, which a system's clock is too slow for.
//!
//! It ticks at one rate, whatever frequency the core has just now (x86-64 CPUs since 2008), so its ticks are no cycles of a core that sleeps or is
//! boosted; papers count in them all the same. Elsewhere than on x86-64 a tick is a nanosecond.
//!
//! This module is one of the named homes of `unsafe`: reading the counter is an instruction without a safe name.

use std::time::{Duration, Instant};

/// Ticks since some moment. All instructions before have been executed (what `rdtscp` waits for, and `lfence` with `rdtsc`, which
/// every x86-64 has).
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: SSE2 and the counter are part of the x86-64 baseline; neither touches memory.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        use std::sync::LazyLock;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_nanos() as u64
    }
}

/// As [`now`], but not in order with what is before and after: a few loads may be counted on the wrong side, and nothing waits. For times
/// of bursts, taken several times in each.
#[inline(always)]
pub fn about_now() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: the counter is part of the x86-64 baseline; it touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        now()
    }
}

/// Whether the ticks of all cores go together and at one rate, for ever: so the kernel says, where it takes its own time from them.
pub fn steady() -> bool {
    use std::sync::LazyLock;
    static STEADY: LazyLock<bool> = LazyLock::new(|| {
        let source =
            std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        cfg!(all(target_arch = "x86_64", not(miri))) && source.is_ok_and(|name| name.trim() == "tsc")
    });
    *STEADY
}

/// Ticks in a nanosecond, by the system's clock over so long; the longer the more exact.
pub fn per_ns(over: Duration) -> f64 {
    let (start, from) = (Instant::now(), now());
    while start.elapsed() < over {
        std::hint::spin_loop();
    }
    let (ticks, elapsed) = (now().wrapping_sub(from), start.elapsed());
    ticks as f64 / elapsed.as_nanos().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_at_one_rate() {
        let before = now();
        let rate = per_ns(Duration::from_millis(2));
        assert!(now() > before && (0.1..100.0).contains(&rate), "{rate}");
    }
}
