//! Requests that a worker has sent of flows that it had no room for, so that it knows an answer as its own.
//!
//! Decisions go to every worker, for nobody but the NIC knows who has the flow. In a flood of invented sources tables are full, a newcomer's flow is in none, and what its
//! Grantor says of it would be nobody's. So the solicitor notes the flow of each such request that *leaves* (of a flood most do not), and the worker that finds a decision
//! noted here makes its flow ([`Gate::impose`](crate::gate::Gate::impose)).
//!
//! ```text
//! hash of source and destination: | 32 bits: the note, never 0 | ... | 16 bits: its place |      2^16 places, 256 KiB a worker; the last comer has a place
//! ```
//! * At the rate of requests that leave by 5 % of 10 Gbit/s, 0.6 M a second, a place is overwritten after 110 ms on average: a Grantor answers sooner, or at the next request.
//! * Two flows with one note (2^-48) are taken for each other: then a worker has a flow more than it needs, until that expires.
//! * The hash is keyed, and takes in every word of both addresses after the secret: who sends cannot choose places, nor two flows that have one note.

use crate::family::Gated;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_flow::hash::mix;

const PLACES: usize = 1 << 16;

/// See the [module](self). Its worker's nodes share it; nobody else looks.
#[derive(Debug)]
pub(crate) struct Unplaced {
    secret: u64,
    notes: Box<[AtomicU32]>,
}

impl Unplaced {
    pub(crate) fn new(secret: u64) -> Arc<Self> {
        Arc::new(Unplaced { secret, notes: (0..PLACES).map(|_| AtomicU32::new(0)).collect() })
    }

    #[inline]
    fn place<A: Gated>(&self, source: A, destination: A) -> (&AtomicU32, u32) {
        let words = [source.words(), destination.words()];
        let hash = words.as_flattened().iter().fold(self.secret, |hash, word| mix(hash ^ word));
        (&self.notes[hash as usize % PLACES], (hash >> 32) as u32 | 1)
    }

    /// A request of this flow has left.
    pub(crate) fn note<A: Gated>(&self, source: A, destination: A) {
        let (place, note) = self.place(source, destination);
        place.store(note, Ordering::Relaxed);
    }

    /// Whether one has, not long ago; the next who asks is told no.
    pub(crate) fn take<A: Gated>(&self, source: A, destination: A) -> bool {
        let (place, note) = self.place(source, destination);
        let there = place.load(Ordering::Relaxed) == note;
        if there {
            place.store(0, Ordering::Relaxed);
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_last_is_taken_once() {
        let notes = Unplaced::new(7);
        assert!(!notes.take(1_u32, 2));
        notes.note(1_u32, 2);
        assert!(!notes.take(2_u32, 1) && notes.take(1_u32, 2) && !notes.take(1_u32, 2));
        // As many as there are places: about 1/e of these keep theirs, and nobody is taken for another.
        (0..PLACES as u32).for_each(|source| notes.note(source, 9));
        assert!((0..PLACES as u32).all(|source| !notes.take(source, 8)));
        let kept = (0..PLACES as u32).filter(|source| notes.take(*source, 9)).count();
        assert!((PLACES / 2..PLACES * 3 / 4).contains(&kept), "{kept}");
    }

    /// Halves that add up to the same: no two of these flows have one place and note, whatever the secret.
    #[test]
    fn who_makes_addresses_chooses_no_note() {
        let made = |n: u128| (0xfd00_u128 << 112 | n) ^ n << 64;
        for secret in [0, 7, u64::MAX] {
            let notes = Unplaced::new(secret);
            for n in 1..1000 {
                assert_eq!(made(n).fold(), made(0).fold());
                notes.note(made(0), 9);
                assert!(!notes.take(made(n), 9) && notes.take(made(0), 9), "{n}");
                notes.note(9, made(0));
                assert!(!notes.take(9, made(n)) && notes.take(9, made(0)), "{n}");
            }
        }
    }
}
