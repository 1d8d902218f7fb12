//! What the verifier refuses, one by one: the program, the instruction, the reason; and beside it what is almost the same and accepted.

mod common;

use common::*;
use tidemill_flowprog::{Function, LoadError, Program};

fn load_program(code: &[Slot]) -> Result<Program, LoadError> {
    Program::from_code(&nothing(), code.as_flattened(), "test")
}

#[track_caller]
fn refused(at: usize, why: &str, code: &[Slot]) {
    match load_program(code) {
        Ok(_) => panic!("accepted: {why}"),
        Err(LoadError::Refused { program, function: Function::Pkt, at: found, why: said }) => {
            assert_eq!((program.as_str(), found, said.as_str()), ("test", at, why));
        }
        Err(other) => panic!("{other}"),
    }
}

#[track_caller]
fn accepted(code: &[Slot]) {
    if let Err(error) = load_program(code) {
        panic!("{error}");
    }
}

fn with_end(code: &[Slot]) -> Vec<Slot> {
    [code, &[mov(0, I(0)), exit()]].concat()
}

/// r3 = l3, r4 = end, r5 = r3 + n; out if r5 > r4. Seven instructions.
fn proven(n: i32) -> Vec<Slot> {
    let begin = [load(D, 3, 1, 16), load(D, 4, 1, 32), mov(5, R(3)), alu(ADD, 5, I(n)), mov(0, I(0))];
    [&begin[..], &[branch(JLE, 5, R(4), 1), exit()]].concat()
}

#[test]
fn the_shape_of_programs() {
    refused(0, "there are no instructions", &[]);
    refused(1, "the function runs past its end", &[mov(0, I(0)), mov(1, I(0))]);
    refused(0, "the function runs past its end", &[mov(0, I(0))]);
    let code = with_end(&vec![mov(3, I(0)); 1023]);
    refused(1024, "1025 instructions: a function has 1024 at most", &code);
    accepted(&with_end(&vec![mov(3, I(0)); 1022]));
    let cut = Program::from_code(&nothing(), &nothing()[..13], "test").unwrap_err();
    assert_eq!(cut.to_string(), "test: pkt: instruction 1: 5 bytes of an instruction, which has 8");
    let init = Program::from_code(&[], &nothing(), "test").unwrap_err();
    assert_eq!(init.to_string(), "test: init: instruction 0: there are no instructions");
}

#[test]
fn jumps() {
    let circle = |to: usize| format!("leads back to {to}, in a circle: a program has no loops (unroll them)");
    refused(1, &circle(0), &with_end(&[mov(3, I(0)), jump(-2)]));
    refused(0, &circle(0), &with_end(&[jump(-1)]));
    refused(1, &circle(0), &with_end(&[mov(3, I(0)), branch(JEQ, 3, I(0), -2)]));
    refused(3, &circle(1), &[jump(1), mov(0, I(0)), mov(3, I(0)), jump(-3)]);
    refused(0, "jumps to -1, before the first instruction", &with_end(&[jump(-2)]));
    // Back, and in no circle: the layout is the compiler's.
    accepted(&[jump(2), mov(0, I(0)), exit(), mov(3, I(0)), jump(-4)]);
    refused(0, "jumps to 3, behind the last instruction", &with_end(&[jump(2)]));
    refused(0, "jumps to 32768, behind the last instruction", &with_end(&[jump(i16::MAX)]));
    let [a, b] = constant(3, 7);
    refused(0, "jumps into the middle of instruction 1", &with_end(&[jump(1), a, b]));
    accepted(&with_end(&[jump(2), a, b]));
}

