//! Outer packets through the three nodes in an engine: what goes on, what is asked, what is dropped and under which name, what Gatekeepers are told. The
//! policy is asked in line, so every run is the same.

mod clock;

use crate::answer::Failure;
use crate::control::{GrantorControl, Orders, Preparation, Revoked, Run};
use crate::section::GrantorSection;
use crate::tally::Counter;
use crate::voice::{Peer, Voice};
use crate::wiring::splice;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use tidemill_burst::{BURST, Burst, DropReason, Memory, Packet, Pool};
use tidemill_decision::authenticated::{Header, Known, Message, Range, Writer};
use tidemill_decision::keys::{Direction, Ends, Keyring};
use tidemill_decision::replay::Stamp;
use tidemill_decision::{Decision, GATEKEEPER_PORT, GRANTOR_PORT, Verdict as Said};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Snapshot, Verdict};
use tidemill_ip::nodes::local::{self, Local};
use tidemill_ip::{Interface, Interfaces, Martians, Settings};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::flow::Addresses;
use tidemill_wire::ipv6_ext::FragmentRepr;
use tidemill_wire::{Protocol, ipv4, ipv6, udp};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
/// Gatekeepers, and us.
const GATE: [&str; 2] = ["10.0.0.1", "fd00::1"];
const OTHER: &str = "10.0.0.2";
const OURS: [&str; 2] = ["10.0.0.9", "fd00::9"];
const CLIENT: [&str; 2] = ["192.0.2.7", "2001:db8:1::7"];
const SERVER: [&str; 2] = ["198.51.100.1", "2001:db8:2::1"];

fn key() -> String {
    format!("1 {}", "5a".repeat(32))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// An IP packet with this payload, code point and congestion bits.
fn packet(source: &str, destination: &str, protocol: Protocol, tos: u8, payload: &[u8]) -> Vec<u8> {
    let mut head;
    match (ip(source), ip(destination)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            head = vec![0; 20];
            let mut repr = ipv4::Repr::new(src, dst, protocol, payload.len());
            (repr.dscp, repr.ecn) = (tos >> 2, tos & 3);
            repr.emit(&mut head).unwrap();
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            head = vec![0; 40];
            let mut repr = ipv6::Repr::new(src, dst, protocol, payload.len());
            (repr.dscp, repr.ecn) = (tos >> 2, tos & 3);
            repr.emit(&mut head).unwrap();
        }
        _ => unreachable!(),
    }
    [head, payload.to_vec()].concat()
}

/// A TCP SYN from the client's port to the server's port 80, with congestion bits.
fn inner(v6: usize, port: u16, ecn: u8) -> Vec<u8> {
    let mut tcp = [0; 20];
    tcp[..2].copy_from_slice(&port.to_be_bytes());
    tcp[2..4].copy_from_slice(&80_u16.to_be_bytes());
    (tcp[12], tcp[13]) = (5 << 4, 2);
    packet(CLIENT[v6], SERVER[v6], Protocol::TCP, ecn, &tcp)
}

fn outer(gatekeeper: &str, dscp: u8, ecn: u8, inner: &[u8]) -> Vec<u8> {
    let v6 = usize::from(gatekeeper.contains(':'));
    packet(gatekeeper, OURS[v6], [Protocol::IPV4, Protocol::IPV6][v6], dscp << 2 | ecn, inner)
}

fn probe(keys: &str, source: &str, port: u16, time_ns: u64) -> Vec<u8> {
    probe_telling(Known::default(), keys, source, port, time_ns)
}

/// A probe whose sender knows this of us.
fn probe_telling(known: Known, keys: &str, source: &str, port: u16, time_ns: u64) -> Vec<u8> {
    let v6 = usize::from(source.contains(':'));
    let keys = Keyring::parse(keys).unwrap();
    let ends = Ends { source: (ip(source), port), destination: (ip(OURS[v6]), GRANTOR_PORT) };
    let stamp = Stamp { epoch_s: 1, sequence: 1 };
    let header = Header { direction: Direction::ToGrantor, key: 0, stamp, policy_version: 0, time_ns };
    let mut buffer = [0; 100];
    let mut writer = Writer::new(&mut buffer).unwrap();
    writer.push(&Message::Probe { nonce: 77, known }).unwrap();
    let payload = writer.seal(&keys, &header, &ends);
    let pseudo = match (ends.source.0, ends.destination.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Pseudo::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Pseudo::V6 { src, dst },
        _ => unreachable!(),
    };
    let mut datagram = [&[0; 8], payload].concat();
    let repr = udp::Repr { src_port: port, dst_port: GRANTOR_PORT, payload_len: payload.len() };
    repr.emit(&mut datagram, &pseudo).unwrap();
    packet(source, OURS[v6], Protocol::UDP, 0, &datagram)
}

