//! This machine's memory: what a load costs in regions of growing size (Zec 2019, Table 2.1), alone and many at a time.
//!
//! ```text
//! dependent      one load's address is the word that the one before has loaded: a random cycle through all cache lines of the region
//! independent    addresses known beforehand, plain loads: how many the core keeps in flight
//! gather         the same by gather instructions
//! ```

use crate::bench::bound::{Load, Region};
use crate::bench::statistics::median;
use crate::tune::Stop;
use anyhow::Result;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use tidemill_lookup::mem::Table;
use tidemill_lpm::keys::Random;

/// Words in a cache line.
const LINE_WORDS: usize = 16;
const LINE_BYTES: usize = LINE_WORDS * size_of::<u32>();
const LEAST_BYTES: usize = 16 << 10;
/// Beyond this nothing new is learned.
const MOST_BYTES: usize = 1 << 30;
/// Loads between two looks at the clock.
const STEPS: usize = 1 << 14;

/// How much to measure.
pub(super) struct Effort {
    /// Time for each figure of each region, split over the runs.
    pub(super) slice: Duration,
    pub(super) runs: usize,
    /// Every size, or every other one and none beyond 64 MB.
    pub(super) quick: bool,
}

/// A cache as the system describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cache {
    pub(super) level: u8,
    pub(super) bytes: usize,
    /// Processors that share it.
    pub(super) sharers: usize,
}

/// What loads cost in one region.
pub(super) struct Point {
    pub(super) bytes: usize,
    /// Nanoseconds per dependent load, run by run.
    pub(super) dependent_ns: Vec<f64>,
    /// Millions of independent loads per second.
    pub(super) independent: Vec<f64>,
    /// The same by gather instructions, if there are any.
    pub(super) gather: Option<Vec<f64>>,
}

/// This machine's memory.
pub(super) struct Memory {
    /// The core's clock while it was measured, by a chain of multiplications, three cycles each. Wrong on a CPU with other
    /// multipliers; 0 where we know none.
    pub(super) clock_ghz: f64,
    pub(super) caches: Vec<Cache>,
    pub(super) points: Vec<Point>,
}

impl Memory {
    /// Sizes that will be measured, for the progress.
    pub(super) fn sizes(caches: &[Cache], quick: bool) -> Vec<usize> {
        let last = caches.iter().map(|cache| cache.bytes).max().unwrap_or(32 << 20);
        let room = available_bytes().map_or(MOST_BYTES, |bytes| bytes / 4);
        let most = if quick { 64 << 20 } else { (2 * last).next_power_of_two().min(MOST_BYTES) };
        let step = if quick { 4 } else { 2 };
        std::iter::successors(Some(LEAST_BYTES), |bytes| bytes.checked_mul(step))
            .take_while(|&bytes| bytes <= most.min(room.max(LEAST_BYTES)))
            .collect()
    }

    pub(super) fn measure(
        caches: Vec<Cache>,
        sizes: &[usize],
        effort: &Effort,
        stop: &Stop,
        done: &mut dyn FnMut(usize),
    ) -> Result<Self> {
        let mut points = Vec::new();
        for &bytes in sizes {
            points.push(point(bytes, effort, stop)?);
            done(bytes);
        }
        Ok(Memory { clock_ghz: clock_ghz(), caches, points })
    }

    /// The point that stands for a cache: the largest region that fills at most half of it, so that it is in that cache
    /// and too large for the one before.
    pub(super) fn of_cache(&self, cache: &Cache) -> Option<&Point> {
        let nearer = self.caches.iter().filter(|c| c.level < cache.level).map(|c| c.bytes).max().unwrap_or(0);
        self.points.iter().rev().find(|point| point.bytes <= cache.bytes / 2 && point.bytes > nearer)
    }

    /// The point that stands for memory beyond all caches, if one is that large.
    pub(super) fn beyond(&self) -> Option<&Point> {
        let last = self.caches.iter().map(|cache| cache.bytes).max()?;
        self.points.last().filter(|point| point.bytes >= last + last / 2)
    }

    /// The nearest cache that holds so many bytes; `None`: none does.
    pub(super) fn holds(&self, bytes: usize) -> Option<&Cache> {
        self.caches.iter().filter(|cache| cache.bytes >= bytes).min_by_key(|cache| cache.level)
    }

