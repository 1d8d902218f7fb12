//! Segmentation: one long TCP (or UDP) packet falls into segments that each carry a part of its payload.
//!
//! ```text
//! | Ethernet | IP | TCP |  payload of 64 KB                         |     long packet, 1448 bytes of payload per segment
//! | Ethernet | IP | TCP | 1448 B |  | ... | 1448 B |  | ... | rest |     segments
//! ```
//! Every segment gets the headers of the long packet, with its own lengths, identification (counting up, or the same for
//! all), sequence number and checksums; FIN and PSH stay on the last segment and CWR on the first (as Linux's
//! `tcp_gso_segment`). Two have such packets: AF_PACKET ports, which get them from senders that leave segmentation to
//! their card, and whoever merges segments of a flow to handle them as one.
//!
//! Pure: bytes in, bytes out; nothing panics, whatever the bytes and places are.

use crate::checksum::Pseudo;
use crate::{Protocol, ipv4, ipv6, tcp};

/// A long packet's segments, each of which can be written by itself. Places are offsets in the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// TCP, else UDP.
    pub tcp: bool,
    /// UDP without a checksum.
    pub bare: bool,
    /// IPv6, else IPv4.
    pub v6: bool,
    /// IPv4: all segments have the same identification; else it counts up.
    pub fixed_ident: bool,
    /// The network header.
    pub l3: usize,
    /// The transport header.
    pub l4: usize,
    /// The payload.
    pub data: usize,
    /// The payload's end.
    pub end: usize,
    /// Bytes of payload in each segment but the last; at least 1.
    pub size: usize,
    /// What lies around the network header.
    pub tunnel: Option<Tunnel>,
}

/// What the outer headers of a tunnel need of every segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// IPv6, else IPv4.
    pub v6: bool,
    /// The outer network header.
    pub l3: usize,
    /// The outer UDP header, and whether it has a checksum.
    pub udp: Option<(usize, bool)>,
}

