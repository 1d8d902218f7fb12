//! Rates and errors of filters, cardinality counters and heavy hitters, filters beside the crates that are their peers; one JSON object per line.
//!
//! ```text
//! cargo run --release -p tidemill-flow --example summaries [-- [--filters] [LOG2 ...]]
//! ```
//!
//! `--filters`: nothing but filters. `LOG2`: their sizes, as powers of two (16 and 24 unless given). Rates are in millions per second, medians of 11 rounds in which all take turns;
//! a ratio is the median of the rounds' ratios, with the second and the tenth of them.

use std::hint::black_box;
use std::time::Instant;
use tidemill_flow::cardinality::{HyperLogLog, LinearCounter};
use tidemill_flow::filter::{Bloom, CountingBloom, CuckooFilter};
use tidemill_flow::hash::mix;
use tidemill_flow::heavy::{CountMin, HeavyHitters};
use tidemill_flow::key::Key;
use xorf::Filter;

const ROUNDS: usize = 11;
const BURST: usize = 256;
const QUERIES: usize = 1 << 20;
/// The rate that Bloom filters are made for.
const RATE: f64 = 0.01;

type Query<'a> = Box<dyn FnMut(&[u64], &mut [bool]) + 'a>;

fn measurement(subject: &str, case: &str, metric: &str, values: &mut [f64], checksum: usize) {
    values.sort_by(f64::total_cmp);
    let (value, min, max, runs) =
        (values[values.len() / 2], values[0], values[values.len() - 1], values.len());
    println!(
        r#"{{"v":1,"bench":"summaries","subject":"{subject}","case":"{case}","metric":"{metric}","value":{value:.5},"min":{min:.5},"max":{max:.5},"runs":{runs},"checksum":"{checksum:x}"}}"#
    );
}

