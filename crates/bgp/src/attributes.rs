//! Path attributes, and what is done about malformed ones (RFC 4271, 5; RFC 7606).
//!
//! | malformed | then |
//! |---|---|
//! | ORIGIN, AS_PATH, NEXT_HOP, MULTI_EXIT_DISC, LOCAL_PREF, communities, ORIGINATOR_ID, CLUSTER_LIST; wrong flags; a length that overruns; one that must be there is not | the routes are withdrawn |
//! | ATOMIC_AGGREGATE, AGGREGATOR, AS4_PATH, AS4_AGGREGATOR; LOCAL_PREF, ORIGINATOR_ID, CLUSTER_LIST of another AS; one that occurs twice (but the first) | it is left out |
//! | MP_REACH_NLRI, MP_UNREACH_NLRI; either of them twice; an unknown well-known one | the session is reset |
//!
//! AS 0 is malformed wherever it stands (RFC 7607).

use crate::notice::{self, Notice};
use crate::path::AsPath;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use tidemill_feed::bgp::{Cursor, Fault};

const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const MED: u8 = 4;
const LOCAL_PREF: u8 = 5;
const ATOMIC_AGGREGATE: u8 = 6;
const AGGREGATOR: u8 = 7;
const COMMUNITIES: u8 = 8;
const ORIGINATOR_ID: u8 = 9;
const CLUSTER_LIST: u8 = 10;
pub(crate) const MP_REACH: u8 = 14;
pub(crate) const MP_UNREACH: u8 = 15;
const EXTENDED_COMMUNITIES: u8 = 16;
const AS4_PATH: u8 = 17;
const AS4_AGGREGATOR: u8 = 18;
const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
const LARGE_COMMUNITIES: u8 = 32;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const EXTENDED_LENGTH: u8 = 0x10;

/// Where a route comes from, the better ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Origin {
    /// Its AS's interior.
    #[default]
    Igp,
    /// EGP, which is history.
    Egp,
    /// Unknown.
    Incomplete,
}

impl Origin {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Igp => "igp",
            Origin::Egp => "egp",
            Origin::Incomplete => "incomplete",
        }
    }
}

/// What a route has beside its prefix. Routes with the same attributes share one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH, with the numbers of AS4_PATH.
    pub as_path: AsPath,
    /// The next hop.
    pub next_hop: IpAddr,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// Communities (RFC 1997), in their order.
    pub communities: Box<[u32]>,
    /// Large communities (RFC 8092).
    pub large_communities: Box<[[u32; 3]]>,
    /// ORIGINATOR_ID (RFC 4456).
    pub originator: Option<Ipv4Addr>,
    /// How long CLUSTER_LIST is.
    pub clusters: u16,
}

impl Attributes {
    /// Attributes of a route of one's own: everything optional left out.
    pub fn new(next_hop: IpAddr, as_path: AsPath) -> Self {
        Attributes {
            origin: Origin::Igp,
            as_path,
            next_hop,
            med: None,
            local_pref: None,
            communities: Box::default(),
            large_communities: Box::default(),
            originator: None,
            clusters: 0,
        }
    }
}

/// A part of an update that was not as it should be, and what was done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The attribute of this type was left out.
    Discarded(u8),
    /// All routes of the update were withdrawn for the attribute of this type; 0: its attributes overrun.
    Withdrawn(u8),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Discarded(kind) => write!(f, "attribute {kind} is malformed: left out"),
            Problem::Withdrawn(0) => f.write_str("the attributes overrun: their routes are withdrawn"),
            Problem::Withdrawn(kind) => {
                write!(f, "attribute {kind} is malformed or missing: its routes are withdrawn")
            }
        }
    }
}

/// How attributes of a session are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// AS numbers have 4 bytes.
    pub wide: bool,
    /// The peer is of our own AS.
    pub internal: bool,
    /// It is another router's session, or table, that we are told of (BMP): what is for internal peers only may be there or not.
    pub monitored: bool,
    /// Families that the session has, by [`at`](crate::message::at).
    pub families: [bool; 2],
    /// Families of whose flow specifications it is told, likewise.
    pub flows: [bool; 2],
    /// Prefixes have path identifiers, by family.
    pub add_path: [bool; 2],
}

