//! What must not have a flow filtered, each under its own name; and that the same message, put right, does.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Flow, Ip, Lone, SECOND, frame, ip, message, seal, udp, unreachable};
use tidemill_amp::{Counter, Side};

/// An answer comes, `packet` is said about it from inside; under which name it is refused, if it is.
fn said(lone: &mut Lone, flow: &Flow, side: Side, packet: &[u8]) -> Option<Counter> {
    assert!(!lone.answer(flow));
    let before = lone.mitigator.counters().clone();
    assert!(!lone.drops(side, packet), "messages always pass");
    let after = lone.mitigator.counters();
    let changed: Vec<Counter> = Counter::ALL
        .iter()
        .copied()
        .filter(|&counter| after.get(counter) > before.get(counter))
        .filter(|counter| !matches!(counter, Counter::IcmpSeen | Counter::Rules | Counter::Malformed))
        .collect();
    assert!(changed.len() <= 1, "{changed:?}");
    let made = changed == [Counter::RulesMade];
    assert_eq!(lone.answer(flow), made, "filtered if and only if a rule was made");
    changed.into_iter().find(|&counter| counter != Counter::RulesMade)
}

fn refusal(flow: &Flow, packet: &[u8]) -> Option<Counter> {
    said(&mut Lone::new(""), flow, Side::Inside, packet)
}

/// Where the IP header of the frame's packet ends.
fn header(flow: &Flow) -> usize {
    if flow.victim.is_ipv4() { 20 } else { 40 }
}

/// The complaint with other quoted bytes.
fn quoting(flow: &Flow, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut quoted = flow.answer();
    change(&mut quoted);
    unreachable(flow.victim, flow.amplifier, &quoted)
}

#[test]
fn a_right_message_filters() {
    for flow in [Flow::v4(), Flow::v6()] {
        assert_eq!(refusal(&flow, &flow.complaint()), None);
        // Nothing but the two headers is needed, and all of the answer does no harm.
        let least = header(&flow) + 8;
        assert_eq!(refusal(&flow, &unreachable(flow.victim, flow.amplifier, &flow.answer()[..least])), None);
        assert_eq!(refusal(&flow, &quoting(&flow, |_| ())), None);
        // What routers change on the way: time to live, class, the sum over the header.
        assert_eq!(
            refusal(
                &flow,
                &quoting(&flow, |quoted| match flow.victim.is_ipv4() {
                    true => (quoted[1], quoted[8], quoted[10]) = (0x20, 3, 0),
                    false => (quoted[1], quoted[7]) = (0x20, 3),
                })
            ),
            None
        );
    }
}

#[test]
fn from_outside_nobody_is_believed() {
    for flow in [Flow::v4(), Flow::v6()] {
        let mut lone = Lone::new("");
        assert_eq!(said(&mut lone, &flow, Side::Outside, &flow.complaint()), Some(Counter::IcmpOutside));
    }
}

#[test]
fn only_the_victim_may_complain_to_whom_it_was() {
    for (flow, other) in [(Flow::v4(), "10.0.0.2"), (Flow::v6(), "fd00::2")] {
        let other = other.parse().unwrap();
        let quoted = flow.answer();
        for (src, dst) in [(other, flow.amplifier), (flow.victim, other), (flow.amplifier, flow.victim)] {
            assert_eq!(refusal(&flow, &unreachable(src, dst, &quoted)), Some(Counter::IcmpNotVictims));
        }
    }
}

#[test]
fn a_wrong_checksum() {
    for flow in [Flow::v4(), Flow::v6()] {
        let at = header(&flow);
        for byte in [at + 2, at + 3, at + 4, at + 8 + at, flow.complaint().len() - 1] {
            let mut packet = flow.complaint();
            packet[byte] ^= 4;
            let refused = refusal(&flow, &packet);
            assert_eq!(refused, Some(Counter::IcmpChecksum), "byte {byte}");
        }
    }
}

