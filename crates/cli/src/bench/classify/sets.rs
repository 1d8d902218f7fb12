//! ClassBench's sets: lookups a second of each structure on the set's own trace, and changes of rules a second.
//!
//! Every timed answer is stored and held to the oracle's. The linear oracle is measured too, on part of the trace: what a structure has to beat.

use super::ClassifyBench;
use super::ports::PORTS;
use super::structures::{Kind, Structure, build};
use super::traffic::{Frames, LONGEST, Traffic};
use crate::bench::pass::{BLOCK, Checksum};
use crate::bench::report::Report;
use crate::classify::{Pair, collect, read};
use crate::json::{Measurement, Params};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};
use tidemill_classify::flows::{Item, PortNames, read_flows};
use tidemill_classify::live::LiveRules;
use tidemill_classify::oracle::Oracle;
use tidemill_classify::suite::{self, Rng, Shape};
use tidemill_classify::text::{in_order, read_headers, read_rules};
use tidemill_classify::{Grouping, Key, Rank, Rule, RuleId, RuleSet, packet};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::Random;

/// Rules and headers that are made where no set is given.
const MADE: usize = 1000;
const HEADERS: usize = 1 << 14;
/// Keys of a traffic case.
const TRAFFIC_KEYS: usize = 1 << 19;
/// Comparisons that the oracle is timed for, about.
const COMPARISONS: usize = 1 << 23;
/// Keys in a call.
pub(super) const BURST: usize = 256;
/// Changes that are published at once, beside one at a time.
const TOGETHER: usize = 64;
/// Keys that the oracle is asked for after changes.
const SAMPLE: usize = 500;

/// A set with its trace.
pub(super) struct Set {
    pub(super) name: String,
    rules: Vec<Rule>,
    keys: Vec<Key>,
    /// By the oracle.
    expected: Vec<Rank>,
}

/// The sets that were asked for: of files, of a folder, or made up.
pub(super) fn sets(args: &ClassifyBench) -> Result<Vec<Set>> {
    let pairs: Vec<Pair> = match (&args.rules, &args.data) {
        (Some(rules), _) => vec![(rules.clone(), args.trace.clone())],
        (None, Some(folder)) => {
            let mut pairs = Vec::new();
            collect(folder, &mut pairs)?;
            pairs.sort();
            pairs
        }
        (None, None) => {
            let shapes =
                [("made-acl", Shape::Acl), ("made-fw", Shape::Firewall), ("made-ipc", Shape::Chains)];
            return Ok(shapes.into_iter().map(|(name, shape)| made(name, shape, args.seed)).collect());
        }
    };
    if pairs.is_empty() {
        return Err(usage("--data: no file NAME.rules, NAME.rules.zst, .gz or .xz there"));
    }
    let named = |(rules_file, trace): &Pair| {
        let name = rules_file.file_name().unwrap_or(rules_file.as_os_str()).to_string_lossy();
        let name = name.split(".rules").next().unwrap_or(&name).to_owned();
        let rules = in_order(read(rules_file, read_rules)?.iter().map(|rule| rule.five_tuple));
        if rules.is_empty() {
            return Err(usage(format!("{}: has no rules", rules_file.display())));
        }
        let keys = match trace {
            Some(file) => read(file, read_headers)?.iter().map(|header| header.key).collect(),
            None => headers(&rules, args.seed),
        };
        if keys.is_empty() {
            return Err(usage(format!("{name}: its trace has no headers")));
        }
        Ok(Set::new(name, rules, keys))
    };
    pairs.iter().map(named).collect()
}

