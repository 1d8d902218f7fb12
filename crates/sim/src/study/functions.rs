//! Figure 13: network functions on the accelerator: NAT, asset detection (prads), packet filter, with the sizes of the paper's Table 3.
//!
//! The functions themselves are reduced to what they ask of tables; the tables are real. What else they do for a packet is a number of instructions,
//! **counted by hand** from the steps named here, not measured: the paper does not say what its functions spend beside lookups.
//!
//! | | asks | beside |
//! |---|---|---|
//! | NAT | the 5-tuple | the translation (32 bytes elsewhere); new addresses, ports, checksums into the packet |
//! | prads | source and destination among assets | each asset's record (64 bytes): last seen, count |
//! | filter | three tables: by source, by destination, by 5-tuple; one packet in ten is in one of them | nothing but the verdict |
//!
//! Every table has keys of 16 bytes, which a lookup reads from the packet's header, whatever its fields.
//!
//! Packets come in bursts of eight. LOOKUP_NB asks for all of a burst before it looks at results.
//!
//! What a function does beside lookups, nobody accelerates: the more that is, the less is gained. So a second panel has the gain by instructions
//! that a packet takes beside those of the table above, four a cycle; a third has the functions on our production table.

use super::run::{Bench, Series};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::machine::{Core, Memory, Step, Time};
use crate::mix::FLOWTABLE;
use crate::program::{self, Lookup, Software, WHOLE};
use crate::tape::{Tape, Touch};
use crate::workload::Filled;
use tidemill_cachesim::random::Random;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;

/// Packets of a burst.
const BURST: u64 = 8;

/// Instructions beside, for the second panel.
pub const BESIDE: [f64; 6] = [0.0, 200.0, 400.0, 800.0, 1200.0, 1600.0];

/// The second panel.
pub const BY_INSTRUCTIONS: &str = "relative to software, by instructions beside";

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Network address translation.
    Nat,
    /// Passive asset detection.
    Prads,
    /// A filter of rules in hash tables.
    Filter,
}

/// All of them.
pub const ALL: [Function; 3] = [Function::Nat, Function::Prads, Function::Filter];

impl Function {
    /// As in the figure.
    pub fn name(self) -> &'static str {
        match self {
            Function::Nat => "NAT",
            Function::Prads => "prads",
            Function::Filter => "packet filter",
        }
    }

    /// Entries, by Table 3.
    pub fn sizes(self) -> [u64; 3] {
        match self {
            Function::Nat | Function::Prads => [1_000, 10_000, 100_000],
            Function::Filter => [100, 1_000, 10_000],
        }
    }

    fn tables(self) -> usize {
        if self == Function::Filter { 3 } else { 1 }
    }

    fn lookups(self) -> usize {
        match self {
            Function::Nat => 1,
            Function::Prads => 2,
            Function::Filter => 3,
        }
    }

    /// Bytes of what an entry's value names, if anything.
    fn record(self) -> u64 {
        match self {
            Function::Nat => 32,
            Function::Prads => 64,
            Function::Filter => 0,
        }
    }
}

/// Header fields to a key: loads, shifts, stores.
const PARSE: Step = Step { instructions: 24.0, loads: 8.0, stores: 4.0, chain_cycles: 8.0 };
/// Addresses, ports and two checksums by difference; a verdict.
const REWRITE: Step = Step { instructions: 36.0, loads: 8.0, stores: 6.0, chain_cycles: 12.0 };
/// A time stamp and a counter; a verdict.
const NOTE: Step = Step { instructions: 8.0, loads: 2.0, stores: 2.0, chain_cycles: 3.0 };