/// Where a frame came out, and its IP packet.
type Out = (&'static str, Vec<u8>);

struct Wire {
    name: &'static str,
    input: VecDeque<(u64, Vec<Vec<u8>>)>,
    sent: Arc<Mutex<Vec<Out>>>,
    counters: PortCounters,
    voice: Arc<Voice>,
    orders: Arc<Orders>,
    said: Vec<(Peer, Message)>,
    raise_ns: Option<u64>,
}

impl Port for Wire {
    fn name(&self) -> &str {
        self.name
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some((time_ns, packets)) = self.input.pop_front() else { return Ok(RxStatus::Ended) };
        if self.raise_ns == Some(time_ns) {
            self.said.drain(..).for_each(|order| self.orders.queue.push(order).unwrap());
            self.voice.raise(time_ns);
        }
        for ip in packets {
            let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0][..], &ip].concat();
            let mut packet = pool.packet(&frame).unwrap();
            packet.set_timestamp_ns(time_ns);
            self.counters.rx.count(frame.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            assert_eq!(packet.l3, 14);
            self.sent.lock().unwrap().push((self.name, packet.data()[14..].to_vec()));
            self.counters.tx.count(packet.data().len());
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Stands for what a router does before and behind.
struct Stage;

impl Node for Stage {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        burst.iter_mut().for_each(|packet| packet.l3 = 14);
    }
}

struct Bench {
    domain: Domain,
    control: GrantorControl,
    folder: tempfile::TempDir,
    /// The policy's version rises before the burst of this time, and this is given to worker 0.
    raise_ns: Option<u64>,
    said: Vec<(Peer, Message)>,
    /// Whether the router's `local` is there itself, instead of a port to look at what it would get.
    has_local: bool,
}

impl Bench {
    fn new(script: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.lua"), script).unwrap();
        let domain = Domain::new();
        let log = Arc::new(|_: &str| ());
        let section = section(more);
        let control = GrantorControl::new(&section, folder.path(), 1, &domain, Run::Repeatable, log).unwrap();
        Bench { domain, control, folder, raise_ns: None, said: Vec::new(), has_local: false }
    }

    /// Has the nodes see bursts at their times, then some that start the clock; what came out where.
    fn run(&mut self, input: Vec<(u64, Vec<Vec<u8>>)>) -> (Snapshot, Vec<Out>) {
        const NAMES: [&str; 6] = ["wire", "local", "ip4", "ip6", "lookup4", "lookup6"];
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut graph = GraphBuilder::new(NAMES);
        // The router's nodes, as far as the Grantor knows their names.
        for (node, port) in [("ip4-input", "ip4"), ("ip6-input", "ip6")] {
            graph.node(node, ["on"], |_| Box::new(Stage)).edge(node, "on", &format!("port:{port}"));
        }
        for (node, port) in [("ip4-lookup", "lookup4"), ("ip6-lookup", "lookup6")] {
            // What comes in is for us, what we say is not: the first output is where the latter go.
            graph.node(node, ["on", "local"], |_| Box::new(Stage)).edge(node, "on", &format!("port:{port}"));
            graph.edge(node, "local", "local");
        }
        let settings = Publisher::new(&self.domain, router_settings());
        if self.has_local {
            let view = settings.view();
            graph.node("local", local::OUTPUTS, move |_| Box::new(Local::new(view.clone())));
            graph.edge("local", "ip4", "before").edge("local", "ip6", "before");
            graph.edge("local", "error4", "port:local").edge("local", "error6", "port:local");
        } else {
            graph.node("local", ["on"], |_| Box::new(Stage)).edge("local", "on", "port:local");
        }
        graph.node("before", ["on"], |_| Box::new(Stage)).edge("before", "on", "decapsulate");
        graph.input("wire", "before");
        splice(&mut graph, &self.control);
        // The second of the start has gone by before the first packet.
        let first = vec![(START - 2 * SECOND, vec![packet(GATE[0], OURS[0], Protocol::ICMP, 0, &[0; 8])])];
        let mut input = Some([first, input].concat());
        let ports = NAMES.map(|name| {
            let input = if name == "wire" { input.take().unwrap_or_default() } else { Vec::new() };
            let wire = Wire {
                name,
                input: input.into(),
                sent: sent.clone(),
                counters: PortCounters::default(),
                voice: self.control.voice.clone(),
                orders: self.control.orders.clone(),
                said: self.said.clone(),
                raise_ns: self.raise_ns,
            };
            vec![Box::new(wire) as Box<dyn Port>]
        });
        let memory = Memory::new(8 * BURST, 2048).unwrap();
        let options = Options {
            clock: Clock::Capture,
            frames_per_worker: 8 * BURST,
            pin: false,
            limits: Limits::default(),
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        let engine = Engine::new(graph.build().unwrap(), 1, ports.into(), &memory, &self.domain, options);
        let outcome = engine.unwrap().run(|_| ());
        assert!(outcome.errors.is_empty());
        let ledger = outcome.snapshot.ledger();
        assert!(ledger.balances() && ledger.held == 0, "{ledger:?}");
        let mut sent = sent.lock().unwrap().clone();
        if !self.has_local {
            assert_eq!(sent.remove(0).0, "local", "what began it");
        }
        (outcome.snapshot, sent)
    }
}

/// Of the router around the Grantor, what `local` goes by.
fn router_settings() -> Settings {
    Settings {
        interfaces: Interfaces::new(vec![Interface::of_port(0, "wire")], 1),
        martians: Martians::Standard,
        icmp_rate_per_s: 100,
        icmp_rate_per_prefix_per_s: 100,
        ttl: 64,
        neighbor_rate_per_s: 100,
        neighbor_rate_per_source_per_s: 100,
    }
}

fn section(more: &str) -> GrantorSection {
    let gates = "gatekeepers = [\"10.0.0.0/30\", \"fd00::1/128\"]";
    let keys = if more.contains("interoperable") { String::new() } else { format!("keys = [\"{}\"]", key()) };
    let policy = if more.contains("[policy]") { "" } else { "[policy]\n" };
    toml::from_str(&format!("{gates}\n{keys}\n{more}\n{policy}file = \"p.lua\"\n")).unwrap()
}

/// What a datagram of ours says, with whom it goes to; by the first version.
fn heard(ip: &[u8], now_ns: u64) -> (IpAddr, Vec<Message>) {
    heard_by(START / SECOND - 2, ip, now_ns)
}

fn heard_by(version: u64, ip: &[u8], now_ns: u64) -> (IpAddr, Vec<Message>) {
    let (header, destination, messages) = read(ip, now_ns);
    assert_eq!(u64::from(header.policy_version), version);
    (destination, messages)
}

/// Its header, whom it goes to, what it says.
fn read(ip: &[u8], now_ns: u64) -> (Header, IpAddr, Vec<Message>) {
    let v6 = ip[0] >> 4 == 6;
    let (source, destination, at): (IpAddr, IpAddr, usize) = if v6 {
        let packet = ipv6::Packet::new_checked(ip).unwrap();
        (packet.src().into(), packet.dst().into(), 40)
    } else {
        let packet = ipv4::Packet::new_checked(ip).unwrap();
        assert!(packet.checksum_ok());
        (packet.src().into(), packet.dst().into(), 20)
    };
    let datagram = udp::Packet::new_checked(&ip[at..]).unwrap();
    assert_eq!((datagram.src_port(), datagram.dst_port()), (GRANTOR_PORT, GATEKEEPER_PORT));
    let ends = Ends { source: (source, GRANTOR_PORT), destination: (destination, GATEKEEPER_PORT) };
    let header = Header::read(datagram.payload(), Direction::ToGatekeeper).unwrap();
    let keys = Keyring::parse(&key()).unwrap();
    let opened = keys.open(&header, datagram.payload(), &ends, (now_ns, SECOND)).unwrap();
    (header, destination, opened.map(Result::unwrap).collect())
}

fn flow(v6: usize) -> Addresses {
    match (ip(CLIENT[v6]), ip(SERVER[v6])) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4 { src: src.into(), dst: dst.into() },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Addresses::V6 { src: src.into(), dst: dst.into() },
        _ => unreachable!(),
    }
}

const GRANT: &str =
    "function decide(q) return granted { rate = 100, expire = 60, renew = 1000, step = 500 } end";

#[test]
fn what_was_granted_goes_on_without_its_outer_header() {
    for v6 in [0, 1] {
        let mut bench = Bench::new(GRANT, "");
        let sent = inner(v6, 4000, 0);
        let bursts = vec![(START, vec![outer(GATE[v6], 1, 0, &sent), outer(GATE[v6], 0, 0, &sent)])];
        let (_, out) = bench.run(bursts);
        let to = ["ip4", "ip6"][v6];
        assert_eq!(out, [(to, sent.clone()), (to, sent)]);
        let counters = bench.control.counters();
        assert_eq!((counters.get(Counter::Granted), counters.get(Counter::Requests)), (2, 0));
    }
}

/// An outer packet that its Gatekeeper had to cut: `local` puts it together, and it is taken as if it had come whole, whether it was granted or asks.
#[test]
fn outer_packets_in_fragments_are_taken_whole() {
    let inner = packet(CLIENT[1], SERVER[1], Protocol::UDP, 0, &[7; 1240]);
    let parts = |dscp: u8, ident: u32| -> Vec<Vec<u8>> {
        let part = |(n, piece): (usize, &[u8])| {
            let (offset, mut header) = (n * 1224, [0; 8]);
            let more = offset + piece.len() < inner.len();
            let repr = FragmentRepr { next_header: Protocol::IPV6, offset: offset as u16, more, ident };
            repr.emit(&mut header).unwrap();
            packet(GATE[1], OURS[1], Protocol::FRAGMENT, dscp << 2, &[&header[..], piece].concat())
        };
        inner.chunks(1224).enumerate().map(part).collect()
    };
    let mut bench = Bench::new(GRANT, "");
    bench.has_local = true;
    let (snapshot, out) = bench.run(vec![(START, [parts(1, 1), parts(41, 2)].concat())]);
    let came: Vec<&Out> = out.iter().filter(|(to, _)| to.starts_with("ip")).collect();
    assert_eq!(came, [&("ip6", inner.clone()), &("ip6", inner.clone())]);
    let counters = bench.control.counters();
    assert_eq!((counters.get(Counter::Granted), counters.get(Counter::Requests)), (1, 1));
    // One part of each packet carries on as the whole, the other is done with.
    let ledger = snapshot.ledger();
    assert_eq!((ledger.consumed, ledger.dropped_for(DropReason::ProtocolUnknown)), (2, 0));
}

/// RFC 6040, figure 4: by what comes inside and outside, what goes on; 4 stands for a drop.
#[test]
fn congestion_is_carried_over() {
    const TABLE: [[u8; 4]; 4] = [[0, 0, 0, 4], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]];
    for v6 in [0, 1] {
        for dscp in [1, 41] {
            for (inside, row) in TABLE.iter().enumerate() {
                for (outside, &becomes) in row.iter().enumerate() {
                    let mut bench = Bench::new(GRANT, "");
                    let sent = outer(GATE[v6], dscp, outside as u8, &inner(v6, 1, inside as u8));
                    let (snapshot, mut out) = bench.run(vec![(START, vec![sent])]);
                    out.retain(|(to, _)| to.starts_with("ip"));
                    let dropped = snapshot.ledger().dropped_for(DropReason::TunnelCongestion);
                    if becomes == 4 {
                        assert_eq!((out.len(), dropped), (0, 1));
                        continue;
                    }
                    // The checksum too.
                    assert_eq!(out, [(["ip4", "ip6"][v6], inner(v6, 1, becomes))], "{inside} {outside}");
                    assert_eq!(dropped, 0);
                }
            }
        }
    }
}

/// What was wrong with the inner header stays wrong, so that whoever checks it sees it.
#[test]
fn a_wrong_checksum_inside_stays_wrong() {
    let mut sent = inner(0, 1, 2);
    sent[10] ^= 0x40;
    let (_, out) = Bench::new(GRANT, "").run(vec![(START, vec![outer(GATE[0], 1, 3, &sent)])]);
    assert_eq!(out[0].1[1] & 3, 3);
    assert!(!ipv4::checksum_ok(&out[0].1));
}

#[test]
fn what_does_not_belong_here_is_dropped_by_name() {
    for v6 in [0, 1] {
        let good = inner(v6, 1, 0);
        let stranger = ["10.0.0.4", "fd00::2"][v6];
        let mut cut = good.clone();
        cut.truncate(good.len() - 1);
        let (own, foreign) = ([Protocol::IPV4, Protocol::IPV6][v6], [Protocol::IPV6, Protocol::IPV4][v6]);
        for (what, sent, reason) in [
            ("a stranger's", outer(stranger, 1, 0, &good), DropReason::TunnelRefused),
            ("a stranger's request", outer(stranger, 41, 0, &good), DropReason::TunnelRefused),
            ("cut off", outer(GATE[v6], 1, 0, &cut), DropReason::TunnelMalformed),
            ("empty", outer(GATE[v6], 41, 0, &[]), DropReason::TunnelMalformed),
            ("noise", outer(GATE[v6], 1, 0, &[0xff; 60]), DropReason::TunnelMalformed),
            (
                "of the other family",
                packet(GATE[v6], OURS[v6], foreign, 4, &inner(1 - v6, 1, 0)),
                DropReason::TunnelMalformed,
            ),
            (
                "as if of the other",
                packet(GATE[v6], OURS[v6], own, 4, &inner(1 - v6, 1, 0)),
                DropReason::TunnelMalformed,
            ),
            ("nested", outer(GATE[v6], 1, 0, &outer(GATE[v6], 1, 0, &good)), DropReason::TunnelNested),
            (
                "a nested request",
                outer(GATE[v6], 41, 0, &outer(GATE[v6], 1, 0, &good)),
                DropReason::TunnelNested,
            ),
        ] {
            let (snapshot, out) = Bench::new(GRANT, "").run(vec![(START, vec![sent])]);
            assert_eq!((out.len(), snapshot.ledger().dropped_for(reason)), (0, 1), "{what} {v6}");
        }
        // Somebody's own tunnel is no business of ours.
        let tunnel = packet(CLIENT[v6], SERVER[v6], own, 0, &good);
        let (_, out) = Bench::new(GRANT, "").run(vec![(START, vec![outer(GATE[v6], 1, 0, &tunnel)])]);
        assert_eq!(out, [(["ip4", "ip6"][v6], tunnel)]);
        // And what is no outer packet is for `local`.
        let ping = packet(CLIENT[v6], OURS[v6], Protocol::ICMP, 0, &[0; 8]);
        let (_, out) = Bench::new(GRANT, "").run(vec![(START, vec![ping.clone()])]);
        assert_eq!(out, [("local", ping)]);
    }
}

/// Two Gatekeepers, each with several requests in one burst: one datagram for each.
#[test]
fn decisions_go_in_one_datagram_for_each_gatekeeper() {
    let mut bench = Bench::new(GRANT, "");
    let asks: Vec<Vec<u8>> = (0..6_u8)
        .map(|i| {
            let source = Ipv4Addr::new(192, 0, 2, i).to_string();
            let sent = packet(&source, SERVER[0], Protocol::UDP, 0, &[0; 8]);
            outer([GATE[0], OTHER][usize::from(i % 2)], 41, 0, &sent)
        })
        .collect();
    let renewal = outer(GATE[1], 2, 0, &inner(1, 1, 0));
    let (_, out) = bench.run(vec![(START, [asks, vec![renewal.clone(), renewal]].concat())]);
    let on = |to: &str| out.iter().filter(|(port, _)| *port == to).count();
    assert_eq!((on("ip4"), on("ip6"), on("lookup4"), on("lookup6"), out.len()), (6, 2, 2, 1, 11));
    let said: Vec<_> =
        out.iter().filter(|(to, _)| to.starts_with("lookup")).map(|(_, ip)| heard(ip, START)).collect();
    let verdict =
        Said::Granted { rate_kib_s: 100, expire_s: 60, renew_ms: 1000, step_ms: 500, direct: false };
    for (at, gatekeeper) in [GATE[0], OTHER].iter().enumerate() {
        let messages: Vec<Message> = (0..3)
            .map(|i| {
                let src = 0xc000_0200 + 2 * i + at as u32;
                let flow = Addresses::V4 { src, dst: 0xc633_6401 };
                Message::Decision(Decision { flow, verdict })
            })
            .collect();
        assert!(said.contains(&(ip(gatekeeper), messages)), "{said:?}");
    }
    let twice_is_once = vec![Message::Decision(Decision { flow: flow(1), verdict })];
    assert!(said.contains(&(ip(GATE[1]), twice_is_once)), "{said:?}");
    let counters = bench.control.counters();
    assert_eq!((counters.get(Counter::Datagrams), counters.get(Counter::Decisions)), (3, 7));
    assert_eq!(counters.get(Counter::DecisionsMerged), 1);
}

#[test]
fn a_grant_may_be_direct() {
    let mut bench = Bench::new("function decide(q) return granted { rate = 100, direct = true } end", "");
    let (_, out) = bench.run(vec![(START, vec![outer(GATE[0], 41, 0, &inner(0, 1, 0))])]);
    let said: Vec<_> =
        out.iter().filter(|(to, _)| *to == "lookup4").map(|(_, ip)| heard(ip, START).1).collect();
    let verdict =
        Said::Granted { rate_kib_s: 100, expire_s: 60, renew_ms: 45_000, step_ms: 1000, direct: true };
    assert_eq!(said, [vec![Message::Decision(Decision { flow: flow(0), verdict })]]);
}

/// More decisions than go into a datagram go in several.
#[test]
fn a_burst_of_requests_is_answered_in_few_datagrams() {
    let mut bench = Bench::new(GRANT, "");
    let asks = (0..120_u8).map(|i| {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, i.into()).to_string();
        outer(GATE[1], 41, 0, &packet(&source, SERVER[1], Protocol::UDP, 0, &[0; 8]))
    });
    let (_, out) = bench.run(vec![(START, asks.collect())]);
    let said: Vec<usize> =
        out.iter().filter(|(to, _)| *to == "lookup6").map(|(_, ip)| heard(ip, START).1.len()).collect();
    assert_eq!((said.iter().sum::<usize>(), said.iter().max()), (120, Some(&22)), "{said:?}");
    // No link is too narrow for them.
    assert!(out.iter().all(|(_, ip)| ip.len() <= 1280) && said.len() <= 6);
}

