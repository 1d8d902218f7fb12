//! What `bench flow` prints: measurements, and tables of them for people.

use super::flood::{Flooded, SHARES};
use super::lines::{Summary, Touched, Unit};
use super::round::Round;
use super::tables::Bounds;
use crate::bench::report::{Report, figure, pivot, print_grid};
use crate::json::{Measurement, Params};
use anyhow::Result;
use serde_json::Value;

/// Collects the measurements of one size.
pub(super) struct Sheet {
    pub(super) report: Report,
    /// As in cases: slots and key length.
    size: String,
    params: Params,
}

/// Our production table: what the others are compared with.
const OURS: &str = "flowtable";

impl Sheet {
    pub(super) fn new(report: Report, size: String, params: Params) -> Self {
        Sheet { report, size, params }
    }

    fn line(
        &mut self,
        subject: &str,
        case: &str,
        metric: &'static str,
        values: &[f64],
        more: &[(&str, Value)],
        checksum: Option<String>,
    ) -> Result<()> {
        let mut params = self.params.clone();
        params.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let case = format!("{}/{case}", self.size);
        let line = Measurement::of("flow", subject, &case, metric, values, params);
        self.report.line(Measurement { checksum, ..line })
    }

    /// The runs of all tables at one load.
    pub(super) fn speed(&mut self, load: f64, tables: &[(&str, &[Round])], lookups: usize) -> Result<()> {
        for (name, rounds) in tables {
            let Some(last) = rounds.last() else { continue };
            let more: [(&str, Value); 4] = [
                ("load", crate::json::significant(last.load).into()),
                ("flows", last.flows.into()),
                ("slots", last.slots.into()),
                ("lookups", lookups.into()),
            ];
            for rate in &last.rates {
                let values = runs(rounds, rate.case);
                let case = format!("load-{load}/{}", rate.case);
                self.line(name, &case, rate.metric, &values, &more, rate.checksum.clone())?;
            }
            let bytes: Vec<f64> = rounds.iter().map(|r| r.bytes as f64 / r.flows as f64).collect();
            self.line(name, &format!("load-{load}/memory"), "bytes_per_flow", &bytes, &more, None)?;
        }
        let Some((_, ours)) = tables.iter().find(|(name, _)| *name == OURS) else { return Ok(()) };
        for case in ["hit", "insert", "find-or-insert"] {
            for (name, rounds) in tables.iter().filter(|(name, _)| *name != OURS) {
                let (a, b) = (runs(ours, case), runs(rounds, case));
                let case = format!("{}/load-{load}/{case}", self.size);
                self.report.ratio("flow", &case, (OURS, &a), (name, &b))?;
            }
        }
        Ok(())
    }

    pub(super) fn bound(&mut self, of: &str, case: &str, bytes: usize, rates: &[f64]) -> Result<()> {
        self.line("bound", case, "mlps", rates, &[("of", of.into()), ("bytes", bytes.into())], None)
    }

    pub(super) fn lines(&mut self, name: &str, touched: &[Touched], bounds: Option<Bounds>) -> Result<()> {
        for Touched { load, case, unit, counts } in touched {
            let bound = bounds.map(|bounds| match (unit, *case) {
                (Unit::Moves, _) => bounds.moves,
                (_, "insert") => bounds.insertion,
                _ => bounds.lookup,
            });
            self.summary(name, &format!("load-{load}/{case}"), *unit, counts, bound)?;
        }
        Ok(())
    }

    /// What was counted, and what the table says of it, if it does.
    fn summary(
        &mut self,
        name: &str,
        case: &str,
        unit: Unit,
        counts: &Summary,
        stated: Option<usize>,
    ) -> Result<()> {
        let more = [("operations", counts.operations.into())];
        let [mean, p99, max, bound] = match unit {
            Unit::Lines => ["lines_mean", "lines_p99", "lines_max", "lines_bound"],
            Unit::BatchLines => {
                ["batch_lines_mean", "batch_lines_p99", "batch_lines_max", "batch_lines_bound"]
            }
            Unit::Moves => ["moves_mean", "moves_p99", "moves_max", "moves_bound"],
        };
        self.line(name, case, mean, &[counts.mean], &more, None)?;
        self.line(name, case, p99, &[counts.p99], &more, None)?;
        self.line(name, case, max, &[counts.max], &more, None)?;
        match stated {
            Some(stated) => self.line(name, case, bound, &[stated as f64], &[], None),
            None => Ok(()),
        }
    }

