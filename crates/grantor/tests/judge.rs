//! The worker's way to its policy: every question gets exactly one answer, whatever becomes of the companion. Time is handed in; where a thread is
//! waited for, it is waited for as long as it takes.

#![cfg(feature = "lua")]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, question};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use tidemill_grantor::policy::engine::REST_LEAST_NS;
use tidemill_grantor::{Answer, Decision, Engine, Failure, Handle, Judge, Question, Surroundings};

#[derive(Default)]
struct Held {
    shut: bool,
    /// How many wait.
    inside: usize,
    now_ns: u64,
}

/// Lets the companion look at its clock, or makes it wait there.
#[derive(Default)]
struct Gate(Mutex<Held>, Condvar);

impl Gate {
    fn change(&self, change: impl FnOnce(&mut Held)) {
        change(&mut self.0.lock().unwrap());
        self.1.notify_all();
    }

    fn shut(&self, shut: bool) {
        self.change(|held| held.shut = shut);
    }

    /// Waits until the companion does.
    fn until_met(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |held| held.inside == 0).unwrap());
    }

    fn pass(&self) -> u64 {
        self.change(|held| held.inside += 1);
        let mut held = self.1.wait_while(self.0.lock().unwrap(), |held| held.shut).unwrap();
        held.inside -= 1;
        held.now_ns
    }
}

struct Bench {
    place: Place,
    around: Surroundings,
    gate: Arc<Gate>,
}

impl Bench {
    fn new() -> Bench {
        let (place, gate) = (Place::default(), Arc::<Gate>::default());
        let passes = gate.clone();
        let around = Surroundings::new(Arc::new(move || passes.pass()), place.around.log.clone(), 1);
        Bench { place, around, gate }
    }

    /// Grants this rate to everybody.
    fn engine(&self, rate: u32) -> Engine {
        self.place.file("test.lua", &format!("function decide(q) return granted {{ rate = {rate} }} end"));
        let section = "file = \"test.lua\"\nqueue = 32\nbatch = 4\nwait_ms = 100";
        Engine::new(&self.place.policy(section).unwrap(), &self.around, 0).unwrap()
    }
}

fn rate(answer: &Answer) -> u32 {
    match answer.decision {
        Decision::Granted { rate_kib_s, .. } if answer.failure.is_none() => rate_kib_s,
        _ => panic!("{answer:?}"),
    }
}

/// Nothing is decided about who is late.
fn is_late(answer: &Answer) -> bool {
    *answer == Answer { decision: Decision::None, forward: false, failure: Some(Failure::Late) }
}

/// Takes answers until nothing is waiting, at one and the same moment.
fn settle(judge: &mut Judge, now_ns: u64, got: &mut Vec<(u32, Answer)>) {
    while judge.waiting() > 0 {
        judge.answers(now_ns, |ticket, answer| got.push((ticket, answer)));
        std::thread::yield_now();
    }
}

fn threaded(engine: Engine) -> (Judge, Handle) {
    Judge::thread(engine, 0, Arc::new(|| ())).unwrap()
}

#[test]
fn every_question_is_answered_once_while_policies_change() {
    let bench = Bench::new();
    let (mut judge, mut handle) = threaded(bench.engine(1));
    let (mut got, mut asked, mut refused) = (Vec::new(), 0u32, 0);
    for version in 2..=40 {
        // The next policy is made while questions flow, and comes in at any moment among them.
        let fresh = bench.engine(version);
        for burst in 0..30 {
            if burst == 15 {
                handle.replace(bench.engine(version - 1)).unwrap();
            }
            for source in 0..7 {
                match judge.ask(0, asked, &question(source)) {
                    None => {}
                    Some(answer) => {
                        assert_eq!(answer.failure, Some(Failure::QueueFull));
                        refused += 1;
                        got.push((asked, answer));
                    }
                }
                asked += 1;
            }
            judge.answers(0, |ticket, answer| got.push((ticket, answer)));
        }
        handle.replace(fresh).unwrap();
        // A script that does not load is an error before it gets here, and the one that answers goes on.
        bench.place.file("test.lua", "\nfunction decide(q");
        let broken = bench.place.policy("file = \"test.lua\"").unwrap();
        let error = Engine::new(&broken, &bench.around, 0).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("test.lua:2: "), "{error}");
    }
    settle(&mut judge, 0, &mut got);
    let mut answers = BTreeMap::new();
    for (ticket, answer) in &got {
        assert!(answers.insert(*ticket, *answer).is_none(), "{ticket} was answered twice");
    }
    assert_eq!(answers.len(), asked as usize);
    let mut last = 1;
    for (ticket, answer) in answers {
        if answer.failure.is_some() {
            continue;
        }
        let version = rate(&answer);
        // In order of asking, policies only go forward, but for the step back that each round makes.
        assert!(version + 1 >= last && version <= 40, "{ticket}: {version} after {last}");
        last = last.max(version);
    }
    assert_eq!(bench.around.counts.shown().failed(Failure::QueueFull), refused);
    // What is asked after the swap is answered by the new policy.
    while bench.around.counts.shown().swapped == 0 {
        judge.answers(0, |_, _| ());
    }
    let swapped = bench.around.counts.shown().swapped;
    handle.replace(bench.engine(99)).unwrap();
    while bench.around.counts.shown().swapped == swapped {
        std::thread::yield_now();
    }
    got.clear();
    assert!(judge.ask(0, 7, &question(1)).is_none());
    settle(&mut judge, 0, &mut got);
    assert_eq!((got[0].0, rate(&got[0].1)), (7, 99));
}

