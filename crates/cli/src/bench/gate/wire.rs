//! `bench gate --wire`: a Gatekeeper on AF_XDP in a flood of declined flows, with `offload = "xdp"` and without, between two virtual cables. The cables, and who has which processor, are
//! those of `bench port wire` (`bench/wire.rs`).
//!
//! ```text
//! before:  1,024 flows are declined by hand; a flood, until the offload has a rule for each
//! measure: left --UDP, 60 bytes, each flow over and over--> in [tidemill run] out                 counted: what it has dropped as declined, above and below
//! ```
//! What is dropped before it is seen, for there is no time for it, does not count. A packet that is taken for one of a flow that is not declined ends the run, and so does an offload that leaves more than
//! one in a hundred to user space.

use super::GateBench;
use crate::bench::cable::{FIRST, FRAMES, flood_by, last, on, shortest};
use crate::bench::report::Report;
use crate::bench::statistics::median;
use crate::bench::wire::{Lab, MACS};
use crate::json::{Measurement, Params, Ratio};
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use rustix::thread::sched_setaffinity;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::Done;
use tidemill_control::schema::gate::{Counters, Decide, path};

const CASE: &str = "wire/declined";
/// Name, and `gatekeeper.offload`.
const SUBJECTS: [(&str, &str); 2] = [("xdp-offload", "xdp"), ("af_xdp", "none")];
/// Whom all flows ask for.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Longer than any run.
const DECLINED_S: u32 = 1_000_000;
/// For what takes a moment.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who sends: each number another one.
fn source(n: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0001 + n as u32)
}

/// All that the gate counts.
fn counters(client: &Client) -> Result<BTreeMap<String, u64>> {
    let counters: Counters = client.get(path::COUNTERS, &())?;
    Ok(counters.counters)
}

/// So many of these together; what is not counted has not been.
fn sum(counters: &BTreeMap<String, u64>, names: &[&str]) -> u64 {
    names.iter().filter_map(|name| counters.get(*name)).sum()
}

/// A Gatekeeper between its cables.
struct Subject {
    name: &'static str,
    lab: Lab,
    client: Client,
    rates: Vec<f64>,
}

