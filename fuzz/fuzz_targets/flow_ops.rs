//! Any sequence of operations on a hash table: every table of the family does what `std::collections::HashMap` does, as far as it has
//! room. The flow table also does what only it can: batches that find or insert, stamps, states, another hash, readers.
//!
//! Input: five bytes: the capacity, the number of keys, bits of the hashes that all keys share (set or cleared); then records of two
//! bytes: what to do, and with which key.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_flow::chaining::Chaining;
use tidemill_flow::cuckoo::Cuckoo;
use tidemill_flow::double::Double;
use tidemill_flow::flowtable::{FlowTable, State};
use tidemill_flow::hash::{Keyed, mix};
use tidemill_flow::hopscotch::Hopscotch;
use tidemill_flow::key::Key;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::linear::Linear;
use tidemill_flow::quadratic::Quadratic;
use tidemill_flow::suite::flows::{Beside, FlowOp, Masked, keys};
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

/// The head as above, records of three bytes: what to do, and two numbers.
fn flows<const W: usize, S: State + PartialEq + std::fmt::Debug>(data: &[u8]) {
    let Some((head, records)) = data.split_at_checked(5) else { return };
    let bits = |byte: u8| 0xff_u64 << (byte % 57);
    let (set, clear) = (bits(head[2]), bits(head[3]) | bits(head[4]) | bits(head[3]) << (head[4] % 16));
    let hash = Masked { keyed: Keyed::new(1), set, clear };
    let pool = keys(2 + usize::from(head[1]), u64::from(head[0]));
    let Ok(mut beside) = Beside::<W, S>::new(usize::from(head[0]) % 130, pool, hash) else { return };
    if head[4] >= 192 {
        beside.mask(0, 0);
    }
    for record in records.chunks_exact(3).take(300) {
        let (a, b) = (usize::from(record[1]), usize::from(record[2]));
        let op = match record[0] & 15 {
            0..=3 => FlowOp::Batch(a, b, usize::from(record[0] >> 4)),
            4 => FlowOp::One(a),
            5 => FlowOp::SetState(a, b as u64),
            6 => FlowOp::SetWord(a, b as u64),
            7..=8 => FlowOp::Remove(a),
            9 => FlowOp::Lookup(a, b.max(1)),
            10 => FlowOp::Tick,
            11 => FlowOp::Expire(a % 5, 1 + b as u32 % 8),
            12 => FlowOp::Rekey(a as u64 % 4),
            13 => FlowOp::Migrate(a % 5),
            14 => FlowOp::Replace(a, b as u32 % 4),
            _ => FlowOp::Check,
        };
        if let Err(what) = beside.apply(op) {
            panic!("{op:?}: {what}");
        }
    }
    if let Err(what) = beside.apply(FlowOp::Check) {
        panic!("at the end: {what}");
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
    check::<2, FlowTable<2>>(data);
    flows::<1, ()>(data);
    flows::<2, [u64; 2]>(data);
});
