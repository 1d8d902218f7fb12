//! Lookups: one key at a time (the specification, generic over the probe), and a burst in lock step.

use super::{NODE, NODE_WORDS, Poptrie, STRIDE, bits};
use crate::fib::{Fib, Label};
use crate::prefix::Address;
use std::sync::atomic::Ordering;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Keys that are in flight together.
const BURST: usize = 128;

/// The code that answers; chosen when the trie is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// For any CPU.
    Scalar,
    /// The same, compiled for CPUs that count bits by an instruction.
    #[cfg(target_arch = "x86_64")]
    Popcnt,
    /// Eight nodes at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// What this CPU can do, the best last.
    pub fn all() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Kernel::Scalar];
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        {
            if super::simd::has_popcnt() {
                all.push(Kernel::Popcnt);
            }
            if super::simd::has_avx512() {
                all.push(Kernel::Avx512);
            }
        }
        all
    }

    /// As checks name it.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kernel::Popcnt => "popcnt",
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => "avx512",
        }
    }

    pub(super) fn best() -> Self {
        Self::all().last().copied().unwrap_or(Kernel::Scalar)
    }
}

/// Where a node's slot leads to.
struct Found {
    /// Whether to a node; else to a leaf.
    below: bool,
    /// The number of the node or leaf.
    number: u32,
}

impl<A: Address> Poptrie<A> {
    /// What the node says of its 6 bits of the key. Its number comes from the word that leads to it.
    #[inline(always)]
    fn follow(&self, number: u32, v: usize) -> Found {
        let first = number as usize * NODE_WORDS;
        let words = &self.nodes[first..first + NODE_WORDS];
        let (vector, leafvec) = (words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed));
        let bases = words[2].load(Ordering::Acquire);
        let below = vector >> v & 1 == 1;
        let (counted, base) = if below { (vector, bases >> 32) } else { (leafvec, bases) };
        let up_to = (2_u64 << v).wrapping_sub(1);
        Found { below, number: (base as u32).wrapping_add((counted & up_to).count_ones()).wrapping_sub(1) }
    }

    /// Longest match of one key, telling `probe` every access.
    #[inline(always)]
    pub fn lookup_probed<P: Probe + ?Sized>(&self, key: A, probe: &P) -> Label {
        let slot = bits(key, 0, self.root_bits);
        probe.read(self.root.as_ptr().wrapping_add(slot).addr(), 4, false);
        let entry = self.root[slot].load(Ordering::Acquire);
        if entry & NODE == 0 {
            return Label(entry);
        }
        let (mut number, mut depth) = (entry & !NODE, self.root_bits);
        loop {
            probe.step();
            probe.read(self.node_at(number).addr(), 8 * NODE_WORDS, true);
            let found = self.follow(number, bits(key, depth, STRIDE));
            if !found.below {
                probe.read(self.leaf_at(found.number).addr(), 4, true);
                return self.leaf(found.number as usize);
            }
            (number, depth) = (found.number, depth + STRIDE);
        }
    }

    #[inline(always)]
    pub(super) fn node_at(&self, number: u32) -> *const u8 {
        self.nodes.as_ptr().wrapping_add(number as usize * NODE_WORDS).cast()
    }

    #[inline(always)]
    pub(super) fn leaf_at(&self, leaf: u32) -> *const u8 {
        self.leaves.as_ptr().wrapping_add(self.width.place(leaf as usize).0).cast()
    }

    pub(super) fn burst(&self, kernel: Kernel, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        match kernel {
            Kernel::Scalar => lock_step(self, keys, out),
            #[cfg(target_arch = "x86_64")]
            Kernel::Popcnt => super::simd::burst_popcnt(self, keys, out),
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx512 => super::simd::burst_avx512(self, keys, out),
        }
    }
}

/// A key on its way: the node or leaf that it has come to, and where its answer goes.
#[derive(Clone, Copy, Default)]
struct Walk {
    number: u32,
    answer: u32,
}

/// Looks up bursts of [`BURST`] keys, each round taking every waiting key one node further. What a key needs next is prefetched as
/// soon as it is known, and read a round later, so that the misses of a burst overlap. No branch depends on the data: what does
/// not belong into a list is written too, and overwritten by the next.
#[inline(always)]
pub(super) fn lock_step<A: Address>(trie: &Poptrie<A>, keys: &[A], out: &mut [Label]) {
    let mut nodes = [Walk::default(); BURST];
    let mut leaves = [Walk::default(); BURST];
    for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
        let (mut waiting, mut ended) = (0, 0);
        for (i, &key) in keys.iter().enumerate() {
            let entry = trie.root[bits(key, 0, trie.root_bits)].load(Ordering::Acquire);
            out[i] = Label(entry);
            prefetch_read(trie.node_at(entry & !NODE));
            nodes[waiting] = Walk { number: entry & !NODE, answer: i as u32 };
            waiting += usize::from(entry & NODE != 0);
        }
        let mut depth = trie.root_bits;
        while waiting > 0 {
            for i in 0..std::mem::take(&mut waiting) {
                let Walk { number, answer } = nodes[i];
                let found = trie.follow(number, bits(keys[answer as usize], depth, STRIDE));
                let next = Walk { number: found.number, answer };
                let at = if found.below { trie.node_at(next.number) } else { trie.leaf_at(next.number) };
                prefetch_read(at);
                nodes[waiting] = next;
                waiting += usize::from(found.below);
                leaves[ended.min(BURST - 1)] = next;
                ended += usize::from(!found.below);
            }
            depth += STRIDE;
        }
        for walk in &leaves[..ended] {
            out[walk.answer as usize] = trie.leaf(walk.number as usize);
        }
    }
}

impl<A: Address> Fib<A> for Poptrie<A> {
    fn lookup(&self, key: A) -> Label {
        match self.kernel {
            Kernel::Scalar => self.lookup_probed(key, &()),
            #[cfg(target_arch = "x86_64")]
            _ => super::simd::lookup_popcnt(self, key),
        }
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        self.burst(self.kernel, keys, out);
    }

    fn lookup_batch_each(&self, keys: &[A], each: &mut dyn FnMut(&'static str, &[Label])) {
        for kernel in Kernel::all() {
            let mut out = vec![Label(u32::MAX); keys.len()];
            self.burst(kernel, keys, &mut out);
            each(kernel.name(), &out);
        }
    }

    fn name(&self) -> String {
        format!("poptrie-d{}", self.root_bits)
    }

    fn bytes(&self) -> usize {
        let leaf_bytes = self.leaves().div_ceil(1 << self.width.shift) * 4;
        self.root.len() * 4 + self.nodes() * NODE_WORDS * 8 + leaf_bytes
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        Poptrie::lookup_probed(self, key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let resolved = self.root.iter().filter(|entry| entry.load(Ordering::Relaxed) & NODE == 0).count();
        vec![
            ("root_bytes", self.root.len() as f64 * 4.0),
            ("nodes", self.nodes() as f64),
            ("leaves", self.leaves() as f64),
            ("leaf_bits", f64::from(self.leaf_bits())),
            ("resolved_share", resolved as f64 / self.root.len() as f64),
        ]
    }
}
