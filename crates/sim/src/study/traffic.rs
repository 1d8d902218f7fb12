//! Real packets through the whole classifier, as the paper has it (2.2): first the table of exact matches (EMC), then, for those that it has not, tuple space
//! search; who is in no tuple gets an entry there, and every packet that was not in the EMC gets one in it, at the cost of the oldest.
//!
//! Keys, their order and so what is cached are the packets'. The rules are not: a capture has none. There are so many tuples, each a pair of
//! prefix lengths, and which one has a flow follows from the first byte of its destination, so that a key is in one tuple only, and
//! tuples are asked in one order, not by their use.
//!
//! Packets come in bursts of eight. For a burst all keys are looked up before anything is inserted, by whoever looks up. Insertions are software's in every series: what they
//! touch is told by the probe too, their instructions are not counted. A TCAM has all rules from the start, and answers each packet with one search.

use super::run::{Bench, Series};
use super::{Options, StudyError};
use crate::halo::accelerator::Activity;
use crate::halo::tcam::Tcam;
use crate::machine::memory::LINE;
use crate::machine::{Core, Memory, Time};
use crate::mix::LOOP;
use crate::program::{self, Lookup, Software, WHOLE};
use crate::tape::{Tape, Touch};
use crate::workload::KEY_BYTES;
use std::collections::VecDeque;
use tidemill_cachesim::random::mix;
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;

/// Packets of a burst.
pub const BURST: usize = 8;
/// Slots of the EMC: what Open vSwitch has.
const EMC_SLOTS: usize = 8192;
/// Of them, those that are filled before the oldest entry has to go.
const EMC_ENTRIES: usize = EMC_SLOTS * 9 / 10;
/// Slots of a tuple's table. Full ones take no more: their packets come here again.
const TUPLE_SLOTS: usize = 1 << 16;
/// Most tuples: pairs of the prefix lengths below.
pub const MOST_TUPLES: usize = 20;
const SOURCE: [u32; 5] = [32, 24, 16, 8, 0];
const DESTINATION: [u32; 4] = [32, 24, 16, 8];

/// What is looked up of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    /// Source address; of IPv6 32 bits by all of it.
    pub source: u32,
    /// Destination address, likewise.
    pub destination: u32,
    /// Ports, or 0.
    pub ports: (u16, u16),
    /// Protocol.
    pub protocol: u8,
}

impl Packet {
    /// The 32 bits of an IPv6 address. The first eight stay: they are what tells tuples apart.
    pub fn folded(address: u128) -> u32 {
        let mixed = mix(address as u64 ^ mix((address >> 64) as u64));
        ((address >> 120) as u32) << 24 | (mixed >> 40) as u32
    }

    fn exact(&self) -> Key<2> {
        let (source, destination) = self.ports;
        let upper = u64::from(self.protocol) << 32 | u64::from(source) << 16 | u64::from(destination);
        Key([u64::from(self.source) << 32 | u64::from(self.destination), upper])
    }

    fn masked(&self, tuple: usize) -> Key<2> {
        let mask = |length: u32| u32::MAX.checked_shl(32 - length).unwrap_or(0);
        let source = self.source & mask(SOURCE[tuple / DESTINATION.len() % SOURCE.len()]);
        let destination = self.destination & mask(DESTINATION[tuple % DESTINATION.len()]);
        Key([u64::from(source) << 32 | u64::from(destination), tuple as u64])
    }

    fn tuple(&self, tuples: usize) -> usize {
        (mix(u64::from(self.destination >> 24)) % tuples.max(1) as u64) as usize
    }
}

/// A table of the classifier.
struct Layer {
    table: Keystore<2>,
    hash: Keyed<2>,
    description: u64,
    masked: bool,
}

impl Layer {
    fn new(memory: &mut Memory, slots: usize, seed: u64, masked: bool) -> Result<Self, StudyError> {
        let description = memory.pages.allot(LINE);
        Ok(Layer { table: Keystore::new(slots)?, hash: Keyed::new(seed.into()), description, masked })
    }

