//! The fast path's program, run by the kernel on single frames (`BPF_PROG_TEST_RUN`): the linear oracle's next hops while generations take turns, and never a frame that
//! user space would not have sent just so. Needs root; every test runs in a namespace of its own.

#![cfg(all(feature = "xdp", target_os = "linux"))]
#![allow(clippy::unwrap_used)] // a test may

mod common;
#[path = "../../port/tests/common/net.rs"]
mod net;
#[path = "root_offload/race.rs"]
mod race;

use common::*;
use net::{cable, cable_at, inside, run};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::path::Path;
use tidemill_bpf::{Mode, Verdict};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::Change;
use tidemill_lpm::{Address, Label, Oracle, Prefix};
use tidemill_router::offload::xdp::{Offload, OffloadPort, PORT_REASONS, PortCounters};
use tidemill_router::{Device, PortInfo, Routed, RouterConfig, RouterControl, Routes};
use tidemill_wire::{EtherType, Protocol, ipv4, ipv6};

const CONFIG: &str = "next_hops.ports = ['wan']\nrouter.martians = 'off'\nrouter.icmp_rate_per_s = 0\n\
    [[interface]]\nport = 'lan'\nmac = '02:49:00:00:00:00'\naddresses = ['10.0.0.1/24', 'fd00::1/64']\n\
    [[interface]]\nport = 'wan'\nmac = '02:49:00:00:00:01'\nmtu = 1400\n";

const REDIRECT: u32 = 4;
const PASS: u32 = 2;

/// A router's control side with its fast path on two cables, and no packets but those that are handed to the program.
struct Bench {
    control: RouterControl,
    offload: Offload,
    lan: u32,
    now_ns: u64,
    _domain: Domain,
}

impl Bench {
    fn new(config: &str, v4: Routes<u32>, v6: Routes<u128>, bytes: u64) -> Self {
        cable("lan", "left");
        cable("wan", "right");
        ["left", "right"].iter().for_each(|end| run(&format!("ethtool -K {end} gro on")));
        Self::on_cables(config, v4, v6, bytes)
    }

    fn on_cables(config: &str, v4: Routes<u32>, v6: Routes<u128>, bytes: u64) -> Self {
        let devices = ["lan", "wan"].map(|name| tidemill_port::device(name).unwrap());
        let infos = devices.each_ref().map(|device| PortInfo {
            device: Some(Device { index: device.index, mac: device.mac, mtu: 1500, up: true }),
            interface: device.name.clone(),
            ..PortInfo::new(&device.name)
        });
        let config: RouterConfig = toml::from_str(config).unwrap();
        let domain = Domain::new();
        let control = RouterControl::new(&config, &infos, v4, v6, &domain).unwrap();
        let port = |name: &str| OffloadPort {
            name: name.into(),
            interface: name.into(),
            mode: Mode::Auto,
            is_behind: false,
            sends: true,
        };
        let offload = Offload::open(vec![(0, port("lan")), (1, port("wan"))], bytes).unwrap();
        Bench { control, offload, lan: devices[0].index, now_ns: 0, _domain: domain }
    }

    /// One round of whoever keeps it up to date: whether there was anything to do.
    fn turn(&mut self) -> bool {
        self.now_ns += 1_000_000_000;
        self.offload.look(self.now_ns);
        let cut = self.offload.cut(&mut self.control, self.now_ns);
        let is_new = cut.is_some();
        cut.into_iter().for_each(|cut| self.offload.finish(cut));
        is_new
    }

    /// The frame that leaves; `None` if it is left to the router, as it came.
    fn ask(&self, frame: &[u8]) -> Option<Vec<u8>> {
        sent(frame, self.offload.run_once(frame, self.lan).unwrap())
    }

    /// The counters of `lan`, and those of `wan`.
    fn counters(&self) -> [PortCounters; 2] {
        self.offload.account().ports().try_into().unwrap()
    }

    fn left(&self, why: &str) -> u64 {
        let at = PORT_REASONS.iter().position(|reason| *reason == why).unwrap();
        self.counters()[0].left[at]
    }
}

/// The frame that leaves, by what the program has said and made of one; `None` if that is left to the router, as it came.
fn sent(frame: &[u8], (verdict, made): (Verdict, Vec<u8>)) -> Option<Vec<u8>> {
    match verdict.action {
        REDIRECT => Some(made),
        PASS => {
            assert_eq!(made, frame, "what is left to the router is not touched");
            None
        }
        other => panic!("action {other}"),
    }
}

