//! The network-side controller of 4.5.3: queries are the host's or LaKe's, by their mean rate over sliding windows; two pairs of rate and window, so that it does
//! not go back and forth. A window is whole when it lies behind the last shift: what was asked before says nothing of what is asked since.

use super::{ConfigError, in_range};
use std::collections::VecDeque;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// memcached.
    Host,
    /// LaKe.
    Network,
}

/// A mean rate over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// M/s.
    pub mqps: f64,
    /// Samples.
    pub window: usize,
}

/// The controller. It begins with the host.
#[derive(Debug, Clone)]
pub struct OnDemand {
    up: Threshold,
    down: Threshold,
    /// Since the last shift, newest last; at most as many as the longer window, with room for them from the beginning: the cache in the data path has one, too.
    samples: VecDeque<f64>,
    side: Side,
    shifts: u64,
}

impl OnDemand {
    /// To the network above `up`, back below `down`.
    ///
    /// # Errors
    /// Windows are 1 to 1,000,000 samples; `down` must lie below `up`.
    pub fn new(up: Threshold, down: Threshold) -> Result<Self, ConfigError> {
        in_range("rate up (M/s)", up.mqps, 1e-9, 1e6)?;
        in_range("rate down (M/s), below the rate up", down.mqps, 0.0, up.mqps.next_down())?;
        in_range("window up (samples)", up.window as f64, 1.0, 1e6)?;
        in_range("window down (samples)", down.window as f64, 1.0, 1e6)?;
        let samples = VecDeque::with_capacity(up.window.max(down.window));
        Ok(OnDemand { up, down, samples, side: Side::Host, shifts: 0 })
    }

    /// The mean of the newest samples; none while there are too few since the last shift.
    fn mean(&self, window: usize) -> Option<f64> {
        let before = self.samples.len().checked_sub(window)?;
        Some(self.samples.iter().skip(before).sum::<f64>() / window as f64)
    }

    /// Takes the rate since the last sample, M/s, and says who answers from now on.
    pub fn sample(&mut self, mqps: f64) -> Side {
        if self.samples.len() == self.up.window.max(self.down.window) {
            self.samples.pop_front();
        }
        self.samples.push_back(mqps);
        let to = match self.side {
            Side::Host if self.mean(self.up.window).is_some_and(|mean| mean > self.up.mqps) => Side::Network,
            Side::Network if self.mean(self.down.window).is_some_and(|mean| mean < self.down.mqps) => {
                Side::Host
            }
            side => side,
        };
        if to != self.side {
            (self.side, self.shifts) = (to, self.shifts + 1);
            self.samples.clear();
        }
        to
    }

    /// How often it has shifted.
    pub fn shifts(&self) -> u64 {
        self.shifts
    }
}
