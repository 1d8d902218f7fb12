//! The flow table at the size that it is held to. It needs 4 GB of memory and a release build:
//! `cargo test --release -p tidemill-flow --test flowtable_held -- --ignored`; `cargo xtask held 3` does that.
#![cfg(not(loom))]

use tidemill_flow::flowtable::{FlowTable, Outcome, Slot};
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;

fn key(i: u64) -> Key<2> {
    Key([mix(i), i])
}

/// Keys of 16 bytes, a state of 8: all get in, all are found, and others are not.
#[test]
#[ignore = "takes 4 GB and a minute"]
fn a_hundred_million_flows() {
    const FLOWS: u64 = 100_000_000;
    let hash = Keyed::<2>::new(1);
    let mut table = FlowTable::<2>::new((FLOWS as f64 / 0.95) as usize, hash).unwrap();
    assert!(table.bytes() < 37 * FLOWS as usize, "{} bytes", table.bytes());
    let batch = |start: u64| {
        let keys: [Key<2>; 32] = std::array::from_fn(|i| key(start + i as u64));
        let mut hashes = [0; 32];
        hash.hash_batch(&keys, &mut hashes);
        (keys, hashes)
    };
    for start in (0..FLOWS).step_by(32) {
        let (keys, hashes) = batch(start);
        let mut out = [Outcome::Full; 32];
        table.find_or_insert_batch(1, &hashes, &keys, &mut out);
        for (i, outcome) in (start..).zip(out) {
            let Outcome::New(slot) = outcome else { panic!("{outcome:?} for flow {i}") };
            table.set_word(slot, 0, !i);
        }
    }
    assert_eq!(table.len() as u64, FLOWS);
    // There, and half of them not.
    for start in (0..FLOWS).step_by(32 * 7).chain((FLOWS..2 * FLOWS).step_by(32 * 31)) {
        let (keys, hashes) = batch(start);
        let mut out = [None::<Slot>; 32];
        table.lookup_batch(&hashes, &keys, &mut out);
        for (i, found) in (start..).zip(out) {
            assert_eq!(found.map(|slot| table.word(slot, 0)), (i < FLOWS).then_some(!i), "flow {i}");
        }
    }
    println!("{:?}, {:.1} bytes each", table.counters(), table.bytes() as f64 / FLOWS as f64);
}
