//! The sockets of a [`Speaker`] and of BMP stations. It has no thread: who owns it calls [`Runner::poll`], as with the kernel's
//! feed, and each call does a bounded amount of work.

use crate::bmp::{BmpStats, Own, ShownBmpPeer, Station, View};
use crate::message::put_notice;
use crate::notice::{self, Notice};
use crate::rib::Change;
use crate::session::{SECOND, State};
use crate::signature::{self, Signature};
use crate::speaker::{ConnectionId, PeerConfig, Refusal, Speaker, SpeakerConfig};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Read at once.
const CHUNK: usize = 64 << 10;
/// Chunks that one call reads from one connection: the others want their turn, and time goes on.
const CHUNKS_PER_POLL: usize = 16;
/// Who does not read what we have to say is not listened to either.
const OUTPUT_MAX: usize = 1 << 20;
/// Prefixes that one call looks at, when what concerns all of them (a peer that is gone) is carried out.
const PREFIXES_PER_POLL: usize = 32_768;
/// Connections taken in one call.
const ACCEPTED_PER_POLL: usize = 64;
/// How long a connection of ours may take, and how long it is until the next try.
const CONNECT_NS: u64 = 5 * SECOND;
const RETRY_NS: u64 = 5 * SECOND;
/// How long the peer may take to read why a session has ended.
const LINGER_NS: u64 = SECOND;
/// After how much silence of a BMP exporter the kernel asks whether it is there, how often, and how many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVES: u32 = 3;

/// A router that may connect as a BMP exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BmpConfig {
    /// What it is called.
    pub name: String,
    /// Its address: connections from others are refused.
    pub address: IpAddr,
    /// Which of its tables is taken.
    pub view: View,
    /// Prefixes (paths) of one of its peers.
    pub max_prefixes: u32,
}

/// What a runner goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerConfig {
    /// Where peers connect to. May be empty, where we connect to all of them.
    pub listen: Vec<SocketAddr>,
    /// Whose sessions.
    pub speaker: SpeakerConfig,
    /// Where BMP exporters connect to.
    pub bmp_listen: Vec<SocketAddr>,
    /// The exporters.
    pub bmp: Vec<BmpConfig>,
}

/// Why sockets cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// Another program has the port, it is not allowed, or there is no such address.
    #[error(
        "cannot listen on {address}: {source}; is another BGP daemon there? ports below 1024 want root or CAP_NET_BIND_SERVICE"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// TCP MD5 or TCP-AO.
    #[error("peer {peer}: its segments cannot be signed: {source}")]
    Signature {
        /// Whose.
        peer: String,
        /// What the system says.
        source: std::io::Error,
    },
}

struct Socket {
    stream: TcpStream,
    /// The session is over and all is said; until then we wait for the peer to hear it.
    closing_until: Option<u64>,
}

/// A connection that is being made.
struct Attempt {
    stream: TcpStream,
    peer: IpAddr,
    until: u64,
}

struct Exporter {
    config: BmpConfig,
    station: Station,
    stream: Option<TcpStream>,
}

/// A BMP exporter as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownExporter {
    /// What it is called.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// What it calls itself.
    pub system: String,
    /// Whether it is connected.
    pub connected: bool,
    /// What came.
    pub stats: BmpStats,
    /// Its peers.
    pub peers: Vec<ShownBmpPeer>,
}

/// What a call came across.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub bytes: u64,
    /// There is more to do at once: to read, or prefixes to look at.
    pub more: bool,
}

/// A speaker with its sockets.
pub struct Runner {
    speaker: Speaker,
    listeners: Vec<TcpListener>,
    sockets: BTreeMap<ConnectionId, Socket>,
    attempts: Vec<Attempt>,
    retry: BTreeMap<IpAddr, u64>,
    bmp_listeners: Vec<TcpListener>,
    exporters: Vec<Exporter>,
    buffer: Vec<u8>,
    notes: Vec<String>,
    refused: u64,
}

