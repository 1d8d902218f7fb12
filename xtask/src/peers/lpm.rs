//! `peers lpm`: our structure and DPDK's on the same table and keys, passes alternating, checksums compared.

use super::keys::{Pattern, SplitMix, Spread};
use super::reference::Reference;
use super::runner::{Pass, Runner};
use super::table::{Route, Table};
use super::{build_c, keys, pages, stats};
use crate::env;
use crate::record::Record;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Routes of one family, `prefix TAB label`, compressed or not
    #[arg(long)]
    table: PathBuf,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Fewer keys and rounds
    #[arg(long)]
    quick: bool,
    /// Compare checksums only, measure nothing
    #[arg(long)]
    check: bool,
    /// Where the keys lie [default: uniform for IPv4, prefix for IPv6]
    #[arg(long, value_enum)]
    keys: Option<Spread>,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Our structure, as in `tidemill bench lpm` [default: auto]
    #[arg(long)]
    algorithm: Option<String>,
    /// Only peers whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Peers that take minutes to build too (rte_lpm)
    #[arg(long)]
    slow: bool,
    /// Without our side
    #[arg(long)]
    peers_only: bool,
    /// Keep what is measured in bench/results
    #[arg(long, conflicts_with_all = ["check", "only", "peers_only"])]
    record: bool,
}

/// Measures a table for the records.
pub(crate) fn record(table: &Path, quick: bool) -> Result<bool> {
    run(&Options {
        table: table.to_owned(),
        json: false,
        quick,
        check: false,
        keys: None,
        seed: 1,
        algorithm: None,
        only: None,
        slow: false,
        peers_only: false,
        record: true,
    })
}

/// A peer's structure: its name, the family, the greatest label that it can hold, whether it is slow to build.
struct Peer {
    name: &'static str,
    family: u8,
    greatest_label: u32,
    slow: bool,
}

const fn peer(name: &'static str, family: u8, greatest_label: u32, slow: bool) -> Peer {
    Peer { name, family, greatest_label, slow }
}

const PEERS: &[Peer] = &[
    peer("rte_fib-1b-avx512", 4, 127, false),
    peer("rte_fib-1b-scalar", 4, 127, false),
    peer("rte_fib-2b-avx512", 4, 32_767, false),
    peer("rte_fib-2b-scalar", 4, 32_767, false),
    peer("rte_fib-4b-avx512", 4, u32::MAX >> 1, false),
    peer("rte_fib-4b-scalar", 4, u32::MAX >> 1, false),
    peer("rte_lpm", 4, (1 << 24) - 1, true),
    peer("rte_fib6-2b-avx512", 6, 32_767, false),
    peer("rte_fib6-2b-scalar", 6, 32_767, false),
    peer("rte_fib6-4b-avx512", 6, u32::MAX >> 1, false),
    peer("rte_fib6-4b-scalar", 6, u32::MAX >> 1, false),
    peer("rte_lpm6", 6, (1 << 21) - 1, false),
];

/// A peer that rejected more than one in so many routes is not compared: it does another, smaller job.
const MOST_REJECTED_SHARE: u64 = 100;

/// The files that both sides read, and what must come out.
struct Scenario {
    table: PathBuf,
    keys: PathBuf,
    expected: BTreeMap<&'static str, String>,
    /// For the records.
    params: Value,
}

impl Scenario {
    fn new(name: &str, table: &Table, spread: Spread, count: usize, seed: u64) -> Result<Scenario> {
        let folder = env::scratch("peers")?;
        // Several runs at once must not share files.
        let file = |ending: &str| folder.join(format!("{}-{}.{ending}", std::process::id(), table.family));
        let mut scenario = Scenario {
            table: file("table"),
            keys: file("keys"),
            expected: BTreeMap::new(),
            params: json!({"table": name, "prefixes": table.routes.len(), "keys": count, "spread": spread.name(), "seed": seed}),
        };
        table.write(&scenario.table)?;
        let keys = keys::generate(table, spread, count, seed);
        keys::write(&scenario.keys, table.family, &keys)?;
        let reference = Reference::new(table);
        let expected =
            Pattern::ALL.iter().map(|pattern| (pattern.name(), pattern.expected(&reference, &keys)));
        scenario.expected = expected.collect();
        Ok(scenario)
    }

