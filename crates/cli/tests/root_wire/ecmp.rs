//! Equal-cost paths: flows spread, each flow sticks, and of a path that dies only its own flows move.

use crate::dut::Dut;
use crate::lab::{Family, Lab, Link, Plan, QUICK_NEIGHBORS};
use crate::net::wait_until;
use crate::raw::Raw;
use crate::traffic::{self, SetOnDrop};
use crate::{Kernel, Needs, turn};
use etherparse::{SlicedPacket, TransportSlice};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FLOWS: usize = 96;
const PATHS: [&str; 3] = ["one", "two", "three"];
/// Where the packets go.
const PORT: u16 = 4001;

/// By which paths each flow (its source port) arrived during half a second.
fn watch(sockets: &[Raw]) -> BTreeMap<u16, BTreeSet<usize>> {
    let mut seen: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
    std::thread::scope(|scope| {
        let watchers: Vec<_> = sockets.iter().map(|socket| scope.spawn(|| arrivals(socket))).collect();
        for (path, watcher) in watchers.into_iter().enumerate() {
            for flow in watcher.join().unwrap() {
                seen.entry(flow).or_default().insert(path);
            }
        }
    });
    seen
}

fn arrivals(socket: &Raw) -> BTreeSet<u16> {
    // What has waited in the socket since the last time is old.
    while socket.receive(Duration::ZERO).is_some() {}
    let end = Instant::now() + Duration::from_millis(500);
    let mut flows = BTreeSet::new();
    while let Some(frame) = socket.receive(end.saturating_duration_since(Instant::now())) {
        if let Ok(packet) = SlicedPacket::from_ethernet(&frame.bytes)
            && let Some(TransportSlice::Udp(udp)) = packet.transport
            && udp.destination_port() == PORT
        {
            flows.insert(udp.source_port());
        }
        if Instant::now() >= end {
            break;
        }
    }
    flows
}

/// One path per flow; panics if a flow uses two, or if one of the flows does not arrive, however long whoever is on the way stands still.
fn settled(lab: &[Raw]) -> BTreeMap<u16, usize> {
    let mut seen = watch(lab);
    for _ in 0..5 {
        if seen.len() < FLOWS {
            for (flow, paths) in watch(lab) {
                seen.entry(flow).or_default().extend(paths);
            }
        }
    }
    assert_eq!(seen.len(), FLOWS, "flows that arrive");
    let split: Vec<_> = seen.iter().filter(|(_, paths)| paths.len() > 1).collect();
    assert!(split.is_empty(), "flows by several paths: {split:?}");
    seen.into_iter().map(|(flow, paths)| (flow, paths.into_iter().next().unwrap_or_default())).collect()
}

/// Every flow sends a packet every few milliseconds.
fn rain(sockets: &[UdpSocket], stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for socket in sockets {
            let _ = socket.send(b"flow");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn many_paths(dut: Dut, family: Family) {
    let mut links = vec![Link::new("left", 1)];
    links.extend((2..).zip(PATHS).map(|(net, name)| Link { host: "right", ..Link::new(name, net) }));
    let via: Vec<IpAddr> = links[1..].iter().map(|link| link.host(family)).collect();
    let default = family.pick("0.0.0.0/0", "::/0");
    let lab = Plan::new(links).config(QUICK_NEIGHBORS).route(default, &via).build(dut);
    let target = family.pick("10.99.0.1", "fd00:99::1");
    lab.right().add_address(target, "lo");
    // Takes the packets, so that nobody sends ICMP errors about them.
    let _taker = lab.right().udp(SocketAddr::new(target.parse().unwrap(), PORT));
    spread(dut, &lab, family, target.parse().unwrap(), &via);
    lab.finish();
}

fn spread(dut: Dut, lab: &Lab, family: Family, target: IpAddr, via: &[IpAddr]) {
    let watchers: Vec<Raw> = PATHS.iter().map(|path| Raw::open(lab.right(), path)).collect();
    let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| lab.left().udp(traffic::any(target))).collect();
    sockets.iter().for_each(|socket| socket.connect(SocketAddr::new(target, PORT)).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| rain(&sockets, &stop));
        wait_until("all neighbors are known", Duration::from_secs(5), || watch(&watchers).len() == FLOWS);
        let before = settled(&watchers);
        let share = |of: &BTreeMap<u16, usize>, path| of.values().filter(|&&at| at == path).count();
        let shares: Vec<usize> = (0..PATHS.len()).map(|path| share(&before, path)).collect();
        println!("flows per path: {shares:?}");
        assert!(shares.iter().all(|&flows| flows >= FLOWS / PATHS.len() / 2), "{shares:?}");
        assert_eq!(settled(&watchers), before, "flows moved though nothing happened");

        if (dut, family) == (Dut::Kernel, Family::V6) {
            // A Linux router keeps sending to IPv6 neighbors that are gone.
            return;
        }
        // The second path's neighbor no longer answers.
        let length = family.pick(24, 64);
        lab.right().run(&format!("ip addr del {}/{length} dev {}", via[1], PATHS[1]));
        wait_until("nothing goes to the dead neighbor", Duration::from_secs(20), || {
            let seen = watch(&watchers);
            seen.len() == FLOWS && seen.values().all(|paths| !paths.contains(&1))
        });
        let after = settled(&watchers);
        let moved: Vec<_> = before.iter().filter(|(flow, path)| after[flow] != **path).collect();
        assert!(moved.iter().all(|(_, path)| **path == 1), "flows of living paths moved: {moved:?}");
        assert_eq!(moved.len(), shares[1]);
    });
}

#[test]
fn root_equal_cost_paths_ipv4() {
    let Some(turn) = turn("root_equal_cost_paths_ipv4", Needs::Machine, Kernel::Can) else { return };
    many_paths(turn.dut, Family::V4);
}

#[test]
fn root_equal_cost_paths_ipv6() {
    let Some(turn) = turn("root_equal_cost_paths_ipv6", Needs::Machine, Kernel::Can) else { return };
    many_paths(turn.dut, Family::V6);
}
