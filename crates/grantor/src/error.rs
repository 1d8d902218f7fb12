//! What can be wrong with a policy. One line: what, where, what to do.

use std::path::PathBuf;
use tidemill_feed::FeedError;
use tidemill_lpm::BuildError;

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// This program cannot run policies.
    #[error("policies need Lua, which this program was built without: build it with the feature `lua`")]
    NoLua,
    /// A value that makes no sense.
    #[error("grantor.{key}: {what}")]
    Config {
        /// The key.
        key: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Keys that cannot change while packets flow.
    #[error("grantor.{0}: cannot change while the grantor runs: put it back, or restart")]
    Restart(String),
    /// A script that cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A script that does not load: its file and line, and what is wrong there.
    #[error("{0}")]
    Script(String),
    /// A table of prefixes that cannot be read.
    #[error(transparent)]
    Table(#[from] FeedError),
    /// A table of prefixes that its structure cannot hold.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No thread for the policy.
    #[error("no thread for the policy: {0}")]
    Thread(std::io::Error),
}

impl PolicyError {
    pub(crate) fn config(key: impl Into<String>, what: impl Into<String>) -> Self {
        PolicyError::Config { key: key.into(), what: what.into() }
    }
}