    /// Adds what every runner reads.
    fn give(&self, command: &mut Command) {
        command.arg("--table").arg(&self.table).arg("--keys").arg(&self.keys);
    }

    /// Fails if the pass is wrong. A runner that rejected routes answers another table.
    fn verify(&self, runner: &Runner, pattern: Pattern, pass: &Pass) -> Result<()> {
        let expected = &self.expected[pattern.name()];
        if runner.rejected == 0 && pass.checksum != *expected {
            bail!("{} {}: checksum {}, expected {expected}", runner.subject, pattern.name(), pass.checksum);
        }
        Ok(())
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        for file in [&self.table, &self.keys] {
            std::fs::remove_file(file).ok();
        }
    }
}

fn start_peer(program: &Path, peer: &Peer, scenario: &Scenario, cpu: Option<usize>) -> Result<Runner> {
    let mut command = Command::new(program);
    command.args(["--structure", peer.name]);
    scenario.give(&mut command);
    Runner::start(&command, cpu)
}

fn start_ours(algorithm: Option<&str>, scenario: &Scenario, cpu: Option<usize>) -> Result<Runner> {
    let mut command = Command::new(env::tidemill()?);
    command.args(["bench", "lpm", "--runner"]);
    scenario.give(&mut command);
    if let Some(name) = algorithm {
        command.args(["--algorithm", name]);
    }
    Runner::start(&command, cpu)
}

/// The last CPU that we may run on: the first ones serve interrupts.
fn cpu() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let last = list.trim().rsplit([',', '-']).next()?.parse().ok();
    last.filter(|_| env::has_program("taskset"))
}

/// Whether this CPU has what DPDK's vector lookups want.
fn has_avx512() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.contains(" avx512f") && info.contains(" avx512dq") && info.contains(" avx512bw")
}

/// The peers that fit, each that does not named with the reason.
fn peers_for(table: &Table, options: &Options) -> Vec<&'static Peer> {
    let mut fit = Vec::new();
    for peer in PEERS.iter().filter(|peer| peer.family == table.family) {
        if options.only.as_ref().is_some_and(|only| !peer.name.contains(only.as_str())) {
            continue;
        }
        let why = if table.greatest_label() > peer.greatest_label {
            format!("its labels end at {}, the table's at {}", peer.greatest_label, table.greatest_label())
        } else if peer.slow && !options.slow {
            "takes minutes to build, ask with --slow".to_owned()
        } else if peer.name.ends_with("avx512") && !has_avx512() {
            "this CPU has no AVX-512".to_owned()
        } else {
            fit.push(peer);
            continue;
        };
        eprintln!("skipped: peer:{} ({why})", peer.name);
    }
    fit
}

