//! Yardstick: the paper's Gatekeeper server as it was measured, and our order of look-ups beside it. Production uses none of
//! this; `bench gate --figure fu-4.6` does.
//!
//! Source: Fu 2020, algorithms 5 to 9, sections 4.4, 4.5.2 to 4.5.5, 4.6.2.
//!
//! ```text
//! PaperGate   parse -> flow table -> (unknown: DIR-24-8 -> insert) -> priority -> encapsulate -> hand over  ~~>  solicitor
//!             Keystore<5>: DPDK's layout, 8 entries a bucket, 1,000 moves, keys in a store; flow entries in an array beside
//! OurGate     parse -> policy -> find or insert -> priority -> hand over                                    ~~>  solicitor -> encapsulate
//!             FlowTable<1>: keys and state in one place
//!
//! hand over, each     request record from a pool -> ring, one by one     solicitor: list of records
//!            batch    a burst's packets -> ring, at once                 solicitor: list through the packets themselves
//! ```
//!
//! * **Early stop** (4.5.2): the first insertion of a burst that finds no room is the burst's last. The flows after it that are not in
//!   the table send their packets as requests without an entry, as the one that failed does. Without early stop every
//!   new flow is tried. A failed insertion has looked at 248 buckets, so early stop gains at most as much as a burst has packets, and one such
//!   search a burst is left then, which no driver hides.
//! * **Drivers** (4.5.3, 4.5.4) hide memory latency of the look-ups. What follows them is done in the order in which packets came, so
//!   every driver gives every packet the same fate and leaves the same table.
//! * **The solicitor** keeps at most [`KEPT`] requests by priority; one more pushes the last one of the lowest priority out. It sends at 5 %
//!   of 10 Gbit/s.
//!
//! # What is assumed
//! The paper does not say how fast entries expire, on which all depends: without expiry a table gets completely full, and
//! then an insertion fails at once. Here, as in the paper's scan, one entry is looked at for each burst, and goes if its last packet is older
//! than an age that the caller gives.
//!
//! # Where we depart from the paper
//! * The solicitor runs on the same core, in a turn of its own ([`Gate::turn`]), so no line goes from core to core. What is left of the hand-over's cost is
//!   the work itself.
//! * Algorithm 9 runs all of a packet's work inside its coroutine, and packets of a flow may overtake each other. Here coroutines parse and
//!   look up. A miss looks up the policy afterwards, all misses of the burst at once.
//! * Packets whose flow was inserted by an earlier packet of their burst find that entry. (Algorithm 8 would initialise it again.)
//! * The scan goes through the array of flow entries, not through the hash table's buckets: no difference in what is visited.
//! * Flows in the request state only: nobody decides. IPv4 only; anything else is given back.

mod ours;
mod packets;
mod paper;
mod ring;
mod solicitor;
#[cfg(test)]
mod tests;

pub use ours::{OurGate, OurOptions, Way};
pub use packets::{Packets, rss};
pub use paper::{Driver, PaperGate, PaperOptions};
pub use solicitor::{Books, HandOver, KEPT, Left};

use std::net::Ipv4Addr;
use tidemill_flow::table::SizeError;
use tidemill_lpm::keys::Random;
use tidemill_lpm::{BuildError, Label, Rib};

/// Packets of a burst, at most.
pub const MOST: usize = 256;
/// New flows in a row without room that make a table full: the first one is luck, in a large table at a few percent less.
const FULL: usize = 16;

/// What became of a packet in the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Not a whole IPv4 packet: given back.
    NotIpv4,
    /// The policy has nothing for its destination: given back.
    NoPolicy,
    /// The policy lets it pass to the back network: given back, since there is none.
    Passed,
    /// Handed to the solicitor.
    Request {
        /// The outer header's DSCP, 3 to 63.
        dscp: u8,
        /// Whether its flow has an entry; otherwise there was no room for one.
        kept: bool,
    },
}