    pub(super) fn occupancy(&mut self, name: &str, entries: usize, values: &[f64]) -> Result<()> {
        self.line(name, "occupancy", "occupancy", values, &[("entries", entries.into())], None)
    }

    pub(super) fn flood(&mut self, name: &str, runs: &[Flooded], bounds: Option<Bounds>) -> Result<()> {
        let Some(last) = runs.last() else { return Ok(()) };
        let more: [(&str, Value); 2] = [("flows", last.flows.into()), ("slots", last.slots.into())];
        let each = |of: &dyn Fn(&Flooded) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
        self.line(name, "flood-0", "mpps", &each(&|run| run.quiet_mpps), &more, None)?;
        self.line(name, "flood-0", "mlps", &each(&|run| run.quiet_mlps), &more, None)?;
        for (i, &share) in SHARES.iter().enumerate() {
            let (case, existing) = (format!("flood-{share}"), 1.0 - share as f64 / 100.0);
            self.line(name, &case, "mpps", &each(&|run| run.mpps[i]), &more, None)?;
            if existing > 0.0 {
                let rates = each(&|run| run.mpps[i] * existing);
                self.line(name, &case, "existing_mpps", &rates, &more, None)?;
            }
            self.line(name, &case, "kept", &each(&|run| run.mpps[i] / run.quiet_mpps), &more, None)?;
        }
        self.line(name, "flood-between", "mlps", &each(&|run| run.mlps), &more, None)?;
        self.line(name, "flood-between", "kept", &each(&|run| run.mlps / run.quiet_mlps), &more, None)?;
        self.line(name, "flood-100", "admitted", &each(&|run| run.admitted), &more, None)?;
        // Of a batch all are looked up, and one searches in vain. Searches that succeed would come on top: a full table has none left.
        let batch =
            bounds.map(|bounds| last.batch * bounds.lookup + bounds.insertion.saturating_sub(bounds.lookup));
        let one = bounds.map(|bounds| bounds.insertion);
        for (unit, lines, bound) in
            [(Unit::Lines, &last.lines, one), (Unit::BatchLines, &last.batch_lines, batch)]
        {
            if let Some(lines) = lines {
                self.summary(name, "flood-100", unit, lines, bound)?;
            }
        }
        Ok(())
    }

