//! The verbs of a running router on its control socket.

use super::config::ControlSection;
use super::service::{Service, lock, now_ns};
use crate::usage::one_line;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_burst::DropCounts;
use tidemill_control::schema::{self, Done, path};
use tidemill_control::{ApiError, DEFAULT_SOCKET, Registry, Request, Sink, Stream};
use tidemill_graph::Snapshot;
use tidemill_graph::capture::Capture;
use tidemill_graph::trace::TraceRequest;
use tidemill_ip::Owner;
use tidemill_lookup::numa::Topology;
use tidemill_port::capture::{pcapng_header, pcapng_packet};
use tidemill_port::{PortCounters, PortSpec};
use tidemill_router::config::{NextHopKind, OneOrMany, RouteConfig};
use tidemill_router::show::Wanted;
use tidemill_router::{RouteView, RouterError, ShownHop};

/// Where the socket is made.
pub(crate) fn socket(section: &ControlSection) -> PathBuf {
    section.socket.clone().unwrap_or_else(|| DEFAULT_SOCKET.into())
}

/// Copies that may wait to be sent to whoever captures.
const CAPTURE_ROOM: usize = 16_384;
/// Bytes of a capture that are sent together.
const PIECE: usize = 64 << 10;
/// Routes in one answer.
const PAGE: u32 = 10_000;

/// All verbs.
pub(crate) fn registry(service: &Arc<Service>) -> Registry {
    let mut registry = Registry::new("tidemill router", env!("CARGO_PKG_VERSION"));
    macro_rules! get {
        ($path:expr, $help:literal, $answer:expr) => {{
            let service = service.clone();
            registry.get($path, $help, move |request: &Request| $answer(&service, request));
        }};
    }
    get!(path::SUMMARY, "The whole in a few figures", |s: &Service, _: &Request| Ok(summary(s)));
    get!(path::PORTS, "Ports with their counters", |s: &Service, _: &Request| Ok(ports(s)));
    get!(path::NODES, "The graph's nodes with their counters", |s: &Service, _: &Request| Ok(nodes(s)));
    get!(path::WORKERS, "Workers and their load", |s: &Service, _: &Request| Ok(workers(s)));
    get!(path::DROPS, "What was dropped, why and where", |s: &Service, _: &Request| Ok(drops(s)));
    get!(path::INTERFACES, "Interfaces and their addresses", |s: &Service, _: &Request| Ok(interfaces(s)));
    get!(path::NEIGHBORS, "Neighbors (ARP, ND)", |s: &Service, _: &Request| Ok(neighbors(s)));
    get!(path::FIB, "The lookup structures", |s: &Service, _: &Request| Ok(fibs(s)));
    get!(path::ROUTES, "Routes: all, to a prefix, or the one of an address", |s: &Service, r: &Request| {
        routes(s, &r.query()?)
    });
    get!(path::NEXT_HOPS, "Next hops in use", |s: &Service, _: &Request| Ok(next_hops(s)));
    get!(path::KERNEL, "What comes from the kernel", |s: &Service, _: &Request| Ok(kernel(s)));
    get!(path::STATE, "The state file: what outlives the process", |s: &Service, _: &Request| Ok(state(s)));
    get!(path::TRACE, "What has been traced", |s: &Service, _: &Request| Ok(traces(s)));

    let to = service.clone();
    registry.post(path::ROUTES, "Add a static route", move |r: &Request| add_route(&to, r.json()?));
    let to = service.clone();
    registry.delete(path::ROUTES, "Delete a static route", move |r: &Request| delete_route(&to, &r.query()?));
    let to = service.clone();
    registry.post(path::TRACE, "Trace the next packets at a node or a port", move |r: &Request| {
        trace(&to, r.json()?)
    });
    let to = service.clone();
    registry.post(path::STATE, "Save what was learnt", move |_: &Request| save_state(&to));
    let to = service.clone();
    registry.post(path::RELOAD, "Read the configuration again", move |_: &Request| {
        to.reload().map(Done::from).map_err(|error| ApiError::conflict(one_line(&error)))
    });
    let to = service.clone();
    registry.post(path::STOP, "Stop in good order", move |_: &Request| {
        to.handle.stop();
        Ok::<_, ApiError>(Done::from("stopping"))
    });
    let to = service.clone();
    registry.stream(path::CAPTURE, "Packets at a node or a port, as pcapng", move |r: &Request| {
        capture(&to, &r.query()?)
    });
    registry
}

