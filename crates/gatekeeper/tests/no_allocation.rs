//! The gate allocates nothing: a counting allocator watches the worker while bursts go through all of its nodes, with room in the tables and
//! without; while Grantors decide, install programs, revoke and are probed, ways turn out to be narrow, and policies change. Packets are dropped for every reason that the gate, its
//! solicitor and its desk for decisions have. Round about it are stand-ins for the router's nodes, which this crate does not see.

#![allow(clippy::unwrap_used)]

#[path = "../../lookup/tests/common/allocations.rs"]
mod allocations;

use allocations::allocations;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tidemill_burst::{Burst, DropReason, Memory, Packet, Pool};
use tidemill_decision::authenticated::{Header, Message, Range, Writer};
use tidemill_decision::keys::{Direction, Ends, Keyring};
use tidemill_decision::replay::Stamp;
use tidemill_decision::{Cookie, GATEKEEPER_PORT, GRANTOR_PORT};
use tidemill_flowprog::shipped::GRANTED;
use tidemill_gatekeeper::config::{Action, PolicyConfig};
use tidemill_gatekeeper::{
    Counter, Decision, GatekeeperControl, GatekeeperSection, Host, Verdict as Says, splice,
};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_ip::{Adjacency, Interface, Interfaces, Kind, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family, Table};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::checksum::{self, Pseudo};
use tidemill_wire::flow::Addresses;
use tidemill_wire::{EtherType, MacAddr, Protocol, ipv4, ipv6, udp};

const SECOND: u64 = 1_000_000_000;
/// 20 turns before the end of a second: the first round of probes begins in the next one.
const START: u64 = 1_700_000_000 * SECOND + 980 * SECOND / 1000;
const TURNS: u64 = 400;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

/// Receives the same frames a millisecond later each time, and some that are for one turn only, sends into nothing, and notes the allocations of its thread at each call.
struct Loop {
    frames: Vec<Vec<u8>>,
    /// By turn.
    once: Vec<Vec<Vec<u8>>>,
    turn: u64,
    marks: Arc<Mutex<Vec<u64>>>,
    counters: PortCounters,
}

impl Port for Loop {
    fn name(&self) -> &str {
        "loop"
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.marks.lock().unwrap().push(allocations()); // within its capacity
        if self.turn == TURNS {
            return Ok(RxStatus::Ended);
        }
        self.turn += 1;
        for frame in self.frames.iter().chain(self.once.get(self.turn as usize - 1).into_iter().flatten()) {
            let mut packet = pool.packet(frame).unwrap();
            packet.set_timestamp_ns(START + self.turn * SECOND / 1000);
            self.counters.rx.count(frame.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(RxStatus::Received)
    }
    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            pool.free(packet);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.counters
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

/// Lets everything go on by its first output.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

/// Tells what is to us from what is not.
struct Lookup;

impl Node for Lookup {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter().zip(verdicts) {
            let data = packet.data();
            let to: &[u8] = if data[14] >> 4 == 4 { &data[30..34] } else { &data[38..54] };
            let ours = OURS.iter().any(|ours| match ours {
                IpAddr::V4(ours) => to == ours.octets(),
                IpAddr::V6(ours) => to == ours.octets(),
            });
            *verdict = Verdict::Next(u8::from(ours));
        }
    }
}

/// Our addresses, and two Grantors'.
const OURS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
];
const GRANTORS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)),
    IpAddr::V6(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9)),
];

struct End;

impl Node for End {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Drop(DropReason::NoRoute));
    }
}

/// The part of a router that the gate is put into.
fn router() -> GraphBuilder {
    let mut graph = GraphBuilder::new(["front", "back"]);
    graph.node("ethernet", ["ip4", "ip6"], |_| Box::new(Ethernet));
    graph.input("front", "ethernet").input("back", "ethernet");
    graph.node("end", [""; 0], |_| Box::new(End)).node("errors", [""; 0], |_| Box::new(End));
    for (family, lookup) in [("ip4", "ip4"), ("ip6", "ip6")] {
        let name = |part: &str| format!("{lookup}-{part}");
        graph.node(&name("input"), ["lookup"], |_| Box::new(Pass)).edge("ethernet", family, &name("input"));
        graph.node(&name("lookup"), ["forward", "local"], |_| Box::new(Lookup));
        graph.node(&name("forward"), ["out", "error"], |_| Box::new(Pass));
        graph.node(&name("neighbor"), ["out"], |_| Box::new(Pass));
        graph.edge(&name("input"), "lookup", &name("lookup")).edge(&name("lookup"), "local", "end");
        graph.edge(&name("lookup"), "forward", &name("forward"));
        graph.edge(&name("forward"), "out", "port:back").edge(&name("forward"), "error", "errors");
        graph.edge(&name("neighbor"), "out", "end");
    }
    graph
}

