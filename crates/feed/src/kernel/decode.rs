//! Netlink datagrams to messages: pure, total on any bytes, nothing allocated but the list of a path's hops.
//!
//! Layouts: Linux `include/uapi/linux/netlink.h`, `rtnetlink.h`, `if_link.h`, `if_addr.h`, `neighbour.h`, `nexthop.h`.
//! Integers are in the machine's order. Attributes that we do not know are skipped; one that we know and that is
//! malformed costs its message alone.

use super::{Hop, KernelPath};
use crate::table::AnyPrefix;
use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NetlinkBuffer, NlasIterator};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_lpm::Prefix;

pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
pub(super) const RTM_GETLINK: u16 = 18;
pub(super) const RTM_NEWADDR: u16 = 20;
pub(super) const RTM_DELADDR: u16 = 21;
pub(super) const RTM_GETADDR: u16 = 22;
pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
pub(super) const RTM_GETROUTE: u16 = 26;
pub(super) const RTM_NEWNEIGH: u16 = 28;
pub(super) const RTM_DELNEIGH: u16 = 29;
pub(super) const RTM_GETNEIGH: u16 = 30;
pub(super) const RTM_NEWNEXTHOP: u16 = 104;
pub(super) const RTM_DELNEXTHOP: u16 = 105;
pub(super) const RTM_GETNEXTHOP: u16 = 106;

pub(super) const AF_UNSPEC: u8 = 0;
pub(super) const AF_INET: u8 = 2;
pub(super) const AF_INET6: u8 = 10;

/// `RTPROT_RA`: learnt from a router advertisement.
const RTPROT_RA: u8 = 9;
const HEADER: usize = 16;

/// A netlink message's header and what is behind it.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// `nlmsg_seq`.
    pub sequence: u32,
    /// `nlmsg_pid`: who asked.
    pub port: u32,
    /// Everything behind the header.
    pub body: &'a [u8],
}

/// What is wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The messages of a datagram; ends at the first header that makes no sense.
pub fn frames(datagram: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, Malformed>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Ok(message) = NetlinkBuffer::new_checked(rest) else {
            rest = &[];
            return Some(Err(Malformed("a netlink header with a length that does not fit")));
        };
        let length = message.length() as usize;
        let (kind, flags) = (message.message_type(), message.flags());
        let (sequence, port) = (message.sequence_number(), message.port_number());
        let body = &rest[HEADER..length];
        // Lengths are multiples of four, but for the last.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(Frame { kind, flags, sequence, port, body }))
    })
}

/// One decoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A link.
    Link(Link),
    /// An address.
    Address(Address),
    /// A neighbor.
    Neighbor(Neighbor),
    /// A nexthop object.
    NextHop {
        /// `RTM_DELNEXTHOP`.
        removed: bool,
        /// Its number.
        id: u32,
        /// What it is.
        object: NextHop,
    },
    /// A route.
    Route(Route),
    /// A dump is over; 0 or a negative error number.
    Done(i32),
    /// The answer to a request; 0 or a negative error number.
    Answer(i32),
    /// Nothing for us: of another kind or family, or a route that no table of destinations can hold.
    Ignored,
}

/// `RTM_NEWLINK`, `RTM_DELLINK`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// `RTM_DELLINK`.
    pub removed: bool,
    /// Interface index.
    pub index: u32,
    /// Administratively up (`IFF_UP`).
    pub admin: bool,
    /// `IFF_RUNNING` or `IFF_LOWER_UP`: what the kernel's routes go by.
    pub carrier: bool,
    /// `IFLA_IFNAME`.
    pub name: String,
    /// `IFLA_ADDRESS`, where it has six bytes.
    pub mac: Option<[u8; 6]>,
    /// `IFLA_MTU`.
    pub mtu: u32,
}

/// `RTM_NEWADDR`, `RTM_DELADDR`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// `RTM_DELADDR`, or not usable (yet).
    pub removed: bool,
    /// Interface index.
    pub index: u32,
    /// `IFA_LOCAL`, else `IFA_ADDRESS`.
    pub address: IpAddr,
    /// Prefix length.
    pub prefix_len: u8,
}

/// `RTM_NEWNEIGH`, `RTM_DELNEIGH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbor {
    /// Interface index.
    pub index: u32,
    /// `NDA_DST`.
    pub address: IpAddr,
    /// `NDA_LLADDR`, where it is valid and has six bytes.
    pub mac: Option<[u8; 6]>,
    /// `NUD_REACHABLE` or `NUD_PERMANENT`.
    pub reachable: bool,
}

/// A nexthop object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// One path of its own; [`KernelPath::Via`] has one hop.
    Path(KernelPath),
    /// Other objects by number, with weights.
    Group(Vec<(u32, u32)>),
}