/// What was decided before a revocation, and waits for the rest of its turn, is not sent: under the version that has begun meanwhile it would hold.
#[test]
fn what_waits_when_the_version_rises_is_not_sent() {
    for v6 in [0, 1] {
        let mut bench = Bench::new(GRANT, "");
        bench.raise_ns = Some(START + 1);
        let asks = (0..200_u8).map(|i| {
            let source = [format!("192.0.2.{i}"), format!("2001:db8:9::{i:x}")];
            outer(GATE[v6], 41, 0, &packet(&source[v6], SERVER[v6], Protocol::UDP, 0, &[0; 8]))
        });
        let ping = packet(CLIENT[v6], OURS[v6], Protocol::ICMP, 0, &[0; 8]);
        let (_, out) = bench.run(vec![(START, asks.collect()), (START + 1, vec![ping])]);
        // `heard` sees to it that they have the version that they were decided by.
        let said: usize = out
            .iter()
            .filter(|(to, _)| to.starts_with("lookup"))
            .map(|(_, ip)| heard(ip, START).1.len())
            .sum();
        // The first turn decides about 128, and full boxes of 42 have left by its end.
        assert_eq!(said, 126);
        let counters = bench.control.counters();
        let counts = [Counter::Decisions, Counter::DecisionsOutdated, Counter::Forwarded];
        assert_eq!(counts.map(|count| counters.get(count)), [126, 74, 200]);
    }
}

