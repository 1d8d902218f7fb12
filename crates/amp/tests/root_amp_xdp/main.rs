//! The mitigator's XDP program on virtual cables: what it drops, what it passes, how it counts, and who has it. Needs root; every test
//! runs in namespaces of its own.

#![cfg(all(feature = "xdp", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod both;
#[path = "../../../port/tests/common/frames.rs"]
mod frames;
mod lift;
#[path = "../../../port/tests/common/net.rs"]
mod net;
mod oracle;
mod packets;
mod upgrade;

use frames::{numbered, receive, send};
use net::{cable, inside, run};
use packets::{Wrapping, answer, plain, tuple};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_amp::Tuple;
use tidemill_amp::offload::xdp::{XdpOffload, XdpOptions};
use tidemill_amp::offload::{Hits, Offload, OffloadSettings, RuleEvent};
use tidemill_bpf::{Mode, coarse_now_ns};
use tidemill_burst::{Memory, Pool};
use tidemill_port::{OpenContext, Opened, Ownership, Port, PortSpec};

const MINUTE_NS: u64 = 60_000_000_000;

fn settings() -> OffloadSettings {
    OffloadSettings { tuple: 4, protocols: vec![53, 123], dry_run: false, entries: 1000 }
}

fn filtered(key: Tuple, expires_ns: u64) -> RuleEvent {
    RuleEvent::Filtered { key, expires_ns }
}

/// A port on an interface, and its memory's frames.
struct End {
    port: Box<dyn Port>,
    pool: Pool,
}

impl End {
    fn new(interface: &str, keys: &str, xdp: Option<&XdpOffload>) -> Self {
        let mut spec: PortSpec = toml::from_str(&format!("name = \"{interface}\"\n{keys}")).unwrap();
        let is_behind = xdp.is_some_and(|xdp| spec.set_front(xdp.front().clone()));
        assert_eq!(is_behind, xdp.is_some() && keys.contains("af_xdp"));
        let memory = [Memory::new(8192, 2048).unwrap()];
        let context = OpenContext { base: ".".as_ref(), table: None, memory: &memory };
        let Opened { mut queues, rule, .. } = spec.open_beside_kernel(1, &context).unwrap();
        rule.iter().for_each(|rule| rule.set(&Ownership::default()).unwrap());
        let mut end = End { port: queues.remove(0), pool: Arc::clone(&memory[0]).pool(8192).unwrap() };
        assert!(end.receive(0).is_empty(), "the fill ring is filled");
        end
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        frames.chunks(200).for_each(|frames| send(&mut *self.port, &mut self.pool, frames));
    }

    fn receive(&mut self, wanted: usize) -> Vec<Vec<u8>> {
        receive(&mut *self.port, &mut self.pool, wanted)
    }
}

const KINDS: [&str; 2] = ["kind = \"af_packet\"\npromiscuous = true", "kind = \"af_xdp\"\nrx_ring = 2048"];

/// Frames through the cable: those that arrive.
fn through(left: &mut End, right: &mut End, frames: &[Vec<u8>], wanted: usize) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    for frames in frames.chunks(200) {
        left.send(frames);
        seen.extend(right.receive(0));
    }
    if seen.len() < wanted {
        seen.extend(right.receive(wanted - seen.len()));
    }
    seen
}

/// Whether somebody else can work on the maps now.
fn is_free(front: &Arc<tidemill_bpf::Front>) -> bool {
    let (tell, told) = std::sync::mpsc::channel();
    let front = front.clone();
    std::thread::spawn(move || front.with(|_| tell.send(())));
    told.recv_timeout(Duration::from_secs(10)).is_ok()
}

/// What is like an answer of a filtered flow, and is none.
fn others(rule: &Tuple) -> Vec<Vec<u8>> {
    let with = |change: fn(&mut Tuple)| {
        let mut other = *rule;
        change(&mut other);
        plain(&other)
    };
    let mut cut = plain(rule);
    cut.truncate(40);
    let mut tcp = plain(rule);
    tcp[23] = 6;
    let mut short = plain(rule);
    short[17] = 27;
    vec![
        with(|tuple| tuple.destination_port += 1),
        with(|tuple| tuple.source_port = 123),
        with(|tuple| tuple.source_port = 5353),
        plain(&tuple("198.51.100.9", 53, "192.0.2.1", 4000)),
        cut,
        tcp,
        short,
        numbered(1, 60),
        answer(rule, &Wrapping { tags: vec![0x8100; 5], payload: 20, ..Wrapping::default() }),
    ]
}

