//! Part 5, every longest-prefix matching structure of the papers.

mod figures;
mod long;

use super::{Line, Machine, Outcome, verdict};
use crate::{env, tidy};
use anyhow::{Context, Result, ensure};
use long::LongRoutes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::Path;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("a sample of a table of each family, every structure", |machine| {
        verified(machine, &tables(machine, &[V4, V6])?, &["--sample", "1000000"])
    }),
    ("a sample of tables with long prefixes, every structure", |machine| {
        let files = tables(machine, &[LONG_V4, LONG_V6])?;
        let long = [
            long_prefixes(machine, &files[0], LONG_FROM[0])?,
            long_prefixes(machine, &files[1], LONG_FROM[1])?,
        ];
        let found = verified(machine, &files, &["--sample", "1000000"])?;
        Ok(with(found, &format!("{} prefixes longer than /24, {} longer than /48", long[0], long[1])))
    }),
    ("a sample of an IPv6 table that is all long prefixes, every structure", |machine| {
        let made = LongRoutes::new()?;
        let files = [made.table()];
        let long = long_prefixes(machine, &files[0], LONG_FROM[1])?;
        let found = verified(machine, &files, &["--sample", "1000000"])?;
        Ok(with(found, &format!("{long} prefixes longer than /48")))
    }),
    ("every address of an IPv4 table with long prefixes, every structure", |machine| {
        let extent: &[&str] =
            if machine.quick { &["--sample", "100000"] } else { &["--all", "--sample", "0"] };
        verified(machine, &tables(machine, &[LONG_V4])?, extent)
    }),
    ("a real stream of IPv4 updates, every structure", |machine| {
        let stream = table(machine, LONG_UPDATES)?;
        verified(machine, &tables(machine, &[LONG_V4])?, &["--sample", "100000", "--updates", &stream])
    }),
    ("a stream of IPv6 updates of long prefixes, every structure", |machine| {
        let made = LongRoutes::new()?;
        verified(
            machine,
            &[made.table()],
            &["--sample", "100000", "--batch", "100", "--updates", &made.updates()],
        )
    }),
    ("interleavings: batches of changes, each compared", interleavings),
    ("figures of Zec's thesis", |machine| figures::line(machine, "zec-")),
    ("figures of Fu's thesis", |machine| figures::line(machine, "fu-")),
    ("figures of CuVPP", |machine| figures::line(machine, "cuvpp-")),
    ("SAIL: accesses, bounds, virtual pushing", |machine| {
        tests(machine, "SAIL", &["-p", "tidemill-lpm", "--lib", "sail"], 10)
    }),
    ("SAIL: accesses per real update", |machine| {
        tests(machine, "real updates", &["--release", "-p", "tidemill-lpm", "--test", "real_sail"], 1)
    }),
    ("filters: false positives, nothing lost at load 0.95", |machine| {
        let all = ["-p", "tidemill-lpm", "--lib", "--", "cuvpp", "bloom", "pbf"];
        tests(machine, "filters", &all, 25)
    }),
    // What must exist besides.
    ("what tests all lengths at once, or searches them, is quicker than CuVPP", quicker_than_cuvpp),
    ("the crate's page has a row for every structure", rows),
    ("every structure routes", |machine| {
        let both = ["every_structure_routes", "the_schema_names_every_structure"];
        tests(
            machine,
            "a router",
            &[&["-p", "tidemill-router", "--test", "router", "--"], &both[..]].concat(),
            2,
        )
    }),
    ("the suite", |machine| tests(machine, "the suite", &["-p", "tidemill-lpm", "--test", "suite"], 100)),
    ("the probe, readers beside a writer", |machine| {
        let both = ["-p", "tidemill-lpm", "--test", "registry", "--test", "concurrent"];
        tests(machine, "every structure", &both, 4)
    }),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

const V4: &str = "ris-as3333-20260511.v4.nh148.zst";
const V6: &str = "ris-as3333-20260511.v6.nh148.zst";
/// Tables of which a part is beyond /24 or /48, where structures have second tables, third levels, slow paths; and a stream for the first.
const LONG_V4: &str = "rrc06-as4777-20100701.v4.nh.zst";
const LONG_V6: &str = "asmap-20240105.v6.asn.zst";
const LONG_UPDATES: &str = "routeviews2-20130101.updates.txt.zst";
/// What is longer counts as long.
const LONG_FROM: [usize; 2] = [24, 48];

fn table(machine: &Machine, name: &str) -> Result<String> {
    Ok(machine.data()?.join("rib").join(name).to_string_lossy().into_owned())
}

