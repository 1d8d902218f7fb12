//! What can go wrong with a program: one line each, without the place, which the caller knows.

use std::io;

/// A program that could not be loaded, attached, pinned, read or written.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// The system refused.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be, for a reason that can be named.
    #[error("{0}")]
    Refused(String),
}

impl BpfError {
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| BpfError::System { action, source }
    }
}
