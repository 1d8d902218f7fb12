//! `peers classify`: our rule structures and DPDK's `rte_acl` on ClassBench sets and their traces, passes alternating, checksums compared.
//!
//! What is expected are the first matches that the trace itself names: neither side has computed them.

use super::report::{self, Case, Report};
use super::runner::Runner;
use super::{build, cpu, ovs, pages};
use crate::env;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rule set in ClassBench's format, NAME.rules[.zst|.gz|.xz], with NAME.trace beside it; several with commas
    #[arg(long, value_delimiter = ',')]
    rules: Vec<PathBuf>,
    /// Only peers whose name contains this: of rte_acl-avx2, rte_acl-avx512x16, rte_acl-avx512x32; or the whole switch beside Open vSwitch on HALO's traffic
    /// cases: ovs for all of ovs, ovs-smc, ovs-avx512 (its package is installed if need be)
    #[arg(long)]
    only: Option<String>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Fewer rounds
    #[arg(long)]
    quick: bool,
    /// Compare checksums only, measure nothing; without --rules on a small set
    #[arg(long)]
    check: bool,
    /// Without our side
    #[arg(long)]
    peers_only: bool,
    /// Keep it in bench/results: as peers-classify, or peers-ovs
    #[arg(long, conflicts_with = "check")]
    record: bool,
}

/// Sets of the data's folder acl that are compared in the records; a change of the last three is a build for the peer, of which it makes one.
pub(crate) const SETS: [&str; 9] = [
    "wustl-acl1",
    "wustl-fw1",
    "wustl-ipc1",
    "wustl-acl1_10K",
    "wustl-fw1_10K",
    "wustl-ipc1_10K",
    "cbgen-acl1_100k",
    "cbgen-fw1_100k",
    "cbgen-ipc1_100k",
];

/// More rules than so many are not built anew for each change, which takes minutes: their first build is what a change costs them.
const LARGE: usize = 20_000;

/// Compares with `rte_acl` (false: with Open vSwitch) for the records.
pub(crate) fn record(acl: bool, quick: bool) -> Result<bool> {
    let mut options = Options {
        rules: Vec::new(),
        only: None,
        json: true,
        quick,
        check: false,
        peers_only: false,
        record: true,
    };
    if acl {
        let folder = env::data().context("TIDEMILL_DATA is not set: the rule sets are there")?.join("acl");
        let sets = if quick { &SETS[..3] } else { &SETS[..] };
        options.rules = sets.iter().map(|name| folder.join(format!("{name}.rules.zst"))).collect();
    } else {
        options.only = Some("ovs".into());
    }
    run(&options)
}

/// `rte_acl` by its classify methods.
const PEERS: [&str; 3] = ["rte_acl-avx2", "rte_acl-avx512x16", "rte_acl-avx512x32"];
const CASES: [&str; 2] = ["lookup", "update"];
/// 2 MB pages for DPDK: its tries for 10,000 rules.
const PAGES: u64 = 1024;

/// A set's files, plain, as runners read them; gone with it.
struct Scenario {
    name: String,
    rules: PathBuf,
    trace: PathBuf,
    expected: BTreeMap<&'static str, String>,
    headers: usize,
    /// Its rules.
    size: usize,
}

/// A file, compressed or not.
fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let place = || path.display().to_string();
    tidemill_archive::open(path).with_context(place)?.read_to_string(&mut text).with_context(place)?;
    Ok(text)
}

