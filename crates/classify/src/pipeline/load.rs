//! Many rules at once: all of a file, or nothing of it.

use super::action::Action;
use super::book::{BookError, FlowFilter, Pipeline, Why, check_group};
use super::{FlowSpec, Meter};
use crate::flows::Item;
use std::collections::BTreeSet;

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

impl Pipeline {
    /// Puts items of a file in, each with its line. With `replace` all that is not in the file goes; without, timeouts of rules that are there as they
    /// are begin anew, as OpenFlow's are when a rule is added again.
    ///
    /// # Errors
    /// The first item that is wrong, by its line; then nothing has changed.
    pub fn load(
        &mut self,
        items: Vec<(usize, Item)>,
        replace: bool,
        now_ns: u64,
    ) -> Result<Loaded, (usize, BookError)> {
        self.check_all(&items, replace)?;
        let mut loaded = Loaded::default();
        let (mut groups, mut meters, mut wanted) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        // Groups and meters first: rules may stand before them.
        let mut flows = Vec::new();
        for (line, item) in items {
            match item {
                Item::Flow(spec) => flows.push((line, *spec)),
                Item::Group(number, group) => {
                    groups.insert(number);
                    if self.shared().groups.get(&number).is_none_or(|known| **known != group) {
                        self.set_group(number, group).map_err(|error| (line, error))?;
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
                    wanted.insert(self.add(spec, now_ns).map_err(|error| (line, error))?);
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

    fn check_all(&mut self, items: &[(usize, Item)], replace: bool) -> Result<(), (usize, BookError)> {
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
        let mut rules = 0;
        for (line, item) in items {
            match item {
                Item::Flow(spec) => {
                    self.check_with(spec, &|n| groups.contains(&n), &|n| meters.contains(&n))
                        .map_err(|error| (*line, error))?;
                    rules += usize::from(self.changes(spec));
                }
                Item::Group(number, group) => {
                    check_group(*number, group).map_err(|error| (*line, error))?;
                }
                Item::Meter(..) => {}
            }
        }
        if rules > self.room() {
            let last = items.last().map_or(0, |(line, _)| *line);
            let (there, most) = (self.flows().len(), self.settings().rules);
            return Err((last, BookError::FullAtOnce { new: rules, there, most }));
        }
        Ok(())
    }

    /// Whether a rule is not there as it is.
    fn changes(&self, spec: &FlowSpec) -> bool {
        let flow = self.same(spec).and_then(|id| self.flow(id));
        flow.is_none_or(|flow| flow.spec != *spec)
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
