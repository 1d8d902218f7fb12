//! Comparing one structure with one oracle: edges, samples, everything.

use crate::json;
use crate::progress::Progress;
use anyhow::Result;
use serde::Serialize;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidemill_lpm::keys::Random;
use tidemill_lpm::oracle::Interval;
use tidemill_lpm::{Address, Fib, Label, Oracle, Prefix};

/// Keys per call of `lookup_batch`.
const BATCH: usize = 1024;
/// Wrong answers that are shown, per structure.
const SHOWN: usize = 5;
/// Samples per piece of work; each piece has its own random numbers, so that threads do not matter to the result.
const PIECE: u64 = 1 << 16;

/// What was checked in all.
#[derive(Default, Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) checked: u64,
    pub(super) wrong: u64,
}

/// A wrong answer, as JSON.
#[derive(Serialize)]
struct WrongLine<'a> {
    v: u8,
    structure: &'a str,
    key: String,
    got: u32,
    expected: u32,
    how: &'static str,
}

/// What was found about one structure, as JSON.
#[derive(Serialize)]
struct StructureLine<'a> {
    v: u8,
    family: u8,
    structure: &'a str,
    stage: &'a str,
    /// Of which edges and samples were asked, each key of each.
    kernels: &'a [&'static str],
    checked: u64,
    wrong: u64,
    seconds: f64,
}

struct Wrong<A> {
    key: A,
    got: Label,
    expected: Label,
    how: &'static str,
}

/// Compares a structure's answers with the oracle's, on all cores.
pub(super) struct Checker<'a, A: Address> {
    fib: &'a dyn Fib<A>,
    oracle: &'a Oracle<A>,
    json: bool,
    start: Instant,
    checked: AtomicU64,
    wrong: AtomicU64,
    shown: Mutex<Vec<Wrong<A>>>,
}

impl<'a, A: Address> Checker<'a, A> {
    pub(super) fn new(fib: &'a dyn Fib<A>, oracle: &'a Oracle<A>, json: bool) -> Self {
        let (checked, wrong, shown) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Vec::new()));
        Checker { fib, oracle, json, start: Instant::now(), checked, wrong, shown }
    }

    /// Both ends of every interval, and first, last, first - 1 and last + 1 of every prefix.
    pub(super) fn edges(&mut self, routes: &[(Prefix<A>, Label)]) -> Result<()> {
        let intervals: Vec<Interval<A>> = self.oracle.intervals().collect();
        let progress = Progress::new("edges", (intervals.len() + routes.len()) as u64);
        let this = &*self;
        in_pieces(intervals.len() as u64, PIECE, |from, to| {
            let mut batch = Batch::new(this);
            for interval in &intervals[from as usize..to as usize] {
                batch.push(interval.start, interval.label);
                batch.push(interval.end, interval.label);
            }
            batch.flush();
            progress.add(to - from);
        });
        in_pieces(routes.len() as u64, PIECE, |from, to| {
            let mut batch = Batch::new(this);
            for (prefix, _) in &routes[from as usize..to as usize] {
                let (first, last) = (prefix.first(), prefix.last());
                let before = first.checked_sub(&A::one());
                let after = last.checked_add(&A::one());
                for key in [Some(first), Some(last), before, after].into_iter().flatten() {
                    batch.push(key, this.oracle.lookup(key));
                }
            }
            batch.flush();
            progress.add(to - from);
        });
        Ok(())
    }

    /// `count` keys: every other one anywhere, the rest inside prefixes.
    pub(super) fn sample(&mut self, routes: &[(Prefix<A>, Label)], count: u64, seed: u64) -> Result<()> {
        let progress = Progress::new("sample", count);
        let this = &*self;
        in_pieces(count, PIECE, |from, to| {
            let mut random = Random::new(seed ^ (from / PIECE).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut batch = Batch::new(this);
            for i in from..to {
                let key = if i % 2 == 0 || routes.is_empty() {
                    random.address()
                } else {
                    let at = random.below(routes.len());
                    random.within(routes[at].0)
                };
                batch.push(key, this.oracle.lookup(key));
            }
            batch.flush();
            progress.add(to - from);
        });
        Ok(())
    }

    fn compare(&self, keys: &[A], got: &[Label], expected: &[Label], how: &'static str) {
        if got == expected {
            return;
        }
        for ((&key, &got), &expected) in keys.iter().zip(got).zip(expected).filter(|((_, g), e)| g != e) {
            self.note(Wrong { key, got, expected, how });
        }
    }

    fn note(&self, wrong: Wrong<A>) {
        self.wrong.fetch_add(1, Ordering::Relaxed);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() < SHOWN {
            shown.push(wrong);
        }
    }

    /// Prints what was found and adds it to `tally`.
    pub(super) fn report(self, family: u8, stage: &str, tally: &mut Tally) -> Result<()> {
        let name = self.fib.name();
        let mut kernels = Vec::new();
        self.fib.lookup_batch_each(&[], &mut |kernel, _| kernels.push(kernel));
        let (checked, wrong) = (self.checked.load(Ordering::Relaxed), self.wrong.load(Ordering::Relaxed));
        tally.checked += checked;
        tally.wrong += wrong;
        let seconds = json::significant(self.start.elapsed().as_secs_f64());
        let mut shown = self.shown.into_inner().unwrap_or_else(PoisonError::into_inner);
        shown.sort_by_key(|wrong| wrong.key);
        for Wrong { key, got, expected, how } in &shown {
            let key = key.to_ip().to_string();
            if self.json {
                let (got, expected) = (got.0, expected.0);
                json::print(&WrongLine { v: json::VERSION, structure: &name, key, got, expected, how })?;
            } else {
                println!("WRONG {name}: {key} ({how}): got label {}, expected {}", got.0, expected.0);
            }
        }
        if self.json {
            let (v, structure, kernels) = (json::VERSION, &*name, &*kernels);
            json::print(&StructureLine { v, family, structure, stage, kernels, checked, wrong, seconds })?;
        } else {
            let kernels = kernels.join(", ");
            println!(
                "{name} (IPv{family}, {stage}; {kernels}): {checked} checked, {wrong} wrong, {seconds:.1} s"
            );
        }
        Ok(())
    }
}

