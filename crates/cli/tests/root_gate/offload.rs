//! `offload = "xdp"`: what is declined is dropped in the driver, all of it and nothing else, until something changes; and the program frame by frame. What is forwarded there: `replay.rs`.

use crate::lab::{self, Answer, Lab};
use crate::net::wait_until;
use crate::raw::Raw;
use crate::strangers::udp;
use crate::turn;
use std::time::{Duration, Instant};
use tidemill_bpf::Verdict;
use tidemill_control::schema;
use tidemill_flow::key::Key;
use tidemill_gatekeeper::offload::xdp::Offload;
use tidemill_gatekeeper::offload::{Picks, door};
use tidemill_wire::MacAddr;

const LIMIT: Duration = Duration::from_secs(10);

/// Sends packets of the client's flow, until so many are dropped below or a second is over, for the program hears of it when the process gets to that; returns how many of them
/// were dropped in user space, and how many below, which are all.
fn flood(lab: &Lab, wire: &Raw, v6: usize, least: u64) -> (u64, u64) {
    let before = lab.counters();
    let frames = vec![udp(lab.macs(), [lab::CLIENT[v6], lab::SERVER[v6]], [9, 9], 0, b"hello"); 10];
    let counted = || {
        let counters = lab.counters();
        ["declined", "offload-dropped"].map(|name| counters[name] - before[name])
    };
    let (start, mut sent) = (Instant::now(), 0);
    while sent < 400 || (counted()[1] < least && start.elapsed() < Duration::from_secs(1)) {
        assert_eq!(wire.send_many(&frames), frames.len());
        sent += frames.len() as u64;
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut all = [0; 2];
    wait_until("every packet is counted", LIMIT, || {
        all = counted();
        all.iter().sum::<u64>() >= sent
    });
    let [above, below] = all;
    assert_eq!(above + below, sent);
    assert!(below >= least, "{above} above, {below} below");
    (above, below)
}

fn decline(lab: &Lab, v6: usize, seconds: &str) {
    let decided = lab.counters()["decisions-applied"];
    lab.ask(&["gate", "decline", lab::CLIENT[v6], lab::SERVER[v6], "--for", seconds]);
    lab.reaches("decisions-applied", decided + 1);
}

#[test]
fn what_is_declined_is_dropped_in_the_driver() {
    let Some(_turn) = turn("what_is_declined_is_dropped_in_the_driver") else { return };
    let mut lab = Lab::start("offload = \"xdp\"");
    let wire = Raw::open(&lab.client, "eth0");
    assert!((0..20).any(|_| lab.pings(0) && lab.pings(1)), "no ping comes back");
    for v6 in [0, 1] {
        decline(&lab, v6, "600");
        let (above, below) = flood(&lab, &wire, v6, 200);
        assert!(above >= 4, "{above} above, {below} below");
        assert!(lab.flow(v6).flows[0].state == "declined" && lab.counters()["offload-rules"] >= 1);
        // Granted: not one packet more is dropped.
        let decided = lab.counters()["decisions-applied"];
        lab.ask(&["gate", "grant", lab::CLIENT[v6], lab::SERVER[v6], "--rate", "1000"]);
        lab.reaches("decisions-applied", decided + 1);
        assert!(lab.pings(v6));
        // Declined again; then a policy says that nobody is to be asked.
        decline(&lab, v6, "600");
        flood(&lab, &wire, v6, 200);
        let prefix = ["10.9.0.0/24", "fd00:9::/64"][v6];
        lab.ask(&["gate", "fib", "--add", prefix, "--action", "route"]);
        assert!(lab.pings(v6), "a rule outlives the policy");
    }
    // All of it is shown.
    let offload: schema::Offload = lab.control.get(schema::path::OFFLOAD, &()).unwrap();
    let declined = offload.declined.unwrap();
    assert!(offload.enabled && declined.room > declined.flows, "{declined:?}");
    assert!(declined.hit_rate > Some(0.5) && offload.bypass.is_some() && offload.ports.len() == 2);
    assert!(declined.dropped >= 800 && declined.dropped_bytes >= 800 * 47, "{declined:?}");
    let shown = |place: &schema::OffloadInterface| (place.port.clone(), place.interface.clone());
    let places: Vec<_> = declined.interfaces.iter().map(shown).collect();
    assert_eq!(places, [("wan", "tm-wan"), ("lan", "tm-lan")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    let mode = declined.interfaces[0].mode.clone().unwrap();
    let text = lab.ask(&["show", "offload"]);
    let line = text.lines().find(|line| line.contains("tm-wan")).unwrap();
    let line: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(line, ["wan", "tm-wan", mode.as_str()], "{text}");
    assert_eq!(mode == "generic", lab.wan().contains("xdpgeneric"), "{mode}");
    // Killed, it leaves nothing; the next one begins anew.
    assert!(lab.wan().contains("xdp"));
    lab.kill();
    wait_until("the program is gone with its process", LIMIT, || !lab.wan().contains("xdp"));
    lab.start_again();
    assert!((0..20).any(|_| lab.pings(0)), "no ping comes back");
    let start = Instant::now();
    decline(&lab, 0, "2");
    flood(&lab, &wire, 0, 100);
    // It may ask again when its time is over: not before, and not much later.
    lab.grantor.came.lock().unwrap().clear();
    let frame = udp(lab.macs(), [lab::CLIENT[0], lab::SERVER[0]], [9, 9], 0, b"hello");
    wait_until("it asks again", LIMIT, || {
        wire.send(&frame);
        std::thread::sleep(Duration::from_millis(2));
        !lab.grantor.came.lock().unwrap().is_empty()
    });
    let after = start.elapsed();
    assert!(after >= Duration::from_secs(2) && after < Duration::from_secs(6), "{after:?}");
    let said = lab.end();
    assert!(said["gate"]["offload-dropped"].as_u64() >= Some(100), "{said}");
}

/// The ports take frames out of the driver themselves; what is declined does not come to them.
#[test]
fn on_af_xdp_ports_it_is_the_same() {
    let Some(_turn) = turn("on_af_xdp_ports_it_is_the_same") else { return };
    let lab = Lab::on("af_xdp", "offload = \"xdp\"");
    let wire = Raw::open(&lab.client, "eth0");
    assert!((0..20).any(|_| lab.pings(0) && lab.pings(1)), "no ping comes back");
    for v6 in [0, 1] {
        *lab.grantor.answer.lock().unwrap() =
            Answer::Granted { rate_kib_s: 100, expire_s: 60, renew_ms: 50_000, step_ms: 1000 };
        let decided = lab.counters()["decisions-applied"];
        assert!(lab.pings(v6));
        lab.reaches("decisions-applied", decided + 1);
        lab.grantor.came.lock().unwrap().clear();
        assert!(lab.pings(v6));
        let came: Vec<u8> = lab.grantor.came.lock().unwrap().iter().map(|came| came.dscp).collect();
        assert_eq!(came, [1], "granted");
        decline(&lab, v6, "600");
        flood(&lab, &wire, v6, 200);
        assert_eq!(lab.flow(v6).flows[0].state, "declined");
    }
    let said = lab.end();
    assert!(said["gate"]["offload-dropped"].as_u64() >= Some(400), "{said}");
}

const MAC: [u8; 6] = [2, 0, 0, 0, 7, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 7, 2];
/// The loopback device: any does.
const DEVICE: u32 = 1;

fn frame(source: u8, v6: bool) -> Vec<u8> {
    let from = if v6 { format!("fd00:7::{source:x}") } else { format!("10.7.0.{source}") };
    let to = if v6 { "fd00:9::2" } else { "10.9.0.2" };
    udp([PEER, MAC], [from.as_str(), to], [9, 9], 0, b"hello")
}

#[test]
fn the_program_drops_by_rules_that_hold() {
    let Some(_turn) = turn("the_program_drops_by_rules_that_hold") else { return };
    let mut offload = Offload::open(5, 64).unwrap();
    let picks4 = Picks::<u32, 1>::new(offload.words()).unwrap();
    let picks6 = Picks::<u128, 4>::new(offload.words()).unwrap();
    let (mut hand4, mut hand6) = (picks4.hand(0), picks6.hand(0));
    picks4.set_doors(&[door(MacAddr(MAC)), 0]);
    offload.follow((picks4, picks6));
    let (base, start) = (1_800_000_000_000_000_000, Instant::now());
    let clock = move || base + start.elapsed().as_nanos() as u64;
    let key4 = |source: u64| Key([(0x0a07_0000 | source) << 32 | 0x0a09_0002]);
    let key6 = |source: u64| Key([0xfd00_0007 << 32, source, 0xfd00_0009 << 32, 2]);
    let drops = |offload: &Offload, frame: &[u8]| {
        let verdict = offload.run_once(frame, DEVICE, 0).unwrap().action;
        assert!([Verdict::DROP, Verdict::PASS].contains(&verdict), "{verdict}");
        verdict == Verdict::DROP
    };

    // Six flows of four packets; of five places one is for what policies drop.
    let now = clock();
    for source in 1..=6 {
        (0..4).for_each(|_| hand4.refused(now, key4(source), now + 60_000_000_000));
    }
    (0..4).for_each(|_| hand6.refused(now, key6(1), now + 1_000_000_000));
    assert!(!drops(&offload, &frame(1, false)), "nobody has taken it up yet");
    assert!(offload.turn(&clock));
    let dropped: Vec<bool> = (1..=7).map(|source| drops(&offload, &frame(source, false))).collect();
    assert_eq!(dropped, [true, true, true, true, false, false, false]);
    assert!(drops(&offload, &frame(1, true)) && !drops(&offload, &frame(2, true)));
    let tally = offload.tally();
    assert_eq!((tally.rules, tally.refused, tally.dropped), (5, 2, 5), "{tally:?}");
    let notes = offload.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("2 more rules"), "{notes:?}");
    assert_eq!(tally.bytes, 4 * frame(1, false).len() as u64 + frame(1, true).len() as u64);

    for source in 7..=8 {
        (0..4).for_each(|_| hand4.dropped(now, key4(source)));
    }
    assert!(offload.turn(&clock) && drops(&offload, &frame(7, false)) && !drops(&offload, &frame(8, false)));
    assert_eq!((offload.tally().rules, offload.tally().refused), (6, 3));

    // Whatever tags it has; not to another MAC address, not by a port that is no door, not in part.
    let plain = frame(1, false);
    let mut tagged = plain.clone();
    for _ in 0..4 {
        tagged = [&tagged[..12], &[0x81, 0, 0, 7], &tagged[12..]].concat();
        assert!(drops(&offload, &tagged));
    }
    assert!(!drops(&offload, &[&tagged[..12], &[0x88, 0xa8, 0, 7], &tagged[12..]].concat()), "a fifth tag");
    let mut other = plain.clone();
    other[5] ^= 1;
    assert!(!drops(&offload, &other));
    assert_eq!(offload.run_once(&plain, DEVICE, 1).unwrap().action, Verdict::PASS);
    (14..34).for_each(|length| assert!(!drops(&offload, &plain[..length]), "{length} bytes"));

    // Lifted, it is dead at once; its neighbors live.
    hand4.lift(&key4(1));
    assert!(!drops(&offload, &plain) && drops(&offload, &frame(2, false)));
    wait_until("its time is over", LIMIT, || !drops(&offload, &frame(1, true)));
    assert!(clock() >= now + 900_000_000);
    hand6.lift_all();
    assert!((1..=4).all(|source| !drops(&offload, &frame(source, false))));
    // What was told of before that comes too late, and then there is room again.
    let later = clock() + 200_000_000;
    (0..4).for_each(|_| hand4.refused(later, key4(6), later + 60_000_000_000));
    assert!(!offload.turn(&clock) && !drops(&offload, &frame(6, false)));
    wait_until("dead rules are gone", LIMIT, || {
        offload.turn(&clock);
        offload.tally().rules == 0
    });
    hand4.begin();
    let later = clock() + 400_000_000;
    (0..4).for_each(|_| hand4.refused(later, key4(6), later + 60_000_000_000));
    assert!(offload.turn(&clock) && drops(&offload, &frame(6, false)));
}
