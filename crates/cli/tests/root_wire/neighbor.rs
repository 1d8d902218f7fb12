//! Neighbors that go away and come back, and routes that flap, under a TCP connection that lives on.

use crate::dut::Dut;
use crate::lab::{Family, Lab, Link, Plan, QUICK_NEIGHBORS};
use crate::net::wait_until;
use crate::traffic::{Live, Numbered};
use crate::{Kernel, Needs, turn};
use std::time::{Duration, Instant};

/// As long as a connection may take to go on.
const RECOVERY: Duration = Duration::from_secs(15);

/// The right host's interface goes down or up; its routes come back with it.
fn set_right(lab: &Lab, up: bool) {
    if up {
        lab.right().run("ip link set right up");
        lab.link("right").give_host_routes(lab.right());
    } else {
        lab.right().run("ip link set right down");
    }
}

fn returns(dut: Dut, family: Family) {
    let lab = Plan::two_hosts().config(QUICK_NEIGHBORS).build(dut);
    let live = Live::start(lab.left(), lab.right(), lab.address("right", family));
    live.goes_on(RECOVERY);

    // The cable is pulled, and put back.
    set_right(&lab, false);
    std::thread::sleep(Duration::from_millis(1500));
    set_right(&lab, true);
    println!("the same host is back: {:?}", live.goes_on(RECOVERY));

    // Another machine with the same address; it says so.
    lab.right().sysctl(&["net.ipv4.conf.right.arp_notify=1", "net.ipv6.conf.right.ndisc_notify=1"]);
    set_right(&lab, false);
    lab.right().run("ip link set right address 02:00:00:00:aa:01");
    set_right(&lab, true);
    println!("another host that says so: {:?}", live.goes_on(RECOVERY));

    // And one that does not: we have to find out.
    lab.right().sysctl(&["net.ipv4.conf.right.arp_notify=0", "net.ipv6.conf.right.ndisc_notify=0"]);
    lab.right().run("ip link set right address 02:00:00:00:aa:02");
    println!("another host that does not: {:?}", live.goes_on(RECOVERY));

    // The cable stays, and nobody is there.
    let address = format!("{}/{}", lab.address("right", family), family.pick(24, 64));
    lab.right().run(&format!("ip addr del {address} dev right"));
    std::thread::sleep(Duration::from_millis(2500));
    lab.right().add_address(&address, "right");
    lab.link("right").give_host_routes(lab.right());
    println!("an address that is back: {:?}", live.goes_on(RECOVERY));
    live.finish();
    lab.finish();
}

#[test]
fn root_neighbor_returns_ipv4() {
    let Some(turn) = turn("root_neighbor_returns_ipv4", Needs::Little, Kernel::Can) else { return };
    returns(turn.dut, Family::V4);
}

#[test]
fn root_neighbor_returns_ipv6() {
    let Some(turn) = turn("root_neighbor_returns_ipv6", Needs::Little, Kernel::Can) else { return };
    returns(turn.dut, Family::V6);
}

/// A better route by another link comes and goes, 100 times a second; both lead to the same host, so nothing is lost.
fn flaps(dut: Dut, family: Family) {
    let right = Link::new("right", 2);
    let other = Link { host: "right", ..Link::new("other", 3) };
    let (wide, narrow, target) = family.pick(
        ("10.99.0.0/16", "10.99.0.1/32", "10.99.0.1"),
        ("fd00:99::/32", "fd00:99::1/128", "fd00:99::1"),
    );
    let (first, second) = (right.host(family), other.host(family));
    let lab = Plan::new([Link::new("left", 1), right, other]).route(wide, &[first]).build(dut);
    lab.right().add_address(narrow, "lo");
    let target = target.parse().unwrap();
    wait_until("both neighbors are known", Duration::from_secs(5), || {
        [first, second].iter().all(|to| lab.left().attempt(&format!("ping -c 1 -W 1 {to}")).0)
    });
    let live = Live::start(lab.left(), lab.right(), target);
    let numbered = Numbered::start(lab.left(), lab.right(), target, 4, 2000, 200);

    let (start, mut flaps) = (Instant::now(), 0u32);
    while start.elapsed() < Duration::from_secs(5) {
        // Half a period with the route, half without.
        let tick = |half: u32| start + Duration::from_millis(10) * flaps + Duration::from_millis(5) * half;
        lab.router.add_route(narrow, &second.to_string());
        std::thread::sleep(tick(1).saturating_duration_since(Instant::now()));
        lab.router.delete_route(narrow);
        std::thread::sleep(tick(2).saturating_duration_since(Instant::now()));
        flaps += 1;
    }
    println!("the route came and went {flaps} times in {:.1} s", start.elapsed().as_secs_f64());
    assert!(flaps >= 400, "100 times a second is what was asked for");
    live.goes_on(Duration::from_secs(5));
    live.finish();
    let arrived = numbered.finish();
    assert_eq!(arrived.received, arrived.sent, "{arrived:?}");
    let (first, second) = (lab.right().received("right"), lab.right().received("other"));
    println!("{first} packets came by one link, {second} by the other");
    assert!(second > 500 && first > 500, "the route did not change the path");
    lab.finish();
}

#[test]
fn root_flapping_route_ipv4() {
    let Some(turn) = turn("root_flapping_route_ipv4", Needs::Machine, Kernel::Can) else { return };
    flaps(turn.dut, Family::V4);
}

#[test]
fn root_flapping_route_ipv6() {
    let Some(turn) = turn("root_flapping_route_ipv6", Needs::Machine, Kernel::Can) else { return };
    flaps(turn.dut, Family::V6);
}
