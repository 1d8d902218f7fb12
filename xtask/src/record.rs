//! `record`: measures what the README shows and keeps it in bench/results, one file per measurement.
//!
//! The first line of a file says where and when: commit, CPU, kernel, load, table. The others are what the measurement
//! printed, one JSON object per line.

use crate::{env, figures, peers, proc};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tables that are measured unless others are named, in the folder `rib` of the real data.
pub(crate) const TABLES: [&str; 2] =
    ["ris-as3333-20260511.v4.nh30000.zst", "ris-as3333-20260511.v6.nh148.zst"];

/// One with labels that `sail-l8` can store, which are 254 at most; in the same folder.
const FEW_LABELS: &str = "ris-as3333-20260511.v4.nh148.zst";
/// The record of what cannot store the labels of the first of [`TABLES`].
pub(crate) const FEW_LABELS_RECORD: &str = "yardsticks-v4-nh148";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// IPv4 routes [default: the full table of the data that TIDEMILL_DATA names]
    #[arg(long, value_name = "FILE")]
    table_v4: Option<PathBuf>,
    /// IPv6 routes [default: likewise]
    #[arg(long, value_name = "FILE")]
    table_v6: Option<PathBuf>,
    /// Only records whose name contains this, or one of these with commas: peers-lpm-v4, peers-lpm-v4-nh100, peers-lpm-v4-uni30000, peers-lpm-v6, bench-lpm-v4, bench-lpm-v6, yardsticks-v4,
    /// yardsticks-v4-nh148, yardsticks-v6, figures, bench-port, bench-port-wire, bench-churn, peers-port, peers-port-v6, peers-flow, bench-flow, fu-4.7, bench-hide-v4, bench-hide-v6, bench-hide, bench-amp, bench-amp-xdp, bench-gate, gate-ways, fu-4.6, bench-nf, bench-nf-wire, bench-kv, bench-redis, bench-classify,
    /// bench-classify-sets, peers-classify, peers-ovs
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer and shorter runs
    #[arg(long)]
    quick: bool,
}

/// A file of bench/results in the making.
pub(crate) struct Record {
    name: String,
    lines: Vec<Value>,
}

impl Record {
    /// Begins one about a table of routes.
    pub(crate) fn of_table(name: &str, table: &Path, key_bits: u8, quick: bool) -> Result<Record> {
        let table = table.file_name().unwrap_or_default().to_string_lossy();
        Record::start(name, json!({"table": table, "key_bits": key_bits}), quick)
    }

    /// Begins one, with details of what is measured; the machine's load is that of now. `quick`: fewer and shorter runs.
    pub(crate) fn start(name: &str, details: Value, quick: bool) -> Result<Record> {
        let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse::<f64>().ok());
        let mut header = json!({
            "v": 1, "record": name, "commit": git(&["rev-parse", "HEAD"])?, "dirty": dirty()?, "cpu": cpu(),
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "kernel": read("/proc/sys/kernel/osrelease").trim(), "date": date()?, "load": load, "threads": 1, "quick": quick,
        });
        if let (Some(header), Value::Object(details)) = (header.as_object_mut(), details) {
            header.extend(details);
        }
        Ok(Record { name: name.to_owned(), lines: vec![header] })
    }

    pub(crate) fn add(&mut self, line: Value) {
        self.lines.push(line);
    }

    /// Replaces the file. Nothing is written if nothing was measured.
    pub(crate) fn write(self) -> Result<()> {
        if self.lines.len() < 2 {
            bail!("{}: nothing was measured", self.name);
        }
        let path = path(&self.name);
        std::fs::create_dir_all(path.parent().unwrap_or(env::root()))?;
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        eprintln!("{}: {} lines", path.display(), self.lines.len());
        Ok(())
    }
}

/// The file of a record.
pub(crate) fn path(name: &str) -> PathBuf {
    env::root().join("bench").join("results").join(format!("{name}.jsonl"))
}

