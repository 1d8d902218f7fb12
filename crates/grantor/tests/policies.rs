//! The policies that come with Tidemill, run through the engine.

#![cfg(feature = "lua")]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Place, decide, question};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_grantor::policy::SHIPPED;
use tidemill_grantor::{Answer, Decision, Engine, Fragment, Question};
use tidemill_wire::flow::Addresses;

const S: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn ask(place: &Place, engine: &mut Engine, now_ns: u64, question: &Question) -> Answer {
    let answer = decide(engine, now_ns, &[*question])[0];
    assert_eq!(answer.failure, None, "{:?}", place.lines());
    answer
}

fn granted(answer: &Answer) -> Option<u32> {
    match answer.decision {
        Decision::Granted { rate_kib_s, .. } => Some(rate_kib_s),
        _ => None,
    }
}

fn declined(answer: &Answer) -> Option<u32> {
    match answer.decision {
        Decision::Declined { expire_s } => Some(expire_s),
        _ => None,
    }
}

fn from(source: [u8; 4]) -> Question {
    let (src, dst) = (u32::from_be_bytes(source), 0xc633_6401);
    Question { flow: Addresses::V4 { src, dst }, ..question(0) }
}

fn from6(source: u128) -> Question {
    Question { flow: Addresses::V6 { src: source, dst: 1 }, ..question(0) }
}

#[test]
fn each_begins_with_its_manual_and_names_its_parameters_there() {
    for (name, text) in SHIPPED {
        assert!(text.starts_with(&format!("-- {name}: ")), "{name}");
        let page: String = text.lines().take_while(|line| line.starts_with("--")).collect();
        let code: Vec<&str> = text.lines().skip_while(|line| line.starts_with("--")).collect();
        for part in code.iter().flat_map(|line| line.split("parameter(\"").skip(1)) {
            let parameter = part.split('"').next().unwrap();
            assert!(page.contains(parameter), "{name} does not tell of {parameter}");
        }
        assert!(
            page.contains("What it does not do")
                || page.contains("does not show")
                || page.contains("All else")
        );
    }
}

#[test]
fn allow_list() {
    let place = Place::default();
    place.file("allow.txt", "192.0.2.0/24\n2001:db8::/32\n");
    let more =
        "name = \"allow-list\"\nparameters = { file = \"allow.txt\", rate = 500, expire = 40, decline = 9 }";
    let mut engine = place.engine(more).unwrap();
    let mut answer = |question: &Question| ask(&place, &mut engine, 0, question);
    let (renew_ms, step_ms) = (30_000, 1000);
    let expected = Decision::Granted { rate_kib_s: 500, expire_s: 40, renew_ms, step_ms, direct: false };
    let inside = answer(&from([192, 0, 2, 200]));
    assert_eq!((inside.decision, inside.forward), (expected, true));
    assert_eq!(answer(&from6(0x2001_0db8 << 96 | 5)).decision, expected);
    let outside = answer(&from([192, 0, 3, 1]));
    assert_eq!((outside.decision, outside.forward), (Decision::Declined { expire_s: 9 }, false));
    assert_eq!(declined(&answer(&from6(5))), Some(9));
    // With rates in the file; 0 takes a part out.
    place.file("rates.txt", "192.0.2.0/24 70\n192.0.2.128/25 0\n");
    let more = "name = \"allow-list\"\nparameters = { file = \"rates.txt\", rates = true }";
    let mut engine = place.engine(more).unwrap();
    assert_eq!(granted(&ask(&place, &mut engine, 0, &from([192, 0, 2, 1]))), Some(70));
    assert_eq!(declined(&ask(&place, &mut engine, 0, &from([192, 0, 2, 129]))), Some(60));
    let error = place.engine("name = \"allow-list\"").map(drop).unwrap_err().to_string();
    assert!(error.starts_with("allow-list.lua:") && error.contains("\"file\" is missing"), "{error}");
}

