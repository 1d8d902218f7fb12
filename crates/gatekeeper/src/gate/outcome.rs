//! What becomes of packets and of decisions.

use crate::counters::Counter;
use crate::tag::Tag;

/// What becomes of a packet from the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Routed, as it is.
    Route,
    /// To a Grantor, by way of the solicitor.
    Request(Tag),
    /// The same, and there was no room for its flow: whoever sends it on notes that, so that the answer finds its worker.
    Unplaced(Tag),
    /// To a Grantor.
    Granted(Tag),
    /// Dropped: a Grantor, to which it goes, would take it for one of ours.
    Forged,
    /// Dropped: the policy says so.
    PolicyDrop,
    /// Dropped: its flow is declined.
    Declined,
    /// Dropped: its flow is granted less.
    OverRate,
}

/// What became of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Its flow has it.
    Done,
    /// There is no such flow here.
    Unknown,
    /// It counts no more: its version of the policy is revoked.
    Revoked,
    /// It brings a program that there is none of.
    Unsupported,
    /// It brings a program that does not take its cookie: its flow is declined instead.
    NotTaken,
    /// It brings a program, and there is no room for its cookie.
    Full,
}

impl Applied {
    /// What it counts as.
    pub(crate) fn counter(self) -> Counter {
        match self {
            Applied::Done => Counter::DecisionsApplied,
            Applied::Unknown => Counter::DecisionsUnknown,
            Applied::Revoked => Counter::DecisionsRevoked,
            Applied::Unsupported => Counter::DecisionsUnsupported,
            Applied::NotTaken => Counter::CookiesNotTaken,
            Applied::Full => Counter::ProgramsFull,
        }
    }
}
