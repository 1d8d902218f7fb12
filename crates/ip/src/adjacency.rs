//! Adjacencies: what is done with a packet once its next hop is known. The published table [`NextHops`] holds one for
//! each FIB label of its family.

use crate::interface::{Interface, MAX_ETHERNET};
use std::net::IpAddr;
use tidemill_wire::{EtherType, MacAddr};

/// What is done with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Send it to the neighbor.
    Forward,
    /// It is for us.
    Local,
    /// It is for the kernel, which has got a copy of its own.
    Kernel,
    /// No route (label 0).
    NoRoute,
    /// The route says unreachable.
    Unreachable,
    /// The route says discard.
    Blackhole,
    /// The route says prohibited.
    Prohibited,
    /// A directed broadcast on one of our links (RFC 2644).
    Broadcast,
    /// The destination is on that link, and is asked for its MAC address.
    Glean,
    /// A gateway whose MAC address is asked for.
    Unresolved,
    /// The interface to send by is down.
    Down,
    /// Nothing is known of this label.
    Unknown,
    /// One of several next hops, by the flow's hash; see [`NextHops::member`].
    Group,
}

/// A next hop, ready to use: half a cache line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(32))]
pub struct Adjacency {
    /// To forward: the Ethernet header to send with. Unresolved: the gateway's address. Group: where its buckets are.
    bytes: [u8; MAX_ETHERNET],
    /// The longest IP packet in bytes that the link takes.
    pub mtu: u16,
    /// The port's number.
    pub port: u16,
    /// The interface's number.
    pub interface: u16,
    /// How many of the bytes count.
    len: u8,
    /// What to do.
    pub kind: Kind,
}
const _: () = assert!(size_of::<Adjacency>() == 32);

impl Adjacency {
    /// One that sends nothing.
    pub const fn of(kind: Kind) -> Self {
        Adjacency { bytes: [0; MAX_ETHERNET], mtu: 0, port: 0, interface: 0, len: 0, kind }
    }

    /// Sends to `neighbor` by interface `number`.
    pub fn forward(number: u16, interface: &Interface, neighbor: MacAddr, ethertype: EtherType) -> Self {
        let (bytes, len) = interface.ethernet(neighbor, ethertype);
        Adjacency { bytes, len: len as u8, ..Self::on(Kind::Forward, number, interface) }
    }

    /// Asks for the destination itself on interface `number`.
    pub fn glean(number: u16, interface: &Interface) -> Self {
        Self::on(Kind::Glean, number, interface)
    }

    /// Waits for the MAC address of `gateway` on interface `number`.
    pub fn unresolved(number: u16, interface: &Interface, gateway: IpAddr) -> Self {
        let mut adjacency = Self::on(Kind::Unresolved, number, interface);
        match gateway {
            IpAddr::V4(v4) => {
                adjacency.bytes[..4].copy_from_slice(&v4.octets());
                adjacency.len = 4;
            }
            IpAddr::V6(v6) => {
                adjacency.bytes[..16].copy_from_slice(&v6.octets());
                adjacency.len = 16;
            }
        }
        adjacency
    }

    fn on(kind: Kind, number: u16, interface: &Interface) -> Self {
        Adjacency { mtu: interface.mtu, port: interface.port, interface: number, ..Self::of(kind) }
    }

    /// The Ethernet header to send with, of [`Kind::Forward`].
    #[inline(always)]
    pub fn header(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The first 14 bytes of the header, and whether that is all of it: the usual case, copied without a loop.
    #[inline(always)]
    pub fn plain_header(&self) -> Option<&[u8; 14]> {
        if self.len == 14 { self.bytes.first_chunk() } else { None }
    }

    /// The gateway, of [`Kind::Unresolved`].
    pub fn gateway(&self) -> Option<IpAddr> {
        match (self.kind, self.len) {
            (Kind::Unresolved, 4) => self.bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
            (Kind::Unresolved, 16) => self.bytes.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes)),
            _ => None,
        }
    }
}

