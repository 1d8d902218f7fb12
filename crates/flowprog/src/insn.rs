//! Instructions, decoded once at load, so that nobody after this file sees an opcode.
//!
//! ```text
//! a slot     opcode: 1 | source, destination: 4 bits each | offset: 2 | immediate: 4      8 bytes, little-endian
//! LDDW       two slots; the second has nothing but the upper half of the immediate
//! ```
//!
//! The set is that of `clang -target bpf -mcpu=v3` (RFC 9669's base32, base64, divmul32, divmul64) without calls and atomics. Fields that an instruction
//! has no use for must be zero: whoever set them means something that we do not know.
//!
//! **Decoded**, a program has as many entries as slots, so that a place in it is what `llvm-objdump -d` prints. Jumps lead to where an instruction begins,
//! and never in a circle ([`order`]; a compiler's layout may well lead back). This is what bounds a run: an instruction runs once at most.

use std::fmt::{self, Display, Formatter};

/// Bytes of a slot.
pub const SLOT: usize = 8;
/// The most slots that a function can have.
pub const MAX_SLOTS: usize = 1024;

/// The registers r0 to r10.
pub(crate) const REGISTERS: usize = 11;

/// A register, 0 to 10.
pub(crate) type Reg = u8;

/// The second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Src {
    Reg(Reg),
    /// Sign-extended where 64 bits are wanted.
    Imm(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AluOp {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    Lsh,
    Rsh,
    Neg,
    Mod,
    Xor,
    Mov,
    Arsh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cond {
    Eq,
    Ne,
    Set,
    Gt,
    Ge,
    Lt,
    Le,
    Sgt,
    Sge,
    Slt,
    Sle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    B = 1,
    H = 2,
    W = 4,
    D = 8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Insn {
    /// `wide`: 64 bits; otherwise 32, and the upper half becomes zero.
    Alu {
        wide: bool,
        op: AluOp,
        dst: Reg,
        src: Src,
    },
    /// The lower `bits` as a number of that byte order; the rest becomes zero.
    Order {
        big: bool,
        bits: u8,
        dst: Reg,
    },
    Load {
        size: Size,
        dst: Reg,
        base: Reg,
        off: i16,
    },
    Store {
        size: Size,
        base: Reg,
        off: i16,
        src: Src,
    },
    Const {
        dst: Reg,
        value: u64,
    },
    /// The second slot of a `Const`. Nothing leads here.
    Second,
    Jump {
        to: usize,
    },
    Branch {
        wide: bool,
        cond: Cond,
        dst: Reg,
        src: Src,
        to: usize,
    },
    Exit,
}

/// What is wrong with a function, and at which slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) at: usize,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(at: usize, why: impl Display) -> Self {
        Refusal { at, why: why.to_string() }
    }
}

/// A slot's fields.
struct Slot {
    opcode: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

impl Slot {
    fn read(code: &[u8], at: usize) -> Option<Self> {
        let bytes: &[u8; SLOT] = code.get(at * SLOT..)?.first_chunk()?;
        let [opcode, registers, o0, o1, i0, i1, i2, i3] = *bytes;
        Some(Slot {
            opcode,
            dst: registers & 15,
            src: registers >> 4,
            off: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        })
    }
}

/// Decodes a function.
pub(crate) fn decode(code: &[u8]) -> Result<Vec<Insn>, Refusal> {
    let slots = code.len() / SLOT;
    if !code.len().is_multiple_of(SLOT) {
        return Err(Refusal::new(
            slots,
            format_args!("{} bytes of an instruction, which has {SLOT}", code.len() % SLOT),
        ));
    }
    if slots == 0 {
        return Err(Refusal::new(0, "there are no instructions"));
    }
    if slots > MAX_SLOTS {
        return Err(Refusal::new(
            MAX_SLOTS,
            format_args!("{slots} instructions: a function has {MAX_SLOTS} at most"),
        ));
    }
    let mut insns: Vec<Insn> = Vec::with_capacity(slots);
    while insns.len() < slots {
        let at = insns.len();
        let Some(slot) = Slot::read(code, at) else { break };
        let insn = one(&slot, at, slots, Slot::read(code, at + 1)).map_err(|why| Refusal { at, why })?;
        insns.push(insn);
        if matches!(insn, Insn::Const { .. }) {
            insns.push(Insn::Second);
        }
    }
    for (at, insn) in insns.iter().enumerate() {
        if let Insn::Jump { to } | Insn::Branch { to, .. } = *insn
            && insns[to] == Insn::Second
        {
            return Err(Refusal::new(at, format_args!("jumps into the middle of instruction {}", to - 1)));
        }
    }
    match insns.last() {
        Some(Insn::Exit | Insn::Jump { .. }) => Ok(insns),
        _ => Err(Refusal::new(slots - 1, "the function runs past its end")),
    }
}

impl Insn {
    /// Where it leads: to the next instruction, to another, or nowhere.
    fn ways(&self, at: usize) -> (Option<usize>, Option<usize>) {
        match *self {
            Insn::Exit => (None, None),
            Insn::Jump { to } => (None, Some(to)),
            Insn::Branch { to, .. } => (Some(at + 1), Some(to)),
            Insn::Const { .. } => (Some(at + 2), None),
            _ => (Some(at + 1), None),
        }
    }
}

/// The instructions that something leads to, each behind all that lead to it; refused if they lead in a circle.
pub(crate) fn order(insns: &[Insn]) -> Result<Vec<usize>, Refusal> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        /// What it leads to is being looked at.
        Within,
        Done,
    }
    let mut seen = vec![Seen::Not; insns.len()];
    let mut order = Vec::with_capacity(insns.len());
    // An instruction, and which of its ways comes next.
    let mut path = vec![(0, 0)];
    seen[0] = Seen::Within;
    while let Some((at, way)) = path.last_mut() {
        let (next, other) = insns[*at].ways(*at);
        *way += 1;
        let to = match *way {
            1 => next,
            2 => other,
            _ => {
                seen[*at] = Seen::Done;
                order.push(*at);
                path.pop();
                continue;
            }
        };
        let Some(to) = to else { continue };
        match seen[to] {
            Seen::Not => {
                seen[to] = Seen::Within;
                path.push((to, 0));
            }
            Seen::Within => return Err(circle(&path, to)),
            Seen::Done => {}
        }
    }
    order.reverse();
    Ok(order)
}

