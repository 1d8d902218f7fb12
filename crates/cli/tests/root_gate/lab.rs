//! A Gatekeeper between a client and a Grantor with a server behind it. All but the Gatekeeper and the Grantor's decisions is the Linux kernel.
//!
//! ```text
//!  [client: 10.7.0.2] ---- [wan: 10.7.0.1  tidemill  lan: 10.8.0.1] ---- [eth0: 10.8.0.2  Grantor  eth1: 10.9.0.1] ---- [server: 10.9.0.2]
//!   fd00:7::2               fd00:7::1                 fd00:8::1            fd00:8::2               fd00:9::1             fd00:9::2
//! ```
//!
//! The Grantor is a stand-in with fixed answers: it takes packets out of their outer ones, notes how they came, hands them to the server, and says of each
//! request what it was told to say. Answers of the server go back by the Grantor's kernel.

use crate::net::{Netns, cable, wait_until};
use crate::raw::Raw;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::Done;
use tidemill_control::schema::gate::{self, Counters};

pub(crate) const CLIENT: [&str; 2] = ["10.7.0.2", "fd00:7::2"];
pub(crate) const SERVER: [&str; 2] = ["10.9.0.2", "fd00:9::2"];
const GATE: [&str; 2] = ["10.8.0.1", "fd00:8::1"];
const GRANTOR: [&str; 2] = ["10.8.0.2", "fd00:8::2"];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];

/// Ports of decisions (the public Gatekeeper's).
const PORTS: [u16; 2] = [41120, 45232];

/// What a Grantor says of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Nothing,
    Declined { expire_s: u32 },
    Granted { rate_kib_s: u32, expire_s: u32, renew_ms: u32, step_ms: u32 },
}

impl Answer {
    /// As it is on the wire, written by hand from the facts of the format.
    pub(crate) fn bytes(self, inner: &[u8]) -> Vec<u8> {
        let v6 = inner[0] >> 4 == 6;
        let flow = if v6 { &inner[8..40] } else { &inner[12..20] };
        let mut bytes = vec![1, 0, 0, 0];
        let (kind, numbers) = match self {
            Answer::Nothing => return Vec::new(),
            Answer::Declined { expire_s } => (0, vec![expire_s]),
            Answer::Granted { rate_kib_s, expire_s, renew_ms, step_ms } => {
                (2, vec![rate_kib_s, expire_s, renew_ms, step_ms])
            }
        };
        bytes.extend([kind + u8::from(v6), 0, 0, 0]);
        bytes.extend(flow);
        numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
        bytes
    }
}

/// How a packet came to the Grantor.
#[derive(Debug, Clone)]
pub(crate) struct Came {
    pub(crate) dscp: u8,
    /// The address that the outer packet is from.
    pub(crate) from: Vec<u8>,
    pub(crate) inner: Vec<u8>,
}

/// What the stand-in goes by, and what it has seen.
#[derive(Debug)]
pub(crate) struct Grantor {
    pub(crate) answer: Mutex<Answer>,
    pub(crate) came: Mutex<Vec<Came>>,
    done: AtomicBool,
}

/// The inner packet of an outer one, and the outer code point.
fn open(frame: &[u8]) -> Option<Came> {
    let (kind, outer) = (frame.get(12..14)?, frame.get(14..)?);
    let (dscp, from, inner) = match kind {
        [8, 0] if outer.get(9) == Some(&4) => (outer[1] >> 2, outer.get(12..16)?, outer.get(20..)?),
        [0x86, 0xdd] if outer.get(6) == Some(&41) => {
            ((outer[0] << 4 | outer[1] >> 4) >> 2, outer.get(8..24)?, outer.get(40..)?)
        }
        _ => return None,
    };
    // What pads the frame is no part of it.
    let len = match inner.first()? >> 4 {
        6 => 40 + usize::from(u16::from_be_bytes([*inner.get(4)?, *inner.get(5)?])),
        _ => usize::from(u16::from_be_bytes([*inner.get(2)?, *inner.get(3)?])),
    };
    Some(Came { dscp, from: from.to_vec(), inner: inner.get(..len)?.to_vec() })
}

impl Grantor {
    fn work(&self, from: &Raw, to: &Raw, sockets: &[UdpSocket; 2]) {
        while !self.done.load(Ordering::Relaxed) {
            let Some(frame) = from.receive(Duration::from_millis(20)) else { continue };
            let Some(came) = open(&frame.bytes) else { continue };
            let v6 = came.inner[0] >> 4 == 6;
            // Requests, and grants to be renewed.
            if came.dscp >= 2 {
                let decision = self.answer.lock().unwrap().bytes(&came.inner);
                if !decision.is_empty() {
                    sockets[usize::from(v6)].send(&decision).unwrap();
                }
            }
            let mut frame = SERVER_MAC.to_vec();
            frame.extend([2, 0, 0, 0, 9, 1]);
            frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
            frame.extend(&came.inner);
            // Whoever has an answer finds it noted.
            self.came.lock().unwrap().push(came);
            to.send(&frame);
        }
    }
}

