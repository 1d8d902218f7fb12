//! What a sender leaves to its network card, done in software: segmentation and checksums.
//!
//! A host hands its (virtual) card TCP or UDP "super-packets" of up to 64 KiB and packets whose checksum covers only the
//! pseudo header; a real card finishes both. A packet socket sees them as they are, with a virtio-net header in front
//! that says what is left to do (virtio 1.2, section 5.1.6; linux/virtio_net.h):
//!
//! ```text
//! 0       1          2         4          6            8             10
//! | flags | gso type | hdr len | gso size | csum start | csum offset |      16-bit words in the host's byte order
//!
//! | Ethernet | IP | TCP |  payload of 64 KB                         |     super-packet, gso size 1448
//! | Ethernet | IP | TCP | 1448 B |  | ... | 1448 B |  | ... | rest |     segments
//! ```
//! Every segment gets the headers of the super-packet, with its own lengths, identification (counting up), sequence
//! number and checksums; FIN and PSH stay on the last segment and CWR on the first (as Linux's `tcp_gso_segment`).
//!
//! Super-packets inside a tunnel (IP in IP, GRE without checksum and sequence numbers, VXLAN, Geneve) fall into tunnelled
//! segments. SCTP super-packets never get here: the kernel has no words for them and counts them as lost.
//!
//! Pure: bytes in, bytes out. The header comes from outside like the packet does, so every field is checked.

use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, Protocol, ethernet, ipv4, ipv6, ipv6_ext, tcp, udp};

/// Bytes of a virtio-net header.
pub const HEADER_LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Where SCTP has its checksum. Neither TCP (16) nor UDP (6) has one there.
const SCTP_CHECKSUM: usize = 8;
/// A flag on the type: the first segment carries CWR. It does so whether the flag is set or not.
const GSO_ECN: u8 = 0x80;

/// Why an offload cannot be carried out: header and packet do not fit each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OffloadError {
    /// A kind of segmentation that is neither TCP over IPv4 or IPv6 nor UDP.
    #[error("gso type {0} is not supported")]
    Type(u8),
    /// A segment size of zero.
    #[error("gso size is 0")]
    Size,
    /// The checksum's place lies outside the packet.
    #[error("checksum of byte {start} on, at {offset} from there, in a packet of {len}")]
    Place {
        /// Where the checksum begins to count.
        start: usize,
        /// Where it is written, from there.
        offset: usize,
        /// The packet's length.
        len: usize,
    },
    /// The packet's headers are not those that the segmentation type calls for, or malformed.
    #[error("headers do not fit gso type {0}")]
    Headers(u8),
}

/// What is left to do to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

