//! The verifier: what must be known of a function before it runs.
//!
//! One pass over the instructions, in an order in which each comes behind all that lead to it ([`order`]): so all ways to it have been seen. Where
//! ways meet, what is known is what all of them know ([`value`]). Linear in the instructions, whatever they are: 1,024 take about a millisecond.
//!
//! **The rules**, in full:
//! * *Length*: 1,024 instructions at most, and jumps never lead in a circle: each runs once at most. No calls, no helpers, no atomics, no maps, no data.
//! * *Registers*: written before they are read; on every way the same kind of thing. r10 is the frame pointer and is not written. r1 is the context, r2 the
//!   cookie; the others are unset at first. r0 is a number at the end.
//! * *Context*: read only, at constant places, inside its 56 bytes; its three pointers as a whole. No other load touches them.
//! * *Cookie*: 64 bytes, read and written; the place may vary if its range is known to be inside. Pointers are not stored there.
//! * *Stack*: 512 bytes below r10, at constant places; only bytes that were written are read. A pointer is stored as a whole in an aligned slot of
//!   8 bytes, and read back so.
//! * *Packet*: read only. Bytes `0 .. n` from a base can be read where a comparison has shown that `base + n <= end`. Bases are the context's `l3`
//!   and `l4`, and each result of adding a number of 65,535 at most to a pointer that is at a base or behind it. Of 32 bases at a time something is known.
//! * *Pointers*: a number is added or subtracted (64 bits; constant, except for cookie and packet); packet and end are compared. Nothing else: no
//!   program sees an address, so what it does depends on packet, context and cookie only.
//! * *Numbers* are unsigned ranges. Divisions by zero and shifts are as eBPF defines them: `x / 0 = 0`, `x % 0 = x`, a shift counts modulo the width. A
//!   constant divisor of 0, or shift by more than the width, is refused. Unaligned accesses are allowed.
//! * A branch that cannot be taken, as far as ranges tell, is not followed. An instruction that nothing leads to is not looked at, and never runs.

mod value;

use crate::context::{CONTEXT_LEN, COOKIE_LEN, END_AT, L3_AT, L4_AT, POINTERS_END};
use crate::insn::{AluOp, Cond, Insn, REGISTERS, Refusal, Reg, Size, Src, order};
use std::fmt::Display;
use value::{Range, Value, otherwise};

/// Bytes of a stack.
pub(crate) const STACK: usize = 512;
const SLOTS: usize = STACK / 8;
/// How far from its base a pointer can be, either way.
const FARTHEST: i64 = u16::MAX as i64;

/// So many bases have something known of them at a time.
const BASES: usize = 32;

/// What is known of a function that is safe.
#[derive(Debug)]
pub(crate) struct Proof {
    /// Whether the instruction can run.
    pub(crate) live: Vec<bool>,
    /// Bytes of stack that are used, from the top; a multiple of 8.
    pub(crate) stack: usize,
}

/// Eight bytes of stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// One bit for each byte that was written.
    Bytes(u8),
    /// A register, whole.
    Whole(Value),
}

impl Slot {
    fn written(self) -> u8 {
        match self {
            Slot::Bytes(mask) => mask,
            Slot::Whole(value) if value.is_pointer() => 0,
            Slot::Whole(_) => u8::MAX,
        }
    }

    fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Slot::Whole(a), Slot::Whole(b)) => match a.join(b) {
                Value::Mixed | Value::Unset => Slot::Bytes(0),
                both => Slot::Whole(both),
            },
            (a, b) => Slot::Bytes(a.written() & b.written()),
        }
    }
}

/// What is known before an instruction.
#[derive(Debug, Clone)]
struct State {
    registers: [Value; REGISTERS],
    /// The lowest bytes first.
    stack: [Slot; SLOTS],
    /// Bases, and how many bytes behind each are in the packet. Those of which nothing is known are not listed.
    proven: Vec<(u16, i64)>,
}

