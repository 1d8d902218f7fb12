//! `peers classify --only ovs`: our switch and Open vSwitch with its DPDK datapath on HALO's traffic cases, runs alternating.
//!
//! Both get the same frames, have the same rules, and send to a device that takes everything; but their devices are DPDK's `net_null` with its buffers, and ours are
//! our own ports in memory with our frames, without DPDK: so theirs pay for DPDK's device layer, and ours do not. Both are timed by what their thread had of the
//! processor, theirs less what its own statistics call idle. What is compared and what each side is spared is in bench/README.md.

use super::report::{self, Case, Report};
use super::runner::Runner;
use super::{build, cpu, pages};
use crate::record::Record;
use crate::{env, setup};
use anyhow::{Result, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As it comes; with its signature cache; with its vectors.
pub(crate) const PEERS: [&str; 3] = ["ovs", "ovs-smc", "ovs-avx512"];

/// The traffic cases of `tidemill bench classify`: name, flows, rules. Either side says what it has sent, which has to be this.
const CASES: [(&str, u32, u32); 5] = [
    ("few", 10_000, 1),
    ("many-1", 100_000, 1),
    ("many-10", 1_000_000, 10),
    ("rules-100k", 100_000, 20),
    ("rules-1M", 1_000_000, 20),
];
/// 2 MB pages: for its buffers.
const PAGES: u64 = 1024;
/// Its program, in Debian's package.
const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// How a comparison is made.
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    /// Of a run, after as long a one that does not count.
    pub(crate) seconds: f64,
    pub(crate) check: bool,
    pub(crate) json: bool,
    pub(crate) record: bool,
    pub(crate) quick: bool,
}

/// Those that were asked for and that this CPU has; by default none: they need a package that the tests do without.
pub(crate) fn asked(only: Option<&str>) -> Vec<&'static str> {
    let has = |peer: &&str| super::lpm::has_avx512() || !peer.contains("avx512");
    // "ovs" is all of them, "avx512" those of rte_acl.
    let asked = |peer: &&str| only.is_some_and(|only| only.starts_with("ovs") && peer.contains(only));
    PEERS.into_iter().filter(asked).filter(has).collect()
}

/// Installs what is missing, aloud.
fn provide() -> Result<()> {
    if !Path::new(PROGRAM).exists() {
        eprintln!(
            "peers: Open vSwitch is not there; its package is installed now (its service is not needed)"
        );
        setup::install_one("openvswitch-switch-dpdk", "the peer Open vSwitch")?;
    }
    ensure!(
        Path::new(PROGRAM).exists(),
        "{PROGRAM} is not there: apt-get install openvswitch-switch-dpdk, as root"
    );
    Ok(())
}

fn expected() -> BTreeMap<&'static str, String> {
    CASES.into_iter().map(|(name, flows, rules)| (name, format!("{flows}/{rules}"))).collect()
}

fn ours(seconds: f64, cpu: Option<usize>) -> Result<Runner> {
    let mut command = Command::new(env::tidemill()?);
    command.args(["bench", "classify", "--runner", "--seconds", &seconds.to_string()]);
    let mut runner = Runner::start(&command, cpu)?;
    runner.adopt(json!({"seconds": seconds}), &expected());
    Ok(runner)
}

/// A runner's folder, gone after it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// It says itself which CPU forwards, and keeps another for all else.
fn theirs(name: &str, front: &Path, seconds: f64, cpu: Option<usize>) -> Result<(Folder, Runner)> {
    let cases = CASES.map(|(name, flows, rules)| format!("{name}:{flows}:{rules}")).join(",");
    let mut command = Command::new("bash");
    command.arg(env::root().join("bench/peers/ovs/ovs.sh"));
    command.args(["--structure", name, "--seconds", &seconds.to_string(), "--cases", &cases]);
    command.args(["--cpu", &cpu.unwrap_or(0).to_string()]).arg("--front").arg(front);
    let folder = Folder(env::scratch("peers")?.join(format!("ovs-{}", std::process::id())));
    command.arg("--folder").arg(&folder.0);
    let mut runner = Runner::start(&command, None)?;
    runner.adopt(json!({}), &expected());
    Ok((folder, runner))
}

/// Whether everything agreed.
pub(crate) fn run(peers: &[&'static str], extent: &Extent) -> Result<bool> {
    provide()?;
    let front: PathBuf = build::plugin("ovs-front", &build::sources("ovs", "c")?)?;
    let (_pages, cpu) = (pages::raise(PAGES), cpu());
    let record = extent.record.then(|| Record::start("peers-ovs", json!({}), extent.quick)).transpose()?;
    let mut report = Report { bench: "classify", metric: "mpps", json: extent.json, record };
    let mut ours = vec![ours(extent.seconds, cpu)?];
    for peer in peers {
        let (_folder, mut theirs) = match theirs(peer, &front, extent.seconds, cpu) {
            // Debian's is compiled without.
            Err(error) if format!("{error:#}").contains("this build has no vectors") => {
                eprintln!("skipped: peer:{peer} (this build of Open vSwitch has no vectors)");
                continue;
            }
            started => started?,
        };
        if extent.check {
            report::check(std::slice::from_mut(&mut theirs), &CASES.map(|(name, ..)| name), "entries")?;
            continue;
        }
        for (asked, ..) in CASES {
            let name = format!("traffic/{asked}");
            let case = Case { name: &name, asked, rounds: extent.rounds, warm: false };
            report.compare(&mut ours, &mut theirs, &case)?;
        }
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
    fn only_who_asks_for_open_vswitch_gets_it() {
        assert!(asked(None).is_empty() && asked(Some("avx512")).is_empty() && asked(Some("rte")).is_empty());
        assert!(asked(Some("ovs")).contains(&"ovs") && asked(Some("ovs")).contains(&"ovs-smc"));
        assert_eq!(asked(Some("ovs-smc")), ["ovs-smc"]);
    }
}
