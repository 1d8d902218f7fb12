//! The worker's half with a companion that the test plays: what comes of random questions, answers in any order, deadlines, and companions that end or are replaced is what a plain
//! model says.

use super::companion::{Asked, Given};
use super::handle::Orders;
use super::{Form, Judge, Rings};
use crate::answer::{Answer, Decision, Failure};
use crate::config::PolicySection;
use crate::policy::{Policy, Surroundings};
use crate::question::Question;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_wire::flow::Addresses;

const QUEUE: usize = 8;
const WAIT_NS: u64 = 10_000_000;

#[derive(Debug, Clone)]
enum Step {
    Ask,
    /// The companion answers one of those that it has, or says that it is too late for it.
    Give(usize, bool),
    /// The worker looks, so long after what was before.
    Look(u64),
    /// The companion ends.
    End,
    /// There is another.
    Replace,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => Just(Step::Ask),
        15 => (0..QUEUE, prop::bool::weighted(0.8)).prop_map(|(which, answers)| Step::Give(which, answers)),
        8 => (0..WAIT_NS / 2).prop_map(Step::Look),
        1 => Just(Step::End),
        2 => Just(Step::Replace),
    ]
}

/// The other ends of the rings, and what has been taken out of them.
struct Played {
    questions: rtrb::Consumer<Asked>,
    answers: rtrb::Producer<Given>,
    has: Vec<Asked>,
}

fn played() -> (Rings, Played) {
    let (questions, asked) = rtrb::RingBuffer::new(QUEUE);
    let (given, answers) = rtrb::RingBuffer::new(QUEUE);
    let rings = Rings { questions, answers, thread: std::thread::current() };
    (rings, Played { questions: asked, answers: given, has: Vec::new() })
}

/// The ticket that the test has asked with.
fn ticket(question: &Question) -> u32 {
    match question.flow {
        Addresses::V4 { src, .. } => src,
        Addresses::V6 { .. } => unreachable!(),
    }
}

/// What the companion answers to who has asked with this ticket.
fn answer(ticket: u32) -> Answer {
    Answer { decision: Decision::Declined { expire_s: 1000 + ticket }, forward: false, failure: None }
}

/// What becomes of one that nobody answers: the fail-safe declines for 10 s.
fn failed(failure: Failure) -> Answer {
    let decision = match failure {
        Failure::Late | Failure::QueueFull => Decision::None,
        _ => Decision::Declined { expire_s: 10 },
    };
    Answer { decision, forward: false, failure: Some(failure) }
}

#[derive(Default)]
struct Model {
    /// Tickets without an answer, and when they asked.
    open: Vec<(u32, u64)>,
    /// What the companion has given since the worker looked last.
    given: Vec<(u32, bool)>,
    under_way: usize,
    /// The judge's companion is gone.
    ended: bool,
    /// And there is another, that it has not seen.
    fresh: bool,
    stale: u64,
}

impl Model {
    fn ask(&mut self, now_ns: u64, ticket: u32) -> Option<Answer> {
        if self.under_way == QUEUE {
            return Some(failed(Failure::QueueFull));
        }
        if self.ended || self.fresh {
            return Some(failed(Failure::Panic));
        }
        self.under_way += 1;
        self.open.push((ticket, now_ns));
        None
    }

    fn look(&mut self, now_ns: u64) -> Vec<(u32, Answer)> {
        let mut out = Vec::new();
        for (ticket, answers) in std::mem::take(&mut self.given) {
            self.under_way -= 1;
            match self.open.iter().position(|(open, _)| *open == ticket) {
                Some(at) => {
                    self.open.remove(at);
                    out.push((ticket, if answers { answer(ticket) } else { failed(Failure::Late) }));
                }
                None => self.stale += u64::from(answers),
            }
        }
        if self.ended || std::mem::take(&mut self.fresh) {
            self.under_way = 0;
            out.extend(self.open.drain(..).map(|(ticket, _)| (ticket, failed(Failure::Panic))));
        }
        let late = self.open.iter().take_while(|(_, asked_ns)| now_ns >= asked_ns + WAIT_NS).count();
        out.extend(self.open.drain(..late).map(|(ticket, _)| (ticket, failed(Failure::Late))));
        out
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn each_question_gets_one_answer_in_time(steps in prop::collection::vec(step(), 0..200)) {
        let name = Some("web".into());
        let section = PolicySection { name, queue: QUEUE, wait_ms: 10, ..PolicySection::default() };
        let policy = Policy::open(&section, Path::new(".")).unwrap();
        let around = Surroundings::new(Arc::new(|| 0), Arc::new(|_: &str| ()), 0);
        let orders = Orders::new();
        let (rings, companion) = played();
        let mut companion = Some(companion);
        let mut judge = Judge::new(Form::Thread(rings), orders.clone(), &policy, around.clone());
        let (mut now_ns, mut next, mut model) = (0, 0, Model::default());
        // In the end whoever is not answered is late.
        for step in steps.into_iter().chain([Step::Look(WAIT_NS)]) {
            match step {
                Step::Ask => {
                    let question = Question::about(Addresses::V4 { src: next, dst: 0 });
                    prop_assert_eq!(judge.ask(now_ns, next, &question), model.ask(now_ns, next));
                    next += 1;
                }
                Step::Give(which, answers) => {
                    let Some(Played { questions, answers: given, has }) = &mut companion else { continue };
                    while let Ok(asked) = questions.pop() {
                        has.push(asked);
                    }
                    if !has.is_empty() {
                        let Asked { number, at, asked_ns, question } = has.remove(which % has.len());
                        prop_assert!(asked_ns <= now_ns);
                        let answer = answers.then(|| answer(ticket(&question)));
                        prop_assert!(given.push(Given { number, at, answer }).is_ok(), "there is room");
                        model.given.push((ticket(&question), answers));
                    }
                }
                Step::Look(after_ns) => {
                    now_ns += after_ns;
                    let mut got = Vec::new();
                    judge.answers(now_ns, |ticket, answer| got.push((ticket, answer)));
                    prop_assert_eq!(got, model.look(now_ns));
                }
                Step::End => {
                    companion = None;
                    model.ended = true;
                }
                Step::Replace => {
                    let (rings, another) = played();
                    *orders.rings.lock().unwrap() = Some(rings);
                    orders.rings_changed.store(true, Ordering::Release);
                    companion = Some(another);
                    // What the one before has given is lost with its rings.
                    model.given.clear();
                    (model.ended, model.fresh) = (false, true);
                }
            }
            prop_assert_eq!(judge.waiting(), model.open.len());
            let due_ns = model.open.first().map(|(_, asked_ns)| asked_ns + WAIT_NS);
            prop_assert_eq!(judge.due_ns(), due_ns);
        }
        prop_assert_eq!(judge.waiting(), 0);
        prop_assert_eq!(around.counts.shown().after_deadline, model.stale);
    }
}
