//! An assembler: one function per form of instruction, each of which gives a slot; and packets.
#![allow(dead_code, reason = "no test needs all")]

pub(crate) mod random;

/// A slot.
pub(crate) type Slot = [u8; 8];

pub(crate) fn slot(opcode: u8, dst: u8, src: u8, off: i16, imm: i32) -> Slot {
    let (o, i) = (off.to_le_bytes(), imm.to_le_bytes());
    [opcode, src << 4 | dst, o[0], o[1], i[0], i[1], i[2], i[3]]
}

/// The second operand.
#[derive(Clone, Copy)]
pub(crate) enum By {
    R(u8),
    I(i32),
}
pub(crate) use By::{I, R};

pub(crate) const ADD: u8 = 0x00;
pub(crate) const SUB: u8 = 0x10;
pub(crate) const MUL: u8 = 0x20;
pub(crate) const DIV: u8 = 0x30;
pub(crate) const OR: u8 = 0x40;
pub(crate) const AND: u8 = 0x50;
pub(crate) const LSH: u8 = 0x60;
pub(crate) const RSH: u8 = 0x70;
pub(crate) const NEG: u8 = 0x80;
pub(crate) const MOD: u8 = 0x90;
pub(crate) const XOR: u8 = 0xa0;
pub(crate) const MOV: u8 = 0xb0;
pub(crate) const ARSH: u8 = 0xc0;

pub(crate) const JEQ: u8 = 0x10;
pub(crate) const JGT: u8 = 0x20;
pub(crate) const JGE: u8 = 0x30;
pub(crate) const JSET: u8 = 0x40;
pub(crate) const JNE: u8 = 0x50;
pub(crate) const JSGT: u8 = 0x60;
pub(crate) const JLT: u8 = 0xa0;
pub(crate) const JLE: u8 = 0xb0;

pub(crate) const W: u8 = 0x00;
pub(crate) const H: u8 = 0x08;
pub(crate) const B: u8 = 0x10;
pub(crate) const D: u8 = 0x18;

fn with(opcode: u8, dst: u8, by: By, off: i16) -> Slot {
    match by {
        R(src) => slot(opcode | 8, dst, src, off, 0),
        I(imm) => slot(opcode, dst, 0, off, imm),
    }
}

pub(crate) fn alu(op: u8, dst: u8, by: By) -> Slot {
    with(0x07 | op, dst, by, 0)
}

pub(crate) fn alu32(op: u8, dst: u8, by: By) -> Slot {
    with(0x04 | op, dst, by, 0)
}

pub(crate) fn mov(dst: u8, by: By) -> Slot {
    alu(MOV, dst, by)
}

pub(crate) fn branch(cond: u8, dst: u8, by: By, off: i16) -> Slot {
    with(0x05 | cond, dst, by, off)
}

pub(crate) fn branch32(cond: u8, dst: u8, by: By, off: i16) -> Slot {
    with(0x06 | cond, dst, by, off)
}

pub(crate) fn jump(off: i16) -> Slot {
    slot(0x05, 0, 0, off, 0)
}

pub(crate) fn load(size: u8, dst: u8, base: u8, off: i16) -> Slot {
    slot(0x61 | size, dst, base, off, 0)
}

pub(crate) fn store(size: u8, base: u8, off: i16, by: By) -> Slot {
    match by {
        R(src) => slot(0x63 | size, base, src, off, 0),
        I(imm) => slot(0x62 | size, base, 0, off, imm),
    }
}

pub(crate) fn constant(dst: u8, value: u64) -> [Slot; 2] {
    [slot(0x18, dst, 0, 0, value as i32), slot(0, 0, 0, 0, (value >> 32) as i32)]
}

pub(crate) fn order(big: bool, bits: i32, dst: u8) -> Slot {
    slot(if big { 0xdc } else { 0xd4 }, dst, 0, 0, bits)
}

pub(crate) fn exit() -> Slot {
    slot(0x95, 0, 0, 0, 0)
}

/// The least that `init` can be.
pub(crate) fn nothing() -> Vec<u8> {
    [mov(0, I(0)), exit()].as_flattened().to_vec()
}

/// IPv4 (with `options` words of them), with a payload of that protocol; `fragment` as in the header.
pub(crate) fn v4(protocol: u8, options: usize, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options * 4;
    let mut packet = vec![0; header];
    packet[0] = 0x45 + options as u8;
    packet[1] = 9 << 2;
    packet[2..4].copy_from_slice(&((header + payload.len()) as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, protocol]);
    packet[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 7]);
    packet.extend_from_slice(payload);
    packet
}

/// IPv6; `fragment`: an extension header with that field.
pub(crate) fn v6(protocol: u8, fragment: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0..2].copy_from_slice(&[0x60 | 9 >> 2, (9 & 3) << 6]);
    packet[6..8].copy_from_slice(&[protocol, 64]);
    packet[8..40].copy_from_slice(&[0x20; 32]);
    if let Some(field) = fragment {
        packet[6] = 44;
        packet.extend_from_slice(&[protocol, 0]);
        packet.extend_from_slice(&field.to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0, 7]);
    }
    packet.extend_from_slice(payload);
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet
}

pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;

pub(crate) fn tcp(to: u16, flags: u8, payload: usize) -> Vec<u8> {
    let mut segment = vec![0; 20 + payload];
    segment[0..2].copy_from_slice(&40000_u16.to_be_bytes());
    segment[2..4].copy_from_slice(&to.to_be_bytes());
    segment[12..14].copy_from_slice(&[0x50, flags]);
    segment
}

pub(crate) fn udp(to: u16, payload: usize) -> Vec<u8> {
    let mut datagram = vec![0; 8 + payload];
    datagram[2..4].copy_from_slice(&to.to_be_bytes());
    datagram
}

pub(crate) fn icmp(kind: u8) -> Vec<u8> {
    let mut message = vec![0; 64];
    message[0] = kind;
    message
}
