//! SAIL for large IPv6 tables: bitmaps, Bloom filters, and pivot nodes. Nothing is timed.

use super::paper::{OffChip, PIVOTS, SIZES, Size};
use crate::bench::drawing::{Drawing, Panel, Point, Series, X};
use crate::bench::figures::Setting;
use crate::bench::figures::measure::{Built, build};
use crate::progress::Progress;
use anyhow::Result;
use tidemill_feed::synth;
use tidemill_lpm::keys::Random;
use tidemill_lpm::{Label, Prefix, Rib};

pub(super) const INSTEAD_OF: &str = "IPv6 tables that the paper makes of 13 IPv4 tables of RIPE's collectors (176 thousand to 456 thousand prefixes)";

const HYBRID: &str = "sail-hybrid";
/// The paper's mega: of bitmaps 2^20, of all else 10^6; the difference is less than what its numbers are rounded to.
const MB: f64 = 1e6;
/// Bits of a bucket of the paper's hash tables: 64 of the prefix, 2 of kind, 8 of label. It follows from its megabytes.
const BUCKET_BITS: f64 = 74.0;

/// A table as large as one of the paper's: the first 24 bits are those of a generated IPv4 table's prefixes, since the paper makes its
/// tables of IPv4 tables (it does not say how); lengths, of 25 to 64, are drawn from the user's table.
fn generated(like: &Rib<u128>, prefixes: usize, seed: u64) -> Result<Rib<u128>> {
    let v4: Rib<u32> = synth::rib(&synth::internet(4)?, prefixes, 148, seed)?;
    let first: Vec<u32> = v4.iter().map(|(prefix, _)| prefix.first() >> 8).collect();
    let routed: Vec<u8> = like.iter().map(|(p, _)| p.len()).filter(|len| (25..=64).contains(len)).collect();
    let lengths = if routed.is_empty() { vec![32, 48] } else { routed };
    let mut random = Random::new(seed);
    let (mut rib, mut i) = (Rib::new(), 0);
    while rib.len() < prefixes {
        let rest: u128 = random.address::<u128>() >> 24;
        let address = u128::from(first[i % first.len()]) << 104 | rest;
        if let Some(prefix) = Prefix::new(address, lengths[random.below(lengths.len())]) {
            rib.insert(prefix, Label(1 + random.below(148) as u32));
        }
        i += 1;
    }
    Ok(rib)
}

/// A table under its name; with what the paper has beside it.
struct Table {
    name: String,
    prefixes: usize,
    paper: Option<&'static Size>,
    built: Vec<Built<u128>>,
}

impl Table {
    /// One of the hybrid's own figures.
    fn detail(&self, name: &str) -> f64 {
        self.built[0].detail(name)
    }
}

/// The user's tables and those of the paper's sizes, as these structures.
fn tables(setting: &Setting<'_>, sizes: &'static [Size], structures: &[&str]) -> Result<Vec<Table>> {
    let names: Vec<String> = structures.iter().map(|name| (*name).to_owned()).collect();
    let mut tables = Vec::new();
    for subject in &setting.tables {
        let rib = &subject.table.v6;
        let built = build(setting, rib, &names, 1)?;
        tables.push(Table { name: subject.name.clone(), prefixes: rib.len(), paper: None, built });
    }
    let progress = Progress::new(format!("{}, generated tables", setting.figure.name), sizes.len() as u64);
    for size in sizes {
        let rib = generated(&setting.tables[0].table.v6, size.prefixes, setting.args.seed)?;
        let name = format!("generated, as large as {}", size.name);
        let built = build(setting, &rib, &names, 1)?;
        tables.push(Table { name, prefixes: size.prefixes, paper: Some(size), built });
        progress.add(1);
    }
    Ok(tables)
}

/// How the tables are made, and more.
fn notes(more: &[&str]) -> Vec<String> {
    let made = "generated tables: as many prefixes as the paper's, the first 24 bits those of a generated IPv4 table, lengths (25 to 64) as in \
                the first table";
    std::iter::once(made).chain(more.iter().copied()).map(String::from).collect()
}

fn series(name: &str, tables: &[Table], of: impl Fn(&Table) -> (f64, Option<f64>)) -> Series {
    let point = |table: &Table| {
        let (y, paper) = of(table);
        Point { x: X::Name(table.name.clone()), y, paper }
    };
    Series { name: name.into(), points: tables.iter().map(point).collect() }
}

/// Table 3.5.
pub(super) fn on_chip(setting: &Setting<'_>) -> Result<Drawing> {
    on_chip_of(setting, &SIZES)
}

