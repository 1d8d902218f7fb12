//! The gate's node in a graph: whom it does not ask any policy about.

use super::*;
use crate::config::{Action, Driver, GatekeeperSection, Order, PolicyConfig};
use crate::control::GatekeeperControl;
use crate::counters::Counter;
use crate::family::Gated;
use std::net::IpAddr;
use tidemill_burst::Memory;
use tidemill_graph::{Clock, Engine, GraphBuilder, Limits, Options};
use tidemill_ip::{Interface, Interfaces};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort};
use tidemill_wire::Protocol;

const START: u64 = 1_700_000_000_000_000_000;

/// Finds out what a frame is.
struct Ethernet;

impl Node for Ethernet {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            packet.l3 = 14;
            *verdict = Verdict::Next(u8::from(packet.data()[14] >> 4 == 6));
        }
    }
}

/// A packet, as far as the gate reads it.
fn frame(source: &str, destination: &str) -> Frame {
    let mut bytes = vec![0; 14 + 60];
    let ends: [IpAddr; 2] = [source, destination].map(|end| end.parse().unwrap());
    match ends {
        [IpAddr::V4(source), IpAddr::V4(destination)] => {
            (bytes[14], bytes[23]) = (0x45, Protocol::TCP.0);
            bytes[26..30].copy_from_slice(&source.octets());
            bytes[30..34].copy_from_slice(&destination.octets());
        }
        [IpAddr::V6(source), IpAddr::V6(destination)] => {
            (bytes[14], bytes[19], bytes[20]) = (0x60, 20, Protocol::TCP.0);
            bytes[22..38].copy_from_slice(&source.octets());
            bytes[38..54].copy_from_slice(&destination.octets());
        }
        _ => panic!("of two families"),
    }
    Frame::at(START, bytes)
}

/// What comes from the front in our name is dropped, wherever it goes; what comes from behind in our name is not, nor who differs from us in one bit.
#[test]
fn nobody_in_front_has_our_addresses() {
    let ours = ["10.0.0.1", "192.0.2.1", "fd00::1", "2001:db8:1::1"];
    let others = ["10.0.0.65", "10.64.0.1", "192.0.2.0", "10.0.0.9", "fd00::41", "fd01::1", "2001:db8:1::"];
    let to = |source: &str| match source.contains(':') {
        false => ["8.8.8.8", "203.0.113.7", "198.51.100.7", "10.0.0.9", "10.0.0.1"],
        true => ["2620::1", "2001:db8:2::7", "2001:db8:3::7", "fd00::9", "fd00::1"],
    };
    let all = |sources: &[&str]| -> Vec<Frame> {
        sources.iter().flat_map(|source| to(source).map(|to| frame(source, to))).collect()
    };
    let mut back = Interface::of_port(1, "back");
    back.v4.push(("10.0.0.1".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
    back.v6.push(("fd00::1".parse().unwrap(), "fd00::/64".parse().unwrap()));
    let mut front = Interface::of_port(0, "front");
    front.v4.push(("192.0.2.1".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
    front.v6.push(("2001:db8:1::1".parse().unwrap(), "2001:db8:1::/64".parse().unwrap()));
    let interfaces = Interfaces::new(vec![front, back], 2);
    let policy = |prefix: &str, action, grantors: &[&str]| PolicyConfig {
        prefix: prefix.into(),
        action,
        grantors: grantors.iter().map(|grantor| (*grantor).into()).collect(),
    };
    for order in [Order::OnePass, Order::FlowFirst] {
        let section = GatekeeperSection {
            policy: vec![
                policy("203.0.113.0/24", Action::Grantor, &["10.0.0.9"]),
                policy("198.51.100.0/24", Action::Drop, &[]),
                policy("2001:db8:2::/48", Action::Grantor, &["fd00::9"]),
                policy("2001:db8:3::/48", Action::Drop, &[]),
            ],
            flows: 100,
            order,
            driver: Driver::Group,
            ..GatekeeperSection::default()
        };
        let domain = Domain::new();
        let control = GatekeeperControl::with_secret(&section, &interfaces, 1, &domain, 7).unwrap();
        let mut graph = GraphBuilder::new(["front", "back"]);
        graph.node("ethernet", ["ip4", "ip6"], |_| Box::new(Ethernet));
        graph.input("front", "ethernet").input("back", "ethernet");
        let (settings, seats) = (control.settings.view(), control.v4.seats.clone());
        let (policies, choices) = control.v4.policies.views();
        graph.node("gate4", OUTPUTS, move |worker| {
            let (settings, policies, choices) = (settings.clone(), policies.clone(), choices.clone());
            Box::new(GateNode::new(settings, policies, choices, seats.take(worker)))
        });
        let (settings, seats) = (control.settings.view(), control.v6.seats.clone());
        let (policies, choices) = control.v6.policies.views();
        graph.node("gate6", OUTPUTS, move |worker| {
            let (settings, policies, choices) = (settings.clone(), policies.clone(), choices.clone());
            Box::new(GateNode::new(settings, policies, choices, seats.take(worker)))
        });
        graph.edge("ethernet", "ip4", "gate4").edge("ethernet", "ip6", "gate6");
        for output in OUTPUTS {
            graph.edge("gate4", output, "port:back").edge("gate6", output, "port:back");
        }
        let memory = Memory::new(512, 2048).unwrap();
        let options = Options {
            clock: Clock::Capture,
            frames_per_worker: 512,
            pin: false,
            limits: Limits::default(),
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        // Ours among the others, so that these are still judged as what they are.
        let from_the_front = [all(&others[..3]), all(&ours), all(&others[3..])].concat();
        let came = from_the_front.len() as u64;
        let from_behind = all(&ours);
        let behind = from_behind.len();
        let back = MemoryPort::new("back", [from_behind]);
        let sent = back.sent();
        let ports: Vec<Vec<Box<dyn Port>>> =
            vec![vec![Box::new(MemoryPort::new("front", [from_the_front]))], vec![Box::new(back)]];
        let engine = Engine::new(graph.build().unwrap(), 1, ports, &memory, &domain, options).unwrap();
        let outcome = engine.run(|_| ());
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        let ledger = outcome.snapshot.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        let counters = control.counters();
        let wanted = 5 * ours.len() as u64;
        assert_eq!(ledger.dropped_for(DropReason::MartianSource), wanted, "{order:?}: {ledger:?}");
        assert_eq!(counters.get(Counter::SourceOurs), wanted);
        assert_eq!(counters.get(Counter::Front), came);
        // The others are judged as ever: of five destinations of each, policies drop one and ask about one.
        let rest = 5 * others.len() as u64;
        let judged = [Counter::Bypassed, Counter::Requests, Counter::PolicyDropped];
        let judged = judged.map(|counter| counters.get(counter));
        assert_eq!(judged, [rest / 5 * 3, rest / 5, rest / 5], "{order:?}");
        // Nothing in our name has left but what came from behind.
        let is_ours = |frame: &Vec<u8>| {
            let ip = &frame[14..];
            let source = match ip[0] >> 4 {
                4 => u32::pair(ip).0.address(),
                _ => u128::pair(ip).0.address(),
            };
            ours.contains(&source.to_string().as_str())
        };
        assert_eq!(sent.frames().iter().filter(|frame| is_ours(frame)).count(), behind);
        assert_eq!(sent.frames().len(), behind + came as usize - (wanted + rest / 5) as usize);
    }
}
