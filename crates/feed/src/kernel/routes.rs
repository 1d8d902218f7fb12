//! The mirror's routes: per table and prefix what the kernel has, and what was last reported of it.

use super::KernelEvent;
use super::decode::Route;
use super::paths::{NOWHERE, Paths};
use super::slot::{self, Entries, Entry, How};
use crate::table::AnyPrefix;
use std::collections::{BTreeMap, HashMap};
use tidemill_lpm::{Address, Prefix};

/// One prefix of one table.
#[derive(Debug)]
struct Slot {
    entries: Entries,
    /// The target that was last reported, or [`NOWHERE`].
    reported: u32,
}

type Table<A> = HashMap<Prefix<A>, Slot>;

struct Family<A> {
    /// By the kernel's number.
    tables: BTreeMap<u32, Table<A>>,
    scratch: Vec<Entry>,
}

/// All routes of the tables of interest.
pub(super) struct Routes {
    v4: Family<u32>,
    v6: Family<u128>,
}

/// What came of a route message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edited {
    /// It fitted what was here; otherwise everything should be read again.
    pub(super) fits: bool,
    /// The prefix has a route more.
    pub(super) added: bool,
}

/// What a route message does to a prefix's entries.
type Edit<'a> = &'a mut dyn FnMut(&mut Vec<Entry>, &mut Paths);

impl Routes {
    pub(super) fn new(tables: &[u32]) -> Self {
        Routes { v4: Family::new(tables), v6: Family::new(tables) }
    }

    /// Whether anything of this table is kept.
    pub(super) fn wants(&self, table: u32) -> bool {
        self.v4.tables.contains_key(&table)
    }

    /// Takes a route message of a table that is wanted.
    pub(super) fn apply(
        &mut self,
        route: Route,
        how: How,
        generation: u32,
        paths: &mut Paths,
        out: &mut Vec<KernelEvent>,
    ) -> Edited {
        let Route { removed, table, prefix, metric, path } = route;
        if removed {
            let mut fits = true;
            match prefix {
                AnyPrefix::V4(prefix) => {
                    let number = paths.number_of(&path);
                    let mut edit = |entries: &mut Vec<Entry>, _: &mut Paths| {
                        fits = slot::remove_v4(entries, metric, number);
                    };
                    self.v4.edit(table, prefix, paths, out, &mut edit);
                }
                AnyPrefix::V6(prefix) => {
                    let mut edit = |entries: &mut Vec<Entry>, paths: &mut Paths| {
                        slot::remove_v6(entries, metric, &path, paths);
                    };
                    self.v6.edit(table, prefix, paths, out, &mut edit);
                }
            }
            return Edited { fits, added: false };
        }
        let new = Entry { metric, path: paths.number(path), seen: generation };
        let added = match prefix {
            AnyPrefix::V4(prefix) => {
                let mut edit = |entries: &mut Vec<Entry>, _: &mut Paths| slot::add_v4(entries, new, how);
                self.v4.edit(table, prefix, paths, out, &mut edit)
            }
            AnyPrefix::V6(prefix) => {
                let mut edit =
                    |entries: &mut Vec<Entry>, paths: &mut Paths| slot::add_v6(entries, new, how, paths);
                self.v6.edit(table, prefix, paths, out, &mut edit)
            }
        };
        Edited { fits: true, added }
    }

    /// Removes the routes that no dump from the given ones on has seen.
    pub(super) fn sweep(&mut self, since_v4: u32, since_v6: u32, paths: &Paths, out: &mut Vec<KernelEvent>) {
        self.v4.retain(paths, out, |entry| entry.seen >= since_v4);
        self.v6.retain(paths, out, |entry| entry.seen >= since_v6);
    }

    /// Removes the routes whose path is marked, by path number; `true` if there were any.
    pub(super) fn purge(
        &mut self,
        v4: &[bool],
        v6: &[bool],
        paths: &Paths,
        out: &mut Vec<KernelEvent>,
    ) -> bool {
        let stays = |gone: &[bool], entry: &Entry| !gone.get(entry.path as usize).copied().unwrap_or(false);
        let any_v4 = self.v4.retain(paths, out, |entry| stays(v4, entry));
        let any_v6 = self.v6.retain(paths, out, |entry| stays(v6, entry));
        any_v4 || any_v6
    }

