//! Sessions with real daemons: BIRD, GoBGP, FRR. Needs root; each test has its own network namespace. GoBGP and FRR get
//! their routes from BIRD.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "root_bgp/hostile.rs"]
mod hostile;
mod lab;

use lab::{Daemon, FRR, Namespace, Ours, has, may_run, run};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tidemill_bgp::bmp::View;
use tidemill_bgp::flows::Invalid;
use tidemill_bgp::flowspec::{Bits, Component, bits_hold};
use tidemill_bgp::{BmpConfig, Export, FlowTrust, PeerConfig, ShownFlow, Signature, State};
use tidemill_feed::AnyPrefix;

const MANY: u32 = 10_000;

fn four(n: u32) -> AnyPrefix {
    AnyPrefix::V4(format!("20.{}.{}.0/24", n / 256, n % 256).parse().unwrap())
}

fn six(n: u32) -> AnyPrefix {
    AnyPrefix::V6(format!("2001:db8:{n:x}::/48").parse().unwrap())
}

fn one() -> IpAddr {
    IpAddr::from([10, 0, 0, 1])
}

/// What BIRD is to have told: `MANY` prefixes of each family by its addresses.
fn all(last: u8) -> BTreeMap<AnyPrefix, IpAddr> {
    let (v4, v6) =
        (IpAddr::from([10, 0, 0, last]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)]));
    (0..MANY).flat_map(|n| [(four(n), v4), (six(n), v6)]).collect()
}

/// BIRD's configuration: routes, and a session by the lines in `session` and `channel`.
fn bird(many: u32, session: &str, channel: &str) -> String {
    let list = |prefix: &dyn Fn(u32) -> AnyPrefix| {
        (0..many).map(|n| format!("route {} unreachable;\n", prefix(n))).collect::<String>()
    };
    format!(
        "router id 10.0.0.1;\nprotocol device {{}}\n\
         protocol static four {{ ipv4;\n{}}}\nprotocol static six {{ ipv6;\n{}}}\n{}",
        list(&four),
        list(&six),
        bird_session("ours", "10.0.0.200 port 1790 as 65000", session, channel)
    )
}

fn bird_session(name: &str, neighbor: &str, session: &str, channel: &str) -> String {
    format!(
        "protocol bgp {name} {{\nlocal 10.0.0.1 as 64496; neighbor {neighbor}; multihop;\n\
         connect delay time 1; connect retry time 1; error wait time 1, 2; error forget time 1; {session}\n\
         ipv4 {{ import all; export all; next hop self; {channel} }};\n\
         ipv6 {{ import all; export all; next hop self; next hop address fd00::1; {channel} }};\n}}\n"
    )
}

fn peer() -> PeerConfig {
    PeerConfig::new("bird", one(), 64_496)
}

fn export(text: &str) -> Export {
    let prefix: AnyPrefix = match text.contains(':') {
        true => AnyPrefix::V6(text.parse().unwrap()),
        false => AnyPrefix::V4(text.parse().unwrap()),
    };
    let next_hop = text.contains(':').then(|| "fd00::c8".parse().unwrap());
    Export {
        prefix,
        next_hop,
        med: Some(7),
        local_pref: 100,
        prepend: 1,
        communities: vec![65_000 << 16 | 1],
    }
}

