//! The role `router`: routes, neighbors, and what feeds them.

mod api;
mod bgp;
mod feeds;
mod offload;
mod routes;
mod setup;
mod state;
#[cfg(test)]
mod tests;

use super::config::Config;
use super::filter;
use super::role::{LeftOver, Open, Opening, Role, Told, Trouble, figures};
use super::rules::Rules;
use super::service::{lock, now_ns, unchanged};
use super::setup::Queues;
use super::spliced::{self, Commit, Runs};
use crate::addresses::TableAddresses;
use crate::usage;
use anyhow::{Context, Result};
use bgp::Redirects;
use feeds::{Feeds, Kernel};
use offload::Below;
pub(super) use offload::obstacle as offload_obstacle;
#[cfg(all(feature = "xdp", target_os = "linux"))]
pub(super) use offload::{
    counted as offload_counted, families as offload_families, memory as offload_memory,
    ports as offload_ports,
};
use routes::{State, UpdateFeed};
use serde_json::json;
pub(super) use state::check as check_state;
use state::{Origin, Start, StateFile};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Scope;
use tidemill_control::schema::Table;
use tidemill_control::{Family, Registry};
use tidemill_feed::kernel::KernelFeed;
use tidemill_feed::{Labels, LoadedTable};
use tidemill_gatekeeper::Host;
use tidemill_graph::GraphBuilder;
use tidemill_graph::record::Recorder;
use tidemill_ip::{IcmpStats, Interfaces};
use tidemill_lookup::numa::Copies;
use tidemill_lookup::qsbr::Domain;
use tidemill_nf::flowspec::{FlowspecControl, Host as FlowspecHost};
use tidemill_port::Left;
use tidemill_router::state::Resumed;
use tidemill_router::{LookupStats, RouterControl};

/// A router that runs. Who needs several locks takes `feeds` first, then `control`, then `flowspec` or the parts'.
pub(super) struct Router {
    control: Mutex<RouterControl>,
    feeds: Mutex<Feeds>,
    /// What BGP peers' flow specifications do to packets, where `bgp.flowspec` is set.
    flowspec: Option<Mutex<FlowspecControl>>,
    redirects: Redirects,
    rules: Rules,
    state: Option<StateFile>,
    /// What a start from the state file has left to do.
    behind: Option<Behind>,
    /// What forwards before us.
    below: Option<Below>,
    /// NAT and the packet filter, where they are configured.
    parts: Vec<Arc<dyn Runs>>,
    /// Route updates so far.
    applied: AtomicU64,
    coalesce_ms: AtomicU32,
    trouble: Arc<Trouble>,
}

/// The files of a router that forwards by its state file already.
struct Behind {
    config: Config,
    newer: Option<Origin>,
}

/// Makes a router that is all of the role, with its parts.
pub(super) fn open(opening: &Opening<'_>) -> Result<Open> {
    let (role, ports, state) = make(opening)?;
    Ok(Open { role, ports, state })
}

