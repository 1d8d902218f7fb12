//! A worker's way to its policy: questions go out, answers come back, each question gets exactly one, in time.
//!
//! ```text
//! node --ask--> Judge --ring--> companion: Engine, one Lua state --ring--> Judge --answers--> node
//!                 |                            ^
//!                 +-- after `wait`: fail-safe  +-- Handle::replace: another engine, between two batches
//! ```
//! - **On a thread** ([`Judge::thread`]) a policy never runs on a packet worker: the worker's part is a copy into a ring and one out of another. Both have
//!   a fixed size. What is not answered within `wait_ms` gets the fail-safe, and so does, at once, what comes when `queue` questions are under
//!   way: a companion that hangs costs the data path nothing more.
//! - **In line** ([`Judge::inline`]), for runs on captures: the same engine is asked when the node takes its answers, so the same input gives the same
//!   output.
//! - The companion answers in order. So an answer that is missing is known when the next one comes, and an answer that comes too late is known
//!   by its number: it is counted and dropped.
//! - A companion whose engine fails is caught there and goes on with a new state ([`Engine::decide`]). If its thread ends all the same, all questions
//!   get the fail-safe until [`Handle::replace`] starts another.

mod companion;

use crate::answer::{Answer, FailSafe, Failure};
use crate::error::PolicyError;
use crate::policy::{Engine, Surroundings};
use crate::question::Question;
use companion::{Asked, Companion, Given};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};

/// Called by the companion when answers are there: wakes the worker.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// What the control side tells a judge or its companion.
pub(crate) struct Orders {
    /// There is something for the one who runs the engine.
    changed: AtomicBool,
    engine: Mutex<Option<Box<Engine>>>,
    /// New rings for the judge, when its companion is another.
    rings: Mutex<Option<Rings>>,
    rings_changed: AtomicBool,
    stop: AtomicBool,
    /// The companion sleeps, or is about to.
    idle: AtomicBool,
}

impl Orders {
    fn new() -> Arc<Orders> {
        Arc::new(Orders {
            changed: AtomicBool::new(false),
            engine: Mutex::new(None),
            rings: Mutex::new(None),
            rings_changed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            idle: AtomicBool::new(false),
        })
    }

    /// Another engine, if there is one. The old one is given back to be dropped by the caller.
    fn swap(&self, engine: &mut Box<Engine>) -> Option<Box<Engine>> {
        if !self.changed.load(Ordering::Acquire) {
            return None;
        }
        // First this: an engine that comes behind it is seen the next time.
        self.changed.store(false, Ordering::Release);
        let fresh = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        fresh.succeed(engine);
        fresh.around().counts.swapped();
        Some(std::mem::replace(engine, fresh))
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

/// A question under way.
struct Waiting {
    number: u64,
    ticket: u32,
    asked_ns: u64,
}

/// A worker's half.
pub struct Judge {
    form: Form,
    orders: Arc<Orders>,
    /// In the order of their numbers, and so of their times.
    waiting: VecDeque<Waiting>,
    /// The number of the next question.
    next: u64,
    /// Behind the last one that has been answered, or is lost: what lies between is in the rings.
    answered: u64,
    queue: usize,
    wait_ns: u64,
    fail_safe: FailSafe,
    around: Surroundings,
}

/// The control side's half.
pub struct Handle {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
    notify: Option<Notify>,
    worker: usize,
}

impl Judge {
    /// A judge that asks in line.
    pub fn inline(engine: Engine) -> (Judge, Handle) {
        let orders = Orders::new();
        let handle = Handle { orders: orders.clone(), thread: None, notify: None, worker: 0 };
        let (policy, around) = (engine.policy().clone(), engine.around().clone());
        let (asked, given) = (Vec::with_capacity(policy.queue), Vec::with_capacity(policy.queue));
        let form = Form::Inline { engine: Box::new(engine), asked, given };
        (Self::new(form, orders, &policy, around), handle)
    }

    /// A judge with a companion thread, named for the worker. `notify` is called there when answers are ready.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn thread(engine: Engine, worker: usize, notify: Notify) -> Result<(Judge, Handle), PolicyError> {
        let orders = Orders::new();
        let (policy, around) = (engine.policy().clone(), engine.around().clone());
        let (rings, thread) = companion::start(Box::new(engine), orders.clone(), notify.clone(), worker)?;
        let handle = Handle { orders: orders.clone(), thread: Some(thread), notify: Some(notify), worker };
        Ok((Self::new(Form::Thread(rings), orders, &policy, around), handle))
    }

    fn new(form: Form, orders: Arc<Orders>, policy: &crate::Policy, around: Surroundings) -> Judge {
        Judge {
            form,
            orders,
            waiting: VecDeque::with_capacity(policy.queue),
            next: 0,
            answered: 0,
            queue: policy.queue,
            wait_ns: policy.wait_ns,
            fail_safe: policy.fail_safe,
            around,
        }
    }

    /// Asks. `ticket` is what the answer will be known by. If no more may be asked the answer is there at once: the fail-safe.
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
        if (self.next - self.answered) as usize + spare >= self.queue {
            return Some(self.full());
        }
        match &mut self.form {
            Form::Inline { asked, .. } => asked.push(*question),
            Form::Thread(rings) => {
                let asked = Asked { number: self.next, question: *question };
                if rings.questions.is_abandoned() || rings.questions.push(asked).is_err() {
                    return Some(self.full());
                }
            }
        }
        self.waiting.push_back(Waiting { number: self.next, ticket, asked_ns: now_ns });
        self.next += 1;
        None
    }

