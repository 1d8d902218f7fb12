//! The router's part of the configuration, as written; [`Settings`](crate::settings::Settings) is what it comes to.
//!
//! The doc comments here are the text of the JSON schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_ip::queue::Bandwidth;
use tidemill_ip::{Martians, Owner};

/// The router's tables of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouterConfig {
    /// Addresses and link parameters of ports and of their VLANs. A port that has no entry gets the defaults and no
    /// address.
    pub interface: Vec<InterfaceConfig>,
    /// How the router looks up, filters and reports.
    pub router: RouterSection,
    /// Which kernel tables feed which VRFs (virtual routing and forwarding). Interfaces that name a VRF are routed by a
    /// table of its own; it needs no entry here.
    pub vrf: Vec<VrfConfig>,
    /// Static routes; they win over the same prefixes from anywhere but our own addresses and links. One whose links are
    /// all down waits for one of them; the next best route is used then.
    pub route: Vec<RouteConfig>,
    /// Queues in front of ports, for links on the path between Gatekeepers and Grantors.
    pub queue: Vec<QueueConfig>,
    /// How neighbors are found (ARP, neighbor discovery).
    pub neighbors: NeighborsSection,
    /// What comes live from the kernel (BIRD, FRR or `ip route` feed it).
    pub kernel: Option<KernelSection>,
    /// What single labels of the table stand for.
    pub next_hop: Vec<NextHopConfig>,
    /// The rule for every next hop that has no entry of its own. Without it, packets routed to such a next hop are
    /// dropped as `next-hop-unknown`.
    pub next_hops: Option<NextHopsSection>,
}

impl RouterConfig {
    /// Keys that cannot change while packets flow, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 9] {
        [
            ("router.algorithm", self.router.algorithm == other.router.algorithm),
            ("router.algorithm6", self.router.algorithm6 == other.router.algorithm6),
            ("router.coalesce_tcp", self.router.coalesce_tcp == other.router.coalesce_tcp),
            ("router.offload", self.router.offload == other.router.offload),
            ("router.offload_mb", self.router.offload_mb == other.router.offload_mb),
            ("vrf", self.vrf == other.vrf),
            ("neighbors.limit", self.neighbors.limit == other.neighbors.limit),
            ("kernel", self.kernel == other.kernel),
            ("queue", self.queue == other.queue),
        ]
    }
}

/// One port, or one VLAN of a port, as an interface of the router.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// The port's name.
    pub port: String,
    /// The interface's name. Default: the port's, or `PORT.VLAN`.
    #[serde(default)]
    pub name: Option<String>,
    /// The VLAN id (802.1Q), 1 to 4094: a sub-interface of the port.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// The VRF whose table routes what comes in here. Default: the one without a name.
    #[serde(default)]
    pub vrf: Option<String>,
    /// Who answers for the addresses: `"us"`, or `"kernel"`, whose addresses are then taken over as they come and go.
    #[serde(default)]
    pub owner: Owner,
    /// Whether neighbors are asked for their MAC addresses (ARP, ND). Default: true for network devices, false for
    /// captures, generators and null ports, on which nobody answers.
    #[serde(default)]
    pub resolve: Option<bool>,
    /// Our addresses on this link with the length of its prefix: `"192.0.2.1/24"`, `"2001:db8::1/64"`. The first of
    /// each family is the source of ICMP errors about packets that came in here.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Our MAC address, `"02:00:00:00:00:01"`. Default: the device's; of ports that are none `02:49:00:00` and the
    /// port's number, from 0.
    #[serde(default)]
    pub mac: Option<String>,
    /// The longest IP packet in bytes that the link takes, 68 to 65535; at least 1280 for IPv6. Default: the device's,
    /// or 1500.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Whether frames to any MAC address are taken. Default: true for ports that read a capture, else false.
    #[serde(default)]
    pub promiscuous: Option<bool>,
}

/// A VRF that the kernel feeds.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VrfConfig {
    /// Its name.
    pub name: String,
    /// The number of the kernel's routing table that feeds it (`[kernel] routes = true`).
    #[serde(default)]
    pub table: Option<u32>,
}

