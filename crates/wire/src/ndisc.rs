//! IPv6 neighbor discovery (RFC 4861): solicitations, advertisements and redirects of routers and neighbors.
//!
//! A message is a whole ICMPv6 message, checksum included. A receiver must also see that the hop limit is 255, which
//! proves that no router forwarded it (section 7.1).

use crate::bytes::{array, need, part, put, put_u8, put_u16, put_u32, room, u8_at, u16_at, u32_at, view};
use crate::checksum::Pseudo;
use crate::icmpv6::{self, kind};
use crate::{Error, MacAddr};
use std::net::Ipv6Addr;

mod field {
    pub(super) const TYPE: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const RA_HOP_LIMIT: usize = 4;
    pub(super) const RA_FLAGS: usize = 5;
    pub(super) const RA_LIFETIME: usize = 6;
    pub(super) const RA_REACHABLE: usize = 8;
    pub(super) const RA_RETRANS: usize = 12;
    pub(super) const NA_FLAGS: usize = 4;
    pub(super) const TARGET: usize = 8;
    pub(super) const REDIRECT_DST: usize = 24;
}

/// The hop limit that every message must have.
pub const HOP_LIMIT: u8 = 255;

const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Bytes before the options.
fn fixed_len(message_kind: u8) -> Option<usize> {
    match message_kind {
        kind::ROUTER_SOLICIT => Some(8),
        kind::ROUTER_ADVERT => Some(16),
        kind::NEIGHBOR_SOLICIT | kind::NEIGHBOR_ADVERT => Some(24),
        kind::REDIRECT => Some(40),
        _ => None,
    }
}

/// The check behind [`Packet::new_checked`]: a type of neighbor discovery, code 0, whole up to the options.
pub fn check(data: &[u8]) -> Result<(), Error> {
    icmpv6::check(data)?;
    let (kind, code) = (u8_at(data, field::TYPE), u8_at(data, field::CODE));
    let invalid = |field, offset, value: u8, wanted| {
        Err(Error::Invalid { protocol: "ndisc", field, offset, value: value.into(), wanted })
    };
    let Some(len) = fixed_len(kind) else {
        return invalid("type", field::TYPE, kind, "133 to 137");
    };
    if code != 0 {
        return invalid("code", field::CODE, code, "0");
    }
    need("ndisc", "message", data, len)
}

view! {
    /// A message, from the ICMPv6 type on.
    Packet, check
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Type, see [`icmpv6::kind`].
    #[inline]
    pub fn kind(&self) -> u8 {
        u8_at(self.bytes(), field::TYPE)
    }

    /// Target of a neighbor solicitation or advertisement, better first hop of a redirect.
    #[inline]
    pub fn target(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.bytes(), field::TARGET))
    }

    /// The destination that is redirected.
    #[inline]
    pub fn redirect_dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.bytes(), field::REDIRECT_DST))
    }

    /// Options as they stand.
    #[inline]
    pub fn option_bytes(&self) -> &[u8] {
        part(self.bytes(), fixed_len(self.kind()).unwrap_or(usize::MAX), usize::MAX)
    }

    /// Options one by one, checked on the way.
    #[inline]
    pub fn options(&self) -> Options<'_> {
        Options { data: self.option_bytes(), base: fixed_len(self.kind()).unwrap_or(0), at: 0 }
    }

    /// Everything before the options, as values.
    pub fn message(&self) -> Message {
        let data = self.bytes();
        let flags = u8_at(data, field::NA_FLAGS);
        match self.kind() {
            kind::ROUTER_ADVERT => Message::RouterAdvert {
                hop_limit: u8_at(data, field::RA_HOP_LIMIT),
                flags: u8_at(data, field::RA_FLAGS),
                lifetime_s: u16_at(data, field::RA_LIFETIME),
                reachable_ms: u32_at(data, field::RA_REACHABLE),
                retrans_ms: u32_at(data, field::RA_RETRANS),
            },
            kind::NEIGHBOR_SOLICIT => Message::NeighborSolicit { target: self.target() },
            kind::NEIGHBOR_ADVERT => Message::NeighborAdvert {
                target: self.target(),
                router: flags & ROUTER != 0,
                solicited: flags & SOLICITED != 0,
                replace: flags & OVERRIDE != 0,
            },
            kind::REDIRECT => Message::Redirect { target: self.target(), dst: self.redirect_dst() },
            _ => Message::RouterSolicit,
        }
    }
}