#[test]
fn root_bird_feeds_flaps_and_withdraws() {
    if !may_run("root_bird_feeds_flaps_and_withdraws") {
        return;
    }
    let ns = Namespace::new();
    let mut ours = Ours::with(&ns, vec![peer()], |config| {
        config.speaker.exports = vec![export("198.51.100.0/24"), export("2001:db8:ffff::/48")];
    });
    let daemon = Daemon::bird(&ns, &bird(MANY, "", ""));
    let start = std::time::Instant::now();
    ours.until("routes", |ours| ours.peer("bird").synchronized == [true; 2]);
    println!("{} routes after {:?}", ours.told.len(), start.elapsed());
    assert!(ours.told == all(1), "{} of {}", ours.told.len(), 2 * MANY);
    ours.check();
    let shown = ours.peer("bird");
    assert_eq!((shown.hold_s, shown.announced, shown.paths), (Some(90), 2, [MANY as usize; 2]));
    let stats = shown.stats;
    assert_eq!((stats.treated_as_withdraw, stats.discarded), (0, 0));
    // What we announce, as BIRD has it.
    for prefix in ["198.51.100.0/24", "2001:db8:ffff::/48"] {
        ours.until(&format!("{prefix} at BIRD, as it was announced"), |_| {
            let told = daemon.birdc(&format!("show route all {prefix}"));
            let parts = ["BGP.as_path: 65000 65000", "BGP.med: 7", "BGP.community: (65000,1)"];
            parts.iter().all(|part| told.contains(part))
        });
    }
    ours.runner.speaker_mut().set_exports(vec![export("198.51.100.0/24")]);
    ours.until("withdrawal at BIRD", |_| !daemon.birdc("show route").contains("2001:db8:ffff::/48"));
    // A part goes and comes.
    daemon.birdc("disable six");
    ours.until("IPv4 alone", |ours| ours.told.len() == MANY as usize);
    daemon.birdc("enable six");
    ours.until("both again", |ours| ours.told.len() == 2 * MANY as usize);
    // The session does.
    for round in 1..=3 {
        daemon.birdc("disable ours");
        ours.until("no routes", |ours| ours.told.is_empty());
        let ended = ours.peer("bird").ended.unwrap();
        assert!(ended.starts_with("received: administrative shutdown (6/2)"), "{ended}");
        daemon.birdc("enable ours");
        ours.until("all again", |ours| ours.told.len() == 2 * MANY as usize);
        assert_eq!(ours.peer("bird").established, round + 1);
    }
    assert!(ours.told == all(1));
    ours.check();
    daemon.birdc("disable four");
    daemon.birdc("disable six");
    ours.until("withdrawals", |ours| ours.told.is_empty());
    assert_eq!(ours.peer("bird").state, Some(State::Established));
    assert_eq!((ours.runner.speaker().rib().len(), ours.runner.speaker().rib().attributes()), (0, 0));
    ours.check();
}

#[test]
fn root_bird_restarts_gracefully() {
    if !may_run("root_bird_restarts_gracefully") {
        return;
    }
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![peer()]);
    let configuration = bird(100, "graceful restart on; graceful restart time 60;", "");
    let mut daemon = Daemon::bird(&ns, &configuration);
    ours.until("routes", |ours| ours.peer("bird").synchronized == [true; 2]);
    let (told, changes) = (ours.told.clone(), ours.changes);
    assert_eq!(told.len(), 200);
    daemon.kill();
    ours.until("the loss", |ours| ours.peer("bird").state.is_none());
    assert_eq!((ours.peer("bird").stale, ours.told.len()), ([true; 2], 200));
    drop(daemon);
    // It recovers (-R), with fewer routes.
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let fewer = bird(60, "graceful restart on; graceful restart time 60;", "");
    std::fs::write(path("bird.conf"), fewer).unwrap();
    let arguments = format!("bird -f -R -c {} -s {}", path("bird.conf"), path("bird.ctl"));
    let _daemon = Daemon::start(&ns, &arguments, folder);
    ours.until("the rest", |ours| ours.peer("bird").synchronized == [true; 2]);
    let shown = ours.peer("bird");
    println!("{} changes since, {shown:?}", ours.changes - changes);
    assert_eq!((shown.stale, ours.told.len()), ([false; 2], 120));
    assert!(ours.told.iter().all(|(prefix, hop)| told.get(prefix) == Some(hop)));
    ours.check();
}

/// Its flow specifications apply meanwhile, and what it has not given again goes.
#[test]
fn root_bird_restarts_gracefully_with_flow_specifications() {
    if !may_run("root_bird_restarts_gracefully_with_flow_specifications") {
        return;
    }
    let configuration = |destinations: &[&str]| {
        let one = |to: &&str| {
            format!("route flow4 {{ dst {to}; }} {{ bgp_ext_community.add((generic, 0x80060000, 0x0)); }};\n")
        };
        let list: String = destinations.iter().map(one).collect();
        let session =
            "graceful restart on; graceful restart time 60; flow4 { table f4; import none; export all; };";
        format!(
            "flow4 table f4;\nprotocol static flows4 {{ flow4 {{ table f4; }};\n{list}}}\n{}",
            bird(2, session, "")
        )
    };
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![PeerConfig { flows: FlowTrust::Validated, ..peer() }]);
    let mut daemon = Daemon::bird(&ns, &configuration(&["20.0.0.0/24", "20.0.1.0/24"]));
    let applied = |ours: &Ours| ours.runner.speaker().flows().iter().filter(|flow| flow.best).count();
    ours.until("flow specifications", |ours| {
        applied(ours) == 2 && ours.peer("bird").synchronized == [true; 2]
    });
    daemon.kill();
    ours.until("the loss", |ours| ours.peer("bird").state.is_none());
    assert_eq!((ours.peer("bird").stale, applied(&ours)), ([true; 2], 2));
    drop(daemon);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("bird.conf"), configuration(&["20.0.1.0/24"])).unwrap();
    let arguments = format!("bird -f -R -c {} -s {}", path("bird.conf"), path("bird.ctl"));
    let _daemon = Daemon::start(&ns, &arguments, folder);
    ours.until("the rest", |ours| {
        let peer = ours.peer("bird");
        peer.state == Some(State::Established) && peer.stale == [false; 2] && peer.flows == 1
    });
    assert_eq!(ours.runner.speaker().flows()[0].spec.to_string(), "destination 20.0.1.0/24");
    assert_eq!((applied(&ours), ours.told.len()), (1, 4));
    ours.check();
}