/// A static route.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The prefix: `"192.0.2.0/24"`, `"2001:db8::/32"`.
    pub prefix: String,
    /// The VRF. Default: the one without a name.
    #[serde(default)]
    pub vrf: Option<String>,
    /// The next hop's address; several are equal-cost paths. `"192.0.2.1"`, `"fe80::1%lan"`, `"192.0.2.1@3"` (weight 3).
    #[serde(default)]
    pub via: Option<OneOrMany>,
    /// The interface to send by: with `via` where none of our prefixes holds its address, without `via` for a prefix that
    /// is on that link.
    #[serde(default)]
    pub port: Option<String>,
    /// What happens to packets.
    #[serde(default)]
    pub kind: NextHopKind,
    /// The neighbor's MAC address, instead of `via`. On ports without neighbors the default is derived from the label,
    /// see `next_hops.mac`.
    #[serde(default)]
    pub mac: Option<String>,
}

/// One text or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All of them.
    pub fn texts(&self) -> &[String] {
        match self {
            OneOrMany::One(text) => std::slice::from_ref(text),
            OneOrMany::Many(texts) => texts,
        }
    }
}

/// What comes live from the kernel.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KernelSection {
    /// Whether its routes do. Links, and the addresses of interfaces that it owns, always do.
    pub routes: bool,
    /// The number of the routing table that feeds the VRF without a name; 254 is `main`.
    pub table: u32,
    /// Bytes of kernel memory in which messages wait that have not been read yet. When it overflows, everything is read
    /// again. Default: 64 MiB.
    pub receive_buffer: Option<usize>,
}

impl Default for KernelSection {
    fn default() -> Self {
        KernelSection { routes: true, table: 254, receive_buffer: None }
    }
}

/// The queue in front of a port: what leaves there is told apart by DSCP (1, 2: granted; 3 to 63 on IP in IP: requests; all else:
/// operational), and each class has its share of the link.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// The port's name.
    pub port: String,
    /// The link's rate: `"10 Gbps"`, `"100 Mbps"`, or bits per second; from 64 kbps.
    pub rate: Bandwidth,
    /// The part of the link that is kept for operational packets, 0 to 0.5.
    #[serde(default = "five_percent")]
    pub operational_share: f64,
    /// The part of the link that requests have at most, 0 to 0.5.
    #[serde(default = "five_percent")]
    pub request_share: f64,
    /// Operational packets that may wait on each worker.
    #[serde(default = "operational_packets")]
    pub operational_packets: usize,
    /// Requests that may wait on each worker; the lowest priority gives way.
    #[serde(default = "request_packets")]
    pub request_packets: usize,
    /// Granted packets that may wait on each worker.
    #[serde(default = "granted_packets")]
    pub granted_packets: usize,
    /// Queues for granted packets, chosen by a hash of the destination.
    #[serde(default = "granted_queues")]
    pub granted_queues: usize,
    /// Average length in packets from which on such a queue drops some packets early (RED).
    #[serde(default = "red_min")]
    pub red_min: f64,
    /// Average length from which on it drops all.
    #[serde(default = "red_max")]
    pub red_max: f64,
    /// The probability of an early drop just below `red_max`.
    #[serde(default = "red_probability")]
    pub red_probability: f64,
    /// The weight of one packet in the average, to 1.
    #[serde(default = "red_weight")]
    pub red_weight: f64,
    /// Seconds after which the hash changes; 0 never.
    #[serde(default = "reseed_s")]
    pub reseed_s: f64,
    /// What all that is random begins with. Default: 0 where time comes from captures, else another one in each run.
    #[serde(default)]
    pub seed: Option<u64>,
}

impl QueueConfig {
    /// Packets that may wait on each worker.
    pub fn packets(&self) -> usize {
        self.operational_packets.saturating_add(self.request_packets).saturating_add(self.granted_packets)
    }
}

fn five_percent() -> f64 {
    0.05
}

fn operational_packets() -> usize {
    256
}

fn request_packets() -> usize {
    512
}

fn granted_packets() -> usize {
    2048
}

fn granted_queues() -> usize {
    32
}

fn red_min() -> f64 {
    16.0
}

