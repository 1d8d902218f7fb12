//! `--figure fu-4.6`: the paper's optimisations one by one, in the worst case, on its configuration and on ours.
//!
//! One core, the shortest frames, to one destination from random sources: every packet is of a new flow. A table is filled until hardly any
//! flow has room, with last packets at random times up to the idle time ago. From then on time goes on as packets come at 10 Gbit/s, however long
//! they take, so every variant meets the same expiry. The variants of a table take turns on it, each after a while in which the
//! table gets into the state that the variant keeps it in.
//!
//! ```text
//! block: 2,048 frames made | burst, burst, ..: timed, the gate | the solicitor's turn: timed for itself
//! ```

use super::GateBench;
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::flow::{check_free, size_name};
use crate::bench::report::Report;
use crate::bench::statistics;
use crate::json::{Measurement, Params};
use crate::progress::Progress;
use anyhow::{Result, bail, ensure};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tidemill_gatekeeper::yardstick::{
    Driver, Fate, Gate, HandOver, MOST, OurGate, OurOptions, Packets, PaperGate, PaperOptions, Policy, Way,
    rss, to_grantor,
};
use tidemill_lpm::keys::Random;
use tidemill_wire::{Protocol, ipv4, udp};

/// Packets between two looks at the clock.
const BLOCK: usize = 2048;
/// Packet memory: a block, and what the solicitor keeps.
const PACKETS: usize = 4096;
/// Nanoseconds from packet to packet: the shortest frames at 10 Gbit/s, in thousandths.
const PACKET_PS: u64 = 67_200;
/// Blocks before a variant is measured, at least.
const BEFORE: usize = 8;
/// The frames, without frame check sequence.
const FRAME: usize = 60;
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A variant.
struct Variant<O> {
    name: &'static str,
    options: O,
}

/// A ratio that the figure shows: of the first variant to the second, and what the paper has for 2^15 and 2^20.
struct Step {
    name: &'static str,
    of: &'static str,
    to: &'static str,
    paper: [Option<f64>; 2],
}

const fn paper(
    name: &'static str,
    early_stop: bool,
    driver: Driver,
    hand_over: HandOver,
) -> Variant<PaperOptions> {
    Variant { name, options: PaperOptions { early_stop, driver, hand_over } }
}

/// Names of variants on the paper's configuration.
const BASELINE: &str = "baseline";
const STOP: &str = "stop";
const STOP_GROUP: &str = "stop+group";
const STOP_COROUTINES: &str = "stop+coroutines";
const STOP_BATCH: &str = "stop+batch";
const ALL_GROUP: &str = "stop+group+batch";
const ALL_COROUTINES: &str = "stop+coroutines+batch";

const PAPER: [Variant<PaperOptions>; 7] = [
    paper(BASELINE, false, Driver::Plain, HandOver::Each),
    paper(STOP, true, Driver::Plain, HandOver::Each),
    paper(STOP_GROUP, true, Driver::Group, HandOver::Each),
    paper(STOP_COROUTINES, true, Driver::Coroutine, HandOver::Each),
    paper(STOP_BATCH, true, Driver::Plain, HandOver::Batch),
    paper(ALL_GROUP, true, Driver::Group, HandOver::Batch),
    paper(ALL_COROUTINES, true, Driver::Coroutine, HandOver::Batch),
];

/// The paper's steps. Its "more than 90" is the product of what it has for 2^20: 31.7, 1.9, 1.5. So each optimisation but the first
/// is on top of early stop.
const PAPER_STEPS: [Step; 8] = [
    Step { name: "early stop", of: STOP, to: BASELINE, paper: [Some(1.2), Some(31.7)] },
    Step { name: "group", of: STOP_GROUP, to: STOP, paper: [Some(1.4), Some(2.6)] },
    Step { name: "coroutines", of: STOP_COROUTINES, to: STOP, paper: [Some(1.1), Some(1.9)] },
    Step { name: "hand-over", of: STOP_BATCH, to: STOP, paper: [Some(1.8), Some(1.5)] },
    Step { name: "hand-over after group", of: ALL_GROUP, to: STOP_GROUP, paper: [None, None] },
    Step { name: "hand-over after coroutines", of: ALL_COROUTINES, to: STOP_COROUTINES, paper: [None, None] },
    Step { name: "all, group", of: ALL_GROUP, to: BASELINE, paper: [None, None] },
    Step { name: "all, coroutines", of: ALL_COROUTINES, to: BASELINE, paper: [None, Some(90.0)] },
];