impl Offload {
    /// Reads a virtio-net header (legacy layout, host byte order).
    #[inline]
    pub fn parse(header: &[u8; HEADER_LEN]) -> Self {
        let [flags, gso_type, _, _, s0, s1, c0, c1, o0, o1] = *header;
        Offload {
            flags,
            gso_type: gso_type & !GSO_ECN,
            gso_size: u16::from_ne_bytes([s0, s1]),
            csum_start: u16::from_ne_bytes([c0, c1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// Whether the packet is a super-packet.
    #[inline]
    pub fn is_super(&self) -> bool {
        self.gso_type != 0
    }

    /// Completes the checksum of a packet that is no super-packet, if it is left to do.
    ///
    /// The field holds the sum of the pseudo header, and everything from the start to the packet's end counts. SCTP has a
    /// CRC32c instead (RFC 9260, appendix A), which the header does not tell.
    #[inline]
    pub fn finish(&self, frame: &mut [u8]) -> Result<(), OffloadError> {
        if self.flags & NEEDS_CSUM == 0 {
            return Ok(());
        }
        let (start, offset) = (usize::from(self.csum_start), usize::from(self.csum_offset));
        let place = OffloadError::Place { start, offset, len: frame.len() };
        let sctp = offset == SCTP_CHECKSUM && carries_sctp(frame, start);
        let covered = frame.get_mut(start..).ok_or(place)?;
        if sctp && let Some(field) = covered.get_mut(offset..offset + 4) {
            field.fill(0);
            let check = crc32c::crc32c(covered);
            covered[offset..offset + 4].copy_from_slice(&check.to_le_bytes());
            return Ok(());
        }
        let check = checksum::checksum(covered);
        let field = covered.get_mut(offset..).and_then(|tail| tail.first_chunk_mut::<2>()).ok_or(place)?;
        *field = written(check).to_be_bytes();
        Ok(())
    }

    /// How a super-packet falls into segments.
    pub fn plan(&self, frame: &[u8]) -> Result<Segments, OffloadError> {
        let bad = OffloadError::Headers(self.gso_type);
        if self.gso_size == 0 {
            return Err(OffloadError::Size);
        }
        let l2 = L2::parse(frame).map_err(|_| bad)?;
        let outer = match l2.ethertype {
            EtherType::IPV4 => Ip::read(frame, l2.l3_offset, false),
            EtherType::IPV6 => Ip::read(frame, l2.l3_offset, true),
            _ => None,
        };
        let outer = outer.ok_or(bad)?;
        let (ip, tunnel) = match self.flags & NEEDS_CSUM != 0 && usize::from(self.csum_start) > outer.upper {
            true => self.inner(frame, &outer).map(|(inner, tunnel)| (inner, Some(tunnel))).ok_or(bad)?,
            false => (outer, None),
        };
        let upper = frame.get(ip.upper..ip.end).ok_or(bad)?;
        let (tcp, header_len) = match (self.gso_type, ip.v6, ip.protocol) {
            (GSO_TCP_V4, false, Protocol::TCP) | (GSO_TCP_V6, true, Protocol::TCP) => {
                let view = tcp::Packet::new_checked(upper).map_err(|_| bad)?;
                (true, view.header_len())
            }
            (GSO_UDP_L4, _, Protocol::UDP) if upper.len() >= udp::HEADER_LEN => (false, udp::HEADER_LEN),
            (GSO_TCP_V4 | GSO_TCP_V6 | GSO_UDP_L4, ..) => return Err(bad),
            (other, ..) => return Err(OffloadError::Type(other)),
        };
        Ok(Segments {
            tcp,
            // Over IPv4 a UDP sender may leave the checksum out; what it left out stays out.
            bare: !tcp && !ip.v6 && self.flags & NEEDS_CSUM == 0 && upper.get(6..8) == Some(&[0, 0]),
            v6: ip.v6,
            l3: ip.at,
            l4: ip.upper,
            data: ip.upper + header_len,
            end: ip.end,
            size: self.gso_size.into(),
            tunnel,
        })
    }

    /// The packet inside a tunnel, and what the tunnel needs of every segment. What lies between the two headers is copied
    /// as it is (VXLAN, Geneve, GRE), so it may hold neither lengths nor sums.
    fn inner(&self, frame: &[u8], outer: &Ip) -> Option<(Ip, Tunnel)> {
        let upper = usize::from(self.csum_start);
        let read = |v6| {
            let at = upper.checked_sub(if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN })?;
            Ip::read(frame, at, v6).filter(|ip| at >= outer.upper && ip.upper == upper && ip.end == outer.end)
        };
        let inner = match self.gso_type {
            GSO_TCP_V4 => read(false),
            GSO_TCP_V6 => read(true),
            _ => read(false).or_else(|| read(true)),
        }?;
        let header = frame.get(outer.upper..inner.at)?;
        let mut tunnel = Tunnel { l3: outer.at, v6: outer.v6, udp: None };
        match (outer.protocol, header) {
            (Protocol::IPV4 | Protocol::IPV6, []) => {}
            // Without checksum, routing and sequence number (RFC 2784, RFC 2890).
            (Protocol::GRE, [flags, version, t0, t1, rest @ ..]) if flags & 0xD0 == 0 && version & 7 == 0 => {
                let key = usize::from(flags & 0x20 != 0) * 4;
                let ethernet = if [*t0, *t1] == [0x65, 0x58] { ethernet::HEADER_LEN } else { 0 };
                (rest.len() == key + ethernet).then_some(())?;
            }
            (Protocol::UDP, [_, _, _, _, l0, l1, c0, c1, ..])
                if usize::from(u16::from_be_bytes([*l0, *l1])) == outer.end - outer.upper =>
            {
                tunnel.udp = Some((outer.upper, [*c0, *c1] != [0, 0]));
            }
            _ => return None,
        }
        Some((inner, tunnel))
    }
}

/// Where an IP packet lies in a frame; offsets from the frame's start.
struct Ip {
    v6: bool,
    at: usize,
    protocol: Protocol,
    upper: usize,
    end: usize,
}

impl Ip {
    /// Reads a whole packet that is no fragment.
    fn read(frame: &[u8], at: usize, v6: bool) -> Option<Ip> {
        let packet = frame.get(at..)?;
        if v6 {
            ipv6::check(packet).ok()?;
            let walk = ipv6_ext::walk(packet).ok()?;
            let end = at + ipv6::HEADER_LEN + usize::from(ipv6::payload_len(packet));
            // With a routing header the checksum is over another destination than the header's.
            let plain = walk.fragment.is_none() && walk.routing_offset.is_none();
            plain.then_some(Ip { v6, at, protocol: walk.upper, upper: at + walk.upper_offset, end })
        } else {
            ipv4::check(packet).ok()?;
            let (upper, end) = (at + ipv4::header_len(packet), at + usize::from(ipv4::total_len(packet)));
            // With a source route, too; options that make no sense may be one.
            let routed = |option| {
                use ipv4::option::{LOOSE_SOURCE_ROUTE, STRICT_SOURCE_ROUTE};
                match option {
                    Ok(ipv4::Ipv4Option::Route { kind, .. }) => {
                        kind == LOOSE_SOURCE_ROUTE || kind == STRICT_SOURCE_ROUTE
                    }
                    other => other.is_err(),
                }
            };
            let view = ipv4::Packet::new_unchecked(packet);
            let plain = !ipv4::is_fragment(packet) && !view.options().any(routed);
            plain.then_some(Ip { v6, at, protocol: ipv4::protocol(packet), upper, end })
        }
    }
}

/// Whether SCTP begins at `at`.
#[cold]
fn carries_sctp(frame: &[u8], at: usize) -> bool {
    let Ok(l2) = L2::parse(frame) else { return false };
    let ip = Ip::read(frame, l2.l3_offset, l2.ethertype == EtherType::IPV6);
    ip.is_some_and(|ip| ip.protocol == Protocol::SCTP && ip.upper == at)
}

/// A checksum as it is written: 0xffff is the other way to write zero, and in UDP the only one.
fn written(check: u16) -> u16 {
    if check == 0 { 0xffff } else { check }
}

/// A super-packet's segments, each of which can be written by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    tcp: bool,
    v6: bool,
    /// UDP without a checksum.
    bare: bool,
    /// Offsets in the frame: network header, transport header, payload, end of the payload.
    l3: usize,
    l4: usize,
    data: usize,
    end: usize,
    /// Bytes of payload in each segment but the last.
    size: usize,
    tunnel: Option<Tunnel>,
}

/// What a tunnel's outer headers need: network header, and the UDP header and whether it has a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tunnel {
    v6: bool,
    l3: usize,
    udp: Option<(usize, bool)>,
}

impl Segments {
    /// Number of segments: at least one.
    pub fn count(&self) -> usize {
        (self.end - self.data).div_ceil(self.size).max(1)
    }