#[test]
fn root_bird_sends_several_paths() {
    if !may_run("root_bird_sends_several_paths") {
        return;
    }
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![PeerConfig { add_path: true, ..peer() }]);
    let more = "protocol static another { ipv4 { preference 150; }; route 20.0.0.0/24 unreachable; }\n";
    let daemon = Daemon::bird(&ns, &(bird(10, "", "add paths tx;") + more));
    ours.until("routes", |ours| ours.peer("bird").synchronized == [true; 2]);
    let paths = |ours: &Ours| ours.runner.speaker().rib().get(four(0)).map_or(0, |paths| paths.len());
    assert_eq!((paths(&ours), ours.peer("bird").paths), (2, [11, 10]));
    daemon.birdc("disable another");
    ours.until("one path", |ours| paths(ours) == 1);
    ours.check();
}

#[test]
fn root_bird_signs_its_segments() {
    if !may_run("root_bird_signs_its_segments") {
        return;
    }
    let ns = Namespace::new();
    let password = |text: &str| vec![PeerConfig { signature: Some(Signature::Md5(text.into())), ..peer() }];
    let daemon = Daemon::bird(&ns, &bird(10, "password \"correct horse\";", ""));
    let mut ours = Ours::open(&ns, password("battery staple"));
    let start = std::time::Instant::now();
    while start.elapsed().as_secs() < 3 {
        ours.poll();
    }
    assert_eq!((ours.peer("bird").state, ours.peer("bird").established), (None, 0));
    drop(ours);
    let mut ours = Ours::open(&ns, password("correct horse"));
    ours.until("routes", |ours| ours.told.len() == 20);
    drop(daemon);
}

#[test]
fn root_we_connect_to_bird_that_waits() {
    if !may_run("root_we_connect_to_bird_that_waits") {
        return;
    }
    let ns = Namespace::new();
    // Its AS number is one of four bytes.
    let configuration = bird(10, "passive;", "");
    let configuration =
        configuration.replace("local 10.0.0.1 as 64496", "local 10.0.0.1 port 1791 as 4200000001");
    let _daemon = Daemon::bird(&ns, &configuration);
    let local = Some(IpAddr::from([10, 0, 0, 200]));
    let bird = PeerConfig::new("bird", one(), 4_200_000_001);
    let peers = vec![PeerConfig { connect: true, port: 1791, local, ..bird }];
    // Connections are made where the sockets are.
    let mut ours = Ours::with(&ns, peers, |config| config.listen.clear());
    ns.within(|| ours.until("routes", |ours| ours.told.len() == 20));
    assert_eq!(ours.peer("bird").established, 1);
}

#[test]
fn root_strangers_get_no_session() {
    if !may_run("root_strangers_get_no_session") {
        return;
    }
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![PeerConfig::new("two", IpAddr::from([10, 0, 0, 2]), 64_496)]);
    let _daemon = Daemon::bird(&ns, &bird(10, "", ""));
    ours.until("a refusal", |ours| ours.runner.refused() > 0);
    let notes = ours.runner.take_notes();
    assert_eq!(
        notes[0],
        "connection refused: 10.0.0.1 is no peer of ours: add it to the configuration, or leave it"
    );
    // The right address, and another AS.
    drop(ours);
    let mut ours = Ours::open(&ns, vec![PeerConfig::new("bird", one(), 64_999)]);
    ours.until("an end", |ours| ours.peer("bird").ended.is_some());
    assert_eq!(ours.peer("bird").ended.as_deref(), Some("sent: bad peer AS (2/2)"));
    assert!(ours.told.is_empty());
}

