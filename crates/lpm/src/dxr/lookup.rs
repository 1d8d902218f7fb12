//! Lookups in plain code: one key, and a batch in steps whose loads do not wait for one another. This is the
//! specification that the SIMD kernels are tested against.

use super::{Dxr, Split};
use crate::fib::Label;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_lookup::probe::Probe;

/// Keys per round of the batch: three small arrays in L1, and enough loads to keep the memory system busy.
const ROUND: usize = 64;

fn address<T>(element: &T) -> usize {
    std::ptr::from_ref(element).addr()
}

impl Dxr {
    /// Longest match of one address; `probe` sees every load and every comparison.
    #[inline]
    pub fn lookup_probed<P: Probe>(&self, key: u32, probe: &P) -> Label {
        let desc = self.descriptor(key, probe);
        if desc & self.split.count_mask() == 0 {
            return Label(desc >> self.split.value_shift());
        }
        self.search(desc, key, probe)
    }

    /// The descriptor of the key's chunk.
    #[inline(always)]
    fn descriptor<P: Probe>(&self, key: u32, probe: &P) -> u32 {
        let chunk = (key >> self.layout.rest()) as usize;
        let (index, dependent) = match self.layout.x {
            0 => (chunk, false),
            x => {
                let slot = &self.own.direct[chunk >> x];
                probe.read(address(slot), 2, false);
                // Acquire: the block was filled before it was put here.
                let block = usize::from(slot.load(Ordering::Acquire));
                (block << x | chunk & ((1 << x) - 1), true)
            }
        };
        let slot = &self.descs()[index];
        probe.read(address(slot), 4, dependent);
        slot.load(Ordering::Acquire)
    }

    /// The range search in the chunk of a descriptor that is not a label.
    #[inline(always)]
    fn search<P: Probe>(&self, desc: u32, key: u32, probe: &P) -> Label {
        let Split { unit_shift, .. } = self.split;
        let count = (desc & self.split.count_mask()) as usize + 1;
        let chunk = &self.store.ranges[((desc >> self.split.value_shift()) as usize) << unit_shift..];
        let low = key & (u32::MAX >> self.layout.k());
        let word = |index: usize| {
            let word: &AtomicU32 = &chunk[index];
            probe.read(address(word), 4, true);
            // Relaxed: these words are not stored to while a reader can reach them.
            word.load(Ordering::Relaxed)
        };
        let label = if desc & self.split.long_bit() == 0 {
            let entry = |i: usize| word(i / 2) >> (i % 2 * 16) & 0xffff;
            entry(last_at_most(count, probe, |i| entry(i) >> 8 <= low >> 8)) & 0xff
        } else if self.label_bits == 32 {
            word(2 * last_at_most(count, probe, |i| word(2 * i) >> 16 <= low) + 1)
        } else {
            word(last_at_most(count, probe, |i| word(i) >> 16 <= low)) & 0xffff
        };
        Label(label)
    }

    /// The batch in plain code. Per round: all descriptors, then what they resolve and a list of the rest, then the
    /// searches.
    pub(super) fn lookup_batch_scalar(&self, keys: &[u32], out: &mut [Label]) {
        let (mask, shift) = (self.split.count_mask(), self.split.value_shift());
        let (mut descs, mut rest) = ([0; ROUND], [0_u8; ROUND]);
        for (keys, out) in keys.chunks(ROUND).zip(out.chunks_mut(ROUND)) {
            for (desc, &key) in descs.iter_mut().zip(keys) {
                *desc = self.descriptor(key, &());
            }
            let mut unresolved = 0;
            for (i, (out, &desc)) in out.iter_mut().zip(&descs).enumerate() {
                *out = Label(desc >> shift);
                // Writing always and counting sometimes: no branch to mispredict.
                rest[unresolved] = i as u8;
                unresolved += usize::from(desc & mask != 0);
            }
            for &i in &rest[..unresolved] {
                let i = usize::from(i);
                out[i] = self.search(descs[i], keys[i], &());
            }
        }
    }
}

/// The last of `count` ascending entries for which `at_most` holds; it holds for the first. Always the same number of
/// steps for a count.
#[inline(always)]
fn last_at_most<P: Probe>(count: usize, probe: &P, at_most: impl Fn(usize) -> bool) -> usize {
    let (mut first, mut count) = (0, count);
    while count > 1 {
        let half = count / 2;
        probe.step();
        first += if at_most(first + half) { half } else { 0 };
        count -= half;
    }
    first
}
