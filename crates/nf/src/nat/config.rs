//! The section `[nat]` as written; its comments are the schema's text. What follows from it: [`crate::nat::settings`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Network address translation: hosts inside share the addresses of a pool. Everything else is routed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NatSection {
    /// The interfaces that inside hosts are behind.
    pub inside: Vec<String>,
    /// The interfaces that lead to everybody else. Packets from inside that leave here are translated.
    pub outside: Vec<String>,
    /// Addresses that inside hosts look like, of one or both families: `"192.0.2.1"`, `"192.0.2.8-192.0.2.15"`, `"2001:db8::/120"`.
    /// Each is one of our own, on an interface, or routed to us. What is of a family that has none here is routed untranslated.
    pub pool: Vec<String>,
    /// The ports that may be given, `"first-last"`. Inside ports below 1024 get ports below 1024, if there are any.
    pub ports: String,
    /// From whom packets reach what is mapped.
    pub filtering: Filtering,
    /// Whether all of a host's mappings have one address.
    pub pooling: Pooling,
    /// Mappings that each worker has room for, of each family.
    pub mappings: usize,
    /// Sessions that each worker has room for, of each family: a mapping and a remote endpoint.
    pub sessions: usize,
    /// Mappings that one inside host may have, on its worker. All of an IPv6 /64 together may have three quarters of `mappings`.
    pub host_mappings: u32,
    /// Sessions that one inside host may have begun, on its worker. All of an IPv6 /64 together may have three quarters of `sessions`.
    pub host_sessions: u32,
    /// TCP connections that one outside address (of IPv6: one /64) may have, on each worker, with what it reaches inside by itself: static mappings,
    /// and those that are open to it.
    pub source_sessions: u32,
    /// Seconds after which a UDP session without packets from inside is forgotten; 120 or more (RFC 4787, REQ-5).
    pub udp_s: u32,
    /// Whether packets from outside keep a UDP session, too (RFC 4787, REQ-6a).
    pub inbound_refresh: bool,
    /// Seconds after which a silent TCP connection is forgotten; 7440 or more (RFC 5382, REQ-5).
    pub tcp_established_s: u32,
    /// Seconds after which a silent TCP connection that is being opened or closed, or was reset, is forgotten; 240 or more (RFC 5382, REQ-5).
    pub tcp_transitory_s: u32,
    /// Seconds after which an ICMP query's session is forgotten; 60 or more (RFC 5508, REQ-2).
    pub icmp_s: u32,
    /// Fragments that wait for the first of their packet, on each worker, of each family; 0 refuses those that come before it. Each occupies a frame.
    pub fragments: usize,
    /// Seconds for which such `fragments` wait, and for which the fragments of a packet are known; 1 to 60.
    pub fragment_s: u32,
    /// A file, relative to this file's folder, that sessions are written to, and read from when the NAT starts, so that connections go on after a restart
    /// or on another box that has this configuration and the file. A link, and one that is there and was not written for this, are refused; a new one is its owner's alone (mode 600).
    /// One of which not all fits is kept beside the next one, with `.old` behind its name.
    pub handover: Option<PathBuf>,
    /// Seconds between two versions of the file `handover`, 1 to 3600; one more is written when the NAT stops.
    pub handover_s: u32,
    /// What inside endpoints always look like; whoever wants to reaches them there.
    #[serde(rename = "static")]
    pub fixed: Vec<StaticConfig>,
    /// Ports by computation: from an outside endpoint follows the inside host, without a log (RFC 7422).
    pub deterministic: Option<DeterministicConfig>,
}

impl NatSection {
    /// Keys that cannot change while packets flow, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 14] {
        [
            ("pool", self.pool == other.pool),
            ("ports", self.ports == other.ports),
            ("filtering", self.filtering == other.filtering),
            ("pooling", self.pooling == other.pooling),
            ("mappings", self.mappings == other.mappings),
            ("sessions", self.sessions == other.sessions),
            ("host_mappings", self.host_mappings == other.host_mappings),
            ("host_sessions", self.host_sessions == other.host_sessions),
            ("source_sessions", self.source_sessions == other.source_sessions),
            ("fragments", self.fragments == other.fragments),
            ("handover", self.handover == other.handover),
            ("handover_s", self.handover_s == other.handover_s),
            ("static", self.fixed == other.fixed),
            ("deterministic", self.deterministic == other.deterministic),
        ]
    }
}

impl Default for NatSection {
    fn default() -> Self {
        NatSection {
            inside: Vec::new(),
            outside: Vec::new(),
            pool: Vec::new(),
            ports: "1-65535".into(),
            filtering: Filtering::default(),
            pooling: Pooling::default(),
            mappings: 1 << 16,
            sessions: 1 << 18,
            host_mappings: 4096,
            host_sessions: 1 << 14,
            source_sessions: 4096,
            udp_s: 300,
            inbound_refresh: false,
            tcp_established_s: 7440,
            tcp_transitory_s: 240,
            icmp_s: 60,
            fragments: 256,
            fragment_s: 15,
            handover: None,
            handover_s: 5,
            fixed: Vec::new(),
            deterministic: None,
        }
    }
}

/// From whom packets reach what is mapped (RFC 4787, section 5). A static mapping is reached from everywhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Filtering {
    /// From everywhere.
    EndpointIndependent,
    /// From addresses that the inside endpoint has sent to.
    #[default]
    AddressDependent,
    /// From endpoints that it has sent to.
    AddressAndPortDependent,
}

/// Which address a host's next mapping gets (RFC 4787, REQ-2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// That of its others; where it has no more ports, none.
    #[default]
    Paired,
    /// That of its others as long as it has ports, then any.
    Arbitrary,
}

/// A static mapping.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StaticConfig {
    /// The protocol, of a mapping of ports. Without it the whole address is the inside host's.
    pub protocol: Option<StaticProtocol>,
    /// What it looks like: an address of the pool with a port, `"192.0.2.1:443"` or `"[2001:db8::1]:443"`; without a protocol an address.
    pub external: String,
    /// What it is: an inside address with a port, or an address.
    pub internal: String,
}

/// The protocol of a static mapping of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StaticProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Ports by computation (RFC 7422): the inside hosts in order have as many ports each, address after address of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeterministicConfig {
    /// The prefix of the inside hosts, IPv4 or IPv6; or one of each, in a list.
    pub inside: Prefixes,
    /// Ports for each of them; even, 2 to 32,256.
    pub ports_per_host: u16,
    /// What one host is of IPv6: 128 for an address; 64 if each has a /64 and takes addresses of it as it likes. Up to 2^24 of these may be in the
    /// prefix.
    #[serde(default = "whole_address")]
    pub host_length6: u8,
}

fn whole_address() -> u8 {
    128
}

/// A prefix, or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Prefixes {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Prefixes {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Prefixes::One(prefix) => std::slice::from_ref(prefix),
            Prefixes::Several(prefixes) => prefixes,
        }
    }
}
