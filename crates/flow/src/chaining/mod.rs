//! Separate chaining: an array of heads, and the entries of all chains in one array, linked by number. A new entry goes to
//! the head of its chain (Fu 4.6.2). The table is full when the entries are used up, and never before.
//!
//! ```text
//! heads     u32 each, 16 in a line           one for each entry of the capacity: load 1 is one entry per chain
//!   | 3 | 0 | 7 | ...                        the number of the first entry; 0: none
//!
//! entries   32 bytes (keys of 1 or 2 words), 64 bytes (up to 6): an entry never crosses a line
//!   | next u32 | back u32 | key: W words | value | unused |
//!     next: the following entry of the chain, 0 at its end; of a free entry: the next free one
//!     back: the entry in front, or FROM_HEAD + the number of the head; 0: this entry is free
//! ```
//!
//! **What a lookup touches:** the head's line, then one line per entry of the chain up to the key, each of which names the
//! next. Part of the hash beside the link would save no line, because the key lies in the line of the link, so the space
//! goes to the way back: with it, an entry found by its number leaves its chain without a walk, and [`HashTable::expire`]
//! looks at `budget` entries and nothing else but the neighbors of those that it takes out, whatever the hashes are.
//!
//! Chains have no longest length: keys that share a hash share a chain.

use crate::key::Key;
use crate::table::{Full, HashTable, SizeError};
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::mem::{Arena, Table};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

#[cfg(test)]
mod tests;

/// In `back`: what follows is the number of a head.
const FROM_HEAD: u32 = 1 << 31;
/// Numbers of entries and of heads fit below [`FROM_HEAD`].
const MOST: usize = FROM_HEAD as usize - 1;
/// Lookups of a batch that wait for memory at the same time.
const GROUP: usize = 32;

/// See the [module](self).
#[derive(Debug)]
pub struct Chaining<const W: usize> {
    heads: Table<u32>,
    /// Entry 0 is not used: 0 means "none".
    entries: Table<u64>,
    /// The free entry that was used last; 0: none.
    free: u32,
    /// This and all that follow were never used.
    fresh: u32,
    len: usize,
}

impl<const W: usize> Chaining<W> {
    /// Words per entry.
    const STRIDE: usize = (W + 2).next_power_of_two();
    const VALUE: usize = W + 1;

