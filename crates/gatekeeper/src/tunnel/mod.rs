//! The tunnel to a Grantor: IP in IP of the same family (RFC 2003, RFC 2473), written in place.
//!
//! ```text
//! as it came    | link header, VLAN tags |            inner packet |
//! as it leaves  | link header, 14 bytes | outer header | inner packet, one hop older |
//!                 zeros, EtherType        20 or 40 bytes
//! ```
//! | field | outer IPv4 | outer IPv6 |
//! |---|---|---|
//! | carries | protocol 4 | next header 41 |
//! | TTL, hop limit | 64 | 255 |
//! | DSCP | as told: 1 granted, 2 to be renewed, 3 to 63 a request | the same |
//! | ECN | the inner packet's, CE too: RFC 6040 4.1, normal mode | the same |
//! | identification, fragments | 0, "don't fragment", whatever the inner packet says | - |
//! | flow label | - | a hash of the inner addresses, never 0 (RFC 6438) |
//!
//! RFC 3168's full functionality differs from RFC 6040's normal mode in one point, that it made ECT(0) of CE on the way in. The
//! receiver's table (RFC 6040 4.2) takes both.
//!
//! The inner TTL goes down by one before (RFC 2003 3.1, RFC 2473 3.1), its checksum with it. The link header is for whoever sends to
//! write; the packet is marked as [our own](Packet::set_own), so that its next hop leaves the outer TTL alone and tells nobody about it:
//! an error about the outer packet would go to its source, which is us. What there is to tell the inner packet's source is told
//! before anything is changed. A mark rather than "one more", because there is no hop limit of 256.
//!
//! The outer header lies ready in the [`Endpoint`], with the sum of what is always the same in it. Costs: one copy of 34 or 54
//! bytes, and some fields.
//!
//! What does not fit the next link with its outer header is in [`long`]; what does not fit a link further on, in [`path`].

pub mod long;
pub mod path;
#[cfg(test)]
mod tests;

use path::{Path, TooBig};
use std::fmt::Debug;
use std::sync::Arc;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::Context;
use tidemill_lpm::Address;
use tidemill_wire::{EtherType, Protocol, checksum, ethernet, ipv4, ipv6};

/// Outer TTL.
pub const TTL: u8 = 64;
/// Outer hop limit.
pub const HOP_LIMIT: u8 = 255;

const LINK: usize = ethernet::HEADER_LEN;
/// Bytes of link header and outer IPv4 header.
const FRONT4: usize = LINK + ipv4::HEADER_LEN;
/// Bytes of link header and outer IPv6 header.
const FRONT6: usize = LINK + ipv6::HEADER_LEN;

/// An address family that is tunnelled in itself.
pub trait Outer: Address {
    /// A link header and an outer header.
    type Front: AsRef<[u8]> + Copy + Debug + Send + Sync;
    /// Bytes of outer header.
    const HEADER_LEN: usize;
    /// The least that a way is held to take, whatever is said of it.
    const LEAST_MTU: u16;

    /// The front of every packet, as far as it is always the same, and the sum of the header's words.
    fn front(source: Self, grantor: Self) -> (Self::Front, u16);

    /// See [`encapsulate`].
    fn encapsulate(packet: &mut Packet, endpoint: &Endpoint<Self>, dscp: u8) -> Result<(), DropReason>;

    /// See [`long`].
    fn too_long(
        cx: &mut Context<'_>,
        packet: &mut Packet,
        endpoint: &Endpoint<Self>,
        dscp: u8,
        how: &mut long::How<'_>,
    ) -> long::Outcome;

    /// A hash of the addresses of the packet that begins with `header`: which way its flow takes where there are several. The
    /// same for all packets of a flow, fragments too, on every worker. No secret is in it: whoever knows it chooses his own way,
    /// nobody else's.
    fn flow_hash(header: &[u8]) -> u32;

    /// TTL or hop limit of the packet that begins with `header`.
    fn hops(header: &[u8]) -> u8;

    /// What an ICMP error to us says of a packet in a tunnel; none if the packet that begins with this header is none.
    fn too_big(ip: &[u8]) -> Option<TooBig<Self>>;

    /// Code point and destination of the packet that begins with `header`.
    fn read(header: &[u8]) -> (u8, Self);

    /// As text.
    fn text(self) -> String;
}

/// Both ends of a tunnel, and the header that leads from one to the other.
#[derive(Debug, Clone)]
pub struct Endpoint<A: Outer> {
    source: A,
    grantor: A,
    front: A::Front,
    sum: u16,
    path: Arc<Path>,
}

