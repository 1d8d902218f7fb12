//! The section `[filter]` as written; its comments are the schema's text. What follows from it: [`crate::filter::settings`].

use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// A stateful packet filter: what is routed passes if the rules let it. Everything else is the router's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilterSection {
    /// The file of rules, in pf's syntax. Its tables' files start from its folder.
    pub rules: Option<PathBuf>,
    /// Connections that each worker has room for, of each family.
    pub states: usize,
    /// How many connections one source may have begun (of IPv6: one /64). Who has so many begins no more. While answered connections take more than three quarters of `states` it is fewer, down to none when they take all.
    pub states_per_source: u32,
    /// Of `states` how many may be half-open TCP connections. Who comes when there are so many has the oldest give way.
    pub half_open: usize,
    /// How many half-open connections one source may have. Its own oldest gives way.
    pub half_open_per_source: u32,
    /// Of `states` how many may be of other protocols than TCP, and not answered yet; half of them at most. Who comes when there are so many has the oldest give way: it may come again.
    pub unanswered: usize,
    /// How many unanswered connections of other protocols than TCP one source may have. Its own oldest gives way.
    pub unanswered_per_source: u32,
    /// Whether connections that new rules or tables do not allow end with their next packet. If not they go on as they are.
    pub recheck: bool,
    /// Seconds after which a silent TCP connection that is being opened is forgotten.
    pub tcp_opening_s: u32,
    /// Seconds after which a silent TCP connection that is open is forgotten.
    pub tcp_established_s: u32,
    /// Seconds after which a silent TCP connection that one side has closed is forgotten.
    pub tcp_closing_s: u32,
    /// Seconds after which a TCP connection that both sides have closed, or that was reset, is forgotten.
    pub tcp_closed_s: u32,
    /// Seconds after which a UDP connection that nobody has answered is forgotten.
    pub udp_first_s: u32,
    /// Seconds after which a silent UDP connection that was answered is forgotten.
    pub udp_s: u32,
    /// Seconds after which an ICMP echo's connection is forgotten.
    pub icmp_s: u32,
    /// Seconds after which a silent connection of any other protocol is forgotten.
    pub other_s: u32,
    /// Fragments that wait for the first of their packet, on each worker, of each family; 0 refuses those that come before it. Each occupies a frame.
    pub fragments: usize,
    /// Seconds for which such `fragments` wait, and for which the fragments of a packet are known; 1 to 60.
    pub fragment_s: u32,
    /// Lines that each worker logs in a second, of each family. Packets of rules with `log` beyond that are counted only.
    pub log_per_s: u32,
    /// A file, relative to this file's folder, that answered connections, and tables of which the rule file says only the name, are written to, and read from when the filter starts, so that they go on after a restart or on
    /// another box that has this configuration and the file, as far as its rules allow them. A link, and one that is there and was not written for this, are refused; a new one is its owner's alone (mode 600).
    /// One of which not all fits is kept beside the next one, with `.old` behind its name.
    pub handover: Option<PathBuf>,
    /// Seconds between two versions of the file `handover`, 1 to 3600; one more is written when the filter stops.
    pub handover_s: u32,
}

impl FilterSection {
    /// Keys that cannot change while packets flow, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 9] {
        [
            ("states", self.states == other.states),
            ("half_open", self.half_open == other.half_open),
            ("half_open_per_source", self.half_open_per_source == other.half_open_per_source),
            ("unanswered", self.unanswered == other.unanswered),
            ("unanswered_per_source", self.unanswered_per_source == other.unanswered_per_source),
            ("states_per_source", self.states_per_source == other.states_per_source),
            ("fragments", self.fragments == other.fragments),
            ("handover", self.handover == other.handover),
            ("handover_s", self.handover_s == other.handover_s),
        ]
    }
}

impl Default for FilterSection {
    fn default() -> Self {
        FilterSection {
            rules: None,
            states: 1 << 18,
            states_per_source: 1 << 14,
            half_open: 1 << 14,
            half_open_per_source: 128,
            unanswered: 1 << 16,
            unanswered_per_source: 4096,
            recheck: true,
            tcp_opening_s: 30,
            tcp_established_s: 86_400,
            tcp_closing_s: 900,
            tcp_closed_s: 90,
            udp_first_s: 30,
            udp_s: 120,
            icmp_s: 20,
            other_s: 60,
            fragments: 256,
            fragment_s: 15,
            log_per_s: 100,
            handover: None,
            handover_s: 5,
        }
    }
}