fn red_max() -> f64 {
    48.0
}

fn red_probability() -> f64 {
    0.1
}

fn red_weight() -> f64 {
    0.002
}

fn reseed_s() -> f64 {
    10.0
}

/// How neighbors are found.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NeighborsSection {
    /// Seconds that a neighbor is believed before it is asked again, on average.
    pub reachable_s: f64,
    /// Seconds between questions.
    pub retransmit_s: f64,
    /// Questions before a neighbor is given up, and packets that wait for it with it; 1 to 20.
    pub attempts: u32,
    /// The most neighbors to know, 16 to 1,048,576. Those that have been silent longest give way.
    pub limit: usize,
    /// Unknown neighbors that each worker may ask for per second; also how many at once. A fifth more is kept for
    /// destinations that are asked for again after a refusal: hosts do that, scans do not.
    pub rate_per_s: u32,
    /// Unknown neighbors that each worker may ask for per second on behalf of one source (an IPv4 address, an IPv6
    /// /64); also how many at once.
    pub rate_per_source_per_s: u32,
    /// Neighbors that are known without asking.
    pub fixed: Vec<FixedNeighbor>,
}

impl Default for NeighborsSection {
    fn default() -> Self {
        NeighborsSection {
            reachable_s: 30.0,
            retransmit_s: 1.0,
            attempts: 3,
            limit: 65_536,
            rate_per_s: 10_000,
            rate_per_source_per_s: 100,
            fixed: Vec::new(),
        }
    }
}

/// A neighbor that is known without asking.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedNeighbor {
    /// The interface's name.
    pub interface: String,
    /// Its address.
    pub address: std::net::IpAddr,
    /// Its MAC address.
    pub mac: String,
}

/// How the router looks up, filters and reports.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouterSection {
    /// The lookup structure for IPv4: `"auto"`, or `"dxr-d16x4r"`, `"dxr-d18r"` (or another layout: `"dxr-d12x6r"`), `"popdir-d16x3"`,
    /// `"popdir-d19"`, `"rangetrie-d16"`, `"rangetrie-d20"`, `"poptrie-d18"` (or with another root: `"rangetrie-d12"`, `"poptrie-d16"`).
    /// Those of the literature, to be compared with, take twice the memory while routes change: `"binary-trie"`,
    /// `"patricia"`, `"dir-24-8"`, `"tree-bitmap"`, `"lc-trie"`, `"sail-b"`, `"sail-u"`, `"sail-l"`, `"sail-l8"` (for 254 next hops; the
    /// router does not start with more, and refuses routes that would need more), `"sail-lv"`, `"sail-m"`, `"lulea-1997"`. And these hash without
    /// a key, so that whoever announces routes can make them slow: `"hash-per-length"`, `"cuvpp"`, `"bloom-lpm"`, `"two-way-trie"`,
    /// `"length-search"`, `"pbf"`, `"cuvpp-simd"`, `"cuvpp-lengths"`.
    pub algorithm: String,
    /// The lookup structure for IPv6: `"auto"`, or `"lulea"`, `"rangetrie-d16"`, `"rangetrie-d20"`, `"poptrie-d18"` (or with another
    /// root: `"rangetrie-d12"`, `"poptrie-d16"`); of the literature `"binary-trie"`, `"patricia"`, `"sail-l"` (for tables with few prefixes
    /// beyond /48), `"sail-hybrid"`, `"tree-bitmap"`, `"lc-trie"`, and, which hash without a key, `"hash-per-length"`, `"cuvpp"`, `"bloom-lpm"`,
    /// `"two-way-trie"`, `"length-search"`, `"pbf"`, `"cuvpp-simd"`, `"cuvpp-lengths"`.
    pub algorithm6: String,
    /// Milliseconds that `"auto"` may measure for, per family, in tables of 10,000 prefixes or more. 0 measures nothing: what
    /// usually is the fastest, the same every time. Runs whose time comes from captures never measure. Answers are the same
    /// either way.
    pub auto_ms: u32,
    /// Milliseconds for which changes of routes (from the kernel, from update files) are collected after some have been
    /// applied; of several changes to one prefix only the last then costs anything. 0 applies what has come at every
    /// round of the control thread: each millisecond, or as soon as the changes before are done.
    pub coalesce_ms: u32,
    /// Whether TCP segments of one flow that come together are looked up and forwarded as one long packet, and leave as the
    /// segments that they were. Pays where each packet costs much more than its bytes, which plain routing does not; wants a
    /// `memory.frame_size` of 16384 or 32768.
    pub coalesce_tcp: bool,
    /// Which impossible addresses are dropped.
    pub martians: Martians,
    /// ICMP errors that each worker may send per second; also how many it may send at once. 0 sends none.
    pub icmp_rate_per_s: u32,
    /// ICMP errors that each worker may send per second towards one prefix (/24, /48); also how many at once.
    pub icmp_rate_per_prefix_per_s: u32,
    /// TTL and hop limit of packets that the router itself sends, at least 1.
    pub ttl: u8,
    /// What forwards packets before they come in here. Traces, captures and the counters of ports do not see what is forwarded there.
    pub offload: OffloadKind,
    /// MiB of the kernel's memory for the routes of an offload, of which there are two copies, 8 to 4096. Default: what the routes at the start
    /// take, twice over, and at least 16; with `[bgp]`, `[kernel]` or `[state]` at least 128, for they bring more later.
    pub offload_mb: Option<u32>,
}

