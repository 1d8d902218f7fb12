//! What the way to a Grantor takes beyond the next link: soft state for each Grantor (RFC 2003 5, RFC 2473 7).
//!
//! ```text
//! outer packet, may not be cut --> a router further on, its link too narrow --ICMP error, to us--> node path-mtu --> Path, for 10 minutes
//!                                                                                                                       |
//! the sender's next long packet --> encapsulate --> TooBig(what the way takes, less the outer header) --> ICMP error <--+
//! ```
//!
//! The error that comes is not handed through: what it quotes may be too short to find the inner sender in, and whoever forges one could have us write to
//! anybody. It changes this state only, and the sender is told about its next packet that is too long, which is real. So one packet
//! more is lost than if it were; who discovers a path's MTU sends again.
//!
//! What an error is believed (all that an off-path forger would have to know is in the first three):
//!
//! * It comes by the back, is whole, and its checksum is right.
//! * It quotes the start of a packet as we send them: from our address to a Grantor, IP in IP of its family, "don't fragment".
//! * We have sent this Grantor a packet that long in the last [`SENT_NS`], and it is longer than the MTU that is told.
//! * It lowers, never raises; not below [`Outer::LEAST_MTU`](super::Outer::LEAST_MTU): an MTU below that becomes that. IPv4: 576, IPv6: 1280.
//! * [`LIFETIME_NS`] after the last that said so the way is held for as wide as its first link again (RFC 1191 6.3, RFC 8201 4).
//! * A router that names no MTU (RFC 1191 5): the next of the usual ones below the packet's length.
//!
//! All workers share it: two words, written seldom. Costs: three loads for each Grantor of a burst; a comparison for each packet.

use super::Outer;
use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6};

/// How long what was told holds.
pub const LIFETIME_NS: u64 = 600_000_000_000;
/// How long an error may be under way after the packet that it is about.
pub const SENT_NS: u64 = 10_000_000_000;
/// A length that is sent all the time is noted again after so long.
const AGAIN_NS: u64 = 1_000_000_000;

/// Times are kept in units of 2^20 ns (1 ms).
const TICK: u32 = 20;
const LENGTH_AT: u32 = 48;
const TICKS: u64 = (1 << LENGTH_AT) - 1;

/// A length and a time in a word; 0 is nothing.
fn word(length: u16, at_ns: u64) -> u64 {
    u64::from(length) << LENGTH_AT | at_ns >> TICK & TICKS
}

/// The length of a word that is at most `most_ns` old.
fn young(word: u64, now_ns: u64, most_ns: u64) -> Option<u16> {
    let age = (now_ns >> TICK).saturating_sub(word & TICKS);
    (word != 0 && age <= most_ns >> TICK).then_some((word >> LENGTH_AT) as u16)
}

/// What became of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The way is narrower than we knew.
    Lowered,
    /// We knew it, or know a narrower place.
    Known,
    /// It cannot be true, or asks for less than we go down to.
    Refused,
}

/// The way to one Grantor.
#[derive(Debug, Default)]
pub struct Path {
    /// What it takes, and since when we know.
    mtu: AtomicU64,
    /// The longest packet that was sent lately, and when.
    sent: AtomicU64,
}

impl Path {
    /// The longest packet that the way takes, as far as we have been told; `u16::MAX` if we have not.
    #[inline]
    pub fn mtu(&self, now_ns: u64) -> u16 {
        young(self.mtu.load(Ordering::Relaxed), now_ns, LIFETIME_NS).unwrap_or(u16::MAX)
    }

    /// Packets longer than this are to be [noted](Self::note); asked once per burst.
    #[inline]
    pub fn bar(&self, now_ns: u64) -> u16 {
        let sent = self.sent.load(Ordering::Relaxed);
        match (young(sent, now_ns, AGAIN_NS), young(sent, now_ns, SENT_NS)) {
            (Some(length), _) => length,
            (None, Some(length)) => length.saturating_sub(1),
            (None, None) => 0,
        }
    }

