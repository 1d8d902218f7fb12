//! The input of the targets of longest-prefix matching: one address byte by byte (the base), then records of four bytes: what to do, a
//! prefix length, and two bytes that are XORed into the base at a place that the first byte chooses - so that neighbours and nested
//! prefixes are easy to find.
// A target may have no use for a part of it.
#![allow(dead_code)]

use tidemill_lpm::{Address, Prefix};

/// Records are taken up to here.
const MOST: usize = 200;

pub(crate) struct Record<A: Address> {
    /// 0 to 7.
    pub(crate) what: u8,
    pub(crate) prefix: Prefix<A>,
    /// The second byte, and the last.
    pub(crate) len: u8,
    pub(crate) low: u8,
}

/// The base, and the records.
pub(crate) fn read<A: Address>(data: &[u8]) -> Option<(u128, Vec<Record<A>>)> {
    let (base, records) = data.split_at_checked(16)?;
    let base = u128::from_be_bytes(base.try_into().ok()?);
    let record = |record: &[u8]| {
        let &[what, len, high, low] = record else { return None };
        let place = u32::from(what >> 3 & 7) * 16;
        let bits = base ^ (u128::from(u16::from_be_bytes([high, low])) << 112 >> place);
        let addr = A::from_u128(bits >> (128 - u32::from(A::BITS)));
        let prefix = Prefix::new(addr, (u16::from(len) % (u16::from(A::BITS) + 1)) as u8)?;
        Some(Record { what: what & 7, prefix, len, low })
    };
    Some((base, records.chunks_exact(4).take(MOST).filter_map(record).collect()))
}