    #[cold]
    fn full(&self) -> Answer {
        self.around.counts.failed(Failure::QueueFull, 1);
        self.fail_safe.answer(Failure::QueueFull)
    }

    /// Questions that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the question that has waited longest gets the fail-safe: look again by then.
    pub fn due_ns(&self) -> Option<u64> {
        self.waiting.front().map(|first| first.asked_ns.saturating_add(self.wait_ns))
    }

    /// Hands out what has been answered, with the tickets, in the order of asking; and the fail-safe for what has waited too long. To be called
    /// once per burst that has asked, and whenever [`due_ns`](Self::due_ns) has come. Wakes the companion if it sleeps.
    pub fn answers(&mut self, now_ns: u64, mut each: impl FnMut(u32, Answer)) {
        match &mut self.form {
            Form::Inline { engine, asked, given } => {
                drop(self.orders.swap(engine));
                given.clear();
                engine.decide(now_ns, asked, given);
                asked.clear();
                for answer in given.drain(..) {
                    if let Some(waiting) = self.waiting.pop_front() {
                        each(waiting.ticket, answer);
                    }
                }
                self.answered = self.next;
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
            self.answered = given.number + 1;
            // Those before it were lost with an engine.
            while let Some(first) = self.waiting.front().filter(|first| first.number < given.number) {
                each(first.ticket, lost(&self.around, &self.fail_safe, Failure::Panic));
                self.waiting.pop_front();
            }
            match self.waiting.front().filter(|first| first.number == given.number) {
                Some(first) => {
                    each(first.ticket, given.answer);
                    self.waiting.pop_front();
                }
                None => self.around.counts.after_deadline(),
            }
        }
        if ended {
            while let Some(first) = self.waiting.pop_front() {
                each(first.ticket, lost(&self.around, &self.fail_safe, Failure::Panic));
            }
            self.answered = self.next;
        }
        while let Some(first) = self.waiting.front() {
            if now_ns < first.asked_ns.saturating_add(self.wait_ns) {
                break;
            }
            each(first.ticket, lost(&self.around, &self.fail_safe, Failure::Late));
            self.waiting.pop_front();
        }
    }

    /// Goes over to another companion: what the old one still had is lost.
    #[cold]
    fn take_rings(&mut self, each: &mut impl FnMut(u32, Answer)) {
        self.orders.rings_changed.store(false, Ordering::Release);
        let fresh = self.orders.rings.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(fresh) = fresh else { return };
        self.form = Form::Thread(fresh);
        while let Some(first) = self.waiting.pop_front() {
            each(first.ticket, lost(&self.around, &self.fail_safe, Failure::Panic));
        }
        self.answered = self.next;
    }
}

fn lost(around: &Surroundings, fail_safe: &FailSafe, failure: Failure) -> Answer {
    around.counts.failed(failure, 1);
    fail_safe.answer(failure)
}

impl Handle {
    /// Puts another engine in the place of the one that answers now, between two batches: no question is lost, and each is answered by the old one or
    /// the new one. If the companion has ended, another is started. The policy's `queue` and `wait_ms` stay those that the judge was made
    /// with.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn replace(&mut self, engine: Engine) -> Result<(), PolicyError> {
        if let (Some(thread), Some(notify)) = (&self.thread, &self.notify)
            && thread.is_finished()
        {
            let around = engine.around().clone();
            let (rings, thread) =
                companion::start(Box::new(engine), self.orders.clone(), notify.clone(), self.worker)?;
            *self.orders.rings.lock().unwrap_or_else(PoisonError::into_inner) = Some(rings);
            self.orders.rings_changed.store(true, Ordering::Release);
            self.thread = Some(thread);
            around.counts.swapped();
            return Ok(());
        }
        *self.orders.engine.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(engine));
        self.orders.changed.store(true, Ordering::Release);
        self.wake();
        Ok(())
    }

    /// Whether the companion is there.
    pub fn alive(&self) -> bool {
        self.thread.as_ref().is_none_or(|thread| !thread.is_finished())
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Handle {
    /// Ends the companion. One that hangs in its script's last batch is left to itself: it ends with that batch.
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        self.wake();
    }
}

/// Runs the companion, whatever happens in it.
fn guarded(companion: Companion) {
    drop(catch_unwind(AssertUnwindSafe(|| companion.run())));
}
