//! The production flow table: keys and state in one array, a cache line of tags for every 31 of them, bounded work for everything.
//!
//! ```text
//! hash      | 63 ... 32: bucket | 31 ... 16: shard | 15 ... 0: tag |
//!
//! tags      | t0 t1 ... t30 strays |  64 bytes a bucket: one line
//!              |
//! entries   | key | head: stamp, flags | state |   slot = bucket * 31 + lane
//! ```
//!
//! A key has two buckets: its home (the high half of the hash) and another (a reflection by the tag). It goes home as long as there
//! is room, else to the other, else one entry of the two buckets is moved to its own other bucket. A bucket counts
//! its *strays*, the keys that had to go elsewhere: while there are none, a look at home is enough.
//!
//! Of a bucket's free lanes the lowest is taken whose entry lies on one line; entries of 40 bytes do in every second lane, so that up to a load of 0.4 hardly one
//! lies on two.
//!
//! A hit touches one line of tags and the entry (at a load of 0.9 one in thirty another line of tags). A miss touches one line of
//! tags, two if home has strays. A bucket has at most [`MOST_EQUAL_TAGS`] keys of one tag, so no lookup compares more than twice as
//! many keys, whatever the keys are.
//!
//! | work of | lines of 64 bytes at most |
//! |---|---|
//! | lookup | 2 of tags, 8 entries: [`FlowTable::LOOKUP_LINES`] |
//! | insertion | a lookup, [`SEARCH`] of tags, one move (2 entries, 2 versions), the entry: [`FlowTable::INSERT_LINES`] |
//! | a packet of a flood into a full table | a lookup; a search is tried in one batch of [`LONGEST_REST`] + 1 |
//! | a batch of n packets | n lookups, and an insertion more for each of them that searches: one at most that fails |
//! | replacement in a full table | a look at the key's 2 buckets, the 62 entries there |
//!
//! This is what Fu's thesis (2020, section 4.5.6 and chapter 5) asks of a flow table and finds in none: high lookup speed, high
//! insertion speed and high occupancy at once, without the second copy of the keys that DPDK's hash table keeps. Tags in front and
//! two choices are the field's common stock (MemC3, F14, Swiss tables); buckets of a whole line make overflow rare, and the other
//! bucket by reflection serves any number of buckets, not only powers of two.
//!
//! One thread writes ([`FlowTable`]); any number read without locks ([`FlowReader`]); `store.rs` says why that is right. The
//! capacity is fixed and its memory there from the start: growing would stop the world.

mod batch;
mod expire;
#[allow(unsafe_code)]
mod group;
mod insert;
mod lookup;
mod model;
mod reader;
mod rekey;
mod store;
mod tags;
#[cfg(all(test, not(loom)))]
mod tests;

pub use expire::Swept;
pub use insert::{LONGEST_REST, MOST_EQUAL_TAGS, SEARCH};
pub use reader::{Flow, FlowReader};
pub use rekey::Busy;

use crate::hash::{KeyHash, Keyed};
use crate::key::Key;
use crate::table::SizeError;
use crate::words::Ordering;
use rekey::Generation;
use std::hint::select_unpredictable;
use std::num::NonZeroU32;
use std::sync::Arc;
use store::Store;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Slots that a table can have: their numbers have 32 bits.
pub const MOST_SLOTS: usize = store::MOST_SLOTS / tags::LANES * tags::LANES;

/// What a flow's state can be: plain data, a whole number of 8-byte words (checked by the compiler), all zeros at first.
pub trait State: FromBytes + IntoBytes + Immutable + Copy {}
impl<T: FromBytes + IntoBytes + Immutable + Copy> State for T {}

/// Where a flow lies. Good until the next insertion, which may move flows (a batch corrects the slots that it has given out
/// itself), removal, expiry or step of a re-keying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(NonZeroU32);

impl Slot {
    #[inline(always)]
    fn new(index: usize) -> Self {
        Slot(NonZeroU32::MIN.saturating_add(index as u32))
    }

    /// The slot of this index where it is `there`, without a jump that depends on it.
    #[inline(always)]
    fn new_if(there: bool, index: u32) -> Option<Self> {
        NonZeroU32::new(select_unpredictable(there, index.wrapping_add(1), 0)).map(Slot)
    }