#[test]
fn deny_list() {
    let place = Place::default();
    place.file("deny.txt", "192.0.2.0/24\n198.18.0.0/15\n2001:db8:bad::/48\n");
    let more = "name = \"deny-list\"\nparameters = { file = \"deny.txt\", rate = 250 }";
    let mut engine = place.engine(more).unwrap();
    let questions = [
        from([192, 0, 2, 1]),
        from([192, 0, 3, 1]),
        from([198, 19, 255, 255]),
        from6(0x2001_0db8_0bad << 80 | 1),
        from6(0x2001_0db8_0bae << 80 | 1),
    ];
    let answers = decide(&mut engine, 0, &questions);
    let rates: Vec<_> = answers.iter().map(granted).collect();
    assert_eq!(rates, [None, Some(250), None, None, Some(250)]);
    assert_eq!(declined(&answers[0]), Some(600));
    assert!(!answers[0].forward && answers[1].forward);
}

#[test]
fn source_authentication() {
    let place = Place::default();
    let more = "name = \"source-authentication\"\n\
                parameters = { rate = 900, trial = 3, seconds = 5, wait = 20, trials = 10, decline = 30 }";
    let mut engine = place.engine(more).unwrap();
    let packet = |source: u8, flags: u8, dscp: u8| Question { tcp_flags: flags, dscp, ..question(source) };
    let mut at = |now_ns, question: &Question| ask(&place, &mut engine, now_ns, question);
    // As a client does it: SYN, then a segment of the open connection, which is renewal's.
    let trial = at(0, &packet(1, SYN, 41));
    let (renew_ms, step_ms) = (20, 20);
    let expected = Decision::Granted { rate_kib_s: 3, expire_s: 5, renew_ms, step_ms, direct: false };
    assert_eq!((trial.decision, trial.forward), (expected, true));
    assert_eq!(granted(&at(10 * MS, &packet(1, ACK, 2))), Some(3), "too early");
    assert_eq!(granted(&at(25 * MS, &packet(1, ACK | 0x08, 2))), Some(900));
    assert_eq!(granted(&at(200 * S, &packet(1, ACK, 2))), Some(900), "renewed");
    assert_eq!(granted(&at(201 * S, &packet(1, SYN, 41))), Some(900), "another connection");
    // Who begins with an ACK, or sends SYNs only, or SYN and ACK at once, gets no further.
    assert_eq!(declined(&at(0, &packet(2, ACK, 41))), Some(30));
    assert_eq!(granted(&at(0, &packet(3, SYN, 41))), Some(3));
    for n in 1..50 {
        let answer = at(n * 100 * MS, &packet(3, SYN, 2));
        assert_eq!(granted(&answer), Some(3), "{n}");
    }
    assert_eq!(declined(&at(0, &packet(4, SYN | ACK, 41))), Some(30));
    let later = Question { fragment: Fragment::Later, ..packet(5, 0, 41) };
    assert_eq!(declined(&at(0, &later)), Some(30));
    // What is not TCP.
    assert_eq!(declined(&at(0, &Question { protocol: 17, ..packet(6, 0, 41) })), Some(30));
    // A flood of made-up sources gets ten trials a second; the others stay undecided.
    let mut trials = 0;
    for n in 0..1000u64 {
        let made_up = Question { tcp_flags: SYN, ..from([10, 0, (n >> 8) as u8, n as u8]) };
        let answer = at(300 * S + n * MS, &made_up);
        match granted(&answer) {
            Some(rate) => trials += u32::from(rate == 3),
            None => assert_eq!((answer.decision, answer.forward), (Decision::None, false)),
        }
    }
    assert!((10..=20).contains(&trials), "{trials} trials in a second");
}