impl<A: Address> Checker<'_, A> {
    /// All 2^32 addresses, by batch lookup, against the oracle's intervals.
    pub(super) fn all(&mut self) -> Result<()> {
        self.stretch(0, 1 << 32)
    }

    /// The addresses from `first` up to `behind`, both multiples of [`BATCH`].
    fn stretch(&mut self, first: u64, behind: u64) -> Result<()> {
        /// Addresses per piece of work.
        const STRETCH: u64 = 1 << 20;
        let intervals: Vec<Interval<A>> = self.oracle.intervals().collect();
        let progress = Progress::new(format!("all addresses, {}", self.fib.name()), behind - first);
        let this = &*self;
        in_pieces(behind - first, STRETCH, |from, to| {
            let (from, to) = (first + from, first + to);
            let address = |value: u64| A::from_u128(value.into());
            let mut at = intervals.partition_point(|interval| interval.end < address(from));
            let mut keys = [A::MIN; BATCH];
            let mut got = [Label::NONE; BATCH];
            for first in (from..to).step_by(BATCH) {
                keys.iter_mut().zip(first..).for_each(|(key, value)| *key = address(value));
                this.fib.lookup_batch(&keys, &mut got);
                // The intervals cut the batch into stretches with one expected label.
                let mut done = 0;
                while done < BATCH {
                    let Interval { end, label, .. } = intervals[at];
                    let left = end.to_u128() as u64 - (first + done as u64) + 1;
                    let stop = BATCH.min(done + left.min(BATCH as u64) as usize);
                    if got[done..stop].iter().any(|&got| got != label) {
                        let expected = [label; BATCH];
                        this.compare(&keys[done..stop], &got[done..stop], &expected[done..stop], "batch");
                    }
                    at += usize::from(stop as u64 - done as u64 == left);
                    done = stop;
                }
            }
            this.checked.fetch_add(to - from, Ordering::Relaxed);
            progress.add(to - from);
        });
        Ok(())
    }
}

/// Keys with their expected answers, asked for together, by each of the structure's kernels, and one by one.
struct Batch<'c, 'a, A: Address> {
    checker: &'c Checker<'a, A>,
    keys: Vec<A>,
    expected: Vec<Label>,
    got: Vec<Label>,
}

impl<'c, 'a, A: Address> Batch<'c, 'a, A> {
    fn new(checker: &'c Checker<'a, A>) -> Self {
        let (keys, expected) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Batch { checker, keys, expected, got: vec![Label::NONE; BATCH] }
    }

    fn push(&mut self, key: A, expected: Label) {
        self.keys.push(key);
        self.expected.push(expected);
        if self.keys.len() == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Batch { checker, keys, expected, got } = self;
        let got = &mut got[..keys.len()];
        checker.fib.lookup_batch(keys, got);
        checker.compare(keys, got, expected, "batch");
        checker.fib.lookup_batch_each(keys, &mut |kernel, got| {
            // The only way to answer a batch has answered.
            if kernel != "batch" {
                checker.compare(keys, got, expected, kernel);
            }
        });
        for (key, got) in keys.iter().zip(got.iter_mut()) {
            *got = checker.fib.lookup(*key);
        }
        checker.compare(keys, got, expected, "single");
        checker.checked.fetch_add(keys.len() as u64, Ordering::Relaxed);
        keys.clear();
        expected.clear();
    }
}