/// A revocation comes before what is decided under the version that it begins, though both wait in one turn.
#[test]
fn a_revocation_is_said_before_what_is_decided_under_it() {
    for v6 in [0, 1] {
        let mut bench = Bench::new(GRANT, "");
        let below = (START / SECOND) as u32 - 1;
        let everything = Range::new(ip(["0.0.0.0", "::"][v6]), 0).unwrap();
        let revoke = Message::Revoke { to: everything, below };
        let peer = Peer { gatekeeper: ip(GATE[v6]), ours: ip(OURS[v6]), interface: 0 };
        (bench.raise_ns, bench.said) = (Some(START), vec![(peer, revoke)]);
        let (_, out) = bench.run(vec![(START, vec![outer(GATE[v6], 41, 0, &inner(v6, 1, 0))])]);
        let said: Vec<Message> = out
            .iter()
            .filter(|(to, _)| to.starts_with("lookup"))
            .flat_map(|(_, ip)| heard_by(below.into(), ip, START).1)
            .collect();
        let verdict =
            Said::Granted { rate_kib_s: 100, expire_s: 60, renew_ms: 1000, step_ms: 500, direct: false };
        assert_eq!(said, [revoke, Message::Decision(Decision { flow: flow(v6), verdict })]);
    }
}

#[test]
fn who_is_refused_or_fails_does_not_get_through() {
    for (script, reason, told) in [
        ("function decide(q) return declined { expire = 9 } end", DropReason::PolicyRefused, Some(9)),
        ("function decide(q) error('no') end", DropReason::PolicyFailed, Some(7)),
    ] {
        let more = "[policy]\nfail_safe = { action = \"decline\", seconds = 7 }";
        let mut bench = Bench::new(script, more);
        let (snapshot, out) = bench.run(vec![(START, vec![outer(GATE[0], 41, 0, &inner(0, 1, 0))])]);
        assert_eq!(snapshot.ledger().dropped_for(reason), 1);
        let said: Vec<_> = out.iter().map(|(_, ip)| heard(ip, START).1).collect();
        let declined = |expire_s| Decision { flow: flow(0), verdict: Said::Declined { expire_s } };
        let wanted: Vec<_> = told.into_iter().map(|s| vec![Message::Decision(declined(s))]).collect();
        assert_eq!(said, wanted);
    }
}

