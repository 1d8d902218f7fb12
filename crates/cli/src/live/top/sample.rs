//! What `top` knows: the router's counters at two moments, and the rates between them.

use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;
use tidemill_control::schema::{
    Direction, DropCount, Drops, Link, Neighbors, Node, Nodes, Port, Ports, Summary, Worker, Workers, path,
};
use tidemill_control::{Client, ClientError};

/// Everything that is looked at, at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Seconds on the watcher's own clock.
    pub(super) at_s: f64,
    pub(super) summary: Summary,
    pub(super) ports: Vec<Port>,
    pub(super) workers: Vec<Worker>,
    pub(super) drops: Vec<DropCount>,
    pub(super) nodes: Vec<Node>,
    /// Neighbors by interface, then by state.
    pub(super) neighbors: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Sample {
    /// Asks for everything.
    pub(super) fn take(client: &Client, start: Instant) -> Result<Sample, ClientError> {
        let summary: Summary = client.get(path::SUMMARY, &())?;
        let at_s = start.elapsed().as_secs_f64();
        let Ports { ports } = client.get(path::PORTS, &())?;
        let Workers { workers } = client.get(path::WORKERS, &())?;
        let Drops { drops } = client.get(path::DROPS, &())?;
        let Nodes { nodes } = client.get(path::NODES, &())?;
        // A service without neighbors is watched all the same.
        let Neighbors { neighbors: all } = match client.get(path::NEIGHBORS, &()) {
            Err(ClientError::Answer { status: 404, .. }) => Neighbors::default(),
            answer => answer?,
        };
        let mut neighbors: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for neighbor in all {
            *neighbors.entry(neighbor.interface).or_default().entry(neighbor.state).or_default() += 1;
        }
        Ok(Sample { at_s, summary, ports, workers, drops, nodes, neighbors })
    }
}