/// What a message says before its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// Asks routers to advertise.
    RouterSolicit,
    /// A router's parameters.
    RouterAdvert {
        /// Hop limit that hosts should use; 0 for no opinion.
        hop_limit: u8,
        /// Managed addresses (0x80), other configuration (0x40), preference and more.
        flags: u8,
        /// How long the router may be a default router; 0 for not at all.
        lifetime_s: u16,
        /// How long a neighbor counts as reachable; 0 for no opinion.
        reachable_ms: u32,
        /// Time between solicitations; 0 for no opinion.
        retrans_ms: u32,
    },
    /// Asks who has `target`.
    NeighborSolicit {
        /// The address asked for.
        target: Ipv6Addr,
    },
    /// The sender has `target`.
    NeighborAdvert {
        /// The address.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// It was asked.
        solicited: bool,
        /// The link-layer address replaces a cached one (the "override" flag).
        replace: bool,
    },
    /// There is a better first hop.
    Redirect {
        /// The better first hop, or the destination itself if it is on the link.
        target: Ipv6Addr,
        /// The destination that it is for.
        dst: Ipv6Addr,
    },
}

impl Message {
    /// Type, see [`icmpv6::kind`].
    pub fn kind(&self) -> u8 {
        match self {
            Message::RouterSolicit => kind::ROUTER_SOLICIT,
            Message::RouterAdvert { .. } => kind::ROUTER_ADVERT,
            Message::NeighborSolicit { .. } => kind::NEIGHBOR_SOLICIT,
            Message::NeighborAdvert { .. } => kind::NEIGHBOR_ADVERT,
            Message::Redirect { .. } => kind::REDIRECT,
        }
    }
}

/// A prefix of the link (RFC 4861, section 4.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrefixInfo {
    /// Leading bits that count.
    pub prefix_len: u8,
    /// On-link (0x80), usable for autoconfiguration (0x40).
    pub flags: u8,
    /// How long it is on the link; all ones for ever.
    pub valid_s: u32,
    /// How long its addresses are preferred; all ones for ever.
    pub preferred_s: u32,
    /// The prefix.
    pub prefix: Ipv6Addr,
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NdOption<'a> {
    /// Ethernet address of the sender.
    SourceLinkLayer(MacAddr),
    /// Ethernet address of the target.
    TargetLinkLayer(MacAddr),
    /// A prefix of the link.
    Prefix(PrefixInfo),
    /// As much of the redirected packet as fits; a multiple of 8 bytes.
    Redirected(&'a [u8]),
    /// MTU of the link.
    Mtu(u32),
    /// Any other, or one of the above with another length, its data uninterpreted.
    Other {
        /// Type of the option.
        kind: u8,
        /// What follows the length byte: 6, 14, ... 2,038 bytes.
        data: &'a [u8],
    },
}

const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
const PREFIX: u8 = 3;
const REDIRECTED: u8 = 4;
const MTU: u8 = 5;

impl NdOption<'_> {
    /// Bytes that [`emit`](Self::emit) writes.
    pub fn buffer_len(&self) -> usize {
        match self {
            NdOption::SourceLinkLayer(_) | NdOption::TargetLinkLayer(_) | NdOption::Mtu(_) => 8,
            NdOption::Prefix(_) => 32,
            NdOption::Redirected(packet) => 8 + packet.len(),
            NdOption::Other { data, .. } => 2 + data.len(),
        }
    }

    /// Writes the option to the front of `buf`; returns its length. Fails when it does not fit or its length is not a
    /// multiple of 8 from 8 to 2,040.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, Error> {
        let len = self.buffer_len();
        room("ndisc", buf, len)?;
        if !len.is_multiple_of(8) || len > 255 * 8 {
            let (field, value, wanted) = ("option length", len as u64, "a multiple of 8 up to 2040");
            return Err(Error::Invalid { protocol: "ndisc", field, offset: 1, value, wanted });
        }
        for byte in buf.iter_mut().take(len) {
            *byte = 0;
        }
        let (kind, data): (u8, &[u8]) = match self {
            NdOption::SourceLinkLayer(mac) => (SOURCE_LINK_LAYER, &mac.0),
            NdOption::TargetLinkLayer(mac) => (TARGET_LINK_LAYER, &mac.0),
            NdOption::Prefix(info) => {
                put(buf, 2, [info.prefix_len, info.flags]);
                put_u32(buf, 4, info.valid_s);
                put_u32(buf, 8, info.preferred_s);
                put(buf, 16, info.prefix.octets());
                (PREFIX, &[])
            }
            NdOption::Redirected(packet) => {
                for (to, from) in buf.iter_mut().skip(8).zip(*packet) {
                    *to = *from;
                }
                (REDIRECTED, &[])
            }
            NdOption::Mtu(mtu) => {
                put_u32(buf, 4, *mtu);
                (MTU, &[])
            }
            NdOption::Other { kind, data } => (*kind, data),
        };
        put(buf, 0, [kind, (len / 8) as u8]);
        for (to, from) in buf.iter_mut().skip(2).zip(data) {
            *to = *from;
        }
        Ok(len)
    }
}