    /// From 0 up to the table's slots: for arrays beside the table.
    #[inline(always)]
    pub fn index(self) -> usize {
        (self.0.get() - 1) as usize
    }
}

/// What became of one key of [`FlowTable::find_or_insert_batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was there; its stamp is now.
    Found(Slot),
    /// It is there now, with a state of zeros, or what it was to begin with.
    New(Slot),
    /// It is new and there is no room for it, or none was searched for (see [`FlowTable::find_or_insert_batch`]), or no more are wanted
    /// ([`FlowTable::keep_free`]).
    Full,
}

impl Outcome {
    /// The slot, if there is one.
    #[inline(always)]
    pub fn slot(self) -> Option<Slot> {
        match self {
            Outcome::Found(slot) | Outcome::New(slot) => Some(slot),
            Outcome::Full => None,
        }
    }
}

/// What a table has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Insertions that found room.
    pub inserted: u64,
    /// Insertions that found none after a search.
    pub failed: u64,
    /// New keys that were turned away without a search: one of their batch or of those just before had failed, or the table has as many flows
    /// as it may ([`FlowTable::keep_free`]).
    pub skipped: u64,
    /// Entries moved to their other bucket.
    pub moves: u64,
    /// Flows that gave way to others ([`FlowTable::find_or_replace`]).
    pub replaced: u64,
    /// Buckets that sweeps have looked at ([`FlowTable::sweep`], [`FlowTable::expire`]).
    pub swept: u64,
}

/// The table, for the one thread that writes. See the [module](self).
pub struct FlowTable<const W: usize, S: State = u64, H = Keyed<W>> {
    store: Arc<Store<W, S>>,
    /// A hold on it for batches, which look ahead while they change the table. Each takes it and gives it back: one more hold a batch would be
    /// counted, twice, and a processor counts when all its stores are done.
    aside: Option<Arc<Store<W, S>>>,
    generation: Arc<Generation<H>>,
    /// Entries that still lie where the hash before this one put them.
    old: usize,
    rekey_cursor: u32,
    expire_cursor: u32,
    len: usize,
    /// Batches make no flow where there are so many.
    most: usize,
    /// Batches to come that do without searches, and how many searches have failed in a row.
    rest: u32,
    failures: u32,
    counters: Counters,
}

impl<const W: usize, S: State, H> std::fmt::Debug for FlowTable<W, S, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (len, slots) = (self.len, self.slots());
        f.debug_struct("FlowTable").field("len", &len).field("slots", &slots).finish_non_exhaustive()
    }
}

impl<const W: usize, S: State, H> FlowTable<W, S, H> {
    /// Bytes of an entry.
    pub const ENTRY_BYTES: usize = Store::<W, S>::STRIDE * 8;
    /// Bytes of memory for each slot: the entry, and its part of a bucket's 64 bytes of tags and 8 of version. A flow costs this
    /// divided by the load.
    pub const BYTES_PER_SLOT: f64 = Self::ENTRY_BYTES as f64 + 72.0 / tags::LANES as f64;
    /// Cache lines that an entry can lie on: one if 64 is a multiple of its size.
    pub const ENTRY_LINES: usize = match Self::ENTRY_BYTES {
        8 | 16 | 32 | 64 => 1,
        bytes => (bytes + 56).div_ceil(64),
    };
    /// No lookup touches more cache lines; twice as many while a re-keying is under way.
    pub const LOOKUP_LINES: usize = 2 + 2 * MOST_EQUAL_TAGS * Self::ENTRY_LINES;
    /// No insertion touches more cache lines, its lookup included; a lookup and two lines more while a re-keying is under way.
    pub const INSERT_LINES: usize = Self::LOOKUP_LINES + SEARCH + 3 * Self::ENTRY_LINES + 2;

    /// Slots: the number asked for, rounded up to whole buckets of thirty-one.
    pub fn slots(&self) -> usize {
        self.store.slots()
    }

    /// Buckets: what sweeps are counted in.
    pub fn buckets(&self) -> usize {
        self.store.buckets as usize
    }

    /// Flows in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the table occupies.
    pub fn bytes(&self) -> usize {
        self.store.bytes()
    }

    /// What it has done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The hash that callers bring for their keys now; another one after [`rekey`](Self::rekey).
    #[inline(always)]
    pub fn hasher(&self) -> &H {
        &self.generation.hasher
    }

