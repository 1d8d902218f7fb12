//! The BGP Monitoring Protocol (RFC 7854; RFC 8671; RFC 9069): what another router hears from its peers, or uses itself, as it
//! tells a station. Pure as sessions are: bytes in, paths into a [`Rib`].
//!
//! One *view* is taken, for a router may tell the same routes several times: before its policies, behind them, or its own table.
//! Peers of VRFs, what a router announces itself, and what it has from us are counted and left.

use crate::attributes::Reading;
use crate::best::Rank;
use crate::martian::is_martian;
use crate::message::{self, FAMILIES, Frame, HEADER_BYTES, LONGEST_EXTENDED, Open, at};
use crate::rib::{Change, PeerId, Rib};
use crate::update::Update;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tidemill_feed::bgp::{Cursor, Fault};
use tidemill_feed::error::RecordFault;

/// Version, length, type.
const COMMON_BYTES: usize = 6;
/// No message of this world is longer.
const MESSAGE_MAX_BYTES: usize = 1 << 20;
/// Peers that one router may tell of at a time; those that are down make room.
const PEERS_MAX: usize = 4096;

/// Which of the tables that a router tells of are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// What its peers have sent.
    #[default]
    PrePolicy,
    /// What it has left of that.
    PostPolicy,
    /// What it uses (RFC 9069).
    LocRib,
}

/// Why a connection is of no more use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BmpError {
    /// Another version, or no BMP at all.
    #[error("version {0} is not BMP's 3: is it a BMP exporter that connects here?")]
    Version(u8),
    /// A length that no message has.
    #[error("a message of {0} bytes: the stream is corrupt")]
    Length(u32),
    /// A message that ends too early.
    #[error("message type {kind}: {fault}")]
    Short {
        /// The message's type.
        kind: u8,
        /// The field.
        fault: RecordFault,
    },
    /// More peers than a router has.
    #[error("more than {PEERS_MAX} peers at a time")]
    Peers,
    /// More prefixes than it may tell of.
    #[error("more than {0} prefixes: raise max_prefixes")]
    Prefixes(u32),
    /// It has ended the session.
    #[error("the router has ended the session: {0}")]
    Ended(String),
}

/// A peer of the monitored router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: u8,
    distinguisher: u64,
    address: IpAddr,
}

struct Peer {
    number: PeerId,
    asn: u32,
    id: Ipv4Addr,
    up: bool,
    add_path: [bool; 2],
    internal: bool,
    synchronized: [bool; 2],
    /// The router's own counters, by their type.
    statistics: BTreeMap<u16, u64>,
}

/// A monitored peer as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownBmpPeer {
    /// Its number in the RIB.
    pub number: PeerId,
    /// Its address; unspecified for the router's own table.
    pub address: IpAddr,
    /// Its AS.
    pub asn: u32,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// Whether the router has a session with it.
    pub up: bool,
    /// By family: whether everything has been told.
    pub synchronized: [bool; 2],
    /// The router's statistics, by type (RFC 7854, 4.8).
    pub statistics: BTreeMap<u16, u64>,
}

/// What came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BmpStats {
    /// Messages.
    pub messages: u64,
    /// UPDATEs whose routes were taken.
    pub updates: u64,
    /// Messages about other views, VRFs, or of unknown types.
    pub ignored: u64,
    /// UPDATEs that could not be read.
    pub malformed: u64,
    /// Routes that have come through our own AS, or from ourselves.
    pub loops: u64,
    /// Routes to prefixes that nobody routes: loopback, link-local, multicast and such.
    pub martians: u64,
    /// Paths to prefixes to which a peer has [as many as there may be](crate::rib::PATHS_PER_PREFIX).
    pub too_many_paths: u64,
}

/// Who we are, so that what comes back to us by way of a monitored router is known for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Our AS.
    pub asn: u32,
    /// Our BGP identifier.
    pub id: Ipv4Addr,
}

/// A connection from a monitored router.
pub struct Station {
    view: View,
    own: Own,
    max_prefixes: u32,
    input: Vec<u8>,
    peers: BTreeMap<Key, Peer>,
    /// Numbers of peers that were forgotten.
    spare: Vec<PeerId>,
    stats: BmpStats,
    /// What the router calls itself.
    name: String,
}

/// The per-peer header (RFC 7854, 4.2).
struct Header {
    key: Key,
    flags: u8,
    asn: u32,
    id: Ipv4Addr,
}