    /// Millions of random loads per second, the best way, in a region of that size: between two that were measured, a
    /// straight line on logarithmic paper.
    pub(super) fn bound(&self, bytes: usize) -> Option<f64> {
        let best = |point: &Point| {
            let gather = point.gather.as_ref().map_or(0.0, |rates| median(rates));
            median(&point.independent).max(gather)
        };
        let above = self.points.iter().position(|point| point.bytes >= bytes);
        match above {
            None => self.points.last().map(best),
            Some(0) => self.points.first().map(best),
            Some(at) => {
                let (low, high) = (&self.points[at - 1], &self.points[at]);
                let ln = |bytes: usize| (bytes as f64).ln();
                let part = (ln(bytes) - ln(low.bytes)) / (ln(high.bytes) - ln(low.bytes));
                Some(best(low).powf(1.0 - part) * best(high).powf(part))
            }
        }
    }
}

fn point(bytes: usize, effort: &Effort, stop: &Stop) -> Result<Point> {
    // As many places as the region has lines, so that a pass does not find what the one before has brought near.
    let most = if effort.quick { 1 << 20 } else { 1 << 24 };
    let region = Region::new(bytes, (bytes / LINE_BYTES).clamp(1 << 16, most), 1)?;
    let slice = effort.slice / effort.runs.max(1) as u32;
    let rate = |load: Load| -> Result<Vec<f64>> {
        let mut rates = Vec::new();
        region.timed_pass(load); // not counted: finds the caches full of something else
        for _ in 0..effort.runs {
            stop.check()?;
            let (mut time, mut loads) = (Duration::ZERO, 0);
            while time < slice {
                time += region.timed_pass(load).max(Duration::from_nanos(1));
                loads += region.loads();
            }
            rates.push(loads as f64 / time.as_secs_f64() / 1e6);
        }
        Ok(rates)
    };
    let (mut independent, mut gather) = (Vec::new(), None);
    for load in Load::all() {
        match load {
            Load::Scalar => independent = rate(load)?,
            Load::Gather(_) => gather = Some(rate(load)?),
            // That one computes its addresses, which costs a few cycles: the chase below does not.
            Load::Dependent => {}
        }
    }
    drop(region);
    let cycle = cycle(bytes)?;
    let mut at = chase(&cycle, 0, (bytes / LINE_BYTES).min(1 << 20));
    let mut dependent_ns = Vec::new();
    for _ in 0..effort.runs {
        stop.check()?;
        let (start, mut steps) = (Instant::now(), 0);
        while start.elapsed() < slice {
            at = chase(&cycle, at, STEPS);
            steps += STEPS;
        }
        dependent_ns.push(start.elapsed().as_secs_f64() * 1e9 / steps as f64);
    }
    black_box(at);
    Ok(Point { bytes, dependent_ns, independent, gather })
}

/// A region whose cache lines each say where the next one is: one random cycle through all (Sattolo's algorithm).
fn cycle(bytes: usize) -> Result<Table<u32>> {
    let lines = (bytes / LINE_BYTES).max(2);
    let mut words = Table::<u32>::new(lines * LINE_WORDS)?;
    (0..lines).for_each(|line| words[line * LINE_WORDS] = (line * LINE_WORDS) as u32);
    let mut random = Random::new(3);
    for line in (1..lines).rev() {
        let other = random.below(line);
        words.swap(line * LINE_WORDS, other * LINE_WORDS);
    }
    Ok(words)
}

fn chase(cycle: &[u32], from: u32, steps: usize) -> u32 {
    (0..steps).fold(from, |at, _| cycle[at as usize])
}

