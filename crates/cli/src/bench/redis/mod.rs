//! `bench redis`: `tidemill kv redis`, and the Redis behind it, on one cable.
//!
//! `redis-front` is a Redis asked through the front, `peer:redis` the same one asked past it, in turn. The server - its end of the cable, network stack, Redis, the
//! front - has one processor, the client another. Before the clock runs Redis is asked for all that will be asked; each answer is compared with that, byte for byte, and
//! one that is another ends the benchmark.
//!
//! ```text
//! client: 32 connections, one request each on its way | 8 connections, 16 each | one connection, a request every 500 us
//! ```

mod asks;
mod lab;
mod load;

use super::bursts::{PERCENTILES, percentile};
use super::cable::{busy, ticks};
use super::report::Report;
use super::statistics::median;
use super::zipf::Zipf;
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Result, bail};
use asks::{Ask, Asks};
use clap::{Args, ValueEnum};
use lab::{FRONT, Lab, REDIS};
use load::Fleet;
use std::time::Duration;
use tidemill_port::rng::Rng;

/// Arguments of `bench redis`.
#[derive(Args)]
#[command(
    after_help = "Needs root, two processors, redis-server, ip, ethtool and unshare; it works in network namespaces of its own.\n\n\
    Examples:\n  tidemill bench redis\n  tidemill bench redis --ask get,absent --case single,latency --json\n  tidemill bench redis --ask zipf --keys 100000 --memory-mib 16"
)]
pub(crate) struct RedisBench {
    /// What is asked
    #[arg(long = "ask", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["get", "hgetall", "smembers", "lrange", "zrange", "absent", "zipf"])]
    asks: Vec<Ask>,
    /// How it is asked
    #[arg(long = "case", value_enum, value_name = "NAME", value_delimiter = ',', default_values = ["single", "pipelined", "latency"])]
    cases: Vec<Case>,
    /// Keys of `zipf`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=9_999_999))]
    keys: u32,
    /// Bytes of a string, and of an element
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    value: u32,
    /// Elements of a hash, a set, a list and a sorted set
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=128))]
    elements: u32,
    /// The front's memory
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    memory_mib: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds, in each of which both subjects take turns
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
    /// Answers a second to 32 connections that ask one thing at a time
    Single,
    /// Answers a second to eight connections that ask 16 things at once
    Pipelined,
    /// Round trips of one thing at a time, 2,000 a second; the ratio is of the medians: less is better
    Latency,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Single => "single",
            Case::Pipelined => "pipelined",
            Case::Latency => "latency",
        }
    }

    /// Connections, and requests on their way on each.
    fn load(self) -> (usize, usize) {
        match self {
            Case::Single => (32, 1),
            Case::Pipelined => (8, 16),
            Case::Latency => (1, 1),
        }
    }
}

/// Ours first.
const SUBJECTS: [(&str, u16); 2] = [("redis-front", FRONT), ("peer:redis", REDIS)];
/// Keys of all that is kept.
const FEW: u32 = 64;
/// Of round trips.
const PER_SECOND: u32 = 2000;
/// Fewer hits than that are no measurement of hits.
const HITS: f64 = 0.9;