/// The label that a frame's destination MAC address shows.
fn label(frame: &[u8]) -> Label {
    assert_eq!(frame[..2], [0x02, 0x54]);
    assert_eq!(frame[6..12], WAN.0);
    Label(u32::from_be_bytes(frame[2..6].try_into().unwrap()))
}

fn to4(address: u32) -> Vec<u8> {
    udp4("198.51.100.9", &address.to_ip().to_string(), b"to whom?", |_| {})
}

fn to6(address: u128) -> Vec<u8> {
    udp6("2001:db8::9", &address.to_ip().to_string(), b"to whom?", |_| {})
}

/// Every `step`th route of a real table; random ones where there is none.
fn routes<A: Address>(rng: &mut StdRng, file: &str, step: usize) -> Vec<(Prefix<A>, Label)> {
    let Some(data) = std::env::var_os("TIDEMILL_DATA") else {
        println!("random routes (TIDEMILL_DATA is not set)");
        return (0..3000)
            .map(|_| {
                let address = A::from_u128(rng.random::<u128>() >> (128 - u32::from(A::BITS)));
                (
                    Prefix::new(address, rng.random_range(8..=A::BITS)).unwrap(),
                    Label(rng.random_range(1..300)),
                )
            })
            .collect();
    };
    let mut text = String::new();
    let path = Path::new(&data).join("rib").join(file);
    tidemill_archive::open(&path).unwrap().read_to_string(&mut text).unwrap();
    let line = |line: &str| {
        let (prefix, label) = line.split_once('\t').unwrap();
        (prefix.parse().ok().unwrap(), Label(label.parse().unwrap()))
    };
    text.lines().step_by(step).map(line).collect()
}

/// Addresses at the ends of prefixes and within them, that are no groups.
fn keys<A: Address>(rng: &mut StdRng, list: &[(Prefix<A>, Label)], count: usize) -> Vec<A> {
    let key = |rng: &mut StdRng| {
        let (prefix, _) = list[rng.random_range(0..list.len())];
        match rng.random_range(0..4) {
            0 => prefix.first(),
            1 => prefix.last(),
            2 if prefix.last() != A::MAX => prefix.last() + A::one(),
            _ => prefix.first() | (A::from_u128(rng.random()) & !A::mask(prefix.len())),
        }
    };
    let is_host = |key: &A| (*key >> usize::from(A::BITS - 8)).to_u128() < 0xe0;
    std::iter::repeat_with(|| key(rng)).filter(is_host).take(count).collect()
}

/// Announcements of new and known prefixes, withdrawals.
fn changes<A: Address>(
    rng: &mut StdRng,
    truth: &mut BTreeMap<Prefix<A>, Label>,
    count: usize,
) -> Vec<Change<A>> {
    let known: Vec<Prefix<A>> = truth.keys().copied().collect();
    let mut change = || {
        let (prefix, label) = (known[rng.random_range(0..known.len())], Label(rng.random_range(1..300)));
        let address = prefix.first() | (A::from_u128(rng.random()) & !A::mask(prefix.len()));
        let longer = Prefix::new(address, rng.random_range(prefix.len()..=A::BITS)).unwrap();
        match rng.random_range(0..3) {
            0 => Change::Withdraw(prefix),
            1 => Change::Announce(prefix, label),
            _ => Change::Announce(longer, label),
        }
    };
    let changes: Vec<Change<A>> = (0..count).map(|_| change()).collect();
    follow(truth, &changes);
    changes
}

fn follow<A: Address>(truth: &mut BTreeMap<Prefix<A>, Label>, changes: &[Change<A>]) {
    for change in changes {
        match *change {
            Change::Withdraw(prefix) => truth.remove(&prefix),
            Change::Announce(prefix, label) => truth.insert(prefix, label),
        };
    }
}

fn check<A: Address>(bench: &Bench, keys: &[A], oracle: &Oracle<A>, frame: fn(A) -> Vec<u8>, when: &str) {
    for key in keys {
        let found = bench.ask(&frame(*key)).map_or(Label::NONE, |frame| label(&frame));
        assert_eq!(found, oracle.lookup(*key), "{}, {when}", key.to_ip());
    }
}