#[test]
fn what_ends_too_early() {
    for flow in [Flow::v4(), Flow::v6()] {
        let least = header(&flow) + 8;
        for len in 0..least {
            let packet = unreachable(flow.victim, flow.amplifier, &flow.answer()[..len]);
            assert_eq!(refusal(&flow, &packet), Some(Counter::IcmpTruncated), "{len} bytes quoted");
        }
    }
    // IPv4's options and IPv6's headers push the ports out.
    let flow = Flow::v4();
    let answer = |how: &Ip| ip(flow.amplifier, flow.victim, 17, &udp(53, flow.victim_port, &[0; 20]), how);
    let quoted = answer(&Ip { extra: 2, ..Ip::default() });
    assert_eq!(
        refusal(&flow, &unreachable(flow.victim, flow.amplifier, &quoted[..35])),
        Some(Counter::IcmpTruncated)
    );
    assert_eq!(refusal(&flow, &unreachable(flow.victim, flow.amplifier, &quoted[..36])), None);
    let flow = Flow::v6();
    let quoted = ip(
        flow.amplifier,
        flow.victim,
        17,
        &udp(53, flow.victim_port, &[0; 20]),
        &Ip { extra: 2, ..Ip::default() },
    );
    for (len, refused) in [(56, Some(Counter::IcmpTruncated)), (63, Some(Counter::IcmpTruncated)), (64, None)]
    {
        assert_eq!(
            refusal(&flow, &unreachable(flow.victim, flow.amplifier, &quoted[..len])),
            refused,
            "{len}"
        );
    }
    // The frame itself ends before its packet does.
    for flow in [Flow::v4(), Flow::v6()] {
        let mut lone = Lone::new("");
        assert!(!lone.answer(&flow));
        let mut whole = frame(&flow.complaint(), 0);
        whole.truncate(14 + header(&flow) + 30);
        assert_eq!(lone.burst(&[(Side::Inside, whole)]), [false]);
        assert_eq!(lone.count(Counter::IcmpTruncated), 1);
        assert_eq!(lone.count(Counter::RulesMade), 0);
    }
}

#[test]
fn quoted_headers_that_lie() {
    let flow = Flow::v4();
    let malformed = Some(Counter::IcmpMalformed);
    let lie = |change: &dyn Fn(&mut Vec<u8>)| refusal(&flow, &quoting(&flow, |quoted| change(quoted)));
    assert_eq!(lie(&|q| q[0] = 0x65), malformed, "a version that it is not");
    assert_eq!(lie(&|q| q[0] = 0x44), malformed, "a header of 16 bytes");
    assert_eq!(lie(&|q| q[0] = 0x4f), malformed, "a header longer than what is quoted");
    assert_eq!(lie(&|q| q[2..4].copy_from_slice(&[0, 19])), malformed, "shorter than its header");
    assert_eq!(lie(&|q| q[2..4].copy_from_slice(&[0, 27])), malformed, "no room for UDP's header");
    assert_eq!(lie(&|q| q[2..4].copy_from_slice(&[0, 0])), malformed, "of no length");
    assert_eq!(lie(&|q| q[24..26].copy_from_slice(&[0, 7])), malformed, "UDP shorter than its header");
    assert_eq!(lie(&|q| q[24..26].copy_from_slice(&[0, 0])), malformed, "UDP of no length");
    assert_eq!(lie(&|q| q[24..26].copy_from_slice(&[0, 29])), malformed, "UDP longer than its packet");
    assert_eq!(lie(&|q| q[24..26].copy_from_slice(&[0, 28])), None, "as it is");
    let flow = Flow::v6();
    let lie = |change: &dyn Fn(&mut Vec<u8>)| refusal(&flow, &quoting(&flow, |quoted| change(quoted)));
    assert_eq!(lie(&|q| q[0] = 0x45), malformed);
    assert_eq!(lie(&|q| q[4..6].copy_from_slice(&[0, 7])), malformed, "no room for UDP's header");
    assert_eq!(lie(&|q| q[6] = 0), malformed, "UDP's ports as an options header");
    assert_eq!(lie(&|q| q[44..46].copy_from_slice(&[0, 7])), malformed);
    assert_eq!(lie(&|q| q[44..46].copy_from_slice(&[0, 29])), malformed);
}

