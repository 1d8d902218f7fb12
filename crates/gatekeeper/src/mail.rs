//! Decisions on their way to the workers, by bounded queues: nobody waits, what does not fit is counted.
//!
//! Nobody but the NIC knows which worker has a flow, so every worker that has the gate gets every decision, and keeps those about flows that it knows, or for which it had no room when they
//! asked ([`crate::unplaced`]).

use crate::control::GatekeeperControl;
use crate::decision::Verdict;
use crossbeam_queue::ArrayQueue;
use std::sync::{Arc, OnceLock};
use tidemill_graph::Waker;

/// Decisions that wait for one worker at most.
pub(crate) const LETTERS: usize = 8192;

/// A decision about a flow.
#[derive(Debug, Clone)]
pub(crate) struct Letter<A> {
    pub(crate) source: A,
    pub(crate) destination: A,
    pub(crate) verdict: Verdict,
    /// Whether a flow is made for it where there is none.
    pub(crate) make: bool,
    /// The number of the Grantor that decided; `None`: an operator. It counts as long as the policy of the destination names it.
    pub(crate) grantor: Option<u16>,
    /// Whose it is, and by which version of its policy; `None`: an operator's, or in a format that has no versions. It cannot be revoked.
    pub(crate) by: Option<By>,
}

/// A Grantor and the version of its policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// The Grantor's number among those of its family.
    pub grantor: u16,
    /// The version.
    pub version: u32,
}

/// What a Grantor has decided under lower versions than this counts no more, for destinations from `to.0` to `to.1`; without `to`, for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revocation<A> {
    /// The Grantor, and the first version that still counts.
    pub below: By,
    /// The first and the last destination.
    pub to: Option<(A, A)>,
}

/// Revocations that wait for one worker at most.
pub(crate) const REVOCATIONS: usize = 256;

/// One worker's, for one family.
#[derive(Debug)]
pub(crate) struct Mailbox<A> {
    pub(crate) letters: ArrayQueue<Letter<A>>,
    /// To be heard before the letters.
    pub(crate) revocations: ArrayQueue<Revocation<A>>,
    waker: OnceLock<Waker>,
}

impl<A> Mailbox<A> {
    /// Who is to be woken.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        let _ = self.waker.set(waker.clone());
    }
}

/// All workers' mailboxes for one family.
#[derive(Debug, Clone)]
pub(crate) struct Post<A> {
    all: Arc<[Arc<Mailbox<A>>]>,
    /// Those of workers that have the gate.
    gates: Arc<[Arc<Mailbox<A>>]>,
}

impl<A: Copy> Post<A> {
    pub(crate) fn new(workers: usize) -> Self {
        let mailbox = |_| {
            Arc::new(Mailbox {
                letters: ArrayQueue::new(LETTERS),
                revocations: ArrayQueue::new(REVOCATIONS),
                waker: OnceLock::new(),
            })
        };
        let all: Arc<[_]> = (0..workers).map(mailbox).collect();
        Post { gates: all.clone(), all }
    }

    /// Only workers with such numbers have the gate.
    fn only(&mut self, has: impl Fn(usize) -> bool) {
        let theirs = self.all.iter().enumerate().filter(|(worker, _)| has(*worker));
        self.gates = theirs.map(|(_, mailbox)| mailbox.clone()).collect();
    }

    /// A worker's own.
    pub(crate) fn of(&self, worker: usize) -> Option<&Arc<Mailbox<A>>> {
        self.all.get(worker)
    }

    /// Whether one worker only has the gate.
    pub(crate) fn is_alone(&self) -> bool {
        self.gates.len() == 1
    }

    /// Puts a decision into every gate's mailbox; returns how many had no room.
    pub(crate) fn send(&self, letter: &Letter<A>) -> u64 {
        self.gates.iter().map(|mailbox| u64::from(mailbox.letters.push(letter.clone()).is_err())).sum()
    }

    /// Puts a revocation into every gate's mailbox; returns how many had no room.
    pub(crate) fn revoke(&self, revocation: &Revocation<A>) -> u64 {
        self.gates.iter().map(|mailbox| u64::from(mailbox.revocations.push(*revocation).is_err())).sum()
    }

    /// Wakes those that sleep, after something was sent.
    pub(crate) fn wake(&self) {
        self.all.iter().filter_map(|mailbox| mailbox.waker.get()).for_each(Waker::wake);
    }
}

impl GatekeeperControl {
    /// Says which workers have the gate of IPv4, and of IPv6: with stages not all. Others get no decisions. To be called before the graph is made.
    pub fn set_gates(&mut self, has4: impl Fn(usize) -> bool, has6: impl Fn(usize) -> bool) {
        self.v4.post.only(has4);
        self.v6.post.only(has6);
    }
}
