//! One session with a peer, from its connection on (RFC 4271, 8): a state machine that is fed with bytes and the time, and
//! gives bytes and events. It knows no sockets; connections are the [`Speaker`](crate::Speaker)'s and the runner's.
//!
//! ```text
//! connected --(OPEN goes out)--> OpenSent --OPEN--> OpenConfirm --KEEPALIVE--> Established --> Closed
//! ```

use crate::attributes::{Attributes, Reading};
use crate::message::{self, Capabilities, FAMILIES, Graceful, LONGEST, LONGEST_EXTENDED, Open, at};
use crate::notice::{self, Notice};
use crate::path::AsPath;
use crate::update::{self, Nlri, Update};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::Family;

/// Until the peer's OPEN says how long (RFC 4271, 8.2.2: "a large value").
const OPEN_HOLD_NS: u64 = 240 * SECOND;
/// A second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// What a session goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// Our AS.
    pub local_as: u32,
    /// Our BGP identifier.
    pub id: Ipv4Addr,
    /// The peer's AS.
    pub peer_as: u32,
    /// The hold time that we offer in seconds, 0 (none) or from 3.
    pub hold_s: u16,
    /// The families that we speak, by [`at`].
    pub families: [bool; 2],
    /// Whether the peer may send flow specifications.
    pub flows: bool,
    /// Whether the peer may send several paths per prefix.
    pub add_path: bool,
    /// Our address on the connection: the next hop of what we announce.
    pub local: IpAddr,
}

/// A prefix that we announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// The next hop; `None` is our address on the connection, which must be of the prefix's family.
    pub next_hop: Option<IpAddr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF, for peers of our own AS.
    pub local_pref: u32,
    /// How often our AS stands in the path beyond the once that it must.
    pub prepend: u8,
    /// Communities.
    pub communities: Vec<u32>,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Our OPEN is out.
    OpenSent,
    /// The peer's OPEN has come.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
    /// Over.
    Closed,
}

impl State {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            State::OpenSent => "open-sent",
            State::OpenConfirm => "open-confirm",
            State::Established => "established",
            State::Closed => "closed",
        }
    }
}

/// Why a session is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// We ended it.
    Sent(Notice),
    /// The peer ended it.
    Received(Notice),
    /// The connection went away without a word.
    Lost,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Sent(notice) => write!(f, "sent: {notice}"),
            End::Received(notice) => write!(f, "received: {notice}"),
            End::Lost => f.write_str("connection lost"),
        }
    }
}

/// What a session tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer's OPEN has been accepted.
    Opened,
    /// Routes are exchanged from now on.
    Established,
    /// Routes.
    Update(Update),
    /// It is over.
    Closed(End),
}

/// Messages and what was wrong with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Messages received.
    pub received: u64,
    /// UPDATEs received.
    pub updates: u64,
    /// Messages sent.
    pub sent: u64,
    /// UPDATEs whose routes were withdrawn because they were malformed (RFC 7606).
    pub treated_as_withdraw: u64,
    /// Attributes left out because they were malformed.
    pub discarded: u64,
    /// Times that the peer asked for our routes again.
    pub refreshes: u64,
}

impl SessionStats {
    /// With those of another session.
    pub(crate) fn plus(self, other: SessionStats) -> SessionStats {
        SessionStats {
            received: self.received + other.received,
            updates: self.updates + other.updates,
            sent: self.sent + other.sent,
            treated_as_withdraw: self.treated_as_withdraw + other.treated_as_withdraw,
            discarded: self.discarded + other.discarded,
            refreshes: self.refreshes + other.refreshes,
        }
    }
}

/// A session.
pub struct Session {
    config: SessionConfig,
    state: State,
    input: Vec<u8>,
    output: Vec<u8>,
    peer: Option<Open>,
    reading: Reading,
    longest: usize,
    /// 0: none.
    hold_ns: u64,
    hold_until: u64,
    keepalive_at: u64,
    exports: BTreeMap<AnyPrefix, Export>,
    told: BTreeMap<AnyPrefix, Export>,
    stats: SessionStats,
}

impl Session {
    /// A session on a connection that has just been made: our OPEN is the first of its output.
    pub fn new(config: SessionConfig, now_ns: u64) -> Self {
        let mut session = Session {
            state: State::OpenSent,
            input: Vec::new(),
            output: Vec::new(),
            peer: None,
            reading: Reading::default(),
            longest: LONGEST,
            hold_ns: OPEN_HOLD_NS,
            hold_until: now_ns.saturating_add(OPEN_HOLD_NS),
            keepalive_at: u64::MAX,
            exports: BTreeMap::new(),
            told: BTreeMap::new(),
            stats: SessionStats { sent: 1, ..SessionStats::default() },
            config,
        };
        session.open().put(&mut session.output);
        session
    }

