//! `fuzz`: builds the targets of fuzz/ with coverage and runs them.
//!
//! cargo-fuzz is not needed: a target is a binary that links libFuzzer, and the flags below are the ones that cargo-fuzz
//! passes. They want a nightly compiler or, as here, RUSTC_BOOTSTRAP. Building the tool from source would cost CI minutes.

use crate::test::Totals;
use crate::{env, proc};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Seconds per target
    #[arg(long, default_value_t = 300)]
    seconds: u32,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// With AddressSanitizer: finds misuse of memory in unsafe code, at half the speed
    #[arg(long)]
    asan: bool,
}

/// What cargo-fuzz passes for coverage-guided fuzzing.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions";

/// Whether no target crashed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut targets = targets()?;
    if let Some(only) = &options.target {
        targets.retain(|target| target.name == *only);
        if targets.is_empty() {
            bail!("fuzz/Cargo.toml lists no target {only}");
        }
    }
    let build = if options.asan { Build::Asan } else { Build::Full };
    let totals = run_targets(&targets, options.seconds, build)?;
    println!("{totals}");
    Ok(totals.failed == 0)
}

/// How targets are built, each way in a folder of its own.
#[derive(Clone, Copy)]
enum Build {
    Full,
    /// With AddressSanitizer.
    Asan,
    /// Hardly optimised: for a few seconds of fuzzing, minutes of optimising are not worth it.
    Quick,
}

/// The tier `fuzz` of the tests: for a few seconds every target that needs no feature. What those bring in takes minutes to build.
pub(crate) fn tier(seconds: u32) -> Result<Totals> {
    run_targets(&of_tier()?, seconds, Build::Quick)
}

/// Builds what the tier runs.
pub(crate) fn build_tier() -> Result<()> {
    build(&of_tier()?, Build::Quick).map(drop)
}

fn of_tier() -> Result<Vec<Target>> {
    Ok(targets()?.into_iter().filter(|target| target.features.is_empty()).collect())
}

/// Every target.
pub(crate) fn all(seconds: u32) -> Result<Totals> {
    run_targets(&targets()?, seconds, Build::Full)
}

/// Only these targets.
pub(crate) fn some(names: &[&str], seconds: u32) -> Result<Totals> {
    let mut known = targets()?;
    if let Some(wrong) = names.iter().find(|name| !known.iter().any(|target| target.name == **name)) {
        bail!("fuzz/Cargo.toml lists no target {wrong}");
    }
    known.retain(|target| names.contains(&target.name.as_str()));
    run_targets(&known, seconds, Build::Full)
}

fn manifest() -> PathBuf {
    env::root().join("fuzz").join("Cargo.toml")
}

/// A target, with the features of fuzz/Cargo.toml that it needs.
struct Target {
    name: String,
    features: Vec<String>,
}

/// The targets of fuzz/Cargo.toml.
fn targets() -> Result<Vec<Target>> {
    let metadata = env::metadata(&manifest(), false)?;
    let targets = metadata["packages"][0]["targets"].as_array().cloned().unwrap_or_default();
    let bins = targets.iter().filter(|target| target["kind"][0] == "bin");
    Ok(bins.filter_map(target).collect())
}

/// A target of `cargo metadata`.
fn target(described: &Value) -> Option<Target> {
    let features = described["required-features"].as_array().into_iter().flatten();
    Some(Target {
        name: described["name"].as_str()?.to_owned(),
        features: features.filter_map(|feature| feature.as_str().map(str::to_owned)).collect(),
    })
}

/// Builds, then runs as many at a time as there are cores.
fn run_targets(targets: &[Target], seconds: u32, how: Build) -> Result<Totals> {
    let mut totals = Totals::default();
    if targets.is_empty() {
        return Ok(totals);
    }
    let folder = build(targets, how)?;
    let queue = Mutex::new(targets.iter());
    let results = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(targets.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let next = || queue.lock().ok().and_then(|mut queue| queue.next());
                while let Some(target) = next() {
                    let result = run_one(&folder, &target.name, seconds);
                    if let Ok(mut results) = results.lock() {
                        results.push((target.name.as_str(), result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(name, _)| *name);
    for (name, result) in results {
        match result {
            Ok(executions) => totals.count(&format!("fuzz::{name}, {executions} executions"), true),
            Err(error) => {
                println!("{error:#}");
                totals.count(&format!("fuzz::{name}"), false);
            }
        }
    }
    Ok(totals)
}

/// Builds the targets; returns the folder of the binaries.
fn build(targets: &[Target], how: Build) -> Result<PathBuf> {
    let host = env::host()?;
    let (folder, flags) = match how {
        Build::Full => ("fuzz", COVERAGE.to_owned()),
        Build::Asan => ("fuzz-asan", format!("{COVERAGE} -Zsanitizer=address")),
        Build::Quick => ("fuzz-quick", COVERAGE.to_owned()),
    };
    let output = env::target_dir().join(folder);
    let mut cargo = env::cargo();
    // With --target the flags reach the targets and their libraries, but no build script: those must not be instrumented.
    cargo.args(["build", "--quiet", "--release", "--target", &host, "--manifest-path"]).arg(manifest());
    cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", &output);
    if matches!(how, Build::Quick) {
        cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    }
    for target in targets {
        cargo.args(["--bin", &target.name]);
        for feature in &target.features {
            cargo.args(["--features", feature]);
        }
    }
    proc::check(&mut cargo)?;
    Ok(output.join(host).join("release"))
}

/// Runs one target on the seeds that we keep and what earlier runs found; returns the number of executions.
fn run_one(folder: &Path, name: &str, seconds: u32) -> Result<u64> {
    let fuzz = env::root().join("fuzz");
    let seeds = fuzz.join("corpus").join(name);
    let found = env::scratch(&format!("corpus/{name}"))?;
    let artifacts = fuzz.join("artifacts").join(name);
    std::fs::create_dir_all(&artifacts)?;
    let mut target = Command::new(folder.join(name));
    target.current_dir(&fuzz);
    target.arg(format!("-max_total_time={seconds}")).args([
        "-timeout=10",
        "-rss_limit_mb=3072",
        "-print_final_stats=1",
    ]);
    target.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&found);
    if seeds.is_dir() {
        target.arg(&seeds);
    }
    let output = target.stdin(Stdio::null()).output().with_context(|| proc::shown(&target))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let lines: Vec<&str> = text.lines().collect();
        bail!("fuzz target {name} failed:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
    }
    executions(&text).with_context(|| format!("fuzz target {name} told no number of executions"))
}

/// Reads `stat::number_of_executed_units: N`.
fn executions(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    line?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_target_needs_is_read() {
        let of = |json: serde_json::Value| super::target(&json).map(|target| (target.name, target.features));
        let needs = serde_json::json!({"name": "a", "kind": ["bin"], "required-features": ["api"]});
        assert_eq!(of(needs), Some(("a".into(), vec!["api".into()])));
        assert_eq!(of(serde_json::json!({"name": "b"})), Some(("b".into(), Vec::new())));
        assert!(of(serde_json::json!({})).is_none());
    }

    #[test]
    fn executions_are_read() {
        assert_eq!(super::executions("Done\nstat::number_of_executed_units: 1234\nstat::x: 1"), Some(1234));
        assert_eq!(super::executions("Done"), None);
    }
}
