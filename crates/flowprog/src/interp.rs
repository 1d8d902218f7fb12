//! The interpreter: the specification, and what runs where there is no machine code.
//!
//! Every access is checked, so that it is safe whatever the verifier says; on a program that is accepted no check ever fails, and the fuzz target holds
//! the verifier to that. Pointers are numbers of its own: a region in the upper half, an offset in the lower.

use crate::context::{CONTEXT_LEN, COOKIE_LEN, Context, Cookie};
use crate::insn::{AluOp, Cond, Insn, REGISTERS, Size, Src};
use crate::verify::STACK;

const CONTEXT_AT: u64 = 1 << 32;
const COOKIE_AT: u64 = 2 << 32;
const STACK_AT: u64 = 3 << 32;
const PACKET_AT: u64 = 4 << 32;

/// A check failed: the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trap(pub(crate) usize);

/// `x op y`, of 64 bits or 32.
#[inline(always)]
pub(crate) fn alu(op: AluOp, wide: bool, x: u64, y: u64) -> u64 {
    if wide { alu64(op, x, y) } else { u64::from(alu32(op, x as u32, y as u32)) }
}

#[inline(always)]
fn alu64(op: AluOp, x: u64, y: u64) -> u64 {
    match op {
        AluOp::Add => x.wrapping_add(y),
        AluOp::Sub => x.wrapping_sub(y),
        AluOp::Mul => x.wrapping_mul(y),
        AluOp::Div => x.checked_div(y).unwrap_or(0),
        AluOp::Mod => x.checked_rem(y).unwrap_or(x),
        AluOp::Or => x | y,
        AluOp::And => x & y,
        AluOp::Xor => x ^ y,
        AluOp::Mov => y,
        AluOp::Neg => x.wrapping_neg(),
        AluOp::Lsh => x.wrapping_shl(y as u32),
        AluOp::Rsh => x.wrapping_shr(y as u32),
        AluOp::Arsh => (x as i64).wrapping_shr(y as u32) as u64,
    }
}

#[inline(always)]
fn alu32(op: AluOp, x: u32, y: u32) -> u32 {
    match op {
        AluOp::Mul => x.wrapping_mul(y),
        AluOp::Div => x.checked_div(y).unwrap_or(0),
        AluOp::Mod => x.checked_rem(y).unwrap_or(x),
        AluOp::Lsh => x.wrapping_shl(y),
        AluOp::Rsh => x.wrapping_shr(y),
        AluOp::Arsh => (x as i32).wrapping_shr(y) as u32,
        // The others' lower half is that of 64 bits.
        _ => alu64(op, x.into(), y.into()) as u32,
    }
}

/// Whether the condition holds between them.
#[inline(always)]
pub(crate) fn holds(cond: Cond, wide: bool, x: u64, y: u64) -> bool {
    let (x, y) = if wide { (x, y) } else { (x & 0xffff_ffff, y & 0xffff_ffff) };
    let signed = |value: u64| if wide { value as i64 } else { i64::from(value as i32) };
    match cond {
        Cond::Eq => x == y,
        Cond::Ne => x != y,
        Cond::Set => x & y != 0,
        Cond::Gt => x > y,
        Cond::Ge => x >= y,
        Cond::Lt => x < y,
        Cond::Le => x <= y,
        Cond::Sgt => signed(x) > signed(y),
        Cond::Sge => signed(x) >= signed(y),
        Cond::Slt => signed(x) < signed(y),
        Cond::Sle => signed(x) <= signed(y),
    }
}

/// The lower bits as a number of the given byte order. Objects are little-endian, and so is this machine.
#[inline(always)]
fn order(big: bool, bits: u8, x: u64) -> u64 {
    match (bits, big) {
        (16, true) => u64::from((x as u16).swap_bytes()),
        (16, false) => u64::from(x as u16),
        (32, true) => u64::from((x as u32).swap_bytes()),
        (32, false) => u64::from(x as u32),
        (_, true) => x.swap_bytes(),
        (_, false) => x,
    }
}

