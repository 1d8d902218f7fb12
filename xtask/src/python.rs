//! A Python of our own with what tests compare with and Debian has not: below the build outputs, made once, from PyPI.

use crate::env;
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// The package and its version: its parameters are what `crates/cachesim/src/policy/s3fifo.rs` says.
const PACKAGE: &str = "libcachesim==0.3.5";
/// Tells a finished environment of this package from a half one.
const DONE: &str = "libcachesim-0.3.5.done";

/// The interpreter, if it has been made.
pub(crate) fn interpreter() -> Option<PathBuf> {
    let folder = env::target_dir().join("xtask").join("python");
    folder.join(DONE).is_file().then(|| folder.join("bin").join("python"))
}

/// Makes it, if it is not there. False: it could not be made, and a line has said so.
pub(crate) fn setup(check_only: bool) -> Result<bool> {
    if interpreter().is_some() {
        println!("setup: Python has {PACKAGE}");
        return Ok(true);
    }
    if check_only || !env::has_program("python3") {
        println!(
            "setup: missing {PACKAGE} in a Python of its own (the cache simulator counts the same hits)"
        );
        return Ok(!check_only);
    }
    let folder = env::scratch("python")?;
    let venv = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
    let pip = || {
        let mut pip = Command::new(folder.join("bin").join("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", PACKAGE])
            .status()
    };
    if !venv.is_ok_and(|status| status.success()) || !pip().is_ok_and(|status| status.success()) {
        println!("setup: {PACKAGE} could not be installed: its tests will be skipped");
        return Ok(false);
    }
    std::fs::write(folder.join(DONE), "")?;
    println!("setup: installed {PACKAGE}");
    Ok(true)
}
