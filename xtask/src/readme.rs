//! `readme`: writes the numbers of README.md, crates/lpm/README.md and bench/figures.md anew from the records of bench/results. They stand
//! between `<!-- numbers:begin NAME -->` and `<!-- numbers:end -->`; where nothing has been recorded, nothing does.

mod classify;
mod gate;
mod port;
mod roles;

use crate::peers::flow::CASES;
use crate::peers::lpm::OF_LABELS;
use crate::{env, record};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Change nothing; fail if the numbers are not those of the records
    #[arg(long)]
    check: bool,
}

type Block = (&'static str, fn() -> Result<String>);

/// The files with numbers, and their blocks.
const FILES: &[(&str, &[Block])] = &[
    ("README.md", BLOCKS),
    ("crates/lpm/README.md", &[("members", members)]),
    ("bench/figures.md", &[("fu-4.6", gate::fu_4_6), ("fu-4.7", fu_4_7)]),
];

const BLOCKS: &[Block] = &[
    ("peers", peers),
    ("lpm", lpm),
    ("yardsticks", yardsticks),
    ("port", port::port),
    ("flow-peers", flow_peers),
    ("flow", flow),
    ("hide", hide),
    ("classify", classify::classify),
    ("roles", roles::roles),
];

/// Whether the numbers are those of the records, now or already.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut good = true;
    for (name, blocks) in FILES {
        let path = env::root().join(name);
        let text = std::fs::read_to_string(&path).context(*name)?;
        let mut fresh = text.clone();
        for (block, make) in *blocks {
            fresh = replaced(&fresh, block, &make()?).context(*name)?;
        }
        if fresh == text {
            println!("{name}: the numbers are those of bench/results");
        } else if options.check {
            println!("{name}: the numbers are not those of bench/results: cargo xtask readme");
            good = false;
        } else {
            std::fs::write(&path, fresh).context(*name)?;
            println!("{name}: new numbers");
        }
    }
    Ok(good)
}

/// The files with numbers.
pub(crate) fn files() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The blocks of a file's text that are not what the records say.
pub(crate) fn stale(file: &str, text: &str) -> Result<Vec<&'static str>> {
    let mut stale = Vec::new();
    let blocks = FILES.iter().filter(|(name, _)| *name == file).flat_map(|(_, blocks)| *blocks);
    for (name, block) in blocks {
        if replaced(text, name, &block()?)? != text {
            stale.push(*name);
        }
    }
    Ok(stale)
}

/// The text with another block of this name.
fn replaced(text: &str, name: &str, block: &str) -> Result<String> {
    let begin = format!("<!-- numbers:begin {name} -->\n");
    let (before, rest) = text.split_once(&begin).with_context(|| format!("no line {}", begin.trim_end()))?;
    let end = "<!-- numbers:end -->";
    let at = rest.find(end).with_context(|| format!("no line {end} after {}", begin.trim_end()))?;
    if rest[..at].contains("<!-- numbers:begin") {
        bail!("no line {end} after {}", begin.trim_end());
    }
    Ok(format!("{before}{begin}{block}{}", &rest[at..]))
}

/// A record as it was written.
struct Recorded {
    header: Value,
    lines: Vec<Value>,
}

impl Recorded {
    /// None if there is no such file.
    fn read(name: &str) -> Result<Option<Recorded>> {
        let path = record::path(name);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Recorded::parse(&text).with_context(|| path.display().to_string()).map(Some)
    }

