//! What can be wrong with a cache's configuration.

/// Why a cache cannot be made. One line: what, where, what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}")]
pub struct KvcacheError {
    /// The key, as `kvcache.l1.ways`.
    pub key: String,
    /// What is wrong, and what to do.
    pub what: String,
}

impl KvcacheError {
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        KvcacheError { key: format!("kvcache.{}", key.into()), what: what.into() }
    }
}

/// Whether a number lies where it may.
pub(crate) fn within(key: &str, value: u64, least: u64, most: u64) -> Result<(), KvcacheError> {
    match value {
        value if (least..=most).contains(&value) => Ok(()),
        _ => Err(KvcacheError::new(key, format!("{value}: give {least} to {most}"))),
    }
}
