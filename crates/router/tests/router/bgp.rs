//! The best paths of BGP peers, taken into a running router: what their next hops come to, and when that changes.

use crate::lab::*;
use std::net::IpAddr;
use tidemill_feed::AnyPrefix;
use tidemill_router::config::OneOrMany;
use tidemill_router::config::RouteConfig;

const TEXT: &str = "[[interface]]\nport='lan'\naddresses=['10.1.0.1/24','fd01::1/64']\n\
    [[interface]]\nport='wan'\naddresses=['10.2.0.1/24','fd02::1/64']\n\
    [[route]]\nprefix='203.0.113.0/24'\nvia='10.1.0.7'\n\
    [[route]]\nprefix='2001:db8:77::/48'\nvia='fd02::7'\n";

fn path(prefix: &str, hop: Option<&str>) -> (AnyPrefix, Option<IpAddr>) {
    let prefix = match prefix.contains(':') {
        true => AnyPrefix::V6(prefix.parse().unwrap()),
        false => AnyPrefix::V4(prefix.parse().unwrap()),
    };
    (prefix, hop.map(|hop| hop.parse().unwrap()))
}

fn tell(lab: &mut Lab, changes: &[(AnyPrefix, Option<IpAddr>)]) {
    lab.control.bgp(lab.now_ns(), changes).unwrap();
    lab.settle();
}

fn leads(lab: &mut Lab, address: &str, expected: &str) {
    let route = lab.route("", address);
    assert!(route.starts_with(expected), "{address}: {route}, not {expected}");
}

fn via(prefix: &str, via: &str) -> RouteConfig {
    RouteConfig { prefix: prefix.into(), via: Some(OneOrMany::One(via.into())), ..RouteConfig::default() }
}

#[test]
fn next_hops_are_looked_up_among_the_other_routes() {
    let mut lab = Lab::new(TEXT);
    tell(
        &mut lab,
        &[
            path("20.0.0.0/8", Some("10.2.0.9")),
            path("20.1.0.0/16", Some("203.0.113.5")),
            path("20.2.0.0/16", Some("192.0.2.99")),
            path("20.3.0.0/16", Some("10.1.0.1")),
            path("2001:db8:1::/48", Some("fd02::9")),
            path("2001:db8:2::/48", Some("2001:db8:77::1")),
            path("ff00::/8", Some("fd02::9")),
        ],
    );
    leads(&mut lab, "20.200.0.1", "bgp 20.0.0.0/8 wan");
    leads(&mut lab, "20.1.0.1", "bgp 20.1.0.0/16 lan");
    leads(&mut lab, "2001:db8:1::1", "bgp 2001:db8:1::/48 wan");
    leads(&mut lab, "2001:db8:2::1", "bgp 2001:db8:2::/48 wan");
    // One that nobody knows the way to, and ourselves, make no route.
    leads(&mut lab, "20.2.0.1", "bgp 20.0.0.0/8");
    leads(&mut lab, "20.3.0.1", "bgp 20.0.0.0/8");
    assert_eq!(lab.control.bgp_routes(), (2, 2));
    // A next hop that only BGP leads to is not reached.
    tell(&mut lab, &[path("20.4.0.0/16", Some("20.200.0.1"))]);
    leads(&mut lab, "20.4.0.1", "bgp 20.0.0.0/8");
    tell(&mut lab, &[path("20.0.0.0/8", None), path("20.1.0.0/16", None), path("2001:db8:1::/48", None)]);
    leads(&mut lab, "20.1.0.1", "none");
    assert_eq!(lab.control.bgp_routes(), (0, 1));
}

#[test]
fn other_routes_turn_next_hops() {
    let mut lab = Lab::new(TEXT);
    let all = [path("20.1.0.0/16", Some("203.0.113.5")), path("20.2.0.0/16", Some("192.0.2.99"))];
    tell(&mut lab, &all);
    lab.control.bgp_turned();
    assert_eq!(lab.control.bgp_turned(), [], "nothing has changed");
    let now_ns = lab.now_ns();
    let again = |lab: &mut Lab, turned: &[(&str, bool)]| {
        let expected: Vec<(IpAddr, bool)> =
            turned.iter().map(|(text, reached)| (text.parse().unwrap(), *reached)).collect();
        assert_eq!(lab.control.bgp_turned(), expected);
        let named = |hop: IpAddr| expected.iter().any(|(address, _)| *address == hop);
        let paths: Vec<_> = all.iter().copied().filter(|(_, hop)| named(hop.unwrap())).collect();
        tell(lab, &paths);
    };
    lab.control.add_route(now_ns, &via("192.0.2.0/24", "10.2.0.9")).unwrap();
    again(&mut lab, &[("192.0.2.99", true)]);
    leads(&mut lab, "20.2.0.1", "bgp 20.2.0.0/16 wan");
    // A more specific route to a next hop.
    lab.control.add_route(now_ns, &via("203.0.113.5/32", "10.2.0.9")).unwrap();
    again(&mut lab, &[("203.0.113.5", true)]);
    leads(&mut lab, "20.1.0.1", "bgp 20.1.0.0/16 wan");
    lab.control.delete_route(now_ns, "203.0.113.5/32", None).unwrap();
    lab.control.delete_route(now_ns, "192.0.2.0/24", None).unwrap();
    again(&mut lab, &[("192.0.2.99", false), ("203.0.113.5", true)]);
    leads(&mut lab, "20.1.0.1", "bgp 20.1.0.0/16 lan");
    leads(&mut lab, "20.2.0.1", "none");
}

