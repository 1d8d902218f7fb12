//! Neighbors of a running router: who is asked and when, what waits, what follows from an answer or from none.

use crate::lab::*;

fn lab(more: &str) -> Lab {
    Lab::new(&format!("{LINKS}{}{more}", fixed_host()))
}

/// The destination MAC addresses of frames, and their VLAN.
fn to(frames: &[Vec<u8>]) -> Vec<(u8, Option<u8>)> {
    frames.iter().map(|frame| (frame[5], (frame[12..14] == [0x81, 0]).then(|| frame[15]))).collect()
}

#[test]
fn the_first_packet_waits_for_the_answer_and_the_next_goes_straight() {
    let cases = [
        ("10.1.0.9", "10.2.0.5", "10.2.0.1", None),
        ("fd01::9", "fd02::5", "fd02::1", None),
        ("10.1.0.9", "10.7.0.5", "10.7.0.1", Some(7)),
        ("fd01::9", "fd07::5", "fd07::1", Some(7)),
    ];
    for (src, dst, ours, vlan) in cases {
        let mut lab = lab("");
        lab.settle();
        assert_eq!(lab.lines(WAN), [""; 0], "nobody is asked for nothing");
        lab.play(LAN, datagram(0, src, dst, (1, 2)));
        let asked = lab.lines(WAN);
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert!(asked[0].contains(dst) && asked[0].contains(ours), "{asked:?}");
        assert_eq!(asked[0].contains("vlan 7"), vlan.is_some(), "{asked:?}");
        // It is asked once, whatever else wants to go there.
        lab.play(LAN, datagram(0, src, dst, (3, 4)));
        assert_eq!((lab.lines(WAN).len(), lab.lines(DMZ).len()), (0, 0));
        let reply = answer(1, (mac(5), dst), ours);
        lab.play(WAN, vlan.map_or(reply.clone(), |id| tag(&reply, id)));
        assert_eq!(to(&lab.sent(WAN)), [(5, vlan.map(|id| id as u8)); 2], "both that waited");
        let route = lab.route("", dst);
        assert!(route.starts_with(&format!("neighbor {dst}/")) && route.ends_with("resolved"), "{route}");
        lab.receive(LAN, datagram(0, src, dst, (1, 2)));
        lab.turn();
        assert_eq!(to(&lab.sent(WAN)), [(5, vlan.map(|id| id as u8))], "straight, in one turn");
        assert_eq!(lab.drops(), "");
        lab.end();
    }
}

#[test]
fn nobody_answers_and_the_sender_is_told() {
    for (src, dst) in [("10.1.0.9", "10.2.0.5"), ("fd01::9", "fd02::5")] {
        let mut lab = lab("");
        for port in 0..6 {
            lab.receive(LAN, datagram(0, src, dst, (port, 2)));
        }
        lab.settle();
        lab.wait(2.5);
        assert_eq!(lab.lines(WAN).len(), 3, "three questions, a second apart");
        assert_eq!((lab.lines(LAN).len(), lab.drops()), (0, "neighbor-queue-full=2".into()));
        lab.wait(1.0);
        let told = lab.lines(LAN);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].contains("unreachable"), "{told:?}");
        assert!(lab.drops().contains("neighbor-unresolved=4"), "{}", lab.drops());
        assert!(lab.route("", dst).starts_with("own"));
        lab.end();
    }
}

