//! The control side: takes workers' records and has them sent.

use crate::ipfix::config::IpfixSection;
use crate::ipfix::counters::{Board, Counter, Counters};
use crate::ipfix::exporter::Exporter;
use crate::ipfix::meter::{Meter, Times};
use crate::ipfix::record::Record;
use crossbeam_queue::ArrayQueue;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_flow::table::SizeError;

/// Records that may wait to be sent.
const WAITING: usize = 1 << 14;

/// Why flows are not exported. One line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum IpfixError {
    /// A value that makes no sense.
    #[error("ipfix.{key}: {what}")]
    Config {
        /// The key.
        key: &'static str,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Tables that are too large.
    #[error("ipfix.flows: {0}: give fewer")]
    Size(#[from] SizeError),
    /// No socket.
    #[error("ipfix.collector: {collector}: {error}")]
    Socket {
        /// To whom.
        collector: SocketAddr,
        /// As the system says.
        error: std::io::Error,
    },
}

/// What a worker's node works with.
pub(crate) struct Seat {
    pub(crate) meter: Meter,
    pub(crate) queue: Arc<ArrayQueue<Record>>,
    /// Where what is left goes in the end.
    pub(crate) rest: Arc<Mutex<Vec<Record>>>,
    pub(crate) counters: Counters,
    pub(crate) board: Board,
}

type Seats = Arc<Mutex<Vec<Option<Box<Seat>>>>>;

/// The control side.
pub struct IpfixControl {
    /// Of workers that have no nodes yet.
    seats: Seats,
    boards: Vec<Board>,
    queue: Arc<ArrayQueue<Record>>,
    rest: Arc<Mutex<Vec<Record>>>,
    exporter: Exporter,
    /// None in a replay: there nobody is told.
    socket: Option<UdpSocket>,
    collector: SocketAddr,
}

impl std::fmt::Debug for IpfixControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IpfixControl").field("collector", &self.collector).finish_non_exhaustive()
    }
}

/// Checks a section; returns where the collector is.
///
/// # Errors
/// The first mistake.
pub(crate) fn check(section: &IpfixSection) -> Result<SocketAddr, IpfixError> {
    let wrong = |key, what| Err(IpfixError::Config { key, what });
    let IpfixSection { collector, flows, idle_s, active_s, template_s, message_bytes, domain: _ } = section;
    let Ok(address) = collector.parse::<SocketAddr>() else {
        return wrong("collector", format!("{collector:?}: give address and port, as \"192.0.2.1:4739\""));
    };
    if address.port() == 0 || address.ip().is_unspecified() {
        return wrong("collector", format!("{collector:?}: nobody can be there"));
    }
    for (key, value, least, most) in [
        ("flows", *flows, 31, 1 << 24),
        ("idle_s", *idle_s as usize, 1, 3600),
        ("active_s", *active_s as usize, 1, 86_400),
        ("template_s", *template_s as usize, 1, 86_400),
        ("message_bytes", *message_bytes, 512, 65_000),
    ] {
        if !(least..=most).contains(&value) {
            return wrong(key, format!("{value}: give {least} to {most}"));
        }
    }
    Ok(address)
}

fn socket(collector: SocketAddr) -> Result<UdpSocket, IpfixError> {
    let failed = |error| IpfixError::Socket { collector, error };
    let any: SocketAddr = match collector {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).map_err(failed)?;
    socket.connect(collector).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    Ok(socket)
}

impl IpfixControl {
    /// That of so many workers, with its socket. `repeatable`: the same packets give the same records.
    ///
    /// # Errors
    /// See [`IpfixError`].
    pub fn new(section: &IpfixSection, workers: usize, repeatable: bool) -> Result<Self, IpfixError> {
        let collector = check(section)?;
        let socket = socket(collector)?;
        let mut control = Self::silent(section, workers, repeatable)?;
        control.socket = Some(socket);
        Ok(control)
    }

