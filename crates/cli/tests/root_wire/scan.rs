//! A flood of packets to a million addresses on a connected link: memory stays bounded, and who is really there is found.

use crate::dut::Dut;
use crate::lab::{Family, Lab, Link, Plan};
use crate::raw::Raw;
use crate::traffic::SetOnDrop;
use crate::{Kernel, Needs, turn};
use etherparse::PacketBuilder;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ADDRESSES: usize = 1_000_000;
/// Frames per system call.
const BATCH: usize = 64;
/// The most entries that the router may have, of hosts that do not exist.
const NEIGHBORS: usize = 20_000;
/// Who is there is found by so many pings; each has a second, for a busy machine may need it.
const PINGS: usize = 50;
/// The most memory that it may take for them.
const GROWTH_BYTES: usize = 32 << 20;

/// A frame from the left host to the router, for address 0 of those scanned.
fn frame(lab: &Lab, family: Family) -> Vec<u8> {
    let mac = |text: String| {
        let word =
            text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap().to_owned();
        let bytes: Vec<u8> = word.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        <[u8; 6]>::try_from(bytes).unwrap()
    };
    let from = mac(lab.left().run("ip -o link show left"));
    let to = mac(lab.router.ns.run("ip -o link show tm-left"));
    let link = PacketBuilder::ethernet2(from, to);
    let (source, target) = (lab.link("left").host(family), lab.link("right").router(family));
    let ip = match (source, target) {
        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(target)) => {
            link.ipv4(source.octets(), target.octets(), 64)
        }
        (std::net::IpAddr::V6(source), std::net::IpAddr::V6(target)) => {
            link.ipv6(source.octets(), target.octets(), 64)
        }
        _ => unreachable!("one family"),
    };
    let mut frame = Vec::new();
    ip.udp(9, 9).write(&mut frame, &[0; 8]).unwrap();
    frame
}

/// Whom the flood seems to come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// The host that it does come from.
    OneHost,
    /// A different address (IPv6: a different /64) for each packet.
    Anywhere,
}

/// Makes the frame one to address `i`. UDP's checksum is left wrong: nobody is there to look at it.
fn aim(frame: &mut [u8], family: Family, from: From, i: usize) {
    // Every one of 2^24 once, in an order that jumps about.
    let host = (i as u32).wrapping_mul(0x9E37_79B1) & 0xff_ffff;
    if from == From::Anywhere {
        let source = (i as u32).wrapping_mul(0x85EB_CA6B);
        match family {
            Family::V4 => frame[26..30].copy_from_slice(&(0x2000_0000 | source & 0x1fff_ffff).to_be_bytes()),
            Family::V6 => {
                frame[22..26].copy_from_slice(&[0x26, 0x07, 0xf8, 0xb0]);
                frame[26..30].copy_from_slice(&source.to_be_bytes());
            }
        }
    }
    match family {
        Family::V4 => {
            let [_, host @ ..] = (host | 0x0100_0000).to_be_bytes();
            frame[31..34].copy_from_slice(&host);
            frame[24..26].fill(0);
            let words =
                frame[14..34].as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
            let sum: u32 = words.sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        }
        Family::V6 => frame[46..54].copy_from_slice(&(u64::from(host) << 16 | 0xbad).to_be_bytes()),
    }
}

fn flood(lab: &Lab, family: Family, from: From, sent: &AtomicUsize, stop: &AtomicBool) {
    let socket = Raw::open(lab.left(), "left");
    let mut frames = vec![frame(lab, family); BATCH];
    let mut next = 0;
    while !stop.load(Ordering::Relaxed) {
        frames.iter_mut().enumerate().for_each(|(i, frame)| aim(frame, family, from, next + i));
        let went = socket.send_many(&frames);
        next += went;
        sent.fetch_add(went, Ordering::Relaxed);
    }
}