#[test]
fn gateways_are_resolved_beforehand_followed_and_lost() {
    let mut lab = lab("[[route]]\nprefix='20.0.0.0/8'\nvia='10.2.0.9'\n");
    lab.settle();
    assert!(lab.lines(WAN)[0].contains("10.2.0.9"), "before any packet");
    lab.play(WAN, answer(1, (mac(9), "10.2.0.9"), "10.2.0.1"));
    let packet = datagram(0, "10.1.0.9", "20.1.2.3", (1, 2));
    lab.receive(LAN, packet.clone());
    lab.turn();
    assert_eq!(to(&lab.sent(WAN)), [(9, None)]);
    // It gets another network card.
    lab.wait(2.0);
    lab.play(WAN, announcement((mac(10), "10.2.0.9")));
    lab.receive(LAN, packet.clone());
    lab.turn();
    assert_eq!(to(&lab.sent(WAN)), [(10, None)]);
    // It stops answering: it is probed, lost, and asked for again and again; packets wait, and then their senders know.
    lab.wait(60.0);
    assert_eq!(lab.route("", "20.1.2.3"), "static 20.0.0.0/8 wan unresolved");
    assert!(lab.route("", "10.2.0.9").starts_with("own"), "its host route is gone too");
    lab.sent(WAN);
    lab.play(LAN, packet.clone());
    lab.wait(4.0);
    assert!(lab.lines(LAN)[0].contains("unreachable"));
    lab.play(WAN, answer(1, (mac(9), "10.2.0.9"), "10.2.0.1"));
    lab.sent(WAN);
    lab.receive(LAN, packet);
    lab.turn();
    assert_eq!(to(&lab.sent(WAN)), [(9, None)], "it is back");
    lab.end();
}

#[test]
fn ipv4_goes_by_an_ipv6_gateway_and_by_a_link_local_one() {
    let mut lab = lab("[[route]]\nprefix='20.0.0.0/8'\nvia='fd02::9'\n\
                       [[route]]\nprefix='21.0.0.0/8'\nvia='fe80::9%wan.7'\n");
    lab.settle();
    let asked = lab.lines(WAN);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().any(|line| line.contains("vlan 7") && line.contains("fe80::9")), "{asked:?}");
    for dst in ["20.1.2.3", "21.1.2.3"] {
        lab.play(LAN, datagram(0, "10.1.0.9", dst, (1, 2)));
    }
    assert_eq!(lab.sent(WAN).len(), 0, "they wait");
    lab.play(WAN, answer(1, (mac(9), "fd02::9"), "fd02::1"));
    lab.play(WAN, tag(&answer(1, (mac(8), "fe80::9"), "fe80::49:ff:fe00:1"), 7));
    let sent = lab.sent(WAN);
    assert_eq!(to(&sent), [(9, None), (8, Some(7))]);
    assert_eq!((&sent[0][12..14], &sent[1][16..18]), (&[8, 0][..], &[8, 0][..]), "IPv4 behind them");
    assert_eq!(lab.drops(), "");
    lab.end();
}

#[test]
fn a_gateway_of_both_families_is_held_until_neither_needs_it() {
    let mut lab = lab("");
    let held = |lab: &Lab| lab.control.neighbors().iter().filter(|neighbor| neighbor.held).count();
    for prefix in ["20.0.0.0/8", "2001:db8::/32"] {
        let route = format!("prefix='{prefix}'\nvia='fd02::9'");
        let now_ns = lab.now_ns();
        lab.control.add_route(now_ns, &toml::from_str(&route).unwrap()).unwrap();
    }
    lab.settle();
    assert_eq!(held(&lab), 1);
    let now_ns = lab.now_ns();
    lab.control.delete_route(now_ns, "20.0.0.0/8", None).unwrap();
    assert_eq!(held(&lab), 1, "the other family's route needs it");
    lab.control.delete_route(now_ns, "2001:db8::/32", None).unwrap();
    assert_eq!(held(&lab), 0);
    lab.end();
}

#[test]
fn gateways_of_single_labels_are_resolved_beforehand_too() {
    let text = format!("{LINKS}{}[[next_hop]]\nlabel=4\nport='wan'\nvia='192.0.2.1'\n", fixed_host());
    let ports = ["lan", "wan", "dmz"].map(tidemill_router::PortInfo::new);
    let table = crate::common::routes(&[("30.0.0.0/8", 4)]);
    let mut lab = Lab::with(&text, ports, table, crate::common::routes(&[]));
    lab.settle();
    assert!(lab.lines(WAN)[0].contains("192.0.2.1"));
    lab.play(WAN, answer(1, (mac(3), "192.0.2.1"), "10.2.0.1"));
    lab.receive(LAN, datagram(0, "10.1.0.9", "30.0.0.1", (1, 2)));
    lab.turn();
    assert_eq!(to(&lab.sent(WAN)), [(3, None)]);
    lab.end();
}