#[test]
fn packets_beyond_the_queue_are_dropped_by_name() {
    let mut bench = Bench::new(GRANT, "[policy]\nqueue = 2");
    let (snapshot, out) =
        bench.run(vec![(START, (0..5).map(|i| outer(GATE[0], 41, 0, &inner(0, i, 0))).collect())]);
    assert_eq!(snapshot.ledger().dropped_for(DropReason::AskQueueFull), 3);
    assert_eq!(out.iter().filter(|(to, _)| *to == "ip4").count(), 2);
}

/// Neither an error nor a full queue takes anything from a flow in its grant: its packet goes on, and nothing is said that would replace what it has.
#[test]
fn a_failure_takes_no_grant_away() {
    for v6 in [0, 1] {
        let more = "[policy]\nfail_safe = { action = \"decline\", seconds = 7 }";
        let mut bench = Bench::new("function decide(q) error('no') end", more);
        let (_, out) = bench.run(vec![(START, vec![outer(GATE[v6], 2, 0, &inner(v6, 1, 0))])]);
        assert_eq!(out, [(["ip4", "ip6"][v6], inner(v6, 1, 0))]);
        let counters = bench.control.counters();
        let counts = [Counter::Unrenewed, Counter::FailSafe, Counter::Decisions, Counter::PolicyDropped];
        assert_eq!(counts.map(|count| counters.get(count)), [1, 0, 0, 0]);
        // Of eight places two are not for new flows: six of ten get one, then one of two that ask again, then one of three renewals; the other two go on unasked.
        let mut bench = Bench::new(GRANT, "[policy]\nqueue = 8");
        let ask = |port, dscp| outer(GATE[v6], dscp, 0, &inner(v6, port, 0));
        let sent: Vec<_> = [(0..10, 41), (10..12, 42), (20..23, 2)]
            .into_iter()
            .flat_map(|(ports, dscp)| ports.map(move |port| ask(port, dscp)))
            .collect();
        let (snapshot, out) = bench.run(vec![(START, sent)]);
        assert_eq!(snapshot.ledger().dropped_for(DropReason::AskQueueFull), 5);
        assert_eq!(out.iter().filter(|(to, _)| *to == ["ip4", "ip6"][v6]).count(), 10);
        let counters = bench.control.counters();
        let counts = [Counter::Unrenewed, Counter::QueueFull, Counter::Forwarded];
        assert_eq!(counts.map(|count| counters.get(count)), [2, 5, 8]);
    }
}

