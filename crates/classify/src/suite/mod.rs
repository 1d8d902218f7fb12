//! What holds every structure to the oracle: made-up rule sets of every [`Shape`], changed and asked at random.
//!
//! After every step, for packets that rules match or nearly match: one lookup, a batch, and a lookup that tells its mask give what the
//! oracle gives; packets that agree with the key in the mask are given the same by the oracle. A case that fails is made as
//! short as leaving steps out can make it, and printed.

mod booked;
mod cached;
mod piped;
mod sets;

pub use booked::{BookedCase, BookedStep, run_booked};
pub use cached::{CachedCase, run_cached};
pub use piped::{PipedCase, run_piped};
pub use sets::{Rng, Shape, flipped, key};

use crate::cross::Crossed;
use crate::key::{Key, Mask};
use crate::oracle::Oracle;
use crate::rule::{Rank, Rule, RuleId};
use crate::rules::RuleSet;
use crate::tuple::{Grouping, TupleSpace};

/// A step of a case.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Put a rule in.
    Insert(Rule),
    /// Take out the rule whose number leaves this rest, divided by the numbers so far.
    Remove(usize),
    /// Make a cross-product of the rules that there are, if there can be one; from then on it is asked, too.
    Cross,
    /// Ask for packets made with this seed.
    Look(u64),
}

/// Steps for one structure.
#[derive(Debug, Clone)]
pub struct Case {
    /// How rules are grouped.
    pub grouping: Grouping,
    /// What is done.
    pub steps: Vec<Step>,
}

/// Packets of one look, other packets that a mask is tried with.
const PACKETS: usize = 40;
const OTHERS: usize = 4;

impl Case {
    /// The case of a seed: so many changes, with looks in between.
    pub fn random(seed: u64, shape: Shape, grouping: Grouping, changes: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut steps: Vec<Step> = (0..changes / 2).map(|_| Step::Insert(shape.rule(&mut rng))).collect();
        steps.extend([Step::Cross, Step::Look(rng.number())]);
        for _ in changes / 2..changes {
            let insert = rng.once_in(2);
            steps.push(if insert {
                Step::Insert(shape.rule(&mut rng))
            } else {
                Step::Remove(rng.below(1 << 20))
            });
            if rng.once_in(8) {
                steps.push(Step::Look(rng.number()));
            }
            if rng.once_in(64) {
                steps.push(Step::Cross);
            }
        }
        // And down to nothing, now and then.
        if rng.once_in(4) {
            for i in 0..2 * changes {
                steps.push(Step::Remove(i));
                if rng.once_in(16) {
                    steps.push(Step::Look(rng.number()));
                }
            }
        }
        steps.push(Step::Look(rng.number()));
        Case { grouping, steps }
    }

    /// Runs the steps.
    ///
    /// # Errors
    /// The first answer that is not the oracle's.
    pub fn run(&self) -> Result<(), String> {
        let (mut set, mut space) = (RuleSet::new(1 << 20), TupleSpace::new(self.grouping));
        let mut crossed: Option<Crossed> = None;
        let mut ids: Vec<RuleId> = Vec::new();
        for step in &self.steps {
            match step {
                Step::Insert(rule) => {
                    let id = set.insert(*rule).map_err(|e| e.to_string())?;
                    ids.push(id);
                    if !space.insert(id, rule) || space.insert(id, rule) {
                        return Err(format!("{id:?} went in not once"));
                    }
                    crossed.iter_mut().for_each(|crossed| crossed.insert(id, rule));
                }
                Step::Remove(at) if !ids.is_empty() => {
                    let id = ids.swap_remove(at % ids.len());
                    let rule = set.remove(id).ok_or("the set has lost a rule")?;
                    set.release(id);
                    if !space.remove(id, &rule) || space.remove(id, &rule) {
                        return Err(format!("{id:?} came out not once"));
                    }
                    crossed.iter_mut().for_each(|crossed| crossed.remove(id, &rule));
                }
                Step::Remove(_) => {}
                Step::Cross => crossed = Crossed::build(&space).ok(),
                Step::Look(seed) => look(&set, &space, crossed.as_ref(), *seed)?,
            }
        }
        Ok(())
    }

