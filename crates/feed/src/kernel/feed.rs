//! The conversation with the kernel: one socket for notifications and dumps, so that both come in one order.

use super::decode::{
    self, AF_INET, AF_INET6, AF_UNSPEC, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH, RTM_GETNEXTHOP, RTM_GETROUTE,
};
use super::mirror::{DUMP_INTR, MULTI, Mirror, Since, Step, Told};
use super::{KernelError, KernelEvent, KernelOptions, KernelPath, KernelStats, Progress};
use crate::table::AnyPrefix;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, sockopt};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `RTNLGRP_*` as bits: link 1, neigh 3, ipv4 ifaddr 5 and route 7, ipv6 ifaddr 9 and route 11, nexthop 32.
const GROUPS: u32 = 1 | 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 31;
/// The kernel fills datagrams of a dump up to this, if the reader has that much room.
const DATAGRAM: usize = 32 << 10;
/// A larger notification than this is no route of this world.
const LARGEST_DATAGRAM: usize = 16 << 20;
/// A dump that the kernel changes under is repeated this often; then what all tries saw together must do.
const TRIES: u32 = 5;
/// ... and after this long all is read again.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// How long a dump may say nothing before we ask again.
const STALLED: Duration = Duration::from_millis(200);
/// How long after a loss everything is read again: a burst should pass first. Doubles while dumps are overrun.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is dumped: its name, request, family, length of the request's own header.
const STEPS: [(Step, &str, u16, u8, usize); 6] = [
    (Step::Links, "links", RTM_GETLINK, AF_UNSPEC, 16),
    (Step::Addresses, "addresses", RTM_GETADDR, AF_UNSPEC, 8),
    (Step::Neighbors, "neighbors", RTM_GETNEIGH, AF_UNSPEC, 12),
    (Step::Objects, "nexthop objects", RTM_GETNEXTHOP, AF_UNSPEC, 8),
    (Step::RoutesV4, "IPv4 routes", RTM_GETROUTE, AF_INET, 12),
    (Step::RoutesV6, "IPv6 routes", RTM_GETROUTE, AF_INET6, 12),
];

/// A dump of everything that is under way.
struct Sync {
    began: Instant,
    /// Index into [`STEPS`].
    step: usize,
    tries: u32,
    /// The first request of this try; the end of an older dump is not this one's.
    first: u32,
    /// The dumps of the present step's first and of its present try.
    dumps: (u32, u32),
    since: Since,
    /// The kernel changed under this step's dump.
    dirty: bool,
    /// The last try of some step was dirty too.
    unsure: bool,
    /// Messages were lost since it began.
    lost: bool,
    /// When the kernel last said something.
    heard: Instant,
}

/// Routes, links, addresses and neighbors of one network namespace, live.
///
/// Call [`KernelFeed::poll`] when the descriptor ([`AsFd`]) is readable, and at least every 100 ms.
pub struct KernelFeed {
    socket: OwnedFd,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
    datagrams_per_poll: usize,
    mirror: Mirror,
    sync: Option<Sync>,
    due: Option<Instant>,
    pause: Duration,
    ever: bool,
}

fn failed(what: &'static str) -> impl Fn(Errno) -> KernelError {
    move |error| KernelError::Socket { what, source: error.into() }
}

