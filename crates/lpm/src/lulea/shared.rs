//! Many structures over one [`Store`]: the tables of VRFs, which are much alike.
//!
//! Every node that is equal to one that is there already is that one, from the bottom up, so what two tables have in common is
//! common memory at every depth; each has a root of its own. Nodes are counted and never changed. A patch makes all nodes on its
//! ways anew, those of many changes together, up to the root, whose words it stores at the end.

use super::build::{self, Draft, Nodes, Slots};
use super::lookup::Kernel;
use super::node::{BLOCK, Ledger, Run, encode, is_large, words};
use super::patch::{self, Patch, Scratch, inside};
use super::{Entry, Lulea, ROOT, SLOTS, Store, UNIT, byte, slot_region};
use crate::fib::{AfterFailure, BuildError, Built, Fib, FibWriter, Label, Outgrown, of_prefix};
use crate::pool::{hash_each, spread};
use crate::prefix::Prefix;
use crate::ranges::{outermost, ranges};
use crate::rib::Rib;
use hashbrown::HashTable;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidemill_lookup::mem::Table;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// 1 MB: a VRF that has a few routes of its own takes a block of 1 KB for each /16 in which they are, and some nodes.
const ROOM: usize = 1 << 17;

/// Builds structures that share equal nodes. Cheap to clone.
///
/// What a structure costs is its root ([`Lulea::own_bytes`]: 256 KB) and the nodes that no other has. A patch of one never changes
/// what another answers, and readers do not notice that anything is shared; writers take turns. When a structure is dropped, what
/// it alone referred to is used again after the grace period.
///
/// A store that has no room for a structure is left to those that are in it, and a larger one is made for this and further ones.
/// Those that outgrow the old store follow by being rebuilt; it is freed with the last. (Nodes of a patch that found no room stay
/// until then.)
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    domain: Domain,
    /// Units that a first store has for more than its first table, at least.
    room: usize,
    /// The store for further structures.
    store: Mutex<Option<Arc<Store>>>,
}

/// What the structures of a [`Shared`] have in common now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedStats {
    /// Structures that use the store.
    pub tables: usize,
    /// Bytes of it in use: blocks and nodes.
    pub bytes: usize,
    /// Bytes of it that there are, for updates and further structures too.
    pub reserved_bytes: usize,
}

impl Shared {
    /// Structures for the readers of `domain`.
    pub fn new(domain: &Domain) -> Self {
        Self::with_room(domain, ROOM)
    }

    /// With so many units for more than the first table.
    pub(super) fn with_room(domain: &Domain, room: usize) -> Self {
        Shared(Arc::new(Inner { domain: domain.clone(), room, store: Mutex::default() }))
    }

    /// Builds a structure that shares what it can with those built before.
    ///
    /// # Errors
    /// A label of more than 31 bits; no memory.
    pub fn writer(&self, rib: &Rib<u128>) -> Result<SharedWriter, BuildError> {
        let ranges = ranges(rib, Prefix::DEFAULT);
        build::check(&ranges).map_err(|found| of_prefix(rib, found))?;
        let mut current = self.0.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = self.0.room;
        if let Some(store) = &*current {
            let full = store.books().is_none_or(|books| books.full);
            if !full && let Ok(fib) = join(store, &ranges)? {
                return Ok(SharedWriter::new(fib));
            }
            room = room.max(store.words.len() / UNIT * 2);
        }
        // What it takes at most; and as much again, for patches, and for what further tables have for themselves.
        let (draft, _) = Draft::new(&ranges)?;
        let units = draft.words.len() / UNIT;
        drop(draft);
        let (store, ledger) = Ledger::new(units + units.max(room), &self.0.domain)?;
        let store = Arc::new(Store { books: Some(Books::new(ledger)), ..store });
        let fib = join(&store, &ranges)?.map_err(|full| BuildError::TooLarge {
            structure: "lulea".into(),
            what: full.what,
            advice: "split the table".into(),
        })?;
        *current = Some(store);
        Ok(SharedWriter::new(fib))
    }

