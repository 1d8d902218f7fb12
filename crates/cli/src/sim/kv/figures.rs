//! The figures of Tokusashi's thesis (2019), section 3.5.4 and 3.6, with what its text states beside ours.
//!
//! Assumed, because it is not published: key popularity (see `tidemill_cachesim::model`), half of the requests as warm-up, and what each
//! function here says. Capacities in bytes become entries by the models' mean entry: 64 bytes of key for each 64 begun, and a chunk.

use super::Kv;
use super::sweep::REQUESTS;
use crate::bench::drawing::{Panel, Point, Series, X};
use crate::progress::Progress;
use crate::sim::study::{Figure, Made, in_parallel, threads};
use anyhow::{Result, anyhow};
use tidemill_cachesim::Log;
use tidemill_cachesim::model::{Model, entry_bytes};
use tidemill_cachesim::policy::Policy;
use tidemill_cachesim::run::{HashName, Run, Ways};
use tidemill_cachesim::slab::{Chunks, Slab, SlabPolicy};
use tidemill_cachesim::throughput::{Behind, Query, answered_mops, l1_mops};
use tidemill_cachesim::tiers::{Inclusion, Tiers, TiersConfig, Write};

/// The L1 of Figure 3.10, bytes.
const L1_BYTES: f64 = 92e6;
/// The L1 of Figure 3.11: the chunks of type A, 288 MB in all, as entries.
const L1_ENTRIES: usize = 6 * 70 * 1024;
/// The L1 of Figure 3.12, entries.
const L1_LARGE: usize = 2 << 20;
/// 10 Gbit/s, bytes per second.
const LINE_RATE: f64 = 1.25e9;
/// Gets of 64-byte keys at 10 Gbit/s, million per second (3.6.7).
const OFFERED_MOPS: f64 = 9.32;

pub(super) const FIGURES: &[Figure<Kv>] = &[
    Figure {
        name: "tok-3.8",
        title: "Throughput of L1 by processing elements (Tokusashi 2019, Figure 3.8)",
        make: elements,
    },
    Figure {
        name: "tok-3.9",
        title: "DMA traffic between L1 and L2, write-through and write-back (Tokusashi 2019, Figure 3.9)",
        make: traffic,
    },
    Figure {
        name: "tok-3.10",
        title: "L1 misses by associativity (Tokusashi 2019, Figure 3.10)",
        make: associativity,
    },
    Figure {
        name: "tok-3.11",
        title: "Misses of inclusive and non-inclusive tiers by L2's size (Tokusashi 2019, Figure 3.11)",
        make: inclusion,
    },
    Figure {
        name: "tok-3.12",
        title: "L1 misses by eviction policy (Tokusashi 2019, Figure 3.12)",
        make: eviction,
    },
    Figure {
        name: "tok-3.13",
        title: "L1 misses by slab configuration (Tokusashi 2019, Figure 3.13, Table 3.6)",
        make: slabs,
    },
    Figure {
        name: "tok-3.14",
        title: "Throughput by L1 misses, with and without L2 (Tokusashi 2019, Figure 3.14)",
        make: throughput,
    },
];

/// Half of the requests are warm-up.
fn warm(log: &Log) -> usize {
    log.requests().len() / 2
}

/// Does something with each model's log.
fn each_model<R>(args: &Kv, what: &str, mut work: impl FnMut(&Model, &Log) -> Result<R>) -> Result<Vec<R>> {
    let progress = Progress::new(what, Model::ALL.len() as u64);
    let one = |model: &Model| {
        progress.message(model.name);
        let log = model.log(args.requests.unwrap_or(REQUESTS), args.seed);
        let result = work(model, &log.ok_or_else(|| anyhow!("{}: the model cannot be made", model.name))?);
        progress.add(1);
        result
    };
    Model::ALL.iter().map(one).collect()
}

fn cache(args: &Kv, policy: Policy, ways: Ways, capacity: usize) -> Run {
    Run { policy, ways, capacity, hash: HashName::Crc32, seed: args.seed }
}

/// Percent of the gets, to be printed.
fn percent(ratio: f64) -> f64 {
    100.0 * ratio
}

