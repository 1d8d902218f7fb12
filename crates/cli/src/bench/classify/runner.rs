//! `bench classify --runner`: our side of the comparison with peers, on a rule set and its trace, or without them on the traffic cases by the whole
//! switch. The protocol is in `bench/README.md`.

use super::ClassifyBench;
use super::ports::Phase;
use super::sets::{BURST, beside_a_reader, put};
use super::switch::{Plan, Subject, check_rules, run_once};
use super::traffic::{Flood, TRAFFIC};
use crate::bench::pass::{BLOCK, Checksum, key_pages, on_huge_pages};
use crate::classify::read;
use crate::json;
use crate::usage;
use anyhow::{Context, Result};
use serde_json::json;
use std::time::{Duration, Instant};
use tidemill_classify::live::LiveRules;
use tidemill_classify::suite::Rng;
use tidemill_classify::text::{in_order, read_headers, read_rules};
use tidemill_classify::{Crossed, Grouping, Key, Rank, Rule, RuleId, RuleSet};
use tidemill_lookup::qsbr::Domain;
use tidemill_switch::Counter;

/// Arguments of `--runner`.
#[derive(clap::Args)]
pub(super) struct RunnerArgs {
    /// Answer timed passes on standard input (protocol: bench/README.md): with --rules and --trace of these, else of the traffic cases
    #[arg(long)]
    pub(super) runner: bool,
    /// With --runner: changes in an update pass
    #[arg(long, value_name = "N", default_value_t = 2000, requires = "runner")]
    changes: usize,
}

/// The number of a rule's line from 1 on, 0 for none: priorities fall from line to line.
fn number(rank: Rank) -> u32 {
    if rank == Rank::NONE { 0 } else { !(rank.priority() as u32) + 1 }
}

pub(super) fn run(args: &ClassifyBench) -> Result<bool> {
    let (rules, trace) = match (&args.rules, &args.trace) {
        (Some(rules), Some(trace)) => (rules, trace),
        (None, None) => return traffic(args),
        _ => return Err(usage("--runner: needs --rules FILE and --trace FILE, or neither")),
    };
    let rules = in_order(read(rules, read_rules)?.iter().map(|rule| rule.five_tuple));
    let keys = on_huge_pages(read(trace, read_headers)?.iter().map(|header| header.key).collect());
    if rules.is_empty() || keys.is_empty() {
        return Err(usage("--rules, --trace: no rules or no headers in it"));
    }
    let start = Instant::now();
    let set = RuleSet::from_list(&rules);
    let grouping = Grouping::for_set(&set);
    let domain = Domain::new();
    let mut live = LiveRules::new(&domain, grouping, 2 * rules.len() + 2);
    for rule in &rules {
        live.insert(*rule)?;
    }
    live.commit();
    if live.cross() {
        live.commit();
    }
    let seconds = json::significant(start.elapsed().as_secs_f64());
    let (tuples, crossed) = (live.snapshot().space().bytes(), live.snapshot().crossed());
    let subject = crossed.map_or(grouping.name(), |_| Crossed::NAME);
    let bytes = tuples + crossed.map_or(0, Crossed::bytes);
    let params = json!({"batch": BURST, "key_pages": key_pages(&[&keys[..]])});
    json::print(&json!({"v": json::VERSION, "ready": true, "subject": subject, "entries": rules.len(),
        "rejected": 0, "build_seconds": seconds, "bytes": bytes, "params": params}))?;
    for line in crate::files::lines(std::io::stdin().lock()) {
        let line = line.context("standard input")?;
        let (case, count, time) = match line.as_str() {
            "run lookup" => ("lookup", keys.len(), None),
            "run update" => {
                let done = beside_a_reader(&domain, &mut live, &keys, |live| update(live, args))?;
                ("update", args.runner.changes, Some(done.0))
            }
            "quit" => return Ok(true),
            other => {
                let error = format!("unknown command {other:?}: use run lookup|update or quit");
                json::print(&json!({"v": json::VERSION, "error": error}))?;
                continue;
            }
        };
        // After changes the rules are what they were: the answers, too.
        let (looked, checksum) = lookups(&live, &keys);
        let seconds = time.unwrap_or(looked).as_secs_f64();
        json::print(&json!({"v": json::VERSION, "bench": "classify", "subject": subject, "case": case,
            "lookups": count, "seconds": seconds, "checksum": checksum}))?;
    }
    Ok(true)
}

