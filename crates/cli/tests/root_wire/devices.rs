//! Devices that go away, come back, change: the router finds them again, and nobody else notices.

use crate::basic::ping;
use crate::lab::{Family, Lab, Link, Plan};
use crate::net::{cable, wait_until};
use crate::traffic::{Live, Numbered};
use crate::{Kernel, Needs, turn};
use std::time::Duration;
use tidemill_control::schema::{self, path};

const SOON: Duration = Duration::from_secs(10);

fn port(lab: &Lab, name: &str) -> schema::Port {
    let ports: schema::Ports = lab.router.get(path::PORTS).unwrap();
    ports.ports.into_iter().find(|port| port.name == name).unwrap()
}

fn interface(lab: &Lab, name: &str) -> schema::Interface {
    let interfaces: schema::Interfaces = lab.router.get(path::INTERFACES).unwrap();
    interfaces.interfaces.into_iter().find(|interface| interface.name == name).unwrap()
}

/// How often the log says something.
fn said(lab: &Lab, what: &str) -> usize {
    lab.router.log().matches(what).count()
}

const GONE: &str = "port right: interface tm-right is gone: looking for it";
const BACK: &str = "port right: interface tm-right is back after";

fn removed_and_made_again(test: &str, kind: &'static str, run: &str, port_keys: &'static str, queues: u64) {
    let Some(turn) = turn(test, Needs::Machine, Kernel::Cannot) else { return };
    let links = [("left", 1), ("right", 2), ("third", 3)];
    let links = links.map(|(name, net)| Link { port: port_keys, ..Link::new(name, net) });
    let lab = Plan { kind, ..Plan::new(links).config(run) }.build(turn.dut);
    ping(lab.left(), lab.address("third", Family::V4), "", 0);
    let live = [Family::V4, Family::V6]
        .map(|family| Live::start(lab.left(), lab.right(), lab.address("right", family)));
    // Of these nothing may be lost or overtaken.
    let beside =
        Numbered::start(lab.left(), lab.host("third"), lab.address("third", Family::V4), 8, 1000, 64);
    // These have nowhere to go for a while.
    let into = Numbered::start(lab.left(), lab.right(), lab.address("right", Family::V4), 8, 1000, 64);
    live.iter().for_each(|live| _ = live.goes_on(SOON));
    let mac = interface(&lab, "right").mac;
    for round in 1..=3 {
        lab.router.ns.run("ip link del tm-right");
        wait_until("the loss is said", SOON, || said(&lab, GONE) == round);
        wait_until("all queues know", SOON, || port(&lab, "right").lost == round as u64 * queues);
        assert_eq!(port(&lab, "right").link, Some(schema::Link::Away));
        assert!(!interface(&lab, "right").up);
        std::thread::sleep(Duration::from_millis(200));
        cable(&lab.router.ns, "tm-right", lab.right(), "right", 1500);
        lab.link("right").give_host_addresses(lab.right());
        wait_until("it is said to be back", SOON, || said(&lab, BACK) == round);
        wait_until("all queues are back", SOON, || port(&lab, "right").found == round as u64 * queues);
        for live in &live {
            println!("TCP goes on after {} ms", live.goes_on(Duration::from_secs(20)).as_millis());
        }
        assert_eq!(port(&lab, "right").link, Some(schema::Link::Up));
    }
    assert_ne!(interface(&lab, "right").mac, mac, "the new device has another address, and so have we");
    let beside = beside.finish();
    assert_eq!((beside.received, beside.late), (beside.sent, 0), "{beside:?}");
    let into = into.finish();
    assert!(into.received > 0 && into.received < into.sent, "{into:?}");
    live.into_iter().for_each(|live| _ = live.finish());
    lab.finish();
}

#[test]
fn root_device_removed_and_made_again() {
    removed_and_made_again("root_device_removed_and_made_again", "af_packet", "", "", 1);
}

#[test]
fn root_device_removed_with_two_workers() {
    let config = "[run]\nworkers = 2\n";
    removed_and_made_again("root_device_removed_with_two_workers", "af_packet", config, "queues = 2", 2);
}

#[test]
fn root_device_removed_with_software_rss() {
    let config = "[run]\nworkers = 2\n";
    removed_and_made_again("root_device_removed_with_software_rss", "af_packet", config, "queues = 1", 1);
}

/// Its program and socket go with the device, and the new one gets others.
#[cfg(feature = "xdp")]
#[test]
fn root_device_removed_from_af_xdp() {
    removed_and_made_again("root_device_removed_from_af_xdp", "af_xdp", "", "", 1);
}

