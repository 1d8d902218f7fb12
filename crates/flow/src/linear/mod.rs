//! Linear probing (Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithms L and R; Fu 4.5.6): a key lies
//! in the first slot that was free from its hash's place on, round the end.
//!
//! ```text
//!  place of k --+
//!               v
//! | - | a | b | c | d | k | - |      k's lookup: c, d, k     a missing key's: up to the first free slot
//! ```
//!
//! Slots are described in `open::slots`; an entry's note is its hash with the lowest bit set, 0 in a free slot. The whole
//! hash tells keys apart without looking at them, and says where an entry belongs when a removal moves it.
//!
//! - Any number of slots, and all of them can be filled. [`Full`] means that every slot is taken.
//! - A removal moves the following entries back (algorithm R), so lookups never pass what was removed; the work is the rest
//!   of the cluster. A removal between two calls of `scan` may thus carry a key past the cursor.
//! - At load a, a lookup looks at (1 + 1/(1-a)) / 2 slots for a key that is there, (1 + 1/(1-a)^2) / 2 for another one: 5.5 and
//!   50 at 0.9. In a full table it looks at all.
//! - `get_batch` is group prefetching in rounds: the first line of each of 32 keys, then four more lines of each that is not
//!   decided yet, and so on. At high loads that is up to 1.7 times as fast as leaving what follows to the hardware's own
//!   prefetchers.

use crate::key::Key;
use crate::open::slots::Slots;
use crate::table::{Full, HashTable, SizeError};
use std::ops::ControlFlow::{self, Break, Continue};
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::probe::Probe;

/// A table with linear probing; see the [module](self).
#[derive(Debug)]
pub struct Linear<const W: usize> {
    slots: Slots<W>,
    len: usize,
}

/// Keys under way in a batch.
const GROUP: usize = 32;
/// Lines of a key that a round of a batch looks at, after the first round.
const LINES: usize = 4;

/// The note of a key with this hash.
#[inline(always)]
fn note(hash: u64) -> u64 {
    hash | 1
}

impl<const W: usize> Linear<W> {
    /// Looks at one slot; breaks with the value if the key is there, with none if the slot is free.
    #[inline(always)]
    fn look<P: Probe>(
        &self,
        at: usize,
        hash: u64,
        key: &Key<W>,
        probe: &P,
        dependent: bool,
    ) -> ControlFlow<Option<u64>> {
        let found = self.slots.note(at, probe, dependent);
        if found == 0 {
            return Break(None);
        }
        if found == note(hash)
            && let Some(value) = self.slots.value_of(at, key, probe)
        {
            return Break(Some(value));
        }
        Continue(())
    }

    /// Where a key is, with its value, or where it could be, without; neither if the table is full of others.
    #[inline(always)]
    fn seek<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<(usize, Option<u64>)> {
        let mut at = self.slots.place(hash);
        for i in 0..self.slots.len() {
            if let Break(found) = self.look(at, hash, key, probe, i > 0) {
                return Some((at, found));
            }
            at = self.slots.next(at);
        }
        None
    }

    /// Empties a slot, and moves back what lies behind it for as long as that brings it nearer to its place.
    fn close<P: Probe>(&mut self, mut hole: usize, probe: &P) {
        let mut at = hole;
        for _ in 1..self.slots.len() {
            at = self.slots.next(at);
            let note = self.slots.note(at, probe, true);
            if note == 0 {
                break;
            }
            if self.slots.distance(self.slots.place(note), at) >= self.slots.distance(hole, at) {
                self.slots.copy(at, hole, note, probe);
                hole = at;
            }
        }
        self.slots.set_note(hole, 0, probe);
        self.len -= 1;
    }
}

impl<const W: usize> HashTable<W> for Linear<W> {
    const NAME: &'static str = "linear";

    fn new(capacity: usize) -> Result<Self, SizeError> {
        Ok(Linear { slots: Slots::new(capacity)?, len: 0 })
    }

    fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    #[inline]
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        self.seek(hash, key, probe)?.1
    }

    async fn find(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        let mut at = self.slots.place(hash);
        let mut line = usize::MAX;
        for _ in 0..self.slots.len() {
            if line != Slots::<W>::line(at) {
                line = Slots::<W>::line(at);
                prefetch(self.slots.prefetch(at)).await;
            }
            if let Break(found) = self.look(at, hash, key, &(), true) {
                return found;
            }
            at = self.slots.next(at);
        }
        None
    }

    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        let groups = hashes.chunks(GROUP).zip(keys.chunks(GROUP)).zip(out.chunks_mut(GROUP));
        for ((hashes, keys), out) in groups {
            // Which key, its next slot, slots looked at.
            let mut walks = [(0, 0, 0); GROUP];
            for (i, (walk, &hash)) in walks.iter_mut().zip(hashes).enumerate() {
                *walk = (i, self.slots.place(hash), 0);
                self.slots.prefetch(walk.1);
            }
            let (mut left, mut lines) = (hashes.len(), 1);
            while left > 0 {
                let mut kept = 0;
                for j in 0..left {
                    let (i, from, mut tried) = walks[j];
                    let mut at = from;
                    out[i] = None;
                    while tried < self.slots.len() {
                        if Slots::<W>::line(at).wrapping_sub(Slots::<W>::line(from)) >= lines {
                            self.slots.prefetch_lines(at, LINES);
                            walks[kept] = (i, at, tried);
                            kept += 1;
                            break;
                        }
                        if let Break(found) = self.look(at, hashes[i], &keys[i], &(), true) {
                            out[i] = found;
                            break;
                        }
                        at = self.slots.next(at);
                        tried += 1;
                    }
                }
                (left, lines) = (kept, LINES);
            }
        }
    }

    fn insert_probed<P: Probe>(
        &mut self,
        hash: u64,
        key: &Key<W>,
        value: u64,
        probe: &P,
    ) -> Result<Option<u64>, Full> {
        match self.seek(hash, key, probe) {
            Some((at, Some(old))) => {
                self.slots.set_value(at, value, probe);
                Ok(Some(old))
            }
            Some((free, None)) => {
                self.slots.put(free, note(hash), key, value, probe);
                self.len += 1;
                Ok(None)
            }
            None => Err(Full),
        }
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let (at, value) = self.seek(hash, key, probe)?;
        if value.is_some() {
            self.close(at, probe);
        }
        value
    }

    fn scan(&self, cursor: usize, budget: usize, visit: impl FnMut(&Key<W>, u64)) -> usize {
        self.slots.scan(cursor, budget, u64::MAX, visit)
    }

    /// A removal may bring a later key into the slot just emptied: that slot is looked at again, which takes from the budget
    /// too, and may be where the next call goes on. So cursors are one more than the slot. Keys that lay before the
    /// cursor can come behind it only round the end, and are asked about twice.
    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<W>, u64) -> bool,
    ) -> usize {
        let mut at = cursor.saturating_sub(1);
        for _ in 0..budget {
            if at >= self.slots.len() {
                break;
            }
            let (key, value) = self.slots.key_value(at);
            if self.slots.note(at, &(), false) != 0 && expired(&key, value) {
                self.close(at, &());
            } else {
                at += 1;
            }
        }
        if at >= self.slots.len() { 0 } else { at + 1 }
    }
}

#[cfg(test)]
mod tests;
