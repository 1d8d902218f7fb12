//! Machine code for x86-64: an instruction becomes one to four of the machine's, and nothing is checked at run time. Only what [`crate::verify`] has
//! accepted is translated, and [`code`] is the one place that runs it.
//!
//! ```text
//! r0 ... r5   rax, rdi, rsi, rdx, r9, r8     r1 and r2 are the arguments of the C calling convention as they come
//! r6 ... r9   rbx, r13, r14, r15             saved if the program uses them
//! r10         rbp                            saved, and the stack made, if the program uses it
//! rcx, r10, r11                              of ours: shifts, divisions
//! ```
//!
//! An instruction that cannot run (the verifier has pruned every way to it) becomes an exit with a value that is a fault.

mod asm;
pub(crate) mod code;

use crate::insn::{AluOp, Cond, Insn, REGISTERS, Size, Src};
use crate::verify::Proof;
use asm::{Asm, R8, R9, R10, R11, R13, R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};

const MAP: [u8; REGISTERS] = [RAX, RDI, RSI, RDX, R9, R8, RBX, R13, R14, R15, RBP];
/// Registers that a function gives back as they were.
const SAVED: [u8; 5] = [RBX, R13, R14, R15, RBP];
/// Functions begin at multiples of this.
const ALIGN: usize = 16;

/// What stands for what never runs, as a result: no program may give it.
pub(crate) const NEVER: u64 = u64::MAX;

/// Translates a function to the end of the code; where it begins.
pub(crate) fn compile(insns: &[Insn], proof: &Proof, code: &mut Vec<u8>) -> usize {
    code.resize(code.len().next_multiple_of(ALIGN), 0xcc);
    let begin = code.len();
    let mut jit = Jit {
        asm: Asm { bytes: std::mem::take(code) },
        saved: saved(insns, proof),
        stack: proof.stack.next_multiple_of(16),
        places: vec![0; insns.len()],
        jumps: Vec::new(),
    };
    jit.prologue();
    for (at, insn) in insns.iter().enumerate() {
        jit.places[at] = jit.asm.bytes.len();
        if proof.live[at] {
            jit.one(insn);
        } else if *insn != Insn::Second {
            jit.asm.constant(RAX, NEVER);
            jit.epilogue();
        }
    }
    for (jump, to) in std::mem::take(&mut jit.jumps) {
        jit.asm.land(jump, jit.places[to]);
    }
    *code = jit.asm.bytes;
    begin
}

/// The saved registers that the function writes, and the frame pointer if it has a stack.
fn saved(insns: &[Insn], proof: &Proof) -> Vec<u8> {
    let mut used = [false; 16];
    used[usize::from(RBP)] = proof.stack > 0;
    for insn in insns {
        if let Insn::Alu { dst, .. }
        | Insn::Order { dst, .. }
        | Insn::Load { dst, .. }
        | Insn::Const { dst, .. } = *insn
        {
            used[usize::from(MAP[usize::from(dst)])] = true;
        }
    }
    SAVED.into_iter().filter(|reg| used[usize::from(*reg)]).collect()
}

fn map(reg: u8) -> u8 {
    MAP[usize::from(reg)]
}

struct Jit {
    asm: Asm,
    saved: Vec<u8>,
    stack: usize,
    /// Where each instruction begins.
    places: Vec<usize>,
    /// Where a distance is to be written, and the instruction that it leads to.
    jumps: Vec<(usize, usize)>,
}

impl Jit {
    fn prologue(&mut self) {
        for reg in self.saved.clone() {
            self.asm.push(reg);
        }
        if self.stack > 0 {
            self.asm.mov(true, RBP, RSP);
            self.asm.reg_imm(true, 0x81, 5, RSP, self.stack as i32);
        }
    }

    fn epilogue(&mut self) {
        if self.stack > 0 {
            self.asm.reg_imm(true, 0x81, 0, RSP, self.stack as i32);
        }
        for reg in self.saved.clone().into_iter().rev() {
            self.asm.pop(reg);
        }
        self.asm.raw(&[0xc3]);
    }

    fn one(&mut self, insn: &Insn) {
        match *insn {
            Insn::Alu { wide, op, dst, src } => self.alu(wide, op, map(dst), src),
            Insn::Order { big, bits, dst } => self.order(big, bits, map(dst)),
            Insn::Load { size, dst, base, off } => {
                let (wide, opcode): (bool, &[u8]) = match size {
                    Size::B => (false, &[0x0f, 0xb6]),
                    Size::H => (false, &[0x0f, 0xb7]),
                    Size::W => (false, &[0x8b]),
                    Size::D => (true, &[0x8b]),
                };
                self.asm.memory(wide, opcode, map(dst), map(base), off.into(), false);
            }
            Insn::Store { size, base, off, src } => self.store(size, map(base), off.into(), src),
            Insn::Const { dst, value } => self.asm.constant(map(dst), value),
            Insn::Second => {}
            Insn::Jump { to } => {
                let jump = self.asm.jump(None);
                self.jumps.push((jump, to));
            }
            Insn::Branch { wide, cond, dst, src, to } => {
                self.compare(wide, cond, map(dst), src);
                let jump = self.asm.jump(Some(condition(cond)));
                self.jumps.push((jump, to));
            }
            Insn::Exit => self.epilogue(),
        }
    }

    fn store(&mut self, size: Size, base: u8, off: i32, src: Src) {
        if size == Size::H {
            self.asm.raw(&[0x66]);
        }
        let (wide, byte) = (size == Size::D, size == Size::B);
        match src {
            Src::Reg(src) => {
                self.asm.memory(wide, &[if byte { 0x88 } else { 0x89 }], map(src), base, off, byte);
            }
            Src::Imm(imm) => {
                self.asm.memory(wide, &[if byte { 0xc6 } else { 0xc7 }], 0, base, off, byte);
                let len = (size as usize).min(4);
                self.asm.raw(&imm.to_le_bytes()[..len]);
            }
        }
    }

