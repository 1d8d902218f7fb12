//! ClassBench's sets: lookups a second of each structure on the set's own trace, and changes of rules a second.
//!
//! Every timed answer is stored and held to the oracle's. The linear oracle is measured too, on part of the trace: what a structure has to beat.

use super::ClassifyBench;
use super::ports::PORTS;
use super::structures::{Kind, Structure, build};
use super::traffic::{Flood, Frames, LONGEST, Traffic};
use crate::bench::pass::{BLOCK, Checksum};
use crate::bench::report::Report;
use crate::classify::{Pair, collect, read};
use crate::json::{Measurement, Params};
use crate::progress::Progress;
use crate::usage;
use anyhow::{Context as _, Result, bail};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tidemill_classify::flows::{Item, PortNames, read_flows};
use tidemill_classify::live::LiveRules;
use tidemill_classify::oracle::Oracle;
use tidemill_classify::suite::{self, Rng, Shape};
use tidemill_classify::text::{in_order, read_headers, read_rules};
use tidemill_classify::{Crossed, Grouping, Key, Rank, Rule, RuleId, RuleSet, packet};
use tidemill_flow::hash::mix;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::Random;

/// Rules and headers that are made where no set is given.
const MADE: usize = 1000;
const HEADERS: usize = 1 << 14;
/// Keys of a traffic case, drawn from all its flows: in a timed pass, before each of these, and before the first as many for each flow.
const TIMED: usize = 1 << 19;
const WARM: usize = 1 << 17;
const WARM_FOR_FLOW: usize = 2;
/// Comparisons that the oracle is timed for, about.
const COMPARISONS: usize = 1 << 23;
/// Keys in a call.
pub(super) const BURST: usize = 256;
/// Changes that are published at once, beside one at a time.
const TOGETHER: usize = 64;
/// What changes are made in: tuples grouped in either way, and with a cross-product beside.
pub(super) const CHANGED: [(Grouping, bool); 3] =
    [(Grouping::Exact, false), (Grouping::Merged, false), (Grouping::Merged, true)];
/// Keys that the oracle is asked for after changes, flows whose keys it is asked for.
const SAMPLE: usize = 500;
const ORACLE_FLOWS: u32 = 10_000;

/// Rules, and the keys that they are asked for.
pub(super) struct Set {
    pub(super) name: String,
    rules: Vec<Rule>,
    keys: Keys,
}

/// Keys with the rules that they have by the oracle.
enum Keys {
    /// A trace.
    Listed(Vec<Key>, Vec<Rank>),
    /// Those of packets, drawn when they are asked for: as in a switch, a packet is of any of the flows, and which ones have been there
    /// before is up to chance.
    Drawn(Drawn),
}

/// What keys of a traffic case are drawn from.
struct Drawn {
    traffic: Traffic,
    frames: Frames,
    /// Of each rule.
    ranks: Vec<Rank>,
    seed: u64,
    quick: bool,
}

/// A pass over keys.
#[derive(Debug, Clone, Copy)]
struct Pass {
    /// From 0 on.
    run: usize,
    /// Whether it comes before the clock starts.
    warm: bool,
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
    let frames = Frames::new(traffic, Flood::None, false, args.seed)?;
    let ports = PortNames(PORTS.map(str::to_owned).to_vec());
    let rules = read_flows(traffic.text(false).as_bytes(), &ports)?.into_iter().filter_map(|(_, item)| {
        let Item::Flow(flow) = item else { return None };
        Some(Rule { matches: flow.matches, priority: flow.priority.into() })
    });
    let rules: Vec<Rule> = rules.collect();
    let ranks = rules.iter().zip(0..).map(|(rule, id)| Rank::new(rule.priority, RuleId(id))).collect();
    let drawn = Drawn { traffic, frames, ranks, seed: args.seed, quick: args.quick };
    // What a flow's frame is made for is what the oracle says of it.
    let oracle = Oracle::new(&RuleSet::from_list(&rules));
    for flow in 0..traffic.flows.min(ORACLE_FLOWS) {
        let (key, expected) = drawn.key(flow)?;
        if oracle.lookup(&key) != expected {
            bail!("WRONG: {}: flow {flow} is not of its rule", traffic.name);
        }
    }
    Ok(Set { name: format!("caches/{}", traffic.name), rules, keys: Keys::Drawn(drawn) })
}