impl Runner {
    /// Listens, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// A socket that cannot be had.
    pub fn open(config: RunnerConfig) -> Result<Self, RunnerError> {
        let RunnerConfig { listen, speaker, bmp_listen, bmp } = config;
        let listen_on = |address: &SocketAddr| {
            listener(*address)
                .map_err(|source| RunnerError::Listen { address: *address, source: source.into() })
        };
        let listeners = listen.iter().map(listen_on).collect::<Result<Vec<_>, _>>()?;
        sign(&listeners, &speaker.peers)?;
        let own = Own { asn: speaker.asn, id: speaker.id };
        let exporter = |config: BmpConfig| {
            let station = Station::new(config.view, config.max_prefixes, own);
            Exporter { config, station, stream: None }
        };
        Ok(Runner {
            bmp_listeners: bmp_listen.iter().map(listen_on).collect::<Result<Vec<_>, _>>()?,
            exporters: bmp.into_iter().map(exporter).collect(),
            speaker: Speaker::new(speaker),
            listeners,
            sockets: BTreeMap::new(),
            attempts: Vec::new(),
            retry: BTreeMap::new(),
            buffer: vec![0; CHUNK],
            notes: Vec::new(),
            refused: 0,
        })
    }

    /// The speaker.
    pub fn speaker(&self) -> &Speaker {
        &self.speaker
    }

    /// The same, to change it.
    pub fn speaker_mut(&mut self) -> &mut Speaker {
        &mut self.speaker
    }

    /// Takes other peers: sessions of those that are gone or have changed are ended, the others stay.
    ///
    /// # Errors
    /// A signature that cannot be set; nothing has changed then, and the same call may be made again.
    pub fn set_peers(&mut self, now_ns: u64, peers: Vec<PeerConfig>) -> Result<(), RunnerError> {
        if peers == self.speaker.config().peers {
            return Ok(());
        }
        let before = &self.speaker.config().peers;
        if let Err(error) = sign_anew(&self.listeners, before, &peers) {
            // The sessions stay as they are, and whoever has one can come back. What was not set cannot be taken back: no matter.
            drop(sign_anew(&self.listeners, &peers, before));
            return Err(error);
        }
        self.attempts.clear();
        self.retry.clear();
        self.speaker.set_peers(now_ns, peers);
        Ok(())
    }

    /// Ends all sessions with a word, as far as it can be said at once: the process goes.
    pub fn shut_down(&mut self) {
        self.speaker.shut_down();
        for (id, socket) in &mut self.sockets {
            if let Some(session) = self.speaker.session(*id) {
                drop(send(&mut socket.stream, session.output()));
            }
        }
    }