#[test]
fn opcodes_and_fields() {
    refused(0, "opcode 0x8d is unknown", &with_end(&[slot(0x8d, 0, 0, 0, 0)]));
    refused(0, "opcode 0x20 is unknown", &with_end(&[slot(0x20, 0, 0, 0, 0)]));
    refused(0, "opcode 0xe7 is unknown", &with_end(&[slot(0xe7, 0, 0, 0, 0)]));
    refused(0, "opcode 0xd7 is unknown", &with_end(&[slot(0xd7, 3, 0, 0, 16)]));
    refused(0, "opcode 0x81 is unknown", &with_end(&[slot(0x81, 3, 1, 0, 0)]));
    refused(0, "register r11: there are r0 to r10", &with_end(&[mov(11, I(0))]));
    refused(0, "register r15: there are r0 to r10", &with_end(&[mov(3, R(15))]));
    refused(0, "r10 is changed, the frame pointer", &with_end(&[mov(10, I(0))]));
    refused(0, "r10 is changed, the frame pointer", &with_end(&[load(D, 10, 2, 0)]));
    refused(0, "the offset is not zero, and not used", &with_end(&[slot(0xb7, 3, 0, 1, 0)]));
    refused(0, "the source register is not zero, and not used", &with_end(&[slot(0xb7, 3, 1, 0, 0)]));
    refused(0, "the immediate is not zero, and not used", &with_end(&[slot(0xbf, 3, 1, 0, 5)]));
    refused(0, "the immediate is not zero, and not used", &[slot(0x95, 0, 0, 0, 1)]);
    refused(0, "a byte order of 24 bits: 16, 32, 64", &with_end(&[order(true, 24, 3)]));
    refused(0, "divides by the constant 0", &with_end(&[alu(DIV, 3, I(0))]));
    refused(0, "divides by the constant 0", &with_end(&[alu32(MOD, 3, I(0))]));
    refused(0, "shifts by 64 bits, of 64", &with_end(&[alu(LSH, 3, I(64))]));
    refused(0, "shifts by 32 bits, of 32", &with_end(&[alu32(ARSH, 3, I(32))]));
    refused(0, "shifts by -1 bits, of 64", &with_end(&[alu(RSH, 3, I(-1))]));
    let [a, _] = constant(3, 7);
    refused(0, "the second half of a 64-bit constant is something else", &with_end(&[a]));
    refused(0, "the second half of a 64-bit constant is missing", &[a]);
    refused(
        0,
        "refers to a map or to data: a program has its cookie only",
        &with_end(&[slot(0x18, 3, 1, 0, 7), slot(0, 0, 0, 0, 0)]),
    );
    refused(
        0,
        "calls helper 5: there are none, the context has what there is",
        &with_end(&[slot(0x85, 0, 0, 0, 5)]),
    );
    refused(
        0,
        "calls another function: make it static and always inline",
        &with_end(&[slot(0x85, 0, 1, 0, 0)]),
    );
    refused(
        0,
        "an atomic operation: a program runs alone on its cookie",
        &with_end(&[slot(0xdb, 2, 1, 0, 0)]),
    );
}

#[test]
fn registers() {
    refused(0, "r0 is read, and not written on every way here", &[exit()]);
    refused(0, "r7 is read, and not written on every way here", &with_end(&[mov(3, R(7))]));
    refused(0, "r3 is read, and not written on every way here", &with_end(&[alu(ADD, 3, I(1))]));
    // Written on one way only.
    let half = |also: Slot| with_end(&[load(W, 3, 2, 0), branch(JEQ, 3, I(0), 1), mov(4, I(1)), also]);
    refused(3, "r4 is read, and not written on every way here", &half(mov(5, R(4))));
    accepted(&half(mov(5, R(3))));
    // A number on one way, a pointer on the other.
    let mixed = |also: Slot| {
        let code = [load(W, 3, 2, 0), mov(4, I(1)), branch(JEQ, 3, I(0), 1), mov(4, R(2)), also];
        with_end(&code)
    };
    refused(4, "r4 is one thing by one way and another by another", &mixed(load(B, 5, 4, 0)));
    accepted(&mixed(mov(4, I(3))));
    refused(1, "r0 is a pointer to the cookie, where a number is needed", &[mov(0, R(2)), exit()]);
    refused(1, "r0 is the packet's end, where a number is needed", &[load(D, 0, 1, 32), exit()]);
}

