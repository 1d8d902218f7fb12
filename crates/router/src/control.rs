//! The control side: owns the routes, the interfaces and the neighbors, turns them into tables and next hops, and
//! publishes those to the workers.

use crate::bgp::BgpHops;
use crate::config::{RouteConfig, RouterConfig};
use crate::derive::{
    Either, check_names, fixed_neighbors, limits, own_routes, plane, prefix_of, static_routes, timers,
    vrf_number,
};
use crate::fits::{Waiting, first};
use crate::labels::NextHop;
use crate::plane::{Plane, RouteChange, RouteList, Source, World, integer};
use crate::queues::{PortQueue, ShownQueue, queues};
use crate::resume::Unconfirmed;
use crate::rules::{self, Rules};
use crate::settings::{self, ConfigError, Devices, PortInfo, vrf_names};
use crate::state::{KernelRoutes, Resumed};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_ip::icmp::IcmpBoard;
use tidemill_ip::neighbor::table::{Action, Table as Neighbors, Timers};
use tidemill_ip::neighbor::{Event, Key, Link, Notice};
use tidemill_ip::{IcmpStats, Interfaces, NextHops, Settings};
use tidemill_lookup::numa::Copies;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::table::{Applied, Family};
use tidemill_lpm::{BuildError, Fib, Label, Prefix, Rib};
use tidemill_wire::{EtherType, MacAddr};

/// One family's routes as a feed brings them, for the VRF without a name.
#[derive(Clone)]
pub struct Routes<A: Family> {
    /// Prefixes and labels.
    pub rib: Rib<A>,
    /// What the table's file calls the labels, as far as it has names; for `[[next_hop]] name = ...`.
    pub names: Vec<(Label, String)>,
}

impl<A: Family> Default for Routes<A> {
    fn default() -> Self {
        Routes { rib: Rib::new(), names: Vec::new() }
    }
}

/// What the dictionary of labels calls a static route whose MAC address is derived from its label.
pub fn static_name(prefix: &str) -> String {
    format!("static {prefix}")
}

/// Why a router cannot be made, or cannot take a change.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// The configuration, or a request.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A lookup structure.
    #[error("IPv{family} table: {source}")]
    Table {
        /// 4 or 6.
        family: u8,
        /// What the structure says.
        source: BuildError,
    },
    /// A lookup structure has no room for some routes. All else has been taken.
    #[error(
        "IPv{family} table{}: {count} of the {} routes left out, {first} the first: {why}; the others have been taken",
        of_vrf(.vrf), .from.name()
    )]
    Refused {
        /// 4 or 6.
        family: u8,
        /// The VRF's name; empty for the one without.
        vrf: String,
        /// Whose routes they are.
        from: Source,
        /// How many.
        count: usize,
        /// The first one's prefix.
        first: String,
        /// What the structure says.
        why: String,
    },
}

fn of_vrf(vrf: &str) -> String {
    if vrf.is_empty() { String::new() } else { format!(" of VRF {vrf}") }
}

/// What lookups of one VRF and family run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupStats {
    /// The VRF's name; empty for the one without.
    pub vrf: String,
    /// 4 or 6.
    pub family: u8,
    /// The lookup structure.
    pub algorithm: String,
    /// Why `auto` has chosen it; empty if the configuration names it.
    pub why: String,
    /// Prefixes, the router's own included.
    pub prefixes: usize,
    /// Bytes that lookups can touch.
    pub bytes: usize,
    /// Those of them that are shared: the same for all VRFs of the family that share.
    pub shared_bytes: usize,
    /// Next hops, "no route" and the router's own included; all VRFs share them.
    pub next_hops: usize,
    /// Published so far: 1 at first, one more for each change.
    pub generation: u64,
    /// Routes that the structure has no room for now; they are tried again.
    pub refused: usize,
}