fn dropped(counts: &DropCounts) -> BTreeMap<String, u64> {
    counts.iter().map(|(reason, count)| (reason.name().to_string(), count)).collect()
}

fn summary(service: &Service) -> schema::Summary {
    let snapshot = service.handle.snapshot();
    let ledger = snapshot.ledger();
    let seconds = now_ns().saturating_sub(service.started_ns) as f64 / 1e9;
    schema::Summary {
        received: ledger.received,
        in_bytes: snapshot.ports.iter().map(|port| port.rx.bytes).sum(),
        made: ledger.made,
        out: ledger.out,
        out_bytes: snapshot.ports.iter().map(|port| port.tx.bytes).sum(),
        consumed: ledger.consumed,
        held: ledger.held,
        dropped: ledger.dropped.iter().map(|(reason, count)| (reason.to_string(), *count)).collect(),
        seconds,
        mpps: ledger.received as f64 / seconds.max(1e-9) / 1e6,
        version: env!("CARGO_PKG_VERSION").into(),
        config: service.path.display().to_string(),
        started_ns: service.started_ns,
        reloads: service.reloads.load(std::sync::atomic::Ordering::Relaxed),
    }
}

fn ports(service: &Service) -> schema::Ports {
    let snapshot = service.handle.snapshot();
    let config = lock(&service.config);
    let control = lock(&service.control);
    let interfaces = &control.settings().interfaces;
    let queues = service.handle.per_worker().len() as u32;
    let direction = |direction: &tidemill_port::Direction| schema::Direction {
        packets: direction.packets,
        bytes: direction.bytes,
        dropped: dropped(&direction.dropped),
    };
    let one = |(number, (spec, counters)): (usize, (&PortSpec, &tidemill_port::PortCounters))| schema::Port {
        name: spec.name().into(),
        kind: spec.kind().into(),
        link: spec.interface().and_then(|_| interfaces.get(number as u16)).map(|interface| {
            match interface.up {
                _ if counters.away() > 0 => schema::Link::Away,
                true => schema::Link::Up,
                false => schema::Link::Down,
            }
        }),
        queues,
        rx: direction(&counters.rx),
        tx: direction(&counters.tx),
        made: counters.rx.made + counters.tx.made,
        held: counters.rx.held + counters.tx.held,
        left: service.rules.left(number).map(|left| left.by_rule),
        unread: service.rules.left(number).map(|left| left.unread),
        lost: counters.lost,
        found: counters.found,
    };
    schema::Ports { ports: config.port.iter().zip(&snapshot.ports).enumerate().map(one).collect() }
}

fn nodes(service: &Service) -> schema::Nodes {
    let snapshot = service.handle.snapshot();
    let graph = &service.graph;
    let one = |(n, counters): (usize, &tidemill_graph::counters::NodeCounters)| schema::Node {
        name: graph.node_names[n].clone(),
        calls: counters.calls,
        packets: counters.packets,
        made: counters.made,
        consumed: counters.consumed,
        dropped: dropped(&counters.dropped),
        ns_per_packet: counters.busy_ns as f64 / counters.packets.max(1) as f64,
        outputs: graph.outputs[n]
            .iter()
            .map(|(name, to)| schema::Output { name: name.clone(), to: graph.target_name(*to) })
            .collect(),
    };
    schema::Nodes { nodes: snapshot.nodes.iter().enumerate().map(one).collect() }
}