/// The path's end leads to `to`, which is on it: the step of that circle that leads back.
fn circle(path: &[(usize, u8)], to: usize) -> Refusal {
    let mut from = to;
    let steps = path.iter().skip_while(|(at, _)| *at != to).skip(1).map(|(at, _)| *at).chain([to]);
    for next in steps {
        if next <= from {
            let why = format_args!("leads back to {next}, in a circle: a program has no loops (unroll them)");
            return Refusal::new(from, why);
        }
        from = next;
    }
    Refusal::new(to, "leads in a circle")
}

fn one(slot: &Slot, at: usize, slots: usize, next: Option<Slot>) -> Result<Insn, String> {
    if usize::from(slot.dst) >= REGISTERS || usize::from(slot.src) >= REGISTERS {
        return Err(format!("register r{}: there are r0 to r10", slot.dst.max(slot.src)));
    }
    match slot.opcode & 7 {
        0x00 => constant(slot, next),
        0x01 => {
            unused(slot.imm == 0, "immediate")?;
            let size = memory(slot)?;
            Ok(Insn::Load { size, dst: writable(slot.dst)?, base: slot.src, off: slot.off })
        }
        0x02 => {
            unused(slot.src == 0, "source register")?;
            Ok(Insn::Store { size: memory(slot)?, base: slot.dst, off: slot.off, src: Src::Imm(slot.imm) })
        }
        0x03 => {
            unused(slot.imm == 0, "immediate")?;
            Ok(Insn::Store { size: memory(slot)?, base: slot.dst, off: slot.off, src: Src::Reg(slot.src) })
        }
        0x05 => jump(slot, at, slots, true),
        0x06 => jump(slot, at, slots, false),
        class => alu(slot, class == 0x07),
    }
}

fn unknown(slot: &Slot) -> String {
    format!("opcode {:#04x} is unknown", slot.opcode)
}

fn unused(zero: bool, field: &str) -> Result<(), String> {
    if zero { Ok(()) } else { Err(format!("the {field} is not zero, and not used")) }
}

fn writable(dst: Reg) -> Result<Reg, String> {
    if dst == 10 { Err("r10 is changed, the frame pointer".into()) } else { Ok(dst) }
}

fn constant(slot: &Slot, next: Option<Slot>) -> Result<Insn, String> {
    if slot.opcode != 0x18 {
        return Err(unknown(slot));
    }
    if slot.src != 0 {
        return Err("refers to a map or to data: a program has its cookie only".into());
    }
    unused(slot.off == 0, "offset")?;
    let next = next.ok_or("the second half of a 64-bit constant is missing")?;
    if next.opcode != 0 || next.dst != 0 || next.src != 0 || next.off != 0 {
        return Err("the second half of a 64-bit constant is something else".into());
    }
    let value = u64::from(slot.imm as u32) | u64::from(next.imm as u32) << 32;
    Ok(Insn::Const { dst: writable(slot.dst)?, value })
}