/// A family that the router routes.
pub trait Routed: Family {
    /// This family's half of the control side.
    #[doc(hidden)]
    fn plane(control: &mut RouterControl) -> &mut Plane<Self>;
    /// The half, and all that adjacencies are made from.
    #[doc(hidden)]
    fn split(control: &mut RouterControl) -> (&mut Plane<Self>, World<'_>);
    /// What its tables have refused.
    #[doc(hidden)]
    fn waiting(control: &mut RouterControl) -> &mut Waiting<Self>;
    /// What the table's file calls its labels.
    #[doc(hidden)]
    fn names(control: &mut RouterControl) -> &mut Vec<(Label, String)>;
    /// This family's routes of a VRF in a state image.
    #[doc(hidden)]
    fn saved(routes: &KernelRoutes) -> &[(Prefix<Self>, Label)];
}

/// A FIB, and what its labels mean.
pub type Way<A> = (View<Arc<dyn Fib<A>>>, View<NextHops>);

/// A configuration that was checked, with what follows from it: to be taken over by the control side that checked it.
pub struct Prepared {
    config: RouterConfig,
    settings: Settings,
    timers: Timers,
    rules: (Rules, Rules),
    /// The neighbors that are given now, and then.
    fixed: [Vec<(Key, MacAddr)>; 2],
    routes: (Vec<RouteList<u32>>, Vec<RouteList<u128>>),
}

impl Prepared {
    /// The interfaces that there will be.
    pub fn interfaces(&self) -> &Interfaces {
        &self.settings.interfaces
    }
}

/// The control side of a router. Workers hold views of what it publishes; dropping it while they run is safe.
pub struct RouterControl {
    pub(crate) config: RouterConfig,
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) devices: Devices,
    pub(crate) vrfs: Vec<String>,
    pub(crate) settings: Publisher<Settings>,
    pub(crate) icmp: Arc<IcmpBoard>,
    pub(crate) link: Arc<Link>,
    pub(crate) queues: Vec<PortQueue>,
    pub(crate) neighbors: Neighbors,
    pub(crate) v4: Plane<u32>,
    pub(crate) v6: Plane<u128>,
    pub(crate) waiting4: Waiting<u32>,
    pub(crate) waiting6: Waiting<u128>,
    rules4: Rules,
    rules6: Rules,
    names4: Vec<(Label, String)>,
    names6: Vec<(Label, String)>,
    /// Routes added while running; they outlive a reload.
    pub(crate) added: Vec<RouteConfig>,
    pub(crate) unconfirmed: Unconfirmed,
    pub(crate) bgp: BgpHops,
    pub(crate) revision: u64,
    pub(crate) notes: Vec<String>,
    /// The longest packet that there is memory for.
    pub(crate) longest: u32,
    pub(crate) actions: Vec<Action>,
}

impl Routed for u32 {
    fn plane(control: &mut RouterControl) -> &mut Plane<u32> {
        &mut control.v4
    }

    fn split(control: &mut RouterControl) -> (&mut Plane<u32>, World<'_>) {
        let RouterControl { v4, settings, neighbors, rules4, .. } = control;
        (v4, World { interfaces: &settings.current().interfaces, neighbors, rules: rules4 })
    }

    fn waiting(control: &mut RouterControl) -> &mut Waiting<u32> {
        &mut control.waiting4
    }

    fn names(control: &mut RouterControl) -> &mut Vec<(Label, String)> {
        &mut control.names4
    }

    fn saved(routes: &KernelRoutes) -> &[(Prefix<u32>, Label)] {
        &routes.v4
    }
}

impl Routed for u128 {
    fn plane(control: &mut RouterControl) -> &mut Plane<u128> {
        &mut control.v6
    }

    fn split(control: &mut RouterControl) -> (&mut Plane<u128>, World<'_>) {
        let RouterControl { v6, settings, neighbors, rules6, .. } = control;
        (v6, World { interfaces: &settings.current().interfaces, neighbors, rules: rules6 })
    }

    fn waiting(control: &mut RouterControl) -> &mut Waiting<u128> {
        &mut control.waiting6
    }

    fn names(control: &mut RouterControl) -> &mut Vec<(Label, String)> {
        &mut control.names6
    }

