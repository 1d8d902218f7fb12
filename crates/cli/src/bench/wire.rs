//! `bench port wire`: a full table between two virtual cables, forwarded by our router on AF_XDP, by the program in front of it (`router.offload = "xdp"`), by the
//! kernel itself, and by a program that asks the kernel's table (`bpf_fib_lookup`).
//!
//! ```text
//!  first processor: the load                 the last processor: what is measured                   first processor: counted
//!  [flood, its end of the cable] left ------ in [tidemill run, or the kernel's ip_forward] out ------ right [dropped]
//! ```
//! All have the same routes, all by one neighbor, and the same packets: 60 bytes (62 of IPv6), UDP, to so many addresses within the table's prefixes as the
//! flood has frames for. IPv4 if the table has that, else IPv6, which the program that asks the kernel's table does not know: it is left out then. The machine
//! in the middle receives on threads of its own on its processor, for the router as for the kernel. How busy that processor was is told beside each rate: below 1, the load
//! or who counts was the bound. A router that polls has always something to do: of it the rates of what is faster on the same cables tell more.

use super::cable::{FIRST, FRAMES, Sources, busy, flood_by, flood_of, last, receive, ticks, urgent};
use super::port::family;
use super::report::Report;
use super::statistics::median;
use crate::json::{Measurement, Params, Ratio};
use crate::netns::Netns;
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidemill_bpf::{Attachment, Kernel, Mode, Object, Source, to_io};
use tidemill_control::Client;
use tidemill_feed::LoadedTable;
use tidemill_wire::checksum::checksum;

const OURS: &str = "af_xdp";
const BELOW: &str = "xdp-offload";
const PEER: &str = "peer:kernel-forward";
const ASKING: &str = "peer:bpf-fib-lookup";
/// In the order of a run's first turn; the last one is for IPv4 alone.
static SUBJECTS: [&str; 4] = [OURS, BELOW, PEER, ASKING];

/// A program that forwards by the kernel's table.
static FIB: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/fib.bpf.o"),
    program: "tidemill_fib",
    minimum: Kernel(5, 9),
    layout: 1,
    shared: &[],
};
/// MAC addresses of the four ends.
pub(super) const MACS: [[u8; 6]; 4] =
    [[2, 0, 0, 0, 7, 1], [2, 0, 0, 0, 7, 2], [2, 0, 0, 0, 7, 3], [2, 0, 0, 0, 7, 4]];
const ENDS: [&str; 4] = ["left", "in", "out", "right"];
/// Where a router's words are, in its folder.
const SAID: &str = "said";

/// The sources' address of IPv6.
const SOURCE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xff, 1, 0, 0, 0, 0, 2);

/// What is routed: a family's prefixes, the addresses of the machine in the middle, and its neighbor's.
struct Plan {
    six: bool,
    prefixes: Vec<String>,
    addresses: [&'static str; 2],
    neighbor: &'static str,
}

impl Plan {
    fn of(table: &LoadedTable) -> Self {
        match family(table) {
            4 => Plan {
                six: false,
                prefixes: table.v4.iter().map(|(prefix, _)| prefix.to_string()).collect(),
                addresses: ["10.255.1.1/30", "10.255.2.1/30"],
                neighbor: "10.255.2.2",
            },
            _ => Plan {
                six: true,
                prefixes: table.v6.iter().map(|(prefix, _)| prefix.to_string()).collect(),
                addresses: ["fd00:ff:1::1/64", "fd00:ff:2::1/64"],
                neighbor: "fd00:ff:2::2",
            },
        }
    }

    fn subjects(&self) -> &'static [&'static str] {
        if self.six { &SUBJECTS[..3] } else { &SUBJECTS }
    }

    fn frame(&self, destination: &IpAddr) -> Option<Vec<u8>> {
        match destination {
            IpAddr::V4(v4) if !self.six => Some(frame(*v4)),
            IpAddr::V6(v6) if self.six => Some(frame6(*v6)),
            _ => None,
        }
    }
}

/// A forwarder and its two cables.
pub(super) struct Lab {
    left: Netns,
    middle: Netns,
    right: Netns,
    /// The router, if it is not the kernel that forwards.
    router: Option<(Child, tempfile::TempDir)>,
    /// A program that forwards instead of the kernel.
    program: Option<(Attachment, Object)>,
}

