//! What an operator asks for: flows, policies, where the most is dropped.

use crate::config::Action;
use crate::family::Paired;
use crate::flow::Shown;
use crate::top::{By, Estimate, WINDOW_NS, Window};
use std::net::IpAddr;

/// One flow that a worker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowLine {
    /// The worker whose table it is in.
    pub worker: usize,
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// What is known of it.
    pub state: Shown,
}

impl FlowLine {
    /// The state's stable name.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            Shown::Request { .. } => "request",
            Shown::Granted { .. } => "granted",
            Shown::Declined { .. } => "declined",
            Shown::Program { .. } => "program",
        }
    }
}

/// Some flows, in no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowsPage {
    /// The flows.
    pub flows: Vec<FlowLine>,
    /// The cursor of the next page; none if this was the last.
    pub next: Option<u64>,
}

/// Flows on a page where the caller does not say.
const PAGE: usize = 1000;

/// Which flows to list.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Of this state only, by its name.
    pub state: Option<String>,
    /// With this source or destination only.
    pub address: Option<IpAddr>,
    /// Where to go on: [`FlowsPage::next`] of the page before.
    pub cursor: Option<u64>,
    /// Flows on a page, up to those of a few buckets more; 0 is 1000.
    pub limit: usize,
}

impl Wanted {
    pub(crate) fn limit(&self) -> usize {
        if self.limit == 0 { PAGE } else { self.limit }
    }

    pub(crate) fn takes(&self, line: &FlowLine) -> bool {
        self.state.as_ref().is_none_or(|state| line.state_name() == state)
            && self.address.is_none_or(|address| line.source == address || line.destination == address)
    }
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLine {
    /// The destinations.
    pub prefix: String,
    /// What is done.
    pub action: Action,
    /// The Grantors, with action [`Action::Grantor`].
    pub grantors: Vec<IpAddr>,
}

/// What was dropped of one flow, source or destination in a window: an estimate, by a sample of one packet in
/// sixteen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopLine {
    /// The worker that dropped it.
    pub worker: usize,
    /// The source, unless destinations are told apart.
    pub source: Option<IpAddr>,
    /// The destination, unless sources are told apart.
    pub destination: Option<IpAddr>,
    /// Packets, about.
    pub packets: u64,
    /// With `high`: between these the truth is, in 19 of 20 cases.
    pub low: u64,
    /// See `low`.
    pub high: u64,
    /// The window's length.
    pub window_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
}

/// What workers have said last; none: their first window has not ended.
#[derive(Debug, Default)]
pub(crate) struct Tops(Vec<Option<[Vec<TopLine>; 3]>>);

/// By which a window may come later than its length says.
const LATE_NS: u64 = 1_000_000_000;

/// Lines kept of each kind.
const LINES: usize = 64;

impl Tops {
    /// Takes what a worker has collected.
    pub(crate) fn take<A: Paired<W>, const W: usize>(&mut self, worker: usize, window: &Window<W>) {
        if self.0.len() <= worker {
            self.0.resize_with(worker + 1, Default::default);
        }
        let kinds = self.0[worker].get_or_insert_default();
        for (by, (lines, hitters)) in By::ALL.into_iter().zip(kinds.iter_mut().zip(&window.summary.0)) {
            *lines = hitters
                .top(LINES)
                .hitters
                .iter()
                .map(|hitter| {
                    let (source, destination) = A::of_key(&hitter.key);
                    let Estimate { packets, low, high } = Estimate::of(hitter.at_least, hitter.at_most);
                    TopLine {
                        worker,
                        source: (by != By::Destination).then_some(source.address()),
                        destination: (by != By::Source).then_some(destination.address()),
                        packets,
                        low,
                        high,
                        window_ns: window.length_ns,
                        ended_ns: window.ended_ns,
                    }
                })
                .collect();
        }
    }

    /// The lines of windows after which no other should have come by now: a worker that drops nothing any more may send none.
    pub(crate) fn lines(&self, by: By, now_ns: u64) -> Vec<TopLine> {
        let is_last = |line: &TopLine| now_ns < line.ended_ns.saturating_add(WINDOW_NS + LATE_NS);
        self.0.iter().flatten().flat_map(|kinds| kinds[by as usize].iter().copied()).filter(is_last).collect()
    }

    /// Whether a window of any worker has ended.
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }
}
