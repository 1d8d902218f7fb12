//! Lookups: one key at a time (the specification, generic over the probe), one without branches, and a burst in lock step.

use super::{Entry, LARGE_HEAD, Lulea, SMALL_HEAD, UNIT, byte};
use crate::fib::{Fib, Label};
use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_lookup::probe::Probe;

/// Keys that are in flight together.
const BURST: usize = 128;
/// The bits that root and block answer for.
const ROOT_AND_BLOCK: u8 = 24;

/// The code that answers; chosen when the structure is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    Portable,
    /// Bursts eight keys at a time; one key by the portable code, with the comparisons of a small node at once.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// What this CPU can do, the best last.
    pub(super) fn all() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Kernel::Portable];
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        {
            if super::simd::has_avx2() {
                all.push(Kernel::Avx2);
            }
            if super::simd::has_avx512() {
                all.push(Kernel::Avx512);
            }
        }
        all
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => "avx512",
        }
    }

    pub(super) fn best() -> Self {
        Self::all().last().copied().unwrap_or(Kernel::Portable)
    }
}

/// How many of the eight bytes of `ends` are below `x`.
#[inline(always)]
pub(super) fn below(ends: u64, x: u8) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let xs = ONES * u64::from(x);
    // The high bit of each byte: its low seven bits are not below those of x. No byte borrows from its neighbour.
    let low_not_below = (ends | HIGH) - (xs & !HIGH);
    let below = ((!ends & xs) | (!(ends ^ xs) & !low_not_below)) & HIGH;
    ((below >> 7).wrapping_mul(ONES) >> 56) as usize
}

/// What a visit reads of a node: two words, and how many of their bytes are below the key's.
pub(super) struct Look {
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) below: u32,
}

/// Reads two words that stand together.
#[inline(always)]
pub(super) fn look(pair: &[AtomicU32; 2], x: u8) -> Look {
    let [low, high] = [0, 1].map(|i: usize| pair[i].load(Ordering::Relaxed));
    Look { low, high, below: below(u64::from(high) << 32 | u64::from(low), x) as u32 }
}

/// The set bits of `bitmap` at `bit` and below.
#[inline(always)]
fn up_to(bitmap: u32, bit: u8) -> usize {
    (bitmap << (31 - u32::from(bit))).count_ones() as usize
}

impl Lulea {
    /// Longest match of one key, telling `probe` every access.
    pub fn lookup_probed<P: Probe + ?Sized>(&self, key: u128, probe: &P) -> Label {
        let read = |word: usize, size: usize| {
            probe.read(self.store.words.as_ptr().wrapping_add(word).addr(), size, true);
        };
        let slot = (key >> 112) as usize;
        probe.read((&raw const self.root[slot]).addr(), 4, false);
        let mut entry = self.root(slot);
        if !entry.is_leaf() {
            let at = entry.word() + usize::from(byte(key, 16));
            read(at, 4);
            entry = self.store.entry(at);
        }
        self.walk(key, entry, ROOT_AND_BLOCK, &read, &|| probe.step())
    }

    /// From the entry for the first `depth` bits of `key` to its answer.
    #[inline(always)]
    fn walk(
        &self,
        key: u128,
        mut entry: Entry,
        mut depth: u8,
        read: &impl Fn(usize, usize),
        step: &impl Fn(),
    ) -> Label {
        let store = &*self.store;
        while !entry.is_leaf() {
            step();
            let x = byte(key, depth);
            let node = entry.word();
            let word = if entry.is_large() { node + 2 * usize::from(x / 32) } else { node };
            read(word, 8);
            let [low, high] = [word, word + 1].map(|at| store.words[at].load(Ordering::Relaxed));
            let at = if entry.is_large() {
                high as usize + up_to(low, x % 32)
            } else {
                node + SMALL_HEAD + below(u64::from(high) << 32 | u64::from(low), x)
            };
            read(at, 4);
            entry = store.entry(at);
            depth += 8;
        }
        Label(entry.0)
    }

    /// One node further, without a branch: an answer stays what it is. `look` as for [`step`](Self::step).
    #[inline(always)]
    fn visit(&self, entry: u32, x: u8, look: &impl Fn(&[AtomicU32; 2], u8) -> Look) -> u32 {
        let (pointer, large) = (!Entry(entry).is_leaf(), entry >= Entry::POINTER | Entry::LARGE);
        let unit = select_unpredictable(pointer, entry & Entry::PLACE, Entry::NOWHERE);
        let next = self.step(unit, large, x, look);
        select_unpredictable(pointer, next, entry)
    }

    /// What the node that begins in `unit` has for the byte `x`. `look` reads two words that stand together, and says how many of their
    /// bytes are below `x`.
    #[inline(always)]
    fn step(&self, unit: u32, large: bool, x: u8, look: &impl Fn(&[AtomicU32; 2], u8) -> Look) -> u32 {
        let unit = unit as usize;
        let aside = select_unpredictable(large, usize::from(x / 32), 0);
        let words = &*self.store.words;
        let pairs: &[[AtomicU32; 2]] = words.as_chunks().0;
        let Look { low, high, below } = look(&pairs[unit + aside], x);
        let small = unit * UNIT + SMALL_HEAD + below as usize;
        let in_large = high as usize + up_to(low, x % 32);
        let at = select_unpredictable(large, in_large, small);
        words[at].load(Ordering::Acquire)
    }