/// See [`Memory::clock_ghz`].
fn clock_ghz() -> f64 {
    const CYCLES: f64 = 3.0;
    if !cfg!(target_arch = "x86_64") {
        return 0.0;
    }
    let once = || {
        let start = Instant::now();
        let x = (0..STEPS * 16).fold(black_box(3_u64), |x, _| x.wrapping_mul(x));
        black_box(x);
        CYCLES * (STEPS * 16) as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    (0..7).map(|_| once()).fold(0.0, f64::max)
}

/// The caches of the first processor, by level; those of instructions left out. Empty where the system does not say.
pub(super) fn caches() -> Vec<Cache> {
    caches_in(Path::new("/sys/devices/system/cpu/cpu0/cache"))
}

fn caches_in(folder: &Path) -> Vec<Cache> {
    let mut caches: Vec<Cache> = (0..16)
        .filter_map(|index| {
            let read =
                |name: &str| std::fs::read_to_string(folder.join(format!("index{index}")).join(name)).ok();
            if read("type")?.trim() == "Instruction" {
                return None;
            }
            let sharers = read("shared_cpu_list").map_or(1, |list| cpu_list(&list).len()).max(1);
            Some(Cache {
                level: read("level")?.trim().parse().ok()?,
                bytes: size(read("size")?.trim())?,
                sharers,
            })
        })
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// `48K`, `2M`.
fn size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// `0-3,8`.
pub(super) fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flat_map(|range| range.take(4096)).collect()
}

fn available_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_visits_every_line_once() {
        for bytes in [128, 4096, 100 << 10] {
            let cycle = cycle(bytes).unwrap();
            let lines = bytes / LINE_BYTES;
            let mut seen = vec![false; lines];
            let mut at = 0;
            for _ in 0..lines {
                assert!(!std::mem::replace(&mut seen[at as usize / LINE_WORDS], true));
                at = chase(&cycle, at, 1);
            }
            assert_eq!(at, 0);
        }
    }

    #[test]
    fn the_system_says_which_caches_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let index = |n: usize, files: [(&str, &str); 4]| {
            let folder = folder.path().join(format!("index{n}"));
            std::fs::create_dir(&folder).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
        };
        index(
            0,
            [("type", "Unified\n"), ("level", "2\n"), ("size", "2048K\n"), ("shared_cpu_list", "0,4\n")],
        );
        index(
            1,
            [("type", "Instruction\n"), ("level", "1\n"), ("size", "32K\n"), ("shared_cpu_list", "0\n")],
        );
        index(2, [("type", "Data\n"), ("level", "1\n"), ("size", "48K\n"), ("shared_cpu_list", "0\n")]);
        let [first, second] = &caches_in(folder.path())[..] else { panic!() };
        assert_eq!((first.level, first.bytes, first.sharers), (1, 48 << 10, 1));
        assert_eq!((second.level, second.bytes, second.sharers), (2, 2 << 20, 2));
        assert_eq!(caches_in(Path::new("/nowhere")), []);
        assert_eq!((size("12x"), size(""), size("3M")), (None, None, Some(3 << 20)));
        assert_eq!(cpu_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(cpu_list("x"), [0_usize; 0]);
    }

    #[test]
    fn each_cache_has_a_region_that_is_in_it_alone() {
        let cache = |level, bytes| Cache { level, bytes, sharers: 1 };
        let caches = vec![cache(1, 48 << 10), cache(2, 2 << 20), cache(3, 16 << 20)];
        let point = |bytes| Point { bytes, dependent_ns: vec![1.0], independent: vec![1.0], gather: None };
        let sizes = Memory::sizes(&caches, false);
        assert_eq!(sizes.first(), Some(&LEAST_BYTES));
        let points = (14..=25).map(|bits| point(1 << bits)).collect();
        let memory = Memory { clock_ghz: 1.0, caches, points };
        let of = |at: usize| memory.of_cache(&memory.caches[at]).map(|point| point.bytes);
        assert_eq!([of(0), of(1), of(2)], [Some(16 << 10), Some(1 << 20), Some(8 << 20)]);
        assert_eq!(memory.beyond().map(|point| point.bytes), Some(32 << 20));
        assert_eq!(memory.holds(100 << 10).map(|cache| cache.level), Some(2));
        assert_eq!(memory.holds(17 << 20), None);
        assert_eq!(memory.bound(1 << 10), Some(1.0));
        let point = |bytes, rate| Point { independent: vec![rate], ..point(bytes) };
        let memory = Memory { points: vec![point(1 << 20, 900.0), point(4 << 20, 100.0)], ..memory };
        assert_eq!(
            [1 << 19, 1 << 22, 1 << 30].map(|bytes| memory.bound(bytes)),
            [900.0, 100.0, 100.0].map(Some)
        );
        assert!((memory.bound(2 << 20).unwrap() - 300.0).abs() < 1e-9);
    }
}
