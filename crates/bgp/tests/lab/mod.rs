//! A network namespace with a cable in it, daemons on one end, and our runner on the other.

#![allow(dead_code)] // every test file uses a part of this module

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tidemill_bgp::{Change, PeerConfig, Runner, RunnerConfig, ShownPeer, SpeakerConfig};
use tidemill_feed::AnyPrefix;

/// Whether this is root; elsewhere the test is skipped by name, but not in CI.
pub(crate) fn may_run(test: &str) -> bool {
    let root = std::fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("Uid:\t0\t0"));
    if !root {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI");
        println!("skipped: {test} (needs root)");
    }
    root
}

/// Whether a program is there. The set-up installs all of them: in CI none is missing.
pub(crate) fn has(test: &str, program: &str) -> bool {
    let there =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let there = there.is_ok_and(|status| status.success());
    if !there {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI: {program} is missing");
        println!("skipped: {test} (needs {program})");
    }
    there
}

pub(crate) fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {told}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// A network namespace that goes with its value, also when the test panics.
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    /// With 10.0.0.1 and .2 (daemons), 10.0.0.200 (us) and the same of fd00::/64 on its loopback.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tm-bgp-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(&format!("ip netns add {name}"));
        let namespace = Namespace(name);
        namespace.ip("link set dev lo up");
        for last in [1, 2, 200] {
            namespace.ip(&format!("address add 10.0.0.{last}/24 dev lo"));
        }
        for last in ["1", "2", "c8"] {
            namespace.ip(&format!("address add fd00::{last}/64 dev lo nodad"));
        }
        namespace
    }

    pub(crate) fn ip(&self, arguments: &str) -> String {
        run(&format!("ip -n {} {arguments}", self.0))
    }

    /// Does something in the namespace: on a thread of its own, which alone moves. Sockets stay where they were made.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "delete", &self.0]).status());
    }
}

/// Where Debian has FRR's daemon.
pub(crate) const FRR: &str = "/usr/lib/frr/bgpd";

/// A daemon in a namespace.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) folder: tempfile::TempDir,
}

