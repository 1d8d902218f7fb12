//! What a rule is about: addresses and ports, as far as the tuple mode looks at them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_wire::flow::Addresses;

/// A flow of answers, outside to inside. What the tuple mode leaves out is zero.
///
/// | mode | source address | destination address | source port | destination port |
/// |---|---|---|---|---|
/// | 4 | yes | yes | yes | yes |
/// | 3 | yes | yes | yes | 0 |
/// | 2 | yes | yes | 0 | 0 |
/// | 1 | yes | 0 | 0 | 0 |
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Source (the amplifier) and destination (the victim).
    pub addresses: Addresses,
    /// The amplifier's port, host order.
    pub source_port: u16,
    /// The victim's port, host order.
    pub destination_port: u16,
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, d) = (self.source_port, self.destination_port);
        match self.addresses {
            Addresses::V4 { src, dst } => {
                write!(f, "{}:{s} > {}:{d}", Ipv4Addr::from(src), Ipv4Addr::from(dst))
            }
            Addresses::V6 { src, dst } => {
                write!(f, "[{}]:{s} > [{}]:{d}", Ipv6Addr::from(src), Ipv6Addr::from(dst))
            }
        }
    }
}
