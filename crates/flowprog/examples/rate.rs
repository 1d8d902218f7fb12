//! What a packet costs: a program of 30 instructions and the shipped ones, by machine code and by the interpreter; the first by rbpf as well. And what the
//! slowest program that is accepted costs.
//!
//! ```text
//! cargo run --release -p tidemill-flowprog --example rate
//! ```
//!
//! 4,096 flows take turns, each with its own cookie (256 KiB); packets are TCP segments to port 443, IPv4. "all" is what a caller pays: the context made
//! from the packet, the run, what it says. "run" has the context ready. The best of 30 rounds; the whole is repeated so that a drift shows.
//!
//! This file is one of the named homes of `unsafe`: rbpf's machine code is called here, to compare with.

use std::hint::black_box;
use std::time::Instant;
use tidemill_flowprog::cookie::{Granted, TcpServices, TwoLimits};
use tidemill_flowprog::shipped::SHIPPED;
use tidemill_flowprog::{Context, Cookie, Function, LoadError, Program, Ruling};

const FLOWS: usize = 4096;
const ROUNDS: usize = 30;
const PACKETS: usize = FLOWS * 16;

fn slot(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    let (o, i) = (off.to_le_bytes(), imm.to_le_bytes());
    [opcode, src << 4 | dst, o[0], o[1], i[0], i[1], i[2], i[3]]
}

/// Nothing, successfully.
fn init() -> Vec<u8> {
    [slot(0xb7, 0, 0, 0, 0), slot(0x95, 0, 0, 0, 0)].concat()
}

/// 30 instructions and the exit: a check of the packet's length, a port, flags, a bucket and a counter in the cookie.
fn thirty() -> Vec<u8> {
    [
        slot(0x79, 6, 1, 0, 0),
        slot(0x79, 3, 1, 24, 0),
        slot(0x79, 4, 1, 32, 0),
        slot(0xbf, 5, 3, 0, 0),
        slot(0x07, 5, 0, 0, 20),
        slot(0xb7, 0, 0, 0, 0),
        slot(0x2d, 5, 4, 23, 0),
        slot(0x69, 7, 3, 2, 0),
        slot(0xdc, 7, 0, 0, 16),
        slot(0x55, 7, 0, 20, 443),
        slot(0x71, 8, 3, 13, 0),
        slot(0x57, 8, 0, 0, 0x12),
        slot(0x79, 9, 2, 0, 0),
        slot(0x1f, 9, 6, 0, 0),
        slot(0x65, 9, 0, 1, 0),
        slot(0xb7, 9, 0, 0, 0),
        slot(0x79, 3, 2, 24, 0),
        slot(0x61, 4, 1, 40, 0),
        slot(0x2f, 3, 4, 0, 0),
        slot(0x07, 3, 0, 0, 1023),
        slot(0x77, 3, 0, 0, 10),
        slot(0x0f, 9, 3, 0, 0),
        slot(0xb7, 5, 0, 0, 1_000_000_000),
        slot(0x2d, 9, 5, 6, 0),
        slot(0x0f, 9, 6, 0, 0),
        slot(0x7b, 2, 9, 0, 0),
        slot(0x79, 4, 2, 16, 0),
        slot(0x07, 4, 0, 0, 1),
        slot(0x7b, 2, 4, 16, 0),
        slot(0xb7, 0, 0, 0, 1),
        slot(0x95, 0, 0, 0, 0),
    ]
    .concat()
}

/// As many divisions as fit, each of the largest number by 1, which the cookie has.
fn slowest() -> Vec<u8> {
    let mut code = vec![slot(0x79, 4, 2, 0, 0), slot(0xb7, 3, 0, 0, -1)];
    code.resize(1022, slot(0x3f, 3, 4, 0, 0));
    code.extend([slot(0xbf, 0, 3, 0, 0), slot(0x95, 0, 0, 0, 0)]);
    code.concat()
}

/// A TCP segment over IPv4.
fn packet() -> Vec<u8> {
    let mut packet = vec![0; 40 + 24];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&64_u16.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 6]);
    packet[22..24].copy_from_slice(&443_u16.to_be_bytes());
    packet[33] = 0x10;
    packet
}

/// The best time per packet, ns.
fn best(mut run: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed().as_nanos() as f64 / PACKETS as f64
        })
        .fold(f64::INFINITY, f64::min)
}

struct Times {
    all: f64,
    run: f64,
}

fn measure(program: &Program, cookies: &mut [Cookie], bytes: &[u8]) -> Times {
    let mut now = 1_000_000_000;
    let mut granted = 0_u64;
    let all = best(|| {
        for at in 0..PACKETS {
            now += 100_000;
            let context = Context::packet(black_box(now), u64::MAX, black_box(bytes));
            let ruling = program.packet(&context, &mut cookies[at % FLOWS]);
            granted += u64::from(matches!(ruling, Ruling::Granted { .. }));
        }
    });
    let context = Context::packet(now, u64::MAX, bytes);
    let run = best(|| {
        for at in 0..PACKETS {
            let ruling = program.packet(black_box(&context), &mut cookies[at % FLOWS]);
            granted += u64::from(matches!(ruling, Ruling::Granted { .. }));
        }
    });
    black_box(granted);
    Times { all, run }
}