/// Runs of the traffic cases, each after as long a one that does not count.
fn traffic(args: &ClassifyBench) -> Result<bool> {
    let seconds = Duration::from_secs_f64(args.seconds);
    let params = json!({"exact": args.exact, "signatures": args.signatures, "seconds": args.seconds});
    json::print(
        &json!({"v": json::VERSION, "ready": true, "subject": "switch", "entries": 0, "rejected": 0,
        "build_seconds": 0.0, "bytes": 0, "params": params}),
    )?;
    for line in crate::files::lines(std::io::stdin().lock()) {
        let line = line.context("standard input")?;
        if line == "quit" {
            return Ok(true);
        }
        let traffic = TRAFFIC.into_iter().find(|traffic| line.strip_prefix("run ") == Some(traffic.name));
        let Some(traffic) = traffic else {
            let names = TRAFFIC.map(|traffic| traffic.name).join("|");
            let error = format!("unknown command {line:?}: use run {names} or quit");
            json::print(&json!({"v": json::VERSION, "error": error}))?;
            continue;
        };
        let phase = Phase { duration: seconds, flood: 0, timed: false };
        let plan = Plan {
            traffic,
            v6: false,
            phases: vec![phase; 2],
            slice: seconds,
            flood: Flood::None,
            section: args.section(),
            seed: args.seed,
        };
        check_rules(&plan)?;
        let ran = run_once(Subject::Switch, &plan).context(traffic.name)?;
        // As the peer's: others may have had the processor meanwhile.
        let time = ran.measured.processor_time(1);
        json::print(
            &json!({"v": json::VERSION, "bench": "classify", "subject": "switch", "case": traffic.name,
            "lookups": ran.measured.packets(1), "seconds": time.as_secs_f64(),
            "checksum": format!("{}/{}", traffic.flows, traffic.rules),
            "exact": ran.share(1, Counter::ExactHits), "signature": ran.share(1, Counter::SignatureHits),
            "megaflow": ran.share(1, Counter::MegaflowHits)}),
        )?;
    }
    Ok(true)
}

/// All headers once.
fn lookups(live: &LiveRules, keys: &[Key]) -> (Duration, String) {
    let (mut time, mut checksum) = (Duration::ZERO, Checksum::new());
    let (snapshot, mut found) = (live.snapshot(), vec![Rank::NONE; BLOCK]);
    for keys in keys.chunks(BLOCK) {
        let found = &mut found[..keys.len()];
        let start = Instant::now();
        for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
            snapshot.lookup_batch(keys, found);
        }
        time += start.elapsed();
        checksum.bytes(found.iter().flat_map(|&rank| number(rank).to_le_bytes()));
    }
    (time, checksum.text())
}

/// Changes, each published on its own: a rule goes, and comes back. A reader looks up meanwhile, as a switch's workers would.
fn update(live: &mut LiveRules, args: &ClassifyBench) -> Result<Duration> {
    let mut rng = Rng::new(args.seed);
    let mut ids: Vec<RuleId> = live.set().iter().map(|(id, _)| id).collect();
    let start = Instant::now();
    let mut gone: Option<Rule> = None;
    for _ in 0..args.runner.changes.next_multiple_of(2) {
        match gone.take() {
            None => gone = live.remove(ids.swap_remove(rng.below(ids.len()))),
            Some(rule) => ids.push(put(live, rule)?),
        }
        live.commit();
    }
    Ok(start.elapsed())
}
