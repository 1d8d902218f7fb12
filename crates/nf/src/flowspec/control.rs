//! The control side: which flow specifications apply, published for the workers, and what they have counted.

use crate::flowspec::meter::{Counts, Meter};
use crate::flowspec::rules::{Rule, Rules, check};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_bgp::{Actions, FlowSpec};
use tidemill_feed::bgp::Family;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::Domain;

/// Flow specifications that are applied at once; the last in order are refused.
pub const MOST_RULES: usize = 4096;

/// How a flow specification stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look<'a> {
    /// It is applied, and has counted so much.
    Applied(Counts),
    /// It cannot be, and why.
    Refused(&'a str),
    /// It was not handed in.
    Absent,
}

/// The control side. Workers hold views of what it publishes, and never wait for it.
pub struct FlowspecControl {
    rules: Publisher<Rules>,
    workers: usize,
    applied: BTreeMap<FlowSpec, (Actions, Arc<Meter>)>,
    refused: BTreeMap<FlowSpec, String>,
}

impl FlowspecControl {
    /// One without flow specifications, for so many workers of `domain`.
    pub fn new(workers: usize, domain: &Domain) -> Self {
        FlowspecControl {
            rules: Publisher::new(domain, Rules::default()),
            workers,
            applied: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    pub(crate) fn view(&self) -> View<Rules> {
        self.rules.view()
    }

    /// Applies these, each family's in the order in which they apply, and no others. What was applied with the same actions before counts on. Returns whether anything has
    /// changed.
    pub fn set(&mut self, wanted: impl IntoIterator<Item = (FlowSpec, Actions)>) -> bool {
        let mut before = std::mem::take(&mut self.applied);
        self.refused.clear();
        let (mut v4, mut v6, mut changed) = (Vec::new(), Vec::new(), false);
        for (spec, actions) in wanted {
            let room = match self.applied.len() {
                0..MOST_RULES => Ok(()),
                _ => Err(format!("{MOST_RULES} that come before it are applied, and no more")),
            };
            if let Err(why) = room.and_then(|()| check(&spec, &actions)) {
                self.refused.insert(spec, why);
                continue;
            }
            let kept = before.remove(&spec).filter(|(old, _)| *old == actions);
            changed |= kept.is_none();
            let meter = kept.map_or_else(|| Arc::new(Meter::new(&actions, self.workers)), |(_, meter)| meter);
            let list = if spec.family() == Family::V4 { &mut v4 } else { &mut v6 };
            list.push(Rule::new(&spec, &actions, meter.clone()));
            self.applied.insert(spec, (actions, meter));
        }
        changed |= !before.is_empty();
        if changed {
            self.rules.publish(Rules::new(v4, v6));
        }
        changed
    }

    /// Frees what no worker sees any more.
    pub fn collect(&mut self) {
        self.rules.collect();
    }

    /// How many are applied, and how many cannot be.
    pub fn count(&self) -> (usize, usize) {
        (self.applied.len(), self.refused.len())
    }

    /// How one stands.
    pub fn look(&self, spec: &FlowSpec) -> Look<'_> {
        match (self.applied.get(spec), self.refused.get(spec)) {
            (Some((_, meter)), _) => Look::Applied(meter.counts()),
            (None, Some(why)) => Look::Refused(why),
            (None, None) => Look::Absent,
        }
    }
}