/// Flow specifications with their actions, as BIRD writes them: valid as long as BIRD has told the routes to their destinations.
#[test]
fn root_bird_gives_flow_specifications() {
    if !may_run("root_bird_gives_flow_specifications") {
        return;
    }
    let flows = "flow4 table f4;\nflow6 table f6;\n\
        protocol static flows4 { flow4 { table f4; };\n\
        route flow4 { dst 20.0.0.0/24; proto = 17; sport = 53; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };\n\
        route flow4 { dst 20.0.0.1/32; dport 137..139 || = 8080; length > 100; } {\n\
        bgp_ext_community.add((generic, 0x800c0000, 0x42c80000)); bgp_ext_community.add((generic, 0x80090000, 0x8)); };\n\
        route flow4 { dst 20.0.1.0/24; } { bgp_ext_community.add((generic, 0x010c0a00, 0x00090000)); };\n\
        route flow4 { dst 203.0.113.0/24; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };\n}\n\
        protocol static flows6 { flow6 { table f6; };\n\
        route flow6 { dst 2001:db8:1::/48; src ::1234:5678:9a00:0/104 offset 64; next header = 6; tcp flags 0x02/0x12; } {\n\
        bgp_ext_community.add((generic, 0x80060000, 0x447a0000)); };\n}\n";
    let session =
        "flow4 { table f4; import none; export all; }; flow6 { table f6; import none; export all; };";
    let ns = Namespace::new();
    let mut ours = Ours::open(&ns, vec![PeerConfig { flows: FlowTrust::Validated, ..peer() }]);
    let daemon = Daemon::bird(&ns, &(flows.to_owned() + &bird(2, session, "")));
    let shown = |ours: &Ours| ours.runner.speaker().flows();
    let valid = |ours: &Ours| shown(ours).iter().filter(|flow| flow.verdict.is_ok()).count();
    ours.until("flow specifications", |ours| shown(ours).len() == 5 && valid(ours) == 4);
    let text = |flow: &ShownFlow| (flow.spec.to_string(), flow.actions.to_string(), flow.best);
    let list = shown(&ours);
    let ports = "destination 20.0.0.1/32, destination port >=137 & <=139 | =8080, length >100";
    assert_eq!(text(&list[0]), (ports.into(), "100 packets/s, DSCP 8".into(), true));
    let answers = "destination 20.0.0.0/24, protocol =17, source port =53";
    assert_eq!(text(&list[1]), (answers.into(), "drop".into(), true));
    assert_eq!(text(&list[2]), ("destination 20.0.1.0/24".into(), "redirect to 10.0.0.9".into(), true));
    assert_eq!(text(&list[3]), ("destination 203.0.113.0/24".into(), "drop".into(), false));
    assert_eq!(list[3].verdict, Err(Invalid::NoRoute));
    let six = list[4].spec.to_string();
    let begin =
        "destination 2001:db8:1::/48, source ::1234:5678:9a00:0/104 from bit 64, protocol =6, TCP flags ";
    assert!(six.starts_with(begin), "{six}");
    assert_eq!((list[4].actions.to_string(), list[4].best), ("1000 bytes/s".into(), true));
    // BIRD's value and mask: a SYN without an ACK.
    let flags = list[4].spec.components().find_map(|component| match component {
        Component::Bits(Bits::TcpFlags, list) => Some(list),
        _ => None,
    });
    let flags = flags.unwrap();
    let held: Vec<u64> =
        [0x02, 0x12, 0x10, 0x03, 0].into_iter().filter(|bits| bits_hold(flags, *bits)).collect();
    assert_eq!(held, [0x02, 0x03]);
    // The route goes, and with it the right to say what becomes of its packets.
    daemon.birdc("disable six");
    ours.until("one invalid", |ours| valid(ours) == 3);
    daemon.birdc("disable flows4");
    ours.until("withdrawals", |ours| shown(ours).len() == 1);
    let stats = ours.peer("bird").stats;
    assert_eq!((stats.treated_as_withdraw, stats.discarded), (0, 0));
    daemon.birdc("disable ours");
    ours.until("the end of them", |ours| shown(ours).is_empty());
    ours.check();
}

