//! What can be wrong with a NAT's configuration, or with making one.

use tidemill_flow::table::SizeError;
use tidemill_lookup::image::ImageError;

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
    /// What is to be taken over is damaged, or is something else.
    #[error("nat.handover: {0}")]
    Image(#[from] ImageError),
    /// Sessions are taken over before packets flow, or not at all.
    #[error("nat.handover: the NAT runs already: sessions are taken over when it starts")]
    Begun,
    /// Tables that are too large.
    #[error("nat.mappings, nat.sessions: {0}: give fewer")]
    Size(#[from] SizeError),
}

impl NatError {
    pub(crate) fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        NatError::Config { key: key.into(), what: what.into() }
    }
}