    fn saved(routes: &KernelRoutes) -> &[(Prefix<u128>, Label)] {
        &routes.v6
    }
}

impl RouterControl {
    /// Checks `config` against `ports` and builds the tables, for the workers of `domain`.
    ///
    /// The router adds routes of its own: to each of its addresses, and to the prefixes that they are on.
    ///
    /// # Errors
    /// A configuration that makes no sense, or a table that does not fit its structure.
    pub fn new(
        config: &RouterConfig,
        ports: &[PortInfo],
        v4: Routes<u32>,
        v6: Routes<u128>,
        domain: &Domain,
    ) -> Result<Self, RouterError> {
        Self::with_devices(config, ports, Devices::new(), v4, v6, domain, &Copies::one())
    }

    /// The same with what the kernel has said of its devices ([`kernel_devices`](crate::kernel_devices)): static routes
    /// find the links of addresses that it owns. Workers on each memory node get tables of their own there, as `copies`
    /// says.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_devices(
        config: &RouterConfig,
        ports: &[PortInfo],
        devices: Devices,
        v4: Routes<u32>,
        v6: Routes<u128>,
        domain: &Domain,
        copies: &Copies,
    ) -> Result<Self, RouterError> {
        Self::resume(config, ports, devices, v4, v6, &Resumed::default(), domain, copies)
    }

    /// The same with what an earlier life has learnt, from a [state image](crate::state). Routes by interfaces or in VRFs that
    /// are no more are left out, and [`take_notes`](Self::take_notes) says so.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[allow(clippy::too_many_arguments)]
    pub fn resume(
        config: &RouterConfig,
        ports: &[PortInfo],
        devices: Devices,
        v4: Routes<u32>,
        v6: Routes<u128>,
        resumed: &Resumed,
        domain: &Domain,
        copies: &Copies,
    ) -> Result<Self, RouterError> {
        let vrfs = vrf_names(config)?;
        let settings = settings::settings(config, ports, &devices, None)?;
        crate::kernel::check(config)?;
        let queues = queues(config, ports)?;
        let neighbors = Neighbors::new(timers(config)?, limits(config)?);
        check_names(config, &v4.names, &v6.names)?;
        let fixed = fixed_neighbors(config, &settings.interfaces)?;
        let (before4, gone4) = resumed.before::<u32>(config, &vrfs, &settings.interfaces);
        let (before6, gone6) = resumed.before::<u128>(config, &vrfs, &settings.interfaces);
        let unconfirmed = Unconfirmed::of(&before4, &before6);
        let (v4, rules4, names4) =
            plane(config, &settings, &vrfs, EtherType::IPV4, v4, before4, domain, copies)?;
        let (v6, rules6, names6) =
            plane(config, &settings, &vrfs, EtherType::IPV6, v6, before6, domain, copies)?;
        let mut control = RouterControl {
            config: config.clone(),
            ports: ports.to_vec(),
            devices,
            vrfs,
            settings: Publisher::new(domain, settings),
            icmp: Arc::default(),
            link: Arc::default(),
            queues,
            neighbors,
            v4,
            v6,
            waiting4: Waiting::default(),
            waiting6: Waiting::default(),
            rules4,
            rules6,
            names4,
            names6,
            added: Vec::new(),
            unconfirmed,
            bgp: BgpHops::default(),
            revision: 0,
            notes: Vec::new(),
            longest: u32::MAX,
            actions: Vec::new(),
        };
        if gone4 + gone6 > 0 {
            control.notes.push(format!(
                "{} of the kernel's routes in the state image are left out: the configuration has no such interface, VRF or \
                 [kernel] any more",
                gone4 + gone6
            ));
        }
        // What follows from it waits for the first `poll`, which brings the time.
        for (number, _) in control.settings.current().interfaces.iter().enumerate().filter(|(_, i)| !i.up) {
            control.neighbors.interface_down(number as u16, &mut control.actions);
        }
        control.fix_neighbors(0, &[], &fixed);
        control.count_rules(true);
        control.publish_hops();
        first(control.turn_static_routes::<u32>())?;
        first(control.turn_static_routes::<u128>())?;
        Ok(control)
    }

    /// Counts every change of interfaces and addresses.
    pub fn settings_generation(&self) -> u64 {
        self.settings.generation()
    }

    /// What a worker, by its number, looks up in the IPv4 routes of the VRF without a name.
    pub fn ways4(&self) -> impl Fn(usize) -> Way<u32> + Send + Sync + 'static {
        let views = self.v4.views();
        move |worker| views(worker).first()
    }

    /// The same of IPv6.
    pub fn ways6(&self) -> impl Fn(usize) -> Way<u128> + Send + Sync + 'static {
        let views = self.v6.views();
        move |worker| views(worker).first()
    }

    /// Applies a feed's changes to one family's routes in the VRF without a name, while workers run.
    ///
    /// # Errors
    /// A table that outgrows its structure; nothing has changed then.
    pub fn apply<A: Routed>(&mut self, changes: &[Change<A>]) -> Result<Applied, RouterError> {
        let change = |change: &Change<A>| match *change {
            Change::Announce(prefix, Label::NONE) | Change::Withdraw(prefix) => (prefix, None),
            Change::Announce(prefix, label) => (prefix, Some(NextHop::Named(label))),
        };
        let changes: Vec<RouteChange<A>> = changes.iter().map(change).collect();
        self.change(0, Source::Table, &changes)
    }

    /// Changes routes of one source in one VRF, and has the neighbors that they need resolved.
    pub(crate) fn change<A: Routed>(
        &mut self,
        vrf: usize,
        source: Source,
        changes: &[RouteChange<A>],
    ) -> Result<Applied, RouterError> {
        let (plane, world) = A::split(self);
        let applied = plane
            .apply(vrf, source, changes, world)
            .map_err(|source| RouterError::Table { family: A::FAMILY, source })?;
        let Some(applied) = applied else {
            return Err(ConfigError::new("vrf", format!("there is no VRF {vrf}")).into());
        };
        let kept = matches!(source, Source::Static | Source::Kernel | Source::Table);
        self.revision += u64::from(kept && !changes.is_empty());
        let (plane, _) = A::split(self);
        let overruled = match source {
            Source::Neighbor => Vec::new(),
            _ => plane.overruled(vrf, changes),
        };
        if !overruled.is_empty() {
            self.change(vrf, Source::Neighbor, &overruled)?;
        }
        Ok(applied)
    }

    /// Adds a static route while the router runs. It outlives a reload.
    ///
    /// # Errors
    /// What is wrong with the route.
    pub fn add_route(&mut self, now_ns: u64, route: &RouteConfig) -> Result<(), RouterError> {
        // Whoever adds a route names its interface as `dev`, as the kernel's tools do.
        let key = |field: &str| String::from(if field == "port" { "dev" } else { field });
        let vrf = vrf_number(&self.vrfs, route, &key)?;
        let hop = rules::route(route, &self.settings.current().interfaces, vrf, None, &key)?;
        match prefix_of(route, &key)? {
            Either::V4(prefix) => self.change(usize::from(vrf), Source::Static, &[(prefix, Some(hop))])?,
            Either::V6(prefix) => self.change(usize::from(vrf), Source::Static, &[(prefix, Some(hop))])?,
        };
        self.forget_added(vrf, route, &key)?;
        self.added.push(route.clone());
        self.settle(now_ns)
    }

    /// Withdraws a static route, configured or added; a configured one is back after the next reload.
    ///
    /// # Errors
    /// There is no static route to that prefix.
    pub fn delete_route(&mut self, now_ns: u64, prefix: &str, vrf: Option<&str>) -> Result<(), RouterError> {
        let key = |field: &str| field.to_string();
        let route = RouteConfig {
            prefix: prefix.into(),
            vrf: vrf.filter(|vrf| !vrf.is_empty()).map(Into::into),
            ..RouteConfig::default()
        };
        let number = vrf_number(&self.vrfs, &route, &key)?;
        let at = usize::from(number);
        match prefix_of(&route, &key)? {
            Either::V4(prefix) if self.v4.route(at, Source::Static, prefix).is_some() => {
                self.change(at, Source::Static, &[(prefix, None)])?
            }
            Either::V6(prefix) if self.v6.route(at, Source::Static, prefix).is_some() => {
                self.change(at, Source::Static, &[(prefix, None)])?
            }
            _ => {
                let what = format!("there is no static route to {prefix}: see `tidemill show routes`");
                return Err(ConfigError::new("prefix", what).into());
            }
        };
        self.forget_added(number, &route, &key)?;
        self.settle(now_ns)
    }

    fn forget_added(
        &mut self,
        vrf: u16,
        route: &RouteConfig,
        key: &dyn Fn(&str) -> String,
    ) -> Result<(), RouterError> {
        let prefix = prefix_of(route, key)?;
        let vrfs = &self.vrfs;
        self.added.retain(|other| {
            let same = prefix_of(other, key).is_ok_and(|other| other == prefix);
            !(same && vrf_number(vrfs, other, key).is_ok_and(|other| other == vrf))
        });
        Ok(())
    }

    /// Takes a new configuration: everything that is in [`RouterConfig`] but the algorithms, coalescing, the VRFs, the
    /// kernel's section and the neighbors' limit. What is wrong with it is found before anything changes.
    ///
    /// # Errors
    /// What is wrong with the new configuration, or what it would need a restart for; or, when all else has been taken, routes that a
    /// table has no room for ([`RouterError::Refused`]).
    pub fn reload(&mut self, now_ns: u64, config: &RouterConfig) -> Result<(), RouterError> {
        let prepared = self.prepare(config)?;
        first(self.commit(now_ns, prepared))
    }

    /// Checks a new configuration, for [`commit`](Self::commit). Nothing has changed then: whoever has more to check that goes with it, can.
    ///
    /// # Errors
    /// What is wrong with the new configuration, or what it would need a restart for.
    pub fn prepare(&self, config: &RouterConfig) -> Result<Prepared, RouterError> {
        let restart = |key: &str| {
            ConfigError::new(key, "cannot change while the router runs: put it back, or restart the router")
        };
        if let Some((key, _)) = config.fixed_keys(&self.config).into_iter().find(|(_, same)| !same) {
            return Err(restart(key).into());
        }
        if vrf_names(config)? != self.vrfs {
            return Err(restart("vrf").into());
        }
        let before = &self.settings.current().interfaces;
        let settings = settings::settings(config, &self.ports, &self.devices, Some(before))?;
        let interfaces = &settings.interfaces;
        check_names(config, &self.names4, &self.names6)?;
        crate::kernel::check(config)?;
        let timers = timers(config)?;
        let rules4 = Rules::new(config, interfaces, &self.names4)?;
        let rules6 = Rules::new(config, interfaces, &self.names6)?;
        let old_fixed = fixed_neighbors(&self.config, before)?;
        let new_fixed = fixed_neighbors(config, interfaces)?;
        let all = [&config.route[..], &self.added[..]].concat();
        let routes4 = static_routes::<u32>(&all, config.route.len(), interfaces, &self.vrfs, &self.names4)?;
        let routes6 = static_routes::<u128>(&all, config.route.len(), interfaces, &self.vrfs, &self.names6)?;
        let config = config.clone();
        let (rules, fixed, routes) = ((rules4, rules6), [old_fixed, new_fixed], (routes4, routes6));
        Ok(Prepared { config, settings, timers, rules, fixed, routes })
    }

    /// Takes over what was prepared, before anything else is done with this control side. Returns what of it a table has no room for, by table and source
    /// ([`RouterError::Refused`]): all else has been taken. What does not [wait](RouterError::waits) the next reload tries again.
    pub fn commit(&mut self, now_ns: u64, prepared: Prepared) -> Vec<RouterError> {
        let Prepared { config, settings, timers, rules, fixed: [old_fixed, new_fixed], routes } = prepared;
        self.config = config;
        self.count_rules(false);
        (self.rules4, self.rules6) = rules;
        self.count_rules(true);
        self.neighbors.set_timers(timers);
        let mut refused = self.set_settings(now_ns, settings);
        self.fix_neighbors(now_ns, &old_fixed, &new_fixed);
        for (vrf, wanted) in routes.0.into_iter().enumerate() {
            let changes = self.v4.difference(vrf, Source::Static, &wanted);
            refused.extend(self.change_as_fits(vrf, Source::Static, &changes).err());
        }
        for (vrf, wanted) in routes.1.into_iter().enumerate() {
            let changes = self.v6.difference(vrf, Source::Static, &wanted);
            refused.extend(self.change_as_fits(vrf, Source::Static, &changes).err());
        }
        refused.extend(self.settle(now_ns).err());
        self.publish_hops();
        refused
    }

    /// Publishes new interfaces, and changes the routes that follow from them. Returns what does not fit.
    pub(crate) fn set_settings(&mut self, now_ns: u64, settings: Settings) -> Vec<RouterError> {
        if settings == *self.settings.current() {
            // There may be room now for what had none.
            return self.change_own_routes();
        }
        let before = self.settings.current().interfaces.clone();
        self.settings.publish(settings);
        for (number, new) in self.settings.current().interfaces.iter().enumerate() {
            let (number, old) = (number as u16, before.get(number as u16));
            let moved = old.is_some_and(|old| (old.port, old.vlan) != (new.port, new.vlan));
            // The table knows whether that is news.
            if moved || !new.up {
                self.neighbors.interface_down(number, &mut self.actions);
            }
            if new.up {
                self.neighbors.interface_up(now_ns, number, &mut self.actions);
            }
            if old.is_some_and(|old| old.resolves != new.resolves) {
                self.v4.turn(number);
                self.v6.turn(number);
            }
        }
        let mut refused = self.change_own_routes();
        self.publish_hops();
        refused.extend(self.turn_static_routes::<u32>());
        refused.extend(self.turn_static_routes::<u128>());
        refused.extend(self.settle(now_ns).err());
        refused
    }

    /// Has static routes wait while all links that they lead by are down, and no longer.
    fn turn_static_routes<A: Routed>(&mut self) -> Vec<RouterError> {
        let (plane, world) = A::split(self);
        let turned = plane.set_down(world.interfaces);
        let mut refused = Vec::new();
        for (vrf, changes) in turned.into_iter().enumerate().filter(|(_, changes)| !changes.is_empty()) {
            refused.extend(self.change_as_fits(vrf, Source::Static, &changes).err());
        }
        refused
    }

    /// Brings our own routes up to date with the interfaces, and with the addresses that the kernel has elsewhere.
    pub(crate) fn change_own_routes(&mut self) -> Vec<RouterError> {
        let mut refused = Vec::new();
        for vrf in 0..self.vrfs.len() {
            let hosts = self.kernel_hosts(vrf as u16);
            let wanted = own_routes::<u32>(&self.settings.current().interfaces, vrf as u16, &hosts);
            let changes = self.v4.difference(vrf, Source::Own, &wanted);
            refused.extend(self.change_as_fits(vrf, Source::Own, &changes).err());
            let wanted = own_routes::<u128>(&self.settings.current().interfaces, vrf as u16, &hosts);
            let changes = self.v6.difference(vrf, Source::Own, &wanted);
            refused.extend(self.change_as_fits(vrf, Source::Own, &changes).err());
        }
        refused
    }

    fn fix_neighbors(&mut self, now_ns: u64, before: &[(Key, MacAddr)], after: &[(Key, MacAddr)]) {
        for (key, _) in before.iter().filter(|old| !after.contains(old)) {
            self.neighbors.unset_static(now_ns, *key, &mut self.actions);
        }
        for (key, mac) in after.iter().filter(|new| !before.contains(new)) {
            // Without room for it the neighbor is found as any other is.
            self.neighbors.set_static(*key, *mac, &mut self.actions);
        }
    }

    /// Does what is due: hears what workers have heard of neighbors, keeps their timers, publishes what has changed.
    /// Call it every few milliseconds. Returns whether there was anything.
    ///
    /// # Errors
    /// Routes that a table has no room for; they are left out, and tried again.
    pub fn poll(&mut self, now_ns: u64) -> Result<bool, RouterError> {
        let mut busy = false;
        for _ in 0..EVENTS {
            let Some(event) = self.link.event() else { break };
            busy = true;
            let (Event::Wanted(key) | Event::Heard { key, .. }) = event;
            let interface = self.settings.current().interfaces.get(key.interface);
            let on_link = interface.is_some_and(|i| i.on_link(key.address))
                || self.is_gateway(&key)
                || self.is_gleaned(&key);
            self.neighbors.event(now_ns, &event, on_link, &mut self.actions);
        }
        self.neighbors.tick(now_ns, &mut self.actions);
        busy |= !self.actions.is_empty();
        self.settle(now_ns)?;
        self.try_again::<u32>(now_ns)?;
        self.try_again::<u128>(now_ns)?;
        Ok(busy)
    }

    pub(crate) fn neighbor_of_kernel(&mut self, now_ns: u64, key: Key, mac: Option<MacAddr>) {
        self.neighbors.kernel(now_ns, key, mac, &mut self.actions);
    }

    fn is_gateway(&self, key: &Key) -> bool {
        self.v4.is_gateway(key) || self.v6.is_gateway(key)
    }

    /// Whether a route of any VRF says that the address is on the interface's link.
    fn is_gleaned(&self, key: &Key) -> bool {
        (0..self.vrfs.len()).any(|vrf| match (integer(key.address), integer(key.address)) {
            (Some(v4), _) => self.v4.is_gleaned(vrf, key.interface, v4),
            (_, Some(v6)) => self.v6.is_gleaned(vrf, key.interface, v6),
            _ => false,
        })
    }

    /// Counts the gateways that the rules for labels of the table's file name.
    fn count_rules(&mut self, more: bool) {
        self.rules4.hops().for_each(|hop| self.v4.count_rule(hop, more));
        self.rules6.hops().for_each(|hop| self.v6.count_rule(hop, more));
    }

    /// Carries out what the neighbor table says, until it says no more.
    pub(crate) fn settle(&mut self, now_ns: u64) -> Result<(), RouterError> {
        let mut notices = Vec::new();
        let mut result = Ok(());
        // Each round's changes may turn a few more gateways; they end because routes do.
        loop {
            for key in [self.v4.turned(), self.v6.turned()].concat() {
                let interface = self.settings.current().interfaces.get(key.interface);
                // Routes of both families may lead to one gateway (RFC 8950).
                if interface.is_some_and(|interface| interface.resolves) && self.is_gateway(&key) {
                    self.neighbors.hold(now_ns, key, &mut self.actions);
                } else {
                    self.neighbors.release(now_ns, key, &mut self.actions);
                }
            }
            if self.actions.is_empty() {
                break;
            }
            let actions = std::mem::take(&mut self.actions);
            result = result.and(self.carry_out(&actions, &mut notices));
        }
        // Published before: what waits is looked up anew.
        notices.into_iter().for_each(|notice| self.link.notify(notice));
        result
    }

    fn carry_out(&mut self, actions: &[Action], notices: &mut Vec<Notice>) -> Result<(), RouterError> {
        let mut hosts4: BTreeMap<usize, Vec<RouteChange<u32>>> = BTreeMap::new();
        let mut hosts6: BTreeMap<usize, Vec<RouteChange<u128>>> = BTreeMap::new();
        let mut changed = false;
        for action in actions {
            let key = match *action {
                Action::Solicit { key, to } => {
                    notices.push(Notice::Solicit { key, to });
                    continue;
                }
                Action::Resolved { key, .. } => {
                    notices.push(Notice::Resolved(key));
                    key
                }
                Action::Lost { key, .. } => {
                    notices.push(Notice::Lost(key));
                    key
                }
            };
            changed |= !matches!(action, Action::Resolved { fresh: false, .. });
            // Of several actions the last one counts: it is what the table says now.
            let known = self.neighbors.get(key).is_some_and(|neighbor| neighbor.mac.is_some());
            // A route of another VRF may lead to the link.
            for vrf in 0..self.vrfs.len() {
                if let Some(address) = integer::<u32>(key.address) {
                    hosts4.entry(vrf).or_default().extend(host_route(&self.v4, vrf, key, address, known));
                }
                if let Some(address) = integer::<u128>(key.address) {
                    hosts6.entry(vrf).or_default().extend(host_route(&self.v6, vrf, key, address, known));
                }
            }
        }
        let mut result = Ok(());
        if changed {
            self.publish_hops();
        }
        for (vrf, changes) in hosts4.into_iter().filter(|(_, changes)| !changes.is_empty()) {
            result = result.and(self.change_as_fits(vrf, Source::Neighbor, &changes));
        }
        for (vrf, changes) in hosts6.into_iter().filter(|(_, changes)| !changes.is_empty()) {
            result = result.and(self.change_as_fits(vrf, Source::Neighbor, &changes));
        }
        result
    }

    pub(crate) fn publish_hops(&mut self) {
        let (plane, world) = u32::split(self);
        plane.publish(world);
        let (plane, world) = u128::split(self);
        plane.publish(world);
    }

    /// What lookups of each VRF run on, IPv4 and IPv6.
    pub fn lookup_stats(&self) -> Vec<LookupStats> {
        let mut all = Vec::new();
        for (vrf, name) in self.vrfs.iter().enumerate() {
            all.extend(stats(&self.v4, &self.waiting4, vrf, name));
            all.extend(stats(&self.v6, &self.waiting6, vrf, name));
        }
        all
    }

    /// ICMP errors so far, all workers together.
    pub fn icmp_stats(&self) -> IcmpStats {
        self.icmp.sum()
    }

    /// The queues in front of ports with their counters, as of some milliseconds ago.
    pub fn queues(&self) -> Vec<ShownQueue> {
        self.queues.iter().map(|queue| queue.shown(&self.ports)).collect()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        self.settings.current()
    }

    /// The neighbors.
    pub fn neighbors(&self) -> &Neighbors {
        &self.neighbors
    }

    /// The number that goes with everything published: one more for each change of routes.
    pub fn generation(&self) -> u64 {
        self.lookup_stats().iter().map(|stats| stats.generation).sum()
    }

    /// Frees replaced tables that no worker can see any more; call it now and then. Returns how many still wait.
    pub fn collect(&mut self) -> usize {
        self.v4.collect() + self.v6.collect() + self.settings.collect()
    }
}

