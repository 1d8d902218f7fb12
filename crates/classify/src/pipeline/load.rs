//! Many rules at once: all of a file, or nothing of it.

use super::Meter;
use super::action::Action;
use super::book::{BookError, FlowFilter, Pipeline, Why, check_group};
use crate::flows::{Item, Place};
use crate::rule::{Match, RuleId};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// What of a file was not taken, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {error}")]
pub struct LoadError {
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
    /// What is wrong.
    pub error: BookError,
}

impl LoadError {
    fn at(place: &Place, item: &Item, error: BookError) -> Self {
        LoadError { line: place.line, column: place.column(item, &error), error }
    }
}

/// What a file has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rules that are new, or that say something else than before.
    pub added: usize,
    /// Rules that are as they were: they keep their counters.
    pub kept: usize,
    /// Rules that have gone.
    pub removed: usize,
}

/// Rules of a file so far, by table and priority. Of equal ones the lower number wins: so that a file means the same whatever was there before, rules that may meet
/// get numbers that rise as the file goes on.
struct Order {
    places: HashMap<(u8, u16), BTreeMap<RuleId, Match>>,
    /// Pairs that are still compared: when there were so many, the others count as such that meet.
    left: usize,
}

/// As many take tens of milliseconds.
const COMPARED: usize = 1 << 23;

impl Default for Order {
    fn default() -> Self {
        Order { places: HashMap::new(), left: COMPARED }
    }
}

impl Order {
    /// The least number, from this one on, that is behind those of all that the rule may meet.
    fn least(&mut self, (table, priority, matches): (u8, u16, Match), number: u32) -> u32 {
        let Some(before) = self.places.get(&(table, priority)) else { return number };
        let behind = (Bound::Excluded(RuleId(number)), Bound::<RuleId>::Unbounded);
        for (id, other) in before.range(behind).rev() {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 || matches.may_share(other) {
                return id.0 + 1;
            }
        }
        number
    }

    fn put(&mut self, (table, priority, matches): (u8, u16, Match), id: RuleId) {
        self.places.entry((table, priority)).or_default().insert(id, matches);
    }
}

/// Refuses what an earlier line has said.
fn once(what: &'static str, before: Option<usize>, place: &Place, item: &Item) -> Result<(), LoadError> {
    match before {
        None => Ok(()),
        Some(first) => Err(LoadError::at(place, item, BookError::Twice { what, first })),
    }
}

impl Pipeline {
    /// Puts items of a file in, each with its place. With `replace` all that is not in the file goes, and of rules of equal priority the earlier ones win, if there is
    /// room for the numbers that this takes; without, timeouts of rules that are there as they are begin anew, as OpenFlow's are when a rule is added again.
    ///
    /// # Errors
    /// The first item that is wrong, by its place; then nothing has changed.
    pub fn load(
        &mut self,
        items: Vec<(Place, Item)>,
        replace: bool,
        now_ns: u64,
    ) -> Result<Loaded, LoadError> {
        let new = self.check_all(&items, replace)?;
        let mut spare = self.room().saturating_sub(new);
        let mut loaded = Loaded::default();
        let (mut groups, mut meters, mut wanted) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        // Groups and meters first: rules may stand before them.
        let mut flows = Vec::new();
        for (place, item) in items {
            match item {
                Item::Flow(spec) => flows.push((place.line, *spec)),
                Item::Group(number, group) => {
                    groups.insert(number);
                    if self.shared().groups.get(&number).is_none_or(|known| **known != group) {
                        let line = place.line;
                        self.set_group(number, group).map_err(|error| LoadError {
                            line,
                            column: 1,
                            error,
                        })?;
                    }
                }
                Item::Meter(number, rate) => {
                    meters.insert(number);
                    // One that stays as it is keeps what it has counted.
                    if self.shared().meters.get(&number).is_none_or(|known| known.rate() != rate) {
                        self.set_meter(number, Meter::new(rate));
                    }
                }
            }
        }
        let mut order = Order::default();
        for (line, spec) in flows {
            let kept = self.same(&spec).filter(|&id| self.flow(id).is_some_and(|flow| flow.spec == spec));
            let place = (spec.table, spec.priority, spec.matches);
            let id = match (kept, replace) {
                (Some(id), false) => {
                    self.restart(id, now_ns);
                    id
                }
                (Some(id), true) => {
                    let least = order.least(place, id.0);
                    let other = (least != id.0 && spare > 0).then(|| self.renumber(id, least)).flatten();
                    spare -= usize::from(other.is_some());
                    other.unwrap_or(id)
                }
                (None, _) => {
                    let least = if replace { order.least(place, self.next_number()) } else { 0 };
                    // Where there is room for lower numbers only, the rule is worth more than its turn.
                    let added =
                        self.add_from(least, spec.clone(), now_ns).or_else(|_| self.add(spec, now_ns));
                    added.map_err(|error| LoadError { line, column: 1, error })?
                }
            };
            if kept.is_some() {
                loaded.kept += 1;
            } else {
                loaded.added += 1;
            }
            wanted.insert(id);
            if replace {
                order.put(place, id);
            }
        }
        if replace {
            let others = self.flows().map(|(id, _)| id).filter(|id| !wanted.contains(id)).collect();
            loaded.removed = self.take_out(others, Why::Deleted).len();
            let shared = self.shared().clone();
            for number in shared.groups.keys().filter(|number| !groups.contains(number)) {
                self.delete_group(*number);
            }
            for number in shared.meters.keys().filter(|number| !meters.contains(number)) {
                self.delete_meter(*number);
            }
        }
        Ok(loaded)
    }

