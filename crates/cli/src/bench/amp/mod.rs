//! `bench amp`: the mitigator's graph between two ports in memory, on one core.
//!
//! The shortest DNS responses there are (60 bytes without frame check sequence for IPv4, 74 for IPv6) come in from outside; every one is
//! looked up. The bound is the same ports with a bridge that looks at nothing. `latency` is what a burst takes from
//! coming in to going out (Tokusashi 2019, 5.5.1 leaves that open).

mod frames;
mod ports;

use super::report::Report;
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Context as _, Result};
use clap::Args;
use ports::{Mix, Plan, pair};
use std::time::Duration;
use tidemill_amp::{MitigatorControl, MitigatorSection};
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, Graph, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_lookup::qsbr::Domain;

/// Arguments of `bench amp`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tidemill bench amp\n  tidemill bench amp --case dns/filtered --flows 1000,2000000 --json\n  \
    tidemill bench amp --case latency --family 4"
)]
pub(crate) struct AmpBench {
    /// Cases: dns/suspected (every packet of a new flow), dns/known (suspected flows that come again), dns/filtered, dns/mixed (half
    /// filtered, a quarter suspected, a quarter other traffic), dns/passing (other traffic), latency
    #[arg(long = "case", value_name = "NAME", value_delimiter = ',', default_values = CASES.map(|case| case.name))]
    cases: Vec<String>,
    /// Flows that come over and over
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1000_u64, 262_144])]
    flows: Vec<u64>,
    /// 4 or 6 [default: both]
    #[arg(long, value_name = "FAMILY", value_delimiter = ',', default_values_t = [4_u8, 6])]
    family: Vec<u8>,
    /// Packets of a burst, for `latency`
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1_usize, 8, 32, 256])]
    bursts: Vec<usize>,
    /// Seconds per run
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Runs; figures are medians over them
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// What is measured under a name.
struct Case {
    name: &'static str,
    mix: Mix,
}

const CASES: [Case; 6] = [
    Case { name: "dns/suspected", mix: Mix::New },
    Case { name: "dns/known", mix: Mix::Known },
    Case { name: "dns/filtered", mix: Mix::Filtered },
    Case { name: "dns/mixed", mix: Mix::Mixed },
    Case { name: "dns/passing", mix: Mix::Passing },
    // Responses that pass: what the mitigator looks at and lets through.
    Case { name: "latency", mix: Mix::Known },
];
const LATENCY: &str = "latency";

/// Packet memory.
const FRAMES: usize = 4096;
const FRAME_SIZE: usize = 2048;
/// The ports in the graph's order.
const PORTS: [&str; 2] = ["outside", "inside"];
/// Room for rules if few are wanted: the default of the configuration.
const ENTRIES: u64 = 262_144;
/// The percentiles of latency, in thousandths, with the names of their metrics.
const PERCENTILES: [(usize, &str); 3] = [(500, "p50_ns"), (990, "p99_ns"), (999, "p999_ns")];

/// Who is between the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Mitigator,
    /// A bridge that looks at nothing.
    Bound,
}

const SUBJECTS: [(Subject, &str); 2] = [(Subject::Mitigator, "mitigator"), (Subject::Bound, "bound")];

/// The bridge.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

fn bridge() -> GraphBuilder {
    let mut graph = GraphBuilder::new(PORTS);
    for (node, from, to) in [("inwards", PORTS[0], "port:inside"), ("outwards", PORTS[1], "port:outside")] {
        graph.node(node, ["on"], |_| Box::new(Pass)).input(from, node).edge(node, "on", to);
    }
    graph
}

/// A mitigator with room for the plan's rules; no limit to what victims may say.
fn mitigator(plan: &Plan, domain: &Domain) -> Result<GraphBuilder> {
    let room = if plan.mix == Mix::New { ENTRIES } else { ENTRIES.max(plan.flows * 5 / 2) };
    let section = MitigatorSection {
        entries: room as usize,
        icmp_rate: 0,
        suspect_s: 60,
        ..MitigatorSection::default()
    };
    let control = MitigatorControl::new(&section, &PORTS.map(str::to_owned), 1, domain)?;
    Ok(tidemill_amp::graph(&control))
}

/// What one run gives: Mpps, and the latencies of bursts, ascending.
struct Ran {
    mpps: f64,
    latencies: Vec<u32>,
}

