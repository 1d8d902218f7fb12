//! What a host says to a UDP packet for a port that nobody listens on.

use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6};

/// An IPv4 error has 576 bytes at most (RFC 1812, 4.3.2.3): with a header without options so much of the packet.
const MOST_V4: usize = 576 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
/// An IPv6 error has 1280 bytes at most (RFC 4443, 2.4).
const MOST_V6: usize = 1280 - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;
/// An Ethernet header.
const ETHERNET: usize = 14;

/// The frame with the ICMP port-unreachable message about an IP packet, from its receiver to its sender, as Linux words it. `None` if it is
/// no IP packet.
pub(crate) fn port_unreachable(ip: &[u8]) -> Option<Vec<u8>> {
    match ipv4::version(ip) {
        4 => {
            ipv4::check_header(ip).ok()?;
            let (src, dst) = (Ipv4Addr::from(ipv4::dst_u32(ip)), Ipv4Addr::from(ipv4::src_u32(ip)));
            let quoted = &ip[..ip.len().min(MOST_V4)];
            let mut frame = frame(0x0800, ipv4::HEADER_LEN + icmpv4::HEADER_LEN, quoted);
            let header = ipv4::Repr::new(src, dst, Protocol::ICMP, icmpv4::HEADER_LEN + quoted.len());
            header.emit(&mut frame[ETHERNET..]).ok()?;
            let message = icmpv4::Repr::DestUnreachable { code: icmpv4::code::UNREACHABLE_PORT };
            message.emit(&mut frame[ETHERNET + ipv4::HEADER_LEN..]).ok()?;
            Some(frame)
        }
        6 => {
            ipv6::check_header(ip).ok()?;
            let (src, dst) = (Ipv6Addr::from(ipv6::dst_u128(ip)), Ipv6Addr::from(ipv6::src_u128(ip)));
            let quoted = &ip[..ip.len().min(MOST_V6)];
            let mut frame = frame(0x86dd, ipv6::HEADER_LEN + icmpv6::HEADER_LEN, quoted);
            let header = ipv6::Repr::new(src, dst, Protocol::ICMPV6, icmpv6::HEADER_LEN + quoted.len());
            header.emit(&mut frame[ETHERNET..]).ok()?;
            let message = icmpv6::Repr::DestUnreachable { code: icmpv6::code::UNREACHABLE_PORT };
            message.emit(&mut frame[ETHERNET + ipv6::HEADER_LEN..], &Pseudo::V6 { src, dst }).ok()?;
            Some(frame)
        }
        _ => None,
    }
}

/// A frame with room for headers, and what is behind them.
fn frame(ethertype: u16, headers: usize, quoted: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET + headers];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..ETHERNET].copy_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(quoted);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_wire::{Summary, verify_checksums};

    #[test]
    fn it_goes_back_and_quotes_the_packet() {
        let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 9));
        let mut packet = vec![0; 1000];
        ipv4::Repr::new(a, b, Protocol::UDP, 980).emit(&mut packet).unwrap();
        let frame = port_unreachable(&packet).unwrap();
        let text = Summary(&frame).to_string();
        assert!(text.contains("198.51.100.9 > 192.0.2.1") && frame.len() == 14 + 576, "{text}");
        assert!(verify_checksums(&frame).is_ok());

        let (a, b): (Ipv6Addr, Ipv6Addr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut packet = vec![0; 60];
        ipv6::Repr::new(a, b, Protocol::UDP, 20).emit(&mut packet).unwrap();
        let frame = port_unreachable(&packet).unwrap();
        let text = Summary(&frame).to_string();
        assert!(text.contains("2001:db8::2 > 2001:db8::1") && frame.len() == 14 + 48 + 60, "{text}");
        assert!(verify_checksums(&frame).is_ok());
        assert_eq!((port_unreachable(&[]), port_unreachable(&[0x45, 0])), (None, None));
    }
}
