//! `callgrind`: what a lookup of the switch's 64-byte keys executes, kind by kind, beside Table 1 of HALO (Yuan and others, ISCA 2019): instructions, loads,
//! stores, jumps. Counted, not timed: the same on every run of one binary.
//!
//! valgrind knows no AVX-512: what is counted is the code for other CPUs.

use crate::{env, proc};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::Path;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// Of a lookup.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counts {
    instructions: f64,
    loads: f64,
    stores: f64,
    jumps: f64,
}

impl Counts {
    /// Of 100 instructions: those that load, that store, that jump, and the rest: arithmetic, and moves between registers.
    fn shares(&self) -> [f64; 4] {
        let Counts { instructions, loads, stores, jumps } = *self;
        [loads, stores, jumps, instructions - loads - stores - jumps].map(|of| 100.0 * of / instructions)
    }
}

/// The paper's, of `rte_hash`: 210 instructions of a lookup, loads and stores among them. Its 21.0 % of arithmetic are no line of ours: callgrind
/// counts what instructions do to memory, and one that loads may compute as well.
const PAPER: (f64, f64, f64, f64) = (210.0, 36.2, 11.8, 21.0);

/// What stands in a file of callgrind's for an event, in all.
fn total(text: &str, event: &str) -> Option<f64> {
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let at = line("events:")?.split_whitespace().position(|name| name == event)?;
    let sums = line("summary:").or_else(|| line("totals:"))?;
    sums.split_whitespace().nth(at)?.parse().ok()
}

/// Counts a kind.
fn count(program: &Path, kind: &str) -> Result<Counts> {
    let out = env::scratch("callgrind")?.join(format!("{}-{kind}.out", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--cache-sim=yes", "--branch-sim=yes"]);
    command.args(["--collect-atstart=no", "--toggle-collect=*table1_counted*"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(program).arg(kind);
    let said = proc::output(&mut command)?;
    let text = std::fs::read_to_string(&out).with_context(|| out.display().to_string())?;
    std::fs::remove_file(&out).ok();
    let lookups = said.lines().find_map(|line| line.strip_prefix("lookups ")?.parse::<f64>().ok());
    let lookups = lookups.with_context(|| format!("{kind}: the program has not said how many lookups"))?;
    let of = |event: &str| {
        let total = total(&text, event).filter(|total| *total > 0.0);
        total
            .map(|total| total / lookups)
            .with_context(|| format!("{kind}: callgrind has counted no {event}"))
    };
    Ok(Counts { instructions: of("Ir")?, loads: of("Dr")?, stores: of("Dw")?, jumps: of("Bc")? })
}

/// Whether it could be counted.
pub(crate) fn run(options: &Options) -> Result<bool> {
    ensure!(env::has_program("valgrind"), "valgrind is not there: apt-get install valgrind, as root");
    let example = ["build", "--release", "--quiet", "-p", "tidemill-classify", "--example", "table1"];
    proc::check(env::cargo().args(example))?;
    let program = env::target_dir().join("release").join("examples").join("table1");
    let kinds = proc::output(&mut Command::new(&program))?;
    let (all, loads, stores, arithmetic) = PAPER;
    if options.json {
        println!(
            "{}",
            json!({"v": 1, "bench": "callgrind", "subject": "paper", "case": "rte_hash", "instructions": all,
                "loads_percent": loads, "stores_percent": stores, "arithmetic_percent": arithmetic})
        );
    } else {
        println!(
            "{:22} {:>12} {:>7} {:>7} {:>7} {:>7}",
            "of a lookup", "instructions", "loads", "stores", "jumps", "other"
        );
        println!(
            "{:22} {all:12.1} {loads:6.1}% {stores:6.1}%                  {arithmetic:.1}% of it arithmetic",
            "the paper's rte_hash"
        );
    }
    for kind in kinds.lines() {
        let counts = count(&program, kind)?;
        let shares = counts.shares();
        if options.json {
            let Counts { instructions, loads, stores, jumps } = counts;
            println!(
                "{}",
                json!({"v": 1, "bench": "callgrind", "subject": "tidemill", "case": kind, "instructions": instructions,
                    "loads": loads, "stores": stores, "jumps": jumps, "loads_percent": shares[0],
                    "stores_percent": shares[1], "jumps_percent": shares[2], "other_percent": shares[3]})
            );
        } else {
            let [loads, stores, jumps, other] = shares;
            let all = counts.instructions;
            println!("{kind:22} {all:12.1} {loads:6.1}% {stores:6.1}% {jumps:6.1}% {other:6.1}%");
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found_by_their_events() {
        let text = "version: 1\nevents: Ir Dr Dw Bc\n\nfn=(1) main\n3 5 1 1 0\n\nsummary: 100 36 12 10\ntotals: 1 1 1 1\n";
        assert_eq!(
            ["Ir", "Dw", "Bc", "Bi"].map(|event| total(text, event)),
            [Some(100.0), Some(12.0), Some(10.0), None]
        );
        let counts = Counts { instructions: 200.0, loads: 50.0, stores: 30.0, jumps: 20.0 };
        assert_eq!(counts.shares(), [25.0, 15.0, 10.0, 50.0]);
    }
}
