//! How the address space spreads over chunks: what the papers' figures of sizes and search steps are made of.

use super::Dxr;
use std::sync::atomic::{AtomicU32, Ordering};

/// A chunk of 2^16 entries takes so many steps of the search.
const MOST_STEPS: usize = 16;

/// Entries of chunks by format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Entries {
    /// Of 2 bytes: starts on /24 boundaries, labels below 256.
    pub short: usize,
    /// Of 4 bytes, or of 8 if labels need 32 bits.
    pub long: usize,
}

impl Entries {
    fn add(&mut self, long: bool, count: usize) {
        *(if long { &mut self.long } else { &mut self.short }) += count;
    }
}

/// What is in the chunks of a [`Dxr`]; see [`Dxr::spread`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// As stored: equal chunks once.
    pub entries: Entries,
    /// As if each place had a chunk for itself.
    pub unshared: Entries,
    /// The share of the address space, 0 to 1, by steps of the range search; none for what a descriptor resolves.
    pub steps: [f64; MOST_STEPS + 1],
}

impl Dxr {
    /// Counts chunks, entries and steps. It walks all descriptors, so it is for statistics.
    pub fn spread(&self) -> Spread {
        let (mut unshared, mut steps) = (Entries::default(), [0_u64; MOST_STEPS + 1]);
        let mut stored: Vec<(u32, u32, bool)> = Vec::new();
        let mut count = |slot: &AtomicU32, places: u64| {
            let Some(chunk) = self.split.chunk(slot.load(Ordering::Relaxed)) else {
                steps[0] += places;
                return;
            };
            // The search halves what is left, rounding up.
            steps[(u32::BITS - chunk.last.leading_zeros()) as usize] += places;
            unshared.add(chunk.long, (chunk.last as usize + 1) * places as usize);
            stored.push((chunk.base, chunk.last, chunk.long));
        };
        match self.layout.x {
            0 => self.own.descs.iter().for_each(|slot| count(slot, 1)),
            _ => {
                let mut places = std::collections::BTreeMap::new();
                for block in self.own.direct.iter() {
                    *places.entry(block.load(Ordering::Relaxed)).or_insert(0) += 1;
                }
                for (block, places) in places {
                    self.store.block(block).iter().for_each(|slot| count(slot, places));
                }
            }
        }
        stored.sort_unstable();
        stored.dedup();
        let mut entries = Entries::default();
        stored.iter().for_each(|&(_, last, long)| entries.add(long, last as usize + 1));
        Spread { entries, unshared, steps: steps.map(|places| places as f64 / self.layout.chunks() as f64) }
    }
}

impl Spread {
    /// As [`details`](crate::Fib::details) names it; steps that no address takes are left out.
    pub(super) fn details(&self) -> impl Iterator<Item = (&'static str, f64)> {
        const STEPS: [&str; MOST_STEPS + 1] = [
            "steps_0_share",
            "steps_1_share",
            "steps_2_share",
            "steps_3_share",
            "steps_4_share",
            "steps_5_share",
            "steps_6_share",
            "steps_7_share",
            "steps_8_share",
            "steps_9_share",
            "steps_10_share",
            "steps_11_share",
            "steps_12_share",
            "steps_13_share",
            "steps_14_share",
            "steps_15_share",
            "steps_16_share",
        ];
        let entries = [
            ("short_ranges", self.entries.short),
            ("long_ranges", self.entries.long),
            ("short_ranges_unshared", self.unshared.short),
            ("long_ranges_unshared", self.unshared.long),
        ];
        let entries = entries.into_iter().map(|(name, count)| (name, count as f64));
        entries.chain(STEPS.into_iter().zip(self.steps).filter(|(_, share)| *share > 0.0))
    }
}