const LOC_RIB: u8 = 3;
const ADDRESS_IS_V6: u8 = 0x80;
const POST_POLICY: u8 = 0x40;
const NARROW_AS: u8 = 0x20;
const RIB_OUT: u8 = 0x10;

impl Header {
    fn read(body: &mut Cursor<'_>) -> Fault<Self> {
        let kind = body.u8("the peer's type")?;
        let flags = body.u8("the peer's flags")?;
        let high = body.u32("the peer's distinguisher")?;
        let distinguisher = u64::from(high) << 32 | u64::from(body.u32("the peer's distinguisher")?);
        let address = body.v6("the peer's address")?;
        let address = match address {
            IpAddr::V6(v6) if flags & ADDRESS_IS_V6 == 0 || kind == LOC_RIB => {
                IpAddr::V4(Ipv4Addr::from(u128::from(v6) as u32))
            }
            other => other,
        };
        let asn = body.u32("the peer's AS")?;
        let id = Ipv4Addr::from(body.u32("the peer's identifier")?);
        body.bytes(8, "the time")?;
        Ok(Header { key: Key { kind, distinguisher, address }, flags, asn, id })
    }

    fn is_of(&self, view: View) -> bool {
        if self.key.distinguisher != 0 {
            return false;
        }
        match (self.key.kind, view) {
            (LOC_RIB, View::LocRib) => true,
            (0, View::PrePolicy) => self.flags & (POST_POLICY | RIB_OUT) == 0,
            (0, View::PostPolicy) => self.flags & (POST_POLICY | RIB_OUT) == POST_POLICY,
            _ => false,
        }
    }
}

impl Station {
    /// A connection that has just been made.
    pub fn new(view: View, max_prefixes: u32, own: Own) -> Self {
        Station {
            view,
            own,
            max_prefixes,
            input: Vec::new(),
            peers: BTreeMap::new(),
            spare: Vec::new(),
            stats: BmpStats::default(),
            name: String::new(),
        }
    }

    /// The counters.
    pub fn stats(&self) -> BmpStats {
        self.stats
    }

    /// What the router calls itself; empty until it says.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The peers that it has told of.
    pub fn peers(&self) -> impl Iterator<Item = ShownBmpPeer> {
        self.peers.iter().map(|(key, peer)| ShownBmpPeer {
            number: peer.number,
            address: key.address,
            asn: peer.asn,
            id: peer.id,
            up: peer.up,
            synchronized: peer.synchronized,
            statistics: peer.statistics.clone(),
        })
    }

