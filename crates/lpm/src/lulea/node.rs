//! One node: its runs as they are written, found and read.

use super::lookup::below;
use super::{Entry, LARGE_HEAD, LINE_UNITS, NOWHERE, SLOTS, SMALL_HEAD, SMALL_RUNS, Store, UNIT};
use crate::fib::Outgrown;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidemill_lookup::mem::Table;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::{Domain, Epoch};

/// Units of a block.
pub(super) const BLOCK: usize = SLOTS / UNIT;
/// The length in units up to which free runs are kept, longer ones as several: more than those of the largest node.
const LONGEST: usize = 256;

const _: () = assert!(LONGEST * UNIT > LARGE_HEAD + SLOTS);

/// Slots in a row that lead to the same: the first of them, and the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u8,
    pub(super) entry: Entry,
}

/// The run of a slot: its first and last slot, its entry, and where that is (0 if the region is a label whole).
pub(super) struct Place {
    pub(super) first: u8,
    pub(super) last: u8,
    pub(super) entry: Entry,
    pub(super) word: usize,
}

/// Whether a node of so many runs is a large one.
pub(super) fn is_large(runs: usize) -> bool {
    runs > SMALL_RUNS
}

/// Words of a node of so many runs.
pub(super) fn words(runs: usize) -> usize {
    let head = if is_large(runs) { LARGE_HEAD } else { SMALL_HEAD };
    head + runs
}

/// Says what stands at which word of a node that begins at `word`; what tells its size comes first.
pub(super) fn encode(runs: &[Run], word: usize, mut set: impl FnMut(usize, u32)) {
    let head = if is_large(runs.len()) {
        let mut heads = [0_u32; SLOTS / 32];
        // That slot 0 begins a run goes without saying.
        for run in &runs[1..] {
            heads[usize::from(run.start / 32)] |= 1 << (run.start % 32);
        }
        let mut base = (word + LARGE_HEAD) as u32;
        for (i, &bitmap) in heads.iter().enumerate() {
            set(word + 2 * i, bitmap);
            set(word + 2 * i + 1, base);
            base += bitmap.count_ones();
        }
        LARGE_HEAD
    } else {
        let mut ends = [u8::MAX; 8];
        for (end, run) in ends.iter_mut().zip(&runs[1..]) {
            *end = run.start - 1;
        }
        let ends = u64::from_le_bytes(ends);
        set(word, ends as u32);
        set(word + 1, (ends >> 32) as u32);
        SMALL_HEAD
    };
    for (i, run) in runs.iter().enumerate() {
        set(word + head + i, run.entry.0);
    }
}

/// Tells a load of a word.
#[inline(always)]
pub(super) fn tell_read<P: Probe>(word: &AtomicU32, probe: &P) {
    probe.read(std::ptr::from_ref(word).addr(), size_of::<AtomicU32>(), true);
}

impl Store {
    fn load<P: Probe>(&self, word: usize, probe: &P) -> u32 {
        tell_read(&self.words[word], probe);
        self.words[word].load(Ordering::Relaxed)
    }

    /// The entry at a word, for those who write.
    pub(super) fn entry_told<P: Probe>(&self, word: usize, probe: &P) -> Entry {
        tell_read(&self.words[word], probe);
        self.entry(word)
    }

