//! What the kernel says of its links, addresses, neighbors and routes, taken into a running router.

use crate::lab::*;
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_feed::AnyPrefix;
use tidemill_feed::kernel::{Hop, KernelEvent, KernelPath};
use tidemill_router::config::{OneOrMany, RouteConfig};
use tidemill_router::settings::Device;
use tidemill_router::{PortInfo, Routes};

const TEXT: &str = "[kernel]\n[[vrf]]\nname='blue'\ntable=100\n\
    [[interface]]\nport='lan'\naddresses=['10.1.0.1/24','fd01::1/64']\n\
    [[interface]]\nport='wan'\nowner='kernel'\n\
    [[interface]]\nport='dmz'\nvrf='blue'\nowner='kernel'\n";

/// The ports are the kernel's devices 10, 11 and 12.
fn lab(up: bool) -> Lab {
    lab_with(up, "")
}

/// The same with more in the configuration.
fn lab_with(up: bool, more: &str) -> Lab {
    let mut index = 9;
    let ports = ["lan", "wan", "dmz"].map(|name| {
        index += 1;
        let device = Device { index, mac: port_mac(index as u8 - 10), mtu: 1500, up };
        PortInfo { device: Some(device), ..PortInfo::new(name) }
    });
    let text = format!("{TEXT}{more}{}", fixed_host());
    let mut lab = Lab::with(&text, ports, Routes::default(), Routes::default());
    lab.settle();
    lab
}

fn tell(lab: &mut Lab, events: &[KernelEvent]) -> Result<(), String> {
    let now_ns = lab.now_ns();
    let result = lab.control.kernel(now_ns, events).map_err(|error| error.to_string());
    lab.settle();
    result
}

fn link(index: u32, mtu: u32, up: bool) -> KernelEvent {
    let mac = Some(port_mac(index as u8 - 10).0);
    KernelEvent::Link { index, name: "x".into(), mac, mtu, up, removed: false }
}

fn address(index: u32, text: &str, removed: bool) -> KernelEvent {
    let (address, len) = text.split_once('/').unwrap();
    KernelEvent::Address {
        index,
        address: address.parse().unwrap(),
        prefix_len: len.parse().unwrap(),
        removed,
    }
}

fn route(table: u32, prefix: &str, path: Option<KernelPath>) -> KernelEvent {
    let prefix = match prefix.contains(':') {
        true => AnyPrefix::V6(prefix.parse().unwrap()),
        false => AnyPrefix::V4(prefix.parse().unwrap()),
    };
    KernelEvent::Route { table, prefix, path: path.map(Arc::new) }
}

fn via(hops: &[(u32, Option<&str>, u32)]) -> Option<KernelPath> {
    let hop = |(index, gateway, weight): &(u32, Option<&str>, u32)| Hop {
        index: *index,
        gateway: gateway.map(|text| text.parse().unwrap()),
        weight: *weight,
    };
    Some(KernelPath::Via(hops.iter().map(hop).collect()))
}

