//! The timed work: filling, looking up, finding or inserting, taking out.
//!
//! Keys are made and answers are checked while the clock stands, a block at a time; what is timed is hashing (unless
//! the hash is given), the table's call, and storing its answers.

use super::keys::{ABSENT, Block, Keys, drawn, scattered};
use super::tables::Subject;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use tidemill_flow::table::Full;

/// Operations between two looks at the clock.
const BLOCK: usize = 4096;
/// The most keys per call.
pub(super) const MOST: usize = 256;

/// What a benchmark of one key size has in common.
#[derive(Clone)]
pub(super) struct Plan<const W: usize> {
    /// Slots that are asked for.
    pub(super) entries: usize,
    pub(super) keys: Keys<W>,
    /// Keys per call.
    pub(super) batch: usize,
    /// Lookups per pass.
    pub(super) lookups: usize,
    pub(super) seed: u64,
}

/// One lookup after the other, or in batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Plain,
    Batched,
}

/// Which keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Hits,
    Misses,
}

/// A table, filled.
pub(super) struct Filled<T> {
    pub(super) table: T,
    /// Keys in it: those with the numbers below.
    pub(super) flows: u64,
    pub(super) time: Duration,
    /// It took no more.
    pub(super) full: bool,
}

/// FNV-1a over 64-bit words; no value is 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Checksum(u64);

