//! Tuple space search: a hash table for every combination of masks (Srinivasan, Suri and Varghese, "Packet Classification using Tuple
//! Space Search", 1999), in the order of their best rules, until no table left can have a better one (Open vSwitch's "tuple priority
//! sorting": Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI 2015, section 3.2).
//!
//! ```text
//! order   | best 3 | best 7 | best 90 | ...          a key that has rule 5 is asked for in the first table only
//!             |        |        |
//! tables    /32,/24  /24,/24   any,/16 and port      each: mask, heads, entries with the rest of the rule (`table.rs`)
//! ```
//!
//! Which table a rule lives in is the [`Grouping`]:
//!
//! * [`Grouping::Exact`]: that of its own mask. Ranges of ports are no part of a mask: rules that differ in them alone share a chain.
//! * [`Grouping::Merged`]: one of a few tables with narrower masks, and no more than [`merge::LIMIT`] rules share its bits
//!   (`merge.rs`).
//!
//! | cost of | lines of 64 bytes |
//! |---|---|
//! | a table without a match | one of heads; an entry too where a hash bit collides (1 in 32 for each entry of the chain) |
//! | a table with a match | one of heads, the entries of the chain before it and itself, each of one line with up to two words of mask |
//! | a lookup | that, for each table whose best rule precedes what was found |
//! | an insertion or a removal | a chain, and the place in the order; now and then a table is made anew with twice the heads |
//!
//! Rules that differ in ranges only cost one entry each on the way: a thousand ranges over one address are a chain of a thousand.
//!
//! Of rules that stay as they are ([`TupleSpace::settled`]) the first bits of a key's addresses tell which tables can have a match at all (`reach.rs`).

mod batch;
mod merge;
mod reach;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
mod simd;
mod table;
mod trie;
mod wild;

pub use merge::LIMIT;

use crate::key::{Key, Mask};
use crate::rule::{Match, Rank, Rule, RuleId};
use crate::rules::RuleSet;
use hashbrown::HashMap;
use reach::Reach;
use table::{FAMILIES, PREFIXED, Table, family};
use trie::Trie;

/// Which table a rule lives in. See the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// In that of its own mask: tuple space search.
    Exact,
    /// In one of a few with narrower masks: merged tuples.
    Merged,
}

impl Grouping {
    /// Every grouping.
    pub const ALL: [Grouping; 2] = [Grouping::Exact, Grouping::Merged];

    /// As in results and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Grouping::Exact => "tuple-space",
            Grouping::Merged => "tuple-merge",
        }
    }

    /// The one for a set: both are built, and the one whose lookups touch fewer lines for packets of a sample of its rules is
    /// taken. That costs the time of two builds.
    pub fn for_set(set: &RuleSet) -> Grouping {
        let every = set.len().div_ceil(SAMPLE).max(1);
        let sample: Vec<Key> = set.iter().step_by(every).map(|(_, rule)| rule.matches.first_key()).collect();
        let lines = |grouping| -> usize {
            let space = TupleSpace::build(set, grouping);
            sample.iter().map(|key| space.lookup_counted(key).1.lines).sum()
        };
        if lines(Grouping::Exact) <= lines(Grouping::Merged) { Grouping::Exact } else { Grouping::Merged }
    }
}

/// What a lookup has touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Tables asked.
    pub tables: usize,
    /// Cache lines of heads and entries.
    pub lines: usize,
}

/// Rules in tables by mask. Plain data with one owner: [`crate::live`] publishes it.
#[derive(Clone)]
pub struct TupleSpace {
    grouping: Grouping,
    tables: Vec<Table>,
    /// Numbers of empty tables.
    vacant: Vec<u32>,
    by_mask: HashMap<Mask, u32>,
    /// Tables with rules, by their best ranks.
    order: Vec<(Rank, u32)>,
    /// The table of each rule, by number.
    home: Vec<u32>,
    /// Of each family the fields in [`FAMILIES`]: the prefixes that rules have.
    tries: [[Trie; PREFIXED]; 2],
    /// Of rules that stay as they are.
    reach: Option<Reach>,
    len: usize,
}

