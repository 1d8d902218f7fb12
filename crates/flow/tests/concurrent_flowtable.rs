//! The flow table's readers on real threads, while flows come, go, move, change their state and hash anew; `cargo xtask test --tier model`
//! also runs this under ThreadSanitizer. What can go wrong only in rare interleavings is in `loom_flowtable.rs`.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_flow::flowtable::{Flow, FlowReader, FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;

const WORDS: usize = 5;
const READERS: usize = 2;
/// Keys that are there all the time, and keys that come and go: together more than the 527 slots.
const STAYING: u64 = 310;
const CHANGING: u64 = 240;

type State = [u64; 3];
type Table = FlowTable<WORDS, State>;
type Reader = FlowReader<WORDS, State, Keyed<WORDS>>;

/// Every word tells the key, so that two keys have no word in common.
fn key(i: u64) -> Key<WORDS> {
    Key(std::array::from_fn(|word| i << 8 | word as u64))
}

/// What a reader saw: a state is of one moment and of this key, and does not go back; nor does the stamp.
fn seen(i: usize, found: Option<Flow<State>>, newest: &mut (u32, u64)) {
    assert!(found.is_some() || i as u64 >= STAYING, "key {i} is missed");
    let Some(Flow { stamp, state: [a, b, c] }) = found else { return };
    // Just put in, or changed since.
    if [a, b, c] != [0; 3] || (i as u64) < STAYING {
        assert!(b == a + 1 && c == a + 2 && a & 0xffff == i as u64, "key {i} has {a:x} {b:x} {c:x}");
        assert!(a >= newest.1, "key {i} goes back to {a:x} from {:x}", newest.1);
        newest.1 = a;
    }
    assert!(stamp >= newest.0, "key {i} goes back to {stamp} from {}", newest.0);
    newest.0 = stamp;
}

fn look(mut reader: Reader, done: &AtomicBool) -> u64 {
    let keys: Vec<_> = (0..STAYING + CHANGING).map(key).collect();
    let mut out = vec![None; keys.len()];
    let mut newest = vec![(0, 0); keys.len()];
    for rounds in 1.. {
        // The last round begins after the last change.
        let last = done.load(Ordering::Acquire);
        if rounds % 2 == 0 {
            reader.get_batch(&keys, &mut out);
        } else {
            for (key, out) in keys.iter().zip(&mut out) {
                *out = reader.get(key);
            }
        }
        for (i, (&found, newest)) in out.iter().zip(&mut newest).enumerate() {
            seen(i, found, newest);
        }
        for i in 1..keys.len() {
            let mut mixture = keys[i];
            mixture.0[WORDS - 1] = keys[i - 1].0[WORDS - 1];
            assert_eq!(reader.get(&mixture), None, "half of key {i}");
        }
        if last {
            return rounds;
        }
    }
    0
}

/// State `round` of key `i`.
fn state(round: u64, i: u64) -> State {
    [0, 1, 2].map(|word| (round << 16 | i) + word)
}

#[test]
fn flowtable_readers_see_whole_flows_while_everything_changes() {
    let mut table = Table::new(527, Keyed::new(1)).unwrap();
    for i in 0..STAYING {
        let slot = table.find_or_insert(0, table.hasher().hash(&key(i)), &key(i)).slot().unwrap();
        table.set_state(slot, state(0, i));
    }
    // Under ThreadSanitizer no reader is the last owner of an old hash: `Arc` tells the last one by a fence, which the sanitizer does not know.
    let _first = cfg!(scalar).then(|| table.reader());
    let done = AtomicBool::new(false);
    let (mut removed, mut rekeyed, mut full) = (0, 0, 0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (reader, done) = (table.reader(), &done);
                scope.spawn(move || look(reader, done))
            })
            .collect();
        let start = Instant::now();
        for round in 1.. {
            // For a second; a busy machine has longer, until enough has happened.
            let is_enough = || table.counters().moves > 20 && removed > 100 && rekeyed > 2;
            let over = |seconds| start.elapsed() > Duration::from_secs(seconds);
            if round % 64 == 0 && over(1) && (is_enough() || over(30)) {
                break;
            }
            // A batch, in which new keys come and flows move; then states of what it has found.
            let keys: [_; 32] = std::array::from_fn(|j| mix(round << 8 | j as u64) % (STAYING + CHANGING));
            let flows = keys.map(key);
            let hashes = flows.map(|key| table.hasher().hash(&key));
            let mut out = [Outcome::Full; 32];
            table.find_or_insert_batch(round as u32, &hashes, &flows, &mut out);
            for (i, outcome) in keys.into_iter().zip(out) {
                match outcome.slot() {
                    Some(slot) => table.set_state(slot, state(round, i)),
                    None => full += 1,
                }
            }
            for j in 0..10 {
                let key = key(STAYING + mix(round << 8 | 128 | j) % CHANGING);
                removed += u64::from(table.remove(table.hasher().hash(&key), &key).is_some());
            }
            if round % 16 == 0 && table.migrate(3) == 0 {
                table.rekey(Keyed::new(u128::from(round))).unwrap();
                rekeyed += 1;
            }
        }
        done.store(true, Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 1);
        }
    });
    let moves = table.counters().moves;
    assert!(
        moves > 20 && removed > 100 && rekeyed > 2,
        "{moves} moves, {removed} removals, {rekeyed} hashes, {full} full"
    );
}
