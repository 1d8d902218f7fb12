//! A router on AF_XDP ports, in the middle of a wire: it forwards, and the kernel keeps what is its own. Needs root.
//!
//! ```text
//! left: 10.1.0.2, fd00:1::2 ---- .1 [tm-left  router  tm-right] .1 ---- 10.2.0.2, fd00:2::2 :right
//! ```

#![cfg(all(feature = "xdp", target_os = "linux"))]
#![allow(clippy::unwrap_used)] // a test may

#[allow(dead_code)] // some of it is for the other suite
#[path = "root_wire/net.rs"]
mod net;
#[allow(dead_code)]
#[path = "root_wire/traffic.rs"]
mod traffic;

use net::{Netns, cable, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidemill_control::Client;
use tidemill_control::schema::{self, path};
use tidemill_feed::SaveFormat;
use tidemill_feed::synth::{self, SynthOptions};
use traffic::Numbered;

/// One at a time: they are about what is in time, too.
static MACHINE: Mutex<()> = Mutex::new(());

/// The right to run a test; none if it has to be skipped, which it never is in CI.
fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !status.contains("Uid:\t0\t0") {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI: needs root");
        println!("skipped: {test} (needs root)");
        return None;
    }
    Some(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Two hosts and the router's namespace between them.
struct Lab {
    left: Netns,
    right: Netns,
    router: Netns,
    /// Queues of each end of a cable.
    queues: usize,
    folder: tempfile::TempDir,
}

const QUIET: &[&str] = &[
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv6.conf.default.accept_ra=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.conf.all.rp_filter=0",
];

impl Lab {
    fn new(config: &str) -> Self {
        Self::with_queues(config, 1)
    }

    fn with_queues(config: &str, queues: usize) -> Self {
        let [left, right, router] = ["left", "right", "router"].map(Netns::new);
        [&left, &right, &router].iter().for_each(|host| host.sysctl(QUIET));
        let folder = tempfile::tempdir().unwrap();
        let lab = Lab { left, right, router, queues, folder };
        lab.connect("left");
        lab.connect("right");
        let head = "version = 1\nrole = \"router\"\n[control]\nsocket = \"router.sock\"\n[neighbors]\nreachable_s = 1\n";
        std::fs::write(lab.folder.path().join("router.toml"), format!("{head}{config}")).unwrap();
        lab
    }

    fn host(&self, name: &str) -> &Netns {
        if name == "left" { &self.left } else { &self.right }
    }

    /// The cable to a host, its addresses, and its routes by way of the router.
    fn connect(&self, name: &str) {
        let (host, net) = (self.host(name), if name == "left" { 1 } else { 2 });
        let own = format!("tm-{name}");
        if self.queues == 1 {
            cable(&self.router, &own, host, name, 1500);
        } else {
            let (queues, there) = (format!("numrxqueues {0} numtxqueues {0}", self.queues), host.path());
            let ends = format!("name {own} {queues} type veth peer name {name} {queues}");
            self.router.run(&format!("ip link add {ends} netns {there}"));
            self.router.run(&format!("ip link set {own} up"));
            host.run(&format!("ip link set {name} up"));
        }
        for (address, via) in [
            (format!("10.{net}.0.2/24"), format!("10.{net}.0.1")),
            (format!("fd00:{net}::2/64"), format!("fd00:{net}::1")),
        ] {
            host.add_address(&address, name);
            host.run(&format!("ip route add default via {via} dev {name}"));
        }
    }

    /// The router's addresses, as the kernel's own.
    fn give_kernel_addresses(&self) {
        for (net, name) in [(1, "tm-left"), (2, "tm-right")] {
            self.router.add_address(&format!("10.{net}.0.1/24"), name);
            self.router.add_address(&format!("fd00:{net}::1/64"), name);
        }
    }

    fn start(&self) -> Router<'_> {
        let file = |name: &str| File::create(self.folder.path().join(name)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
        command.args(["run", "router.toml", "--json"]).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log"));
        let child = self.router.enter(|| command.spawn()).unwrap();
        let control = Client::new(&self.folder.path().join("router.sock")).unwrap();
        let mut router = Router { lab: self, child, control };
        wait_until("Tidemill answers", Duration::from_secs(20), || {
            if let Some(status) = router.child.try_wait().unwrap() {
                panic!("Tidemill ended: {status}: {}", self.log());
            }
            router.control.get::<schema::Summary>(path::SUMMARY, &()).is_ok()
        });
        router
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Whether a host gets an answer to an echo request.
    fn answers(&self, from: &str, to: &str) -> bool {
        self.host(from).attempt(&format!("ping -c 1 -W 1 {to}")).0
    }

    fn ping(&self, from: &str, to: &str) {
        wait_until(&format!("{from} reaches {to}"), Duration::from_secs(10), || self.answers(from, to));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- log\n{}", self.log());
            [&self.left, &self.right, &self.router].iter().for_each(|host| println!("{}", host.describe()));
        }
    }
}

struct Router<'a> {
    lab: &'a Lab,
    child: Child,
    control: Client,
}

impl Router<'_> {
    fn ports(&self) -> Vec<schema::Port> {
        self.control.get::<schema::Ports>(path::PORTS, &()).unwrap().ports
    }

    fn left_to_kernel(&self) -> u64 {
        self.ports().iter().filter_map(|port| port.left).sum()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it as an operator would: its books balance.
    fn stop(mut self) -> serde_json::Value {
        self.signal(Signal::TERM);
        wait_until("Tidemill ends", Duration::from_secs(10), || self.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.lab.log());
        let out = std::fs::read_to_string(self.lab.folder.path().join("out")).unwrap();
        let books: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        let count = |name: &str| books[name].as_u64().unwrap();
        let dropped: u64 = books["dropped"].as_object().unwrap().values().filter_map(|n| n.as_u64()).sum();
        assert_eq!(
            count("in") + count("made"),
            count("out") + dropped + count("consumed") + count("held"),
            "{books}"
        );
        println!("books: {books}");
        books
    }
}

impl Drop for Router<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// TCP: that many bytes there and back again, all of them right.
fn talk(client: &Netns, server: &Netns, address: &str, bytes: usize) {
    let address: SocketAddr = address.parse().unwrap();
    let listener = server.listen(address);
    let sent: Vec<u8> = (0..bytes).map(|i| ((i * 31) >> 3) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut came = Vec::new();
            stream.read_to_end(&mut came).unwrap();
            stream.write_all(&came).unwrap();
        });
        let mut stream = client.connect(address);
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut came = Vec::new();
        stream.read_to_end(&mut came).unwrap();
        assert!(came == sent, "{} of {bytes} bytes came, or others", came.len());
    });
}

