//! What can be wrong with a Gatekeeper's configuration, or with making one.

use tidemill_flow::table::SizeError;
use tidemill_lpm::BuildError;

/// Why a Gatekeeper cannot be made, or cannot take a change. One line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// A value that makes no sense.
    #[error("gatekeeper.{key}: {what}")]
    Config {
        /// The key.
        key: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Keys that cannot change while packets flow.
    #[error("gatekeeper.{0}: cannot change while the gatekeeper runs: put it back, or restart")]
    Restart(String),
    /// Flow tables that are too large.
    #[error(
        "gatekeeper.flows: {flows} flows of each family, {programs} of them with programs, on each worker: {source}: give fewer"
    )]
    Flows {
        /// What was asked for.
        flows: usize,
        /// What was asked for: `program_flows`.
        programs: u32,
        /// Why not.
        source: SizeError,
    },
    /// A policy table that its structure cannot hold.
    #[error("gatekeeper.policy: {0}")]
    Policies(#[from] BuildError),
}

impl GateError {
    pub(crate) fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        GateError::Config { key: key.into(), what: what.into() }
    }
}
