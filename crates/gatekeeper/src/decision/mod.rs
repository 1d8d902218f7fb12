//! What a Grantor decides about a flow, and how it is said.
//!
//! [`wire`] is the interoperable format, which has no authentication: who takes decisions from it must know by other means where they come from.

pub mod wire;

/// A flow: its source and its destination.
pub use tidemill_wire::flow::Addresses as Pair;
pub use wire::{Decisions, Writer};

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
    /// A program decides. There are none yet: who reads this counts it, and leaves the flow as it is.
    Bpf {
        /// For so many seconds.
        expire_s: u32,
        /// Which one.
        program: u8,
    },
}
