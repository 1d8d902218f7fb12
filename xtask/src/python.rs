//! A Python of our own with what tests compare with and Debian has not: below the build outputs, made once, from PyPI.

use crate::env;
use anyhow::Result;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The packages and their versions. libCacheSim's parameters are what `crates/cachesim/src/policy/s3fifo.rs` says; Prometheus' library reads `/metrics` as its servers do.
const PACKAGES: [&str; 2] = ["libcachesim==0.3.5", "prometheus-client==0.26.0"];
/// Tells a finished environment of these packages from a half one.
const DONE: &str = "libcachesim-0.3.5-prometheus-client-0.26.0.done";

/// The variable that tests find it by, if it has been made.
pub(crate) fn variable() -> Option<(&'static str, OsString)> {
    interpreter().map(|path| ("TIDEMILL_PYTHON", path.into_os_string()))
}

/// The interpreter, if it has been made.
fn interpreter() -> Option<PathBuf> {
    let folder = env::target_dir().join("xtask").join("python");
    folder.join(DONE).is_file().then(|| folder.join("bin").join("python"))
}

/// Makes it, if it is not there. False: it could not be made, and a line has said so.
pub(crate) fn setup(check_only: bool) -> Result<bool> {
    let packages = PACKAGES.join(", ");
    if interpreter().is_some() {
        println!("setup: Python has {packages}");
        return Ok(true);
    }
    if check_only || !env::has_program("python3") {
        println!(
            "setup: missing {packages} in a Python of its own (the cache simulator counts the same hits; it reads our metrics)"
        );
        return Ok(!check_only);
    }
    let folder = env::scratch("python")?;
    let venv = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
    let pip = || {
        let mut pip = Command::new(folder.join("bin").join("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"])
            .args(PACKAGES)
            .status()
    };
    if !venv.is_ok_and(|status| status.success()) || !pip().is_ok_and(|status| status.success()) {
        println!("setup: {packages} could not be installed: their tests will be skipped");
        return Ok(false);
    }
    std::fs::write(folder.join(DONE), "")?;
    println!("setup: installed {packages}");
    Ok(true)
}