#[test]
fn root_amp_xdp_drops_what_is_filtered_and_passes_the_rest() {
    if !inside("root_amp_xdp_drops_what_is_filtered_and_passes_the_rest") {
        return;
    }
    for (kind, mode) in [(0, Mode::Native), (0, Mode::Generic), (1, Mode::Native), (1, Mode::Generic)] {
        cable("left", "right");
        let mut xdp = XdpOffload::open(&XdpOptions { mode, ..XdpOptions::new("right") }).unwrap();
        let (mut left, mut right) =
            (End::new("left", KINDS[0], None), End::new("right", KINDS[kind], Some(&xdp)));
        xdp.configure(&settings()).unwrap();
        let place = xdp.front().attached().unwrap();
        assert_eq!(place.native, mode == Mode::Native);
        let v4 = tuple("198.51.100.7", 53, "192.0.2.1", 4000);
        let v6 = tuple("2001:db8::7", 123, "2001:db8::1", 4001);
        let mut now = 5_000_000_000;
        // Nothing is filtered: all of it passes.
        let wrapped = |tuple: &Tuple| {
            let of = |wrapping: Wrapping| answer(tuple, &Wrapping { payload: 24, ..wrapping });
            let tags = |tags: &[u16]| Wrapping { tags: tags.to_vec(), ..Wrapping::default() };
            vec![
                plain(tuple),
                of(tags(&[0x8100])),
                of(tags(&[0x88a8, 0x8100])),
                of(Wrapping { options: 3, extensions: vec![0, 60, 43], ..Wrapping::default() }),
                of(Wrapping { fragment: Some((77, 0, true)), ..Wrapping::default() }),
                of(Wrapping { fragment: Some((77, 4, true)), ..Wrapping::default() }),
                of(Wrapping { fragment: Some((77, 8, false)), ..Wrapping::default() }),
            ]
        };
        let bad: Vec<_> = wrapped(&v4).into_iter().chain(wrapped(&v6)).collect();
        assert_eq!(through(&mut left, &mut right, &bad, bad.len()), bad);
        // Filtered: it goes, and the rest comes byte for byte and in order.
        xdp.apply(now, &[filtered(v4, now + MINUTE_NS), filtered(v6, now + MINUTE_NS)], &|_| true);
        let good = others(&v4);
        let mixed: Vec<_> = (0..50).flat_map(|_| bad.iter().chain(&good).cloned()).collect();
        let passed: Vec<_> = (0..50).flat_map(|_| good.iter().cloned()).collect();
        assert!(through(&mut left, &mut right, &mixed, passed.len()) == passed, "{kind} {mode:?}");
        let bytes = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let of = xdp.counters();
        assert_eq!((of.dropped.packets, of.dropped.bytes), (50 * bad.len() as u64, 50 * bytes(&bad)));
        assert_eq!((of.rules, of.refused, of.would_drop), (2, 0, Hits::default()));
        // Later fragments are in the sums, not in a rule's.
        assert_eq!(xdp.hits(&v4), Hits { packets: 50 * 5, bytes: 50 * bytes(&bad[..5]) });
        assert_eq!(xdp.hits(&v6), Hits { packets: 50 * 5, bytes: 50 * bytes(&bad[7..12]) });
        let mut collected = Vec::new();
        // Whoever reads holds nobody up: the maps are free between two pages.
        let (account, front) = (xdp.account(), xdp.front());
        account.collect(&mut |tuple, hits| {
            assert!(is_free(front), "the maps are locked while a page is read out");
            collected.push((tuple, hits.packets));
        });
        collected.sort_unstable();
        assert_eq!(collected, [(v4, 250), (v6, 250)]);
        // A dry run counts and passes; rules' hits are user space's then.
        xdp.configure(&OffloadSettings { dry_run: true, ..settings() }).unwrap();
        assert_eq!(through(&mut left, &mut right, &bad[..4], 4), &bad[..4]);
        assert_eq!((xdp.counters().would_drop.packets, xdp.counters().dropped), (4, of.dropped));
        assert_eq!(xdp.hits(&v4).packets, 250);
        xdp.configure(&settings()).unwrap();
        // Another end: what the rule has kept away stays with it. Then it ends, by itself. If this thread was kept from its work until then: once more.
        for turn in 0.. {
            let begun = Instant::now();
            xdp.apply(now, &[filtered(v4, now + 400_000_000)], &|_| true);
            assert!(turn > 0 || xdp.hits(&v4).packets == 250, "{:?}", xdp.hits(&v4));
            let came = through(&mut left, &mut right, &bad[..2], 0);
            if came.is_empty() {
                break;
            }
            assert!(turn < 10 && begun.elapsed() > Duration::from_millis(300), "{came:x?}");
        }
        std::thread::sleep(Duration::from_millis(450));
        assert_eq!(through(&mut left, &mut right, &bad[..2], 2), &bad[..2]);
        now += 2_000_000_000;
        assert!(xdp.poll(now));
        assert_eq!((xdp.counters().rules, xdp.hits(&v4)), (1, Hits::default()), "swept");
        // Lifted, allow-listed: by user space's word.
        assert!(through(&mut left, &mut right, &bad[7..9], 0).is_empty());
        xdp.apply(now, &[RuleEvent::Removed { key: v6 }, RuleEvent::Removed { key: v4 }], &|_| true);
        assert_eq!(through(&mut left, &mut right, &bad[7..9], 2), &bad[7..9]);
        assert_eq!(xdp.counters().rules, 0);
        // What is not a protocol any more is not looked at.
        xdp.apply(now, &[filtered(v4, now + MINUTE_NS)], &|_| true);
        xdp.configure(&OffloadSettings { protocols: vec![123], ..settings() }).unwrap();
        assert_eq!(through(&mut left, &mut right, &bad[..2], 2), &bad[..2]);
        println!("{kind} {mode:?}: {:?}", xdp.take_notes());
        drop((right, xdp));
        // Nothing is left on the interface.
        XdpOffload::open(&XdpOptions::new("right")).and_then(|mut xdp| xdp.configure(&settings())).unwrap();
        run("ip link del left");
    }
}

