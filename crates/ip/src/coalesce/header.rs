//! What coalescing reads in a packet's headers, and writes there.

use tidemill_burst::Packet;
use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::tcp::{self, Flags};
use tidemill_wire::{Protocol, ipv4, ipv6};

/// What a packet is to coalescing.
pub(super) enum Read {
    /// No TCP.
    Foreign,
    /// Perhaps of some flow, but nobody can see of which.
    Opaque,
    /// Of the flow with this hash, but nothing that could be merged.
    OfFlow(usize),
    /// A segment of the flow with this hash, as far as its headers say.
    Segment(usize, Header),
}

/// A segment's header. Offsets are from the start of the frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) v6: bool,
    l4: usize,
    /// The payload.
    pub(super) data: usize,
    pub(super) end: usize,
    pub(super) seq: u32,
    pub(super) ident: u16,
    /// Identifications may be the same: no router will make fragments of it.
    pub(super) may_repeat_ident: bool,
    pub(super) flags: u8,
}

/// A checksum that sums up but that nobody computes: it would not be the same again.
const ODD_CHECKSUM: [u8; 2] = [0xff; 2];
const NEVER: u8 = (Flags::SYN.bits() | Flags::RST.bits() | Flags::URG.bits()) as u8;
const ACK: u8 = Flags::ACK.bits() as u8;
/// What two segments of one long packet may differ in.
const OF_PLACE: u8 = (Flags::FIN.bits() | Flags::PSH.bits() | Flags::CWR.bits()) as u8;

/// Bytes of an IP header without options or extension headers.
pub(super) fn ip_header_len(ip: &[u8]) -> usize {
    if ipv4::version(ip) == 4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
}

/// Reads a packet whose IP header has been checked.
#[inline]
pub(super) fn read(packet: &Packet) -> Read {
    let l3 = usize::from(packet.l3);
    let data = packet.data();
    let ip = data.get(l3..).unwrap_or_default();
    if ipv4::version(ip) == 4 { read4(packet, data, l3, ip) } else { read6(packet, data, l3, ip) }
}

#[inline]
fn read4(packet: &Packet, data: &[u8], l3: usize, ip: &[u8]) -> Read {
    let Some(header) = ip.first_chunk::<{ ipv4::HEADER_LEN }>() else { return Read::Opaque };
    if ipv4::protocol(header) != Protocol::TCP {
        return Read::Foreign;
    }
    if ipv4::is_fragment(header) {
        return Read::Opaque;
    }
    let addresses = u64::from(ipv4::src_u32(header)) << 32 | u64::from(ipv4::dst_u32(header));
    let l4 = l3 + ipv4::header_len(header);
    let Some(ports) = data.get(l4..).and_then(|tcp| tcp.first_chunk::<4>()) else { return Read::Opaque };
    let slot = slot(addresses, u32::from_ne_bytes(*ports));
    let plain = header[0] == 0x45
        && ipv4::ttl(header) > 1
        && header[10..12] != ODD_CHECKSUM
        && usize::from(ipv4::total_len(header)) == ip.len();
    let segment = if plain { segment(packet, data, l4) } else { None };
    segment.map_or(Read::OfFlow(slot), |segment| {
        let ident = u16::from_be_bytes([header[4], header[5]]);
        let may_repeat_ident = ipv4::dont_fragment(header);
        Read::Segment(slot, Header { v6: false, ident, may_repeat_ident, ..segment })
    })
}

#[inline]
fn read6(packet: &Packet, data: &[u8], l3: usize, ip: &[u8]) -> Read {
    let Some(header) = ip.first_chunk::<{ ipv6::HEADER_LEN }>() else { return Read::Opaque };
    match ipv6::next_header(header) {
        Protocol::TCP => {}
        next if is_extension(next) => return Read::Opaque,
        _ => return Read::Foreign,
    }
    let fold = |address: u128| (address >> 64) as u64 ^ address as u64;
    // Not the same both ways round, so that the flow of answers has a slot of its own.
    let addresses = fold(ipv6::src_u128(header)).rotate_left(32) ^ fold(ipv6::dst_u128(header));
    let l4 = l3 + ipv6::HEADER_LEN;
    let Some(ports) = data.get(l4..).and_then(|tcp| tcp.first_chunk::<4>()) else { return Read::Opaque };
    let slot = slot(addresses, u32::from_ne_bytes(*ports));
    let plain =
        ipv6::hop_limit(header) > 1 && usize::from(ipv6::payload_len(header)) + ipv6::HEADER_LEN == ip.len();
    let segment = if plain { segment(packet, data, l4) } else { None };
    segment.map_or(Read::OfFlow(slot), |segment| Read::Segment(slot, Header { v6: true, ..segment }))
}