#[test]
fn routes_put_addresses_on_a_link_that_has_no_address_among_them() {
    // A whole prefix, and a single host.
    for (prefix, dst) in
        [("10.9.0.0/16", "10.9.0.5"), ("10.9.0.5/32", "10.9.0.5"), ("fd09::5/128", "fd09::5")]
    {
        let v4 = dst.contains('.');
        let (src, ours) = if v4 { ("10.1.0.9", "10.2.0.1") } else { ("fd01::9", "fd02::1") };
        let mut lab = lab(&format!("[[route]]\nprefix='{prefix}'\nport='wan'\n"));
        lab.play(LAN, datagram(0, src, dst, (1, 2)));
        let asked = lab.lines(WAN);
        assert!(asked.len() == 1 && asked[0].contains(dst), "{prefix}: {asked:?} {}", lab.drops());
        lab.play(WAN, answer(1, (mac(5), dst), ours));
        assert_eq!(to(&lab.sent(WAN)), [(5, None)], "{prefix}");
        lab.receive(LAN, datagram(0, src, dst, (1, 2)));
        lab.turn();
        assert_eq!(to(&lab.sent(WAN)), [(5, None)], "{prefix}: straight");
        lab.wait(60.0);
        assert!(lab.route("", dst).starts_with("static"), "lost again: {}", lab.route("", dst));
        assert_eq!(lab.drops(), "");
        lab.end();
    }
}

#[test]
fn a_more_specific_route_takes_over_from_a_neighbor() {
    let mut lab = lab("");
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    assert_eq!(lab.route("", "10.2.0.5"), "neighbor 10.2.0.5/32 wan resolved");
    let now_ns = lab.now_ns();
    let route = toml::from_str("prefix='10.2.0.0/28'\nkind='blackhole'").unwrap();
    lab.control.add_route(now_ns, &route).unwrap();
    assert_eq!(lab.route("", "10.2.0.5"), "static 10.2.0.0/28  blackhole");
    lab.control.delete_route(now_ns, "10.2.0.0/28", None).unwrap();
    lab.sent(WAN);
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    assert_eq!(to(&lab.sent(WAN)), [(5, None)], "known already: not asked again");
    assert_eq!(lab.route("", "10.2.0.5"), "neighbor 10.2.0.5/32 wan resolved");
    lab.end();
}

