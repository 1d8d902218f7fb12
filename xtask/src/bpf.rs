//! `bpf`: makes the objects of programs (XDP: bpf/*.bpf.o; flow programs: bpf/flow/*.bpf.o) from their C sources. They are kept with these, so that nobody
//! needs clang to build; `tidy` makes them again where clang is installed and compares.
//!
//! Another clang makes other instructions of the same source, so only one of the same major version is asked to make the
//! same bytes; any other has to compile it. Where nothing may be skipped (`bpf --check`, CI) a missing or another clang is an error; elsewhere `tidy` says
//! that it has not compared.

use crate::{env, proc};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Names of the programs: bpf/NAME.bpf.c is made into bpf/NAME.bpf.o.
const PROGRAMS: &[&str] = &[
    "xsk",
    "amp",
    "route",
    "gate",
    "fib",
    "kv",
    "flood",
    "attack",
    "flow/granted",
    "flow/declined",
    "flow/grantedv2",
    "flow/web",
    "flow/tcp-services",
];
/// The major version of the clang that the objects were made with: Debian 12's.
const MADE_WITH: &str = "14";

fn source(name: &str) -> String {
    format!("bpf/{name}.bpf.c")
}

fn object(name: &str) -> String {
    format!("bpf/{name}.bpf.o")
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only say whether the objects are what the sources say; fail if one is not
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.check {
        let stale = stale(true)?;
        stale.iter().for_each(|what| println!("bpf: {what}"));
        if stale.is_none() {
            println!("bpf: {} objects are what clang {MADE_WITH} makes of their sources", PROGRAMS.len());
        }
        return Ok(stale.is_none());
    }
    let version = version(CLANG)?;
    for name in PROGRAMS {
        make(CLANG, name, &env::root().join(object(name)))?;
        println!("bpf: {}, by clang {version}", object(name));
    }
    if version != MADE_WITH {
        println!("bpf: checks compare what clang {MADE_WITH} makes: set MADE_WITH in xtask/src/bpf.rs");
    }
    Ok(true)
}

/// The compiler, unless one of the right version goes by its number.
const CLANG: &str = "clang";

/// Why the objects cannot be compared, given the compiler's version if there is one.
fn obstacle(version: Option<&str>) -> Option<String> {
    match version {
        None => {
            Some("objects are NOT compared with their sources: that needs clang, llvm, libbpf-dev".to_owned())
        }
        Some(MADE_WITH) => None,
        Some(other) => Some(format!(
            "objects are NOT compared with their sources: they are clang {MADE_WITH}'s, and here is clang {other}: install clang-{MADE_WITH}"
        )),
    }
}

/// What is wrong with the objects, if anything is. Where they cannot be compared that is an error if `must`, and said if not.
pub(crate) fn stale(must: bool) -> Result<Option<String>> {
    let numbered = format!("{CLANG}-{MADE_WITH}");
    let clang = if env::has_program(&numbered) { &numbered } else { CLANG };
    let is_there = env::has_program(clang) && env::has_program("llvm-strip");
    let version = is_there.then(|| version(clang)).transpose()?;
    let obstacle = obstacle(version.as_deref());
    if let Some(what) = &obstacle {
        if must {
            return Ok(Some(what.clone()));
        }
        println!("bpf: {what}");
    }
    let Some(version) = version else { return Ok(None) };
    let target = env::root().join("target");
    std::fs::create_dir_all(target.join("flow")).context("target/flow")?;
    let mut stale = Vec::new();
    for name in PROGRAMS {
        let made = target.join(format!("{name}.bpf.o"));
        make(clang, name, &made)?;
        let same = std::fs::read(&made).ok() == std::fs::read(env::root().join(object(name))).ok();
        if same {
            continue;
        }
        if version == MADE_WITH {
            stale.push(format!("{}: not what {} says: cargo xtask bpf", object(name), source(name)));
        } else {
            println!("bpf: {} compiles with clang {version}", source(name));
        }
    }
    Ok((!stale.is_empty()).then(|| stale.join("; ")))
}

fn make(clang: &str, name: &str, object: &Path) -> Result<()> {
    let mut clang = Command::new(clang);
    clang.current_dir(env::root()).args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // The same bytes wherever the repository lies.
    clang.args(["-fdebug-compilation-dir=.", "-c", &source(name), "-o"]).arg(object);
    // <asm/types.h> of this machine, which the target "bpf" does not know of.
    clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    proc::check(&mut clang)?;
    // Types of maps stay; what a debugger would want goes.
    proc::check(Command::new("llvm-strip").arg("-g").arg(object))
}

/// The major version of a clang.
fn version(clang: &str) -> Result<String> {
    let text = proc::output(Command::new(clang).arg("-dumpversion"))?;
    Ok(text.trim().split('.').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_clang_and_another_clang_are_obstacles() {
        assert_eq!(obstacle(Some(MADE_WITH)), None);
        for version in [None, Some("19"), Some("")] {
            let what = obstacle(version).unwrap();
            assert!(what.contains("NOT compared"), "{what}");
        }
    }
}
