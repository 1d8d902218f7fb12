//! `bench nf`: the network functions, as `tidemill run` makes them, between two ports in memory, on one core.
//!
//! The shortest frames there are (60 bytes without frame check sequence), UDP, to one destination. `nat`: each of one of so many flows that were mapped before, a mapping
//! and a session each. `established`: each of one of so many connections that were let in and answered before, with so many rules behind them. `new`: each of a
//! connection that never was, past all of the rules; the table is small enough to get full, and from then on the oldest that nobody has answered gives way. `established-tcp`:
//! acknowledgements without data, of connections that were picked up (`flags any`) and answered before. The bound is the same ports with a bridge that looks at nothing.
//! With `--acl` the rules of `new` and its packets are ClassBench's (`acl`). With `--wire` the kernel with nftables' rules is beside them (`wire`).
//!
//! ```text
//! front: each flow once | -- clock: flows at random, until --seconds have passed -- |       nat; established, with an answer of the back to each
//! front:                | -- clock: a new one with each packet -------------------- |       new
//! ```

mod acl;
mod frames;
#[cfg(all(feature = "xdp", target_os = "linux"))]
mod wire;

use self::acl::Acl;
use super::ends::{Back, DESTINATION, FRAME, PORTS, bridge, frame, ran, router, source, write};
use super::flow::{check_free, parse_entries};
use super::report::Report;
use super::statistics;
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, Packet, Pool};
use tidemill_graph::{GraphBuilder, Ledger};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::Random;
use tidemill_nf::filter::{self, FilterControl, FilterSection};
use tidemill_nf::nat::{self, NatControl, NatSection};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_router::RouterControl;
use tidemill_wire::tcp::Flags;

/// Arguments of `bench nf`.
#[derive(Args)]
#[command(
    after_help = "Cases:\n  nat          packets of flows that are mapped, from inside to outside (--flows)\n  \
    established  packets of connections that a filter has let in and that were answered (--flows, but 100k unless given)\n  \
    established-tcp  the same of TCP\n  \
    new          packets that each begin a connection, past all rules (--rules)\n\n\
    Examples:\n  tidemill bench nf\n  tidemill bench nf --case nat --flows 100k --json\n  tidemill bench nf --case new --rules 1000\n  \
    tidemill bench nf --case new --acl acl1_10K.rules --trace acl1_10K.trace\n  \
    sudo tidemill bench nf --wire"
)]
pub(crate) struct NfBench {
    /// Cases
    #[arg(long = "case", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["nat", "established", "new"])]
    cases: Vec<Case>,
    /// Flows that come over and over: numbers, 2^N, or with k or M behind them [default: 1k,10k,100k,1M for nat, 100k for established and established-tcp]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse_entries)]
    flows: Vec<usize>,
    /// Connections that the filter of `new` has room for; half of them may be unanswered
    #[arg(long, value_name = "N", default_value = "2^18", value_parser = parse_entries)]
    entries: usize,
    /// Rules of the filter
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rules: u32,
    /// Rules of `new`, in ClassBench's format, whose last field is passed over; what none of them matches passes, too
    #[arg(long, value_name = "FILE", requires = "trace", conflicts_with_all = ["rules", "entries"])]
    acl: Option<PathBuf>,
    /// Headers for these rules, from which the packets of `new` are made: those of TCP and UDP over IPv4, each once and all over again
    #[arg(long, value_name = "FILE", requires = "acl")]
    trace: Option<PathBuf>,
    /// Seconds that each run is measured for
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Runs, in each of which the function and the bound take turns; ratios are means over them
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Seed of flows and rules
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On AF_XDP between two virtual cables, beside the kernel with nftables' rules: `nat` and `established` with 1,024 flows, `new` (root)
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    #[arg(long, conflicts_with_all = ["flows", "entries", "acl"])]
    wire: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// What comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Flows that NAT has mapped
    Nat,
    /// Connections that the filter knows
    Established,
    /// The same of TCP
    EstablishedTcp,
    /// A connection with each packet
    New,
}

