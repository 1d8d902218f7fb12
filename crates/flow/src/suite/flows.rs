//! The flow table beside a model, with what the family's trait does not have: batches that find or insert, stamps and states, expiry on its
//! own, another hash, readers. Its own tests use this, and the fuzz target.

use super::Random;
use crate::flowtable::{Busy, Flow, FlowReader, FlowTable, Outcome, Slot, State};
use crate::hash::{KeyHash, Keyed, mix};
use crate::key::Key;
use crate::table::SizeError;
use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A keyed hash of which some bits are always set or always clear: as bad as a hash can be.
#[derive(Debug, Clone, Copy)]
pub struct Masked<const W: usize> {
    /// The good hash.
    pub keyed: Keyed<W>,
    /// Bits that are set.
    pub set: u64,
    /// Bits that are clear, if they are not set.
    pub clear: u64,
}

impl<const W: usize> Masked<W> {
    /// All bits good.
    pub fn good(secret: u64) -> Self {
        Masked { keyed: Keyed::new(u128::from(secret)), set: 0, clear: 0 }
    }
}

impl<const W: usize> KeyHash<W> for Masked<W> {
    fn hash(&self, key: &Key<W>) -> u64 {
        self.keyed.hash(key) & !self.clear | self.set
    }
}

/// One operation; keys by their place in the pool, round and round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowOp {
    /// Find or insert a batch: from this key on, this many, this far apart (0: one key again and again). The numbers also say in which form, and whether the
    /// table is to make few flows or none.
    Batch(usize, usize, usize),
    /// Find or insert one.
    One(usize),
    /// The same, at the cost of a flow that was not seen for so long if there is no room.
    Replace(usize, u32),
    /// Change the state of a key, if it is there, to one made of this number.
    SetState(usize, u64),
    /// Change one word of it.
    SetWord(usize, u64),
    /// Remove.
    Remove(usize),
    /// Look up a batch: from this key on, this many.
    Lookup(usize, usize),
    /// Time goes on.
    Tick,
    /// Expire what was not seen for so long, in so many buckets.
    Expire(usize, u32),
    /// Another hash.
    Rekey(u64),
    /// Bring flows over to it, of so many buckets.
    Migrate(usize),
    /// Compare everything.
    Check,
}

/// How packets ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Their flow was there.
    pub found: u64,
    /// It was made.
    pub new: u64,
    /// There was no room.
    pub full: u64,
    /// Flows that expired or were removed.
    pub gone: u64,
    /// Hashes that the table has had after the first.
    pub rekeyed: u64,
    /// Flows that came over to another hash.
    pub migrated: u64,
    /// Flows that gave way to others.
    pub replaced: u64,
}

/// A table, a reader of it, and what they should contain.
#[derive(Debug)]
pub struct Beside<const W: usize, S: State> {
    /// The table.
    pub table: FlowTable<W, S, Masked<W>>,
    /// What has been counted.
    pub totals: Totals,
    reader: FlowReader<W, S, Masked<W>>,
    /// One of the table's first hash.
    sleeper: FlowReader<W, S, Masked<W>>,
    hash: Masked<W>,
    keys: Vec<Key<W>>,
    model: HashMap<Key<W>, (u32, S)>,
    now: u32,
}

type Checked = Result<(), String>;

fn same<A: PartialEq + Debug>(what: impl FnOnce() -> String, found: A, expected: A) -> Checked {
    if found == expected { Ok(()) } else { Err(format!("{}: {found:?} instead of {expected:?}", what())) }
}

/// A state that tells its number in every word.
pub fn state_of<S: State>(number: u64) -> S {
    let mut state = S::new_zeroed();
    for (i, bytes) in (0..).zip(state.as_mut_bytes().chunks_exact_mut(8)) {
        bytes.copy_from_slice(&mix(number.wrapping_add(i)).to_ne_bytes());
    }
    state
}