#[test]
fn the_context() {
    accepted(&with_end(&[load(D, 3, 1, 48), load(B, 3, 1, 55), load(W, 3, 1, 2), load(D, 3, 1, 40)]));
    refused(0, "reads 8 bytes at 49 of the context, which has 56", &with_end(&[load(D, 3, 1, 49)]));
    refused(0, "reads 1 bytes at 56 of the context, which has 56", &with_end(&[load(B, 3, 1, 56)]));
    refused(0, "reads 1 bytes at -1 of the context, which has 56", &with_end(&[load(B, 3, 1, -1)]));
    let whole = |at: i16, len: u8| {
        format!("reads {len} bytes at {at} of the context: its pointers are read as a whole")
    };
    refused(0, &whole(16, 4), &with_end(&[load(W, 3, 1, 16)]));
    refused(0, &whole(12, 8), &with_end(&[load(D, 3, 1, 12)]));
    refused(0, &whole(39, 2), &with_end(&[load(H, 3, 1, 39)]));
    refused(0, &whole(20, 8), &with_end(&[load(D, 3, 1, 20)]));
    refused(
        0,
        "writes by a pointer to the context: cookie and stack only are written",
        &with_end(&[store(D, 1, 0, I(0))]),
    );
    let by_number = [load(B, 3, 2, 0), alu(ADD, 1, R(3))];
    refused(1, "adds a number that is not constant to a pointer to the context", &with_end(&by_number));
}

#[test]
fn the_cookie() {
    accepted(&with_end(&[load(D, 3, 2, 56), store(B, 2, 63, R(3)), store(W, 2, 60, I(5)), load(D, 4, 2, 3)]));
    refused(0, "reads 8 bytes at 57 of the cookie, which has 64", &with_end(&[load(D, 3, 2, 57)]));
    refused(0, "reads 1 bytes at -1 of the cookie, which has 64", &with_end(&[load(B, 3, 2, -1)]));
    refused(0, "writes 2 bytes at 63 of the cookie, which has 64", &with_end(&[store(H, 2, 63, I(0))]));
    refused(0, "writes a pointer to the context to the cookie", &with_end(&[store(D, 2, 0, R(1))]));
    // At a place that a number says, of which enough is known, or not.
    let at = |mask: i32, size: u8| {
        with_end(&[load(B, 3, 2, 0), alu(AND, 3, I(mask)), alu(ADD, 3, R(2)), load(size, 4, 3, 0)])
    };
    accepted(&at(0x3f, B));
    accepted(&at(0x38, D));
    refused(3, "reads 2 bytes at 0 to 63 of the cookie, which has 64", &at(0x3f, H));
    refused(3, "reads 1 bytes at 0 to 127 of the cookie, which has 64", &at(0x7f, B));
    let compared = |limit: i32| {
        let code = [
            load(W, 3, 2, 0),
            mov(0, I(0)),
            branch(JLT, 3, I(limit), 1),
            exit(),
            alu(ADD, 3, R(2)),
            load(B, 4, 3, 0),
        ];
        with_end(&code)
    };
    accepted(&compared(64));
    refused(5, "reads 1 bytes at 0 to 64 of the cookie, which has 64", &compared(65));
    // One place by one way, another by another: anywhere between.
    let joined = |far: i32| {
        let code = [
            load(W, 4, 2, 0),
            mov(3, I(0)),
            branch(JEQ, 4, I(0), 1),
            mov(3, I(far)),
            alu(ADD, 3, R(2)),
            load(D, 5, 3, 0),
        ];
        with_end(&code)
    };
    accepted(&joined(56));
    refused(5, "reads 8 bytes at 0 to 57 of the cookie, which has 64", &joined(57));
    let pointers =
        [load(W, 4, 2, 0), mov(3, R(2)), branch(JEQ, 4, I(0), 1), alu(ADD, 3, I(60)), load(D, 5, 3, 0)];
    refused(4, "reads 8 bytes at 0 to 60 of the cookie, which has 64", &with_end(&pointers));
    // A signed comparison lets what is negative through.
    let signed = [
        load(D, 3, 2, 0),
        mov(0, I(0)),
        branch(JSGT, 3, I(63), 3),
        alu(ADD, 3, R(2)),
        load(B, 4, 3, 0),
        mov(0, I(0)),
        exit(),
    ];
    refused(3, "a pointer is moved by more than 65535 bytes", &signed);
    refused(0, "a pointer is moved by more than 65535 bytes", &with_end(&[alu(ADD, 2, I(65536))]));
    refused(
        1,
        "a pointer is moved by more than 65535 bytes",
        &with_end(&[alu(ADD, 2, I(-65535)), alu(SUB, 2, I(1))]),
    );
}

