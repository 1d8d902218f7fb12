//! The five traffic cases through the whole switch: rates, and where a packet's time goes; HALO's Figure 3 of it.
//!
//! Rates are those of the switch as it runs. The layers come from runs with a stopwatch, which read the counter a few times for each 32 packets;
//! what that costs is reported too (`timed_share`).

use super::switch::{Plan, Ran, Subject, check_rules, run_once};
use super::traffic::Traffic;
use super::{ClassifyBench, Machine};
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::report::{Report, figure, print_grid};
use crate::bench::statistics::median;
use crate::json::{Measurement, Params};
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use tidemill_classify::laps::Layer;
use tidemill_switch::Counter;

const SUBJECTS: [(Subject, &str); 3] =
    [(Subject::Switch, "switch"), (Subject::Timed, "switch-timed"), (Subject::Bound, "bound")];
const LAYERS: usize = Layer::ALL.len();
/// Metrics of layers, in their order.
const NS: [&str; LAYERS] = ["io_ns", "parse_ns", "exact_ns", "megaflow_ns", "rules_ns", "actions_ns"];
const CYCLES: [&str; LAYERS] =
    ["io_cycles", "parse_cycles", "exact_cycles", "megaflow_cycles", "rules_cycles", "actions_cycles"];
/// The phase that counts; before it the caches fill.
const MEASURED: usize = 1;

/// What was measured of a traffic case.
pub(super) struct Split {
    name: String,
    traffic: Traffic,
    mpps: f64,
    cycles: f64,
    layers: [f64; LAYERS],
    paper: Option<u32>,
    exact: f64,
    megaflow: f64,
    masks: f64,
}

/// Measures one case.
pub(super) fn measure(
    args: &ClassifyBench,
    machine: &Machine,
    plan: &Plan,
    progress: &Progress,
    report: &mut Report,
) -> Result<Split> {
    check_rules(plan)?;
    let family = if plan.v6 { 6 } else { 4 };
    let name = format!("{}/v{family}", plan.traffic.name);
    progress.message(&name);
    let mut rates: [Vec<f64>; SUBJECTS.len()] = Default::default();
    let mut ticks: [Vec<f64>; LAYERS] = Default::default();
    let mut shares: [Vec<f64>; SHARES.len()] = Default::default();
    for run in 0..args.runs() {
        for i in 0..SUBJECTS.len() {
            let turn = (i + run) % SUBJECTS.len();
            let ran = run_once(SUBJECTS[turn].0, plan).context(name.clone())?;
            rates[turn].push(ran.mpps(MEASURED));
            match SUBJECTS[turn].0 {
                Subject::Timed => {
                    let packet = ran.measured.ticks_per_packet();
                    ticks.iter_mut().zip(packet).for_each(|(ticks, packet)| ticks.push(packet));
                }
                Subject::Switch => {
                    let counted = counted(&ran);
                    shares.iter_mut().zip(counted).for_each(|(shares, counted)| shares.push(counted));
                }
                Subject::Bound => {}
            }
            progress.add(1);
        }
    }
    let params = || {
        let params: [(&str, serde_json::Value); 9] = [
            ("flows", plan.traffic.flows.into()),
            ("rules", plan.traffic.rules.into()),
            ("family", family.into()),
            ("exact", plan.section.exact.into()),
            ("signatures", plan.section.signatures.into()),
            ("megaflows", plan.section.megaflows.into()),
            ("seconds", args.seconds.into()),
            ("seed", args.seed.into()),
            ("ticks_per_ns", machine.ticks_per_ns.into()),
        ];
        params.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Params>()
    };
    for ((_, subject), mpps) in SUBJECTS.iter().zip(&rates) {
        let ns: Vec<f64> = mpps.iter().map(|mpps| 1e3 / mpps).collect();
        let cycles: Vec<f64> = ns.iter().map(|ns| ns * machine.ticks_per_ns).collect();
        for (metric, values) in [("mpps", mpps), ("ns_per_packet", &ns), ("cycles_per_packet", &cycles)] {
            report.line(Measurement::of("classify", subject, &name, metric, values, params()))?;
        }
    }
    for (layer, ticks) in ticks.iter().enumerate() {
        let ns: Vec<f64> = ticks.iter().map(|ticks| ticks / machine.ticks_per_ns).collect();
        for (metric, values) in [(NS[layer], &ns), (CYCLES[layer], ticks)] {
            report.line(Measurement::of("classify", "switch", &name, metric, values, params()))?;
        }
    }
    for (metric, values) in SHARES.into_iter().zip(&shares) {
        report.line(Measurement::of("classify", "switch", &name, metric, values, params()))?;
    }
    for to in 1..SUBJECTS.len() {
        report.ratio("classify", &name, ("switch", &rates[0]), (SUBJECTS[to].1, &rates[to]))?;
    }
    let layers: [f64; LAYERS] = std::array::from_fn(|layer| median(&ticks[layer]));
    Ok(Split {
        name,
        traffic: plan.traffic,
        mpps: median(&rates[0]),
        cycles: machine.ticks_per_ns * 1e3 / median(&rates[0]),
        layers,
        paper: plan.traffic.paper_cycles.filter(|_| !plan.v6),
        exact: median(&shares[0]),
        megaflow: median(&shares[1]),
        masks: median(&shares[4]),
    })
}

