//! What an operator asks for: flows, policies, where the most is dropped.

use crate::config::Action;
use crate::family::Paired;
use crate::flow::Shown;
use crate::top::{By, ENTRIES, EVERY, Estimate, Exchange, Summary, WINDOW_NS, Window, hash};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_flow::heavy::{HeavyHitters, Hitter};
use tidemill_flow::table::SizeError;

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
            Shown::Revoked => "revoked",
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
    /// Whether it is about an address of our own, which is reached whatever policies say: it has no effect.
    pub ours: bool,
}

/// What was dropped of one flow, source or destination in the last windows of all workers together: an estimate, by a sample of one packet in
/// sixteen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopLine {
    /// Workers that have it among the most that they dropped.
    pub workers: usize,
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
    /// The windows' length, the longest.
    pub window_ns: u64,
    /// When the first of them ended.
    pub ended_ns: u64,
}

/// One of those who drop: a worker's gate, or its solicitor.
struct Source<const W: usize> {
    worker: usize,
    exchange: Arc<Exchange<W>>,
    /// What it has said last; none: its first window has not ended.
    last: Option<Window<W>>,
    /// What it gets back for its first window.
    spare: Option<Box<Summary<W>>>,
}

/// What all who drop have said last, and room to add it up.
pub(crate) struct Tops<const W: usize> {
    sources: Vec<Source<W>>,
    sum: HeavyHitters<W>,
}

/// By which a window may come later than its length says.
const LATE_NS: u64 = 1_000_000_000;

impl<const W: usize> Tops<W> {
    pub(crate) fn new() -> Result<Self, SizeError> {
        Ok(Tops { sources: Vec::new(), sum: HeavyHitters::new(ENTRIES)? })
    }

    /// One more who drops.
    pub(crate) fn listen(&mut self, worker: usize, exchange: Arc<Exchange<W>>) -> Result<(), SizeError> {
        let spare = Some(Box::new(Summary::new()?));
        self.sources.push(Source { worker, exchange, last: None, spare });
        Ok(())
    }

    /// Takes what they have collected. Returns whether there was anything.
    pub(crate) fn collect(&mut self) -> bool {
        let mut any = false;
        for Source { exchange, last, spare, .. } in &mut self.sources {
            let Some(window) = exchange.full.pop() else { continue };
            let before = last.replace(window).map(|window| window.summary);
            if let Some(mut summary) = before.or_else(|| spare.take()) {
                summary.clear();
                // There is room: only we fill it.
                let _ = exchange.empty.push(summary);
            }
            any = true;
        }
        any
    }

    /// The `n` heaviest, all windows together after which no other should have come by now: a worker that drops nothing any more may send none.
    pub(crate) fn lines<A: Paired<W>>(&mut self, by: By, n: usize, now_ns: u64) -> Vec<TopLine> {
        let Tops { sources, sum } = self;
        let is_last = |window: &&Window<W>| now_ns < window.ended_ns.saturating_add(WINDOW_NS + LATE_NS);
        let fresh: Vec<(usize, &Window<W>)> = sources
            .iter()
            .filter_map(|source| Some((source.worker, source.last.as_ref().filter(is_last)?)))
            .collect();
        sum.clear();
        for (_, window) in &fresh {
            // They are of one size.
            let _ = sum.merge(&window.summary.0[by as usize]);
        }
        let window_ns = fresh.iter().map(|(_, window)| window.length_ns).max().unwrap_or(0);
        let every = fresh.iter().map(|(_, window)| window.every).max().unwrap_or(EVERY);
        let ended_ns = fresh.iter().map(|(_, window)| window.ended_ns).min().unwrap_or(0);
        let line = |hitter: &Hitter<W>| {
            let (source, destination) = A::of_key(&hitter.key);
            let Estimate { packets, low, high } = Estimate::of(hitter.at_least, hitter.at_most, every);
            let listed = fresh.iter().filter(|(_, window)| {
                window.summary.0[by as usize].get(hash(&hitter.key), &hitter.key).at_least > 0
            });
            let workers: BTreeSet<usize> = listed.map(|(worker, _)| *worker).collect();
            TopLine {
                workers: workers.len(),
                source: (by != By::Destination).then_some(source.address()),
                destination: (by != By::Source).then_some(destination.address()),
                packets,
                low,
                high,
                window_ns,
                ended_ns,
            }
        };
        sum.top(n).hitters.iter().map(line).collect()
    }

    /// Whether a window of anybody has ended.
    pub(crate) fn any(&self) -> bool {
        self.sources.iter().any(|source| source.last.is_some())
    }
}
