//! A client and a server with a Gatekeeper and a Grantor between them, both ours; kernels at the ends only.
//!
//! ```text
//!  [client: 10.7.0.2, .3] ---- [wan: 10.7.0.1  gatekeeper  lan: 10.8.0.1] ---- [up: 10.8.0.2  grantor  down: 10.9.0.1] ---- [server: 10.9.0.2]
//!   fd00:7::2, ::3              fd00:7::1                  fd00:8::1            fd00:8::2              fd00:9::1           fd00:9::2
//! ```
//!
//! A second client with a second Gatekeeper has 17 for 7 and 18 for 8, and the Grantor's port `up2`. A second Grantor, the twin, has 28 for 8 and 19 for 9, and the server
//! more addresses of 9, which it reaches by 19.0.2; what the server sends goes by the twin.

use crate::net::{Netns, cable, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::{Counters, gate, grantor};

pub(crate) const CLIENT: [&str; 2] = ["10.7.0.2", "fd00:7::2"];
pub(crate) const DENIED: [&str; 2] = ["10.7.0.3", "fd00:7::3"];
/// The same behind the second Gatekeeper.
pub(crate) const CLIENT2: [&str; 2] = ["10.17.0.2", "fd00:17::2"];
pub(crate) const DENIED2: [&str; 2] = ["10.17.0.3", "fd00:17::3"];
pub(crate) const SERVER: [&str; 2] = ["10.9.0.2", "fd00:9::2"];
/// The Grantor, and its twin.
pub(crate) const GRANTORS: [[&str; 2]; 2] = [["10.8.0.2", "fd00:8::2"], ["10.28.0.2", "fd00:28::2"]];

/// The server's other addresses, where the Grantor has a twin.
pub(crate) fn servers(v6: usize) -> Vec<String> {
    (10..34).map(|host| format!("{}{host}", ["10.9.0.", "fd00:9::"][v6])).collect()
}

/// A tidemill at work.
pub(crate) struct Tidemill {
    name: &'static str,
    child: Child,
    folder: PathBuf,
    control: Client,
    counters: &'static str,
}

impl Tidemill {
    fn start(
        folder: PathBuf,
        name: &'static str,
        config: &str,
        inside: &Netns,
        counters: &'static str,
    ) -> Self {
        std::fs::write(folder.join(format!("{name}.toml")), config).unwrap();
        Tidemill::launch(folder, name, inside, counters)
    }

    /// By the configuration that is there.
    fn launch(folder: PathBuf, name: &'static str, inside: &Netns, counters: &'static str) -> Self {
        let file = |kind: &str| File::create(folder.join(format!("{name}.{kind}"))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["run", &format!("{name}.toml"), "--json"]).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log"));
        let child = inside.enter(|| command.spawn()).unwrap();
        let control = Client::new(&folder.join(format!("{name}.sock"))).unwrap();
        let mut own = Tidemill { name, child, folder, control, counters };
        wait_until(&format!("the {name} answers"), Duration::from_secs(60), || {
            if let Some(status) = own.child.try_wait().unwrap() {
                panic!("the {name} ended: {status}: {}", own.read("log"));
            }
            own.control.get::<Counters>(counters, &()).is_ok()
        });
        own
    }

    pub(crate) fn read(&self, kind: &str) -> String {
        std::fs::read_to_string(self.folder.join(format!("{}.{kind}", self.name))).unwrap_or_default()
    }

    /// Waits for a line of its log, which may come a while after what it is about.
    pub(crate) fn says(&self, text: &str) {
        let (start, mut log) = (Instant::now(), self.read("log"));
        while !log.contains(text) {
            assert!(start.elapsed() < Duration::from_secs(10), "{text}: {log}");
            std::thread::sleep(Duration::from_millis(10));
            log = self.read("log");
        }
    }

    /// All that it counts.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        self.control.get::<Counters>(self.counters, &()).unwrap().counters
    }

    /// One of these, when it is at least so much: numbers are shown every 10 ms.
    pub(crate) fn reaches(&self, name: &str, least: u64) {
        let what = format!("{}'s {name} is {least}", self.name);
        wait_until(&what, Duration::from_secs(10), || self.counters()[name] >= least);
    }

    /// Runs `tidemill` against it: whether it succeeded, and what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(arguments).arg("--socket").arg(self.folder.join(format!("{}.sock", self.name)));
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

    /// Starts it again, after its end.
    pub(crate) fn start_again(&mut self, inside: &Netns) {
        let config = self.read("toml");
        *self = Tidemill::start(self.folder.clone(), self.name, &config, inside, self.counters);
    }

    /// Writes these keys into its configuration, the first of which signs, and has it read that.
    pub(crate) fn keys(&self, ids: &[u8]) {
        let keys: Vec<String> = ids.iter().map(|id| format!("\"{}\"", key(*id))).collect();
        let line = format!("keys = [{}]", keys.join(", "));
        let config = self.read("toml");
        let config: Vec<&str> =
            config.lines().map(|old| if old.starts_with("keys = ") { line.as_str() } else { old }).collect();
        std::fs::write(self.folder.join(format!("{}.toml", self.name)), config.join("\n")).unwrap();
        self.ask(&["reload"]);
    }

    pub(crate) fn hangup(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    /// Has it die at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, in the namespace where it was.
    pub(crate) fn again(&mut self, inside: &Netns) {
        *self = Tidemill::launch(self.folder.clone(), self.name, inside, self.counters);
    }

    /// Ends it; returns what it says then. It fails if the books do not balance.
    pub(crate) fn end(&mut self) -> Value {
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
        serde_json::from_str(self.read("out").lines().last().unwrap()).unwrap()
    }
}

impl Drop for Tidemill {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is between the client and the server.
pub(crate) struct Plan<'a> {
    /// The Grantor's workers.
    pub(crate) workers: usize,
    /// The lines of `[grantor.policy]`.
    pub(crate) policy: &'a str,
    /// The format of decisions.
    pub(crate) decisions: &'a str,
    /// Whether there is a second Gatekeeper, with a client of its own.
    pub(crate) second: bool,
    /// Whether the Grantor has a twin, with half of the flows.
    pub(crate) twin: bool,
    /// More of the Gatekeepers' configurations.
    pub(crate) gates: &'a str,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Plan {
            workers: 1,
            policy: "file = \"policy.lua\"",
            decisions: "authenticated",
            second: false,
            twin: false,
            gates: "",
        }
    }
}

