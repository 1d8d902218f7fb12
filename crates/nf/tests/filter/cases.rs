//! What a filter must do, case by case.

use crate::packets::*;
use tidemill_burst::DropReason;
use tidemill_nf::filter::settings::Plan;
use tidemill_nf::filter::{Counter, Fate, NOWHERE, Ways};

/// Hosts inside reach everybody, and nobody reaches them.
pub(crate) const USUAL: &str = "block all\npass in on lan keep state\npass out on wan keep state\n";

pub(crate) fn syn(from: u16) -> Body {
    Body::Tcp(from, 80, segment(SYN, 1000, 0))
}

#[test]
fn answers_come_back_and_nothing_else() {
    for (inside, remote) in [("10.0.0.5", "192.0.2.1"), ("2001:db8::5", "2001:db8:1::1")] {
        let mut lab = Lab::new(USUAL);
        assert!(!lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)));
        assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000, 53)));
        assert!(lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)));
        assert!(!lab.passes(INWARD, remote, inside, Body::Udp(53, 4001)));
        assert!(lab.passes(OUTWARD, inside, remote, Body::Echo(7, true)));
        assert!(lab.passes(INWARD, remote, inside, Body::Echo(7, false)));
        assert!(!lab.passes(INWARD, remote, inside, Body::Echo(7, true)), "its own question is another's");
        assert!(lab.passes(OUTWARD, inside, remote, Body::Other(47)));
        assert!(lab.passes(INWARD, remote, inside, Body::Other(47)));
        assert!(!lab.passes(INWARD, remote, inside, Body::Other(50)));
        lab.ms += times().udp_ms;
        assert!(!lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)), "it was silent for too long");
    }
}

#[test]
fn a_tcp_connection_opens_and_what_does_not_fit_is_dropped() {
    let mut lab = Lab::new(USUAL);
    let (inside, remote) = ("10.0.0.5", "192.0.2.1");
    let tcp = |flags, seq, ack| Body::Tcp(4000, 80, segment(flags, seq, ack));
    let back = |flags, seq, ack| Body::Tcp(80, 4000, segment(flags, seq, ack));
    assert!(!lab.passes(OUTWARD, inside, remote, tcp(ACK, 1, 1)), "it opens nothing");
    assert!(lab.passes(OUTWARD, inside, remote, tcp(SYN, 1000, 0)));
    assert_eq!(lab.v4.states().half_open(), 1);
    assert!(lab.passes(INWARD, remote, inside, back(SYN | ACK, 5000, 1001)));
    assert!(lab.passes(OUTWARD, inside, remote, tcp(ACK, 1001, 5001)));
    assert_eq!(lab.v4.states().half_open(), 0);
    let forged = packet(ip(remote), ip(inside), back(RST, 90_000, 0));
    assert_eq!(lab.send(INWARD, &forged), Fate::Drop(DropReason::FilterOutOfWindow));
    assert!(lab.passes(INWARD, remote, inside, back(FIN | ACK, 5001, 1001)));
    assert!(lab.passes(OUTWARD, inside, remote, tcp(FIN | ACK, 1001, 5002)));
    lab.ms += times().tcp_closed_ms - 1;
    assert!(lab.passes(INWARD, remote, inside, back(ACK, 5002, 1002)));
    assert!(lab.passes(OUTWARD, inside, remote, tcp(SYN, 90_000, 0)), "the same ports again");
    assert!(lab.passes(INWARD, remote, inside, back(SYN | ACK, 7000, 90_001)));
    assert_eq!(lab.v4.states().len(), 1);
}

