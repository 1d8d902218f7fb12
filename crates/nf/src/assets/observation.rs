//! What a packet tells about a host, as a value of fixed size: what workers hand to the table.

use crate::assets::banner::Banner;
use crate::assets::signature::Signature;
use crate::assets::text::Text;
use std::net::IpAddr;
use tidemill_wire::MacAddr;

/// Whom something is known of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// By address.
    Ip(IpAddr),
    /// By hardware address alone: it asks for an address by DHCP.
    Mac(MacAddr),
}

/// What is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// It has sent a packet.
    Present,
    /// Its hardware address, by ARP or neighbor discovery.
    Link(MacAddr),
    /// How it begins TCP connections, or answers.
    System(Signature),
    /// It answers at a port: SYN-ACK.
    Answers(u16),
    /// What a service has said; whether over UDP, and at which port.
    Says(bool, u16, Banner),
    /// A DHCP client's own words.
    Dhcp(Dhcp),
    /// The hardware address that this address was granted to.
    Granted(MacAddr),
    /// A name, by mDNS.
    Name(Text),
    /// A service, by mDNS, with its port if that was said.
    Announces(Text, Option<u16>),
}

/// What a DHCP client says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dhcp {
    /// Its hardware address.
    pub client: MacAddr,
    /// What it calls itself.
    pub host_name: Text,
    /// Its vendor class.
    pub vendor: Text,
    /// Options that it asks for, in order.
    pub parameters: Text,
}

/// One of these about one of those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Whom.
    pub host: Host,
    /// What.
    pub fact: Fact,
}