/// A Gatekeeper with its client.
pub(crate) struct Side {
    pub(crate) gate: Tidemill,
    pub(crate) client: Netns,
    pub(crate) middle: Netns,
}

/// The Grantor's twin, and where it is.
pub(crate) struct Twin {
    pub(crate) grantor: Tidemill,
    _behind: Netns,
}

/// All at work, with what is around them. They end before their namespaces go.
pub(crate) struct Lab {
    pub(crate) first: Side,
    pub(crate) second: Option<Side>,
    pub(crate) grantor: Tidemill,
    pub(crate) twin: Option<Twin>,
    pub(crate) server: Netns,
    pub(crate) behind: Netns,
    folder: tempfile::TempDir,
}

/// A script that grants everybody but the denied so much.
pub(crate) fn script(rate: u32) -> String {
    format!(
        "signature(\"source\", \"destination\")\nfield(\"denied\", lpm(\"deny.txt\"), \"source\")\n\
         function decide(q)\n  if q.denied then return declined {{ expire = 600 }} end\n  \
         return granted {{ rate = {rate}, expire = 600 }}\nend\n"
    )
}

fn namespace(name: &str) -> Netns {
    let ns = Netns::new(name);
    ns.sysctl(&["net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0"]);
    ns
}

/// An end that is a kernel: its addresses, and its way to all others.
fn end(ns: &Netns, net: u8, hosts: &[u8]) {
    // Whole packets with whole checksums, as from a real wire.
    ns.run("ethtool -K eth0 tx off sg off tso off gso off gro off");
    for host in hosts {
        ns.add_address(&format!("10.{net}.0.{host}/24"), "eth0");
        ns.add_address(&format!("fd00:{net}::{host}/64"), "eth0");
    }
    // Who binds to no address has the first, not the denied one.
    ns.run(&format!("ip route add default via 10.{net}.0.1 src 10.{net}.0.2"));
    ns.run(&format!("ip -6 route add default via fd00:{net}::1 src fd00:{net}::2"));
}

