//! The speaker: which peers there are, their sessions, and what all of them say. Pure as sessions are: connections have
//! numbers here, and whoever has the sockets brings bytes and the time.
//!
//! A peer has one session at most, and while two connections compete (RFC 4271, 6.8) two. When a session goes without a
//! NOTIFICATION and the peer restarts gracefully (RFC 4724), its routes and flow specifications stay in use as *stale* until it has sent
//! them again, or its restart takes too long.

use crate::best::{Candidate, Rank, best};
use crate::flows::{FlowTrust, Flows, Given, Invalid, ShownFlow};
use crate::flowspec::{self, FlowSpec};
use crate::martian::is_martian;
use crate::message::{FAMILIES, afi, at};
use crate::notice::{self, Notice};
use crate::rib::{Change, Giver, PATHS_PER_PREFIX, PeerId, Rib};
use crate::session::{End, Event, Export, SECOND, Session, SessionConfig, SessionStats, State};
use crate::update::Update;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tidemill_feed::bgp::Family;

/// How long after its restart a peer may take to send its routes again.
const STALE_NS: u64 = 360 * SECOND;
/// More specific routes that are looked at to say whether one peer's flow specifications are its to give: whoever gives such that take more makes its own void.
const LOOKED_AT: usize = 100_000;
/// How long a peer with too many prefixes is left alone.
const LEFT_ALONE_NS: u64 = 300 * SECOND;

/// A peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// What it is called.
    pub name: String,
    /// Its address: connections from others are refused.
    pub address: IpAddr,
    /// Its AS; our own for an internal peer.
    pub asn: u32,
    /// Whether we connect to it too; else it has to.
    pub connect: bool,
    /// Its port, when we connect.
    pub port: u16,
    /// The address that we connect from; `None` is the one that the system takes.
    pub local: Option<IpAddr>,
    /// The families that are spoken with it, by [`at`].
    pub families: [bool; 2],
    /// Whether it may send several paths per prefix.
    pub add_path: bool,
    /// Whether its paths have to begin with its AS; a route server's do not. Nothing to an internal peer.
    pub first_as: bool,
    /// LOCAL_PREF of what it sends; peers of our own AS send their own.
    pub local_pref: u32,
    /// Prefixes (paths, where it sends several) that it may announce; with more its session is ended.
    pub max_prefixes: u32,
    /// Whether its flow specifications are taken.
    pub flows: FlowTrust,
    /// Flow specifications that it may give; with more its session is ended.
    pub max_flows: u32,
    /// How long its routes may be kept while it restarts, in seconds; 0 never. What it asks for itself counts if that is less.
    pub restart_s: u16,
    /// How its segments and ours are signed, if they are.
    #[cfg(target_os = "linux")]
    pub signature: Option<crate::signature::Signature>,
}

impl PeerConfig {
    /// A peer that connects to us, with everything else as usual.
    pub fn new(name: &str, address: IpAddr, asn: u32) -> Self {
        PeerConfig {
            name: name.into(),
            address,
            asn,
            connect: false,
            port: 179,
            local: None,
            families: [true, true],
            add_path: false,
            first_as: true,
            local_pref: 100,
            max_prefixes: 2_000_000,
            flows: FlowTrust::Off,
            max_flows: 1000,
            restart_s: 120,
            #[cfg(target_os = "linux")]
            signature: None,
        }
    }
}

/// What a speaker goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeakerConfig {
    /// Our AS.
    pub asn: u32,
    /// Our BGP identifier.
    pub id: Ipv4Addr,
    /// The hold time that we offer in seconds: 0 (none) or from 3.
    pub hold_s: u16,
    /// The peers.
    pub peers: Vec<PeerConfig>,
    /// What we announce to all of them.
    pub exports: Vec<Export>,
}

