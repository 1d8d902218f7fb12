//! Datagrams through the node in an engine: what counts, what is refused and under which name, what reaches the workers' mailboxes.

mod clock;

use super::*;
use crate::config::{Action, GatekeeperSection, PolicyConfig, ProbesConfig};
use crate::decision::authenticated::{Known, Range, TAG_LEN, Writer};
use crate::decision::interoperable;
use crate::decision::keys::{KeyText, Keyring};
use crate::decision::replay::Stamp;
use crate::trust::{IN_A_ROW, Notice};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tidemill_burst::{BURST, Burst, Memory};
use tidemill_graph::{Clock, Engine, GraphBuilder, Limits, Options, Snapshot};
use tidemill_ip::{Interface, Interfaces};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::checksum::Pseudo;
use tidemill_wire::{Protocol, ipv4, ipv6, udp};

const START: u64 = 1_700_000_000_500_000_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const GRANTOR: &str = "10.0.0.2";
const OTHER: &str = "10.0.0.3";
const GRANTOR6: &str = "fd00::2";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn key_text(id: u16) -> String {
    format!("{id} {}", format!("{id:02x}").repeat(32))
}

fn ring(id: u16) -> Keyring {
    Keyring::parse(&key_text(id)).unwrap()
}

fn interfaces() -> Interfaces {
    let mut back = Interface::of_port(1, "back");
    back.v4.push(("10.0.0.1".parse().unwrap(), "10.0.0.0/24".parse().unwrap()));
    back.v6.push(("fd00::1".parse().unwrap(), "fd00::/64".parse().unwrap()));
    Interfaces::new(vec![Interface::of_port(0, "front"), back], 2)
}

fn section(keys: &[u16]) -> GatekeeperSection {
    let policy = |prefix: &str, grantors: &[&str]| PolicyConfig {
        prefix: prefix.into(),
        action: Action::Grantor,
        grantors: grantors.iter().map(|grantor| (*grantor).into()).collect(),
    };
    GatekeeperSection {
        policy: vec![
            policy("203.0.113.0/24", &[GRANTOR, OTHER]),
            policy("198.51.100.0/24", &[OTHER]),
            policy("2001:db8::/32", &[GRANTOR6]),
        ],
        flows: 100,
        keys: keys.iter().map(|id| KeyText(key_text(*id))).collect(),
        probes: ProbesConfig { interval_ms: 0, ..ProbesConfig::default() },
        ..GatekeeperSection::default()
    }
}

/// A UDP datagram and where it comes in.
#[derive(Clone)]
struct Sent {
    port: u16,
    ends: Ends,
    payload: Vec<u8>,
    sound: bool,
    /// What UDP's own length says, if not the truth.
    length: Option<u16>,
}

impl Sent {
    fn frame(&self) -> Vec<u8> {
        let len = udp::HEADER_LEN + self.payload.len();
        let mut frame = vec![0; 14];
        let (pseudo, head) = match (self.ends.source.0, self.ends.destination.0) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut head = vec![0; 20];
                ipv4::Repr::new(src, dst, Protocol::UDP, len).emit(&mut head).unwrap();
                (Pseudo::V4 { src, dst }, head)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut head = vec![0; 40];
                ipv6::Repr::new(src, dst, Protocol::UDP, len).emit(&mut head).unwrap();
                (Pseudo::V6 { src, dst }, head)
            }
            _ => unreachable!(),
        };
        let mut datagram = [&[0; 8][..], &self.payload].concat();
        let (src_port, dst_port) = (self.ends.source.1, self.ends.destination.1);
        udp::Repr { src_port, dst_port, payload_len: self.payload.len() }
            .emit(&mut datagram, &pseudo)
            .unwrap();
        datagram[6] ^= u8::from(!self.sound);
        if let Some(length) = self.length {
            datagram[4..6].copy_from_slice(&length.to_be_bytes());
        }
        frame.extend(head);
        frame.extend(datagram);
        frame
    }
}

fn ends(grantor: &str) -> Ends {
    let ours = if grantor.contains(':') { "fd00::1" } else { "10.0.0.1" };
    Ends { source: (ip(grantor), GRANTOR_PORT), destination: (ip(ours), GATEKEEPER_PORT) }
}

