//! A client, and two memcacheds behind cables of their own: one that may have the cache in front of it, and one that never has.
//!
//! ```text
//!             10.1.0.1 ---- 10.1.0.2 [cache?] memcached   (cached)
//!    client   fd01::1       fd01::2
//!             10.2.0.1 ---- 10.2.0.2          memcached   (plain)
//!             fd02::1       fd02::2
//! ```
//!
//! Or the cable of the one goes through a third namespace, in which something bridges it: see [`Lab::behind`].

use super::cache::Cache;
use super::client::{Tcp, Udp};
use crate::net::{Netns, cable, wait_until};
use rustix::net::{AddressFamily, SocketType};
use std::any::Any;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidemill_bpf::{Attachment, Kernel, Mode, Object, Source};

/// Where the cache stands.
pub(crate) const INTERFACES: &[&str] = &["eth0", "lo"];
pub(crate) const PORT: u16 = 11211;
/// memcached's worker threads.
pub(crate) const THREADS: usize = 4;

/// The right to run a test, one at a time; none if it has to be skipped, which it never is in CI.
pub(crate) fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    static MACHINE: Mutex<()> = Mutex::new(());
    let root = std::fs::read_to_string("/proc/self/status").is_ok_and(|text| text.contains("Uid:\t0\t0"));
    let there = Command::new("memcached").arg("-V").stdout(Stdio::null()).status().is_ok();
    let why = if !root { Some("needs root") } else { (!there).then_some("needs memcached") };
    if let Some(why) = why {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI: {why}");
        println!("skipped: {test} ({why})");
        return None;
    }
    Some(MACHINE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A memcached that ends with its value.
pub(crate) struct Memcached(Child);

impl Memcached {
    pub(crate) fn start(host: &Netns, threads: usize) -> Self {
        Self::start_with(host, threads, &[])
    }

    /// `more`: arguments, which count before ours.
    pub(crate) fn start_with(host: &Netns, threads: usize, more: &[&str]) -> Self {
        let mut command = Command::new("memcached");
        let port = PORT.to_string();
        command.args(["-u", "nobody", "-p", &port, "-U", &port, "-m", "256", "-c", "4096"]);
        command.args(["-t", &threads.to_string()]).args(more).stdin(Stdio::null());
        let child = host.enter(|| command.spawn()).unwrap();
        let own = Memcached(child);
        let local = SocketAddr::from(([127, 0, 0, 1], PORT));
        wait_until("memcached answers", Duration::from_secs(10), || {
            host.enter(|| TcpStream::connect(local)).is_ok()
        });
        own
    }

    /// `SIGKILL`.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have been killed before.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What XDP sends back arrives at a virtual card only where that has a program too: one that passes everything.
pub(crate) fn passing(client: &Netns, interface: &str) -> (Object, Attachment) {
    static SOURCE: Source = Source {
        object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/xsk.bpf.o"),
        program: "tidemill_xsk",
        minimum: Kernel(5, 9),
        layout: 1,
        shared: &[],
    };
    client.enter(|| {
        let object = Object::load(&SOURCE, &[], None).unwrap();
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let index = rustix::net::netdevice::name_to_index(socket, interface).unwrap();
        let limit = Duration::from_secs(2);
        let attachment = Attachment::attach(&object, interface, index, Mode::Native, limit, None).unwrap();
        (object, attachment)
    })
}

/// A host with a memcached.
pub(crate) struct Server {
    /// The program at the client's end of its cable.
    pub(crate) passing: Option<(Object, Attachment)>,
    pub(crate) net: Netns,
    pub(crate) memcached: Memcached,
    pub(crate) v4: SocketAddr,
    pub(crate) v6: SocketAddr,
    /// Where UDP requests go: a test may put something in between.
    pub(crate) udp: SocketAddr,
}

/// Everything.
pub(crate) struct Lab {
    /// Goes first: it has to let go of what the server has.
    pub(crate) cache: Option<Cache>,
    /// What another suite has put on the cable instead; it ends with its value.
    pub(crate) bridge: Option<Box<dyn Any>>,
    pub(crate) cached: Server,
    pub(crate) plain: Server,
    pub(crate) client: Netns,
    /// Whether whatever caches may see what comes by the server's loopback interface.
    pub(crate) sees_loopback: bool,
    /// Where the bridge is, if the lab is to end it; goes last.
    pub(crate) middle: Option<Netns>,
}

const QUIET: &[&str] = &[
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_ra=0",
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
];

fn server(client: &Netns, middle: Option<&Netns>, name: &str, number: u8, threads: usize) -> Server {
    let net = Netns::new(name);
    net.sysctl(QUIET);
    match middle {
        None => cable(client, name, &net, "eth0", 1500),
        Some(middle) => {
            cable(client, name, middle, MIDDLE[0], 1500);
            cable(middle, MIDDLE[1], &net, "eth0", 1500);
        }
    }
    for (host, interface, end) in [(client, name, 1), (&net, "eth0", 2)] {
        host.add_address(&format!("10.{number}.0.{end}/24"), interface);
        host.add_address(&format!("fd0{number}::{end}/64"), interface);
        // What a sender leaves to a card's checksum unit would look wrong to whoever sees the packet on this cable.
        host.run(&format!("ethtool -K {interface} tx off"));
    }
    let memcached = Memcached::start(&net, threads);
    let v4 = SocketAddr::from(([10, number, 0, 2], PORT));
    let v6: SocketAddr = format!("[fd0{number}::2]:{PORT}").parse().unwrap();
    Server { passing: Some(passing(client, name)), net, memcached, v4, v6, udp: v4 }
}

/// The interfaces of the namespace between client and server: towards the one and the other.
pub(crate) const MIDDLE: [&str; 2] = ["clients", "servers"];

impl Lab {
    /// Without a cache, and with a namespace between the client and the one memcached: nothing passes until something bridges [`MIDDLE`] there.
    pub(crate) fn behind(middle: &Netns) -> Self {
        middle.sysctl(QUIET);
        let mut lab = Lab::made(THREADS, Some(middle));
        lab.sees_loopback = false;
        lab
    }

    /// Without a cache.
    pub(crate) fn plain() -> Self {
        Lab::with_threads(THREADS)
    }

    /// Without a cache, and with so many threads in each memcached.
    pub(crate) fn with_threads(threads: usize) -> Self {
        Lab::made(threads, None)
    }

    fn made(threads: usize, middle: Option<&Netns>) -> Self {
        let client = Netns::new("client");
        client.sysctl(QUIET);
        let cached = server(&client, middle, "cached", 1, threads);
        let plain = server(&client, None, "plain", 2, threads);
        let sees_loopback = INTERFACES.contains(&"lo");
        Lab { client, cached, plain, cache: None, bridge: None, sees_loopback, middle: None }
    }

    /// With the cache on the cable and on the loopback interface.
    pub(crate) fn cached() -> Self {
        let mut lab = Lab::plain();
        lab.attach();
        lab
    }

    pub(crate) fn attach(&mut self) {
        self.cache = Some(Cache::attach(&self.cached, INTERFACES));
    }

    pub(crate) fn sides(&self) -> [&Server; 2] {
        [&self.cached, &self.plain]
    }

    pub(crate) fn tcp(&self, server: &Server) -> Tcp {
        Tcp::new(self.client.connect(server.v4))
    }

    pub(crate) fn tcp6(&self, server: &Server) -> Tcp {
        Tcp::new(self.client.connect(server.v6))
    }

    pub(crate) fn udp(&self, server: &Server) -> Udp {
        self.udp_to(server.udp)
    }

    pub(crate) fn udp6(&self, server: &Server) -> Udp {
        self.udp_to(server.v6)
    }

    fn udp_to(&self, to: SocketAddr) -> Udp {
        let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
        Udp::new(self.client.udp((any, 0).into()), to)
    }

    /// A number of the cached memcached's own statistics.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let mut tcp = self.tcp(&self.cached);
        tcp.stat(name)
    }

    /// Has a key read over UDP until an answer came that memcached has not given: one of the cache's.
    pub(crate) fn warm(&self, key: &[u8]) {
        if self.cache.is_none() && self.bridge.is_none() {
            return;
        }
        let mut udp = self.udp(&self.cached);
        wait_until(&format!("{} is cached", String::from_utf8_lossy(key)), Duration::from_secs(10), || {
            self.is_hit(&mut udp, key)
        });
    }

    /// Whether `get` of a key is answered without memcached having heard of it.
    pub(crate) fn is_hit(&self, udp: &mut Udp, key: &[u8]) -> bool {
        let mut tcp = self.tcp(&self.cached);
        let before = tcp.stat("cmd_get");
        let answer = udp.ask(&[b"get ", key, b"\r\n"].concat());
        let after = tcp.stat("cmd_get");
        answer.is_some_and(|answer| answer.starts_with(b"VALUE")) && before == after
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(cache) = &self.cache {
                println!("--- cache\n{}", cache.describe());
            }
            println!("{}", self.cached.net.describe());
        }
    }
}