/// A client that lost its power comes back and takes the same port: its server asks, the client resets, and opens anew.
#[test]
fn a_host_that_was_started_again_takes_its_ports_again() {
    for (inside, remote) in [("10.0.0.5", "192.0.2.1"), ("2001:db8::5", "2001:db8:1::1")] {
        let mut lab = Lab::new(USUAL);
        let tcp = |flags, seq, ack| Body::Tcp(4000, 80, segment(flags, seq, ack));
        let back = |flags, seq, ack| Body::Tcp(80, 4000, segment(flags, seq, ack));
        assert!(lab.passes(OUTWARD, inside, remote, tcp(SYN, 1000, 0)));
        assert!(lab.passes(INWARD, remote, inside, back(SYN | ACK, 5000, 1001)));
        assert!(lab.passes(OUTWARD, inside, remote, tcp(ACK, 1001, 5001)));
        let dropped = Fate::Drop(DropReason::FilterOutOfWindow);
        for seq in [1500, 0x9000_0000] {
            assert!(lab.passes(OUTWARD, inside, remote, tcp(SYN, seq, 0)), "{seq}");
            // From where nobody may begin anything nobody does it with its ports either.
            assert_eq!(lab.send(INWARD, &packet(ip(remote), ip(inside), back(SYN, seq, 0))), dropped);
            // Forged ones change nothing: neither do they make an answer fit, nor does a reset end anything that has not the very number.
            let other = back(SYN | ACK, 7000, seq + 1);
            assert_eq!(lab.send(INWARD, &packet(ip(remote), ip(inside), other)), dropped);
            assert_eq!(lab.send(INWARD, &packet(ip(remote), ip(inside), back(RST, 7000, 0))), dropped);
            assert!(lab.passes(OUTWARD, inside, remote, tcp(RST, 1002, 0)));
            assert!(lab.passes(OUTWARD, inside, remote, tcp(ACK, 1001, 5001)));
            assert!(lab.passes(INWARD, remote, inside, back(ACK, 5001, 1001)), "what the server asks by");
        }
        let life = |lab: &mut Lab| {
            let end = lab.ms + times().tcp_established_ms;
            let buckets = lab.v4.states().buckets().max(lab.v6.states().buckets()) + 1;
            lab.v4.reclaim(end, buckets) + lab.v6.reclaim(end, buckets)
        };
        assert!(lab.passes(OUTWARD, inside, remote, tcp(RST, 1001, 0)), "the very next number");
        assert!(lab.passes(OUTWARD, inside, remote, tcp(SYN, 0x9000_0000, 0)), "the same ports again");
        assert!(lab.passes(INWARD, remote, inside, back(SYN | ACK, 7000, 0x9000_0001)));
        assert!(lab.passes(OUTWARD, inside, remote, tcp(ACK, 0x9000_0001, 7001)));
        assert_eq!(lab.v4.states().len() + lab.v6.states().len(), 1);
        // Nor does a SYN make it live longer.
        lab.ms += 1000;
        assert!(lab.passes(OUTWARD, inside, remote, tcp(SYN, 1, 0)));
        lab.ms -= 1000;
        assert_eq!(life(&mut lab), 1);
    }
}

#[test]
fn errors_about_a_connection_pass_and_others_do_not() {
    for (inside, remote, router) in
        [("10.0.0.5", "192.0.2.1", "203.0.113.9"), ("2001:db8::5", "2001:db8:1::1", "2001:db8:9::9")]
    {
        let mut lab = Lab::new(USUAL);
        let sent = packet(ip(inside), ip(remote), syn(4000));
        let about = error(ip(router), ip(inside), &sent);
        assert_eq!(lab.send(INWARD, &about), Fate::Drop(DropReason::FilterBlocked), "nothing was sent");
        assert_eq!(lab.send(OUTWARD, &sent), Fate::Passes);
        assert_eq!(lab.send(INWARD, &about), Fate::Passes);
        let other = packet(ip(inside), ip(remote), Body::Tcp(4000, 80, segment(SYN, 900_000, 0)));
        let guessed = error(ip(router), ip(inside), &other);
        assert_eq!(lab.send(INWARD, &guessed), Fate::Drop(DropReason::FilterOutOfWindow));
        let mut damaged = about.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(
            lab.send(INWARD, &damaged),
            Fate::Drop(DropReason::FilterBlocked),
            "its checksum is wrong"
        );
        let elsewhere = error(ip(router), ip(remote), &sent);
        assert_eq!(
            lab.send(INWARD, &elsewhere),
            Fate::Drop(DropReason::FilterBlocked),
            "not to who has sent it"
        );
    }
}

/// What means nothing behind another router is let in by no connection, whatever it quotes: source quench, redirects, types that nobody knows.
#[test]
fn rules_decide_about_what_is_no_error_of_a_packet_on_its_way() {
    for (inside, remote, about, others) in [
        ("10.0.0.5", "192.0.2.1", &[3, 11, 12][..], &[4, 5, 6][..]),
        ("2001:db8::5", "2001:db8:1::1", &[1, 2, 3, 4][..], &[5, 100, 127, 137][..]),
    ] {
        let mut lab = Lab::new(USUAL);
        let sent = packet(ip(inside), ip(remote), Body::Udp(4000, 53));
        assert_eq!(lab.send(OUTWARD, &sent), Fate::Passes);
        for kind in about {
            assert_eq!(
                lab.send(INWARD, &quoting(*kind, ip(remote), ip(inside), &sent)),
                Fate::Passes,
                "{kind}"
            );
        }
        let blocked = Fate::Drop(DropReason::FilterBlocked);
        for kind in others {
            assert_eq!(lab.send(INWARD, &quoting(*kind, ip(remote), ip(inside), &sent)), blocked, "{kind}");
        }
        lab.load("pass all\n");
        for kind in others {
            assert_eq!(
                lab.send(INWARD, &quoting(*kind, ip(remote), ip(inside), &sent)),
                Fate::Passes,
                "{kind}"
            );
        }
    }
}