impl Daemon {
    pub(crate) fn bird(ns: &Namespace, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("bird.conf"), configuration).unwrap();
        let arguments = format!("bird -f -c {} -s {}", path("bird.conf"), path("bird.ctl"));
        Daemon::start(ns, &arguments, folder)
    }

    /// FRR at 10.0.0.2, port 1793, AS 64498: it waits for BIRD at 10.0.0.1, and connects to us.
    pub(crate) fn frr(ns: &Namespace) -> Self {
        Daemon::frr_with(ns, "")
    }

    /// The same, with more lines of `router bgp`.
    pub(crate) fn frr_with(ns: &Namespace, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let neighbor = |address: &str, asn: u32, more: &str| {
            format!(
                " neighbor {address} remote-as {asn}\n neighbor {address} ebgp-multihop 10\n neighbor {address} update-source 10.0.0.2\n \
                 neighbor {address} timers connect 1\n neighbor {address} advertisement-interval 0\n{more}"
            )
        };
        let configuration = format!(
            "router bgp 64498\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n no bgp network import-check\n{more}{}{} \
             address-family ipv4 unicast\n  neighbor 10.0.0.200 next-hop-self\n exit-address-family\n \
             address-family ipv6 unicast\n  neighbor 10.0.0.1 activate\n  neighbor 10.0.0.200 activate\n  \
             neighbor 10.0.0.200 route-map SIX out\n exit-address-family\n!\n\
             route-map SIX permit 10\n set ipv6 next-hop global fd00::2\n!\n",
            neighbor("10.0.0.200", 65_000, " neighbor 10.0.0.200 port 1790\n"),
            neighbor("10.0.0.1", 64_496, " neighbor 10.0.0.1 passive\n"),
        );
        std::fs::write(path("bgpd.conf"), configuration).unwrap();
        // As root, for its folders are ours.
        let arguments = format!(
            "{FRR} -f {} -p 1793 -l 10.0.0.2 -Z -S -u root -g root -i {} --vty_socket {} -P 0",
            path("bgpd.conf"),
            path("bgpd.pid"),
            folder.path().display()
        );
        Daemon::start(ns, &arguments, folder)
    }

    /// GoBGP at 10.0.0.2, port 1792, AS 64497, likewise; with more in its configuration, which goes on with its session with us.
    pub(crate) fn gobgp(ns: &Namespace, more: &str) -> Self {
        Daemon::gobgp_with(ns, "", more)
    }

    /// The same, with `ours` in what it says of us as a neighbor.
    pub(crate) fn gobgp_with(ns: &Namespace, ours: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gobgpd.toml");
        let neighbor = |address: &str, asn: u32, remote: u16, passive: bool| {
            // A family's part in graceful restarts, for who asks for those with us. One that restarts waits for all peers that have it.
            let restarts = "[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true\n";
            let (ours, restarts) = if passive { ("", "") } else { (ours, restarts) };
            format!(
                "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{address}\"\npeer-as = {asn}\n{ours}\
                 [neighbors.transport.config]\nlocal-address = \"10.0.0.2\"\nremote-port = {remote}\npassive-mode = {passive}\n\
                 [neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1\n\
                 [neighbors.ebgp-multihop.config]\nenabled = true\nmultihop-ttl = 10\n\
                 [[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"ipv4-unicast\"\n{restarts}\
                 [[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"ipv6-unicast\"\n{restarts}"
            )
        };
        let configuration = format!(
            "[global.config]\nas = 64497\nrouter-id = \"10.0.0.2\"\nport = 1792\nlocal-address-list = [\"10.0.0.2\"]\n{}{}{more}",
            neighbor("10.0.0.1", 64_496, 179, true),
            neighbor("10.0.0.200", 65_000, 1790, false)
        );
        std::fs::write(&file, configuration).unwrap();
        let arguments = format!("gobgpd -t toml -f {} --api-hosts 127.0.0.1:50051", file.display());
        Daemon::start(ns, &arguments, folder)
    }

    pub(crate) fn start(ns: &Namespace, arguments: &str, folder: tempfile::TempDir) -> Self {
        let child = Command::new("ip")
            .args(["netns", "exec", &ns.0])
            .args(arguments.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Daemon { child, folder }
    }

    pub(crate) fn birdc(&self, command: &str) -> String {
        run(&format!("birdc -s {} {command}", self.folder.path().join("bird.ctl").display()))
    }

    /// Without a word to anybody.
    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Our end, and what it has told.
pub(crate) struct Ours {
    pub(crate) runner: Runner,
    pub(crate) told: BTreeMap<AnyPrefix, IpAddr>,
    pub(crate) changes: u64,
    start: Instant,
}

impl Ours {
    pub(crate) fn open(ns: &Namespace, peers: Vec<PeerConfig>) -> Self {
        Ours::with(ns, peers, |_| {})
    }

    /// AS 65000 on port 1790 of all addresses.
    pub(crate) fn with(ns: &Namespace, peers: Vec<PeerConfig>, more: impl FnOnce(&mut RunnerConfig)) -> Self {
        let id = Ipv4Addr::new(10, 0, 0, 200);
        let mut config = RunnerConfig {
            listen: vec!["0.0.0.0:1790".parse().unwrap(), "[::]:1790".parse().unwrap()],
            speaker: SpeakerConfig { asn: 65_000, id, hold_s: 90, peers, exports: Vec::new() },
            bmp_listen: Vec::new(),
            bmp: Vec::new(),
        };
        more(&mut config);
        let runner = ns.within(|| Runner::open(config).unwrap());
        Ours { runner, told: BTreeMap::new(), changes: 0, start: Instant::now() }
    }

    pub(crate) fn poll(&mut self) {
        let mut changes = Vec::new();
        let now = self.start.elapsed().as_nanos() as u64;
        let progress = self.runner.poll(now, &mut changes);
        self.changes += changes.len() as u64;
        for change in changes {
            let Change { prefix, next_hop } = change;
            let before = match next_hop {
                Some(hop) => self.told.insert(prefix, hop),
                None => self.told.remove(&prefix),
            };
            assert_ne!(before, next_hop, "{prefix} is told again");
        }
        if progress.bytes == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Polls until something is so.
    pub(crate) fn until(&mut self, what: &str, so: impl Fn(&Ours) -> bool) {
        let start = Instant::now();
        while !so(self) {
            self.poll();
            if start.elapsed() > Duration::from_secs(60) {
                let peers: Vec<ShownPeer> = self.runner.speaker().peers().collect();
                let exporters: Vec<_> = self.runner.exporters().collect();
                let (told, refused) = (self.told.len(), self.runner.refused());
                let notes = self.runner.take_notes();
                panic!("no {what}: {told} told, {refused} refused, {peers:#?}, {exporters:?}, {notes:?}");
            }
        }
    }

    pub(crate) fn peer(&self, name: &str) -> ShownPeer {
        self.runner.speaker().peers().find(|peer| peer.name == name).unwrap()
    }

    /// What was told is what the table holds.
    pub(crate) fn check(&self) {
        self.runner.speaker().rib().check();
        let best: BTreeMap<AnyPrefix, IpAddr> = self.runner.speaker().rib().best().collect();
        assert!(best == self.told, "{} best, {} told", best.len(), self.told.len());
    }
}
