//! Rules that change while workers look up: one writer, readers that never lock, retry or wait.
//!
//! ```text
//! insert, remove --> staged --commit--> spare copy: what it is behind, then what is staged --publish--> version + 1
//!                                       the copy that was published is the next spare, when all workers have passed a burst boundary
//! ```
//!
//! Two copies change places (Ramalhete and Correia's Left-Right, with the [`Domain`]'s burst boundaries in place of its reader counts).
//! So a lookup sees the rules of one version in every table: no mixture of a rule that has come and one that has not, which
//! patching table by table would show (a packet that is let through by a rule whose exception was inserted before it). It costs the structure's
//! memory twice, and every change is made twice. A commit waits only for readers of the spare, who have mostly left it since the commit before it.
//! Where one still looks at it after [`PATIENCE`], the structure is copied instead; a small one ([`SMALL_BYTES`]) almost at once, for that takes less time than a
//! reader that waits for a processor. Up to [`MOST_COPIES`] of these wait for their readers, 16 MiB. From then on, and for a large one from the first, each copy that
//! waits has the next commit wait twice as long: so a reader that is away for two seconds leaves some ten copies behind, and from then on one a second.
//!
//! The first table's rules may be there as a [cross-product](crate::cross), too, which is made when its owner says so ([`LiveRules::cross`]): made once, for both copies; what
//! changes is noted in either.
//!
//! Rules are in one table, or in several of a [pipeline](crate::pipeline), with instructions.
//!
//! A number of a rule that has gone is used again only after all workers have passed a burst boundary: nobody counts under it any more.

use crate::cross::Crossed;
use crate::key::{Key, Mask};
use crate::pipeline::{Entry, Shared};
use crate::rule::{Match, Rank, Rule, RuleId};
use crate::rules::{Full, RuleSet};
use crate::tuple::{Grouping, TupleSpace};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::{Domain, Epoch};

/// How long a commit waits for readers of the spare copy; twice as long for each copy beyond those that may wait for their readers.
pub const PATIENCE: Duration = Duration::from_millis(2);

/// So often it is doubled at most: to a second. A reader that never comes back does not end all commits.
const DOUBLINGS: usize = 9;

/// How long of that it keeps the processor: a few of a reader's bursts, and about as long as it takes to copy a small structure.
const BRIEF: Duration = Duration::from_micros(30);

/// A structure of as many bytes is copied rather than its readers waited for any longer.
pub const SMALL_BYTES: usize = 1 << 19;

/// Copies of a small structure that readers may still look at, and no commit waits. Beyond them it does, as with a large one.
pub const MOST_COPIES: usize = 32;

/// Changes that a snapshot remembers, for caches to tell what they concern.
pub const REMEMBERED: usize = 64;

/// The rules of one version, as workers see them.
#[derive(Debug, Clone)]
pub struct Snapshot {
    version: u64,
    /// By number; there is one at least.
    tables: Vec<TupleSpace>,
    /// The first table's rules once more, if they suit that.
    crossed: Option<Crossed>,
    /// Of each table: rules that ask for what lies above IPv6, and those that ask for what a transport header has.
    asking: Vec<[u32; 2]>,
    /// Of rules that have instructions, by number.
    entries: Vec<Option<Arc<Entry>>>,
    shared: Arc<Shared>,
    /// The last changes, each with the version that it came with and the table that it was in.
    changes: VecDeque<(u64, u8, Match)>,
    /// Of later versions all changes are remembered.
    complete_since: u64,
}

impl Snapshot {
    /// From 1 on; another one whenever rules have changed.
    #[inline(always)]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The rules of the first table.
    #[inline(always)]
    pub fn space(&self) -> &TupleSpace {
        &self.tables[0]
    }

    /// The rules of each table.
    #[inline(always)]
    pub fn tables(&self) -> &[TupleSpace] {
        &self.tables
    }

    /// The cross-product of the first table's rules, if there is one.
    pub fn crossed(&self) -> Option<&Crossed> {
        self.crossed.as_ref()
    }

    /// Lines that a lookup in a table touches, as one of many keys.
    pub(crate) fn lines(&self, table: u8, key: &Key) -> usize {
        match &self.crossed {
            Some(crossed) if table == 0 && !crossed.is_worn() => crossed.lines(key),
            _ => self.tables.get(usize::from(table)).map_or(0, |space| space.lookup_counted(key).1.lines),
        }
    }

