//! Nodes between two ports in memory: what `lan` receives goes to the node that it is for; what would be looked up
//! leaves by `wan`, what goes straight back by `lan`.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of this module

use std::sync::Arc;
use tidemill_burst::{Memory, Packet};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Snapshot, Verdict};
use tidemill_ip::icmp::IcmpBoard;
use tidemill_ip::neighbor::{Event, Link};
use tidemill_ip::nodes::arp_input::ArpInput;
use tidemill_ip::nodes::icmp4_error::{self, Icmp4Error};
use tidemill_ip::nodes::icmp6_error::{self, Icmp6Error};
use tidemill_ip::nodes::local::{self, Local};
use tidemill_ip::nodes::nd_input::{NdInput, is_neighbor_discovery};
use tidemill_ip::{Interface, Interfaces, Martians, Settings};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort};
use tidemill_wire::vlan::L2;
use tidemill_wire::{EtherType, MacAddr, ethernet};

/// `lan`'s MAC address.
pub const US: MacAddr = MacAddr([0x02, 0x49, 0, 0, 0, 0]);
/// Some host's.
pub const HOST: MacAddr = MacAddr([0x02, 0xaa, 0, 0, 0, 9]);

/// Stands for `ethernet-input` and `ip6-input`. VLAN 7 of `lan` is interface 2.
struct Sort;

impl Node for Sort {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            let l2 = L2::parse(packet.data()).unwrap();
            packet.l3 = l2.l3_offset as u8;
            if l2.vlan_ids().any(|id| id == 7) {
                packet.port = 2;
            }
            *verdict = match l2.ethertype {
                EtherType::ARP => Verdict::Next(0),
                _ if is_neighbor_discovery(&packet.data()[l2.l3_offset..]) => Verdict::Next(1),
                _ => Verdict::Next(2),
            };
        }
    }
}

/// What became of the frames.
pub struct Run {
    pub snapshot: Snapshot,
    /// Sent by `lan`: answers that go straight back.
    pub back: Vec<Vec<u8>>,
    /// Sent by `wan`: what would be looked up.
    pub looked_up: Vec<Vec<u8>>,
    /// What the control side was told.
    pub events: Vec<Event>,
}

impl Run {
    /// The names of the drop reasons with their counts, `reason=n`, in the order of the registry.
    pub fn drops(&self) -> String {
        let ledger = self.snapshot.ledger();
        let texts: Vec<_> = ledger.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
        texts.join(" ")
    }

    /// The one frame that was sent, on either port.
    pub fn only(&self) -> &[u8] {
        let all: Vec<_> = self.back.iter().chain(&self.looked_up).collect();
        assert_eq!(all.len(), 1, "{}", self.drops());
        all[0]
    }
}

/// `lan` with addresses of both families and a VLAN, and `wan` without.
pub fn settings() -> Settings {
    let mut lan = Interface::of_port(0, "lan");
    lan.v4.push(("10.1.0.1".parse().unwrap(), "10.1.0.0/24".parse().unwrap()));
    lan.v6.push(("fd01::1".parse().unwrap(), "fd01::/64".parse().unwrap()));
    lan.link_local.push("fe80::1".parse().unwrap());
    let tagged = Interface { name: "lan.7".into(), vlan: Some(7), ..lan.clone() };
    Settings {
        interfaces: Interfaces::new(vec![lan, Interface::of_port(1, "wan"), tagged], 2),
        martians: Martians::Standard,
        icmp_rate_per_s: 100,
        icmp_rate_per_prefix_per_s: 100,
        ttl: 64,
        neighbor_rate_per_s: 100,
        neighbor_rate_per_source_per_s: 100,
    }
}

/// Receives frames on `lan`, each with its time in nanoseconds, and runs until they are through. What is still held is
/// given up then.
pub fn run(settings: Settings, frames: Vec<(u64, Vec<u8>)>) -> Run {
    let domain = Domain::new();
    let settings = Publisher::new(&domain, settings);
    let (link, board) = (Arc::new(Link::default()), Arc::new(IcmpBoard::default()));
    let names = ["lan", "wan"];
    let mut graph = GraphBuilder::new(names);
    graph.node("sort", ["arp", "nd", "local"], |_| Box::new(Sort));
    let (view, to) = (settings.view(), link.clone());
    graph.node("arp-input", names, move |_| Box::new(ArpInput::new(view.clone(), to.clone())));
    let (view, to) = (settings.view(), link.clone());
    graph.node("nd-input", names, move |_| Box::new(NdInput::new(view.clone(), to.clone())));
    let view = settings.view();
    graph.node("local", local::OUTPUTS.into_iter().chain(names), move |_| Box::new(Local::new(view.clone())));
    let (view, counters) = (settings.view(), board.clone());
    graph.node("icmp4-error", icmp4_error::OUTPUTS, move |_| {
        Box::new(Icmp4Error::new(view.clone(), counters.register()))
    });
    let (view, counters) = (settings.view(), board.clone());
    graph.node("icmp6-error", icmp6_error::OUTPUTS, move |_| {
        Box::new(Icmp6Error::new(view.clone(), counters.register()))
    });
    graph.input("lan", "sort");
    graph.edge("sort", "arp", "arp-input").edge("sort", "nd", "nd-input").edge("sort", "local", "local");
    graph.edge("local", "ip4", "port:wan").edge("local", "ip6", "port:wan");
    graph.edge("local", "error4", "icmp4-error").edge("local", "error6", "icmp6-error");
    graph.edge("icmp4-error", "lookup", "port:wan").edge("icmp6-error", "lookup", "port:wan");
    for (node, name) in ["arp-input", "nd-input", "local"].into_iter().flat_map(|n| names.map(|p| (n, p))) {
        graph.edge(node, name, &format!("port:{name}"));
    }
    // One at a time: each has its own time.
    let frames = frames.into_iter().map(|(time_ns, bytes)| vec![Frame::at(time_ns, bytes)]);
    let ports = [MemoryPort::new(names[0], frames), MemoryPort::new(names[1], [])];
    let outputs = ports.each_ref().map(MemoryPort::sent);
    let ports = ports.map(|port| vec![Box::new(port) as Box<dyn Port>]);
    let memory = Memory::new(1024, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 1024,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let engine = Engine::new(graph.build().unwrap(), 1, ports.into(), &memory, &domain, options).unwrap();
    let outcome = engine.run(|_| ());
    assert!(outcome.errors.is_empty());
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances(), "{ledger:?}");
    let pool = outcome.snapshot.pool;
    assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
    let [back, looked_up] = outputs.map(|output| output.frames());
    Run { snapshot: outcome.snapshot, back, looked_up, events: std::iter::from_fn(|| link.event()).collect() }
}

/// One frame, at no time in particular.
pub fn run_one(frame: Vec<u8>) -> Run {
    run(settings(), vec![(1, frame)])
}

/// Puts an Ethernet header in front and pads to 60 bytes.
pub fn frame(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    ethernet::Repr { dst, src: HOST, ethertype }.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// As [`frame`], on VLAN 7 with priority 5.
pub fn tagged(dst: MacAddr, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let [high, low] = ethertype.0.to_be_bytes();
    frame(dst, EtherType::VLAN, &[&[0xa0, 7, high, low], payload].concat())
}
