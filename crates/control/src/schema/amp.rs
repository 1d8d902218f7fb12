//! What a mitigator says and is asked.

pub use super::Counters;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET with [`RulesQuery`](super::RulesQuery): [`Rules`](super::Rules).
    pub const RULES: &str = "/v1/amp/rules";
    /// GET with [`TopQuery`](super::TopQuery): [`Top`](super::Top).
    pub const TOP: &str = "/v1/amp/top";
    /// GET with [`ExplainQuery`](super::ExplainQuery): [`Explained`](super::Explained).
    pub const EXPLAIN: &str = "/v1/amp/explain";
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/amp/counters";
}

answers! {
    /// A page of rules.
    pub struct Rules {
        /// Those of this page.
        pub rules: Vec<Rule>,
        /// What to give as `after` for the next page, if there is one.
        pub next: Option<String>,
    }

    /// What is known of a tuple. Parts that the tuple mode leaves out are none.
    pub struct Rule {
        /// `suspected`, `filtered` or `solicited`.
        pub status: String,
        /// The amplifier's address.
        pub source: String,
        /// The victim's address.
        pub destination: Option<String>,
        /// The amplifier's port.
        pub source_port: Option<u16>,
        /// The victim's port.
        pub destination_port: Option<u16>,
        /// Seconds since it became filtered; none of others, nor of a rule that a process before has made.
        pub since_s: Option<u32>,
        /// Seconds until it ends.
        pub expires_s: u32,
        /// Packets kept away by it.
        pub packets: u64,
        /// Bytes of them.
        pub bytes: u64,
        /// The worker that has it.
        pub worker: u32,
    }

    /// Where the most is kept away.
    pub struct Top {
        /// The most first.
        pub lines: Vec<TopLine>,
        /// Nothing is: all of it would have been (`mitigator.dry_run`).
        pub dry_run: bool,
    }

    /// What was kept away of one rule, address or protocol.
    pub struct TopLine {
        /// A tuple, an address, or a protocol's name.
        pub what: String,
        /// Packets kept away.
        pub packets: u64,
        /// Bytes of them.
        pub bytes: u64,
        /// Rules that do it.
        pub rules: u64,
    }

    /// What would happen to a packet from outside.
    pub struct Explained {
        /// `pass` or `drop`.
        pub verdict: String,
        /// Whether it would be dropped if this were no dry run.
        pub would_drop: bool,
        /// Why, in a word: `not-udp`, `not-a-protocol`, `allowed`, `unknown`, `suspected`, `solicited`, `filtered`.
        pub because: String,
        /// Why, in a line.
        pub why: String,
        /// The rule's tuple, as the tuple mode has it: the amplifier's address.
        pub source: Option<String>,
        /// The victim's address.
        pub destination: Option<String>,
        /// The amplifier's port.
        pub source_port: Option<u16>,
        /// The victim's port.
        pub destination_port: Option<u16>,
        /// Workers that know of the tuple.
        pub workers: Vec<u32>,
        /// Those of them that have a rule of it; another one lets its packets pass until the victim's next message about it.
        pub filters: Vec<u32>,
    }
}

requests! {
    /// Which rules.
    pub struct RulesQuery {
        /// Only those in this state.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub status: Option<String>,
        /// Only those from or to this address.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub address: Option<String>,
        /// What the last page said.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub after: Option<String>,
        /// At most so many.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// The most of what.
    pub struct TopQuery {
        /// `rule`, `amplifier`, `victim` or `protocol`.
        pub by: String,
        /// At most so many lines.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// A UDP packet from outside.
    pub struct ExplainQuery {
        /// Its source address.
        pub source: String,
        /// Its source port.
        pub source_port: u16,
        /// Its destination address.
        pub destination: String,
        /// Its destination port.
        pub destination_port: u16,
    }
}