const fn ours(name: &'static str, way: Way, early_stop: bool, hand_over: HandOver) -> Variant<OurOptions> {
    Variant { name, options: OurOptions { way, early_stop, hand_over } }
}

/// Names of variants on ours.
const ORDER: &str = "paper's order, stop";
const COROUTINES: &str = "coroutines, stop";
const ONE_PASS: &str = "one pass, stop";
const ONE_PASS_BATCH: &str = "one pass, stop+batch";
const BURSTS: &str = "paper's order";

const OURS: [Variant<OurOptions>; 7] = [
    ours(BASELINE, Way::OneByOne, false, HandOver::Each),
    ours(STOP, Way::OneByOne, true, HandOver::Each),
    ours(BURSTS, Way::PaperOrder, false, HandOver::Each),
    ours(ORDER, Way::PaperOrder, true, HandOver::Each),
    ours(COROUTINES, Way::Coroutines, true, HandOver::Each),
    ours(ONE_PASS, Way::OnePass, true, HandOver::Each),
    ours(ONE_PASS_BATCH, Way::OnePass, true, HandOver::Batch),
];

const OUR_STEPS: [Step; 8] = [
    Step { name: "early stop", of: STOP, to: BASELINE, paper: [None, None] },
    Step { name: "early stop in the paper's order", of: ORDER, to: BURSTS, paper: [None, None] },
    Step { name: "paper's order", of: ORDER, to: STOP, paper: [None, None] },
    Step { name: "coroutines", of: COROUTINES, to: STOP, paper: [None, None] },
    Step { name: "one pass", of: ONE_PASS, to: STOP, paper: [None, None] },
    Step { name: "one pass to the paper's order", of: ONE_PASS, to: ORDER, paper: [None, None] },
    Step { name: "hand-over", of: ONE_PASS_BATCH, to: ONE_PASS, paper: [None, None] },
    Step { name: "all", of: ONE_PASS_BATCH, to: BASELINE, paper: [None, None] },
];

/// M packets a second of the variants, by run.
struct Rates {
    gate: Vec<f64>,
    /// With the solicitor's turns.
    both: Vec<f64>,
    /// Share of the packets that got an entry.
    kept: Vec<f64>,
}

/// A gate at its work: packets come in, time goes on.
struct Bench<G> {
    gate: G,
    packets: Packets,
    frame: [u8; FRAME],
    random: Random,
    now_ps: u64,
    burst: usize,
    ids: Vec<u32>,
    fates: Vec<Fate>,
}

/// What some blocks took.
#[derive(Default)]
struct Taken {
    packets: usize,
    kept: usize,
    gate: Duration,
    solicitor: Duration,
}

fn template() -> Result<[u8; FRAME]> {
    let mut frame = [0; FRAME];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0]);
    let payload = FRAME - 14 - ipv4::HEADER_LEN;
    ipv4::Repr::new(Ipv4Addr::UNSPECIFIED, DESTINATION, Protocol::UDP, payload).emit(&mut frame[14..])?;
    // Without a checksum, as IPv4 allows.
    let datagram = &mut frame[14 + ipv4::HEADER_LEN..];
    datagram[..4].copy_from_slice(&[0x30, 0x39, 0, 53]);
    datagram[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    const { assert!(FRAME > 14 + ipv4::HEADER_LEN + udp::HEADER_LEN) };
    Ok(frame)
}

impl<G: Gate> Bench<G> {
    fn new(args: &GateBench, entries: usize, burst: usize) -> Result<Self> {
        let mut policy = Policy::default();
        policy.rib.insert("192.0.2.0/24".parse()?, to_grantor(0));
        policy.grantors.push(Ipv4Addr::new(10, 0, 0, 1));
        let idle_ns = (args.idle_s * 1e9) as u64;
        let mut bench = Bench {
            gate: G::new(entries, idle_ns, &policy)?,
            packets: Packets::new(PACKETS),
            frame: template()?,
            random: Random::new(args.seed),
            now_ps: idle_ns * 1000,
            burst,
            ids: Vec::with_capacity(BLOCK),
            fates: vec![Fate::NotIpv4; MOST],
        };
        bench.gate.fill(bench.now_ps / 1000, DESTINATION.into(), &mut bench.random);
        Ok(bench)
    }

