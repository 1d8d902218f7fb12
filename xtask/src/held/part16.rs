//! Part 16, the kernel's fast path and routing peers: the router's and the Gatekeeper's XDP programs, BGP.

use super::{Line, Machine, Outcome, SKIPPED, number, part8, ratios, shown, verdict};
use crate::fuzz;
use anyhow::{Context, Result};

/// A test of `real_bgp`, and the lines that it printed about the daemon.
fn real(machine: &Machine, test: &str) -> Result<Outcome> {
    real_of(machine, "tidemill-bgp", "real_bgp", test)
}

/// The same of another package.
fn real_of(machine: &Machine, package: &str, target: &str, test: &str) -> Result<Outcome> {
    machine.data()?;
    let arguments = ["-p", package, "--release", "--test", target, test, "--", "--ignored"];
    let (_, text) = machine.tests_said(&arguments, 1)?;
    let says = |line: &&str| {
        line.contains(" routes after ")
            || line.contains(" routes in force after ")
            || line.contains(" withdrawn after ")
            || line.contains(" bytes after ")
            || line.contains(" changes told")
    };
    Ok(Outcome::Pass(text.lines().filter(says).collect::<Vec<_>>().join("; ")))
}

/// The full table on veth, one core: at least three times the kernel's own forwarding. Beside a program that asks the kernel's table there is no bound.
fn fast_path(machine: &Machine) -> Result<Outcome> {
    let table = machine.data()?.join("rib").join("ris-as3333-20260511.v4.nh30000.zst");
    let table = table.to_string_lossy().into_owned();
    let mut arguments = vec!["bench", "port", "wire", "--table", &table, "--json"];
    arguments.extend(if machine.quick {
        ["--seconds", "0.5", "--runs", "3"]
    } else {
        ["--seconds", "2", "--runs", "11"]
    });
    let objects = machine.tidemill(&arguments)?;
    let ratios: Vec<_> = ratios(&objects).into_iter().filter(|ratio| ratio["of"] == "xdp-offload").collect();
    let to = |to: &str| ratios.iter().find(|ratio| ratio["to"] == to).copied();
    let kernel = to("peer:kernel-forward").context("no ratio to the kernel's forwarding")?;
    let asking = to("peer:bpf-fib-lookup").context("no ratio to bpf_fib_lookup")?;
    Ok(verdict(number(kernel, "value") >= 3.0, format!("{} (at least 3); {}", shown(kernel), shown(asking))))
}

/// Ten million packets of one family beside the oracle; the test itself asks for 10,000 changed routes a second.
fn ten_million(machine: &Machine, test: &str) -> Result<Outcome> {
    machine.data()?;
    let long = ["-p", "tidemill-router", "--features", "xdp", "--release", "--test", "root_offload", test];
    let long = [&long[..], &["--", "--ignored"]].concat();
    let (_, text) = machine.tests_said(&long, 1)?;
    let says = |line: &&str| line.contains(" packets forwarded below");
    Ok(Outcome::Pass(text.lines().filter(says).collect::<Vec<_>>().join("; ")))
}

/// Two sessions by TCP-AO. A kernel without it (it takes Linux 6.7 and CONFIG_TCP_AO) is the only reason for which the test is skipped.
fn signed_by_ao(machine: &Machine) -> Result<Outcome> {
    match machine.tests(&["-p", "tidemill-bgp", "--test", "signed", "ao_sessions"], 1) {
        Ok(passed) => Ok(Outcome::Pass(format!("{passed} tests: signed"))),
        Err(error) if error.to_string().starts_with(SKIPPED) => {
            Ok(Outcome::Measured("this kernel has no TCP-AO: nothing was tried".to_owned()))
        }
        Err(error) => Err(error),
    }
}

