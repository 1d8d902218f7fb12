//! Whatever happens to packets, every frame is in exactly one place.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use tidemill_burst::{Arrived, Burst, DeviceClosed, Lent, Memory, Packet, Pool};

const POOLS: usize = 3;
const FRAMES: usize = 24;

#[derive(Debug, Clone)]
enum Step {
    Take { pool: usize },
    Free { pool: usize, which: usize },
    FreeAll { pool: usize, n: usize },
    Drop { which: usize },
    Duplicate { pool: usize, which: usize },
    Push { which: usize, bytes: usize },
    Cut { which: usize, bytes: usize },
    Lend { which: usize },
    LendFresh { pool: usize, n: usize },
    Adopt { which: usize, start: usize, len: usize },
    FreeFrame { which: usize, pool: usize },
    AdoptNonsense { address: u64, len: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let pool = 0..POOLS;
    let which = 0..1000usize;
    prop_oneof![
        4 => pool.clone().prop_map(|pool| Step::Take { pool }),
        3 => (pool.clone(), which.clone()).prop_map(|(pool, which)| Step::Free { pool, which }),
        1 => (pool.clone(), 0..40usize).prop_map(|(pool, n)| Step::FreeAll { pool, n }),
        1 => which.clone().prop_map(|which| Step::Drop { which }),
        2 => (pool.clone(), which.clone()).prop_map(|(pool, which)| Step::Duplicate { pool, which }),
        2 => (pool.clone(), 0..6usize).prop_map(|(pool, n)| Step::LendFresh { pool, n }),
        2 => (pool, which.clone()).prop_map(|(pool, which)| Step::FreeFrame { which, pool }),
        1 => (which.clone(), 0..300usize).prop_map(|(which, bytes)| Step::Push { which, bytes }),
        1 => (which.clone(), 0..300usize).prop_map(|(which, bytes)| Step::Cut { which, bytes }),
        3 => which.clone().prop_map(|which| Step::Lend { which }),
        3 => (which, 0..2100usize, 0..2100usize).prop_map(|(which, start, len)| Step::Adopt { which, start, len }),
        1 => (any::<u64>(), 0..3000usize).prop_map(|(address, len)| Step::AdoptNonsense { address, len }),
    ]
}

/// A packet with the bytes that it must hold.
type Held = (Packet, Vec<u8>);

fn pick<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    (!from.is_empty()).then(|| from.swap_remove(which % from.len()))
}

struct World {
    pools: Vec<Pool>,
    lent: Lent,
    held: Vec<Held>,
    /// Addresses that the device has.
    out: Vec<u64>,
    /// What each pool has counted as unnamed.
    unnamed: u64,
    serial: u8,
    memory_base: usize,
}

impl World {
    fn new() -> Self {
        let memory = Memory::new(POOLS * FRAMES, 2048).unwrap();
        World {
            pools: (0..POOLS).map(|_| memory.pool(FRAMES).unwrap()).collect(),
            lent: Lent::new(&memory),
            held: Vec::new(),
            out: Vec::new(),
            unnamed: 0,
            serial: 0,
            memory_base: memory.as_ptr() as usize,
        }
    }