/// Whether everything was measured.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let found = Cell::new(false);
    let wanted = |name: &str| {
        let wanted = options.only.is_empty() || options.only.iter().any(|only| name.contains(only.as_str()));
        found.set(found.get() || wanted);
        wanted
    };
    let mut good = true;
    for (version, bits, given) in [(4, 32, &options.table_v4), (6, 128, &options.table_v6)] {
        let name = |what: &str| format!("{what}-v{version}");
        let few = version == 4 && wanted(FEW_LABELS_RECORD);
        let any =
            ["bench-lpm", "yardsticks", "peers-lpm", "bench-hide"].iter().any(|what| wanted(&name(what)));
        if !any && !few {
            continue;
        }
        let table = table(given.as_ref(), version)?;
        if wanted(&name("bench-lpm")) {
            let record = Record::of_table(&name("bench-lpm"), &table, bits, options.quick)?;
            let quick: &[&str] = if options.quick { &["--runs", "3", "--seconds", "0.05"] } else { &[] };
            bench(
                record,
                &["lpm", "--algorithm", "usual", "--bursts", "1,4,16,64,256", "--threads", "2"],
                Some(&table),
                quick,
            )?;
        }
        if wanted(&name("yardsticks")) {
            let record = Record::of_table(&name("yardsticks"), &table, bits, options.quick)?;
            let ours = if version == 4 {
                "popdir-d16x3,dxr-d16x4r,poptrie-d18,yardsticks"
            } else {
                "lulea,rangetrie-d16,poptrie-d18,yardsticks"
            };
            let quick: &[&str] =
                if options.quick { &["--runs", "3", "--seconds", "0.05"] } else { &["--runs", "5"] };
            bench(record, &["lpm", "--algorithm", ours], Some(&table), quick)?;
        }
        let file = few.then(|| Some(env::data()?.join("rib").join(FEW_LABELS))).flatten();
        if let Some(file) = file {
            let record = Record::of_table(FEW_LABELS_RECORD, &file, bits, options.quick)?;
            let quick: &[&str] =
                if options.quick { &["--runs", "3", "--seconds", "0.05"] } else { &["--runs", "5"] };
            bench(record, &["lpm", "--algorithm", "sail-l,sail-l8"], Some(&file), quick)?;
        }
        if wanted(&name("bench-hide")) {
            let record = Record::of_table(&name("bench-hide"), &table, bits, options.quick)?;
            let routes = table.display().to_string();
            let quick: &[&str] = if options.quick { &["--runs", "3"] } else { &[] };
            bench(record, &["hide", "--routes", &routes], None, quick)?;
        }
        if wanted(&name("peers-lpm")) {
            good &= peers::lpm::record(&table, options.quick)?;
        }
    }
    // `peers-lpm-v4` alone means these, too.
    for of in peers::lpm::OF_LABELS.iter().filter(|of| wanted(of.record)) {
        let data = env::data().context("TIDEMILL_DATA is not set: the tables with other labels are there")?;
        good &= peers::lpm::record_of_labels(of, &data.join("rib"), options.quick)?;
    }
    if wanted("figures") {
        figures::record(options.quick)?;
    }
    if wanted("bench-port") {
        let table = table(options.table_v4.as_ref(), 4)?;
        let record = Record::of_table("bench-port", &table, 32, options.quick)?;
        let quick: &[&str] =
            if options.quick { &["--runs", "3", "--seconds", "0.2"] } else { &["--runs", "11"] };
        bench(record, &["port", "null", "--size", "64", "--workers", "2"], Some(&table), quick)?;
    }
    if wanted("bench-churn") {
        let table = table(options.table_v4.as_ref(), 4)?;
        let record = Record::of_table("bench-churn", &table, 32, options.quick)?;
        let quick: &[&str] = if options.quick { &["--seconds", "0.2"] } else { &[] };
        bench(record, &["churn", "--pairs", "20"], Some(&table), quick)?;
    }
    // By root; `bench-port` alone means this, too.
    if wanted("bench-port-wire") {
        let table = table(options.table_v4.as_ref(), 4)?;
        let record = Record::of_table("bench-port-wire", &table, 32, options.quick)?;
        let quick: &[&str] = if options.quick {
            &["--runs", "3", "--seconds", "0.5"]
        } else {
            &["--runs", "11", "--seconds", "2"]
        };
        bench(record, &["port", "wire"], Some(&table), quick)?;
    }
    if wanted("bench-flow") {
        let record = Record::start("bench-flow", json!({}), options.quick)?;
        bench(record, &["flow"], None, if options.quick { &["--quick"] } else { &[] })?;
    }
    if wanted(figures::FLOW) {
        let record = Record::start(figures::FLOW, json!({}), options.quick)?;
        let quick: &[&str] = if options.quick { &["--quick"] } else { &[] };
        bench(record, &["flow", "--figure", figures::FLOW], None, quick)?;
    }
    if wanted("bench-hide") {
        let record = Record::start("bench-hide", json!({}), options.quick)?;
        bench(record, &["hide"], None, if options.quick { &["--runs", "3"] } else { &[] })?;
    }
    if wanted("bench-amp") {
        let record = Record::start("bench-amp", json!({}), options.quick)?;
        let quick: &[&str] = if options.quick { &["--runs", "2", "--seconds", "0.05"] } else { &[] };
        bench(record, &["amp"], None, quick)?;
    }
    // By root; `bench-amp` alone means both.
    if wanted("bench-amp-xdp") {
        let record = Record::start("bench-amp-xdp", json!({}), options.quick)?;
        lines_of(record, &mut xdp_rate(options.quick))?;
    }
    if wanted("bench-gate") {
        let record = Record::start("bench-gate", json!({}), options.quick)?;
        bench(record, &["gate"], None, if options.quick { &["--runs", "2"] } else { &[] })?;
    }
    if wanted("gate-ways") {
        let record = Record::start("gate-ways", json!({}), options.quick)?;
        let ways = ["gate", "--order", "one-pass,flow-first", "--driver", "group,coroutine,plain"];
        let quick: &[&str] =
            if options.quick { &["--runs", "2", "--entries", "2^20"] } else { &["--runs", "5"] };
        bench(record, &ways, None, quick)?;
    }
    if wanted(figures::GATE) {
        let record = Record::start(figures::GATE, json!({}), options.quick)?;
        let figure = ["gate", "--figure", figures::GATE, "--entries"];
        let quick: &[&str] = if options.quick {
            &["2^15,2^20", "--runs", "2", "--seconds", "0.1"]
        } else {
            &["2^15,2^20,2^25"]
        };
        bench(record, &figure, None, quick)?;
    }
    if wanted("bench-nf") {
        let record = Record::start("bench-nf", json!({}), options.quick)?;
        let cases = ["nf", "--case", "nat,established,established-tcp,new"];
        bench(record, &cases, None, if options.quick { &["--runs", "2"] } else { &[] })?;
    }
    // By root; `bench-nf` alone means both.
    if wanted("bench-nf-wire") {
        let record = Record::start("bench-nf-wire", json!({}), options.quick)?;
        let quick: &[&str] = if options.quick {
            &["--runs", "3", "--seconds", "0.3"]
        } else {
            &["--runs", "11", "--seconds", "1"]
        };
        bench(record, &["nf", "--wire"], None, quick)?;
    }
    if wanted("bench-kv") {
        let record = Record::start("bench-kv", json!({}), options.quick)?;
        let quick: &[&str] = if options.quick { &["--runs", "3", "--seconds", "0.5"] } else { &[] };
        bench(record, &["kv"], None, quick)?;
    }
    if wanted("bench-redis") {
        let record = Record::start("bench-redis", json!({}), options.quick)?;
        let quick: &[&str] =
            if options.quick { &["--runs", "3", "--seconds", "0.2", "--keys", "100000"] } else { &[] };
        bench(record, &["redis"], None, quick)?;
    }
    if wanted("peers-port") {
        good &= peers::port::record(&table(options.table_v4.as_ref(), 4)?, options.quick)?;
    }
    if wanted("peers-port-v6") {
        good &= peers::port::record(&table(options.table_v6.as_ref(), 6)?, options.quick)?;
    }
    if wanted("peers-flow") {
        good &= peers::flow::record(options.quick)?;
    }
    let quick: &[&str] = if options.quick { &["--quick", "--seconds", "0.2"] } else { &[] };
    if wanted("bench-classify") {
        let record = Record::start("bench-classify", json!({}), options.quick)?;
        bench(record, &["classify", "--case", "traffic,caches,flood,masks"], None, quick)?;
    }
    if wanted("bench-classify-sets") {
        let record = Record::start("bench-classify-sets", json!({}), options.quick)?;
        let data = env::data().context("TIDEMILL_DATA is not set: the rule sets are there")?.join("acl");
        let data = data.display().to_string();
        bench(record, &["classify", "--case", "sets,updates", "--data", &data], None, quick)?;
    }
    if wanted("peers-classify") {
        good &= peers::classify::record(true, options.quick)?;
    }
    if wanted("peers-ovs") {
        good &= peers::classify::record(false, options.quick)?;
    }
    if !found.get() {
        bail!("--only {}: no record has such a name; --help lists them", options.only.join(","));
    }
    Ok(good)
}