fn mac_of(ns: &Netns, interface: &str) -> [u8; 6] {
    let said = ns.run(&format!("ip link show {interface}"));
    let mut words = said.split_whitespace().skip_while(|word| *word != "link/ether");
    let mac: Vec<u8> =
        words.nth(1).unwrap().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    mac.try_into().unwrap()
}

/// Starts it in a namespace, by what is in this folder.
fn spawn(middle: &Netns, folder: &Path) -> Child {
    let file = |name: &str| File::create(folder.join(name)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", "gate.toml", "--json"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log"));
    middle.enter(|| command.spawn()).unwrap()
}

/// A Gatekeeper at work, with all that is around it.
pub(crate) struct Lab {
    pub(crate) client: Netns,
    pub(crate) behind: Netns,
    pub(crate) grantor: Arc<Grantor>,
    /// The Grantor's ends of what decisions go through, IPv4 and IPv6.
    pub(crate) deciders: [UdpSocket; 2],
    pub(crate) server: Netns,
    _middle: Netns,
    thread: Option<JoinHandle<()>>,
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) control: Client,
}

impl Lab {
    /// Starts it all with these lines in `[gatekeeper]`.
    pub(crate) fn start(more: &str) -> Self {
        Lab::on("af_packet", more)
    }

    /// The same on ports of this kind.
    pub(crate) fn on(kind: &str, more: &str) -> Self {
        let [client, middle, behind, server] = ["client", "middle", "grantor", "server"].map(Netns::new);
        for ns in [&client, &middle, &behind, &server] {
            ns.sysctl(&["net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0"]);
            ns.run("ip link set lo up");
        }
        cable(&middle, "tm-wan", &client, "eth0", 1500);
        cable(&middle, "tm-lan", &behind, "eth0", 1500);
        cable(&behind, "eth1", &server, "eth0", 1500);
        for (ns, interface) in [(&client, "eth0"), (&behind, "eth0"), (&behind, "eth1"), (&server, "eth0")] {
            // Checksums that a card would fill in are wrong on the way.
            ns.run(&format!("ethtool -K {interface} tx off"));
        }
        let mac = SERVER_MAC.map(|byte| format!("{byte:02x}")).join(":");
        server.run(&format!("ip link set eth0 address {mac}"));
        behind.sysctl(&[
            "net.ipv4.ip_forward=1",
            "net.ipv6.conf.all.forwarding=1",
            // What comes in an outer packet is the stand-in's, not the kernel's.
            "net.ipv4.icmp_ratelimit=0",
        ]);
        for (ns, interface, net, last) in [
            (&client, "eth0", 7, 2),
            (&behind, "eth0", 8, 2),
            (&behind, "eth1", 9, 1),
            (&server, "eth0", 9, 2),
        ] {
            ns.add_address(&format!("10.{net}.0.{last}/24"), interface);
            ns.add_address(&format!("fd00:{net}::{last}/64"), interface);
        }
        for (ns, net) in [(&client, 7), (&behind, 8), (&server, 9)] {
            ns.run(&format!("ip route add default via 10.{net}.0.1"));
            ns.run(&format!("ip -6 route add default via fd00:{net}::1"));
        }

        let sockets = [0, 1].map(|v6| {
            let address = |text: &str, port| SocketAddr::new(text.parse().unwrap(), port);
            let socket = behind.udp(address(GRANTOR[v6], PORTS[0]));
            socket.connect(address(GATE[v6], PORTS[1])).unwrap();
            socket
        });
        let (from, to) = (Raw::open(&behind, "eth0"), Raw::open(&behind, "eth1"));
        let grantor = Arc::new(Grantor {
            answer: Mutex::new(Answer::Nothing),
            came: Mutex::default(),
            done: AtomicBool::new(false),
        });
        let deciders = [0, 1].map(|v6: usize| sockets[v6].try_clone().unwrap());
        let works = grantor.clone();
        let thread = std::thread::spawn(move || works.work(&from, &to, &sockets));

        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "version = 1\nrole = \"gatekeeper\"\n[control]\nsocket = \"gate.sock\"\n\
            [[port]]\nname = \"wan\"\nkind = \"{kind}\"\ninterface = \"tm-wan\"\n\
            [[port]]\nname = \"lan\"\nkind = \"{kind}\"\ninterface = \"tm-lan\"\n\
            [[interface]]\nport = \"wan\"\naddresses = [\"10.7.0.1/24\", \"fd00:7::1/64\"]\n\
            [[interface]]\nport = \"lan\"\naddresses = [\"10.8.0.1/24\", \"fd00:8::1/64\"]\n\
            [[route]]\nprefix = \"10.9.0.0/24\"\nvia = \"10.8.0.2\"\n\
            [[route]]\nprefix = \"fd00:9::/64\"\nvia = \"fd00:8::2\"\n\
            [gatekeeper]\nfront = [\"wan\"]\ndecisions = \"interoperable\"\n{more}\n\
            [[gatekeeper.policy]]\nprefix = \"10.9.0.0/24\"\naction = \"grantor\"\ngrantors = [\"10.8.0.2\"]\n\
            [[gatekeeper.policy]]\nprefix = \"fd00:9::/64\"\naction = \"grantor\"\ngrantors = [\"fd00:8::2\"]\n"
        );
        std::fs::write(folder.path().join("gate.toml"), config).unwrap();
        let child = spawn(&middle, folder.path());
        let control = Client::new(&folder.path().join("gate.sock")).unwrap();
        let (_middle, thread) = (middle, Some(thread));
        let mut lab =
            Lab { client, behind, server, grantor, deciders, _middle, thread, child, folder, control };
        lab.answers();
        lab
    }

    /// Waits until it answers.
    fn answers(&mut self) {
        wait_until("the gatekeeper answers", Duration::from_secs(60), || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the gatekeeper ended: {status}: {}", self.read("log"));
            }
            self.control.get::<Counters>(gate::path::COUNTERS, &()).is_ok()
        });
    }

    /// Kills it, as nothing in order does.
    #[cfg(feature = "xdp")]
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again.
    #[cfg(feature = "xdp")]
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self._middle, self.folder.path());
        self.answers();
    }

    /// Our interface in front, as the kernel shows it.
    #[cfg(feature = "xdp")]
    pub(crate) fn wan(&self) -> String {
        self._middle.run("ip link show tm-wan")
    }

    /// The MAC addresses of the client and of our port in front.
    pub(crate) fn macs(&self) -> [[u8; 6]; 2] {
        [mac_of(&self.client, "eth0"), mac_of(&self._middle, "tm-wan")]
    }

    /// Those of the Grantor and of our port at the back.
    #[cfg(feature = "xdp")]
    pub(crate) fn macs_behind(&self) -> [[u8; 6]; 2] {
        [mac_of(&self.behind, "eth0"), mac_of(&self._middle, "tm-lan")]
    }

    /// The configuration, as it is now.
    pub(crate) fn config(&self) -> String {
        self.read("gate.toml")
    }

    /// Writes another, for the next reload.
    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.folder.path().join("gate.toml"), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// All that the gate counts.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        self.control.get::<Counters>(gate::path::COUNTERS, &()).unwrap().counters
    }

    /// One of these, when it is at least so much: numbers are shown every 10 ms.
    pub(crate) fn reaches(&self, name: &str, least: u64) {
        wait_until(&format!("{name} is {least}"), Duration::from_secs(10), || self.counters()[name] >= least);
    }

    /// What the client's flow is, as `tidemill gate flow` shows it.
    pub(crate) fn flow(&self, v6: usize) -> gate::FlowAnswer {
        let query = gate::FlowQuery { source: CLIENT[v6].into(), destination: SERVER[v6].into() };
        self.control.get(gate::path::FLOW, &query).unwrap()
    }

    /// Decides about the client's IPv4 flow without `tidemill gate`.
    pub(crate) fn decide(&self, rate_kib_s: Option<u32>, expire_s: u32) -> Result<(), String> {
        let decide = gate::Decide {
            source: CLIENT[0].into(),
            destination: SERVER[0].into(),
            rate_kib_s,
            expire_s,
            ..gate::Decide::default()
        };
        let done: Result<Done, _> = self.control.post(gate::path::FLOW, &decide);
        done.map(drop).map_err(|error| error.to_string())
    }

    /// Runs `tidemill` against it: whether it succeeded, and what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(arguments).arg("--socket").arg(self.folder.path().join("gate.sock"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// The same, which has to succeed.
    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let (ok, text) = self.run(arguments);
        assert!(ok, "{arguments:?}: {text}");
        text
    }

    /// Whether the client's ping comes back.
    pub(crate) fn pings(&self, v6: usize) -> bool {
        self.client.attempt(&format!("ping -c 1 -W 1 {}", SERVER[v6])).0
    }

    /// Ends it; returns what it says then.
    pub(crate) fn end(mut self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "it does not end: {}", self.read("log"));
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}: {}", self.read("log"));
        let said = self.read("out");
        serde_json::from_str(said.lines().last().unwrap()).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.grantor.done.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