impl State {
    fn entry() -> Self {
        let mut registers = [Value::Unset; REGISTERS];
        registers[1] = Value::Context(0);
        registers[2] = Value::Cookie(0, 0);
        registers[10] = Value::Stack(0);
        State { registers, stack: [Slot::Bytes(0); SLOTS], proven: Vec::new() }
    }

    fn join(&mut self, other: &State) {
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            *own = own.join(*other);
        }
        for (own, other) in self.stack.iter_mut().zip(&other.stack) {
            *own = own.join(*other);
        }
        self.proven.retain_mut(|(base, bytes)| {
            *bytes = (*bytes).min(other.proven(*base));
            *bytes > 0
        });
    }

    fn proven(&self, base: u16) -> i64 {
        self.proven.iter().find(|(known, _)| *known == base).map_or(0, |(_, bytes)| *bytes)
    }

    /// So many bytes behind the base are in the packet.
    fn prove(&mut self, base: u16, bytes: i64) {
        if let Some((_, known)) = self.proven.iter_mut().find(|(known, _)| *known == base) {
            *known = (*known).max(bytes);
        } else if bytes > 0 && self.proven.len() < BASES {
            self.proven.push((base, bytes));
        }
    }

    fn get(&self, reg: Reg) -> Result<Value, String> {
        match self.registers[usize::from(reg)] {
            Value::Unset => Err(format!("r{reg} is read, and not written on every way here")),
            Value::Mixed => Err(format!("r{reg} is {}", Value::Mixed.name())),
            value => Ok(value),
        }
    }

    fn number(&self, reg: Reg) -> Result<Range, String> {
        match self.get(reg)? {
            Value::Scalar(range) => Ok(range),
            other => Err(format!("r{reg} is {}, where a number is needed", other.name())),
        }
    }

    fn set(&mut self, reg: Reg, value: Value) {
        self.registers[usize::from(reg)] = value;
    }

    fn operand(&self, src: Src, wide: bool) -> Result<Value, String> {
        match src {
            Src::Reg(reg) => self.get(reg),
            Src::Imm(imm) if wide => Ok(Value::Scalar(Range::only(i64::from(imm) as u64))),
            Src::Imm(imm) => Ok(Value::Scalar(Range::only(u64::from(imm as u32)))),
        }
    }
}

/// Shows that a function is safe, or says where that is not known.
pub(crate) fn verify(insns: &[Insn]) -> Result<Proof, Refusal> {
    let mut states: Vec<Option<Box<State>>> = Vec::new();
    states.resize_with(insns.len(), || None);
    states[0] = Some(Box::new(State::entry()));
    let mut proof = Proof { live: vec![false; insns.len()], stack: 0 };
    for at in order(insns)? {
        let insn = &insns[at];
        // What is behind has been seen; only what lies ahead is kept.
        let Some(mut state) = states[at].take() else { continue };
        proof.live[at] = true;
        let refused = |why| Refusal { at, why };
        let mut reach = |to: usize, state: Box<State>| match states.get_mut(to) {
            Some(Some(known)) => known.join(&state),
            Some(empty) => *empty = Some(state),
            // The decoder has seen that nothing leads outside.
            None => {}
        };
        match *insn {
            Insn::Jump { to } => reach(to, state),
            Insn::Exit => {
                state.number(0).map_err(refused)?;
            }
            Insn::Branch { wide, cond, dst, src, to } => {
                let ways = branch(&state, wide, cond, dst, src).map_err(refused)?;
                if let Some(taken) = ways.taken {
                    reach(to, taken);
                }
                if let Some(not_taken) = ways.not_taken {
                    reach(at + 1, not_taken);
                }
            }
            Insn::Const { dst, value } => {
                state.set(dst, Value::Scalar(Range::only(value)));
                reach(at + 2, state);
            }
            _ => {
                state.straight(insn, at, &mut proof.stack).map_err(refused)?;
                reach(at + 1, state);
            }
        }
    }
    Ok(proof)
}