/// What every label beyond the table means.
const UNKNOWN: Adjacency = Adjacency::of(Kind::Unknown);

/// The published table: adjacencies by FIB label, and the buckets of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHops {
    adjacencies: Vec<Adjacency>,
    /// Labels of members; each group has a power of two of them.
    buckets: Vec<u32>,
}

impl NextHops {
    /// A table of `adjacencies`, of which number 0 is "no route".
    pub fn new(adjacencies: Vec<Adjacency>) -> Self {
        NextHops { adjacencies, buckets: Vec::new() }
    }

    /// Makes `label` a group whose flows are spread over `buckets`, a power of two of labels that are no groups.
    /// Anything else makes it unknown.
    pub fn set_group(&mut self, label: u32, buckets: &[u32]) {
        let Some(adjacency) = self.adjacencies.get_mut(label as usize) else { return };
        if !buckets.len().is_power_of_two() {
            *adjacency = UNKNOWN;
            return;
        }
        *adjacency = Adjacency::of(Kind::Group);
        adjacency.bytes[..4].copy_from_slice(&(self.buckets.len() as u32).to_ne_bytes());
        adjacency.bytes[4..8].copy_from_slice(&(buckets.len() as u32 - 1).to_ne_bytes());
        self.buckets.extend_from_slice(buckets);
    }

    /// The adjacency of a FIB label.
    #[inline]
    pub fn get(&self, label: u32) -> &Adjacency {
        self.adjacencies.get(label as usize).unwrap_or(&UNKNOWN)
    }

    /// The label of the group's member that takes flows of this hash.
    #[inline]
    pub fn member(&self, group: &Adjacency, hash: u32) -> Option<u32> {
        let number = |at: usize| group.bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let (start, mask) = (number(0)?, number(4)?);
        self.buckets.get((start + (hash & mask)) as usize).copied()
    }

    /// How many labels have an entry, "no route" included.
    #[allow(clippy::len_without_is_empty)] // "no route" is always there
    pub fn len(&self) -> usize {
        self.adjacencies.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_gateways_come_back() {
        let wan = Interface::of_port(1, "wan");
        let forward = Adjacency::forward(1, &wan, MacAddr([2; 6]), EtherType::IPV4);
        assert_eq!(forward.plain_header().map(|h| &h[..]), Some(forward.header()));
        assert_eq!((forward.port, forward.mtu, forward.gateway()), (1, 1500, None));
        let tagged = Interface { vlan: Some(9), ..wan.clone() };
        let forward = Adjacency::forward(2, &tagged, MacAddr([2; 6]), EtherType::IPV4);
        assert_eq!((forward.plain_header(), forward.header().len(), forward.interface), (None, 18, 2));
        for gateway in ["192.0.2.1", "fe80::1"] {
            let gateway = gateway.parse().unwrap();
            assert_eq!(Adjacency::unresolved(1, &wan, gateway).gateway(), Some(gateway));
        }
        assert_eq!(Adjacency::glean(1, &wan).gateway(), None);
    }

    #[test]
    fn groups_spread_hashes_over_their_buckets() {
        let mut table = NextHops::new(vec![Adjacency::of(Kind::NoRoute); 6]);
        table.set_group(4, &[1, 2, 1, 3]);
        table.set_group(5, &[2; 8]);
        let group = *table.get(4);
        let labels: Vec<_> = (0..8).map(|hash| table.member(&group, hash << 2 | hash & 3).unwrap()).collect();
        assert_eq!(labels, [1, 2, 1, 3, 1, 2, 1, 3]);
        assert_eq!(table.member(table.get(5), u32::MAX), Some(2));
        table.set_group(4, &[1, 2, 3]);
        assert_eq!((table.get(4).kind, table.get(6).kind), (Kind::Unknown, Kind::Unknown));
    }
}
