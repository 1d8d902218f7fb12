//! What a lookup executes: to be run under callgrind, whose counts for each function below, divided by what the program prints, are the data in `src/mix.rs`.
//!
//! ```text
//! cargo build --release -p tidemill-sim --example mix
//! valgrind --tool=callgrind --cache-sim=yes --callgrind-out-file=mix.out target/release/examples/mix
//! callgrind_annotate --show=Ir,Dr,Dw --threshold=100 mix.out | grep 'mix::'
//! ```
//!
//! A function does one kind of lookup, so that steps follow by subtraction: `second` has a bucket more than `first`, `absent` an entry less than
//! `second`. The functions are not inlined; what they call is.

use std::hint::black_box;
use tidemill_cachesim::random::mix;
use tidemill_flow::chaining::Chaining;
use tidemill_flow::cuckoo::Cuckoo;
use tidemill_flow::filter::CuckooFilter;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;
use tidemill_lookup::probe::Recorder;
use tidemill_lpm::Fib;
use tidemill_sim::workload::{FIBS, fib};

/// Lookups of each kind, and how many times over.
const KEYS: usize = 200;
const ROUNDS: usize = 50;
const SLOTS: usize = 1 << 12;

type K = Key<2>;

/// Of a key-value store: 32 bytes.
type Long = Key<4>;

fn key(i: u64) -> K {
    Key([i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i])
}

fn long_key(i: u64) -> Long {
    Key([i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i, mix(i), mix(i + 1)])
}

#[inline(never)]
fn hash_keys(hash: &Keyed<2>, keys: &[K], out: &mut [u64]) {
    for (key, out) in keys.iter().zip(out) {
        *out = hash.hash(key);
    }
}

#[inline(never)]
fn hash_long_keys(hash: &Keyed<4>, keys: &[Long], out: &mut [u64]) {
    for (key, out) in keys.iter().zip(out) {
        *out = hash.hash(key);
    }
}

#[inline(never)]
fn long_mixed(table: &Keystore<4>, hashes: &[u64], keys: &[Long]) -> u64 {
    hashes.iter().zip(keys).fold(9, |sum, (&hash, key)| sum.wrapping_add(table.get(hash, key).unwrap_or(1)))
}

#[inline(never)]
fn filter_mixed(filter: &CuckooFilter, hashes: &[u64]) -> u64 {
    hashes.iter().fold(15, |sum, &hash| sum.wrapping_add(u64::from(filter.contains(hash))))
}

#[inline(never)]
fn only_loop(hashes: &[u64], keys: &[K]) -> u64 {
    hashes.iter().zip(keys).fold(0, |sum, (hash, key)| sum.wrapping_add(black_box(*hash) ^ key.0[1]))
}

// Different starts keep equal functions apart.
macro_rules! lookups {
    ($($name:ident: $table:ty, $start:literal;)*) => {$(
        #[inline(never)]
        fn $name(table: &$table, hashes: &[u64], keys: &[K]) -> u64 {
            hashes.iter().zip(keys).fold($start, |sum, (&hash, key)| {
                sum.wrapping_add(table.get(hash, key).unwrap_or(1))
            })
        }
    )*};
}

lookups! {
    keystore_first: Keystore<2>, 0;
    keystore_second: Keystore<2>, 1;
    keystore_absent: Keystore<2>, 2;
    cuckoo_mixed: Cuckoo<2>, 5;
    chaining_mixed: Chaining<2>, 6;
    keystore_mixed: Keystore<2>, 7;
    flowtable_mixed: FlowTable<2>, 8;
    flowtable_home: FlowTable<2>, 3;
    flowtable_absent: FlowTable<2>, 4;
}

macro_rules! fib_lookups {
    ($($name:ident: $start:literal;)*) => {$(
        #[inline(never)]
        fn $name(fib: &dyn Fib<u32>, keys: &[u32]) -> u64 {
            keys.iter().fold($start, |sum, &key| sum.wrapping_add(u64::from(fib.lookup(key).0)))
        }
    )*};
}

fib_lookups! { fib_dxr: 11; fib_poptrie: 12; fib_sail: 13; fib_treebitmap: 14; }

#[inline(never)]
fn keystore_batch(table: &Keystore<2>, hashes: &[u64], keys: &[K], out: &mut [Option<u64>]) {
    table.get_batch(hashes, keys, out);
}

#[inline(never)]
fn flowtable_batch(table: &FlowTable<2>, hashes: &[u64], keys: &[K], out: &mut [Option<u64>]) {
    table.get_batch(hashes, keys, out);
}

