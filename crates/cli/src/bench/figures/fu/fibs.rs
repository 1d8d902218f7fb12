//! Several FIBs in one structure, and tables with more long prefixes.

use super::speed::{MLPS, Timed, alternate, build_all, rates};
use super::{extremes, keys, paper};
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::figures::Setting;
use crate::bench::pass::{BLOCK, Checksum, Pass};
use anyhow::Result;
use std::time::{Duration, Instant};
use tidemill_lpm::keys::{Pattern, Random};
use tidemill_lpm::sail::Overlay;
use tidemill_lpm::{Label, Oracle, Prefix, Rib};

/// The paper's FIBs.
const FIBS: usize = 12;
/// Of so many routes of a table one is not in a FIB that is derived from it.
const DROPPED: usize = 20;

/// A FIB that differs from a table in one route of so many, and in the labels.
fn derived(rib: &Rib<u32>, number: usize) -> Rib<u32> {
    let mut random = Random::new(number as u64);
    let labels = rib.iter().map(|(_, label)| label.0).max().unwrap_or(0).max(1);
    let kept = rib.iter().filter(|_| random.below(DROPPED) > 0);
    kept.map(|(prefix, label)| {
        let other = 1 + (label.0.wrapping_add(number as u32)) % labels;
        (prefix, if label == Label::NONE { label } else { Label(other) })
    })
    .collect()
}

/// x, y, the paper's y.
type Points = Vec<(f64, f64, Option<f64>)>;

/// A key and its FIB.
type Key = (u32, usize);

/// Keys for each of the FIBs in turn.
fn keys_in(
    ribs: &[Rib<u32>],
    count: usize,
    seed: u64,
    of: impl Fn(&Rib<u32>, usize, u64) -> Vec<u32>,
) -> Vec<Key> {
    let each: Vec<Vec<u32>> = (0_u64..)
        .zip(ribs)
        .map(|(i, rib)| of(rib, count.div_ceil(ribs.len()), seed.wrapping_add(i << 32)))
        .collect();
    (0..count).map(|i| (each[i % ribs.len()][i / ribs.len()], i % ribs.len())).collect()
}

/// One pass over keys, as [`crate::bench::pass::timed_pass`].
fn timed(keys: &[Key], batch: usize, look_up: impl Fn(&[Key], &mut [Label])) -> Pass {
    let mut labels = vec![Label::NONE; BLOCK];
    let (mut checksum, mut time) = (Checksum::new(), Duration::ZERO);
    for block in keys.chunks(BLOCK) {
        let labels = &mut labels[..block.len()];
        let start = Instant::now();
        for (keys, out) in block.chunks(batch).zip(labels.chunks_mut(batch)) {
            look_up(keys, out);
        }
        time += start.elapsed();
        checksum.add(labels);
    }
    Pass { time, checksum: checksum.text() }
}

/// Figure 3.12.
pub(super) fn overlaid(setting: &Setting<'_>) -> Result<Drawing> {
    let own = setting.tables.len().min(FIBS);
    let tables: Vec<&Rib<u32>> = setting.tables[..own].iter().map(|subject| &subject.table.v4).collect();
    let ribs: Vec<Rib<u32>> = (0..FIBS)
        .map(|i| if i < own { tables[i].clone() } else { derived(tables[i % own], i / own) })
        .collect();
    let oracles: Vec<Oracle<u32>> = ribs.iter().map(|rib| Oracle::new(&crate::tables::routes(rib))).collect();
    let mut points = [Vec::new(), Vec::new()];
    let mut bytes = [Vec::new(), Vec::new()];
    for fibs in 1..=FIBS {
        let ribs = &ribs[..fibs];
        let count = setting.args.lookups();
        let random = keys_in(ribs, count, setting.args.seed, |_, count, seed| keys::random(count, seed));
        let in_order = keys_in(ribs, count, setting.args.seed, keys::in_order);
        let (rates, sizes) = match Overlay::<17, 16>::build(ribs) {
            Ok(overlay) => measured(setting, &overlay, &oracles, [&random, &in_order])?,
            Err(_) => measured(setting, &Overlay::<32, 32>::build(ribs)?, &oracles, [&random, &in_order])?,
        };
        for (points, rate) in points.iter_mut().zip(rates) {
            points.push((fibs as f64, rate, None));
        }
        for (bytes, size) in bytes.iter_mut().zip(sizes) {
            bytes.push((fibs as f64, size, None));
        }
    }
    let mean =
        |points: &[(f64, f64, Option<f64>)]| points.iter().map(|point| point.1).sum::<f64>() / FIBS as f64;
    let means = [
        ("random", mean(&points[0]), paper::OVERLAID.0),
        ("for each prefix", mean(&points[1]), paper::OVERLAID.1),
    ];
    let mean = |(name, y, paper): (&str, f64, f64)| Series {
        name: name.into(),
        points: vec![Point { x: X::Name("mean over 1 to 12 FIBs".into()), y, paper: Some(paper) }],
    };
    let [random, in_order] = points;
    let [on_chip, all] = bytes;
    let source = match own {
        FIBS => "all of them are tables of the user's".to_owned(),
        _ => format!(
            "{own} of them tables of the user's, the others derived: without one route of {DROPPED}, at random, and with other labels"
        ),
    };
    Ok(Drawing {
        panels: vec![
            Panel::new(
                "FIBs",
                MLPS,
                vec![Series::new("random", random), Series::new("for each prefix", in_order)],
            ),
            Panel::new("", MLPS, means.map(mean).into()),
            Panel::new("FIBs", "bytes", vec![Series::new("on chip", on_chip), Series::new("all", all)]),
        ],
        notes: vec![
            format!("the FIBs: {source}"),
            "each FIB is asked in turn; keys for each prefix come in the tables' order, as the paper has them".into(),
        ],
        ..setting.figure.drawing(setting)
    })
}