/// An update's attributes, as far as they could be read.
#[derive(Debug, Default)]
pub(crate) struct Found<'a> {
    pub(crate) origin: Option<Origin>,
    pub(crate) as_path: Option<AsPath>,
    pub(crate) next_hop: Option<Ipv4Addr>,
    pub(crate) med: Option<u32>,
    pub(crate) local_pref: Option<u32>,
    pub(crate) communities: Box<[u32]>,
    pub(crate) large_communities: Box<[[u32; 3]]>,
    pub(crate) originator: Option<Ipv4Addr>,
    pub(crate) clusters: u16,
    /// Extended communities (RFC 4360), which mean something to flow specifications only.
    pub(crate) extended: &'a [[u8; 8]],
    /// Those with IPv6 addresses (RFC 5701), likewise.
    pub(crate) extended6: &'a [[u8; 20]],
    pub(crate) mp_reach: Option<Cursor<'a>>,
    pub(crate) mp_unreach: Option<Cursor<'a>>,
    /// Any at all, but MP_UNREACH_NLRI.
    pub(crate) any: bool,
    pub(crate) problems: Vec<Problem>,
}

/// What is wrong with one attribute.
enum Wrong {
    Discard,
    Withdraw,
}

impl<'a> Found<'a> {
    /// Reads them all.
    pub(crate) fn read(data: &'a [u8], reading: &Reading) -> Result<Self, Notice> {
        let mut found = Found::default();
        let mut as4_path = None;
        let mut as4_ignored = false;
        let mut seen = [false; 256];
        let mut rest = data;
        while !rest.is_empty() {
            let Some((flags, kind, value, next)) = split(rest) else {
                // RFC 7606, 4: the routes can still be told, for they lie outside.
                found.any = true;
                found.problems.push(Problem::Withdrawn(0));
                break;
            };
            let whole = &rest[..rest.len() - next.len()];
            rest = next;
            found.any |= kind != MP_UNREACH;
            if std::mem::replace(&mut seen[usize::from(kind)], true) {
                if matches!(kind, MP_REACH | MP_UNREACH) {
                    return Err(Notice::new(notice::UPDATE, 1));
                }
                found.problems.push(Problem::Discarded(kind));
                continue;
            }
            match flags_of(kind) {
                Some(right) if flags & (OPTIONAL | TRANSITIVE) != right => {
                    found.problems.push(Problem::Withdrawn(kind));
                    // Which routes those are is in the attribute itself.
                    if !matches!(kind, MP_REACH | MP_UNREACH) {
                        continue;
                    }
                }
                None if flags & OPTIONAL == 0 => return Err(Notice::with(notice::UPDATE, 2, whole)),
                _ => {}
            }
            let result = match kind {
                MP_REACH => {
                    found.mp_reach = Some(Cursor::new(value));
                    Ok(())
                }
                MP_UNREACH => {
                    found.mp_unreach = Some(Cursor::new(value));
                    Ok(())
                }
                AS4_PATH if reading.wide => Err(Wrong::Discard),
                AS4_PATH => match AsPath::read(Cursor::new(value), true) {
                    Ok(path) => {
                        as4_path = Some(path);
                        Ok(())
                    }
                    Err(_) => Err(Wrong::Discard),
                },
                AGGREGATOR => {
                    as4_ignored = !reading.wide && value.get(..2).is_some_and(|asn| asn != [0x5b, 0xa0]);
                    let width = if reading.wide { 4 } else { 2 };
                    let is_right = value.len() == width + 4 && is_as(&value[..width]);
                    is_right.then_some(()).ok_or(Wrong::Discard)
                }
                _ => found.one(kind, value, reading),
            };
            found.problems.extend(result.err().map(|wrong| match wrong {
                Wrong::Discard => Problem::Discarded(kind),
                Wrong::Withdraw => Problem::Withdrawn(kind),
            }));
        }
        // RFC 6793, 4.2.3: an aggregator that did not know of wide numbers has made the path anew.
        if let (Some(wide), false) = (as4_path, as4_ignored && seen[usize::from(AS4_AGGREGATOR)]) {
            found.as_path = found.as_path.map(|path| path.with_wide(wide));
        }
        Ok(found)
    }

