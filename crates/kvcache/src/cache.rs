//! The decision: what becomes of each frame between clients and memcached. No packets, graphs, clocks or threads: bytes and times are handed in.
//!
//! ```text
//!  clients                                                                                    memcached
//!  get k ------> L0? L1? -- k's version as it was? --yes--> answered
//!                   no: version of k noted, under the request's number (misses) ----------->  get k
//!        <--------------- noted, and the same? its text waits for its end (fills)  <--------  VALUE k ...
//!                                                                 mg k t ------------------>
//!                                         kept, if the version is still the same <----------  HD t60
//!  any mutation: its key's version moves, before it goes on ------------------------------->
//!  all else: goes on as it is, both ways
//! ```
//!
//! Source: Tokusashi 2019, 3.1 to 3.3, 4.2. Departures: what is kept has an end, and is void as soon as a mutation of its key has come (the contract in the
//! [README](crate)); a get is answered by text only, one key at a time.

use crate::counters::{Board, Counter, Counters};
use crate::fills::{Came, Fills};
use crate::frame::{Found, Parts, Way, find, is_of_group, write};
use crate::gate::{Gate, Version};
use crate::hot::{Hot, HotKey};
use crate::keyhash::KeyHash;
use crate::rates::{Limit, Rates};
use crate::server::Server;
use crate::settings::Settings;
use crate::shift::Shift;
use crate::tcp::{Connections, Segment};
use crate::tiers::{ANSWER_MAX, Level, Tiers};
use foldhash::quality::FixedState;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use tidemill_burst::DropReason;
use tidemill_kv::codec::event::{Event, Lost};
use tidemill_kv::codec::reply::{self, Item};
use tidemill_kv::codec::stream::{Delay, Place, Requests};
use tidemill_kv::codec::udp::Frame;
use tidemill_kv::codec::{MAX_KEY, udp};
use tidemill_kv::table::misses::{Misses, Number};
use tidemill_wire::Protocol;

/// The side of the bridge that a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where clients are.
    Clients,
    /// Where memcached is.
    Servers,
}

/// What becomes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on, as it is.
    Pass,
    /// It goes on, and [`Cache::made`] goes to the servers.
    Ask,
    /// [`Cache::made`] goes to the clients in its place.
    Answer,
    /// It was for us.
    Consume,
    /// It must not go on.
    Drop(DropReason),
}

/// Requests that wait for their replies, 350 bytes each.
const MISSES: usize = 8192;
/// Values that wait for their ends.
const FILLS: usize = 1024;
/// Keys of which it is known that they were missed, as far as they do not overwrite each other.
const SEEN: usize = 1 << 16;
/// After a client has used our port nothing is asked for so many times `settle`.
const MUTE: u64 = 3;
const END: &[u8] = b"END\r\n";
/// What an answer may have beside its text and all of its request: END.
const ANSWER_HEADERS: usize = END.len();

/// What is noted of a get on its way.
#[derive(Debug, Clone, Copy)]
struct Noted {
    hash: u64,
    /// `None`: its value may not be kept.
    version: Option<Version>,
}

/// The cache. See the [module](self).
pub struct Cache {
    settings: Settings,
    hash: KeyHash,
    gate: Gate,
    tiers: Tiers,
    connections: Connections,
    misses: Misses<Noted, FixedState>,
    fills: Fills,
    server: Server,
    shift: Shift,
    rates: Rates,
    seen: Box<[u32]>,
    hot: Hot,
    counters: Counters,
    board: Board,
    /// A client has used our port: until then answers to it may be his.
    mute_until_ns: u64,
    /// It has seen a frame.
    is_begun: bool,
    /// Of the last packet that may be cut on its way.
    number: u16,
    made: Vec<u8>,
    text: Vec<u8>,
}

impl Cache {
    /// With all its memory. `secret`: nobody outside knows it.
    pub fn new(settings: Settings, secret: u64) -> Self {
        Self::tied(settings, secret, Board::default())
    }

