//! A router with `offload = "xdp"` in the middle of a wire: what the driver forwards, what is left to the router, and that nothing is lost or wrong when things change. Needs
//! root.
//!
//! ```text
//! left: 10.1.0.2, fd00:1::2 ---- .1 [tm-left  router  tm-right] .1 ---- 10.2.0.2, fd00:2::2 :right
//! ```

#![cfg(all(feature = "xdp", target_os = "linux"))]
#![allow(clippy::unwrap_used)] // a test may

#[path = "../root_wire/dut.rs"]
#[allow(dead_code)] // shared with another test
mod dut;
#[path = "../root_wire/lab.rs"]
#[allow(dead_code)]
mod lab;
#[path = "../root_wire/needs.rs"]
#[allow(dead_code)]
mod needs;
#[path = "../root_wire/net.rs"]
#[allow(dead_code)]
mod net;
#[path = "../root_wire/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use dut::Dut;
use lab::{Family, Lab, Link, Plan, QUICK_NEIGHBORS};
use net::{Netns, wait_until};
use std::net::IpAddr;
use std::time::Duration;
use tidemill_control::schema::{self, path};
use traffic::{Live, Numbered, exchange};

const LIMIT: Duration = Duration::from_secs(10);
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const OFFLOAD: &str = "[router]\noffload = \"xdp\"\noffload_mb = 16\n";

fn turn(test: &str) -> Option<std::sync::MutexGuard<'static, ()>> {
    needs::alone(test, &["ip", "sysctl", "unshare", "ping", "ethtool", "setpriv"])
}

fn plan(links: impl Into<Vec<Link>>) -> Plan {
    Plan::new(links).config(OFFLOAD).config(QUICK_NEIGHBORS)
}

fn two() -> [Link; 2] {
    [Link::new("left", 1), Link::new("right", 2)]
}

/// A lab whose hosts take what is redirected to them, and finish their checksums themselves, as cards do.
fn build(plan: Plan) -> Lab {
    let lab = plan.build(Dut::Tidemill);
    for link in &lab.links {
        lab.host(link.host).run(&format!("ethtool -K {} gro on tx off", link.name));
    }
    wait_until("the program is on all interfaces", LIMIT, || {
        lab.router.log().matches("the program is on").count() >= lab.links.len()
    });
    lab
}

fn offload(lab: &Lab) -> schema::Offload {
    lab.router.get(path::OFFLOAD).unwrap()
}

fn forwarded(lab: &Lab) -> u64 {
    offload(lab).ports.iter().map(|port| port.forwarded).sum()
}

fn left(lab: &Lab, port: &str, why: &str) -> u64 {
    let offload = offload(lab);
    offload.ports.iter().find(|there| there.port == port).unwrap().left[why]
}

/// So many echo requests, all of which are answered.
fn ping(from: &Netns, to: IpAddr, count: u64, options: &str) {
    let text = from.run(&format!("ping -n -i 0.01 -W 2 -c {count} {options} {to}"));
    assert!(text.contains(&format!(" {count} received")), "{text}");
}

/// Pings until a round of them is forwarded below, both ways: neighbors are known then, and the program knows of them.
fn settle(lab: &Lab, from: &Netns, to: IpAddr) {
    wait_until("pings are forwarded below", LIMIT, || {
        let before = forwarded(lab);
        let (is_answered, _) = from.attempt(&format!("ping -n -i 0.01 -W 1 -c 3 {to}"));
        is_answered && forwarded(lab) >= before + 6
    });
}

/// Ends the router: what was forwarded below was sent, and what was left to the router it has seen.
fn finish(lab: Lab) {
    let offload = offload(&lab);
    assert!(offload.enabled && offload.generations > 0);
    let (forwarded, sent): (u64, u64) = (
        offload.ports.iter().map(|port| port.forwarded).sum(),
        offload.ports.iter().map(|port| port.sent).sum(),
    );
    assert_eq!(forwarded, sent, "{offload:?}");
    let books = lab.finish().unwrap();
    let of = |port: &serde_json::Value, key: &str| port[key].as_u64().unwrap();
    let ports = books["offload"].as_array().unwrap();
    let left: u64 = ports
        .iter()
        .flat_map(|port| port["left"].as_object().unwrap().values())
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(
        ports.iter().map(|port| of(port, "forwarded")).sum::<u64>(),
        ports.iter().map(|port| of(port, "sent")).sum::<u64>()
    );
    // The program came when the ports were open already.
    assert!(left <= books["in"].as_u64().unwrap(), "{books}");
}