    fn parse(text: &str) -> Result<Recorded> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            lines.push(serde_json::from_str::<Value>(line).with_context(|| format!("line {}", number + 1))?);
        }
        if lines.is_empty() || lines[0]["record"].is_null() {
            bail!("line 1: no header");
        }
        Ok(Recorded { header: lines.remove(0), lines })
    }

    /// Where and when, in one line.
    fn origin(&self) -> String {
        let of = |field: &str| text(&self.header, field);
        let commit: String = of("commit").chars().take(10).collect();
        let changes = if self.header["dirty"] == true { " with changes" } else { "" };
        let quick = if self.header["quick"] == true { "; few and short runs (--quick)" } else { "" };
        let date: String = of("date").chars().take(10).collect();
        // Flow tables are filled with keys made for the purpose.
        let table = self.header["table"].as_str().map_or_else(String::new, |name| format!("Table {name}; "));
        format!(
            "{table}{}, one thread of {} (load before: {}); {date}, commit {commit}{changes}{quick}.\n",
            of("cpu"),
            self.header["cores"],
            self.header["load"]
        )
    }

    /// The subjects in the order of their first appearance, without the machine's bound.
    fn subjects(&self) -> Vec<String> {
        let mut subjects: Vec<String> = Vec::new();
        for subject in self.lines.iter().filter_map(|line| line["subject"].as_str()) {
            if subject != "bound" && !subjects.iter().any(|known| known == subject) {
                subjects.push(subject.to_owned());
            }
        }
        subjects
    }

    fn value(&self, subject: &str, case: &str, metric: &str) -> Option<f64> {
        let wanted = |l: &&Value| l["subject"] == subject && l["case"] == case && l["metric"] == metric;
        self.lines.iter().find(wanted)?["value"].as_f64()
    }

    /// The machine's own rate in a region of the structure's size, of the fastest kind of loads among these.
    fn bound(&self, structure: &str, cases: &[&str]) -> Option<f64> {
        let wanted = |l: &&Value| {
            let case = l["case"].as_str().unwrap_or_default();
            l["subject"] == "bound" && l["params"]["of"] == structure && cases.contains(&case)
        };
        self.lines.iter().filter(wanted).filter_map(|line| line["value"].as_f64()).reduce(f64::max)
    }
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or("?").to_owned()
}

/// Three significant digits.
fn figure(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(v) if v >= 100.0 => format!("{v:.0}"),
        Some(v) if v >= 10.0 => format!("{v:.1}"),
        Some(v) => format!("{v:.2}"),
    }
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A head and the line below it; the first column is text, the others are numbers.
fn head(cells: &[&str]) -> String {
    let rule = "---:|".repeat(cells.len().saturating_sub(1));
    format!("{}|---|{rule}\n", row(cells.iter().map(|&cell| cell.to_owned())))
}

/// How a record is shown.
type Table = fn(&Recorded) -> String;

/// Of each of these records that there is, where it comes from and its table.
fn tables(tables: &[(&str, Table)]) -> Result<String> {
    let mut out = String::new();
    for (name, table) in tables {
        if let Some(recorded) = Recorded::read(name)? {
            let gap = if out.is_empty() { "" } else { "\n" };
            out = format!("{out}{gap}{}\n{}", recorded.origin(), table(&recorded));
        }
    }
    Ok(out)
}

/// One block of both families.
fn families(what: &str, block: Table) -> Result<String> {
    of_families(&[4, 6].map(|version| (version, format!("{what}-v{version}"))), block)
}

/// A block of each of these records that there is, behind the version of IP that it is about.
fn of_families(records: &[(u8, String)], block: Table) -> Result<String> {
    let mut out = String::new();
    for (version, name) in records {
        if let Some(recorded) = Recorded::read(name)? {
            let gap = if out.is_empty() { "" } else { "\n" };
            out = format!("{out}{gap}IPv{version}. {}\n{}", recorded.origin(), block(&recorded));
        }
    }
    Ok(out)
}

fn peers() -> Result<String> {
    of_families(&peer_records(), peers_table)
}

/// All peers on IPv4 routes, those of other labels on these, all peers on IPv6 routes.
fn peer_records() -> Vec<(u8, String)> {
    let of_labels = OF_LABELS.iter().map(|of| of.record);
    let v4 = std::iter::once("peers-lpm-v4").chain(of_labels).map(|name| (4, name.to_owned()));
    v4.chain([(6, "peers-lpm-v6".to_owned())]).collect()
}

/// Ours, the peer's, how many routes that rejected, and the table if the case names one.
type Pair = (String, String, u64, String);

fn peers_table(recorded: &Recorded) -> String {
    pairs(recorded, "mlps", &["rnd", "seq", "rep"], "M lookups/s")
}

fn flow_peers() -> Result<String> {
    let recorded = Recorded::read("peers-flow")?;
    Ok(recorded.map_or_else(String::new, |recorded| {
        format!("{}\n{}", recorded.origin(), flow_peers_table(&recorded))
    }))
}

fn flow_peers_table(recorded: &Recorded) -> String {
    pairs(recorded, "mlps", &CASES, "M/s")
}

/// A ratio to a peer, and both rates.
struct Paired<'a> {
    ratio: &'a Value,
    ours: Option<f64>,
    theirs: Option<f64>,
}

