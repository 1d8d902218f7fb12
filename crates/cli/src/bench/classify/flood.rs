//! A flood that makes one megaflow for each packet, on the switch: how much slower it is meanwhile, what memory it takes, when it is over.
//!
//! One rule asks for a MAC address. Every decision then depends on all bits of that address, and each packet of the flood has another one: no
//! cache ever has it, the rules decide, and to keep the decision is in vain. Before, meanwhile and afterwards comes the same traffic: of one rule, and of 20, which
//! are as many masks that megaflows have.

use super::ClassifyBench;
use super::ports::{Phase, Slice};
use super::switch::{Plan, Ran, Subject, check_rules, run_once};
use super::traffic::{Flood, Traffic};
use crate::bench::report::Report;
use crate::bench::statistics::median;
use crate::json::Measurement;
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use std::time::Duration;
use tidemill_switch::Counter;

/// The traffic cases unless others are asked for. The first one's results have the name of the flood alone.
pub(super) const USUAL: [&str; 2] = ["few", "rules-100k"];
/// Of 256 packets so many are the flood's.
const SHARES: [(u32, &str); 2] = [(256, "flood/100"), (128, "flood/50")];
/// The phases: the caches fill, before, the flood, after.
const BEFORE: usize = 1;
const FLOOD: usize = 2;
const AFTER: usize = 3;
/// Slices of a phase.
const SLICES: u32 = 40;
/// The part of the rate of before that has to be there again.
const RECOVERED: f64 = 0.9;

/// Milliseconds of a recovery that did not come while it was waited for.
const NEVER_MS: f64 = 1e9;

/// How many runs there are, of one round and traffic case.
pub(super) const RUNS: usize = SHARES.len();

pub(super) fn measure(
    args: &ClassifyBench,
    traffic: &[Traffic],
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    for (&traffic, (share, name)) in traffic.iter().flat_map(|traffic| SHARES.map(|share| (traffic, share))) {
        let name =
            if traffic.name == USUAL[0] { name.to_owned() } else { format!("{name}/{}", traffic.name) };
        let name = name.as_str();
        progress.message(name.to_owned());
        let seconds = Duration::from_secs_f64(args.seconds * 2.0);
        let phase = |duration, flood| Phase { duration, flood, timed: false };
        let plan = Plan {
            traffic,
            v6: false,
            phases: vec![phase(seconds / 4, 0), phase(seconds, 0), phase(seconds, share), phase(seconds, 0)],
            slice: seconds / SLICES,
            flood: Flood::Megaflows,
            section: args.section(),
            seed: args.seed,
        };
        check_rules(&plan)?;
        let mut figures: [Vec<f64>; METRICS.len()] = Default::default();
        for _ in 0..args.runs() {
            let ran = run_once(Subject::Switch, &plan).context(name.to_owned())?;
            let values = figures_of(&ran);
            figures.iter_mut().zip(values).for_each(|(figures, value)| figures.push(value));
            progress.add(1);
        }
        if !args.json {
            let [before, flood, after, slower, recovery, megaflows, masks, mib, away, spared] =
                std::array::from_fn(|i| median(&figures[i]));
            let recovery =
                if recovery < NEVER_MS { format!("after {recovery:.0} ms") } else { "never".to_owned() };
            println!(
                "{name}: {before:.2} Mpps before, {flood:.2} meanwhile ({slower:.2} times slower), {after:.2} after; \
                 at {:.0} % again {recovery}; {megaflows:.0} megaflows of {masks:.0} masks at the end; the flood has taken {mib:.1} MiB; \
                 {:.1} % of the packets meanwhile were turned away, and {:.1} % were spared the masks' new megaflows, or all",
                100.0 * RECOVERED,
                100.0 * away,
                100.0 * spared
            );
        }
        for (metric, values) in METRICS.into_iter().zip(&figures) {
            let mut params = plan.params(seconds);
            params.insert("flood".into(), (f64::from(share) / 256.0).into());
            report.line(Measurement::of("classify", "switch", name, metric, values, params))?;
        }
    }
    Ok(())
}

const METRICS: [&str; 10] = [
    "before_mpps",
    "flood_mpps",
    "after_mpps",
    "slower",
    "recovery_ms",
    "megaflows_held",
    "masks",
    "memory_mib",
    "turned_away_share",
    "spared_share",
];

fn figures_of(ran: &Ran) -> [f64; METRICS.len()] {
    let slices = ran.measured.slices();
    let [before, flood, after] = [BEFORE, FLOOD, AFTER].map(|phase| ran.usual_mpps(phase));
    [
        before,
        flood,
        after,
        before / flood,
        recovery_ms(&slices, before),
        ran.count(Counter::Megaflows),
        ran.count(Counter::Masks),
        ran.grown_mib(BEFORE, FLOOD),
        ran.share(FLOOD, Counter::TurnedAway),
        ran.share(FLOOD, Counter::Spared),
    ]
}

/// How long after the flood the rate is there again, and how long a slice is at least; [`NEVER_MS`] if it is not while the phase lasts.
fn recovery_ms(slices: &[Slice], before: f64) -> f64 {
    let mut elapsed = Duration::ZERO;
    for slice in slices.iter().filter(|slice| slice.phase == AFTER) {
        elapsed += slice.elapsed;
        if slice.packets > 0 && slice.mpps() >= RECOVERED * before {
            return elapsed.as_secs_f64() * 1e3;
        }
    }
    NEVER_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_the_first_slice_that_is_fast_again() {
        let slice = |phase, packets| Slice { phase, packets, elapsed: Duration::from_millis(10) };
        let of = |after: &[u64]| {
            let slices: Vec<Slice> = [slice(BEFORE, 100_000), slice(FLOOD, 10_000)]
                .into_iter()
                .chain(after.iter().map(|&packets| slice(AFTER, packets)))
                .collect();
            recovery_ms(&slices, 10.0)
        };
        assert_eq!([of(&[95_000, 1]), of(&[20_000, 80_000, 91_000]), of(&[1, 1])], [10.0, 30.0, NEVER_MS]);
    }
}