/// Percent of the gets that each cache misses.
fn misses(args: &Kv, log: &Log, runs: &[Run]) -> Result<Vec<f64>> {
    let one = |run: &Run| run.run(log, warm(log)).map(|counts| percent(counts.miss_ratio()));
    in_parallel(threads(args.jobs), runs, one).into_iter().map(|result| result.map_err(Into::into)).collect()
}

fn named_point(name: impl Into<String>, y: f64, paper: Option<f64>) -> Point {
    Point { x: X::Name(name.into()), y, paper }
}

/// `tok-3.8`: equation 3.1. Sizes on the wire follow from 9.32 M gets/s at 10 Gbit/s: 134 bytes; 198 for a set of 64 bytes.
fn elements(_: &Kv) -> Result<Made> {
    let of = |(query, name): (Query, &str)| {
        Series::new(name, (1..=11).map(|n| (f64::from(n), l1_mops(query, n), None)))
    };
    let needed = |query: Query| {
        (1..100).find(|&n| l1_mops(query, n) >= query.network_mops()).map_or(f64::NAN, f64::from)
    };
    let points = vec![
        named_point("GET (hit)", needed(Query::GetHit), Some(7.0)),
        named_point("SET (miss)", needed(Query::SetMiss), Some(9.0)),
    ];
    let needed = Series { name: "elements".into(), points };
    Ok((
        vec![
            Panel::new("processing elements", "M operations/s", Query::ALL.map(of).into()),
            Panel::new("query", "elements that fill 10 Gbit/s", vec![needed]),
        ],
        vec!["rates of one element are Table 3.5's; nothing is simulated".into()],
    ))
}

/// `tok-3.9`. Assumed: L1 of 92 MB, 8 ways, LRU; L2 sixteen times as large. Write-through is inclusive and write-back is not (3.6.4);
/// beside them write-back in inclusive tiers, which sends no clean value up.
fn traffic(args: &Kv) -> Result<Made> {
    let kinds = [
        ("write-through", Inclusion::Inclusive, Write::Through),
        ("write-back", Inclusion::NonInclusive, Write::Back),
        ("write-back, inclusive", Inclusion::Inclusive, Write::Back),
    ];
    let rates = each_model(args, "tok-3.9", |_, log| {
        let capacity = (L1_BYTES / entry_bytes(log)) as usize;
        let one = |&(_, inclusion, write): &(&str, Inclusion, Write)| {
            let l1 = cache(args, Policy::Lru, Ways::Sets(8), capacity);
            let l2 = Some(cache(args, Policy::Lru, Ways::Full, 16 * capacity));
            let mut tiers = Tiers::new(log, TiersConfig { l0: None, l1, l2, inclusion, write })?;
            Ok(tiers.run(warm(log)).dma_rate(LINE_RATE) / 1e9)
        };
        in_parallel(threads(args.jobs), &kinds, one).into_iter().collect::<Result<Vec<f64>>>()
    })?;
    let series = kinds.iter().enumerate().map(|(kind, (name, ..))| {
        let point = |(model, rates): (&Model, &Vec<f64>)| named_point(model.name, rates[kind], None);
        Series { name: (*name).into(), points: Model::ALL.iter().zip(&rates).map(point).collect() }
    });
    let notes = vec![
        "lines of the paper's figure, GB/s: 10GbE 1.25; PCI Express Gen2 x8 4; Gen3 x8 7.69 (7.06 achieved)".into(),
        "the paper: a large gap for VAR and SYS, not significant for the others; with write-through VAR and SYS need more than 10GbE".into(),
        "without locality in time most of what L1 takes in pushes something out: non-inclusive tiers pay for that by a value that crosses, inclusive ones only where it is dirty".into(),
        "requests at 10 Gbit/s; both directions together; frames, replies and evicted values count (crates/cachesim/src/tiers.rs)".into(),
    ];
    Ok((vec![Panel::new("workload", "GB/s between NIC and host", series.collect())], notes))
}

