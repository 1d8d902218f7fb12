//! `ip4-fragment`: cuts a packet that is too long for its link into fragments (RFC 791 3.2, RFC 1812 4.2.2.7).
//!
//! * Every fragment but the last carries a multiple of eight bytes, as many as fit; offsets count from where the
//!   packet, perhaps a fragment itself, stood already; the last one keeps the packet's "more fragments".
//! * The first fragment has all options, the others those with the copied bit.
//! * Fragments are made, the packet is consumed. With too few frames for all of them, or an MTU that leaves no eight
//!   bytes, none is sent: `fragment-failed`.
//!
//! The packet comes from `ip4-forward` with its TTL decremented. Outputs: `lookup` (its next hop has been replaced
//! meanwhile), and one per port, by name.

use crate::nodes::replaced;
use tidemill_burst::{DropReason, Packet};
use tidemill_graph::{Context, Node, Verdict};
use tidemill_ip::{Adjacency, Kind, NextHops};
use tidemill_lookup::publish::View;
use tidemill_wire::{ethernet, ipv4};

/// The outputs' names in front of the ports'.
pub const OUTPUTS: [&str; 1] = ["lookup"];

const LOOKUP: u8 = 0;
/// The output of port 0.
const PORTS: u8 = OUTPUTS.len() as u8;

/// The node.
pub struct Ip4Fragment {
    hops: View<NextHops>,
}

impl Ip4Fragment {
    /// A node for one worker.
    pub fn new(hops: View<NextHops>) -> Self {
        Ip4Fragment { hops }
    }
}

impl Node for Ip4Fragment {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            let hop = *self.hops.get(cx.reader).get(packet.label);
            if hop.kind != Kind::Forward {
                *verdict = replaced(&hop, LOOKUP);
                continue;
            }
            *verdict = match fragment(cx, packet, &hop) {
                Some(()) => Verdict::Consume,
                None => Verdict::Drop(DropReason::FragmentFailed),
            };
        }
    }
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

fn fragment(cx: &mut Context<'_>, packet: &Packet, hop: &Adjacency) -> Option<()> {
    let (link, mtu, output) = (hop.header(), usize::from(hop.mtu), PORTS + hop.port as u8);
    let (_, ip) = packet.data().split_at_checked(ethernet::HEADER_LEN)?;
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
    let longest = link.len() + (first.len + first_step).max(rest.len + step);
    if cx.pool.stats().free < count || longest > cx.pool.room() {
        return None;
    }
    let mut at = 0;
    while at < payload.len() {
        let (header, step) = if at == 0 { (&first, first_step) } else { (&rest, step) };
        let piece = &payload[at..(at + step).min(payload.len())];
        let mut made = cx.pool.take()?;
        made.set_len(link.len() + header.len + piece.len());
        let (link_part, ip_part) = made.data_mut().split_at_mut(link.len());
        link_part.copy_from_slice(link);
        ip_part[..header.len].copy_from_slice(header.bytes());
        ip_part[header.len..].copy_from_slice(piece);
        let mut view = ipv4::Packet::new_unchecked(ip_part);
        view.set_version_and_header_len(header.len);
        view.set_total_len((header.len + piece.len()) as u16);
        view.set_fragment(false, more || at + piece.len() < payload.len(), (base + at) as u16);
        view.fill_checksum();
        (made.l3, made.port, made.label, made.hash) =
            (link.len() as u8, packet.port, packet.label, packet.hash);
        match packet.timestamp_ns() {
            0 => {}
            ns => made.set_timestamp_ns(ns),
        }
        cx.emit(output, made);
        at += piece.len();
    }
    Some(())
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
