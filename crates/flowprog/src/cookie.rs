//! The shipped programs' cookies: what a decision brings, and what is there once `init` has run.
//!
//! All numbers are little-endian, wherever they were written. What a decision brings is laid out as in the public system (v1.2); the state is ours.
//!
//! ```text
//! brought    0          4             8            12          16       17          40
//! granted    KiB/s u32  renewal ms    step ms                                                                 12 bytes
//! grantedv2  KiB/s u32  KiB/s (2nd)   renewal ms   step ms     direct   0 0 0                                 20
//! web        the same                                                                                         20
//! tcp-serv.  the same                                                   0 ...       six ranges of ports:
//!                                                                                   first u16, last u16       64, or as many ranges as there are
//! declined   nothing                                                                                           0
//!
//! state      0                     8                     16               24                       32
//!            full again, primary   full again, secondary  next renewal, ns  step ms: 24 | cost: 40   direct: 24 | cost: 40      u64 each
//! ```
//!
//! `full again` is in units of 1/1024 ns, modulo 2^64; `cost` is what a byte costs in units of 2^-20 ns, rounded up: `1024 * 10^9 / rate`. Times are the
//! gate's. Up to 10 GiB/s a rate is kept to 0.001 %, and never exceeded.

use crate::context::{COOKIE_LEN, Cookie};

/// Ranges of ports that a cookie has room for.
pub const RANGES: usize = 6;
const PORTS_AT: usize = 40;
const COST: u64 = (1 << 40) - 1;
const SECOND: u64 = 1_000_000_000 << 10;

/// What a decision brings, as it goes over the wire: a cookie and how many of its bytes, a multiple of 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Brought {
    /// The bytes, and zeros.
    pub cookie: Cookie,
    /// How many.
    pub len: usize,
}

impl Brought {
    /// From the bytes of a decision; `None` if a cookie has no room for them.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut cookie = Cookie::default();
        cookie.0.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Brought { cookie, len: bytes.len() })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.cookie.0[..self.len.min(COOKIE_LEN)]
    }

    fn words(words: &[u32]) -> Self {
        let mut cookie = Cookie::default();
        for (bytes, word) in cookie.0.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Brought { cookie, len: words.len() * 4 }
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.cookie.0.as_chunks().0[at])
    }
}

/// For `granted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// KiB (1024 bytes) of IP packets per second.
    pub rate_kib_s: u32,
    /// The first packet after so many milliseconds asks for the next decision,
    pub renew_ms: u32,
    /// and so does the first after each so many more; 4.6 hours at most.
    pub step_ms: u32,
}

impl Granted {
    /// As a decision brings it.
    pub fn brought(&self) -> Brought {
        Brought::words(&[self.rate_kib_s, self.renew_ms, self.step_ms])
    }

    /// From what a decision has brought; `None` if that is too short.
    pub fn read(brought: &Brought) -> Option<Self> {
        let word = |at| brought.word(at);
        (brought.len >= 12).then(|| Granted { rate_kib_s: word(0), renew_ms: word(1), step_ms: word(2) })
    }
}

/// For `grantedv2` and `web`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TwoLimits {
    /// What all packets are held to, KiB/s.
    pub primary_kib_s: u32,
    /// What packets of the secondary kind are held to as well, KiB/s.
    pub secondary_kib_s: u32,
    /// As for [`Granted`].
    pub renew_ms: u32,
    /// As for [`Granted`].
    pub step_ms: u32,
    /// Packets go to the destination itself, not by way of the Grantor.
    pub direct: bool,
}

impl TwoLimits {
    /// As a decision brings it.
    pub fn brought(&self) -> Brought {
        let Self { primary_kib_s, secondary_kib_s, renew_ms, step_ms, direct } = *self;
        Brought::words(&[primary_kib_s, secondary_kib_s, renew_ms, step_ms, direct.into()])
    }

    /// From what a decision has brought; `None` if that is too short. Without its last word, packets are not direct.
    pub fn read(brought: &Brought) -> Option<Self> {
        let word = |at| brought.word(at);
        (brought.len >= 16).then(|| TwoLimits {
            primary_kib_s: word(0),
            secondary_kib_s: word(1),
            renew_ms: word(2),
            step_ms: word(3),
            direct: brought.cookie.0[16] != 0,
        })
    }
}

/// For `tcp-services`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpServices {
    /// The limits.
    pub limits: TwoLimits,
    /// Ports that are allowed: first and last. (0, 0) is none.
    pub ports: [(u16, u16); RANGES],
}

impl TcpServices {
    /// As a decision brings it.
    pub fn brought(&self) -> Brought {
        let mut brought = self.limits.brought();
        for (bytes, (first, last)) in brought.cookie.0[PORTS_AT..].chunks_exact_mut(4).zip(self.ports) {
            bytes.copy_from_slice(&(u32::from(last) << 16 | u32::from(first)).to_le_bytes());
        }
        brought.len = COOKIE_LEN;
        brought
    }

    /// From what a decision has brought; `None` if there is not even one range.
    pub fn read(brought: &Brought) -> Option<Self> {
        if brought.len < PORTS_AT + 4 {
            return None;
        }
        let range = |at: usize| {
            let word = brought.word(PORTS_AT / 4 + at);
            (word as u16, (word >> 16) as u16)
        };
        Some(TcpServices { limits: TwoLimits::read(brought)?, ports: std::array::from_fn(range) })
    }
}

/// A limit as the state has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes per second, to 0.001 % up to 10 GiB/s; 0: nothing passes.
    pub bytes_s: u64,
    /// Bytes that it allows at once.
    pub bucket: u64,
}

/// The state of each program that has limits, once `init` has run; for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The primary limit.
    pub primary: Limit,
    /// The secondary; `granted` has none, and it shows 0.
    pub secondary: Limit,
    /// When the next renewal is due.
    pub renew_ns: u64,
    /// Milliseconds from one to the next.
    pub step_ms: u32,
    /// Past the Grantor.
    pub direct: bool,
}

impl State {
    /// From a cookie of `granted`, `grantedv2`, `web` or `tcp-services`.
    pub fn read(cookie: &Cookie, now_ns: u64) -> Self {
        let word = |at: usize| u64::from_le_bytes(cookie.0.as_chunks().0[at]);
        let limit = |full: u64, cost: u64| {
            let missing = (full.wrapping_sub(now_ns << 10) as i64).max(0) as u64;
            let there = SECOND.saturating_sub(missing);
            let bytes = |units: u64| u128::from(units).checked_shl(10).unwrap_or(0) / u128::from(cost.max(1));
            let if_any = |bytes: u128| if cost == 0 { 0 } else { bytes as u64 };
            Limit { bytes_s: if_any(bytes(SECOND)), bucket: if_any(bytes(there)) }
        };
        State {
            primary: limit(word(0), word(3) & COST),
            secondary: limit(word(1), word(4) & COST),
            renew_ns: word(2),
            step_ms: (word(3) >> 40) as u32,
            direct: word(4) >> 40 != 0,
        }
    }

    /// The ports of a cookie of `tcp-services`.
    pub fn ports(cookie: &Cookie) -> [(u16, u16); RANGES] {
        let word = |at: usize| u32::from_le_bytes(cookie.0.as_chunks().0[at]);
        std::array::from_fn(|at| (word(PORTS_AT / 4 + at) as u16, (word(PORTS_AT / 4 + at) >> 16) as u16))
    }
}
