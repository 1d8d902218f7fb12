//! The first match by looking at every rule: obviously right, and slow.

use crate::key::Key;
use crate::rule::{Match, Rank, RuleId};
use crate::rules::RuleSet;

/// Rules in the order in which they win.
#[derive(Debug, Clone)]
pub struct Oracle {
    rules: Vec<(Rank, Match)>,
}

/// Keys that go through the rules together, so that a rule is fetched once for all of them.
const TOGETHER: usize = 64;

impl Oracle {
    /// The oracle of a set as it is now.
    pub fn new(set: &RuleSet) -> Self {
        let of = |(id, rule): (RuleId, &crate::Rule)| (Rank::new(rule.priority, id), rule.matches);
        Oracle::from_ranked(set.iter().map(of))
    }

    /// The oracle of rules with their ranks.
    pub(crate) fn from_ranked(rules: impl Iterator<Item = (Rank, Match)>) -> Self {
        let mut rules: Vec<_> = rules.collect();
        rules.sort_unstable_by_key(|&(rank, _)| rank);
        Oracle { rules }
    }

    /// The first rule that matches.
    pub fn lookup(&self, key: &Key) -> Rank {
        self.rules.iter().find(|(_, matches)| matches.matches(key)).map_or(Rank::NONE, |&(rank, _)| rank)
    }

    /// The same for many keys; `out` is as long as `keys`.
    pub fn lookup_batch(&self, keys: &[Key], out: &mut [Rank]) {
        for (keys, out) in keys.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
            out.fill(Rank::NONE);
            let mut open: Vec<usize> = (0..keys.len()).collect();
            for (rank, matches) in &self.rules {
                open.retain(|&i| {
                    // The first word alone settles most.
                    let differ = (keys[i].0[0] ^ matches.value().0[0]) & matches.mask().0[0] != 0;
                    let found = !differ && matches.matches(&keys[i]);
                    if found {
                        out[i] = *rank;
                    }
                    !found
                });
                if open.is_empty() {
                    break;
                }
            }
        }
    }
}