/// The same as GoBGP writes them, with routes of its own.
#[test]
fn root_gobgp_gives_flow_specifications() {
    let test = "root_gobgp_gives_flow_specifications";
    if !may_run(test) || !has(test, "gobgpd") || !has(test, "gobgp") {
        return;
    }
    let ns = Namespace::new();
    let gobgp = PeerConfig::new("gobgp", IpAddr::from([10, 0, 0, 2]), 64_497);
    let mut ours = Ours::open(&ns, vec![PeerConfig { flows: FlowTrust::Validated, ..gobgp }]);
    let family = |name: &str| {
        format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{name}\"\n")
    };
    let mut daemon = Daemon::gobgp(&ns, &(family("ipv4-flowspec") + &family("ipv6-flowspec")));
    ours.until("a session", |ours| ours.peer("gobgp").state == Some(State::Established));
    let rib = |command: &str| run(&format!("ip netns exec {} gobgp -p 50051 global rib {command}", ns.0));
    rib("add 20.0.0.0/24 nexthop 10.0.0.2 -a ipv4");
    rib("add 2001:db8:1::/48 nexthop fd00::2 -a ipv6");
    for flow in [
        "ipv4-flowspec match destination 20.0.0.0/24 protocol udp source-port ==53 then discard",
        "ipv4-flowspec match destination 20.0.0.1/32 destination-port >=137 &<=139 ==8080 packet-length >100 then rate-limit 1000 mark 8",
        "ipv4-flowspec match destination 20.0.0.2/32 fragment is-fragment tcp-flags =S then action sample",
        "ipv4-flowspec match destination 20.0.0.3/32 then redirect 64497:1",
        "ipv4-flowspec match destination 203.0.113.0/24 then discard",
        "ipv6-flowspec match destination 2001:db8:1::/48 protocol tcp then discard",
        "ipv6-flowspec match destination 2001:db8:1::1/128 0 label ==5 then discard",
    ] {
        rib(&format!("add -a {flow}"));
    }
    let shown = |ours: &Ours| ours.runner.speaker().flows();
    let valid = |ours: &Ours| shown(ours).iter().filter(|flow| flow.verdict.is_ok()).count();
    ours.until("flow specifications", |ours| shown(ours).len() == 7 && valid(ours) == 6);
    let list = shown(&ours);
    let texts: Vec<String> = list.iter().map(|flow| format!("{}: {}", flow.spec, flow.actions)).collect();
    assert_eq!(
        texts,
        [
            "destination 20.0.0.1/32, destination port >=137 & <=139 | =8080, length >100: 1000 bytes/s, DSCP 8",
            "destination 20.0.0.2/32, TCP flags all of 0x2, fragment any of 0x2: sample",
            "destination 20.0.0.3/32: redirect to VRF 64497:1",
            "destination 20.0.0.0/24, protocol =17, source port =53: drop",
            "destination 203.0.113.0/24: drop",
            "destination 2001:db8:1::1/128, flow label =5: drop",
            "destination 2001:db8:1::/48, protocol =6: drop",
        ]
    );
    assert_eq!(list[4].verdict, Err(Invalid::NoRoute));
    rib("del -a ipv4-flowspec match destination 203.0.113.0/24 then discard");
    ours.until("a withdrawal", |ours| shown(ours).len() == 6);
    rib("del 20.0.0.0/24 -a ipv4");
    ours.until("those of IPv4 invalid", |ours| valid(ours) == 2);
    let stats = ours.peer("gobgp").stats;
    assert_eq!((stats.treated_as_withdraw, stats.discarded), (0, 0));
    ours.check();
    daemon.kill();
    ours.until("the end of them", |ours| shown(ours).is_empty());
}