    fn hold(&mut self, mut packet: Packet) {
        self.serial = self.serial.wrapping_add(1);
        packet.set_len(60);
        packet.data_mut().fill(self.serial);
        packet.set_timestamp_ns(self.serial.into());
        self.held.push((packet, vec![self.serial; 60]));
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Take { pool } => {
                let free = self.pools[pool].stats().free;
                let packet = self.pools[pool].take();
                assert_eq!(packet.is_some(), free > 0);
                packet.into_iter().for_each(|p| self.hold(p));
            }
            Step::Free { pool, which } => {
                if let Some((packet, _)) = pick(&mut self.held, which) {
                    self.pools[pool].free(packet);
                }
            }
            Step::FreeAll { pool, n } => {
                let mut burst = Burst::new();
                let keep = self.held.len().saturating_sub(n);
                for (packet, _) in self.held.drain(keep..) {
                    burst.push(packet).unwrap();
                }
                self.pools[pool].free_all(&mut burst);
                assert!(burst.is_empty());
            }
            Step::Drop { which } => {
                self.unnamed += u64::from(pick(&mut self.held, which).is_some());
            }
            Step::Duplicate { pool, which } => {
                let Some((packet, bytes)) = pick(&mut self.held, which) else { return };
                if let Some(copy) = packet.duplicate(&mut self.pools[pool]) {
                    assert_eq!(copy.timestamp_ns(), packet.timestamp_ns());
                    self.held.push((copy, bytes.clone()));
                }
                self.held.push((packet, bytes));
            }
            Step::Push { which, bytes } => {
                let Some((mut packet, mut model)) = pick(&mut self.held, which) else { return };
                let (fits, old) = (bytes <= packet.headroom(), packet.timestamp_ns());
                assert_eq!(packet.grow_front(bytes), fits);
                if fits {
                    packet.data_mut()[..bytes].fill(0xEE);
                    model.splice(0..0, std::iter::repeat_n(0xEE, bytes));
                }
                assert_eq!(packet.timestamp_ns(), old, "headroom does not reach the cold bytes");
                self.held.push((packet, model));
            }
            Step::Cut { which, bytes } => {
                let Some((mut packet, mut model)) = pick(&mut self.held, which) else { return };
                assert_eq!(packet.cut_front(bytes), bytes <= model.len());
                if bytes <= model.len() {
                    model.drain(..bytes);
                }
                self.held.push((packet, model));
            }
            Step::Lend { which } => {
                if let Some((packet, _)) = pick(&mut self.held, which) {
                    let at = packet.data_ptr() as usize - self.memory_base;
                    // Alone, or off the front of a burst.
                    let address = if which % 2 == 0 {
                        self.lent.lend(packet).unwrap()
                    } else {
                        self.lend_of_a_burst(packet)
                    };
                    assert_eq!(address as usize, at);
                    self.out.push(address);
                }
            }
            Step::Adopt { which, start, len } => {
                let Some(address) = pick(&mut self.out, which) else { return };
                let moved = address / 2048 * 2048 + start as u64;
                let good = (64..2048).contains(&start) && start + len <= 2048;
                // By its address, or by its frame's number into a burst.
                let adopted = if which % 2 == 0 {
                    self.lent.adopt(moved, len)
                } else {
                    let mut burst = Burst::new();
                    let frame = (moved / 2048) as u32;
                    let arrived = Arrived { frame, start, len, hash: 7, checked: true };
                    let adopted = self.lent.adopt_into(&mut burst, [arrived, arrived].into_iter());
                    assert_eq!(adopted, burst.len(), "one at most: the second is not lent any more");
                    burst.drain().next().inspect(|packet| assert!(packet.hash == 7 && packet.is_checked()))
                };
                match adopted {
                    Some(packet) => {
                        assert!(good);
                        assert_eq!(packet.len(), len);
                        assert!(self.lent.adopt(moved, len).is_none(), "adopted twice");
                        self.hold_if_room(packet);
                    }
                    None => {
                        assert!(!good);
                        self.out.push(address);
                    }
                }
            }
            Step::LendFresh { pool, n } => {
                let free = self.pools[pool].stats().free;
                let out = &mut self.out;
                let put = |frame: u32| out.push(u64::from(frame) * 2048 + 256);
                assert_eq!(self.lent.lend_fresh(&mut self.pools[pool], n, put), n.min(free));
            }
            Step::FreeFrame { which, pool } => {
                let Some(address) = pick(&mut self.out, which) else { return };
                let frame = (address / 2048) as u32;
                // Once, however often it is said.
                let freed = self.lent.free_frames([frame, frame].into_iter(), &mut self.pools[pool]);
                assert_eq!(freed, 1);
            }
            Step::AdoptNonsense { address, len } => {
                let known = self.out.iter().any(|a| a / 2048 == address / 2048);
                if !known {
                    assert!(self.lent.adopt(address, len).is_none());
                }
            }
        }
    }

    fn lend_of_a_burst(&mut self, packet: Packet) -> u64 {
        let (mut burst, mut lent, own_len) = (Burst::new(), Vec::new(), packet.len());
        burst.push(packet).unwrap();
        let mut packets = burst.drain();
        let mut each =
            |frame: u32, start: u16, len| lent.push((u64::from(frame) * 2048 + u64::from(start), len));
        // Nothing that does not fit, nor more than are asked for.
        assert_eq!(self.lent.lend_front(&mut packets, 9, |len| len != own_len, &mut each), 0);
        assert_eq!(self.lent.lend_front(&mut packets, 0, |_| true, &mut each), 0);
        assert_eq!(self.lent.lend_front(&mut packets, 9, |len| len == own_len, &mut each), 1);
        assert!(packets.next().is_none());
        assert_eq!((lent.len(), lent[0].1), (1, own_len));
        lent[0].0
    }

    /// A device may have left less than 60 bytes behind the data.
    fn hold_if_room(&mut self, packet: Packet) {
        if packet.len() + packet.tailroom() >= 60 { self.hold(packet) } else { self.pools[0].free(packet) }
    }

    fn check(&self) {
        let stats: Vec<_> = self.pools.iter().map(Pool::stats).collect();
        let free: usize = stats.iter().map(|s| s.free).sum();
        assert_eq!(free + self.held.len() + self.lent.count(), POOLS * FRAMES);
        assert_eq!(self.lent.count(), self.out.len());
        assert_eq!(stats.iter().map(|s| s.unnamed).sum::<u64>(), self.unnamed);
        assert!(
            self.held.iter().all(|(packet, bytes)| packet.data() == bytes),
            "somebody wrote into a frame"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 400 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_frame_is_in_one_place(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.apply(step);
            world.check();
        }
        // Everything goes home, by whatever way.
        // SAFETY: the device is made up; nobody but us has ever touched the frames.
        let back: Vec<_> = world.lent.reclaim(unsafe { DeviceClosed::assume() }).collect();
        back.into_iter().for_each(|p| world.pools[1].free(p));
        world.held.drain(..).for_each(|(p, _)| world.pools[2].free(p));
        for mut pool in world.pools {
            prop_assert_eq!(pool.stats().free, FRAMES);
            let all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            let distinct: HashSet<_> = all.iter().map(Packet::data_ptr).collect();
            prop_assert_eq!(distinct.len(), FRAMES);
            all.into_iter().for_each(|p| pool.free(p));
        }
    }
}

