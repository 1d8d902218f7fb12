//! `bench nf --wire`: NAT and the filter on AF_XDP, and the kernel that forwards by nftables' rules of the same meaning, between two virtual cables. The cables, and who has which
//! processor, are those of `bench port wire` (`bench/wire.rs`).
//!
//! As many flows as a flood has frames for, UDP, 60 bytes, to one server. `nat`: one direction, each flow with a mapping. `established`: connections that were let in and
//! answered before; rules that asked again would be counted, on both sides, and end the run. `new`: each packet comes from another source; if rules were asked about fewer than
//! came out the run ends. What nobody answers either side forgets as it does by default.
//!
//! ```text
//! learn:   left --each flow-->  in [tidemill run, or ip_forward with nft] out --> right     and the answers back, if they matter; not `new`
//! measure: left --each flow, over and over-->                                     right: counted
//! ```

use super::{Blocked, Case, NfBench, POOL, REST, blocked, rule_file, say};
use crate::bench::cable::{FIRST, FRAMES, Sources, flood, last, on, shortest};
use crate::bench::report::Report;
use crate::bench::wire::{Lab, MACS};
use crate::json::Params;
use crate::progress::Progress;
use crate::usage;
use anyhow::{Context as _, Result, bail};
use rustix::thread::sched_setaffinity;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;
use tidemill_control::Client;
use tidemill_control::schema::filter::{Counters, path};
use tidemill_control::schema::nat;

const PEER: &str = "peer:nftables";
/// Floods by which flows are to be learnt, at most.
const LESSONS: u32 = 20;
/// To whom all flows go.
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 80);
/// Seconds for which a silent flow is known.
const KNOWN_S: u32 = 3600;
/// Sources of `new`. Runs divide them: one comes again when many others have come.
const SOURCES: u32 = 1 << 24;

/// Who is inside: each number another one.
fn client(n: usize) -> (Ipv4Addr, u16) {
    (Ipv4Addr::from(0x0a00_0001 + n as u32), 12_345)
}

impl Blocked {
    /// As nftables has it.
    fn nft(&self) -> String {
        let Blocked { protocol, from, to, .. } = self;
        let what = match self.ports {
            None => format!("meta l4proto {protocol}"),
            Some((first, last)) if first == last => format!("{protocol} dport {first}"),
            Some((first, last)) => format!("{protocol} dport {first}-{last}"),
        };
        format!("ip saddr {from} ip daddr {to} {what} drop")
    }
}

/// What the kernel is to do, for `nft -f`.
fn script(case: Case, rules: u32, seed: u64) -> String {
    if case == Case::Nat {
        return format!(
            "table ip nf {{\n chain c {{\n type nat hook postrouting priority srcnat; policy accept;\n oifname \"out\" snat to {POOL}\n }}\n}}\n"
        );
    }
    let mut text = String::from(
        "table ip nf {\n chain c {\n type filter hook forward priority filter; policy drop;\n ct state established,related accept\n",
    );
    for rule in blocked(rules, seed) {
        let _ = writeln!(text, " {}", rule.nft());
    }
    text + " counter accept\n }\n}\n"
}

/// A machine in the middle.
struct Subject {
    name: &'static str,
    case: Case,
    lab: Lab,
    /// Ours is asked by this; the kernel is not ours.
    client: Option<Client>,
    rates: Vec<f64>,
    /// Packets that came out while they were counted.
    forwarded: f64,
}

