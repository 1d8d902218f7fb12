//! A flood whose packets want another mask each, on the switch: how much slower it is than traffic by the same rules, and than these rules without caches; and who
//! comes after it with a mask that is new.
//!
//! Each packet decides by as many bits of its addresses as it shares with the rules' networks, so there are many more masks than megaflows may be asked
//! for by ("Tuple Space Explosion", see the caches' own text). Caches that ask all of them cost more than the rules. And if the flood has taken all of them, traffic that
//! comes only then has none.

use super::ClassifyBench;
use super::ports::Phase;
use super::switch::{Plan, Ran, Subject, check_rules, run_once};
use super::traffic::{Flood, TRAFFIC};
use crate::bench::report::Report;
use crate::bench::statistics::median;
use crate::json::Measurement;
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use std::time::Duration;
use tidemill_switch::{Counter, SwitchSection};

const NAME: &str = "flood/masks";
const RECOVERY: &str = "flood/masks-recovery";
const ALONE: &str = "rules-alone";

/// Of 256 packets so many are the flood's.
const ALL: u32 = 256;
/// Phases of the flood beside traffic; before these the caches fill.
const BEFORE: usize = 1;
const FLOOD: usize = 2;
/// The phase that counts by the rules alone, after one like it.
const BY_RULES: usize = 1;
/// Phases of the recovery after the flood: the first second, and the one after it.
const FIRST: usize = 1;
const SECOND: usize = 2;
/// Slices of a phase of flood.
const SLICES: u32 = 40;

/// Runs of one round: each of the three plans.
pub(super) const RUNS: usize = 3;

/// The switch in the flood; the rules alone; the recovery. What lasts as long as the user says lasts so long.
fn plans(args: &ClassifyBench, seconds: Duration) -> [Plan; RUNS] {
    let phase = |duration, flood| Phase { duration, flood, timed: false };
    let plan = |phases, section| Plan {
        traffic: TRAFFIC[0],
        v6: false,
        phases,
        slice: seconds / SLICES,
        flood: Flood::Masks,
        section,
        seed: args.seed,
    };
    // One mask is the least that there can be.
    let alone = SwitchSection { exact: 0, signatures: 0, masks: 1, ..args.section() };
    // What has to be over within a second needs seconds, however long the rest is.
    let second = Duration::from_secs(1);
    [
        plan(vec![phase(seconds / 4, 0), phase(seconds, 0), phase(seconds, ALL)], args.section()),
        plan(vec![phase(seconds / 4, ALL), phase(seconds, ALL)], alone),
        plan(vec![phase(seconds, ALL), phase(second, 0), phase(second, 0)], args.section()),
    ]
}

pub(super) fn measure(args: &ClassifyBench, progress: &Progress, report: &mut Report) -> Result<()> {
    let seconds = Duration::from_secs_f64(args.seconds * 2.0);
    let plans = plans(args, seconds);
    check_rules(&plans[0])?;
    progress.message(NAME.to_owned());
    let mut flood: [Vec<f64>; FLOOD_METRICS.len()] = Default::default();
    let mut recovery: [Vec<f64>; RECOVERY_METRICS.len()] = Default::default();
    let mut alone = Vec::new();
    for _ in 0..args.runs() {
        let run = |plan: &Plan, name: &'static str| -> Result<Ran> {
            let ran = run_once(Subject::Switch, plan).context(name)?;
            progress.add(1);
            Ok(ran)
        };
        let switch = run(&plans[0], NAME)?;
        alone.push(run(&plans[1], ALONE)?.usual_mpps(BY_RULES));
        let after = run(&plans[2], RECOVERY)?;
        let before = switch.usual_mpps(BEFORE);
        flood.iter_mut().zip(flood_figures(&switch)).for_each(|(figures, value)| figures.push(value));
        let values = recovery_figures(&after, before);
        recovery.iter_mut().zip(values).for_each(|(figures, value)| figures.push(value));
    }
    let line = |subject, case, metric, values: &[f64], plan: &Plan| {
        Measurement::of("classify", subject, case, metric, values, plan.params(seconds))
    };
    for (metric, values) in FLOOD_METRICS.into_iter().zip(&flood) {
        report.line(line("switch", NAME, metric, values, &plans[0]))?;
    }
    report.line(line(ALONE, NAME, "flood_mpps", &alone, &plans[1]))?;
    for (metric, values) in RECOVERY_METRICS.into_iter().zip(&recovery) {
        report.line(line("switch", RECOVERY, metric, values, &plans[2]))?;
    }
    report.ratio("classify", NAME, ("switch", &flood[1]), (ALONE, &alone))?;
    if !args.json {
        let [before, meanwhile, slower, _, masks, mib, _, spared, probes] =
            std::array::from_fn(|i| median(&flood[i]));
        let alone = median(&alone);
        println!(
            "{NAME}: {before:.2} Mpps before, {meanwhile:.2} meanwhile ({slower:.2} times slower), {alone:.2} by the rules alone; \
             {masks:.0} masks at the end; the flood has taken {mib:.1} MiB; {probes:.1} probes a packet, and for {:.1} % of the packets no mask was asked",
            100.0 * spared
        );
        let [first, second, after, kept] = std::array::from_fn(|i| median(&recovery[i]));
        println!(
            "{RECOVERY}: of traffic whose mask is new the rules decided {:.2} % in the first second after the flood, {:.2} % in the next; \
             {after:.2} Mpps in that, {kept:.2} of before",
            100.0 * first,
            100.0 * second
        );
    }
    Ok(())
}

const FLOOD_METRICS: [&str; 9] = [
    "before_mpps",
    "flood_mpps",
    "slower",
    "megaflows_held",
    "masks",
    "memory_mib",
    "turned_away_share",
    "spared_share",
    "probes",
];

/// Of the flood's phase, beside the traffic before it.
fn flood_figures(ran: &Ran) -> [f64; FLOOD_METRICS.len()] {
    let [before, flood] = [BEFORE, FLOOD].map(|phase| ran.usual_mpps(phase));
    [
        before,
        flood,
        before / flood,
        ran.count(Counter::Megaflows),
        ran.count(Counter::Masks),
        ran.grown_mib(BEFORE, FLOOD),
        ran.share(FLOOD, Counter::TurnedAway),
        ran.share(FLOOD, Counter::Spared),
        ran.share(FLOOD, Counter::Probes),
    ]
}

const RECOVERY_METRICS: [&str; 4] = ["missed_first_share", "missed_next_share", "after_mpps", "kept"];

/// The share of packets that no cache decided in either second after the flood; the rate in the second one, beside that of traffic which had its mask all along.
fn recovery_figures(ran: &Ran, before: f64) -> [f64; RECOVERY_METRICS.len()] {
    let after = ran.usual_mpps(SECOND);
    let [first, next] = [FIRST, SECOND].map(|phase| ran.share(phase, Counter::Misses));
    [first, next, after, after / before]
}
