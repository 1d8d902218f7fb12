//! What can be wrong with a mitigator's configuration, or with making one.

use tidemill_flow::table::SizeError;

/// Why a mitigator cannot be made, or cannot take a configuration. One line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum AmpError {
    /// A value that makes no sense.
    #[error("mitigator.{key}: {what}")]
    Config {
        /// The key.
        key: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Keys that cannot change while packets flow.
    #[error("mitigator.{0}: cannot change while the mitigator runs: put it back, or restart")]
    Restart(String),
    /// A table that is too large.
    #[error("mitigator.entries: {0}")]
    Table(#[from] SizeError),
    /// What drops below us does not want to.
    #[error("mitigator.offload: {0}")]
    Offload(String),
}

impl AmpError {
    pub(crate) fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        AmpError::Config { key: key.into(), what: what.into() }
    }
}
