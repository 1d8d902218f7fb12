//! What a cache in front of a memcached says and is asked.

pub use super::Counters;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/kv/counters";
    /// GET with [`TopQuery`](super::TopQuery): [`Top`](super::Top).
    pub const TOP: &str = "/v1/kv/top";
    /// GET: [`OnDemand`](super::OnDemand).
    pub const ON_DEMAND: &str = "/v1/kv/on-demand";
    /// POST: makes all that is kept void; [`Done`](super::super::Done).
    pub const FLUSH: &str = "/v1/kv/flush";
}

answers! {
    /// Who answers gets, the cache or memcached, and why.
    pub struct OnDemand {
        /// The cache does.
        pub cache_answers: bool,
        /// What decides it: `always` (the cache), `network` (the gets that it sees), `host` (CPU use and power).
        pub decides: String,
        /// What was read of the host last, in words.
        pub read: Option<String>,
        /// The host's last shift, in words, with the means that made it.
        pub shifted: Option<String>,
    }

    /// The most wanted keys.
    pub struct Top {
        /// The most first.
        pub lines: Vec<TopLine>,
    }

    /// One key.
    pub struct TopLine {
        /// It, what is no UTF-8 replaced.
        pub key: String,
        /// How often it was given, from samples.
        pub hits: u64,
    }
}

requests! {
    /// How many.
    pub struct TopQuery {
        /// At most so many lines.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }
}
