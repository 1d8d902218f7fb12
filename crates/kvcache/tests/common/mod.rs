//! Frames made by hand, apart from the code that reads them; and a plain memcached.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // every test file uses a part of this module

pub mod memcached;
pub mod ports;
pub mod world;

use std::net::Ipv4Addr;

pub const SECOND: u64 = 1_000_000_000;
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
pub const PORT: u16 = 11211;
pub const ASK_PORT: u16 = 61211;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// The section, with what has no default.
pub fn section(toml: &str) -> tidemill_kvcache::KvcacheSection {
    let slots = if toml.contains("slots =") { "" } else { "slots = 1024" };
    let base = "addresses = ['10.0.0.9']\nallow = ['10.0.0.0/24']";
    let connections = if toml.contains("connections =") { "" } else { "connections = 16" };
    let text = format!("{base}\n{connections}\n{slots}\n{toml}");
    toml::from_str(&text).unwrap()
}

/// The Internet checksum, two bytes at a time.
pub fn checksum(data: &[u8]) -> u16 {
    let words =
        data.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An Ethernet frame with an IPv4 packet, its checksums right.
fn ip(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, transport: &[u8], check_at: usize) -> Vec<u8> {
    let mac = |address: Ipv4Addr| [2, 0, 0, 0, 0, address.octets()[3]];
    let mut frame = [&mac(dst)[..], &mac(src), &[8, 0]].concat();
    let mut header = vec![0x45, 0];
    header.extend(((20 + transport.len()) as u16).to_be_bytes());
    header.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
    header.extend(src.octets());
    header.extend(dst.octets());
    let sum = checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    let mut transport = transport.to_vec();
    let pseudo =
        [&src.octets()[..], &dst.octets(), &[0, protocol], &(transport.len() as u16).to_be_bytes()].concat();
    let sum = checksum(&[&pseudo[..], &transport].concat()).to_be_bytes();
    transport[check_at..check_at + 2].copy_from_slice(&sum);
    frame.extend(header);
    frame.extend(transport);
    frame
}

/// A datagram with memcached's frame header.
pub fn datagram(src: (Ipv4Addr, u16), dst: (Ipv4Addr, u16), id: u16, text: &[u8]) -> Vec<u8> {
    let header = [id, 0, 1, 0].map(u16::to_be_bytes).concat();
    udp(src, dst, &[&header, text].concat())
}

pub fn udp(src: (Ipv4Addr, u16), dst: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes = [src.1, dst.1, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    bytes.extend_from_slice(payload);
    ip(src.0, dst.0, 17, &bytes, 6)
}

pub fn segment(
    src: (Ipv4Addr, u16),
    dst: (Ipv4Addr, u16),
    seq: u32,
    ack: u32,
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    with_options(src, dst, seq, ack, flags, &[], data)
}

/// With so many options, a multiple of four bytes.
pub fn with_options(
    src: (Ipv4Addr, u16),
    dst: (Ipv4Addr, u16),
    seq: u32,
    ack: u32,
    flags: u8,
    options: &[u8],
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = [src.1, dst.1].map(u16::to_be_bytes).concat();
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([0x50 + 4 * options.len() as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(data);
    ip(src.0, dst.0, 6, &bytes, 16)
}

/// What a UDP frame says: from, to, the request's number, the text. Its checksums are right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub src: (Ipv4Addr, u16),
    pub dst: (Ipv4Addr, u16),
    pub id: u16,
    pub text: Vec<u8>,
}

pub fn read(frame: &[u8]) -> Read {
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    assert_eq!((&frame[12..15], frame[23]), (&[8, 0, 0x45][..], 17));
    assert_eq!(usize::from(port(16)), frame.len() - 14, "the packet's length is the frame's");
    assert_eq!(usize::from(port(38)), frame.len() - 34, "and so is the datagram's");
    assert_eq!(checksum(&frame[14..34]), 0, "IPv4 checksum");
    let pseudo = [&frame[26..34], &[0, 17], &frame[38..40], &frame[34..]].concat();
    assert_eq!(checksum(&pseudo), 0, "UDP checksum");
    assert_eq!((frame[5], frame[11]), (address(30).octets()[3], address(26).octets()[3]), "MAC addresses");
    Read {
        src: (address(26), port(34)),
        dst: (address(30), port(36)),
        id: port(42),
        text: frame[50..].to_vec(),
    }
}
