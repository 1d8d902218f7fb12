//! One table, one series: lookups of a program, one core, and what they took.

use super::Options;
use crate::halo::Accelerators;
use crate::halo::accelerator::Activity;
use crate::halo::tcam::{Kind, Tcam};
use crate::log::Log;
use crate::machine::memory::{Counts, LINE};
use crate::machine::{Core, Memory, Time};
use crate::mix::{KEYSTORE_PREFETCHES, LOOP, Mix};
use crate::program::{self, Lookup, Parts, Results, Software, WHOLE};
use crate::tape::{Tape, Touch, translated};
use crate::workload::{Filled, KEY_BYTES, Packets};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tidemill_cachesim::random::Random;
use tidemill_flow::table::HashTable;

/// Who looks up, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Series {
    /// A core, by these instructions, one lookup after the other.
    Software(Mix),
    /// A core, in batches of 32 that prefetch.
    Batch(Mix),
    /// LOOKUP_B, with nothing issued until it has its result (5.1).
    Blocking,
    /// LOOKUP_B as a load in the window (4.5).
    Window,
    /// LOOKUP_NB, so many for each SNAPSHOT_READ.
    NonBlocking(usize),
    /// See [`Kind`].
    Tcam(Kind),
}

impl Series {
    /// As in results.
    pub fn name(&self) -> String {
        match self {
            Series::Software(mix) => format!("software-{}", mix.name),
            Series::Batch(mix) => format!("software-batch-{}", mix.name),
            Series::Blocking => "halo-blocking".into(),
            Series::Window => "halo-blocking-window".into(),
            Series::NonBlocking(n) => format!("halo-nonblocking-{n}"),
            Series::Tcam(Kind::Tcam) => "tcam".into(),
            Series::Tcam(Kind::Sram) => "sram-tcam".into(),
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Outcome {
    /// Lookups that count.
    pub lookups: u64,
    /// What they took.
    pub ps: Time,
    /// Instructions of the core.
    pub instructions: f64,
    /// Its loads.
    pub loads: u64,
    /// Wrong guesses.
    pub mispredicted: u64,
    /// What the memory system did.
    pub counts: Counts,
    /// What the accelerators did.
    pub activity: Activity,
}

impl Outcome {
    /// Nanoseconds a lookup.
    pub fn ns(&self) -> f64 {
        self.ps as f64 / 1e3 / self.lookups.max(1) as f64
    }
}

/// What a run has beside its machine.
#[derive(Debug)]
pub struct Bench {
    /// Caches and all.
    pub memory: Memory,
    /// The core.
    pub core: Core,
    /// The accelerators.
    pub halo: Accelerators,
    /// Lines of results.
    pub results: Results,
    /// The ring.
    pub packets: Packets,
}

impl Bench {
    /// On a machine whose caches are as they are.
    pub fn new(mut memory: Memory) -> Self {
        let core = Core::new(&memory, 0);
        let halo = Accelerators::new(memory.config());
        let results = Results::new(&mut memory, 64);
        let packets = Packets::new(&mut memory);
        Bench { memory, core, halo, results, packets }
    }

    fn state(&self) -> Outcome {
        Outcome {
            lookups: 0,
            ps: self.core.idle_at(),
            instructions: self.core.done.instructions,
            loads: self.core.done.loads,
            mispredicted: self.core.done.mispredicted,
            counts: self.memory.counts,
            activity: self.halo.activity,
        }
    }

    /// What has come since a state.
    fn since(&self, before: &Outcome, lookups: u64) -> Outcome {
        let now = self.state();
        let (a, b) = (&now.counts, &before.counts);
        let counts = Counts {
            accesses: a.accesses - b.accesses,
            l1_misses: a.l1_misses - b.l1_misses,
            l2_misses: a.l2_misses - b.l2_misses,
            dram: a.dram - b.dram,
            near: a.near - b.near,
            near_elsewhere: a.near_elsewhere - b.near_elsewhere,
            merged: a.merged - b.merged,
            snoops: a.snoops - b.snoops,
            retries: a.retries - b.retries,
        };
        Outcome {
            lookups,
            ps: now.ps - before.ps,
            instructions: now.instructions - before.instructions,
            loads: now.loads - before.loads,
            mispredicted: now.mispredicted - before.mispredicted,
            counts,
            activity: now.activity.since(&before.activity),
        }
    }
}

/// How a run asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asking {
    /// Whether each lookup waits for the one before: what is measured is then a latency.
    pub serial: bool,
    /// See [`Parts`].
    pub parts: Parts,
    /// Where the lines of the table are put before each lookup: in the LLC, in DRAM; or left where they are.
    pub placed: Option<bool>,
    /// Bytes of a key.
    pub key_bytes: u64,
}

impl Default for Asking {
    fn default() -> Self {
        Asking { serial: false, parts: WHOLE, placed: None, key_bytes: KEY_BYTES }
    }
}

/// Looks up random entries of a table that are there.
pub fn single<T: HashTable<W>, const W: usize>(
    memory: Memory,
    table: &Filled<T, W>,
    series: Series,
    options: &Options,
    asking: Asking,
) -> Outcome {
    let (mut random, tape) = (Random::new(options.seed), Tape::default());
    let mut ask = |memory: &mut Memory, touches: &mut Vec<Touch>| {
        table.ask(random.below(table.len), &tape);
        tape.take(memory, touches);
        table.description
    };
    stream(memory, &mut ask, series, options, asking)
}

/// Replays a log, again and again if it is shorter than what is asked for. Tables are told apart by their numbers.
pub fn replay(memory: Memory, log: &Log, series: Series, options: &Options, asking: Asking) -> Outcome {
    let mut memory = memory;
    let mut descriptions: HashMap<u64, u64, FixedState> = HashMap::with_hasher(FixedState::with_seed(0));
    for (table, _) in (0..log.len()).filter_map(|i| log.lookup(i)) {
        descriptions.entry(table).or_insert_with(|| memory.pages.allot(LINE));
    }
    let mut next = 0;
    let mut ask = |memory: &mut Memory, touches: &mut Vec<Touch>| {
        touches.clear();
        let Some((table, recorded)) = log.lookup(next) else { return 0 };
        next = (next + 1) % log.len();
        touches.extend(recorded.iter().map(|touch| translated(memory, *touch)));
        descriptions.get(&table).copied().unwrap_or_default()
    };
    stream(memory, &mut ask, series, options, asking)
}

/// What the next lookup touches, and where its table's description is.
type Ask<'a> = &'a mut dyn FnMut(&mut Memory, &mut Vec<Touch>) -> u64;

/// Runs lookups as they come.
pub fn stream(memory: Memory, ask: Ask<'_>, series: Series, options: &Options, asking: Asking) -> Outcome {
    let mut bench = Bench::new(memory);
    let Parts { data, lock, way } = asking.parts;
    (bench.halo.locking, bench.halo.data, bench.halo.way) = (lock, data, way);
    let mut software = match series {
        Series::Software(mix) | Series::Batch(mix) => Some(Software::new(mix, asking.parts)),
        _ => None,
    };
    let mut tcam = match series {
        Series::Tcam(kind) => Some(Tcam::new(bench.memory.config(), kind)),
        _ => None,
    };
    let group = match series {
        Series::Batch(_) => 32,
        Series::NonBlocking(n) => n,
        _ => 1,
    } as u64;
    let mut tables = vec![0; group as usize];
    let mut touches: Vec<Vec<Touch>> = vec![Vec::new(); group as usize];
    let mut n = 0;
    let mut before = bench.state();
    let (mut counted, mut last) = (0, 0);
    while options.goes_on(n, counted) {
        if n >= options.warm && counted == 0 {
            before = bench.state();
        }
        counted += if n >= options.warm { group } else { 0 };
        for (i, touches) in touches.iter_mut().enumerate() {
            tables[i] = ask(&mut bench.memory, touches);
            let next = bench.packets.come(&mut bench.memory, n + i as u64);
            if software.is_some() || tcam.is_some() {
                bench.core.prefetch(&mut bench.memory, next, 0);
            }
            if let Some(in_llc) = asking.placed {
                for touch in touches.iter() {
                    if let Touch::Read { address, bytes, .. } = *touch {
                        bench.memory.place(address, bytes, in_llc);
                    }
                }
            }
        }
        let Bench { memory, core, halo, results, packets } = &mut bench;
        let lookup = |(i, touches)| -> Lookup<'_> {
            let (table, key): (u64, u64) = (tables[i], packets.key(n + i as u64));
            Lookup { table, key, key_bytes: asking.key_bytes, masked: false, touches }
        };
        let keys: Vec<Lookup<'_>> =
            touches.iter().enumerate().map(|(i, touches)| lookup((i, touches.as_slice()))).collect();
        for _ in 0..group {
            core.work(memory, &LOOP, 0);
        }
        let after = if asking.serial { last } else { 0 };
        last = match (series, &mut software, &mut tcam) {
            (Series::Software(_), Some(software), _) => software.lookup(core, memory, &keys[0], after),
            (Series::Batch(_), Some(software), _) => {
                software.batch(core, memory, &keys, &KEYSTORE_PREFETCHES, after)
            }
            (Series::Tcam(_), _, Some(tcam)) => program::search(core, memory, tcam, &keys[0], after),
            (Series::NonBlocking(_), ..) => program::nonblocking(core, memory, halo, results, &keys, after),
            (Series::Window, ..) => program::blocking(core, memory, halo, &keys[0], after, false),
            _ => program::blocking(core, memory, halo, &keys[0], after, true),
        };
        n += group;
    }
    bench.since(&before, counted)
}
