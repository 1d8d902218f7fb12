//! One line per packet, for traces and messages.

use crate::bytes::part;
use crate::vlan::L2;
use crate::{
    Error, EtherType, Protocol, arp, ethernet, icmpv4, icmpv6, ipip, ipv4, ipv6, ipv6_ext, ndisc, tcp, udp,
};
use std::fmt::{self, Formatter};

/// Headers within headers (tunnels, quoted packets) that are shown.
const MAX_DEPTH: usize = 4;

/// Displays an Ethernet frame in one line, whatever its bytes are:
///
/// ```
/// let frame = [0u8; 4];
/// assert_eq!(tidemill_wire::Summary(&frame).to_string(), "[ethernet: header at byte 0 needs 14 bytes, 4 present]");
/// ```
/// A whole one reads
/// `eth 02:00:00:00:00:01>02:00:00:00:00:02 vlan 7 ipv4 10.0.0.1 > 10.0.0.2 udp 53>1234 len 60 ttl 64`. What cannot be
/// read ends the line with the reason in brackets.
#[derive(Debug, Clone, Copy)]
pub struct Summary<'a>(pub &'a [u8]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let eth = match ethernet::Packet::new_checked(self.0) {
            Ok(eth) => eth,
            Err(error) => return write!(f, "[{error}]"),
        };
        write!(f, "eth {}>{}", eth.src(), eth.dst())?;
        let l2 = match L2::parse(self.0) {
            Ok(l2) => l2,
            Err(error) => return write!(f, " [{error}]"),
        };
        for (index, id) in l2.vlan_ids().enumerate() {
            write!(f, "{}{id}", if index == 0 { " vlan " } else { "/" })?;
        }
        f.write_str(" ")?;
        let data = part(self.0, l2.l3_offset, usize::MAX);
        match l2.ethertype {
            EtherType::IPV4 => v4(f, data, MAX_DEPTH),
            EtherType::IPV6 => v6(f, data, MAX_DEPTH),
            EtherType::ARP => arp(f, data),
            length if length.is_length() => write!(f, "802.3 len {}", length.0),
            other => write!(f, "{other} len {}", data.len()),
        }
    }
}

/// Displays an IP packet, without a link layer, as [`Summary`] does.
#[derive(Debug, Clone, Copy)]
pub struct IpSummary<'a>(pub &'a [u8]);

impl fmt::Display for IpSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        ip(f, self.0, MAX_DEPTH)
    }
}

fn why(f: &mut Formatter<'_>, error: &Error) -> fmt::Result {
    write!(f, "[{error}]")
}

fn arp(f: &mut Formatter<'_>, data: &[u8]) -> fmt::Result {
    let arp = match arp::Packet::new_checked(data) {
        Ok(arp) => arp,
        Err(error) => return why(f, &error),
    };
    match arp.operation() {
        arp::Operation::Request => write!(f, "arp who-has {} tell {}", arp.target_ip(), arp.sender_ip()),
        arp::Operation::Reply => write!(f, "arp {} is-at {}", arp.sender_ip(), arp.sender_mac()),
        arp::Operation::Other(other) => write!(f, "arp operation {other}"),
    }
}

fn ip(f: &mut Formatter<'_>, data: &[u8], depth: usize) -> fmt::Result {
    if ipv4::version(data) == 6 { v6(f, data, depth) } else { v4(f, data, depth) }
}

fn v4(f: &mut Formatter<'_>, data: &[u8], depth: usize) -> fmt::Result {
    let packet = match ipv4::Packet::new_header_checked(data) {
        Ok(packet) => packet,
        Err(error) => return why(f, &error),
    };
    write!(f, "ipv4 {} > {} ", packet.src(), packet.dst())?;
    if packet.is_fragment() {
        let more = if packet.more_fragments() { "+" } else { "" };
        write!(f, "frag {:#06x}@{}{more} ", packet.ident(), packet.fragment_offset())?;
    }
    if packet.fragment_offset() == 0 {
        upper(f, packet.protocol(), packet.payload(), depth)?;
    } else {
        write!(f, "{}", packet.protocol())?;
    }
    write!(f, " len {} ttl {}", packet.total_len(), packet.ttl())?;
    cut(f, packet.total_len().into(), data.len())
}

fn v6(f: &mut Formatter<'_>, data: &[u8], depth: usize) -> fmt::Result {
    let packet = match ipv6::Packet::new_header_checked(data) {
        Ok(packet) => packet,
        Err(error) => return why(f, &error),
    };
    write!(f, "ipv6 {} > {} ", packet.src(), packet.dst())?;
    let len = ipv6::HEADER_LEN + usize::from(packet.payload_len());
    match ipv6_ext::walk(data) {
        Err(error) => why(f, &error)?,
        Ok(walk) => {
            let fragment = walk.fragment.filter(|_| walk.is_fragment());
            if let Some(fragment) = fragment {
                let more = if fragment.more { "+" } else { "" };
                write!(f, "frag {:#010x}@{}{more} ", fragment.ident, fragment.offset)?;
            }
            if fragment.is_none_or(|fragment| fragment.offset == 0) {
                upper(f, walk.upper, part(data, walk.upper_offset, len), depth)?;
            } else {
                write!(f, "{}", walk.upper)?;
            }
        }
    }
    write!(f, " len {len} hops {}", packet.hop_limit())?;
    cut(f, len, data.len())
}

fn cut(f: &mut Formatter<'_>, len: usize, present: usize) -> fmt::Result {
    if len > present { write!(f, " [cut to {present}]") } else { Ok(()) }
}

