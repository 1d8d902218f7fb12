//! Floods: what they take, and what they leave to others.

use crate::cases::{USUAL, syn};
use crate::packets::*;
use tidemill_burst::DropReason;
use tidemill_nf::filter::settings::Plan;
use tidemill_nf::filter::{Counter, Counters, Fate, Filter, Net, Ways};

#[test]
fn a_flood_of_syns_turns_over_half_open_connections_only() {
    let plan = Plan { states: 100, half_open: 20, half_open_per_source: 5, ..plan() };
    for (inside, remote, v6) in [("10.0.0.5", "192.0.2.1", false), ("2001:db8::5", "2001:db8:1::1", true)] {
        let mut lab = Lab::with("pass all keep state\n", plan, true);
        let counts = |lab: &Lab| match v6 {
            false => (lab.v4.states().half_open(), lab.v4.states().len()),
            true => (lab.v6.states().half_open(), lab.v6.states().len()),
        };
        let open = |lab: &mut Lab, port: u16| {
            assert!(lab.passes(OUTWARD, inside, remote, syn(port)));
            let back = Body::Tcp(80, port, segment(SYN | ACK, 5000, 1001));
            assert!(lab.passes(INWARD, remote, inside, back));
            assert!(lab.passes(OUTWARD, inside, remote, Body::Tcp(port, 80, segment(ACK, 1001, 5001))));
        };
        (4000..4050).for_each(|port| open(&mut lab, port));
        // From one source: it has its five, and its addresses of one link are one source.
        for port in 1..=500 {
            let source = if v6 { format!("2001:db8:66::{port:x}") } else { "198.51.100.1".to_owned() };
            assert!(lab.passes(INWARD, &source, inside, syn(port)));
        }
        assert_eq!(counts(&lab), (5, 55));
        // From everybody.
        for n in 1..=500_u32 {
            let source =
                if v6 { format!("2001:db8:{n:x}::1") } else { format!("11.0.{}.{}", n / 256, n % 256) };
            assert!(lab.passes(INWARD, &source, inside, syn(9)));
        }
        assert_eq!(counts(&lab), (20, 70));
        let evicted = if v6 { lab.v6.counters() } else { lab.v4.counters() }.get(Counter::HalfOpenEvicted);
        assert_eq!(evicted, 495 + 485);
        // Meanwhile others open theirs, and those that are open go on.
        (5000..5020).for_each(|port| open(&mut lab, port));
        assert!(lab.passes(OUTWARD, inside, remote, Body::Tcp(4000, 80, segment(ACK, 1001, 5001))));
        // Where all is full half-open ones give way, and then nothing more fits.
        let host = |n: u32| if v6 { format!("2001:db8:77:{n:x}::5") } else { format!("10.1.0.{n}") };
        for n in 1..=200 {
            lab.passes(OUTWARD, &host(n), remote, Body::Udp(1, 53));
            lab.passes(INWARD, remote, &host(n), Body::Udp(53, 1));
        }
        assert_eq!(counts(&lab), (0, 100));
        let more = packet(ip(&host(201)), ip(remote), Body::Udp(1, 53));
        assert_eq!(lab.send(OUTWARD, &more), Fate::Drop(DropReason::FilterStatesFull));
        let more = packet(ip(inside), ip(remote), Body::Udp(999, 53));
        assert_eq!(lab.send(OUTWARD, &more), Fate::Drop(DropReason::FilterSourceLimit), "it has many");
    }
}

