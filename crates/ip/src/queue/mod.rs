//! What queues are made of that keep a link's promises: who waits in which order, how fast they leave, who is dropped.
//!
//! | | |
//! |---|---|
//! | [`PriorityQueue`] | 64 levels, bounded: the lowest gives way |
//! | [`Requests`] | the same with waits, sums and the early refusal that a flood needs |
//! | [`Granted`] | queues by hash of the destination, RED in each, served by bytes in turn |
//! | [`Budget`], [`Purse`] | a rate in bytes that all workers share, and one worker's hold on it |
//! | [`Red`] | random early detection |
//! | [`ClassStats`], [`Board`] | what an operator sees of them |
//! | [`flood`] | a request flood in virtual time |
//!
//! None of them knows packets, clocks or threads: items are what the caller wants to queue, time and randomness are handed
//! in. The nodes that use them are [`path_queue`](crate::nodes::path_queue) and the Gatekeeper's solicitor.

mod bandwidth;
mod budget;
pub mod flood;
mod granted;
mod priority;
mod red;
mod requests;
mod stats;

pub use bandwidth::Bandwidth;
pub use budget::{Budget, Purse};
pub use granted::{Granted, GrantedOptions};
pub use priority::{LEVELS, PriorityQueue, Pushed};
pub use red::{Red, RedParameters};
pub use requests::{Levels, Requests};
pub use stats::{Board, ClassStats, Shown, Sum, WAITS};

/// Bytes that a frame of `len` bytes (from its link-layer header on, without checksum) takes on an Ethernet: padded to 60,
/// with preamble (8), checksum (4) and the gap behind it (12).
#[inline(always)]
pub const fn wire_bytes(len: usize) -> u64 {
    const MINIMUM: usize = 60;
    (if len < MINIMUM { MINIMUM } else { len }) as u64 + 24
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_link_of_the_shortest_frames_is_14_88_million() {
        assert_eq!(10_000_000_000 / 8 / wire_bytes(60), 14_880_952);
        assert_eq!((wire_bytes(0), wire_bytes(14), wire_bytes(1514)), (84, 84, 1538));
    }
}
