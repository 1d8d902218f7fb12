//! Random lives beside the oracle: every packet's fate, rules made and lifted, in all modes; then in tables that are far too small.

#![allow(clippy::unwrap_used)]

mod common;

use common::oracle::{Oracle, Rules, What};
use common::{Flow, Ip, Lone, SECOND, frame, ip, udp, unreachable};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::net::IpAddr;
use tidemill_amp::{Counter, Side};

/// Few of everything, so that they meet.
fn flow(rng: &mut StdRng) -> Flow {
    let v6 = rng.random_bool(0.3);
    let address = |net: u8, host: u8| -> IpAddr {
        if v6 { format!("2001:db8:{net}::{host}").parse().unwrap() } else { [10, net, 0, host].into() }
    };
    Flow {
        amplifier: address(1, rng.random_range(0..3)),
        victim: address(2, rng.random_range(0..3)),
        port: [53, 123][rng.random_range(0..2)],
        victim_port: 4000 + rng.random_range(0..3),
    }
}

/// The frame of what the oracle is told, in one of many forms.
fn build(rng: &mut StdRng, flow: &Flow, what: What) -> (Side, Vec<u8>) {
    let extra = [0, 0, 0, 1, 3][rng.random_range(0..5)];
    let tags = [0, 0, 0, 1, 2, 4][rng.random_range(0..6)];
    let Flow { amplifier, victim, port, victim_port } = *flow;
    let payload = vec![7; rng.random_range(0..80)];
    let answer = |how: &Ip| ip(amplifier, victim, 17, &udp(port, victim_port, &payload), how);
    let (side, packet) = match what {
        What::Answer(None) => (Side::Outside, answer(&Ip { extra, ..Ip::default() })),
        What::Answer(Some(ident)) => (Side::Outside, answer(&Ip { ident, fragment: Some((0, true)), extra })),
        What::Later(ident) => {
            let how = Ip { ident, fragment: Some((8 * rng.random_range(1..100), rng.random())), extra };
            (Side::Outside, ip(amplifier, victim, 17, &payload, &how))
        }
        What::Query => {
            let how = Ip { extra, ..Ip::default() };
            (Side::Inside, ip(victim, amplifier, 17, &udp(victim_port, port, &payload), &how))
        }
        What::Complaint => {
            let quoted = answer(&Ip { extra, ..Ip::default() });
            let least = if amplifier.is_ipv4() { 20 + 4 * extra + 8 } else { 40 + 8 * extra + 8 };
            let cut = rng.random_range(least..=quoted.len());
            (Side::Inside, unreachable(victim, amplifier, &quoted[..cut]))
        }
        What::Lie => lie(rng, flow, &answer(&Ip::default())),
    };
    (side, frame(&packet, tags))
}

/// A complaint that must not count.
fn lie(rng: &mut StdRng, flow: &Flow, quoted: &[u8]) -> (Side, Vec<u8>) {
    let Flow { amplifier, victim, .. } = *flow;
    let header = if amplifier.is_ipv4() { 20 } else { 40 };
    match rng.random_range(0..6) {
        0 => (Side::Outside, unreachable(victim, amplifier, quoted)),
        1 => (Side::Inside, unreachable(amplifier, victim, quoted)),
        2 => (Side::Inside, unreachable(victim, amplifier, &quoted[..header + rng.random_range(0..8)])),
        3 => {
            let mut packet = unreachable(victim, amplifier, quoted);
            let last = packet.len() - 1;
            packet[last] ^= 1;
            (Side::Inside, packet)
        }
        4 => {
            let mut quoted = quoted.to_vec();
            let protocol = if amplifier.is_ipv4() { 9 } else { 6 };
            quoted[protocol] = 6;
            (Side::Inside, unreachable(victim, amplifier, &quoted))
        }
        _ => {
            let mut quoted = quoted.to_vec();
            quoted[header + 1] = 54;
            (Side::Inside, unreachable(victim, amplifier, &quoted))
        }
    }
}

fn what(rng: &mut StdRng) -> What {
    match rng.random_range(0..20) {
        0..=7 => What::Answer(None),
        8..=9 => What::Answer(Some(rng.random_range(0..4))),
        10..=12 => What::Later(rng.random_range(0..4)),
        13..=14 => What::Query,
        15..=18 => What::Complaint,
        _ => What::Lie,
    }
}