/// Whether everything agreed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let table = Table::read(&options.table)?;
    let spread = options.keys.unwrap_or(if table.family == 4 { Spread::Uniform } else { Spread::Prefix });
    let count = if options.quick || options.check { 1 << 20 } else { 1 << 22 };
    let name = options.table.file_name().unwrap_or_default().to_string_lossy();
    let scenario = Scenario::new(&name, &table, spread, count, options.seed)?;
    let program = build_c(&env::root().join("bench/peers/lpm"))?;
    let peers = peers_for(&table, options);
    if options.check {
        return check(&program, &peers, &scenario, !options.peers_only, options.algorithm.as_deref());
    }
    let record = options
        .record
        .then(|| Record::start(&format!("peers-lpm-v{}", table.family), &options.table, table.bits()));
    let record = record.transpose()?;
    let _pages = pages::raise();
    let cpu = cpu();
    let mut ours = if options.peers_only {
        None
    } else {
        Some(start_ours(options.algorithm.as_deref(), &scenario, cpu)?)
    };
    let mut report = Report { scenario: &scenario, json: options.json, record };
    if let Some(ours) = &ours {
        report.built(ours);
    }
    let rounds = if options.quick { 7 } else { 21 };
    for peer in peers {
        let mut theirs = start_peer(&program, peer, &scenario, cpu)?;
        report.built(&theirs);
        if theirs.rejected * MOST_REJECTED_SHARE > theirs.routes {
            eprintln!(
                "skipped: {} (it rejected {} of {} routes)",
                theirs.subject,
                theirs.rejected,
                table.routes.len()
            );
            continue;
        }
        for pattern in Pattern::ALL {
            report.compare(ours.as_mut(), &mut theirs, pattern, rounds)?;
        }
    }
    if let Some(record) = report.record {
        record.write()?;
    }
    Ok(true)
}

/// Every runner's checksums against the reference.
fn check(
    program: &Path,
    peers: &[&Peer],
    scenario: &Scenario,
    with_ours: bool,
    algorithm: Option<&str>,
) -> Result<bool> {
    let mut runners = Vec::new();
    if with_ours {
        runners.push(start_ours(algorithm, scenario, None)?);
    }
    for peer in peers {
        runners.push(start_peer(program, peer, scenario, None)?);
    }
    for runner in &mut runners {
        for pattern in Pattern::ALL {
            let pass = runner.pass_once(pattern)?;
            scenario.verify(runner, pattern, &pass)?;
        }
        println!("agrees: {} ({} routes, {} rejected)", runner.subject, runner.routes, runner.rejected);
    }
    Ok(true)
}

/// The test tier's check: all structures of a family on a small nested table.
pub(crate) fn self_check(family: u8) -> Result<bool> {
    let table = small_table(family, 5_000, &mut SplitMix::new(u64::from(family)));
    let scenario = Scenario::new("small", &table, Spread::Prefix, 1 << 14, 1)?;
    let program = build_c(&env::root().join("bench/peers/lpm"))?;
    // Room for a few tbl8 groups only: the 1-byte form cannot hold this table.
    let fit = |peer: &&Peer| {
        peer.family == family && peer.greatest_label > 127 && (has_avx512() || !peer.name.ends_with("avx512"))
    };
    let peers: Vec<&Peer> = PEERS.iter().filter(fit).collect();
    check(&program, &peers, &scenario, true, None)
}

/// A table of random prefixes, clustered so that many nest and touch, without a default route.
pub(crate) fn small_table(family: u8, size: usize, random: &mut SplitMix) -> Table {
    let mut table = Table { family, routes: Vec::new() };
    let bits = table.bits();
    while table.routes.len() < size {
        // Few distinct high halves, and low halves with long runs of zeros and ones.
        let spread = match family {
            4 => u128::from(random.next() & 0x0f0f_ffff & (random.next() | 0xffff_0000)),
            _ => (0x2001 << 112) | (random.wide() & random.wide() & (u128::MAX >> 24)),
        };
        let length = 4 + random.below(usize::from(bits) - 3) as u8;
        let host = (u128::MAX >> (128 - bits)).checked_shr(u32::from(length)).unwrap_or(0);
        let label = 1 + random.below(200) as u32;
        table.routes.push(Route { address: spread & !host, length, label });
    }
    table.routes.sort_by_key(|route| (route.address, route.length));
    table.routes.dedup_by_key(|route| (route.address, route.length));
    table
}

/// Prints what is measured, and keeps it if asked to.
struct Report<'a> {
    scenario: &'a Scenario,
    json: bool,
    record: Option<Record>,
}

