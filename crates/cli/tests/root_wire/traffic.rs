//! Traffic that knows whether it arrived: TCP with hashes, TCP that lives through what a test does, numbered UDP.

use crate::net::{Netns, wait_until};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a socket waits for the other side at most: a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes per write.
const CHUNK: usize = 50_000;

/// The address that means "any", of the family of another.
pub(crate) fn any(like: IpAddr) -> SocketAddr {
    let any: IpAddr =
        if like.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, 0)
}

/// A hash of 8-byte words that notices their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hash(u64);

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        for word in bytes.as_chunks::<8>().0 {
            self.0 = (self.0 ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
    }
}

/// Sends that many bytes (a multiple of `CHUNK`) that look random, and ends the stream.
fn send(mut stream: &TcpStream, seed: u64, bytes: usize) -> Hash {
    let (mut hash, mut state) = (Hash(0), seed);
    let mut chunk = vec![0; CHUNK];
    for _ in 0..bytes / CHUNK {
        for word in chunk.as_chunks_mut::<8>().0 {
            // Marsaglia's xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state.to_le_bytes();
        }
        hash.add(&chunk);
        stream.write_all(&chunk).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    hash
}

/// Receives to the end of the stream: how many bytes, and their hash.
fn receive(mut stream: &TcpStream) -> (usize, Hash) {
    let (mut hash, mut bytes) = (Hash(0), 0);
    let mut chunk = vec![0; CHUNK];
    while stream.read_exact(&mut chunk).map_or_else(is_end, |()| true) {
        bytes += CHUNK;
        hash.add(&chunk);
    }
    (bytes, hash)
}

/// False at the end of a stream; panics for any other error.
fn is_end(error: Error) -> bool {
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
    false
}

fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// TCP between `a` and a server in `b`: so many bytes both ways at once, and what arrives is what was sent.
pub(crate) fn exchange(a: &Netns, b: &Netns, server: IpAddr, bytes: usize) {
    let start = Instant::now();
    let listener = b.listen(SocketAddr::new(server, 0));
    let near = a.connect(listener.local_addr().unwrap());
    let (far, _) = listener.accept().unwrap();
    [&near, &far].into_iter().for_each(patient);
    std::thread::scope(|scope| {
        let there = scope.spawn(|| send(&near, 1, bytes));
        let back = scope.spawn(|| send(&far, 2, bytes));
        let far_got = scope.spawn(|| receive(&far));
        let near_got = scope.spawn(|| receive(&near));
        let [there, back] = [there, back].map(|thread| (bytes, thread.join().unwrap()));
        assert_eq!(far_got.join().unwrap(), there, "{} to {}", a.name, b.name);
        assert_eq!(near_got.join().unwrap(), back, "{} to {}", b.name, a.name);
    });
    let seconds = start.elapsed().as_secs_f64();
    println!("TCP: 2 x {} MB in {seconds:.2} s, hashes match", bytes / 1_000_000);
}

/// A TCP connection at work: 4 KB there, the same 4 KB back, for ever.
pub(crate) struct Live {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    client: JoinHandle<Result<Duration, Error>>,
    server: JoinHandle<()>,
}

impl Live {
    pub(crate) fn start(a: &Netns, b: &Netns, server: IpAddr) -> Self {
        let listener = b.listen(SocketAddr::new(server, 0));
        let near = a.connect(listener.local_addr().unwrap());
        let (far, _) = listener.accept().unwrap();
        [&near, &far].into_iter().for_each(patient);
        let (rounds, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, flag) = (rounds.clone(), stop.clone());
        Live {
            server: std::thread::spawn(move || echo(far)),
            client: std::thread::spawn(move || ask(near, &counter, &flag)),
            rounds,
            stop,
        }
    }

    /// Waits until it has done some more work.
    pub(crate) fn goes_on(&self, limit: Duration) -> Duration {
        let before = self.rounds.load(Ordering::Relaxed);
        wait_until("the TCP connection goes on", limit, || {
            assert!(!self.client.is_finished(), "the TCP connection broke");
            self.rounds.load(Ordering::Relaxed) > before + 20
        })
    }

    /// Ends it: the number of rounds that it made, and the longest that one took.
    pub(crate) fn finish(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        let longest =
            self.client.join().unwrap().unwrap_or_else(|error| panic!("the TCP connection: {error}"));
        self.server.join().unwrap();
        let rounds = self.rounds.load(Ordering::Relaxed);
        println!("TCP lived: {rounds} rounds, the longest took {} ms", longest.as_millis());
        (rounds, longest)
    }
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

fn ask(mut stream: TcpStream, rounds: &AtomicU64, stop: &AtomicBool) -> Result<Duration, Error> {
    let mut longest = Duration::ZERO;
    let (mut question, mut answer) = ([0; 4096], [0; 4096]);
    while !stop.load(Ordering::Relaxed) {
        let round = rounds.load(Ordering::Relaxed);
        question.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = round.to_le_bytes());
        let start = Instant::now();
        stream.write_all(&question)?;
        stream.read_exact(&mut answer)?;
        longest = longest.max(start.elapsed());
        assert!(question == answer, "round {round} came back changed");
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(longest)
}

/// UDP flows whose packets carry numbers.
pub(crate) struct Numbered {
    stop: Arc<AtomicBool>,
    /// Nothing more is sent.
    over: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<Arrived>,
}

/// What became of numbered packets.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Packets that came after one of the same flow with a higher number.
    pub(crate) late: u64,
    /// Flows of which anything arrived.
    pub(crate) flows: usize,
    /// The longest time in which nothing arrived, between the first packet and the last.
    pub(crate) gap: Duration,
}

impl Numbered {
    /// So many flows, with so many packets per second together, of so many bytes (at least 8).
    pub(crate) fn start(
        a: &Netns,
        b: &Netns,
        to: IpAddr,
        flows: usize,
        rate_pps: usize,
        bytes: usize,
    ) -> Self {
        let receiver = b.udp(SocketAddr::new(to, 0));
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 16 << 20).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let to = receiver.local_addr().unwrap();
        let sockets: Vec<UdpSocket> = (0..flows).map(|_| a.udp(any(to.ip()))).collect();
        sockets.iter().for_each(|socket| socket.connect(to).unwrap());
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (flag, count) = (stop.clone(), sent.clone());
        let sender = std::thread::spawn(move || rain(&sockets, rate_pps, bytes, &count, &flag));
        let over = Arc::new(AtomicBool::new(false));
        let (flag, count) = (over.clone(), sent.clone());
        let receiver = std::thread::spawn(move || gather(&receiver, &count, &flag));
        Numbered { stop, over, sent, sender, receiver }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Stops, and waits for what is still on its way.
    pub(crate) fn finish(self) -> Arrived {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap();
        self.over.store(true, Ordering::Release);
        let sent = self.sent.load(Ordering::Relaxed);
        let arrived = Arrived { sent, ..self.receiver.join().unwrap() };
        println!("UDP: {arrived:?}");
        arrived
    }
}

fn rain(sockets: &[UdpSocket], rate_pps: usize, bytes: usize, sent: &AtomicU64, stop: &AtomicBool) {
    let start = Instant::now();
    let mut packet = vec![0; bytes];
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_micros() as u64 * rate_pps as u64) / 1_000_000;
        let mut number = sent.load(Ordering::Relaxed);
        while number < due {
            packet[..8].copy_from_slice(&number.to_le_bytes());
            // A link that is down, or an ICMP error about an earlier packet: this one did not go.
            if sockets[number as usize % sockets.len()].send(&packet).is_err() {
                break;
            }
            number += 1;
        }
        sent.store(number, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// To the end of what is sent, and of what is on its way: of that, some may have to wait for whoever stands still.
fn gather(socket: &UdpSocket, sent: &AtomicU64, over: &AtomicBool) -> Arrived {
    let mut arrived = Arrived::default();
    let mut highest: HashMap<SocketAddr, u64> = HashMap::new();
    let mut packet = [0; 2048];
    let mut last: Option<Instant> = None;
    // How often nothing came since.
    let mut silences = 0;
    loop {
        let is_over = over.load(Ordering::Acquire);
        match socket.recv_from(&mut packet) {
            Ok((_, from)) => {
                silences = 0;
                arrived.gap = arrived.gap.max(last.map_or(Duration::ZERO, |last| last.elapsed()));
                last = Some(Instant::now());
                let number = packet.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
                let highest = highest.entry(from).or_insert(number);
                arrived.received += 1;
                arrived.late += u64::from(number < *highest);
                *highest = number.max(*highest);
            }
            Err(_) if is_over => {
                silences += 1;
                if silences == 2 || arrived.received >= sent.load(Ordering::Relaxed) {
                    break;
                }
            }
            Err(_) => {}
        }
    }
    Arrived { flows: highest.len(), ..arrived }
}

/// Ends a thread's loop, also when the test panics: else the test would wait for the thread for ever.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
