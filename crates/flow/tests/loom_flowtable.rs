//! The flow table's readers under the model checker: every interleaving (up to a few preemptions) of a reader and the writer, and every
//! value that the memory model lets a load return. The tables have one to three buckets; who must move does because its bucket is full.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p tidemill-flow --test loom_flowtable`, or `cargo xtask test --tier model`.
#![cfg(loom)]

use loom::thread;
use tidemill_flow::flowtable::{Flow, FlowReader, FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, mix};
use tidemill_flow::key::Key;

/// Slots of a bucket.
const LANES: u64 = 31;

/// The hash is the key's first word, with some bits changed.
#[derive(Clone, Copy)]
struct Xor(u64);

impl KeyHash<2> for Xor {
    fn hash(&self, key: &Key<2>) -> u64 {
        key.0[0] ^ self.0
    }
}

type State = [u64; 2];
type Table = FlowTable<2, State, Xor>;
type Reader = FlowReader<2, State, Xor>;

fn table(buckets: u64) -> Table {
    Table::new((buckets * LANES) as usize, Xor(0)).unwrap()
}

/// Checks a model with up to this many preemptions. None are few but not nothing: a reader that runs after all of the writer still sees
/// each of its stores or not, in every combination that the memory model allows.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 1_000_000;
    builder.check(f);
}

/// Makes keys for two given buckets.
struct Keys {
    buckets: u64,
    tag: u64,
    number: u64,
}

impl Keys {
    fn new(buckets: u64) -> Self {
        Keys { buckets, tag: 0, number: 0 }
    }

    /// The other bucket of a key: what the table computes.
    fn other(&self, home: u64, tag: u64) -> u64 {
        let reflection = ((mix(tag % 256 + 1) >> 32) * self.buckets) >> 32;
        (reflection + self.buckets - home) % self.buckets
    }

    /// A key with a tag that none had before.
    fn next(&mut self, home: u64, other: u64) -> Key<2> {
        loop {
            self.tag += 1;
            if self.other(home, self.tag) == other {
                return self.same(home, self.tag);
            }
        }
    }

    /// A key with this tag: other keys with it differ in both words.
    fn same(&mut self, home: u64, tag: u64) -> Key<2> {
        self.number += 1;
        Key([((home << 32).div_ceil(self.buckets) << 32) | self.number << 16 | tag, self.number])
    }
}

fn hash(table: &Table, key: &Key<2>) -> u64 {
    table.hasher().hash(key)
}

/// Puts a key in; its state is `[0, 0]`. By a batch, as on the data path.
fn put(table: &mut Table, key: &Key<2>) {
    put_all(table, &[*key]);
}

/// Puts keys in, as one batch.
fn put_all(table: &mut Table, keys: &[Key<2>]) {
    let hashes: Vec<u64> = keys.iter().map(|key| hash(table, key)).collect();
    let mut out = vec![Outcome::Full; keys.len()];
    table.find_or_insert_batch(7, &hashes, keys, &mut out);
    assert!(out.iter().all(|outcome| matches!(outcome, Outcome::New(_))), "{out:?}");
}

/// The same for one key by itself.
fn put_singly(table: &mut Table, key: &Key<2>) {
    let outcome = table.find_or_insert(7, hash(table, key), key);
    assert!(matches!(outcome, Outcome::New(_)), "{outcome:?}");
}

/// Puts a key in for which one must move, as many as `moves` says.
fn put_moving(table: &mut Table, key: &Key<2>, moves: u64) {
    let before = table.counters().moves;
    put(table, key);
    assert_eq!(table.counters().moves - before, moves);
}

fn set(table: &mut Table, key: &Key<2>, state: State) {
    let slot = table.find(hash(table, key), key).unwrap();
    table.set_state(slot, state);
}

fn remove(table: &mut Table, key: &Key<2>) {
    assert!(table.remove(hash(table, key), key).is_some());
}

fn state(reader: &mut Reader, key: &Key<2>) -> Option<State> {
    reader.get(key).map(|Flow { stamp, state }| {
        assert_eq!(stamp, 7);
        state
    })
}

/// The reader finds the key, with this state, whatever the writer does.
fn found_throughout(mut table: Table, key: Key<2>, wanted: State, write: impl FnOnce(&mut Table)) {
    let mut reader = table.reader();
    let looker = thread::spawn(move || assert_eq!(state(&mut reader, &key), Some(wanted)));
    write(&mut table);
    looker.join().unwrap();
}

