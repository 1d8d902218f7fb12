//! Queues of one device, each on a thread of its own, that finish when they like: nothing goes without a name, and every frame comes home.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ScopedJoinHandle, yield_now};
use std::time::Duration;
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_port::{Port, PortCounters, RxStatus, Spreading, pair, spread};

const QUEUES: usize = 4;
const ROUNDS: u32 = 200;
/// Frames of each pool, and packets that the cable holds.
const FRAMES: usize = 512;

/// A UDP packet, of one flow for each source port.
fn frame(port: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 9, 9, 9]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 53, 0, 8, 0, 0]);
    frame
}

/// Answers what comes, sends something of its own, and finishes. Returns how many packets it was handed, and how many were taken from it.
fn work(queue: &mut dyn Port, pool: &mut Pool, turns: u32) -> (u64, u64) {
    let (mut handed, mut taken, mut burst) = (0, 0, Burst::new());
    for turn in 0..turns {
        queue.rx(0, pool, &mut burst).unwrap();
        handed += burst.len() as u64;
        if burst.room() > 0
            && let Some(packet) = pool.packet(&frame(turn as u16))
        {
            burst.push(packet).unwrap();
        }
        let offered = burst.len() as u64;
        queue.tx(0, pool, &mut burst).unwrap();
        taken += offered - burst.len() as u64;
        pool.free_all(&mut burst);
        yield_now();
    }
    queue.finish(0, pool).unwrap();
    (handed, taken)
}

#[test]
fn queues_that_finish_when_they_like_lose_nothing_unnamed() {
    let memory = Memory::new((QUEUES + 1) * FRAMES, 2048).unwrap();
    let mut pools: Vec<_> = (0..QUEUES).map(|_| memory.pool(FRAMES).unwrap()).collect();
    let mut outside = memory.pool(FRAMES).unwrap();
    let (mut burst, mut flow, mut left) = (Burst::new(), 0_u16, 0);
    for round in 0..ROUNDS {
        let (device, mut far) = pair("device", "far", FRAMES);
        // Every other time the first queue waits for nobody.
        let patience = Duration::from_micros(u64::from(round % 2) * 200);
        let options = Spreading { ring: 1 + round as usize % 40, patience, ..Spreading::default() };
        let mut queues = spread(Box::new(device), QUEUES, options);
        let here = AtomicUsize::new(0);
        let books: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (queue, (port, pool)) in queues.iter_mut().zip(&mut pools).enumerate() {
                let (here, turns) = (&here, 1 + (round.wrapping_mul(0x9E37_79B1) >> (8 * queue)) % 60);
                workers.push(scope.spawn(move || {
                    here.fetch_add(1, Ordering::Relaxed);
                    while here.load(Ordering::Relaxed) < QUEUES {
                        yield_now();
                    }
                    work(port.as_mut(), pool, turns)
                }));
            }
            while !workers.iter().all(ScopedJoinHandle::is_finished) {
                while burst.room() > 0
                    && let Some(packet) = outside.packet(&frame(flow))
                {
                    flow = flow.wrapping_add(1);
                    burst.push(packet).unwrap();
                }
                far.tx(0, &mut outside, &mut burst).unwrap();
                outside.free_all(&mut burst);
                far.rx(0, &mut outside, &mut burst).unwrap();
                outside.free_all(&mut burst);
                yield_now();
            }
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        while far.rx(0, &mut outside, &mut burst).unwrap() == RxStatus::Received {
            outside.free_all(&mut burst);
        }
        let mut total = PortCounters::default();
        for (queue, book) in queues.iter().zip(books) {
            let counters = queue.counters();
            assert_eq!((counters.delivered(), counters.taken()), book, "round {round}");
            total.add(&counters);
        }
        assert_eq!((total.rx.held, total.rx.made, total.tx.held), (0, 0, 0), "round {round}");
        // What the first queue dropped of others', beyond what it sent itself, counts as made.
        assert_eq!(total.tx.packets - total.tx.made, far.counters().rx.packets, "round {round}");
        drop(queues);
        assert_eq!(outside.stats().unnamed, left, "round {round}: something was left in a ring");
        // What nobody asked the device for any more goes with the cable.
        left += far.counters().tx.packets - total.rx.packets;
        drop(far);
        assert_eq!((outside.stats().free, outside.stats().unnamed), (FRAMES, left), "round {round}");
        for pool in &pools {
            assert_eq!((pool.stats().free, pool.stats().unnamed), (FRAMES, 0), "round {round}");
        }
    }
}
