//! Devices that are back: what keeps a port from one is said, and one that has the number of another before is another.

use super::net::cable_at;
use super::*;
use tidemill_bpf::{Front, Kernel, Object, Source};

/// The mitigator's program, which has no rules here: everything goes on to what stands behind it.
static FRONT: Source = Source {
    object: tidemill_bpf::include_bytes_aligned!("../../../../bpf/amp.bpf.o"),
    program: "tidemill_amp",
    minimum: Kernel(5, 11),
    layout: 1,
    shared: &[],
};

/// Looks at a port until something is so.
fn until(port: &mut XdpPort, pool: &mut Pool, what: &str, is_so: impl Fn(&XdpPort) -> bool) {
    let started = Instant::now();
    while !is_so(port) {
        ready(port, pool);
        assert!(started.elapsed() < PATIENCE, "{what}: {:?}", port.counters());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn root_xdp_interfaces_with_the_number_of_one_before_are_others() {
    if !inside("devices::root_xdp_interfaces_with_the_number_of_one_before_are_others") {
        return;
    }
    for is_behind in [false, true] {
        cable("left", "right");
        let memory = memory();
        let mut pool = memory.pool(FRAMES).unwrap();
        let object = is_behind.then(|| Object::load(&FRONT, &[], None).unwrap());
        let front = object.map(|object| Arc::new(Front::new(object, tidemill_bpf::Mode::Auto, None)));
        let (mut left, rule) = ruled("left", &memory, &Options { front, ..small(Mode::Auto) });
        rule.set(&Ownership::default()).unwrap();
        let mut right = port("right", &memory, Mode::Native);
        let index = tidemill_port::device("left").unwrap().index;
        for round in 1..=2 {
            run("ip link del left");
            if round == 1 {
                until(&mut left, &mut pool, "it is missed", |port| port.counters().away() == 1);
            }
            // The second time it is there again before anybody looks.
            cable_at(index, "left", "right");
            let started = Instant::now();
            while [&left, &right].iter().any(|port| port.counters().found < round) {
                ready(&mut left, &mut pool);
                ready(&mut right, &mut pool);
                let counters = [left.counters(), right.counters()];
                assert!(started.elapsed() < PATIENCE, "not found again: {counters:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
            let frames: Vec<_> = (0..300).map(|i| numbered(i, 200)).collect();
            for way in 0..2 {
                let (from, to) = if way == 0 { (&mut left, &mut right) } else { (&mut right, &mut left) };
                ready(to, &mut pool);
                send(from, &mut pool, &frames);
                assert_eq!(receive(to, &mut pool, 300), frames, "behind: {is_behind}, {round}, {way}");
            }
        }
        for counters in [left.counters(), right.counters()] {
            assert_eq!((counters.lost, counters.found), (2, 2));
        }
        finish(&mut [&mut left, &mut right], &mut pool);
        run("ip link del left");
    }
}

#[test]
fn root_xdp_what_keeps_a_port_from_a_device_that_is_back_is_said() {
    if !inside("devices::root_xdp_what_keeps_a_port_from_a_device_that_is_back_is_said") {
        return;
    }
    let memory = memory();
    let mut pool = memory.pool(FRAMES).unwrap();
    // Behind a program of its own choice a port meets no other one's program, but it does meet another one's socket.
    let front = Front::new(Object::load(&FRONT, &[], None).unwrap(), tidemill_bpf::Mode::Auto, None);
    let behind = Options { front: Some(Arc::new(front)), ..small(Mode::Auto) };
    cable("left", "right");
    let (mut left, rule) = ruled("left", &memory, &behind);
    rule.set(&Ownership::default()).unwrap();
    ready(&mut left, &mut pool);
    assert_eq!(rule.left().hindered, None);
    let says = |what: &'static str| {
        let rule = rule.clone();
        move |port: &XdpPort| {
            port.counters().away() == 1 && rule.left().hindered.is_some_and(|why| why.contains(what))
        }
    };
    let is_back = |port: &XdpPort| port.counters().away() == 0 && rule.left().hindered.is_none();
    let is_gone = |port: &XdpPort| port.counters().away() == 1 && rule.left().hindered.is_none();
    run("ip link del left");
    until(&mut left, &mut pool, "it is missed", is_gone);
    // Packets of its MTU do not fit in frames, until it is made smaller.
    cable("left", "right");
    run("ip link set left mtu 3000");
    until(&mut left, &mut pool, "its MTU is told", says("the MTU of left is 3000"));
    run("ip link set left mtu 1500");
    until(&mut left, &mut pool, "it is back", is_back);
    run("ip link del left");
    until(&mut left, &mut pool, "it is missed again", is_gone);
    // More queues than are read.
    run(
        "ip link add name left numrxqueues 2 numtxqueues 2 type veth peer name right numrxqueues 2 numtxqueues 2",
    );
    run("ip link set left up");
    until(&mut left, &mut pool, "its queues are told", says("left has 2 queues and 1 would be read"));
    run("ip link del left");
    until(&mut left, &mut pool, "that one is gone too", is_gone);
    // Somebody else was faster.
    cable("left", "right");
    let (mut faster, _rule) = ruled("left", &memory, &behind);
    let taken = "queue 0 is taken by another AF_XDP socket (these have some open: root_xdp";
    until(&mut left, &mut pool, "the other one is told", says(taken));
    assert!(left.counters().taken_by_others > 0);
    // A port that is opened waits for it, counts that, and says so. On a busy machine it may only begin when that one is gone: then again.
    let mut turns = 0;
    let (next, tries) = loop {
        let going = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(400));
            drop(faster);
        });
        let mut next = open("left", "left", 1, &behind, std::slice::from_ref(&memory)).unwrap();
        going.join().unwrap();
        let tries = next.queues[0].counters().taken_by_others;
        turns += 1;
        if tries > 0 || turns == 5 {
            break (next, tries);
        }
        faster = next.queues.remove(0);
    };
    let told = format!(
        "queue 0 of left was taken by another AF_XDP socket at first: it was let go after {tries} tries"
    );
    assert!(tries > 0 && next.notes.iter().any(|note| note.contains(&told)), "{tries}: {:?}", next.notes);
    drop(next);
    until(&mut left, &mut pool, "it is back after all", is_back);
    assert_eq!((left.counters().lost, left.counters().found), (2, 2));
    let mut right = port("right", &memory, Mode::Native);
    ready(&mut left, &mut pool);
    send(&mut right, &mut pool, &[numbered(1, 60)]);
    assert_eq!(receive(&mut left, &mut pool, 1), [numbered(1, 60)]);
    finish(&mut [&mut left, &mut right], &mut pool);
}
