//! Rates; insertions into a filter that fills up.

use super::count::{MILLIONS, frame};
use super::shape::Shape;
use super::subject::{self, Traffic, lookups};
use super::{MLPS, TRAFFIC};
use crate::bench::drawing::{Drawing, Panel, Series};
use crate::bench::figures::Setting;
use crate::bench::figures::measure::Built;
use crate::bench::pass::{Order, expected, on_huge_pages, sustained, timed_pass};
use crate::bench::statistics::median;
use crate::progress::Progress;
use anyhow::{Result, bail};
use std::time::Instant;
use tidemill_lpm::cuvpp::{CuckooFilter, Fingerprint};
use tidemill_lpm::keys::Random;
use tidemill_lpm::{Label, Oracle, Prefix, Rib};

/// Rates of the paper's four structures, by size, for random keys and for keys inside prefixes.
type Stated = [[[f64; 4]; subject::PAPERS]; 2];

/// Figure 6, of the authors' raw data.
pub(super) const RV_LINX: Stated = [
    [
        [1.792, 1.742, 1.748, 1.650],
        [2.075, 1.724, 1.462, 1.374],
        [1.931, 1.825, 1.724, 1.712],
        [2.101, 2.110, 2.075, 2.049],
    ],
    [
        [1.832, 1.812, 1.748, 1.689],
        [2.092, 1.684, 1.497, 1.377],
        [1.953, 2.016, 1.969, 1.931],
        [2.165, 2.075, 2.066, 2.083],
    ],
];

/// Figure 7, likewise.
pub(super) const DT_IP6: Stated = [
    [
        [3.472, 3.289, 3.205, 3.165],
        [3.759, 3.356, 3.067, 2.732],
        [1.543, 1.730, 1.718, 1.656],
        [3.623, 3.425, 3.676, 3.704],
    ],
    [
        [3.356, 3.268, 3.067, 3.049],
        [3.876, 3.521, 3.165, 2.907],
        [1.672, 1.812, 1.866, 1.852],
        [3.817, 3.676, 3.650, 3.788],
    ],
];

/// M lookups/s of one thread, the structures in turn: the median over the runs of each.
///
/// # Errors
/// A checksum that is not the oracle's.
pub(super) fn rates(
    setting: &Setting<'_>,
    rib: &Rib<u128>,
    built: &[Built<u128>],
    traffic: Traffic,
    keys: &[u128],
) -> Result<Vec<f64>> {
    rates_in_batches(setting, rib, built, traffic, keys, setting.args.batch)
}

/// The same with another number of keys asked for at a time.
fn rates_in_batches(
    setting: &Setting<'_>,
    rib: &Rib<u128>,
    built: &[Built<u128>],
    traffic: Traffic,
    keys: &[u128],
    batch: usize,
) -> Result<Vec<f64>> {
    let order = Order::Independent { batch };
    let expected = expected(&Oracle::new(&crate::tables::routes(rib)), keys, order);
    let what = format!("{}, {} prefixes, {}", setting.figure.name, rib.len(), traffic.name());
    let progress = Progress::new(what, (setting.args.runs * built.len()) as u64);
    let mut rates = vec![Vec::new(); built.len()];
    for run in 0..setting.args.runs {
        // Who goes first changes from run to run.
        for i in (0..built.len()).map(|i| (i + run) % built.len()) {
            let Built { name, fib, .. } = &built[i];
            progress.message(name.as_str());
            let mut wrong = None;
            rates[i].push(sustained(setting.args.slice(), keys.len(), || {
                let pass = timed_pass(fib.as_ref(), keys, order);
                if pass.checksum != expected {
                    wrong = Some(pass.checksum);
                }
                pass.time
            }));
            if let Some(wrong) = wrong {
                bail!("WRONG: {name}, {}: checksum {wrong}, the oracle's is {expected}", traffic.name());
            }
            progress.add(1);
        }
    }
    Ok(rates.iter().map(|rates| median(rates)).collect())
}

/// Of [`subject::all`] those from here on answer several keys together: `length-search`, `cuvpp-simd` and `cuvpp-lengths`.
const BATCHING: usize = subject::PAPERS;

/// A panel for each kind of keys: by x, the structures' rates.
struct Panels(Vec<Panel>);

impl Panels {
    fn new(x: &str) -> Self {
        Panels(TRAFFIC.map(|traffic| Panel::new(x, format!("{MLPS}, {}", traffic.name()), Vec::new())).into())
    }

