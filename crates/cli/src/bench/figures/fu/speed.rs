//! Rates of one thread, of the algorithms that the paper has beside `SAIL_L`.

use super::paper::{self, COMPARED};
use super::{extremes, keys};
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::figures::Setting;
use crate::bench::figures::measure::{Built, build};
use crate::bench::pass::{Order, Pass, expected, on_huge_pages, sustained, timed_pass};
use crate::bench::statistics::median;
use crate::progress::Progress;
use anyhow::{Result, bail};
use std::time::Duration;
use tidemill_lpm::{Algorithm, Oracle, Rib};

/// M lookups/s.
pub(super) const MLPS: &str = "M lookups/s";

/// What is timed, with the checksum that it must have.
pub(super) struct Timed<'a> {
    pub(super) name: &'a str,
    pub(super) pass: Box<dyn Fn() -> Pass + 'a>,
    pub(super) expected: &'a str,
    pub(super) lookups: usize,
}

/// The median rates over the runs, which alternate.
///
/// # Errors
/// A wrong checksum.
pub(super) fn alternate(
    setting: &Setting<'_>,
    what: &str,
    slice: Duration,
    subjects: &[Timed<'_>],
) -> Result<Vec<f64>> {
    let what = format!("{}, {what}", setting.figure.name);
    let progress = Progress::new(what.as_str(), (setting.args.runs * subjects.len()) as u64);
    let mut rates = vec![Vec::new(); subjects.len()];
    for run in 0..setting.args.runs {
        for i in (0..subjects.len()).map(|i| (i + run) % subjects.len()) {
            let Timed { name, pass, expected, lookups } = &subjects[i];
            progress.message(*name);
            let mut wrong = None;
            rates[i].push(sustained(slice, *lookups, || {
                let Pass { time, checksum } = pass();
                if checksum != *expected {
                    wrong = Some(checksum);
                }
                time
            }));
            if let Some(found) = wrong {
                bail!(
                    "WRONG: {name}: {what}: checksum {found}, the oracle's is {expected}: run `fib verify`"
                );
            }
            progress.add(1);
        }
    }
    Ok(rates.iter().map(|rates| median(rates)).collect())
}

/// The rates of structures with these keys.
pub(super) fn rates(
    setting: &Setting<'_>,
    built: &[Built<u32>],
    oracle: &Oracle<u32>,
    keys: &[u32],
    (what, slice): (&str, Duration),
) -> Result<Vec<f64>> {
    let order = Order::Independent { batch: setting.args.batch };
    let expected = expected(oracle, keys, order);
    let subjects: Vec<Timed<'_>> = built
        .iter()
        .map(|built| Timed {
            name: &built.name,
            pass: Box::new(move || timed_pass(built.fib.as_ref(), keys, order)),
            expected: &expected,
            lookups: keys.len(),
        })
        .collect();
    alternate(setting, what, slice, &subjects)
}

/// Which keys, and how often other ones.
struct Traffic {
    name: &'static str,
    keys: fn(&Rib<u32>, usize, u64) -> Vec<u32>,
    traces: u32,
}

/// Builds those that there are and that can hold the table; says which are not.
pub(super) fn build_all(
    setting: &Setting<'_>,
    rib: &Rib<u32>,
    names: &[&str],
    notes: &mut Vec<String>,
) -> Result<Vec<Built<u32>>> {
    let mut all = Vec::new();
    for name in names {
        match Algorithm::parse::<u32>(name) {
            Ok(_) => match build(setting, rib, &[(*name).to_owned()], 1) {
                Ok(built) => all.extend(built),
                Err(error) => notes.push(format!("{name} is left out: {error:#}")),
            },
            Err(_) => notes.push(format!("{name} is left out: there is none here")),
        }
    }
    if all.is_empty() {
        bail!("no structure can hold the table: {}", notes.join("; "));
    }
    Ok(all)
}

/// Figure 3.7.
pub(super) fn trace(setting: &Setting<'_>) -> Result<Drawing> {
    let traffic = Traffic { name: "keys with locality", keys: keys::trace, traces: 1 };
    let note = "in place of real traffic: prefixes by Zipf's law (exponent 1), 16 hosts each likewise, and every second key one of the 64 before";
    compare(setting, &[traffic], &paper::REAL, note)
}

/// Figure 3.8.
pub(super) fn prefix_based(setting: &Setting<'_>) -> Result<Drawing> {
    let in_order = Traffic { name: "in the table's order", keys: keys::in_order, traces: 1 };
    let mixed = Traffic {
        name: "in a mixed order",
        keys: |rib, count, seed| {
            tidemill_lpm::keys::keys(rib, tidemill_lpm::keys::Pattern::PrefixBased, count, seed)
        },
        traces: 1,
    };
    let note = "the paper: in the table's order, so that a lookup finds what it needs where the one before was; the ratios are of that order";
    compare(setting, &[in_order, mixed], &paper::PREFIX_BASED, note)
}

/// Figure 3.9.
pub(super) fn random(setting: &Setting<'_>) -> Result<Drawing> {
    let traffic =
        Traffic { name: "random keys", keys: |_, count, seed| keys::random(count, seed), traces: 3 };
    compare(
        setting,
        &[traffic],
        &paper::RANDOM,
        "the paper: 25 traces; all addresses, those of no unicast too",
    )
}

/// Rates by table and trace for each kind of traffic; of the first, `SAIL_L` beside the paper's.
fn compare(
    setting: &Setting<'_>,
    traffics: &[Traffic],
    stated: &paper::Rates,
    note: &str,
) -> Result<Drawing> {
    let mut notes = vec![note.to_owned()];
    // By traffic, by structure.
    let mut series: Vec<Vec<Series>> = traffics.iter().map(|_| Vec::new()).collect();
    let slice = setting.args.slice() / traffics.iter().map(|traffic| traffic.traces).sum::<u32>().max(1);
    for subject in &setting.tables {
        let rib = &subject.table.v4;
        let built = build_all(setting, rib, &COMPARED, &mut notes)?;
        let oracle = Oracle::new(&crate::tables::routes(rib));
        for (traffic, series) in traffics.iter().zip(&mut series) {
            for trace in 0..traffic.traces {
                let seed = setting.args.seed.wrapping_add(u64::from(trace) << 32);
                let keys = on_huge_pages((traffic.keys)(rib, setting.args.lookups(), seed));
                let what = format!("{}, {}", subject.name, traffic.name);
                let rates = rates(setting, &built, &oracle, &keys, (&what, slice))?;
                let x = match traffic.traces {
                    1 => subject.name.clone(),
                    _ => format!("trace {}", trace + 1),
                };
                for (built, y) in built.iter().zip(rates) {
                    let point = Point { x: X::Name(x.clone()), y, paper: None };
                    match series.iter_mut().find(|series| series.name == built.name) {
                        Some(series) => series.points.push(point),
                        None => series.push(Series { name: built.name.clone(), points: vec![point] }),
                    }
                }
            }
        }
    }
    notes.push(
        "answers are stored here; the paper's loop drops them, which flatters (Zec 2019, chapter 6)".into(),
    );
    notes.dedup();
    let mut panels = summary(&series[0], stated);
    for (i, (traffic, series)) in traffics.iter().zip(series).enumerate() {
        panels.insert(i, Panel::new("table", format!("{MLPS}, {}", traffic.name), series));
    }
    Ok(Drawing { panels, notes, ..setting.figure.drawing(setting) })
}

/// The slowest and the quickest of each, and `SAIL_L` over the others.
fn summary(series: &[Series], stated: &paper::Rates) -> Vec<Panel> {
    let of = |name: &str| series.iter().find(|series| series.name == name);
    let Some(sail) = of(COMPARED[0]) else { return Vec::new() };
    let mut rates = [("slowest", Vec::new()), ("quickest", Vec::new())];
    let mut over = [("least", Vec::new()), ("most", Vec::new())];
    for Series { name, points } in series {
        let put = |to: &mut [(&str, Vec<Point>); 2], (least, most), paper: Option<(f64, f64)>| {
            let x = || X::Name(name.clone());
            to[0].1.push(Point { x: x(), y: least, paper: paper.map(|paper| paper.0) });
            to[1].1.push(Point { x: x(), y: most, paper: paper.map(|paper| paper.1) });
        };
        let own = name == COMPARED[0];
        put(&mut rates, extremes(points.iter().map(|point| point.y)), own.then_some(stated.rate));
        if !own {
            let pairs = points.iter().filter_map(|point| {
                let sail = sail.points.iter().find(|sail| sail.x == point.x)?;
                (point.y > 0.0).then_some(sail.y / point.y)
            });
            put(&mut over, extremes(pairs), stated.over(name));
        }
    }
    let panel = |unit: &str, series: [(&str, Vec<Point>); 2]| {
        let series = series.map(|(name, points)| Series { name: name.into(), points });
        Panel::new("structure", unit, series.into())
    };
    vec![panel(MLPS, rates), panel("sail-l's rate over theirs", over)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_table() {
        let series = |name: &str, rates: [f64; 2]| Series {
            name: name.into(),
            points: ["a", "b"]
                .iter()
                .zip(rates)
                .map(|(x, y)| Point { x: X::Name((*x).into()), y, paper: None })
                .collect(),
        };
        let panels =
            summary(&[series("sail-l", [200.0, 300.0]), series("lc-trie", [20.0, 60.0])], &paper::REAL);
        let all = |panel: usize, line: usize| {
            panels[panel].series[line].points.iter().map(|point| (point.y, point.paper)).collect::<Vec<_>>()
        };
        assert_eq!(all(0, 0), [(200.0, Some(673.22)), (20.0, None)]);
        assert_eq!(all(0, 1), [(300.0, Some(708.71)), (60.0, None)]);
        assert_eq!((all(1, 0), all(1, 1)), (vec![(5.0, Some(34.53))], vec![(10.0, Some(58.88))]));
        assert!(summary(&[], &paper::REAL).is_empty());
    }
}
