//! Arrays that grow, each on pages of its own.
//!
//! ```text
//! Array   start --> | 0 | 1 | ... | len - 1 |  room for more  |     from the first byte of a page to the last of one
//! ```
//! A [`Vec`] lies wherever the allocator has room, which follows from all that the thread has allocated before: in two builds of one structure
//! its elements lie differently on lines and pages. On pages of its own they lie alike every time, which simulations rely on.
//!
//! This module is one of the named homes of `unsafe`.

use super::{Element, PAGE, Region};
use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// An array of plain values that grows as a `Vec` does, and ends the program as that does where there is no memory. Its pages come when they
/// are first touched; [`collapse`](super::collapse) puts them on huge ones. For structures that only their owner changes: what is patched
/// while others read it is a [`Table`](super::Table), which never moves.
pub struct Array<T> {
    start: NonNull<T>,
    len: usize,
    /// Elements that there is room for.
    room: usize,
    _region: Option<Region>,
}

// SAFETY: an array owns its elements alone; who has it may send them.
unsafe impl<T: Send> Send for Array<T> {}
// SAFETY: `&Array` gives `&[T]` only.
unsafe impl<T: Sync> Sync for Array<T> {}

/// There is no memory for so many elements.
#[cold]
fn no_memory<T>(room: usize) -> ! {
    handle_alloc_error(Layout::array::<T>(room).unwrap_or(Layout::new::<T>()))
}

impl<T: Copy> Array<T> {
    /// An array without elements, which takes no memory.
    pub fn new() -> Self {
        Array { start: NonNull::dangling(), len: 0, room: 0, _region: None }
    }

    /// As many times `item`.
    pub fn filled(len: usize, item: T) -> Self {
        let mut array = Self::with_room(len);
        array.resize(len, item);
        array
    }

    /// An array without elements, and room for at least so many. Its memory is zero.
    fn with_room(room: usize) -> Self {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= PAGE, "elements that lie on pages") };
        if room == 0 {
            return Self::new();
        }
        let region = room.checked_mul(size_of::<T>()).and_then(|bytes| Region::untouched(bytes).ok());
        let Some(mut region) = region else { no_memory::<T>(room) };
        let room = region.map.len() / size_of::<T>();
        // A mapping never starts at address 0, so the fallback is never taken.
        let start = NonNull::new(region.as_mut_ptr().cast()).unwrap_or(NonNull::dangling());
        Array { start, len: 0, room, _region: Some(region) }
    }

    /// The same elements on other pages, with room for so many, at least for these.
    fn copied(&self, room: usize) -> Self {
        let mut copy = Self::with_room(room.max(self.len));
        // SAFETY: `len` elements are here, there is room for them in the copy, and its region is another one.
        unsafe { self.start.copy_to_nonoverlapping(copy.start, self.len) };
        copy.len = self.len;
        copy
    }

    /// Makes room for so many elements more.
    fn reserve(&mut self, more: usize) {
        let least = self.len.saturating_add(more);
        if least > self.room {
            *self = self.copied(least.max(self.room.saturating_mul(2)));
        }
    }

    /// Puts an element behind the last.
    #[inline]
    pub fn push(&mut self, item: T) {
        self.reserve(1);
        // SAFETY: `len < room` now, so the place is inside the region, which only this array has.
        unsafe { self.start.add(self.len).write(item) };
        self.len += 1;
    }

    /// Makes it so long: by leaving out the last elements, or by putting `item` behind them.
    pub fn resize(&mut self, len: usize, item: T) {
        self.reserve(len.saturating_sub(self.len));
        let start = self.start;
        for at in self.len..len {
            // SAFETY: `at < len <= room`, as above.
            unsafe { start.add(at).write(item) };
        }
        self.len = len;
    }
}

impl<T: Element + Copy> Array<T> {
    /// As many zeros. What is never stored to takes no memory.
    pub fn zeroed(len: usize) -> Self {
        let mut array = Self::with_room(len);
        // There is room for them, it is zero, and zero is a value of an `Element`.
        array.len = len;
        array
    }
}

impl<T: Copy> Default for Array<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Clone for Array<T> {
    fn clone(&self) -> Self {
        self.copied(self.len)
    }
}

impl<T: Copy> FromIterator<T> for Array<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut array = Self::new();
        items.into_iter().for_each(|item| array.push(item));
        array
    }
}

impl<T: fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl<T: Eq> Eq for Array<T> {}

impl<T> Deref for Array<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is that of a page, or dangling and aligned where `len` is 0. The first `len` elements are inside the region, which
        // the array keeps, and have been stored or are zeros of an `Element`. The array alone owns them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only way to the elements.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same steps in an array and a `Vec`.
    #[test]
    fn an_array_is_a_vec_on_pages_of_its_own() {
        let (mut array, mut vec) = (Array::new(), Vec::new());
        assert!(array.is_empty());
        for i in 0..3_000_u64 {
            let item = [i as u8, (i >> 8) as u8, 7];
            array.push(item);
            vec.push(item);
            if i % 500 == 499 {
                let len = if i % 1000 == 499 { vec.len() + 700 } else { vec.len() / 2 };
                array.resize(len, item);
                vec.resize(len, item);
                let copy = array.clone();
                array[0][2] = 9;
                assert_eq!((copy[0], &copy[1..], copy.len()), (vec[0], &vec[1..], vec.len()));
                array[0] = copy[0];
            }
            assert_eq!(array.as_ptr().addr() % PAGE, 0);
        }
        assert_eq!(array[..], vec[..]);
        assert_eq!(format!("{:?}", vec.iter().copied().collect::<Array<_>>()), format!("{vec:?}"));
        assert_eq!(Array::filled(5_000, 3_u16)[..], [3; 5_000]);
        assert!(Array::filled(0, 3_u16).clone().is_empty());
    }

    /// Shorter and longer again: what had been there does not come back.
    #[test]
    fn zeros_are_zeros_and_what_was_cut_off_is_gone() {
        let mut zeros = Array::<u32>::zeroed(if cfg!(miri) { 3_000 } else { 1 << 20 });
        let last = zeros.len() - 1;
        assert!(zeros.iter().all(|&zero| zero == 0));
        zeros[last] = 1;
        zeros.push(2);
        assert_eq!((zeros[0], &zeros[last - 1..]), (0, &[0, 1, 2][..]));
        let mut few = Array::<u32>::zeroed(10);
        few.fill(7);
        few.resize(2, 0);
        few.resize(4, 1);
        assert_eq!(few[..], [7, 7, 1, 1]);
        assert_ne!(few, Array::zeroed(4));
    }
}