/// `RTM_NEWROUTE`, `RTM_DELROUTE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// `RTM_DELROUTE`.
    pub removed: bool,
    /// `RTA_TABLE`, else `rtm_table`.
    pub table: u32,
    /// `RTA_DST` and `rtm_dst_len`.
    pub prefix: AnyPrefix,
    /// `RTA_PRIORITY`; IPv4 leaves 0 out.
    pub metric: u32,
    /// Where to.
    pub path: RawPath,
}

/// A path as the kernel names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RawPath {
    /// Where packets go.
    pub kind: PathKind,
    /// What else tells two routes of one prefix and metric apart.
    pub identity: Identity,
}

/// Where packets go, before nexthop objects are resolved and dead hops left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathKind {
    /// In order.
    Hops(Vec<Hop>),
    /// A nexthop object, by number.
    Object(u32),
    /// All other paths; never [`KernelPath::Via`].
    Fixed(KernelPath),
}

/// IPv4 keeps routes apart that differ in these alone; in IPv6 they play no part, but for `advertised`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Identity {
    /// `rtm_protocol`.
    pub protocol: u8,
    /// `rtm_scope`.
    pub scope: u8,
    /// `RTA_PREFSRC`.
    pub source: Option<Ipv4Addr>,
    /// IPv6, from a router advertisement: never one of a set of equal paths unless it came as one.
    pub advertised: bool,
}

/// Decodes one message.
pub fn decode(frame: &Frame<'_>) -> Result<Message, Malformed> {
    match frame.kind {
        RTM_NEWLINK | RTM_DELLINK => link(frame.kind == RTM_DELLINK, frame.body),
        RTM_NEWADDR | RTM_DELADDR => address(frame.kind == RTM_DELADDR, frame.body),
        RTM_NEWNEIGH | RTM_DELNEIGH => neighbor(frame.kind == RTM_DELNEIGH, frame.body),
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => nexthop(frame.kind == RTM_DELNEXTHOP, frame.body),
        RTM_NEWROUTE | RTM_DELROUTE => route(frame.kind == RTM_DELROUTE, frame.body),
        // A dump that ends well may come without its number.
        NLMSG_DONE => Ok(Message::Done(if frame.body.is_empty() { 0 } else { int(frame.body)? as i32 })),
        NLMSG_ERROR => Ok(Message::Answer(int(frame.body)? as i32)),
        NLMSG_NOOP => Ok(Message::Ignored),
        _ => Ok(Message::Ignored),
    }
}