/// Everything that a router does, with the part of it that can be done below.
fn routes(plan: Plan) {
    let lab = build(plan);
    for family in FAMILIES {
        let (left_host, right) = (lab.left(), lab.address("right", family));
        settle(&lab, left_host, right);
        let (before, through) =
            (forwarded(&lab), lab.router.get::<schema::Summary>(path::SUMMARY).unwrap().out);
        ping(left_host, right, 50, "");
        assert_eq!(forwarded(&lab), before + 100, "{family:?}");
        let now = lab.router.get::<schema::Summary>(path::SUMMARY).unwrap().out;
        assert!(now < through + 50, "{family:?}: {through} to {now}: user space has not sent them too");
        // What is to the router, has no time left, or is too long.
        ping(left_host, lab.link("left").router(family), 3, "");
        let ended = left(&lab, "left", "ttl");
        let (_, text) = left_host.attempt(&format!("ping -n -c 2 -i 0.2 -W 2 -t 1 {right}"));
        assert!(text.contains("Time") && text.contains("exceeded"), "{text}");
        assert_eq!(left(&lab, "left", "ttl"), ended + 2);
        let (_, text) = left_host.attempt(&format!("ping -n -c 2 -i 0.2 -W 2 -M do -s 1440 {right}"));
        assert!(text.contains("mtu") || text.contains("Packet too big"), "{text}");
        assert!(left(&lab, "left", "too-big") > 0);
        ping(left_host, right, 3, "-M dont -s 3000");
        let before = forwarded(&lab);
        exchange(left_host, lab.right(), right, 1_000_000);
        assert!(forwarded(&lab) > before + 500, "{family:?}: TCP is forwarded below");
        // Senders on this machine leave checksums to their cards; here nobody would finish them.
        left_host.run("ethtool -K left tx on");
        let unfinished = left(&lab, "left", "checksum-unfinished");
        exchange(left_host, lab.right(), right, 500_000);
        assert!(left(&lab, "left", "checksum-unfinished") > unfinished);
        left_host.run("ethtool -K left tx off");
    }
    let said = lab.router.log();
    assert!(!said.contains("warning"), "{said}");
    finish(lab);
}

fn narrow() -> [Link; 2] {
    let [left, right] = two();
    [left, Link { mtu: 1400, ..right }]
}

#[test]
fn root_offload_with_af_packet() {
    let Some(_turn) = turn("root_offload_with_af_packet") else { return };
    routes(plan(narrow()));
}

#[test]
fn root_offload_in_front_of_af_xdp() {
    let Some(_turn) = turn("root_offload_in_front_of_af_xdp") else { return };
    routes(Plan { kind: "af_xdp", ..plan(narrow()) });
}