/// Keys whose lookup takes so many steps and looks at so many entries.
fn of_kind<T: HashTable<2>>(
    table: &T,
    hash: &Keyed<2>,
    from: u64,
    steps: u64,
    entries: u64,
) -> (Vec<u64>, Vec<K>) {
    let mut keys = Vec::new();
    for key in (from..).map(key).take(1 << 20) {
        let recorder = Recorder::new();
        table.get_probed(hash.hash(&key), &key, &recorder);
        let counts = recorder.counts();
        if (counts.steps, counts.dependent_reads) == (steps, entries) {
            keys.push(key);
        }
        if keys.len() == KEYS {
            break;
        }
    }
    assert_eq!(keys.len(), KEYS, "too few keys with {steps} steps and {entries} entries");
    (keys.iter().map(|key| hash.hash(key)).collect(), keys)
}

fn filled<T: HashTable<W>, const W: usize>(hash: &Keyed<W>, key: fn(u64) -> Key<W>) -> T {
    let mut table = T::new(SLOTS).unwrap_or_else(|error| panic!("{error}"));
    for i in 0..SLOTS as u64 * 9 / 10 {
        let key = key(i);
        if table.insert(hash.hash(&key), &key, i).is_err() {
            break;
        }
    }
    table
}

fn main() {
    let hash = Keyed::<2>::new(1);
    let keystore: Keystore<2> = filled(&hash, key);
    let flowtable: FlowTable<2> = filled(&hash, key);
    let absent = 1 << 40;
    let kinds = [(0, 1, 1), (0, 2, 1), (absent, 2, 0)]
        .map(|(from, steps, entries)| of_kind(&keystore, &hash, from, steps, entries));
    let flows = [(0, 1, 1), (absent, 1, 0)]
        .map(|(from, steps, entries)| of_kind(&flowtable, &hash, from, steps, entries));
    let mixed: Vec<K> = (0..KEYS as u64).map(key).collect();
    let hashes: Vec<u64> = mixed.iter().map(|key| hash.hash(key)).collect();
    let (mut out, mut found) = (vec![0; KEYS], vec![None; KEYS]);
    let (cuckoo, chaining): (Cuckoo<2>, Chaining<2>) = (filled(&hash, key), filled(&hash, key));
    let long_hash = Keyed::<4>::new(1);
    let long: Keystore<4> = filled(&long_hash, long_key);
    let long_keys: Vec<Long> = (0..KEYS as u64).map(long_key).collect();
    let long_hashes: Vec<u64> = long_keys.iter().map(|key| long_hash.hash(key)).collect();
    let entries = SLOTS * 9 / 10;
    let mut filter = CuckooFilter::new(entries).unwrap_or_else(|error| panic!("{error}"));
    for i in 0..entries as u64 {
        assert!(filter.insert(hash.hash(&key(i))).is_ok(), "no room for key {i}");
    }
    let fibs = FIBS.map(|name| fib(name, 100_000, 1).unwrap_or_else(|error| panic!("{error}")));
    let addresses: Vec<u32> = (0..KEYS as u64).map(|i| mix(i ^ 77) as u32).collect();
    let mut sum = 0_u64;
    for _ in 0..ROUNDS {
        hash_keys(&hash, &mixed, &mut out);
        sum = sum.wrapping_add(only_loop(&hashes, &mixed));
        sum = sum.wrapping_add(keystore_first(&keystore, &kinds[0].0, &kinds[0].1));
        sum = sum.wrapping_add(keystore_second(&keystore, &kinds[1].0, &kinds[1].1));
        sum = sum.wrapping_add(keystore_absent(&keystore, &kinds[2].0, &kinds[2].1));
        sum = sum.wrapping_add(flowtable_home(&flowtable, &flows[0].0, &flows[0].1));
        sum = sum.wrapping_add(flowtable_absent(&flowtable, &flows[1].0, &flows[1].1));
        sum = sum.wrapping_add(cuckoo_mixed(&cuckoo, &hashes, &mixed));
        sum = sum.wrapping_add(chaining_mixed(&chaining, &hashes, &mixed));
        sum = sum.wrapping_add(keystore_mixed(&keystore, &hashes, &mixed));
        sum = sum.wrapping_add(flowtable_mixed(&flowtable, &hashes, &mixed));
        sum = sum.wrapping_add(fib_dxr(&*fibs[0], &addresses));
        sum = sum.wrapping_add(fib_poptrie(&*fibs[1], &addresses));
        sum = sum.wrapping_add(fib_sail(&*fibs[2], &addresses));
        sum = sum.wrapping_add(fib_treebitmap(&*fibs[3], &addresses));
        hash_long_keys(&long_hash, &long_keys, &mut out);
        sum = sum.wrapping_add(long_mixed(&long, &long_hashes, &long_keys));
        sum = sum.wrapping_add(filter_mixed(&filter, &hashes));
        keystore_batch(&keystore, &hashes, &mixed, &mut found);
        flowtable_batch(&flowtable, &hashes, &mixed, &mut found);
    }
    black_box((sum, out, found));
    println!("{} lookups of each kind", KEYS * ROUNDS);
}
