//! Many rules at once: all of a file, or nothing of it.

use super::Meter;
use super::book::{BookError, FlowFilter, FlowSpec, MOST_SHARED, Pipeline, Why, check_group};
use super::order::{self, BEHIND};
use crate::flows::{Item, Place};
use hashbrown::{HashMap, HashSet};

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
    /// Puts items of a file in, each with its place. With `replace` all that is not in the file goes, and of rules of equal priority the earlier ones win; without,
    /// rules that are there as they are begin their time anew, as OpenFlow's do when a rule is added again, keep their counters but where the line says `reset_counts`, and new ones are behind all of their
    /// priority.
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
        let (mut groups, mut meters, mut wanted) = (HashSet::new(), HashSet::new(), HashSet::new());
        // Groups and meters first: rules may stand before them.
        let mut flows = Vec::new();
        for (place, item) in items {
            match item {
                Item::Flow(spec) => flows.push((place, *spec)),
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
        let places = if replace { self.places(&flows) } else { Vec::new() };
        for (at, (stands, spec)) in flows.into_iter().enumerate() {
            let kept = self.same(&spec).filter(|&id| self.flow(id).is_some_and(|flow| flow.spec == spec));
            let id = match (kept, places.get(at)) {
                (Some(id), Some(&place)) => {
                    self.set_place(id, place);
                    id
                }
                (Some(id), None) => {
                    self.restart(id, now_ns, stands.reset_counts);
                    id
                }
                (None, place) => {
                    let added = match place {
                        Some(&place) => self.add_at(place, spec, now_ns),
                        None => self.add(spec, now_ns),
                    };
                    added.map_err(|error| LoadError { line: stands.line, column: 1, error })?
                }
            };
            if kept.is_some() {
                loaded.kept += 1;
            } else {
                loaded.added += 1;
            }
            wanted.insert(id);
        }
        if replace {
            let others = self.flows().map(|(id, _)| id).filter(|id| !wanted.contains(id)).collect();
            loaded.removed = self.take_out(others, Why::Deleted).len();
            self.retain_shared(|number| groups.contains(&number), |number| meters.contains(&number));
        }
        Ok(loaded)
    }

    /// A place for each rule of a file: of one table and priority, the earlier the lower.
    fn places(&self, flows: &[(Place, FlowSpec)]) -> Vec<u32> {
        let mut equals = HashMap::<(u8, u16), Vec<usize>>::new();
        for (at, (_, spec)) in flows.iter().enumerate() {
            equals.entry((spec.table, spec.priority)).or_default().push(at);
        }
        let mut places = vec![BEHIND; flows.len()];
        for rules in equals.values() {
            let place = |&at: &usize| self.place(self.same(&flows[at].1)?).filter(|&place| place != BEHIND);
            let known: Vec<Option<u32>> = rules.iter().map(place).collect();
            for (&at, place) in rules.iter().zip(order::places(&known)) {
                places[at] = place;
            }
        }
        places
    }

    /// The first item that is wrong, if one is.
    fn check_all(&mut self, items: &[(Place, Item)], replace: bool) -> Result<(), LoadError> {
        let (mut groups, mut meters) = (HashSet::<u32>::new(), HashSet::<u32>::new());
        if !replace {
            groups.extend(self.shared().groups.keys().copied());
            meters.extend(self.shared().meters.keys().copied());
        }
        for (place, item) in items {
            let (what, numbers, number) = match item {
                Item::Flow(_) => continue,
                Item::Group(number, _) => ("group", &mut groups, *number),
                Item::Meter(number, _) => ("meter", &mut meters, *number),
            };
            if numbers.insert(number) && numbers.len() > MOST_SHARED {
                return Err(LoadError::at(place, item, BookError::TooMany { what, most: MOST_SHARED }));
            }
        }
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
        self.retain_shared(|_| false, |_| false);
    }
}
