//! Several workers: what one sees, the others know. Driven by hand, so that it is the same every time; then in an engine, for the books.

#![allow(clippy::unwrap_used)]

mod common;

use common::ports::run;
use common::{Flow, SECOND, frame, section};
use tidemill_amp::{Because, Counter, Mitigator, MitigatorControl, Side};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::memory::Frame;
use tidemill_wire::flow_key;

const NOW: u64 = 1_000_000 * SECOND;

struct Team {
    control: MitigatorControl,
    workers: Vec<Mitigator>,
    now_ns: u64,
}

impl Team {
    fn new(toml: &str, count: usize) -> Self {
        let ports = ["outside".to_string(), "inside".to_string()];
        let control = MitigatorControl::new(&section(toml), &ports, count, &Domain::new()).unwrap();
        let workers = (0..count).map(|worker| *control.mitigator(worker).unwrap()).collect();
        Team { control, workers, now_ns: NOW }
    }

    fn drops(&mut self, worker: usize, side: Side, packet: &[u8]) -> bool {
        let (settings, burst) = (self.control.settings().clone(), [(side, frame(packet, 0))]);
        let mut drops = false;
        self.workers[worker].decide(
            &settings,
            self.now_ns,
            &burst,
            |(side, bytes)| (*side, &bytes[..]),
            |_| drops = true,
        );
        drops
    }

    fn answer(&mut self, worker: usize, flow: &Flow) -> bool {
        self.drops(worker, Side::Outside, &flow.answer())
    }

    fn complain(&mut self, worker: usize, flow: &Flow) {
        assert!(!self.drops(worker, Side::Inside, &flow.complaint()));
    }

    fn query(&mut self, worker: usize, flow: &Flow) {
        assert!(!self.drops(worker, Side::Inside, &flow.query()));
    }

    fn tick(&mut self, worker: usize) {
        let settings = self.control.settings().clone();
        self.workers[worker].tick(&settings, self.now_ns);
    }

    fn count(&self, worker: usize, counter: Counter) -> u64 {
        self.workers[worker].counters().get(counter)
    }
}

#[test]
fn a_message_reaches_the_worker_that_has_the_flow() {
    for flow in [Flow::v4(), Flow::v6()] {
        let mut team = Team::new("icmp_rate = 0", 3);
        assert!(!team.answer(0, &flow) && !team.answer(2, &flow));
        team.complain(1, &flow);
        assert_eq!((team.count(1, Counter::IcmpUnknown), team.count(1, Counter::RulesMade)), (1, 0));
        assert!(!team.answer(0, &flow), "before it has read its mail");
        (0..3).for_each(|worker| team.tick(worker));
        assert!(team.answer(0, &flow) && team.answer(2, &flow) && !team.answer(1, &flow));
        for (worker, made) in [(0, 1), (1, 0), (2, 1)] {
            let counted =
                (team.count(worker, Counter::RulesMade), team.count(worker, Counter::MailConfirmed));
            assert_eq!(counted, (made, made), "worker {worker}");
        }
        // Of the one that knows the flow itself, the others learn as well.
        let other = Flow { victim_port: 9, ..flow };
        assert!(!team.answer(0, &other) && !team.answer(1, &other));
        team.complain(0, &other);
        team.tick(1);
        assert!(team.answer(0, &other) && team.answer(1, &other));
        // The control side finds both, and who knows them.
        team.tick(0);
        let key = flow_key(&frame(&flow.answer(), 0), 14).unwrap();
        let explained = team.control.explain(&key, NOW);
        assert!(explained.drops && matches!(explained.because, Because::Filtered { .. }), "{explained:?}");
        assert_eq!(explained.workers, [0, 1, 2], "worker 1 suspects it");
        assert_eq!(explained.filters, [0, 2]);
        team.tick(1);
        team.tick(2);
        assert_eq!(team.control.counters().get(Counter::RulesMade), 4);
    }
}

/// Flows that a rule of this mode makes one, and that their receive hash puts on several workers.
fn alike(tuple: u8, flow: Flow, n: u16) -> Flow {
    let victim = match flow.victim {
        std::net::IpAddr::V4(_) => [10, 0, 0, 1 + n as u8].into(),
        std::net::IpAddr::V6(_) => [0xfd00, 0, 0, 0, 0, 0, 0, 1 + n].into(),
    };
    match tuple {
        4 => flow,
        3 => Flow { victim_port: flow.victim_port + n, ..flow },
        2 => Flow { port: [53, 123, 161, 389][usize::from(n)], victim_port: flow.victim_port + n, ..flow },
        _ => Flow { victim, port: [53, 123, 161, 389][usize::from(n)], ..flow },
    }
}

