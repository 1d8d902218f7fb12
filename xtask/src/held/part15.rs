//! Part 15, operation: the API, events, the live page, the package, what a process gives up.

use super::{Line, Outcome, verdict};
use crate::{fuzz, soak, tidy};

pub(crate) const LINES: &[Line] = &[
    ("unauthenticated, oversized, malformed, slow requests are refused within limits", |machine| {
        let passed = machine.tests(&["-p", "tidemill-control", "--test", "server"], 36)?;
        let inside = machine.tests(&["-p", "tidemill-control", "--lib"], 10)?;
        Ok(Outcome::Pass(format!("{passed} tests: server; {inside} inside")))
    }),
    ("events: what happens in a run is told, and a slow reader is told what it has lost", |machine| {
        let passed = machine.tests(&["-p", "tidemill-control", "--lib", "events"], 3)?;
        let run = machine.tests(
            &["-p", "tidemill-cli", "--test", "run_commands", "what_happens_in_a_run_is_an_event"],
            1,
        )?;
        Ok(Outcome::Pass(format!("{} tests", passed + run)))
    }),
    (
        "log levels by module, by file, reload and command, and in the journal; each role's OpenAPI document, panels, SIGHUP; Prometheus reads the metrics; reloads wait for files beside all else; a worker that stands still is noticed; tokens on TCP are renewed; the manual is the help",
        |machine| {
            let passed = machine.tests(&["-p", "tidemill-cli", "--test", "reload_commands"], 9)?;
            let one =
                |file: &str, test: &str| machine.tests(&["-p", "tidemill-cli", "--test", file, test], 1);
            one("live_commands", "metrics_of_a_run_are_read_on_tcp")?;
            one("run_commands", "the_manual_says_what_each_command_takes")?;
            one("run_commands", "an_interrupted_run_ends_in_good_order")?;
            Ok(Outcome::Pass(format!("{passed} tests: reload_commands; tokens, manual, interruption")))
        },
    ),
    // Chromium and its libraries are a large download: it is no package that `setup` installs.
    (
        "the live page of every role in headless Chromium (apt-get install chromium fonts-dejavu-core)",
        |machine| {
            let page = ["-p", "tidemill-cli", "--features", "lua", "--test", "live_page", "--", "--ignored"];
            let passed = machine.tests(&page, 2)?;
            Ok(Outcome::Pass(format!("{passed} tests: live_page")))
        },
    ),
    ("requests cut, spliced and filled with other bytes harm nobody", |machine| {
        let mutilated = ["-p", "tidemill-control", "--test", "server", "mutilated_requests"];
        Ok(Outcome::Pass(format!("{} tests: mutilated_requests", machine.tests(&mutilated, 1)?)))
    }),
    ("the fuzzed API survives", |machine| {
        let seconds = if machine.quick { 20 } else { 300 };
        let totals = fuzz::some(&["control_api"], seconds)?;
        Ok(verdict(totals.failed == 0 && totals.passed == 1, format!("{totals}, {seconds} s")))
    }),
    ("a compromised worker thread opens neither files nor sockets", |machine| {
        let passed = machine.tests(&["-p", "tidemill-daemon", "--test", "service"], 4)?;
        let run = ["-p", "tidemill-cli", "--test", "reload_commands", "the_workers_of_a_run_are_confined"];
        let run = machine.tests(&run, 1)?;
        Ok(Outcome::Pass(format!("{passed} tests: service; {run} of a run's workers")))
    }),
    ("privileges are given up after the start (root)", |machine| {
        let passed = machine.tests(&["-p", "tidemill-daemon", "--test", "root_privileges"], 2)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_privileges")))
    }),
    (
        "the package is installed, its examples run, it is upgraded, removed, and leaves nothing (root)",
        |machine| Ok(Outcome::Pass(machine.said(&["deb", "--trial"])?)),
    ),
    // Debian is fetched once, and kept.
    (
        "clean Debian with its own systemd: units, watchdog, upgrade at work, journal, removal (root, apt-get install debootstrap systemd-container)",
        |machine| Ok(Outcome::Pass(machine.said(&["deb", "--clean"])?)),
    ),
    (
        "soak: every role under load on bad lines, with reloads, churn, faults and kills: books, memory, drop reasons",
        |machine| {
            let minutes = if machine.quick { 1.0 } else { 30.0 };
            Ok(verdict(soak::all(minutes)?, format!("{minutes} minutes a role, see above")))
        },
    ),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];
