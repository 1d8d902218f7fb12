//! Which grouping each table has, and whether the first has a cross-product: by its rules, and by other ones when they have become others.

use super::Pipeline;
use crate::cross::Crossed;
use crate::rule::Rule;
use crate::rules::RuleSet;
use crate::tuple::Grouping;

/// Rules have come to rest when nothing has changed for as long, nanoseconds.
const QUIET_NS: u64 = 1_000_000_000;

/// What is known of the first table's cross-product and its rules.
#[derive(Default)]
pub(super) struct Renewal {
    /// The version that was published last, and when it was first seen.
    version: u64,
    since_ns: u64,
    /// It has been let go, and another is to be made.
    is_due: bool,
}

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
        self.renewal.is_due &= !cross;
        let crossed = cross && self.rules.cross();
        !chosen.is_empty() || crossed
    }

    /// Makes the first table's cross-product anew if so much has changed since it was made that tuples answer, and either rules have come to rest, for a second, or more than half of it has changed.
    /// Only if it `may`: it costs the time of making one, which holds changes up, so whoever calls this now and then leaves many times as long between two. One of which more than half has changed meanwhile
    /// only takes memory, and goes. Whether there is something to commit.
    pub fn renew(&mut self, now_ns: u64, may: bool) -> bool {
        let snapshot = self.rules.snapshot();
        let (version, state) = (snapshot.version(), &mut self.renewal);
        if version != state.version {
            (state.version, state.since_ns) = (version, now_ns);
        }
        let [worn, outlived] = match snapshot.crossed() {
            Some(crossed) => [crossed.is_worn(), crossed.is_worn() && crossed.is_outlived()],
            None => [state.is_due; 2],
        };
        let quiet = now_ns.saturating_sub(state.since_ns) >= QUIET_NS;
        if may && worn && (quiet || outlived) {
            state.is_due = false;
            return self.rules.cross();
        }
        state.is_due |= outlived;
        outlived && self.rules.uncross()
    }

    /// The cross-product of the first table's rules, if there is one.
    pub fn crossed(&self) -> Option<&Crossed> {
        self.rules.snapshot().crossed()
    }

    /// Of each published table: its number, rules and grouping.
    pub fn groupings(&self) -> impl Iterator<Item = (u8, usize, Grouping)> {
        let tables = self.rules.snapshot().tables().iter();
        (0..).zip(tables).map(|(table, space)| (table, space.len(), space.grouping()))
    }
}
