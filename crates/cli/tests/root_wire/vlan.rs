//! VLAN sub-interfaces: hosts that speak tagged frames on one cable. This kernel knows no VLANs, so the hosts are made by
//! hand, from a packet socket.

use crate::dut::Dut;
use crate::lab::{Family, Lab, Link, Plan};
use crate::raw::{Frame, Raw};
use crate::{Kernel, Needs, turn};
use etherparse::{EtherType, Icmpv4Type, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use std::net::IpAddr;
use std::time::{Duration, Instant};

type Mac = [u8; 6];

/// The identifier of our echo requests.
const ECHO: u16 = 77;

/// A host made by hand.
struct Station {
    /// None sends frames without a tag.
    vlan: Option<u16>,
    mac: Mac,
    own: IpAddr,
    gateway: IpAddr,
}

impl Station {
    /// The one in the VLAN, and the network, of a number below 256.
    fn new(family: Family, net: u8) -> Self {
        let address =
            |host| family.pick(format!("10.{net}.0.{host}"), format!("fd00:{net}::{host}")).parse().unwrap();
        Station { vlan: Some(net.into()), mac: [2, 0xaa, 0, 0, 0, net], own: address(2), gateway: address(1) }
    }

    /// An Ethernet frame, tagged if we are.
    fn frame(&self, to: Mac, kind: EtherType, payload: &[u8]) -> Vec<u8> {
        let tag = self.vlan.map(|vlan| [[0x81, 0], vlan.to_be_bytes()].concat()).unwrap_or_default();
        [&to[..], &self.mac, &tag, &kind.0.to_be_bytes(), payload].concat()
    }

    /// The same around what a builder makes behind an Ethernet header.
    fn built(&self, to: Mac, frame: &[u8]) -> Vec<u8> {
        self.frame(to, EtherType(u16::from_be_bytes([frame[12], frame[13]])), &frame[14..])
    }

    /// ARP (RFC 826): operation 1 asks, 2 answers.
    fn arp(&self, operation: u8, to: Mac, target: Mac, address: [u8; 4]) -> Vec<u8> {
        let IpAddr::V4(own) = self.own else { unreachable!("ARP is IPv4's") };
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        let text = [&head[..], &self.mac, &own.octets(), &target, &address].concat();
        self.frame(to, EtherType::ARP, &text)
    }

    /// A neighbor message (RFC 4861, sections 4.3 and 4.4): 135 asks, 136 answers, with our MAC as option 1 or 2.
    fn nd(&self, kind: u8, flags: u8, to: Mac, ip: [u8; 16], target: [u8; 16]) -> Vec<u8> {
        let IpAddr::V6(own) = self.own else { unreachable!("ND is IPv6's") };
        let option = [&[kind - 134, 1][..], &self.mac].concat();
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(self.mac, to)
            .ipv6(own.octets(), ip, 255)
            .icmpv6_raw(kind, 0, [flags, 0, 0, 0])
            .write(&mut frame, &[&target[..], &option].concat())
            .unwrap();
        self.built(to, &frame)
    }

    /// Asks for the router's MAC until it answers in our VLAN.
    fn find_gateway(&self, socket: &Raw) -> Mac {
        for _ in 0..10 {
            match self.gateway {
                IpAddr::V4(gateway) => socket.send(&self.arp(1, [0xff; 6], [0; 6], gateway.octets())),
                IpAddr::V6(gateway) => {
                    let low = &gateway.octets()[13..];
                    let mac = [&[0x33, 0x33, 0xff], low].concat().try_into().unwrap();
                    let group = [&[0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff][..], low].concat();
                    socket.send(&self.nd(135, 0, mac, group.try_into().unwrap(), gateway.octets()));
                }
            }
            let end = Instant::now() + Duration::from_millis(300);
            while let Some(frame) = socket.receive(end.saturating_duration_since(Instant::now())) {
                if frame.vlan == self.vlan
                    && let Some(mac) = self.answer_about_gateway(&frame)
                {
                    return mac;
                }
            }
        }
        panic!("{} does not answer in VLAN {:?}", self.gateway, self.vlan);
    }

    fn answer_about_gateway(&self, frame: &Frame) -> Option<Mac> {
        let from = *frame.bytes[6..].first_chunk().unwrap();
        let answers = match self.gateway {
            // A reply whose sender is the gateway.
            IpAddr::V4(gateway) => {
                let arp = frame.bytes[12..14] == EtherType::ARP.0.to_be_bytes();
                arp && frame.bytes[21] == 2 && frame.bytes[28..32] == gateway.octets()
            }
            IpAddr::V6(gateway) => {
                frame.bytes.get(54) == Some(&136) && frame.bytes.get(62..78) == Some(&gateway.octets()[..])
            }
        };
        answers.then_some(from)
    }

    fn echo_request(&self, gateway: Mac, to: IpAddr, number: u16) -> Vec<u8> {
        let link = PacketBuilder::ethernet2(self.mac, gateway);
        let mut frame = Vec::new();
        match (self.own, to) {
            (IpAddr::V4(own), IpAddr::V4(to)) => {
                let ip = link.ipv4(own.octets(), to.octets(), 64);
                ip.icmpv4_echo_request(ECHO, number).write(&mut frame, b"tagged")
            }
            (IpAddr::V6(own), IpAddr::V6(to)) => {
                let ip = link.ipv6(own.octets(), to.octets(), 64);
                ip.icmpv6_echo_request(ECHO, number).write(&mut frame, b"tagged")
            }
            _ => unreachable!("one family"),
        }
        .unwrap();
        self.built(gateway, &frame)
    }

    /// Answers who asks for our MAC, or pings us. True if this frame is the answer to our ping.
    fn take(&self, socket: &Raw, frame: &Frame) -> bool {
        if frame.vlan != self.vlan {
            return false;
        }
        let from: Mac = *frame.bytes[6..].first_chunk().unwrap();
        let bytes = &frame.bytes;
        if let IpAddr::V4(own) = self.own
            && bytes[12..14] == EtherType::ARP.0.to_be_bytes()
        {
            if bytes[21] == 1 && bytes[38..42] == own.octets() {
                socket.send(&self.arp(2, from, from, *bytes[28..].first_chunk().unwrap()));
            }
            return false;
        }
        let Ok(packet) = SlicedPacket::from_ethernet(bytes) else { return false };
        let (source, destination): (IpAddr, IpAddr) = match &packet.net {
            Some(NetSlice::Ipv4(ip)) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            Some(NetSlice::Ipv6(ip)) => {
                (ip.header().source_addr().into(), ip.header().destination_addr().into())
            }
            _ => return false,
        };
        if let (IpAddr::V6(own), IpAddr::V6(source)) = (self.own, source)
            && bytes[54] == 135
            && bytes[62..78] == own.octets()
        {
            // Solicited, and it overrides what is known.
            socket.send(&self.nd(136, 0x60, from, source.octets(), own.octets()));
            return false;
        }
        if destination != self.own {
            return false;
        }
        match packet.transport {
            Some(TransportSlice::Icmpv4(icmp)) => {
                matches!(icmp.icmp_type(), Icmpv4Type::EchoReply(echo) if echo.id == ECHO)
            }
            Some(TransportSlice::Icmpv6(icmp)) => {
                matches!(icmp.icmp_type(), Icmpv6Type::EchoReply(echo) if echo.id == ECHO)
            }
            _ => false,
        }
    }

    /// Whether one of a few echo requests is answered.
    fn reaches(&self, socket: &Raw, gateway: Mac, to: IpAddr) -> bool {
        (0..5).any(|number| {
            socket.send(&self.echo_request(gateway, to, number));
            let end = Instant::now() + Duration::from_millis(300);
            std::iter::from_fn(|| socket.receive(end.saturating_duration_since(Instant::now())))
                .any(|frame| self.take(socket, &frame))
        })
    }
}

fn vlans(lab: Lab, family: Family) {
    let socket = Raw::open(lab.left(), "left");
    let (ten, twenty) = (Station::new(family, 10), Station::new(family, 20));
    let right = lab.address("right", family);
    for station in [&ten, &twenty] {
        let gateway = station.find_gateway(&socket);
        assert!(station.reaches(&socket, gateway, right), "VLAN {:?} reaches no untagged host", station.vlan);
        assert!(station.reaches(&socket, gateway, station.gateway), "VLAN {:?}'s own router", station.vlan);
    }
    // From one VLAN into the other: the frame comes back by the same cable with the other tag.
    let gateway = ten.find_gateway(&socket);
    let crossed = (0..5).any(|number| {
        socket.send(&ten.echo_request(gateway, twenty.own, number));
        let end = Instant::now() + Duration::from_millis(300);
        std::iter::from_fn(|| socket.receive(end.saturating_duration_since(Instant::now()))).any(|frame| {
            twenty.take(&socket, &frame);
            let there = frame.bytes[..6] == twenty.mac && frame.bytes.ends_with(b"tagged");
            there && frame.vlan == Some(20)
        })
    });
    assert!(crossed, "no packet got from VLAN 10 into VLAN 20");
    // A VLAN that nobody configured, and no VLAN at all.
    for vlan in [Some(30), None] {
        let stranger = Station { vlan, ..Station::new(family, 10) };
        assert!(!stranger.reaches(&socket, gateway, right), "VLAN {vlan:?} gets through");
    }
    let books = lab.finish().unwrap();
    assert!(books["dropped"]["vlan-unknown"].as_u64() > Some(0), "{}", books["dropped"]);
}

/// The hand-made hosts themselves, without tags, with a router of which nobody doubts that it routes; and tags on the cable.
#[test]
fn root_hand_made_hosts_work_with_the_kernel() {
    let test = "root_hand_made_hosts_work_with_the_kernel";
    let Some(_turn) = turn(test, Needs::Little, Kernel::Can) else { return };
    let lab = Plan::two_hosts().build(Dut::Kernel);
    // Only the hand-made host has the addresses.
    lab.left().run("ip addr flush dev left");
    let socket = Raw::open(lab.left(), "left");
    for family in [Family::V4, Family::V6] {
        let station = Station { vlan: None, ..Station::new(family, 1) };
        let gateway = station.find_gateway(&socket);
        assert!(station.reaches(&socket, gateway, lab.address("right", family)));
        assert!(station.reaches(&socket, gateway, station.gateway));
        assert!(!station.reaches(&socket, gateway, family.pick("10.9.9.9", "fd00:9::9").parse().unwrap()));
    }
    let far_end = Raw::open(&lab.router.ns, "tm-left");
    let tagged = Station::new(Family::V4, 10);
    socket.send(&tagged.frame([0xff; 6], EtherType(0x88b5), b"local experiment"));
    let arrived = std::iter::from_fn(|| far_end.receive(Duration::from_secs(2)))
        .find(|frame| frame.bytes.ends_with(b"local experiment"))
        .unwrap();
    assert_eq!((arrived.vlan, &arrived.bytes[12..14]), (Some(10), &[0x88, 0xb5][..]));
    lab.finish();
}

fn plan(family: Family) -> Plan {
    let left = Link { addresses: false, ..Link::new("left", 1) };
    let vlan = |vlan: u8| {
        let address = Station::new(family, vlan).gateway;
        let length = family.pick(24, 64);
        format!("[[interface]]\nport = \"left\"\nvlan = {vlan}\naddresses = [\"{address}/{length}\"]\n")
    };
    Plan::new([left, Link::new("right", 2)]).config(&(vlan(10) + &vlan(20)))
}

#[test]
fn root_vlans_ipv4() {
    let Some(turn) = turn("root_vlans_ipv4", Needs::Little, Kernel::Cannot) else { return };
    vlans(plan(Family::V4).build(turn.dut), Family::V4);
}

#[test]
fn root_vlans_ipv6() {
    let Some(turn) = turn("root_vlans_ipv6", Needs::Little, Kernel::Cannot) else { return };
    vlans(plan(Family::V6).build(turn.dut), Family::V6);
}
