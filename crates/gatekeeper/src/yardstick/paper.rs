//! The paper's gate: algorithms 5 to 9.

use super::packets::{Outer, Packet, Packets, rss};
use super::solicitor::Solicitor;
use super::{Books, Entry, Error, FULL, Fate, Gate, HandOver, Left, Level, MOST, PASS, Policy, grantor};
use tidemill_flow::hash::spread;
use tidemill_flow::key::Key;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;
use tidemill_lookup::drive::{Adaptive, coroutine, prefetch};
use tidemill_lookup::mem::collapse;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lpm::dir24::Dir24;
use tidemill_lpm::keys::Random;
use tidemill_lpm::{Fib, Label};

/// How far ahead algorithm 8 asks for packets.
const AHEAD: usize = 4;
/// Entries that the scan looks at for each burst, and how far ahead it asks for them.
const SCANNED: usize = 1;
const SCAN_AHEAD: usize = 8;
/// Coroutines to begin with.
const COROUTINES: usize = 16;

/// How memory latency is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Not at all: one packet after the other (algorithm 5).
    Plain,
    /// Stage by stage (algorithm 8).
    Group,
    /// Look-ups side by side, as many as turns out best (algorithm 9, 4.5.4).
    Coroutine,
}

/// Which of the paper's optimisations are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaperOptions {
    /// One failed insertion is a burst's last.
    pub early_stop: bool,
    /// How memory latency is hidden.
    pub driver: Driver,
    /// How requests get to the solicitor.
    pub hand_over: HandOver,
}

/// A flow entry: two lines, as large as the paper's.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct FlowEntry {
    key: Key<5>,
    hash: u64,
    last_ns: u64,
    grantor: u16,
    level: Level,
    used: bool,
    /// Room for what a decision would say; cleared when the entry is made.
    decision: [u64; 4],
}

const _: () = assert!(size_of::<FlowEntry>() == 128);

/// What was read of a packet.
#[derive(Debug, Clone, Copy)]
struct Flow {
    key: Key<5>,
    hash: u64,
    destination: u32,
}

impl Flow {
    /// 36 bytes: the protocol, two unused, the addresses, room for longer ones.
    fn new(source: u32, destination: u32, rss: u32) -> Self {
        let key = Key([u64::from(source) << 32 | 0x0800, destination.into(), 0, 0, 0]);
        Flow { key, hash: spread(rss), destination }
    }

    #[inline(always)]
    fn of(packet: &Packet) -> Option<Self> {
        let of = packet.addresses()?;
        Some(Flow::new(of.source, of.destination, packet.rss))
    }
}

/// Where a flow's packet finds its entry.
enum Admitted {
    Known(usize),
    New,
    NoRoom,
}

/// One burst's common things.
struct Work {
    options: PaperOptions,
    now_ns: u64,
    /// An insertion has failed, and was the last.
    stopped: bool,
}

/// What the stages of a burst hand on; allocated once.
#[derive(Default)]
struct Stages {
    /// What coroutines have found, by packet.
    looked: Vec<Option<(Flow, Option<u64>)>>,
    // From here on by IPv4 packet.
    /// Its place in the burst.
    at: Vec<u32>,
    flows: Vec<Flow>,
    hashes: Vec<u64>,
    keys: Vec<Key<5>>,
    found: Vec<Option<u64>>,
    /// Of those that were not found.
    destinations: Vec<u32>,
    labels: Vec<Label>,
}

impl Stages {
    fn new() -> Self {
        Stages {
            looked: vec![None; MOST],
            at: Vec::with_capacity(MOST),
            flows: Vec::with_capacity(MOST),
            hashes: Vec::with_capacity(MOST),
            keys: Vec::with_capacity(MOST),
            found: vec![None; MOST],
            destinations: Vec::with_capacity(MOST),
            labels: vec![Label::NONE; MOST],
        }
    }

