//! Flow specifications of BGP peers (RFC 8955; of IPv6 RFC 8956), applied to what ports receive: dropped, held to a rate, marked, redirected.
//!
//! ```text
//! packet --destination--> the list of its prefix, then those of the prefixes around it --first that means it--> dropped, over its rate, marked, redirected, passes
//! ```
//!
//! Which there are, and whose they are to give, is `tidemill-bgp`'s; that hands them in by the order in which they apply. In that order those of a longer destination
//! come before those of the prefix around it, and those without a destination last: so a packet meets lists from the inside out.
//!
//! | step | cost |
//! |---|---|
//! | a packet, with no flow specification | one look at the tables |
//! | a packet | its header read, a binary search over the destinations' ends; then each flow specification of its destination and of what is around that, one after the other |
//! | one that is meant | a cell of its worker; with a rate one word that all workers share |
//! | one that is redirected | a lookup in that table, and the cold line of its frame |
//!
//! A packet whose IPv6 extension headers cannot be followed is meant by addresses, length and DSCP only; a fragment that is not the first has no ports, flags and ICMP type.
//! The rate in bytes counts from the IP header on. It holds for all workers together, with a tenth of a second at once.

mod control;
mod meter;
mod node;
mod packet;
mod redirect;
mod rules;

pub use control::{FlowspecControl, Look, MOST_RULES, Places};
pub use meter::Counts;
pub use node::{Host, splice};
pub use redirect::{MakeWays, Ways};
pub use rules::MOST_OPERATORS;

#[cfg(test)]
mod tests;