/// Calls `work(from, to)` for the pieces of `0..total`, on all cores.
fn in_pieces(total: u64, piece: u64, work: impl Fn(u64, u64) + Sync) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let from = next.fetch_add(piece, Ordering::Relaxed);
                    if from >= total {
                        return;
                    }
                    work(from, total.min(from + piece));
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as the oracle does, except for the keys in between: all of it, or one kernel that is not the usual one.
    struct Faulty {
        oracle: Oracle<u32>,
        from: u32,
        to: u32,
        only: Option<&'static str>,
    }

    impl Faulty {
        fn faulty(&self, key: u32) -> Label {
            let label = self.oracle.lookup(key);
            if (self.from..=self.to).contains(&key) { Label(label.0 + 1) } else { label }
        }
    }

    impl Fib<u32> for Faulty {
        fn lookup(&self, key: u32) -> Label {
            if self.only.is_some() { self.oracle.lookup(key) } else { self.faulty(key) }
        }
        fn lookup_batch_each(&self, keys: &[u32], each: &mut dyn FnMut(&'static str, &[Label])) {
            let (mut right, wrong): (Vec<_>, Vec<_>) =
                keys.iter().map(|&key| (Label::NONE, self.faulty(key))).unzip();
            self.lookup_batch(keys, &mut right);
            each("batch", &right);
            self.only.inspect(|kernel| each(kernel, &wrong));
        }
        fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
            keys.iter().zip(out).for_each(|(&key, out)| *out = self.lookup(key));
        }
        fn name(&self) -> String {
            "faulty".into()
        }
        fn bytes(&self) -> usize {
            0
        }
    }

    fn tally(from: u32, to: u32, check: impl Fn(&mut Checker<u32>, &[(Prefix<u32>, Label)])) -> Tally {
        tally_of(None, from, to, check)
    }

    fn tally_of(
        only: Option<&'static str>,
        from: u32,
        to: u32,
        check: impl Fn(&mut Checker<u32>, &[(Prefix<u32>, Label)]),
    ) -> Tally {
        let list: Vec<(Prefix<u32>, Label)> =
            [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("255.255.255.255/32", 3)]
                .map(|(p, l)| (p.parse().unwrap(), Label(l)))
                .to_vec();
        let oracle = Oracle::new(&list);
        let faulty = Faulty { oracle: oracle.clone(), from, to, only };
        let mut checker = Checker::new(&faulty, &oracle, false);
        check(&mut checker, &list);
        let mut tally = Tally::default();
        checker.report(4, "test", &mut tally).unwrap();
        tally
    }

    #[test]
    fn a_fault_at_an_edge_is_found() {
        // 6 intervals with two ends each; 3 prefixes with four keys each, one of them behind the last address.
        let edges = |checker: &mut Checker<u32>, list: &[_]| checker.edges(list).unwrap();
        let sound = tally(1, 0, edges);
        assert_eq!((sound.checked, sound.wrong), (6 * 2 + 11, 0));
        for key in [0x09ff_ffff, 0x0a00_0000, 0x0b00_0000, u32::MAX] {
            assert!(tally(key, key, edges).wrong > 0, "{key:#x}");
        }
    }

    /// One that bursts are not answered by, on this CPU.
    #[test]
    fn a_fault_in_any_kernel_is_found() {
        let edges = |checker: &mut Checker<u32>, list: &[_]| checker.edges(list).unwrap();
        let sample = |checker: &mut Checker<u32>, list: &[_]| checker.sample(list, 100_000, 7).unwrap();
        let (from, to) = (0x0a01_0000, 0x0a01_ffff);
        assert!(tally_of(Some("avx2"), from, to, edges).wrong > 0);
        assert!(tally_of(Some("scalar"), from, to, sample).wrong > 10_000);
        assert_eq!(tally_of(Some("scalar"), 1, 0, sample).wrong, 0);
    }

    #[test]
    fn no_address_of_a_stretch_is_left_out() {
        // 10.0.0.0 to 10.2.0.0, with both ends of the /16 inside, and the end of the space.
        let inside = |checker: &mut Checker<u32>, _: &[_]| checker.stretch(0x0a00_0000, 0x0a02_0000).unwrap();
        let end = |checker: &mut Checker<u32>, _: &[_]| checker.stretch(0xffff_0000, 1 << 32).unwrap();
        let sound = tally(1, 0, inside);
        assert_eq!((sound.checked, sound.wrong), (0x2_0000, 0));
        assert_eq!((tally(1, 0, end).checked, tally(1, 0, end).wrong), (0x1_0000, 0));
        for key in [0x0a00_0000, 0x0a00_ffff, 0x0a01_0000, 0x0a01_1234, 0x0a01_ffff] {
            assert_eq!(tally(key, key, inside).wrong, 1, "{key:#x}");
        }
        assert_eq!(tally(0x0a00_fff0, 0x0a01_000f, inside).wrong, 32);
        assert_eq!(tally(u32::MAX, u32::MAX, end).wrong, 1);
    }

    #[test]
    fn samples_lie_inside_prefixes_too_and_repeat() {
        let sample = |checker: &mut Checker<u32>, list: &[_]| checker.sample(list, 100_000, 7).unwrap();
        let (a, b) = (tally(0x0a01_0000, 0x0a01_ffff, sample), tally(0x0a01_0000, 0x0a01_ffff, sample));
        assert_eq!((a.checked, a.wrong), (b.checked, b.wrong));
        // A third of the 50,000 prefix-based keys, each asked for twice.
        assert!((30_000..36_000).contains(&a.wrong), "{}", a.wrong);
    }
}