#[test]
fn its_addresses_are_its_own_and_we_ask_neighbors_in_its_name() {
    let mut lab = lab(true);
    tell(
        &mut lab,
        &[address(11, "10.2.0.1/24", false), address(11, "fe80::1/64", false), KernelEvent::InSync],
    )
    .unwrap();
    assert_eq!(lab.route("", "10.2.0.1"), "own 10.2.0.1/32  kernel");
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.1", (1, 2)));
    assert_eq!((lab.drops(), lab.lines(LAN).len()), (String::new(), 0), "left to the kernel");
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    let asked = lab.lines(WAN).concat();
    assert!(asked.contains("10.2.0.1") && asked.contains("10.2.0.5"), "{asked}");
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    assert_eq!(lab.sent(WAN).len(), 1);
    // What it knows of a neighbor need not be asked for.
    let known = |mac: Option<[u8; 6]>| KernelEvent::Neighbor {
        index: 11,
        address: "10.2.0.6".parse().unwrap(),
        mac,
        reachable: true,
    };
    tell(&mut lab, &[known(Some(mac(6).0))]).unwrap();
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.6", (1, 2)));
    let sent = lab.sent(WAN);
    assert_eq!((sent.len(), sent[0][5]), (1, 6));
    // It takes the address away, and with it goes all that followed.
    tell(&mut lab, &[address(11, "10.2.0.1/24", true)]).unwrap();
    for text in ["10.2.0.1", "10.2.0.5", "10.2.0.6", "10.2.0.255"] {
        assert_eq!(lab.route("", text), "none", "{text}");
    }
    // Of an interface of ours its addresses are ignored; what it has on devices that are no ports is its own (a loopback
    // address, say), but not the links that those are on.
    let elsewhere = ["10.45.0.1/24", "127.0.0.1/8", "fd45::1/128", "fe80::45/64"];
    tell(&mut lab, &[address(10, "10.44.0.1/24", false)]).unwrap();
    tell(&mut lab, &elsewhere.map(|text| address(99, text, false))).unwrap();
    assert_eq!(lab.route("", "10.44.0.1"), "none");
    assert_eq!(lab.route("", "10.45.0.1"), "own 10.45.0.1/32  kernel");
    assert_eq!(lab.route("", "fd45::1"), "own fd45::1/128  kernel");
    for text in ["10.45.0.2", "127.0.0.1", "fe80::45"] {
        assert_eq!(lab.route("", text), "none", "{text}");
    }
    lab.play(LAN, datagram(0, "10.1.0.9", "10.45.0.1", (1, 2)));
    assert_eq!((lab.drops(), lab.lines(LAN).len()), (String::new(), 0), "left to the kernel");
    let gone =
        KernelEvent::Link { index: 99, name: "lo".into(), mac: None, mtu: 0, up: false, removed: true };
    tell(&mut lab, &[gone]).unwrap();
    assert_eq!(lab.route("", "10.45.0.1"), "none");
    lab.end();
}

