//! Segments against what an independent parser reads in them.

use super::*;
use etherparse::{
    Ethernet2Header, IpNumber, Ipv4Header, Ipv4Options, Ipv6Header, SlicedPacket, TcpHeader, TransportSlice,
    UdpHeader,
};
use proptest::prelude::*;
use tidemill_wire::checksum::Pseudo;

/// A super-packet and what it is made of.
#[derive(Debug, Clone)]
struct Super {
    tcp: bool,
    v6: bool,
    /// Tags inside the frame.
    tags: usize,
    options: usize,
    flags: u8,
    seq: u32,
    ident: u16,
    payload: Vec<u8>,
    size: u16,
    /// Bytes behind the packet.
    padding: usize,
}

const TCP_FLAGS: u8 = 0b1101_1001; // CWR ECE ACK PSH FIN

impl Super {
    fn frame(&self) -> Vec<u8> {
        let mut upper = Vec::new();
        let ports = (0x1234u16.to_be_bytes(), 443u16.to_be_bytes());
        if self.tcp {
            upper.extend(ports.0);
            upper.extend(ports.1);
            upper.extend(self.seq.to_be_bytes());
            upper.extend(77u32.to_be_bytes());
            upper.extend([((5 + self.options) as u8) << 4, self.flags, 2, 0, 0xAA, 0xBB, 0, 0]);
            upper.extend(std::iter::repeat_n(1, 4 * self.options));
        } else {
            upper.extend(ports.0);
            upper.extend(ports.1);
            upper.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            upper.extend([0xAA, 0xBB]);
        }
        upper.extend(&self.payload);
        let next = if self.tcp { IpNumber::TCP } else { IpNumber::UDP };
        let mut frame = Vec::new();
        let l3 = if self.v6 { 0x86DD } else { 0x0800 };
        let outer = if self.tags > 0 { 0x88A8 } else { l3 };
        let ethernet = Ethernet2Header { destination: [2; 6], source: [4; 6], ether_type: outer.into() };
        frame.extend(ethernet.to_bytes());
        for tag in 0..self.tags {
            frame.extend([0x20, tag as u8 + 5]);
            frame.extend(if tag + 1 == self.tags { l3 } else { 0x8100u16 }.to_be_bytes());
        }
        if self.v6 {
            let mut ip = Ipv6Header {
                payload_length: upper.len() as u16,
                next_header: next,
                hop_limit: 9,
                source: [0x20; 16],
                destination: [0x30; 16],
                ..Ipv6Header::default()
            };
            ip.traffic_class = 3;
            frame.extend(ip.to_bytes());
        } else {
            let mut ip = Ipv4Header::new(upper.len() as u16, 64, next, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
            ip.options = Ipv4Options::try_from(&[1u8; 40][..4 * (self.options % 10)]).unwrap();
            ip.set_payload_len(upper.len()).unwrap();
            ip.identification = self.ident;
            ip.dont_fragment = true;
            frame.extend(ip.to_bytes());
        }
        frame.extend(upper);
        frame.extend(std::iter::repeat_n(0x55, self.padding));
        frame
    }

    fn offload(&self) -> Offload {
        let kind = match (self.tcp, self.v6) {
            (true, false) => GSO_TCP_V4 | GSO_ECN,
            (true, true) => GSO_TCP_V6,
            (false, _) => GSO_UDP_L4,
        };
        let [a, b] = self.size.to_ne_bytes();
        Offload::parse(&[NEEDS_CSUM, kind, 0, 0, a, b, 0, 0, 0, 0])
    }
}

fn supers() -> impl Strategy<Value = Super> {
    let shape = (any::<bool>(), any::<bool>(), 0..3usize, 0..10usize);
    let values = (any::<u8>(), any::<u32>(), any::<u16>(), 0..50usize);
    let data = (prop::collection::vec(any::<u8>(), 0..300), 1..200usize, 1..3000u16);
    (shape, values, data).prop_map(|((tcp, v6, tags, options), (flags, seq, ident, padding), data)| {
        let (piece, times, size) = data;
        let payload = piece.repeat(times);
        // Not more than 600 segments, which bounds the time.
        let size = size.max((payload.len() / 600) as u16 + 1);
        Super { tcp, v6, tags, options, flags: flags & TCP_FLAGS, seq, ident, payload, size, padding }
    })
}

fn segments(frame: &[u8], offload: &Offload) -> Vec<Vec<u8>> {
    let plan = offload.plan(frame).unwrap();
    let segment = |index| {
        let mut out = vec![0xEE; plan.len(index) + 3];
        assert!(plan.write(frame, index, &mut out));
        assert_eq!(out.split_off(plan.len(index)), [0xEE; 3], "wrote beyond its length");
        out
    };
    (0..plan.count()).map(segment).collect()
}

/// Checks the segments of a super-packet, one by one and together.
fn check(packet: &Super) {
    let frame = packet.frame();
    let segments = segments(&frame, &packet.offload());
    let size = usize::from(packet.size);
    assert_eq!(segments.len(), packet.payload.len().div_ceil(size).max(1));
    let (mut payload, last) = (Vec::new(), segments.len() - 1);
    for (index, segment) in segments.iter().enumerate() {
        tidemill_wire::verify_checksums(segment).unwrap();
        let sliced = SlicedPacket::from_ethernet(segment).unwrap();
        let original = SlicedPacket::from_ethernet(&frame).unwrap();
        let l2 = 14 + 4 * packet.tags;
        assert_eq!(segment[..l2], frame[..l2]);
        let (l3, l3_original) = (sliced.net.clone().unwrap(), original.net.clone().unwrap());
        if packet.v6 {
            let (ip, was) = (l3.ipv6_ref().unwrap().header(), l3_original.ipv6_ref().unwrap().header());
            let mut expected = was.to_header();
            expected.payload_length = (segment.len() - l2 - 40) as u16;
            assert_eq!(ip.to_header(), expected);
        } else {
            let ip = l3.ipv4_ref().unwrap().header().to_header();
            let mut expected = l3_original.ipv4_ref().unwrap().header().to_header();
            expected.identification = packet.ident.wrapping_add(index as u16);
            expected.total_len = ip.total_len;
            expected.header_checksum = expected.calc_header_checksum();
            assert_eq!(ip, expected);
            assert_eq!(l2 + usize::from(ip.total_len), segment.len());
        }
        let checksum = |tcp: Option<&TcpHeader>, udp: Option<&UdpHeader>, data: &[u8]| match (tcp, udp) {
            (Some(h), _) if packet.v6 => h.calc_checksum_ipv6_raw([0x20; 16], [0x30; 16], data).unwrap(),
            (Some(h), _) => h.calc_checksum_ipv4_raw([10, 0, 0, 1], [10, 0, 0, 2], data).unwrap(),
            (_, Some(h)) if packet.v6 => h.calc_checksum_ipv6_raw([0x20; 16], [0x30; 16], data).unwrap(),
            (_, Some(h)) => h.calc_checksum_ipv4_raw([10, 0, 0, 1], [10, 0, 0, 2], data).unwrap(),
            _ => unreachable!(),
        };
        let data = match sliced.transport.unwrap() {
            TransportSlice::Tcp(tcp) => {
                let mut flags = packet.flags;
                flags &= if index > 0 { !0x80 } else { 0xFF };
                flags &= if index < last { !0x09 } else { 0xFF };
                assert_eq!(tcp.slice()[13], flags, "flags of {index}");
                assert_eq!(tcp.sequence_number(), packet.seq.wrapping_add((index * size) as u32));
                let header = tcp.to_header();
                assert_eq!(header.checksum, checksum(Some(&header), None, tcp.payload()));
                assert_eq!((header.acknowledgment_number, header.window_size), (77, 512));
                assert_eq!(header.options.as_slice(), vec![1; 4 * packet.options]);
                tcp.payload().to_vec()
            }
            TransportSlice::Udp(udp) => {
                let header = udp.to_header();
                assert_eq!(usize::from(header.length), 8 + udp.payload().len());
                // Zero is written as its complement.
                let right = checksum(None, Some(&header), udp.payload());
                assert_eq!(header.checksum, if right == 0 { 0xFFFF } else { right });
                udp.payload().to_vec()
            }
            other => panic!("{other:?}"),
        };
        assert!(data.len() == size || index == last, "only the last may be short");
        payload.extend(data);
    }
    assert!(payload == packet.payload, "put together it is another payload");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn segments_put_together_are_the_original(packet in supers()) {
        check(&packet);
    }

    #[test]
    fn nothing_that_is_cut_or_changed_makes_it_fail(
        packet in supers(), cut in 0..200usize, at in 0..100usize, to in any::<u8>(), kind in any::<u8>(),
    ) {
        let mut frame = packet.frame();
        frame.truncate(frame.len().saturating_sub(cut).max(cut));
        if let Some(byte) = frame.get_mut(at) {
            *byte = to;
        }
        let mut offload = packet.offload();
        if kind < 32 {
            offload.gso_type = kind;
        }
        if let Ok(plan) = offload.plan(&frame) {
            let mut out = vec![0; frame.len()];
            for index in 0..plan.count() {
                prop_assert!(plan.write(&frame, index, &mut out));
                prop_assert!(plan.len(index) <= frame.len());
            }
            prop_assert!(!plan.write(&frame, 0, &mut out[..plan.len(0) - 1]));
            let last = plan.count() - 1;
            prop_assert!(!plan.write(&frame[..plan.end - 1], last, &mut out), "another frame");
        }
        let mut copy = frame.clone();
        let at = at as u16;
        let left = Offload { flags: NEEDS_CSUM, csum_start: at, csum_offset: to.into(), ..Offload::default() };
        let fits = usize::from(at) + usize::from(to) + 2 <= frame.len();
        prop_assert_eq!(left.finish(&mut copy).is_ok(), fits);
        prop_assert!(fits || copy == frame);
    }
}

/// What stands between the outer and the inner header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrap {
    Ip,
    Gre,
    GreKeyed,
    GreEthernet,
    Vxlan { checksum: bool },
}

