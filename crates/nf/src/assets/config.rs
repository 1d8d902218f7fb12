//! The section `[assets]` as written; its comments are the schema's text.

use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// Passive detection of assets: which hosts there are, their operating systems, services and names, by the packets that ports receive. It changes and delays none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AssetsSection {
    /// Whose addresses are of interest, as `["10.0.0.0/8", "2001:db8::/32"]`; all if there are none.
    pub networks: Vec<String>,
    /// Hosts that there is room for, 16 to 16777216. A full table has those give way that have only sent packets, longest silent first. Each takes some 4 KB at most, of all workers together.
    pub hosts: usize,
    /// Seconds of silence after which a host is forgotten, 8 to 31536000.
    pub idle_s: u32,
    /// A list of fingerprints of operating systems instead of ours, relative to this file's folder.
    pub fingerprints: Option<PathBuf>,
}

impl Default for AssetsSection {
    fn default() -> Self {
        AssetsSection { networks: Vec::new(), hosts: 1 << 16, idle_s: 86_400, fingerprints: None }
    }
}
