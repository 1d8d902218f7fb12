//! Maps that lie in this process's memory as well: arrays made with `BPF_F_MMAPABLE`. Programs read and write them meanwhile, so
//! there are only words that are read and written whole.
//!
//! This module is one of the named homes of `unsafe`: `mmap`, and words in what it gives.

use crate::BpfError;
use aya::maps::MapData;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// An array map's values in memory, in words of 64 bits; each value begins with a word of its own.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to this value, and all that is in it are atomic words.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `words` words of a map.
    pub(crate) fn new(map: BorrowedFd<'_>, words: usize) -> Result<Self, BpfError> {
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses; the kernel refuses what is longer than the map.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), words * 8, read_write, shared, map.as_raw_fd(), 0) };
        let start = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
        let start = start.ok_or_else(io::Error::last_os_error);
        let start = start.map_err(BpfError::system("cannot map the BPF program's memory"))?;
        Ok(Mapped { start, words })
    }

    /// Maps `words` words of a map that was opened by itself.
    ///
    /// # Errors
    /// It is no such array, or shorter.
    pub fn of(map: &MapData, words: usize) -> Result<Self, BpfError> {
        Self::new(map.fd().as_fd(), words)
    }

    /// All of its words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped, on a page, until this is dropped; others write them, so they are atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody holds a reference into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}