/// FNV-1a over the numbers of first matches from 1 on, 0 for none, four little-endian bytes each.
fn checksum(trace: &str) -> Result<(String, usize)> {
    let (mut sum, mut headers) = (0xcbf2_9ce4_8422_2325_u64, 0);
    for line in trace.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        headers += 1;
        let last =
            line.split_whitespace().nth(5).context("a trace without first matches: none to compare")?;
        let first: i64 = last.parse().with_context(|| format!("{last:?} is no rule's number"))?;
        ensure!(first >= -1, "{first} is no rule's number");
        for byte in ((first + 1) as u32).to_le_bytes() {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    Ok((format!("{sum:016x}"), headers))
}

impl Scenario {
    fn new(name: &str, rules: &str, trace: &str) -> Result<Scenario> {
        let (sum, headers) = checksum(trace).with_context(|| format!("{name}.trace"))?;
        let folder = env::scratch("peers")?;
        // Several runs at once must not share files.
        let file = |ending: &str| folder.join(format!("{}-{name}.{ending}", std::process::id()));
        let expected = CASES.into_iter().map(|case| (case, sum.clone())).collect();
        let size = rules.lines().filter(|line| line.starts_with('@')).count();
        let (name, files) = (name.to_owned(), [file("rules"), file("trace")]);
        let [rules_file, trace_file] = files;
        let scenario = Scenario { name, rules: rules_file, trace: trace_file, expected, headers, size };
        for (file, text) in [(&scenario.rules, rules), (&scenario.trace, trace)] {
            std::fs::write(file, text).with_context(|| file.display().to_string())?;
        }
        Ok(scenario)
    }

    fn read(rules: &Path) -> Result<Scenario> {
        let file = rules.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = file.split(".rules").next().unwrap_or_default();
        let there = ["", ".zst", ".gz", ".xz"].map(|end| rules.with_file_name(format!("{name}.trace{end}")));
        let trace = there.into_iter().find(|trace| trace.is_file());
        let trace = trace.with_context(|| format!("{}: no {name}.trace beside it", rules.display()))?;
        Scenario::new(name, &text(rules)?, &text(&trace)?)
    }

    fn start(&self, mut command: Command, cpu: Option<usize>) -> Result<Runner> {
        command.arg("--rules").arg(&self.rules).arg("--trace").arg(&self.trace);
        let mut runner = Runner::start(&command, cpu)?;
        runner.adopt(json!({"set": self.name, "headers": self.headers}), &self.expected);
        Ok(runner)
    }

    fn ours(&self, cpu: Option<usize>) -> Result<Runner> {
        let mut command = Command::new(env::tidemill()?);
        command.args(["bench", "classify", "--runner"]);
        self.start(command, cpu)
    }

    fn peer(&self, program: &Path, name: &str, cpu: Option<usize>) -> Result<Runner> {
        let mut command = Command::new(program);
        command.args(["--structure", name]);
        self.start(command, cpu)
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        for file in [&self.rules, &self.trace] {
            std::fs::remove_file(file).ok();
        }
    }
}

fn program() -> Result<PathBuf> {
    build::c("acl", &[build::sources("classify", "c")?, build::sources("dpdk", "c")?].concat())
}

/// Those that were asked for and that this CPU has.
fn peers(only: Option<&str>) -> Vec<&'static str> {
    let has = |peer: &&str| super::lpm::has_avx512() || !peer.contains("avx512");
    PEERS.into_iter().filter(|peer| only.is_none_or(|only| peer.contains(only))).filter(has).collect()
}

