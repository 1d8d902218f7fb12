//! Frames as flows see them.

use tidemill_flow::key::Key;
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, Protocol, ipv4, ipv6, ipv6_ext};

/// Words of an IPv4 flow's key, and of an IPv6 flow's.
pub(crate) const W4: usize = 2;
/// See [`W4`].
pub(crate) const W6: usize = 5;

/// A packet's flow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flow {
    V4(Key<W4>),
    V6(Key<W6>),
}

/// What a packet adds to its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adds {
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
}

/// Why a packet is in no flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    NotIp,
    Malformed,
}

/// The last word of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Of ICMP 0 and type and code.
    pub(crate) ports: (u16, u16),
    pub(crate) protocol: u8,
    pub(crate) class: u8,
    pub(crate) port: u16,
}

impl Tail {
    fn word(self) -> u64 {
        u64::from(self.ports.0) << 48
            | u64::from(self.ports.1) << 32
            | u64::from(self.port) << 16
            | u64::from(self.protocol) << 8
            | u64::from(self.class)
    }

    pub(crate) fn of(word: u64) -> Self {
        Tail {
            ports: ((word >> 48) as u16, (word >> 32) as u16),
            port: (word >> 16) as u16,
            protocol: (word >> 8) as u8,
            class: word as u8,
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_be_bytes(*two))
}

/// Ports, or of ICMP type and code, and TCP's flags; zeros of what is cut before them, and of later fragments (whose `body` is empty).
fn upper(protocol: Protocol, body: &[u8]) -> ((u16, u16), u16) {
    match protocol {
        Protocol::TCP => ((u16_at(body, 0), u16_at(body, 2)), u16_at(body, 12) & 0x0fff),
        Protocol::UDP | Protocol::SCTP => ((u16_at(body, 0), u16_at(body, 2)), 0),
        Protocol::ICMP | Protocol::ICMPV6 => ((0, u16_at(body, 0)), 0),
        _ => ((0, 0), 0),
    }
}

/// Reads a frame that `port` has received.
pub(crate) fn read(frame: &[u8], port: u16) -> Result<(Flow, Adds), Outside> {
    let l2 = L2::parse(frame).map_err(|_| Outside::NotIp)?;
    let ip = frame.get(l2.l3_offset..).unwrap_or_default();
    match l2.ethertype {
        EtherType::IPV4 => v4(ip, port),
        EtherType::IPV6 => v6(ip, port),
        _ => Err(Outside::NotIp),
    }
}

fn v4(ip: &[u8], port: u16) -> Result<(Flow, Adds), Outside> {
    ipv4::check_header(ip).map_err(|_| Outside::Malformed)?;
    let (protocol, bytes) = (ipv4::protocol(ip), ipv4::total_len(ip));
    let is_first = ipv4::fragment_offset(ip) == 0;
    let end = usize::from(bytes).min(ip.len());
    let body = ip.get(ipv4::header_len(ip)..end).filter(|_| is_first).unwrap_or_default();
    let (ports, flags) = upper(protocol, body);
    let tail = Tail { ports, protocol: protocol.0, class: ip[1], port };
    let ends = u64::from(ipv4::src_u32(ip)) << 32 | u64::from(ipv4::dst_u32(ip));
    Ok((Flow::V4(Key([ends, tail.word()])), Adds { bytes: bytes.into(), flags }))
}

fn v6(ip: &[u8], port: u16) -> Result<(Flow, Adds), Outside> {
    ipv6::check_header(ip).map_err(|_| Outside::Malformed)?;
    let length = ipv6::HEADER_LEN + usize::from(ipv6::payload_len(ip));
    // Where its headers lead nowhere, the first says what it is.
    let (protocol, body) = match ipv6_ext::walk(ip) {
        Ok(walk) => {
            let is_first = walk.fragment.is_none_or(|fragment| fragment.offset == 0);
            let body = ip.get(walk.upper_offset..length.min(ip.len())).filter(|_| is_first);
            (walk.upper, body.unwrap_or_default())
        }
        Err(_) => (ipv6::next_header(ip), [].as_slice()),
    };
    let (ports, flags) = upper(protocol, body);
    let class = (u16_at(ip, 0) >> 4) as u8;
    let tail = Tail { ports, protocol: protocol.0, class, port };
    let (source, destination) = (ipv6::src_u128(ip), ipv6::dst_u128(ip));
    let halves = [(source >> 64) as u64, source as u64, (destination >> 64) as u64, destination as u64];
    let [a, b, c, d] = halves;
    Ok((Flow::V6(Key([a, b, c, d, tail.word()])), Adds { bytes: length as u32, flags }))
}