impl Segments {
    /// The segments of a TCP packet in no tunnel: `l3` is where its IP header (without extension headers) lies in `frame`,
    /// `size` the bytes of payload in each segment but the last. `None` if it is no such packet.
    pub fn of_tcp(frame: &[u8], l3: usize, size: usize, fixed_ident: bool) -> Option<Self> {
        let ip = frame.get(l3..)?;
        let v6 = ipv4::version(ip) == 6;
        let (header_len, len, protocol) = if v6 {
            ipv6::check(ip).ok()?;
            let len = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(ip));
            (ipv6::HEADER_LEN, len, ipv6::next_header(ip))
        } else {
            ipv4::check(ip).ok()?;
            (ipv4::header_len(ip), usize::from(ipv4::total_len(ip)), ipv4::protocol(ip))
        };
        let header = tcp::Packet::new_checked(ip.get(header_len..len)?).ok()?.header_len();
        let (l4, end) = (l3 + header_len, l3 + len);
        let plain = protocol == Protocol::TCP && size > 0;
        let (bare, data, tunnel) = (false, l4 + header, None);
        plain.then_some(Segments { tcp: true, bare, v6, fixed_ident, l3, l4, data, end, size, tunnel })
    }

    /// Number of segments: at least one.
    pub fn count(&self) -> usize {
        self.end.saturating_sub(self.data).div_ceil(self.size.max(1)).max(1)
    }

    /// Bytes in front of the payload, in the long packet and in every segment.
    pub fn header_len(&self) -> usize {
        self.data
    }

    /// The bytes of payload that a segment carries, as places in the frame.
    fn payload(&self, index: usize) -> (usize, usize) {
        let from = index.saturating_mul(self.size).saturating_add(self.data).min(self.end);
        (from, from.saturating_add(self.size).min(self.end))
    }

    /// Length of segment `index` as a frame.
    pub fn len(&self, index: usize) -> usize {
        let (from, to) = self.payload(index);
        self.data + to.saturating_sub(from)
    }

    /// Writes segment `index` of `frame`, which is the one that was planned for, into the first
    /// [`len`](Self::len) bytes of `out`. False, and nothing useful written, if `out` is too short or `frame` another.
    #[must_use]
    pub fn write(&self, frame: &[u8], index: usize, out: &mut [u8]) -> bool {
        let (from, to) = self.payload(index);
        let len = self.len(index);
        let parts = (frame.get(..self.data), frame.get(from..to), out.get_mut(..len));
        let (Some(headers), Some(payload), Some(out)) = parts else { return false };
        let (front, back) = out.split_at_mut(self.data);
        front.copy_from_slice(headers);
        back.copy_from_slice(payload);
        self.finish(out, index)
    }

    /// Makes `segment`, which holds the long packet's headers and the payload of segment `index`, that segment: the first
    /// one can so be cut out of the long packet where it lies. False, and nothing useful done, if it is too short.
    #[must_use]
    pub fn finish(&self, segment: &mut [u8], index: usize) -> bool {
        let out = segment;
        let ident = if self.fixed_ident { 0 } else { index };
        let Some(pseudo) = finish_ip(out, self.l3, self.v6, ident) else { return false };
        let Some(upper) = out.get_mut(self.l4..) else { return false };
        if self.tcp {
            self.finish_tcp(upper, index, &pseudo);
        } else {
            finish_udp(upper, &pseudo, !self.bare);
        }
        let Some(tunnel) = self.tunnel else { return true };
        let Some(pseudo) = finish_ip(out, tunnel.l3, tunnel.v6, ident) else { return false };
        if let Some((at, summed)) = tunnel.udp
            && let Some(upper) = out.get_mut(at..)
        {
            finish_udp(upper, &pseudo, summed);
        }
        true
    }

    fn finish_tcp(&self, upper: &mut [u8], index: usize, pseudo: &Pseudo) {
        let mut drop = 0;
        if index > 0 {
            drop |= tcp::Flags::CWR.bits();
        }
        if index + 1 < self.count() {
            drop |= (tcp::Flags::FIN | tcp::Flags::PSH).bits();
        }
        if let Some(flags) = upper.get_mut(13) {
            *flags &= !(drop as u8);
        }
        let mut tcp = tcp::Packet::new_unchecked(upper);
        tcp.set_seq(tcp.seq().wrapping_add(index.wrapping_mul(self.size) as u32));
        tcp.fill_checksum(pseudo);
    }
}

/// Gives the IP header at `l3` of a segment its length, identification (`ident` beyond the long packet's) and checksum.
fn finish_ip(frame: &mut [u8], l3: usize, v6: bool, ident: usize) -> Option<Pseudo> {
    let packet = frame.get_mut(l3..)?;
    let len = packet.len();
    Some(if v6 {
        let mut ip = ipv6::Packet::new_unchecked(packet);
        ip.set_payload_len(len.saturating_sub(ipv6::HEADER_LEN) as u16);
        Pseudo::V6 { src: ip.src(), dst: ip.dst() }
    } else {
        let mut ip = ipv4::Packet::new_unchecked(packet);
        ip.set_total_len(len as u16);
        ip.set_ident(ip.ident().wrapping_add(ident as u16));
        ip.fill_checksum();
        Pseudo::V4 { src: ip.src(), dst: ip.dst() }
    })
}

/// Gives a UDP header its length and checksum.
fn finish_udp(upper: &mut [u8], pseudo: &Pseudo, summed: bool) {
    let len = upper.len();
    if let Some([l0, l1, c0, c1]) = upper.get_mut(4..8) {
        [*l0, *l1] = (len as u16).to_be_bytes();
        [*c0, *c1] = [0, 0];
    }
    if summed {
        let check = written(pseudo.checksum(Protocol::UDP, upper));
        if let Some([c0, c1]) = upper.get_mut(6..8) {
            [*c0, *c1] = check.to_be_bytes();
        }
    }
}

/// A checksum as UDP has it: 0xffff is the other way to write zero, and here the only one.
fn written(check: u16) -> u16 {
    if check == 0 { 0xffff } else { check }
}
