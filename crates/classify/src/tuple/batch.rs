//! Lookups of many keys: each table for a group of keys at once, so that their misses overlap (group prefetching).

use super::TupleSpace;
use super::table::First;
use crate::key::Key;
use crate::rule::Rank;

/// Keys that are under way at once.
pub(super) const GROUP: usize = 32;

impl TupleSpace {
    /// The first matches of many keys; `out` is as long as `keys`, and what lies beyond the shorter is not looked at.
    pub fn lookup_batch(&self, keys: &[Key], out: &mut [Rank]) {
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.lookup_group(keys, out);
        }
    }

    fn lookup_group(&self, keys: &[Key], out: &mut [Rank]) {
        let n = keys.len().min(out.len()).min(GROUP);
        let out = &mut out[..n];
        out.fill(Rank::NONE);
        // Keys for which the tables to come may have a better rule; those that have something to compare in this one.
        let mut open: [u8; GROUP] = std::array::from_fn(|i| i as u8);
        let mut hashes = [0_u64; GROUP];
        let mut firsts = [(0_u8, First::NONE); GROUP];
        let mut left = n;
        for &(bound, number) in &self.order {
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
            let table = &self.tables[number as usize];
            for (hash, &i) in hashes.iter_mut().zip(&open[..left]) {
                *hash = table.hash(&keys[usize::from(i)]);
                table.prefetch_head(*hash);
            }
            let mut seen = 0;
            for (&hash, &i) in hashes.iter().zip(&open[..left]) {
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