    fn ask(&self, key: &Key<2>, tape: &Tape) -> bool {
        self.table.get_probed(self.hash.hash(key), key, tape).is_some()
    }

    /// Whether there was room.
    fn insert(&mut self, key: &Key<2>, tape: &Tape) -> bool {
        self.table.insert_probed(self.hash.hash(key), key, 1, tape).is_ok()
    }

    fn lookup<'a>(&self, key: u64, touches: &'a [Touch]) -> Lookup<'a> {
        Lookup { table: self.description, key, key_bytes: KEY_BYTES, masked: self.masked, touches }
    }
}

/// The classifier's tables.
struct Classifier {
    exact: Layer,
    order: VecDeque<Key<2>>,
    tuples: Vec<Layer>,
}

/// What a lookup was and touched.
struct Asked {
    /// `None`: the EMC.
    tuple: Option<usize>,
    /// Of the burst.
    packet: usize,
    found: bool,
    touches: Vec<Touch>,
}

impl Classifier {
    fn new(memory: &mut Memory, tuples: usize, seed: u64) -> Result<Self, StudyError> {
        let exact = Layer::new(memory, EMC_SLOTS, seed, false)?;
        let tuples = (0..tuples.clamp(1, MOST_TUPLES))
            .map(|i| Layer::new(memory, TUPLE_SLOTS, seed.wrapping_add(1 + i as u64), true))
            .collect::<Result<_, _>>()?;
        Ok(Classifier { exact, order: VecDeque::new(), tuples })
    }

    fn layer(&self, tuple: Option<usize>) -> &Layer {
        tuple.map_or(&self.exact, |tuple| &self.tuples[tuple])
    }

    /// Looks up a packet of a burst in the EMC (`None`) or in a tuple.
    fn ask(&self, memory: &mut Memory, packet: (usize, &Packet), tuple: Option<usize>) -> Asked {
        let key = tuple.map_or_else(|| packet.1.exact(), |tuple| packet.1.masked(tuple));
        let (tape, mut touches) = (Tape::default(), Vec::new());
        let found = self.layer(tuple).ask(&key, &tape);
        tape.take(memory, &mut touches);
        Asked { tuple, packet: packet.0, found, touches }
    }

    /// Puts a packet's flow into the EMC, and into its tuple if it was in none; what that touches.
    fn learn(&mut self, memory: &mut Memory, packet: &Packet, in_tuple: bool) -> Vec<Touch> {
        let tape = Tape::default();
        if !in_tuple {
            let tuple = packet.tuple(self.tuples.len());
            self.tuples[tuple].insert(&packet.masked(tuple), &tape);
        }
        let key = packet.exact();
        // An earlier packet of the burst may have brought it.
        if self.exact.table.get(self.exact.hash.hash(&key), &key).is_none() {
            if self.order.len() >= EMC_ENTRIES
                && let Some(oldest) = self.order.pop_front()
            {
                self.exact.table.remove_probed(self.exact.hash.hash(&oldest), &oldest, &tape);
            }
            if self.exact.insert(&key, &tape) {
                self.order.push_back(key);
            }
        }
        let mut touches = Vec::new();
        tape.take(memory, &mut touches);
        touches
    }
}

/// What a replay came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Replayed {
    /// Packets that count.
    pub packets: u64,
    /// Nanoseconds a packet.
    pub ns: f64,
    /// Of the packets, those that the EMC had.
    pub exact: u64,
    /// Of the others, those that no tuple had.
    pub unknown: u64,
    /// Lookups, all layers.
    pub lookups: u64,
    /// Times that a writer met a lock.
    pub retries: u64,
    /// What the accelerators did.
    pub activity: Activity,
}

