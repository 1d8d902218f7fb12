//! The rules themselves: the owner of truth, from which structures are made.

use crate::rule::{Rank, Rule, RuleId};
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
    /// No rules, and room for `most` (2^32 - 1 at most).
    pub fn new(most: usize) -> Self {
        RuleSet { slots: Vec::new(), free: BTreeSet::new(), len: 0, most: most.min(u32::MAX as usize) }
    }

    /// Rules of a list, numbered from 0 on.
    pub fn from_list(list: &[Rule]) -> Self {
        let mut set = RuleSet::new(u32::MAX as usize);
        set.slots = list.iter().copied().map(Slot::Used).collect();
        set.len = list.len();
        set
    }

    /// Puts a rule in. The same match may be there already, even with the same priority: then the lower number wins.
    ///
    /// # Errors
    /// See [`Full`].
    pub fn insert(&mut self, rule: Rule) -> Result<RuleId, Full> {
        self.insert_from(0, rule)
    }

    /// The same, with a number of at least `least`, which is at most one more than that of another rule.
    ///
    /// # Errors
    /// See [`Full`]; there may be room for a lower number.
    pub fn insert_from(&mut self, least: u32, rule: Rule) -> Result<RuleId, Full> {
        let free = self.free.range(least..).next().copied();
        let id = match free {
            Some(id) => {
                self.free.remove(&id);
                id
            }
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

    /// The number that the next rule gets: the lowest.
    pub fn next_number(&self) -> u32 {
        self.free.first().copied().unwrap_or(self.slots.len() as u32)
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