impl Subject {
    /// Our role.
    fn ours(case: Case, rules: u32, seed: u64) -> Result<Self> {
        let mut lab = Lab::new()?;
        let folder = tempfile::tempdir().context("a folder for the role")?;
        let name = if case == Case::Nat { "nat" } else { "filter" };
        let mut config = format!("version = 1\nrole = \"{name}\"\n[control]\nsocket = \"wire.sock\"\n");
        for (number, port, far, prefix) in
            [(1, "in", MACS[0], "10.0.0.0/8"), (2, "out", MACS[3], "192.0.2.0/24")]
        {
            let mac = far.map(|byte| format!("{byte:02x}")).join(":");
            let _ = write!(
                config,
                "[[port]]\nname = \"{port}\"\nkind = \"af_xdp\"\n\
                [[interface]]\nport = \"{port}\"\naddresses = [\"10.255.{number}.1/30\"]\n\
                [[route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nmac = \"{mac}\"\n"
            );
        }
        if case == Case::Nat {
            let _ = write!(
                config,
                "[nat]\ninside = [\"in\"]\noutside = [\"out\"]\npool = [\"{POOL}\"]\nudp_s = {KNOWN_S}\n"
            );
        } else {
            std::fs::write(folder.path().join("wire.rules"), rule_file(rules, seed, REST))?;
            let _ = write!(config, "[filter]\nrules = \"wire.rules\"\nudp_s = {KNOWN_S}\n");
        }
        let client = Some(lab.start(folder, &config)?);
        Ok(Subject { name, case, lab, client, rates: Vec::new(), forwarded: 0.0 })
    }

    /// The kernel.
    fn kernel(case: Case, rules: u32, seed: u64) -> Result<Self> {
        let lab = Lab::new()?;
        lab.forwarding()?;
        let middle = lab.of("in");
        middle.run("ip route add 10.0.0.0/8 via 10.255.1.2 dev in")?;
        middle.run("ip route add 192.0.2.0/24 via 10.255.2.2 dev out")?;
        let file = tempfile::NamedTempFile::new().context("a file for nft")?;
        std::fs::write(file.path(), script(case, rules, seed))?;
        middle.run(&format!("nft -f {}", file.path().display())).context("nft (package nftables)")?;
        // There once rules ask for connections.
        let known = ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"];
        for key in known.into_iter().filter(|_| case != Case::New) {
            middle.run(&format!("sysctl -q -w net.netfilter.{key}={KNOWN_S}"))?;
        }
        Ok(Subject { name: PEER, case, lab, client: None, rates: Vec::new(), forwarded: 0.0 })
    }

    /// Of `nat` the flows that it knows; else the packets that rules were asked about.
    fn count(&self) -> Result<u64> {
        let Some(client) = &self.client else {
            let middle = self.lab.of("in");
            let text = match self.case {
                Case::Nat => middle.run("cat /proc/sys/net/netfilter/nf_conntrack_count")?,
                _ => {
                    let chain = middle.run("nft list chain ip nf c")?;
                    let number =
                        chain.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
                    number.context("nft shows no counter")?.to_owned()
                }
            };
            return text.trim().parse().with_context(|| format!("no number: {text:?}"));
        };
        // A worker shows its numbers now and then.
        std::thread::sleep(Duration::from_millis(100));
        let (path, name) = match self.case {
            Case::Nat => (nat::path::COUNTERS, "mappings4"),
            _ => (path::COUNTERS, "by-rules"),
        };
        let counters: Counters = client.get(path, &())?;
        counters.counters.get(name).copied().with_context(|| format!("{name} is not counted"))
    }

    /// Has it know every flow, and its answers; of `new` none. A flood loses packets, so it is asked whether it does.
    fn learn(&self, frames: &[Vec<u8>], answers: &[Vec<u8>]) -> Result<()> {
        if self.case == Case::New {
            return Ok(());
        }
        let (left, right) = ((self.lab.of("left"), "left"), (self.lab.of("right"), "right"));
        let time = Duration::from_millis(100);
        for _ in 0..LESSONS {
            flood(left, right, frames, time)?;
            let knows = if self.case == Case::Nat {
                self.count()? >= frames.len() as u64
            } else {
                flood(right, left, answers, time)?;
                let before = self.count()?;
                flood(left, right, frames, time)?;
                self.count()? == before
            };
            if knows {
                return Ok(());
            }
        }
        bail!("{}: does not know all {} flows after {LESSONS} floods of them", self.name, frames.len())
    }