impl Paired<'_> {
    fn text(&self, field: &str) -> String {
        text(self.ratio, field)
    }

    fn number(&self, field: &str) -> f64 {
        self.ratio[field].as_f64().unwrap_or(f64::NAN)
    }

    /// Ratio with interval, and both rates.
    fn cell(&self) -> String {
        let (value, low, high) = (self.number("value"), self.number("low"), self.number("high"));
        format!("**{value:.2}** ({low:.2} to {high:.2}): {} to {}", figure(self.ours), figure(self.theirs))
    }
}

/// All ratios in the order of the record: each pair has been measured together, so both rates are those before its ratio.
fn paired<'a>(recorded: &'a Recorded, metric: &str) -> Vec<Paired<'a>> {
    let mut rates: BTreeMap<(String, String), f64> = BTreeMap::new();
    let mut paired = Vec::new();
    for line in &recorded.lines {
        let case = text(line, "case");
        if line["metric"] == metric {
            rates.insert((text(line, "subject"), case), line["value"].as_f64().unwrap_or(0.0));
        } else if line["metric"] == "ratio" {
            let rate = |side: &str| rates.get(&(text(line, side), case.clone())).copied();
            paired.push(Paired { ratio: line, ours: rate("of"), theirs: rate("to") });
        }
    }
    paired
}

/// Ratio with interval, and both rates: one row per pair and table, one column per case.
fn pairs(recorded: &Recorded, metric: &str, cases: &[&str], unit: &str) -> String {
    let mut rows: Vec<(Pair, BTreeMap<String, String>)> = Vec::new();
    for both in paired(recorded, metric) {
        let whole = both.text("case");
        let (table, case) = whole.rsplit_once('/').unwrap_or(("", &whole));
        let rejected = both.ratio["rejected"].as_u64().unwrap_or(0);
        let pair = (both.text("of"), both.text("to"), rejected, table.to_owned());
        let (case, cell) = (case.to_owned(), both.cell());
        match rows.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, cells)) => cells.insert(case, cell),
            None => {
                rows.push((pair, BTreeMap::from([(case, cell)])));
                None
            }
        };
    }
    let mut out = format!("Each cell: ratio (95 % interval): ours to the peer's {unit}.\n\n");
    out += &head(&[&["ours to the peer's"], cases].concat());
    for ((of, to, rejected, table), cells) in rows {
        let to = to.trim_start_matches("peer:");
        let note = if rejected > 0 { format!(" ({rejected} routes rejected)") } else { String::new() };
        let table = if table.is_empty() { table } else { format!(", {table}") };
        let cells = cases.iter().map(|&case| cells.get(case).cloned().unwrap_or_else(|| "-".to_owned()));
        out += &row(std::iter::once(format!("{of} to {to}{table}{note}")).chain(cells));
    }
    out
}

fn lpm() -> Result<String> {
    families("bench-lpm", lpm_table)
}

/// Structures of the literature beside some of ours.
fn yardsticks() -> Result<String> {
    families("yardsticks", lpm_table)
}

fn lpm_table(recorded: &Recorded) -> String {
    let mut out = "M lookups/s by case. In brackets the share of the bound: as many random 4-byte loads (for seq each waits for the one \
        before) in a region of the structure's size. More than 1: keys gather in few places, which stay in the nearer caches.\n\n"
        .to_owned();
    out += &head(&[
        "structure",
        "rnd",
        "seq",
        "rep",
        "adv",
        "prefix",
        "build, ms",
        "bytes per prefix",
        "updates, k/s",
        "in batches of 1000",
    ]);
    for name in recorded.subjects() {
        let rate = |case: &str| recorded.value(&name, case, "mlps");
        let bounded = |case: &str, bounds: &[&str]| match (rate(case), recorded.bound(&name, bounds)) {
            (Some(rate), Some(bound)) if bound > 0.0 => {
                format!("{} ({:.2})", figure(Some(rate)), rate / bound)
            }
            (rate, _) => figure(rate),
        };
        out += &row([
            name.clone(),
            bounded("rnd", &["independent", "independent-gather"]),
            bounded("seq", &["dependent"]),
            figure(rate("rep")),
            figure(rate("adv")),
            figure(rate("prefix")),
            figure(recorded.value(&name, "build", "build_ms")),
            figure(recorded.value(&name, "build", "bytes_per_prefix")),
            figure(recorded.value(&name, "update", "kups")),
            figure(recorded.value(&name, "update-batch", "kups")),
        ]);
    }
    out
}

