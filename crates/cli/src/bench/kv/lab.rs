//! Two machines and a cable: a client's namespace, and one with a memcached, and with the cache before it or not.
//!
//! ```text
//!  processor 0: the client                                the last processor: the server
//!  [generator, its end of the cable] 10.3.0.1/16 ---- 10.3.0.2/16 [its end of the cable, cache?, network stack, memcached]
//! ```
//! Where the role is measured, the cable has a machine in its middle ([`middle`](super::middle)), on the server's processor too.
//! Each end receives on a thread of its own (threaded NAPI), which is what keeps the two apart: else the kernel would do the receiver's
//! work on the sender's processor, as it does where round trips are measured.

use super::super::cable::{FIRST, last, on, receive, urgent};
use super::load::{self, Draw};
use super::middle::{ENDS, Middle};
use crate::netns::{Netns, move_in};
use anyhow::{Context as _, Result, bail};
use rustix::thread::sched_setaffinity;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
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
/// The daemon, on a thread of its own.
struct Daemon {
    stop: Arc<AtomicBool>,
    /// Gets answered by the cache, and gets of which it had not every key; connections that were opened, and that were not followed.
    counts: Arc<[AtomicU64; 4]>,
    /// How often these have been read.
    readings: Arc<AtomicU64>,
    /// It does nothing while this is set. And how often it has worked.
    rests: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Daemon {
    fn start(server: &Netns, memory: u64) -> Result<Self> {
        let mut options = Options::new(&["server"], 0x5eed);
        options.name = format!("kv-bench-p{}", std::process::id());
        options.memory = memory;
        // The client's end of the cable has a program.
        options.mode = Mode::Native;
        (options.rate, options.rate_total) = (0, 0);
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicU64::new(0) }; 4]));
        let (rests, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted, inside) = (stop.clone(), counts.clone(), server.descriptor()?);
        let (resting, worked) = (rests.clone(), rounds.clone());
        let readings = Arc::new(AtomicU64::new(0));
        let read = readings.clone();
        let (ready, started) = std::sync::mpsc::channel();
        let work = move || -> Result<()> {
            move_in(&inside)?;
            sched_setaffinity(None, &on(last()))?;
            let mut cache = Cache::attach(&options)?;
            let _ = ready.send(());
            let mut looked = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                if resting.load(Ordering::Relaxed) {
                    std::thread::park();
                    continue;
                }
                worked.fetch_add(1, Ordering::Relaxed);
                if !cache.round()? {
                    cache.rest();
                }
                if looked.elapsed() > Duration::from_millis(10) {
                    looked = Instant::now();
                    for (count, name) in
                        counted.iter().zip(["get-hit", "get-miss", "tcp-opened", "tcp-blind"])
                    {
                        count.store(cache.count(name), Ordering::Relaxed);
                    }
                    read.fetch_add(1, Ordering::Release);
                }
            }
            Ok(())
        };
        let thread = std::thread::spawn(work);
        let mut own = Daemon { stop, counts, readings, rests, rounds, thread: Some(thread) };
        match started.recv() {
            Ok(()) => Ok(own),
            Err(_) => Err(own.end().err().unwrap_or_else(|| anyhow::anyhow!("the cache has ended"))),
        }
    }

    /// Has it rest, or work again; then until it has.
    fn rest(&self, rests: bool) -> Result<()> {
        if self.rests.swap(rests, Ordering::Relaxed) == rests {
            return Ok(());
        }
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        let (started, before) = (Instant::now(), self.rounds.load(Ordering::Relaxed));
        while !rests && self.rounds.load(Ordering::Relaxed) < before + 3 {
            if started.elapsed() > Duration::from_secs(5) {
                bail!("the cache's daemon does not work any more");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The counters as they are now: those of the reading after the next, which has begun later than this.
    fn read(&self) -> Result<[u64; 4]> {
        let (started, before) = (Instant::now(), self.readings.load(Ordering::Acquire));
        while self.readings.load(Ordering::Acquire) < before + 2 {
            if started.elapsed() > Duration::from_secs(5) {
                bail!("the cache's daemon does not count any more");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)))
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.rests.store(false, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
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

/// What the cache sends back is taken in at once only where the other end has a program too: one that passes everything.
static PASSING: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../../bpf/xsk.bpf.o"),
    program: "tidemill_xsk",
    minimum: Kernel(5, 9),
    layout: 1,
    shared: &[],
};

fn passing(net: &Netns, interface: &'static str) -> Result<(Attachment, Object)> {
    let (index, _) = net.device(interface)?;
    net.enter(|| {
        let object = Object::load(&PASSING, &[], None)?;
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

/// What is before memcached, with the bytes that it may take for values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    /// The kernel's tier, at the server's end of the cable.
    Kernel(u64),
    /// `role = "kvcache"`, on a machine in the middle of the cable.
    Role(u64),
}

/// What is put in front of one memcached, and taken away again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    Nothing,
    /// A program that passes everything: what having one costs on a virtual cable, where each packet is copied for it.
    Passing,
    /// The kernel's tier, with so many bytes.
    Cache(u64),
}

/// The whole of it.
pub(super) struct Lab {
    daemon: Option<Daemon>,
    passing: Option<(Attachment, Object)>,
    front: Front,
    middle: Option<Middle>,
    memcached: Child,
    server: Netns,
    pub(super) client: Netns,
    /// Of the client's end of the cable: its Ethernet address, and the server's.
    pub(super) macs: [[u8; 6]; 2],
    /// The flood's datagrams have a checksum.
    pub(super) checksum: bool,
}

impl Lab {
    /// With a cache or without. `checksum`: the flood's datagrams have one.
    pub(super) fn new(before: Before, checksum: bool) -> Result<Self> {
        let (client, server) = (Netns::new("client")?, Netns::new("server")?);
        let mut middle = if matches!(before, Before::Role(_)) { Some(Middle::new()?) } else { None };
        let cable = |from: &Netns, name: &str, to: &Netns, other: &str| {
            from.run(&format!("ip link add name {name} type veth peer name {other} netns {}", to.path()))
        };
        match &middle {
            None => drop(cable(&client, "client", &server, "server")?),
            Some(Middle { net, .. }) => {
                cable(&client, "client", net, ENDS[0])?;
                cable(&server, "server", net, ENDS[1])?;
                for end in ENDS {
                    net.run(&format!("ethtool -K {end} tx off gro on"))?;
                    net.run(&format!("ip link set {end} up"))?;
                }
            }
        }
        let macs = [[2, 0, 0, 0, 3, 1], [2, 0, 0, 0, 3, 2]];
        if last() == FIRST {
            bail!("bench kv needs two processors: one for the client, one for the server");
        }
        sched_setaffinity(None, &on(FIRST))?;
        for (net, name, end) in [(&client, "client", 1), (&server, "server", 2)] {
            net.run(&format!("ip link set dev {name} address 02:00:00:00:03:0{end}"))?;
            net.run(&format!("ip addr add 10.3.0.{end}/16 dev {name}"))?;
            // What a sender leaves to a card's checksum unit would look wrong to the program. With GRO on, an end has a queue for
            // frames that never were in a socket: the flood's, and the cache's.
            net.run(&format!("ethtool -K {name} tx off gro on"))?;
        }
        // An end that is up takes a flood's frames if the other one had GRO on then.
        for (net, name) in [(&client, "client"), (&server, "server")] {
            net.run(&format!("ip link set {name} up"))?;
        }
        let port = PORT.to_string();
        let mut command = Command::new("taskset");
        command.args(["-c", &last().to_string(), "memcached", "-u", "nobody", "-t", "1", "-m", "1024"]);
        command.args(["-p", &port, "-U", &port]).stdin(Stdio::null());
        let memcached = server.enter(|| command.spawn())?.context("taskset, memcached: install both")?;
        if let (Before::Role(memory), Some(middle)) = (before, &mut middle) {
            middle.start(last(), memory)?;
        }
        let front = Front::Nothing;
        let mut lab =
            Lab { daemon: None, passing: None, front, middle, memcached, server, client, macs, checksum };
        lab.apart(true)?;
        let started = Instant::now();
        while lab.tcp().is_err() {
            if started.elapsed() > Duration::from_secs(10) {
                bail!("memcached does not answer: is the package memcached installed?");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Before::Kernel(memory) = before {
            lab.daemon = Some(Daemon::start(&lab.server, memory)?);
        }
        Ok(lab)
    }

    /// Puts something else in front of the same memcached, and takes away what was there. With the kernel's tier, gets are looked for when this returns.
    pub(super) fn front(&mut self, front: Front) -> Result<()> {
        if self.front == front {
            return Ok(());
        }
        (self.daemon, self.passing) = (None, None);
        match front {
            Front::Nothing => {}
            Front::Passing => self.passing = Some(passing(&self.server, "server")?),
            Front::Cache(memory) => self.daemon = Some(Daemon::start(&self.server, memory)?),
        }
        self.front = front;
        // Whoever receives is another thread by now.
        self.apart(true)?;
        let started = Instant::now();
        while self.daemon.is_some() && self.asked()?.1 == 0 {
            if started.elapsed() > Duration::from_secs(10) {
                bail!("the cache looks for nothing");
            }
            load::window(self, &Draw::Absent(1), 1, 1, Duration::from_millis(50))?;
        }
        Ok(())
    }

    pub(super) fn tcp(&self) -> Result<TcpStream> {
        let stream = self.client.enter(|| TcpStream::connect((SERVER, PORT)))??;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(stream)
    }

    pub(super) fn udp(&self) -> Result<Udp> {
        let socket = self.client.udp(CLIENT.into(), 0)?;
        socket.connect(SocketAddr::from((SERVER, PORT)))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(Udp { socket, _passing: passing(&self.client, "client")? })
    }

    /// Whether each end receives on a thread and a processor of its own. At a low rate a processor that sleeps would have to be woken for that,
    /// which takes longer than all the rest; otherwise what arrives is taken in at once, where its sender is.
    pub(super) fn apart(&self, apart: bool) -> Result<()> {
        receive(&self.client, "client", apart.then_some(FIRST))?;
        if let Some(middle) = &self.middle {
            for end in ENDS {
                receive(&middle.net, end, apart.then(last))?;
            }
        }
        receive(&self.server, "server", apart.then(last))
    }

    /// Whether the client's end receives before everything else on its processor. The flood, which is in the kernel all the time, would not let
    /// answers in; a client that waits for them is better off without.
    pub(super) fn client_first(&self, first: bool) -> Result<()> {
        urgent("client", first)
    }

    /// Has the cache's daemon rest: nothing is served meanwhile, and nothing is to be asked.
    pub(super) fn rest(&self, rests: bool) -> Result<()> {
        self.daemon.as_ref().map_or(Ok(()), |daemon| daemon.rest(rests))
    }

    /// Keys that the cache has answered for, until now.
    pub(super) fn hits(&self) -> Result<u64> {
        Ok(self.asked()?.0)
    }

    /// Connections that the kernel's tier has seen opened, and that it does not follow, until now.
    pub(super) fn followed(&self) -> Result<(u64, u64)> {
        let [_, _, opened, blind] = self.daemon.as_ref().map_or(Ok([0; 4]), Daemon::read)?;
        Ok((opened, blind))
    }

    /// Gets that the cache has answered, and all that it has looked for, until now.
    pub(super) fn asked(&self) -> Result<(u64, u64)> {
        if let Some(middle) = &self.middle {
            // Its worker counts what it has done when the burst is over.
            std::thread::sleep(Duration::from_millis(20));
            let (hits, misses) = middle.counts().unwrap_or_default();
            return Ok((hits, hits + misses));
        }
        let [hits, misses, ..] = self.daemon.as_ref().map_or(Ok([0; 4]), Daemon::read)?;
        Ok((hits, hits + misses))
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
