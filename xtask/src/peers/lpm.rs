//! `peers lpm`: our structures, DPDK's and those of crates on the same table and keys, passes alternating, checksums compared.

use super::keys::{Pattern, SplitMix, Spread};
use super::reference::Reference;
use super::report::{self, Case, Report};
use super::runner::Runner;
use super::table::{Route, Table};
use super::{HUGE_MALLOC, build, cpu, keys, pages};
use crate::env;
use crate::record::Record;
use anyhow::Result;
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
    /// Our structures, named as for `tidemill bench lpm --algorithm`
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = AUTO)]
    ours: Vec<String>,
    /// Only peers whose name contains one of these
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// Peers that take minutes to build too (rte_lpm)
    #[arg(long)]
    slow: bool,
    /// Without our side
    #[arg(long)]
    peers_only: bool,
    /// Keep what is measured in bench/results: of IPv4 both structures that `tidemill tune` advises
    #[arg(long, conflicts_with_all = ["check", "only", "ours", "peers_only"])]
    record: bool,
}

impl Options {
    /// What is measured of a table without arguments, for the records.
    fn new(table: PathBuf, quick: bool) -> Self {
        Options {
            table,
            json: false,
            quick,
            check: false,
            keys: None,
            seed: 1,
            ours: names(AUTO),
            only: Vec::new(),
            slow: false,
            peers_only: false,
            record: false,
        }
    }
}

/// Ours in a comparison: what a program gets that asks for nothing, or the two of which `tidemill tune` advises one.
pub(crate) const AUTO: &str = "auto";
pub(crate) const POPDIR: &str = "popdir-d16x3,popdir-d19";

/// A table like the first of the records, with other labels: the peers that are fastest with these, and which of ours is compared. The records keep
/// what `held 4` holds to bounds.
pub(crate) struct OfLabels {
    /// The record's name.
    pub(crate) record: &'static str,
    /// In the folder `rib` of the real data.
    pub(crate) table: &'static str,
    pub(crate) ours: &'static str,
    /// What the peers' names begin with.
    pub(crate) peers: &'static str,
}

pub(crate) const NH100: OfLabels = OfLabels {
    record: "peers-lpm-v4-nh100",
    table: "ris-as3333-20260511.v4.nh100.zst",
    ours: AUTO,
    peers: "rte_fib-1b",
};
pub(crate) const UNI30000: OfLabels = OfLabels {
    record: "peers-lpm-v4-uni30000",
    table: "ris-as3333-20260511.v4.uni30000.zst",
    ours: POPDIR,
    peers: "rte_fib-2b",
};
pub(crate) const OF_LABELS: [OfLabels; 2] = [NH100, UNI30000];

fn names(with_commas: &str) -> Vec<String> {
    with_commas.split(',').map(str::to_owned).collect()
}

/// Our side; in the record of a table with all peers, of IPv4 both that `held 4` counts.
fn ours_of(options: &Options, family: u8) -> Vec<String> {
    match (options.peers_only, options.record) {
        (true, _) => Vec::new(),
        (false, true) => names(if family == 4 { POPDIR } else { AUTO }),
        (false, false) => options.ours.clone(),
    }
}

/// Measures a table for the records.
pub(crate) fn record(table: &Path, quick: bool) -> Result<bool> {
    run(&Options { record: true, ..Options::new(table.to_owned(), quick) })
}

/// Measures one of the tables with other labels, in `folder`, for its record.
pub(crate) fn record_of_labels(of: &OfLabels, folder: &Path, quick: bool) -> Result<bool> {
    let table = folder.join(of.table);
    let options = Options { ours: names(of.ours), only: names(of.peers), ..Options::new(table, quick) };
    measure(&options, Some(of.record))
}

/// Whose runner has a structure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    Dpdk,
    Crates,
}

/// A peer's structure: its name, the families, the greatest label that it can hold.
struct Peer {
    maker: Maker,
    name: &'static str,
    families: &'static [u8],
    greatest_label: u32,
}

const fn dpdk(name: &'static str, families: &'static [u8], greatest_label: u32) -> Peer {
    Peer { maker: Maker::Dpdk, name, families, greatest_label }
}

const fn of_crate(name: &'static str) -> Peer {
    Peer { maker: Maker::Crates, name, families: &[4, 6], greatest_label: u32::MAX }
}

