//! What those send who mean well: datagrams with numbers, paced, and a TCP transfer, through the sockets of real kernels.
//!
//! A datagram says whose it is (a stream's number, or a newcomer's, or that a later policy shall grant it) and which; so the server knows what has been lost.

use crate::netns::Netns;
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The server's port for datagrams.
pub(super) const UDP: u16 = 9000;
/// And for the transfer.
const TCP: u16 = 80;
/// Numbers of newcomers begin here; below are streams.
pub(super) const NEWCOMERS: u32 = 1 << 20;
/// Whoever only a later policy grants.
pub(super) const LATER: u32 = 1 << 30;
/// A datagram's header: who, which.
pub(super) const HEADER: usize = 8;

/// Time since the scenario began, in ns; 0 is never.
#[derive(Clone, Copy)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    pub(super) fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// One stream of datagrams.
#[derive(Default)]
pub(super) struct Stream {
    /// Datagrams a second, in thousandths; 0: none now.
    pub(super) rate: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) came: AtomicU64,
    /// When the last one came; and the first one since this was set to 0.
    pub(super) last: AtomicU64,
    pub(super) first: AtomicU64,
    numbers: Mutex<Vec<u64>>,
}

impl Stream {
    fn arrived(&self, number: u32, now: u64) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if numbers.len() <= word {
            numbers.resize(word + 1, 0);
        }
        // A datagram that comes twice counts once.
        if numbers[word] & bit == 0 {
            numbers[word] |= bit;
            self.came.fetch_add(1, Relaxed);
        }
        self.last.store(now, Relaxed);
        let _ = self.first.compare_exchange(0, now, Relaxed, Relaxed);
    }

    /// How many have come of those with numbers from `from` to `to - 1`.
    pub(super) fn arrived_of(&self, from: u64, to: u64) -> u64 {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |n: &u64| numbers.get((n / 64) as usize).is_some_and(|word| word >> (n % 64) & 1 == 1);
        (from..to).filter(is_there).count() as u64
    }
}

/// All that is sent and heard over one family.
pub(super) struct Family {
    /// The client's, a declined one's, and that of one whom a later policy declines.
    pub(super) client: Stream,
    pub(super) declined: Stream,
    pub(super) fallen: Stream,
    /// When each newcomer's first packet has come; 0: not yet.
    pub(super) newcomers: Vec<AtomicU64>,
    /// When the first one came, since this was set to 0, that only a later policy grants; and the last one.
    pub(super) later: AtomicU64,
    pub(super) later_last: AtomicU64,
    /// Bytes of the transfer: a second, and come.
    pub(super) tcp_rate: AtomicU64,
    pub(super) tcp_came: AtomicU64,
}

impl Family {
    pub(super) fn new(newcomers: u32) -> Family {
        Family {
            client: Stream::default(),
            declined: Stream::default(),
            fallen: Stream::default(),
            newcomers: (0..newcomers).map(|_| AtomicU64::new(0)).collect(),
            later: AtomicU64::new(0),
            later_last: AtomicU64::new(0),
            tcp_rate: AtomicU64::new(0),
            tcp_came: AtomicU64::new(0),
        }
    }

    /// The streams, by their numbers.
    pub(super) fn streams(&self) -> [&Stream; 3] {
        [&self.client, &self.declined, &self.fallen]
    }

    fn arrived(&self, datagram: &[u8], now: u64) {
        let Some((header, _)) = datagram.split_at_checked(HEADER) else { return };
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (who, number) = (word(0), word(4));
        if who == LATER {
            let _ = self.later.compare_exchange(0, now, Relaxed, Relaxed);
            self.later_last.store(now, Relaxed);
        } else if let Some(stream) = self.streams().get(who as usize) {
            stream.arrived(number, now);
        } else if let Some(newcomer) = self.newcomers.get(who.wrapping_sub(NEWCOMERS) as usize) {
            let _ = newcomer.compare_exchange(0, now, Relaxed, Relaxed);
        }
    }
}

pub(super) fn header(who: u32, number: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&who.to_be_bytes());
    header[4..].copy_from_slice(&number.to_be_bytes());
    header
}

