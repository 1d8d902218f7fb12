//! The suite itself must find faults, and make them small.

use super::*;
use crate::key::Key;
use crate::table::{Full, SizeError};
use std::cell::Cell;
use tidemill_lookup::drive::prefetch;
use tidemill_lookup::probe::Probe;

/// What the table under test does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Nothing,
    ForgetsLastSlot,
    DropsOnReplace,
    ComparesHashesOnly,
    IgnoresLastWord,
    BatchStopsAt32,
    FindIgnoresFirst,
    ScanSkipsLast,
    ScanRepeats,
    ExpireSkipsAfterRemoval,
    ChangesWhenFull,
    MiscountsRemovals,
    ZeroIsAbsent,
    NeverFull,
    Panics,
}

const WRONGS: [Wrong; 14] = [
    Wrong::ForgetsLastSlot,
    Wrong::DropsOnReplace,
    Wrong::ComparesHashesOnly,
    Wrong::IgnoresLastWord,
    Wrong::BatchStopsAt32,
    Wrong::FindIgnoresFirst,
    Wrong::ScanSkipsLast,
    Wrong::ScanRepeats,
    Wrong::ExpireSkipsAfterRemoval,
    Wrong::ChangesWhenFull,
    Wrong::MiscountsRemovals,
    Wrong::ZeroIsAbsent,
    Wrong::NeverFull,
    Wrong::Panics,
];

thread_local! {
    static WRONG: Cell<Wrong> = const { Cell::new(Wrong::Nothing) };
}

/// A list.
struct List {
    wrong: Wrong,
    capacity: usize,
    len: usize,
    entries: Vec<(u64, Key<2>, u64)>,
}

impl List {
    fn at(&self, hash: u64, key: &Key<2>) -> Option<usize> {
        self.entries.iter().position(|&(h, k, v)| match self.wrong {
            Wrong::ComparesHashesOnly => h == hash,
            Wrong::IgnoresLastWord => k.0[0] == key.0[0],
            Wrong::ZeroIsAbsent => k == *key && v != 0,
            _ => k == *key,
        })
    }
}

impl HashTable<2> for List {
    const NAME: &'static str = "list";
    fn new(capacity: usize) -> Result<Self, SizeError> {
        Ok(List { wrong: WRONG.get(), capacity, len: 0, entries: Vec::new() })
    }
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn len(&self) -> usize {
        self.len
    }
    fn bytes(&self) -> usize {
        self.capacity * 32
    }
    fn get_probed<P: Probe>(&self, hash: u64, key: &Key<2>, probe: &P) -> Option<u64> {
        probe.read(0, 8, false);
        let at = self.at(hash, key)?;
        let forgotten = self.wrong == Wrong::ForgetsLastSlot && at + 1 == self.capacity;
        (!forgotten).then(|| self.entries[at].2)
    }
    async fn find(&self, hash: u64, key: &Key<2>) -> Option<u64> {
        prefetch(self.entries.as_ptr()).await;
        let found = self.get(hash, key);
        found.filter(|_| self.wrong != Wrong::FindIgnoresFirst || self.entries[0].1 != *key)
    }
    fn get_batch(&self, hashes: &[u64], keys: &[Key<2>], out: &mut [Option<u64>]) {
        let most = if self.wrong == Wrong::BatchStopsAt32 { 32 } else { keys.len() };
        for ((&hash, key), out) in hashes.iter().zip(keys).zip(out).take(most) {
            *out = self.get(hash, key);
        }
    }
    fn insert_probed<P: Probe>(
        &mut self,
        hash: u64,
        key: &Key<2>,
        value: u64,
        probe: &P,
    ) -> Result<Option<u64>, Full> {
        assert!(self.wrong != Wrong::Panics || value != u64::MAX, "on purpose");
        probe.write(0, 8);
        if let Some(at) = self.at(hash, key) {
            let old = std::mem::replace(&mut self.entries[at].2, value);
            return Ok((self.wrong != Wrong::DropsOnReplace).then_some(old));
        }
        if self.len == self.capacity && self.wrong != Wrong::NeverFull {
            if self.wrong == Wrong::ChangesWhenFull && self.len > 1 {
                self.entries[1].2 ^= 1;
            }
            return Err(Full);
        }
        self.entries.push((hash, *key, value));
        self.len += 1;
        Ok(None)
    }
    fn remove_probed<P: Probe>(&mut self, hash: u64, key: &Key<2>, _: &P) -> Option<u64> {
        let at = self.at(hash, key)?;
        if self.wrong != Wrong::MiscountsRemovals || self.len != 3 {
            self.len -= 1;
        }
        Some(self.entries.swap_remove(at).2)
    }
    fn scan(&self, cursor: usize, budget: usize, mut visit: impl FnMut(&Key<2>, u64)) -> usize {
        let skip = usize::from(self.wrong == Wrong::ScanSkipsLast && self.len == self.capacity);
        let end = (cursor + budget).min(self.entries.len() - skip.min(self.entries.len()));
        let from = cursor - usize::from(self.wrong == Wrong::ScanRepeats && cursor > 4);
        for (_, key, value) in self.entries.get(from..end).unwrap_or_default() {
            visit(key, *value);
        }
        if end + skip >= self.entries.len() { 0 } else { end }
    }
    fn expire(
        &mut self,
        cursor: usize,
        budget: usize,
        mut expired: impl FnMut(&Key<2>, u64) -> bool,
    ) -> usize {
        let mut at = cursor.saturating_sub(1); // 0 is the end
        for _ in 0..budget {
            let Some(&(_, key, value)) = self.entries.get(at) else { return 0 };
            if expired(&key, value) {
                self.entries.swap_remove(at);
                self.len -= 1;
                at += usize::from(self.wrong == Wrong::ExpireSkipsAfterRemoval);
            } else {
                at += 1;
            }
        }
        if at >= self.entries.len() { 0 } else { at + 1 }
    }
}

#[test]
fn a_right_table_passes() {
    let stats = run_many::<2, List>(3, if cfg!(miri) { 2 } else { 40 }, |_| {});
    let stats = stats.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(stats.answers > stats.operations && stats.refused > 0 && stats.expired > 0, "{stats:?}");
    for (name, case) in edge_cases() {
        run_case::<2, List>(&case).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[test]
fn every_fault_is_found_and_made_small() {
    for wrong in WRONGS {
        WRONG.set(wrong);
        let failure = run_many::<2, List>(3, 60, |_| {}).err();
        let failure = failure.unwrap_or_else(|| panic!("{wrong:?} is not found"));
        // Some faults show only in a full table: that takes as many insertions.
        let most = failure.case.capacity + 3;
        assert!(failure.case.ops.len() <= most, "{wrong:?}: {failure}");
        assert!(failure.to_string().contains("list with 2 words: after"), "{failure}");
    }
}