fn on_chip_of(setting: &Setting<'_>, sizes: &'static [Size]) -> Result<Drawing> {
    let tables = tables(setting, sizes, &[HYBRID])?;
    let bitmaps = f64::from(1 << 20);
    let mb = |table: &Table| table.detail("bitmap_bytes") / bitmaps + table.detail("filter_bytes") / MB;
    // The memory of an FPGA that the paper calls old.
    const FPGA_MB: f64 = 6.6;
    let free = |mb: f64| 100.0 * (1.0 - mb / FPGA_MB);
    let memory = vec![
        series("Bloom filters", &tables, |table| {
            (table.detail("filter_bytes") / MB, table.paper.map(|size| size.filter_mb))
        }),
        series("with the bitmaps", &tables, |table| (mb(table), table.paper.map(|size| size.on_chip_mb))),
    ];
    let share =
        series("free", &tables, |table| (free(mb(table)), table.paper.map(|size| free(size.on_chip_mb))));
    let filtered = series("longer than 24 bits", &tables, |table| (table.detail("filtered_prefixes"), None));
    let all =
        series("all", &tables, |table| (table.prefixes as f64, table.paper.map(|size| size.prefixes as f64)));
    Ok(Drawing {
        panels: vec![
            Panel::new("table", "MB on chip", memory),
            Panel::new("table", "% of 6.6 MB", vec![share]),
            Panel::new("table", "prefixes", vec![all, filtered]),
        ],
        notes: notes(&[
            "MB as in the paper: of bitmaps 2^20 bytes, of filters 10^6 (only so do its numbers follow from its formulas)",
            "13 hash functions and 18.755 bits per prefix longer than 24 bits, as in the paper; a filter that prefixes come to and go from has room to grow",
        ]),
        ..setting.figure.drawing(setting)
    })
}

/// Figure 3.16.
pub(super) fn pivots(setting: &Setting<'_>) -> Result<Drawing> {
    pivots_of(setting, &SIZES)
}

fn pivots_of(setting: &Setting<'_>, sizes: &'static [Size]) -> Result<Drawing> {
    let tables = tables(setting, sizes, &[HYBRID])?;
    let most = tables.iter().filter(|table| table.paper.is_some()).map(|table| table.prefixes).max();
    let line = |table: &Table| {
        let points = [24_u8, 34, 44, 54].map(|level| {
            let stated = PIVOTS.iter().find(|(of, _)| *of == level).map(|(_, pivots)| *pivots);
            let paper = stated.filter(|_| table.paper.is_some() && Some(table.prefixes) == most);
            (f64::from(level), table.detail(&format!("pivots_{level}")), paper)
        });
        Series::new(table.name.clone(), points)
    };
    let all = series("all levels", &tables, |table| {
        ([24, 34, 44, 54].map(|level| table.detail(&format!("pivots_{level}"))).iter().sum(), None)
    });
    let prefixes = series("prefixes", &tables, |table| (table.prefixes as f64, None));
    Ok(Drawing {
        panels: vec![
            Panel::new("level", "pivot nodes", tables.iter().map(line).collect()),
            Panel::new("table", "nodes", vec![all, prefixes]),
        ],
        notes: notes(&[
            "the paper: around 300 thousand at level 24, only a thousand at level 54 (beside our largest table); all levels together a little more \
             than the table has prefixes",
        ]),
        ..setting.figure.drawing(setting)
    })
}

/// Figure 3.17.
pub(super) fn off_chip(setting: &Setting<'_>) -> Result<Drawing> {
    off_chip_of(setting, &SIZES)
}