/// Workers' events that one call of [`RouterControl::poll`] hears.
const EVENTS: usize = 4096;

fn stats<A: Family>(plane: &Plane<A>, waiting: &Waiting<A>, vrf: usize, name: &str) -> Option<LookupStats> {
    let table = plane.table(vrf)?;
    Some(LookupStats {
        vrf: name.into(),
        family: A::FAMILY,
        algorithm: table.fib().name(),
        why: table.why().into(),
        prefixes: table.rib().len(),
        bytes: table.fib().bytes(),
        shared_bytes: table.fib().shared_bytes(),
        next_hops: plane.next_hops(),
        generation: table.generation(),
        refused: waiting.count(vrf),
    })
}

/// The change of the host route of a neighbor that is known, or lost.
pub(crate) fn host_route<A: Family>(
    plane: &Plane<A>,
    vrf: usize,
    key: Key,
    address: A,
    known: bool,
) -> Option<RouteChange<A>> {
    let host = Prefix::new(address, A::BITS)?;
    let via = NextHop::Via(key.interface, key.address);
    let there = plane.route(vrf, Source::Neighbor, host) == Some(&via);
    match known {
        true if !there && plane.is_gleaned(vrf, key.interface, address) => Some((host, Some(via))),
        false if there => Some((host, None)),
        _ => None,
    }
}