/// The Grantors of one family by their numbers, as the nodes see them. A number that packets may still carry
/// ([`Tag`](crate::Tag)) must not come to mean another Grantor.
pub type Endpoints<A> = Vec<Endpoint<A>>;

impl<A: Outer> Endpoint<A> {
    /// From one of our addresses to a Grantor's.
    pub fn new(source: A, grantor: A) -> Self {
        let (front, sum) = A::front(source, grantor);
        Endpoint { source, grantor, front, sum, path: Arc::default() }
    }

    /// The same from another address of ours: what is known of the way stays known.
    pub fn from(&self, source: A) -> Self {
        Endpoint { path: self.path.clone(), ..Endpoint::new(source, self.grantor) }
    }

    /// The way, beyond the next link.
    #[inline(always)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Our end.
    pub fn source(&self) -> A {
        self.source
    }

    /// The Grantor's address, by which packets are routed.
    pub fn grantor(&self) -> A {
        self.grantor
    }
}

/// Puts the packet into an outer one, of code point `dscp` (6 bits). Its IP header has been checked, and padding is cut off behind it.
///
/// # Errors
/// The reason to drop it for, with nothing changed: its TTL is used up, there is no headroom, it is no packet.
#[inline(always)]
pub fn encapsulate<A: Outer>(
    packet: &mut Packet,
    endpoint: &Endpoint<A>,
    dscp: u8,
) -> Result<(), DropReason> {
    A::encapsulate(packet, endpoint, dscp)
}

/// Makes the room in front of the network header `front` bytes.
#[inline(always)]
fn make_room(packet: &mut Packet, front: usize) -> bool {
    let l3 = usize::from(packet.l3);
    match front.checked_sub(l3) {
        Some(more) => packet.grow_front(more),
        None => packet.cut_front(l3 - front),
    }
}

/// What an outer packet is known by.
#[inline(always)]
fn mark(packet: &mut Packet) {
    packet.l3 = LINK as u8;
    // What a device has found of the header was the inner one's.
    packet.clear_checked();
    packet.set_own();
}

impl Outer for u32 {
    type Front = [u8; FRONT4];
    const HEADER_LEN: usize = ipv4::HEADER_LEN;
    /// What every host takes whole (RFC 791 3.2).
    const LEAST_MTU: u16 = 576;

    fn front(source: u32, grantor: u32) -> ([u8; FRONT4], u16) {
        let mut front = [0; FRONT4];
        let (link, header) = front.split_at_mut(LINK);
        link[12..].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        let mut ip = ipv4::Packet::new_unchecked(&mut header[..]);
        ip.set_version_and_header_len(ipv4::HEADER_LEN);
        ip.set_fragment(true, false, 0);
        ip.set_ttl(TTL);
        ip.set_protocol(Protocol::IPV4);
        ip.set_src(source.into());
        ip.set_dst(grantor.into());
        let sum = checksum::sum(header);
        (front, sum)
    }

    #[inline(always)]
    fn encapsulate(packet: &mut Packet, endpoint: &Endpoint<u32>, dscp: u8) -> Result<(), DropReason> {
        let l3 = usize::from(packet.l3);
        let inner = packet.data().get(l3..).and_then(|ip| ip.first_chunk::<{ ipv4::HEADER_LEN }>());
        let Some(inner) = inner else { return Err(DropReason::Ipv4TooShort) };
        if ipv4::ttl(inner) <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !make_room(packet, FRONT4) {
            return Err(DropReason::FrameTooSmall);
        }
        // No frame is that long.
        let total = (packet.len() - LINK) as u16;
        let frame = packet.data_mut().first_chunk_mut::<{ FRONT4 + ipv4::HEADER_LEN }>();
        let Some(frame) = frame else { return Err(DropReason::Ipv4TooShort) };
        let (front, inner) = frame.split_at_mut(FRONT4);
        ipv4::decrement_ttl(inner);
        front.copy_from_slice(&endpoint.front);
        finish4(&mut front[LINK..], endpoint.sum, dscp << 2 | inner[1] & 3, total);
        mark(packet);
        Ok(())
    }

    fn too_long(
        cx: &mut Context<'_>,
        packet: &mut Packet,
        endpoint: &Endpoint<u32>,
        dscp: u8,
        how: &mut long::How<'_>,
    ) -> long::Outcome {
        long::v4(cx, packet, endpoint, dscp, how)
    }

    #[inline(always)]
    fn flow_hash(header: &[u8]) -> u32 {
        let hash = fold(u64::from(ipv4::src_u32(header)), u64::from(ipv4::dst_u32(header)));
        (hash >> 32) as u32 ^ hash as u32
    }

    fn hops(header: &[u8]) -> u8 {
        ipv4::ttl(header)
    }

