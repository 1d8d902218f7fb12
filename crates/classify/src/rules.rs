//! The rules themselves: the owner of truth, from which structures are made.

use crate::rule::{MOST_RULES, Rank, Rule, RuleId};
use std::collections::BTreeSet;

/// There are as many rules as there can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for another rule: there are {0}, as many as there can be")]
pub struct Full(pub usize);

/// A number's place.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Used(Rule),
    /// Its rule has gone, and somebody may still count under the number.
    Gone,
    Free,
}

/// Rules by their numbers. Numbers of rules that have gone are used again only when [`release`](Self::release) says so: somebody may
/// still count under them.
#[derive(Debug, Clone)]
pub struct RuleSet {
    slots: Vec<Slot>,
    free: BTreeSet<u32>,
    len: usize,
    most: usize,
}

impl RuleSet {
    /// No rules, and room for `most` ([`MOST_RULES`] at most).
    pub fn new(most: usize) -> Self {
        RuleSet { slots: Vec::new(), free: BTreeSet::new(), len: 0, most: most.min(MOST_RULES) }
    }

    /// Rules of a list, numbered from 0 on.
    ///
    /// # Panics
    /// There are more than [`MOST_RULES`].
    pub fn from_list(list: &[Rule]) -> Self {
        assert!(list.len() <= MOST_RULES, "{} rules", list.len());
        let mut set = RuleSet::new(MOST_RULES);
        set.slots = list.iter().copied().map(Slot::Used).collect();
        set.len = list.len();
        set
    }

    /// Puts a rule in. The same match may be there already, even with the same priority: then the lower number wins.
    ///
    /// # Errors
    /// See [`Full`].
    pub fn insert(&mut self, rule: Rule) -> Result<RuleId, Full> {
        let id = match self.free.pop_first() {
            Some(id) => id,
            None if self.slots.len() < self.most => {
                self.slots.push(Slot::Free);
                self.slots.len() as u32 - 1
            }
            None => return Err(Full(self.len)),
        };
        self.slots[id as usize] = Slot::Used(rule);
        self.len += 1;
        Ok(RuleId(id))
    }

    /// Takes a rule out. Its number stays unused until it is released.
    pub fn remove(&mut self, id: RuleId) -> Option<Rule> {
        let slot = self.slots.get_mut(id.0 as usize)?;
        let Slot::Used(rule) = *slot else { return None };
        *slot = Slot::Gone;
        self.len -= 1;
        Some(rule)
    }

    /// Gives a rule another priority; the rule as it was.
    pub fn set_priority(&mut self, id: RuleId, priority: u64) -> Option<Rule> {
        let Slot::Used(rule) = self.slots.get_mut(id.0 as usize)? else { return None };
        let before = *rule;
        rule.priority = priority;
        Some(before)
    }

    /// Gives the number of a rule that has gone back for use.
    pub fn release(&mut self, id: RuleId) {
        if let Some(slot @ Slot::Gone) = self.slots.get_mut(id.0 as usize) {
            *slot = Slot::Free;
            self.free.insert(id.0);
        }
    }

    /// A rule.
    pub fn get(&self, id: RuleId) -> Option<&Rule> {
        match self.slots.get(id.0 as usize)? {
            Slot::Used(rule) => Some(rule),
            Slot::Gone | Slot::Free => None,
        }
    }

    /// All rules, by rising number.
    pub fn iter(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        self.slots.iter().zip(0..).filter_map(|(slot, id)| match slot {
            Slot::Used(rule) => Some((RuleId(id), rule)),
            Slot::Gone | Slot::Free => None,
        })
    }

    /// The rank of a rule.
    pub fn rank(&self, id: RuleId) -> Option<Rank> {
        self.get(id).map(|rule| Rank::new(rule.priority, id))
    }

    /// How many could be put in now.
    pub fn room(&self) -> usize {
        self.most - self.slots.len() + self.free.len()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
