//! Cases for pipelines: tables of rules that rewrite keys and pass them on, changed between bursts; every packet goes the way that the oracle
//! says, through a cache, and masks hold.

use super::{Rng, Shape, flipped, key, shrink};
use crate::cache::{Cache, Settings};
use crate::key::{Field, Key, Mask, VLAN_PRESENT};
use crate::live::LiveRules;
use crate::pipeline::{Action, Entry, Instructions, Output, PipelineOracle, SETTABLE, Walker, WayId, Ways};
use crate::rule::Rule;
use crate::tuple::Grouping;
use tidemill_lookup::qsbr::Domain;
use tidemill_wire::EtherType;

/// What is done, in order.
#[derive(Debug, Clone)]
pub enum PipedStep {
    /// Put a rule in.
    Insert(Rule, Entry),
    /// Take a rule out.
    Remove(usize),
    /// Show the changes.
    Commit,
    /// Packets of this seed, out of so many.
    Burst(u64, usize),
    /// So many units of time pass, and entries of this age go.
    Time(u32, u32),
}

/// A case for pipelines.
#[derive(Debug, Clone)]
pub struct PipedCase {
    /// How rules are grouped.
    pub grouping: Grouping,
    /// How large the cache is.
    pub settings: Settings,
    /// Room for ways.
    pub ways: usize,
    /// What is done.
    pub steps: Vec<PipedStep>,
}

/// Tables of a case.
pub(super) const TABLES: u8 = 4;

/// Other packets that a mask is tried with.
const OTHERS: usize = 4;

/// Runs the case of a seed.
///
/// # Errors
/// The first packet that does not go the oracle's way, with as few steps as it needs.
pub fn run_piped(seed: u64, shape: Shape, grouping: Grouping, steps: usize) -> Result<(), String> {
    PipedCase::random(seed, shape, grouping, steps).check()
}

pub(super) fn entry(shape: Shape, rng: &mut Rng) -> Entry {
    let table = rng.below(TABLES.into()) as u8;
    let actions = (0..rng.below(4)).map(|_| action(shape, rng)).collect();
    // Mostly on; now and then to a table that there is not.
    let goto = (!rng.once_in(3)).then(|| table + 1 + rng.below(2) as u8);
    Entry { table, instructions: Instructions { actions, goto } }
}

fn action(shape: Shape, rng: &mut Rng) -> Action {
    // What a rule asks for, so that later tables tell the packet as it is from the packet as it was.
    let wanted = shape.rule(rng).matches;
    let asked = SETTABLE.into_iter().filter(|&field| field != Field::Vlan && wanted.mask().get(field) != 0);
    let asked: Vec<Field> = asked.collect();
    if !asked.is_empty() && rng.once_in(2) {
        let field = asked[rng.below(asked.len())];
        return Action::Set { field, value: wanted.value().get(field), mask: wanted.mask().get(field) };
    }
    match rng.below(8) {
        0 => Action::PushVlan(EtherType::VLAN),
        1 => Action::PopVlan,
        2 => Action::Output(Output::Port(1)),
        _ => {
            let field = SETTABLE[rng.below(SETTABLE.len())];
            let all = Mask::prefix(field, 128).get(field);
            let mask = if rng.once_in(2) { all } else { u128::from(rng.number()) & all };
            // Values that rules ask for, too.
            let value = [0, 80, 443, 0x0a00_0000, 0xc0a8_0101, 0x0101_0101_0101, u128::from(rng.number())];
            let value = value[rng.below(value.len())] & mask;
            if field == Field::Vlan {
                let present = u128::from(VLAN_PRESENT);
                return Action::Set { field, value: value | present, mask: mask | present };
            }
            Action::Set { field, value, mask }
        }
    }
}