/// Why a connection is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such peer.
    #[error("{0} is no peer of ours: add it to the configuration, or leave it")]
    Unknown(IpAddr),
    /// It had too many prefixes lately.
    #[error("{0} announced too many prefixes: it is left alone for {1} s more")]
    LeftAlone(String, u64),
    /// It has a session.
    #[error("{0} has a session already")]
    Busy(String),
}

/// The number of a connection.
pub type ConnectionId = u64;

struct Connection {
    peer: usize,
    /// We made it.
    ours: bool,
    session: Session,
}

/// A family of a peer that restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Restart {
    until: u64,
}

struct Peer {
    config: PeerConfig,
    number: PeerId,
    /// By family: its stale routes,
    restart: [Option<Restart>; 2],
    /// ... and flow specifications.
    flow_restart: [Option<Restart>; 2],
    left_alone_until: u64,
    ended: Option<End>,
    established: u64,
    since: u64,
    past: SessionStats,
    ignored: u64,
    wrong_first_as: u64,
    martians: u64,
    too_many_paths: u64,
    /// Whether this session has had a line about those.
    told_of_paths: bool,
    synchronized: [bool; 2],
}

/// A peer as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPeer {
    /// What it is called.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its AS.
    pub asn: u32,
    /// Its number in the RIB.
    pub number: PeerId,
    /// Where its session stands; `None` without one.
    pub state: Option<State>,
    /// Since when its session stands or does not, in the clock that was handed in; 0: never.
    pub since_ns: u64,
    /// Its BGP identifier.
    pub id: Option<Ipv4Addr>,
    /// The hold time agreed on, in seconds.
    pub hold_s: Option<u64>,
    /// Paths by family.
    pub paths: [usize; 2],
    /// Flow specifications.
    pub flows: usize,
    /// Prefixes that we announce to it.
    pub announced: usize,
    /// How often a session was established.
    pub established: u64,
    /// By family: whether it has said that it has sent everything.
    pub synchronized: [bool; 2],
    /// By family: whether routes or flow specifications from before its restart are kept.
    pub stale: [bool; 2],
    /// Why its last session ended.
    pub ended: Option<String>,
    /// All its sessions' messages.
    pub stats: SessionStats,
    /// Routes with our own AS in their path, or that we have announced ourselves.
    pub loops: u64,
    /// Routes whose path does not begin with its AS.
    pub wrong_first_as: u64,
    /// Routes to prefixes that nobody routes: loopback, link-local, multicast and such.
    pub martians: u64,
    /// Paths to prefixes to which it has as many as there may be: see [`PATHS_PER_PREFIX`].
    pub too_many_paths: u64,
}

/// Sessions and what they say.
pub struct Speaker {
    config: SpeakerConfig,
    peers: Vec<Peer>,
    connections: BTreeMap<ConnectionId, Connection>,
    next: ConnectionId,
    rib: Rib,
    flows: Flows,
    notes: Vec<String>,
}

/// Lines that wait to be read.
const NOTES_MAX: usize = 1000;

impl Speaker {
    /// A speaker without any session.
    pub fn new(config: SpeakerConfig) -> Self {
        let mut rib = Rib::default();
        let peers = config.peers.iter().map(|peer| new_peer(peer, &config, &mut rib)).collect();
        let (connections, flows, notes) = (BTreeMap::new(), Flows::default(), Vec::new());
        Speaker { config, peers, connections, next: 0, rib, flows, notes }
    }

    /// What it goes by.
    pub fn config(&self) -> &SpeakerConfig {
        &self.config
    }

    /// What all peers say.
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// The same, for what comes otherwise than by sessions.
    pub fn rib_mut(&mut self) -> &mut Rib {
        &mut self.rib
    }

    /// Another number whenever a flow specification was given or withdrawn. Whose they are to give may change without.
    pub fn flow_revision(&self) -> u64 {
        self.flows.revision()
    }

