//! What `tune` prints: tables and advice for people, or JSON lines; and plots.

use super::candidates::{Candidate, Tried};
use super::memory::{Memory, Point};
use super::threads::{Placement, Scaling};
use crate::bench::report::figure;
use crate::bench::statistics::median;
use crate::json::{self, Measurement, Params};
use crate::plot::{Bar, Curve, Curves, Plot};
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table as Grid, presets};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tidemill_lpm::Family;

const BENCH: &str = "tune";

/// Collects and prints.
pub(super) struct Report {
    json: bool,
    table: String,
    /// Lines for the configuration.
    configuration: Vec<String>,
    bars: Vec<(u8, Bar)>,
    curves: Vec<Curve>,
}

/// What to use, as JSON.
#[derive(Serialize)]
struct AdviceLine<'a> {
    v: u8,
    bench: &'static str,
    advice: &'a str,
    family: u8,
    why: &'a [String],
    /// The line for `[router]`.
    configuration: &'a str,
}

impl Report {
    pub(super) fn new(json: bool, table: &str) -> Self {
        Report { json, table: table.into(), configuration: Vec::new(), bars: Vec::new(), curves: Vec::new() }
    }

    pub(super) fn memory(&self, memory: &Memory) -> Result<()> {
        if memory.points.is_empty() {
            return Ok(());
        }
        let levels: Vec<(String, usize, &Point)> = (memory.caches.iter())
            .filter_map(|cache| Some((format!("L{}", cache.level), cache.bytes, memory.of_cache(cache)?)))
            .chain(memory.beyond().map(|point| ("memory".to_owned(), 0, point)))
            .collect();
        if self.json {
            return self.memory_json(memory, &levels);
        }
        match memory.clock_ghz > 0.0 {
            true => println!("memory, at {:.2} GHz (by a chain of multiplications)", memory.clock_ghz),
            false => println!("memory"),
        }
        let mut grid = grid(&["", "size", "dependent: cycles", "ns", "independent M/s", "gathers M/s"]);
        for (name, bytes, point) in &levels {
            let ns = median(&point.dependent_ns);
            grid.add_row([
                name.clone(),
                if *bytes == 0 { String::new() } else { size(*bytes) },
                figure(ns * memory.clock_ghz),
                figure(ns),
                figure(median(&point.independent)),
                point.gather.as_ref().map_or_else(String::new, |rates| figure(median(rates))),
            ]);
        }
        show(grid);
        println!("\nby the region's size");
        let mut grid = self::grid(&["region", "dependent ns", "independent M/s", "gathers M/s"]);
        for point in &memory.points {
            grid.add_row([
                size(point.bytes),
                figure(median(&point.dependent_ns)),
                figure(median(&point.independent)),
                point.gather.as_ref().map_or_else(String::new, |rates| figure(median(rates))),
            ]);
        }
        show(grid);
        Ok(())
    }

    fn memory_json(&self, memory: &Memory, levels: &[(String, usize, &Point)]) -> Result<()> {
        let line = |case: &str, metric, values: &[f64], params: Params| {
            json::print(&Measurement::of(BENCH, "memory", case, metric, values, params))
        };
        let of = |bytes: usize| Params::from_iter([("region_bytes".to_owned(), bytes.into())]);
        for point in &memory.points {
            line("dependent", "ns", &point.dependent_ns, of(point.bytes))?;
            line("independent", "mlps", &point.independent, of(point.bytes))?;
            if let Some(rates) = &point.gather {
                line("independent-gather", "mlps", rates, of(point.bytes))?;
            }
        }
        for (name, bytes, point) in levels {
            let mut params = of(point.bytes);
            if *bytes > 0 {
                params.insert("cache_bytes".into(), (*bytes).into());
            }
            line(name, "latency_ns", &point.dependent_ns, params.clone())?;
            let cycles: Vec<f64> = point.dependent_ns.iter().map(|ns| ns * memory.clock_ghz).collect();
            if memory.clock_ghz > 0.0 {
                line(name, "latency_cycles", &cycles, params)?;
            }
        }
        Ok(())
    }