#[test]
fn a_worker_that_gets_a_flow_later_learns_its_rule_too() {
    // A tuple's packets meet several workers: the coarser modes by what they leave out, the finest by fragments, which have no ports to hash.
    for (tuple, flow) in (1..=4).flat_map(|tuple| [(tuple, Flow::v4()), (tuple, Flow::v6())]) {
        let case = format!("tuple {tuple}, {flow:?}");
        let mut team = Team::new(&format!("icmp_rate = 0\ntuple = {tuple}"), 3);
        assert!(!team.answer(0, &alike(tuple, flow, 0)));
        team.complain(0, &alike(tuple, flow, 0));
        (0..3).for_each(|worker| team.tick(worker));
        assert!(team.answer(0, &alike(tuple, flow, 1)), "{case}");
        // The others had nothing of it when they were told. The victim's next message comes to the worker that has the rule already.
        for worker in [1, 2] {
            let later = alike(tuple, flow, worker as u16);
            assert!(!team.answer(worker, &later), "{case}");
            team.complain(0, &later);
            assert_eq!(team.count(0, Counter::IcmpAlready), worker as u64, "{case}");
            team.tick(worker);
            assert!(team.answer(worker, &later), "worker {worker} lets it pass: {case}");
            assert_eq!(team.count(worker, Counter::MailConfirmed), 1, "{case}");
        }
        // Who has it, and who does not, an operator sees.
        let key = flow_key(&frame(&flow.answer(), 0), 14).unwrap();
        assert_eq!(team.control.explain(&key, NOW).filters, [0, 1, 2], "{case}");
        // Where nobody suspects it, nobody is told, however often the victim says it.
        (0..3).for_each(|worker| team.tick(worker));
        (0..=LETTERS).for_each(|_| team.complain(0, &alike(tuple, flow, 1)));
        assert_eq!(team.count(0, Counter::MailLost), 0, "{case}");
    }
}

#[test]
fn a_question_reaches_the_worker_that_gets_the_answer() {
    for flow in [Flow::v4(), Flow::v6()] {
        let mut team = Team::new("icmp_rate = 0", 2);
        team.query(1, &flow);
        team.tick(0);
        assert!(!team.answer(0, &flow));
        assert_eq!(team.count(0, Counter::AnswersSolicited), 1);
        for worker in [0, 1] {
            team.complain(worker, &flow);
            team.tick(0);
            team.tick(1);
        }
        assert!(!team.answer(0, &flow));
        // The message and the question wait together: the question is read first.
        let other = Flow { victim_port: 9, ..flow };
        assert!(!team.answer(0, &other));
        team.complain(1, &other);
        team.query(1, &other);
        team.tick(0);
        assert!(!team.answer(0, &other));
        assert_eq!((team.count(0, Counter::RulesMade), team.count(1, Counter::RulesMade)), (0, 0));
        // A question at one worker lifts the rule of another.
        let third = Flow { victim_port: 10, ..flow };
        assert!(!team.answer(0, &third));
        team.complain(0, &third);
        assert!(team.answer(0, &third));
        team.query(1, &third);
        team.tick(0);
        assert!(!team.answer(0, &third));
        assert_eq!(team.count(0, Counter::RulesLifted), 1);
    }
}

#[test]
fn who_goes_on_asking_is_not_forgotten_by_the_others() {
    for (flow, query_s, every) in
        [(Flow::v4(), 10, 3), (Flow::v6(), 10, 1), (Flow::v4(), 7, 2), (Flow::v6(), 1, 1)]
    {
        let mut team = Team::new(&format!("icmp_rate = 0\nquery_s = {query_s}"), 2);
        for second in 0..40 {
            team.now_ns = NOW + second * SECOND;
            if second % every == 0 {
                team.query(1, &flow);
            }
            team.tick(0);
            assert!(!team.answer(0, &flow));
            assert_eq!(
                team.count(0, Counter::AnswersSolicited),
                second + 1,
                "query_s {query_s}, each {every} s"
            );
        }
    }
}

/// Room in a mailbox.
const LETTERS: u32 = 4096;

/// A flow of its own for each number, in all tuple modes.
fn other(n: u32) -> Flow {
    Flow { amplifier: std::net::Ipv4Addr::from(0x0900_0000 + n).into(), ..Flow::v4() }
}

