//! What a Grantor decides about a flow, and how it is said: the formats, the keys, what is refused, what is revoked, who is alive.

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod authenticated;
mod bytes;
pub mod health;
pub mod interoperable;
pub mod keys;
pub mod replay;
pub mod revocation;

/// A flow: its source and its destination.
pub use tidemill_wire::flow::Addresses as Pair;

/// The UDP port that Grantors speak from, and that probes go to.
pub const GRANTOR_PORT: u16 = 41120;
/// The UDP port that decisions go to, and that probes come from.
pub const GATEKEEPER_PORT: u16 = 45232;

/// What a Grantor has decided about a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The flow.
    pub flow: Pair,
    /// What holds for it from now on.
    pub verdict: Verdict,
}

/// What holds for a flow, for some time from when the decision comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing passes.
    Declined {
        /// For so many seconds.
        expire_s: u32,
    },
    /// So much passes.
    Granted {
        /// KiB (1024 bytes) of IP packets per second.
        rate_kib_s: u32,
        /// For so many seconds.
        expire_s: u32,
        /// The first packet after so many milliseconds asks for the next decision,
        renew_ms: u32,
        /// and so does the first after each so many more.
        step_ms: u32,
        /// Packets go to the destination itself, not by way of the Grantor. The interoperable format cannot say that.
        direct: bool,
    },
    /// A program decides.
    Bpf {
        /// For so many seconds.
        expire_s: u32,
        /// Which one.
        program: u8,
        /// What it is given: its state and its parameters.
        cookie: Cookie,
    },
}

/// What a flow program is given with a decision: 0 to 16 words of 4 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cookie {
    bytes: [u8; Cookie::MOST],
    words: u8,
}

impl Cookie {
    /// The longest, in bytes.
    pub const MOST: usize = 64;

    /// Of these bytes, which are whole words of 4, at most 16; else `None`.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut cookie = Cookie { bytes: [0; Self::MOST], words: 0 };
        cookie.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        cookie.words = (bytes.len() / 4) as u8;
        bytes.len().is_multiple_of(4).then_some(cookie)
    }

    /// The bytes that were given.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.words) * 4]
    }

    /// The same, with zeros behind.
    pub fn padded(&self) -> &[u8; Self::MOST] {
        &self.bytes
    }
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookie ")?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
