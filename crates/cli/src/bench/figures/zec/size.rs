//! Bytes, ranges and shares of the address space.

use super::{KS, paper, structure};
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::figures::measure::{Built, build};
use crate::bench::figures::{Setting, Subject, labels};
use crate::bench::statistics::median;
use anyhow::Result;
use tidemill_lpm::{Label, Prefix, Rib};

/// Bytes of a short range.
const SHORT: f64 = 2.0;
/// Steps that the paper's table has columns for.
const STEPS: usize = 8;
const K: &str = "K";

/// Structures for a table, built once each.
fn built(
    setting: &Setting<'_>,
    rib: &Rib<u32>,
    names: impl Iterator<Item = String>,
) -> Result<Vec<Built<u32>>> {
    build(setting, rib, &names.collect::<Vec<_>>(), 1)
}

fn rib<'a>(setting: &'a Setting<'_>) -> &'a Rib<u32> {
    &setting.tables[0].table.v4
}

/// A series over K.
fn over(
    name: &str,
    ks: impl Iterator<Item = u8>,
    built: &[Built<u32>],
    of: impl Fn(&Built<u32>) -> f64,
    paper: impl Fn(u8) -> Option<f64>,
) -> Series {
    Series::new(name, ks.zip(built).map(|(k, built)| (k.into(), of(built), paper(k))))
}

fn nothing(_: u8) -> Option<f64> {
    None
}

/// Bytes of all ranges.
fn ranges(built: &Built<u32>) -> f64 {
    built.detail("range_bytes")
}

/// Bytes of the table that the first bits of a key index.
fn direct(built: &Built<u32>) -> f64 {
    built.detail("direct_bytes")
}

fn all(built: &Built<u32>) -> f64 {
    built.fib.bytes() as f64
}

/// Table 3.1.
pub(super) fn steps(setting: &Setting<'_>) -> Result<Drawing> {
    let built = built(setting, rib(setting), KS.map(|k| structure(None, k)))?;
    let of = |line: &paper::Steps, built: &Built<u32>| {
        let percent: Vec<f64> =
            (0..=16).map(|steps| 100.0 * built.detail(&format!("steps_{steps}_share"))).collect();
        let last = percent.iter().rposition(|&percent| percent > 0.0).unwrap_or(0).max(STEPS);
        let paper = |steps: usize| line.percent.get(steps).copied().unwrap_or(Some(0.0));
        Series::new(built.name.as_str(), (0..=last).map(|steps| (steps as f64, percent[steps], paper(steps))))
    };
    let shares = paper::STEPS.iter().zip(&built).map(|(line, built)| of(line, built)).collect();
    let bytes = over("ranges", KS, &built, ranges, paper::range_bytes);
    Ok(Drawing {
        panels: vec![
            Panel::new("steps of the range search", "% of the address space", shares),
            Panel::new(K, "bytes", vec![bytes]),
        ],
        notes: vec!["the paper's \"<0.001%\" is no number here".into()],
        ..setting.figure.drawing(setting)
    })
}

/// Table 3.2.
pub(super) fn tables(setting: &Setting<'_>) -> Result<Drawing> {
    const QUANTITIES: [(&str, &str); 5] = [
        ("bytes", ""),
        ("bytes per prefix", ""),
        ("% of the address space resolved directly", ""),
        ("ranges", " short"),
        ("build ms", ""),
    ];
    let names = [structure(None, 16), structure(None, 20)];
    let mut panels: Vec<Panel> = Vec::new();
    for (quantity, ending) in QUANTITIES {
        let endings = if quantity == "ranges" { vec![ending, " long"] } else { vec![ending] };
        let of = |name: &String| {
            let series = |ending: &&str| Series { name: format!("{name}{ending}"), points: Vec::new() };
            endings.iter().map(series).collect::<Vec<_>>()
        };
        panels.push(Panel::new("table", quantity, names.iter().flat_map(of).collect()));
    }
    let mut notes = Vec::new();
    for subject @ Subject { name, table } in &setting.tables {
        let rib = &table.v4;
        let line = paper::most_like(rib.len(), labels(rib));
        notes.push(format!(
            "beside {}: the paper's {} ({} prefixes, {} next hops)",
            subject.describe(4),
            line.name,
            line.prefixes,
            line.next_hops
        ));
        for (i, built) in build(setting, rib, &names, setting.args.runs)?.iter().enumerate() {
            let paper::Size { bytes, direct, short, long, build_ms } = line.sizes[i];
            let mut put = |panel: usize, series: usize, y, paper| {
                let x = X::Name(name.clone());
                panels[panel].series[series].points.push(Point { x, y, paper: Some(paper) });
            };
            put(0, i, all(built), bytes);
            put(1, i, all(built) / rib.len() as f64, bytes / line.prefixes);
            put(2, i, 100.0 * built.detail("resolved_share"), direct);
            put(3, 2 * i, built.detail("short_ranges"), short);
            put(3, 2 * i + 1, built.detail("long_ranges"), long);
            put(4, i, median(&built.build_ms), build_ms);
        }
    }
    Ok(Drawing { panels, notes, ..setting.figure.drawing(setting) })
}

