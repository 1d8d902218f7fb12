//! What a filter says and is asked. Rules are texts, as their file has them.

pub use super::Counters;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET: [`Rules`](super::Rules). POST: reads the file of rules again; [`Done`](super::super::Done).
    pub const RULES: &str = "/v1/filter/rules";
    /// GET with [`StatesQuery`](super::StatesQuery): [`States`](super::States).
    pub const STATES: &str = "/v1/filter/states";
    /// GET with [`TopQuery`](super::TopQuery): [`States`](super::States), those with the most packets.
    pub const TOP: &str = "/v1/filter/top";
    /// GET with [`SetsQuery`](super::SetsQuery): [`Sets`](super::Sets). POST of a [`SetChange`](super::SetChange): puts addresses in; DELETE with one: takes them
    /// out; [`Done`](super::super::Done).
    pub const SETS: &str = "/v1/filter/sets";
    /// GET: [`Log`](super::Log).
    pub const LOG: &str = "/v1/filter/log";
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/filter/counters";
}

answers! {
    /// Rules, in the order of their file.
    pub struct Rules {
        /// They.
        pub rules: Vec<Rule>,
        /// Another number whenever rules or tables have changed.
        pub version: u32,
    }

    /// A rule.
    pub struct Rule {
        /// From 0.
        pub number: u32,
        /// Where it is in its file.
        pub line: u32,
        /// As text.
        pub rule: String,
        /// Its label.
        pub label: Option<String>,
        /// Packets that it has decided since the file was read, each on each of its two ways.
        pub packets: u64,
        /// Their bytes.
        pub bytes: u64,
        /// Connections that it has let in.
        pub states: u64,
    }

    /// A page of connections.
    pub struct States {
        /// Those of this page.
        pub states: Vec<State>,
        /// What to give as `after` for the next page, if there is one.
        pub next: Option<String>,
    }

    /// A connection.
    pub struct State {
        /// `tcp`, `udp`, `icmp`, `icmp6`, another protocol's name or its number.
        pub protocol: String,
        /// Who began it: address and port; of ICMP echoes the identifier.
        pub from: String,
        /// The other.
        pub to: String,
        /// Of TCP `opening`, `established`, `closing`, `closed` or `reset`; of others `answered` or `unanswered`.
        pub state: String,
        /// Seconds until it ends, unless something comes.
        pub expires_s: f64,
        /// Packets of who began it.
        pub packets_from: u64,
        /// Packets of the other.
        pub packets_to: u64,
        /// The number of the rule that has let it in.
        pub rule_in: Option<u32>,
        /// The number of the rule that has let it out.
        pub rule_out: Option<u32>,
        /// The version of the rules that it was held to last.
        pub version: u32,
        /// The worker that has it.
        pub worker: u32,
    }

    /// Tables of addresses.
    pub struct Sets {
        /// They, in the order of the file.
        pub sets: Vec<Set>,
        /// Of the one that was named, its addresses and prefixes.
        pub addresses: Vec<String>,
    }

    /// A table of addresses.
    pub struct Set {
        /// Its name.
        pub name: String,
        /// IPv4 addresses and prefixes.
        pub ipv4: u64,
        /// IPv6 addresses and prefixes.
        pub ipv6: u64,
        /// Files that it is read from.
        pub files: Vec<String>,
        /// Whether only its files change it.
        #[serde(rename = "const")]
        pub is_const: bool,
    }

    /// The last packets that were logged.
    pub struct Log {
        /// The oldest first.
        pub lines: Vec<Logged>,
    }

    /// A packet that was logged.
    pub struct Logged {
        /// Seconds since the Unix epoch.
        pub time_s: f64,
        /// `pass`, `block` or `reject`.
        pub action: String,
        /// `in` or `out`.
        pub direction: String,
        /// By which interface.
        pub interface: String,
        /// The rule's number, in the version of the rules that decided.
        pub rule: u32,
        /// That version.
        pub version: u32,
        /// The protocol.
        pub protocol: String,
        /// Where from: address, and port if there is one.
        pub from: String,
        /// Where to.
        pub to: String,
        /// Bytes, IP header included.
        pub bytes: u32,
    }
}

requests! {
    /// Which connections.
    pub struct StatesQuery {
        /// With this address, at any end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub address: Option<String>,
        /// Of this protocol: `tcp`, `udp`, `icmp`, `icmp6` or a number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub protocol: Option<String>,
        /// Where to go on: `next` of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<String>,
        /// How many, about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// How many.
    pub struct TopQuery {
        /// So many; 20 if none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// Whose addresses.
    pub struct SetsQuery {
        /// The table's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
    }

    /// Addresses of a table.
    pub struct SetChange {
        /// The table's name.
        pub name: String,
        /// Addresses and prefixes, blanks or commas between them.
        pub addresses: String,
    }
}
