//! Our table and our policy structure, in the paper's order and in one pass.

use super::packets::{Outer, Packets};
use super::solicitor::Solicitor;
use super::{Books, Entry, Error, FULL, Fate, Gate, HandOver, Left, Level, MOST, PASS, Policy, grantor};
use std::sync::Arc;
use tidemill_flow::flowtable::{FlowTable, Outcome, Slot};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_lookup::drive::{Adaptive, coroutine};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::Random;
use tidemill_lpm::{Algorithm, Fib, Label};

/// Any secret will do: nobody attacks a yardstick.
const SECRET: u128 = 0x6761_7465;
/// Coroutines to begin with.
const COROUTINES: usize = 16;
/// Buckets that expiry looks at for each burst.
const SCANNED: usize = 1;

/// In which order tables are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Packet by packet: the policy, then find or insert.
    OneByOne,
    /// The burst's policies, then one find-or-insert for all of it. Always stops early.
    OnePass,
    /// The paper's: the burst's flows, then the policies of those not found, then the insertions.
    PaperOrder,
    /// The paper's, flows looked up by coroutines.
    Coroutines,
}

/// How our gate works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OurOptions {
    /// The order of look-ups.
    pub way: Way,
    /// Whether a failed insertion ends searches for room, for its burst and some of those after it (packet by packet: for some packets
    /// after it). Without it every new flow searches.
    pub early_stop: bool,
    /// How requests get to the solicitor.
    pub hand_over: HandOver,
}

/// The last packet's time; level and Grantor; nothing. As large as production's.
type State = [u64; 3];

fn state(last_ns: u64, level: Level, grantor: usize) -> State {
    [last_ns, (grantor as u64) << 16 | u64::from(level.priority) << 8 | u64::from(level.allowance), 0]
}

fn level(state: State) -> Level {
    Level { priority: (state[1] >> 8) as u8, allowance: state[1] as u8 }
}

/// What the stages of a burst hand on, an element for each packet that got so far; allocated once.
#[derive(Default)]
struct Stages {
    /// Places in the burst.
    at: Vec<u32>,
    keys: Vec<Key<1>>,
    hashes: Vec<u64>,
    destinations: Vec<u32>,
    labels: Vec<Label>,
    found: Vec<Option<Slot>>,
    outcomes: Vec<Outcome>,
}

impl Stages {
    fn new() -> Self {
        Stages {
            at: Vec::with_capacity(MOST),
            keys: Vec::with_capacity(MOST),
            hashes: vec![0; MOST],
            destinations: Vec::with_capacity(MOST),
            labels: vec![Label::NONE; MOST],
            found: vec![None; MOST],
            outcomes: vec![Outcome::Full; MOST],
        }
    }

    /// Keeps those for which this is true.
    #[inline(always)]
    fn retain(&mut self, mut keeps: impl FnMut(&Self, usize) -> bool) {
        let mut kept = 0;
        for i in 0..self.at.len() {
            if keeps(self, i) {
                self.at[kept] = self.at[i];
                self.keys[kept] = self.keys[i];
                self.hashes[kept] = self.hashes[i];
                self.destinations[kept] = self.destinations[i];
                self.labels[kept] = self.labels[i];
                kept += 1;
            }
        }
        self.at.truncate(kept);
        self.keys.truncate(kept);
        self.destinations.truncate(kept);
    }
}

/// The gate. See the [module](super).
pub struct OurGate {
    table: FlowTable<1, State>,
    hash: Keyed<1>,
    policy: Arc<dyn Fib<u32>>,
    outer: Vec<Outer>,
    solicitor: Solicitor,
    adaptive: Adaptive,
    stages: Stages,
    idle_ns: u64,
}

impl OurGate {
    /// Reads the burst.
    #[inline(always)]
    fn read(&self, stages: &mut Stages, packets: &mut Packets, ids: &[u32], fates: &mut [Fate]) {
        stages.at.clear();
        stages.keys.clear();
        stages.destinations.clear();
        for (i, &id) in ids.iter().enumerate() {
            match packets.get(id).addresses() {
                Some(of) => {
                    stages.at.push(i as u32);
                    stages.keys.push(key(of.source, of.destination));
                    stages.destinations.push(of.destination);
                }
                None => {
                    packets.give_back(id);
                    fates[i] = Fate::NotIpv4;
                }
            }
        }
    }