#[test]
fn probes_are_answered_and_nothing_else_there_is() {
    for v6 in [0, 1] {
        let good = probe(&key(), GATE[v6], GATEKEEPER_PORT, START);
        let (_, out) = Bench::new(GRANT, "").run(vec![(START, vec![good.clone()])]);
        assert_eq!(out.len(), 1);
        assert_eq!(heard(&out[0].1, START), (ip(GATE[v6]), vec![Message::Answer { nonce: 77 }]));
        let mut forged = good.clone();
        *forged.last_mut().unwrap() ^= 1;
        // UDP's own length, behind the IP header and the ports: less than its header, more than there is.
        let [short, long] = [[0, 7], [2, 0]].map(|length| {
            let mut sent = good.clone();
            sent[[20, 40][v6]..][4..6].copy_from_slice(&length);
            sent
        });
        for (what, sent) in [
            ("forged", forged),
            ("UDP shorter than its header", short),
            ("UDP longer than the packet", long),
            ("another key", probe(&key().replace("1 ", "2 "), GATE[v6], GATEKEEPER_PORT, START)),
            ("another port", probe(&key(), GATE[v6], 999, START)),
            ("old", probe(&key(), GATE[v6], GATEKEEPER_PORT, START - 11 * SECOND)),
        ] {
            let (snapshot, out) = Bench::new(GRANT, "").run(vec![(START, vec![sent])]);
            assert_eq!(
                (out.len(), snapshot.ledger().dropped_for(DropReason::ProbeRefused)),
                (0, 1),
                "{what}"
            );
        }
        // Whoever is no Gatekeeper finds nobody there.
        let (_, out) =
            Bench::new(GRANT, "").run(vec![(START, vec![probe(&key(), CLIENT[v6], GATEKEEPER_PORT, START)])]);
        assert_eq!(out[0].0, "local");
    }
}

