//! Ways through the tables, and the numbers that one worker has given them.

use super::action::Travelling;
use crate::decider::Decider;
use crate::key::{Key, Mask};
use crate::live::Snapshot;
use crate::rule::{Rank, RuleId};
use hashbrown::HashMap;

/// The most rules on a way: a packet that would need more is dropped.
pub const DEPTH: usize = 16;

/// Keys that the first table is asked for at once.
const TOGETHER: usize = 32;

/// How a way ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The last rule names no other table.
    Done,
    /// The table that the last rule names (without a rule: the first) has no match, or is not there.
    Miss,
    /// A table cannot look: see the [module](super).
    Stacked,
    /// More rules than [`DEPTH`].
    Deep,
}

/// The rules that a packet meets, in the order of the tables, and how that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Way {
    rules: [u32; DEPTH],
    len: u8,
    end: End,
}

/// What a way was found by in one table: for whoever asks why.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The table.
    pub table: u8,
    /// What it looked at: the packet's key as earlier actions have made it.
    pub key: Key,
    /// The bits of it that it looked at, those that actions have written included.
    pub looked: Mask,
    /// The first match.
    pub rule: Option<RuleId>,
}

impl Way {
    /// Through no table at all.
    const START: Way = Way { rules: [0; DEPTH], len: 0, end: End::Miss };

    /// The rules.
    #[inline(always)]
    pub fn rules(&self) -> impl Iterator<Item = RuleId> + '_ {
        self.rules.iter().take(usize::from(self.len)).map(|&id| RuleId(id))
    }

    /// How it ends.
    #[inline(always)]
    pub fn end(&self) -> End {
        self.end
    }

    pub(super) fn from_rules(rules: &[RuleId], end: End) -> Self {
        let mut way = Way { end, ..Way::START };
        for id in rules {
            way.push(*id);
        }
        way
    }

    /// Another rule; false if there is no room.
    fn push(&mut self, id: RuleId) -> bool {
        match self.rules.get_mut(usize::from(self.len)) {
            Some(place) => {
                *place = id.0;
                self.len += 1;
                true
            }
            None => false,
        }
    }
}

impl Snapshot {
    /// The way of a key, and all bits of the key that it was found by. `each` is told every table on the way.
    pub fn walk(&self, key: &Key, mut each: impl FnMut(Step)) -> (Way, Mask) {
        let (mut travelling, mut seen, mut way) = (Travelling::new(key), Mask::NONE, Way::START);
        let mut table = 0_u8;
        way.end = loop {
            if travelling.stacked {
                break End::Stacked;
            }
            let Some(space) = self.tables().get(usize::from(table)) else { break End::Miss };
            let (rank, looked) = space.lookup_wild(&travelling.key);
            let written = travelling.written;
            seen = seen.or(&Mask(std::array::from_fn(|i| looked.0[i] & !written.0[i])));
            each(Step { table, key: travelling.key, looked, rule: rank.rule() });
            let Some(id) = rank.rule() else { break End::Miss };
            if !way.push(id) {
                break End::Deep;
            }
            let instructions = self.entry(id).map(|entry| &entry.instructions);
            let Some((next, instructions)) = instructions.and_then(|i| Some((i.goto?, i))) else {
                break End::Done;
            };
            for action in &instructions.actions {
                travelling.apply(action, |bits| seen = seen.or(&bits));
            }
            table = next;
        };
        (way, seen)
    }

    /// The ways of some keys, without the bits: those that [`walk`](Self::walk) gives. The first table is asked for many keys at once.
    pub fn walk_batch(&self, keys: &[Key], mut each: impl FnMut(usize, Way)) {
        for (group, keys) in keys.chunks(TOGETHER).enumerate() {
            let mut first = [Rank::NONE; TOGETHER];
            self.lookup_batch(keys, &mut first[..keys.len()]);
            for (at, (key, rank)) in keys.iter().zip(first).enumerate() {
                each(group * TOGETHER + at, self.walk_on(key, rank));
            }
        }
    }

    /// The way of a key by its first match in the first table.
    fn walk_on(&self, key: &Key, mut rank: Rank) -> Way {
        let (mut way, mut travelling) = (Way::START, None);
        way.end = loop {
            let Some(id) = rank.rule() else { break End::Miss };
            if !way.push(id) {
                break End::Deep;
            }
            let instructions = self.entry(id).map(|entry| &entry.instructions);
            let Some((next, instructions)) = instructions.and_then(|i| Some((i.goto?, i))) else {
                break End::Done;
            };
            let travelling = travelling.get_or_insert_with(|| Travelling::new(key));
            instructions.actions.iter().for_each(|action| travelling.apply(action, |_| {}));
            if travelling.stacked {
                break End::Stacked;
            }
            let Some(space) = self.tables().get(usize::from(next)) else { break End::Miss };
            rank = space.lookup(&travelling.key);
        };
        way
    }

