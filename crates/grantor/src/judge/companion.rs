//! The thread that runs a worker's policy.

use super::{Notify, Orders, Rings};
use crate::answer::Answer;
use crate::error::PolicyError;
use crate::policy::Engine;
use crate::question::Question;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

/// It looks again after this long, whether it was woken or not.
const NAP: Duration = Duration::from_millis(50);

/// A question, and its number.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) question: Question,
}

/// An answer, and its question's number.
#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) number: u64,
    pub(super) answer: Answer,
}

/// What the thread has.
pub(super) struct Companion {
    engine: Box<Engine>,
    questions: rtrb::Consumer<Asked>,
    answers: rtrb::Producer<Given>,
    orders: Arc<Orders>,
    notify: Notify,
}

/// Starts the thread.
pub(super) fn start(
    engine: Box<Engine>,
    orders: Arc<Orders>,
    notify: Notify,
    worker: usize,
) -> Result<(Rings, JoinHandle<()>), PolicyError> {
    let queue = engine.policy().queue;
    let (questions, asked) = rtrb::RingBuffer::new(queue);
    let (given, answers) = rtrb::RingBuffer::new(queue);
    let companion = Companion { engine, questions: asked, answers: given, orders, notify };
    let builder = std::thread::Builder::new().name(format!("policy-{worker}"));
    let thread = builder.spawn(move || super::guarded(companion)).map_err(PolicyError::Thread)?;
    Ok((Rings { questions, answers, thread: thread.thread().clone() }, thread))
}

impl Companion {
    pub(super) fn run(mut self) {
        let batch = self.engine.policy().batch;
        let (mut numbers, mut questions) = (Vec::with_capacity(batch), Vec::with_capacity(batch));
        let mut answers = Vec::with_capacity(batch);
        while !self.orders.stop.load(Ordering::Acquire) {
            drop(self.orders.swap(&mut self.engine));
            numbers.clear();
            questions.clear();
            while questions.len() < self.engine.policy().batch
                && let Ok(asked) = self.questions.pop()
            {
                numbers.push(asked.number);
                questions.push(asked.question);
            }
            if questions.is_empty() {
                if self.questions.is_abandoned() {
                    return;
                }
                self.sleep();
                continue;
            }
            answers.clear();
            let now_ns = (self.engine.around().clock)();
            self.engine.decide(now_ns, &questions, &mut answers);
            for (&number, &answer) in numbers.iter().zip(&answers) {
                // There is room: a judge has no more questions under way than this ring has places.
                let _ = self.answers.push(Given { number, answer });
            }
            (self.notify)();
        }
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
