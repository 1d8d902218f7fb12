//! Any packets that ask, at any times, earlier ones than before too, put to the policies that come with Tidemill: what is asked about a packet is what its bytes say, every
//! question gets one answer, and none fails. And any answers: those of a script that gives back numbers of the question, against plain words about what is a decision.
//!
//! Input: which policy; then records: what to do with the time and which family, the outer code point, a length, the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tidemill_decision::Cookie;
use tidemill_grantor::{
    Decision, Engine, Failure, Fragment, Parameter, Policy, PolicySection, Question, Surroundings,
    question_of,
};
use tidemill_wire::flow::Addresses;
use tidemill_wire::{ipv4, ipv6};

/// The script of our own, by its number.
const OWN: usize = 7;
const START_NS: u64 = 1_700_000_000_000_000_000;

/// A policy's section; with little room, so that things are forgotten.
fn section(which: usize) -> PolicySection {
    let text = |name: &str, value: &str| (name.to_owned(), Parameter::Text(value.to_owned()));
    let number = |name: &str, value: f64| (name.to_owned(), Parameter::Number(value));
    let listed = text("file", "prefixes.txt");
    let (name, parameters) = match which {
        0 => ("allow-list", vec![listed, ("rates".to_owned(), Parameter::Switch(true))]),
        1 => ("deny-list", vec![listed]),
        2 => ("source-authentication", vec![number("sources", 8.0), number("trials", 2.0)]),
        3 => ("aimd", vec![number("flows", 8.0), number("targets", 8.0), number("capacity", 100.0)]),
        4 => {
            let small = [number("flows", 8.0), number("systems", 8.0)];
            ("as-reputation", [vec![listed, text("reported", "reported.txt")], small.to_vec()].concat())
        }
        5 => ("web", vec![text("servers", "prefixes.txt")]),
        6 => {
            let ports = vec![Parameter::Number(22.0), Parameter::Text("8000-8080".to_owned())];
            ("tcp-services", vec![("ports".to_owned(), Parameter::List(ports))])
        }
        _ => {
            return PolicySection {
                file: Some("answers.lua".to_owned()),
                batch: 4,
                ..PolicySection::default()
            };
        }
    };
    let (name, parameters) = (Some(name.to_owned()), parameters.into_iter().collect());
    PolicySection { name, parameters, batch: 4, ..PolicySection::default() }
}

/// All policies, read once.
fn policies() -> &'static [Arc<Policy>] {
    static POLICIES: OnceLock<Vec<Arc<Policy>>> = OnceLock::new();
    POLICIES.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
        (0..=OWN).map(|which| Policy::open(&section(which), &folder).expect("a policy")).collect()
    })
}

/// A packet whose lengths are right, whatever else is in it.
fn shaped(bytes: &[u8], v6: bool) -> Vec<u8> {
    let mut ip = bytes.to_vec();
    ip.resize(ip.len().max(if v6 { 40 } else { 20 }), 0);
    if v6 {
        ip[0] = 0x60 | ip[0] & 15;
        let payload = (ip.len() - 40) as u16;
        ip[4..6].copy_from_slice(&payload.to_be_bytes());
    } else {
        let words = (5 + usize::from(ip[0] & 15) % 11).min(ip.len() / 4);
        ip[0] = 0x40 | words as u8;
        let total = ip.len() as u16;
        ip[2..4].copy_from_slice(&total.to_be_bytes());
    }
    ip
}

/// What is asked is what the bytes say; of IPv6 with extension headers that is not read again.
fn is_right(ip: &[u8], dscp: u8, question: &Question) {
    let v6 = ip[0] >> 4 == 6;
    let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let address = |at: usize, len: usize| {
        ip[at..at + len].iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte))
    };
    let (flow, protocol, upper, fragment) = if v6 {
        (Addresses::V6 { src: address(8, 16), dst: address(24, 16) }, ip[6], 40, Fragment::No)
    } else {
        let fragment = match word(6) {
            flags if flags & 0x1fff != 0 => Fragment::Later,
            flags if flags & 0x2000 != 0 => Fragment::First,
            _ => Fragment::No,
        };
        let flow = Addresses::V4 { src: address(12, 4) as u32, dst: address(16, 4) as u32 };
        (flow, ip[9], usize::from(ip[0] & 15) * 4, fragment)
    };
    assert_eq!((question.flow, question.dscp), (flow, dscp));
    assert_eq!((question.packets, question.bytes), (1, ip.len() as u64));
    assert_eq!(usize::from(question.length), ip.len());
    if v6 && ![1, 6, 17, 58, 132].contains(&protocol) {
        return;
    }
    let has = |end: usize| fragment != Fragment::Later && upper + end <= ip.len();
    let port = |at: usize| if [6, 17, 132].contains(&protocol) && has(at + 2) { word(upper + at) } else { 0 };
    let flags = if protocol == 6 && has(14) { ip[upper + 13] } else { 0 };
    assert_eq!((question.protocol, question.fragment, question.tcp_flags), (protocol, fragment, flags));
    assert_eq!((question.source_port, question.destination_port), (port(0), port(2)));
}

