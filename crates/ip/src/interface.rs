//! Interfaces: a port, or one VLAN of a port, with our addresses on it.
//!
//! Interface n is port n itself for every port; the VLAN sub-interfaces follow. Behind `ethernet-input` a packet's
//! [`port`](tidemill_burst::Packet::port) is its interface.

use crate::martian::Martians;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_lpm::Prefix;
use tidemill_wire::{EtherType, MacAddr, ethernet, vlan};

/// Who answers for the addresses of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// Tidemill: it answers ARP, neighbor discovery and ping. The kernel should have no address there.
    #[default]
    Us,
    /// The kernel: the addresses are those that it has, and what is sent to them is left to it.
    Kernel,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name: the port's, unless it is given its own.
    pub name: String,
    /// The port's number.
    pub port: u16,
    /// The VLAN id of a sub-interface, 1 to 4094.
    pub vlan: Option<u16>,
    /// The number of the VRF that its packets are routed by.
    pub vrf: u16,
    /// Our MAC address.
    pub mac: MacAddr,
    /// The longest IP packet in bytes.
    pub mtu: u16,
    /// Whether frames to any MAC address are taken.
    pub promiscuous: bool,
    /// Who answers for the addresses.
    pub owner: Owner,
    /// Whether neighbors are asked for their MAC addresses (ARP, ND). Not on ports that nobody answers on: captures.
    pub resolves: bool,
    /// Whether it can send.
    pub up: bool,
    /// Our IPv4 addresses with their links' prefixes.
    pub v4: Vec<(Ipv4Addr, Prefix<u32>)>,
    /// Our IPv6 addresses with their links' prefixes, link-local ones excepted.
    pub v6: Vec<(Ipv6Addr, Prefix<u128>)>,
    /// Our link-local addresses.
    pub link_local: Vec<Ipv6Addr>,
}

/// The longest Ethernet header that we write: with one VLAN tag.
pub const MAX_ETHERNET: usize = ethernet::HEADER_LEN + vlan::HEADER_LEN;

impl Interface {
    /// An interface that is the port `number` itself, without an address.
    pub fn of_port(number: u16, name: &str) -> Self {
        let [high, low] = number.to_be_bytes();
        Interface {
            name: name.into(),
            port: number,
            vlan: None,
            vrf: 0,
            mac: MacAddr([0x02, 0x49, 0, 0, high, low]),
            mtu: 1500,
            promiscuous: false,
            owner: Owner::Us,
            resolves: true,
            up: true,
            v4: Vec::new(),
            v6: Vec::new(),
            link_local: Vec::new(),
        }
    }

    /// The Ethernet header of a frame to `neighbor`, and its length: 14 bytes, or 18 with a VLAN tag.
    pub fn ethernet(&self, neighbor: MacAddr, ethertype: EtherType) -> ([u8; MAX_ETHERNET], usize) {
        let mut header = [0; MAX_ETHERNET];
        header[..6].copy_from_slice(&neighbor.0);
        header[6..12].copy_from_slice(&self.mac.0);
        let at = match self.vlan {
            Some(id) => {
                header[12..14].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
                header[14..16].copy_from_slice(&id.to_be_bytes());
                16
            }
            None => 12,
        };
        header[at..at + 2].copy_from_slice(&ethertype.0.to_be_bytes());
        (header, at + 2)
    }

