//! What an operator asks for: flows, policies, where the most is dropped.

use crate::config::Action;
use crate::family::Paired;
use crate::flow::Shown;
use crate::top::{By, Summary};
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

/// What was dropped of one flow, source or destination in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopLine {
    /// The worker that dropped it.
    pub worker: usize,
    /// The source, unless destinations are told apart.
    pub source: Option<IpAddr>,
    /// The destination, unless sources are told apart.
    pub destination: Option<IpAddr>,
    /// Packets, at least; by a sample of one in sixteen.
    pub at_least: u64,
    /// Packets, at most.
    pub at_most: u64,
    /// The window's length.
    pub window_ns: u64,
}

/// What workers have said last.
#[derive(Debug, Default)]
pub(crate) struct Tops(Vec<[Vec<TopLine>; 3]>);

/// Lines kept of each kind.
const LINES: usize = 64;

impl Tops {
    /// Takes what a worker has collected.
    pub(crate) fn take<A: Paired<W>, const W: usize>(
        &mut self,
        worker: usize,
        summary: &Summary<W>,
        window_ns: u64,
    ) {
        if self.0.len() <= worker {
            self.0.resize_with(worker + 1, Default::default);
        }
        for (by, (lines, hitters)) in By::ALL.into_iter().zip(self.0[worker].iter_mut().zip(&summary.0)) {
            *lines = hitters
                .top(LINES)
                .hitters
                .iter()
                .map(|hitter| {
                    let (source, destination) = A::of_key(&hitter.key);
                    TopLine {
                        worker,
                        source: (by != By::Destination).then_some(source.address()),
                        destination: (by != By::Source).then_some(destination.address()),
                        at_least: hitter.at_least,
                        at_most: hitter.at_most,
                        window_ns,
                    }
                })
                .collect();
        }
    }

    pub(crate) fn lines(&self, by: By) -> Vec<TopLine> {
        self.0.iter().flat_map(|kinds| kinds[by as usize].iter().copied()).collect()
    }
}