/// Nanoseconds a packet, which takes so many instructions beside what is said above.
///
/// # Errors
/// [`StudyError`].
pub fn run<T: HashTable<2>>(
    function: Function,
    entries: u64,
    series: Series,
    beside: f64,
    options: &Options,
) -> Result<f64, StudyError> {
    let mut memory = Memory::new(&options.config);
    let tables: Vec<Filled<T>> = (0..function.tables())
        .map(|i| {
            let own = (entries / function.tables() as u64).max(1);
            Filled::new(&mut memory, own * 10 / 9 + 1, own, options.seed.wrapping_add(i as u64))
        })
        .collect::<Result<_, _>>()?;
    let records = memory.pages.allot(function.record() * entries);
    let mut bench = Bench::new(memory);
    let mut random = Random::new(options.seed);
    let mut software = match series {
        Series::Software(mix) => Some(Software::new(mix, WHOLE)),
        _ => None,
    };
    let (tape, per) = (Tape::default(), function.lookups());
    let mut touches: Vec<Vec<Touch>> = vec![Vec::new(); per * BURST as usize];
    let (mut n, mut from, mut counted): (u64, Time, u64) = (0, 0, 0);
    while options.goes_on(n, counted) {
        if n >= options.warm {
            if counted == 0 {
                from = bench.core.idle_at();
            }
            counted += BURST;
        }
        let mut record_of = vec![None; touches.len()];
        for (i, touches) in touches.iter_mut().enumerate() {
            let table = &tables[i % function.tables()];
            let entry = random.below(table.len);
            // Each rule table of the filter knows one packet in thirty.
            let known = function != Function::Filter || random.below(30) == 0;
            table.ask(if known { entry } else { table.len + 1 + random.below(1 << 30) }, &tape);
            tape.take(&mut bench.memory, touches);
            if function.record() > 0 {
                record_of[i] = Some(records + entry * function.record());
            }
        }
        for i in 0..BURST {
            let next = bench.packets.come(&mut bench.memory, n + i);
            bench.core.prefetch(&mut bench.memory, next, 0);
        }
        let Bench { memory, core, halo, results, packets } = &mut bench;
        let lookup = |i: usize| -> Lookup<'_> {
            tables[i % function.tables()].lookup(packets.key(n + (i / per) as u64), &touches[i])
        };
        let lookups: Vec<Lookup<'_>> = (0..touches.len()).map(lookup).collect();
        // The header is read by the function in any case.
        let parse = |core: &mut Core, memory: &mut Memory, packet: u64| -> Time {
            if beside > 0.0 {
                core.work(memory, &Step { instructions: beside, ..Step::default() }, 0);
            }
            let header = core.load(memory, packets.key(packet), 40, 0);
            core.work(memory, &PARSE, header)
        };
        let act = |core: &mut Core, memory: &mut Memory, i: usize, found: Time| {
            if let Some(record) = record_of[i] {
                let there = core.load(memory, record, function.record(), found);
                let step = if function == Function::Nat { &REWRITE } else { &NOTE };
                let done = core.work(memory, step, there);
                let to = if function == Function::Nat { packets.key(n + (i / per) as u64) } else { record };
                core.store(memory, to, 16, done);
            } else {
                core.work(memory, &NOTE, found);
            }
        };
        if let Series::NonBlocking(_) = series {
            for packet in 0..BURST {
                parse(core, memory, n + packet);
            }
            let found = program::nonblocking(core, memory, halo, results, &lookups, 0);
            (0..lookups.len()).for_each(|i| act(core, memory, i, found));
        } else {
            for (i, lookup) in lookups.iter().enumerate() {
                let parsed = if i % per == 0 { parse(core, memory, n + (i / per) as u64) } else { 0 };
                let found = match &mut software {
                    Some(software) => software.lookup(core, memory, lookup, parsed),
                    None => program::blocking(core, memory, halo, lookup, parsed, series == Series::Blocking),
                };
                act(core, memory, i, found);
            }
        }
        n += BURST;
    }
    Ok((bench.core.idle_at() - from) as f64 / 1e3 / counted.max(1) as f64)
}

/// Points of one case: each series relative to the software.
fn points<T: HashTable<2>>(
    panel: &'static str,
    x: Place,
    (function, size, beside): (Function, u64, f64),
    series: &[(String, Series)],
    options: &Options,
) -> Result<Vec<Point>, StudyError> {
    let software = run::<Keystore<2>>(function, size, Series::Software(options.mix), beside, options)?;
    let point = |(name, series): &(String, Series)| -> Result<Point, StudyError> {
        let y = software / run::<T>(function, size, *series, beside, options)?;
        Ok(Point { panel, series: name.clone(), x: x.clone(), y, paper: None })
    };
    series.iter().map(point).collect()
}

/// The figure: packets a second relative to software.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let nonblocking = Series::NonBlocking(options.config.halo.batch);
    let named = |name: &str, series| (name.to_owned(), series);
    let papers = [
        named("software", Series::Software(options.mix)),
        named("halo-blocking", Series::Blocking),
        named("halo-nonblocking", nonblocking),
    ];
    let production = [
        named("software-flowtable", Series::Software(FLOWTABLE)),
        named("halo-nonblocking-flowtable", nonblocking),
    ];
    let sizes = ALL.into_iter().flat_map(|function| function.sizes().map(|size| (function, size, None)));
    let beside = ALL
        .into_iter()
        .flat_map(|function| BESIDE.map(|beside| (function, function.sizes()[1], Some(beside))));
    let cases: Vec<(Function, u64, Option<f64>)> = sizes.chain(beside).collect();
    let case = |&(function, size, beside): &(Function, u64, Option<f64>)| -> Result<Vec<Point>, StudyError> {
        let name = function.name();
        if let Some(beside) = beside {
            let (panel, x) = (BY_INSTRUCTIONS, Place::Number(beside));
            let own = [named(&format!("{name}, halo-nonblocking"), nonblocking)];
            return points::<Keystore<2>>(panel, x, (function, size, beside), &own, options);
        }
        let x = Place::Name(format!("{name}, {size}"));
        let (panel, of) = ("packets a second relative to software", (function, size, 0.0));
        let mut all = points::<Keystore<2>>(panel, x.clone(), of, &papers, options)?;
        let panel = "the same on our production table";
        all.extend(points::<FlowTable<2>>(panel, x, of, &production, options)?);
        Ok(all)
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &cases, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
