//! Rates of DXR layouts and kernels over one table, in interleaved runs:
//!
//! ```text
//! zstd -dc TABLE.nh148.zst | cargo run --release -p tidemill-lpm --example dxr_bench -- dxr-d16x4r dxr-d18r
//! ```
//!
//! The table is text, `prefix<TAB>label`, on standard input. Keys are computed before, results stored and summed; a sum that is
//! not the oracle's ends the program.

use std::hint::black_box;
use std::io::BufRead;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::dxr::{Dxr, DxrConfig, DxrWriter, Kernel, Layout};
use tidemill_lpm::{Fib, FibWriter, Label, Oracle, Prefix, Rib};

const KEYS: usize = 1 << 21;
const BURST: usize = 256;
const RUNS: usize = 11;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut list = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (prefix, label) = line.split_once('\t').ok_or("a line is not prefix<TAB>label")?;
        list.push((prefix.parse::<Prefix<u32>>()?, Label(label.parse()?)));
    }
    let mut rib: Rib<u32> = list.iter().copied().collect();
    let names: Vec<String> = std::env::args().skip(1).collect();
    let names = if names.is_empty() { vec!["dxr-d16x4r".into(), "dxr-d18r".into()] } else { names };

    let mut random = xorshift(0x9e37_79b9_7f4a_7c15);
    let unicast = |key: u32| !matches!(key >> 24, 0 | 10 | 127 | 224..);
    let rnd: Vec<u32> =
        std::iter::repeat_with(|| (random() >> 32) as u32).filter(|&k| unicast(k)).take(KEYS).collect();
    // Each key 8 times, interleaved with 7 others.
    let rep: Vec<u32> = (0..KEYS).map(|i| rnd[i / 64 * 8 + i % 8]).collect();
    let oracle = Oracle::new(&list);
    let sum = |keys: &[u32]| keys.iter().map(|&key| u64::from(oracle.lookup(key).0)).sum::<u64>();
    let (rnd_sum, rep_sum) = (sum(&rnd), sum(&rep));

    let domain = Domain::new();
    let mut subjects = Vec::new();
    for name in &names {
        let layout = Layout::parse(name).ok_or_else(|| format!("{name:?} is not a DXR layout"))?;
        let mut build_ms = f64::MAX;
        for _ in 0..3 {
            let start = seconds();
            black_box(DxrWriter::new(&rib, &DxrConfig::new(layout), &domain)?);
            build_ms = build_ms.min((seconds() - start) * 1e3);
        }
        for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
            let config = DxrConfig { kernel: Some(kernel), ..DxrConfig::new(layout) };
            let writer = DxrWriter::new(&rib, &config, &domain)?;
            let fib = writer.dxr().clone();
            if kernel == Kernel::Scalar {
                let per_prefix = fib.bytes() as f64 / list.len() as f64;
                println!("{name}: build {build_ms:.1} ms, {per_prefix:.2} B/prefix, {:?}", fib.stats());
            }
            subjects.push((fib, Vec::new()));
        }
    }
    let mut out = vec![Label::NONE; KEYS];
    for _ in 0..RUNS {
        for (fib, rates) in &mut subjects {
            let rnd_rate = batches(fib, &rnd, &mut out, rnd_sum);
            let rep_rate = batches(fib, &rep, &mut out, rep_sum);
            let one = if fib.kernel() == Kernel::Scalar {
                [sequential(fib, &rnd), single(fib, &rnd, &mut out)]
            } else {
                [0.0; 2]
            };
            rates.push([rnd_rate, rep_rate, one[0], one[1]]);
        }
    }
    println!("{:<14} {:<7} {:>7} {:>7} {:>7} {:>7}", "", "Mlps", "RND", "REP", "SEQ", "RND1");
    for (fib, rates) in &mut subjects {
        let of = |i: usize, best: bool| {
            let mut column: Vec<f64> = rates.iter().map(|r| r[i]).collect();
            column.sort_by(f64::total_cmp);
            column[if best { RUNS - 1 } else { RUNS / 2 }]
        };
        let row = |best| (0..4).map(|i| format!(" {:>7.1}", of(i, best))).collect::<String>();
        println!("{:<14} {:<7}{}   best{}", fib.name(), format!("{:?}", fib.kernel()), row(false), row(true));
    }
    for name in &names {
        let layout = Layout::parse(name).ok_or("layout")?;
        updates(&mut rib, &list, layout, &domain)?;
    }
    Ok(())
}

/// Relabels prefixes in random order, in coalesced batches.
fn updates(
    rib: &mut Rib<u32>,
    list: &[(Prefix<u32>, Label)],
    layout: Layout,
    domain: &Domain,
) -> Result<(), Box<dyn std::error::Error>> {
    for batch in [1, 100, 10_000] {
        let mut writer = DxrWriter::new(rib, &DxrConfig::new(layout), domain)?;
        let mut random = xorshift(7);
        let (mut in_rib, mut in_fib, mut rebuilt, total) = (0.0, 0.0, 0, 100_000);
        for _ in 0..total / batch {
            let start = seconds();
            let changed: Vec<Prefix<u32>> = (0..batch)
                .map(|_| {
                    let (prefix, label) = list[random() as usize % list.len()];
                    if random().is_multiple_of(8) {
                        rib.remove(prefix)
                    } else {
                        rib.insert(prefix, Label(label.0 % 100 + 1))
                    };
                    prefix
                })
                .collect();
            in_rib += seconds() - start;
            let start = seconds();
            if writer.patch(rib, &changed).is_err() {
                writer = DxrWriter::new(rib, &DxrConfig::new(layout), domain)?;
                rebuilt += 1;
            }
            in_fib += seconds() - start;
        }
        println!(
            "{layout}: {batch} per patch: {:.0} k/s in the FIB ({:.0} k/s with the RIB), rebuilt {rebuilt} times",
            f64::from(total) / in_fib / 1e3,
            f64::from(total) / (in_rib + in_fib) / 1e3
        );
        *rib = list.iter().copied().collect();
    }
    Ok(())
}

/// Seconds that this thread has run: other programs on the machine do not count, apart from what they do to the caches.
fn seconds() -> f64 {
    // The kernel brings the number up to date when the thread is scheduled.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

fn batches(fib: &Dxr, keys: &[u32], out: &mut [Label], expected: u64) -> f64 {
    let start = seconds();
    for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
        fib.lookup_batch(keys, out);
    }
    let seconds = seconds() - start;
    assert_eq!(
        out.iter().map(|l| u64::from(l.0)).sum::<u64>(),
        expected,
        "{} {:?}",
        fib.name(),
        fib.kernel()
    );
    keys.len() as f64 / seconds / 1e6
}

fn single(fib: &Dxr, keys: &[u32], out: &mut [Label]) -> f64 {
    let start = seconds();
    for (&key, out) in keys.iter().zip(out) {
        *out = fib.lookup(key);
    }
    keys.len() as f64 / (seconds() - start) / 1e6
}

/// The next key is XORed with the result before.
fn sequential(fib: &Dxr, keys: &[u32]) -> f64 {
    let keys = &keys[..keys.len() / 4];
    let (start, mut last) = (seconds(), 0);
    for &key in keys {
        last = fib.lookup(key ^ last).0;
    }
    black_box(last);
    keys.len() as f64 / (seconds() - start) / 1e6
}

fn xorshift(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}