impl RedisBench {
    fn check(&self) -> Result<()> {
        if !(self.seconds > 0.0 && self.seconds <= 600.0) || self.runs == 0 {
            return Err(usage("--seconds, --runs: give more than 0, and at most 600 seconds"));
        }
        Ok(())
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// What is asked, and by which law.
struct Plan<'a> {
    args: &'a RedisBench,
    lab: &'a Lab,
    ask: Ask,
    asks: Asks,
    keys: u32,
    zipf: Option<Zipf>,
}

/// What one case has come to, by subject: rates, or times by percentile.
#[derive(Default)]
struct Came {
    figures: [[Vec<f64>; PERCENTILES.len()]; 2],
    /// How much of its time the server's processor had something to do.
    busy: [Vec<f64>; 2],
    /// Answers that were the front's, of all in its turns.
    hits: Vec<f64>,
}

pub(super) fn run(args: &RedisBench) -> Result<bool> {
    args.check()?;
    let lab = Lab::new(args.memory_mib)?;
    let asks = measurable(&args.asks, lab.fields_end()?)?;
    let progress = Progress::new("bench redis", (asks.len() * args.cases.len() * args.runs) as u64);
    let mut report = Report::new(args.json);
    for ask in &asks {
        let (keys, zipf) = match ask {
            Ask::Zipf => (args.keys, Some(Zipf::new(args.keys.into(), 0.99))),
            _ => (FEW, None),
        };
        progress.message(ask.name());
        let asks = Asks::new(&lab, *ask, keys, args.value as usize, args.elements)?;
        let plan = Plan { args, lab: &lab, ask: *ask, asks, keys, zipf };
        plan.warm()?;
        for case in &args.cases {
            let came = plan.measure(*case, &progress)?;
            plan.report(*case, &came, &mut report)?;
        }
    }
    Ok(true)
}

/// Leaves out, aloud, what cannot be measured: where fields of hashes end by themselves, the front keeps no hashes.
fn measurable(asks: &[Ask], fields_end: bool) -> Result<Vec<Ask>> {
    let rest: Vec<Ask> = asks.iter().copied().filter(|ask| !fields_end || *ask != Ask::Hgetall).collect();
    if rest.is_empty() {
        bail!(
            "hgetall: fields of this Redis' hashes may end by themselves (7.4 and later), so no hashes are kept: \
             give another --ask, or have an older redis-server in PATH"
        );
    }
    if rest.len() < asks.len() {
        eprintln!(
            "tidemill: bench redis: hgetall is left out: fields of this Redis' hashes may end by themselves (7.4 and \
             later), so no hashes are kept"
        );
    }
    Ok(rest)
}

impl Plan<'_> {
    /// The keys of a round, in their order; both subjects are asked for the same.
    fn order(&self, seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed);
        match &self.zipf {
            Some(zipf) => (0..1 << 20).map(|_| zipf.next(&mut rng) as u32).collect(),
            None => (0..1 << 16).map(|_| rng.below(self.keys.into()) as u32).collect(),
        }
    }

    /// Whether all of it can be kept.
    fn is_kept(&self) -> bool {
        !matches!(self.ask, Ask::Absent | Ask::Zipf)
    }

    /// Has the front keep what it can.
    fn warm(&self) -> Result<()> {
        if self.ask == Ask::Zipf {
            // What is asked for most comes to be kept.
            let order = self.order(self.args.seed + 1000);
            let (connections, depth) = Case::Pipelined.load();
            let mut fleet = Fleet::new(self.lab, FRONT, connections, depth)?;
            fleet.ask(&self.asks, &order, 3 * self.args.time())?;
        } else if self.is_kept() {
            let mut fleet = Fleet::new(self.lab, FRONT, 1, 1)?;
            let all: Vec<u32> = (0..self.keys).collect();
            let mut before = self.lab.hits()?;
            for _ in 0..100 {
                fleet.once(&self.asks, &all)?;
                let hits = self.lab.hits()?;
                if hits - before >= u64::from(self.keys) {
                    return Ok(());
                }
                before = hits;
            }
            bail!("{}: {} keys are not all kept after 100 rounds", self.ask.name(), self.keys);
        }
        Ok(())
    }

    fn measure(&self, case: Case, progress: &Progress) -> Result<Came> {
        let (args, asks) = (self.args, &self.asks);
        let mut came = Came::default();
        let (connections, depth) = case.load();
        let fleet = |(_, port)| Fleet::new(self.lab, port, connections, depth);
        let mut fleets = SUBJECTS.into_iter().map(fleet).collect::<Result<Vec<_>>>()?;
        // The front gives nothing on a connection before Redis has answered it.
        for fleet in &mut fleets {
            fleet.once(asks, &[0])?;
        }
        let is_low = case == Case::Latency;
        if is_low {
            self.lab.apart(false)?;
        }
        for run in 0..args.runs {
            let order = self.order(args.seed + run as u64);
            for turn in 0..SUBJECTS.len() {
                let at = (turn + run) % SUBJECTS.len();
                let before = if at == 0 { self.lab.hits()? } else { 0 };
                let since = ticks()?;
                let answers = if is_low {
                    let times = fleets[at].round_trips(asks, &order, PER_SECOND, args.time())?;
                    for (figures, (percent, _)) in came.figures[at].iter_mut().zip(PERCENTILES) {
                        figures.push(percentile(&times, percent).as_nanos() as f64);
                    }
                    times.len() as u64
                } else {
                    let turn = fleets[at].ask(asks, &order, args.time())?;
                    came.figures[at][0].push(turn.rate);
                    turn.answers
                };
                came.busy[at].push(busy(since, ticks()?));
                if at == 0 {
                    came.hits.push((self.lab.hits()? - before) as f64 / answers.max(1) as f64);
                }
            }
            progress.add(1);
        }
        if is_low {
            self.lab.apart(true)?;
        }
        let (name, hits) = (self.name(case), median(&came.hits));
        if self.is_kept() && hits < HITS {
            bail!("{name}: only {:.1} % of the answers were the front's", 100.0 * hits);
        }
        if self.ask == Ask::Absent && came.hits.iter().any(|hits| *hits > 0.0) {
            bail!("{name}: the front has answered for keys that are not there");
        }
        Ok(came)
    }

    /// `latency/get`.
    fn name(&self, case: Case) -> String {
        format!("{}/{}", case.name(), self.ask.name())
    }

    fn params(&self, case: Case) -> Params {
        let args = self.args;
        let (connections, depth) = case.load();
        let mut params = Params::new();
        params.insert("keys".into(), self.keys.into());
        params.insert("value".into(), args.value.into());
        params.insert("elements".into(), args.elements.into());
        params.insert("memory_mib".into(), args.memory_mib.into());
        params.insert("connections".into(), connections.into());
        params.insert("depth".into(), depth.into());
        params.insert("seconds".into(), args.seconds.into());
        params.insert("seed".into(), args.seed.into());
        params
    }

    fn report(&self, case: Case, came: &Came, report: &mut Report) -> Result<()> {
        let (name, params) = (self.name(case), self.params(case));
        let metrics = match case {
            Case::Latency => PERCENTILES.map(|(_, metric)| metric),
            // One of them.
            Case::Single | Case::Pipelined => ["ops", ""],
        };
        let line = |subject: &str, metric: &'static str, values: &[f64]| {
            Measurement::of("redis", subject, &name, metric, values, params.clone())
        };
        let json = self.args.json;
        report.line(line(SUBJECTS[0].0, "hit_share", &came.hits))?;
        for (at, (subject, _)) in SUBJECTS.into_iter().enumerate() {
            let (figures, busy) = (&came.figures[at], &came.busy[at]);
            for (metric, values) in metrics.into_iter().zip(figures) {
                if !values.is_empty() {
                    report.line(line(subject, metric, values))?;
                }
            }
            report.line(line(subject, "busy", busy))?;
            let [first, second] = figures;
            match case {
                _ if json => {}
                Case::Latency => println!(
                    "{name}, {subject}: {:.1} us at the 50th percentile, {:.1} at the 99th",
                    median(first) / 1e3,
                    median(second) / 1e3
                ),
                Case::Single | Case::Pipelined => println!(
                    "{name}, {subject}: {:.0} answers/s, the server busy for {:.0} %",
                    median(first),
                    100.0 * median(busy)
                ),
            }
        }
        let [(ours, _), (peer, _)] = SUBJECTS;
        let before = report.ratios().len();
        let [front, redis] = &came.figures;
        report.ratio("redis", &name, (ours, &front[0]), (peer, &redis[0]))?;
        if !json {
            println!("  {:.1} % answered by {ours}", 100.0 * median(&came.hits));
            for Ratio { of, to, value, low, high, pairs, .. } in &report.ratios()[before..] {
                println!("  {of} to {to}: {value:.3} ({low:.3} to {high:.3}, {pairs} pairs)");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_left_out_where_their_fields_end() {
        let asks = [Ask::Get, Ask::Hgetall, Ask::Zipf];
        assert!(measurable(&asks, false).unwrap() == asks);
        assert!(measurable(&asks, true).unwrap() == [Ask::Get, Ask::Zipf]);
        assert!(measurable(&[Ask::Hgetall], false).is_ok());
        let error = measurable(&[Ask::Hgetall], true).err().unwrap().to_string();
        assert!(error.contains("give another --ask"), "{error}");
    }
}