fn workers(service: &Service) -> schema::Workers {
    let rates = lock(&service.rates);
    let topology = Topology::read(Path::new("/sys"));
    // What ports have handed over: segments that they cut of a super-packet are packets here.
    let received = |snapshot: &Snapshot| {
        snapshot.taken + snapshot.ports.iter().map(PortCounters::delivered).sum::<u64>()
    };
    let one = |(index, now): (usize, &Snapshot)| {
        let before = rates.before.get(index);
        let since = |value: fn(&Snapshot) -> u64| value(now).saturating_sub(before.map_or(0, value)) as f64;
        let elapsed_ns = since(|snapshot| snapshot.elapsed_ns).max(1.0);
        let packets = received(now).saturating_sub(before.map_or(0, received)) as f64;
        let seat = service.handle.seats().get(index);
        let cpu = seat.and_then(|seat| seat.cpu);
        schema::Worker {
            index: index as u32,
            cpu: cpu.map(|cpu| cpu as u32),
            node: cpu.and_then(|cpu| topology.node_of(cpu)),
            stage: seat.map_or(0, |seat| seat.stage as u32),
            busy_percent: (100.0 * since(|snapshot| snapshot.busy_ns) / elapsed_ns).min(100.0),
            asleep_percent: (100.0 * since(|snapshot| snapshot.slept_ns) / elapsed_ns).min(100.0),
            packets: received(now),
            rx_pps: packets / (elapsed_ns / 1e9),
            pool_free: now.pool.free as u64,
            pool_frames: now.pool.frames as u64,
        }
    };
    schema::Workers { workers: rates.now.iter().enumerate().map(one).collect() }
}

fn drops(service: &Service) -> schema::Drops {
    let snapshot = service.handle.snapshot();
    let mut drops = Vec::new();
    let mut add = |counts: &DropCounts, at: &str| {
        drops.extend(counts.iter().map(|(reason, count)| schema::DropCount {
            reason: reason.name().into(),
            help: reason.help().into(),
            count,
            at: at.into(),
        }));
    };
    for (node, name) in snapshot.nodes.iter().zip(&service.graph.node_names) {
        add(&node.dropped, name);
    }
    for ((port, edge), name) in snapshot.ports.iter().zip(&snapshot.edge_drops).zip(&service.graph.port_names)
    {
        let mut sum = port.rx.dropped;
        sum.add(&port.tx.dropped);
        sum.add(edge);
        add(&sum, &format!("port:{name}"));
    }
    schema::Drops { drops }
}