    fn clear(&mut self) {
        self.at.clear();
        self.flows.clear();
        self.hashes.clear();
        self.keys.clear();
        self.destinations.clear();
    }

    #[inline(always)]
    fn add(&mut self, at: usize, flow: Flow) {
        self.at.push(at as u32);
        self.hashes.push(flow.hash);
        self.keys.push(flow.key);
        self.flows.push(flow);
    }
}

/// The gate. See the [module](super).
pub struct PaperGate {
    /// A flow's value is the number of its entry.
    table: Keystore<5>,
    entries: Vec<FlowEntry>,
    /// Numbers of entries not in use.
    free: Vec<u32>,
    policy: Dir24<u16>,
    outer: Vec<Outer>,
    solicitor: Solicitor,
    adaptive: Adaptive,
    stages: Stages,
    /// Entries made in this burst.
    fresh: Vec<u32>,
    scanned: usize,
    idle_ns: u64,
}

impl PaperGate {
    /// One packet after the other.
    fn plain(&mut self, work: &mut Work, packets: &mut Packets, ids: &[u32], fates: &mut [Fate]) {
        for (&id, fate) in ids.iter().zip(fates) {
            *fate = match Flow::of(packets.get(id)) {
                None => {
                    packets.give_back(id);
                    Fate::NotIpv4
                }
                Some(flow) => {
                    let entry = self.table.get(flow.hash, &flow.key);
                    let label = match entry {
                        Some(_) => Label::NONE,
                        None => self.policy.lookup(flow.destination),
                    };
                    self.act(work, packets, id, &flow, entry, label)
                }
            };
        }
    }

    /// All packets are read, then all flows are looked up.
    fn in_group(&self, stages: &mut Stages, packets: &Packets, ids: &[u32]) {
        ids.iter().take(AHEAD).for_each(|&id| packets.get(id).prefetch());
        for (i, &id) in ids.iter().enumerate() {
            if let Some(&later) = ids.get(i + AHEAD) {
                packets.get(later).prefetch();
            }
            if let Some(flow) = Flow::of(packets.get(id)) {
                stages.add(i, flow);
            }
        }
        self.table.get_batch(&stages.hashes, &stages.keys, &mut stages.found[..stages.keys.len()]);
        for entry in stages.found[..stages.keys.len()].iter().flatten() {
            self.prefetch(*entry);
        }
    }

    /// Each packet is read and its flow looked up; others go on while one waits.
    fn in_coroutines(&self, stages: &mut Stages, packets: &Packets, ids: &[u32]) {
        let (start, looked) = (|i: usize| self.look(packets.get(ids[i])), &mut stages.looked);
        coroutine(ids.len(), self.adaptive.width(), start, |i, found| looked[i] = found);
        for (i, found) in stages.looked[..ids.len()].iter().enumerate() {
            if let Some((flow, found)) = *found {
                stages.found[stages.at.len()] = found;
                stages.at.push(i as u32);
                stages.flows.push(flow);
            }
        }
    }

    async fn look(&self, packet: &Packet) -> Option<(Flow, Option<u64>)> {
        packet.prefetch();
        prefetch(packet).await;
        let flow = Flow::of(packet)?;
        let found = self.table.find(flow.hash, &flow.key).await;
        if let Some(entry) = found {
            self.prefetch(entry);
            prefetch(&self.entries[entry as usize]).await;
        }
        Some((flow, found))
    }

    #[inline(always)]
    fn prefetch(&self, entry: u64) {
        let entry = &self.entries[entry as usize];
        prefetch_read(entry);
        prefetch_read(&entry.decision);
    }

