//! Lookups: one key at a time (the specification, generic over the probe), and a burst in lock step.

use super::{CELL, Entry, LINE_BITS, LINE_HEAD, Node, RangeTrie, STARTS, bits};
use crate::fib::{Fib, Label};
use crate::prefix::Address;
use std::sync::atomic::{AtomicU32, Ordering};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Keys that are in flight together.
const BURST: usize = 128;

/// How a burst counts the starts of a line; chosen when the trie is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Search {
    /// What this CPU can do, the best last.
    pub(super) fn all() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Search::Portable];
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        {
            if super::simd::has_avx2() {
                all.push(Search::Avx2);
            }
            if super::simd::has_avx512() {
                all.push(Search::Avx512);
            }
        }
        all
    }

    fn name(self) -> &'static str {
        match self {
            Search::Portable => "scalar",
            #[cfg(target_arch = "x86_64")]
            Search::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Search::Avx512 => "avx512",
        }
    }

    pub(super) fn best() -> Self {
        Self::all().last().copied().unwrap_or(Search::Portable)
    }
}

/// How many of the line's starts are at most `x`.
#[inline(always)]
pub(super) fn count(words: &[AtomicU32], line: usize, x: u16) -> usize {
    let mut n = 0;
    for word in &words[line..line + LINE_HEAD] {
        let pair = word.load(Ordering::Relaxed);
        n += usize::from(pair as u16 <= x) + usize::from((pair >> 16) as u16 <= x);
    }
    n
}

impl<A: Address> RangeTrie<A> {
    /// Longest match of one key, telling `probe` every access.
    #[inline]
    pub fn lookup_probed<P: Probe + ?Sized>(&self, key: A, probe: &P) -> Label {
        let words = &*self.cells;
        let read = |at: usize, size: usize, dependent: bool| {
            probe.read(words.as_ptr().wrapping_add(at).addr(), size, dependent);
        };
        let (mut at, mut depth) = (bits(key, 0, self.root_bits), self.root_bits);
        read(at, 4, false);
        let mut entry = Entry(words[at].load(Ordering::Acquire));
        while let Some((node, cell)) = entry.node() {
            probe.step();
            let first = cell as usize * CELL;
            at = match node {
                Node::Block(width) => first + bits(key, depth, width),
                Node::Line => {
                    read(first, 2 * STARTS, true);
                    first + LINE_HEAD + count(words, first, bits(key, depth, LINE_BITS) as u16)
                }
            };
            depth += node.bits();
            read(at, 4, true);
            entry = Entry(words[at].load(Ordering::Acquire));
        }
        Label(entry.0)
    }

    pub(super) fn burst(&self, search: Search, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        match search {
            Search::Portable => lock_step(self, keys, out, count),
            #[cfg(target_arch = "x86_64")]
            Search::Avx2 => super::simd::burst_avx2(self, keys, out),
            #[cfg(target_arch = "x86_64")]
            Search::Avx512 => super::simd::burst_avx512(self, keys, out),
        }
    }
}

/// A key on its way: the bits not yet used (left-aligned), the word to read next (the slot of a block, the start of a
/// line), and where its answer goes.
#[derive(Clone, Copy, Default)]
struct Walk {
    window: u64,
    at: u32,
    answer: u32,
}

/// Keys that wait for a node of one kind. No branch depends on the data: what does not belong here is written too,
/// and overwritten by the next.
struct Queue {
    walks: [Walk; BURST],
    len: usize,
}

impl Queue {
    #[inline(always)]
    fn push(&mut self, walk: Walk, belongs: bool) {
        self.walks[self.len] = walk;
        self.len += usize::from(belongs);
    }
}

/// Looks up bursts of [`BURST`] keys, each round taking every waiting key one node further. The node that a key needs
/// next is prefetched as soon as it is known, and visited a round later, so that the misses of a burst overlap.
#[inline(always)]
pub(super) fn lock_step<A: Address>(
    trie: &RangeTrie<A>,
    keys: &[A],
    out: &mut [Label],
    count: impl Fn(&[AtomicU32], usize, u16) -> usize,
) {
    for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
        one_burst(trie, keys, out, &count);
    }
}

