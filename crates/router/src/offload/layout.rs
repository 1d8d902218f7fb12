//! Where things lie in a generation, and how they are written: as in `bpf/forward.h`.
//!
//! All is words of 64 bits, eight to a line, as memory has them. What is smaller lies in them in the machine's own order of bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use tidemill_lpm::Label;
use tidemill_wire::MacAddr;

/// Words of 64 bits in a line.
pub const LINE: usize = 8;

/// Lines in front of each part of a generation.
const INPUTS: u32 = 0;
const SUSPECTS: u32 = 128;
const HOPS4: u32 = 130;
const HOPS6: u32 = HOPS4 + HOPS / 2;
pub(crate) const DIRECT4: u32 = HOPS6 + HOPS / 2;
pub(crate) const DIRECT6: u32 = DIRECT4 + 4096;
/// Where nodes begin.
pub const NODES: u32 = DIRECT6 + 4096;

/// Next hops of a family that there is room for. The last one stands for all labels beyond, and is never ready.
pub const HOPS: u32 = 32_768;
/// Places of ports that packets come in by: the low bits of a device's number say which one is its.
pub const INPUT_PLACES: u32 = 256;

const NATIVE: u16 = 1;
const JUDGED: u16 = 2;
const KEEPS_DSCP: u16 = 4;
const READY: u32 = 1;
const TAKES: u32 = 2;

/// The memory that generations lie in. What lies beyond its end is not written, and reads as zero: measuring a table needs no memory.
pub(crate) fn store(words: &[AtomicU64], at: usize, value: u64) {
    if let Some(word) = words.get(at) {
        word.store(value, Ordering::Relaxed);
    }
}

pub(crate) fn load(words: &[AtomicU64], at: usize) -> u64 {
    words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// By how much the 32 bits of an odd or even number are shifted in their word.
pub(crate) const fn shift(at: usize) -> u32 {
    let half = if cfg!(target_endian = "little") { at & 1 } else { 1 - (at & 1) };
    32 * half as u32
}

pub(crate) fn load_half(words: &[AtomicU64], at: usize) -> u32 {
    (load(words, at / 2) >> shift(at)) as u32
}

pub(crate) fn store_half(words: &[AtomicU64], at: usize, value: u32) {
    let others = load(words, at / 2) & !(0xffff_ffff << shift(at));
    store(words, at / 2, others | u64::from(value) << shift(at));
}

fn store_bytes(words: &[AtomicU64], at: usize, bytes: &[u8; 32]) {
    for (word, bytes) in bytes.as_chunks().0.iter().enumerate() {
        store(words, at + word, u64::from_ne_bytes(*bytes));
    }
}

/// The first word of an entry of 32 bytes.
fn entry(start: u32, line: u32, number: u32) -> usize {
    (start + line) as usize * LINE + number as usize * 4
}

/// The label of destinations whose packets pass without being judged, where somebody judges; as in `bpf/gate.bpf.c`.
pub const PASSES: Label = Label(1);

/// What somebody who judges packets has to say of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Judged {
    /// The number of the state that this is about: it holds as long as the program's is the same.
    pub stamp: u64,
    /// What comes in there is judged: it passes to the destinations that have the label [`PASSES`], and all else goes on.
    pub is_front: bool,
    /// What passes keeps its code point.
    pub keeps_dscp: bool,
    /// The first line of these destinations; 0: there are none.
    pub passes: u32,
}

/// A port that packets come in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// The device's number.
    pub device: u32,
    /// The port's number.
    pub port: u32,
    /// Our address there.
    pub mac: MacAddr,
    /// The program runs in the device's driver.
    pub native: bool,
    /// Nothing, where nobody judges.
    pub judged: Judged,
}

impl Input {
    /// Where it lies among [`INPUT_PLACES`].
    pub fn place(&self) -> u32 {
        self.device % INPUT_PLACES
    }

    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&self.device.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.port.to_ne_bytes());
        bytes[8..14].copy_from_slice(&self.mac.0);
        let Judged { stamp, is_front, keeps_dscp, passes } = self.judged;
        let flags = [(self.native, NATIVE), (is_front, JUDGED), (keeps_dscp, KEEPS_DSCP)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0_u16, |all, (_, flag)| all | *flag);
        bytes[14..16].copy_from_slice(&flags.to_ne_bytes());
        bytes[16..24].copy_from_slice(&stamp.to_ne_bytes());
        bytes[24..28].copy_from_slice(&passes.to_ne_bytes());
        bytes
    }
}

/// Writes the ports that packets come in by, each at its place; all others are none. Of two that have one place the first has it: gives the others.
pub fn write_inputs(words: &[AtomicU64], start: u32, inputs: &[Input]) -> Vec<Input> {
    let mut places = [None; INPUT_PLACES as usize];
    let mut left_out = Vec::new();
    for input in inputs {
        match &mut places[input.place() as usize] {
            Some(_) => left_out.push(*input),
            place => *place = Some(*input),
        }
    }
    for (number, input) in (0..).zip(&places) {
        let bytes = input.as_ref().map_or([0; 32], Input::bytes);
        store_bytes(words, entry(start, INPUTS, number), &bytes);
    }
    left_out
}

