//! What one worker has of one family: its gate, its numbers, its mailbox.

use crate::counters::{Board, Counter, Counters};
use crate::family::Paired;
use crate::gate::{Gate, RECLAIM_IDLE};
use crate::mail::Mailbox;
use std::sync::Arc;

/// Decisions that are read between two bursts.
const READ: usize = 256;
/// How often numbers are shown.
const SHOW_NS: u64 = 10_000_000;

/// See the [module](self).
pub(crate) struct Seat<A: Paired<W>, const W: usize> {
    pub(crate) gate: Gate<A, W>,
    pub(crate) counters: Counters,
    pub(crate) mail: Arc<Mailbox<A>>,
    pub(crate) board: Board,
    /// How many flows there are now: [`Counter::Flows4`] or [`Counter::Flows6`].
    pub(crate) flows: Counter,
    pub(crate) shown_ns: u64,
}

impl<A: Paired<W>, const W: usize> Seat<A, W> {
    /// Looks for flows to forget.
    #[inline]
    pub(crate) fn reclaim(&mut self, now_ns: u64, idle_ns: u64, buckets: usize) {
        let gone = self.gate.reclaim(now_ns, idle_ns, buckets);
        self.counters.add(Counter::FlowsReclaimed, gone as u64);
    }

    /// Between two bursts.
    pub(crate) fn tick(&mut self, now_ns: u64, idle_ns: u64) {
        for _ in 0..READ {
            let Some(letter) = self.mail.letters.pop() else { break };
            let (source, destination) = (letter.source, letter.destination);
            let known = if letter.make {
                self.gate.impose(now_ns, source, destination, &letter.verdict)
            } else {
                self.gate.apply(now_ns, source, destination, &letter.verdict)
            };
            self.counters.one(if known { Counter::DecisionsApplied } else { Counter::DecisionsUnknown });
        }
        if now_ns.saturating_sub(self.shown_ns) >= SHOW_NS {
            self.shown_ns = now_ns;
            // Also where no packets come.
            self.reclaim(now_ns, idle_ns, RECLAIM_IDLE);
            self.gate.heavy().tick(now_ns);
            self.show();
        }
    }

    /// Shows the numbers of now.
    pub(crate) fn show(&mut self) {
        self.counters.set(self.flows, self.gate.len() as u64);
        self.board.show(&self.counters);
    }
}