    /// [`writer`](Self::writer) in the form that [`Table::with`](crate::table::Table::with) takes.
    ///
    /// # Panics
    /// The function, if it is called for another domain than [`new`](Self::new) was (a wiring bug).
    pub fn make(&self) -> impl Fn(&Rib<u128>, &Domain) -> Built<u128> + Send + Sync + Clone + 'static {
        let shared = self.clone();
        move |rib, domain| {
            let same = shared.0.domain.same(domain);
            assert!(same, "the tables of VRFs that share belong to different domains");
            Ok(Box::new(shared.writer(rib)?))
        }
    }

    /// What is shared now.
    pub fn stats(&self) -> SharedStats {
        let current = self.0.store.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map_or_else(SharedStats::default, |store| SharedStats {
            tables: store.tables(),
            bytes: store.bytes(),
            reserved_bytes: size_of_val(&*store.words),
        })
    }
}

/// A structure over a store, if there is room.
fn join(store: &Arc<Store>, ranges: &[(u128, Label)]) -> Result<Result<Arc<Lulea>, Outgrown>, BuildError> {
    let root = Table::<AtomicU32>::new(ROOT)?;
    let fib = Arc::new(Lulea { root, store: store.clone(), kernel: Kernel::best() });
    let Some(mut session) = Session::of(store) else {
        return Ok(Err(Outgrown { what: "the store is not shared".into() }));
    };
    session.books.ledger.reclaim(store);
    session.books.tables += 1;
    let done = build::root(&mut session, ranges, 0..ROOT, |_, slot, entry| {
        fib.root[slot].store(entry.0, Ordering::Relaxed);
    });
    drop(session);
    // Dropping it gives back what it has.
    Ok(done.map(|()| fib))
}

/// Who refers to what in a [`Store`], and what is free. For the control side: readers never lock.
pub(super) struct Books(Box<Mutex<Ledgers>>);

impl Books {
    fn new(ledger: Ledger) -> Self {
        let known = Default::default();
        Books(Box::new(Mutex::new(Ledgers { ledger, known, counts: Vec::new(), tables: 0, full: false })))
    }
}

pub(super) struct Ledgers {
    ledger: Ledger,
    /// The first units of blocks and nodes by their content: by their [`Kind`].
    known: [HashTable<u32>; 3],
    /// Of what begins at a unit.
    counts: Vec<Count>,
    /// Structures that refer to the store.
    pub(super) tables: usize,
    /// Something has found no room: new structures had better go elsewhere.
    full: bool,
}

#[derive(Clone, Copy, Default)]
struct Count {
    refs: u32,
    hash: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    Small,
    Large,
}

impl Store {
    fn books(&self) -> Option<MutexGuard<'_, Ledgers>> {
        Some(self.books.as_ref()?.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Structures that refer to it.
    pub(super) fn tables(&self) -> usize {
        self.books().map_or(1, |books| books.tables)
    }
}

impl Drop for Lulea {
    fn drop(&mut self) {
        // Others look into the store: what only this structure referred to must be free for them. Its readers have gone, but
        // those of others may look at what is the same, so it waits like all else.
        if let Some(mut session) = Session::of(&self.store) {
            session.books.tables = session.books.tables.saturating_sub(1);
            (0..ROOT).for_each(|slot| session.release_block(self.root(slot)));
            session.books.ledger.retire();
        }
    }
}

/// A writer's turn.
struct Session<'a> {
    store: &'a Store,
    books: MutexGuard<'a, Ledgers>,
    /// First units and words of what is new.
    written: Vec<(u32, usize)>,
}

impl<'a> Session<'a> {
    fn of(store: &'a Store) -> Option<Self> {
        Some(Session { store, books: store.books()?, written: Vec::new() })
    }