    /// For people.
    pub(super) fn print(&self, batch: usize, keyed: bool) {
        let hash = if keyed { "hashing included" } else { "hash given" };
        println!("{}, batches of {batch}, {hash}; median (least to greatest)", self.size);
        let all = self.report.lines();
        let range = |line: &Measurement| {
            format!("{} ({}-{})", figure(line.value), figure(line.min), figure(line.max))
        };
        // A table that was full before says so.
        let row = |line: &Measurement| {
            let asked = load(line).and_then(|load| load.strip_prefix("load-")?.parse::<f64>().ok());
            let reached = line.params.get("load").and_then(Value::as_f64);
            match (asked, reached) {
                (Some(asked), Some(reached)) if asked - reached > 0.005 => {
                    format!("{} (full at {reached:.2})", line.subject)
                }
                _ => line.subject.clone(),
            }
        };
        let mut loads: Vec<&str> = Vec::new();
        for load in all.iter().filter(|line| line.metric == "bytes_per_flow").filter_map(load) {
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        for wanted in loads {
            let of_load = || all.iter().filter(|line| load(line) == Some(wanted));
            println!("\n{}: M lookups/s", wanted.replace('-', " "));
            let lookups: Vec<&Measurement> = of_load().filter(|line| line.metric == "mlps").collect();
            pivot(&lookups, row, ending, range);
            println!("\n{}: M operations/s, and bytes per flow", wanted.replace('-', " "));
            let others: Vec<&Measurement> =
                of_load().filter(|line| ["mops", "bytes_per_flow"].contains(&line.metric)).collect();
            pivot(
                &others,
                row,
                ending,
                |line| {
                    if line.metric == "mops" { range(line) } else { figure(line.value) }
                },
            );
        }
        let bounds: Vec<&Measurement> = all.iter().filter(|line| line.subject == "bound").collect();
        if !bounds.is_empty() {
            println!("\nbound: M random 4-byte loads/s in a region as large as the table");
            let of = |line: &Measurement| line.params["of"].as_str().unwrap_or_default().to_owned();
            pivot(&bounds, of, ending, range);
        }
        self.print_lines();
        let occupancies: Vec<&Measurement> = all.iter().filter(|line| line.metric == "occupancy").collect();
        if !occupancies.is_empty() {
            println!("\nkeys over slots when the first has no room");
            pivot(
                &occupancies,
                |line| line.subject.clone(),
                ending,
                |line| format!("{:.4} ({:.4}-{:.4})", line.value, line.min, line.max),
            );
        }
        self.print_flood();
        self.print_ratios();
    }

    fn print_flood(&self) {
        let shown = |line: &&Measurement| flood(line) && !line.metric.ends_with("lines_p99");
        let floods: Vec<&Measurement> = self.report.lines().iter().filter(shown).collect();
        if floods.is_empty() {
            return;
        }
        println!(
            "\na full table, by percent of the packets that belong to new flows. M packets/s: all (mpps), of flows that were there"
        );
        println!(
            "(existing_mpps), all against no flood (kept). M lookups/s of flows that were there (mlps), without and between new flows."
        );
        println!("Cache lines of a packet that searches for room (lines), of a whole batch (batch_lines)");
        let row = |line: &Measurement| format!("{} {}", line.subject, ending(line));
        let metric = |line: &Measurement| line.metric.to_owned();
        pivot(&floods, row, metric, |line| {
            let value = format!("{:.2}", line.value);
            if line.runs == 1 { value } else { format!("{value} ({:.2}-{:.2})", line.min, line.max) }
        });
    }

    fn print_ratios(&self) {
        let ratios = self.report.ratios();
        if ratios.is_empty() {
            return;
        }
        println!("\n{OURS} against the others, with 95 % intervals");
        let short = |case: &str| case.split('/').skip(2).collect::<Vec<_>>().join(" ").replace("load-", "");
        let (mut cases, mut others): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for ratio in ratios {
            for (all, one) in [(&mut cases, &ratio.case), (&mut others, &ratio.to)] {
                if !all.contains(&one.as_str()) {
                    all.push(one);
                }
            }
        }
        let mut rows =
            vec![std::iter::once(String::new()).chain(cases.iter().map(|case| short(case))).collect()];
        for other in others {
            let cell = |case: &&str| {
                let ratio = ratios.iter().find(|ratio| ratio.case == *case && ratio.to == other);
                ratio.map_or_else(String::new, |r| format!("{:.2} ({:.2}-{:.2})", r.value, r.low, r.high))
            };
            rows.push(std::iter::once(other.to_owned()).chain(cases.iter().map(cell)).collect());
        }
        print_grid(&rows);
    }

    fn print_lines(&self) {
        let all = self.report.lines();
        for (what, metrics) in [
            ("cache lines touched", ["lines_mean", "lines_p99", "lines_max", "lines_bound"]),
            ("entries moved", ["moves_mean", "moves_p99", "moves_max", "moves_bound"]),
        ] {
            let means: Vec<&Measurement> =
                all.iter().filter(|line| line.metric == metrics[0] && !flood(line)).collect();
            if means.is_empty() {
                continue;
            }
            println!("\n{what}: mean, 99th percentile, greatest, and the bound where one is stated");
            let cell = |mean: &Measurement| {
                let of_metric = |metric: &str| {
                    let mut of_case = all.iter().filter(|l| l.subject == mean.subject && l.case == mean.case);
                    of_case.find(|line| line.metric == metric).map(|line| line.value)
                };
                let [p99, max] = [metrics[1], metrics[2]].map(|metric| of_metric(metric).unwrap_or(0.0));
                let bound = of_metric(metrics[3]).map_or_else(String::new, |bound| format!(" of {bound}"));
                format!("{:.2} {p99} {max}{bound}", mean.value)
            };
            let column = |line: &Measurement| {
                let rest = line.case.strip_prefix(&self.size).unwrap_or(&line.case).trim_start_matches('/');
                rest.strip_prefix("load-").map_or(rest.to_owned(), |rest| rest.replace('/', " "))
            };
            pivot(&means, |line| line.subject.clone(), column, cell);
        }
    }
}

/// The last part of a case's name.
fn ending(line: &Measurement) -> String {
    line.case.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Whether it is of a flood.
fn flood(line: &Measurement) -> bool {
    ending(line).starts_with("flood-")
}

/// The part of a case's name that says its load.
fn load(line: &Measurement) -> Option<&str> {
    line.case.split('/').find(|part| part.starts_with("load-"))
}

/// A case's rates, run by run.
fn runs(rounds: &[Round], case: &str) -> Vec<f64> {
    let of = |round: &Round| round.rates.iter().find(|rate| rate.case == case).map(|rate| rate.value);
    rounds.iter().filter_map(of).collect()
}