/// Every longest-prefix matching structure that was measured, whichever record it is in.
fn members() -> Result<String> {
    let mut out = String::new();
    for version in [4, 6] {
        let mut names = ["yardsticks", "bench-lpm"].map(|what| format!("{what}-v{version}")).to_vec();
        // Of what the labels of the others are too many for.
        names.extend((version == 4).then(|| record::FEW_LABELS_RECORD.to_owned()));
        let mut records = Vec::new();
        for name in names {
            records.extend(Recorded::read(&name)?);
        }
        if records.is_empty() {
            continue;
        }
        let origins: String = records.iter().map(|record| format!("- {}", record.origin())).collect();
        let gap = if out.is_empty() { "" } else { "\n" };
        out = format!(
            "{out}{gap}IPv{version}, from {}; a structure that is in several is that of the first:\n\n{origins}\n",
            match records.len() {
                1 => "one run".to_owned(),
                2 => "two runs".to_owned(),
                runs => format!("{runs} runs"),
            }
        );
        out += &members_table(&records);
    }
    Ok(out)
}

/// A row for each structure of the records.
fn members_table(records: &[Recorded]) -> String {
    let mut out = head(&[
        "structure",
        "bytes per prefix",
        "build, ms",
        "rnd, M/s",
        "prefix",
        "seq",
        "updates, k/s",
        "in batches of 1000",
    ]);
    let mut known: Vec<String> = Vec::new();
    for record in records {
        for name in record.subjects() {
            if known.contains(&name) {
                continue;
            }
            let value = |case: &str, metric: &str| figure(record.value(&name, case, metric));
            out += &row([
                format!("`{name}`"),
                value("build", "bytes_per_prefix"),
                value("build", "build_ms"),
                value("rnd", "mlps"),
                value("prefix", "mlps"),
                value("seq", "mlps"),
                value("update", "kups"),
                value("update-batch", "kups"),
            ]);
            known.push(name);
        }
    }
    out
}

fn flow() -> Result<String> {
    let recorded = Recorded::read("bench-flow")?;
    Ok(recorded.map_or_else(String::new, |recorded| flow_table(&recorded)))
}

/// Every table at the greatest load: one row per table, one column per case.
fn flow_table(recorded: &Recorded) -> String {
    let prefix = |case: &str| Some(case.strip_suffix("/memory")?.to_owned());
    let loads = recorded.lines.iter().filter_map(|line| prefix(line["case"].as_str()?));
    let Some(at) = loads.max_by_key(|case| case.rsplit('-').next().map(str::to_owned)) else {
        return String::new();
    };
    let size = at.rsplit_once('/').map_or("", |(size, _)| size);
    let mut out = format!("{}\n{at}, M/s.\n\n", recorded.origin());
    out += &head(&[
        "table",
        "hit",
        "hit, one by one",
        "miss",
        "insert",
        "find-or-insert",
        "remove",
        "bytes per flow",
        "full at",
    ]);
    for name in recorded.subjects() {
        let value = |case: &str, metric: &str| figure(recorded.value(&name, &format!("{at}/{case}"), metric));
        let full = recorded.value(&name, &format!("{size}/occupancy"), "occupancy");
        out += &row([
            name.clone(),
            value("hit", "mlps"),
            value("hit-single", "mlps"),
            value("miss", "mlps"),
            value("insert", "mops"),
            value("find-or-insert", "mops"),
            value("remove", "mops"),
            value("memory", "bytes_per_flow"),
            full.map_or_else(|| "-".to_owned(), |full| format!("{full:.3}")),
        ]);
    }
    out
}

/// Lookup rates of the six hash tables of Fu 2020, Figure 4.7: one row per load, one column per table.
fn fu_4_7() -> Result<String> {
    let recorded = Recorded::read(crate::figures::FLOW)?;
    Ok(recorded.map_or_else(String::new, |recorded| loads_table(&recorded)))
}

