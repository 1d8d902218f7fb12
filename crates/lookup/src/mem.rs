//! Memory for tables and packets: anonymous, zeroed, page-touched at start, on 2 MB pages where the system has them.
//!
//! Data paths allocate nothing, so everything large is mapped here once, at start. We ask for reserved huge pages
//! first (`vm.nr_hugepages`), then for transparent ones by `madvise`, then take what the kernel gives.
//!
//! A structure of several arrays carves them from one [`Arena`], so that they share huge pages:
//!
//! ```text
//! Region   |<------------------ 2 MB page ------------------>|<-- ...
//! Tables   | direct: [AtomicU16] |pad| ranges: [AtomicU32]    ...      each starts on a cache line
//! ```
//! Those of structures that nobody reads while they change may grow: each is an [`Array`], on pages of its own.
//!
//! This module is one of the named homes of `unsafe`.

mod array;

pub use array::Array;

use memmap2::{Advice, MmapMut, MmapOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Numbers of a group of keys, from the first byte of a line of 64 bytes on, for vectors that are stored and read back: where an array lies on a stack comes by chance,
/// and across two lines that is slower.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct OnLines<T>(pub T);

impl<T> Deref for OnLines<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for OnLines<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

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

/// One contiguous mapping, private to the process, zero-filled and (unless asked otherwise) prefaulted.
#[derive(Debug)]
pub struct Region {
    map: MmapMut,
    len: usize,
    pages: Pages,
}

const HUGE: usize = 2 << 20;
/// From here on a region is rounded up to whole huge pages: below, most of the page would be wasted.
const HUGE_FROM: usize = HUGE / 4;
const PAGE: usize = 4096;

/// Puts an array on huge pages, as far as whole ones are inside, half of which have been touched, and the kernel has some: for each [`Array`] (or
/// `Vec`) that is to be measured beside [`Table`]s. A huge page takes about a millisecond. Whether there are whole ones inside and the array
/// lies on them now, all but its ends; who asks again is told the same.
pub fn collapse<T>(array: &[T]) -> bool {
    /// Linux 6.1.
    const MADV_COLLAPSE: libc::c_int = 25;
    let first = array.as_ptr().addr();
    let end = first + size_of_val(array);
    let mut at = first.next_multiple_of(HUGE);
    let (mut pages, mut collapsed) = (0, 0);
    while at + HUGE <= end && !cfg!(miri) {
        let page = array.as_ptr().cast::<u8>().wrapping_add(at - first).cast_mut().cast();
        let mut there = [0_u8; HUGE / PAGE];
        pages += 1;
        // SAFETY: the range is inside the array, which is borrowed, and `there` has a byte for each of its pages. The content stays
        // as it is, whatever the kernel says.
        unsafe {
            if libc::mincore(page, HUGE, there.as_mut_ptr()) == 0
                && there.iter().filter(|&&there| there & 1 == 1).count() >= there.len() / 2
                && libc::madvise(page, HUGE, MADV_COLLAPSE) == 0
            {
                collapsed += 1;
            }
        }
        at += HUGE;
    }
    pages > 0 && collapsed == pages
}

impl Region {
    /// Maps at least `len_bytes` bytes. Regions much smaller than one huge page use ordinary pages.
    ///
    /// # Errors
    /// What the kernel says, usually that there is no memory.
    pub fn new(len_bytes: usize) -> io::Result<Self> {
        let mut region = Self::map(len_bytes, true)?;
        // Touch every page now: a page fault on the data path costs microseconds.
        for offset in (0..region.map.len()).step_by(PAGE) {
            region.map[offset] = 0;
        }
        Ok(region)
    }

    /// Maps address space whose pages come when they are first touched: for scratch space of which only a part will
    /// be used. Not for data paths.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn untouched(len_bytes: usize) -> io::Result<Self> {
        Self::map(len_bytes, false)
    }

    fn map(len_bytes: usize, eager: bool) -> io::Result<Self> {
        let len = len_bytes.max(1);
        let huge = eager && len >= HUGE_FROM && !cfg!(miri);
        let rounded = len
            .checked_next_multiple_of(if huge { HUGE } else { PAGE })
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if !huge {
            let map = MmapOptions::new().len(rounded).map_anon()?;
            return Ok(Region { map, len, pages: Pages::Base });
        }
        if let Ok(map) = MmapOptions::new().len(rounded).huge(Some(21)).populate().map_anon() {
            return Ok(Region { map, len, pages: Pages::Huge });
        }
        let map = MmapOptions::new().len(rounded).map_anon()?;
        let pages = if map.advise(Advice::HugePage).is_ok() { Pages::Transparent } else { Pages::Base };
        Ok(Region { map, len, pages })
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

mod sealed {
    /// Types for which all bits zero is a value, and which need no drop.
    ///
    /// # Safety
    /// Implement for integers and their atomics only.
    pub unsafe trait Zeroed: Send + Sync {}
}

/// The elements that a [`Table`] can have: unsigned integers and their atomics.
pub trait Element: sealed::Zeroed {}

macro_rules! elements {
    ($($t:ty),*) => { $(
        // SAFETY: an unsigned integer or its atomic: zero is a value, dropping does nothing.
        unsafe impl sealed::Zeroed for $t {}
        impl Element for $t {}
    )* };
}
elements!(u8, u16, u32, u64, AtomicU8, AtomicU16, AtomicU32, AtomicU64);

/// Space from which [`Table`]s are cut, one after the other, each on its own cache lines.
#[derive(Debug)]
pub struct Arena {
    region: Arc<Region>,
    start: NonNull<u8>,
    used: usize,
}

// SAFETY: the arena owns the part of the region behind `used`, and nobody else has a pointer into that part.
unsafe impl Send for Arena {}
// SAFETY: through `&Arena` nothing but numbers can be read.
unsafe impl Sync for Arena {}

/// Tables begin on a multiple of this.
const TABLE_ALIGN: usize = 64;

impl Arena {
    /// Bytes that a table of `len` elements takes from an arena.
    pub const fn bytes_for<T: Element>(len: usize) -> usize {
        len.saturating_mul(size_of::<T>()).div_ceil(TABLE_ALIGN).saturating_mul(TABLE_ALIGN)
    }

    /// An arena of prefaulted memory.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn new(len_bytes: usize) -> io::Result<Self> {
        Ok(Self::over(Region::new(len_bytes)?))
    }

    /// An arena of memory that is not there before it is touched; see [`Region::untouched`].
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn untouched(len_bytes: usize) -> io::Result<Self> {
        Ok(Self::over(Region::untouched(len_bytes)?))
    }

    fn over(mut region: Region) -> Self {
        // A mapping never starts at address 0, so the fallback is never taken.
        let start = NonNull::new(region.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Arena { region: Arc::new(region), start, used: 0 }
    }

    /// Cuts the next `len` elements, all zero.
    ///
    /// # Errors
    /// `OutOfMemory` if the arena has not enough left.
    pub fn table<T: Element>(&mut self, len: usize) -> io::Result<Table<T>> {
        let bytes = Self::bytes_for::<T>(len);
        let end = self.used.checked_add(bytes);
        let Some(end) = end.filter(|&end| end <= self.region.map.len()) else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        // SAFETY: `used <= end <= map.len()`, so the result is inside the mapping or one past its end.
        let start = unsafe { self.start.add(self.used) };
        self.used = end;
        Ok(Table { start: start.cast(), len, _region: self.region.clone() })
    }
}

/// A fixed number of integers or atomics in an [`Arena`]; a slice in every other respect.
#[derive(Debug)]
pub struct Table<T: Element> {
    start: NonNull<T>,
    len: usize,
    _region: Arc<Region>,
}

// SAFETY: a table owns its elements alone (the arena never hands out a byte twice), and they are `Send`.
unsafe impl<T: Element> Send for Table<T> {}
// SAFETY: `&Table` gives `&[T]` only, and `T` is `Sync`.
unsafe impl<T: Element> Sync for Table<T> {}

impl<T: Element> Table<T> {
    /// A table on its own, of prefaulted memory.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn new(len: usize) -> io::Result<Self> {
        Arena::new(Arena::bytes_for::<T>(len))?.table(len)
    }
}

impl<T: Element> Deref for Table<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned to 64 bytes and followed by `len` elements inside a mapping that `_region` keeps;
        // they were zero, which is a value of `T`, and only `T`s are written since. `Table` alone owns them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Element> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only way to the elements.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn regions_are_zeroed_and_page_aligned() {
        for len in [1, 4096, 5000, HUGE_FROM, HUGE, 3 * HUGE + 17] {
            for region in [Region::new(len).unwrap(), Region::untouched(len).unwrap()] {
                assert_eq!(region.len(), len);
                assert_eq!(region.as_ptr() as usize % 4096, 0);
                assert!(region.map.iter().step_by(if cfg!(miri) { 97 } else { 1 }).all(|&b| b == 0));
            }
        }
        assert!(Region::new(usize::MAX).is_err());
    }

    /// Pages of a region that are in memory.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident(region: &Region) -> usize {
        let mut there = vec![0_u8; region.map.len().div_ceil(PAGE)];
        // SAFETY: the range is the region's mapping, and `there` has a byte for each of its pages.
        let result =
            unsafe { libc::mincore(region.as_ptr().cast_mut().cast(), region.map.len(), there.as_mut_ptr()) };
        assert_eq!(result, 0);
        there.iter().filter(|&&there| there & 1 == 1).count()
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn memory_is_there_before_it_is_used() {
        for len in [1, PAGE, 100 * PAGE + 1, HUGE_FROM, HUGE, 3 * HUGE + 17] {
            let region = Region::new(len).unwrap();
            assert_eq!(resident(&region), region.map.len().div_ceil(PAGE), "{len} bytes");
        }
        assert_eq!(resident(&Region::untouched(100 * PAGE).unwrap()), 0);
    }

    /// Bytes of the process on transparent huge pages.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn transparent() -> usize {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let size = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
        size.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_is_said_to_lie_on_huge_pages_does() {
        let words = Array::filled(4 * HUGE / size_of::<u64>(), 7_u64);
        // A kernel may have none, and says so; an array of so many bytes has three whole ones inside, wherever it begins.
        if collapse(&words) {
            assert!(transparent() >= 3 * HUGE);
            assert!(collapse(&words));
        }
        assert!(words.iter().all(|&word| word == 7));
        assert!(!collapse(&words[..HUGE / size_of::<u64>() - 1]), "no whole one is inside");
        assert!(!collapse(&Array::<u64>::zeroed(words.len())), "nothing of it is there");
    }

    #[test]
    fn tables_of_an_arena_are_disjoint_and_end_with_it() {
        let bytes = Arena::bytes_for::<AtomicU16>(33) + Arena::bytes_for::<u32>(1000);
        assert_eq!(bytes, 128 + 4032);
        let mut arena = Arena::new(bytes).unwrap();
        let a = arena.table::<AtomicU16>(33).unwrap();
        let mut b = arena.table::<u32>(1000).unwrap();
        b.fill(u32::MAX);
        a.iter().for_each(|x| x.store(7, Ordering::Relaxed));
        assert_eq!((a.len(), b.len()), (33, 1000));
        assert!(a.as_ptr().addr().is_multiple_of(64) && b.as_ptr().addr().is_multiple_of(64));
        assert!(b.iter().all(|&x| x == u32::MAX));
        assert!(arena.table::<u32>(100_000).is_err());
        assert!(arena.table::<u64>(usize::MAX).is_err());
        drop(arena);
        std::thread::spawn(move || assert!(a.iter().all(|x| x.load(Ordering::Relaxed) == 7))).join().unwrap();
        assert!(Table::<u8>::new(0).unwrap().is_empty());
    }
}