fn port(name: &str, net: u8, last: u8) -> String {
    format!(
        "[[port]]\nname = \"{name}\"\nkind = \"af_packet\"\ninterface = \"tm-{name}\"\n\
         [[interface]]\nport = \"{name}\"\naddresses = [\"10.{net}.0.{last}/24\", \"fd00:{net}::{last}/64\"]\n"
    )
}

/// To a net by a host of another.
fn route(net: u8, via: u8, host: u8) -> String {
    format!(
        "[[route]]\nprefix = \"10.{net}.0.0/24\"\nvia = \"10.{via}.0.{host}\"\n\
         [[route]]\nprefix = \"fd00:{net}::/64\"\nvia = \"fd00:{via}::{host}\"\n"
    )
}

fn head(role: &str, name: &str, workers: usize) -> String {
    format!(
        "version = 1\nrole = \"{role}\"\n[run]\npin = false\nworkers = {workers}\n[control]\nsocket = \"{name}.sock\"\n"
    )
}

/// A key as it is written, by its number.
fn key(id: u8) -> String {
    format!("{id} {}", format!("{id:02x}").repeat(32))
}

/// Lines that both roles have.
fn trust(plan: &Plan<'_>) -> String {
    let keys = match plan.decisions {
        "authenticated" => format!("keys = [\"{}\"]\n", key(7)),
        _ => String::new(),
    };
    format!("decisions = \"{}\"\n{keys}", plan.decisions)
}

/// A Grantor's configuration: its way to the Gatekeepers, and more ports and routes.
fn grantor_config(plan: &Plan<'_>, name: &str, ways: &[String]) -> String {
    [
        head("grantor", name, plan.workers),
        ways.concat(),
        format!(
            "[grantor]\ngatekeepers = [\"10.8.0.1/32\", \"fd00:8::1/128\", \"10.18.0.1/32\", \"fd00:18::1/128\", \"10.28.0.1/32\", \"fd00:28::1/128\"]\n{}",
            trust(plan)
        ),
        format!("[grantor.policy]\n{}\n", plan.policy),
    ]
    .concat()
}

impl Twin {
    /// Between the first Gatekeeper and the server, whose way back is by it from now on.
    fn start(plan: &Plan<'_>, folder: PathBuf, middle: &Netns, server: &Netns) -> Twin {
        let behind = namespace("behind2");
        cable(middle, "tm-lan2", &behind, "tm-up", 1500);
        cable(&behind, "tm-down", server, "eth1", 1500);
        server.run("ethtool -K eth1 tx off sg off tso off gso off gro off");
        // What comes by the first Grantor is answered by the other.
        let loose = ["all", "eth0", "eth1"].map(|name| format!("net.ipv4.conf.{name}.rp_filter=0"));
        server.sysctl(&loose.each_ref().map(String::as_str));
        server.add_address("10.19.0.2/24", "eth1");
        server.add_address("fd00:19::2/64", "eth1");
        for (v6, bits) in [(0, 24), (1, 64)] {
            for address in servers(v6) {
                server.add_address(&format!("{address}/{bits}"), "eth0");
            }
        }
        server.run("ip route replace default via 10.19.0.1 src 10.9.0.2");
        server.run("ip -6 route del default");
        server.run("ip -6 route add default via fd00:19::1 src fd00:9::2");
        // The Gatekeeper sends from its address in 8 to either of them.
        let ways =
            [port("up", 28, 2), port("down", 19, 1), route(7, 28, 1), route(8, 28, 1), route(9, 19, 2)];
        let config = grantor_config(plan, "grantor2", &ways);
        let grantor = Tidemill::start(folder, "grantor2", &config, &behind, grantor::path::COUNTERS);
        Twin { grantor, _behind: behind }
    }
}