/// What is known where a branch leads; `None` where it cannot.
struct Ways {
    taken: Option<Box<State>>,
    not_taken: Option<Box<State>>,
}

fn branch(state: &State, wide: bool, cond: Cond, dst: Reg, src: Src) -> Result<Ways, String> {
    let (a, b) = (state.get(dst)?, state.operand(src, wide)?);
    match (a, b) {
        (Value::Scalar(a), Value::Scalar(b)) => {
            let way = |cond: Option<Cond>| {
                let mut state = Box::new(state.clone());
                if let Some(cond) = cond {
                    let (a, b) = a.assume(cond, b, wide)?;
                    state.set(dst, Value::Scalar(a));
                    if let Src::Reg(src) = src {
                        // Of one register compared with itself, either is right.
                        state.set(src, Value::Scalar(b));
                    }
                }
                Some(state)
            };
            Ok(Ways { taken: way(Some(cond)), not_taken: way(otherwise(cond)) })
        }
        (Value::Packet(base, off), Value::End) if wide => ordered(state, base, off, cond, false),
        (Value::End, Value::Packet(base, off)) if wide => ordered(state, base, off, cond, true),
        (a, b) => Err(format!(
            "compares {} with {}{}",
            a.name(),
            b.name(),
            if wide { "" } else { ", 32 bits of them" }
        )),
    }
}

/// A pointer to the packet is compared with its end; `turned`: the end is on the left.
fn ordered(state: &State, base: u16, off: i64, cond: Cond, turned: bool) -> Result<Ways, String> {
    // Whether the pointer is at the end at most, or before it, where the branch is taken, and where it is not.
    let (taken, not_taken) = match (cond, turned) {
        (Cond::Gt, false) | (Cond::Lt, true) => (None, Some(off)),
        (Cond::Ge, false) | (Cond::Le, true) => (None, Some(off + 1)),
        (Cond::Lt, false) | (Cond::Gt, true) => (Some(off + 1), None),
        (Cond::Le, false) | (Cond::Ge, true) => (Some(off), None),
        _ => return Err("compares the packet and its end in another way than <, <=, >, >= (unsigned)".into()),
    };
    let way = |proven: Option<i64>| {
        let mut state = Box::new(state.clone());
        if let Some(bytes) = proven {
            state.prove(base, bytes);
        }
        Some(state)
    };
    Ok(Ways { taken: way(taken), not_taken: way(not_taken) })
}

/// A pointer that is moved stays near.
fn near(off: Option<i64>) -> Result<i64, String> {
    off.filter(|off| (-FARTHEST..=FARTHEST).contains(off))
        .ok_or_else(|| format!("a pointer is moved by more than {FARTHEST} bytes"))
}

fn outside(what: &str, lo: impl Display, size: Size, len: usize) -> String {
    format!("{} bytes at {lo} of the {what}, which has {len}", size as usize)
}

impl State {
    /// An instruction that goes on to the next.
    fn straight(&mut self, insn: &Insn, at: usize, stack: &mut usize) -> Result<(), String> {
        match *insn {
            Insn::Alu { wide, op, dst, src } => self.alu(wide, op, dst, src, at),
            Insn::Order { bits, dst, .. } => {
                let range = self.number(dst)?;
                let top = u64::MAX >> (64 - u32::from(bits));
                let constant = if range.max == 0 { Range::only(0) } else { Range::up_to(top) };
                self.set(dst, Value::Scalar(constant));
                Ok(())
            }
            Insn::Load { size, dst, base, off } => {
                let value = self.load(size, self.get(base)?, off.into())?;
                self.set(dst, value);
                Ok(())
            }
            Insn::Store { size, base, off, src } => {
                let (to, value) = (self.get(base)?, self.operand(src, true)?);
                self.store(size, to, off.into(), value, stack)
            }
            // The others lead elsewhere.
            _ => Ok(()),
        }
    }

