//! What a NAT says and is asked.

pub use super::Counters;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET with [`SessionsQuery`](super::SessionsQuery): [`Sessions`](super::Sessions).
    pub const SESSIONS: &str = "/v1/nat/sessions";
    /// GET with [`ExplainQuery`](super::ExplainQuery): [`Explained`](super::Explained).
    pub const EXPLAIN: &str = "/v1/nat/explain";
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/nat/counters";
}

answers! {
    /// A page of sessions.
    pub struct Sessions {
        /// Those of this page.
        pub sessions: Vec<Session>,
        /// What to give as `after` for the next page, if there is one.
        pub next: Option<String>,
    }

    /// A session: an inside endpoint that talks to a remote one.
    pub struct Session {
        /// `tcp`, `udp` or `icmp`.
        pub protocol: String,
        /// The inside endpoint: address and port; of ICMP queries the identifier.
        pub inside: String,
        /// What it looks like outside.
        pub outside: String,
        /// Whom it talks to.
        pub remote: String,
        /// Of TCP: `opening`, `open`, `closed` or `reset`.
        pub state: Option<String>,
        /// Seconds until it ends, unless something comes.
        pub expires_s: f64,
        /// Whether it was begun from outside.
        pub from_outside: bool,
        /// Packets from inside.
        pub packets_out: u64,
        /// Packets from outside.
        pub packets_in: u64,
        /// The worker that has it.
        pub worker: u32,
    }

    /// What an address, or an endpoint, is to the NAT.
    pub struct Explained {
        /// What follows from the configuration: a line each.
        pub configured: Vec<String>,
        /// Sessions that it is in, at most a hundred.
        pub sessions: Vec<Session>,
        /// Whether there are more.
        pub more: bool,
    }
}

requests! {
    /// Which sessions.
    pub struct SessionsQuery {
        /// With this address, on any side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub address: Option<String>,
        /// Of this protocol.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub protocol: Option<String>,
        /// Where to go on: `next` of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<String>,
        /// How many, about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// What to explain.
    pub struct ExplainQuery {
        /// An address, or an address with a port.
        pub endpoint: String,
    }
}
