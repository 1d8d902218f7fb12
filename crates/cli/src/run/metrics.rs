//! What a run tells Prometheus: `/metrics` on the control socket and, if there is one, on TCP.

use super::api::each_drop;
use super::service::{Service, lock, now_ns};
use std::collections::BTreeMap;
use tidemill_burst::DropReason;
use tidemill_control::{Family, Tcp};
use tidemill_graph::Snapshot;
use tidemill_port::PortSpec;

/// All of it but the role's, which registers its own. Packets are of one moment, so that the books balance in what is read.
pub(super) fn of(service: &Service) -> Vec<Family> {
    let snapshot = service.handle.snapshot();
    let mut families = whole(service, &snapshot);
    let mut packets = Family::counter("port_packets", "Packets by port and direction");
    let mut bytes = Family::counter("port_bytes", "Their bytes, without preamble and frame check sequence");
    let mut up = Family::gauge("port_up", "Whether the port's link is up, where it is known");
    let mut left = Family::counter(
        "port_left_packets",
        "Packets that an AF_XDP port has left to the kernel: by its rule, or unread, on queues that nobody reads",
    );
    let ports: Vec<String> =
        lock(&service.config).port.iter().map(|spec: &PortSpec| spec.name().to_owned()).collect();
    for (number, (name, port)) in ports.iter().zip(&snapshot.ports).enumerate() {
        for (direction, counted) in [("rx", &port.rx), ("tx", &port.tx)] {
            let labels = [("port", name.as_str()), ("direction", direction)];
            packets.add(&labels, counted.packets);
            bytes.add(&labels, counted.bytes);
        }
        if let Some(is_up) = service.role.link(number) {
            up.add(&[("port", name)], u64::from(is_up && port.away() == 0));
        }
        if let Some(of) = service.role.left(number) {
            for (why, count) in [("rule", of.by_rule), ("unread", of.unread)] {
                left.add(&[("port", name.as_str()), ("why", why)], count);
            }
        }
    }
    families.extend([packets, bytes, up, left]);
    let mut packets = Family::counter("node_packets", "Packets that a node of the graph has seen");
    let mut busy = Family::counter("node_busy_seconds", "Time that a node has taken");
    for (name, node) in service.graph.node_names.iter().zip(&snapshot.nodes) {
        packets.add(&[("node", name)], node.packets);
        busy.add_f64(&[("node", name)], node.busy_ns as f64 / 1e9);
    }
    families.extend([packets, busy]);
    families.extend(dropped(service, &snapshot));
    families.extend(workers(service));
    families
}

/// The books, and the process.
fn whole(service: &Service, snapshot: &Snapshot) -> Vec<Family> {
    let ledger = snapshot.ledger();
    let one = |mut family: Family, value: f64| {
        family.add_f64(&[], value);
        family
    };
    let mut info = Family::gauge("info", "What runs");
    let role = lock(&service.config).role.to_string();
    info.add(&[("version", env!("CARGO_PKG_VERSION")), ("role", &role)], 1);
    let uptime = now_ns().saturating_sub(service.started_ns) as f64 / 1e9;
    let reloads = service.reloads.load(std::sync::atomic::Ordering::Relaxed) as f64;
    let mut resident =
        Family::gauge("resident_bytes", "Memory of the process that is in RAM, without huge pages");
    if let Some(bytes) = resident_bytes() {
        resident.add(&[], bytes);
    }
    let mut files = Family::gauge("open_files", "Files and sockets that the process has open");
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        files.add(&[], open.count() as u64);
    }
    let mut certificate =
        Family::gauge("certificate_ends_seconds", "When the API's certificate ends, in seconds since 1970");
    if let Some(ends_s) = service.tcp.as_ref().and_then(Tcp::certificate_ends_s) {
        certificate.add(&[], ends_s);
    }
    let mut families = vec![
        info,
        resident,
        files,
        certificate,
        one(Family::gauge("uptime_seconds", "Since the start"), uptime),
        one(Family::counter("reloads", "Changed configurations that were taken"), reloads),
        one(
            Family::counter("made_packets", "Packets made inside: errors, fragments, copies"),
            ledger.made as f64,
        ),
        one(
            Family::counter("consumed_packets", "Packets that ended inside on purpose"),
            ledger.consumed as f64,
        ),
        one(Family::gauge("held_packets", "Packets inside now"), ledger.held as f64),
    ];
    // What the system does not say, and what is not there.
    families.retain(|family| !family.is_empty());
    families
}

/// Where the system says it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Drops by reason and place, where there are any; and by reason alone, every one of them from the start, so that what falls first is a rise from 0, too.
fn dropped(service: &Service, snapshot: &Snapshot) -> [Family; 2] {
    let mut sums: BTreeMap<&str, u64> = DropReason::ALL.iter().map(|reason| (reason.name(), 0)).collect();
    let mut family = Family::counter("dropped_packets", "Packets dropped, by reason and place");
    each_drop(service, snapshot, |reason, count, at| {
        *sums.entry(reason.name()).or_default() += count;
        family.add(&[("reason", reason.name()), ("at", at)], count)
    });
    let mut by_reason = Family::counter("drops", "Packets dropped, by reason, wherever");
    sums.into_iter().for_each(|(reason, count)| by_reason.add(&[("reason", reason)], count));
    [family, by_reason]
}

fn workers(service: &Service) -> [Family; 5] {
    let mut busy = Family::counter("worker_busy_seconds", "Time in turns that moved packets");
    let mut asleep = Family::counter("worker_asleep_seconds", "Time asleep");
    let mut frames = Family::gauge("worker_frames", "Frames of packet memory");
    let mut free = Family::gauge("worker_free_frames", "Those of them that hold no packet");
    let mut unbound = Family::gauge("worker_unbound", "Whether the system refused the worker its CPU");
    for (worker, snapshot) in service.handle.per_worker().iter().enumerate() {
        let index = worker.to_string();
        let labels = [("worker", index.as_str())];
        busy.add_f64(&labels, snapshot.busy_ns as f64 / 1e9);
        asleep.add_f64(&labels, snapshot.slept_ns as f64 / 1e9);
        frames.add(&labels, snapshot.pool.frames as u64);
        free.add(&labels, snapshot.pool.free as u64);
        unbound.add(&labels, u64::from(service.handle.unbound(worker).is_some()));
    }
    [busy, asleep, frames, free, unbound]
}