fn tables(machine: &Machine, names: &[&str]) -> Result<Vec<String>> {
    names.iter().map(|name| table(machine, name)).collect()
}

/// Prefixes of a table that are longer; there must be some.
fn long_prefixes(machine: &Machine, file: &str, than: usize) -> Result<u64> {
    let objects = machine.tidemill(&["fib", "stats", "--table", file, "--json"])?;
    let lengths = objects.iter().filter_map(|object| object["by_length"].as_array());
    let long: u64 = lengths.flat_map(|lengths| lengths.iter().skip(than + 1)).filter_map(Value::as_u64).sum();
    ensure!(long >= 100, "{file}: {long} prefixes longer than /{than}, too few to say anything of them");
    Ok(long)
}

/// An outcome with more said of it.
fn with(outcome: Outcome, more: &str) -> Outcome {
    match outcome {
        Outcome::Pass(text) => Outcome::Pass(format!("{text}; {more}")),
        Outcome::Fail(text) => Outcome::Fail(format!("{text}; {more}")),
        Outcome::Measured(text) => Outcome::Measured(format!("{text}; {more}")),
    }
}

/// The last line says how many answers were compared, and how many were wrong.
fn nothing_wrong(objects: &[Value]) -> Result<(bool, String)> {
    let last =
        objects.iter().rev().find(|object| !object["wrong"].is_null() && object["structure"].is_null());
    let last = last.context("no last line with \"wrong\"")?;
    let some = last["checked"].as_u64().is_some_and(|count| count > 0);
    Ok((some && last["wrong"].as_u64() == Some(0), last.to_string()))
}

fn verified(machine: &Machine, files: &[String], extent: &[&str]) -> Result<Outcome> {
    let mut arguments = vec!["fib", "verify", "--algorithm", "all", "--json"];
    files.iter().for_each(|file| arguments.extend(["--table", file]));
    arguments.extend(extent);
    let objects = machine.tidemill(&arguments)?;
    let mut stages = vec!["table".to_owned()];
    if let Some(at) = extent.iter().position(|argument| *argument == "--updates") {
        let changes = lines(extent.get(at + 1).context("--updates of what")?)?;
        ensure!(changes > 0, "no updates");
        stages.push(format!("after {changes} updates"));
    }
    let wanted = registered(machine, &files.iter().map(|file| family(file)).collect())?;
    let missing = missing(&wanted, &stages, &objects);
    let checks = objects.iter().filter(|object| !object["stage"].is_null()).count();
    let (good, last) = nothing_wrong(&objects)?;
    let mut text = format!("{} structures, {checks} checks: {last}", wanted.len());
    if !missing.is_empty() {
        text = format!("NOT CHECKED: {}; {text}", missing.join(", "));
    }
    Ok(verdict(good && missing.is_empty(), text))
}

/// The family of a table's file, by its name.
fn family(file: &str) -> u64 {
    if file.contains(".v6.") { 6 } else { 4 }
}

/// Every structure of these families, by family and name: the suite has a line for each, whatever labels it can store.
fn registered(machine: &Machine, families: &BTreeSet<u64>) -> Result<BTreeSet<(u64, String)>> {
    let objects = machine.tidemill(&["fib", "verify", "--suite", "1", "--algorithm", "all", "--json"])?;
    let of = |object: &Value| Some((object["family"].as_u64()?, object["structure"].as_str()?.to_owned()));
    let all: BTreeSet<(u64, String)> = objects.iter().filter_map(of).collect();
    for (family, least) in LEAST_STRUCTURES {
        let found = all.iter().filter(|(of, _)| *of == family).count();
        ensure!(found >= least, "{found} structures of IPv{family}, and there were {least}");
    }
    Ok(all.into_iter().filter(|(family, _)| families.contains(family)).collect())
}

/// The structures that were not checked at one of these stages. None may be left out: every table here has labels that all can store.
fn missing(wanted: &BTreeSet<(u64, String)>, stages: &[String], objects: &[Value]) -> Vec<String> {
    let is = |object: &Value, (family, structure): &(u64, String), stage: &String| {
        object["family"] == *family
            && object["structure"] == **structure
            && object["stage"] == **stage
            && object["checked"].as_u64() > Some(0)
    };
    let mut missing = Vec::new();
    for stage in stages {
        let without = |wanted: &&(u64, String)| !objects.iter().any(|object| is(object, wanted, stage));
        missing.extend(
            wanted.iter().filter(without).map(|(family, name)| format!("{name} (IPv{family}), {stage}")),
        );
    }
    missing
}