    #[inline(always)]
    fn head(&self, hash: u64) -> usize {
        (((hash >> 32) * self.heads.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn entry(&self, number: u32) -> &[u64] {
        let start = number as usize * Self::STRIDE;
        &self.entries[start..start + Self::STRIDE]
    }

    #[inline(always)]
    fn entry_mut(&mut self, number: u32) -> &mut [u64] {
        let start = number as usize * Self::STRIDE;
        &mut self.entries[start..start + Self::STRIDE]
    }

    #[inline(always)]
    fn holds(entry: &[u64], key: &Key<W>) -> bool {
        (0..W).fold(0, |differs, i| differs | (entry[1 + i] ^ key.0[i])) == 0
    }

    fn key(entry: &[u64]) -> Key<W> {
        Key(std::array::from_fn(|i| entry[1 + i]))
    }

    /// The entry of a key; 0: there is none.
    #[inline(always)]
    fn walk<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> u32 {
        let head = &self.heads[self.head(hash)];
        probe.read(address(head), 4, false);
        let mut number = *head;
        while number != 0 {
            let entry = self.entry(number);
            probe.step();
            probe.read(address(&entry[0]), 8 * (W + 2), true);
            if Self::holds(entry, key) {
                return number;
            }
            number = next(entry[0]);
        }
        0
    }

    fn set_next<P: Probe>(&mut self, back: u32, next: u32, probe: &P) {
        if back & FROM_HEAD != 0 {
            let head = &mut self.heads[(back & !FROM_HEAD) as usize];
            probe.write(address(head), 4);
            *head = next;
        } else {
            let entry = self.entry_mut(back);
            probe.write(address(&entry[0]), 4);
            entry[0] = links(next, self::back(entry[0]));
        }
    }

    fn set_back<P: Probe>(&mut self, number: u32, back: u32, probe: &P) {
        if number != 0 {
            let entry = self.entry_mut(number);
            probe.write(address(&entry[0]), 4);
            entry[0] = links(next(entry[0]), back);
        }
    }

    /// Takes a used entry out of its chain and makes it the first free one.
    fn unlink<P: Probe>(&mut self, number: u32, probe: &P) {
        let entry = self.entry(number);
        let (next, back) = (next(entry[0]), back(entry[0]));
        self.set_next(back, next, probe);
        self.set_back(next, back, probe);
        let free = links(self.free, 0);
        let entry = self.entry_mut(number);
        probe.write(address(&entry[0]), 8);
        entry[0] = free;
        self.free = number;
        self.len -= 1;
    }

    /// A free entry, taken from the list of free ones or the first that was never used.
    fn take(&mut self) -> Result<u32, Full> {
        if self.free != 0 {
            let number = self.free;
            self.free = next(self.entry(number)[0]);
            Ok(number)
        } else if (self.fresh as usize) <= self.heads.len() {
            self.fresh += 1;
            Ok(self.fresh - 1)
        } else {
            Err(Full)
        }
    }

    /// The numbers of entries that a scan from `cursor` looks at, and where the next one begins.
    fn window(&self, cursor: usize, budget: usize) -> (std::ops::Range<u32>, usize) {
        let used = self.fresh as usize - 1;
        let start = cursor.min(used);
        let end = start.saturating_add(budget).min(used);
        (start as u32 + 1..end as u32 + 1, if end == used { 0 } else { end })
    }
}

impl<const W: usize> HashTable<W> for Chaining<W> {
    const NAME: &'static str = "chaining";

    fn new(capacity: usize) -> Result<Self, SizeError> {
        let capacity = capacity.max(1);
        if capacity > MOST {
            return Err(SizeError::TooMany { asked: capacity, most: MOST });
        }
        let words = (capacity + 1) * Self::STRIDE;
        let bytes = Arena::bytes_for::<u32>(capacity).saturating_add(Arena::bytes_for::<u64>(words));
        let memory = |source| SizeError::Memory { bytes, source };
        let mut arena = Arena::new(bytes).map_err(memory)?;
        let heads = arena.table(capacity).map_err(memory)?;
        let entries = arena.table(words).map_err(memory)?;
        Ok(Chaining { heads, entries, free: 0, fresh: 1, len: 0 })
    }

    fn capacity(&self) -> usize {
        self.heads.len()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.entries)
    }

    #[inline]
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let number = self.walk(hash, key, probe);
        (number != 0).then(|| self.entry(number)[Self::VALUE])
    }

    #[inline]
    async fn find(&self, hash: u64, key: &Key<W>) -> Option<u64> {
        let head = &self.heads[self.head(hash)];
        prefetch(head).await;
        let mut number = *head;
        while number != 0 {
            let entry = self.entry(number);
            prefetch(&raw const entry[0]).await;
            if Self::holds(entry, key) {
                return Some(entry[Self::VALUE]);
            }
            number = next(entry[0]);
        }
        None
    }

    /// In groups of 32, one entry of each chain per round; chains that have ended leave the rounds.
    fn get_batch(&self, hashes: &[u64], keys: &[Key<W>], out: &mut [Option<u64>]) {
        let groups = hashes.chunks(GROUP).zip(keys.chunks(GROUP)).zip(out.chunks_mut(GROUP));
        for ((hashes, keys), out) in groups {
            for &hash in hashes {
                prefetch_read(&raw const self.heads[self.head(hash)]);
            }
            // Who still looks, and where: `waiting[..left]`.
            let mut waiting = [(0_usize, 0_u32); GROUP];
            let mut left = 0;
            for (i, &hash) in hashes.iter().enumerate() {
                out[i] = None;
                let number = self.heads[self.head(hash)];
                if number != 0 {
                    prefetch_read(&raw const self.entry(number)[0]);
                    waiting[left] = (i, number);
                    left += 1;
                }
            }
            while left > 0 {
                let round = left;
                left = 0;
                for at in 0..round {
                    let (i, number) = waiting[at];
                    let entry = self.entry(number);
                    if Self::holds(entry, &keys[i]) {
                        out[i] = Some(entry[Self::VALUE]);
                    } else if next(entry[0]) != 0 {
                        prefetch_read(&raw const self.entry(next(entry[0]))[0]);
                        waiting[left] = (i, next(entry[0]));
                        left += 1;
                    }
                }
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
        let number = self.walk(hash, key, probe);
        if number != 0 {
            let known = &mut self.entry_mut(number)[Self::VALUE];
            probe.write(address(known), 8);
            return Ok(Some(std::mem::replace(known, value)));
        }
        let number = self.take()?;
        let head = self.head(hash);
        let first = self.heads[head];
        let back = FROM_HEAD | head as u32;
        let entry = self.entry_mut(number);
        probe.write(address(&entry[0]), 8 * (W + 2));
        entry[0] = links(first, back);
        entry[1..=W].copy_from_slice(&key.0);
        entry[Self::VALUE] = value;
        self.set_back(first, number, probe);
        self.set_next(back, number, probe);
        self.len += 1;
        Ok(None)
    }

    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<W>, probe: &P) -> Option<u64> {
        let number = self.walk(hash, key, probe);
        if number == 0 {
            return None;
        }
        let value = self.entry(number)[Self::VALUE];
        self.unlink(number, probe);
        Some(value)
    }

    /// By the numbers of entries, as far as any was ever used.
    fn scan(&self, cursor: usize, budget: usize, mut visit: impl FnMut(&Key<W>, u64)) -> usize {
        let (window, next) = self.window(cursor, budget);
        for number in window {
            let entry = self.entry(number);
            if back(entry[0]) != 0 {
                visit(&Self::key(entry), entry[Self::VALUE]);
            }
        }
        next
    }

    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<W>, u64) -> bool,
    ) -> usize {
        let (window, next) = self.window(cursor, budget);
        for number in window {
            let entry = self.entry(number);
            if back(entry[0]) != 0 && expired(&Self::key(entry), entry[Self::VALUE]) {
                self.unlink(number, &());
            }
        }
        next
    }
}

fn address<T>(element: &T) -> usize {
    std::ptr::from_ref(element).addr()
}

#[inline(always)]
fn links(next: u32, back: u32) -> u64 {
    u64::from(back) << 32 | u64::from(next)
}

#[inline(always)]
fn next(links: u64) -> u32 {
    links as u32
}

#[inline(always)]
fn back(links: u64) -> u32 {
    (links >> 32) as u32
}
