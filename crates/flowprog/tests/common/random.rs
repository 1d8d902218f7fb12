//! Random programs that are safe by construction, and what to run them on.
//!
//! r6 is the context, r7 the cookie, r8 the packet (20 bytes of it are there), r5 a number or, within a piece, a pointer; the others are numbers. 64 bytes of
//! stack are written first. A program is a list of pieces, and branches lead to where a piece begins.

use super::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};

const NUMBERS: [u8; 7] = [0, 1, 2, 3, 4, 5, 9];
const OPS: [u8; 12] = [ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR, MOV, ARSH];
const CONDS: [u8; 11] = [JEQ, JGT, JGE, JSET, JNE, JSGT, 0x70, JLT, JLE, 0xc0, 0xd0];
const SIZES: [u8; 4] = [B, H, W, D];
/// Fields of the context that are no pointers.
const FIELDS: [(u8, i16); 9] =
    [(D, 0), (D, 8), (W, 40), (B, 44), (B, 45), (B, 46), (B, 47), (W, 44), (D, 48)];

fn of<T: Copy>(rng: &mut StdRng, all: &[T]) -> T {
    all[rng.random_range(0..all.len())]
}

fn bytes(size: u8) -> i16 {
    match size {
        B => 1,
        H => 2,
        W => 4,
        _ => 8,
    }
}

/// A number near where something happens.
fn number(rng: &mut StdRng) -> u64 {
    let near: u64 = of(
        rng,
        &[0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX],
    );
    match rng.random_range(0..3) {
        0 => rng.random(),
        1 => rng.random_range(0..70),
        _ => near.wrapping_add_signed(rng.random_range(-2..3)),
    }
}

fn operand(rng: &mut StdRng, op: u8, wide: bool) -> By {
    if rng.random() {
        return R(of(rng, &NUMBERS));
    }
    match op {
        LSH | RSH | ARSH => I(rng.random_range(0..if wide { 64 } else { 32 })),
        DIV | MOD => I((number(rng) as i32).max(1)),
        _ => I(number(rng) as i32),
    }
}

fn piece(rng: &mut StdRng, code: &mut Vec<Slot>) {
    let dst = of(rng, &NUMBERS);
    let size = of(rng, &SIZES);
    match rng.random_range(0..14) {
        0..4 => {
            let (op, wide) = (of(rng, &OPS), rng.random());
            let by = operand(rng, op, wide);
            code.push(if wide { alu(op, dst, by) } else { alu32(op, dst, by) });
        }
        4 => {
            // What a compiler has put in front of the branch that leads to it.
            let mut block = Vec::new();
            for _ in 0..rng.random_range(1..4) {
                let (op, by) = (of(rng, &OPS), R(of(rng, &NUMBERS)));
                block.push(alu(op, of(rng, &NUMBERS), by));
            }
            let len = block.len() as i16;
            code.push(jump(len + 1));
            code.append(&mut block);
            code.extend([jump(1), branch(of(rng, &CONDS), dst, R(of(rng, &NUMBERS)), -len - 2)]);
        }
        5 => code.push(if rng.random() { alu(NEG, dst, I(0)) } else { alu32(NEG, dst, I(0)) }),
        6 => code.push(order(rng.random(), of(rng, &[16, 32, 64]), dst)),
        7 => code.extend(constant(dst, number(rng))),
        8 => {
            let (size, off) = of(rng, &FIELDS);
            code.push(load(size, dst, 6, off));
        }
        9 => {
            let off = rng.random_range(0..=64 - bytes(size));
            code.push(load(size, dst, 7, off));
        }
        10 => {
            let off = rng.random_range(0..=64 - bytes(size));
            let by = if rng.random() { R(dst) } else { I(number(rng) as i32) };
            code.push(store(size, 7, off, by));
        }
        11 => {
            let off = -8 * rng.random_range(1..=8) + rng.random_range(0..8 / bytes(size)) * bytes(size);
            let by = if rng.random() { R(dst) } else { I(number(rng) as i32) };
            code.push(if rng.random() { load(size, dst, 10, off) } else { store(size, 10, off, by) });
        }
        12 => {
            // The cookie at a place that a number says.
            code.extend([mov(5, R(dst)), alu(AND, 5, I(0x38)), alu(ADD, 5, R(7))]);
            let off = rng.random_range(0..=8 - bytes(size));
            code.push(if rng.random() { load(size, 1, 5, off) } else { store(size, 5, off, R(9)) });
            code.push(mov(5, I(dst.into())));
        }
        _ => {
            // The packet likewise, if it is that long; r3 is compared.
            code.extend([mov(5, R(dst)), alu(AND, 5, I(0x3f)), alu(ADD, 5, R(8))]);
            code.extend([mov(3, R(5)), alu(ADD, 3, I(8)), load(D, 4, 6, 32)]);
            code.push(branch(JGT, 3, R(4), 1));
            code.push(load(size, 2, 5, rng.random_range(0..=8 - bytes(size))));
            code.extend([mov(5, I(3)), mov(4, I(number(rng) as i32)), mov(3, I(5))]);
        }
    }
}