    fn too_big(ip: &[u8]) -> Option<TooBig<u32>> {
        path::read4(ip)
    }

    fn read(header: &[u8]) -> (u8, u32) {
        (ipv4::Packet::new_unchecked(header).dscp(), ipv4::dst_u32(header))
    }

    fn text(self) -> String {
        std::net::Ipv4Addr::from(self).to_string()
    }
}

/// Writes what differs from packet to packet into an outer header.
#[inline(always)]
fn finish4(header: &mut [u8], sum: u16, tos: u8, total: u16) {
    let check = !checksum::fold(u64::from(sum) + u64::from(tos) + u64::from(total));
    header[1] = tos;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[10..12].copy_from_slice(&check.to_be_bytes());
}

impl Outer for u128 {
    type Front = [u8; FRONT6];
    const HEADER_LEN: usize = ipv6::HEADER_LEN;
    const LEAST_MTU: u16 = ipv6::MIN_MTU as u16;

    fn front(source: u128, grantor: u128) -> ([u8; FRONT6], u16) {
        let mut front = [0; FRONT6];
        let (link, header) = front.split_at_mut(LINK);
        link[12..].copy_from_slice(&EtherType::IPV6.0.to_be_bytes());
        let mut ip = ipv6::Packet::new_unchecked(header);
        ip.set_version_class_flow(0, 0, 0);
        ip.set_next_header(Protocol::IPV6);
        ip.set_hop_limit(HOP_LIMIT);
        ip.set_src(source.into());
        ip.set_dst(grantor.into());
        // There is no checksum in it.
        (front, 0)
    }

    #[inline(always)]
    fn encapsulate(packet: &mut Packet, endpoint: &Endpoint<u128>, dscp: u8) -> Result<(), DropReason> {
        let l3 = usize::from(packet.l3);
        let inner = packet.data().get(l3..).and_then(|ip| ip.first_chunk::<{ ipv6::HEADER_LEN }>());
        let Some(inner) = inner else { return Err(DropReason::Ipv6TooShort) };
        if ipv6::hop_limit(inner) <= 1 {
            return Err(DropReason::TtlExpired);
        }
        if !make_room(packet, FRONT6) {
            return Err(DropReason::FrameTooSmall);
        }
        // No frame is that long.
        let payload = (packet.len() - FRONT6) as u16;
        let frame = packet.data_mut().first_chunk_mut::<{ FRONT6 + ipv6::HEADER_LEN }>();
        let Some(frame) = frame else { return Err(DropReason::Ipv6TooShort) };
        let (front, inner) = frame.split_at_mut(FRONT6);
        ipv6::decrement_hop_limit(inner);
        front.copy_from_slice(&endpoint.front);
        finish6(&mut front[LINK..], dscp, inner, payload);
        mark(packet);
        Ok(())
    }

    fn too_long(
        cx: &mut Context<'_>,
        packet: &mut Packet,
        endpoint: &Endpoint<u128>,
        dscp: u8,
        how: &mut long::How<'_>,
    ) -> long::Outcome {
        long::v6(cx, packet, endpoint, dscp, how)
    }

    #[inline(always)]
    fn flow_hash(header: &[u8]) -> u32 {
        let (source, destination) = (ipv6::src_u128(header), ipv6::dst_u128(header));
        let halves = |address: u128| fold(address as u64, (address >> 64) as u64);
        let hash = fold(halves(source), halves(destination));
        (hash >> 32) as u32 ^ hash as u32
    }

    fn hops(header: &[u8]) -> u8 {
        ipv6::hop_limit(header)
    }

    fn too_big(ip: &[u8]) -> Option<TooBig<u128>> {
        path::read6(ip)
    }

    fn read(header: &[u8]) -> (u8, u128) {
        (ipv6::Packet::new_unchecked(header).dscp(), ipv6::dst_u128(header))
    }

    fn text(self) -> String {
        std::net::Ipv6Addr::from(self).to_string()
    }
}

/// Writes what differs from packet to packet into an outer header; `inner` is the inner one.
#[inline(always)]
fn finish6(header: &mut [u8], dscp: u8, inner: &[u8], payload: u16) {
    let class = u32::from(dscp << 2 | inner[1] >> 4 & 3);
    // 0 would say that there is no label (RFC 6437 appendix A).
    let label = (u128::flow_hash(inner) & 0xf_ffff).max(1);
    header[..4].copy_from_slice(&(6 << 28 | class << 20 | label).to_be_bytes());
    header[4..6].copy_from_slice(&payload.to_be_bytes());
}

/// Multiply and fold (wyhash's step).
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    product as u64 ^ (product >> 64) as u64
}