/// What `tidemill bench` prints, of a table of routes if there is one.
fn bench(record: Record, what: &[&str], table: Option<&Path>, quick: &[&str]) -> Result<()> {
    let mut command = Command::new(env::tidemill()?);
    command.arg("bench").args(what).args(quick).arg("--json");
    if let Some(table) = table {
        command.arg("--table").arg(table);
    }
    lines_of(record, &mut command)
}

/// The mitigator's program in the driver beside other ways of dropping: needs root.
pub(crate) fn xdp_rate(quick: bool) -> Command {
    let mut command = env::cargo();
    command.args([
        "run",
        "--release",
        "--quiet",
        "-p",
        "tidemill-amp",
        "--features",
        "xdp",
        "--example",
        "xdp_rate",
        "--",
    ]);
    if quick {
        command.args(["1024", "0.2", "3"]);
    }
    command.arg("--json");
    command
}

/// What a command prints, line by line.
fn lines_of(mut record: Record, command: &mut Command) -> Result<()> {
    let mut bad = None;
    let good = proc::lines(command, |line| match serde_json::from_str(line) {
        Ok(line) => record.add(line),
        Err(_) => bad = Some(line.to_owned()),
    })?;
    if let Some(line) = bad {
        bail!("not JSON: {line}");
    }
    if !good {
        bail!("failed: {}", proc::shown(command));
    }
    record.write()
}

