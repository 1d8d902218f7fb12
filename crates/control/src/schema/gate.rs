//! What a Gatekeeper says and is asked.

pub use super::Counters;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET with [`FlowsQuery`](super::FlowsQuery): [`Flows`](super::Flows).
    pub const FLOWS: &str = "/v1/gate/flows";
    /// GET with [`FlowQuery`](super::FlowQuery): [`FlowAnswer`](super::FlowAnswer). POST with [`Decide`](super::Decide).
    pub const FLOW: &str = "/v1/gate/flow";
    /// GET: [`Fib`](super::Fib). POST with [`Policy`](super::Policy). DELETE with [`PolicyQuery`](super::PolicyQuery).
    pub const FIB: &str = "/v1/gate/fib";
    /// GET: [`Solicitor`](super::Solicitor).
    pub const SOLICITOR: &str = "/v1/gate/solicitor";
    /// GET with [`TopQuery`](super::TopQuery): [`Top`](super::Top).
    pub const TOP: &str = "/v1/gate/top";
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/gate/counters";
}

answers! {
    /// A page of flows.
    pub struct Flows {
        /// Those of this page.
        pub flows: Vec<Flow>,
        /// What to give as `after` for the next page, if there is one.
        pub next: Option<String>,
    }

    /// What is known of a flow. What its state does not have is none.
    pub struct Flow {
        /// `request`, `granted`, `declined`, `program`, or `revoked`: its Grantor has taken back what was decided, and no packet has come since.
        pub state: String,
        /// Its source.
        pub source: String,
        /// Its destination.
        pub destination: String,
        /// The worker that knows it.
        pub worker: u32,
        /// Of a request: the level of its last packet; its DSCP is three more, at most 63.
        pub level: Option<u8>,
        /// Of a request: packets that it may still send at this level.
        pub allowance: Option<u8>,
        /// Of a request: seconds since its last packet.
        pub idle_s: Option<f64>,
        /// The number of the program that decides.
        pub program: Option<u8>,
        /// Granted: KiB/s.
        pub rate_kib_s: Option<u32>,
        /// Granted: bytes that it may send at once now.
        pub bucket: Option<u64>,
        /// Granted: seconds until it is renewed; 0 if it is time.
        pub renewal_s: Option<f64>,
        /// Granted: whether its packets go past the Grantor.
        pub direct: Option<bool>,
        /// Granted or declined: seconds until it expires.
        pub expires_s: Option<f64>,
    }

    /// What is known of a pair of addresses.
    pub struct FlowAnswer {
        /// The policy's prefix; none where there is no policy for the destination.
        pub prefix: Option<String>,
        /// What is done: `grantor`, `route` or `drop`.
        pub action: String,
        /// The Grantor that decides about this flow.
        pub grantor: Option<String>,
        /// What workers know of it.
        pub flows: Vec<Flow>,
    }

    /// All policies.
    pub struct Fib {
        /// IPv4 first, in order of their prefixes.
        pub policies: Vec<FibPolicy>,
    }

    /// A policy.
    pub struct FibPolicy {
        /// The destinations.
        pub prefix: String,
        /// `grantor`, `route` or `drop`.
        pub action: String,
        /// With action `grantor`: their addresses.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub grantors: Vec<String>,
        /// Whether it is about an address of the gatekeeper's own, which is reached whatever policies say: it has no effect.
        pub ours: bool,
    }

    /// The requests on their way.
    pub struct Solicitor {
        /// Bits per second that requests may use, all workers together.
        pub bits_per_s: u64,
        /// Requests that each worker keeps at most.
        pub capacity: u64,
        /// Requests that wait.
        pub waiting: u64,
        /// Requests that were sent.
        pub sent: u64,
        /// Their bytes on the wire.
        pub sent_bytes: u64,
        /// Requests that found the queue full of others of their level and above.
        pub refused: u64,
        /// Requests that gave way to others of a higher level.
        pub evicted: u64,
        /// By code point, those that requests have come with, the lowest first.
        pub levels: Vec<SolicitorLevel>,
    }

    /// Requests of one code point.
    pub struct SolicitorLevel {
        /// 3 to 63; the higher goes first.
        pub dscp: u8,
        /// Requests that wait.
        pub waiting: u64,
        /// Requests that were sent.
        pub sent: u64,
        /// Requests that found the queue full of others of their level and above.
        pub refused: u64,
        /// Requests that gave way to others of a higher level.
        pub evicted: u64,
        /// Microseconds that half of those sent had waited at most, to a factor of two.
        pub wait_p50_us: Option<f64>,
        /// The same of 99 in 100.
        pub wait_p99_us: Option<f64>,
        /// The longest wait of one that was sent.
        pub wait_max_us: Option<f64>,
    }

    /// Where the gate and the solicitor drop the most, all workers together.
    pub struct Top {
        /// Whether any worker's first window has ended; before that there is nothing to show.
        pub begun: bool,
        /// The length of windows, in seconds; one may last longer.
        pub window_s: f64,
        /// The most first.
        pub lines: Vec<TopLine>,
    }

    /// What was dropped of one flow, source or destination in the last windows of all workers: an estimate, by a sample of one packet in sixteen.
    pub struct TopLine {
        /// The source, unless destinations are told apart.
        pub source: Option<String>,
        /// The destination, unless sources are told apart.
        pub destination: Option<String>,
        /// Packets, about.
        pub packets: u64,
        /// With `high`: between these the truth is, in 19 of 20 cases.
        pub low: u64,
        /// See `low`.
        pub high: u64,
        /// The windows' length in seconds, the longest.
        pub window_s: f64,
        /// Seconds since the first of them ended.
        pub age_s: f64,
        /// Workers that have it among the most that they dropped.
        pub workers: u32,
    }
}

requests! {
    /// What becomes of packets to a prefix.
    pub struct Policy {
        /// The destinations.
        pub prefix: String,
        /// `grantor`, `route` or `drop`.
        pub action: String,
        /// With action `grantor`: their addresses.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub grantors: Vec<String>,
    }

    /// Which policy.
    pub struct PolicyQuery {
        /// Its prefix.
        pub prefix: String,
    }

    /// Which flows.
    pub struct FlowsQuery {
        /// Only those in this state.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub state: Option<String>,
        /// Only those from or to this address.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub address: Option<String>,
        /// What the last page said.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub after: Option<String>,
        /// At most about so many.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// Which flow.
    pub struct FlowQuery {
        /// Its source.
        pub source: String,
        /// Its destination.
        pub destination: String,
    }

    /// A decision about a flow.
    pub struct Decide {
        /// Its source.
        pub source: String,
        /// Its destination.
        pub destination: String,
        /// KiB/s that it is granted; none declines it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rate_kib_s: Option<u32>,
        /// Seconds that the decision holds.
        pub expire_s: u32,
        /// Milliseconds until the grant is renewed the first time. Default: three quarters of the time that it holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub renew_ms: Option<u32>,
        /// Milliseconds between two renewals. Default: 5,000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub step_ms: Option<u32>,
        /// Whether granted packets go past the Grantor.
        #[serde(default)]
        pub direct: bool,
    }

    /// The most of what.
    pub struct TopQuery {
        /// `flow`, `source` or `destination`.
        pub by: String,
        /// At most so many lines.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }
}
