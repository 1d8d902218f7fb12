//! Memory for tables and packets: anonymous, zeroed, page-touched at start, on 2 MB pages where the system has them.
//!
//! Data paths allocate nothing, so everything large is mapped here once, at start. We ask for reserved huge pages
//! first (`vm.nr_hugepages`), then for transparent ones by `madvise`, then take what the kernel gives.

use memmap2::{Advice, MmapMut, MmapOptions};
use std::io;

/// The page size that a [`Region`] is known to have been given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Reserved 2 MB pages (`MAP_HUGETLB`).
    Huge,
    /// Transparent huge pages were asked for; the kernel may or may not have granted them.
    Transparent,
    /// Ordinary pages.
    Base,
}

/// One contiguous mapping, private to the process, zero-filled and prefaulted.
#[derive(Debug)]
pub struct Region {
    map: MmapMut,
    len: usize,
    pages: Pages,
}

const HUGE: usize = 2 << 20;

impl Region {
    /// Maps at least `len_bytes` bytes. Regions smaller than one huge page use ordinary pages.
    pub fn new(len_bytes: usize) -> io::Result<Self> {
        let len = len_bytes.max(1);
        let (map, pages) = if len >= HUGE {
            let rounded = len.next_multiple_of(HUGE);
            match MmapOptions::new().len(rounded).huge(Some(21)).populate().map_anon() {
                Ok(map) => (map, Pages::Huge),
                Err(_) => {
                    let map = MmapOptions::new().len(rounded).map_anon()?;
                    let pages =
                        if map.advise(Advice::HugePage).is_ok() { Pages::Transparent } else { Pages::Base };
                    (map, pages)
                }
            }
        } else {
            (MmapOptions::new().len(len.next_multiple_of(4096)).map_anon()?, Pages::Base)
        };
        let mut region = Region { map, len, pages };
        // Touch every page now: a page fault on the data path costs microseconds.
        for offset in (0..region.map.len()).step_by(4096) {
            region.map[offset] = 0;
        }
        Ok(region)
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region is empty (never: kept for symmetry with slices).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the kernel granted.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Start of the region; page-aligned.
    pub fn as_ptr(&self) -> *const u8 {
        self.map.as_ptr()
    }

    /// Start of the region, for owners that hand out disjoint parts of it. Page-aligned.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.map.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_and_page_aligned() {
        for len in [1, 4096, 5000, HUGE, 3 * HUGE + 17] {
            let region = Region::new(len).unwrap();
            assert_eq!(region.len(), len);
            assert_eq!(region.as_ptr() as usize % 4096, 0);
            assert!(region.map.iter().all(|&b| b == 0));
        }
    }
}