/// A TCP header at `l4` of a segment that could be merged.
#[inline]
fn segment(packet: &Packet, data: &[u8], l4: usize) -> Option<Header> {
    let tcp = data.get(l4..)?;
    let header = tcp.first_chunk::<{ tcp::HEADER_LEN }>()?;
    let (view, flags) = (tcp::Packet::new_unchecked(header), header[13]);
    let payload = l4 + view.header_len();
    let merges = view.header_len() >= tcp::HEADER_LEN
        && payload < data.len()
        && flags & (NEVER | ACK) == ACK
        && header[16..18] != ODD_CHECKSUM
        && packet.merged().is_none()
        && !packet.is_own();
    merges.then_some(Header {
        v6: false,
        l4,
        data: payload,
        end: data.len(),
        seq: view.seq(),
        ident: 0,
        may_repeat_ident: false,
        flags,
    })
}

/// Whether TCP could follow behind a header of this kind (IANA, IPv6 Extension Header Types).
fn is_extension(next: Protocol) -> bool {
    matches!(next.0, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
}

/// Multiply, and take the high bits, which depend on all of it.
#[inline]
fn slot(addresses: u64, ports: u32) -> usize {
    let mixed = addresses.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(ports);
    (mixed.wrapping_mul(0xa076_1d64_78bd_642f) >> 48) as usize
}

impl Header {
    /// Bytes of payload.
    #[inline]
    pub(super) fn payload_len(&self) -> usize {
        self.end - self.data
    }

    /// Whether `next`, the header of `packet`, is that of `first`, which is this, but for what differs by its place.
    #[inline]
    pub(super) fn same_flow(&self, first: &Packet, packet: &Packet, next: &Header) -> bool {
        if (first.port, first.l3, self.l4, self.data) != (packet.port, packet.l3, next.l4, next.data) {
            return false;
        }
        let (Some(a), Some(b)) = (first.data().get(..self.data), packet.data().get(..self.data)) else {
            return false;
        };
        let same = |from: usize, to: usize| a[from..to] == b[from..to];
        let (l3, l4) = (usize::from(first.l3), self.l4);
        // Up to IPv4's flags without length and identification, or up to IPv6's length; then without IPv4's checksum.
        let ip = match self.v6 {
            false => same(0, l3 + 2) && same(l3 + 6, l3 + 10) && same(l3 + 12, l4),
            true => same(0, l3 + 4) && same(l3 + 6, l4),
        };
        // Ports; acknowledgement, header length; window; urgent pointer, options.
        ip && same(l4, l4 + 4)
            && same(l4 + 8, l4 + 13)
            && (self.flags ^ next.flags) & !OF_PLACE == 0
            && same(l4 + 14, l4 + 16)
            && same(l4 + 18, self.data)
    }

    /// The sum of the payload, if the segment's checksum is right.
    #[inline]
    pub(super) fn payload_sum(&self, frame: &[u8]) -> Option<u16> {
        let payload = checksum::sum(frame.get(self.data..self.end)?);
        let header = checksum::sum(frame.get(self.l4..self.data)?);
        let pseudo = self.pseudo(frame)?.sum(Protocol::TCP, self.end - self.l4);
        (checksum::add(pseudo, checksum::add(header, payload)) == 0xffff).then_some(payload)
    }

    fn pseudo(&self, frame: &[u8]) -> Option<Pseudo> {
        Some(if self.v6 {
            let ip = ipv6::Packet::new_unchecked(frame.get(self.l4.checked_sub(ipv6::HEADER_LEN)?..)?);
            Pseudo::V6 { src: ip.src(), dst: ip.dst() }
        } else {
            let ip = ipv4::Packet::new_unchecked(frame.get(self.l4.checked_sub(ipv4::HEADER_LEN)?..)?);
            Pseudo::V4 { src: ip.src(), dst: ip.dst() }
        })
    }

    /// Makes `frame`, which begins with this header and has grown, a right packet again: `last` are the flags that the last
    /// segment brought, `sum` is that of the payload.
    pub(super) fn finish(&self, frame: &mut [u8], last: u8, sum: u16) {
        let Some(pseudo) = self.pseudo(frame) else { return };
        let len = frame.len() - self.l4;
        let header_len = if self.v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
        let (front, upper) = frame.split_at_mut(self.l4);
        let ip = &mut front[self.l4 - header_len..];
        if self.v6 {
            ipv6::Packet::new_unchecked(ip).set_payload_len(len as u16);
        } else {
            let mut ip = ipv4::Packet::new_unchecked(ip);
            ip.set_total_len((header_len + len) as u16);
            ip.fill_checksum();
        }
        let header = &mut upper[..self.data - self.l4];
        header[13] |= last;
        header[16..18].fill(0);
        let sum = checksum::add(pseudo.sum(Protocol::TCP, len), checksum::add(checksum::sum(header), sum));
        header[16..18].copy_from_slice(&(!sum).to_be_bytes());
    }
}