#[test]
fn an_insertion_is_seen_whole_or_not() {
    seen_whole_or_not(put);
    seen_whole_or_not(put_singly);
}

fn seen_whole_or_not(put: fn(&mut Table, &Key<2>)) {
    model(3, move || {
        let mut table = table(1);
        let mut reader = table.reader();
        let key = Keys::new(1).next(0, 0);
        let looker = thread::spawn(move || {
            let first = state(&mut reader, &key);
            let second = state(&mut reader, &key);
            assert!(matches!(first, None | Some([0, 0])) && matches!(second, None | Some([0, 0])));
            assert!(second.is_some() || first.is_none(), "{first:?}, then {second:?}");
        });
        put(&mut table, &key);
        looker.join().unwrap();
    });
}

#[test]
fn a_state_of_two_words_is_seen_whole_and_does_not_go_back() {
    model(2, || {
        let mut table = table(1);
        let key = Keys::new(1).next(0, 0);
        put(&mut table, &key);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let seen = [0, 1].map(|_| state(&mut reader, &key).unwrap());
            assert!(seen.iter().all(|[a, b]| a == b), "{seen:?}");
            assert!(seen[0] <= seen[1], "{seen:?}");
        });
        set(&mut table, &key, [1, 1]);
        set(&mut table, &key, [2, 2]);
        looker.join().unwrap();
    });
}

/// Words of a state that are changed one by one are each whole and go forward; so is the stamp.
#[test]
fn words_and_stamps_go_forward() {
    model(3, || {
        let mut table = table(1);
        let key = Keys::new(1).next(0, 0);
        put(&mut table, &key);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let [first, second] = [0, 1].map(|_| reader.get(&key).unwrap());
            assert!(first.state[0] <= second.state[0] && first.state[1] <= second.state[1]);
            assert!(first.stamp <= second.stamp && matches!(first.stamp, 7 | 8));
        });
        let slot = table.find(hash(&table, &key), &key).unwrap();
        table.set_word(slot, 0, 1);
        table.set_word(slot, 1, 5);
        assert_eq!(table.find_or_insert(8, hash(&table, &key), &key), Outcome::Found(slot));
        looker.join().unwrap();
    });
}

/// The slot of a removed key is used again at once, by a key with the same tag. The mixtures have the first word of one and
/// the second of the other.
fn slot_used_again(which: usize, allowed: fn(Option<State>) -> bool) {
    model(1, move || {
        let mut table = table(1);
        let mut keys = Keys::new(1);
        let (old, new) = (keys.same(0, 5), keys.same(0, 5));
        let mixtures = [Key([old.0[0], new.0[1]]), Key([new.0[0], old.0[1]])];
        let wanted = [old, new, mixtures[0], mixtures[1]][which];
        put(&mut table, &old);
        set(&mut table, &old, [1, 1]);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let found = state(&mut reader, &wanted);
            assert!(allowed(found), "{found:?}");
        });
        remove(&mut table, &old);
        put(&mut table, &new);
        set(&mut table, &new, [2, 2]);
        looker.join().unwrap();
    });
}

#[test]
fn a_slot_used_again_does_not_give_the_old_key_the_new_state() {
    slot_used_again(0, |found| matches!(found, None | Some([1, 1])));
}

#[test]
fn a_slot_used_again_does_not_give_the_new_key_the_old_state() {
    slot_used_again(1, |found| matches!(found, None | Some([0, 0] | [2, 2])));
}

#[test]
fn a_slot_used_again_never_shows_a_mixture() {
    slot_used_again(2, |found| found.is_none());
    slot_used_again(3, |found| found.is_none());
}

/// A key goes and comes back, its slot having held another meanwhile. One preemption will do: all this while a reader is between two
/// loads.
#[test]
fn a_key_that_comes_back_has_its_own_states_only() {
    model(1, || {
        let mut table = table(1);
        let mut keys = Keys::new(1);
        let (key, between) = (keys.same(0, 5), keys.same(0, 5));
        put(&mut table, &key);
        set(&mut table, &key, [1, 1]);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let found = state(&mut reader, &key);
            assert!(matches!(found, None | Some([0, 0] | [1, 1])), "{found:?}");
        });
        remove(&mut table, &key);
        put(&mut table, &between);
        let slot = table.find(hash(&table, &between), &between).unwrap();
        table.set_word(slot, 0, 9);
        remove(&mut table, &between);
        put(&mut table, &key);
        looker.join().unwrap();
    });
}