    /// Asks the policy for all, and settles those that need no flow.
    #[inline(always)]
    fn by_policy(&self, stages: &mut Stages, packets: &mut Packets, ids: &[u32], fates: &mut [Fate]) {
        let count = stages.at.len();
        self.policy.lookup_batch(&stages.destinations, &mut stages.labels[..count]);
        stages.retain(|stages, i| {
            let fate = self.without_flow(stages.labels[i]);
            if let Some(fate) = fate {
                let at = stages.at[i] as usize;
                packets.give_back(ids[at]);
                fates[at] = fate;
            }
            fate.is_none()
        });
    }

    #[inline(always)]
    fn without_flow(&self, label: Label) -> Option<Fate> {
        match grantor(label) {
            Some(number) if number < self.outer.len() => None,
            _ if label == PASS => Some(Fate::Passed),
            _ => Some(Fate::NoPolicy),
        }
    }

    /// The state machine, for a packet with a Grantor: its fate. `label` is of no account if the flow was found.
    #[inline(always)]
    fn act(&mut self, now_ns: u64, outcome: Outcome, label: Label, packets: &mut Packets, id: u32) -> Fate {
        let mut number = grantor(label).unwrap_or(0);
        let level = match outcome {
            Outcome::Found(slot) => {
                let before = self.table.state(slot);
                number = (before[1] >> 16) as usize;
                level(before).after(now_ns.saturating_sub(before[0]))
            }
            Outcome::New(_) | Outcome::Full => Level::FIRST,
        };
        if let Some(slot) = outcome.slot() {
            self.table.set_state(slot, state(now_ns, level, number));
        }
        packets.at(id).grantor = number as u16;
        Fate::Request { dscp: level.dscp(), kept: outcome != Outcome::Full }
    }

    fn one_by_one(
        &mut self,
        options: OurOptions,
        now_ns: u64,
        packets: &mut Packets,
        ids: &[u32],
        fates: &mut [Fate],
    ) {
        for (&id, fate) in ids.iter().zip(fates) {
            let Some(of) = packets.get(id).addresses() else {
                packets.give_back(id);
                *fate = Fate::NotIpv4;
                continue;
            };
            let label = self.policy.lookup(of.destination);
            if let Some(settled) = self.without_flow(label) {
                packets.give_back(id);
                *fate = settled;
                continue;
            }
            let key = key(of.source, of.destination);
            let hash = self.hash.hash(&key);
            let outcome = if options.early_stop {
                let mut outcome = [Outcome::Full];
                self.table.find_or_insert_batch(seconds(now_ns), &[hash], &[key], &mut outcome);
                outcome[0]
            } else {
                self.table.find_or_insert(seconds(now_ns), hash, &key)
            };
            *fate = self.act(now_ns, outcome, label, packets, id);
        }
    }

    /// Those in the stages, for which the policy has a Grantor, at once.
    #[inline(always)]
    fn insert_all(
        &mut self,
        now_ns: u64,
        stages: &mut Stages,
        packets: &mut Packets,
        ids: &[u32],
        fates: &mut [Fate],
    ) {
        let count = stages.at.len();
        let outcomes = &mut stages.outcomes[..count];
        self.table.find_or_insert_batch(seconds(now_ns), &stages.hashes[..count], &stages.keys, outcomes);
        for i in 0..count {
            let at = stages.at[i] as usize;
            fates[at] = self.act(now_ns, stages.outcomes[i], stages.labels[i], packets, ids[at]);
        }
    }

    fn paper_order(
        &mut self,
        options: OurOptions,
        now_ns: u64,
        stages: &mut Stages,
        packets: &mut Packets,
        ids: &[u32],
        fates: &mut [Fate],
    ) {
        let count = stages.at.len();
        self.hash.hash_batch(&stages.keys, &mut stages.hashes[..count]);
        let (hashes, keys, found) = (&stages.hashes[..count], &stages.keys, &mut stages.found[..count]);
        if options.way == Way::Coroutines {
            let start = |i: usize| self.table.find_suspended(hashes[i], &keys[i]);
            coroutine(count, self.adaptive.width(), start, |i, slot| found[i] = slot);
        } else {
            self.table.lookup_batch(hashes, keys, found);
        }
        // Those that were found first: insertions may move them.
        stages.retain(|stages, i| {
            let at = stages.at[i] as usize;
            if let Some(slot) = stages.found[i] {
                fates[at] = self.act(now_ns, Outcome::Found(slot), Label::NONE, packets, ids[at]);
            }
            stages.found[i].is_none()
        });
        self.by_policy(stages, packets, ids, fates);
        if options.early_stop {
            return self.insert_all(now_ns, stages, packets, ids, fates);
        }
        for i in 0..stages.at.len() {
            let outcome = self.table.find_or_insert(seconds(now_ns), stages.hashes[i], &stages.keys[i]);
            let at = stages.at[i] as usize;
            fates[at] = self.act(now_ns, outcome, stages.labels[i], packets, ids[at]);
        }
    }
}

