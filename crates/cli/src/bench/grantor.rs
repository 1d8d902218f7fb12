//! `bench grantor`: the whole Grantor, as `tidemill run` makes it, between two ports in memory, on one core: how fast granted packets go on while its policy is at its limits.
//!
//! Outer packets of one Gatekeeper with the shortest frames in them: all granted but one in [`ASKS`], which asks. The policies differ only in what they do about these: `quiet`
//! declines, the others loop, leak, throw, or match a pattern for ever; and then the fail-safe declines, or it was too late to ask. So packets fare the same, and what differs is what the policy's
//! thread does meanwhile. `beside`: it has a processor of its own. `shared`: it has the worker's.
//!
//! ```text
//! front --outer packets--> decapsulate --granted--> inner packets --> back       counted
//!                              '--one in 1,024--> ask --ring--> policy's thread: at its limits, over and over
//! ```
//! A run ends with an error where a granted packet is lost, where the policy did not fail as it should, and where that was logged more often than once in the interval.

use super::ends::{Back, DESTINATION, FRAME, PORTS, frame, ran, router, source};
use super::report::Report;
use super::statistics;
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, Packet, Pool};
use tidemill_grantor::{Counter, Failure, GrantorControl, GrantorSection, PolicyError, Run, splice};
use tidemill_graph::{Clock, Ledger, allowed_cpus};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::{Protocol, ipv4};

/// Arguments of `bench grantor`.
#[derive(Args)]
#[command(
    after_help = "Policies, each beside one that declines at once (quiet):\n  loop     while true, within pcall\n  leak     tables that are kept\n  \
    throw    error()\n  pattern  string.find that backtracks\n\n\
    Places of the policy's thread:\n  beside   a processor of its own\n  shared   the worker's processor\n\n\
    Examples:\n  tidemill bench grantor\n  tidemill bench grantor --policy loop,pattern --place beside --json"
)]
pub(crate) struct GrantorBench {
    /// Policies at their limits
    #[arg(long = "policy", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["loop", "leak", "throw", "pattern"])]
    policies: Vec<Harm>,
    /// Where the policy's thread runs
    #[arg(long = "place", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["beside", "shared"])]
    places: Vec<Place>,
    /// Seconds that a policy is measured for in each run
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Runs, in each of which all policies take turns; ratios are means over them
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// What a policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Harm {
    /// Loops
    Loop,
    /// Keeps more than it may
    Leak,
    /// Throws
    Throw,
    /// Matches a pattern for ever
    Pattern,
}

/// Where it does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// On a processor of its own
    Beside,
    /// On the worker's
    Shared,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Beside => "beside",
            Place::Shared => "shared",
        }
    }
}

impl Harm {
    fn name(self) -> &'static str {
        match self {
            Harm::Loop => "loop",
            Harm::Leak => "leak",
            Harm::Throw => "throw",
            Harm::Pattern => "pattern",
        }
    }

    /// What it does for each question, and how that fails.
    fn body(self) -> (&'static str, Failure) {
        match self {
            Harm::Loop => ("while true do pcall(function() while true do end end) end", Failure::Timeout),
            Harm::Leak => {
                ("for i = 1, 200 do table.insert(kept, table.create(20000, i)) end", Failure::Memory)
            }
            Harm::Throw => ("error('no')", Failure::Error),
            Harm::Pattern => {
                ("string.find(string.rep('a', 60000), string.rep('a*', 60) .. 'b')", Failure::Timeout)
            }
        }
    }
}

/// The name of the policy that does no harm.
const QUIET: &str = "quiet";
const GATEKEEPER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const OURS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const ROUTER: &str = "
[[interface]]
port = 'front'
promiscuous = true
addresses = ['198.18.0.1/24']
[[interface]]
port = 'back'
addresses = ['198.19.0.1/24']
[[route]]
prefix = '198.18.0.2/32'
port = 'front'
mac = '02:00:00:00:00:01'
[[route]]
prefix = '192.0.2.0/24'
port = 'back'
mac = '02:00:00:00:00:02'
";
/// Its limits are the usual ones.
const GRANTOR: &str = "
gatekeepers = ['198.18.0.2/32']
keys = ['1 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a']
[policy]
file = 'policy.lua'
";

/// One packet in so many asks: some thousands a second, of which a policy that hangs answers none in time.
const ASKS: u64 = 1024;
/// The outer code point of a request.
const REQUEST: u8 = 41;
const ETHERNET: usize = 14;
/// Of the inner header, in an outer frame.
const INNER: usize = ETHERNET + ipv4::HEADER_LEN;
const OUTER_FRAME: usize = FRAME + ipv4::HEADER_LEN;
/// For what takes a moment, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);
/// So far back is the start for the Grantor: in the second of its start it tells Gatekeepers nothing.
const BEFORE_NS: u64 = 2_000_000_000;

fn script(harm: Option<Harm>) -> String {
    let body = harm.map_or("", |harm| harm.body().0);
    format!(
        "signature('source', 'destination')\nlocal no, kept = declined {{ expire = 10 }}, {{}}\n\
         function decide(q)\n  {body}\n  return no\nend\n"
    )
}