    /// How many rules are new, or say something else than before.
    fn check_all(&mut self, items: &[(Place, Item)], replace: bool) -> Result<usize, LoadError> {
        let group = |number: u32| {
            let new = items.iter().any(|(_, item)| matches!(item, Item::Group(n, _) if *n == number));
            new || !replace && self.shared().groups.contains_key(&number)
        };
        let meter = |number: u32| {
            let new = items.iter().any(|(_, item)| matches!(item, Item::Meter(n, _) if *n == number));
            new || !replace && self.shared().meters.contains_key(&number)
        };
        // Each number is looked for once, however many rules use it.
        let used = |wanted: fn(&Action) -> Option<u32>, there: &dyn Fn(u32) -> bool| -> BTreeSet<u32> {
            let actions = items.iter().filter_map(|(_, item)| match item {
                Item::Flow(spec) => Some(&spec.instructions.actions),
                _ => None,
            });
            let numbers: BTreeSet<u32> = actions.flatten().filter_map(wanted).collect();
            numbers.into_iter().filter(|&number| there(number)).collect()
        };
        let groups = used(|action| if let Action::Group(n) = action { Some(*n) } else { None }, &group);
        let meters = used(|action| if let Action::Meter(n) = action { Some(*n) } else { None }, &meter);
        // Each rule that is put in takes a number, and what it replaces gives none back before workers have seen that.
        let (mut rules, mut lines) = (0, HashMap::new());
        let (mut group_lines, mut meter_lines) = (HashMap::new(), HashMap::new());
        for (place, item) in items {
            match item {
                Item::Flow(spec) => {
                    self.check_with(spec, &|n| groups.contains(&n), &|n| meters.contains(&n))
                        .map_err(|error| LoadError::at(place, item, error))?;
                    let before = lines.insert((spec.table, spec.priority, spec.matches), place.line);
                    once("rule", before, place, item)?;
                    let there = self.same(spec).and_then(|id| self.flow(id));
                    rules += usize::from(there.is_none_or(|flow| flow.spec != **spec));
                }
                Item::Group(number, group) => {
                    once("group", group_lines.insert(*number, place.line), place, item)?;
                    check_group(*number, group).map_err(|error| LoadError::at(place, item, error))?;
                }
                Item::Meter(number, _) => {
                    once("meter", meter_lines.insert(*number, place.line), place, item)?;
                }
            }
        }
        if rules > self.room()
            && let Some((place, item)) = items.last()
        {
            let (there, most) = (self.flows().len(), self.settings().rules);
            return Err(LoadError::at(place, item, BookError::FullAtOnce { new: rules, there, most }));
        }
        Ok(rules)
    }

    /// Takes all rules, groups and meters out.
    pub fn clear(&mut self) {
        self.delete(&FlowFilter::any());
        for number in self.shared().groups.keys().copied().collect::<Vec<_>>() {
            self.delete_group(number);
        }
        for number in self.shared().meters.keys().copied().collect::<Vec<_>>() {
            self.delete_meter(number);
        }
    }
}