impl<const W: usize, S: State + PartialEq + Debug> Beside<W, S> {
    /// An empty table for so many slots, and a pool of keys, which are all different. The hash may be bad.
    ///
    /// # Errors
    /// As the table's.
    pub fn new(slots: usize, keys: Vec<Key<W>>, hash: Masked<W>) -> Result<Self, SizeError> {
        let table = FlowTable::new(slots, hash)?;
        let (reader, sleeper) = (table.reader(), table.reader());
        let (totals, model) = (Totals::default(), HashMap::new());
        Ok(Beside { table, totals, reader, sleeper, hash, keys, model, now: 0 })
    }

    /// The hash that bits are set and cleared in from the next [`FlowOp::Rekey`] on.
    pub fn mask(&mut self, set: u64, clear: u64) {
        (self.hash.set, self.hash.clear) = (set, clear);
    }

    /// Does one thing and compares the answers; then the counters.
    ///
    /// # Errors
    /// What is wrong.
    pub fn apply(&mut self, op: FlowOp) -> Checked {
        match op {
            FlowOp::Batch(first, len, apart) => self.batch(first, len, apart)?,
            FlowOp::One(at) => {
                let key = self.key(at);
                let outcome = self.table.find_or_insert(self.now, self.hash_of(&key), &key);
                self.ended(&key, outcome, self.model.contains_key(&key), S::new_zeroed())?;
            }
            FlowOp::Replace(at, age) => self.replace(at, age)?,
            FlowOp::SetState(at, number) => {
                let (now, state) = (self.now, state_of(number));
                if let Some((slot, modelled)) = self.there(at)? {
                    modelled.1 = state;
                    self.table.set_state(slot, state);
                    same(|| format!("state at {now}"), self.table.state(slot), state)?;
                }
            }
            FlowOp::SetWord(at, number) => {
                let words = size_of::<S>() / 8;
                if let Some((slot, modelled)) = self.there(at)?.filter(|_| words > 0) {
                    let i = number as usize % words;
                    modelled.1.as_mut_bytes()[8 * i..][..8].copy_from_slice(&number.to_ne_bytes());
                    self.table.set_word(slot, i, number);
                    same(|| format!("word {i}"), self.table.word(slot, i), number)?;
                }
            }
            FlowOp::Remove(at) => {
                let key = self.key(at);
                let left = self.table.left_to_migrate();
                let found = self.table.remove(self.hash_of(&key), &key);
                let expected = self.model.remove(&key).map(|(_, state)| state);
                same(|| format!("removal of {key:x?}"), found, expected)?;
                self.totals.gone += u64::from(found.is_some());
                let fewer = left - self.table.left_to_migrate();
                same(|| "left to migrate".into(), fewer <= usize::from(found.is_some()), true)?;
                self.find(&key)?;
            }
            FlowOp::Lookup(first, len) => self.lookup(first, len)?,
            FlowOp::Tick => self.now += 1,
            FlowOp::Expire(buckets, age) => self.expire(buckets, age)?,
            FlowOp::Rekey(secret) => {
                let left = self.table.left_to_migrate();
                let hash = Masked { keyed: Keyed::new(u128::from(secret)), ..self.hash };
                let expected = if left == 0 { Ok(()) } else { Err(Busy { left }) };
                same(|| "rekey".into(), self.table.rekey(hash), expected)?;
                if left == 0 {
                    same(|| "left to migrate".into(), self.table.left_to_migrate(), self.model.len())?;
                    self.totals.rekeyed += 1;
                }
            }
            FlowOp::Migrate(buckets) => {
                let before = self.table.left_to_migrate();
                let left = self.table.migrate(buckets);
                same(|| "migrate".into(), left, self.table.left_to_migrate())?;
                same(|| format!("{left} after {before}"), left <= before, true)?;
                self.totals.migrated += (before - left) as u64;
            }
            FlowOp::Check => self.check()?,
        }
        self.counters()
    }

    fn key(&self, at: usize) -> Key<W> {
        self.keys[at % self.keys.len()]
    }

    fn hash_of(&self, key: &Key<W>) -> u64 {
        self.table.hasher().hash(key)
    }

