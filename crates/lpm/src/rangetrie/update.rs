//! The writer: builds a trie, and patches it while readers look.
//!
//! A patch goes down to the smallest node whose region holds the changed prefix. In a line it replaces the slots that the
//! prefix covers by what the RIB now says of them, keeping the rest; a region that the prefix covers whole is built
//! anew from the RIB. New nodes go into fresh cells. Blocks are changed in place, an entry at a time; a line is copied,
//! since published lines never change, so the one store that publishes is always that of a block's (or the root's) entry.

use super::build::{
    Children, Line, Ranges, Slice, Space, Target, build, build_children, build_target, child_at, slot_region,
    write_line,
};
use super::lookup::Search;
use super::{CELL, Entry, LINE_BITS, LINE_HEAD, Node, RangeTrie, STARTS, bits};
use crate::fib::{BuildError, Fib, FibWriter, Label, Outgrown, of_prefix};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tidemill_lookup::mem::Table;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::{Domain, Epoch};

/// The one writer of a [`RangeTrie`].
pub struct Writer<A: Address> {
    trie: Arc<RangeTrie<A>>,
    domain: Domain,
    /// Cells from here on have never been used.
    pub(super) fresh: u32,
    /// Free runs of 1 cell and of 16 cells.
    free: [Vec<u32>; 2],
    /// Nodes unlinked by the batch under way.
    unlinked: Vec<Entry>,
    /// Nodes of earlier batches, until no reader can see them.
    waiting: VecDeque<(Epoch, Vec<Entry>)>,
    /// A patch was refused half-way: nodes noted as unlinked may still be linked, so no cell may be used again.
    outgrown: bool,
    /// Words stored to, while a probe listens.
    stored: Option<Vec<usize>>,
}

/// Space for the first build: a growing vector.
struct Draft(Vec<u32>);

impl Space for Draft {
    fn take(&mut self, cells: u32) -> Result<u32, Outgrown> {
        let cell = self.0.len() / CELL;
        if cell + cells as usize > Entry::CELLS_MAX {
            return Err(Outgrown { what: format!("more than {} cells", Entry::CELLS_MAX) });
        }
        self.0.resize(self.0.len() + cells as usize * CELL, 0);
        Ok(cell as u32)
    }

    fn set(&mut self, word: usize, entry: u32) {
        self.0[word] = entry;
    }
}

impl<A: Address> Writer<A> {
    /// Builds a trie of `rib` with a root of 2^`root_bits` entries. Readers of the trie must belong to `domain`.
    ///
    /// # Errors
    /// Root bits that are not 12, 16, 20 or 24; a label of more than 31 bits; no memory.
    pub fn new(rib: &Rib<A>, root_bits: u8, domain: &Domain) -> Result<Self, BuildError> {
        RangeTrie::<A>::check_root_bits(root_bits)?;
        let ranges = Ranges::of(rib, Prefix::DEFAULT);
        ranges.check().map_err(|found| of_prefix(rib, found))?;
        let mut draft = Draft(vec![0; 1 << root_bits]);
        build_children(&mut draft, ranges.slice(), Prefix::DEFAULT, root_bits, 0).map_err(|full| {
            BuildError::TooLarge {
                structure: format!("rangetrie-d{root_bits}"),
                what: full.what,
                advice: "split the table".into(),
            }
        })?;
        Self::from_words(&draft.0, root_bits, domain)
    }

    /// A writer whose trie begins as `words`: the root, then whole cells, all in use and linked as the invariants say.
    fn from_words(words: &[u32], root_bits: u8, domain: &Domain) -> Result<Self, BuildError> {
        let used = words.len() / CELL;
        // Room for patches: a table grows by some per cent a month, and the cells of a batch are used twice over.
        let capacity = (used + used / 4 + 2048).min(Entry::CELLS_MAX);
        let cells = Table::<AtomicU32>::new(capacity * CELL)?;
        for (to, &from) in cells.iter().zip(words) {
            to.store(from, Ordering::Relaxed);
        }
        let trie = RangeTrie {
            cells,
            root_bits,
            used: AtomicUsize::new(used),
            search: Search::best(),
            family: PhantomData,
        };
        Ok(Writer {
            trie: Arc::new(trie),
            domain: domain.clone(),
            fresh: used as u32,
            free: [Vec::new(), Vec::new()],
            unlinked: Vec::new(),
            waiting: VecDeque::new(),
            outgrown: false,
            stored: None,
        })
    }

    /// The trie, with all that its own type offers.
    pub fn trie(&self) -> &Arc<RangeTrie<A>> {
        &self.trie
    }

    fn note(&mut self, word: usize) {
        if let Some(stored) = &mut self.stored {
            stored.push(word);
        }
    }

    fn entry(&self, word: usize) -> Entry {
        // Only this writer stores.
        Entry(self.trie.cells[word].load(Ordering::Relaxed))
    }

