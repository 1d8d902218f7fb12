//! The encapsulation in a graph between ports in memory, and golden frames.
//!
//! ```text
//! port in --> tag (network header, label) --> encapsulate --forward--> send (link header) --> port forward
//!                                                  |------neighbor------------------------> port neighbor
//!                                                  +------error--> ICMP error node -------> port error
//! ```
//! `tag` and `send` stand for the gate and for the router's forwarding node, which this crate does not see.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // every test file uses a part of this module

pub mod frames;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tidemill_burst::{Memory, Packet};
use tidemill_gatekeeper::Tag;
use tidemill_gatekeeper::nodes::encapsulate::{self, Encapsulate};
use tidemill_gatekeeper::tunnel::{Endpoint, Endpoints, Outer};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Snapshot, Verdict};
use tidemill_ip::icmp::IcmpBoard;
use tidemill_ip::nodes::{icmp4_error, icmp6_error};
use tidemill_ip::{Adjacency, Interface, Interfaces, Kind, Martians, NextHops, Settings};
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family, Table};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::Port;
use tidemill_port::memory::{Frame, MemoryPort};
use tidemill_wire::{EtherType, MacAddr};

/// The MAC address of every next hop.
pub const HOP: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// Labels of the next hops that every run has.
pub mod label {
    pub const PLAIN: u32 = 1;
    pub const TAGGED: u32 = 2;
    pub const GLEAN: u32 = 3;
    pub const UNRESOLVED: u32 = 4;
    pub const GROUP: u32 = 5;
    /// Those of [`ENDS`](super::ENDS) begin here.
    pub const ENDS: u32 = 6;
}

/// What leads nowhere, and the name that a packet is dropped under there.
pub const ENDS: [(Kind, &str); 9] = [
    (Kind::Local, "next-hop-unknown"),
    (Kind::Kernel, "next-hop-unknown"),
    (Kind::NoRoute, "no-route"),
    (Kind::Unreachable, "unreachable"),
    (Kind::Blackhole, "blackhole"),
    (Kind::Prohibited, "prohibited"),
    (Kind::Broadcast, "broadcast"),
    (Kind::Down, "interface-down"),
    (Kind::Unknown, "next-hop-unknown"),
];

/// A family, as far as tests see it.
pub trait Net: Outer + Family {
    const ETHERTYPE: EtherType;
    fn error_node(settings: View<Settings>, board: &IcmpBoard) -> Box<dyn Node>;
}

impl Net for u32 {
    const ETHERTYPE: EtherType = EtherType::IPV4;
    fn error_node(settings: View<Settings>, board: &IcmpBoard) -> Box<dyn Node> {
        Box::new(icmp4_error::Icmp4Error::new(settings, board.register()))
    }
}

impl Net for u128 {
    const ETHERTYPE: EtherType = EtherType::IPV6;
    fn error_node(settings: View<Settings>, board: &IcmpBoard) -> Box<dyn Node> {
        Box::new(icmp6_error::Icmp6Error::new(settings, board.register()))
    }
}

/// A frame for the encapsulation: its bytes, where its network header is, its tag, and what else happens to it before.
#[derive(Clone)]
pub struct Input {
    pub bytes: Vec<u8>,
    pub l3: u8,
    pub tag: Tag,
    pub edit: fn(&mut Packet),
}

impl Input {
    /// An IP packet behind an Ethernet header with so many VLAN tags.
    pub fn new<A: Net>(ip: &[u8], tags: usize, grantor: u16, dscp: u8) -> Self {
        let mut bytes = vec![0xee; 12];
        for _ in 0..tags {
            bytes.extend([0x81, 0, 0, 7]);
        }
        bytes.extend(A::ETHERTYPE.0.to_be_bytes());
        let l3 = bytes.len() as u8;
        bytes.extend(ip);
        Input { bytes, l3, tag: Tag { grantor, dscp }, edit: |_| {} }
    }
}

/// What a run has.
pub struct Setup<A: Net> {
    /// By number.
    pub endpoints: Endpoints<A>,
    pub routes: Vec<(Prefix<A>, u32)>,
    pub mtu: u16,
    /// Frames of memory.
    pub frames: usize,
    pub worker: usize,
}