    pub(super) fn candidates<A: Family>(&mut self, tried: &Tried<A>, prefixes: usize) -> Result<()> {
        for candidate in &tried.finalists {
            for (case, rates) in &candidate.rates {
                let ends = rates.iter().fold((f64::MAX, 0.0_f64), |(a, b), &r| (a.min(r), b.max(r)));
                let bar = Bar {
                    group: (*case).into(),
                    series: candidate.name.clone(),
                    value: median(rates),
                    min: ends.0,
                    max: ends.1,
                };
                self.bars.push((A::FAMILY, bar));
            }
        }
        if self.json {
            return self.candidates_json(tried, prefixes);
        }
        println!("\nIPv{}, {}: {prefixes} prefixes; M lookups/s, medians in turn", A::FAMILY, self.table);
        let cases: Vec<&str> = tried.checksums.iter().map(|(case, _)| *case).collect();
        let header = ["structure", "MB", "B/prefix", "build ms"].into_iter().chain(cases.iter().copied());
        let header: Vec<&str> = header.chain(["updates k/s", "coalesced k/s"]).collect();
        let mut grid = self::grid(&header);
        let mut row = |candidate: &Candidate<A>| {
            let shown = candidate.shown();
            let bytes = shown.bytes as f64;
            let (one, many) = shown.updates.map_or_else(Default::default, |(a, b)| (figure(a), figure(b)));
            let sizes = [bytes / 1e6, bytes / prefixes.max(1) as f64, candidate.build_ms].map(figure);
            let rates = shown.rates.iter().map(|(_, rate)| figure(*rate));
            let cells = std::iter::once(shown.name.clone()).chain(sizes).chain(rates);
            grid.add_row(cells.chain([one, many]));
        };
        tried.finalists.iter().for_each(&mut row);
        show(grid);
        if !tried.others.is_empty() {
            println!("\na first look only (shorter, so not to be compared with the above)");
            let mut grid = self::grid(&header[..header.len() - 2]);
            for candidate in &tried.others {
                let bytes = candidate.bytes as f64;
                let sizes = [bytes / 1e6, bytes / prefixes.max(1) as f64, candidate.build_ms].map(figure);
                let rates = candidate.brief.iter().map(|(_, rate)| figure(*rate));
                grid.add_row(std::iter::once(candidate.name.clone()).chain(sizes).chain(rates));
            }
            show(grid);
        }
        for (algorithm, why) in &tried.refused {
            println!("left out {algorithm}: {why}");
        }
        Ok(())
    }

    fn candidates_json<A: Family>(&self, tried: &Tried<A>, prefixes: usize) -> Result<()> {
        let params = || {
            let (table, family) = (self.table.as_str().into(), A::FAMILY.into());
            Params::from_iter(
                [("family", family), ("table", table), ("prefixes", prefixes.into())]
                    .map(|(name, value)| (name.to_owned(), value)),
            )
        };
        for (candidate, long) in
            tried.finalists.iter().map(|c| (c, true)).chain(tried.others.iter().map(|c| (c, false)))
        {
            let line = |case: &str, metric, values: &[f64], params: Params| {
                Measurement::of(BENCH, &candidate.name, case, metric, values, params)
            };
            for (case, rate) in &candidate.brief {
                json::print(&line(case, "brief_mlps", &[*rate], params()))?;
            }
            for ((case, rates), (_, checksum)) in
                candidate.rates.iter().zip(&tried.checksums).filter(|_| long)
            {
                let measured = line(case, "mlps", rates, params());
                json::print(&Measurement { checksum: Some(checksum.clone()), ..measured })?;
            }
            json::print(&line("build", "build_ms", &[candidate.build_ms], params()))?;
            json::print(&line("build", "bytes", &[candidate.bytes as f64], params()))?;
            if let Some((one, many)) = &candidate.updates {
                json::print(&line("update", "kups", one, params()))?;
                json::print(&line("update-coalesced", "kups", many, params()))?;
            }
        }
        for (algorithm, why) in &tried.refused {
            eprintln!("tidemill: left out {algorithm}: {why}");
        }
        Ok(())
    }