fn config(owner: &str, port: &str) -> String {
    let mut text = String::new();
    for (net, name) in [(1, "left"), (2, "right")] {
        text +=
            &format!("[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"tm-{name}\"\n{port}\n");
        text += &format!("[[interface]]\nport = \"{name}\"\n");
        text += &match owner {
            "kernel" => "owner = \"kernel\"\n".to_owned(),
            _ => format!("addresses = [\"10.{net}.0.1/24\", \"fd00:{net}::1/64\"]\n"),
        };
    }
    text
}

#[test]
fn root_xdp_router_beside_the_kernel() {
    let Some(_turn) = turn("root_xdp_router_beside_the_kernel") else { return };
    for mode in ["native", "generic"] {
        let lab = Lab::new(&config("kernel", &format!("mode = \"{mode}\"")));
        lab.give_kernel_addresses();
        if mode == "generic" {
            // As the page says: nobody cuts what senders leave whole.
            for host in ["left", "right"] {
                lab.host(host).run(&format!("ethtool -K {host} tso off gso off"));
            }
        }
        let router = lab.start();
        assert!(lab.log().contains(&format!("port left: af_xdp, {mode}, copy, 1 queue")), "{}", lab.log());
        // Through us, with the senders' checksums undone.
        for to in ["10.2.0.2", "fd00:2::2"] {
            lab.ping("left", to);
            talk(&lab.left, &lab.right, &SocketAddr::new(to.parse().unwrap(), 179).to_string(), 3_000_000);
        }
        // To the kernel: by either interface's address, from a fresh neighbor on.
        lab.left.run("ip neigh flush all");
        lab.router.run("ip neigh flush all");
        for to in ["10.1.0.1", "fd00:1::1", "10.2.0.1", "fd00:2::1"] {
            lab.ping("left", to);
            let address: IpAddr = to.parse().unwrap();
            for port in [22, 179] {
                talk(&lab.left, &lab.router, &SocketAddr::new(address, port).to_string(), 300_000);
            }
        }
        // From the kernel out.
        talk(&lab.router, &lab.right, "10.2.0.2:179", 300_000);
        // An address that it gets later, also on its loopback, and loses again.
        for (address, interface) in [("10.1.0.9", "tm-left"), ("10.255.0.1", "lo")] {
            lab.router.run(&format!("ip addr add {address}/32 dev {interface}"));
            lab.ping("left", address);
            lab.router.run(&format!("ip addr del {address}/32 dev {interface}"));
        }
        assert!(router.left_to_kernel() > 1000, "{:?}", router.ports());
        assert!(router.ports().iter().all(|port| port.unread == Some(0)));
        let books = router.stop();
        assert!(books["dropped"].get("rx-ring-full").is_none(), "{books}");
    }
}