/// What we announce is GoBGP's, and a GoBGP that is killed and comes back has its routes kept until it has told them again.
#[test]
fn root_gobgp_takes_our_routes_and_restarts_gracefully() {
    let test = "root_gobgp_takes_our_routes_and_restarts_gracefully";
    if !may_run(test) || !has(test, "gobgpd") || !has(test, "gobgp") {
        return;
    }
    let ns = Namespace::new();
    let gobgp = PeerConfig::new("gobgp", IpAddr::from([10, 0, 0, 2]), 64_497);
    let mut ours = Ours::with(&ns, vec![gobgp], |config| {
        config.speaker.exports = vec![export("198.51.100.0/24"), export("2001:db8:ffff::/48")];
    });
    let restarts = "[neighbors.graceful-restart.config]\nenabled = true\nrestart-time = 60\n";
    let mut daemon = Daemon::gobgp(&ns, restarts);
    let rib = |command: &str| run(&format!("ip netns exec {} gobgp -p 50051 global rib {command}", ns.0));
    let is_up = |ours: &Ours| ours.peer("gobgp").state == Some(State::Established);
    ours.until("a session", is_up);
    rib("add 20.0.0.0/24 nexthop 10.0.0.2 -a ipv4");
    rib("add 20.0.1.0/24 nexthop 10.0.0.2 -a ipv4");
    rib("add 2001:db8:0::/48 nexthop fd00::2 -a ipv6");
    ours.until("routes", |ours| ours.told.len() == 3);
    for (family, prefix) in [("ipv4", "198.51.100.0/24"), ("ipv6", "2001:db8:ffff::/48")] {
        ours.until(&format!("{prefix} at GoBGP, as it was announced"), |_| {
            let told = rib(&format!("-a {family}"));
            let line = told.lines().find(|line| line.contains(prefix)).unwrap_or_default();
            ["65000 65000", "{Med: 7}", "{Communities: 65000:1}"].iter().all(|part| line.contains(part))
        });
    }
    daemon.kill();
    ours.until("the loss", |ours| ours.peer("gobgp").state.is_none());
    assert_eq!((ours.peer("gobgp").stale, ours.told.len()), ([true; 2], 3));
    // It recovers (-r), with one route.
    let file = daemon.folder.path().join("gobgpd.toml");
    let arguments = format!("gobgpd -r -t toml -f {} --api-hosts 127.0.0.1:50051", file.display());
    let _daemon = Daemon::start(&ns, &arguments, tempfile::tempdir().unwrap());
    ours.until("another session", is_up);
    rib("add 20.0.0.0/24 nexthop 10.0.0.2 -a ipv4");
    ours.until("the rest", |ours| ours.peer("gobgp").stale == [false; 2] && ours.told.len() == 1);
    assert_eq!(ours.told.get(&four(0)), Some(&IpAddr::from([10, 0, 0, 2])));
    ours.check();
}

/// A route of GoBGP's own beside BIRD's to the same prefix.
#[test]
fn root_gobgp_sends_several_paths() {
    let test = "root_gobgp_sends_several_paths";
    if !may_run(test) || !has(test, "gobgpd") || !has(test, "gobgp") {
        return;
    }
    let ns = Namespace::new();
    let gobgp = PeerConfig::new("gobgp", IpAddr::from([10, 0, 0, 2]), 64_497);
    let mut ours = Ours::open(&ns, vec![PeerConfig { add_path: true, ..gobgp }]);
    let _gobgp = Daemon::gobgp(&ns, "[neighbors.add-paths.config]\nsend-max = 8\n");
    let session = bird_session("gobgp", "10.0.0.2 port 1792 as 64497", "", "");
    let _bird = Daemon::bird(&ns, &(bird(10, "disabled yes;", "") + &session));
    ours.until("routes", |ours| ours.told.len() == 20);
    let rib = |command: &str| run(&format!("ip netns exec {} gobgp -p 50051 global rib {command}", ns.0));
    rib("add 20.0.0.0/24 nexthop 10.0.0.2 -a ipv4");
    let paths = |ours: &Ours| ours.runner.speaker().rib().get(four(0)).map_or(0, |paths| paths.len());
    ours.until("two paths", |ours| paths(ours) == 2);
    assert_eq!(ours.peer("gobgp").paths, [11, 10]);
    rib("del 20.0.0.0/24 -a ipv4");
    ours.until("one path", |ours| paths(ours) == 1);
    ours.check();
}

/// Segments whose TCP MD5 is another one than ours, as the kernel has counted them.
fn wrong_signatures(ns: &Namespace) -> u64 {
    let text = run(&format!("ip netns exec {} cat /proc/net/netstat", ns.0));
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, counts) = (lines.next().unwrap(), lines.next().unwrap());
    let mut both = names.split(' ').zip(counts.split(' '));
    both.find(|(name, _)| *name == "TCPMD5Failure").unwrap().1.parse().unwrap()
}

/// A session with a peer that signs by "correct-horse": with that alone.
fn signs(ns: &Namespace, peer: &PeerConfig) -> Ours {
    let with =
        |password: &str| PeerConfig { signature: Some(Signature::Md5(password.into())), ..peer.clone() };
    let mut ours = Ours::open(ns, vec![with("battery-staple")]);
    ours.until("a wrong signature", |_| wrong_signatures(ns) > 0);
    assert_eq!((ours.peer(&peer.name).state, ours.peer(&peer.name).established), (None, 0));
    drop(ours);
    let mut ours = Ours::open(ns, vec![with("correct-horse")]);
    ours.until("a session", |ours| ours.peer(&peer.name).state == Some(State::Established));
    ours
}

/// The only path to a prefix, by its AS numbers.
fn as_path(ours: &Ours, prefix: AnyPrefix) -> String {
    let paths = ours.runner.speaker().rib().get(prefix).unwrap();
    assert_eq!(paths.len(), 1);
    paths[0].attributes.as_path.to_string()
}

