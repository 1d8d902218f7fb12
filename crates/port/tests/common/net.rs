//! Network namespaces for tests that need root. Each test runs in one of its own; hosts are further ones, held by a
//! process that ends with the test. Nothing is left behind, however a test ends.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::fs::File;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|s| s.contains("Uid:\t0\t0"))
}

/// Runs the test again in a network namespace of its own, and with mounts of its own, which go when the process does.
pub fn inside(test: &str) -> bool {
    if std::env::var_os("TIDEMILL_INSIDE").is_some() {
        return true;
    }
    if !is_root() {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI");
        println!("skipped: {test} (needs root)");
        return false;
    }
    // It was asked for by name, so it runs also if it is one of those that are ignored.
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture", "--test-threads=1"])
        .env("TIDEMILL_INSIDE", "1")
        .status()
        .unwrap();
    assert!(status.success());
    false
}

pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

/// A pair of virtual cards, both up and quiet.
pub fn cable(a: &str, b: &str) {
    run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
    run(&format!("ip link add name {a} type veth peer name {b}"));
    run(&format!("ip link set {a} up"));
    run(&format!("ip link set {b} up"));
}

/// The same, where the first has this number, which nobody else may have.
pub fn cable_at(index: u32, a: &str, b: &str) {
    run(&format!("ip link add name {a} index {index} type veth peer name {b}"));
    run(&format!("ip link set {a} up"));
    run(&format!("ip link set {b} up"));
}

/// A host: a network namespace with an end of a cable in it.
pub struct Host {
    holder: Child,
}

impl Host {
    /// A new host, with `card` (of this namespace) moved into it and given addresses.
    pub fn new(card: &str, addresses: &[&str]) -> Self {
        let holder = Command::new("unshare").args(["--net", "--", "sleep", "300"]).spawn().unwrap();
        let host = Host { holder };
        let name = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
        let started = Instant::now();
        while name(&host.pid()).unwrap() == name("self").unwrap() {
            assert!(started.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(1));
        }
        run(&format!("ip link set {card} netns {}", host.pid()));
        host.run("ip link set lo up");
        for address in addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            host.run(&format!("ip addr add {address} dev {card} {nodad}"));
        }
        host.run(&format!("ip link set {card} up"));
        host
    }

    fn pid(&self) -> String {
        self.holder.id().to_string()
    }

    pub fn run(&self, command: &str) {
        run(&format!("nsenter --target {} --net -- {command}", self.pid()));
    }

    /// Runs `work` on a thread that lives on this host.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        std::thread::spawn(move || {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            use std::os::fd::AsFd;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
