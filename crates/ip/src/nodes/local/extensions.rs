//! What in the extension headers of an IPv6 packet to us is to be refused (RFC 8200 4.2, 4.4).
//!
//! * A routing header with segments left would have us forward the packet. We know no type of them, and type 0 is dead
//!   (RFC 5095): whatever the type, parameter problem, code 0, pointing at it.
//! * The top two bits of an option that we do not know say what is to be done: nothing (00), drop the packet (01), drop
//!   it and send a parameter problem, code 2, pointing at the option (10), the same unless the packet went to a group (11).
//!
//! Headers count in the order in which they stand. What a fragment hides is looked at when the packet is whole.

use super::answer::Answer;
use tidemill_burst::DropReason;
use tidemill_wire::ipv6_ext::{self, Ipv6Option, Walk};
use tidemill_wire::{Protocol, ipv6};

/// Why a packet is refused for its extension headers; `walk` is that of `ip`.
pub(super) fn refuse(ip: &[u8], walk: &Walk) -> Option<Answer> {
    let to_group = ipv6::Packet::new_checked(ip).ok()?.dst().is_multicast();
    let (mut at, mut kind) = (ipv6::HEADER_LEN, ipv6::next_header(ip));
    while at < walk.upper_offset {
        let bytes = ip.get(at..walk.upper_offset)?;
        let len = match kind {
            Protocol::FRAGMENT => ipv6_ext::FRAGMENT_LEN,
            Protocol::AH => (usize::from(*bytes.get(1)?) + 2) * 4,
            _ => {
                let header = ipv6_ext::Packet::new_checked(bytes).ok()?;
                let refused = match kind {
                    Protocol::ROUTING if header.segments_left() > 0 => {
                        Some(Answer::Error(DropReason::Ipv6RoutingHeader, at as u16 + 2))
                    }
                    Protocol::ROUTING => None,
                    _ => options(header.options(), at + 2, to_group),
                };
                if refused.is_some() {
                    return refused;
                }
                header.header_len()
            }
        };
        kind = Protocol(*bytes.first()?);
        at += len;
    }
    None
}

/// Why a packet is refused for its options, which begin at byte `at` of it.
fn options(options: ipv6_ext::Options<'_>, mut at: usize, to_group: bool) -> Option<Answer> {
    for option in options {
        let reason = DropReason::Ipv6OptionUnknown;
        at += match option {
            Ok(Ipv6Option::Pad(len)) => len,
            Ok(Ipv6Option::RouterAlert(_)) => 4,
            Ok(Ipv6Option::Other { kind, data }) => match kind >> 6 {
                0 => 2 + data.len(),
                1 => return Some(Answer::Drop(reason)),
                3 if to_group => return Some(Answer::Drop(reason)),
                _ => return Some(Answer::Error(reason, at as u16)),
            },
            // Beyond its header's end.
            Err(_) => return Some(Answer::Drop(DropReason::LocalUnhandled)),
        };
    }
    None
}

/// The byte at fault in the first fragment `ip` of a packet that is refused: there is one header more in it than in the
/// packet that was put together. `None` if it is not IPv6.
pub(super) fn fault_in_first(ip: &[u8]) -> Option<u16> {
    let walk = ipv6_ext::walk(ip).ok()?;
    match refuse(ip, &walk) {
        Some(Answer::Error(_, at)) => Some(at),
        _ => Some(walk.next_header_offset as u16),
    }
}