/// Everybody answers the same queries in every round.
fn race(case: &str, queries: &[u64], runners: &mut [(&str, Query)]) {
    let mut rates = vec![Vec::new(); runners.len()];
    let mut found = vec![0; runners.len()];
    let mut out = [false; BURST];
    for _ in 0..ROUNDS {
        for (i, (_, run)) in runners.iter_mut().enumerate() {
            found[i] = 0;
            let start = Instant::now();
            for burst in queries.chunks(BURST) {
                run(burst, &mut out[..burst.len()]);
                found[i] += out[..burst.len()].iter().filter(|&&yes| yes).count();
            }
            rates[i].push(queries.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
        }
    }
    for (i, (subject, _)) in runners.iter().enumerate() {
        measurement(subject, case, "mops", &mut rates[i].clone(), found[i]);
    }
    for (of, _) in runners.iter().enumerate().filter(|(_, (name, _))| !name.starts_with("peer:")) {
        for (to, _) in runners.iter().enumerate().filter(|(_, (name, _))| name.starts_with("peer:")) {
            let mut ratios: Vec<f64> = rates[of].iter().zip(&rates[to]).map(|(a, b)| a / b).collect();
            ratios.sort_by(f64::total_cmp);
            println!(
                r#"{{"v":1,"bench":"summaries","case":"{case}","metric":"ratio","of":"{}","to":"{}","value":{:.2},"low":{:.2},"high":{:.2},"pairs":{ROUNDS}}}"#,
                runners[of].0,
                runners[to].0,
                ratios[ROUNDS / 2],
                ratios[1],
                ratios[ROUNDS - 2]
            );
        }
    }
}

/// One filling: its rate, and the bits per key.
fn fill(subject: &str, case: &str, items: usize, run: impl FnOnce() -> usize) {
    let start = Instant::now();
    let bytes = run();
    let rate = items as f64 / start.elapsed().as_secs_f64() / 1e6;
    measurement(subject, &format!("{case}/insert"), "mops", &mut [rate], 0);
    measurement(subject, case, "bits-per-key", &mut [bytes as f64 * 8.0 / items as f64], 0);
}

fn filters(log2: u32) -> Result<(), Box<dyn std::error::Error>> {
    let (items, case) = (1usize << log2, format!("2^{log2}"));
    let keys: Vec<u64> = (0..items as u64).map(mix).collect();
    let hits: Vec<u64> = (0..QUERIES as u64).map(|i| keys[mix(!i) as usize % items]).collect();
    let misses: Vec<u64> = (0..QUERIES as u64).map(|i| mix(i | 1 << 50)).collect();
    let mixed: Vec<u64> =
        (0..QUERIES).map(|i| if mix(i as u64) & 1 == 0 { hits[i] } else { misses[i] }).collect();

    let mut bloom = Bloom::new(items, RATE)?;
    let mut counting = CountingBloom::new(items, RATE)?;
    let mut cuckoo = CuckooFilter::new(items)?;
    let mut fast = fastbloom::BloomFilter::with_false_pos(RATE).seed(&1).expected_items(items);
    let mut fuse = None;
    fill("bloom", &case, items, || {
        bloom.insert_batch(&keys);
        bloom.bytes()
    });
    fill("counting-bloom", &case, items, || {
        counting.insert_batch(&keys);
        counting.bytes()
    });
    fill("cuckoo-filter", &case, items, || {
        assert_eq!(cuckoo.insert_batch(&keys), items, "the cuckoo filter is full");
        cuckoo.bytes()
    });
    fill("peer:fastbloom", &case, items, || {
        keys.iter().for_each(|&key| _ = fast.insert_hash(key));
        fast.num_bits() / 8
    });
    fill("peer:xorf-binary-fuse8", &case, items, || {
        fuse = xorf::BinaryFuse8::try_from(&keys).ok();
        fuse.as_ref().map_or(0, |fuse| fuse.len())
    });
    let fuse = fuse.ok_or("no binary fuse filter for these keys")?;
    fn single(mut contains: impl FnMut(u64) -> bool) -> impl FnMut(&[u64], &mut [bool]) {
        move |hashes, out| {
            hashes.iter().zip(out).for_each(|(&hash, out)| *out = contains(hash));
        }
    }
    for (what, queries) in [("hit", &hits), ("miss", &misses), ("mixed", &mixed)] {
        let mut runners: Vec<(&str, Query)> = vec![
            ("bloom", Box::new(|h, o| bloom.contains_batch(h, o))),
            ("bloom-single", Box::new(single(|h| bloom.contains(h)))),
            ("counting-bloom", Box::new(|h, o| counting.contains_batch(h, o))),
            ("cuckoo-filter", Box::new(|h, o| cuckoo.contains_batch(h, o))),
            ("cuckoo-filter-single", Box::new(single(|h| cuckoo.contains(h)))),
            ("peer:fastbloom", Box::new(single(|h| fast.contains_hash(h)))),
            ("peer:xorf-binary-fuse8", Box::new(single(|h| fuse.contains(&h)))),
        ];
        race(&format!("{case}/{what}"), queries, &mut runners);
    }
    let false_positives = |name: &str, rate: f64, found: usize| {
        measurement(name, &case, "false-positives", &mut [found as f64 / QUERIES as f64], found);
        measurement(name, &case, "false-positives-expected", &mut [rate], 0);
    };
    let count = |run: &dyn Fn(&[u64], &mut [bool])| {
        let mut out = vec![false; QUERIES];
        run(&misses, &mut out);
        out.into_iter().filter(|&yes| yes).count()
    };
    false_positives("bloom", bloom.expected_rate(items), count(&|h, o| bloom.contains_batch(h, o)));
    false_positives(
        "counting-bloom",
        counting.expected_rate(items),
        count(&|h, o| counting.contains_batch(h, o)),
    );
    false_positives("cuckoo-filter", cuckoo.expected_rate(), count(&|h, o| cuckoo.contains_batch(h, o)));
    Ok(())
}

/// The rate of a counter's batches.
fn rate(subject: &str, case: &str, hashes: &[u64], mut add: impl FnMut(std::ops::Range<usize>)) {
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for first in (0..hashes.len()).step_by(BURST) {
                add(first..hashes.len().min(first + BURST));
            }
            hashes.len() as f64 / start.elapsed().as_secs_f64() / 1e6
        })
        .collect();
    measurement(subject, case, "mops", &mut rates, 0);
}

fn cardinality() -> Result<(), Box<dyn std::error::Error>> {
    let hashes: Vec<u64> = (0..QUERIES as u64).map(mix).collect();
    for precision in [10, 14, 18] {
        let subject = format!("hyperloglog-{precision}");
        let mut counter = HyperLogLog::new(precision)?;
        rate(&subject, "add", &hashes, |range| counter.add_batch(&hashes[range]));
        black_box(counter.estimate());
        for items in [1000, 1_000_000u64] {
            let seeds = 40;
            let mut square = 0.0;
            for seed in 0..seeds {
                counter.clear();
                (0..items).for_each(|i| counter.add(mix(mix(seed) ^ i)));
                square += (counter.estimate() / items as f64 - 1.0).powi(2) / seeds as f64;
            }
            measurement(&subject, &format!("{items}"), "error-rms", &mut [square.sqrt()], 0);
            measurement(&subject, &format!("{items}"), "error-expected", &mut [counter.standard_error()], 0);
        }
    }
    let mut linear = LinearCounter::new(LinearCounter::bits_for(QUERIES, 0.01))?;
    rate("linear-counting", "add", &hashes, |range| linear.add_batch(&hashes[range]));
    measurement("linear-counting", "2^20", "bits-per-key", &mut [linear.bits() as f64 / QUERIES as f64], 0);
    let error = linear.estimate()? / QUERIES as f64 - 1.0;
    measurement("linear-counting", "2^20", "error", &mut [error], 0);
    measurement("linear-counting", "2^20", "error-expected", &mut [linear.standard_error(QUERIES)], 0);
    Ok(())
}