#[test]
fn root_amp_xdp_a_full_map_refuses_and_keeps() {
    if !inside("root_amp_xdp_a_full_map_refuses_and_keeps") {
        return;
    }
    let mut xdp = XdpOffload::open(&XdpOptions { entries: 100, ..XdpOptions::new("nowhere") }).unwrap();
    assert!(xdp.configure(&OffloadSettings { entries: 500, ..settings() }).is_err());
    assert!(xdp.take_notes().iter().any(|note| note.contains("room for 100 rules of 500")));
    let rule = |n: u16| tuple("198.51.100.7", 53, "192.0.2.1", n);
    let now = 7_000_000_000;
    let make =
        |from: u16, to: u16, ns: u64| (from..to).map(|n| filtered(rule(n), now + ns)).collect::<Vec<_>>();
    xdp.apply(now, &make(0, 60, MINUTE_NS), &|_| true);
    xdp.apply(now, &make(60, 150, MINUTE_NS), &|_| true);
    let drops = |xdp: &XdpOffload, n: u16| {
        xdp.front().with(|object| object.run(&plain(&rule(n)), 1).unwrap().action == 1)
    };
    let dropped = |xdp: &XdpOffload| (0..300).filter(|n| drops(xdp, *n)).count();
    assert_eq!((xdp.counters().rules, xdp.counters().refused, dropped(&xdp)), (100, 50, 100));
    assert!((0..60).all(|n| drops(&xdp, n)), "no live rule leaves");
    // Ended ones make room, even before they are swept.
    let short: Vec<_> = (0..40).map(|n| filtered(rule(n), now + 1)).collect();
    xdp.apply(now, &short, &|_| true);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(dropped(&xdp), 60);
    xdp.apply(now, &make(200, 240, MINUTE_NS), &|_| true);
    assert_eq!((xdp.counters().rules, xdp.counters().refused, dropped(&xdp)), (100, 50, 100));
    // In one call: those that go make room for those that come; the last word about a tuple counts.
    let mut events: Vec<_> = (200..240).map(|n| RuleEvent::Removed { key: rule(n) }).collect();
    events.extend(make(250, 290, MINUTE_NS));
    events.push(RuleEvent::Removed { key: rule(250) });
    xdp.apply(now, &events, &|_| true);
    assert_eq!((xdp.counters().rules, dropped(&xdp)), (99, 99));
    // All anew: some stay, with their hits; some go; some come; of two ends the later one counts.
    let before = xdp.hits(&rule(50)).packets;
    assert!(before > 0);
    let ends = [(50, 1), (50, MINUTE_NS), (51, MINUTE_NS), (299, MINUTE_NS)];
    xdp.replace(now, &mut ends.into_iter().map(|(n, ns)| (rule(n), now + ns)), &|_| true);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(xdp.hits(&rule(50)).packets, before);
    assert_eq!((xdp.counters().rules, dropped(&xdp)), (3, 3));
    assert!(drops(&xdp, 50) && drops(&xdp, 51) && drops(&xdp, 299));
    assert!(coarse_now_ns() > 0 && xdp.take_notes().is_empty());
}