#[test]
fn the_stack() {
    accepted(&with_end(&[store(D, 10, -512, I(1)), load(D, 3, 10, -512), load(H, 3, 10, -506)]));
    refused(
        0,
        "reads 8 bytes at r10-8, which are not written on every way here",
        &with_end(&[load(D, 3, 10, -8)]),
    );
    refused(
        1,
        "reads 4 bytes at r10-8, which are not written on every way here",
        &with_end(&[store(H, 10, -8, I(0)), load(W, 3, 10, -8)]),
    );
    refused(
        0,
        "writes 8 bytes at r10-520 of the stack, which has 512",
        &with_end(&[store(D, 10, -520, I(0))]),
    );
    refused(0, "writes 8 bytes at r10+0 of the stack, which has 512", &with_end(&[store(D, 10, 0, I(0))]));
    refused(0, "writes 2 bytes at r10-1 of the stack, which has 512", &with_end(&[store(H, 10, -1, I(0))]));
    refused(
        0,
        "writes 8 bytes at r10-12, across two slots of 8 bytes",
        &with_end(&[store(D, 10, -12, I(0))]),
    );
    // Pointers go there and come back as a whole.
    accepted(&with_end(&[store(D, 10, -8, R(2)), load(D, 3, 10, -8), load(D, 4, 3, 56)]));
    refused(0, "writes a part of a pointer to the cookie to the stack", &with_end(&[store(W, 10, -8, R(2))]));
    refused(
        1,
        "reads a part of a pointer to the cookie at r10-8",
        &with_end(&[store(D, 10, -8, R(2)), load(W, 3, 10, -8)]),
    );
    refused(
        2,
        "reads 8 bytes at r10-8, which are not written on every way here",
        &with_end(&[store(D, 10, -8, R(2)), store(B, 10, -8, I(0)), load(D, 3, 10, -8)]),
    );
    // Written on one way only: all of it, a part, and on the other way another part.
    let once = |first: Slot, other: Slot| {
        let code = [load(W, 3, 2, 0), branch(JEQ, 3, I(0), 2), first, jump(1), other, load(D, 3, 10, -8)];
        with_end(&code)
    };
    let (nothing, whole) = (mov(4, I(0)), store(D, 10, -8, I(0)));
    for (first, other) in [
        (whole, nothing),
        (nothing, whole),
        (whole, store(W, 10, -8, I(0))),
        (store(W, 10, -8, I(0)), store(W, 10, -4, I(0))),
    ] {
        refused(5, "reads 8 bytes at r10-8, which are not written on every way here", &once(first, other));
    }
    accepted(&once(whole, store(D, 10, -8, R(3))));
    // On one way a pointer, on the other a number: neither.
    let code = [
        load(W, 3, 2, 0),
        store(D, 10, -8, R(2)),
        branch(JEQ, 3, I(0), 1),
        store(D, 10, -8, I(0)),
        load(D, 3, 10, -8),
    ];
    refused(4, "reads 8 bytes at r10-8, which are not written on every way here", &with_end(&code));
    let by_number = [load(B, 3, 2, 0), mov(4, R(10)), alu(ADD, 4, R(3))];
    refused(2, "adds a number that is not constant to a pointer to the stack", &with_end(&by_number));
}

