//! Comparing with the oracle: one set, once as its trace sees it (five fields), once with the TCP flags of its rules.

use crate::json;
use crate::progress::Progress;
use anyhow::Result;
use serde::Serialize;
use std::time::Instant;
use tidemill_classify::cache::{Cache, Settings};
use tidemill_classify::live::LiveRules;
use tidemill_classify::oracle::Oracle;
use tidemill_classify::suite::{Rng, check_mask, flipped};
use tidemill_classify::text::{Header, TextRule, in_order};
use tidemill_classify::{Crossed, Field, Grouping, Key, NotCrossed, Rank, Rule, RuleId, RuleSet, TupleSpace};
use tidemill_lookup::qsbr::Domain;

/// Wrong answers that are shown, per check.
const SHOWN: usize = 5;
/// Keys between two signs of life.
const PIECE: usize = 2048;
/// Headers whose masks are tried, and that are asked for after each change.
const SAMPLE: usize = 2000;

/// What was checked in all.
#[derive(Default, Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) checked: u64,
    pub(super) wrong: u64,
}

/// A rule set with headers.
pub(super) struct Set {
    name: String,
    five_tuples: Vec<Rule>,
    with_flags: Option<Vec<Rule>>,
    headers: Vec<Header>,
    seed: u64,
}

/// A set as one of its readings has it.
pub(super) struct Part {
    name: String,
    fields: &'static str,
    rules: Vec<Rule>,
    headers: Vec<Header>,
    seed: u64,
}

impl Set {
    pub(super) fn new(name: &str, rules: &[TextRule], headers: Vec<Header>, seed: u64) -> Self {
        let flags = rules.iter().any(|rule| rule.flags.1 != 0);
        Set {
            name: name.into(),
            five_tuples: in_order(rules.iter().map(|rule| rule.five_tuple)),
            with_flags: flags.then(|| in_order(rules.iter().map(TextRule::matches))),
            headers,
            seed,
        }
    }

    /// The structure that this set would get.
    pub(super) fn chosen(&self) -> Grouping {
        Grouping::for_set(&RuleSet::from_list(&self.five_tuples))
    }

    /// The five fields; and all, where rules have flags: then the headers get some too.
    pub(super) fn parts(self) -> Vec<Part> {
        let Set { name, five_tuples, with_flags, headers, seed } = self;
        let flagged = with_flags.map(|rules| {
            let mut rng = Rng::new(seed);
            let flag = |header: &Header| {
                let flags = rules[rng.below(rules.len())].matches.value().get(Field::TcpFlags);
                let key = header.key.with(Field::TcpFlags, flags);
                let key = if rng.once_in(4) { flipped(&key, &mut rng) } else { key };
                Header { key, first_match: None }
            };
            let headers = headers.iter().map(flag).collect();
            Part { name: name.clone(), fields: "with flags", rules, headers, seed }
        });
        let plain = Part { name, fields: "five fields", rules: five_tuples, headers, seed };
        [plain].into_iter().chain(flagged).collect()
    }
}

/// What was found, as JSON.
#[derive(Serialize)]
struct Line<'a> {
    v: u8,
    set: &'a str,
    rules: usize,
    fields: &'a str,
    structure: &'a str,
    stage: &'a str,
    checked: u64,
    wrong: u64,
    seconds: f64,
    #[serde(flatten)]
    shape: json::Params,
}

/// A wrong answer, as JSON.
#[derive(Serialize)]
struct WrongLine<'a> {
    v: u8,
    set: &'a str,
    structure: &'a str,
    stage: &'a str,
    key: String,
    got: i64,
    expected: i64,
}

/// -1 is no match, as in traces.
fn number(rule: Option<RuleId>) -> i64 {
    rule.map_or(-1, |id| id.0.into())
}

/// One check under way.
struct Stage {
    structure: &'static str,
    stage: &'static str,
    start: Instant,
    tally: Tally,
    shape: json::Params,
}

impl Stage {
    fn new(structure: &'static str, stage: &'static str) -> Self {
        Stage { structure, stage, start: Instant::now(), tally: Tally::default(), shape: json::Params::new() }
    }
}

