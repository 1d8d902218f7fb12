//! What a program is given: the context (r1) and the cookie (r2).
//!
//! ```text
//! byte   0  now_ns          u64       the time
//!        8  expires_ns      u64       when the decision expires
//!       16  l3              pointer   the IP header
//!       24  l4              pointer   the first header behind IP's own (and IPv6's extension headers); `end` if there is none to be read
//!       32  end             pointer   behind the packet's last byte
//!       40  bytes           u32       of the packet, from its IP header on
//!       44  family          u8        4 or 6
//!       45  protocol        u8        of what is at l4
//!       46  fragment        u8        0: whole, 1: the first fragment, 2: a later one (what is at l4 is none of that protocol's headers)
//!       47  dscp            u8
//!       48  cookie_len      u8        in `init`, bytes of the cookie that the decision has brought; 0 in `pkt`
//!       49  0 ... 55
//! ```
//!
//! Numbers are little-endian, except those of the packet. C has the same as `struct flow_context` in `bpf/flow/flow.h`. In `init` there is no packet:
//! `l3`, `l4` and `end` are the same.

use std::mem::offset_of;
use tidemill_wire::{Protocol, ipv4, ipv6, ipv6_ext};

/// Bytes of a cookie.
pub const COOKIE_LEN: usize = 64;

/// A flow's parameters and state, as its program has laid them out. What a decision does not bring is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Cookie(pub [u8; COOKIE_LEN]);

impl Default for Cookie {
    fn default() -> Self {
        Cookie([0; COOKIE_LEN])
    }
}

/// Whether a packet is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fragment {
    /// It is.
    Whole = 0,
    /// The first fragment of one.
    First = 1,
    /// A later one: no header of the upper protocol.
    Later = 2,
}

/// A packet and what is known of it, or none. See the [module](self).
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Context<'a> {
    now_ns: u64,
    expires_ns: u64,
    l3: *const u8,
    l4: *const u8,
    end: *const u8,
    bytes: u32,
    family: u8,
    protocol: u8,
    fragment: u8,
    dscp: u8,
    cookie_len: u8,
    zero: [u8; 7],
    /// What the pointers lead into. No program sees it.
    packet: &'a [u8],
}

/// Bytes of the context that a program sees.
pub(crate) const CONTEXT_LEN: usize = 56;
pub(crate) const L3_AT: usize = 16;
pub(crate) const L4_AT: usize = 24;
pub(crate) const END_AT: usize = 32;
pub(crate) const POINTERS_END: usize = 40;

const _: () = assert!(offset_of!(Context<'static>, l3) == L3_AT);
const _: () = assert!(offset_of!(Context<'static>, l4) == L4_AT);
const _: () = assert!(offset_of!(Context<'static>, end) == END_AT);
const _: () = assert!(offset_of!(Context<'static>, bytes) == POINTERS_END);
const _: () = assert!(offset_of!(Context<'static>, zero) + 7 == CONTEXT_LEN);
const _: () = assert!(offset_of!(Context<'static>, packet) >= CONTEXT_LEN);

impl<'a> Context<'a> {
    /// For `init`: a decision that has brought `cookie_len` bytes of cookie and holds until `expires_ns`.
    #[inline]
    pub fn decision(now_ns: u64, expires_ns: u64, cookie_len: usize) -> Self {
        let mut context = Context::empty(now_ns, expires_ns, &[]);
        context.cookie_len = cookie_len.min(COOKIE_LEN) as u8;
        context
    }

    #[inline(always)]
    fn empty(now_ns: u64, expires_ns: u64, packet: &'a [u8]) -> Self {
        let ends = packet.as_ptr_range();
        Context {
            now_ns,
            expires_ns,
            l3: ends.start,
            l4: ends.end,
            end: ends.end,
            bytes: packet.len() as u32,
            family: 0,
            protocol: Protocol::NO_NEXT.0,
            fragment: Fragment::Whole as u8,
            dscp: 0,
            cookie_len: 0,
            zero: [0; 7],
            packet,
        }
    }

    /// For `pkt`: a packet, from its IP header to its end. Headers that cannot be read are none: `l4` is then `end`, the protocol "no next header".
    #[inline]
    pub fn packet(now_ns: u64, expires_ns: u64, packet: &'a [u8]) -> Self {
        let mut context = Context::empty(now_ns, expires_ns, packet);
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => context.v4(),
            Some(6) => context.v6(),
            _ => {}
        }
        context
    }

    #[inline(always)]
    fn v4(&mut self) {
        self.family = 4;
        let Some(header) = self.packet.first_chunk::<{ ipv4::HEADER_LEN }>() else { return };
        self.dscp = header[1] >> 2;
        let len = ipv4::header_len(header);
        if len < ipv4::HEADER_LEN || len > self.packet.len() {
            return;
        }
        self.protocol = header[9];
        self.l4 = self.packet[len..].as_ptr();
        if ipv4::is_fragment(header) {
            let first = ipv4::fragment_offset(header) == 0;
            self.fragment = if first { Fragment::First } else { Fragment::Later } as u8;
        }
    }

    #[inline(always)]
    fn v6(&mut self) {
        self.family = 6;
        let Some(header) = self.packet.first_chunk::<{ ipv6::HEADER_LEN }>() else { return };
        self.dscp = (header[0] & 15) << 2 | header[1] >> 6;
        let upper = Protocol(header[6]);
        if matches!(upper, Protocol::TCP | Protocol::UDP | Protocol::ICMPV6) {
            self.protocol = upper.0;
            self.l4 = self.packet[ipv6::HEADER_LEN..].as_ptr();
            return;
        }
        self.v6_extended();
    }

    /// Behind IPv6's extension headers.
    fn v6_extended(&mut self) {
        let Ok(walk) = ipv6_ext::walk(self.packet) else { return };
        let Some(rest) = self.packet.get(walk.upper_offset..) else { return };
        self.protocol = walk.upper.0;
        self.l4 = rest.as_ptr();
        if walk.is_fragment() {
            let first = walk.fragment.is_some_and(|fragment| fragment.offset == 0);
            self.fragment = if first { Fragment::First } else { Fragment::Later } as u8;
        }
    }

    /// The packet.
    pub fn bytes(&self) -> &'a [u8] {
        self.packet
    }

    /// Where what is at `l4` begins in the packet.
    pub fn l4_offset(&self) -> usize {
        self.l4.addr() - self.l3.addr()
    }

    /// What the packet carries.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether it is whole.
    pub fn fragment(&self) -> Fragment {
        match self.fragment {
            0 => Fragment::Whole,
            1 => Fragment::First,
            _ => Fragment::Later,
        }
    }

    /// The bytes that a program sees, with these numbers for the packet's beginning.
    pub(crate) fn image(&self, packet_at: u64) -> [u8; CONTEXT_LEN] {
        let mut image = [0; CONTEXT_LEN];
        let l4 = packet_at + self.l4_offset() as u64;
        let end = packet_at + self.packet.len() as u64;
        for (at, word) in [self.now_ns, self.expires_ns, packet_at, l4, end].into_iter().enumerate() {
            image[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        image[40..44].copy_from_slice(&self.bytes.to_le_bytes());
        image[44..49].copy_from_slice(&[
            self.family,
            self.protocol,
            self.fragment,
            self.dscp,
            self.cookie_len,
        ]);
        image
    }
}
