//! Answers of amplifiers, in all the wrappings that they may come in, and what victims say to them.

use std::net::IpAddr;
use tidemill_amp::Tuple;
use tidemill_wire::flow::Addresses;

/// What an answer is wrapped in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wrapping {
    /// EtherTypes of VLAN tags.
    pub(crate) tags: Vec<u16>,
    /// Words of IPv4 options.
    pub(crate) options: usize,
    /// IPv6 extension headers, by their numbers.
    pub(crate) extensions: Vec<u8>,
    /// Identification, offset in units of eight bytes, whether more follow.
    pub(crate) fragment: Option<(u32, u16, bool)>,
    /// Bytes behind the UDP header.
    pub(crate) payload: usize,
}

pub(crate) fn tuple(src: &str, source_port: u16, dst: &str, destination_port: u16) -> Tuple {
    let addresses = match (src.parse().unwrap(), dst.parse().unwrap()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4 { src: src.into(), dst: dst.into() },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Addresses::V6 { src: src.into(), dst: dst.into() },
        _ => panic!("{src} and {dst} are of two families"),
    };
    Tuple { addresses, source_port, destination_port }
}

fn sum(bytes: &[u8], mut sum: u32) -> u32 {
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    sum
}

fn checksum(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn ethernet(tags: &[u16], kind: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for (at, tag) in tags.iter().enumerate() {
        frame.extend(tag.to_be_bytes());
        frame.extend((10 + at as u16).to_be_bytes());
    }
    frame.extend(kind.to_be_bytes());
    frame
}

fn ipv4(src: u32, dst: u32, protocol: u8, wrapping: &Wrapping, body: &[u8]) -> Vec<u8> {
    let header = 20 + 4 * wrapping.options;
    let (ident, offset, more) = wrapping.fragment.unwrap_or_default();
    let mut packet = vec![0x40 | (header / 4) as u8, 0];
    packet.extend(((header + body.len()) as u16).to_be_bytes());
    packet.extend((ident as u16).to_be_bytes());
    packet.extend((u16::from(more) << 13 | offset).to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(src.to_be_bytes());
    packet.extend(dst.to_be_bytes());
    packet.resize(header, 1);
    let check = checksum(sum(&packet, 0));
    packet[10..12].copy_from_slice(&check);
    packet.extend(body);
    packet
}

fn ipv6(src: u128, dst: u128, protocol: u8, wrapping: &Wrapping, body: &[u8]) -> Vec<u8> {
    let mut chain: Vec<u8> = wrapping.extensions.clone();
    if wrapping.fragment.is_some() {
        chain.push(44);
    }
    let mut headers = Vec::new();
    for (at, kind) in chain.iter().enumerate() {
        let next = *chain.get(at + 1).unwrap_or(&protocol);
        match (kind, wrapping.fragment) {
            (44, Some((ident, offset, more))) if at + 1 == chain.len() => {
                headers.extend([next, 0]);
                headers.extend((offset << 3 | u16::from(more)).to_be_bytes());
                headers.extend(ident.to_be_bytes());
            }
            // An atomic one.
            (44, _) => headers.extend([next, 0, 0, 0, 0, 0, 0, 7]),
            // In words of four bytes, less two.
            (51, _) => headers.extend([next, 2, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 5, 5, 5, 5]),
            // In words of eight bytes, less one: padding.
            _ => headers.extend([next, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        }
    }
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(((headers.len() + body.len()) as u16).to_be_bytes());
    packet.extend([*chain.first().unwrap_or(&protocol), 64]);
    packet.extend(src.to_be_bytes());
    packet.extend(dst.to_be_bytes());
    packet.extend(headers);
    packet.extend(body);
    packet
}

fn wrap(addresses: Addresses, protocol: u8, wrapping: &Wrapping, body: &[u8]) -> Vec<u8> {
    let (kind, packet) = match addresses {
        Addresses::V4 { src, dst } => (0x0800, ipv4(src, dst, protocol, wrapping, body)),
        Addresses::V6 { src, dst } => (0x86dd, ipv6(src, dst, protocol, wrapping, body)),
    };
    let mut frame = ethernet(&wrapping.tags, kind);
    frame.extend(packet);
    frame
}

/// An answer of this flow. Of a later fragment, the wrapping's payload is all that is in it.
pub(crate) fn answer(tuple: &Tuple, wrapping: &Wrapping) -> Vec<u8> {
    let payload: Vec<u8> = (0..wrapping.payload).map(|i| i as u8).collect();
    if wrapping.fragment.is_some_and(|(_, offset, _)| offset > 0) {
        return wrap(tuple.addresses, 17, wrapping, &payload);
    }
    let mut body = Vec::new();
    body.extend(tuple.source_port.to_be_bytes());
    body.extend(tuple.destination_port.to_be_bytes());
    body.extend(((8 + payload.len()) as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    wrap(tuple.addresses, 17, wrapping, &body)
}

/// A plain answer of 60 bytes or, over IPv6, 78.
pub(crate) fn plain(tuple: &Tuple) -> Vec<u8> {
    answer(
        tuple,
        &Wrapping {
            payload: if matches!(tuple.addresses, Addresses::V4 { .. }) { 18 } else { 16 },
            ..Wrapping::default()
        },
    )
}

/// What the victim says when nobody there has asked.
pub(crate) fn unreachable(tuple: &Tuple) -> Vec<u8> {
    let mut inner = plain(tuple);
    inner.drain(..14);
    let (back, protocol, kind, pseudo) = match tuple.addresses {
        Addresses::V4 { src, dst } => (Addresses::V4 { src: dst, dst: src }, 1, [3, 3], 0),
        Addresses::V6 { src, dst } => {
            let pseudo = sum(&src.to_be_bytes(), sum(&dst.to_be_bytes(), 58 + 8 + inner.len() as u32));
            (Addresses::V6 { src: dst, dst: src }, 58, [1, 4], pseudo)
        }
    };
    let mut body = vec![kind[0], kind[1], 0, 0, 0, 0, 0, 0];
    body.extend(inner);
    let check = checksum(sum(&body, pseudo));
    body[2..4].copy_from_slice(&check);
    wrap(back, protocol, &Wrapping::default(), &body)
}