#[test]
fn the_packet() {
    let read = |n: i32, insns: &[Slot]| with_end(&[&proven(n)[..], insns].concat());
    accepted(&read(14, &[load(H, 6, 3, 12), load(B, 6, 3, 13), load(B, 6, 5, -1), load(D, 6, 5, -14)]));
    let short = |len: u8, at: i16, n: u8| {
        format!("reads {len} bytes at {at} of the packet, where {n} are proven to be in it")
    };
    refused(7, &short(2, 13, 14), &read(14, &[load(H, 6, 3, 13)]));
    refused(7, &short(1, 14, 14), &read(14, &[load(B, 6, 5, 0)]));
    refused(7, &short(1, 0, 0), &read(0, &[load(B, 6, 3, 0)]));
    refused(7, &short(1, 0, 0), &read(-4, &[load(B, 6, 3, 0)]));
    refused(1, &short(1, 0, 0), &with_end(&[load(D, 3, 1, 16), load(B, 6, 3, 0)]));
    refused(7, "reads the packet 1 bytes before what is proven to be in it", &read(14, &[load(B, 6, 3, -1)]));
    // What is proven of l3 says nothing of l4.
    refused(8, &short(1, 0, 0), &read(14, &[load(D, 6, 1, 24), load(B, 6, 6, 0)]));
    refused(1, "reads behind the packet's end", &with_end(&[load(D, 6, 1, 32), load(B, 6, 6, 0)]));
    let write = "writes by a pointer to the packet: cookie and stack only are written";
    refused(7, write, &read(14, &[store(B, 3, 0, I(0))]));
    // The same bytes in other words; and the way on which they are not proven.
    for (turned, cond, n, enough) in [
        (false, JGT, 14, false),
        (false, JGE, 13, false),
        (false, JLT, 13, true),
        (false, JLE, 14, true),
        (true, JLT, 14, false),
        (true, JLE, 13, false),
        (true, JGT, 13, true),
        (true, JGE, 14, true),
    ] {
        let begin = [load(D, 3, 1, 16), load(D, 4, 1, 32), mov(5, R(3)), alu(ADD, 5, I(n)), mov(0, I(0))];
        let compare = if turned { branch(cond, 4, R(5), 2) } else { branch(cond, 5, R(4), 2) };
        let reads = |size: u8, there: bool| {
            let read = load(size, 6, 3, 12);
            let (a, b) = if there { (mov(6, I(0)), read) } else { (read, mov(6, I(0))) };
            [&begin[..], &[compare, a, exit(), b, exit()]].concat()
        };
        accepted(&reads(H, enough));
        refused(if enough { 8 } else { 6 }, &short(4, 12, 14), &reads(W, enough));
        refused(if enough { 6 } else { 8 }, &short(2, 12, 0), &reads(H, !enough));
    }
    // Proven on one way only, and more on one than on the other.
    let pointer = [load(D, 3, 1, 16), load(D, 4, 1, 32), mov(5, R(3)), alu(ADD, 5, I(14)), load(W, 7, 2, 0)];
    let joined = [
        &pointer[..],
        &[branch(JEQ, 7, I(0), 3), branch(JLE, 5, R(4), 2), mov(0, I(0)), exit(), load(B, 6, 3, 0)],
    ];
    refused(9, &short(1, 0, 0), &with_end(&joined.concat()));
}

#[test]
fn where_ways_meet_the_packet_is_as_long_as_on_the_shorter() {
    for (one, other) in [(14, 20), (20, 14), (14, 14)] {
        let reads = |at: i16| {
            let pointers =
                [load(D, 3, 1, 16), load(D, 4, 1, 32), load(D, 7, 2, 0), mov(5, R(3)), mov(6, R(3))];
            let ends = [alu(ADD, 5, I(one)), alu(ADD, 6, I(other)), mov(0, I(0))];
            let ways = [branch(JEQ, 7, I(0), 2), branch(JGT, 5, R(4), 3), jump(1), branch(JGT, 6, R(4), 1)];
            [&pointers[..], &ends, &ways, &[load(B, 8, 3, at), exit()]].concat()
        };
        accepted(&reads(13));
        refused(12, "reads 1 bytes at 14 of the packet, where 14 are proven to be in it", &reads(14));
    }
}

#[test]
fn the_packet_at_a_place_that_a_number_says() {
    // r6 = byte 0 of the cookie, & mask; r3 += r6; then proven for 4 bytes from there.
    let at = |number: &[Slot], insns: &[Slot]| {
        let pointer = [load(D, 3, 1, 16), load(D, 4, 1, 32), load(D, 6, 2, 0)];
        let compare = [
            alu(ADD, 3, R(6)),
            mov(5, R(3)),
            alu(ADD, 5, I(4)),
            mov(0, I(0)),
            branch(JLE, 5, R(4), 1),
            exit(),
        ];
        with_end(&[&pointer[..], number, &compare, insns].concat())
    };
    let masked = [alu(AND, 6, I(0xffff))];
    accepted(&at(&masked, &[load(W, 7, 3, 0), load(B, 7, 5, -4)]));
    refused(
        10,
        "reads 4 bytes at 1 of the packet, where 4 are proven to be in it",
        &at(&masked, &[load(W, 7, 3, 1)]),
    );
    refused(
        10,
        "reads the packet 1 bytes before what is proven to be in it",
        &at(&masked, &[load(B, 7, 3, -1)]),
    );
    refused(
        4,
        "adds a number of up to 65536 to a pointer to the packet: 65535 at most",
        &at(&[alu32(MOD, 6, I(65537))], &[]),
    );
    let any = "adds a number of up to 18446744073709551615 to a pointer to the packet: 65535 at most";
    refused(3, any, &at(&[], &[]));
    refused(
        5,
        "adds a number to a pointer before what is proven to be in the packet",
        &at(&[alu(AND, 6, I(7)), alu(SUB, 3, I(20))], &[]),
    );
    // A second step from there begins anew.
    refused(
        11,
        "reads 1 bytes at 0 of the packet, where 0 are proven to be in it",
        &at(&masked, &[alu(ADD, 3, R(6)), load(B, 7, 3, 0)]),
    );
}

