//! `peers flow`: our flow table, DPDK's and the best maps on the same keys, passes alternating, checksums compared.

mod keys;

use super::report::{self, Case, Report};
use super::runner::Runner;
use super::{HUGE_MALLOC, build, cpu, pages};
use crate::env;
use crate::record::Record;
use anyhow::{Context, Result, bail, ensure};
pub(crate) use keys::CASES;
use keys::{Numbers, fills};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Slots of the tables, as 2^N or in full
    #[arg(long, value_delimiter = ',', default_value = "2^20,2^24", value_parser = entries)]
    entries: Vec<usize>,
    /// Bytes of a key: 8, 16, 36, 40
    #[arg(long, value_delimiter = ',', default_value = "16", value_parser = key_bytes)]
    key_bytes: Vec<usize>,
    /// Share of the slots that is taken
    #[arg(long, value_delimiter = ',', default_value = "0.9", value_parser = load)]
    load: Vec<f64>,
    /// What is asked
    #[arg(long, value_delimiter = ',', default_values = CASES, value_parser = clap::builder::PossibleValuesParser::new(CASES))]
    case: Vec<String>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Fewer queries and rounds
    #[arg(long)]
    quick: bool,
    /// Compare checksums only, measure nothing
    #[arg(long)]
    check: bool,
    /// Seed of the keys and queries
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Our table, as in `tidemill bench flow --runner`
    #[arg(long, default_value = "flowtable")]
    structure: String,
    /// Leave our hash function out of the timed part, as with a NIC that hashes
    #[arg(long)]
    hash_given: bool,
    /// Only peers whose name contains this; variants (rte_hash-jhash) only so
    #[arg(long)]
    only: Option<String>,
    /// Without our side
    #[arg(long)]
    peers_only: bool,
    /// Keep what is measured in bench/results
    #[arg(long, conflicts_with_all = ["check", "only", "peers_only"])]
    record: bool,
}

fn entries(text: &str) -> Result<usize> {
    let entries = match text.strip_prefix("2^") {
        Some(power) => 1_usize.checked_shl(power.parse()?).unwrap_or(0),
        None => text.parse()?,
    };
    ensure!((256..=1 << 28).contains(&entries), "2^8 to 2^28");
    Ok(entries)
}

fn key_bytes(text: &str) -> Result<usize> {
    let bytes = text.parse()?;
    ensure!([8, 16, 36, 40].contains(&bytes), "8, 16, 36 or 40");
    Ok(bytes)
}

fn load(text: &str) -> Result<f64> {
    let load = text.parse()?;
    ensure!((0.01..=0.95).contains(&load), "0.01 to 0.95");
    Ok(load)
}

/// Measures for the records.
pub(crate) fn record(quick: bool) -> Result<bool> {
    let options = Options { quick, record: true, ..Options::new() };
    run(&options)
}

impl Options {
    /// As without arguments.
    fn new() -> Options {
        Options {
            entries: vec![1 << 20, 1 << 24],
            key_bytes: vec![16],
            load: vec![0.9],
            case: CASES.map(str::to_owned).to_vec(),
            json: false,
            quick: false,
            check: false,
            seed: 1,
            structure: "flowtable".to_owned(),
            hash_given: false,
            only: None,
            peers_only: false,
            record: false,
        }
    }
}

/// Where a runner is to be found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// bench/peers/flow/rte_hash.cc
    RteHash,
    /// bench/peers/flow/maps.cc
    Maps,
    /// `tidemill bench flow --runner`
    Tidemill,
}

struct Peer {
    name: &'static str,
    program: Program,
    /// Load up to which a table of the slots asked for does not grow. Asked for more, it gets this much: twice the slots, half
    /// empty, would be slower.
    most: f64,
    /// Measured if asked for by name.
    variant: bool,
}