/// Its AS number for us is one of four bytes.
#[test]
fn root_gobgp_signs_its_segments() {
    let test = "root_gobgp_signs_its_segments";
    if !may_run(test) || !has(test, "gobgpd") || !has(test, "gobgp") {
        return;
    }
    let ns = Namespace::new();
    let us = "auth-password = \"correct-horse\"\nlocal-as = 4200000002\n";
    let _gobgp = Daemon::gobgp_with(&ns, us, "");
    let mut ours = signs(&ns, &PeerConfig::new("gobgp", IpAddr::from([10, 0, 0, 2]), 4_200_000_002));
    let rib = |command: &str| run(&format!("ip netns exec {} gobgp -p 50051 global rib {command}", ns.0));
    rib("add 20.0.0.0/24 nexthop 10.0.0.2 -a ipv4");
    ours.until("a route", |ours| ours.told.len() == 1);
    assert_eq!(as_path(&ours, four(0)), "4200000002");
    ours.check();
}

/// Likewise.
#[test]
fn root_frr_signs_its_segments() {
    let test = "root_frr_signs_its_segments";
    if !may_run(test) || !has(test, FRR) {
        return;
    }
    let ns = Namespace::new();
    let us = " neighbor 10.0.0.200 remote-as 65000\n neighbor 10.0.0.200 local-as 4200000003\n \
              neighbor 10.0.0.200 password correct-horse\n";
    let _frr = Daemon::frr_with(&ns, us);
    let session = bird_session("frr", "10.0.0.2 port 1793 as 64498", "", "");
    let _bird = Daemon::bird(&ns, &(bird(10, "disabled yes;", "") + &session));
    let mut ours = signs(&ns, &PeerConfig::new("frr", IpAddr::from([10, 0, 0, 2]), 4_200_000_003));
    ours.until("routes", |ours| ours.told.len() == 20);
    for prefix in [four(9), six(9)] {
        assert_eq!(as_path(&ours, prefix), "4200000003 64498 64496");
    }
    ours.check();
}

/// A route of FRR's own beside BIRD's to the same prefix.
#[test]
fn root_frr_sends_several_paths() {
    let test = "root_frr_sends_several_paths";
    if !may_run(test) || !has(test, FRR) {
        return;
    }
    let ns = Namespace::new();
    let frr = PeerConfig::new("frr", IpAddr::from([10, 0, 0, 2]), 64_498);
    let mut ours = Ours::open(&ns, vec![PeerConfig { add_path: true, ..frr }]);
    let all_paths = " neighbor 10.0.0.200 remote-as 65000\n address-family ipv4 unicast\n  network 20.0.0.0/24\n  \
                     neighbor 10.0.0.200 addpath-tx-all-paths\n exit-address-family\n";
    let _frr = Daemon::frr_with(&ns, all_paths);
    let session = bird_session("frr", "10.0.0.2 port 1793 as 64498", "", "");
    let daemon = Daemon::bird(&ns, &(bird(10, "disabled yes;", "") + &session));
    let paths = |ours: &Ours| ours.runner.speaker().rib().get(four(0)).map_or(0, |paths| paths.len());
    ours.until("two paths", |ours| paths(ours) == 2 && ours.told.len() == 20);
    assert_eq!(ours.peer("frr").paths, [11, 10]);
    daemon.birdc("disable four");
    ours.until("one path", |ours| paths(ours) == 1 && ours.told.len() == 11);
    assert_eq!(as_path(&ours, four(0)), "64498");
    ours.check();
}