    fn one(&mut self, kind: u8, value: &'a [u8], reading: &Reading) -> Result<(), Wrong> {
        let four = || <[u8; 4]>::try_from(value).map_err(|_| Wrong::Withdraw);
        match kind {
            ORIGIN => {
                self.origin = Some(match value {
                    [0] => Origin::Igp,
                    [1] => Origin::Egp,
                    [2] => Origin::Incomplete,
                    _ => return Err(Wrong::Withdraw),
                });
            }
            AS_PATH => {
                let path: Fault<AsPath> = AsPath::read(Cursor::new(value), reading.wide);
                self.as_path = Some(path.map_err(|_| Wrong::Withdraw)?);
            }
            NEXT_HOP => self.next_hop = Some(four()?.into()),
            MED => self.med = Some(u32::from_be_bytes(four()?)),
            // RFC 7606, 7.5, 7.9 and 7.10: not to be sent to another AS.
            LOCAL_PREF | ORIGINATOR_ID | CLUSTER_LIST if !reading.internal && !reading.monitored => {
                return Err(Wrong::Discard);
            }
            LOCAL_PREF => self.local_pref = Some(u32::from_be_bytes(four()?)),
            ORIGINATOR_ID => self.originator = Some(four()?.into()),
            CLUSTER_LIST => self.clusters = words::<4>(value)?.len() as u16,
            ATOMIC_AGGREGATE if !value.is_empty() => return Err(Wrong::Discard),
            AS4_AGGREGATOR if value.len() != 8 || !is_as(&value[..4]) => return Err(Wrong::Discard),
            COMMUNITIES => {
                self.communities = words::<4>(value)?.iter().map(|word| u32::from_be_bytes(*word)).collect();
            }
            EXTENDED_COMMUNITIES => self.extended = words::<8>(value)?,
            IPV6_EXTENDED_COMMUNITIES => self.extended6 = value.as_chunks::<20>().0,
            LARGE_COMMUNITIES => {
                let large = |word: &[u8; 12]| {
                    let [a, b, c, d, e, f, g, h, i, j, k, l] = *word;
                    [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_be_bytes)
                };
                self.large_communities = words::<12>(value)?.iter().map(large).collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// The attributes of routes by this next hop; `Err` is the type of a malformed or missing one.
    pub(crate) fn attributes(&self, next_hop: Option<IpAddr>, reading: &Reading) -> Result<Attributes, u8> {
        let wrong = self.problems.iter().find_map(|problem| match problem {
            Problem::Withdrawn(kind) => Some(*kind),
            Problem::Discarded(_) => None,
        });
        if let Some(kind) = wrong {
            return Err(kind);
        }
        if reading.internal && !reading.monitored && self.local_pref.is_none() {
            return Err(LOCAL_PREF);
        }
        Ok(Attributes {
            origin: self.origin.ok_or(ORIGIN)?,
            as_path: self.as_path.clone().ok_or(AS_PATH)?,
            next_hop: next_hop.filter(|hop| is_host(*hop)).ok_or(NEXT_HOP)?,
            med: self.med,
            local_pref: self.local_pref,
            communities: self.communities.clone(),
            large_communities: self.large_communities.clone(),
            originator: self.originator,
            clusters: self.clusters,
        })
    }
}

/// The first attribute: flags, type, value, and what is behind it.
fn split(data: &[u8]) -> Option<(u8, u8, &[u8], &[u8])> {
    let (&[flags, kind], rest) = data.split_first_chunk::<2>()?;
    let (length, rest) = match flags & EXTENDED_LENGTH {
        0 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        _ => rest.split_first_chunk::<2>().map(|(l, rest)| (usize::from(u16::from_be_bytes(*l)), rest))?,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    Some((flags, kind, value, rest))
}

/// The flags of an attribute that we know, as far as they are its own.
fn flags_of(kind: u8) -> Option<u8> {
    Some(match kind {
        ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => TRANSITIVE,
        MED | ORIGINATOR_ID | CLUSTER_LIST | MP_REACH | MP_UNREACH => OPTIONAL,
        AGGREGATOR | COMMUNITIES | EXTENDED_COMMUNITIES | AS4_PATH | AS4_AGGREGATOR | LARGE_COMMUNITIES => {
            OPTIONAL | TRANSITIVE
        }
        _ => return None,
    })
}

/// A value that is a list of at least one.
fn words<const N: usize>(value: &[u8]) -> Result<&[[u8; N]], Wrong> {
    match value.as_chunks::<N>() {
        (words, []) if !words.is_empty() => Ok(words),
        _ => Err(Wrong::Withdraw),
    }
}

/// Whether these bytes are an AS number: 0 is none (RFC 7607).
fn is_as(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != 0)
}

/// Whether an address can be a next hop (RFC 4271, 6.3): one host's.
fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            first != 0 && first < 224 && !v4.is_loopback()
        }
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast() && !v6.is_loopback(),
    }
}