fn frame(ethertype: EtherType, ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(ethertype.0.to_be_bytes());
    frame.extend(ip);
    frame
}

fn v4(source: &str, destination: &str, len: usize) -> Vec<u8> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let repr = ipv4::Repr { ttl: 64, ..ipv4::Repr::new(source, destination, Protocol::UDP, len) };
    let mut ip = vec![0; 20 + len];
    repr.emit(&mut ip).unwrap();
    frame(EtherType::IPV4, &ip)
}

fn v6_frame(source: &str, destination: &str, len: usize) -> Vec<u8> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let repr = ipv6::Repr { hop_limit: 64, ..ipv6::Repr::new(source, destination, Protocol::UDP, len) };
    let mut ip = vec![0; 40 + len];
    repr.emit(&mut ip).unwrap();
    frame(EtherType::IPV6, &ip)
}

/// A route of everything by the back.
fn way<A: Family>(
    domain: &Domain,
    back: &Interface,
    ethertype: EtherType,
) -> (Table<A>, Publisher<NextHops>) {
    let rib: Rib<A> = [(Prefix::new(A::MIN, 0).unwrap(), Label(1))].into_iter().collect();
    let hops = vec![Adjacency::of(Kind::NoRoute), Adjacency::forward(1, back, MAC, ethertype)];
    (Table::new(domain, rib, &Algorithm::Auto).unwrap(), Publisher::new(domain, NextHops::new(hops)))
}

/// Which flow a decision is about: the n-th source of ours, of either family.
fn flows(n: u32) -> [Addresses; 2] {
    [
        Addresses::V4 { src: 0xc633_6400 + n, dst: 0xcb00_7150 },
        Addresses::V6 { src: (0x2001_0db8 << 96) + u128::from(n), dst: 0x2001_0db9 << 96 | 0x50 },
    ]
}

/// Gives an IPv4 frame another protocol, and lets it be cut.
fn as_protocol(mut frame: Vec<u8>, protocol: Protocol, may_be_cut: bool) -> Vec<u8> {
    frame[23] = protocol.0;
    if may_be_cut {
        frame[20] &= !0x40;
    }
    frame[24..26].fill(0);
    let check = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame
}

fn key() -> String {
    format!("1 {}", "5a".repeat(32))
}

/// A datagram of decisions, sealed, of the Grantor of a family; `n` is its number.
fn datagram(v6: usize, n: u32, time_ns: u64, version: u32, messages: &[Message]) -> Vec<u8> {
    let keys = Keyring::parse(&key()).unwrap();
    let ends = Ends { source: (GRANTORS[v6], GRANTOR_PORT), destination: (OURS[v6], GATEKEEPER_PORT) };
    let stamp = Stamp { epoch_s: (START / SECOND) as u32, sequence: n };
    let header =
        Header { direction: Direction::ToGatekeeper, key: 0, stamp, policy_version: version, time_ns };
    let mut buffer = [0; 1472];
    let mut writer = Writer::new(&mut buffer).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    let payload = writer.seal(&keys, &header, &ends).to_vec();
    let mut datagram = [&[0; udp::HEADER_LEN][..], &payload].concat();
    let repr = udp::Repr { src_port: GRANTOR_PORT, dst_port: GATEKEEPER_PORT, payload_len: payload.len() };
    let (mut frame, pseudo) = match (GRANTORS[v6], OURS[v6]) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let frame = v4(&src.to_string(), &dst.to_string(), datagram.len());
            (frame, Pseudo::V4 { src, dst })
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let frame = v6_frame(&src.to_string(), &dst.to_string(), datagram.len());
            (frame, Pseudo::V6 { src, dst })
        }
        _ => unreachable!(),
    };
    repr.emit(&mut datagram, &pseudo).unwrap();
    let at = frame.len() - datagram.len();
    frame[at..].copy_from_slice(&datagram);
    frame
}

