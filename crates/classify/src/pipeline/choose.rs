//! Which grouping each table has: by its rules, and by other ones when they have become others.

use super::Pipeline;
use crate::rule::Rule;
use crate::rules::RuleSet;
use crate::tuple::Grouping;

impl Pipeline {
    /// Gives tables the groupings that suit the rules that are published ([`Grouping::for_set`]), from the next [`commit`](Self::commit) on: with `all`
    /// every table, else those that have twice as many rules as when they were last looked at, or half as many. So rules that come one by one
    /// cost a few builds for all of them. Whether a grouping is another one now.
    pub fn choose_groupings(&mut self, all: bool) -> bool {
        let mut chosen = Vec::new();
        for ((table, space), looked) in (0..).zip(self.rules.snapshot().tables()).zip(&mut self.looked) {
            let rules = space.len();
            if rules == 0 || !(all || rules > 2 * *looked || 2 * rules < *looked) {
                continue;
            }
            *looked = rules;
            let list: Vec<Rule> = space.rules().map(|(_, rule)| rule).collect();
            let grouping = Grouping::for_set(&RuleSet::from_list(&list));
            if grouping != space.grouping() {
                chosen.push((table, grouping));
            }
        }
        for (table, grouping) in &chosen {
            self.rules.regroup(*table, *grouping);
        }
        !chosen.is_empty()
    }

    /// Of each published table: its number, rules and grouping.
    pub fn groupings(&self) -> impl Iterator<Item = (u8, usize, Grouping)> {
        let tables = self.rules.snapshot().tables().iter();
        (0..).zip(tables).map(|(table, space)| (table, space.len(), space.grouping()))
    }
}
