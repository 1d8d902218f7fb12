//! What we answer to a packet that is addressed to us.

use super::extensions;
use crate::martian::{is_host_v4, is_host_v6};
use std::net::IpAddr;
use tidemill_burst::DropReason;
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::tcp::{self, Flags};
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, udp};

/// What to do with a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Send this.
    Reply(Reply),
    /// Tell the sender what is wrong; the second is the byte at fault (ICMPv6 parameter problem).
    Error(DropReason, u16),
    /// Nobody waits for an answer.
    Drop(DropReason),
}

/// A message that stands in the buffer of the packet that it answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) protocol: Protocol,
    /// Differentiated services code point, that of the request (RFC 1812 4.3.3.6).
    pub(super) dscp: u8,
    /// Where the message stands, from the IP header on.
    pub(super) at: usize,
    /// Bytes in the message.
    pub(super) len: usize,
}

impl Reply {
    /// Whether it stays on the link: a routing table knows nothing of such addresses.
    pub(super) fn stays_on_link(&self) -> bool {
        is_link_local(self.from) || is_link_local(self.to)
    }
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The answer to an IP packet that is no fragment. A reply overwrites the packet's payload.
pub(super) fn answer(ip: &mut [u8]) -> Answer {
    let answer = if ipv4::version(ip) == 4 { answer4(ip) } else { answer6(ip) };
    answer.unwrap_or(Answer::Drop(DropReason::LocalUnhandled))
}

/// Where the upper layer's message is, and what belongs to it.
struct Message {
    pseudo: Pseudo,
    protocol: Protocol,
    dscp: u8,
    at: usize,
    end: usize,
    /// The byte that names the protocol.
    name_at: usize,
}

fn answer4(ip: &mut [u8]) -> Option<Answer> {
    let packet = ipv4::Packet::new_checked(&*ip).ok()?;
    let (src, dst) = (packet.src(), packet.dst());
    if packet.is_fragment() || !is_host_v4(u32::from(src)) {
        return None;
    }
    let message = Message {
        pseudo: Pseudo::V4 { src, dst },
        protocol: packet.protocol(),
        dscp: packet.dscp(),
        at: packet.header_len(),
        end: usize::from(packet.total_len()),
        name_at: 9,
    };
    message.answer(ip)
}

fn answer6(ip: &mut [u8]) -> Option<Answer> {
    let packet = ipv6::Packet::new_checked(&*ip).ok()?;
    let (src, dst) = (packet.src(), packet.dst());
    let walk = ipv6_ext::walk(ip).ok()?;
    if walk.is_fragment() || !is_host_v6(u128::from(src)) {
        return None;
    }
    if let Some(refused) = extensions::refuse(ip, &walk) {
        return Some(refused);
    }
    let message = Message {
        pseudo: Pseudo::V6 { src, dst },
        protocol: walk.upper,
        dscp: packet.dscp(),
        at: walk.upper_offset,
        end: ipv6::HEADER_LEN + packet.payload().len(),
        name_at: walk.next_header_offset,
    };
    message.answer(ip)
}

impl Message {
    fn answer(self, ip: &mut [u8]) -> Option<Answer> {
        let bytes = ip.get_mut(self.at..self.end)?;
        let v4 = self.pseudo.src().is_ipv4();
        if self.checksum_ok(bytes) == Some(false) {
            return Some(Answer::Drop(DropReason::LocalBadChecksum));
        }
        let len = match self.protocol {
            Protocol::ICMP if v4 => echo4(bytes)?,
            Protocol::ICMPV6 if !v4 => echo6(bytes, &self.pseudo)?,
            Protocol::TCP => reset(bytes, &self.pseudo)?,
            Protocol::UDP => {
                udp::Packet::new_checked(&*bytes).ok()?;
                return Some(Answer::Error(DropReason::NoListener, 0));
            }
            Protocol::ICMP | Protocol::ICMPV6 | Protocol::NO_NEXT => return None,
            // RFC 1122 3.2.2.1, RFC 4443 3.4.
            _ => return Some(Answer::Error(DropReason::ProtocolUnknown, self.name_at as u16)),
        };
        let Message { pseudo, protocol, dscp, at, .. } = self;
        Some(Answer::Reply(Reply { from: pseudo.dst(), to: pseudo.src(), protocol, dscp, at, len }))
    }

    /// Whether the message's checksum is right; `None` if it has none, or is too short for one.
    fn checksum_ok(&self, bytes: &[u8]) -> Option<bool> {
        let (pseudo, v4) = (&self.pseudo, self.pseudo.src().is_ipv4());
        Some(match self.protocol {
            Protocol::ICMP if v4 => icmpv4::Packet::new_checked(bytes).ok()?.checksum_ok(),
            Protocol::ICMPV6 if !v4 => icmpv6::Packet::new_checked(bytes).ok()?.checksum_ok(pseudo),
            Protocol::TCP => tcp::Packet::new_checked(bytes).ok()?.checksum_ok(pseudo),
            Protocol::UDP => udp::Packet::new_checked(bytes).ok()?.checksum_ok(pseudo),
            _ => return None,
        })
    }
}

/// Makes an echo request, whose checksum is right, its reply (RFC 1812 4.3.3.6).
fn echo4(message: &mut [u8]) -> Option<usize> {
    let request = icmpv4::Packet::new_checked(&*message).ok()?;
    let icmpv4::Repr::EchoRequest { ident, seq } = icmpv4::Repr::parse(&request).ok()? else { return None };
    icmpv4::Repr::EchoReply { ident, seq }.emit(message).ok()?;
    Some(message.len())
}

/// As [`echo4`] (RFC 4443 4.2). The sum over both addresses does not change when they trade places.
fn echo6(message: &mut [u8], pseudo: &Pseudo) -> Option<usize> {
    let request = icmpv6::Packet::new_checked(&*message).ok()?;
    let icmpv6::Repr::EchoRequest { ident, seq } = icmpv6::Repr::parse(&request).ok()? else { return None };
    icmpv6::Repr::EchoReply { ident, seq }.emit(message, pseudo).ok()?;
    Some(message.len())
}

/// Makes a segment the reset that it causes where nobody listens (RFC 9293 3.10.7.1).
fn reset(message: &mut [u8], pseudo: &Pseudo) -> Option<usize> {
    let segment = tcp::Packet::new_checked(&*message).ok()?;
    let flags = segment.flags();
    if flags.contains(Flags::RST) {
        return None;
    }
    let counted = |flag| u32::from(flags.contains(flag));
    let len = segment.payload().len() as u32 + counted(Flags::SYN) + counted(Flags::FIN);
    let (seq, ack, flags) = if flags.contains(Flags::ACK) {
        (segment.ack(), 0, Flags::RST)
    } else {
        (0, segment.seq().wrapping_add(len), Flags::from_bits(Flags::RST.bits() | Flags::ACK.bits()))
    };
    let repr = tcp::Repr {
        src_port: segment.dst_port(),
        dst_port: segment.src_port(),
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
        options: tidemill_wire::OptionBytes::NONE,
    };
    repr.emit(message.get_mut(..tcp::HEADER_LEN)?, pseudo).ok()
}
