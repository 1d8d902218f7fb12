//! Part 4, the fastest longest-prefix matching.

use super::{Line, Machine, Outcome, number, ratios, shown, verdict};
use crate::peers::lpm::{AUTO, NH100, OfLabels, POPDIR, UNI30000};
use crate::{env, fuzz, proc, test, tidy};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;

pub(crate) const LINES: &[Line] = &[
    // What the part is held to, in its order.
    ("IPv4, 30,000 labels, against the fastest peer with 2-byte next hops", |machine| {
        against(machine, NH30000, POPDIR, "rte_fib-2b", &[("rnd", 2.0), ("seq", 1.3), ("rep", 1.5)])
    }),
    ("IPv4, 100 labels, against rte_fib with 1-byte next hops", |machine| {
        of_labels(machine, &NH100, &[("rnd", 1.0), ("seq", 1.0), ("rep", 1.0)])
    }),
    ("IPv4, 30,000 uniform labels, against 2-byte next hops", |machine| {
        of_labels(machine, &UNI30000, &[("rnd", 1.5)])
    }),
    ("IPv6 against rte_fib6", |machine| {
        against(machine, V6, AUTO, "rte_fib6-4b-avx512", &[("rnd", 2.0), ("seq", 1.3), ("rep", 1.5)])
    }),
    ("fractions of the bound", fractions),
    ("ADV, bursts of 1 to 256", bursts),
    ("the compact end", compact),
    ("updates, coalesced", updates),
    ("a full build", build),
    ("two cores", cores),
    ("every address of three real tables", exhaustive),
    ("IPv6: both ends of every interval, and samples", sampled),
    ("the suite", |machine| tests(machine, "the suite", &["-p", "tidemill-lpm", "--test", "suite"], 20)),
    ("fuzzing", fuzzing),
    ("Miri on the scalar forms", miri),
    // What must exist besides.
    ("DXR's layouts, widths, kernels, threads", |machine| {
        tests(machine, "DXR", &["-p", "tidemill-lpm", "--lib", "dxr"], 20)
    }),
    ("readers beside a writer, and what the probe counts", |machine| {
        let both = ["-p", "tidemill-lpm", "--test", "concurrent", "--test", "registry"];
        tests(machine, "every structure", &both, 4)
    }),
    ("the same under ThreadSanitizer, scalar forms", races),
    ("real tables and updates, and accesses of an update", real),
    ("VRFs share, IPv4 and IPv6", sharing),
    ("tune", tune),
    ("auto in well under a second", |machine| {
        let real = ["--release", "-p", "tidemill-lpm", "--test", "real_data", "real_auto", "--", "--ignored"];
        tests(machine, "full tables of both families", &real, 1)
    }),
    ("the crate on its own", alone),
    ("the crate on its own, in C", |machine| tests(machine, "the C interface", &["-p", "tidemill-lpm-c"], 3)),
    ("peers of crates, and the others of IPv6, answer alike", alike),
    ("Poptrie is no strawman", poptrie),
    ("tidy", |_| {
        let good = tidy::run()?;
        Ok(verdict(good, if good { "nothing found" } else { "findings, see above" }))
    }),
];

const NH30000: &str = "ris-as3333-20260511.v4.nh30000.zst";
const NH148: &str = "ris-as3333-20260511.v4.nh148.zst";
const V6: &str = "ris-as3333-20260511.v6.nh148.zst";
const UPDATES: &str = "ris-as3333-20260511.v4.updates.zst";

/// Three tables of different years and routers, every address.
const EXHAUSTIVE: [&str; 3] = [NH30000, "rrc06-as4777-20100701.v4.nh.zst", "rv-as23367-201908.v4.port32.zst"];

/// Tables with host routes, behind which the worst of Popdir and of Luleå is: searches of prefixes beyond /24, and chains down to /128.
const HOSTS: [(&str, u8); 2] = [("tier1-20230204.v4.prefixes.zst", 4), ("asmap-20240105.v6.asn.zst", 6)];

/// IPv6 tables of few labels and of many, and one with prefixes up to /128.
const SAMPLED: [&str; 3] = [V6, "ris-as3333-20260511.v6.uni30000.zst", "asmap-20240105.v6.asn.zst"];