    /// A run, whose sources begin with that of the number.
    fn measure(&mut self, frames: &[Vec<u8>], sent: u32, time: Duration) -> Result<()> {
        let sources = Sources { first: Ipv4Addr::new(10, 0, 0, 0), count: SOURCES, sent };
        let rate = match self.case {
            Case::New => self.lab.forwarded(&frames[..1], Some(sources), time)?,
            _ => self.lab.forwarded(frames, None, time)?,
        };
        if rate == 0.0 {
            bail!("{}: nothing was forwarded", self.name);
        }
        self.rates.push(rate / 1e6);
        self.forwarded += rate * time.as_secs_f64();
        Ok(())
    }
}

/// All of them, in turn.
fn measure(subjects: &mut [Subject], args: &NfBench, progress: &Progress) -> Result<()> {
    let numbers = 0..FRAMES;
    let frames: Vec<Vec<u8>> =
        numbers.clone().map(|n| shortest([MACS[1], MACS[0]], client(n), SERVER)).collect();
    let answers: Vec<Vec<u8>> = numbers.map(|n| shortest([MACS[2], MACS[3]], SERVER, client(n))).collect();
    let mut before = Vec::new();
    for subject in subjects.iter() {
        subject.learn(&frames, &answers)?;
        before.push(subject.count()?);
    }
    let time = Duration::from_secs_f64(args.seconds);
    for run in 0..args.runs {
        let sent = (SOURCES as usize / args.runs * run) as u32;
        for turn in 0..subjects.len() {
            let at = (turn + run) % subjects.len();
            subjects[at].measure(&frames, sent, time)?;
            progress.add(1);
        }
    }
    for (subject, before) in subjects.iter().zip(before) {
        let (after, name) = (subject.count()?, subject.name);
        match subject.case {
            Case::Nat if after < FRAMES as u64 => {
                bail!("WRONG: {name}: {after} flows are mapped, of {FRAMES}");
            }
            Case::Established if after != before => {
                bail!(
                    "WRONG: {name}: rules were asked about {} packets of known connections",
                    after - before
                );
            }
            Case::New if ((after - before) as f64) < subject.forwarded => {
                bail!(
                    "WRONG: {name}: rules were asked about {} packets, of {:.0} forwarded",
                    after - before,
                    subject.forwarded
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// See the [module](self).
pub(super) fn run(args: &NfBench) -> Result<bool> {
    let cases = &args.cases;
    if cases.contains(&Case::EstablishedTcp) {
        return Err(usage("--wire: its floods are UDP: leave --case established-tcp out"));
    }
    if last() == FIRST {
        bail!("bench nf --wire needs two processors: one for the load, one for what is measured");
    }
    sched_setaffinity(None, &on(FIRST))?;
    let progress = Progress::new("bench nf --wire", (2 * cases.len() * (args.runs + 1)) as u64);
    let mut subjects = Vec::new();
    for case in cases {
        for make in [Subject::ours, Subject::kernel] {
            subjects.push(make(*case, args.rules, args.seed)?);
            progress.add(1);
        }
    }
    measure(&mut subjects, args, &progress)?;
    let mut report = Report::new(args.json);
    for pair in subjects.chunks(2) {
        let [ours, peer] = pair else { bail!("a case without its peer") };
        let case = match ours.case {
            Case::Nat => format!("wire/nat/{FRAMES}"),
            Case::Established | Case::EstablishedTcp => {
                format!("wire/established/{FRAMES}/{} rules", args.rules)
            }
            Case::New => format!("wire/new/{} rules", args.rules),
        };
        let flows = if ours.case == Case::New { SOURCES as usize } else { FRAMES };
        let mut params = Params::new();
        params.insert("flows".into(), flows.into());
        if ours.case != Case::Nat {
            params.insert("rules".into(), args.rules.into());
        }
        say(
            &mut report,
            args,
            &case,
            [(ours.name, ours.rates.as_slice()), (peer.name, peer.rates.as_slice())],
            &params,
        )?;
    }
    Ok(true)
}
