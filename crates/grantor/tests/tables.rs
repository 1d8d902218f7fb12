//! Tables of prefixes in scripts: half a million of them, both ways to ask, shared by all states.

#![cfg(feature = "lua")]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, decide};
use std::fmt::Write as _;
use std::sync::Arc;
use tidemill_grantor::{Decision, Engine, Question};
use tidemill_lpm::{Label, Oracle, Prefix, Rib};
use tidemill_wire::flow::Addresses;

const PREFIXES: u32 = 500_000;

/// Half a million prefixes of lengths 16 to 32, spread by a multiplier that repeats nothing, with values from 1 to 60,000.
fn prefixes() -> Vec<(Prefix<u32>, Label)> {
    let mut rib = Rib::new();
    let mut n = 0u32;
    while rib.len() < PREFIXES as usize {
        n += 1;
        let address = n.wrapping_mul(0x9e37_79b1);
        let len = 16 + (n % 17) as u8;
        if let Some(prefix) = Prefix::new(address, len) {
            rib.insert(prefix, Label(1 + n % 60_000));
        }
    }
    rib.iter().collect()
}

#[test]
fn half_a_million_prefixes_answer_as_the_oracle_does() {
    let place = Place::default();
    let prefixes = prefixes();
    let mut text = String::new();
    for (prefix, value) in &prefixes {
        writeln!(text, "{prefix} {}", value.0).unwrap();
    }
    text.push_str("2001:db8::/32 77\n");
    place.file("large.txt", &text);
    // Asked both ways, which must agree; the answer carries the value.
    place.file(
        "test.lua",
        "local large = lpm('large.txt')\nassert(large:prefixes() == 500001)\nfield('value', large, 'source')\n\
         field('to', large, 'destination')\n\
         function decide(q)\n assert(q.value == large:get(q.source) and q.to == large:get(q.destination))\n\
         return granted { rate = 1 + (q.value or 0), expire = 1 + (q.to or 0) }\nend",
    );
    let policy = place.policy("file = \"test.lua\"\nmemory_mib = 4").unwrap();
    let mut engines: Vec<Engine> =
        (0..4).map(|worker| Engine::new(&policy, &place.around, worker).unwrap()).collect();

    let oracle = Oracle::new(&prefixes);
    let (mut questions, mut expected) = (Vec::new(), Vec::new());
    for n in 0..20_000u32 {
        // The edges of a prefix, and a place anywhere.
        let (prefix, _) = prefixes[n.wrapping_mul(0x0100_0193) as usize % prefixes.len()];
        let source = match n % 4 {
            0 => prefix.first(),
            1 => prefix.last(),
            2 => prefix.last().wrapping_add(1),
            _ => n.wrapping_mul(0x85eb_ca6b),
        };
        let destination = n.wrapping_mul(0xc2b2_ae35);
        questions.push(Question::about(Addresses::V4 { src: source, dst: destination }));
        expected.push((1 + oracle.lookup(source).0, 1 + oracle.lookup(destination).0));
    }
    let six = |last| 0x2001_0db8u128 << 96 | last;
    questions.push(Question::about(Addresses::V6 { src: six(1), dst: 1 }));
    expected.push((78, 1));
    for engine in &mut engines {
        for (answer, expected) in decide(engine, 0, &questions).iter().zip(&expected) {
            let Decision::Granted { rate_kib_s, expire_s, .. } = answer.decision else {
                panic!("{answer:?}: {:?}", place.lines());
            };
            assert_eq!((rate_kib_s, expire_s), *expected);
        }
    }
    // One table for all states: the library's and one for each state, of which each holds it twice as a field and once in the script.
    let tables = policy.library().list();
    assert_eq!(tables.len(), 1);
    assert_eq!(Arc::strong_count(&tables[0].1), 2 + 4 * 3);
    // It lies outside the script's 4 MiB.
    assert!(tables[0].1.bytes() > 1 << 20, "{}", tables[0].1.bytes());
}

/// And more than half a million of IPv6, of lengths 20 to 64, asked both ways.
#[test]
#[ignore = "takes long in a development build: cargo xtask held 9"]
fn more_than_half_a_million_prefixes_of_ipv6_answer_as_the_oracle_does() {
    const PREFIXES: usize = 600_000;
    let (place, mut rib, mut n) = (Place::default(), Rib::new(), 0_u128);
    let scattered = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 3 | 1 << 125;
    while rib.len() < PREFIXES {
        n += 1;
        let prefix = Prefix::new(scattered(n), 20 + (n % 45) as u8).unwrap();
        rib.insert(prefix, Label(1 + (n % 60_000) as u32));
    }
    let prefixes: Vec<(Prefix<u128>, Label)> = rib.iter().collect();
    let mut text = String::new();
    for (prefix, value) in &prefixes {
        writeln!(text, "{prefix} {}", value.0).unwrap();
    }
    place.file("large.txt", &text);
    place.file(
        "test.lua",
        "local large = lpm('large.txt')\nassert(large:prefixes() == 600000)\nfield('value', large, 'source')\n\
         function decide(q)\n assert(q.value == large:get(q.source))\n\
         return granted { rate = 1 + (q.value or 0) }\nend",
    );
    let policy = place.policy("file = \"test.lua\"\nmemory_mib = 4").unwrap();
    let mut engine = Engine::new(&policy, &place.around, 0).unwrap();
    let oracle = Oracle::new(&prefixes);
    let (mut questions, mut expected) = (Vec::new(), Vec::new());
    for n in 0..100_000_u128 {
        let (prefix, _) = prefixes[n as usize * 7919 % prefixes.len()];
        let src = match n % 4 {
            0 => prefix.first(),
            1 => prefix.last(),
            2 => prefix.last().wrapping_add(1),
            _ => scattered(n.wrapping_mul(0x85eb_ca6b)),
        };
        questions.push(Question::about(Addresses::V6 { src, dst: 1 }));
        expected.push(1 + oracle.lookup(src).0);
    }
    for (answer, expected) in decide(&mut engine, 0, &questions).iter().zip(&expected) {
        let Decision::Granted { rate_kib_s, .. } = answer.decision else {
            panic!("{answer:?}: {:?}", place.lines());
        };
        assert_eq!(rate_kib_s, *expected);
    }
    assert!(expected.iter().filter(|rate| **rate > 1).count() > 50_000);
}

#[test]
fn the_files_are_read_again_by_the_next_policy() {
    let place = Place::default();
    let script =
        "local t = lpm('list.txt')\nfunction decide(q) return granted { rate = t:get(q.source) or 1000 } end";
    let rate = |engine: &mut Engine| match decide(engine, 0, &[common::question(1)])[0].decision {
        Decision::Granted { rate_kib_s, .. } => rate_kib_s,
        other => panic!("{other:?}"),
    };
    place.file("list.txt", "192.0.2.0/24 7\n");
    let mut old = place.script(script, "").unwrap();
    place.file("list.txt", "192.0.2.0/25 8\n");
    let mut new = place.script(script, "").unwrap();
    assert_eq!((rate(&mut old), rate(&mut new)), (7, 8));
    place.file("list.txt", "192.0.2.0/25 8\n192.0.2.1 oops\n");
    let error = place.script(script, "").map(drop).unwrap_err().to_string();
    assert!(error.starts_with("test.lua:1: ") && error.contains("list.txt"), "{error}");
    assert_eq!(rate(&mut new), 8);
}