    /// Whether a table that a way comes by has a rule that asks for what lies above IPv6: what cannot be known of a packet that is
    /// [`unfollowed`](crate::packet::unfollowed), so that its way is none to trust.
    pub fn way_asks_above_ipv6(&self, way: &Way) -> bool {
        self.way_asks(way, |table| self.asks_above_ipv6(table))
    }

    /// Whether a table that a way comes by has a rule that asks for what a transport header has: what is not all there of a packet
    /// that is [`cut_first`](crate::packet::cut_first), so that its way is none to trust either.
    pub fn way_asks_transport(&self, way: &Way) -> bool {
        self.way_asks(way, |table| self.asks_transport(table))
    }

    fn way_asks(&self, way: &Way, asks: impl Fn(u8) -> bool) -> bool {
        let next = |id: RuleId| self.entry(id)?.instructions.goto;
        asks(0) || way.rules().filter_map(next).any(asks)
    }

    /// Whether a way of version `since`, found by `mask` of `key`, is one of this version too, as far as remembered changes tell.
    pub fn way_holds(&self, way: &Way, since: u64, key: &Key, mask: &Mask) -> bool {
        if !self.remembers(since) {
            return false;
        }
        let (mut travelling, mut table) = (Travelling::new(key), 0_u8);
        let mut rules = way.rules();
        loop {
            if travelling.stacked {
                return true;
            }
            if self.touched(since, table, &travelling.key, &mask.or(&travelling.written)) {
                return false;
            }
            // No change has met the packets in this table: the rule is the one that it was.
            let Some(id) = rules.next() else { return true };
            let instructions = self.entry(id).map(|entry| &entry.instructions);
            let Some((next, instructions)) = instructions.and_then(|i| Some((i.goto?, i))) else {
                return true;
            };
            instructions.actions.iter().for_each(|action| travelling.apply(action, |_| {}));
            table = next;
        }
    }
}

/// A way by its number with one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WayId(pub u64);

impl From<u64> for WayId {
    fn from(number: u64) -> Self {
        WayId(number)
    }
}

impl From<WayId> for u64 {
    fn from(id: WayId) -> Self {
        id.0
    }
}

/// Bit of a number that says that its way is good for these keys only.
const PASSING: u64 = 1 << 32;

/// Ways that go by in one call without room for them.
const PASSING_ROOM: usize = 256;

/// The ways that one worker's cache has entries for, with numbers. All memory is there from the start, as long as no more than 256 keys are
/// decided at once.
pub struct Ways {
    slots: Vec<Way>,
    /// Entries that have each; those at 0 are in `idle` or free.
    held: Vec<u32>,
    by_way: HashMap<Way, u32>,
    free: Vec<u32>,
    /// Ways that had no entry at some time: looked at when the next keys come.
    idle: Vec<u32>,
    /// Whether a way is in `idle`.
    listed: Vec<bool>,
    passing: Vec<Way>,
    most: usize,
}

impl std::fmt::Debug for Ways {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ways").field("ways", &self.by_way.len()).finish_non_exhaustive()
    }
}