fn table(given: Option<&PathBuf>, version: u8) -> Result<PathBuf> {
    if let Some(table) = given {
        return Ok(table.clone());
    }
    let data = env::data().with_context(|| format!("give --table-v{version}, or set TIDEMILL_DATA"))?;
    Ok(data.join("rib").join(TABLES[usize::from(version == 6)]))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn git(arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    Ok(proc::output(git.current_dir(env::root()).args(arguments))?.trim().to_owned())
}

/// Whether tracked files differ from the commit, other than those that a record changes.
fn dirty() -> Result<bool> {
    let but = ["--", ".", ":(exclude)bench/results", ":(exclude)README.md"];
    Ok(!git(&[&["status", "--porcelain", "--untracked-files=no"][..], &but].concat())?.is_empty())
}

/// Name, and what tells processors of one name apart.
fn cpu() -> String {
    let info = read("/proc/cpuinfo");
    let field = |name: &str| {
        let value = |line: &str| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        };
        info.lines().find_map(value).unwrap_or_else(|| "unknown".to_owned())
    };
    format!("{}, family {}, model {}", field("model name"), field("cpu family"), field("model"))
}

/// Now, in UTC, as in RFC 3339.
fn date() -> Result<String> {
    Ok(proc::output(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn names_that_no_record_has_are_refused() {
        let line = Line::try_parse_from(["record", "--only", "bench-nothing,peers-nobody"]).unwrap();
        assert_eq!(line.options.only, ["bench-nothing", "peers-nobody"]);
        let error = run(&line.options).unwrap_err().to_string();
        assert!(error.contains("bench-nothing,peers-nobody"), "{error}");
    }

    #[test]
    fn the_help_lists_the_records_of_other_labels() {
        let command = Line::command();
        let only = command.get_arguments().find(|argument| argument.get_id() == "only").unwrap();
        let help = only.get_help().unwrap().to_string();
        for of in peers::lpm::OF_LABELS {
            assert!(help.contains(&format!("{},", of.record)), "{help}");
        }
    }

    #[test]
    fn a_header_says_where_and_when() {
        let record = Record::of_table("x", Path::new("/a/table.zst"), 32, false).unwrap();
        let header = &record.lines[0];
        assert_eq!(header["commit"].as_str().unwrap().len(), 40);
        assert_eq!((header["table"].as_str(), header["record"].as_str()), (Some("table.zst"), Some("x")));
        assert_eq!(header["date"].as_str().unwrap().len(), 20);
        assert!(record.write().is_err(), "nothing was measured");
    }
}
