//! The kernel feed against a real kernel, with `ip` and BIRD as judges. Needs root; each test has its own network
//! namespace.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod kernel_lab;

use kernel_lab::{Follower, Namespace, may_run, prefix, run};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidemill_feed::kernel::{Hop, KernelEvent, KernelOptions, KernelPath};

fn lab() -> (Namespace, Follower) {
    let namespace = Namespace::new();
    namespace.cables();
    let feed = namespace.open(&KernelOptions::default());
    (namespace, Follower::new(feed))
}

fn via(index: u32, gateway: &str) -> Hop {
    Hop { index, gateway: Some(gateway.parse().unwrap()), weight: 1 }
}

fn one(index: u32, gateway: &str) -> Option<KernelPath> {
    Some(KernelPath::Via(vec![via(index, gateway)]))
}

#[test]
fn root_single_routes_come_change_and_go() {
    if !may_run("root_single_routes_come_change_and_go") {
        return;
    }
    let (ns, mut told) = lab();
    told.matches(&ns);
    let (left, right) = (ns.index("left"), ns.index("right"));
    for (dst, a, b) in [("10.9.0.0/16", "10.0.0.2", "10.1.0.2"), ("fd09::/32", "fd00::2", "fd01::2")] {
        ns.ip(&format!("route add {dst} via {a}"));
        told.matches(&ns);
        assert_eq!(told.path(dst), one(left, a));
        ns.ip(&format!("route replace {dst} via {b}"));
        told.matches(&ns);
        assert_eq!(told.path(dst), one(right, b));
        assert_eq!(told.route_events.len(), 1, "from one to the other, not by way of none");
        ns.ip(&format!("route del {dst}"));
        told.matches(&ns);
        assert_eq!(told.path(dst), None);
        // On the link, the default route, and what is no unicast.
        for kind in ["dev left", "via GW", "blackhole", "unreachable", "prohibit"] {
            let kind_of = kind.split(' ').next().filter(|kind| !["dev", "via"].contains(kind));
            let rest = kind.replace("GW", a).replace(kind_of.unwrap_or("\n"), "");
            let any = if a.contains(':') { "::/0" } else { "0.0.0.0/0" };
            for dst in [dst, any] {
                ns.ip(&format!("route add {} {dst} {rest}", kind_of.unwrap_or("")));
            }
            told.matches(&ns);
            assert!(told.path(dst).is_some() && told.path(any).is_some(), "{kind}");
            for dst in [dst, any] {
                ns.ip(&format!("route del {} {dst}", kind_of.unwrap_or("")));
            }
            told.matches(&ns);
        }
    }
    let stats = told.feed.stats();
    assert_eq!((stats.overruns, stats.resyncs, stats.repeated_dumps), (0, 0, 0), "{stats:?}");
}