/// Iterates over options; the first malformed one is an error and ends the iteration.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    data: &'a [u8],
    /// Where the options start in the message, for errors.
    base: usize,
    at: usize,
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<NdOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let kind = *self.data.get(at)?;
        let (field, offset) = ("option length", self.base + at + 1);
        let len = usize::from(u8_at(self.data, at + 1)) * 8;
        let present = self.data.len() - at;
        if len == 0 || len > present {
            self.at = self.data.len();
            return Some(Err(if len == 0 {
                Error::Below { protocol: "ndisc", field, offset, value: len, minimum: 8 }
            } else {
                Error::Exceeds { protocol: "ndisc", field, offset, value: len, present }
            }));
        }
        self.at += len;
        let option = part(self.data, at, at + len);
        Some(Ok(match (kind, len) {
            (SOURCE_LINK_LAYER, 8) => NdOption::SourceLinkLayer(MacAddr(array(option, 2))),
            (TARGET_LINK_LAYER, 8) => NdOption::TargetLinkLayer(MacAddr(array(option, 2))),
            (PREFIX, 32) => NdOption::Prefix(PrefixInfo {
                prefix_len: u8_at(option, 2),
                flags: u8_at(option, 3),
                valid_s: u32_at(option, 4),
                preferred_s: u32_at(option, 8),
                prefix: array::<16>(option, 16).into(),
            }),
            (REDIRECTED, _) => NdOption::Redirected(part(option, 8, len)),
            (MTU, 8) => NdOption::Mtu(u32_at(option, 4)),
            _ => NdOption::Other { kind, data: part(option, 2, len) },
        }))
    }
}

/// A message as values; options as encoded by [`NdOption::emit`], one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr<'a> {
    /// What comes before the options.
    pub message: Message,
    /// Encoded options; well-formed when parsed.
    pub options: &'a [u8],
}

impl<'a> Repr<'a> {
    /// Reads a message and checks its options, not its checksum ([`icmpv6::Packet::checksum_ok`]).
    pub fn parse<T: AsRef<[u8]>>(packet: &'a Packet<T>) -> Result<Self, Error> {
        check(packet.bytes())?;
        packet.options().try_for_each(|option| option.map(drop))?;
        Ok(Repr { message: packet.message(), options: packet.option_bytes() })
    }

    /// Bytes that [`emit`](Self::emit) writes: the whole message.
    pub fn buffer_len(&self) -> usize {
        fixed_len(self.message.kind()).unwrap_or(0) + self.options.len()
    }

    /// Writes the message, checksum included, to the front of `buf`; returns its length.
    pub fn emit(&self, buf: &mut [u8], pseudo: &Pseudo) -> Result<usize, Error> {
        let len = self.buffer_len();
        room("ndisc", buf, len)?;
        let Some(buf) = buf.get_mut(..len) else { return Ok(0) };
        buf.fill(0);
        put_u8(buf, field::TYPE, self.message.kind());
        match self.message {
            Message::RouterSolicit => {}
            Message::RouterAdvert { hop_limit, flags, lifetime_s, reachable_ms, retrans_ms } => {
                put_u8(buf, field::RA_HOP_LIMIT, hop_limit);
                put_u8(buf, field::RA_FLAGS, flags);
                put_u16(buf, field::RA_LIFETIME, lifetime_s);
                put_u32(buf, field::RA_REACHABLE, reachable_ms);
                put_u32(buf, field::RA_RETRANS, retrans_ms);
            }
            Message::NeighborSolicit { target } => put(buf, field::TARGET, target.octets()),
            Message::NeighborAdvert { target, router, solicited, replace } => {
                let bit = |set, bit| if set { bit } else { 0 };
                let flags = bit(router, ROUTER) | bit(solicited, SOLICITED) | bit(replace, OVERRIDE);
                put_u8(buf, field::NA_FLAGS, flags);
                put(buf, field::TARGET, target.octets());
            }
            Message::Redirect { target, dst } => {
                put(buf, field::TARGET, target.octets());
                put(buf, field::REDIRECT_DST, dst.octets());
            }
        }
        for (to, from) in buf.iter_mut().skip(len - self.options.len()).zip(self.options) {
            *to = *from;
        }
        icmpv6::fill_checksum(buf, pseudo);
        Ok(len)
    }
}
