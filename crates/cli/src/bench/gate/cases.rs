//! The cases of `bench gate`: the whole Gatekeeper, as `tidemill run` makes it, between two ports in memory, on one core.
//!
//! The shortest frames there are (60 bytes without frame check sequence; 62 of IPv6), to one protected destination. `worst`: each of a source that was
//! never seen, so every packet makes a flow, while the table fills and when it is full. `granted`: each of one of so many
//! flows that were granted before. The bound is the same ports with a bridge that looks at nothing. Where several orders or drivers of lookups are asked for, all take turns.
//!
//! ```text
//! worst   | filling: as many packets as there is room for | full: as many again, and on until --seconds have passed |
//!         |<--------- mpps_filling ---------------------->|<--------------- mpps_full ------------------------------>|
//!         |<--------------------------------- mpps: all packets by all the time ------------------------------------>|
//! ```
//! A run whose table did not get full is refused.

use super::GateBench;
use crate::bench::ends::{
    Back, DESTINATION, DESTINATION6, FRAME, FRAME6, PORTS, bridge, frame, frame6, ran, router, source,
    source6, write, write6,
};
use crate::bench::flow::{check_free, size_name};
use crate::bench::pass::table_pages;
use crate::bench::report::Report;
use crate::bench::statistics;
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, Pool};
use tidemill_gatekeeper::config::{Action, Driver, Order, PolicyConfig};
use tidemill_gatekeeper::gate::Gate;
use tidemill_gatekeeper::{
    Counter, Counters, Decision, GatekeeperControl, GatekeeperSection, Host, Pair, Verdict, splice,
};
use tidemill_graph::{Clock, Ledger};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::Random;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_router::RouterControl;

/// What comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Case {
    /// Every packet of a flow that never was
    Worst,
    /// Packets of granted flows
    Granted,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Worst => "worst",
            Case::Granted => "granted",
        }
    }
}

const ROUTER: &str = "
[[interface]]
port = 'front'
promiscuous = true
addresses = ['198.18.0.1/24']
[[interface]]
port = 'back'
addresses = ['198.19.0.1/24']
[[route]]
prefix = '198.19.0.2/32'
port = 'back'
mac = '02:00:00:00:00:02'
[[route]]
prefix = '192.0.2.0/24'
port = 'back'
mac = '02:00:00:00:00:02'
";

const ROUTER6: &str = "
[[interface]]
port = 'front'
promiscuous = true
addresses = ['2001:db8:18::1/64']
[[interface]]
port = 'back'
addresses = ['2001:db8:19::1/64']
[[route]]
prefix = '2001:db8:19::2/128'
port = 'back'
mac = '02:00:00:00:00:02'
[[route]]
prefix = '2001:db8:2::/48'
port = 'back'
mac = '02:00:00:00:00:02'
";

/// What is between the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Gatekeeper(Order, Driver),
    Bound,
}

impl Subject {
    /// The Gatekeeper in each of these ways, and the bound.
    fn all(args: &GateBench) -> Vec<Subject> {
        let mut all = Vec::new();
        for &order in &args.orders {
            for &driver in &args.drivers {
                let subject = Subject::Gatekeeper(order, driver);
                if !all.contains(&subject) {
                    all.push(subject);
                }
            }
        }
        all.push(Subject::Bound);
        all
    }

    /// The usual way has none of its own.
    fn name(self) -> String {
        let (order, driver) = match self {
            Subject::Bound => return "bound".into(),
            Subject::Gatekeeper(Order::OnePass, Driver::Group) => return "gatekeeper".into(),
            Subject::Gatekeeper(order, driver) => (order, driver),
        };
        let order = match order {
            Order::OnePass => "one-pass",
            Order::FlowFirst => "flow-first",
        };
        let driver = match driver {
            Driver::Plain => "plain",
            Driver::Group => "group",
            Driver::Coroutine => "coroutine",
        };
        format!("gatekeeper/{order}/{driver}")
    }
}