/// A program: the bytes of its `pkt`.
pub(crate) fn program(rng: &mut StdRng) -> Vec<u8> {
    let mut code = vec![mov(6, R(1)), mov(7, R(2)), load(D, 8, 6, 16), load(D, 3, 6, 32)];
    code.extend([mov(4, R(8)), alu(ADD, 4, I(20)), mov(0, I(64)), branch(JLE, 4, R(3), 1), exit()]);
    for reg in NUMBERS {
        code.extend(constant(reg, number(rng)));
    }
    for at in 1..=8 {
        code.push(store(D, 10, -8 * at, R(of(rng, &NUMBERS))));
    }
    let mut pieces: Vec<Vec<Slot>> = (0..rng.random_range(1..40))
        .map(|_| {
            let mut code = Vec::new();
            piece(rng, &mut code);
            code
        })
        .collect();
    // Branches, the last first: what they pass over is then known.
    for at in (0..pieces.len()).rev() {
        if rng.random_range(0..4) == 0 {
            let over = rng.random_range(0..=(pieces.len() - at).min(5));
            let off = pieces[at..at + over].iter().map(Vec::len).sum::<usize>() as i16;
            let (cond, wide, dst) = (of(rng, &CONDS), rng.random(), of(rng, &NUMBERS));
            let by = operand(rng, ADD, wide);
            let mut with = vec![if wide { branch(cond, dst, by, off) } else { branch32(cond, dst, by, off) }];
            if rng.random_range(0..8) == 0 {
                with = vec![jump(off)];
            }
            with.append(&mut pieces[at]);
            pieces[at] = with;
        }
    }
    code.extend(pieces.into_iter().flatten());
    code.push(mov(6, I(1)));
    for reg in NUMBERS {
        // All that was calculated counts in the end.
        code.extend([alu(MUL, 6, I(31)), alu(ADD, 6, R(reg))]);
    }
    code.extend([mov(0, R(6)), exit()]);
    code.concat()
}

/// A packet: any bytes, or headers that can be read.
pub(crate) fn packet(rng: &mut StdRng) -> Vec<u8> {
    let mut payload = vec![0; rng.random_range(0..90)];
    rng.fill_bytes(&mut payload);
    match rng.random_range(0..4) {
        0 => payload,
        1 => v4(of(rng, &[1, 6, 17]), rng.random_range(0..3), of(rng, &[0, 0x2000, 5]), &payload),
        2 => v6(of(rng, &[6, 17, 58, 0, 43]), None, &payload),
        _ => v6(of(rng, &[6, 17, 58]), Some(of(rng, &[0, 1, 8])), &payload),
    }
}