/// 2^22 packets of 2^20 flows whose sizes follow Zipf's law, and what is known of the 100 largest.
fn heavy() -> Result<(), Box<dyn std::error::Error>> {
    let (flows, packets) = (1u64 << 20, 1usize << 22);
    let stream: Vec<u64> = (0..packets as u64)
        .map(|i| {
            let unit = (mix(!i) >> 11) as f64 / (1u64 << 53) as f64;
            ((flows as f64).powf(unit) - 1.0) as u64
        })
        .collect();
    let mut exact = vec![0u64; flows as usize];
    stream.iter().for_each(|&flow| exact[flow as usize] += 1);
    let mut order: Vec<u64> = (0..flows).collect();
    order.sort_unstable_by_key(|&flow| std::cmp::Reverse(exact[flow as usize]));
    let hashes: Vec<u64> = stream.iter().map(|&flow| mix(flow + 1)).collect();
    let keys: Vec<Key<2>> = stream.iter().map(|&flow| Key([flow, 7])).collect();
    let ones = vec![1; packets];
    for entries in [1 << 10, 1 << 12, 1 << 14, 1 << 16] {
        let mut summary = HeavyHitters::<2>::new(entries)?;
        summary.add_batch(&hashes, &keys, &ones);
        let case = format!("zipf/2^{}-entries", entries.ilog2());
        let top = summary.top(100);
        let mut truth = order[..100].iter();
        let recall = truth.by_ref().filter(|&&flow| top.hitters.iter().any(|h| h.key.0[0] == flow)).count();
        measurement("heavy-hitters", &case, "recall-100", &mut [recall as f64 / 100.0], 0);
        let widest = top.hitters.iter().map(|h| (h.at_most - h.at_least) as f64 / h.at_most as f64);
        measurement("heavy-hitters", &case, "width-of-bounds", &mut widest.collect::<Vec<_>>(), 0);
        measurement("heavy-hitters", &case, "others-at-most", &mut [top.others_at_most as f64], 0);
        measurement("heavy-hitters", &case, "the-101st", &mut [exact[order[100] as usize] as f64], 0);
        rate("heavy-hitters", &format!("{case}/add"), &hashes, |range| {
            summary.add_batch(&hashes[range.clone()], &keys[range.clone()], &ones[range]);
        });
        rate("heavy-hitters", &format!("{case}/add-single"), &hashes, |range| {
            range.for_each(|i| summary.add(hashes[i], &keys[i], 1));
        });
        // A flood: every packet a new flow.
        let mut next = 0;
        rate(
            "heavy-hitters",
            &format!("flood/2^{}-entries/add", entries.ilog2()),
            &hashes[..QUERIES],
            |range| {
                let flood: [u64; BURST] = std::array::from_fn(|i| next + i as u64);
                next += BURST as u64;
                summary.add_batch(
                    &flood.map(mix)[..range.len()],
                    &flood.map(|i| Key([i, 8])),
                    &ones[..BURST],
                );
            },
        );
    }
    for counters in [1 << 16, 1 << 21] {
        let mut sketch = CountMin::new(counters)?;
        let (weights, mut counts) = (vec![1; BURST], vec![0; BURST]);
        for burst in hashes.chunks(BURST) {
            sketch.add_batch(burst, &weights, &mut counts);
        }
        let case = format!("zipf/2^{}-counters", counters.ilog2());
        let excess: u64 =
            (0..flows).map(|flow| u64::from(sketch.get(mix(flow + 1))) - exact[flow as usize]).sum();
        measurement("count-min", &case, "mean-excess", &mut [excess as f64 / flows as f64], 0);
        rate("count-min", &format!("{case}/add"), &hashes, |range| {
            sketch.add_batch(&hashes[range], &weights, &mut counts);
        });
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut sizes, mut only_filters): (Vec<u32>, bool) = (Vec::new(), false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--filters" => only_filters = true,
            log2 => sizes.push(log2.parse()?),
        }
    }
    if sizes.is_empty() {
        sizes = vec![16, 24];
    }
    if sizes.iter().any(|size| *size > 28) {
        return Err("sizes go up to 28".into());
    }
    for log2 in sizes {
        filters(log2)?;
    }
    if only_filters {
        return Ok(());
    }
    cardinality()?;
    heavy()
}
