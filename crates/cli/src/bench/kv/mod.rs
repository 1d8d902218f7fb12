//! `bench kv`: the cache in the kernel, and the memcached behind it, on one cable.
//!
//! `l2-xdp` is a memcached with the cache in front, `peer:memcached-udp` and `peer:memcached-tcp` are one without, and without any program.
//! The server - its end of the cable, network stack, memcached's one thread, the cache's daemon - has one processor, the client another.
//! `l1-af-xdp` is `role = "kvcache"` between the two, on the server's processor as well.
//! For round trips the network stack works where the sender is.

mod lab;
mod load;
mod middle;
mod residence;

use super::report::Report;
use super::statistics::median;
use super::zipf::Zipf;
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use lab::{Before, Front, Lab};
use load::{Draw, Line};
use std::time::Duration;

/// Arguments of `bench kv`.
#[derive(Args)]
#[command(
    after_help = "Needs root, two processors, memcached, ip, ethtool, taskset and tcpdump; it works in network namespaces of its own.\n\n\
    Examples:\n  tidemill bench kv\n  tidemill bench kv --case hits,latency --json\n  tidemill bench kv --case zipf --keys 100000 --memory-mib 16"
)]
pub(crate) struct KvBench {
    /// Cases
    #[arg(long = "case", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["hits", "latency", "uncacheable", "uncacheable-tcp", "zipf", "role"])]
    cases: Vec<Case>,
    /// Keys of `zipf`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 8)]
    value: usize,
    /// The flood's datagrams have a UDP checksum, as those of clients
    #[arg(long)]
    checksum: bool,
    /// The cache's memory
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    memory_mib: u64,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds, in each of which all subjects take turns
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Seed of the keys asked for
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Gets over UDP a second, all of which the cache can answer; of memcached the better of two loads: one that never waits, and a
    /// client with 64 requests on their way
    Hits,
    /// One get at a time, 2,000 a second: the client's round trip, and the residence time from the end of the client's cable to it
    Latency,
    /// Nothing can be cached: keys that are not there, asked of one memcached with the cache in front, without it, and behind a
    /// program that passes everything (`bound:xdp-pass`)
    Uncacheable,
    /// The same over TCP, where nothing is ever answered by the cache and all is read by it: gets of keys that are there, by eight connections that ask 16 at
    /// once
    UncacheableTcp,
    /// Keys by Zipf's law, exponent 0.99; of each the better of the same two loads
    Zipf,
    /// As `hits`, for the role kvcache over AF_XDP on a machine between client and server
    Role,
}

const L2: &str = "l2-xdp";
const L1: &str = "l1-af-xdp";
const UDP: &str = "peer:memcached-udp";
const TCP: &str = "peer:memcached-tcp";
/// memcached behind an XDP program that passes everything.
const PASSING: &str = "bound:xdp-pass";
/// Keys of the cases where all are cached.
const FEW: u64 = 64;
/// A client's requests on their way.
const WINDOW: usize = 16;
const DEEP: usize = 64;
/// The load of `uncacheable` and `uncacheable-tcp` before what is measured of it.
const BEGINS: Duration = Duration::from_millis(300);
/// Pairs of turns in a round of them, each half as long.
const PAIRS: usize = 6;
/// Thousandths, and what they are called of a round trip and of a residence.
const PERCENTILES: [(usize, [&str; 2]); 2] =
    [(500, ["p50_ns", "residence_p50_ns"]), (990, ["p99_ns", "residence_p99_ns"])];

