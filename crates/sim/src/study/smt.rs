//! Figure 12: what a network function loses to a switch on the other hardware thread of its core.
//!
//! The three functions are **synthetic**: so many instructions, loads and stores for a packet, over a footprint of so many bytes, of which a hot part takes
//! most accesses. The paper names the functions, not these numbers; they are assumed, from what such functions are.
//!
//! | | for a packet | footprint |
//! |---|---|---|
//! | ACL | 300 instructions, a walk of 12 dependent loads | 24 KiB of trie, all hot |
//! | Snort-like | 1,200 instructions, 64 dependent loads, one for each byte | 4 MiB of automaton, nine in ten in 16 KiB |
//! | mTCP-like | 1,500 instructions, 24 loads, 12 stores | 100 connections of 1 KiB, and 256 KiB of buffers in turn |
//!
//! The other thread looks up random flows without a pause. Window and queues are divided between two threads in any case; what a function
//! does beside an idle thread is what its loss is reckoned from.
//!
//! What a function loses is what of L1 it had for itself: one that never was in L1 (mTCP-like), or needs half of it (Snort-like), loses little. The ACL, which waits
//! least, loses more of the front end: with 16 instructions a cycle (`core.width`) it loses a third of what it does with 4. A further panel has the same
//! functions over 24 KiB, all of it hot, as the ACL.

use super::run::{Bench, Series};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::machine::memory::Counts;
use crate::machine::{Core, Memory, Step, Time};
use crate::mix::LOOP;
use crate::program::{self, Lookup, Software, WHOLE};
use crate::tape::{Tape, Touch};
use crate::workload::Filled;
use tidemill_cachesim::random::Random;
use tidemill_flow::keystore::Keystore;

/// A function beside the switch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Function {
    name: &'static str,
    instructions: f64,
    /// Dependent on each other, for each packet.
    loads: u64,
    stores: u64,
    footprint: u64,
    /// Bytes that most accesses go to, and how many in a hundred.
    hot: u64,
    hot_percent: u64,
}

const FUNCTIONS: [Function; 3] = [
    Function {
        name: "ACL",
        instructions: 300.0,
        loads: 12,
        stores: 1,
        footprint: 24 << 10,
        hot: 24 << 10,
        hot_percent: 100,
    },
    Function {
        name: "Snort-like",
        instructions: 1200.0,
        loads: 64,
        stores: 2,
        footprint: 4 << 20,
        hot: 16 << 10,
        hot_percent: 90,
    },
    Function {
        name: "mTCP-like",
        instructions: 1500.0,
        loads: 24,
        stores: 12,
        footprint: 356 << 10,
        hot: 100 << 10,
        hot_percent: 70,
    },
];
const FLOWS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

impl Function {
    /// A packet.
    fn packet(&self, core: &mut Core, memory: &mut Memory, base: u64, random: &mut Random) {
        let between = Step {
            instructions: self.instructions / (self.loads + self.stores) as f64,
            chain_cycles: 4.0,
            ..Step::default()
        };
        let mut last: Time = 0;
        for i in 0..self.loads + self.stores {
            let bytes = if random.below(100) < self.hot_percent { self.hot } else { self.footprint };
            let address = base + random.below(bytes / 8) * 8;
            if i < self.loads {
                let there = core.load(memory, address, 8, last);
                last = core.work(memory, &between, there);
            } else {
                let ready = core.work(memory, &between, last);
                core.store(memory, address, 8, ready);
            }
        }
    }
}

/// What a function does beside a switch.
#[derive(Debug, Clone, Copy)]
struct Beside {
    ns: f64,
    /// Of the core's accesses, those not in L1.
    l1_misses: f64,
}