#[test]
fn its_routes_lead_where_it_says_or_nowhere() {
    let mut lab = lab(true);
    tell(
        &mut lab,
        &[
            // Before the address that makes its gateway one of the link.
            route(254, "20.0.0.0/8", via(&[(11, Some("10.2.0.9"), 1)])),
            route(254, "20.1.0.0/16", via(&[(99, Some("10.2.0.9"), 1)])),
            route(254, "20.2.0.0/16", via(&[(99, Some("10.2.0.9"), 1), (11, Some("10.2.0.8"), 1)])),
            route(254, "20.3.0.0/16", via(&[(10, Some("10.1.0.8"), 1), (11, Some("10.2.0.8"), 3)])),
            route(254, "20.4.0.0/16", Some(KernelPath::Blackhole)),
            route(254, "20.5.0.0/16", Some(KernelPath::Prohibit)),
            route(254, "20.6.0.0/16", Some(KernelPath::Unsupported)),
            route(254, "20.7.0.0/16", Some(KernelPath::Local)),
            route(254, "20.8.0.0/16", via(&[(11, None, 1)])),
            route(254, "20.9.0.0/16", via(&[(11, Some("fd02::9"), 1)])),
            route(100, "20.0.0.0/8", via(&[(12, Some("10.3.0.9"), 1)])),
            route(200, "21.0.0.0/8", Some(KernelPath::Blackhole)),
            route(254, "fe80::/64", via(&[(11, None, 1)])),
            route(254, "fe80::5/128", via(&[(11, None, 1)])),
            route(254, "ff00::/8", via(&[(11, None, 1)])),
            route(254, "::/0", via(&[(11, Some("fe80::9"), 1)])),
            address(11, "10.2.0.1/24", false),
            KernelEvent::InSync,
        ],
    )
    .unwrap();
    for (address, route) in [
        ("20.0.0.1", "kernel 20.0.0.0/8 wan unresolved"),
        ("20.1.0.1", "kernel 20.1.0.0/16  unreachable"),
        ("20.2.0.1", "kernel 20.2.0.0/16 wan unresolved"),
        ("20.3.0.1", "kernel 20.3.0.0/16 lan unresolved, wan unresolved"),
        ("20.4.0.1", "kernel 20.4.0.0/16  blackhole"),
        ("20.5.0.1", "kernel 20.5.0.0/16  prohibited"),
        ("20.6.0.1", "kernel 20.6.0.0/16  unreachable"),
        ("20.7.0.1", "kernel 20.7.0.0/16  kernel"),
        ("20.8.0.1", "kernel 20.8.0.0/16 wan on-link"),
        ("20.9.0.1", "kernel 20.9.0.0/16 wan unresolved"),
        ("21.0.0.1", "none"),
        ("fe80::5", "kernel ::/0 wan unresolved"),
        ("ff02::1", "kernel ::/0 wan unresolved"),
    ] {
        assert_eq!(lab.route("", address), route);
    }
    assert_eq!(lab.route("blue", "20.0.0.1"), "kernel 20.0.0.0/8 dmz unresolved");
    let (list, _) = lab.control.routes(
        Some(""),
        tidemill_router::show::Wanted::Address("20.3.0.1".parse().unwrap()),
        0,
        1,
    );
    assert_eq!(list[0].hops.iter().map(|hop| hop.weight).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(lab.control.kernel_routes(), (11, 1));
    let held = |lab: &Lab| {
        let mut held: Vec<_> =
            lab.control.neighbors().iter().filter(|n| n.held).map(|n| n.key.address).collect();
        held.sort();
        held.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(held(&lab), "10.1.0.8 10.2.0.8 10.2.0.9 10.3.0.9 fd02::9 fe80::9");

    // In one batch: replaced, replaced and withdrawn, withdrawn and back; the last word counts. Then all is told again.
    let events = [
        route(254, "20.0.0.0/8", via(&[(11, Some("10.2.0.7"), 1)])),
        route(254, "20.3.0.0/16", via(&[(11, Some("10.2.0.6"), 1)])),
        route(254, "20.3.0.0/16", None),
        route(254, "20.2.0.0/16", None),
        route(254, "20.2.0.0/16", via(&[(11, Some("10.2.0.8"), 1)])),
        route(254, "20.9.0.0/16", None),
        route(254, "::/0", None),
        route(100, "20.0.0.0/8", None),
    ];
    for _ in 0..2 {
        tell(&mut lab, &events).unwrap();
        assert_eq!(lab.route("", "20.3.0.1"), "kernel 20.0.0.0/8 wan unresolved");
        assert_eq!((lab.route("blue", "20.0.0.1"), lab.route("", "::1:1")), ("none".into(), "none".into()));
        assert_eq!(held(&lab), "10.2.0.7 10.2.0.8");
    }
    lab.end();
}

/// What a BGP path's next hop comes to: nothing by a link that is down, so that another peer's path is taken.
#[test]
fn a_link_that_is_down_leads_no_path_anywhere() {
    let mut lab = lab(true);
    let both = route(254, "10.9.0.0/16", via(&[(11, Some("10.2.0.9"), 1), (10, Some("10.1.0.8"), 1)]));
    tell(&mut lab, &[address(11, "10.2.0.1/24", false), both]).unwrap();
    let [near, far] = ["10.1.0.7", "10.9.0.9"].map(|hop| hop.parse::<IpAddr>().unwrap());
    assert!(lab.control.bgp_reaches(near) && lab.control.bgp_reaches(far));
    lab.control.bgp_turned();
    let mut turned = |event| {
        tell(&mut lab, &[event]).unwrap();
        lab.control.bgp_turned()
    };
    assert_eq!(turned(link(11, 1500, false)), [(far, true)], "by the other link alone");
    assert_eq!(turned(link(10, 1500, false)), [(near, false), (far, false)]);
    assert_eq!(turned(link(11, 1500, true)), [(far, true)]);
    assert_eq!(turned(link(10, 1500, true)), [(near, true), (far, true)]);
}

/// As the kernel has it with `ignore_routes_with_linkdown`: meanwhile the next best route is used, and it is still shown.
#[test]
fn a_static_route_waits_while_its_links_are_down() {
    let statics = "[[route]]\nprefix='30.0.0.0/8'\nvia='10.2.0.9%wan'\n[[route]]\nprefix='30.1.0.0/16'\nvia='10.1.0.8'\n\
        [[route]]\nprefix='30.1.2.0/24'\nvia='10.2.0.9%wan'\n\
        [[route]]\nprefix='31.0.0.0/8'\nvia=['10.1.0.8','10.2.0.9%wan']\n";
    let leads = |lab: &mut Lab| ["30.9.0.1", "30.1.2.1", "31.0.0.1"].map(|address| lab.route("", address));
    let up = [
        "static 30.0.0.0/8 wan unresolved",
        "static 30.1.2.0/24 wan unresolved",
        "static 31.0.0.0/8 lan unresolved, wan unresolved",
    ];
    let mut lab = lab_with(false, statics);
    assert_eq!(leads(&mut lab), ["none"; 3], "from the start");
    tell(&mut lab, &[link(10, 1500, true), link(11, 1500, true)]).unwrap();
    assert_eq!(leads(&mut lab), up);
    let kernels = route(254, "30.0.0.0/8", via(&[(10, Some("10.1.0.8"), 1)]));
    tell(&mut lab, &[kernels]).unwrap();
    assert_eq!(leads(&mut lab), up, "a static one comes first");
    let hop: IpAddr = "30.1.2.1".parse().unwrap();
    assert!(lab.control.bgp_reaches(hop));
    lab.control.bgp_turned();

    tell(&mut lab, &[link(11, 1500, false)]).unwrap();
    let by_lan = [
        "kernel 30.0.0.0/8 lan unresolved",
        "static 30.1.0.0/16 lan unresolved",
        "static 31.0.0.0/8 lan unresolved, wan down",
    ];
    assert_eq!(leads(&mut lab), by_lan);
    assert_eq!(lab.control.bgp_turned(), [(hop, true)], "what BGP's next hops come to goes by them, too");
    let (list, _) = lab.control.routes(Some(""), "30.0.0.0/8".parse().unwrap(), 0, 9);
    let shown: Vec<_> = list.iter().map(|r| (r.source.name(), r.hops[0].state, r.best)).collect();
    assert_eq!(shown, [("static", "down", false), ("kernel", "unresolved", true)]);
    let added = RouteConfig {
        prefix: "32.0.0.0/8".into(),
        via: Some(OneOrMany::One("10.2.0.9%wan".into())),
        ..RouteConfig::default()
    };
    lab.control.add_route(lab.now_ns(), &added).unwrap();
    assert_eq!(lab.route("", "32.0.0.1"), "none");
    tell(&mut lab, &[link(10, 1500, false)]).unwrap();
    let nowhere = ["kernel 30.0.0.0/8 lan down", "kernel 30.0.0.0/8 lan down", "none"];
    assert_eq!(leads(&mut lab), nowhere, "what the kernel says it takes back itself");

    tell(&mut lab, &[link(10, 1500, true), link(11, 1500, true)]).unwrap();
    assert_eq!(leads(&mut lab), up);
    assert_eq!(lab.route("", "32.0.0.1"), "static 32.0.0.0/8 wan unresolved");
    lab.end();
}

#[test]
fn links_go_down_and_come_up() {
    let mut lab = lab(false);
    let gateway = route(254, "20.0.0.0/8", via(&[(11, Some("10.2.0.9"), 1)]));
    let other = route(254, "21.0.0.0/8", via(&[(11, Some("10.2.0.9"), 1), (10, Some("10.1.0.8"), 1)]));
    tell(&mut lab, &[gateway, other, address(11, "10.2.0.1/24", false)]).unwrap();
    assert_eq!((lab.lines(WAN).len(), lab.lines(LAN).len()), (0, 0), "nothing goes by a link that is down");
    assert_eq!(lab.route("", "20.0.0.1"), "kernel 20.0.0.0/8 wan down");
    tell(&mut lab, &[link(10, 1500, true), link(11, 1500, true), link(12, 1500, true)]).unwrap();
    assert!(lab.lines(WAN).concat().contains("10.2.0.9"), "now it is asked for");
    lab.play(WAN, answer(1, (mac(9), "10.2.0.9"), "10.2.0.1"));
    lab.play(LAN, answer(0, (mac(8), "10.1.0.8"), "10.1.0.1"));
    let packets = || (0..40).map(|n| datagram(0, "10.1.0.9", "21.0.0.1", (n, 2)));
    packets().for_each(|packet| lab.receive(LAN, packet));
    lab.play(LAN, datagram(0, "10.1.0.9", "20.0.0.1", (1, 2)));
    let by_wan = lab.sent(WAN).len();
    assert!((10..32).contains(&by_wan), "{by_wan}");
    lab.sent(LAN);
    tell(&mut lab, &[link(11, 1500, false)]).unwrap();
    packets().for_each(|packet| lab.receive(LAN, packet));
    lab.play(LAN, datagram(0, "10.1.0.9", "20.0.0.1", (1, 2)));
    assert_eq!((lab.sent(WAN).len(), lab.sent(LAN).len()), (0, 41), "forty by the other link, and one error");
    assert_eq!(lab.drops(), "interface-down=1");
    // A link that comes back does not bring its old neighbors with it.
    tell(&mut lab, &[link(11, 1500, true)]).unwrap();
    lab.wait(1.0); // nobody is asked more often
    assert!(lab.lines(WAN).concat().contains("10.2.0.9"));
    assert_eq!(lab.route("", "20.0.0.1"), "kernel 20.0.0.0/8 wan unresolved");
    // Nor does one that was removed.
    let gone =
        KernelEvent::Link { index: 11, name: "x".into(), mac: None, mtu: 1500, up: true, removed: true };
    tell(&mut lab, &[gone]).unwrap();
    assert_eq!(lab.route("", "20.0.0.1"), "kernel 20.0.0.0/8 wan down");
    lab.end();
}

#[test]
fn a_device_too_small_for_ipv6_has_none_and_nothing_else_is_lost() {
    let mut lab = lab(true);
    let events = [
        link(10, 1200, true), // has an IPv6 address
        route(254, "20.0.0.0/8", Some(KernelPath::Blackhole)),
        address(11, "10.2.0.1/24", false),
    ];
    tell(&mut lab, &events).unwrap();
    let seen = |lab: &Lab| {
        let interface = lab.control.settings().interfaces.get(0).unwrap();
        (interface.mtu, interface.v4.len(), interface.v6.len())
    };
    assert_eq!(seen(&lab), (1200, 1, 0));
    assert_eq!(lab.route("", "20.0.0.1"), "kernel 20.0.0.0/8  blackhole");
    assert_eq!(lab.route("", "10.2.0.1"), "own 10.2.0.1/32  kernel");
    tell(&mut lab, &[link(10, 1400, true)]).unwrap();
    assert_eq!(seen(&lab), (1400, 1, 1));
    lab.end();
}

#[test]
fn only_where_the_kernel_hears_too_do_its_addresses_disturb_ours() {
    let mut lab = lab(true);
    assert!(lab.control.kernel_conflicts(|_| false).is_empty());
    tell(&mut lab, &[address(10, "10.1.0.1/24", false), address(11, "10.2.0.1/24", false)]).unwrap();
    let lines = lab.control.kernel_conflicts(|_| false);
    assert!(
        lines.len() == 1 && lines[0].starts_with("lan: ") && lines[0].contains("10.1.0.1/24"),
        "{lines:?}"
    );
    assert_eq!(lab.control.kernel_conflicts(|port| port == 1), lines, "the kernel owns that one");
    assert!(lab.control.kernel_conflicts(|port| port == 0).is_empty());
    lab.end();
}

#[test]
fn static_routes_find_the_links_of_the_kernels_addresses() {
    let config =
        "[[interface]]\nport='wan'\nowner='kernel'\n[[route]]\nprefix='30.0.0.0/8'\nvia='10.2.0.9'\n";
    let config = toml::from_str(config).unwrap();
    let device = Device { index: 11, mac: mac(1), mtu: 1500, up: true };
    let ports = [PortInfo { device: Some(device), ..PortInfo::new("wan") }];
    let domain = tidemill_lookup::qsbr::Domain::new();
    let make = |events: &[KernelEvent]| {
        let devices = tidemill_router::kernel_devices(&ports, events);
        let (v4, v6) = (Routes::default(), Routes::default());
        tidemill_router::RouterControl::with_devices(
            &config,
            &ports,
            devices,
            v4,
            v6,
            &domain,
            &tidemill_lookup::numa::Copies::one(),
        )
    };
    let error = make(&[]).err().unwrap().to_string();
    assert!(error.contains("10.2.0.9 is on none of our links"), "{error}");
    let mut control = make(&[link(11, 1500, true), address(11, "10.2.0.1/24", false)]).unwrap();
    let wanted = "30.0.0.1".parse().unwrap();
    let (routes, _) = control.routes(None, wanted, 0, 9);
    assert_eq!((&*routes[0].prefix, &*routes[0].hops[0].interface), ("30.0.0.0/8", "wan"));
}

#[test]
fn a_device_is_known_again_by_its_name() {
    let mut index = 9;
    let ports = ["lan", "wan", "dmz"].map(|name| {
        index += 1;
        let device = Device { index, mac: port_mac(index as u8 - 10), mtu: 1500, up: true };
        PortInfo { device: Some(device), interface: format!("eth-{name}"), ..PortInfo::new(name) }
    });
    let mut lab = Lab::with(&format!("{TEXT}{}", fixed_host()), ports, Routes::default(), Routes::default());
    lab.settle();
    let link = |index: u32, name: &str, mac: u8, mtu: u32, removed: bool| KernelEvent::Link {
        index,
        name: name.into(),
        mac: Some([2, 0, 0, 0, 9, mac]),
        mtu,
        up: true,
        removed,
    };
    tell(&mut lab, &[link(11, "eth-wan", 1, 1500, false), address(11, "10.2.0.1/24", false)]).unwrap();
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    assert_eq!(lab.sent(WAN).len(), 1, "what waited for the answer");
    let wan = |lab: &Lab| lab.control.settings().interfaces.get(1).unwrap().clone();

    // The new one is there before the old one is said to be gone.
    tell(
        &mut lab,
        &[
            link(77, "eth-wan", 7, 1400, false),
            link(11, "eth-wan", 1, 1500, true),
            address(11, "10.2.0.1/24", true),
            address(77, "10.2.0.1/24", false),
            route(254, "10.80.0.0/16", via(&[(77, Some("10.2.0.6"), 1)])),
        ],
    )
    .unwrap();
    let now = wan(&lab);
    assert_eq!((now.up, now.mtu, now.mac.0[5]), (true, 1400, 7));
    assert_eq!(lab.control.port_of_device(77).as_deref(), Some("wan"));
    assert_eq!(lab.control.port_of_device(11), None);
    assert!(lab.route("", "10.80.0.1").starts_with("kernel 10.80.0.0/16"), "{}", lab.route("", "10.80.0.1"));
    // Who was there is asked anew, from the new address.
    lab.sent(WAN);
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    let sent = lab.sent(WAN);
    assert!(
        sent.iter().any(|frame| frame[6..12] == [2, 0, 0, 0, 9, 7] && frame[12..14] == [8, 6]),
        "{sent:x?}"
    );

    // One that is renamed is somebody else's.
    tell(&mut lab, &[link(77, "eth-other", 7, 1400, false)]).unwrap();
    assert!(!wan(&lab).up);
    tell(&mut lab, &[link(77, "eth-wan", 7, 1400, false)]).unwrap();
    assert!(wan(&lab).up);

    // An MTU is followed as far as frames go.
    lab.control.take_notes();
    lab.control.limit_mtu(1774);
    for (mtu, ours) in [(1700, 1700), (9000, 1700), (1500, 1500)] {
        tell(&mut lab, &[link(77, "eth-wan", 7, mtu, false)]).unwrap();
        assert_eq!(wan(&lab).mtu, ours);
        let notes = lab.control.take_notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(notes[0].contains("ours stays 1700"), mtu == 9000, "{notes:?}");
    }
}

/// Also where the kernel tells of both at once.
#[test]
fn a_device_with_the_number_of_one_before_is_another() {
    let mut lab = lab(true);
    let there = [link(11, 1500, true), address(11, "10.2.0.1/24", false)];
    tell(&mut lab, &there).unwrap();
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    lab.sent(WAN);
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    let is_asked = |frame: &Vec<u8>| frame[12..14] == [8, 6];
    assert!(!lab.sent(WAN).iter().any(is_asked), "it is known");
    let gone =
        KernelEvent::Link { index: 11, name: "x".into(), mac: None, mtu: 1500, up: true, removed: true };
    let [link, address] = there;
    tell(&mut lab, &[gone, link, address]).unwrap();
    assert!(lab.control.settings().interfaces.get(1).unwrap().up);
    lab.sent(WAN);
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    let sent = lab.sent(WAN);
    assert!(sent.iter().any(is_asked), "who was on its link is asked anew: {sent:x?}");
}

/// A batch with a route too many: what it takes away goes, what fits comes, what does not is named and comes when there is room.
#[test]
fn what_does_not_fit_costs_nothing_else() {
    let text = "router.algorithm='sail-l8'\n[kernel]\n[[interface]]\nport='lan'\naddresses=['10.0.0.1/8']\n\
        [[interface]]\nport='wan'\nowner='kernel'\n[[interface]]\nport='dmz'\n";
    let mut index = 9;
    let ports = ["lan", "wan", "dmz"].map(|name| {
        index += 1;
        let device = Device { index, mac: port_mac(index as u8 - 10), mtu: 1500, up: true };
        PortInfo { device: Some(device), ..PortInfo::new(name) }
    });
    let mut lab = Lab::with(text, ports, Routes::default(), Routes::default());
    lab.settle();
    tell(&mut lab, &[address(11, "11.0.0.1/24", false), KernelEvent::InSync]).unwrap();
    let to = |prefix: &str, gateway: u32| {
        let gateway = format!("10.1.{}.{}", gateway / 250, 1 + gateway % 250);
        route(254, prefix, via(&[(10, Some(&gateway), 1)]))
    };
    let some = |i: u32| format!("20.{}.{}.0/24", i / 250, i % 250);
    let in_use = |lab: &mut Lab, i: u32| lab.route("", &some(i).replace("0/24", "1")) != "none";
    let state = |lab: &Lab| (lab.control.kernel_routes().0, lab.control.lookup_stats()[0].refused);

    // 254 labels, some of them for our own routes.
    let error = tell(&mut lab, &(0..300).map(|i| to(&some(i), i)).collect::<Vec<_>>()).unwrap_err();
    let (taken, left) = state(&lab);
    assert!((230..254).contains(&taken) && taken + left == 300, "{taken} and {left}");
    assert!(error.contains(&format!("{left} of the kernel routes left out")), "{error}");
    assert!(error.contains("does not fit into 8 bits"), "{error}");

    let batch = [
        to("40.0.0.0/24", 500),
        route(254, &some(0), None),
        to(&some(1), 501),
        to("30.0.0.0/24", 3),
        route(254, &some(2), None),
    ];
    let error = tell(&mut lab, &batch).unwrap_err();
    assert!(error.contains("2 of the kernel routes left out") && error.contains("40.0.0.0/24"), "{error}");
    let kept: Vec<bool> = (0..4).map(|i| in_use(&mut lab, i)).collect();
    assert_eq!(
        kept,
        [false, false, false, true],
        "withdrawn; not by that gateway any more; withdrawn; as before"
    );
    assert!(lab.route("", "30.0.0.1").starts_with("kernel 30.0.0.0/24"));
    assert_eq!(lab.route("", "40.0.0.1"), "none");
    assert_eq!(state(&lab), (taken - 2, left + 2));

    // Three next hops are free for three of those that wait. The others wait on, whatever they are told again.
    lab.wait(25.0);
    assert_eq!(state(&lab), (taken + 1, left - 1));
    let notes = lab.control.take_notes().concat();
    assert!(notes.contains("fit now that had been refused"), "{notes}");
    let again: Vec<KernelEvent> =
        (0..300).filter(|&i| i > 2 && !in_use(&mut lab, i)).map(|i| to(&some(i), i)).collect();
    let before = lab.control.lookup_stats()[0].generation;
    tell(&mut lab, &again).unwrap();
    assert_eq!((state(&lab), lab.control.lookup_stats()[0].generation), ((taken + 1, left - 1), before));
    let gone: Vec<KernelEvent> = [to("40.0.0.0/24", 0), to(&some(1), 0)]
        .into_iter()
        .map(|event| match event {
            KernelEvent::Route { table, prefix, .. } => KernelEvent::Route { table, prefix, path: None },
            other => other,
        })
        .chain((0..300).filter(|&i| !in_use(&mut lab, i)).map(|i| route(254, &some(i), None)))
        .collect();
    tell(&mut lab, &gone).unwrap();
    assert_eq!(state(&lab).1, 0, "what the kernel has taken back waits no more");
    lab.wait(25.0);

    // Hosts of the link, more than there are labels for: as many as there are have their routes.
    let full = state(&lab).0;
    let events: Vec<KernelEvent> =
        (0..300).filter(|&i| in_use(&mut lab, i)).map(|i| route(254, &some(i), None)).take(3).collect();
    tell(&mut lab, &events).unwrap();
    assert_eq!(state(&lab), (full - 3, 0));
    let host = |i: u8| KernelEvent::Neighbor {
        index: 11,
        address: format!("11.0.0.{i}").parse().unwrap(),
        mac: Some(mac(i).0),
        reachable: true,
    };
    let hosts: Vec<KernelEvent> = (10..250).map(host).collect();
    let error = tell(&mut lab, &hosts).unwrap_err();
    assert!(error.contains("of the neighbor routes left out"), "{error}");
    let has_route = |lab: &mut Lab, i: u8| lab.route("", &format!("11.0.0.{i}")).starts_with("neighbor");
    let with_route = (10..250).filter(|&i| has_route(&mut lab, i)).count();
    assert_eq!(with_route, 2, "30.0.0.0/24 has one of the three next hops");
    lab.end();
}