#[test]
fn aimd() {
    let place = Place::default();
    let more = "name = \"aimd\"\nparameters = { capacity = 1000, start = 100, step = 50, factor = 0.5, expire = 20 }";
    let mut engine = place.engine(more).unwrap();
    let renewal = |source: u8| Question { dscp: 2, ..question(source) };
    // Alone it rises by a step with each round of 15 seconds.
    for round in 0..10u64 {
        let answer = ask(&place, &mut engine, round * 15 * S, &renewal(1));
        assert_eq!(granted(&answer), Some(100 + 50 * round as u32));
        let Decision::Granted { expire_s: 20, renew_ms: 15_000, .. } = answer.decision else {
            panic!("{answer:?}");
        };
        // Asked again before the answer is there: nothing new.
        assert_eq!(granted(&ask(&place, &mut engine, round * 15 * S + S, &renewal(1))), granted(&answer));
    }
    // Nine more flows come: together they are held around the capacity, and come to about equal rates.
    let mut rates = [0u32; 10];
    let (mut sums, mut ratio) = (Vec::new(), 0.0);
    for round in 10..200u64 {
        let questions: Vec<Question> = (1..=10).map(renewal).collect();
        let answers = decide(&mut engine, round * 15 * S, &questions);
        for (rate, answer) in rates.iter_mut().zip(&answers) {
            *rate = granted(answer).unwrap();
        }
        if round >= 100 {
            sums.push(rates.iter().sum::<u32>());
            ratio = f64::from(*rates.iter().max().unwrap()) / f64::from(*rates.iter().min().unwrap());
        }
    }
    let mean = sums.iter().sum::<u32>() / sums.len() as u32;
    assert!((500..=1500).contains(&mean), "{mean} of 1000: {sums:?}");
    assert!(*sums.iter().max().unwrap() <= 2100, "{sums:?}");
    assert!(ratio < 2.0, "{rates:?}");
    // Another destination has its own.
    let other = Question { flow: Addresses::V4 { src: 1, dst: 2 }, ..renewal(0) };
    assert_eq!(granted(&ask(&place, &mut engine, 3000 * S, &other)), Some(100));
    // A flow that has been away for long begins anew.
    assert_eq!(granted(&ask(&place, &mut engine, 9000 * S, &renewal(1))), Some(100));
    // Sources that are made up, far more than there is room for, ask once each: nobody's rate is cut.
    let mut engine = place.engine(more).unwrap();
    ask(&place, &mut engine, 0, &renewal(1));
    for src in 1..=200 {
        let made_up = Question { flow: Addresses::V4 { src, dst: 0xc633_6401 }, ..question(0) };
        assert_eq!(granted(&ask(&place, &mut engine, S, &made_up)), Some(100));
    }
    assert_eq!(granted(&ask(&place, &mut engine, 15 * S, &renewal(1))), Some(150));
}

/// As after a revocation, where all ask once more.
#[test]
fn aimd_counts_a_flow_once_in_a_round() {
    let place = Place::default();
    let more =
        "name = \"aimd\"\nparameters = { capacity = 1000, start = 90, step = 0, factor = 0.5, expire = 20 }";
    let mut engine = place.engine(more).unwrap();
    let questions: Vec<Question> = (1..=10).map(question).collect();
    for now_s in [0, 15, 15 + 8, 30, 30 + 8, 45] {
        let answers = decide(&mut engine, now_s * S, &questions);
        let rates: Vec<Option<u32>> = answers.iter().map(granted).collect();
        assert_eq!(rates, [Some(90); 10], "at {now_s} s");
    }
}