/// An ICMPv4 error: an outer packet of 1500 bytes to the Grantor was too long for a link of this MTU.
fn too_big(mtu: u16) -> Vec<u8> {
    let mut frame = as_protocol(v4("10.0.0.77", "10.0.0.1", 36), Protocol::ICMP, false);
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(mtu.to_be_bytes());
    icmp.extend([0x45, 4, 5, 0xdc, 0, 0, 0x40, 0, 61, 4, 0, 0, 10, 0, 0, 1, 10, 0, 0, 9]);
    icmp.extend([0x45, 0, 5, 0xc8, 0, 0, 0x40, 0]);
    let check = checksum::checksum(&icmp);
    icmp[2..4].copy_from_slice(&check.to_be_bytes());
    frame[34..].copy_from_slice(&icmp);
    frame
}

/// Where a datagram's payload is in an IPv4 frame.
const PAYLOAD: usize = 14 + ipv4::HEADER_LEN + udp::HEADER_LEN;

/// Datagrams that do not count, in a turn in which this number has been taken.
fn refused(n: u32, time_ns: u64) -> Vec<Vec<u8>> {
    let of = |time_ns| datagram(0, n, time_ns, 40, &[Message::Answer { nonce: 1 }]);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = of(time_ns);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let mut frames = vec![
        // From no Grantor.
        with(26, &[10, 0, 0, 77]),
        // In no direction.
        with(PAYLOAD + 1, &[9]),
        // Of another time.
        of(time_ns - 60 * SECOND),
        // Seen before.
        of(time_ns),
    ];
    // Of a start that nobody knows of: the tags of four in a burst are checked.
    frames.extend((0..6).map(|_| with(PAYLOAD + 4, &[0, 0, 0, 1])));
    frames
}

/// What comes from behind in each turn: of both Grantors a grant, a refusal, a program and an answer; now and then a revocation, datagrams that are forged or do not count for
/// another reason, a narrow link.
fn from_behind() -> Vec<Vec<Vec<u8>>> {
    let program = [1_u32, 500, 1000, 1000].map(u32::to_le_bytes).concat();
    let turn = |turn: u32| {
        let time_ns = START + u64::from(turn + 1) * SECOND / 1000;
        let version = 40 + turn / 100;
        // The first round of probes has its time for a number, and takes 20 turns like all others; the one before this.
        let nonce = START + 20 * SECOND / 1000 + u64::from((turn / 20).saturating_sub(2));
        let mut frames = Vec::new();
        for v6 in [0, 1] {
            let about =
                |n: u32, verdict| Message::Decision(Decision { flow: flows(4 + n % 50)[v6], verdict });
            let grant = Says::Granted {
                rate_kib_s: 1 << 16,
                expire_s: 600,
                renew_ms: 50,
                step_ms: 50,
                direct: turn.is_multiple_of(2),
            };
            let cookie = Cookie::new(&program).unwrap();
            // Once in a while one that the program does not take.
            let cookie = if turn.is_multiple_of(7) { Cookie::new(&[]).unwrap() } else { cookie };
            let mut messages = vec![
                about(turn, grant),
                about(turn + 7, Says::Declined { expire_s: 1 }),
                about(turn + 13, Says::Bpf { expire_s: 60, program: GRANTED, cookie }),
                Message::Answer { nonce },
            ];
            if turn % 100 == 99 {
                let all = [IpAddr::from([0; 4]), IpAddr::from([0; 16])][v6];
                messages.push(Message::Revoke { to: Range::new(all, 0).unwrap(), below: version + 1 });
            }
            frames.push(datagram(v6, 2 * turn, time_ns, version, &messages));
            if turn.is_multiple_of(10) {
                let mut forged = datagram(v6, 2 * turn + 1, time_ns, version, &messages);
                *forged.last_mut().unwrap() ^= 1;
                frames.push(forged);
            }
        }
        if turn % 50 == 10 {
            frames.extend(refused(2 * turn, time_ns));
        }
        if turn % 50 == 20 {
            frames.push(too_big(1480 - turn as u16 / 10));
        }
        frames
    };
    (0..TURNS as u32).map(turn).collect()
}

