//! The whole graph against the oracle: random tables, random packets, and the next hop read from the output.

use crate::common::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use tidemill_burst::BURST;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::{Address, Algorithm, Family, Label, Oracle, Prefix};
use tidemill_router::{PortInfo, Routed, RouterConfig, RouterControl, Routes};

const CONFIG: &str = "next_hops.ports = ['wan', 'lan']\nrouter.martians = 'off'\nrouter.icmp_rate_per_s = 0\n\
                      [[interface]]\nport = 'lan'\npromiscuous = true\naddresses = ['10.0.0.1/24', '2001:470::1/64']\n";

type List<A> = Vec<(Prefix<A>, Label)>;

/// Nested prefixes around a few points, with a default route now and then.
fn table<A: Address>(rng: &mut StdRng, top: u128) -> List<A> {
    let centers: Vec<u128> =
        (0..4).map(|_| top | rng.random::<u128>() >> 3 & A::MAX.to_u128() >> 3).collect();
    (0..rng.random_range(1..200))
        .filter_map(|_| {
            let center = A::from_u128(centers[rng.random_range(0..centers.len())]);
            let keep = A::mask(rng.random_range(0..=A::BITS));
            let address = (center & keep) | (A::from_u128(rng.random()) & !keep);
            Some((Prefix::new(address, rng.random_range(0..=A::BITS))?, Label(rng.random_range(1..300))))
        })
        .collect()
}

