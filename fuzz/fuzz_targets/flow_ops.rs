//! Any sequence of operations on a hash table: every table of the family does what `std::collections::HashMap` does, as far as it has
//! room.
//!
//! Input: five bytes: the capacity, the number of keys, bits of the hashes that all keys share (set or cleared); then records of two
//! bytes: what to do, and with which key.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_flow::chaining::Chaining;
use tidemill_flow::cuckoo::Cuckoo;
use tidemill_flow::double::Double;
use tidemill_flow::hash::mix;
use tidemill_flow::hopscotch::Hopscotch;
use tidemill_flow::key::Key;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::linear::Linear;
use tidemill_flow::quadratic::Quadratic;
use tidemill_flow::suite::{Case, Op, run_case};
use tidemill_flow::table::HashTable;

fn case<const W: usize>(data: &[u8]) -> Option<Case<W>> {
    let (head, records) = data.split_at_checked(5)?;
    let bits = |byte: u8| 0xff_u64 << (byte % 57);
    let (set, cleared) = (bits(head[2]), bits(head[3]) | bits(head[4]) | bits(head[3]) << (head[4] % 16));
    let keys = (0..=u64::from(head[1] % 128)).map(|i| {
        let mut key = [0; W];
        key[W - 1] = i;
        (mix(i) & !cleared | set, Key(key))
    });
    let op = |record: &[u8]| {
        let (what, key) = (record[0], usize::from(record[1]));
        let value = u64::from(what >> 4).wrapping_sub(1);
        match what & 15 {
            0..=6 => Op::Insert(key, value),
            7..=10 => Op::Remove(key),
            11 => Op::GetBatch(key, usize::from(what)),
            12 => Op::Scan(1 + key % 16),
            13 => Op::Expire(1 + key % 16, value, u16::from(what)),
            14 => Op::ExpireRound(1 + key % 16, value, u16::from(what) + 15),
            _ if key < 16 => Op::Check,
            _ => Op::Get(key),
        }
    };
    Some(Case {
        seed: 0,
        capacity: usize::from(head[0]) % 130,
        keys: keys.collect(),
        ops: records.chunks_exact(2).take(400).map(op).collect(),
    })
}

fn check<const W: usize, T: HashTable<W>>(data: &[u8]) {
    let Some(case) = case::<W>(data) else { return };
    if let Err(failure) = run_case::<W, T>(&case) {
        panic!("{failure}");
    }
}

fuzz_target!(|data: &[u8]| {
    check::<1, Linear<1>>(data);
    check::<2, Quadratic<2>>(data);
    check::<2, Double<2>>(data);
    check::<5, Hopscotch<5>>(data);
    check::<1, Chaining<1>>(data);
    check::<2, Cuckoo<2>>(data);
    check::<5, Keystore<5>>(data);
});
