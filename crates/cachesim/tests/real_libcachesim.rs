//! The same hits as libCacheSim (its Python package, version 0.3.5, with its own parameters) on real logs and on one that is made up.
//! Needs TIDEMILL_PYTHON, a Python that has the package (`cargo xtask setup` makes one), and for the real logs TIDEMILL_DATA.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidemill_cachesim::log::{Format, load};
use tidemill_cachesim::model::Alias;
use tidemill_cachesim::random::Random;
use tidemill_cachesim::run::{HashName, Run, Ways};
use tidemill_cachesim::{Log, Policy};

/// What is set in the environment, or a line that says that the test is skipped.
fn variable(test: &str, name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if value.is_none() {
        println!("skipped: {test} ({name} is not set)");
    }
    value
}

/// Writes keys as an oracleGeneral log. The file is what both read.
fn write(path: &Path, keys: &[u64]) {
    let (mut next, mut seen) = (vec![-1_i64; keys.len()], HashMap::new());
    for (i, key) in keys.iter().enumerate().rev() {
        next[i] = seen.insert(*key, i as i64).unwrap_or(-1);
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for (key, next) in keys.iter().zip(next) {
        for bytes in [&0_u32.to_le_bytes()[..], &key.to_le_bytes(), &1_u32.to_le_bytes(), &next.to_le_bytes()]
        {
            file.write_all(bytes).unwrap();
        }
    }
    file.flush().unwrap();
}

/// Both run the log at these capacities and count the same hits.
fn compare(python: &Path, keys: &[u64], capacities: &[usize]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.oracleGeneral");
    write(&file, keys);
    let log: Log = load(&file, Some(Format::OracleGeneral), usize::MAX).unwrap();
    assert_eq!(log.requests().len(), keys.len());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer.py");
    let mut command = Command::new(python);
    command.arg(script).arg(&file).arg(keys.len().to_string());
    let output = command.args(capacities.iter().map(usize::to_string)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines() {
        let [policy, capacity, hits] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (policy, capacity) = (policy.parse::<Policy>().unwrap(), capacity.parse().unwrap());
        let run = Run { policy, ways: Ways::Full, capacity, hash: HashName::Crc32, seed: 0 };
        let ours = run.run(&log, 0).unwrap().hits;
        println!("{policy}, {capacity} entries: {hits} hits of {} requests", keys.len());
        assert_eq!(ours, hits.parse::<u64>().unwrap(), "{policy}, {capacity} entries");
    }
    assert_eq!(text.lines().count(), 5 * capacities.len());
}

fn real(test: &str, name: &str, capacities: &[usize]) {
    let Some(python) = variable(test, "TIDEMILL_PYTHON") else { return };
    let Some(data) = variable(test, "TIDEMILL_DATA") else { return };
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut tidemill_archive::open(&data.join("kv").join(name)).unwrap(), &mut bytes)
        .unwrap();
    let keys: Vec<u64> =
        bytes.chunks_exact(4).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()).into()).collect();
    compare(&python, &keys, capacities);
}

#[test]
fn hits_of_a_web_shop_are_libcachesims() {
    real("hits_of_a_web_shop_are_libcachesims", "cache2k-web07.trace.xz", &[20, 100, 1000, 5000]);
}

#[test]
fn hits_of_a_busy_database_are_libcachesims() {
    real("hits_of_a_busy_database_are_libcachesims", "cache2k-orm-busy.trace.xz", &[500, 10_000]);
}

/// Popular keys whose popularity moves, scans, and loops.
#[test]
fn hits_of_a_made_log_are_libcachesims() {
    let Some(python) = variable("hits_of_a_made_log_are_libcachesims", "TIDEMILL_PYTHON") else { return };
    let (mut random, popular) = (Random::new(42), Alias::zipf(20_000, 0.9).unwrap());
    let mut keys = Vec::new();
    while keys.len() < 400_000 {
        let moved = keys.len() as u64 / 100_000 * 500;
        match random.below(50) {
            0 => (0..500).for_each(|i| keys.push(1_000_000 + random.below(100) + i)),
            1 => (0..1200).for_each(|i| keys.push(2_000_000 + i % 600)),
            _ => (0..100).for_each(|_| keys.push(moved + u64::from(popular.draw(&mut random)))),
        }
    }
    compare(&python, &keys, &[20, 64, 500, 2000, 9999]);
}
