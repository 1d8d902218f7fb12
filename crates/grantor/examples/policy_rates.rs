//! How many questions a policy answers per second, batched and not:
//!
//! ```text
//! cargo run --release -p tidemill-grantor --features lua --example policy_rates
//! ```
//! `batched`: 64 questions of 64 flows in one call. `alone`: one question per call. `merged`: 64 questions of 8 flows. The last lines tell what the
//! choices are worth: a table of prefixes asked by `field` (a batch before the call) and by `get` (from the script); a table for each question
//! made by Rust and a call of Lua for each, which we do not do; and one step, which is what the interrupt costs.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_grantor::{Answer, Engine, Judge, Policy, PolicySection, Question, Surroundings};
use tidemill_wire::flow::Addresses;

/// The best of several rounds: others use this machine too.
const ROUNDS: u32 = 7;
const ROUND: Duration = Duration::from_millis(150);

type Failed = Box<dyn std::error::Error>;

fn questions(flows: u32, count: u32, from: u32) -> Vec<Question> {
    (0..count)
        .map(|n| {
            let src = (from + n % flows).wrapping_mul(0x9e37_79b1);
            let flow = Addresses::V4 { src, dst: 0xc633_6401 };
            let dscp = if n % 2 == 0 { 41 } else { 2 };
            let (tcp_flags, port) = if n % 2 == 0 { (2, 443) } else { (16, 443) };
            Question {
                protocol: 6,
                tcp_flags,
                dscp,
                destination_port: port,
                length: 60,
                bytes: 60,
                ..Question::about(flow)
            }
        })
        .collect()
}

/// Nanoseconds per question: `each` answers as many as it returns.
fn measure(mut each: impl FnMut(u64) -> usize) -> f64 {
    let mut best = f64::INFINITY;
    for round in 0..ROUNDS {
        let (began, mut asked, mut call) = (Instant::now(), 0, 0);
        while began.elapsed() < ROUND {
            asked += each(u64::from(round) << 32 | call);
            call += 1;
        }
        best = best.min(began.elapsed().as_secs_f64() * 1e9 / asked as f64);
    }
    best
}

fn rate(engine: &mut Engine, flows: u32, count: u32) -> f64 {
    // 64 batches of different flows in turn, so that maps hold 4096.
    let batches: Vec<Vec<Question>> = (0..64).map(|batch| questions(flows, count, batch * 64)).collect();
    let mut answers: Vec<Answer> = Vec::new();
    let ns = measure(|call| {
        let batch = &batches[call as usize % batches.len()];
        answers.clear();
        engine.decide(call * 1_000_000, batch, &mut answers);
        black_box(&answers).len()
    });
    let failed = engine.around().counts.shown().failures();
    assert_eq!(failed, 0, "a policy failed");
    ns
}