/// Compares structures with the oracle of one part.
pub(super) struct Checker<'a> {
    part: &'a Part,
    json: bool,
    total: &'a mut Tally,
    set: RuleSet,
    keys: Vec<Key>,
    /// By the oracle.
    expected: Vec<Rank>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(part: &'a Part, json: bool, total: &'a mut Tally) -> Self {
        let keys = part.headers.iter().map(|header| header.key).collect();
        Checker { part, json, total, set: RuleSet::from_list(&part.rules), keys, expected: Vec::new() }
    }

    /// One answer.
    fn compare(
        &self,
        stage: &mut Stage,
        key: &Key,
        got: Option<RuleId>,
        expected: Option<RuleId>,
    ) -> Result<()> {
        stage.tally.checked += 1;
        if got == expected {
            return Ok(());
        }
        stage.tally.wrong += 1;
        if stage.tally.wrong as usize > SHOWN {
            return Ok(());
        }
        let (got, expected, key) = (number(got), number(expected), format!("{key:?}"));
        let (set, structure) = (&self.part.name, stage.structure);
        if self.json {
            let v = json::VERSION;
            json::print(&WrongLine { v, set, structure, stage: stage.stage, key, got, expected })?;
        } else {
            println!("{set}: {structure}, {}: {key}: rule {got}, expected {expected}", stage.stage);
        }
        Ok(())
    }

    fn report(&mut self, stage: Stage) -> Result<()> {
        let Stage { structure, stage: name, start, tally, shape } = stage;
        self.total.checked += tally.checked;
        self.total.wrong += tally.wrong;
        let line = Line {
            v: json::VERSION,
            set: &self.part.name,
            rules: self.part.rules.len(),
            fields: self.part.fields,
            structure,
            stage: name,
            checked: tally.checked,
            wrong: tally.wrong,
            seconds: json::significant(start.elapsed().as_secs_f64()),
            shape,
        };
        if self.json {
            json::print(&line)?;
        } else {
            let shape: Vec<String> =
                line.shape.iter().map(|(name, value)| format!("{name} {value}")).collect();
            println!(
                "{} ({} rules, {}): {structure}, {name}: {} checked, {} wrong{}{}",
                line.set,
                line.rules,
                line.fields,
                line.checked,
                line.wrong,
                if shape.is_empty() { "" } else { "; " },
                shape.join(", ")
            );
        }
        Ok(())
    }

    /// The oracle itself, against what the trace says.
    pub(super) fn oracle(&mut self) -> Result<()> {
        let mut stage = Stage::new("oracle", "trace");
        let oracle = Oracle::new(&self.set);
        let progress = Progress::new(format!("{}: oracle", self.part.name), self.keys.len() as u64);
        self.expected = vec![Rank::NONE; self.keys.len()];
        for (keys, expected) in self.keys.chunks(PIECE).zip(self.expected.chunks_mut(PIECE)) {
            oracle.lookup_batch(keys, expected);
            progress.add(keys.len() as u64);
        }
        drop(progress);
        for (header, found) in self.part.headers.iter().zip(&self.expected) {
            if let Some(first) = header.first_match {
                self.compare(&mut stage, &header.key, found.rule(), first.map(RuleId))?;
            }
        }
        let part = self.part;
        let matched = self.expected.iter().filter(|found| **found != Rank::NONE).count();
        stage.shape.insert("headers".into(), part.headers.len().into());
        stage.shape.insert("matched".into(), matched.into());
        self.report(stage)
    }

    /// Every header, one by one and in batches.
    pub(super) fn structure(&mut self, grouping: Grouping) -> Result<()> {
        let mut stage = Stage::new(grouping.name(), "lookup");
        let space = TupleSpace::build(&self.set, grouping);
        let built = stage.start.elapsed().as_secs_f64();
        let mut batch = vec![Rank::NONE; self.keys.len()];
        space.lookup_batch(&self.keys, &mut batch);
        let (mut tables, mut lines) = (0, 0);
        for ((key, &batch), &expected) in self.keys.iter().zip(&batch).zip(&self.expected) {
            let (one, cost) = space.lookup_counted(key);
            (tables, lines) = (tables + cost.tables, lines + cost.lines);
            self.compare(&mut stage, key, one.rule(), expected.rule())?;
            self.compare(&mut stage, key, batch.rule(), expected.rule())?;
        }
        let mean = |sum: usize| json::significant(sum as f64 / self.keys.len().max(1) as f64);
        for (name, value) in [("tables", space.tables()), ("bytes", space.bytes())] {
            stage.shape.insert(name.into(), value.into());
        }
        for (name, value) in
            [("tables_asked", mean(tables)), ("lines", mean(lines)), ("build_s", json::significant(built))]
        {
            stage.shape.insert(name.into(), value.into());
        }
        self.report(stage)
    }

    /// Every header by a cross-product, with vectors and without, if the set can be made into one; why it cannot.
    pub(super) fn cross(&mut self) -> Result<Option<NotCrossed>> {
        let mut stage = Stage::new(Crossed::NAME, "lookup");
        let space = TupleSpace::build(&self.set, Grouping::Merged);
        let start = Instant::now();
        let crossed = match Crossed::build(&space) {
            Ok(crossed) => crossed,
            Err(why) => return Ok(Some(why)),
        };
        let built = start.elapsed().as_secs_f64();
        let mut lines = 0;
        let mut found = vec![Rank::NONE; self.keys.len()];
        for scalar in [false, true] {
            match scalar {
                false => crossed.lookup_batch(&space, &self.keys, &mut found),
                true => crossed.lookup_batch_scalar(&space, &self.keys, &mut found),
            }
            for ((key, found), expected) in self.keys.iter().zip(&found).zip(&self.expected) {
                lines += if scalar { crossed.lines(key) } else { 0 };
                self.compare(&mut stage, key, found.rule(), expected.rule())?;
            }
        }
        let lines = lines as f64 / self.keys.len().max(1) as f64;
        stage.shape.insert("bytes".into(), crossed.bytes().into());
        for (name, value) in [("lines", lines), ("build_s", built)] {
            stage.shape.insert(name.into(), json::significant(value).into());
        }
        self.report(stage)?;
        Ok(None)
    }

    /// Masks: headers that agree in them are decided alike.
    pub(super) fn masks(&mut self, grouping: Grouping) -> Result<()> {
        let mut stage = Stage::new(grouping.name(), "masks");
        let space = TupleSpace::build(&self.set, grouping);
        let oracle = Oracle::new(&self.set);
        let mut rng = Rng::new(self.part.seed);
        let progress = Progress::new(format!("{}: masks", self.part.name), SAMPLE as u64);
        let mut bits = 0;
        let asked = SAMPLE.min(self.keys.len());
        for _ in 0..asked {
            let at = rng.below(self.keys.len());
            let (key, expected) = (&self.keys[at], self.expected[at]);
            let (found, mask) = space.lookup_wild(key);
            bits += mask.count();
            self.compare(&mut stage, key, found.rule(), expected.rule())?;
            match check_mask(&oracle, key, &mask, expected, &mut rng) {
                Ok(tried) => stage.tally.checked += tried as u64,
                Err(what) => {
                    (stage.tally.checked, stage.tally.wrong) =
                        (stage.tally.checked + 1, stage.tally.wrong + 1);
                    crate::usage::complain(format_args!("tidemill: {}: {what}", self.part.name));
                }
            }
            progress.add(1);
        }
        drop(progress);
        let mean = json::significant(f64::from(bits) / asked.max(1) as f64);
        stage.shape.insert("mask_bits".into(), mean.into());
        self.report(stage)
    }

    /// The caches in front of rules that change: all headers twice, then a sample of them after each change.
    pub(super) fn changes(&mut self, grouping: Grouping, changes: usize) -> Result<()> {
        let mut stage = Stage::new(grouping.name(), "cached");
        let domain = Domain::new();
        let mut live = LiveRules::new(&domain, grouping, self.part.rules.len() * 2);
        let (view, mut reader) = (live.view(), domain.register());
        let mut rng = Rng::new(self.part.seed);
        let mut cache = Cache::new(Settings::default(), u128::from(self.part.seed))?;
        for rule in &self.part.rules {
            live.insert(*rule)?;
        }
        live.commit();
        if live.cross() {
            live.commit();
        }
        let mut found = vec![Rank::NONE; self.keys.len()];
        for now in 0..2 {
            for (keys, found) in self.keys.chunks(256).zip(found.chunks_mut(256)) {
                cache.classify(view.get(&reader), now, keys, found);
                reader.quiescent();
            }
            cache.maintain(view.get(&reader), now, 10, usize::MAX);
            for ((key, found), expected) in self.keys.iter().zip(&found).zip(&self.expected) {
                self.compare(&mut stage, key, found.rule(), expected.rule())?;
            }
        }
        for (name, value) in [("megaflows", cache.megaflows()), ("masks", cache.masks())] {
            stage.shape.insert(name.into(), value.into());
        }
        let counters = cache.counters();
        for (name, value) in [
            ("exact_hits", counters.exact_hits),
            ("megaflow_hits", counters.megaflow_hits),
            ("misses", counters.misses),
        ] {
            stage.shape.insert(name.into(), value.into());
        }
        self.report(stage)?;

        let mut stage = Stage::new(grouping.name(), "changes");
        let progress = Progress::new(format!("{}: changes", self.part.name), changes as u64);
        let mut out: Vec<Rule> = Vec::new();
        let steps = self.part.rules.len().div_ceil(100);
        for change in 0..changes {
            // Rules go; those that went before come back, under other numbers.
            for rule in std::mem::take(&mut out) {
                live.insert(rule)?;
            }
            let ids: Vec<RuleId> = live.set().iter().map(|(id, _)| id).collect();
            for _ in 0..steps {
                out.extend(live.remove(ids[rng.below(ids.len())]));
            }
            live.commit();
            let oracle = Oracle::new(live.set());
            let keys: Vec<Key> = (0..SAMPLE).map(|_| self.keys[rng.below(self.keys.len())]).collect();
            let (mut found, mut expected) = (vec![Rank::NONE; SAMPLE], vec![Rank::NONE; SAMPLE]);
            oracle.lookup_batch(&keys, &mut expected);
            cache.classify(view.get(&reader), 2 + change as u32, &keys, &mut found);
            for ((key, found), expected) in keys.iter().zip(&found).zip(&expected) {
                self.compare(&mut stage, key, found.rule(), expected.rule())?;
            }
            view.get(&reader).lookup_batch(&keys, &mut found);
            for ((key, found), expected) in keys.iter().zip(&found).zip(&expected) {
                self.compare(&mut stage, key, found.rule(), expected.rule())?;
            }
            reader.quiescent();
            progress.add(1);
        }
        drop(progress);
        let counters = cache.counters();
        for (name, value) in [("renewed", counters.renewed), ("outdated", counters.outdated)] {
            stage.shape.insert(name.into(), value.into());
        }
        self.report(stage)
    }
}