impl std::fmt::Debug for TupleSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rules, tables) = (self.len, self.order.len());
        f.debug_struct("TupleSpace").field("rules", &rules).field("tables", &tables).finish_non_exhaustive()
    }
}

const NOWHERE: u32 = u32::MAX;

/// Rules that a choice of grouping is made by.
const SAMPLE: usize = 1000;

impl TupleSpace {
    /// No rules.
    pub fn new(grouping: Grouping) -> Self {
        TupleSpace {
            grouping,
            tables: Vec::new(),
            vacant: Vec::new(),
            by_mask: HashMap::new(),
            order: Vec::new(),
            home: Vec::new(),
            tries: Default::default(),
            reach: None,
            len: 0,
        }
    }

    /// The rules of a set.
    pub fn build(set: &RuleSet, grouping: Grouping) -> Self {
        let mut space = TupleSpace::new(grouping);
        for (id, rule) in set.iter() {
            space.insert(id, rule);
        }
        space
    }

    /// The same rules, grouped otherwise.
    #[must_use]
    pub fn regrouped(&self, grouping: Grouping) -> Self {
        let mut space = TupleSpace::new(grouping);
        for (id, rule) in self.rules() {
            space.insert(id, &rule);
        }
        space
    }

    /// The same for rules that stay as they are: lookups of many keys pass over tables that have no rule for a key's addresses, as far as their first bits tell
    /// (64 KiB more). Any change of the rules ends that. Where there are few tables nothing is done.
    #[must_use]
    pub fn settled(mut self) -> Self {
        if self.order.len() >= reach::FEWEST_TABLES {
            self.reach = Some(Reach::of(&self.tables));
        }
        self
    }

