//! One case, operation by operation, on the table and on the model.

use super::{Case, Fault, Op, Stats};
use crate::hash::mix;
use crate::key::Key;
use crate::table::{Full, HashTable};
use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidemill_lookup::probe::Recorder;

/// Refused insertions after which everything is compared; more would take long.
const CHECKED_REFUSALS: usize = 6;

/// Lengths of batches that are compared with single lookups.
const BATCHES: [usize; 6] = [0, 1, 31, 32, 33, 256];

/// Runs a case to its end or first fault. A panic is a fault too.
pub(super) fn run<const W: usize, T: HashTable<W>>(case: &Case<W>) -> Result<Stats, Fault> {
    let table = match T::new(case.capacity) {
        Ok(table) => table,
        Err(error) => return Err(Fault { after: 0, what: format!("it could not be made: {error}") }),
    };
    let slots = table.capacity();
    let stats = Stats { tables: 1, ..Stats::default() };
    let mut run = Run { case, table, slots, model: HashMap::new(), scan_at: 0, expire_at: 0, stats };
    for after in 0..=case.ops.len() {
        let op = case.ops.get(after).copied().unwrap_or(Op::Check);
        catch_unwind(AssertUnwindSafe(|| run.apply(op)))
            .unwrap_or_else(|panic| {
                let message = panic.downcast_ref::<String>().cloned();
                let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
                Err(format!("{op:?} panicked: {}", message.unwrap_or_default()))
            })
            .map_err(|what| Fault { after, what })?;
    }
    run.stats.operations = case.ops.len();
    Ok(run.stats)
}

struct Run<'a, const W: usize, T> {
    case: &'a Case<W>,
    table: T,
    /// The table's capacity, which stays.
    slots: usize,
    model: HashMap<Key<W>, u64>,
    scan_at: usize,
    expire_at: usize,
    stats: Stats,
}

type Checked = Result<(), String>;

fn same<A: PartialEq + Debug>(what: impl FnOnce() -> String, found: A, expected: A) -> Checked {
    if found == expected { Ok(()) } else { Err(format!("{}: {found:?} instead of {expected:?}", what())) }
}

/// Whether a key expires in a round with this salt and share.
fn expires<const W: usize>(key: &Key<W>, value: u64, salt: u64, share: u16) -> bool {
    let lot = key.0.iter().fold(mix(value ^ salt), |lot, word| mix(lot ^ word));
    (lot & 0xff) < u64::from(share)
}

