//! Frames made by hand, apart from the code that reads them; ports in memory.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // every test file uses a part of this module

pub mod conversations;
pub mod oracle;
pub mod ports;

use std::net::IpAddr;
use tidemill_amp::{Counter, Mitigator, MitigatorSection, Settings, Side};

pub const SECOND: u64 = 1_000_000_000;

/// A conversation: an amplifier (or a server), who asks it (or does not), and their ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    pub amplifier: IpAddr,
    pub victim: IpAddr,
    pub port: u16,
    pub victim_port: u16,
}

impl Flow {
    pub fn new(amplifier: &str, victim: &str, port: u16, victim_port: u16) -> Self {
        Flow { amplifier: amplifier.parse().unwrap(), victim: victim.parse().unwrap(), port, victim_port }
    }

    pub fn v4() -> Self {
        Flow::new("8.8.8.8", "10.0.0.1", 53, 40_000)
    }

    pub fn v6() -> Self {
        Flow::new("2001:db8::53", "fd00::1", 53, 40_000)
    }

    /// The answer as an IP packet, and all that can be unusual about it.
    pub fn answer(&self) -> Vec<u8> {
        ip(self.amplifier, self.victim, 17, &udp(self.port, self.victim_port, &[0; 20]), &Ip::default())
    }

    pub fn query(&self) -> Vec<u8> {
        ip(self.victim, self.amplifier, 17, &udp(self.victim_port, self.port, &[0; 9]), &Ip::default())
    }

    /// What the victim's host says about the answer.
    pub fn complaint(&self) -> Vec<u8> {
        let quoted = self.answer();
        let quoted = &quoted[..quoted.len().min(if self.victim.is_ipv4() { 28 } else { 1232 })];
        unreachable(self.victim, self.amplifier, quoted)
    }
}

/// What can be unusual about an IP packet.
#[derive(Debug, Clone, Default)]
pub struct Ip {
    pub ident: u32,
    /// Offset in bytes, and whether more follow.
    pub fragment: Option<(u16, bool)>,
    /// Words of IPv4 options; IPv6 destination options, as many headers of 8 bytes.
    pub extra: usize,
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
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

pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [source, destination, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    bytes.extend_from_slice(payload);
    bytes
}

pub fn ip(src: IpAddr, dst: IpAddr, protocol: u8, payload: &[u8], how: &Ip) -> Vec<u8> {
    let (offset, more) = how.fragment.unwrap_or_default();
    let mut bytes = Vec::new();
    if src.is_ipv4() {
        let header = 20 + 4 * how.extra;
        bytes.extend([0x40 | (header / 4) as u8, 0]);
        bytes.extend(((header + payload.len()) as u16).to_be_bytes());
        bytes.extend((how.ident as u16).to_be_bytes());
        bytes.extend(((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
        bytes.extend([64, protocol, 0, 0]);
        bytes.extend(octets(src));
        bytes.extend(octets(dst));
        bytes.extend(vec![1; 4 * how.extra]);
        let sum = checksum(&bytes).to_be_bytes();
        bytes[10..12].copy_from_slice(&sum);
    } else {
        let fragment = 8 * usize::from(how.fragment.is_some());
        let mut chain: Vec<u8> = vec![60; how.extra];
        chain.extend(how.fragment.map(|_| 44));
        chain.push(protocol);
        bytes.extend([0x60, 0, 0, 0]);
        bytes.extend(((payload.len() + 8 * how.extra + fragment) as u16).to_be_bytes());
        bytes.extend([chain[0], 64]);
        bytes.extend(octets(src));
        bytes.extend(octets(dst));
        for next in 0..how.extra {
            bytes.extend([chain[next + 1], 0, 1, 4, 0, 0, 0, 0]);
        }
        if how.fragment.is_some() {
            bytes.extend([protocol, 0]);
            bytes.extend((offset | u16::from(more)).to_be_bytes());
            bytes.extend(how.ident.to_be_bytes());
        }
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// A port unreachable message's own bytes, with the right checksum.
pub fn message(src: IpAddr, dst: IpAddr, quoted: &[u8]) -> Vec<u8> {
    let v4 = src.is_ipv4();
    let mut bytes = if v4 { vec![3, 3, 0, 0, 0, 0, 0, 0] } else { vec![1, 4, 0, 0, 0, 0, 0, 0] };
    bytes.extend_from_slice(quoted);
    seal(src, dst, &mut bytes);
    bytes
}

/// Makes the checksum of an ICMP message right.
pub fn seal(src: IpAddr, dst: IpAddr, message: &mut [u8]) {
    message[2..4].fill(0);
    let mut summed = Vec::new();
    if src.is_ipv6() {
        summed.extend(octets(src));
        summed.extend(octets(dst));
        summed.extend((message.len() as u32).to_be_bytes());
        summed.extend([0, 0, 0, 58]);
    }
    summed.extend_from_slice(message);
    let sum = checksum(&summed).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
}

/// A port unreachable as an IP packet.
pub fn unreachable(src: IpAddr, dst: IpAddr, quoted: &[u8]) -> Vec<u8> {
    let protocol = if src.is_ipv4() { 1 } else { 58 };
    ip(src, dst, protocol, &message(src, dst, quoted), &Ip::default())
}

/// A frame with so many VLAN tags around an IP packet.
pub fn frame(packet: &[u8], tags: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in 0..tags {
        bytes.extend(if tag + 1 < tags { [0x88, 0xa8] } else { [0x81, 0x00] });
        bytes.extend([0, 10 + tag as u8]);
    }
    bytes.extend(if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    bytes.extend_from_slice(packet);
    // Ethernet's padding.
    let least = bytes.len().max(60);
    bytes.resize(least, 0);
    bytes
}

pub fn section(toml: &str) -> MitigatorSection {
    toml::from_str(toml).unwrap()
}

/// A mitigator without a graph, and its time.
pub struct Lone {
    pub mitigator: Mitigator,
    pub settings: Settings,
    pub now_ns: u64,
}

impl Lone {
    pub fn new(toml: &str) -> Self {
        let section = section(toml);
        Lone {
            mitigator: Mitigator::new(section.entries.min(1 << 16), 7).unwrap(),
            settings: Settings::new(&section).unwrap(),
            now_ns: 1000 * SECOND,
        }
    }

    /// Which frames of a burst are dropped.
    pub fn burst(&mut self, frames: &[(Side, Vec<u8>)]) -> Vec<bool> {
        let mut dropped = vec![false; frames.len()];
        self.mitigator.decide(
            &self.settings,
            self.now_ns,
            frames,
            |(side, bytes)| (*side, &bytes[..]),
            |at| assert!(!std::mem::replace(&mut dropped[at], true), "{at} dropped twice"),
        );
        self.mitigator.tick(&self.settings, self.now_ns);
        dropped
    }

    /// Whether this IP packet would be dropped, which comes now.
    pub fn drops(&mut self, side: Side, packet: &[u8]) -> bool {
        self.burst(&[(side, frame(packet, 0))])[0]
    }

    pub fn answer(&mut self, flow: &Flow) -> bool {
        self.drops(Side::Outside, &flow.answer())
    }

    pub fn query(&mut self, flow: &Flow) {
        assert!(!self.drops(Side::Inside, &flow.query()), "what goes out goes out");
    }

    pub fn complain(&mut self, flow: &Flow) {
        assert!(!self.drops(Side::Inside, &flow.complaint()), "what goes out goes out");
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now_ns += seconds * SECOND;
        self.mitigator.tick(&self.settings, self.now_ns);
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.mitigator.counters().get(counter)
    }
}
