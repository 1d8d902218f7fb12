//! The way of a key by looking at every rule of every table.

use super::action::Travelling;
use super::way::{DEPTH, End, Way};
use super::{Entry, Instructions};
use crate::key::Key;
use crate::live::LiveRules;
use crate::oracle::Oracle;
use crate::rule::{Rank, RuleId};
use crate::rules::RuleSet;
use std::collections::BTreeMap;

/// All tables, each with its rules in the order in which they win.
#[derive(Debug, Clone)]
pub struct PipelineOracle {
    tables: Vec<Oracle>,
    instructions: BTreeMap<RuleId, Instructions>,
}

impl PipelineOracle {
    /// The oracle of what live rules are now, staged ones included.
    pub fn new(rules: &LiveRules) -> Self {
        let table_of = |id| rules.entry(id).map_or(0, |entry: &std::sync::Arc<Entry>| entry.table);
        let tables = (0..rules.snapshot().tables().len())
            .map(|table| Oracle::of(rules.set(), |id| usize::from(table_of(id)) == table))
            .collect();
        let said = |(id, _): (RuleId, &crate::Rule)| Some((id, rules.entry(id)?.instructions.clone()));
        PipelineOracle { tables, instructions: rules.set().iter().filter_map(said).collect() }
    }

    /// The way of a key.
    pub fn way(&self, key: &Key) -> Way {
        let (mut travelling, mut rules, mut table) = (Travelling::new(key), Vec::new(), 0);
        let end = loop {
            if travelling.stacked {
                break End::Stacked;
            }
            let found = self.tables.get(usize::from(table)).map_or(Rank::NONE, |t| t.lookup(&travelling.key));
            let Some(id) = found.rule() else { break End::Miss };
            if rules.len() == DEPTH {
                break End::Deep;
            }
            rules.push(id);
            let Some(Instructions { actions, goto: Some(next) }) = self.instructions.get(&id) else {
                break End::Done;
            };
            actions.iter().for_each(|action| travelling.apply(action, |_| {}));
            table = *next;
        };
        Way::from_rules(&rules, end)
    }
}

impl Oracle {
    /// Of some rules of a set.
    fn of(set: &RuleSet, mut wanted: impl FnMut(RuleId) -> bool) -> Self {
        Oracle::from_ranked(
            set.iter()
                .filter(|(id, _)| wanted(*id))
                .map(|(id, rule)| (Rank::new(rule.priority, id), rule.matches)),
        )
    }
}