impl Lab {
    pub(super) fn new() -> Result<Self> {
        let (left, middle, right) = (Netns::new("left")?, Netns::new("middle")?, Netns::new("right")?);
        let path = middle.path();
        left.run(&format!("ip link add name left type veth peer name in netns {path}"))?;
        right.run(&format!("ip link add name right type veth peer name out netns {path}"))?;
        let lab = Lab { left, middle, right, router: None, program: None };
        for (end, mac) in ENDS.iter().zip(MACS) {
            let net = lab.of(end);
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            net.run(&format!("ip link set dev {end} address {mac}"))?;
            net.run(&format!("ethtool -K {end} tx off gro on"))?;
        }
        // An end that is up takes a flood's frames if the other one had GRO on then.
        for end in ENDS {
            let net = lab.of(end);
            net.run(&format!("ip link set {end} up"))?;
            receive(net, end, Some(if matches!(end, "in" | "out") { last() } else { FIRST }))?;
        }
        Ok(lab)
    }

    /// The namespace of this end.
    pub(super) fn of(&self, end: &str) -> &Netns {
        match end {
            "left" => &self.left,
            "right" => &self.right,
            _ => &self.middle,
        }
    }

    /// The kernel forwards.
    fn kernel(plan: &Plan) -> Result<Self> {
        let lab = Lab::new()?;
        if plan.six {
            lab.forwarding6(plan)?;
        } else {
            lab.forwarding()?;
        }
        let mut file = tempfile::NamedTempFile::new().context("a file for ip")?;
        {
            let mut out = std::io::BufWriter::new(&mut file);
            for prefix in &plan.prefixes {
                writeln!(out, "route replace {prefix} via {} dev out", plan.neighbor)?;
            }
            out.flush()?;
        }
        let version = if plan.six { 6 } else { 4 };
        lab.middle.run(&format!("ip -{version} -force -batch {}", file.path().display()))?;
        Ok(lab)
    }

    /// Has the kernel forward, once it has routes by 10.255.1.2 (to `left`) and 10.255.2.2 (to `right`).
    pub(super) fn forwarding(&self) -> Result<()> {
        let net = &self.middle;
        for (number, end, far) in [(1, "in", MACS[0]), (2, "out", MACS[3])] {
            let mac = far.map(|byte| format!("{byte:02x}")).join(":");
            net.run(&format!("ip addr add 10.255.{number}.1/30 dev {end}"))?;
            net.run(&format!("ip neigh replace 10.255.{number}.2 lladdr {mac} dev {end} nud permanent"))?;
        }
        for line in
            ["ip_forward=1", "conf.all.rp_filter=0", "conf.in.rp_filter=0", "conf.default.rp_filter=0"]
        {
            net.run(&format!("sysctl -q -w net.ipv4.{line}"))?;
        }
        Ok(())
    }

    /// The same for routes of IPv6 to the plan's neighbor.
    fn forwarding6(&self, plan: &Plan) -> Result<()> {
        let net = &self.middle;
        // Nobody else has the address: it need not be asked for.
        for (end, address) in ["in", "out"].iter().zip(plan.addresses) {
            net.run(&format!("ip addr add {address} dev {end} nodad"))?;
        }
        let (mac, neighbor) = (MACS[3].map(|byte| format!("{byte:02x}")).join(":"), plan.neighbor);
        net.run(&format!("ip neigh replace {neighbor} lladdr {mac} dev out nud permanent"))?;
        net.run("sysctl -q -w net.ipv6.conf.all.forwarding=1")?;
        Ok(())
    }

    /// The kernel's table, and a program that asks it.
    fn asking(plan: &Plan) -> Result<Self> {
        let mut lab = Lab::kernel(plan)?;
        let program = lab.middle.enter(|| -> Result<(Attachment, Object)> {
            let mut object = Object::load(&FIB, &[], None)?;
            let [from, to] = ["in", "out"].map(tidemill_port::device);
            object.devices("devices")?.set(0, to?.index, None, 0).map_err(to_io)?;
            let at =
                Attachment::attach(&object, "in", from?.index, Mode::Native, Duration::from_secs(2), None)?;
            Ok((at, object))
        })??;
        lab.program = Some(program);
        Ok(lab)
    }

