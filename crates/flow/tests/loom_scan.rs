//! Scanning a flow table beside its writer, and reading shards beside theirs, under the model checker: every interleaving up to a few preemptions, and every value that the
//! memory model lets a load return. See `loom.rs`.
#![cfg(loom)]

use loom::thread;
use tidemill_flow::flowtable::{Flow, FlowReader, FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::sharded::Sharded;

/// One bucket: both buckets of every key are this one.
type Table = FlowTable<1, [u64; 2]>;

fn table() -> Table {
    Table::new(1, Keyed::new(1)).unwrap()
}

/// Checks a model with up to this many preemptions.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

/// A state in which every word tells flow and value.
fn state(i: u64, value: u64) -> [u64; 2] {
    [i << 8 | value, value << 8 | i]
}

/// Puts flow `i` in, or changes its state. The hash is the flow's number, and so is the tag.
fn put(table: &mut Table, i: u64, value: u64) {
    let slot = table.find_or_insert(0, i, &Key([i])).slot().unwrap();
    table.set_state(slot, state(i, value));
}

/// What a scan sees: flows and values.
fn scan(reader: &FlowReader<1, [u64; 2], Keyed<1>>) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    let end = reader.scan(0, 1, |key, Flow { state: words, .. }| {
        let (i, value) = (key.0[0], words[1] >> 8);
        // Just put in, or as its writer left it.
        assert!(words == state(i, value) || words == [0, 0], "flow {i} has {words:x?}");
        seen.push((i, value));
    });
    assert_eq!(end, 0);
    seen
}

#[test]
fn a_slot_used_again_is_seen_as_one_flow_or_the_other() {
    model(3, || {
        let mut table = table();
        let reader = table.reader();
        put(&mut table, 1, 10);
        let looker = thread::spawn(move || {
            let seen = scan(&reader);
            assert!(matches!(seen[..], [] | [(1, 10)] | [(2, 0 | 20)]), "{seen:?}");
        });
        table.remove(1, &Key([1])).unwrap();
        put(&mut table, 2, 20);
        looker.join().unwrap();
    });
}

#[test]
fn a_state_is_seen_before_or_after_its_change() {
    model(3, || {
        let mut table = table();
        let reader = table.reader();
        put(&mut table, 1, 10);
        let looker = thread::spawn(move || {
            let seen = scan(&reader);
            assert!(matches!(seen[..], [(1, 10 | 11)]), "{seen:?}");
        });
        let slot = table.find(1, &Key([1])).unwrap();
        table.set_state(slot, state(1, 11));
        looker.join().unwrap();
    });
}

#[test]
fn a_flow_that_stays_is_seen_once_whatever_its_neighbors_do() {
    model(2, || {
        let mut table = table();
        let reader = table.reader();
        put(&mut table, 1, 10);
        put(&mut table, 2, 20);
        let looker = thread::spawn(move || {
            let seen = scan(&reader);
            assert_eq!(seen.iter().filter(|flow| **flow == (2, 20)).count(), 1, "{seen:?}");
            assert!(seen.len() <= 3, "{seen:?}");
        });
        table.remove(1, &Key([1])).unwrap();
        put(&mut table, 3, 30);
        looker.join().unwrap();
    });
}

/// Two workers, one shard each, and the reader of both: what it has found it finds again, in a scan too, in that shard and no other.
#[test]
fn what_each_worker_puts_in_is_seen_in_its_shard_and_stays() {
    model(1, || {
        let Sharded { tables, mut reader } = Sharded::<1, ()>::new(2, 1, Keyed::new(1)).unwrap();
        let keys =
            [0, 1].map(|shard| (0..).map(|i| Key([i])).find(|key| reader.shard(key) == shard).unwrap());
        let flows = [5, 6].map(|stamp| Flow { stamp, state: () });
        let workers: Vec<_> = tables
            .into_iter()
            .zip(keys.into_iter().zip(flows))
            .map(|(mut table, (key, flow))| {
                thread::spawn(move || {
                    let hash = table.hasher().hash(&key);
                    let outcome = table.find_or_insert(flow.stamp, hash, &key);
                    assert!(matches!(outcome, Outcome::New(_)), "{outcome:?}");
                })
            })
            .collect();
        let got = keys.map(|key| reader.get(&key));
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            cursor = reader.scan(cursor, 1, |shard, key, flow| seen.push((shard, *key, flow)));
            if cursor == 0 {
                break;
            }
        }
        let wanted = [0, 1].map(|shard| (shard, keys[shard], flows[shard]));
        assert!(seen.iter().all(|flow| wanted.contains(flow)), "{seen:?}");
        for shard in 0..2 {
            assert!(got[shard].is_none() || got[shard] == Some(flows[shard]), "{got:?}");
            assert!(got[shard].is_none() || seen.contains(&wanted[shard]), "{got:?}, then {seen:?}");
        }
        for worker in workers {
            worker.join().unwrap();
        }
        for shard in 0..2 {
            assert_eq!(reader.get(&keys[shard]), Some(flows[shard]));
            assert_eq!(reader.find(&keys[shard]).collect::<Vec<_>>(), [(shard, flows[shard])]);
        }
    });
}
