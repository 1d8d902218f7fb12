//! The verbs of a running router on its control socket.

use super::config::ControlSection;
use super::service::{Reload, Service, lock, now_ns, system_ns};
use super::watch::KINDS;
use crate::usage::one_line;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_burst::{DropCounts, DropReason};
use tidemill_control::schema::{self, Done, Severity, path};
use tidemill_control::{ApiError, DEFAULT_SOCKET, Registry, Request, Sink, Stream};
use tidemill_graph::Snapshot;
use tidemill_graph::capture::Capture;
use tidemill_graph::trace::TraceRequest;
use tidemill_lookup::numa::Topology;
use tidemill_port::capture::{pcapng_header, pcapng_packet, pcapng_statistics};
use tidemill_port::{PortCounters, PortSpec};

/// Where the socket is made.
pub(crate) fn socket(section: &ControlSection) -> PathBuf {
    section.socket.clone().unwrap_or_else(|| DEFAULT_SOCKET.into())
}

/// Copies that may wait to be sent to whoever captures.
const CAPTURE_ROOM: usize = 16_384;
/// Bytes of a capture that are sent together.
const PIECE: usize = 64 << 10;

/// All verbs, with those of the role.
pub(crate) fn registry(service: &Arc<Service>) -> Registry {
    let role = format!("tidemill {}", lock(&service.config).role);
    let mut registry = Registry::new(role, env!("CARGO_PKG_VERSION"));
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
    get!(path::TABLES, "Tables and caches, and how full they are", |s: &Service, _: &Request| {
        Ok::<_, ApiError>(schema::Tables { tables: s.role.tables() })
    });
    get!(path::TRACE, "What has been traced", |s: &Service, _: &Request| Ok(traces(s)));

    let to = service.clone();
    registry.post(path::TRACE, "Trace the next packets at a node or a port", move |r: &Request| {
        trace(&to, r.json()?)
    });
    registry.takes::<schema::TraceAdd>();
    registry.shows_packets(path::TRACE);
    let to = service.clone();
    registry.post(path::RELOAD, "Read the configuration again", move |_: &Request| match to.reload() {
        Reload::Taken(line) => Ok(Done::from(line)),
        Reload::InPart(line) => Err(ApiError::conflict(line)),
        Reload::Refused(error) => Err(ApiError::conflict(one_line(&error))),
    });
    let to = service.clone();
    registry.post(path::STOP, "Stop in good order", move |_: &Request| {
        to.trouble.tell("run", Severity::Info, &to.path.display().to_string(), "stops: it was asked to");
        to.handle.stop();
        Ok::<_, ApiError>(Done::from("stopping"))
    });
    let to = service.clone();
    registry.stream(path::CAPTURE, "Packets at a node or a port, as pcapng", move |r: &Request| {
        capture(&to, &r.query()?)
    });
    registry.takes::<schema::CaptureQuery>();
    get!(path::LOG, "How much is said on standard error, by module", |s: &Service, _: &Request| {
        Ok::<_, ApiError>(s.trouble.levels().show())
    });
    let to = service.clone();
    registry.post(path::LOG, "Say more or less there, until the next reload", move |r: &Request| {
        to.trouble.levels().change(&r.json()?).map_err(ApiError::bad_request)?;
        Ok(to.trouble.levels().show())
    });
    registry.takes::<schema::LogChange>();
    let of = service.clone();
    registry.metrics(move || super::metrics::of(&of));
    registry.events(service.trouble.events());
    KINDS.iter().for_each(|(kind, help)| registry.event_kind(kind, help));
    service.role.clone().verbs(&mut registry);
    // Who asks the wrong one is told whom to ask.
    registry.elsewhere("/v1/amp", "the role mitigator");
    registry.elsewhere("/v1/gate", "the role gatekeeper");
    registry.elsewhere("/v1/grantor", "the role grantor");
    registry.elsewhere("/v1/switch", "the role switch");
    registry.elsewhere("/v1/kv", "the role kvcache");
    registry.elsewhere("/v1/nat", "a router with [nat]");
    registry.elsewhere("/v1/filter", "a router with [filter]");
    registry.elsewhere("/v1/assets", "what has a section [assets]");
    registry.elsewhere("/v1/ipfix", "what has a section [ipfix]");
    registry.elsewhere("/v1/bgp", "the roles router, gatekeeper, grantor, nat and filter");
    for path in [
        path::INTERFACES,
        path::NEIGHBORS,
        path::FIB,
        path::ROUTES,
        path::QUEUES,
        path::OFFLOAD,
        path::NEXT_HOPS,
        path::KERNEL,
        path::STATE,
    ] {
        registry.elsewhere(path, "the roles router, gatekeeper, grantor, nat and filter");
    }
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

pub(super) fn ports(service: &Service) -> schema::Ports {
    let snapshot = service.handle.snapshot();
    let config = lock(&service.config);
    // In a chain of workers the first one has the ports.
    let queues = service.handle.seats().iter().filter(|seat| seat.stage == 0).count() as u32;
    let inputs = &service.graph.inputs;
    let direction = |direction: &tidemill_port::Direction| schema::Direction {
        packets: direction.packets,
        bytes: direction.bytes,
        dropped: dropped(&direction.dropped),
    };
    let one = |(number, (spec, counters)): (usize, (&PortSpec, &tidemill_port::PortCounters))| {
        let left = service.role.left(number);
        schema::Port {
            name: spec.name().into(),
            to: inputs.get(number).copied().flatten().map(|target| service.graph.target_name(target)),
            kind: spec.kind().into(),
            link: spec.interface().and_then(|_| service.role.link(number)).map(|up| match up {
                _ if counters.away() > 0 => schema::Link::Away,
                true => schema::Link::Up,
                false => schema::Link::Down,
            }),
            queues,
            rx: direction(&counters.rx),
            tx: direction(&counters.tx),
            made: counters.rx.made + counters.tx.made,
            held: counters.rx.held + counters.tx.held,
            left: left.as_ref().map(|left| left.by_rule),
            unread: left.as_ref().map(|left| left.unread),
            lost: counters.lost,
            found: counters.found,
            taken_by_others: counters.taken_by_others,
            asked_in_vain: counters.asked_in_vain,
            hindered: left.and_then(|left| left.hindered),
        }
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
            .zip(&snapshot.outputs[n])
            .map(|((name, to), packets)| schema::Output {
                name: name.clone(),
                to: graph.target_name(*to),
                packets: *packets,
            })
            .collect(),
    };
    schema::Nodes { nodes: snapshot.nodes.iter().enumerate().map(one).collect() }
}

pub(super) fn workers(service: &Service) -> schema::Workers {
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
        let unbound = service.handle.unbound(index).map(|unbound| unbound.to_string());
        let cpu = seat.and_then(|seat| seat.cpu).filter(|_| unbound.is_none());
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
            unbound,
        }
    };
    schema::Workers { workers: rates.now.iter().enumerate().map(one).collect() }
}