    /// What follows the look-ups of a burst: the policy for those not found, then packet after packet in order.
    fn finish(&mut self, work: &mut Work, packets: &mut Packets, ids: &[u32], fates: &mut [Fate]) {
        let mut stages = std::mem::take(&mut self.stages);
        let count = stages.at.len();
        let missed = stages.flows.iter().zip(&stages.found).filter(|(_, found)| found.is_none());
        stages.destinations.extend(missed.map(|(flow, _)| flow.destination));
        let labels = &mut stages.labels[..stages.destinations.len()];
        self.policy.lookup_batch(&stages.destinations, labels);
        let mut labels = labels.iter();
        let mut next = 0;
        for (i, (&id, fate)) in ids.iter().zip(fates).enumerate() {
            if next == count || stages.at[next] as usize != i {
                packets.give_back(id);
                *fate = Fate::NotIpv4;
                continue;
            }
            let found = stages.found[next];
            let label = if found.is_none() { labels.next().copied() } else { None };
            let flow = stages.flows[next];
            *fate = self.act(work, packets, id, &flow, found, label.unwrap_or(Label::NONE));
            next += 1;
        }
        debug_assert_eq!(next, count);
        self.stages = stages;
    }

    /// Algorithms 6 and 7, in the request state.
    #[inline(always)]
    fn act(
        &mut self,
        work: &mut Work,
        packets: &mut Packets,
        id: u32,
        flow: &Flow,
        entry: Option<u64>,
        label: Label,
    ) -> Fate {
        let entry = match entry {
            Some(entry) => Admitted::Known(entry as usize),
            None if label == PASS => {
                packets.give_back(id);
                return Fate::Passed;
            }
            None if grantor(label).is_none_or(|number| number >= self.outer.len()) => {
                packets.give_back(id);
                return Fate::NoPolicy;
            }
            None => self.admit(work, flow, label),
        };
        let (level, number, kept) = match entry {
            Admitted::Known(entry) => {
                let entry = &mut self.entries[entry];
                entry.level = entry.level.after(work.now_ns.saturating_sub(entry.last_ns));
                entry.last_ns = work.now_ns;
                (entry.level, usize::from(entry.grantor), true)
            }
            Admitted::New => (Level::FIRST, grantor(label).unwrap_or(0), true),
            Admitted::NoRoom => (Level::FIRST, grantor(label).unwrap_or(0), false),
        };
        let dscp = level.dscp();
        packets.at(id).encapsulate(&self.outer[number], dscp);
        self.solicitor.request(work.options.hand_over, packets, id, dscp);
        Fate::Request { dscp, kept }
    }

    /// Puts a flow that was not found into the table.
    #[inline(always)]
    fn admit(&mut self, work: &mut Work, flow: &Flow, label: Label) -> Admitted {
        let number = match self.free.last() {
            Some(&number) if !work.stopped => number,
            _ => {
                // It may have come after the look-ups, with a packet before this one.
                let same = |&&number: &&u32| self.entries[number as usize].key == flow.key;
                if let Some(&number) = self.fresh.iter().find(same) {
                    return Admitted::Known(number as usize);
                }
                work.stopped |= work.options.early_stop;
                return Admitted::NoRoom;
            }
        };
        match self.table.insert(flow.hash, &flow.key, number.into()) {
            Ok(None) => {
                self.free.pop();
                self.fresh.push(number);
                self.entries[number as usize] = FlowEntry {
                    key: flow.key,
                    hash: flow.hash,
                    last_ns: work.now_ns,
                    grantor: grantor(label).unwrap_or(0) as u16,
                    level: Level::FIRST,
                    used: true,
                    decision: [0; 4],
                };
                Admitted::New
            }
            Ok(Some(before)) => {
                // The same. A key that is there always has its place.
                let _ = self.table.insert(flow.hash, &flow.key, before);
                Admitted::Known(before as usize)
            }
            Err(_) => {
                work.stopped |= work.options.early_stop;
                Admitted::NoRoom
            }
        }
    }