    fn alu(&mut self, wide: bool, op: AluOp, dst: Reg, src: Src, at: usize) -> Result<(), String> {
        let b = self.operand(src, wide)?;
        if op == AluOp::Mov {
            let value = match b {
                Value::Scalar(range) => Value::Scalar(range.alu(op, range, wide)),
                pointer if wide => pointer,
                pointer => return Err(format!("takes 32 bits of {}", pointer.name())),
            };
            self.set(dst, value);
            return Ok(());
        }
        let a = self.get(dst)?;
        let value = match (a, op, b) {
            (Value::Scalar(a), _, Value::Scalar(b)) => Value::Scalar(a.alu(op, b, wide)),
            (pointer, AluOp::Add, Value::Scalar(by)) if wide => moved(self, pointer, by, at)?,
            (Value::Scalar(by), AluOp::Add, pointer) if wide => moved(self, pointer, by, at)?,
            (pointer, AluOp::Sub, Value::Scalar(by)) if wide && by.constant().is_some() => {
                moved(self, pointer, Range::only(by.min.wrapping_neg()), at)?
            }
            (a, _, b) => {
                let pointer = if a.is_pointer() { a } else { b };
                return Err(format!("calculates with {}: only a number can be added to it", pointer.name()));
            }
        };
        self.set(dst, value);
        Ok(())
    }

    fn load(&self, size: Size, from: Value, off: i64) -> Result<Value, String> {
        let len = size as i64;
        let unknown = Value::Scalar(Range::up_to(u64::MAX >> (64 - 8 * len)));
        match from {
            Value::Context(at) => {
                let at = at + off;
                if at < 0 || at + len > CONTEXT_LEN as i64 {
                    return Err(format!("reads {}", outside("context", at, size, CONTEXT_LEN)));
                }
                let (first, end) = (at as usize, (at + len) as usize);
                match (first, size) {
                    (L3_AT, Size::D) => Ok(Value::Packet(0, 0)),
                    (L4_AT, Size::D) => Ok(Value::Packet(1, 0)),
                    (END_AT, Size::D) => Ok(Value::End),
                    _ if first < POINTERS_END && end > L3_AT => Err(format!(
                        "reads {len} bytes at {first} of the context: its pointers are read as a whole"
                    )),
                    _ => Ok(unknown),
                }
            }
            Value::Cookie(lo, hi) => {
                in_cookie(lo + off, hi + off, size).map_err(|why| format!("reads {why}"))?;
                Ok(unknown)
            }
            Value::Stack(at) => self.unstack(size, at + off, unknown),
            Value::Packet(base, at) => {
                let (first, proven) = (at + off, self.proven(base));
                if first < 0 {
                    return Err(format!(
                        "reads the packet {} bytes before what is proven to be in it",
                        -first
                    ));
                }
                if first + len > proven {
                    return Err(format!(
                        "reads {len} bytes at {first} of the packet, where {proven} are proven to be in it"
                    ));
                }
                Ok(unknown)
            }
            Value::End => Err("reads behind the packet's end".into()),
            Value::Scalar(_) | Value::Unset | Value::Mixed => {
                Err("reads memory at a number, no pointer".into())
            }
        }
    }

    /// The slot, and the bits of its bytes.
    fn place(size: Size, at: i64, doing: &str) -> Result<(usize, u8, bool), String> {
        let from_bottom = at + STACK as i64;
        if from_bottom < 0 || at + size as i64 > 0 {
            return Err(format!("{doing} {}", outside("stack", format_args!("r10{at:+}"), size, STACK)));
        }
        let (slot, byte) = (from_bottom as usize / 8, from_bottom as usize % 8);
        if byte + size as usize > 8 {
            return Err(format!("{doing} {} bytes at r10{at:+}, across two slots of 8 bytes", size as usize));
        }
        let mask = ((1_u16 << (size as u16)) - 1) << byte;
        Ok((slot, mask as u8, size == Size::D))
    }