/// A key at home in bucket 0, which is full; its other bucket, 1, is not. Returns the keys' maker, and the key.
fn at_home() -> (Table, Keys, Key<2>) {
    let (mut table, mut keys) = (table(2), Keys::new(2));
    let key = keys.next(0, 1);
    put(&mut table, &key);
    set(&mut table, &key, [3, 4]);
    for _ in 1..LANES {
        put(&mut table, &keys.next(0, 0));
    }
    (table, keys, key)
}

/// A key at home in bucket 1, which has room for one now, that lives in bucket 0, which is full.
fn away() -> (Table, Keys, Key<2>) {
    let (mut table, mut keys) = (table(2), Keys::new(2));
    let last = keys.next(1, 1);
    put(&mut table, &last);
    for _ in 1..LANES {
        put(&mut table, &keys.next(1, 1));
    }
    let key = keys.next(1, 0);
    put(&mut table, &key);
    set(&mut table, &key, [3, 4]);
    for _ in 1..LANES {
        put(&mut table, &keys.next(0, 0));
    }
    remove(&mut table, &last);
    (table, keys, key)
}

#[test]
fn a_key_that_moves_away_is_found() {
    model(1, || {
        let (table, mut keys, key) = at_home();
        found_throughout(table, key, [3, 4], |table| put_moving(table, &keys.next(0, 0), 1));
    });
}

#[test]
fn a_key_that_moves_home_is_found() {
    model(1, || {
        let (table, mut keys, key) = away();
        found_throughout(table, key, [3, 4], |table| put_moving(table, &keys.next(0, 0), 1));
    });
}

/// A key whose home is full and whose other bucket is not goes there at once.
#[test]
fn a_guest_is_seen_whole_or_not() {
    model(1, || {
        let (mut table, mut keys) = (table(2), Keys::new(2));
        for _ in 0..LANES {
            put(&mut table, &keys.next(0, 0));
        }
        let guest = keys.next(0, 1);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let seen = [0, 1].map(|_| state(&mut reader, &guest));
            assert!(seen.iter().all(|state| matches!(state, None | Some([0, 0]))), "{seen:?}");
            assert!(seen[1].is_some() || seen[0].is_none(), "{seen:?}");
        });
        put(&mut table, &guest);
        looker.join().unwrap();
    });
}

/// One batch: a key that goes to its other bucket, then one for which a third must move.
#[test]
fn a_key_that_moves_in_the_middle_of_a_batch_is_found() {
    model(1, || {
        let (table, mut keys, key) = at_home();
        found_throughout(table, key, [3, 4], |table| {
            let before = table.counters().moves;
            put_all(table, &[keys.next(0, 1), keys.next(0, 0)]);
            assert_eq!(table.counters().moves - before, 1);
        });
    });
}

/// It moves home, and the count of strays sinks to none before the reader looks at it.
#[test]
fn a_key_that_moves_home_and_away_again_is_found() {
    model(0, || {
        let (table, mut keys, key) = away();
        found_throughout(table, key, [3, 4], |table| {
            let new = keys.next(0, 0);
            put_moving(table, &new, 1);
            remove(table, &new);
            // Bucket 1 is full again. Its first that has another bucket is the one that came home.
            put_moving(table, &keys.next(1, 1), 1);
        });
    });
}

/// What changes the state of a key that moves is not undone by the move.
#[test]
fn a_state_set_before_or_after_a_move_does_not_go_back() {
    model(1, || {
        let (mut table, mut keys, key) = at_home();
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let seen = [0, 1].map(|_| state(&mut reader, &key).unwrap());
            assert!(seen[0] <= seen[1], "{seen:?}");
            assert!(seen.iter().all(|state| matches!(state, [3, 4] | [5, 6])), "{seen:?}");
        });
        put_moving(&mut table, &keys.next(0, 0), 1);
        set(&mut table, &key, [5, 6]);
        looker.join().unwrap();
    });
}

/// The moved key is removed and the slot that it left is another's, with its tag.
#[test]
fn a_slot_used_again_after_a_move_shows_its_own() {
    model(0, || {
        let (mut table, mut keys, key) = at_home();
        let new = keys.same(0, key.0[0] & 0xffff);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let found = state(&mut reader, &key);
            assert!(matches!(found, None | Some([3, 4])), "{found:?}");
        });
        let full = keys.next(0, 0);
        put_moving(&mut table, &full, 1);
        remove(&mut table, &key);
        remove(&mut table, &full);
        put(&mut table, &new);
        let slot = table.find(hash(&table, &new), &new).unwrap();
        table.set_word(slot, 0, 9);
        looker.join().unwrap();
    });
}