/// Lines of a file of updates, each of which is one.
fn lines(file: &str) -> Result<usize> {
    let reader = tidemill_archive::open(Path::new(file)).with_context(|| file.to_owned())?;
    let mut count = 0;
    for line in reader.lines() {
        let line = line.with_context(|| file.to_owned())?;
        count += usize::from(!line.trim().is_empty() && !line.starts_with('#'));
    }
    Ok(count)
}

/// By family, structures that there are at least, `auto` not among them.
const LEAST_STRUCTURES: [(u64, usize); 2] = [(4, 27), (6, 18)];

/// Batches of changes after which answers are compared, of each structure: all, and in a quick run. One batch applied, and everything
/// compared, is what the part calls an interleaving.
const LEAST_STATES: (u64, u64) = (100_000, 10_000);

fn interleavings(machine: &Machine) -> Result<Outcome> {
    // A table brings 6 batches, of 10 changes each, in the mean, or so many times as many; a sixth of the tables has labels that some structures refuse
    // (`sail-l8`: half). Those of DIR-24-8 and SAIL are 30 to 130 MB each, and to make them is most of the work. Every thousandth table has
    // 100,000 prefixes.
    let (tables, times, least) =
        if machine.quick { ("1000", "3", LEAST_STATES.1) } else { ("5000", "5", LEAST_STATES.0) };
    let suite = ["fib", "verify", "--suite", tables, "--batches", times, "--algorithm", "all", "--json"];
    let objects = machine.tidemill(&suite)?;
    let structures: Vec<&Value> = objects.iter().filter(|object| !object["structure"].is_null()).collect();
    let fewest =
        |what: &str| structures.iter().map(|line| line[what].as_u64().unwrap_or(0)).min().unwrap_or(0);
    let (tables, large) = (fewest("tables"), fewest("large"));
    let (states, changes) = (fewest("states"), fewest("changes"));
    let (good, last) = nothing_wrong(&objects)?;
    let text = format!(
        "{} structures, each on {tables} tables ({large} of 100,000 prefixes), compared after {states} batches of {changes} changes at least \
         (wanted {least} batches): {last}",
        structures.len()
    );
    Ok(verdict(good && states >= least && large > 0, text))
}

/// The two in CuVPP's spirit beside it, on a full table of each family: the slowest run of one of them over the quickest of CuVPP. `cuvpp-simd` tests lengths
/// together where there is AVX-512 only, and is CuVPP elsewhere.
fn quicker_than_cuvpp(machine: &Machine) -> Result<Outcome> {
    const CASES: [&str; 2] = ["rnd", "prefix"];
    let (mut good, mut said) = (true, Vec::new());
    for file in tables(machine, &[V4, V6])? {
        let mut arguments =
            vec!["bench", "lpm", "--algorithm", "cuvpp,cuvpp-simd,cuvpp-lengths", "--no-updates", "--json"];
        arguments.extend(["--case", "rnd,prefix", "--table", &file]);
        if machine.quick {
            arguments.extend(["--runs", "3", "--seconds", "0.05"]);
        }
        let objects = machine.tidemill(&arguments)?;
        for case in CASES {
            let of = |subject: &str, field: &str| -> Result<f64> {
                let is = |object: &&Value| {
                    object["subject"] == subject && object["case"] == case && object["metric"] == "mlps"
                };
                let found = objects.iter().find(is).and_then(|object| object[field].as_f64());
                found.with_context(|| format!("no {case} of {subject}"))
            };
            let mut quicker = false;
            for name in ["cuvpp-simd", "cuvpp-lengths"] {
                quicker |= of(name, "min")? > of("cuvpp", "max")?;
                let ratio = of(name, "value")? / of("cuvpp", "value")?;
                said.push(format!("IPv{} {case} {name} {ratio:.2}", family(&file)));
            }
            good &= quicker;
        }
    }
    Ok(verdict(good, format!("over cuvpp: {}", said.join(", "))))
}

/// Whether the measured tables of the crate's page, one of each family, name every structure that there is.
fn rows(machine: &Machine) -> Result<Outcome> {
    let path = env::root().join("crates/lpm/README.md");
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let all = registered(machine, &[4, 6].into())?;
    let missing = without_row(&page, &all);
    let text = format!("{} structures: cost, bytes, build, rates, updates", all.len());
    Ok(match missing.is_empty() {
        true => Outcome::Pass(text),
        false => Outcome::Fail(format!("without a row: {}", missing.join(", "))),
    })
}

