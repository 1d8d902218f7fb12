//! What every structure of the registry owes the access probe: a lookup tells its loads, a patch its stores.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use tidemill_lookup::probe::{Probe, Recorder};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family};
use tidemill_lpm::{Change, Label, Prefix, Rib};

fn every_structure_tells<A: Family>(prefixes: &[&str], change: &str) {
    let table: Rib<A> = (prefixes.iter().zip(1..)).map(|(p, l)| (p.parse().unwrap(), Label(l))).collect();
    let change: Prefix<A> = change.parse().unwrap();
    for algorithm in Algorithm::all::<A>() {
        let domain = Domain::new();
        let mut rib = table.clone();
        let mut writer = algorithm.writer(&rib, &domain).unwrap();
        let loads = Recorder::new();
        let label = writer.fib().lookup_probed(change.first(), &loads);
        assert_eq!(Some(label), rib.lookup(change.first()).map(|(_, label)| label), "{algorithm}");
        assert!(loads.counts().reads > 0, "{algorithm}: a lookup without a load");
        rib.insert(change, Label(99));
        let stores = Recorder::new();
        writer.patch_probed(&rib, &[change], &stores).unwrap();
        assert_eq!(writer.fib().lookup(change.first()), Label(99), "{algorithm}");
        assert!(stores.counts().writes > 0, "{algorithm}: a patch without a store");
    }
}

#[test]
fn a_name_with_a_parameter_that_there_is_not_is_told_which_there_are() {
    let told = |name: &str| Algorithm::parse::<u32>(name).err().map(|error| error.to_string());
    // The bounds that the texts have are those that names are taken by.
    for k in 0..=32 {
        let (direct, extended) = (format!("dxr-d{k}r"), format!("dxr-d12x{k}r"));
        for (name, possible) in [
            (direct, (16..=24).contains(&k)),
            (extended, (16..=24).contains(&(12 + k))),
            (format!("dxr-d{k}x8r"), (8..=16).contains(&k)),
            (format!("poptrie-d{k}"), (12..=24).contains(&k)),
            (format!("popdir-d{k}x{}", 19_i32.abs_diff(k)), (8..=16).contains(&k)),
            (format!("rangetrie-d{k}"), [12, 16, 20, 24].contains(&k)),
        ] {
            assert_eq!(told(&name).is_none(), possible, "{name}");
        }
    }
    for (name, form) in [
        (
            "dxr-d8r",
            "dxr-dKr has K from 16 to 24, dxr-dDxXr has D from 8 to 16 and D + X from 16 to 24; else ",
        ),
        ("popdir-d18", "popdir-d19 has no blocks, popdir-dDxX has D from 8 to 16 and D + X = 19; else use "),
        ("rangetrie-d13", "rangetrie-dD has D = 12, 16, 20 or 24; else use one of auto, "),
        ("poptrie-16", "poptrie-dK has K from 12 to 24; else use one of auto, "),
        ("sail", "\"sail\" is not an IPv4 lookup structure: use one of auto, "),
    ] {
        let told = told(name).unwrap();
        assert!(told.contains(form), "{told}");
    }
    // What IPv6 does not have is not offered.
    let six = Algorithm::parse::<u128>("dxr-d18r").unwrap_err().to_string();
    assert!(six.starts_with("\"dxr-d18r\" is not an IPv6 lookup structure: use one of auto, lulea"), "{six}");
}

/// A prefix that comes and goes, one change at a time, in a table with one around it: each time the answer of its addresses changes, so at
/// least one word of what lookups read does.
fn coming_and_going_is_told<A: Family>(around: &str, comes: &str) {
    let (around, comes): (Prefix<A>, Prefix<A>) = (around.parse().unwrap(), comes.parse().unwrap());
    for algorithm in Algorithm::all::<A>() {
        let domain = Domain::new();
        let mut rib: Rib<A> = [(around, Label(1))].into_iter().collect();
        let mut writer = algorithm.writer(&rib, &domain).unwrap();
        for turn in 0..12 {
            let change = match turn % 2 {
                0 => Change::Announce(comes, Label(2)),
                _ => Change::Withdraw(comes),
            };
            assert!(rib.apply(&change));
            let stores = Recorder::new();
            if writer.patch_probed(&rib, &[comes], &stores).is_err() {
                writer = algorithm.writer(&rib, &domain).unwrap();
                continue;
            }
            assert!(stores.counts().writes > 0, "{algorithm}, change {turn}");
            assert_eq!(writer.fib().lookup(comes.first()), Label(2 - turn % 2), "{algorithm}");
        }
    }
}