    /// Measures the structures on a table; what the paper states there, by traffic and structure.
    fn add(
        &mut self,
        setting: &Setting<'_>,
        rib: &Rib<u128>,
        x: f64,
        paper: impl Fn(usize, usize) -> Option<f64>,
    ) -> Result<()> {
        let built = subject::all(setting, rib)?;
        for (of, (panel, traffic)) in self.0.iter_mut().zip(TRAFFIC).enumerate() {
            let keys = on_huge_pages(traffic.keys(rib, lookups(setting), setting.args.seed));
            let all = rates(setting, rib, &built, traffic, &keys)?;
            let names = built.iter().map(|built| built.name.clone());
            let mut all: Vec<(String, f64)> = names.zip(all).collect();
            // The paper's four answer key by key, whatever they are asked for at a time; these do not.
            let (batching, from) = (&built[BATCHING..], built.len());
            let singly = rates_in_batches(setting, rib, batching, traffic, &keys, 1)?;
            all.extend(batching.iter().map(|built| format!("{}, key by key", built.name)).zip(singly));
            for (i, (name, rate)) in all.into_iter().enumerate() {
                if panel.series.len() <= i {
                    panel.series.push(Series::new(name.as_str(), []));
                }
                let stated = if i < from { paper(of, i) } else { None };
                let point = Series::new("", [(x, rate, stated)]);
                panel.series[i].points.extend(point.points);
            }
        }
        Ok(())
    }
}

/// Figures 6 and 7.
pub(super) fn by_size(
    setting: &Setting<'_>,
    shape: &Shape,
    paper: Stated,
    sizes: &[usize],
) -> Result<Drawing> {
    let shape = shape.clone().or_of_table(setting);
    let mut panels = Panels::new(MILLIONS);
    for (at, &size) in sizes.iter().enumerate() {
        let stated = |traffic: usize, i: usize| {
            let of = super::count::SIZES.get(at).filter(|&&of| of == size);
            of.and_then(|_| paper[traffic].get(i)).map(|rates| rates[at])
        };
        panels.add(setting, &shape.table(size, setting.args.seed), size as f64 / 1e6, stated)?;
    }
    Ok(Drawing {
        panels: panels.0,
        notes: vec![
            "hash-per-length is the paper's Base VPP, bloom-lpm VPP with a Bloom filter, two-way-trie VPP with a trie; both filters have 6 MB, \
             whatever the table, and so has that of cuvpp-simd and, if its markers fit, of cuvpp-lengths"
                .into(),
            "the paper's numbers: the authors' raw data, of which it draws the figure; a Xeon E5-2640 v4".into(),
        ],
        ..frame(setting, &shape, "of the sizes below")
    })
}

/// A prefix of each of the first `count` lengths, all around one address.
fn nested(count: usize, seed: u64) -> Rib<u128> {
    let address = Random::new(seed).address();
    let prefixes = (0..count).filter_map(|len| Prefix::new(address, len as u8));
    prefixes.zip(1..).map(|(prefix, label)| (prefix, Label(label))).collect()
}

/// Table I.
pub(super) fn by_lengths(setting: &Setting<'_>) -> Result<Drawing> {
    const LENGTHS: [usize; 3] = [1, 33, 129];
    // By traffic: M packets a second, and cycles of a packet.
    const RATES: [[f64; 3]; 2] = [[8.55, 4.34, 1.70], [8.60, 4.30, 1.68]];
    const CYCLES: [[f64; 3]; 2] = [[452.0, 899.0, 1610.0], [441.0, 923.0, 1490.0]];
    let mut panels = Panels::new("prefix lengths");
    for (at, &count) in LENGTHS.iter().enumerate() {
        let rib = nested(count, setting.args.seed);
        panels.add(setting, &rib, count as f64, |traffic, i| (i == 0).then_some(RATES[traffic][at]))?;
    }
    // What more lengths cost: each structure's own time with one length is 1.
    let slower = panels.0.iter().zip(CYCLES).zip(TRAFFIC).map(|((panel, cycles), traffic)| {
        let series = panel.series.iter().enumerate().map(|(i, Series { name, points })| {
            let first = points[0].y;
            let times = LENGTHS.iter().zip(points).zip(cycles);
            Series::new(
                name.as_str(),
                times.map(|((&count, point), of)| {
                    (count as f64, first / point.y, (i == 0).then_some(of / cycles[0]))
                }),
            )
        });
        let y = format!("time of a lookup, {}, by that with one length", traffic.name());
        Panel::new("prefix lengths", y, series.collect())
    });
    let slower: Vec<Panel> = slower.collect();
    Ok(Drawing {
        panels: panels.0.into_iter().chain(slower).collect(),
        notes: vec![
            "the paper's rates are of a whole VPP that forwards packets, its times ratios of the cycles that it states: 452, 899 and 1610 (random). \
             Rate times cycles is 3.9, 3.9 and 2.7 GHz, on a processor of 2.4 GHz"
                .into(),
            "one prefix of each length, from /0 on, each inside the one before; the search begins with the longest".into(),
        ],
        table: Some(
            "no table: one prefix of each length around a random address, made here as the paper makes its own"
                .into(),
        ),
        ..setting.figure.drawing(setting)
    })
}