fn int(value: &[u8]) -> Result<u32, Malformed> {
    let bytes =
        value.first_chunk::<4>().ok_or(Malformed("an attribute or header shorter than its number"))?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn short(value: &[u8]) -> Result<u16, Malformed> {
    let bytes = value.first_chunk::<2>().ok_or(Malformed("an attribute shorter than its number"))?;
    Ok(u16::from_ne_bytes(*bytes))
}

fn split(body: &[u8], header: usize) -> Result<(&[u8], &[u8]), Malformed> {
    body.split_at_checked(header).ok_or(Malformed("a message shorter than its header"))
}

fn ip(value: &[u8]) -> Result<IpAddr, Malformed> {
    if let Ok(bytes) = <[u8; 4]>::try_from(value) {
        return Ok(Ipv4Addr::from(bytes).into());
    }
    let bytes = <[u8; 16]>::try_from(value).map_err(|_| Malformed("an address of neither 4 nor 16 bytes"))?;
    Ok(Ipv6Addr::from(bytes).into())
}

fn ip_of(family: u8, value: &[u8]) -> Result<IpAddr, Malformed> {
    let address = ip(value)?;
    if address.is_ipv4() != (family == AF_INET) {
        return Err(Malformed("an address of another family than its message"));
    }
    Ok(address)
}

/// Calls `each` with every attribute's number (without flags) and value.
fn attributes<'a>(
    bytes: &'a [u8],
    mut each: impl FnMut(u16, &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    for attribute in NlasIterator::new(bytes) {
        let attribute =
            attribute.map_err(|_| Malformed("an attribute whose length does not fit its message"))?;
        let (kind, end) = (attribute.kind(), usize::from(attribute.length()));
        each(kind, attribute.into_inner().get(4..end).unwrap_or(&[]))?;
    }
    Ok(())
}

fn link(removed: bool, body: &[u8]) -> Result<Message, Malformed> {
    const IFF_UP: u32 = 1;
    const IFF_RUNNING: u32 = 1 << 6;
    const IFF_LOWER_UP: u32 = 1 << 16;
    let (header, rest) = split(body, 16)?;
    // A bridge says of its ports with the same messages, in a family of its own.
    if header[0] != AF_UNSPEC {
        return Ok(Message::Ignored);
    }
    let flags = int(&header[8..])?;
    let mut link = Link {
        removed,
        index: int(&header[4..])?,
        admin: flags & IFF_UP != 0,
        carrier: flags & (IFF_RUNNING | IFF_LOWER_UP) != 0,
        name: String::new(),
        mac: None,
        mtu: 0,
    };
    attributes(rest, |kind, value| {
        match kind {
            1 => link.mac = value.try_into().ok(),
            3 => {
                let name = value.strip_suffix(&[0]).unwrap_or(value);
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            4 => link.mtu = int(value)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(Message::Link(link))
}

fn address(removed: bool, body: &[u8]) -> Result<Message, Malformed> {
    const IFA_F_OPTIMISTIC: u32 = 0x04;
    const IFA_F_DADFAILED: u32 = 0x08;
    const IFA_F_TENTATIVE: u32 = 0x40;
    let (header, rest) = split(body, 8)?;
    let family = header[0];
    if family != AF_INET && family != AF_INET6 {
        return Ok(Message::Ignored);
    }
    let mut flags = u32::from(header[2]);
    let (mut local, mut address) = (None, None);
    attributes(rest, |kind, value| {
        match kind {
            1 => address = Some(ip_of(family, value)?),
            2 => local = Some(ip_of(family, value)?),
            8 => flags = int(value)?,
            _ => {}
        }
        Ok(())
    })?;
    let address = local.or(address).ok_or(Malformed("an address message without an address"))?;
    let limit = if family == AF_INET { 32 } else { 128 };
    if header[1] > limit {
        return Err(Malformed("a prefix length above its family's"));
    }
    let waiting = flags & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC) == IFA_F_TENTATIVE;
    let unusable = family == AF_INET6 && (waiting || flags & IFA_F_DADFAILED != 0);
    Ok(Message::Address(Address {
        removed: removed || unusable,
        index: int(&header[4..])?,
        address,
        prefix_len: header[1],
    }))
}

fn neighbor(removed: bool, body: &[u8]) -> Result<Message, Malformed> {
    const NUD_REACHABLE: u16 = 0x02;
    const NUD_STALE: u16 = 0x04;
    const NUD_DELAY: u16 = 0x08;
    const NUD_PROBE: u16 = 0x10;
    const NUD_NOARP: u16 = 0x40;
    const NUD_PERMANENT: u16 = 0x80;
    const NTF_PROXY: u8 = 0x08;
    let (header, rest) = split(body, 12)?;
    let (family, state, flags) = (header[0], short(&header[8..])?, header[10]);
    // A bridge's forwarding table, addresses that we answer for, and multicast are no neighbors.
    if (family != AF_INET && family != AF_INET6) || flags & NTF_PROXY != 0 || state & NUD_NOARP != 0 {
        return Ok(Message::Ignored);
    }
    let (mut address, mut mac) = (None, None);
    attributes(rest, |kind, value| {
        match kind {
            1 => address = Some(ip_of(family, value)?),
            2 => mac = value.try_into().ok(),
            _ => {}
        }
        Ok(())
    })?;
    let confirmed = NUD_REACHABLE | NUD_PERMANENT;
    let valid = state & (confirmed | NUD_STALE | NUD_DELAY | NUD_PROBE) != 0;
    let mac = if valid && !removed { mac } else { None };
    Ok(Message::Neighbor(Neighbor {
        index: int(&header[4..])?,
        address: address.ok_or(Malformed("a neighbor message without an address"))?,
        mac,
        reachable: mac.is_some() && state & confirmed != 0,
    }))
}

fn nexthop(removed: bool, body: &[u8]) -> Result<Message, Malformed> {
    let (_, rest) = split(body, 8)?;
    let (mut id, mut group, mut blackhole, mut other) = (None, None, false, false);
    let mut hop = Hop { index: 0, gateway: None, weight: 1 };
    attributes(rest, |kind, value| {
        match kind {
            1 => id = Some(int(value)?),
            2 => {
                let members = value.chunks_exact(8).map(|member| {
                    let high = u32::from(member[5]) << 8;
                    Ok((int(member)?, (high | u32::from(member[4])) + 1))
                });
                group = Some(members.collect::<Result<Vec<_>, Malformed>>()?);
            }
            4 => blackhole = true,
            5 => hop.index = int(value)?,
            6 => hop.gateway = Some(ip(value)?),
            // A tunnel's encapsulation; for a bridge's forwarding table.
            7 | 8 | 11 => other = true,
            _ => {}
        }
        Ok(())
    })?;
    let object = match group {
        Some(group) => NextHop::Group(group),
        None if other => NextHop::Path(KernelPath::Unsupported),
        None if blackhole => NextHop::Path(KernelPath::Blackhole),
        None => NextHop::Path(KernelPath::Via(vec![hop])),
    };
    let id = id.ok_or(Malformed("a nexthop object without its number"))?;
    Ok(Message::NextHop { removed, id, object })
}

fn route(removed: bool, body: &[u8]) -> Result<Message, Malformed> {
    const RTM_F_CLONED: u32 = 0x200;
    let (header, rest) = split(body, 12)?;
    let &[family, len, source_len, tos, table, protocol, scope, kind, ..] = header else {
        return Err(Malformed("a message shorter than its header"));
    };
    if family != AF_INET && family != AF_INET6 {
        return Ok(Message::Ignored);
    }
    let v4 = family == AF_INET;
    if tos != 0 || source_len != 0 || int(&header[8..])? & RTM_F_CLONED != 0 {
        return Ok(Message::Ignored);
    }
    let mut fixed = match kind {
        1 => None,
        2 => Some(KernelPath::Local),
        6 => Some(KernelPath::Blackhole),
        7 => Some(KernelPath::Unreachable),
        8 => Some(KernelPath::Prohibit),
        9 => Some(KernelPath::Unsupported),
        _ => return Ok(Message::Ignored),
    };
    let (mut table, mut metric) = (u32::from(table), 0);
    let (mut destination, mut object, mut source, mut hops) = (None, None, None, None);
    let mut hop = Hop { index: 0, gateway: None, weight: 1 };
    attributes(rest, |kind, value| {
        match kind {
            1 => destination = Some(ip_of(family, value)?),
            4 => hop.index = int(value)?,
            5 => hop.gateway = Some(ip_of(family, value)?),
            6 => metric = int(value)?,
            7 => source = Some(ip_of(family, value)?),
            9 => hops = Some(multipath(family, value)?),
            15 => table = int(value)?,
            18 => hop.gateway = Some(via(value)?),
            // An encapsulation. Its type alone (21) says nothing of more: it is there with every one.
            22 => fixed = Some(KernelPath::Unsupported),
            30 => object = Some(int(value)?),
            _ => {}
        }
        Ok(())
    })?;
    let destination =
        destination.unwrap_or(if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() });
    let prefix = match destination {
        IpAddr::V4(address) => Prefix::new(u32::from(address), len).map(AnyPrefix::V4),
        IpAddr::V6(address) => Prefix::new(u128::from(address), len).map(AnyPrefix::V6),
    };
    let prefix = prefix.ok_or(Malformed("a prefix length above its family's"))?;
    let kind = match (object, fixed, hops) {
        (Some(object), ..) => PathKind::Object(object),
        (_, Some(fixed), _) => PathKind::Fixed(fixed),
        (.., Some(None)) => PathKind::Fixed(KernelPath::Unsupported),
        (.., Some(Some(hops))) => PathKind::Hops(hops),
        _ => PathKind::Hops(vec![hop]),
    };
    let advertised = !v4 && protocol == RTPROT_RA;
    let identity = match source {
        Some(IpAddr::V4(source)) => Identity { protocol, scope, source: Some(source), advertised },
        None if v4 => Identity { protocol, scope, source: None, advertised },
        _ => Identity { advertised, ..Identity::default() },
    };
    Ok(Message::Route(Route { removed, table, prefix, metric, path: RawPath { kind, identity } }))
}

/// `RTA_VIA`: a gateway of another family.
fn via(value: &[u8]) -> Result<IpAddr, Malformed> {
    let family = short(value)?;
    ip_of(u8::try_from(family).unwrap_or(AF_UNSPEC), &value[2..])
}

/// `RTA_MULTIPATH`, in order; `None` where a hop has an encapsulation.
fn multipath(family: u8, value: &[u8]) -> Result<Option<Vec<Hop>>, Malformed> {
    let (mut rest, mut hops, mut supported) = (value, Vec::new(), true);
    while !rest.is_empty() {
        let (header, _) = rest.split_at_checked(8).ok_or(Malformed("a hop shorter than its header"))?;
        let length = usize::from(short(header)?);
        let inner = rest.get(8..length).ok_or(Malformed("a hop whose length does not fit"))?;
        let mut hop = Hop { index: int(&header[4..])?, gateway: None, weight: u32::from(header[3]) + 1 };
        attributes(inner, |kind, value| {
            match kind {
                5 => hop.gateway = Some(ip_of(family, value)?),
                18 => hop.gateway = Some(via(value)?),
                22 => supported = false,
                _ => {}
            }
            Ok(())
        })?;
        hops.push(hop);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    if hops.is_empty() {
        return Err(Malformed("a set of hops without hops"));
    }
    hops.sort_unstable();
    Ok(supported.then_some(hops))
}