/// A prefix of each kind over one address: of a root's width and less, of the next strides, and of hosts.
const V4: [&str; 6] =
    ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.128/25", "10.1.2.135/32"];
/// A key whose longest match is each of them.
const V4_KEYS: [&str; 6] = ["192.0.2.1", "10.9.9.9", "10.1.9.9", "10.1.2.3", "10.1.2.200", "10.1.2.135"];
const V6: [&str; 6] = [
    "::/0",
    "2001:db8::/32",
    "2001:db8:1::/48",
    "2001:db8:1:2::/64",
    "2001:db8:1:2:3::/80",
    "2001:db8:1:2:3::7/128",
];
const V6_KEYS: [&str; 6] = [
    "3000::1",
    "2001:db8:9::",
    "2001:db8:1:9::",
    "2001:db8:1:2:9::",
    "2001:db8:1:2:3::9",
    "2001:db8:1:2:3::7",
];

/// Loads of a lookup of each key, as the structures' pages count them.
type Loads = (&'static str, [u64; 6]);

const LOADS_V4: &[Loads] = &[
    // A direct entry and a descriptor, and where a /24 is cut the steps of a search.
    ("dxr-d16x4r", [2, 2, 6, 6, 6, 6]),
    ("dxr-d18r", [1, 1, 5, 5, 5, 5]),
    // A direct entry (or none), a descriptor, and what lists the prefixes beyond /24.
    ("popdir-d16x3", [2, 2, 7, 7, 7, 7]),
    ("popdir-d19", [1, 1, 6, 6, 6, 6]),
    // A root word, and two loads for each node.
    ("rangetrie-d16", [1, 1, 3, 3, 3, 3]),
    ("rangetrie-d20", [1, 1, 3, 3, 3, 3]),
    // A root entry, nodes, a leaf.
    ("poptrie-d18", [1, 1, 3, 4, 4, 5]),
    // A node for each bit that the key shares with the longest path, and the root.
    ("binary-trie", [1, 13, 21, 25, 26, 33]),
    // A node for each place where prefixes part, and what hangs there.
    ("patricia", [1, 3, 4, 4, 5, 6]),
    // A cell of 2^24, and one of a block.
    ("dir-24-8", [1, 1, 1, 2, 2, 2]),
    ("tree-bitmap", [1, 1, 4, 4, 5, 6]),
    ("lc-trie", [2, 2, 5, 4, 3, 2]),
    // Bitmaps from 24 down to the answer's length, a label, and one more where a /24 has a chunk.
    ("sail-b", [25 + 1, 17 + 1, 9 + 1, 1 + 2, 1 + 2, 1 + 2]),
    // The same of levels 24, 18, 12 and 6.
    ("sail-u", [4 + 1, 3 + 1, 2 + 1, 1 + 2, 1 + 2, 1 + 2]),
    // A cell of each level.
    ("sail-l", [1, 1, 2, 3, 3, 3]),
    // And the number of the chunk.
    ("sail-l8", [1, 1, 2, 4, 4, 4]),
    // A cell of each level, up to three words and a label up to /16; what is beside a chunk.
    ("sail-lv", [1 + 3 + 1, 1 + 2 + 1, 2 + 1 + 1, 4, 3, 3]),
    // A cell, a word of the bitmap, a label or a cell and a label.
    ("sail-m", [2, 2, 3, 4, 4, 4]),
    // Four bytes of the key, then a length, a byte and a bucket for each length down to the answer's.
    ("hash-per-length", [4 + 6 * 3, 4 + 5 * 3, 4 + 4 * 3, 4 + 3 * 3, 4 + 2 * 3, 4 + 3]),
    // The same with one or two buckets of the filter, and one bucket of the table.
    ("cuvpp", [28, 24, 20, 16, 12, 8]),
    ("bloom-lpm", [27, 24, 22, 19, 14, 11]),
    ("two-way-trie", [3, 16, 25, 30, 32, 39]),
    // Three steps at most among six lengths.
    ("length-search", [14, 14, 11, 14, 14, 11]),
    ("pbf", [14, 14, 14, 19, 16, 13]),
    // Codeword, base, row and pointer, and three for each chunk.
    ("lulea-1997", [4, 4, 4 + 3, 4 + 6, 4 + 6, 4 + 6]),
    ("cuvpp-simd", [28, 24, 20, 16, 12, 8]),
    ("cuvpp-lengths", [17, 16, 12, 12, 15, 14]),
];

const LOADS_V6: &[Loads] = &[
    ("lulea", [1, 8, 12, 16, 28, 28]),
    ("rangetrie-d16", [1, 5, 7, 9, 15, 15]),
    ("rangetrie-d20", [1, 5, 7, 9, 15, 15]),
    ("poptrie-d18", [1, 7, 10, 12, 20, 21]),
    ("binary-trie", [4, 45, 61, 77, 125, 129]),
    ("patricia", [2, 3, 4, 5, 6, 6]),
    // A flag and a cell for each level: 16, 24, 32, 40, 48, 64, and every 8 bits behind; the last level has no flags.
    ("sail-l", [2, 2 * 5, 2 * 6, 2 * 8, 2 * 14 - 1, 2 * 14 - 1]),
    ("tree-bitmap", [1, 8, 10, 13, 21, 22]),
    ("lc-trie", [2, 6, 5, 4, 3, 2]),
    // Sixteen bytes of the key, then as for IPv4.
    ("hash-per-length", [16 + 6 * 3, 16 + 5 * 3, 16 + 4 * 3, 16 + 3 * 3, 16 + 2 * 3, 16 + 3]),
    ("cuvpp", [40, 36, 32, 28, 24, 21]),
    ("bloom-lpm", [38, 36, 35, 29, 26, 23]),
    // The bitmaps; or the bit of length 24, four loads for each filter that says no, 13 for each that says yes; and a bucket.
    (
        "sail-hybrid",
        [25 + 1, 1 + 4 * 4 + 13 + 1, 1 + 3 * 4 + 26 + 1, 1 + 2 * 4 + 39 + 1, 1 + 4 + 52 + 1, 1 + 65 + 1],
    ),
    ("two-way-trie", [6, 51, 69, 87, 137, 147]),
    ("length-search", [26, 26, 23, 26, 26, 23]),
    ("pbf", [32, 37, 34, 31, 28, 25]),
    ("cuvpp-simd", [40, 36, 32, 28, 24, 21]),
    ("cuvpp-lengths", [29, 28, 24, 24, 27, 26]),
];

/// Whose hash has a random key: a filter that says no may look at a few bits more.
const RANDOM: (&str, u64) = ("sail-hybrid", 24);

fn lookups_load_what_the_pages_say<A: Family>(prefixes: &[&str], keys: &[&str], stated: &[Loads]) {
    let found = loads::<A>(prefixes, keys);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, stated.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "every structure is stated");
    for ((name, found), (_, stated)) in found.iter().zip(stated) {
        let more = if name == RANDOM.0 { RANDOM.1 } else { 0 };
        let within = found.iter().zip(stated).all(|(found, least)| (*least..=least + more).contains(found));
        assert!(within, "{name}, IPv{}: {found:?}, the page {stated:?}", A::FAMILY);
    }
}