/// The structure of the compact end, and what it is held to.
const COMPACT: &str = "popdir-d16x3";
const MOST_BYTES_PER_PREFIX: f64 = 1.6;
const LEAST_COMPACT_MLPS: f64 = 100.0;

const LEAST_UPDATES: f64 = 1e6;
const MOST_BUILD_SECONDS: f64 = 0.1;
/// Lookups on two cores, over one core, divided by the same of the bound.
const LEAST_SCALING: f64 = 0.95;

/// Poptrie to rte_fib-2b-avx512 in the records of its authors' C code on such a machine (207 to 190 with leaf index, 159 with
/// next hop; 39 to 8; 288 to 253), of which ours must reach 0.8.
const POPTRIE: [(&str, f64); 3] = [("rnd", 0.8 * 0.84), ("seq", 0.8 * 4.9), ("rep", 0.8 * 1.14)];

fn table(machine: &Machine, name: &str) -> Result<String> {
    Ok(machine.data()?.join("rib").join(name).to_string_lossy().into_owned())
}

/// As the records have it.
fn of_labels(machine: &Machine, of: &OfLabels, least: &[(&str, f64)]) -> Result<Outcome> {
    against(machine, of.table, of.ours, of.peers, least)
}

/// Ours against the peers whose name begins so; of several of ours one must keep all bounds.
fn against(machine: &Machine, name: &str, ours: &str, peer: &str, least: &[(&str, f64)]) -> Result<Outcome> {
    let file = table(machine, name)?;
    let mut arguments = vec!["lpm", "--table", &file, "--json", "--ours", ours, "--only", peer];
    arguments.extend(machine.quick.then_some("--quick"));
    let objects = machine.peers(&arguments)?;
    let (good, text) = kept(&ratios(&objects), least);
    Ok(verdict(good, text))
}

/// Whether one structure of ours keeps all bounds, to every peer; and all ratios.
fn kept(ratios: &[&Value], least: &[(&str, f64)]) -> (bool, String) {
    let mut ours: Vec<&str> = ratios.iter().filter_map(|ratio| ratio["of"].as_str()).collect();
    ours.sort_unstable();
    ours.dedup();
    let mut text = Vec::new();
    let mut one = false;
    for of in ours {
        let mut good = true;
        for (case, least) in least {
            let mut all =
                ratios.iter().filter(|ratio| ratio["of"] == of && ratio["case"] == *case).peekable();
            good &= all.peek().is_some();
            let mut shown_all = Vec::new();
            for ratio in all {
                good &= number(ratio, "value") >= *least;
                shown_all.push(shown(ratio));
            }
            text.push(format!("{case} {of} {}, at least {least:.2}", shown_all.join(", ")));
        }
        one |= good;
    }
    (one, text.join("; "))
}

/// The value of a case's metric among `bench lpm`'s lines.
fn value(objects: &[Value], case: &str, metric: &str) -> Result<f64> {
    let found = objects.iter().find(|object| object["case"] == case && object["metric"] == metric);
    let found = found.with_context(|| format!("no line with case {case:?} and metric {metric:?}"))?;
    found["value"].as_f64().context("a value that is no number")
}

fn bench(machine: &Machine, name: &str, more: &[&str]) -> Result<Vec<Value>> {
    let file = table(machine, name)?;
    let mut arguments = vec!["bench", "lpm", "--table", &file, "--json"];
    arguments.extend(more);
    machine.tidemill(&arguments)
}

/// What share of the machine's bound a structure reaches, in a region of its size: of independent loads, the better way, or of dependent ones.
fn fractions(machine: &Machine) -> Result<Outcome> {
    let mut text = Vec::new();
    for name in [NH30000, NH100.table, UNI30000.table, V6] {
        let objects = bench(machine, name, &["--case", "rnd,rep,prefix,seq", "--no-updates"])?;
        let rate = |case: &str| value(&objects, case, "mlps");
        // Where there are no gather instructions there is no such line.
        let independent = rate("independent")?.max(rate("independent-gather").unwrap_or(0.0));
        let dependent = rate("dependent")?;
        let mut shares = Vec::new();
        for case in ["rnd", "rep", "prefix", "seq"] {
            let share = rate(case)? / if case == "seq" { dependent } else { independent };
            ensure!(share.is_finite() && share > 0.0, "{name}: {case} is {share} of the bound");
            shares.push(format!("{case} {share:.2}"));
        }
        text.push(format!("{name}: {}", shares.join(", ")));
    }
    Ok(Outcome::Measured(text.join("; ")))
}