fn loads_table(recorded: &Recorded) -> String {
    let points: Vec<&Value> =
        recorded.lines.iter().filter(|line| line["figure"] == crate::figures::FLOW).collect();
    let (mut names, mut loads): (Vec<String>, Vec<f64>) = (Vec::new(), Vec::new());
    for point in &points {
        let (name, load) = (text(point, "series"), point["x"].as_f64().unwrap_or(0.0));
        if !names.contains(&name) {
            names.push(name);
        }
        if !loads.contains(&load) {
            loads.push(load);
        }
    }
    loads.sort_by(f64::total_cmp);
    let columns: Vec<&str> = std::iter::once("load").chain(names.iter().map(String::as_str)).collect();
    let unit = points.first().map_or_else(String::new, |point| text(point, "unit"));
    let mut out = format!("{}\n{unit}.\n\n{}", recorded.origin(), head(&columns));
    for load in loads {
        let rate = |name: &String| {
            let wanted = |point: &&&Value| point["series"] == name.as_str() && point["x"] == load;
            points.iter().find(wanted).map_or_else(|| "full".to_owned(), |point| figure(point["y"].as_f64()))
        };
        out += &row(std::iter::once(load.to_string()).chain(names.iter().map(rate)));
    }
    out
}

/// Of hash tables, then of tries.
fn hide() -> Result<String> {
    let mut out = String::new();
    for name in ["bench-hide", "bench-hide-v4", "bench-hide-v6"] {
        if let Some(recorded) = Recorded::read(name)? {
            out += if out.is_empty() { "" } else { "\n" };
            out += &hide_table(&recorded);
        }
    }
    Ok(out)
}