/// The structures without a row of what they cost, or without one of what was measured, the latter one table for each family in their order.
fn without_row(page: &str, all: &BTreeSet<(u64, String)>) -> Vec<String> {
    let mut head = "";
    let (mut measured, mut found) = (0, BTreeSet::new());
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            // The line below the head is of the table.
            head = if line.starts_with("|-") { head } else { "" };
            continue;
        };
        if head.is_empty() {
            head = row;
            measured += u64::from(row.starts_with("structure | bytes per prefix"));
        }
        let Some((name, rest)) = row.strip_prefix('`').and_then(|row| row.split_once("` |")) else {
            continue;
        };
        if head.starts_with("structure | bytes per prefix") {
            found.insert((2 + 2 * measured, name.to_owned(), "measured"));
        } else if head.starts_with("name | family | a lookup touches") {
            let both: &[u64] = match rest.trim_start() {
                text if text.starts_with("IPv4") => &[4],
                text if text.starts_with("IPv6") => &[6],
                _ => &[4, 6],
            };
            found.extend(both.iter().map(|family| (*family, name.to_owned(), "cost")));
        }
    }
    let written = |name: &str| match name.split_once("-d") {
        // One row for all layouts: `dxr-dKr`, `dxr-dDxXr`, `rangetrie-dD`, `poptrie-dK`.
        Some(("dxr", layout)) => if layout.contains('x') { "dxr-dDxXr" } else { "dxr-dKr" }.to_owned(),
        Some(("rangetrie", _)) => "rangetrie-dD".to_owned(),
        Some(("poptrie", _)) => "poptrie-dK".to_owned(),
        _ => name.to_owned(),
    };
    let mut missing = Vec::new();
    for (family, name) in all {
        for (kind, row) in [("measured", name.clone()), ("cost", written(name))] {
            if !found.contains(&(*family, row, kind)) {
                missing.push(format!("{name} (IPv{family}, {kind})"));
            }
        }
    }
    missing
}

fn tests(machine: &Machine, what: &str, arguments: &[&str], least: usize) -> Result<Outcome> {
    let passed = machine.tests(arguments, least)?;
    Ok(Outcome::Pass(format!("{what}: {passed} tests")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_structure_that_was_left_out_is_missed() {
        let wanted: BTreeSet<(u64, String)> = [(4, "a".to_owned()), (6, "a".to_owned())].into();
        let line = |family: u64, stage: &str, checked: u64| json!({"family": family, "structure": "a", "stage": stage, "checked": checked});
        let stages = ["table", "after 30 updates"].map(str::to_owned);
        let all = [line(4, "table", 1), line(6, "table", 1), line(4, "after 30 updates", 1)];
        assert_eq!(missing(&wanted, &stages[..1], &all), Vec::<String>::new());
        assert_eq!(missing(&wanted, &stages, &all), ["a (IPv6), after 30 updates"]);
        assert_eq!(missing(&wanted, &stages[..1], &all[1..]), ["a (IPv4), table"]);
        // Stopped on the way, or nothing compared.
        let early = [line(4, "table", 1), line(6, "table", 0), line(4, "after 20 updates", 1)];
        assert_eq!(missing(&wanted, &stages, &early).len(), 3);
        let [v4, v6] = [V4, V6].map(family);
        assert_eq!((v4, v6, family(LONG_V4), family(LONG_V6)), (4, 6, 4, 6));
    }

    #[test]
    fn a_structure_without_a_row_is_named() {
        let page = "| name | family | a lookup touches | x |\n|---|---|---|---|\n| `dxr-dKr` | IPv4 | a |\n| `cuvpp` | both | b |\n\n\
                    | structure | bytes per prefix |\n|---|---|\n| `dxr-d18r` | 1 |\n| `cuvpp` | 1 |\n\n\
                    | structure | bytes per prefix |\n|---|---|\n| `cuvpp` | 1 |\n";
        let mut all: BTreeSet<(u64, String)> =
            [(4, "dxr-d18r".to_owned()), (4, "cuvpp".to_owned()), (6, "cuvpp".to_owned())].into();
        assert_eq!(without_row(page, &all), Vec::<String>::new());
        all.extend([(6, "dxr-d18r".to_owned()), (4, "dxr-d16x4r".to_owned())]);
        let missing = [
            "dxr-d16x4r (IPv4, measured)",
            "dxr-d16x4r (IPv4, cost)",
            "dxr-d18r (IPv6, measured)",
            "dxr-d18r (IPv6, cost)",
        ];
        assert_eq!(without_row(page, &all), missing);
    }

    #[test]
    fn updates_are_counted() {
        let made = LongRoutes::new().unwrap();
        assert_eq!(lines(&made.updates()).unwrap() as u64, long::UPDATES);
        assert_eq!(family(&made.table()), 6);
    }
}
