//! What ports need to know of the packets that pass: who talks to whom, and how to change the destination.

use crate::rng::mix;
use std::net::{IpAddr, Ipv6Addr};
use tidemill_wire::checksum;
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, ipv4, ipv6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// A hash of the two addresses of an Ethernet frame, the same in both directions; 0 if it carries no IP.
pub(crate) fn spread(frame: &[u8]) -> u64 {
    match L2::parse(frame) {
        Ok(l2) => spread_ip(&l2.ethertype.0.to_be_bytes(), &frame[l2.l3_offset..]),
        Err(_) => 0,
    }
}

/// [`spread`] for a network header behind this EtherType.
pub(crate) fn spread_ip(ethertype: &[u8], l3: &[u8]) -> u64 {
    let of = |address: u128| mix(address as u64 ^ mix((address >> 64) as u64));
    match ethertype {
        [0x08, 0x00] if l3.len() >= ipv4::HEADER_LEN => {
            of(ipv4::src_u32(l3).into()).wrapping_add(of(ipv4::dst_u32(l3).into()))
        }
        [0x86, 0xDD] if l3.len() >= ipv6::HEADER_LEN => {
            of(ipv6::src_u128(l3)).wrapping_add(of(ipv6::dst_u128(l3)))
        }
        _ => 0,
    }
}

/// Replaces the destination address of an Ethernet frame that carries IP by what `choose` makes of it, and brings the
/// checksums of the IPv4, TCP, UDP and ICMPv6 headers along (RFC 1624). Wrong checksums stay wrong. True if it did;
/// false, and nothing changed, if the frame carries no whole IP header, or `choose` has no address of that family.
pub fn rewrite_destination(frame: &mut [u8], choose: impl FnOnce(IpAddr) -> Option<IpAddr>) -> bool {
    let Ok(l2) = L2::parse(frame) else { return false };
    let l3 = &mut frame[l2.l3_offset..];
    match l2.ethertype {
        EtherType::IPV4 => rewrite_v4(l3, choose),
        EtherType::IPV6 => rewrite_v6(l3, choose),
        _ => false,
    }
}

fn rewrite_v4(l3: &mut [u8], choose: impl FnOnce(IpAddr) -> Option<IpAddr>) -> bool {
    if ipv4::check_header(l3).is_err() {
        return false;
    }
    let old = ipv4::dst_u32(l3);
    let Some(IpAddr::V4(new)) = choose(IpAddr::V4(old.into())) else { return false };
    let header_len = usize::from(l3[0] & 15) * 4;
    let first = (u16::from(l3[6]) << 8 | u16::from(l3[7])) & 0x1FFF == 0;
    // With a source route under way, the transport checksum is over the last hop, which stays.
    if first && !source_routed(&l3[20..header_len]) {
        let (protocol, end) = (l3[9], usize::from(ipv4::total_len(l3)).min(l3.len()));
        fix_transport(&mut l3[header_len..end], protocol, |check| {
            checksum::update_u32(check, old, new.to_bits())
        });
    }
    let check = u16::from_be_bytes([l3[10], l3[11]]);
    let check = checksum::update_u32(check, old, new.to_bits());
    l3[10..12].copy_from_slice(&check.to_be_bytes());
    l3[16..20].copy_from_slice(&new.octets());
    true
}

/// Whether IPv4 options hold a source route with hops left (RFC 791, 3.1).
fn source_routed(mut options: &[u8]) -> bool {
    loop {
        match options {
            [] | [0, ..] | [_] => return false,
            [1, rest @ ..] => options = rest,
            [131 | 137, len, pointer, ..] => return pointer <= len,
            [_, len, ..] if *len >= 2 => options = options.get(usize::from(*len)..).unwrap_or_default(),
            _ => return false,
        }
    }
}

fn rewrite_v6(l3: &mut [u8], choose: impl FnOnce(IpAddr) -> Option<IpAddr>) -> bool {
    if ipv6::check_header(l3).is_err() {
        return false;
    }
    let old = ipv6::dst_u128(l3);
    let Some(IpAddr::V6(new)) = choose(IpAddr::V6(Ipv6Addr::from_bits(old))) else { return false };
    if let Some((protocol, offset)) = transport_v6(l3) {
        let end = (ipv6::HEADER_LEN + usize::from(ipv6::payload_len(l3))).min(l3.len()).max(offset);
        fix_transport(&mut l3[offset..end], protocol, |check| {
            checksum::update_u128(check, old, new.to_bits())
        });
    }
    l3[24..40].copy_from_slice(&new.octets());
    true
}

/// The protocol behind the extension headers and where it begins; `None` in a later fragment, behind a routing header
/// that is not used up (the checksum is over the last hop), and where the packet is cut short.
fn transport_v6(l3: &[u8]) -> Option<(u8, usize)> {
    let (mut next, mut at) = (l3[6], ipv6::HEADER_LEN);
    // Each turn moves on by at least 8 bytes.
    loop {
        match next {
            // Hop-by-hop options, routing, destination options, mobility; authentication counts in words.
            0 | 43 | 60 | 135 => {
                let header = l3.get(at..at + 8)?;
                if next == 43 && header[3] != 0 {
                    return None;
                }
                (next, at) = (header[0], at + 8 + 8 * usize::from(header[1]));
            }
            51 => {
                let header = l3.get(at..at + 8)?;
                (next, at) = (header[0], at + 8 + 4 * usize::from(header[1]));
            }
            44 => {
                let header = l3.get(at..at + 8)?;
                if u16::from_be_bytes([header[2], header[3]]) & !7 != 0 {
                    return None;
                }
                (next, at) = (header[0], at + 8);
            }
            _ => return (at <= l3.len()).then_some((next, at)),
        }
    }
}

/// Updates the checksum of a transport header whose pseudo-header changed, if it has one and it was captured.
fn fix_transport(l4: &mut [u8], protocol: u8, update: impl FnOnce(u16) -> u16) {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        ICMPV6 => 2,
        _ => return,
    };
    let Some(&[a, b]) = l4.get(at..at + 2) else { return };
    let old = u16::from_be_bytes([a, b]);
    let new = update(old);
    let new = if protocol == UDP { checksum::for_udp(old, new) } else { new };
    l4[at..at + 2].copy_from_slice(&new.to_be_bytes());
}