#[test]
fn a_companion_that_hangs_costs_its_questions_the_wait_and_no_more() {
    let bench = Bench::new();
    let (mut judge, _handle) = threaded(bench.engine(1));
    bench.gate.shut(true);
    let wait = 100_000_000;
    for ticket in 0..32 {
        assert_eq!(judge.ask(u64::from(ticket), ticket, &question(1)), None);
    }
    // The queue is full: nothing is decided, at once.
    let full = judge.ask(40, 32, &question(1)).unwrap();
    assert_eq!((full.failure, full.decision), (Some(Failure::QueueFull), Decision::None));
    assert_eq!(judge.due_ns(), Some(wait));
    let mut got = Vec::new();
    judge.answers(wait - 1, |ticket, answer| got.push((ticket, answer)));
    assert_eq!((got.len(), judge.waiting()), (0, 32));
    judge.answers(wait + 9, |ticket, answer| got.push((ticket, answer)));
    let late: Vec<u32> = got.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(late, (0..10).collect::<Vec<_>>(), "those whose time has come, in order");
    judge.answers(2 * wait, |ticket, answer| got.push((ticket, answer)));
    assert_eq!(got.len(), 32);
    assert!(got.iter().all(|(_, answer)| is_late(answer)));
    // They have their answers, but their places are taken until the companion gives them back.
    assert_eq!(judge.waiting(), 0);
    assert_eq!(judge.ask(2 * wait, 33, &question(1)).unwrap().failure, Some(Failure::QueueFull));
    bench.gate.shut(false);
    got.clear();
    while bench.around.counts.shown().after_deadline < 32 {
        judge.answers(2 * wait, |ticket, answer| got.push((ticket, answer)));
        std::thread::yield_now();
    }
    assert!(got.is_empty(), "what comes too late is counted and dropped: {got:?}");
    assert_eq!(judge.ask(3 * wait, 34, &question(1)), None);
    settle(&mut judge, 3 * wait, &mut got);
    assert_eq!((got[0].0, rate(&got[0].1)), (34, 1));
}

/// While it is at one question, others come: it takes renewals next, by themselves, then who has waited longest at the gate, then the rest as it came. Each fourth is who has asked first.
#[test]
fn a_companion_goes_by_priority() {
    let bench = Bench::new();
    let (mut judge, _handle) = threaded(bench.engine(1));
    let mut got = Vec::new();
    bench.gate.shut(true);
    let ask = |judge: &mut Judge, ticket: u8, dscp: u8| {
        assert_eq!(judge.ask(0, ticket.into(), &Question { dscp, ..question(ticket) }), None);
    };
    ask(&mut judge, 0, 3);
    judge.answers(0, |_, _| panic!("it is held up"));
    bench.gate.until_met();
    for (ticket, dscp) in (1..).zip([40, 41, 41, 41, 2, 63, 41, 2, 42]) {
        ask(&mut judge, ticket, dscp);
    }
    bench.gate.shut(false);
    settle(&mut judge, 0, &mut got);
    let order: Vec<u32> = got.iter().map(|(ticket, answer)| rate(answer) * ticket).collect();
    // The fourth stranger is 1, of the lowest level.
    assert_eq!(order, [0, 5, 8, 6, 9, 1, 2, 3, 4, 7]);
}

