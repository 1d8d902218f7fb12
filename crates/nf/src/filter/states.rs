//! One worker's connections of one family.

use crate::filter::connection::{Connection, Words};
use crate::filter::half::{HalfOpen, NONE};
use crate::filter::net::Net;
use crate::filter::settings::Plan;
use tidemill_flow::flowtable::{FlowReader, FlowTable, Outcome, Slot, Swept};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;

/// Flows of a bucket of the flow table.
const LANES: usize = 31;

/// See the [module](self).
pub struct States<const W: usize> {
    pub(super) table: FlowTable<W, Words>,
    half: HalfOpen<W>,
    room: usize,
    /// Connections taken out.
    gone: u64,
}

impl<const W: usize> States<W> {
    pub(crate) fn new(plan: &Plan, secret: u128) -> Result<Self, SizeError> {
        let room = plan.states.max(1);
        Ok(States {
            // Up to nine tenths of the slots are taken: there is room for every connection.
            table: FlowTable::new(room + room / 8 + LANES, Keyed::new(secret))?,
            half: HalfOpen::new(plan.half_open.min(room), plan.half_open_per_source, !secret)?,
            room,
            gone: 0,
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
        self.half.len()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.half.bytes()
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

    /// It is no longer half-open.
    pub(crate) fn opened(&mut self, connection: &mut Connection) {
        self.half.take(connection.half);
        connection.half = NONE;
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, key: &Key<W>) -> bool {
        let hash = self.table.hasher().hash(key);
        let Some(words) = self.table.remove(hash, key) else { return false };
        self.gone += 1;
        let connection = Connection::unpack(&words);
        if connection.is_half_open() {
            self.half.take(connection.half);
        }
        true
    }

    /// Makes room for a half-open connection of this source; returns how many had to give way.
    pub(crate) fn make_half_room(&mut self, source: u128) -> u64 {
        let mut evicted = 0;
        while let Some(key) = self.half.in_the_way(source) {
            if !self.remove(&key) {
                debug_assert!(false, "a half-open connection that is not there");
                break;
            }
            evicted += 1;
        }
        evicted
    }

    /// Puts a connection in, `half_open` with its source; `None` if there is no room, else how many half-open ones had to give way.
    pub(crate) fn insert(
        &mut self,
        key: &Key<W>,
        mut connection: Connection,
        half_open: Option<u128>,
    ) -> Option<u64> {
        let mut evicted = half_open.map_or(0, |source| self.make_half_room(source));
        if self.table.len() >= self.room {
            let oldest = self.half.oldest()?;
            evicted += u64::from(self.remove(&oldest));
        }
        let hash = self.table.hasher().hash(key);
        let mut out = [Outcome::Full];
        self.table.find_or_insert_batch(0, &[hash], std::slice::from_ref(key), &mut out);
        let slot = out[0].slot()?;
        connection.half = half_open.map_or(NONE, |source| self.half.add(*key, source));
        self.table.set_state(slot, connection.pack());
        Some(evicted)
    }

    /// Looks at the connections of the next `buckets` buckets, and ends those whose time is over; returns how many.
    pub(crate) fn reclaim(&mut self, now_ms: u64, buckets: usize) -> usize {
        let half = &mut self.half;
        let gone = self.table.sweep(buckets.min(self.table.slots() / LANES + 1), |_, _, words| {
            if words[0] >> 16 > now_ms {
                return Swept::Stays;
            }
            let connection = Connection::unpack(&words);
            if connection.is_half_open() {
                half.take(connection.half);
            }
            Swept::Goes
        });
        self.gone += gone as u64;
        gone
    }
}

/// Who counts as one source: an IPv6 host has a /64 to itself.
pub(crate) fn source_of<A: Net<W>, const W: usize>(address: A) -> u128 {
    let bits: u128 = address.into();
    if A::V6 { bits >> 64 } else { bits }
}