    /// What has this content, with one reference more: `write` says what stands at which word, from the given one on.
    /// If it is there, what its entries lead to is referred to once less.
    fn intern(
        &mut self,
        kind: Kind,
        words: usize,
        content: impl Iterator<Item = (u8, Entry)> + Clone,
        write: impl Fn(usize, &mut dyn FnMut(usize, u32)),
    ) -> Result<u32, Outgrown> {
        let store = self.store;
        let all = &store.words;
        let Ledgers { ledger, known, counts, full, .. } = &mut *self.books;
        let hash =
            hash_each(content.clone().map(|(start, entry)| u64::from(start) << 32 | u64::from(entry.0)));
        let known = &mut known[kind as usize];
        let same = |&unit: &u32| {
            let mut same = counts[unit as usize].hash == hash;
            write(unit as usize * UNIT, &mut |word, value| {
                same = same && all[word].load(Ordering::Relaxed) == value;
            });
            same
        };
        if let Some(&unit) = known.find(spread(hash), same) {
            counts[unit as usize].refs += 1;
            content.for_each(|(_, entry)| self.release(entry));
            return Ok(unit);
        }
        let unit = ledger.take(store, words.div_ceil(UNIT)).inspect_err(|_| *full = true)?;
        write(unit as usize * UNIT, &mut |word, value| all[word].store(value, Ordering::Relaxed));
        self.written.push((unit, words));
        if counts.len() <= unit as usize {
            counts.resize(unit as usize + 1, Count::default());
        }
        counts[unit as usize] = Count { refs: 1, hash };
        known.insert_unique(spread(hash), unit, |&unit| spread(counts[unit as usize].hash));
        Ok(unit)
    }

    /// One reference less; whether it was the last one, and nobody finds it any more.
    fn leave(&mut self, kind: Kind, unit: u32) -> bool {
        let Ledgers { known, counts, .. } = &mut *self.books;
        let count = &mut counts[unit as usize];
        count.refs -= 1;
        if count.refs > 0 {
            return false;
        }
        if let Ok(known) = known[kind as usize].find_entry(spread(count.hash), |&other| other == unit) {
            known.remove();
        }
        true
    }

    /// One reference less to what a root's slot leads to.
    fn release_block(&mut self, entry: Entry) {
        if entry.is_leaf() || !self.leave(Kind::Block, entry.unit()) {
            return;
        }
        self.books.ledger.unlinked.push((entry.unit(), BLOCK));
        for word in entry.word()..entry.word() + SLOTS {
            let below = self.store.entry(word);
            self.release(below);
        }
    }

    /// The entry of a root's slot after changes of `changed`, which lie in its `region` and are longer, in order and none inside
    /// another.
    fn change(
        &mut self,
        scratch: &mut Scratch,
        rib: &Rib<u128>,
        entry: Entry,
        region: Prefix<u128>,
        changed: &[Prefix<u128>],
    ) -> Result<Entry, Outgrown> {
        if entry.is_leaf() {
            let ranges = scratch.take_ranges(rib, region)?;
            let block = build::block(self, &ranges, region)?;
            scratch.ranges = ranges;
            return Ok(block);
        }
        let old: Slots = std::array::from_fn(|slot| self.store.entry(entry.word() + slot));
        let (mut new, mut is_new) = (old, [false; SLOTS]);
        let mut rest = changed;
        while let Some((&prefix, behind)) = rest.split_first() {
            if prefix.len() <= 24 {
                let ranges = scratch.take_ranges(rib, prefix)?;
                build::spread(self, &ranges, region, prefix, |_, run, entry| {
                    new[run.clone()].fill(entry);
                    is_new[run].fill(true);
                })?;
                scratch.ranges = ranges;
                rest = behind;
                continue;
            }
            let at = usize::from(byte(prefix.first(), 16));
            let part = slot_region(region, at);
            let (here, behind) = rest.split_at(inside(part, rest));
            rest = behind;
            self.acquire(old[at]);
            new[at] = patch::node(self, scratch, rib, old[at], part, here)?;
            is_new[at] = true;
        }
        new.iter().zip(is_new).filter(|(_, is_new)| !is_new).for_each(|(&entry, _)| self.acquire(entry));
        match new.iter().all(|&entry| entry == new[0]) && new[0].is_leaf() {
            true => Ok(new[0]),
            false => self.block(&new),
        }
    }
}

