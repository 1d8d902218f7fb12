//! A bad line on both of the router's ports: TCP gets through, and every loss and every wrong bit is accounted for.

use crate::dut::Dut;
use crate::lab::{Family, Link, Plan};
use crate::tcp::{exchange, no_offloads};
use crate::traffic::Numbered;
use crate::{Kernel, Needs, turn};
use std::time::Duration;

const FAULTS: [&str; 2] = [
    "fault = { seed = 1, rx = { loss = 0.01, corrupt = 0.01, reorder = 0.01 } }",
    "fault = { seed = 2, rx = { loss = 0.01, corrupt = 0.01, reorder = 0.01 } }",
];

fn faulty(dut: Dut, family: Family) {
    let left = Link { port: FAULTS[0], ..Link::new("left", 1) };
    let right = Link { port: FAULTS[1], ..Link::new("right", 2) };
    let lab = Plan::new([left, right]).build(dut);
    for host in [lab.left(), lab.right()] {
        // Corruption has to meet checksums; with offloads they would be made behind it.
        no_offloads(host, &host.name);
        for link in lab.links.iter().filter(|link| link.host == host.name) {
            // Retransmissions without the 200 ms that suit the Internet.
            host.run(&format!(
                "ip -{} route replace default via {} dev {} rto_min 20ms",
                family.number(),
                link.router(family),
                link.name
            ));
        }
    }
    exchange(&lab, family, 10_000_000);
    // Small packets, which are more header than anything else; of one flow, so that the few that overtake are its own.
    let numbered = Numbered::start(lab.left(), lab.right(), lab.address("right", family), 1, 20_000, 16);
    std::thread::sleep(Duration::from_millis(1500));
    let arrived = numbered.finish();
    assert!(arrived.received < arrived.sent && arrived.received * 10 > arrived.sent * 9, "{arrived:?}");
    assert!(arrived.late > 0, "nothing was reordered");
    let Some(books) = lab.finish() else { return };
    let dropped = |reason: &str| books["dropped"][reason].as_u64().unwrap_or(0);
    assert!(dropped("injected-loss") > 100, "{}", books["dropped"]);
    // Flipped bits meet the IPv4 header's checksum; in IPv6 they show where they make a header impossible.
    let wrong: &[&str] = family.pick(
        &["ipv4-bad-checksum"],
        &[
            "ipv6-bad-version",
            "ipv6-bad-length",
            "no-route",
            "not-for-us",
            "ethertype-unknown",
            "ethernet-bad-source",
        ],
    );
    let wrong: u64 = wrong.iter().map(|reason| dropped(reason)).sum();
    assert!(wrong > 10, "{}", books["dropped"]);
}

#[test]
fn root_faults_ipv4() {
    let Some(turn) = turn("root_faults_ipv4", Needs::Machine, Kernel::Cannot) else { return };
    faulty(turn.dut, Family::V4);
}

#[test]
fn root_faults_ipv6() {
    let Some(turn) = turn("root_faults_ipv6", Needs::Machine, Kernel::Cannot) else { return };
    faulty(turn.dut, Family::V6);
}
