//! A judge, its companion and ten times the questions that the policy can answer, in virtual time: a step of the script is a microsecond.

use super::companion::Companion;
use super::handle::Orders;
use super::{Bounds, Form, Judge, Rings};
use crate::answer::{Answer, Decision, Failure};
use crate::config::PolicySection;
use crate::policy::{Engine, Policy, Surroundings};
use crate::question::{Question, RENEWAL};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidemill_wire::flow::Addresses;

const MS: u64 = 1_000_000;
const WAIT_NS: u64 = 200 * MS;
/// The code points of a new flow, and of one that has waited for some seconds.
const FRESH: u8 = 41;
const PATIENT: u8 = 45;

/// Loops for one port, for a millisecond if it is asked alone.
const SCRIPT: &str = "function decide(q)\nif q.destination_port == 9 then while true do end end\n\
    return granted { rate = 1 }\nend";

/// A question, and what has become of it.
#[derive(Debug)]
struct Ticket {
    dscp: u8,
    asked_ns: u64,
    waited_ns: u64,
    answer: Option<Answer>,
}

impl Ticket {
    fn settle(&mut self, now_ns: u64, answer: Answer) {
        assert!(self.answer.is_none(), "one answer for each");
        (self.waited_ns, self.answer) = (now_ns - self.asked_ns, Some(answer));
    }
}

#[test]
fn slow_questions_of_strangers_take_the_policy_from_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.lua"), SCRIPT).unwrap();
    let section =
        PolicySection { file: Some("p.lua".into()), steps: 1000, wait_ms: 200, ..PolicySection::default() };
    let policy = Policy::open(&section, folder.path()).unwrap();
    let clock = Arc::new(AtomicU64::new(0));
    let ticks = clock.clone();
    let around =
        Surroundings::new(Arc::new(move || ticks.fetch_add(1000, Relaxed)), Arc::new(|_: &str| ()), 1);
    let engine = Box::new(Engine::new(&policy, &around, 0).unwrap());
    let (orders, bounds) = (Orders::new(), Bounds::of(&policy));
    let (mut companion, questions, answers) = Companion::new(engine, orders.clone(), Arc::new(|| ()), bounds);
    let rings = Rings { questions, answers, thread: std::thread::current() };
    let mut judge = Judge::new(Form::Thread(rings), orders, &policy, around.clone());

    // Ten a millisecond, of which one could be answered. Every tenth millisecond a renewal, and one who has waited.
    let (every_ns, mut next_ns) = (MS / 10, 0);
    let mut tickets: Vec<Ticket> = Vec::new();
    loop {
        let worked = companion.round();
        if !worked && next_ns >= 2000 * MS {
            break;
        }
        if !worked {
            clock.fetch_add(every_ns, Relaxed);
        }
        let now_ns = clock.load(Relaxed);
        while next_ns <= now_ns && next_ns < 2000 * MS {
            let dscp = match next_ns / every_ns % 100 {
                40 => RENEWAL,
                60 => PATIENT,
                _ => FRESH,
            };
            let ticket = tickets.len() as u32;
            let port = if dscp == FRESH { 9 } else { 80 };
            let about = Question::about(Addresses::V4 { src: ticket, dst: 1 });
            let question = Question { dscp, protocol: 17, destination_port: port, ..about };
            tickets.push(Ticket { dscp, asked_ns: next_ns, waited_ns: 0, answer: None });
            // As `nodes/ask.rs` does.
            let spare = question.leaves(section.queue);
            if let Some(answer) = judge.ask_sparing(next_ns, ticket, &question, spare) {
                tickets[ticket as usize].settle(next_ns, answer);
            }
            next_ns += every_ns;
        }
        judge.answers(now_ns, |ticket, answer| tickets[ticket as usize].settle(now_ns, answer));
    }
    assert_eq!((judge.waiting(), tickets.len()), (0, 20_000));

    let of = |dscp: u8| tickets.iter().filter(move |ticket| ticket.dscp == dscp);
    for dscp in [RENEWAL, PATIENT] {
        assert_eq!(of(dscp).count(), 200);
        for ticket in of(dscp) {
            // A granted flow has 100 ms after a revocation. At first nobody knows how slow it is.
            let at_first = ticket.asked_ns < 500 * MS;
            let most_ms = if at_first { 100 } else { 30 };
            assert!(ticket.answer.is_some_and(|answer| answer.failure.is_none()), "{dscp}: {ticket:?}");
            assert!(ticket.waited_ns < most_ms * MS, "{dscp}: {ticket:?}");
        }
    }
    let (mut timeouts, mut late, mut full) = (0, 0, 0);
    for ticket in of(FRESH) {
        let answer = ticket.answer.unwrap();
        let decision = match answer.failure.unwrap() {
            Failure::Timeout => {
                timeouts += 1;
                assert!(ticket.waited_ns < WAIT_NS, "{ticket:?}");
                Decision::Declined { expire_s: 10 }
            }
            // These go on asking.
            Failure::Late => {
                late += 1;
                Decision::None
            }
            failure => {
                full += 1;
                assert_eq!(failure, Failure::QueueFull);
                Decision::None
            }
        };
        assert_eq!((answer.decision, answer.forward), (decision, false), "{ticket:?}");
    }
    // The policy goes on working: at a quarter of what it could do at least, were it asked about nothing else.
    assert!(timeouts >= 500 && late > 1000, "{timeouts} asked, {late} late, {full} found no room");
    let shown = around.counts.shown();
    assert_eq!((shown.asked, shown.after_deadline), (timeouts + 400, 0), "it is asked about nobody in vain");
    assert_eq!(shown.failed(Failure::Late), late);
}