const WRAPS: [Wrap; 6] = [
    Wrap::Ip,
    Wrap::Gre,
    Wrap::GreKeyed,
    Wrap::GreEthernet,
    Wrap::Vxlan { checksum: false },
    Wrap::Vxlan { checksum: true },
];

/// A super-packet inside a tunnel, and where its transport header is.
fn tunnelled(packet: &Super, wrap: Wrap, v6: bool) -> (Vec<u8>, usize) {
    let frame = packet.frame();
    let inner = &frame[14..];
    let (protocol, between): (u8, Vec<u8>) = match wrap {
        Wrap::Ip => (if packet.v6 { 41 } else { 4 }, Vec::new()),
        Wrap::Gre => (47, [&[0, 0][..], &frame[12..14]].concat()),
        Wrap::GreKeyed => (47, [&[0x20, 0][..], &frame[12..14], &[1, 2, 3, 4]].concat()),
        Wrap::GreEthernet => (47, [&[0, 0, 0x65, 0x58][..], &frame[..14]].concat()),
        Wrap::Vxlan { checksum } => {
            let len = ((8 + 8 + frame.len()) as u16).to_be_bytes();
            let check = if checksum { 0xAA } else { 0 };
            let udp = [0xC0, 0, 0x12, 0xB5, len[0], len[1], check, 0];
            (17, [&udp[..], &[8, 0, 0, 0, 0, 0, 5, 0], &frame[..14]].concat())
        }
    };
    let payload = [&between[..], inner].concat();
    let mut out = vec![6; 12];
    if v6 {
        let ip = Ipv6Header {
            payload_length: payload.len() as u16,
            next_header: protocol.into(),
            source: [0x40; 16],
            destination: [0x50; 16],
            ..Ipv6Header::default()
        };
        out.extend([0x86, 0xDD]);
        out.extend(ip.to_bytes());
    } else {
        let mut ip =
            Ipv4Header::new(payload.len() as u16, 64, protocol.into(), [10, 1, 0, 1], [10, 1, 0, 2]).unwrap();
        ip.identification = 0xFFFE;
        out.extend([0x08, 0x00]);
        out.extend(ip.to_bytes());
    }
    let start = out.len() + between.len() + if packet.v6 { 40 } else { 20 };
    out.extend(payload);
    (out, start)
}

