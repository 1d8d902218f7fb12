//! Ping and traceroute, through the router and to it.

use crate::dut::Dut;
use crate::lab::{Family, Lab, Link, Plan};
use crate::net::Netns;
use crate::{Kernel, Needs, tcp, turn};
use std::net::IpAddr;

/// Pings with these options; all (or all but `lost`) have to be answered.
pub(crate) fn ping(from: &Netns, to: IpAddr, options: &str, lost: usize) -> String {
    let count = 5;
    let (_, text) = from.attempt(&format!("ping -n -i 0.05 -W 2 -c {count} {options} {to}"));
    let answers = text.lines().filter(|line| line.contains("bytes from") && line.contains("time=")).count();
    assert!(answers >= count - lost, "from {} to {to} {options}: {text}", from.name);
    text
}

fn pings(dut: Dut, family: Family) {
    let lab = Plan::two_hosts().build(dut);
    let (left, right) = (lab.left(), lab.right());
    ping(left, lab.address("right", family), "", 0);
    ping(right, lab.address("left", family), "", 0);
    for link in &lab.links {
        for size in ["", "-s 1472", "-s 3000"] {
            ping(left, link.router(family), size, 0);
        }
    }
    // The longest packet that fits, and fragments that the hosts make.
    let fits = family.pick("-M do -s 1472", "-M do -s 1452");
    ping(left, lab.address("right", family), fits, 0);
    for size in ["-M dont -s 3000", "-M dont -s 20000"] {
        ping(left, lab.address("right", family), size, 0);
    }
    lab.finish();
}

#[test]
fn root_ping_ipv4() {
    let Some(turn) = turn("root_ping_ipv4", Needs::Little, Kernel::Can) else { return };
    pings(turn.dut, Family::V4);
}

#[test]
fn root_ping_ipv6() {
    let Some(turn) = turn("root_ping_ipv6", Needs::Little, Kernel::Can) else { return };
    pings(turn.dut, Family::V6);
}

/// The addresses of the hops in the order of their numbers.
fn traceroute(lab: &Lab, options: &str, family: Family) {
    let to = lab.address("right", family);
    let line = format!("traceroute -{} -n -q 1 -w 2 -m 5 {options} {to}", family.number());
    let text = lab.left().run(&line);
    let hops: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(hops, [lab.link("left").router(family).to_string(), to.to_string()], "{line}: {text}");
}

fn traceroutes(dut: Dut, family: Family) {
    let lab = Plan::two_hosts().build(dut);
    for options in ["", "-I", "-T -p 9"] {
        traceroute(&lab, options, family);
    }
    lab.finish();
}

#[test]
fn root_traceroute_ipv4() {
    let Some(turn) = turn("root_traceroute_ipv4", Needs::Little, Kernel::Can) else { return };
    traceroutes(turn.dut, Family::V4);
}

#[test]
fn root_traceroute_ipv6() {
    let Some(turn) = turn("root_traceroute_ipv6", Needs::Little, Kernel::Can) else { return };
    traceroutes(turn.dut, Family::V6);
}

/// The lab itself, with a router of which nobody doubts that it routes.
#[test]
fn root_the_lab_works_with_the_kernel() {
    let Some(_turn) = turn("root_the_lab_works_with_the_kernel", Needs::Little, Kernel::Can) else { return };
    let right = Link { mtu: 1400, ..Link::new("right", 2) };
    let lab = Plan::new([Link::new("left", 1), right]).build(Dut::Kernel);
    for family in [Family::V4, Family::V6] {
        ping(lab.left(), lab.address("right", family), "", 0);
        traceroute(&lab, "", family);
        tcp::exchange(&lab, family, 1_000_000);
    }
    assert_eq!(lab.finish(), None);
}