    pub(crate) fn tied(settings: Settings, secret: u64, board: Board) -> Self {
        let hash = |n: u64| FixedState::with_seed(secret.wrapping_add(n));
        let drawn = |n: u64| hash(n).hash_one(n);
        Cache {
            hash: KeyHash::new(hash(0), settings.hash),
            gate: Gate::new(settings.slots, settings.settle_ns),
            tiers: settings.tiers(drawn(1)),
            connections: Connections::new(settings.connections, drawn(2)),
            misses: Misses::new(MISSES, settings.settle_ns, hash(3)),
            fills: Fills::new(FILLS, drawn(4)),
            server: Server::new(settings.lease_ns),
            shift: Shift::new(settings.on_demand, settings.on_demand_host.is_some()),
            rates: Rates::new(hash(5)),
            seen: vec![0; SEEN].into(),
            hot: Hot::new(),
            counters: Counters::default(),
            board,
            mute_until_ns: 0,
            is_begun: false,
            number: drawn(6) as u16,
            made: Vec::with_capacity(2048),
            text: Vec::with_capacity(2048),
            settings,
        }
    }

    /// The frame that was made last.
    pub fn made(&self) -> &[u8] {
        &self.made
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The keys that were given most, most first, as far as that is known.
    pub fn hottest(&self) -> Vec<HotKey> {
        self.hot.top()
    }

    /// Makes all that is kept void; memcached keeps what it has.
    pub fn flush(&mut self) {
        self.counters.one(Counter::Flushed);
        self.gate.forget();
    }

    /// Time goes on, whether or not packets come: who answers may be another now.
    pub fn turn(&mut self, now_ns: u64) {
        let shifts = self.shift.turn(now_ns);
        if shifts > 0 {
            self.counters.add(Counter::Shifts, shifts);
        }
    }

    /// Who answers from now on, the cache or memcached, where the host decides that (`kvcache.on_demand_host`); else this changes nothing.
    #[inline]
    pub fn shift_to(&mut self, answers: bool) {
        if self.shift.told(answers) {
            self.counters.one(Counter::Shifts);
        }
    }

    /// Shows the numbers to others.
    pub(crate) fn show(&mut self) {
        let (l0, l1) = self.tiers.len();
        self.counters.set(Counter::Answering, self.shift.answers().into());
        self.counters.set(Counter::EntriesL0, l0 as u64);
        self.counters.set(Counter::EntriesL1, l1 as u64);
        self.counters.set(Counter::Unnoted, self.misses.counters().full);
        self.counters.set(Counter::EndsFull, self.gate.overflows);
        self.counters.set(Counter::Connections, self.connections.len() as u64);
        self.board.show(&self.counters);
    }

    /// Decides on one frame. `is_one`: it is a single packet, nothing of it was cut off or merged. `room`: bytes that an answer in its place may have.
    pub fn frame(&mut self, side: Side, frame: &[u8], is_one: bool, room: usize, now_ns: u64) -> Fate {
        self.gate.turn(now_ns);
        self.turn(now_ns);
        if !self.is_begun {
            // What came before may wait in memcached, and nobody here has seen it.
            self.is_begun = true;
            self.gate.shut(now_ns);
        }
        let port = self.settings.port;
        match (side, find(frame, is_one)) {
            (Side::Clients, Found::Anything) => self.void(now_ns),
            (Side::Clients, Found::Datagram(parts)) if parts.destination_port == port => {
                return self.request(frame, &parts, room, now_ns);
            }
            (Side::Servers, Found::Datagram(parts)) if parts.source_port == port => {
                return self.reply(frame, &parts, now_ns);
            }
            (Side::Clients, Found::Segment(parts)) if parts.destination_port == port => {
                let Cache { connections, hash, gate, counters, .. } = self;
                return fate(connections.request(frame, &parts, now_ns, hash, gate, counters));
            }
            (Side::Servers, Found::Segment(parts)) if parts.source_port == port => {
                let Cache { connections, gate, counters, .. } = self;
                return fate(connections.reply(frame, &parts, now_ns, gate, counters));
            }
            _ => {}
        }
        Fate::Pass
    }

    fn void(&mut self, now_ns: u64) {
        self.counters.one(Counter::Void);
        self.gate.shut(now_ns);
    }

    /// A datagram to memcached.
    fn request(&mut self, frame: &[u8], parts: &Parts, room: usize, now_ns: u64) -> Fate {
        let payload = parts.payload(frame);
        let Some((header, text)) = Frame::read(payload) else { return Fate::Pass };
        if parts.source_port == self.settings.ask_port {
            self.mute_until_ns = now_ns.saturating_add(MUTE * self.settings.settle_ns);
            self.counters.one(Counter::AskPortUsed);
        }
        let number = Number {
            client: SocketAddr::new(parts.src, parts.source_port),
            number: header.id.into(),
            kind: 0,
        };
        let plain = (header == Frame::whole(header.id)).then(|| plain_get(text)).flatten();
        match plain {
            Some(key) => self.get(frame, parts, number, key, room, now_ns),
            None => self.other(&header, text, number, now_ns),
        }
    }

    /// `get` of one key.
    fn get(
        &mut self,
        frame: &[u8],
        parts: &Parts,
        number: Number,
        key: &[u8],
        room: usize,
        now_ns: u64,
    ) -> Fate {
        if !parts.adds_up(frame, Protocol::UDP) {
            self.counters.one(Counter::BadChecksum);
            return Fate::Pass;
        }
        let hash = self.hash.of(key);
        let ours = self.is_ours(parts.dst, parts) && self.settings.answers(parts.src);
        if !ours || !parts.is_plain || is_of_group(frame) {
            self.counters.one(if ours { Counter::Other } else { Counter::Denied });
            self.misses.put(number, key, Noted { hash, version: None }, now_ns);
            return Fate::Pass;
        }
        self.shift.count();
        if !self.shift.answers() {
            self.counters.one(Counter::Resting);
            self.misses.put(number, key, Noted { hash, version: None }, now_ns);
            // Else nobody would know how long memcached has stood when the cache answers again.
            return self.check(frame, parts, now_ns);
        }
        let Some(version) = self.gate.version(hash, now_ns) else {
            self.counters.one(if self.gate.is_shut(now_ns) { Counter::Parked } else { Counter::Miss });
            self.misses.put(number, key, Noted { hash, version: None }, now_ns);
            return self.check(frame, parts, now_ns);
        };
        self.text.clear();
        let holds = |stamp: &crate::tier::Stamp| stamp.version == version && now_ns < stamp.expires_ns;
        let Some(hit) = self.tiers.get(hash, key, holds, &mut self.text) else {
            self.counters.one(Counter::Miss);
            self.misses.put(number, key, Noted { hash, version: Some(version) }, now_ns);
            return self.check(frame, parts, now_ns);
        };
        // A question whether memcached is the same goes with a frame that goes there: one get now and then.
        if self.server.wants(now_ns) && self.check(frame, parts, now_ns) == Fate::Ask {
            self.counters.one(Counter::Miss);
            self.misses.put(number, key, Noted { hash, version: None }, now_ns);
            return Fate::Ask;
        }
        let len = udp::HEADER + self.text.len() + END.len();
        if frame.len() + ANSWER_HEADERS + self.text.len() > room || !parts.comes_through(len) {
            self.counters.one(Counter::NoRoom);
            self.misses.put(number, key, Noted { hash, version: None }, now_ns);
            return Fate::Pass;
        }
        let refresh_ns = self.settings.refresh_ns;
        if refresh_ns > 0 && now_ns.saturating_sub(hit.asked_ns) >= refresh_ns {
            self.tiers.asked(hash, key, now_ns);
            self.counters.one(Counter::Refresh);
            self.misses.put(number, key, Noted { hash, version: None }, now_ns);
            return Fate::Pass;
        }
        let (rate, total) = (self.settings.rate, self.settings.rate_total);
        if let Err(limit) = self.rates.admit(parts.src, now_ns, rate, total) {
            self.counters.one(match limit {
                Limit::Source => Counter::Limited,
                Limit::All => Counter::LimitedTotal,
            });
            self.misses.put(number, key, Noted { hash, version: None }, now_ns);
            return Fate::Pass;
        }
        self.counters.one(if hit.level == Level::L0 { Counter::HitL0 } else { Counter::HitL1 });
        self.hot.hit(hash, key);
        let mut header = [0, 0, 0, 0, 0, 1, 0, 0];
        header[..2].copy_from_slice(&(number.number as u16).to_be_bytes());
        let ports = (parts.destination_port, parts.source_port);
        self.number = self.number.wrapping_add(1);
        let payload = [&header, &self.text[..], END];
        write(frame, parts, Way::Back, ports, &payload, self.number, &mut self.made);
        Fate::Answer
    }

    /// Whether this is an address of the memcached that is cached, in its VLAN.
    #[inline]
    fn is_ours(&self, memcached: IpAddr, parts: &Parts) -> bool {
        parts.vlan == self.settings.vlan && self.settings.addresses.contains(&memcached)
    }

    /// Asks memcached whether it is the same process, or what flush waits, if it is time.
    fn check(&mut self, frame: &[u8], parts: &Parts, now_ns: u64) -> Fate {
        let ours = self.is_ours(parts.dst, parts);
        if now_ns < self.mute_until_ns || !ours {
            return Fate::Pass;
        }
        if !self.server.wants(now_ns) {
            let doubt = self.gate.in_doubt(now_ns).filter(|_| self.server.may_tell(now_ns));
            let Some(doubt) = doubt else { return Fate::Pass };
            self.counters.one(Counter::Doubts);
            let header = Frame::whole(self.server.ask_flush(doubt, now_ns));
            self.ask(frame, parts, Way::On, header, b"stats settings\r\n");
            return Fate::Ask;
        }
        self.counters.one(Counter::Checks);
        let header = Frame::whole(self.server.ask(now_ns));
        self.ask(frame, parts, Way::On, header, b"stats\r\n");
        Fate::Ask
    }

    /// Makes a question of ours, in the name of the client whose frame this is.
    fn ask(&mut self, frame: &[u8], parts: &Parts, way: Way, header: Frame, text: &[u8]) {
        let mut bytes = [0; udp::HEADER];
        bytes[..2].copy_from_slice(&header.id.to_be_bytes());
        bytes[5] = 1;
        let ports = (self.settings.ask_port, self.settings.port);
        write(frame, parts, way, ports, &[&bytes, text], 0, &mut self.made);
    }

    /// Any other request.
    fn other(&mut self, header: &Frame, text: &[u8], number: Number, now_ns: u64) -> Fate {
        // Whatever may be answered as a get is: its reply must not be taken for another's.
        if text.windows(3).any(|word| word == b"get" || word == b"gat") {
            self.misses.put(number, &[], Noted { hash: 0, version: None }, now_ns);
        }
        let mut requests = Requests::new();
        let (mut effects, mut lost) = (0_u64, None);
        let Cache { gate, hash, counters, .. } = self;
        requests.push(text, &mut |event| match event {
            Event::Reads(_) | Event::Command(_) => {}
            Event::Mutates(key) => {
                counters.one(Counter::UdpMutation);
                let slot = gate.begin(hash.of(key));
                gate.end_later(slot, now_ns);
                effects += 1;
            }
            Event::All => {
                counters.one(Counter::Void);
                gate.shut(now_ns);
                effects += 1;
            }
            Event::Lost(why) => lost = Some(why),
        });
        for delay in requests.take_delays() {
            counters.one(Counter::FlushLater);
            gate.flush_later(seconds(delay), now_ns);
        }
        // Half a command waits in memcached for the next datagram that the same thread reads, whosever that is, and goes on with it: no datagram could be
        // understood any more. It gets no answer of its own, so it is as if it had been lost.
        let half = match (lost, requests.place()) {
            (None, place) => !matches!(place, Place::Between | Place::Closed),
            // The one reason that says nothing of what follows: then nothing may follow.
            (Some(Lost::Reply), _) => text.iter().position(|&byte| byte == b'\n') != Some(text.len() - 1),
            (Some(_), _) => true,
        };
        if lost.is_some() {
            self.void(now_ns);
        } else if effects == 0 {
            self.counters.one(Counter::Other);
        }
        if half && header.is_taken() {
            self.counters.one(Counter::UdpHalf);
            return Fate::Drop(DropReason::KvHalfCommand);
        }
        Fate::Pass
    }

    /// A datagram of memcached.
    fn reply(&mut self, frame: &[u8], parts: &Parts, now_ns: u64) -> Fate {
        let Some((header, text)) = Frame::read(parts.payload(frame)) else { return Fate::Pass };
        let ours = self.is_ours(parts.src, parts);
        if parts.destination_port == self.settings.ask_port && ours && now_ns >= self.mute_until_ns {
            if parts.adds_up(frame, Protocol::UDP) {
                self.answer_to_us(&header, text, now_ns);
            }
            self.counters.one(Counter::AskReplies);
            return Fate::Consume;
        }
        let is_value = text.starts_with(b"VALUE ");
        if !ours || !is_value && text != END || !parts.adds_up(frame, Protocol::UDP) {
            return Fate::Pass;
        }
        let client = SocketAddr::new(parts.dst, parts.destination_port);
        let number = Number { client, number: header.id.into(), kind: 0 };
        let Some(miss) = self.misses.take(number, now_ns) else { return Fate::Pass };
        let Noted { hash, version } = miss.kept;
        if !is_value && !miss.key.is_empty() {
            // It has ended, or memcached has evicted it: what was asked to let memcached know that it is used tells that.
            self.tiers.forget(hash, miss.key);
            return Fate::Pass;
        }
        let (Some(version), true) = (version, is_value) else { return Fate::Pass };
        let Item::Value(value, len) = reply::next(text) else {
            self.counters.one(Counter::FillOdd);
            return Fate::Pass;
        };
        let whole = header.total == 1 && header.sequence == 0 && text.get(len..) == Some(END);
        if !whole || value.key != miss.key || value.unique.is_some() {
            self.counters.one(Counter::FillOdd);
            return Fate::Pass;
        }
        let fits = len <= ANSWER_MAX && self.tiers.fits(len);
        if value.value.len() > self.settings.value_max || !fits {
            self.counters.one(Counter::FillLarge);
            return Fate::Pass;
        }
        if self.gate.version(hash, now_ns) != Some(version) {
            self.counters.one(Counter::FillStale);
            return Fate::Pass;
        }
        let seen = &mut self.seen[hash as usize >> 40 & (SEEN - 1)];
        let tag = hash as u32 | 1;
        if !self.settings.ask_at_once && std::mem::replace(seen, tag) != tag {
            self.counters.one(Counter::FillOnce);
            return Fate::Pass;
        }
        if now_ns < self.mute_until_ns {
            return Fate::Pass;
        }
        self.text.clear();
        if !self.fills.ask(hash, version, value.key, &text[..len], now_ns, &mut self.text) {
            self.counters.one(Counter::FillFull);
            return Fate::Pass;
        }
        *seen = 0;
        self.counters.one(Counter::Asked);
        let question = std::mem::take(&mut self.text);
        self.ask(frame, parts, Way::Back, Frame::whole(0), &question);
        self.text = question;
        Fate::Ask
    }

    /// What memcached says to a question of ours.
    fn answer_to_us(&mut self, header: &Frame, text: &[u8], now_ns: u64) {
        if self.server.is_behind(text) {
            self.counters.one(Counter::Behind);
            self.gate.shut(now_ns);
        }
        if header.sequence != 0 {
            // Of an answer the first datagram has all else that was asked for.
            return;
        }
        if text == b"ERROR\r\n" {
            return self.counters.one(Counter::FillRefused);
        }
        if let Some((doubt, flush_ns)) = self.server.flush(header.id, text) {
            return self.gate.told(doubt, flush_ns, now_ns);
        }
        if text.starts_with(b"STAT pid ") {
            if let Some(heard) = self.server.heard(header.id, text, now_ns) {
                if heard.is_other {
                    self.counters.one(Counter::Restarts);
                    self.gate.reborn();
                }
                // A memcached that has stood executes now what it was believed to have.
                if heard.silent_ns + self.server.every_ns() > self.settings.settle_ns {
                    self.counters.one(Counter::Silent);
                    self.gate.shut(now_ns);
                }
                self.counters.one(Counter::Heard);
                self.gate.alive(heard.asked_ns, self.settings.lease_ns);
            }
            return;
        }
        let (at, until_ns) = match self.fills.reply(text) {
            Came::Unknown => return,
            Came::Soon => return self.counters.one(Counter::FillSoon),
            Came::Odd => return self.counters.one(Counter::FillOdd),
            Came::Until(at, until_ns) => (at, until_ns),
        };
        let kept = self.fills.kept(at, until_ns);
        let what = if self.gate.version(kept.hash, now_ns) != Some(kept.stamp.version) {
            Counter::FillStale
        } else if until_ns <= now_ns {
            Counter::FillSoon
        } else if self.tiers.admit(&kept) {
            Counter::Filled
        } else {
            Counter::FillFull
        };
        self.counters.one(what);
    }
}

/// Of a flush for later, if its number can be read in one way.
pub(crate) fn seconds(delay: Delay) -> Option<u32> {
    match delay {
        Delay::Seconds(seconds) => Some(seconds),
        Delay::Unknown => None,
    }
}

fn fate(segment: Segment) -> Fate {
    match segment {
        Segment::Pass => Fate::Pass,
        Segment::OutOfOrder => Fate::Drop(DropReason::KvOutOfOrder),
    }
}

/// The key of a datagram's text that is a `get` of one key and nothing else.
#[inline]
fn plain_get(text: &[u8]) -> Option<&[u8]> {
    let key = text.strip_prefix(b"get ")?.strip_suffix(b"\r\n")?;
    let right = (1..=MAX_KEY).contains(&key.len()) && key.iter().all(|byte| byte.is_ascii_graphic());
    right.then_some(key)
}
