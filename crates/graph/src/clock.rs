//! Time is handed in. A run on real ports has the wall clock; a run driven by a capture has the capture's time, so that
//! one worker gives the same result every time; a test or a replay sets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where a worker's `now` comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Wall time that never goes backwards.
    Wall(Wall),
    /// The latest timestamp of the packets received so far.
    Capture,
    /// Set from outside.
    Manual(Arc<AtomicU64>),
}

/// A monotonic clock that started at wall time: steps of the system's time do not reach it, and while the machine is suspended it stands still.
#[derive(Debug, Clone, Copy)]
pub struct Wall {
    start: Instant,
    start_ns: u64,
}

impl Clock {
    /// The wall clock.
    pub fn wall() -> Self {
        let start_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        Clock::Wall(Wall { start: Instant::now(), start_ns })
    }

    /// The time now, given the latest time seen so far.
    #[inline]
    pub fn now_ns(&self, latest_ns: u64) -> u64 {
        match self {
            Clock::Wall(wall) => wall.start_ns + wall.start.elapsed().as_nanos() as u64,
            Clock::Capture => latest_ns,
            Clock::Manual(now) => now.load(Ordering::Acquire),
        }
    }

    /// Whether time follows the packets' own timestamps.
    pub fn follows_packets(&self) -> bool {
        matches!(self, Clock::Capture)
    }
}