fn compact(machine: &Machine) -> Result<Outcome> {
    let objects = bench(machine, NH148, &["--algorithm", COMPACT, "--case", "rnd", "--no-updates"])?;
    let (bytes, rate) = (value(&objects, "build", "bytes_per_prefix")?, value(&objects, "rnd", "mlps")?);
    let text = format!("{COMPACT}: {bytes:.2} bytes per prefix, {rate:.0} Mlps RND");
    Ok(verdict(bytes <= MOST_BYTES_PER_PREFIX && rate >= LEAST_COMPACT_MLPS, text))
}

fn tests(machine: &Machine, what: &str, arguments: &[&str], least: usize) -> Result<Outcome> {
    let passed = machine.tests(arguments, least)?;
    Ok(Outcome::Pass(format!("{what}: {passed} tests")))
}

/// Stores that tables have in common; what a further table costs is what the tests print.
fn sharing(machine: &Machine) -> Result<Outcome> {
    let (passed, said) = machine.tests_said(&["-p", "tidemill-lpm", "--lib", "sharing"], 9)?;
    let costs: Vec<&str> = said.lines().filter(|line| line.contains("tables share")).collect();
    ensure!(
        costs.len() >= 3,
        "what a further table costs of DXR's layouts and of IPv6 was not said: {costs:?}"
    );
    Ok(Outcome::Pass(format!("{passed} tests; {}", costs.join("; "))))
}

/// Every structure on the tables and the stream of updates; what a further VRF costs there and what an update loads and stores is printed.
fn real(machine: &Machine) -> Result<Outcome> {
    let tests = ["--release", "-p", "tidemill-lpm", "--test", "real_data"];
    let (passed, said) = machine.tests_said(&tests, 11)?;
    let of_interest = |line: &&str| line.contains("updates one by one") || line.contains("each further one");
    let told: Vec<&str> = said.lines().filter(of_interest).collect();
    ensure!(told.len() >= 7, "accesses of an update and bytes of a table were not said: {told:?}");
    Ok(Outcome::Pass(format!("{passed} tests; {}", told.join("; "))))
}

/// What bursts of every size cost in both families, for the tables' own worst keys and for the structures'.
fn bursts(machine: &Machine) -> Result<Outcome> {
    let mut text = Vec::new();
    for (name, family) in [(NH30000, 4), (V6, 6)] {
        text.push(of_bursts(machine, name, family, ["rnd", "adv"])?);
    }
    for (name, family) in HOSTS {
        text.push(of_bursts(machine, name, family, ["prefix", "worst"])?);
    }
    Ok(Outcome::Measured(format!("p50 and p99 of a burst: {}", text.join("; "))))
}

/// Bursts of a case and of the worst keys, whose rate is said too.
fn of_bursts(machine: &Machine, name: &str, family: u8, cases: [&str; 2]) -> Result<String> {
    const SIZES: [u64; 5] = [1, 8, 32, 64, 256];
    let both = cases.join(",");
    let more = ["--case", &both, "--bursts", "1,8,32,64,256", "--no-updates"];
    let objects = bench(machine, name, &more)?;
    let mut text = Vec::new();
    for case in cases {
        text.push(format!("IPv{family}, {name}: {case} {:.0} Mlps", value(&objects, case, "mlps")?));
        for size in SIZES {
            let ns = |metric: &str| -> Result<f64> {
                let is = |object: &&Value| {
                    object["case"] == case && object["metric"] == metric && object["params"]["burst"] == size
                };
                let found = objects.iter().find(is).and_then(|object| object["value"].as_f64());
                found.with_context(|| format!("{name}: no {metric} of {case}, bursts of {size}"))
            };
            text.push(format!("bursts of {size} {:.0}, {:.0} ns", ns("p50_ns")?, ns("p99_ns")?));
        }
    }
    Ok(text.join("; "))
}

