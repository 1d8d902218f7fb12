//! A worker's way to its policy: questions go out, answers come back, each question gets exactly one, in time.
//!
//! ```text
//! node --ask--> Judge --ring--> companion: the most urgent first, Engine, one Lua state --ring--> Judge --answers--> node
//!                 |                            ^
//!                 +-- after `wait`: late       +-- Handle::replace: another engine, between two batches
//! ```
//! - **On a thread** ([`Judge::thread`]) a policy never runs on a packet worker: the worker's part is a copy into a ring and one out of another. Both have
//!   a fixed size. What is not answered within `wait_ms` is late, and nobody has judged what comes when `queue` questions are under
//!   way: of either nothing is decided ([`FailSafe::answer`]). A companion that hangs costs the data path nothing more.
//! - **In line** ([`Judge::inline`]), for runs on captures: the same engine is asked when the node takes its answers, in the order of asking, so the same input gives the
//!   same output.
//! - The companion goes by priority (`companion.rs`), so answers come in any order. Each has its question's number: of one that comes too late nobody waits any more, it is
//!   counted and dropped.
//! - A companion whose engine fails is caught there and goes on with a new state ([`Engine::decide`]). If its thread ends all the same, all questions
//!   get the fail-safe until [`Handle::replace`] starts another.

mod companion;
mod doubted;
mod handle;
#[cfg(all(test, feature = "lua"))]
#[allow(clippy::unwrap_used)] // a test may
mod overload;
#[cfg(test)]
mod tests;
mod waiting;

pub use handle::Handle;

use crate::answer::{Answer, FailSafe, Failure};
use crate::error::PolicyError;
use crate::policy::{Engine, Policy, Surroundings};
use crate::question::Question;
use companion::{Asked, Given};
use handle::Orders;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError};
use std::thread::Thread;
use waiting::Waiting;

/// Called by the companion when answers are there: wakes the worker.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// What a judge and its companions are held to, as the policy said that the judge was made with.
#[derive(Clone, Copy)]
struct Bounds {
    /// Questions under way.
    queue: usize,
    wait_ns: u64,
}

impl Bounds {
    fn of(policy: &Policy) -> Bounds {
        Bounds { queue: policy.queue, wait_ns: policy.wait_ns }
    }
}

/// The worker's ends.
struct Rings {
    questions: rtrb::Producer<Asked>,
    answers: rtrb::Consumer<Given>,
    thread: Thread,
}

enum Form {
    Inline { engine: Box<Engine>, asked: Vec<Question>, given: Vec<Answer> },
    Thread(Rings),
}

/// A worker's half.
pub struct Judge {
    form: Form,
    orders: Arc<Orders>,
    waiting: Waiting,
    /// The number of the next question.
    next: u64,
    /// Questions that the companion has not given back: those that wait, and those that have waited too long.
    under_way: usize,
    bounds: Bounds,
    fail_safe: FailSafe,
    around: Surroundings,
}

impl Judge {
    /// A judge that asks in line.
    pub fn inline(engine: Engine) -> (Judge, Handle) {
        let orders = Orders::new();
        let (policy, around) = (engine.policy().clone(), engine.around().clone());
        let bounds = Bounds::of(&policy);
        let handle = Handle { orders: orders.clone(), thread: None, notify: None, worker: 0, bounds };
        let (asked, given) = (Vec::with_capacity(policy.queue), Vec::with_capacity(policy.queue));
        let form = Form::Inline { engine: Box::new(engine), asked, given };
        (Self::new(form, orders, &policy, around), handle)
    }

