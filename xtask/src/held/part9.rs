//! Part 9, the Grantor, its policies, flow programs and decisions, and the attack of `tidemill scenario`.

use super::{Line, Machine, Outcome, number, ratios, verdict};
use crate::{env, proc, tidy};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::process::Command;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("attacks of a million a second: goodput, refusals, requests, revocation", |_| {
        played(&scenario("examples/ddos/ddos.toml")?)
    }),
    ("attackers who wait: newcomers wait as long as they, and no longer", |_| {
        waited(&scenario("examples/ddos/patient.toml")?)
    }),
    ("the scenario's short form, and what it leaves behind", |machine| {
        let lua =
            ["-p", "tidemill-cli", "--features", "lua", "--test", "root_scenario", "--", "--show-output"];
        let passed = machine.tests(&lua, 6)?;
        Ok(Outcome::Pass(format!("{passed} tests: root_scenario")))
    }),
    (
        "client, Gatekeeper, Grantor, server between kernels; web, tcp-services, two Gatekeepers, a script that hangs, more questions than can be answered, a Grantor that dies, keys that change, decisions sent again",
        |machine| {
            let lua =
                ["-p", "tidemill-cli", "--features", "lua", "--test", "root_grantor", "--", "--show-output"];
            let passed = machine.tests(&lua, 14)?;
            Ok(Outcome::Pass(format!("{passed} tests: root_grantor")))
        },
    ),
    ("2,048 granted flows, revoked at once", |machine| {
        let text = long(machine, "tidemill-cli", "root_grantor")?;
        let lines = text.lines().filter(|line| line.contains(" packets were lost without a revocation"));
        Ok(Outcome::Pass(lines.collect::<Vec<_>>().join("; ")))
    }),
    ("decisions: golden bytes, forged, replayed, malformed", |machine| {
        let passed = machine.tests(&["-p", "tidemill-decision"], 30)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-decision")))
    }),
    ("versions, revocation, programs: the gate against its model", |machine| {
        let passed = machine.tests(&["-p", "tidemill-gatekeeper", "--lib", "gate::"], 6)?;
        Ok(Outcome::Pass(format!("{passed} tests: tidemill-gatekeeper gate")))
    }),
    ("Lua that hangs is ended in time, by the clock", |machine| {
        let text = long(machine, "tidemill-grantor", "hostile")?;
        let batches = text.lines().filter_map(|line| line.split_once(": at most "));
        let shown: Vec<String> =
            batches.map(|(what, time)| format!("{what} {}", time.trim_end_matches(" for a batch"))).collect();
        Ok(Outcome::Pass(shown.join(", ")))
    }),
    ("more than 500,000 prefixes of IPv6 from Lua", |machine| {
        long(machine, "tidemill-grantor", "tables")?;
        Ok(Outcome::Pass("600,000 prefixes as the oracle says".into()))
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

/// What the scenario has to be held to at least, whatever its file says.
const BOUNDS: [(&str, &str, f64); 10] = [
    ("goodput", "least", 0.95),
    ("tcp", "least", 0.95),
    ("declined", "most", 0.0),
    ("declined-sent", "least", 1.0),
    ("request_s", "most", 1.0),
    ("granted_ms", "most", 100.0),
    ("revoked_ms", "most", 100.0),
    ("change_lost", "most", 0.0),
    ("attack_mpps", "least", 1.0),
    ("attack_ratio", "least", 100.0),
];

/// Its attacks, each a phase.
const ATTACKS: [&str; 11] = [
    "random sources",
    "random sources, IPv6",
    "spoofed",
    "spoofed, IPv6",
    "legitimate-looking",
    "requests",
    "requests, IPv6",
    "cookies",
    "forged decisions",
    "forged decisions, IPv6",
    "reload and revocation under attack",
];

/// What newcomers may wait in the scenario's other file, in s: by the arithmetic of priorities, and some time to spare; and the M packets a second that have to reach the Gatekeeper
/// for that, three quarters of what is sent.
const PATIENT: [(&str, f64, f64); 2] = [("as patient as newcomers", 1.0, 0.15), ("more patient", 5.0, 0.14)];

/// What an example says at its full rates.
fn scenario(file: &str) -> Result<Vec<Value>> {
    if !env::is_root() {
        bail!("a scenario needs root");
    }
    let mut command = Command::new(env::tidemill_with("lua")?);
    command.current_dir(env::root()).args(["scenario", file, "--json"]);
    // It fails where a bound is missed, and says which.
    let output = command.output().context("tidemill scenario")?;
    let objects = super::objects(&String::from_utf8_lossy(&output.stdout))?;
    if !objects.iter().any(|object| object["kind"] == "summary") {
        bail!("tidemill scenario: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(objects)
}

/// What a scenario has held its phases to.
fn checks(objects: &[Value]) -> Result<&Vec<Value>> {
    let summary = objects.iter().find(|object| object["kind"] == "summary");
    summary.and_then(|summary| summary["checks"].as_array()).context("it has not ended")
}

/// Those of them, for people.
fn shown(checks: &[Value], is: &dyn Fn(&Value) -> bool) -> String {
    let one = |check: &Value| {
        let text = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
        let (value, of) = (number(check, "value"), number(check, "of"));
        format!("{}: {} {value}, at {} {of}", text("phase"), text("what"), text("bound"))
    };
    checks.iter().filter(|check| is(check)).map(one).collect::<Vec<_>>().join("; ")
}

/// The verdict on attackers who wait: the scenario's own bounds, and whether newcomers are held to no more than they should be.
fn waited(objects: &[Value]) -> Result<Outcome> {
    let checks = checks(objects)?;
    let missed = shown(checks, &|check| check["pass"] != true);
    if !missed.is_empty() {
        return Ok(Outcome::Fail(missed));
    }
    for (phase, most, least) in PATIENT {
        let is_held = |check: &&Value| check["phase"] == phase && check["what"] == "request_s";
        let held = checks.iter().find(is_held).map_or(f64::NAN, |check| number(check, "of"));
        if held.is_nan() || held > most {
            bail!("the scenario holds newcomers to {held} s in a phase {phase:?}: {most} is the most");
        }
        let of_phase = |object: &&Value| object["kind"] == "phase" && object["phase"] == phase;
        let reached = objects.iter().find(of_phase).map_or(f64::NAN, |phase| number(phase, "front_mpps"));
        if reached.is_nan() || reached < least {
            bail!(
                "in the phase {phase:?} {reached} Mpps reached the Gatekeeper: with fewer than {least} nobody has to wait"
            );
        }
    }
    let said = shown(checks, &|check| check["what"] == "request_s");
    Ok(Outcome::Pass(said))
}

/// The verdict on what the scenario says: its own bounds, and whether it has those that it is to have.
fn played(objects: &[Value]) -> Result<Outcome> {
    let checks = checks(objects)?;
    let shown_if = |is: &dyn Fn(&Value) -> bool| shown(checks, is);
    let missed = shown_if(&|check| check["pass"] != true);
    if !missed.is_empty() {
        return Ok(Outcome::Fail(missed));
    }
    let is_strict = |check: &Value| {
        BOUNDS.iter().any(|(what, bound, of)| {
            let given = number(check, "of");
            let enough = if *bound == "least" { given >= *of } else { given <= *of };
            check["what"] == *what && check["bound"] == *bound && enough
        })
    };
    let loose = shown_if(&|check| !is_strict(check));
    if !loose.is_empty() {
        bail!("the scenario is held to too little: {loose}");
    }
    let has =
        |phase: &str, what: &str| checks.iter().any(|check| check["phase"] == phase && check["what"] == what);
    for (what, ..) in &BOUNDS {
        if !checks.iter().any(|check| check["what"] == *what) {
            bail!("the scenario expects nothing of {what}");
        }
    }
    for phase in ATTACKS {
        for what in ["goodput", "declined", "attack_mpps", "attack_ratio"] {
            if !has(phase, what) {
                bail!("the scenario expects nothing of {what} in a phase {phase:?}");
            }
        }
    }
    for phase in ["requests", "requests, IPv6"] {
        if !has(phase, "request_s") {
            bail!("the scenario expects nothing of request_s in a phase {phase:?}");
        }
    }
    for what in ["granted_ms", "revoked_ms"] {
        let phase = "reload and revocation under attack";
        if !has(phase, what) {
            bail!("the scenario expects nothing of {what} in a phase {phase:?}");
        }
    }
    // What is made counts for nothing where it finds no room at the port.
    let attacked = || objects.iter().filter(|object| object["kind"] == "phase" && object["attacked"] == true);
    for phase in attacked() {
        let times = number(phase, "front_mpps") * 1e6 / number(phase, "client_pps");
        if !times.is_finite() || times < 100.0 {
            let name = &phase["phase"];
            bail!("in the phase {name} only {times:.0} times the client's packets reached the Gatekeeper");
        }
    }
    let of = |what: &str| {
        let values = checks.iter().filter(|check| check["what"] == what).map(|check| number(check, "value"));
        let range = |(least, most): (f64, f64), value: f64| (least.min(value), most.max(value));
        values.fold((f64::MAX, f64::MIN), range)
    };
    let reached = attacked().map(|phase| number(phase, "front_mpps")).fold(f64::MAX, f64::min);
    Ok(Outcome::Pass(format!(
        "goodput at least {:.3} of what is granted under at least {:.2} Mpps, of which {reached:.2} found room at the Gatekeeper's port; granted within {:.2} s; \
         a change within {:.1} ms; none lost",
        of("goodput").0,
        of("attack_mpps").0,
        of("request_s").1,
        of("granted_ms").1.max(of("revoked_ms").1)
    )))
}

/// The one test of a target that is ignored elsewhere; what it printed.
fn long(machine: &Machine, package: &str, target: &str) -> Result<String> {
    let of = ["-p", package, "--features", "lua", "--release", "--test", target];
    Ok(machine.tests_said(&[&of[..], &["--", "--ignored"]].concat(), 1)?.1)
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
    let slowest = text.lines().find(|line| line.starts_with("1,020 divisions, machine code"));
    let slowest = slowest.context("nothing of the slowest program")?;
    Ok(verdict(ns <= 15.0, format!("{ns} ns a packet, the context included; {slowest}")))
}

#[cfg(test)]
mod tests {
    use super::{ATTACKS, BOUNDS, HARMS, Outcome, PATIENT, played, speeds, waited};
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

    /// What a scenario says that has all its bounds.
    fn said_of_all() -> Vec<Value> {
        let phases = ATTACKS.iter().chain(&["reload and revocation"]);
        let checks: Vec<Value> = phases
            .flat_map(|phase| {
                BOUNDS.map(|(what, bound, of)| {
                    json!({"phase": phase, "what": what, "value": of, "bound": bound, "of": of, "pass": true})
                })
            })
            .collect();
        let phase = json!({"kind": "phase", "attacked": true, "front_mpps": 0.5, "client_pps": 1000.0});
        vec![phase, json!({"kind": "summary", "checks": checks})]
    }

    #[test]
    fn a_scenario_has_to_be_held_to_all_of_it() {
        let good = said_of_all();
        assert!(
            matches!(played(&good), Ok(Outcome::Pass(text)) if text.contains("1.00 Mpps, of which 0.50"))
        );
        let with = |change: &dyn Fn(&mut Vec<Value>)| {
            let mut said = good.clone();
            if let Some(checks) = said[1]["checks"].as_array_mut() {
                change(checks);
            }
            played(&said)
        };
        let missed = with(&|checks| checks[0]["pass"] = false.into());
        assert!(matches!(missed, Ok(Outcome::Fail(_))));
        let why = |change: &dyn Fn(&mut Vec<Value>)| {
            with(change).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(why(&|checks| checks[0]["of"] = json!(0.9)).contains("too little: random sources: goodput"));
        assert!(why(&|checks| checks.retain(|check| check["what"] != "change_lost")).contains("change_lost"));
        let no_spoofed = why(&|checks| checks.retain(|check| check["phase"] != "spoofed"));
        assert!(no_spoofed.contains("goodput in a phase \"spoofed\""), "{no_spoofed}");
        let flood = |check: &Value| check["phase"] == "requests" && check["what"] == "request_s";
        assert!(why(&|checks| checks.retain(|check| !flood(check))).contains("\"requests\""));
        assert!(played(&good[..1]).is_err());
        let change = |check: &Value| {
            check["phase"] == "reload and revocation under attack" && check["what"] == "revoked_ms"
        };
        assert!(why(&|checks| checks.retain(|check| !change(check))).contains("revoked_ms in a phase"));
        let mut few = good.clone();
        few[0]["front_mpps"] = json!(0.05);
        assert!(played(&few).is_err_and(|error| error.to_string().contains("only 50 times the client's")));
    }

    #[test]
    fn newcomers_are_held_to_what_they_may_wait() {
        let said = |of: [f64; 2], pass: bool, front_mpps: f64| {
            let one = |(phase, of): (&str, f64)| {
                let bound = "most";
                json!({"phase": phase, "what": "request_s", "value": 0.6, "bound": bound, "of": of, "pass": pass})
            };
            let checks: Vec<Value> = PATIENT.iter().map(|(phase, ..)| *phase).zip(of).map(one).collect();
            let phase = |(phase, ..): &(&str, f64, f64)| json!({"kind": "phase", "phase": phase, "front_mpps": front_mpps});
            let mut objects: Vec<Value> = PATIENT.iter().map(phase).collect();
            objects.push(json!({"kind": "summary", "checks": checks}));
            waited(&objects)
        };
        assert!(matches!(said([1.0, 5.0], true, 0.2), Ok(Outcome::Pass(text)) if text.contains("0.6")));
        assert!(matches!(said([1.0, 5.0], false, 0.2), Ok(Outcome::Fail(_))));
        assert!(said([1.0, 6.0], true, 0.2).is_err() && said([1.0, 5.0], true, 0.01).is_err());
        assert!(waited(&[json!({"kind": "summary", "checks": []})]).is_err());
    }
}