/// Makes a router: its tables, ports and control side. Returns also its ports, and what a record of it begins with.
pub(super) fn make(opening: &Opening<'_>) -> Result<(Arc<Router>, Queues, Vec<u8>)> {
    let Opening { config, name, places, domain, .. } = *opening;
    spliced::check_sections(config, name)?;
    filter::check_files(config, opening.base, name)?;
    if opening.record && config.state.is_some() {
        return Err(usage("--record: a record begins with the table's files: leave [state] out"));
    }
    if opening.record && config.filter.is_some() {
        return Err(usage(
            "--record: a filter's rules are in no record: run it on captures, which gives the same output every time",
        ));
    }
    let Start { table, resumed, added, origin, from_image, newer } = state::start(config, opening.text)?;
    let (below, fronted) = Below::open(opening, &table)?;
    let addresses = TableAddresses::of(&table);
    let (ports, rules) =
        super::setup::ports(fronted.as_ref().unwrap_or(config), opening.base, &addresses, places)?;
    let infos = setup::port_infos(config, false)?;
    let updates = match &config.updates {
        // Behind what the image has of them: that takes a while, and the packets do not wait for it.
        Some(updates) if from_image => crate::tables::check_input(&updates.path).map(|()| None)?,
        Some(updates) => Some(UpdateFeed::open(&updates.path, updates.speed, &table.labels)?),
        None => None,
    };
    let recorded = match opening.record {
        true => postcard::to_stdvec(&State::of(&table)).context("the routes cannot be recorded")?,
        false => Vec::new(),
    };
    let LoadedTable { v4, v6, labels, .. } = table;
    let (v4, v6) = (routes::routes(v4, &labels), routes::routes(v6, &labels));
    let mut control = setup::control(config, &infos, name, v4, v6, &resumed, domain, &places.copies)?;
    setup::check_mtu(config, &control)?;
    setup::warn_of_small_frames(config);
    rules.tell(|port| control.ownership(port))?;
    control.limit_mtu(setup::longest_packet(config));
    let redirects = Redirects::new(config, &control, name)?;
    for left_out in control.resume_added(&added)? {
        eprintln!("tidemill: warning: state image: {left_out}: left out");
    }
    let kernel = match control.kernel_options() {
        Some(options) => Some(Kernel::new(KernelFeed::open(&options)?)),
        None => None,
    };
    if kernel.is_some() && opening.record {
        return Err(usage(
            "--record: a record cannot hold what the kernel says: use ports that are no interfaces",
        ));
    }
    let bgp = config.bgp.as_ref().map(bgp::Bgp::open).transpose()?;
    if bgp.is_some() && opening.record {
        return Err(usage("--record: a record cannot hold what BGP peers say: leave [bgp] out"));
    }
    let behind = from_image.then(|| Behind { config: config.clone(), newer });
    let feeds = Feeds::new(updates, kernel, bgp, labels, origin);
    let parts = spliced::open(opening, opening.record, &control)?;
    let router = Arc::new(Router {
        behind,
        below,
        parts,
        ..Router::new(config, control, feeds, (rules, redirects), opening)
    });
    Ok((router, ports, recorded))
}

/// Makes the router of a record.
pub(super) fn reopen(opening: &Opening<'_>, state: &[u8]) -> Result<Arc<dyn Role>> {
    Ok(remake(opening, state)?)
}

/// The same.
pub(super) fn remake(opening: &Opening<'_>, state: &[u8]) -> Result<Arc<Router>> {
    let Opening { config, name, places, domain, .. } = *opening;
    if config.filter.is_some() {
        return Err(usage("a filter is in no record"));
    }
    let state: State = postcard::from_bytes(state).map_err(|error| anyhow::anyhow!("routes: {error}"))?;
    let (v4, v6) = state.routes();
    let infos = setup::port_infos(config, true)?;
    let control = setup::control(config, &infos, name, v4, v6, &Resumed::default(), domain, &places.copies)?;
    let feeds = Feeds::new(None, None, None, Labels::default(), Origin::default());
    let parts = spliced::open(opening, true, &control)?;
    let none = (Rules::default(), Redirects::default());
    Ok(Arc::new(Router { parts, ..Router::new(config, control, feeds, none, opening) }))
}

/// Checks a router's configuration.
pub(super) fn check(config: &Config, name: &str) -> Result<(GraphBuilder, String)> {
    let (control, domain, routes) = check_control(config, name)?;
    let (mut graph, parts) = spliced::check(config, name, &control, &domain)?;
    check_flowspec(&mut graph, config, &domain, &control);
    Ok((graph, routes + &parts))
}