#[test]
fn the_interoperable_format_has_no_keys() {
    let mut bench = Bench::new(GRANT, "decisions = \"interoperable\"");
    let (_, out) = bench.run(vec![(START, vec![outer(GATE[0], 41, 0, &inner(0, 1, 0))])]);
    let (_, said) = out.iter().find(|(to, _)| *to == "lookup4").unwrap();
    let decisions = tidemill_decision::interoperable::Decisions::new(&said[28..]);
    assert_eq!(decisions.map(|decision| decision.unwrap().flow).collect::<Vec<_>>(), [flow(0)]);
    assert!(bench.control.revoke(None, START).unwrap_err().to_string().contains("no revocations"));
}

/// A reload takes over all or nothing, and raises the version; so does a revocation.
#[test]
fn a_broken_script_changes_nothing_and_a_good_one_begins_a_version() {
    let mut bench = Bench::new(GRANT, "");
    let version = bench.control.version(START);
    let write = |bench: &Bench, text: &str| std::fs::write(bench.folder.path().join("p.lua"), text).unwrap();
    write(&bench, "\nfunction decide(q");
    let error =
        bench.control.prepare(&section("")).and_then(Preparation::read).map(drop).unwrap_err().to_string();
    assert!(error.contains("p.lua:2"), "{error}");
    let error = bench.control.prepare(&section("[policy]\nqueue = 7")).map(drop).unwrap_err().to_string();
    assert_eq!(error, "grantor.policy.queue: cannot change while the grantor runs: put it back, or restart");
    assert_eq!(bench.control.version(START), version);
    write(&bench, "function decide(q) return declined { expire = 9 } end");
    let prepared = bench.control.prepare(&section("")).unwrap().read().unwrap();
    assert!(bench.control.commit(prepared, START).unwrap());
    assert_eq!(bench.control.version(START), version + 1);
    let nobody = Revoked { version: version + 2, told: Vec::new(), unheard: Vec::new() };
    assert_eq!(bench.control.revoke(None, START).unwrap(), nobody);
}