    fn counters(&self) -> Checked {
        same(|| "len".into(), self.table.len(), self.model.len())?;
        same(|| "is_empty".into(), self.table.is_empty(), self.model.is_empty())?;
        let counters = self.table.counters();
        same(|| "counters.inserted".into(), counters.inserted, self.totals.new)?;
        same(|| "failed and skipped".into(), counters.failed + counters.skipped, self.totals.full)?;
        same(|| "flows".into(), self.totals.new - self.totals.gone, self.model.len() as u64)?;
        let fits = self.table.left_to_migrate() <= self.model.len() && self.model.len() <= self.table.slots();
        same(|| "left to migrate <= len <= slots".into(), fits, true)
    }

    /// The slot of a key, and what the model has of it.
    #[allow(clippy::type_complexity)]
    fn there(&mut self, at: usize) -> Result<Option<(Slot, &mut (u32, S))>, String> {
        let key = self.key(at);
        let found = self.table.find(self.hash_of(&key), &key);
        same(|| format!("find {key:x?}"), found.is_some(), self.model.contains_key(&key))?;
        Ok(found.zip(self.model.get_mut(&key)))
    }

    /// Books one outcome, given whether its flow was there, and what a new one begins with.
    fn ended(&mut self, key: &Key<W>, outcome: Outcome, there: bool, state: S) -> Checked {
        match (outcome, there) {
            (Outcome::Found(_), true) => {
                self.totals.found += 1;
                if let Some((stamp, _)) = self.model.get_mut(key) {
                    *stamp = self.now;
                }
            }
            (Outcome::New(_), false) => {
                self.totals.new += 1;
                self.model.insert(*key, (self.now, state));
            }
            (Outcome::Full, false) => self.totals.full += 1,
            _ => return Err(format!("{outcome:?} for {key:x?}, there before: {there}")),
        }
        if let Some(slot) = outcome.slot() {
            self.lies(key, slot)?;
        }
        Ok(())
    }

    /// What lies in the slot of a key.
    fn lies(&self, key: &Key<W>, slot: Slot) -> Checked {
        let lies = (self.table.key(slot), Some((self.table.stamp(slot), self.table.state(slot))));
        same(|| format!("slot {slot:?}"), lies, (*key, self.model.get(key).copied()))
    }