/// One row per structure and case, one column per driver.
fn hide_table(recorded: &Recorded) -> String {
    let mut drivers = vec!["plain", "group", "coroutine", "adaptive"];
    // Older records have no call of the structure's own.
    if recorded.subjects().iter().any(|subject| subject.ends_with("/batch")) {
        drivers.push("batch");
    }
    let mut out = format!(
        "{}\nM lookups/s in batches of 256; in brackets the ratio to the plain loop.\n\n{}",
        recorded.origin(),
        head(&[&["table, case"], &drivers[..]].concat())
    );
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in recorded.lines.iter().filter(|line| line["metric"] == "mlps") {
        let (subject, case) = (text(line, "subject"), text(line, "case"));
        let table = subject.split('/').next().unwrap_or_default().to_owned();
        // The engine's bursts; the others are in the record.
        if case.contains("/batch-256/") && !rows.contains(&(table.clone(), case.clone())) {
            rows.push((table, case));
        }
    }
    for (table, case) in rows {
        let rate = |driver: &str| recorded.value(&format!("{table}/{driver}"), &case, "mlps");
        let ratio = |driver: &str| {
            let (of, to) = (format!("{table}/{driver}"), format!("{table}/plain"));
            let wanted = |l: &&Value| {
                l["metric"] == "ratio" && l["case"] == case.as_str() && l["of"] == of && l["to"] == to
            };
            recorded.lines.iter().find(wanted).and_then(|line| line["value"].as_f64())
        };
        let cells = drivers.iter().map(|driver| match ratio(driver) {
            Some(ratio) => format!("{} ({ratio:.2})", figure(rate(driver))),
            None => figure(rate(driver)),
        });
        out += &row(std::iter::once(format!("{table} {case}")).chain(cells));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"v":1,"record":"x","commit":"0123456789abcdef","dirty":true,"cpu":"C","cores":2,"date":"2026-05-11T10:00:00Z","load":0.5,"table":"t"}"#;

    #[test]
    fn a_block_is_replaced_and_nothing_else() {
        let text = "a\n<!-- numbers:begin x -->\nold\n<!-- numbers:end -->\nb\n<!-- numbers:begin y -->\n<!-- numbers:end -->\n";
        let new = replaced(text, "x", "new\n").unwrap();
        assert_eq!(new, text.replace("old", "new"));
        assert_eq!(replaced(&new, "x", "new\n").unwrap(), new);
        assert!(replaced(text, "z", "").is_err());
        let open = "<!-- numbers:begin x -->\n<!-- numbers:begin y -->\n<!-- numbers:end -->\n";
        assert!(replaced(open, "x", "").is_err());
    }

    #[test]
    fn records_without_a_header_are_refused() {
        assert!(Recorded::parse("").is_err());
        assert!(Recorded::parse(r#"{"v":1,"bench":"lpm"}"#).is_err());
        let recorded = Recorded::parse(HEADER).unwrap();
        let origin = recorded.origin();
        assert!(origin.contains("2026-05-11, commit 0123456789 with changes"), "{origin}");
    }

    #[test]
    fn a_ratio_stands_with_the_rates_of_its_own_pair() {
        let rate = |subject: &str, value: f64| {
            format!(r#"{{"subject":"{subject}","case":"rnd","metric":"mlps","value":{value}}}"#)
        };
        let ratio = |to: &str, value: f64| {
            format!(
                r#"{{"case":"rnd","metric":"ratio","of":"us","to":"{to}","value":{value},"low":1.9,"high":2.1,"rejected":0}}"#
            )
        };
        let lines = [
            HEADER.to_owned(),
            rate("us", 300.0),
            rate("peer:a", 150.0),
            ratio("peer:a", 2.0),
            rate("us", 310.0),
            rate("peer:b", 155.0),
            ratio("peer:b", 2.0),
        ];
        let table = peers_table(&Recorded::parse(&lines.join("\n")).unwrap());
        assert!(table.contains("| us to a | **2.00** (1.90 to 2.10): 300 to 150 | - | - |\n"), "{table}");
        assert!(table.contains("| us to b | **2.00** (1.90 to 2.10): 310 to 155 | - | - |\n"), "{table}");
    }

    #[test]
    fn records_of_other_labels_stand_between_the_families() {
        let names: Vec<String> =
            peer_records().into_iter().map(|(ip, name)| format!("{ip} {name}")).collect();
        let expected =
            ["4 peers-lpm-v4", "4 peers-lpm-v4-nh100", "4 peers-lpm-v4-uni30000", "6 peers-lpm-v6"];
        assert_eq!(names, expected);
    }

    #[test]
    fn each_of_our_structures_has_a_row_beside_one_peer() {
        let rate = |subject: &str, value: f64| {
            format!(r#"{{"subject":"{subject}","case":"rnd","metric":"mlps","value":{value}}}"#)
        };
        let ratio = |of: &str, value: f64| {
            format!(
                r#"{{"case":"rnd","metric":"ratio","of":"{of}","to":"peer:a","value":{value},"low":1.9,"high":2.1,"rejected":0}}"#
            )
        };
        let lines = [
            HEADER.to_owned(),
            rate("us-d16x3", 300.0),
            rate("us-d19", 450.0),
            rate("peer:a", 150.0),
            ratio("us-d16x3", 2.0),
            ratio("us-d19", 3.0),
        ];
        let table = peers_table(&Recorded::parse(&lines.join("\n")).unwrap());
        assert!(
            table.contains("| us-d16x3 to a | **2.00** (1.90 to 2.10): 300 to 150 | - | - |\n"),
            "{table}"
        );
        assert!(table.contains("| us-d19 to a | **3.00** (1.90 to 2.10): 450 to 150 | - | - |\n"), "{table}");
    }

    #[test]
    fn bursts_of_known_and_unknown_flows_and_single_flows_have_columns() {
        let lines = [
            HEADER,
            r#"{"subject":"us","case":"2^20/mixed","metric":"mlps","value":40}"#,
            r#"{"subject":"peer:a","case":"2^20/mixed","metric":"mlps","value":50}"#,
            r#"{"case":"2^20/mixed","metric":"ratio","of":"us","to":"peer:a","value":0.8,"low":0.7,"high":0.9,"rejected":0}"#,
            r#"{"subject":"us","case":"2^20/hit-single","metric":"mlps","value":27}"#,
            r#"{"subject":"peer:a","case":"2^20/hit-single","metric":"mlps","value":30}"#,
            r#"{"case":"2^20/hit-single","metric":"ratio","of":"us","to":"peer:a","value":0.9,"low":0.8,"high":1.0,"rejected":0}"#,
        ];
        let table = flow_peers_table(&Recorded::parse(&lines.join("\n")).unwrap());
        let cells = "**0.80** (0.70 to 0.90): 40.0 to 50.0 | **0.90** (0.80 to 1.00): 27.0 to 30.0";
        assert!(table.contains(cells), "{table}");
    }

    #[test]
    fn a_structure_stands_with_its_own_bound() {
        let lines = [
            HEADER,
            r#"{"subject":"s","case":"rnd","metric":"mlps","value":200}"#,
            r#"{"subject":"bound","case":"independent","metric":"mlps","value":300,"params":{"of":"s"}}"#,
            r#"{"subject":"bound","case":"independent-gather","metric":"mlps","value":400,"params":{"of":"s"}}"#,
            r#"{"subject":"bound","case":"independent","metric":"mlps","value":900,"params":{"of":"t"}}"#,
        ];
        let table = lpm_table(&Recorded::parse(&lines.join("\n")).unwrap());
        assert!(table.contains("| s | 200 (0.50) | - |"), "{table}");
    }

    #[test]
    fn a_structure_in_two_records_has_one_row() {
        let line = |subject: &str, case: &str, metric: &str, value: f64| {
            format!(r#"{{"subject":"{subject}","case":"{case}","metric":"{metric}","value":{value}}}"#)
        };
        let first =
            [HEADER.to_owned(), line("s", "build", "build_ms", 40.0), line("s", "rnd", "mlps", 200.0)];
        let second = [HEADER.to_owned(), line("s", "rnd", "mlps", 9.0), line("t", "update", "kups", 8.0)];
        let records = [first, second].map(|lines| Recorded::parse(&lines.join("\n")).unwrap());
        let table = members_table(&records);
        assert_eq!(table.matches("| `s` |").count(), 1, "{table}");
        assert!(table.contains("| `s` | - | 40.0 | 200 | - | - | - | - |\n"), "{table}");
        assert!(table.ends_with("| `t` | - | - | - | - | - | 8.00 | - |\n"), "{table}");
    }

    #[test]
    fn a_flow_tables_ratio_stands_with_its_size() {
        let lines = [
            HEADER,
            r#"{"subject":"us","case":"2^20/16B/load-0.9/hit","metric":"mlps","value":90}"#,
            r#"{"subject":"peer:a","case":"2^20/16B/load-0.9/hit","metric":"mlps","value":45}"#,
            r#"{"case":"2^20/16B/load-0.9/hit","metric":"ratio","of":"us","to":"peer:a","value":2,"low":1.9,"high":2.1,"rejected":0}"#,
        ];
        let table = pairs(&Recorded::parse(&lines.join("\n")).unwrap(), "mlps", &["hit", "miss"], "M/s");
        let row = "| us to a, 2^20/16B/load-0.9 | **2.00** (1.90 to 2.10): 90.0 to 45.0 | - |\n";
        assert!(table.contains(row), "{table}");
    }

    #[test]
    fn tables_stand_at_the_greatest_load() {
        let lines = [
            HEADER,
            r#"{"subject":"t","case":"2^20/16B/load-0.5/memory","metric":"bytes_per_flow","value":99}"#,
            r#"{"subject":"t","case":"2^20/16B/load-0.5/hit","metric":"mlps","value":90}"#,
            r#"{"subject":"t","case":"2^20/16B/load-0.9/memory","metric":"bytes_per_flow","value":37.5}"#,
            r#"{"subject":"t","case":"2^20/16B/load-0.9/hit","metric":"mlps","value":80}"#,
            r#"{"subject":"t","case":"2^20/16B/occupancy","metric":"occupancy","value":0.987}"#,
        ];
        let table = flow_table(&Recorded::parse(&lines.join("\n")).unwrap());
        assert!(table.contains("| t | 80.0 | - | - | - | - | - | 37.5 | 0.987 |\n"), "{table}");
        assert!(flow_table(&Recorded::parse(HEADER).unwrap()).is_empty());
    }

    #[test]
    fn drivers_stand_beside_the_plain_loop() {
        let lines = [
            HEADER,
            r#"{"subject":"c/plain","case":"2^20/16B/batch-256/hit","metric":"mlps","value":20}"#,
            r#"{"subject":"c/group","case":"2^20/16B/batch-256/hit","metric":"mlps","value":30}"#,
            r#"{"case":"2^20/16B/batch-256/hit","metric":"ratio","of":"c/group","to":"c/plain","value":1.5}"#,
        ];
        let table = hide_table(&Recorded::parse(&lines.join("\n")).unwrap());
        assert!(table.contains("| c 2^20/16B/batch-256/hit | 20.0 | 30.0 (1.50) | - | - |\n"), "{table}");
    }

    #[test]
    fn a_table_that_is_full_before_says_so() {
        let point = |series: &str, x: f64, y: f64| {
            format!(r#"{{"figure":"fu-4.7","series":"{series}","x":{x},"y":{y},"unit":"M lookups/s"}}"#)
        };
        let lines = [HEADER.to_owned(), point("a", 0.1, 30.0), point("a", 0.9, 20.3), point("b", 0.1, 40.0)];
        let table = loads_table(&Recorded::parse(&lines.join("\n")).unwrap());
        assert!(table.contains("| 0.1 | 30.0 | 40.0 |\n| 0.9 | 20.3 | full |\n"), "{table}");
    }
}
