//! The thread that runs a worker's policy, and in which order it does.
//!
//! ```text
//! ring --all that is there--> turns: renewals, then 63 levels by DSCP --a batch--> Engine --ring--> judge
//!                               '-- who has waited for half of `wait_ms`: unasked, late ---------------^
//! ```
//! - **By priority.** Who has a grant comes first, then who has waited longest at his Gatekeeper, which is what a DSCP says; who is as urgent goes in the order of asking. Renewals make
//!   batches of their own, so what strangers ask holds them up for a batch of theirs at most.
//! - **Half of the wait is for the turn, the other half for the answer.** Where more is asked than can be answered, who is served is whoever has waited as long as one may: were that all of
//!   `wait_ms`, each answer would be late, and the work for it lost.
//! - **If a batch takes more than a sixteenth of `wait_ms`, the next is smaller**, so that what is urgent does not wait for long behind what is slow. A policy that takes microseconds for a
//!   question always has whole ones.

use super::handle::Orders;
use super::{Bounds, Notify, Rings};
use crate::answer::Answer;
use crate::error::PolicyError;
use crate::policy::Engine;
use crate::question::Question;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;
use tidemill_ip::queue::{LEVELS, PriorityQueue};

/// It looks again after this long, whether it was woken or not.
const NAP: Duration = Duration::from_millis(50);
/// The level of renewals.
const RENEWALS: u8 = LEVELS as u8 - 1;
/// One may wait for its turn for the wait divided by this,
const FOR_TURN: u64 = 2;
/// and a batch is to take the wait divided by this at most.
const FOR_BATCH: u64 = 16;

/// A question, its number, its place among those that wait, and since when it does, by the clock that the engine has.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) at: u32,
    pub(super) asked_ns: u64,
    pub(super) question: Question,
}

/// An answer, its question's number and place.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) number: u64,
    pub(super) at: u32,
    /// None: it was too late to ask.
    pub(super) answer: Option<Answer>,
}

/// What the thread has.
pub(super) struct Companion {
    engine: Box<Engine>,
    questions: rtrb::Consumer<Asked>,
    answers: rtrb::Producer<Given>,
    orders: Arc<Orders>,
    notify: Notify,
    wait_ns: u64,
    /// Those that are not in the ring any more.
    turns: PriorityQueue<Asked>,
    /// How many strangers, and how many renewals, a batch has at most now.
    most: [usize; 2],
    // Those of one batch.
    batch: Vec<Asked>,
    asked: Vec<Question>,
    given: Vec<Answer>,
}

/// Starts the thread.
pub(super) fn start(
    engine: Box<Engine>,
    orders: Arc<Orders>,
    notify: Notify,
    bounds: Bounds,
    worker: usize,
) -> Result<(Rings, JoinHandle<()>), PolicyError> {
    let (companion, questions, answers) = Companion::new(engine, orders, notify, bounds);
    // Whatever happens in it.
    let guarded = move || drop(catch_unwind(AssertUnwindSafe(|| companion.run())));
    let builder = std::thread::Builder::new().name(format!("policy-{worker}"));
    let thread = builder.spawn(guarded).map_err(PolicyError::Thread)?;
    Ok((Rings { questions, answers, thread: thread.thread().clone() }, thread))
}

/// Where a question waits.
fn level(question: &Question) -> u8 {
    if question.is_renewal() { RENEWALS } else { question.dscp.saturating_sub(1).min(RENEWALS - 1) }
}

/// How many are to be taken at once, at most `batch`, when `went` of at most `most` took `took_ns` and were to take `aim_ns`.
fn paced(most: usize, batch: usize, went: usize, took_ns: u64, aim_ns: u64) -> usize {
    if took_ns > aim_ns {
        return ((went as u64).saturating_mul(aim_ns) / took_ns).max(1) as usize;
    }
    if went == most && took_ns <= aim_ns / 2 { (2 * most).min(batch) } else { most }
}

impl Companion {
    /// With the judge's ends of its rings.
    pub(super) fn new(
        engine: Box<Engine>,
        orders: Arc<Orders>,
        notify: Notify,
        bounds: Bounds,
    ) -> (Companion, rtrb::Producer<Asked>, rtrb::Consumer<Given>) {
        let (questions, asked) = rtrb::RingBuffer::new(bounds.queue);
        let (given, answers) = rtrb::RingBuffer::new(bounds.queue);
        let batch = engine.policy().batch;
        let companion = Companion {
            engine,
            questions: asked,
            answers: given,
            orders,
            notify,
            wait_ns: bounds.wait_ns,
            turns: PriorityQueue::new(bounds.queue),
            most: [batch; 2],
            batch: Vec::with_capacity(batch),
            asked: Vec::with_capacity(batch),
            given: Vec::with_capacity(batch),
        };
        (companion, questions, answers)
    }