/// The server's part of datagrams, until it is told to stop.
pub(super) fn receive(socket: &UdpSocket, family: &Family, clock: Clock, stop: &AtomicBool) -> Result<()> {
    // Else a pause of this thread's loses what the network did not.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, 16 << 20).context("a receive buffer")?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut buffer = [0; 2048];
    while !stop.load(Relaxed) {
        if let Ok(len) = socket.recv(&mut buffer) {
            family.arrived(&buffer[..len], clock.now());
        }
    }
    Ok(())
}

/// Sends a stream at its rate, until it is told to stop.
pub(super) fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    who: u32,
    bytes: usize,
    stream: &Stream,
    stop: &AtomicBool,
) -> Result<()> {
    let mut datagram = vec![0x5a; bytes.max(HEADER)];
    let (mut begun, mut rate, mut base) = (Instant::now(), 0, 0);
    while !stop.load(Relaxed) {
        let now = stream.rate.load(Relaxed);
        if now != rate {
            (begun, rate, base) = (Instant::now(), now, stream.sent.load(Relaxed));
        }
        let due = base + (begun.elapsed().as_secs_f64() * rate as f64 / 1000.0) as u64;
        while stream.sent.load(Relaxed) < due {
            // Counted before it is sent: nothing arrives that was not.
            let number = stream.sent.fetch_add(1, Relaxed) as u32;
            datagram[..HEADER].copy_from_slice(&header(who, number));
            // What the kernel refuses, for an ICMP error or want of room, is lost like anything on the way.
            let _ = socket.send_to(&datagram, to);
        }
        // Until the next one is due; a rate that changes is seen in time.
        let next = Duration::from_secs_f64(1000.0 / rate.max(1) as f64);
        std::thread::sleep(next.clamp(Duration::from_millis(1), Duration::from_millis(10)));
    }
    Ok(())
}

/// Takes what comes over TCP, until it is told to stop.
pub(super) fn serve(listener: &TcpListener, family: &Family, stop: &AtomicBool) -> Result<()> {
    listener.set_nonblocking(true)?;
    let mut buffer = vec![0; 1 << 16];
    let mut streams: Vec<TcpStream> = Vec::new();
    while !stop.load(Relaxed) {
        // Those who open connections and leave them are the attack.
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        streams.retain_mut(|stream| {
            loop {
                match stream.read(&mut buffer) {
                    Ok(0) => return false,
                    Ok(len) => {
                        family.tcp_came.fetch_add(len as u64, Relaxed);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    Err(_) => return false,
                }
            }
        });
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Where the transfer's server listens.
pub(super) fn listen(server: &Netns, address: IpAddr) -> Result<TcpListener> {
    let at = SocketAddr::new(address, TCP);
    server.enter(|| TcpListener::bind(at))?.with_context(|| format!("server: {at}"))
}

/// A connection to the server from one address; a moment's patience, then it is tried again.
fn connect(from: IpAddr, to: IpAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let family = if from.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = socket(family, SocketType::STREAM, None)?;
    bind(&fd, &SocketAddr::new(from, 0))?;
    rustix::net::sockopt::set_socket_timeout(
        &fd,
        rustix::net::sockopt::Timeout::Send,
        Some(Duration::from_secs(3)),
    )?;
    connect(&fd, &SocketAddr::new(to, TCP))?;
    let stream = TcpStream::from(fd);
    stream.set_write_timeout(Some(Duration::from_millis(200)))?;
    Ok(stream)
}

/// The client's part of the transfer, from within its namespace, until it is told to stop.
pub(super) fn transfer(from: IpAddr, to: IpAddr, family: &Arc<Family>, stop: &AtomicBool) {
    let chunk = vec![0x5a; 4096];
    let mut stream = None;
    let (mut begun, mut sent) = (Instant::now(), 0_u64);
    while !stop.load(Relaxed) {
        let rate = family.tcp_rate.load(Relaxed);
        let Some(open) = &mut stream else {
            stream = connect(from, to).ok();
            (begun, sent) = (Instant::now(), 0);
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        // What could not be sent for half a second is not made up for.
        if due > sent + rate / 2 {
            (begun, sent) = (Instant::now(), 0);
        } else if sent < due {
            match open.write(&chunk) {
                Ok(len) => sent += len as u64,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => stream = None,
            }
        } else {
            std::thread::sleep(Duration::from_millis(4));
        }
    }
}
