//! A runner: a process with a table, asked for timed passes over its standard input and output.

use super::keys::Pattern;
use crate::proc;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Runner {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it said of itself.
    pub(crate) subject: String,
    pub(crate) routes: u64,
    pub(crate) rejected: u64,
    pub(crate) build_seconds: f64,
    pub(crate) bytes: u64,
    pub(crate) params: Value,
}

/// One timed pass.
pub(crate) struct Pass {
    /// Million lookups per second.
    pub(crate) mlps: f64,
    pub(crate) checksum: String,
}

impl Runner {
    /// Starts the command, pinned to the CPU if one is given, and waits until its table stands.
    pub(crate) fn start(command: &Command, cpu: Option<usize>) -> Result<Runner> {
        let mut process =
            Command::new(if cpu.is_some() { "taskset".as_ref() } else { command.get_program() });
        if let Some(cpu) = cpu {
            process.args(["-c", &cpu.to_string()]).arg(command.get_program());
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
            routes: 0,
            rejected: 0,
            build_seconds: 0.0,
            bytes: 0,
            params: Value::Null,
        };
        let ready = runner.answer().with_context(|| format!("{} did not get ready", proc::shown(command)))?;
        runner.subject = ready["subject"].as_str().context("a runner without a subject")?.to_owned();
        runner.routes = ready["routes"].as_u64().unwrap_or(0);
        runner.rejected = ready["rejected"].as_u64().unwrap_or(0);
        runner.build_seconds = ready["build_seconds"].as_f64().unwrap_or(0.0);
        runner.bytes = ready["bytes"].as_u64().unwrap_or(0);
        runner.params = ready["params"].clone();
        Ok(runner)
    }

    /// One pass, timed by the runner. One before it, not counted, brings the runner's table back into the caches that the
    /// other runner has just used.
    pub(crate) fn pass(&mut self, pattern: Pattern) -> Result<Pass> {
        self.pass_once(pattern)?;
        self.pass_once(pattern)
    }

    /// One pass without the one before it.
    pub(crate) fn pass_once(&mut self, pattern: Pattern) -> Result<Pass> {
        writeln!(self.input, "run {}", pattern.name())?;
        self.input.flush()?;
        let answer = self.answer().with_context(|| format!("{} in {}", self.subject, pattern.name()))?;
        let (lookups, seconds) = (answer["lookups"].as_f64(), answer["seconds"].as_f64());
        let (Some(lookups), Some(seconds), Some(checksum)) = (lookups, seconds, answer["checksum"].as_str())
        else {
            bail!("{}: a pass without lookups, seconds or checksum: {answer}", self.subject);
        };
        Ok(Pass { mlps: lookups / seconds / 1e6, checksum: checksum.to_owned() })
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

    fn stand_in(script: &str) -> Result<Runner> {
        Runner::start(Command::new("sh").args(["-c", script]), None)
    }

    #[test]
    fn passes_are_asked_for_and_read() {
        let script = r#"echo chatter; echo '{"ready":true,"subject":"x","routes":3,"rejected":1}'
            while read word case; do [ $word = quit ] && exit 0
            echo "{\"case\":\"$case\",\"lookups\":4000000,\"seconds\":0.5,\"checksum\":\"$case\"}"; done"#;
        let mut runner = stand_in(script).unwrap();
        assert_eq!((runner.subject.as_str(), runner.routes, runner.rejected), ("x", 3, 1));
        let pass = runner.pass(Pattern::Seq).unwrap();
        assert_eq!((pass.mlps, pass.checksum.as_str()), (8.0, "seq"));
    }

    #[test]
    fn a_runner_that_dies_or_errs_is_told() {
        assert!(stand_in("exit 3").is_err());
        let mut runner =
            stand_in(r#"echo '{"subject":"x"}'; read a; echo '{"error":"no such pattern"}'; read a"#)
                .unwrap();
        assert!(format!("{:#}", runner.pass(Pattern::Rnd).err().unwrap()).contains("no such pattern"));
    }
}
