//! The rules of one family, in a map of the program's.
//!
//! The control side writes it; workers take entries out meanwhile ([`Lifter`]). How a rule that is lifted while it is being installed stays out is told in
//! `src/offload/mod.rs`; "without effect" is an end of 0 here, and "if it is still there" is `BPF_EXIST`. All of these steps take the lock of the entry's
//! bucket in the kernel, so that they have one order, and whoever comes later sees the memory of who came before.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tidemill_bpf::{Cursor, Front, Object, Pod, Remover};

/// `struct rule` of bpf/amp.bpf.c: end (coarse clock, nanoseconds), packets, bytes.
pub(super) type Rule = [u64; 3];

/// The end of an entry that is not in force yet.
const NOT_YET: u64 = 0;
/// Entries that are written in one go.
const BATCH: usize = 4096;

/// A worker's hand on a family's map.
#[derive(Debug)]
pub(super) struct Lifter<K> {
    map: Remover<K>,
    count: Arc<AtomicU64>,
}

impl<K: Pod> Lifter<K> {
    /// Takes a rule out; false if the system refuses.
    pub(super) fn lift(&self, key: &K) -> bool {
        match self.map.remove(key) {
            Ok(was_there) => {
                self.count.fetch_sub(u64::from(was_there), Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }
}

/// A reader of a family's map that waits for nobody long, and that nobody waits for long.
#[derive(Debug)]
pub(super) struct Walker<K> {
    name: &'static str,
    key: std::marker::PhantomData<fn(K)>,
}

impl<K: Pod + Default> Walker<K> {
    pub(super) fn get(&self, front: &Weak<Front>, key: &K) -> io::Result<Option<Rule>> {
        let Some(front) = front.upgrade() else { return Ok(None) };
        front.with(|object| object.table::<K, Rule>(self.name)?.get(key))
    }

    /// Reads all that is there, a page at a time.
    pub(super) fn walk(&self, front: &Weak<Front>, mut each: impl FnMut(K, Rule)) -> io::Result<()> {
        let (mut cursor, mut page) = (Cursor::default(), Vec::new());
        while let Some(front) = front.upgrade() {
            let read = front.with(|object| object.table::<K, Rule>(self.name)?.read_some(cursor, &mut page));
            drop(front);
            let (next, done) = read?;
            page.drain(..).for_each(|(key, rule)| each(key, rule));
            if done {
                break;
            }
            cursor = next;
        }
        Ok(())
    }
}

/// A family's map: its name, how far it has been swept, how many entries it has. Every entry that comes or goes is counted by whoever has
/// put it in or taken it out.
#[derive(Debug)]
pub(super) struct Rules<K> {
    name: &'static str,
    sweep: Cursor,
    count: Arc<AtomicU64>,
    key: std::marker::PhantomData<K>,
}

impl<K: Pod + Ord + Default> Rules<K> {
    pub(super) fn new(name: &'static str) -> Self {
        Rules { name, sweep: Cursor::default(), count: Arc::default(), key: std::marker::PhantomData }
    }

    /// Rules that are there.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn gone(&self, count: usize) {
        self.count.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// A hand for a worker.
    pub(super) fn lifter(&self, object: &mut Object) -> io::Result<Lifter<K>> {
        let map = object.table::<K, Rule>(self.name)?.remover()?;
        Ok(Lifter { map, count: self.count.clone() })
    }

    /// Counts what is there, for a map that somebody else has filled, before anybody works on it.
    pub(super) fn recount(&self, object: &mut Object) -> io::Result<()> {
        let mut count = 0;
        self.each(object, |_, _| count += 1)?;
        self.count.store(count, Ordering::Relaxed);
        Ok(())
    }

    /// Reads all that is there.
    pub(super) fn each(&self, object: &mut Object, mut each: impl FnMut(K, Rule)) -> io::Result<()> {
        let table = object.table::<K, Rule>(self.name)?;
        let (mut cursor, mut page) = (Cursor::default(), Vec::new());
        loop {
            let (next, done) = table.read_some(cursor, &mut page)?;
            page.drain(..).for_each(|(key, rule)| each(key, rule));
            if done {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// For whoever reads beside us.
    pub(super) fn walker(&self) -> Walker<K> {
        Walker { name: self.name, key: std::marker::PhantomData }
    }

    /// Gives rules their ends, and takes away those without one, and those that do not stand any more. What a rule has kept away stays with it; what it
    /// keeps away in the microseconds between reading and writing is missing there (it is in the program's own sums). Gives the number
    /// of those that there was no room for.
    pub(super) fn change(
        &mut self,
        object: &mut Object,
        changes: &BTreeMap<K, Option<u64>>,
        now: u64,
        stands: &dyn Fn(&K) -> bool,
    ) -> io::Result<u64> {
        let gone: Vec<K> = changes.iter().filter(|(_, end)| end.is_none()).map(|(key, _)| *key).collect();
        let mut table = object.table::<K, Rule>(self.name)?;
        // Leaving first makes room.
        self.gone(table.remove_many(&gone));
        let (mut rules, mut new) = (Vec::new(), Vec::new());
        for (key, end) in changes.iter().filter_map(|(key, end)| Some((*key, (*end)?))) {
            let old = table.get(&key)?;
            let [_, packets, bytes] = old.unwrap_or_default();
            rules.push((key, [end, packets, bytes]));
            // Nobody else puts one in.
            if old.is_none() {
                new.push(key);
            }
        }
        let refused = self.place(object, &new, now)?;
        let mut table = object.table::<K, Rule>(self.name)?;
        for (key, rule) in rules {
            if stands(&key) {
                // One that was lifted meanwhile stays out, as does one that had no room.
                table.replace(&key, &rule)?;
            } else {
                self.gone(table.remove(&key)?.into());
            }
        }
        Ok(refused)
    }

    /// Puts rules in that are not there yet, without effect. Gives the number of those that there was no room for.
    fn place(&mut self, object: &mut Object, keys: &[K], now: u64) -> io::Result<u64> {
        let (mut at, mut refused, mut swept) = (0, 0, false);
        while at < keys.len() {
            let some = &keys[at..keys.len().min(at + BATCH)];
            // Counted before a worker can take one out again.
            self.count.fetch_add(some.len() as u64, Ordering::Relaxed);
            let done = object
                .table::<K, Rule>(self.name)
                .map_or(0, |mut table| table.insert_many(some, &vec![[NOT_YET, 0, 0]; some.len()]));
            self.gone(some.len() - done);
            at += done;
            if done == some.len() {
                continue;
            }
            // Rules that have ended may still be in the way.
            if !std::mem::replace(&mut swept, true) && self.sweep_all(object, now)? > 0 {
                continue;
            }
            refused += 1;
            at += 1;
        }
        Ok(refused)
    }

    /// Removes all that is there and not `wanted`; gives their number.
    pub(super) fn retain(
        &mut self,
        object: &mut Object,
        wanted: impl Fn(&K, &Rule) -> bool,
    ) -> io::Result<usize> {
        let mut gone = Vec::new();
        self.each(object, |key, rule| {
            if !wanted(&key, &rule) {
                gone.push(key);
            }
        })?;
        let removed = object.table::<K, Rule>(self.name)?.remove_many(&gone);
        self.gone(removed);
        Ok(removed)
    }

    /// Removes all that have ended, but not what is being put in.
    fn sweep_all(&mut self, object: &mut Object, now: u64) -> io::Result<usize> {
        self.retain(object, |_, [end, ..]| *end > now || *end == NOT_YET)
    }

    /// Looks at some rules, and removes those that have ended.
    pub(super) fn sweep(&mut self, object: &mut Object, now: u64) -> io::Result<()> {
        let mut page = Vec::new();
        let mut table = object.table::<K, Rule>(self.name)?;
        (self.sweep, _) = table.read_some(self.sweep, &mut page)?;
        let ended: Vec<K> = page.iter().filter(|(_, [end, ..])| *end <= now).map(|(key, _)| *key).collect();
        self.gone(table.remove_many(&ended));
        Ok(())
    }
}
