//! Prebuilt frames whose addresses and ports can be set in a few instructions, checksums included.
//!
//! The template's checksums are computed once with all variable fields zero; a frame's checksum is then that partial sum
//! plus the fields' words (RFC 1071: the sum is commutative and associative).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_burst::Packet;
use tidemill_wire::checksum::{self, fold};

/// What a template's packets carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload {
    /// UDP with a checksum; the payload is zeros.
    Udp,
    /// TCP with these flags (no options).
    Tcp {
        /// The flags byte: 2 is SYN, 16 ACK.
        flags: u8,
    },
    /// ICMP or ICMPv6 echo requests.
    Echo,
    /// A fragment of a UDP datagram, never the last; the first carries the UDP header, with a checksum that only the
    /// whole datagram could show right.
    Fragment {
        /// Offset in the datagram, a multiple of 8 below 65528; 0 is the first.
        offset: u16,
    },
}

/// The fields that differ from frame to frame. Both addresses are of the template's family; others are ignored.
#[derive(Debug, Clone, Copy)]
pub struct Fields {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port; the identifier of an echo.
    pub src_port: u16,
    /// Destination port; the sequence number of an echo.
    pub dst_port: u16,
    /// IPv4 identification (also of IPv6 fragments).
    pub ident: u16,
}

/// A frame with zeros where [`Fields`] go.
#[derive(Debug, Clone)]
pub struct Template {
    frame: Vec<u8>,
    v6: bool,
    /// Where the transport header begins; 0 if the frame carries none (a later fragment).
    l4: usize,
    /// Where in the frame the transport checksum is.
    l4_check: usize,
    /// Sum over the transport's pseudo-header, header and payload, without the variable fields.
    l4_sum: u64,
    /// Sum over the IPv4 header, without the variable fields.
    l3_sum: u64,
    udp: bool,
    /// Whether the pseudo-header counts (all but ICMP for IPv4).
    pseudo: bool,
    /// Where the identification goes, if anywhere, and its width.
    ident: Option<usize>,
}

const L3: usize = 14;
const UDP: u8 = 17;

impl Template {
    /// A frame of `frame_len` bytes, counted as in RFC 2544 with the frame check sequence (so 4 bytes more than the
    /// packet has in memory), or as long as its headers need if that is longer.
    pub fn new(v6: bool, frame_len: usize, payload: Payload) -> Self {
        let (protocol, l4_header) = match payload {
            Payload::Udp | Payload::Fragment { offset: 0 } => (UDP, 8),
            Payload::Fragment { .. } => (UDP, 0),
            Payload::Tcp { .. } => (6, 20),
            Payload::Echo => (if v6 { 58 } else { 1 }, 8),
        };
        let fragment = match payload {
            Payload::Fragment { offset } => Some(offset / 8),
            _ => None,
        };
        let l3_header = if v6 { 40 + if fragment.is_some() { 8 } else { 0 } } else { 20 };
        let mut l4_len = frame_len.saturating_sub(4 + L3 + l3_header).clamp(l4_header, 65535 - l3_header);
        if fragment.is_some() {
            // All but the last fragment are a multiple of 8 long (RFC 791, 3.2).
            l4_len = (l4_len / 8 * 8).max(8);
        }
        let padded = (L3 + l3_header + l4_len).max(60);
        let mut frame = vec![0; padded];
        frame[..6].copy_from_slice(&crate::capture::SYNTHETIC_DST);
        frame[6..12].copy_from_slice(&crate::capture::SYNTHETIC_SRC);
        let l3 = &mut frame[L3..];
        let mut ident = None;
        if v6 {
            l3[0] = 0x60;
            l3[4..6].copy_from_slice(&((l3_header - 40 + l4_len) as u16).to_be_bytes());
            l3[6] = protocol;
            l3[7] = 64;
            if let Some(offset) = fragment {
                l3[6] = 44;
                l3[40] = protocol;
                l3[42..44].copy_from_slice(&(offset << 3 | 1).to_be_bytes());
                ident = Some(L3 + 46);
            }
        } else {
            l3[0] = 0x45;
            l3[2..4].copy_from_slice(&((l3_header + l4_len) as u16).to_be_bytes());
            l3[6..8].copy_from_slice(&fragment.map_or(0x4000, |offset| 0x2000 | offset).to_be_bytes());
            l3[8] = 64;
            l3[9] = protocol;
            ident = Some(L3 + 4);
        }
        let ethertype: u16 = if v6 { 0x86DD } else { 0x0800 };
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let l3_sum = if v6 { 0 } else { u64::from(checksum::sum(&frame[L3..L3 + 20])) };
        let l4 = L3 + l3_header;
        let mut check = 0;
        match payload {
            Payload::Udp | Payload::Fragment { offset: 0 } => {
                // A fragmented datagram: as if one more fragment of the same length followed.
                let datagram = if fragment.is_some() { 2 * l4_len - 8 } else { l4_len };
                frame[l4 + 4..l4 + 6].copy_from_slice(&(datagram as u16).to_be_bytes());
                check = l4 + 6;
            }
            Payload::Fragment { .. } => {}
            Payload::Tcp { flags } => {
                frame[l4 + 12] = 5 << 4;
                frame[l4 + 13] = flags;
                frame[l4 + 14] = 0xFF;
                frame[l4 + 15] = 0xFF;
                check = l4 + 16;
            }
            Payload::Echo => {
                frame[l4] = if v6 { 128 } else { 8 };
                check = l4 + 2;
            }
        }
        let pseudo = v6 || payload != Payload::Echo;
        let mut l4_sum = u64::from(checksum::sum(&frame[l4..l4 + l4_len]));
        if pseudo {
            l4_sum += u64::from(protocol) + l4_len as u64;
        }
        let l4 = if check == 0 { 0 } else { l4 };
        Template { frame, v6, l4, l4_check: check, l4_sum, l3_sum, udp: protocol == UDP, pseudo, ident }
    }