/// A real stream of UPDATEs, as fast as it is taken.
fn updates(machine: &Machine) -> Result<Outcome> {
    let stream = table(machine, UPDATES)?;
    let four = coalesced(&bench(machine, NH30000, &["--case", "rnd", "--updates", &stream])?)?;
    // The stream has no next hops, so that most of it changes nothing; and there is none of IPv6. Its order on routes of a table, each
    // announcement with another label:
    let four_like = coalesced(&bench(machine, NH30000, &["--case", "rnd", "--updates-like", &stream])?)?;
    let six = coalesced(&bench(machine, V6, &["--case", "rnd", "--updates-like", &stream])?)?;
    // The worst there is, beside it: many routes go, and come back, each a change.
    let flaps = coalesced(&bench(machine, V6, &["--case", "rnd"])?)?;
    let shown = |(rate, changed): (f64, f64)| {
        format!("{:.2} M/s, of which {:.0} % change the table", rate / 1e6, changed * 100.0)
    };
    let text = format!(
        "coalesced, IPv4 {}; with other labels {}; IPv6 in that order {}; IPv6 routes that come and go {}",
        shown(four),
        shown(four_like),
        shown(six),
        shown(flaps)
    );
    Ok(verdict([four, four_like, six].iter().all(|(rate, _)| *rate >= LEAST_UPDATES), text))
}

/// Coalesced updates per second, and the share that was left after coalescing and made a difference.
fn coalesced(objects: &[Value]) -> Result<(f64, f64)> {
    let found = objects.iter().find(|object| object["case"] == "update-coalesced");
    let found = found.context("no line of coalesced updates")?;
    let share = found["params"]["changed_share"].as_f64().context("no changed_share")?;
    Ok((number(found, "value") * 1e3, share))
}

/// What `auto` is for either family builds on the thread that asks.
fn build(machine: &Machine) -> Result<Outcome> {
    let mut text = Vec::new();
    let mut good = true;
    for (name, family) in [(NH30000, 4), (V6, 6)] {
        let objects = bench(machine, name, &["--case", "rnd", "--no-updates"])?;
        let seconds = value(&objects, "build", "build_ms")? / 1e3;
        good &= seconds < MOST_BUILD_SECONDS;
        text.push(format!("IPv{family} {:.0} ms", seconds * 1e3));
    }
    Ok(verdict(good, format!("{}, on one core", text.join(", "))))
}

/// Keys that come once, and keys that come again, in both families.
fn cores(machine: &Machine) -> Result<Outcome> {
    let (mut good, mut text) = (true, Vec::new());
    for (name, family) in [(NH30000, 4), (V6, 6)] {
        let objects = bench(machine, name, &["--case", "rnd,rep", "--threads", "2", "--no-updates"])?;
        let (kept, said) = scaled(&objects)?;
        good &= kept;
        text.push(format!("IPv{family}: {said}"));
    }
    Ok(verdict(good, text.join("; ")))
}

/// Whether a structure grows with cores as the bound of its size does, in every case; and how.
fn scaled(objects: &[Value]) -> Result<(bool, String)> {
    let bound = value(objects, "independent-gather", "scaling")?;
    let (mut good, mut text) = (true, Vec::new());
    for case in ["rnd", "rep"] {
        let ours = value(objects, case, "scaling")?;
        let share = ours / bound;
        good &= share >= LEAST_SCALING;
        text.push(format!("{case} {ours:.2} of one core's rate, {share:.2} of the bound's {bound:.2}"));
    }
    Ok((good, text.join(", ")))
}

/// What routers use by themselves, and the largest of its family.
const CHECKED: [&str; 3] = [AUTO, "dxr-d16x4r", "popdir-d19"];

fn exhaustive(machine: &Machine) -> Result<Outcome> {
    let extent: &[&str] = if machine.quick { &["--sample", "1000000"] } else { &["--all"] };
    // Each of them is asked for each address at least once.
    let least = if machine.quick { 1_000_000 } else { 1_u64 << 32 };
    verified(machine, &EXHAUSTIVE, &CHECKED, extent, least)
}

/// There are 2^128 addresses: the ends of all intervals are where an answer changes.
fn sampled(machine: &Machine) -> Result<Outcome> {
    let keys = if machine.quick { "100000" } else { "4000000" };
    let names = [AUTO, "rangetrie-d16", "rangetrie-d20", "poptrie-d18"];
    verified(machine, &SAMPLED, &names, &["--sample", keys], keys.parse()?)
}

