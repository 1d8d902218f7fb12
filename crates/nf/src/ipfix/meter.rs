//! A worker's flows: a table for each family. Time is handed in.

use crate::ipfix::packet::{Adds, Flow, Outside, Tail, W4, W6, read};
use crate::ipfix::record::{Ended, Record};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_burst::BURST;
use tidemill_flow::flowtable::{FlowTable, Outcome, Swept};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;

/// Packets, bytes, when the first of them came (ms), when the last one, TCP's flags. Without packets: all of it was exported.
type State = [u64; 5];
const PACKETS: usize = 0;
const BYTES: usize = 1;
const FIRST: usize = 2;
const LAST: usize = 3;
const FLAGS: usize = 4;

/// Of TCP: FIN and RST.
const CLOSING: u64 = 0b101;
/// How long a flow that has said that it is over may say more, ms: the last acknowledgement is of it.
const LINGER_MS: u64 = 1000;

/// When flows are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Silence, ms.
    pub idle_ms: u64,
    /// Length, ms.
    pub active_ms: u64,
}

/// Packets that are in no flow, and their number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outsiders {
    /// Neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// With a wrong header.
    pub malformed: u64,
    /// Without room for their flow.
    pub full: u64,
    /// Bytes of these.
    pub full_bytes: u64,
}

/// A family's flows, and what of a burst belongs to it.
struct Half<const W: usize> {
    table: FlowTable<W, State, Keyed<W>>,
    keys: Vec<Key<W>>,
    adds: Vec<Adds>,
    hashes: Vec<u64>,
    outcomes: Vec<Outcome>,
}

impl<const W: usize> Half<W> {
    fn new(flows: usize, secret: u128) -> Result<Self, SizeError> {
        Ok(Half {
            table: FlowTable::new(flows, Keyed::new(secret))?,
            keys: Vec::with_capacity(BURST),
            adds: Vec::with_capacity(BURST),
            hashes: vec![0; BURST],
            outcomes: vec![Outcome::Full; BURST],
        })
    }

    fn push(&mut self, key: Key<W>, adds: Adds) {
        self.keys.push(key);
        self.adds.push(adds);
    }

    /// Adds the packets of a burst to their flows.
    fn settle(&mut self, now_ms: u64, outsiders: &mut Outsiders) {
        let Half { table, keys, adds, hashes, outcomes } = self;
        let count = keys.len();
        table.hasher().hash_batch(keys, &mut hashes[..count]);
        table.find_or_insert_batch((now_ms / 1000) as u32, &hashes[..count], keys, &mut outcomes[..count]);
        for (outcome, adds) in outcomes.iter().zip(adds.iter()) {
            let Some(slot) = outcome.slot() else {
                outsiders.full += 1;
                outsiders.full_bytes += u64::from(adds.bytes);
                continue;
            };
            let packets = table.word(slot, PACKETS);
            if packets == 0 {
                table.set_word(slot, FIRST, now_ms);
            }
            table.set_word(slot, PACKETS, packets + 1);
            table.set_word(slot, BYTES, table.word(slot, BYTES) + u64::from(adds.bytes));
            table.set_word(slot, LAST, now_ms);
            if adds.flags != 0 {
                table.set_word(slot, FLAGS, table.word(slot, FLAGS) | u64::from(adds.flags));
            }
        }
        keys.clear();
        adds.clear();
    }

    /// Looks at the flows of some buckets. What `tell` has no time for (`false`) stays; returns how often.
    fn sweep(
        &mut self,
        buckets: usize,
        now_ms: u64,
        times: Option<Times>,
        record: impl Fn(&Key<W>, State, Ended) -> Record,
        mut tell: impl FnMut(Record) -> bool,
    ) -> u64 {
        let mut waited = 0;
        self.table.sweep(buckets, |key, _, state| {
            let silent_ms = now_ms.saturating_sub(state[LAST]);
            let ended = match times {
                None => Some(Ended::Forced),
                Some(_) if state[FLAGS] & CLOSING != 0 && silent_ms >= LINGER_MS => Some(Ended::Over),
                Some(times) if silent_ms >= times.idle_ms => Some(Ended::Idle),
                Some(times) if now_ms.saturating_sub(state[FIRST]) >= times.active_ms => Some(Ended::Active),
                Some(_) => None,
            };
            let Some(ended) = ended else { return Swept::Stays };
            if state[PACKETS] == 0 {
                // All of it was told.
                return if ended == Ended::Active { Swept::Stays } else { Swept::Goes };
            }
            if !tell(record(key, state, ended)) {
                waited += 1;
                return Swept::Stays;
            }
            match ended {
                Ended::Active => Swept::Becomes([0, 0, now_ms, state[LAST], 0]),
                _ => Swept::Goes,
            }
        });
        waited
    }