    fn block(&mut self, options: G::Options, taken: &mut Taken) -> Result<()> {
        self.ids.clear();
        for _ in 0..BLOCK {
            let source = self.random.bits() as u32;
            self.frame[26..30].copy_from_slice(&source.to_be_bytes());
            ipv4::fill_checksum(&mut self.frame[14..]);
            let id = self.packets.receive(&self.frame, rss(source, DESTINATION.into()));
            let Some(id) = id else { bail!("WRONG: packets are missing: {} are free", self.packets.free()) };
            self.ids.push(id);
        }
        let start = Instant::now();
        for ids in self.ids.chunks(self.burst) {
            self.now_ps += ids.len() as u64 * PACKET_PS;
            self.gate.burst(options, self.now_ps / 1000, &mut self.packets, ids, &mut self.fates);
            let kept =
                self.fates[..ids.len()].iter().filter(|f| matches!(f, Fate::Request { kept: true, .. }));
            taken.kept += kept.count();
        }
        let between = Instant::now();
        self.gate.turn(self.now_ps / 1000, &mut self.packets, |_, _| {});
        let end = Instant::now();
        let (gate, solicitor) = (between - start, end - between);
        self.gate.ran(BLOCK, 0, gate.as_nanos() as u64);
        taken.packets += BLOCK;
        taken.gate += gate;
        taken.solicitor += solicitor;
        Ok(())
    }

    /// One variant for a while.
    fn measure(&mut self, options: G::Options, seconds: f64) -> Result<Taken> {
        self.gate.empty(&mut self.packets);
        let (mut before, mut taken) = (Taken::default(), Taken::default());
        let long = |taken: &Taken, seconds: f64| (taken.gate + taken.solicitor).as_secs_f64() >= seconds;
        while before.packets < BEFORE * BLOCK || !long(&before, seconds / 2.0) {
            self.block(options, &mut before)?;
        }
        let requests = |bench: &Self| bench.gate.books().handed + bench.gate.books().lost;
        let first = requests(self);
        while !long(&taken, seconds) {
            self.block(options, &mut taken)?;
        }
        let came = (requests(self) - first) as usize;
        ensure!(came == taken.packets, "WRONG: {came} requests of {} packets", taken.packets);
        ensure!(self.gate.books().lost == 0, "WRONG: requests found the solicitor's way full");
        Ok(taken)
    }
}

/// All variants of one gate, in turn.
fn measured<G: Gate>(
    args: &GateBench,
    entries: usize,
    burst: usize,
    variants: &[Variant<G::Options>],
    progress: &Progress,
) -> Result<Vec<Rates>> {
    let mut bench = Bench::<G>::new(args, entries, burst)?;
    let mut rates: Vec<Rates> =
        variants.iter().map(|_| Rates { gate: Vec::new(), both: Vec::new(), kept: Vec::new() }).collect();
    for run in 0..args.runs {
        for i in 0..variants.len() {
            let turn = (i + run) % variants.len();
            let taken = bench.measure(variants[turn].options, args.seconds)?;
            let mpps = |time: Duration| taken.packets as f64 / time.as_secs_f64().max(1e-9) / 1e6;
            rates[turn].gate.push(mpps(taken.gate));
            rates[turn].both.push(mpps(taken.gate + taken.solicitor));
            rates[turn].kept.push(taken.kept as f64 / taken.packets as f64);
            progress.add(1);
        }
    }
    Ok(rates)
}

/// One configuration: what its panels show, table by table.
struct Sheet<'a> {
    args: &'a GateBench,
    /// "paper" or "ours".
    configuration: &'static str,
    burst: usize,
    steps: &'a [Step],
    ratios: Vec<Series>,
    with_solicitor: Vec<Series>,
    rates: Vec<Series>,
    notes: Vec<String>,
}

impl<'a> Sheet<'a> {
    fn new(args: &'a GateBench, configuration: &'static str, burst: usize, steps: &'a [Step]) -> Self {
        let (ratios, with_solicitor, rates) = (Vec::new(), Vec::new(), Vec::new());
        Sheet { args, configuration, burst, steps, ratios, with_solicitor, rates, notes: Vec::new() }
    }