    fn run(mut self) {
        while !self.orders.stop.load(Ordering::Acquire) {
            if self.round() {
                continue;
            }
            if self.questions.is_abandoned() {
                return;
            }
            self.sleep();
        }
    }

    /// Takes in what has been asked, and answers a batch of it; whether there was anything.
    pub(super) fn round(&mut self) -> bool {
        if self.orders.swap(&mut self.engine).is_some() {
            self.most = [self.engine.policy().batch; 2];
        }
        while self.turns.len() < self.turns.capacity()
            && let Ok(asked) = self.questions.pop()
        {
            // There is room.
            let _ = self.turns.push(level(&asked.question), asked);
        }
        if self.turns.is_empty() {
            return false;
        }
        let now_ns = (self.engine.around().clock)();
        self.give_up(now_ns);
        self.decide(now_ns);
        (self.notify)();
        true
    }

    /// Those whose answers would come too late are not asked. At each level they are the first.
    fn give_up(&mut self, now_ns: u64) {
        let most_ns = self.wait_ns / FOR_TURN;
        let is_over = |asked: &Asked| now_ns.saturating_sub(asked.asked_ns) >= most_ns;
        for level in 0..LEVELS as u8 {
            while self.turns.oldest(level).is_some_and(is_over) {
                let Some(asked) = self.turns.take(level) else { break };
                self.give(&asked, None);
            }
        }
    }

    /// Asks about those whose turn it is.
    fn decide(&mut self, now_ns: u64) {
        let is_of_renewals = self.turns.highest() == Some(RENEWALS);
        let most = self.most[usize::from(is_of_renewals)];
        self.batch.clear();
        while self.batch.len() < most
            && let Some(level) = self.turns.highest()
            && (level == RENEWALS) == is_of_renewals
            && let Some(asked) = self.turns.take(level)
        {
            self.batch.push(asked);
        }
        if self.batch.is_empty() {
            return;
        }
        self.asked.clear();
        self.asked.extend(self.batch.iter().map(|asked| asked.question));
        self.given.clear();
        self.engine.decide(now_ns, &self.asked, &mut self.given);
        let took_ns = (self.engine.around().clock)().saturating_sub(now_ns);
        for at in 0..self.batch.len() {
            let asked = self.batch[at];
            self.give(&asked, self.given.get(at).copied());
        }
        let aim_ns = self.wait_ns / FOR_BATCH;
        // Fewer would not make it faster where one answer was for all.
        if took_ns <= aim_ns || self.engine.distinct() > 1 {
            let batch = self.engine.policy().batch;
            self.most[usize::from(is_of_renewals)] = paced(most, batch, self.batch.len(), took_ns, aim_ns);
        }
    }

    fn give(&mut self, asked: &Asked, answer: Option<Answer>) {
        // There is room: a judge has no more questions under way than this ring has places.
        let _ = self.answers.push(Given { number: asked.number, at: asked.at, answer });
    }

    /// Until a question comes, or an order.
    fn sleep(&self) {
        // Told first, looked after: a question that comes in between is seen here, or its asker sees that we sleep.
        self.orders.idle.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let nothing = self.questions.is_empty()
            && !self.orders.changed.load(Ordering::Acquire)
            && !self.orders.stop.load(Ordering::Acquire);
        if nothing {
            std::thread::park_timeout(NAP);
        }
        self.orders.idle.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_wire::flow::Addresses;

    #[test]
    fn renewals_come_first_then_who_has_waited_longest() {
        let of = |dscp| level(&Question { dscp, ..Question::about(Addresses::V4 { src: 1, dst: 2 }) });
        // 0 and 1 ask for nothing and do not come.
        let levels = [0, 1, 3, 4, 41, 42, 63, 2].map(of);
        assert_eq!(levels, [0, 0, 2, 3, 40, 41, 62, 63]);
        assert_eq!(of(255), 62, "no code point has more than 6 bits");
    }

    #[test]
    fn slow_batches_become_small_and_fast_ones_large() {
        // 64 ms for 64: 12 have room in 12.
        assert_eq!(paced(64, 64, 64, 64, 12), 12);
        assert_eq!(paced(64, 64, 3, 1000, 12), 1, "one at least");
        assert_eq!((paced(12, 64, 12, 7, 12), paced(12, 64, 12, 12, 12)), (12, 12));
        assert_eq!((paced(12, 64, 12, 6, 12), paced(48, 64, 48, 0, 12)), (24, 64));
        assert_eq!(paced(12, 64, 5, 0, 12), 12, "whether more would be fast enough nobody knows");
    }
}
