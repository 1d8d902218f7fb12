//! What goes over the wire, as both sides see it.
//!
//! Answers may grow fields: clients leave out what they do not know and take defaults for what is missing. Requests may not:
//! an unknown field is an error, so that a misspelt one does not go unnoticed. Addresses, prefixes and MACs are texts in
//! their usual notation; times are in the unit that ends their names; names of drop reasons, nodes and ports are those of
//! the counters.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The paths of the verbs.
pub mod path {
    /// GET: [`Summary`](super::Summary).
    pub const SUMMARY: &str = "/v1/summary";
    /// GET: [`Ports`](super::Ports).
    pub const PORTS: &str = "/v1/ports";
    /// GET: [`Nodes`](super::Nodes).
    pub const NODES: &str = "/v1/nodes";
    /// GET: [`Workers`](super::Workers).
    pub const WORKERS: &str = "/v1/workers";
    /// GET: [`Drops`](super::Drops).
    pub const DROPS: &str = "/v1/drops";
    /// GET: [`Interfaces`](super::Interfaces).
    pub const INTERFACES: &str = "/v1/interfaces";
    /// GET: [`Neighbors`](super::Neighbors).
    pub const NEIGHBORS: &str = "/v1/neighbors";
    /// GET: [`Fibs`](super::Fibs).
    pub const FIB: &str = "/v1/fib";
    /// GET with [`RoutesQuery`](super::RoutesQuery): [`Routes`](super::Routes). POST of a
    /// [`RouteAdd`](super::RouteAdd), DELETE with [`RouteDelete`](super::RouteDelete): [`Done`](super::Done).
    pub const ROUTES: &str = "/v1/routes";
    /// GET: [`Queues`](super::Queues).
    pub const QUEUES: &str = "/v1/queues";
    /// GET: [`Offload`](super::Offload).
    pub const OFFLOAD: &str = "/v1/offload";
    /// GET: [`NextHops`](super::NextHops).
    pub const NEXT_HOPS: &str = "/v1/next-hops";
    /// GET: [`Kernel`](super::Kernel).
    pub const KERNEL: &str = "/v1/kernel";
    /// POST of a [`TraceAdd`](super::TraceAdd): [`Done`](super::Done). GET: [`Traces`](super::Traces).
    pub const TRACE: &str = "/v1/trace";
    /// GET with [`CaptureQuery`](super::CaptureQuery): a stream of pcapng.
    pub const CAPTURE: &str = "/v1/capture";
    /// GET: [`StateFile`](super::StateFile). POST: saves it; [`Done`](super::Done).
    pub const STATE: &str = "/v1/state";
    /// GET with [`EventsQuery`](super::EventsQuery): lines, each an [`Event`](super::Event).
    pub const EVENTS: &str = "/v1/events";
    /// GET: [`Tables`](super::Tables).
    pub const TABLES: &str = "/v1/tables";
    /// GET: [`Log`](super::Log). POST of a [`LogChange`](super::LogChange): the same, after it.
    pub const LOG: &str = "/v1/log";
    /// GET: [`Panels`](super::Panels).
    pub const PANELS: &str = "/v1/panels";
    /// POST: [`Done`](super::Done).
    pub const RELOAD: &str = "/v1/reload";
    /// POST: [`Done`](super::Done).
    pub const STOP: &str = "/v1/stop";
}

/// The content type of captures.
pub const PCAPNG: &str = "application/x-pcapng";

