//! One worker's connections of one family. A source has so many of them and no more; and those that nobody has answered are a bounded number, in which
//! the oldest gives way: half-open ones of TCP for themselves, those of other protocols for themselves. So who forges sources turns over those,
//! and takes nothing from connections that two sides have.
//!
//! Who has real ones, that are answered, may have fewer of them in the last quarter of the room, so that there is some for others:
//!
//! ```text
//! a source may have begun   states_per_source -------------------.
//!                                                                 '--.
//!                                                                     '-- 1
//! that are answered         none                   3/4 of the room     all of it
//! ```
//!
//! So n sources that take all they can, and may have a share s of the room each, come to rest where each has s / (1/4 + n s) of it: 16 with a sixteenth each where a fifth is left.
//!
//! A new connection touches some fifteen lines of memory that are in no cache, each of which would be waited for: tags and entry in three tables, for itself and for who gives way
//! for it. So a burst's new ones are asked for together before the first is put in (`States::ask_ahead`), stage by stage, and each stage finds what the one before it has brought:
//!
//! ```text
//! where they will lie        a free slot of the table                    its tags are here: they were looked up
//! who gives way for them     their sources among those that wait; the oldest places
//! what these leave           entry and version; their sources among those that wait
//! who has begun how many     sources of both
//! ```
//!
//! These are hints: what is put in, and who gives way, is decided one by one afterwards, as if nobody had asked.

use crate::filter::connection::{Connection, HALF, HEAD, Head, Words};
use crate::filter::half::{AHEAD, HalfOpen, NONE, key_of};
use crate::filter::net::{Net, protocol_of};
use crate::filter::settings::Plan;
use std::marker::PhantomData;
use tidemill_flow::flowtable::{FlowReader, FlowTable, MOST_SLOTS, Outcome, Slot, State, Swept};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;

/// Flows of a bucket of the flow table.
const LANES: usize = 31;

/// Connections that there can be room for: an eighth more are slots.
pub const MOST_STATES: usize = (MOST_SLOTS - LANES) / 9 * 8;

/// Which of the two lists a connection waits in.
const TCP: usize = 0;
const OTHERS: usize = 1;

/// Connections that had to give way to a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) half_open: u64,
    pub(crate) unanswered: u64,
}

/// Why a new one has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Its source has as many as it may have.
    Source,
    /// Everything is taken.
    Full,
}

/// See the [module](self).
pub struct States<A, const W: usize> {
    pub(super) table: FlowTable<W, Words>,
    waiting: [HalfOpen<W>; 2],
    /// Of each source: how many it has begun.
    sources: FlowTable<2, u64>,
    of_source: u64,
    room: usize,
    /// Connections taken out.
    gone: u64,
    family: PhantomData<A>,
}

impl<A: Net<W>, const W: usize> States<A, W> {
    /// Bytes of memory for each connection that there is room for, with its source.
    pub(crate) const BYTES_PER_STATE: f64 =
        (FlowTable::<W, Words>::BYTES_PER_SLOT + FlowTable::<2, u64>::BYTES_PER_SLOT) * 9.0 / 8.0;
    /// Bytes of memory for each that may wait for an answer.
    pub(crate) const BYTES_PER_WAITING: f64 = HalfOpen::<W>::BYTES_PER_PLACE;

    pub(crate) fn new(plan: &Plan, secret: u128) -> Result<Self, SizeError> {
        let room = plan.states.max(1);
        // Up to nine tenths of the slots are taken: there is room for every connection.
        let slots = room + room / 8 + LANES;
        Ok(States {
            table: FlowTable::new(slots, Keyed::new(secret))?,
            waiting: [
                HalfOpen::new(plan.half_open.min(room), plan.half_open_per_source, !secret)?,
                HalfOpen::new(plan.unanswered.min(room), plan.unanswered_per_source, secret.rotate_left(1))?,
            ],
            sources: FlowTable::new(slots, Keyed::new(secret.rotate_left(2)))?,
            of_source: plan.states_per_source.max(1).into(),
            room,
            gone: 0,
            family: PhantomData,
        })
    }

    /// Connections.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Half-open ones.
    pub fn half_open(&self) -> usize {
        self.waiting[TCP].len()
    }

    /// Those of other protocols than TCP that nobody has answered.
    pub fn unanswered(&self) -> usize {
        self.waiting[OTHERS].len()
    }

    /// Sources that have begun any.
    pub fn sources(&self) -> usize {
        self.sources.len()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.sources.bytes() + self.waiting.iter().map(HalfOpen::bytes).sum::<usize>()
    }

    /// Buckets of the sweep's whole round.
    pub fn buckets(&self) -> usize {
        self.table.slots() / LANES
    }

    pub(crate) fn reader(&self) -> FlowReader<W, Words> {
        self.table.reader()
    }

    /// Another number whenever slots may have become others'.
    pub(crate) fn epoch(&self) -> u64 {
        self.table.counters().moves.wrapping_add(self.gone)
    }

