//! A Gatekeeper for the target `gate_packet`: its addresses and configuration, packets and decisions that mean something to it, and stand-ins for the nodes of
//! the router round about, of which the last note what comes.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidemill_burst::Packet;
use tidemill_decision::authenticated::{self, Header, Message};
use tidemill_decision::keys::{Ends, KeyText, Keyring};
use tidemill_decision::{Decision, GATEKEEPER_PORT, GRANTOR_PORT, interoperable};
use tidemill_gatekeeper::GatekeeperSection;
use tidemill_gatekeeper::config::{Action, DecisionFormat, Driver, Order, PolicyConfig};
use tidemill_graph::{Context, GraphBuilder, Node, Verdict};
use tidemill_ip::queue::Bandwidth;
use tidemill_ip::{Adjacency, Interface, Kind, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family, Table};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::flow::Addresses;
use tidemill_wire::{EtherType, MacAddr, Protocol, icmpv4, icmpv6, ipv4, ipv6, udp};

/// The port in front.
pub(crate) const FRONT: u16 = 0;

/// Addresses of a family: ours, Grantors', senders', and where packets go: twice to where Grantors decide, to where the policy says drop, to where none is about, ...
pub(crate) struct Net<A> {
    pub(crate) ours: A,
    pub(crate) grantors: [A; 2],
    from: [A; 4],
    to: [A; 8],
}

const FROM4: u32 = 0xc633_6400;
pub(crate) const NET4: Net<u32> = Net {
    ours: 0x0a00_0001,
    grantors: [0x0a00_0009, 0x0a00_0008],
    from: [FROM4, FROM4 + 1, FROM4 + 2, FROM4 + 3],
    to: [
        0xcb00_7150, 0xcb00_7151, 0xc000_0201, 0x0808_0808, 0x0a00_0009, 0x0a00_0008, 0x0a00_0001, 0xcb00_7150,
    ],
};
const FROM6: u128 = 0x2001_0db8 << 96;
pub(crate) const OWN6: u128 = 0xfd00 << 112;
const SERVER6: u128 = 0x2001_0db9 << 96;
pub(crate) const NET6: Net<u128> = Net {
    ours: OWN6 | 1,
    grantors: [OWN6 | 9, OWN6 | 8],
    from: [FROM6, FROM6 + 1, FROM6 + 2, FROM6 + 3],
    to: [
        SERVER6 | 0x50, SERVER6 | 0x51, 0x2001_0dba << 96 | 1, 0x2620 << 112 | 1, OWN6 | 9, OWN6 | 8, OWN6 | 1,
        SERVER6 | 0x50,
    ],
};

impl<A: Copy> Net<A> {
    /// Source and destination of a packet, by their last bytes.
    fn ends(&self, by_the_front: bool, source: u8, destination: u8) -> (A, A) {
        let (s, d) = (usize::from(source), usize::from(destination));
        match by_the_front {
            true => (self.from[s & 3], self.to[d & 7]),
            false => (self.to[s & 7], if d & 1 == 0 { self.ours } else { self.from[d >> 1 & 3] }),
        }
    }
}

/// Puts right what would keep a packet from being one: version, lengths, addresses, checksums.
pub(crate) fn put_right(ip: &mut [u8], v6: bool, by_the_front: bool) {
    let len = ip.len() as u16;
    if v6 && ip.len() >= ipv6::HEADER_LEN {
        ip[0] = 0x60 | ip[0] & 15;
        ip[4..6].copy_from_slice(&(len - ipv6::HEADER_LEN as u16).to_be_bytes());
        let (source, destination) = NET6.ends(by_the_front, ip[23], ip[39]);
        ip[8..24].copy_from_slice(&source.to_be_bytes());
        ip[24..40].copy_from_slice(&destination.to_be_bytes());
        if ipv6::next_header(ip) == Protocol::ICMPV6 && ip.len() >= ipv6::HEADER_LEN + 8 {
            let pseudo = Pseudo::V6 { src: source.into(), dst: destination.into() };
            icmpv6::fill_checksum(&mut ip[ipv6::HEADER_LEN..], &pseudo);
        }
    } else if !v6 && ip.len() >= ipv4::HEADER_LEN {
        let words = (ip[0] & 15).max(5);
        ip[0] = 0x40 | words;
        ip[2..4].copy_from_slice(&len.to_be_bytes());
        let (source, destination) = NET4.ends(by_the_front, ip[15], ip[19]);
        ip[12..16].copy_from_slice(&source.to_be_bytes());
        ip[16..20].copy_from_slice(&destination.to_be_bytes());
        let header = usize::from(words) * 4;
        if ip.len() >= header {
            ipv4::fill_checksum(ip);
        }
        if ipv4::protocol(ip) == Protocol::ICMP && ip.len() >= header + 8 {
            icmpv4::fill_checksum(&mut ip[header..]);
        }
    }
}

