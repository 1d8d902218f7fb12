//! `held N`: the lines that part N is held to, each run and printed as passed, failed or measured.
//!
//! A line is a name and a function. Lines are independent: one that fails, or cannot run, does not stop the next.

mod part1;
mod part10;
mod part11;
mod part12;
mod part13;
mod part14;
mod part15;
mod part16;
mod part2;
mod part3;
mod part4;
mod part5;
mod part6;
mod part7;
mod part8;
mod part9;

use crate::{env, proc, python};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The part's number
    part: u32,
    /// Samples instead of everything, for minutes instead of an hour
    #[arg(long)]
    quick: bool,
    /// Only lines whose name contains this
    #[arg(long)]
    only: Option<String>,
}

/// How a line ended. Whoever cannot run one returns an error, which counts as failed.
enum Outcome {
    Pass(String),
    Fail(String),
    /// There is no bound to hold it against.
    Measured(String),
}

fn verdict(ok: bool, text: impl Into<String>) -> Outcome {
    if ok { Outcome::Pass(text.into()) } else { Outcome::Fail(text.into()) }
}

/// How the error begins where a test says that it was skipped.
const SKIPPED: &str = "tests were skipped";

type Line = (&'static str, fn(&Machine) -> Result<Outcome>);

/// What lines run with.
struct Machine {
    quick: bool,
}

impl Machine {
    /// The folder with real data.
    fn data(&self) -> Result<PathBuf> {
        env::data().context("TIDEMILL_DATA is not set: this line needs the real data")
    }

    /// Runs `tidemill` with these arguments; the objects that it prints, one per line.
    fn tidemill(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let mut command = Command::new(env::tidemill()?);
        command.current_dir(env::root()).args(arguments);
        objects(&proc::output(&mut command)?)
    }

    /// Runs `cargo xtask` with these arguments; the objects that it prints.
    fn xtask(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        objects(&proc::output(Command::new(std::env::current_exe()?).args(arguments))?)
    }

    /// Runs `cargo xtask peers` with these arguments; the objects that it prints. Nothing is held against a peer on pages of 4 KB.
    fn peers(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let objects = self.xtask(&[&["peers"], arguments].concat())?;
        on_huge_pages(&objects)?;
        Ok(objects)
    }

    /// Runs `cargo xtask` with these arguments; the last line that it prints.
    fn said(&self, arguments: &[&str]) -> Result<String> {
        let text = proc::output(Command::new(std::env::current_exe()?).args(arguments))?;
        Ok(text.lines().last().unwrap_or_default().to_owned())
    }

    /// Runs tests; how many passed. Fewer than `least` is an error: a filter may have gone stale; so is a test that says that it was skipped.
    fn tests(&self, arguments: &[&str], least: usize) -> Result<usize> {
        Ok(self.tests_said(arguments, least)?.0)
    }

    /// The same, and all that they printed.
    fn tests_said(&self, arguments: &[&str], least: usize) -> Result<(usize, String)> {
        let mut command = env::cargo();
        command.args(["test", "--quiet"]).args(outspoken(arguments)).envs(python::variable());
        let mut text = String::new();
        if !proc::lines(&mut command, |line| text.extend([line, "\n"]))? {
            let failures = text.find("failures:").map_or(&*text, |at| &text[at..]);
            bail!("{}\n{failures}", proc::shown(&command));
        }
        if text.lines().any(|line| line.starts_with("skipped: ")) {
            bail!("{SKIPPED}: cargo test {}", arguments.join(" "));
        }
        let passed = passed(&text);
        if passed < least {
            bail!("{passed} tests, at least {least}: cargo test {}", arguments.join(" "));
        }
        Ok((passed, text))
    }
}

/// Arguments of `cargo test` with which a test that passes shows what it has printed: that it was skipped, for one.
fn outspoken<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    const SHOW: &str = "--show-output";
    let (cargos, tests) = match arguments.iter().position(|argument| *argument == "--") {
        Some(at) => (&arguments[..at], &arguments[at + 1..]),
        None => (arguments, &[][..]),
    };
    let is_there = tests.iter().any(|argument| [SHOW, "--nocapture"].contains(argument));
    let show = (!is_there).then_some(SHOW);
    cargos.iter().copied().chain(["--"]).chain(show).chain(tests.iter().copied()).collect()
}

/// How many tests passed. A test may run its own binary again; what that prints stands inside the other's, and counts for
/// nothing.
pub(crate) fn passed(text: &str) -> usize {
    let (mut depth, mut passed) = (0, 0);
    for line in text.lines() {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            depth += 1;
        } else if line.starts_with("test result: ") {
            depth -= 1;
            let count = line.strip_prefix("test result: ok. ").and_then(|rest| rest.split(' ').next());
            let count: usize = count.and_then(|count| count.parse().ok()).unwrap_or(0);
            passed += if depth == 0 { count } else { 0 };
        }
    }
    passed
}

