//! A mitigator between a capture, which is the world outside, and a host with the kernel's own IP stack, the victim.
//!
//! ```text
//!   attack.pcap --> [outside  tidemill  inside: tm-in] ----veth---- [eth0: 10.9.0.2, fd00:9::2  victim]
//!   outside.pcap <--                                                  answers with ICMP port unreachable
//! ```
//!
//! Or between two cables ([`Lab::on_cables`]), where whoever tests sends frames by hand on both sides.

use crate::net::{Netns, cable, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::amp::{self, Counters};
use tidemill_port::capture::{Sense, Writer};
use tidemill_port::{Fields, Payload, Template};

/// The victim's station address.
const VICTIM_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];
pub(crate) const VICTIM4: &str = "10.9.0.2";
pub(crate) const VICTIM6: &str = "fd00:9::2";

/// How many ICMP errors the victim's kernel sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Icmp {
    /// What Linux sends as delivered: 1,000 a second in all (paper, 5.4.4: one victim).
    OneHost,
    /// As many as there is cause for: the victim stands for many (paper, 5.4.2.2).
    ManyHosts,
}

/// What the bench is made for.
pub(crate) struct Plan {
    pub(crate) icmp: Icmp,
    /// Keys of the outside port behind `input`, as `repeat = 0`.
    pub(crate) outside: &'static str,
    /// The section `[mitigator]`.
    pub(crate) mitigator: String,
    /// Further sections.
    pub(crate) more: &'static str,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            icmp: Icmp::OneHost,
            outside: "pace = \"time\"\nrepeat = 0",
            mitigator: String::new(),
            more: "",
        }
    }
}

/// A mitigator at work, and its victim.
pub(crate) struct Lab {
    pub(crate) victim: Netns,
    middle: Netns,
    child: Child,
    folder: tempfile::TempDir,
    client: Client,
    pub(crate) started: Instant,
}

impl Lab {
    /// Starts it on what `write` puts into the capture.
    pub(crate) fn start(plan: &Plan, write: impl FnOnce(&mut Attack)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut attack = Attack::create(&folder.path().join("attack.pcap"));
        write(&mut attack);
        attack.writer.finish().unwrap();

        let (middle, victim) = (Netns::new("middle"), Netns::new("victim"));
        Self::equip(&middle, &victim, plan.icmp);
        let outside = format!(
            "kind = \"pcap\"\ninput = \"attack.pcap\"\noutput = \"outside.pcap\"\npreload = true\n{}",
            plan.outside
        );
        Lab::launch(middle, victim, folder, &outside, plan)
    }

