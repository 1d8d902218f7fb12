//! What every structure of the registry owes the access probe: a lookup tells its loads, a patch its stores.

#![allow(clippy::unwrap_used)]

use tidemill_lookup::probe::Recorder;
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
