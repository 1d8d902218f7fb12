//! An array of entries in one table of words: whatever a table notes about an entry, its key and its value lie together, on
//! one cache line where they fit.
//!
//! ```text
//! W = 1   | note | key  | value | note | key ...                24 bytes: 2 of 8 entries lie across a line's end
//! W = 2   | note | key    key   | value |                       32 bytes: two per line
//! W = 5   | note | key    key     key     key   key | value |   56 bytes, 8 unused: one per line
//! ```

use crate::key::Key;
use crate::table::SizeError;
use tidemill_lookup::mem::Table;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Entries with notes of 64 bits; all zero at first.
#[derive(Debug)]
pub(crate) struct Slots<const W: usize> {
    words: Table<u64>,
    len: usize,
}

/// Places come from 32 bits of the hash.
const MOST: usize = 1 << 32;

impl<const W: usize> Slots<W> {
    /// Words from one entry to the next.
    const STRIDE: usize = match W + 2 {
        words @ ..=4 => words,
        words @ 5..=8 => words.next_power_of_two(),
        words => words.next_multiple_of(8),
    };

    pub(crate) fn new(len: usize) -> Result<Self, SizeError> {
        if len > MOST {
            return Err(SizeError::TooMany { asked: len, most: MOST });
        }
        let bytes = len.saturating_mul(8 * Self::STRIDE);
        let words = Table::new(len * Self::STRIDE).map_err(|source| SizeError::Memory { bytes, source })?;
        Ok(Slots { words, len })
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Where a hash begins: its high half, scaled to any number of slots.
    #[inline(always)]
    pub(crate) fn place(&self, hash: u64) -> usize {
        ((u128::from(hash >> 32) * self.len as u128) >> 32) as usize
    }

    /// The slot after this one, round the end.
    #[inline(always)]
    pub(crate) fn next(&self, at: usize) -> usize {
        if at + 1 == self.len { 0 } else { at + 1 }
    }

    /// Steps forward from one slot to another, round the end.
    #[inline(always)]
    pub(crate) fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.len - from }
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> &[u64] {
        &self.words[at * Self::STRIDE..][..W + 2]
    }

    #[inline(always)]
    fn entry_mut(&mut self, at: usize) -> &mut [u64] {
        &mut self.words[at * Self::STRIDE..][..W + 2]
    }

    /// The note of an entry.
    #[inline(always)]
    pub(crate) fn note<P: Probe>(&self, at: usize, probe: &P, dependent: bool) -> u64 {
        let note = &self.entry(at)[0];
        probe.step();
        probe.read(std::ptr::from_ref(note).addr(), 8, dependent);
        *note
    }

    /// Changes the note of an entry.
    #[inline(always)]
    pub(crate) fn set_note<P: Probe>(&mut self, at: usize, note: u64, probe: &P) {
        let word = &mut self.entry_mut(at)[0];
        *word = note;
        probe.write(std::ptr::from_ref(word).addr(), 8);
    }

    /// The value, if the entry's key is this one.
    #[inline(always)]
    pub(crate) fn value_of<P: Probe>(&self, at: usize, key: &Key<W>, probe: &P) -> Option<u64> {
        let entry = self.entry(at);
        probe.read(entry[1..].as_ptr().addr(), 8 * W, true);
        let differ = (0..W).fold(0, |differ, i| differ | (entry[1 + i] ^ key.0[i]));
        if differ != 0 {
            return None;
        }
        probe.read(entry[1 + W..].as_ptr().addr(), 8, true);
        Some(entry[1 + W])
    }

    /// Key and value of an entry.
    #[inline(always)]
    pub(crate) fn key_value(&self, at: usize) -> (Key<W>, u64) {
        let entry = self.entry(at);
        (Key(std::array::from_fn(|i| entry[1 + i])), entry[1 + W])
    }

    /// Visits the entries whose notes have one of these bits, from `cursor` on; see [`crate::table::HashTable::scan`].
    pub(crate) fn scan(
        &self,
        cursor: usize,
        budget: usize,
        taken: u64,
        mut visit: impl FnMut(&Key<W>, u64),
    ) -> usize {
        let end = cursor.saturating_add(budget).min(self.len);
        for at in cursor..end {
            if self.note(at, &(), false) & taken != 0 {
                let (key, value) = self.key_value(at);
                visit(&key, value);
            }
        }
        if end == self.len { 0 } else { end }
    }

    /// Changes the value of an entry.
    #[inline(always)]
    pub(crate) fn set_value<P: Probe>(&mut self, at: usize, value: u64, probe: &P) {
        let word = &mut self.entry_mut(at)[1 + W];
        *word = value;
        probe.write(std::ptr::from_ref(word).addr(), 8);
    }

    /// Writes an entry.
    #[inline(always)]
    pub(crate) fn put<P: Probe>(&mut self, at: usize, note: u64, key: &Key<W>, value: u64, probe: &P) {
        let entry = self.entry_mut(at);
        entry[0] = note;
        entry[1..=W].copy_from_slice(&key.0);
        entry[1 + W] = value;
        probe.write(entry.as_ptr().addr(), 8 * (W + 2));
    }

    /// Copies key and value from one entry to another, whose note becomes this one.
    #[inline(always)]
    pub(crate) fn copy<P: Probe>(&mut self, from: usize, to: usize, note: u64, probe: &P) {
        let (key, value) = self.key_value(from);
        probe.read(self.entry(from)[1..].as_ptr().addr(), 8 * (W + 1), true);
        self.put(to, note, &key, value, probe);
    }

    /// Asks the cache for an entry; returns the address of its end, for whoever wants to wait for it.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) -> *const u64 {
        let start = self.words.as_ptr().wrapping_add(at * Self::STRIDE);
        let end = start.wrapping_add(W + 1);
        prefetch_read(start);
        if 8 % Self::STRIDE != 0 {
            prefetch_read(end);
        }
        end
    }

    /// Asks the cache for this many lines from an entry on.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, at: usize, lines: usize) {
        let start = self.words.as_ptr().wrapping_add(at * Self::STRIDE);
        (0..lines).for_each(|line| prefetch_read(start.wrapping_add(8 * line)));
    }

    /// The line of an entry's end, as a number.
    #[inline(always)]
    pub(crate) fn line(at: usize) -> usize {
        (at * Self::STRIDE + W + 1) / 8
    }
}