/// What a burst's new connections touch is asked for ahead: who gives way for them, and whom limits stop, is as one by one.
#[test]
fn a_flood_in_bursts_is_judged_as_one_by_one() {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    fn numbers<A: Net<W>, const W: usize>(filter: &Filter<A, W>) -> (Counters, [usize; 4]) {
        let states = filter.states();
        let now = [states.len(), states.half_open(), states.unanswered(), states.sources()];
        (filter.counters().clone(), now)
    }
    let plan = Plan {
        states: 150,
        states_per_source: 20,
        half_open: 40,
        half_open_per_source: 6,
        unanswered: 40,
        unanswered_per_source: 10,
        ..plan()
    };
    let text = "block in quick proto udp from any to any port 7\npass all keep state\n";
    for is_v6 in [false, true] {
        let mut random = StdRng::seed_from_u64(u64::from(is_v6));
        let (mut one, mut all) = (Lab::with(text, plan, true), Lab::with(text, plan, true));
        let host = |n: u32| match is_v6 {
            true => ip(&format!("2001:db8:0:{n:x}::1")),
            false => ip(&format!("10.0.{}.{}", n >> 8, n & 255)),
        };
        let remote = ip(if is_v6 { "2001:db8:ffff::1" } else { "192.0.2.1" });
        for _ in 0..150 {
            let mut packets: Vec<(Ways, Vec<u8>)> = Vec::new();
            let mut sent = Vec::new();
            let count = random.random_range(1..=256);
            while packets.len() < count {
                let port = random.random_range(4000..5000);
                match random.random_range(0..10) {
                    // An answer to what came a moment ago in the same burst, or the same again.
                    0..3 if !sent.is_empty() => {
                        let (from, body) = sent[sent.len() - 1 - random.random_range(0..sent.len().min(50))];
                        let back = match body {
                            Body::Udp(near, far) => Body::Udp(far, near),
                            Body::Tcp(near, far, _) => Body::Tcp(far, near, segment(SYN | ACK, 5000, 1001)),
                            other => other,
                        };
                        packets.push(match random.random_bool(0.7) {
                            true => (INWARD, packet(remote, from, back)),
                            false => (OUTWARD, packet(from, remote, body)),
                        });
                    }
                    kind => {
                        let body = match kind {
                            0..5 => Body::Udp(port, 53),
                            5 => Body::Udp(port, 7),
                            6 => Body::Echo(port, true),
                            _ => Body::Tcp(port, 80, segment(SYN, 1000, 0)),
                        };
                        // Some sources send more than they may.
                        let sources = if random.random_bool(0.4) { 3 } else { 1000 };
                        let from = host(1 + random.random_range(0..sources));
                        sent.push((from, body));
                        packets.push((OUTWARD, packet(from, remote, body)));
                    }
                }
            }
            let fates = match is_v6 {
                true => burst(&mut all.v6, &all.rules, all.ms, &packets),
                false => burst(&mut all.v4, &all.rules, all.ms, &packets),
            };
            for ((ways, bytes), fate) in packets.iter().zip(fates) {
                assert_eq!(one.send(*ways, bytes), fate);
            }
            let wait = random.random_range(0..20_000);
            for lab in [&mut one, &mut all] {
                lab.ms += wait;
                lab.v4.reclaim(lab.ms, 4);
                lab.v6.reclaim(lab.ms, 4);
            }
            assert_eq!(numbers(&one.v4), numbers(&all.v4));
            assert_eq!(numbers(&one.v6), numbers(&all.v6));
        }
        let counted = |counter| all.v4.counters().get(counter) + all.v6.counters().get(counter);
        for counter in [Counter::HalfOpenEvicted, Counter::UnansweredEvicted, Counter::SourceLimit] {
            assert!(counted(counter) > 100, "{}: {}", counter.name(), counted(counter));
        }
    }
}

#[test]
fn a_flood_of_datagrams_turns_over_what_nobody_has_answered_only() {
    let bounds = Plan { states: 100, unanswered: 20, unanswered_per_source: 5, ..plan() };
    for (inside, remote, v6) in [("10.0.0.5", "192.0.2.1", false), ("2001:db8::5", "2001:db8:1::1", true)] {
        let mut lab = Lab::with("pass all keep state\n", bounds, true);
        let counts = |lab: &Lab| match v6 {
            false => (lab.v4.states().unanswered(), lab.v4.states().len()),
            true => (lab.v6.states().unanswered(), lab.v6.states().len()),
        };
        let ask = |lab: &mut Lab, port: u16| {
            assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(port, 53)));
            assert!(lab.passes(INWARD, remote, inside, Body::Udp(53, port)));
        };
        (4000..4030).for_each(|port| ask(&mut lab, port));
        assert!(lab.passes(OUTWARD, inside, remote, Body::Echo(7, true)));
        assert_eq!(counts(&lab), (1, 31));
        assert!(lab.passes(INWARD, remote, inside, Body::Echo(7, false)));
        assert_eq!(counts(&lab), (0, 31));
        // From one source: it has its five, and its addresses of one link are one source.
        for port in 1..=500 {
            let source = if v6 { format!("2001:db8:66::{port:x}") } else { "198.51.100.1".to_owned() };
            assert!(lab.passes(INWARD, &source, inside, Body::Udp(port, 9)));
        }
        assert_eq!(counts(&lab), (5, 36));
        // From everybody: it has twenty.
        for n in 1..=500_u32 {
            let source =
                if v6 { format!("2001:db8:{n:x}::1") } else { format!("11.0.{}.{}", n / 256, n % 256) };
            assert!(lab.passes(INWARD, &source, inside, Body::Other(47)));
        }
        assert_eq!(counts(&lab), (20, 51));
        let evicted = if v6 { lab.v6.counters() } else { lab.v4.counters() }.get(Counter::UnansweredEvicted);
        assert_eq!(evicted, 495 + 485);
        // Meanwhile others ask, and what was answered goes on.
        (5000..5020).for_each(|port| ask(&mut lab, port));
        assert!(lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)));
    }
}