#[test]
fn other_protocols_and_messages_in_messages() {
    for flow in [Flow::v4(), Flow::v6()] {
        let other = Some(Counter::IcmpOtherProtocol);
        let protocol = if flow.victim.is_ipv4() { 9 } else { 6 };
        for number in [1, 6, 58, 132, 255] {
            assert_eq!(refusal(&flow, &quoting(&flow, |q| q[protocol] = number)), other, "protocol {number}");
        }
        assert_eq!(refusal(&flow, &quoting(&flow, |q| q[header(&flow) + 1] = 54)), other, "port 54");
        // A complaint about a complaint, its own victim's.
        let inner = unreachable(flow.amplifier, flow.victim, &flow.answer());
        assert_eq!(refusal(&flow, &unreachable(flow.victim, flow.amplifier, &inner)), other);
        // Other types and codes are nothing to us.
        for (kind, code) in [(3, 0), (3, 1), (3, 4), (3, 13), (1, 0), (1, 3), (11, 0), (8, 0), (4, 3), (2, 4)]
        {
            let mut bytes = message(flow.victim, flow.amplifier, &flow.answer());
            (bytes[0], bytes[1]) = (kind, code);
            seal(flow.victim, flow.amplifier, &mut bytes);
            let number = if flow.victim.is_ipv4() { 1 } else { 58 };
            let mut lone = Lone::new("");
            assert!(!lone.answer(&flow));
            let packet = ip(flow.victim, flow.amplifier, number, &bytes, &Ip::default());
            assert!(!lone.drops(Side::Inside, &packet) && !lone.answer(&flow));
            assert_eq!(lone.count(Counter::IcmpSeen), 0, "type {kind} code {code}");
        }
    }
}

#[test]
fn fragments_of_messages_and_about_fragments() {
    let fragmented = Some(Counter::IcmpFragmented);
    for flow in [Flow::v4(), Flow::v6()] {
        let part = |fragment| {
            let how = Ip { ident: 5, fragment: Some(fragment), ..Ip::default() };
            ip(flow.amplifier, flow.victim, 17, &udp(53, flow.victim_port, &[0; 24]), &how)
        };
        let quote = |fragment| refusal(&flow, &unreachable(flow.victim, flow.amplifier, &part(fragment)));
        assert_eq!(quote((8, false)), fragmented);
        assert_eq!(quote((1480, true)), fragmented);
        assert_eq!(
            quote((0, true)),
            None,
            "a first fragment has ports, and its UDP length is the datagram's"
        );
        // A message in fragments: its checksum covers what is not here.
        let number = if flow.victim.is_ipv4() { 1 } else { 58 };
        let bytes = message(flow.victim, flow.amplifier, &flow.answer());
        let how = Ip { fragment: Some((0, true)), ..Ip::default() };
        assert_eq!(refusal(&flow, &ip(flow.victim, flow.amplifier, number, &bytes, &how)), fragmented);
    }
}

#[test]
fn flows_that_nothing_came_of() {
    for flow in [Flow::v4(), Flow::v6()] {
        let mut lone = Lone::new("suspect_s = 10");
        lone.complain(&flow);
        assert_eq!(lone.count(Counter::IcmpUnknown), 1);
        // Too late: on the last second it counts, after it does not.
        assert!(!lone.answer(&flow));
        lone.wait(11);
        lone.complain(&flow);
        assert_eq!((lone.count(Counter::IcmpUnknown), lone.count(Counter::RulesMade)), (2, 0));
        assert!(!lone.answer(&flow));
        lone.wait(10);
        lone.complain(&flow);
        assert!(lone.answer(&flow));
        lone.complain(&flow);
        assert_eq!((lone.count(Counter::IcmpAlready), lone.count(Counter::RulesMade)), (1, 1));
        // Another port of the same two.
        let other = Flow { victim_port: flow.victim_port + 1, ..flow };
        lone.complain(&other);
        assert!(!lone.answer(&other));
        assert_eq!(lone.count(Counter::IcmpUnknown), 3);
    }
}

