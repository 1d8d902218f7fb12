//! What one worker has of one family: its gate, its numbers, its mailbox.

use crate::counters::{Board, Counter, Counters};
use crate::family::Paired;
use crate::gate::{Applied, Gate, RECLAIM_TURN, Rules};
use crate::mail::{Letter, Mailbox};
use crate::unplaced::Unplaced;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Decisions that are read between two bursts.
const READ: usize = 256;
/// How often numbers are shown.
const SHOW_NS: u64 = 10_000_000;
/// How soon a worker comes back for numbers of policies that wait to be free, though nothing happens.
const RETIRE_NS: u64 = 200_000;

/// See the [module](self).
pub(crate) struct Seat<A: Paired<W>, const W: usize> {
    pub(crate) gate: Gate<A, W>,
    pub(crate) counters: Counters,
    pub(crate) mail: Arc<Mailbox<A>>,
    pub(crate) board: Board,
    /// How many flows there are now: [`Counter::Flows4`] or [`Counter::Flows6`].
    pub(crate) flows: Counter,
    /// How many of them have a program: [`Counter::ProgramFlows4`] or [`Counter::ProgramFlows6`].
    pub(crate) programs: Counter,
    pub(crate) shown_ns: u64,
    /// Requests that this worker has sent of flows that it had no room for.
    pub(crate) unplaced: Arc<Unplaced>,
    /// Up to which change of the policies no flow here has a retired number.
    pub(crate) passed: Arc<AtomicU64>,
}

impl<A: Paired<W>, const W: usize> Seat<A, W> {
    /// Looks for flows to forget, in so many buckets at most.
    #[inline]
    pub(crate) fn reclaim(&mut self, now_ns: u64, idle_ns: u64, rules: &Rules<'_, A>, most: usize) {
        let gone = self.gate.keep_up(now_ns, idle_ns, rules, &mut self.counters, most);
        self.counters.add(Counter::FlowsReclaimed, gone as u64);
    }

    /// Between two bursts. Returns when to come again though nothing happens, if so.
    pub(crate) fn tick(&mut self, now_ns: u64, idle_ns: u64, rules: &Rules<'_, A>) -> Option<u64> {
        // Before what was decided by the new version.
        while let Some(revocation) = self.mail.revocations.pop() {
            if self.gate.withdraw(now_ns, &revocation).is_err() {
                self.counters.one(Counter::RevocationsLate);
            }
        }
        for _ in 0..READ {
            let Some(Letter { source, destination, verdict, make, grantor, by }) = self.mail.letters.pop()
            else {
                break;
            };
            // Policies may have changed since it was put there.
            let at = rules.of(destination);
            if grantor.is_some_and(|grantor| !at.1.names(at.0, grantor)) {
                self.counters.one(Counter::DecisionsRefused);
                continue;
            }
            let flow = (source, destination);
            let mut applied = Applied::Unknown;
            if !make {
                applied = self.gate.apply(now_ns, at, flow, &verdict, grantor, by);
            }
            // Nobody else has it, or it asked here.
            if applied == Applied::Unknown && (make || self.unplaced.take(source, destination)) {
                applied = self.gate.impose(now_ns, at, flow, &verdict, grantor, by);
            }
            self.counters.one(applied.counter());
        }
        let shown = self.gate.show_revoked();
        // What bursts have left, also where no packets come.
        self.reclaim(now_ns, idle_ns, rules, RECLAIM_TURN);
        if now_ns.saturating_sub(self.shown_ns) >= SHOW_NS {
            self.shown_ns = now_ns;
            self.gate.settles(now_ns, idle_ns);
            self.gate.heavy().tick(now_ns);
            self.show();
        }
        let choices = rules.choices();
        let passed = self.gate.passed(choices);
        if self.passed.load(Ordering::Relaxed) != passed {
            self.passed.store(passed, Ordering::Release);
        }
        // What was dropped last is shown also where no more packets come.
        let due_ns = self.gate.heavy().due_ns().map(|due_ns| due_ns.max(self.shown_ns + SHOW_NS));
        let retired_ns = choices.any_retired().then_some(now_ns + RETIRE_NS);
        let again_ns = (!shown).then_some(now_ns + SHOW_NS);
        // A worker without packets would sleep on what it has not read yet.
        let unread_ns = (!self.mail.letters.is_empty()).then_some(now_ns);
        [due_ns, retired_ns, again_ns, unread_ns].into_iter().flatten().min()
    }

    /// Shows the numbers of now.
    pub(crate) fn show(&mut self) {
        self.counters.set(self.flows, self.gate.len() as u64);
        self.counters.set(Counter::FlowsReplaced, self.gate.replaced());
        self.counters.set(self.programs, self.gate.programs() as u64);
        self.board.show(&self.counters);
    }
}