/// Rates for two kinds of keys; bytes on chip, and all.
fn measured<const FLAGGED: u32, const PLAIN: u32>(
    setting: &Setting<'_>,
    overlay: &Overlay<FLAGGED, PLAIN>,
    oracles: &[Oracle<u32>],
    keys: [&[Key]; 2],
) -> Result<(Vec<f64>, [f64; 2])> {
    let expected = keys.map(|keys| {
        let mut checksum = Checksum::new();
        keys.iter().for_each(|&(key, fib)| checksum.add(&[oracles[fib].lookup(key)]));
        checksum.text()
    });
    let subjects: Vec<Timed<'_>> = ["random", "for each prefix"]
        .iter()
        .zip(keys)
        .zip(&expected)
        .map(|((name, keys), expected)| Timed {
            name,
            pass: Box::new(move || {
                timed(keys, setting.args.batch, |keys, out| overlay.lookup_batch_in(keys, out))
            }),
            expected,
            lookups: keys.len(),
        })
        .collect();
    let what = format!("{} FIBs", overlay.fibs());
    // All numbers of FIBs share the time.
    let rates = alternate(setting, &what, setting.args.slice() / (FIBS as u32 / 2), &subjects)?;
    let all = tidemill_lpm::Fib::bytes(overlay) as f64;
    Ok((rates, [overlay.on_chip_bytes() as f64, all]))
}

/// The table with so many more prefixes of 25 to 32 bits, anywhere, that they are `percent` % of all. Their labels are the table's.
fn with_long(rib: &Rib<u32>, percent: f64, seed: u64) -> Rib<u32> {
    let mut random = Random::new(seed);
    let labels: Vec<Label> = rib.iter().map(|(_, label)| label).collect();
    let mut more = rib.clone();
    let wanted = (rib.len() as f64 / (1.0 - percent / 100.0)).round() as usize;
    while more.len() < wanted {
        let len = 25 + random.below(8) as u8;
        let label = labels[random.below(labels.len())];
        if let Some(prefix) = Prefix::new(random.address(), len)
            && more.get(prefix).is_none()
        {
            more.insert(prefix, label);
        }
    }
    more
}