/// Figures 3.9 and 3.10.
pub(super) fn sharing(setting: &Setting<'_>, short: bool) -> Result<Drawing> {
    let built = built(setting, rib(setting), KS.map(|k| structure(None, k)))?;
    // A long range with a label of more than 16 bits takes 8.
    let wide = rib(setting).iter().any(|(_, label)| label.0 > u32::from(u16::MAX));
    let (kind, bytes) = match short {
        true => ("short", SHORT),
        false => ("long", if wide { 8.0 } else { 4.0 }),
    };
    let (name, unshared_name) = (format!("{kind}_ranges"), format!("{kind}_ranges_unshared"));
    let shared = |built: &Built<u32>| bytes * built.detail(&name);
    let unshared = |built: &Built<u32>| bytes * built.detail(&unshared_name);
    let saved = |built: &Built<u32>| 100.0 * (1.0 - shared(built) / unshared(built));
    // "Nearly 90 %" is what the text has.
    let stated = |k| (short && k == 22).then_some(90.0);
    let sizes = vec![
        over("each chunk by itself", KS, &built, unshared, nothing),
        over("equal chunks once", KS, &built, shared, nothing),
    ];
    let mut saved = over(kind, KS, &built, saved, stated);
    // Where there are no such ranges there is nothing to save.
    saved.points.retain(|point| point.y.is_finite());
    Ok(Drawing {
        panels: vec![
            Panel::new(K, format!("bytes of {kind} ranges"), sizes),
            Panel::new(K, "% saved", vec![saved]),
        ],
        notes: vec!["the paper: next to nothing at K = 16 and 17, much from 20 on; long ranges little, but there are few".into()],
        ..setting.figure.drawing(setting)
    })
}

/// Figure 3.11. The paper's sums follow from Table 3.1.
pub(super) fn footprint(setting: &Setting<'_>) -> Result<Drawing> {
    const KS: std::ops::RangeInclusive<u8> = 16..=22;
    let built = built(setting, rib(setting), KS.map(|k| structure(None, k)))?;
    let table = |k: u8| f64::from(4 << k);
    let bytes = vec![
        over("all", KS, &built, all, |k| Some(paper::range_bytes(k)? + table(k))),
        over("direct table", KS, &built, |built| built.detail("descriptor_bytes"), |k| Some(table(k))),
        over("ranges", KS, &built, ranges, paper::range_bytes),
    ];
    Ok(Drawing {
        panels: vec![Panel::new(K, "bytes", bytes)],
        notes: vec!["the paper's numbers: 4 * 2^K and Table 3.1; the figure does not name its table".into()],
        ..setting.figure.drawing(setting)
    })
}

/// Figure 4.2.
pub(super) fn ratio(setting: &Setting<'_>) -> Result<Drawing> {
    let plain = built(setting, rib(setting), KS.map(|k| structure(None, k)))?;
    let mut series = Vec::new();
    let (mut least, mut at) = (f64::INFINITY, 0.0);
    for d in [12, 14, 16_u8] {
        let first = (*KS.start()).max(d + 1);
        let extended = built(setting, rib(setting), (first..=*KS.end()).map(|k| structure(Some(d), k)))?;
        let ratios: Vec<(f64, f64, Option<f64>)> = (first..=*KS.end())
            .zip(extended.iter().zip(&plain[usize::from(first - KS.start())..]))
            .map(|(k, (extended, plain))| (k.into(), all(extended) / all(plain), None))
            .collect();
        for &(k, ratio, _) in &ratios {
            if ratio < least {
                (least, at) = (ratio, k);
            }
        }
        series.push(Series::new(format!("D{d}X*R"), ratios));
    }
    // "Up to 70 %" saved.
    series.push(Series::new("least of all", [(at, least, Some(0.3))]));
    Ok(Drawing {
        panels: vec![Panel::new(K, "bytes over those of DxR", series)],
        notes: vec![
            "the paper: next to nothing at K = 16, more from 21 on, most with D = 16".into(),
            "D16 begins at K = 17: without extension bits it is D16R".into(),
        ],
        ..setting.figure.drawing(setting)
    })
}

/// Five prefixes, as in a host or a small router: a default route and four networks.
fn five() -> Rib<u32> {
    let route = |first, len, label| Some((Prefix::new(first, len)?, Label(label)));
    let routes = [
        route(0, 0, 1),
        route(0x0a00_0000, 24, 2),
        route(0x0a00_0100, 24, 3),
        route(0xac10_0000, 16, 4),
        route(0xc0a8_0100, 24, 5),
    ];
    routes.into_iter().flatten().collect()
}

/// Figures 4.3 to 4.5.
pub(super) fn parts(setting: &Setting<'_>, d: u8) -> Result<Drawing> {
    let ks = (*KS.start()).max(d + 1)..=*KS.end();
    let built = built(setting, rib(setting), ks.clone().map(|k| structure(Some(d), k)))?;
    // The text: 8 KB and 128 KB; ranges are those of DxR.
    let stated = |_| match d {
        12 => Some(8192.0),
        16 => Some(131_072.0),
        _ => None,
    };
    let bytes = vec![
        over("all", ks.clone(), &built, all, nothing),
        over("direct table", ks.clone(), &built, direct, stated),
        over("extension blocks", ks.clone(), &built, |built| built.detail("descriptor_bytes"), nothing),
        over("ranges", ks, &built, ranges, paper::range_bytes),
    ];
    let mut panels = vec![Panel::new(K, "bytes", bytes)];
    if d == 12 {
        let names = ["dxr-d12x9r", "dxr-d21r"].map(String::from);
        let paper = [15.0, 5.0 * 1.6 * 1024.0];
        let point = |(built, paper): (&Built<u32>, f64)| Point {
            x: X::Name(built.name.clone()),
            y: all(built) / 1024.0,
            paper: Some(paper),
        };
        let points = build(setting, &five(), &names, 1)?.iter().zip(paper).map(point).collect();
        panels.push(Panel::new("structure", "KB", vec![Series { name: "5 prefixes".into(), points }]));
    }
    Ok(Drawing { panels, ..setting.figure.drawing(setting) })
}