impl KernelFeed {
    /// Opens the feed in the network namespace of the calling thread; it stays there, whichever thread polls it. The
    /// first polls read everything there is.
    pub fn open(options: &KernelOptions) -> Result<Self, KernelError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // NETLINK_ROUTE is protocol 0.
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)
            .map_err(failed("open a socket"))?;
        let size = options.receive_buffer;
        // Beyond the system's limit only with CAP_NET_ADMIN.
        if sockopt::set_socket_recv_buffer_size_force(&socket, size).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, size).map_err(failed("set the receive buffer"))?;
        }
        net::bind(&socket, &netlink::SocketAddrNetlink::new(0, GROUPS)).map_err(failed("join the groups"))?;
        let own = net::getsockname(&socket).map_err(failed("read its own address"))?;
        let own = netlink::SocketAddrNetlink::try_from(own).map_err(failed("read its own address"))?;
        let mut mirror = Mirror::new(&options.tables);
        mirror.stats.receive_buffer =
            sockopt::socket_recv_buffer_size(&socket).map_err(failed("read the receive buffer"))?;
        Ok(KernelFeed {
            socket,
            port: own.pid(),
            sequence: 0,
            buffer: vec![0; DATAGRAM],
            datagrams_per_poll: options.datagrams_per_poll.max(1),
            mirror,
            sync: None,
            due: Some(Instant::now()),
            pause: SHORTEST_PAUSE,
            ever: false,
        })
    }

    /// Reads what has arrived, and appends what changed since the last call to `out`. The work is bounded by
    /// [`KernelOptions::datagrams_per_poll`], but for the scans of all routes that a dead link and the end of a dump
    /// need. After a loss it dumps everything again by itself, over as many calls as it takes.
    ///
    /// # Errors
    ///
    /// The socket failed, or the kernel refuses a dump; the feed is of no more use.
    pub fn poll(&mut self, out: &mut Vec<KernelEvent>) -> Result<Progress, KernelError> {
        let before = self.mirror.stats.messages;
        let mut more = true;
        for _ in 0..self.datagrams_per_poll {
            match net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC) {
                Ok((_, length)) if length > self.buffer.len() => {
                    self.buffer.resize(length.min(LARGEST_DATAGRAM), 0);
                    self.lost();
                }
                Ok((_, length)) => self.datagram(length, out)?,
                Err(Errno::NOBUFS) => self.lost(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    more = false;
                    break;
                }
                Err(error) => return Err(failed("receive")(error)),
            }
        }
        self.mirror.settle(out);
        if self.mirror.take_wants_dump() {
            self.read_again_after(SHORTEST_PAUSE);
        }
        self.keep_dumping()?;
        let messages = self.mirror.stats.messages - before;
        Ok(Progress { messages, more, syncing: self.sync.is_some() || self.due.is_some() })
    }

    /// The counters.
    pub fn stats(&self) -> KernelStats {
        self.mirror.stats.clone()
    }

    /// What was last reported of each prefix that has a path, in no order.
    pub fn routes(&self) -> impl Iterator<Item = (u32, AnyPrefix, Arc<KernelPath>)> {
        self.mirror.routes()
    }

    /// The kernel dropped messages.
    fn lost(&mut self) {
        self.mirror.stats.overruns += 1;
        match &mut self.sync {
            // The dump is of use no more, but the kernel has to end it before it begins another.
            Some(sync) => sync.lost = true,
            None => self.read_again_after(self.pause),
        }
    }

    fn read_again_after(&mut self, pause: Duration) {
        let at = Instant::now() + pause;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn datagram(&mut self, length: usize, out: &mut Vec<KernelEvent>) -> Result<(), KernelError> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.messages(buffer.get(..length).unwrap_or(&buffer), out);
        self.buffer = buffer;
        result
    }

    fn messages(&mut self, datagram: &[u8], out: &mut Vec<KernelEvent>) -> Result<(), KernelError> {
        for frame in decode::frames(datagram) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(wrong) => {
                    self.mirror.undecodable(0, wrong.0);
                    continue;
                }
            };
            let ours = frame.port == self.port;
            let told = self.mirror.frame(&frame, ours && frame.flags & MULTI != 0, out);
            let Some(sync) = &mut self.sync else { continue };
            if ours {
                sync.heard = Instant::now();
                sync.dirty |= frame.flags & DUMP_INTR != 0;
            }
            let present = ours && (sync.first..=self.sequence).contains(&frame.sequence);
            match told {
                // IPv4 is dumped by key, so that what does not change is not left out, and the mirror knows what does.
                Told::News(kind) => sync.dirty |= kind == STEPS[sync.step].0 && kind != Step::RoutesV4,
                Told::Dumped(against) => sync.dirty |= against,
                Told::Done(code) if present => {
                    sync.dirty |= code < 0;
                    self.step_done(out)?;
                }
                Told::Answer(code) if present => self.answer(code, out)?,
                Told::Done(_) | Told::Answer(_) | Told::Nothing => {}
            }
        }
        Ok(())
    }

    /// The kernel refused a request, or will answer later.
    fn answer(&mut self, code: i32, out: &mut Vec<KernelEvent>) -> Result<(), KernelError> {
        let Some(sync) = &mut self.sync else { return Ok(()) };
        match Errno::from_raw_os_error(-code) {
            // One is under way, or there was no room: `keep_dumping` asks again.
            _ if code == 0 => Ok(()),
            Errno::BUSY | Errno::NOBUFS | Errno::NOMEM | Errno::INTR | Errno::AGAIN => Ok(()),
            // The kernel knows nothing of the kind.
            Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT => self.step_done(out),
            error => Err(KernelError::Refused { what: STEPS[sync.step].1, source: error.into() }),
        }
    }

    fn step_done(&mut self, out: &mut Vec<KernelEvent>) -> Result<(), KernelError> {
        let Some(sync) = &mut self.sync else { return Ok(()) };
        if sync.lost {
            // Everything again, a little later, for the burst is not over.
            self.sync = None;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            self.read_again_after(self.pause);
            return Ok(());
        }
        if sync.dirty && sync.tries < TRIES {
            self.mirror.stats.repeated_dumps += 1;
            return self.dump();
        }
        // What a clean dump did not see is gone; otherwise, what none of the tries saw.
        sync.since[sync.step] = if sync.dirty { sync.dumps.0 } else { sync.dumps.1 };
        sync.unsure |= sync.dirty;
        sync.step += 1;
        sync.tries = 0;
        if sync.step < STEPS.len() {
            return self.dump();
        }
        let (began, unsure, since) = (sync.began, sync.unsure, sync.since);
        self.sync = None;
        self.pause = SHORTEST_PAUSE;
        self.mirror.end_dump(&since, out);
        self.mirror.stats.last_sync = Some(began.elapsed());
        self.mirror.stats.resyncs += u64::from(self.ever);
        self.ever = true;
        out.push(KernelEvent::InSync);
        if unsure {
            self.read_again_after(TRY_AGAIN);
        }
        Ok(())
    }

    /// Begins a dump that is due; asks again where the kernel has stopped in the middle of one.
    fn keep_dumping(&mut self) -> Result<(), KernelError> {
        let now = Instant::now();
        match &mut self.sync {
            None if self.due.is_some_and(|due| due <= now) => {
                self.due = None;
                self.sync = Some(Sync {
                    began: now,
                    step: 0,
                    tries: 0,
                    first: 0,
                    dumps: (0, 0),
                    since: Since::default(),
                    dirty: false,
                    unsure: false,
                    lost: false,
                    heard: now,
                });
                self.dump()
            }
            // The kernel goes on with a dump only when it is read from: its refusal of a second one wakes the first.
            Some(sync) if now.duration_since(sync.heard) > STALLED => {
                sync.heard = now;
                self.request()
            }
            _ => Ok(()),
        }
    }

    /// Begins a try of the present step.
    fn dump(&mut self) -> Result<(), KernelError> {
        let Some(sync) = &mut self.sync else { return Ok(()) };
        let number = self.mirror.begin_dump(STEPS[sync.step].0);
        sync.dumps = (if sync.tries == 0 { number } else { sync.dumps.0 }, number);
        sync.tries += 1;
        sync.dirty = false;
        sync.first = self.sequence.wrapping_add(1);
        self.request()
    }

    /// Asks for the dump of the present step.
    fn request(&mut self) -> Result<(), KernelError> {
        let Some(sync) = &self.sync else { return Ok(()) };
        let (_, _, kind, family, header) = STEPS[sync.step];
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = [0u8; 32];
        let length = 16 + header;
        request[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[16] = family;
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        match net::sendto(&self.socket, &request[..length], SendFlags::empty(), &kernel) {
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(()),
            Err(error) => Err(failed("ask for a dump")(error)),
        }
    }
}

impl AsFd for KernelFeed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