    /// Whether `address` is one of ours here.
    pub fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.iter().any(|(own, _)| *own == address),
            IpAddr::V6(address) => {
                self.v6.iter().any(|(own, _)| *own == address) || self.link_local.contains(&address)
            }
        }
    }

    /// Whether `address` is on this link: in the prefix of one of our addresses, or link-local.
    pub fn on_link(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.v4.iter().any(|(_, prefix)| prefix.contains(u32::from(address))),
            IpAddr::V6(address) => {
                address.is_unicast_link_local()
                    || self.v6.iter().any(|(_, prefix)| prefix.contains(u128::from(address)))
            }
        }
    }

    /// Whether `address` is the network's or the broadcast address of one of the links here, which no station has. Links
    /// of one or two addresses have none such (RFC 3021).
    pub fn is_whole_link(&self, address: Ipv4Addr) -> bool {
        let address = u32::from(address);
        let mut links = self.v4.iter().map(|(_, prefix)| prefix).filter(|prefix| prefix.len() <= 30);
        links.any(|prefix| address == prefix.first() || address == prefix.last())
    }

    /// Which of our addresses asks for `target`: the one on the same subnet, or else the first.
    pub fn source_for(&self, target: IpAddr) -> Option<IpAddr> {
        match target {
            IpAddr::V4(target) => {
                let near = self.v4.iter().find(|(_, prefix)| prefix.contains(u32::from(target)));
                near.or(self.v4.first()).map(|(own, _)| IpAddr::V4(*own))
            }
            IpAddr::V6(target) => {
                let near = self.v6.iter().find(|(_, prefix)| prefix.contains(u128::from(target)));
                let near = near.map(|(own, _)| *own).or(self.link_local.first().copied());
                near.or(self.v6.first().map(|(own, _)| *own)).map(IpAddr::V6)
            }
        }
    }
}

/// All interfaces, by number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interfaces {
    list: Vec<Interface>,
    ports: usize,
    /// Port, VLAN id, interface; sorted.
    vlans: Vec<(u16, u16, u16)>,
}

impl Interfaces {
    /// The interfaces of `ports` ports: the ports themselves first, in order, then sub-interfaces.
    pub fn new(list: Vec<Interface>, ports: usize) -> Self {
        let tagged = list.iter().enumerate().skip(ports);
        let mut vlans: Vec<_> =
            tagged.filter_map(|(n, interface)| Some((interface.port, interface.vlan?, n as u16))).collect();
        vlans.sort_unstable();
        Interfaces { list, ports, vlans }
    }

