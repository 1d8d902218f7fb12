//! Another configuration for a running router: all of it, or nothing.

use crate::lab::*;
use std::collections::BTreeSet;
use tidemill_ip::Settings;
use tidemill_router::show::Wanted;
use tidemill_router::{RouteView, RouterConfig, RouterControl, RouterError, ShownHop};

/// Everything that can be seen.
type State = (Vec<RouteView>, Vec<(u8, &'static str, ShownHop)>, Settings, Vec<String>, u64);

fn state(control: &mut RouterControl) -> State {
    let routes = control.routes(None, Wanted::All, 0, 100_000).0;
    let mut neighbors: Vec<_> = control.neighbors().iter().map(|neighbor| format!("{neighbor:?}")).collect();
    neighbors.sort();
    (routes, control.next_hops(), control.settings().clone(), neighbors, control.generation())
}

/// Routes in use, as text.
fn routes(control: &mut RouterControl) -> BTreeSet<String> {
    let list = control.routes(None, Wanted::All, 0, 100_000).0;
    let used = list.into_iter().filter(|route| route.best);
    used.map(|route| {
        format!("{} {} {} {}", route.vrf, route.source.name(), route.kind, route.prefix).trim().into()
    })
    .collect()
}

fn reload(lab: &mut Lab, text: &str) -> Result<(), String> {
    let config: RouterConfig = toml::from_str(text).map_err(|error| error.to_string())?;
    let now_ns = lab.now_ns();
    lab.control.reload(now_ns, &config).map_err(|error| error.to_string())
}

/// What a table has no room for.
fn commit(lab: &mut Lab, text: &str) -> Vec<RouterError> {
    let now_ns = lab.now_ns();
    let prepared = lab.control.prepare(&toml::from_str(text).unwrap()).unwrap();
    let refused = lab.control.commit(now_ns, prepared);
    lab.settle();
    refused
}

fn base() -> String {
    format!(
        "[[vrf]]\nname='blue'\n{LINKS}{}[[route]]\nprefix='20.0.0.0/8'\nvia=['10.2.0.9','10.3.0.9@2']\n\
         [[route]]\nprefix='2001:db8::/32'\nvia='fd02::9'\n[[next_hop]]\nlabel=4\nport='wan'\nvia='10.2.0.77'\n",
        fixed_host()
    )
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let mut lab = Lab::new(&base());
    let now_ns = lab.now_ns();
    let added = "prefix='30.0.0.0/8'\nvia='10.3.0.66'";
    lab.control.add_route(now_ns, &toml::from_str(added).unwrap()).unwrap();
    lab.settle();
    lab.play(WAN, answer(1, (mac(9), "10.2.0.9"), "10.2.0.1"));
    let before = state(&mut lab.control);
    // A request names its interface `dev`.
    let nowhere = toml::from_str("prefix='31.0.0.0/8'\nport='none'").unwrap();
    let error = lab.control.add_route(now_ns, &nowhere).unwrap_err().to_string();
    assert!(error.starts_with("dev: there is no interface \"none\"; there are \"lan\""), "{error}");
    let good = base();
    let with = |more: &str| format!("{good}{more}");
    let but = |old: &str, new: &str| {
        assert!(good.contains(old), "{old}");
        good.replacen(old, new, 1)
    };
    let cases = [
        (with("[router]\nalgorithm='dxr-d18r'\n"), "router.algorithm"),
        (with("[router]\nttl=0\n"), "router.ttl"),
        (with("[[vrf]]\nname='red'\n"), "vrf"),
        (but("[[vrf]]\nname='blue'", ""), "vrf"),
        (but("name='blue'", "name='blue'\ntable=9"), "vrf"),
        (with("[kernel]\n"), "kernel"),
        (with("[[interface]]\nport='dmz'\nvlan=4\nvrf='red'\n"), "vrf"),
        (with("[[interface]]\nport='none'\n"), "interface[4].port"),
        (with("[[interface]]\nport='dmz'\n"), "interface[4].port"),
        (with("[[interface]]\nport='wan'\nvlan=7\nname='x'\n"), "interface[4].port"),
        (with("[[interface]]\nport='dmz'\nvlan=5000\n"), "interface[4].vlan"),
        (with("[[interface]]\nport='dmz'\nvlan=8\nname='wan'\n"), "interface[4].name"),
        (but("10.2.0.1/24", "10.2.0.0/24"), "interface[1].addresses[0]"),
        (but("port='dmz'", "port='dmz'\nmac='01:00:00:00:00:00'"), "interface[3].mac"),
        (but("port='dmz'", "port='dmz'\nmtu=1000"), "interface[3].mtu"),
        (but("port='dmz'", "port='dmz'\nowner='kernel'"), "interface[3].owner"),
        (with("[[route]]\nprefix='20.0.0.0/8'\nkind='blackhole'\n"), "route[2].prefix"),
        (with("[[route]]\nprefix='21.0.0.0/33'\nkind='blackhole'\n"), "route[2].prefix"),
        (with("[[route]]\nprefix='21.0.0.0/8'\nvia='10.9.0.9'\n"), "route[2].via"),
        (with("[[route]]\nprefix='21.0.0.0/8'\nvia='10.2.0.1'\n"), "route[2].via"),
        (with("[[route]]\nprefix='21.0.0.0/8'\nvia='10.2.0.9'\nvrf='red'\n"), "route[2].vrf"),
        (with("[[route]]\nprefix='21.0.0.0/8'\nvia='10.2.0.9'\nvrf='blue'\n"), "route[2].via"),
        (with("[[route]]\nprefix='21.0.0.0/8'\n"), "route[2].via"),
        (with("[[next_hop]]\nlabel=0\nkind='blackhole'\n"), "next_hop[1].label"),
        (with("[[next_hop]]\nname='x'\nkind='blackhole'\n"), "next_hop[1].name"),
        (with("[next_hops]\nports=['none']\n"), "next_hops.ports[0]"),
        (
            with("[[neighbors.fixed]]\ninterface='x'\naddress='10.1.0.2'\nmac='02:00:00:00:00:01'\n"),
            "neighbors.fixed",
        ),
        (with("[neighbors]\nattempts=99\n"), "neighbors"),
        // The route that was added has no link any more.
        (but("'10.3.0.1/24',", "").replace(",'10.3.0.9@2'", ""), "the added route to 30.0.0.0/8: via"),
    ];
    for (text, key) in cases {
        // A table of which there are two parts is none of TOML's.
        let text = match text.strip_suffix("[neighbors]\nattempts=99\n") {
            Some(_) => good.replace(&fixed_host(), "") + "[neighbors]\nattempts=99\n",
            None => text,
        };
        let error = reload(&mut lab, &text).expect_err(key);
        assert!(error.starts_with(key), "{key}: {error}");
        assert_eq!(state(&mut lab.control), before, "{key}");
    }
    reload(&mut lab, &good).unwrap();
    let after = state(&mut lab.control);
    assert_eq!(
        (after.0, after.1, after.2, after.3),
        (before.0, before.1, before.2, before.3),
        "the same again"
    );
    lab.end();
}

#[test]
fn a_good_configuration_changes_what_it_says() {
    let mut lab = Lab::new(&base());
    let now_ns = lab.now_ns();
    for added in ["prefix='30.0.0.0/8'\nvia='10.3.0.66'", "prefix='20.0.0.0/8'\nkind='unreachable'"] {
        lab.control.add_route(now_ns, &toml::from_str(added).unwrap()).unwrap();
    }
    lab.settle();
    lab.play(WAN, answer(1, (mac(9), "10.2.0.9"), "10.2.0.1"));
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    let before = routes(&mut lab.control);
    assert!(
        before.contains("neighbor forward 10.2.0.5/32") && before.contains("static unreachable 20.0.0.0/8")
    );
    // Another subnet on `wan`, another route, one route fewer.
    let text = base().replace("10.2.0.", "10.22.0.").replace(
        "[[route]]\nprefix='2001:db8::/32'\nvia='fd02::9'\n",
        "[[route]]\nprefix='40.0.0.0/8'\nkind='prohibited'\n",
    );
    reload(&mut lab, &text).unwrap();
    lab.settle();
    let after = routes(&mut lab.control);
    let gone: Vec<_> = before.difference(&after).map(String::as_str).collect();
    let come: Vec<_> = after.difference(&before).map(String::as_str).collect();
    assert_eq!(
        gone,
        [
            "neighbor forward 10.2.0.5/32",
            "neighbor forward 10.2.0.9/32",
            "own broadcast 10.2.0.255/32",
            "own connected 10.2.0.0/24",
            "own local 10.2.0.1/32",
            "static forward 2001:db8::/32",
        ]
    );
    assert_eq!(
        come,
        [
            "own broadcast 10.22.0.255/32",
            "own connected 10.22.0.0/24",
            "own local 10.22.0.1/32",
            "static prohibited 40.0.0.0/8",
        ]
    );
    // What was added and hid the configuration's route is withdrawn: after a reload that one is there.
    let now_ns = lab.now_ns();
    lab.control.delete_route(now_ns, "20.0.0.0/8", None).unwrap();
    assert_eq!(lab.route("", "20.1.1.1"), "none");
    assert!(lab.control.delete_route(now_ns, "20.0.0.0/8", None).is_err());
    reload(&mut lab, &text).unwrap();
    assert!(lab.route("", "20.1.1.1").starts_with("static 20.0.0.0/8"));
    lab.end();
}

#[test]
fn a_sub_interface_goes_and_comes_back() {
    let mut lab = Lab::new(&base());
    let packet = datagram(0, "10.1.0.9", "10.7.0.5", (1, 2));
    let reply = tag(&answer(1, (mac(5), "10.7.0.5"), "10.7.0.1"), 7);
    lab.play(LAN, packet.clone());
    lab.play(WAN, reply.clone());
    assert_eq!(lab.route("", "10.7.0.5"), "neighbor 10.7.0.5/32 wan.7 resolved");
    let entry = "[[interface]]\nport='wan'\nvlan=7\nresolve=true\naddresses=['10.7.0.1/24','fd07::1/64']\n";
    let without = base().replace(entry, "");
    assert_ne!(without, base());
    reload(&mut lab, &without).unwrap();
    lab.settle();
    assert_eq!(lab.route("", "10.7.0.5"), "none");
    (0..3).for_each(|port| drop(lab.sent(port)));
    lab.play(LAN, packet.clone());
    lab.play(WAN, reply.clone());
    assert_eq!((lab.lines(WAN).len(), lab.drops()), (0, "no-route=1 vlan-unknown=1".into()));
    reload(&mut lab, &base()).unwrap();
    lab.settle();
    lab.sent(WAN);
    lab.play(LAN, packet.clone());
    let asked = lab.lines(WAN);
    assert!(asked.len() == 1 && asked[0].contains("vlan 7"), "{asked:?}");
    lab.play(WAN, reply);
    let sent = lab.sent(WAN);
    assert_eq!((sent.len(), sent[0][5], sent[0][15]), (1, 5, 7));
    lab.end();
}

#[test]
fn an_interface_that_moves_to_another_vrf_takes_nothing_along() {
    let text = |vrf: &str| {
        format!(
            "[[vrf]]\nname='blue'\n[[interface]]\nport='lan'\nresolve=true\naddresses=['10.1.0.1/24']\n\
                 [[interface]]\nport='wan'\nresolve=true\naddresses=['10.2.0.1/24']\n{vrf}"
        )
    };
    let mut lab = Lab::new(&text(""));
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    assert!(lab.route("", "10.2.0.5").starts_with("neighbor"));
    reload(&mut lab, &text("vrf='blue'\n")).unwrap();
    assert_eq!((lab.route("", "10.2.0.5"), lab.route("", "10.2.0.1")), ("none".into(), "none".into()));
    assert!(lab.route("blue", "10.2.0.1").starts_with("own"));
    lab.end();
}

#[test]
fn the_mtu_changes_what_fits() {
    let mut lab = Lab::new(&base().replace("port='wan'\nresolve", "port='wan'\nmtu=1300\nresolve"));
    lab.settle();
    lab.play(WAN, answer(1, (mac(9), "10.2.0.9"), "10.2.0.1"));
    lab.play(DMZ, answer(2, (mac(9), "10.3.0.9"), "10.3.0.1"));
    lab.play(LAN, datagram(0, "10.1.0.9", "10.2.0.5", (1, 2)));
    lab.play(WAN, answer(1, (mac(5), "10.2.0.5"), "10.2.0.1"));
    (0..3).for_each(|port| drop(lab.sent(port)));
    let long = crate::common::udp4("10.1.0.9", "10.2.0.5", &[0; 1400], |ip| ip.set_fragment(true, false, 0));
    lab.play(LAN, long.clone());
    let told = lab.sent(LAN);
    assert_eq!(
        (told.len(), &told[0][34..36], &told[0][40..42]),
        (1, &[3, 4][..], &1300u16.to_be_bytes()[..])
    );
    reload(&mut lab, &base()).unwrap();
    lab.play(LAN, long);
    assert_eq!((lab.sent(LAN).len(), lab.sent(WAN).len()), (0, 1));
    lab.end();
}

#[test]
fn packets_on_their_way_during_a_reload_have_one_header_or_the_other() {
    let text = |n: u8| {
        format!(
            "[[interface]]\nport='lan'\naddresses=['10.1.0.1/24']\n\
             [[interface]]\nport='wan'\naddresses=['10.{n}.0.1/24']\nmac='02:77:00:00:00:0{n}'\n\
             [[route]]\nprefix='20.0.0.0/8'\nport='wan'\nmac='02:88:00:00:00:0{n}'\n"
        )
    };
    let mut lab = Lab::new(&text(2));
    let frames = [2, 3, 4].map(|n| datagram(0, "10.1.0.9", "20.1.2.3", (n, 9)));
    let mut received = 0;
    lab.meanwhile(|lab| {
        let mut done = 0;
        while done < 400 || received < 5000 {
            let n = 2 + (done % 5) as u8;
            done += 1;
            while lab.waiting(LAN) < 512 {
                frames.iter().for_each(|frame| lab.receive(LAN, frame.clone()));
                received += frames.len();
            }
            reload(lab, &text(n)).unwrap();
            lab.control.collect();
        }
    });
    while lab.waiting(LAN) > 0 {
        lab.turn();
    }
    assert_eq!(lab.drops(), "");
    let sent = lab.sent(WAN);
    assert_eq!(sent.len(), received);
    for frame in &sent {
        assert_eq!(
            (&frame[..5], &frame[6..11], &frame[12..14]),
            (&[2, 0x88, 0, 0, 0][..], &[2, 0x77, 0, 0, 0][..], &[8, 0][..])
        );
        assert!((2..7).contains(&frame[5]) && (2..7).contains(&frame[11]));
    }
    lab.end();
}

/// Routes that a table has no room for are left out of it, and named; all else is taken.
#[test]
fn what_a_table_has_no_room_for_is_left_out() {
    let text = |more: &str| format!("router.algorithm='sail-l8'\n[[vrf]]\nname='blue'\n{LINKS}{more}");
    let via = |i: u32| {
        let gateway = format!("10.{}.0.{}", 2 + i / 200, 10 + i % 200);
        format!("[[route]]\nprefix='20.{}.{}.0/24'\nvia='{gateway}'\n", i / 200, i % 200)
    };
    let nine = |net: u8| format!("[[route]]\nprefix='{net}.0.0.0/8'\nvia='10.2.0.9'\n");
    let mut lab = Lab::new(&text(&(nine(30) + &nine(31))));
    lab.settle();
    let many: String = (0..390).map(via).collect();
    let error = reload(&mut lab, &text(&(nine(31) + &many + &nine(40)))).unwrap_err();
    lab.settle();
    let now = routes(&mut lab.control);
    let taken = now.iter().filter(|line| line.contains(" 20.")).count();
    assert!((200..254).contains(&taken), "{taken}");
    assert!(error.contains(&format!("{} of the static routes left out", 390 - taken)), "{error}");
    assert!(now.iter().any(|line| line.ends_with(" 40.0.0.0/8")), "it came last, and needs no label");
    assert!(!now.iter().any(|line| line.contains("30.0.0.0/8")), "the file does not have it any more");
    // Each table tells of its own.
    let blue = "[[route]]\nprefix='50.0.0.0/8'\nvia='10.2.0.251%wan'\nvrf='blue'\n";
    let full: String = (0..taken as u32).map(via).collect::<String>() + &nine(31) + &nine(40);
    let refused = commit(&mut lab, &text(&(full.clone() + &via(389) + blue)));
    let told: Vec<String> = refused.iter().map(RouterError::to_string).collect();
    assert!(told.len() == 2 && refused.iter().all(|error| !error.waits()), "{told:?}");
    assert!(told[0].starts_with("IPv4 table: 1 of the static routes left out, 20.1.189.0/24"), "{told:?}");
    assert!(told[1].starts_with("IPv4 table of VRF blue: 1 of the static routes left out"), "{told:?}");
    // A neighbor's route is none of the file's, and waits.
    let fixed = format!("[[neighbors.fixed]]\ninterface='wan'\naddress='10.2.0.250'\nmac='{}'\n", mac(250));
    let refused = commit(&mut lab, &text(&(full.clone() + &fixed)));
    let told: Vec<String> = refused.iter().map(RouterError::to_string).collect();
    assert!(
        told.len() == 1 && refused[0].waits() && told[0].contains("neighbor routes left out"),
        "{told:?}"
    );
    // Ours are tried again by each file, also where the interfaces are the same.
    let ours = "[[interface]]\nport='dmz'\nvlan=9\naddresses=['10.9.0.1/24']\n";
    for _ in 0..2 {
        let refused = commit(&mut lab, &text(&(full.clone() + ours)));
        let told: Vec<String> = refused.iter().map(RouterError::to_string).collect();
        assert!(
            told.len() == 1 && told[0].starts_with("IPv4 table: 1 of the own routes left out, 10.9.0.0/24"),
            "{told:?}"
        );
    }
    // The next file fits.
    let few: String = (380..390).map(via).collect::<String>() + ours;
    reload(&mut lab, &text(&few)).unwrap_err();
    lab.settle();
    reload(&mut lab, &text(&few)).unwrap();
    let now = routes(&mut lab.control);
    assert_eq!(now.iter().filter(|line| line.contains("static")).count(), 10, "{now:?}");
    assert!(now.iter().any(|line| line.starts_with("own ") && line.ends_with(" 10.9.0.0/24")), "{now:?}");
    lab.end();
}
