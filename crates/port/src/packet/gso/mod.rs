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
//! ```
//! How a super-packet falls into segments is in [`tidemill_wire::segment`].
//!
//! Super-packets inside a tunnel (IP in IP, GRE without checksum and sequence numbers, VXLAN, Geneve) fall into tunnelled
//! segments. SCTP super-packets never get here: the kernel has no words for them and counts them as lost.
//!
//! Pure: bytes in, bytes out. The header comes from outside like the packet does, so every field is checked.

use tidemill_wire::checksum;
use tidemill_wire::segment::{Segments, Tunnel};
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
            fixed_ident: false,
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

#[cfg(test)]
mod tests;
