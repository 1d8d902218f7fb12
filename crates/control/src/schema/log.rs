//! How much a run says on standard error.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

answers! {
    /// How much is said: the answer to `GET` and `POST /v1/log`.
    pub struct Log {
        /// Of all parts that have no level of their own: `error`, `warning`, `info` or `debug`.
        pub level: String,
        /// All parts.
        pub modules: Vec<LogModule>,
    }

    /// A part of a run, and how much is said of it.
    pub struct LogModule {
        /// Its name: a kind of events.
        pub name: String,
        /// How much.
        pub level: String,
        /// Whether that is a level of its own.
        pub own: bool,
    }
}

requests! {
    /// How much is to be said, until the next reload. What is not named stays as it is.
    pub struct LogChange {
        /// Of all parts that have no level of their own: `error`, `warning`, `info` or `debug`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub level: Option<String>,
        /// Of single parts; with `default` one has no level of its own any more.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub modules: BTreeMap<String, String>,
    }
}
