//! Open addressing with any sequence of slots: what quadratic probing and double hashing have in common. Each names its
//! [`Sequence`] in a folder of its own. Also the `slots` of all tables with open addressing.
//!
//! A key lies in the first slot of its sequence that was free when it came. Each slot counts the keys that passed over it,
//! and a lookup ends at a slot that nobody passed, taken or not. A removal takes back what the insertion counted, so it leaves
//! nothing behind: there are no tombstones that could pile up. (The idea is F14's overflow counts: Facebook's hash table,
//! folly/container/F14.md.)
//!
//! ```text
//! note   | high half of the hash, 32 | taken, 1 | passed by, 15 | low bits of the hash, 16 |      in a free slot no hash
//! ```
//!
//! 48 bits of hash tell keys apart without looking at them, and say where an entry's sequence begins and how it goes on.
//! A count that reaches 2^15 - 1 stays there: then a lookup passes this slot for ever, as if it held a tombstone. That takes
//! as many keys with one path, which good hashes do not give.

pub(crate) mod slots;

use crate::key::Key;
use crate::table::{Full, HashTable, SizeError};
use slots::Slots;
use std::marker::PhantomData;
use std::ops::ControlFlow::{self, Break, Continue};
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::probe::Probe;

/// The order in which a key's slots are tried. It visits all of any power of two.
pub trait Sequence {
    /// Of the table.
    const NAME: &'static str;

    /// Slots from the one tried after `tries` others to the next. `low`: 16 bits of the key's hash.
    fn step(tries: usize, low: usize) -> usize;
}

/// A table with open addressing; see [`Quadratic`](crate::quadratic::Quadratic), [`Double`](crate::double::Double).
#[derive(Debug)]
pub struct Open<const W: usize, S> {
    slots: Slots<W>,
    len: usize,
    sequence: PhantomData<fn() -> S>,
}

/// Keys under way in a batch.
const GROUP: usize = 32;

const LOW: u64 = 0xffff;
const HASH: u64 = 0xffff_ffff_0000_ffff;
const TAKEN: u64 = 1 << 31;
const PASSED: u64 = 0x7fff << 16;
const PASSED_ONCE: u64 = 1 << 16;

/// A place in a key's sequence.
#[derive(Clone, Copy, Default)]
struct Walk {
    at: usize,
    tries: usize,
}

impl<const W: usize, S: Sequence> Open<W, S> {
    #[inline(always)]
    fn start(&self, hash: u64) -> Walk {
        Walk { at: self.slots.place(hash), tries: 0 }
    }

    /// The next slot; `None` when all have been tried. `hash` may be a note.
    #[inline(always)]
    fn next(&self, walk: Walk, hash: u64) -> Option<Walk> {
        let Walk { at, tries } = walk;
        let at = (at + S::step(tries, (hash & LOW) as usize)) & (self.slots.len() - 1);
        (tries + 1 < self.slots.len()).then_some(Walk { at, tries: tries + 1 })
    }

    /// Looks at one slot; breaks with the value if the key is there, with none if it cannot be further on.
    #[inline(always)]
    fn look<P: Probe>(&self, walk: Walk, hash: u64, key: &Key<W>, probe: &P) -> ControlFlow<Option<u64>> {
        let note = self.slots.note(walk.at, probe, walk.tries > 0);
        if (note ^ hash) & HASH | !note & TAKEN == 0
            && let Some(value) = self.slots.value_of(walk.at, key, probe)
        {
            return Break(Some(value));
        }
        if note & PASSED == 0 { Break(None) } else { Continue(()) }
    }

    /// Where a key is, and its value.
    #[inline(always)]
    fn seek<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<(usize, u64)> {
        let mut walk = self.start(hash);
        loop {
            match self.look(walk, hash, key, probe) {
                Break(found) => return found.map(|value| (walk.at, value)),
                Continue(()) => walk = self.next(walk, hash)?,
            }
        }
    }

