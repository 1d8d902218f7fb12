//! From worker to worker: what comes to one and belongs to another is handed over by bounded rings, one for each worker. Nobody waits.

use crossbeam_queue::ArrayQueue;
use std::sync::{Arc, OnceLock};
use tidemill_burst::Packet;
use tidemill_burst::Pool;
use tidemill_graph::Waker;

/// Packets that wait for one worker at most.
const ROOM: usize = 1024;

/// What was handed over to a worker, and whom to wake for it.
struct Lane<T> {
    ring: ArrayQueue<T>,
    waker: OnceLock<Waker>,
}

/// All workers' lanes, as one of them sees them. `T` is a packet with what its new owner has to know.
pub(crate) struct Lanes<T> {
    all: Arc<[Lane<T>]>,
    worker: usize,
}

/// A lane for each worker; none where there is one worker. For each worker's [`Lanes`].
pub(crate) struct Shared<T>(Arc<[Lane<T>]>);

impl<T> Shared<T> {
    pub(crate) fn new(workers: usize) -> Self {
        let lane = |_| Lane { ring: ArrayQueue::new(ROOM), waker: OnceLock::new() };
        Shared((0..if workers > 1 { workers } else { 0 }).map(lane).collect())
    }

    /// As this worker sees them.
    pub(crate) fn of(&self, worker: usize) -> Lanes<T> {
        Lanes { all: self.0.clone(), worker }
    }
}

impl<T> Lanes<T> {
    /// Hands something over to another worker, and wakes that.
    ///
    /// # Errors
    /// It comes back: there is no such worker, or that one has fallen behind.
    pub(crate) fn hand_over(&self, worker: usize, what: T) -> Result<(), T> {
        let Some(lane) = self.all.get(worker) else { return Err(what) };
        lane.ring.push(what)?;
        lane.waker.get().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The next that others have handed over to this worker.
    pub(crate) fn take_over(&self) -> Option<T> {
        self.all.get(self.worker)?.ring.pop()
    }

    /// Who is to wake this worker has to know how.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        if let Some(lane) = self.all.get(self.worker) {
            let _ = lane.waker.set(waker.clone());
        }
    }

    /// Whether others may hand anything over.
    pub(crate) fn are_shared(&self) -> bool {
        !self.all.is_empty()
    }

    /// Frees what still waits for this worker.
    pub(crate) fn surrender(&self, pool: &mut Pool, packet: impl Fn(T) -> Packet) {
        std::iter::from_fn(|| self.take_over()).for_each(|what| pool.free(packet(what)));
    }
}
