//! The paper's ways from a tuple to a slot: a hash, what it is of, which of its bits count.

use super::Tuple4;
use tidemill_lookup::hash::{crc32, lookup3};

/// Which function a table hashes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// [`crc32`].
    Crc32,
    /// [`lookup3`] with seed 0.
    Lookup3,
}

/// How the twelve bytes of a key follow each other: source, destination, source port, destination port, each
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// with its most significant byte first, as in the packet.
    Network,
    /// with its least significant byte first, as a C structure of numbers lies in the memory of a PC.
    Little,
}

/// Which bits of the hash are the slot's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// The least significant ones.
    Low,
    /// The most significant ones.
    High,
}

/// How a tuple gets its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The hash.
    pub function: Function,
    /// What is hashed.
    pub order: Order,
    /// What of it counts.
    pub bits: Bits,
}

impl Place {
    /// The slot among `2^log2_slots`, 1 to 32.
    #[inline]
    pub fn slot(self, tuple: &Tuple4, log2_slots: u32) -> usize {
        let bytes = tuple.bytes(self.order);
        let hash = match self.function {
            Function::Crc32 => crc32(&bytes),
            Function::Lookup3 => lookup3(&bytes, 0),
        };
        let unused = 32 - log2_slots.clamp(1, 32);
        (match self.bits {
            Bits::Low => hash << unused >> unused,
            Bits::High => hash >> unused,
        }) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_take_the_bits_that_they_are_told_to() {
        let tuple = Tuple4 {
            source: 0x0102_0304,
            destination: 0x0506_0708,
            source_port: 53,
            destination_port: 0x090a,
        };
        assert_eq!(tuple.bytes(Order::Network), [1, 2, 3, 4, 5, 6, 7, 8, 0, 53, 9, 10]);
        assert_eq!(tuple.bytes(Order::Little), [4, 3, 2, 1, 8, 7, 6, 5, 53, 0, 10, 9]);
        let hash = crc32(&tuple.bytes(Order::Network)) as usize;
        let place = |bits| Place { function: Function::Crc32, order: Order::Network, bits };
        assert_eq!(place(Bits::Low).slot(&tuple, 10), hash & 1023);
        assert_eq!(place(Bits::High).slot(&tuple, 10), hash >> 22);
        assert_eq!(place(Bits::High).slot(&tuple, 32), hash);
    }
}