    /// Bytes in each frame.
    #[allow(clippy::len_without_is_empty)] // a length on the wire, not a container's
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Whether the frames are IPv6.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Writes a frame into a packet that has the room.
    #[inline]
    pub fn write(&self, packet: &mut Packet, fields: &Fields) {
        packet.set_len(self.frame.len());
        self.emit(packet.data_mut(), fields);
    }

    /// Writes a frame to the front of `out`, which is as long as the frame or longer.
    #[inline]
    pub fn emit(&self, out: &mut [u8], fields: &Fields) {
        let out = &mut out[..self.frame.len()];
        out.copy_from_slice(&self.frame);
        let mut l4_sum = self.l4_sum;
        match (self.v6, fields.src, fields.dst) {
            (false, IpAddr::V4(src), IpAddr::V4(dst)) => {
                let addresses = words_v4(src) + words_v4(dst);
                out[L3 + 12..L3 + 16].copy_from_slice(&src.octets());
                out[L3 + 16..L3 + 20].copy_from_slice(&dst.octets());
                let l3_check = !fold(self.l3_sum + addresses + u64::from(fields.ident));
                out[L3 + 10..L3 + 12].copy_from_slice(&l3_check.to_be_bytes());
                l4_sum += if self.pseudo { addresses } else { 0 };
            }
            (true, IpAddr::V6(src), IpAddr::V6(dst)) => {
                out[L3 + 8..L3 + 24].copy_from_slice(&src.octets());
                out[L3 + 24..L3 + 40].copy_from_slice(&dst.octets());
                l4_sum += words_v6(src) + words_v6(dst);
            }
            _ => {}
        }
        if let Some(at) = self.ident {
            out[at..at + 2].copy_from_slice(&fields.ident.to_be_bytes());
        }
        if self.l4 != 0 {
            // An echo's identifier and sequence number lie where its header says, 4 bytes in.
            let ports = if self.l4_check == self.l4 + 2 { self.l4 + 4 } else { self.l4 };
            out[ports..ports + 2].copy_from_slice(&fields.src_port.to_be_bytes());
            out[ports + 2..ports + 4].copy_from_slice(&fields.dst_port.to_be_bytes());
            let check = !fold(l4_sum + u64::from(fields.src_port) + u64::from(fields.dst_port));
            let check = if self.udp { checksum::for_udp(1, check) } else { check };
            out[self.l4_check..self.l4_check + 2].copy_from_slice(&check.to_be_bytes());
        }
    }
}