#[inline(always)]
fn one_burst<A: Address>(
    trie: &RangeTrie<A>,
    keys: &[A],
    out: &mut [Label],
    count: &impl Fn(&[AtomicU32], usize, u16) -> usize,
) {
    const LINE: u32 = Entry::POINTER >> Entry::KIND_SHIFT;
    let words = &*trie.cells;
    let mut blocks = Queue { walks: [Walk::default(); BURST], len: 0 };
    let mut lines = Queue { walks: [Walk::default(); BURST], len: 0 };
    // Sorts a key by the entry that it has just read: into the queue of its next node, or nowhere if the entry is its
    // answer - or a deep pointer, which the end takes care of.
    let sort = |blocks: &mut Queue, lines: &mut Queue, out: &mut [Label], entry: u32, walk: Walk| {
        out[walk.answer as usize] = Label(entry);
        let kind = entry >> Entry::KIND_SHIFT;
        // 0 for a line, whose address does not depend on the key. A label's "address" is the root's first word.
        let width = 4 * (kind & 3);
        let slot = ((walk.window >> 1) >> (63 - width)) as u32;
        let pointer = ((entry as i32) >> 31) as u32;
        // Of a label these bits are no address: the sum may be anything, and counts for nothing.
        let at = ((entry & Entry::CELL_MASK) * CELL as u32).wrapping_add(slot) & pointer;
        prefetch_read(words.as_ptr().wrapping_add(at as usize));
        let next = Walk { window: walk.window << width, at, answer: walk.answer };
        blocks.push(next, kind.wrapping_sub(LINE + 1) < 2);
        lines.push(next, kind == LINE);
    };
    let root_shift = 64 - u32::from(trie.root_bits);
    let mut start = [Walk::default(); BURST];
    for (i, &key) in keys.iter().enumerate() {
        let window = ((key.to_u128() << (128 - usize::from(A::BITS))) >> 64) as u64;
        let at = (window >> root_shift) as u32;
        prefetch_read(words.as_ptr().wrapping_add(at as usize));
        start[i] = Walk { window: window << trie.root_bits, at, answer: i as u32 };
    }
    for &walk in &start[..keys.len()] {
        let entry = words[walk.at as usize].load(Ordering::Acquire);
        sort(&mut blocks, &mut lines, out, entry, walk);
    }
    while blocks.len + lines.len > 0 {
        while blocks.len > 0 {
            let waiting = std::mem::take(&mut blocks.len);
            for i in 0..waiting {
                // Sorting writes at or before the place that has just been read.
                let walk = blocks.walks[i];
                let entry = words[walk.at as usize].load(Ordering::Acquire);
                sort(&mut blocks, &mut lines, out, entry, walk);
            }
        }
        let waiting = std::mem::take(&mut lines.len);
        for i in 0..waiting {
            let walk = lines.walks[i];
            let line = walk.at as usize;
            let at = line + LINE_HEAD + count(words, line, (walk.window >> 48) as u16);
            let entry = words[at].load(Ordering::Acquire);
            let next = Walk { window: walk.window << LINE_BITS, ..walk };
            sort(&mut blocks, &mut lines, out, entry, next);
        }
    }
    finish(trie, keys, out);
}

/// Answers the keys that came to a deep pointer: prefixes behind the window (longer than /64, by and large) are rare, so those
/// keys start again, one by one.
#[inline(always)]
pub(super) fn finish<A: Address>(trie: &RangeTrie<A>, keys: &[A], out: &mut [Label]) {
    if out.iter().fold(0, |any, label| any | label.0) & Entry::POINTER != 0 {
        for (key, answer) in keys.iter().zip(out) {
            if !Entry(answer.0).is_leaf() {
                *answer = trie.lookup_probed(*key, &());
            }
        }
    }
}

impl<A: Address> Fib<A> for RangeTrie<A> {
    fn lookup(&self, key: A) -> Label {
        self.lookup_probed(key, &())
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        self.burst(self.search, keys, out);
    }

    fn lookup_batch_each(&self, keys: &[A], each: &mut dyn FnMut(&'static str, &[Label])) {
        for search in Search::all() {
            let mut out = vec![Label(u32::MAX); keys.len()];
            self.burst(search, keys, &mut out);
            each(search.name(), &out);
        }
    }

    fn name(&self) -> String {
        format!("rangetrie-d{}", self.root_bits)
    }

    fn bytes(&self) -> usize {
        self.used() * CELL * size_of::<u32>()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        RangeTrie::lookup_probed(self, key, probe)
    }
}