#[test]
fn root_xdp_router_with_addresses_of_its_own() {
    let Some(_turn) = turn("root_xdp_router_with_addresses_of_its_own") else { return };
    let lab = Lab::new(&config("us", "leave = [\"tcp/22\", \"proto/89\"]"));
    // The kernel has one of them too, for what is left to it.
    lab.router.add_address("10.1.0.1/24", "tm-left");
    let router = lab.start();
    for to in ["10.1.0.1", "fd00:1::1", "10.2.0.1", "10.2.0.2", "fd00:2::2"] {
        lab.ping("left", to);
    }
    lab.router.run("ip neigh flush all");
    talk(&lab.left, &lab.router, "10.1.0.1:22", 300_000);
    // Transit is not left, whatever its ports.
    talk(&lab.left, &lab.right, "10.2.0.2:22", 3_000_000);
    talk(&lab.left, &lab.right, "[fd00:2::2]:22", 3_000_000);
    let _listener = lab.router.listen("10.1.0.1:23".parse().unwrap());
    let refused = lab.left.enter(|| {
        std::net::TcpStream::connect_timeout(&"10.1.0.1:23".parse().unwrap(), Duration::from_secs(3)).is_err()
    });
    assert!(refused, "what is not left is ours");
    assert!(router.left_to_kernel() > 0);
    router.stop();
}

#[test]
fn root_xdp_router_is_killed_and_comes_back() {
    let Some(_turn) = turn("root_xdp_router_is_killed_and_comes_back") else { return };
    let lab = Lab::new(&config("kernel", ""));
    lab.give_kernel_addresses();
    for round in 0..3 {
        let mut router = lab.start();
        lab.ping("left", "10.2.0.2");
        lab.ping("left", "fd00:2::2");
        router.signal(Signal::KILL);
        router.child.wait().unwrap();
        let killed = Instant::now();
        // The program went with the process: the kernel has everything again.
        lab.ping("left", "10.1.0.1");
        assert!(!lab.answers("left", "10.2.0.2"), "nobody forwards");
        println!("round {round}: {:?}", killed.elapsed());
    }
    let router = lab.start();
    lab.ping("left", "10.2.0.2");
    router.stop();
    assert!(!lab.router.run("ip link show tm-left").contains("xdp"), "the program is still there");
}