impl KvBench {
    fn check(&self) -> Result<()> {
        if !(self.seconds > 0.0 && self.seconds <= 600.0) || self.runs == 0 {
            return Err(usage("--seconds, --runs: give more than 0, and at most 600 seconds"));
        }
        if !(1..=9_999_999).contains(&self.keys) {
            return Err(usage(format!("--keys {}: give 1 to 9999999", self.keys)));
        }
        if self.value > load::longest() {
            return Err(usage(format!(
                "--value {}: on a virtual cable a frame from a socket has room for an answer with {} bytes, and longer ones are memcached's",
                self.value,
                load::longest()
            )));
        }
        if self.checksum && self.cases.contains(&Case::Zipf) {
            return Err(usage("--checksum: not with --case zipf, where the flood's program writes the keys"));
        }
        if !(1..=65_536).contains(&self.memory_mib) {
            return Err(usage(format!("--memory-mib {}: give 1 to 65536", self.memory_mib)));
        }
        Ok(())
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn params(&self, more: &[(&str, u64)]) -> Params {
        let mut params = Params::new();
        params.insert("value".into(), self.value.into());
        params.insert("seconds".into(), self.seconds.into());
        params.insert("checksum".into(), self.checksum.into());
        params.insert("seed".into(), self.seed.into());
        more.iter().for_each(|(name, value)| drop(params.insert((*name).into(), (*value).into())));
        params
    }
}

/// Two of them: with the cache, in the kernel or the role, and without.
struct Labs {
    cached: Lab,
    plain: Lab,
}

impl Labs {
    fn new(before: Before, checksum: bool) -> Result<Self> {
        Ok(Labs { cached: Lab::new(before, checksum)?, plain: Lab::new(Before::Nothing, checksum)? })
    }