/// What the paper's design lets anybody inside do who can forge an address, and a host that gives up waiting do to itself.
#[test]
fn a_conversation_cannot_be_cut_off() {
    for flow in [Flow::v4(), Flow::v6()] {
        for mode in [4, 3, 2] {
            let mut lone = Lone::new(&format!("tuple = {mode}"));
            lone.query(&flow);
            for _ in 0..20 {
                assert!(!lone.answer(&flow));
                lone.complain(&flow);
                lone.now_ns += SECOND;
            }
            assert!(!lone.answer(&flow));
            assert_eq!((lone.count(Counter::IcmpSolicited), lone.count(Counter::RulesMade)), (20, 0));
            // The one who asks goes on asking: never.
            for _ in 0..20 {
                lone.query(&flow);
                lone.wait(20);
                assert!(!lone.answer(&flow));
                lone.complain(&flow);
            }
            assert_eq!(lone.count(Counter::RulesMade), 0);
        }
        // Where questions do not count it can, and this is the paper's design.
        for toml in ["tuple = 1", "query_s = 0"] {
            let mut lone = Lone::new(toml);
            lone.query(&flow);
            assert!(!lone.answer(&flow));
            lone.complain(&flow);
            assert!(lone.answer(&flow), "{toml}");
        }
    }
}

#[test]
fn a_question_lifts_a_rule_where_it_is_about_its_answers() {
    for (mode, lifts) in [(4, true), (3, true), (2, false), (1, false)] {
        let (flow, mut lone) = (Flow::v4(), Lone::new(&format!("tuple = {mode}")));
        assert!(!lone.answer(&flow));
        lone.complain(&flow);
        assert!(lone.answer(&flow));
        // Others' questions, or to others, lift nothing.
        for other in [
            Flow { victim: "10.0.0.2".parse().unwrap(), ..flow },
            Flow { amplifier: "8.8.4.4".parse().unwrap(), ..flow },
            Flow { port: 123, ..flow },
        ] {
            lone.query(&other);
            assert!(lone.answer(&flow), "{other:?}");
        }
        lone.query(&flow);
        assert_eq!(lone.answer(&flow), !lifts, "{mode}");
        assert_eq!(lone.count(Counter::RulesLifted), u64::from(lifts));
        // When the question is forgotten, the victim may complain again.
        lone.wait(31);
        if lifts {
            assert!(!lone.answer(&flow));
            lone.complain(&flow);
        }
        assert!(lone.answer(&flow));
    }
}

/// A forged answer from outside, to a closed port of a host that asks that server a minute later: what each mode makes of it.
#[test]
fn a_server_that_somebody_pretended_to_be() {
    for (mode, lost) in [(4, false), (3, false), (2, true), (1, true)] {
        let mut lone = Lone::new(&format!("tuple = {mode}"));
        let (forged, real) = (Flow::v4(), Flow { victim_port: 50_000, ..Flow::v4() });
        assert!(!lone.answer(&forged));
        lone.complain(&forged);
        lone.wait(60);
        for asked in [forged, real] {
            lone.query(&asked);
            assert_eq!(lone.answer(&asked), lost, "tuple = {mode}");
        }
    }
}

#[test]
fn modes_and_their_price() {
    let flow = Flow::v4();
    let others = [
        Flow { victim_port: 1, ..flow },
        Flow { port: 123, ..flow },
        Flow { victim: "10.0.0.2".parse().unwrap(), ..flow },
        Flow { amplifier: "8.8.8.9".parse().unwrap(), ..flow },
    ];
    for (mode, dropped) in [(4, 0), (3, 1), (2, 2), (1, 3)] {
        let mut lone = Lone::new(&format!("tuple = {mode}"));
        assert!(!lone.answer(&flow));
        lone.complain(&flow);
        let found: Vec<bool> = others.iter().map(|other| lone.answer(other)).collect();
        assert_eq!(found, [0, 1, 2, 3].map(|other| other < dropped), "tuple = {mode}");
    }
}

#[test]
fn the_allow_list() {
    for (toml, flow) in [
        ("allow = ['8.8.8.0/24']", Flow::v4()),
        ("allow = [{destination = '10.0.0.0/8', port = 'dns'}]", Flow::v4()),
        ("allow = ['2001:db8::53']", Flow::v6()),
    ] {
        for mode in 1..=4 {
            let mut lone = Lone::new(&format!("tuple = {mode}\n{toml}"));
            assert_eq!(said(&mut lone, &flow, Side::Inside, &flow.complaint()), Some(Counter::IcmpAllowed));
        }
    }
    // Where a rule is about a server alone, the list still speaks for one of those behind it.
    let (flow, allowed) = (Flow::v4(), Flow { victim: "10.0.0.2".parse().unwrap(), ..Flow::v4() });
    let mut lone = Lone::new("tuple = 1\nallow = [{destination = '10.0.0.2'}]");
    assert!(!lone.answer(&flow));
    lone.complain(&flow);
    assert!(lone.answer(&flow) && !lone.answer(&allowed) && lone.answer(&flow));
    assert_eq!(lone.count(Counter::Dropped), 2);
}