fn header(epoch_s: u32, sequence: u32, time_ns: u64) -> Header {
    let stamp = Stamp { epoch_s, sequence };
    Header { direction: Direction::ToGatekeeper, key: 0, stamp, policy_version: 42, time_ns }
}

fn sealed(keys: &Keyring, grantor: &str, header: Header, messages: &[Message]) -> Sent {
    let mut buffer = [0; 1472];
    let mut writer = Writer::new(&mut buffer).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    let ends = ends(grantor);
    Sent { port: 1, ends, payload: writer.seal(keys, &header, &ends).to_vec(), sound: true, length: None }
}

fn declined(destination: &str) -> Message {
    let flow = match ip(destination) {
        IpAddr::V4(dst) => Addresses::V4 { src: 7, dst: dst.into() },
        IpAddr::V6(dst) => Addresses::V6 { src: 7, dst: dst.into() },
    };
    Message::Decision(Decision { flow, verdict: crate::decision::Verdict::Declined { expire_s: 9 } })
}

/// When, and what.
type Frames = Vec<(u64, Vec<u8>)>;

/// Gives bursts at their times, and keeps what it is to send.
struct Wire {
    input: VecDeque<(u64, Vec<Sent>)>,
    sent: Arc<Mutex<Frames>>,
    counters: PortCounters,
}

