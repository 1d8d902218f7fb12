//! Cases for the caches: rules change between bursts, and every packet is decided as the rules of that moment say.

use super::{Rng, Shape, check_mask, key, shrink};
use crate::cache::{Cache, Settings};
use crate::key::Key;
use crate::live::LiveRules;
use crate::oracle::Oracle;
use crate::rule::{Rank, Rule};
use crate::tuple::Grouping;
use tidemill_lookup::qsbr::Domain;

/// What is done, in order.
#[derive(Debug, Clone)]
pub enum CachedStep {
    /// Put a rule in.
    Insert(Rule),
    /// Take a rule out.
    Remove(usize),
    /// Show the changes.
    Commit,
    /// Packets of this seed, out of so many.
    Burst(u64, usize),
    /// So many units of time pass, and entries of this age go.
    Time(u32, u32),
}

/// A case for the caches.
#[derive(Debug, Clone)]
pub struct CachedCase {
    /// How rules are grouped.
    pub grouping: Grouping,
    /// How large the cache is.
    pub settings: Settings,
    /// What is done.
    pub steps: Vec<CachedStep>,
}

/// Runs the case of a seed.
///
/// # Errors
/// The first packet that is not decided as the rules say, with as few steps as it needs.
pub fn run_cached(seed: u64, shape: Shape, grouping: Grouping, steps: usize) -> Result<(), String> {
    CachedCase::random(seed, shape, grouping, steps).check()
}

impl CachedCase {
    /// The case of a seed.
    pub fn random(seed: u64, shape: Shape, grouping: Grouping, steps: usize) -> Self {
        let mut rng = Rng::new(seed);
        let small = Settings {
            exact: rng.below(3) * 31,
            signatures: rng.below(3) * 8,
            megaflows: 31,
            masks: 1 + rng.below(8),
            filters: rng.once_in(2),
        };
        let settings = if rng.once_in(2) {
            small
        } else {
            Settings { exact: 500, signatures: 300, megaflows: 2000, masks: 100, filters: rng.once_in(2) }
        };
        let pool = 20 + rng.below(200);
        let mut step = |_| match rng.below(16) {
            0..4 => CachedStep::Insert(shape.rule(&mut rng)),
            4..7 => CachedStep::Remove(rng.below(1 << 20)),
            7..10 => CachedStep::Commit,
            10..15 => CachedStep::Burst(rng.below(4) as u64, pool),
            _ => CachedStep::Time(rng.below(3) as u32, 1 + rng.below(3) as u32),
        };
        CachedCase { grouping, settings, steps: (0..steps).map(&mut step).collect() }
    }

    fn check(&self) -> Result<(), String> {
        let Err(what) = self.run() else { return Ok(()) };
        let fails = |steps: &[CachedStep]| CachedCase { steps: steps.to_vec(), ..*self }.run().is_err();
        let small = CachedCase { steps: shrink(&self.steps, fails), ..*self };
        Err(format!("{what}\nthe shortest: {:?}\n{small:#?}", small.run().err()))
    }

    /// Runs the steps.
    ///
    /// # Errors
    /// The first packet that is not decided as the rules say.
    pub fn run(&self) -> Result<(), String> {
        let domain = Domain::new();
        let mut rules = LiveRules::new(&domain, self.grouping, 1 << 12);
        let (view, mut reader) = (rules.view(), domain.register());
        let mut cache = Cache::new(self.settings, 7).map_err(|e| e.to_string())?;
        let (mut ids, mut now, mut rng) = (Vec::new(), 0, Rng::new(1));
        // What is published, not what is staged.
        let mut oracle = Oracle::new(rules.set());
        let mut all: Vec<Rule> = Vec::new();
        for step in &self.steps {
            match *step {
                CachedStep::Insert(rule) => {
                    all.push(rule);
                    ids.push(rules.insert(rule).map_err(|e| e.to_string())?);
                }
                CachedStep::Remove(at) if !ids.is_empty() => {
                    let id = ids.swap_remove(at % ids.len());
                    rules.remove(id).ok_or("a rule was lost")?;
                }
                CachedStep::Remove(_) => {}
                CachedStep::Commit => {
                    rules.commit();
                    oracle = Oracle::new(rules.set());
                }
                CachedStep::Burst(seed, pool) => {
                    let keys = packets(&all, seed, pool, &mut rng);
                    let mut out = vec![Rank(0); keys.len()];
                    cache.classify(view.get(&reader), now, &keys, &mut out);
                    for (key, &found) in keys.iter().zip(&out) {
                        let expected = oracle.lookup(key);
                        if found != expected {
                            return Err(format!(
                                "{key:?}: {found:?}, oracle {expected:?}, {:?}",
                                cache.counters()
                            ));
                        }
                    }
                    if let Some(key) = keys.first() {
                        let (rank, mask) = view.get(&reader).space().lookup_wild(key);
                        check_mask(&oracle, key, &mask, rank, &mut rng)?;
                    }
                    reader.quiescent();
                }
                CachedStep::Time(passed, idle) => {
                    now += passed;
                    cache.maintain(view.get(&reader), now, idle, 1 + passed as usize);
                }
            }
            cache.check()?;
        }
        Ok(())
    }
}

/// A burst: packets of a pool that comes again with the same seed, and few others.
fn packets(rules: &[Rule], seed: u64, pool: usize, rng: &mut Rng) -> Vec<Key> {
    (0..rng.below(100))
        .map(|_| match rng.once_in(8) {
            true => key(rules, rng),
            false => key(&rules[..rules.len().min(16)], &mut Rng::new(seed << 32 | rng.below(pool) as u64)),
        })
        .collect()
}