#[test]
fn a_rate_for_everybody() {
    for (flow, other) in [(Flow::v4(), "10.0.0.2"), (Flow::v6(), "fd00::2")] {
        let mut lone = Lone::new("icmp_rate = 10");
        let all = |lone: &mut Lone, victim| {
            for victim_port in 0..100 {
                let flow = Flow { victim, victim_port, ..flow };
                lone.answer(&flow);
                lone.complain(&flow);
            }
        };
        all(&mut lone, flow.victim);
        assert_eq!((lone.count(Counter::RulesMade), lone.count(Counter::IcmpRate)), (10, 90));
        all(&mut lone, other.parse().unwrap());
        assert_eq!((lone.count(Counter::RulesMade), lone.count(Counter::IcmpRate)), (20, 180));
        lone.wait(1);
        all(&mut lone, flow.victim);
        assert_eq!(lone.count(Counter::RulesMade), 30);
        // Messages that do not count cost nobody anything.
        lone.wait(1);
        for _ in 0..100 {
            assert!(!lone.drops(Side::Inside, &quoting(&flow, |quoted| quoted[header(&flow) + 1] = 54)));
        }
        all(&mut lone, flow.victim);
        assert_eq!(lone.count(Counter::RulesMade), 40);
    }
}

#[test]
fn a_dry_run_counts_and_drops_nothing() {
    let flow = Flow::v4();
    let mut lone = Lone::new("dry_run = true");
    assert!(!lone.answer(&flow));
    lone.complain(&flow);
    assert!(!lone.answer(&flow) && !lone.answer(&flow));
    let bytes = frame(&flow.answer(), 0).len() as u64;
    assert_eq!((lone.count(Counter::WouldDrop), lone.count(Counter::WouldDropBytes)), (2, 2 * bytes));
    assert_eq!((lone.count(Counter::Dropped), lone.count(Counter::Rules)), (0, 1));
}

#[test]
fn later_fragments_go_the_way_of_the_first() {
    for flow in [Flow::v4(), Flow::v6()] {
        let part = |ident, offset: u16, more| {
            let how = Ip { ident, fragment: Some((offset, more)), ..Ip::default() };
            let payload = if offset == 0 { udp(53, flow.victim_port, &[0; 24]) } else { vec![1; 24] };
            ip(flow.amplifier, flow.victim, 17, &payload, &how)
        };
        let mut lone = Lone::new("");
        assert!(!lone.drops(Side::Outside, &part(1, 0, true)));
        assert!(!lone.drops(Side::Outside, &part(1, 32, false)), "of a flow that is only suspected");
        lone.complain(&flow);
        assert!(lone.drops(Side::Outside, &part(2, 0, true)));
        assert!(
            lone.drops(Side::Outside, &part(2, 32, true)) && lone.drops(Side::Outside, &part(2, 64, false))
        );
        assert!(!lone.drops(Side::Outside, &part(3, 32, false)), "another datagram");
        assert!(!lone.drops(Side::Inside, &part(2, 32, false)), "the other way");
        lone.wait(4);
        assert!(!lone.drops(Side::Outside, &part(2, 32, false)), "long ago");
        assert_eq!((lone.count(Counter::DroppedFragments), lone.count(Counter::Dropped)), (2, 3));
        // In one burst, in any order.
        let burst = [part(9, 32, false), part(9, 0, true)].map(|packet| (Side::Outside, frame(&packet, 1)));
        assert_eq!(lone.burst(&burst), [true, true]);
    }
}

