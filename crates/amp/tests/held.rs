//! Two million filtered flows, held; and what each of them costs.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Flow, Lone, SECOND, frame, section};
use tidemill_amp::{Counter, Mitigator, Settings, Side};

#[test]
fn what_a_flow_costs() {
    let (v4, v6) = Mitigator::bytes_per_entry();
    // An entry and its part of 64 bytes of tags and 8 of version for 31 slots; 20 slots for 19 flows.
    assert!((v4 - (40.0 + 72.0 / 31.0) * 20.0 / 19.0).abs() < 1e-9, "{v4}");
    assert!((v6 - (64.0 + 72.0 / 31.0) * 20.0 / 19.0).abs() < 1e-9, "{v6}");
    assert_eq!((format!("{v4:.1}"), format!("{v6:.1}")), ("44.6".into(), "69.8".into()));
}

/// Every one of them is learnt by an answer and a message, all of them drop; then new flows come, a tenth as many as the table has room
/// for, of which each would take a rule's place if one could be taken; and all rules still hold.
fn hold(flows: u32, v6: bool) {
    let entries = section(&format!("entries = {flows}\nicmp_rate = 0"));
    let settings = Settings::new(&entries).unwrap();
    let mut lone =
        Lone { mitigator: Mitigator::new(entries.entries, 7).unwrap(), settings, now_ns: 1000 * SECOND };
    let all = u64::from(flows);
    let flow = |n: u32| {
        let (number, victim_port) = (n / 64, 1024 + (n % 64) as u16);
        if v6 {
            let amplifier = std::net::Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(number)).into();
            return Flow { amplifier, victim_port, ..Flow::v6() };
        }
        Flow { amplifier: std::net::Ipv4Addr::from(0x1000_0000 + number).into(), victim_port, ..Flow::v4() }
    };
    let burst = |side: Side, from: u32, packet: fn(&Flow) -> Vec<u8>| -> Vec<(Side, Vec<u8>)> {
        (from..from + 250).map(|n| (side, frame(&packet(&flow(n)), 0))).collect()
    };
    for from in (0..flows).step_by(250) {
        assert!(lone.burst(&burst(Side::Outside, from, Flow::answer)).iter().all(|drops| !drops));
        lone.burst(&burst(Side::Inside, from, Flow::complaint));
    }
    assert_eq!((lone.count(Counter::RulesMade), lone.count(Counter::Rules)), (all, all));
    lone.now_ns += 60 * SECOND;
    for from in (flows..2 * flows).step_by(2500) {
        assert!(lone.burst(&burst(Side::Outside, from, Flow::answer)).iter().all(|drops| !drops));
    }
    for from in (0..flows).step_by(250) {
        assert!(
            lone.burst(&burst(Side::Outside, from, Flow::answer)).iter().all(|&drops| drops),
            "from {from}"
        );
    }
    assert_eq!(lone.count(Counter::Dropped), all);
    assert_eq!(lone.count(Counter::Rules), all);
}

#[test]
fn tens_of_thousands_of_rules_are_held() {
    hold(50_000, false);
    hold(20_000, true);
}

/// Slow without optimisation: `cargo test --release -p tidemill-amp --test held -- --ignored`.
#[test]
#[ignore = "some minutes without optimisation"]
fn two_million_rules_are_held() {
    hold(2_000_000, false);
}

/// As above.
#[test]
#[ignore = "some minutes without optimisation"]
fn two_million_rules_of_ipv6_are_held() {
    hold(2_000_000, true);
}