/// The shortest frame in an outer packet with this code point; the inner source is to be written.
fn outer(dscp: u8) -> Result<[u8; OUTER_FRAME]> {
    let inner = frame(DESTINATION)?;
    let mut bytes = [0; OUTER_FRAME];
    bytes[..ETHERNET].copy_from_slice(&inner[..ETHERNET]);
    let header = ipv4::Repr { dscp, ..ipv4::Repr::new(GATEKEEPER, OURS, Protocol::IPV4, FRAME - ETHERNET) };
    header.emit(&mut bytes[ETHERNET..]).context("the outer header")?;
    bytes[INNER..].copy_from_slice(&inner[ETHERNET..]);
    Ok(bytes)
}

/// Makes a packet of it, with this inner source.
#[inline(always)]
fn write(frame: &[u8; OUTER_FRAME], source: u32, packet: &mut Packet) {
    packet.set_len(OUTER_FRAME);
    let Some(bytes) = packet.data_mut().first_chunk_mut::<OUTER_FRAME>() else { return };
    *bytes = *frame;
    bytes[INNER + 12..INNER + 16].copy_from_slice(&source.to_be_bytes());
    // Identification and source add up to what they were, as in the frames of the other benchmarks.
    let sum = (source >> 16) + (source & 0xffff);
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[INNER + 4..INNER + 6].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// What a run has sent, and the time that it took.
#[derive(Debug, Default)]
struct Sent {
    granted: AtomicU64,
    asked: AtomicU64,
    elapsed_ns: AtomicU64,
}

/// The front: the Gatekeeper's packets while the clock runs.
struct Front {
    granted: [u8; OUTER_FRAME],
    asks: [u8; OUTER_FRAME],
    duration: Duration,
    start: Option<Instant>,
    next: u64,
    sent: Arc<Sent>,
    counters: PortCounters,
}

impl Port for Front {
    fn name(&self) -> &str {
        PORTS[0]
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let elapsed = self.start.get_or_insert_with(Instant::now).elapsed();
        if elapsed >= self.duration {
            let asked = self.next.div_ceil(ASKS);
            self.sent.asked.store(asked, Ordering::Relaxed);
            self.sent.granted.store(self.next - asked, Ordering::Relaxed);
            self.sent.elapsed_ns.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
            return Ok(RxStatus::Ended);
        }
        for packet in pool.take_into(BURST, burst) {
            let frame = if self.next.is_multiple_of(ASKS) { &self.asks } else { &self.granted };
            // Nobody has the address 0.
            write(frame, source((self.next as u32).wrapping_add(1)), packet);
            self.counters.rx.count(OUTER_FRAME);
            self.next += 1;
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

/// Does something bound to one of the processors; what threads it starts stay there.
fn bound_to<T>(cpu: usize, all: &[usize], make: impl FnOnce() -> Result<T>) -> Result<T> {
    let bind = |cpus: &[usize]| {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set).with_context(|| format!("processors {cpus:?}"))
    };
    bind(&[cpu])?;
    let made = make();
    bind(all)?;
    made
}

/// What a turn came to.
struct Turn {
    /// M granted packets a second.
    mpps: f64,
    /// Questions that the policy did not answer.
    failed: f64,
}

/// One policy for a while; its thread is on `cpu`.
fn turn(harm: Option<Harm>, cpu: usize, all: &[usize], duration: Duration) -> Result<Turn> {
    let folder = tempfile::tempdir().context("a folder for the policy")?;
    std::fs::write(folder.path().join("policy.lua"), script(harm)).context("the policy")?;
    let section: GrantorSection = toml::from_str(GRANTOR).context("the Grantor's configuration")?;
    let domain = Domain::new();
    let router = router(ROUTER, &domain)?;
    let lines = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let control = bound_to(cpu, all, || control(&section, folder.path(), &domain, lines.clone()))?;
    let mut graph = tidemill_router::graph(&router);
    splice(&mut graph, &control);
    let sent = Arc::new(Sent::default());
    let front = Front {
        granted: outer(0)?,
        asks: outer(REQUEST)?,
        duration,
        start: None,
        next: 0,
        sent: sent.clone(),
        counters: PortCounters::default(),
    };
    let ledger = ran(graph.build()?, [Box::new(front), Box::<Back>::default()], &domain)?;
    let [granted, asked, elapsed_ns] =
        [&sent.granted, &sent.asked, &sent.elapsed_ns].map(|number| number.load(Ordering::Relaxed));
    check(&control, &ledger, [granted, asked])?;
    if let Some(harm) = harm {
        fails(&control, harm)?;
    }
    let said = lines.load(Ordering::Relaxed);
    // However long that took: this process may have been kept from its work.
    let most = 1 + began.elapsed().as_secs() / u64::from(section.policy.log_every_s.max(1));
    if said > most {
        bail!("WRONG: {said} lines about the policy, at most {most} in so long");
    }
    let failed = control.counts().failures() as f64;
    // Its thread ends with its batch: a batch has its time, and as long again for what was behind a question that took all of it.
    let batch = Duration::from_millis(2 * u64::from(section.policy.time_ms));
    drop(control);
    std::thread::sleep(batch);
    if granted == 0 || elapsed_ns == 0 {
        bail!("no packet was sent: give more --seconds");
    }
    Ok(Turn { mpps: granted as f64 * 1e3 / elapsed_ns as f64, failed })
}

fn control(
    section: &GrantorSection,
    folder: &Path,
    domain: &Domain,
    lines: Arc<AtomicU64>,
) -> Result<GrantorControl> {
    let wall = Clock::wall();
    let clock = Arc::new(move || wall.now_ns(0).saturating_sub(BEFORE_NS));
    let log = Arc::new(move |_: &str| {
        lines.fetch_add(1, Ordering::Relaxed);
    });
    let run = Run::Live { clock, seed: 1 };
    GrantorControl::new(section, folder, 1, domain, run, log).map_err(|error| match error {
        PolicyError::NoLua => usage(format!("bench grantor: {error} (cargo build --release --features lua)")),
        error => error.into(),
    })
}

/// Every packet has to be what it was made as, and nothing may be dropped but what asked.
fn check(control: &GrantorControl, ledger: &Ledger, [granted, asked]: [u64; 2]) -> Result<()> {
    let counters = control.counters();
    let count = |counter| counters.get(counter);
    let asking = ["policy-refused", "policy-failed", "ask-queue-full"];
    let lost =
        ledger.dropped.iter().filter(|(reason, _)| !asking.contains(*reason)).map(|(_, n)| n).sum::<u64>();
    if count(Counter::Granted) != granted || count(Counter::Requests) != asked || lost > 0 {
        bail!(
            "WRONG: of {granted} granted packets and {asked} that ask {lost} were dropped; the Grantor counted {counters:?}"
        );
    }
    Ok(())
}

/// Waits until the policy has failed as it should: however short the run was, a question has come to it.
fn fails(control: &GrantorControl, harm: Harm) -> Result<()> {
    let (began, failure) = (Instant::now(), harm.body().1);
    while control.counts().failed(failure) == 0 {
        if began.elapsed() > PATIENCE {
            bail!("WRONG: {} did not fail by {}: {:?}", harm.name(), failure.name(), control.counts());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// See the [module](self).
pub(super) fn run(args: &GrantorBench) -> Result<bool> {
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) || args.runs < 2 {
        return Err(usage("--seconds, --runs: give more than 0 and at most 3600 seconds, 2 runs or more"));
    }
    let cpus = allowed_cpus();
    let (Some(&worker), Some(&other)) = (cpus.first(), cpus.last()) else {
        bail!("the processors of this process are unknown");
    };
    if args.places.contains(&Place::Beside) && worker == other {
        return Err(usage(
            "--place beside: there is one processor, and the worker has it: give --place shared",
        ));
    }
    let mut policies: Vec<Option<Harm>> = vec![None];
    policies.extend(args.policies.iter().copied().map(Some));
    let name = |harm: Option<Harm>| harm.map_or(QUIET, Harm::name);
    let duration = Duration::from_secs_f64(args.seconds);
    let progress = Progress::new("bench grantor", (args.places.len() * args.runs * policies.len()) as u64);
    let mut report = Report::new(args.json);
    for place in &args.places {
        let case = format!("granted/{}", place.name());
        progress.message(&case);
        let cpu = if *place == Place::Beside { other } else { worker };
        let mut rates = vec![Vec::new(); policies.len()];
        let mut failed = vec![Vec::new(); policies.len()];
        for run in 0..args.runs {
            for i in 0..policies.len() {
                let at = (i + run) % policies.len();
                let Turn { mpps, failed: questions } = turn(policies[at], cpu, &cpus, duration)
                    .with_context(|| format!("{case}, {}", name(policies[at])))?;
                rates[at].push(mpps);
                failed[at].push(questions);
                progress.add(1);
            }
        }
        for (at, harm) in policies.iter().enumerate() {
            let mut params = Params::new();
            params.insert("frame".into(), OUTER_FRAME.into());
            params.insert("asks_one_in".into(), ASKS.into());
            params.insert("seconds".into(), args.seconds.into());
            if !args.json {
                println!("{case}, {}: {:.2} Mpps granted", name(*harm), statistics::median(&rates[at]));
            }
            for (metric, values) in [("mpps", &rates[at]), ("failed", &failed[at])] {
                report.line(Measurement::of(
                    "grantor",
                    name(*harm),
                    &case,
                    metric,
                    values,
                    params.clone(),
                ))?;
            }
        }
        let before = report.ratios().len();
        for (at, harm) in policies.iter().enumerate().skip(1) {
            report.ratio("grantor", &case, (name(*harm), &rates[at]), (QUIET, &rates[0]))?;
        }
        if !args.json {
            for Ratio { of, to, value, low, high, pairs, .. } in &report.ratios()[before..] {
                println!("  {of} to {to}: {value:.3} ({low:.3} to {high:.3}, {pairs} pairs)");
            }
        }
    }
    Ok(true)
}