impl Side {
    fn start(plan: &Plan<'_>, folder: PathBuf, second: bool, client: Netns, middle: Netns) -> Side {
        let (front, back, name) = if second { (17, 18, "gatekeeper2") } else { (7, 8, "gatekeeper") };
        let policy = |prefix: &str, mine: &str, twin: &str| {
            let more = if plan.twin { format!(", \"{twin}\"") } else { String::new() };
            format!(
                "[[gatekeeper.policy]]\nprefix = \"{prefix}\"\naction = \"grantor\"\ngrantors = [\"{mine}\"{more}]\n"
            )
        };
        let [twin4, twin6] = GRANTORS[1];
        let config = [
            head("gatekeeper", name, 1),
            port("wan", front, 1),
            port("lan", back, 1),
            if plan.twin { port("lan2", 28, 1) } else { String::new() },
            route(9, back, 2),
            format!("[gatekeeper]\nfront = [\"wan\"]\n{}", trust(plan)),
            policy("10.9.0.0/24", &format!("10.{back}.0.2"), twin4),
            policy("fd00:9::/64", &format!("fd00:{back}::2"), twin6),
            plan.gates.into(),
        ]
        .concat();
        let gate = Tidemill::start(folder, name, &config, &middle, gate::path::COUNTERS);
        if plan.decisions == "authenticated" {
            // Both speak: the second of the start is over, and neighbors are known.
            wait_until("probes are answered", Duration::from_secs(30), || {
                gate.counters()["probes-answered"] >= 4
            });
        }
        Side { gate, client, middle }
    }

    /// What the Gatekeeper knows of a flow, and which Grantor decides about it.
    pub(crate) fn about(&self, source: &str, destination: &str) -> gate::FlowAnswer {
        let query = gate::FlowQuery { source: source.into(), destination: destination.into() };
        self.gate.control.get(gate::path::FLOW, &query).unwrap()
    }

    /// What it knows of a client's flow to the server.
    pub(crate) fn known(&self, source: &str, v6: usize) -> Option<gate::Flow> {
        self.about(source, SERVER[v6]).flows.into_iter().next()
    }

    /// Its state and rate.
    pub(crate) fn flow(&self, source: &str, v6: usize) -> Option<(String, Option<u32>)> {
        self.known(source, v6).map(|flow| (flow.state, flow.rate_kib_s))
    }

    /// Waits until a client's flow has this state, and this rate if it matters.
    pub(crate) fn becomes(&self, source: &str, v6: usize, state: &str, rate: Option<u32>) -> Duration {
        wait_until(&format!("{source} is {state} {rate:?}"), Duration::from_secs(20), || {
            self.flow(source, v6).is_some_and(|(is, at)| is == state && (rate.is_none() || at == rate))
        })
    }
}

impl Lab {
    /// Starts it all; the Grantor has so many workers.
    pub(crate) fn start(workers: usize) -> Self {
        Lab::planned(&Plan { workers, ..Plan::default() })
    }

    /// Starts it all.
    pub(crate) fn planned(plan: &Plan<'_>) -> Self {
        let [behind, server] = ["behind", "server"].map(namespace);
        let sides: Vec<(bool, Netns, Netns)> = [false, true]
            .into_iter()
            .take(1 + usize::from(plan.second))
            .map(|second| {
                let [client, middle] = ["client", "middle"].map(namespace);
                cable(&middle, "tm-wan", &client, "eth0", 1500);
                cable(&middle, "tm-lan", &behind, if second { "tm-up2" } else { "tm-up" }, 1500);
                end(&client, if second { 17 } else { 7 }, &[2, 3]);
                (second, client, middle)
            })
            .collect();
        cable(&behind, "tm-down", &server, "eth0", 1500);
        end(&server, 9, &[2]);
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("deny.txt", "10.7.0.3/32\nfd00:7::3/128\n10.17.0.3/32\nfd00:17::3/128\n");
        write("policy.lua", &script(50_000));
        let more =
            if plan.second { [port("up2", 18, 2), route(17, 18, 1)] } else { [String::new(), String::new()] };
        let ways = [port("up", 8, 2), port("down", 9, 1), route(7, 8, 1), more.concat()];
        let config = grantor_config(plan, "grantor", &ways);
        let at = || folder.path().to_path_buf();
        let grantor = Tidemill::start(at(), "grantor", &config, &behind, grantor::path::COUNTERS);
        let middle = sides.first().map(|(_, _, middle)| middle).filter(|_| plan.twin);
        let twin = middle.map(|middle| Twin::start(plan, at(), middle, &server));
        let mut sides =
            sides.into_iter().map(|(second, client, middle)| Side::start(plan, at(), second, client, middle));
        let (first, second) = (sides.next().unwrap(), sides.next());
        drop(sides);
        Lab { first, second, grantor, twin, server, behind, folder }
    }

    /// Writes the policy.
    pub(crate) fn policy(&self, text: &str) {
        self.file("policy.lua", text);
    }

    /// Writes a file beside it.
    pub(crate) fn file(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }
}
