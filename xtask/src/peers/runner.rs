//! A runner: a process with a table, asked for timed passes over its standard input and output.

use super::report::Case;
use crate::proc;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Passes that do not count are asked for until they took so long together,
const WARM_SECONDS: f64 = 0.005;
/// and so many at most: passes over some thousand headers take a tenth of a millisecond each, in which caches and predictors have not come to rest.
const WARM_PASSES: u32 = 32;

pub(crate) struct Runner {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it said of itself.
    pub(crate) subject: String,
    /// Routes or entries in its table.
    pub(crate) held: u64,
    pub(crate) rejected: u64,
    pub(crate) build_seconds: f64,
    pub(crate) bytes: u64,
    pub(crate) params: Value,
    /// The checksums of right passes, by case.
    expected: BTreeMap<&'static str, String>,
}

impl Runner {
    /// Starts the command, pinned to the CPU if one is given, and waits until its table stands.
    pub(crate) fn start(command: &Command, cpu: Option<usize>) -> Result<Runner> {
        let mut process =
            Command::new(if cpu.is_some() { "taskset".as_ref() } else { command.get_program() });
        if let Some(cpu) = cpu {
            process.args(["-c", &cpu.to_string()]).arg(command.get_program());
        }
        for (name, value) in command.get_envs() {
            process.env(name, value.unwrap_or_default());
        }
        process.args(command.get_args()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process.spawn().with_context(|| format!("cannot start {}", proc::shown(command)))?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut runner = Runner {
            child,
            input,
            output,
            subject: String::new(),
            held: 0,
            rejected: 0,
            build_seconds: 0.0,
            bytes: 0,
            params: Value::Null,
            expected: BTreeMap::new(),
        };
        let ready = runner.answer().with_context(|| format!("{} did not get ready", proc::shown(command)))?;
        runner.subject = ready["subject"].as_str().context("a runner without a subject")?.to_owned();
        runner.held = ready["routes"].as_u64().or(ready["entries"].as_u64()).unwrap_or(0);
        runner.rejected = ready["rejected"].as_u64().unwrap_or(0);
        runner.build_seconds = ready["build_seconds"].as_f64().unwrap_or(0.0);
        runner.bytes = ready["bytes"].as_u64().unwrap_or(0);
        runner.params = ready["params"].clone();
        Ok(runner)
    }

    /// Takes on the parameters of the scenario, over which its own go, and what its passes must answer.
    pub(crate) fn adopt(&mut self, mut params: Value, expected: &BTreeMap<&'static str, String>) {
        if let (Some(all), Some(own)) = (params.as_object_mut(), self.params.as_object()) {
            all.extend(own.clone());
        }
        self.params = params;
        self.expected.clone_from(expected);
    }

    /// The checksum of a right pass. One that rejected part of the table has another, which proves nothing.
    pub(crate) fn expected(&self, case: &str) -> Option<&String> {
        self.expected.get(case).filter(|_| self.rejected == 0)
    }

    /// Has it take so many packets at once from now on.
    pub(crate) fn set_burst(&mut self, packets: u32) -> Result<()> {
        writeln!(self.input, "burst {packets}")?;
        self.input.flush()?;
        let answer = self.answer().with_context(|| format!("{} in bursts of {packets}", self.subject))?;
        if answer["burst"] != packets {
            bail!("{}: bursts of {packets} were asked for: {answer}", self.subject);
        }
        if let Some(params) = self.params.as_object_mut() {
            params.insert("burst".to_owned(), packets.into());
        }
        Ok(())
    }

    /// One pass, timed by the runner, in million lookups per second. If it is to be warm, some before it, not counted, bring the
    /// runner's table back into the caches that the other runner has just used: one, and short ones for [`WARM_SECONDS`], [`WARM_PASSES`] at most.
    pub(crate) fn pass(&mut self, case: &Case<'_>) -> Result<f64> {
        let (mut passes, mut seconds) = (0, 0.0);
        while case.warm && passes < WARM_PASSES && seconds < WARM_SECONDS {
            seconds += self.timed(case.asked)?.1;
            passes += 1;
        }
        self.pass_once(case.asked)
    }

    /// One pass without those before it. It fails if the answers are wrong.
    pub(crate) fn pass_once(&mut self, case: &'static str) -> Result<f64> {
        let (lookups, seconds) = self.timed(case)?;
        Ok(lookups / seconds / 1e6)
    }

    /// Lookups of a pass, and its seconds.
    fn timed(&mut self, case: &'static str) -> Result<(f64, f64)> {
        writeln!(self.input, "run {case}")?;
        self.input.flush()?;
        let answer = self.answer().with_context(|| format!("{} in {case}", self.subject))?;
        let (lookups, seconds) = (answer["lookups"].as_f64(), answer["seconds"].as_f64());
        let (Some(lookups), Some(seconds), Some(checksum)) = (lookups, seconds, answer["checksum"].as_str())
        else {
            bail!("{}: a pass without lookups, seconds or checksum: {answer}", self.subject);
        };
        if let Some(expected) = self.expected(case).filter(|expected| *expected != checksum) {
            bail!("{} {case}: checksum {checksum}, expected {expected}", self.subject);
        }
        // What is lost costs less than what is sent. A table that is not whole has no next hop for some.
        if let Some(sent) = answer["sent"].as_f64().filter(|sent| self.rejected == 0 && *sent < lookups) {
            bail!("{} {case}: {sent} packets sent of {lookups}", self.subject);
        }
        Ok((lookups, seconds))
    }

    /// The next line that is an object; other lines are chatter of libraries.
    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if line.starts_with('{') {
                let value: Value =
                    serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
                if let Some(error) = value["error"].as_str() {
                    bail!("{error}");
                }
                return Ok(value);
            }
            line.clear();
        }
        bail!("the runner ended ({})", self.child.wait()?)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to stop.
        let asked = writeln!(self.input, "quit").and_then(|()| self.input.flush());
        if asked.is_err() {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stand_in(script: &str) -> Result<Runner> {
        Runner::start(Command::new("sh").args(["-c", script]), None)
    }

    #[test]
    fn passes_are_asked_for_and_read() {
        let script = r#"echo chatter; echo '{"ready":true,"subject":"x","routes":3,"params":{"b":2}}'
            while read word case; do [ $word = quit ] && exit 0
            echo "{\"case\":\"$case\",\"lookups\":4000000,\"seconds\":0.5,\"checksum\":\"$case\"}"; done"#;
        let mut runner = stand_in(script).unwrap();
        assert_eq!((runner.subject.as_str(), runner.held, runner.rejected), ("x", 3, 0));
        runner.adopt(json!({"a": 1}), &BTreeMap::from([("seq", "seq".to_owned()), ("rep", "x".to_owned())]));
        assert_eq!(runner.params, json!({"a": 1, "b": 2}));
        let case = Case { name: "x/seq", asked: "seq", rounds: 1, warm: true };
        assert_eq!(runner.pass(&case).unwrap(), 8.0);
        assert!(runner.pass_once("rep").is_err(), "a wrong checksum");
        runner.rejected = 1;
        assert!(runner.pass_once("rep").is_ok(), "of a table that is not whole any checksum will do");
    }

    #[test]
    fn what_loses_packets_is_not_compared() {
        let script = r#"echo '{"subject":"x"}'
            while read word sent; do [ $word = quit ] && exit 0
            echo "{\"lookups\":40,\"seconds\":0.5,\"checksum\":\"\",\"sent\":$sent}"; done"#;
        let mut runner = stand_in(script).unwrap();
        assert!(runner.pass_once("40").is_ok());
        let error = format!("{:#}", runner.pass_once("39").unwrap_err());
        assert!(error.contains("x 39: 39 packets sent of 40"), "{error}");
        runner.rejected = 1;
        assert!(runner.pass_once("39").is_ok(), "some have no next hop in a table that is not whole");
    }

    #[test]
    fn bursts_are_set_and_told() {
        let script = r#"echo '{"subject":"x","params":{"burst":32}}'
            while read word packets; do [ $word = quit ] && exit 0
            [ $packets = 64 ] && echo '{"burst":64}' || echo '{"error":"burst: use 1 to 256"}'; done"#;
        let mut runner = stand_in(script).unwrap();
        assert!(format!("{:#}", runner.set_burst(500).unwrap_err()).contains("use 1 to 256"));
        assert_eq!(runner.params, json!({"burst": 32}));
        runner.set_burst(64).unwrap();
        assert_eq!(runner.params, json!({"burst": 64}));
    }

    #[test]
    fn the_environment_is_handed_on() {
        let mut command = Command::new("sh");
        command.args(["-c", r#"echo "{\"subject\":\"$NAME\"}"; read a"#]).env("NAME", "y");
        assert_eq!(Runner::start(&command, None).unwrap().subject, "y");
    }

    #[test]
    fn a_runner_that_dies_or_errs_is_told() {
        assert!(stand_in("exit 3").is_err());
        let mut runner =
            stand_in(r#"echo '{"subject":"x"}'; read a; echo '{"error":"no such pattern"}'; read a"#)
                .unwrap();
        assert!(format!("{:#}", runner.pass_once("rnd").err().unwrap()).contains("no such pattern"));
    }
}