/// A short frame in which everything is decided but the IPv4 destination: written in one copy and three small stores.
#[derive(Debug, Clone)]
pub struct Stamp {
    frame: [u8; LINE],
    len: usize,
    /// Sums of the headers' words without the destination, in memory order (RFC 1071, section 2: the order of bytes does not matter until
    /// the end), so that nothing is turned around for each frame.
    l3_sum: u32,
    l4_sum: u32,
}

/// What is copied of a frame, whatever its length.
const LINE: usize = 64;

impl Stamp {
    /// UDP packets of `frame_len` bytes (64 to 68, with the frame check sequence) with these fields, whose destination does not matter.
    /// `None` for other lengths, and for IPv6.
    pub fn new(frame_len: usize, fields: &Fields) -> Option<Stamp> {
        let template = Template::new(false, frame_len, Payload::Udp);
        let len = template.len();
        if len > LINE || !fields.src.is_ipv4() {
            return None;
        }
        let zero = Fields { dst: Ipv4Addr::UNSPECIFIED.into(), ..*fields };
        let mut frame = [0; LINE];
        template.emit(&mut frame, &zero);
        let sum = |check: usize| u32::from(!u16::from_ne_bytes([frame[check], frame[check + 1]]));
        Some(Stamp { l3_sum: sum(L3_CHECK), l4_sum: sum(L4_CHECK), frame, len })
    }

    /// Bytes in each frame.
    #[allow(clippy::len_without_is_empty)] // a length on the wire, not a container's
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes a frame to `dst`, an address in host order, into a packet that has 64 bytes of room.
    #[inline(always)]
    pub fn write(&self, packet: &mut Packet, dst: u32) {
        packet.set_len(LINE);
        let Some(out) = packet.data_mut().first_chunk_mut::<LINE>() else { return };
        *out = self.frame;
        let dst = dst.to_be_bytes();
        out[L3 + 16..L3 + 20].copy_from_slice(&dst);
        let words =
            u32::from(u16::from_ne_bytes([dst[0], dst[1]])) + u32::from(u16::from_ne_bytes([dst[2], dst[3]]));
        out[L3_CHECK..L3_CHECK + 2].copy_from_slice(&complement(self.l3_sum + words).to_ne_bytes());
        let check = complement(self.l4_sum + words);
        // A checksum that comes out as zero is sent as 0xffff (RFC 768).
        let check = if check == 0 { 0xFFFF } else { check };
        out[L4_CHECK..L4_CHECK + 2].copy_from_slice(&check.to_ne_bytes());
        packet.set_len(self.len);
    }
}

/// The same of IPv6, whose destination is decided later: one copy and two stores, and eight words to add.
#[derive(Debug, Clone)]
pub struct StampV6 {
    frame: [u8; LINE],
    len: usize,
    /// The sum without the destination, in memory order.
    l4_sum: u32,
}

impl StampV6 {
    /// UDP packets of `frame_len` bytes (66 to 68, with the frame check sequence) with these fields, whose destination does not matter.
    /// `None` for longer ones, and for IPv4; shorter ones have 66.
    pub fn new(frame_len: usize, fields: &Fields) -> Option<StampV6> {
        let template = Template::new(true, frame_len, Payload::Udp);
        let len = template.len();
        if len > LINE || !fields.src.is_ipv6() {
            return None;
        }
        let zero = Fields { dst: Ipv6Addr::UNSPECIFIED.into(), ..*fields };
        let mut frame = [0; LINE];
        template.emit(&mut frame, &zero);
        let l4_sum = u32::from(!u16::from_ne_bytes([frame[V6_CHECK], frame[V6_CHECK + 1]]));
        Some(StampV6 { frame, len, l4_sum })
    }

    /// Bytes in each frame.
    #[allow(clippy::len_without_is_empty)] // a length on the wire, not a container's
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes a frame to `dst`, an address in host order, into a packet that has 64 bytes of room.
    #[inline(always)]
    pub fn write(&self, packet: &mut Packet, dst: u128) {
        packet.set_len(LINE);
        let Some(out) = packet.data_mut().first_chunk_mut::<LINE>() else { return };
        *out = self.frame;
        let dst = dst.to_be_bytes();
        out[L3 + 24..L3 + 40].copy_from_slice(&dst);
        let words: u32 = (0..8).map(|at| u32::from(u16::from_ne_bytes([dst[2 * at], dst[2 * at + 1]]))).sum();
        let check = complement(self.l4_sum + words);
        // There is no packet without a checksum in IPv6 (RFC 8200, section 8.1).
        let check = if check == 0 { 0xFFFF } else { check };
        out[V6_CHECK..V6_CHECK + 2].copy_from_slice(&check.to_ne_bytes());
        packet.set_len(self.len);
    }
}