struct Machine<'a> {
    registers: [u64; REGISTERS],
    context: [u8; CONTEXT_LEN],
    cookie: &'a mut Cookie,
    stack: [u8; STACK],
    packet: &'a [u8],
}

/// Runs a function; r0.
pub(crate) fn run(insns: &[Insn], context: &Context<'_>, cookie: &mut Cookie) -> Result<u64, Trap> {
    let mut machine = Machine {
        registers: [0; REGISTERS],
        context: context.image(PACKET_AT),
        cookie,
        stack: [0; STACK],
        packet: context.bytes(),
    };
    machine.registers[1] = CONTEXT_AT;
    machine.registers[2] = COOKIE_AT;
    machine.registers[10] = STACK_AT + STACK as u64;
    let mut at = 0;
    // No instruction runs twice; so a run ends, whatever the verifier says.
    for _ in insns {
        at = match machine.step(insns, at).ok_or(Trap(at))? {
            Step::To(next) => next,
            Step::Exit => return Ok(machine.registers[0]),
        };
    }
    Err(Trap(at))
}

enum Step {
    To(usize),
    Exit,
}

impl Machine<'_> {
    #[inline(always)]
    fn operand(&self, src: Src) -> u64 {
        match src {
            Src::Reg(reg) => self.registers[usize::from(reg)],
            Src::Imm(imm) => i64::from(imm) as u64,
        }
    }

    #[inline(always)]
    fn step(&mut self, insns: &[Insn], at: usize) -> Option<Step> {
        let reg = |reg: u8| usize::from(reg);
        match *insns.get(at)? {
            Insn::Alu { wide, op, dst, src } => {
                self.registers[reg(dst)] = alu(op, wide, self.registers[reg(dst)], self.operand(src));
            }
            Insn::Order { big, bits, dst } => {
                self.registers[reg(dst)] = order(big, bits, self.registers[reg(dst)]);
            }
            Insn::Load { size, dst, base, off } => {
                self.registers[reg(dst)] = self.load(size, self.registers[reg(base)], off)?;
            }
            Insn::Store { size, base, off, src } => {
                self.store(size, self.registers[reg(base)], off, self.operand(src))?;
            }
            Insn::Const { dst, value } => {
                self.registers[reg(dst)] = value;
                return Some(Step::To(at + 2));
            }
            Insn::Jump { to } => return Some(Step::To(to)),
            Insn::Branch { wide, cond, dst, src, to } => {
                if holds(cond, wide, self.registers[reg(dst)], self.operand(src)) {
                    return Some(Step::To(to));
                }
            }
            Insn::Exit => return Some(Step::Exit),
            Insn::Second => return None,
        }
        Some(Step::To(at + 1))
    }

    fn load(&self, size: Size, base: u64, off: i16) -> Option<u64> {
        let address = base.wrapping_add_signed(off.into());
        let region: &[u8] = match address >> 32 << 32 {
            CONTEXT_AT => &self.context,
            COOKIE_AT => &self.cookie.0,
            STACK_AT => &self.stack,
            PACKET_AT => self.packet,
            _ => return None,
        };
        let bytes = region.get(address as u32 as usize..)?;
        Some(match size {
            Size::B => u64::from(*bytes.first()?),
            Size::H => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            Size::W => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
            Size::D => u64::from_le_bytes(*bytes.first_chunk()?),
        })
    }

    fn store(&mut self, size: Size, base: u64, off: i16, value: u64) -> Option<()> {
        let address = base.wrapping_add_signed(off.into());
        let region: &mut [u8] = match address >> 32 << 32 {
            COOKIE_AT => &mut self.cookie.0,
            STACK_AT => &mut self.stack,
            _ => return None,
        };
        let bytes = region.get_mut(address as u32 as usize..)?;
        match size {
            Size::B => *bytes.first_mut()? = value as u8,
            Size::H => *bytes.first_chunk_mut()? = (value as u16).to_le_bytes(),
            Size::W => *bytes.first_chunk_mut()? = (value as u32).to_le_bytes(),
            Size::D => *bytes.first_chunk_mut()? = value.to_le_bytes(),
        }
        Some(())
    }
}

const _: () = assert!(COOKIE_LEN == size_of::<Cookie>());