    /// A judge with a companion thread, named for the worker. `notify` is called there when answers are ready. The times that the judge is given are those of the engine's
    /// clock.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn thread(engine: Engine, worker: usize, notify: Notify) -> Result<(Judge, Handle), PolicyError> {
        let orders = Orders::new();
        let (policy, around) = (engine.policy().clone(), engine.around().clone());
        let bounds = Bounds::of(&policy);
        let (rings, thread) =
            companion::start(Box::new(engine), orders.clone(), notify.clone(), bounds, worker)?;
        let handle =
            Handle { orders: orders.clone(), thread: Some(thread), notify: Some(notify), worker, bounds };
        Ok((Self::new(Form::Thread(rings), orders, &policy, around), handle))
    }

    fn new(form: Form, orders: Arc<Orders>, policy: &Policy, around: Surroundings) -> Judge {
        Judge {
            form,
            orders,
            waiting: Waiting::new(policy.queue),
            next: 0,
            under_way: 0,
            bounds: Bounds::of(policy),
            fail_safe: policy.fail_safe,
            around,
        }
    }

    /// Asks. `ticket` is what the answer will be known by. If nobody can be asked the answer is there at once.
    #[inline]
    pub fn ask(&mut self, now_ns: u64, ticket: u32, question: &Question) -> Option<Answer> {
        self.ask_sparing(now_ns, ticket, question, 0)
    }

    /// The same, but leaves `spare` places of the queue to others.
    #[inline]
    pub fn ask_sparing(
        &mut self,
        now_ns: u64,
        ticket: u32,
        question: &Question,
        spare: usize,
    ) -> Option<Answer> {
        let number = self.next;
        let has_room = self.under_way + spare < self.bounds.queue;
        let place = if has_room { self.waiting.push(number, ticket, now_ns) } else { None };
        let Some(at) = place else { return Some(self.failed(Failure::QueueFull)) };
        match &mut self.form {
            Form::Inline { asked, .. } => asked.push(*question),
            Form::Thread(rings) => {
                let asked = Asked { number, at, asked_ns: now_ns, question: *question };
                // The ring has as many places as may be under way: it takes the question, unless nobody is there.
                if rings.questions.is_abandoned() || rings.questions.push(asked).is_err() {
                    self.waiting.take(at, number);
                    return Some(self.failed(Failure::Panic));
                }
            }
        }
        self.next += 1;
        self.under_way += 1;
        None
    }

    #[cold]
    fn failed(&self, failure: Failure) -> Answer {
        lost(&self.around, &self.fail_safe, failure)
    }

    /// Questions that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the question that has waited longest is late: look again by then.
    pub fn due_ns(&self) -> Option<u64> {
        self.waiting.oldest_ns().map(|asked_ns| asked_ns.saturating_add(self.bounds.wait_ns))
    }

    /// Hands out what has been answered, with the tickets, in the order of the answers (in line that is the order of asking); and what has waited too long. To be called
    /// once per burst that has asked, and whenever [`due_ns`](Self::due_ns) has come. Wakes the companion if it sleeps.
    pub fn answers(&mut self, now_ns: u64, mut each: impl FnMut(u32, Answer)) {
        match &mut self.form {
            Form::Inline { engine, asked, given } => {
                drop(self.orders.swap(engine));
                given.clear();
                engine.decide(now_ns, asked, given);
                asked.clear();
                for answer in given.drain(..) {
                    if let Some(ticket) = self.waiting.pop() {
                        each(ticket, answer);
                    }
                }
                self.under_way = 0;
            }
            Form::Thread(_) => self.collect(now_ns, &mut each),
        }
    }

    fn collect(&mut self, now_ns: u64, each: &mut impl FnMut(u32, Answer)) {
        if self.orders.rings_changed.load(Ordering::Acquire) {
            self.take_rings(each);
        }
        let Form::Thread(rings) = &mut self.form else { return };
        // Behind the questions: see `Companion::sleep`.
        fence(Ordering::SeqCst);
        if self.orders.idle.load(Ordering::SeqCst) && self.orders.idle.swap(false, Ordering::SeqCst) {
            rings.thread.unpark();
        }
        let ended = rings.answers.is_abandoned();
        while let Ok(given) = rings.answers.pop() {
            self.under_way -= 1;
            match (self.waiting.take(given.at, given.number), given.answer) {
                (Some(ticket), Some(answer)) => each(ticket, answer),
                (Some(ticket), None) => each(ticket, lost(&self.around, &self.fail_safe, Failure::Late)),
                // It has been late here already.
                (None, Some(_)) => self.around.counts.after_deadline(),
                (None, None) => {}
            }
        }
        if ended {
            self.lose(each);
        }
        while let Some(due_ns) = self.due_ns()
            && now_ns >= due_ns
            && let Some(ticket) = self.waiting.pop()
        {
            each(ticket, self.failed(Failure::Late));
        }
    }

    /// What the companion had it has taken with it.
    #[cold]
    fn lose(&mut self, each: &mut impl FnMut(u32, Answer)) {
        while let Some(ticket) = self.waiting.pop() {
            each(ticket, self.failed(Failure::Panic));
        }
        self.under_way = 0;
    }

    /// Goes over to another companion.
    #[cold]
    fn take_rings(&mut self, each: &mut impl FnMut(u32, Answer)) {
        self.orders.rings_changed.store(false, Ordering::Release);
        let fresh = self.orders.rings.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(fresh) = fresh else { return };
        self.form = Form::Thread(fresh);
        self.lose(each);
    }
}

fn lost(around: &Surroundings, fail_safe: &FailSafe, failure: Failure) -> Answer {
    around.counts.failed(failure, 1);
    fail_safe.answer(failure)
}