    /// The one whose turn it is. Both servers have one processor: the cache's daemon rests while the other is timed.
    fn turn(&self, cached: bool) -> Result<&Lab> {
        self.cached.rest(!cached)?;
        Ok(if cached { &self.cached } else { &self.plain })
    }
}

pub(super) fn run(args: &KvBench) -> Result<bool> {
    args.check()?;
    let memory = args.memory_mib << 20;
    let mut labs = None;
    let progress = Progress::new("bench kv", (args.cases.len() * args.runs) as u64);
    let mut report = Report::new(args.json);
    for case in &args.cases {
        progress.message(match case {
            Case::Hits => "hits",
            Case::Latency => "latency",
            Case::Uncacheable => "uncacheable",
            Case::UncacheableTcp => "uncacheable-tcp",
            Case::Zipf => "zipf",
            Case::Role => "role",
        });
        if matches!(case, Case::Uncacheable | Case::UncacheableTcp) {
            labs = None;
            uncacheable(args, *case == Case::UncacheableTcp, memory, &mut report, &progress)?;
            continue;
        }
        let before = if *case == Case::Role { Before::Role(memory) } else { Before::Kernel(memory) };
        let same = labs.take().filter(|(are, _)| *are == before);
        let (_, labs) = labs.insert(match same {
            Some(same) => same,
            None => (before, Labs::new(before, args.checksum)?),
        });
        match case {
            Case::Hits => hits(args, "hits", L2, labs, &mut report, &progress)?,
            Case::Role => hits(args, "role", L1, labs, &mut report, &progress)?,
            Case::Latency => latency(args, labs, &mut report, &progress)?,
            Case::Uncacheable | Case::UncacheableTcp | Case::Zipf => {
                zipf(args, labs, &mut report, &progress)?
            }
        }
    }
    Ok(true)
}

/// A few keys in both, and all of them in the cache.
fn few(args: &KvBench, labs: &Labs) -> Result<()> {
    labs.turn(true)?;
    for lab in [&labs.cached, &labs.plain] {
        load::fill(lab, FEW, args.value, 0)?;
    }
    for _ in 0..100 {
        let before = labs.cached.hits()?;
        let rate = load::window(&labs.cached, &Draw::Uniform(FEW), 1, args.seed, Duration::from_millis(200))?;
        let hits = (labs.cached.hits()? - before) as f64;
        if hits > 0.99 * rate * 0.2 {
            return Ok(());
        }
    }
    bail!("{FEW} keys are not all cached after 20 seconds: {} hits", labs.cached.hits()?)
}

fn rates(
    args: &KvBench,
    report: &mut Report,
    case: &'static str,
    rates: &[(&'static str, Vec<f64>)],
    params: &Params,
) -> Result<()> {
    for (subject, rates) in rates {
        if !args.json {
            println!("{case}, {subject}: {:.0} answers/s", median(rates));
        }
        report.line(Measurement::of("kv", subject, case, "ops", rates, params.clone()))?;
    }
    let before = report.ratios().len();
    for (to, other) in &rates[1..] {
        report.ratio("kv", case, (rates[0].0, &rates[0].1), (to, other))?;
    }
    if !args.json {
        for Ratio { of, to, value, low, high, pairs, .. } in &report.ratios()[before..] {
            println!("  {of} to {to}: {value:.3} ({low:.3} to {high:.3}, {pairs} pairs)");
        }
    }
    Ok(())
}

fn hits(
    args: &KvBench,
    case: &'static str,
    subject: &'static str,
    labs: &Labs,
    report: &mut Report,
    progress: &Progress,
) -> Result<()> {
    few(args, labs)?;
    let mut all = [(subject, Vec::new()), (UDP, Vec::new()), (TCP, Vec::new())];
    let mut shares = Vec::new();
    for run in 0..args.runs {
        for turn in 0..all.len() {
            let at = (turn + run) % all.len();
            let rate = match at {
                0 => {
                    labs.turn(true)?;
                    let (rate, share) =
                        load::flood(&labs.cached, &Draw::Uniform(FEW), args.seed, args.time())?;
                    // The role lets gets pass while memcached, on the same processor, has not said for long that it is the same.
                    if subject == L2 && share < 0.98 {
                        bail!("{case}: {:.1} % of the answers were the cache's", 100.0 * share);
                    }
                    shares.push(share);
                    rate
                }
                1 => {
                    let plain = labs.turn(false)?;
                    let client = load::window(plain, &Draw::Uniform(FEW), DEEP, args.seed, args.time())?;
                    client.max(load::flood(plain, &Draw::Uniform(FEW), args.seed, args.time())?.0)
                }
                _ => {
                    load::pipelined(labs.turn(false)?, FEW, args.value, args.seed + run as u64, args.time())?
                }
            };
            all[at].1.push(rate);
        }
        progress.add(1);
    }
    report.line(Measurement::of("kv", subject, case, "hit_share", &shares, args.params(&[("keys", FEW)])))?;
    rates(args, report, case, &all, &args.params(&[("keys", FEW)]))
}

fn latency(args: &KvBench, labs: &Labs, report: &mut Report, progress: &Progress) -> Result<()> {
    const PER_SECOND: u32 = 2000;
    few(args, labs)?;
    let mut lines = [
        (L2, Line::Udp(labs.cached.udp()?)),
        (UDP, Line::Udp(labs.plain.udp()?)),
        (TCP, Line::Tcp(labs.plain.tcp()?)),
    ];
    for lab in [&labs.cached, &labs.plain] {
        lab.apart(false)?;
    }
    // By subject, whose they are (round trips, residences), and percentile.
    let mut times: [[[Vec<f64>; PERCENTILES.len()]; 2]; 3] = Default::default();
    for run in 0..args.runs {
        for turn in 0..lines.len() {
            let at = (turn + run) % lines.len();
            let lab = labs.turn(at == 0)?;
            let mut ask = || load::round_trips(&mut lines[at].1, FEW, PER_SECOND, args.time());
            // One after the other: watching costs time.
            let both = [ask()?, residence::measured(lab, &mut ask)?];
            for (times, sorted) in times[at].iter_mut().zip(both) {
                for (times, (thousandths, _)) in times.iter_mut().zip(PERCENTILES) {
                    let place = (sorted.len().saturating_sub(1) * thousandths + 500) / 1000;
                    times.push(sorted.get(place).copied().map_or(0.0, f64::from));
                }
            }
        }
        progress.add(1);
    }
    for lab in [&labs.cached, &labs.plain] {
        lab.apart(true)?;
    }
    let params = args.params(&[("keys", FEW), ("per_second", PER_SECOND.into())]);
    for ((subject, _), times) in lines.iter().zip(&times) {
        for (what, times) in times.iter().enumerate() {
            for (times, (_, metrics)) in times.iter().zip(PERCENTILES) {
                report.line(Measurement::of(
                    "kv",
                    subject,
                    "latency",
                    metrics[what],
                    times,
                    params.clone(),
                ))?;
            }
            if !args.json {
                let us = |at: usize| median(&times[at]) / 1e3;
                let what = ["round trip", "residence"][what];
                println!(
                    "latency, {subject}, {what}: {:.1} us at the 50th percentile, {:.1} at the 99th",
                    us(0),
                    us(1)
                );
            }
        }
    }
    Ok(())
}

fn uncacheable(
    args: &KvBench,
    is_tcp: bool,
    memory: u64,
    report: &mut Report,
    progress: &Progress,
) -> Result<()> {
    let case = if is_tcp { "uncacheable-tcp" } else { "uncacheable" };
    // Two servers may differ by more than what is looked for, each for as long as it lives: this is one, with the programs and without.
    let mut lab = Lab::new(Before::Nothing, args.checksum)?;
    let mut all = [(L2, Vec::new()), (if is_tcp { TCP } else { UDP }, Vec::new()), (PASSING, Vec::new())];
    if is_tcp {
        load::fill(&lab, FEW, args.value, 0)?;
    }
    let fronts = [Front::Cache(memory), Front::Nothing, Front::Passing];
    // A small difference: many short turns.
    let turn = args.time() / 2;
    for run in 0..args.runs * PAIRS {
        for place in 0..fronts.len() {
            let at = (place + run) % fronts.len();
            lab.front(fronts[at])?;
            // The same keys on all sides; what is new begins cold, and is not measured.
            let seed = args.seed + run as u64;
            let load = |time| match is_tcp {
                true => load::pipelined(&lab, FEW, args.value, seed, time),
                false => load::window(&lab, &Draw::Absent(10_000), WINDOW, seed, time),
            };
            load(BEGINS)?;
            let (before, followed) = (lab.asked()?, lab.followed()?);
            let rate = load(turn)?;
            if at == 0 {
                // Of a connection that is not followed nothing is read.
                let (opened, blind) = lab.followed()?;
                if is_tcp && (opened < followed.0 + load::CONNECTIONS as u64 || blind > followed.1) {
                    bail!("{case}: the cache has followed {} connections", opened - followed.0);
                }
            }
            if at == 0 && !is_tcp {
                let (hits, asked) = lab.asked()?;
                let missed = ((asked - before.1) - (hits - before.0)) as f64;
                let answers = rate * turn.as_secs_f64();
                if missed < 0.98 * answers {
                    bail!("{case}: the cache has looked for {missed:.0} of {answers:.0} keys");
                }
            }
            all[at].1.push(rate);
        }
        progress.add(u64::from(run % PAIRS == 0));
    }
    let window = if is_tcp { load::CONNECTIONS * load::DEPTH } else { WINDOW };
    rates(args, report, case, &all, &args.params(&[("window", window as u64)]))
}

fn zipf(args: &KvBench, labs: &Labs, report: &mut Report, progress: &Progress) -> Result<()> {
    labs.turn(true)?;
    for lab in [&labs.cached, &labs.plain] {
        load::fill(lab, args.keys, args.value, 0)?;
    }
    let draw = Draw::Zipf(Zipf::new(args.keys, 0.99));
    // What is asked for most comes to be cached; memcached puts its lists in order.
    for lab in [&labs.cached, &labs.plain] {
        load::window(lab, &draw, DEEP, args.seed + 1000, 3 * args.time())?;
    }
    let mut all = [(L2, Vec::new()), (UDP, Vec::new())];
    let mut shares = Vec::new();
    for run in 0..args.runs {
        let seed = args.seed + run as u64;
        for turn in 0..2 {
            let at = (turn + run) % 2;
            let lab = labs.turn(at == 0)?;
            let before = lab.asked()?;
            let client = load::window(lab, &draw, DEEP, seed, args.time())?;
            if at == 0 {
                let (hits, asked) = lab.asked()?;
                shares.push((hits - before.0) as f64 / (asked - before.1).max(1) as f64);
            }
            all[at].1.push(client.max(load::flood(lab, &draw, seed, args.time())?.0));
        }
        progress.add(1);
    }
    let params =
        args.params(&[("keys", args.keys), ("window", DEEP as u64), ("memory_mib", args.memory_mib)]);
    report.line(Measurement::of("kv", L2, "zipf", "hit_share", &shares, params.clone()))?;
    if !args.json {
        println!("zipf, {L2}: {:.1} % answered by the cache", 100.0 * median(&shares));
    }
    rates(args, report, "zipf", &all, &params)
}
