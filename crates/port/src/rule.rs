//! Who takes what arrives: a port that takes packets away from the kernel leaves it what is its own, by a rule.
//!
//! The control side knows who owns which address, and tells the port when it opens and whenever that changes.

use crate::PortError;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Who owns what, as one port has to know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The kernel owns the addresses of the port's own link, without a VLAN tag. Then these are left to it as well: what
    /// is not IP (ARP, LLDP), and what goes to groups, to everybody, or to link-local addresses; also VLANs that are not
    /// in `vlans`.
    pub kernel: bool,
    /// VLAN ids for which we have an interface on this port.
    pub vlans: BTreeSet<u16>,
    /// Addresses that the kernel answers for, wherever they are: what is sent to them is left to it.
    pub kernel_hosts: BTreeSet<IpAddr>,
    /// Addresses that we answer for: what is sent to them is left to the kernel only if the port's configuration says so.
    pub own_hosts: BTreeSet<IpAddr>,
}

/// What was not taken, since the port was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Packets left to the kernel by the rule.
    pub by_rule: u64,
    /// Packets on queues of the device that nobody reads; the kernel got them.
    pub unread: u64,
    /// Why nothing is taken now from a device that is there (again): what keeps the port from it, in a line.
    pub hindered: Option<String>,
}

/// A port's rule, which the control side holds while workers hold the port's queues.
pub trait Rule: Send + Sync {
    /// Tells who owns what. Until it is told for the first time, the port leaves everything to the kernel.
    ///
    /// # Errors
    /// The kernel refuses; packets may be left, or not, by a mixture of the old and the new.
    fn set(&self, ownership: &Ownership) -> Result<(), PortError>;

    /// What was not taken so far.
    fn left(&self) -> Left;
}
