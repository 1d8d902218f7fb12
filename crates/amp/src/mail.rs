//! What workers tell each other and the control side, by bounded queues: nobody waits, what does not fit is counted.

use crate::offload::RuleEvent;
use crate::tuple::Tuple;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tidemill_graph::Waker;

/// Messages of one kind that wait for one worker.
pub(crate) const LETTERS: usize = 4096;
/// Changes of rules of one worker that wait for the control side.
const EVENTS: usize = 16_384;

/// A worker's mailbox. Questions are read first, so that no ICMP message overtakes the question that speaks against it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Somebody has asked for these answers.
    pub(crate) queries: ArrayQueue<Tuple>,
    /// A victim has said that nobody listens there.
    pub(crate) confirmations: ArrayQueue<Tuple>,
    /// Whom to wake when it fills.
    waker: OnceLock<Waker>,
}

impl Mailbox {
    /// The worker that this one is, once it has a thread.
    pub(crate) fn wake_with(&self, waker: &Waker) {
        let _ = self.waker.set(waker.clone());
    }
}

/// Whether a queue is so full that its worker has to come now: before, it may sleep on, for it reads before it decides.
pub(crate) fn fills(queue: &ArrayQueue<Tuple>) -> bool {
    queue.len() > queue.capacity() / 2
}

/// The mailboxes of all workers.
#[derive(Debug)]
pub(crate) struct Post {
    boxes: Box<[Mailbox]>,
}

impl Post {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        // One alone has nobody to write to.
        let room = if workers > 1 { LETTERS } else { 1 };
        let mailbox = || Mailbox {
            queries: ArrayQueue::new(room),
            confirmations: ArrayQueue::new(room),
            waker: OnceLock::new(),
        };
        Arc::new(Post { boxes: (0..workers).map(|_| mailbox()).collect() })
    }

    /// A worker's own.
    pub(crate) fn of(&self, worker: usize) -> Option<&Mailbox> {
        self.boxes.get(worker)
    }

    /// Puts a letter into every mailbox but one's own, and wakes those whose mailbox fills; returns how many had no room.
    pub(crate) fn send(
        &self,
        from: usize,
        tuple: Tuple,
        kind: impl Fn(&Mailbox) -> &ArrayQueue<Tuple>,
    ) -> u64 {
        let others = self.boxes.iter().enumerate().filter(|(worker, _)| *worker != from);
        let put = |mailbox: &Mailbox| {
            let queue = kind(mailbox);
            let is_lost = queue.push(tuple).is_err();
            if fills(queue) {
                mailbox.waker.get().into_iter().for_each(Waker::wake);
            }
            u64::from(is_lost)
        };
        others.map(|(_, mailbox)| put(mailbox)).sum()
    }
}

/// One worker's changes of rules, for the control side.
#[derive(Debug)]
pub(crate) struct Events {
    queue: ArrayQueue<RuleEvent>,
    lost: AtomicBool,
}

impl Events {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Events { queue: ArrayQueue::new(EVENTS), lost: AtomicBool::new(false) })
    }

    /// False if there was no room: then the control side looks at the tables themselves.
    pub(crate) fn push(&self, event: RuleEvent) -> bool {
        let fits = self.queue.push(event).is_ok();
        if !fits {
            self.lost.store(true, Ordering::Release);
        }
        fits
    }

    pub(crate) fn pop(&self) -> Option<RuleEvent> {
        self.queue.pop()
    }

    /// Whether something was lost since the last time. What is in the queue then is older than the tables.
    pub(crate) fn take_lost(&self) -> bool {
        self.lost.swap(false, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};
    use tidemill_wire::flow::Addresses;

    #[test]
    fn a_worker_whose_mailbox_fills_is_woken() {
        let post = Post::new(2);
        let waker = Waker::new().unwrap();
        post.of(0).unwrap().wake_with(&waker);
        let letter =
            Tuple { addresses: Addresses::V4 { src: 1, dst: 2 }, source_port: 53, destination_port: 9 };
        let kinds: [fn(&Mailbox) -> &ArrayQueue<Tuple>; 2] =
            [|mailbox| &mailbox.queries, |mailbox| &mailbox.confirmations];
        for kind in kinds {
            waker.doze();
            for _ in 0..LETTERS / 2 {
                assert_eq!(post.send(1, letter, kind), 0);
            }
            assert!(!fills(kind(post.of(0).unwrap())), "it may sleep on");
            post.send(1, letter, kind);
            // Long, so that nobody takes the end of the time for a call.
            let start = Instant::now();
            waker.sleep(&[], Duration::from_secs(60));
            assert!(start.elapsed() < Duration::from_secs(30), "nobody has woken it");
        }
    }
}
