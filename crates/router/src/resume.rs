//! The control side's end of the state image: what it has learnt, taken out and brought back.

use crate::config::{RouteConfig, RouterConfig};
use crate::control::{Routed, RouterControl, RouterError, Routes};
use crate::derive::{Either, prefix_of, vrf_number};
use crate::labels::NextHop;
use crate::plane::{RouteChange, RouteList, Source};
use crate::rules;
use crate::settings::ConfigError;
use crate::state::{ChosenStructure, KernelRoutes, List, Resumed, SavedHop, State};
use std::collections::{HashMap, HashSet};
use tidemill_feed::Labels;
use tidemill_ip::Interfaces;
use tidemill_lpm::table::{Algorithm, Applied, Family};
use tidemill_lpm::{Label, Prefix};

/// What one family starts with, by VRF.
pub(crate) struct Before<A: Family> {
    pub(crate) kernel: Vec<RouteList<A>>,
    pub(crate) chosen: Vec<Option<(Algorithm, String)>>,
}

/// The kernel's routes of an earlier life that the kernel has not named yet, by VRF.
#[derive(Default)]
pub(crate) struct Unconfirmed {
    pub(crate) v4: HashSet<(usize, Prefix<u32>)>,
    pub(crate) v6: HashSet<(usize, Prefix<u128>)>,
}

impl Unconfirmed {
    pub(crate) fn of(before4: &Before<u32>, before6: &Before<u128>) -> Self {
        fn all<A: Family>(before: &Before<A>) -> HashSet<(usize, Prefix<A>)> {
            let lists = before.kernel.iter().enumerate();
            lists.flat_map(|(vrf, list)| list.iter().map(move |(prefix, _)| (vrf, *prefix))).collect()
        }
        Unconfirmed { v4: all(before4), v6: all(before6) }
    }
}

impl Resumed {
    /// What a family starts with, and how many routes are left out: their interface or VRF is no more.
    pub(crate) fn before<A: Routed>(
        &self,
        config: &RouterConfig,
        vrfs: &[String],
        interfaces: &Interfaces,
    ) -> (Before<A>, usize) {
        let hops: Vec<Option<NextHop>> = self.hops.iter().map(|hop| hop.resolve(interfaces)).collect();
        let hop = |label: Label| hops.get(label.0 as usize)?.clone();
        let fed = |vrf: &str| match vrf {
            "" => config.kernel.as_ref().is_some_and(|kernel| kernel.routes),
            name => {
                let section = config.vrf.iter().find(|vrf| vrf.name == name);
                config.kernel.as_ref().is_some_and(|kernel| kernel.routes)
                    && section.is_some_and(|vrf| vrf.table.is_some())
            }
        };
        let mut left_out = 0;
        let mut kernel: Vec<RouteList<A>> = vec![Vec::new(); vrfs.len()];
        for saved in &self.kernel {
            let list = A::saved(saved);
            let Some(vrf) = vrfs.iter().position(|name| *name == saved.vrf).filter(|_| fed(&saved.vrf))
            else {
                left_out += list.len();
                continue;
            };
            kernel[vrf] = list.iter().filter_map(|(prefix, label)| Some((*prefix, hop(*label)?))).collect();
            left_out += list.len() - kernel[vrf].len();
        }
        let chosen = |vrf: &String| {
            let is = |chosen: &&ChosenStructure| chosen.vrf == *vrf && chosen.family == A::FAMILY;
            let chosen = self.chosen.iter().find(is)?;
            Some((Algorithm::parse::<A>(&chosen.algorithm).ok()?, chosen.why.clone()))
        };
        (Before { kernel, chosen: vrfs.iter().map(chosen).collect() }, left_out)
    }
}