impl Nodes for Session<'_> {
    fn node(&mut self, runs: &[Run]) -> Result<Entry, Outgrown> {
        let large = is_large(runs.len());
        let kind = if large { Kind::Large } else { Kind::Small };
        let content = runs.iter().map(|run| (run.start, run.entry));
        let unit = self.intern(kind, words(runs.len()), content, |word, set| encode(runs, word, set))?;
        Ok(Entry::pointer(large, unit))
    }

    fn block(&mut self, slots: &Slots) -> Result<Entry, Outgrown> {
        let content = (0..=u8::MAX).zip(slots.iter().copied());
        let unit = self.intern(Kind::Block, SLOTS, content, |word, set| {
            slots.iter().enumerate().for_each(|(slot, entry)| set(word + slot, entry.0));
        })?;
        Ok(Entry::pointer(false, unit))
    }

    fn acquire(&mut self, entry: Entry) {
        if !entry.is_leaf() {
            self.books.counts[entry.unit() as usize].refs += 1;
        }
    }

    fn release(&mut self, entry: Entry) {
        let kind = if entry.is_large() { Kind::Large } else { Kind::Small };
        if entry.is_leaf() || !self.leave(kind, entry.unit()) {
            return;
        }
        let (units, first, runs) = self.store.extent(entry, &());
        self.books.ledger.unlinked.push((entry.unit(), units));
        for word in first..first + runs {
            let below = self.store.entry(word);
            self.release(below);
        }
    }
}

impl Patch for Session<'_> {
    const ALONE: bool = false;
    type Told = ();

    fn store(&self) -> &Store {
        self.store
    }

    fn told(&self) -> &() {
        &()
    }

    fn publish(&mut self, _: usize, _: Entry, _: Entry) {}

    fn replaced(&mut self, _: Entry) {}

    fn left(&mut self, node: Entry) {
        self.release(node);
    }
}

/// The writer of a structure that shares nodes with others.
pub struct SharedWriter {
    fib: Arc<Lulea>,
    scratch: Scratch,
}

impl SharedWriter {
    fn new(fib: Arc<Lulea>) -> Self {
        SharedWriter { fib, scratch: Scratch::default() }
    }

    /// The structure, with all that its own type offers.
    pub fn lulea(&self) -> &Arc<Lulea> {
        &self.fib
    }

