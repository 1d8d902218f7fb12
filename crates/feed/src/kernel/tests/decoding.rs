//! The decoder against `netlink-packet-route`, which writes the messages.

use super::super::decode::{Message, PathKind, RTM_DELROUTE, RTM_NEWROUTE, decode, frames};
use super::super::{Hop, KernelPath};
use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteNextHop, RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn bytes(message: RouteNetlinkMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::from(message);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn decoded(message: RouteNetlinkMessage) -> Message {
    let bytes = bytes(message);
    let frame = frames(&bytes).next().unwrap().unwrap();
    decode(&frame).unwrap()
}

fn address(v4: bool, bits: u128) -> IpAddr {
    if v4 { Ipv4Addr::from(bits as u32).into() } else { Ipv6Addr::from(bits).into() }
}

proptest! {
    #[test]
    fn routes_are_read_as_they_were_written(
        (v4, removed, len, bits) in (any::<bool>(), any::<bool>(), 0..=128u8, any::<u128>()),
        (table, metric, proto) in (any::<u32>(), any::<u32>(), any::<u8>()),
        hops in proptest::collection::vec((any::<u128>(), any::<u32>(), 1..=256u32, any::<bool>()), 1..9),
    ) {
        let len = if v4 { len % 33 } else { len };
        let family = if v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.destination_prefix_length = len;
        message.header.protocol = RouteProtocol::from(proto);
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Destination(address(v4, bits).into()));
        message.attributes.push(RouteAttribute::Table(table));
        message.attributes.push(RouteAttribute::Priority(metric));
        let gateway = |bits: u128, other: bool| if other && v4 {
            RouteAttribute::Via(RouteVia::Inet6(Ipv6Addr::from(bits)))
        } else {
            RouteAttribute::Gateway(address(v4, bits).into())
        };
        if let [(bits, index, _, other)] = hops[..] {
            message.attributes.push(gateway(bits, other));
            message.attributes.push(RouteAttribute::Oif(index));
        } else {
            message.attributes.push(RouteAttribute::MultiPath(hops.iter().map(|&(bits, index, weight, other)| {
                let mut hop = RouteNextHop::default();
                hop.hops = (weight - 1) as u8;
                hop.interface_index = index;
                hop.attributes = vec![gateway(bits, other)];
                hop
            }).collect()));
        }
        let mut expected: Vec<Hop> = hops.iter().map(|&(bits, index, weight, other)| Hop {
            index,
            gateway: Some(address(v4 && !other, bits)),
            weight: if hops.len() == 1 { 1 } else { weight },
        }).collect();
        expected.sort();
        let message = if removed {
            RouteNetlinkMessage::DelRoute(message)
        } else {
            RouteNetlinkMessage::NewRoute(message)
        };
        let Message::Route(route) = decoded(message) else { panic!("no route") };
        prop_assert_eq!(route.removed, removed);
        prop_assert_eq!((route.table, route.metric), (table, metric));
        let canonical = match address(v4, bits) {
            IpAddr::V4(a) => tidemill_lpm::Prefix::new(u32::from(a), len).unwrap().into(),
            IpAddr::V6(a) => tidemill_lpm::Prefix::new(u128::from(a), len).unwrap().into(),
        };
        prop_assert_eq!(route.prefix, canonical);
        prop_assert_eq!(route.path.kind, PathKind::Hops(expected));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(kind in 0..120u16, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let frame = super::super::decode::Frame { kind, flags: 0, sequence: 0, port: 0, body: &body };
        // Unicast hops are never empty, whatever the bytes.
        if let Ok(Message::Route(route)) = decode(&frame) {
            prop_assert!([RTM_NEWROUTE, RTM_DELROUTE].contains(&kind));
            prop_assert!(!matches!(route.path.kind, PathKind::Hops(ref hops) if hops.is_empty()));
            prop_assert!(!matches!(route.path.kind, PathKind::Fixed(KernelPath::Via(_))));
        }
    }
}

#[test]
fn links_and_neighbors_are_read_as_they_were_written() {
    let mut message = LinkMessage::default();
    message.header.index = 7;
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    message.attributes = vec![
        LinkAttribute::IfName("tm-left".into()),
        LinkAttribute::Mtu(9000),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 7]),
    ];
    let Message::Link(link) = decoded(RouteNetlinkMessage::NewLink(message)) else { panic!("no link") };
    assert_eq!((link.index, link.admin, link.carrier, link.removed), (7, true, true, false));
    assert_eq!((link.name.as_str(), link.mtu, link.mac), ("tm-left", 9000, Some([2, 0, 0, 0, 0, 7])));

    let states = [
        (NeighbourState::Reachable, true, true),
        (NeighbourState::Permanent, true, true),
        (NeighbourState::Stale, true, false),
        (NeighbourState::Delay, true, false),
        (NeighbourState::Probe, true, false),
        (NeighbourState::Failed, false, false),
        (NeighbourState::Incomplete, false, false),
    ];
    for (state, valid, reachable) in states {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = 7;
        message.header.state = state;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet([10, 0, 0, 9].into())),
            NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 9]),
        ];
        let Message::Neighbor(neighbor) = decoded(RouteNetlinkMessage::NewNeighbour(message)) else {
            panic!("no neighbour")
        };
        assert_eq!((neighbor.mac.is_some(), neighbor.reachable), (valid, reachable), "{state:?}");
    }
}