/// Figure 3.13.
pub(super) fn with_long_prefixes(setting: &Setting<'_>) -> Result<Drawing> {
    const NAMES: [&str; 2] = ["sail-l", "poptrie-d18"];
    let mut notes = vec![
        "keys for each prefix, in the table's order as the paper has them and in a mixed one; long prefixes: 25 to 32 bits, at random \
         addresses; the ratios are of the table's order"
            .to_owned(),
        "the paper: SAIL_L is 1.47 to 2.83 times as quick as Poptrie with 1 to 10 % of long prefixes; with real tables (Figure 3.8) 1.23 to 1.32 times".into(),
    ];
    let percents =
        [(0.0, None)].into_iter().chain(paper::LONG.map(|(percent, stated)| (percent, Some(stated))));
    // By structure: slowest and quickest.
    let mut lines: Vec<[Points; 2]> = vec![Default::default(); NAMES.len()];
    let mut mixed_lines: Vec<[Points; 2]> = vec![Default::default(); NAMES.len()];
    let mut over: [Points; 2] = Default::default();
    for (percent, stated) in percents {
        let mut by_structure = vec![Vec::new(); NAMES.len()];
        let mut mixed_by_structure = by_structure.clone();
        for subject in &setting.tables {
            let rib = with_long(&subject.table.v4, percent, setting.args.seed);
            let built = build_all(setting, &rib, &NAMES, &mut notes)?;
            let oracle = Oracle::new(&crate::tables::routes(&rib));
            let (count, seed) = (setting.args.lookups(), setting.args.seed);
            let in_order = keys::in_order(&rib, count, seed);
            let mixed = tidemill_lpm::keys::keys(&rib, Pattern::PrefixBased, count, seed);
            let slice = setting.args.slice() / 4;
            for (keys, order, rates_of) in [
                (in_order, "in the table's order", &mut by_structure),
                (mixed, "in a mixed order", &mut mixed_by_structure),
            ] {
                let what = format!("{} with {percent} % long prefixes, {order}", subject.name);
                let found = rates(setting, &built, &oracle, &keys, (&what, slice))?;
                for (built, rate) in built.iter().zip(found) {
                    let at = NAMES.iter().position(|name| *name == built.name).unwrap_or(0);
                    rates_of[at].push(rate);
                }
            }
        }
        for (i, rates) in by_structure.iter().enumerate().filter(|(_, rates)| !rates.is_empty()) {
            let (least, most) = extremes(rates.iter().copied());
            let stated = stated.map(|stated| stated[i]);
            lines[i][0].push((percent, least, stated.map(|paper| paper.0)));
            lines[i][1].push((percent, most, stated.map(|paper| paper.1)));
            let (least, most) = extremes(mixed_by_structure[i].iter().copied());
            mixed_lines[i][0].push((percent, least, None));
            mixed_lines[i][1].push((percent, most, None));
        }
        let ratios = by_structure[0].iter().zip(&by_structure[1]).map(|(sail, poptrie)| sail / poptrie);
        let (least, most) = extremes(ratios);
        over[0].push((percent, least, None));
        over[1].push((percent, most, None));
    }
    let both = |name: &str, [least, most]: [Vec<(f64, f64, Option<f64>)>; 2]| {
        [Series::new(format!("{name}, slowest table"), least), Series::new(format!("{name}, quickest"), most)]
    };
    let of = |points: &Points| extremes(points.iter().filter(|point| point.0 > 0.0).map(|point| point.1));
    let summary =
        [("least", of(&over[0]).0, paper::LONG_OVER.0), ("most", of(&over[1]).1, paper::LONG_OVER.1)];
    let summary = summary.map(|(name, y, paper)| Series {
        name: name.into(),
        points: vec![Point { x: X::Name("1 to 10 % of long prefixes".into()), y, paper: Some(paper) }],
    });
    let [least, most] = over;
    let of_order = |lines: Vec<[Points; 2]>| {
        NAMES.iter().zip(lines).flat_map(|(name, lines)| both(name, lines)).collect::<Vec<_>>()
    };
    Ok(Drawing {
        panels: vec![
            Panel::new("% of long prefixes", MLPS, of_order(lines)),
            Panel::new("% of long prefixes", format!("{MLPS}, in a mixed order"), of_order(mixed_lines)),
            Panel::new(
                "% of long prefixes",
                "sail-l's rate over Poptrie's",
                vec![Series::new("least", least), Series::new("most", most)],
            ),
            Panel::new("", "sail-l's rate over Poptrie's", summary.into()),
        ],
        notes,
        ..setting.figure.drawing(setting)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rib() -> Rib<u32> {
        (0..2000_u32).filter_map(|i| Some((Prefix::new(i << 12, 24)?, Label(1 + i % 9)))).collect()
    }

    #[test]
    fn derived_tables_are_like_the_first_and_like_none_of_the_others() {
        let (rib, [a, b]) = (rib(), [1, 2].map(|number| derived(&rib(), number)));
        for other in [&a, &b] {
            assert!((1800..2000).contains(&other.len()), "{}", other.len());
            assert!(other.iter().all(|(prefix, label)| rib.get(prefix).is_some_and(|l| l != label)));
            assert!(other.iter().all(|(_, label)| (1..=9).contains(&label.0)));
        }
        assert!(a.iter().ne(b.iter()) && a.iter().eq(derived(&rib, 1).iter()));
    }

    #[test]
    fn long_prefixes_are_as_many_as_asked_for() {
        for percent in [0.0, 1.0, 5.0, 10.0] {
            let more = with_long(&rib(), percent, 1);
            let long = more.iter().filter(|(prefix, _)| prefix.len() > 24).count();
            assert_eq!(more.len(), 2000 + long);
            assert!((100.0 * long as f64 / more.len() as f64 - percent).abs() < 0.05, "{percent}: {long}");
        }
    }

    #[test]
    fn every_fib_is_asked_its_own_keys() {
        let ribs = [rib(), derived(&rib(), 1)];
        let keys = keys_in(&ribs, 1001, 1, keys::in_order);
        assert_eq!(keys.len(), 1001);
        for (i, (key, fib)) in keys.into_iter().enumerate() {
            assert_eq!(fib, i % 2);
            assert!(ribs[fib].lookup(key).is_some());
        }
    }
}
