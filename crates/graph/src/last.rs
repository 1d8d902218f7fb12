//! The end of workers whose nodes hand packets over to each other: who has received his last one is there for the others' until nothing is on its way.
//!
//! ```text
//!  receives --its ports have ended, or stop--> takes over --all have received their last--> one worker at a time:
//!                                                           a turn, its books --what was handed over was taken--> ends
//! ```
//!
//! Turn by turn the books are exact, for while one works no other does; and nobody receives any more, so that where they agree they stay so.

use crate::worker::{Turn, Worker};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Between two turns that found nothing.
const PAUSE: Duration = Duration::from_micros(50);

/// A worker's books after a turn.
#[derive(Clone, Copy)]
struct Books {
    handed_over: u64,
    taken_over: u64,
    /// The turn found nothing to do.
    quiet: bool,
}

/// See the [module](self).
pub(crate) struct Last {
    /// Workers that have not received their last packet yet.
    receiving: AtomicUsize,
    /// By worker, from its first turn on that no other works beside.
    books: Mutex<Vec<Option<Books>>>,
    over: AtomicBool,
}

impl Last {
    /// For these workers, if their nodes hand packets over to each other. Those of a chain have an end of their own.
    pub(crate) fn of(workers: &[Worker]) -> Option<Self> {
        let hand_over = |worker: &Worker| worker.is_handed_packets() && !worker.is_in_chain();
        (workers.len() > 1 && workers.iter().all(hand_over)).then(|| Last {
            receiving: AtomicUsize::new(workers.len()),
            books: Mutex::new(vec![None; workers.len()]),
            over: AtomicBool::new(false),
        })
    }

    /// Has nobody wait any more: a worker is gone.
    pub(crate) fn give_up(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Takes what others hand over to worker `number`, which receives no more, until that is all. Who was `stopped` leaves what comes later than now.
    pub(crate) fn wait(&self, number: usize, worker: &mut Worker, stopped: bool) {
        worker.stop_receiving();
        self.receiving.fetch_sub(1, Ordering::AcqRel);
        while self.receiving.load(Ordering::Acquire) > 0 && !self.over.load(Ordering::Acquire) {
            if worker.turn() != Turn::Busy {
                std::thread::sleep(PAUSE);
            }
        }
        while !self.over.load(Ordering::Acquire) {
            self.turn(number, worker, stopped);
            std::thread::sleep(PAUSE);
        }
    }

    /// A turn that no other worker works beside.
    fn turn(&self, number: usize, worker: &mut Worker, stopped: bool) {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = worker.turn() != Turn::Busy || stopped;
        let [handed_over, taken_over] = worker.handed();
        books[number] = Some(Books { handed_over, taken_over, quiet });
        let sum = books.iter().try_fold([0, 0], |[handed_over, taken_over], books| {
            let books = books.filter(|books| books.quiet)?;
            Some([handed_over + books.handed_over, taken_over + books.taken_over])
        });
        if sum.is_some_and(|[handed_over, taken_over]| handed_over == taken_over) {
            self.over.store(true, Ordering::Release);
        }
    }
}
