//! Compiles the runners that are not ours, with the flags that suit them best.

use crate::{env, proc};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of a folder below bench/peers that end so.
pub(crate) fn sources(folder: &str, ending: &str) -> Result<Vec<PathBuf>> {
    let folder = env::root().join("bench/peers").join(folder);
    let files = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut sources: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|found| found == ending));
    sources.sort();
    Ok(sources)
}

/// Compiles C files with DPDK, for this very machine; returns the program.
pub(crate) fn c(name: &str, sources: &[PathBuf]) -> Result<PathBuf> {
    let mut compiler = Command::new("gcc");
    compiler.args(["-O3", "-std=gnu11", "-Wall", "-Wextra"]).args(flags("--cflags", DPDK)?);
    // After DPDK's flags, which say corei7, this counts.
    compiler.arg("-march=native");
    link(compiler, name, sources, DPDK)
}

/// Compiles C files to what a program with DPDK can load.
pub(crate) fn plugin(name: &str, sources: &[PathBuf]) -> Result<PathBuf> {
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-O3", "-std=gnu11", "-Wall", "-Wextra", "-shared", "-fPIC"])
        .args(flags("--cflags", DPDK)?);
    link(compiler, name, sources, DPDK)
}

/// Compiles a C++ file, for this very machine, with the libraries that pkg-config knows by these names.
pub(crate) fn cpp(name: &str, source: &Path, libraries: &[&str]) -> Result<PathBuf> {
    let mut compiler = Command::new("g++");
    // DPDK's headers increment volatile variables, which C++20 frowns upon; after its flags, which say corei7, ours count.
    compiler
        .args(["-O3", "-std=c++20", "-Wall", "-Wextra", "-Wno-volatile"])
        .args(flags("--cflags", libraries)?);
    compiler.args(["-march=native", "-DALLOW_EXPERIMENTAL_API"]);
    link(compiler, name, &[source.to_owned()], libraries)
}

/// Compiles a runner of the workspace bench/, for this very machine.
pub(crate) fn rust(name: &str) -> Result<PathBuf> {
    let target = env::scratch("peers")?.join("crates");
    let mut cargo = env::cargo();
    cargo.args(["build", "--release", "--quiet", "--locked", "--package", name, "--manifest-path"]);
    cargo.arg(env::root().join("bench").join("Cargo.toml"));
    proc::check(cargo.env("RUSTFLAGS", "-C target-cpu=native").env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("release").join(name))
}

/// DPDK, as pkg-config knows it.
pub(crate) const DPDK: &[&str] = &["libdpdk"];

fn link(mut compiler: Command, name: &str, sources: &[PathBuf], libraries: &[&str]) -> Result<PathBuf> {
    let program = env::scratch("peers")?.join(format!("{name}-runner"));
    compiler.arg("-o").arg(&program).args(sources).args(flags("--libs", libraries)?);
    proc::output(&mut compiler)?;
    Ok(program)
}

fn flags(what: &str, libraries: &[&str]) -> Result<Vec<String>> {
    if libraries.is_empty() {
        return Ok(Vec::new());
    }
    let text = proc::output(Command::new("pkg-config").arg(what).args(libraries));
    let text = text.with_context(|| format!("{} needed: cargo xtask setup", libraries.join(", ")))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}
