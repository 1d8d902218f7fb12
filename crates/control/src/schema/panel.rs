//! What a service shows of itself, in a form that is the same for all: tables with their fill, panels of figures.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

answers! {
    /// The tables and caches of a service.
    pub struct Tables {
        /// In the service's order.
        pub tables: Vec<Table>,
    }

    /// A table or a cache: whatever has entries.
    pub struct Table {
        /// Its name: `IPv4 routes`.
        pub name: String,
        /// What it is made of: the name of a structure.
        pub kind: String,
        /// What is in it now.
        pub entries: u64,
        /// The most that it takes, if it has a bound of its own.
        pub room: Option<u64>,
        /// Its memory.
        pub bytes: Option<u64>,
        /// How often what readers see of it has changed, where changes are published.
        pub generation: Option<u64>,
        /// Lookups that found something, for a cache.
        pub hits: Option<u64>,
        /// Lookups that did not.
        pub misses: Option<u64>,
    }

    /// The panels of a service.
    pub struct Panels {
        /// In the order of their registration.
        pub panels: Vec<Panel>,
    }

    /// What one part of a service counts: the same figures as in `/metrics`.
    pub struct Panel {
        /// What it is called.
        pub title: String,
        /// Its figures.
        pub families: Vec<PanelFamily>,
    }

    /// One metric: its samples differ by their labels.
    pub struct PanelFamily {
        /// Its name, as in `/metrics` without `tidemill_` and `_total`.
        pub name: String,
        /// What it means.
        pub help: String,
        /// Whether it only grows: then its rate says more than its value.
        pub grows: bool,
        /// Its samples.
        pub samples: Vec<Sample>,
    }

    /// One value.
    pub struct Sample {
        /// Names and values of its labels.
        pub labels: BTreeMap<String, String>,
        /// The value.
        pub value: f64,
    }
}
