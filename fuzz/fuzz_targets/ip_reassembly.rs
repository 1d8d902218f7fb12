//! Fragments in any order, of any bytes: every packet that goes in comes out once, limits hold, and a whole datagram is a
//! packet made of bytes that were sent for their places.
//!
//! Input: records of a kind (one byte), and six bytes for a fragment, or a length and so many bytes for any packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashSet;
use tidemill_burst::{Memory, Packet, Pool};
use tidemill_ip::reassembly::{Fate, Limits, Reassembler};
use tidemill_wire::{Protocol, ipv4, ipv6, ipv6_ext};

const L3: usize = 14;

fn frame(pool: &mut Pool, ip: &[u8]) -> Option<Packet> {
    let mut packet = pool.packet(&[&[0; L3], ip].concat())?;
    packet.l3 = L3 as u8;
    Some(packet)
}

/// Six bytes: identification, offset, length, more and what the bytes are, how much time passes.
struct Spec {
    v6: bool,
    ident: u8,
    offset: u16,
    bytes: Vec<u8>,
    more: bool,
}

fn spec(v6: bool, raw: &[u8; 5]) -> Spec {
    let [ident, high, low, len, how] = *raw;
    let offset = u16::from_be_bytes([high, low]) & 0xfff8;
    // Lengths around the longest datagram are reached by way of large offsets.
    let bytes = (0..len).map(|i| (how >> 1) ^ i ^ low).collect();
    Spec { v6, ident: ident % 4, offset, bytes, more: how & 1 == 1 }
}

fn build(pool: &mut Pool, spec: &Spec) -> Option<Packet> {
    let mut ip;
    if spec.v6 {
        ip = vec![0; 48];
        let [src, dst] = [1, 2].map(|n| std::net::Ipv6Addr::from(n << 64 | 1u128));
        ipv6::Repr::new(src, dst, Protocol::FRAGMENT, 8 + spec.bytes.len()).emit(&mut ip).ok()?;
        let header = ipv6_ext::FragmentRepr {
            next_header: Protocol::UDP,
            offset: spec.offset,
            more: spec.more,
            ident: spec.ident.into(),
        };
        header.emit(&mut ip[40..]).ok()?;
    } else {
        ip = vec![0; 20];
        let [src, dst] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(std::net::Ipv4Addr::from);
        let mut repr = ipv4::Repr::new(src, dst, Protocol::UDP, spec.bytes.len());
        repr.ident = spec.ident.into();
        repr.emit(&mut ip).ok()?;
        let mut view = ipv4::Packet::new_unchecked(&mut ip[..]);
        view.set_fragment(false, spec.more, spec.offset);
        view.fill_checksum();
    }
    ip.extend_from_slice(&spec.bytes);
    frame(pool, &ip)
}

fuzz_target!(|data: &[u8]| {
    let Ok(mut pool) = Memory::new(64, 2048).and_then(|memory| memory.pool(64)) else { return };
    let limits = Limits { datagrams: 3, fragments: 6, packets: 16 };
    let mut reassembler = Reassembler::new(1000, limits);
    let (mut rest, mut now_ns) = (data, 0);
    let (mut datagram, mut back) = (Vec::new(), Vec::new());
    let (mut given, mut returned) = (0, 0);
    let mut sent: HashSet<(bool, u8, u16, u8)> = HashSet::new();
    let mut strange = false;
    while let Some((&kind, tail)) = rest.split_first() {
        rest = tail;
        let packet = if kind < 224 {
            let Some((raw, tail)) = rest.split_first_chunk::<6>() else { break };
            rest = tail;
            let [fields @ .., time] = raw;
            now_ns += u64::from(*time);
            let spec = spec(kind & 1 == 1, fields);
            let places = spec.bytes.iter().enumerate();
            sent.extend(places.map(|(i, b)| (spec.v6, spec.ident, spec.offset.wrapping_add(i as u16), *b)));
            build(&mut pool, &spec)
        } else {
            let Some((&len, tail)) = rest.split_first() else { break };
            let (raw, tail) = tail.split_at(usize::from(len).min(tail.len()));
            rest = tail;
            strange = true;
            frame(&mut pool, raw)
        };
        let Some(packet) = packet else { continue };
        given += 1;
        if reassembler.insert(now_ns, 0, packet, &mut datagram, &mut back) {
            let (v6, ident, payload) = match ipv4::version(&datagram) {
                4 => {
                    let view = ipv4::Packet::new_checked(&datagram[..]).expect("a packet");
                    assert!(view.checksum_ok() && !view.is_fragment());
                    assert_eq!(usize::from(view.total_len()), datagram.len());
                    (false, view.ident() as u8, &datagram[view.header_len()..])
                }
                _ => {
                    let view = ipv6::Packet::new_checked(&datagram[..]).expect("a packet");
                    assert_eq!(40 + usize::from(view.payload_len()), datagram.len());
                    (true, 0, &datagram[40..])
                }
            };
            for (i, byte) in payload.iter().enumerate().filter(|_| !strange) {
                let idents = if v6 { 0..4 } else { ident..ident + 1 };
                let known = idents.into_iter().any(|ident| sent.contains(&(v6, ident, i as u16, *byte)));
                assert!(known, "byte {i} was never sent");
            }
            assert!(back.iter().filter(|(_, fate)| *fate == Fate::Assembled).count() >= 2);
        }
        if now_ns % 7 == 0 {
            reassembler.expire(now_ns, &mut back);
        }
        assert!(reassembler.len() <= limits.packets);
        returned += back.len();
        assert_eq!(given, returned + reassembler.len());
        back.drain(..).for_each(|(packet, _)| pool.free(packet));
    }
    reassembler.expire(u64::MAX, &mut back);
    assert!(reassembler.is_empty());
    assert_eq!(given, returned + back.len());
    back.drain(..).for_each(|(packet, _)| pool.free(packet));
    assert_eq!(pool.stats().free, 64);
});