    /// Takes bytes, cut anywhere.
    ///
    /// # Errors
    /// The connection is to be closed, and [`lost`](Self::lost) to be called.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        rib: &mut Rib,
        changes: &mut Vec<Change>,
    ) -> Result<(), BmpError> {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut from = 0;
        let result = loop {
            let data = &input[from..];
            let Some((header, _)) = data.split_first_chunk::<COMMON_BYTES>() else { break Ok(()) };
            let [version, a, b, c, d, kind] = *header;
            if version != 3 {
                break Err(BmpError::Version(version));
            }
            let stated = u32::from_be_bytes([a, b, c, d]);
            let length = stated as usize;
            if !(COMMON_BYTES..=MESSAGE_MAX_BYTES).contains(&length) {
                break Err(BmpError::Length(stated));
            }
            let Some(body) = data.get(COMMON_BYTES..length) else { break Ok(()) };
            from += length;
            self.stats.messages += 1;
            if let Err(error) = self.message(kind, body, rib, changes) {
                break Err(error);
            }
        };
        input.drain(..from);
        self.input = input;
        result
    }

    fn message(
        &mut self,
        kind: u8,
        body: &[u8],
        rib: &mut Rib,
        changes: &mut Vec<Change>,
    ) -> Result<(), BmpError> {
        let short = |fault| BmpError::Short { kind, fault };
        let mut body = Cursor::new(body);
        match kind {
            0..=3 => {
                let header = Header::read(&mut body).map_err(short)?;
                if !header.is_of(self.view) {
                    self.stats.ignored += 1;
                    return Ok(());
                }
                match kind {
                    0 => self.routes(&header, body, rib, changes)?,
                    1 => self.statistics(&header, body).map_err(short)?,
                    2 => self.down(&header, rib),
                    _ => self.up(&header, body, rib).map_err(short)??,
                }
            }
            4 => {
                for (kind, value) in texts(body).map_err(short)? {
                    if kind == 2 {
                        self.name = value;
                    }
                }
            }
            5 => {
                let why: Vec<String> = texts(body)
                    .map_err(short)?
                    .into_iter()
                    .filter(|(kind, _)| *kind == 0)
                    .map(|(_, t)| t)
                    .collect();
                let why = if why.is_empty() { "without a word".into() } else { why.join("; ") };
                return Err(BmpError::Ended(why));
            }
            _ => self.stats.ignored += 1,
        }
        Ok(())
    }

    /// The peer of a header, known from now on.
    fn peer(&mut self, header: &Header, rib: &mut Rib) -> Result<&mut Peer, BmpError> {
        let Station { peers, spare, .. } = self;
        if peers.len() >= PEERS_MAX && !peers.contains_key(&header.key) {
            let gone = peers.extract_if(.., |_, peer| !peer.up);
            spare.extend(gone.map(|(_, peer)| peer.number));
            if peers.len() >= PEERS_MAX {
                return Err(BmpError::Peers);
            }
        }
        Ok(peers.entry(header.key).or_insert_with(|| {
            // One that is down has no paths: whoever gets its number begins without any.
            let number = match spare.pop() {
                Some(number) => {
                    rib.set_rank(number, rank(header, false));
                    number
                }
                None => rib.add_peer(rank(header, false)),
            };
            Peer {
                number,
                asn: header.asn,
                id: header.id,
                up: false,
                add_path: [false; 2],
                internal: false,
                synchronized: [false; 2],
                statistics: BTreeMap::new(),
            }
        }))
    }

    fn up(&mut self, header: &Header, mut body: Cursor<'_>, rib: &mut Rib) -> Fault<Result<(), BmpError>> {
        body.bytes(20, "addresses and ports")?;
        let rest = body.bytes(body.left(), "the OPENs")?;
        // OPENs that cannot be read leave what is usual.
        let open = |data: &[u8]| -> Option<(Open, usize)> {
            let frame = message::frame(data, LONGEST_EXTENDED).ok()??;
            let open = (frame.kind == message::OPEN).then(|| Open::read(frame.body).ok())??;
            Some((open, frame.bytes()))
        };
        let sent = open(rest);
        let received = sent.as_ref().and_then(|(_, length)| open(rest.get(*length..)?));
        let peer = match self.peer(header, rib) {
            Ok(peer) => peer,
            Err(error) => return Ok(Err(error)),
        };
        if peer.up {
            rib.withdraw_all(peer.number, None, false);
        }
        (peer.up, peer.asn, peer.id, peer.synchronized) = (true, header.asn, header.id, [false; 2]);
        if let (Some((sent, _)), Some((received, _))) = (sent, received) {
            let both = |family: usize| {
                sent.capabilities.add_path[family] & 1 != 0 && received.capabilities.add_path[family] & 2 != 0
            };
            peer.add_path = FAMILIES.map(|family| both(at(family)));
            peer.internal = sent.asn == received.asn;
        }
        rib.set_rank(peer.number, rank(header, peer.internal));
        Ok(Ok(()))
    }

    fn down(&mut self, header: &Header, rib: &mut Rib) {
        if let Some(peer) = self.peers.get_mut(&header.key) {
            peer.up = false;
            peer.synchronized = [false; 2];
            rib.withdraw_all(peer.number, None, false);
        }
    }

    fn statistics(&mut self, header: &Header, mut body: Cursor<'_>) -> Fault<()> {
        let count = body.u32("the number of statistics")?;
        let Some(peer) = self.peers.get_mut(&header.key) else { return Ok(()) };
        for _ in 0..count {
            if body.is_empty() {
                break;
            }
            let kind = body.u16("a statistic's type")?;
            let length = body.u16("a statistic's length")?;
            let value = body.bytes(usize::from(length), "a statistic")?;
            // Others are counts of one family.
            if matches!(value.len(), 4 | 8)
                && (peer.statistics.len() < 64 || peer.statistics.contains_key(&kind))
            {
                let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
                peer.statistics.insert(kind, value);
            }
        }
        Ok(())
    }

    fn routes(
        &mut self,
        header: &Header,
        mut body: Cursor<'_>,
        rib: &mut Rib,
        changes: &mut Vec<Change>,
    ) -> Result<(), BmpError> {
        let peer = self.peer(header, rib)?;
        // Whoever tells of routes has a session, though we missed its beginning.
        peer.up = true;
        let number = peer.number;
        let reading = Reading {
            wide: header.flags & NARROW_AS == 0 || header.key.kind == LOC_RIB,
            internal: peer.internal,
            monitored: true,
            families: [true; 2],
            flows: [false; 2],
            add_path: peer.add_path,
        };
        let data = body.bytes(body.left(), "an UPDATE").unwrap_or_default();
        let mut rest = data;
        while rest.len() >= HEADER_BYTES {
            let frame = match message::frame(rest, LONGEST_EXTENDED) {
                Ok(Some(frame)) => frame,
                _ => {
                    self.stats.malformed += 1;
                    return Ok(());
                }
            };
            rest = &rest[frame.bytes()..];
            let Frame { kind: message::UPDATE, body } = frame else { continue };
            let Ok(update) = Update::read(body, &reading) else {
                self.stats.malformed += 1;
                continue;
            };
            self.stats.updates += 1;
            self.take(header, number, update, rib, changes)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        header: &Header,
        number: PeerId,
        update: Update,
        rib: &mut Rib,
        changes: &mut Vec<Change>,
    ) -> Result<(), BmpError> {
        for nlri in update.withdrawn {
            rib.withdraw(number, nlri, changes);
        }
        let Own { asn, id } = self.own;
        // What a router of our own AS has from us has no AS in its path yet.
        let ours = header.key.kind != LOC_RIB && header.id == id;
        for (attributes, mut prefixes) in update.announced {
            let told = prefixes.len();
            prefixes.retain(|nlri| !is_martian(nlri.prefix));
            self.stats.martians += (told - prefixes.len()) as u64;
            if ours || attributes.as_path.contains(asn) || attributes.originator == Some(id) {
                // As from a peer (RFC 4271, 9.1.2; RFC 4456, 8): or a prefix that we announce would lead to that router, and back.
                self.stats.loops += prefixes.len() as u64;
                prefixes.into_iter().for_each(|nlri| rib.withdraw(number, nlri, changes));
                continue;
            }
            let attributes = Arc::new(attributes);
            for nlri in prefixes {
                self.stats.too_many_paths += u64::from(!rib.announce(number, nlri, &attributes, changes));
                if rib.paths(number).iter().sum::<usize>() > self.max_prefixes as usize {
                    return Err(BmpError::Prefixes(self.max_prefixes));
                }
            }
        }
        if let (Some(family), Some(peer)) = (update.end_of_rib, self.peers.get_mut(&header.key)) {
            peer.synchronized[at(family)] = true;
        }
        Ok(())
    }

    /// The connection is gone, and with it what it has told.
    pub fn lost(&mut self, rib: &mut Rib) {
        self.input.clear();
        for peer in self.peers.values_mut() {
            peer.up = false;
            rib.withdraw_all(peer.number, None, false);
        }
    }
}

