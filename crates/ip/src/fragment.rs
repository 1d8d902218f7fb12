//! Cutting IPv4 packets into fragments (RFC 791 3.2, RFC 1812 4.2.2.7), for whoever has one that is too long for its link.
//!
//! * Every fragment but the last carries a multiple of eight bytes, as many as fit; offsets count from where the
//!   packet, perhaps a fragment itself, stood already; the last one keeps the packet's "more fragments".
//! * The first fragment has all options, the others those with the copied bit.
//! * The fragments are made; the packet is as it was, and its owner's to be done with. Without frames for all of them, or with an
//!   MTU that leaves no eight bytes, none is made.
//!
//! Work per packet: its bytes once, at most 8190 fragments, and no more than the pool has frames.

use tidemill_burst::Packet;
use tidemill_graph::Context;
use tidemill_wire::ipv4;

/// Cuts `packet`, an IPv4 packet whose TTL is as fragments are to have it, and sends fragments of at most `mtu` bytes to
/// `output`, each behind a copy of `front` (a link header, and what else its reader wants there; below 256 bytes). `finish` does
/// to each what is left to be done, and gives up with false. `None`: it could not be done.
pub fn cut(
    cx: &mut Context<'_>,
    packet: &Packet,
    front: &[u8],
    mtu: usize,
    output: u8,
    mut finish: impl FnMut(&mut Packet) -> bool,
) -> Option<()> {
    let ip = packet.data().get(usize::from(packet.l3)..)?;
    let original = ipv4::Packet::new_checked(ip).ok()?;
    let (first, rest) = (whole_header(ip)?, copied_header(ip)?);
    let payload = original.payload();
    let (base, more) = (usize::from(original.fragment_offset()), original.more_fragments());
    // A fragment's payload is a multiple of eight bytes, as long as the link allows.
    let step = |header: &Header| Some(mtu.checked_sub(header.len)? & !7).filter(|&step| step > 0);
    let (first_step, step) = (step(&first)?, step(&rest)?);
    if base + payload.len() > usize::from(u16::MAX) {
        return None; // reassembled it would be longer than any packet
    }
    let count = 1 + payload.len().saturating_sub(first_step).div_ceil(step);
    let longest = front.len() + (first.len + first_step).max(rest.len + step);
    if cx.pool.stats().free < count || longest > cx.pool.room() {
        return None;
    }
    let mut at = 0;
    while at < payload.len() {
        let (header, step) = if at == 0 { (&first, first_step) } else { (&rest, step) };
        let piece = &payload[at..(at + step).min(payload.len())];
        let mut made = cx.pool.take()?;
        made.set_len(front.len() + header.len + piece.len());
        let (front_part, ip_part) = made.data_mut().split_at_mut(front.len());
        front_part.copy_from_slice(front);
        ip_part[..header.len].copy_from_slice(header.bytes());
        ip_part[header.len..].copy_from_slice(piece);
        let mut view = ipv4::Packet::new_unchecked(ip_part);
        view.set_version_and_header_len(header.len);
        view.set_total_len((header.len + piece.len()) as u16);
        view.set_fragment(false, more || at + piece.len() < payload.len(), (base + at) as u16);
        view.fill_checksum();
        (made.l3, made.port, made.label, made.hash) =
            (front.len() as u8, packet.port, packet.label, packet.hash);
        match packet.timestamp_ns() {
            0 => {}
            ns => made.set_timestamp_ns(ns),
        }
        if !finish(&mut made) {
            cx.pool.free(made);
            return None;
        }
        cx.emit(output, made);
        at += piece.len();
    }
    Some(())
}

/// A header as fragments carry it.
struct Header {
    bytes: [u8; ipv4::MAX_HEADER_LEN],
    len: usize,
}

impl Header {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn whole_header(ip: &[u8]) -> Option<Header> {
    let mut header = Header { bytes: [0; ipv4::MAX_HEADER_LEN], len: ipv4::header_len(ip) };
    header.bytes.get_mut(..header.len)?.copy_from_slice(ip.get(..header.len)?);
    Some(header)
}

/// The header with the options that have the copied bit, padded with end-of-options.
fn copied_header(ip: &[u8]) -> Option<Header> {
    const COPIED: u8 = 0x80;
    let mut header = whole_header(ip)?;
    let options = &header.bytes[ipv4::HEADER_LEN..header.len];
    let (mut kept, mut len, mut at) = ([0; ipv4::MAX_HEADER_LEN - ipv4::HEADER_LEN], 0, 0);
    // `ip4-input` has checked that no option runs over the end; if one did, the walk would end there.
    while let Some(&kind) = options.get(at) {
        let size = match kind {
            ipv4::option::END => break,
            ipv4::option::NOP => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)).max(2),
        };
        let Some(option) = options.get(at..at + size) else { break };
        if kind & COPIED != 0 {
            kept[len..len + size].copy_from_slice(option);
            len += size;
        }
        at += size;
    }
    header.bytes[ipv4::HEADER_LEN..].copy_from_slice(&kept);
    header.len = ipv4::HEADER_LEN + len.next_multiple_of(4);
    Some(header)
}
