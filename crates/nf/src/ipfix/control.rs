//! The control side: takes workers' records and has them sent.

use crate::ipfix::config::IpfixSection;
use crate::ipfix::counters::{Board, Counter, Counters};
use crate::ipfix::exporter::Exporter;
use crate::ipfix::meter::{Meter, Times};
use crate::ipfix::record::Record;
use crossbeam_queue::ArrayQueue;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_flow::table::SizeError;

/// Records that may wait to be sent.
const WAITING: usize = 1 << 14;
/// After how long a way to the collector is looked for again.
const AGAIN_MS: u64 = 1000;

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
    /// No socket: as of a machine without IPv6.
    #[error("ipfix.collector: {collector}: {error}")]
    Socket {
        /// To whom.
        collector: SocketAddr,
        /// As the system says.
        error: io::Error,
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
    way: Option<Way>,
    collector: SocketAddr,
}

/// The way to the collector. Flows are exported beside packets: that there is none yet, as while a machine starts, holds up nothing.
struct Way {
    socket: UdpSocket,
    collector: SocketAddr,
    /// Whether the system has named one.
    is_open: bool,
    asked_ms: Option<u64>,
    /// What is to be said of it.
    news: Option<String>,
}

/// A socket of the collector's family, of no address yet.
fn bind(collector: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match collector {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Way {
    fn new(collector: SocketAddr) -> Result<Self, IpfixError> {
        let socket = bind(collector).map_err(|error| IpfixError::Socket { collector, error })?;
        Ok(Way { socket, collector, is_open: false, asked_ms: None, news: None })
    }

    /// Looks for one, if it is time; whether there is another now, by which the collector has been told nothing.
    fn ask(&mut self, now_ms: u64) -> bool {
        let is_early = |asked_ms| now_ms.saturating_sub(asked_ms) < AGAIN_MS;
        if self.asked_ms.is_some_and(is_early) {
            return false;
        }
        let (is_first, collector) = (self.asked_ms.replace(now_ms).is_none(), self.collector);
        // A connected socket keeps the address that it was given, even if that is ours no longer: which one it would be now, only another one shows.
        let Ok(socket) = bind(collector) else { return false };
        if let Err(error) = socket.connect(collector) {
            if is_first || self.is_open {
                let what = match error.kind() {
                    // That is what the system says of one, and of what a firewall's rule forbids.
                    io::ErrorKind::PermissionDenied => {
                        format!("a broadcast address, where nobody is told, or forbidden here ({error})")
                    }
                    _ => error.to_string(),
                };
                self.news = Some(format!(
                    "warning: ipfix.collector: {collector}: {what}: a route is looked for every second, and flows are counted as unsent until there is one"
                ));
            }
            self.is_open = false;
            return false;
        }
        let [old, new] = [&self.socket, &socket].map(|socket| socket.local_addr().map(|at| at.ip()).ok());
        if self.is_open {
            let (Some(old), Some(new)) = (old, new) else { return false };
            if old == new {
                return false;
            }
            self.news = Some(format!("ipfix.collector: {collector}: told from {new} now, no longer {old}"));
        } else if !is_first {
            self.news = Some(format!("ipfix.collector: {collector}: there is a route now"));
        }
        (self.socket, self.is_open) = (socket, true);
        true
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        if !self.is_open {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.socket.send(message).map(|_| ())
    }
}

impl std::fmt::Debug for IpfixControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IpfixControl").field("collector", &self.collector).finish_non_exhaustive()
    }
}

/// Whether it is a group within a machine or a link (RFC 4291, section 2.7): of which, the address does not say.
fn is_multicast_of_a_link(ip: Ipv6Addr) -> bool {
    ip.is_multicast() && matches!(ip.segments()[0] & 0xf, 1 | 2)
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
    let is_nobody = match address.ip() {
        // RFC 1122, section 3.2.1.3; class E with the broadcast address.
        IpAddr::V4(ip) => ip.octets()[0] == 0 || ip.octets()[0] >= 240,
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    if address.port() == 0 || is_nobody {
        return wrong("collector", format!("{collector:?}: nobody can be there"));
    }
    if let SocketAddr::V6(address) = address
        && (address.ip().is_unicast_link_local() || is_multicast_of_a_link(*address.ip()))
        && address.scope_id() == 0
    {
        let with = format!("[{}%2]:{}", address.ip(), address.port());
        return wrong("collector", format!("{collector:?}: on which link? give its number, as {with:?}"));
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

impl IpfixControl {
    /// That of so many workers, with its socket. `repeatable`: the same packets give the same records. That no route leads to the collector is [news](Self::news), and no error.
    ///
    /// # Errors
    /// See [`IpfixError`].
    pub fn new(section: &IpfixSection, workers: usize, repeatable: bool) -> Result<Self, IpfixError> {
        let mut way = Way::new(check(section)?)?;
        way.ask(0);
        let mut control = Self::silent(section, workers, repeatable)?;
        control.way = Some(way);
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
            way: None,
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
        let IpfixControl { exporter, queue, way, .. } = self;
        if way.as_mut().is_some_and(|way| way.ask(now_ms)) {
            exporter.begin_anew();
        }
        // As many as can wait: what comes meanwhile is for the next time.
        let mut left = WAITING;
        let next = || {
            left = left.checked_sub(1)?;
            queue.pop()
        };
        exporter.run(now_ms, ignored, next, |message| send(way.as_ref(), message))
    }

    /// Has sent all that there is: the workers have stopped.
    pub fn end(&mut self, now_ms: u64) {
        let ignored = self.ignored();
        let rest = std::mem::take(&mut *self.rest.lock().unwrap_or_else(PoisonError::into_inner));
        let IpfixControl { exporter, queue, way, .. } = self;
        // Now it may take its time.
        if let Some(way) = way {
            if way.ask(now_ms) {
                exporter.begin_anew();
            }
            let _ = way.socket.set_nonblocking(false);
        }
        let mut rest = rest.into_iter();
        let next = || queue.pop().or_else(|| rest.next());
        exporter.run(now_ms, ignored, next, |message| send(way.as_ref(), message));
        exporter.end(now_ms, ignored, |message| send(way.as_ref(), message));
    }

    /// What is new about the way to the collector since this was asked last, in a line; it may begin with `warning: `.
    pub fn news(&mut self) -> Option<String> {
        self.way.as_mut()?.news.take()
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

fn send(way: Option<&Way>, message: &[u8]) -> io::Result<()> {
    way.map_or(Ok(()), |way| way.send(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system names no way to a broadcast address.
    const NOWHERE: &str = "127.255.255.255:4739";

    #[test]
    fn a_way_is_looked_for_until_there_is_one() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut way = Way::new(NOWHERE.parse().unwrap()).unwrap();
        way.ask(5000);
        let news = way.news.take().unwrap();
        let what = "a broadcast address, where nobody is told, or forbidden here (";
        assert!(news.starts_with(&format!("warning: ipfix.collector: {NOWHERE}: {what}")), "{news}");
        assert_eq!(way.send(b"lost").unwrap_err().kind(), io::ErrorKind::NotConnected);
        way.ask(6000);
        assert_eq!(way.news, None, "once is enough");
        way.collector = there.local_addr().unwrap();
        way.ask(6999);
        assert!(!way.is_open);
        way.ask(7000);
        assert!(way.news.take().unwrap().ends_with(": there is a route now"));
        way.send(b"told").unwrap();
        let mut room = [0; 9];
        let length = there.recv(&mut room).unwrap();
        assert_eq!(&room[..length], b"told");
    }

    /// Moves a control's way to an address that is not the one that the system would take, as if that had changed.
    fn move_away(way: &mut Way) {
        way.socket = UdpSocket::bind("127.0.0.2:0").unwrap();
        way.socket.connect(way.collector).unwrap();
    }

    #[test]
    fn an_address_of_ours_that_changes_is_followed_and_templates_come_again() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        there.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let collector = there.local_addr().unwrap();
        let section = IpfixSection { collector: collector.to_string(), ..IpfixSection::default() };
        let mut control = IpfixControl::new(&section, 1, true).unwrap();
        assert!(control.poll(5000) && !control.poll(5500));
        let mut room = [0; 2000];
        let (length, from) = there.recv_from(&mut room).unwrap();
        assert_eq!(from.ip().to_string(), "127.0.0.1");
        // Set 2 is of templates (RFC 7011, section 3.3.2).
        assert!(length > 20 && room[16..18] == [0, 2], "{:?}", &room[..20]);
        move_away(control.way.as_mut().unwrap());
        assert!(!control.poll(5999), "it is asked once a second");
        assert!(control.poll(6000), "who gets them from another address knows no templates");
        let news = control.news().unwrap();
        assert!(news.ends_with(": told from 127.0.0.1 now, no longer 127.0.0.2"), "{news}");
        let (length, from) = there.recv_from(&mut room).unwrap();
        assert_eq!(from.ip().to_string(), "127.0.0.1");
        assert!(length > 20 && room[16..18] == [0, 2], "{:?}", &room[..20]);
        assert!(!control.poll(7000), "the same address: nothing is new");
        assert_eq!(control.news(), None);
    }

    #[test]
    fn a_way_that_is_lost_is_said_and_looked_for_again() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut way = Way::new(there.local_addr().unwrap()).unwrap();
        assert!(way.ask(0) && way.news.is_none());
        way.collector = NOWHERE.parse().unwrap();
        assert!(!way.ask(1000) && !way.ask(2000));
        assert!(way.news.take().unwrap().starts_with("warning: ipfix.collector: 127.255.255.255:4739: "));
        assert_eq!(way.send(b"lost").unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert!(!way.ask(3000));
        assert_eq!(way.news, None, "once is enough");
        way.collector = there.local_addr().unwrap();
        assert!(way.ask(4000));
        assert!(way.news.take().unwrap().ends_with(": there is a route now"));
    }

    #[test]
    fn collectors_that_nobody_is_at_are_refused() {
        let refused = |collector: &str| {
            let section = IpfixSection { collector: collector.into(), ..IpfixSection::default() };
            check(&section).err().map(|error| error.to_string())
        };
        for nobody in ["240.0.0.1:4739", "255.255.255.255:4739", "0.0.0.5:4739", "[::]:4739", "192.0.2.1:0"] {
            assert!(refused(nobody).unwrap().ends_with("nobody can be there"), "{nobody}");
        }
        for unsaid in ["[fe80::1]:4739", "[ff02::1]:4739", "[ff01::1]:4739"] {
            assert!(refused(unsaid).unwrap().contains("on which link? give its number"), "{unsaid}");
        }
        for good in ["239.1.2.3:4739", "[ff02::1%1]:4739", "[ff05::1]:4739", "192.0.2.1:4739"] {
            assert_eq!(refused(good), None, "{good}");
        }
    }

    /// Packets flow whether anybody is told of them or not.
    #[test]
    fn a_collector_that_no_route_leads_to_stops_nothing() {
        let section = IpfixSection { collector: NOWHERE.into(), ..IpfixSection::default() };
        let mut control = IpfixControl::new(&section, 1, true).unwrap();
        assert!(control.news().unwrap().starts_with("warning: "));
        assert!(!control.poll(1_000_000), "there was nothing to do");
        control.end(1_001_000);
        let counters = control.counters();
        assert_eq!((control.news(), counters.get(Counter::Messages)), (None, 0));
    }
}