/// Whether everything agreed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let switches = ovs::asked(options.only.as_deref());
    if !switches.is_empty() {
        ensure!(options.rules.is_empty(), "--rules: not with --only ovs, whose traffic cases have their own");
        let (rounds, seconds) = if options.quick || options.check { (3, 0.5) } else { (7, 1.0) };
        let Options { check, json, record, quick, .. } = *options;
        return ovs::run(&switches, &ovs::Extent { rounds, seconds, check, json, record, quick });
    }
    ensure!(options.check || !options.rules.is_empty(), "--rules: give at least one set");
    if options.check && options.rules.is_empty() {
        return self_check();
    }
    let (program, peers) = (program()?, peers(options.only.as_deref()));
    ensure!(!peers.is_empty(), "--only: no such peer, or this CPU has not what it needs");
    let _pages = (!options.check).then(|| pages::raise(PAGES));
    let record = options.record.then(|| Record::start("peers-classify", json!({}), options.quick));
    let record = record.transpose()?;
    let mut report = Report { bench: "classify", metric: "mlps", json: options.json, record };
    for rules in &options.rules {
        let scenario = Scenario::read(rules)?;
        if options.check {
            check(&scenario, &program, &peers, options.peers_only)?;
            continue;
        }
        let cpu = cpu();
        let mut ours = if options.peers_only { Vec::new() } else { vec![scenario.ours(cpu)?] };
        let build = format!("{}/build", scenario.name);
        for ours in &ours {
            report.built(ours, &build, "entries");
        }
        for peer in &peers {
            let mut theirs = scenario.peer(&program, peer, cpu)?;
            report.built(&theirs, &build, "entries");
            let lookups = if options.quick { 7 } else { 21 };
            // A change of theirs is a build: seconds for 10,000 rules.
            let asked = [("lookup", lookups, true), ("update", 3, false)];
            let asked = if scenario.size > LARGE { &asked[..1] } else { &asked[..] };
            for &(asked, rounds, warm) in asked {
                let name = format!("{}/{asked}", scenario.name);
                report.compare(&mut ours, &mut theirs, &Case { name: &name, asked, rounds, warm })?;
            }
            if scenario.size > LARGE {
                let name = format!("{}/update", scenario.name);
                let case = Case { name: &name, asked: "update", rounds: 3, warm: false };
                report.beside_build(&mut ours, &theirs, &case)?;
            }
        }
    }
    if let Some(record) = report.record {
        record.write()?;
    }
    Ok(true)
}

fn check(scenario: &Scenario, program: &Path, peers: &[&str], peers_only: bool) -> Result<bool> {
    let mut runners = if peers_only { Vec::new() } else { vec![scenario.ours(None)?] };
    for peer in peers {
        runners.push(scenario.peer(program, peer, None)?);
    }
    println!("{}:", scenario.name);
    report::check(&mut runners, &CASES, "entries")
}

/// The test tier's check: all runners on a small set whose first matches are known.
pub(crate) fn self_check() -> Result<bool> {
    let (rules, trace) = small();
    check(&Scenario::new("small", &rules, &trace)?, &program()?, &peers(None), false)
}

/// Networks with a wider one behind each eight of them, ranges that overlap: header `i` is rule `i`'s, but for every fourth, which is
/// no one's.
fn small() -> (String, String) {
    let (mut rules, mut trace) = (String::new(), String::new());
    for i in 0..200_u32 {
        let (second, third, wide) = (i / 8, i % 8, i % 8 == 7);
        let (network, length) = if wide { (0, 16) } else { (third, 24) };
        let (port, protocol) = (1000 + i, if i % 3 == 0 { "0x00/0x00" } else { "0x06/0xFF" });
        // In the wide one where no narrow one is.
        let source = 0x0a00_0000 | second << 16 | if wide { 200 } else { third } << 8 | 7;
        let (asked, expected) = if i % 4 == 2 { (1, -1) } else { (port + 50, i64::from(i)) };
        // Writing to a string does not fail.
        let _ = writeln!(
            rules,
            "@10.{second}.{network}.0/{length} 0.0.0.0/0 0 : 65535 {port} : {} {protocol}",
            port + 50
        );
        let _ = writeln!(trace, "{source}\t3232235777\t5\t{asked}\t6\t{expected}");
    }
    (rules, trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_protocol() {
        let (sum, headers) = checksum("1 2 3 4 5 0\n# no header\n1 2 3 4 5 1\n1 2 3 4 5 2\n").unwrap();
        assert_eq!((sum.as_str(), headers), ("fd1f0f4381eb0395", 3));
        for wrong in ["1 2 3 4 5", "1 2 3 4 5 x", "1 2 3 4 5 -2"] {
            assert!(checksum(wrong).is_err(), "{wrong}");
        }
    }
}
