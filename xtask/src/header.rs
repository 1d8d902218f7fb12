//! `header`: makes the C header of crates/lpm-c by cbindgen (a tool, not a dependency: `cargo install cbindgen`). The header's first line
//! has a stamp of what it was made from, so that `tidy` sees without the tool whether it is up to date; with the tool, `tidy`
//! compares the whole.

use crate::{env, proc};
use anyhow::{Context, Result};
use std::process::Command;

/// What the header is made from, and the header.
const API: &str = "crates/lpm-c/src/api.rs";
const HEADER: &str = "crates/lpm-c/include/tidemill_lpm.h";

/// Writes the header anew.
pub(crate) fn run() -> Result<bool> {
    let path = env::root().join(HEADER);
    std::fs::write(&path, make()?).with_context(|| path.display().to_string())?;
    println!("header: {HEADER}");
    Ok(true)
}

/// What is wrong with the header, if anything is.
pub(crate) fn stale() -> Result<Option<String>> {
    let header = std::fs::read_to_string(env::root().join(HEADER)).context(HEADER)?;
    let made = if env::has_program("cbindgen") {
        header == make()?
    } else {
        header.lines().next() == Some(&stamp()?)
    };
    Ok((!made).then(|| format!("{HEADER}: not what {API} says: cargo xtask header (needs cbindgen)")))
}

/// The header as cbindgen makes it, behind the stamp.
fn make() -> Result<String> {
    let folder = env::root().join("crates/lpm-c");
    let mut cbindgen = Command::new("cbindgen");
    cbindgen.current_dir(&folder).args(["--quiet", "--config", "cbindgen.toml", "src/api.rs"]);
    let text = proc::output(&mut cbindgen)?;
    let about: String = std::fs::read_to_string(env::root().join(API))
        .context(API)?
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .filter(|line| !line.contains("unsafe"))
        .map(|line| format!(" *{line}\n"))
        .collect();
    Ok(format!("{}\n/*\n{about} */\n\n{}", stamp()?, text.trim_start()))
}

/// The header's first line.
fn stamp() -> Result<String> {
    let api = std::fs::read_to_string(env::root().join(API)).context(API)?;
    let hash = interface(&api).bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Ok(format!(
        "/* SPDX-License-Identifier: MIT OR Apache-2.0. Made by `cargo xtask header` from {hash:016x}: do not edit. */"
    ))
}

/// A source without the bodies of its functions, as rustfmt has formatted it.
fn interface(source: &str) -> String {
    let (mut text, mut in_head, mut in_body) = (String::new(), false, false);
    for line in source.lines() {
        if in_body {
            in_body = line != "}";
            continue;
        }
        in_head |= !line.starts_with([' ', '/', '#']) && line.contains("fn ");
        text += line;
        text += "\n";
        if in_head && line.ends_with('{') {
            (in_head, in_body) = (false, true);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_no_interface() {
        let source = "/// fn {\npub struct A {\n    /// B.\n    b: u8,\n}\n/// F.\npub fn f(\n    a: u8,\n) -> u8 {\n    body()\n}\n/// G.\npub fn g() {\n    if x {\n    }\n}\npub const C: u8 = 1;\n";
        let interface = interface(source);
        assert!(!interface.contains("body") && !interface.contains("if x"), "{interface}");
        for kept in ["b: u8", "a: u8,", ") -> u8 {", "/// G.", "C: u8"] {
            assert!(interface.contains(kept), "{kept}: {interface}");
        }
    }
}
