//! The arrows: which crate may see which. A crate sees only crates of lower rooms, and only those that its room names.

use serde_json::Value;

/// Room and what it may see, in the order of the rooms: everything points up this table. Test-only dependencies count
/// as well. A room that may see all above it says `"*"`.
const ROOMS: &[(&str, &[&str])] = &[
    ("archive", &[]),
    ("wire", &[]),
    ("daemon", &[]),
    ("lookup", &[]),
    ("lpm", &["lookup"]),
    ("lpm-c", &["lookup", "lpm"]),
    ("flow", &["lookup"]),
    ("cachesim", &["archive", "lookup"]),
    ("flowprog", &["wire"]),
    ("decision", &["wire"]),
    ("bpf", &[]),
    ("burst", &["wire", "lookup"]),
    ("port", &["archive", "wire", "lookup", "bpf", "burst"]),
    ("graph", &["archive", "wire", "lookup", "burst", "port"]),
    ("ip", &["wire", "lookup", "lpm", "burst", "port", "graph"]),
    ("feed", &["archive", "lpm"]),
    ("bgp", &["archive", "wire", "lpm", "feed"]),
    ("classify", &["wire", "lookup", "lpm", "flow"]),
    ("router", &["*"]),
    ("switch", &["*"]),
    ("nf", &["*"]),
    ("gatekeeper", &["*"]),
    ("grantor", &["*"]),
    ("amp", &["*"]),
    ("kv", &["*"]),
    ("kvcache", &["wire", "lookup", "cachesim", "burst", "port", "graph", "kv"]),
    ("sim", &["*"]),
    ("control", &["wire", "lookup", "burst", "port", "graph"]),
    ("cli", &["*"]),
];

/// The services stand side by side: what `"*"` allows them does not include each other.
const SERVICES: &[&str] = &["router", "switch", "nf", "gatekeeper", "grantor", "amp", "kv"];

pub(crate) fn check(metadata: &Value, findings: &mut Vec<String>) {
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(room) = name.strip_prefix("tidemill-") else { continue };
        let Some(place) = ROOMS.iter().position(|(known, _)| *known == room) else {
            findings.push(format!("{name}: no such room in xtask/src/tidy/arrows.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let Some(seen) = target.strip_prefix("tidemill-") else { continue };
            if seen != room && !allowed(place, seen) {
                findings.push(format!("crates/{room}: must not see {target}"));
            }
        }
    }
}

fn allowed(place: usize, seen: &str) -> bool {
    let (room, may) = ROOMS[place];
    let above = ROOMS[..place].iter().any(|(name, _)| *name == seen);
    let rivals = SERVICES.contains(&room) && SERVICES.contains(&seen);
    above && !rivals && (may.contains(&"*") || may.contains(&seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn findings(name: &str, seen: &[&str]) -> usize {
        let dependencies: Vec<Value> = seen.iter().map(|name| json!({ "name": name })).collect();
        let mut findings = Vec::new();
        check(&json!({"packages": [{"name": name, "dependencies": dependencies}]}), &mut findings);
        findings.len()
    }

    #[test]
    fn arrows_point_up_only() {
        assert_eq!(findings("tidemill-lpm", &["tidemill-lookup", "thiserror"]), 0);
        assert_eq!(findings("tidemill-lpm", &["tidemill-burst"]), 1);
        assert_eq!(findings("tidemill-lookup", &["tidemill-lpm"]), 1);
        assert_eq!(findings("tidemill-cli", &["tidemill-router", "tidemill-wire"]), 0);
        assert_eq!(findings("tidemill-switch", &["tidemill-router", "tidemill-graph"]), 1);
        assert_eq!(findings("tidemill-attic", &[]), 1);
        assert_eq!(findings("xtask", &["tidemill-archive"]), 0);
    }

    #[test]
    fn every_arrow_of_the_table_points_up() {
        for (place, (room, may)) in ROOMS.iter().enumerate() {
            for seen in may.iter().filter(|seen| **seen != "*") {
                assert!(allowed(place, seen), "{room} -> {seen}");
            }
        }
    }
}
