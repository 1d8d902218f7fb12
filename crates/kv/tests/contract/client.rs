//! Sockets to memcached: requests go out as the test has written them, and replies are given as they came.

use super::wire::{self, Ask, Heard, Said, Speech};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long a reply may take over TCP, where none is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// A UDP socket, and where its requests go.
pub(crate) struct Udp {
    socket: UdpSocket,
    to: SocketAddr,
    next: u16,
    /// How long a reply is waited for.
    pub(crate) wait: Duration,
}

impl Udp {
    pub(crate) fn new(socket: UdpSocket, to: SocketAddr) -> Self {
        // Requests of two sockets should not look alike.
        let next = socket.local_addr().map_or(1, |address| address.port().wrapping_mul(257));
        Udp { socket, to, next, wait: Duration::from_millis(500) }
    }

    /// Sends a request; its number.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> u16 {
        self.next = self.next.wrapping_add(1);
        self.send_frame(&wire::datagram(self.next, bytes));
        self.next
    }

    /// Sends a datagram as it is.
    pub(crate) fn send_frame(&self, frame: &[u8]) {
        // An error is an answer of before: that nobody listened.
        if self.socket.send_to(frame, self.to).is_err() {
            drop(self.socket.send_to(frame, self.to));
        }
    }

    /// The next datagram, if one comes in time.
    pub(crate) fn frame(&self, wait: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + wait;
        let mut bytes = vec![0; 65_536];
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
            self.socket.set_read_timeout(Some(left)).unwrap();
            match self.socket.recv_from(&mut bytes) {
                Ok((length, from)) if from == self.to => {
                    bytes.truncate(length);
                    return Some(bytes);
                }
                // Somebody else's, or an error of before.
                _ if Instant::now() >= end => return None,
                _ => {}
            }
        }
    }

    /// The whole reply to a request, its datagrams put together; none if a part does not come.
    pub(crate) fn receive(&mut self, request: u16) -> Option<Vec<u8>> {
        let end = Instant::now() + self.wait;
        let mut parts: Vec<Option<Vec<u8>>> = Vec::new();
        loop {
            let frame = self.frame(end.saturating_duration_since(Instant::now()))?;
            let Some((number, at, total)) = wire::header(&frame) else { continue };
            if number != request {
                continue;
            }
            parts.resize(parts.len().max(usize::from(total)), None);
            if let Some(part) = parts.get_mut(usize::from(at)) {
                *part = Some(frame[8..].to_vec());
            }
            if parts.iter().all(Option::is_some) {
                return Some(parts.into_iter().flatten().flatten().collect());
            }
        }
    }

    /// The reply to an ASCII `get`: memcached gives every value datagrams of its own, numbered by themselves, and the end with the
    /// last one; another may put all into one datagram.
    pub(crate) fn receive_values(&mut self, request: u16) -> Option<Vec<u8>> {
        let end = Instant::now() + self.wait;
        let mut bytes = Vec::new();
        loop {
            let frame = self.frame(end.saturating_duration_since(Instant::now()))?;
            if wire::header(&frame).is_some_and(|(number, ..)| number == request) {
                bytes.extend(&frame[8..]);
                if wire::values(&bytes).is_some() {
                    return Some(bytes);
                }
            }
        }
    }

    /// The reply to a request, asked again if it is lost: for questions only.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        (0..4).find_map(|_| {
            let request = self.send(bytes);
            if bytes.starts_with(b"get ") { self.receive_values(request) } else { self.receive(request) }
        })
    }

    /// All datagrams that come to a request until it is quiet, beside those that have come: header without the request's number, and the rest.
    pub(crate) fn all(&self, request: u16, quiet: Duration, frames: &mut Vec<Vec<u8>>) {
        while let Some(frame) = self.frame(quiet) {
            if wire::header(&frame).is_some_and(|(number, ..)| number == request) {
                frames.push(frame[2..].to_vec());
            }
        }
    }
}

/// A TCP connection.
pub(crate) struct Tcp {
    pub(crate) stream: TcpStream,
    /// What has come and was not asked for yet.
    held: Vec<u8>,
}