#[test]
fn as_reputation() {
    let place = Place::default();
    place.file("origins.txt", "10.0.0.0/8 64500\n172.16.0.0/12 64501\n192.0.2.0/24 4200000000\n");
    place.file("reported.txt", "172.16.9.0/24\n");
    let more = "name = \"as-reputation\"\nparameters = { file = \"origins.txt\", reported = \"reported.txt\", rate = 1000, \
                half_life = 100, decline = 5 }";
    let mut engine = place.engine(more).unwrap();
    let mut at = |now_ns, source, dscp| ask(&place, &mut engine, now_ns, &Question { dscp, ..from(source) });
    // At first all are seen as the prior says: 8 of 10, less the one that has asked and not come back yet.
    assert_eq!(granted(&at(0, [192, 0, 2, 1], 41)), Some(1000 * 8 / 11));
    // It renews: 9 of 11.
    assert_eq!(granted(&at(S / 1000, [192, 0, 2, 1], 2)), Some(818));
    // A flood of made-up sources from one system: it sinks, and is declined below a fifth.
    let mut rates = Vec::new();
    for n in 0..100u8 {
        rates.push(granted(&at(u64::from(n) * MS, [10, 0, 0, n], 41)));
    }
    assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]), "{rates:?}");
    assert_eq!(rates.iter().position(Option::is_none), Some(30), "8 of 41 is below a fifth: {rates:?}");
    assert_eq!(declined(&at(S, [10, 255, 0, 1], 41)), Some(5), "whoever else is there too");
    // The others keep theirs, also those without a system.
    assert!(granted(&at(S, [192, 0, 2, 2], 41)).unwrap() > 700);
    assert!(granted(&at(S, [8, 8, 8, 8], 41)).unwrap() > 700);
    // Reported sources are declined at once, and pull their system down.
    let before = granted(&at(2 * S, [172, 16, 1, 1], 41)).unwrap();
    for n in 0..20 {
        assert_eq!(declined(&at(2 * S, [172, 16, 9, n], 41)), Some(5));
    }
    let after = granted(&at(2 * S, [172, 16, 1, 2], 41));
    assert!(after.unwrap_or(0) < before / 2, "{before} then {after:?}");
    // Those that were declined had no chance to come back, and are no mark against it: a fifth of a half-life later somebody may try.
    assert!(granted(&at(20 * S, [10, 254, 0, 1], 41)).is_some());
    // Time heals: after ten half-lives the flood is forgotten but for a thousandth.
    assert!(granted(&at(1100 * S, [10, 1, 1, 1], 41)).unwrap() > 700);
}

/// What was remembered of a time to come neither stops a policy until that comes, nor makes its numbers none.
#[test]
fn a_clock_that_is_set_back_stops_no_policy() {
    let place = Place::default();
    let more =
        "name = \"source-authentication\"\nparameters = { rate = 900, trial = 3, wait = 20, trials = 10 }";
    let mut engine = place.engine(more).unwrap();
    let mut at = |now_ns, source, tcp_flags| {
        granted(&ask(&place, &mut engine, now_ns, &Question { tcp_flags, ..question(source) }))
    };
    assert_eq!(at(1000 * S, 1, SYN), Some(3));
    assert_eq!(at(10 * S, 2, SYN), Some(3));
    assert_eq!(at(10 * S, 1, SYN), Some(3));
    assert_eq!(at(11 * S, 1, ACK), Some(900));
    let mut engine = place.engine("name = \"aimd\"\nparameters = { start = 100, step = 50 }").unwrap();
    let mut at = |now_ns| granted(&ask(&place, &mut engine, now_ns, &question(1)));
    assert_eq!([at(1000 * S), at(10 * S), at(25 * S)], [Some(100), Some(150), Some(200)]);
    place.file("origins.txt", "192.0.2.0/24 1\n");
    let more =
        "name = \"as-reputation\"\nparameters = { file = \"origins.txt\", rate = 1000, half_life = 1 }";
    let mut engine = place.engine(more).unwrap();
    let mut at = |now_ns, source| granted(&ask(&place, &mut engine, now_ns, &question(source)));
    assert_eq!([at(10_000 * S, 1), at(S, 2)], [Some(1000 * 8 / 11), Some(1000 * 8 / 12)]);
}