/// The JSON objects among the lines of a text.
fn objects(text: &str) -> Result<Vec<Value>> {
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))).collect()
}

/// Refuses a peer that says its memory lies on pages of 4 KB: it is slower for that, and ours has larger ones. One that cannot say passes.
fn on_huge_pages(objects: &[Value]) -> Result<()> {
    for line in objects {
        let subject = line["subject"].as_str().unwrap_or_default();
        let pages = line["params"]["pages"].as_str().filter(|_| subject.starts_with("peer:"));
        if let Some(pages) = pages.filter(|pages| !pages.starts_with("2 MB")) {
            bail!(
                "{subject} on pages of {pages}, 2 MB wanted: run as root, or raise vm.nr_hugepages; for what malloc gives, \
                 allow transparent ones (/sys/kernel/mm/transparent_hugepage/enabled)"
            );
        }
    }
    Ok(())
}

fn number(object: &Value, field: &str) -> f64 {
    object[field].as_f64().unwrap_or(f64::NAN)
}

/// The ratios among the lines.
fn ratios(objects: &[Value]) -> Vec<&Value> {
    objects.iter().filter(|object| object["metric"] == "ratio").collect()
}

/// `to NAME 2.13 (2.00 to 2.27)`.
fn shown(ratio: &Value) -> String {
    let to = ratio["to"].as_str().unwrap_or("?");
    let (value, low, high) = (number(ratio, "value"), number(ratio, "low"), number(ratio, "high"));
    format!("to {to} {value:.2} ({low:.2} to {high:.2})")
}

/// Whether no line failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let lines = match options.part {
        1 => part1::LINES,
        2 => part2::LINES,
        3 => part3::LINES,
        4 => part4::LINES,
        5 => part5::LINES,
        6 => part6::LINES,
        7 => part7::LINES,
        8 => part8::LINES,
        9 => part9::LINES,
        10 => part10::LINES,
        11 => part11::LINES,
        12 => part12::LINES,
        13 => part13::LINES,
        14 => part14::LINES,
        15 => part15::LINES,
        16 => part16::LINES,
        part => bail!("no lines are written down for part {part}"),
    };
    let machine = Machine { quick: options.quick };
    let (mut passed, mut failed, mut measured) = (0, 0, 0);
    for (name, line) in lines {
        if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let start = Instant::now();
        let outcome = line(&machine).unwrap_or_else(|error| Outcome::Fail(format!("{error:#}")));
        let (word, text) = match outcome {
            Outcome::Pass(text) => (count(&mut passed, "pass"), text),
            Outcome::Fail(text) => (count(&mut failed, "FAIL"), text),
            Outcome::Measured(text) => (count(&mut measured, "measured"), text),
        };
        println!("{word:8} {name} [{:.0} s]: {text}", start.elapsed().as_secs_f64());
    }
    println!("part {}: {passed} passed, {failed} failed, {measured} measured", options.part);
    Ok(failed == 0)
}

fn count(counter: &mut usize, word: &'static str) -> &'static str {
    *counter += 1;
    word
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn peers_on_small_pages_are_refused() {
        let line = |subject: &str, pages: &str| json!({"subject": subject, "params": {"pages": pages}});
        let with = |pages: &str| {
            let silent = json!({"subject": "peer:crate-x", "params": {"key_pages": "4 KB"}});
            let ratio = json!({"metric": "ratio", "of": "x", "to": "peer:rte_hash"});
            super::on_huge_pages(&[ratio, line("tidemill", "4 KB"), silent, line("peer:rte_hash", pages)])
        };
        for good in ["2 MB", "2 MB, transparent"] {
            assert!(with(good).is_ok(), "{good}");
        }
        let error = with("4 KB").unwrap_err().to_string();
        assert!(error.contains("peer:rte_hash on pages of 4 KB, 2 MB wanted"), "{error}");
    }

    #[test]
    fn tests_always_show_what_they_print() {
        let of = |line: &str| super::outspoken(&line.split(' ').collect::<Vec<_>>()).join(" ");
        assert_eq!(of("-p a"), "-p a -- --show-output");
        assert_eq!(of("-p a -- name --ignored"), "-p a -- --show-output name --ignored");
        assert_eq!(of("-p a -- name --show-output"), "-p a -- name --show-output");
        assert_eq!(of("-p a --lib name"), "-p a --lib name -- --show-output");
    }

    #[test]
    fn tests_inside_tests_count_for_nothing() {
        let one = "running 1 test\ntest result: ok. 1 passed; 0 failed; 7 filtered out\n";
        let outer =
            format!("running 2 tests\n..\nsuccesses:\n{one}{one}\ntest result: ok. 2 passed; 0 failed\n");
        assert_eq!(super::passed(&format!("{outer}\n{one}")), 3);
    }
}
