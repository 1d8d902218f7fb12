//! Yardsticks: the paper's tables of rules, for comparison with ours.
//!
//! Source: Tokusashi 2019, sections 5.3.2 to 5.3.4 (figure 5.5) and 5.4.4. IPv4 and 4-tuples only, as there.
//!
//! ```text
//! direct    slot = hash(tuple) modulo slots, one entry each     | 12 bytes of key | status | valid | expires, 16 bits |
//! CAM       any tuple anywhere, 1,024 of them
//! ours      two buckets of 31 for every tuple (tidemill-flow)
//! ```
//!
//! All of them know three answers to a packet of an amplifier's port and two to an ICMP message, [`RuleTable`]. A slot is free if it
//! never had an entry, if that is suspected, or if its time is over; a rule that holds is never replaced.
//!
//! Where we depart from the paper:
//! - Its section 5.3.3 takes a slot only when the entry's time is over, its section 5.3.4 also while the entry is only suspected. We do
//!   the latter: otherwise an attacker keeps slots without any confirmation.
//! - The 16-bit clock of seconds goes round every 18 hours. Times are compared modulo 2^16, so at most [`LONGEST_EXPIRY_S`] can be
//!   said, and a rule that no packet touches for 9 hours after its end holds again for 9. Ours has a clock of 32 bits.
//! - Nothing is said of a full CAM. Suspected entries make room, oldest first, as in the table; rules do not.

mod cam;
mod direct;
mod hash;
mod ours;
#[cfg(test)]
mod tests;

pub use cam::Cam;
pub use direct::{Direct, LONGEST_EXPIRY_S};
pub use hash::{Bits, Function, Order, Place};
pub use ours::Ours;

/// What the paper's rules are about: an amplifier's packet, as its receiver sees it. Host order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple4 {
    /// The amplifier.
    pub source: u32,
    /// The victim.
    pub destination: u32,
    /// The protocol.
    pub source_port: u16,
    /// The port that the attacker has made up.
    pub destination_port: u16,
}

impl Tuple4 {
    /// The key of figure 5.5.
    #[inline]
    pub fn bytes(&self, order: Order) -> [u8; 12] {
        let mut bytes = [0; 12];
        let (words, ports) = ([self.source, self.destination], [self.source_port, self.destination_port]);
        for (to, word) in bytes[..8].chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&match order {
                Order::Network => word.to_be_bytes(),
                Order::Little => word.to_le_bytes(),
            });
        }
        for (to, port) in bytes[8..].chunks_exact_mut(2).zip(ports) {
            to.copy_from_slice(&match order {
                Order::Network => port.to_be_bytes(),
                Order::Little => port.to_le_bytes(),
            });
        }
        bytes
    }
}

/// What a table says to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// There is a rule: drop it.
    Filtered,
    /// It passes, and is remembered.
    Suspected,
    /// It passes, and there is no room to remember it.
    NoRoom,
}

/// A table of rules with a fixed number of slots.
pub trait RuleTable {
    /// Slots.
    fn slots(&self) -> usize;

    /// A packet of this tuple from an amplifier's port comes at `now_s`, which never goes backwards.
    fn packet(&mut self, tuple: &Tuple4, now_s: u32) -> Seen;

    /// The victim's ICMP message about this tuple comes. True: it was suspected, and is filtered from now on.
    fn confirm(&mut self, tuple: &Tuple4, now_s: u32) -> bool;
}

/// Whether an entry is a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Status {
    #[default]
    Suspected,
    Filtered,
}
