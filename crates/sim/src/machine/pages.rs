//! Simulated addresses. Tables are real and lie where the system has put them, elsewhere in every run; the simulated machine has its own
//! memory, whose pages are given out in the order in which they are first touched, as a system would. So a run is the same
//! every time: tables begin on a page, and what they touch follows from the seed.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

const PAGE_BITS: u32 = 12;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Pages {
    frames: HashMap<u64, u64, FixedState>,
    next: u64,
    last: (u64, u64),
}

impl Default for Pages {
    fn default() -> Self {
        Pages { frames: HashMap::with_hasher(FixedState::with_seed(0)), next: 1, last: (u64::MAX, 0) }
    }
}

impl Pages {
    /// Where a process's address lies in simulated memory.
    #[inline]
    pub fn translate(&mut self, address: usize) -> u64 {
        let (page, offset) = (address as u64 >> PAGE_BITS, address as u64 & ((1 << PAGE_BITS) - 1));
        if self.last.0 != page {
            let next = &mut self.next;
            let frame = *self.frames.entry(page).or_insert_with(|| {
                *next += 1;
                *next - 1
            });
            self.last = (page, frame);
        }
        self.last.1 << PAGE_BITS | offset
    }

    /// Memory of the simulated machine that nothing real lies in: packets, results, descriptions of tables.
    pub fn allot(&mut self, bytes: u64) -> u64 {
        let first = self.next;
        self.next += (bytes >> PAGE_BITS) + 1;
        first << PAGE_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_in_the_order_of_their_first_touch() {
        let mut pages = Pages::default();
        let own = pages.allot(4096);
        let a = pages.translate(0x7f00_0000_1234);
        let b = pages.translate(0x5500_0000_2008);
        assert_eq!(pages.translate(0x7f00_0000_1fff), a - 0x234 + 0xfff);
        assert_eq!((a & 0xfff, b & 0xfff), (0x234, 8));
        assert_eq!((own >> 12, a >> 12, b >> 12), (1, 3, 4));
        // The same touches elsewhere.
        let mut other = Pages::default();
        other.allot(4096);
        assert_eq!([0x10_0234, 0x77_0008].map(|address| other.translate(address)), [a, b]);
    }
}