/// Whether `fib verify` found nothing wrong, with at least so many answers of each structure.
fn verified(
    machine: &Machine,
    tables: &[&str],
    structures: &[&str],
    extent: &[&str],
    least: u64,
) -> Result<Outcome> {
    let names = structures.join(",");
    let mut text = Vec::new();
    let mut good = true;
    for name in tables {
        let file = table(machine, name)?;
        let mut arguments = vec!["fib", "verify", "--table", &file, "--algorithm", &names, "--json"];
        arguments.extend(extent);
        let objects = machine.tidemill(&arguments)?;
        let (each, sums): (Vec<&Value>, Vec<&Value>) = (objects.iter())
            .filter(|object| !object["checked"].is_null())
            .partition(|object| !object["structure"].is_null());
        let last = sums.last().with_context(|| format!("{name}: no line with \"checked\""))?;
        let enough = |object: &&Value| object["checked"].as_u64().is_some_and(|checked| checked >= least);
        good &=
            last["wrong"].as_u64() == Some(0) && each.len() == structures.len() && each.iter().all(enough);
        text.push(format!("{name}: {last}"));
    }
    Ok(verdict(good, format!("{names}; {}", text.join("; "))))
}

fn fuzzing(machine: &Machine) -> Result<Outcome> {
    let seconds = if machine.quick { 10 } else { 300 };
    let targets = ["lpm_ops", "lpm_table"];
    let totals = fuzz::some(&targets, seconds)?;
    Ok(verdict(totals.failed == 0 && totals.passed == targets.len(), format!("{totals}, {seconds} s each")))
}

/// The structures for production whose tables are small enough to be interpreted word by word: the narrowest forms of what is wide (yardsticks
/// have no unsafe code but in kernels, which Miri does not run). Of Luleå, whose root has 2^16 entries whatever is in it, not the named cases.
const UNDER_MIRI: [&str; 7] = [
    "dxr_d12x9r::",
    "popdir_d12x7::",
    "rangetrie_d12_v4::",
    "rangetrie_d12_v6::",
    "lulea::bursts",
    "lulea::random",
    "lulea::readers",
];
/// Four tests of each, and three.
const TESTS_UNDER_MIRI: usize = 19;

/// Needs a nightly toolchain with Miri. The family's suite: named and random cases, changes, bursts, readers beside the writer. Who may use what is borrowed is
/// not looked at (stacked borrows): it notes that for every word of a table whenever one is passed on. What is left is memory after its end,
/// before its beginning or beside it, and races.
fn miri(_: &Machine) -> Result<Outcome> {
    let mut command = Command::new("cargo");
    command.current_dir(env::root()).env("RUSTFLAGS", "--cfg scalar");
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-disable-stacked-borrows");
    command.args(["+nightly", "miri", "test", "--quiet", "-p", "tidemill-lpm", "--test", "suite", "--"]);
    command.args(UNDER_MIRI);
    let said = proc::output(&mut command).context("needs `rustup toolchain install nightly -c miri`")?;
    let passed = super::passed(&said);
    Ok(verdict(passed >= TESTS_UNDER_MIRI, format!("{passed} tests: {}", UNDER_MIRI.join(", "))))
}

/// Readers beside a writer, where every race is told: `tests/concurrent.rs` of this crate.
fn races(_: &Machine) -> Result<Outcome> {
    let totals = test::sanitized("tidemill-lpm")?;
    Ok(verdict(totals.passed > 0 && totals.failed == 0 && totals.skipped == 0, totals.to_string()))
}

/// Its doc tests, and the example that its README is about.
fn alone(machine: &Machine) -> Result<Outcome> {
    let passed = machine.tests(&["-p", "tidemill-lpm", "--doc"], 3)?;
    let mut example = env::cargo();
    let said = proc::output(example.args(["run", "--quiet", "-p", "tidemill-lpm", "--example", "lookup"]))?;
    let last: Vec<&str> = said.lines().skip(2).collect();
    let right = ["10.1.2.3 -> 192.0.2.2", "10.2.2.3 -> 192.0.2.2", "172.16.0.1 -> 192.0.2.3"];
    Ok(verdict(last == right, format!("{passed} doc tests; the example: {}", last.join(", "))))
}