impl<A: Net> Setup<A> {
    /// One Grantor, by a link of MTU 1500.
    pub fn new(source: &str, grantor: &str) -> Self {
        let address = |text| <A as tidemill_lpm::Address>::parse(text).unwrap();
        Setup {
            endpoints: vec![Endpoint::new(address(source), address(grantor))],
            routes: vec![(Prefix::new(A::MIN, 0).unwrap(), label::PLAIN)],
            mtu: 1500,
            frames: 512,
            worker: 0,
        }
    }

    /// The route of everything.
    pub fn by(mut self, label: u32) -> Self {
        self.routes[0].1 = label;
        self
    }

    pub fn run(&self, inputs: Vec<Input>) -> Run {
        self.run_bursts(vec![inputs], |_, _| {})
    }

    /// Gives the inputs in bursts; `between` is told how many have been given, and may change the routes.
    pub fn run_bursts(
        &self,
        bursts: Vec<Vec<Input>>,
        mut between: impl FnMut(u64, &mut Table<A>) + Send,
    ) -> Run {
        let domain = Domain::new();
        let rib: Rib<A> = self.routes.iter().map(|(prefix, label)| (*prefix, Label(*label))).collect();
        let mut table = Table::new(&domain, rib, &Algorithm::Auto).unwrap();
        let endpoints = Publisher::new(&domain, self.endpoints.clone());
        let hops = Publisher::new(&domain, next_hops::<A>(self.mtu));
        let settings = Publisher::new(&domain, settings());
        let board = Arc::new(IcmpBoard::default());

        let mut graph = GraphBuilder::new(["in", "forward", "neighbor", "error"]);
        let all: VecDeque<Input> = bursts.iter().flatten().cloned().collect();
        let tagger = Tagger(Arc::new(Mutex::new(all)));
        graph.input("in", "tag").node("tag", ["out"], move |_| Box::new(tagger.clone()));
        let (views, worker) = ((endpoints.view(), table.view(), hops.view()), self.worker);
        graph.node("encapsulate", encapsulate::OUTPUTS, move |_| {
            let (endpoints, fib, hops) = views.clone();
            Box::new(Encapsulate::<A>::new(worker, endpoints, fib, hops))
        });
        let view = hops.view();
        graph.node("send", ["out"], move |_| Box::new(Sender(view.clone())));
        let view = settings.view();
        graph.node("icmp-error", ["lookup"], move |_| A::error_node(view.clone(), &board));
        graph.edge("tag", "out", "encapsulate").edge("encapsulate", "forward", "send");
        graph.edge("encapsulate", "error", "icmp-error").edge("icmp-error", "lookup", "port:error");
        graph.edge("encapsulate", "neighbor", "port:neighbor").edge("send", "out", "port:forward");

        let frame = |input: Input| Frame::at(1_000_000_000, input.bytes);
        let mut bursts = Some(bursts.into_iter().map(|burst| burst.into_iter().map(frame).collect()));
        let ports: [MemoryPort; 4] =
            std::array::from_fn(|_| MemoryPort::new("memory", bursts.take().into_iter().flatten()));
        let outputs = ports.each_ref().map(MemoryPort::sent);
        let ports = ports.map(|port| vec![Box::new(port) as Box<dyn Port>]);
        let memory = Memory::new(self.frames, 16384).unwrap();
        let options = Options {
            clock: Clock::Capture,
            frames_per_worker: self.frames,
            pin: false,
            limits: Limits::default(),
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        let graph = graph.build().unwrap();
        let engine = Engine::new(graph, 1, ports.into(), &memory, &domain, options).unwrap();
        let mut given = 0;
        let outcome = engine.run(|_| {
            given += 1;
            between(given, &mut table);
        });
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        let ledger = outcome.snapshot.ledger();
        assert!(ledger.balances(), "{ledger:?}");
        let pool = outcome.snapshot.pool;
        assert_eq!((pool.free, pool.unnamed), (pool.frames, 0), "frames are home, and none came unnamed");
        let [_, forward, neighbor, error] = outputs.map(|output| output.frames());
        Run { snapshot: outcome.snapshot, forward, neighbor, error }
    }
}

/// What came of a run: frames by output.
pub struct Run {
    pub snapshot: Snapshot,
    pub forward: Vec<Vec<u8>>,
    pub neighbor: Vec<Vec<u8>>,
    pub error: Vec<Vec<u8>>,
}

impl Run {
    /// The names of the drop reasons with their counts, `reason=n`.
    pub fn drops(&self) -> String {
        let ledger = self.snapshot.ledger();
        let texts: Vec<_> = ledger.dropped.iter().map(|(reason, n)| format!("{reason}={n}")).collect();
        texts.join(" ")
    }
}

/// The interface that packets leave by, and its sibling of VLAN 9.
fn out(mtu: u16) -> [Interface; 2] {
    let plain = Interface { mtu, ..Interface::of_port(1, "forward") };
    [plain.clone(), Interface { vlan: Some(9), ..plain }]
}

/// The link header of a plain next hop.
pub fn plain_link<A: Net>() -> Vec<u8> {
    let [plain, _] = out(1500);
    let (bytes, len) = plain.ethernet(HOP, A::ETHERTYPE);
    bytes[..len].to_vec()
}

/// The link header of a next hop in VLAN 9.
pub fn tagged_link<A: Net>() -> Vec<u8> {
    let [_, tagged] = out(1500);
    let (bytes, len) = tagged.ethernet(HOP, A::ETHERTYPE);
    bytes[..len].to_vec()
}

fn next_hops<A: Net>(mtu: u16) -> NextHops {
    let [plain, tagged] = out(mtu);
    let mut list = vec![
        Adjacency::of(Kind::NoRoute),
        Adjacency::forward(1, &plain, HOP, A::ETHERTYPE),
        Adjacency::forward(2, &tagged, HOP, A::ETHERTYPE),
        Adjacency::glean(1, &plain),
        Adjacency::unresolved(1, &plain, "192.0.2.9".parse().unwrap()),
        Adjacency::of(Kind::Unknown),
    ];
    list.extend(ENDS.map(|(kind, _)| Adjacency::of(kind)));
    let mut hops = NextHops::new(list);
    hops.set_group(label::GROUP, &[label::PLAIN, label::TAGGED, label::PLAIN, label::GLEAN]);
    hops
}

fn settings() -> Settings {
    let mut front = Interface::of_port(0, "in");
    front.v4.push(("192.0.2.77".parse().unwrap(), "192.0.2.0/24".parse().unwrap()));
    front.v6.push(("2001:db8:77::1".parse().unwrap(), "2001:db8:77::/64".parse().unwrap()));
    let others = ["forward", "neighbor", "error"].iter().enumerate();
    let others = others.map(|(n, name)| Interface::of_port(n as u16 + 1, name));
    Settings {
        interfaces: Interfaces::new([front].into_iter().chain(others).collect(), 4),
        martians: Martians::default(),
        icmp_rate_per_s: 1000,
        icmp_rate_per_prefix_per_s: 1000,
        ttl: 64,
        neighbor_rate_per_s: 100,
        neighbor_rate_per_source_per_s: 100,
    }
}

/// Stands for the gate: what each packet is tagged with, in order.
#[derive(Clone)]
struct Tagger(Arc<Mutex<VecDeque<Input>>>);

impl Node for Tagger {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        let mut inputs = self.0.lock().unwrap();
        for packet in burst {
            let input = inputs.pop_front().unwrap();
            (packet.l3, packet.label) = (input.l3, input.tag.label());
            (input.edit)(packet);
        }
    }
}

/// Stands for the router's forwarding node: writes the link header, lowers no TTL of our own packets.
struct Sender(View<NextHops>);

impl Node for Sender {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        let hops = self.0.get(cx.reader);
        for packet in burst {
            assert!(packet.is_own() && packet.l3 == 14, "{packet:?}");
            let hop = hops.get(packet.label);
            assert_eq!(packet.port, hop.interface, "looked up again, it is in the Grantors' VRF");
            let header = hop.header();
            assert!(packet.grow_front(header.len() - 14));
            packet.data_mut()[..header.len()].copy_from_slice(header);
        }
    }
}