fn check_tunnel(packet: &Super, wrap: Wrap, v6: bool) {
    let packet = Super { tags: 0, padding: 0, options: packet.options / 9 * 10, ..packet.clone() };
    let (frame, start) = tunnelled(&packet, wrap, v6);
    let offload = Offload { csum_start: start as u16, ..packet.offload() };
    let bare = segments(&packet.frame(), &packet.offload());
    let whole = segments(&frame, &offload);
    assert_eq!(whole.len(), bare.len());
    let header = frame.len() - (packet.frame().len() - 14);
    for (index, (segment, bare)) in whole.iter().zip(&bare).enumerate() {
        assert_eq!(segment[header..], bare[14..], "the inner packet is segmented as it would be alone");
        if !(v6 && wrap == Wrap::Vxlan { checksum: false }) {
            tidemill_wire::verify_checksums(segment).unwrap();
        }
        let sliced = SlicedPacket::from_ethernet(segment).unwrap();
        match sliced.net.unwrap() {
            etherparse::NetSlice::Ipv4(ip) => {
                assert_eq!(usize::from(ip.header().total_len()), segment.len() - 14);
                assert_eq!(ip.header().identification(), 0xFFFEu16.wrapping_add(index as u16));
            }
            etherparse::NetSlice::Ipv6(ip) => {
                assert_eq!(usize::from(ip.header().payload_length()), segment.len() - 54);
            }
            other => panic!("{other:?}"),
        }
        let mut between = (segment[header - 30..header].to_vec(), frame[header - 30..header].to_vec());
        if let Wrap::Vxlan { checksum } = wrap {
            let udp = &between.0[4..8].to_vec();
            assert_eq!(
                usize::from(u16::from_be_bytes([between.0[4], between.0[5]])),
                segment.len() - header + 30
            );
            assert_eq!(between.0[6..8] != [0, 0], checksum, "{udp:?}");
            between.1[4..8].copy_from_slice(udp);
            assert_eq!(between.0, between.1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn tunnels_wrap_every_segment(packet in supers(), wrap in 0..WRAPS.len(), v6 in any::<bool>()) {
        check_tunnel(&packet, WRAPS[wrap], v6);
    }
}

#[test]
fn tunnels_that_we_do_not_know_are_refused() {
    let packet = Super { options: 0, ..example() };
    let refused = |wrap, change: &dyn Fn(&mut Vec<u8>)| {
        let (mut frame, start) = tunnelled(&packet, wrap, false);
        let offload = Offload { csum_start: start as u16, ..packet.offload() };
        offload.plan(&frame).unwrap();
        change(&mut frame);
        assert_eq!(offload.plan(&frame), Err(OffloadError::Headers(GSO_TCP_V4)));
    };
    refused(Wrap::Gre, &|f| f[34] = 0x10);
    refused(Wrap::Gre, &|f| f[34] = 0x80);
    refused(Wrap::Gre, &|f| f[35] = 1);
    refused(Wrap::GreKeyed, &|f| f[34] = 0);
    refused(Wrap::GreEthernet, &|f| f[36] = 0);
    refused(Wrap::Vxlan { checksum: true }, &|f| f[39] ^= 1);
    refused(Wrap::Vxlan { checksum: true }, &|f| f[23] = 50);
    // The inner packet's length says that something follows it.
    refused(Wrap::Vxlan { checksum: true }, &|f| f[67] ^= 1);
    refused(Wrap::Ip, &|f| f[43] = 17);
}

#[test]
fn sctp_gets_its_own_checksum() {
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |c, _| c >> 1 ^ if c & 1 == 1 { 0x82F6_3B78 } else { 0 })
        })
    };
    assert_eq!(crc(b"123456789"), 0xE306_9283);
    let sctp: Vec<u8> = [0, 7, 0, 8, 1, 2, 3, 4, 0, 0, 0, 0].into_iter().chain(9..90).collect();
    let mut frame = vec![2; 12];
    frame.extend([8, 0]);
    let ip = Ipv4Header::new(sctp.len() as u16, 9, IpNumber::SCTP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
    frame.extend(ip.to_bytes());
    frame.extend(&sctp);
    let before = frame.clone();
    let left = Offload { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 8, ..Offload::default() };
    left.finish(&mut frame).unwrap();
    assert_eq!(frame[42..46], crc(&sctp).to_le_bytes());
    assert_eq!((&frame[..42], &frame[46..]), (&before[..42], &before[46..]));
    // A protocol of somebody's own may have a checksum of the usual kind at the same place.
    let mut other = before.clone();
    other[23] = 253;
    left.finish(&mut other).unwrap();
    assert_eq!(other[44..], before[44..]);
}