/// Runs a function; beside it a switch with so many flows, or nothing.
fn run(function: &Function, switch: Option<(Series, u64)>, options: &Options) -> Result<Beside, StudyError> {
    let mut memory = Memory::new(&options.config);
    let flows = switch.map_or(1, |(_, flows)| flows);
    let table: Filled<Keystore<2>> = Filled::new(&mut memory, flows * 10 / 9 + 1, flows, options.seed)?;
    let base = memory.pages.allot(function.footprint);
    let mut bench = Bench::new(memory);
    let mut threads = [Core::shared(&bench.memory, 0, 2), Core::shared(&bench.memory, 0, 2)];
    let (mut random, mut keys) = (Random::new(options.seed), Random::new(options.seed.wrapping_add(1)));
    let mut software = match switch {
        Some((Series::Software(mix), _)) => Some(Software::new(mix, WHOLE)),
        _ => None,
    };
    let (tape, mut touches) = (Tape::default(), vec![Vec::<Touch>::new(); options.config.halo.batch]);
    let packets = (options.lookups / 20).max(20);
    let warm = packets / 2;
    let (mut done, mut n) = (0, 0);
    let (mut from, mut counts) = (0, Counts::default());
    while done < warm + packets {
        if switch.is_none() || threads[0].now() <= threads[1].now() {
            if done == warm {
                (from, counts) = (threads[0].idle_at(), threads_counts(&bench.memory));
            }
            function.packet(&mut threads[0], &mut bench.memory, base, &mut random);
            done += 1;
            continue;
        }
        let Some((series, _)) = switch else { continue };
        let group = if let Series::NonBlocking(group) = series { group as u64 } else { 1 };
        for (i, touches) in touches.iter_mut().enumerate().take(group as usize) {
            table.ask(keys.below(table.len), &tape);
            tape.take(&mut bench.memory, touches);
            let next = bench.packets.come(&mut bench.memory, n + i as u64);
            if software.is_some() {
                threads[1].prefetch(&mut bench.memory, next, 0);
            }
        }
        let Bench { memory, halo, results, packets, .. } = &mut bench;
        let lookups: Vec<Lookup<'_>> = touches
            .iter()
            .take(group as usize)
            .enumerate()
            .map(|(i, touches)| table.lookup(packets.key(n + i as u64), touches))
            .collect();
        let core = &mut threads[1];
        (0..group).for_each(|_| {
            core.work(memory, &LOOP, 0);
        });
        match (&mut software, series) {
            (Some(software), _) => software.lookup(core, memory, &lookups[0], 0),
            (None, Series::NonBlocking(_)) => program::nonblocking(core, memory, halo, results, &lookups, 0),
            (None, _) => program::blocking(core, memory, halo, &lookups[0], 0, true),
        };
        n += group;
    }
    let after = threads_counts(&bench.memory);
    let accesses = (after.accesses - counts.accesses).max(1) as f64;
    Ok(Beside {
        ns: (threads[0].idle_at() - from) as f64 / 1e3 / packets as f64,
        l1_misses: (after.l1_misses - counts.l1_misses) as f64 / accesses,
    })
}

fn threads_counts(memory: &Memory) -> Counts {
    memory.counts
}

/// Percent of its packets that a function loses to a switch with so many flows, and by how much more, in percent, the core's accesses miss L1.
fn loss(
    function: &Function,
    series: Series,
    flows: u64,
    options: &Options,
) -> Result<(f64, f64), StudyError> {
    let alone = run(function, None, options)?;
    let beside = run(function, Some((series, flows)), options)?;
    Ok((100.0 * (1.0 - alone.ns / beside.ns), 100.0 * (beside.l1_misses - alone.l1_misses)))
}

/// Bytes of L1 that a function of the further panel needs: those of the ACL.
const IN_L1: u64 = 24 << 10;

impl Function {
    /// The same instructions over as much as fits into L1, all of it hot.
    fn in_l1(self) -> Self {
        Function { footprint: IN_L1, hot: IN_L1, hot_percent: 100, ..self }
    }
}

/// The least and the most that functions lose, in percent, to a switch with so many flows; with the footprints that are assumed, or all in L1.
///
/// # Errors
/// [`StudyError`].
pub fn losses(series: Series, flows: u64, in_l1: bool, options: &Options) -> Result<[f64; 2], StudyError> {
    let mut ends = [f64::INFINITY, f64::NEG_INFINITY];
    for function in FUNCTIONS {
        let function = if in_l1 { function.in_l1() } else { function };
        let (lost, _) = loss(&function, series, flows, options)?;
        ends = [ends[0].min(lost), ends[1].max(lost)];
    }
    Ok(ends)
}

/// The figure: percent of its packets that a function loses, and misses in the core's L1.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let all = |in_l1: bool| {
        let function = move |function: Function| if in_l1 { function.in_l1() } else { function };
        FUNCTIONS.into_iter().flat_map(move |own| FLOWS.map(|flows| (function(own), flows, in_l1)))
    };
    let cases: Vec<(Function, u64, bool)> = all(false).chain(all(true)).collect();
    let case = |&(function, flows, in_l1): &(Function, u64, bool)| -> Result<Vec<Point>, StudyError> {
        let mut points = Vec::new();
        for (name, series) in [
            ("software", Series::Software(options.mix)),
            ("halo-blocking", Series::Blocking),
            ("halo-nonblocking", Series::NonBlocking(options.config.halo.batch)),
        ] {
            let (lost, misses) = loss(&function, series, flows, options)?;
            let mut put = |panel, y| {
                let x = Place::Name(format!("{}, {flows} flows", function.name));
                points.push(Point { panel, series: name.into(), x, y, paper: None });
            };
            if in_l1 {
                put("throughput lost by the same functions over 24 KiB, percent", lost);
            } else {
                put("throughput lost, percent", lost);
                put("misses in L1 of the core's accesses, percent more", misses);
            }
        }
        Ok(points)
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &cases, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