    /// The entry of the block for the first 24 bits of a key, of which these are the first 64.
    #[inline(always)]
    fn start(&self, high: u64) -> u32 {
        let entry = self.root[(high >> 48) as usize].load(Ordering::Acquire);
        let pointer = !Entry(entry).is_leaf();
        let block = select_unpredictable(pointer, entry & Entry::PLACE, 0) as usize * UNIT;
        let next = self.store.words[block + usize::from((high >> 40) as u8)].load(Ordering::Acquire);
        select_unpredictable(pointer, next, entry)
    }

    /// One lookup of a fixed number of steps, so that a CPU that is asked one after the other works on several at a time: three
    /// visits, enough for /48. What is longer is rare.
    ///
    /// At the root and at the block jumps leave: there the keys of routed networks all go on, and nearly all random ones do not, so that
    /// either way the CPU knows beforehand, and neither they nor the first visit have to choose. Behind that visit half of the keys have their
    /// answer, which nobody can know: from there on there are no jumps.
    #[inline(always)]
    pub(super) fn quick(&self, key: u128, look: impl Fn(&[AtomicU32; 2], u8) -> Look) -> Label {
        let high = (key >> 64) as u64;
        let root = self.root((high >> 48) as usize);
        if root.is_leaf() {
            return Label(root.0);
        }
        let block = self.store.entry(root.word() + usize::from((high >> 40) as u8));
        if block.is_leaf() {
            return Label(block.0);
        }
        let mut entry = self.step(block.unit(), block.is_large(), (high >> 32) as u8, &look);
        for shift in [24, 16] {
            entry = self.visit(entry, (high >> shift) as u8, &look);
        }
        self.rest(key, entry, 48)
    }

    /// The answer for a key that has come to `entry`.
    #[inline(always)]
    pub(super) fn rest(&self, key: u128, entry: u32, depth: u8) -> Label {
        let entry = Entry(entry);
        if entry.is_leaf() { Label(entry.0) } else { self.rest_slowly(key, entry, depth) }
    }

    #[cold]
    fn rest_slowly(&self, key: u128, entry: Entry, depth: u8) -> Label {
        self.walk(key, entry, depth, &|_, _| {}, &|| {})
    }

    /// Looks up bursts of [`BURST`] keys, each round taking every key that has no answer yet one node further. The loads of a
    /// round do not depend on each other, so that their misses overlap.
    #[inline(always)]
    fn lock_step(&self, keys: &[u128], out: &mut [Label]) {
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            let mut waiting = [0_u8; BURST];
            let mut count = 0;
            for (i, (&key, out)) in keys.iter().zip(&mut *out).enumerate() {
                let entry = self.start((key >> 64) as u64);
                *out = Label(entry);
                waiting[count] = i as u8;
                count += (entry >> 31) as usize;
            }
            let mut depth = ROOT_AND_BLOCK;
            while count > 0 {
                let round = std::mem::take(&mut count);
                for at in 0..round {
                    // What waits on is written at or before the place that has just been read.
                    let i = usize::from(waiting[at]);
                    let entry = self.visit(out[i].0, byte(keys[i], depth), &look);
                    out[i] = Label(entry);
                    waiting[count] = i as u8;
                    count += (entry >> 31) as usize;
                }
                depth += 8;
            }
        }
    }

    pub(super) fn burst(&self, kernel: Kernel, keys: &[u128], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        match kernel {
            Kernel::Portable => self.lock_step(keys, out),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => super::simd::burst_avx2(self, keys, out),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::simd::burst_avx512(self, keys, out),
        }
    }
}

const _: () = assert!(BURST <= 256 && LARGE_HEAD.is_multiple_of(UNIT));

impl Fib<u128> for Lulea {
    fn lookup(&self, key: u128) -> Label {
        match self.kernel {
            Kernel::Portable => self.quick(key, look),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => super::simd::quick_avx2(self, key),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::simd::quick_avx512(self, key),
        }
    }

    fn lookup_batch(&self, keys: &[u128], out: &mut [Label]) {
        self.burst(self.kernel, keys, out);
    }

    fn lookup_batch_each(&self, keys: &[u128], each: &mut dyn FnMut(&'static str, &[Label])) {
        for kernel in Kernel::all() {
            let mut out = vec![Label(u32::MAX); keys.len()];
            self.burst(kernel, keys, &mut out);
            each(kernel.name(), &out);
        }
    }

    fn name(&self) -> String {
        "lulea".into()
    }

    fn bytes(&self) -> usize {
        // All of the store: what of it is others' alone would take a walk to find out.
        self.own_bytes() + self.store.bytes()
    }

    fn shared_bytes(&self) -> usize {
        if self.store.tables() > 1 { self.store.bytes() } else { 0 }
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![("own_bytes", self.own_bytes() as f64), ("shared_by", self.store.tables() as f64)]
    }

    fn lookup_probed(&self, key: u128, probe: &dyn Probe) -> Label {
        Lulea::lookup_probed(self, key, probe)
    }
}