/// Replays packets, again and again if there are fewer than are asked for, `options.warm` and then `options.lookups` of them. Software in batches is run
/// as software that looks up one key after the other.
///
/// # Errors
/// [`StudyError`].
pub fn replay(
    packets: &[Packet],
    tuples: usize,
    series: Series,
    options: &Options,
) -> Result<Replayed, StudyError> {
    let mut memory = Memory::new(&options.config);
    let mut classifier = Classifier::new(&mut memory, tuples, options.seed)?;
    let mut bench = Bench::new(memory);
    let mut program = Program::new(series, options);
    let mut coming = packets.iter().cycle();
    let (mut n, mut from, mut result) = (0_u64, 0, Replayed::default());
    let mut before = (Activity::default(), 0);
    while options.goes_on(n, result.packets) {
        let burst: Vec<&Packet> = coming.by_ref().take(BURST).collect();
        if burst.is_empty() {
            break;
        }
        let counts = n >= options.warm;
        if counts && result.packets == 0 {
            from = bench.core.idle_at();
            before = (bench.halo.activity, bench.memory.counts.retries);
        }
        for i in 0..burst.len() as u64 {
            let next = bench.packets.come(&mut bench.memory, n + i);
            if program.software.is_some() || program.tcam.is_some() {
                bench.core.prefetch(&mut bench.memory, next, 0);
            }
        }
        let exact: Vec<Asked> = burst
            .iter()
            .enumerate()
            .map(|(i, &packet)| classifier.ask(&mut bench.memory, (i, packet), None))
            .collect();
        program.run(&mut bench, &classifier, &exact, n);
        let mut tuples = Vec::new();
        for asked in exact.iter().filter(|asked| !asked.found) {
            for tuple in 0..classifier.tuples.len() {
                let packet = (asked.packet, burst[asked.packet]);
                let asked = classifier.ask(&mut bench.memory, packet, Some(tuple));
                let found = asked.found;
                tuples.push(asked);
                // One after the other ends with the first that has it; all at once looks at all.
                if found && !program.all_at_once {
                    break;
                }
            }
        }
        let done = program.run(&mut bench, &classifier, &tuples, n);
        for asked in exact.iter().filter(|asked| !asked.found) {
            let found = tuples.iter().any(|other| other.packet == asked.packet && other.found);
            let touches = classifier.learn(&mut bench.memory, burst[asked.packet], found);
            if program.tcam.is_none() {
                write(&mut bench.core, &mut bench.memory, &touches, done);
            }
            result.unknown += u64::from(counts && !found);
        }
        if counts {
            result.packets += burst.len() as u64;
            result.exact += exact.iter().filter(|asked| asked.found).count() as u64;
            let in_tuples = if program.tcam.is_some() { 0 } else { tuples.len() };
            result.lookups += (exact.len() + in_tuples) as u64;
        }
        n += burst.len() as u64;
    }
    result.ns = (bench.core.idle_at() - from) as f64 / 1e3 / result.packets.max(1) as f64;
    result.retries = bench.memory.counts.retries - before.1;
    result.activity = bench.halo.activity.since(&before.0);
    Ok(result)
}

/// What an insertion does to memory.
fn write(core: &mut Core, memory: &mut Memory, touches: &[Touch], ready: Time) {
    for touch in touches {
        match *touch {
            Touch::Read { address, bytes, .. } => {
                core.load(memory, address, bytes, ready);
            }
            Touch::Write { address, bytes } => {
                core.store(memory, address, bytes, ready);
            }
            Touch::Step => {}
        }
    }
}

/// Who looks up.
struct Program {
    series: Series,
    software: Option<Software>,
    tcam: Option<Tcam>,
    all_at_once: bool,
}

impl Program {
    fn new(series: Series, options: &Options) -> Self {
        let software = match series {
            Series::Software(mix) | Series::Batch(mix) => Some(Software::new(mix, WHOLE)),
            _ => None,
        };
        let tcam = match series {
            Series::Tcam(kind) => Some(Tcam::new(&options.config, kind)),
            _ => None,
        };
        Program { series, software, tcam, all_at_once: matches!(series, Series::NonBlocking(_)) }
    }

