//! Test binaries side by side. Those of the root tier mostly wait, each in namespaces and processes of its own: two at a time keep the
//! processors as busy as the builds beside them leave room for. What is about rates and lost packets has its turn at the end, alone.

use super::Totals;
use anyhow::{Result, anyhow};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Binaries at a time.
const LANES: usize = 2;

/// What takes longest, in that order (213 s to 43 s): it comes first, so that no lane ends long before the other.
const LONGEST: &[&str] = &[
    "root_contract",
    "root_kernel",
    "root_kvcache",
    "root_random",
    "root_grantor",
    "root_bgp",
    "root_gate",
    "root_amp_xdp",
];

/// What has nothing of ours beside it but the builds.
const ALONE: &[&str] = &["root_dpdk", "root_scenario", "root_wire", "root_xdp"];

/// Runs what is called so; a name may be that of several binaries. Each is told with its time: lines of two come mixed.
pub(super) fn run(names: &[&str], each: impl Fn(&str) -> Result<Totals> + Sync) -> Result<Totals> {
    let told = |name: &str| -> Result<Totals> {
        let start = Instant::now();
        let totals = each(name)?;
        println!("{name}: {totals} in {:.1} s", start.elapsed().as_secs_f64());
        Ok(totals)
    };
    let (together, alone) = plan(names);
    let lanes = std::thread::available_parallelism().map_or(1, usize::from).min(LANES);
    let mut totals = in_lanes(&together, lanes, &told)?;
    totals += in_lanes(&alone, 1, &told)?;
    Ok(totals)
}

/// What runs beside others, the longest first, and what runs by itself.
fn plan<'a>(names: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let (alone, mut together): (Vec<&str>, Vec<&str>) =
        names.iter().copied().partition(|name| ALONE.contains(name));
    together.sort_by_key(|name| LONGEST.iter().position(|long| long == name).unwrap_or(LONGEST.len()));
    (together, alone)
}

/// Each lane takes the next name as soon as it has none.
fn in_lanes(names: &[&str], lanes: usize, each: &(impl Fn(&str) -> Result<Totals> + Sync)) -> Result<Totals> {
    let queue = Mutex::new(names.iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = || -> Result<Totals> {
        let mut totals = Totals::default();
        while let Some(name) = next() {
            totals += each(name)?;
        }
        Ok(totals)
    };
    let ended: Vec<Result<Totals>> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let join = lanes.into_iter().map(std::thread::ScopedJoinHandle::join);
        join.map(|ended| ended.unwrap_or_else(|_| Err(anyhow!("a lane of tests panicked")))).collect()
    });
    let mut totals = Totals::default();
    for lane in ended {
        totals += lane?;
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;
    use anyhow::bail;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn the_longest_come_first_and_some_alone() {
        let (together, alone) =
            plan(&["root_a", "root_b", "root_gate", "root_kernel", "root_wire", "root_xdp"]);
        assert_eq!(together, ["root_kernel", "root_gate", "root_a", "root_b"]);
        assert_eq!(alone, ["root_wire", "root_xdp"]);
    }

    #[test]
    fn the_names_are_those_of_tests() {
        let crates = std::fs::read_dir(env::root().join("crates")).unwrap();
        let tests: Vec<_> = crates.map(|folder| folder.unwrap().path().join("tests")).collect();
        for name in LONGEST.iter().chain(ALONE) {
            let is_there = tests.iter().any(|tests| {
                tests.join(format!("{name}.rs")).is_file() || tests.join(name).join("main.rs").is_file()
            });
            assert!(is_there, "{name}");
        }
    }

    /// The most that ran at once. A lane waits for as many as there are lanes.
    fn most(lanes: usize) -> usize {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let each = |_: &str| -> Result<Totals> {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let start = Instant::now();
            while most.load(Ordering::SeqCst) < lanes && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Totals { passed: 1, ..Totals::default() })
        };
        let totals = in_lanes(&["a", "b", "c", "d"], lanes, &each).unwrap();
        assert_eq!(totals, Totals { passed: 4, ..Totals::default() });
        most.into_inner()
    }

    #[test]
    fn as_many_run_at_once_as_there_are_lanes() {
        assert_eq!((most(1), most(2)), (1, 2));
    }

    #[test]
    fn everything_runs_and_an_error_is_told() {
        let ran = Mutex::new(Vec::new());
        let each = |name: &str| -> Result<Totals> {
            ran.lock().unwrap().push(name.to_owned());
            if name == "root_b" { bail!("no cargo") } else { Ok(Totals::default()) }
        };
        assert!(run(&["root_a", "root_wire"], each).is_ok());
        assert_eq!(*ran.lock().unwrap(), ["root_a", "root_wire"]);
        assert!(run(&["root_a", "root_b"], each).is_err());
    }
}