/// What `ip4-input` and `ip6-input` let through, padding cut off.
pub(crate) fn checked(ip: &mut Vec<u8>, v6: bool) -> bool {
    let bytes = &ip[..];
    let len = match v6 {
        false if ipv4::check(bytes).is_ok() && ipv4::checksum_ok(bytes) => usize::from(ipv4::total_len(bytes)),
        true if ipv6::check(bytes).is_ok() => ipv6::HEADER_LEN + usize::from(ipv6::payload_len(bytes)),
        _ => return false,
    };
    ip.truncate(len);
    true
}

/// Messages about flows that there are, of a Grantor, as a packet.
pub(crate) fn told(
    bytes: &[u8],
    v6: bool,
    who: usize,
    keys: Option<&Keyring>,
    header: Header,
    round_ns: u64,
) -> Vec<u8> {
    let (sender, ours): (IpAddr, IpAddr) = match v6 {
        true => (IpAddr::V6(NET6.grantors[who].into()), IpAddr::V6(NET6.ours.into())),
        false => (IpAddr::V4(NET4.grantors[who].into()), IpAddr::V4(NET4.ours.into())),
    };
    let about = |decision: Decision| {
        let flow = match decision.flow {
            Addresses::V4 { src, dst } => {
                Addresses::V4 { src: NET4.from[src as usize & 3], dst: NET4.to[dst as usize & 7] }
            }
            Addresses::V6 { src, dst } => {
                Addresses::V6 { src: NET6.from[src as usize & 3], dst: NET6.to[dst as usize & 7] }
            }
        };
        Decision { flow, ..decision }
    };
    let messages = authenticated::messages(bytes).map_while(Result::ok).map(|message| match message {
        Message::Decision(decision) => Message::Decision(about(decision)),
        Message::Answer { nonce } => Message::Answer { nonce: round_ns + nonce % 8 },
        other => other,
    });
    let mut buffer = [0; 1400];
    let payload = if let Some(keys) = keys {
        let mut writer = authenticated::Writer::new(&mut buffer).expect("room");
        messages.take_while(|message| writer.push(message).is_ok()).for_each(drop);
        let ends = Ends { source: (sender, GRANTOR_PORT), destination: (ours, GATEKEEPER_PORT) };
        writer.seal(keys, &header, &ends).to_vec()
    } else {
        let mut writer = interoperable::Writer::new(&mut buffer).expect("room");
        for message in messages {
            if let Message::Decision(decision) = message
                && writer.push(&decision).is_err()
            {
                break;
            }
        }
        writer.payload().to_vec()
    };
    let mut datagram = [&[0; udp::HEADER_LEN][..], &payload].concat();
    let (mut ip, pseudo) = match (sender, ours) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = vec![0; ipv4::HEADER_LEN];
            ipv4::Repr::new(src, dst, Protocol::UDP, datagram.len()).emit(&mut ip).expect("room");
            (ip, Pseudo::V4 { src, dst })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut ip = vec![0; ipv6::HEADER_LEN];
            ipv6::Repr::new(src, dst, Protocol::UDP, datagram.len()).emit(&mut ip).expect("room");
            (ip, Pseudo::V6 { src, dst })
        }
        _ => unreachable!("one family"),
    };
    let repr = udp::Repr { src_port: GRANTOR_PORT, dst_port: GATEKEEPER_PORT, payload_len: payload.len() };
    repr.emit(&mut datagram, &pseudo).expect("room");
    ip.extend(datagram);
    ip
}

/// A new policy for where Grantors decide.
pub(crate) fn policy(v6: bool, how: u8) -> PolicyConfig {
    let grantors: &[&str] = if v6 { &["fd00::9", "fd00::8"] } else { &["10.0.0.9", "10.0.0.8"] };
    let (action, named) = match how & 3 {
        0 => (Action::Grantor, grantors),
        1 => (Action::Grantor, &grantors[1..]),
        2 => (Action::Drop, &grantors[2..]),
        _ => (Action::Route, &grantors[2..]),
    };
    let prefix = if v6 { "2001:db9::/32" } else { "203.0.113.0/24" };
    PolicyConfig { prefix: prefix.into(), action, grantors: named.iter().map(|text| (*text).into()).collect() }
}