    fn patch_told(
        &mut self,
        rib: &Rib<u128>,
        changed: &[Prefix<u128>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        let SharedWriter { fib, scratch } = self;
        let Some(mut session) = Session::of(&fib.store) else { return Ok(()) };
        session.books.ledger.reclaim(&fib.store);
        // Before anything is made, so that a label that is refused leaves nothing behind.
        let mut labels = changed.iter().filter_map(|&prefix| Some((prefix, rib.get(prefix)?)));
        if let Some((prefix, label)) = labels.find(|(_, label)| label.0 > Entry::LABEL_MAX) {
            return Err(Outgrown::label(prefix, label, 31));
        }
        let changed = outermost(changed);
        let tell = |word: &AtomicU32| probe.write(std::ptr::from_ref(word).addr(), size_of::<AtomicU32>());
        let mut entries: Vec<(usize, Entry)> = Vec::new();
        let done = change_all(&mut session, scratch, rib, fib, &changed, &mut entries);
        for (unit, words) in std::mem::take(&mut session.written) {
            fib.store.words[unit as usize * UNIT..][..words].iter().for_each(tell);
        }
        for &(slot, new) in &entries {
            if done.is_err() {
                session.release_block(new);
                continue;
            }
            let word = &fib.root[slot];
            let old = Entry(word.load(Ordering::Relaxed));
            if new != old {
                word.store(new.0, Ordering::Release);
                tell(word);
            }
            session.release_block(old);
        }
        session.books.ledger.retire();
        session.books.ledger.reclaim(&fib.store);
        if done.is_err() {
            *scratch = Scratch::default();
        }
        done
    }
}

/// Adds the new entries of the root's slots in which changes lie. `changed`: in order, none inside another.
fn change_all(
    session: &mut Session<'_>,
    scratch: &mut Scratch,
    rib: &Rib<u128>,
    fib: &Lulea,
    changed: &[Prefix<u128>],
    entries: &mut Vec<(usize, Entry)>,
) -> Result<(), Outgrown> {
    let mut rest = changed;
    while let Some((&prefix, behind)) = rest.split_first() {
        let slot = (prefix.first() >> 112) as usize;
        match Prefix::new(prefix.first(), 16).filter(|region| prefix.len() > region.len()) {
            Some(region) => {
                let (here, behind) = rest.split_at(inside(region, rest));
                rest = behind;
                entries.push((slot, session.change(scratch, rib, fib.root(slot), region, here)?));
            }
            None => {
                rest = behind;
                let ranges = scratch.take_ranges(rib, prefix)?;
                let slots = slot..(prefix.last() >> 112) as usize + 1;
                build::root(session, &ranges, slots, |_, slot, entry| entries.push((slot, entry)))?;
                scratch.ranges = ranges;
            }
        }
    }
    Ok(())
}

impl FibWriter<u128> for SharedWriter {
    fn fib(&self) -> Arc<dyn Fib<u128>> {
        self.fib.clone()
    }

    fn patch(&mut self, rib: &Rib<u128>, changed: &[Prefix<u128>]) -> Result<(), Outgrown> {
        self.patch_told(rib, changed, &())
    }

    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Untouched
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<u128>,
        changed: &[Prefix<u128>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        self.patch_told(rib, changed, probe)
    }
}

/// Compares the references in a store with those that the structures of `writers`, which are all that use it, really have.
#[cfg(test)]
pub(super) fn check_references(writers: &[&SharedWriter]) {
    use std::collections::BTreeMap;
    let Some(first) = writers.first() else { return };
    let store = &*first.fib.store;
    // By first unit: references, and the entries behind it.
    let mut found: BTreeMap<(usize, u32), u32> = BTreeMap::new();
    let mut ways: Vec<(Kind, Entry)> = Vec::new();
    for writer in writers {
        assert!(Arc::ptr_eq(&first.fib.store, &writer.fib.store));
        ways.extend((0..ROOT).map(|slot| (Kind::Block, writer.fib.root(slot))));
    }
    while let Some((kind, entry)) = ways.pop() {
        if entry.is_leaf() {
            continue;
        }
        let refs = found.entry((kind as usize, entry.unit())).or_default();
        *refs += 1;
        if *refs > 1 {
            continue;
        }
        let words = match kind {
            Kind::Block => entry.word()..entry.word() + SLOTS,
            _ => {
                let (_, first, runs) = store.extent(entry, &());
                first..first + runs
            }
        };
        let kind = |entry: Entry| if entry.is_large() { Kind::Large } else { Kind::Small };
        ways.extend(words.map(|word| store.entry(word)).map(|entry| (kind(entry), entry)));
    }
    let Some(books) = store.books() else { panic!("nobody keeps books of this store") };
    let counted: BTreeMap<(usize, u32), u32> = (books.known.iter().enumerate())
        .flat_map(|(kind, known)| known.iter().map(move |&unit| (kind, unit)))
        .map(|(kind, unit)| ((kind, unit), books.counts[unit as usize].refs))
        .collect();
    assert_eq!(found, counted, "references");
    assert_eq!(books.tables, writers.len());
}
