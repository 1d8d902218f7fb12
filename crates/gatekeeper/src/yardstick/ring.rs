//! What goes from the gate to the solicitor: a ring of numbers without locks, and a pool on such a ring.
//!
//! As DPDK's `rte_ring` and `rte_mempool` (Fu 4.5.5): several may put and take at once; who puts several reserves the places for
//! all by one compare-and-swap. Here one thread does both, which makes no instruction fewer.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// A counter on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU32);

/// One end: what has been reserved, and what is done.
#[derive(Debug, Default)]
struct End {
    head: Line,
    tail: Line,
}

/// A bounded ring of numbers.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Vec<AtomicU32>,
    put: End,
    taken: End,
}

impl Ring {
    /// Room for `size` numbers: a power of two, at most 2^31.
    pub(super) fn new(size: usize) -> Self {
        let slots = (0..size.next_power_of_two()).map(|_| AtomicU32::new(0)).collect();
        Ring { slots, put: End::default(), taken: End::default() }
    }

    fn slot(&self, position: u32) -> &AtomicU32 {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Puts as many as there is room for; returns how many.
    #[inline]
    pub(super) fn put(&self, numbers: &[u32]) -> usize {
        let size = self.slots.len() as u32;
        let Some((first, count)) = reserve(&self.put, numbers.len(), |head| {
            size.wrapping_add(self.taken.tail.0.load(Acquire)).wrapping_sub(head)
        }) else {
            return 0;
        };
        for (i, &number) in (0..count).zip(numbers) {
            self.slot(first.wrapping_add(i)).store(number, Relaxed);
        }
        commit(&self.put, first, count)
    }

    /// Takes as many as there are into `out`; returns how many.
    #[inline]
    pub(super) fn take(&self, out: &mut [u32]) -> usize {
        let Some((first, count)) =
            reserve(&self.taken, out.len(), |head| self.put.tail.0.load(Acquire).wrapping_sub(head))
        else {
            return 0;
        };
        for (i, number) in (0..count).zip(out) {
            *number = self.slot(first.wrapping_add(i)).load(Relaxed);
        }
        commit(&self.taken, first, count)
    }
}

/// Reserves up to `wanted` places at an end: the first one and how many.
#[inline(always)]
fn reserve(end: &End, wanted: usize, available: impl Fn(u32) -> u32) -> Option<(u32, u32)> {
    let mut head = end.head.0.load(Relaxed);
    loop {
        let count = available(head).min(wanted as u32);
        if count == 0 {
            return None;
        }
        match end.head.0.compare_exchange_weak(head, head.wrapping_add(count), AcqRel, Relaxed) {
            Ok(_) => return Some((head, count)),
            Err(other) => head = other,
        }
    }
}

/// Makes what was reserved visible, after those who reserved before.
#[inline(always)]
fn commit(end: &End, first: u32, count: u32) -> usize {
    while end.tail.0.load(Relaxed) != first {
        std::hint::spin_loop();
    }
    end.tail.0.store(first.wrapping_add(count), Release);
    count as usize
}

/// Numbers that are free: a ring for all, and for each of the two sides a few at hand, so that it goes to the ring only once in a while.
#[derive(Debug)]
pub(super) struct Pool {
    ring: Ring,
    taker: Vec<u32>,
    giver: Vec<u32>,
}

impl Pool {
    /// Numbers that a side has at hand; half as many again are too many.
    const AT_HAND: usize = 64;

    /// The numbers `0..count`, and a side's worth more.
    pub(super) fn new(count: usize) -> (Self, usize) {
        let all = count + 3 * Self::AT_HAND;
        let ring = Ring::new(all);
        ring.put(&(0..all as u32).collect::<Vec<_>>());
        let side = || Vec::with_capacity(2 * Self::AT_HAND);
        (Pool { ring, taker: side(), giver: side() }, all)
    }

    /// A free number.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.taker.is_empty() {
            self.taker.resize(Self::AT_HAND, 0);
            let got = self.ring.take(&mut self.taker);
            self.taker.truncate(got);
        }
        self.taker.pop()
    }

    /// Gives a number back.
    #[inline(always)]
    pub(super) fn give(&mut self, number: u32) {
        self.giver.push(number);
        if self.giver.len() >= Self::AT_HAND * 3 / 2 {
            self.ring.put(&self.giver[Self::AT_HAND..]);
            self.giver.truncate(Self::AT_HAND);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_order_and_its_bound() {
        let ring = Ring::new(8);
        let mut out = [0; 5];
        let (mut next, mut seen) = (0, 0);
        for round in 0..1000_u32 {
            let want: Vec<u32> = (next..next + round % 7).collect();
            let room = 8 - (next - seen) as usize;
            let put = ring.put(&want);
            assert_eq!(put, want.len().min(room));
            next += put as u32;
            let there = (next - seen) as usize;
            let taken = ring.take(&mut out[..(round % 6) as usize]);
            assert_eq!(taken, there.min((round % 6) as usize));
            for number in &out[..taken] {
                assert_eq!(*number, seen);
                seen += 1;
            }
        }
        assert!(next > 1000);
    }

    #[test]
    fn a_ring_works_between_threads() {
        let ring = Ring::new(16);
        let sum = std::thread::scope(|scope| {
            for thread in 0..2 {
                let ring = &ring;
                scope.spawn(move || {
                    for number in 0..1000 {
                        while ring.put(&[thread * 1000 + number]) == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let (mut sum, mut count, mut last) = (0, 0, [None, None]);
            let mut out = [0; 3];
            while count < 2000 {
                let taken = ring.take(&mut out);
                if taken == 0 {
                    std::thread::yield_now();
                }
                for &number in &out[..taken] {
                    let last = &mut last[number as usize / 1000];
                    assert!(last.is_none_or(|last| last < number));
                    *last = Some(number);
                    sum += u64::from(number);
                }
                count += taken;
            }
            sum
        });
        assert_eq!(sum, 1999 * 2000 / 2);
    }

    #[test]
    fn a_pool_gives_every_number_once() {
        let (mut pool, all) = Pool::new(100);
        for _ in 0..3 {
            let mut taken: Vec<u32> = std::iter::from_fn(|| pool.take()).collect();
            assert!(taken.len() >= 100 && taken.len() <= all);
            taken.iter().for_each(|&number| pool.give(number));
            taken.sort_unstable();
            taken.dedup();
            assert!(taken.len() >= 100);
        }
    }
}