/// Writes for each first byte of an address whether such sources (1) and destinations (2) are left to the router, as
/// [`tidemill_ip::martian::Filter::suspects`] gives it.
pub fn write_suspects(words: &[AtomicU64], start: u32, family: u8, suspects: &[u8; 256]) {
    let line = start + SUSPECTS + u32::from(family == 6);
    for (side, first) in [(1, 0), (2, 4)] {
        for (word, bytes) in suspects.as_chunks::<64>().0.iter().enumerate() {
            let bit = |(at, mark): (u32, &u8)| u64::from(mark & side != 0) << at;
            let bits = (0..).zip(bytes).map(bit).fold(0, |bits, bit| bits | bit);
            store(words, line as usize * LINE + first + word, bits);
        }
    }
}

/// A next hop that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The Ethernet header to send with.
    pub header: [u8; 14],
    /// The longest packet that the link takes, in bytes.
    pub mtu: u16,
    /// The port's number.
    pub port: u32,
    /// Its device takes what other drivers redirect.
    pub takes: bool,
}

impl Hop {
    fn bytes(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..14].copy_from_slice(&self.header);
        bytes[14..16].copy_from_slice(&self.mtu.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.port.to_ne_bytes());
        let flags = READY | if self.takes { TAKES } else { 0 };
        bytes[20..24].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }
}

/// Writes the next hop of a label; `None` leaves its packets to the router. Labels that there is no room for are left to it anyway.
pub fn write_hop(words: &[AtomicU64], start: u32, family: u8, label: u32, hop: Option<&Hop>) {
    if label < HOPS - 1 {
        let line = if family == 6 { HOPS6 } else { HOPS4 };
        store_bytes(words, entry(start, line, label), &hop.map_or([0; 32], Hop::bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_lie_as_memory_has_them() {
        let words: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
        (0..4).for_each(|at| store_half(&words, at, 0x0101_0101 * (at as u32 + 1)));
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        assert_eq!(bytes, [[1; 4], [2; 4], [3; 4], [4; 4]].concat());
        assert_eq!((load_half(&words, 2), load_half(&words, 9)), (0x0303_0303, 0));
        store_half(&words, 9, 1);
    }

    #[test]
    fn of_two_ports_with_one_place_the_second_is_left_out() {
        let words: Vec<AtomicU64> = (0..NODES as usize * LINE).map(|_| AtomicU64::new(7)).collect();
        let input = |device, port| Input {
            device,
            port,
            mac: MacAddr([2; 6]),
            native: true,
            judged: Judged::default(),
        };
        let left_out = write_inputs(&words, 0, &[input(3, 0), input(259, 1), input(4, 2)]);
        assert_eq!(left_out, [input(259, 1)]);
        let at = |place: usize| [load_half(&words, place * 8), load_half(&words, place * 8 + 1)];
        assert_eq!([at(3), at(4), at(5)], [[3, 0], [4, 2], [0, 0]]);
    }

    /// Where bpf/forward.h has them.
    #[test]
    fn what_a_judge_says_lies_behind_the_address() {
        let words: Vec<AtomicU64> = (0..NODES as usize * LINE).map(|_| AtomicU64::new(7)).collect();
        let judged = Judged { stamp: 0x0102_0304_0506, is_front: true, keeps_dscp: true, passes: 99 };
        write_inputs(&words, 0, &[Input { device: 2, port: 5, mac: MacAddr([2; 6]), native: false, judged }]);
        let at = 2 * 4;
        let bytes: Vec<u8> = (at..at + 4).flat_map(|word| load(&words, word).to_ne_bytes()).collect();
        assert_eq!(bytes[14..16], (JUDGED | KEEPS_DSCP).to_ne_bytes());
        assert_eq!(bytes[16..24], 0x0102_0304_0506_u64.to_ne_bytes());
        assert_eq!((&bytes[24..28], &bytes[28..]), (&99_u32.to_ne_bytes()[..], &[0; 4][..]));
    }

    #[test]
    fn suspects_become_bits() {
        let words: Vec<AtomicU64> = (0..NODES as usize * LINE).map(|_| AtomicU64::new(7)).collect();
        let mut suspects = [0; 256];
        (suspects[0], suspects[127], suspects[224]) = (1, 2, 3);
        write_suspects(&words, 0, 6, &suspects);
        let line: Vec<u64> = (0..8).map(|word| load(&words, 129 * LINE + word)).collect();
        assert_eq!(line, [1, 0, 0, 1 << 32, 0, 1 << 63, 0, 1 << 32]);
    }
}