#[test]
fn root_amp_xdp_interfaces_that_go_are_found_again() {
    if !inside("root_amp_xdp_interfaces_that_go_are_found_again") {
        return;
    }
    let rule = tuple("198.51.100.7", 53, "192.0.2.1", 4000);
    for kind in KINDS {
        cable("left", "right");
        let mut xdp = XdpOffload::open(&XdpOptions::new("right")).unwrap();
        let mut right = End::new("right", kind, Some(&xdp));
        xdp.configure(&settings()).unwrap();
        let mut now = 9_000_000_000;
        xdp.apply(now, &[filtered(rule, now + MINUTE_NS)], &|_| true);
        for _ in 0..2 {
            let mut left = End::new("left", KINDS[0], None);
            let good = numbered(3, 60);
            assert_eq!(
                through(&mut left, &mut right, &[plain(&rule), good.clone(), plain(&rule)], 1),
                [good]
            );
            run("ip link del left");
            now += 1_000_000_000;
            xdp.poll(now);
            let notes = xdp.take_notes();
            assert!(
                notes.iter().any(|note| note.contains("user space does all of the work meanwhile")),
                "{notes:?}"
            );
            assert!(right.receive(0).is_empty());
            cable("left", "right");
            now += 1_000_000_000;
            xdp.poll(now);
            let notes = xdp.take_notes();
            assert!(notes.iter().any(|note| note.contains("on right, native")), "{notes:?}");
            // The port looks for it as well, ten times a second.
            for _ in 0..5 {
                assert!(right.receive(0).is_empty());
            }
        }
        assert_eq!(xdp.counters().dropped.packets, 4);
        drop((right, xdp));
        run("ip link del left");
    }
}

#[test]
fn root_amp_xdp_of_an_interface_with_jumbo_frames_is_behind_the_driver() {
    if !inside("root_amp_xdp_of_an_interface_with_jumbo_frames_is_behind_the_driver") {
        return;
    }
    let rule = tuple("198.51.100.7", 53, "192.0.2.1", 4000);
    cable("left", "right");
    ["left", "right"].iter().for_each(|end| run(&format!("ip link set {end} mtu 9000")));
    let mut xdp = XdpOffload::open(&XdpOptions::new("right")).unwrap();
    xdp.configure(&settings()).unwrap();
    assert!(!xdp.front().attached().unwrap().native);
    let notes = xdp.take_notes();
    let said = |note: &String| note.contains("on right, generic") && note.contains("MTU of 9000");
    assert!(notes.iter().any(said), "{notes:?}");
    // It works, there too.
    let (mut left, mut right) = (End::new("left", KINDS[0], None), End::new("right", KINDS[0], None));
    let good = numbered(3, 60);
    xdp.apply(5, &[filtered(rule, 5 + MINUTE_NS)], &|_| true);
    assert_eq!(through(&mut left, &mut right, &[plain(&rule), good.clone(), plain(&rule)], 1), [good]);
    assert_eq!(xdp.counters().dropped.packets, 2);
    // Where it must be in the driver, it is refused.
    let native = XdpOptions { mode: Mode::Native, ..XdpOptions::new("left") };
    assert!(XdpOffload::open(&native).unwrap().configure(&settings()).is_err());
}