#[test]
fn tags_and_rubbish_pass() {
    let flow = Flow::v4();
    for tags in 1..=4 {
        let mut lone = Lone::new("");
        let mut one = |side, packet: &[u8]| lone.burst(&[(side, frame(packet, tags))])[0];
        assert!(!one(Side::Outside, &flow.answer()) && !one(Side::Inside, &flow.complaint()));
        assert!(one(Side::Outside, &flow.answer()), "{tags} tags");
    }
    let mut lone = Lone::new("");
    let good = frame(&flow.answer(), 0);
    let rubbish = (0..good.len()).map(|len| (Side::Outside, good[..len].to_vec())).collect::<Vec<_>>();
    assert!(lone.burst(&rubbish).iter().all(|drops| !drops));
    let too_deep = frame(&flow.answer(), 5);
    assert_eq!(lone.burst(&[(Side::Outside, too_deep), (Side::Inside, Vec::new())]), [false, false]);
    assert!(lone.count(Counter::Malformed) > 20);
}

/// Every single bit of a message, and every length of its frame: the sum over it leaves no doubt.
#[test]
fn no_bit_of_a_message_may_be_another() {
    for flow in [Flow::v4(), Flow::v6()] {
        let (packet, start) = (flow.complaint(), header(&flow));
        let mut lone = Lone::new("");
        assert!(!lone.answer(&flow));
        for bit in 8 * start..8 * packet.len() {
            let mut packet = packet.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            assert!(!lone.drops(Side::Inside, &packet) && !lone.answer(&flow), "bit {bit}");
        }
        let whole = frame(&packet, 1);
        for len in 0..18 + packet.len() {
            assert_eq!(lone.burst(&[(Side::Inside, whole[..len].to_vec())]), [false]);
            assert!(!lone.answer(&flow), "{len} bytes");
        }
        assert_eq!(lone.count(Counter::RulesMade), 0);
        assert_eq!(lone.burst(&[(Side::Inside, whole)]), [false]);
        assert!(lone.answer(&flow), "as it is, it counts");
    }
}

/// Anything at all, made of what is nearly right: nothing panics, nothing that goes out is dropped, nothing is dropped without a rule.
#[test]
fn nearly_right_frames() {
    use rand::{RngExt, SeedableRng};
    let mut rng = rand::rngs::StdRng::seed_from_u64(5);
    let mut lone = Lone::new("entries = 100\nicmp_rate = 0");
    let mut pool = Vec::new();
    for flow in [Flow::v4(), Flow::v6()] {
        for tags in [0, 1, 2, 4] {
            pool.extend([flow.answer(), flow.query(), flow.complaint()].map(|packet| frame(&packet, tags)));
            let how = Ip { ident: 3, fragment: Some((0, true)), extra: 1 };
            let part = ip(flow.amplifier, flow.victim, 17, &udp(53, flow.victim_port, &[0; 24]), &how);
            pool.push(frame(&part, tags));
            let how = Ip { fragment: Some((24, false)), ..how };
            pool.push(frame(&ip(flow.amplifier, flow.victim, 17, &[0; 24], &how), tags));
        }
    }
    for _ in 0..20_000 {
        let burst: Vec<(Side, Vec<u8>)> = (0..rng.random_range(1..6))
            .map(|_| {
                let mut frame = pool[rng.random_range(0..pool.len())].clone();
                for _ in 0..rng.random_range(0..3) {
                    let at = rng.random_range(0..frame.len());
                    frame[at] =
                        if rng.random() { rng.random() } else { frame[at] ^ 1 << rng.random_range(0..8) };
                }
                if rng.random_bool(0.1) {
                    frame.truncate(rng.random_range(0..frame.len()));
                }
                (if rng.random() { Side::Outside } else { Side::Inside }, frame)
            })
            .collect();
        let (rules, before) = (lone.count(Counter::Rules), lone.count(Counter::DroppedFragments));
        let dropped = lone.burst(&burst);
        assert!(burst.iter().zip(&dropped).all(|((side, _), &drops)| !drops || *side == Side::Outside));
        let whole = dropped.iter().filter(|&&drops| drops).count() as u64 + before
            - lone.count(Counter::DroppedFragments);
        assert!(whole == 0 || rules > 0);
        if rng.random_bool(0.01) {
            lone.now_ns += 3600 * SECOND;
        }
    }
    assert!(lone.count(Counter::RulesMade) > 50 && lone.count(Counter::IcmpChecksum) > 500);
}