/// A stream of numbered packets from the left host to the right one finds the router dead for a moment; with a table of the Internet's size where
/// the build is optimized.
#[test]
fn root_xdp_router_forwards_again_two_seconds_after_a_kill() {
    let Some(_turn) = turn("root_xdp_router_forwards_again_two_seconds_after_a_kill") else { return };
    let small = SynthOptions { v4: 20_000, v6: 2_000, ..SynthOptions::default() };
    let options = if cfg!(debug_assertions) { small } else { SynthOptions::default() };
    // As in `root_wire`: 2 is what the release build is held to.
    const MOST_S: u64 = if cfg!(debug_assertions) { 10 } else { 2 };
    let mut text =
        "[state]\npath = \"router.state\"\nevery = 0\n[table]\npath = [\"table.txt\"]\n".to_owned();
    for label in 1..=options.next_hops {
        text += &format!("[[next_hop]]\nlabel = {label}\nvia = \"10.2.0.2\"\n");
    }
    let lab = Lab::new(&(text + &config("us", "")));
    let table = synth::table(&options).unwrap();
    let file = lab.folder.path().join("table.txt");
    tidemill_feed::save(&file, &table.v4, &table.v6, &table.labels, SaveFormat::Text).unwrap();
    let routes = table.v4.len() as u64;
    let route = table.v4.iter().map(|(prefix, _)| prefix).find(|route| route.len() == 24).unwrap();
    let to = Ipv4Addr::from(route.first() | 9).to_string();
    lab.right.add_address(&format!("{to}/32"), "lo");
    let mut router = lab.start();
    lab.ping("left", &to);
    let _: schema::Done = router.control.post(path::STATE, &serde_json::json!({})).unwrap();
    let stream = Numbered::start(&lab.left, &lab.right, to.parse().unwrap(), 4, 1000, 64);
    wait_until("packets are on their way", Duration::from_secs(10), || stream.sent() > 200);
    router.signal(Signal::KILL);
    router.child.wait().unwrap();
    let router = lab.start();
    lab.ping("left", &to);
    let fibs: schema::Fibs = router.control.get(path::FIB, &()).unwrap();
    assert!(fibs.fibs.iter().any(|fib| fib.prefixes >= routes), "{fibs:?}");
    let said = lab.log();
    assert!(said.contains("state image router.state") && !said.contains("warning: state"), "{said}");
    let arrived = stream.finish();
    println!("{routes} routes: nothing arrived for {} ms", arrived.gap.as_millis());
    // That it arrives again is in what did not: a gap that never ends is none.
    assert!(
        arrived.gap < Duration::from_secs(MOST_S) && arrived.sent - arrived.received < 1000 * MOST_S,
        "{arrived:?}"
    );
    assert!(arrived.gap > Duration::from_millis(5) && arrived.received > 200, "{arrived:?}");
    router.stop();
}

/// Two workers, with a queue of each port for each, or with one for both: each flow stays where it is, in order.
fn two_workers(queues: usize) {
    const FLOWS: usize = 32;
    let ports = config("us", &format!("queues = {queues}"));
    let lab = Lab::with_queues(&format!("[run]\nworkers = 2\n{ports}"), queues);
    let router = lab.start();
    for name in ["left", "right"] {
        let line = format!("port {name}: af_xdp, native, copy, {queues} queue");
        assert!(lab.log().contains(&line), "{}", lab.log());
    }
    lab.ping("left", "10.2.0.2");
    lab.ping("right", "fd00:1::2");
    let there = Numbered::start(&lab.left, &lab.right, "10.2.0.2".parse().unwrap(), FLOWS, 8_000, 64);
    let back = Numbered::start(&lab.right, &lab.left, "fd00:1::2".parse().unwrap(), FLOWS, 8_000, 64);
    wait_until("enough has been sent", Duration::from_secs(20), || {
        there.sent() >= 6_000 && back.sent() >= 6_000
    });
    for arrived in [there.finish(), back.finish()] {
        assert_eq!((arrived.late, arrived.flows), (0, FLOWS), "{arrived:?}");
        assert!(arrived.received * 100 >= arrived.sent * 95, "{arrived:?}");
    }
    let workers: schema::Workers = router.control.get(path::WORKERS, &()).unwrap();
    let packets: Vec<u64> = workers.workers.iter().map(|worker| worker.packets).collect();
    let all: u64 = packets.iter().sum();
    assert!(packets.len() == 2 && packets.iter().all(|one| one * 10 > all), "{packets:?}");
    assert!(router.ports().iter().all(|port| port.queues == 2 && port.unread == Some(0)));
    router.stop();
}

