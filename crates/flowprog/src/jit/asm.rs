//! x86-64 instructions as bytes: as many as a program needs, and no more.

/// The machine's registers by their numbers.
pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
pub(super) const RDX: u8 = 2;
pub(super) const RBX: u8 = 3;
pub(super) const RSP: u8 = 4;
pub(super) const RBP: u8 = 5;
pub(super) const RSI: u8 = 6;
pub(super) const RDI: u8 = 7;
pub(super) const R8: u8 = 8;
pub(super) const R9: u8 = 9;
pub(super) const R10: u8 = 10;
pub(super) const R11: u8 = 11;
pub(super) const R13: u8 = 13;
pub(super) const R14: u8 = 14;
pub(super) const R15: u8 = 15;

/// Bytes of code.
#[derive(Default)]
pub(super) struct Asm {
    pub(super) bytes: Vec<u8>,
}

impl Asm {
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn imm(&mut self, imm: i32) {
        self.raw(&imm.to_le_bytes());
    }

    /// The prefix for 64 bits and for registers from r8 on; `always`, as byte registers want it.
    fn rex(&mut self, wide: bool, reg: u8, rm: u8, always: bool) {
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | rm >> 3;
        if rex != 0x40 || always {
            self.raw(&[rex]);
        }
    }

    /// `opcode` between two registers; `reg` may be an opcode's extension.
    pub(super) fn regs(&mut self, wide: bool, opcode: &[u8], reg: u8, rm: u8) {
        self.rex(wide, reg, rm, false);
        self.raw(opcode);
        self.raw(&[0xc0 | (reg & 7) << 3 | rm & 7]);
    }

    /// `opcode` between a register and a constant that it extends the sign of.
    pub(super) fn reg_imm(&mut self, wide: bool, opcode: u8, extension: u8, rm: u8, imm: i32) {
        self.regs(wide, &[opcode], extension, rm);
        self.imm(imm);
    }

    /// `opcode` between a register and memory at `[base + off]`; never rsp or r12.
    pub(super) fn memory(&mut self, wide: bool, opcode: &[u8], reg: u8, base: u8, off: i32, byte: bool) {
        self.rex(wide, reg, base, byte);
        self.raw(opcode);
        match i8::try_from(off) {
            Ok(off) => self.raw(&[0x40 | (reg & 7) << 3 | base & 7, off as u8]),
            Err(_) => {
                self.raw(&[0x80 | (reg & 7) << 3 | base & 7]);
                self.imm(off);
            }
        }
    }

    pub(super) fn mov(&mut self, wide: bool, to: u8, from: u8) {
        self.regs(wide, &[0x89], from, to);
    }

    /// A constant, in as few bytes as it takes.
    pub(super) fn constant(&mut self, to: u8, value: u64) {
        if let Ok(low) = u32::try_from(value) {
            self.rex(false, 0, to, false);
            self.raw(&[0xb8 | to & 7]);
            self.raw(&low.to_le_bytes());
        } else if let Ok(imm) = i32::try_from(value as i64) {
            self.reg_imm(true, 0xc7, 0, to, imm);
        } else {
            self.rex(true, 0, to, false);
            self.raw(&[0xb8 | to & 7]);
            self.raw(&value.to_le_bytes());
        }
    }

    pub(super) fn push(&mut self, reg: u8) {
        self.rex(false, 0, reg, false);
        self.raw(&[0x50 | reg & 7]);
    }

    pub(super) fn pop(&mut self, reg: u8) {
        self.rex(false, 0, reg, false);
        self.raw(&[0x58 | reg & 7]);
    }

    /// A jump whose distance is not known yet; where to write it. `condition`: the low byte of the opcode, none for always.
    pub(super) fn jump(&mut self, condition: Option<u8>) -> usize {
        match condition {
            Some(condition) => self.raw(&[0x0f, condition]),
            None => self.raw(&[0xe9]),
        }
        self.imm(0);
        self.bytes.len() - 4
    }

    /// The jump whose distance is written there leads to this place.
    pub(super) fn land(&mut self, jump: usize, place: usize) {
        let distance = place as i64 - (jump as i64 + 4);
        self.bytes[jump..jump + 4].copy_from_slice(&(distance as i32).to_le_bytes());
    }
}
