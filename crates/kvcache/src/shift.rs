//! Who answers, the cache or memcached, by how much is asked: the network-side controller of Tokusashi 2019, 4.5, in the data path. It is the code that `sim lake` runs
//! ([`OnDemand`]), given the gets of each tenth of a second.
//!
//! ```text
//!  gets/s over `up_ms` above `up`     --> the cache answers                                                               (each since the last shift)
//!  gets/s over `down_ms` below `down` --> memcached answers all; mutations are followed, and replies matched, as before
//! ```
//! Or the control side says who answers, which looks at the host ([`crate::host`]).
//!
//! A shift moves the answering and nothing else. Keys' numbers move with every mutation in either state, and memcached is asked whether it is the same, and what is in doubt, beside gets in either state; where none came the lease
//! has run out, and it is asked before anything is given again. So what was kept when memcached took over is true, or void, when the cache does again. Nothing is drained, nothing copied, and no packet waits.

use tidemill_cachesim::lake::ondemand::{OnDemand, Side, Threshold};

/// The time of a sample.
pub(crate) const SAMPLE_MS: u32 = 100;
const SAMPLE_NS: u64 = SAMPLE_MS as u64 * 1_000_000;

/// Whose turn it is.
pub(crate) struct Shift {
    /// None: the cache answers always, or the host decides.
    controller: Option<OnDemand>,
    by_host: bool,
    /// As many samples as it remembers.
    window: u64,
    /// In this sample.
    gets: u64,
    /// When this sample ends; none has begun before the first packet.
    ends_ns: Option<u64>,
    answers: bool,
}

impl Shift {
    /// With its memory. `thresholds`: up and down. `by_host`: it is told who answers; memcached does until then.
    pub(crate) fn new(thresholds: Option<[Threshold; 2]>, by_host: bool) -> Self {
        let controller = thresholds.and_then(|[up, down]| OnDemand::new(up, down).ok());
        let window = thresholds.map_or(0, |both| both.map(|one| one.window).into_iter().max().unwrap_or(0));
        let answers = controller.is_none() && !by_host;
        Shift { controller, by_host, window: window as u64, gets: 0, ends_ns: None, answers }
    }

    /// Whether the cache answers.
    #[inline]
    pub(crate) fn answers(&self) -> bool {
        self.answers
    }

    /// The host has decided; whether that is a shift.
    #[inline]
    pub(crate) fn told(&mut self, answers: bool) -> bool {
        let shifts = self.by_host && answers != self.answers;
        self.answers ^= shifts;
        shifts
    }

    /// A get has come that could be answered.
    #[inline]
    pub(crate) fn count(&mut self) {
        self.gets += 1;
    }

    /// Time has gone on; how often that has shifted.
    #[inline]
    pub(crate) fn turn(&mut self, now_ns: u64) -> u64 {
        match self.ends_ns {
            _ if self.controller.is_none() => 0,
            Some(ends_ns) if now_ns < ends_ns => 0,
            _ => self.sample(now_ns),
        }
    }

    #[cold]
    fn sample(&mut self, now_ns: u64) -> u64 {
        let Shift { controller: Some(controller), window, gets, ends_ns, answers, .. } = self else {
            return 0;
        };
        let Some(ended_ns) = *ends_ns else {
            *ends_ns = Some(now_ns.saturating_add(SAMPLE_NS));
            return 0;
        };
        // What was counted is of the sample that ends first; in those behind it nothing came. More of them than make a shift, and then are remembered, change nothing.
        let more = now_ns.saturating_sub(ended_ns) / SAMPLE_NS;
        *ends_ns = Some(ended_ns.saturating_add((more + 1).saturating_mul(SAMPLE_NS)));
        let before = controller.shifts();
        let mut mqps = std::mem::take(gets) as f64 / f64::from(SAMPLE_MS) / 1e3;
        for _ in 0..=more.min(2 * *window) {
            *answers = controller.sample(mqps) == Side::Network;
            mqps = 0.0;
        }
        controller.shifts() - before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000_000_000;

    /// By half a second above 1,000 a second, back by a second below 500.
    fn shift() -> Shift {
        let threshold = |per_s: f64, window| Threshold { mqps: per_s / 1e6, window };
        Shift::new(Some([threshold(1000.0, 5), threshold(500.0, 10)]), false)
    }

    /// So many gets in each of so many samples; who answered at their ends.
    fn ask(shift: &mut Shift, now_ns: &mut u64, gets: u64, samples: u64) -> Vec<bool> {
        let mut answered = Vec::new();
        for _ in 0..samples {
            (0..gets).for_each(|_| shift.count());
            *now_ns += SAMPLE_NS;
            shift.turn(*now_ns);
            answered.push(shift.answers());
        }
        answered
    }

    #[test]
    fn it_shifts_by_means_over_windows_and_not_between_the_rates() {
        let (mut shift, mut now_ns) = (shift(), START);
        assert_eq!((shift.turn(now_ns), shift.answers()), (0, false), "it begins with memcached");
        // 1,010 a second: the fifth sample makes it.
        assert_eq!(ask(&mut shift, &mut now_ns, 101, 5), [false, false, false, false, true]);
        // Between the two rates nothing changes, whoever answers.
        assert_eq!(ask(&mut shift, &mut now_ns, 70, 30), [true; 30]);
        // 490: below, when the last sample of 700 has gone.
        assert_eq!(ask(&mut shift, &mut now_ns, 49, 10).iter().filter(|answers| **answers).count(), 9);
        assert_eq!(ask(&mut shift, &mut now_ns, 70, 30), [false; 30]);
    }

    /// Nothing comes for a while: it is as if samples of nothing had come. That costs no more for a day than for a minute.
    #[test]
    fn silence_counts() {
        // The samples of the silence since the shift are remembered: one, or as many as there can be.
        for (silent_ns, answered) in [(SAMPLE_NS * 11, 2), (86_400_000_000_000, 3), (u64::MAX / 2, 3)] {
            let (mut shift, mut now_ns) = (shift(), START);
            shift.turn(now_ns);
            ask(&mut shift, &mut now_ns, 200, 5);
            assert!(shift.answers());
            now_ns += silent_ns;
            assert_eq!((shift.turn(now_ns), shift.answers()), (1, false));
            // It goes on with the next sample. A clock that goes back changes nothing.
            assert_eq!(shift.turn(START), 0);
            let answers = ask(&mut shift, &mut now_ns, 200, 5);
            assert_eq!(answers.iter().filter(|answers| **answers).count(), answered, "{answers:?}");
        }
    }

    #[test]
    fn without_thresholds_the_cache_answers() {
        let (mut shift, mut now_ns) = (Shift::new(None, false), START);
        assert_eq!(ask(&mut shift, &mut now_ns, 0, 20), [true; 20]);
    }

    #[test]
    fn the_host_is_heard_where_it_decides_and_nowhere_else() {
        let (mut shift, mut now_ns) = (Shift::new(None, true), START);
        assert_eq!(ask(&mut shift, &mut now_ns, 5000, 20), [false; 20], "until it says so");
        assert_eq!([true, true, false, false].map(|answers| shift.told(answers)), [true, false, true, false]);
        assert!(shift.told(true) && shift.answers());
        assert_eq!(ask(&mut shift, &mut now_ns, 0, 20), [true; 20], "what is asked changes nothing");
        for mut other in [Shift::new(None, false), self::shift()] {
            let before = other.answers();
            assert!(!other.told(!before) && other.answers() == before);
        }
    }
}