    /// The key of a flow.
    #[inline(always)]
    pub fn key(&self, slot: Slot) -> Key<W> {
        self.store.key(slot.index())
    }

    /// When the flow was last found or inserted: the `now` of then.
    #[inline(always)]
    pub fn stamp(&self, slot: Slot) -> u32 {
        self.store.head(slot.index()).load(Ordering::Relaxed) as u32
    }

    /// Says that the flow was found now, where that was not by [`find_or_insert_batch`](Self::find_or_insert_batch).
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot, now: u32) {
        self.store.stamp(slot.index(), now, &());
    }

    /// Asks the cache for the flow's state, where that is on other lines than its key (an entry longer than a line): for who has looked up many
    /// flows and goes through their states next.
    #[inline(always)]
    pub fn prefetch_state(&self, slot: Slot) {
        self.store.prefetch_state(slot.index());
    }

    /// Asks the cache for what taking the flow out touches, beside what finding it has: its state and its bucket's version.
    #[inline(always)]
    pub fn prefetch_remove(&self, slot: Slot) {
        self.store.prefetch_state(slot.index());
        self.store.prefetch_version(slot.index());
    }

    /// The flow's state.
    #[inline(always)]
    pub fn state(&self, slot: Slot) -> S {
        self.store.state(slot.index())
    }

    /// Changes the flow's state. Readers see all of it or nothing of it; they wait the few stores that it takes if the state is of several
    /// words. For counters use [`set_word`](Self::set_word).
    #[inline(always)]
    pub fn set_state(&mut self, slot: Slot, state: S) {
        let store = &self.store;
        if Store::<W, S>::STATE > 1 {
            store.change_state(slot.index(), &state);
        } else {
            store.set_state(slot.index(), &state);
        }
    }

    /// Word `i` of the flow's state.
    ///
    /// # Panics
    /// If a state has no such word.
    #[inline(always)]
    pub fn word(&self, slot: Slot, i: usize) -> u64 {
        self.store.entry(slot.index())[W + 1..][i].load(Ordering::Relaxed)
    }

    /// Word `i` of a flow's state, or `absent` where there is no flow, without a jump that depends on it: for the answers to a burst of which nobody
    /// knows which packets are of known flows.
    ///
    /// # Panics
    /// If a state has no such word.
    #[inline(always)]
    pub fn word_or(&self, slot: Option<Slot>, i: usize, absent: u64) -> u64 {
        // Where there is none slot 0 is read, in vain.
        let number = slot.map_or(0, |slot| slot.0.get());
        let word = self.store.entry(number.saturating_sub(1) as usize)[W + 1..][i].load(Ordering::Relaxed);
        select_unpredictable(number != 0, word, absent)
    }

    /// Changes word `i` of the flow's state: one store. Readers see each word whole, but may see words of different moments.
    ///
    /// # Panics
    /// If a state has no such word.
    #[inline(always)]
    pub fn set_word(&mut self, slot: Slot, i: usize, value: u64) {
        self.store.entry(slot.index())[W + 1..][i].store(value, Ordering::Relaxed);
    }
}

impl<const W: usize, S: State, H: KeyHash<W> + Clone> FlowTable<W, S, H> {
    /// An empty table of at least `slots` slots, its memory there already. It takes new flows up to a load of 0.95 and more;
    /// its callers hash with `hasher`, or bring hashes that are the same function (an RSS hash that the NIC computed).
    ///
    /// # Errors
    /// See [`SizeError`]: slots have 32-bit numbers.
    pub fn new(slots: usize, hasher: H) -> Result<Self, SizeError> {
        Ok(FlowTable {
            store: Arc::new(Store::new(slots)?),
            aside: None,
            generation: Arc::new(Generation::first(hasher)),
            old: 0,
            rekey_cursor: 0,
            expire_cursor: 0,
            len: 0,
            most: usize::MAX,
            rest: 0,
            failures: 0,
            counters: Counters::default(),
        })
    }

    /// Keeps slots free: a batch ([`find_or_insert_batch`](Self::find_or_insert_batch)) makes no flow where there are `most`. What makes one flow at a time may use all
    /// slots. Up to a load of 0.8 nearly every new flow goes home, and no search fails; a batch at the bound looks for no room at all.
    pub fn keep_free(&mut self, most: usize) {
        self.most = most;
    }
}