#[test]
fn root_device_renamed() {
    let Some(turn) = turn("root_device_renamed", Needs::Little, Kernel::Cannot) else { return };
    let lab = Plan::two_hosts().build(turn.dut);
    let live = Live::start(lab.left(), lab.right(), lab.address("right", Family::V4));
    live.goes_on(SOON);
    let rename = |from: &str, to: &str| {
        lab.router.ns.run(&format!("ip link set {from} down"));
        lab.router.ns.run(&format!("ip link set {from} name {to}"));
        lab.router.ns.run(&format!("ip link set {to} up"));
    };
    rename("tm-right", "tm-other");
    wait_until("the loss is said", SOON, || said(&lab, GONE) == 1);
    assert!(!interface(&lab, "right").up);
    let (reaches, _) = lab.left().attempt("ping -c 1 -W 1 10.2.0.2");
    assert!(!reaches, "what has another name is not ours");
    rename("tm-other", "tm-right");
    wait_until("it is said to be back", SOON, || said(&lab, BACK) == 1);
    live.goes_on(Duration::from_secs(20));
    live.finish();
    lab.finish();
}

#[test]
fn root_device_down_and_up_100_times() {
    let Some(turn) = turn("root_device_down_and_up_100_times", Needs::Machine, Kernel::Cannot) else {
        return;
    };
    let lab = Plan::two_hosts().build(turn.dut);
    let live = [Family::V4, Family::V6]
        .map(|family| Live::start(lab.left(), lab.right(), lab.address("right", family)));
    live.iter().for_each(|live| _ = live.goes_on(SOON));
    for _ in 0..100 {
        lab.router.ns.run("ip link set tm-right down");
        lab.router.ns.run("ip link set tm-right up");
    }
    for live in live {
        live.goes_on(Duration::from_secs(20));
        live.finish();
    }
    let port = port(&lab, "right");
    assert_eq!((port.lost, port.link), (0, Some(schema::Link::Up)), "a link that is down is not gone");
    lab.finish();
}

#[test]
fn root_device_mtu_changes() {
    let Some(turn) = turn("root_device_mtu_changes", Needs::Little, Kernel::Cannot) else { return };
    let lab = Plan::two_hosts().build(turn.dut);
    let set = |mtu: u32| {
        lab.router.ns.run(&format!("ip link set tm-right mtu {mtu}"));
        lab.right().run(&format!("ip link set right mtu {mtu}"));
        lab.left().run("ip route flush cache");
    };
    let pings = |size: u32, fragment: &str| {
        lab.left().attempt(&format!("ping -c 1 -W 2 -M {fragment} -s {} 10.2.0.2", size - 28))
    };
    assert!(pings(1500, "do").0);
    for mtu in [1400, 1300] {
        set(mtu);
        wait_until("the MTU is followed", SOON, || interface(&lab, "right").mtu == mtu);
        let now = format!("port right: interface tm-right has an MTU of {mtu} now");
        wait_until(&now, SOON, || said(&lab, &now) == 1);
        let (reaches, answer) = pings(mtu + 1, "do");
        assert!(
            !reaches && answer.contains(&format!("mtu = {mtu}")) || answer.contains(&format!("mtu={mtu}")),
            "{answer}"
        );
        lab.left().run("ip route flush cache");
        let (reaches, answer) = pings(mtu, "do");
        assert!(reaches, "{answer}");
        let (reaches, answer) = pings(1500, "dont");
        assert!(reaches, "fragments: {answer}");
    }
    // Longer than frames are: ours stays what it was.
    set(9000);
    wait_until("the MTU is refused", SOON, || said(&lab, "frames hold packets of") == 1);
    assert_eq!(interface(&lab, "right").mtu, 1300);
    // And back, and beyond what the transmit ring was made for, but not what frames hold.
    set(1700);
    wait_until("the MTU is followed", SOON, || interface(&lab, "right").mtu == 1700);
    lab.router.ns.run("ip link set tm-left mtu 1700");
    lab.left().run("ip link set left mtu 1700");
    lab.link("left").give_host_routes(lab.left());
    wait_until("long packets pass", SOON, || {
        lab.left().run("ip route flush cache");
        pings(1700, "do").0
    });
    lab.finish();
}

/// Frames run out while a port holds them back: what comes in then is counted, and afterwards all is well.
#[test]
fn root_device_out_of_frames() {
    let Some(turn) = turn("root_device_out_of_frames", Needs::Machine, Kernel::Cannot) else { return };
    let slow = Link { port: "fault = { tx = { delay = 1.0, delay_us = 400000 } }", ..Link::new("right", 2) };
    let lab = Plan::new([Link::new("left", 1), slow]).config("[memory]\nframes = 1024\n").build(turn.dut);
    let reaches = || lab.left().attempt("ping -c 1 -W 2 10.2.0.2").0;
    wait_until("the neighbor is known", SOON, reaches);
    let flood = Numbered::start(lab.left(), lab.right(), lab.address("right", Family::V4), 4, 20_000, 64);
    wait_until("frames have run out", Duration::from_secs(20), || {
        lab.router.drops().get("no-frames").is_some_and(|count| *count > 100)
    });
    let flood = flood.finish();
    assert!(flood.received > 0, "{flood:?}");
    let before = lab.router.drops();
    for _ in 0..5 {
        wait_until("packets pass again", SOON, reaches);
    }
    assert_eq!(lab.router.drops().get("no-frames"), before.get("no-frames"), "frames have come home");
    lab.finish();
}