    /// The run of a slot of the node behind `node`; a label is one run.
    pub(super) fn find<P: Probe>(&self, node: Entry, slot: u8, probe: &P) -> Place {
        if node.is_leaf() {
            return Place { first: 0, last: u8::MAX, entry: node, word: 0 };
        }
        let at = node.word();
        let (first, last, word) = if node.is_large() {
            let bits = |i: u8| self.load(at + 2 * usize::from(i), probe);
            let (i, bit) = (slot / 32, slot % 32);
            let up_to = bits(i) << (31 - bit);
            let base = self.load(at + 2 * usize::from(i) + 1, probe) as usize;
            let highest = |i: u8, bits: u32| bits.checked_ilog2().map(|bit| 32 * i + bit as u8);
            let before = || (0..i).rev().find_map(|i| highest(i, bits(i)));
            let first = match up_to {
                0 => before().unwrap_or(0),
                _ => slot - up_to.leading_zeros() as u8,
            };
            let lowest = |i: u8, bits: u32| (bits != 0).then(|| 32 * i + bits.trailing_zeros() as u8);
            let above = bits(i) & (u32::MAX << bit << 1);
            let next = lowest(i, above).or_else(|| (i + 1..8).find_map(|i| lowest(i, bits(i))));
            (first, next.map_or(u8::MAX, |next| next - 1), base + up_to.count_ones() as usize)
        } else {
            let ends = u64::from(self.load(at + 1, probe)) << 32 | u64::from(self.load(at, probe));
            let end = |i: usize| (ends >> (8 * i)) as u8;
            let i = below(ends, slot);
            let first = if i == 0 { 0 } else { end(i - 1) + 1 };
            (first, if i == 8 { u8::MAX } else { end(i) }, at + SMALL_HEAD + i)
        };
        Place { first, last, entry: self.entry_told(word, probe), word }
    }

    /// All runs of the node behind `node`; of a label, the one.
    pub(super) fn runs<P: Probe>(&self, node: Entry, runs: &mut Vec<Run>, probe: &P) {
        runs.clear();
        if node.is_leaf() {
            runs.push(Run { start: 0, entry: node });
            return;
        }
        let at = node.word();
        let entry = |word: usize| self.entry_told(word, probe);
        if node.is_large() {
            runs.push(Run { start: 0, entry: entry(at + LARGE_HEAD) });
            for i in 0..8_u8 {
                let mut bits = self.load(at + 2 * usize::from(i), probe);
                while bits != 0 {
                    let start = 32 * i + bits.trailing_zeros() as u8;
                    runs.push(Run { start, entry: entry(at + LARGE_HEAD + runs.len()) });
                    bits &= bits - 1;
                }
            }
        } else {
            let ends = [at, at + 1].map(|word| self.load(word, probe).to_le_bytes());
            runs.push(Run { start: 0, entry: entry(at + SMALL_HEAD) });
            for &end in ends.iter().flatten().take_while(|&&end| end != u8::MAX) {
                runs.push(Run { start: end + 1, entry: entry(at + SMALL_HEAD + runs.len()) });
            }
        }
    }

    /// Of the node behind a pointer that is no block's: its units, its first entry's word, its runs.
    pub(super) fn extent<P: Probe>(&self, node: Entry, probe: &P) -> (usize, usize, usize) {
        let word = node.word();
        let (head, runs) = if node.is_large() {
            let heads = (0..8).map(|i| self.load(word + 2 * i, probe).count_ones());
            (LARGE_HEAD, heads.sum::<u32>() as usize + 1)
        } else {
            let ends = [word, word + 1].map(|at| self.load(at, probe).to_le_bytes());
            (SMALL_HEAD, ends.iter().flatten().filter(|&&end| end != u8::MAX).count() + 1)
        };
        ((head + runs).div_ceil(UNIT), word + head, runs)
    }
}

/// Where the next run of `units` goes when `fresh` units are taken, so that nodes share no more cache lines than they must.
pub(super) fn place(fresh: usize, units: usize) -> usize {
    let in_line = fresh % LINE_UNITS;
    if in_line > 0 && in_line + units > LINE_UNITS { fresh + LINE_UNITS - in_line } else { fresh }
}

/// Which units of a store are free, and which will be when readers have gone.
pub(super) struct Ledger {
    domain: Domain,
    /// Units from here on have never been used.
    fresh: usize,
    /// Free runs of units, by their number.
    free: Vec<Vec<u32>>,
    /// Runs of units that no entry leads to any more, of the changes under way: first and number.
    pub(super) unlinked: Vec<(u32, usize)>,
    /// Those of earlier changes, until no reader can see them.
    waiting: VecDeque<(Epoch, Vec<(u32, usize)>)>,
}