#[test]
fn root_offload_follows_neighbors_routes_and_reloads() {
    let Some(_turn) = turn("root_offload_follows_neighbors_routes_and_reloads") else { return };
    let links = || [Link::new("left", 1), Link::new("right", 2), Link::new("third", 3)];
    let routed = |to: &str| {
        let via: IpAddr = to.parse().unwrap();
        plan(links()).route("10.99.0.0/16", &[via])
    };
    let lab = build(routed("10.2.0.2"));
    let anycast: IpAddr = "10.99.0.1".parse().unwrap();
    for host in ["right", "third"] {
        lab.host(host).add_address("10.99.0.1/32", "lo");
    }
    for family in FAMILIES {
        settle(&lab, lab.left(), lab.address("right", family));
        settle(&lab, lab.left(), lab.address("third", family));
    }
    settle(&lab, lab.left(), anycast);
    let live = FAMILIES.map(|family| Live::start(lab.left(), lab.right(), lab.address("right", family)));
    let udp = Numbered::start(lab.left(), lab.right(), lab.address("right", Family::V4), 8, 4000, 100);
    let go_on = || {
        for live in &live {
            live.goes_on(LIMIT);
        }
    };
    let arrives = |host: &str, limit: Duration| {
        wait_until(&format!("packets to {anycast} arrive at {host}"), limit, || {
            let before = lab.host(host).received(host);
            ping(lab.left(), anycast, 20, "");
            // At the other one only what it hears anyway.
            lab.host(host).received(host) >= before + 20
        });
    };
    arrives("right", LIMIT);
    // Another route, and back, while packets flow.
    for round in 0..3 {
        lab.router.add_route("10.99.0.0/24", "10.3.0.2");
        if round == 0 {
            settle(&lab, lab.left(), anycast);
        }
        wait_until("the route is taken over", Duration::from_secs(2), || {
            let before = lab.host("third").received("third");
            ping(lab.left(), anycast, 5, "");
            lab.host("third").received("third") >= before + 5
        });
        let right = lab.host("third").received("third");
        ping(lab.left(), anycast, 20, "");
        assert!(lab.host("third").received("third") >= right + 20, "none goes by the old route");
        lab.router.delete_route("10.99.0.0/24");
        wait_until("the route is gone", Duration::from_secs(2), || {
            let third = lab.host("third").received("third");
            ping(lab.left(), anycast, 5, "");
            lab.host("third").received("third") < third + 5
        });
        go_on();
    }
    // A neighbor with another MAC address.
    let before = forwarded(&lab);
    lab.right().run("ip link set right address 02:00:00:00:77:01");
    lab.right().attempt("ping -n -c 2 -i 0.2 -W 1 10.2.0.1");
    lab.right().attempt("ping -n -c 2 -i 0.2 -W 1 fd00:2::1");
    go_on();
    assert!(forwarded(&lab) > before);
    settle(&lab, lab.left(), anycast);
    // A reload, first a bad one.
    lab.router.reload(&(routed("10.3.0.2").text() + "nonsense = 1\n"));
    wait_until("it is refused", LIMIT, || lab.router.log().contains("nonsense"));
    go_on();
    arrives("right", LIMIT);
    lab.router.reload(&routed("10.3.0.2").text());
    wait_until("it is taken", LIMIT, || lab.router.reloads() == 1);
    arrives("third", LIMIT);
    go_on();
    let arrived = udp.finish();
    // A new MAC address is found out about in time; all else costs nothing. Some may overtake others that went by user space.
    assert!(arrived.received * 10 > arrived.sent * 8, "{arrived:?}");
    for live in live {
        live.finish();
    }
    finish(lab);
}

/// By its number a device that is made again is the one before.
#[test]
fn root_offload_comes_to_a_device_with_the_number_of_one_before() {
    let Some(_turn) = turn("root_offload_comes_to_a_device_with_the_number_of_one_before") else { return };
    for kind in ["af_packet", "af_xdp"] {
        let lab = build(Plan { kind, ..plan(two()) });
        let settle_all =
            || FAMILIES.iter().for_each(|&family| settle(&lab, lab.left(), lab.address("right", family)));
        settle_all();
        let index = lab.router.ns.enter(|| tidemill_port::device("tm-right").unwrap().index);
        for is_missed in [true, false] {
            lab.router.ns.run("ip link del tm-right");
            if is_missed {
                wait_until("it is missed", LIMIT, || lab.router.log().contains("tm-right is gone"));
            }
            let there = lab.right().path();
            let ends = format!("name tm-right index {index} type veth peer name right netns {there}");
            lab.router.ns.run(&format!("ip link add {ends}"));
            lab.router.ns.run("ip link set tm-right up");
            lab.right().run("ip link set right up");
            lab.right().run("ethtool -K right gro on tx off");
            lab.link("right").give_host_addresses(lab.right());
            settle_all();
        }
        lab.finish();
    }
}