/// A key moves into a slot that another with its tag has just left, which the reader looks for.
#[test]
fn a_slot_used_again_by_a_move_shows_its_own() {
    model(1, || {
        let (mut table, mut keys, key) = at_home();
        let old = keys.same(1, key.0[0] & 0xffff);
        put(&mut table, &old);
        set(&mut table, &old, [1, 1]);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let found = state(&mut reader, &old);
            assert!(matches!(found, None | Some([1, 1])), "{found:?}");
        });
        remove(&mut table, &old);
        put_moving(&mut table, &keys.next(0, 0), 1);
        looker.join().unwrap();
    });
}

/// Two keys of one home are away; one leaves.
#[test]
fn a_stray_that_leaves_takes_none_with_it() {
    model(1, || {
        let (mut table, mut keys, key) = away();
        // Room in bucket 0 for a second.
        put_moving(&mut table, &keys.next(1, 1), 0);
        let more = keys.next(1, 0);
        let out = keys.next(0, 0);
        let slot = table.find_or_insert(7, hash(&table, &out), &out);
        // Bucket 0 is full: its stray cannot go home either.
        assert_eq!(slot, Outcome::Full);
        let somebody = Keys { buckets: 2, tag: key.0[0] & 0xffff, number: 32 }.next(0, 0);
        remove(&mut table, &somebody);
        put(&mut table, &more);
        found_throughout(table, key, [3, 4], |table| remove(table, &more));
    });
}

/// A key comes over from the old hash's place to the new one's, by another bucket or not.
fn comes_over(buckets: u64, change: u64, steps: impl Fn(&mut Table, &Key<2>) + Sync + Send + 'static) {
    model(1, move || {
        let mut table = table(buckets);
        let key = Keys::new(buckets).next(0, 0);
        put(&mut table, &key);
        set(&mut table, &key, [3, 4]);
        found_throughout(table, key, [3, 4], |table| {
            table.rekey(Xor(change)).unwrap();
            steps(table, &key);
            assert_eq!(table.left_to_migrate(), 0);
        });
    });
}

/// A bit that changes the bucket, of two, and one that changes the tag.
const CHANGE: u64 = 1 << 63 | 1 << 9;

#[test]
fn a_key_that_comes_over_is_found() {
    comes_over(2, CHANGE, |table, _| _ = table.migrate(2));
    comes_over(1, 1 << 9, |table, _| _ = table.migrate(1));
    comes_over(2, 0, |table, _| _ = table.migrate(2));
}

#[test]
fn a_key_that_is_brought_over_is_found() {
    comes_over(2, CHANGE, |table, key| {
        let outcome = table.find_or_insert(7, hash(table, key), key);
        assert!(matches!(outcome, Outcome::Found(_)));
    });
}

/// A reader that has begun under the first hash ends under the third.
#[test]
fn a_key_that_comes_over_twice_is_found() {
    comes_over(2, CHANGE, |table, _| {
        table.migrate(2);
        table.rekey(Xor(0)).unwrap();
        table.migrate(2);
    });
}

/// The first hash's place of a key that came over is another's, with its tag, which the reader must not take for it.
#[test]
fn a_slot_used_again_after_coming_over_shows_its_own() {
    model(1, || {
        let (mut table, mut keys) = (table(2), Keys::new(2));
        let key = keys.next(0, 0);
        put(&mut table, &key);
        set(&mut table, &key, [3, 4]);
        found_throughout(table, key, [3, 4], |table| {
            table.rekey(Xor(CHANGE)).unwrap();
            table.migrate(2);
            let mut other = keys.same(0, key.0[0] & 0xffff);
            other.0[0] ^= CHANGE;
            put(table, &other);
            set(table, &other, [9, 9]);
        });
    });
}

#[test]
fn a_key_removed_while_the_table_hashes_anew_goes_once() {
    model(1, || {
        let mut table = table(2);
        let key = Keys::new(2).next(0, 0);
        put(&mut table, &key);
        let mut reader = table.reader();
        let looker = thread::spawn(move || {
            let seen = [0, 1].map(|_| state(&mut reader, &key).is_some());
            assert!(seen[0] || !seen[1], "{seen:?}");
        });
        table.rekey(Xor(CHANGE)).unwrap();
        remove(&mut table, &key);
        looker.join().unwrap();
    });
}
