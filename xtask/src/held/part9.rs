//! Part 9, the Grantor, its policies, flow programs and decisions. The attack of `tidemill scenario` comes with that command.

use super::{Line, Machine, Outcome, verdict};
use crate::{env, proc, tidy};
use anyhow::{Context as _, Result};

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("client, Gatekeeper, Grantor, server between kernels", |machine| {
        let lua =
            ["-p", "tidemill-cli", "--features", "lua", "--test", "root_grantor", "--", "--show-output"];
        let passed = machine.tests(&lua, 3)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_grantor")))
    }),
    ("decisions: golden bytes, forged, replayed, malformed", |machine| {
        let passed = machine.tests(&["-p", "tidemill-decision"], 30)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-decision")))
    }),
    ("versions, revocation, programs: the gate against its model", |machine| {
        let passed = machine.tests(&["-p", "tidemill-gatekeeper", "--lib", "gate::"], 6)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-gatekeeper gate")))
    }),
    ("Lua that loops, leaks, throws; the seven policies", |machine| {
        let passed = machine.tests(&["-p", "tidemill-grantor", "--features", "lua"], 40)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-grantor")))
    }),
    ("programs: refusals, objects, machine code against the interpreter", |machine| {
        let passed = machine.tests(&["-p", "tidemill-flowprog"], 30)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-flowprog")))
    }),
    ("30 instructions in at most 15 ns", |_| thirty()),
    ("any decision", |machine| fuzz(machine, "gatekeeper_decision")),
    ("any program", |machine| fuzz(machine, "flow_program")),
    // What must exist besides.
    ("shipped programs are what their sources say", |machine| {
        Ok(Outcome::Pass(machine.said(&["bpf", "--check"])?))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

fn fuzz(machine: &Machine, target: &str) -> Result<Outcome> {
    let seconds = if machine.quick { "20" } else { "300" };
    Ok(Outcome::Pass(machine.said(&["fuzz", "--target", target, "--seconds", seconds])?))
}

/// What the example says of the program, with the context that it is given.
fn thirty() -> Result<Outcome> {
    let mut command = env::cargo();
    command.args(["run", "--quiet", "--release", "-p", "tidemill-flowprog", "--example", "rate"]);
    let text = proc::output(&mut command)?;
    let line = text.lines().find(|line| line.starts_with("30, machine code"));
    let ns = line.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<f64>().ok());
    let ns = ns.with_context(|| format!("no rate of 30 instructions in:\n{text}"))?;
    Ok(verdict(ns <= 15.0, format!("{ns} ns a packet, the context included")))
}