    /// Runs the steps; a failure comes with as few steps as it needs.
    ///
    /// # Errors
    /// As [`run`](Self::run), with the case.
    pub fn check(&self) -> Result<(), String> {
        let Err(what) = self.run() else { return Ok(()) };
        let grouping = self.grouping;
        let fails = |steps: &[Step]| Case { grouping, steps: steps.to_vec() }.run().is_err();
        let steps = shrink(&self.steps, fails);
        let small = Case { grouping, steps };
        Err(format!("{what}\nthe shortest: {:?}\n{small:#?}", small.run().err()))
    }
}

/// Leaves out whatever a failure does not need.
fn shrink<T: Clone>(steps: &[T], fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut steps = steps.to_vec();
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let without = [&steps[..at], &steps[steps.len().min(at + size)..]].concat();
            if fails(&without) {
                steps = without;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    steps
}

/// Compares a structure with the oracle of a set.
fn look(set: &RuleSet, space: &TupleSpace, crossed: Option<&Crossed>, seed: u64) -> Result<(), String> {
    space.check()?;
    crossed.map_or(Ok(()), |crossed| crossed.check(space))?;
    let oracle = Oracle::new(set);
    let rules: Vec<Rule> = set.iter().map(|(_, rule)| *rule).collect();
    let mut rng = Rng::new(seed);
    let keys: Vec<Key> = (0..rng.below(2 * PACKETS)).map(|_| key(&rules, &mut rng)).collect();
    let mut found = vec![Rank::NONE; keys.len()];
    space.lookup_batch(&keys, &mut found);
    let (mut scalar, mut expected) = (found.clone(), found.clone());
    space.lookup_batch_scalar(&keys, &mut scalar);
    if let Some(i) = (0..keys.len()).find(|&i| scalar[i] != found[i]) {
        return Err(format!("{:?}: vectors {:?}, scalar {:?}", keys[i], found[i], scalar[i]));
    }
    oracle.lookup_batch(&keys, &mut expected);
    if let Some(crossed) = crossed {
        let mut vectors = scalar.clone();
        crossed.lookup_batch(space, &keys, &mut vectors);
        crossed.lookup_batch_scalar(space, &keys, &mut scalar);
        if let Some(i) = (0..keys.len()).find(|&i| [vectors[i], scalar[i]] != [expected[i]; 2]) {
            let answers = [vectors[i], scalar[i], expected[i]];
            return Err(format!("{:?}: crossed by vectors, scalar, oracle {answers:?}", keys[i]));
        }
    }
    for ((key, &batch), &batch_oracle) in keys.iter().zip(&found).zip(&expected) {
        let expected = oracle.lookup(key);
        let (wild, mask) = space.lookup_wild(key);
        let all = [space.lookup(key), batch, wild, batch_oracle];
        if all != [expected; 4] {
            return Err(format!("{key:?}: one, batch, wild, oracle's batch {all:?}, oracle {expected:?}"));
        }
        check_mask(&oracle, key, &mask, expected, &mut rng)?;
    }
    Ok(())
}

/// Tries a mask: packets with the same bits have the same rule. Returns how many were tried.
///
/// # Errors
/// A packet that has another one.
pub fn check_mask(
    oracle: &Oracle,
    key: &Key,
    mask: &Mask,
    expected: Rank,
    rng: &mut Rng,
) -> Result<usize, String> {
    if !mask.within(&Mask::ALL) {
        return Err(format!("{mask:?} has bits that no field has"));
    }
    for i in 0..OTHERS {
        let other = match i {
            0 => Key(std::array::from_fn(|_| rng.number())),
            1 => flipped(key, rng),
            _ => flipped(&flipped(key, rng), rng),
        };
        let other =
            Key(std::array::from_fn(|i| (key.0[i] & mask.0[i] | other.0[i] & !mask.0[i]) & Mask::ALL.0[i]));
        let found = oracle.lookup(&other);
        if found != expected {
            return Err(format!("{key:?} has {expected:?} by {mask:?}, and {other:?} has {found:?}"));
        }
    }
    Ok(OTHERS)
}