fn take_turns<A: Routed + Address>(
    bench: &mut Bench,
    rng: &mut StdRng,
    mut list: Vec<(Prefix<A>, Label)>,
    frame: fn(A) -> Vec<u8>,
) {
    let mut truth: BTreeMap<Prefix<A>, Label> = list.iter().copied().collect();
    let mut old = Oracle::new(&list);
    check(bench, &keys(rng, &list, 1500), &old, frame, "at first");
    for round in 0..8 {
        // More than are patched, once.
        let count = if round == 5 { 5000 } else { 60 };
        let changes = changes(rng, &mut truth, count);
        list = truth.iter().map(|(prefix, label)| (*prefix, *label)).collect();
        let keys = keys(rng, &list, 200);
        bench.control.apply(&changes).unwrap();
        check(bench, &keys, &old, frame, "before its turn");
        assert!(bench.turn() && !bench.turn());
        old = Oracle::new(&list);
        check(bench, &keys, &old, frame, "after its turn");
        let changed: Vec<A> = changes.iter().map(|change| change.prefix().first()).take(60).collect();
        let changed: Vec<A> =
            changed.into_iter().filter(|key| (*key >> usize::from(A::BITS - 8)).to_u128() < 0xe0).collect();
        check(bench, &changed, &old, frame, "where it has changed");
    }
}

#[test]
fn root_offload_has_the_oracles_next_hops_while_generations_take_turns() {
    if !inside("root_offload_has_the_oracles_next_hops_while_generations_take_turns") {
        return;
    }
    let mut rng = StdRng::seed_from_u64(1);
    let list4 = routes::<u32>(&mut rng, "ris-as3333-20260511.v4.nh148.zst", 60);
    let list6 = routes::<u128>(&mut rng, "ris-as3333-20260511.v6.nh148.zst", 20);
    // Our own addresses are no routes of the table's.
    let list4: Vec<_> = list4.into_iter().filter(|(prefix, _)| !prefix.contains(0x0a00_0001)).collect();
    let (v4, v6) = (list4.iter().copied().collect(), list6.iter().copied().collect());
    let (v4, v6) = (Routes { rib: v4, names: Vec::new() }, Routes { rib: v6, names: Vec::new() });
    let mut bench = Bench::new(CONFIG, v4, v6, 64 << 20);
    assert_eq!(bench.ask(&to4(list4[0].0.first())), None, "nothing is in force");
    assert!(bench.turn());
    take_turns(&mut bench, &mut rng, list4, to4);
    take_turns(&mut bench, &mut rng, list6, to6);
    let [lan, wan] = bench.counters();
    assert_eq!((lan.forwarded, lan.bytes), (wan.sent, wan.sent_bytes));
    assert!(lan.forwarded > 3000);
    assert_eq!(bench.offload.take_notes().iter().filter(|note| note.contains("warning")).count(), 0);
}

/// What the rest of the header of a forwarded frame looks like is user space's word.
#[test]
fn root_offload_sends_nothing_that_user_space_would_not_send_just_so() {
    if !inside("root_offload_sends_nothing_that_user_space_would_not_send_just_so") {
        return;
    }
    let list4 = [("0.0.0.0/0", 7), ("192.0.2.0/24", 8), ("203.0.113.0/24", 9)];
    let list6 = [("::/0", 7), ("2001:db8:1::/48", 8)];
    let both = || (common::routes::<u32>(&list4), common::routes::<u128>(&list6));
    let config = CONFIG.replace("'off'", "'standard'");
    let (v4, v6) = both();
    let mut bench = Bench::new(&config, v4, v6, 64 << 20);
    assert!(bench.turn());
    let mut rng = StdRng::seed_from_u64(2);
    let frames: Vec<Vec<u8>> = (0..6000).map(|_| some_frame(&mut rng)).collect();
    let forwarded: Vec<Vec<u8>> = frames.iter().filter_map(|frame| bench.ask(frame)).collect();
    let (v4, v6) = both();
    let user = Router::new(&config, v4, v6).run_with(frames.into_iter().map(input).collect(), 2048, |_| {});
    let mut sent: HashMap<&[u8], usize> = HashMap::new();
    user.sent[1].iter().for_each(|frame| *sent.entry(frame).or_default() += 1);
    for frame in &forwarded {
        // User space cuts off what Ethernet was padded with.
        let ip = &frame[14..];
        let long = if frame[12] == 8 { ipv4::total_len(ip) } else { 40 + ipv6::payload_len(ip) };
        let frame = &frame[..14 + usize::from(long)];
        let same = sent.get_mut(frame).unwrap_or_else(|| panic!("user space did not send {frame:02x?}"));
        *same = same.checked_sub(1).unwrap();
    }
    let [lan, _] = bench.counters();
    println!("{} of {} that user space sends; {lan:?}", forwarded.len(), user.sent[1].len());
    assert_eq!(lan.forwarded as usize, forwarded.len());
    assert_eq!(lan.forwarded + lan.left.iter().sum::<u64>(), 6000);
    // Plain ones it does forward, and each reason occurs that frames can have here.
    assert!(forwarded.len() * 3 > user.sent[1].len());
    let elsewhere = ["no-route", "no-device", "next-hop", "gate"];
    for why in PORT_REASONS.iter().filter(|why| !elsewhere.contains(why)) {
        assert!(bench.left(why) > 0, "{why}");
    }
}