/// What the runs of a subject gave; of the bound, `all` alone.
#[derive(Debug, Default)]
struct Runs {
    all: Vec<f64>,
    /// While its table fills, and then.
    parts: [Vec<f64>; 2],
    /// Another run may find other pages free.
    pages: BTreeSet<&'static str>,
}

impl Runs {
    fn add(&mut self, rates: &Rates) {
        self.all.push(rates.all);
        let Some(pages) = rates.pages else { return };
        self.pages.insert(pages);
        if let Some(two) = rates.parts {
            self.parts.iter_mut().zip(two).for_each(|(part, rate)| part.push(rate));
        }
    }

    fn pages(&self) -> Option<String> {
        let pages: Vec<&str> = self.pages.iter().copied().collect();
        (!pages.is_empty()).then(|| pages.join(" or "))
    }
}

/// The parts of a run that makes flows: metric, and in words.
const PARTS: [(&str, &str); 2] = [("mpps_filling", "while it fills"), ("mpps_full", "when it is full")];

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    case: Case,
    /// Whether packets are of IPv6.
    six: bool,
    /// Room for flows, or flows that come.
    flows: usize,
    duration: Duration,
    seed: u64,
}

/// What packets are made of.
enum Form {
    V4([u8; FRAME]),
    V6([u8; FRAME6]),
}

/// The front: makes packets while the clock runs.
struct Front {
    plan: Plan,
    form: Form,
    next: u32,
    random: Random,
    start: Option<Instant>,
    given: u64,
    /// Whether as many have come as there is room for.
    filled: bool,
    measured: Arc<Measured>,
    counters: PortCounters,
}

/// What was measured.
#[derive(Debug, Default)]
struct Measured {
    packets: AtomicU64,
    elapsed_ns: AtomicU64,
    /// The same when the table was to be full.
    filling: AtomicU64,
    filling_ns: AtomicU64,
}

/// M packets a second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    all: f64,
    /// While the table fills, and then; where flows are made.
    parts: Option<[f64; 2]>,
    /// What the tables lie on, if there are any.
    pages: Option<&'static str>,
}

impl Measured {
    fn rates(&self, case: Case) -> Option<Rates> {
        let [packets, ns, filling, filling_ns] =
            [&self.packets, &self.elapsed_ns, &self.filling, &self.filling_ns]
                .map(|number| number.load(Ordering::Relaxed));
        let rate = |packets: u64, ns: u64| (packets > 0 && ns > 0).then(|| packets as f64 * 1e3 / ns as f64);
        let parts = match case {
            Case::Worst => Some([
                rate(filling, filling_ns)?,
                rate(packets.checked_sub(filling)?, ns.checked_sub(filling_ns)?)?,
            ]),
            Case::Granted => None,
        };
        Some(Rates { all: rate(packets, ns)?, parts, pages: None })
    }
}

impl Plan {
    /// Bytes of the Gatekeeper's tables. Of both families: both are there from the start.
    fn bytes(&self) -> usize {
        let bytes = Gate::<u32, 1>::BYTES_PER_FLOW + Gate::<u128, 4>::BYTES_PER_FLOW;
        (self.flows as f64 * bytes) as usize
    }

    fn name(&self) -> String {
        let family = if self.six { "-v6" } else { "" };
        format!("{}{family}/{}", self.case.name(), size_name(self.flows))
    }

    /// Bytes of a frame.
    fn frame(&self) -> usize {
        if self.six { FRAME6 } else { FRAME }
    }

    fn form(&self) -> Result<Form> {
        Ok(if self.six { Form::V6(frame6(DESTINATION6)?) } else { Form::V4(frame(DESTINATION)?) })
    }

    /// The flow of this number.
    fn flow(&self, n: u32) -> Pair {
        match self.six {
            true => Pair::V6 { src: source6(n), dst: DESTINATION6.to_bits() },
            false => Pair::V4 { src: source(n), dst: DESTINATION.to_bits() },
        }
    }

    /// Packets that come at least.
    fn packets(&self) -> u64 {
        match self.case {
            Case::Worst => 2 * self.flows as u64,
            Case::Granted => 0,
        }
    }
}