/// Half of the wait is for the turn: who has not had it by then is told so, and the policy is not asked.
#[test]
fn nobody_is_asked_about_whose_answer_would_be_late() {
    let bench = Bench::new();
    let (mut judge, _handle) = threaded(bench.engine(1));
    let (mut got, half) = (Vec::new(), 50_000_000);
    bench.gate.shut(true);
    for ticket in 0..10 {
        let at_ns = u64::from(ticket >= 8);
        assert_eq!(judge.ask(at_ns, ticket, &question(ticket as u8)), None);
    }
    bench.gate.change(|held| (held.shut, held.now_ns) = (false, half));
    settle(&mut judge, half, &mut got);
    got.sort_by_key(|(ticket, _)| *ticket);
    let (late, asked) = got.split_at(8);
    assert!(late.iter().all(|(_, answer)| is_late(answer)), "{late:?}");
    assert_eq!(asked.iter().map(|(_, answer)| rate(answer)).collect::<Vec<_>>(), [1, 1]);
    let shown = bench.around.counts.shown();
    assert_eq!((shown.asked, shown.failed(Failure::Late), shown.after_deadline), (2, 8, 0));
}

#[test]
fn a_companion_that_dies_is_replaced() {
    let bench = Bench::new();
    let deadly = Arc::new(AtomicBool::new(false));
    let kills = deadly.clone();
    // What is called when answers are there ends the thread.
    let notify = move || assert!(!kills.load(SeqCst), "the companion dies here");
    let (mut judge, mut handle) = Judge::thread(bench.engine(1), 0, Arc::new(notify)).unwrap();
    let mut got = Vec::new();
    assert_eq!(judge.ask(0, 0, &question(1)), None);
    settle(&mut judge, 0, &mut got);
    assert!(handle.alive());
    deadly.store(true, SeqCst);
    // More than a batch: the first is answered, the others are lost with the thread.
    bench.gate.shut(true);
    for ticket in 1..=20 {
        assert_eq!(judge.ask(0, ticket, &question(1)), None);
    }
    bench.gate.shut(false);
    settle(&mut judge, 0, &mut got);
    while handle.alive() {
        std::thread::yield_now();
    }
    let tickets: Vec<u32> = got.iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(tickets, (0..=20).collect::<Vec<_>>(), "each once, in order");
    let lost = got.iter().filter(|(_, answer)| answer.failure == Some(Failure::Panic)).count();
    assert!((16..=19).contains(&lost), "at most a batch of four was answered: {lost} lost");
    // Nobody is there: the fail-safe at once.
    let nobody = judge.ask(0, 21, &question(1)).unwrap();
    assert_eq!(
        (nobody.failure, nobody.decision),
        (Some(Failure::Panic), Decision::Declined { expire_s: 10 })
    );
    deadly.store(false, SeqCst);
    handle.replace(bench.engine(2)).unwrap();
    assert!(handle.alive());
    got.clear();
    judge.answers(0, |ticket, answer| got.push((ticket, answer)));
    assert!(got.is_empty());
    assert_eq!(judge.ask(0, 22, &question(1)), None);
    settle(&mut judge, 0, &mut got);
    assert_eq!((got[0].0, rate(&got[0].1)), (22, 2));
}

#[test]
fn in_line_the_same_questions_get_the_same_answers_in_order() {
    let bench = Bench::new();
    let (mut judge, mut handle) = Judge::inline(bench.engine(1));
    let mut got = Vec::new();
    for ticket in 0..40 {
        if let Some(answer) = judge.ask(0, ticket, &question(ticket as u8)) {
            assert!(ticket >= 32, "{ticket}");
            assert_eq!(answer.failure, Some(Failure::QueueFull));
        }
    }
    handle.replace(bench.engine(5)).unwrap();
    judge.answers(u64::MAX, |ticket, answer| got.push((ticket, rate(&answer))));
    assert_eq!(got, (0..32).map(|ticket| (ticket, 5)).collect::<Vec<_>>(), "between two batches");
    assert_eq!((judge.waiting(), judge.due_ns()), (0, None));
    assert!(handle.alive());
    let about = Question { packets: 3, ..question(1) };
    assert_eq!(judge.ask(0, 50, &about), None);
    got.clear();
    judge.answers(0, |ticket, answer| got.push((ticket, rate(&answer))));
    assert_eq!(got, [(50, 5)]);
}

#[test]
fn a_companion_ends_with_its_judge_or_its_handle() {
    let bench = Bench::new();
    let (judge, handle) = threaded(bench.engine(1));
    drop(judge);
    while handle.alive() {
        std::thread::yield_now();
    }
    let (mut judge, handle) = threaded(bench.engine(1));
    drop(handle);
    // Its end of the rings goes with it: whoever asks is told so at once.
    while judge.ask(0, 0, &question(1)).is_none() {
        judge.answers(0, |_, _| ());
        std::thread::yield_now();
    }
}