    pub(crate) fn find(&self, key: &Key<W>) -> Option<Slot> {
        self.table.find(self.table.hasher().hash(key), key)
    }

    pub(crate) fn connection(&self, slot: Slot) -> Connection {
        Connection::unpack(&self.table.state(slot))
    }

    /// What a packet has changed: each word by a store of its own. Readers see every word whole.
    pub(crate) fn note(&mut self, slot: Slot, before: &Connection, after: &Connection) {
        let (before, after) = (before.pack(), after.pack());
        for (i, (before, after)) in before.iter().zip(after).enumerate() {
            if *before != after {
                self.table.set_word(slot, i, after);
            }
        }
    }

    /// It waits for no answer any longer.
    pub(crate) fn opened(&mut self, key: &Key<W>, connection: &mut Connection) {
        self.waiting[list_of(key)].take(connection.half);
        connection.half = NONE;
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, key: &Key<W>) -> bool {
        let Some(slot) = self.find(key) else { return false };
        let (head, half) = (Head(self.table.word(slot, HEAD)), self.table.word(slot, HALF) as u32);
        self.table.discard_at(slot);
        self.gone += 1;
        forget::<A, W>(&mut self.waiting, &mut self.sources, key, head, half);
        true
    }

    /// Asks the cache for what [`insert`](Self::insert) of these will touch: their keys, and whether the lower end begins them. See the [module](self).
    pub(crate) fn ask_ahead(&mut self, new: &[(Key<W>, bool)]) {
        for list in [TCP, OTHERS] {
            let (mut keys, mut sources) = ([Key([0; W]); AHEAD], [Key([0; 2]); 2 * AHEAD]);
            let mut count = 0;
            for (key, origin_low) in new.iter().filter(|(key, _)| list_of(key) == list).take(AHEAD) {
                keys[count] = *key;
                sources[count] = key_of(source_of::<A, W>(key, *origin_low));
                count += 1;
            }
            if count > 0 {
                self.ask_places(&keys[..count]);
                let gone = self.ask_who_gives_way(list, count, &mut keys, &mut sources);
                self.ask_departures(list, &keys[..gone], &sources[count..count + gone]);
                self.ask_sources(&sources[..count + gone]);
            }
        }
    }

    /// Where new ones will lie.
    fn ask_places(&self, new: &[Key<W>]) {
        for key in new {
            self.table.prefetch_insert(self.table.hasher().hash(key));
        }
    }

    /// Who gives way for so many new ones of these sources: their number. Their keys come to the front of `keys`, their sources behind those of the new ones.
    fn ask_who_gives_way(
        &mut self,
        list: usize,
        count: usize,
        keys: &mut [Key<W>; AHEAD],
        sources: &mut [Key<2>; 2 * AHEAD],
    ) -> usize {
        let spare = self.room.saturating_sub(self.table.len());
        let (new, old) = sources.split_at_mut(count);
        let mut gone = 0;
        self.waiting[list].ask_ahead(new, spare, |key, source| {
            (keys[gone], old[gone]) = (key, source);
            gone += 1;
        });
        gone
    }

    /// What those leave that give way.
    fn ask_departures(&self, list: usize, keys: &[Key<W>], sources: &[Key<2>]) {
        let (mut hashes, mut slots) = ([0_u64; AHEAD], [None; AHEAD]);
        self.table.hasher().hash_batch(keys, &mut hashes);
        self.table.lookup_batch(&hashes, keys, &mut slots);
        slots.into_iter().flatten().for_each(|slot| self.table.prefetch_remove(slot));
        self.waiting[list].ask_sources(sources);
    }

    /// How many each of these has begun.
    fn ask_sources(&self, of: &[Key<2>]) {
        let (mut hashes, mut slots) = ([0_u64; 2 * AHEAD], [None; 2 * AHEAD]);
        self.sources.hasher().hash_batch(of, &mut hashes);
        self.sources.lookup_batch(&hashes, of, &mut slots);
        for (hash, slot) in hashes.iter().zip(slots).take(of.len()) {
            if let Some(slot) = slot {
                self.sources.prefetch_remove(slot);
            } else {
                self.sources.prefetch_insert(*hash);
            }
        }
    }

    /// How many connections one source may have begun by now. Those that wait for an answer take none of the room: they give way.
    fn most_of_source(&self) -> u64 {
        let waiting: usize = self.waiting.iter().map(HalfOpen::len).sum();
        let (spare, scarce) = ((self.room + waiting).saturating_sub(self.table.len()), self.room.div_ceil(4));
        if spare >= scarce {
            return self.of_source;
        }
        (self.of_source.min(self.room as u64) * spare as u64 / scarce as u64).max(1)
    }

    /// Puts a connection in that waits for an answer.
    ///
    /// # Errors
    /// There is no room, whoever may give way.
    pub(crate) fn insert(&mut self, key: &Key<W>, connection: &Connection) -> Result<Evicted, NoRoom> {
        self.insert_of(key, connection, Self::most_of_source)
    }