#[test]
fn what_new_rules_do_not_allow_ends_with_its_next_packet_or_goes_on() {
    for recheck in [true, false] {
        let mut lab = Lab::with(
            &format!("table <bad> persist\n{USUAL}block quick from any to <bad>\n"),
            plan(),
            recheck,
        );
        let (inside, remote) = ("10.0.0.5", "192.0.2.1");
        assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000, 53)));
        assert!(lab.passes(OUTWARD, inside, "192.0.2.9", Body::Udp(4000, 53)));
        let bad = tidemill_nf::filter::text::read_network("192.0.2.0/30").unwrap();
        lab.sets[0].add(bad);
        lab.rules = lab.rules.with_sets(&lab.sets, &lab.domain, 2).unwrap();
        assert_eq!(
            lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)),
            !recheck,
            "an answer ends it, too"
        );
        assert_eq!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000, 53)), !recheck);
        assert!(lab.passes(INWARD, "192.0.2.9", inside, Body::Udp(53, 4000)), "nothing has changed for it");
        lab.load("block all\n");
        assert_eq!(lab.passes(INWARD, "192.0.2.9", inside, Body::Udp(53, 4000)), !recheck);
        assert_eq!(lab.v4.counters().get(Counter::StatesRevoked), if recheck { 2 } else { 0 });
    }
}

#[test]
fn connections_of_before_are_picked_up_where_a_rule_says_so() {
    let mut lab =
        Lab::new("block all\npass in on lan proto tcp flags any\npass out on wan proto tcp flags any\n");
    let (inside, remote) = ("10.0.0.5", "192.0.2.1");
    assert!(!lab.passes(INWARD, remote, inside, Body::Tcp(80, 4000, segment(ACK, 5000, 1000))));
    assert!(lab.passes(OUTWARD, inside, remote, Body::Tcp(4000, 80, segment(ACK, 1000, 5000))));
    assert_eq!(lab.v4.states().half_open(), 1, "nobody has answered");
    assert!(lab.passes(INWARD, remote, inside, Body::Tcp(80, 4000, segment(ACK, 5000, 1000))));
    assert_eq!(lab.v4.states().half_open(), 0);
    assert!(lab.passes(OUTWARD, inside, remote, Body::Tcp(4001, 80, segment(RST, 1000, 5000))));
    assert_eq!(lab.v4.states().len(), 1, "a reset begins nothing");
}

#[test]
fn a_packet_has_to_pass_on_both_of_its_ways() {
    let mut lab = Lab::new("block out on wan\n");
    assert!(!lab.passes(OUTWARD, "10.0.0.5", "192.0.2.1", Body::Udp(4000, 53)));
    assert!(lab.passes(INWARD, "192.0.2.1", "10.0.0.5", Body::Udp(53, 4000)));
    assert_eq!(lab.v4.states().len(), 0, "where no rule matches, nothing is remembered");
    // State on one way covers that one: the answer is judged where it comes in.
    let mut lab = Lab::new("block in on wan\npass in on lan keep state\n");
    assert!(lab.passes(OUTWARD, "10.0.0.5", "192.0.2.1", Body::Udp(4000, 53)));
    assert!(!lab.passes(INWARD, "192.0.2.1", "10.0.0.5", Body::Udp(53, 4000)));
    // On an interface that is skipped nothing is judged.
    let mut lab = Lab::new("set skip on { lan dmz }\nblock all\npass out on wan keep state\n");
    assert!(lab.passes(OUTWARD, "10.0.0.5", "192.0.2.1", Body::Udp(4000, 53)));
    assert!(lab.passes(INWARD, "192.0.2.1", "10.0.0.5", Body::Udp(53, 4000)));
    assert!(lab.passes(Ways { from: 0, to: 2 }, "10.0.0.5", "10.1.0.5", Body::Udp(4000, 53)));
    assert!(!lab.passes(INWARD, "192.0.2.2", "10.0.0.5", Body::Udp(53, 4000)));
}