/// Rates, ready to be shown.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Rates {
    /// Seconds between the two moments; 0 if there is only one.
    pub(super) over_s: f64,
    pub(super) in_pps: f64,
    pub(super) in_bps: f64,
    pub(super) out_pps: f64,
    pub(super) out_bps: f64,
    pub(super) dropped_pps: f64,
    pub(super) ports: Vec<PortRate>,
    pub(super) drops: Vec<DropRate>,
    pub(super) workers: Vec<WorkerRate>,
    pub(super) nodes: Vec<NodeRate>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct PortRate {
    pub(super) name: String,
    pub(super) link: Option<Link>,
    pub(super) in_pps: f64,
    pub(super) in_bps: f64,
    pub(super) out_pps: f64,
    pub(super) out_bps: f64,
    pub(super) dropped_pps: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct DropRate {
    pub(super) reason: String,
    pub(super) at: String,
    pub(super) pps: f64,
    pub(super) packets: u64,
    pub(super) help: String,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct WorkerRate {
    pub(super) index: u32,
    pub(super) cpu: Option<u32>,
    pub(super) node: Option<u32>,
    pub(super) stage: u32,
    pub(super) busy_percent: f64,
    pub(super) asleep_percent: f64,
    pub(super) in_pps: f64,
    pub(super) pool_free: u64,
    pub(super) pool_frames: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct NodeRate {
    pub(super) name: String,
    pub(super) pps: f64,
    pub(super) per_burst: f64,
    pub(super) ns_per_packet: f64,
    pub(super) dropped_pps: f64,
}

impl Rates {
    /// The rates from `old` to `new`: all 0 if there is no old one, or if it is of another run.
    pub(super) fn between(old: Option<&Sample>, new: &Sample) -> Rates {
        let old = old.filter(|old| old.summary.started_ns == new.summary.started_ns && old.at_s < new.at_s);
        let over_s = old.map_or(0.0, |old| new.at_s - old.at_s);
        // What was not there before has begun with 0; without an old sample nothing has a rate.
        let rate = |new: u64, old: u64| match over_s {
            0.0 => 0.0,
            seconds => new.saturating_sub(old) as f64 / seconds,
        };
        let nothing = Sample::default();
        let old = old.unwrap_or(&nothing);
        let mut rates = Rates {
            over_s,
            in_pps: rate(new.summary.received, old.summary.received),
            in_bps: 8.0 * rate(new.summary.in_bytes, old.summary.in_bytes),
            out_pps: rate(new.summary.out, old.summary.out),
            out_bps: 8.0 * rate(new.summary.out_bytes, old.summary.out_bytes),
            dropped_pps: rate(total(&new.summary.dropped), total(&old.summary.dropped)),
            ..Rates::default()
        };
        for port in &new.ports {
            let none = Port::default();
            let was = old.ports.iter().find(|old| old.name == port.name).unwrap_or(&none);
            let lost = |direction: &Direction| total(&direction.dropped);
            rates.ports.push(PortRate {
                name: port.name.clone(),
                link: port.link,
                in_pps: rate(port.rx.packets, was.rx.packets),
                in_bps: 8.0 * rate(port.rx.bytes, was.rx.bytes),
                out_pps: rate(port.tx.packets, was.tx.packets),
                out_bps: 8.0 * rate(port.tx.bytes, was.tx.bytes),
                dropped_pps: rate(lost(&port.rx) + lost(&port.tx), lost(&was.rx) + lost(&was.tx)),
            });
        }
        for drop in &new.drops {
            let was = old.drops.iter().find(|old| (&old.reason, &old.at) == (&drop.reason, &drop.at));
            rates.drops.push(DropRate {
                reason: drop.reason.clone(),
                at: drop.at.clone(),
                pps: rate(drop.count, was.map_or(0, |was| was.count)),
                packets: drop.count,
                help: drop.help.clone(),
            });
        }
        // Those that grow come first.
        rates.drops.sort_by(|a, b| b.pps.total_cmp(&a.pps).then(b.packets.cmp(&a.packets)));
        rates.workers = new.workers.iter().map(worker).collect();
        for node in &new.nodes {
            let was = old.nodes.iter().find(|old| old.name == node.name);
            rates.nodes.push(node_rate(node, was, rate));
        }
        let load = |node: &NodeRate| node.pps * node.ns_per_packet;
        rates.nodes.sort_by(|a, b| load(b).total_cmp(&load(a)));
        rates
    }
}

fn worker(worker: &Worker) -> WorkerRate {
    WorkerRate {
        index: worker.index,
        cpu: worker.cpu,
        node: worker.node,
        stage: worker.stage,
        busy_percent: worker.busy_percent,
        asleep_percent: worker.asleep_percent,
        in_pps: worker.rx_pps,
        pool_free: worker.pool_free,
        pool_frames: worker.pool_frames,
    }
}

/// The node's figures over the interval; its means since the start where the interval saw no packet.
fn node_rate(node: &Node, was: Option<&Node>, rate: impl Fn(u64, u64) -> f64) -> NodeRate {
    let none = Node::default();
    let was = was.unwrap_or(&none);
    let packets = node.packets.saturating_sub(was.packets);
    let calls = node.calls.saturating_sub(was.calls);
    let ns = |node: &Node| node.ns_per_packet * node.packets as f64;
    let (ns_per_packet, per_burst) = if packets == 0 {
        (node.ns_per_packet, node.packets as f64 / node.calls.max(1) as f64)
    } else {
        ((ns(node) - ns(was)).max(0.0) / packets as f64, packets as f64 / calls.max(1) as f64)
    };
    NodeRate {
        name: node.name.clone(),
        pps: rate(node.packets, was.packets),
        per_burst,
        ns_per_packet,
        dropped_pps: rate(total(&node.dropped), total(&was.dropped)),
    }
}

fn total(dropped: &BTreeMap<String, u64>) -> u64 {
    dropped.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: f64, packets: u64, started_ns: u64) -> Sample {
        let node =
            Node { name: "ip4".into(), packets, calls: packets / 10, ns_per_packet: 20.0, ..Node::default() };
        let drop = |reason: &str, count| DropCount { reason: reason.into(), count, ..DropCount::default() };
        let rx = Direction { packets, bytes: packets * 100, ..Direction::default() };
        Sample {
            at_s,
            summary: Summary { received: packets, started_ns, ..Summary::default() },
            ports: vec![Port { name: "left".into(), rx, ..Port::default() }],
            drops: vec![drop("constant", 1_000_000), drop("growing", packets / 2)],
            nodes: vec![Node { name: "idle".into(), ..Node::default() }, node],
            ..Sample::default()
        }
    }

    #[test]
    fn rates_are_differences_by_time() {
        let rates = Rates::between(Some(&sample(1.0, 1000, 7)), &sample(3.0, 5000, 7));
        assert_eq!((rates.over_s, rates.in_pps, rates.ports[0].in_bps), (2.0, 2000.0, 1_600_000.0));
        assert_eq!((rates.drops[0].reason.as_str(), rates.drops[0].pps), ("growing", 1000.0));
        assert_eq!((rates.drops[1].reason.as_str(), rates.drops[1].pps), ("constant", 0.0));
        let node = &rates.nodes[0];
        assert_eq!((node.name.as_str(), node.ns_per_packet, node.per_burst), ("ip4", 20.0, 10.0));
    }

    #[test]
    fn a_restarted_router_begins_anew() {
        for old in [None, Some(sample(1.0, 9000, 6)), Some(sample(3.0, 1000, 7))] {
            let rates = Rates::between(old.as_ref(), &sample(3.0, 5000, 7));
            assert_eq!((rates.over_s, rates.in_pps), (0.0, 0.0));
        }
    }

    #[test]
    fn counters_that_went_back_have_no_rate() {
        let rates = Rates::between(Some(&sample(1.0, 9000, 7)), &sample(3.0, 5000, 7));
        assert_eq!(rates.in_pps, 0.0);
    }
}