/// Flows of one inside host.
const OF_HOST: u32 = 16;
/// Addresses of the pool: ports for a million flows, and half of them free.
const POOL: &str = "203.0.113.0-203.0.113.31";
const ROUTER: &str = "
[[interface]]
port = 'front'
promiscuous = true
addresses = ['198.18.0.1/24']
[[interface]]
port = 'back'
promiscuous = true
addresses = ['198.19.0.1/24']
[[route]]
prefix = '192.0.2.0/24'
port = 'back'
mac = '02:00:00:00:00:02'
[[route]]
prefix = '0.0.0.0/0'
port = 'front'
mac = '02:00:00:00:00:01'
";
/// The same for packets that go anywhere.
const ROUTER_OUT: &str = "
[[interface]]
port = 'front'
promiscuous = true
addresses = ['198.18.0.1/24']
[[interface]]
port = 'back'
promiscuous = true
addresses = ['198.19.0.1/24']
[[route]]
prefix = '0.0.0.0/0'
port = 'back'
mac = '02:00:00:00:00:02'
";
/// The port that flows of the filter come from.
const CLIENT_PORT: u16 = 12_345;

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    case: Case,
    /// Flows that come; of `new` none are before.
    flows: u32,
    /// Connections that `new` has room for.
    entries: usize,
    rules: u32,
    duration: Duration,
    seed: u64,
    /// Whether anybody is to learn the flows: not the bound.
    learns: bool,
}

impl Plan {
    fn name(&self) -> String {
        let short = |n: u32| match n {
            n if n > 0 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
            n if n > 0 && n.is_multiple_of(1000) => format!("{}K", n / 1000),
            n => n.to_string(),
        };
        match self.case {
            Case::Nat => format!("nat/{}", short(self.flows)),
            Case::Established => format!("established/{}/{} rules", short(self.flows), short(self.rules)),
            Case::EstablishedTcp => {
                format!("established-tcp/{}/{} rules", short(self.flows), short(self.rules))
            }
            Case::New => format!("new/{} rules", short(self.rules)),
        }
    }

    /// Source address and port of flow `n`, each number others.
    #[inline(always)]
    fn flow(&self, n: u32) -> (u32, u16) {
        match self.case {
            // Hosts with some flows each. The steps and the range have no common factor, so a host's ports are different ones.
            Case::Nat => (0x0a00_0000 + 1 + n / OF_HOST, 1024 + (n.wrapping_mul(7919) % 60_000) as u16),
            Case::Established | Case::EstablishedTcp => (0x0a00_0001 + n, CLIENT_PORT),
            Case::New => (source(n), CLIENT_PORT),
        }
    }

    /// Whether each flow comes once before the clock runs.
    fn is_learnt(&self) -> bool {
        self.learns && self.case != Case::New
    }

    /// Flows of which an answer has to come, too.
    fn is_answered(&self) -> bool {
        self.learns && matches!(self.case, Case::Established | Case::EstablishedTcp)
    }

    /// What flows differ from in their sources only.
    fn frame(&self) -> Result<[u8; FRAME]> {
        match self.case {
            Case::EstablishedTcp => {
                let ends = [(Ipv4Addr::UNSPECIFIED, CLIENT_PORT), (DESTINATION, 80)];
                frames::segment(ends, Flags::ACK, 0xffff)
            }
            _ => frame(DESTINATION),
        }
    }
}

/// What both ports know. One thread has both: nothing here orders anything.
#[derive(Debug, Default)]
struct Shared {
    /// Flows that have come in once, and those that were answered.
    learnt: AtomicU64,
    answered: AtomicU64,
    /// Packets since the clock was started, and for how long it ran; zero until it has stopped.
    packets: AtomicU64,
    elapsed_ns: AtomicU64,
}

/// The front: makes packets.
struct Front {
    plan: Plan,
    frame: [u8; FRAME],
    /// The frames of an access list's trace, if they are what comes.
    listed: Option<Arc<[[u8; FRAME]]>>,
    shared: Arc<Shared>,
    random: Random,
    /// The next new flow.
    next: u32,
    given: u64,
    start: Option<Instant>,
    counters: PortCounters,
}