    /// The first matches of many keys in the first table; `out` is as long as `keys`, and what lies beyond the shorter is not looked at.
    #[inline]
    pub fn lookup_batch(&self, keys: &[Key], out: &mut [Rank]) {
        match &self.crossed {
            Some(crossed) => crossed.lookup_batch(self.space(), keys, out),
            None => self.space().lookup_batch(keys, out),
        }
    }

    /// What a rule that was put in with instructions says.
    #[inline(always)]
    pub fn entry(&self, id: RuleId) -> Option<&Entry> {
        self.entries.get(id.0 as usize)?.as_deref()
    }

    /// Groups and meters.
    #[inline(always)]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether a rule of a table asks for what lies above IPv6.
    #[inline]
    pub(crate) fn asks_above_ipv6(&self, table: u8) -> bool {
        self.asking.get(usize::from(table)).is_some_and(|[above, _]| *above > 0)
    }

    /// Whether a rule of a table asks for what a transport header has.
    #[inline]
    pub(crate) fn asks_transport(&self, table: u8) -> bool {
        self.asking.get(usize::from(table)).is_some_and(|[_, transport]| *transport > 0)
    }

    /// Whether it takes little time and room to copy it. What snapshots share does not count.
    fn is_small(&self) -> bool {
        let tables: usize = self.tables.iter().map(TupleSpace::bytes).sum();
        tables + size_of::<Option<Arc<Entry>>>() * self.entries.len() <= SMALL_BYTES
    }

    /// Counts a rule that a table has got (`more`) or lost.
    fn count_asking(&mut self, table: usize, rule: &Rule, more: bool) {
        let asks = [rule.matches.asks_above_ipv6(), rule.matches.asks_transport()];
        for (count, _) in self.asking[table].iter_mut().zip(asks).filter(|(_, asks)| *asks) {
            *count = if more { *count + 1 } else { *count - 1 };
        }
    }

    /// Whether a decision of the first table, of version `since`, on all packets with these bits is one of this version too, as far as the
    /// remembered changes tell: none of them can have touched such a packet.
    pub fn still_holds(&self, since: u64, value: &Key, mask: &Mask) -> bool {
        self.remembers(since) && !self.touched(since, 0, value, mask)
    }

    /// Whether all changes since a version are remembered.
    pub(crate) fn remembers(&self, since: u64) -> bool {
        since >= self.complete_since
    }

    /// Whether a remembered change of a table since a version may concern packets with these bits.
    pub(crate) fn touched(&self, since: u64, table: u8, value: &Key, mask: &Mask) -> bool {
        let newer = self.changes.iter().rev().take_while(|(version, ..)| *version > since);
        newer.into_iter().any(|(_, changed, change)| *changed == table && change.may_meet(value, mask))
    }

    fn apply(&mut self, step: &Step) {
        let done = match step {
            Step::Insert(id, rule, entry) => {
                if entry.is_some() || self.entries.len() > id.0 as usize {
                    let places = self.entries.len().max(id.0 as usize + 1);
                    self.entries.resize(places, None);
                    self.entries[id.0 as usize] = entry.clone();
                }
                let table = usize::from(entry.as_ref().map_or(0, |entry| entry.table));
                let done = self.tables.get_mut(table).is_some_and(|space| space.insert(*id, rule));
                if done {
                    self.count_asking(table, rule, true);
                    if let Some(crossed) = self.crossed_of(table) {
                        crossed.insert(*id, rule);
                    }
                }
                done
            }
            Step::Remove(id, rule, table) => {
                if let Some(entry) = self.entries.get_mut(id.0 as usize) {
                    *entry = None;
                }
                let table = usize::from(*table);
                let done = self.tables.get_mut(table).is_some_and(|space| space.remove(*id, rule));
                if done {
                    self.count_asking(table, rule, false);
                    if let Some(crossed) = self.crossed_of(table) {
                        crossed.remove(*id, rule);
                    }
                }
                done
            }
            Step::Rank(id, rule, priority, table) => {
                let (table, other) = (usize::from(*table), Rule { priority: *priority, ..*rule });
                let space = self.tables.get_mut(table);
                let done = space.is_some_and(|space| space.remove(*id, rule) && space.insert(*id, &other));
                if let Some(crossed) = self.crossed_of(table).filter(|_| done) {
                    crossed.remove(*id, rule);
                    crossed.insert(*id, &other);
                }
                done
            }
            Step::Cross(crossed) => {
                self.crossed = crossed.as_deref().cloned();
                true
            }
            Step::Regroup(table, grouping) => match self.tables.get_mut(usize::from(*table)) {
                Some(space) => {
                    *space = space.regrouped(*grouping);
                    true
                }
                None => false,
            },
            Step::Share(shared) => {
                self.shared = shared.clone();
                true
            }
        };
        debug_assert!(done, "{step:?}");
    }