    fn buckets(&self) -> usize {
        self.table.slots() / 31
    }
}

fn record(source: IpAddr, destination: IpAddr, tail: u64, state: State, ended: Ended) -> Record {
    let Tail { ports, protocol, class, port } = Tail::of(tail);
    let is_icmp = matches!((protocol, source), (1, IpAddr::V4(_)) | (58, IpAddr::V6(_)));
    Record {
        source,
        destination,
        ports: if is_icmp { (0, 0) } else { ports },
        icmp: if is_icmp { ports.1 } else { 0 },
        protocol,
        class,
        port,
        flags: state[FLAGS] as u16,
        packets: state[PACKETS],
        bytes: state[BYTES],
        first_ms: state[FIRST],
        last_ms: state[LAST],
        ended,
    }
}

fn record4(Key([ends, tail]): &Key<W4>, state: State, ended: Ended) -> Record {
    let (source, destination) = (Ipv4Addr::from((ends >> 32) as u32), Ipv4Addr::from(*ends as u32));
    record(source.into(), destination.into(), *tail, state, ended)
}

fn record6(Key([a, b, c, d, tail]): &Key<W6>, state: State, ended: Ended) -> Record {
    let address = |high: u64, low: u64| Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
    record(address(*a, *b).into(), address(*c, *d).into(), *tail, state, ended)
}

/// See the [module](self).
pub struct Meter {
    v4: Half<W4>,
    v6: Half<W6>,
    times: Times,
    outsiders: Outsiders,
    waited: u64,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("flows", &self.len()).finish_non_exhaustive()
    }
}

impl Meter {
    /// Bytes of memory for each flow that there is room for, of both families.
    pub const BYTES_PER_FLOW: f64 =
        FlowTable::<W4, State>::BYTES_PER_SLOT + FlowTable::<W6, State>::BYTES_PER_SLOT;

    /// One with room for so many flows of each family.
    ///
    /// # Errors
    /// See [`SizeError`].
    pub fn new(flows: usize, times: Times, secret: u128) -> Result<Self, SizeError> {
        Ok(Meter {
            v4: Half::new(flows, secret)?,
            v6: Half::new(flows, secret.wrapping_add(1))?,
            times,
            outsiders: Outsiders::default(),
            waited: 0,
        })
    }

    /// Flows in the tables, those included of which all was exported.
    pub fn len(&self) -> usize {
        self.v4.table.len() + self.v6.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is in no flow.
    pub fn outsiders(&self) -> Outsiders {
        self.outsiders
    }

    /// How often a record had to wait.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// Counts frames that came at `now_ms`, each with the number of its port: [`BURST`] at a time.
    pub fn count<'a>(&mut self, now_ms: u64, frames: impl Iterator<Item = (&'a [u8], u16)>) {
        for (frame, port) in frames {
            match read(frame, port) {
                Ok((Flow::V4(key), adds)) => self.v4.push(key, adds),
                Ok((Flow::V6(key), adds)) => self.v6.push(key, adds),
                Err(Outside::NotIp) => self.outsiders.not_ip += 1,
                Err(Outside::Malformed) => self.outsiders.malformed += 1,
            }
            if self.v4.keys.len() == BURST || self.v6.keys.len() == BURST {
                self.settle(now_ms);
            }
        }
        self.settle(now_ms);
    }

    fn settle(&mut self, now_ms: u64) {
        self.v4.settle(now_ms, &mut self.outsiders);
        self.v6.settle(now_ms, &mut self.outsiders);
    }

    /// Tells of flows that have ended or are long enough, in one of `steps` parts of the tables. What `tell` has no time for waits.
    pub fn sweep(&mut self, now_ms: u64, steps: usize, mut tell: impl FnMut(Record) -> bool) {
        let times = Some(self.times);
        let Meter { v4, v6, waited, .. } = self;
        *waited += v4.sweep(v4.buckets().div_ceil(steps), now_ms, times, record4, &mut tell);
        *waited += v6.sweep(v6.buckets().div_ceil(steps), now_ms, times, record6, &mut tell);
    }

    /// Tells of all that there is, and forgets it: the end.
    pub fn drain(&mut self, mut tell: impl FnMut(Record)) {
        let Meter { v4, v6, .. } = self;
        let mut all = |record| {
            tell(record);
            true
        };
        // A sweep goes on where the last one ended, and stops at the table's end.
        while !v4.table.is_empty() {
            v4.sweep(v4.buckets(), 0, None, record4, &mut all);
        }
        while !v6.table.is_empty() {
            v6.sweep(v6.buckets(), 0, None, record6, &mut all);
        }
    }
}
