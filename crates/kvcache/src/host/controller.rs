//! The decision, from a series of readings.

use std::collections::VecDeque;

/// What was read in a second, or means of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// Percent.
    pub(crate) cpu: f64,
    pub(crate) watts: f64,
    /// A second.
    pub(crate) gets: f64,
}

/// What has to be passed, all of it, and over how many readings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) cpu: f64,
    /// None: it does not matter.
    pub(crate) watts: Option<f64>,
    pub(crate) gets: Option<f64>,
    pub(crate) readings: usize,
}

impl Limits {
    fn all(&self, mean: &Reading, passed: fn(&f64, &f64) -> bool) -> bool {
        passed(&mean.cpu, &self.cpu)
            && self.watts.is_none_or(|watts| passed(&mean.watts, &watts))
            && self.gets.is_none_or(|gets| passed(&mean.gets, &gets))
    }
}

/// Two sets of limits: between them nothing changes.
#[derive(Debug)]
pub(crate) struct Controller {
    up: Limits,
    down: Limits,
    /// Since the last shift, newest last, without a gap.
    readings: VecDeque<Reading>,
    answers: bool,
}

impl Controller {
    /// It begins with memcached.
    pub(crate) fn new(up: Limits, down: Limits) -> Self {
        Controller { up, down, readings: VecDeque::new(), answers: false }
    }

    /// Whether the cache answers.
    pub(crate) fn answers(&self) -> bool {
        self.answers
    }

    /// Seconds over which the last shift was decided.
    pub(crate) fn window_s(&self) -> usize {
        if self.answers { self.up.readings } else { self.down.readings }
    }

    /// Takes what was read; of what could not be, and of what was before it, nothing is known. The means, if that shifts.
    pub(crate) fn take(&mut self, reading: Option<Reading>) -> Option<Reading> {
        let Some(reading) = reading else {
            self.readings.clear();
            return None;
        };
        if self.readings.len() == self.up.readings.max(self.down.readings) {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        let limits = if self.answers { &self.down } else { &self.up };
        let passed: fn(&f64, &f64) -> bool = if self.answers { f64::lt } else { f64::gt };
        let mean = self.mean(limits.readings).filter(|mean| limits.all(mean, passed))?;
        self.answers = !self.answers;
        // They say nothing of a host that does the other's work now, or has lost its own.
        self.readings.clear();
        Some(mean)
    }

    /// Of the newest; none while there are too few.
    fn mean(&self, readings: usize) -> Option<Reading> {
        let before = self.readings.len().checked_sub(readings)?;
        let of = |part: fn(&Reading) -> f64| {
            self.readings.iter().skip(before).map(part).sum::<f64>() / readings as f64
        };
        Some(Reading { cpu: of(|one| one.cpu), watts: of(|one| one.watts), gets: of(|one| one.gets) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_cachesim::random::Random;

    const UP: Limits = Limits { cpu: 60.0, watts: Some(50.0), gets: None, readings: 3 };
    const DOWN: Limits = Limits { cpu: 30.0, watts: Some(45.0), gets: Some(1000.0), readings: 5 };

    /// Of such readings, one a second: who answers at the end of each.
    fn series(controller: &mut Controller, readings: &[(f64, f64, f64)]) -> Vec<bool> {
        let take = |&(cpu, watts, gets): &(f64, f64, f64)| {
            controller.take(Some(Reading { cpu, watts, gets }));
            controller.answers()
        };
        readings.iter().map(take).collect()
    }

    const BUSY: (f64, f64, f64) = (90.0, 70.0, 50_000.0);
    const IDLE: (f64, f64, f64) = (2.0, 40.0, 10.0);
    /// The cache answers all: the host has nothing to do.
    const RELIEVED: (f64, f64, f64) = (2.0, 40.0, 50_000.0);

    #[test]
    fn it_shifts_when_a_window_says_so_and_not_by_a_spike() {
        let mut controller = Controller::new(UP, DOWN);
        assert_eq!(series(&mut controller, &[BUSY; 3]), [false, false, true]);
        let mut controller = Controller::new(UP, DOWN);
        let spikes = [IDLE, BUSY, IDLE, IDLE, BUSY, IDLE, IDLE, (99.0, 90.0, 1.0), IDLE, IDLE];
        assert_eq!(series(&mut controller, &spikes), [false; 10]);
    }

    #[test]
    fn both_of_the_host_must_be_above() {
        for half in [(90.0, 49.0, 50_000.0), (60.0, 70.0, 50_000.0)] {
            let mut controller = Controller::new(UP, DOWN);
            assert_eq!(series(&mut controller, &[half; 10]), [false; 10], "{half:?}");
        }
        // Unless power is not looked at.
        let mut controller = Controller::new(Limits { watts: None, ..UP }, Limits { watts: None, ..DOWN });
        assert_eq!(series(&mut controller, &[(90.0, 0.0, 1.0); 3]), [false, false, true]);
    }

    /// A host that is relieved does not get it back: that would go back and forth. One that is busy with other things neither.
    #[test]
    fn it_goes_back_when_little_would_come_back() {
        let mut controller = Controller::new(UP, DOWN);
        series(&mut controller, &[BUSY; 3]);
        assert_eq!(series(&mut controller, &[RELIEVED; 50]), [true; 50]);
        for other in [(90.0, 40.0, 10.0), (2.0, 70.0, 10.0)] {
            assert_eq!(series(&mut controller, &[other; 50]), [true; 50], "{other:?}");
        }
        let back = series(&mut controller, &[IDLE; 20]);
        let at = back.iter().position(|answers| !answers).unwrap();
        assert!((1..=20).contains(&at) && back[at..].iter().all(|answers| !answers), "{back:?}");
    }

    /// A window down that is much longer than the one up: it is not over what was before the shift.
    #[test]
    fn a_long_window_begins_with_the_shift() {
        let down = Limits { gets: Some(10_000.0), readings: 30, ..DOWN };
        let mut controller = Controller::new(UP, down);
        assert_eq!(series(&mut controller, &[IDLE; 30]), [false; 30]);
        assert_eq!(series(&mut controller, &[BUSY; 2]), [false, true]);
        assert_eq!(series(&mut controller, &[RELIEVED; 100]), [true; 100]);
    }

    /// Whatever lies between the limits, whoever answers, for a day.
    #[test]
    fn between_the_limits_nothing_flaps() {
        for answers in [false, true] {
            let (mut controller, mut draw) = (Controller::new(UP, DOWN), Random::new(5));
            let first = if answers { BUSY } else { IDLE };
            assert_eq!(series(&mut controller, &[first; 6]).last(), Some(&answers));
            for _ in 0..86_400 {
                let mut between = |low: f64, high: f64| low + (high - low) * draw.below(1000) as f64 / 1000.0;
                let reading = (between(30.0, 60.0), between(45.0, 50.0), between(1.0, 9000.0));
                assert_eq!(series(&mut controller, &[reading]), [answers]);
            }
        }
    }

    #[test]
    fn what_could_not_be_read_breaks_the_window() {
        let mut controller = Controller::new(UP, DOWN);
        for _ in 0..10 {
            assert_eq!(series(&mut controller, &[BUSY; 2]), [false; 2]);
            assert_eq!(controller.take(None), None);
        }
        let mean = Reading { cpu: 90.0, watts: 70.0, gets: 50_000.0 };
        series(&mut controller, &[BUSY; 2]);
        assert_eq!((controller.take(Some(mean)), controller.window_s()), (Some(mean), 3));
        // And the cache goes on while nothing is known.
        for _ in 0..100 {
            assert_eq!((controller.take(None), controller.answers()), (None, true));
        }
    }
}