#[test]
fn root_the_lowest_metric_is_the_best() {
    if !may_run("root_the_lowest_metric_is_the_best") {
        return;
    }
    let (ns, mut told) = lab();
    let (left, right) = (ns.index("left"), ns.index("right"));
    for (dst, a, b) in [("10.9.0.0/16", "10.0.0", "10.1.0"), ("fd09::/32", "fd00:", "fd01:")] {
        let gw = |net: &str, n: u8| format!("{net}{}{n}", if net.contains(':') { ":" } else { "." });
        ns.ip(&format!("route add {dst} via {} metric 200", gw(a, 2)));
        ns.ip(&format!("route add {dst} via {} metric 100", gw(b, 2)));
        ns.ip(&format!("route add {dst} via {} metric 300", gw(b, 3)));
        told.matches(&ns);
        assert_eq!(told.path(dst), one(right, &gw(b, 2)));
        ns.ip(&format!("route replace {dst} via {} metric 100", gw(b, 4)));
        told.matches(&ns);
        assert_eq!(told.path(dst), one(right, &gw(b, 4)));
        ns.ip(&format!("route del {dst} metric 300"));
        told.sync();
        assert_eq!(told.route_events, vec![], "not the best: nothing to tell");
        ns.ip(&format!("route del {dst} metric 100"));
        told.matches(&ns);
        assert_eq!(told.path(dst), one(left, &gw(a, 2)));
        ns.ip(&format!("route del {dst}"));
        told.matches(&ns);
        assert_eq!(told.path(dst), None);
    }
    // One metric, IPv4: the first of several counts; another one goes before it or behind it.
    ns.ip("route add 10.9.0.0/16 via 10.0.0.2");
    ns.ip("route append 10.9.0.0/16 via 10.0.0.3");
    ns.ip("route prepend 10.9.0.0/16 via 10.0.0.4");
    // Only its protocol tells it apart.
    ns.ip("route append 10.9.0.0/16 via 10.0.0.4 proto static");
    told.sync();
    assert_eq!(told.path("10.9.0.0/16"), one(left, "10.0.0.4"));
    for next in ["10.0.0.2", "10.0.0.3", "10.0.0.4"] {
        ns.ip("route del 10.9.0.0/16");
        told.sync();
        assert_eq!(told.path("10.9.0.0/16"), one(left, next));
    }
    // Not for every packet: not in the table.
    let before = told.feed.stats().ignored;
    ns.ip("route add 10.30.0.0/16 tos 0x10 via 10.0.0.2");
    ns.ip("route add 10.31.0.0/16 table 100 via 10.0.0.2");
    told.sync();
    assert_eq!(told.path("10.30.0.0/16"), None);
    assert_eq!(told.path("10.31.0.0/16"), None);
    assert_eq!(told.feed.stats().ignored, before + 1);
    assert_eq!((told.feed.stats().resyncs, told.feed.stats().undecodable), (0, 0));
}

#[test]
fn root_equal_cost_paths_keep_their_members() {
    if !may_run("root_equal_cost_paths_keep_their_members") {
        return;
    }
    let (ns, mut told) = lab();
    let (left, right) = (ns.index("left"), ns.index("right"));
    ns.ip("route add 10.9.0.0/16 nexthop via 10.0.0.2 nexthop via 10.1.0.2 weight 3");
    ns.ip("route add fd09::/32 nexthop via fd00::2 nexthop via fd01::2 weight 3");
    told.matches(&ns);
    let weighted = |a: &str, b: &str| {
        let (a, b) = (via(left, a), Hop { weight: 3, ..via(right, b) });
        Some(KernelPath::Via(vec![a, b]))
    };
    assert_eq!(told.path("10.9.0.0/16"), weighted("10.0.0.2", "10.1.0.2"));
    assert_eq!(told.path("fd09::/32"), weighted("fd00::2", "fd01::2"));
    // IPv6 takes members one by one.
    for change in [
        "append fd09::/32 via fd00::3",
        "append fd09::/32 dev right",
        "del fd09::/32 via fd00::2",
        "append fd09::/32 via fd01::4 metric 7",
        "append fd09::/32 via fd00::4 metric 7",
        "del fd09::/32 via fd01::4 metric 7",
        "del fd09::/32 via fd00::4 metric 7",
        "replace fd09::/32 nexthop via fd00::5 nexthop via fd01::5",
        "change 10.9.0.0/16 nexthop via 10.0.0.5 weight 2 nexthop via 10.1.0.5 weight 256",
        "add fd0a::/32 via fd00::2",
        "append fd0a::/32 via fd01::2",
        "append fd0a::/32 via fd01::3",
        "replace fd0a::/32 via fd01::4",
    ] {
        ns.ip(&format!("route {change}"));
        told.matches(&ns);
    }
    ns.ip("-6 route del fd09::/32");
    told.sync();
    assert_eq!(
        told.path("fd09::/32"),
        Some(KernelPath::Via(vec![Hop { index: right, gateway: None, weight: 1 }]))
    );
    ns.ip("-6 route del fd09::/32");
    ns.ip("route del 10.9.0.0/16");
    told.matches(&ns);
    let stats = told.feed.stats();
    assert_eq!((stats.resyncs, stats.overruns), (0, 0), "{stats:?}");
}

