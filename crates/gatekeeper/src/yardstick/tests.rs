use super::packets::Outer;
use super::solicitor::Solicitor;
use super::*;
use std::collections::HashSet;
use tidemill_wire::{Protocol, ipv4};

const DRIVERS: [Driver; 3] = [Driver::Plain, Driver::Group, Driver::Coroutine];
const HAND_OVERS: [HandOver; 2] = [HandOver::Each, HandOver::Batch];
const SECOND: u64 = 1_000_000_000;
/// As good as never.
const NEVER: u64 = u64::MAX >> 8;

/// Two Grantors, a neighbour that is not protected, and nothing for the rest.
fn policy() -> Policy {
    let grantors = vec![Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    let mut policy = Policy { grantors, ..Policy::default() };
    for (prefix, label) in [
        ("192.0.2.0/24", to_grantor(0)),
        ("192.0.2.128/25", to_grantor(1)),
        ("203.0.113.0/24", PASS),
        // A Grantor that nobody has said anything about.
        ("203.0.114.0/24", to_grantor(2)),
    ] {
        policy.rib.insert(prefix.parse().unwrap(), label);
    }
    policy
}

fn frame(source: u32, destination: u32, tagged: bool, tos: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if tagged {
        frame.extend([0x81, 0x00, 0x00, 0x07]);
    }
    frame.extend([0x08, 0x00]);
    let at = frame.len();
    frame.extend([0x45, tos, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(source.to_be_bytes());
    frame.extend(destination.to_be_bytes());
    ipv4::fill_checksum(&mut frame[at..]);
    frame.extend([0, 53, 0, 54, 0, 8, 0, 0]);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Bursts in which flows come again at once, later, and never; and packets that are none.
struct Traffic {
    random: Random,
    /// Sources that come again.
    sources: usize,
    /// Some flows have one hash.
    collide: bool,
    now_ns: u64,
}

impl Traffic {
    fn new(seed: u64, sources: usize, collide: bool) -> Self {
        Traffic { random: Random::new(seed), sources, collide, now_ns: SECOND }
    }

    fn burst(&mut self) -> Vec<(Vec<u8>, u32)> {
        let step = [0, 1, 1000, SECOND / 1000, 3 * SECOND][self.random.below(5)];
        self.now_ns += step;
        let count = [0, 1, 2, 31, 32, 33, 100, MOST][self.random.below(8)];
        let new = self.random.below(100);
        (0..count)
            .map(|_| {
                let source = if self.random.below(100) < new {
                    self.random.bits() as u32
                } else {
                    self.random.below(self.sources) as u32
                };
                let destination = [
                    0xc000_0201,
                    0xc000_0201,
                    0xc000_0202,
                    0xc000_02fe,
                    0xcb00_7101,
                    0xcb00_7201,
                    0x0808_0808,
                ][self.random.below(7)];
                let mut frame =
                    frame(source, destination, self.random.below(4) == 0, self.random.below(256) as u8);
                match self.random.below(20) {
                    0 => frame[12] = 0x86,
                    1 => frame.truncate(self.random.below(frame.len())),
                    _ => {}
                }
                let same = self.collide && source.is_multiple_of(16);
                (frame, if same { 7 } else { rss(source, destination) })
            })
            .collect()
    }
}

/// A gate with its packets.
struct Subject<G: Gate> {
    gate: G,
    packets: Packets,
    sent: Vec<(Left, Vec<u8>)>,
}

const PACKETS: usize = 4096;

impl<G: Gate> Subject<G> {
    fn new(flows: usize, idle_ns: u64) -> Self {
        Subject {
            gate: G::new(flows, idle_ns, &policy()).unwrap(),
            packets: Packets::new(PACKETS),
            sent: Vec::new(),
        }
    }

    fn burst(&mut self, options: G::Options, now_ns: u64, burst: &[(Vec<u8>, u32)]) -> Vec<Fate> {
        let ids: Vec<u32> =
            burst.iter().map(|(frame, rss)| self.packets.receive(frame, *rss).unwrap()).collect();
        // What is not written shows.
        let mut fates = vec![Fate::Request { dscp: 0, kept: false }; burst.len()];
        self.gate.burst(options, now_ns, &mut self.packets, &ids, &mut fates);
        fates
    }

    fn turn(&mut self, now_ns: u64) {
        let sent = &mut self.sent;
        self.gate.turn(now_ns, &mut self.packets, |left, frame| sent.push((left, frame.to_vec())));
    }

    fn sorted(&self) -> Vec<Entry> {
        let mut entries = self.gate.entries();
        assert_eq!(entries.len(), self.gate.len());
        entries.sort_unstable();
        entries
    }

    /// Every packet is free or with the solicitor.
    fn check(&self, requests: u64) {
        let Books { handed, lost, sent, pushed_out, thrown_away } = self.gate.books();
        assert_eq!(handed + lost, requests);
        let held = handed - sent - pushed_out - thrown_away;
        assert_eq!(self.packets.free() as u64 + held, PACKETS as u64);
    }
}

/// The same traffic by all these ways: fates, tables and what the solicitor does are the same. Returns how many packets had no
/// room, and how many came.
fn all_the_same<G: Gate>(ways: &[G::Options], flows: usize, idle_ns: u64, seed: u64) -> (usize, usize) {
    let mut subjects: Vec<Subject<G>> = ways.iter().map(|_| Subject::new(flows, idle_ns)).collect();
    let mut traffic = Traffic::new(seed, 150, flows < 1000);
    let (mut requests, mut no_room) = (0, 0);
    for round in 0..150 {
        let burst = traffic.burst();
        let mut first = None;
        for (subject, &way) in subjects.iter_mut().zip(ways) {
            let fates = subject.burst(way, traffic.now_ns, &burst);
            subject.gate.ran(burst.len(), 0, traffic.random.below(1000) as u64);
            assert_eq!(*first.get_or_insert_with(|| fates.clone()), fates);
        }
        for fate in first.unwrap_or_default() {
            requests += usize::from(matches!(fate, Fate::Request { .. }));
            no_room += usize::from(matches!(fate, Fate::Request { kept: false, .. }));
        }
        if round % 5 == 0 {
            subjects.iter_mut().for_each(|subject| subject.turn(traffic.now_ns));
        }
    }
    let one = &subjects[0];
    for subject in &subjects {
        subject.check(requests as u64);
        assert_eq!(subject.sorted(), one.sorted());
        assert!(subject.sent == one.sent && !subject.sent.is_empty());
        assert_eq!(subject.gate.books(), one.gate.books());
    }
    (no_room, requests)
}

fn paper_ways(early_stop: bool) -> Vec<PaperOptions> {
    let of = |driver| HAND_OVERS.map(|hand_over| PaperOptions { early_stop, driver, hand_over });
    DRIVERS.into_iter().flat_map(of).collect()
}

#[test]
fn the_papers_drivers_and_hand_overs_do_the_same() {
    for early_stop in [false, true] {
        for seed in 0..4 {
            let ways = paper_ways(early_stop);
            let (no_room, requests) = all_the_same::<PaperGate>(&ways, 96, 2 * SECOND, seed);
            assert!(no_room > 100 && no_room < requests, "{no_room} of {requests} in a small table");
            assert_eq!(all_the_same::<PaperGate>(&ways, 1 << 16, 2 * SECOND, seed).0, 0);
        }
    }
}

#[test]
fn our_orders_do_the_same() {
    let of = |way, early_stop, hand_over| OurOptions { way, early_stop, hand_over };
    for seed in 0..4 {
        for ways in [
            // Nobody stops: whoever finds no room has looked for it.
            vec![
                of(Way::OneByOne, false, HandOver::Each),
                of(Way::PaperOrder, false, HandOver::Batch),
                of(Way::Coroutines, false, HandOver::Batch),
            ],
            // Bursts stop at the same packet.
            vec![
                of(Way::OnePass, true, HandOver::Batch),
                of(Way::PaperOrder, true, HandOver::Each),
                of(Way::Coroutines, true, HandOver::Batch),
            ],
        ] {
            let (no_room, requests) = all_the_same::<OurGate>(&ways, 93, 2 * SECOND, seed);
            assert!(no_room > 100 && no_room < requests, "{no_room} of {requests} in a small table");
        }
        // With room it does not matter who would stop.
        let ways = [
            of(Way::OneByOne, false, HandOver::Batch),
            of(Way::OneByOne, true, HandOver::Batch),
            of(Way::OnePass, true, HandOver::Each),
            of(Way::PaperOrder, false, HandOver::Batch),
            of(Way::PaperOrder, true, HandOver::Batch),
            of(Way::Coroutines, false, HandOver::Each),
        ];
        assert_eq!(all_the_same::<OurGate>(&ways, 1 << 16, 2 * SECOND, seed).0, 0);
    }
}

/// Two tables, two policy structures, two programs: one answer, as long as there is room and nothing expires.
#[test]
fn both_gates_are_one_state_machine() {
    let ours = OurOptions { way: Way::OnePass, early_stop: true, hand_over: HandOver::Batch };
    let paper = PaperOptions { early_stop: true, driver: Driver::Coroutine, hand_over: HandOver::Each };
    let (mut a, mut b) = (Subject::<OurGate>::new(1 << 16, NEVER), Subject::<PaperGate>::new(1 << 16, NEVER));
    let mut traffic = Traffic::new(9, 300, false);
    let mut seen = HashSet::new();
    for _ in 0..150 {
        let burst = traffic.burst();
        let fates = a.burst(ours, traffic.now_ns, &burst);
        assert_eq!(fates, b.burst(paper, traffic.now_ns, &burst));
        seen.extend(fates.iter().map(|fate| format!("{fate:?}")));
        a.turn(traffic.now_ns);
        b.turn(traffic.now_ns);
    }
    assert_eq!(a.sorted(), b.sorted());
    // Who encapsulates before the solicitor and who after send the same; what was pushed out was encapsulated by one of them only.
    let sent = |sent: &[(Left, Vec<u8>)]| -> Vec<Vec<u8>> {
        sent.iter().filter(|(left, _)| *left == Left::Sent).map(|(_, frame)| frame.clone()).collect()
    };
    // Longer frames use up more; here all packets have one length.
    assert_eq!(sent(&a.sent), sent(&b.sent));
    // All fates, and a few levels.
    assert!(seen.len() >= 3 + 5, "{seen:?}");
}

/// What early stop is: up to the first packet that finds no room a burst is as without it; after that, a packet is kept if its flow
/// was there already.
#[test]
fn early_stop_ends_the_bursts_insertions_and_nothing_else() {
    let mut differ = 0;
    for driver in DRIVERS {
        let with = PaperOptions { early_stop: true, driver, hand_over: HandOver::Batch };
        let without = PaperOptions { early_stop: false, ..with };
        for bursts in (10..60).step_by(5) {
            let replay = |last: PaperOptions| {
                let mut subject = Subject::<PaperGate>::new(96, 2 * SECOND);
                let mut traffic = Traffic::new(bursts, 150, true);
                for _ in 0..bursts {
                    let burst = traffic.burst();
                    subject.burst(with, traffic.now_ns, &burst);
                    subject.turn(traffic.now_ns);
                }
                // Whatever has expired goes, so that nothing does in the burst that counts.
                let now_ns = traffic.now_ns;
                (0..subject.gate.capacity())
                    .for_each(|_| assert!(subject.burst(with, now_ns, &[]).is_empty()));
                let before: HashSet<_> = subject.sorted().iter().map(|e| (e.source, e.destination)).collect();
                let burst: Vec<_> = std::iter::repeat_with(|| traffic.burst()).flatten().take(MOST).collect();
                let fates = subject.burst(last, now_ns, &burst);
                (burst, before, fates)
            };
            let ((burst, before, stopped), (_, _, free)) = (replay(with), replay(without));
            let no_room = |fate: &Fate| matches!(fate, Fate::Request { kept: false, .. });
            let Some(first) = stopped.iter().position(no_room) else {
                assert_eq!(stopped, free);
                continue;
            };
            assert_eq!(stopped[..=first], free[..=first]);
            let flow = |frame: &[u8]| {
                let link = if frame[12] == 0x81 { 18 } else { 14 };
                (ipv4::src_u32(&frame[link..]), ipv4::dst_u32(&frame[link..]))
            };
            let mut there = before;
            for (i, (fate, (frame, _))) in stopped.iter().zip(&burst).enumerate() {
                let Fate::Request { kept, dscp } = *fate else { continue };
                if i < first && kept {
                    there.insert(flow(frame));
                } else if i > first {
                    assert_eq!(kept, there.contains(&flow(frame)), "packet {i}, the first was {first}");
                    assert!(kept || dscp == Level::FIRST.dscp());
                }
            }
            differ += usize::from(stopped != free);
        }
    }
    assert!(differ > 0, "without early stop nobody found room after somebody had not");
}

#[test]
fn levels_are_those_of_the_wire_facts() {
    let mut level = Level::FIRST;
    assert_eq!(level.dscp(), 41);
    // Eight packets at that level, at once; then the time since the last one counts.
    for _ in 1..8 {
        level = level.after(0);
        assert_eq!(level.dscp(), 41);
    }
    assert_eq!(level.after(0).dscp(), 3);
    // 2^39 ps are half a second and a bit.
    assert_eq!(level.after((1 << 39) / 1000).priority, 38);
    assert_eq!(level.after((1 << 39) / 1000 + 1), Level { priority: 39, allowance: 7 });
    // Who waits longer has more, at once; the DSCP ends at 63.
    assert_eq!(Level::FIRST.after(1000 * SECOND).priority, 49);
    assert_eq!(Level::FIRST.after(u64::MAX).dscp(), 63);
}

#[test]
fn requests_are_encapsulated() {
    let outer = Outer::new(Ipv4Addr::new(10, 0, 0, 2));
    let mut packets = Packets::new(1);
    for tagged in [false, true] {
        for ecn in 0..4 {
            let frame = frame(0x0102_0304, 0xc000_02fe, tagged, 0xb8 | ecn);
            let id = packets.receive(&frame, 0).unwrap();
            let packet = packets.at(id);
            packet.encapsulate(&outer, 41);
            let sent = packet.frame();
            let inner = if tagged { &frame[18..46] } else { &frame[14..42] };
            assert_eq!((sent.len(), &sent[12..14], &sent[34..]), (14 + 20 + 28, &[8, 0][..], inner));
            let ip = &sent[14..];
            assert!(ipv4::check(ip).is_ok() && ipv4::checksum_ok(ip) && ipv4::dont_fragment(ip));
            assert_eq!((ip[1], ipv4::ttl(ip), ipv4::protocol(ip)), (41 << 2 | ecn, 64, Protocol::IPV4));
            assert_eq!((ipv4::dst_u32(ip), usize::from(ipv4::total_len(ip))), (0x0a00_0002, 48));
            packets.give_back(id);
        }
    }
    assert_eq!(packets.receive(&[0; Packets::LONGEST + 1], 0), None);
}

/// Against a sorted list: highest first, each priority in order; who is too many was the last of the lowest.
#[test]
fn the_solicitor_keeps_the_highest() {
    for how in HAND_OVERS {
        let mut random = Random::new(3);
        let (mut solicitor, mut packets) = (Solicitor::new(), Packets::new(4000));
        // By priority and age.
        let mut model: Vec<(u8, u32)> = Vec::new();
        let (mut number, mut now_ns, mut sent_bytes) = (0_u32, 0, 0);
        let mut counts = Books::default();
        for _ in 0..400 {
            let mut expected = Vec::new();
            for _ in 0..random.below(100) {
                // The number is told by the source.
                let id = packets.receive(&frame(number, 0xc000_0201, false, 0), 0).unwrap();
                let dscp = 3 + random.below(61) as u8;
                solicitor.request(how, &mut packets, id, dscp);
                let at = model.partition_point(|&(other, _)| other >= dscp);
                model.insert(at, (dscp, number));
                if model.len() > KEPT {
                    expected.extend(model.pop().map(|(_, number)| (Left::PushedOut, number)));
                }
                number += 1;
                counts.handed += 1;
            }
            solicitor.hand_over(&mut packets);
            now_ns += random.below(100_000) as u64;
            let mut left = Vec::new();
            solicitor.turn(now_ns, &mut packets, None, |how, frame| {
                left.push((how, ipv4::src_u32(&frame[14..])));
                sent_bytes += if how == Left::Sent { frame.len() as u64 + 24 } else { 0 };
            });
            let sent = left.iter().filter(|(how, _)| *how == Left::Sent).count();
            expected.extend(model.drain(..sent).map(|(_, number)| (Left::Sent, number)));
            assert_eq!(left, expected);
            // 5 % of 10 Gbit/s are a byte in 16 ns; one frame more may be under way.
            assert!(sent_bytes * 16 <= now_ns + 84 * 16, "{sent_bytes} bytes in {now_ns} ns");
            counts.sent += sent as u64;
            counts.pushed_out += (left.len() - sent) as u64;
        }
        assert_eq!(solicitor.books(), counts);
        assert!(counts.pushed_out > 1000 && sent_bytes * 16 > now_ns * 9 / 10);
        solicitor.empty(&mut packets);
        assert_eq!((solicitor.books().thrown_away, packets.free()), (model.len() as u64, 4000));
    }
}

/// The way is bounded: what finds it full is lost, counted, and free again.
#[test]
fn who_finds_the_way_full_is_lost() {
    for how in HAND_OVERS {
        let (mut solicitor, mut packets) = (Solicitor::new(), Packets::new(9000));
        for i in 0..9000 {
            let id = packets.receive(&frame(i, 0xc000_0201, false, 0), 0).unwrap();
            solicitor.request(how, &mut packets, id, 41);
            if i % 250 == 249 {
                solicitor.hand_over(&mut packets);
            }
        }
        let books = solicitor.books();
        assert_eq!((books.handed, books.lost, packets.free()), (8192, 808, 808));
        solicitor.empty(&mut packets);
        assert_eq!(packets.free(), 9000);
    }
}

#[test]
fn a_filled_table_is_full_and_its_flows_go_in_time() {
    fn filled<G: Gate>(options: G::Options) {
        let mut subject = Subject::<G>::new(2000, SECOND);
        subject.gate.fill(5 * SECOND, 0xc000_0201, &mut Random::new(1));
        let full = subject.gate.len();
        assert!(full * 100 > subject.gate.capacity() * 90, "{full} flows");
        let halves = subject.gate.entries().iter().filter(|e| e.last_ns > 4 * SECOND + SECOND / 2).count();
        assert!(halves * 3 > full && halves * 3 < full * 2, "{halves} of {full} in the later half");
        // A scan goes round in so many bursts, whatever it costs each.
        for _ in 0..subject.gate.capacity() {
            subject.burst(options, 5 * SECOND + SECOND / 2, &[]);
        }
        assert_eq!(subject.gate.len(), halves);
        for _ in 0..subject.gate.capacity() {
            subject.burst(options, 7 * SECOND, &[]);
        }
        assert!(subject.gate.is_empty());
    }
    filled::<PaperGate>(paper_ways(true)[0]);
    filled::<OurGate>(OurOptions { way: Way::OnePass, early_stop: true, hand_over: HandOver::Batch });
}