impl Port for Front {
    fn name(&self) -> &str {
        PORTS[0]
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let elapsed = self.start.get_or_insert_with(Instant::now).elapsed();
        // What was given out before has been through the graph.
        if !self.filled && self.given >= self.plan.flows as u64 {
            self.filled = true;
            self.measured.filling.store(self.given, Ordering::Relaxed);
            self.measured.filling_ns.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
        }
        if elapsed >= self.plan.duration && self.given >= self.plan.packets() {
            self.measured.packets.store(self.given, Ordering::Relaxed);
            self.measured.elapsed_ns.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
            return Ok(RxStatus::Ended);
        }
        for packet in pool.take_into(BURST, burst) {
            let number = match self.plan.case {
                Case::Worst => {
                    self.next = self.next.wrapping_add(1);
                    self.next
                }
                Case::Granted => {
                    let scaled = (self.random.bits() >> 32) * self.plan.flows as u64;
                    (scaled >> 32) as u32
                }
            };
            match &self.form {
                Form::V4(frame) => write(frame, source(number), packet),
                Form::V6(frame) => write6(frame, source6(number), packet),
            }
            self.counters.rx.count(packet.len());
            self.given += 1;
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.counters.tx.packets += burst.len() as u64;
        pool.free_all(burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// A Gatekeeper with one policy and one Grantor; of `granted`, with the flows.
fn gatekeeper(
    plan: &Plan,
    (order, driver): (Order, Driver),
    domain: &Domain,
) -> Result<(RouterControl, GatekeeperControl)> {
    let (config, prefix, grantor) = match plan.six {
        true => (ROUTER6, "2001:db8:2::/48", "2001:db8:19::2"),
        false => (ROUTER, "192.0.2.0/24", "198.19.0.2"),
    };
    let router = router(config, domain)?;
    let section = GatekeeperSection {
        front: vec![PORTS[0].into()],
        policy: vec![PolicyConfig {
            prefix: prefix.into(),
            action: Action::Grantor,
            grantors: vec![grantor.into()],
        }],
        flows: plan.flows,
        order,
        driver,
        ..GatekeeperSection::default()
    };
    let mut gate = GatekeeperControl::new(&section, &router.settings().interfaces, 1, domain)?;
    if plan.case == Case::Granted {
        let verdict = Verdict::Granted {
            rate_kib_s: u32::MAX,
            expire_s: 1_000_000,
            renew_ms: u32::MAX,
            step_ms: 1_000_000,
            direct: false,
        };
        let decision = |n: u32| Decision { flow: plan.flow(n), verdict };
        let made = gate.decide_before_start(0, Clock::wall().now_ns(0), (0..plan.flows as u32).map(decision));
        if made != plan.flows {
            bail!("of {} flows {made} found room", plan.flows);
        }
    }
    Ok((router, gate))
}

fn run_once(subject: Subject, plan: &Plan) -> Result<Rates> {
    let domain = Domain::new();
    let (graph, controls) = match subject {
        Subject::Bound => (bridge().build()?, None),
        Subject::Gatekeeper(order, driver) => {
            let (router, gate) = gatekeeper(plan, (order, driver), &domain)?;
            let mut graph = tidemill_router::graph(&router);
            let host = Host { ways4: Box::new(router.ways4()), ways6: Box::new(router.ways6()) };
            splice(&mut graph, &gate, host);
            (graph.build()?, Some((router, gate)))
        }
    };
    let pages = controls.as_ref().map(|_| table_pages(plan.bytes(), 0));
    let measured = Arc::new(Measured::default());
    let front = Front {
        plan: *plan,
        form: plan.form()?,
        next: 0,
        random: Random::new(plan.seed),
        start: None,
        given: 0,
        filled: false,
        measured: measured.clone(),
        counters: PortCounters::default(),
    };
    let ledger = ran(graph, [Box::new(front), Box::<Back>::default()], &domain)?;
    let rates = measured.rates(plan.case).context("no time has passed")?;
    if let Some((_, gate)) = &controls {
        check(plan.case, measured.packets.load(Ordering::Relaxed), &gate.counters(), &ledger)?;
    }
    Ok(Rates { pages, ..rates })
}

/// Every packet has to be what the case is about, a table that is to get full has to be, and nothing else may be dropped than requests that there is no room for.
fn check(case: Case, packets: u64, counters: &Counters, ledger: &Ledger) -> Result<()> {
    let count = |counter| counters.get(counter);
    let (good, queued): (_, &[&str]) = match case {
        Case::Worst => (
            count(Counter::Requests) == packets
                && count(Counter::FlowsMade) + count(Counter::RequestsUntracked) == packets
                && count(Counter::RequestsUntracked) > 0,
            &["request-queue-full", "request-evicted"],
        ),
        Case::Granted => (count(Counter::Granted) == packets, &[]),
    };
    let lost =
        ledger.dropped.iter().filter(|(reason, _)| !queued.contains(*reason)).map(|(_, n)| n).sum::<u64>();
    if !good || lost > 0 {
        bail!(
            "WRONG: of {packets} packets {lost} were dropped that should not be; the gate counted {counters:?}"
        );
    }
    Ok(())
}

pub(super) fn run(args: &GateBench) -> Result<()> {
    let mut plans = Vec::new();
    for case in &args.cases {
        let sizes = match case {
            Case::Worst => args.entries(&[1 << 20, 1 << 25]),
            Case::Granted => args.flows.clone(),
        };
        for flows in sizes {
            if !(1024..=1 << 28).contains(&flows) {
                return Err(usage(format!("{flows} flows: give 1024 to 2^28")));
            }
            let duration = Duration::from_secs_f64(args.seconds);
            let plan = Plan { case: *case, six: args.family == "6", flows, duration, seed: args.seed };
            check_free(flows, "the Gatekeeper's tables", plan.bytes())?;
            plans.push(plan);
        }
    }
    let subjects = Subject::all(args);
    let progress = Progress::new("bench gate", (plans.len() * args.runs * subjects.len()) as u64);
    let mut report = Report::new(args.json);
    for plan in &plans {
        let case = plan.name();
        progress.message(&case);
        let mut runs: Vec<Runs> = subjects.iter().map(|_| Runs::default()).collect();
        for run in 0..args.runs {
            for i in 0..subjects.len() {
                let turn = (i + run) % subjects.len();
                runs[turn].add(&run_once(subjects[turn], plan).context(case.clone())?);
                progress.add(1);
            }
        }
        let of: Vec<(String, Runs)> = subjects.iter().map(|subject| subject.name()).zip(runs).collect();
        for (subject, runs) in &of {
            let mut params = Params::new();
            params.insert("flows".into(), plan.flows.into());
            params.insert("frame".into(), plan.frame().into());
            if plan.six {
                params.insert("family".into(), 6.into());
            }
            params.insert("seconds".into(), args.seconds.into());
            params.insert("seed".into(), args.seed.into());
            let mut on = String::new();
            if let Some(pages) = runs.pages() {
                on = format!(", tables on {pages}");
                params.insert("pages".into(), pages.into());
            }
            if !args.json {
                println!("{case}, {subject}: {:.2} Mpps{on}", statistics::median(&runs.all));
            }
            report.line(Measurement::of("gate", subject, &case, "mpps", &runs.all, params.clone()))?;
            if runs.parts[0].is_empty() {
                continue;
            }
            for ((metric, when), mpps) in PARTS.iter().zip(&runs.parts) {
                if !args.json {
                    println!("  {when}: {:.2} Mpps", statistics::median(mpps));
                }
                report.line(Measurement::of("gate", subject, &case, metric, mpps, params.clone()))?;
            }
        }
        let before = report.ratios().len();
        // Each way beside the bound and beside the first.
        let [ways @ .., bound] = &of[..] else { continue };
        for (at, way) in ways.iter().enumerate() {
            for to in std::iter::once(bound).chain(ways.first().filter(|_| at > 0)) {
                report.ratio("gate", &case, (&way.0, &way.1.all), (&to.0, &to.1.all))?;
            }
        }
        if !args.json {
            for Ratio { of, to, value, low, high, pairs, .. } in &report.ratios()[before..] {
                println!("  {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
            }
        }
    }
    Ok(())
}
