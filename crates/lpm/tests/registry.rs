//! What every structure of the registry owes the access probe: a lookup tells its loads, a patch its stores.

#![allow(clippy::unwrap_used)]

use tidemill_lookup::probe::Recorder;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family};
use tidemill_lpm::{Label, Prefix, Rib};

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
fn ipv4_loads_and_stores_are_told() {
    every_structure_tells::<u32>(&["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24"], "10.1.2.128/25");
}

#[test]
fn ipv6_loads_and_stores_are_told() {
    every_structure_tells::<u128>(&["::/0", "2001:db8::/32", "2001:db8:1::/48"], "2001:db8:1:2::/64");
}
