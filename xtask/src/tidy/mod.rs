//! `tidy`: the house rules that a compiler does not check. Every finding is one line with its place.

mod arrows;
mod files;
mod readmes;
mod source;
mod unsafe_code;

use crate::{bpf, env, header, readme};
use anyhow::Result;
use std::path::PathBuf;

/// A tracked text file.
pub(crate) struct File {
    /// Relative to the repository's root, with `/`.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Whether nothing was found.
pub(crate) fn run() -> Result<bool> {
    let files = read(env::files()?);
    let mut findings = Vec::new();
    let metadata = env::metadata(&env::root().join("Cargo.toml"), false)?;
    arrows::check(&metadata, &mut findings);
    unsafe_code::check(&files, &mut findings);
    unsafe_code::check_homes(&files, &mut findings);
    files::check(&files, &mut findings);
    readmes::check(&files, &mut findings);
    numbers(&files, &mut findings);
    // A developer may have no clang; whoever decides what is taken has.
    let must = std::env::var_os("CI").is_some();
    for stale in [header::stale(), bpf::stale(must)] {
        match stale {
            Ok(stale) => findings.extend(stale),
            Err(error) => findings.push(format!("{error:#}")),
        }
    }
    for finding in &findings {
        println!("tidy: {finding}");
    }
    println!("tidy: {} files, {} findings", files.len(), findings.len());
    Ok(findings.is_empty())
}

/// The READMEs' numbers are those of the records.
fn numbers(files: &[File], findings: &mut Vec<String>) {
    for name in readme::files() {
        let Some(file) = files.iter().find(|file| file.name == name) else { continue };
        match readme::stale(name, &file.text) {
            Ok(stale) => findings.extend(stale.into_iter().map(|block| {
                format!("{name}: the numbers {block} are not those of bench/results: cargo xtask readme")
            })),
            Err(error) => findings.push(format!("{name}: {error:#}")),
        }
    }
}

/// The files that are text; captures, seeds and compressed tables are left out.
fn read(names: Vec<PathBuf>) -> Vec<File> {
    let text = |name: &PathBuf| String::from_utf8(std::fs::read(env::root().join(name)).ok()?).ok();
    let mut files = Vec::new();
    for name in names {
        let seeds = name.starts_with("fuzz/corpus");
        if let Some(text) = text(&name).filter(|_| !seeds) {
            files.push(File { name: name.to_string_lossy().replace('\\', "/"), text });
        }
    }
    files
}