pub(crate) fn section(how: u8) -> GatekeeperSection {
    let dropped =
        |prefix: &str| PolicyConfig { prefix: prefix.into(), action: Action::Drop, grantors: Vec::new() };
    let is_authenticated = how & 1 == 0;
    GatekeeperSection {
        front: vec!["front".into()],
        policy: vec![policy(false, 0), policy(true, 0), dropped("192.0.2.0/24"), dropped("2001:dba::/32")],
        flows: if how & 2 == 0 { 100 } else { 2 },
        idle_s: 5,
        program_flows: 4,
        bandwidth: Some(Bandwidth::Text("10 Mbps".into())),
        request_queue: 8,
        decisions: Some(match is_authenticated {
            true => DecisionFormat::Authenticated,
            false => DecisionFormat::Interoperable,
        }),
        keys: if is_authenticated { vec![KeyText(format!("1 {}", "07".repeat(32)))] } else { Vec::new() },
        keep_dscp: how & 4 != 0,
        order: if how & 8 == 0 { Order::OnePass } else { Order::FlowFirst },
        driver: if how & 0x10 == 0 { Driver::Group } else { Driver::Coroutine },
        ..GatekeeperSection::default()
    }
}

/// Finds out what a frame is.
struct Ethernet;

impl Node for Ethernet {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            packet.l3 = 14;
            *verdict = Verdict::Next(u8::from(packet.data()[12..14] == EtherType::IPV6.0.to_be_bytes()));
        }
    }
}

struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

/// Tells apart what goes on, what is to us, and what is ours; counts what came by the front.
struct Lookup(Arc<AtomicU64>);

impl Node for Lookup {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            let ip = &packet.data()[usize::from(packet.l3)..];
            let to_us = match ipv4::version(ip) {
                4 => ipv4::dst_u32(ip) == NET4.ours,
                _ => ipv6::dst_u128(ip) == NET6.ours,
            };
            *verdict = Verdict::Next(if packet.is_own() { 2 } else { u8::from(to_us) });
            if packet.port == FRONT && !packet.is_own() {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A packet that has left the gate, from its IP header on.
pub(crate) struct Left {
    pub(crate) place: &'static str,
    pub(crate) port: u16,
    pub(crate) is_own: bool,
    pub(crate) ip: Vec<u8>,
}

/// Notes what comes.
struct End(&'static str, Arc<Mutex<Vec<Left>>>);

impl Node for End {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        let mut left = self.1.lock().expect("nobody panicked");
        left.extend(burst.iter().map(|packet| Left {
            place: self.0,
            port: packet.port,
            is_own: packet.is_own(),
            ip: packet.data()[usize::from(packet.l3)..].to_vec(),
        }));
        verdicts.fill(Verdict::Consume);
    }
}

/// The part of a router that the gate is put into.
pub(crate) fn router(left: &Arc<Mutex<Vec<Left>>>, routed: &Arc<AtomicU64>) -> GraphBuilder {
    let mut graph = GraphBuilder::new(["front", "back"]);
    let end = |place: &'static str| {
        let left = left.clone();
        move |_: usize| Box::new(End(place, left.clone())) as Box<dyn Node>
    };
    graph.node("ethernet", ["ip4", "ip6"], |_| Box::new(Ethernet));
    graph.input("front", "ethernet").input("back", "ethernet");
    graph.node("local", [""; 0], end("local")).node("errors", [""; 0], end("errors"));
    graph.node("ours", [""; 0], end("ours"));
    for family in ["ip4", "ip6"] {
        let name = |part: &str| format!("{family}-{part}");
        let routed = routed.clone();
        graph.node(&name("input"), ["lookup"], |_| Box::new(Pass)).edge("ethernet", family, &name("input"));
        graph.node(&name("lookup"), ["forward", "local", "ours"], move |_| Box::new(Lookup(routed.clone())));
        graph.node(&name("forward"), ["out", "error"], end("forward"));
        graph.node(&name("neighbor"), ["out"], end("neighbor"));
        graph.edge(&name("input"), "lookup", &name("lookup")).edge(&name("lookup"), "local", "local");
        graph.edge(&name("lookup"), "forward", &name("forward")).edge(&name("lookup"), "ours", "ours");
        graph.edge(&name("forward"), "out", "port:back").edge(&name("forward"), "error", "errors");
        graph.edge(&name("neighbor"), "out", "port:back");
    }
    graph
}

/// A route of everything by the back.
pub(crate) fn way<A: Family>(
    domain: &Domain,
    back: &Interface,
    kind: EtherType,
) -> (Table<A>, Publisher<NextHops>) {
    let rib: Rib<A> = [(Prefix::new(A::MIN, 0).expect("of no bits"), Label(1))].into_iter().collect();
    let hops = vec![Adjacency::of(Kind::NoRoute), Adjacency::forward(1, back, MacAddr([2; 6]), kind)];
    let table = Table::new(domain, rib, &Algorithm::Auto).expect("a small table");
    (table, Publisher::new(domain, NextHops::new(hops)))
}