fn memory(slot: &Slot) -> Result<Size, String> {
    match slot.opcode & 0xf8 {
        0x60 => Ok(Size::W),
        0x68 => Ok(Size::H),
        0x70 => Ok(Size::B),
        0x78 => Ok(Size::D),
        0xc0 | 0xd8 => Err("an atomic operation: a program runs alone on its cookie".into()),
        _ => Err(unknown(slot)),
    }
}

/// The second operand of ALU instructions and branches; what it does not use must be zero.
fn source(slot: &Slot) -> Result<Src, String> {
    if slot.opcode & 8 == 0 {
        unused(slot.src == 0, "source register")?;
        Ok(Src::Imm(slot.imm))
    } else {
        unused(slot.imm == 0, "immediate")?;
        Ok(Src::Reg(slot.src))
    }
}

fn jump(slot: &Slot, at: usize, slots: usize, wide: bool) -> Result<Insn, String> {
    let code = slot.opcode & 0xf0;
    let nothing_else = || {
        unused(slot.dst == 0, "destination register")?;
        unused(slot.src == 0, "source register")?;
        unused(slot.imm == 0, "immediate")
    };
    match slot.opcode {
        0x85 if slot.src == 1 => {
            return Err("calls another function: make it static and always inline".into());
        }
        0x85 => {
            return Err(format!("calls helper {}: there are none, the context has what there is", slot.imm));
        }
        0x95 => {
            nothing_else()?;
            unused(slot.off == 0, "offset")?;
            return Ok(Insn::Exit);
        }
        _ => {}
    }
    let to = at as i64 + 1 + i64::from(slot.off);
    let to = usize::try_from(to).map_err(|_| format!("jumps to {to}, before the first instruction"))?;
    if to >= slots {
        return Err(format!("jumps to {to}, behind the last instruction"));
    }
    if slot.opcode == 0x05 {
        nothing_else()?;
        return Ok(Insn::Jump { to });
    }
    let cond = match code {
        0x10 => Cond::Eq,
        0x20 => Cond::Gt,
        0x30 => Cond::Ge,
        0x40 => Cond::Set,
        0x50 => Cond::Ne,
        0x60 => Cond::Sgt,
        0x70 => Cond::Sge,
        0xa0 => Cond::Lt,
        0xb0 => Cond::Le,
        0xc0 => Cond::Slt,
        0xd0 => Cond::Sle,
        _ => return Err(unknown(slot)),
    };
    Ok(Insn::Branch { wide, cond, dst: slot.dst, src: source(slot)?, to })
}

fn alu(slot: &Slot, wide: bool) -> Result<Insn, String> {
    unused(slot.off == 0, "offset")?;
    let dst = writable(slot.dst)?;
    let op = match slot.opcode & 0xf0 {
        0x00 => AluOp::Add,
        0x10 => AluOp::Sub,
        0x20 => AluOp::Mul,
        0x30 => AluOp::Div,
        0x40 => AluOp::Or,
        0x50 => AluOp::And,
        0x60 => AluOp::Lsh,
        0x70 => AluOp::Rsh,
        0x80 => AluOp::Neg,
        0x90 => AluOp::Mod,
        0xa0 => AluOp::Xor,
        0xb0 => AluOp::Mov,
        0xc0 => AluOp::Arsh,
        0xd0 if !wide => {
            unused(slot.src == 0, "source register")?;
            let bits = match slot.imm {
                16 | 32 | 64 => slot.imm as u8,
                other => return Err(format!("a byte order of {other} bits: 16, 32, 64")),
            };
            return Ok(Insn::Order { big: slot.opcode & 8 != 0, bits, dst });
        }
        _ => return Err(unknown(slot)),
    };
    let src = source(slot)?;
    match (op, src) {
        (AluOp::Neg, src) if src != Src::Imm(0) => Err(unknown(slot)),
        (AluOp::Div | AluOp::Mod, Src::Imm(0)) => Err("divides by the constant 0".into()),
        (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Src::Imm(by))
            if !(0..if wide { 64 } else { 32 }).contains(&by) =>
        {
            Err(format!("shifts by {by} bits, of {}", if wide { 64 } else { 32 }))
        }
        _ => Ok(Insn::Alu { wide, op, dst, src }),
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}: {}", self.at, self.why)
    }
}