fn key(source: u32, destination: u32) -> Key<1> {
    Key([u64::from(source) << 32 | u64::from(destination)])
}

/// What the table's own stamps count.
fn seconds(now_ns: u64) -> u32 {
    (now_ns / 1_000_000_000) as u32
}

impl Gate for OurGate {
    type Options = OurOptions;

    fn new(flows: usize, idle_ns: u64, policy: &Policy) -> Result<Self, Error> {
        let hash = Keyed::new(SECRET);
        Ok(OurGate {
            table: FlowTable::new(flows, hash)?,
            hash,
            policy: Algorithm::Auto.writer(&policy.rib, &Domain::new())?.fib(),
            outer: policy.grantors.iter().map(|&grantor| Outer::new(grantor)).collect(),
            solicitor: Solicitor::new(),
            adaptive: Adaptive::new(COROUTINES, MOST),
            stages: Stages::new(),
            idle_ns,
        })
    }

    fn capacity(&self) -> usize {
        self.table.slots()
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn fill(&mut self, now_ns: u64, destination: u32, random: &mut Random) {
        let number = grantor(self.policy.lookup(destination)).unwrap_or(0);
        let mut in_a_row = 0;
        while in_a_row < FULL {
            let last_ns = now_ns.saturating_sub(random.below(self.idle_ns as usize) as u64);
            let key = key(random.bits() as u32, destination);
            let outcome = self.table.find_or_insert(seconds(last_ns), self.hash.hash(&key), &key);
            in_a_row = if outcome == Outcome::Full { in_a_row + 1 } else { 0 };
            if let Some(slot) = outcome.slot() {
                self.table.set_state(slot, state(last_ns, Level::FIRST, number));
            }
        }
    }

    fn burst(
        &mut self,
        options: OurOptions,
        now_ns: u64,
        packets: &mut Packets,
        ids: &[u32],
        fates: &mut [Fate],
    ) {
        let ids = &ids[..ids.len().min(MOST)];
        let idle_ns = self.idle_ns;
        self.table.expire(SCANNED, |_, _, state| now_ns.saturating_sub(state[0]) > idle_ns);
        if options.way == Way::OneByOne {
            self.one_by_one(options, now_ns, packets, ids, fates);
        } else {
            let mut stages = std::mem::take(&mut self.stages);
            self.read(&mut stages, packets, ids, fates);
            if options.way == Way::OnePass {
                self.by_policy(&mut stages, packets, ids, fates);
                let count = stages.at.len();
                self.hash.hash_batch(&stages.keys, &mut stages.hashes[..count]);
                self.insert_all(now_ns, &mut stages, packets, ids, fates);
            } else {
                self.paper_order(options, now_ns, &mut stages, packets, ids, fates);
            }
            self.stages = stages;
        }
        for (&id, fate) in ids.iter().zip(fates) {
            if let Fate::Request { dscp, .. } = *fate {
                // Also where a record carries it: who sends it encapsulates it.
                packets.at(id).dscp = dscp;
                self.solicitor.request(options.hand_over, packets, id, dscp);
            }
        }
        if options.hand_over == HandOver::Batch {
            self.solicitor.hand_over(packets);
        }
    }

    /// Encapsulates what is sent.
    fn turn(&mut self, now_ns: u64, packets: &mut Packets, left: impl FnMut(Left, &[u8])) {
        self.solicitor.turn(now_ns, packets, Some(&self.outer), left);
    }

    fn empty(&mut self, packets: &mut Packets) {
        self.solicitor.empty(packets);
    }

    fn ran(&mut self, packets: usize, from: u64, to: u64) {
        self.adaptive.ran(packets, from, to);
    }

    fn books(&self) -> Books {
        self.solicitor.books()
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.len());
        self.table.scan(0, usize::MAX, |key, _, state| {
            let (source, destination) = ((key.0[0] >> 32) as u32, key.0[0] as u32);
            entries.push(Entry { source, destination, last_ns: state[0], level: level(state) });
        });
        entries
    }
}