    /// Runs lookups of a burst whose first packet is `n`: when the last of them is done.
    fn run(&mut self, bench: &mut Bench, classifier: &Classifier, asked: &[Asked], n: u64) -> Time {
        let Bench { memory, core, halo, results, packets } = bench;
        let lookups: Vec<Lookup<'_>> = asked
            .iter()
            .map(|asked| {
                classifier.layer(asked.tuple).lookup(packets.key(n + asked.packet as u64), &asked.touches)
            })
            .collect();
        let mut done = 0;
        if self.tcam.is_some() && asked.iter().any(|asked| asked.tuple.is_some()) {
            return done;
        }
        lookups.iter().for_each(|_| {
            core.work(memory, &LOOP, 0);
        });
        if let Some(tcam) = &mut self.tcam {
            return lookups
                .iter()
                .map(|lookup| program::search(core, memory, tcam, lookup, 0))
                .max()
                .unwrap_or(0);
        }
        if self.all_at_once {
            return program::nonblocking(core, memory, halo, results, &lookups, 0);
        }
        for (asked, lookup) in asked.iter().zip(&lookups) {
            let found = match &mut self.software {
                Some(software) => software.lookup(core, memory, lookup, 0),
                None => program::blocking(core, memory, halo, lookup, 0, self.series == Series::Blocking),
            };
            // Whether this layer has it decides what is done next.
            core.branch(1, asked.found, found);
            done = done.max(found);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_cachesim::random::Random;

    fn packets(flows: u64, n: usize) -> Vec<Packet> {
        let mut random = Random::new(3);
        let packet = |flow: u64| {
            let bits = mix(flow + 1);
            Packet {
                source: bits as u32,
                destination: (bits >> 32) as u32,
                ports: (flow as u16, 443),
                protocol: 6,
            }
        };
        (0..n).map(|_| packet(random.below(flows))).collect()
    }

    fn options() -> Options {
        Options { lookups: 3200, warm: 1600, ..Options::default() }
    }

    #[test]
    fn a_key_is_in_one_tuple_only() {
        for packet in packets(500, 500) {
            for tuples in [1, 5, MOST_TUPLES] {
                let own = packet.tuple(tuples);
                assert!(own < tuples);
                let other = Packet { ports: (1, 2), ..packet };
                assert_eq!((other.tuple(tuples), other.masked(own)), (own, packet.masked(own)));
            }
        }
        let all: std::collections::HashSet<_> =
            (0..MOST_TUPLES).map(|tuple| packets(1, 1)[0].masked(tuple)).collect();
        assert_eq!(all.len(), MOST_TUPLES);
        assert_eq!(Packet::folded(0x20 << 120 | 5) >> 24, 0x20);
        assert_ne!(Packet::folded(5), Packet::folded(6));
    }

    /// What is looked up is the same whoever does it, so that series are comparable; the cache has what fits into it.
    #[test]
    fn series_look_up_the_same() {
        let mix = options().mix;
        let series = [Series::Software(mix), Series::Blocking, Series::NonBlocking(8)];
        for flows in [100, 50_000] {
            let packets = packets(flows, 4800);
            let all = series.map(|series| replay(&packets, 10, series, &options()).unwrap());
            for one in &all {
                let of = |it: &Replayed| (it.packets, it.exact, it.unknown);
                assert_eq!(of(one), of(&all[0]));
                assert!(one.ns > 1.0);
            }
            assert_eq!(all[0].packets, 3200);
            assert_eq!((all[0].activity.queries, all[1].activity.queries), (0, all[1].lookups));
            assert_eq!(all[1].lookups, all[0].lookups);
            if flows == 100 {
                assert_eq!((all[0].exact, all[0].unknown, all[0].lookups), (3200, 0, 3200));
            } else {
                // All tuples at once are all tuples.
                assert_eq!(all[2].lookups, 3200 + 10 * (3200 - all[2].exact));
                assert!(all[0].exact < 800 && all[0].unknown > 1600, "{all:?}");
            }
        }
        let again = replay(&packets(100, 4800), 10, Series::Blocking, &options()).unwrap();
        assert_eq!(again, replay(&packets(100, 4800), 10, Series::Blocking, &options()).unwrap());
        assert_eq!(replay(&[], 10, Series::Blocking, &options()).unwrap(), Replayed::default());
    }
}