    fn compare(&mut self, wide: bool, cond: Cond, dst: u8, src: Src) {
        match (cond, src) {
            (Cond::Set, Src::Reg(src)) => self.asm.regs(wide, &[0x85], map(src), dst),
            (Cond::Set, Src::Imm(imm)) => self.asm.reg_imm(wide, 0xf7, 0, dst, imm),
            (_, Src::Reg(src)) => self.asm.regs(wide, &[0x39], map(src), dst),
            (_, Src::Imm(imm)) => self.asm.reg_imm(wide, 0x81, 7, dst, imm),
        }
    }

    fn alu(&mut self, wide: bool, op: AluOp, dst: u8, src: Src) {
        // Opcode with a register, extension with a constant.
        let (opcode, extension) = match op {
            AluOp::Add => (0x01, 0),
            AluOp::Or => (0x09, 1),
            AluOp::And => (0x21, 4),
            AluOp::Sub => (0x29, 5),
            AluOp::Xor => (0x31, 6),
            AluOp::Mov => {
                return match src {
                    Src::Reg(src) => self.asm.mov(wide, dst, map(src)),
                    Src::Imm(imm) if wide => self.asm.constant(dst, i64::from(imm) as u64),
                    Src::Imm(imm) => self.asm.constant(dst, (imm as u32).into()),
                };
            }
            AluOp::Neg => return self.asm.regs(wide, &[0xf7], 3, dst),
            AluOp::Mul => {
                return match src {
                    Src::Reg(src) => self.asm.regs(wide, &[0x0f, 0xaf], dst, map(src)),
                    Src::Imm(imm) => self.asm.reg_imm(wide, 0x69, dst, dst, imm),
                };
            }
            AluOp::Lsh => return self.shift(wide, 4, dst, src),
            AluOp::Rsh => return self.shift(wide, 5, dst, src),
            AluOp::Arsh => return self.shift(wide, 7, dst, src),
            AluOp::Div => return self.divide(wide, false, dst, src),
            AluOp::Mod => return self.divide(wide, true, dst, src),
        };
        match src {
            Src::Reg(src) => self.asm.regs(wide, &[opcode], map(src), dst),
            Src::Imm(imm) => self.asm.reg_imm(wide, 0x81, extension, dst, imm),
        }
    }

    /// The machine counts modulo the width as well.
    fn shift(&mut self, wide: bool, extension: u8, dst: u8, src: Src) {
        match src {
            Src::Reg(src) => {
                self.asm.mov(false, RCX, map(src));
                self.asm.regs(wide, &[0xd3], extension, dst);
            }
            Src::Imm(0) if !wide => self.asm.mov(false, dst, dst),
            Src::Imm(by) => {
                self.asm.regs(wide, &[0xc1], extension, dst);
                self.asm.raw(&[by as u8]);
            }
        }
    }

    /// The machine divides rdx:rax, and traps at 0.
    fn divide(&mut self, wide: bool, rest: bool, dst: u8, src: Src) {
        let by_zero = match src {
            Src::Reg(src) => {
                self.asm.mov(wide, RCX, map(src));
                self.asm.regs(wide, &[0x85], RCX, RCX);
                Some(self.asm.jump(Some(0x84)))
            }
            Src::Imm(imm) => {
                self.asm.constant(RCX, if wide { i64::from(imm) as u64 } else { (imm as u32).into() });
                None
            }
        };
        self.asm.mov(true, R10, RAX);
        self.asm.mov(true, R11, RDX);
        self.asm.mov(wide, RAX, dst);
        self.asm.regs(false, &[0x31], RDX, RDX);
        self.asm.regs(wide, &[0xf7], 6, RCX);
        self.asm.mov(wide, RCX, if rest { RDX } else { RAX });
        self.asm.mov(true, RAX, R10);
        self.asm.mov(true, RDX, R11);
        self.asm.mov(true, dst, RCX);
        let Some(by_zero) = by_zero else { return };
        let over = self.asm.jump(None);
        let here = self.asm.bytes.len();
        self.asm.land(by_zero, here);
        if rest {
            self.asm.mov(wide, dst, dst);
        } else {
            self.asm.regs(false, &[0x31], dst, dst);
        }
        let here = self.asm.bytes.len();
        self.asm.land(over, here);
    }

    fn order(&mut self, big: bool, bits: u8, dst: u8) {
        match (bits, big) {
            (16, big) => {
                if big {
                    // rol by 8
                    self.asm.raw(&[0x66]);
                    self.asm.regs(false, &[0xc1], 0, dst);
                    self.asm.raw(&[8]);
                }
                self.asm.regs(false, &[0x0f, 0xb7], dst, dst);
            }
            (32, false) => self.asm.mov(false, dst, dst),
            (_, false) => {}
            (bits, true) => {
                let wide = bits == 64;
                let rex = 0x40 | u8::from(wide) << 3 | dst >> 3;
                self.asm.raw(&[rex, 0x0f, 0xc8 | dst & 7]);
            }
        }
    }
}

fn condition(cond: Cond) -> u8 {
    match cond {
        Cond::Eq => 0x84,
        Cond::Ne | Cond::Set => 0x85,
        Cond::Gt => 0x87,
        Cond::Ge => 0x83,
        Cond::Lt => 0x82,
        Cond::Le => 0x86,
        Cond::Sgt => 0x8f,
        Cond::Sge => 0x8d,
        Cond::Slt => 0x8c,
        Cond::Sle => 0x8e,
    }
}
