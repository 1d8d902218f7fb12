//! `bpf`: makes the XDP program's object, bpf/xsk.bpf.o, from its C source. The object is kept with the sources, so that nobody needs
//! clang to build; `tidy` makes it again where clang is installed and compares.
//!
//! Another clang makes other instructions of the same source, so only one of the same major version is asked to make the
//! same bytes; any other has to compile it.

use crate::{env, proc};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "bpf/xsk.bpf.c";
const OBJECT: &str = "bpf/xsk.bpf.o";
/// The major version of the clang that the object was made with: Debian 12's.
const MADE_WITH: &str = "14";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only say whether the object is what the source says; fail if it is not
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    if options.check {
        let stale = stale()?;
        stale.iter().for_each(|what| println!("bpf: {what}"));
        return Ok(stale.is_none());
    }
    let version = version()?;
    make(&env::root().join(OBJECT))?;
    println!("bpf: {OBJECT}, by clang {version}");
    if version != MADE_WITH {
        println!("bpf: checks compare what clang {MADE_WITH} makes: set MADE_WITH in xtask/src/bpf.rs");
    }
    Ok(true)
}

/// What is wrong with the object, if anything is. Without clang nobody knows.
pub(crate) fn stale() -> Result<Option<String>> {
    if !env::has_program("clang") || !env::has_program("llvm-strip") {
        println!("bpf: {OBJECT} is not compared with its source (needs clang, llvm, libbpf-dev)");
        return Ok(None);
    }
    let made = env::root().join("target").join("xsk.bpf.o");
    std::fs::create_dir_all(env::root().join("target")).context("target")?;
    make(&made)?;
    let same = std::fs::read(&made).ok() == std::fs::read(env::root().join(OBJECT)).ok();
    let version = version()?;
    if same || version == MADE_WITH {
        return Ok((!same).then(|| format!("{OBJECT}: not what {SOURCE} says: cargo xtask bpf")));
    }
    println!(
        "bpf: {SOURCE} compiles with clang {version}; {OBJECT} is clang {MADE_WITH}'s and is not compared"
    );
    Ok(None)
}

fn make(object: &Path) -> Result<()> {
    let mut clang = Command::new("clang");
    clang.current_dir(env::root()).args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    // The same bytes wherever the repository lies.
    clang.args(["-fdebug-compilation-dir=.", "-c", SOURCE, "-o"]).arg(object);
    // <asm/types.h> of this machine, which the target "bpf" does not know of.
    clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    proc::check(&mut clang)?;
    // Types of maps stay; what a debugger would want goes.
    proc::check(Command::new("llvm-strip").arg("-g").arg(object))
}

/// The major version of the clang here.
fn version() -> Result<String> {
    let text = proc::output(Command::new("clang").arg("-dumpversion"))?;
    Ok(text.trim().split('.').next().unwrap_or_default().to_owned())
}