const PEERS: &[Peer] = &[
    Peer { name: "rte_hash", program: Program::RteHash, most: 1.0, variant: false },
    Peer { name: "rte_hash-jhash", program: Program::RteHash, most: 1.0, variant: true },
    Peer { name: "hashbrown", program: Program::Tidemill, most: 0.87, variant: false },
    // Groups of 15 slots in 16 bytes: 7/8 of 15/16.
    Peer { name: "boost-flat", program: Program::Maps, most: 0.82, variant: false },
    Peer { name: "absl-flat", program: Program::Maps, most: 0.87, variant: false },
    Peer { name: "absl-flat-prefetch", program: Program::Maps, most: 0.87, variant: true },
];

/// What memory allows, measured beside `rte_hash`: a line a lookup, and two of which the first says where the other one is. They are told where
/// keys lie, so nothing is hashed or searched.
const BOUNDS: [&str; 2] = ["bound-2-lines", "bound-1-line"];

/// The cases for which they are measured: those that a ratio to `rte_hash` is wanted of.
const BOUNDED: [&str; 2] = ["hit", "find-or-insert"];

/// Maps have their tables from malloc: as [`HUGE_MALLOC`], and kept from one filling to the next.
const TUNABLES: &str =
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776";

/// Keys that runners hand over at once.
const BATCH: usize = 32;

/// Keys that no table holds, at most; as many as are present if those are fewer.
const ABSENT: usize = 1 << 22;

/// Compiled once per run, when first asked for.
#[derive(Default)]
struct Programs(BTreeMap<Program, PathBuf>);

impl Programs {
    fn path(&mut self, program: Program) -> Result<PathBuf> {
        if let Some(path) = self.0.get(&program) {
            return Ok(path.clone());
        }
        let source = |name: &str| env::root().join("bench/peers/flow").join(name);
        let path = match program {
            Program::RteHash => build::cpp("rte_hash", &source("rte_hash.cc"), build::DPDK)?,
            Program::Maps => build::cpp("maps", &source("maps.cc"), &["absl_flat_hash_map", "absl_hash"])?,
            Program::Tidemill => env::tidemill()?,
        };
        self.0.insert(program, path.clone());
        Ok(path)
    }
}

/// A file that has no name, and the path by which runners get at it for as long as it is open: whatever ends this process, nothing
/// is left behind.
fn nameless() -> Result<(File, PathBuf)> {
    // Several runs at once must not share files.
    let named = env::scratch("peers")?.join(format!("{}-flow.keys", std::process::id()));
    let at = || named.display().to_string();
    let file = File::create(&named).with_context(at)?;
    std::fs::remove_file(&named).with_context(at)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((file, path.into()))
}

/// One size of table, and the keys that both sides read.
struct Scenario {
    /// Open, since nothing else keeps the file.
    _held: File,
    file: PathBuf,
    slots: usize,
    key_bytes: usize,
    load: f64,
    numbers: Numbers,
    hash_given: bool,
}

impl Scenario {
    fn new(slots: usize, key_bytes: usize, load: f64, queries: usize, options: &Options) -> Result<Scenario> {
        let (held, file) = nameless()?;
        let present = (slots as f64 * load) as usize;
        let numbers = Numbers { keys: present + present.min(ABSENT), present, queries, seed: options.seed };
        keys::write(&file, numbers.keys, key_bytes, options.seed)?;
        Ok(Scenario { _held: held, file, slots, key_bytes, load, numbers, hash_given: options.hash_given })
    }

    /// As in the lines: `2^20/16B/load-0.9/hit`.
    fn name(&self, case: &str) -> String {
        let entries = match self.slots.is_power_of_two() {
            true => format!("2^{}", self.slots.ilog2()),
            false => self.slots.to_string(),
        };
        format!("{entries}/{}B/load-{}/{case}", self.key_bytes, self.load)
    }

    fn ours(&self, programs: &mut Programs, structure: &str, cpu: Option<usize>) -> Result<Runner> {
        let mut command = tidemill(programs, structure)?;
        if self.hash_given {
            command.args(["--hash", "given"]);
        }
        self.start(command, 1.0, cpu)
    }