impl PipedCase {
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
        let roomy = !rng.once_in(2);
        let settings = if roomy {
            Settings { exact: 500, signatures: 300, megaflows: 2000, masks: 100, filters: rng.once_in(2) }
        } else {
            small
        };
        let ways = if roomy { 1000 } else { 1 + rng.below(20) };
        let pool = 20 + rng.below(200);
        let mut step = |_| match rng.below(16) {
            0..5 => PipedStep::Insert(shape.rule(&mut rng), entry(shape, &mut rng)),
            5..7 => PipedStep::Remove(rng.below(1 << 20)),
            7..10 => PipedStep::Commit,
            10..15 => PipedStep::Burst(rng.below(4) as u64, pool),
            _ => PipedStep::Time(rng.below(3) as u32, 1 + rng.below(3) as u32),
        };
        PipedCase { grouping, settings, ways, steps: (0..steps).map(&mut step).collect() }
    }

    fn check(&self) -> Result<(), String> {
        let Err(what) = self.run() else { return Ok(()) };
        let fails = |steps: &[PipedStep]| PipedCase { steps: steps.to_vec(), ..*self }.run().is_err();
        let small = PipedCase { steps: shrink(&self.steps, fails), ..*self };
        Err(format!("{what}\nthe shortest: {:?}\n{small:#?}", small.run().err()))
    }

    /// Runs the steps.
    ///
    /// # Errors
    /// The first packet that does not go the oracle's way.
    pub fn run(&self) -> Result<(), String> {
        let domain = Domain::new();
        let mut rules = LiveRules::with_tables(&domain, self.grouping, 1 << 12, TABLES);
        let (view, mut reader) = (rules.view(), domain.register());
        let mut cache = Cache::new(self.settings, 7).map_err(|e| e.to_string())?;
        let (mut ways, mut ids, mut now) = (Ways::new(self.ways), Vec::new(), 0);
        let mut rng = Rng::new(1);
        let mut oracle = PipelineOracle::new(&rules);
        let mut all: Vec<Rule> = Vec::new();
        for step in &self.steps {
            match step {
                PipedStep::Insert(rule, entry) => {
                    all.push(*rule);
                    ids.push(rules.insert_entry(*rule, entry.clone()).map_err(|e| e.to_string())?);
                }
                PipedStep::Remove(at) if !ids.is_empty() => {
                    let id = ids.swap_remove(at % ids.len());
                    rules.remove(id).ok_or("a rule was lost")?;
                }
                PipedStep::Remove(_) => {}
                PipedStep::Commit => {
                    rules.commit();
                    oracle = PipelineOracle::new(&rules);
                }
                PipedStep::Burst(seed, pool) => {
                    let keys = packets(&all, *seed, *pool, &mut rng);
                    let mut out = vec![WayId(0); keys.len()];
                    let snapshot = view.get(&reader);
                    cache.classify(Walker::new(snapshot, &mut ways), now, &keys, &mut out);
                    for (key, &found) in keys.iter().zip(&out) {
                        let (found, expected) = (*ways.get(found), oracle.way(key));
                        if found != expected {
                            let counters = cache.counters();
                            return Err(format!("{key:?}: {found:?}, oracle {expected:?}, {counters:?}"));
                        }
                    }
                    for key in keys.iter().take(4) {
                        let (way, mask) = snapshot.walk(key, |_| {});
                        let others = (0..OTHERS).map(|i| other(i, key, &mask, &mut rng));
                        for other in others.collect::<Vec<_>>() {
                            let found = oracle.way(&other);
                            if found != way {
                                return Err(format!(
                                    "{key:?}: {way:?} by {mask:?}, and {other:?}: {found:?}"
                                ));
                            }
                        }
                    }
                    reader.quiescent();
                }
                PipedStep::Time(passed, idle) => {
                    now += passed;
                    let walker = Walker::new(view.get(&reader), &mut ways);
                    cache.maintain(walker, now, *idle, 1 + *passed as usize);
                }
            }
            cache.check()?;
            ways.check(&cache.held())?;
        }
        Ok(())
    }
}

/// A key with the same bits under a mask.
fn other(i: usize, key: &Key, mask: &Mask, rng: &mut Rng) -> Key {
    let other = match i {
        0 => Key(std::array::from_fn(|_| rng.number())),
        1 => flipped(key, rng),
        _ => flipped(&flipped(key, rng), rng),
    };
    Key(std::array::from_fn(|i| (key.0[i] & mask.0[i] | other.0[i] & !mask.0[i]) & Mask::ALL.0[i]))
}

/// A burst: packets of a pool that comes again with the same seed, and few others; some with tags, fragments among them.
pub(super) fn packets(rules: &[Rule], seed: u64, pool: usize, rng: &mut Rng) -> Vec<Key> {
    (0..rng.below(100))
        .map(|_| match rng.once_in(8) {
            true => key(rules, rng),
            false => {
                let mut same = Rng::new(seed << 32 | rng.below(pool) as u64);
                let key = key(&rules[..rules.len().min(16)], &mut same);
                match same.below(6) {
                    0 => key.with(Field::Vlan, 0x1005),
                    1 => key.with(Field::Vlan, 0x1005).with(Field::EtherType, 0x8100),
                    2 => key.with(Field::Fragment, 3),
                    _ => key,
                }
            }
        })
        .collect()
}