/// Where the checksum of UDP lies behind an IPv6 header.
const V6_CHECK: usize = L3 + 46;

/// Where the checksums of IPv4 and of UDP lie in a frame without options.
const L3_CHECK: usize = L3 + 10;
const L4_CHECK: usize = L3 + 26;

/// The complement of a sum of few words.
#[inline(always)]
fn complement(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !((sum & 0xFFFF) + (sum >> 16)) as u16
}

#[inline]
fn words_v4(address: Ipv4Addr) -> u64 {
    let bits = u64::from(address.to_bits());
    (bits >> 16) + (bits & 0xFFFF)
}

#[inline]
fn words_v6(address: Ipv6Addr) -> u64 {
    address.segments().iter().map(|word| u64::from(*word)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    fn fields(v6: bool, n: u16) -> Fields {
        let (src, dst): (IpAddr, IpAddr) = if v6 {
            (format!("2001:db8::{n:x}").parse().unwrap(), format!("2001:db8:ffff::{n:x}").parse().unwrap())
        } else {
            (Ipv4Addr::from_bits(0x0A00_0000 + u32::from(n)).into(), Ipv4Addr::from_bits(0xCB00_7100).into())
        };
        Fields { src, dst, src_port: n, dst_port: !n, ident: n.wrapping_mul(77) }
    }

    #[test]
    fn every_checksum_is_right() {
        for v6 in [false, true] {
            for payload in [Payload::Udp, Payload::Tcp { flags: 2 }, Payload::Echo] {
                for frame_len in [0, 64, 65, 128, 1500, 1518] {
                    let template = Template::new(v6, frame_len, payload);
                    for n in [0, 1, 0x00FF, 0x1234, 0xFFFF] {
                        let fields = fields(v6, n);
                        let mut frame = vec![0xAA; template.len()];
                        template.emit(&mut frame, &fields);
                        check(&frame, &fields, payload);
                    }
                }
                let longest = Template::new(v6, 1518, payload);
                assert_eq!(longest.len(), 1514);
            }
        }
    }

    fn check(frame: &[u8], fields: &Fields, payload: Payload) {
        let sliced = SlicedPacket::from_ethernet(frame).unwrap();
        let (src, dst, pseudo): (IpAddr, IpAddr, _) = match sliced.net.as_ref().unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                assert_eq!(header.identification, fields.ident);
                (ip.header().source_addr().into(), ip.header().destination_addr().into(), Some(header))
            }
            NetSlice::Ipv6(ip) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into(), None)
            }
            NetSlice::Arp(_) => unreachable!(),
        };
        assert_eq!((src, dst), (fields.src, fields.dst));
        let v6 = match (src, dst) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some((src.octets(), dst.octets())),
            _ => None,
        };
        match sliced.transport.as_ref().unwrap() {
            TransportSlice::Udp(udp) => {
                assert_eq!((udp.source_port(), udp.destination_port()), (fields.src_port, fields.dst_port));
                let sum = match (&pseudo, v6) {
                    (Some(ip), _) => udp.to_header().calc_checksum_ipv4(ip, udp.payload()).unwrap(),
                    (_, Some((src, dst))) => {
                        udp.to_header().calc_checksum_ipv6_raw(src, dst, udp.payload()).unwrap()
                    }
                    _ => unreachable!(),
                };
                assert_eq!(udp.checksum(), sum);
            }
            TransportSlice::Tcp(tcp) => {
                assert_eq!(payload, Payload::Tcp { flags: 2 });
                assert!(tcp.syn() && !tcp.ack());
                let sum = match (&pseudo, v6) {
                    (Some(ip), _) => tcp.calc_checksum_ipv4(ip.source, ip.destination).unwrap(),
                    (_, Some((src, dst))) => tcp.calc_checksum_ipv6(src, dst).unwrap(),
                    _ => unreachable!(),
                };
                assert_eq!(tcp.checksum(), sum);
            }
            TransportSlice::Icmpv4(icmp) => {
                assert_eq!(checksum::sum(icmp.slice()), 0xFFFF);
            }
            TransportSlice::Icmpv6(icmp) => {
                let (src, dst) = v6.unwrap();
                assert!(icmp.is_checksum_valid(src, dst));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stamp_is_its_template() {
        let mut pool = tidemill_burst::Memory::new(1, 2048).unwrap().pool(1).unwrap();
        let src = IpAddr::from([198, 18, 0, 1]);
        for frame_len in [0, 64, 65, 68] {
            for (src_port, ident) in [(0, 0), (1024, 9), (0xFFFF, 0xFFFF)] {
                let fields = |dst: u32| Fields {
                    src,
                    dst: Ipv4Addr::from_bits(dst).into(),
                    src_port,
                    dst_port: 9,
                    ident,
                };
                let (stamp, template) = (
                    Stamp::new(frame_len, &fields(77)).unwrap(),
                    Template::new(false, frame_len, Payload::Udp),
                );
                // Every value of the checksums occurs, the two zeros too.
                for dst in (0..0x1_0000).flat_map(|word| [word, word << 16 | 0xFFFF]) {
                    let mut packet = pool.take().unwrap();
                    let mut expected = vec![0; template.len()];
                    template.emit(&mut expected, &fields(dst));
                    stamp.write(&mut packet, dst);
                    assert!(packet.data() == expected, "{frame_len} {src_port} {dst:x}");
                    pool.free(packet);
                }
            }
        }
        let v6 = Fields { src: Ipv6Addr::LOCALHOST.into(), dst: src, src_port: 0, dst_port: 0, ident: 0 };
        let v4 = Fields { src, ..v6 };
        assert!(Stamp::new(64, &v6).is_none() && Stamp::new(69, &v4).is_none());
    }

    #[test]
    fn an_ipv6_stamp_is_its_template() {
        let mut pool = tidemill_burst::Memory::new(1, 2048).unwrap().pool(1).unwrap();
        let src = IpAddr::from(Ipv6Addr::LOCALHOST);
        for frame_len in [0, 64, 66, 67, 68] {
            let fields = |dst: u128| Fields {
                src,
                dst: Ipv6Addr::from_bits(dst).into(),
                src_port: 1024,
                dst_port: 9,
                ident: 0,
            };
            let stamp = StampV6::new(frame_len, &fields(77)).unwrap();
            let template = Template::new(true, frame_len, Payload::Udp);
            assert_eq!(stamp.len(), template.len());
            // Every value of the checksum occurs, the two zeros too; and carries out of all words.
            let most = u128::MAX << 16;
            for dst in (0..0x1_0000).flat_map(|word| [word, word << 96 | 0xFFFF, most | word]) {
                let mut packet = pool.take().unwrap();
                let mut expected = vec![0; template.len()];
                template.emit(&mut expected, &fields(dst));
                stamp.write(&mut packet, dst);
                assert!(packet.data() == expected, "{frame_len} {dst:x}");
                pool.free(packet);
            }
        }
        let v4 = Fields { src: [198, 18, 0, 1].into(), dst: src, src_port: 0, dst_port: 0, ident: 0 };
        let v6 = Fields { src, ..v4 };
        assert!(StampV6::new(66, &v4).is_none() && StampV6::new(69, &v6).is_none());
    }

    #[test]
    fn fragments_say_so() {
        for v6 in [false, true] {
            for offset in [0, 1480] {
                let template = Template::new(v6, 700, Payload::Fragment { offset });
                let mut frame = vec![0; template.len()];
                template.emit(&mut frame, &fields(v6, 9));
                let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
                assert!(sliced.net.as_ref().unwrap().ip_payload_ref().unwrap().fragmented, "{v6} {offset}");
                assert_eq!(template.l4 != 0, offset == 0);
                if let Some(NetSlice::Ipv4(ip)) = sliced.net {
                    assert_eq!(ip.header().fragments_offset().byte_offset(), offset);
                    assert!(ip.header().more_fragments() && ip.payload().payload.len().is_multiple_of(8));
                }
            }
        }
    }
}