/// `tok-3.10`. Assumed: LRU.
fn associativity(args: &Kv) -> Result<Made> {
    const WAYS: [usize; 4] = [1, 2, 4, 8];
    let mut notes = vec![
        "the paper: 2 to 8 ways have 2 to 7 % fewer misses than one in USR, SYS and VAR; in ETC associativity does not matter".into(),
    ];
    let all = each_model(args, "tok-3.10", |model, log| {
        let capacity = (L1_BYTES / entry_bytes(log)) as usize;
        notes.push(format!("{}: 92 MB are {capacity} entries for {} keys", model.name, model.keys));
        misses(args, log, &WAYS.map(|ways| cache(args, Policy::Lru, Ways::Sets(ways), capacity)))
    })?;
    let of = |i: usize| {
        let points =
            Model::ALL.iter().zip(&all).map(|(model, misses)| named_point(model.name, misses[i], None));
        Series { name: format!("{} way{}", WAYS[i], if i == 0 { "" } else { "s" }), points: points.collect() }
    };
    let fewer = |i: usize| {
        let points = Model::ALL.iter().zip(&all);
        let points = points.map(|(model, misses)| named_point(model.name, misses[0] - misses[i], None));
        Series { name: format!("{} ways", WAYS[i]), points: points.collect() }
    };
    let panels = vec![
        Panel::new("workload", "percent of gets that L1 misses", (0..4).map(of).collect()),
        Panel::new("workload", "percentage points fewer than with one way", (1..4).map(fewer).collect()),
    ];
    Ok((panels, notes))
}

/// `tok-3.11`. Assumed: L1 has type A's 430,080 chunks as entries, 8 ways, LRU; L2 is LRU, fully associative. Inclusive tiers of one size are L1 alone, as
/// the paper says.
fn inclusion(args: &Kv) -> Result<Made> {
    const RATIOS: [usize; 6] = [1, 2, 4, 8, 16, 32];
    let kinds = [(Inclusion::Inclusive, Write::Through), (Inclusion::NonInclusive, Write::Back)];
    let cases: Vec<_> = kinds.into_iter().flat_map(|kind| RATIOS.map(|ratio| (kind, ratio))).collect();
    let all = each_model(args, "tok-3.11", |_, log| {
        let one = |&((inclusion, write), ratio): &((Inclusion, Write), usize)| {
            let l1 = cache(args, Policy::Lru, Ways::Sets(8), L1_ENTRIES);
            let alone = inclusion == Inclusion::Inclusive && ratio == 1;
            let l2 = (!alone).then(|| cache(args, Policy::Lru, Ways::Full, ratio * L1_ENTRIES));
            let mut tiers = Tiers::new(log, TiersConfig { l0: None, l1, l2, inclusion, write })?;
            Ok(percent(tiers.run(warm(log)).miss_ratio()))
        };
        in_parallel(threads(args.jobs), &cases, one).into_iter().collect::<Result<Vec<f64>>>()
    })?;
    let (mut misses, mut fewer) = (Vec::new(), Vec::new());
    for (model, percents) in Model::ALL.iter().zip(&all) {
        let (inclusive, other) = percents.split_at(RATIOS.len());
        let paper = |ratio| match model.name {
            "usr" if ratio == 1 => Some(75.8),
            "sys" if ratio == 1 => Some(52.1),
            _ => None,
        };
        let at = |of: &[f64], paper: &dyn Fn(usize) -> Option<f64>| -> Vec<(f64, f64, Option<f64>)> {
            RATIOS.iter().zip(of).map(|(&ratio, &y)| (ratio as f64, y, paper(ratio))).collect()
        };
        misses.push(Series::new(format!("{}, inclusive", model.name), at(inclusive, &paper)));
        misses.push(Series::new(format!("{}, non-inclusive", model.name), at(other, &|_| None)));
        let less: Vec<f64> = inclusive.iter().zip(other).map(|(a, b)| a - b).collect();
        fewer.push(Series::new(model.name, at(&less, &|_| None)));
    }
    let panels = vec![
        Panel::new("L2's capacity to L1's", "percent of gets that reach memcached", misses),
        Panel::new("L2's capacity to L1's", "percentage points fewer if non-inclusive", fewer),
    ];
    let notes = vec![
        "the paper: non-inclusive up to 15 % better at ratio 1, much the same beyond 16".into(),
        "USR's and SYS's numbers of keys were chosen so that L1 alone misses what the paper states: these two points are no finding".into(),
    ];
    Ok((panels, notes))
}

