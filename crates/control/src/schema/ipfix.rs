//! What flow export says.

pub use super::Counters;

/// The paths of the verbs.
pub mod path {
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/ipfix/counters";
}