#[test]
fn a_route_into_another_vrfs_link_finds_its_neighbors() {
    let blue = "[[interface]]\nport='lan'\nresolve=true\naddresses=['10.1.0.1/24']\n\
                [[interface]]\nport='wan'\nresolve=true\nvrf='blue'\naddresses=['10.2.0.1/24']\n\
                [[route]]\nprefix='10.2.0.0/24'\nport='wan'\n[[route]]\nprefix='0.0.0.0/0'\nvrf='blue'\nport='lan'\n";
    let mut lab = Lab::new(blue);
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    let sent = lab.sent(WAN);
    assert_eq!((sent.len(), &to(&sent)[1..]), (2, &[(5, None)][..]), "the question, and the packet");
    // And back, in turns of one each.
    lab.play(WAN, datagram(1, "10.2.0.5", "10.1.0.9", (2, 1)));
    lab.play(LAN, answer(0, (mac(6), "10.1.0.9"), "10.1.0.1"));
    assert_eq!(to(&lab.sent(LAN))[1..], [(6, None)]);
    lab.receive(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.receive(WAN, datagram(1, "10.2.0.5", "10.1.0.9", (2, 1)));
    lab.turn();
    assert_eq!((to(&lab.sent(WAN)), to(&lab.sent(LAN))), (vec![(5, None)], vec![(6, None)]));
    lab.wait(60.0);
    let routes = [lab.route("", "10.2.0.5"), lab.route("blue", "10.2.0.5"), lab.route("blue", "10.1.0.9")];
    assert!(routes.iter().all(|route| !route.starts_with("neighbor")), "{routes:?}");
    assert_eq!(lab.drops(), "");
    lab.end();
}

#[test]
fn a_scan_costs_the_scanner_only() {
    let wide = "[[interface]]\nport='lan'\nresolve=true\naddresses=['10.1.0.1/24']\n\
                [[interface]]\nport='wan'\nresolve=true\naddresses=['10.64.0.1/10']\n";
    let mut lab =
        Lab::new(&format!("{wide}{}", fixed_host().split("[[").take(2).collect::<Vec<_>>().join("[[")));
    for n in 0..100_000u32 {
        let dst = std::net::Ipv4Addr::from(0x0a41_0000 + n).to_string();
        lab.receive(LAN, datagram(0, "10.1.0.66", &dst, (1, 2)));
    }
    for _ in 0..100_000 / 256 + 1 {
        lab.turn();
        lab.control.poll(lab.now_ns()).unwrap();
    }
    lab.settle();
    let asked = lab.sent(WAN).len();
    assert!((90..=102).contains(&asked), "{asked}");
    assert!(lab.control.neighbors().len() <= 110);
    lab.play(LAN, datagram(0, "10.1.0.9", "10.64.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.64.0.5"), "10.64.0.1"));
    assert_eq!(lab.sent(WAN).len(), 2, "somebody else's question, and his packet");
    // Many sources: bounded in all, oldest out first.
    for n in 0..20_000u32 {
        let src = std::net::Ipv4Addr::from(0x2800_0000 + n / 20).to_string();
        let dst = std::net::Ipv4Addr::from(0x0a60_0000 + n).to_string();
        lab.receive(LAN, datagram(0, &src, &dst, (1, 2)));
    }
    for _ in 0..20_000 / 256 + 1 {
        lab.turn();
        lab.control.poll(lab.now_ns()).unwrap();
    }
    lab.settle();
    let asked = lab.sent(WAN).len();
    assert!((5_000..=10_000).contains(&asked), "{asked}");
    assert!(lab.control.neighbors().len() <= 4096 + 200, "{}", lab.control.neighbors().len());
    let drops = lab.drops();
    assert!(drops.contains("neighbor-rate-limited=") && drops.contains("neighbor-queue-full="), "{drops}");
    assert!(lab.route("", "10.64.0.5").starts_with("neighbor"), "what works stays");
    lab.end();
}

#[test]
fn neighbors_that_give_way_at_once_leave_no_route() {
    // All answer between two polls, and there is room for a few.
    let mut lab = Lab::new(&format!("{LINKS}[neighbors]\nlimit=16\n"));
    for n in 100..140 {
        lab.receive(LAN, datagram(0, "10.1.0.9", &format!("10.2.0.{n}"), (1, 2)));
    }
    lab.settle();
    for n in 100..140 {
        lab.receive(WAN, answer(1, (mac(n), &format!("10.2.0.{n}")), "10.2.0.1"));
    }
    lab.settle();
    let known: Vec<_> = lab
        .control
        .neighbors()
        .iter()
        .filter(|n| n.mac.is_some())
        .map(|n| n.key.address.to_string())
        .collect();
    assert_eq!(known.len(), 16);
    for n in 100..140 {
        let address = format!("10.2.0.{n}");
        let route = lab.route("", &address);
        assert_eq!(route.starts_with("neighbor"), known.contains(&address), "{route}");
    }
    lab.wait(5.0);
    lab.end();
}

