//! Bulk TCP.

use crate::dut::Dut;
use crate::lab::{Family, Lab, Plan};
use crate::{Kernel, Needs, traffic, turn};

/// So many bytes both ways at once between the two hosts.
pub(crate) fn exchange(lab: &Lab, family: Family, bytes: usize) {
    traffic::exchange(lab.left(), lab.right(), lab.address("right", family), bytes);
}

/// 100 MB both ways; with offloads, hosts hand over packets of up to 64 KB without checksums.
fn bulk(dut: Dut, family: Family, offloads: bool) {
    let lab = Plan::two_hosts().build(dut);
    if !offloads {
        for host in [lab.left(), lab.right()] {
            no_offloads(host, &host.name);
        }
    }
    exchange(&lab, family, 100_000_000);
    lab.finish();
}

/// Whole packets with whole checksums, as from a real wire.
pub(crate) fn no_offloads(host: &crate::net::Netns, interface: &str) {
    host.run(&format!("ethtool -K {interface} tx off sg off tso off gso off gro off"));
}

#[test]
fn root_tcp_ipv4_with_offloads() {
    let Some(turn) = turn("root_tcp_ipv4_with_offloads", Needs::Machine, Kernel::Can) else { return };
    bulk(turn.dut, Family::V4, true);
}

#[test]
fn root_tcp_ipv6_with_offloads() {
    let Some(turn) = turn("root_tcp_ipv6_with_offloads", Needs::Machine, Kernel::Can) else { return };
    bulk(turn.dut, Family::V6, true);
}

#[test]
fn root_tcp_ipv4_without_offloads() {
    let Some(turn) = turn("root_tcp_ipv4_without_offloads", Needs::Machine, Kernel::Can) else { return };
    bulk(turn.dut, Family::V4, false);
}

#[test]
fn root_tcp_ipv6_without_offloads() {
    let Some(turn) = turn("root_tcp_ipv6_without_offloads", Needs::Machine, Kernel::Can) else { return };
    bulk(turn.dut, Family::V6, false);
}