impl Ways {
    /// Room for `most`. Decisions that find no room are not cached.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, u32::MAX as usize >> 1);
        Ways {
            slots: Vec::with_capacity(most),
            held: Vec::with_capacity(most),
            by_way: HashMap::with_capacity(2 * most),
            free: Vec::with_capacity(most),
            idle: Vec::with_capacity(most),
            listed: Vec::with_capacity(most),
            passing: Vec::with_capacity(PASSING_ROOM),
            most,
        }
    }

    /// A way that a cache has given the number of, until keys come to that cache again.
    #[inline(always)]
    pub fn get(&self, id: WayId) -> &Way {
        let (list, at) =
            if id.0 & PASSING == 0 { (&self.slots, id.0) } else { (&self.passing, id.0 & !PASSING) };
        list.get(at as usize).unwrap_or(&Way::START)
    }

    /// Ways that have numbers.
    pub fn len(&self) -> usize {
        self.by_way.len()
    }

    /// Whether none has.
    pub fn is_empty(&self) -> bool {
        self.by_way.is_empty()
    }

    /// Forgets what no entry has.
    fn begin(&mut self) {
        self.passing.clear();
        while let Some(number) = self.idle.pop() {
            let at = number as usize;
            self.listed[at] = false;
            if self.held[at] == 0 {
                self.by_way.remove(&self.slots[at]);
                self.free.push(number);
            }
        }
    }

    fn number(&mut self, way: &Way) -> WayId {
        if let Some(&number) = self.by_way.get(way) {
            return WayId(number.into());
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = *way;
                number
            }
            None if self.slots.len() < self.most => {
                self.slots.push(*way);
                self.held.push(0);
                self.listed.push(false);
                self.slots.len() as u32 - 1
            }
            None => {
                self.passing.push(*way);
                return WayId(PASSING | (self.passing.len() as u64 - 1));
            }
        };
        self.by_way.insert(*way, number);
        self.list(number);
        WayId(number.into())
    }

    fn list(&mut self, number: u32) {
        if !std::mem::replace(&mut self.listed[number as usize], true) {
            self.idle.push(number);
        }
    }

    fn hold(&mut self, number: u64) {
        if let Some(held) = self.held.get_mut(number as usize) {
            *held += 1;
        }
    }

    fn release(&mut self, number: u64) {
        let Some(held) = self.held.get_mut(number as usize) else { return };
        *held = held.saturating_sub(1);
        if *held == 0 {
            self.list(number as u32);
        }
    }

    /// Compares its counts with what a cache has: for tests.
    ///
    /// # Errors
    /// The first thing found.
    pub fn check(&self, held: &std::collections::BTreeMap<u64, u32>) -> Result<(), String> {
        for (number, &counted) in (0_u64..).zip(&self.held) {
            let there = held.get(&number).copied().unwrap_or(0);
            if counted != there {
                return Err(format!("way {number}: counted {counted}, {there} entries have it"));
            }
        }
        match held.keys().find(|&&number| number >= self.held.len() as u64) {
            Some(number) => Err(format!("an entry has way {number:#x}, which is none")),
            None if self.by_way.len() + self.free.len() != self.slots.len() => Err(format!(
                "{} ways and {} free of {}",
                self.by_way.len(),
                self.free.len(),
                self.slots.len()
            )),
            None => Ok(()),
        }
    }
}

/// A snapshot's tables with one worker's ways: what its cache asks.
#[derive(Debug)]
pub struct Walker<'a> {
    snapshot: &'a Snapshot,
    ways: &'a mut Ways,
}

impl<'a> Walker<'a> {
    /// For one call.
    pub fn new(snapshot: &'a Snapshot, ways: &'a mut Ways) -> Self {
        Walker { snapshot, ways }
    }
}

impl Decider for Walker<'_> {
    type Decision = WayId;

    #[inline(always)]
    fn version(&self) -> u64 {
        self.snapshot.version()
    }

    fn begin(&mut self) {
        self.ways.begin();
    }

    fn decide(&mut self, key: &Key) -> (WayId, Mask) {
        let (way, mask) = self.snapshot.walk(key, |_| {});
        (self.ways.number(&way), mask)
    }

    fn decide_batch(&mut self, keys: &[Key], out: &mut [WayId]) {
        let Walker { snapshot, ways } = self;
        // Packets of a flood mostly go one way.
        let mut last: Option<(Way, WayId)> = None;
        snapshot.walk_batch(keys, |at, way| {
            let same = last.filter(|(other, _)| *other == way);
            let (_, id) = *last.insert(same.unwrap_or_else(|| (way, ways.number(&way))));
            if let Some(out) = out.get_mut(at) {
                *out = id;
            }
        });
    }

    fn lines(&self, key: &Key) -> usize {
        let mut lines = 0;
        self.snapshot.walk(key, |step| {
            lines += self.snapshot.lines(step.table, &step.key);
        });
        lines
    }

    fn still_holds(&self, decision: u64, since: u64, key: &Key, mask: &Mask) -> bool {
        let way = self.ways.get(WayId(decision));
        self.snapshot.way_holds(way, since, key, mask)
    }

    fn keeps(&self, decision: u64) -> bool {
        decision & PASSING == 0
    }

    #[inline]
    fn hold(&mut self, decision: u64) {
        self.ways.hold(decision);
    }

    #[inline]
    fn release(&mut self, decision: u64) {
        self.ways.release(decision);
    }
}