pub(super) fn drops(service: &Service) -> schema::Drops {
    let mut drops = Vec::new();
    each_drop(service, &service.handle.snapshot(), |reason, count, at| {
        drops.push(schema::DropCount {
            reason: reason.name().into(),
            help: reason.help().into(),
            count,
            at: at.into(),
        });
    });
    schema::Drops { drops }
}

/// What was dropped: reason, packets, and where: the name of a node, or `port:NAME`.
pub(super) fn each_drop(service: &Service, snapshot: &Snapshot, mut each: impl FnMut(DropReason, u64, &str)) {
    for (node, name) in snapshot.nodes.iter().zip(&service.graph.node_names) {
        node.dropped.iter().for_each(|(reason, count)| each(reason, count, name));
    }
    for ((port, edge), name) in snapshot.ports.iter().zip(&snapshot.edge_drops).zip(&service.graph.port_names)
    {
        let mut sum = port.rx.dropped;
        sum.add(&port.tx.dropped);
        sum.add(edge);
        let at = format!("port:{name}");
        sum.iter().for_each(|(reason, count)| each(reason, count, &at));
    }
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
    let (mut taken, mut told) = (0, None);
    loop {
        let over = left == 0 || capture.ended() || end.is_some_and(|end| Instant::now() >= end);
        while left > 0 && piece.len() < PIECE {
            let Some(packet) = capture.receive() else { break };
            (left, taken) = (left - 1, taken + 1);
            let wire_len = packet.wire_len.max(packet.bytes.len() as u32);
            let kept = &packet.bytes[..packet.bytes.len().min(snap)];
            pcapng_packet(&mut piece, packet.timestamp_ns, packet.sense, kept, wire_len);
        }
        let full = piece.len() >= PIECE;
        // What is missing is said when it goes missing, for who ends the capture, and in the end, also that nothing is.
        let missed = capture.missed();
        if told != Some(missed) && (missed > 0 || over && !full) {
            pcapng_statistics(&mut piece, system_ns(), taken + missed, missed);
            told = Some(missed);
        }
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