impl Set {
    /// What a reader looks up while rules change.
    fn some_keys(&self) -> Vec<Key> {
        match &self.keys {
            Keys::Listed(keys, _) => keys[..keys.len().min(WARM)].to_vec(),
            Keys::Drawn(_) => self.rules.iter().map(|rule| rule.matches.first_key()).collect(),
        }
    }
}

impl Drawn {
    fn key(&self, flow: u32) -> Result<(Key, Rank)> {
        let mut bytes = [0; LONGEST];
        let bytes = &mut bytes[..self.frames.len()];
        self.frames.write(flow, bytes);
        let key = packet::key(bytes, 1).context("a frame without a key")?;
        let rank = self.ranks.get(self.traffic.rule(flow) as usize).copied().unwrap_or(Rank::NONE);
        Ok((key, rank))
    }

    fn len(&self, pass: Pass) -> usize {
        let keys = match pass {
            Pass { warm: false, .. } => TIMED,
            Pass { run: 0, .. } => WARM.max(WARM_FOR_FLOW * self.traffic.flows as usize),
            Pass { .. } => WARM,
        };
        if self.quick { keys / 16 } else { keys }
    }

    /// The keys of a block of a pass: the same whoever asks, others in every block.
    fn block(&self, pass: Pass, at: usize, keys: &mut Vec<Key>, expected: &mut Vec<Rank>) -> Result<()> {
        let stream = (pass.run as u64) << 33 | u64::from(pass.warm) << 32 | at as u64;
        let mut random = Random::new(mix(mix(self.seed) ^ stream));
        for _ in at..self.len(pass).min(at + BLOCK) {
            let (key, rank) = self.key(random.below(self.traffic.flows as usize) as u32)?;
            keys.push(key);
            expected.push(rank);
        }
        Ok(())
    }
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
        Set { name, rules, keys: Keys::Listed(keys, expected) }
    }

    /// Keys of a pass.
    fn len(&self, pass: Pass) -> usize {
        match &self.keys {
            Keys::Listed(keys, _) => keys.len(),
            Keys::Drawn(drawn) => drawn.len(pass),
        }
    }

    fn params(&self, args: &ClassifyBench) -> Params {
        let mut params = Params::new();
        params.insert("rules".into(), self.rules.len().into());
        params.insert("headers".into(), self.len(Pass { run: 0, warm: false }).into());
        if let Keys::Drawn(drawn) = &self.keys {
            params.insert("flows".into(), drawn.traffic.flows.into());
            params.insert("headers_before".into(), self.len(Pass { run: 0, warm: true }).into());
        }
        params.insert("seed".into(), args.seed.into());
        params
    }

    /// A pass over its first `most` keys, every answer held to the oracle's: its time, without that of drawing and comparing; a checksum of the answers.
    fn pass(&self, pass: Pass, name: &str, structure: &mut dyn Structure, most: usize) -> Result<Passed> {
        let mut passed =
            Passed { keys: most.min(self.len(pass)), time: Duration::ZERO, sum: Checksum::new() };
        let (mut keys, mut expected) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        let mut found = vec![Rank::NONE; BLOCK];
        for at in (0..passed.keys).step_by(BLOCK) {
            let (keys, expected) = match &self.keys {
                Keys::Listed(keys, expected) => (&keys[at..], &expected[at..]),
                Keys::Drawn(drawn) => {
                    keys.clear();
                    expected.clear();
                    drawn.block(pass, at, &mut keys, &mut expected)?;
                    (&keys[..], &expected[..])
                }
            };
            let n = keys.len().min(BLOCK).min(passed.keys - at);
            let (keys, expected, found) = (&keys[..n], &expected[..n], &mut found[..n]);
            found.fill(Rank::NONE);
            let start = Instant::now();
            for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
                structure.lookup_batch(keys, found);
            }
            passed.time += start.elapsed();
            compare(&format!("{}: {name}", self.name), keys, found, expected)?;
            let number = |rank: &Rank| rank.rule().map_or(0, |id| id.0 + 1);
            passed.sum.bytes(found.iter().flat_map(|rank| number(rank).to_le_bytes()));
        }
        Ok(passed)
    }
}