/// Figure 12.
pub(super) fn insertions(setting: &Setting<'_>, slots: usize) -> Result<Drawing> {
    const STEPS: usize = 20;
    // The text: no moves up to this load.
    const FREE: f64 = 0.8;
    let step = (slots / STEPS).max(1);
    // By run: load, ns and moves of an insertion on the way there.
    let mut runs: Vec<Vec<[f64; 3]>> = Vec::new();
    for run in 0..setting.args.runs as u64 {
        let mut filter = CuckooFilter::<4>::new(slots / 4, Fingerprint::default());
        let mut random = Random::new(setting.args.seed.wrapping_add(run << 32));
        let mut points = Vec::new();
        let mut full = false;
        while !full {
            let hashes: Vec<u64> = (0..step).map(|_| random.bits()).collect();
            let (before, moves, start) = (filter.len(), filter.moves(), Instant::now());
            full = hashes.iter().any(|&hash| filter.insert(hash, &()).is_err());
            let ns = start.elapsed().as_secs_f64() * 1e9;
            let inserted = (filter.len() - before) as f64;
            if inserted > 0.0 {
                points.push([filter.load(), ns / inserted, (filter.moves() - moves) as f64 / inserted]);
            }
        }
        runs.push(points);
    }
    // Where it is full differs a little from run to run.
    let steps = runs.iter().map(Vec::len).min().unwrap_or(0);
    let over_runs =
        |at: usize, of: usize| median(&runs.iter().map(|points| points[at][of]).collect::<Vec<_>>());
    let series = |of: usize, paper: fn(f64) -> Option<f64>| {
        let points = (0..steps).map(|at| (over_runs(at, 0), over_runs(at, of)));
        Series::new("cuckoo filter", points.map(|(load, y)| (load, y, paper(load))))
    };
    // A step may end a slot behind the load that it is for.
    let moves = |load| (load < FREE + 0.001).then_some(0.0);
    Ok(Drawing {
        panels: vec![
            Panel::new("load", "ns for an insertion", vec![series(1, |_| None)]),
            Panel::new("load", "cuckoo moves for an insertion", vec![series(2, moves)]),
        ],
        notes: vec![format!(
            "{slots} slots in buckets of 4, {step} insertions a point, the last up to the first that finds no place in {} moves; the paper: no \
             moves up to a load of 0.8, a few at 0.9, many when full",
            tidemill_lpm::cuvpp::KICKS
        )],
        table: Some("no table: a filter alone, with random hashes; instead of the paper's prefixes".into()),
        ..setting.figure.drawing(setting)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_prefixes_have_every_length_once() {
        for count in [1, 33, 129] {
            let lengths: Vec<usize> =
                nested(count, 1).iter().map(|(prefix, _)| prefix.len().into()).collect();
            assert_eq!(lengths, (0..count).collect::<Vec<_>>());
        }
    }

    /// The text's "18 to 23 %" over Base VPP and so on are those of 500,000 and of 2 million prefixes, keys inside prefixes.
    #[test]
    fn the_raw_data_is_the_texts() {
        let percent = |stated: &Stated, other: usize| {
            [0, 3].map(|at| (stated[1][3][at] / stated[1][other][at] * 100.0 - 100.0).floor() as i32)
        };
        assert_eq!([0, 1, 2].map(|other| percent(&RV_LINX, other)), [[18, 23], [3, 51], [10, 7]]);
        // The text has 4 where there is -2, with which CuVPP is not the quickest.
        assert_eq!([0, 1, 2].map(|other| percent(&DT_IP6, other)), [[13, 24], [-2, 30], [128, 104]]);
    }
}