impl Front {
    fn put(&mut self, n: u32, packet: &mut Packet) {
        self.counters.rx.count(FRAME);
        if let Some(listed) = &self.listed {
            packet.set_len(FRAME);
            if let Some(bytes) = packet.data_mut().first_chunk_mut::<FRAME>() {
                *bytes = listed[n as usize % listed.len()];
            }
            return;
        }
        let (address, port) = self.plan.flow(n);
        write(&self.frame, address, packet);
        if let Some(bytes) = packet.data_mut().first_chunk_mut::<FRAME>() {
            bytes[34..36].copy_from_slice(&port.to_be_bytes());
            if self.plan.case == Case::EstablishedTcp {
                frames::take_up(bytes);
            }
        }
    }

    /// Whether flows have to come once yet; some of them.
    fn learn(&mut self, pool: &mut Pool, burst: &mut Burst) -> bool {
        let (learnt, answered) = (&self.shared.learnt, &self.shared.answered);
        let (before, flows) = (learnt.load(Ordering::Relaxed), u64::from(self.plan.flows));
        if !self.plan.is_learnt() {
            return false;
        }
        if before == flows {
            return self.plan.is_answered() && answered.load(Ordering::Relaxed) < flows;
        }
        let count = (flows - before).min(BURST as u64);
        let packets = pool.take_into(count as usize, burst);
        learnt.store(before + packets.len() as u64, Ordering::Relaxed);
        for (packet, n) in packets.iter_mut().zip(before as u32..) {
            self.put(n, packet);
        }
        true
    }
}