#[test]
fn a_link_that_begins_to_resolve_asks_for_its_gateways() {
    let text = |resolve: bool| {
        let links = LINKS.replace("port='wan'\nresolve=true", &format!("port='wan'\nresolve={resolve}"));
        format!("{links}{}[[route]]\nprefix='20.0.0.0/8'\nvia='10.2.0.9'\n", fixed_host())
    };
    let mut lab = Lab::new(&text(false));
    lab.play(LAN, datagram(0, "10.1.0.9", "20.1.2.3", (1, 2)));
    assert_eq!((lab.sent(WAN).len(), lab.drops()), (0, "neighbor-unresolved=1".into()));
    let now_ns = lab.now_ns();
    lab.control.reload(now_ns, &toml::from_str(&text(true)).unwrap()).unwrap();
    lab.settle();
    assert!(lab.lines(WAN).concat().contains("10.2.0.9"), "before any packet");
    let held = |lab: &Lab| lab.control.neighbors().iter().filter(|neighbor| neighbor.held).count();
    assert_eq!(held(&lab), 1);
    let now_ns = lab.now_ns();
    lab.control.reload(now_ns, &toml::from_str(&text(false)).unwrap()).unwrap();
    assert_eq!(held(&lab), 0);
    lab.end();
}

#[test]
fn packets_go_somewhere_while_neighbors_come_and_go() {
    let text = |known: bool| {
        let fixed = "[[neighbors.fixed]]\ninterface='wan'\naddress='10.2.0.9'\nmac='02:bb:00:00:00:09'\n";
        let route = "[[route]]\nprefix='20.0.0.0/8'\nvia='10.2.0.9'\n";
        format!("{LINKS}{}{}{route}", fixed_host(), if known { fixed } else { "" })
    };
    let configs = [true, false].map(|known| toml::from_str(&text(known)).unwrap());
    let mut lab = Lab::new(&text(true));
    let frames = ["20.1.2.3", "10.2.0.9"].map(|dst| datagram(0, "10.1.0.9", dst, (1, 2)));
    let now_ns = lab.now_ns();
    let mut received = 0;
    lab.meanwhile(|lab| {
        let mut n = 0;
        while n < 300 || received < 5000 {
            while lab.waiting(LAN) < 512 {
                frames.iter().for_each(|frame| lab.receive(LAN, frame.clone()));
                received += frames.len();
            }
            lab.control.reload(now_ns, &configs[n % 2]).unwrap();
            n += 1;
            lab.control.poll(now_ns).unwrap();
            lab.control.collect();
        }
        lab.control.reload(now_ns, &configs[0]).unwrap();
    });
    while lab.waiting(LAN) > 0 {
        lab.turn();
    }
    lab.settle();
    let drops = lab.drops();
    let known = ["neighbor-unresolved", "neighbor-queue-full", "neighbor-rate-limited"];
    assert!(drops.split_whitespace().all(|drop| known.iter().any(|name| drop.starts_with(name))), "{drops}");
    let packets: Vec<_> = lab.sent(WAN).into_iter().filter(|frame| frame[12..14] == [8, 0]).collect();
    assert!(packets.iter().all(|frame| frame[..12] == [2, 0xbb, 0, 0, 0, 9, 2, 0x49, 0, 0, 0, 1]));
    assert!(packets.len() > 100, "{received} {}", packets.len());
    lab.receive(LAN, frames[0].clone());
    lab.turn();
    assert_eq!(to(&lab.sent(WAN)), [(9, None)], "and in the end straight");
    lab.end();
}

#[test]
fn packets_wait_four_seconds_at_most_if_the_control_side_says_nothing() {
    let mut lab = lab("");
    lab.settle();
    lab.receive(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.turn();
    let begun_ns = lab.now_ns();
    lab.set_time(begun_ns + 4 * SECOND_NS - 1);
    lab.turn();
    assert_eq!(lab.lines(LAN), [""; 0]);
    lab.set_time(begun_ns + 4 * SECOND_NS);
    lab.turn();
    let told = lab.lines(LAN).concat();
    assert!(told.contains("unreachable"), "{told} {}", lab.drops());
    assert_eq!(lab.drops(), "neighbor-unresolved=1");
    lab.end();
}