const PEERS: &[Peer] = &[
    dpdk("rte_fib-1b-avx512", &[4], 127),
    dpdk("rte_fib-1b-scalar", &[4], 127),
    dpdk("rte_fib-1b-inline", &[4], 127),
    dpdk("rte_fib-1b-uni", &[4], 127),
    dpdk("rte_fib-2b-avx512", &[4], 32_767),
    dpdk("rte_fib-2b-scalar", &[4], 32_767),
    dpdk("rte_fib-2b-inline", &[4], 32_767),
    dpdk("rte_fib-2b-uni", &[4], 32_767),
    dpdk("rte_fib-4b-avx512", &[4], u32::MAX >> 1),
    dpdk("rte_fib-4b-scalar", &[4], u32::MAX >> 1),
    dpdk("rte_fib-4b-inline", &[4], u32::MAX >> 1),
    dpdk("rte_fib-4b-uni", &[4], u32::MAX >> 1),
    dpdk("rte_lpm", &[4], (1 << 24) - 1),
    dpdk("rte_fib6-2b-avx512", &[6], 32_767),
    dpdk("rte_fib6-2b-scalar", &[6], 32_767),
    dpdk("rte_fib6-4b-avx512", &[6], u32::MAX >> 1),
    dpdk("rte_fib6-4b-scalar", &[6], u32::MAX >> 1),
    dpdk("rte_lpm6", &[6], (1 << 21) - 1),
    of_crate("crate-prefix-trie"),
    of_crate("crate-treebitmap"),
    of_crate("crate-poptrie"),
    of_crate("crate-iptrie"),
];

/// The greatest label of next hops of 1 byte.
const NARROWEST: u32 = 127;

/// It takes minutes to build.
const SLOW: &str = "rte_lpm";

/// A peer that rejected more than one in so many routes is not compared: it does another, smaller job.
const MOST_REJECTED_SHARE: u64 = 100;

/// 2 MB pages that the largest runner needs, with room: 2 GB.
const PAGES: u64 = 1024;

/// Keys that runners hand over at once.
const BATCH: u32 = 256;

/// The runners of others, compiled when they are needed first.
#[derive(Default)]
struct Programs {
    dpdk: Option<PathBuf>,
    crates: Option<PathBuf>,
}

impl Programs {
    fn of(&mut self, maker: Maker) -> Result<&Path> {
        let known = match maker {
            Maker::Dpdk => &mut self.dpdk,
            Maker::Crates => &mut self.crates,
        };
        match known {
            Some(program) => Ok(program),
            None => Ok(known.insert(match maker {
                Maker::Dpdk => {
                    build::c("lpm", &[build::sources("lpm", "c")?, build::sources("dpdk", "c")?].concat())?
                }
                Maker::Crates => build::rust("lpm-crates-runner")?,
            })),
        }
    }
}

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
            params: json!({"table": name, "prefixes": table.routes.len(), "keys": count, "spread": spread.name(), "seed": seed, "batch": BATCH}),
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
}

impl Drop for Scenario {
    fn drop(&mut self) {
        for file in [&self.table, &self.keys] {
            std::fs::remove_file(file).ok();
        }
    }
}

fn start_peer(
    programs: &mut Programs,
    peer: &Peer,
    scenario: &Scenario,
    cpu: Option<usize>,
) -> Result<Runner> {
    let mut command = Command::new(programs.of(peer.maker)?);
    command.args(["--structure", peer.name]);
    if peer.maker == Maker::Crates {
        // Tables and keys; the others' runners see to theirs.
        command.env("GLIBC_TUNABLES", HUGE_MALLOC);
    }
    start(command, scenario, cpu)
}

/// One runner for each structure of ours.
fn start_ours(names: &[String], scenario: &Scenario, cpu: Option<usize>) -> Result<Vec<Runner>> {
    let start_one = |name: &String| {
        let mut command = Command::new(env::tidemill()?);
        command.args(["bench", "lpm", "--runner", "--algorithm", name]);
        start(command, scenario, cpu)
    };
    names.iter().map(start_one).collect()
}

/// With the files that every runner reads.
fn start(mut command: Command, scenario: &Scenario, cpu: Option<usize>) -> Result<Runner> {
    command.arg("--table").arg(&scenario.table).arg("--keys").arg(&scenario.keys);
    let mut runner = Runner::start(&command, cpu)?;
    runner.adopt(scenario.params.clone(), &scenario.expected);
    Ok(runner)
}

/// Whether this CPU has what DPDK's vector lookups want.
pub(super) fn has_avx512() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.contains(" avx512f") && info.contains(" avx512dq") && info.contains(" avx512bw")
}