    /// Where we listen, with the ports that the system chose.
    pub fn listening(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Where we listen for BMP.
    pub fn bmp_listening(&self) -> Vec<SocketAddr> {
        self.bmp_listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// The BMP exporters.
    pub fn exporters(&self) -> impl Iterator<Item = ShownExporter> {
        self.exporters.iter().map(|exporter| ShownExporter {
            name: exporter.config.name.clone(),
            address: exporter.config.address,
            system: exporter.station.name().into(),
            connected: exporter.stream.is_some(),
            stats: exporter.station.stats(),
            peers: exporter.station.peers().collect(),
        })
    }

    /// Connections refused so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What there is to say, a line each, since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = self.speaker.take_notes();
        notes.append(&mut self.notes);
        notes
    }

    /// Does what can be done without waiting; appends what changed to `changes`. To be called when the clock has gone on by some
    /// milliseconds at most, and at once where there is [`more`](Progress::more).
    pub fn poll(&mut self, now_ns: u64, changes: &mut Vec<Change>) -> Progress {
        let mut progress = Progress::default();
        self.accept(now_ns, changes);
        self.connect(now_ns, changes);
        let ids: Vec<ConnectionId> = self.sockets.keys().copied().collect();
        for id in ids {
            if !self.serve(now_ns, id, changes, &mut progress) {
                self.sockets.remove(&id);
                self.speaker.closed(now_ns, id, changes);
            }
        }
        self.speaker.tick(now_ns, changes);
        // What the clock had to say goes out, too.
        for (id, socket) in &mut self.sockets {
            if let Some(session) = self.speaker.session(*id) {
                drop(send(&mut socket.stream, session.output()));
            }
        }
        self.hear_exporters(changes, &mut progress);
        progress.more |= self.speaker.rib_mut().sweep(PREFIXES_PER_POLL, changes);
        progress
    }

    fn accept(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        let mut accepted = Vec::new();
        for listener in &self.listeners {
            while accepted.len() < ACCEPTED_PER_POLL
                && let Ok((stream, remote)) = listener.accept()
            {
                accepted.push((stream, remote.ip()));
            }
        }
        for (stream, remote) in accepted {
            self.take(now_ns, stream, remote, false, changes);
        }
    }

    /// A connection that has been made.
    fn take(
        &mut self,
        now_ns: u64,
        mut stream: TcpStream,
        remote: IpAddr,
        ours: bool,
        changes: &mut Vec<Change>,
    ) {
        let Ok(local) = stream.local_addr() else { return };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        // Keepalives are small, and late ones are dear.
        drop(stream.set_nodelay(true));
        match self.speaker.connected(now_ns, remote, local.ip(), ours, changes) {
            Ok(id) => drop(self.sockets.insert(id, Socket { stream, closing_until: None })),
            Err(refusal) => {
                self.refused += 1;
                if !matches!(refusal, Refusal::Unknown(_)) {
                    let mut out = Vec::new();
                    put_notice(&mut out, &Notice::new(notice::CEASE, notice::REJECTED));
                    drop(stream.write(&out));
                }
                self.note(format!("connection refused: {refusal}"));
            }
        }
    }

    fn note(&mut self, line: String) {
        // A stranger that knocks all day must not fill our memory, nor the log: the count goes on.
        if self.notes.len() < 100 && self.notes.last() != Some(&line) {
            self.notes.push(line);
        }
    }

    /// Makes connections that are wanted, and takes over those that have been made.
    fn connect(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        let Runner { speaker, attempts, retry, .. } = self;
        let mut notes = Vec::new();
        for peer in speaker.wanted(now_ns) {
            let tried = attempts.iter().any(|attempt| attempt.peer == peer.address);
            if tried || retry.get(&peer.address).is_some_and(|at| now_ns < *at) {
                continue;
            }
            retry.insert(peer.address, now_ns.saturating_add(RETRY_NS));
            let address = SocketAddr::new(peer.address, peer.port);
            match begin(address, peer.local, peer.signature.as_ref()) {
                Ok(stream) => {
                    let until = now_ns.saturating_add(CONNECT_NS);
                    attempts.push(Attempt { stream, peer: peer.address, until });
                }
                Err(error) => notes.push(format!("peer {}: cannot connect to {address}: {error}", peer.name)),
            }
        }
        let mut made = Vec::new();
        for attempt in std::mem::take(attempts) {
            match attempt.stream.take_error() {
                Ok(None) if attempt.stream.peer_addr().is_ok() => made.push(attempt),
                Ok(None) if now_ns < attempt.until => attempts.push(attempt),
                _ => {}
            }
        }
        notes.into_iter().for_each(|line| self.note(line));
        for attempt in made {
            self.take(now_ns, attempt.stream, attempt.peer, true, changes);
        }
    }

    /// Reads and writes one connection. Returns whether it lives on.
    fn serve(
        &mut self,
        now_ns: u64,
        id: ConnectionId,
        changes: &mut Vec<Change>,
        progress: &mut Progress,
    ) -> bool {
        let Runner { speaker, sockets, buffer, .. } = self;
        let Some(socket) = sockets.get_mut(&id) else { return false };
        let mut chunks = 0;
        loop {
            let Some(session) = speaker.session(id) else { return false };
            let over = session.state() == State::Closed;
            if send(&mut socket.stream, session.output()).is_err() {
                return false;
            }
            if over && session.output().is_empty() && socket.closing_until.is_none() {
                // Closing at once, with bytes of the peer's unread, could cost it our last words.
                if socket.stream.shutdown(Shutdown::Write).is_err() {
                    return false;
                }
                socket.closing_until = Some(now_ns.saturating_add(LINGER_NS));
            }
            if socket.closing_until.is_some_and(|until| now_ns >= until) {
                return false;
            }
            if session.output().len() > OUTPUT_MAX {
                return true;
            }
            if chunks == CHUNKS_PER_POLL {
                progress.more = true;
                return true;
            }
            chunks += 1;
            match socket.stream.read(buffer) {
                Ok(0) => return false,
                Ok(length) => {
                    progress.bytes += length as u64;
                    speaker.receive(now_ns, id, &buffer[..length], changes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    fn hear_exporters(&mut self, changes: &mut Vec<Change>, progress: &mut Progress) {
        let mut notes = Vec::new();
        for listener in &self.bmp_listeners {
            for _ in 0..ACCEPTED_PER_POLL {
                let Ok((stream, remote)) = listener.accept() else { break };
                let remote = remote.ip().to_canonical();
                let known = self.exporters.iter_mut().find(|exporter| exporter.config.address == remote);
                let Some(exporter) = known.filter(|_| stream.set_nonblocking(true).is_ok()) else {
                    self.refused += 1;
                    notes.push(format!("BMP connection refused: {remote} is no router of ours: add it to the configuration, or leave it"));
                    continue;
                };
                drop(keep_alive(&stream));
                // A router that connects again has forgotten the connection before.
                if exporter.stream.replace(stream).is_some() {
                    exporter.station.lost(self.speaker.rib_mut());
                }
            }
        }
        for exporter in &mut self.exporters {
            for chunk in 0..=CHUNKS_PER_POLL {
                let Some(stream) = &mut exporter.stream else { break };
                if chunk == CHUNKS_PER_POLL {
                    progress.more = true;
                    break;
                }
                let why = match stream.read(&mut self.buffer) {
                    Ok(0) => "connection closed".to_string(),
                    Ok(length) => {
                        progress.bytes += length as u64;
                        let rib = self.speaker.rib_mut();
                        match exporter.station.receive(&self.buffer[..length], rib, changes) {
                            Ok(()) => continue,
                            Err(error) => error.to_string(),
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => error.to_string(),
                };
                exporter.stream = None;
                exporter.station.lost(self.speaker.rib_mut());
                notes.push(format!(
                    "BMP router {} ({}): {why}",
                    exporter.config.name, exporter.config.address
                ));
            }
        }
        notes.into_iter().for_each(|line| self.note(line));
    }
}

/// Has the segments of these peers signed instead of those before. All that can be taken back is, whatever else fails.
fn sign_anew(
    listeners: &[TcpListener],
    before: &[PeerConfig],
    peers: &[PeerConfig],
) -> Result<(), RunnerError> {
    let mut result = Ok(());
    for old in before {
        let Some(signature) = &old.signature else { continue };
        let kept = |new: &PeerConfig| new.address == old.address && new.signature == old.signature;
        if !peers.iter().any(kept) {
            let unset = |listener: &TcpListener| signature::unset(listener, old.address, signature);
            result = result.and(on_listeners(listeners, old, unset));
        }
    }
    result.and(sign(listeners, peers))
}

/// Has the segments of peers signed where they connect to.
fn sign(listeners: &[TcpListener], peers: &[PeerConfig]) -> Result<(), RunnerError> {
    for peer in peers {
        if let Some(signature) = &peer.signature {
            on_listeners(listeners, peer, |listener| signature::set(listener, peer.address, signature))?;
        }
    }
    Ok(())
}

/// Does something to the listening sockets of a peer's family.
fn on_listeners(
    listeners: &[TcpListener],
    peer: &PeerConfig,
    work: impl Fn(&TcpListener) -> std::io::Result<()>,
) -> Result<(), RunnerError> {
    let of_family = |listener: &&TcpListener| {
        listener.local_addr().is_ok_and(|address| address.is_ipv4() == peer.address.is_ipv4())
    };
    let result = listeners.iter().filter(of_family).try_for_each(work);
    result.map_err(|source| RunnerError::Signature { peer: peer.name.clone(), source })
}

/// Sends what the connection takes.
fn send(stream: &mut TcpStream, output: &mut Vec<u8>) -> std::io::Result<()> {
    let mut sent = 0;
    let result = loop {
        if sent == output.len() {
            break Ok(());
        }
        match stream.write(&output[sent..]) {
            Ok(0) => break Err(ErrorKind::WriteZero.into()),
            Ok(length) => sent += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    output.drain(..sent);
    result
}

/// Has the kernel end a connection whose other side has gone without a word: BMP says nothing of its own to find that out.
fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVES)?;
    Ok(())
}

fn socket(address: SocketAddr) -> Result<std::os::fd::OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn listener(address: SocketAddr) -> Result<TcpListener, Errno> {
    let socket = socket(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // IPv4 has a socket of its own, which TCP MD5 wants.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, 64)?;
    Ok(socket.into())
}

/// Begins to connect.
fn begin(
    address: SocketAddr,
    local: Option<IpAddr>,
    signature: Option<&Signature>,
) -> std::io::Result<TcpStream> {
    let socket = socket(address)?;
    if let Some(local) = local {
        net::bind(&socket, &SocketAddr::new(local, 0))?;
    }
    if let Some(signature) = signature {
        signature::set(&socket, address.ip(), signature)?;
    }
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
