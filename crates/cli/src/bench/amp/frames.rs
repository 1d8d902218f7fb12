//! Packets of any number of flows, of one template: only what differs is written.
//!
//! ```text
//! flow i: source address + i (low 24 bits), destination port 1024 + i >> 24
//! ```
//!
//! Words that take up the difference (the IPv4 identification, the DNS transaction) keep every checksum as it was.

use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::checksum::{Pseudo, fold};
use tidemill_wire::{Protocol, ipv4, ipv6, udp};

/// An Ethernet header.
const ETHERNET: usize = 14;
/// A DNS header: the shortest response that there is.
const DNS: usize = 12;
/// The shortest frame, without frame check sequence: an IPv4 response is padded to it.
const LEN_V4: usize = 60;
/// A response over IPv6.
const LEN_V6: usize = ETHERNET + ipv6::HEADER_LEN + udp::HEADER_LEN + DNS;
/// The amplifiers' network; flows count up from here.
const SOURCE_V4: u32 = 0x0b00_0000;
/// The victim.
const VICTIM_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const VICTIM_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1);
/// The high 96 bits of amplifiers.
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0);
/// Flows before destination ports come round.
pub(super) const FLOWS: u64 = 60_000 << 24;

/// Frames of one kind.
#[derive(Debug, Clone)]
pub(super) struct Template {
    frame: Vec<u8>,
    v6: bool,
}

impl Template {
    /// The shortest UDP frames from `port`, of either family.
    pub(super) fn new(v6: bool, port: u16) -> Self {
        let headers = ETHERNET + if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN } + udp::HEADER_LEN;
        let mut frame = vec![0; (headers + DNS).max(LEN_V4)];
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        // Transaction, flags (response, recursion), counts of nothing: the transaction takes up the difference.
        frame[headers..headers + 4].copy_from_slice(&[0xff, 0xff, 0x81, 0x80]);
        let datagram = udp::HEADER_LEN + DNS;
        let (ethertype, pseudo): (u16, _) = if v6 {
            let header = ipv6::Repr::new(SOURCE_V6, VICTIM_V6, Protocol::UDP, datagram);
            // It fits: the frame was made for it.
            let _ = header.emit(&mut frame[ETHERNET..]);
            (0x86dd, Pseudo::V6 { src: SOURCE_V6, dst: VICTIM_V6 })
        } else {
            let src = Ipv4Addr::UNSPECIFIED;
            let header =
                ipv4::Repr { ident: 0xffff, ..ipv4::Repr::new(src, VICTIM_V4, Protocol::UDP, datagram) };
            let _ = header.emit(&mut frame[ETHERNET..]);
            (0x0800, Pseudo::V4 { src, dst: VICTIM_V4 })
        };
        frame[12..ETHERNET].copy_from_slice(&ethertype.to_be_bytes());
        let header = udp::Repr { src_port: port, dst_port: 0, payload_len: DNS };
        let _ = header.emit(&mut frame[headers - udp::HEADER_LEN..], &pseudo);
        Template { frame, v6 }
    }

    /// Bytes of a frame.
    pub(super) fn len(&self) -> usize {
        self.frame.len()
    }

    /// Writes the frame of a flow; `to` is as long as one, else nothing happens.
    #[inline(always)]
    pub(super) fn write(&self, flow: u64, to: &mut [u8]) {
        let low = (flow & 0xff_ffff) as u32;
        let port = 1024 + (flow >> 24) as u16;
        // Of a length that the compiler knows: a few moves.
        if self.v6 {
            let (Some(to), Some(from)) = (to.first_chunk_mut::<LEN_V6>(), self.frame.first_chunk()) else {
                return;
            };
            *to = *from;
            to[34..38].copy_from_slice(&low.to_be_bytes());
            to[56..58].copy_from_slice(&port.to_be_bytes());
            to[62..64].copy_from_slice(&takes_up(low, port));
        } else {
            let (Some(to), Some(from)) = (to.first_chunk_mut::<LEN_V4>(), self.frame.first_chunk()) else {
                return;
            };
            *to = *from;
            let source = SOURCE_V4 + low;
            to[18..20].copy_from_slice(&takes_up(source, 0));
            to[26..30].copy_from_slice(&source.to_be_bytes());
            to[36..38].copy_from_slice(&port.to_be_bytes());
            to[42..44].copy_from_slice(&takes_up(source, port));
        }
    }

    /// The frame of a flow.
    pub(super) fn frame(&self, flow: u64) -> Vec<u8> {
        let mut frame = self.frame.clone();
        self.write(flow, &mut frame);
        frame
    }
}

/// The word that makes a sum what it is for zeros.
#[inline]
fn takes_up(address: u32, port: u16) -> [u8; 2] {
    (!fold(u64::from(address) + u64::from(port))).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tidemill_wire::{Summary, flow_key, verify_checksums};

    #[test]
    fn every_flow_has_its_tuple_and_right_checksums() {
        for (v6, bytes) in [(false, 60), (true, 74)] {
            let template = Template::new(v6, 53);
            assert_eq!(template.len(), bytes);
            let flows = [0, 1, 2, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, 0x100_0001, FLOWS - 1];
            let keys: BTreeSet<_> = flows
                .map(|flow| {
                    let frame = template.frame(flow);
                    assert!(verify_checksums(&frame).is_ok(), "{}", Summary(&frame));
                    let key = flow_key(&frame, 14).unwrap();
                    assert_eq!(key.ports.unwrap().0, 53);
                    key
                })
                .into();
            assert_eq!(keys.len(), flows.len());
        }
    }
}