#[test]
fn root_nexthop_objects_are_resolved() {
    if !may_run("root_nexthop_objects_are_resolved") {
        return;
    }
    for compat in [1, 0] {
        let namespace = Namespace::new();
        namespace.cables();
        let ns = &namespace;
        // 0: the kernel leaves the paths out of its route messages, and replaces objects without one.
        ns.sysctl(&format!("net.ipv4.nexthop_compat_mode={compat}"));
        ns.ip("nexthop add id 1 via 10.0.0.2 dev left");
        ns.ip("nexthop add id 10 group 1");
        ns.ip("route add 10.20.0.0/16 nhid 10");
        let mut told = Follower::new(ns.open(&KernelOptions::default()));
        let (left, right) = (ns.index("left"), ns.index("right"));
        assert_eq!(told.path("10.20.0.0/16"), one(left, "10.0.0.2"));
        ns.ip("nexthop add id 2 via 10.1.0.2 dev right");
        ns.ip("nexthop replace id 10 group 1/2,200");
        ns.ip("nexthop add id 3 blackhole");
        ns.ip("nexthop add id 6 via fd00::2 dev left");
        ns.ip("-6 route add fd20::/32 nhid 6");
        ns.ip("route add 10.21.0.0/16 nhid 3");
        ns.ip("route add 10.22.0.0/16 nhid 1 metric 5");
        ns.ip("route add 10.22.0.0/16 via 10.1.0.9 metric 6");
        ns.ip("route add 10.23.0.0/16 nhid 6");
        told.sync();
        let group = |gateway: &str| {
            Some(KernelPath::Via(vec![via(left, gateway), Hop { weight: 200, ..via(right, "10.1.0.2") }]))
        };
        assert_eq!(told.path("10.20.0.0/16"), group("10.0.0.2"));
        assert_eq!(told.path("10.21.0.0/16"), Some(KernelPath::Blackhole));
        assert_eq!(told.path("10.22.0.0/16"), one(left, "10.0.0.2"));
        assert_eq!(told.path("10.23.0.0/16"), one(left, "fd00::2"));
        assert_eq!(told.path("fd20::/32"), one(left, "fd00::2"));
        // Behind the routes' back.
        ns.ip("nexthop replace id 1 via 10.0.0.9 dev left");
        ns.ip("nexthop replace id 6 via fd01::9 dev right");
        told.sync();
        assert_eq!(told.path("10.20.0.0/16"), group("10.0.0.9"));
        assert_eq!(told.path("10.22.0.0/16"), one(left, "10.0.0.9"));
        assert_eq!(told.path("fd20::/32"), one(right, "fd01::9"));
        // Its routes go with an object, and with an object's link.
        ns.ip("nexthop del id 3");
        told.sync();
        assert_eq!(told.path("10.21.0.0/16"), None);
        ns.ip("link set dev left down");
        told.sync();
        assert_eq!(
            told.path("10.20.0.0/16"),
            Some(KernelPath::Via(vec![Hop { weight: 200, ..via(right, "10.1.0.2") }]))
        );
        assert_eq!(told.path("10.22.0.0/16"), one(right, "10.1.0.9"));
        ns.ip("nexthop flush");
        told.matches(ns);
        println!("compat mode {compat}: {:?}", told.feed.stats());
    }
}

#[test]
fn root_ipv4_routes_have_ipv6_gateways() {
    if !may_run("root_ipv4_routes_have_ipv6_gateways") {
        return;
    }
    let (ns, mut told) = lab();
    let (left, right) = (ns.index("left"), ns.index("right"));
    ns.ip("route add 10.9.0.0/16 via inet6 fd00::2 dev left");
    ns.ip("route add 10.8.0.0/16 nexthop via inet6 fe80::2 dev left nexthop via 10.1.0.2");
    told.matches(&ns);
    assert_eq!(told.path("10.9.0.0/16"), one(left, "fd00::2"));
    let both = vec![via(left, "fe80::2"), via(right, "10.1.0.2")];
    assert_eq!(told.path("10.8.0.0/16"), Some(KernelPath::Via(both)));
}

#[test]
fn root_routes_of_a_dead_link_go() {
    if may_run("root_routes_of_a_dead_link_go") {
        dead_link(0);
    }
}

#[test]
fn root_routes_of_a_dead_link_go_without_a_word() {
    if may_run("root_routes_of_a_dead_link_go_without_a_word") {
        // IPv6 keeps as silent as IPv4 always does.
        dead_link(1);
    }
}

