//! The functions as C calls them: answers, errors, and what happens beside the right path.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_lpm::suite::{edges, random_case};
use tidemill_lpm::{Change, Label, Oracle, Prefix};
use tidemill_lpm_c::api::*;

fn last_error() -> String {
    // SAFETY: valid until the next error of this thread.
    unsafe { CStr::from_ptr(tm_lpm_last_error()) }.to_str().unwrap().to_owned()
}

/// Sees that a call fails with this code and a text in which this occurs.
#[track_caller]
fn fails(status: i32, code: i32, text: &str) {
    assert_eq!(status, code, "{}", last_error());
    assert!(last_error().contains(text), "{:?} has no {text:?}", last_error());
}

const ROUTES4: [Route4; 3] = [
    Route4 { addr: 0x0a00_0000, len: 8, label: 1 },
    Route4 { addr: 0x0a01_0000, len: 16, label: 2 },
    Route4 { addr: 0x0a01_0203, len: 32, label: 70_000 },
];

fn table4(algorithm: &CStr, routes: &[Route4]) -> *mut Table4 {
    let mut table = null_mut();
    // SAFETY: a string, an array with its length, room for the handle.
    let status = unsafe { tm_lpm4_create(algorithm.as_ptr(), routes.as_ptr(), routes.len(), &mut table) };
    assert_eq!(status, TM_LPM_OK, "{}", last_error());
    table
}