#[test]
fn the_last_rule_that_matches_decides_and_a_quick_one_at_once() {
    let mut lab =
        Lab::new("pass all no state\nblock from 10.0.0.5\npass from 10.0.0.5 to 192.0.2.1 no state\n");
    assert!(lab.passes(OUTWARD, "10.0.0.5", "192.0.2.1", Body::Udp(1, 2)));
    assert!(!lab.passes(OUTWARD, "10.0.0.5", "192.0.2.2", Body::Udp(1, 2)));
    assert!(lab.passes(OUTWARD, "10.0.0.6", "192.0.2.2", Body::Udp(1, 2)));
    lab.load("pass all no state\nblock quick from 10.0.0.5\npass from 10.0.0.5 to 192.0.2.1 no state\n");
    assert!(!lab.passes(OUTWARD, "10.0.0.5", "192.0.2.1", Body::Udp(1, 2)));
    assert_eq!(lab.rules.hits(1).packets, 1);
    assert_eq!(lab.rules.hits(0).packets, 0);
    let told = packet(ip("10.0.0.5"), ip("192.0.2.1"), Body::Udp(1, 2));
    lab.load("set block-policy return\nblock all\n");
    assert_eq!(lab.send(OUTWARD, &told), Fate::Tell(DropReason::FilterRejected));
    lab.load("set block-policy return\nblock drop all\n");
    assert_eq!(lab.send(OUTWARD, &told), Fate::Drop(DropReason::FilterBlocked));
}

#[test]
fn fragments_go_as_their_first_one_goes() {
    let mut lab = Lab::new(USUAL);
    let whole = packet(
        ip("10.0.0.5"),
        ip("192.0.2.1"),
        Body::Tcp(4000, 80, tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) }),
    );
    let pieces = fragments(&whole, 48, 1);
    assert_eq!(pieces.len(), 3);
    assert_eq!(lab.send(OUTWARD, &pieces[0]), Fate::Passes);
    assert!(lab.v4.settled().is_some());
    assert_eq!(lab.send(OUTWARD, &pieces[2]), Fate::Passes);
    assert_eq!(lab.send(OUTWARD, &pieces[1]), Fate::Passes);
    // In another order they wait.
    let pieces = fragments(&whole, 48, 2);
    let Fate::Waits(token) = lab.send(OUTWARD, &pieces[1]) else { panic!() };
    assert_eq!(lab.v4.resume(lab.ms, token), Fate::Waits(token));
    assert_eq!(lab.send(OUTWARD, &pieces[0]), Fate::Passes);
    assert_eq!((lab.v4.settled(), lab.v4.resume(lab.ms, token)), (Some(token), Fate::Passes));
    // Of what is blocked none passes.
    let back = packet(
        ip("192.0.2.1"),
        ip("10.0.0.7"),
        Body::Tcp(1, 2, tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) }),
    );
    let pieces = fragments(&back, 48, 3);
    let Fate::Waits(token) = lab.send(INWARD, &pieces[2]) else { panic!() };
    assert_eq!(lab.send(INWARD, &pieces[0]), Fate::Drop(DropReason::FilterBlocked));
    assert_eq!(lab.v4.resume(lab.ms, token), Fate::Drop(DropReason::FilterFragmentRefused));
    assert_eq!(lab.send(INWARD, &pieces[1]), Fate::Drop(DropReason::FilterFragmentRefused));
    // Overlaps, pieces of a length that none has, and a first one that ends before its flags.
    let pieces = fragments(&whole, 48, 4);
    let mut overlapping = pieces[1].clone();
    overlapping[7] -= 1;
    tidemill_wire::ipv4::fill_checksum(&mut overlapping[..20]);
    assert_eq!(lab.send(OUTWARD, &pieces[0]), Fate::Passes);
    assert_eq!(lab.send(OUTWARD, &overlapping), Fate::Drop(DropReason::FilterFragmentRefused));
    assert_eq!(lab.send(OUTWARD, &pieces[2]), Fate::Drop(DropReason::FilterFragmentRefused));
    let odd = fragments(&whole, 44, 5);
    assert_eq!(lab.send(OUTWARD, &odd[0]), Fate::Drop(DropReason::FilterFragmentRefused));
    let tiny = fragments(&whole, 8, 6);
    assert_eq!(lab.send(OUTWARD, &tiny[0]), Fate::Drop(DropReason::FilterMalformed));
    let late = fragments(&whole, 48, 7);
    let Fate::Waits(token) = lab.send(OUTWARD, &late[1]) else { panic!() };
    lab.ms += times().fragment_ms;
    assert_eq!(lab.v4.resume(lab.ms, token), Fate::Drop(DropReason::FilterFragmentTimeout));
}