/// The keys and rules of a traffic case: what the caches alone make of it.
pub(super) fn of_traffic(args: &ClassifyBench, traffic: Traffic) -> Result<Set> {
    let frames = Frames::new(traffic, false, args.seed)?;
    let mut random = Random::new(args.seed);
    let mut bytes = [0; LONGEST];
    let bytes = &mut bytes[..frames.len()];
    let count = if args.quick { TRAFFIC_KEYS / 16 } else { TRAFFIC_KEYS };
    let keys = (0..count).map(|_| {
        frames.write(random.below(traffic.flows as usize) as u32, bytes);
        packet::key(bytes, 1).context("a frame without a key")
    });
    let keys = keys.collect::<Result<Vec<Key>>>()?;
    let ports = PortNames(PORTS.map(str::to_owned).to_vec());
    let rules = read_flows(traffic.text(false).as_bytes(), &ports)?.into_iter().filter_map(|(_, item)| {
        let Item::Flow(flow) = item else { return None };
        Some(Rule { matches: flow.matches, priority: flow.priority.into() })
    });
    Ok(Set::new(format!("caches/{}", traffic.name), rules.collect(), keys))
}

fn headers(rules: &[Rule], seed: u64) -> Vec<Key> {
    let mut rng = Rng::new(seed);
    (0..HEADERS).map(|_| suite::key(rules, &mut rng)).collect()
}

fn made(name: &str, shape: Shape, seed: u64) -> Set {
    let mut rng = Rng::new(seed);
    let rules = in_order((0..MADE).map(|_| shape.rule(&mut rng).matches));
    let keys = headers(&rules, seed);
    Set::new(name.to_owned(), rules, keys)
}

impl Set {
    fn new(name: String, rules: Vec<Rule>, keys: Vec<Key>) -> Self {
        let oracle = Oracle::new(&RuleSet::from_list(&rules));
        let mut expected = vec![Rank::NONE; keys.len()];
        oracle.lookup_batch(&keys, &mut expected);
        Set { name, rules, keys, expected }
    }

    fn params(&self, args: &ClassifyBench) -> Params {
        let mut params = Params::new();
        params.insert("rules".into(), self.rules.len().into());
        params.insert("headers".into(), self.keys.len().into());
        params.insert("seed".into(), args.seed.into());
        params
    }
}

/// A pass over keys; its time, without that of the checksum.
pub(super) fn pass(structure: &mut dyn Structure, keys: &[Key], found: &mut [Rank]) -> Duration {
    let mut time = Duration::ZERO;
    for (keys, found) in keys.chunks(BLOCK).zip(found.chunks_mut(BLOCK)) {
        let start = Instant::now();
        for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
            structure.lookup_batch(keys, found);
        }
        time += start.elapsed();
    }
    time
}

/// Rules' numbers from 1 on, 0 for none.
pub(super) fn checksum(found: &[Rank]) -> String {
    let mut checksum = Checksum::new();
    let number = |rank: &Rank| rank.rule().map_or(0, |id| id.0 + 1);
    checksum.bytes(found.iter().flat_map(|rank| number(rank).to_le_bytes()));
    checksum.text()
}

/// Compares all answers.
///
/// # Errors
/// The first wrong one.
pub(super) fn compare(name: &str, keys: &[Key], found: &[Rank], expected: &[Rank]) -> Result<()> {
    match (0..keys.len()).find(|&i| found[i] != expected[i]) {
        None => Ok(()),
        Some(i) => bail!(
            "WRONG: {name}: {:?}: {:?}, the oracle says {:?}",
            keys[i],
            found[i].rule(),
            expected[i].rule()
        ),
    }
}