fn dead_link(silent: u32) {
    let (ns, mut told) = lab();
    ns.sysctl(&format!("net.ipv6.route.skip_notify_on_dev_down={silent}"));
    let (left, right) = (ns.index("left"), ns.index("right"));
    ns.batch((0..2000).map(|n| format!("route add 10.20.{}.{}/32 via 10.0.0.2", n >> 8, n & 255)));
    ns.ip("route add 10.20.0.0/16 via 10.1.0.2");
    ns.ip("route add 10.21.0.0/16 via 10.0.0.2 metric 1");
    ns.ip("route add 10.21.0.0/16 via 10.1.0.2 metric 2");
    ns.ip("route add 10.22.0.0/16 nexthop via 10.0.0.2 nexthop via 10.1.0.2");
    ns.ip("route add fd20::/32 via fd00::2");
    ns.ip("route add fd22::/32 nexthop via fd00::2 nexthop via fd01::2");
    told.matches(&ns);
    let all = told.routes.len();

    // The far end goes: no carrier. The kernel keeps the routes; they lead nowhere.
    ns.ip("link set dev left-far down");
    told.until("loss of the carrier", |told| !told.links[&left].1);
    told.matches(&ns);
    assert_eq!(told.path("10.20.0.7/32"), None);
    assert_eq!(told.path("10.21.0.0/16"), one(right, "10.1.0.2"));
    ns.ip("link set dev left-far up");
    told.until("the carrier", |told| told.links[&left].1);
    told.until("the routes", |told| told.routes.len() == all);
    told.matches(&ns);

    // Down: they are gone, and do not come back with the link.
    let before = told.feed.stats().resyncs;
    ns.ip("link set dev left down");
    told.until("the dead link", |told| !told.links[&left].1);
    assert_eq!(told.path("10.20.0.7/32"), None, "at once, before any dump");
    assert_eq!(told.path("fd20::/32"), None);
    assert_eq!(told.feed.stats().resyncs, before);
    told.matches(&ns);
    assert!(told.feed.stats().resyncs > before, "and all is read again");
    assert_eq!(told.path("10.22.0.0/16"), one(right, "10.1.0.2"));
    ns.ip("link set dev left up");
    told.until("the link", |told| told.links[&left].1);
    told.matches(&ns);
    assert_eq!(told.path("10.20.0.7/32"), None);
    // The sets have their member back, again without a word.
    assert!(matches!(told.path("10.22.0.0/16"), Some(KernelPath::Via(hops)) if hops.len() == 2));

    // Down and up in one go, one route brought back behind it.
    ns.ip("route add 10.23.0.0/16 via 10.0.0.2");
    ns.ip("route add 10.24.0.0/16 via 10.0.0.2");
    told.matches(&ns);
    ns.ip("link set dev left down");
    ns.ip("link set dev left up");
    ns.ip("route add 10.24.0.0/16 via 10.0.0.2");
    told.matches(&ns);
    assert_eq!(told.path("10.23.0.0/16"), None);
    assert_eq!(told.path("10.24.0.0/16"), one(left, "10.0.0.2"));

    // Away.
    ns.ip("link delete dev left");
    told.until("the removal", |told| !told.links.contains_key(&left));
    told.matches(&ns);
    assert_eq!(told.path("10.22.0.0/16"), None, "IPv4 drops the whole set");
    assert_eq!(told.path("fd22::/32"), one(right, "fd01::2"));
    assert!(!told.addresses.iter().any(|&(index, ..)| index == left));
    println!("{:?}", told.feed.stats());
}