fn main() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut list = String::new();
    for n in 0..500_000u32 {
        let address = n.wrapping_mul(0x9e37_79b1) & 0xffff_ff00;
        writeln!(list, "{}/24 {}", std::net::Ipv4Addr::from(address), n % 60_000)?;
    }
    std::fs::write(folder.path().join("list.txt"), list)?;
    let scripts = [
        (
            "nothing",
            "local a = granted { rate = 1 } signature('source', 'destination') function decide(q) return a end",
        ),
        (
            "field",
            "local a = granted { rate = 1 } signature('source', 'destination') field('l', lpm('list.txt'), 'source') function decide(q) return a end",
        ),
        (
            "get",
            "local a = granted { rate = 1 } signature('source', 'destination') local l = lpm('list.txt') function decide(q) local x = l:get(q.source) return a end",
        ),
        (
            "map",
            "local a = granted { rate = 1 } signature('source', 'destination') local m = expiring { entries = 65536, idle = 60 } function decide(q) local x = m:get(q.source) m:set(q.source, 1) return a end",
        ),
        (
            "loop",
            "local a = granted { rate = 1 } signature('source', 'destination') function decide(q) for i = 1, 100 do end return a end",
        ),
    ];
    let shipped = [
        ("allow-list", "parameters = { file = \"list.txt\" }"),
        ("deny-list", "parameters = { file = \"list.txt\" }"),
        ("source-authentication", "parameters = { trials = 1000000 }"),
        ("aimd", ""),
        ("as-reputation", "parameters = { file = \"list.txt\" }"),
        ("web", ""),
        ("tcp-services", "parameters = { ports = [22, 443, \"8000-8080\"] }"),
    ];
    let engine = |section: &str| -> Result<Engine, Failed> {
        let section: PolicySection = toml::from_str(section)?;
        let began = Instant::now();
        let clock = move || began.elapsed().as_nanos() as u64;
        let log = |line: &str| eprintln!("{line}");
        let around = Surroundings::new(Arc::new(clock), Arc::new(log), 1);
        Ok(Engine::new(&Policy::open(&section, folder.path())?, &around, 0)?)
    };
    println!(
        "{:<24}{:>12}{:>12}{:>12}   thousand questions per second",
        "policy", "batched", "alone", "merged"
    );
    let line = |name: &str, section: &str| -> Result<(), Failed> {
        let mut per = [0.0; 3];
        for (per, (flows, count)) in per.iter_mut().zip([(64, 64), (1, 1), (8, 64)]) {
            *per = 1e6 / rate(&mut engine(section)?, flows, count);
        }
        println!("{name:<24}{:>12.0}{:>12.0}{:>12.0}", per[0], per[1], per[2]);
        Ok(())
    };
    for (name, more) in shipped {
        line(name, &format!("name = \"{name}\"\n{more}"))?;
    }
    for (name, text) in scripts {
        std::fs::write(folder.path().join(format!("{name}.lua")), text)?;
        line(&format!("script: {name}"), &format!("file = \"{name}.lua\""))?;
    }
    println!("{:<24}{:>12.0}", "call and table for each", 1e6 / by_hand()?);
    let hang = "function decide(q) while true do pcall(function() while true do end end) end end";
    std::fs::write(folder.path().join("hang.lua"), hang)?;
    for (name, section) in [
        ("web", "name = \"web\""),
        ("a script that hangs", "file = \"hang.lua\"\nsteps = 10000000\ntime_ms = 10000"),
    ] {
        let ns = worker(engine(section)?)?;
        println!("the packet worker's part, {name}: {ns:.0} ns per question");
    }
    Ok(())
}

/// Nanoseconds per question that asking and taking answers costs the packet worker, in bursts of 32; most are refused because the queue is full.
fn worker(engine: Engine) -> Result<f64, Failed> {
    let (mut judge, _handle) = Judge::thread(engine, 0, Arc::new(|| ()))?;
    let questions = questions(32, 32, 0);
    let began = Instant::now();
    Ok(measure(|_| {
        let now_ns = began.elapsed().as_nanos() as u64;
        for (ticket, question) in questions.iter().enumerate() {
            black_box(judge.ask(now_ns, ticket as u32, question));
        }
        judge.answers(now_ns, |_, answer| {
            black_box(answer);
        });
        questions.len()
    }))
}

/// A table with the same fields made by Rust for each question, and a call for each.
fn by_hand() -> Result<f64, Failed> {
    let lua = mlua::Lua::new();
    lua.set_interrupt(|_| Ok(mlua::VmState::Continue));
    let decide: mlua::Function =
        lua.load("local a = { kind = 'granted', a = 1 } return function(q) return a end").call(())?;
    let batch = questions(64, 64, 0);
    let ask = |q: &Question| -> mlua::Result<f64> {
        let Addresses::V4 { src, dst } = q.flow else { return Ok(0.0) };
        let table = lua.create_table_with_capacity(0, 12)?;
        table.raw_set("source", lua.create_string(src.to_be_bytes())?)?;
        table.raw_set("destination", lua.create_string(dst.to_be_bytes())?)?;
        for (name, value) in [
            ("protocol", f64::from(q.protocol)),
            ("dscp", q.dscp.into()),
            ("fragment", 0.0),
            ("tcp_flags", q.tcp_flags.into()),
            ("source_port", q.source_port.into()),
            ("destination_port", q.destination_port.into()),
            ("length", q.length.into()),
            ("packets", q.packets.into()),
            ("bytes", q.bytes as f64),
            ("now", 1.0),
        ] {
            table.raw_set(name, value)?;
        }
        decide.call::<mlua::Table>(table)?.raw_get("a")
    };
    let mut failed = None;
    let ns = measure(|_| {
        for question in &batch {
            if let Err(error) = ask(question) {
                failed = Some(error);
            }
        }
        batch.len()
    });
    failed.map_or(Ok(ns), |error| Err(error.into()))
}