fn run_once(subject: Subject, plan: &Plan) -> Result<Ran> {
    let plan = Plan { learns: subject == Subject::Mitigator, ..plan.clone() };
    let domain = Domain::new();
    let graph: Graph = match subject {
        Subject::Mitigator => mitigator(&plan, &domain)?.build()?,
        Subject::Bound => bridge().build()?,
    };
    let (outside, inside, measured) = pair(&plan);
    let memory = Memory::new(FRAMES, FRAME_SIZE).context("packet memory")?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: FRAMES,
        pin: true,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let queues = vec![vec![outside], vec![inside]];
    let outcome = Engine::new(graph, 1, queues, &memory, &domain, options)?.run(|_| {});
    if let Some(error) = outcome.errors.into_iter().next() {
        return Err(error.into());
    }
    let ledger = outcome.snapshot.ledger();
    let (packets, elapsed_ns) = (measured.packets(), measured.elapsed_ns());
    if !ledger.balances() || packets == 0 || elapsed_ns == 0 {
        anyhow::bail!("the books do not balance: in {}, out {}", ledger.received, ledger.out);
    }
    if subject == Subject::Mitigator {
        check(&plan, packets, ledger.dropped_total())?;
    }
    Ok(Ran { mpps: packets as f64 * 1e3 / elapsed_ns as f64, latencies: measured.latencies() })
}

/// What was dropped has to be what the case is about, but for the flows that found no room.
fn check(plan: &Plan, packets: u64, dropped: u64) -> Result<()> {
    let (part, wanted) = (dropped as f64 / packets as f64, plan.mix.dropped());
    // The last round of a mixture may be cut anywhere.
    let slack = 0.001 + 256.0 / packets as f64;
    if (part - wanted).abs() > slack {
        anyhow::bail!(
            "{:?}: {:.2} % of the packets were dropped instead of {:.2} %: not every flow has its rule",
            plan.mix,
            100.0 * part,
            100.0 * wanted
        );
    }
    Ok(())
}

/// Checks arguments.
fn checked(args: &AmpBench) -> Result<Vec<&'static Case>> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) || args.runs == 0 {
        return Err(usage("--seconds, --runs: give more than 0, and at most 3600 seconds"));
    }
    if let Some(wrong) = args.flows.iter().find(|flows| !(4..=8_000_000).contains(*flows)) {
        return Err(usage(format!("--flows {wrong}: give 4 to 8000000")));
    }
    if let Some(wrong) = args.family.iter().find(|family| ![4, 6].contains(*family)) {
        return Err(usage(format!("--family {wrong}: give 4 or 6")));
    }
    if let Some(wrong) = args.bursts.iter().find(|burst| !(1..=256).contains(*burst)) {
        return Err(usage(format!("--bursts {wrong}: give 1 to 256")));
    }
    let find = |name: &String| {
        let names = CASES.map(|case| case.name).join(", ");
        CASES
            .iter()
            .find(|case| case.name == name)
            .ok_or_else(|| usage(format!("--case {name}: give some of {names}")))
    };
    args.cases.iter().map(find).collect()
}

/// A case with its parameters.
struct Way {
    case: &'static Case,
    plan: Plan,
}