impl Port for Wire {
    fn name(&self) -> &str {
        "wire"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some((time_ns, datagrams)) = self.input.pop_front() else { return Ok(RxStatus::Ended) };
        for datagram in datagrams {
            let frame = datagram.frame();
            let mut packet = pool.packet(&frame).unwrap();
            packet.set_timestamp_ns(time_ns);
            packet.label = datagram.port.into();
            self.counters.rx.count(frame.len());
            assert!(burst.push(packet).is_ok());
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.sent.lock().unwrap().push((now_ns, packet.data().to_vec()));
            self.counters.tx.count(packet.data().len());
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Stands for what comes before.
struct Before;

impl Node for Before {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        for packet in burst {
            (packet.l3, packet.port) = (14, packet.label as u16);
        }
    }
}

struct Bench {
    domain: Domain,
    control: GatekeeperControl,
}

impl Bench {
    fn new(section: &GatekeeperSection) -> Self {
        let domain = Domain::new();
        let control = GatekeeperControl::new(section, &interfaces(), 1, &domain).unwrap();
        Bench { domain, control }
    }

    /// Has the node see bursts at their times; what it sent, with the ports' and the drops' numbers.
    fn run(&mut self, input: Vec<(u64, Vec<Sent>)>) -> (Snapshot, Frames) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut graph = GraphBuilder::new(["wire"]);
        graph.node("before", ["on"], |_| Box::new(Before));
        let node = factory(&self.control);
        graph.node("decision", OUTPUTS, move |worker| Box::new(node(worker)));
        graph.input("wire", "before").edge("before", "on", "decision");
        OUTPUTS.iter().for_each(|output| {
            graph.edge("decision", output, "port:wire");
        });
        let wire = Wire { input: input.into(), sent: sent.clone(), counters: PortCounters::default() };
        let memory = Memory::new(4 * BURST, 2048).unwrap();
        let options = Options {
            clock: Clock::Capture,
            frames_per_worker: 4 * BURST,
            pin: false,
            limits: Limits::default(),
            traces: Vec::new(),
            describe: |_| String::new(),
        };
        let ports: Vec<Vec<Box<dyn Port>>> = vec![vec![Box::new(wire)]];
        let engine = Engine::new(graph.build().unwrap(), 1, ports, &memory, &self.domain, options);
        let outcome = engine.unwrap().run(|_| ());
        assert!(outcome.errors.is_empty());
        let ledger = outcome.snapshot.ledger();
        assert!(ledger.balances() && ledger.held == 0, "{ledger:?}");
        let sent = sent.lock().unwrap().clone();
        (outcome.snapshot, sent)
    }

    /// One datagram: the names under which it was counted, by a node of its own, and as what it was dropped.
    fn one(&mut self, now_ns: u64, datagram: Sent) -> (Vec<&'static str>, Option<DropReason>) {
        let (snapshot, _) = self.run(vec![(now_ns, vec![datagram])]);
        let counted = self.control.counters();
        let counted = Counter::ALL.iter().filter(|c| counted.get(**c) != 0).map(|c| c.name()).collect();
        let ledger = snapshot.ledger();
        let reasons = DropReason::ALL.iter().copied();
        (counted, reasons.into_iter().find(|reason| ledger.dropped_for(*reason) > 0))
    }

    /// What a worker's mailbox has got: destinations, and by whom.
    fn letters(&self) -> Vec<(u128, Option<By>)> {
        let mut letters = Vec::new();
        while let Some(letter) = self.control.v4.post.of(0).unwrap().letters.pop() {
            letters.push((letter.destination.into(), letter.by));
        }
        while let Some(letter) = self.control.v6.post.of(0).unwrap().letters.pop() {
            letters.push((letter.destination, letter.by));
        }
        letters
    }
}

#[test]
fn what_a_grantor_says_reaches_the_workers() {
    let mut bench = Bench::new(&section(&[1]));
    assert_eq!(bench.control.settings().decisions, DecisionFormat::Authenticated);
    let messages = [declined("203.0.113.9"), declined("198.51.100.1"), declined("203.0.113.7")];
    let (counted, dropped) = bench.one(START, sealed(&ring(1), GRANTOR, header(5, 0, START), &messages));
    assert_eq!((counted, dropped), (vec!["decisions", "decisions-refused"], None));
    let by = Some(By { grantor: 0, version: 42 });
    assert_eq!(
        bench.letters(),
        [(0xcb00_7109, by), (0xcb00_7107, by)],
        "not of the other Grantor's destination"
    );
    let by = Some(By { grantor: 1, version: 42 });
    bench.one(START, sealed(&ring(1), OTHER, header(9, 0, START), &messages));
    assert_eq!(bench.letters(), [(0xcb00_7109, by), (0xc633_6401, by), (0xcb00_7107, by)]);
    let (counted, dropped) =
        bench.one(START, sealed(&ring(1), GRANTOR6, header(5, 0, START), &[declined("2001:db8::7")]));
    assert_eq!((counted, dropped), (vec!["decisions"], None));
    assert_eq!(bench.letters(), [(0x2001_0db8 << 96 | 7, Some(By { grantor: 0, version: 42 }))]);
}

#[test]
fn every_refusal_has_its_name() {
    let good = || sealed(&ring(1), GRANTOR, header(5, 0, START), &[declined("203.0.113.9")]);
    let changed = |change: &dyn Fn(&mut Sent)| {
        let mut sent = good();
        change(&mut sent);
        sent
    };
    let (refused, forged) = (DropReason::DecisionRefused, DropReason::DecisionForged);
    let late = |time_ns| sealed(&ring(1), GRANTOR, header(5, 0, time_ns), &[declined("203.0.113.9")]);
    let question = Message::Probe { nonce: 1, known: Known::default() };
    let probe = || sealed(&ring(1), GRANTOR, header(5, 1, START), &[question]);
    let mut bytes = good().payload;
    bytes.truncate(24 + TAG_LEN - 1);
    for (what, sent, counter, reason) in [
        ("by the front", changed(&|sent| sent.port = 0), "decisions-refused", refused),
        ("port", changed(&|sent| sent.ends.source.1 = 41121), "decisions-refused", refused),
        ("no Grantor", changed(&|sent| sent.ends.source.0 = ip("10.0.0.4")), "decisions-refused", refused),
        ("another Grantor's", changed(&|sent| sent.ends.source.0 = ip(OTHER)), "decisions-forged", forged),
        (
            "for another",
            changed(&|sent| sent.ends.destination.0 = ip("10.0.0.9")),
            "decisions-forged",
            forged,
        ),
        ("tag", changed(&|sent| *sent.payload.last_mut().unwrap() ^= 1), "decisions-forged", forged),
        ("body", changed(&|sent| sent.payload[30] ^= 1), "decisions-forged", forged),
        ("key", changed(&|sent| sent.payload[3] = 2), "decisions-unknown-key", refused),
        ("version", changed(&|sent| sent.payload[0] = 1), "decisions-wrong-version", refused),
        (
            "direction",
            changed(&|sent| sent.payload[1] = 2),
            "decisions-malformed",
            DropReason::DecisionMalformed,
        ),
        ("short", Sent { payload: bytes, ..good() }, "decisions-malformed", DropReason::DecisionMalformed),
        (
            "empty",
            changed(&|sent| sent.payload.clear()),
            "decisions-malformed",
            DropReason::DecisionMalformed,
        ),
        (
            "UDP shorter than its header",
            changed(&|sent| sent.length = Some(7)),
            "decisions-malformed",
            DropReason::DecisionMalformed,
        ),
        (
            "UDP longer than the packet",
            changed(&|sent| sent.length = Some(1500)),
            "decisions-malformed",
            DropReason::DecisionMalformed,
        ),
        (
            "the same by the front",
            changed(&|sent| (sent.length, sent.port) = (Some(1500), 0)),
            "decisions-refused",
            refused,
        ),
        ("old", late(START - 11 * SECOND), "decisions-stale", DropReason::DecisionStale),
        ("ahead", late(START + 11 * SECOND), "decisions-stale", DropReason::DecisionStale),
        ("a question", probe(), "decisions-refused", refused),
    ] {
        let mut bench = Bench::new(&section(&[1]));
        assert_eq!(bench.one(START, sent), (vec![counter], Some(reason)), "{what}");
        assert_eq!(bench.letters(), []);
        // It has not spoilt anything for the real one.
        assert_eq!(bench.one(START, good()), (vec!["decisions"], None), "{what}");
        assert_eq!(bench.letters().len(), 1);
    }
}

#[test]
fn no_datagram_counts_twice() {
    let mut bench = Bench::new(&section(&[1]));
    let sent = |epoch, sequence| {
        sealed(&ring(1), GRANTOR, header(epoch, sequence, START), &[declined("203.0.113.9")])
    };
    let replayed = (vec!["decisions-replayed"], Some(DropReason::DecisionReplayed));
    let taken = (vec!["decisions"], None);
    assert_eq!(bench.one(START, sent(5, 0)), taken);
    assert_eq!(bench.one(START, sent(5, 0)), replayed);
    assert_eq!(bench.one(START, sent(5, 1)), taken);
    // Through a reload, and after the Grantor has started again.
    bench.control.reload(&section(&[1]), &interfaces()).unwrap();
    assert_eq!(bench.one(START, sent(5, 1)), replayed);
    assert_eq!(bench.one(START, sent(6, 0)), taken);
    assert_eq!(bench.one(START, sent(5, 2)), replayed);
    // The same bytes to another worker's node are the same datagram: windows are shared.
    assert_eq!(bench.one(START + 9 * SECOND, sent(6, 0)), replayed);
    assert_eq!(bench.letters().len(), 3);
}

/// Keys change in three steps; what is sent under either of two is taken, and what was taken stays so.
#[test]
fn keys_change_without_loss() {
    let mut bench = Bench::new(&section(&[1]));
    let taken = (vec!["decisions"], None);
    let mut sequence = 0;
    let mut next = |id| {
        sequence += 1;
        sealed(&ring(id), GRANTOR, header(5, sequence, START), &[declined("203.0.113.9")])
    };
    let old = next(1);
    assert_eq!(bench.one(START, old.clone()), taken);
    for (keys, signs) in [(&[1, 2][..], &[1, 2][..]), (&[2, 1], &[1, 2]), (&[2], &[2])] {
        bench.control.reload(&section(keys), &interfaces()).unwrap();
        for id in signs {
            assert_eq!(bench.one(START, next(*id)), taken, "{keys:?} {id}");
        }
        let again = bench.one(START, old.clone()).0;
        let wanted = if keys.contains(&1) { "decisions-replayed" } else { "decisions-unknown-key" };
        assert_eq!(again, [wanted]);
    }
    // A reload that cannot be changes nothing.
    let mut wrong = section(&[2]);
    wrong.keys.push(KeyText("2".into()));
    let error = bench.control.reload(&wrong, &interfaces()).unwrap_err().to_string();
    assert!(error.starts_with("gatekeeper.keys: line 2: no key"), "{error}");
    assert_eq!(bench.one(START, next(2)), taken);
}

/// Whoever does not know the Grantor's start gets four tags a burst; the Grantor gets all of its own.
#[test]
fn a_flood_of_forged_datagrams_is_not_checked() {
    let mut bench = Bench::new(&section(&[1]));
    bench.one(START, sealed(&ring(1), GRANTOR, header(5, 0, START), &[declined("203.0.113.9")]));
    let forged = |n: u32| sealed(&ring(2), GRANTOR, header(1000 + n, n, START), &[declined("203.0.113.9")]);
    let mut flood: Vec<Sent> = (0..BURST as u32 - 8).map(forged).collect();
    for sent in &mut flood {
        sent.payload[2..4].copy_from_slice(&1_u16.to_be_bytes());
    }
    let real = |n| sealed(&ring(1), GRANTOR, header(5, n, START), &[declined("203.0.113.9")]);
    flood.extend((1..9).map(real));
    let (snapshot, _) = bench.run(vec![(START, flood)]);
    let ledger = snapshot.ledger();
    assert_eq!(ledger.dropped_for(DropReason::DecisionForged), STRANGERS as u64);
    assert_eq!(ledger.dropped_for(DropReason::DecisionUnchecked), (BURST - 8 - STRANGERS) as u64);
    assert_eq!(bench.letters().len(), 9);
    // Who knows it gets 64 KiB of tags checked.
    let long: Vec<Message> = (0..87).map(|_| declined("203.0.113.9")).collect();
    let known = |n: u32| {
        let mut sent = sealed(&ring(1), GRANTOR, header(5, n, START), &long);
        *sent.payload.last_mut().unwrap() ^= 1;
        sent
    };
    let len = known(0).payload.len();
    assert_eq!(len, 24 + 87 * 16 + TAG_LEN);
    let (snapshot, _) = bench.run(vec![(START, (0..100).map(known).collect())]);
    let ledger = snapshot.ledger();
    let checked = (KNOWN_BYTES / len) as u64;
    assert_eq!(ledger.dropped_for(DropReason::DecisionForged), checked);
    assert_eq!(ledger.dropped_for(DropReason::DecisionUnchecked), 100 - checked);
    assert_eq!(bench.letters(), []);
}

#[test]
fn revocations_reach_the_workers() {
    let mut bench = Bench::new(&section(&[1]));
    let revoke = |to: &str, bits, below| Message::Revoke { to: Range::new(ip(to), bits).unwrap(), below };
    let messages = [revoke("203.0.113.0", 24, 42), revoke("0.0.0.0", 0, 43), revoke("::", 0, 44)];
    let (counted, dropped) = bench.one(START, sealed(&ring(1), OTHER, header(5, 0, START), &messages));
    assert_eq!((counted, dropped), (vec!["decisions-refused", "revocations"], None), "not of another family");
    let mailbox = &bench.control.v4.post.of(0).unwrap().revocations;
    let below = |version| By { grantor: 1, version };
    assert_eq!(mailbox.pop(), Some(Revocation { below: below(42), to: Some((0xcb00_7100, 0xcb00_71ff)) }));
    assert_eq!(mailbox.pop(), Some(Revocation { below: below(43), to: None }));
    assert_eq!(mailbox.pop(), None);
    bench.one(START, sealed(&ring(1), GRANTOR6, header(5, 0, START), &messages[2..]));
    let mailbox = &bench.control.v6.post.of(0).unwrap().revocations;
    assert_eq!(mailbox.pop(), Some(Revocation { below: By { grantor: 0, version: 44 }, to: None }));
}

#[test]
fn the_interoperable_format_on_request() {
    let mut section = section(&[1]);
    section.decisions = Some(DecisionFormat::Interoperable);
    let mut bench = Bench::new(&section);
    let Message::Decision(decision) = declined("203.0.113.9") else { unreachable!() };
    let mut buffer = [0; 100];
    let mut writer = interoperable::Writer::new(&mut buffer).unwrap();
    writer.push(&decision).unwrap();
    let sent =
        Sent { port: 1, ends: ends(GRANTOR), payload: writer.payload().to_vec(), sound: true, length: None };
    assert_eq!(bench.one(START, sent.clone()), (vec!["decisions"], None));
    assert_eq!(bench.letters(), [(0xcb00_7109, None)], "it cannot be revoked");
    let malformed = (vec!["decisions-malformed"], Some(DropReason::DecisionMalformed));
    assert_eq!(bench.one(START, Sent { sound: false, ..sent.clone() }), malformed);
    assert_eq!(bench.one(START, Sent { payload: Vec::new(), ..sent.clone() }), malformed);
    for length in [0, 7, 1500] {
        assert_eq!(bench.one(START, Sent { length: Some(length), ..sent.clone() }), malformed, "{length}");
    }
    let wrong_version = (vec!["decisions-wrong-version"], Some(DropReason::DecisionRefused));
    let authenticated = sealed(&ring(1), GRANTOR, header(5, 0, START), &[declined("203.0.113.9")]);
    assert_eq!(bench.one(START, authenticated), wrong_version);
    let third = Sent { payload: vec![3, 0, 0, 0], ..sent.clone() };
    assert_eq!(bench.one(START, third), wrong_version);
    // And where it is not asked for.
    let mut authenticated = Bench::new(&super::tests::section(&[1]));
    let refused = Some(DropReason::DecisionRefused);
    assert_eq!(authenticated.one(START, sent.clone()), wrong_version);
    let mut none = Bench::new(&super::tests::section(&[]));
    assert_eq!(none.one(START, sent.clone()), (vec!["decisions-refused"], refused));
    assert_eq!(none.one(START, Sent { length: Some(7), ..sent }), (vec!["decisions-refused"], refused));
    section.decisions = Some(DecisionFormat::Authenticated);
    section.keys.clear();
    let error = GatekeeperControl::new(&section, &interfaces(), 1, &Domain::new()).err().unwrap().to_string();
    assert_eq!(error, "gatekeeper.decisions: \"authenticated\" needs keys: give key_file");
}

/// Datagrams that keep the engine's time going.
fn ticks(from_ns: u64, count: u64, step_ns: u64) -> Vec<(u64, Vec<Sent>)> {
    let other = |ends: Ends| Sent { port: 1, ends, payload: vec![], sound: true, length: None };
    let ends = Ends { destination: (ip("10.0.0.1"), 7), ..ends(GRANTOR) };
    (0..count).map(|n| (from_ns + n * step_ns, vec![other(ends)])).collect()
}

/// The probes among what was sent: when, to whom, under which nonce.
fn probes(sent: &[(u64, Vec<u8>)]) -> Vec<(u64, IpAddr, u64)> {
    asked(sent).into_iter().map(|(now_ns, grantor, nonce, _)| (now_ns, grantor, nonce)).collect()
}

/// The same with what they tell.
fn asked(sent: &[(u64, Vec<u8>)]) -> Vec<(u64, IpAddr, u64, Known)> {
    let mut probes = Vec::new();
    for (now_ns, frame) in sent {
        let ip = &frame[14..];
        let (pseudo, at) = match ip[0] >> 4 {
            4 => {
                ipv4::check(ip).unwrap();
                assert!(ipv4::checksum_ok(ip));
                let packet = ipv4::Packet::new_unchecked(ip);
                (Pseudo::V4 { src: packet.src(), dst: packet.dst() }, 20)
            }
            _ => {
                let packet = ipv6::Packet::new_unchecked(ip);
                (Pseudo::V6 { src: packet.src(), dst: packet.dst() }, 40)
            }
        };
        let udp = udp::Packet::new_checked(&ip[at..]).unwrap();
        if udp.dst_port() != GRANTOR_PORT {
            continue;
        }
        assert!(udp.checksum_ok(&pseudo));
        assert_eq!(udp.src_port(), GATEKEEPER_PORT);
        // As a Grantor reads it.
        let ends =
            Ends { source: (pseudo.src(), GATEKEEPER_PORT), destination: (pseudo.dst(), GRANTOR_PORT) };
        let header = Header::read(udp.payload(), Direction::ToGrantor).unwrap();
        let opened = ring(1).open(&header, udp.payload(), &ends, (*now_ns, SECOND)).unwrap();
        let opened: Vec<_> = opened.collect();
        let [Ok(Message::Probe { nonce, known })] = opened[..] else { panic!("no probe") };
        probes.push((*now_ns, pseudo.dst(), nonce, known));
    }
    probes
}

/// Where nobody is probed, who sends as an earlier start is named after some datagrams, unless something of a later one comes between them.
#[test]
fn an_earlier_start_is_said_without_probes_too() {
    let mut bench = Bench::new(&section(&[1]));
    let mut sequence = 0;
    let mut send = |bench: &mut Bench, epoch, count: u32| {
        for _ in 0..count {
            sequence += 1;
            bench.one(
                START,
                sealed(&ring(1), GRANTOR, header(epoch, sequence, START), &[declined("203.0.113.9")]),
            );
        }
        bench.control.poll();
        bench.control.notices()
    };
    let said = [Notice::Unheard { grantor: ip(GRANTOR), why: Unheard::Earlier }];
    assert_eq!(send(&mut bench, 5, 1), []);
    assert_eq!(send(&mut bench, 4, IN_A_ROW - 1), []);
    assert_eq!(send(&mut bench, 5, 1), []);
    assert_eq!(send(&mut bench, 4, IN_A_ROW), said);
    assert_eq!(send(&mut bench, 4, IN_A_ROW), [], "once");
    assert_eq!(send(&mut bench, 5, 1), []);
    assert_eq!(send(&mut bench, 4, IN_A_ROW), [], "nor soon again");
    assert!(said[0].to_string().contains("probes, which tell it of the later one, are off"), "{}", said[0]);
}

/// Who does not answer because nothing that it sends counts is named with the reason, once.
#[test]
fn why_a_grantor_is_not_heard_is_said() {
    let mut section = section(&[1]);
    section.probes = ProbesConfig { interval_ms: 100, fall: 2, rise: 2 };
    let mut bench = Bench::new(&section);
    let sent = |keys: &Keyring, grantor: &str, epoch, sequence, now_ns| {
        sealed(keys, grantor, header(epoch, sequence, now_ns), &[Message::Answer { nonce: 1 }])
    };
    // The same number with another secret.
    let other = Keyring::parse(&format!("1 {}\n", "f".repeat(64))).unwrap();
    bench.control.round.store(1, Ordering::Relaxed);
    let (first, _) = bench.one(START, sent(&ring(1), OTHER, 5, 0, START));
    assert!(first.contains(&"probes-answered"), "{first:?}");
    let mut said = Vec::new();
    for round in 0..6_u32 {
        let begun = START + u64::from(1 + round) * 3 * SECOND;
        bench.run(ticks(begun, 21, 100 * MS));
        let at = begun + 2500 * MS;
        for (datagram, wanted) in [
            (sent(&ring(1), OTHER, 4, round, at), "decisions-replayed"),
            (sent(&ring(2), GRANTOR, 5, round, at), "decisions-unknown-key"),
            (sent(&other, GRANTOR6, 5, round, at), "decisions-forged"),
        ] {
            let (counted, _) = bench.one(at, datagram);
            assert!(counted.contains(&wanted), "{wanted}: {counted:?}");
        }
        bench.control.poll();
        let notices = bench.control.notices().into_iter();
        said.extend(notices.filter(|notice| matches!(notice, Notice::Unheard { .. })));
    }
    let unheard = |grantor, why| Notice::Unheard { grantor: ip(grantor), why };
    let wanted = [
        unheard(GRANTOR, Unheard::UnknownKey),
        unheard(OTHER, Unheard::Earlier),
        unheard(GRANTOR6, Unheard::Forged),
    ];
    assert_eq!(said, wanted);
}

/// Nor does an answer to an earlier run of ours, which may have had a later clock, or to somebody else who probes under our address.
#[test]
fn answers_to_what_we_have_not_asked_do_not_count() {
    let mut bench = Bench::new(&section(&[1]));
    let mut answer = |round: u64, nonce: u64, sequence: u32| {
        bench.control.round.store(round, Ordering::Relaxed);
        let sent = sealed(&ring(1), GRANTOR, header(5, sequence, START), &[Message::Answer { nonce }]);
        let counted = bench.one(START, sent);
        let pulse = &bench.control.trust.current().peer(ip(GRANTOR)).unwrap().pulse;
        (counted, pulse.answered.load(Ordering::Relaxed))
    };
    let years = 94_608_000 * SECOND;
    let others =
        [(0, 0), (0, 7), (START, 0), (START, START + 1), (START, START + years), (START, START - 16)];
    for (sequence, (round, nonce)) in (0..).zip(others) {
        let refused = (vec!["decisions-refused"], Some(DropReason::DecisionRefused));
        assert_eq!(answer(round, nonce, sequence), (refused, 0), "{round} {nonce}");
    }
    for (sequence, nonce) in [(100, START - 15), (101, START)] {
        assert_eq!(answer(START, nonce, sequence), ((vec!["probes-answered"], None), nonce));
    }
}

/// Rounds of probes; who does not answer is left out and only its flows move; who answers again has them back.
#[test]
fn who_does_not_answer_is_left_out() {
    let mut section = section(&[1]);
    section.probes = ProbesConfig { interval_ms: 100, fall: 2, rise: 2 };
    let mut bench = Bench::new(&section);
    let flows: Vec<Addresses> = (0..200).map(|src| Addresses::V4 { src, dst: 0xcb00_7109 }).collect();
    let of = |control: &GatekeeperControl| -> Vec<IpAddr> {
        flows.iter().map(|flow| control.grantor_of(flow).unwrap()).collect()
    };
    let before = of(&bench.control);
    assert!(before.contains(&ip(GRANTOR)) && before.contains(&ip(OTHER)));
    let (mut down_at, mut up_at, mut sequence, mut epoch_ns) = (None, None, 0, START);
    for round in 0..14_u64 {
        // Each run is a node of its own, whose first round begins when the second of its start is over.
        let (_, sent) = bench.run(ticks(epoch_ns, 21, 100 * MS));
        let probes = probes(&sent);
        let rounds = probes.iter().map(|(_, _, nonce)| *nonce).max().unwrap();
        assert!(probes.iter().all(|(_, _, nonce)| *nonce > START), "above those of an earlier run");
        let first = probes.iter().filter(|(_, _, nonce)| *nonce == probes[0].2);
        assert_eq!(first.map(|(_, to, _)| *to).collect::<Vec<_>>(), [ip(GRANTOR), ip(OTHER), ip(GRANTOR6)]);
        let mut times: Vec<u64> = probes.iter().map(|(now_ns, ..)| *now_ns).collect();
        times.dedup();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 100 * MS), "{times:?}");
        // All but one answer, until the eighth time.
        let at = epoch_ns + 2500 * MS;
        let mut answers = Vec::new();
        for grantor in [GRANTOR, OTHER, GRANTOR6] {
            if grantor == OTHER && round < 8 {
                continue;
            }
            sequence += 1;
            let answer = Message::Answer { nonce: rounds };
            answers.push(sealed(&ring(1), grantor, header(5, sequence, at), &[answer]));
        }
        let answered = |bench: &Bench| bench.control.counters().get(Counter::ProbesAnswered);
        let (so_far, count) = (answered(&bench), answers.len() as u64);
        bench.run(vec![(at, answers)]);
        assert_eq!(answered(&bench) - so_far, count);
        bench.control.poll();
        for notice in bench.control.notices() {
            match notice {
                Notice::Down(grantor) if grantor == ip(OTHER) => down_at = Some(round),
                Notice::Up(grantor) if grantor == ip(OTHER) => up_at = Some(round),
                other => panic!("{other}"),
            }
        }
        let now = of(&bench.control);
        let is_down = down_at.is_some() && up_at.is_none();
        assert_eq!(bench.control.is_down(ip(OTHER)), is_down);
        for (before, now) in before.iter().zip(&now) {
            assert_eq!(*now, if is_down { ip(GRANTOR) } else { *before });
        }
        epoch_ns += 3 * SECOND;
    }
    // Judged when the next round begins: two silent ones, two answered ones.
    assert_eq!((down_at, up_at), (Some(2), Some(9)));
    // What it decides counts all the same, and a policy with no other Grantor goes on asking it.
    let Some(alone) = bench.control.grantor_of(&Addresses::V4 { src: 1, dst: 0xc633_6401 }) else { panic!() };
    assert_eq!(alone, ip(OTHER));
}