    /// Takes expired flows out.
    #[inline(always)]
    fn scan(&mut self, now_ns: u64) {
        for _ in 0..SCANNED {
            let at = self.scanned;
            self.scanned = if at + 1 == self.entries.len() { 0 } else { at + 1 };
            if let Some(later) = self.entries.get(at + SCAN_AHEAD) {
                prefetch_read(later);
            }
            let entry = &mut self.entries[at];
            if entry.used && now_ns.saturating_sub(entry.last_ns) > self.idle_ns {
                entry.used = false;
                self.table.remove(entry.hash, &entry.key);
                self.free.push(at as u32);
            }
        }
    }
}

impl Gate for PaperGate {
    type Options = PaperOptions;

    fn new(flows: usize, idle_ns: u64, policy: &Policy) -> Result<Self, Error> {
        let table = Keystore::<5>::new(flows)?;
        let unused = FlowEntry {
            key: Key([0; 5]),
            hash: 0,
            last_ns: 0,
            grantor: 0,
            level: Level::FIRST,
            used: false,
            decision: [0; 4],
        };
        let entries = vec![unused; table.capacity()];
        collapse(&entries);
        Ok(PaperGate {
            // The lowest numbers are taken first.
            free: (0..entries.len() as u32).rev().collect(),
            table,
            entries,
            policy: Dir24::build(&policy.rib)?,
            outer: policy.grantors.iter().map(|&grantor| Outer::new(grantor)).collect(),
            solicitor: Solicitor::new(),
            adaptive: Adaptive::new(COROUTINES, MOST),
            stages: Stages::new(),
            fresh: Vec::with_capacity(MOST),
            scanned: 0,
            idle_ns,
        })
    }

    fn capacity(&self) -> usize {
        self.entries.len()
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn fill(&mut self, now_ns: u64, destination: u32, random: &mut Random) {
        let label = self.policy.lookup(destination);
        let options = PaperOptions { early_stop: true, driver: Driver::Plain, hand_over: HandOver::Batch };
        let mut in_a_row = 0;
        while in_a_row < FULL {
            let last_ns = now_ns.saturating_sub(random.below(self.idle_ns as usize) as u64);
            let mut work = Work { options, now_ns: last_ns, stopped: false };
            let source = random.bits() as u32;
            self.admit(&mut work, &Flow::new(source, destination, rss(source, destination)), label);
            self.fresh.clear();
            in_a_row = if work.stopped { in_a_row + 1 } else { 0 };
        }
    }

    fn burst(
        &mut self,
        options: PaperOptions,
        now_ns: u64,
        packets: &mut Packets,
        ids: &[u32],
        fates: &mut [Fate],
    ) {
        let ids = &ids[..ids.len().min(MOST)];
        self.scan(now_ns);
        self.fresh.clear();
        let mut work = Work { options, now_ns, stopped: false };
        if options.driver == Driver::Plain {
            self.plain(&mut work, packets, ids, fates);
        } else {
            let mut stages = std::mem::take(&mut self.stages);
            stages.clear();
            match options.driver {
                Driver::Coroutine => self.in_coroutines(&mut stages, packets, ids),
                _ => self.in_group(&mut stages, packets, ids),
            }
            self.stages = stages;
            self.finish(&mut work, packets, ids, fates);
        }
        if options.hand_over == HandOver::Batch {
            self.solicitor.hand_over(packets);
        }
    }

    fn turn(&mut self, now_ns: u64, packets: &mut Packets, left: impl FnMut(Left, &[u8])) {
        self.solicitor.turn(now_ns, packets, None, left);
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
        // By the table, not by the array: what it names is what there is.
        self.table.scan(0, usize::MAX, |key, number| {
            let entry = &self.entries[number as usize];
            assert!(entry.used && entry.key == *key, "entry {number} is not the flow's");
            entries.push(Entry {
                source: (key.0[0] >> 32) as u32,
                destination: key.0[1] as u32,
                last_ns: entry.last_ns,
                level: entry.level,
            });
        });
        entries
    }
}
