//! Two inside hosts, a NAT (or a packet filter), a router of the provider's, and somebody far away. All but that box is the Linux kernel; nobody outside has a route inside, but past
//! a filter.
//!
//! ```text
//!  [alice: 10.1.0.2] --- [lan: 10.1.0.1          ]
//!   fd01::2               fd01::1                 tidemill  wan: 192.0.2.1 ] --- [192.0.2.2  isp  198.51.100.1] --- [far: 198.51.100.2]
//!  [bob:   10.2.0.2] --- [dmz: 10.2.0.1          ]              2001:db8::1       2001:db8::2     2001:db8:1::1        2001:db8:1::2
//! ```

use crate::net::{Netns, cable, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::filter;
use tidemill_control::schema::nat::{Counters, path};

pub(crate) const ALICE: [&str; 2] = ["10.1.0.2", "fd01::2"];
pub(crate) const BOB: [&str; 2] = ["10.2.0.2", "fd02::2"];
pub(crate) const GATE: [&str; 2] = ["10.1.0.1", "fd01::1"];
pub(crate) const POOL: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// Towards the NAT, and towards who is far away.
pub(crate) const ISP: [&str; 4] = ["192.0.2.2", "2001:db8::2", "198.51.100.1", "2001:db8:1::1"];
pub(crate) const FAR: [&str; 2] = ["198.51.100.2", "2001:db8:1::2"];
/// In the box's folder.
const CONFIG: &str = "box.toml";
const SOCKET: &str = "box.sock";

/// A NAT or a filter at work, with all that is around it.
pub(crate) struct Lab {
    role: &'static str,
    pub(crate) alice: Netns,
    pub(crate) bob: Netns,
    pub(crate) isp: Netns,
    pub(crate) far: Netns,
    middle: Netns,
    child: Child,
    folder: tempfile::TempDir,
    control: Client,
}

impl Lab {
    /// Starts it all with so many workers and these lines in `[nat]`.
    pub(crate) fn start(workers: usize, more: &str) -> Self {
        Lab::of("nat", &[(CONFIG, config(workers, more).as_str())])
    }

    /// The same with a filter of these rules and these lines in `[filter]`. Everybody outside has a route inside.
    pub(crate) fn filter(workers: usize, rules: &str, more: &str) -> Self {
        let text = around("filter", workers) + "[filter]\nrules = \"filter.rules\"\n" + more;
        let lab = Lab::of("filter", &[(CONFIG, text.as_str()), ("filter.rules", rules)]);
        lab.isp.run(&format!("ip route add 10.2.0.0/16 via {}", POOL[0]));
        lab.isp.run(&format!("ip -6 route add fd02::/16 via {}", POOL[1]));
        lab
    }

    /// The same with both: a NAT with the lines `more` in `[nat]`, and a filter of these rules with the lines `filter` in `[filter]`.
    pub(crate) fn both(workers: usize, more: &str, rules: &str, filter: &str) -> Self {
        let text = both(workers, more, filter);
        Lab::of("nat", &[(CONFIG, text.as_str()), ("filter.rules", rules)])
    }

    /// Starts a box of this role with these files, and all that is around it.
    fn of(role: &'static str, files: &[(&str, &str)]) -> Self {
        let [alice, bob, middle, isp, far] = ["alice", "bob", "middle", "isp", "far"].map(Netns::new);
        for ns in [&alice, &bob, &middle, &isp, &far] {
            ns.sysctl(&["net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0"]);
        }
        cable(&middle, "tm-lan", &alice, "eth0", 1500);
        cable(&middle, "tm-dmz", &bob, "eth0", 1500);
        cable(&middle, "tm-wan", &isp, "eth0", 1500);
        cable(&isp, "eth1", &far, "eth0", 1500);
        for (ns, interface) in
            [(&alice, "eth0"), (&bob, "eth0"), (&isp, "eth0"), (&isp, "eth1"), (&far, "eth0")]
        {
            // Checksums that a card would fill in are wrong on the way.
            ns.run(&format!("ethtool -K {interface} tx off"));
        }
        isp.sysctl(&["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.icmp_ratelimit=0"]);
        for (ns, interface, v4, v6) in [
            (&alice, "eth0", ALICE[0], ALICE[1]),
            (&bob, "eth0", BOB[0], BOB[1]),
            (&isp, "eth0", ISP[0], ISP[1]),
            (&isp, "eth1", ISP[2], ISP[3]),
            (&far, "eth0", FAR[0], FAR[1]),
        ] {
            ns.add_address(&format!("{v4}/24"), interface);
            ns.add_address(&format!("{v6}/64"), interface);
        }
        for (ns, v4, v6) in
            [(&alice, GATE[0], GATE[1]), (&bob, "10.2.0.1", "fd02::1"), (&far, ISP[2], ISP[3])]
        {
            ns.run(&format!("ip route add default via {v4}"));
            ns.run(&format!("ip -6 route add default via {v6}"));
        }
        // Who tries to get in past the NAT finds its way up to it.
        isp.run(&format!("ip route add 10.1.0.0/16 via {}", POOL[0]));
        isp.run(&format!("ip -6 route add fd01::/16 via {}", POOL[1]));

        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let child = start(&middle, folder.path());
        let control = Client::new(&folder.path().join(SOCKET)).unwrap();
        let mut lab = Lab { role, alice, bob, isp, far, middle, child, folder, control };
        lab.wait();
        lab
    }

    /// Until it answers.
    fn wait(&mut self) {
        wait_until("the box answers", Duration::from_secs(60), || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the {} ended: {status}: {}", self.role, self.read("log"));
            }
            self.control.get::<Counters>(self.path(), &()).is_ok()
        });
    }

    /// Where its counters are.
    fn path(&self) -> &'static str {
        if self.role == "nat" { path::COUNTERS } else { filter::path::COUNTERS }
    }

    /// Kills it, as a box that dies a while after it has written its sessions, and starts another one in its place; what that says of sessions.
    pub(crate) fn replace(&mut self, meanwhile: impl FnOnce()) -> String {
        // The sessions of now are in the file once it was written twice: the first may have been under way.
        let file = self.folder.path().join("sessions");
        let written = || std::fs::metadata(&file).and_then(|file| file.modified()).ok();
        for _ in 0..2 {
            let (before, started) = (written(), std::time::Instant::now());
            while written() == before {
                assert!(started.elapsed() < Duration::from_secs(60), "no sessions are written");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        meanwhile();
        self.restart();
        self.read("log")
    }

    /// Kills it, and starts another one in its place.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = start(&self.middle, self.folder.path());
        self.wait();
    }

    /// Writes another configuration, for a reload.
    pub(crate) fn write(&self, workers: usize, more: &str) {
        self.put(CONFIG, &config(workers, more));
    }

    /// The same of a box that is both.
    pub(crate) fn write_both(&self, workers: usize, more: &str, filter: &str) {
        self.put(CONFIG, &both(workers, more, filter));
    }

    /// Writes another file.
    pub(crate) fn put(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// All that it counts: what it has shown by now.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        std::thread::sleep(Duration::from_millis(50));
        self.control.get::<Counters>(self.path(), &()).unwrap().counters
    }

    /// The same once that is so, or what is there after a while: workers show it every 10 ms, if they get to it.
    pub(crate) fn counters_once(
        &self,
        is_so: impl Fn(&BTreeMap<String, u64>) -> bool,
    ) -> BTreeMap<String, u64> {
        let start = Instant::now();
        loop {
            let counters = self.counters();
            if is_so(&counters) || start.elapsed() > Duration::from_secs(5) {
                return counters;
            }
        }
    }

    /// Runs `tidemill` against it: whether it succeeded, and what it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(arguments).arg("--socket").arg(self.folder.path().join(SOCKET));
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

/// The box of this folder.
fn start(middle: &Netns, folder: &Path) -> Child {
    let file = |name: &str| File::create(folder.join(name)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(["run", CONFIG, "--json"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log"));
    middle.enter(|| command.spawn()).unwrap()
}

/// A box's configuration without its own section.
fn around(role: &str, workers: usize) -> String {
    let port = |name: &str| {
        format!("[[port]]\nname = \"{name}\"\nkind = \"af_packet\"\ninterface = \"tm-{name}\"\n")
    };
    let interface = |name: &str, v4: &str, v6: &str| {
        format!("[[interface]]\nport = \"{name}\"\naddresses = [\"{v4}/24\", \"{v6}/64\"]\n")
    };
    format!(
        "version = 1\nrole = \"{role}\"\n[run]\nworkers = {workers}\npin = false\n[control]\nsocket = \"{SOCKET}\"\n{}{}{}{}{}{}\
        [[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"{}\"\n[[route]]\nprefix = \"::/0\"\nvia = \"{}\"\n",
        port("lan"),
        port("dmz"),
        port("wan"),
        interface("lan", GATE[0], GATE[1]),
        interface("dmz", "10.2.0.1", "fd02::1"),
        interface("wan", POOL[0], POOL[1]),
        ISP[0],
        ISP[1],
    )
}

/// A NAT's.
fn config(workers: usize, more: &str) -> String {
    around("nat", workers)
        + &format!(
            "[nat]\ninside = [\"lan\", \"dmz\"]\noutside = [\"wan\"]\npool = [\"{}\", \"{}\"]\n{more}\
            [[nat.static]]\nprotocol = \"tcp\"\nexternal = \"{}:8080\"\ninternal = \"{}:80\"\n\
            [[nat.static]]\nprotocol = \"tcp\"\nexternal = \"[{}]:8080\"\ninternal = \"[{}]:80\"\n",
            POOL[0], POOL[1], POOL[0], BOB[0], POOL[1], BOB[1],
        )
}

/// That of a box that is both.
fn both(workers: usize, more: &str, filter: &str) -> String {
    config(workers, more) + "[filter]\nrules = \"filter.rules\"\n" + filter
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\n{}", self.read("log"), self.run(&[self.role, "counters"]).1);
            eprintln!("{}", self.run(&["show", "drops"]).1);
            let connections = if self.role == "nat" { "sessions" } else { "states" };
            eprintln!("{}", self.run(&[self.role, connections]).1);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
