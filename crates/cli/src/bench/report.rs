//! What a benchmark prints: JSON lines as they come, or tables at the end; and a plot on request.

use super::statistics;
use crate::json::{self, Measurement, Ratio, significant};
use crate::plot::{Bar, Plot};
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table as Grid, presets};
use std::path::Path;

/// Collects and prints measurements.
pub(super) struct Report {
    json: bool,
    lines: Vec<Measurement>,
    ratios: Vec<Ratio>,
    /// Lines and ratios before these have been shown as tables.
    shown: (usize, usize),
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Report { json, lines: Vec::new(), ratios: Vec::new(), shown: (0, 0) }
    }

    /// Takes a measurement.
    pub(super) fn line(&mut self, line: Measurement) -> Result<()> {
        if self.json {
            json::print(&line)?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// Takes a comparison of two subjects' runs, if there are enough for one.
    pub(super) fn ratio(
        &mut self,
        bench: &'static str,
        case: &str,
        (of, a): (&str, &[f64]),
        (to, b): (&str, &[f64]),
    ) -> Result<()> {
        let Some(interval) = statistics::ratio(a, b) else { return Ok(()) };
        let ratio = Ratio {
            v: json::VERSION,
            bench,
            case: case.into(),
            metric: "ratio",
            of: of.into(),
            to: to.into(),
            value: significant(interval.value),
            low: significant(interval.low),
            high: significant(interval.high),
            pairs: a.len().min(b.len()),
        };
        if self.json {
            json::print(&ratio)?;
        }
        self.ratios.push(ratio);
        Ok(())
    }

    /// All measurements so far.
    pub(super) fn lines(&self) -> &[Measurement] {
        &self.lines
    }

    /// All comparisons so far.
    pub(super) fn ratios(&self) -> &[Ratio] {
        &self.ratios
    }

    /// Prints what came since the last call as tables, for people.
    pub(super) fn tables(&mut self, family: u8) {
        let (lines, ratios) = (&self.lines[self.shown.0..], &self.ratios[self.shown.1..]);
        if !self.json && !lines.is_empty() {
            println!("IPv{family}: M lookups/s, median (least to greatest)");
            let rates: Vec<&Measurement> =
                lines.iter().filter(|line| line.metric == "mlps" && line.subject != "bound").collect();
            let range = |line: &Measurement| {
                format!("{} ({} to {})", figure(line.value), figure(line.min), figure(line.max))
            };
            pivot(&rates, |line| line.subject.clone(), |line| line.case.clone(), range);
            println!("\nbound: M random 4-byte loads/s in a region as large as the structure");
            let bounds: Vec<&Measurement> = lines.iter().filter(|line| line.subject == "bound").collect();
            let of = |line: &Measurement| {
                line.params.get("of").and_then(|of| of.as_str()).unwrap_or("").to_owned()
            };
            pivot(&bounds, of, |line| line.case.clone(), range);
            println!(
                "\nbuild and update (kups: thousands of updates per second; stores: into the structure, per update; reader_mlps: M lookups/s)"
            );
            let is_time = |line: &&Measurement| line.metric.ends_with("_ns");
            let others: Vec<&Measurement> =
                lines.iter().filter(|line| line.metric != "mlps" && !is_time(line)).collect();
            let column = |line: &Measurement| match line.case.as_str() {
                "build" => line.metric.to_owned(),
                case => format!("{case} {}", line.metric),
            };
            pivot(&others, |line| line.subject.clone(), column, |line| figure(line.value));
            let times: Vec<&Measurement> = lines.iter().filter(is_time).collect();
            if !times.is_empty() {
                println!("\nnanoseconds for one call with a burst of so many keys");
                let size = |line: &Measurement| line.params.get("burst").map(ToString::to_string);
                let row = |line: &Measurement| {
                    format!("{} {} {}", line.subject, line.case, line.metric.trim_end_matches("_ns"))
                };
                pivot(&times, row, |line| size(line).unwrap_or_default(), |line| figure(line.value));
            }
            if !ratios.is_empty() {
                println!("\nratios of M lookups/s, with 95 % intervals");
                for Ratio { case, of, to, value, low, high, pairs, .. } in ratios {
                    println!("  {case:<7} {of} to {to}: {value:.2} ({low:.2} to {high:.2}, {pairs} pairs)");
                }
            }
        }
        self.shown = (self.lines.len(), self.ratios.len());
    }

    /// Draws the rates.
    pub(super) fn plot(&self, file: &Path, title: &str) -> Result<()> {
        let bars = (self.lines.iter())
            .filter(|line| line.metric == "mlps" && line.subject != "bound")
            .map(|line| Bar {
                group: line.case.clone(),
                series: line.subject.clone(),
                value: line.value,
                min: line.min,
                max: line.max,
            })
            .collect();
        let plot = Plot { title: title.to_owned(), axis: "M lookups/s".to_owned(), bars };
        crate::files::write(file, plot.svg().as_bytes()).with_context(|| file.display().to_string())
    }
}

/// Four significant digits or whole numbers.
pub(crate) fn figure(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Prints lines as a table: rows and columns in the order of their first appearance.
pub(super) fn pivot(
    lines: &[&Measurement],
    row: impl Fn(&Measurement) -> String,
    column: impl Fn(&Measurement) -> String,
    cell: impl Fn(&Measurement) -> String,
) {
    let (mut rows, mut columns): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for line in lines {
        for (names, name) in [(&mut rows, row(line)), (&mut columns, column(line))] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let mut cells = vec![std::iter::once(String::new()).chain(columns.iter().cloned()).collect()];
    for name in &rows {
        let find = |wanted: &String| lines.iter().find(|line| row(line) == *name && column(line) == *wanted);
        let of = columns.iter().map(|wanted| find(wanted).map_or_else(String::new, |line| cell(line)));
        cells.push(std::iter::once(name.clone()).chain(of).collect());
    }
    print_grid(&cells);
}

/// Prints rows of cells, the first row being the header.
pub(crate) fn print_grid(rows: &[Vec<String>]) {
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    let mut rows = rows.iter();
    if let Some(header) = rows.next() {
        grid.set_header(header);
    }
    rows.for_each(|row| {
        grid.add_row(row);
    });
    for column in grid.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{grid}");
}