/// Why a gate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The flow table.
    #[error("the flow table: {0}")]
    Flows(#[from] SizeError),
    /// The policy table.
    #[error("the policy table: {0}")]
    Policy(#[from] BuildError),
}

/// What a gate is told about destinations.
#[derive(Clone, Default)]
pub struct Policy {
    /// Labels by destination: [`PASS`], or [`to_grantor`].
    pub rib: Rib<u32>,
    /// The Grantors.
    pub grantors: Vec<Ipv4Addr>,
}

/// The policy's label for destinations that are not protected.
pub const PASS: Label = Label(1);

/// The policy's label for destinations of the Grantor with this number.
pub fn to_grantor(number: u16) -> Label {
    Label(u32::from(number) + 2)
}

/// The Grantor's number in a label.
#[inline(always)]
fn grantor(label: Label) -> Option<usize> {
    label.0.checked_sub(2).map(|number| number as usize)
}

/// A flow's entry, as tests see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The source.
    pub source: u32,
    /// The destination.
    pub destination: u32,
    /// The flow's last packet.
    pub last_ns: u64,
    /// Its priority then, and how many more packets may have it at once.
    pub level: Level,
}

/// One of the two gates: a flow table with its policy, and the solicitor. Time is the caller's and never goes back.
pub trait Gate: Sized {
    /// How it works: may change from burst to burst, but see [`empty`](Self::empty).
    type Options: Copy;

    /// A gate with room for so many flows, each of which goes when it has been idle for longer than `idle_ns`.
    ///
    /// # Errors
    /// No memory, or a policy that cannot be expressed.
    fn new(flows: usize, idle_ns: u64, policy: &Policy) -> Result<Self, Error>;

    /// Room for flows.
    fn capacity(&self) -> usize;

    /// Flows in the table.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts flows from random sources into the table until hardly any more finds room. Their last packets were at random times up
    /// to the idle time ago, so that from now on as many expire at any time. `now_ns` is the idle time at least.
    fn fill(&mut self, now_ns: u64, destination: u32, random: &mut Random);

    /// One burst through the gate: `fates[i]` is that of packet `ids[i]`. At most [`MOST`] packets.
    fn burst(
        &mut self,
        options: Self::Options,
        now_ns: u64,
        packets: &mut Packets,
        ids: &[u32],
        fates: &mut [Fate],
    );

    /// The solicitor's turn: takes all that was handed over, and sends what it may. `left` hears of every packet that leaves, and sees it.
    fn turn(&mut self, now_ns: u64, packets: &mut Packets, left: impl FnMut(Left, &[u8]));

    /// Throws away what the solicitor has: before a burst with another way of handing over.
    fn empty(&mut self, packets: &mut Packets);

    /// Says how long so many packets have taken, in any unit: the number of coroutines follows.
    fn ran(&mut self, packets: usize, from: u64, to: u64);

    /// What the solicitor has done.
    fn books(&self) -> Books;

    /// All flows, in any order.
    fn entries(&self) -> Vec<Entry>;
}

/// A flow's priority, and how many more of its packets may have it although they come sooner than it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level {
    /// log2 of picoseconds since the flow's packet before.
    pub priority: u8,
    /// Packets.
    pub allowance: u8,
}

impl Level {
    /// That of a flow with its first packet.
    pub const FIRST: Level = Level { priority: 38, allowance: Self::PACKETS - 1 };
    /// Packets at one level.
    const PACKETS: u8 = 8;

    /// On the wire.
    #[inline(always)]
    pub fn dscp(self) -> u8 {
        (self.priority + 3).min(63)
    }

    /// The next packet's, so long after the one before.
    #[inline(always)]
    fn after(self, ns: u64) -> Self {
        let priority = ns.saturating_mul(1000).checked_ilog2().unwrap_or(0) as u8;
        if priority < self.priority && self.allowance > 0 {
            Level { allowance: self.allowance - 1, ..self }
        } else {
            Level { priority, allowance: Self::PACKETS - 1 }
        }
    }
}
