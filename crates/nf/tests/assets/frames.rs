//! Frames that hosts send.

use etherparse::{PacketBuilder, TcpOptionElement};
use std::net::IpAddr;

pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 6];

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn builder(from: IpAddr, to: IpAddr, ttl: u8) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
    let link = PacketBuilder::ethernet2(MAC, OTHER);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from.octets(), to.octets(), ttl),
        (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from.octets(), to.octets(), ttl),
        _ => panic!("of one family"),
    }
}

pub(crate) fn udp(from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    builder(from.0, to.0, 64).udp(from.1, to.1).write(&mut frame, payload).unwrap();
    frame
}

/// A segment of a connection that is open.
pub(crate) fn data(from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    builder(from.0, to.0, 64).tcp(from.1, to.1, 7, 500).ack(9).write(&mut frame, payload).unwrap();
    frame
}

/// What Linux 6 begins a connection with, or answers with, over a way of some routers.
pub(crate) fn handshake(from: (IpAddr, u16), to: (IpAddr, u16), answer: bool, ttl: u8) -> Vec<u8> {
    let window = if answer { 65160 } else { 64240 };
    let options = [
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Timestamp(1, 0),
        TcpOptionElement::Noop,
        TcpOptionElement::WindowScale(7),
    ];
    let step = builder(from.0, to.0, ttl).tcp(from.1, to.1, 7, window).options(&options).unwrap().syn();
    let step = if answer { step.ack(8) } else { step };
    let mut frame = Vec::new();
    step.write(&mut frame, &[]).unwrap();
    if from.0.is_ipv4() {
        frame[20] |= 0x40; // DF; nobody here looks at the header's checksum
    }
    frame
}

pub(crate) fn arp(mac: [u8; 6], from: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(mac);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(mac);
    frame.extend(from);
    frame.extend([0; 6]);
    frame.extend([10, 0, 0, 1]);
    frame
}

/// A DHCP message: `op`, what it is, the client's address or the one that it gets, its name.
pub(crate) fn dhcp(op: u8, kind: u8, mac: [u8; 6], address: [u8; 4], name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 240];
    bytes[..3].copy_from_slice(&[op, 1, 6]);
    let at = if op == 1 { 12 } else { 16 };
    bytes[at..at + 4].copy_from_slice(&address);
    bytes[28..34].copy_from_slice(&mac);
    bytes[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    bytes.extend([53, 1, kind]);
    if !name.is_empty() {
        bytes.extend([12, name.len() as u8]);
        bytes.extend(name);
        bytes.extend([60, 8]);
        bytes.extend(b"MSFT 5.0");
        bytes.extend([55, 3, 1, 3, 6]);
    }
    bytes.push(255);
    let (from, to) = match op {
        1 => ((ip("0.0.0.0"), 68), (ip("255.255.255.255"), 67)),
        _ => ((ip("10.0.0.1"), 67), (ip("255.255.255.255"), 68)),
    };
    udp(from, to, &bytes)
}
