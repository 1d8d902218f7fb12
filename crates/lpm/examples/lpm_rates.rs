//! Rates of every structure of this crate on one table, in one interleaved run:
//! `cargo run --release -p tidemill-lpm --example lpm_rates -- TABLE.zst [NAME ...]` (default: all structures of the family).
//!
//! Prints one line per structure and case: `subject case Mlps: median, 5th, 95th percentile over blocks of 4,096 lookups`, and bytes, build and update times. Results are
//! stored and checksummed; a structure that does not answer as the oracle does stops the run.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::{Pattern, Random, keys, repeated};
use tidemill_lpm::table::{Algorithm, Family};
use tidemill_lpm::{Fib, FibWriter, Label, Oracle, Prefix, Rib};

const KEYS: usize = 1 << 21;
/// Blocks of 4,096 lookups are timed; the percentiles are over the blocks of all runs.
const RUNS: usize = 7;
const BATCH: usize = 256;

fn checksum(sum: u64, labels: &[Label]) -> u64 {
    labels.iter().fold(sum, |sum, label| sum.rotate_left(5) ^ u64::from(label.0))
}

struct Subject<A> {
    name: String,
    writer: Box<dyn FibWriter<A>>,
    build_ms: f64,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(table) = args.next() else {
        eprintln!("usage: lpm_rates TABLE.v4.zst|TABLE.v6.zst [NAME ...]   (lines: prefix TAB label)");
        std::process::exit(2);
    };
    let names: Vec<String> = args.collect();
    if table.contains(".v6.") { run::<u128>(&table, &names) } else { run::<u32>(&table, &names) }
}

fn run<A: Family>(table: &str, names: &[String]) {
    let list = common::table::<A>(Path::new(table));
    let rib: Rib<A> = list.iter().copied().collect();
    let oracle = Oracle::new(&list);
    let domain = Domain::new();
    println!("{table}: {} prefixes, {} intervals", rib.len(), oracle.len());
    let chosen: Vec<Algorithm> = match names {
        [] => Algorithm::all::<A>().into_iter().filter(|a| *a != Algorithm::Auto).collect(),
        names => names.iter().map(|n| Algorithm::parse::<A>(n).unwrap_or_else(|e| panic!("{e}"))).collect(),
    };
    let mut subjects: Vec<Subject<A>> = chosen
        .iter()
        .map(|algorithm| {
            let start = Instant::now();
            let writer = algorithm.writer(&rib, &domain).unwrap_or_else(|e| panic!("{algorithm}: {e}"));
            Subject { name: algorithm.to_string(), writer, build_ms: start.elapsed().as_secs_f64() * 1e3 }
        })
        .collect();
    for pattern in Pattern::ALL {
        let keys = keys(&rib, pattern, KEYS, 1);
        rate(&subjects, &oracle, &pattern.to_string(), &keys);
        if pattern == Pattern::PrefixBased {
            rate(&subjects, &oracle, "rep", &repeated(&keys));
            sequential(&subjects, &keys);
        }
    }
    for subject in &mut subjects {
        let bytes = subject.writer.fib().bytes();
        let (one, batch) = updates(subject, &rib);
        println!(
            "{:16} bytes {bytes} ({:.2} per prefix) build {:.1} ms updates/s {one:.0} singly, {batch:.0} in batches of 256",
            subject.name,
            bytes as f64 / rib.len() as f64,
            subject.build_ms
        );
    }
}

fn print(name: &str, case: &str, rates: &mut [f64]) {
    rates.sort_by(f64::total_cmp);
    let at = |percent: usize| rates[(rates.len() - 1) * percent / 100];
    println!("{name:16} {case:7} {:7.1} {:7.1} {:7.1}", at(50), at(5), at(95));
}

fn rate<A: Family>(subjects: &[Subject<A>], oracle: &Oracle<A>, case: &str, keys: &[A]) {
    let expected: Vec<Label> = keys.iter().map(|&k| oracle.lookup(k)).collect();
    let expected = checksum(0, &expected);
    let mut rates = vec![Vec::new(); subjects.len()];
    let mut out = vec![Label(0); 4096];
    for _ in 0..RUNS {
        for (subject, rates) in subjects.iter().zip(&mut rates) {
            let fib = subject.writer.fib();
            let mut sum = 0;
            for block in keys.chunks(out.len()) {
                let start = Instant::now();
                for (keys, out) in block.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
                    fib.lookup_batch(keys, out);
                }
                rates.push(block.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
                sum = checksum(sum, &out);
            }
            assert_eq!(sum, expected, "{} answers wrongly ({case})", subject.name);
        }
    }
    subjects.iter().zip(&mut rates).for_each(|(s, r)| print(&s.name, case, r));
}

fn sequential<A: Family>(subjects: &[Subject<A>], keys: &[A]) {
    let mut rates = vec![Vec::new(); subjects.len()];
    let mut sums = Vec::new();
    let keys = &keys[..keys.len() / 4];
    for _ in 0..RUNS {
        for (subject, rates) in subjects.iter().zip(&mut rates) {
            let fib = subject.writer.fib();
            let fib: &dyn Fib<A> = &*fib;
            let (mut previous, mut sum) = (0_u32, 0);
            for block in keys.chunks(4096) {
                let start = Instant::now();
                for &key in block {
                    let label = fib.lookup(key ^ A::from_u128(previous.into()));
                    sum = checksum(sum, &[label]);
                    previous = label.0;
                }
                rates.push(block.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
            }
            sums.push(sum);
        }
    }
    assert!(sums.iter().all(|&sum| sum == sums[0]), "the structures disagree (seq)");
    subjects.iter().zip(&mut rates).for_each(|(s, r)| print(&s.name, "seq", r));
}

/// Changes per second: random prefixes of the table are withdrawn, and announced again when drawn again.
fn updates<A: Family>(subject: &mut Subject<A>, rib: &Rib<A>) -> (f64, f64) {
    let mut rib = rib.clone();
    let prefixes: Vec<Prefix<A>> = rib.iter().map(|(p, _)| p).collect();
    let labels: HashMap<Prefix<A>, Label> = rib.iter().collect();
    let mut random = Random::new(2);
    let mut speeds = [0.0; 2];
    for (speed, batch) in speeds.iter_mut().zip([1, 256]) {
        let (mut done, mut seconds) = (0, 0.0);
        while done < 40_000 && seconds < 2.0 {
            let mut changed: Vec<Prefix<A>> =
                (0..batch).map(|_| prefixes[random.below(prefixes.len())]).collect();
            changed.sort_unstable();
            changed.dedup();
            for &prefix in &changed {
                // Flaps: what is there goes, what is gone comes back.
                if rib.remove(prefix).is_none() {
                    rib.insert(prefix, labels[&prefix]);
                }
            }
            let start = Instant::now();
            if let Err(error) = subject.writer.patch(&rib, &changed) {
                println!("{:16} outgrown after {done} updates: {error}", subject.name);
                return (speeds[0], 0.0);
            }
            seconds += start.elapsed().as_secs_f64();
            done += changed.len();
        }
        *speed = done as f64 / seconds;
    }
    let list: Vec<_> = rib.iter().collect();
    let oracle = Oracle::new(&list);
    let fib = subject.writer.fib();
    for interval in oracle.intervals() {
        for key in [interval.start, interval.end] {
            assert_eq!(fib.lookup(key), interval.label, "{} after updates", subject.name);
        }
    }
    (speeds[0], speeds[1])
}