    /// The cross-product of a table.
    fn crossed_of(&mut self, table: usize) -> Option<&mut Crossed> {
        self.crossed.as_mut().filter(|_| table == 0)
    }

    fn remember(&mut self, version: u64, steps: &[Step]) {
        self.version = version;
        for step in steps {
            if self.changes.len() == REMEMBERED {
                self.complete_since = self.changes.pop_front().map_or(version, |(oldest, ..)| oldest);
            }
            let (table, rule) = match step {
                Step::Insert(_, rule, entry) => (entry.as_ref().map_or(0, |entry| entry.table), rule),
                Step::Remove(_, rule, table) | Step::Rank(_, rule, _, table) => (*table, rule),
                // No cached decision depends on these.
                Step::Share(_) | Step::Regroup(..) | Step::Cross(_) => continue,
            };
            self.changes.push_back((version, table, rule.matches));
        }
    }
}

/// A change of the structure.
#[derive(Debug, Clone)]
enum Step {
    Insert(RuleId, Rule, Option<Arc<Entry>>),
    Remove(RuleId, Rule, u8),
    /// Another priority for a rule of a table.
    Rank(RuleId, Rule, u64, u8),
    Share(Arc<Shared>),
    /// A table's rules, grouped otherwise.
    Regroup(u8, Grouping),
    /// The cross-product of the first table's rules as they are then; none from now on.
    Cross(Option<Arc<Crossed>>),
}

/// The rules with their writer.
pub struct LiveRules {
    set: RuleSet,
    /// As the snapshot's will be.
    entries: Vec<Option<Arc<Entry>>>,
    publisher: Publisher<Arc<Snapshot>>,
    spare: Option<Arc<Snapshot>>,
    /// What the spare has not seen.
    behind: Vec<(u64, Vec<Step>)>,
    staged: Vec<Step>,
    /// Numbers of rules that have gone, with the moment since when nobody new can see them.
    gone: VecDeque<(Epoch, RuleId)>,
    counters: Counters,
    copies: u64,
    waits: u64,
}

impl std::fmt::Debug for LiveRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveRules").field("rules", &self.set.len()).finish_non_exhaustive()
    }
}

impl LiveRules {
    /// No rules, room for `most`, published as version 1.
    pub fn new(domain: &Domain, grouping: Grouping, most: usize) -> Self {
        LiveRules::with_tables(domain, grouping, most, 1)
    }

    /// The same with so many tables, from 1 to 255.
    pub fn with_tables(domain: &Domain, grouping: Grouping, most: usize, tables: u8) -> Self {
        let snapshot = Snapshot {
            version: 1,
            tables: (0..tables.max(1)).map(|_| TupleSpace::new(grouping)).collect(),
            crossed: None,
            asking: vec![[0; 2]; tables.max(1).into()],
            entries: Vec::new(),
            shared: Arc::default(),
            changes: VecDeque::with_capacity(REMEMBERED),
            complete_since: 1,
        };
        LiveRules {
            set: RuleSet::new(most),
            entries: Vec::new(),
            publisher: Publisher::new(domain, Arc::new(snapshot)),
            spare: None,
            behind: Vec::new(),
            staged: Vec::new(),
            gone: VecDeque::new(),
            counters: Counters::new(most),
            copies: 0,
            waits: 0,
        }
    }

    /// A handle for a worker.
    pub fn view(&self) -> View<Arc<Snapshot>> {
        self.publisher.view()
    }

    /// The rules, those that are staged included.
    pub fn set(&self) -> &RuleSet {
        &self.set
    }

    /// What is published.
    pub fn snapshot(&self) -> &Snapshot {
        self.publisher.current()
    }

    /// Rules' counters.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// How often the structure had to be copied whole: at the first commit, and when a reader was late.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// How often a commit had to wait for readers, for [`PATIENCE`] or, where several copies wait for them, for longer.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// Puts a rule in; workers see it after the next [`commit`](Self::commit).
    ///
    /// # Errors
    /// See [`Full`].
    pub fn insert(&mut self, rule: Rule) -> Result<RuleId, Full> {
        self.put(rule, None)
    }

    /// Puts a rule with instructions into one of the tables. One of a table that there is not goes nowhere and says [`Full`].
    ///
    /// # Errors
    /// See [`Full`].
    pub fn insert_entry(&mut self, rule: Rule, entry: Entry) -> Result<RuleId, Full> {
        if usize::from(entry.table) >= self.snapshot().tables.len() {
            return Err(Full(self.set.len()));
        }
        self.put(rule, Some(Arc::new(entry)))
    }