    /// Brings the entries of a block (or the root) up to date where they overlap `prefix`.
    fn patch_children(
        &mut self,
        rib: &Rib<A>,
        word: usize,
        width_bits: u8,
        region: Prefix<A>,
        prefix: Prefix<A>,
    ) -> Result<(), Outgrown> {
        if prefix.len() >= region.len() + width_bits {
            let slot = bits(prefix.first(), region.len(), width_bits);
            let old = self.entry(word + slot);
            let new = self.patch_entry(rib, old, child_at(region, slot, width_bits), prefix)?;
            self.publish(word + slot, old, new);
            return Ok(());
        }
        // Several whole slots: all that is in them is new.
        let ranges = self.ranges(rib, prefix)?;
        for (slots, target) in Children::new(ranges.slice(), region, width_bits, prefix) {
            let new = match target {
                Target::Below(part) => build(self, part, child_at(region, slots.start, width_bits))?,
                Target::Leaf(label) => Entry::leaf(label),
                Target::Kept(entry) => entry,
            };
            for slot in slots {
                let old = self.entry(word + slot);
                self.publish(word + slot, old, new);
                self.unlink(old);
            }
        }
        Ok(())
    }

    /// Stores what has changed. The node behind `new` was written before: this makes it visible.
    fn publish(&mut self, word: usize, old: Entry, new: Entry) {
        if new != old {
            self.trie.cells[word].store(new.0, Ordering::Release);
            self.note(word);
        }
    }

    /// The entry for `region`, where `entry` stood, after a change of `prefix`, which overlaps it.
    fn patch_entry(
        &mut self,
        rib: &Rib<A>,
        entry: Entry,
        region: Prefix<A>,
        prefix: Prefix<A>,
    ) -> Result<Entry, Outgrown> {
        match entry.node() {
            Some((node @ Node::Block(width_bits), cell)) if prefix.len() > region.len() => {
                let word = cell as usize * CELL;
                self.patch_children(rib, word, width_bits, region, prefix)?;
                let first = self.entry(word);
                let size = node.cells() as usize * CELL;
                if first.is_leaf() && (1..size).all(|slot| self.entry(word + slot) == first) {
                    self.unlinked.push(entry); // one label everywhere: no node needed
                    return Ok(first);
                }
                Ok(entry)
            }
            Some((Node::Block(_), _)) => self.rebuild(rib, entry, region),
            _ if prefix.len() > region.len() => self.patch_line(rib, entry, region, prefix),
            _ => self.rebuild(rib, entry, region),
        }
    }

    /// The same where `entry` is a line, or a label for the whole region.
    fn patch_line(
        &mut self,
        rib: &Rib<A>,
        entry: Entry,
        region: Prefix<A>,
        prefix: Prefix<A>,
    ) -> Result<Entry, Outgrown> {
        let depth = region.len();
        let old = self.line(entry);
        let slot_of = |addr| bits(addr, depth, LINE_BITS) as u16;
        // What changes: the slots that the prefix covers, or the one slot that it lies in.
        let extent = if prefix.len() > depth + LINE_BITS {
            slot_region(region, slot_of(prefix.first()))
        } else {
            prefix
        };
        let (first, last) = (slot_of(extent.first()), slot_of(extent.last()));
        let below = old.at(first);
        if prefix.len() > extent.len() && !below.is_leaf() {
            let new = self.patch_entry(rib, below, extent, prefix)?;
            if new == below {
                return Ok(entry);
            }
            let mut line = Line::new(0, Entry(0));
            for (start, value) in old.iter() {
                line.push(start, if value == below { new } else { value });
            }
            self.unlinked.push(entry);
            return self.finish_line(&line, depth);
        }
        let ranges = self.ranges(rib, extent)?;
        let Some(plan) = splice(&old, ranges.slice(), extent, depth) else {
            return self.rebuild(rib, entry, region); // too many ranges for a line: a block
        };
        let mut line = Line::new(0, Entry(0));
        for (slot, target) in plan.iter() {
            // No more ranges than the plan has: there is room.
            line.push(slot, build_target(self, target, region, slot)?);
        }
        if !entry.is_leaf() {
            self.unlinked.push(entry);
        }
        old.iter().filter(|(slot, _)| (first..=last).contains(slot)).for_each(|(_, e)| self.unlink(e));
        self.finish_line(&line, depth)
    }

    /// A line's ranges; a label is one range.
    fn line(&self, entry: Entry) -> Line<Entry> {
        let Some((_, cell)) = entry.node() else { return Line::new(0, entry) };
        let word = cell as usize * CELL;
        let mut line = Line::new(0, self.entry(word + LINE_HEAD));
        for i in 0..STARTS {
            let start = (self.entry(word + i / 2).0 >> (16 * (i % 2))) as u16;
            line.push(start, self.entry(word + LINE_HEAD + 1 + i)); // free places merge with the last range
        }
        line
    }

    /// Writes a line, unless it has one label only.
    fn finish_line(&mut self, line: &Line<Entry>, depth: u8) -> Result<Entry, Outgrown> {
        match line.single() {
            Some(entry) if entry.is_leaf() => Ok(entry),
            _ => write_line(self, line, depth),
        }
    }