    /// The flow specifications that peers have given, in the order in which they apply, IPv4 first, and whose they are to give as routes are now.
    pub fn flows(&self) -> Vec<ShownFlow> {
        let mut shown: Vec<ShownFlow> = Vec::new();
        let mut left: BTreeMap<PeerId, usize> = BTreeMap::new();
        for (spec, of_peers) in self.flows.iter() {
            let mut candidates: Vec<(usize, Candidate<'_>)> = Vec::new();
            for (number, given) in of_peers {
                let Some(peer) = self.peers.iter().find(|peer| peer.number == *number) else { continue };
                let left = left.entry(*number).or_insert(LOOKED_AT);
                let verdict = self.verdict(peer, spec, given, left);
                if verdict.is_ok()
                    && let Some(rank) = self.rib.rank(*number)
                {
                    let attributes = &given.attributes;
                    candidates.push((shown.len(), Candidate { attributes, rank, peer: *number, path: 0 }));
                }
                shown.push(ShownFlow {
                    peer: *number,
                    name: peer.config.name.clone(),
                    spec: spec.clone(),
                    actions: given.actions,
                    verdict,
                    best: false,
                });
            }
            let chosen = best(candidates.iter().map(|(_, candidate)| *candidate));
            if let Some((place, _)) = chosen.and_then(|chosen| candidates.get(chosen)) {
                shown[*place].best = true;
            }
        }
        shown.sort_by(|a, b| a.spec.family().cmp(&b.spec.family()).then_with(|| a.spec.precedence(&b.spec)));
        shown
    }

    fn verdict(&self, peer: &Peer, spec: &FlowSpec, given: &Given, left: &mut usize) -> Result<(), Invalid> {
        if peer.config.flows == FlowTrust::Trusted {
            return Ok(());
        }
        let internal = peer.config.asn == self.config.asn;
        let giver = Giver { peer: peer.number, internal, attributes: &given.attributes };
        let destination = spec.destination().ok_or(Invalid::NoDestination)?;
        self.rib.may_steer(&giver, destination, left)
    }

    /// What there is to say, a line each, since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, number: usize, what: &str) {
        if let Some(peer) = self.peers.get(number) {
            note(&mut self.notes, &peer.config, what);
        }
    }

    /// A connection with `remote` has been made, from our address `local`; `ours`: by us.
    ///
    /// # Errors
    /// It is to be closed. Peers that we know but do not want are told so first: see [`Refusal`].
    pub fn connected(
        &mut self,
        now_ns: u64,
        remote: IpAddr,
        local: IpAddr,
        ours: bool,
        changes: &mut Vec<Change>,
    ) -> Result<ConnectionId, Refusal> {
        let remote = remote.to_canonical();
        let known = self.peers.iter().position(|peer| peer.config.address == remote);
        let Some(number) = known else { return Err(Refusal::Unknown(remote)) };
        let peer = &self.peers[number];
        if now_ns < peer.left_alone_until {
            let left = (peer.left_alone_until - now_ns).div_ceil(SECOND);
            return Err(Refusal::LeftAlone(peer.config.name.clone(), left));
        }
        let of_peer = self.connections.iter().filter(|(_, connection)| connection.peer == number);
        let mut old = Vec::new();
        for (id, connection) in of_peer {
            match connection.session.state() {
                // RFC 4724, 5: a peer that restarts gracefully may come back before we notice that it was gone.
                State::Established if graceful(&connection.session) && !ours => old.push(*id),
                State::Established => return Err(Refusal::Busy(peer.config.name.clone())),
                // Both sides made one: their identifiers decide, when the OPENs have come. One side made two: the first is given up.
                _ if connection.ours == ours => old.push(*id),
                _ => {}
            }
        }
        for id in old {
            self.closed(now_ns, id, changes);
        }
        let config = SessionConfig {
            local_as: self.config.asn,
            id: self.config.id,
            peer_as: self.peers[number].config.asn,
            hold_s: self.config.hold_s,
            families: self.peers[number].config.families,
            flows: self.peers[number].config.flows != FlowTrust::Off,
            add_path: self.peers[number].config.add_path,
            local: local.to_canonical(),
        };
        let mut session = Session::new(config, now_ns);
        session.set_exports(&self.config.exports);
        let id = self.next;
        self.next += 1;
        self.connections.insert(id, Connection { peer: number, ours, session });
        Ok(id)
    }

