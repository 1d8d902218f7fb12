//! Part 3, flow tables and latency hiding.

use super::{Line, Machine, Outcome, number, objects, ratios, shown, verdict};
use crate::{env, figures, fuzz, proc, record, tidy};
use anyhow::{Context, Result, bail};
use serde_json::Value;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("lookups of 2^20 flows against rte_hash and the maps", |machine| lookups(machine, "2^20")),
    ("lookups of 2^24 flows against rte_hash and the maps", |machine| lookups(machine, "2^24")),
    ("known and unknown flows in one burst, and one flow at a time, against rte_hash", mixed),
    ("find or insert against rte_hash", find_or_insert),
    ("insertions to load 0.95 are bounded", bounded),
    ("expiry and migration look at the buckets asked for", steps),
    ("memory is there before it is used", prefaulted),
    ("groups and coroutines against the plain loop", hiding),
    ("keys that leave early", leaving),
    ("tries by coroutines against their plain loop", tries),
    ("a flood into a full table", flood),
    ("a flood in the same bursts as flows that are there", flood_within),
    ("Fu's Figure 4.7", figure),
    // What must exist besides.
    ("every table in the suite", |machine| tests(machine, "the suite", &["--test", "suite"], 96)),
    ("the flow table's own tests", |machine| tests(machine, "the flow table", &["--lib", "flowtable"], 40)),
    ("the yardsticks' and the shards' own tests", yardsticks),
    ("filters, cardinality, heavy hitters", summaries),
    ("filters beside the crates there are", beside_crates),
    ("readers beside a writer", |machine| {
        tests(
            machine,
            "readers",
            &["--test", "concurrent", "--test", "concurrent_flowtable", "--test", "concurrent_sharded"],
            4,
        )
    }),
    ("a hundred million flows in the flow table", |machine| {
        let passed = machine
            .tests(&["--release", "-p", "tidemill-flow", "--test", "flowtable_held", "--", "--ignored"], 1)?;
        Ok(Outcome::Pass(format!("{passed} test with 10^8 flows of 16-byte keys")))
    }),
    ("the model checker", model),
    ("drivers agree and allocate nothing", drivers),
    ("bench flow", bench),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
    ("fuzzing", fuzzing),
];

/// Lookups: ours to DPDK's and to each of the maps.
const LEAST_TO_DPDK: f64 = 2.0;
const LEAST_TO_MAPS: f64 = 1.5;
/// Find-or-insert of new keys: ours to DPDK's lookup and addition.
const LEAST_NEW_TO_DPDK: f64 = 3.0;
/// The better of group and coroutine to the plain loop.
const LEAST_HIDING: [(&str, f64); 2] = [("2^20", 1.4), ("2^25", 1.8)];
/// What a flood leaves of the lookup rate of flows that were there.
const LEAST_KEPT: f64 = 0.8;
/// How full a table gets before a key finds no room.
const LEAST_FULL: f64 = 0.95;
/// Curves of Figure 4.7, and loads.
const CURVES: (usize, usize) = (6, 9);
/// The greatest load that every curve has.
const FIGURE_LOAD: f64 = 0.8;
/// Of these `bench flow` holds insertions of `chaining` to be the quickest: the paper's six (Fu 2020, 4.5.6).
const SIX: [&str; 6] = ["linear", "quadratic", "double", "hopscotch", "chaining", "cuckoo"];
/// The part's fuzz targets.
const FUZZED: &[&str] = &["flow_ops", "flow_filters"];

/// The ratio's case.
fn case(ratio: &Value) -> &str {
    ratio["case"].as_str().unwrap_or("?")
}

fn peers(machine: &Machine, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut all = vec!["flow", "--json"];
    all.extend(arguments);
    all.extend(machine.quick.then_some("--quick"));
    machine.peers(&all)
}

