//! A client's host, a server's, memcached on it, the cache before it.

// Each of the suites that share this uses its part.
#![allow(dead_code, unreachable_pub)]

use crate::net::{Host, cable, inside, run};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_bpf::{Attachment, Kernel, Mode, Object, Pins, Source};
use tidemill_kv::kernel::{Cache, Options};

const PATIENCE: Duration = Duration::from_secs(20);

/// Whether the test can go on, in a namespace of its own.
pub fn ready(test: &str) -> bool {
    if Command::new("memcached").arg("-V").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped in CI");
        println!("skipped: {test} (needs memcached)");
        return false;
    }
    inside(test)
}

struct Memcached(Child);

impl Memcached {
    fn start(threads: &str, more: &[&str]) -> Self {
        let mut command = Command::new("memcached");
        let child = command
            .args(["-u", "root", "-p", "11211", "-U", "11211", "-t", threads, "-l", "0.0.0.0,::"])
            .args(more)
            .spawn()
            .unwrap();
        let started = Instant::now();
        while TcpStream::connect("127.0.0.1:11211").is_err() {
            assert!(started.elapsed() < PATIENCE, "memcached does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Memcached(child)
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Client {
    tcp: Option<TcpStream>,
    old: Option<TcpStream>,
    udp: UdpSocket,
    udp6: UdpSocket,
    host: Host,
    id: u16,
    /// The program at its end of the cable.
    passing: Option<(Object, Attachment)>,
}

/// What XDP sends back arrives at a virtual card only where that has a program too: one that passes everything.
pub fn passing_on(interface: &str, pins: Option<&Pins>) -> (Object, Attachment) {
    static SOURCE: Source = Source {
        object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/xsk.bpf.o"),
        program: "tidemill_xsk",
        minimum: Kernel(5, 9),
        layout: 1,
        shared: &[],
    };
    let object = Object::load(&SOURCE, &[], None).unwrap();
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap();
    let index = rustix::net::netdevice::name_to_index(socket, interface).unwrap();
    let attachment = Attachment::attach(&object, interface, index, Mode::Native, PATIENCE, pins).unwrap();
    (object, attachment)
}

fn connect(host: &Host) -> TcpStream {
    let stream = host.spawn(|| TcpStream::connect("10.9.0.1:11211").unwrap()).join().unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    stream
}

fn socket(host: &Host, at: &'static str) -> UdpSocket {
    let (own, to): (SocketAddr, SocketAddr) = (
        at.parse().unwrap(),
        if at.starts_with('[') { "[fd00:9::1]:11211" } else { "10.9.0.1:11211" }.parse().unwrap(),
    );
    let socket = host
        .spawn(move || {
            let s = UdpSocket::bind(own).unwrap();
            s.connect(to).unwrap();
            s
        })
        .join()
        .unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    socket
}

/// All of it, while the cache works.
pub struct Lab {
    pub cache: Cache,
    client: Client,
    memcached: Memcached,
}

/// Without a process that serves.
pub struct Left {
    client: Client,
    memcached: Memcached,
}

fn options(interfaces: &[&str]) -> Options {
    let mut options = Options::new(interfaces, 0x1234_5678_9abc_def1);
    options.settle = Duration::from_millis(500);
    options.memory = 4 << 20;
    // The client's end of the cable has a program.
    options.mode = Mode::Native;
    options
}

const THREADS: &str = "4";

fn place(threads: &str, more: &[&str]) -> (Client, Memcached) {
    run("mount -t bpf bpf /sys/fs/bpf");
    run("ip link set lo up");
    cable("client", "server");
    run("sysctl -qw net.ipv6.conf.server.disable_ipv6=0");
    run("ip addr add 10.9.0.1/24 dev server");
    run("ip addr add fd00:9::1/64 dev server nodad");
    let passing = passing_on("client", None);
    let host = Host::new("client", &[]);
    host.run("sysctl -qw net.ipv6.conf.client.disable_ipv6=0");
    host.run("ip addr add 10.9.0.2/24 dev client");
    host.run("ip addr add fd00:9::2/64 dev client nodad");
    let memcached = Memcached::start(threads, more);
    let (udp, udp6) = (socket(&host, "0.0.0.0:0"), socket(&host, "[::]:0"));
    let client = Client { tcp: None, old: None, udp, udp6, host, id: 7, passing: Some(passing) };
    (client, memcached)
}

impl Lab {
    /// A cache that serves, and a connection that it has seen from the start.
    pub fn new(interfaces: &[&str]) -> Self {
        Self::make(&options(interfaces), false)
    }

    /// Before clients at a cable with no program at their end, as a container's is.
    pub fn bare(mode: Mode) -> Self {
        let (mut client, memcached) = place(THREADS, &[]);
        client.passing = None;
        let mut options = options(&["server"]);
        options.mode = mode;
        Self::attached(client, memcached, &options, false)
    }

    /// With a connection that was there before the cache.
    pub fn before_attach(interfaces: &[&str]) -> Self {
        Self::make(&options(interfaces), true)
    }

    /// The same, and the cache resets it.
    pub fn before_attach_and_reset() -> Self {
        let mut options = options(&["server"]);
        options.reset_connections = true;
        Self::make(&options, true)
    }

    /// What has become of the connection that was there before: what it can read.
    pub fn read_old(&mut self) -> std::io::Result<usize> {
        let started = Instant::now();
        loop {
            match self.client.old.as_mut().unwrap().read(&mut [0; 64]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && started.elapsed() < PATIENCE => {}
                other => return other,
            }
        }
    }

    pub fn write_old(&mut self, request: &str) {
        self.client.old.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    }

    /// A cache with other options.
    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options(&["server"]);
        change(&mut options);
        Self::make(&options, false)
    }

    /// With so many threads of memcached's, and what `prepare` does before there is a cache.
    pub fn prepared(interfaces: &[&str], threads: &str, prepare: impl FnOnce()) -> Self {
        let (client, memcached) = place(threads, &[]);
        prepare();
        Self::attached(client, memcached, &options(interfaces), false)
    }

    /// Before a memcached that was started with these words too.
    pub fn of_memcached(more: &[&str]) -> Self {
        let (client, memcached) = place(THREADS, more);
        Self::attached(client, memcached, &options(&["server"]), false)
    }

    fn make(options: &Options, before: bool) -> Self {
        let (client, memcached) = place(THREADS, &[]);
        Self::attached(client, memcached, options, before)
    }

    fn attached(mut client: Client, memcached: Memcached, options: &Options, before: bool) -> Self {
        if before {
            client.old = Some(connect(&client.host));
        }
        // That memcached has started was asked over lo: such connections are to have ended.
        std::thread::sleep(Duration::from_millis(100));
        let cache = Cache::attach(options).unwrap();
        client.tcp = Some(connect(&client.host));
        let mut lab = Lab { cache, client, memcached };
        if !before {
            // Those that have not are blind, until they end.
            lab.wait("connections that were there before", |lab| lab.cache.blind() == 0);
        }
        lab
    }

    pub fn reconnect(&mut self) {
        self.client.tcp = None;
        self.client.tcp = Some(connect(&self.client.host));
    }

    /// Another connection of the client's.
    pub fn another(&self) -> TcpStream {
        connect(&self.client.host)
    }

    /// Another one, whose SYN brings these bytes (TCP Fast Open, without a cookie).
    pub fn another_with(&self, bytes: &'static [u8]) -> TcpStream {
        use rustix::net::{AddressFamily, SendFlags, SocketType, sendto, socket};
        const MSG_FASTOPEN: u32 = 0x2000_0000;
        self.client.host.run("sysctl -qw net.ipv4.tcp_fastopen=5");
        let stream = self.client.host.spawn(move || {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            let to = SocketAddr::from(([10, 9, 0, 1], 11211));
            sendto(&socket, bytes, SendFlags::from_bits_retain(MSG_FASTOPEN), &to).unwrap();
            TcpStream::from(socket)
        });
        stream.join().unwrap()
    }

    pub fn end_old(&mut self) {
        self.client.old = None;
    }

    pub fn restart(&mut self) {
        self.memcached.0.kill().unwrap();
        self.memcached.0.wait().unwrap();
        self.memcached = Memcached::start(THREADS, &[]);
    }

    /// Works for so long. However long this thread is kept from it: some rounds begin when the time is over, and see what is due by then.
    pub fn rounds(&mut self, time: Duration) {
        let (started, mut behind) = (Instant::now(), 0);
        while behind < 3 {
            behind += u32::from(started.elapsed() >= time);
            if !self.cache.round().unwrap() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    pub fn wait(&mut self, what: &str, mut done: impl FnMut(&mut Lab) -> bool) {
        let started = Instant::now();
        while !done(self) {
            assert!(
                started.elapsed() < PATIENCE,
                "{what}: {:?} {:?}",
                self.cache.counts(),
                self.cache.daemon()
            );
            self.rounds(Duration::from_millis(3));
        }
    }

    /// Asks until the answer is the cache's; every answer is this one.
    pub fn until_hit(&mut self, key: &str, answer: &str) {
        let hits = self.cache.count("get-hit");
        let request = format!("get {key}\r\n");
        self.wait(&format!("a hit of {key}"), |lab| {
            assert_eq!(lab.udp(&request), answer);
            lab.cache.count("get-hit") > hits
        });
    }

    pub fn tcp(&mut self, request: &str, reply: &str) {
        self.tcp_pieces(&[request.as_bytes()], reply);
    }

    pub fn tcp_pieces(&mut self, pieces: &[&[u8]], reply: &str) {
        for piece in pieces {
            self.client.tcp.as_mut().unwrap().write_all(piece).unwrap();
        }
        let mut seen = Vec::new();
        self.wait("an answer over TCP", |lab| lab.client.read(&mut seen) >= reply.len());
        assert_eq!(String::from_utf8_lossy(&seen), reply);
    }

    /// Sends, and waits for no answer.
    pub fn tcp_begins(&mut self, request: &str) {
        self.client.tcp.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    }

    /// Reads so many bytes of answers, while the cache works.
    pub fn tcp_reads(&mut self, bytes: usize) {
        let mut seen = Vec::new();
        self.wait("answers over TCP", |lab| (0..200).any(|_| lab.client.read(&mut seen) >= bytes));
        assert_eq!(seen.len(), bytes);
    }

    /// The client's end of the connection.
    pub fn tcp_address(&self) -> SocketAddr {
        self.client.tcp.as_ref().unwrap().local_addr().unwrap()
    }

    /// Of an answer that is no text: what it begins with.
    pub fn tcp_starts(&mut self, request: &[u8], reply: &[u8]) {
        self.client.tcp.as_mut().unwrap().write_all(request).unwrap();
        let mut seen = Vec::new();
        self.wait("an answer over TCP", |lab| lab.client.read(&mut seen) >= reply.len());
        assert!(seen.starts_with(reply), "{seen:02x?}");
    }

    /// Of both ends of the cable.
    pub fn set_mtu(&self, mtu: u32) {
        run(&format!("ip link set server mtu {mtu}"));
        self.client.host.run(&format!("ip link set client mtu {mtu}"));
    }

    /// From now on what the client sends comes by a second cable, where there are no programs; what it is sent goes by the first.
    pub fn detour(&self) {
        let (host, here) = (&self.client.host, std::process::id());
        host.run(&format!("ip link add away type veth peer name aside netns {here}"));
        run("ip link set aside up");
        host.run("ip link set away up");
        for card in ["all", "aside"] {
            run(&format!("sysctl -qw net.ipv4.conf.{card}.rp_filter=0"));
        }
        for card in ["all", "client"] {
            host.run(&format!("sysctl -qw net.ipv4.conf.{card}.rp_filter=0"));
        }
        host.run("ip route add 10.9.0.1/32 dev away");
    }

    pub fn end_detour(&self) {
        self.client.host.run("ip route del 10.9.0.1/32 dev away");
    }

    pub fn udp(&mut self, request: &str) -> String {
        self.udp_by(request, false)
    }

    pub fn udp6(&mut self, request: &str) -> String {
        self.udp_by(request, true)
    }

    fn udp_by(&mut self, request: &str, v6: bool) -> String {
        let id = self.client.send(request, v6);
        let mut answer = None;
        self.wait("an answer over UDP", |lab| {
            answer = lab.client.receive(id, v6);
            answer.is_some()
        });
        answer.unwrap()
    }

    pub fn udp_maybe(&mut self, request: &str) -> Option<String> {
        let id = self.client.send(request, false);
        self.client.receive(id, false)
    }

    /// The process ends, and leaves what is pinned.
    /// The cache goes, with programs and maps.
    pub fn detach(self) -> Left {
        drop(self.cache);
        Left { client: self.client, memcached: self.memcached }
    }

    pub fn leave(self) -> Left {
        self.cache.leave();
        Left { client: self.client, memcached: self.memcached }
    }
}

fn sum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let words =
        bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or(0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// An IP packet on Ethernet, its header's checksum right.
pub fn packet(from: &str, to: &str, protocol: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 9, 1, 2, 0, 0, 0, 9, 2];
    match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let length = (20 + data.len() as u16).to_be_bytes();
            let head = [0x45, 0, length[0], length[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
            let mut ip = [&head[..], &from.octets(), &to.octets()].concat();
            let check = !sum(&[&ip]);
            ip[10..12].copy_from_slice(&check.to_be_bytes());
            frame.extend([8, 0]);
            frame.extend(ip);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = (data.len() as u16).to_be_bytes();
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], protocol, 64]);
            frame.extend([from.octets(), to.octets()].concat());
        }
        _ => panic!("{from}, {to}: of two families"),
    }
    frame.extend(data);
    frame
}

/// A request over UDP as a frame; of IPv6 with its checksum, of IPv4 with none.
pub fn frame(from: &str, to: &str, port: u16, request: &str) -> Vec<u8> {
    let length = (16 + request.len() as u16).to_be_bytes();
    let [a, b] = port.to_be_bytes();
    let mut data = vec![0x9c, 0x40, a, b, length[0], length[1], 0, 0, 0, 7, 0, 0, 0, 1, 0, 0];
    data.extend(request.bytes());
    if let (Ok(IpAddr::V6(from)), Ok(IpAddr::V6(to))) = (from.parse(), to.parse()) {
        let check = !sum(&[&from.octets(), &to.octets(), &[0, 17], &length, &data]);
        data[6..8].copy_from_slice(&check.to_be_bytes());
    }
    packet(from, to, 17, &data)
}

/// What the program makes of a frame that comes in by an interface: the action, and the bytes.
pub fn came(lab: &Lab, interface: &str, frame: &[u8]) -> (u32, Vec<u8>) {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).unwrap();
    let interface = rustix::net::netdevice::name_to_index(socket, interface).unwrap();
    let (verdict, made) = lab.cache.object().run_once(frame, interface).unwrap();
    (verdict.action, made)
}

/// The frame that answers a get of what is kept (IPv4), as the program makes it.
pub fn answer_to(lab: &Lab, request: &str) -> Vec<u8> {
    let (action, answer) = came(lab, "server", &frame("10.9.0.2", "10.9.0.1", 11211, request));
    assert_eq!(action, 3, "answered");
    let data = &answer[34..];
    let length = (data.len() as u16).to_be_bytes();
    assert_eq!(sum(&[&answer[26..34], &[0, 17], &length, data]), 0xffff, "of UDP");
    answer
}

impl Left {
    pub fn tcp(&mut self, request: &str, reply: &str) {
        self.client.tcp.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
        let (mut seen, started) = (Vec::new(), Instant::now());
        while self.client.read(&mut seen) < reply.len() {
            assert!(started.elapsed() < PATIENCE, "an answer over TCP");
        }
        assert_eq!(String::from_utf8_lossy(&seen), reply);
    }