/// The same: the control side, its domain, and what to say of it.
pub(super) fn check_control(config: &Config, name: &str) -> Result<(RouterControl, Domain, String)> {
    spliced::check_sections(config, name)?;
    filter::check_files(config, Path::new(name).parent().unwrap_or(Path::new("")), name)?;
    config.updates.iter().try_for_each(|updates| crate::tables::check_input(&updates.path))?;
    let below = offload::check(config, name)?;
    let to_make = routes::to_make(config);
    let table = routes::look(config)?;
    let (count4, count6) = (table.v4.len(), table.v6.len());
    let domain = Domain::new();
    let (v4, v6) = (routes::routes(table.v4, &table.labels), routes::routes(table.v6, &table.labels));
    let infos = setup::port_infos(config, true)?;
    let control = setup::control(config, &infos, name, v4, v6, &Resumed::default(), &domain, &Copies::one())?;
    setup::check_mtu(config, &control)?;
    setup::warn_of_small_frames(config);
    Redirects::new(config, &control, name)?;
    let routes = match to_make {
        Some((make, _)) => format!("a table of {} + {} prefixes will be made{below}", make.ipv4, make.ipv6),
        None => format!("{count4} IPv4 and {count6} IPv6 prefixes{below}"),
    };
    Ok((control, domain, routes))
}

/// The control side of flow specifications, where they are applied.
fn flowspec(config: &Config, workers: usize, domain: &Domain) -> Option<FlowspecControl> {
    let applied = config.bgp.as_ref().is_some_and(|bgp| bgp.flowspec);
    applied.then(|| FlowspecControl::new(workers, domain))
}

/// Puts flow specifications into a graph that is only looked at, behind all else.
pub(super) fn check_flowspec(
    graph: &mut GraphBuilder,
    config: &Config,
    domain: &Domain,
    router: &RouterControl,
) {
    if let Some(control) = flowspec(config, 1, domain) {
        tidemill_nf::flowspec::splice(graph, &control, flowspec_host(router));
    }
}

/// What flow specifications take of a router.
fn flowspec_host(control: &RouterControl) -> FlowspecHost {
    FlowspecHost { ways4: Box::new(control.all_ways4()), ways6: Box::new(control.all_ways6()) }
}

/// What a gate takes of a router.
pub(super) fn host(control: &RouterControl) -> Host {
    Host { ways4: Box::new(control.ways4()), ways6: Box::new(control.ways6()) }
}

impl Router {
    /// Adds its verbs and figures, but for what is done below: a gate's is another one.
    pub(super) fn verbs_but_offload(self: Arc<Self>, registry: &mut Registry) {
        api::register(&self, registry);
        bgp::register(&self, registry);
        registry.event_kind("bgp", "BGP sessions: established, ended and why; connections refused");
        registry
            .event_kind("router", "What the router has to say: neighbors, interfaces, the kernel's routes");
        let of = self.clone();
        registry.panel("Router", move || of.metrics());
        if lock(&self.feeds).bgp.is_some() {
            let of = self.clone();
            registry.panel("BGP", move || bgp::metrics(&of));
        }
        self.parts.iter().for_each(|part| part.clone().verbs(&self, registry));
    }

    /// Looks at, or changes, its control side.
    pub(super) fn with_control<T>(&self, work: impl FnOnce(&mut RouterControl) -> T) -> T {
        work(&mut lock(&self.control))
    }

    /// Its graph with its parts, before anything else is put in.
    pub(super) fn base(&self, control: &RouterControl) -> GraphBuilder {
        let mut graph = tidemill_router::graph(control);
        self.parts.iter().for_each(|part| part.splice(&mut graph, control));
        graph
    }

    /// Has its parts know interfaces that have changed.
    fn tell_parts(&self) {
        if !self.parts.is_empty() {
            self.with_control(|control| self.parts.iter().for_each(|part| part.follow(control)));
        }
    }

    /// What its parts have to say of the configuration.
    fn remarks(&self) -> Vec<Vec<String>> {
        self.with_control(|control| self.parts.iter().map(|part| part.remarks(control)).collect())
    }