#[test]
fn web() {
    let place = Place::default();
    place.file("servers.txt", "198.51.100.0/24\n");
    let more = "name = \"web\"\nparameters = { servers = \"servers.txt\", rate = 2000, secondary = 90, expire = 100, direct = true }";
    let mut engine = place.engine(more).unwrap();
    let mut answer = |question: &Question| ask(&place, &mut engine, 0, question);
    let http = answer(&question(1));
    let Decision::Program { expire_s: 100, program: 3, cookie } = http.decision else { panic!("{http:?}") };
    let word = |at: usize| u32::from_le_bytes(cookie.bytes()[at..at + 4].try_into().unwrap());
    assert_eq!([word(0), word(4), word(8), word(12), word(16)], [2000, 90, 75_000, 1000, 1]);
    assert!(http.forward);
    for question in [
        Question { destination_port: 443, ..question(1) },
        Question { protocol: 1, destination_port: 0, ..question(1) },
        Question { fragment: Fragment::Later, destination_port: 0, ..question(1) },
    ] {
        assert_eq!(declined(&answer(&question)), None, "{question:?}");
    }
    // What is not the web's is dropped; the client, who may go on by TCP, gets the program.
    for question in [
        Question { destination_port: 22, ..question(1) },
        Question { protocol: 17, destination_port: 443, ..question(1) },
    ] {
        let stopped = answer(&question);
        assert_eq!((stopped.decision, stopped.forward), (http.decision, false), "{question:?}");
    }
    let refused = answer(&Question { flow: Addresses::V4 { src: 1, dst: 2 }, ..question(1) });
    assert_eq!((declined(&refused), refused.forward), (Some(60), false));
}

#[test]
fn tcp_services() {
    let place = Place::default();
    let more = "name = \"tcp-services\"\nparameters = { ports = [22, \"8000-8080\"], rate = 400, index = 9 }";
    let mut engine = place.engine(more).unwrap();
    let mut to = |port| ask(&place, &mut engine, 0, &Question { destination_port: port, ..question(1) });
    let ssh = to(22);
    let Decision::Program { expire_s: 300, program: 9, cookie } = ssh.decision else { panic!("{ssh:?}") };
    assert_eq!(cookie.bytes().len(), 64);
    assert_eq!(cookie.bytes()[40..48], [22, 0, 22, 0, 0x40, 0x1f, 0x90, 0x1f]);
    for (port, allowed) in
        [(8000, true), (8080, true), (7999, false), (8081, false), (21, false), (23, false)]
    {
        let answer = to(port);
        assert_eq!((answer.decision, answer.forward), (ssh.decision, allowed), "{port}");
    }
    let later = Question { fragment: Fragment::Later, destination_port: 0, ..question(1) };
    assert_eq!(declined(&ask(&place, &mut engine, 0, &later)), None);
    let udp = Question { protocol: 17, destination_port: 22, ..question(1) };
    let udp = ask(&place, &mut engine, 0, &udp);
    assert_eq!((udp.decision, udp.forward), (ssh.decision, false));
    // Where the servers are given, nobody else is one.
    place.file("servers.txt", "203.0.113.0/24\n");
    let more = "name = \"tcp-services\"\nparameters = { ports = [22], servers = \"servers.txt\" }";
    let mut strict = place.engine(more).unwrap();
    let elsewhere = Question { destination_port: 22, ..question(1) };
    assert_eq!(declined(&ask(&place, &mut strict, 0, &elsewhere)), Some(60));
    let error = |ports: &str| {
        let more = format!("name = \"tcp-services\"\nparameters = {{ ports = {ports} }}");
        place.engine(&more).map(drop).unwrap_err().to_string()
    };
    assert!(error("[]").contains("1 to 6 ports"), "{}", error("[]"));
    assert!(error("[\"9-8\"]").contains("tcp-services.lua:"));
    assert!(error("[1, 2, 3, 4, 5, 6, 7]").contains("1 to 6 ports"));
}