#[test]
fn what_cannot_be_read_is_dropped_by_name() {
    let mut lab = Lab::new("pass all\n");
    let (inside, remote) = (ip("2001:db8::5"), ip("2001:db8:1::1"));
    let udp = packet(inside, remote, Body::Udp(4000, 53))[40..].to_vec();
    let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp].concat();
    assert_eq!(lab.send(OUTWARD, &wrap(inside, remote, 60, &options)), Fate::Passes);
    let headers = Fate::Drop(DropReason::FilterHeaders);
    // A chain that runs over the end, hop-by-hop options that are not the first, one that is too long, a route to go on by.
    assert_eq!(lab.send(OUTWARD, &wrap(inside, remote, 60, &[17, 9, 1, 4, 0, 0, 0, 0])), headers);
    let late = [&[0, 0, 1, 4, 0, 0, 0, 0][..], &[17, 0, 1, 4, 0, 0, 0, 0], &udp].concat();
    assert_eq!(lab.send(OUTWARD, &wrap(inside, remote, 60, &late)), headers);
    let long = [[60, 0, 1, 4, 0, 0, 0, 0].repeat(20), udp.clone()].concat();
    assert_eq!(lab.send(OUTWARD, &wrap(inside, remote, 60, &long)), headers);
    let route = [&[17, 0, 4, 1, 0, 0, 0, 0][..], &udp].concat();
    assert_eq!(lab.send(OUTWARD, &wrap(inside, remote, 43, &route)), headers);
    let malformed = Fate::Drop(DropReason::FilterMalformed);
    for (source, destination) in [(inside, remote), (ip("10.0.0.5"), ip("192.0.2.1"))] {
        for (protocol, bytes) in [
            (6, vec![0; 19]),
            (6, vec![1; 20]),
            (17, vec![0, 1, 0, 1, 0, 8, 0]),
            (17, vec![0, 1, 0, 1, 0, 9, 0, 0]),
        ] {
            assert_eq!(lab.send(OUTWARD, &wrap(source, destination, protocol, &bytes)), malformed);
        }
        assert_eq!(lab.send(OUTWARD, &packet(source, source, Body::Udp(7, 7))), malformed, "to itself");
        assert_eq!(
            lab.send(OUTWARD, &packet(source, destination, Body::Tcp(0, 7, segment(SYN, 1, 0)))),
            malformed
        );
    }
}