#[test]
fn every_lookup_loads_what_its_page_says() {
    lookups_load_what_the_pages_say::<u32>(&V4, &V4_KEYS, LOADS_V4);
    lookups_load_what_the_pages_say::<u128>(&V6, &V6_KEYS, LOADS_V6);
}

/// Loads of one lookup for each key, by every structure.
fn loads<A: Family>(prefixes: &[&str], keys: &[&str]) -> Vec<(String, Vec<u64>)> {
    let table: Rib<A> = (prefixes.iter().zip(1..)).map(|(p, l)| (p.parse().unwrap(), Label(l))).collect();
    let of = |algorithm: Algorithm| {
        let fib = algorithm.writer(&table, &Domain::new()).unwrap().fib();
        let loads = keys.iter().map(|text| {
            let (key, probe) = (A::parse(text).unwrap(), Recorder::new());
            assert_eq!(Some(fib.lookup_probed(key, &probe)), table.lookup(key).map(|(_, label)| label));
            probe.counts().reads
        });
        (algorithm.to_string(), loads.collect())
    };
    Algorithm::all::<A>().into_iter().filter(|&algorithm| algorithm != Algorithm::Auto).map(of).collect()
}

#[test]
fn ipv4_routes_that_come_and_go_are_told() {
    coming_and_going_is_told::<u32>("240.0.0.0/8", "240.1.1.0/24");
    coming_and_going_is_told::<u32>("240.1.1.0/24", "240.1.1.128/25");
}

