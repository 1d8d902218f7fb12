//! What a switch says and is asked. Rules, groups and meters are texts, in the words of `ovs-ofctl`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The paths of the verbs.
pub mod path {
    /// GET with [`FlowsQuery`](super::FlowsQuery): [`Flows`](super::Flows). POST of a [`FlowsLoad`](super::FlowsLoad), DELETE with
    /// [`FlowsDelete`](super::FlowsDelete): [`Done`](super::super::Done).
    pub const FLOWS: &str = "/v1/switch/flows";
    /// GET: [`Groups`](super::Groups). DELETE with [`GroupsDelete`](super::GroupsDelete): [`Done`](super::super::Done).
    pub const GROUPS: &str = "/v1/switch/groups";
    /// GET with [`TraceQuery`](super::TraceQuery): [`Traced`](super::Traced).
    pub const TRACE: &str = "/v1/switch/trace";
    /// GET: [`Stations`](super::Stations). DELETE: forgets them; [`Done`](super::super::Done).
    pub const STATIONS: &str = "/v1/switch/stations";
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/switch/counters";
}

answers! {
    /// Rules.
    pub struct Flows {
        /// By table, in the order in which they win.
        pub flows: Vec<Flow>,
    }

    /// A rule.
    pub struct Flow {
        /// As text.
        pub flow: String,
        /// Its table.
        pub table: u8,
        /// Its priority.
        pub priority: u16,
        /// Packets that it has decided.
        pub packets: u64,
        /// Their bytes.
        pub bytes: u64,
        /// Seconds since it came.
        pub duration_s: f64,
    }

    /// Groups and meters.
    pub struct Groups {
        /// Groups as text.
        pub groups: Vec<String>,
        /// Meters.
        pub meters: Vec<Meter>,
    }

    /// A meter.
    pub struct Meter {
        /// As text.
        pub meter: String,
        /// Packets that it has let through.
        pub passed: u64,
        /// Packets that it has refused.
        pub refused: u64,
    }

    /// All that a switch counts, and what the rules of its tables are looked up by.
    pub struct Counters {
        /// Names and counts.
        pub counters: BTreeMap<String, u64>,
        /// Tables that have rules.
        pub tables: Vec<RuleTable>,
        /// The cross-product of the first table's rules, if there is one.
        pub cross_product: Option<CrossProduct>,
    }

    /// What packets are decided by that no cache knows, beside the first table.
    pub struct CrossProduct {
        /// Rules that it was made of.
        pub rules: u64,
        /// Rules of these that have gone since, and rules that have come.
        pub changed: u64,
        /// Whether these are so many that the first table decides until it is made anew.
        pub worn: bool,
        /// Its memory.
        pub bytes: u64,
    }

    /// A table of rules.
    pub struct RuleTable {
        /// Its number.
        pub table: u8,
        /// Its rules.
        pub rules: u64,
        /// `tuple-space` or `tuple-merge`.
        pub classifier: String,
    }

    /// Why a packet goes where.
    pub struct Traced {
        /// Table by table.
        pub steps: Vec<TracedStep>,
        /// What is done to it, in order.
        pub actions: Vec<String>,
        /// How that ends.
        pub end: String,
        /// All packets that go this way for the same reason, as a match.
        pub megaflow: String,
    }

    /// A table on a packet's way.
    pub struct TracedStep {
        /// The table.
        pub table: u8,
        /// The rule that won; none matched.
        pub rule: Option<String>,
        /// What the table has looked at, as a match.
        pub looked: String,
    }

    /// Stations that the bridge knows.
    pub struct Stations {
        /// By VLAN and address.
        pub stations: Vec<Station>,
    }

    /// A station.
    pub struct Station {
        /// Its VLAN; 0 for none.
        pub vlan: u16,
        /// Its address.
        pub mac: String,
        /// The port that it is behind.
        pub port: String,
        /// Seconds since it was seen, give or take two.
        pub age_s: u32,
    }
}

requests! {
    /// Which rules: a rule without actions; all rules within it.
    pub struct FlowsQuery {
        /// As text. Default: all.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub filter: Option<String>,
    }

    /// Rules, groups and meters to put in: all or none.
    pub struct FlowsLoad {
        /// Lines.
        pub text: String,
        /// Whether everything else goes.
        #[serde(default)]
        pub replace: bool,
    }

    /// Rules to take out.
    pub struct FlowsDelete {
        /// A rule without actions; all rules within it. Default: all.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub filter: Option<String>,
        /// Just the rule of this priority and match.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub strict: Option<bool>,
    }

    /// A group or a meter to take out, with the rules that use it: give one of them.
    pub struct GroupsDelete {
        /// The group's number.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub group: Option<u32>,
        /// The meter's number.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub meter: Option<u32>,
    }

    /// Which packet: a match that leaves nothing open.
    pub struct TraceQuery {
        /// As text.
        pub packet: String,
    }
}
