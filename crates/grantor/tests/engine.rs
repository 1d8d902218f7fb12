//! What an engine does with questions: merges what is alike, tells scripts what they are to know, gets through failures, and tells of them once.

#![cfg(feature = "lua")]

mod common;

use common::{Place, TestClock, decide, question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tidemill_grantor::policy::engine::{REST_LEAST_NS, REST_MOST_NS};
use tidemill_grantor::{Decision, Engine, Failure, Fragment, Question, Surroundings};
use tidemill_wire::flow::Addresses;

#[test]
fn a_script_is_told_all_of_a_question() {
    let place = Place::default();
    let script = "function decide(q)\n\
        assert(ip.text(q.source) == '192.0.2.9' and ip.text(q.destination) == '198.51.100.1')\n\
        assert(q.source == ip.address('192.0.2.9') and ip.address('nonsense') == nil and ip.text('xyz') == nil)\n\
        assert(q.protocol == 17 and q.dscp == 63 and q.fragment == 1 and q.tcp_flags == 255)\n\
        assert(q.source_port == 65535 and q.destination_port == 53 and q.length == 1500)\n\
        assert(q.packets == 4294967295 and q.bytes == 6e12 and q.now == 2.5)\n\
        assert(ip.text(ip.mask(q.source, 23)) == '192.0.2.0' and ip.text(ip.mask(q.source, 0)) == '0.0.0.0')\n\
        assert(ip.mask(q.source, 32) == q.source and ip.mask(q.source, 33) == nil and ip.mask(q.source, 0 / 0) == nil)\n\
        return undecided { forward = true }\nend";
    let mut engine = place.script(script, "").unwrap();
    let told = Question {
        flow: Addresses::V4 { src: 0xc000_0209, dst: 0xc633_6401 },
        dscp: 63,
        protocol: 17,
        fragment: Fragment::First,
        tcp_flags: 255,
        source_port: 65_535,
        destination_port: 53,
        length: 1500,
        packets: u32::MAX,
        bytes: 6_000_000_000_000,
    };
    let answers = decide(&mut engine, 2_500_000_000, &[told]);
    assert_eq!((answers[0].decision, answers[0].forward), (Decision::None, true), "{:?}", place.lines());
    assert_eq!(answers[0].failure, None);
    let script = "function decide(q) assert(ip.text(q.source) == '2001:db8::9' and ip.text(ip.mask(q.destination, 17)) == '2001::')\n\
                  return undecided() end";
    let mut engine = place.script(script, "").unwrap();
    let six = Addresses::V6 { src: 0x2001_0db8 << 96 | 9, dst: 0x2001_0db8 << 96 | 1 };
    assert_eq!(decide(&mut engine, 0, &[Question::about(six)])[0].failure, None, "{:?}", place.lines());
}

#[test]
fn every_kind_of_answer_arrives_as_it_was_made() {
    let place = Place::default();
    let script = "function decide(q)\n local n = string.byte(q.source, 4)\n\
        if n == 1 then return granted { rate = 100, expire = 20, renew = 5000, step = 250 } end\n\
        if n == 2 then return granted { rate = 4294967295.9 - 1, forward = false } end\n\
        if n == 3 then return declined { expire = 7 } end\n\
        if n == 4 then return declined { forward = true } end\n\
        if n == 5 then return program { index = 3, expire = 9, cookie = 'abcdefgh' } end\n\
        if n == 7 then return granted { rate = 9, direct = true } end\n\
        return undecided()\nend";
    let mut engine = place.script(script, "").unwrap();
    let questions: Vec<Question> = (1..=8).map(question).collect();
    let answers = decide(&mut engine, 0, &questions);
    let decisions: Vec<_> = answers.iter().map(|answer| (answer.decision, answer.forward)).collect();
    let granted = |rate_kib_s, expire_s, renew_ms, step_ms| Decision::Granted {
        rate_kib_s,
        expire_s,
        renew_ms,
        step_ms,
        direct: false,
    };
    assert_eq!(decisions[0], (granted(100, 20, 5000, 250), true));
    assert_eq!(decisions[1], (granted(u32::MAX - 1, 60, 45_000, 1000), false), "fractions are cut off");
    assert_eq!(decisions[2], (Decision::Declined { expire_s: 7 }, false));
    assert_eq!(decisions[3], (Decision::Declined { expire_s: 60 }, true));
    let Decision::Program { expire_s: 9, program: 3, cookie } = decisions[4].0 else {
        panic!("{decisions:?}")
    };
    assert_eq!(cookie.bytes(), b"abcdefgh");
    assert_eq!(decisions[5], (Decision::None, false));
    assert!(matches!(decisions[6], (Decision::Granted { rate_kib_s: 9, direct: true, .. }, true)));
    assert_eq!(decisions[7], (Decision::None, false));
}

#[test]
fn questions_of_one_signature_are_one_call() {
    let place = Place::default();
    // The rate tells how many packets and bytes the call stood for.
    let script =
        "signature('source')\nfunction decide(q) return granted { rate = q.packets, expire = q.bytes } end";
    let mut engine = place.script(script, "batch = 8").unwrap();
    let mut questions: Vec<Question> = [1, 2, 1, 1, 3, 2, 1, 4].map(question).to_vec();
    questions[3].destination_port = 443;
    questions[6].packets = 10;
    let answers = decide(&mut engine, 0, &questions);
    let rates: Vec<u32> = answers
        .iter()
        .map(|answer| match answer.decision {
            Decision::Granted { rate_kib_s, .. } => rate_kib_s,
            _ => panic!("{answer:?}"),
        })
        .collect();
    assert_eq!(rates, [13, 2, 13, 13, 1, 2, 13, 1]);
    let shown = place.around.counts.shown();
    assert_eq!((shown.asked, shown.merged, shown.calls), (8, 4, 1));
    // Without a signature ports count too; batches are not merged with each other.
    let mut engine =
        place.script("function decide(q) return granted { rate = q.packets } end", "batch = 4").unwrap();
    let before = place.around.counts.shown();
    decide(&mut engine, 0, &questions);
    let shown = place.around.counts.shown();
    assert_eq!(
        (shown.asked - before.asked, shown.merged - before.merged, shown.calls - before.calls),
        (8, 1, 2)
    );
}

/// Fills its memory for source 1, and keeps it full.
const LEAK: &str = "kept = {}\nfunction decide(q)\n\
    if string.byte(q.source, 4) == 1 then while true do table.insert(kept, table.create(50000, 1)) end end\n\
    return granted { rate = 1 + #kept }\nend";

/// What it answers to others at the beginning.
const AT_FIRST: Decision =
    Decision::Granted { rate_kib_s: 1, expire_s: 60, renew_ms: 45_000, step_ms: 1000, direct: false };

#[test]
fn a_spent_state_is_made_anew_after_ten_times_what_that_took() {
    const MS: u64 = 1_000_000;
    let place = Place::default();
    // What making it takes by the clock, and how long it is until the next.
    for (took_ns, rest_ns) in [(0, REST_LEAST_NS), (5 * MS, 50 * MS), (150 * MS, REST_MOST_NS)] {
        let mut engine = place.script(LEAK, "memory_mib = 8\ntime_ms = 10000").unwrap();
        let mut ask = |now_ns, source, tick_ns| {
            place.clock.tick_ns.store(tick_ns, Relaxed);
            decide(&mut engine, now_ns, &[question(source)])[0]
        };
        assert_eq!(ask(0, 1, 0).failure, Some(Failure::Memory));
        // At once, and the script has forgotten what filled the memory.
        assert_eq!(ask(1, 2, took_ns).decision, AT_FIRST);
        assert_eq!(ask(2, 1, 0).failure, Some(Failure::Memory));
        // Again so soon: until it is over nobody is asked about, so nothing is decided.
        for now_ns in [3, rest_ns] {
            let answer = ask(now_ns, 2, 0);
            assert_eq!((answer.failure, answer.decision), (Some(Failure::Resting), Decision::None));
        }
        assert_eq!(ask(rest_ns + 1, 2, took_ns).decision, AT_FIRST);
        // It has lived for long enough.
        let now_ns = 5 * REST_MOST_NS;
        assert_eq!(ask(now_ns, 1, 0).failure, Some(Failure::Memory));
        assert_eq!(ask(now_ns + 1, 2, took_ns).decision, AT_FIRST);
        // The clock is set back.
        assert_eq!(ask(now_ns + 2, 1, 0).failure, Some(Failure::Memory));
        assert_eq!(ask(0, 2, took_ns).decision, AT_FIRST);
    }
    assert_eq!(place.around.counts.shown().rebuilt, 12);
}

#[test]
fn who_is_behind_the_question_that_spent_the_state_is_not_judged() {
    let place = Place::default();
    let mut engine = place.script(LEAK, "memory_mib = 8").unwrap();
    let answers = decide(&mut engine, 0, &[2, 1, 3, 4].map(question));
    let declined = Decision::Declined { expire_s: 10 };
    let got = answers.iter().map(|answer| (answer.decision, answer.failure)).collect::<Vec<_>>();
    assert_eq!(got[..2], [(AT_FIRST, None), (declined, Some(Failure::Memory))]);
    assert_eq!(got[2..], [(Decision::None, Some(Failure::Resting)); 2]);
}

/// Between two tries, too: of many failures in an interval one is told.
#[test]
fn why_no_state_can_be_made_is_told_to_those_who_wait() {
    const MS: u64 = 1_000_000;
    let (mut place, loading) = (Place::default(), Arc::<TestClock>::default());
    let looked = loading.clone();
    place.around.loading = Arc::new(move || looked.look());
    let mut engine = place.script(LEAK, "memory_mib = 8\nlog_every_s = 1").unwrap();
    let mut ask = |now_ns, source| decide(&mut engine, now_ns, &[question(source)])[0].failure;
    assert_eq!(ask(0, 1), Some(Failure::Memory));
    // From now on loading takes too long. What is told at first is the script's failure; then a try, and somebody who waits for the next.
    loading.tick_ns.store(1000 * MS, Relaxed);
    assert_eq!([ask(995 * MS, 2), ask(1000 * MS, 2)], [Some(Failure::Resting); 2]);
    assert_eq!(place.around.counts.shown().rebuilt, 1);
    let lines = place.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let line = &lines[1];
    assert!(line.starts_with("policy: waits for a new state: test.lua: "), "{line}");
    assert!(line.contains("more than 10 s while loading (resting)"), "{line}");
}

#[test]
fn a_state_made_anew_keeps_what_the_script_keeps() {
    let place = Place::default();
    for (keep, after) in [("", 1), (", keep = 'seen'", 3)] {
        let script = format!(
            "local seen = expiring {{ entries = 64, idle = 60{keep} }}\nfilled = {{}}\nfunction decide(q)\n\
            if string.byte(q.source, 4) == 9 then while true do table.insert(filled, table.create(50000, 1)) end end\n\
            local n = (seen:get(q.source) or 0) + 1\nseen:set(q.source, n)\nreturn granted {{ rate = n }}\nend"
        );
        let mut engine = place.script(&script, "memory_mib = 8").unwrap();
        let mut ask = |now_ns, source| decide(&mut engine, now_ns, &[question(source)])[0];
        let (renew_ms, step_ms) = (45_000, 1000);
        let rate =
            |rate_kib_s| Decision::Granted { rate_kib_s, expire_s: 60, renew_ms, step_ms, direct: false };
        assert_eq!([ask(0, 1).decision, ask(1, 1).decision], [rate(1), rate(2)]);
        assert_eq!(ask(2, 9).failure, Some(Failure::Memory));
        assert_eq!(ask(3, 1).decision, rate(after));
    }
    assert_eq!(place.around.counts.shown().rebuilt, 2);
}

/// There is no time before the first question: what was put in then would be gone by it.
#[test]
fn a_map_is_for_decide() {
    let place = Place::default();
    for call in ["m:get(1)", "m:set(1, 5)", "m:remove(1)"] {
        let script = format!(
            "local m = expiring {{ entries = 8, idle = 60 }}\n{call}\nfunction decide(q) return undecided() end"
        );
        let error = place.script(&script, "").map(drop).unwrap_err().to_string();
        let says = error.contains("a map is for decide");
        assert!(error.starts_with("test.lua:2: ") && says, "{call}: {error}");
    }
}

/// Seven take a little more than their steps each, which all together have; the eighth finds none left.
#[test]
fn steps_that_others_have_taken_are_no_fault_of_who_is_asked_behind_them() {
    let place = Place::default();
    let script = "function decide(q) local eighth = string.byte(q.source, 4) == 8\n\
        for i = 1, if eighth then 600 else 1100 do end return granted { rate = 1 } end";
    let mut engine = place.script(script, "steps = 1000\nbatch = 8\ntime_ms = 10000").unwrap();
    let questions: Vec<Question> = (1..=8).map(question).collect();
    let failures: Vec<_> =
        decide(&mut engine, 0, &questions).into_iter().filter_map(|answer| answer.failure).collect();
    assert!(failures.is_empty(), "{failures:?}: {:?}", place.lines());
    // By itself the first one has too few, and the eighth enough.
    let alone = |engine: &mut Engine, n| decide(engine, 0, &[question(n)])[0].failure;
    assert_eq!([alone(&mut engine, 1), alone(&mut engine, 8)], [Some(Failure::Timeout), None]);
}

/// What one question has left lying is no fault of the next one's.
#[test]
fn a_question_that_needs_most_of_the_memory_has_it_whoever_was_asked_before() {
    let place = Place::default();
    // 6 of 8 MiB, of which nothing is kept.
    let script = "function decide(q) local all = table.create(400000, 1) return granted { rate = #all } end";
    let mut engine = place.script(script, "memory_mib = 8\ntime_ms = 10000").unwrap();
    for batch in 0..5_u64 {
        let questions: Vec<Question> = (0..4).map(|n| question(n + 4 * batch as u8)).collect();
        for answer in decide(&mut engine, batch * 1_000_000_000, &questions) {
            assert_eq!(answer.failure, None, "{:?}", place.lines());
        }
    }
}

#[test]
fn memory_that_is_only_unused_is_collected() {
    let place = Place::default();
    // 200,000 bytes of garbage for each question: far more than fits, one after the other.
    let script = "remembered = 0\nfunction decide(q) remembered += 1 local s = string.rep('x', 200000) .. q.now\n\
                  return granted { rate = remembered } end";
    let mut engine = place.script(script, "memory_mib = 4").unwrap();
    for now in 1..=500 {
        let answer = decide(&mut engine, now, &[question(1)])[0];
        assert_eq!(answer.failure, None, "{:?}", place.lines());
    }
    let answer = decide(&mut engine, 501, &[question(1)])[0];
    assert!(
        matches!(answer.decision, Decision::Granted { rate_kib_s: 400.., .. }),
        "not forgotten: {answer:?}"
    );
    assert_eq!(place.around.counts.shown().rebuilt, 0);
}

/// A number takes 16 bytes: a list of so many MiB.
fn keeps(mib: f64) -> String {
    format!(
        "kept = table.create({}, 1)\nfunction decide(q) return granted {{ rate = 1 }} end",
        mib * 65_536.0
    )
}

#[test]
fn a_script_that_leaves_no_room_to_work_in_is_refused() {
    let place = Place::default();
    let error = place.script(&keeps(6.5), "memory_mib = 8").map(drop).unwrap_err().to_string();
    assert!(
        error.starts_with("test.lua: keeps ") && error.contains("raise grantor.policy.memory_mib"),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
    let mut engine = place.script(&keeps(5.0), "memory_mib = 8").unwrap();
    for now_ns in 0..100 {
        assert_eq!(decide(&mut engine, now_ns, &[question(1)])[0].decision, AT_FIRST);
    }
    assert_eq!((place.around.counts.shown().rebuilt, place.lines()), (0, vec![]));
}

/// Nothing has failed, so nothing else tells of it.
#[test]
fn a_state_that_is_spent_without_a_failure_is_told() {
    let place = Place::default();
    let script = "kept = {}\nfunction decide(q) table.insert(kept, table.create(65536, 1)) return granted { rate = 1 } end";
    let mut engine = place.script(script, "memory_mib = 8").unwrap();
    for now_ns in 0..8 {
        assert_eq!(decide(&mut engine, now_ns, &[question(1)])[0].decision, AT_FIRST);
    }
    let told =
        "policy: test.lua: keeps more than three quarters of its memory: its state is made anew (memory)";
    assert_eq!((place.around.counts.shown().rebuilt, place.lines()), (1, vec![told.to_owned()]));
}

#[test]
fn failures_are_told_once_per_interval_for_all_engines() {
    let place = Place::default();
    let script = "\nfunction decide(q) error('no ' .. string.byte(q.source, 4)) end";
    let (mut first, mut second) = (place.script(script, "").unwrap(), place.script(script, "").unwrap());
    let second_ns = 1_000_000_000;
    for now in 0..100 {
        decide(&mut first, now * second_ns / 10, &[question(1), question(2)]);
        decide(&mut second, now * second_ns / 10, &[question(3)]);
    }
    assert_eq!(place.lines(), ["policy: test.lua:2: no 1 (error)"]);
    decide(&mut second, 10 * second_ns, &[question(3)]);
    assert_eq!(place.lines()[1..], ["policy: test.lua:2: no 3 (error); 299 other failures since"]);
    assert_eq!(place.around.counts.shown().failed(Failure::Error), 301);
}

#[test]
fn a_panic_is_contained_and_the_engine_made_anew() {
    let place = Place::default();
    // The clock that is handed in fails: the engine looks at it in every step.
    let (broken, clock) = (Arc::new(AtomicBool::new(false)), Arc::<TestClock>::default());
    let fails = broken.clone();
    let look = move || {
        assert!(!fails.load(Relaxed), "the clock is broken");
        clock.look()
    };
    let around = Surroundings::new(Arc::new(look), place.around.log.clone(), 1);
    place.file("test.lua", "n = 0\nfunction decide(q) n += 1 return granted { rate = n } end");
    let policy = place
        .policy("file = \"test.lua\"\nfail_safe = { action = \"grant\", rate = 5, seconds = 60 }")
        .unwrap();
    let mut engine = Engine::new(&policy, &around, 0).unwrap();
    let questions = [question(1), question(2)];
    assert!(decide(&mut engine, 0, &questions).iter().all(|answer| answer.failure.is_none()));
    broken.store(true, Relaxed);
    for answer in decide(&mut engine, 1, &questions) {
        assert_eq!(answer.failure, Some(Failure::Panic));
        assert!(matches!(answer.decision, Decision::Granted { rate_kib_s: 5, .. }) && answer.forward);
    }
    broken.store(false, Relaxed);
    let answers = decide(&mut engine, 2, &questions);
    assert!(matches!(answers[0].decision, Decision::Granted { rate_kib_s: 1, .. }), "from the beginning");
    assert_eq!(around.counts.shown().failed(Failure::Panic), 2);
    assert_eq!(place.lines(), ["policy: test.lua: the engine failed; it is made anew (panic)"]);
}

#[test]
fn the_same_questions_get_the_same_answers() {
    let place = Place::default();
    let script = "local seen = expiring { entries = 64, idle = 5 }\n\
        function decide(q) local n = seen:get(q.source) or 0 seen:set(q.source, n + 1)\n\
        return granted { rate = 1 + n + math.random(1000000) } end";
    let run = || {
        let mut engine = place.script(script, "").unwrap();
        (0..50u64)
            .flat_map(|now| {
                let questions: Vec<Question> = (0..100).map(|n: u8| question(n.wrapping_mul(37))).collect();
                decide(&mut engine, now * 1_000_000_000, &questions)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn parameters_are_checked_by_who_asks_for_them() {
    let place = Place::default();
    let script = "local rate = parameter('rate', 5, 1, 100)\nlocal list = parameter('list', {})\nlocal on = parameter('on', false)\n\
        function decide(q) return granted { rate = rate + #list + (on and 1000 or 0) } end";
    let rate =
        |more: &str| match decide(&mut place.script(script, more).unwrap(), 0, &[question(1)])[0].decision {
            Decision::Granted { rate_kib_s, .. } => rate_kib_s,
            other => panic!("{other:?}"),
        };
    assert_eq!(rate(""), 5);
    assert_eq!(rate("parameters = { rate = 50, list = [1, \"two\"], on = true }"), 1052);
    let error = |more: &str| place.script(script, more).map(drop).unwrap_err().to_string();
    assert_eq!(error("parameters = { rate = 101 }"), "test.lua:1: parameter \"rate\" = 101: give 1 to 100");
    assert_eq!(error("parameters = { rate = nan }"), "test.lua:1: parameter \"rate\" = nan: give 1 to 100");
    assert_eq!(
        error("parameters = { rate = \"5\" }"),
        "test.lua:1: parameter \"rate\" is a string: give a number"
    );
    let unknown = "test.lua: does not know parameter \"colour\"; it knows list, on, rate";
    assert_eq!(error("parameters = { colour = 1 }"), unknown);
    let none = place.script("function decide(q) end", "parameters = { colour = 1 }").map(drop).unwrap_err();
    assert_eq!(none.to_string(), "test.lua: does not know parameter \"colour\": it has none");
    let error = place.script("parameter('file')", "").map(drop).unwrap_err().to_string();
    assert_eq!(error, "test.lua:1: parameter \"file\" is missing");
    // What the script itself says is held to its range, too, whatever the configuration gives.
    for (call, wanted) in [
        ("0/0, 0, 1", "its default is nan: give 0 to 1"),
        ("2, 0, 1", "its default is 2: give 0 to 1"),
        ("2, 0", "a range is two numbers"),
        ("2, nil, 3", "a range is two numbers"),
    ] {
        let script = format!("parameter('a', {call})\nfunction decide(q) end");
        let error = place.script(&script, "parameters = { a = 1 }").map(drop).unwrap_err().to_string();
        assert_eq!(error, format!("test.lua:1: parameter \"a\": {wanted}"));
    }
    let error = |section: &str| place.engine(section).map(drop).unwrap_err().to_string();
    assert!(error("").contains("give either a name or a file"));
    assert!(error("name = \"a\"\nfile = \"b\"").contains("give either a name or a file"));
    assert!(
        error("name = \"colour\"").contains("give one of allow-list, deny-list, source-authentication, aimd")
    );
    assert!(error("file = \"none.lua\"").contains("none.lua: "));
    assert_eq!(error("file = \"/dev/null\""), "/dev/null: not a file");
    assert_eq!(error("file = \"\""), "grantor.policy.file: \"\": give the name of a script");
}