    /// Puts flow specifications into its graph, where they are applied: when all else is there, so that they see packets before that does.
    pub(super) fn splice_flowspec(&self, graph: &mut GraphBuilder, router: &RouterControl) {
        if let Some(control) = &self.flowspec {
            tidemill_nf::flowspec::splice(graph, &lock(control), flowspec_host(router));
        }
    }

    /// Takes a new configuration, with its parts, and what a role beside takes with it: all of that is checked before anything changes. `prepare` sees the interfaces
    /// that there will be; what it gives is taken over by `commit`, or all of it is refused. The router is the last: what it lets in is what all others know of already.
    pub(super) fn reload_with<P>(
        &self,
        (name, old, new, text): (&str, &Config, &Config, &str),
        prepare: impl FnOnce(&Interfaces) -> Result<P>,
        commit: impl FnOnce(P) -> Result<()>,
    ) -> Result<LeftOver> {
        unchanged(name, &new.fixed_routing(old))?;
        match (&new.bgp, &old.bgp) {
            (Some(new), Some(old)) => unchanged(name, &new.fixed_keys(old))?,
            (new, old) => unchanged(name, &[("bgp", new.is_some() == old.is_some())])?,
        }
        let is_there = |config: &Config| [config.nat.is_some(), config.filter.is_some()];
        let ([nat, filter], [nat_before, filter_before]) = (is_there(new), is_there(old));
        // What the role needs is said with what is missing.
        spliced::check_sections(new, name)?;
        unchanged(name, &[("nat", nat == nat_before), ("filter", filter == filter_before)])?;
        let reads: Vec<_> = self.parts.iter().map(|part| part.read(new, name)).collect::<Result<_>>()?;
        let before = self.remarks();
        let refused = {
            let mut control = lock(&self.control);
            let wrong = |error| usage(format!("{name}: {error}"));
            let ours = control.prepare(&new.router()).map_err(wrong)?;
            if let Some(section) = &new.bgp {
                bgp::spared_are_there(section, ours.interfaces(), name)?;
            }
            let theirs = prepare(ours.interfaces())?;
            let parts: Vec<Commit<'_>> =
                reads.into_iter().map(|read| read(ours.interfaces())).collect::<Result<_>>()?;
            commit(theirs)?;
            parts.into_iter().for_each(|commit| commit());
            // All but some routes has been taken then.
            control.commit(now_ns(), ours)
        };
        self.tell_parts();
        for ((part, now), before) in self.parts.iter().zip(self.remarks()).zip(before) {
            let fresh = now.iter().filter(|remark| !before.contains(remark));
            fresh.for_each(|remark| part.note(&format!("warning: {name}: {remark}")));
        }
        let mut left = LeftOver::new();
        for error in refused {
            // What waits for room is not the configuration's, and comes when there is some.
            if error.waits() {
                self.trouble.complain("neighbors", &error.into());
            } else {
                left.push(error.to_string());
                self.trouble.complain("reload", &error.into());
            }
        }
        self.tell_rules();
        self.coalesce_ms.store(new.router.coalesce_ms, Ordering::Relaxed);
        let mut feeds = lock(&self.feeds);
        feeds.origin.set_config(text);
        // What can be wrong with it is a password or its file only: then the sessions stay as they are. The same text may mean something else by
        // now: what the files have, or what could not be taken over before.
        if let (Some(bgp), Some(section)) = (&mut feeds.bgp, &new.bgp)
            && let Err(error) = bgp.reload(section)
        {
            left.push(format!("bgp: the sessions stay as they are: {error:#}"));
            self.trouble.complain("bgp", &error);
        }
        Ok(left)
    }