    pub(super) fn threads(&mut self, family: u8, name: &str, scaling: &[Scaling]) -> Result<()> {
        for placement in [Placement::Cores, Placement::Siblings] {
            let of = || scaling.iter().filter(|one| one.placement == placement);
            let curve = |what: String, rate: fn(&Scaling) -> f64| Curve {
                name: format!("IPv{family}, {what}, {} first", placement.name()),
                points: of().map(|one| (one.threads as f64, rate(one))).collect(),
                marks: Vec::new(),
            };
            if of().next().is_some() {
                self.curves.push(curve(name.into(), |one| median(&one.lookups)));
                self.curves.push(curve("bound".into(), |one| median(&one.bound)));
            }
        }
        if self.json {
            for one in scaling {
                for (subject, rates) in [(name, &one.lookups), ("bound", &one.bound)] {
                    let params = Params::from_iter(
                        [
                            ("family", family.into()),
                            ("threads", one.threads.into()),
                            ("placement", one.placement.name().into()),
                        ]
                        .map(|(name, value)| (name.to_owned(), value)),
                    );
                    json::print(&Measurement::of(BENCH, subject, "threads", "mlps", rates, params))?;
                }
            }
            return Ok(());
        }
        println!(
            "\n{name}, all threads together: M lookups/s (rnd); bound: M random loads/s in a region of its size"
        );
        let mut grid = grid(&["threads", "placed by", "lookups", "x one", "bound", "x one"]);
        for one in scaling {
            let (lookups, bound) = (median(&one.lookups), median(&one.bound));
            let first = scaling.first().map_or((1.0, 1.0), |one| (median(&one.lookups), median(&one.bound)));
            let cells = [lookups, lookups / first.0, bound, bound / first.1].map(figure);
            let start = [one.threads.to_string(), one.placement.name().to_owned()];
            grid.add_row(start.into_iter().chain(cells));
        }
        show(grid);
        Ok(())
    }

    pub(super) fn advice(&mut self, family: u8, name: &str, why: &[String]) -> Result<()> {
        let key = if family == 4 { "algorithm" } else { "algorithm6" };
        let configuration = format!("{key} = \"{name}\"");
        if self.json {
            let (v, bench) = (json::VERSION, BENCH);
            json::print(&AdviceLine { v, bench, advice: name, family, why, configuration: &configuration })?;
        } else {
            println!("\nuse {name} for IPv{family}:");
            why.iter().for_each(|line| println!("  {line}"));
        }
        self.configuration.push(configuration);
        Ok(())
    }

    /// What to put into the configuration.
    pub(super) fn configuration(&self) -> Result<()> {
        if !self.json {
            println!("\n[router]");
            self.configuration.iter().for_each(|line| println!("{line}"));
        }
        Ok(())
    }

    /// Draws memory, candidates and threads.
    pub(super) fn plot(&self, name: &Path, memory: &Memory) -> Result<()> {
        let write = |what: &str, svg: String| {
            let file = plot_file(name, what);
            crate::files::write(&file, svg.as_bytes()).with_context(|| file.display().to_string())
        };
        let mut bars = Vec::new();
        for point in &memory.points {
            let mut bar = |series: &str, rates: &[f64]| {
                let ends = rates.iter().fold((f64::MAX, 0.0_f64), |(a, b), &r| (a.min(r), b.max(r)));
                let (group, series) = (size(point.bytes), series.to_owned());
                bars.push(Bar { group, series, value: median(rates), min: ends.0, max: ends.1 });
            };
            bar("dependent", &point.dependent_ns.iter().map(|ns| 1e3 / ns).collect::<Vec<_>>());
            bar("independent", &point.independent);
            point.gather.iter().for_each(|rates| bar("gathers", rates));
        }
        let axis = "M random 4-byte loads/s, by the region's size".to_owned();
        if !bars.is_empty() {
            write("memory", Plot { title: "memory".into(), axis, bars }.svg())?;
        }
        for family in [4, 6] {
            let of = self.bars.iter().filter(|(of, _)| *of == family).map(|(_, bar)| bar.clone());
            let bars: Vec<Bar> = of.collect();
            if !bars.is_empty() {
                let (title, axis) = (self.table.clone(), "M lookups/s".to_owned());
                write(&format!("ipv{family}"), Plot { title, axis, bars }.svg())?;
            }
        }
        if !self.curves.is_empty() {
            let curves = self.curves.clone();
            let (x, y) = ("threads".to_owned(), "M/s, all threads together".to_owned());
            write(
                "threads",
                Curves { title: self.table.clone(), x, y, curves, ticks: Vec::new() }.sized_svg().2,
            )?;
        }
        Ok(())
    }
}

/// Where a plot of these goes.
pub(super) fn plot_file(name: &Path, what: &str) -> PathBuf {
    let mut file = name.as_os_str().to_owned();
    file.push(format!("-{what}.svg"));
    PathBuf::from(file)
}

fn grid(header: &[&str]) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    grid.set_header(header.to_vec());
    grid
}

/// Prints it: names in the first column, numbers to the right in the others.
fn show(mut grid: Grid) {
    for column in grid.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    grid.lines().for_each(|line| println!("{}", line.trim_end()));
}

/// `48 KB`, `2 MB`: powers of two, as caches are sold.
fn size(bytes: usize) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MB", bytes >> 20),
        _ => format!("{} GB", bytes >> 30),
    }
}
