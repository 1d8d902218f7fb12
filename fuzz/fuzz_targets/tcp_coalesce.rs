//! Any segments of a few flows, changed anywhere, merged and cut again: each flow is, byte for byte and in order, what it was;
//! long packets are right ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_burst::{Memory, Packet};
use tidemill_ip::coalesce::Coalescer;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::segment::Segments;
use tidemill_wire::{Protocol, ipv4, ipv6, tcp, verify_checksums};

/// Where the IP header begins.
const L3: usize = 14;

/// A segment of flow `port` over IPv4 or IPv6.
fn segment(v6: bool, port: u8, seq: u32, ident: u16, flags: u8, payload: usize) -> Vec<u8> {
    let mut tcp = vec![0, port, 1, 187];
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 1, 0x50, flags, 2, 0, 0, 0, 0, 0]);
    tcp.extend((0..payload).map(|i| seq.wrapping_add(i as u32) as u8));
    let mut frame = vec![2; 12];
    frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
    let len = tcp.len() as u16;
    let pseudo = if v6 {
        frame.extend([0x60, 0, 0, 0, (len >> 8) as u8, len as u8, 6, 64]);
        frame.extend([0x20; 16]);
        frame.extend([0x30; 16]);
        Pseudo::V6 { src: [0x20; 16].into(), dst: [0x30; 16].into() }
    } else {
        let (total, ident) = ((len + 20).to_be_bytes(), ident.to_be_bytes());
        frame.extend([0x45, 0, total[0], total[1], ident[0], ident[1], 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        ipv4::fill_checksum(&mut frame[L3..]);
        Pseudo::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() }
    };
    tcp::Packet::new_unchecked(&mut tcp[..]).fill_checksum(&pseudo);
    frame.extend(tcp);
    frame
}

/// What `ip4-input` and `ip6-input` let through, padding cut off.
fn checked(frame: &mut Vec<u8>) -> bool {
    let ip = &frame[L3..];
    let len = match ipv4::version(ip) {
        4 if ipv4::check(ip).is_ok() && ipv4::checksum_ok(ip) => usize::from(ipv4::total_len(ip)),
        6 if ipv6::check(ip).is_ok() => ipv6::HEADER_LEN + usize::from(ipv6::payload_len(ip)),
        _ => return false,
    };
    frame.truncate(L3 + len);
    true
}

/// The flow that a frame is of: its addresses, protocol and ports, read with no regard to anything else.
fn flow(frame: &[u8]) -> Option<Vec<u8>> {
    let ip = &frame[L3..];
    match ipv4::version(ip) {
        4 if ipv4::protocol(ip) == Protocol::TCP && !ipv4::is_fragment(ip) => {
            let at = ipv4::header_len(ip);
            Some([ip.get(12..20)?, ip.get(at..at + 4)?].concat())
        }
        6 if ipv6::next_header(ip) == Protocol::TCP => Some(ip.get(8..44)?.to_vec()),
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut pool = Memory::new(256, 16384).unwrap().pool(256).unwrap();
    let (mut frames, mut seqs, mut idents) = (Vec::new(), [u32::MAX - 500; 8], [65_530u16; 8]);
    for step in data.chunks_exact(8).take(100) {
        let [kind, size, flags, a, b, c, d, refill] = *step else { return };
        let which = usize::from(kind & 7);
        let payload = if size < 200 { 100 } else { usize::from(size) };
        let flags = if flags < 160 { 0x10 } else { flags };
        let mut frame = segment(which & 1 == 1, kind & 7, seqs[which], idents[which], flags, payload);
        seqs[which] = seqs[which].wrapping_add(payload as u32);
        idents[which] = idents[which].wrapping_add(u16::from(kind & 8 == 0));
        // Changes of the headers, with the IPv4 checksum right again so that they get through.
        for (at, value) in [(a, b), (c, d)] {
            if kind & 0x30 == 0x30 {
                let at = L3 + usize::from(at) % 80;
                frame[at] ^= value;
            }
        }
        if refill & 3 != 0 && ipv4::version(&frame[L3..]) == 4 {
            ipv4::fill_checksum(&mut frame[L3..]);
        }
        if checked(&mut frame) {
            frames.push(frame);
        }
    }
    let mut packets: Vec<Packet> = frames.iter().map(|frame| pool.packet(frame).unwrap()).collect();
    packets.iter_mut().for_each(|packet| packet.l3 = L3 as u8);
    let mut away = vec![false; packets.len()];
    Coalescer::default().merge(&mut packets, |at| away[at] = true);
    let mut out = Vec::new();
    for (packet, away) in packets.into_iter().zip(away) {
        match packet.merged() {
            _ if away => {}
            None => out.push(packet.data().to_vec()),
            Some(merged) => {
                let data = packet.data();
                verify_checksums(data).unwrap();
                let segments = Segments::of_tcp(data, L3, merged.size.into(), merged.fixed_ident).unwrap();
                for index in 0..segments.count() {
                    let mut segment = vec![0; segments.len(index)];
                    assert!(segments.write(data, index, &mut segment));
                    out.push(segment);
                }
            }
        }
        pool.free(packet);
    }
    assert_eq!(out.len(), frames.len());
    for frame in frames.iter().filter(|frame| flow(frame).is_some()) {
        let of_flow = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
            all.iter().filter(|other| flow(other) == flow(frame)).cloned().collect()
        };
        assert_eq!(of_flow(&out), of_flow(&frames));
    }
});