    /// Our OPEN.
    fn open(&self) -> Open {
        let config = &self.config;
        let receives = |family: bool| u8::from(family && config.add_path);
        Open {
            asn: config.local_as,
            hold_s: config.hold_s,
            id: config.id,
            capabilities: Capabilities {
                families: config.families,
                flows: [config.flows; 2],
                wide_as: Some(config.local_as),
                refresh: true,
                extended: true,
                // Without families: we keep the routes of a peer that restarts, and do not ask it to keep ours (RFC 4724, 3).
                graceful: Some(Graceful::default()),
                add_path: config.families.map(receives),
            },
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// What it goes by.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The peer's OPEN.
    pub fn peer(&self) -> Option<&Open> {
        self.peer.as_ref()
    }

    /// What both sides speak.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The hold time agreed on, in seconds; 0 is none.
    pub fn hold_s(&self) -> u64 {
        self.hold_ns / SECOND
    }

    /// The counters.
    pub fn stats(&self) -> SessionStats {
        self.stats
    }

    /// Prefixes announced to the peer.
    pub fn told(&self) -> usize {
        self.told.len()
    }

    /// Bytes for the peer: whoever sends them takes them out.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// When [`tick`](Self::tick) has to be called next.
    pub fn next_tick(&self) -> u64 {
        match self.state {
            State::Closed => u64::MAX,
            _ => self.hold_until.min(self.keepalive_at),
        }
    }

    /// Takes bytes of the peer's, cut anywhere.
    pub fn receive(&mut self, now_ns: u64, bytes: &[u8], events: &mut Vec<Event>) {
        if self.state == State::Closed {
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut from = 0;
        while self.state != State::Closed {
            match message::frame(&input[from..], self.longest) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    from += frame.bytes();
                    self.stats.received += 1;
                    if let Err(notice) = self.message(now_ns, frame.kind, frame.body, events) {
                        self.end(notice, events);
                    }
                }
                Err(notice) => self.end(notice, events),
            }
        }
        input.drain(..from);
        self.input = input;
    }

    fn message(&mut self, now_ns: u64, kind: u8, body: &[u8], events: &mut Vec<Event>) -> Result<(), Notice> {
        match (self.state, kind) {
            (State::Closed, _) => {}
            (_, message::NOTIFICATION) => {
                self.state = State::Closed;
                events.push(Event::Closed(End::Received(message::read_notice(body))));
            }
            (State::OpenSent, message::OPEN) => {
                self.take_open(now_ns, Open::read(body)?)?;
                events.push(Event::Opened);
            }
            (State::OpenConfirm, message::KEEPALIVE) => {
                self.state = State::Established;
                self.hold(now_ns);
                events.push(Event::Established);
                self.announce_all();
            }
            (State::Established, message::KEEPALIVE) => self.hold(now_ns),
            (State::Established, message::UPDATE) => {
                self.hold(now_ns);
                let update = Update::read(body, &self.reading)?;
                self.stats.updates += 1;
                for problem in &update.problems {
                    match problem {
                        crate::Problem::Discarded(_) => self.stats.discarded += 1,
                        crate::Problem::Withdrawn(_) => self.stats.treated_as_withdraw += 1,
                    }
                }
                events.push(Event::Update(update));
            }
            (State::Established, message::ROUTE_REFRESH) => {
                if let Some(family) =
                    message::read_refresh(body).filter(|family| self.reading.families[at(*family)])
                {
                    self.stats.refreshes += 1;
                    self.told.retain(|prefix, _| family_of(*prefix) != family);
                    self.send_exports();
                }
            }
            (State::OpenSent, _) => return Err(Notice::with(notice::STATE, 1, [kind])),
            (State::OpenConfirm, _) => return Err(Notice::with(notice::STATE, 2, [kind])),
            (State::Established, _) => return Err(Notice::with(notice::STATE, 3, [kind])),
        }
        Ok(())
    }

    fn take_open(&mut self, now_ns: u64, open: Open) -> Result<(), Notice> {
        let config = &self.config;
        if open.asn != config.peer_as {
            return Err(Notice::new(notice::OPEN, 2));
        }
        let internal = config.local_as == config.peer_as;
        // RFC 6286: unique within an AS.
        if internal && open.id == config.id {
            return Err(Notice::new(notice::OPEN, 3));
        }
        let theirs = &open.capabilities;
        let families = FAMILIES.map(|family| config.families[at(family)] && theirs.families[at(family)]);
        let flows = theirs.flows.map(|theirs| theirs && config.flows);
        // Who says where attacks are may have no routes at all.
        if families == [false; 2] && flows == [false; 2] {
            let wanted = FAMILIES.into_iter().filter(|family| config.families[at(*family)]);
            let data: Vec<u8> =
                wanted.flat_map(|family| [1, 4, 0, message::afi(family) as u8, 0, 1]).collect();
            return Err(Notice::with(notice::OPEN, 7, data));
        }
        self.reading = Reading {
            wide: theirs.wide_as.is_some(),
            internal,
            monitored: false,
            families,
            flows,
            add_path: FAMILIES.map(|family| {
                config.add_path && families[at(family)] && theirs.add_path[at(family)] & 2 != 0
            }),
        };
        self.longest = if theirs.extended { LONGEST_EXTENDED } else { LONGEST };
        self.hold_ns = u64::from(config.hold_s.min(open.hold_s)) * SECOND;
        self.peer = Some(open);
        self.state = State::OpenConfirm;
        self.hold(now_ns);
        self.keepalive(now_ns);
        Ok(())
    }

    /// The peer has been heard of.
    fn hold(&mut self, now_ns: u64) {
        self.hold_until = match self.hold_ns {
            0 => u64::MAX,
            hold => now_ns.saturating_add(hold),
        };
    }

    fn keepalive(&mut self, now_ns: u64) {
        message::put(&mut self.output, message::KEEPALIVE, &[]);
        self.stats.sent += 1;
        self.keepalive_at = match self.hold_ns {
            0 => u64::MAX,
            hold => now_ns.saturating_add(hold / 3),
        };
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        if self.state == State::Closed {
            return;
        }
        if now_ns >= self.hold_until {
            self.end(Notice::new(notice::HOLD, 0), events);
        } else if now_ns >= self.keepalive_at {
            self.keepalive(now_ns);
        }
    }

    /// Ends it with a NOTIFICATION.
    pub fn end(&mut self, notice: Notice, events: &mut Vec<Event>) {
        if self.state != State::Closed {
            message::put_notice(&mut self.output, &notice);
            self.stats.sent += 1;
            self.state = State::Closed;
            events.push(Event::Closed(End::Sent(notice)));
        }
    }

    /// The connection is gone.
    pub fn lost(&mut self, events: &mut Vec<Event>) {
        if self.state != State::Closed {
            self.state = State::Closed;
            events.push(Event::Closed(End::Lost));
        }
    }

    /// Sets what is announced to the peer: all of it, of which it gets the difference.
    pub fn set_exports(&mut self, exports: &[Export]) {
        self.exports = exports.iter().map(|export| (export.prefix, export.clone())).collect();
        if self.state == State::Established {
            self.send_exports();
        }
    }

    fn announce_all(&mut self) {
        self.send_exports();
        for family in FAMILIES.into_iter().filter(|family| self.reading.families[at(*family)]) {
            update::put_end_of_rib(&mut self.output, family);
            self.stats.sent += 1;
        }
        // We have none, and a peer that restarts waits to hear so (RFC 4724, 4.1).
        for family in FAMILIES.into_iter().filter(|family| self.reading.flows[at(*family)]) {
            update::put_end_of_flows(&mut self.output, family);
            self.stats.sent += 1;
        }
    }

    fn send_exports(&mut self) {
        // We say nothing of several paths, whatever the peer sends.
        let reading = Reading { add_path: [false; 2], ..self.reading };
        let spoken = |prefix: &AnyPrefix| reading.families[at(family_of(*prefix))];
        let gone: Vec<AnyPrefix> =
            self.told.keys().filter(|prefix| !self.exports.contains_key(prefix)).copied().collect();
        for prefix in gone {
            self.told.remove(&prefix);
            let nlri = Nlri { prefix, path: 0 };
            update::put_withdrawal(&mut self.output, &[nlri], nlri.family(), &reading);
            self.stats.sent += 1;
        }
        for (prefix, export) in self.exports.iter().filter(|(prefix, _)| spoken(prefix)) {
            if self.told.get(prefix) == Some(export) {
                continue;
            }
            let Some(attributes) = attributes_of(export, &self.config) else { continue };
            let nlri = Nlri { prefix: *prefix, path: 0 };
            update::put_announcement(&mut self.output, &attributes, &[nlri], nlri.family(), &reading);
            self.stats.sent += 1;
            self.told.insert(*prefix, export.clone());
        }
    }
}

fn family_of(prefix: AnyPrefix) -> Family {
    Nlri { prefix, path: 0 }.family()
}

/// What a prefix is announced with; `None` if there is no next hop of its family.
fn attributes_of(export: &Export, config: &SessionConfig) -> Option<Attributes> {
    let next_hop = export.next_hop.unwrap_or(config.local);
    if next_hop.is_ipv4() != (family_of(export.prefix) == Family::V4) {
        return None;
    }
    let internal = config.local_as == config.peer_as;
    let own = if internal { 0 } else { 1 } + usize::from(export.prepend);
    Some(Attributes {
        med: export.med,
        local_pref: internal.then_some(export.local_pref),
        communities: export.communities.clone().into(),
        ..Attributes::new(next_hop, AsPath::sequence(&vec![config.local_as; own]))
    })
}

#[cfg(test)]
mod tests;