/// The clock is the test's: the state rests until that goes on.
#[test]
fn who_comes_while_a_state_rests_is_answered_by_the_next() {
    let bench = Bench::new();
    let script = "kept = {}\nfunction decide(q)\n\
        while string.byte(q.source, 4) == 1 do table.insert(kept, table.create(50000, 1)) end\n\
        return granted { rate = 7 }\nend";
    bench.place.file("test.lua", script);
    let policy = bench.place.policy("file = \"test.lua\"\nmemory_mib = 8\nwait_ms = 100").unwrap();
    let (mut judge, _handle) = threaded(Engine::new(&policy, &bench.around, 0).unwrap());
    let mut got = Vec::new();
    // The second state is there at once.
    for ticket in 0..2 {
        assert_eq!(judge.ask(0, ticket, &question(1)), None);
        settle(&mut judge, 0, &mut got);
    }
    assert!(got.iter().all(|(_, answer)| answer.failure == Some(Failure::Memory)), "{got:?}");
    assert_eq!(judge.ask(0, 2, &question(2)), None);
    judge.answers(0, |_, answer| panic!("nobody can be asked: {answer:?}"));
    bench.gate.change(|held| held.now_ns = REST_LEAST_NS);
    settle(&mut judge, REST_LEAST_NS, &mut got);
    assert_eq!((got[2].0, rate(&got[2].1)), (2, 7));
}

/// An engine of this file's, which counts what each source asks in such a map.
fn counting(bench: &Bench, file: &str, map: &str) -> Engine {
    let script = format!(
        "local seen = expiring {{ {map} }}\nfunction decide(q)\nlocal n = (seen:get(q.source) or 0) + 1\n\
        seen:set(q.source, n)\nreturn granted {{ rate = n }}\nend"
    );
    bench.place.file(file, &script);
    let policy = bench.place.policy(&format!("file = \"{file}\"")).unwrap();
    Engine::new(&policy, &bench.around, 0).unwrap()
}

/// What one question is granted, by a judge that asks in line.
fn granted(judge: &mut Judge, now_ns: u64, question: &Question) -> u32 {
    assert_eq!(judge.ask(now_ns, 0, question), None);
    let mut got = None;
    judge.answers(now_ns, |_, answer| got = Some(rate(&answer)));
    got.unwrap()
}

#[test]
fn a_reload_keeps_what_the_script_keeps() {
    let bench = Bench::new();
    let second = 1_000_000_000;
    let kept = "entries = 64, idle = 60, keep = 'seen'";
    let (mut judge, mut handle) = Judge::inline(counting(&bench, "test.lua", kept));
    let mut ask = |now_s: u64| granted(&mut judge, now_s * second, &question(1));
    let mut reload = |file, map| handle.replace(counting(&bench, file, map)).unwrap();
    assert_eq!([ask(0), ask(0)], [1, 2]);
    reload("test.lua", kept);
    assert_eq!(ask(1), 3);
    // Two reloads before anybody asks: what the first one would have had goes to the second.
    reload("test.lua", kept);
    reload("test.lua", "entries = 64, idle = 5, keep = 'seen'");
    assert_eq!([ask(2), ask(6), ask(11)], [4, 5, 1], "it forgets when the new script says");
    // Another size, another name, no name, another file: nothing goes over.
    for (file, map) in [
        ("test.lua", "entries = 128, idle = 60, keep = 'seen'"),
        ("test.lua", "entries = 128, idle = 60, keep = 'met'"),
        ("test.lua", "entries = 128, idle = 60"),
        ("test.lua", "entries = 128, idle = 60"),
        ("other.lua", "entries = 128, idle = 60, keep = 'seen'"),
        ("test.lua", "entries = 128, idle = 60, keep = 'seen'"),
    ] {
        reload(file, map);
        assert_eq!([ask(12), ask(12)], [1, 2], "{file}: {map}");
    }
}

#[test]
fn who_has_passed_goes_on_after_a_reload() {
    let bench = Bench::new();
    let engine = |rate: u32| {
        let section =
            format!("name = \"source-authentication\"\nparameters = {{ rate = {rate}, trial = 3 }}");
        Engine::new(&bench.place.policy(&section).unwrap(), &bench.around, 0).unwrap()
    };
    let (mut judge, mut handle) = Judge::inline(engine(900));
    let acknowledges = Question { tcp_flags: 0x10, dscp: 2, ..question(1) };
    assert_eq!(granted(&mut judge, 0, &question(1)), 3, "a trial");
    assert_eq!(granted(&mut judge, 1_000_000_000, &acknowledges), 900);
    handle.replace(engine(800)).unwrap();
    assert_eq!(granted(&mut judge, 2_000_000_000, &acknowledges), 800, "without a new connection");
}