/// A frame, most often a good one, with something about it.
fn some_frame(rng: &mut StdRng) -> Vec<u8> {
    let data = vec![0xa5; [0, 8, 100, 1300, 1372, 1373, 1450][rng.random_range(0..7)]];
    let ttl = [64, 64, 64, 2, 1, 0, 255][rng.random_range(0..7)];
    let from4 = ["198.51.100.9", "10.0.0.9", "127.0.0.1", "224.0.0.1", "169.254.0.1", "0.0.0.0"];
    let to4 =
        ["192.0.2.1", "203.0.113.200", "8.8.8.8", "10.0.0.1", "255.255.255.255", "224.0.0.5", "169.254.9.9"];
    let from6 = ["2001:db8::9", "fd00::9", "::1", "fe80::9", "ff02::1"];
    let to6 = ["2001:db8:1::1", "2a00::1", "fd00::1", "fe80::1", "ff02::1", "::"];
    let often = |rng: &mut StdRng, count: usize| rng.random_range(0..count).saturating_sub(count / 2);
    let mut frame = if rng.random() {
        let (from, to) = (from4[often(rng, 12)], to4[often(rng, 14)]);
        let fragment = rng.random_range(0..8);
        udp4(from, to, &data, |ip| {
            ip.set_ttl(ttl);
            match fragment {
                0 => ip.set_fragment(true, false, 0),
                1 => ip.set_fragment(false, true, 0),
                2 => ip.set_fragment(false, false, 185),
                _ => {}
            }
        })
    } else {
        let (from, to) = (from6[often(rng, 10)], to6[often(rng, 12)]);
        udp6(from, to, &data, |ip| ip.set_hop_limit(ttl))
    };
    match rng.random_range(0..16) {
        0 => frame.truncate(rng.random_range(14..frame.len())),
        1 => {
            let more = frame.len() + rng.random_range(1..40);
            frame.resize(more, 0x55);
        }
        2 => {
            let at = rng.random_range(0..frame.len().min(60));
            frame[at] ^= 1 << rng.random_range(0..8);
        }
        3 => {
            // A VLAN tag.
            frame.splice(12..12, [0x81, 0, 0, 5]);
        }
        4 => frame[..6].copy_from_slice(&[0xff; 6]),
        5 => {
            // Options, with a sum that is right: a router alert's length, and no operations.
            let ip = ip4("198.51.100.9", "192.0.2.1", Protocol::UDP, &[1; 12], |ip| ip.set_ttl(ttl));
            let mut ip = [&ip[..20], &[1, 1, 1, 1], &ip[20..]].concat();
            ip[0] = 0x46;
            ip[2..4].copy_from_slice(&36_u16.to_be_bytes());
            ip[10..12].fill(0);
            let sum = tidemill_wire::checksum::checksum(&ip[..24]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            frame = common::frame(LAN, EtherType::IPV4, &ip);
        }
        6 => {
            // What a sender on this machine leaves to its card.
            let at = if frame[12] == 8 { 14 + 20 + 6 } else { 14 + 40 + 6 };
            let pseudo = pseudo_sum(&frame);
            frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        }
        7 => frame[6] |= 1,
        8 => frame = common::frame(LAN, EtherType::ARP, &[0; 28]),
        9 => {
            // Neighbor discovery by its looks.
            frame = common::frame(
                LAN,
                EtherType::IPV6,
                &ip6("2001:db8::9", "2001:db8:1::1", Protocol::ICMPV6, &[135, 0, 0, 0, 0, 0, 0, 0], |ip| {
                    ip.set_hop_limit(255);
                }),
            );
        }
        _ => {}
    }
    frame
}

/// The sum of the pseudo header of a UDP datagram.
fn pseudo_sum(frame: &[u8]) -> u16 {
    let ip = &frame[14..];
    let (addresses, length) = match frame[12] {
        8 => (&ip[12..20], ipv4::total_len(ip) - 20),
        _ => (&ip[8..40], ipv6::payload_len(ip)),
    };
    let words = addresses.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let mut sum = words.sum::<u32>() + u32::from(length) + 17;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn root_offload_redirects_in_drivers_only_to_devices_that_take_it() {
    if !inside("root_offload_redirects_in_drivers_only_to_devices_that_take_it") {
        return;
    }
    match tidemill_bpf::Receivers::open().unwrap() {
        Some(_) => {}
        None => return println!("skipped: this kernel does not say which devices take redirected frames"),
    }
    cable("lan", "left");
    cable("wan", "right");
    // Without a program or GRO at its other end, a cable loses what is redirected to it.
    run("ethtool -K right gro off");
    let v4 = common::routes::<u32>(&[("192.0.2.0/24", 7)]);
    let mut bench = Bench::on_cables(CONFIG, v4, Routes::default(), 64 << 20);
    assert!(bench.turn());
    let frame = to4(0xc000_0201);
    assert_eq!(bench.ask(&frame), None);
    assert_eq!(bench.left("no-device"), 1);
    run("ethtool -K right gro on");
    assert!(bench.turn(), "it is seen");
    assert_eq!(bench.ask(&frame).map(|frame| label(&frame)), Some(Label(7)));
    run("ethtool -K right gro off");
    assert!(bench.turn());
    assert_eq!(bench.ask(&frame), None);
    // A device that goes is missing at once, and another one of its name is another one.
    run("ethtool -K right gro on");
    assert!(bench.turn() && bench.ask(&frame).is_some());
    run("ip link del wan");
    assert_eq!(bench.ask(&frame), None);
    cable("wan", "right");
    run("ethtool -K right gro on");
    assert!(bench.turn());
    assert!(bench.ask(&frame).is_some());
    bench.offload.close();
    assert_eq!(bench.ask(&frame), None, "a closed one forwards nothing");
}

/// Whether an XDP program is on an interface.
fn has_program(interface: &str) -> bool {
    let shown = std::process::Command::new("ip").args(["link", "show", interface]).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).contains("xdp")
}

/// Nobody has looked meanwhile: by their numbers these are the devices that were there before.
#[test]
fn root_offload_comes_to_devices_with_the_numbers_of_those_before() {
    if !inside("root_offload_comes_to_devices_with_the_numbers_of_those_before") {
        return;
    }
    let v4 = common::routes::<u32>(&[("192.0.2.0/24", 7)]);
    let mut bench = Bench::new(CONFIG, v4, Routes::default(), 64 << 20);
    let frame = to4(0xc000_0201);
    assert!(bench.turn() && bench.ask(&frame).is_some());
    for (name, end) in [("lan", "left"), ("wan", "right")] {
        let index = tidemill_port::device(name).unwrap().index;
        run(&format!("ip link del {name}"));
        cable_at(index, name, end);
        run(&format!("ethtool -K {end} gro on"));
        assert!(!has_program(name));
        bench.turn();
        assert!(has_program(name) && bench.ask(&frame).is_some(), "{name}");
    }
    let notes = bench.offload.take_notes();
    assert!(!notes.iter().any(|note| note.contains("warning")), "{notes:?}");
}

#[test]
fn root_offload_without_room_leaves_all_to_the_router_and_says_so() {
    if !inside("root_offload_without_room_leaves_all_to_the_router_and_says_so") {
        return;
    }
    let v4 = common::routes::<u32>(&[("192.0.2.0/24", 7)]);
    let least = tidemill_router::offload::xdp::bytes_for(&v4.rib, &Routes::<u128>::default().rib);
    // Less than the fixed parts take is made that, so nodes have hardly any room.
    let mut bench = Bench::new(CONFIG, v4, Routes::default(), 1);
    assert!(least > 4 << 20);
    assert!(bench.turn());
    let frame = to4(0xc000_0201);
    assert_eq!(bench.ask(&frame), None);
    let notes = bench.offload.take_notes();
    assert!(notes.iter().any(|note| note.contains("outgrown") && note.contains("offload_mb")), "{notes:?}");
    // It is tried again, later, and succeeds when there is less.
    assert!(!bench.turn());
    let gone = ["192.0.2.0/24"].map(|prefix| Change::Withdraw(prefix.parse::<Prefix<u32>>().unwrap()));
    bench.control.apply(&gone).unwrap();
    assert!((0..12).any(|_| bench.turn()), "it is tried again");
}

#[test]
fn root_offload_lets_go_with_its_process() {
    if !inside("root_offload_lets_go_with_its_process") {
        return;
    }
    let v4 = common::routes::<u32>(&[("192.0.2.0/24", 7)]);
    let mut bench = Bench::new(CONFIG, v4, Routes::default(), 64 << 20);
    assert!(bench.turn());
    assert!(has_program("lan"));
    drop(bench);
    assert!(!has_program("lan"));
}