/// What a pass has come to.
struct Passed {
    keys: usize,
    time: Duration,
    /// Over rules' numbers from 1 on, 0 for none.
    sum: Checksum,
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
    let (mut structures, mut built) = (Vec::new(), Vec::new());
    for &kind in kinds {
        progress.message(format!("{}: {}", set.name, kind.name()));
        let start = Instant::now();
        let Some(structure) = build(kind, &rules, args.settings(), args.seed)? else {
            progress.add(args.runs() as u64);
            continue;
        };
        let seconds = start.elapsed().as_secs_f64();
        let line = |metric, value| {
            let params = set.params(args);
            Measurement::of("classify", kind.name(), &set.name, metric, &[value], params)
        };
        report.line(line("build_seconds", seconds))?;
        report.line(line("bytes", structure.bytes() as f64))?;
        structures.push(structure);
        built.push(kind);
    }
    let kinds = &built[..];
    let mut rates = vec![Vec::new(); kinds.len()];
    let mut sums = vec![None; kinds.len()];
    for run in 0..args.runs() {
        for i in 0..kinds.len() {
            let turn = (i + run) % kinds.len();
            let (kind, structure) = (kinds[turn], &mut *structures[turn]);
            let mut most = usize::MAX;
            if kind == Kind::Linear {
                most = (COMPARISONS / set.rules.len()).max(64);
            } else {
                // One that is not counted brings its tables back into the caches.
                set.pass(Pass { run, warm: true }, kind.name(), structure, most)?;
                structure.second();
            }
            let passed = set.pass(Pass { run, warm: false }, kind.name(), structure, most)?;
            rates[turn].push(passed.keys as f64 / passed.time.as_secs_f64().max(1e-9) / 1e6);
            if run == 0 && kind != Kind::Linear {
                sums[turn] = Some(passed.sum.text());
            }
            progress.add(1);
        }
    }
    for ((kind, rates), sum) in kinds.iter().zip(&rates).zip(sums) {
        let mut line = Measurement::of("classify", kind.name(), &set.name, "mlps", rates, set.params(args));
        line.checksum = sum;
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

/// Does something while a worker on another thread looks up bursts of these keys: a change waits for it as it would in a switch. What was done, and how
/// many bursts the worker has looked up meanwhile.
///
/// # Errors
/// That of what is done; a worker that has done nothing.
pub(super) fn beside_a_reader<T>(
    domain: &Domain,
    live: &mut LiveRules,
    keys: &[Key],
    work: impl FnOnce(&mut LiveRules) -> Result<T>,
) -> Result<(T, u64)> {
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let view = live.view();
    let mut reader = domain.register();
    std::thread::scope(|scope| {
        let (stop, ready) = (&stop, &ready);
        let worker = scope.spawn(move || {
            let (mut out, mut bursts) = ([Rank::NONE; BURST], 0_u64);
            for keys in keys.chunks(BURST).cycle() {
                view.get(&reader).lookup_batch(keys, &mut out[..keys.len()]);
                std::hint::black_box(&out);
                reader.quiescent();
                bursts += 1;
                ready.store(true, Relaxed);
                if stop.load(Relaxed) {
                    break;
                }
            }
            bursts
        });
        while !ready.load(Relaxed) && !worker.is_finished() {
            std::thread::yield_now();
        }
        let done = work(live);
        stop.store(true, Relaxed);
        let bursts = worker.join().map_err(|_| anyhow::anyhow!("the reader has panicked"))?;
        anyhow::ensure!(bursts > 0, "no keys to look up meanwhile");
        Ok((done?, bursts))
    })
}

/// Puts a rule back. Its number is free when the reader has come by, which takes a while where others have its processor.
///
/// # Errors
/// It has not, for long.
pub(super) fn put(live: &mut LiveRules, rule: Rule) -> Result<RuleId> {
    let start = Instant::now();
    loop {
        match live.insert(rule) {
            Err(_) if start.elapsed() < Duration::from_secs(5) => std::thread::yield_now(),
            put => return Ok(put?),
        }
    }
}

/// Changes a second: a rule goes and comes back, published one by one and some at once; a reader looks up meanwhile.
pub(super) fn updates(
    args: &ClassifyBench,
    set: &Set,
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    for (grouping, cross) in CHANGED {
        let domain = Domain::new();
        let mut live = LiveRules::new(&domain, grouping, 2 * set.rules.len() + 2 * TOGETHER);
        for rule in &set.rules {
            live.insert(*rule).context(set.name.clone())?;
        }
        live.commit();
        let name = if cross { Crossed::NAME } else { grouping.name() };
        if cross && live.cross() {
            live.commit();
        } else if cross {
            progress.add(2 * args.runs() as u64);
            continue;
        }
        let beside = set.some_keys();
        let mut rng = Rng::new(args.seed);
        for (together, case) in [(1, "one"), (TOGETHER, "64")] {
            let metric = if together == 1 { "kups" } else { "kups_64" };
            progress.message(format!("{}: updates, {case}, {name}", set.name));
            let mut rates = Vec::new();
            for _ in 0..args.runs() {
                // Rules that came back have other numbers.
                let mut ids: Vec<RuleId> = live.set().iter().map(|(id, _)| id).collect();
                let slice = Duration::from_secs_f64(args.seconds / 2.0);
                let (rate, _) = beside_a_reader(&domain, &mut live, &beside, |live| {
                    let (start, mut changes) = (Instant::now(), 0_u64);
                    while start.elapsed() < slice {
                        let mut gone = Vec::with_capacity(together);
                        for _ in 0..together.min(ids.len()) {
                            let id = ids.swap_remove(rng.below(ids.len()));
                            gone.extend(live.remove(id));
                        }
                        live.commit();
                        for rule in &gone {
                            ids.push(put(live, *rule).context(set.name.clone())?);
                        }
                        live.commit();
                        changes += 2 * gone.len() as u64;
                    }
                    Ok(changes as f64 / start.elapsed().as_secs_f64() / 1e3)
                })?;
                rates.push(rate);
                progress.add(1);
            }
            report.line(Measurement::of("classify", name, &set.name, metric, &rates, set.params(args)))?;
        }
        check_after(set, &live, name)?;
    }
    Ok(())
}

/// After all changes the structure still answers as the oracle does.
fn check_after(set: &Set, live: &LiveRules, name: &str) -> Result<()> {
    let Keys::Listed(keys, _) = &set.keys else { return Ok(()) };
    let keys = &keys[..keys.len().min(SAMPLE)];
    let (mut found, mut expected) = (vec![Rank::NONE; keys.len()], vec![Rank::NONE; keys.len()]);
    Oracle::new(live.set()).lookup_batch(keys, &mut expected);
    live.snapshot().lookup_batch(keys, &mut found);
    compare(&format!("{}: {name} after changes", set.name), keys, &found, &expected)
}

#[cfg(test)]
mod tests {
    use super::super::traffic::TRAFFIC;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn traffic_is_drawn_from_all_flows_and_anew_for_every_pass() {
        let traffic = Traffic { flows: 3000, ..TRAFFIC[3] };
        let frames = Frames::new(traffic, Flood::None, false, 7).unwrap();
        let ranks = (0..traffic.rules).map(|id| Rank::new(100, RuleId(id))).collect();
        let drawn = Drawn { traffic, frames, ranks, seed: 7, quick: true };
        let all = |pass| {
            let (mut keys, mut expected) = (Vec::new(), Vec::new());
            for at in (0..drawn.len(pass)).step_by(BLOCK) {
                drawn.block(pass, at, &mut keys, &mut expected).unwrap();
            }
            assert_eq!((keys.len(), expected.len()), (drawn.len(pass), drawn.len(pass)));
            keys
        };
        let [timed, again, other, warm] =
            [(0, false), (0, false), (1, false), (0, true)].map(|(run, warm)| all(Pass { run, warm }));
        assert_eq!(timed.len(), TIMED / 16);
        assert_eq!(timed.iter().collect::<HashSet<_>>().len(), 3000, "all flows");
        assert!(timed == again, "whoever asks gets the same");
        let same = |a: &[Key], b: &[Key]| a.iter().zip(b).filter(|(a, b)| a == b).count();
        assert!(same(&timed, &other) < 100 && same(&timed, &warm) < 100);
        assert!(same(&timed[..BLOCK], &timed[BLOCK..]) < 100);
    }
}
