//! The router's part of the configuration, as written; [`Settings`](crate::settings::Settings) is what it comes to.
//!
//! The doc comments here are the text of the JSON schema.

use schemars::JsonSchema;
use serde::Deserialize;

/// The router's tables of the configuration file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouterConfig {
    /// Addresses and link parameters of ports. A port that has no entry gets the defaults and no address.
    pub interface: Vec<InterfaceConfig>,
    /// How the router looks up, filters and reports.
    pub router: RouterSection,
    /// Single next hops.
    pub next_hop: Vec<NextHopConfig>,
    /// The rule for every next hop that has no entry of its own. Without it, packets routed to such a next hop are
    /// dropped as `next-hop-unknown`.
    pub next_hops: Option<NextHopsSection>,
}

/// One port as an interface of the router.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// The port's name.
    pub port: String,
    /// Our addresses on this link with the length of its prefix: `"192.0.2.1/24"`, `"2001:db8::1/64"`. The first of
    /// each family is the source of ICMP errors about packets that came in here.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Our MAC address, `"02:00:00:00:00:01"`. Default: `02:49:00:00` and the port's number, from 0.
    #[serde(default)]
    pub mac: Option<String>,
    /// The longest IP packet in bytes that the link takes, 68 to 65535; at least 1280 for IPv6.
    #[serde(default = "default_mtu")]
    pub mtu: u16,
    /// Whether frames to any MAC address are taken. Default: true for ports that read a capture, else false.
    #[serde(default)]
    pub promiscuous: Option<bool>,
}

fn default_mtu() -> u16 {
    1500
}

/// How the router looks up, filters and reports.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouterSection {
    /// The lookup structure for IPv4: `"auto"`, or a name as in benchmarks.
    pub algorithm: String,
    /// The lookup structure for IPv6: `"auto"`, or a name as in benchmarks.
    pub algorithm6: String,
    /// Which impossible addresses are dropped.
    pub martians: Martians,
    /// ICMP errors that each worker may send per second; also how many it may send at once. 0 sends none.
    pub icmp_rate_per_s: u32,
    /// ICMP errors that each worker may send per second towards one prefix (/24, /48); also how many at once.
    pub icmp_rate_per_prefix_per_s: u32,
    /// TTL and hop limit of packets that the router itself sends, at least 1.
    pub ttl: u8,
}

impl Default for RouterSection {
    fn default() -> Self {
        RouterSection {
            algorithm: "auto".into(),
            algorithm6: "auto".into(),
            martians: Martians::Standard,
            icmp_rate_per_s: 1000,
            icmp_rate_per_prefix_per_s: 100,
            ttl: 64,
        }
    }
}

/// Which impossible addresses are dropped. Multicast and broadcast destinations are never routed, whatever this says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Martians {
    /// None: for laboratory captures.
    Off,
    /// Addresses that never cross a router: this network, loopback, link-local, class E, multicast as a source,
    /// `::`, `::1`, IPv4-mapped (RFC 1812 5.3.7, RFC 6890, RFC 4291).
    #[default]
    Standard,
    /// And the documentation and protocol assignment ranges that RFC 6890 and RFC 9637 do not let routers forward.
    Strict,
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
    /// The port to send by (`kind = "forward"` only).
    pub port: Option<String>,
    /// The neighbour's MAC address (`kind = "forward"` only). Default: derived from the label, see `next_hops.mac`.
    pub mac: Option<String>,
}

/// What happens to packets of a next hop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NextHopKind {
    /// Sent to the neighbour.
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
    /// Where the neighbour's MAC address comes from.
    #[serde(default)]
    pub mac: MacRule,
}

/// Where a neighbour's MAC address comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
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
