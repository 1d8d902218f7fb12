//! The section `[switch]` as written; its comments are the schema's text.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tidemill_classify::Grouping;
use tidemill_classify::cache::Settings;
use tidemill_classify::pipeline::LoadError;
use tidemill_classify::text::TextError;

/// A switch. Everything has a default: without rules it is a learning bridge of all ports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchSection {
    /// A file of rules, groups and meters, in the words of `ovs-ofctl`. Without one there is a single rule: `priority=0 actions=normal`. Of rules of equal priority that a packet matches, the one that the file has first wins, whatever was there before it. Those that commands add come behind; which of these wins is open, as in OpenFlow: give them priorities. There can be 65,536 groups, and as many meters. The file may have 256 bytes for each of `rules`, and 16 MiB beside.
    pub flows: Option<PathBuf>,
    /// Tables, 1 to 255. A packet meets 16 rules at most, whatever their tables: one that would need more goes no further. If these 16 have sent nothing of it, it is dropped, as `rules-too-deep`; else it is counted as `cut-short`.
    pub tables: u8,
    /// Rules that there can be, in all tables together, 1 to 4,194,304; each worker has 16 bytes of counters for each. While rules change, old and
    /// new ones are there at once: for a file that changes all of them give twice as many.
    pub rules: usize,
    /// How rules are grouped into hash tables: `tuple-space` has one for each mask, `tuple-merge` a few with narrower masks, for rules of many different
    /// masks. `auto`: for each table of rules the one that is cheaper for them, when they are loaded and when they have become twice as many or half as
    /// many; `tidemill switch counters` says which. Where the first table's rules suit it, `auto` also makes a cross-product of their addresses, of about 64 MiB at
    /// most (200 MiB while it is made; twice as much as before once it was made anew, until rules change again), by which packets are decided that no cache knows; `switch counters`
    /// has its rules and its memory.
    pub classifier: Classifier,
    /// Exact matches that each worker keeps, where megaflows take more than three lookups or so; 0 for none.
    pub exact: usize,
    /// Packets' keys of which each worker remembers the mask of their megaflow there, 4 bytes each, as a hint where to begin; 0 for none.
    pub signatures: usize,
    /// Megaflows that each worker keeps.
    pub megaflows: usize,
    /// Masks that `megaflows` may have, up to 16,383. Where all are taken, those that are used least give way to others.
    pub masks: usize,
    /// Stations that the bridge knows.
    pub stations: usize,
    /// Seconds after which a station that was silent is forgotten, or up to two later, 1 to 1,000,000.
    pub station_age_s: u32,
    /// The VLANs of ports, by name. A port without an entry is in all VLANs, with tags; its packets without a tag are among themselves.
    pub vlans: BTreeMap<String, PortVlans>,
}

impl Default for SwitchSection {
    fn default() -> Self {
        SwitchSection {
            flows: None,
            tables: 8,
            rules: 65_536,
            classifier: Classifier::default(),
            exact: 8192,
            signatures: 1 << 20,
            megaflows: 65_536,
            masks: 256,
            stations: 8192,
            station_age_s: 300,
            vlans: BTreeMap::new(),
        }
    }
}

impl SwitchSection {
    /// Keys that cannot change while packets flow, each with whether `other` has the same.
    pub fn fixed_keys(&self, other: &Self) -> [(&'static str, bool); 10] {
        [
            ("tables", self.tables == other.tables),
            ("rules", self.rules == other.rules),
            ("classifier", self.classifier == other.classifier),
            ("exact", self.exact == other.exact),
            ("signatures", self.signatures == other.signatures),
            ("megaflows", self.megaflows == other.megaflows),
            ("masks", self.masks == other.masks),
            ("stations", self.stations == other.stations),
            ("station_age_s", self.station_age_s == other.station_age_s),
            ("vlans", self.vlans == other.vlans),
        ]
    }

    /// One worker's caches.
    pub fn caches(&self) -> Settings {
        Settings {
            exact: self.exact,
            signatures: self.signatures,
            megaflows: self.megaflows,
            masks: self.masks,
            filters: true,
        }
    }
}

/// How rules are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Classifier {
    /// By the rules.
    #[default]
    Auto,
    /// A hash table for each mask.
    TupleSpace,
    /// Merged ones.
    TupleMerge,
}

impl Classifier {
    /// What tables begin with.
    pub(crate) fn grouping(self) -> Grouping {
        match self {
            Classifier::Auto | Classifier::TupleSpace => Grouping::Exact,
            Classifier::TupleMerge => Grouping::Merged,
        }
    }
}

/// A port's VLANs: `access`, or `trunk` with or without `native`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortVlans {
    /// The only VLAN: packets have no tag here, and those with one are dropped.
    pub access: Option<u16>,
    /// VLANs with tags: numbers, or ranges such as `"100-199"`. Default: all.
    pub trunk: Option<Vec<VlanRange>>,
    /// The VLAN of packets without a tag. Without it a port with `trunk` drops them.
    pub native: Option<u16>,
}

/// A VLAN, or some.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum VlanRange {
    /// One.
    One(u16),
    /// From the first to the last.
    Range(String),
}

/// Why a switch cannot be made, or cannot take a configuration. One line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// A value that makes no sense.
    #[error("switch.{key}: {what}")]
    Config {
        /// The key.
        key: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The text of rules.
    #[error("{name}: {error}")]
    Text {
        /// Of what.
        name: String,
        /// What is wrong.
        error: TextError,
    },
    /// A rule, group or meter.
    #[error("{name}: {error}")]
    Book {
        /// Of what.
        name: String,
        /// What is wrong, and where.
        error: LoadError,
    },
    /// The file of rules cannot be read.
    #[error("{name}: {error}")]
    Read {
        /// The file.
        name: String,
        /// Why.
        error: std::io::Error,
    },
    /// A group or meter to take out.
    #[error("{what} {number}: there is none: `tidemill switch groups` shows those that there are")]
    None {
        /// `group` or `meter`.
        what: &'static str,
        /// Its number.
        number: u32,
    },
    /// Keys that cannot change while packets flow.
    #[error("switch.{0}: cannot change while the switch runs: put it back, or restart")]
    Restart(&'static str),
}

impl SwitchError {
    pub(crate) fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        SwitchError::Config { key: key.into(), what: what.into() }
    }
}