/// Lookups of all structures on one set.
pub(super) fn lookups(
    args: &ClassifyBench,
    set: &Set,
    kinds: &[Kind],
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    let rules = RuleSet::from_list(&set.rules);
    let mut structures = Vec::new();
    for &kind in kinds {
        progress.message(format!("{}: {}", set.name, kind.name()));
        let start = Instant::now();
        let structure = build(kind, &rules, args.settings(), args.seed)?;
        let seconds = start.elapsed().as_secs_f64();
        let line = |metric, value| {
            let params = set.params(args);
            Measurement::of("classify", kind.name(), &set.name, metric, &[value], params)
        };
        report.line(line("build_seconds", seconds))?;
        report.line(line("bytes", structure.bytes() as f64))?;
        structures.push(structure);
    }
    let mut found = vec![Rank::NONE; set.keys.len()];
    let mut rates = vec![Vec::new(); kinds.len()];
    for run in 0..args.runs() {
        for i in 0..kinds.len() {
            let turn = (i + run) % kinds.len();
            let few = (COMPARISONS / set.rules.len()).clamp(64, set.keys.len().max(64));
            let asked = if kinds[turn] == Kind::Linear { few.min(set.keys.len()) } else { set.keys.len() };
            let (keys, found) = (&set.keys[..asked], &mut found[..asked]);
            // One that is not counted brings its tables back into the caches.
            if kinds[turn] != Kind::Linear {
                pass(&mut *structures[turn], keys, found);
            }
            found.fill(Rank::NONE);
            let time = pass(&mut *structures[turn], keys, found);
            compare(&format!("{}: {}", set.name, kinds[turn].name()), keys, found, &set.expected[..asked])?;
            rates[turn].push(asked as f64 / time.as_secs_f64().max(1e-9) / 1e6);
            progress.add(1);
        }
    }
    let sum = checksum(&set.expected);
    for (kind, rates) in kinds.iter().zip(&rates) {
        let mut line = Measurement::of("classify", kind.name(), &set.name, "mlps", rates, set.params(args));
        line.checksum = (*kind != Kind::Linear).then(|| sum.clone());
        report.line(line)?;
    }
    for (kind, of) in kinds.iter().zip(&rates) {
        for rival in kind.rivals() {
            let Some(at) = kinds.iter().position(|other| other == rival) else { continue };
            report.ratio("classify", &set.name, (kind.name(), of), (rival.name(), &rates[at]))?;
        }
    }
    Ok(())
}

/// Changes a second: a rule goes and comes back, published one by one and some at once.
pub(super) fn updates(
    args: &ClassifyBench,
    set: &Set,
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    for grouping in Grouping::ALL {
        let domain = Domain::new();
        let mut live = LiveRules::new(&domain, grouping, 2 * set.rules.len() + 2 * TOGETHER);
        for rule in &set.rules {
            live.insert(*rule).context(set.name.clone())?;
        }
        live.commit();
        let mut rng = Rng::new(args.seed);
        for (together, case) in [(1, "one"), (TOGETHER, "64")] {
            let metric = if together == 1 { "kups" } else { "kups_64" };
            progress.message(format!("{}: updates, {case}, {}", set.name, grouping.name()));
            let mut rates = Vec::new();
            for _ in 0..args.runs() {
                // Rules that came back have other numbers.
                let mut ids: Vec<RuleId> = live.set().iter().map(|(id, _)| id).collect();
                let (start, mut changes) = (Instant::now(), 0_u64);
                let slice = Duration::from_secs_f64(args.seconds / 2.0);
                while start.elapsed() < slice {
                    let mut gone = Vec::with_capacity(together);
                    for _ in 0..together.min(ids.len()) {
                        let id = ids.swap_remove(rng.below(ids.len()));
                        gone.extend(live.remove(id));
                    }
                    live.commit();
                    for rule in &gone {
                        ids.push(live.insert(*rule).context(set.name.clone())?);
                    }
                    live.commit();
                    changes += 2 * gone.len() as u64;
                }
                rates.push(changes as f64 / start.elapsed().as_secs_f64() / 1e3);
                progress.add(1);
            }
            let line =
                Measurement::of("classify", grouping.name(), &set.name, metric, &rates, set.params(args));
            report.line(line)?;
        }
        check_after(set, &live, grouping)?;
    }
    Ok(())
}

/// After all changes the structure still answers as the oracle does.
fn check_after(set: &Set, live: &LiveRules, grouping: Grouping) -> Result<()> {
    let keys = &set.keys[..set.keys.len().min(SAMPLE)];
    let (mut found, mut expected) = (vec![Rank::NONE; keys.len()], vec![Rank::NONE; keys.len()]);
    Oracle::new(live.set()).lookup_batch(keys, &mut expected);
    live.snapshot().space().lookup_batch(keys, &mut found);
    compare(&format!("{}: {} after changes", set.name, grouping.name()), keys, &found, &expected)
}