fn keys<A: Address>(rng: &mut StdRng, list: &List<A>, valid: impl Fn(A) -> bool) -> Vec<A> {
    let mut keys = Vec::new();
    while keys.len() < 400 {
        let (prefix, _) = list[rng.random_range(0..list.len())];
        let (one, random) = (A::one(), A::from_u128(rng.random()));
        let inside = prefix.first() | (random & !A::mask(prefix.len()));
        let at = rng.random_range(0..6);
        let ends = [prefix.first(), prefix.last(), inside];
        let key = match at {
            0..3 => ends[at],
            3 if prefix.first() != A::MIN => prefix.first() - one,
            4 if prefix.last() != A::MAX => prefix.last() + one,
            _ => random,
        };
        if valid(key) && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// The label that a frame's destination MAC address shows, and the port that it should have left by.
fn label(frame: &[u8]) -> Label {
    assert_eq!(frame[..2], [0x02, 0x54]);
    Label(u32::from_be_bytes([frame[2], frame[3], frame[4], frame[5]]))
}

/// Half of a table, packets, the other half and changes, and packets again; returns the name of the structure that looked up.
fn check<A: Routed + Family>(
    seed: u64,
    top: u128,
    router: &dyn Fn(Routes<A>) -> Router,
    frame: fn(A, u32) -> Vec<u8>,
    read: fn(&[u8]) -> (A, u32),
    valid: fn(A) -> bool,
) -> String {
    let mut rng = StdRng::seed_from_u64(seed);
    let list = table::<A>(&mut rng, top);
    // Half of the table is there at first, the other half and changes of the first come while packets flow.
    let first = list.len() / 2;
    let routes = Routes { rib: list[..first].iter().copied().collect(), names: Vec::new() };
    let mut changes: Vec<Change<A>> = list[first..].iter().map(|&(p, l)| Change::Announce(p, l)).collect();
    for &(prefix, label) in &list[..first / 2] {
        changes.push(if rng.random() {
            Change::Withdraw(prefix)
        } else {
            Change::Announce(prefix, Label(label.0 + 500))
        });
    }
    let old = Oracle::new(&list[..first]);
    let keys = keys(&mut rng, &list, valid);
    let mut now: List<A> = routes.rib.iter().collect();
    for change in &changes {
        now.retain(|(p, _)| *p != change.prefix());
        if let Change::Announce(prefix, label) = *change {
            now.push((prefix, label));
        }
    }
    let new = Oracle::new(&now);
    // Each key twice, so that most are asked before and after the changes.
    let frames = (0..2).flat_map(|round| keys.iter().map(move |&key| input(frame(key, round)))).collect();
    let mut bursts = 0;
    let run = router(routes).run_with(frames, 600, |control| {
        bursts += 1;
        if bursts == 2 {
            control.apply(&changes).unwrap();
        }
    });
    let mut seen = HashMap::new();
    for (port, frames) in run.sent.iter().enumerate() {
        for sent in frames {
            assert_eq!(1 - label(sent).0 as usize % 2, port, "number label mod ports of the rule's list");
            seen.insert(read(sent), label(sent));
        }
    }
    let sent = (0..2).flat_map(|round| keys.iter().map(move |&key| (key, round)));
    for (i, (key, round)) in sent.enumerate() {
        // The first two bursts meet the old table.
        let expected = if i < 2 * BURST { &old } else { &new }.lookup(key);
        let got = seen.get(&(key, round)).copied().unwrap_or_default();
        assert_eq!(got, expected, "seed {seed}: {} in round {round}", key.to_ip());
    }
    let mut lookups = run.control.lookup_stats().into_iter().filter(|stats| stats.family == A::FAMILY);
    lookups.next().map(|stats| stats.algorithm).unwrap_or_default()
}

fn check_v4(seed: u64, more: &str) -> String {
    let config = format!("{more}{CONFIG}");
    check::<u32>(
        seed,
        0x2000_0000,
        &|v4| Router::new(&config, v4, routes(&[])),
        |dst, round| udp4("50.0.0.1", &Ipv4Addr::from(dst).to_string(), &round.to_be_bytes(), |_| {}),
        |sent| (u32::from_be_bytes(sent[30..34].try_into().unwrap()), u32::from(sent[45])),
        |key| !(224..240).contains(&(key >> 24)) && key != u32::MAX && key >> 8 != 0x0a_0000,
    )
}

fn check_v6(seed: u64, more: &str) -> String {
    let config = format!("{more}{CONFIG}");
    check::<u128>(
        seed,
        0x2 << 124,
        &|v6| Router::new(&config, routes(&[]), v6),
        |dst, round| udp6("3001::1", &Ipv6Addr::from(dst).to_string(), &round.to_be_bytes(), |_| {}),
        |sent| (u128::from_be_bytes(sent[38..54].try_into().unwrap()), u32::from(sent[65])),
        |key| key >> 120 != 0xff && key >> 64 != 0x2001_0470_0000_0000,
    )
}

#[test]
fn every_ipv4_next_hop_is_the_oracles() {
    (0..30).for_each(|seed| drop(check_v4(seed, "")));
}

#[test]
fn every_ipv6_next_hop_is_the_oracles() {
    (0..30).for_each(|seed| drop(check_v6(seed, "")));
}

/// `router.algorithm` and `router.algorithm6`: each structure that there is routes, takes changes, and is the one that was asked for.
#[test]
fn every_structure_routes() {
    for algorithm in Algorithm::all::<u32>() {
        let found = check_v4(7, &format!("router.algorithm = '{algorithm}'\n"));
        assert!(found == algorithm.to_string() || algorithm == Algorithm::Auto, "{found} for {algorithm}");
    }
    for algorithm in Algorithm::all::<u128>() {
        let found = check_v6(7, &format!("router.algorithm6 = '{algorithm}'\n"));
        assert!(found == algorithm.to_string() || algorithm == Algorithm::Auto, "{found} for {algorithm}");
    }
}

/// The text of the schema names every structure.
#[test]
fn the_schema_names_every_structure() {
    let schema = serde_json::to_value(schemars::schema_for!(RouterConfig)).unwrap();
    let text = |key: &str| {
        let of = &schema["$defs"]["RouterSection"]["properties"][key]["description"];
        of.as_str().unwrap_or_else(|| panic!("no text of router.{key}")).to_owned()
    };
    let named = |text: &str, algorithms: Vec<Algorithm>| {
        for algorithm in algorithms {
            assert!(text.contains(&format!("`\"{algorithm}\"`")), "{algorithm} is not in: {text}");
        }
    };
    named(&text("algorithm"), Algorithm::all::<u32>());
    named(&text("algorithm6"), Algorithm::all::<u128>());
}

/// A structure of 8-bit labels says when there are too many next hops, at the start and later, and nothing else changes.
#[test]
fn too_many_next_hops_for_a_structure_are_an_error() {
    let config = format!("router.algorithm = 'sail-l8'\n{CONFIG}");
    let list = |count: u32| -> Vec<(Prefix<u32>, Label)> {
        (0..count).map(|i| (Prefix::new(0x2000_0000 | i << 8, 24).unwrap(), Label(1 + i))).collect()
    };
    let few = Routes { rib: list(200).into_iter().collect(), names: Vec::new() };
    let mut control = Router::new(&config, few, routes(&[])).control;
    let before = control.lookup_stats()[0].prefixes;
    let more: Vec<Change<u32>> = list(400)[200..].iter().map(|&(p, l)| Change::Announce(p, l)).collect();
    let error = control.apply(&more).unwrap_err().to_string();
    assert!(error.contains("does not fit into 8 bits"), "{error}");
    let after = control.lookup_stats().swap_remove(0);
    assert_eq!((after.algorithm.as_str(), after.prefixes), ("sail-l8", before), "the table is as before");
    // What is refused, however often, takes no labels from what fits.
    let other = |from: u32, to: u32| -> Vec<Change<u32>> {
        let prefix = |i: u32| Prefix::new(0x3000_0000 | i << 8, 24).unwrap();
        (from..to).map(|i| Change::Announce(prefix(i), Label(1000 + i))).collect()
    };
    assert!(control.apply(&other(0, 100)).is_err() && control.apply(&other(100, 110)).is_ok());
    assert!(control.apply(&other(110, 200)).is_err());
    control.collect();
    control.apply(&other(200, 201)).unwrap();
    assert_eq!(control.lookup_stats()[0].prefixes, before + 11);
    let parsed: RouterConfig = toml::from_str(&config).unwrap();
    let many = Routes { rib: list(400).into_iter().collect(), names: Vec::new() };
    let ports = [PortInfo::new("lan"), PortInfo::new("wan")];
    let refused = RouterControl::new(&parsed, &ports, many, routes(&[]), &Domain::new());
    let error = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("IPv4") && error.contains("does not fit into 8 bits"), "{error}");
}
