//! Packets that with their outer header are longer than the next link's MTU, or than the [way](super::path) takes.
//!
//! * IPv4, "don't fragment" set: its source is told, `too-big` with what is left of the MTU (RFC 2003 5.1).
//! * IPv4 otherwise: the inner packet is cut, and each fragment goes in an outer packet of its own, which is never a fragment ("don't
//!   fragment" is a wire fact). The destination puts them together, as it would behind any router.
//! * IPv6: its source is told, `too-big` with what is left of the MTU, but never less than 1280, to which it need not go below
//!   (RFC 2473 7.1 a).
//! * IPv6 of up to 1280 bytes where that leaves less (an MTU below 1320): the outer packet is cut into fragments, and the
//!   Grantor puts it together (RFC 2473 7.1 b). Identifications count up, worker by worker from places far apart.
//!
//! Off the fast path. Work per packet is bounded by its length and by the pool's free frames; parts are made, the packet is
//! consumed, and without frames for all parts none is sent.

use super::{Endpoint, FRONT6, LINK, encapsulate, finish6, mark};
use tidemill_burst::Packet;
use tidemill_graph::Context;
use tidemill_ip::{Adjacency, fragment};
use tidemill_wire::ipv6_ext::{FRAGMENT_LEN, FragmentRepr};
use tidemill_wire::{Protocol, ipv4, ipv6};

/// What a packet that is too long becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Parts, which have been sent.
    Cut,
    /// Nothing: its source is to be told the longest that fits, in bytes. It is as it was.
    TooBig(u16),
    /// Nothing: it could not be cut.
    Failed,
}

/// What cutting goes by.
#[derive(Debug)]
pub struct How<'a> {
    /// Where the parts go.
    pub hop: &'a Adjacency,
    /// What a packet may be long at most, with its outer header.
    pub mtu: u16,
    /// The output that parts go to.
    pub output: u8,
    /// The identification of the next outer packet that is cut.
    pub ident: &'a mut u32,
}

/// Of IPv4. The TTL is at least 2.
#[cold]
pub(super) fn v4(
    cx: &mut Context<'_>,
    packet: &mut Packet,
    endpoint: &Endpoint<u32>,
    dscp: u8,
    how: &mut How<'_>,
) -> Outcome {
    let mtu = how.mtu.saturating_sub(ipv4::HEADER_LEN as u16);
    if packet.data().get(usize::from(packet.l3)..).is_some_and(ipv4::dont_fragment) {
        return Outcome::TooBig(mtu);
    }
    let put = |made: &mut Packet| {
        made.port = how.hop.interface;
        encapsulate(made, endpoint, dscp).is_ok()
    };
    // The room for the link header; that for the outer one is the frame's headroom.
    match fragment::cut(cx, packet, &[0; LINK], mtu.into(), how.output, put) {
        Some(()) => Outcome::Cut,
        None => Outcome::Failed,
    }
}

/// Of IPv6. The hop limit is at least 2.
#[cold]
pub(super) fn v6(
    cx: &mut Context<'_>,
    packet: &mut Packet,
    endpoint: &Endpoint<u128>,
    dscp: u8,
    how: &mut How<'_>,
) -> Outcome {
    let mtu = how.mtu.saturating_sub(ipv6::HEADER_LEN as u16).max(ipv6::MIN_MTU as u16);
    if packet.len() > usize::from(mtu) + usize::from(packet.l3) {
        return Outcome::TooBig(mtu);
    }
    match cut6(cx, packet, endpoint, dscp, how) {
        Some(()) => Outcome::Cut,
        None => Outcome::Failed,
    }
}

/// Sends the packet in fragments of an outer packet.
fn cut6(
    cx: &mut Context<'_>,
    packet: &mut Packet,
    endpoint: &Endpoint<u128>,
    dscp: u8,
    how: &mut How<'_>,
) -> Option<()> {
    const FRONT: usize = FRONT6 + FRAGMENT_LEN;
    let room = (LINK + usize::from(how.mtu)).checked_sub(FRONT)?;
    let step = Some(room & !7).filter(|&step| step > 0)?;
    let l3 = usize::from(packet.l3);
    ipv6::decrement_hop_limit(packet.data_mut().get_mut(l3..)?);
    let inner = packet.data().get(l3..)?;
    let header = inner.first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let count = inner.len().div_ceil(step);
    if cx.pool.stats().free < count || FRONT + step > cx.pool.room() {
        return None;
    }
    let ident = *how.ident;
    *how.ident = ident.wrapping_add(1);
    let mut front = endpoint.front;
    finish6(&mut front[LINK..], dscp, header, 0);
    for (n, piece) in inner.chunks(step).enumerate() {
        let mut made = cx.pool.take()?;
        made.set_len(FRONT + piece.len());
        let (to, rest) = made.data_mut().split_at_mut(FRONT6);
        to.copy_from_slice(&front);
        let mut outer = ipv6::Packet::new_unchecked(&mut to[LINK..]);
        outer.set_next_header(Protocol::FRAGMENT);
        outer.set_payload_len((FRAGMENT_LEN + piece.len()) as u16);
        let (next_header, more) = (Protocol::IPV6, n + 1 < count);
        let fragment = FragmentRepr { next_header, offset: (n * step) as u16, more, ident };
        // It fits: the packet was made that long.
        let _ = fragment.emit(rest);
        rest[FRAGMENT_LEN..].copy_from_slice(piece);
        made.copy_notes(packet);
        made.port = how.hop.interface;
        mark(&mut made);
        cx.emit(how.output, made);
    }
    Some(())
}