/// BIRD's routes by way of GoBGP, and GoBGP's BMP, which tells what BIRD has said.
#[test]
fn root_gobgp_feeds_and_is_monitored() {
    let test = "root_gobgp_feeds_and_is_monitored";
    if !may_run(test) || !has(test, "gobgpd") {
        return;
    }
    let ns = Namespace::new();
    let gobgp = PeerConfig::new("gobgp", IpAddr::from([10, 0, 0, 2]), 64_497);
    let mut ours = Ours::with(&ns, vec![gobgp], |config| {
        config.bmp_listen = vec!["10.0.0.200:11019".parse().unwrap()];
        config.bmp = vec![BmpConfig {
            name: "gobgp".into(),
            // What the kernel takes for a destination on the same link.
            address: one(),
            view: View::PrePolicy,
            max_prefixes: 100_000,
        }];
    });
    let session = bird_session("gobgp", "10.0.0.2 port 1792 as 64497", "", "");
    let bird_file = bird(MANY, "disabled yes;", "") + &session;
    let monitor = "[[bmp-servers]]\n[bmp-servers.config]\naddress = \"10.0.0.200\"\nport = 11019\n\
                   route-monitoring-policy = \"pre-policy\"\n";
    let _gobgp = Daemon::gobgp(&ns, monitor);
    let daemon = Daemon::bird(&ns, &bird_file);
    let paths = |ours: &Ours| ours.peer("gobgp").paths;
    ours.until("routes", |ours| paths(ours) == [MANY as usize; 2]);
    let monitored = |ours: &Ours| -> usize {
        let exporters: Vec<_> = ours.runner.exporters().collect();
        let peers = exporters.iter().flat_map(|exporter| &exporter.peers).filter(|peer| peer.asn == 64_496);
        peers.map(|peer| ours.runner.speaker().rib().paths(peer.number).iter().sum::<usize>()).sum()
    };
    ours.until("monitored routes", |ours| monitored(ours) == 2 * MANY as usize);
    ours.check();
    // BIRD's own path is the shorter one: what it has said counts, though only BMP tells it.
    assert!(ours.told == all(1), "{} of {}", ours.told.len(), 2 * MANY);
    daemon.birdc("disable six");
    ours.until("withdrawals", |ours| ours.told.len() == MANY as usize);
    daemon.birdc("disable gobgp");
    ours.until("the end of it", |ours| ours.told.is_empty());
    ours.check();
}

/// BIRD's routes by way of FRR, and by the same way what we announce.
#[test]
fn root_frr_feeds_and_withdraws() {
    let test = "root_frr_feeds_and_withdraws";
    if !may_run(test) || !has(test, FRR) {
        return;
    }
    let ns = Namespace::new();
    let frr = PeerConfig::new("frr", IpAddr::from([10, 0, 0, 2]), 64_498);
    let mut ours = Ours::with(&ns, vec![frr], |config| {
        config.speaker.exports = vec![export("198.51.100.0/24")];
    });
    let _frr = Daemon::frr(&ns);
    let session = bird_session("frr", "10.0.0.2 port 1793 as 64498", "", "");
    let daemon = Daemon::bird(&ns, &(bird(MANY, "disabled yes;", "") + &session));
    ours.until("routes", |ours| ours.told.len() == 2 * MANY as usize);
    assert!(ours.told == all(2));
    ours.check();
    ours.until("our route at BIRD", |_| {
        let told = daemon.birdc("show route all 198.51.100.0/24");
        ["BGP.as_path: 64498 65000 65000", "BGP.community: (65000,1)"].iter().all(|part| told.contains(part))
    });
    daemon.birdc("disable four");
    ours.until("withdrawals", |ours| ours.told.len() == MANY as usize);
    daemon.birdc("disable frr");
    ours.until("the end of it", |ours| ours.told.is_empty());
    ours.check();
}

/// A FRR that is killed has its routes kept, and comes back with fewer.
#[test]
fn root_frr_restarts_gracefully() {
    let test = "root_frr_restarts_gracefully";
    if !may_run(test) || !has(test, FRR) {
        return;
    }
    let ns = Namespace::new();
    let frr = PeerConfig::new("frr", IpAddr::from([10, 0, 0, 2]), 64_498);
    let mut ours = Ours::open(&ns, vec![frr]);
    // When it is back it waits for its own peers to have told all, but not for long.
    let restarts = " bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n bgp graceful-restart restart-time 60\n \
                    bgp graceful-restart select-defer-time 3\n";
    let mut first = Daemon::frr_with(&ns, restarts);
    let session = bird_session("frr", "10.0.0.2 port 1793 as 64498", "", "");
    let daemon = Daemon::bird(&ns, &(bird(100, "disabled yes;", "") + &session));
    ours.until("routes", |ours| ours.told.len() == 200);
    first.kill();
    ours.until("the loss", |ours| ours.peer("frr").state.is_none());
    assert_eq!((ours.peer("frr").stale, ours.told.len()), ([true; 2], 200));
    daemon.birdc("disable six");
    drop(first);
    let _second = Daemon::frr_with(&ns, restarts);
    ours.until("the rest", |ours| {
        let peer = ours.peer("frr");
        peer.state == Some(State::Established) && peer.stale == [false; 2] && ours.told.len() == 100
    });
    assert!(ours.told.keys().all(|prefix| matches!(prefix, AnyPrefix::V4(_))));
    ours.check();
}