    fn new(
        config: &Config,
        control: RouterControl,
        feeds: Feeds,
        (rules, redirects): (Rules, Redirects),
        opening: &Opening<'_>,
    ) -> Self {
        Router {
            control: Mutex::new(control),
            feeds: Mutex::new(feeds),
            flowspec: flowspec(config, config.run.workers, opening.domain).map(Mutex::new),
            redirects,
            rules,
            state: config.state.as_ref().map(StateFile::new),
            behind: None,
            below: None,
            parts: Vec::new(),
            applied: AtomicU64::new(0),
            coalesce_ms: AtomicU32::new(config.router.coalesce_ms),
            trouble: opening.trouble.clone(),
        }
    }
}

impl Role for Router {
    fn graph(&self) -> GraphBuilder {
        let control = lock(&self.control);
        let mut graph = self.base(&control);
        self.splice_flowspec(&mut graph, &control);
        graph
    }

    fn turn(&self, now_ns: u64, recorder: Option<&Recorder>) -> bool {
        let did = self.round(now_ns, recorder);
        self.tell_parts();
        self.parts.iter().for_each(|part| part.poll());
        did
    }

    fn repeat(&self, change: &[u8]) -> Result<u64, String> {
        let changes: routes::Changes =
            postcard::from_bytes(change).map_err(|error| format!("route changes: {error}"))?;
        changes.apply(&mut lock(&self.control)).map_err(|error| format!("{error:#}"))
    }

    fn reload(&self, name: &str, old: &Config, new: &Config, text: &str) -> Result<LeftOver> {
        self.reload_with((name, old, new, text), |_| Ok(()), |()| Ok(()))
    }

    fn verbs(self: Arc<Self>, registry: &mut Registry) {
        api::register_offload(&self, registry);
        self.verbs_but_offload(registry);
    }

    fn tables(&self) -> Vec<Table> {
        let control = lock(&self.control);
        let table = |stats: LookupStats| {
            let vrf = if stats.vrf.is_empty() { String::new() } else { format!(" of VRF {}", stats.vrf) };
            Table {
                name: format!("IPv{} routes{vrf}", stats.family),
                kind: stats.algorithm,
                entries: stats.prefixes as u64,
                bytes: Some(stats.bytes as u64),
                generation: Some(stats.generation),
                ..Table::default()
            }
        };
        let mut tables: Vec<Table> = control.lookup_stats().into_iter().map(table).collect();
        let neighbors = control.neighbors().len() as u64;
        tables.push(Table { name: "neighbors".into(), entries: neighbors, ..Table::default() });
        tables.extend(self.below.as_ref().map(|below| {
            Table {
                name: "routes of the offload".into(),
                kind: "xdp".into(),
                entries: control
                    .lookup_stats()
                    .iter()
                    .filter(|stats| stats.vrf.is_empty())
                    .map(|stats| stats.prefixes as u64)
                    .sum(),
                bytes: Some(below.bytes()),
                generation: Some(below.generations()),
                ..Table::default()
            }
        }));
        tables.extend(self.parts.iter().flat_map(|part| part.tables()));
        tables
    }