fn ways(args: &AmpBench, cases: &[&'static Case]) -> Vec<Way> {
    let mut ways = Vec::new();
    for case in cases {
        let latency = case.name == LATENCY;
        // How many flows there are is of no account where none comes again.
        let flows = if case.mix == Mix::New { &args.flows[..1] } else { &args.flows[..] };
        let bursts = if latency { &args.bursts[..] } else { &[256] };
        for family in &args.family {
            for &flows in flows {
                for &burst in bursts {
                    let duration = Duration::from_secs_f64(args.seconds);
                    let plan = Plan {
                        mix: case.mix,
                        v6: *family == 6,
                        flows,
                        duration,
                        burst,
                        latency,
                        learns: true,
                    };
                    ways.push(Way { case, plan });
                }
            }
        }
    }
    ways
}

pub(super) fn run(args: &AmpBench) -> Result<bool> {
    let ways = ways(args, &checked(args)?);
    let progress = Progress::new("bench amp", (ways.len() * args.runs * SUBJECTS.len()) as u64);
    let mut report = Report::new(args.json);
    for Way { case, plan } in &ways {
        progress.message(case.name);
        let mut rates: [Vec<f64>; SUBJECTS.len()] = Default::default();
        let mut times: [[Vec<f64>; PERCENTILES.len()]; SUBJECTS.len()] = Default::default();
        for run in 0..args.runs {
            for i in 0..SUBJECTS.len() {
                let turn = (i + run) % SUBJECTS.len();
                let ran = run_once(SUBJECTS[turn].0, plan).context(case.name)?;
                rates[turn].push(ran.mpps);
                for (times, (thousandths, _)) in times[turn].iter_mut().zip(PERCENTILES) {
                    times.push(percentile(&ran.latencies, thousandths));
                }
                progress.add(1);
            }
        }
        if plan.latency {
            latencies(args, &mut report, case, plan, &times)?;
        } else {
            throughput(args, &mut report, case, plan, &rates)?;
        }
    }
    Ok(true)
}

fn params(args: &AmpBench, plan: &Plan) -> Params {
    let mut params = Params::new();
    params.insert("family".into(), if plan.v6 { 6 } else { 4 }.into());
    params.insert("frame".into(), frames::Template::new(plan.v6, 53).len().into());
    if plan.mix != Mix::New {
        params.insert("flows".into(), plan.flows.into());
    }
    params.insert("burst".into(), plan.burst.into());
    params.insert("seconds".into(), args.seconds.into());
    params
}

fn throughput(
    args: &AmpBench,
    report: &mut Report,
    case: &Case,
    plan: &Plan,
    rates: &[Vec<f64>; SUBJECTS.len()],
) -> Result<()> {
    for ((_, subject), mpps) in SUBJECTS.iter().zip(rates) {
        let ns: Vec<f64> = mpps.iter().map(|mpps| 1e3 / mpps).collect();
        let line = |metric, values: &[f64]| {
            Measurement::of("amp", subject, case.name, metric, values, params(args, plan))
        };
        if !args.json {
            println!(
                "{} IPv{}{}, {subject}: {:.2} Mpps, {:.1} ns/packet",
                case.name,
                if plan.v6 { 6 } else { 4 },
                if plan.mix == Mix::New { String::new() } else { format!(", {} flows", plan.flows) },
                super::statistics::median(mpps),
                super::statistics::median(&ns)
            );
        }
        report.line(line("mpps", mpps))?;
        report.line(line("ns_per_packet", &ns))?;
    }
    let before = report.ratios().len();
    report.ratio("amp", case.name, (SUBJECTS[0].1, &rates[0]), (SUBJECTS[1].1, &rates[1]))?;
    if !args.json {
        for Ratio { of, to, value, low, high, pairs, .. } in &report.ratios()[before..] {
            println!("  {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
        }
    }
    Ok(())
}

fn latencies(
    args: &AmpBench,
    report: &mut Report,
    case: &Case,
    plan: &Plan,
    times: &[[Vec<f64>; PERCENTILES.len()]; SUBJECTS.len()],
) -> Result<()> {
    for ((_, subject), times) in SUBJECTS.iter().zip(times) {
        for ((_, metric), values) in PERCENTILES.iter().zip(times) {
            report.line(Measurement::of("amp", subject, case.name, metric, values, params(args, plan)))?;
        }
        if !args.json {
            let medians: Vec<String> =
                times.iter().map(|values| format!("{:.0}", super::statistics::median(values))).collect();
            println!(
                "latency IPv{}, {} flows, bursts of {}, {subject}: {} ns at the 50th, 99th, 99.9th percentile",
                if plan.v6 { 6 } else { 4 },
                plan.flows,
                plan.burst,
                medians.join(", ")
            );
        }
    }
    Ok(())
}

/// Of ascending values; the nearest one, 0 of none.
fn percentile(ascending: &[u32], thousandths: usize) -> f64 {
    let at = (ascending.len().saturating_sub(1) * thousandths + 500) / 1000;
    ascending.get(at).copied().map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_values() {
        let values: Vec<u32> = (0..=1000).collect();
        assert_eq!(
            [0, 500, 990, 999, 1000].map(|p| percentile(&values, p)),
            [0.0, 500.0, 990.0, 999.0, 1000.0]
        );
        assert_eq!(percentile(&[], 500), 0.0);
    }

    #[test]
    fn a_case_that_is_not_what_it_says_fails() {
        let plan = Plan {
            mix: Mix::Filtered,
            v6: false,
            flows: 4,
            duration: Duration::from_millis(1),
            burst: 256,
            latency: false,
            learns: true,
        };
        assert!(check(&plan, 1_000_000, 1_000_000).is_ok());
        assert!(check(&plan, 1_000_000, 990_000).unwrap_err().to_string().contains("99.00 %"));
        let plan = Plan { mix: Mix::Mixed, ..plan };
        assert!(check(&plan, 1_000_000, 500_000).is_ok() && check(&plan, 1_000_000, 1_000_000).is_err());
    }
}