#[test]
fn root_links_addresses_and_neighbors() {
    if !may_run("root_links_addresses_and_neighbors") {
        return;
    }
    let (ns, mut told) = lab();
    told.sync();
    let left = ns.index("left");
    let v4 = |a: [u8; 4]| IpAddr::from(Ipv4Addr::from(a));
    let v6 = |text: &str| IpAddr::from(text.parse::<Ipv6Addr>().unwrap());
    assert_eq!(told.links[&left], ("left".into(), true));
    assert!(told.addresses.contains(&(left, v4([10, 0, 0, 1]), 24)));
    assert!(told.addresses.contains(&(left, v6("fd00::1"), 64)));
    ns.ip("address add 10.5.0.1 peer 10.5.0.2/32 dev left");
    // Duplicate detection takes a second or two; the address is told when it is over.
    ns.ip("address add fd05::1/64 dev left");
    told.sync();
    assert!(told.addresses.contains(&(left, v4([10, 5, 0, 1]), 32)));
    told.until("the checked address", |told| told.addresses.contains(&(left, v6("fd05::1"), 64)));
    ns.ip("address del fd05::1/64 dev left");
    ns.ip("address del 10.5.0.1 peer 10.5.0.2/32 dev left");
    told.sync();
    assert!(!told.addresses.iter().any(|&(_, ip, _)| ip == v6("fd05::1") || ip == v4([10, 5, 0, 1])));

    ns.ip("link set dev left name links mtu 1400");
    told.until("the new name", |told| told.links[&left].0 == "links");
    ns.ip("link add name bridge type bridge");
    ns.ip("link set dev links master bridge");
    ns.ip("link set dev links nomaster");
    told.sync();
    assert!(told.links.contains_key(&left), "it left the bridge, not the machine");

    let mac = Some([2, 0, 0, 0, 0, 9]);
    ns.ip("neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev links nud permanent");
    ns.ip("neigh add fd00::9 lladdr 02:00:00:00:00:09 dev links nud stale");
    told.sync();
    assert_eq!(told.neighbors[&(left, v4([10, 0, 0, 9]))], (mac, true));
    assert_eq!(told.neighbors[&(left, v6("fd00::9"))], (mac, false));
    ns.ip("neigh del 10.0.0.9 dev links");
    ns.ip("neigh change fd00::9 dev links nud failed");
    told.sync();
    assert_eq!(told.neighbors[&(left, v4([10, 0, 0, 9]))], (None, false));
    assert_eq!(told.neighbors[&(left, v6("fd00::9"))], (None, false));
    assert_eq!(told.feed.stats().undecodable, 0);

    // A later feed is told the same by its first dump.
    let again = Follower::new(ns.open(&KernelOptions::default()));
    assert_eq!(again.links, told.links);
    let sorted = |told: &Follower| {
        let mut addresses = told.addresses.clone();
        addresses.sort();
        addresses
    };
    assert_eq!(sorted(&again), sorted(&told));
}

#[test]
fn root_tables_of_interest() {
    if !may_run("root_tables_of_interest") {
        return;
    }
    let ns = Namespace::new();
    ns.cables();
    ns.ip("route add 10.9.0.0/16 table 100 via 10.0.0.2");
    ns.ip("route add local 10.8.0.0/16 table 100 dev lo");
    let options = KernelOptions { tables: vec![100, 1000], ..KernelOptions::default() };
    let mut told = Follower::new(ns.open(&options));
    ns.ip("route add 10.9.0.0/16 table 1000 via 10.1.0.2");
    ns.ip("route add fd09::/32 table 1000 via fd01::2");
    ns.ip("route add throw fd0a::/32 table 1000");
    told.sync();
    assert_eq!(told.routes.len(), 5, "{:?}", told.routes);
    let path = |table, text: &str| (*told.routes[&(table, prefix(text, !text.contains(':')))]).clone();
    assert_eq!(Some(path(100, "10.9.0.0/16")), one(ns.index("left"), "10.0.0.2"));
    assert_eq!(Some(path(1000, "10.9.0.0/16")), one(ns.index("right"), "10.1.0.2"));
    assert_eq!(path(100, "10.8.0.0/16"), KernelPath::Local);
    assert_eq!(path(1000, "fd0a::/32"), KernelPath::Unsupported);
}

const MANY: u32 = 100_000;

fn many(n: u32) -> String {
    format!("20.{}.{}.{}/32", n >> 16, n >> 8 & 255, n & 255)
}

/// The command for the route of a number.
type Line = Box<dyn Fn(u32) -> String + Send + Sync>;

