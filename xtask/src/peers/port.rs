//! `peers port`: forwarding on one core, between two devices that cost nothing: our router on DPDK's net_null, a forwarder written
//! for speed on DPDK, and testpmd. What is measured, and what each side does, is in bench/README.md.

use super::keys::{Pattern, SplitMix, Spread};
use super::lpm::small_table;
use super::reference::Reference;
use super::report::{self, Case, Report};
use super::runner::Runner;
use super::table::Table;
use super::{build, cpu, keys, pages};
use crate::env;
use crate::record::Record;
use anyhow::{Result, ensure};
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
    /// Fewer rounds, and without dpdk-fwd-lpm (whose table takes minutes to build)
    #[arg(long)]
    quick: bool,
    /// Compare what is sent only, measure nothing
    #[arg(long)]
    check: bool,
    /// Packets that the peers take at once, 256 at most: the fastest of these is compared
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [32, 64, 256])]
    burst: Vec<u32>,
    /// Our lookup structure
    #[arg(long, value_name = "NAME", default_value = "auto")]
    algorithm: String,
    /// Keep what is measured in bench/results
    #[arg(long, conflicts_with = "check")]
    record: bool,
}

/// Measures a table for the records.
pub(crate) fn record(table: &Path, quick: bool) -> Result<bool> {
    run(&Options {
        table: table.to_owned(),
        json: false,
        quick,
        check: false,
        burst: vec![32, 64, 256],
        algorithm: "auto".to_owned(),
        record: true,
    })
}

/// What the forwarder asks.
const FORWARDERS: &[&str] = &["dpdk-fwd-fib", "dpdk-fwd-lpm"];
/// 2 MB pages that the largest runner needs, with room: 2 GB.
const PAGES: u64 = 1024;
/// Packets of a pass.
const PACKETS: usize = 1 << 21;

/// The files that both sides read, and what must be sent.
struct Scenario {
    table: PathBuf,
    keys: PathBuf,
    /// 4 or 6.
    family: u8,
    expected: BTreeMap<&'static str, String>,
    params: Value,
}

impl Scenario {
    /// Destinations lie inside the table's prefixes, so that every packet has a next hop, whose label the sent packet tells: in
    /// order they are the answers to `rnd`.
    fn new(name: &str, table: &Table, count: usize) -> Result<Scenario> {
        let folder = env::scratch("peers")?;
        let file = |ending: &str| folder.join(format!("{}-port.{ending}", std::process::id()));
        // The shortest UDP frame of IPv6 is longer.
        let size = if table.family == 4 { 64 } else { 66 };
        let mut scenario = Scenario {
            table: file("table"),
            keys: file("keys"),
            family: table.family,
            expected: BTreeMap::new(),
            params: json!({"table": name, "prefixes": table.routes.len(), "packets": count, "size": size}),
        };
        table.write(&scenario.table)?;
        let keys = keys::generate(table, Spread::Prefix, count, 1);
        keys::write(&scenario.keys, table.family, &keys)?;
        let sent = Pattern::Rnd.expected(&Reference::new(table), &keys);
        scenario.expected.insert("check", sent);
        Ok(scenario)
    }

    fn start(&self, mut command: Command, cpu: Option<usize>) -> Result<Runner> {
        command.arg("--table").arg(&self.table).arg("--keys").arg(&self.keys);
        let mut runner = Runner::start(&command, cpu)?;
        runner.adopt(self.params.clone(), &self.expected);
        Ok(runner)
    }

    fn ours(&self, algorithm: &str, cpu: Option<usize>) -> Result<Runner> {
        let mut command = Command::new(env::tidemill_with("dpdk")?);
        command.args(["bench", "port", "dpdk", "--runner", "--algorithm", algorithm]);
        self.start(command, cpu)
    }

    fn theirs(&self, program: &Path, name: &str, cpu: Option<usize>) -> Result<Runner> {
        let mut command = Command::new(program);
        command.args(["--structure", name, "--family", &self.family.to_string()]);
        self.start(command, cpu)
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        for file in [&self.table, &self.keys] {
            std::fs::remove_file(file).ok();
        }
    }
}

/// The forwarder on DPDK, compiled.
fn forwarder() -> Result<PathBuf> {
    let mut sources = build::sources("port", "c")?;
    sources.extend(build::sources("dpdk", "c")?);
    build::c("port", &sources)
}