    /// The same, of a source that may have begun `most`, which is asked for only if it has begun any.
    fn insert_of(
        &mut self,
        key: &Key<W>,
        connection: &Connection,
        most: impl Fn(&Self) -> u64,
    ) -> Result<Evicted, NoRoom> {
        let source = source_of::<A, W>(key, connection.origin_low);
        let (of, list) = (key_of(source), list_of(key));
        let of_hash = self.sources.hasher().hash(&of);
        // Before anybody gives way for it.
        if self.sources.find(of_hash, &of).is_some_and(|slot| self.sources.word(slot, 0) >= most(self)) {
            return Err(NoRoom::Source);
        }
        let mut evicted = [0; 2];
        if let Some(oldest) = self.waiting[list].in_the_way(source) {
            let gone = self.remove(&oldest);
            debug_assert!(gone, "a connection that waits and is not there");
            evicted[list] += u64::from(gone);
        }
        if self.table.len() >= self.room {
            // Those of the other sort give way where there is none of its own.
            let oldest = |list: usize| self.waiting[list].oldest().map(|oldest| (list, oldest));
            let (sort, oldest) = oldest(list).or_else(|| oldest(1 - list)).ok_or(NoRoom::Full)?;
            evicted[sort] += u64::from(self.remove(&oldest));
        }
        let hash = self.table.hasher().hash(key);
        let slot = find_or_make(&mut self.table, hash, key, || connection.pack()).ok_or(NoRoom::Full)?;
        let Some(of_slot) = find_or_make(&mut self.sources, of_hash, &of, || 0) else {
            self.table.discard_at(slot);
            self.gone += 1;
            return Err(NoRoom::Full);
        };
        let count = self.sources.word(of_slot, 0);
        self.sources.set_word(of_slot, 0, count + 1);
        let half = self.waiting[list].add(*key, source);
        self.table.set_word(slot, HALF, half.into());
        Ok(Evicted { half_open: evicted[TCP], unanswered: evicted[OTHERS] })
    }

    /// Puts a connection in that is answered and not there yet; whether there is room, for which nobody gives way. It was begun elsewhere: a table that gets full keeps none out.
    pub(crate) fn restore(&mut self, key: &Key<W>, connection: Connection) -> bool {
        let most = |states: &Self| states.of_source;
        if self.table.len() >= self.room || self.insert_of(key, &connection, most).is_err() {
            return false;
        }
        let Some(slot) = self.find(key) else { return false };
        let before = self.connection(slot);
        let mut after = before;
        self.opened(key, &mut after);
        self.note(slot, &before, &after);
        true
    }

    /// Looks at the connections of the next `buckets` buckets, and ends those whose time is over; returns how many.
    pub(crate) fn reclaim(&mut self, now_ms: u64, buckets: usize) -> usize {
        let (waiting, sources) = (&mut self.waiting, &mut self.sources);
        let gone = self.table.sweep(buckets.min(self.table.slots() / LANES + 1), |key, _, words| {
            let head = Head(words[HEAD]);
            if head.until_ms() > now_ms {
                return Swept::Stays;
            }
            forget::<A, W>(waiting, sources, key, head, words[HALF] as u32);
            Swept::Goes
        });
        self.gone += gone as u64;
        gone
    }
}

/// The slot of a key, whose flow begins with this state if it is new: made where it is written. In a flood into a full table searches for room rest, as in a batch.
fn find_or_make<const W: usize, S: State>(
    table: &mut FlowTable<W, S>,
    hash: u64,
    key: &Key<W>,
    first: impl Fn() -> S,
) -> Option<Slot> {
    let mut out = [Outcome::Full];
    table.find_or_insert_each_with(0, &[hash], std::slice::from_ref(key), &mut out, |_| first());
    out[0].slot()
}

/// A connection is gone: it counts for its source no longer, and waits for nothing.
fn forget<A: Net<W>, const W: usize>(
    waiting: &mut [HalfOpen<W>; 2],
    sources: &mut FlowTable<2, u64>,
    key: &Key<W>,
    head: Head,
    half: u32,
) {
    if half != NONE {
        waiting[list_of(key)].take(half);
    }
    let of = key_of(source_of::<A, W>(key, head.is_origin_low()));
    let hash = sources.hasher().hash(&of);
    if let Some(slot) = sources.find(hash, &of) {
        match sources.word(slot, 0) {
            0 | 1 => sources.discard_at(slot),
            count => sources.set_word(slot, 0, count - 1),
        }
    }
}

fn list_of<const W: usize>(key: &Key<W>) -> usize {
    if protocol_of(key) == 6 { TCP } else { OTHERS }
}

/// Who counts as one source, of who has begun a connection: an IPv6 host has a /64 to itself. VRFs' addresses are others.
fn source_of<A: Net<W>, const W: usize>(key: &Key<W>, origin_low: bool) -> u128 {
    let ends = A::of_key(key);
    let bits: u128 = if origin_low { ends.low.0 } else { ends.high.0 }.into();
    let network = if A::V6 { bits >> 64 } else { bits };
    u128::from(ends.vrf) << 64 | network
}
