//! Part 16, the kernel's fast path and routing peers: BGP. The lines of the fast path are not written down yet.

use super::{Line, Machine, Outcome};
use anyhow::Result;

/// A test of `real_bgp`, and the lines that it printed about the daemon.
fn real(machine: &Machine, test: &str) -> Result<Outcome> {
    machine.data()?;
    let arguments = ["-p", "tidemill-bgp", "--release", "--test", "real_bgp", test, "--", "--ignored"];
    let (_, text) = machine.tests_said(&arguments, 1)?;
    let says = |line: &&str| {
        line.contains(" routes after ")
            || line.contains(" withdrawn after ")
            || line.contains(" changes told")
    };
    Ok(Outcome::Pass(text.lines().filter(says).collect::<Vec<_>>().join("; ")))
}

pub(crate) const LINES: &[Line] = &[
    ("BIRD feeds the full 2026 table: within 20 s, equal to the table, three times (root)", |machine| {
        real(machine, "real_bird_feeds_the_full_table")
    }),
    ("FRR feeds the full 2026 table: within 20 s, equal to the table (root)", |machine| {
        real(machine, "real_frr_feeds_the_full_table")
    }),
    ("GoBGP feeds the full 2026 table: within 20 s, equal to the table (root)", |machine| {
        real(machine, "real_gobgp_feeds_the_full_table")
    }),
    (
        "a million withdrawals and announcements, and sessions that flap in their midst: nothing lost (root)",
        |machine| real(machine, "real_updates_and_flaps_lose_nothing"),
    ),
    ("malformed updates cost what RFC 7606 says; any bytes are heard or end the session", |machine| {
        let passed = machine.tests(&["-p", "tidemill-bgp", "--lib"], 40)?;
        Ok(Outcome::Pass(format!("{passed} tests")))
    }),
    (
        "sessions with BIRD, FRR and GoBGP: feeds, flaps, add-path, graceful restart, signatures, BMP, flow specifications (root)",
        |machine| {
            let passed = machine.tests(&["-p", "tidemill-bgp", "--test", "root_bgp"], 10)?;
            Ok(Outcome::Pass(format!("{passed} tests")))
        },
    ),
];