    /// Reports what the targets have come to be.
    pub(super) fn report(&mut self, paths: &Paths, out: &mut Vec<KernelEvent>) {
        self.v4.retain(paths, out, |_| true);
        self.v6.retain(paths, out, |_| true);
    }

    /// Which paths and targets are in use, by number.
    pub(super) fn in_use(&self, paths: &Paths) -> (Vec<bool>, Vec<bool>) {
        let (raw, targets) = paths.ends();
        let mut marks = (vec![false; raw], vec![false; targets]);
        self.v4.mark(&mut marks);
        self.v6.mark(&mut marks);
        marks
    }

    /// Prefixes of each family.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.v4.tables.values().map(Table::len).sum(), self.v6.tables.values().map(Table::len).sum())
    }

    /// What was last reported of each prefix that has a path, in no order.
    pub(super) fn reported(&self) -> impl Iterator<Item = (u32, AnyPrefix, u32)> {
        self.v4.reported().chain(self.v6.reported())
    }
}

impl<A: Address> Family<A>
where
    AnyPrefix: From<Prefix<A>>,
{
    fn new(tables: &[u32]) -> Self {
        Family { tables: tables.iter().map(|&table| (table, Table::new())).collect(), scratch: Vec::new() }
    }

    /// `true` if the prefix has a route more.
    fn edit(
        &mut self,
        table: u32,
        prefix: Prefix<A>,
        paths: &mut Paths,
        out: &mut Vec<KernelEvent>,
        edit: Edit<'_>,
    ) -> bool {
        let Some(slots) = self.tables.get_mut(&table) else { return false };
        let slot = slots.entry(prefix).or_insert(Slot { entries: Entries::None, reported: NOWHERE });
        self.scratch.clear();
        self.scratch.extend_from_slice(slot.entries.as_slice());
        let before = self.scratch.len();
        edit(&mut self.scratch, paths);
        slot.entries.store(&self.scratch);
        tell(table, prefix, slot, paths, out);
        if self.scratch.is_empty() {
            slots.remove(&prefix);
        }
        self.scratch.len() > before
    }

    /// `true` if any route did not stay.
    fn retain(&mut self, paths: &Paths, out: &mut Vec<KernelEvent>, stays: impl Fn(&Entry) -> bool) -> bool {
        let mut any = false;
        for (&table, slots) in &mut self.tables {
            slots.retain(|&prefix, slot| {
                if !slot.entries.as_slice().iter().all(&stays) {
                    any = true;
                    self.scratch.clear();
                    self.scratch.extend(slot.entries.as_slice().iter().filter(|entry| stays(entry)));
                    slot.entries.store(&self.scratch);
                }
                tell(table, prefix, slot, paths, out);
                !slot.entries.as_slice().is_empty()
            });
        }
        any
    }

    fn mark(&self, (raw, targets): &mut (Vec<bool>, Vec<bool>)) {
        for slot in self.tables.values().flat_map(Table::values) {
            for entry in slot.entries.as_slice() {
                raw[entry.path as usize] = true;
            }
            if let Some(used) = targets.get_mut(slot.reported as usize) {
                *used = true;
            }
        }
    }

    fn reported(&self) -> impl Iterator<Item = (u32, AnyPrefix, u32)> {
        self.tables.iter().flat_map(|(&table, slots)| {
            let known = slots.iter().filter(|(_, slot)| slot.reported != NOWHERE);
            known.map(move |(&prefix, slot)| (table, prefix.into(), slot.reported))
        })
    }
}

/// Reports a prefix's best path if it is another than last time.
fn tell<A: Address>(table: u32, prefix: Prefix<A>, slot: &mut Slot, paths: &Paths, out: &mut Vec<KernelEvent>)
where
    AnyPrefix: From<Prefix<A>>,
{
    let targets = slot.entries.as_slice().iter().map(|entry| paths.target_of(entry.path));
    let best = targets.into_iter().find(|&target| target != NOWHERE).unwrap_or(NOWHERE);
    if best != slot.reported {
        slot.reported = best;
        out.push(KernelEvent::Route { table, prefix: prefix.into(), path: paths.target(best) });
    }
}