#[test]
fn one_source_has_so_many_connections_and_no_more() {
    let bounds = Plan { states_per_source: 30, ..plan() };
    let mut lab = Lab::with(USUAL, bounds, true);
    let (inside, remote) = ("10.0.0.5", "192.0.2.1");
    for port in 0..30 {
        assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000 + port, 53)));
        assert!(lab.passes(INWARD, remote, inside, Body::Udp(53, 4000 + port)), "who answers begins nothing");
    }
    let refused = Fate::Drop(DropReason::FilterSourceLimit);
    for body in [Body::Udp(4999, 53), Body::Echo(7, true), syn(4999)] {
        assert_eq!(lab.send(OUTWARD, &packet(ip(inside), ip(remote), body)), refused, "{body:?}");
    }
    assert_eq!((lab.v4.states().len(), lab.v4.states().sources()), (30, 1));
    assert!(lab.passes(OUTWARD, "10.0.0.6", remote, Body::Udp(4000, 53)), "others have theirs");
    assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000, 53)), "and those that are there go on");
    lab.ms += times().udp_ms;
    let buckets = lab.v4.states().buckets() + 1;
    lab.v4.reclaim(lab.ms, buckets);
    assert_eq!((lab.v4.states().len(), lab.v4.states().sources()), (0, 0));
    assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4999, 53)));
}

/// Sixteen sources whose connections are answered, and which may have a sixteenth each: a fifth of the room is left to others, whatever waits for an answer.
#[test]
fn few_sources_cannot_have_all_of_the_room() {
    let bounds = Plan { states_per_source: 63, ..plan() };
    for v6 in [false, true] {
        let mut lab = Lab::with("pass all keep state\n", bounds, true);
        let inside = if v6 { "2001:db8:1::5" } else { "10.0.0.5" };
        let refused = Fate::Drop(DropReason::FilterSourceLimit);
        for n in 0..900_u32 {
            let forged =
                if v6 { format!("2001:db8:ffff:{n:x}::1") } else { format!("11.0.{}.{}", n / 256, n % 256) };
            assert!(lab.passes(INWARD, &forged, inside, Body::Udp(9, 9)));
        }
        let from = |n: u32| if v6 { format!("2001:db8:0:{n:x}::1") } else { format!("198.51.100.{n}") };
        let open = |lab: &mut Lab, n: u32, port: u16| {
            let fate = lab.send(INWARD, &packet(ip(&from(n)), ip(inside), Body::Udp(4000 + port, 53)));
            assert!(fate == Fate::Passes || fate == refused, "{n}, {port}: {fate:?}");
            fate == Fate::Passes && lab.passes(OUTWARD, inside, &from(n), Body::Udp(53, 4000 + port))
        };
        let answered = |lab: &Lab| match v6 {
            false => lab.v4.states().len() - lab.v4.states().unanswered(),
            true => lab.v6.states().len() - lab.v6.states().unanswered(),
        };
        for port in 0..63 {
            for n in 1..=16 {
                open(&mut lab, n, port);
            }
        }
        assert_eq!(answered(&lab), 800);
        // Who comes then has less than they, and enough.
        assert_eq!((0..63).filter(|port| open(&mut lab, 17, *port)).count(), 40);
        assert_eq!(answered(&lab), 840);
        assert!(!open(&mut lab, 1, 900), "it has more than others may have now");
    }
}
