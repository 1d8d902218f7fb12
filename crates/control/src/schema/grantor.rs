//! What a Grantor says and is asked.

pub use super::Counters;
use serde::{Deserialize, Serialize};

/// The paths of the verbs.
pub mod path {
    /// GET: [`Policy`](super::Policy).
    pub const POLICY: &str = "/v1/grantor/policy";
    /// GET with [`QuestionsQuery`](super::QuestionsQuery): [`Questions`](super::Questions).
    pub const QUESTIONS: &str = "/v1/grantor/questions";
    /// GET: [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/grantor/counters";
    /// POST with [`Revoke`](super::Revoke): [`Done`](super::super::Done).
    pub const REVOKE: &str = "/v1/grantor/revoke";
}

answers! {
    /// The policy that decides.
    pub struct Policy {
        /// Its file, or the name of the one that comes with Tidemill, with `.lua` behind.
        pub name: String,
        /// What decisions carry; it rises with every reload and revocation.
        pub version: u32,
        /// How decisions are sent: `authenticated` or `interoperable`.
        pub decisions: String,
        /// The tables that it looks addresses up in.
        pub tables: Vec<Table>,
        /// Gatekeepers that have asked or probed.
        pub gatekeepers: Vec<Gatekeeper>,
        /// Workers whose policy has ended by a fault; a reload starts it again.
        pub ended: u32,
        /// Questions that came to it.
        pub asked: u64,
        /// Those of them that another one's answer served.
        pub merged: u64,
        /// Questions that the policy did not answer.
        pub failed: u64,
    }

    /// A table of prefixes.
    pub struct Table {
        /// The file.
        pub file: String,
        /// Prefixes in it.
        pub prefixes: u64,
    }

    /// A Gatekeeper.
    pub struct Gatekeeper {
        /// Its address.
        pub address: String,
        /// Our address, that it asks.
        pub ours: String,
        /// Seconds since a probe of its counted; none: no probe has.
        pub heard_s: Option<f64>,
    }

    /// The last questions and their answers.
    pub struct Questions {
        /// Packets that wait for an answer now.
        pub waiting: u64,
        /// The latest first.
        pub questions: Vec<Question>,
    }

    /// A question and its answer.
    pub struct Question {
        /// Seconds since it was answered.
        pub ago_s: f64,
        /// Through whom it came.
        pub gatekeeper: String,
        /// The flow's source.
        pub source: String,
        /// Its destination.
        pub destination: String,
        /// The outer code point: 2 asks for renewal, 3 to 63 for permission.
        pub dscp: u8,
        /// The upper-layer protocol's number.
        pub protocol: u8,
        /// The source port; 0 if there is none.
        pub source_port: u16,
        /// The destination port; 0 if there is none.
        pub destination_port: u16,
        /// `granted`, `declined`, `program` or `none`.
        pub decision: String,
        /// Granted: KiB per second.
        pub rate_kib_s: Option<u32>,
        /// Seconds for which it holds.
        pub expire_s: Option<u32>,
        /// Whether the packet went on.
        pub forward: bool,
        /// Why the policy did not answer, if it did not.
        pub failure: Option<String>,
    }
}

requests! {
    /// Which questions.
    pub struct QuestionsQuery {
        /// At most so many.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub limit: Option<u32>,
    }

    /// What counts no more.
    pub struct Revoke {
        /// The destinations; none: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub prefix: Option<String>,
    }
}