/// What forwards packets before they come in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OffloadKind {
    /// Nothing.
    #[default]
    None,
    /// An XDP program on the ports' network interfaces, in their drivers where these can (Linux; feature `xdp`). What it
    /// does not forward comes in as ever. Where it cannot be loaded the router says why, and forwards without it.
    Xdp,
}

impl Default for RouterSection {
    fn default() -> Self {
        RouterSection {
            algorithm: "auto".into(),
            algorithm6: "auto".into(),
            auto_ms: tidemill_lpm::auto::BUDGET.as_millis() as u32,
            coalesce_ms: 0,
            coalesce_tcp: false,
            martians: Martians::Standard,
            icmp_rate_per_s: 1000,
            icmp_rate_per_prefix_per_s: 100,
            ttl: 64,
            offload: OffloadKind::None,
            offload_mb: None,
        }
    }
}

/// What one label of the routing table stands for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NextHopConfig {
    /// The label, from 1. Give this or `name`.
    pub label: Option<u32>,
    /// The next hop as the table file names it. Give this or `label`.
    pub name: Option<String>,
    /// What happens to packets.
    pub kind: NextHopKind,
    /// The interface to send by (`kind = "forward"` only).
    pub port: Option<String>,
    /// The gateway's address (`kind = "forward"` only), to be resolved.
    pub via: Option<String>,
    /// The neighbor's MAC address (`kind = "forward"` only). Default: derived from the label, see `next_hops.mac`.
    pub mac: Option<String>,
}

/// What happens to packets of a next hop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NextHopKind {
    /// Sent to the neighbor.
    #[default]
    Forward,
    /// Dropped, and the sender is told that the host cannot be reached.
    Unreachable,
    /// Dropped silently.
    Blackhole,
    /// Dropped, and the sender is told that an administrator forbids it.
    Prohibited,
    /// Delivered to the router itself.
    Local,
}

/// The rule for every next hop that has no entry of its own.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextHopsSection {
    /// The ports to send by: label n goes to number n modulo their count.
    pub ports: Vec<String>,
    /// Where the neighbor's MAC address comes from.
    #[serde(default)]
    pub mac: MacRule,
}

/// Where a neighbor's MAC address comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MacRule {
    /// `02:54` and the label in four bytes, so that whoever reads the output sees the label. Stations on our own links
    /// (`interface.addresses`) have `02:43:00:00` and the port's number.
    #[default]
    Derived,
}

#[cfg(test)]
mod tests {
    use super::RouterConfig;

    #[test]
    fn the_schema_carries_the_comments() {
        let schema = schemars::schema_for!(RouterConfig).to_value().to_string();
        for text in
            ["for laboratory captures", "\"icmp_rate_per_s\"", "\"additionalProperties\":false", "blackhole"]
        {
            assert!(schema.contains(text), "{text}");
        }
    }
}