/// Appends one attribute with the flags that it has.
fn put(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let flags = flags_of(kind).unwrap_or(OPTIONAL | TRANSITIVE);
    match u8::try_from(value.len()) {
        Ok(length) => out.extend_from_slice(&[flags, kind, length]),
        Err(_) => {
            out.extend_from_slice(&[flags | EXTENDED_LENGTH, kind]);
            out.extend_from_slice(&(value.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

/// Appends MP_REACH_NLRI.
pub(crate) fn put_mp_reach(out: &mut Vec<u8>, value: &[u8]) {
    put(out, MP_REACH, value);
}

/// Appends MP_UNREACH_NLRI.
pub(crate) fn put_mp_unreach(out: &mut Vec<u8>, value: &[u8]) {
    put(out, MP_UNREACH, value);
}

/// Appends extended communities.
#[cfg(test)]
pub(crate) fn put_extended(out: &mut Vec<u8>, communities: &[[u8; 8]]) {
    put(out, EXTENDED_COMMUNITIES, communities.as_flattened());
}

/// Appends all but the next hop of IPv6, which is a part of MP_REACH_NLRI.
pub(crate) fn put_all(out: &mut Vec<u8>, attributes: &Attributes, wide: bool) {
    put(out, ORIGIN, &[attributes.origin as u8]);
    let mut path = Vec::new();
    attributes.as_path.write(wide, &mut path);
    put(out, AS_PATH, &path);
    if let IpAddr::V4(next_hop) = attributes.next_hop {
        put(out, NEXT_HOP, &next_hop.octets());
    }
    if let Some(med) = attributes.med {
        put(out, MED, &med.to_be_bytes());
    }
    if let Some(preference) = attributes.local_pref {
        put(out, LOCAL_PREF, &preference.to_be_bytes());
    }
    if !attributes.communities.is_empty() {
        let bytes: Vec<u8> = attributes.communities.iter().flat_map(|word| word.to_be_bytes()).collect();
        put(out, COMMUNITIES, &bytes);
    }
    if !wide && attributes.as_path.0.iter().any(|segment| segment.asns.iter().any(|asn| *asn > 0xffff)) {
        let mut path = Vec::new();
        attributes.as_path.write(true, &mut path);
        put(out, AS4_PATH, &path);
    }
    if !attributes.large_communities.is_empty() {
        let words = attributes.large_communities.iter().flatten();
        put(out, LARGE_COMMUNITIES, &words.flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>());
    }
}