impl Port for Front {
    fn name(&self) -> &str {
        PORTS[0]
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.learn(pool, burst) {
            return Ok(RxStatus::Received);
        }
        let elapsed = self.start.get_or_insert_with(Instant::now).elapsed();
        // A table that is to get full gets so, however short that is.
        let least = if self.plan.case == Case::New { self.plan.entries as u64 } else { 1 };
        if elapsed >= self.plan.duration && self.given >= least {
            self.shared.packets.store(self.given, Ordering::Relaxed);
            self.shared.elapsed_ns.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
            return Ok(RxStatus::Ended);
        }
        for packet in pool.take_into(BURST, burst) {
            let n = match self.plan.case {
                Case::New => {
                    self.next = self.next.wrapping_add(1);
                    self.next
                }
                Case::Nat | Case::Established | Case::EstablishedTcp => {
                    (((self.random.bits() >> 32) * u64::from(self.plan.flows)) >> 32) as u32
                }
            };
            self.put(n, packet);
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

/// The back of `established` and `established-tcp`: answers each flow once, and takes what comes.
struct Answering {
    plan: Plan,
    /// From the destination to nobody yet.
    frame: [u8; FRAME],
    shared: Arc<Shared>,
    /// Flows that had come in when it was asked last.
    seen: u64,
    /// Answers that were made.
    made: PortCounters,
    back: Back,
}

impl Port for Answering {
    fn name(&self) -> &str {
        PORTS[1]
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let answered = self.shared.answered.load(Ordering::Relaxed);
        if answered == u64::from(self.plan.flows) {
            return Ok(RxStatus::Ended);
        }
        // What had come in a turn ago has been through the graph.
        let count = (self.seen - answered).min(BURST as u64);
        self.seen = self.shared.learnt.load(Ordering::Relaxed);
        let packets = pool.take_into(count as usize, burst);
        self.shared.answered.store(answered + packets.len() as u64, Ordering::Relaxed);
        for (packet, n) in packets.iter_mut().zip(answered as u32..) {
            let (address, port) = self.plan.flow(n);
            write(&self.frame, address, packet);
            self.made.rx.count(FRAME);
            let Some(bytes) = packet.data_mut().first_chunk_mut::<FRAME>() else { continue };
            if self.plan.case == Case::EstablishedTcp {
                frames::take_up(bytes);
                frames::turn_numbers(bytes);
            }
            frames::turn(bytes);
            bytes[34..36].copy_from_slice(&80_u16.to_be_bytes());
            bytes[36..38].copy_from_slice(&port.to_be_bytes());
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.back.tx(now_ns, pool, burst)
    }

    fn counters(&self) -> PortCounters {
        PortCounters { rx: self.made.rx, ..self.back.counters() }
    }
}

/// A rule: what it blocks, which none of the packets is.
struct Blocked {
    protocol: &'static str,
    from: String,
    to: String,
    /// The first and the last.
    ports: Option<(u16, u16)>,
}

impl Blocked {
    /// As the filter has it.
    fn rule(&self) -> String {
        let ports = match self.ports {
            None => String::new(),
            Some((first, last)) if first == last => format!(" port {first}"),
            Some((first, last)) => format!(" port {first}:{last}"),
        };
        format!("block in quick proto {} from {} to {}{ports}", self.protocol, self.from, self.to)
    }
}

/// One rule fewer than so many, of many shapes.
fn blocked(rules: u32, seed: u64) -> impl Iterator<Item = Blocked> {
    let mut random = Random::new(seed);
    (1..rules).map(move |_| {
        let network = |random: &mut Random, inside: u32, lengths: &[u32]| {
            let length = lengths[random.below(lengths.len())];
            let bits = inside | random.bits() as u32 >> 15;
            format!("{}/{length}", Ipv4Addr::from(bits & u32::MAX << (32 - length)))
        };
        // To networks where no packet goes: 198.18.0.0/15.
        let from = network(&mut random, 0x0a00_0000, &[8, 16, 20, 24, 28, 32]);
        let to = network(&mut random, 0xc612_0000, &[16, 20, 24, 28, 32]);
        let port = random.bits() as u16;
        let ports = match random.below(3) {
            0 => None,
            1 => Some((port, port)),
            _ => Some((port / 2, port / 2 + 1 + port % 1000)),
        };
        Blocked { protocol: ["tcp", "udp"][random.below(2)], from, to, ports }
    })
}

/// What lets in what no rule blocks.
const REST: &str = "pass all keep state\n";
/// The same of TCP connections that were there before, too.
const REST_ANY: &str = "pass all flags any keep state\n";

/// These rules, and one for the rest.
fn rule_file(rules: u32, seed: u64, rest: &str) -> String {
    let mut text = String::new();
    for rule in blocked(rules, seed) {
        text += &rule.rule();
        text.push('\n');
    }
    text + rest
}

/// The function that is measured.
enum Function {
    Nat(Box<NatControl>),
    Filter(Box<FilterControl>),
}

fn function(plan: &Plan, acl: Option<&Acl>, router: &RouterControl, domain: &Domain) -> Result<Function> {
    let interfaces = &router.settings().interfaces;
    let flows = plan.flows as usize;
    if plan.case == Case::Nat {
        let section = NatSection {
            inside: vec![PORTS[0].into()],
            outside: vec![PORTS[1].into()],
            pool: vec![POOL.into()],
            mappings: flows,
            sessions: flows,
            host_mappings: OF_HOST,
            host_sessions: OF_HOST,
            ..NatSection::default()
        };
        return Ok(Function::Nat(Box::new(NatControl::new(&section, interfaces, 1, domain)?)));
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("rules");
    let text = match (acl, plan.case) {
        (Some(acl), _) => {
            std::fs::write(folder.path().join("acl"), &acl.text)?;
            format!("load \"acl\" format classbench pass in keep state\n{REST}")
        }
        (None, Case::EstablishedTcp) => rule_file(plan.rules, plan.seed, REST_ANY),
        _ => rule_file(plan.rules, plan.seed, REST),
    };
    std::fs::write(&path, text)?;
    // Half of the states may wait for an answer, and some bursts of new flows do at a time, however few flows there are.
    let states = if plan.case == Case::New { plan.entries } else { flows.max(16 * BURST) };
    let [half_open, unanswered] = match acl {
        Some(acl) => acl.waiting(),
        None => [states.min(1024), states],
    };
    let section =
        FilterSection { rules: Some(path), states, half_open, unanswered, ..FilterSection::default() };
    Ok(Function::Filter(Box::new(FilterControl::new(&section, interfaces, 1, domain)?)))
}

impl Function {
    fn splice(&self, graph: &mut GraphBuilder, router: &RouterControl) {
        let (ways4, ways6) = (router.ways4(), router.ways6());
        match self {
            Function::Nat(control) => {
                let (hops4, hops6) =
                    (move |worker: usize| ways4(worker).1, move |worker: usize| ways6(worker).1);
                nat::splice(graph, control, nat::Host { hops4: Box::new(hops4), hops6: Box::new(hops6) });
            }
            Function::Filter(control) => {
                let (hops4, hops6) =
                    (move |worker: usize| ways4(worker).1, move |worker: usize| ways6(worker).1);
                filter::splice(
                    graph,
                    control,
                    filter::Host { hops4: Box::new(hops4), hops6: Box::new(hops6) },
                );
            }
        }
    }

    /// Every packet has to be what the case is about.
    fn check(&self, plan: &Plan, packets: u64, ledger: &Ledger) -> Result<()> {
        let flows = u64::from(plan.flows);
        let good = match self {
            Function::Nat(control) => {
                let counters = control.counters();
                counters.get(nat::Counter::Out) == packets + flows
                    && counters.get(nat::Counter::Mappings4) == flows
                    && counters.get(nat::Counter::Sessions4) == flows
            }
            Function::Filter(control) => {
                let counters = control.counters();
                let count = |counter| counters.get(counter);
                match plan.case {
                    // Each flow's first packet asked the rules, and its answer did not.
                    Case::Established | Case::EstablishedTcp => {
                        count(filter::Counter::ByState) == packets + flows
                            && count(filter::Counter::ByRules) == flows
                            && count(filter::Counter::StatesMade) == flows
                    }
                    _ => {
                        let evicted = count(filter::Counter::UnansweredEvicted)
                            + count(filter::Counter::HalfOpenEvicted);
                        count(filter::Counter::StatesMade) == packets && evicted > 0
                    }
                }
            }
        };
        if !good || ledger.dropped_total() > 0 {
            let counted = match self {
                Function::Nat(control) => format!("{:?}", control.counters()),
                Function::Filter(control) => format!("{:?}", control.counters()),
            };
            bail!("WRONG: of {packets} packets {} were dropped; counted: {counted}", ledger.dropped_total());
        }
        Ok(())
    }
}

/// M packets a second.
fn run_once(plan: &Plan, acl: Option<&Acl>) -> Result<f64> {
    let domain = Domain::new();
    let (graph, controls) = if plan.learns {
        let router = router(if acl.is_some() { ROUTER_OUT } else { ROUTER }, &domain)?;
        let function = function(plan, acl, &router, &domain)?;
        let mut graph = tidemill_router::graph(&router);
        function.splice(&mut graph, &router);
        (graph.build()?, Some((router, function)))
    } else {
        (bridge().build()?, None)
    };
    let shared = Arc::new(Shared::default());
    let front = Front {
        plan: *plan,
        frame: plan.frame()?,
        listed: acl.map(|acl| acl.frames.clone()),
        shared: shared.clone(),
        random: Random::new(plan.seed),
        next: 0,
        given: 0,
        start: None,
        counters: PortCounters::default(),
    };
    let back: Box<dyn Port> = match plan.is_answered() {
        true => {
            let (frame, shared) = (plan.frame()?, shared.clone());
            Box::new(Answering {
                plan: *plan,
                frame,
                shared,
                seen: 0,
                made: PortCounters::default(),
                back: Back::default(),
            })
        }
        false => Box::<Back>::default(),
    };
    let ledger = ran(graph, [Box::new(front), back], &domain)?;
    let (packets, ns) = (shared.packets.load(Ordering::Relaxed), shared.elapsed_ns.load(Ordering::Relaxed));
    if packets == 0 || ns == 0 {
        bail!("no time has passed");
    }
    if let Some((_, function)) = &controls {
        function.check(plan, packets, &ledger)?;
    }
    Ok(packets as f64 * 1e3 / ns as f64)
}

impl NfBench {
    fn plans(&self, acl: Option<&Acl>) -> Result<Vec<Plan>> {
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) || self.runs < 2 {
            return Err(usage(
                "--seconds, --runs: give more than 0 and at most 3600 seconds, 2 runs or more",
            ));
        }
        let mut plans = Vec::new();
        for case in &self.cases {
            let sizes: &[usize] = match (case, self.flows.is_empty()) {
                (Case::New, _) => &[0],
                (_, false) => &self.flows,
                (Case::Nat, true) => &[1000, 10_000, 100_000, 1_000_000],
                (Case::Established | Case::EstablishedTcp, true) => &[100_000],
            };
            for flows in sizes {
                if *flows > 1_500_000 {
                    return Err(usage(format!(
                        "--flows {flows}: give 1500000 at most: the pool has no more ports"
                    )));
                }
                // A mapping or a connection of each family, with what counts it.
                check_free(*flows, "the function's tables", self.entries.max(*flows) * 1024)?;
                plans.push(Plan {
                    case: *case,
                    flows: *flows as u32,
                    // Twice as many as wait, so that those give way and the table is never full.
                    entries: acl.map_or(self.entries, |acl| acl.frames.len()),
                    // And one for the rest.
                    rules: acl.map_or(self.rules, |acl| acl.rules + 1),
                    duration: Duration::from_secs_f64(self.seconds),
                    seed: self.seed,
                    learns: true,
                });
            }
        }
        Ok(plans)
    }

    /// The access list, if there is one.
    fn acl(&self) -> Result<Option<Acl>> {
        let (Some(list), Some(trace)) = (&self.acl, &self.trace) else { return Ok(None) };
        if self.cases != [Case::New] {
            return Err(usage("--acl: its rules are for packets that begin connections: give --case new"));
        }
        Acl::read(list, trace).map(Some)
    }
}

pub(super) fn run(args: &NfBench) -> Result<bool> {
    let acl = args.acl()?;
    let plans = args.plans(acl.as_ref())?;
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    if args.wire {
        return wire::run(args);
    }
    let progress = Progress::new("bench nf", (plans.len() * args.runs * 2) as u64);
    let mut report = Report::new(args.json);
    for plan in &plans {
        let case = acl.as_ref().map_or_else(|| plan.name(), |acl| format!("new/{}", acl.name));
        progress.message(&case);
        let function = if plan.case == Case::Nat { "nat" } else { "filter" };
        let mut rates: [Vec<f64>; 2] = Default::default();
        for run in 0..args.runs {
            for i in 0..2 {
                let turn = (i + run) % 2;
                let plan = Plan { learns: turn == 0, ..*plan };
                rates[turn].push(run_once(&plan, acl.as_ref()).with_context(|| case.clone())?);
                progress.add(1);
            }
        }
        let mut params = Params::new();
        params.insert("flows".into(), plan.flows.into());
        if plan.case != Case::Nat {
            params.insert("rules".into(), plan.rules.into());
        }
        say(
            &mut report,
            args,
            &case,
            [(function, rates[0].as_slice()), ("bound", rates[1].as_slice())],
            &params,
        )?;
    }
    Ok(true)
}

/// Says what two subjects have come to, M packets a second, and their ratio.
fn say(
    report: &mut Report,
    args: &NfBench,
    case: &str,
    subjects: [(&str, &[f64]); 2],
    params: &Params,
) -> Result<()> {
    for (subject, mpps) in subjects {
        let mut params = params.clone();
        params.insert("frame".into(), FRAME.into());
        params.insert("seconds".into(), args.seconds.into());
        params.insert("seed".into(), args.seed.into());
        if !args.json {
            println!("{case}, {subject}: {:.3} Mpps", statistics::median(mpps));
        }
        report.line(Measurement::of("nf", subject, case, "mpps", mpps, params))?;
    }
    let before = report.ratios().len();
    report.ratio("nf", case, subjects[0], subjects[1])?;
    if !args.json {
        for Ratio { of, to, value, low, high, pairs, .. } in &report.ratios()[before..] {
            println!("  {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
        }
    }
    Ok(())
}
