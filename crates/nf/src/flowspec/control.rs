//! The control side: which flow specifications apply, published for the workers, and what they have counted.

use crate::flowspec::meter::{Counts, Meter};
use crate::flowspec::redirect::Target;
use crate::flowspec::rules::{Rule, Rules, check};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_bgp::{Actions, FlowSpec, Redirect, RouteTarget};
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

/// What redirects find in the router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The numbers of VRFs by route targets.
    pub vrfs: BTreeMap<RouteTarget, u16>,
    /// Addresses that a route leads to.
    pub addresses: BTreeSet<IpAddr>,
    /// By interface: whether its packets meet no flow specification.
    pub spared: Vec<bool>,
}

impl Places {
    /// Where a redirect of one family's packets leads.
    fn target(&self, family: Family, redirect: Redirect) -> Result<Target, String> {
        match redirect {
            Redirect::Vrf(target) => {
                let vrf = self.vrfs.get(&target).map(|vrf| Target::Vrf(*vrf));
                vrf.ok_or_else(|| format!("no VRF here has the route target {target}: see bgp.redirect"))
            }
            Redirect::Address(address) if address.is_ipv4() != (family == Family::V4) => {
                Err(format!("{address} is of the other family"))
            }
            Redirect::Address(address) if !self.addresses.contains(&address) => {
                Err(format!("no route leads to {address}"))
            }
            Redirect::Address(address) => Ok(Target::Address(address)),
            Redirect::Copies => Err("no copies are made".into()),
            Redirect::Several => Err("it redirects in several ways".into()),
            Redirect::Nowhere => Err("it redirects to its next hop, and has none".into()),
        }
    }
}

/// The control side. Workers hold views of what it publishes, and never wait for it.
pub struct FlowspecControl {
    rules: Publisher<Rules>,
    workers: usize,
    applied: BTreeMap<FlowSpec, (Actions, Arc<Meter>)>,
    refused: BTreeMap<FlowSpec, String>,
    places: Places,
    /// Other interfaces are spared than the workers know.
    spares_others: bool,
    /// Numbers of targets that are in use; the same one never gets back another's.
    numbers: BTreeMap<Target, u32>,
    last_number: u32,
}

impl FlowspecControl {
    /// One without flow specifications, for so many workers of `domain`.
    pub fn new(workers: usize, domain: &Domain) -> Self {
        FlowspecControl {
            rules: Publisher::new(domain, Rules::default()),
            workers,
            applied: BTreeMap::new(),
            refused: BTreeMap::new(),
            places: Places::default(),
            spares_others: false,
            numbers: BTreeMap::new(),
            last_number: 0,
        }
    }

    /// Says what redirects find from the next [`set`](Self::set) on.
    pub fn set_places(&mut self, places: Places) {
        self.spares_others |= places.spared != self.places.spared;
        self.places = places;
    }

    pub(crate) fn view(&self) -> View<Rules> {
        self.rules.view()
    }

    /// Applies these, each family's in the order in which they apply, and no others. What was applied with the same actions before counts on. Returns whether anything has
    /// changed.
    pub fn set(&mut self, wanted: impl IntoIterator<Item = (FlowSpec, Actions)>) -> bool {
        let mut before = std::mem::take(&mut self.applied);
        let numbers = std::mem::take(&mut self.numbers);
        self.refused.clear();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut changed = std::mem::take(&mut self.spares_others);
        for (spec, actions) in wanted {
            let room = match self.applied.len() {
                0..MOST_RULES => Ok(()),
                _ => Err(format!("{MOST_RULES} that come before it are applied, and no more")),
            };
            let redirect = actions.redirect.map(|redirect| self.places.target(spec.family(), redirect));
            let redirect =
                match room.and_then(|()| check(&spec, &actions)).and_then(|()| redirect.transpose()) {
                    Ok(redirect) => redirect.map(|target| self.number(target, &numbers)),
                    Err(why) => {
                        self.refused.insert(spec, why);
                        continue;
                    }
                };
            let kept = before.remove(&spec).filter(|(old, _)| *old == actions);
            changed |= kept.is_none();
            let meter = kept.map_or_else(|| Arc::new(Meter::new(&actions, self.workers)), |(_, meter)| meter);
            let list = if spec.family() == Family::V4 { &mut v4 } else { &mut v6 };
            list.push(Rule::new(&spec, &actions, redirect, meter.clone()));
            self.applied.insert(spec, (actions, meter));
        }
        changed |= !before.is_empty();
        if changed {
            let targets = self.numbers.iter().map(|(target, number)| (*number, *target)).collect();
            self.rules.publish(Rules::new(v4, v6, targets, &self.places.spared));
        }
        changed
    }

    /// The number of a target: the one that it had before, or a new one.
    fn number(&mut self, target: Target, before: &BTreeMap<Target, u32>) -> u32 {
        if let Some(number) = self.numbers.get(&target) {
            return *number;
        }
        let number = before.get(&target).copied().unwrap_or_else(|| {
            self.last_number = self.last_number.wrapping_add(1);
            self.last_number
        });
        self.numbers.insert(target, number);
        number
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