impl Report<'_> {
    /// One measurement: for machines, and for people.
    fn line(&mut self, object: Value, text: &str) {
        if self.json {
            println!("{object}");
        } else if !text.is_empty() {
            println!("{text}");
        }
        if let Some(record) = &mut self.record {
            record.add(object);
        }
    }

    /// What a runner said when its table stood.
    fn built(&mut self, runner: &Runner) {
        let (subject, routes, rejected) = (&runner.subject, runner.routes, runner.rejected);
        let (seconds, megabytes) = (runner.build_seconds, runner.bytes as f64 / 1e6);
        let text = format!(
            "{subject}: {routes} routes, {rejected} rejected, built in {seconds:.3} s, {megabytes:.1} MB"
        );
        let params = self.params(runner);
        let object = |metric: &str, value: Value| {
            json!({"v": 1, "bench": "lpm", "subject": subject, "case": "build", "metric": metric,
                "value": value, "routes": routes, "rejected": rejected, "params": params})
        };
        self.line(object("build_seconds", json!(seconds)), &text);
        self.line(object("bytes", json!(runner.bytes)), "");
    }

    /// Alternating passes of one pattern, and their lines.
    fn compare(
        &mut self,
        ours: Option<&mut Runner>,
        theirs: &mut Runner,
        pattern: Pattern,
        rounds: usize,
    ) -> Result<()> {
        let Some(ours) = ours else {
            let passes: Result<Vec<f64>> = (0..rounds).map(|_| self.pass(theirs, pattern)).collect();
            self.rates(theirs, pattern, &passes?);
            return Ok(());
        };
        let mut pairs = Vec::new();
        for round in 0..rounds {
            // Who goes first alternates, so that a drift of the machine favours nobody.
            let pair = if round % 2 == 0 {
                let a = self.pass(ours, pattern)?;
                (a, self.pass(theirs, pattern)?)
            } else {
                let b = self.pass(theirs, pattern)?;
                (self.pass(ours, pattern)?, b)
            };
            pairs.push(pair);
        }
        self.rates(ours, pattern, &pairs.iter().map(|pair| pair.0).collect::<Vec<f64>>());
        self.rates(theirs, pattern, &pairs.iter().map(|pair| pair.1).collect::<Vec<f64>>());
        let stats::Ratio { value, low, high, pairs } =
            stats::ratio(&pairs).context("too few pairs for a ratio")?;
        let (case, of, to) = (pattern.name(), &ours.subject, &theirs.subject);
        let object = json!({"v": 1, "bench": "lpm", "case": case, "metric": "ratio", "of": of, "to": to,
            "value": value, "low": low, "high": high, "pairs": pairs, "rejected": theirs.rejected});
        let text = format!("  {case} {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
        self.line(object, &text);
        Ok(())
    }

    fn pass(&self, runner: &mut Runner, pattern: Pattern) -> Result<f64> {
        let pass = runner.pass(pattern)?;
        self.scenario.verify(runner, pattern, &pass)?;
        Ok(pass.mlps)
    }

    fn rates(&mut self, runner: &Runner, pattern: Pattern, rates: &[f64]) {
        let (least, most) =
            (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        let (median, case) = (stats::median(rates), pattern.name());
        // Every pass had it. A runner that rejected routes has another, which proves nothing.
        let checksum = (runner.rejected == 0).then(|| &self.scenario.expected[case]);
        let object = json!({"v": 1, "bench": "lpm", "subject": runner.subject, "case": case, "metric": "mlps",
            "value": median, "min": least, "max": most, "runs": rates.len(),
            "checksum": checksum, "params": self.params(runner)});
        let text = format!("  {case} {}: {median:.1} M lookups/s ({least:.1} to {most:.1})", runner.subject);
        self.line(object, &text);
    }

    /// The scenario's parameters with the runner's own.
    fn params(&self, runner: &Runner) -> Value {
        let mut params = self.scenario.params.clone();
        if let (Some(all), Some(own)) = (params.as_object_mut(), runner.params.as_object()) {
            all.extend(own.clone());
            all.insert("batch".to_owned(), json!(256));
        }
        params
    }
}
