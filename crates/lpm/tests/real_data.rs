//! The real tables and updates, against the oracle. Release takes seconds: `TIDEMILL_DATA=... cargo test --release -p tidemill-lpm`.

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tidemill_lookup::probe::Recorder;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::auto;
use tidemill_lpm::dxr::{DxrConfig, Layout, Shared};
use tidemill_lpm::keys::{Pattern, keys};
use tidemill_lpm::rib::Change;
use tidemill_lpm::table::{Algorithm, Family, How, Table};
use tidemill_lpm::{BuildError, Fib, Label, Oracle, Prefix, Rib};

const RANDOM_KEYS: usize = 1_000_000;

fn algorithms<A: Family>() -> Vec<Algorithm> {
    Algorithm::all::<A>().into_iter().filter(|a| *a != Algorithm::Auto).collect()
}

/// Both ends of every interval, a million random and prefix-based keys: singly at the ends, in bursts all.
fn verify<A: Family>(fib: &dyn Fib<A>, list: &[(Prefix<A>, Label)], rib: &Rib<A>) {
    let oracle = Oracle::new(list);
    let mut all: Vec<A> = oracle.intervals().flat_map(|i| [i.start, i.end]).collect();
    for (i, &key) in all.iter().enumerate().step_by(3) {
        assert_eq!(fib.lookup(key), oracle.lookup(key), "{}: {} ({i})", fib.name(), key.to_ip());
    }
    all.extend(keys(rib, Pattern::Random, RANDOM_KEYS / 2, 1));
    all.extend(keys(rib, Pattern::PrefixBased, RANDOM_KEYS / 2, 2));
    let mut labels = vec![Label(u32::MAX); all.len()];
    fib.lookup_batch(&all, &mut labels);
    for (&key, &label) in all.iter().zip(&labels) {
        assert_eq!(label, oracle.lookup(key), "{}: {} in a burst", fib.name(), key.to_ip());
    }
}

fn verify_table<A: Family>(path: &Path, prefixes: usize) {
    let list = common::table::<A>(path);
    assert_eq!(list.len(), prefixes, "{}", path.display());
    let rib: Rib<A> = list.iter().copied().collect();
    let domain = Domain::new();
    for algorithm in algorithms::<A>() {
        match algorithm.writer(&rib, &domain) {
            Ok(writer) => verify(&*writer.fib(), &list, &rib),
            // Of 8 bits: `sail-l8`.
            Err(BuildError::LabelTooWide { label: 255.., width_bits: 8, .. }) => {
                println!("{algorithm}: labels are too wide");
            }
            Err(error) => panic!("{algorithm}: {error}"),
        }
    }
}

/// Applies the changes in batches, and verifies after each quarter of them.
fn verify_updates<A: Family>(path: &Path, changes: &[Change<A>], batch: usize) {
    let list = common::table::<A>(path);
    let rib: Rib<A> = list.iter().copied().collect();
    let domain = Domain::new();
    for algorithm in algorithms::<A>() {
        let mut table = Table::new(&domain, rib.clone(), &algorithm).unwrap_or_else(|e| panic!("{e}"));
        let (mut patched, mut rebuilt) = (0, 0);
        // The truth is kept apart from the table's RIB, which is under test too.
        let mut truth: HashMap<Prefix<A>, Label> = list.iter().copied().collect();
        for part in changes.chunks(changes.len().div_ceil(4)) {
            for batch in part.chunks(batch) {
                match table.apply(batch).unwrap_or_else(|e| panic!("{algorithm}: {e}")).how {
                    How::Patched => patched += 1,
                    How::Rebuilt => rebuilt += 1,
                    How::Unchanged => {}
                }
                for change in batch {
                    match *change {
                        Change::Announce(prefix, label) => truth.insert(prefix, label),
                        Change::Withdraw(prefix) => truth.remove(&prefix),
                    };
                }
            }
            let now: Vec<(Prefix<A>, Label)> =
                truth.iter().map(|(&prefix, &label)| (prefix, label)).collect();
            assert!(
                table.rib().len() == now.len() && now.iter().all(|&(p, l)| table.rib().get(p) == Some(l))
            );
            verify(&**table.fib(), &now, &now.iter().copied().collect());
        }
        println!("{algorithm}: {patched} batches patched, {rebuilt} rebuilt");
        assert!(patched > 10 * rebuilt, "{algorithm}: {patched} batches patched, {rebuilt} rebuilt");
    }
}