fn example() -> Super {
    Super {
        tcp: true,
        v6: false,
        tags: 0,
        options: 3,
        flags: 0x99,
        seq: 0xFFFF_FF00,
        ident: 0xFFFF,
        payload: (0..=255).cycle().take(65_000).collect(),
        size: 1448,
        padding: 0,
    }
}

#[test]
fn the_longest_super_packets() {
    check(&example());
    check(&Super { v6: true, ..example() });
    check(&Super { tcp: false, size: 1472, ..example() });
    check(&Super { tcp: false, v6: true, size: 1, payload: vec![1; 500], ..example() });
    check(&Super { payload: Vec::new(), ..example() });
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let packet = example();
    let (frame, offload) = (packet.frame(), packet.offload());
    let refused = |change: &dyn Fn(&mut Offload, &mut Vec<u8>)| {
        let (mut offload, mut frame) = (offload, frame.clone());
        change(&mut offload, &mut frame);
        offload.plan(&frame).unwrap_err()
    };
    assert_eq!(refused(&|o, _| o.gso_size = 0), OffloadError::Size);
    assert_eq!(refused(&|o, _| o.gso_type = 3), OffloadError::Type(3), "UFO is long gone");
    assert_eq!(refused(&|o, _| o.gso_type = 4), OffloadError::Headers(4), "the header says IPv6");
    assert_eq!(refused(&|o, _| o.gso_type = 5), OffloadError::Headers(5), "UDP");
    assert_eq!(refused(&|_, f| f.truncate(13)), OffloadError::Headers(1));
    assert_eq!(refused(&|_, f| f.truncate(1000)), OffloadError::Headers(1), "shorter than its length");
    assert_eq!(refused(&|_, f| f[12] = 0), OffloadError::Headers(1), "not IP");
    assert_eq!(refused(&|_, f| f[14] = 0x44), OffloadError::Headers(1), "header length");
    assert_eq!(refused(&|_, f| f[20] = 0x20), OffloadError::Headers(1), "a fragment");
    assert_eq!(refused(&|_, f| f[23] = 47), OffloadError::Headers(1), "not TCP");
    assert_eq!(refused(&|_, f| f[58] = 0x40), OffloadError::Headers(1), "TCP header length");
    assert_eq!(
        Offload { flags: NEEDS_CSUM, csum_start: 60, csum_offset: 16, ..Offload::default() }
            .finish(&mut [0; 70])
            .unwrap_err()
            .to_string(),
        "checksum of byte 60 on, at 16 from there, in a packet of 70"
    );
}