/// The peers that fit, each that does not named with the reason.
fn peers_for(table: &Table, options: &Options) -> Vec<&'static Peer> {
    let mut fit = Vec::new();
    for peer in PEERS.iter().filter(|peer| peer.families.contains(&table.family)) {
        if !options.only.is_empty() && !options.only.iter().any(|only| peer.name.contains(only.as_str())) {
            continue;
        }
        let why = if table.greatest_label() > peer.greatest_label {
            format!("its labels end at {}, the table's at {}", peer.greatest_label, table.greatest_label())
        } else if peer.name == SLOW && !options.slow {
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
    measure(options, None)
}

/// The same, kept under another name than `--record` gives it, if there is one.
fn measure(options: &Options, name_of_record: Option<&str>) -> Result<bool> {
    let table = Table::read(&options.table)?;
    let spread = options.keys.unwrap_or(if table.family == 4 { Spread::Uniform } else { Spread::Prefix });
    let count = if options.quick || options.check { 1 << 20 } else { 1 << 22 };
    let name = options.table.file_name().unwrap_or_default().to_string_lossy();
    let scenario = Scenario::new(&name, &table, spread, count, options.seed)?;
    let mut programs = Programs::default();
    let peers = peers_for(&table, options);
    let ours = ours_of(options, table.family);
    if options.check {
        return check(&mut programs, &peers, &scenario, &ours);
    }
    let of_all_peers = options.record.then(|| format!("peers-lpm-v{}", table.family));
    let name = name_of_record.map(str::to_owned).or(of_all_peers);
    let record = name.map(|name| Record::of_table(&name, &options.table, table.bits(), options.quick));
    let record = record.transpose()?;
    let _pages = pages::raise(PAGES);
    let cpu = cpu();
    let mut ours = start_ours(&ours, &scenario, cpu)?;
    let mut report = Report { bench: "lpm", metric: "mlps", json: options.json, record };
    for ours in &ours {
        report.built(ours, "build", "routes");
    }
    let rounds = if options.quick { 7 } else { 21 };
    for peer in peers {
        let mut theirs = start_peer(&mut programs, peer, &scenario, cpu)?;
        report.built(&theirs, "build", "routes");
        if theirs.rejected * MOST_REJECTED_SHARE > theirs.held {
            eprintln!(
                "skipped: {} (it rejected {} of {} routes)",
                theirs.subject,
                theirs.rejected,
                table.routes.len()
            );
            continue;
        }
        for pattern in Pattern::ALL {
            let case = Case { name: pattern.name(), asked: pattern.name(), rounds, warm: true };
            report.compare(&mut ours, &mut theirs, &case)?;
        }
    }
    if let Some(record) = report.record {
        record.write()?;
    }
    Ok(true)
}

/// Every runner's checksums against the reference.
fn check(programs: &mut Programs, peers: &[&Peer], scenario: &Scenario, ours: &[String]) -> Result<bool> {
    let mut runners = start_ours(ours, scenario, None)?;
    for peer in peers {
        runners.push(start_peer(programs, peer, scenario, None)?);
    }
    report::check(&mut runners, &Pattern::ALL.map(Pattern::name), "routes")
}

/// The test tier's check: all structures of a family on a small nested table.
pub(crate) fn self_check(family: u8) -> Result<bool> {
    let mut random = SplitMix::new(u64::from(family));
    let there = |peer: &&Peer| has_avx512() || !peer.name.ends_with("avx512");
    let peers = PEERS.iter().filter(|peer| peer.families.contains(&family)).filter(there);
    let (narrow, wide): (Vec<&Peer>, Vec<&Peer>) = peers.partition(|peer| peer.greatest_label == NARROWEST);
    let mut programs = Programs::default();
    let ours = ["auto", "poptrie-d18"].map(str::to_owned);
    let mut check = |table: &Table, peers: &[&Peer], ours: &[String]| {
        let scenario = Scenario::new("small", table, Spread::Prefix, 1 << 14, 1)?;
        check(&mut programs, peers, &scenario, ours)
    };
    let good = check(&small_table(family, 5_000, &mut random), &wide, &ours)?;
    if narrow.is_empty() {
        return Ok(good);
    }
    // 1-byte forms have room for few labels, and for routes behind /24 in 127 places.
    let mut table = small_table(family, 60, &mut random);
    table.routes.iter_mut().for_each(|route| route.label = 1 + route.label % NARROWEST);
    Ok(check(&table, &narrow, &[])? && good)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_ipv4_has_what_is_held_to_bounds() {
        let new = || Options::new(PathBuf::from("x"), false);
        let recorded = Options { record: true, ..new() };
        assert_eq!(ours_of(&recorded, 4), ["popdir-d16x3", "popdir-d19"]);
        assert_eq!(ours_of(&recorded, 6), ["auto"]);
        let named = Options { ours: names("dxr-d16x4r"), ..new() };
        assert_eq!(ours_of(&named, 4), ["dxr-d16x4r"]);
        assert!(ours_of(&Options { peers_only: true, ..new() }, 4).is_empty());
    }

    #[test]
    fn tables_with_other_labels_have_peers() {
        for of in OF_LABELS {
            assert!(PEERS.iter().any(|peer| peer.name.starts_with(of.peers)), "{}", of.record);
        }
    }
}