    /// How many ports there are.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// The interface of this number.
    #[inline]
    pub fn get(&self, number: u16) -> Option<&Interface> {
        self.list.get(usize::from(number))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Interface> {
        self.list.iter()
    }

    /// The interface of this name.
    pub fn by_name(&self, name: &str) -> Option<u16> {
        self.list.iter().position(|interface| interface.name == name).map(|n| n as u16)
    }

    /// The sub-interface that takes frames of VLAN `id` on `port`.
    pub fn by_vlan(&self, port: u16, id: u16) -> Option<u16> {
        let at = self.vlans.binary_search_by_key(&(port, id), |&(port, id, _)| (port, id)).ok()?;
        Some(self.vlans[at].2)
    }

    /// The source of an IPv4 packet of ours about one that came in by interface `number`: its first address, or any
    /// other address of ours in the same VRF (RFC 1812 4.3.2.4 calls it the router-id).
    pub fn source_v4(&self, number: u16) -> Option<Ipv4Addr> {
        let first = |interface: &Interface| interface.v4.first().map(|(address, _)| *address);
        self.source(number, first)
    }

    /// As [`source_v4`](Self::source_v4), for IPv6 (RFC 4443 2.2).
    pub fn source_v6(&self, number: u16) -> Option<Ipv6Addr> {
        let first = |interface: &Interface| interface.v6.first().map(|(address, _)| *address);
        self.source(number, first)
    }

    fn source<T>(&self, number: u16, first: impl Fn(&Interface) -> Option<T>) -> Option<T> {
        let interface = self.get(number)?;
        let mates = self.list.iter().filter(|other| other.vrf == interface.vrf);
        first(interface).or_else(|| mates.into_iter().find_map(&first))
    }
}

/// What nodes need to know of the configuration. Published, so that a reload can change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The interfaces.
    pub interfaces: Interfaces,
    /// Which impossible addresses are dropped.
    pub martians: Martians,
    /// ICMP errors per second and worker.
    pub icmp_rate_per_s: u32,
    /// ICMP errors per second, worker and destination prefix.
    pub icmp_rate_per_prefix_per_s: u32,
    /// TTL of our own packets.
    pub ttl: u8,
    /// Unknown neighbors that each worker may ask for per second; also how many at once. A fifth as many again are
    /// kept for those who ask again after having been refused.
    pub neighbor_rate_per_s: u32,
    /// Unknown neighbors that each worker may ask for per second on behalf of one source (an IPv4 address, an IPv6
    /// /64); also how many at once.
    pub neighbor_rate_per_source_per_s: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces() -> Interfaces {
        let mut lan = Interface::of_port(0, "lan");
        lan.v4.push(("192.0.2.1".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
        lan.v6.push(("2001:db8::1".parse().unwrap(), "2001:db8::/64".parse().unwrap()));
        lan.link_local.push("fe80::1".parse().unwrap());
        let tagged = Interface { name: "lan.7".into(), vlan: Some(7), vrf: 1, v4: Vec::new(), ..lan.clone() };
        Interfaces::new(vec![lan, Interface::of_port(1, "wan"), tagged], 2)
    }

    #[test]
    fn sub_interfaces_are_found_by_port_and_id() {
        let all = interfaces();
        assert_eq!((all.by_vlan(0, 7), all.by_vlan(1, 7), all.by_vlan(0, 8)), (Some(2), None, None));
        assert_eq!((all.by_name("lan.7"), all.by_name("dmz")), (Some(2), None));
        let (header, len) = all.get(2).unwrap().ethernet(MacAddr([2; 6]), EtherType::IPV6);
        assert_eq!(header[..len], *b"\x02\x02\x02\x02\x02\x02\x02\x49\0\0\0\0\x81\0\0\x07\x86\xdd");
        let (header, len) = all.get(0).unwrap().ethernet(MacAddr([2; 6]), EtherType::IPV4);
        assert_eq!(header[..len], *b"\x02\x02\x02\x02\x02\x02\x02\x49\0\0\0\0\x08\0");
    }

    #[test]
    fn the_source_is_the_incoming_interfaces_address_or_any_of_its_vrf() {
        let all = interfaces();
        assert_eq!(all.source_v4(0), Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(all.source_v4(1), all.source_v4(0));
        assert_eq!(all.source_v4(2), None, "the other VRF's address must not show");
        assert!(all.source_v6(2).is_some());
    }

    #[test]
    fn addresses_that_no_station_on_the_link_has() {
        let mut lan = Interface::of_port(0, "lan");
        let own = Ipv4Addr::new(192, 0, 2, 66);
        for (link, whole) in [("192.0.2.64/26", true), ("192.0.2.64/30", true), ("192.0.2.64/31", false)] {
            lan.v4 = vec![(own, link.parse().unwrap())];
            assert_eq!(lan.is_whole_link(Ipv4Addr::new(192, 0, 2, 64)), whole, "{link}");
            assert!(!lan.is_whole_link(own));
        }
        lan.v4 = vec![(own, "192.0.2.64/26".parse().unwrap())];
        assert!(
            lan.is_whole_link(Ipv4Addr::new(192, 0, 2, 127))
                && !lan.is_whole_link(Ipv4Addr::new(192, 0, 2, 255))
        );
    }

    #[test]
    fn addresses_on_the_link_and_who_asks_for_them() {
        let all = interfaces();
        let lan = all.get(0).unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(lan.has(ip("192.0.2.1")) && lan.has(ip("fe80::1")) && !lan.has(ip("192.0.2.2")));
        assert!(lan.on_link(ip("192.0.2.9")) && lan.on_link(ip("fe80::9")) && !lan.on_link(ip("10.0.0.1")));
        assert_eq!(lan.source_for(ip("2001:db8::5")), Some(ip("2001:db8::1")));
        assert_eq!(lan.source_for(ip("fe80::5")), Some(ip("fe80::1")));
        assert_eq!(lan.source_for(ip("198.51.100.1")), Some(ip("192.0.2.1")));
        assert_eq!(all.get(1).unwrap().source_for(ip("192.0.2.9")), None);
    }
}
