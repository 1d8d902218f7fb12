//! Frames of TCP, as short as those of UDP, and frames of any two ends.

use crate::bench::ends::{self, FRAME};
use anyhow::{Context as _, Result};
use std::net::Ipv4Addr;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::tcp::{self, Flags};
use tidemill_wire::{OptionBytes, Protocol, ipv4, udp};

const IP: usize = 14;
const UPPER: usize = IP + ipv4::HEADER_LEN;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const IDENT: usize = IP + 4;
const ADDRESSES: [usize; 2] = [IP + 12, IP + 16];
const SEQ: usize = UPPER + 4;
const ACK: usize = UPPER + 8;
const URGENT: usize = UPPER + 18;

/// Who sends, and to whom.
pub(super) type Ends = [(Ipv4Addr, u16); 2];

/// What IP carries is for the caller, of this length; behind it are zeros.
fn carrying(ends: Ends, protocol: Protocol, length: usize, ident: u16) -> Result<([u8; FRAME], Pseudo)> {
    let [(src, _), (dst, _)] = ends;
    let mut frame = ends::frame(dst)?;
    frame[IP..].fill(0);
    let header = ipv4::Repr { ident, ..ipv4::Repr::new(src, dst, protocol, length) };
    header.emit(&mut frame[IP..]).context("the frame")?;
    Ok((frame, Pseudo::V4 { src, dst }))
}

/// A datagram without data.
pub(super) fn datagram(ends: Ends) -> Result<[u8; FRAME]> {
    let (mut frame, pseudo) = carrying(ends, Protocol::UDP, UDP_HEADER, 0)?;
    let header = udp::Repr { src_port: ends[0].1, dst_port: ends[1].1, payload_len: 0 };
    header.emit(&mut frame[UPPER..UPPER + UDP_HEADER], &pseudo).context("the frame")?;
    Ok(frame)
}

/// A segment without data; identification and urgent pointer, which nobody looks at, have `spare`.
pub(super) fn segment(ends: Ends, flags: Flags, spare: u16) -> Result<[u8; FRAME]> {
    let (mut frame, pseudo) = carrying(ends, Protocol::TCP, TCP_HEADER, spare)?;
    let ack = if flags.contains(Flags::ACK) { 2_000_000 } else { 0 };
    let header = tcp::Repr {
        src_port: ends[0].1,
        dst_port: ends[1].1,
        seq: 1_000_000,
        ack,
        flags,
        window: 0xffff,
        urgent: spare,
        options: OptionBytes::NONE,
    };
    header.emit(&mut frame[UPPER..UPPER + TCP_HEADER], &pseudo).context("the frame")?;
    Ok(frame)
}

/// Has the urgent pointer take up another source, as the identification does ([`ends::write`]), so that one checksum is right for all.
#[inline(always)]
pub(super) fn take_up(segment: &mut [u8; FRAME]) {
    segment.copy_within(IDENT..IDENT + 2, URGENT);
}

/// Turns a packet round, but for its ports: checksums do not mind.
pub(super) fn turn(bytes: &mut [u8; FRAME]) {
    let [source, destination] = ADDRESSES;
    swap4(bytes, source, destination);
}

/// Likewise a segment's numbers.
pub(super) fn turn_numbers(segment: &mut [u8; FRAME]) {
    swap4(segment, SEQ, ACK);
}

fn swap4(bytes: &mut [u8; FRAME], one: usize, other: usize) {
    for i in 0..4 {
        bytes.swap(one + i, other + i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ends::{DESTINATION, source, write};
    use tidemill_burst::Memory;
    use tidemill_wire::verify_checksums;

    #[test]
    fn one_segment_is_right_for_all_sources_both_ways() {
        let mut pool = Memory::new(16, 2048).unwrap().pool(16).unwrap();
        let mut packet = pool.take().unwrap();
        let ends = [(Ipv4Addr::UNSPECIFIED, 12_345), (DESTINATION, 80)];
        let frame = segment(ends, Flags::ACK, 0xffff).unwrap();
        for n in (0..1000).chain([0xffff, 0x1_0000, u32::MAX]) {
            write(&frame, source(n), &mut packet);
            let bytes = packet.data_mut().first_chunk_mut::<FRAME>().unwrap();
            take_up(bytes);
            assert_eq!(bytes[ADDRESSES[0]..ADDRESSES[1]], source(n).to_be_bytes());
            verify_checksums(&bytes[..]).unwrap();
            turn(bytes);
            turn_numbers(bytes);
            assert_eq!(bytes[ADDRESSES[0]..ADDRESSES[1]], DESTINATION.octets());
            assert_eq!(bytes[SEQ..ACK], 2_000_000_u32.to_be_bytes());
            verify_checksums(&bytes[..]).unwrap();
        }
        pool.free(packet);
    }

    #[test]
    fn frames_of_any_ends_are_right() {
        let ends = [(Ipv4Addr::new(10, 1, 2, 3), 7), (Ipv4Addr::new(192, 0, 2, 99), 53)];
        for frame in [datagram(ends).unwrap(), segment(ends, Flags::SYN, 0).unwrap()] {
            verify_checksums(&frame).unwrap();
            assert_eq!(frame[ADDRESSES[0]..UPPER], [10, 1, 2, 3, 192, 0, 2, 99]);
            assert_eq!(frame[UPPER..UPPER + 4], [0, 7, 0, 53]);
        }
    }
}