fn rank(header: &Header, internal: bool) -> Rank {
    Rank { internal, id: header.id, address: header.key.address, local_pref: 100 }
}

/// Information that is text, with control characters left out: strangers write it.
fn texts(mut body: Cursor<'_>) -> Fault<Vec<(u16, String)>> {
    let mut list = Vec::new();
    while !body.is_empty() {
        let kind = body.u16("an information's type")?;
        let length = body.u16("an information's length")?;
        let value = body.bytes(usize::from(length), "an information")?;
        let text = String::from_utf8_lossy(&value[..value.len().min(256)]);
        list.push((kind, text.chars().filter(|c| !c.is_control()).collect()));
    }
    Ok(list)
}

/// Appends a message about a peer of the view [`View::PrePolicy`]: for tests, and for those who write stations' tests.
#[doc(hidden)]
pub fn put(out: &mut Vec<u8>, kind: u8, peer: (IpAddr, u32, Ipv4Addr), flags: u8, body: &[u8]) {
    let (address, asn, id) = peer;
    let (is_v6, address) = match address {
        IpAddr::V4(v4) => (0, Ipv6Addr::from(u128::from(u32::from(v4)))),
        IpAddr::V6(v6) => (ADDRESS_IS_V6, v6),
    };
    out.push(3);
    out.extend_from_slice(&((COMMON_BYTES + 42 + body.len()) as u32).to_be_bytes());
    out.extend_from_slice(&[kind, 0, is_v6 | flags, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&address.octets());
    out.extend_from_slice(&asn.to_be_bytes());
    out.extend_from_slice(&id.octets());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests;