/// Declares structs of the wire: answers ([`Default`] for what is missing).
macro_rules! answers {
    ($($(#[$attribute:meta])* pub struct $name:ident { $($body:tt)* })*) => { $(
        $(#[$attribute])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(default)]
        pub struct $name { $($body)* }
    )* };
}

/// Declares structs of the wire: requests (unknown fields are errors; what is missing and optional is left out).
macro_rules! requests {
    ($($(#[$attribute:meta])* pub struct $name:ident { $($body:tt)* })*) => { $(
        $(#[$attribute])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($body)* }
    )* };
}

pub mod amp;
pub mod assets;
pub mod bgp;
mod events;
pub mod filter;
pub mod gate;
pub mod grantor;
pub mod ipfix;
pub mod kv;
mod log;
pub mod nat;
mod panel;
pub mod switch;

pub use events::{Event, EventKind, EventsQuery, Severity};
pub use log::{Log, LogChange, LogModule};
pub use panel::{Panel, PanelFamily, Panels, Sample, Table, Tables};

answers! {
    /// The verbs of a service: the answer to `GET /v1`.
    pub struct Verbs {
        /// The service's name.
        pub service: String,
        /// Its version.
        pub version: String,
        /// Its verbs, in the order of their registration.
        pub verbs: Vec<VerbsEntry>,
        /// The kinds of its events.
        pub events: Vec<EventKind>,
    }

    /// One verb.
    pub struct VerbsEntry {
        /// GET, POST or DELETE.
        pub method: String,
        /// Where.
        pub path: String,
        /// What it does, in a line.
        pub help: String,
        /// Whether the answer comes in pieces.
        pub stream: bool,
    }

    /// The whole in a few figures: `in + made = out + dropped + consumed + held`.
    pub struct Summary {
        /// Packets received by all ports.
        #[serde(rename = "in")]
        pub received: u64,
        /// Bytes of them.
        pub in_bytes: u64,
        /// Packets made inside: ICMP errors, fragments, ARP and ND.
        pub made: u64,
        /// Packets sent by all ports.
        pub out: u64,
        /// Bytes of them.
        pub out_bytes: u64,
        /// Packets that ended inside on purpose.
        pub consumed: u64,
        /// Packets inside now.
        pub held: u64,
        /// Packets dropped, by reason.
        pub dropped: BTreeMap<String, u64>,
        /// How long the service has run.
        pub seconds: f64,
        /// Million packets received per second since then.
        pub mpps: f64,
        /// Its version.
        pub version: String,
        /// Its configuration's file.
        pub config: String,
        /// When it was started, ns since the epoch.
        pub started_ns: u64,
        /// How often the configuration has been reloaded.
        pub reloads: u64,
    }

    /// All ports.
    pub struct Ports {
        /// In the order of the configuration.
        pub ports: Vec<Port>,
    }

    /// One port, summed over its queues.
    pub struct Port {
        /// Its name.
        pub name: String,
        /// The node (or `port:NAME`) that gets what it receives, if it receives.
        pub to: Option<String>,
        /// `af_packet`, `xdp`, `pcap`, ...
        pub kind: String,
        /// Whether the link is up; none where a port has no link.
        pub link: Option<Link>,
        /// Queues, each for one worker.
        pub queues: u32,
        /// Received.
        pub rx: Direction,
        /// Sent.
        pub tx: Direction,
        /// Packets that the port made (a fault injector's duplicates).
        pub made: u64,
        /// Packets inside the port now.
        pub held: u64,
        /// Packets left to the kernel by the port's rule; none where a port has no such rule.
        pub left: Option<u64>,
        /// Packets that came by queues of the device that nobody reads, and went to the kernel; none as above.
        pub unread: Option<u64>,
        /// Times that the device went away, by queue.
        pub lost: u64,
        /// Times that it came back and was opened anew, by queue.
        pub found: u64,
        /// Tries to open a queue that found it taken by another socket (EBUSY); told of `af_xdp` only.
        pub taken_by_others: u64,
        /// Frames that the device's driver has asked for in vain; told of `dpdk` only. No packets: those that are lost for it are
        /// among the drops where the device counts them.
        pub asked_in_vain: u64,
        /// What keeps the port from a device that is there (again), in a line; told of `af_xdp` only.
        pub hindered: Option<String>,
    }

    /// One direction of a port.
    pub struct Direction {
        /// Packets.
        pub packets: u64,
        /// Bytes.
        pub bytes: u64,
        /// Packets dropped by the port, by reason.
        pub dropped: BTreeMap<String, u64>,
    }

    /// The graph's nodes with their counters.
    pub struct Nodes {
        /// In the order of the graph.
        pub nodes: Vec<Node>,
    }

    /// One node, summed over the workers.
    pub struct Node {
        /// Its name.
        pub name: String,
        /// Bursts processed.
        pub calls: u64,
        /// Packets processed.
        pub packets: u64,
        /// Packets made there.
        pub made: u64,
        /// Packets that ended there on purpose.
        pub consumed: u64,
        /// Packets dropped there, by reason.
        pub dropped: BTreeMap<String, u64>,
        /// Mean time per packet, since the start.
        pub ns_per_packet: f64,
        /// Where its packets go.
        pub outputs: Vec<Output>,
    }

    /// One output of a node.
    pub struct Output {
        /// Its name in the node.
        pub name: String,
        /// The node (or `port:NAME`) behind it.
        pub to: String,
        /// Packets that left by it.
        pub packets: u64,
    }

    /// All workers.
    pub struct Workers {
        /// By number.
        pub workers: Vec<Worker>,
    }

    /// One worker thread.
    pub struct Worker {
        /// Its number.
        pub index: u32,
        /// The CPU that it is bound to, if it is.
        pub cpu: Option<u32>,
        /// The memory node of that CPU, if the system has nodes.
        pub node: Option<u32>,
        /// Its place in its chain of workers: 0 receives and sends.
        pub stage: u32,
        /// How much of the last second it was busy with packets, in percent.
        pub busy_percent: f64,
        /// How much of the last second it slept, in percent.
        pub asleep_percent: f64,
        /// Packets received, or taken over from the worker before it.
        pub packets: u64,
        /// The same per second, over the last second.
        pub rx_pps: f64,
        /// Frames that its pool has left.
        pub pool_free: u64,
        /// Frames that its pool has.
        pub pool_frames: u64,
        /// Why it is not on the CPU that it was to be bound to, in a line.
        pub unbound: Option<String>,
    }

    /// What was dropped, by reason and place.
    pub struct Drops {
        /// Those that occurred.
        pub drops: Vec<DropCount>,
    }

    /// Drops for one reason at one place.
    pub struct DropCount {
        /// The reason's stable name.
        pub reason: String,
        /// What it means for an operator.
        pub help: String,
        /// Packets.
        pub count: u64,
        /// The node, or `port:NAME`.
        pub at: String,
    }

    /// All interfaces.
    pub struct Interfaces {
        /// Ports first, VLANs behind them.
        pub interfaces: Vec<Interface>,
    }

    /// One interface: a port, or a VLAN of one.
    pub struct Interface {
        /// Its name.
        pub name: String,
        /// The port's name.
        pub port: String,
        /// The VLAN, if it is one.
        pub vlan: Option<u16>,
        /// The VRF that it belongs to.
        pub vrf: String,
        /// Its MAC.
        pub mac: String,
        /// Its MTU, bytes of IP.
        pub mtu: u32,
        /// Whose its addresses are: `us` or `kernel`.
        pub owner: String,
        /// Its addresses with prefix lengths.
        pub addresses: Vec<String>,
        /// Whether it works.
        pub up: bool,
    }

    /// What is done with packets before they come in: a router's forwards, a Gatekeeper's drops and forwards.
    pub struct Offload {
        /// Whether there is one.
        pub enabled: bool,
        /// Changes of routes, next hops and ports (and policies) that it has taken over, of several at once one.
        pub generations: u64,
        /// Memory of the tables that it forwards by, in bytes.
        pub bytes: u64,
        /// What a Gatekeeper's has done with declined flows.
        pub declined: Option<OffloadDeclined>,
        /// What a Gatekeeper's has done with packets that nobody judges.
        pub bypass: Option<OffloadBypass>,
        /// Of each port that it is on or sends by. No counter of the ports has any of these packets but those that are left to the router.
        pub ports: Vec<OffloadPort>,
    }

    /// What an offload has done at one port: frames that came are `forwarded`, or in `left`.
    pub struct OffloadPort {
        /// The port's name.
        pub port: String,
        /// Packets that came in by it and were forwarded.
        pub forwarded: u64,
        /// Their bytes.
        pub forwarded_bytes: u64,
        /// Packets that came in by it and were left to the router, by why.
        pub left: BTreeMap<String, u64>,
        /// Packets that were sent by it, wherever they came in.
        pub sent: u64,
        /// Their bytes.
        pub sent_bytes: u64,
    }

    /// Declined flows, as far as an offload drops them.
    pub struct OffloadDeclined {
        /// Flows that it drops now, or did until a second ago.
        pub flows: u64,
        /// How many there is room for.
        pub room: u64,
        /// Flows that it was told of and had no room for, each as often as it was told.
        pub refused: u64,
        /// Packets that it has dropped: no counter of the ports has them.
        pub dropped: u64,
        /// Their bytes, from the Ethernet header on.
        pub dropped_bytes: u64,
        /// Packets that were declined, by a decision or a policy, when they had come in.
        pub above: u64,
        /// The part of all these that it has dropped, from 0 to 1; none while there are none.
        pub hit_rate: Option<f64>,
        /// Where it is to be.
        pub interfaces: Vec<OffloadInterface>,
    }

    /// Packets that a Gatekeeper does not judge, as far as an offload forwards them: from the back, and from the front to where the policy says route.
    pub struct OffloadBypass {
        /// Packets that it has forwarded: no counter of the ports has them.
        pub forwarded: u64,
        /// Their bytes, from the Ethernet header on.
        pub forwarded_bytes: u64,
        /// Such packets that it has left to user space: to us, to a neighbor that is not known, with options, too long, ...
        pub above: u64,
        /// The part of all these that it has forwarded, from 0 to 1; none while there are none.
        pub hit_rate: Option<f64>,
    }

    /// An interface of an offload.
    pub struct OffloadInterface {
        /// The port's name.
        pub port: String,
        /// The interface's name.
        pub interface: String,
        /// Where the program is: `native` (in the driver), `generic` (behind it), or nowhere now.
        pub mode: Option<String>,
    }

    /// The queues in front of ports.
    pub struct Queues {
        /// In the order of the configuration.
        pub queues: Vec<Queue>,
    }

    /// The queue in front of one port, all workers together.
    pub struct Queue {
        /// The port's name.
        pub port: String,
        /// The link's rate.
        pub bits_per_s: u64,
        /// `operational`, `requests`, `granted`.
        pub classes: Vec<QueueClass>,
    }

    /// One class of packets: `arrived = sent + dropped + waiting`. Bytes are those on the wire.
    pub struct QueueClass {
        /// Its name.
        pub class: String,
        /// Packets that came.
        pub arrived: u64,
        /// Packets that left.
        pub sent: u64,
        /// Bytes of them.
        pub sent_bytes: u64,
        /// Packets that wait.
        pub waiting: u64,
        /// Bytes of them.
        pub waiting_bytes: u64,
        /// Packets dropped, by reason.
        pub dropped: BTreeMap<String, u64>,
        /// Microseconds that those that left had waited on average.
        pub wait_mean_us: Option<f64>,
        /// Microseconds that half of them had waited at most, to a factor of two.
        pub wait_p50_us: Option<f64>,
        /// The same of 99 in 100.
        pub wait_p99_us: Option<f64>,
        /// The longest wait.
        pub wait_max_us: Option<f64>,
        /// Packets that left by their wait: the first did not wait, the n-th waited from 2^(n-2) ns to below 2^(n-1).
        pub waits: Vec<u64>,
        /// Requests by priority, those that have been seen; empty for the other classes.
        pub levels: Vec<QueueLevel>,
    }

    /// Requests of one priority.
    pub struct QueueLevel {
        /// The outer DSCP, 3 to 63; the higher goes first.
        pub dscp: u8,
        /// Requests that came.
        pub arrived: u64,
        /// Requests that left.
        pub sent: u64,
        /// Requests that wait.
        pub waiting: u64,
        /// Requests dropped, by reason.
        pub dropped: BTreeMap<String, u64>,
        /// Microseconds that those that left had waited on average.
        pub wait_mean_us: Option<f64>,
        /// The longest wait.
        pub wait_max_us: Option<f64>,
    }

    /// All neighbors.
    pub struct Neighbors {
        /// By interface and address.
        pub neighbors: Vec<Neighbor>,
    }

    /// One neighbor (ARP or ND).
    pub struct Neighbor {
        /// The interface that it is behind.
        pub interface: String,
        /// Its address.
        pub address: String,
        /// Its MAC, once it is known.
        pub mac: Option<String>,
        /// `incomplete`, `reachable`, `stale`, `delay`, `probe`, `failed`, `permanent`.
        pub state: String,
        /// Seconds since it was last confirmed.
        pub age_s: f64,
        /// How we know it: `learned`, `static`, `kernel`.
        pub kind: String,
    }

    /// The lookup structures.
    pub struct Fibs {
        /// By VRF and family.
        pub fibs: Vec<Fib>,
    }

    /// One lookup structure.
    pub struct Fib {
        /// The VRF.
        pub vrf: String,
        /// 4 or 6.
        pub family: u8,
        /// The structure's name.
        pub algorithm: String,
        /// Why `auto` has chosen it; empty if the configuration names it.
        pub why: String,
        /// Prefixes in it.
        pub prefixes: u64,
        /// Its memory.
        pub bytes: u64,
        /// Those of the bytes that are shared: the same for all VRFs of the family that share.
        pub shared_bytes: u64,
        /// Distinct next hops.
        pub next_hops: u64,
        /// How often it has been published.
        pub generation: u64,
    }

    /// A page of routes.
    pub struct Routes {
        /// By VRF, family and prefix; of several sources of a prefix, the preferred one first.
        pub routes: Vec<Route>,
        /// If there are more: what [`RoutesQuery::after`] has to say to get them.
        pub next: Option<String>,
    }

    /// One source's route to a prefix.
    pub struct Route {
        /// The VRF.
        pub vrf: String,
        /// The prefix.
        pub prefix: String,
        /// Who says so: `local`, `connected`, `static`, `kernel`, `table`, `neighbor`, ...
        pub source: String,
        /// `forward`, `local`, `glean`, `blackhole`, `unreachable`, `prohibited`, ...
        pub kind: String,
        /// Equal-cost paths; none for kinds that forward nothing.
        pub next_hops: Vec<RoutePath>,
        /// Whether packets go by this one: it is the preferred source's.
        pub best: bool,
    }

    /// One path of a route.
    pub struct RoutePath {
        /// The interface, once it is known.
        pub interface: Option<String>,
        /// The gateway; none if the destination is on the link itself.
        pub via: Option<String>,
        /// Its weight among equals.
        pub weight: u32,
        /// Its neighbor's state, or why it cannot be used.
        pub state: String,
    }

    /// All next hops that routes point to.
    pub struct NextHops {
        /// By label.
        pub next_hops: Vec<NextHop>,
    }

    /// One next hop, as the lookup's label names it.
    pub struct NextHop {
        /// The label.
        pub label: u32,
        /// `forward`, `glean`, `unresolved`, `group`, `local`, `blackhole`, ...
        pub kind: String,
        /// The interface, where there is one.
        pub interface: Option<String>,
        /// The gateway, where there is one.
        pub via: Option<String>,
        /// Its MAC, once it is known.
        pub mac: Option<String>,
        /// The MTU, bytes of IP; 0 where there is none.
        pub mtu: u32,
        /// Labels of the members, for a group.
        pub members: Vec<u32>,
    }

    /// What comes from the kernel by netlink.
    pub struct Kernel {
        /// Whether we follow the kernel at all.
        pub enabled: bool,
        /// Whether what we have is what the kernel has, as far as we know.
        pub in_sync: bool,
        /// Messages taken.
        pub messages: u64,
        /// Times that the kernel had to throw messages away because we were too slow.
        pub overruns: u64,
        /// Times that we asked for everything anew.
        pub resyncs: u64,
        /// IPv4 routes from there.
        pub routes4: u64,
        /// IPv6 routes from there.
        pub routes6: u64,
    }

    /// What outlives the process.
    pub struct StateFile {
        /// Whether there is a state file at all.
        pub enabled: bool,
        /// Where.
        pub path: String,
        /// Seconds between two images while routes change; 0: only on request and at the end.
        pub every_s: f64,
        /// Images written.
        pub saves: u64,
        /// Attempts that failed.
        pub failures: u64,
        /// Why the last one did, if it did.
        pub error: Option<String>,
        /// Seconds since the last image.
        pub age_s: Option<f64>,
        /// Whether routes have changed since.
        pub stale: bool,
        /// Its bytes.
        pub bytes: u64,
        /// IPv4 routes of the table in it.
        pub routes4: u64,
        /// IPv6 routes of the table in it.
        pub routes6: u64,
    }

    /// What has been traced since the last trace was asked for.
    pub struct Traces {
        /// In the order of time, per worker.
        pub entries: Vec<TraceEntry>,
        /// Entries that had no room.
        pub lost: u64,
    }

    /// One traced packet at one node.
    pub struct TraceEntry {
        /// Which packet, unique per worker.
        pub packet: u64,
        /// The worker.
        pub worker: u32,
        /// The time of its burst, ns since the epoch.
        pub time_ns: u64,
        /// The node, or `port:NAME`.
        pub at: String,
        /// The packet as the node left it.
        pub summary: String,
        /// What became of it there.
        pub verdict: String,
        /// What the node has to say about it.
        pub note: Option<String>,
    }

    /// All that a service counts, by name.
    pub struct Counters {
        /// Names and counts.
        pub counters: BTreeMap<String, u64>,
    }

    /// It is done.
    pub struct Done {
        /// What was done, in lines for a reader.
        pub done: Vec<String>,
    }
}

requests! {
    /// Which routes to show; all of them, if nothing is said.
    pub struct RoutesQuery {
        /// Only those to exactly this prefix, of every source.
        pub prefix: Option<String>,
        /// Only the longest match of this address, of every source.
        pub address: Option<String>,
        /// Only this VRF.
        pub vrf: Option<String>,
        /// At most so many; the service has a limit of its own.
        pub limit: Option<u32>,
        /// Those behind: what [`Routes::next`] said.
        pub after: Option<String>,
    }

    /// A static route. With neither `kind` nor paths it makes no sense, and neither does it with both.
    pub struct RouteAdd {
        /// To where.
        pub prefix: String,
        /// In which VRF; none is the one that every router has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vrf: Option<String>,
        /// Gateways; several are equal-cost paths.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub via: Vec<String>,
        /// The interface: where the gateways are (link-local ones need it), or where the destinations are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub dev: Option<String>,
        /// A route that forwards nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kind: Option<Refusal>,
    }

    /// Which static route to remove.
    pub struct RouteDelete {
        /// To where.
        pub prefix: String,
        /// In which VRF; none is the one that every router has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vrf: Option<String>,
    }

    /// Trace the next packets at a place. What was traced before is forgotten.
    pub struct TraceAdd {
        /// A node, or `port:NAME` for what a port receives.
        pub at: String,
        /// How many packets.
        pub packets: u32,
    }

    /// What to capture, and for how long; without a limit, until the client goes away.
    pub struct CaptureQuery {
        /// A node, for what reaches it, or `port:NAME`, for what a port receives and sends.
        pub at: String,
        /// Stop after so many packets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub packets: Option<u64>,
        /// Stop after so many seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub duration_s: Option<f64>,
        /// Keep so many bytes of a packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub snap: Option<u32>,
    }
}

/// Whether a link is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// It is.
    Up,
    /// It is not.
    Down,
    /// There is no such device: it is looked for.
    Away,
}

/// Routes that forward nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Refusal {
    /// Dropped without a word.
    Blackhole,
    /// Answered with "host unreachable".
    Unreachable,
    /// Answered with "administratively prohibited".
    Prohibited,
}

impl From<&str> for Done {
    fn from(line: &str) -> Self {
        Done { done: vec![line.to_owned()] }
    }
}

impl From<String> for Done {
    fn from(line: String) -> Self {
        Done { done: vec![line] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_and_newer_answers_are_understood() {
        let port: Port = serde_json::from_str(r#"{"name":"left","link":"up","colour":"red"}"#).unwrap();
        assert_eq!((port.name.as_str(), port.link, port.queues), ("left", Some(Link::Up), 0));
        let summary = serde_json::to_value(Summary { received: 3, ..Summary::default() }).unwrap();
        assert_eq!(summary["in"], 3);
    }

    #[test]
    fn requests_take_no_unknown_fields() {
        let add: RouteAdd = serde_json::from_str(r#"{"prefix":"10.0.0.0/8","kind":"blackhole"}"#).unwrap();
        assert_eq!(add.kind, Some(Refusal::Blackhole));
        assert!(serde_json::from_str::<RouteAdd>(r#"{"prefix":"10.0.0.0/8","kind":"hole"}"#).is_err());
        assert!(serde_json::from_str::<TraceAdd>(r#"{"at":"ip4-input","packet":1}"#).is_err());
    }
}