    fn beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, done: &'scope AtomicBool) {
        if let Some(Behind { config, newer }) = &self.behind {
            scope.spawn(|| self.catch_up(config, newer.clone(), done));
        }
        if let Some(file) = &self.state {
            scope.spawn(|| file.watch(self, done));
        }
        if let Some(below) = &self.below {
            scope.spawn(|| below.follow(self, done));
        }
        self.parts.iter().for_each(|part| part.beside(scope, done));
    }

    fn end(&self) {
        if let Some(below) = &self.below {
            below.close();
        }
        if let Some(bgp) = &mut lock(&self.feeds).bgp {
            bgp.shut_down();
        }
        if let Some(file) = self.state.as_ref().filter(|file| file.is_stale(self))
            && let Err(error) = file.save(self)
        {
            self.trouble.complain("the state is not saved", &error);
        }
        self.parts.iter().for_each(|part| part.end());
    }

    fn link(&self, port: usize) -> Option<bool> {
        lock(&self.control).settings().interfaces.get(port as u16).map(|interface| interface.up)
    }

    fn left(&self, port: usize) -> Option<Left> {
        self.rules.left(port)
    }

    fn progress(&self) -> String {
        let updates = format!("updates {}", self.applied.load(Ordering::Relaxed));
        self.parts.iter().fold(updates, |said, part| format!("{said} {}", part.progress()))
    }

    fn told(&self) -> Told {
        let (tables, icmp) = {
            let control = lock(&self.control);
            (control.lookup_stats(), control.icmp_stats())
        };
        let updates = self.applied.load(Ordering::Relaxed);
        let mut told = Told::default();
        for stats in tables.iter().filter(|stats| stats.prefixes > 0) {
            told.first.push(format!(
                "IPv{}: {} prefixes in {}, {:.2} MB, generation {}{}",
                stats.family,
                stats.prefixes,
                stats.algorithm,
                stats.bytes as f64 / 1e6,
                stats.generation,
                if stats.why.is_empty() { String::new() } else { format!(" (auto: {})", stats.why) }
            ));
        }
        let IcmpStats { sent, suppressed, rate_limited, failed } = icmp;
        if sent + suppressed + rate_limited + failed > 0 {
            told.last.push(format!(
                "ICMP errors: {sent} sent, {suppressed} not allowed, {rate_limited} over the rate limit, {failed} failed"
            ));
        }
        if let Some(below) = &self.below {
            below.tell(&mut told);
        }
        if updates > 0 {
            told.last.push(format!("{updates} route updates while running"));
        }
        told.json.insert("updates".into(), json!(updates));
        told.json.insert(
            "icmp".into(),
            json!({"sent": sent, "suppressed": suppressed, "rate_limited": rate_limited, "failed": failed}),
        );
        told.json.insert("tables".into(), tables.iter().map(lookup_json).collect());
        self.parts.iter().for_each(|part| part.tell(&mut told));
        told
    }
}

impl Router {
    fn metrics(&self) -> Vec<Family> {
        let (stats, icmp) = {
            let control = lock(&self.control);
            (control.lookup_stats(), control.icmp_stats())
        };
        let IcmpStats { sent, suppressed, rate_limited, failed } = icmp;
        let errors = [
            ("sent", sent, false),
            ("suppressed", suppressed, false),
            ("rate_limited", rate_limited, false),
            ("failed", failed, false),
        ];
        let mut families = figures("icmp", errors.into_iter());
        families.extend(tables(&stats));
        let mut updates = Family::counter("route_updates", "Changes of routes while it runs");
        updates.add(&[], self.applied.load(Ordering::Relaxed));
        families.push(updates);
        families.extend(self.below.iter().flat_map(Below::metrics));
        families
    }
}

/// The lookup tables as metrics.
fn tables(tables: &[LookupStats]) -> [Family; 4] {
    let mut prefixes = Family::gauge("fib_prefixes", "Prefixes in a lookup table");
    let mut bytes = Family::gauge("fib_bytes", "Bytes that lookups can touch");
    let mut generation = Family::counter("fib_changes", "Published changes of a lookup table");
    let mut refused =
        Family::gauge("fib_refused", "Routes that a lookup table has no room for; they are tried again");
    for table in tables {
        let family = format!("ipv{}", table.family);
        let labels = [("vrf", table.vrf.as_str()), ("family", family.as_str())];
        prefixes.add(&labels, table.prefixes as u64);
        bytes.add(&labels, table.bytes as u64);
        generation.add(&labels, table.generation);
        refused.add(&labels, table.refused as u64);
    }
    [prefixes, bytes, generation, refused]
}

fn lookup_json(stats: &LookupStats) -> serde_json::Value {
    json!({"family": stats.family, "algorithm": stats.algorithm, "why": stats.why, "prefixes": stats.prefixes, "bytes": stats.bytes,
        "shared_bytes": stats.shared_bytes, "generation": stats.generation, "refused": stats.refused})
}