    fn batch(&mut self, first: usize, len: usize, apart: usize) -> Checked {
        let keys: Vec<Key<W>> = (0..len).map(|i| self.key(first + i * apart)).collect();
        let mut hashes = vec![0; len];
        self.table.hasher().hash_batch(&keys, &mut hashes);
        let mut out = vec![Outcome::Full; len];
        let moves = self.table.counters().moves;
        let (now, before) = (self.now, self.table.len());
        let most = if first % 7 == 3 { before + len / 3 } else { usize::MAX };
        let zeros = (first + len).is_multiple_of(4);
        let state = |i: usize| if zeros { S::new_zeroed() } else { state_of((first + i) as u64) };
        self.table.keep_free(most);
        match (first + len) % 4 {
            0 => self.table.find_or_insert_batch(now, &hashes, &keys, &mut out),
            1 => self.table.find_or_insert_each_with(now, &hashes, &keys, &mut out, state),
            _ => self.table.find_or_insert_batch_with(now, &hashes, &keys, &mut out, state),
        }
        self.table.keep_free(usize::MAX);
        same(|| format!("{before} flows, {most} at most"), self.table.len() <= most.max(before), true)?;
        let moves = self.table.counters().moves - moves;
        same(|| format!("{moves} moves in a batch of {len}: few enough"), moves <= len as u64, true)?;
        for (i, (key, &outcome)) in keys.iter().zip(&out).enumerate() {
            self.ended(key, outcome, self.model.contains_key(key), state(i))?;
        }
        // All slots are those of the end.
        for ((key, &hash), outcome) in keys.iter().zip(&hashes).zip(&out) {
            if let Some(slot) = outcome.slot() {
                same(|| format!("slot of {key:x?}"), self.table.find(hash, key), Some(slot))?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, at: usize, age: u32) -> Checked {
        let (key, now, model) = (self.key(at), self.now, &self.model);
        let there = model.contains_key(&key);
        let (mut asked, mut gone, mut wrong) = (HashMap::new(), None, Ok(()));
        let hash = self.table.hasher().hash(&key);
        let outcome = self.table.find_or_replace(now, hash, &key, |other, stamp, state| {
            let seen = (Some((stamp, state)), asked.insert(*other, ()).is_none(), gone);
            let right =
                same(|| format!("{other:x?} asked for"), seen, (model.get(other).copied(), true, None));
            wrong = std::mem::replace(&mut wrong, Ok(())).and(right);
            let goes = now - stamp >= age;
            gone = goes.then_some(*other).or(gone);
            goes
        });
        wrong?;
        let asked = asked.len();
        same(|| format!("{asked} asked"), asked <= 62 && (asked == 0 || !there), true)?;
        if let Some(gone) = gone {
            self.model.remove(&gone);
            self.totals.gone += 1;
            self.totals.replaced += 1;
            same(|| "who gives way makes room".into(), matches!(outcome, Outcome::New(_)), true)?;
        }
        same(|| "somebody gives way".into(), age == 0 && outcome == Outcome::Full, false)?;
        same(|| "counters.replaced".into(), self.table.counters().replaced, self.totals.replaced)?;
        self.ended(&key, outcome, there, S::new_zeroed())
    }

    fn lookup(&mut self, first: usize, len: usize) -> Checked {
        let keys: Vec<Key<W>> = (first..first + len).map(|at| self.key(at)).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| self.hash_of(key)).collect();
        let mut out: Vec<Option<Slot>> = vec![self.table.find(0, &keys[0]); len];
        self.table.lookup_batch(&hashes, &keys, &mut out);
        let mut read = vec![None; len];
        self.reader.get_batch(&keys, &mut read);
        for (key, (found, read)) in keys.iter().zip(out.iter().zip(read)) {
            let expected = self.model.get(key).copied();
            same(|| format!("in a batch of {len}: {key:x?}"), found.is_some(), expected.is_some())?;
            found.map_or(Ok(()), |slot| self.lies(key, slot))?;
            self.read_is(key, read)?;
        }
        Ok(())
    }

    fn read_is(&self, key: &Key<W>, read: Option<Flow<S>>) -> Checked {
        let expected = self.model.get(key).map(|&(stamp, state)| Flow { stamp, state });
        same(|| format!("{key:x?} read"), read, expected)
    }

    /// In all forms of lookup.
    fn find(&mut self, key: &Key<W>) -> Checked {
        let hash = self.hash_of(key);
        let found = self.table.find(hash, key);
        same(|| format!("{key:x?} there"), found.is_some(), self.model.contains_key(key))?;
        found.map_or(Ok(()), |slot| self.lies(key, slot))?;
        same(|| format!("{key:x?} probed"), self.table.find_probed(hash, key, &()), found)?;
        let mut future = pin!(self.table.find_suspended(hash, key));
        let mut context = Context::from_waker(Waker::noop());
        let ready = (0..1000).find_map(|_| match future.as_mut().poll(&mut context) {
            Poll::Ready(found) => Some(found),
            Poll::Pending => None,
        });
        same(|| format!("{key:x?} suspended"), ready, Some(found))?;
        let read = self.reader.get(key);
        self.read_is(key, read)
    }

    fn expire(&mut self, buckets: usize, age: u32) -> Checked {
        let (now, mut wrong, mut gone) = (self.now, Ok(()), 0);
        let (model, table) = (&mut self.model, &mut self.table);
        let told = table.expire(buckets, |key, stamp, state| {
            let expected = model.get(key).copied();
            if expected != Some((stamp, state)) {
                wrong = Err(format!("expiry sees {key:x?} {stamp} {state:?}: the model has {expected:?}"));
            }
            let expires = now - stamp >= age;
            if expires {
                gone += 1;
                model.remove(key);
            }
            expires
        });
        self.totals.gone += told as u64;
        wrong?;
        same(|| "expired".into(), told, gone)
    }

    fn check(&mut self) -> Checked {
        for at in 0..self.keys.len() {
            let key = self.key(at);
            self.find(&key)?;
            // A key that nobody has ever inserted, with the same hash if the hash is bad enough.
            let mut other = key;
            other.0[W - 1] ^= 1 << 63;
            if !self.model.contains_key(&other) {
                same(|| format!("{other:x?}"), self.table.find(self.hash_of(&key), &other), None)?;
            }
        }
        self.lookup(0, self.keys.len())?;
        // It follows all hashes since the first.
        let mut late = self.sleeper.clone();
        for at in 0..3 {
            let key = self.key(at);
            self.read_is(&key, late.get(&key))?;
        }
        let (mut seen, mut cursor, mut wrong) = (HashMap::new(), 0, None);
        for calls in 1.. {
            cursor = self.table.scan(cursor, 1 + calls % 3, |key, stamp, state| {
                if seen.insert(*key, (stamp, state)).is_some() {
                    wrong = Some(*key);
                }
            });
            if cursor == 0 || calls > self.table.slots() {
                break;
            }
        }
        same(|| "visited twice by a scan".into(), wrong, None)?;
        same(|| "a scan".into(), (cursor, &seen), (0, &self.model))
    }
}

/// Different keys: words from all over, or only one that counts.
pub fn keys<const W: usize>(count: usize, seed: u64) -> Vec<Key<W>> {
    let mut random = Random(seed);
    let spread = seed.is_multiple_of(2);
    (0..count as u64)
        .map(|i| {
            let mut key = [0; W];
            if spread {
                key = std::array::from_fn(|_| random.bits() << 32 >> 1);
            }
            key[W - 1] |= i;
            Key(key)
        })
        .collect()
}

/// A random life of a table: it fills, is used, hashes anew, empties.
///
/// # Errors
/// What is wrong, and after which operations.
pub fn random_life<const W: usize, S: State + PartialEq + Debug>(seed: u64) -> Result<Totals, String> {
    let mut random = Random(seed);
    let slots = random.one_of(&[0, 1, 31, 32, 62, 63, 93, 200, 400, 1000]);
    let pool = 2 + random.below(2 * slots.max(31));
    let mut hash = Masked::good(random.bits());
    (hash.set, hash.clear) = random_mask(&mut random);
    let mut beside =
        Beside::<W, S>::new(slots, keys(pool, random.bits()), hash).map_err(|e| e.to_string())?;
    let mut ops = Vec::new();
    for phase in 0..6 {
        let removing = random.one_of(&[0, 1, 3, 10]);
        for step in 0..40 {
            let at = random.below(pool);
            let len = random.one_of(&[0, 1, 2, 31, 32, 33, 64, 100, 256]);
            let kind = random.below(20 + removing);
            let op = match kind {
                0..=6 => FlowOp::Batch(at, len, random.one_of(&[0, 1, 1, 1, 7])),
                7 => FlowOp::One(at),
                8 => FlowOp::Lookup(at, len.max(1)),
                9 => FlowOp::SetState(at, random.bits()),
                10 => FlowOp::SetWord(at, random.bits()),
                11 => FlowOp::Tick,
                12 => FlowOp::Expire(1 + random.below(4), random.below(6) as u32 + 1),
                13..=14 if step > 20 => FlowOp::Migrate(random.below(8)),
                15 if phase % 2 == 1 => FlowOp::Rekey(random.bits() % 3),
                16 => FlowOp::SetState(at, random.bits()),
                17 => FlowOp::Replace(at, random.below(3) as u32),
                _ => FlowOp::Remove(at),
            };
            if matches!(op, FlowOp::Rekey(_)) && random.below(3) == 0 {
                let (set, clear) = random_mask(&mut random);
                beside.mask(set, clear);
            }
            ops.push(op);
            beside.apply(op).map_err(|what| format!("seed {seed}, {W} words, {what}, after {ops:x?}"))?;
        }
        beside
            .apply(FlowOp::Check)
            .map_err(|what| format!("seed {seed}, {W} words, {what}, after {ops:x?}"))?;
    }
    Ok(beside.totals)
}

/// Bits of hashes that are set, and that are clear.
fn random_mask(random: &mut Random) -> (u64, u64) {
    random.one_of(&[
        (0, 0),
        (0, 0),
        (0, 0),
        (0, u64::MAX),
        (u64::MAX, 0),
        // One home; one tag; tags of which one bit differs; a few homes; one other bucket.
        (0, u64::MAX << 32),
        (0, 0xffff),
        (7, 0xfff8),
        (0, 0x1fff_ffff << 32),
        (0, 0xff),
    ])
}
