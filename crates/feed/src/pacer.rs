//! Replaying updates at their own pace, or as fast as they are taken.
//!
//! The pacer neither sleeps nor reads a clock: the caller hands in the time, takes the updates that are due, and is told
//! when to come back.

use crate::updates::Update;

/// How fast to replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Everything is due at once.
    FlatOut,
    /// By the updates' own times, this many times as fast: 1.0 is their own pace.
    Timed(f64),
}

/// What to do after a call of [`Pacer::due`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// More updates are due: the batch was full.
    Now,
    /// The next update is due at this time of the caller's clock, in nanoseconds.
    At(u64),
    /// There are no more.
    Done,
}

/// Gives updates out when they are due. The first one is due at the first call; an update without a time, or with one that
/// lies before its predecessor's, is due with its predecessor.
pub struct Pacer<I: Iterator> {
    updates: I,
    pace: Pace,
    /// Read but not yet due.
    held: Option<Update>,
    /// The caller's time of the first call, and the first update's own time.
    start_ns: Option<u64>,
    first_ns: Option<u64>,
    /// When the last one was due.
    due_ns: u64,
}

impl<I, E> Pacer<I>
where
    I: Iterator<Item = Result<Update, E>>,
{
    /// Paces `updates`. A [`Pace::Timed`] factor that is not positive and finite is taken as 1.0.
    pub fn new(updates: I, pace: Pace) -> Self {
        let pace = match pace {
            Pace::Timed(speed) if !(speed > 0.0 && speed.is_finite()) => Pace::Timed(1.0),
            other => other,
        };
        Pacer { updates, pace, held: None, start_ns: None, first_ns: None, due_ns: 0 }
    }

    /// Appends at most `max` updates that are due at `now_ns` (any clock that does not run backwards) to `batch`.
    ///
    /// # Errors
    /// Those of the source; what came before the error is in `batch`.
    pub fn due(&mut self, now_ns: u64, max: usize, batch: &mut Vec<Update>) -> Result<Next, E> {
        let start_ns = *self.start_ns.get_or_insert(now_ns);
        for _ in 0..max {
            let update = match self.held.take() {
                Some(update) => update,
                None => match self.updates.next() {
                    None => return Ok(Next::Done),
                    Some(update) => {
                        let update = update?;
                        self.due_ns = self.due_ns.max(self.due_time(&update, start_ns));
                        update
                    }
                },
            };
            if self.due_ns > now_ns {
                self.held = Some(update);
                return Ok(Next::At(self.due_ns));
            }
            batch.push(update);
        }
        Ok(Next::Now)
    }

    /// The source, for its dictionary and counts.
    pub fn source(&self) -> &I {
        &self.updates
    }

    fn due_time(&mut self, update: &Update, start_ns: u64) -> u64 {
        match (self.pace, update.time) {
            (Pace::Timed(speed), Some(time)) => {
                let first = *self.first_ns.get_or_insert(time);
                let offset = time.saturating_sub(first);
                // At speed 1 exact; a float keeps 53 bits, which is 104 days in nanoseconds.
                let offset = if speed == 1.0 { offset } else { (offset as f64 / speed) as u64 };
                start_ns.saturating_add(offset)
            }
            _ => start_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::updates::FamilyChange;
    use tidemill_lpm::Prefix;
    use tidemill_lpm::rib::Change;

    const SECOND: u64 = 1_000_000_000;

    fn at(times: &[Option<u64>]) -> impl Iterator<Item = Result<Update, String>> {
        let change = FamilyChange::V4(Change::Withdraw(Prefix::DEFAULT));
        times
            .iter()
            .map(move |t| Ok(Update { time: t.map(|t| t * SECOND), peer: None, change }))
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn steps(pace: Pace, times: &[Option<u64>], clock: &[u64]) -> Vec<(usize, Next)> {
        let mut pacer = Pacer::new(at(times), pace);
        let mut batch = Vec::new();
        clock
            .iter()
            .map(|now| {
                batch.clear();
                let next = pacer.due(now * SECOND, 2, &mut batch).unwrap();
                (batch.len(), next)
            })
            .collect()
    }

    #[test]
    fn timed_updates_wait_for_their_time() {
        let times = [Some(100), Some(100), Some(103), None, Some(101), Some(110)];
        assert_eq!(
            steps(Pace::Timed(1.0), &times, &[50, 50, 53, 53, 60, 60]),
            [
                (2, Next::Now),
                (0, Next::At(53 * SECOND)),
                (2, Next::Now),
                (1, Next::At(60 * SECOND)),
                (1, Next::Done),
                (0, Next::Done)
            ]
        );
        let fast = steps(Pace::Timed(4.0), &[Some(100), Some(104)], &[50, 51]);
        assert_eq!(fast, [(1, Next::At(51 * SECOND)), (1, Next::Done)]);
    }

    #[test]
    fn flat_out_is_bounded_by_the_batch_only() {
        let times = [Some(100), Some(200), Some(300)];
        assert_eq!(steps(Pace::FlatOut, &times, &[7, 7]), [(2, Next::Now), (1, Next::Done)]);
        assert_eq!(steps(Pace::Timed(f64::NAN), &times, &[7]), [(1, Next::At(107 * SECOND))]);
    }

    #[test]
    fn an_error_of_the_source_comes_through() {
        let mut pacer = Pacer::new([Err("broken")].into_iter(), Pace::FlatOut);
        assert_eq!(pacer.due(0, 8, &mut Vec::new()), Err("broken"));
    }
}