/// The test tier's check: the forwarder sends what it has to, by a small nested table, whichever structure it asks. That of `rte_lpm6` is
/// half a gigabyte, and is left to `peers port --check`.
pub(crate) fn self_check() -> Result<bool> {
    let (program, mut good) = (forwarder()?, true);
    for (family, names) in [(4_u8, FORWARDERS), (6, &FORWARDERS[..1])] {
        let table = small_table(family, 2_000, &mut SplitMix::new(u64::from(family)));
        let scenario = Scenario::new("small", &table, 1 << 14)?;
        for name in names {
            let mut theirs = [scenario.theirs(&program, name, cpu())?];
            // Else any checksum would do.
            ensure!(theirs[0].rejected == 0, "{name}: {} routes rejected", theirs[0].rejected);
            good &= report::check(&mut theirs, &["check", "route"], "routes")?;
        }
    }
    Ok(good)
}

/// testpmd forwards by itself and takes two CPUs, one of them for its prompt: it is not pinned to one.
fn testpmd(burst: u32) -> Result<Runner> {
    let script = env::root().join("bench/peers/port/testpmd.sh");
    let mut command = Command::new("bash");
    command.arg(script).args(["--burst", &burst.to_string()]);
    Runner::start(&command, None)
}

/// The burst of those that is fastest, by the `rate` of each.
fn fastest(bursts: &[u32], mut rate: impl FnMut(u32) -> Result<f64>) -> Result<u32> {
    let mut best: Option<(f64, u32)> = None;
    for &burst in bursts {
        let rate = rate(burst)?;
        if best.is_none_or(|(fastest, _)| rate > fastest) {
            best = Some((rate, burst));
        }
    }
    Ok(best.ok_or_else(|| anyhow::anyhow!("--burst: give at least one"))?.1)
}

/// The best rate of a few passes.
fn at_its_best(runner: &mut Runner, case: &'static str) -> Result<f64> {
    runner.pass_once(case)?;
    let mut best = 0.0_f64;
    for _ in 0..3 {
        best = best.max(runner.pass_once(case)?);
    }
    Ok(best)
}

/// Whether everything agreed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let table = Table::read(&options.table)?;
    let name = options.table.file_name().unwrap_or_default().to_string_lossy();
    let scenario = Scenario::new(&name, &table, if options.check { 1 << 14 } else { PACKETS })?;
    let records = if table.family == 4 { "peers-port" } else { "peers-port-v6" };
    let record =
        options.record.then(|| Record::of_table(records, &options.table, table.bits(), options.quick));
    let record = record.transpose()?;
    let _pages = pages::raise(PAGES);
    let cpu = cpu();
    let mut ours = vec![scenario.ours(&options.algorithm, cpu)?];
    let program = forwarder()?;
    let forwarders = if options.quick { &FORWARDERS[..1] } else { FORWARDERS };
    if options.check {
        for name in forwarders {
            ours.push(scenario.theirs(&program, name, cpu)?);
        }
        return report::check(&mut ours, &["check", "route"], "routes");
    }
    let mut report = Report { bench: "port", metric: "mpps", json: options.json, record };
    let rounds = if options.quick { 7 } else { 21 };
    ours[0].pass_once("check")?;
    for name in forwarders {
        // One process for all bursts: the table of `rte_lpm` takes minutes to build.
        let mut theirs = scenario.theirs(&program, name, cpu)?;
        let burst = fastest(&options.burst, |burst| {
            theirs.set_burst(burst)?;
            at_its_best(&mut theirs, "route")
        })?;
        theirs.set_burst(burst)?;
        theirs.pass_once("check")?;
        for way in ["route", "fill", "io"] {
            report.compare(&mut ours, &mut theirs, &Case { name: way, asked: way, rounds, warm: false })?;
        }
    }
    if env::has_program("dpdk-testpmd") {
        let burst = fastest(&options.burst, |burst| at_its_best(&mut testpmd(burst)?, "io"))?;
        let mut theirs = testpmd(burst)?;
        let case = Case { name: "io", asked: "io", rounds: rounds / 2 + 1, warm: false };
        report.compare(&mut ours, &mut theirs, &case)?;
    } else {
        eprintln!("skipped: peer:testpmd-io (Debian's dpdk-dev is not installed)");
    }
    if let Some(record) = report.record {
        record.write()?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_burst_is_found_whatever_their_order() {
        let rate = |burst: u32| Ok(if burst == 64 { 3.0 } else { 1.0 });
        for bursts in [[64, 32, 256], [32, 64, 256], [32, 256, 64]] {
            assert_eq!(fastest(&bursts, rate).unwrap(), 64);
        }
        assert!(fastest(&[], rate).is_err());
        assert!(fastest(&[32], |_| anyhow::bail!("no rate")).is_err());
    }
}