/// A real stream of updates. It has no next hops: an announcement moves its prefix to another label.
fn stream(data: &Path) -> Vec<Change<u32>> {
    let change = |(i, line): (usize, &str)| {
        let (kind, prefix) = line.split_once('\t').unwrap_or_else(|| panic!("line {}: {line:?}", i + 1));
        let prefix: Prefix<u32> = prefix.parse().unwrap_or_else(|e| panic!("line {}: {e}", i + 1));
        match kind {
            "A" => Change::Announce(prefix, Label(1 + i as u32 % 148)),
            "W" => Change::Withdraw(prefix),
            _ => panic!("line {}: {line:?}", i + 1),
        }
    };
    let text = common::text(&data.join("rib/ris-as3333-20260511.v4.updates.zst"));
    text.lines().enumerate().map(change).collect()
}

/// There is no IPv6 stream in the data: flaps of the table's own prefixes, in a mixed order.
fn flaps(list: &[(Prefix<u128>, Label)], count: usize) -> Vec<Change<u128>> {
    let at = |i: usize| list[i * 7919 % list.len()];
    let change = |i: usize| match i % 3 {
        0 => Change::Withdraw(at(i).0),
        1 => Change::Announce(at(i).0, Label(1 + i as u32 % 148)),
        _ => Change::Announce(at(i - 2).0, at(i - 2).1),
    };
    (0..count).map(change).collect()
}

#[test]
fn real_ipv4_table() {
    let Some(data) = common::data("real_ipv4_table") else { return };
    verify_table::<u32>(&data.join("rib/ris-as3333-20260511.v4.nh148.zst"), 1_042_325);
}

#[test]
fn real_ipv4_table_with_host_routes() {
    let Some(data) = common::data("real_ipv4_table_with_host_routes") else { return };
    verify_table::<u32>(&data.join("rib/tier1-20230204.v4.prefixes.zst"), 901_899);
}

#[test]
fn real_ipv4_table_with_30000_labels() {
    let Some(data) = common::data("real_ipv4_table_with_30000_labels") else { return };
    verify_table::<u32>(&data.join("rib/ris-as3333-20260511.v4.uni30000.zst"), 1_042_325);
}

#[test]
fn real_ipv6_table() {
    let Some(data) = common::data("real_ipv6_table") else { return };
    verify_table::<u128>(&data.join("rib/ris-as3333-20260511.v6.nh148.zst"), 246_175);
}

#[test]
fn real_ipv6_table_with_30000_labels() {
    let Some(data) = common::data("real_ipv6_table_with_30000_labels") else { return };
    verify_table::<u128>(&data.join("rib/ris-as3333-20260511.v6.uni30000.zst"), 246_175);
}

#[test]
fn real_ipv6_table_with_long_prefixes() {
    let Some(data) = common::data("real_ipv6_table_with_long_prefixes") else { return };
    verify_table::<u128>(&data.join("rib/asmap-20240105.v6.asn.zst"), 80_400);
}

#[test]
fn real_ipv4_updates() {
    let Some(data) = common::data("real_ipv4_updates") else { return };
    let changes = stream(&data);
    assert_eq!(changes.len(), 1_393_421);
    verify_updates(&data.join("rib/ris-as3333-20260511.v4.nh148.zst"), &changes, 1000);
}

#[test]
fn real_ipv6_updates() {
    let Some(data) = common::data("real_ipv6_updates") else { return };
    let path = data.join("rib/ris-as3333-20260511.v6.nh148.zst");
    let list = common::table::<u128>(&path);
    verify_updates(&path, &flaps(&list, 200_000), 100);
}

/// What `auto` takes of a router's start, its builds included.
fn chosen<A: Family>(path: &Path) {
    let rib: Rib<A> = common::table::<A>(path).into_iter().collect();
    let start = Instant::now();
    let chosen = auto::choose(&rib, &Domain::new(), auto::BUDGET).unwrap_or_else(|e| panic!("{e}"));
    let took = start.elapsed();
    println!("{}: {} after {took:?}, {}", path.display(), chosen.algorithm, chosen.why);
    assert!(A::likely().contains(&chosen.algorithm) && took < Duration::from_secs(1), "{took:?}");
}

#[test]
#[ignore = "a time: cargo xtask held 4, with nothing beside it"]
fn real_auto_takes_well_under_a_second() {
    let Some(data) = common::data("real_auto_takes_well_under_a_second") else { return };
    chosen::<u32>(&data.join("rib/ris-as3333-20260511.v4.nh30000.zst"));
    chosen::<u128>(&data.join("rib/ris-as3333-20260511.v6.nh148.zst"));
}

