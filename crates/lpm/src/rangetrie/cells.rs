//! The trie's memory: one region of 32-bit words that many threads read while one writes.
//!
//! This module is one of the named homes of `unsafe`.

use std::io;
use std::sync::atomic::AtomicU32;
use tidemill_lookup::mem::Region;

/// Words shared by readers and one writer. Word 0 begins a cache line.
pub(super) struct Cells {
    region: Region,
    words: usize,
}

// SAFETY: after construction the region is only reached as `&[AtomicU32]`, which is Sync.
unsafe impl Sync for Cells {}

impl Cells {
    /// Zeroed memory for `words` words.
    pub(super) fn new(words: usize) -> io::Result<Self> {
        Ok(Cells { region: Region::new(words * size_of::<AtomicU32>())?, words })
    }

    /// All words.
    #[inline(always)]
    pub(super) fn words(&self) -> &[AtomicU32] {
        // SAFETY: the region is page-aligned, zeroed, holds `words` words, lives as long as `self`, and nothing
        // refers to it but slices of atomics made here.
        unsafe { std::slice::from_raw_parts(self.region.as_ptr().cast(), self.words) }
    }
}