#[test]
fn a_full_mailbox_is_counted_and_what_was_lost_is_told_again() {
    let mut team = Team::new("", 2);
    (0..5000).for_each(|n| team.query(1, &other(n)));
    let lost = 5000 - u64::from(LETTERS);
    assert_eq!(team.count(1, Counter::MailLost), lost);
    // Asked again within half the time: who was told is not told twice, and who was not is.
    team.query(1, &other(7));
    assert_eq!(team.count(1, Counter::MailLost), lost);
    team.query(1, &other(4999));
    assert_eq!(team.count(1, Counter::MailLost), lost + 1);
    (0..10).for_each(|_| team.tick(0));
    team.tick(1);
    assert_eq!((team.count(0, Counter::Flows4), team.count(1, Counter::Flows4)), (4096, 5000));
    (0..5000).for_each(|n| team.query(1, &other(n)));
    (0..10).for_each(|_| team.tick(0));
    assert_eq!(team.count(0, Counter::Flows4), 5000);
    // And when it has been told, it is not told again.
    assert_eq!(team.count(1, Counter::MailLost), lost + 1);
    for n in 0..5000 {
        team.query(1, &other(n));
        team.query(
            1,
            &Flow { amplifier: "2001:db8::1".parse().unwrap(), victim_port: n as u16, ..Flow::v6() },
        );
    }
    assert_eq!(team.count(1, Counter::MailLost), lost + 1 + lost, "no more than the new ones");
}

#[test]
fn a_rule_whose_end_was_lost_ends_with_the_next_question() {
    for flow in [Flow::v4(), Flow::v6()] {
        let mut team = Team::new("icmp_rate = 0", 2);
        assert!(!team.answer(0, &flow));
        team.complain(0, &flow);
        assert!(team.answer(0, &flow));
        (0..LETTERS).for_each(|n| team.query(1, &other(n)));
        team.query(1, &flow);
        assert_eq!(team.count(1, Counter::MailLost), 1);
        (0..10).for_each(|_| team.tick(0));
        assert!(team.answer(0, &flow), "nobody has told it");
        team.query(1, &flow);
        assert!(!team.answer(0, &flow));
        assert_eq!((team.count(0, Counter::RulesLifted), team.count(1, Counter::MailLost)), (1, 1));
    }
}

#[test]
fn what_is_asked_for_is_not_filtered_whatever_letters_are_lost() {
    for (tuple, flow) in [(4, Flow::v4()), (3, Flow::v6()), (2, Flow::v4()), (4, Flow::v6())] {
        let mut team = Team::new(&format!("icmp_rate = 0\ntuple = {tuple}"), 3);
        (0..LETTERS).for_each(|n| team.query(1, &other(n)));
        team.query(1, &flow);
        assert_eq!(team.count(1, Counter::MailLost), 2);
        [0, 2, 0, 2].iter().for_each(|worker| (0..10).for_each(|_| team.tick(*worker)));
        // A late message by mail; at the worker that saw the question; and at one that got the answer.
        assert!(!team.answer(2, &flow));
        for (worker, why) in [(0, Counter::IcmpUnknown), (1, Counter::IcmpSolicited)] {
            team.complain(worker, &flow);
            assert_eq!(team.count(worker, why), 1);
            (0..3).for_each(|worker| team.tick(worker));
        }
        assert!(!team.answer(0, &flow));
        team.complain(0, &flow);
        (0..3).for_each(|worker| team.tick(worker));
        for worker in 0..3 {
            assert!(!team.answer(worker, &flow), "tuple {tuple}, worker {worker}");
            assert_eq!(team.count(worker, Counter::RulesMade), 0, "tuple {tuple}, worker {worker}");
        }
        assert_eq!(team.count(0, Counter::IcmpSolicited), 1);
        // What nobody asked for is filtered as ever, by mail too.
        let unasked = Flow { amplifier: other(9999).amplifier, victim: Flow::v4().victim, ..flow };
        assert!(!team.answer(2, &unasked));
        team.complain(0, &unasked);
        team.tick(2);
        assert!(team.answer(2, &unasked));
    }
}

/// Two workers on threads of their own: the books balance (see `run`), and who was asked is not cut off at the worker that saw the question.
#[test]
fn in_an_engine() {
    let flow = Flow::v4();
    let at = |packet: Vec<u8>, n: u64| Frame::at(NOW + n * 1_000_000, frame(&packet, 0));
    let round = |n: u64| vec![at(flow.answer(), n), at(flow.answer(), n)];
    let outside: Vec<Vec<Frame>> = (0..2000).map(round).collect();
    let inside: Vec<Vec<Frame>> =
        (0..2000).map(|n| vec![at(flow.query(), n), at(flow.complaint(), n)]).collect();
    let mut late = vec![Vec::new(); 10];
    late.extend(inside.clone());
    let run = run(&section("icmp_rate = 0"), vec![[outside.clone(), inside], [outside, late]]);
    let counters = run.control.counters();
    assert_eq!((counters.get(Counter::Answers), counters.get(Counter::Queries)), (8000, 4000));
    assert_eq!(
        (counters.get(Counter::RulesMade), run.dropped()),
        (0, 0),
        "each worker sees questions before messages"
    );
}