/// Who hears nothing for some seconds hears of a revocation all the same; one that takes back as much is said in its place.
#[test]
fn a_revocation_is_said_again_and_again() {
    let mut bench = Bench::new(GRANT, "");
    bench.run(vec![(START, vec![outer(GATE[0], 41, 0, &inner(0, 1, 0))])]);
    let mut said = Vec::new();
    for ms in (0..60_000).step_by(25) {
        let now_ns = START + ms * 1_000_000;
        if ms == 0 || ms == 30_000 || ms == 30_100 {
            assert_eq!(bench.control.revoke(None, now_ns).unwrap().unheard, [ip(GATE[0])]);
        }
        bench.control.poll(now_ns);
        let heard = std::iter::from_fn(|| bench.control.orders.queue.pop());
        said.extend(heard.map(|(_, message)| (ms, matches!(message, Message::Revoke { .. }))));
    }
    let all = [0, 25, 75, 175, 375, 775, 1575, 3175, 6375, 12_775, 25_575];
    let times = |from: u64| all.map(|ms| (from + ms, true));
    // The second takes the place of the first.
    let wanted = [&times(0)[..], &times(30_000)[..3], &times(30_100)].concat();
    assert_eq!(said, wanted);
}

/// A policy that hangs costs its packets `wait_ms`; the worker waits for nobody. Nobody has judged these flows, so there is no fail-safe for them: they ask again.
#[test]
fn about_whom_a_policy_says_nothing_in_time_nothing_is_decided() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.lua"), "function decide(q) while true do end end").unwrap();
    let domain = Domain::new();
    let more = "[policy]\nwait_ms = 1\nsteps = 10000000\ntime_ms = 10000\nfail_safe = { action = \"grant\", rate = 5, seconds = 60 }";
    let run = Run::Live { clock: Arc::new(|| START - 2 * SECOND), seed: 1 };
    let control =
        GrantorControl::new(&section(more), folder.path(), 1, &domain, run, Arc::new(|_: &str| ())).unwrap();
    let mut bench = Bench { domain, control, folder, raise_ns: None, said: Vec::new(), has_local: false };
    let request = outer(GATE[0], 41, 0, &inner(0, 1, 0));
    let renewal = outer(GATE[0], 2, 0, &inner(0, 2, 0));
    let (snapshot, out) = bench.run(vec![(START, vec![request, renewal])]);
    assert_eq!(out, [("ip4", inner(0, 2, 0))], "the renewal's packet, and no decision");
    assert_eq!(snapshot.ledger().dropped_for(DropReason::PolicyFailed), 1);
    let counters = bench.control.counters();
    let counts = [Counter::Unjudged, Counter::Unrenewed, Counter::FailSafe, Counter::Decisions];
    assert_eq!(counts.map(|count| counters.get(count)), [1, 1, 0, 0]);
    assert_eq!(bench.control.counts().failed(Failure::Late), 2);
}

/// Whatever bits are wrong: the books balance (`run` sees to it), nobody panics, and nothing of a stranger's goes on.
#[test]
fn any_bits_may_be_wrong() {
    let mut random = StdRng::seed_from_u64(9);
    for v6 in [0, 1] {
        let mut bench = Bench::new(GRANT, "");
        let spoilt = (0..4000).map(|_| {
            let mut sent = match random.random_range(0..3) {
                0 => outer(GATE[v6], random.random_range(0..64), random.random_range(0..4), &inner(v6, 1, 0)),
                1 => outer(GATE[v6], 41, 0, &outer(GATE[v6], 1, 0, &inner(v6, 1, 0))),
                _ => probe(&key(), GATE[v6], GATEKEEPER_PORT, START),
            };
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..sent.len());
                sent[at] = random.random();
            }
            let len =
                if random.random_range(0..4) == 0 { random.random_range(1..=sent.len()) } else { sent.len() };
            sent.truncate(len);
            // What a router's input lets through.
            if sent.len() >= 20 {
                sent[0] = [0x45, 0x60][v6];
            }
            sent
        });
        let bursts: Vec<_> = spoilt.collect::<Vec<_>>().chunks(100).map(<[_]>::to_vec).collect();
        let times = (0..).map(|at| START + at * 1_000_000);
        bench.run(times.zip(bursts).collect());
        let counters = bench.control.counters();
        assert!(counters.get(Counter::Granted) > 10 && counters.get(Counter::Decisions) > 10, "{counters:?}");
        assert!(counters.get(Counter::Malformed) > 10 && counters.get(Counter::Nested) > 10, "{counters:?}");
    }
}