#[test]
fn pointers() {
    let cookie = |what: &str| format!("calculates with a pointer to the cookie{what}");
    let only = cookie(": only a number can be added to it");
    refused(0, &only, &with_end(&[alu(AND, 2, I(-8))]));
    refused(0, &only, &with_end(&[alu32(ADD, 2, I(4))]));
    refused(1, &only, &with_end(&[mov(3, I(4)), alu(SUB, 3, R(2))]));
    refused(
        0,
        "calculates with a pointer to the context: only a number can be added to it",
        &with_end(&[alu(ADD, 1, R(2))]),
    );
    refused(0, "takes 32 bits of a pointer to the cookie", &with_end(&[alu32(MOV, 3, R(2))]));
    refused(1, "calculates with the packet's end", &with_end(&[load(D, 3, 1, 32), alu(ADD, 3, I(1))]));
    refused(0, "r2 is a pointer to the cookie, where a number is needed", &with_end(&[order(true, 64, 2)]));
    accepted(&with_end(&[mov(3, I(4)), alu(ADD, 3, R(2)), alu(SUB, 3, I(4)), load(D, 4, 3, 0)]));
    // Comparisons would tell what an address is.
    refused(0, "compares a pointer to the cookie with a number", &with_end(&[branch(JEQ, 2, I(0), 0)]));
    refused(
        0,
        "compares a pointer to the cookie with a pointer to the context",
        &with_end(&[branch(JGT, 2, R(1), 0)]),
    );
    let ends = [load(D, 3, 1, 16), load(D, 4, 1, 32)];
    let compare = |branch: Slot| with_end(&[&ends[..], &[branch]].concat());
    let other = "compares the packet and its end in another way than <, <=, >, >= (unsigned)";
    refused(2, other, &compare(branch(JEQ, 3, R(4), 0)));
    refused(2, other, &compare(branch(JSGT, 3, R(4), 0)));
    refused(
        2,
        "compares a pointer to the packet with the packet's end, 32 bits of them",
        &compare(branch32(JGT, 3, R(4), 0)),
    );
    accepted(&compare(branch(JGT, 3, R(4), 0)));
    // Memory at a number.
    refused(1, "reads memory at a number, no pointer", &with_end(&[mov(3, I(4096)), load(B, 4, 3, 0)]));
    refused(1, "writes memory at a number, no pointer", &with_end(&[mov(3, I(4096)), store(B, 3, 0, I(0))]));
}

#[test]
fn what_cannot_be_reached_is_not_looked_at() {
    accepted(&[mov(0, I(0)), jump(1), load(B, 3, 9, 0), exit()]);
    accepted(&[mov(0, I(7)), branch(JEQ, 0, I(7), 1), load(B, 3, 9, 0), exit()]);
    refused(
        2,
        "r9 is read, and not written on every way here",
        &[mov(0, I(7)), branch(JNE, 0, I(7), 1), load(B, 3, 9, 0), exit()],
    );
}

#[test]
fn the_longest_programs_are_judged_at_once() {
    // As many bases, ways and joins as fit: what a path-by-path search would take 2^100 steps for.
    let mut code =
        vec![load(D, 3, 1, 16), load(D, 4, 1, 32), load(D, 6, 2, 0), alu(AND, 6, I(7)), mov(0, I(0))];
    while code.len() < 1000 {
        code.extend([alu(ADD, 3, R(6)), branch(JGT, 3, R(4), 2), branch(JEQ, 6, I(3), 1), alu(XOR, 6, I(1))]);
        code.push(alu(AND, 6, I(7)));
    }
    let begin = std::time::Instant::now();
    let result = load_program(&with_end(&code));
    println!("{} instructions in {:?}", code.len() + 2, begin.elapsed());
    result.unwrap();
}