#[test]
fn ipv6_routes_that_come_and_go_are_told() {
    coming_and_going_is_told::<u128>("2001:db8::/32", "2001:db8:1::/48");
    coming_and_going_is_told::<u128>("2001:db8::/32", "2001:db8:1:2::/63");
}

#[test]
fn ipv4_loads_and_stores_are_told() {
    every_structure_tells::<u32>(&["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24"], "10.1.2.128/25");
}

#[test]
fn ipv6_loads_and_stores_are_told() {
    every_structure_tells::<u128>(&["::/0", "2001:db8::/32", "2001:db8:1::/48"], "2001:db8:1:2::/64");
}

const PAGE: usize = 4096;

/// A load: the page, by number in the order of their first loads; the place on it; bytes.
type Place = (usize, usize, usize);

/// Where loads are, as the simulated machine of crates/sim sees them.
#[derive(Default)]
struct Places(RefCell<(Vec<usize>, Vec<Place>)>);

impl Probe for Places {
    fn read(&self, address: usize, size: usize, _: bool) {
        let (pages, places) = &mut *self.0.borrow_mut();
        let page = address / PAGE;
        let known = pages.iter().position(|&known| known == page);
        if known.is_none() {
            pages.push(page);
        }
        places.push((known.unwrap_or(pages.len() - 1), address % PAGE, size));
    }
}

/// Yardsticks that keep something that lookups read beside their arrays, where the allocator had room.
const ON_THE_HEAP: [(&str, &[u8]); 5] = [
    ("length-search", &[4, 6]),
    ("pbf", &[4, 6]),
    ("cuvpp-lengths", &[4, 6]),
    ("sail-l", &[6]),
    ("sail-hybrid", &[6]),
];

/// Loads of lookups in a structure that is built by a thread of its own, after it has allocated some things of odd sizes.
fn places<A: Family>(algorithm: Algorithm, table: &Rib<A>, keys: &[A], things: usize) -> Vec<Place> {
    std::thread::scope(|scope| {
        let looked_up = scope.spawn(|| {
            let before: Vec<Vec<u8>> = (0..things).map(|i| vec![1; 24 + 40 * i]).collect();
            let fib = algorithm.writer(table, &Domain::new()).unwrap().fib();
            let places = Places::default();
            for &key in keys {
                fib.lookup_probed(key, &places);
            }
            assert_eq!(before.len(), things);
            places.0.into_inner().1
        });
        looked_up.join().unwrap()
    })
}

/// What a lookup loads, and on which lines of which pages, follows from the table alone: simulations are the same every time, on any thread.
fn loads_do_not_depend_on_the_allocator<A: Family>() {
    let prefix = |i: u128| {
        let bits = i.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> (128 - u32::from(A::BITS));
        Prefix::new(A::from_u128(bits), 12 + (i % u128::from(A::BITS - 11)) as u8).unwrap()
    };
    let table: Rib<A> = (1..400).map(|i| (prefix(i), Label(1 + i as u32 % 200))).collect();
    let keys: Vec<A> = (1..400).map(|i| prefix(i).last()).collect();
    for algorithm in Algorithm::all::<A>() {
        let name = algorithm.to_string();
        if !ON_THE_HEAP.iter().any(|(known, families)| *known == name && families.contains(&A::FAMILY)) {
            let [one, other] = [0, 37].map(|things| places(algorithm, &table, &keys, things));
            assert!(one.len() >= keys.len(), "{name}");
            let differs = one.iter().zip(&other).position(|(one, other)| one != other);
            assert_eq!((differs, one.len()), (None, other.len()), "{name}, IPv{}", A::FAMILY);
        }
    }
}

#[test]
fn ipv4_loads_do_not_depend_on_the_allocator() {
    loads_do_not_depend_on_the_allocator::<u32>();
}

#[test]
fn ipv6_loads_do_not_depend_on_the_allocator() {
    loads_do_not_depend_on_the_allocator::<u128>();
}
