//! What can be wrong with a filter's configuration, or with its rules.

use crate::filter::text::RuleError;
use tidemill_flow::table::SizeError;
use tidemill_lookup::image::ImageError;

/// Why a filter cannot be made, or cannot take a change. One line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A value that makes no sense.
    #[error("filter.{key}: {what}")]
    Config {
        /// The key.
        key: &'static str,
        /// What is wrong, and what to do.
        what: String,
    },
    /// Keys that cannot change while packets flow.
    #[error("filter.{0}: cannot change while the filter runs: put it back, or restart")]
    Restart(&'static str),
    /// What is to be taken over is damaged, or is something else.
    #[error("filter.handover: {0}")]
    Image(#[from] ImageError),
    /// Connections are taken over before packets flow, or not at all.
    #[error("filter.handover: the filter runs already: connections are taken over when it starts")]
    Begun,
    /// Tables that are too large.
    #[error("filter.states, filter.half_open: {0}: give fewer")]
    Size(#[from] SizeError),
    /// Something in the rule file, or in a file that it names.
    #[error("{file}: {error}")]
    Rules {
        /// The file.
        file: String,
        /// What, and where.
        error: RuleError,
    },
    /// A file that cannot be read.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: String,
        /// As the system says.
        error: std::io::Error,
    },
    /// A set that cannot be changed.
    #[error("{0}")]
    Set(String),
}