    fn add(&mut self, report: &mut Report, entries: usize, names: &[&str], rates: &[Rates]) -> Result<()> {
        let size = size_name(entries);
        let case = format!("fu-4.6/{}/{size}", self.configuration);
        for (name, rates) in names.iter().zip(rates) {
            for (metric, values) in [("mpps", &rates.gate), ("mpps_both", &rates.both), ("kept", &rates.kept)]
            {
                let mut params = Params::new();
                params.insert("entries".into(), entries.into());
                params.insert("burst".into(), self.burst.into());
                params.insert("idle_s".into(), self.args.idle_s.into());
                params.insert("seconds".into(), self.args.seconds.into());
                params.insert("seed".into(), self.args.seed.into());
                report.line(Measurement::of("gate", name, &case, metric, values, params))?;
            }
            put(&mut self.rates, name, &size, statistics::median(&rates.gate), None);
        }
        for Step { name, of, to, paper } in self.steps {
            let find = |name: &str| names.iter().position(|other| *other == name).map(|at| &rates[at]);
            let (Some(a), Some(b)) = (find(of), find(to)) else { continue };
            let paper = match entries {
                0x8000 => paper[0],
                0x10_0000 => paper[1],
                _ => None,
            };
            for (series, x, y, paper) in [
                (&mut self.ratios, &a.gate, &b.gate, paper),
                (&mut self.with_solicitor, &a.both, &b.both, None),
            ] {
                if let Some(ratio) = statistics::ratio(x, y) {
                    put(series, name, &size, ratio.value, paper);
                }
            }
            let before = report.ratios().len();
            report.ratio("gate", &case, (of, &a.gate), (to, &b.gate))?;
            for ratio in &report.ratios()[before..] {
                self.notes.push(format!(
                    "  {case:<20} {of} to {to}: {:.2} ({:.2} to {:.2}, {} pairs)",
                    ratio.value, ratio.low, ratio.high, ratio.pairs
                ));
            }
        }
        Ok(())
    }

    fn panels(self) -> impl Iterator<Item = Panel> {
        let what = format!("{}, bursts of {}", self.configuration, self.burst);
        [
            (format!("ratio of packets a second, {what}"), self.ratios),
            (format!("ratio with the solicitor on the same core, {what}"), self.with_solicitor),
            (format!("M packets/s, {what}"), self.rates),
        ]
        .into_iter()
        .map(|(y, series)| Panel::new("slots of the flow table", y, series))
    }
}

/// Adds a point to the series of this name.
fn put(series: &mut Vec<Series>, name: &str, size: &str, y: f64, paper: Option<f64>) {
    let at = series.iter().position(|series| series.name == name).unwrap_or_else(|| {
        series.push(Series { name: name.into(), points: Vec::new() });
        series.len() - 1
    });
    series[at].points.push(Point { x: X::Name(size.into()), y, paper });
}

/// Bytes of a slot, rounded up: bucket, key and entry of the paper's; ours is far smaller.
const SLOT_BYTES: usize = 8 + 64 + 4 + 128 + 4;

pub(super) fn draw(args: &GateBench) -> Result<()> {
    let all = args.entries(&[1 << 15, 1 << 20]);
    for &entries in &all {
        check_free(entries, "the paper's flow table", entries.saturating_mul(SLOT_BYTES))?;
    }
    let variants = PAPER.len() + OURS.len();
    let progress = Progress::new("bench gate, fu-4.6", (all.len() * args.runs * variants) as u64);
    let mut report = Report::new(args.json);
    let bursts = [32, MOST].map(|usual| args.burst.unwrap_or(usual));
    let mut theirs = Sheet::new(args, "paper", bursts[0], &PAPER_STEPS);
    let mut ours = Sheet::new(args, "ours", bursts[1], &OUR_STEPS);
    for &entries in &all {
        progress.message(format!("the paper's, {}", size_name(entries)));
        let rates = measured::<PaperGate>(args, entries, bursts[0], &PAPER, &progress)?;
        theirs.add(&mut report, entries, &PAPER.map(|variant| variant.name), &rates)?;
        progress.message(format!("ours, {}", size_name(entries)));
        let rates = measured::<OurGate>(args, entries, bursts[1], &OURS, &progress)?;
        ours.add(&mut report, entries, &OURS.map(|variant| variant.name), &rates)?;
    }
    drop(progress);
    let mut notes = vec![
        "the paper's \"all\" is more than 90 (Fu 2020, 4.6.2); its tables of 2^25 slots are \"similar\""
            .to_owned(),
        format!(
            "assumed: flows expire after {} s, packets come at 14.88 M/s, one entry (ours: one bucket) is looked at for each burst",
            args.idle_s
        ),
        "ratios of packets a second, with 95 % intervals".to_owned(),
    ];
    notes.append(&mut theirs.notes);
    notes.append(&mut ours.notes);
    let drawing = Drawing {
        figure: "fu-4.6",
        title: "The worst case, optimisation by optimisation (Fu 2020, Figure 4.6)".into(),
        table: None,
        panels: theirs.panels().chain(ours.panels()).collect(),
        notes,
    };
    drawing.show(args.json, args.plot.as_deref())
}
