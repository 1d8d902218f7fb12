//! `licences`: every package that the workspace, bench/ or fuzz/ can build must be usable under an allowed licence.

mod spdx;

use crate::env;
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;

/// Permissive licences: they ask for a notice and nothing more.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Allowed in fuzz/ only, which nobody ships: libFuzzer's.
const ALLOWED_IN_FUZZ: &[&str] = &["NCSA"];

/// Exceptions that give more rights than their licence.
const EXCEPTIONS: &[&str] = &["LLVM-exception"];

/// Whether all are allowed.
pub(crate) fn run() -> Result<bool> {
    let mut packages = BTreeMap::new();
    let mut bad = Vec::new();
    for workspace in ["", "bench", "fuzz"] {
        let manifest = env::root().join(workspace).join("Cargo.toml");
        if !manifest.exists() {
            continue;
        }
        let extra = if workspace == "fuzz" { ALLOWED_IN_FUZZ } else { &[] };
        let metadata = env::metadata(&manifest, true)?;
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
            let name = format!("{} {}", text("name"), text("version"));
            if let Err(why) = judge(package, extra) {
                bad.push(format!("{name}: {why}"));
            }
            packages.insert(name, text("license"));
        }
    }
    bad.sort();
    bad.dedup();
    bad.iter().for_each(|line| println!("licences: {line}"));
    println!("licences: {} packages, {} not allowed", packages.len(), bad.len());
    Ok(bad.is_empty())
}

fn judge(package: &Value, extra: &[&str]) -> Result<(), String> {
    // Our own packages outside the shipped workspace need none.
    if package["source"].is_null() && package["license"].is_null() {
        return Ok(());
    }
    let Some(expression) = package["license"].as_str() else {
        return Err("names no licence".to_owned());
    };
    let allowed = |licence: &str, exception: Option<&str>| {
        (ALLOWED.contains(&licence) || extra.contains(&licence))
            && exception.is_none_or(|e| EXCEPTIONS.contains(&e))
    };
    match spdx::holds(expression, &allowed) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{expression} is not allowed")),
        Err(error) => Err(format!("{expression:?} is no SPDX expression: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fuzz_alone_may_use_ncsa() {
        let package = json!({"source": "registry", "license": "(MIT OR Apache-2.0) AND NCSA"});
        assert!(judge(&package, ALLOWED_IN_FUZZ).is_ok());
        assert!(judge(&package, &[]).is_err());
        assert!(judge(&json!({"source": "registry", "license": null}), &[]).is_err());
        assert!(judge(&json!({"source": null, "license": null}), &[]).is_ok());
    }
}