    /// A packet of this length, with its outer header, has been sent.
    #[cold]
    pub fn note(&self, now_ns: u64, length: u16) {
        let longer = |sent| {
            let most = young(sent, now_ns, SENT_NS).unwrap_or(0);
            (length >= most).then(|| word(length, now_ns))
        };
        let _ = self.sent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, longer);
    }

    /// An error has come: a packet of `length` did not fit into `mtu`; 0: it was not said into what. We go down to `least`.
    pub fn hear(&self, now_ns: u64, length: u16, mtu: u16, least: u16) -> Heard {
        let sent = young(self.sent.load(Ordering::Relaxed), now_ns, SENT_NS);
        let mtu = if mtu == 0 { usual(length) } else { mtu }.max(least);
        if mtu >= length || sent.is_none_or(|sent| length > sent) {
            return Heard::Refused;
        }
        let mut heard = Heard::Known;
        let lower = |known| {
            let before = young(known, now_ns, LIFETIME_NS).unwrap_or(u16::MAX);
            heard = if mtu < before { Heard::Lowered } else { Heard::Known };
            (mtu <= before).then(|| word(mtu, now_ns))
        };
        let _ = self.mtu.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        heard
    }
}

/// The longest MTU in use that is less than a packet's length (RFC 1191 7.1).
fn usual(length: u16) -> u16 {
    const USUAL: [u16; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508];
    USUAL.into_iter().find(|mtu| *mtu < length).unwrap_or(68)
}

/// An ICMP error that says that a packet from `source` to `destination` was too big.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig<A> {
    /// Where the packet came from.
    pub source: A,
    /// Where it went.
    pub destination: A,
    /// Its length.
    pub length: u16,
    /// What would have fit; 0: not said.
    pub mtu: u16,
}

/// Of a packet to us, from its IPv4 header on; none if it is anything else, or quotes anything but a tunnel's packet.
pub(super) fn read4(ip: &[u8]) -> Option<TooBig<u32>> {
    ipv4::check(ip).ok().filter(|()| !ipv4::is_fragment(ip) && ipv4::protocol(ip) == Protocol::ICMP)?;
    let message = ip.get(ipv4::header_len(ip)..usize::from(ipv4::total_len(ip)))?;
    let error = icmpv4::Packet::new_checked(message).ok()?;
    let told = (error.kind(), error.code());
    if told != (icmpv4::kind::DEST_UNREACHABLE, icmpv4::code::UNREACHABLE_FRAGMENTATION_NEEDED) {
        return None;
    }
    let quote = error.payload().first_chunk::<{ ipv4::HEADER_LEN }>()?;
    let ours = quote[0] == 0x45
        && ipv4::protocol(quote) == Protocol::IPV4
        && ipv4::dont_fragment(quote)
        && !ipv4::is_fragment(quote);
    let [_, _, high, low] = error.rest();
    (ours && error.checksum_ok()).then(|| TooBig {
        source: ipv4::src_u32(quote),
        destination: ipv4::dst_u32(quote),
        length: ipv4::total_len(quote),
        mtu: u16::from_be_bytes([high, low]),
    })
}

/// The same of IPv6. A packet that we have cut ([`super::long`]) is a tunnel's, too.
pub(super) fn read6(ip: &[u8]) -> Option<TooBig<u128>> {
    ipv6::check(ip).ok().filter(|()| ipv6::next_header(ip) == Protocol::ICMPV6)?;
    let packet = ipv6::Packet::new_unchecked(ip);
    let error = icmpv6::Packet::new_checked(packet.payload()).ok()?;
    if error.kind() != icmpv6::kind::PACKET_TOO_BIG {
        return None;
    }
    let quote = error.payload().first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let ours =
        ipv6::version(quote) == 6 && matches!(ipv6::next_header(quote), Protocol::IPV6 | Protocol::FRAGMENT);
    let pseudo = Pseudo::V6 { src: packet.src(), dst: packet.dst() };
    (ours && error.checksum_ok(&pseudo)).then(|| TooBig {
        source: ipv6::src_u128(quote),
        destination: ipv6::dst_u128(quote),
        length: ipv6::payload_len(quote).saturating_add(ipv6::HEADER_LEN as u16),
        // It has to say one (RFC 4443 3.2); what is more than any link's means nothing.
        mtu: u16::try_from(u32::from_be_bytes(error.rest())).unwrap_or(u16::MAX).max(1),
    })
}

/// What such an error, from its IP header on, changes of these tunnels. None if it is about none of our packets at all.
pub fn hear<A: Outer>(now_ns: u64, endpoints: &[super::Endpoint<A>], error: &TooBig<A>) -> Option<Heard> {
    let about =
        |end: &&super::Endpoint<A>| end.grantor() == error.destination && end.source() == error.source;
    let path = endpoints.iter().find(about)?.path();
    Some(path.hear(now_ns, error.length, error.mtu, A::LEAST_MTU))
}

#[cfg(test)]
pub(crate) mod tests;