    pub fn attach_again(self) -> Lab {
        self.attach_with(|_| {})
    }

    pub fn attach_with(self, change: impl FnOnce(&mut Options)) -> Lab {
        let mut options = options(&["server"]);
        change(&mut options);
        let cache = Cache::attach(&options).unwrap();
        Lab { cache, client: self.client, memcached: self.memcached }
    }

    /// What is said where a cache cannot be attached.
    pub fn refused(&self, change: impl FnOnce(&mut Options)) -> String {
        let mut options = options(&["server"]);
        change(&mut options);
        match Cache::attach(&options) {
            Ok(_) => panic!("it is attached"),
            Err(error) => error.to_string(),
        }
    }
}

impl Client {
    fn read(&mut self, seen: &mut Vec<u8>) -> usize {
        let mut room = [0; 4096];
        if let Ok(read) = self.tcp.as_mut().unwrap().read(&mut room) {
            seen.extend_from_slice(&room[..read]);
        }
        seen.len()
    }

    fn send(&mut self, request: &str, v6: bool) -> u16 {
        self.id += 1;
        let [a, b] = self.id.to_be_bytes();
        let mut datagram = vec![a, b, 0, 0, 0, 1, 0, 0];
        datagram.extend_from_slice(request.as_bytes());
        let socket = if v6 { &self.udp6 } else { &self.udp };
        // A port that nobody has at the moment answers with an error.
        let _ = socket.send(&datagram);
        self.id
    }

    fn receive(&self, id: u16, v6: bool) -> Option<String> {
        let mut room = [0; 2048];
        let socket = if v6 { &self.udp6 } else { &self.udp };
        while let Ok(length) = socket.recv(&mut room) {
            let [a, b] = id.to_be_bytes();
            if room[..length].starts_with(&[a, b, 0, 0, 0, 1]) {
                return Some(String::from_utf8_lossy(&room[8..length]).into_owned());
            }
        }
        None
    }
}