/// The reasons that these nodes drop for, as their sources name them, and the one that the solicitor's queue has besides.
fn reasons() -> BTreeSet<&'static str> {
    let sources = [
        include_str!("../src/nodes/gate.rs"),
        include_str!("../src/nodes/solicitor.rs"),
        include_str!("../src/nodes/decision.rs"),
    ];
    let named = sources.iter().flat_map(|text| text.split("DropReason::").skip(1));
    let mut reasons: BTreeSet<&str> = named
        .filter_map(|text| {
            let word = text.split(|c: char| !c.is_alphanumeric()).next()?;
            let reason = DropReason::ALL.iter().find(|reason| format!("{reason:?}") == word)?;
            Some(reason.name())
        })
        .collect();
    assert!(reasons.len() > 10, "{reasons:?}");
    reasons.insert(DropReason::RequestEvicted.name());
    reasons
}

/// Returns for what reasons packets were dropped.
fn run(flows_room: usize, order: &str, driver: &str) -> BTreeSet<&'static str> {
    let domain = Domain::new();
    let mut back = Interface::of_port(1, "back");
    back.v4.push(("10.0.0.1".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
    back.v6.push(("fd00::1".parse().unwrap(), "fd00::/64".parse().unwrap()));
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "front"), back.clone()], 2);
    let text = format!(
        "front = ['front']\nbandwidth = '1 Gbps'\nrequest_queue = 64\nflows = {flows_room}\norder = '{order}'\ndriver = '{driver}'\n\
         keys = ['{}']\nprobes = {{ interval_ms = 20 }}\n\
         policy = [{{ prefix = '203.0.113.0/24', action = 'grantor', grantors = ['10.0.0.9', '10.0.0.8'] }},\
         {{ prefix = '2001:db9::/32', action = 'grantor', grantors = ['fd00::9'] }},\
         {{ prefix = '192.0.2.0/24', action = 'drop' }}, {{ prefix = '2001:dba::/32', action = 'drop' }}]",
        key()
    );
    let section: GatekeeperSection = toml::from_str(&text).unwrap();
    let mut control = GatekeeperControl::new(&section, &interfaces, 1, &domain).unwrap();
    // Of the first four sources: granted, granted little, granted past the Grantor, declined. The others ask.
    let granted =
        |rate_kib_s, direct| Says::Granted { rate_kib_s, expire_s: 600, renew_ms: 100, step_ms: 50, direct };
    let says = [
        granted(1 << 20, false),
        granted(1, false),
        granted(1 << 20, true),
        Says::Declined { expire_s: 600 },
    ];
    let decisions = (0..).zip(says).flat_map(|(n, verdict)| flows(n).map(|flow| Decision { flow, verdict }));
    assert_eq!(control.decide_before_start(0, START, decisions), 8);

    let mut graph = router();
    let (table4, hops4) = way::<u32>(&domain, &back, EtherType::IPV4);
    let (table6, hops6) = way::<u128>(&domain, &back, EtherType::IPV6);
    let (views4, views6) = ((table4.view(), hops4.view()), (table6.view(), hops6.view()));
    let host = Host { ways4: Box::new(move |_| views4.clone()), ways6: Box::new(move |_| views6.clone()) };
    splice(&mut graph, &control, host);

    let mut frames = Vec::new();
    for n in 0..60 {
        let (source4, source6) = (format!("198.51.100.{n}"), format!("2001:db8::{n:x}"));
        frames.push(v4(&source4, "203.0.113.80", 100));
        frames.push(v6_frame(&source6, "2001:db9::50", 100));
        // Its outer packet is too long: refused, or cut.
        if n == 0 {
            frames.push(v4(&source4, "203.0.113.80", 1475));
            frames.push(as_protocol(v4(&source4, "203.0.113.80", 1475), Protocol::UDP, true));
            frames.push(v6_frame(&source6, "2001:db9::50", 1425));
        }
        if n % 10 == 0 {
            frames.push(v4(&source4, "192.0.2.1", 10));
            frames.push(v6_frame(&source6, "2001:dba::1", 10));
            frames.push(v4(&source4, "8.8.8.8", 10));
            // Dressed as ours.
            frames.push(as_protocol(v4(&source4, "10.0.0.9", 30), Protocol::IPV4, false));
            // As from ourselves.
            frames.push(v4("10.0.0.1", "8.8.8.8", 10));
            frames.push(v6_frame("fd00::1", "2001:db9::50", 10));
        }
    }
    let marks = Arc::new(Mutex::new(Vec::with_capacity(2 * TURNS as usize)));
    let port = |frames: Vec<Vec<u8>>, once, marks: Arc<Mutex<Vec<u64>>>| -> Vec<Box<dyn Port>> {
        vec![Box::new(Loop { frames, once, turn: 0, marks, counters: PortCounters::default() })]
    };
    let behind = from_behind();
    let received = TURNS * frames.len() as u64 + behind.iter().map(|frames| frames.len() as u64).sum::<u64>();
    let other = Arc::new(Mutex::new(Vec::with_capacity(2 * TURNS as usize)));
    let ports = vec![port(frames, Vec::new(), marks.clone()), port(Vec::new(), behind, other)];
    let memory = Memory::new(4096, 2048).unwrap();
    let options = Options {
        clock: Clock::Capture,
        frames_per_worker: 4096,
        pin: false,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let graph = graph.build().unwrap();
    let gate =
        ["gate4", "gate6", "solicitor", "encapsulate4", "encapsulate6", "decision", "path-mtu", "errors"];
    let gate = gate.map(|name| (name, graph.node(name).unwrap()));
    let engine = Engine::new(graph, 1, ports, &memory, &domain, options).unwrap();
    // Policies change between two bursts, a Grantor more and a Grantor less. That is the control side's work, here on the worker's thread: what it allocates is taken off.
    let (mut control_allocates, mut turns) = (0, 0);
    let outcome = engine.run(|_| {
        turns += 1;
        // Later there are no more frames, only requests that wait.
        if turns > TURNS as usize - 10 {
            return;
        }
        let before = allocations();
        if turns % 100 == 50 {
            let grantors = [["10.0.0.9", "10.0.0.8"], ["10.0.0.9", "10.0.0.7"]][turns / 100 % 2];
            let grantors = grantors.map(String::from).to_vec();
            let prefix = "203.0.113.0/24".into();
            control.set_policy(&PolicyConfig { prefix, action: Action::Grantor, grantors }).unwrap();
        }
        control.poll();
        if turns > 2 {
            control_allocates += allocations() - before;
        }
    });
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    let ledger = outcome.snapshot.ledger();
    assert!(ledger.balances() && ledger.received == received, "{received}: {ledger:?}");
    assert!(turns as u64 >= TURNS && control_allocates > 0);
    // Everything that the gate can do was done.
    let counters = control.counters();
    let happened = [
        Counter::Requests,
        Counter::Granted,
        Counter::GrantedDirect,
        Counter::Renewals,
        Counter::OverRate,
        Counter::Declined,
        Counter::PolicyDropped,
        Counter::Bypassed,
        Counter::FlowsMade,
        Counter::TunnelForged,
        Counter::SourceOurs,
        Counter::Decisions,
        Counter::DecisionsApplied,
        Counter::DecisionsForged,
        Counter::CookiesNotTaken,
        Counter::Programs,
        Counter::Revocations,
        Counter::FlowsRevoked,
        Counter::FlowsOutgrown,
        Counter::Probes,
        Counter::ProbesAnswered,
        Counter::PathMtuLowered,
    ];
    for counter in happened {
        assert!(counters.get(counter) > 0, "{counter:?}: {:?}", counters.nonzero().collect::<Vec<_>>());
    }
    assert_eq!(counters.get(Counter::RequestsUntracked) > 0, flows_room < 60, "{flows_room}");
    assert_eq!(counters.get(Counter::FlowsReplaced) > 0, flows_room < 60, "{flows_room}");
    for (name, at) in gate {
        let node = &outcome.snapshot.nodes[at];
        let least = if name == "path-mtu" { TURNS / 50 } else { TURNS };
        assert!(node.packets >= least, "{name}: {node:?}");
    }
    let marks = marks.lock().unwrap();
    // The first turns may still fill lazily made things (thread-locals, the console).
    assert_eq!(
        marks[2] + control_allocates,
        *marks.last().unwrap(),
        "{flows_room}, {order}, {driver}: allocations after each turn: {marks:?}"
    );
    ledger.dropped.keys().copied().collect()
}

#[test]
fn the_gate_allocates_nothing() {
    let mut dropped = BTreeSet::new();
    for order in ["one-pass", "flow-first"] {
        for driver in ["group", "coroutine", "plain"] {
            dropped.extend(run(1000, order, driver));
            // So full that most flows find no room.
            dropped.extend(run(20, order, driver));
        }
    }
    let never: Vec<&str> = reasons().difference(&dropped).copied().collect();
    assert!(never.is_empty(), "nothing was dropped as {never:?}, only as {dropped:?}");
}