fn address6(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

/// What a reader says of these keys.
fn labels4(reader: *const Reader4, keys: &[u32]) -> Vec<u32> {
    let mut labels = vec![u32::MAX; keys.len()];
    // SAFETY: arrays of this length.
    let status = unsafe { tm_lpm4_lookup(reader, keys.as_ptr(), labels.as_mut_ptr(), keys.len()) };
    assert_eq!(status, TM_LPM_OK, "{}", last_error());
    labels
}

#[test]
fn ipv4_routes_are_found_added_and_withdrawn() {
    for algorithm in [c"auto", c"dxr-d18r", c"poptrie-d18", c"rangetrie-d16"] {
        let table = table4(algorithm, &ROUTES4);
        let (mut reader, mut changed, mut prefixes, mut bytes) = (null_mut(), 0, 0, 0);
        let mut name = [1; 8];
        // SAFETY: handles that were just made, pointers to locals.
        unsafe {
            assert_eq!(tm_lpm4_reader_create(table, &mut reader), TM_LPM_OK);
            let keys = [0x0a01_0203, 0x0a01_0204, 0x0aff_0000, 0x0b00_0000];
            assert_eq!(labels4(reader, &keys), [70_000, 2, 1, 0]);
            assert_eq!(tm_lpm4_add(table, 0x0b00_0000, 8, 9), TM_LPM_OK);
            assert_eq!(tm_lpm4_withdraw(table, 0x0a01_0000, 16), TM_LPM_OK);
            assert_eq!(tm_lpm4_withdraw(table, 0x0a02_0000, 16), TM_LPM_OK);
            assert_eq!(labels4(reader, &keys), [70_000, 2, 1, 0], "not committed");
            assert_eq!(tm_lpm4_commit(table, &mut changed), TM_LPM_OK);
            assert_eq!((changed, labels4(reader, &keys)), (2, vec![70_000, 1, 1, 9]));
            assert_eq!(tm_lpm4_commit(table, null_mut()), TM_LPM_OK);
            assert_eq!(tm_lpm4_describe(table, &mut prefixes, &mut bytes, name.as_mut_ptr(), 8), TM_LPM_OK);
            assert!(prefixes == 3 && bytes > 1000 && name[6] != 0 && name[7] == 0, "{name:?}");
            assert_eq!(tm_lpm4_describe(table, null_mut(), null_mut(), null_mut(), 8), TM_LPM_OK);
            // A reader goes on without its table.
            tm_lpm4_free(table);
            assert_eq!(labels4(reader, &keys), [70_000, 1, 1, 9]);
            assert_eq!(tm_lpm4_lookup(reader, null(), null_mut(), 0), TM_LPM_OK);
            tm_lpm4_reader_free(reader);
        }
    }
}

#[test]
fn ipv6_routes_are_found_added_and_withdrawn() {
    let route = |addr, len, label| Route6 { addr: address6(addr), len, label };
    let routes = [route("2001:db8::", 32, 1), route("2001:db8::1", 128, 2)];
    let (mut table, mut reader) = (null_mut(), null_mut());
    // More keys than are turned into numbers at once.
    let keys = [["2001:db8::1", "2001:db8::2", "2001:db9::"].map(address6); 200].concat();
    let mut labels = vec![u32::MAX; keys.len()];
    // SAFETY: pointers to locals and arrays of the length given, handles that were just made.
    unsafe {
        assert_eq!(tm_lpm6_create(null(), routes.as_ptr(), 2, &mut table), TM_LPM_OK);
        assert_eq!(tm_lpm6_reader_create(table, &mut reader), TM_LPM_OK);
        let mut lookup = || {
            let status = tm_lpm6_lookup(reader, keys.as_ptr(), labels.as_mut_ptr(), keys.len());
            assert_eq!(status, TM_LPM_OK, "{}", last_error());
            labels.clone()
        };
        assert_eq!(lookup(), [2, 1, 0].repeat(200));
        assert_eq!(tm_lpm6_add(table, &address6("2001:db9::"), 32, 5), TM_LPM_OK);
        assert_eq!(tm_lpm6_withdraw(table, &address6("2001:db8::1"), 128), TM_LPM_OK);
        assert_eq!(tm_lpm6_commit(table, null_mut()), TM_LPM_OK);
        assert_eq!(lookup(), [1, 1, 5].repeat(200));
        fails(tm_lpm6_add(table, null(), 32, 5), TM_LPM_NULL, "addr is NULL");
        fails(tm_lpm6_add(table, &address6("::1"), 64, 5), TM_LPM_PREFIX, "did you mean ::/64?");
        tm_lpm6_reader_free(reader);
        tm_lpm6_free(table);
    }
}

#[test]
fn errors_are_codes_with_a_text() {
    let table = table4(c"auto", &ROUTES4);
    let (mut reader, mut other) = (null_mut(), null_mut());
    let bad = [ROUTES4[0], Route4 { addr: 0x0a00_0001, len: 8, label: 1 }];
    let mut keys = [0_u32; 8];
    // SAFETY: what is not right is what the functions check.
    unsafe {
        let mut create =
            |name: *const _, routes: *const Route4, count| tm_lpm4_create(name, routes, count, &mut other);
        fails(create(c"fast".as_ptr(), null(), 0), TM_LPM_ALGORITHM, "is not an IPv4 lookup structure");
        fails(create(c"\xff".as_ptr(), null(), 0), TM_LPM_POINTER, "algorithm is not UTF-8");
        fails(create(null(), null(), 1), TM_LPM_NULL, "routes is NULL");
        fails(create(null(), bad.as_ptr().byte_add(1), 1), TM_LPM_POINTER, "routes is not aligned");
        fails(create(null(), bad.as_ptr(), usize::MAX), TM_LPM_POINTER, "more than memory holds");
        fails(create(null(), bad.as_ptr(), 2), TM_LPM_PREFIX, "route 1: 10.0.0.1/8 has host bits set");
        fails(tm_lpm4_create(null(), null(), 0, null_mut()), TM_LPM_NULL, "table is NULL");
        fails(tm_lpm4_add(table, 0, 33, 1), TM_LPM_PREFIX, "0.0.0.0/33: the length is at most 32");
        fails(tm_lpm4_add(null(), 0, 0, 1), TM_LPM_NULL, "table is NULL");
        fails(tm_lpm4_withdraw(null(), 0, 0), TM_LPM_NULL, "table is NULL");
        fails(tm_lpm4_commit(null(), null_mut()), TM_LPM_NULL, "table is NULL");
        fails(tm_lpm4_describe(null(), null_mut(), null_mut(), null_mut(), 0), TM_LPM_NULL, "table");
        fails(tm_lpm4_reader_create(null(), &mut reader), TM_LPM_NULL, "table is NULL");
        fails(tm_lpm4_reader_create(table, null_mut()), TM_LPM_NULL, "reader is NULL");
        assert_eq!(tm_lpm4_reader_create(table, &mut reader), TM_LPM_OK);
        let (all, labels) = (keys.as_ptr(), keys.as_mut_ptr());
        fails(tm_lpm4_lookup(null(), all, labels.add(4), 4), TM_LPM_NULL, "reader is NULL");
        fails(tm_lpm4_lookup(reader, null(), labels, 4), TM_LPM_NULL, "keys is NULL");
        fails(tm_lpm4_lookup(reader, all, null_mut(), 4), TM_LPM_NULL, "labels is NULL");
        fails(tm_lpm4_lookup(reader, all, labels.add(3), 4), TM_LPM_POINTER, "keys and labels overlap");
        assert_eq!(tm_lpm4_lookup(reader, all, labels.add(4), 4), TM_LPM_OK);
        assert_eq!(tm_lpm4_offline(reader), TM_LPM_OK);
        fails(tm_lpm4_lookup(reader, all, labels.add(4), 4), TM_LPM_OFFLINE, "the reader is offline");
        assert_eq!(tm_lpm4_quiescent(reader), TM_LPM_OK);
        fails(tm_lpm4_lookup(reader, all, labels.add(4), 4), TM_LPM_OFFLINE, "the reader is offline");
        assert_eq!(tm_lpm4_online(reader), TM_LPM_OK);
        assert_eq!(tm_lpm4_lookup(reader, all, labels.add(4), 4), TM_LPM_OK);
        fails(tm_lpm4_quiescent(null_mut()), TM_LPM_NULL, "reader is NULL");
        tm_lpm4_free(null_mut());
        tm_lpm4_reader_free(null_mut());
        tm_lpm4_reader_free(reader);
        tm_lpm4_free(table);
    }
}

/// A label of 32 bits fits no entry of a range trie: the table stays as it was, and can be changed again.
#[test]
fn changes_that_do_not_fit_change_nothing() {
    let table = table4(c"rangetrie-d16", &ROUTES4);
    let mut reader = null_mut();
    // SAFETY: handles that were just made.
    unsafe {
        assert_eq!(tm_lpm4_reader_create(table, &mut reader), TM_LPM_OK);
        assert_eq!(tm_lpm4_add(table, 0x0b00_0000, 8, 4), TM_LPM_OK);
        assert_eq!(tm_lpm4_add(table, 0x0c00_0000, 8, u32::MAX), TM_LPM_OK);
        fails(tm_lpm4_commit(table, null_mut()), TM_LPM_BUILD, "label 4294967295");
        assert_eq!(labels4(reader, &[0x0a00_0000, 0x0b00_0000, 0x0c00_0000]), [1, 0, 0]);
        assert_eq!(tm_lpm4_add(table, 0x0b00_0000, 8, 4), TM_LPM_OK);
        assert_eq!(tm_lpm4_commit(table, null_mut()), TM_LPM_OK);
        assert_eq!(labels4(reader, &[0x0a00_0000, 0x0b00_0000, 0x0c00_0000]), [1, 4, 0]);
        tm_lpm4_reader_free(reader);
        tm_lpm4_free(table);
    }
}

#[test]
fn one_worker_looks_into_all_tables_of_a_domain() {
    let (mut domain, mut worker, mut other) = (null_mut(), null_mut(), null_mut());
    let mut tables = [null_mut(); 20];
    let (mut six, mut alone, mut labels) = (null_mut(), null_mut(), [u32::MAX; 3]);
    let keys = [0x0a01_0203, 0x0a01_0204, 0x0a02_0000];
    // Enough that what is shared shows.
    let mut routes: Vec<Route4> =
        (0..3000).map(|i| Route4 { addr: i << 18, len: 26, label: 1 + i % 9 }).collect();
    routes.extend(ROUTES4);
    let route6 = Route6 { addr: address6("2001:db8::"), len: 32, label: 5 };
    let key6 = address6("2001:db8::1");
    // SAFETY: pointers to locals and arrays of the length given, handles that were just made.
    unsafe {
        fails(tm_lpm_domain_create(null_mut()), TM_LPM_NULL, "domain is NULL");
        assert_eq!(tm_lpm_domain_create(&mut domain), TM_LPM_OK);
        fails(tm_lpm_worker_create(null(), &mut worker), TM_LPM_NULL, "domain is NULL");
        assert_eq!(tm_lpm_worker_create(domain, &mut worker), TM_LPM_OK);
        let shared = c"shared".as_ptr();
        for table in &mut tables {
            let (all, count) = (routes.as_ptr(), routes.len());
            assert_eq!(tm_lpm4_create_in(domain, shared, all, count, table), TM_LPM_OK, "{}", last_error());
        }
        assert_eq!(tm_lpm6_create_in(domain, shared, &route6, 1, &mut six), TM_LPM_OK, "{}", last_error());
        // Which a table on its own has nobody to do with.
        fails(tm_lpm4_create(shared, null(), 0, &mut alone), TM_LPM_ALGORITHM, "\"shared\" is not");
        fails(tm_lpm4_create_in(null(), shared, null(), 0, &mut alone), TM_LPM_NULL, "domain is NULL");
        assert_eq!(tm_lpm4_create_in(domain, null(), ROUTES4.as_ptr(), 3, &mut alone), TM_LPM_OK);
        let mut look = |table: *const Table4, worker: *const Worker| {
            let status = tm_lpm4_lookup_by(table, worker, keys.as_ptr(), labels.as_mut_ptr(), keys.len());
            (status, labels)
        };
        assert_eq!(look(alone, worker), (TM_LPM_OK, [70_000, 2, 1]));
        for table in tables {
            assert_eq!(look(table, worker), (TM_LPM_OK, [70_000, 2, 1]));
        }
        // A change of one is no change of the others.
        assert_eq!(tm_lpm4_add(tables[7], 0x0a01_0000, 16, 8), TM_LPM_OK);
        assert_eq!(tm_lpm4_commit(tables[7], null_mut()), TM_LPM_OK);
        assert_eq!(tm_lpm_worker_quiescent(worker), TM_LPM_OK);
        for (i, table) in tables.into_iter().enumerate() {
            assert_eq!(look(table, worker).1, [70_000, if i == 7 { 8 } else { 2 }, 1]);
        }
        let mut label = 0;
        assert_eq!(tm_lpm6_lookup_by(six, worker, &key6, &mut label, 1), TM_LPM_OK);
        assert_eq!(label, 5);
        fails(tm_lpm6_lookup_by(null(), worker, &key6, &mut label, 1), TM_LPM_NULL, "table is NULL");
        assert_eq!(tm_lpm_worker_offline(worker), TM_LPM_OK);
        assert_eq!(tm_lpm_worker_quiescent(worker), TM_LPM_OK);
        fails(look(alone, worker).0, TM_LPM_OFFLINE, "the worker is offline");
        assert_eq!(tm_lpm_worker_online(worker), TM_LPM_OK);
        assert_eq!(look(alone, worker).0, TM_LPM_OK);
        // A worker of another domain would not be waited for.
        let mut elsewhere = null_mut();
        assert_eq!(tm_lpm_domain_create(&mut elsewhere), TM_LPM_OK);
        assert_eq!(tm_lpm_worker_create(elsewhere, &mut other), TM_LPM_OK);
        fails(look(alone, other).0, TM_LPM_DOMAIN, "another domain");
        fails(look(alone, null()).0, TM_LPM_NULL, "worker is NULL");
        fails(tm_lpm_worker_quiescent(null_mut()), TM_LPM_NULL, "worker is NULL");
        // The domain may go first.
        tm_lpm_domain_free(domain);
        tm_lpm_domain_free(elsewhere);
        tm_lpm_domain_free(null_mut());
        assert_eq!(look(tables[7], worker), (TM_LPM_OK, [70_000, 8, 1]));
        tables.into_iter().chain([alone]).for_each(|table| tm_lpm4_free(table));
        tm_lpm6_free(six);
        tm_lpm_worker_free(worker);
        tm_lpm_worker_free(other);
        tm_lpm_worker_free(null_mut());
    }
}

/// A pointer that one thread hands to another.
#[derive(Clone, Copy)]
struct Handed<T>(T);
// SAFETY: tables are for any thread; a reader is used by the one thread that it is handed to.
unsafe impl<T> Send for Handed<T> {}

#[test]
fn readers_look_up_while_the_table_changes() {
    let table = table4(c"auto", &ROUTES4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (table, stop) = (Handed(table.cast_const()), &stop);
            scope.spawn(move || {
                let (Handed(table), mut reader) = (table, null_mut());
                // SAFETY: the table lives until all threads have ended; the reader is this thread's.
                unsafe {
                    assert_eq!(tm_lpm4_reader_create(table, &mut reader), TM_LPM_OK);
                    while !stop.load(Ordering::Relaxed) {
                        let labels = labels4(reader, &[0x0a01_0204, 0x0a01_0203, 0x0b00_0000]);
                        assert!(matches!(labels[..], [2 | 3, 70_000, 0]), "{labels:?}");
                        assert_eq!(tm_lpm4_quiescent(reader), TM_LPM_OK);
                    }
                    tm_lpm4_reader_free(reader);
                }
            });
        }
        for i in 0..500 {
            // SAFETY: a handle that was just made.
            unsafe {
                assert_eq!(tm_lpm4_add(table, 0x0a01_0000, 16, 2 + i % 2), TM_LPM_OK);
                assert_eq!(tm_lpm4_commit(table, null_mut()), TM_LPM_OK);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // SAFETY: nobody uses it any more.
    unsafe { tm_lpm4_free(table) };
}

/// Runs the suite's random tables and changes through a family's functions: three tables of one domain, two of which share, each with every
/// third batch. `$by` is how an address is handed over, `$key` what it is.
macro_rules! suite_in_c {
    (
        $test:ident, $address:ty, [$($by:tt)?] $key:expr, $route:ident, $table:ident,
        $create:ident, $add:ident, $withdraw:ident, $commit:ident, $lookup:ident, $free:ident
    ) => {
        #[test]
        fn $test() {
            type Truth = BTreeMap<Prefix<$address>, Label>;
            let key = $key;
            for case in (0..40).map(random_case::<$address>) {
                let keys: Vec<$address> = case.prefixes().flat_map(edges).collect();
                let asked: Vec<_> = keys.iter().map(|&addr| key(addr)).collect();
                let route = |&(prefix, label): &(Prefix<$address>, Label)| {
                    $route { addr: key(prefix.first()), len: prefix.len(), label: label.0 }
                };
                let routes: Vec<$route> = case.table.iter().map(route).collect();
                let truth: Truth = case.table.iter().copied().collect();
                let (mut domain, mut worker) = (null_mut(), null_mut());
                // SAFETY: pointers to locals and arrays of the length given; handles that were just made, and are freed once.
                unsafe {
                    assert_eq!(tm_lpm_domain_create(&mut domain), TM_LPM_OK);
                    assert_eq!(tm_lpm_worker_create(domain, &mut worker), TM_LPM_OK);
                    let mut tables: Vec<(*mut $table, Truth)> = Vec::new();
                    for name in [c"shared", c"shared", c"auto"] {
                        let (routes, count, mut table) = (routes.as_ptr(), routes.len(), null_mut());
                        let status = $create(domain, name.as_ptr(), routes, count, &mut table);
                        assert_eq!(status, TM_LPM_OK, "{}", last_error());
                        tables.push((table, truth.clone()));
                    }
                    let check = |(table, truth): &(*mut $table, Truth)| {
                        let list: Vec<(Prefix<$address>, Label)> =
                            truth.iter().map(|(&prefix, &label)| (prefix, label)).collect();
                        let oracle = Oracle::new(&list);
                        let expected: Vec<u32> = keys.iter().map(|&addr| oracle.lookup(addr).0).collect();
                        let mut labels = vec![u32::MAX; asked.len()];
                        let to = labels.as_mut_ptr();
                        let status = $lookup(*table, worker, asked.as_ptr(), to, asked.len());
                        assert_eq!(status, TM_LPM_OK, "{}", last_error());
                        assert_eq!(labels, expected, "{case}");
                    };
                    tables.iter().for_each(check);
                    for (i, batch) in case.batches.iter().enumerate() {
                        let (table, truth) = &mut tables[i % 3];
                        for change in batch {
                            let status = match *change {
                                Change::Announce(prefix, label) => {
                                    truth.insert(prefix, label);
                                    $add(*table, $($by)? key(prefix.first()), prefix.len(), label.0)
                                }
                                Change::Withdraw(prefix) => {
                                    truth.remove(&prefix);
                                    $withdraw(*table, $($by)? key(prefix.first()), prefix.len())
                                }
                            };
                            assert_eq!(status, TM_LPM_OK, "{}: {}", change.prefix(), last_error());
                        }
                        assert_eq!($commit(*table, null_mut()), TM_LPM_OK, "{}", last_error());
                        tables.iter().for_each(check);
                        // A worker that is late keeps what tables have replaced.
                        if i % 2 == 0 {
                            assert_eq!(tm_lpm_worker_quiescent(worker), TM_LPM_OK);
                        }
                    }
                    tables.into_iter().for_each(|(table, _)| $free(table));
                    tm_lpm_worker_free(worker);
                    tm_lpm_domain_free(domain);
                }
            }
        }
    };
}
suite_in_c!(
    ipv4_tables_of_the_suite, u32, [] |addr: u32| addr, Route4, Table4,
    tm_lpm4_create_in, tm_lpm4_add, tm_lpm4_withdraw, tm_lpm4_commit, tm_lpm4_lookup_by, tm_lpm4_free
);
suite_in_c!(
    ipv6_tables_of_the_suite, u128, [&] |addr: u128| addr.to_be_bytes(), Route6, Table6,
    tm_lpm6_create_in, tm_lpm6_add, tm_lpm6_withdraw, tm_lpm6_commit, tm_lpm6_lookup_by, tm_lpm6_free
);