/// Those that are in no line above: every pass's checksum is the reference's, or the command fails.
fn alike(machine: &Machine) -> Result<Outcome> {
    let mut text = Vec::new();
    for (name, only) in [(NH30000, "crate"), (V6, "crate,rte_lpm6,rte_fib6-4b-scalar")] {
        let file = table(machine, name)?;
        text.push(machine.said(&["peers", "lpm", "--table", &file, "--check", "--only", only])?);
    }
    Ok(Outcome::Pass(format!("last of each family: {}", text.join("; "))))
}

/// The objects with this metric.
fn of_metric<'a>(objects: &'a [Value], metric: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["metric"] == metric)
}

/// That it measures the memory (Zec's Table 2.1), looks at every structure, measures the best, and says which of them and why.
fn tune(machine: &Machine) -> Result<Outcome> {
    let mut text = Vec::new();
    for (name, key) in [(NH148, "algorithm"), (V6, "algorithm6")] {
        let file = table(machine, name)?;
        let objects = machine.tidemill(&["tune", "--table", &file, "--quick", "--json"])?;
        let latencies = of_metric(&objects, "latency_ns").count();
        let by_size: Vec<f64> = (of_metric(&objects, "ns").filter(|object| object["case"] == "dependent"))
            .map(|object| number(object, "value"))
            .collect();
        let grows = by_size.first().zip(by_size.last()).is_some_and(|(first, last)| *last > 2.0 * first);
        ensure!(latencies >= 2 && grows, "{latencies} caches; a dependent load, by size: {by_size:?} ns");
        let looked_at = of_metric(&objects, "brief_mlps").filter(|object| object["case"] == "rnd").count();
        ensure!(looked_at >= 4, "{looked_at} structures were looked at");
        let advice = objects.iter().find(|object| !object["advice"].is_null());
        let advice = advice.context("no line with \"advice\"")?;
        let name = advice["advice"].as_str().unwrap_or_default();
        let measured = of_metric(&objects, "mlps").any(|object| object["subject"] == name);
        ensure!(measured, "{name:?} is advised, which was not measured");
        let reasons = advice["why"].as_array().map_or(0, Vec::len);
        let line = format!("{key} = \"{name}\"");
        ensure!(reasons > 0 && advice["configuration"] == line, "no reasons, or not {line}: {advice}");
        text.push(format!("{looked_at} structures: {advice}"));
    }
    Ok(Outcome::Pass(text.join("; ")))
}

fn poptrie(machine: &Machine) -> Result<Outcome> {
    against(machine, NH30000, "poptrie-d18", "rte_fib-2b-avx512", &POPTRIE)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn one_structure_has_to_keep_every_bound() {
        let ratio =
            |of: &str, case: &str, value: f64| json!({"of": of, "to": "x", "case": case, "value": value});
        let kept =
            |all: &[Value], least: &[(&str, f64)]| super::kept(&all.iter().collect::<Vec<_>>(), least).0;
        let bounds = [("rnd", 2.0), ("rep", 1.5)];
        let mut all = vec![
            ratio("a", "rnd", 3.0),
            ratio("a", "rep", 1.4),
            ratio("b", "rnd", 1.9),
            ratio("b", "rep", 1.6),
        ];
        assert!(!kept(&all, &bounds), "each case by another structure");
        all.extend([ratio("c", "rnd", 2.0), ratio("c", "rep", 1.5)]);
        assert!(kept(&all, &bounds));
        all.push(ratio("c", "rep", 1.4));
        assert!(!kept(&all, &bounds), "the slowest ratio counts");
        assert!(!kept(&[ratio("a", "rnd", 3.0)], &bounds), "a case without a ratio");
        assert!(!kept(&[], &bounds));
    }

    #[test]
    fn two_cores_are_held_to_the_bound_in_every_case() {
        let line = |case: &str, value: f64| json!({"case": case, "metric": "scaling", "value": value});
        let scaled = |rnd: f64, rep: f64| {
            let lines = [line("rnd", rnd), line("rep", rep), line("independent-gather", 2.0)];
            super::scaled(&lines).unwrap().0
        };
        assert!(scaled(1.92, 1.92) && !scaled(1.8, 2.0) && !scaled(2.0, 1.8));
        assert!(super::scaled(&[line("rnd", 2.0), line("independent-gather", 2.0)]).is_err());
    }
}