    /// The same, but nobody is told.
    ///
    /// # Errors
    /// See [`IpfixError`].
    pub fn silent(section: &IpfixSection, workers: usize, repeatable: bool) -> Result<Self, IpfixError> {
        let collector = check(section)?;
        let half = |n: u64| u128::from(RandomState::new().hash_one(n));
        let secret = if repeatable { 0 } else { half(1) << 64 | half(2) };
        let ms = |s: u32| u64::from(s) * 1000;
        let times = Times { idle_ms: ms(section.idle_s), active_ms: ms(section.active_s) };
        let (queue, rest) = (Arc::new(ArrayQueue::new(WAITING)), Arc::default());
        let boards: Vec<Board> = (0..workers).map(|_| Board::default()).collect();
        let seat = |board: &Board| -> Result<_, IpfixError> {
            let meter = Meter::new(section.flows, times, secret)?;
            let (queue, rest, board) = (queue.clone(), Arc::clone(&rest), board.clone());
            Ok(Some(Box::new(Seat { meter, queue, rest, counters: Counters::default(), board })))
        };
        let seats = boards.iter().map(seat).collect::<Result<Vec<_>, _>>()?;
        let exporter = Exporter::new(section.message_bytes, section.domain, ms(section.template_s));
        Ok(IpfixControl {
            seats: Arc::new(Mutex::new(seats)),
            boards,
            queue,
            rest,
            exporter,
            socket: None,
            collector,
        })
    }

    /// Gives each worker's node what it works with, once.
    pub(crate) fn seats(&self) -> impl Fn(usize) -> Option<Box<Seat>> + Send + Sync + 'static {
        let seats = self.seats.clone();
        move |worker| seats.lock().unwrap_or_else(PoisonError::into_inner).get_mut(worker)?.take()
    }

    /// Has sent what waits. Returns whether there was anything.
    pub fn poll(&mut self, now_ms: u64) -> bool {
        let ignored = self.ignored();
        let IpfixControl { exporter, queue, socket, .. } = self;
        // As many as can wait: what comes meanwhile is for the next time.
        let mut left = WAITING;
        let next = || {
            left = left.checked_sub(1)?;
            queue.pop()
        };
        exporter.run(now_ms, ignored, next, |message| send(socket.as_ref(), message))
    }

    /// Has sent all that there is: the workers have stopped.
    pub fn end(&mut self, now_ms: u64) {
        let ignored = self.ignored();
        let rest = std::mem::take(&mut *self.rest.lock().unwrap_or_else(PoisonError::into_inner));
        let IpfixControl { exporter, queue, socket, .. } = self;
        // Now it may take its time.
        if let Some(socket) = socket {
            let _ = socket.set_nonblocking(false);
        }
        let mut rest = rest.into_iter();
        let next = || queue.pop().or_else(|| rest.next());
        exporter.run(now_ms, ignored, next, |message| send(socket.as_ref(), message));
        exporter.end(now_ms, ignored, |message| send(socket.as_ref(), message));
    }

    /// Packets and bytes that were in no flow. The bytes of what is no IP packet are nobody's.
    fn ignored(&self) -> (u64, u64) {
        let counters = self.shown();
        let packets =
            [Counter::NotIp, Counter::Malformed, Counter::FlowsFull].map(|counter| counters.get(counter));
        (packets.iter().sum(), counters.get(Counter::FlowsFullBytes))
    }

    fn shown(&self) -> Counters {
        let mut sum = Counters::default();
        self.boards.iter().for_each(|board| board.add_to(&mut sum));
        sum
    }

    /// Where the collector is.
    pub fn collector(&self) -> SocketAddr {
        self.collector
    }

    /// All that is counted.
    pub fn counters(&self) -> Counters {
        let mut sum = self.shown();
        let (sent, unsent) = (self.exporter.sent(), self.exporter.unsent());
        let (messages, message_bytes) = self.exporter.messages();
        for (counter, value) in [
            (Counter::Records, sent.records),
            (Counter::RecordPackets, sent.packets),
            (Counter::RecordBytes, sent.bytes),
            (Counter::Messages, messages),
            (Counter::MessageBytes, message_bytes),
            (Counter::Unsent, unsent.records),
            (Counter::UnsentPackets, unsent.packets),
            (Counter::UnsentBytes, unsent.bytes),
        ] {
            sum.set(counter, value);
        }
        sum
    }
}

fn send(socket: Option<&UdpSocket>, message: &[u8]) -> std::io::Result<()> {
    socket.map_or(Ok(()), |socket| socket.send(message).map(|_| ()))
}