fn upper(f: &mut Formatter<'_>, protocol: Protocol, data: &[u8], depth: usize) -> fmt::Result {
    match protocol {
        // Ports first: they can be told of a datagram or segment that was cut short, too.
        Protocol::UDP | Protocol::TCP if data.len() >= 4 => {
            let ports = udp::Packet::new_unchecked(data);
            write!(f, "{protocol} {}>{}", ports.src_port(), ports.dst_port())?;
            match tcp::Packet::new_checked(data) {
                Ok(tcp) if protocol == Protocol::TCP => {
                    write!(f, " {} seq {} ack {} win {}", tcp.flags(), tcp.seq(), tcp.ack(), tcp.window())
                }
                _ => Ok(()),
            }
        }
        Protocol::ICMP => icmp_v4(f, data, depth),
        Protocol::ICMPV6 => icmp_v6(f, data, depth),
        _ if ipip::classify(protocol).is_some() && depth > 0 => {
            f.write_str("(")?;
            ip(f, data, depth - 1)?;
            f.write_str(")")
        }
        _ => write!(f, "{protocol}"),
    }
}

fn icmp_v4(f: &mut Formatter<'_>, data: &[u8], depth: usize) -> fmt::Result {
    let packet = icmpv4::Packet::new_checked(data);
    let repr = match packet.and_then(|packet| icmpv4::Repr::parse(&packet)) {
        Ok(repr) => repr,
        Err(error) => return why(f, &error),
    };
    f.write_str("icmp ")?;
    match repr {
        icmpv4::Repr::EchoRequest { ident, seq } => return write!(f, "echo-request id {ident} seq {seq}"),
        icmpv4::Repr::EchoReply { ident, seq } => return write!(f, "echo-reply id {ident} seq {seq}"),
        icmpv4::Repr::DestUnreachable { code } => write!(f, "unreachable code {code}"),
        icmpv4::Repr::FragmentationNeeded { next_hop_mtu } => {
            write!(f, "fragmentation-needed mtu {next_hop_mtu}")
        }
        icmpv4::Repr::Redirect { code, gateway } => write!(f, "redirect code {code} to {gateway}"),
        icmpv4::Repr::TimeExceeded { code } => write!(f, "time-exceeded code {code}"),
        icmpv4::Repr::ParameterProblem { code, pointer } => {
            write!(f, "parameter-problem code {code} byte {pointer}")
        }
        icmpv4::Repr::Other { kind, code, .. } => write!(f, "type {kind} code {code}"),
    }?;
    let about = icmpv4::Packet::new_unchecked(data);
    if about.is_error() { quoted(f, about.payload(), depth) } else { Ok(()) }
}

fn icmp_v6(f: &mut Formatter<'_>, data: &[u8], depth: usize) -> fmt::Result {
    if let Ok(packet) = ndisc::Packet::new_checked(data) {
        return nd(f, &packet);
    }
    let packet = icmpv6::Packet::new_checked(data);
    let repr = match packet.and_then(|packet| icmpv6::Repr::parse(&packet)) {
        Ok(repr) => repr,
        Err(error) => return why(f, &error),
    };
    f.write_str("icmpv6 ")?;
    match repr {
        icmpv6::Repr::EchoRequest { ident, seq } => return write!(f, "echo-request id {ident} seq {seq}"),
        icmpv6::Repr::EchoReply { ident, seq } => return write!(f, "echo-reply id {ident} seq {seq}"),
        icmpv6::Repr::DestUnreachable { code } => write!(f, "unreachable code {code}"),
        icmpv6::Repr::PacketTooBig { mtu } => write!(f, "too-big mtu {mtu}"),
        icmpv6::Repr::TimeExceeded { code } => write!(f, "time-exceeded code {code}"),
        icmpv6::Repr::ParameterProblem { code, pointer } => {
            write!(f, "parameter-problem code {code} byte {pointer}")
        }
        icmpv6::Repr::Other { kind, code, .. } => write!(f, "type {kind} code {code}"),
    }?;
    let about = icmpv6::Packet::new_unchecked(data);
    if about.is_error() { quoted(f, about.payload(), depth) } else { Ok(()) }
}

fn nd<T: AsRef<[u8]>>(f: &mut Formatter<'_>, packet: &ndisc::Packet<T>) -> fmt::Result {
    match packet.message() {
        ndisc::Message::RouterSolicit => f.write_str("nd router-solicit")?,
        ndisc::Message::RouterAdvert { lifetime_s, .. } => {
            write!(f, "nd router-advert lifetime {lifetime_s}")?
        }
        ndisc::Message::NeighborSolicit { target } => write!(f, "nd who-has {target}")?,
        ndisc::Message::NeighborAdvert { target, .. } => write!(f, "nd {target} is here")?,
        ndisc::Message::Redirect { target, dst } => write!(f, "nd redirect {dst} to {target}")?,
    }
    for option in packet.options() {
        match option {
            Ok(ndisc::NdOption::SourceLinkLayer(mac)) => write!(f, " from {mac}")?,
            Ok(ndisc::NdOption::TargetLinkLayer(mac)) => write!(f, " at {mac}")?,
            Ok(ndisc::NdOption::Prefix(info)) => write!(f, " prefix {}/{}", info.prefix, info.prefix_len)?,
            Ok(ndisc::NdOption::Mtu(mtu)) => write!(f, " mtu {mtu}")?,
            Ok(_) => {}
            Err(error) => {
                f.write_str(" ")?;
                why(f, &error)?;
            }
        }
    }
    Ok(())
}

/// The packet that an ICMP error is about.
fn quoted(f: &mut Formatter<'_>, data: &[u8], depth: usize) -> fmt::Result {
    if depth == 0 || data.is_empty() {
        return Ok(());
    }
    f.write_str(" (")?;
    ip(f, data, depth - 1)?;
    f.write_str(")")
}