/// The device spreads the flows.
#[test]
fn root_xdp_router_has_two_workers_on_two_queues() {
    let Some(_turn) = turn("root_xdp_router_has_two_workers_on_two_queues") else { return };
    two_workers(2);
}

/// The first worker spreads them, and sends for both: frames of both workers are in its rings.
#[test]
fn root_xdp_router_has_two_workers_on_one_queue() {
    let Some(_turn) = turn("root_xdp_router_has_two_workers_on_one_queue") else { return };
    two_workers(1);
}

#[test]
fn root_xdp_router_outlives_an_interface() {
    let Some(_turn) = turn("root_xdp_router_outlives_an_interface") else { return };
    let lab = Lab::new(&config("us", ""));
    let router = lab.start();
    lab.ping("left", "10.2.0.2");
    for _ in 0..2 {
        lab.router.run("ip link del tm-right");
        wait_until("it is missed", Duration::from_secs(5), || {
            router.ports()[1].lost > router.ports()[1].found
        });
        assert!(!lab.answers("left", "10.2.0.2"));
        lab.ping("left", "10.1.0.1");
        // The worker that opens it again has the other port, too, which waits meanwhile and loses nothing.
        let pings = std::thread::scope(|scope| {
            let pings = scope.spawn(|| lab.left.attempt("ping -q -i 0.002 -c 500 10.1.0.1").1);
            lab.connect("right");
            wait_until("it is found", Duration::from_secs(5), || {
                router.ports()[1].lost == router.ports()[1].found
            });
            pings.join().unwrap()
        });
        println!("the other port meanwhile: {}", pings.trim().lines().last().unwrap_or_default());
        assert!(pings.contains(" 0% packet loss"), "{pings}");
        lab.ping("left", "10.2.0.2");
        lab.ping("right", "fd00:1::2");
    }
    router.stop();
}

/// Confined workers can open nothing, and keep the interfaces that they have.
#[test]
fn root_xdp_router_has_confined_workers() {
    let Some(_turn) = turn("root_xdp_router_has_confined_workers") else { return };
    let lab = Lab::new(&format!("[run]\nconfine = true\n{}", config("us", "")));
    let router = lab.start();
    // They look after their interfaces ten times a second.
    for round in 0..5 {
        lab.ping("left", "10.2.0.2");
        lab.ping("right", "fd00:1::2");
        assert!(router.ports().iter().all(|port| port.lost == 0), "{round}: {:?}", router.ports());
        std::thread::sleep(Duration::from_millis(100));
    }
    lab.router.run("ip link del tm-right");
    wait_until("it is missed", Duration::from_secs(5), || router.ports()[1].lost == 1);
    lab.ping("left", "10.1.0.1");
    router.stop();
}

