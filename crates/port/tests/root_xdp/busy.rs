//! Busy polling where a device's interrupts are put off: a frame comes by our call, or waits for the kernel's timer.

use super::*;
use tidemill_port::{Wake, Waker};

/// How long the kernel leaves the device alone.
const PUT_OFF: Duration = Duration::from_millis(200);

/// How long a frame takes from one port to the other.
fn crossing(from: &mut XdpPort, to: &mut XdpPort, pool: &mut Pool, serial: u32) -> Duration {
    let (frame, mut burst) = (numbered(serial, 60), Burst::new());
    ready(to, pool);
    burst.push(pool.packet(&frame).unwrap()).unwrap();
    let started = Instant::now();
    from.tx(now_ns(), pool, &mut burst).unwrap();
    assert!(burst.is_empty());
    while to.rx(now_ns(), pool, &mut burst).unwrap() != RxStatus::Received {
        assert!(started.elapsed() < PATIENCE, "{:?}", to.counters().rx);
    }
    let took = started.elapsed();
    assert_eq!(burst.iter().map(|packet| packet.data().to_vec()).collect::<Vec<_>>(), [frame]);
    pool.free_all(&mut burst);
    // Has the frame back that was sent.
    from.tx(now_ns(), pool, &mut burst).unwrap();
    took
}

#[test]
fn root_xdp_busy_polling_runs_the_driver_or_says_that_it_cannot() {
    if !inside("busy::root_xdp_busy_polling_runs_the_driver_or_says_that_it_cannot") {
        return;
    }
    // What was mounted there shows the interfaces of another namespace.
    run("mount -t sysfs sysfs /sys");
    for busy_poll_us in [0, 50] {
        cable("left", "right");
        let memory = memory();
        let mut pool = memory.pool(FRAMES).unwrap();
        let mut left = port("left", &memory, Mode::Native);
        let options = Options { busy_poll_us, ..small(Mode::Native) };
        let mut open = open("right", "right", 1, &options, std::slice::from_ref(&memory)).unwrap();
        open.rule.set(&Ownership::default()).unwrap();
        // The kernel has been told, whatever it can make of it here.
        let told = open.notes.iter().any(|note| note.contains(", busy polling for 50 us"));
        assert_eq!(told, busy_poll_us == 50, "{:?}", open.notes);
        let cannot = open.notes.iter().any(|note| note.contains("busy_poll_us changes nothing"));
        assert!(busy_poll_us > 0 || !cannot, "{:?}", open.notes);
        let mut right = open.queues.remove(0);
        for (name, value) in [("napi_defer_hard_irqs", 2), ("gro_flush_timeout", PUT_OFF.as_nanos())] {
            std::fs::write(format!("/sys/class/net/right/{name}"), value.to_string()).unwrap();
        }
        // The first one interrupts, and puts off the interrupts of those behind it.
        crossing(&mut left, &mut right, &mut pool, 0);
        let mut took: Vec<_> =
            (1..=7).map(|serial| crossing(&mut left, &mut right, &mut pool, serial)).collect();
        took.sort();
        println!("busy_poll_us = {busy_poll_us}, cannot: {cannot}: {took:?}");
        let polls = busy_poll_us > 0 && !cannot;
        assert_eq!(took[3] < PUT_OFF / 2, polls, "{took:?}");
        // Nobody wakes a worker in time then: it has to look.
        assert_eq!(matches!(right.wake(&Waker::new().unwrap()), Wake::Poll), polls);
        finish(&mut [&mut left, &mut right], &mut pool);
        run("ip link del left");
    }
}
