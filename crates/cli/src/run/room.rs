//! Whether what a configuration asks for fits into this machine's memory, whatever its role: tables are taken page by page as they fill, and those that are too large end
//! the process by the kernel's hand, long after the start. What is read before packets flow (routes, rules, sets of addresses) is not in it: who has no room for
//! that does not start.

use super::config::{Config, Role};
use crate::usage;
use anyhow::Result;
use std::fs;
use tidemill_gatekeeper::gate::Gate;
use tidemill_nf::ipfix::Meter;
use tidemill_nf::{assets, filter, nat};

/// What a key asks for: bytes, of all workers together, when its tables are full.
type Ask = (&'static str, f64);

/// Keys that ask for a smaller part of the whole than this are not named.
const SMALL: f64 = 0.05;

fn asks(config: &Config) -> Vec<Ask> {
    let workers = config.run.workers as f64;
    let memory = &config.memory;
    // Of one worker.
    let mut asks = vec![("memory.frames", memory.frames as f64 * memory.frame_size as f64)];
    match config.role {
        // Their tables are read before packets flow, or have a room of their own.
        Role::Router | Role::Grantor | Role::Nat | Role::Filter => {}
        Role::Gatekeeper => {
            let flows = config.gatekeeper.clone().unwrap_or_default().flows;
            let bytes = Gate::<u32, 1>::BYTES_PER_FLOW + Gate::<u128, 4>::BYTES_PER_FLOW;
            asks.push(("gatekeeper.flows", flows as f64 * bytes));
        }
        Role::Mitigator => {
            let entries = config.mitigator.clone().unwrap_or_default().entries;
            let (v4, v6) = tidemill_amp::Mitigator::bytes_per_entry();
            asks.push(("mitigator.entries", entries as f64 * (v4 + v6)));
        }
        Role::Kvcache => {
            // All workers share it.
            let tables = tidemill_kvcache::table_bytes(&config.kvcache.clone().unwrap_or_default());
            asks.extend(tables.map(|(key, bytes)| (key, bytes / workers)));
        }
        Role::Switch => {
            let caches = config.switch.clone().unwrap_or_default().caches();
            let [exact, signatures, megaflows, masks] = caches.bytes();
            asks.extend([
                ("switch.exact", exact),
                ("switch.signatures", signatures),
                ("switch.megaflows", megaflows),
                ("switch.masks", masks),
            ]);
        }
    }
    if let Some(section) = &config.nat {
        let [mappings, sessions] = nat::settings::table_bytes(section);
        asks.extend([("nat.mappings", mappings), ("nat.sessions", sessions)]);
    }
    if let Some(section) = &config.filter {
        let [states, half_open, unanswered] = filter::settings::table_bytes(section);
        asks.extend([
            ("filter.states", states),
            ("filter.half_open", half_open),
            ("filter.unanswered", unanswered),
        ]);
    }
    if let Some(section) = &config.assets {
        let [table, of_worker] = assets::table_bytes(section);
        asks.push(("assets.hosts", table / workers + of_worker));
    }
    if let Some(section) = &config.ipfix {
        asks.push(("ipfix.flows", section.flows as f64 * Meter::BYTES_PER_FLOW));
    }
    asks.into_iter().map(|(key, bytes)| (key, bytes * workers)).collect()
}

const MIB: f64 = (1 << 20) as f64;

/// Bytes that can be had without anything else being pushed out (`MemAvailable`), and huge pages that are reserved and free, which tables take first. `None`: the system
/// does not say it.
fn available() -> Option<f64> {
    available_of(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_of(meminfo: &str) -> Option<f64> {
    let field = |name: &str| -> Option<f64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    let huge = field("HugePages_Free").unwrap_or(0.0) * field("Hugepagesize").unwrap_or(0.0);
    Some((field("MemAvailable")? + huge) * 1024.0)
}

/// What is wrong with what the keys ask for, if all of it together is too much.
fn wrong(name: &str, asks: &[Ask], available: Option<f64>) -> Option<String> {
    let all: f64 = asks.iter().map(|(_, bytes)| bytes).sum();
    let available = available.filter(|available| all > *available)?;
    let mut named: Vec<&Ask> = asks.iter().filter(|(_, bytes)| *bytes >= all * SMALL).collect();
    named.sort_by(|one, other| other.1.total_cmp(&one.1));
    let parts: Vec<String> =
        named.iter().map(|(key, bytes)| format!("{key} asks for {:.0} MiB", bytes / MIB)).collect();
    let (it, them) = if named.len() == 1 { ("it is", "it") } else { ("they are", "them") };
    Some(format!(
        "{name}: {} when {it} full, and this machine has {:.0} MiB left: lower {them}, or the kernel ends the process some time",
        parts.join(", "),
        available / MIB
    ))
}

/// Refuses what would not fit.
pub(super) fn refuse(name: &str, config: &Config) -> Result<()> {
    wrong(name, &asks(config), available()).map_or(Ok(()), |what| Err(usage(what)))
}

/// Says so where a configuration is only checked: it may be for another machine.
pub(super) fn warn(name: &str, config: &Config) {
    if let Some(what) = wrong(name, &asks(config), available()) {
        eprintln!("tidemill: warning: {what}; here `run` refuses it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: &str = "[[port]]\nname = \"a\"\nkind = \"null\"\n[[port]]\nname = \"b\"\nkind = \"null\"\n";

    fn parsed(text: &str) -> Config {
        Config::parse(&format!("version = 1\n{text}"), "a.toml").unwrap()
    }

    #[test]
    fn what_the_machine_has_is_read() {
        assert_eq!(available_of("MemTotal:  9 kB\nMemAvailable:    2048 kB\n"), Some(2048.0 * 1024.0));
        let huge = "MemAvailable:    2048 kB\nHugePages_Free:        3\nHugepagesize:       2048 kB\n";
        assert_eq!(available_of(huge), Some(8192.0 * 1024.0));
        assert_eq!(available_of("MemTotal: 9 kB\n"), None);
        assert_eq!(available_of("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let mib = |n: f64| n * MIB;
        assert_eq!(wrong("a.toml", &[("a", 60.0), ("b", 40.0)], Some(100.0)), None);
        assert_eq!(wrong("a.toml", &[("a", 1e18)], None), None);
        let asks = [("memory.frames", mib(1.0)), ("nat.mappings", mib(300.0)), ("nat.sessions", mib(900.0))];
        assert_eq!(
            wrong("a.toml", &asks, Some(mib(1200.0))).unwrap(),
            "a.toml: nat.sessions asks for 900 MiB, nat.mappings asks for 300 MiB when they are full, and this machine has 1200 MiB left: \
             lower them, or the kernel ends the process some time"
        );
        assert_eq!(
            wrong("a.toml", &asks[2..], Some(mib(16.0))).unwrap(),
            "a.toml: nat.sessions asks for 900 MiB when it is full, and this machine has 16 MiB left: \
             lower it, or the kernel ends the process some time"
        );
    }

    /// Of each role the keys that make its tables large, and that they grow with the workers and with the numbers.
    #[test]
    fn every_role_says_what_it_asks_for() {
        let of = |text: &str| asks(&parsed(text));
        let nat = "inside = [\"a\"]\noutside = [\"b\"]\npool = [\"192.0.2.1\"]";
        let cases: [(&str, &str, &[&str]); 7] = [
            ("router", "", &[]),
            ("gatekeeper", "flows = 100000", &["gatekeeper.flows"]),
            ("mitigator", "entries = 100000", &["mitigator.entries"]),
            (
                "kvcache",
                "l1 = { memory_mib = 100 }",
                &[
                    "kvcache.l0.entries",
                    "kvcache.l1.entries",
                    "kvcache.l1.memory_mib",
                    "kvcache.connections",
                    "kvcache.slots",
                ],
            ),
            (
                "switch",
                "exact = 100000\nsignatures = 100000\nmegaflows = 100000",
                &["switch.exact", "switch.signatures", "switch.megaflows", "switch.masks"],
            ),
            ("nat", nat, &["nat.mappings", "nat.sessions"]),
            ("filter", "rules = \"r\"", &["filter.states", "filter.half_open", "filter.unanswered"]),
        ];
        for (role, section, keys) in cases {
            let section = if keys.is_empty() { String::new() } else { format!("[{role}]\n{section}\n") };
            let one = of(&format!("role = \"{role}\"\n{PORTS}{section}"));
            let two = of(&format!("role = \"{role}\"\n[run]\nworkers = 2\n{PORTS}{section}"));
            assert_eq!(one[0], ("memory.frames", 8192.0 * 2048.0), "{role}");
            let named: Vec<&str> = one[1..].iter().map(|(key, _)| *key).collect();
            assert_eq!(named, keys, "{role}");
            for ((key, one), (_, two)) in one.iter().zip(&two) {
                assert!(*one >= 100_000.0, "{role}: {key}: {one} bytes");
                let times = if key.starts_with("kvcache.") { 1.0 } else { 2.0 };
                assert!((two / one - times).abs() < 1e-9, "{role}: {key}: {one} bytes, {two} of two workers");
            }
        }
        let hosts = |workers: u32| {
            let run = format!("[run]\nworkers = {workers}\n");
            of(&format!("role = \"router\"\n{run}{PORTS}[assets]\nhosts = 100000\n")).pop().unwrap()
        };
        // One table, however many workers fill it.
        let ((key, one), (_, two)) = (hosts(1), hosts(2));
        assert_eq!(key, "assets.hosts");
        assert!(one > 1e8 && two > one && two < 1.1 * one, "{one} bytes, {two} of two workers");
        let more = of(&format!("role = \"router\"\n{PORTS}[ipfix]\ncollector = \"192.0.2.9:4739\"\n"));
        assert_eq!(more.last().map(|(key, _)| *key), Some("ipfix.flows"));
    }

    #[test]
    fn a_start_is_refused() {
        let of = |entries: u64| {
            parsed(&format!("role = \"mitigator\"\n{PORTS}[mitigator]\nentries = {entries}\n"))
        };
        assert!(refuse("a.toml", &of(1000)).is_ok());
        if available().is_some() {
            let said = refuse("a.toml", &of(1_000_000_000_000_000)).unwrap_err().to_string();
            assert!(said.starts_with("a.toml: mitigator.entries asks for "), "{said}");
        }
    }
}