/// Ratios of ours, and what is said of those of the bounds: tables that know where keys lie, of one line and of two. Where not even that of two
/// lines, which is what a hit of ours is, has `least`, it says so: the goal stands, and what it takes is known.
fn beside_bounds(objects: &[Value], least: f64) -> (Vec<&Value>, String) {
    let is_bound = |ratio: &&Value| ratio["of"].as_str().is_some_and(|of| of.starts_with("bound:"));
    let (bounds, ours): (Vec<&Value>, Vec<&Value>) = ratios(objects).into_iter().partition(is_bound);
    let one = |ratio: &&Value| {
        let of = ratio["of"].as_str().unwrap_or("?");
        let beyond = of == "bound:2-lines" && number(ratio, "high") < least;
        let beyond = if beyond {
            ", so not even that loop with two lines a key reaches the goal on this machine"
        } else {
            ""
        };
        format!("{} {of} {}{beyond}", case(ratio), shown(ratio))
    };
    (ours, bounds.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Random hits in batches of 32, keys of 16 bytes, load 0.9.
fn lookups(machine: &Machine, entries: &str) -> Result<Outcome> {
    let objects = peers(machine, &["--entries", entries, "--case", "hit"])?;
    let (ratios, bounds) = beside_bounds(&objects, LEAST_TO_DPDK);
    let good = |ratio: &&Value| {
        let least = if ratio["to"] == "peer:rte_hash" { LEAST_TO_DPDK } else { LEAST_TO_MAPS };
        number(ratio, "value") >= least
    };
    let text: Vec<String> = ratios.iter().map(|ratio| shown(ratio)).collect();
    let text = format!(
        "{}; at least {LEAST_TO_DPDK}, to maps {LEAST_TO_MAPS}; memory allows: {bounds}",
        text.join(", ")
    );
    Ok(verdict(ratios.len() == 4 && ratios.iter().all(good), text))
}

/// Half of each batch known, the others not, in random order; and hits one by one.
fn mixed(machine: &Machine) -> Result<Outcome> {
    let objects = peers(machine, &["--case", "mixed,hit-single", "--only", "rte_hash"])?;
    let ratios: Vec<&Value> =
        ratios(&objects).into_iter().filter(|ratio| ratio["to"] == "peer:rte_hash").collect();
    if ratios.len() != 4 {
        bail!("{} ratios to rte_hash, not those of two cases and two sizes", ratios.len());
    }
    let text: Vec<String> = ratios.iter().map(|ratio| format!("{} {}", case(ratio), shown(ratio))).collect();
    Ok(Outcome::Measured(text.join(", ")))
}

/// A table is filled with random keys, all new, in batches of 32.
fn find_or_insert(machine: &Machine) -> Result<Outcome> {
    let only = ["--entries", "2^20,2^24", "--case", "find-or-insert", "--only", "rte_hash"];
    let objects = peers(machine, &only)?;
    let (ratios, bounds) = beside_bounds(&objects, LEAST_NEW_TO_DPDK);
    let ratios: Vec<&Value> = ratios.into_iter().filter(|ratio| ratio["to"] == "peer:rte_hash").collect();
    let text: Vec<String> = ratios.iter().map(|ratio| format!("{} {}", case(ratio), shown(ratio))).collect();
    let good = ratios.iter().all(|ratio| number(ratio, "value") >= LEAST_NEW_TO_DPDK);
    let text = format!("{}; at least {LEAST_NEW_TO_DPDK}; memory allows: {bounds}", text.join(", "));
    Ok(verdict(good && ratios.len() == 2, text))
}

/// Tests hold each insertion to the bound that the documentation states; a measurement shows where it lies.
fn bounded(machine: &Machine) -> Result<Outcome> {
    let passed = machine.tests(&["-p", "tidemill-flow", "--lib", "--", "flowtable::tests::bounds"], 9)?;
    let objects =
        machine.tidemill(&["bench", "flow", "--table", "flowtable", "--case", "lines", "--json"])?;
    let at = |metric: &str| {
        let wanted = |line: &&Value| {
            line["metric"] == metric
                && line["case"].as_str().is_some_and(|case| case.ends_with("/load-0.95/insert"))
        };
        objects.iter().find(wanted).map(|line| number(line, "value")).with_context(|| format!("no {metric}"))
    };
    let (lines, moves) = (at("lines_max")?, at("moves_max")?);
    // What the table states of itself: `FlowTable::INSERT_LINES`.
    let (most_lines, most_moves) = (at("lines_bound")?, at("moves_bound")?);
    let text = format!(
        "{passed} tests; at load 0.95 an insertion touches {:.2} lines, {lines} at most, bound {most_lines}; moves {:.3} entries, {moves} at most, bound {most_moves}",
        at("lines_mean")?,
        at("moves_mean")?,
    );
    Ok(verdict(lines <= most_lines && moves <= most_moves, text))
}

/// What a call of expiry or of migration looks at, and how many calls make a round.
fn steps(machine: &Machine) -> Result<Outcome> {
    let names =
        ["a_sweep_visits_the_buckets_asked_for", "a_step_of_a_migration_looks_at_the_buckets_asked_for"];
    let passed =
        machine.tests(&[&["-p", "tidemill-flow", "--lib", "--"][..], &names[..]].concat(), names.len())?;
    Ok(Outcome::Pass(format!("{passed} tests: the buckets asked for, all flows in a round")))
}

/// Pages are in memory when a table has been made: the kernel says so, and filling it takes no page fault.
fn prefaulted(machine: &Machine) -> Result<Outcome> {
    let regions =
        machine.tests(&["-p", "tidemill-lookup", "--lib", "--", "memory_is_there_before_it_is_used"], 1)?;
    let tables =
        machine.tests(&["-p", "tidemill-flow", "--lib", "--", "filling_a_table_takes_no_page_fault"], 1)?;
    Ok(Outcome::Pass(format!("{} tests", regions + tables)))
}

fn hide(machine: &Machine, arguments: &[&str]) -> Result<Vec<Value>> {
    let mut all = vec!["bench", "hide", "--json"];
    all.extend(arguments);
    if machine.quick {
        all.extend(["--runs", "3"]);
    }
    machine.tidemill(&all)
}

/// `chaining/group`: the driver.
fn driver(subject: &Value) -> &str {
    subject.as_str().and_then(|name| name.rsplit('/').next()).unwrap_or_default()
}

/// The better of the two drivers at each size, for hits and for misses: the best of the batch sizes, as a user would choose it. A wrong answer
/// ends the benchmark with an error.
fn hiding(machine: &Machine) -> Result<Outcome> {
    let objects = hide(machine, &["--entries", "2^15,2^20,2^25", "--case", "hit,miss"])?;
    let two = |ratio: &&Value| {
        driver(&ratio["to"]) == "plain" && ["group", "coroutine"].contains(&driver(&ratio["of"]))
    };
    let to_plain: Vec<&Value> = ratios(&objects).into_iter().filter(two).collect();
    let best = |size: &str, asked: &str| {
        let of_size = to_plain.iter().filter(|ratio| {
            let mut parts = case(ratio).split('/');
            parts.next() == Some(size) && parts.next_back() == Some(asked)
        });
        let best = of_size.copied().max_by(|a, b| number(a, "value").total_cmp(&number(b, "value")));
        best.with_context(|| format!("no ratio of {asked} at {size}"))
    };
    let text = |ratio: &Value| format!("{} {} {}", case(ratio), driver(&ratio["of"]), shown(ratio));
    let (mut good, mut found) = (true, Vec::new());
    for asked in ["hit", "miss"] {
        for (size, least) in std::iter::once(("2^15", 0.0)).chain(LEAST_HIDING) {
            let ratio = best(size, asked)?;
            good &= number(ratio, "value") >= least;
            found.push(text(ratio));
        }
    }
    let [(_, first), (_, second)] = LEAST_HIDING;
    let found = found.join(", ");
    Ok(verdict(good, format!("{found}; at least {first} and {second}, of 2^15 nothing; all answers agree")))
}

/// Half of the keys are found at once: a coroutine that has ended makes room, a group waits for its last.
fn leaving(machine: &Machine) -> Result<Outcome> {
    let objects = hide(machine, &["--entries", "2^15,2^20,2^25", "--case", "early"])?;
    let to_group: Vec<&Value> =
        ratios(&objects).into_iter().filter(|ratio| driver(&ratio["to"]) == "group").collect();
    let (mut good, means) = equal_groups(&to_group)?;
    // No batch size is slower for sure.
    let is_held =
        |ratio: &&&Value| LEAST_HIDING.iter().any(|(size, _)| case(ratio).split('/').next() == Some(size));
    good &= to_group.iter().filter(is_held).all(|ratio| number(ratio, "high") >= 1.0);
    let text: Vec<String> =
        to_group.iter().map(|ratio| format!("{} {:.2}", case(ratio), number(ratio, "value"))).collect();
    let means = format!("coroutine to group {means} over all batches");
    Ok(verdict(good, format!("{means}; at least 1, of 2^15 nothing; {}", text.join(", "))))
}

/// Whether coroutines at least equal groups in the mean over all batches, and that mean by size. At 2^15 the table is in the caches, there is
/// nothing to hide, and it is only said.
fn equal_groups(to_group: &[&Value]) -> Result<(bool, String)> {
    let (mut good, mut means) = (true, Vec::new());
    for (size, is_held) in std::iter::once(("2^15", false)).chain(LEAST_HIDING.map(|(size, _)| (size, true)))
    {
        let of_size = to_group.iter().filter(|ratio| case(ratio).split('/').next() == Some(size));
        let logarithms: Vec<f64> = of_size.map(|ratio| number(ratio, "value").ln()).collect();
        if logarithms.is_empty() {
            bail!("no ratio of coroutine to group at {size}");
        }
        let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
        // Equal, to two digits.
        good &= !is_held || mean >= 0.995;
        means.push(format!("{mean:.2} at {size}"));
    }
    Ok((good, means.join(", ")))
}

/// The structures of long chains answer bursts by a driver: on the tables of 2026, keys inside prefixes, in batches of 256.
fn tries(machine: &Machine) -> Result<Outcome> {
    let folder = machine.data()?.join("rib");
    let (mut good, mut text) = (true, Vec::new());
    for table in record::TABLES {
        let routes = folder.join(table).display().to_string();
        let objects = hide(machine, &["--routes", &routes, "--batch", "256"])?;
        let batches: Vec<&Value> = ratios(&objects)
            .into_iter()
            .filter(|ratio| driver(&ratio["of"]) == "batch" && case(ratio).ends_with("/prefix"))
            .collect();
        good &= batches.len() == 2 && batches.iter().all(|ratio| number(ratio, "low") > 1.0);
        text.extend(batches.iter().map(|ratio| format!("{} {}", case(ratio), shown(ratio))));
    }
    Ok(verdict(good, format!("{}; more than 1; all answers are the oracle's", text.join(", "))))
}

/// What `bench flow --case flood` says of our table, by case and metric.
struct Flood(Vec<Value>);

impl Flood {
    fn measured(machine: &Machine) -> Result<Self> {
        let arguments = ["bench", "flow", "--table", "flowtable", "--case", "flood", "--json"];
        machine.tidemill(&arguments).map(Flood)
    }

    fn line(&self, case: &str, metric: &str) -> Result<&Value> {
        let ending = format!("/{case}");
        let wanted = |line: &&Value| {
            line["metric"] == metric && line["case"].as_str().is_some_and(|case| case.ends_with(&ending))
        };
        self.0.iter().find(wanted).with_context(|| format!("no {metric} of {case}"))
    }

    fn value(&self, case: &str, metric: &str) -> Result<f64> {
        Ok(number(self.line(case, metric)?, "value"))
    }
}

/// Lines of a packet, one by one and in batches, which tests hold to their bounds; lookups between bursts of the flood.
fn flood(machine: &Machine) -> Result<Outcome> {
    let passed = machine.tests(&["-p", "tidemill-flow", "--lib", "--", "flowtable::tests::flood"], 10)?;
    let flood = Flood::measured(machine)?;
    let kept = flood.value("flood-between", "kept")?;
    let (batch, most) =
        (flood.line("flood-100", "batch_lines_max")?, flood.value("flood-100", "batch_lines_bound")?);
    let (packets, batch) = (number(&batch["params"], "batch"), number(batch, "value"));
    let (one, most_of_one) =
        (flood.value("flood-100", "lines_max")?, flood.value("flood-100", "lines_bound")?);
    let text = format!(
        "{passed} tests; lookups of flows that were there keep {kept:.2}, at least {LEAST_KEPT}; in batches a packet touches {:.2} lines, a batch of {packets} {batch} at most, bound {most}; one that searches for room {:.2}, {one} at most, bound {most_of_one}",
        flood.value("flood-100", "batch_lines_mean")? / packets,
        flood.value("flood-100", "lines_mean")?,
    );
    Ok(verdict(kept >= LEAST_KEPT && batch <= most && one <= most_of_one, text))
}

/// Packets of flows and of the flood in the same batches, in the order in which they come.
fn flood_within(machine: &Machine) -> Result<Outcome> {
    let flood = Flood::measured(machine)?;
    let (mut good, mut text) = (true, Vec::new());
    for percent in [10, 50, 90] {
        let kept = flood.value(&format!("flood-{percent}"), "kept")?;
        good &= kept >= LEAST_KEPT;
        text.push(format!("{kept:.2} at {percent} %"));
    }
    Ok(verdict(
        good,
        format!(
            "of all packets' rate is kept {}, by the flood's share; at least {LEAST_KEPT}",
            text.join(", ")
        ),
    ))
}

fn figure(machine: &Machine) -> Result<Outcome> {
    let picture = env::scratch("held")?.join("fu-4.7.svg");
    let plot = picture.to_string_lossy();
    let objects =
        machine.tidemill(&["bench", "flow", "--figure", figures::FLOW, "--json", "--plot", &plot])?;
    let mut points: Vec<(&str, usize)> = Vec::new();
    for series in objects
        .iter()
        .filter(|line| line["figure"] == figures::FLOW)
        .filter_map(|line| line["series"].as_str())
    {
        match points.iter_mut().find(|(name, _)| *name == series) {
            Some((_, count)) => *count += 1,
            None => points.push((series, 1)),
        }
    }
    let text: Vec<String> = points.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let drawn = std::fs::metadata(&picture).is_ok_and(|file| file.len() > 0);
    // A table that is full before load 0.9 has fewer points, and the figure says so.
    let whole = drawn && points.len() == CURVES.0 && points.iter().all(|(_, count)| *count + 1 >= CURVES.1);
    let at_last: Vec<String> = objects
        .iter()
        .filter(|line| number(line, "x") == FIGURE_LOAD)
        .map(|line| format!("{} {:.1}", line["series"].as_str().unwrap_or("?"), number(line, "y")))
        .collect();
    let broken = figures::broken(figures::FLOW, &objects);
    let claims = if broken.is_empty() {
        "its claims hold".to_owned()
    } else {
        format!("NOT SO: {}", broken.join("; "))
    };
    let text = format!(
        "points by curve: {}; M lookups/s at load {FIGURE_LOAD}: {}; {claims}; {plot}",
        text.join(", "),
        at_last.join(", ")
    );
    Ok(verdict(whole && broken.is_empty(), text))
}

fn tests(machine: &Machine, what: &str, arguments: &[&str], least: usize) -> Result<Outcome> {
    let (target, filter) = match arguments {
        ["--lib", filter] => (["--lib"].as_slice(), Some(*filter)),
        target => (target, None),
    };
    let mut all = vec!["-p", "tidemill-flow"];
    all.extend(target);
    all.extend(["--", "--show-output"]);
    all.extend(filter);
    Ok(Outcome::Pass(format!("{} tests of {what}", machine.tests(&all, least)?)))
}

/// That a search of the key store queues 1,000 places at most is among them. By their name the cuckoo filter's four are, too.
fn yardsticks(machine: &Machine) -> Result<Outcome> {
    let modules =
        ["chaining::", "cuckoo::", "hopscotch::", "keystore::", "linear::", "open::", "sharded::", "suite::"];
    let passed = machine.tests(&[&["-p", "tidemill-flow", "--lib", "--"][..], &modules[..]].concat(), 30)?;
    Ok(Outcome::Pass(format!("{passed} tests of the yardsticks, the shards, the suite itself")))
}

fn summaries(machine: &Machine) -> Result<Outcome> {
    let mut passed = 0;
    for (file, least) in [("filters", 9), ("counting", 11)] {
        passed += machine.tests(&["-p", "tidemill-flow", "--test", file], least)?;
    }
    Ok(Outcome::Pass(format!("{passed} tests of filters and counters")))
}

/// Our filters beside the crates. Ours take keys at any time, as fastbloom's does: there we chose ours, which may not be slower. A binary fuse
/// filter (xorf) is made of all its keys at once, and no user of ours has such a set: measured.
fn beside_crates(_: &Machine) -> Result<Outcome> {
    let mut command = env::cargo();
    let example = ["run", "--release", "--quiet", "-p", "tidemill-flow", "--example", "summaries"];
    command.args(example).args(["--", "--filters", "16", "24"]);
    let objects = objects(&proc::output(&mut command)?)?;
    let chosen = |ratio: &&Value| ["bloom", "cuckoo-filter"].iter().any(|name| ratio["of"] == *name);
    let ratios: Vec<&Value> = ratios(&objects).into_iter().filter(chosen).collect();
    let text: Vec<String> = ratios
        .iter()
        .map(|ratio| format!("{} {} {}", case(ratio), ratio["of"].as_str().unwrap_or("?"), shown(ratio)))
        .collect();
    // Half of the queries are hits: what the table in src/filter/mod.rs has, and what packets ask.
    let held: Vec<&Value> = ratios
        .into_iter()
        .filter(|ratio| ratio["to"] == "peer:fastbloom" && case(ratio).ends_with("/mixed"))
        .collect();
    let good = held.len() == 4 && held.iter().all(|ratio| number(ratio, "value") >= 1.0);
    Ok(verdict(good, format!("{}; mixed, to peer:fastbloom: at least 1", text.join(", "))))
}

/// Every interleaving of readers and the writer, up to a few preemptions; threads under ThreadSanitizer. Where that cannot run, nothing is shown.
fn model(machine: &Machine) -> Result<Outcome> {
    let totals = machine.said(&["test", "--tier", "model"])?;
    Ok(verdict(totals.ends_with(" failed, 0 skipped"), totals))
}

fn drivers(machine: &Machine) -> Result<Outcome> {
    let mut passed = machine.tests(&["-p", "tidemill-lookup", "--lib", "--", "drive"], 5)?;
    passed += machine.tests(&["-p", "tidemill-lookup", "--test", "no_allocation"], 1)?;
    Ok(Outcome::Pass(format!("{passed} tests of the drivers")))
}

/// Speed and occupancy of all tables. The flow table takes keys to [`LEAST_FULL`] at least. Where insertions count chaining leads, as the paper
/// has it: it writes the new entry and one link.
fn bench(machine: &Machine) -> Result<Outcome> {
    let mut arguments = vec!["bench", "flow", "--case", "speed,occupancy", "--load", "0.9", "--json"];
    arguments.extend(machine.quick.then_some("--quick"));
    let objects = machine.tidemill(&arguments)?;
    let wanted = ["/hit", "/insert", "/find-or-insert", "/occupancy"];
    let chosen = objects.iter().filter(|line| {
        let case = line["case"].as_str().unwrap_or_default();
        !line["subject"].is_null() && wanted.iter().any(|ending| case.ends_with(ending))
    });
    let text: Vec<String> = chosen
        .map(|line| {
            let case = line["case"].as_str().and_then(|case| case.rsplit('/').next()).unwrap_or_default();
            format!("{} {case} {:.4}", line["subject"].as_str().unwrap_or("?"), number(line, "value"))
        })
        .collect();
    let of = |name: &str, case: &str| {
        let wanted = |line: &&Value| {
            line["subject"] == name && line["case"].as_str().is_some_and(|of| of.ends_with(case))
        };
        objects.iter().find(wanted).with_context(|| format!("no {case} of {name}"))
    };
    let insertions = |name: &str| -> Result<f64> { Ok(number(of(name, "/insert")?, "value")) };
    let six: Vec<f64> = SIX.into_iter().map(insertions).collect::<Result<_>>()?;
    let quickest = six.iter().copied().fold(0.0, f64::max);
    // The least of all runs, each with other keys.
    let full = number(of("flowtable", "/occupancy")?, "min");
    let good = insertions("chaining")? >= quickest && full >= LEAST_FULL;
    Ok(verdict(
        good,
        format!(
            "{}; of the paper's six chaining inserts the quickest; flowtable takes keys to {full:.4} at least, wanted {LEAST_FULL}",
            text.join("; ")
        ),
    ))
}

fn fuzzing(machine: &Machine) -> Result<Outcome> {
    let seconds = if machine.quick { 10 } else { 300 };
    let totals = fuzz::some(FUZZED, seconds)?;
    Ok(verdict(totals.failed == 0 && totals.passed == FUZZED.len(), format!("{totals}, {seconds} s each")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn coroutines_equal_groups_where_there_is_something_to_hide() {
        let equal = |sizes: [(&str, f64); 3]| {
            let ratios =
                sizes.map(|(size, value)| json!({"case": format!("{size}/16B/early"), "value": value}));
            super::equal_groups(&ratios.iter().collect::<Vec<_>>())
        };
        let (good, text) = equal([("2^15", 0.9), ("2^20", 1.1), ("2^25", 1.0)]).unwrap();
        assert!(good && text == "0.90 at 2^15, 1.10 at 2^20, 1.00 at 2^25", "{text}");
        assert!(!equal([("2^15", 1.2), ("2^20", 0.98), ("2^25", 1.1)]).unwrap().0);
        assert!(equal([("2^20", 1.1), ("2^20", 1.1), ("2^25", 1.1)]).is_err(), "2^15 was not measured");
    }
}
