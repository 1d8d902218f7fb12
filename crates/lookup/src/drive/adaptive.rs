//! How many coroutines to run.

use super::MAX_WIDTH;

/// Finds the number of coroutines by trying (Fu 2020, 4.5.4): after each batch it changes by one. While the time per task
/// falls it goes on in its direction; when it does not, the number goes back and the direction turns round. So it climbs down
/// to the nearest minimum, stays within one of it, and follows when the work changes.
///
/// ```text
/// time per task   \                  /
///                   \ .          . /
///                       . _ _ .
/// width            4 5 6 7 8 7 6 7 8 7 ..
/// ```
///
/// The clock is the caller's: cycles, nanoseconds, anything that grows. One decision compares two batches, so a batch should be
/// long against the clock's grain and the machine's noise: feed it every few thousand tasks rather than every 32 ([`Steered`] does that for
/// bursts of packets). A wrong decision costs one step and is mended by the next.
#[derive(Debug, Clone)]
pub struct Adaptive {
    width: usize,
    most: usize,
    up: bool,
    /// Ticks and tasks of the batch before, and so its cost; none before the first.
    previous: Option<(u64, u64)>,
}

impl Adaptive {
    /// Begins with `width` coroutines and never has more than `most`. Both are clamped: `most` to `1..=`[`MAX_WIDTH`], `width` to
    /// `1..=most`.
    pub fn new(width: usize, most: usize) -> Self {
        let most = most.clamp(1, MAX_WIDTH);
        Adaptive { width: width.clamp(1, most), most, up: true, previous: None }
    }

    /// Coroutines to run the next batch with.
    #[inline]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Takes note of a batch that ran with [`width`](Self::width) coroutines, from one reading of the clock to another. A batch
    /// without tasks, or one in which the clock stood still or went back, says nothing and changes nothing.
    pub fn ran(&mut self, tasks: usize, from: u64, to: u64) {
        let Some(ticks) = to.checked_sub(from).filter(|&ticks| ticks > 0 && tasks > 0) else { return };
        let cost = (ticks, tasks as u64);
        let better = self.previous.is_none_or(|(ticks, tasks)| {
            u128::from(cost.0) * u128::from(tasks) < u128::from(ticks) * u128::from(cost.1)
        });
        self.previous = Some(cost);
        // Turning round is also the step back.
        self.up ^= !better;
        if self.width == if self.up { self.most } else { 1 } {
            self.up = !self.up;
        }
        let step = if self.up { self.width + 1 } else { self.width - 1 };
        self.width = step.clamp(1, self.most);
    }
}

/// An [`Adaptive`] for bursts: adds their times up until a decision can be made of them.
#[derive(Debug, Clone)]
pub struct Steered {
    adaptive: Adaptive,
    tasks: usize,
    ticks: u64,
}

impl Steered {
    /// Tasks for one decision: a hundred bursts of 32, or a dozen of 256.
    pub const GRAIN: usize = 4096;

    /// See [`Adaptive::new`].
    pub fn new(width: usize, most: usize) -> Self {
        Steered { adaptive: Adaptive::new(width, most), tasks: 0, ticks: 0 }
    }

    /// Coroutines to run the next burst with.
    #[inline]
    pub fn width(&self) -> usize {
        self.adaptive.width()
    }

    /// Takes note of a burst that ran with [`width`](Self::width) coroutines, from one reading of the clock to another. One in which the
    /// clock went back says nothing.
    #[inline]
    pub fn ran(&mut self, tasks: usize, from: u64, to: u64) {
        let Some(ticks) = to.checked_sub(from) else { return };
        self.tasks = self.tasks.saturating_add(tasks);
        self.ticks = self.ticks.saturating_add(ticks);
        if self.tasks >= Self::GRAIN {
            self.adaptive.ran(self.tasks, 0, self.ticks);
            (self.tasks, self.ticks) = (0, 0);
        }
    }
}