impl Tcp {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Each write is a segment of its own.
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Tcp { stream, held: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// In pieces that end at the places given.
    pub(crate) fn send_cut(&mut self, bytes: &[u8], cuts: &[usize]) {
        let mut from = 0;
        for &to in cuts.iter().chain([&bytes.len()]) {
            self.send(&bytes[from..to]);
            from = to;
        }
    }

    /// Reads some more; what is wrong, if the connection has ended.
    fn more(&mut self) -> Result<(), String> {
        let mut bytes = [0; 65_536];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err("memcached has closed the connection".into()),
                Ok(length) => {
                    self.held.extend(&bytes[..length]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("no reply: {error}")),
            }
        }
    }

    /// The next reply, to what was asked.
    pub(crate) fn hear(&mut self, speech: Speech, ask: &Ask) -> Result<Heard, String> {
        loop {
            if let Some(heard) = wire::reply(speech, ask, &self.held) {
                self.held.drain(..heard.used);
                return Ok(heard);
            }
            self.more()?;
        }
    }

    /// Asks, and gives what is said.
    pub(crate) fn ask(&mut self, speech: Speech, ask: &Ask, key: &[u8]) -> Said {
        self.send(&wire::request(speech, ask, key, false, 7));
        self.hear(speech, ask).unwrap().said
    }

    /// Everything that is said up to the answer to a last command that does nothing: replies may be missing.
    pub(crate) fn until_noop(&mut self, binary: bool) -> Vec<u8> {
        const OPAQUE: u32 = 0xa5a5_5a5a;
        let (last, wanted) = if binary {
            let mut wanted = wire::packet(0x0a, b"", b"", b"", OPAQUE, 0);
            wanted[0] = 0x81;
            (wire::packet(0x0a, b"", b"", b"", OPAQUE, 0), wanted)
        } else {
            (b"mn\r\n".to_vec(), b"MN\r\n".to_vec())
        };
        self.send(&last);
        loop {
            if self.held.ends_with(&wanted) {
                let length = self.held.len() - wanted.len();
                let said = self.held[..length].to_vec();
                self.held.clear();
                return said;
            }
            if let Err(error) = self.more() {
                // That, too, has to be the same on both sides.
                return [&std::mem::take(&mut self.held)[..], error.as_bytes()].concat();
            }
        }
    }

    /// A number of `stats`.
    pub(crate) fn stat(&mut self, name: &str) -> u64 {
        self.send(b"stats\r\n");
        loop {
            if self.held.ends_with(b"END\r\n") {
                let text = String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned();
                let start = format!("STAT {name} ");
                let value = text.lines().find_map(|line| line.strip_prefix(&start));
                return value.and_then(|value| value.trim().parse().ok()).unwrap();
            }
            self.more().unwrap();
        }
    }
}

impl Tcp {
    /// The values of an ASCII `get` of several keys. What comes before, with this opaque, is what quiet commands complain of.
    pub(crate) fn hear_values(&mut self, quiet: u32) -> Result<Vec<wire::Named>, String> {
        loop {
            while let Some(end) = self.held.windows(2).position(|two| two == b"\r\n") {
                if !wire::is_of(&self.held[..end], quiet) {
                    break;
                }
                self.held.drain(..end + 2);
            }
            if let Some(values) = wire::values(&self.held) {
                let (values, used) = values?;
                self.held.drain(..used);
                return Ok(values);
            }
            self.more()?;
        }
    }

    /// Whether nothing has come that was not asked for.
    pub(crate) fn is_even(&self) -> bool {
        self.held.is_empty()
    }
}

impl Tcp {
    /// The reply to `mg KEY t ...`, and how many seconds the value has left; none: it does not expire.
    pub(crate) fn hear_with_seconds(&mut self) -> (Said, Option<u64>) {
        while !self.held.windows(2).any(|two| two == b"\r\n") {
            self.more().unwrap();
        }
        let line = self.held.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let seconds = line.split(' ').skip(1).find_map(|word| word.strip_prefix('t')?.parse().ok());
        let heard = self.hear(Speech::Meta, &Ask::Gets).unwrap();
        (heard.said, seconds)
    }
}