fn interfaces(service: &Service) -> schema::Interfaces {
    let control = lock(&service.control);
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

fn neighbors(service: &Service) -> schema::Neighbors {
    let control = lock(&service.control);
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

fn fibs(service: &Service) -> schema::Fibs {
    let stats = lock(&service.control).lookup_stats();
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

fn routes(service: &Service, query: &schema::RoutesQuery) -> Result<schema::Routes, ApiError> {
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
    let mut control = lock(&service.control);
    if let Some(vrf) = query.vrf.as_ref().filter(|vrf| !control.vrfs().contains(vrf)) {
        return Err(ApiError::not_found(format!("there is no VRF {vrf:?}")));
    }
    let (list, more) = control.routes(query.vrf.as_deref(), wanted, skip, limit);
    let next = more.then(|| (skip + list.len()).to_string());
    Ok(schema::Routes { routes: list.into_iter().map(route).collect(), next })
}

fn next_hops(service: &Service) -> schema::NextHops {
    let mut control = lock(&service.control);
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

fn kernel(service: &Service) -> schema::Kernel {
    let feeds = lock(&service.feeds);
    let (routes4, routes6) = lock(&service.control).kernel_routes();
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

fn state(service: &Service) -> schema::StateFile {
    let Some(file) = &service.state else { return schema::StateFile::default() };
    let written = file.written();
    schema::StateFile {
        enabled: true,
        path: file.path().display().to_string(),
        every_s: file.every().map_or(0.0, |every| every.as_secs_f64()),
        saves: written.saves,
        failures: written.failures,
        age_s: written.at.map(|at| at.elapsed().as_secs_f64()),
        stale: file.is_stale(service),
        error: written.error,
        bytes: written.bytes,
        routes4: written.routes4,
        routes6: written.routes6,
    }
}

fn save_state(service: &Service) -> Result<Done, ApiError> {
    let Some(file) = &service.state else {
        return Err(ApiError::conflict("there is no state file: give the configuration a section [state]"));
    };
    let written = file.save(service).map_err(|error| ApiError::conflict(one_line(&error)))?;
    Ok(Done::from(format!(
        "saved {} IPv4 and {} IPv6 routes of the table, and what else was learnt: {} ({} bytes)",
        written.routes4,
        written.routes6,
        file.path().display(),
        written.bytes
    )))
}

/// A route was changed through the API: that is to outlive the process soon.
fn changed(service: &Service) {
    if let Some(file) = &service.state {
        file.urgent.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn refused(error: RouterError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

fn add_route(service: &Service, add: schema::RouteAdd) -> Result<Done, ApiError> {
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
    lock(&service.control).add_route(now_ns(), &route).map_err(refused)?;
    changed(service);
    Ok(Done::from(format!("added a static route to {}", route.prefix)))
}

fn delete_route(service: &Service, delete: &schema::RouteDelete) -> Result<Done, ApiError> {
    let mut control = lock(&service.control);
    control.delete_route(now_ns(), &delete.prefix, delete.vrf.as_deref()).map_err(refused)?;
    changed(service);
    Ok(Done::from(format!("deleted the static route to {}", delete.prefix)))
}

fn trace(service: &Service, add: schema::TraceAdd) -> Result<Done, ApiError> {
    let request = TraceRequest { at: add.at, packets: add.packets };
    service.handle.trace(&request).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(Done::from(format!("tracing the next {} packets at {}", request.packets, request.at)))
}

fn traces(service: &Service) -> schema::Traces {
    let list = service.handle.traces(0);
    let lost = list.first().map_or(0, |entry| entry.seq);
    let one = |entry: tidemill_graph::trace::TraceEntry| schema::TraceEntry {
        packet: entry.id,
        worker: entry.worker as u32,
        time_ns: entry.now_ns,
        at: entry.at,
        summary: entry.packet,
        verdict: entry.verdict,
        note: entry.note,
    };
    schema::Traces { entries: list.into_iter().map(one).collect(), lost }
}

fn capture(service: &Service, query: &schema::CaptureQuery) -> Result<Stream, ApiError> {
    let capture = service
        .handle
        .capture(&query.at, CAPTURE_ROOM)
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    let end = match query.duration_s {
        None => None,
        Some(seconds) => {
            let duration = Duration::try_from_secs_f64(seconds)
                .map_err(|_| ApiError::bad_request("duration_s: give seconds, 0 or more"))?;
            Instant::now().checked_add(duration)
        }
    };
    let (left, snap) = (query.packets.unwrap_or(u64::MAX), query.snap.unwrap_or(u32::MAX) as usize);
    Ok(Stream::new(schema::PCAPNG, move |sink| send(capture, sink, end, left, snap)))
}

fn send(
    mut capture: Capture,
    sink: &mut Sink,
    end: Option<Instant>,
    mut left: u64,
    snap: usize,
) -> Result<(), tidemill_control::Gone> {
    let mut piece = Vec::with_capacity(PIECE + 4096);
    pcapng_header(&mut piece);
    loop {
        let over = left == 0 || capture.ended() || end.is_some_and(|end| Instant::now() >= end);
        while left > 0 && piece.len() < PIECE {
            let Some(packet) = capture.receive() else { break };
            left -= 1;
            let wire_len = packet.wire_len.max(packet.bytes.len() as u32);
            let kept = &packet.bytes[..packet.bytes.len().min(snap)];
            pcapng_packet(&mut piece, packet.timestamp_ns, packet.sense, kept, wire_len);
        }
        let full = piece.len() >= PIECE;
        if !piece.is_empty() {
            sink.send(std::mem::replace(&mut piece, Vec::with_capacity(PIECE + 4096)))?;
        }
        if over && !full {
            return Ok(());
        }
        if !full {
            sink.wait(Duration::from_millis(20))?;
        }
    }
}
