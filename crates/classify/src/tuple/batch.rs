//! Lookups of many keys: each table for a group of keys at once, so that their misses overlap (group prefetching). With AVX-512 by
//! vectors (`simd.rs`).

use super::TupleSpace;
use super::reach::bit;
use super::table::First;
use crate::key::Key;
use crate::rule::Rank;

/// Keys that are under way at once.
pub(super) const GROUP: usize = 32;

impl TupleSpace {
    /// The first matches of many keys; `out` is as long as `keys`, and what lies beyond the shorter is not looked at.
    pub fn lookup_batch(&self, keys: &[Key], out: &mut [Rank]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(avx512) = crate::cpu::Avx512::new() {
            for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
                avx512.lookup_group(self, keys, out);
            }
            return;
        }
        self.lookup_batch_scalar(keys, out);
    }

    /// The same without vectors: the specification of [`lookup_batch`](Self::lookup_batch), and what it is where the CPU has none.
    pub fn lookup_batch_scalar(&self, keys: &[Key], out: &mut [Rank]) {
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.lookup_group(keys, out);
        }
    }

    fn lookup_group(&self, keys: &[Key], out: &mut [Rank]) {
        let n = keys.len().min(out.len()).min(GROUP);
        let out = &mut out[..n];
        out.fill(Rank::NONE);
        let may = self.reach.as_ref().map(|reach| {
            let mut may = [0; GROUP];
            may.iter_mut().zip(keys).for_each(|(may, key)| *may = reach.tables(key));
            may
        });
        self.lookup_rest(0, (std::array::from_fn(|i| i as u8), n), keys, may.as_ref(), out);
    }

    /// From a table on, for those keys of a group whose places are listed: the tables to come may have a better rule for them than
    /// `out` says. `may`: the [tables](super::reach) that each key may have a rule in.
    #[inline(always)]
    pub(super) fn lookup_rest(
        &self,
        from: usize,
        (mut open, mut left): ([u8; GROUP], usize),
        keys: &[Key],
        may: Option<&[u64; GROUP]>,
        out: &mut [Rank],
    ) {
        let mut hashes = [0_u64; GROUP];
        // Those that have something to compare in a table.
        let mut firsts = [(0_u8, First::NONE); GROUP];
        let mut within = [0_u8; GROUP];
        for &(bound, number) in &self.order[from..] {
            let mut kept = 0;
            for at in 0..left {
                let i = open[at];
                open[kept] = i;
                kept += usize::from(out[usize::from(i)] > bound);
            }
            left = kept;
            if left == 0 {
                break;
            }
            let asking = match may {
                None => &open[..left],
                Some(may) => {
                    let mut count = 0;
                    for &i in &open[..left] {
                        within[count] = i;
                        count += usize::from(may[usize::from(i)] & bit(number) != 0);
                    }
                    &within[..count]
                }
            };
            let table = &self.tables[number as usize];
            for (hash, &i) in hashes.iter_mut().zip(asking) {
                *hash = table.hash(&keys[usize::from(i)]);
                table.prefetch_head(*hash);
            }
            let mut seen = 0;
            for (&hash, &i) in hashes.iter().zip(asking) {
                if let Some(first) = table.first(hash) {
                    table.prefetch_entry(first);
                    firsts[seen] = (i, first);
                    seen += 1;
                }
            }
            for &(i, first) in &firsts[..seen] {
                let best = &mut out[usize::from(i)];
                *best = (*best).min(table.search(first, &keys[usize::from(i)], *best).0);
            }
        }
    }
}
