//! Network namespaces, the cables between them, and commands that run inside.
//!
//! A namespace here has no name: it lives as long as a file descriptor of ours names it, so nothing is left behind,
//! however the test ends. A socket belongs for ever to the namespace in which it was made: only making it happens inside.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A network namespace.
pub(crate) struct Netns {
    /// For messages.
    pub(crate) name: String,
    file: File,
}

impl Netns {
    /// A new one, with its loopback interface up.
    pub(crate) fn new(name: &str) -> Self {
        // A helper makes it, and stays until we have it open.
        let mut helper = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(helper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let file = File::open(format!("/proc/{}/ns/net", helper.id())).unwrap();
        drop(helper.stdin.take());
        helper.wait().unwrap();
        let own = Netns { name: name.into(), file };
        own.run("ip link set lo up");
        own
    }

    /// As a path that `ip` takes for a namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Does something on a thread inside.
    pub(crate) fn enter<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        let inside = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            act()
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs a command line without spaces in its words: whether it succeeded, and all that it printed.
    pub(crate) fn attempt(&self, line: &str) -> (bool, String) {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        let command = command.args(words).stdin(Stdio::null());
        let output = self.enter(|| command.output()).unwrap_or_else(|error| panic!("{line}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// Runs a command that has to succeed.
    pub(crate) fn run(&self, line: &str) -> String {
        let (ok, text) = self.attempt(line);
        assert!(ok, "in {}: {line}: {text}", self.name);
        text
    }

    /// `sysctl -w` of things below `net`; what this kernel does not have is left out.
    pub(crate) fn sysctl(&self, settings: &[&str]) {
        self.run(&format!("sysctl -qew {}", settings.join(" ")));
    }

    /// Gives an interface an address, at once usable.
    pub(crate) fn add_address(&self, address: &str, interface: &str) {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        self.run(&format!("ip addr add {address} dev {interface} {nodad}"));
    }

    /// Packets that an interface has received.
    pub(crate) fn received(&self, interface: &str) -> u64 {
        let text = self.run("cat /proc/net/dev");
        let line = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap()
    }

    pub(crate) fn udp(&self, address: SocketAddr) -> UdpSocket {
        self.enter(|| UdpSocket::bind(address))
            .unwrap_or_else(|error| panic!("{}: {address}: {error}", self.name))
    }

    pub(crate) fn listen(&self, address: SocketAddr) -> TcpListener {
        self.enter(|| TcpListener::bind(address))
            .unwrap_or_else(|error| panic!("{}: {address}: {error}", self.name))
    }

    pub(crate) fn connect(&self, address: SocketAddr) -> TcpStream {
        let timeout = Duration::from_secs(10);
        self.enter(|| TcpStream::connect_timeout(&address, timeout))
            .unwrap_or_else(|error| panic!("from {} to {address}: {error}", self.name))
    }

    /// What there is to know about it, after a failure.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("--- namespace {}\n", self.name);
        for command in ["ip -s -o addr", "ip -s link", "ip neigh", "ip route", "ip -6 route", "nstat -asz"] {
            let (_, output) = self.attempt(command);
            // Of a full table the beginning will do, of the counters those that are not 0.
            let lines = output.lines().filter(|line| !line.contains("  0  ")).take(40);
            text += &format!("{command}:\n{}\n", lines.collect::<Vec<_>>().join("\n"));
        }
        text
    }
}

/// A cable between two namespaces; interfaces are up.
pub(crate) fn cable(a: &Netns, a_name: &str, b: &Netns, b_name: &str, mtu: u16) {
    let path = b.path();
    a.run(&format!(
        "ip link add name {a_name} mtu {mtu} type veth peer name {b_name} mtu {mtu} netns {path}"
    ));
    a.run(&format!("ip link set {a_name} up"));
    b.run(&format!("ip link set {b_name} up"));
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < limit, "not so after {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}
