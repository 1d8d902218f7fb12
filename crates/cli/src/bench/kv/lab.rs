//! Two machines and a cable: a client's namespace, and one with a memcached, and with the cache before it or not.
//!
//! ```text
//!  processor 0: client, generator            the last processor: memcached (one thread)
//!  [client] 10.3.0.1/16 ---- 10.3.0.2/16 [cache?] [memcached]
//! ```
//! What the kernel does for a packet that arrives runs on the sender's processor: both the cache's program, and the network stack
//! in front of memcached.

use anyhow::{Context as _, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidemill_bpf::{Attachment, Kernel, Mode, Object, Source};
use tidemill_kv::kernel::{Cache, Options};

pub(super) const PORT: u16 = 11211;
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 1);
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);

/// A network namespace, as long as this lives.
pub(super) struct Netns(File);

impl Netns {
    fn new() -> Result<Self> {
        // A helper makes it, and stays until we have it open.
        let mut helper = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo; read end"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("unshare (package util-linux)")?;
        let mut line = String::new();
        let read = helper.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let file = File::open(format!("/proc/{}/ns/net", helper.id()));
        drop(helper.stdin.take());
        helper.wait()?;
        if !matches!(read, Some(Ok(1))) {
            bail!("no network namespace can be made: bench kv needs root");
        }
        let own = Netns(file.context("the new network namespace")?);
        own.run("ip link set lo up")?;
        Ok(own)
    }

    /// Does something on a thread inside.
    pub(super) fn enter<R: Send>(&self, act: impl FnOnce() -> R + Send) -> Result<R> {
        let inside = || -> std::io::Result<R> {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(act())
        };
        let done = std::thread::scope(|scope| scope.spawn(inside).join());
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).context("entering a network namespace")
    }

    pub(super) fn run(&self, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        let output = self.enter(|| command.output())?.with_context(|| line.to_owned())?;
        if !output.status.success() {
            bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

/// The daemon, on a thread of its own.
struct Daemon {
    stop: Arc<AtomicBool>,
    /// Keys answered by the cache.
    hits: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Daemon {
    fn start(server: &Netns, memory: u64) -> Result<Self> {
        let mut options = Options::new(&["server"], 0x5eed);
        options.name = format!("kv-bench-{}", std::process::id());
        options.memory = memory;
        options.rate = 0;
        let (stop, hits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted, inside) = (stop.clone(), hits.clone(), server.0.try_clone()?);
        let (ready, started) = std::sync::mpsc::channel();
        let work = move || -> Result<()> {
            move_into_link_name_space(inside.as_fd(), Some(LinkNameSpaceType::Network))?;
            let mut cache = Cache::attach(&options)?;
            let _ = ready.send(());
            let mut looked = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                if !cache.round()? {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if looked.elapsed() > Duration::from_millis(10) {
                    looked = Instant::now();
                    counted.store(cache.count("get-hit"), Ordering::Relaxed);
                }
            }
            Ok(())
        };
        let thread = std::thread::spawn(work);
        let mut own = Daemon { stop, hits, thread: Some(thread) };
        match started.recv() {
            Ok(()) => Ok(own),
            Err(_) => Err(own.end().err().unwrap_or_else(|| anyhow::anyhow!("the cache has ended"))),
        }
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => bail!("the cache's daemon has failed"),
            None => Ok(()),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has said what went wrong, if anybody asked.
        let _ = self.end();
    }
}

/// What the cache sends back arrives at a virtual card only where that has a program too: one that passes everything.
static PASSING: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../../bpf/xsk.bpf.o"),
    program: "tidemill_xsk",
    minimum: Kernel(5, 9),
    layout: 1,
    shared: &[],
};

fn passing(net: &Netns, interface: &'static str) -> Result<(Attachment, Object)> {
    net.enter(|| {
        let object = Object::load(&PASSING, &[], None)?;
        let index = tidemill_port::device(interface)?.index;
        let limit = Duration::from_secs(2);
        let at = Attachment::attach(&object, interface, index, Mode::Native, limit, None)?;
        Ok((at, object))
    })?
}

/// A client's socket.
pub(super) struct Udp {
    pub(super) socket: UdpSocket,
    _passing: (Attachment, Object),
}

/// The whole of it.
pub(super) struct Lab {
    daemon: Option<Daemon>,
    /// In place of the cache: what the flood sends arrives only where there is a program.
    _passing: Option<(Attachment, Object)>,
    memcached: Child,
    server: Netns,
    pub(super) client: Netns,
    /// Of the client's end of the cable: its Ethernet address, and the server's.
    pub(super) macs: [[u8; 6]; 2],
}

impl Lab {
    /// With the cache, of so many bytes, or without.
    pub(super) fn new(cache: Option<u64>) -> Result<Self> {
        let (client, server) = (Netns::new()?, Netns::new()?);
        let path = format!("/proc/{}/fd/{}", std::process::id(), server.0.as_raw_fd());
        client.run(&format!("ip link add name client type veth peer name server netns {path}"))?;
        let macs = [[2, 0, 0, 0, 3, 1], [2, 0, 0, 0, 3, 2]];
        for (net, name, end) in [(&client, "client", 1), (&server, "server", 2)] {
            net.run(&format!("ip link set dev {name} address 02:00:00:00:03:0{end}"))?;
            net.run(&format!("ip addr add 10.3.0.{end}/16 dev {name}"))?;
            net.run(&format!("ip link set {name} up"))?;
            // What a sender leaves to a card's checksum unit would look wrong to the program.
            net.run(&format!("ethtool -K {name} tx off"))?;
        }
        let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
        let port = PORT.to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", &last.to_string(), "memcached", "-u", "nobody", "-t", "1", "-m", "1024"]);
        command.args(["-p", &port, "-U", &port]).stdin(Stdio::null());
        let memcached = server.enter(|| command.spawn())?.context("taskset, memcached: install both")?;
        let mut lab = Lab { daemon: None, _passing: None, memcached, server, client, macs };
        let started = Instant::now();
        while lab.tcp().is_err() {
            if started.elapsed() > Duration::from_secs(10) {
                bail!("memcached does not answer: is the package memcached installed?");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        match cache {
            Some(memory) => lab.daemon = Some(Daemon::start(&lab.server, memory)?),
            None => lab._passing = Some(passing(&lab.server, "server")?),
        }
        Ok(lab)
    }

    pub(super) fn tcp(&self) -> Result<TcpStream> {
        let stream = self.client.enter(|| TcpStream::connect((SERVER, PORT)))??;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(stream)
    }

    pub(super) fn udp(&self) -> Result<Udp> {
        let socket = self.client.enter(|| UdpSocket::bind((CLIENT, 0)))??;
        socket.connect(SocketAddr::from((SERVER, PORT)))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(Udp { socket, _passing: passing(&self.client, "client")? })
    }

    /// Keys that the cache has answered for.
    pub(super) fn hits(&self) -> u64 {
        self.daemon.as_ref().map_or(0, |daemon| daemon.hits.load(Ordering::Relaxed))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.daemon = None;
        // It may have ended by itself.
        let _ = self.memcached.kill();
        let _ = self.memcached.wait();
    }
}