    fn unstack(&self, size: Size, at: i64, unknown: Value) -> Result<Value, String> {
        let (slot, mask, whole) = Self::place(size, at, "reads")?;
        match self.stack[slot] {
            Slot::Whole(value) if whole => Ok(value),
            Slot::Whole(value) if value.is_pointer() => {
                Err(format!("reads a part of {} at r10{at:+}", value.name()))
            }
            found if found.written() & mask == mask => Ok(unknown),
            _ => Err(format!(
                "reads {} bytes at r10{at:+}, which are not written on every way here",
                size as usize
            )),
        }
    }

    fn store(
        &mut self,
        size: Size,
        to: Value,
        off: i64,
        value: Value,
        stack: &mut usize,
    ) -> Result<(), String> {
        match to {
            Value::Cookie(lo, hi) => {
                in_cookie(lo + off, hi + off, size).map_err(|why| format!("writes {why}"))?;
                if value.is_pointer() {
                    return Err(format!("writes {} to the cookie", value.name()));
                }
                Ok(())
            }
            Value::Stack(at) => {
                let at = at + off;
                let (slot, mask, whole) = Self::place(size, at, "writes")?;
                if value.is_pointer() && !whole {
                    return Err(format!("writes a part of {} to the stack", value.name()));
                }
                *stack = (*stack).max(STACK - slot * 8);
                self.stack[slot] =
                    if whole { Slot::Whole(value) } else { Slot::Bytes(self.stack[slot].written() | mask) };
                Ok(())
            }
            Value::Scalar(_) => Err("writes memory at a number, no pointer".into()),
            other => Err(format!("writes by {}: cookie and stack only are written", other.name())),
        }
    }
}

fn in_cookie(lo: i64, hi: i64, size: Size) -> Result<(), String> {
    if lo < 0 || hi + size as i64 > COOKIE_LEN as i64 {
        let places = if lo == hi { lo.to_string() } else { format!("{lo} to {hi}") };
        return Err(outside("cookie", places, size, COOKIE_LEN));
    }
    Ok(())
}

/// A pointer and a number: where it leads then.
fn moved(state: &mut State, pointer: Value, by: Range, at: usize) -> Result<Value, String> {
    let constant = by.constant().map(|by| by as i64);
    let too_far = |off: i64| near(constant.and_then(|by| off.checked_add(by)));
    match pointer {
        Value::Cookie(lo, hi) => match constant {
            Some(_) => Ok(Value::Cookie(too_far(lo)?, too_far(hi)?)),
            None => {
                let least = near(i64::try_from(by.min).ok().and_then(|by| lo.checked_add(by)))?;
                let most = near(i64::try_from(by.max).ok().and_then(|by| hi.checked_add(by)))?;
                Ok(Value::Cookie(least, most))
            }
        },
        Value::Packet(base, off) => match constant {
            Some(_) => Ok(Value::Packet(base, too_far(off)?)),
            None if by.max > FARTHEST as u64 => Err(format!(
                "adds a number of up to {} to a pointer to the packet: {FARTHEST} at most",
                by.max
            )),
            None if off < 0 => {
                Err("adds a number to a pointer before what is proven to be in the packet".into())
            }
            None => {
                // A base of its own: nothing is known of what is behind it.
                let base = at as u16 + 2;
                state.proven.retain(|(known, _)| *known != base);
                Ok(Value::Packet(base, 0))
            }
        },
        Value::Context(off) if constant.is_some() => Ok(Value::Context(too_far(off)?)),
        Value::Stack(off) if constant.is_some() => Ok(Value::Stack(too_far(off)?)),
        Value::Context(_) | Value::Stack(_) => {
            Err(format!("adds a number that is not constant to {}", pointer.name()))
        }
        other => Err(format!("calculates with {}", other.name())),
    }
}