/// What is too long for the link behind us is told to its sender, also when that link gets shorter while we run.
#[test]
fn root_xdp_router_follows_an_mtu() {
    let Some(_turn) = turn("root_xdp_router_follows_an_mtu") else { return };
    let lab = Lab::new(&config("us", ""));
    let router = lab.start();
    // Frames of this length, unfragmented.
    let sends = |to: &str, size: u32| {
        lab.left.run("ip route flush cache");
        lab.left.attempt("ip -6 route flush cache");
        let headers = if to.contains(':') { 48 } else { 28 };
        lab.left.attempt(&format!("ping -c 1 -W 1 -M do -s {} {to}", size - headers))
    };
    for to in ["10.2.0.2", "fd00:2::2"] {
        let set = |mtu: u32| {
            lab.router.run(&format!("ip link set tm-right mtu {mtu}"));
            lab.right.run(&format!("ip link set right mtu {mtu}"));
        };
        wait_until("whole packets pass", Duration::from_secs(10), || sends(to, 1500).0);
        set(1400);
        wait_until("the MTU is followed", Duration::from_secs(10), || {
            let (reaches, answer) = sends(to, 1401);
            !reaches && ["mtu = 1400", "mtu=1400", "mtu: 1400"].iter().any(|told| answer.contains(told))
        });
        assert!(sends(to, 1400).0, "{to}: {}", lab.log());
        set(1500);
    }
    router.stop();
}

/// What a benchmark prints. Where the machine stands still for as long as a run takes, nothing is forwarded, which is an error: then again, a few times.
fn measured(folder: &Path, words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.arg("bench").args(words.split(' ')).current_dir(folder).stdin(Stdio::null());
    let mut error = String::new();
    for _ in 0..6 {
        let output = command.output().unwrap();
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap();
        }
        error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("nothing was forwarded"), "{words}: {error}");
    }
    panic!("{words}: {error}");
}

/// `bench port wire`: all forward, and what is said of them holds together. No bound: this is no place for rates.
#[test]
fn root_xdp_bench_beside_the_kernel() {
    let Some(_turn) = turn("root_xdp_bench_beside_the_kernel") else { return };
    let folder = tempfile::tempdir().unwrap();
    let table: String =
        (0..2000).map(|n| format!("20.{}.{}.0/24 {}\n", n / 250, n % 250, 1 + n % 7)).collect();
    std::fs::write(folder.path().join("table.txt"), table).unwrap();
    let said = measured(folder.path(), "port wire --table table.txt --seconds 0.4 --runs 2 --json");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rate = |subject: &str| {
        let line = lines.iter().find(|line| line["subject"] == subject && line["metric"] == "mpps");
        line.and_then(|line| line["value"].as_f64()).unwrap_or(0.0)
    };
    for subject in ["af_xdp", "xdp-offload", "peer:kernel-forward", "peer:bpf-fib-lookup"] {
        assert!(rate(subject) > 0.0, "{subject}: {said}");
    }
    let ratio = lines.iter().find(|line| line["metric"] == "ratio").unwrap();
    assert_eq!((&ratio["of"], &ratio["to"]), (&"af_xdp".into(), &"peer:kernel-forward".into()), "{said}");
    assert_eq!(lines[0]["params"]["prefixes"], 2000, "{said}");
}

/// `bench nf --wire`: both sides do what their case is about, which the bench itself sees to. No bound here either.
#[test]
fn root_xdp_bench_nf_beside_nftables() {
    let Some(_turn) = turn("root_xdp_bench_nf_beside_nftables") else { return };
    let said = measured(&std::env::temp_dir(), "nf --wire --rules 50 --seconds 0.3 --runs 2 --json");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cases = [
        ("wire/nat/1024", "nat"),
        ("wire/established/1024/50 rules", "filter"),
        ("wire/new/50 rules", "filter"),
    ];
    for (case, ours) in cases {
        for subject in [ours, "peer:nftables"] {
            let rate = lines.iter().find(|line| line["case"] == case && line["subject"] == subject);
            assert!(rate.is_some_and(|rate| rate["value"].as_f64() > Some(0.0)), "{case}, {subject}: {said}");
        }
        let ratio = lines.iter().find(|line| line["case"] == case && line["metric"] == "ratio").unwrap();
        assert_eq!((&ratio["of"], &ratio["to"]), (&ours.into(), &"peer:nftables".into()), "{said}");
    }
}
