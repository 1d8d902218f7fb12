//! Many rules at once: all of a file, or nothing of it.

use super::Meter;
use super::action::Action;
use super::book::{BookError, FlowFilter, Pipeline, Why, check_group};
use crate::flows::{Item, Place};
use hashbrown::HashMap;
use std::collections::BTreeSet;

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

/// Refuses what an earlier line has said.
fn once(what: &'static str, before: Option<usize>, place: &Place, item: &Item) -> Result<(), LoadError> {
    match before {
        None => Ok(()),
        Some(first) => Err(LoadError::at(place, item, BookError::Twice { what, first })),
    }
}

impl Pipeline {
    /// Puts items of a file in, each with its place. With `replace` all that is not in the file goes; without, timeouts of rules that are there as they
    /// are begin anew, as OpenFlow's are when a rule is added again.
    ///
    /// # Errors
    /// The first item that is wrong, by its place; then nothing has changed.
    pub fn load(
        &mut self,
        items: Vec<(Place, Item)>,
        replace: bool,
        now_ns: u64,
    ) -> Result<Loaded, LoadError> {
        self.check_all(&items, replace)?;
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
        for (line, spec) in flows {
            let same = self.same(&spec);
            match same.and_then(|id| self.flow(id)).is_some_and(|flow| flow.spec == spec) {
                true => {
                    loaded.kept += 1;
                    if let (false, Some(id)) = (replace, same) {
                        self.restart(id, now_ns);
                    }
                    wanted.extend(same);
                }
                false => {
                    let added = self.add(spec, now_ns);
                    wanted.insert(added.map_err(|error| LoadError { line, column: 1, error })?);
                    loaded.added += 1;
                }
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

    fn check_all(&mut self, items: &[(Place, Item)], replace: bool) -> Result<(), LoadError> {
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
        Ok(())
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