fn scan(dut: Dut, family: Family, from: From) {
    let right = Link { v4: "20.0.0".into(), v4_len: 8, ..Link::new("right", 2) };
    let lab = Plan::new([Link::new("left", 1), right, Link::new("side", 3)]).build(dut);
    // Hosts that nobody has spoken to yet.
    let fresh: Vec<String> =
        (0..5).map(|i| family.pick(format!("20.200.0.{}", 50 + i), format!("fd00:2::7:{i}"))).collect();
    for address in &fresh {
        lab.right().add_address(&format!("{address}/{}", family.pick(8, 64)), "right");
    }
    // The right host's answers are not for the neighbor cache of its own kernel to lose.
    lab.right().run(&format!("ping -c 1 -W 2 {}", lab.link("right").router(family)));
    lab.host("side").run(&format!("ping -c 1 -W 2 {}", lab.address("right", family)));
    // The kernel takes packets to hosts that do not answer 50,000 times a second.
    let (addresses, pings) = if dut == Dut::Kernel { (ADDRESSES / 10, 1) } else { (ADDRESSES, PINGS) };
    let (sent, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let before = lab.router.resident_bytes();
    let (mut slowest, mut latest, mut most) = (Duration::ZERO, 0, 0);
    std::thread::scope(|scope| {
        // Also if an assertion below fails: else the scope would wait for ever.
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| flood(&lab, family, from, &sent, &stop));
        let start = Instant::now();
        for address in &fresh {
            let due = addresses / (fresh.len() + 1);
            let begun = sent.load(Ordering::Relaxed);
            while sent.load(Ordering::Relaxed) < begun + due && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let asked = Instant::now();
            let ping = || lab.host("side").attempt(&format!("ping -n -c 1 -W 1 {address}")).0;
            let found = (1..=pings).find(|_| ping());
            (slowest, latest) = (slowest.max(asked.elapsed()), latest.max(found.unwrap_or(pings)));
            if dut == Dut::Tidemill {
                assert!(found.is_some(), "{address} was not found by {pings} pings");
            }
            most = most.max(lab.router.neighbors());
        }
        while sent.load(Ordering::Relaxed) < addresses {
            assert!(start.elapsed() < Duration::from_secs(30), "the flood is too slow: {sent:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let rate = sent.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!("{} addresses at {rate:.2} M/s", sent.load(Ordering::Relaxed));
    });
    most = most.max(lab.router.neighbors());
    let grown = lab.router.resident_bytes().saturating_sub(before);
    println!(
        "real hosts were found within {} ms, by ping {latest} at the latest; at most {most} neighbors; memory grew by {} KB; drops {:?}",
        slowest.as_millis(),
        grown >> 10,
        lab.router.drops()
    );
    assert!(most <= NEIGHBORS, "{most} neighbors");
    assert!(grown <= GROWTH_BYTES, "memory grew by {grown} bytes");
    if let Some(books) = lab.finish() {
        let seen = books["in"].as_u64().unwrap();
        assert!(seen as usize > addresses / 4, "the router saw {seen} packets only");
    }
}

#[test]
fn root_address_scan_ipv4() {
    let Some(turn) = turn("root_address_scan_ipv4", Needs::Machine, Kernel::Can) else { return };
    scan(turn.dut, Family::V4, From::OneHost);
}

#[test]
fn root_address_scan_ipv6() {
    let Some(turn) = turn("root_address_scan_ipv6", Needs::Machine, Kernel::Can) else { return };
    scan(turn.dut, Family::V6, From::OneHost);
}

#[test]
fn root_address_scan_from_anywhere_ipv4() {
    let Some(turn) = turn("root_address_scan_from_anywhere_ipv4", Needs::Machine, Kernel::Cannot) else {
        return;
    };
    scan(turn.dut, Family::V4, From::Anywhere);
}

#[test]
fn root_address_scan_from_anywhere_ipv6() {
    let Some(turn) = turn("root_address_scan_from_anywhere_ipv6", Needs::Machine, Kernel::Cannot) else {
        return;
    };
    scan(turn.dut, Family::V6, From::Anywhere);
}
