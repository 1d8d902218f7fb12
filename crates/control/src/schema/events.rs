//! What happens, as readers of `GET /v1/events` see it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

answers! {
    /// One event: a line of the answer to `GET /v1/events`.
    pub struct Event {
        /// Its number; every event of a process has the next one. Of what a reader is told of itself: the last one before it.
        pub seq: u64,
        /// When, ns since the epoch.
        pub time_ns: u64,
        /// What kind of event: `GET /v1` lists them.
        pub kind: String,
        /// How bad it is.
        pub severity: Severity,
        /// What it is about: a port, a drop reason, a table, a worker, a file.
        pub about: String,
        /// The event, in a line for a reader.
        pub message: String,
        /// Its figures, by name and unit.
        pub values: BTreeMap<String, f64>,
    }

    /// A kind of event that a service tells of.
    pub struct EventKind {
        /// Its name.
        pub kind: String,
        /// When there is one.
        pub help: String,
    }
}

requests! {
    /// Which events; without anything, all that happen from now on.
    pub struct EventsQuery {
        /// Only these kinds, with commas between them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kind: Option<String>,
        /// Those with greater numbers, as far as they are kept (the last 1024).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<u64>,
        /// The process whose number `after` is: what its `alive` lines are about. All events of another one are new.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub of: Option<String>,
        /// The last so many first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub last: Option<u32>,
        /// Only what has happened: the answer ends then. Without `after` and `last`, all that is kept.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub once: Option<bool>,
    }
}

/// How bad an event is.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    #[default]
    Info,
    /// Somebody should know.
    Warning,
    /// Something does not work.
    Error,
}

impl Severity {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}