    /// Starts it between the victim and a cable to `world`, where nobody is at home: frames from outside are sent by hand on its `eth0`, frames
    /// of other hosts inside on the victim's.
    pub(crate) fn on_cables(world: &Netns, plan: &Plan) -> Self {
        let (middle, victim) = (Netns::new("middle"), Netns::new("victim"));
        world.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]);
        Self::equip(&middle, &victim, plan.icmp);
        cable(&middle, "tm-out", world, "eth0", 1500);
        world.run("ethtool -K eth0 tx off");
        let port = "kind = \"af_packet\"\ninterface = \"tm-out\"";
        Lab::launch(middle, victim, tempfile::tempdir().unwrap(), port, plan)
    }

    /// The victim, on its cable to the mitigator. That one's own kernel says nothing.
    fn equip(middle: &Netns, victim: &Netns, icmp: Icmp) {
        middle.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"]);
        victim.sysctl(&["net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0"]);
        cable(middle, "tm-in", victim, "eth0", 1500);
        victim.run("ethtool -K eth0 tx off");
        let mac = VICTIM_MAC.map(|byte| format!("{byte:02x}")).join(":");
        victim.run("ip link set eth0 down");
        victim.run(&format!("ip link set eth0 address {mac}"));
        victim.run("ip link set eth0 up");
        victim.add_address(&format!("{VICTIM4}/24"), "eth0");
        victim.add_address(&format!("{VICTIM6}/64"), "eth0");
        for gateway in ["10.9.0.1", "fd00:9::1"] {
            victim
                .run(&format!("ip neigh replace {gateway} lladdr 02:00:00:00:09:01 dev eth0 nud permanent"));
            victim.run(&format!("ip route add default via {gateway}"));
        }
        match icmp {
            // Not IPv4's other limit, one error a second to each address: an attack of one amplifier would meet nothing else. IPv6's, some more
            // to each, is as delivered; the limit in all is one for both.
            Icmp::OneHost => victim.sysctl(&[
                "net.ipv4.icmp_ratelimit=0",
                "net.ipv4.icmp_msgs_per_sec=1000",
                "net.ipv4.icmp_msgs_burst=50",
                "net.ipv6.icmp.ratelimit=1000",
            ]),
            Icmp::ManyHosts => victim.sysctl(&[
                "net.ipv4.icmp_ratelimit=0",
                "net.ipv4.icmp_msgs_per_sec=14880000",
                "net.ipv4.icmp_msgs_burst=25600",
                "net.ipv6.icmp.ratelimit=0",
            ]),
        }
    }

    /// Starts it between a host outside, `outside`, and the victim.
    pub(crate) fn between_hosts(outside: &Netns, plan: &Plan) -> Self {
        let (middle, victim) = (Netns::new("middle"), Netns::new("victim"));
        let quiet = ["net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0"];
        [&middle, &victim, outside].iter().for_each(|ns| ns.sysctl(&quiet));
        cable(&middle, "tm-in", &victim, "eth0", 1500);
        cable(&middle, "tm-out", outside, "eth0", 1500);
        for (ns, last) in [(&victim, 2), (outside, 1)] {
            // Checksums that a card would fill in are wrong on the way; a mitigator looks at them.
            ns.run("ethtool -K eth0 tx off");
            ns.add_address(&format!("10.9.0.{last}/24"), "eth0");
            ns.add_address(&format!("fd00:9::{last}/64"), "eth0");
        }
        let port = "kind = \"af_packet\"\ninterface = \"tm-out\"";
        Lab::launch(middle, victim, tempfile::tempdir().unwrap(), port, plan)
    }

    fn launch(middle: Netns, victim: Netns, folder: tempfile::TempDir, outside: &str, plan: &Plan) -> Self {
        let config = format!(
            "version = 1\nrole = \"mitigator\"\n[control]\nsocket = \"box.sock\"\n{}\n[mitigator]\n{}\n\
            [[port]]\nname = \"outside\"\n{outside}\n\
            [[port]]\nname = \"inside\"\nkind = \"af_packet\"\ninterface = \"tm-in\"\n",
            plan.more, plan.mitigator
        );
        std::fs::write(folder.path().join("box.toml"), config).unwrap();
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["run", "box.toml", "--json"]).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log"));
        let child = middle.enter(|| command.spawn()).unwrap();
        let client = Client::new(&folder.path().join("box.sock")).unwrap();
        let mut lab = Lab { victim, middle, child, folder, client, started: Instant::now() };
        wait_until("the mitigator answers", Duration::from_secs(60), || {
            if let Some(status) = lab.child.try_wait().unwrap() {
                panic!("the mitigator ended: {status}: {}", lab.read("log"));
            }
            lab.client.get::<Counters>(amp::path::COUNTERS, &()).is_ok()
        });
        lab.started = Instant::now();
        lab
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// All that the mitigator counts.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        self.get::<Counters>(amp::path::COUNTERS, &()).counters
    }

    /// One of the mitigator's counters.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters()[name]
    }

    /// Asks for one of the control socket's pages.
    pub(crate) fn get<T: serde::de::DeserializeOwned>(&self, path: &str, query: &impl serde::Serialize) -> T {
        self.client.get(path, query).unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// Runs `tidemill` with these arguments against it.
    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let socket = self.folder.path().join("box.sock");
        let output = Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(arguments)
            .arg("--socket")
            .arg(socket)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// The same, which has to succeed.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let (ok, text) = self.run(arguments);
        assert!(ok, "{arguments:?}: {text}");
        text
    }

    /// The same, which has to fail.
    pub(crate) fn attempt(&self, arguments: &[&str]) -> String {
        let (ok, text) = self.run(arguments);
        assert!(!ok, "{arguments:?}: {text}");
        text
    }

    /// Port-unreachable errors that the victim has sent.
    pub(crate) fn icmp_sent(&self) -> u64 {
        let text = self.victim.run("nstat -asz IcmpOutDestUnreachs Icmp6OutDestUnreachs");
        text.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    }

    /// Datagrams that have come to the victim, for ports that nobody listens on.
    pub(crate) fn no_ports(&self) -> u64 {
        let text = self.victim.run("nstat -asz UdpNoPorts Udp6NoPorts");
        text.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    }

    /// Waits until it ends by itself, or ends it; returns what it says then.
    pub(crate) fn end(mut self, limit: Duration, stop: bool) -> Value {
        if stop {
            let pid = Pid::from_child(&self.child);
            kill_process(pid, Signal::TERM).unwrap();
        }
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                start.elapsed() < limit,
                "it does not end: {}\n{}",
                self.read("log"),
                self.middle.describe()
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}: {}", self.read("log"));
        let said = self.read("out");
        let line = said.lines().last().unwrap_or_else(|| panic!("it said nothing: {}", self.read("log")));
        serde_json::from_str(line).unwrap()
    }

    /// The configuration, changed.
    pub(crate) fn change(&self, from: &str, to: &str) {
        let text = self.read("box.toml");
        assert!(text.contains(from), "{from}: {text}");
        std::fs::write(self.folder.path().join("box.toml"), text.replace(from, to)).unwrap();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The capture of the world outside, as it is written.
pub(crate) struct Attack {
    writer: Writer,
    at_ns: u64,
}

impl Attack {
    pub(crate) fn create(path: &Path) -> Self {
        // Some day; only differences count.
        Attack { writer: Writer::create(path).unwrap(), at_ns: 1_700_000_000_000_000_000 }
    }

    /// Adds a frame, so long after the one before.
    pub(crate) fn frame(&mut self, frame: &[u8], gap: Duration) {
        self.at_ns += gap.as_nanos() as u64;
        self.writer.write(self.at_ns, Sense::Unknown, frame, frame.len() as u32).unwrap();
    }
}

/// Responses of amplifiers to one victim, `len` bytes long with the frame check sequence.
pub(crate) struct Responses {
    template: Template,
    victim: IpAddr,
    bytes: Vec<u8>,
}

impl Responses {
    pub(crate) fn to(victim: &str, len: usize) -> Self {
        let victim: IpAddr = victim.parse().unwrap();
        let template = Template::new(victim.is_ipv6(), len, Payload::Udp);
        Responses { bytes: vec![0; template.len()], template, victim }
    }

    /// One of them.
    pub(crate) fn from(&mut self, amplifier: IpAddr, src_port: u16, dst_port: u16) -> &[u8] {
        let fields =
            Fields { src: amplifier, dst: self.victim, src_port, dst_port, ident: dst_port.wrapping_mul(31) };
        self.template.emit(&mut self.bytes, &fields);
        self.bytes[..6].copy_from_slice(&VICTIM_MAC);
        &self.bytes
    }
}

/// The amplifier of this number.
pub(crate) fn amplifier(v6: bool, number: u32) -> IpAddr {
    if v6 {
        IpAddr::from(((0x2001_0db8_u128 << 96) + u128::from(number)).to_be_bytes())
    } else {
        // 198.18.0.0/15, for tests of devices.
        IpAddr::from((0xc612_0000u32 + number).to_be_bytes())
    }
}