impl Subject {
    fn new((name, offload): (&'static str, &str)) -> Result<Self> {
        let mut lab = Lab::new()?;
        let folder = tempfile::tempdir().context("a folder for the Gatekeeper")?;
        let mac = MACS[3].map(|byte| format!("{byte:02x}")).join(":");
        let mut config =
            String::from("version = 1\nrole = \"gatekeeper\"\n[control]\nsocket = \"wire.sock\"\n");
        for (number, port) in [(1, "in"), (2, "out")] {
            config += &format!(
                "[[port]]\nname = \"{port}\"\nkind = \"af_xdp\"\n\
                [[interface]]\nport = \"{port}\"\naddresses = [\"10.255.{number}.1/30\"]\n"
            );
        }
        for prefix in ["10.255.2.2/32", "192.0.2.0/24"] {
            config += &format!("[[route]]\nprefix = \"{prefix}\"\nport = \"out\"\nmac = \"{mac}\"\n");
        }
        config += &format!(
            "[gatekeeper]\nfront = [\"in\"]\noffload = \"{offload}\"\n\
            [[gatekeeper.policy]]\nprefix = \"192.0.2.0/24\"\naction = \"grantor\"\ngrantors = [\"10.255.2.2\"]\n"
        );
        let client = lab.start(folder, &config)?;
        Ok(Subject { name, lab, client, rates: Vec::new() })
    }

    fn count(&self, name: &str) -> Result<u64> {
        Ok(sum(&counters(&self.client)?, &[name]))
    }

    /// Packets that were taken for those of flows that are not declined, that were dropped as declined, and that were dropped below.
    fn counted(&self) -> Result<[u64; 3]> {
        let counters = counters(&self.client)?;
        let passed = ["requests", "granted", "over-rate"];
        let of = |names: &[&str]| sum(&counters, names);
        Ok([of(&passed), of(&["declined"]), of(&["offload-dropped"])])
    }

    /// Dropped as declined, of a flood for so long, a second.
    fn dropped(&self, frames: &[Vec<u8>], time: Duration) -> Result<f64> {
        let client = &self.client;
        let count = || -> Result<u64> { Ok(sum(&counters(client)?, &["declined", "offload-dropped"])) };
        let (left, right) = ((self.lab.of("left"), "left"), (self.lab.of("right"), "right"));
        Ok(flood_by(left, right, frames, None, time, &count)?[1])
    }

    /// Has it decline each flow, and the offload know of each.
    fn decline(&self, frames: &[Vec<u8>], offload: bool) -> Result<()> {
        for n in 0..FRAMES {
            let (source, destination) = (source(n).to_string(), SERVER.to_string());
            let decide = Decide { source, destination, expire_s: DECLINED_S, ..Decide::default() };
            let _: Done = self.client.post(path::FLOW, &decide)?;
        }
        let started = Instant::now();
        while self.count("decisions-applied")? < FRAMES as u64 {
            if started.elapsed() > PATIENCE {
                bail!("{}: not all of {FRAMES} flows are declined", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let started = Instant::now();
        self.dropped(frames, Duration::from_millis(100))?;
        while offload && self.count("offload-rules")? < FRAMES as u64 {
            if started.elapsed() > PATIENCE {
                bail!("{}: rules for {} flows of {FRAMES}", self.name, self.count("offload-rules")?);
            }
            self.dropped(frames, Duration::from_millis(100))?;
        }
        // What was on its way then.
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    }

    /// Whether all that came since then was dropped, and where.
    fn check(&self, before: [u64; 3], offload: bool) -> Result<()> {
        let after = self.counted()?;
        let [passed, above, below]: [u64; 3] = std::array::from_fn(|at| after[at] - before[at]);
        let name = self.name;
        if passed > 0 {
            bail!("WRONG: {name}: {passed} packets of declined flows were not taken for such, {above} were");
        }
        if offload && below < 99 * above || !offload && below > 0 {
            bail!("WRONG: {name}: {below} packets were dropped below, {above} in user space");
        }
        Ok(())
    }
}

/// See the [module](self).
pub(super) fn run(args: &GateBench) -> Result<()> {
    if last() == FIRST {
        bail!("bench gate --wire needs two processors: one for the load, one for what is measured");
    }
    sched_setaffinity(None, &on(FIRST))?;
    let frames: Vec<Vec<u8>> =
        (0..FRAMES).map(|n| shortest([MACS[1], MACS[0]], (source(n), 12_345), (SERVER, 80))).collect();
    let progress = Progress::new("bench gate --wire", (SUBJECTS.len() * (args.runs + 1)) as u64);
    let mut subjects = Vec::new();
    let mut before = Vec::new();
    for subject in SUBJECTS {
        let made = Subject::new(subject)?;
        made.decline(&frames, subject.1 == "xdp")?;
        before.push(made.counted()?);
        subjects.push(made);
        progress.add(1);
    }
    let time = Duration::from_secs_f64(args.seconds);
    for run in 0..args.runs {
        for turn in 0..subjects.len() {
            let at = (turn + run) % subjects.len();
            let rate = subjects[at].dropped(&frames, time)?;
            if rate == 0.0 {
                bail!("{}: nothing was dropped", subjects[at].name);
            }
            subjects[at].rates.push(rate / 1e6);
            progress.add(1);
        }
    }
    // Numbers are shown now and then.
    std::thread::sleep(Duration::from_millis(500));
    let mut report = Report::new(args.json);
    for ((subject, before), (_, offload)) in subjects.iter().zip(before).zip(SUBJECTS) {
        subject.check(before, offload == "xdp")?;
        let mut params = Params::new();
        params.insert("flows".into(), FRAMES.into());
        params.insert("frame".into(), frames[0].len().into());
        params.insert("seconds".into(), args.seconds.into());
        if !args.json {
            println!("{CASE}, {}: {:.3} Mpps", subject.name, median(&subject.rates));
        }
        report.line(Measurement::of("gate", subject.name, CASE, "mpps", &subject.rates, params))?;
    }
    let (of, to) = (&subjects[0], &subjects[1]);
    report.ratio("gate", CASE, (of.name, &of.rates), (to.name, &to.rates))?;
    if !args.json {
        for Ratio { of, to, value, low, high, pairs, .. } in report.ratios() {
            println!("  {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
        }
    }
    Ok(())
}