#[test]
fn static_routes_come_first() {
    let mut lab = Lab::new(TEXT);
    tell(&mut lab, &[path("203.0.113.0/24", Some("10.2.0.9")), path("10.1.0.0/24", Some("10.2.0.9"))]);
    leads(&mut lab, "203.0.113.1", "static 203.0.113.0/24 lan");
    leads(&mut lab, "10.1.0.77", "own 10.1.0.0/24 lan");
    lab.control.delete_route(lab.now_ns(), "203.0.113.0/24", None).unwrap();
    lab.settle();
    leads(&mut lab, "203.0.113.1", "bgp 203.0.113.0/24 wan");
}

/// A peer may tell longer prefixes within a link of ours, and they count; our own addresses are as long as can be, and ours come first.
#[test]
fn peers_may_take_a_part_of_our_links_but_none_of_our_addresses() {
    let mut lab = Lab::new(TEXT);
    let by_wan = ["10.1.0.0/25", "10.1.0.1/32", "10.1.0.255/32"].map(|net| path(net, Some("10.2.0.9")));
    let by_wan6 = ["fd01::/80", "fd01::1/128"].map(|net| path(net, Some("fd02::9")));
    tell(&mut lab, &[&by_wan[..], &by_wan6].concat());
    leads(&mut lab, "10.1.0.77", "bgp 10.1.0.0/25 wan");
    leads(&mut lab, "10.1.0.177", "own 10.1.0.0/24 lan");
    leads(&mut lab, "fd01::77", "bgp fd01::/80 wan");
    for (ours, route) in [
        ("10.1.0.1", "own 10.1.0.1/32  local"),
        ("10.1.0.255", "own 10.1.0.255/32  broadcast"),
        ("fd01::1", "own fd01::1/128  local"),
    ] {
        assert_eq!(lab.route("", ours), route);
    }
    // A gateway on the link is found by ARP there, whatever a peer says.
    tell(&mut lab, &[path("10.1.0.7/32", Some("10.2.0.9"))]);
    leads(&mut lab, "203.0.113.1", "static 203.0.113.0/24 lan");
}

/// Peers that come and go with ever other next hops: what no path has any more takes no room, and who was left out gets it.
#[test]
fn next_hops_are_forgotten() {
    let mut lab = Lab::new(TEXT);
    let hop = |n: u32| IpAddr::from((0x0a06_0000 + n).to_be_bytes());
    let near: IpAddr = "10.2.0.9".parse().unwrap();
    assert!(lab.control.bgp_reaches(near) && !lab.control.bgp_reaches("192.0.2.99".parse().unwrap()));
    assert_eq!(lab.control.bgp_hops(), 2);
    let gone = [near, "192.0.2.99".parse().unwrap()];
    assert!(!lab.control.bgp_forget(&gone), "nobody was left out");
    assert_eq!(lab.control.bgp_hops(), 0);
    // As many as are known at once, twice.
    lab.control.add_route(lab.now_ns(), &via("10.0.0.0/8", "10.2.0.9")).unwrap();
    for churn in 0..2 {
        let all: Vec<IpAddr> = (0..65_536).map(|n| hop(n + churn * 65_536)).collect();
        assert!(all.iter().all(|hop| lab.control.bgp_reaches(*hop)));
        let more = hop(200_000);
        assert!(!lab.control.bgp_reaches(more), "there is no room");
        assert_eq!(
            lab.control.take_notes().iter().filter(|note| note.contains("different next hops")).count(),
            1
        );
        assert!(!lab.control.bgp_forget(&all[..10]));
        assert!(lab.control.bgp_forget(&all[10..]), "there is room again");
        assert!(lab.control.bgp_reaches(more));
        lab.control.bgp_forget(&[more]);
        assert_eq!(lab.control.bgp_hops(), 0);
    }
}
