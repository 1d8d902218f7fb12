//! Part 9, the Grantor, its policies, flow programs and decisions, and the attack of `tidemill scenario`.

use super::{Line, Machine, Outcome, number, ratios, verdict};
use crate::{env, proc, tidy};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::process::Command;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("attacks of a million a second: goodput, refusals, requests, revocation", |_| scenario()),
    ("the scenario's short form, and what it leaves behind", |machine| {
        let lua =
            ["-p", "tidemill-cli", "--features", "lua", "--test", "root_scenario", "--", "--show-output"];
        let passed = machine.tests(&lua, 3)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_scenario")))
    }),
    (
        "client, Gatekeeper, Grantor, server between kernels; web, tcp-services, two Gatekeepers, a script that hangs, a Grantor that dies",
        |machine| {
            let lua =
                ["-p", "tidemill-cli", "--features", "lua", "--test", "root_grantor", "--", "--show-output"];
            let passed = machine.tests(&lua, 10)?;
            Ok(Outcome::Pass(format!("{passed} tests: root_grantor")))
        },
    ),
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
    ("granted packets at full speed while the policy hangs", full_speed),
    ("a reload, and a state made anew, keep what scripts keep", |machine| {
        let keeps = [
            "-p",
            "tidemill-grantor",
            "--features",
            "lua",
            "--test",
            "judge",
            "--test",
            "engine",
            "--",
            "keeps_what",
            "goes_on_after_a_reload",
        ];
        let passed = machine.tests(&keeps, 3)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-grantor judge, engine")))
    }),
    ("programs: refusals, objects, machine code against the interpreter", |machine| {
        let passed = machine.tests(&["-p", "tidemill-flowprog"], 30)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-flowprog")))
    }),
    ("30 instructions in at most 15 ns", |_| thirty()),
    ("any decision", |machine| fuzz(machine, "gatekeeper_decision")),
    ("any program", |machine| fuzz(machine, "flow_program")),
    ("any question, and any answer", |machine| fuzz(machine, "grantor_policy")),
    // What must exist besides.
    ("shipped programs are what their sources say", |machine| {
        Ok(Outcome::Pass(machine.said(&["bpf", "--check"])?))
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

/// The example at its full rates. Every bound is the scenario's own; here is seen that none is missing.
fn scenario() -> Result<Outcome> {
    if !env::is_root() {
        bail!("a scenario needs root");
    }
    let mut command = Command::new(env::tidemill_with("lua")?);
    command.current_dir(env::root()).args(["scenario", "examples/ddos/ddos.toml", "--json"]);
    // It fails where a bound is missed, and says which.
    let output = command.output().context("tidemill scenario")?;
    let objects = super::objects(&String::from_utf8_lossy(&output.stdout))?;
    let Some(summary) = objects.iter().find(|object| object["kind"] == "summary") else {
        bail!("tidemill scenario: {}", String::from_utf8_lossy(&output.stderr).trim());
    };
    let checks = summary["checks"].as_array().cloned().unwrap_or_default();
    let shown = |check: &&Value| {
        let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
        let (value, of) = (number(check, "value"), number(check, "of"));
        format!("{}: {} {value}, at {} {of}", text("phase"), text("what"), text("bound"))
    };
    let missed: Vec<String> =
        checks.iter().filter(|check| check["pass"] != true).map(|check| shown(&check)).collect();
    if !missed.is_empty() {
        return Ok(Outcome::Fail(missed.join("; ")));
    }
    let of = |what: &str| {
        let values = checks.iter().filter(|check| check["what"] == what).map(|check| number(check, "value"));
        let values: Vec<f64> = values.collect();
        let range = |least: f64, most: f64, value: &f64| (least.min(*value), most.max(*value));
        let (least, most) =
            values.iter().fold((f64::MAX, f64::MIN), |(least, most), value| range(least, most, value));
        (values.len(), least, most)
    };
    let names = [
        "goodput",
        "tcp",
        "declined",
        "declined-sent",
        "request_s",
        "granted_ms",
        "revoked_ms",
        "change_lost",
        "attack_mpps",
        "attack_ratio",
    ];
    if let Some(name) = names.iter().find(|name| of(name).0 == 0) {
        bail!("the scenario expects nothing of {name}");
    }
    Ok(Outcome::Pass(format!(
        "goodput at least {:.3} of what is granted under at least {:.2} Mpps; {} phases; granted within {:.2} s; a change within {:.1} ms; none lost",
        of("goodput").1,
        of("attack_mpps").1,
        of("goodput").0,
        of("request_s").2,
        of("granted_ms").2.max(of("revoked_ms").2)
    )))
}

/// Ways to hang, each beside a policy that does not.
const HARMS: [&str; 4] = ["loop", "leak", "throw", "pattern"];

/// Granted packets at 0.95 of their rate at least, whatever the policy does on a processor of its own. On the worker's it takes what the kernel gives every thread: that is told.
fn full_speed(machine: &Machine) -> Result<Outcome> {
    let (runs, seconds) = if machine.quick { ("3", "0.2") } else { ("15", "0.5") };
    let mut command = Command::new(env::tidemill_with("lua")?);
    command.current_dir(env::root()).args(["bench", "grantor", "--runs", runs]);
    command.args(["--seconds", seconds, "--json"]);
    let objects = super::objects(&proc::output(&mut command)?)?;
    Ok(speeds(&objects))
}

/// The verdict on what the bench says.
fn speeds(objects: &[Value]) -> Outcome {
    let all = ratios(objects);
    let of = |place: &str| -> Vec<&&Value> {
        all.iter().filter(|ratio| ratio["case"] == format!("granted/{place}")).collect()
    };
    let text = |place: &str| {
        let each = of(place).into_iter().map(|ratio| {
            let of = ratio["of"].as_str().unwrap_or("?");
            let (value, low, high) = (number(ratio, "value"), number(ratio, "low"), number(ratio, "high"));
            format!("{of} {value:.3} ({low:.3} to {high:.3})")
        });
        format!("{place}: {}", each.collect::<Vec<_>>().join(", "))
    };
    let beside = of("beside");
    let good = HARMS.iter().all(|harm| {
        let is = |ratio: &&&Value| ratio["of"] == *harm;
        beside.iter().copied().find(is).is_some_and(|ratio| number(ratio, "value") >= 0.95)
    });
    verdict(good, format!("{}; {}", text("beside"), text("shared")))
}

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

#[cfg(test)]
mod tests {
    use super::{HARMS, Outcome, speeds};
    use serde_json::{Value, json};

    fn said(harms: &[&str], place: &str, value: f64) -> Vec<Value> {
        let ratio = |harm: &&str| {
            let case = format!("granted/{place}");
            json!({"metric": "ratio", "case": case, "of": harm, "value": value, "low": value, "high": value})
        };
        harms.iter().map(ratio).collect()
    }

    #[test]
    fn each_way_to_hang_has_to_be_fast_on_a_processor_of_its_own() {
        let slow = said(&HARMS, "shared", 0.5);
        for (beside, good) in [
            (said(&HARMS, "beside", 0.96), true),
            (said(&HARMS, "beside", 0.94), false),
            (said(&HARMS[1..], "beside", 0.96), false),
            (Vec::new(), false),
        ] {
            let outcome = speeds(&[beside, slow.clone()].concat());
            assert_eq!(matches!(outcome, Outcome::Pass(_)), good);
        }
    }
}