    /// Counts a key in or out of the slots that it passes on its way to `to`.
    #[inline(always)]
    fn pass<P: Probe>(&mut self, hash: u64, to: usize, count: impl Fn(u64) -> u64, probe: &P) {
        let mut walk = self.start(hash);
        while walk.at != to {
            let note = self.slots.note(walk.at, probe, true);
            if note & PASSED != PASSED {
                self.slots.set_note(walk.at, count(note), probe);
            }
            match self.next(walk, hash) {
                Some(next) => walk = next,
                None => break,
            }
        }
    }

    /// Empties a slot.
    fn clear<P: Probe>(&mut self, at: usize, probe: &P) {
        let note = self.slots.note(at, probe, true);
        // What is counted out was counted in, unless the count has stopped.
        self.pass(note, at, |passed| passed - PASSED_ONCE, probe);
        self.slots.set_note(at, note & PASSED, probe);
        self.len -= 1;
    }
}

impl<const W: usize, S: Sequence> HashTable<W> for Open<W, S> {
    const NAME: &'static str = S::NAME;

    /// The capacity is rounded up to a power of two.
    fn new(capacity: usize) -> Result<Self, SizeError> {
        let slots = capacity.checked_next_power_of_two().unwrap_or(usize::MAX);
        Ok(Open { slots: Slots::new(slots)?, len: 0, sequence: PhantomData })
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
        self.seek(hash, key, probe).map(|(_, value)| value)
    }

    async fn find(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        let mut walk = self.start(hash);
        let mut line = usize::MAX;
        loop {
            if line != Slots::<W>::line(walk.at) {
                line = Slots::<W>::line(walk.at);
                prefetch(self.slots.prefetch(walk.at)).await;
            }
            match self.look(walk, hash, key, &()) {
                Break(found) => return found,
                Continue(()) => walk = self.next(walk, hash)?,
            }
        }
    }

    /// Group prefetching over what is left of the group: every round looks at one slot of each key that is not decided yet,
    /// and asks for the next one.
    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        let groups = hashes.chunks(GROUP).zip(keys.chunks(GROUP)).zip(out.chunks_mut(GROUP));
        for ((hashes, keys), out) in groups {
            let mut walks = [(0, Walk::default()); GROUP];
            for (i, (walk, &hash)) in walks.iter_mut().zip(hashes).enumerate() {
                *walk = (i, self.start(hash));
                self.slots.prefetch(walk.1.at);
            }
            let mut left = hashes.len();
            while left > 0 {
                let mut kept = 0;
                for j in 0..left {
                    let (i, walk) = walks[j];
                    out[i] = match self.look(walk, hashes[i], &keys[i], &()) {
                        Break(found) => found,
                        Continue(()) => {
                            if let Some(walk) = self.next(walk, hashes[i]) {
                                self.slots.prefetch(walk.at);
                                walks[kept] = (i, walk);
                                kept += 1;
                            }
                            None
                        }
                    };
                }
                left = kept;
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
        if let Some((at, old)) = self.seek(hash, key, probe) {
            self.slots.set_value(at, value, probe);
            return Ok(Some(old));
        }
        if self.len == self.slots.len() {
            return Err(Full);
        }
        let mut walk = self.start(hash);
        let mut note = self.slots.note(walk.at, probe, false);
        while note & TAKEN != 0 {
            walk = self.next(walk, hash).ok_or(Full)?;
            note = self.slots.note(walk.at, probe, true);
        }
        self.pass(hash, walk.at, |passed| passed + PASSED_ONCE, probe);
        self.slots.put(walk.at, hash & HASH | TAKEN | note & PASSED, key, value, probe);
        self.len += 1;
        Ok(None)
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let (at, value) = self.seek(hash, key, probe)?;
        self.clear(at, probe);
        Some(value)
    }

    fn scan(&self, cursor: usize, budget: usize, visit: impl FnMut(&Key<W>, u64)) -> usize {
        self.slots.scan(cursor, budget, TAKEN, visit)
    }

    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<W>, u64) -> bool,
    ) -> usize {
        let end = cursor.saturating_add(budget).min(self.slots.len());
        for at in cursor..end {
            let (key, value) = self.slots.key_value(at);
            if self.slots.note(at, &(), false) & TAKEN != 0 && expired(&key, value) {
                self.clear(at, &());
            }
        }
        if end == self.slots.len() { 0 } else { end }
    }
}

#[cfg(test)]
mod tests;