/// What our own script's answer is, if it is one.
fn expected(question: &Question) -> Option<Decision> {
    const MOST: u32 = u32::MAX;
    let (numbers, source): ([f64; 4], Vec<u8>) = match question.flow {
        Addresses::V4 { src, .. } => {
            let ports = [question.source_port, question.destination_port].map(f64::from);
            let numbers = [ports[0], ports[1], question.dscp.into(), f64::from(question.fragment as u8)];
            (numbers, src.to_be_bytes().to_vec())
        }
        Addresses::V6 { src, dst } => {
            let [a, b] = doubles(src);
            let [c, d] = doubles(dst);
            ([a, b, c, d], src.to_be_bytes().to_vec())
        }
    };
    let whole = |at: usize, least: u32, most: u32| {
        let number = numbers[at];
        (number >= f64::from(least) && number <= f64::from(most)).then_some(number as u32)
    };
    let cookie = &source[..source.len().min(usize::from(question.source_port % 18))];
    Some(match question.protocol % 5 {
        0 => Decision::Granted {
            rate_kib_s: whole(0, 1, MOST)?,
            expire_s: whole(1, 1, MOST)?,
            renew_ms: whole(2, 0, MOST)?,
            step_ms: whole(3, 0, MOST)?,
            direct: question.dscp % 4 >= 2,
        },
        1 => Decision::Declined { expire_s: whole(0, 1, MOST)? },
        2 => Decision::Program {
            expire_s: whole(0, 1, MOST)?,
            program: whole(1, 0, 255)? as u8,
            cookie: Cookie::new(cookie)?,
        },
        3 => Decision::None,
        _ => return None,
    })
}

/// The two numbers that an address's bytes are.
fn doubles(address: u128) -> [f64; 2] {
    let bytes = address.to_be_bytes();
    [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        f64::from_le_bytes(word)
    })
}

/// Asks; the questions are spent.
fn put(engine: &mut Engine, which: usize, now_ns: u64, questions: &mut Vec<Question>) {
    let mut answers = Vec::new();
    engine.decide(now_ns, questions, &mut answers);
    assert_eq!(answers.len(), questions.len());
    for (question, answer) in questions.drain(..).zip(answers) {
        if which == OWN {
            match expected(&question) {
                Some(decision) => {
                    assert_eq!((answer.decision, answer.failure), (decision, None), "{question:?}");
                    assert_eq!(answer.forward, question.dscp % 2 == 1, "{question:?}");
                }
                None => assert_eq!(answer.failure, Some(Failure::WrongAnswer), "{question:?}"),
            }
            continue;
        }
        assert_eq!(answer.failure, None, "{question:?}");
        match answer.decision {
            Decision::Granted { .. } => assert!(answer.forward),
            Decision::None | Decision::Declined { .. } => assert!(!answer.forward),
            Decision::Program { program, .. } => assert_eq!(usize::from(program), which - 2),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, mut rest)) = data.split_first() else { return };
    let which = usize::from(which) % (OWN + 1);
    // What the others say is a finding.
    let log = move |line: &str| {
        if which != OWN {
            eprintln!("{line}");
        }
    };
    let around = Surroundings::new(Arc::new(|| 0), Arc::new(log), 1);
    let mut engine = Engine::new(&policies()[which], &around, 0).expect("it loads");
    let (mut now_ns, mut questions) = (START_NS, Vec::new());
    while let Some((&[how, dscp, len], bytes)) = rest.split_first_chunk() {
        let (bytes, next) = bytes.split_at(usize::from(len).min(bytes.len()));
        rest = next;
        if how & 1 != 0 {
            put(&mut engine, which, now_ns, &mut questions);
            let step_ns = 1_000_000_u64 << (how >> 3);
            now_ns =
                if how & 4 == 0 { now_ns.saturating_add(step_ns) } else { now_ns.saturating_sub(step_ns) };
        }
        let (v6, dscp) = (how & 2 != 0, dscp & 63);
        let ip = shaped(bytes, v6);
        assert!(if v6 { ipv6::check(&ip) } else { ipv4::check(&ip) }.is_ok());
        let question = question_of(&ip, dscp);
        is_right(&ip, dscp, &question);
        questions.push(question);
    }
    put(&mut engine, which, now_ns, &mut questions);
});