pub(crate) const LINES: &[Line] = &[
    (
        "the router's fast path: the oracle's next hops, and no frame that user space would not send (root)",
        |machine| {
            let single = ["-p", "tidemill-router", "--features", "xdp", "--test", "root_offload"];
            let passed = machine.tests(&single, 6)?;
            let wire = machine.tests(&["-p", "tidemill-cli", "--test", "root_offload"], 7)?;
            Ok(Outcome::Pass(format!("{passed} tests on single frames, {wire} on a wire")))
        },
    ),
    ("10,000,000 packets of IPv4: the oracle's next hops, 10,000 changes a second (root)", |machine| {
        ten_million(machine, "long_ten_million_packets")
    }),
    ("10,000,000 packets of IPv6: the oracle's next hops, 10,000 changes a second (root)", |machine| {
        ten_million(machine, "long_ten_million_of_ipv6")
    }),
    ("the full table on veth: the fast path beside the kernel's forwarding (root)", fast_path),
    (
        "the Gatekeeper's refusals below: what the gate would drop, nothing else, until something changes (root)",
        |machine| {
            let rules = ["-p", "tidemill-gatekeeper", "--lib", "below"];
            let picks = ["-p", "tidemill-gatekeeper", "--lib", "offload::"];
            let inside = machine.tests(&rules, 3)? + machine.tests(&picks, 6)?;
            let wire = machine.tests(&["-p", "tidemill-cli", "--test", "root_gate", "offload::"], 3)?;
            Ok(Outcome::Pass(format!("{inside} tests inside, {wire} on a wire")))
        },
    ),
    (
        "the Gatekeeper's program, replayed: what nobody judges is forwarded below, and no decision differs from a run without it (root)",
        |machine| {
            let policies = ["-p", "tidemill-gatekeeper", "--lib", "no_flow_acts_under_a_policy"];
            let tunnels = ["-p", "tidemill-gatekeeper", "--lib", "does_not_reach_a_grantor"];
            let inside = machine.tests(&policies, 1)? + machine.tests(&tunnels, 1)?;
            let wire = machine.tests(&["-p", "tidemill-cli", "--test", "root_gate", "replay::"], 1)?;
            Ok(Outcome::Pass(format!("{inside} tests inside, {wire} on a wire")))
        },
    ),
    ("a flood of declined flows: four times the packets with the program (root)", part8::declined_flood),
    (
        "flow specifications of peers are read, held to their routes, and applied to packets (root)",
        |machine| {
            let read = machine.tests(&["-p", "tidemill-bgp", "--lib", "flow"], 11)?;
            let applied = machine.tests(&["-p", "tidemill-nf", "--lib", "flowspec"], 9)?;
            let wire = machine.tests(&["-p", "tidemill-cli", "--test", "root_wire", "root_a_bgp_peer"], 1)?;
            Ok(Outcome::Pass(format!(
                "{read} tests of rules, {applied} of packets, {wire} with BIRD on a wire"
            )))
        },
    ),
    (
        "redirects send packets by a VRF or by the way to an address, and never by their own route",
        |machine| {
            let passed = machine.tests(&["-p", "tidemill-cli", "--bin", "tidemill", "redirect"], 3)?;
            Ok(Outcome::Pass(format!("{passed} tests of a whole router")))
        },
    ),
    (
        "a Gatekeeper's prefix is announced to BIRD while its Grantor answers, and goes with the process (root)",
        |machine| {
            let chosen = ["-p", "tidemill-cli", "--bin", "tidemill", "anycast"];
            let wire = ["-p", "tidemill-cli", "--features", "lua", "--test", "root_grantor", "anycast::"];
            let passed = machine.tests(&chosen, 1)? + machine.tests(&wire, 1)?;
            Ok(Outcome::Pass(format!("{passed} tests")))
        },
    ),
    ("BIRD feeds the full 2026 table: within 20 s, equal to the table, three times (root)", |machine| {
        real(machine, "real_bird_feeds_the_full_table")
    }),
    ("BIRD feeds a whole router the full 2026 table: within 20 s in force, equal to the table", |machine| {
        real_of(machine, "tidemill-cli", "real_bgp_router", "real_bird_feeds_a_whole_router")
    }),
    ("FRR feeds the full 2026 table: within 20 s, equal to the table (root)", |machine| {
        real(machine, "real_frr_feeds_the_full_table")
    }),
    (
        "GoBGP feeds the full 2026 table: within 20 s, or at its own pace where that is slower, equal to the table (root)",
        |machine| real(machine, "real_gobgp_feeds_the_full_table"),
    ),
    (
        "a million withdrawals and announcements, and sessions that flap in their midst: nothing lost (root)",
        |machine| real(machine, "real_updates_and_flaps_lose_nothing"),
    ),
    ("segments are signed by TCP MD5", |machine| {
        let passed = machine.tests(&["-p", "tidemill-bgp", "--test", "signed", "signature"], 1)?
            + machine.tests(&["-p", "tidemill-bgp", "--test", "signed", "md5"], 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: signed")))
    }),
    ("segments are signed by TCP-AO, where the kernel has it", signed_by_ao),
    ("any bytes of peers and exporters, fuzzed", |machine| {
        let seconds = if machine.quick { 20 } else { 300 };
        let totals = fuzz::some(&["bgp_session", "bgp_bmp", "bgp_flowspec"], seconds)?;
        Ok(verdict(totals.failed == 0 && totals.passed == 3, format!("{totals}, {seconds} s each")))
    }),
    ("malformed updates cost what RFC 7606 says; any bytes are heard or end the session", |machine| {
        let shown = ["-p", "tidemill-cli", "--bin", "tidemill", "pages_of_routes"];
        let passed = machine.tests(&["-p", "tidemill-bgp", "--lib"], 79)? + machine.tests(&shown, 1)?;
        Ok(Outcome::Pass(format!("{passed} tests")))
    }),
    (
        "sessions with BIRD, FRR and GoBGP: feeds, flaps, add-path, graceful restart, signatures, BMP, flow specifications, a hostile peer beside (root)",
        |machine| {
            let passed = machine.tests(&["-p", "tidemill-bgp", "--test", "root_bgp"], 18)?;
            Ok(Outcome::Pass(format!("{passed} tests")))
        },
    ),
];
