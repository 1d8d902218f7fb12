//! A flow table for each of two workers, on real threads: they insert, change, remove, expire and re-key while others look up and
//! scan. `cargo xtask test --tier model` also runs this under ThreadSanitizer; rare interleavings are in `loom_scan.rs`.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_flow::flowtable::{Flow, FlowTable, Outcome};
use tidemill_flow::hash::{KeyHash, Keyed, mix};
use tidemill_flow::key::Key;
use tidemill_flow::sharded::{Sharded, ShardedReader, shard_of};

const WORKERS: usize = 2;
const READERS: usize = 2;
const SLOTS: usize = 11 * 31;
/// Flows that are there all the time, and flows that come and go: together 95 of 100 slots.
const STAYING: u64 = 350;
const CHANGING: u64 = 300;
const BURSTS: u32 = 10_000;
const BURST: usize = 32;

/// Which flow it is, and `burst << 16 | flow` of its last packet, or zeros before the first.
type State = [u64; 2];
type Table = FlowTable<2, State>;
type Reader = ShardedReader<2, State>;

fn key(i: u64) -> Key<2> {
    Key([i, !i])
}

/// Who decides where a packet goes.
#[derive(Clone, Copy)]
enum Dispatch {
    Ours(Keyed<2>),
    Nic,
}

impl Dispatch {
    fn worker(self, key: &Key<2>) -> usize {
        match self {
            Dispatch::Ours(hash) => shard_of(hash.hash(key), WORKERS),
            Dispatch::Nic => mix(key.0[0]) as usize % WORKERS,
        }
    }
}

/// A worker: bursts of packets of its own flows; every flow changes with every packet.
fn work(table: &mut Table, flows: &[u64], seed: u64) {
    let mut outcomes = [Outcome::Full; BURST];
    let mut hashes = [0; BURST];
    for burst in 1..=BURSTS {
        let draw =
            |i: usize| flows[mix(seed << 32 | u64::from(burst) << 6 | i as u64) as usize % flows.len()];
        let burst_flows: [u64; BURST] = std::array::from_fn(draw);
        let keys = burst_flows.map(key);
        table.hasher().hash_batch(&keys, &mut hashes);
        table.find_or_insert_batch(burst, &hashes, &keys, &mut outcomes);
        for (outcome, flow) in outcomes.iter().zip(burst_flows) {
            match outcome.slot() {
                Some(slot) => table.set_state(slot, [flow, u64::from(burst) << 16 | flow]),
                None => assert!(flow >= STAYING, "flow {flow} was there, and is new"),
            }
        }
        table.expire(2, |key, stamp, _| key.0[0] >= STAYING && burst - stamp > 20);
        if burst_flows[0] >= STAYING {
            table.remove(hashes[0], &keys[0]);
        }
        table.migrate(1);
        if burst % 500 == 0 {
            table.rekey(Keyed::new(u128::from(burst))).unwrap();
        }
    }
}

/// What may be seen of a flow: its own state, whole. Returns the burst that it is of.
fn burst_of(flow: u64, seen: Flow<State>) -> u64 {
    let [which, last] = seen.state;
    if seen.state == [0, 0] && flow >= STAYING {
        return 0;
    }
    assert!(which == flow && last & 0xffff == flow, "flow {flow} has {which}, {last:#x}");
    last >> 16
}

/// Looks at everything again and again until all workers are done, and then once more; returns the flows of the last scan.
fn look(reader: &mut Reader, dispatch: Dispatch, done: &AtomicBool) -> usize {
    let keys: Vec<_> = (0..STAYING + CHANGING).map(key).collect();
    let mut out = vec![None; keys.len()];
    let mut newest = vec![0; keys.len()];
    loop {
        let last = done.load(Ordering::Acquire);
        if matches!(dispatch, Dispatch::Nic) {
            for (key, out) in keys.iter().zip(&mut out) {
                let found: Vec<_> = reader.find(key).collect();
                assert!(found.len() <= 1 && found.iter().all(|(shard, _)| *shard == dispatch.worker(key)));
                *out = found.first().map(|(_, flow)| *flow);
            }
        } else {
            reader.get_batch(&keys, &mut out);
        }
        for (i, (seen, newest)) in out.iter().zip(&mut newest).enumerate() {
            assert!(seen.is_some() || i as u64 >= STAYING, "flow {i} is missed");
            let burst = seen.map_or(0, |seen| burst_of(i as u64, seen));
            assert!(burst >= *newest || i as u64 >= STAYING, "flow {i} goes back to {burst} from {newest}");
            *newest = burst;
        }
        let (mut cursor, mut scanned) = (0, 0);
        loop {
            cursor = reader.scan(cursor, 4, |shard, key, seen| {
                let [flow, inverse] = key.0;
                assert!(inverse == !flow && flow < STAYING + CHANGING, "half of flow {flow}");
                assert_eq!(shard, dispatch.worker(key));
                burst_of(flow, seen);
                scanned += 1;
            });
            if cursor == 0 {
                break;
            }
        }
        if last {
            return scanned;
        }
    }
}

fn workers_write_and_readers_read(dispatch: Dispatch) {
    let hash = Keyed::new(1);
    let Sharded { mut tables, reader } = Sharded::<2, State>::new(WORKERS, SLOTS, hash).unwrap();
    let mut flows = vec![Vec::new(); WORKERS];
    for i in 0..STAYING + CHANGING {
        let worker = dispatch.worker(&key(i));
        flows[worker].push(i);
        if i < STAYING {
            let table = &mut tables[worker];
            let slot = table.find_or_insert(0, hash.hash(&key(i)), &key(i)).slot().unwrap();
            table.set_state(slot, [i, i]);
        }
    }
    let done = AtomicBool::new(false);
    let scanned: Vec<usize> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (mut reader, done) = (reader.clone(), &done);
                scope.spawn(move || look(&mut reader, dispatch, done))
            })
            .collect();
        let workers: Vec<_> = (0..)
            .zip(tables.iter_mut().zip(&flows))
            .map(|(seed, (table, flows))| scope.spawn(move || work(table, flows, seed)))
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Release);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let len: usize = tables.iter().map(FlowTable::len).sum();
    assert_eq!(scanned, [len; READERS]);
    for table in &tables {
        let counters = table.counters();
        assert!(counters.moves > 100 && counters.inserted > 5_000, "{counters:?}");
    }
}

#[test]
fn workers_write_and_readers_read_where_we_dispatch() {
    workers_write_and_readers_read(Dispatch::Ours(Keyed::new(1)));
}

#[test]
fn workers_write_and_readers_read_where_the_nic_dispatches() {
    workers_write_and_readers_read(Dispatch::Nic);
}
