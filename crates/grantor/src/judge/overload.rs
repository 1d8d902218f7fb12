//! A judge, its companion and several times the questions that the policy can answer, in virtual time: a step of the script is a microsecond.

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

/// Loops for one port, for a millisecond if it is asked alone; for another it keeps 800 kB of its 32 MiB each time, and for a third it fills them at once.
const SCRIPT: &str = "kept = {}\nfunction decide(q)\nif q.destination_port == 9 then while true do end end\n\
    while q.destination_port == 5 do table.insert(kept, table.create(200000, 1)) end\n\
    if q.destination_port == 7 then table.insert(kept, table.create(50000, 1)) end\n\
    return granted { rate = 1 }\nend";

/// A question, and what has become of it.
#[derive(Debug)]
struct Ticket {
    question: Question,
    asked_ns: u64,
    waited_ns: u64,
    answer: Option<Answer>,
}

impl Ticket {
    fn settle(&mut self, now_ns: u64, answer: Answer) {
        assert!(self.answer.is_none(), "one answer for each");
        (self.waited_ns, self.answer) = (now_ns - self.asked_ns, Some(answer));
    }

    fn failure(&self) -> Option<Failure> {
        self.answer.unwrap().failure
    }
}

/// Asks so many questions a millisecond for so long, and waits until each has its answer. By its number it is said what a question is.
fn ask(per_ms: u64, ms: u64, question: impl Fn(u32) -> Question) -> (Vec<Ticket>, Surroundings) {
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

    let (every_ns, mut next_ns) = (MS / per_ms, 0);
    let mut tickets: Vec<Ticket> = Vec::new();
    loop {
        let worked = companion.round();
        if !worked && next_ns >= ms * MS && judge.waiting() == 0 {
            break;
        }
        if !worked {
            clock.fetch_add(every_ns, Relaxed);
        }
        let now_ns = clock.load(Relaxed);
        while next_ns <= now_ns && next_ns < ms * MS {
            let ticket = tickets.len() as u32;
            let question = question(ticket);
            tickets.push(Ticket { question, asked_ns: next_ns, waited_ns: 0, answer: None });
            // As `nodes/ask.rs` does.
            let spare = question.leaves(section.queue);
            if let Some(answer) = judge.ask_sparing(next_ns, ticket, &question, spare) {
                tickets[ticket as usize].settle(next_ns, answer);
            }
            next_ns += every_ns;
        }
        judge.answers(now_ns, |ticket, answer| tickets[ticket as usize].settle(now_ns, answer));
    }
    assert_eq!((judge.waiting(), tickets.len() as u64), (0, per_ms * ms));
    (tickets, around)
}

/// A question at which the script loops, or one that it answers at once.
fn question(dscp: u8, src: u32, loops: bool) -> Question {
    let about = Question::about(Addresses::V4 { src, dst: 1 });
    Question { dscp, protocol: 17, destination_port: if loops { 9 } else { 80 }, ..about }
}

