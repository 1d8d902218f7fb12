//! Where things are and what this machine offers.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Whether this is a run of the continuous integration, where nothing that a machine can be given is skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Whether we are root (effective user 0).
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    uids.split_whitespace().nth(1) == Some("0")
}

/// The folder with real data, if TIDEMILL_DATA names one.
pub(crate) fn data() -> Option<PathBuf> {
    std::env::var_os("TIDEMILL_DATA").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether a program of this name is on the path.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).any(|folder| folder.join(name).is_file())
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What `cargo run` tells us about xtask itself is not for the cargo that we start.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command
}

/// The compiler's own platform, such as x86_64-unknown-linux-gnu.
pub(crate) fn host() -> Result<String> {
    let version = crate::proc::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// `cargo metadata` of one workspace, read as JSON.
pub(crate) fn metadata(manifest: &Path, with_dependencies: bool) -> Result<Value> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(manifest);
    if !with_dependencies {
        command.arg("--no-deps");
    }
    let text = crate::proc::output(&mut command)?;
    serde_json::from_str(&text).with_context(|| format!("cargo metadata of {}", manifest.display()))
}

/// The folder for build outputs (`CARGO_TARGET_DIR` or `target`).
pub(crate) fn target_dir() -> PathBuf {
    let name = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(name)
}

/// A folder of our own below the build outputs, made if need be.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let folder = target_dir().join("xtask").join(name);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// The release binary `tidemill`, built now if it is not fresh.
pub(crate) fn tidemill() -> Result<PathBuf> {
    crate::proc::check(cargo().args(["build", "--release", "--quiet", "--bin", "tidemill"]))?;
    Ok(target_dir().join("release").join("tidemill"))
}

/// The release build of our command with a feature that is off by default: apart from the others, which it would undo.
pub(crate) fn tidemill_with(feature: &str) -> Result<PathBuf> {
    let target = target_dir().join(feature);
    let mut build = cargo();
    build.args(["build", "--release", "--quiet", "--bin", "tidemill", "--features"]);
    build.arg(format!("tidemill-cli/{feature}")).env("CARGO_TARGET_DIR", &target);
    crate::proc::check(&mut build)?;
    Ok(target.join("release").join("tidemill"))
}

/// Files that git tracks or would track, relative to the root, sorted.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let mut files: Vec<PathBuf> = crate::proc::output(&mut git)?
        .split('\0')
        .filter(|name| !name.is_empty() && root().join(name).is_file())
        .map(PathBuf::from)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