impl<const W: usize, T: HashTable<W>> Run<'_, W, T> {
    fn apply(&mut self, op: Op) -> Checked {
        match op {
            Op::Insert(at, value) => self.insert(at, value)?,
            Op::Remove(at) => {
                let (hash, key) = self.case.key(at);
                let found = self.table.remove(hash, &key);
                same(|| format!("{op:?}"), found, self.model.remove(&key))?;
                self.get(at)?;
            }
            Op::Get(at) => self.get(at)?,
            Op::GetBatch(first, len) => self.get_batch(first, len)?,
            Op::Scan(budget) => {
                let (at, visits) = self.scan(self.scan_at, budget)?;
                self.scan_at = at;
                self.distinct(visits)?;
            }
            Op::Expire(budget, salt, share) => {
                self.expire_at = self.expire(self.expire_at, budget, salt, share)?;
            }
            Op::ExpireRound(budget, salt, share) => self.expire_round(budget, salt, share)?,
            Op::Check => self.check()?,
        }
        self.counters()
    }

    fn counters(&mut self) -> Checked {
        same(|| "len".into(), self.table.len(), self.model.len())?;
        same(|| "is_empty".into(), self.table.is_empty(), self.model.is_empty())?;
        same(|| "capacity".into(), self.table.capacity(), self.slots)?;
        if self.slots < self.case.capacity || self.slots < self.model.len() {
            let (keys, asked) = (self.model.len(), self.case.capacity);
            return Err(format!("it has {keys} keys and {} slots, {asked} were asked for", self.slots));
        }
        Ok(())
    }

    fn insert(&mut self, at: usize, value: u64) -> Checked {
        let (hash, key) = self.case.key(at);
        let recorder = Recorder::new();
        match self.table.insert_probed(hash, &key, value, &recorder) {
            Ok(old) => {
                same(|| format!("Insert({at})"), old, self.model.insert(key, value))?;
                if recorder.counts().writes == 0 {
                    return Err(format!("Insert({at}) told the probe of no store"));
                }
            }
            Err(Full) => {
                if self.model.contains_key(&key) {
                    return Err(format!("Insert({at}) found no room for a key that is there"));
                }
                if self.model.is_empty() && self.slots > 0 {
                    return Err(format!("Insert({at}) found no room in an empty table"));
                }
                self.stats.refused += 1;
                if self.stats.refused <= CHECKED_REFUSALS {
                    self.check()?;
                }
            }
        }
        self.get(at)
    }

    /// Looks a key up in all forms.
    fn get(&mut self, at: usize) -> Checked {
        let (hash, key) = self.case.key(at);
        let expected = self.model.get(&key).copied();
        same(|| format!("get of key {at}"), self.table.get(hash, &key), expected)?;
        let recorder = Recorder::new();
        let found = self.table.get_probed(hash, &key, &recorder);
        same(|| format!("probed get of key {at}"), found, expected)?;
        if recorder.counts().reads == 0 && !self.model.is_empty() {
            return Err(format!("get of key {at} told the probe of no load"));
        }
        self.stats.answers += 3;
        let (found, waits) = self.find(hash, &key).ok_or_else(|| format!("find of key {at} does not end"))?;
        same(|| format!("find of key {at}"), found, expected)?;
        if expected.is_some() && waits == 0 {
            return Err(format!("find of key {at} awaits nothing"));
        }
        Ok(())
    }

    /// `find`, polled to its end, and how often it was not ready; `None` if it has no end.
    fn find(&self, hash: u64, key: &Key<W>) -> Option<(Option<u64>, usize)> {
        let mut future = pin!(self.table.find(hash, key));
        let mut context = Context::from_waker(Waker::noop());
        (0..16 * self.slots + 100).find_map(|waits| match future.as_mut().poll(&mut context) {
            Poll::Ready(found) => Some((found, waits)),
            Poll::Pending => None,
        })
    }

    fn get_batch(&mut self, first: usize, len: usize) -> Checked {
        let (hashes, keys): (Vec<u64>, Vec<Key<W>>) =
            (first..first + len).map(|at| self.case.key(at)).unzip();
        let mut out: Vec<Option<u64>> = (0..len).map(|i| (i % 2 == 0).then_some(0xdead)).collect();
        self.table.get_batch(&hashes, &keys, &mut out);
        let expected: Vec<Option<u64>> = keys.iter().map(|key| self.model.get(key).copied()).collect();
        for (i, (&found, &expected)) in out.iter().zip(&expected).enumerate() {
            same(|| format!("key {} in a batch of {len}", first + i), found, expected)?;
        }
        self.stats.answers += len;
        Ok(())
    }

    /// One call of `scan`: every key that it visits is there, with this value.
    fn scan(&self, at: usize, budget: usize) -> Result<(usize, Vec<Key<W>>), String> {
        let (mut visits, mut wrong) = (Vec::new(), Ok(()));
        let next = self.table.scan(at, budget, |key, value| {
            let expected = self.model.get(key).copied();
            if expected != Some(value) && wrong.is_ok() {
                wrong = Err(format!("scan visits {key:x?} with {value}: the model has {expected:?}"));
            }
            visits.push(*key);
        });
        wrong.map(|()| (next, visits))
    }

    /// Sees that no key was visited twice; returns how many there were.
    fn distinct(&self, mut visits: Vec<Key<W>>) -> Result<usize, String> {
        visits.sort_unstable();
        match visits.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("scan visits {:x?} twice", pair[0])),
            None => Ok(visits.len()),
        }
    }

    /// Calls after which a round must have come to its end.
    fn most_calls(&self, budget: usize) -> usize {
        (4 * self.slots + 64) / budget + 2
    }

    fn scan_round(&mut self, budget: usize) -> Checked {
        let (mut at, mut all) = (0, Vec::new());
        for _ in 0..self.most_calls(budget) {
            let (next, visits) = self.scan(at, budget)?;
            all.extend(visits);
            at = next;
            if at == 0 {
                let visited = self.distinct(all)?;
                return same(|| "keys visited by a round of scan".into(), visited, self.model.len());
            }
        }
        Err("a round of scan does not end".into())
    }

    /// One call of `expire`: what it takes out leaves the model too.
    fn expire(&mut self, at: usize, budget: usize, salt: u64, share: u16) -> Result<usize, String> {
        let (model, stats, mut wrong) = (&mut self.model, &mut self.stats, Ok(()));
        let next = self.table.expire(at, budget, |key, value| {
            let expected = model.get(key).copied();
            if expected != Some(value) && wrong.is_ok() {
                wrong = Err(format!("expire asks for {key:x?} with {value}: the model has {expected:?}"));
            }
            let expired = expires(key, value, salt, share);
            if expired {
                model.remove(key); // so that it is wrong to ask again
                stats.expired += 1;
            }
            expired
        });
        wrong.map(|()| next)
    }

    fn expire_round(&mut self, budget: usize, salt: u64, share: u16) -> Checked {
        let kept = self.model.iter().filter(|&(key, &value)| !expires(key, value, salt, share)).count();
        let mut at = 0;
        for _ in 0..self.most_calls(budget) {
            at = self.expire(at, budget, salt, share)?;
            self.counters()?;
            if at == 0 {
                same(|| "keys left by a round of expire".into(), self.model.len(), kept)?;
                return self.check();
            }
        }
        Err("a round of expire does not end".into())
    }

    /// Compares everything.
    fn check(&mut self) -> Checked {
        self.counters()?;
        for at in 0..self.case.keys.len() {
            self.get(at)?;
        }
        for len in BATCHES {
            self.get_batch(len, len)?;
        }
        self.scan_round(1)?;
        self.scan_round(7)?;
        let (bytes, keys) = (self.table.bytes(), self.model.len());
        if bytes < keys * 8 * (W + 1) || bytes > (self.slots + 64) * 32 * (W + 3) + (1 << 16) {
            return Err(format!("it says that it takes {bytes} bytes for {keys} keys, {} slots", self.slots));
        }
        Ok(())
    }
}