/// `tok-3.12`. The paper's policies, and those that came after.
fn eviction(args: &Kv) -> Result<Made> {
    const WAYS: [usize; 3] = [2, 4, 8];
    const POLICIES: [Policy; 6] =
        [Policy::Random, Policy::Lru, Policy::Fifo, Policy::Clock, Policy::Sieve, Policy::S3Fifo];
    let cases: Vec<Run> = POLICIES
        .into_iter()
        .flat_map(|policy| WAYS.map(|ways| cache(args, policy, Ways::Sets(ways), L1_LARGE)))
        .collect();
    let all = each_model(args, "tok-3.12", |_, log| misses(args, log, &cases))?;
    let panel = |(model, percents): (&Model, &Vec<f64>)| {
        let series = POLICIES.iter().zip(percents.chunks(WAYS.len()));
        let of = |(policy, of): (&Policy, &[f64])| {
            Series::new(policy.name(), WAYS.iter().zip(of).map(|(&ways, &y)| (ways as f64, y, None)))
        };
        let y = format!("percent of gets that L1 misses, {}", model.name.to_uppercase());
        Panel::new("ways", y, series.map(of).collect())
    };
    let notes = vec![
        "the paper: fewer misses with more ways, except in ETC; LRU is no better than random".into(),
        "2M entries are 2^21; with as many entries as a model has keys and more, what is missed is what was never asked for".into(),
    ];
    Ok((Model::ALL.iter().zip(&all).map(panel).collect(), notes))
}

/// `tok-3.13`. Assumed: k is 1024; the least recently used value of a size goes; the hash table has room for all.
fn slabs(args: &Kv) -> Result<Made> {
    let all = each_model(args, "tok-3.13", |_, log| {
        let one = |(_, chunks): &(&str, Chunks)| {
            let mut slab = Slab::new(log.keys().len(), *chunks, SlabPolicy::Lru);
            percent(slab.run(log, warm(log)).miss_ratio())
        };
        Ok(in_parallel(threads(args.jobs), &Chunks::TYPES, one))
    })?;
    let of = |(model, percents): (&Model, &Vec<f64>)| {
        let paper = |letter| if model.name == "app" && letter == "E" { Some(40.0) } else { None };
        let types = Chunks::TYPES.iter().zip(percents);
        let points = types.map(|((letter, _), &y)| named_point(*letter, y, paper(*letter))).collect();
        Series { name: model.name.into(), points }
    };
    let series = Model::ALL.iter().zip(&all).map(of).collect();
    let notes = vec![
        "the paper: APP misses more than 70 % with C and 40 % with E; in USR types with more small chunks miss less".into(),
        "APP's number of keys was chosen so that type E misses what the paper states: that point is no finding".into(),
    ];
    Ok((vec![Panel::new("type", "percent of gets that L1 misses", series)], notes))
}

/// `tok-3.14`. Assumed: L2 answers 3.3 M/s (the rate that section 3.4 quotes), memcached 0.962 M/s (Table 4.1); L1 keeps up.
fn throughput(_: &Kv) -> Result<Made> {
    let with = Behind { l2: Some((3.3, 0.15)), memcached_mops: 0.962 };
    let without = Behind { l2: None, memcached_mops: 0.962 };
    let of = |name: &str, behind| {
        let at = |tenths: u32| answered_mops(OFFERED_MOPS, f64::from(tenths) / 10.0, behind);
        Series::new(name, (1..=9).map(|tenths| (f64::from(tenths) * 10.0, at(tenths), None)))
    };
    let series = vec![of("L1, L2 and memcached", with), of("L1 and memcached", without)];
    let notes = vec![
        "the paper: with L2 slowly down while L1 misses less than 40 %; without L2 linearly".into(),
        "9.32 M gets/s, L2 misses 15 %; nothing is simulated: each stage answers what it can".into(),
    ];
    Ok((vec![Panel::new("percent that L1 misses", "M gets/s answered", series)], notes))
}