    /// Bytes have come.
    pub fn receive(&mut self, now_ns: u64, id: ConnectionId, bytes: &[u8], changes: &mut Vec<Change>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut events = Vec::new();
        connection.session.receive(now_ns, bytes, &mut events);
        self.events(now_ns, id, events, changes);
    }

    /// The connection is gone, or is to be given up without a word.
    pub fn closed(&mut self, now_ns: u64, id: ConnectionId, changes: &mut Vec<Change>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut events = Vec::new();
        connection.session.lost(&mut events);
        self.events(now_ns, id, events, changes);
        self.connections.remove(&id);
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ns: u64, changes: &mut Vec<Change>) {
        let due: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.session.next_tick() <= now_ns)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let mut events = Vec::new();
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.session.tick(now_ns, &mut events);
            }
            self.events(now_ns, id, events, changes);
        }
        let Speaker { peers, rib, flows, .. } = self;
        for peer in peers {
            for family in FAMILIES {
                if peer.flow_restart[at(family)].is_some_and(|restart| restart.until <= now_ns) {
                    peer.flow_restart[at(family)] = None;
                    flows.withdraw_family(peer.number, family, true);
                }
                if peer.restart[at(family)].is_some_and(|restart| restart.until <= now_ns) {
                    peer.restart[at(family)] = None;
                    rib.withdraw_all(peer.number, Some(family), true);
                }
            }
        }
    }

    /// When [`tick`](Self::tick) has to be called next.
    pub fn next_tick(&self) -> u64 {
        let sessions = self.connections.values().map(|connection| connection.session.next_tick());
        let restarts = self.peers.iter().flat_map(|peer| [peer.restart, peer.flow_restart]).flatten();
        sessions.chain(restarts.flatten().map(|restart| restart.until)).min().unwrap_or(u64::MAX)
    }

    /// The session of a connection: for its output, and to see whether it is over.
    pub fn session(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.connections.get_mut(&id).map(|connection| &mut connection.session)
    }

    /// Peers that we should connect to now: they have no connection.
    pub fn wanted(&self, now_ns: u64) -> impl Iterator<Item = &PeerConfig> {
        let free = move |(number, peer): &(usize, &Peer)| {
            let has = self.connections.values().any(|connection| connection.peer == *number);
            peer.config.connect && !has && now_ns >= peer.left_alone_until
        };
        self.peers.iter().enumerate().filter(free).map(|(_, peer)| &peer.config)
    }

    /// Announces other prefixes from now on; peers get the difference.
    pub fn set_exports(&mut self, exports: Vec<Export>) {
        for connection in self.connections.values_mut() {
            connection.session.set_exports(&exports);
        }
        self.config.exports = exports;
    }

    /// Takes other peers: sessions of those that are gone or have changed are ended, the others stay.
    pub fn set_peers(&mut self, now_ns: u64, peers: Vec<PeerConfig>) {
        let before = std::mem::take(&mut self.peers);
        let places: Vec<Option<usize>> =
            before.iter().map(|old| peers.iter().position(|new| *new == old.config)).collect();
        let mut connections = std::mem::take(&mut self.connections);
        for connection in connections.values_mut() {
            match places.get(connection.peer).copied() {
                // Taken out before.
                None => {}
                Some(Some(place)) => connection.peer = place,
                Some(None) => {
                    let config = &before[connection.peer].config;
                    let still = peers.iter().any(|new| new.address == config.address);
                    let why = if still { notice::CHANGED } else { notice::DECONFIGURED };
                    let mut events = Vec::new();
                    connection.session.end(Notice::new(notice::CEASE, why), &mut events);
                    for event in events {
                        if let Event::Closed(end) = event {
                            note(&mut self.notes, config, &end.to_string());
                        }
                    }
                    connection.peer = usize::MAX;
                }
            }
        }
        self.connections = connections;
        let mut kept: Vec<Option<Peer>> = peers.iter().map(|_| None).collect();
        for (peer, place) in before.into_iter().zip(places) {
            match place {
                Some(place) => kept[place] = Some(peer),
                None => {
                    self.rib.withdraw_all(peer.number, None, false);
                    self.flows.withdraw_all(peer.number);
                }
            }
        }
        let Speaker { config, rib, .. } = self;
        let make = |(kept, new): (Option<Peer>, &PeerConfig)| {
            kept.unwrap_or_else(|| Peer { since: now_ns, ..new_peer(new, config, rib) })
        };
        self.peers = kept.into_iter().zip(&peers).map(make).collect();
        self.config.peers = peers;
    }

    /// Ends all sessions: the process goes.
    pub fn shut_down(&mut self) {
        for connection in self.connections.values_mut() {
            connection.session.end(Notice::new(notice::CEASE, notice::SHUTDOWN), &mut Vec::new());
        }
    }

    /// Ends a peer's session so that it begins anew. Returns whether there was one.
    pub fn reset(&mut self, now_ns: u64, name: &str, changes: &mut Vec<Change>) -> bool {
        let of = |connection: &Connection| {
            self.peers.get(connection.peer).is_some_and(|peer| peer.config.name == name)
        };
        let ids: Vec<ConnectionId> =
            self.connections.iter().filter(|(_, connection)| of(connection)).map(|(id, _)| *id).collect();
        for id in &ids {
            self.end(now_ns, *id, Notice::new(notice::CEASE, notice::RESET), changes);
        }
        !ids.is_empty()
    }

    /// The peers.
    pub fn peers(&self) -> impl Iterator<Item = ShownPeer> {
        self.peers.iter().enumerate().map(|(number, peer)| self.shown(number, peer))
    }

    fn shown(&self, number: usize, peer: &Peer) -> ShownPeer {
        let of_peer = self.connections.values().filter(|connection| connection.peer == number);
        let session = of_peer
            .map(|connection| &connection.session)
            .filter(|session| session.state() != State::Closed)
            .max_by_key(|session| session.state() as u8);
        let opened = session.filter(|session| session.peer().is_some());
        ShownPeer {
            name: peer.config.name.clone(),
            address: peer.config.address,
            asn: peer.config.asn,
            number: peer.number,
            state: session.map(Session::state),
            since_ns: peer.since,
            id: opened.and_then(Session::peer).map(|open| open.id),
            hold_s: opened.map(Session::hold_s),
            paths: self.rib.paths(peer.number),
            flows: self.flows.count(peer.number),
            announced: session.map_or(0, Session::told),
            established: peer.established,
            synchronized: peer.synchronized,
            stale: [0, 1].map(|at| peer.restart[at].is_some() || peer.flow_restart[at].is_some()),
            ended: peer.ended.as_ref().map(End::to_string),
            stats: session.map_or(peer.past, |session| peer.past.plus(session.stats())),
            loops: peer.ignored,
            wrong_first_as: peer.wrong_first_as,
            martians: peer.martians,
            too_many_paths: peer.too_many_paths,
        }
    }

    fn end(&mut self, now_ns: u64, id: ConnectionId, notice: Notice, changes: &mut Vec<Change>) {
        let mut events = Vec::new();
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.session.end(notice, &mut events);
        }
        self.events(now_ns, id, events, changes);
    }

    fn events(&mut self, now_ns: u64, id: ConnectionId, events: Vec<Event>, changes: &mut Vec<Change>) {
        let Some(number) = self.connections.get(&id).map(|connection| connection.peer) else { return };
        // One that was taken out of the configuration has nothing more to say.
        if number >= self.peers.len() {
            return;
        }
        for event in events {
            // Events before this one may have ended the session; what it said before that has been said.
            match event {
                Event::Opened => self.collide(now_ns, id, number, changes),
                Event::Established => {
                    self.established(now_ns, id, number);
                    self.note(number, "established");
                }
                Event::Update(update) => {
                    if let Some(notice) = self.update(number, update, changes) {
                        self.peers[number].left_alone_until = now_ns.saturating_add(LEFT_ALONE_NS);
                        self.end(now_ns, id, notice, changes);
                        return;
                    }
                }
                Event::Closed(end) => {
                    self.note(number, &end.to_string());
                    self.ended(now_ns, id, number, end);
                }
            }
        }
    }

    /// RFC 4271, 6.8: of two connections, that of the side with the higher identifier stays.
    fn collide(&mut self, now_ns: u64, id: ConnectionId, number: usize, changes: &mut Vec<Change>) {
        let Some(this) = self.connections.get(&id) else { return };
        let theirs = this.session.peer().map(|open| open.id);
        let open = |connection: &Connection| {
            matches!(connection.session.state(), State::OpenSent | State::OpenConfirm)
        };
        let rival = self.connections.iter().find(|(other, connection)| {
            **other != id && connection.peer == number && open(connection) && connection.ours != this.ours
        });
        let Some((rival, _)) = rival else { return };
        let keeps_ours = theirs.is_some_and(|theirs| self.config.id > theirs);
        let loser = if this.ours == keeps_ours { *rival } else { id };
        self.end(now_ns, loser, Notice::new(notice::CEASE, notice::COLLISION), changes);
    }

    fn established(&mut self, now_ns: u64, id: ConnectionId, number: usize) {
        let Some(connection) = self.connections.get(&id) else { return };
        let Some(open) = connection.session.peer() else { return };
        let peer = &mut self.peers[number];
        self.rib.set_rank(peer.number, rank(&peer.config, self.config.asn, open.id));
        peer.established += 1;
        peer.since = now_ns;
        peer.synchronized = [false; 2];
        peer.told_of_paths = false;
        // RFC 4724, 4.2: what the peer has not kept is gone; what it has kept is stale until it says that it has told all.
        let graceful = open.capabilities.graceful.as_ref();
        let reading = connection.session.reading();
        let anew = Some(Restart { until: now_ns.saturating_add(STALE_NS) });
        for family in FAMILIES {
            if peer.restart[at(family)].is_some() {
                let kept = graceful.is_some_and(|graceful| graceful.families.contains(&(family, true)));
                peer.restart[at(family)] = anew.filter(|_| kept && reading.families[at(family)]);
                if peer.restart[at(family)].is_none() {
                    self.rib.withdraw_all(peer.number, Some(family), true);
                }
            }
            if peer.flow_restart[at(family)].is_some() {
                let kept = graceful.is_some_and(|graceful| graceful.flows.contains(&(family, true)));
                peer.flow_restart[at(family)] = anew.filter(|_| kept && reading.flows[at(family)]);
                if peer.flow_restart[at(family)].is_none() {
                    self.flows.withdraw_family(peer.number, family, true);
                }
            }
        }
    }

    /// Takes routes. Returns why the session must end.
    fn update(&mut self, number: usize, update: Update, changes: &mut Vec<Change>) -> Option<Notice> {
        let Speaker { rib, flows, peers, config, notes, .. } = self;
        let peer = &mut peers[number];
        let internal = peer.config.asn == config.asn;
        for nlri in update.withdrawn {
            rib.withdraw(peer.number, nlri, changes);
        }
        for (mut attributes, mut prefixes) in update.announced {
            let told = prefixes.len();
            prefixes.retain(|nlri| !is_martian(nlri.prefix));
            peer.martians += (told - prefixes.len()) as u64;
            let own = attributes.as_path.contains(config.asn) || attributes.originator == Some(config.id);
            let first_as = attributes.as_path.neighbor();
            let wrong = !internal && peer.config.first_as && first_as != Some(peer.config.asn);
            if own || wrong {
                // Not to be used (RFC 4271, 6.3 and 9.1.2; RFC 4456, 8), and what there was before is no more.
                let count = if own { &mut peer.ignored } else { &mut peer.wrong_first_as };
                *count += prefixes.len() as u64;
                prefixes.into_iter().for_each(|nlri| rib.withdraw(peer.number, nlri, changes));
                continue;
            }
            if !internal {
                attributes.local_pref = Some(peer.config.local_pref);
            }
            let attributes = Arc::new(attributes);
            for nlri in prefixes {
                let (number, most) = (peer.number, peer.config.max_prefixes as usize);
                let is_over = |rib: &Rib| rib.paths(number).iter().sum::<usize>() > most;
                let mut room = rib.announce(number, nlri, &attributes, changes);
                // Those of before its restart make room: paths to one prefix, then of its family, then all.
                if !room {
                    rib.withdraw_all(number, Some(nlri.family()), true);
                    room = rib.announce(number, nlri, &attributes, changes);
                }
                for stale in [Some(nlri.family()), None] {
                    if is_over(rib) {
                        rib.withdraw_all(number, stale, true);
                    }
                }
                if !room {
                    peer.too_many_paths += 1;
                    if !std::mem::replace(&mut peer.told_of_paths, true) {
                        let what = format!(
                            "more than {PATHS_PER_PREFIX} paths to {}: those beyond are left out, here and elsewhere",
                            nlri.prefix
                        );
                        note(notes, &peer.config, &what);
                    }
                }
                if is_over(rib) {
                    let family = crate::message::afi(nlri.family()).to_be_bytes();
                    let most = peer.config.max_prefixes.to_be_bytes();
                    let data = [&family[..], &[1], &most].concat();
                    return Some(Notice::with(notice::CEASE, notice::TOO_MANY_PREFIXES, data));
                }
            }
        }
        update.flows_withdrawn.iter().for_each(|spec| flows.withdraw(peer.number, spec));
        for (mut attributes, actions, list) in update.flows {
            let own = attributes.as_path.contains(config.asn) || attributes.originator == Some(config.id);
            if !internal {
                attributes.local_pref = Some(peer.config.local_pref);
            }
            let attributes = Arc::new(attributes);
            for spec in list {
                if own {
                    peer.ignored += 1;
                    flows.withdraw(peer.number, &spec);
                    continue;
                }
                let own_family = spec.family();
                let family = afi(own_family).to_be_bytes();
                let given = Given { attributes: attributes.clone(), actions, stale: false };
                flows.announce(peer.number, spec, given);
                let (number, most) = (peer.number, peer.config.max_flows as usize);
                let restarts = peer.flow_restart.iter().any(Option::is_some);
                for stale in [own_family].into_iter().chain(FAMILIES).filter(|_| restarts) {
                    if flows.count(number) > most {
                        flows.withdraw_family(number, stale, true);
                    }
                }
                if flows.count(number) > most {
                    let most = peer.config.max_flows.to_be_bytes();
                    let data = [&family[..], &[flowspec::SAFI], &most].concat();
                    return Some(Notice::with(notice::CEASE, notice::TOO_MANY_PREFIXES, data));
                }
            }
        }
        if let Some(family) = update.end_of_rib {
            peer.synchronized[at(family)] = true;
            if peer.restart[at(family)].take().is_some() {
                rib.withdraw_all(peer.number, Some(family), true);
            }
        }
        if let Some(family) = update.end_of_flows
            && peer.flow_restart[at(family)].take().is_some()
        {
            flows.withdraw_family(peer.number, family, true);
        }
        None
    }

    fn ended(&mut self, now_ns: u64, id: ConnectionId, number: usize, end: End) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (session, peer) = (&connection.session, &mut self.peers[number]);
        peer.past = peer.past.plus(session.stats());
        // Another connection of the peer may be the one that has the routes.
        let other = self.connections.iter().any(|(other, connection)| {
            *other != id && connection.peer == number && connection.session.state() == State::Established
        });
        let collided = |notice: &Notice| (notice.code, notice.subcode) == (notice::CEASE, notice::COLLISION);
        if matches!(&end, End::Sent(notice) | End::Received(notice) if collided(notice)) || other {
            return;
        }
        peer.since = now_ns;
        peer.synchronized = [false; 2];
        let graceful = session.peer().and_then(|open| open.capabilities.graceful.as_ref());
        let time_s = graceful.map_or(0, |graceful| u64::from(graceful.time_s.min(peer.config.restart_s)));
        let restart = |before: Option<Restart>, has: bool| {
            let until = match (&end, graceful) {
                (End::Lost, Some(_)) => (has && time_s > 0).then(|| now_ns.saturating_add(time_s * SECOND)),
                // A connection that brought no OPEN says nothing of the routes.
                (End::Lost, None) => before.map(|restart| restart.until),
                _ => None,
            };
            // One that dies again before it has sent all: what was stale stays so, for no longer than it would have.
            until.map(|until| Restart { until: before.map_or(until, |before| until.min(before.until)) })
        };
        for family in FAMILIES {
            let names = |list: &[(Family, bool)]| list.iter().any(|(kept, _)| *kept == family);
            let has = graceful.is_some_and(|graceful| names(&graceful.families));
            peer.restart[at(family)] = restart(peer.restart[at(family)], has);
            match peer.restart[at(family)] {
                Some(_) => self.rib.mark_stale(peer.number, family),
                None => self.rib.withdraw_all(peer.number, Some(family), false),
            }
            let has = session.reading().flows[at(family)] && graceful.is_some_and(|g| names(&g.flows));
            peer.flow_restart[at(family)] = restart(peer.flow_restart[at(family)], has);
            match peer.flow_restart[at(family)] {
                Some(_) => self.flows.mark_stale(peer.number, family),
                None => self.flows.withdraw_family(peer.number, family, false),
            }
        }
        peer.ended = Some(end);
    }
}