fn off_chip_of(setting: &Setting<'_>, sizes: &'static [Size]) -> Result<Drawing> {
    const TREE_BITMAP: &str = "tree-bitmap";
    let tables = tables(setting, sizes, &[HYBRID, TREE_BITMAP])?;
    let paper =
        |table: &Table, of: fn(&OffChip) -> f64| table.paper.and_then(|size| size.off_chip.as_ref()).map(of);
    let buckets = |table: &Table, name: &str| table.detail(name) * BUCKET_BITS / 8.0 / MB;
    let as_there = vec![
        series("for pivot nodes", &tables, |table| {
            (buckets(table, "additional_buckets"), paper(table, |mb| mb.additional))
        }),
        series("all", &tables, |table| (buckets(table, "buckets"), paper(table, |mb| mb.all))),
        series(TREE_BITMAP, &tables, |table| {
            (table.built[1].fib.bytes() as f64 / MB, paper(table, |mb| mb.tree_bitmap))
        }),
    ];
    let ours = vec![
        series("for pivot nodes", &tables, |table| (table.detail("additional_off_chip_bytes") / MB, None)),
        series("all", &tables, |table| (table.detail("off_chip_bytes") / MB, None)),
    ];
    Ok(Drawing {
        panels: vec![
            Panel::new("table", "MB, of hash tables with buckets of 74 bits", as_there),
            Panel::new("table", "MB, of hash tables as they are here", ours),
        ],
        notes: notes(&[
            "ten buckets for an entry, as in the paper; its megabytes are those of buckets of 74 bits, ours have more: labels of 30 bits, and whole words",
            "the paper's tree bitmap: strides and labels are not stated; ours holds labels of up to 31 bits",
        ]),
        ..setting.figure.drawing(setting)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figures::{Subject, figures};
    use crate::bench::lpm::Lpm;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        lpm: Lpm,
    }

    static SMALL: [Size; 1] = [Size {
        name: "small",
        prefixes: 1500,
        filter_mb: 0.0034,
        on_chip_mb: 4.0,
        off_chip: Some(OffChip { additional: 0.1, all: 0.2, tree_bitmap: 0.3 }),
    }];

    #[test]
    fn memory_is_what_the_papers_formulas_say() {
        let args =
            Line::parse_from("x --figure fu-3.5t --runs 1 --seconds 0.001 --lookups-ki 4".split(' ')).lpm;
        let options = synth::SynthOptions { v4: 0, v6: 800, ..Default::default() };
        let table = synth::table(&options).unwrap();
        let figure = figures().find(|figure| figure.name == "fu-3.5t").unwrap();
        let setting = Setting { figure, tables: vec![Subject { name: "t".into(), table }], args: &args };
        let point = |drawing: &Drawing, panel: usize, series: usize, at: usize| {
            let point = &drawing.panels[panel].series[series].points[at];
            (point.y, point.paper)
        };
        let drawing = on_chip_of(&setting, &SMALL).unwrap();
        let (filters, stated) = point(&drawing, 0, 0, 1);
        let (filtered, _) = point(&drawing, 2, 1, 1);
        assert_eq!((filtered, stated), (1500.0, Some(0.0034)), "all are longer than 24 bits");
        assert!((filters - 1500.0 * 18.755 / 8e6).abs() < 0.3 * filters, "{filters}");
        assert!((point(&drawing, 0, 1, 1).0 - filters - 4.0).abs() < 1e-9);
        assert_eq!(point(&drawing, 2, 0, 0), (800.0, None), "the user's table");

        let drawing = pivots_of(&setting, &SMALL).unwrap();
        let levels = &drawing.panels[0].series[1].points;
        let all: f64 = levels.iter().map(|point| point.y).sum();
        assert_eq!(point(&drawing, 1, 0, 1).0, all);
        let stated: Vec<_> = levels.iter().map(|point| point.paper).collect();
        assert_eq!(stated, [Some(300e3), None, None, Some(1e3)]);
        assert!(levels[0].y > 100.0 && levels[0].y <= 1500.0, "{}", levels[0].y);

        let drawing = off_chip_of(&setting, &SMALL).unwrap();
        let (additional, stated) = point(&drawing, 0, 0, 1);
        assert!((additional - all * 10.0 * BUCKET_BITS / 8.0 / MB).abs() < 0.3 * additional, "{additional}");
        assert_eq!(stated, Some(0.1));
        assert!(point(&drawing, 0, 1, 1).0 > additional && point(&drawing, 0, 2, 1).0 > 0.0);
        assert!(point(&drawing, 1, 1, 1).0 > point(&drawing, 0, 1, 1).0, "our buckets are larger");
    }

    #[test]
    fn generated_tables_have_the_first_ones_lengths() {
        let like: Rib<u128> = ["2001::/20", "2001:db8::/40", "2001:db8::/44", "2001:db8::1/128"]
            .into_iter()
            .map(|p| (p.parse().unwrap(), Label(1)))
            .collect();
        let rib = generated(&like, 500, 1).unwrap();
        assert_eq!(rib.len(), 500);
        assert!(rib.iter().all(|(prefix, _)| matches!(prefix.len(), 40 | 44)));
        assert!(
            generated(&Rib::new(), 10, 1).unwrap().iter().all(|(prefix, _)| matches!(prefix.len(), 32 | 48))
        );
    }
}