#[test]
fn a_burst_is_judged_as_its_packets_one_by_one() {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    let text = format!(
        "table <bad> {{ 10.0.0.2 }}\n{USUAL}block quick from <bad>\npass in on wan proto tcp to port 80\npass out on lan proto tcp to port 80\n"
    );
    // Small tables, so that entries go while a burst goes through.
    let plan = Plan { states: 60, half_open: 10, half_open_per_source: 4, unanswered: 20, ..plan() };
    let (mut one, mut all) = (Lab::with(&text, plan, true), Lab::with(&text, plan, true));
    let mut random = StdRng::seed_from_u64(5);
    for _ in 0..300 {
        let packets: Vec<(Ways, Vec<u8>)> = (0..random.random_range(1..257))
            .map(|_| {
                let (inside, remote) = (
                    ip(&format!("10.0.0.{}", random.random_range(1..5))),
                    ip(&format!("192.0.2.{}", random.random_range(1..3))),
                );
                let port = random.random_range(4000..4010);
                let flags = [SYN, SYN | ACK, ACK, RST][random.random_range(0..4)];
                let body = match random.random_range(0..3) {
                    0 => Body::Udp(port, 80),
                    _ => Body::Tcp(port, 80, segment(flags, 1000, 1000)),
                };
                let turned = match body {
                    Body::Udp(from, to) => Body::Udp(to, from),
                    Body::Tcp(from, to, segment) => Body::Tcp(to, from, segment),
                    other => other,
                };
                match random.random_bool(0.5) {
                    true => (OUTWARD, packet(inside, remote, body)),
                    false => {
                        (INWARD, packet(remote, inside, if random.random_bool(0.5) { turned } else { body }))
                    }
                }
            })
            .collect();
        let fates = burst(&mut all.v4, &all.rules, all.ms, &packets);
        for ((ways, bytes), fate) in packets.iter().zip(fates) {
            assert_eq!(one.send(*ways, bytes), fate);
        }
        let wait = random.random_range(0..20_000);
        (one.ms, all.ms) = (one.ms + wait, all.ms + wait);
        one.v4.reclaim(one.ms, 1);
        all.v4.reclaim(all.ms, 1);
        assert_eq!(one.v4.states().len(), all.v4.states().len());
        assert_eq!(
            one.v4.counters().iter().collect::<Vec<_>>(),
            all.v4.counters().iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn what_is_logged_is_bounded_and_says_what_was_decided() {
    let mut lab = Lab::new("block log all\npass in log on lan proto udp\npass out on wan proto udp\n");
    assert!(lab.passes(OUTWARD, "10.0.0.5", "192.0.2.1", Body::Udp(4000, 53)));
    assert!(lab.passes(OUTWARD, "10.0.0.5", "192.0.2.1", Body::Udp(4000, 53)));
    assert!(!lab.passes(INWARD, "192.0.2.1", "10.0.0.5", Body::Udp(1, 2)));
    let lines: Vec<_> = std::iter::from_fn(|| lab.log.pop()).collect();
    let shown: Vec<_> = lines.iter().map(|line| (line.rule, line.interface, line.ports)).collect();
    assert_eq!(shown, [(1, LAN, (4000, 53)), (0, WAN, (1, 2))], "of a connection the first packet");
    for port in 0..500 {
        lab.passes(INWARD, "192.0.2.1", "10.0.0.5", Body::Udp(port, 1));
    }
    assert_eq!(lab.log.len(), 98, "100 in this second, two of them taken");
    assert_eq!(lab.v4.counters().get(Counter::LogSkipped), 402);
}

#[test]
fn workers_agree_on_whose_a_packet_is() {
    use crossbeam_queue::ArrayQueue;
    use std::sync::Arc;
    use tidemill_nf::filter::Filter;
    let log = Arc::new(ArrayQueue::new(1));
    let mut filters: Vec<Filter<u32, 2>> =
        (0..3).map(|worker| Filter::new(&plan(), (worker, 3), 9, log.clone()).unwrap()).collect();
    let rules = Lab::new(USUAL).rules;
    let mut seen = [0; 3];
    for n in 1..200 {
        let (inside, remote) = (ip(&format!("10.0.0.{n}")), ip("192.0.2.1"));
        let out = packet(inside, remote, Body::Udp(4000, 53));
        let packets = [
            packet(remote, inside, Body::Udp(53, 4000)),
            packet(remote, inside, Body::Tcp(53, 4000, segment(SYN, 1, 0))),
            error(ip("203.0.113.9"), inside, &out),
            fragments(
                &packet(
                    remote,
                    inside,
                    Body::Tcp(5, 5, tidemill_nf::filter::tcp::Segment { len: 50, ..segment(SYN, 1, 0) }),
                ),
                32,
                n,
            )[1]
            .clone(),
            out,
        ];
        let owners: Vec<usize> = packets
            .iter()
            .flat_map(|bytes| {
                filters
                    .iter_mut()
                    .map(|filter| {
                        filter.read(&rules, std::iter::once((OUTWARD, &bytes[..])));
                        filter.owner(0, bytes)
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
        seen[owners[0]] += 1;
    }
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}

#[test]
fn the_example_is_right() {
    use tidemill_ip::{Interface, Interfaces};
    use tidemill_nf::filter::{FilterControl, FilterSection};
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/filter/filter.rules");
    let section = FilterSection { rules: Some(path.into()), ..FilterSection::default() };
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "lan"), Interface::of_port(1, "wan")], 2);
    let domain = tidemill_lookup::qsbr::Domain::new();
    let control = FilterControl::new(&section, &interfaces, 1, &domain).unwrap();
    let sets: Vec<_> = control.set_list().into_iter().map(|set| (set.name, set.v4, set.v6)).collect();
    assert_eq!(sets, [("bad".to_owned(), 2, 1), ("private".to_owned(), 3, 1)]);
    assert_eq!(control.rule_list().count(), 9);
    // Without the interfaces it is refused, with the place.
    let none = Interfaces::new(vec![Interface::of_port(0, "len")], 1);
    let error = FilterControl::new(&section, &none, 1, &domain).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("line 10, column 12: there is no interface \"lan\""), "{error}");
}

/// A link that comes and goes is nothing to rules: they stay what they were, with what they have counted.
#[test]
fn rules_are_made_anew_where_interfaces_have_other_names_or_vrfs_only() {
    use tidemill_ip::{Interface, Interfaces};
    use tidemill_nf::filter::{FilterControl, FilterSection};
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/filter/filter.rules");
    let section = FilterSection { rules: Some(path.into()), ..FilterSection::default() };
    let mut list = vec![Interface::of_port(0, "lan"), Interface::of_port(1, "wan")];
    let domain = tidemill_lookup::qsbr::Domain::new();
    let mut control = FilterControl::new(&section, &Interfaces::new(list.clone(), 2), 1, &domain).unwrap();
    let mut version_with = |list: &[Interface]| {
        control.interfaces(&Interfaces::new(list.to_vec(), 2)).unwrap();
        control.rules().version()
    };
    (list[0].up, list[1].mtu) = (false, 1400);
    assert_eq!(version_with(&list), 1);
    list[0].vrf = 1;
    assert_eq!(version_with(&list), 2);
    (list[0].name, list[1].name) = ("wan".into(), "lan".into());
    assert_eq!(version_with(&list), 3);
    assert_eq!(version_with(&list), 3);
}

#[test]
fn what_an_answer_was_let_in_by_is_held_to_new_rules_as_an_answer() {
    let rest = "block all\npass in on lan\npass out on wan no state\n";
    let mut lab = Lab::new(&format!("{rest}pass in on wan proto udp to any port 4000\n"));
    let (inside, remote) = ("10.0.0.5", "192.0.2.1");
    assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000, 53)));
    // Nothing covers the way in by `wan`: a rule of its own lets the answer in, with state.
    assert!(lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)));
    lab.load(rest);
    assert!(!lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)));
    assert_eq!(lab.v4.counters().get(Counter::StatesRevoked), 1);
}