#[test]
fn frames_return_from_other_threads() {
    let (workers, rounds) = (4, if cfg!(miri) { 20 } else { 3000 });
    let memory = Memory::new(workers * FRAMES, 2048).unwrap();
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| mpsc::sync_channel::<Packet>(8)).unzip();
    let pools: Vec<Pool> = std::thread::scope(|scope| {
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(me, receiver)| {
                let (mut pool, next) = (memory.pool(FRAMES).unwrap(), senders[(me + 1) % workers].clone());
                scope.spawn(move || {
                    for round in 0..rounds {
                        if let Some(mut packet) = pool.take() {
                            packet.set_len(100);
                            packet.data_mut().fill(me as u8);
                            packet.port = me as u16;
                            if let Err(back) = next.try_send(packet) {
                                let (mpsc::TrySendError::Full(packet)
                                | mpsc::TrySendError::Disconnected(packet)) = back;
                                pool.free(packet);
                            }
                        }
                        while let Ok(packet) = receiver.try_recv() {
                            assert!(packet.data().iter().all(|b| u16::from(*b) == packet.port));
                            match round % 3 {
                                0 => drop(packet),
                                _ => pool.free(packet),
                            }
                        }
                    }
                    drop(next);
                    (pool, receiver)
                })
            })
            .collect();
        drop(senders);
        let (mut pools, receivers): (Vec<_>, Vec<_>) = threads.into_iter().map(|t| t.join().unwrap()).unzip();
        receivers.into_iter().for_each(|r| r.into_iter().for_each(|p| pools[0].free(p)));
        pools
    });
    assert!(
        pools.iter().all(|p| p.stats().free == FRAMES),
        "{:?}",
        pools.iter().map(Pool::stats).collect::<Vec<_>>()
    );
}

#[test]
fn a_pool_may_die_while_its_packets_come_home() {
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let memory = Memory::new(16, 2048).unwrap();
        let mut pool = memory.pool(16).unwrap();
        let packets: Vec<_> = std::iter::from_fn(|| pool.packet(&[1; 64])).collect();
        drop(memory);
        let thread = std::thread::spawn(move || packets.into_iter().for_each(drop));
        drop(pool);
        thread.join().unwrap();
    }
}

