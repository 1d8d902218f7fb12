//! What more threads bring (Zec 2019, Fig 2.4): the chosen structure and the machine's bound, on one processor after the
//! other - first one of each core, or both siblings of a core at once.

use super::memory::cpu_list;
use super::{Pace, Stop};
use crate::bench::bound::{Load, Region};
use crate::bench::pass::{Order, timed_pass};
use anyhow::{Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::Barrier;
use std::time::Duration;
use tidemill_lpm::{Family, Fib};

/// More threads than this say nothing new.
const THREADS_MAX: usize = 64;

/// In which order processors get their thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// Idle cores first, then their siblings.
    Cores,
    /// The siblings of a core together.
    Siblings,
}

impl Placement {
    pub(super) fn name(self) -> &'static str {
        match self {
            Placement::Cores => "cores",
            Placement::Siblings => "siblings",
        }
    }
}

/// Rates of all threads together.
pub(super) struct Scaling {
    pub(super) placement: Placement,
    pub(super) threads: usize,
    /// M lookups/s, run by run.
    pub(super) lookups: Vec<f64>,
    /// M independent random loads/s in a region of the structure's size, the best way.
    pub(super) bound: Vec<f64>,
}

/// One thread up to one on each processor that we may use.
pub(super) fn measure<A: Family>(
    fib: &Arc<dyn Fib<A>>,
    keys: &[A],
    pace: &Pace,
    stop: &Stop,
) -> Result<Vec<Scaling>> {
    let cores = cores(&allowed(), |cpu| {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        std::fs::read_to_string(file).map(|text| cpu_list(&text)).unwrap_or_default()
    });
    let (first, paired) = (by_cores(&cores), cores.concat());
    let mut orders = vec![(Placement::Cores, first)];
    if orders[0].1 != paired {
        orders.push((Placement::Siblings, paired));
    }
    let region = Region::new(fib.bytes(), keys.len().min(1 << 20), 1)?;
    let load = Load::all().into_iter().rfind(|load| *load != Load::Dependent).unwrap_or(Load::Scalar);
    let lookup = || timed_pass(fib.as_ref(), keys, Order::Independent { batch: 256 }).time;
    let bound = || region.timed_pass(load);
    let mut all = Vec::new();
    for (placement, order) in orders {
        for threads in counts(order.len().min(THREADS_MAX)) {
            let mut scaling = Scaling { placement, threads, lookups: Vec::new(), bound: Vec::new() };
            for _ in 0..pace.runs {
                stop.check()?;
                let cpus = &order[..threads];
                scaling.lookups.push(together(cpus, keys.len(), pace.slice, &lookup)?);
                scaling.bound.push(together(cpus, region.loads(), pace.slice, &bound)?);
            }
            all.push(scaling);
        }
    }
    Ok(all)
}

/// M operations/s of passes in as many threads at once: the sum of what each did in its own time.
fn together(
    cpus: &[usize],
    per_pass: usize,
    slice: Duration,
    pass: &(dyn Fn() -> Duration + Sync),
) -> Result<f64> {
    let barrier = Barrier::new(cpus.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (cpus.iter())
            .map(|&cpu| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut set = CpuSet::new();
                    set.set(cpu);
                    // A container may forbid it; the threads then go where the kernel puts them.
                    let _ = sched_setaffinity(None, &set);
                    pass();
                    barrier.wait();
                    let (mut time, mut done) = (Duration::ZERO, 0);
                    while time < slice {
                        time += pass().max(Duration::from_nanos(1));
                        done += per_pass;
                    }
                    done as f64 / time.as_secs_f64() / 1e6
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.sum::<std::thread::Result<f64>>().map_err(|_| anyhow!("a measuring thread failed"))
    })
}

/// 1, 2, 3, .. up to 8; then in steps that keep the number of points small; the last one is `most`.
fn counts(most: usize) -> Vec<usize> {
    let step = most.div_ceil(16).max(1);
    let mut counts: Vec<usize> = (1..=most).filter(|n| *n <= 8 || n.is_multiple_of(step)).collect();
    if counts.last() != Some(&most) && most > 0 {
        counts.push(most);
    }
    counts
}

fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None);
    let cpus = set.map(|set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect::<Vec<_>>());
    cpus.ok().filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![0])
}

/// The processors by core, each in the core of its lowest sibling.
fn cores(cpus: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Vec<Vec<usize>> {
    let mut cores: Vec<(usize, Vec<usize>)> = Vec::new();
    for &cpu in cpus {
        let core = siblings(cpu).into_iter().min().unwrap_or(cpu);
        match cores.iter_mut().find(|(known, _)| *known == core) {
            Some((_, of)) => of.push(cpu),
            None => cores.push((core, vec![cpu])),
        }
    }
    cores.into_iter().map(|(_, cpus)| cpus).collect()
}

/// The first processor of each core, then the second ones, and so on.
fn by_cores(cores: &[Vec<usize>]) -> Vec<usize> {
    let most = cores.iter().map(Vec::len).max().unwrap_or(0);
    (0..most).flat_map(|i| cores.iter().filter_map(move |core| core.get(i)).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_told_apart_from_cores() {
        let found = cores(&[0, 1, 2, 3], |cpu| vec![cpu % 2, cpu % 2 + 2]);
        assert_eq!(found, [[0, 2], [1, 3]]);
        assert_eq!((by_cores(&found), found.concat()), (vec![0, 1, 2, 3], vec![0, 2, 1, 3]));
        let alone = cores(&[4, 7], |_| Vec::new());
        assert_eq!((by_cores(&alone), alone.concat()), (vec![4, 7], vec![4, 7]));
    }

    #[test]
    fn few_points_say_it() {
        assert_eq!((counts(1), counts(3)), (vec![1], vec![1, 2, 3]));
        let many = counts(64);
        assert!(many.len() <= 24 && many.last() == Some(&64), "{many:?}");
        assert_eq!(counts(17).last(), Some(&17));
    }

    #[test]
    fn threads_add_up() {
        let cpus = allowed();
        let rate = |cpus: &[usize]| {
            together(cpus, 1000, Duration::from_millis(1), &|| Duration::from_micros(10)).unwrap()
        };
        assert!((rate(&cpus[..1]) - 100.0).abs() < 1e-6);
        assert!((rate(&[cpus[0], cpus[0]]) - 200.0).abs() < 1e-6);
    }
}
