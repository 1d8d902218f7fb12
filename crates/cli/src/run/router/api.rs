//! The verbs that only a router has.

use super::Router;
use super::offload::Counted;
use crate::run::service::{lock, now_ns};
use crate::usage::one_line;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidemill_burst::DropReason;
use tidemill_control::schema::{self, Done, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_ip::Owner;
use tidemill_ip::queue::ClassStats;
use tidemill_router::config::{NextHopKind, OneOrMany, RouteConfig};
use tidemill_router::show::Wanted;
use tidemill_router::{RouteView, RouterError, ShownHop, ShownQueue};

/// Routes in one answer.
const PAGE: u32 = 10_000;

/// Adds them.
pub(super) fn register(router: &Arc<Router>, registry: &mut Registry) {
    macro_rules! get {
        ($path:expr, $help:literal, $answer:expr) => {{
            let router = router.clone();
            registry.get($path, $help, move |request: &Request| $answer(&router, request));
        }};
    }
    get!(path::INTERFACES, "Interfaces and their addresses", |r: &Router, _: &Request| Ok(interfaces(r)));
    get!(path::NEIGHBORS, "Neighbors (ARP, ND)", |r: &Router, _: &Request| Ok(neighbors(r)));
    get!(path::FIB, "The lookup structures", |r: &Router, _: &Request| Ok(fibs(r)));
    get!(
        path::ROUTES,
        "Routes: all, to a prefix, or the one of an address",
        |r: &Router, asked: &Request| { routes(r, &asked.query()?) }
    );
    registry.takes::<schema::RoutesQuery>();
    get!(path::QUEUES, "Queues in front of ports", |r: &Router, _: &Request| Ok(queues(r)));
    get!(path::NEXT_HOPS, "Next hops in use", |r: &Router, _: &Request| Ok(next_hops(r)));
    get!(path::KERNEL, "What comes from the kernel", |r: &Router, _: &Request| Ok(kernel(r)));
    get!(path::STATE, "The state file: what outlives the process", |r: &Router, _: &Request| Ok(state(r)));

    let to = router.clone();
    registry.post(path::ROUTES, "Add a static route", move |r: &Request| add_route(&to, r.json()?));
    registry.takes::<schema::RouteAdd>();
    let to = router.clone();
    registry.delete(path::ROUTES, "Delete a static route", move |r: &Request| delete_route(&to, &r.query()?));
    registry.takes::<schema::RouteDelete>();
    let to = router.clone();
    registry.post(path::STATE, "Save what was learnt", move |_: &Request| save_state(&to));
}

fn interfaces(router: &Router) -> schema::Interfaces {
    let control = lock(&router.control);
    let one = |interface: &tidemill_ip::Interface| {
        let v4 = interface.v4.iter().map(|(address, prefix)| format!("{address}/{}", prefix.len()));
        let v6 = interface.v6.iter().map(|(address, prefix)| format!("{address}/{}", prefix.len()));
        let local = interface.link_local.iter().map(|address| format!("{address}/64"));
        schema::Interface {
            name: interface.name.clone(),
            port: control.port_name(interface.port).into(),
            vlan: interface.vlan,
            vrf: control.vrfs().get(usize::from(interface.vrf)).cloned().unwrap_or_default(),
            mac: interface.mac.to_string(),
            mtu: interface.mtu.into(),
            owner: if interface.owner == Owner::Us { "us" } else { "kernel" }.into(),
            addresses: v4.chain(v6).chain(local).collect(),
            up: interface.up,
        }
    };
    schema::Interfaces { interfaces: control.settings().interfaces.iter().map(one).collect() }
}

fn neighbors(router: &Router) -> schema::Neighbors {
    let control = lock(&router.control);
    let interfaces = &control.settings().interfaces;
    let mut all: Vec<_> = control.neighbors().iter().collect();
    all.sort_by_key(|neighbor| neighbor.key);
    let one = |neighbor: tidemill_ip::neighbor::table::Neighbor| schema::Neighbor {
        interface: interfaces.get(neighbor.key.interface).map_or_else(String::new, |i| i.name.clone()),
        address: neighbor.key.address.to_string(),
        mac: neighbor.mac.map(|mac| mac.to_string()),
        state: neighbor.state.name().into(),
        age_s: neighbor.age_ns as f64 / 1e9,
        kind: neighbor.origin.name().into(),
    };
    schema::Neighbors { neighbors: all.into_iter().map(one).collect() }
}

/// Adds what only a router without a gate has to say.
pub(super) fn register_offload(router: &Arc<Router>, registry: &mut Registry) {
    let router = router.clone();
    registry.get(path::OFFLOAD, "What is forwarded below", move |_: &Request| Ok(offload(&router)));
}

fn offload(router: &Router) -> schema::Offload {
    let Some(below) = &router.below else { return schema::Offload::default() };
    schema::Offload {
        enabled: true,
        generations: below.generations(),
        bytes: below.bytes(),
        ports: below.ports().into_iter().map(Counted::shown).collect(),
        ..schema::Offload::default()
    }
}

fn queues(router: &Router) -> schema::Queues {
    let queues = lock(&router.control).queues();
    let one = |queue: ShownQueue| {
        let stats = queue.stats;
        let seen = stats.requests.0.iter().enumerate().filter(|(_, level)| level.arrived > 0);
        let level = |(dscp, level): (usize, &ClassStats)| schema::QueueLevel {
            dscp: dscp as u8,
            arrived: level.arrived,
            sent: level.sent,
            waiting: level.waiting,
            dropped: dropped(level, DropReason::RequestQueueFull),
            wait_mean_us: level.mean_wait_ns().map(micros),
            wait_max_us: (level.sent > 0).then(|| micros(level.longest_ns)),
        };
        let levels = seen.map(level).collect();
        schema::Queue {
            port: queue.port,
            bits_per_s: queue.options.bits_per_s,
            classes: vec![
                class("operational", &stats.operational, DropReason::OperationalQueueFull, Vec::new()),
                class("requests", &stats.requests.total(), DropReason::RequestQueueFull, levels),
                class("granted", &stats.granted, DropReason::GrantedQueueFull, Vec::new()),
            ],
        }
    };
    schema::Queues { queues: queues.into_iter().map(one).collect() }
}

fn class(
    name: &str,
    stats: &ClassStats,
    full: DropReason,
    levels: Vec<schema::QueueLevel>,
) -> schema::QueueClass {
    schema::QueueClass {
        class: name.into(),
        arrived: stats.arrived,
        sent: stats.sent,
        sent_bytes: stats.sent_bytes,
        waiting: stats.waiting,
        waiting_bytes: stats.waiting_bytes,
        dropped: dropped(stats, full),
        wait_mean_us: stats.mean_wait_ns().map(micros),
        wait_p50_us: stats.wait_ns(0.5).map(micros),
        wait_p99_us: stats.wait_ns(0.99).map(micros),
        wait_max_us: (stats.sent > 0).then(|| micros(stats.longest_ns)),
        waits: stats.waits.to_vec(),
        levels,
    }
}

/// The drops that occurred; `full` is what this class calls a full queue.
fn dropped(stats: &ClassStats, full: DropReason) -> BTreeMap<String, u64> {
    let all = [
        (full, stats.refused),
        (DropReason::RequestEvicted, stats.evicted),
        (DropReason::RedDrop, stats.early),
    ];
    all.into_iter().filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name().into(), n)).collect()
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn fibs(router: &Router) -> schema::Fibs {
    let stats = lock(&router.control).lookup_stats();
    let one = |stats: tidemill_router::LookupStats| schema::Fib {
        vrf: stats.vrf,
        family: stats.family,
        algorithm: stats.algorithm,
        why: stats.why,
        prefixes: stats.prefixes as u64,
        bytes: stats.bytes as u64,
        shared_bytes: stats.shared_bytes as u64,
        next_hops: stats.next_hops as u64,
        generation: stats.generation,
    };
    schema::Fibs { fibs: stats.into_iter().map(one).collect() }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

fn route(view: RouteView) -> schema::Route {
    let hop = |hop: ShownHop| schema::RoutePath {
        interface: some(&hop.interface),
        via: hop.via.map(|via| via.to_string()),
        weight: hop.weight,
        state: hop.state.into(),
    };
    schema::Route {
        vrf: view.vrf,
        prefix: view.prefix,
        source: view.source.name().into(),
        kind: view.kind.into(),
        next_hops: view.hops.into_iter().map(hop).collect(),
        best: view.best,
    }
}

fn routes(router: &Router, query: &schema::RoutesQuery) -> Result<schema::Routes, ApiError> {
    let wanted = match (&query.prefix, &query.address) {
        (None, None) => Wanted::All,
        (Some(text), None) | (None, Some(text)) => text.parse().map_err(ApiError::bad_request)?,
        _ => return Err(ApiError::bad_request("give prefix or address, not both")),
    };
    let skip: usize = match &query.after {
        None => 0,
        Some(text) => {
            text.parse().map_err(|_| ApiError::bad_request("after: give what the last page said"))?
        }
    };
    let limit = query.limit.unwrap_or(PAGE).min(PAGE) as usize;
    let mut control = lock(&router.control);
    if let Some(vrf) = query.vrf.as_ref().filter(|vrf| !control.vrfs().contains(vrf)) {
        return Err(ApiError::not_found(format!("there is no VRF {vrf:?}")));
    }
    let (list, more) = control.routes(query.vrf.as_deref(), wanted, skip, limit);
    let next = more.then(|| (skip + list.len()).to_string());
    Ok(schema::Routes { routes: list.into_iter().map(route).collect(), next })
}

fn next_hops(router: &Router) -> schema::NextHops {
    let mut control = lock(&router.control);
    let list = control.next_hops();
    let interfaces = &control.settings().interfaces;
    let one = |(_, kind, hop): (u8, &str, ShownHop)| schema::NextHop {
        label: hop.label,
        kind: kind.into(),
        mtu: interfaces.by_name(&hop.interface).and_then(|n| interfaces.get(n)).map_or(0, |i| i.mtu.into()),
        interface: some(&hop.interface),
        via: hop.via.map(|via| via.to_string()),
        mac: hop.mac,
        members: Vec::new(),
    };
    schema::NextHops { next_hops: list.into_iter().map(one).collect() }
}

fn kernel(router: &Router) -> schema::Kernel {
    let feeds = lock(&router.feeds);
    let (routes4, routes6) = lock(&router.control).kernel_routes();
    match &feeds.kernel {
        None => schema::Kernel::default(),
        Some(kernel) => schema::Kernel {
            enabled: true,
            in_sync: kernel.in_sync,
            messages: kernel.stats.messages,
            overruns: kernel.stats.overruns,
            resyncs: kernel.stats.resyncs,
            routes4: routes4 as u64,
            routes6: routes6 as u64,
        },
    }
}

fn state(router: &Router) -> schema::StateFile {
    let Some(file) = &router.state else { return schema::StateFile::default() };
    let written = file.written();
    schema::StateFile {
        enabled: true,
        path: file.path().display().to_string(),
        every_s: file.every().map_or(0.0, |every| every.as_secs_f64()),
        saves: written.saves,
        failures: written.failures,
        age_s: written.at.map(|at| at.elapsed().as_secs_f64()),
        stale: file.is_stale(router),
        error: written.error,
        bytes: written.bytes,
        routes4: written.routes4,
        routes6: written.routes6,
    }
}

fn save_state(router: &Router) -> Result<Done, ApiError> {
    let Some(file) = &router.state else {
        return Err(ApiError::conflict("there is no state file: give the configuration a section [state]"));
    };
    let written = file.save(router).map_err(|error| ApiError::conflict(one_line(&error)))?;
    Ok(Done::from(format!(
        "saved {} IPv4 and {} IPv6 routes of the table, and what else was learnt: {} ({} bytes)",
        written.routes4,
        written.routes6,
        file.path().display(),
        written.bytes
    )))
}

/// A route was changed through the API: that is to outlive the process soon.
fn changed(router: &Router) {
    if let Some(file) = &router.state {
        file.urgent.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn refused(error: RouterError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

fn add_route(router: &Router, add: schema::RouteAdd) -> Result<Done, ApiError> {
    let kind = match add.kind {
        None => NextHopKind::Forward,
        Some(schema::Refusal::Blackhole) => NextHopKind::Blackhole,
        Some(schema::Refusal::Unreachable) => NextHopKind::Unreachable,
        Some(schema::Refusal::Prohibited) => NextHopKind::Prohibited,
    };
    let route = RouteConfig {
        prefix: add.prefix,
        vrf: add.vrf.filter(|vrf| !vrf.is_empty()),
        via: (!add.via.is_empty()).then_some(OneOrMany::Many(add.via)),
        port: add.dev,
        kind,
        mac: None,
    };
    lock(&router.control).add_route(now_ns(), &route).map_err(refused)?;
    changed(router);
    Ok(Done::from(format!("added a static route to {}", route.prefix)))
}

fn delete_route(router: &Router, delete: &schema::RouteDelete) -> Result<Done, ApiError> {
    let mut control = lock(&router.control);
    control.delete_route(now_ns(), &delete.prefix, delete.vrf.as_deref()).map_err(refused)?;
    changed(router);
    Ok(Done::from(format!("deleted the static route to {}", delete.prefix)))
}
