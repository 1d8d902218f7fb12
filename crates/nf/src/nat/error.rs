//! What can be wrong with a NAT's configuration, or with making one.

use tidemill_flow::table::SizeError;

/// Why a NAT cannot be made, or cannot take a change. One line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum NatError {
    /// A value that makes no sense.
    #[error("nat.{key}: {what}")]
    Config {
        /// The key.
        key: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Keys that cannot change while packets flow.
    #[error("nat.{0}: cannot change while the NAT runs: put it back, or restart")]
    Restart(String),
    /// Tables that are too large.
    #[error("nat.mappings, nat.sessions: {0}: give fewer")]
    Size(#[from] SizeError),
}

impl NatError {
    pub(crate) fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        NatError::Config { key: key.into(), what: what.into() }
    }
}