    fn put(&mut self, rule: Rule, entry: Option<Arc<Entry>>) -> Result<RuleId, Full> {
        self.release();
        if self.set.room() == 0 {
            self.release_within();
        }
        let id = self.set.insert(rule)?;
        self.counters.restart(id);
        if entry.is_some() || self.entries.len() > id.0 as usize {
            let places = self.entries.len().max(id.0 as usize + 1);
            self.entries.resize(places, None);
            self.entries[id.0 as usize] = entry.clone();
        }
        self.staged.push(Step::Insert(id, rule, entry));
        Ok(id)
    }

    /// What a rule says, staged ones included.
    pub fn entry(&self, id: RuleId) -> Option<&Arc<Entry>> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    /// Other groups and meters, from the next [`commit`](Self::commit) on.
    pub fn share(&mut self, shared: Shared) {
        self.staged.push(Step::Share(Arc::new(shared)));
    }

    /// Groups a table's rules otherwise, from the next [`commit`](Self::commit) on. No decision changes by that. It costs the time of building the
    /// table, in either copy.
    pub fn regroup(&mut self, table: u8, grouping: Grouping) {
        self.staged.push(Step::Regroup(table, grouping));
    }

    /// Makes a cross-product of the first table's rules as they are published, if they suit one ([`Crossed::choose`], better than the
    /// [grouping](Self::regroup) that they have or are to get); it is there from the next [`commit`](Self::commit) on, and whether there is something to commit. No decision changes by that. It costs the time of making one, here and now: workers go on meanwhile, and the changes that are staged
    /// wait.
    pub fn cross(&mut self) -> bool {
        let snapshot = self.snapshot();
        // It has to be better than the tuples that there will be.
        let grouping = self.staged.iter().rev().find_map(|step| match step {
            Step::Regroup(0, grouping) => Some(*grouping),
            _ => None,
        });
        let regrouped = grouping.map(|grouping| snapshot.space().regrouped(grouping));
        let crossed = Crossed::choose(regrouped.as_ref().unwrap_or(snapshot.space())).map(Arc::new);
        let other = crossed.is_some() || snapshot.crossed.is_some();
        if other {
            // What is staged already comes to it as any change does.
            self.staged.insert(0, Step::Cross(crossed));
        }
        other
    }

    /// Lets the cross-product go, if there is one, from the next [`commit`](Self::commit) on; its memory with the commit after that. Whether there is something to commit.
    pub fn uncross(&mut self) -> bool {
        let other = self.snapshot().crossed.is_some();
        if other {
            self.staged.insert(0, Step::Cross(None));
        }
        other
    }

    /// Takes a rule out; workers see it until the next [`commit`](Self::commit).
    pub fn remove(&mut self, id: RuleId) -> Option<Rule> {
        let rule = self.set.remove(id)?;
        let entry = self.entries.get_mut(id.0 as usize).and_then(Option::take);
        self.staged.push(Step::Remove(id, rule, entry.map_or(0, |entry| entry.table)));
        Some(rule)
    }

    /// Gives a rule another priority, from the next [`commit`](Self::commit) on: its number, and what it counts, stay. It takes no room. False if there is no such rule.
    pub fn set_priority(&mut self, id: RuleId, priority: u64) -> bool {
        let Some(before) = self.set.set_priority(id, priority) else { return false };
        if before.priority != priority {
            let table = self.entry(id).map_or(0, |entry| entry.table);
            self.staged.push(Step::Rank(id, before, priority, table));
        }
        true
    }

    /// How many rules could be put in now. Those that were taken out make room when all workers have passed a burst boundary after the commit, which is waited for,
    /// as [`insert`](Self::insert) does where there is no room otherwise: [`PATIENCE`] at most.
    pub fn room(&mut self) -> usize {
        self.release_within();
        self.set.room()
    }

    /// Gives back all numbers that nobody can see any more within [`PATIENCE`].
    fn release_within(&mut self) {
        self.release();
        if !self.gone.is_empty() {
            self.publisher.collect_within(PATIENCE);
            self.release();
        }
    }

    /// Gives numbers back that nobody can see any more.
    fn release(&mut self) {
        let domain = self.publisher.domain().clone();
        while let Some((_, id)) = self.gone.pop_front_if(|(since, _)| domain.passed(*since)) {
            self.set.release(id);
        }
    }