#[test]
fn vrfs_know_nothing_of_each_others_connections() {
    // Interface 3 is of another VRF, where hosts may have the same addresses.
    let other = Ways { from: 3, to: LAN };
    let mut lab = Lab::new(USUAL);
    let (inside, remote) = ("10.0.0.5", "192.0.2.1");
    assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000, 53)));
    assert!(!lab.passes(other, remote, inside, Body::Udp(53, 4000)));
    assert!(lab.passes(INWARD, remote, inside, Body::Udp(53, 4000)));
    let about = error(ip("203.0.113.9"), ip(inside), &packet(ip(inside), ip(remote), Body::Udp(4000, 53)));
    assert_eq!(lab.send(other, &about), Fate::Drop(DropReason::FilterBlocked));
    assert_eq!(lab.send(INWARD, &about), Fate::Passes);
    // Nor of each other's fragments.
    let long = tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) };
    let pieces = fragments(&packet(ip(inside), ip(remote), Body::Tcp(4000, 80, long)), 48, 1);
    assert_eq!(lab.send(OUTWARD, &pieces[0]), Fate::Passes);
    assert!(matches!(lab.send(other, &pieces[1]), Fate::Waits(_)));
    assert_eq!(lab.send(OUTWARD, &pieces[1]), Fate::Passes);
}

#[test]
fn what_no_route_leads_on_is_judged_on_its_way_in_and_begins_nothing() {
    let mut lab = Lab::new("block return in on wan\nblock out on wan\n");
    let lost = |from| Ways { from, to: NOWHERE };
    let (inside, remote) = ("10.0.0.5", "192.0.2.1");
    assert!(lab.passes(lost(LAN), inside, remote, Body::Udp(4000, 53)));
    let from_outside = packet(ip(remote), ip(inside), Body::Udp(53, 4000));
    assert_eq!(lab.send(lost(WAN), &from_outside), Fate::Tell(DropReason::FilterRejected));
    lab.load(USUAL);
    assert!(lab.passes(lost(LAN), inside, remote, Body::Udp(4000, 53)));
    assert_eq!(lab.v4.states().len(), 0);
    assert_eq!(lab.send(lost(WAN), &from_outside), Fate::Drop(DropReason::FilterBlocked));
    // Of a connection that is known an answer passes, whose route has gone meanwhile.
    assert!(lab.passes(OUTWARD, inside, remote, Body::Udp(4000, 53)));
    assert!(lab.passes(lost(WAN), remote, inside, Body::Udp(53, 4000)));
}

/// An IPv6 fragment: what its header says is next, offset, whether more come, the data.
fn fragment6(source: &str, destination: &str, next: u8, offset: u16, more: bool, data: &[u8]) -> Vec<u8> {
    let at = (offset | u16::from(more)).to_be_bytes();
    let header = [next, 0, at[0], at[1], 0, 0, 0, 9];
    wrap(ip(source), ip(destination), 44, &[&header, data].concat())
}

