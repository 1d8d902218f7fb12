//! Which grouping each table has, and whether the first has a cross-product: by its rules, and by other ones when they have become others.

use super::Pipeline;
use crate::cross::Crossed;
use crate::rule::Rule;
use crate::rules::RuleSet;
use crate::tuple::Grouping;

impl Pipeline {
    /// Gives tables the groupings that suit the rules that are published ([`Grouping::for_set`]), from the next [`commit`](Self::commit) on: with `all`
    /// every table, else those that have twice as many rules as when they were last looked at, or half as many. So rules that come one by one
    /// cost a few builds for all of them. The first table gets a cross-product likewise, if its rules suit one ([`LiveRules::cross`](crate::live::LiveRules::cross)). Whether there is
    /// something to commit.
    pub fn choose_groupings(&mut self, all: bool) -> bool {
        let (mut chosen, mut cross) = (Vec::new(), false);
        for ((table, space), looked) in (0..).zip(self.rules.snapshot().tables()).zip(&mut self.looked) {
            let rules = space.len();
            if rules == 0 || !(all || rules > 2 * *looked || 2 * rules < *looked) {
                continue;
            }
            *looked = rules;
            cross |= table == 0;
            let list: Vec<Rule> = space.rules().map(|(_, rule)| rule).collect();
            let grouping = Grouping::for_set(&RuleSet::from_list(&list));
            if grouping != space.grouping() {
                chosen.push((table, grouping));
            }
        }
        for (table, grouping) in &chosen {
            self.rules.regroup(*table, *grouping);
        }
        let crossed = cross && self.rules.cross();
        !chosen.is_empty() || crossed
    }

    /// Makes the first table's cross-product anew if so much has changed since it was made that tuples answer, and nothing has since this was called last: while rules come
    /// and go all the time, making one would be in vain, and hold them up. To be called now and then. Whether there is something to commit.
    pub fn renew(&mut self) -> bool {
        let snapshot = self.rules.snapshot();
        let (version, worn) = (snapshot.version(), snapshot.crossed().is_some_and(Crossed::is_worn));
        let quiet = std::mem::replace(&mut self.seen, version) == version;
        worn && quiet && self.rules.cross()
    }

    /// Of each published table: its number, rules and grouping.
    pub fn groupings(&self) -> impl Iterator<Item = (u8, usize, Grouping)> {
        let tables = self.rules.snapshot().tables().iter();
        (0..).zip(tables).map(|(table, space)| (table, space.len(), space.grouping()))
    }
}