#[test]
fn a_partial_checksum_is_completed_as_the_kernel_would() {
    let mut frame = Vec::new();
    let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9);
    builder.udp(5, 6).write(&mut frame, b"an odd number").unwrap();
    let right = frame.clone();
    // What a sender leaves in the field: the sum of the pseudo header, not complemented.
    let pseudo = Pseudo::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
    frame[40..42].copy_from_slice(&pseudo.sum(Protocol::UDP, 8 + 13).to_be_bytes());
    assert_ne!(frame, right);
    let left = Offload { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..Offload::default() };
    left.finish(&mut frame).unwrap();
    assert_eq!(frame, right);
    // With nothing left to do, nothing is done.
    Offload::default().finish(&mut frame).unwrap();
    assert_eq!(frame, right);
    // A UDP checksum that comes out as zero is written as all ones.
    let mut zero = [0; 10];
    zero[0..2].copy_from_slice(&[0xFF, 0xFF]);
    Offload { flags: NEEDS_CSUM, csum_start: 0, csum_offset: 6, ..Offload::default() }
        .finish(&mut zero)
        .unwrap();
    assert_eq!(zero[6..8], [0xFF, 0xFF]);
}

#[test]
fn udp_without_a_checksum_stays_without() {
    let packet = Super { tcp: false, size: 1000, ..example() };
    let mut frame = packet.frame();
    let l4 = 14 + 20 + 4 * (packet.options % 10);
    frame[l4 + 6..l4 + 8].fill(0);
    let without = Offload { flags: 0, ..packet.offload() };
    assert!(segments(&frame, &without).iter().all(|s| s[l4 + 6..l4 + 8] == [0, 0]));
    assert!(segments(&frame, &packet.offload()).iter().all(|s| s[l4 + 6..l4 + 8] != [0, 0]));
}