    /// Publishes all staged changes at once; the version that they are.
    pub fn commit(&mut self) -> u64 {
        if self.staged.is_empty() {
            return self.snapshot().version;
        }
        let mut copy = self.take_spare();
        for (version, steps) in self.behind.drain(..) {
            steps.iter().for_each(|step| copy.apply(step));
            copy.remember(version, &steps);
        }
        let steps = std::mem::take(&mut self.staged);
        let version = copy.version + 1;
        steps.iter().for_each(|step| copy.apply(step));
        copy.remember(version, &steps);
        self.spare = Some(self.publisher.current().clone());
        self.publisher.publish(Arc::new(copy));
        let since = self.publisher.domain().advance();
        let gone = steps.iter().filter_map(|step| match step {
            Step::Remove(id, ..) => Some((since, *id)),
            Step::Insert(..) | Step::Rank(..) | Step::Share(_) | Step::Regroup(..) | Step::Cross(_) => None,
        });
        self.gone.extend(gone);
        self.behind.push((version, steps));
        version
    }

    /// A copy that nobody looks at.
    fn take_spare(&mut self) -> Snapshot {
        if self.spare.is_some() {
            let mut waiting = self.publisher.collect();
            // More: who has not come by in the time of a commit will not do so in this one.
            if waiting == 1 {
                waiting = self.publisher.collect_spinning(BRIEF);
            }
            let may_wait = if waiting > 0 && self.snapshot().is_small() { MOST_COPIES } else { 0 };
            if waiting > may_wait {
                self.waits += 1;
                let doublings = (waiting - may_wait - 1).min(DOUBLINGS);
                self.publisher.collect_within(PATIENCE * (1_u32 << doublings));
            }
        }
        self.spare.take().and_then(Arc::into_inner).unwrap_or_else(|| {
            self.behind.clear();
            self.copies += 1;
            Snapshot::clone(self.publisher.current())
        })
    }
}

/// Packets and bytes of a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Hits {
    fn with(self, other: Hits) -> Hits {
        Hits {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    fn without(self, other: Hits) -> Hits {
        Hits {
            packets: self.packets.wrapping_sub(other.packets),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}

#[derive(Debug, Default)]
struct Cell {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Cell {
    fn read(&self) -> Hits {
        Hits { packets: self.packets.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

/// The counters of all rules: a column for each worker, summed up here.
#[derive(Debug)]
pub struct Counters {
    workers: Vec<Arc<[Cell]>>,
    most: usize,
    /// What a number's rules before this one had counted.
    before: Vec<Hits>,
}

impl Counters {
    fn new(most: usize) -> Self {
        Counters { workers: Vec::new(), most, before: Vec::new() }
    }

    /// The column of another worker: 16 bytes for each rule that there can be.
    pub fn worker(&mut self) -> WorkerCounters {
        let cells: Arc<[Cell]> = (0..self.most).map(|_| Cell::default()).collect();
        self.workers.push(cells.clone());
        WorkerCounters { cells }
    }

    fn sum(&self, id: RuleId) -> Hits {
        let cells = self.workers.iter().filter_map(|cells| cells.get(id.0 as usize));
        cells.map(Cell::read).fold(Hits::default(), Hits::with)
    }

    /// What a rule has counted. Workers count on meanwhile.
    pub fn get(&self, id: RuleId) -> Hits {
        self.sum(id).without(self.before.get(id.0 as usize).copied().unwrap_or_default())
    }

    /// A number counts from 0 from now on: another rule has it, or somebody wants it so.
    pub(crate) fn restart(&mut self, id: RuleId) {
        let i = id.0 as usize;
        if self.before.len() <= i {
            self.before.resize(i + 1, Hits::default());
        }
        self.before[i] = self.sum(id);
    }
}

/// One worker's counters.
#[derive(Debug)]
pub struct WorkerCounters {
    cells: Arc<[Cell]>,
}

impl WorkerCounters {
    /// Counts a packet for the rule that was found, if one was.
    #[inline(always)]
    pub fn add(&mut self, found: Rank, bytes: u64) {
        self.add_all(found, Hits { packets: 1, bytes });
    }

    /// Counts several.
    #[inline(always)]
    pub fn add_all(&mut self, found: Rank, hits: Hits) {
        let Some(cell) = found.rule().and_then(|id| self.cells.get(id.0 as usize)) else { return };
        // This worker alone writes: no read-modify-write is needed.
        let add = |word: &AtomicU64, more| {
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed)
        };
        add(&cell.packets, hits.packets);
        add(&cell.bytes, hits.bytes);
    }
}

#[cfg(test)]
mod tests;