/// The same questions over IPv4 and IPv6, to engines that begin alike: each policy answers both alike.
#[test]
fn both_families_are_judged_alike() {
    const NETS: [u128; 2] = [0x2001_0db8_0001 << 80, 0x2001_0db8_0002 << 80];
    let place = Place::default();
    let file = |name: &str, net: u128, prefixes: &[(u32, u32, u32)]| {
        let line = |(address, len, value): &(u32, u32, u32)| {
            let (four, six) = (Ipv4Addr::from(*address), Ipv6Addr::from(net | u128::from(*address)));
            format!("{four}/{len} {value}\n{six}/{} {value}\n", 96 + len)
        };
        place.file(name, &prefixes.iter().map(line).collect::<String>());
    };
    file("sources.txt", NETS[0], &[(0xc000_0200, 24, 64_500), (0x0a00_0000, 8, 64_501)]);
    file("servers.txt", NETS[1], &[(0xc633_6400, 24, 1)]);
    for (name, parameters) in [
        ("allow-list", "file = \"sources.txt\""),
        ("deny-list", "file = \"sources.txt\""),
        ("source-authentication", "trial = 3, others = 5"),
        ("aimd", "capacity = 300"),
        ("as-reputation", "file = \"sources.txt\", half_life = 100"),
        ("web", "servers = \"servers.txt\""),
        ("tcp-services", "ports = [22, \"80-8080\"], servers = \"servers.txt\""),
    ] {
        let engine = || place.engine(&format!("name = \"{name}\"\nparameters = {{ {parameters} }}")).unwrap();
        let (mut four, mut six, mut random) = (engine(), engine(), StdRng::seed_from_u64(1));
        let (mut now_ns, mut answers) = (0, Vec::new());
        for _ in 0..500 {
            now_ns += random.random_range(0..5 * S);
            let src = [0xc000_0201, 0xc000_0202, 0x0a01_0203, 0x0808_0808][random.random_range(0..4)];
            let dst = [0xc633_6401, 0xc633_6402, 0xcb00_7101][random.random_range(0..3)];
            let icmp = random.random_bool(0.1);
            let about = Question {
                flow: Addresses::V4 { src, dst },
                protocol: if icmp { 1 } else { [6, 6, 6, 17][random.random_range(0..4)] },
                tcp_flags: [SYN, ACK, SYN | ACK][random.random_range(0..3)],
                dscp: [2, 41][random.random_range(0..2)],
                fragment: [Fragment::No, Fragment::Later][usize::from(random.random_bool(0.1))],
                destination_port: [22, 80, 443, 9000][random.random_range(0..4)],
                ..question(0)
            };
            let flow = Addresses::V6 { src: NETS[0] | u128::from(src), dst: NETS[1] | u128::from(dst) };
            let other = Question { flow, protocol: if icmp { 58 } else { about.protocol }, ..about };
            let answer = ask(&place, &mut four, now_ns, &about);
            assert_eq!(ask(&place, &mut six, now_ns, &other), answer, "{name}: {about:?}");
            if !answers.contains(&answer) {
                answers.push(answer);
            }
        }
        assert!(answers.len() >= 2, "{name} tells nobody apart: {answers:?}");
    }
}

#[test]
fn a_file_of_ones_own_overrides_a_shipped_one() {
    let place = Place::default();
    let (_, text) = SHIPPED.iter().find(|(name, _)| *name == "deny-list").unwrap();
    place.file("deny.txt", "192.0.2.0/24\n");
    place.file("mine.lua", &text.replace("if q.listed then", "if not q.listed then"));
    let mut engine = place.engine("file = \"mine.lua\"\nparameters = { file = \"deny.txt\" }").unwrap();
    assert_eq!(granted(&ask(&place, &mut engine, 0, &from([192, 0, 2, 1]))), Some(1024));
    assert_eq!(declined(&ask(&place, &mut engine, 0, &from([192, 0, 3, 1]))), Some(600));
}
