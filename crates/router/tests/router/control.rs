//! The control side: its own routes, changes while packets flow, and what it refuses.

use crate::common::*;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::{Label, Prefix};
use tidemill_router::{PortInfo, RouterConfig, RouterControl, Routes};

const CONFIG: &str =
    "next_hops.ports = ['wan', 'lan']\n[[interface]]\nport = 'lan'\naddresses = ['10.0.0.1/24']\n";

fn announce(prefix: &str, label: u32) -> Change<u32> {
    Change::Announce(prefix.parse().unwrap(), Label(label))
}

#[test]
fn our_own_routes_win_over_a_feed() {
    let mut router = Router::new(
        CONFIG,
        routes(&[("10.0.0.0/24", 2), ("10.0.0.1/32", 2), ("10.0.0.0/8", 2)]),
        routes(&[]),
    );
    let withdraw = Change::Withdraw("10.0.0.0/24".parse().unwrap());
    router.control.apply(&[announce("10.0.0.0/24", 4), announce("10.0.0.1/32", 4), withdraw]).unwrap();
    let frames = ["10.0.0.1", "10.0.0.9", "10.0.1.1", "10.0.0.255"]
        .map(|dst| input(udp4("10.9.9.9", dst, b"", |_| {})));
    let run = router.run(frames.into());
    assert_eq!(run.drops(), "broadcast=1 no-listener=1");
    assert_eq!(run.sent[0][0][..6], [0x02, 0x43, 0, 0, 0, 0], "some station on lan");
    assert_eq!(run.sent[1][0][..6], [0x02, 0x54, 0, 0, 0, 2], "the feed's route");
}

#[test]
fn a_new_label_is_known_before_its_first_route() {
    let mut router = Router::new(CONFIG, routes(&[("20.0.0.0/8", 2)]), routes(&[]));
    let stats = router.control.lookup_stats().remove(0);
    // No route, local, connected, broadcast; then label 2.
    assert_eq!((stats.family, stats.prefixes, stats.next_hops, stats.generation), (4, 4, 5, 1));
    let applied = router.control.apply(&[announce("20.1.0.0/16", 4000)]).unwrap();
    assert_eq!(applied.changed, 1);
    assert_eq!(router.control.lookup_stats()[0].next_hops, 6);
    let run = router.run(vec![input(udp4("30.0.0.1", "20.1.0.1", b"", |_| {}))]);
    assert_eq!(run.sent[1][0][..6], [0x02, 0x54, 0, 0, 0x0f, 0xa0]);
}

#[test]
fn next_hops_are_found_by_name_in_either_table() {
    let entry = "[[next_hop]]\nname = 'peer-a'\nport = 'lan'\nmac = '02:00:00:00:00:0a'\n";
    let named = |name: &str| Routes::<u32> {
        rib: [("20.0.0.0/8".parse::<Prefix<u32>>().unwrap(), Label(1))].into_iter().collect(),
        names: vec![(Label(1), name.to_string())],
    };
    let run = Router::new(entry, named("peer-a"), routes(&[])).run(vec![input(udp4(
        "30.0.0.1",
        "20.0.0.1",
        b"",
        |_| {},
    ))]);
    assert_eq!(run.sent[0][0][..6], [2, 0, 0, 0, 0, 10]);
    let config: RouterConfig = toml::from_str(entry).unwrap();
    let ports = [PortInfo::new("lan")];
    let error = RouterControl::new(&config, &ports, named("peer-b"), Routes::default(), &Domain::new())
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "next_hop[0].name: no table names a next hop \"peer-a\": give its label, or remove the entry"
    );
}

#[test]
fn an_unknown_algorithm_is_named_with_its_key() {
    let config: RouterConfig = toml::from_str("router.algorithm6 = 'hash'").unwrap();
    let ports = [PortInfo::new("lan")];
    let made = RouterControl::new(&config, &ports, Routes::default(), Routes::default(), &Domain::new());
    let error = made.err().unwrap().to_string();
    assert!(
        error.starts_with("router.algorithm6: \"hash\" is not an IPv6 lookup structure: use one of"),
        "{error}"
    );
}