#[test]
fn ipv6_fragments_are_one_packets_whatever_each_says_is_next() {
    let (inside, remote) = ("2001:db8::5", "2001:db8:1::1");
    let udp = packet(ip(inside), ip(remote), Body::Udp(4000, 53))[40..].to_vec();
    let whole = [&udp[..6], &[0, 0, 9, 9, 9, 9], &[7; 28]].concat();
    let mut lab = Lab::new(USUAL);
    let piece =
        |next, at: usize, end: usize| fragment6(inside, remote, next, at as u16, end < 40, &whole[at..end]);
    assert_eq!(lab.send(OUTWARD, &piece(17, 0, 16)), Fate::Passes);
    assert_eq!(lab.send(OUTWARD, &piece(60, 16, 32)), Fate::Passes, "another next header");
    // Nor can one that claims to be another packet's fill the same bytes with something else.
    let again = Fate::Drop(DropReason::FilterFragmentRefused);
    assert_eq!(lab.send(OUTWARD, &piece(6, 16, 32)), again);
    assert_eq!(lab.send(OUTWARD, &piece(17, 32, 40)), again);
}

#[test]
fn nothing_waits_for_a_first_fragment_that_cannot_be_read() {
    let mut lab = Lab::new("pass all\n");
    let cut = Fate::Drop(DropReason::FilterMalformed);
    let refused = Fate::Drop(DropReason::FilterFragmentRefused);
    let long = tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) };
    // Of the header of TCP eight bytes are in the first one.
    let v4 = fragments(&packet(ip("10.0.0.5"), ip("192.0.2.1"), Body::Tcp(4000, 80, long)), 8, 1);
    assert!(matches!(lab.send(OUTWARD, &v4[1]), Fate::Waits(_)));
    assert_eq!(lab.send(OUTWARD, &v4[0]), cut);
    let token = lab.v4.settled().unwrap();
    assert_eq!(lab.v4.resume(lab.ms, token), refused);
    assert_eq!(lab.send(OUTWARD, &v4[2]), refused);
    let v6 = |at| fragment6("2001:db8::5", "2001:db8:1::1", 6, at, true, &[9; 8]);
    assert!(matches!(lab.send(OUTWARD, &v6(8)), Fate::Waits(_)));
    assert_eq!(lab.send(OUTWARD, &v6(0)), cut);
    let token = lab.v6.settled().unwrap();
    assert_eq!((lab.v6.resume(lab.ms, token), lab.send(OUTWARD, &v6(16))), (refused, refused));
}

#[test]
fn first_fragments_that_end_in_their_header_pass_no_rule_on_ports() {
    // The ports are there, and are those that are let in; what else the header says is in the next fragment.
    let mut lab = Lab::new("pass all no state\npass in on lan proto { tcp udp } to port 80\n");
    let cut = Fate::Drop(DropReason::FilterMalformed);
    let segment = packet(ip("10.0.0.5"), ip("192.0.2.1"), Body::Tcp(4000, 80, segment(SYN, 1, 0)));
    let datagram = packet(ip("10.0.0.5"), ip("192.0.2.1"), Body::Udp(4000, 80));
    for (protocol, bytes, lengths) in [(6, &segment[20..], [8, 16]), (17, &datagram[20..], [4, 7])] {
        for length in lengths {
            let mut first = wrap(ip("10.0.0.5"), ip("192.0.2.1"), protocol, &bytes[..length]);
            first[6] = 0x20;
            tidemill_wire::ipv4::fill_checksum(&mut first[..20]);
            assert_eq!(lab.send(OUTWARD, &first), cut, "{length} of {protocol}");
            let first = fragment6("2001:db8::5", "2001:db8:1::1", protocol, 0, true, &bytes[..length]);
            assert_eq!(lab.send(OUTWARD, &first), cut, "IPv6, {length} of {protocol}");
        }
    }
    // Options of TCP that run beyond it.
    let mut long = segment[20..].to_vec();
    long[12] = 0xf0;
    let mut first = wrap(ip("10.0.0.5"), ip("192.0.2.1"), 6, &[&long[..], &[1; 4]].concat());
    first[6] = 0x20;
    tidemill_wire::ipv4::fill_checksum(&mut first[..20]);
    assert_eq!(lab.send(OUTWARD, &first), cut);
}