    fn bound(&self, programs: &mut Programs, name: &str, cpu: Option<usize>) -> Result<Runner> {
        let mut command = tidemill(programs, name)?;
        command.args(["--hash", "given"]);
        self.start(command, 1.0, cpu)
    }

    fn peer(&self, programs: &mut Programs, peer: &Peer, cpu: Option<usize>) -> Result<Runner> {
        let mut command = match peer.program {
            Program::Tidemill => tidemill(programs, peer.name)?,
            program => {
                let mut command = Command::new(programs.path(program)?);
                command.args(["--structure", peer.name]);
                command
            }
        };
        let tunables = if peer.program == Program::RteHash { HUGE_MALLOC } else { TUNABLES };
        command.env("GLIBC_TUNABLES", tunables);
        self.start(command, peer.most, cpu)
    }

    /// Starts a runner whose table is to be filled up to this load at most.
    fn start(&self, mut command: Command, most: f64, cpu: Option<usize>) -> Result<Runner> {
        let present = (self.slots as f64 * self.load.min(most)) as usize;
        let numbers = Numbers { present, ..self.numbers };
        command.arg("--keys").arg(&self.file);
        for (name, value) in [
            ("--present", present),
            ("--slots", self.slots),
            ("--key-bytes", self.key_bytes),
            ("--queries", numbers.queries),
            ("--batch", BATCH),
        ] {
            command.args([name, &value.to_string()]);
        }
        command.args(["--seed", &numbers.seed.to_string()]);
        let mut runner = Runner::start(&command, cpu)?;
        if runner.rejected > 0 {
            bail!("{}: no room for {} of {present} keys", runner.subject, runner.rejected);
        }
        let params = json!({"entries": self.slots, "present": present, "key_bytes": self.key_bytes,
            "load": self.load.min(most), "queries": numbers.queries, "seed": numbers.seed, "batch": BATCH});
        runner.adopt(params, &keys::expected(&numbers));
        Ok(runner)
    }
}

fn tidemill(programs: &mut Programs, structure: &str) -> Result<Command> {
    let mut command = Command::new(programs.path(Program::Tidemill)?);
    command.args(["bench", "flow", "--runner", "--structure", structure]);
    // For the keys: tables see to theirs.
    command.env("GLIBC_TUNABLES", HUGE_MALLOC);
    Ok(command)
}

/// Whether everything agreed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let wanted = |peer: &&Peer| match &options.only {
        Some(only) => peer.name.contains(only.as_str()),
        None => !peer.variant,
    };
    let peers: Vec<&Peer> = PEERS.iter().filter(wanted).collect();
    ensure!(!peers.is_empty(), "--only: no such peer");
    let mut programs = Programs::default();
    if options.check {
        return check(&mut programs, &peers, options);
    }
    let details = json!({"entries": options.entries, "key_bytes": options.key_bytes});
    let record = options.record.then(|| Record::start("peers-flow", details, options.quick)).transpose()?;
    let mut report = Report { bench: "flow", metric: "mlps", json: options.json, record };
    let _pages = pages::raise(pages_for(options));
    let queries = if options.quick { 1 << 20 } else { 1 << 22 };
    for &slots in &options.entries {
        for &bytes in &options.key_bytes {
            for &load in &options.load {
                let scenario = Scenario::new(slots, bytes, load, queries, options)?;
                measure(&mut programs, &scenario, &peers, options, &mut report)?;
            }
        }
    }
    if let Some(record) = report.record {
        record.write()?;
    }
    Ok(true)
}

/// 2 MB pages for DPDK's table, ours and the two bounds at once: each entry is key and value in whole 16 bytes, and some more beside it.
fn pages_for(options: &Options) -> u64 {
    let largest = |sizes: &[usize]| sizes.iter().copied().max().unwrap_or(0);
    let entry = (largest(&options.key_bytes) + 8).next_multiple_of(16) + 16;
    (largest(&options.entries) * entry * 9 / 2 / (2 << 20) + 128) as u64
}