/// Adds, changes and takes away many routes while the feed is read, and prints how long it was behind.
fn burst(options: &KernelOptions) -> Follower {
    let ns = Namespace::new();
    ns.cables();
    let mut told = Follower::new(ns.open(options));
    let v6 = |n: u32| format!("2001:db8:{:x}:{:x}::/64", n >> 8, n & 255);
    let phases: [(&str, Line); 3] = [
        (
            "add",
            Box::new(move |n| match n % 10 {
                0 => format!("route add {} via fd00::2", v6(n)),
                _ => format!("route add {} via 10.0.0.2", many(n)),
            }),
        ),
        (
            "replace",
            Box::new(move |n| match n % 10 {
                0 => format!("route replace {} via fd01::2", v6(n)),
                _ => format!("route replace {} via 10.{}.0.3", many(n), n & 1),
            }),
        ),
        (
            "delete",
            Box::new(move |n| match n % 10 {
                0 => format!("route del {}", v6(n)),
                _ => format!("route del {}", many(n)),
            }),
        ),
    ];
    for (name, line) in &phases {
        std::thread::scope(|scope| {
            let batch = scope.spawn(|| ns.batch((0..MANY).map(line)));
            while !batch.is_finished() {
                told.poll();
                // Nobody reads netlink all day.
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let start = Instant::now();
        told.sync();
        println!("{name}: behind by {:?}, {:?}", start.elapsed(), told.feed.stats());
        told.matches(&ns);
        let expected = if *name == "delete" { 0 } else { MANY as usize };
        assert!(told.routes.len() >= expected && told.routes.len() < expected + 20);
    }
    told
}

#[test]
fn root_a_hundred_thousand_routes_with_room() {
    if !may_run("root_a_hundred_thousand_routes_with_room") {
        return;
    }
    let told = burst(&KernelOptions::default());
    assert_eq!((told.feed.stats().overruns, told.syncs), (0, 1));
}

#[test]
fn root_a_hundred_thousand_routes_through_a_tiny_buffer() {
    if !may_run("root_a_hundred_thousand_routes_through_a_tiny_buffer") {
        return;
    }
    let told = burst(&KernelOptions { receive_buffer: 4096, ..KernelOptions::default() });
    assert!(told.feed.stats().overruns > 0, "nothing was lost: this tested nothing");
    assert!(told.syncs > 1);
}

#[test]
fn root_a_resync_tells_the_difference_alone() {
    if !may_run("root_a_resync_tells_the_difference_alone") {
        return;
    }
    let ns = Namespace::new();
    ns.cables();
    ns.batch((0..20_000).map(|n| format!("route add {} via 10.0.0.2", many(n))));
    let mut told =
        Follower::new(ns.open(&KernelOptions { receive_buffer: 4096, ..KernelOptions::default() }));
    told.matches(&ns);
    // Nobody reads while a thousand routes go and a thousand come.
    ns.batch((0..1000).map(|n| format!("route del {}", many(n))));
    ns.batch((30_000..31_000).map(|n| format!("route add {} via 10.0.0.2", many(n))));
    told.sync();
    let stats = told.feed.stats();
    assert!(stats.overruns > 0 && stats.resyncs > 0, "{stats:?}");
    assert_eq!(told.route_events.len(), 2000, "each change once, and nothing else");
    told.matches(&ns);
}

/// The kernel goes on with an IPv6 dump by counting: what changes under it makes it leave routes out.
#[test]
fn root_a_dump_under_change_is_repeated() {
    if !may_run("root_a_dump_under_change_is_repeated") {
        return;
    }
    let ns = Namespace::new();
    ns.cables();
    ns.batch((0..10_000).map(|n| format!("route add 2001:db8:{n:x}::/48 via fd00::2")));
    let before = |n: u32| format!("2001:db7:{n:x}::/48 via fd00::2");
    ns.batch((0..100).map(|n| format!("route add {}", before(n))));
    let mut told =
        Follower::unread(ns.open(&KernelOptions { datagrams_per_poll: 1, ..KernelOptions::default() }));
    told.until("a part of the routes", |told| told.routes.len() > 1000);
    assert_eq!(told.syncs, 0);
    // Behind the reader's place: without care, a hundred routes before it are not told.
    ns.batch((0..100).map(|n| format!("route del {}", before(n))));
    told.matches(&ns);
    let stats = told.feed.stats();
    assert_eq!((told.syncs, stats.repeated_dumps, stats.resyncs), (1, 1, 0), "{stats:?}");
}

/// A million routes: time of the dump, memory of the mirror.
#[test]
fn root_a_million_routes_are_dumped_in_seconds() {
    if !may_run("root_a_million_routes_are_dumped_in_seconds") {
        return;
    }
    let ns = Namespace::new();
    ns.cables();
    ns.batch((0..1_000_000).map(|n| format!("route add {} via 10.{}.0.2", many(n), n & 1)));
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let (mut feed, before) = (ns.open(&KernelOptions::default()), resident());
    let (mut events, mut routes) = (Vec::new(), 0);
    while !events.contains(&KernelEvent::InSync) {
        events.clear();
        feed.poll(&mut events).unwrap();
        routes += events.iter().filter(|event| matches!(event, KernelEvent::Route { .. })).count();
    }
    drop(events);
    // Other tests of this process may have given back more meanwhile.
    let (stats, bytes) = (feed.stats(), resident().saturating_sub(before));
    assert!(routes >= 1_000_000, "{stats:?}");
    println!("{routes} routes in {:?}, {} bytes each", stats.last_sync.unwrap(), bytes / routes as u64);
}

/// A daemon that ends with the test.
struct Bird {
    child: Child,
    folder: tempfile::TempDir,
}

impl Bird {
    fn start(ns: &Namespace, configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bird.conf");
        std::fs::write(&file, configuration).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", &ns.0, "bird", "-f", "-c"])
            .arg(file)
            .arg("-s")
            .arg(folder.path().join("bird.ctl"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Bird { child, folder }
    }

    fn tell(&self, command: &str) {
        run(&format!("birdc -s {} {command}", self.folder.path().join("bird.ctl").display()));
    }
}

impl Drop for Bird {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn root_bird_installs_and_withdraws_a_hundred_thousand_routes() {
    if !may_run("root_bird_installs_and_withdraws_a_hundred_thousand_routes") {
        return;
    }
    let (ns, mut told) = lab();
    let quiet = told.routes.len();
    let routes = |from: u32, gateway: &str| {
        (from..from + MANY / 2).map(|n| format!("route {} via {gateway};\n", many(n))).collect::<String>()
    };
    let configuration = format!(
        "router id 10.0.0.1;\nprotocol device {{}}\n\
         protocol kernel {{ ipv4 {{ export all; }}; merge paths on; }}\n\
         protocol kernel {{ ipv6 {{ export all; }}; }}\n\
         protocol static one {{ ipv4;\n{}}}\n\
         protocol static two {{ ipv4;\n{}\
         route 30.0.0.0/8 via 10.0.0.2 via 10.1.0.2 weight 4;\nroute 31.0.0.0/8 unreachable;\n}}\n\
         protocol static six {{ ipv6; route 2001:db8::/32 via fd00::2; route 2001:db9::/32 via fd00::2 via fd01::2; }}\n",
        routes(0, "10.0.0.2"),
        routes(MANY / 2, "10.1.0.2"),
    );
    let start = Instant::now();
    let bird = Bird::start(&ns, &configuration);
    told.until("routes of BIRD", |told| told.routes.len() == quiet + MANY as usize + 4);
    println!("{MANY} routes after {:?}", start.elapsed());
    told.matches(&ns);
    let weighted = Hop { weight: 4, ..via(ns.index("right"), "10.1.0.2") };
    let both = vec![via(ns.index("left"), "10.0.0.2"), weighted];
    assert_eq!(told.path("30.0.0.0/8"), Some(KernelPath::Via(both)));
    assert_eq!(told.path("31.0.0.0/8"), Some(KernelPath::Unreachable));
    assert!(matches!(told.path("2001:db9::/32"), Some(KernelPath::Via(hops)) if hops.len() == 2));
    bird.tell("disable two");
    told.until("half of them", |told| told.routes.len() == quiet + MANY as usize / 2 + 2);
    told.matches(&ns);
    bird.tell("disable one");
    bird.tell("disable six");
    told.until("withdrawn routes", |told| told.routes.len() == quiet);
    told.matches(&ns);
    println!("{:?}", told.feed.stats());
    assert_eq!(told.feed.stats().overruns, 0);
}