#[test]
fn every_packet_ends_as_the_oracle_says() {
    let mut all = [0; 4];
    for seed in 0..240 {
        let mut rng = StdRng::seed_from_u64(seed);
        let rules = Rules {
            tuple: 1 + (seed % 4) as u8,
            expiry_s: [5, 20, 1000][rng.random_range(0..3)],
            suspect_s: [1, 3, 10][rng.random_range(0..3)],
            query_s: [0, 2, 30, 30][rng.random_range(0..4)],
        };
        let mut oracle = Oracle::new(rules);
        let mut lone = Lone::new(&format!(
            "tuple = {}\nexpiry_s = {}\nsuspect_s = {}\nquery_s = {}\nicmp_rate = 0\nprotocols = ['dns', 'ntp']",
            rules.tuple, rules.expiry_s, rules.suspect_s, rules.query_s
        ));
        let quiet = rng.random_bool(0.3);
        for step in 0..120 {
            let len = [1, 1, 2, 5, 33, 100, 256][rng.random_range(0..7)];
            let kind = |rng: &mut StdRng| match what(rng) {
                What::Query if quiet => What::Answer(None),
                what => what,
            };
            let burst: Vec<(Flow, What)> = (0..len).map(|_| (flow(&mut rng), kind(&mut rng))).collect();
            let frames: Vec<_> = burst.iter().map(|(flow, what)| build(&mut rng, flow, *what)).collect();
            let expected = oracle.burst(lone.now_ns / SECOND, &burst);
            let found = lone.burst(&frames);
            for at in 0..len {
                assert_eq!(
                    found[at], expected[at],
                    "seed {seed}, step {step}, packet {at}: {:?}, {rules:?}",
                    burst[at]
                );
            }
            let counted =
                [Counter::Dropped, Counter::RulesMade, Counter::RulesLifted, Counter::AnswersSolicited]
                    .map(|counter| lone.count(counter));
            assert_eq!(
                counted,
                [oracle.dropped, oracle.made, oracle.lifted, oracle.solicited],
                "seed {seed}, step {step}"
            );
            let ended = [Counter::RulesExpired, Counter::RulesLifted].map(|counter| lone.count(counter));
            assert_eq!(lone.count(Counter::RulesMade), ended[0] + ended[1] + lone.count(Counter::Rules));
            if rng.random_bool(0.4) {
                lone.now_ns += rng.random_range(0..4 * SECOND);
            }
        }
        let counted = [oracle.dropped, oracle.made, oracle.lifted, oracle.solicited];
        all.iter_mut().zip(counted).for_each(|(sum, n)| *sum += n);
    }
    assert!(all.iter().all(|&n| n > 1000), "{all:?}");
}

/// Far more flows than there is room for: nothing is dropped that the victim did not complain of, and nothing that it
/// complained of comes through before its time, whatever else comes.
#[test]
fn a_rule_is_never_pushed_out_of_a_full_table() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut lone = Lone::new("entries = 50\nexpiry_s = 30\nquery_s = 5\nicmp_rate = 0");
        let mut rules: Vec<(Flow, u64)> = Vec::new();
        let any = |rng: &mut StdRng, v6: bool| Flow {
            amplifier: if v6 { rng.random::<[u16; 8]>().into() } else { rng.random::<[u8; 4]>().into() },
            victim: if v6 { [9, 0, 0, 0, 0, 0, 0, 1].into() } else { [10, 0, 0, 1].into() },
            port: 53,
            victim_port: rng.random(),
        };
        for _ in 0..400 {
            let v6 = rng.random();
            let flows: Vec<Flow> = (0..rng.random_range(1..100)).map(|_| any(&mut rng, v6)).collect();
            let mut burst: Vec<_> =
                flows.iter().map(|flow| (Side::Outside, frame(&flow.answer(), 0))).collect();
            burst.extend(flows.iter().take(3).map(|flow| (Side::Inside, frame(&flow.query(), 0))));
            burst.truncate(256);
            assert!(lone.burst(&burst).iter().all(|drops| !drops), "new flows pass");
            let before = lone.count(Counter::RulesMade);
            let complained = flows[rng.random_range(0..flows.len())];
            lone.complain(&complained);
            if lone.count(Counter::RulesMade) > before {
                rules.push((complained, lone.now_ns / SECOND + 30));
            }
            for (flow, until_s) in &rules {
                assert_eq!(lone.answer(flow), *until_s > lone.now_ns / SECOND, "seed {seed}: {flow:?}");
            }
            rules.retain(|(_, until_s)| *until_s > lone.now_ns / SECOND);
            if rng.random_bool(0.3) {
                lone.now_ns += SECOND;
            }
        }
        let counters =
            [Counter::RulesMade, Counter::Untracked, Counter::SuspectedReplaced, Counter::RulesExpired];
        let counted = counters.map(|counter| lone.count(counter));
        assert!(counted.iter().all(|&n| n > 50), "seed {seed}: {counters:?} {counted:?}");
    }
}