    fn ranges(&self, rib: &Rib<A>, region: Prefix<A>) -> Result<Ranges<A>, Outgrown> {
        let ranges = Ranges::of(rib, region);
        ranges.check().map_err(|error| Outgrown { what: error.to_string() })?;
        Ok(ranges)
    }

    /// New nodes for `region` in the place of those behind `old`.
    fn rebuild(&mut self, rib: &Rib<A>, old: Entry, region: Prefix<A>) -> Result<Entry, Outgrown> {
        let ranges = self.ranges(rib, region)?;
        let new = build(self, ranges.slice(), region)?;
        self.unlink(old);
        Ok(new)
    }

    /// Notes the node behind `entry` and all below it as unlinked.
    fn unlink(&mut self, entry: Entry) {
        let Some((node, cell)) = entry.node() else { return };
        self.unlinked.push(entry);
        let word = cell as usize * CELL;
        let (from, to) = match node {
            Node::Line => (LINE_HEAD, CELL),
            Node::Block(bits) => (0, 1 << bits),
        };
        let mut last = entry;
        for slot in from..to {
            let below = self.entry(word + slot);
            if below != last {
                self.unlink(below); // the free places of a line repeat its last entry
            }
            last = below;
        }
    }

    /// Takes back the cells that no reader can see any more.
    fn reclaim(&mut self) {
        while self.waiting.front().is_some_and(|(epoch, _)| self.domain.passed(*epoch)) {
            let Some((_, entries)) = self.waiting.pop_front() else { break };
            for (node, cell) in entries.iter().filter_map(|entry| entry.node()) {
                self.trie.used.fetch_sub(node.cells() as usize, Ordering::Relaxed);
                self.free[usize::from(node.cells() > 1)].push(cell);
            }
        }
    }
}

/// The line `old` with the slots of `extent` replaced by `ranges`; `None` if these are too many.
fn splice<'a, A: Address>(
    old: &Line<Entry>,
    ranges: Slice<'a, A>,
    extent: Prefix<A>,
    depth: u8,
) -> Option<Line<Target<'a, A>>> {
    let slot_of = |addr| bits(addr, depth, LINE_BITS) as u16;
    let (first, last) = (slot_of(extent.first()), slot_of(extent.last()));
    let keep = |entry: Entry| match entry.node() {
        None => Target::Leaf(Label(entry.0)),
        Some(_) => Target::Kept(entry),
    };
    let mut new = Line::new(0, keep(old.at(0)));
    for (slot, entry) in old.iter().filter(|&(slot, _)| slot < first) {
        new.push(slot, keep(entry))?;
    }
    for (slot, target) in Line::plan(ranges, extent, depth)?.iter() {
        new.push(slot, target)?;
    }
    if let Some(behind) = last.checked_add(1) {
        new.push(behind, keep(old.at(behind)))?;
        for (slot, entry) in old.iter().filter(|&(slot, _)| slot > behind) {
            new.push(slot, keep(entry))?;
        }
    }
    Some(new)
}

impl<A: Address> Space for Writer<A> {
    fn take(&mut self, cells: u32) -> Result<u32, Outgrown> {
        let cell = match self.free[usize::from(cells > 1)].pop() {
            Some(cell) => cell,
            None => {
                let capacity = self.trie.cells.len() / CELL;
                if (self.fresh + cells) as usize > capacity {
                    return Err(Outgrown { what: format!("all {capacity} cells are in use") });
                }
                self.fresh += cells;
                self.fresh - cells
            }
        };
        self.trie.used.fetch_add(cells as usize, Ordering::Relaxed);
        Ok(cell)
    }

    fn set(&mut self, word: usize, entry: u32) {
        self.trie.cells[word].store(entry, Ordering::Relaxed);
        self.note(word);
    }
}

impl<A: Address> FibWriter<A> for Writer<A> {
    fn fib(&self) -> Arc<dyn Fib<A>> {
        self.trie.clone()
    }

    fn patch(&mut self, rib: &Rib<A>, changed: &[Prefix<A>]) -> Result<(), Outgrown> {
        if self.outgrown {
            return Err(Outgrown { what: "an earlier patch was refused".into() });
        }
        self.reclaim();
        let root_bits = self.trie.root_bits;
        for &prefix in changed {
            let done = self.patch_children(rib, 0, root_bits, Prefix::DEFAULT, prefix);
            self.outgrown = done.is_err();
            done?;
        }
        if !self.unlinked.is_empty() {
            self.waiting.push_back((self.domain.advance(), std::mem::take(&mut self.unlinked)));
            self.reclaim();
        }
        Ok(())
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<A>,
        changed: &[Prefix<A>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        self.stored = Some(Vec::new());
        let done = self.patch(rib, changed);
        for word in self.stored.take().unwrap_or_default() {
            probe.write(std::ptr::from_ref(&self.trie.cells[word]).addr(), size_of::<AtomicU32>());
        }
        done
    }
}