    /// Our router does, or the program in front of it.
    fn router(plan: &Plan, algorithm: &str, offload: &str) -> Result<Self> {
        let mut lab = Lab::new()?;
        let folder = tempfile::tempdir().context("a folder for the router")?;
        let mut out = std::io::BufWriter::new(File::create(folder.path().join("table.txt"))?);
        for prefix in &plan.prefixes {
            writeln!(out, "{prefix} 1")?;
        }
        out.flush()?;
        let key = if plan.six { "algorithm6" } else { "algorithm" };
        let mut config = format!(
            "version = 1\nrole = \"router\"\n[control]\nsocket = \"wire.sock\"\n[table]\npath = \"table.txt\"\n\
            [router]\n{key} = \"{algorithm}\"\noffload = \"{offload}\"\n[next_hops]\nports = [\"out\"]\n"
        );
        for (port, address) in ["in", "out"].iter().zip(plan.addresses) {
            config += &format!(
                "[[port]]\nname = \"{port}\"\nkind = \"af_xdp\"\n[[interface]]\nport = \"{port}\"\naddresses = [\"{address}\"]\n"
            );
        }
        let control = lab.start(folder, &config)?;
        let begun = || -> bool {
            let path = tidemill_control::schema::path::OFFLOAD;
            control
                .get::<tidemill_control::schema::Offload>(path, &())
                .is_ok_and(|below| below.generations > 0)
        };
        let started = Instant::now();
        while offload == "xdp" && !begun() {
            if started.elapsed() > Duration::from_secs(120) {
                bail!("nothing is forwarded below: {}", lab.said());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(lab)
    }

    /// Starts a router, or a role that is one, by this configuration in this folder, with `wire.sock` as its control socket; until it answers.
    pub(super) fn start(&mut self, folder: tempfile::TempDir, config: &str) -> Result<Client> {
        std::fs::write(folder.path().join("wire.toml"), config)?;
        let own = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new("taskset");
        command.args(["-c", &last().to_string()]).arg(own).args(["run", "wire.toml", "--json"]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.path().join(SAID))?);
        let child = self.middle.enter(|| command.spawn())?.context("taskset (package util-linux)")?;
        let control = Client::new(&folder.path().join("wire.sock"))?;
        self.router = Some((child, folder));
        let started = Instant::now();
        while control.get::<serde_json::Value>(tidemill_control::schema::path::FIB, &()).is_err() {
            let ended =
                self.router.as_mut().is_some_and(|(child, _)| matches!(child.try_wait(), Ok(Some(_))));
            if ended || started.elapsed() > Duration::from_secs(120) {
                bail!("the router does not run: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(control)
    }

    /// What it has said.
    fn said(&self) -> String {
        let text =
            |(_, folder): &(Child, tempfile::TempDir)| std::fs::read_to_string(folder.path().join(SAID));
        self.router.as_ref().and_then(|router| text(router).ok()).unwrap_or_default()
    }

    /// Packets forwarded a second: these frames, with other sources if there are some.
    pub(super) fn forwarded(
        &self,
        frames: &[Vec<u8>],
        sources: Option<Sources>,
        time: Duration,
    ) -> Result<f64> {
        urgent("right", true)?;
        let rate = flood_of((&self.left, "left"), (&self.right, "right"), frames, sources, time)?;
        urgent("right", false)?;
        Ok(rate)
    }

    /// The same, and the share of that time in which the last processor had something to do.
    fn forwarded_and_busy(&self, frames: &[Vec<u8>], time: Duration) -> Result<[f64; 2]> {
        // At the beginning of what is counted, and at its end.
        let seen = Mutex::new(Vec::new());
        let look = || -> Result<u64> {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(ticks()?);
            Ok(0)
        };
        urgent("right", true)?;
        let [rate, _] = flood_by((&self.left, "left"), (&self.right, "right"), frames, None, time, &look)?;
        urgent("right", false)?;
        match seen.into_inner().unwrap_or_else(PoisonError::into_inner)[..] {
            [before, after] => Ok([rate, busy(before, after)]),
            _ => bail!("the processor's time was not looked at"),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.router {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A UDP packet of 60 bytes to this address, to the machine in the middle.
fn frame(destination: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&MACS[1][..], &MACS[0], &[8, 0], &[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]].concat();
    frame.extend([10, 255, 1, 2]);
    frame.extend(destination.octets());
    let check = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    // Ports, length, no checksum.
    frame.extend([0x80, 0, 0, 9, 0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// The same of IPv6: 62 bytes, and a checksum, which it must have.
fn frame6(destination: Ipv6Addr) -> Vec<u8> {
    let (source, destination) = (SOURCE6.octets(), destination.octets());
    let mut udp: [u8; 8] = [0x80, 0, 0, 9, 0, 8, 0, 0];
    // In front of it, the pseudo header: length 8, protocol 17.
    let check = checksum(&[&source[..], &destination, &[0, 0, 0, 8, 0, 0, 0, 17], &udp].concat());
    let check = if check == 0 { 0xFFFF } else { check };
    udp[6..].copy_from_slice(&check.to_be_bytes());
    let head: [u8; 10] = [0x86, 0xDD, 0x60, 0, 0, 0, 0, 8, 17, 64];
    [&MACS[1][..], &MACS[0], &head, &source, &destination, &udp].concat()
}

/// What is measured, and how.
pub(super) struct Options<'a> {
    pub(super) algorithm: &'a str,
    pub(super) seconds: f64,
    pub(super) runs: usize,
    pub(super) json: bool,
}

/// All in turn, `runs` times.
pub(super) fn run(
    table: &LoadedTable,
    destinations: &[IpAddr],
    options: &Options<'_>,
    mut params: Params,
) -> Result<bool> {
    let plan = Plan::of(table);
    let subjects = plan.subjects();
    let frames: Vec<Vec<u8>> =
        destinations.iter().filter_map(|address| plan.frame(address)).take(FRAMES).collect();
    if last() == FIRST {
        bail!("bench port wire needs two processors: one for the load, one for what is measured");
    }
    let mut first = CpuSet::new();
    first.set(FIRST);
    sched_setaffinity(None, &first)?;
    let progress = Progress::new("bench port wire", (options.runs + subjects.len()) as u64);
    let mut labs = Vec::new();
    for &subject in subjects {
        progress.message(format!("the routes of {subject}"));
        labs.push(match subject {
            OURS => Lab::router(&plan, options.algorithm, "none")?,
            BELOW => Lab::router(&plan, options.algorithm, "xdp")?,
            ASKING => Lab::asking(&plan)?,
            _ => Lab::kernel(&plan)?,
        });
        progress.add(1);
    }
    progress.message("packets");
    let time = Duration::from_secs_f64(options.seconds);
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); subjects.len()];
    let mut shares = rates.clone();
    for run in 0..options.runs {
        for turn in 0..subjects.len() {
            let at = (turn + run) % subjects.len();
            let [rate, share] = labs[at].forwarded_and_busy(&frames, time)?;
            if rate == 0.0 {
                bail!("{}: nothing was forwarded", subjects[at]);
            }
            rates[at].push(rate / 1e6);
            shares[at].push(share);
        }
        progress.add(1);
    }
    params.insert("prefixes".into(), plan.prefixes.len().into());
    if plan.six {
        params.insert("family".into(), 6.into());
    }
    params.insert("destinations".into(), frames.len().into());
    let mut report = Report::new(options.json);
    for ((&subject, rates), shares) in subjects.iter().zip(&rates).zip(&shares) {
        for (metric, values) in [("mpps", rates), ("busy", shares)] {
            report.line(Measurement::of("port", subject, "wire", metric, values, params.clone()))?;
        }
        if !options.json {
            let (rate, busy) = (median(rates), 100.0 * median(shares));
            println!("wire, {subject}: {rate:.3} Mpps, its processor busy for {busy:.0} %");
        }
    }
    for (of, to) in [(0, 2), (1, 2), (1, 3)].into_iter().filter(|(_, to)| *to < subjects.len()) {
        report.ratio("port", "wire", (subjects[of], &rates[of]), (subjects[to], &rates[to]))?;
    }
    if !options.json {
        for Ratio { of, to, value, low, high, pairs, .. } in report.ratios() {
            println!("  {of} to {to}: {value:.3} ({low:.3} to {high:.3}, {pairs} pairs)");
        }
    }
    Ok(true)
}