fn measure(
    programs: &mut Programs,
    scenario: &Scenario,
    peers: &[&Peer],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let cpu = cpu();
    let mut ours = Vec::new();
    if !options.peers_only {
        ours.push(scenario.ours(programs, &options.structure, cpu)?);
    }
    let own = ours.len();
    let chosen = |case: &&str| options.case.iter().any(|wanted| wanted == case);
    let build = scenario.name("build");
    for ours in &ours {
        report.built(ours, &build, "entries");
    }
    for peer in peers {
        if peer.program == Program::RteHash && own > 0 && BOUNDED.iter().any(chosen) {
            for name in BOUNDS {
                let bound = scenario.bound(programs, name, cpu)?;
                report.built(&bound, &build, "entries");
                ours.push(bound);
            }
        }
        let mut theirs = scenario.peer(programs, peer, cpu)?;
        report.built(&theirs, &build, "entries");
        for asked in CASES.into_iter().filter(chosen) {
            let rounds = match (fills(asked), options.quick) {
                (false, false) => 11,
                (true, false) | (false, true) => 5,
                (true, true) => 3,
            };
            // A filling has just emptied its table: that is warm enough, and each costs seconds.
            let case = Case { name: &scenario.name(asked), asked, rounds, warm: !fills(asked) };
            let beside = if BOUNDED.contains(&asked) { ours.len() } else { own };
            report.compare(&mut ours[..beside], &mut theirs, &case)?;
        }
        // The bounds have been seen, and their memory is others'.
        ours.truncate(own);
    }
    Ok(())
}

/// Every runner's checksums.
fn check(programs: &mut Programs, peers: &[&Peer], options: &Options) -> Result<bool> {
    let mut good = true;
    for &bytes in &options.key_bytes {
        let scenario = Scenario::new(1 << 12, bytes, 0.9, 1 << 14, options)?;
        let mut runners = Vec::new();
        if !options.peers_only {
            runners.push(scenario.ours(programs, &options.structure, None)?);
            for name in BOUNDS {
                runners.push(scenario.bound(programs, name, None)?);
            }
        }
        for peer in peers {
            runners.push(scenario.peer(programs, peer, None)?);
        }
        println!("{} bytes:", bytes);
        good &= report::check(&mut runners, &CASES, "entries").context("checksums")?;
    }
    Ok(good)
}

/// The test tier's check: every runner, every width of keys, on a small table.
pub(crate) fn self_check() -> Result<bool> {
    let options = Options { key_bytes: vec![8, 16, 36, 40], check: true, ..Options::new() };
    check(&mut Programs::default(), &PEERS.iter().collect::<Vec<_>>(), &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_records_measure_what_is_measured_without_arguments() {
        let (given, new) = (Line::parse_from(["x"]).options, Options::new());
        assert_eq!((given.entries, given.key_bytes, given.load), (new.entries, new.key_bytes, new.load));
        assert_eq!((given.case, given.structure, given.seed), (new.case, new.structure, new.seed));
    }

    #[test]
    fn sizes_are_read_and_bad_ones_refused() {
        assert_eq!((entries("2^20").ok(), entries("4096").ok()), (Some(1 << 20), Some(4096)));
        for bad in ["2^64", "2^70", "2^x", "0", "-1", "2^7"] {
            assert!(entries(bad).is_err(), "{bad}");
        }
        assert!(key_bytes("12").is_err() && load("0.99").is_err() && load("nan").is_err());
    }

    /// What one process writes another one reads, by a path that is no folder's.
    #[test]
    fn the_keys_leave_no_file_behind() {
        let (held, file) = nameless().unwrap();
        keys::write(&file, 100, 16, 1).unwrap();
        let read = Command::new("cat").arg(&file).output().unwrap();
        assert_eq!(read.stdout.len(), 1600);
        let named = env::scratch("peers").unwrap().join(format!("{}-flow.keys", std::process::id()));
        assert!(!named.exists());
        let was = std::fs::read_link(&file).unwrap();
        drop(held);
        // Another test may have its number by now.
        assert_ne!(std::fs::read_link(&file).ok(), Some(was));
    }
}