    /// Its rules, the first match first.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, Rule)> {
        let mut all: Vec<(Rank, Match)> = self.tables.iter().flat_map(Table::all).collect();
        all.sort_unstable_by_key(|&(rank, _)| rank);
        all.into_iter()
            .filter_map(|(rank, matches)| Some((rank.rule()?, Rule { matches, priority: rank.priority() })))
    }

    /// How rules are grouped.
    pub fn grouping(&self) -> Grouping {
        self.grouping
    }

    /// Rules.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Tables with rules.
    pub fn tables(&self) -> usize {
        self.order.len()
    }

    /// Bytes that lookups may touch, and the tries.
    pub fn bytes(&self) -> usize {
        let tables: usize = self.tables.iter().map(Table::bytes).sum();
        let tries: usize = self.tries.as_flattened().iter().map(Trie::bytes).sum();
        tables + tries + self.reach.as_ref().map_or(0, Reach::bytes)
    }

    /// The first match.
    #[inline]
    pub fn lookup(&self, key: &Key) -> Rank {
        self.lookup_counted(key).0
    }

    /// The first match, and what it cost.
    #[inline]
    pub fn lookup_counted(&self, key: &Key) -> (Rank, Cost) {
        let (mut best, mut cost) = (Rank::NONE, Cost::default());
        for &(bound, table) in &self.order {
            if bound >= best {
                break;
            }
            let table = &self.tables[table as usize];
            cost.tables += 1;
            cost.lines += 1;
            if let Some(first) = table.first(table.hash(key)) {
                let (rank, entries) = table.search(first, key, best);
                best = best.min(rank);
                cost.lines += entries * table.entry_lines();
            }
        }
        (best, cost)
    }

    /// Puts a rule in. A number that is there already is not put in again (false).
    pub fn insert(&mut self, id: RuleId, rule: &Rule) -> bool {
        if self.home(id) != NOWHERE {
            return false;
        }
        let number = match self.grouping {
            Grouping::Exact => self.table_of(*rule.matches.mask()),
            Grouping::Merged => self.place(&rule.matches),
        };
        self.put(number, Rank::new(rule.priority, id), &rule.matches);
        self.note_prefixes(&rule.matches, true);
        self.len += 1;
        true
    }

    /// Takes a rule out; whether it was there.
    pub fn remove(&mut self, id: RuleId, rule: &Rule) -> bool {
        let number = self.home(id);
        if number == NOWHERE || !self.take(number, Rank::new(rule.priority, id), &rule.matches) {
            return false;
        }
        self.note_prefixes(&rule.matches, false);
        self.len -= 1;
        true
    }

    fn home(&self, id: RuleId) -> u32 {
        self.home.get(id.0 as usize).copied().unwrap_or(NOWHERE)
    }

    /// The table with a mask, which is made if there is none.
    fn table_of(&mut self, mask: Mask) -> u32 {
        if let Some(&number) = self.by_mask.get(&mask) {
            return number;
        }
        let table = Table::new(mask);
        let number = match self.vacant.pop() {
            Some(number) => {
                self.tables[number as usize] = table;
                number
            }
            None => {
                self.tables.push(table);
                self.tables.len() as u32 - 1
            }
        };
        self.by_mask.insert(mask, number);
        number
    }

    fn put(&mut self, number: u32, rank: Rank, matches: &Match) {
        self.reach = None;
        let before = self.tables[number as usize].best();
        self.tables[number as usize].insert(rank, matches);
        self.reorder(number, before);
        if let Some(id) = rank.rule() {
            let i = id.0 as usize;
            if self.home.len() <= i {
                self.home.resize(i + 1, NOWHERE);
            }
            self.home[i] = number;
        }
    }

    fn take(&mut self, number: u32, rank: Rank, matches: &Match) -> bool {
        self.reach = None;
        let table = &mut self.tables[number as usize];
        let before = table.best();
        if !table.remove(rank, matches) {
            return false;
        }
        if table.len() == 0 {
            self.by_mask.remove(table.mask());
            self.vacant.push(number);
        }
        self.reorder(number, before);
        if let Some(id) = rank.rule() {
            self.home[id.0 as usize] = NOWHERE;
        }
        true
    }

    /// Gives a table its place by its best rank now; `before` is what it was.
    fn reorder(&mut self, number: u32, before: Rank) {
        let best = self.tables[number as usize].best();
        if best == before {
            return;
        }
        if before != Rank::NONE {
            let at = self.order.partition_point(|&(rank, _)| rank < before);
            self.order.remove(at);
        }
        if best != Rank::NONE {
            let at = self.order.partition_point(|&(rank, _)| rank < best);
            self.order.insert(at, (best, number));
        }
    }

    fn note_prefixes(&mut self, matches: &Match, more: bool) {
        let Some(number) = family(matches.value(), matches.mask()) else { return };
        for (trie, field) in self.tries[number].iter_mut().zip(FAMILIES[number].1) {
            let Some(length) = matches.mask().prefix_length(field) else { continue };
            let bits = matches.value().get(field) << (128 - field.bits());
            if more { trie.insert(bits, length) } else { trie.remove(bits, length) }
        }
    }

    /// What is wrong with the structure, if anything is: for tests.
    ///
    /// # Errors
    /// The first thing found.
    pub fn check(&self) -> Result<(), String> {
        let mut rules = 0;
        for (number, table) in self.tables.iter().enumerate() {
            table.check()?;
            rules += table.len();
            let listed = self.order.binary_search(&(table.best(), number as u32)).is_ok();
            if listed != (table.len() > 0) {
                return Err(format!("table {number} of {} rules: in the order: {listed}", table.len()));
            }
            for (rank, _) in table.all() {
                if rank.rule().map(|id| self.home(id)) != Some(number as u32) {
                    return Err(format!("{rank:?} is in table {number}, and nobody knows"));
                }
            }
        }
        if rules != self.len || !self.order.is_sorted() || self.order.len() != self.by_mask.len() {
            return Err(format!("{rules} rules of {}, {} tables", self.len, self.order.len()));
        }
        Ok(())
    }
}