/// What the switch has counted, by packet of the phase that counts, or in the end.
const SHARES: [&str; 6] =
    ["exact_share", "megaflow_share", "signature_share", "probes_per_packet", "masks", "megaflows_held"];

fn counted(ran: &Ran) -> [f64; SHARES.len()] {
    [
        ran.share(MEASURED, Counter::ExactHits),
        ran.share(MEASURED, Counter::MegaflowHits),
        ran.share(MEASURED, Counter::SignatureHits),
        ran.share(MEASURED, Counter::Probes),
        ran.count(Counter::Masks),
        ran.count(Counter::Megaflows),
    ]
}

impl Split {
    /// The part of a packet's time that classification takes, per cent: exact matches and megaflows, as the paper counts it.
    fn classification(&self) -> f64 {
        let sum: f64 = self.layers.iter().sum();
        100.0 * (self.layers[Layer::Exact as usize] + self.layers[Layer::Megaflow as usize]) / sum
    }
}

/// For people.
pub(super) fn print(splits: &[Split]) {
    println!(
        "\nThe switch on one core. Cycles of the time stamp counter for a packet, by layer; io is all outside of the switch"
    );
    let head = ["case", "flows", "rules", "Mpps", "cycles"].into_iter().map(str::to_owned);
    let layers = Layer::ALL.iter().map(|layer| layer.name().to_owned());
    let tail = ["class. %", "exact hits %", "megaflow hits %", "masks"].into_iter().map(str::to_owned);
    let mut rows = vec![head.chain(layers).chain(tail).collect::<Vec<String>>()];
    for split in splits {
        let head = [
            split.name.clone(),
            split.traffic.flows.to_string(),
            split.traffic.rules.to_string(),
            figure(split.mpps),
            format!("{:.0}", split.cycles),
        ];
        let layers = split.layers.iter().map(|cycles| format!("{cycles:.0}"));
        let tail = [
            format!("{:.1}", split.classification()),
            format!("{:.1}", 100.0 * split.exact),
            format!("{:.1}", 100.0 * split.megaflow),
            figure(split.masks),
        ];
        rows.push(head.into_iter().chain(layers).chain(tail).collect());
    }
    print_grid(&rows);
}

/// Figure 3.
pub(super) fn drawing(splits: &[Split]) -> Drawing {
    let point = |split: &Split, y, paper| Point { x: X::Name(split.name.clone()), y, paper };
    let layer = |layer: &Layer| Series {
        name: layer.name().to_owned(),
        points: splits.iter().map(|split| point(split, split.layers[*layer as usize], None)).collect(),
    };
    let total = Series {
        name: "all".to_owned(),
        points: splits.iter().map(|split| point(split, split.cycles, split.paper.map(f64::from))).collect(),
    };
    let share = Series {
        name: "exact and megaflow".to_owned(),
        points: splits.iter().map(|split| point(split, split.classification(), None)).collect(),
    };
    let cycles = Layer::ALL.iter().map(layer).chain([total]).collect();
    Drawing {
        figure: "halo-3",
        title: "A packet's cycles in the switch, by layer".to_owned(),
        table: None,
        panels: vec![
            Panel::new("traffic", "cycles per packet", cycles),
            Panel::new("traffic", "per cent of the time", vec![share]),
        ],
        notes: vec![
            "the paper: Open vSwitch with DPDK, real ports, a Xeon at 2.1 GHz; 340 cycles for the first, 993 for the last of its cases, \
             classification 30.9 to 77.8 % of them. Here: ports in memory, cycles of the time stamp counter"
                .to_owned(),
            "assumed: the numbers of flows and rules inside of the paper's ranges; a packet's flow is drawn at random".to_owned(),
        ],
    }
}
