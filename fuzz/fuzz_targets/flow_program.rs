//! Any bytes as a flow program: an ELF object, instructions as they come, or instructions shaped so that many are accepted. Loading never
//! panics. What is accepted never trips a check of the interpreter, and does the same by machine code.
#![no_main]

use tidemill_flowprog::{Context, Cookie, Function, Program};

/// Opcodes that there are, the frequent ones more than once.
const OPCODES: &[u8] = &[
    0x07, 0x0f, 0x0f, 0x17, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x47, 0x4f, 0x57, 0x57, 0x5f, 0x67, 0x6f, 0x77,
    0x7f, 0x87, 0x97, 0x9f, 0xa7, 0xaf, 0xb7, 0xb7, 0xbf, 0xbf, 0xbf, 0xc7, 0xcf, 0x04, 0x0c, 0x14, 0x1c,
    0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c, 0xa4, 0xac,
    0xb4, 0xbc, 0xc4, 0xcc, 0xd4, 0xdc, 0x61, 0x69, 0x71, 0x79, 0x79, 0x79, 0x62, 0x6a, 0x72, 0x7a, 0x63,
    0x6b, 0x73, 0x7b, 0x7b, 0x05, 0x15, 0x1d, 0x25, 0x25, 0x2d, 0x2d, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x55,
    0x5d, 0x65, 0x6d, 0x75, 0x7d, 0xa5, 0xad, 0xb5, 0xbd, 0xc5, 0xcd, 0xd5, 0xdd, 0x16, 0x1e, 0x26, 0x2e,
    0x36, 0x3e, 0x46, 0x4e, 0x56, 0x5e, 0x66, 0x6e, 0x76, 0x7e, 0xa6, 0xae, 0xb6, 0xbe, 0xc6, 0xce, 0xd6,
    0xde, 0x95,
];

/// Where memory is interesting: the context's fields, the cookie's and stack's ends, the packet's beginning.
const OFFSETS: &[i16] = &[
    0, 1, 2, 3, 4, 6, 8, 12, 13, 14, 15, 16, 19, 20, 24, 32, 40, 44, 45, 46, 48, 55, 56, 60, 63, 64, -1, -4,
    -8, -16, -24, -64, -512, -513,
];

/// Five bytes make an instruction. It begins by making all registers something, and ends by an exit.
fn shaped(bytes: &[u8]) -> Vec<u8> {
    let mut code = Vec::new();
    let mut slot = |opcode: u8, dst: u8, src: u8, off: i16, imm: i32| {
        code.extend([opcode, src << 4 | dst]);
        code.extend(off.to_le_bytes());
        code.extend(imm.to_le_bytes());
    };
    slot(0xbf, 6, 1, 0, 0);
    slot(0xbf, 7, 2, 0, 0);
    slot(0x79, 8, 1, 16, 0);
    slot(0x79, 9, 1, 32, 0);
    slot(0x79, 3, 2, 0, 0);
    slot(0x71, 4, 2, 8, 0);
    slot(0xbf, 5, 8, 0, 0);
    slot(0x07, 5, 0, 0, 20);
    slot(0xb7, 0, 0, 0, 0);
    for bytes in bytes.chunks_exact(5).take(200) {
        let [which, registers, off, low, high] = *bytes else { break };
        let opcode = OPCODES[usize::from(which) % OPCODES.len()];
        let (dst, src) = ((registers & 15) % 11, (registers >> 4) % 11);
        let register = opcode & 8 != 0;
        let imm = i32::from(i16::from_le_bytes([low, high]));
        let small = imm.rem_euclid(if opcode & 7 == 7 { 64 } else { 32 });
        match (opcode & 7, opcode & 0xf0) {
            (1, _) => slot(opcode, dst, src, OFFSETS[usize::from(off) % OFFSETS.len()], 0),
            (2, _) => slot(opcode, dst, 0, OFFSETS[usize::from(off) % OFFSETS.len()], imm),
            (3, _) => slot(opcode, dst, src, OFFSETS[usize::from(off) % OFFSETS.len()], 0),
            (5, 0x90) => slot(opcode, 0, 0, 0, 0),
            (5, 0x00) => slot(opcode, 0, 0, i16::from(off as i8 % 16), 0),
            (5 | 6, _) if register => slot(opcode, dst, src, i16::from(off as i8 % 16), 0),
            (5 | 6, _) => slot(opcode, dst, 0, i16::from(off as i8 % 16), imm),
            (4, 0xd0) => slot(opcode, dst, 0, 0, [16, 32, 64][usize::from(off % 3)]),
            (_, 0x80) => slot(opcode, dst, 0, 0, 0),
            _ if register => slot(opcode, dst, src, 0, 0),
            (_, 0x60 | 0x70 | 0xc0) => slot(opcode, dst, 0, 0, small),
            (_, 0x30 | 0x90) => slot(opcode, dst, 0, 0, imm.max(1)),
            _ => slot(opcode, dst, 0, 0, imm),
        }
    }
    slot(0xb7, 0, 0, 0, 7);
    slot(0x95, 0, 0, 0, 0);
    code
}

fn run(program: &Program, function: Function, context: &Context<'_>, before: Cookie) {
    let (mut a, mut b) = (before, before);
    let said = match program.interpret(function, context, &mut a) {
        Ok(said) => said,
        Err(error) => panic!("{error}: {program:?}"),
    };
    if let Some(compiled) = program.compiled(function, context, &mut b) {
        assert_eq!((compiled, b), (said, a), "{program:?}");
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [kind, rest @ ..] = bytes else { return };
    let (input, rest) = rest.split_at(rest.len().min(104));
    let init = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let program = match kind % 4 {
        0 => Program::load(rest, "fuzz"),
        1 => Program::from_code(rest, &init, "fuzz").and_then(|_| Program::from_code(&init, rest, "fuzz")),
        _ => Program::from_code(&init, &shaped(rest), "fuzz"),
    };
    let Ok(program) = program else { return };
    let mut cookie = Cookie::default();
    let (own, packet) = input.split_at(input.len().min(64));
    cookie.0[..own.len()].copy_from_slice(own);
    let now_ns = u64::from(*kind) << 50;
    run(&program, Function::Init, &Context::decision(now_ns, now_ns + 7, usize::from(*kind)), cookie);
    // One that ends early, too: what was proven of the longer says nothing of the shorter.
    for len in [packet.len(), packet.len() / 2, 0] {
        run(&program, Function::Pkt, &Context::packet(now_ns, now_ns + 7, &packet[..len]), cookie);
    }
});