    /// Bytes in front of the payload, in the super-packet and in every segment.
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
        self.data + (to - from)
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
        let Some(pseudo) = finish_ip(out, self.l3, self.v6, index) else { return false };
        let Some(upper) = out.get_mut(self.l4..) else { return false };
        if self.tcp {
            self.finish_tcp(upper, index, &pseudo);
        } else {
            finish_udp(upper, &pseudo, !self.bare);
        }
        let Some(tunnel) = self.tunnel else { return true };
        let Some(pseudo) = finish_ip(out, tunnel.l3, tunnel.v6, index) else { return false };
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
        tcp.set_seq(tcp.seq().wrapping_add((index * self.size) as u32));
        tcp.fill_checksum(pseudo);
    }
}

/// Gives the IP header at `l3` of a segment its length, identification and checksum.
fn finish_ip(frame: &mut [u8], l3: usize, v6: bool, index: usize) -> Option<Pseudo> {
    let packet = frame.get_mut(l3..)?;
    let len = packet.len();
    Some(if v6 {
        let mut ip = ipv6::Packet::new_unchecked(packet);
        ip.set_payload_len(len.saturating_sub(ipv6::HEADER_LEN) as u16);
        Pseudo::V6 { src: ip.src(), dst: ip.dst() }
    } else {
        let mut ip = ipv4::Packet::new_unchecked(packet);
        ip.set_total_len(len as u16);
        ip.set_ident(ip.ident().wrapping_add(index as u16));
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

#[cfg(test)]
mod tests;