/// A line about a peer, unless too many wait already.
fn note(notes: &mut Vec<String>, peer: &PeerConfig, what: &str) {
    if notes.len() < NOTES_MAX {
        notes.push(format!("peer {} ({}): {what}", peer.name, peer.address));
    }
}

fn new_peer(config: &PeerConfig, speaker: &SpeakerConfig, rib: &mut Rib) -> Peer {
    Peer {
        number: rib.add_peer(rank(config, speaker.asn, Ipv4Addr::UNSPECIFIED)),
        config: config.clone(),
        restart: [None; 2],
        flow_restart: [None; 2],
        left_alone_until: 0,
        ended: None,
        established: 0,
        since: 0,
        past: SessionStats::default(),
        ignored: 0,
        wrong_first_as: 0,
        martians: 0,
        too_many_paths: 0,
        told_of_paths: false,
        synchronized: [false; 2],
    }
}

fn rank(peer: &PeerConfig, asn: u32, id: Ipv4Addr) -> Rank {
    Rank { internal: peer.asn == asn, id, address: peer.address, local_pref: peer.local_pref }
}

fn graceful(session: &Session) -> bool {
    let graceful = session.peer().and_then(|open| open.capabilities.graceful.as_ref());
    graceful.is_some_and(|graceful| !graceful.families.is_empty() || !graceful.flows.is_empty())
}

#[cfg(test)]
mod tests;