#[test]
fn real_ipv4_vrfs_share() {
    let Some(data) = common::data("real_ipv4_vrfs_share") else { return };
    let list = common::table::<u32>(&data.join("rib/ris-as3333-20260511.v4.nh148.zst"));
    let mut rib: Rib<u32> = list.iter().copied().collect();
    for name in ["dxr-d16x4r", "dxr-d12x6r"] {
        let Some(layout) = Layout::parse(name) else { panic!("{name}") };
        let shared = Shared::new(&DxrConfig::new(layout), &Domain::new());
        let first = shared.writer(&rib).unwrap_or_else(|e| panic!("{e}"));
        let alone = shared.stats().bytes;
        let mut others = Vec::new();
        let vrfs = 20;
        for vrf in 1..=vrfs {
            // A hundred prefixes of the table lead elsewhere.
            let own: Vec<_> = (0..100).map(|i| list[(vrf * 7919 + i * 10_007) % list.len()]).collect();
            for &(prefix, _) in &own {
                rib.insert(prefix, Label(149));
            }
            others.push(shared.writer(&rib).unwrap_or_else(|e| panic!("{e}")));
            if vrf == vrfs {
                let list: Vec<_> = rib.iter().collect();
                verify(&**others[vrf - 1].dxr(), &list, &rib);
            }
            for (prefix, label) in own {
                rib.insert(prefix, label);
            }
        }
        verify(&**first.dxr(), &list, &rib);
        let more = (shared.stats().bytes - alone) / vrfs;
        let own = first.dxr().own_bytes();
        println!(
            "{name}: the first table {} bytes, of them {alone} shared; each further one {own} + {more} for 100 different labels",
            own + alone
        );
        assert_eq!(shared.stats().tables, vrfs + 1);
        assert!(more < 100 * 512, "{more}");
    }
}

/// Makes the changes one by one, each a patch; what one loads and stores, by the probe.
fn accesses<A: Family>(name: &str, list: &[(Prefix<A>, Label)], changes: &[Change<A>]) -> [f64; 2] {
    let algorithm = Algorithm::parse::<A>(name).unwrap_or_else(|e| panic!("{e}"));
    let mut rib: Rib<A> = list.iter().copied().collect();
    let domain = Domain::new();
    let build = |rib: &Rib<A>| algorithm.writer(rib, &domain).unwrap_or_else(|e| panic!("{name}: {e}"));
    let (mut writer, recorder) = (build(&rib), Recorder::new());
    let (mut updates, mut rebuilt) = (0_u32, 0);
    for change in changes {
        if rib.apply(change) {
            updates += 1;
            if writer.patch_probed(&rib, &[change.prefix()], &recorder).is_err() {
                rebuilt += 1;
                writer = build(&rib);
            }
        }
    }
    let counts = recorder.counts();
    let each = [counts.reads, counts.writes].map(|count| count as f64 / f64::from(updates));
    let [loads, stores] = each;
    println!(
        "{name}: {updates} updates one by one: {loads:.1} loads and {stores:.1} stores each, {rebuilt} rebuilds"
    );
    assert!(updates > 10_000 && rebuilt < 10, "{name}: {updates} updates, {rebuilt} rebuilds");
    each
}

#[test]
fn real_ipv4_accesses_per_update() {
    let Some(data) = common::data("real_ipv4_accesses_per_update") else { return };
    let list = common::table::<u32>(&data.join("rib/ris-as3333-20260511.v4.nh148.zst"));
    let changes = stream(&data);
    for name in ["dxr-d16x4r", "dxr-d18r", "popdir-d16x3", "popdir-d19"] {
        let [loads, stores] = accesses(name, &list, &changes[..100_000]);
        // Word by word, an eighth or a sixteenth as many lines.
        assert!(loads < 40.0 && stores < 20.0, "{name}");
    }
}

#[test]
fn real_ipv6_accesses_per_update() {
    let Some(data) = common::data("real_ipv6_accesses_per_update") else { return };
    let list = common::table::<u128>(&data.join("rib/ris-as3333-20260511.v6.nh148.zst"));
    let [loads, stores] = accesses("lulea", &list, &flaps(&list, 100_000));
    // Word by word, as above; of nodes that are made anew every word counts.
    assert!((1.0..200.0).contains(&loads) && stores < 60.0);
}
