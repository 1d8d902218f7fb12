//! Replies on their way out: in the frame of the packet that they answer, or in as many fragments as it takes.

use super::answer::Reply;
use std::net::IpAddr;
use tidemill_burst::{Packet, Pool};
use tidemill_wire::{Protocol, ipv4, ipv6, ipv6_ext};

/// What goes in front of a reply, and how.
#[derive(Clone, Copy)]
pub(super) struct Envelope<'a> {
    /// The Ethernet header; zeros where `ip4-forward` or `ip6-forward` will write it.
    pub(super) link: &'a [u8],
    pub(super) ttl: u8,
    pub(super) ident: u32,
}

/// Which part of the message a packet carries.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    len: usize,
    more: bool,
}

impl Part {
    fn is_whole(self) -> bool {
        self.offset == 0 && !self.more
    }
}

fn header_len(reply: &Reply, whole: bool) -> usize {
    match reply.to {
        IpAddr::V4(_) => ipv4::HEADER_LEN,
        IpAddr::V6(_) if whole => ipv6::HEADER_LEN,
        IpAddr::V6(_) => ipv6::HEADER_LEN + ipv6_ext::FRAGMENT_LEN,
    }
}

fn write_header(buf: &mut [u8], reply: &Reply, envelope: &Envelope<'_>, part: Part) -> Option<()> {
    match (reply.from, reply.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut repr = ipv4::Repr::new(from, to, reply.protocol, part.len);
            (repr.ttl, repr.dscp, repr.ident) = (envelope.ttl, reply.dscp, envelope.ident as u16);
            // It may be cut on its way: nobody here would hear of a link that it is too long for.
            (repr.dont_fragment, repr.more_fragments) = (false, part.more);
            repr.fragment_offset = u16::try_from(part.offset).ok()?;
            repr.emit(buf).ok()?;
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let extra = header_len(reply, part.is_whole()) - ipv6::HEADER_LEN;
            let next_header = if part.is_whole() { reply.protocol } else { Protocol::FRAGMENT };
            let mut repr = ipv6::Repr::new(from, to, next_header, extra + part.len);
            (repr.hop_limit, repr.dscp) = (envelope.ttl, reply.dscp);
            repr.emit(buf).ok()?;
            if !part.is_whole() {
                let fragment = ipv6_ext::FragmentRepr {
                    next_header: reply.protocol,
                    offset: u16::try_from(part.offset).ok()?,
                    more: part.more,
                    ident: envelope.ident,
                };
                fragment.emit(buf.get_mut(ipv6::HEADER_LEN..)?).ok()?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// Makes `packet`, in whose IP payload the reply stands, the packet that carries it. Options and extension headers of the
/// request are left behind.
pub(super) fn in_place(packet: &mut Packet, reply: &Reply, envelope: &Envelope<'_>) -> Option<()> {
    let header_len = header_len(reply, true);
    let start = (usize::from(packet.l3) + reply.at).checked_sub(header_len)?;
    let moved = match start.checked_sub(envelope.link.len()) {
        Some(surplus) => packet.cut_front(surplus),
        None => packet.grow_front(envelope.link.len() - start),
    };
    let l3 = envelope.link.len();
    let len = l3 + header_len + reply.len;
    if !moved || len > packet.len() {
        return None;
    }
    packet.set_len(len);
    let (link, ip) = packet.data_mut().split_at_mut(l3);
    link.copy_from_slice(envelope.link);
    write_header(ip, reply, envelope, Part { offset: 0, len: reply.len, more: false })?;
    packet.l3 = l3 as u8;
    packet.set_own();
    Some(())
}

/// The packets that carry `message`, each no longer than `mtu`. `None` without frames for all of them, or with an MTU that
/// leaves no room.
pub(super) fn in_parts(
    pool: &mut Pool,
    reply: &Reply,
    message: &[u8],
    envelope: &Envelope<'_>,
    mtu: usize,
) -> Option<Vec<Packet>> {
    let mtu = mtu.min(pool.room().checked_sub(envelope.link.len())?);
    let whole = header_len(reply, true) + message.len() <= mtu;
    let header_len = header_len(reply, whole);
    let step = if whole {
        message.len().max(1)
    } else {
        mtu.checked_sub(header_len).filter(|step| *step >= 8)? & !7
    };
    let count = message.len().div_ceil(step);
    if pool.stats().free < count {
        return None;
    }
    let mut packets = Vec::with_capacity(count);
    for (n, piece) in message.chunks(step).enumerate() {
        let offset = n * step;
        let part = Part { offset, len: piece.len(), more: offset + piece.len() < message.len() };
        let Some(mut packet) = pool.take() else { break };
        packet.set_len(envelope.link.len() + header_len + piece.len());
        let (link, ip) = packet.data_mut().split_at_mut(envelope.link.len());
        link.copy_from_slice(envelope.link);
        let written = write_header(ip, reply, envelope, part);
        ip[header_len..].copy_from_slice(piece);
        packet.l3 = envelope.link.len() as u8;
        packet.set_own();
        if written.is_none() {
            pool.free(packet);
            break;
        }
        packets.push(packet);
    }
    if packets.len() < count {
        packets.into_iter().for_each(|packet| pool.free(packet));
        return None;
    }
    Some(packets)
}