#[test]
fn a_lent_table_refuses_foreign_frames() {
    let (ours, theirs) = (Memory::new(4, 2048).unwrap(), Memory::new(4, 4096).unwrap());
    let (mut pool, mut other) = (ours.pool(4).unwrap(), theirs.pool(4).unwrap());
    let mut lent = Lent::new(&ours);
    let back = lent.lend(other.take().unwrap()).unwrap_err();
    other.free(back);
    assert_eq!(lent.lend_fresh(&mut other, 4, |_| ()), 0);
    let address = lent.lend(pool.take().unwrap()).unwrap();
    assert_eq!((address, lent.count(), pool.stats().free), (256, 1, 3));
    for (bad, len) in [(address, 2000), (address + 2048, 60), (63, 60), (u64::MAX, 0), (4 * 2048, 0)] {
        assert!(lent.adopt(bad, len).is_none(), "{bad} {len}");
    }
    assert!(lent.returned(address + 1).is_none());
    let same = lent.returned(address).unwrap();
    assert!(lent.returned(address).is_none());
    let address = lent.lend(same).unwrap();
    pool.free(lent.adopt(address + 14, 60).unwrap());
    assert_eq!(lent.free_frames([0, 4].into_iter(), &mut pool), 0);
    assert_eq!((lent.count(), pool.stats().free), (0, 4));
}

#[test]
fn runs_end_where_something_does_not_belong() {
    let (ours, theirs) = (Memory::new(300, 2048).unwrap(), Memory::new(1, 2048).unwrap());
    let (mut pool, mut other) = (ours.pool(300).unwrap(), theirs.pool(1).unwrap());
    let (mut lent, mut burst, mut said) = (Lent::new(&ours), Burst::new(), Vec::new());
    for len in [60, 61, 0, 9, 63, 64] {
        let packet = if len == 0 { other.packet(&[0; 62]) } else { pool.packet(&vec![len as u8; len]) };
        burst.push(packet.unwrap()).unwrap();
    }
    let (mut rest, fits) = (burst.drain(), |len: usize| len >= 14);
    let mut each = |frame: u32, start: u16, len: usize| said.push((frame, start, len));
    assert_eq!(lent.lend_front(&mut rest, 9, fits, &mut each), 2);
    other.free(rest.next().unwrap());
    assert_eq!(lent.lend_front(&mut rest, 9, fits, &mut each), 0);
    pool.free(rest.next().unwrap());
    assert_eq!(lent.lend_front(&mut rest, 1, fits, &mut each), 1);
    assert_eq!(lent.lend_front(&mut rest, 9, fits, &mut each), 1);
    assert!(rest.next().is_none());
    drop(rest);
    assert_eq!(said.iter().map(|(.., len)| *len).collect::<Vec<_>>(), [60, 61, 63, 64]);
    assert_eq!((lent.count(), other.stats().free), (4, 1));
    // Into a burst with two places: what cannot be adopted takes none, and what has none stays lent.
    std::iter::from_fn(|| pool.take()).take(254).for_each(|packet| burst.push(packet).unwrap());
    let arrived = |at: usize, start: usize| {
        let (frame, _, len) = said[at];
        Arrived { frame, start, len, hash: 0, checked: false }
    };
    let nowhere = Arrived { frame: 300, ..arrived(0, 256) };
    let all = [arrived(0, 63), nowhere, arrived(1, 256), arrived(1, 256), arrived(0, 256), arrived(2, 256)];
    assert_eq!(lent.adopt_into(&mut burst, all.into_iter()), 2);
    assert_eq!((burst[254].data(), burst[255].data()), (&[61; 61][..], &[60; 60][..]));
    let frames = said.iter().map(|(frame, ..)| *frame);
    assert_eq!((lent.count(), lent.free_frames(frames, &mut pool), lent.count()), (2, 2, 0));
    pool.free_all(&mut burst);
    assert_eq!((pool.stats().free, pool.stats().unnamed), (300, 0));
}

/// Frames may stay out then, but none has two owners.
#[test]
fn a_panic_in_the_midst_of_lending_gives_no_frame_away_twice() {
    let memory = Memory::new(8, 2048).unwrap();
    let (mut pool, mut lent, mut told) = (memory.pool(8).unwrap(), Lent::new(&memory), 0);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        lent.lend_fresh(&mut pool, 8, |_| {
            told += 1;
            assert!(told < 4, "enough");
        })
    }));
    assert!(panicked.is_err());
    let mut all: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    // SAFETY: the device is made up; nobody but us has ever touched the frames.
    let back: Vec<_> = lent.reclaim(unsafe { DeviceClosed::assume() }).collect();
    assert_eq!(back.len(), 3);
    all.extend(back);
    let distinct: HashSet<_> = all.iter().map(Packet::data_ptr).collect();
    assert_eq!(distinct.len(), all.len());
    all.into_iter().for_each(|packet| pool.free(packet));
}