impl RouterControl {
    /// How often routes have changed that a state image holds.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All that was learnt: `labels` is the dictionary of the table's routes, `origin` says where they come from.
    pub fn state(&self, labels: Labels, origin: Vec<u8>) -> State {
        fn table<A: Routed>(plane: &crate::Plane<A>) -> List<A> {
            let named = |(prefix, _, hop): (Prefix<A>, Label, &NextHop)| match hop {
                NextHop::Named(label) => Some((prefix, *label)),
                _ => None,
            };
            plane.of_source(0, Source::Table).filter_map(named).collect()
        }
        let interfaces = &self.settings().interfaces;
        let mut hops = SavedHops { interfaces, list: Vec::new(), places: HashMap::new() };
        let mut kernel_of = |(vrf, name): (usize, &String)| KernelRoutes {
            vrf: name.clone(),
            v4: self.v4.of_source(vrf, Source::Kernel).filter_map(|route| hops.route(route)).collect(),
            v6: self.v6.of_source(vrf, Source::Kernel).filter_map(|route| hops.route(route)).collect(),
        };
        let kernel = self.vrfs.iter().enumerate().map(&mut kernel_of).collect();
        let chosen = self.lookup_stats().into_iter().filter(|stats| !stats.why.is_empty());
        let chosen = chosen
            .map(|stats| ChosenStructure {
                vrf: stats.vrf,
                family: stats.family,
                algorithm: stats.algorithm,
                why: stats.why,
            })
            .collect();
        State {
            origin,
            labels,
            v4: table(&self.v4),
            v6: table(&self.v6),
            added: self.added.clone(),
            resumed: Resumed { hops: hops.list, kernel, chosen },
        }
    }

    /// Brings back routes that were added through the API in an earlier life, all at once. What follows from them waits for the
    /// first [`poll`](Self::poll): before there are workers, nobody could be asked for neighbors. Returns a line for each
    /// that does not go with the configuration any more: it is left out.
    ///
    /// # Errors
    /// A table that outgrows its structure.
    pub fn resume_added(&mut self, routes: &[RouteConfig]) -> Result<Vec<ConfigError>, RouterError> {
        let mut left_out = Vec::new();
        let mut changes4: Vec<Vec<RouteChange<u32>>> = vec![Vec::new(); self.vrfs.len()];
        let mut changes6: Vec<Vec<RouteChange<u128>>> = vec![Vec::new(); self.vrfs.len()];
        for route in routes {
            let key = |field: &str| format!("the added route to {}: {field}", route.prefix);
            let resolved = || {
                let vrf = vrf_number(&self.vrfs, route, &key)?;
                let hop = rules::route(route, &self.settings.current().interfaces, vrf, None, &key)?;
                Ok::<_, ConfigError>((usize::from(vrf), hop, prefix_of(route, &key)?))
            };
            match resolved() {
                Err(error) => left_out.push(error),
                Ok((vrf, hop, prefix)) => {
                    match prefix {
                        Either::V4(prefix) => changes4[vrf].push((prefix, Some(hop))),
                        Either::V6(prefix) => changes6[vrf].push((prefix, Some(hop))),
                    }
                    self.added.push(route.clone());
                }
            }
        }
        for (vrf, changes) in changes4.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            self.change(vrf, Source::Static, &changes)?;
        }
        for (vrf, changes) in changes6.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            self.change(vrf, Source::Static, &changes)?;
        }
        Ok(left_out)
    }

    /// Makes a family's table what a file says that was read while the router ran, by the difference. Labels that the table had
    /// before must mean the same.
    ///
    /// # Errors
    /// A table that outgrows its structure; nothing has changed then.
    pub fn replace_table<A: Routed>(&mut self, routes: Routes<A>) -> Result<Applied, RouterError> {
        let wanted = crate::derive::named(&routes.rib);
        let changes = A::plane(self).difference(0, Source::Table, &wanted);
        let applied = self.change(0, Source::Table, &changes)?;
        *A::names(self) = routes.names;
        Ok(applied)
    }

    /// What happened that an operator should read, a line each, since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

/// Next hops by their label, each saved once.
struct SavedHops<'a> {
    interfaces: &'a Interfaces,
    list: Vec<SavedHop>,
    /// By family and label.
    places: HashMap<(u8, Label), Option<Label>>,
}

impl SavedHops<'_> {
    fn route<A: Family>(&mut self, route: (Prefix<A>, Label, &NextHop)) -> Option<(Prefix<A>, Label)> {
        let (prefix, label, hop) = route;
        let known = *self.places.entry((A::FAMILY, label)).or_insert_with(|| {
            self.list.push(SavedHop::of(hop, self.interfaces)?);
            Some(Label(self.list.len() as u32 - 1))
        });
        Some((prefix, known?))
    }
}
