//! The rules of one family, in a map of the program's.

use std::collections::BTreeMap;
use std::io;
use tidemill_bpf::{Cursor, Object, Pod};

/// `struct rule` of bpf/amp.bpf.c: end (coarse clock, nanoseconds), packets, bytes.
pub(super) type Rule = [u64; 3];

/// Entries that are written in one go.
const BATCH: usize = 4096;

/// A family's map: its name, how far it has been swept, how many rules it has.
#[derive(Debug)]
pub(super) struct Rules<K> {
    name: &'static str,
    sweep: Cursor,
    count: u64,
    key: std::marker::PhantomData<K>,
}

impl<K: Pod + Ord + Default> Rules<K> {
    pub(super) fn new(name: &'static str) -> Self {
        Rules { name, sweep: Cursor::default(), count: 0, key: std::marker::PhantomData }
    }

    /// Rules that are there.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Counts what is there, for a map that somebody else has filled.
    pub(super) fn recount(&mut self, object: &mut Object) -> io::Result<()> {
        let mut count = 0;
        self.each(object, |_, _| count += 1)?;
        self.count = count;
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

    pub(super) fn get(&self, object: &mut Object, key: &K) -> Option<Rule> {
        object.table::<K, Rule>(self.name).and_then(|table| table.get(key)).ok().flatten()
    }

    /// Gives rules their ends, and takes away those without one. What a rule has kept away stays with it; what it keeps
    /// away in the microseconds between reading and writing is missing there (it is in the program's own sums). Gives the number
    /// of those that there was no room for.
    pub(super) fn change(
        &mut self,
        object: &mut Object,
        changes: &BTreeMap<K, Option<u64>>,
        now: u64,
    ) -> io::Result<u64> {
        let gone: Vec<K> = changes.iter().filter(|(_, end)| end.is_none()).map(|(key, _)| *key).collect();
        let mut table = object.table::<K, Rule>(self.name)?;
        // Leaving first makes room.
        self.count = self.count.saturating_sub(table.remove_many(&gone) as u64);
        let (mut keys, mut rules, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for (key, end) in changes.iter().filter_map(|(key, end)| Some((*key, (*end)?))) {
            let old = table.get(&key)?;
            let [_, packets, bytes] = old.unwrap_or_default();
            keys.push(key);
            rules.push([end, packets, bytes]);
            new.push(old.is_none());
        }
        let (mut at, mut refused, mut swept) = (0, 0, false);
        while at < keys.len() {
            let until = keys.len().min(at + BATCH);
            let done = object.table::<K, Rule>(self.name)?.insert_many(&keys[at..until], &rules[at..until]);
            self.count += new[at..at + done].iter().filter(|new| **new).count() as u64;
            at += done;
            if at == until {
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

    /// Removes all that is there and not `wanted`.
    pub(super) fn retain(
        &mut self,
        object: &mut Object,
        wanted: impl Fn(&K, &Rule) -> bool,
    ) -> io::Result<()> {
        let mut gone = Vec::new();
        self.each(object, |key, rule| {
            if !wanted(&key, &rule) {
                gone.push(key);
            }
        })?;
        let removed = object.table::<K, Rule>(self.name)?.remove_many(&gone);
        self.count = self.count.saturating_sub(removed as u64);
        Ok(())
    }

    fn sweep_all(&mut self, object: &mut Object, now: u64) -> io::Result<u64> {
        let before = self.count;
        self.retain(object, |_, [end, ..]| *end > now)?;
        Ok(before - self.count)
    }

    /// Looks at some rules, and removes those that have ended.
    pub(super) fn sweep(&mut self, object: &mut Object, now: u64) -> io::Result<()> {
        let mut page = Vec::new();
        let mut table = object.table::<K, Rule>(self.name)?;
        (self.sweep, _) = table.read_some(self.sweep, &mut page)?;
        let ended: Vec<K> = page.iter().filter(|(_, [end, ..])| *end <= now).map(|(key, _)| *key).collect();
        self.count = self.count.saturating_sub(table.remove_many(&ended) as u64);
        Ok(())
    }
}