#[test]
fn slow_questions_of_strangers_take_the_policy_from_nobody_else() {
    // Ten a millisecond, of which one could be answered. Every tenth millisecond a renewal, and one who has waited.
    let (tickets, around) = ask(10, 2000, |number| match number % 100 {
        40 => question(RENEWAL, number, false),
        60 => question(PATIENT, number, false),
        _ => question(FRESH, number, true),
    });
    let of = |dscp: u8| tickets.iter().filter(move |ticket| ticket.question.dscp == dscp);
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

/// How many ended with this failure.
fn failed(tickets: &[Ticket], failure: Failure) -> usize {
    tickets.iter().filter(|ticket| ticket.failure() == Some(failure)).count()
}

/// After a second: so many who ask for something else are answered in time, those whose questions are slow do not fill the room, and the policy goes on working for them, too.
fn others_are_answered(tickets: &[Ticket], around: &Surroundings, count: usize) {
    let after = || tickets.iter().filter(|ticket| ticket.asked_ns >= 1000 * MS);
    let others = || after().filter(|ticket| ticket.question.destination_port == 80);
    assert_eq!(others().count(), count);
    for ticket in others() {
        // A granted flow asks again after a third of the 100 ms that it has after a revocation.
        assert!(ticket.failure().is_none() && ticket.waited_ns < 30 * MS, "{ticket:?}");
    }
    assert!(after().all(|ticket| ticket.failure() != Some(Failure::QueueFull)));
    let timeouts = failed(tickets, Failure::Timeout);
    assert!(timeouts >= 500 && failed(tickets, Failure::Late) >= 1000, "{timeouts} asked");
    assert_eq!(around.counts.shown().after_deadline, 0);
}

/// Granted flows of a hundred senders: after a while each of these is known for what it asks, however many flows it has. Beside them a renewal and a newcomer every tenth millisecond.
#[test]
fn slow_renewals_of_a_few_senders_take_the_policy_from_nobody_else() {
    let slow = |number: u32| Question {
        flow: Addresses::V4 { src: number % 97, dst: number },
        ..question(RENEWAL, 0, true)
    };
    let (tickets, around) = ask(10, 3000, |number| match number % 100 {
        40 => question(RENEWAL, 1 << 24 | number, false),
        60 => question(FRESH, 1 << 24 | number, false),
        _ => slow(number),
    });
    others_are_answered(&tickets, &around, 400);
}

/// Strangers of a hundred senders that have waited, each with ever new flows: none of these is known, but the senders are. Beside them a renewal, a newcomer, and a renewal of such a sender, every tenth millisecond.
#[test]
fn slow_questions_of_a_few_strangers_that_have_waited_leave_newcomers_their_part() {
    let slow = |number: u32| Question {
        flow: Addresses::V4 { src: number % 97, dst: number },
        ..question(PATIENT, 0, true)
    };
    let (tickets, around) = ask(10, 3000, |number| match number % 100 {
        20 => question(RENEWAL, number % 97, false),
        40 => question(RENEWAL, 1 << 24 | number, false),
        60 => question(FRESH, 1 << 24 | number, false),
        _ => slow(number),
    });
    // A newcomer is asked about at his first try, and who is doubted as a stranger keeps what he has been granted.
    others_are_answered(&tickets, &around, 600);
}

/// Nobody of whom a renewal is slow has asked before. Then renewals have to wait, but strangers do not.
#[test]
fn slow_renewals_of_ever_new_senders_leave_strangers_their_part() {
    let (tickets, _) = ask(4, 3000, |number| match number % 40 {
        20 => question(FRESH, number, false),
        _ => question(RENEWAL, number, true),
    });
    let strangers = || tickets.iter().filter(|ticket| ticket.question.dscp == FRESH);
    assert_eq!(strangers().count(), 300);
    for ticket in strangers().filter(|ticket| ticket.asked_ns >= 500 * MS) {
        assert!(ticket.failure().is_none() && ticket.waited_ns < 60 * MS, "{ticket:?}");
    }
    let late = failed(&tickets, Failure::Late);
    assert!(late >= 1000, "more is asked than can be answered: {late}");
}

/// Who repeats what he asks has never waited for long. Beside more of those who have than the policy can answer, some of what he asks is answered.
#[test]
fn strangers_that_have_waited_leave_something_to_those_that_have_not() {
    let (tickets, _) = ask(4, 3000, |number| match number % 40 {
        20 => question(FRESH, number, false),
        _ => question(PATIENT, number, true),
    });
    let fresh = tickets.iter().filter(|ticket| ticket.question.dscp == FRESH && ticket.asked_ns >= 500 * MS);
    let answered = fresh.filter(|ticket| ticket.failure().is_none()).count();
    assert!(answered >= 8, "{answered}");
    let (timeouts, late) = (failed(&tickets, Failure::Timeout), failed(&tickets, Failure::Late));
    assert!(timeouts >= 500 && late >= 1000, "{timeouts} asked, {late} late");
}

/// The script's memory is full after some 40 ms, again and again. Nobody who asks for something else is kept waiting, or declined.
#[test]
fn a_script_that_fills_its_memory_begins_anew_within_the_grace() {
    let (tickets, around) = ask(1, 1000, |number| match number % 10 {
        4 => question(RENEWAL, number, false),
        6 => question(FRESH, number, false),
        _ => Question { destination_port: 7, ..question(PATIENT, number, false) },
    });
    let others = || tickets.iter().filter(|ticket| ticket.question.destination_port == 80);
    assert_eq!(others().count(), 200);
    for ticket in others() {
        assert!(ticket.failure().is_none() && ticket.waited_ns < 30 * MS, "{ticket:?}");
    }
    assert!(around.counts.shown().rebuilt >= 10, "{:?}", around.counts.shown());
}

/// One question fills the memory, and such a one is there whenever there is a state: there is none for nearly all of the time. Who asks for something else waits for the next.
#[test]
fn who_comes_while_a_state_rests_is_asked_when_there_is_one_again() {
    let (tickets, around) = ask(10, 1000, |number| match number % 1000 {
        440 => question(RENEWAL, number, false),
        660 => question(FRESH, number, false),
        _ => Question { destination_port: 5, ..question(PATIENT, 1, false) },
    });
    let others = || tickets.iter().filter(|ticket| ticket.question.destination_port == 80);
    assert_eq!(others().count(), 20);
    for ticket in others() {
        assert!(ticket.failure().is_none() && ticket.waited_ns < 30 * MS, "{ticket:?}");
    }
    let shown = around.counts.shown();
    assert!(shown.rebuilt >= 50 && shown.failed(Failure::Memory) >= 50, "{shown:?}");
    assert_eq!(shown.after_deadline, 0);
}