impl Ledger {
    /// A store of so many units, with nothing but zeros in it, and its ledger.
    pub(super) fn new(units: usize, domain: &Domain) -> std::io::Result<(Store, Self)> {
        let units = units.clamp(NOWHERE / UNIT, Entry::UNITS_MAX);
        let words = Table::<AtomicU32>::new(units * UNIT)?;
        let store = Store { words, used: AtomicUsize::new(NOWHERE / UNIT), books: None };
        let ledger = Ledger {
            domain: domain.clone(),
            fresh: NOWHERE / UNIT,
            free: vec![Vec::new(); LONGEST + 1],
            unlinked: Vec::new(),
            waiting: VecDeque::new(),
        };
        Ok((store, ledger))
    }

    /// Takes note of what has been written from the beginning of the store on: so many units, but for these.
    pub(super) fn fill(&mut self, store: &Store, fresh: usize, gaps: &[(u32, usize)]) {
        self.fresh = fresh;
        let mut used = fresh;
        for &(unit, units) in gaps {
            self.free[units].push(unit);
            used -= units;
        }
        store.used.store(used, Ordering::Relaxed);
    }

    /// Room for so many units in a row: the first.
    pub(super) fn take(&mut self, store: &Store, units: usize) -> Result<u32, Outgrown> {
        let capacity = store.words.len() / UNIT;
        let mut found = self.find(capacity, units);
        if found.is_none() {
            self.join();
            found = self.find(capacity, units);
        }
        let full = || Outgrown { what: format!("all {capacity} units are in use") };
        store.used.fetch_add(found.map_or(0, |_| units), Ordering::Relaxed);
        found.ok_or_else(full)
    }

    fn find(&mut self, capacity: usize, units: usize) -> Option<u32> {
        if let Some(unit) = self.free[units].pop() {
            return Some(unit);
        }
        let unit = place(self.fresh, units);
        if unit + units <= capacity {
            self.give(self.fresh, unit - self.fresh);
            self.fresh = unit + units;
            return Some(unit as u32);
        }
        // Cut a longer run that is free.
        let (length, unit) =
            (units + 1..=LONGEST).find_map(|length| Some((length, self.free[length].pop()?)))?;
        self.give(unit as usize + units, length - units);
        Some(unit)
    }

    /// Notes units as free.
    fn give(&mut self, mut unit: usize, mut units: usize) {
        while units > 0 {
            let length = units.min(LONGEST);
            self.free[length].push(unit as u32);
            (unit, units) = (unit + length, units - length);
        }
    }

    /// Joins free runs that touch, and gives back those at the end of what has been used: for when there is no room, since runs are
    /// otherwise only ever cut.
    pub(super) fn join(&mut self) {
        let lists = self.free.iter_mut().enumerate();
        let mut runs: Vec<(usize, usize)> = lists
            .flat_map(|(length, units)| units.drain(..).map(move |unit| (unit as usize, length)))
            .collect();
        runs.sort_unstable();
        runs.dedup_by(|next, run| {
            let touch = run.0 + run.1 == next.0;
            run.1 += if touch { next.1 } else { 0 };
            touch
        });
        if let Some((unit, _)) = runs.pop_if(|&mut (unit, units)| unit + units == self.fresh) {
            self.fresh = unit;
        }
        runs.into_iter().for_each(|(unit, units)| self.give(unit, units));
    }

    /// Whether there is room for as much again as is in use.
    pub(super) fn has_room(&self, store: &Store) -> bool {
        store.used.load(Ordering::Relaxed) <= store.words.len() / UNIT - self.fresh
    }

    /// Starts the grace period of what has been unlinked.
    pub(super) fn retire(&mut self) {
        if !self.unlinked.is_empty() {
            self.waiting.push_back((self.domain.advance(), std::mem::take(&mut self.unlinked)));
        }
    }

    /// Takes back the units that no reader can see any more.
    pub(super) fn reclaim(&mut self, store: &Store) {
        let domain = &self.domain;
        while let Some((_, all)) = self.waiting.pop_front_if(|(epoch, _)| domain.passed(*epoch)) {
            for (unit, units) in all {
                store.used.fetch_sub(units, Ordering::Relaxed);
                self.free[units].push(unit);
            }
        }
    }
}