/// The same program by rbpf: r1 leads to context and cookie, one behind the other, and two instructions more make r2 of it.
fn rbpf(code: &[u8], bytes: &[u8]) -> Result<[f64; 2], rbpf::lib::Error> {
    let code = [&slot(0xbf, 2, 1, 0, 0)[..], &slot(0x07, 2, 0, 0, 56), code].concat();
    let mut memory = [0_u64; (56 + 64) / 8];
    let begin = bytes.as_ptr().addr() as u64;
    (memory[0], memory[2], memory[3]) = (1_000_000_000, begin, begin + 20);
    (memory[4], memory[5]) = (begin + bytes.len() as u64, bytes.len() as u64);
    let pointer: *mut [u8] = std::ptr::slice_from_raw_parts_mut(memory.as_mut_ptr().cast(), 120);
    let mut vm = rbpf::EbpfVmRaw::new(Some(&code))?;
    vm.register_allowed_memory(begin..begin + bytes.len() as u64);
    let mut values = 0;
    let interpreter = best(|| {
        for _ in 0..PACKETS {
            // SAFETY: nothing else leads to `memory` while it is borrowed here.
            let memory = unsafe { &mut *black_box(pointer) };
            values += vm.execute_program(memory).unwrap_or(0);
        }
    });
    vm.jit_compile()?;
    let jit = best(|| {
        for _ in 0..PACKETS {
            // SAFETY: as above; and our verifier has accepted the program.
            values += unsafe { vm.execute_program_jit(&mut *black_box(pointer)) }.unwrap_or(0);
        }
    });
    black_box(values);
    Ok([interpreter, jit])
}

/// The shipped programs' cookies: rates that are never reached.
fn brought(name: &str) -> tidemill_flowprog::cookie::Brought {
    let limits = TwoLimits {
        primary_kib_s: 1 << 30,
        secondary_kib_s: 1 << 30,
        renew_ms: u32::MAX,
        step_ms: 1000,
        direct: true,
    };
    match name {
        "granted" => Granted { rate_kib_s: 1 << 30, renew_ms: u32::MAX, step_ms: 1000 }.brought(),
        "tcp-services" => {
            let none = (0, 0);
            TcpServices { limits, ports: [none, none, none, none, none, (443, 443)] }.brought()
        }
        _ => limits.brought(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = packet();
    for repeat in 0..2 {
        println!("{}ns per packet:          all    run", if repeat == 0 { "" } else { "\n" });
        let line = |name: &str, times: Times| println!("{name:22} {:6.1} {:6.1}", times.all, times.run);
        let load = || Program::from_code(&init(), &thirty(), "thirty");
        line("30, machine code", measure(&load()?, &mut [Cookie::default(); FLOWS], &bytes));
        line("30, interpreter", measure(&load()?.interpreted(), &mut [Cookie::default(); FLOWS], &bytes));
        match rbpf(&thirty(), &bytes) {
            Ok([interpreter, jit]) => {
                println!(
                    "30, rbpf's JIT                {jit:6.1}\n30, rbpf's interpreter        {interpreter:6.1}"
                );
            }
            Err(error) => println!("30, rbpf: {error}"),
        }
        for shipped in &SHIPPED {
            let program = shipped.load()?;
            let brought = brought(shipped.name);
            let mut cookies = [brought.cookie; FLOWS];
            for cookie in &mut cookies {
                if !program.init(&Context::decision(0, u64::MAX, brought.len), cookie) {
                    return Err(format!("{}: its own cookie is refused", shipped.name).into());
                }
            }
            let name = format!("{}, {}", shipped.name, program.instructions(Function::Pkt));
            line(&name, measure(&program, &mut cookies, &bytes));
        }
    }
    Ok(longest(&bytes)?)
}

/// How long the slowest program runs.
fn longest(bytes: &[u8]) -> Result<(), LoadError> {
    let program = Program::from_code(&init(), &slowest(), "slowest")?;
    let mut cookie = Cookie::default();
    cookie.0[0] = 1;
    let context = Context::packet(0, 0, bytes);
    for (name, program) in [("machine code", &program), ("interpreter", &slow_interpreted()?)] {
        let mut slowest = std::time::Duration::ZERO;
        let mut fastest = std::time::Duration::MAX;
        for _ in 0..1000 {
            let begin = Instant::now();
            black_box(program.packet(black_box(&context), black_box(&mut cookie)));
            let took = begin.elapsed();
            (slowest, fastest) = (slowest.max(took), fastest.min(took));
        }
        println!("1,020 divisions, {name}: {fastest:?}, {slowest:?} at most of 1,000 runs");
    }
    Ok(())
}

fn slow_interpreted() -> Result<Program, LoadError> {
    Ok(Program::from_code(&init(), &slowest(), "slowest")?.interpreted())
}