#[test]
fn root_offload_that_is_killed_forwards_nothing_and_comes_again() {
    let Some(_turn) = turn("root_offload_that_is_killed_forwards_nothing_and_comes_again") else { return };
    for kind in ["af_packet", "af_xdp"] {
        let mut lab = build(Plan { kind, ..plan(two()) });
        let right = lab.address("right", Family::V4);
        settle(&lab, lab.left(), right);
        lab.router.kill();
        wait_until("the program is gone with its process", LIMIT, || {
            !lab.router.ns.run("ip link show tm-left").contains("xdp")
        });
        assert!(!lab.left().attempt(&format!("ping -c 1 -W 1 {right}")).0, "{kind}: nobody forwards");
        lab.router.start_again(None);
        lab.router.answers();
        settle(&lab, lab.left(), right);
        finish(lab);
    }
}

#[test]
fn root_offload_that_cannot_be_is_told_of_once_and_user_space_forwards() {
    let Some(_turn) = turn("root_offload_that_cannot_be_is_told_of_once_and_user_space_forwards") else {
        return;
    };
    // Another program on an interface; and a cable that would lose what is redirected to it.
    let lab = plan(two()).build(Dut::Tidemill);
    for host in ["left", "right"] {
        lab.host(host).run(&format!("ethtool -K {host} gro off"));
    }
    for family in FAMILIES {
        wait_until("there is a way", LIMIT, || {
            lab.left().attempt(&format!("ping -c 1 -W 1 {}", lab.address("right", family))).0
        });
        ping(lab.left(), lab.address("right", family), 20, "");
        ping(lab.right(), lab.address("left", family), 20, "");
    }
    assert_eq!(forwarded(&lab), 0);
    assert!(left(&lab, "left", "no-device") >= 20, "{:?}", offload(&lab));
    lab.finish();

    let other = tidemill_bpf::Object::load(&OTHER, &[], None).unwrap();
    let (lab, _link) = in_its_way(&other, plan(two()));
    for family in FAMILIES {
        wait_until("there is a way", LIMIT, || {
            lab.left().attempt(&format!("ping -c 1 -W 1 {}", lab.address("right", family))).0
        });
        ping(lab.left(), lab.address("right", family), 20, "");
    }
    std::thread::sleep(Duration::from_secs(1));
    let said = lab.router.log();
    assert_eq!(said.matches("another XDP program is on tm-left").count(), 1, "{said}");
    assert!(said.contains("the program is on tm-right"), "{said}");
    lab.finish();
}

/// Where the kernel refuses the program, user space forwards all.
#[test]
fn root_offload_that_may_not_be_loaded_leaves_all_to_user_space() {
    let Some(_turn) = turn("root_offload_that_may_not_be_loaded_leaves_all_to_user_space") else { return };
    let mut lab = plan(two()).build(Dut::Tidemill);
    lab.router.kill();
    lab.router.start_without("-bpf,-sys_admin");
    lab.router.answers();
    for family in FAMILIES {
        wait_until("there is a way", LIMIT, || {
            lab.left().attempt(&format!("ping -c 1 -W 1 {}", lab.address("right", family))).0
        });
        ping(lab.left(), lab.address("right", family), 20, "");
    }
    let said = lab.router.log();
    assert_eq!(said.matches("forwarding goes on in user space alone").count(), 1, "{said}");
    assert!(!offload(&lab).enabled && !lab.router.ns.run("ip link show tm-left").contains("xdp"));
    lab.finish();
}

/// A program of somebody else's.
static OTHER: tidemill_bpf::Source = tidemill_bpf::Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/amp.bpf.o"),
    program: "tidemill_amp",
    minimum: tidemill_bpf::Kernel(5, 11),
    layout: 1,
    shared: &[],
};

/// A lab where that was on `tm-left` first, and lets all pass.
fn in_its_way(other: &tidemill_bpf::Object, plan: Plan) -> (Lab, tidemill_bpf::Attachment) {
    let text = plan.text();
    // The router's namespace is there when a router is: so one starts with nothing below, and then this one.
    let mut lab = Plan { config: plan.config.replace(OFFLOAD, ""), ..plan }.build(Dut::Tidemill);
    lab.router.kill();
    let link = lab.router.ns.enter(|| {
        let index = tidemill_port::device("tm-left").unwrap().index;
        let mode = tidemill_bpf::Mode::Native;
        tidemill_bpf::Attachment::attach(other, "tm-left", index, mode, LIMIT, None).unwrap()
    });
    lab.router.start_again(Some(&text));
    lab.router.answers();
    (lab, link)
}