impl Checksum {
    pub(super) fn new() -> Self {
        Checksum(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, value: Option<u64>) {
        self.0 = (self.0 ^ value.unwrap_or(0)).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    }

    pub(super) fn text(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl<const W: usize> Plan<W> {
    /// An empty table.
    pub(super) fn empty<T: Subject<W>>(&self) -> Result<T> {
        T::new(self.entries).map_err(|error| super::no_table(T::NAME, &error))
    }

    /// Keys in a table of `slots` at this load.
    pub(super) fn flows(slots: usize, load: f64) -> u64 {
        (slots as f64 * load).round() as u64
    }

    /// Inserts on to this load, or to the first key for which there is no room.
    pub(super) fn fill<T: Subject<W>>(&self, filled: &mut Filled<T>, load: f64) -> Result<()> {
        let goal = Self::flows(filled.table.capacity(), load);
        let mut block = Block::new(&self.keys);
        while filled.flows < goal && !filled.full {
            let end = goal.min(filled.flows + BLOCK as u64);
            block.fill(&self.keys, filled.flows..end);
            let start = Instant::now();
            let done = self.insert_block(&mut filled.table, &block);
            filled.time += start.elapsed();
            filled.full = done < block.len();
            filled.flows += done as u64;
        }
        let len = filled.table.len();
        if len as u64 != filled.flows {
            bail!("WRONG: {}: {len} keys in the table after {} insertions", T::NAME, filled.flows);
        }
        Ok(())
    }

    /// How many of the block's keys could be inserted before one could not.
    fn insert_block<T: Subject<W>>(&self, table: &mut T, block: &Block<W>) -> usize {
        let mut room = [0; MOST];
        for from in (0..block.len()).step_by(self.batch) {
            let some = self.batch.min(block.len() - from);
            let hashes = block.hashes(from, &mut room[..some]);
            for (i, &hash) in (from..).zip(hashes) {
                if let Err(Full) = table.insert(hash, &block.keys[i], block.value(i)) {
                    return i;
                }
            }
        }
        block.len()
    }

    /// A table, filled to this load.
    pub(super) fn filled<T: Subject<W>>(&self, load: f64) -> Result<Filled<T>> {
        let mut filled = Filled { table: self.empty()?, flows: 0, time: Duration::ZERO, full: false };
        self.fill(&mut filled, load)?;
        Ok(filled)
    }

    /// Random lookups; their time and the checksum of what came out.
    pub(super) fn lookups<T: Subject<W>>(
        &self,
        filled: &Filled<T>,
        which: Which,
        how: How,
    ) -> Result<(Duration, Checksum)> {
        let table = &filled.table;
        let mut block = Block::new(&self.keys);
        let shift = if which == Which::Hits { 0 } else { ABSENT };
        block.fill(&self.keys, drawn(filled.flows, self.lookups, self.seed ^ shift).map(|i| i + shift));
        let mut answers = vec![None; BLOCK];
        let (mut time, mut checksum, mut expected) = (Duration::ZERO, Checksum::new(), Checksum::new());
        for first in (0..block.len()).step_by(BLOCK) {
            let end = block.len().min(first + BLOCK);
            let answers = &mut answers[..end - first];
            let start = Instant::now();
            match how {
                How::Plain => {
                    for (i, answer) in (first..end).zip(answers.iter_mut()) {
                        *answer = table.get(block.hash(i), &block.keys[i]);
                    }
                }
                How::Batched => {
                    let mut room = [0; MOST];
                    for (at, out) in (first..end).step_by(self.batch).zip(answers.chunks_mut(self.batch)) {
                        let hashes = block.hashes(at, &mut room[..out.len()]);
                        table.get_batch(hashes, &block.keys[at..at + out.len()], out);
                    }
                }
            }
            time += start.elapsed();
            for (i, &answer) in (first..end).zip(answers.iter()) {
                checksum.add(answer);
                expected.add((which == Which::Hits).then(|| block.value(i)));
            }
        }
        if checksum != expected {
            let (got, right) = (checksum.text(), expected.text());
            bail!("WRONG: {}: {which:?} ({how:?}): checksum {got}, of what was inserted {right}", T::NAME);
        }
        Ok((time, checksum))
    }

    /// Takes all keys out, in another order than they came in.
    pub(super) fn remove_all<T: Subject<W>>(&self, filled: &mut Filled<T>) -> Result<Duration> {
        let mut numbers = scattered(filled.flows);
        let mut block = Block::new(&self.keys);
        let (mut answers, mut room) = (vec![None; BLOCK], [0; MOST]);
        let mut time = Duration::ZERO;
        for _ in 0..filled.flows.div_ceil(BLOCK as u64) {
            block.fill(&self.keys, numbers.by_ref().take(BLOCK));
            let start = Instant::now();
            for from in (0..block.len()).step_by(self.batch) {
                let some = self.batch.min(block.len() - from);
                let hashes = block.hashes(from, &mut room[..some]);
                for (i, &hash) in (from..).zip(hashes) {
                    answers[i] = filled.table.remove(hash, &block.keys[i]);
                }
            }
            time += start.elapsed();
            if let Some(i) = (0..block.len()).find(|&i| answers[i] != Some(block.value(i))) {
                bail!("WRONG: {}: removing a key gave {:?}, not {}", T::NAME, answers[i], block.value(i));
            }
        }
        if !filled.table.is_empty() {
            bail!("WRONG: {}: {} keys left when all are removed", T::NAME, filled.table.len());
        }
        Ok(time)
    }

    /// Packets of flows, in batches through find-or-insert: as many of the flows with these numbers as there were before and
    /// as were new (those for which there was no room are neither), and the time.
    pub(super) fn find_or_insert<T: Subject<W>>(
        &self,
        table: &mut T,
        mut numbers: impl Iterator<Item = u64>,
    ) -> Result<Met> {
        let mut block = Block::new(&self.keys);
        let (mut values, mut answers) = (Vec::with_capacity(BLOCK), vec![None; BLOCK]);
        let mut room = [0; MOST];
        let (mut met, before) = (Met::default(), table.len());
        loop {
            block.fill(&self.keys, numbers.by_ref().take(BLOCK));
            if block.len() == 0 {
                break;
            }
            values.clear();
            values.extend((0..block.len()).map(|i| block.value(i)));
            let start = Instant::now();
            for from in (0..block.len()).step_by(self.batch) {
                let end = block.len().min(from + self.batch);
                let hashes = block.hashes(from, &mut room[..end - from]);
                let out = &mut answers[from..end];
                met.inserted += table.find_or_insert(hashes, &block.keys[from..end], &values[from..end], out);
            }
            met.time += start.elapsed();
            met.packets += block.len() as u64;
            for (answer, value) in answers.iter().zip(&values) {
                match answer {
                    Some(found) if found == value => met.found += 1,
                    Some(found) => bail!("WRONG: {}: find-or-insert gave {found}, not {value}", T::NAME),
                    None => {}
                }
            }
        }
        if table.len() as u64 != before as u64 + met.inserted {
            let (len, inserted) = (table.len(), met.inserted);
            bail!("WRONG: {}: {len} keys where there were {before}, and {inserted} came", T::NAME);
        }
        Ok(met)
    }
}

/// What became of packets.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Met {
    pub(super) packets: u64,
    /// Of flows that were there.
    pub(super) found: u64,
    /// Of new ones.
    pub(super) inserted: u64,
    pub(super) time: Duration,
}

/// Millions per second.
pub(super) fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.max(Duration::from_nanos(1)).as_secs_f64() / 1e6
}
