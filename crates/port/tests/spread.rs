//! One device, several queues: every flow on one queue, in order, and every packet in the books.

#![allow(clippy::unwrap_used)]

mod common;

use common::{assert_all_home, pool};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidemill_burst::{Burst, DropReason, Memory, Packet, Pool};
use tidemill_port::{
    ChannelPort, Fault, Faults, NullPort, Port, PortCounters, PortError, RxStatus, SpreadBy, Spreading,
    Supply, address_hash, flow_hash, pair, spread,
};

const UDP: u8 = 17;

/// An Ethernet frame around a network packet.
fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ethertype.to_be_bytes()[..], packet].concat()
}

/// IPv4 with this fragment field (offset and flags).
fn ipv4(src: u32, dst: u32, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet.extend(src.to_be_bytes().into_iter().chain(dst.to_be_bytes()).chain(payload.iter().copied()));
    ethernet(0x0800, &packet)
}

fn ipv6(src: u128, dst: u128, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend(src.to_be_bytes().into_iter().chain(dst.to_be_bytes()).chain(payload.iter().copied()));
    ethernet(0x86dd, &packet)
}

fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    [&src.to_be_bytes(), &dst.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

/// Packet `number` of flow `flow`.
fn numbered(flow: u16, number: u32) -> Vec<u8> {
    let payload = [&flow.to_be_bytes()[..], &number.to_be_bytes()].concat();
    ipv4(0x0a00_0001 + u32::from(flow), 0x0a01_0001, UDP, 0, &udp(1000 + flow, 53, &payload))
}

fn read(packet: &Packet) -> (u16, u32) {
    let data = &packet.data()[42..];
    (u16::from_be_bytes([data[0], data[1]]), u32::from_be_bytes(data[2..6].try_into().unwrap()))
}

fn options(ring: usize) -> Spreading {
    Spreading { ring, seed: 1, patience: Duration::from_millis(1), ..Spreading::default() }
}

/// Four queues of one end of a channel, and the other end.
fn four(ring: usize) -> (Vec<Box<dyn Port>>, ChannelPort) {
    let (device, far) = pair("device", "far", 4096);
    (spread(Box::new(device), 4, options(ring)), far)
}

fn sum(queues: &[Box<dyn Port>]) -> PortCounters {
    let mut sum = PortCounters::default();
    queues.iter().for_each(|queue| sum.add(&queue.counters()));
    sum
}

#[test]
fn one_queue_is_the_port_itself() {
    for queues in [0, 1] {
        let (device, _far) = pair("device", "far", 1);
        let mut spread = spread(Box::new(device), queues, options(1));
        assert_eq!((spread.len(), spread[0].name()), (1, "device"));
        let mut pool = pool(1);
        let mut burst = Burst::new();
        burst.push(pool.packet(&[1]).unwrap()).unwrap();
        spread[0].tx(0, &mut pool, &mut burst).unwrap();
        assert!(burst.is_empty());
    }
}

#[test]
fn every_flow_stays_on_its_queue_and_in_order_both_ways() {
    const FLOWS: u16 = 64;
    const EACH: u32 = 500;
    let total = u64::from(FLOWS) * u64::from(EACH);
    let memory = Memory::new(5 * 4096, 2048).unwrap();
    let (queues, mut far) = four(1024);
    let seen = AtomicU64::new(0);
    let answered = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = |mut queue: Box<dyn Port>| {
            let mut pool = memory.pool(4096).unwrap();
            let (seen, done) = (&seen, &done);
            scope.spawn(move || {
                let (mut burst, mut flows) = (Burst::new(), HashMap::new());
                let mut idle = 0;
                // Answers what it gets, until nothing more can come.
                while idle < 3 {
                    let ended = done.load(Ordering::Acquire);
                    let before = burst.len();
                    queue.rx(0, &mut pool, &mut burst).unwrap();
                    for packet in &burst[before..] {
                        let (flow, number) = read(packet);
                        let next = flows.entry(flow).or_insert(0);
                        assert_eq!(
                            (number, packet.hash),
                            (*next, flow_hash(packet.data(), 1)),
                            "flow {flow}"
                        );
                        *next += 1;
                    }
                    seen.fetch_add((burst.len() - before) as u64, Ordering::Relaxed);
                    queue.tx(0, &mut pool, &mut burst).unwrap();
                    idle = if ended && burst.is_empty() { idle + 1 } else { 0 };
                    std::thread::yield_now();
                }
                (queue, pool, flows)
            })
        };
        let workers: Vec<_> = queues.into_iter().map(worker).collect();
        let mut pool = memory.pool(4096).unwrap();
        let (mut burst, mut back, mut sent) = (Burst::new(), vec![0; usize::from(FLOWS)], 0);
        while answered.load(Ordering::Relaxed) < total {
            // Never so many on the way that a ring could overflow.
            while sent < total && sent - answered.load(Ordering::Relaxed) < 1000 && burst.room() > 0 {
                let (flow, number) = ((sent % u64::from(FLOWS)) as u16, (sent / u64::from(FLOWS)) as u32);
                burst.push(pool.packet(&numbered(flow, number)).unwrap()).unwrap();
                sent += 1;
            }
            far.tx(0, &mut pool, &mut burst).unwrap();
            let mut answers = Burst::new();
            far.rx(0, &mut pool, &mut answers).unwrap();
            for packet in answers.drain() {
                let (flow, number) = read(&packet);
                assert_eq!(number, back[usize::from(flow)], "answers of flow {flow}");
                back[usize::from(flow)] += 1;
                answered.fetch_add(1, Ordering::Relaxed);
                pool.free(packet);
            }
            std::thread::yield_now();
        }
        done.store(true, Ordering::Release);
        let mut ended: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert_eq!(seen.load(Ordering::Relaxed), total);
        let flows: Vec<_> = ended.iter().map(|(_, _, flows)| flows.len()).collect();
        assert_eq!(flows.iter().sum::<usize>(), usize::from(FLOWS), "each flow on one queue: {flows:?}");
        assert!(flows.iter().all(|flows| *flows > 4), "{flows:?}");
        let mut counters = PortCounters::default();
        for (queue, pool, flows) in ended.iter_mut().rev() {
            queue.finish(0, pool).unwrap();
            let mine = flows.len() as u64 * u64::from(EACH);
            assert_eq!((queue.counters().rx.packets, queue.counters().tx.packets), (mine, mine));
            counters.add(&queue.counters());
        }
        assert_eq!((counters.rx.packets, counters.tx.packets), (total, total));
        assert_eq!((counters.rx.bytes, counters.rx.dropped.total()), (total * 48, 0));
        for (_, pool, _) in &ended {
            assert_all_home(pool);
        }
        assert_all_home(&pool);
    });
}

#[test]
fn what_two_addresses_send_goes_to_one_queue_where_that_is_asked_for() {
    let (device, mut far) = pair("device", "far", 256);
    let by = Spreading { by: SpreadBy::Addresses, ..options(256) };
    let (mut queues, mut pool) = (spread(Box::new(device), 4, by), pool(256));
    let (mut homes, mut burst) = (HashMap::<Vec<u8>, HashSet<usize>>::new(), Burst::new());
    for port in 0..16 {
        for host in 0..64 {
            let frame = ipv4(0x0a00_0001 + host, 0x0a01_0001, UDP, 0, &udp(port, 53, &[]));
            burst.push(pool.packet(&frame).unwrap()).unwrap();
        }
        far.tx(0, &mut pool, &mut burst).unwrap();
        for (number, queue) in queues.iter_mut().enumerate() {
            queue.rx(0, &mut pool, &mut burst).unwrap();
            for packet in burst.drain() {
                assert_eq!(packet.hash, flow_hash(packet.data(), 1), "it is still the flow's");
                homes.entry(packet.data()[26..30].to_vec()).or_default().insert(number);
                pool.free(packet);
            }
        }
    }
    assert!(homes.len() == 64 && homes.values().all(|queues| queues.len() == 1), "{homes:?}");
    assert_eq!(homes.values().flatten().collect::<HashSet<_>>().len(), 4, "{homes:?}");
    for queue in queues.iter_mut().rev() {
        queue.finish(0, &mut pool).unwrap();
    }
    assert_all_home(&pool);
}

#[test]
fn a_queue_that_falls_behind_loses_its_own_packets_by_name() {
    let (mut queues, mut far) = four(10);
    let mut pools: Vec<_> = (0..4).map(|_| pool(400)).collect();
    let (mut burst, mut own) = (Burst::new(), 0);
    for number in 0..40 {
        for flow in 0..32 {
            burst.push(pools[3].packet(&numbered(flow, number)).unwrap()).unwrap();
        }
        far.tx(0, &mut pools[3], &mut burst).unwrap();
        assert_eq!(queues[0].rx(0, &mut pools[0], &mut burst).unwrap(), RxStatus::Received);
        own += burst.len() as u64;
        pools[0].free_all(&mut burst);
    }
    let leader = queues[0].counters();
    assert_eq!(leader.delivered(), own);
    assert_eq!(leader.rx.dropped.get(DropReason::SpreadFull), 40 * 32 - own - 30);
    assert_eq!(leader.rx.packets, 40 * 32 - 30, "what others will count is not ours");
    // The oldest were kept, in order.
    for queue in 1..4 {
        assert_eq!(queues[queue].rx(0, &mut pools[queue], &mut burst).unwrap(), RxStatus::Received);
        let numbers: Vec<_> = burst.iter().map(|packet| read(packet).1).collect();
        assert!(burst.len() == 10 && numbers.is_sorted());
        let counters = queues[queue].counters();
        assert_eq!((counters.rx.packets, counters.delivered()), (10, 10));
        // A transmit ring that is full leaves packets where they are.
        (0..5).for_each(|n| burst.push(pools[queue].packet(&numbered(0, n)).unwrap()).unwrap());
        queues[queue].tx(0, &mut pools[queue], &mut burst).unwrap();
        assert_eq!((burst.len(), queues[queue].counters().taken()), (5, 10));
        pools[queue].free_all(&mut burst);
    }
    assert_eq!(sum(&queues).rx.packets, 40 * 32);
    queues[0].tx(0, &mut pools[0], &mut burst).unwrap();
    assert_eq!((sum(&queues).tx.packets, queues[0].counters().taken()), (30, 0));
    for (queue, pool) in queues.iter_mut().zip(&mut pools).rev() {
        queue.finish(0, pool).unwrap();
    }
    far.rx(0, &mut pools[3], &mut burst).unwrap();
    assert_eq!(burst.len(), 30);
    pools[3].free_all(&mut burst);
    pools.iter().for_each(assert_all_home);
}

/// All orders of `n` things.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let Some(last) = n.checked_sub(1) else { return vec![vec![]] };
    let with = |order: Vec<usize>| {
        (0..n).map(move |at| [&order[..at], &[last], &order[at..]].concat()).collect::<Vec<_>>()
    };
    orders(last).into_iter().flat_map(with).collect()
}

#[test]
fn queues_finish_in_any_order_and_nothing_is_lost_unnamed() {
    for order in orders(4) {
        let (mut queues, mut far) = four(256);
        let mut pools: Vec<_> = (0..4).map(|_| pool(600)).collect();
        let mut burst = Burst::new();
        (0..200).for_each(|n| burst.push(pools[3].packet(&numbered(n, 0)).unwrap()).unwrap());
        far.tx(0, &mut pools[3], &mut burst).unwrap();
        queues[0].rx(0, &mut pools[0], &mut burst).unwrap();
        let mut handed = [burst.len() as u64, 0, 0, 0];
        pools[0].free_all(&mut burst);
        // Every queue has something to receive and something on its way out; some send after others have finished.
        let mut taken = [0; 4];
        let mut put = |queues: &mut [Box<dyn Port>], pools: &mut [Pool], queue: usize| {
            (0..7).for_each(|n| burst.push(pools[queue].packet(&numbered(0, n)).unwrap()).unwrap());
            queues[queue].tx(0, &mut pools[queue], &mut burst).unwrap();
            taken[queue] += 7 - burst.len() as u64;
            pools[queue].free_all(&mut burst);
        };
        (1..4).for_each(|queue| put(&mut queues, &mut pools, queue));
        for &queue in &order {
            put(&mut queues, &mut pools, queue);
            queues[queue].finish(0, &mut pools[queue]).unwrap();
            let leader_open = order.iter().position(|q| *q == 0) > order.iter().position(|q| *q == queue);
            if leader_open {
                // For those that have finished it drops by name.
                let mut more = Burst::new();
                (0..50).for_each(|n| more.push(pools[3].packet(&numbered(n, 1)).unwrap()).unwrap());
                far.tx(0, &mut pools[3], &mut more).unwrap();
                queues[0].rx(0, &mut pools[0], &mut more).unwrap();
                handed[0] += more.len() as u64;
                pools[0].free_all(&mut more);
            }
        }
        let total = sum(&queues);
        for queue in 0..4 {
            let counters = queues[queue].counters();
            assert_eq!((counters.delivered(), counters.taken()), (handed[queue], taken[queue]), "{order:?}");
        }
        assert_eq!(total.rx.packets, handed[0] + total.rx.dropped.get(DropReason::PortClosed));
        let mut burst = Burst::new();
        far.rx(0, &mut pools[3], &mut burst).unwrap();
        assert_eq!((burst.len() as u64, total.tx.made, total.tx.held), (total.tx.packets, 0, 0), "{order:?}");
        // Only those who send after queue 0 has finished fail.
        let late = order.iter().rev().take_while(|queue| **queue != 0).count() as u64;
        assert_eq!(total.tx.dropped.get(DropReason::TxFailed), 7 * late, "{order:?}");
        assert_eq!(total.tx.dropped.total(), 7 * late);
        pools[3].free_all(&mut burst);
        drop(queues);
        pools.iter().for_each(assert_all_home);
    }
}

#[test]
fn the_end_of_the_device_reaches_all_queues_and_the_first_goes_last() {
    let (mut queues, mut far) = four(256);
    let mut pools: Vec<_> = (0..4).map(|_| pool(300)).collect();
    let mut burst = Burst::new();
    (0..100).for_each(|n| burst.push(pools[3].packet(&numbered(n, 0)).unwrap()).unwrap());
    far.tx(0, &mut pools[3], &mut burst).unwrap();
    far.finish(0, &mut pools[3]).unwrap();
    let idle = RxStatus::Idle { next_due_ns: None };
    assert_eq!(queues[0].rx(0, &mut pools[0], &mut burst).unwrap(), RxStatus::Received);
    assert_eq!(queues[0].rx(0, &mut pools[0], &mut burst).unwrap(), idle, "others may still send");
    for queue in 1..4 {
        assert_eq!(queues[queue].rx(0, &mut pools[queue], &mut burst).unwrap(), RxStatus::Received);
        assert_eq!(queues[queue].rx(0, &mut pools[queue], &mut burst).unwrap(), RxStatus::Ended);
        let mut part = Burst::new();
        burst.drain_front(10).for_each(|p| part.push(p).unwrap());
        queues[queue].tx(0, &mut pools[queue], &mut part).unwrap();
        queues[queue].finish(0, &mut pools[queue]).unwrap();
    }
    queues[0].tx(0, &mut pools[0], &mut Burst::new()).unwrap();
    assert_eq!(
        queues[0].rx(0, &mut pools[0], &mut burst).unwrap(),
        RxStatus::Received,
        "it has sent for others"
    );
    queues[0].tx(0, &mut pools[0], &mut Burst::new()).unwrap();
    assert_eq!(queues[0].rx(0, &mut pools[0], &mut burst).unwrap(), RxStatus::Ended);
    assert_eq!((sum(&queues).tx.packets, sum(&queues).rx.dropped.total()), (30, 0));
}

/// Fails when it is told to.
struct Broken(ChannelPort, bool, bool);

impl Broken {
    fn error(action: &'static str) -> PortError {
        PortError::Device { port: "device".into(), action, source: std::io::Error::other("unplugged") }
    }
}

impl Port for Broken {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn rx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.0.rx(now, pool, burst)?;
        if self.1 { Err(Self::error("cannot receive")) } else { Ok(RxStatus::Received) }
    }
    fn tx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        if self.2 { Err(Self::error("cannot send")) } else { self.0.tx(now, pool, burst) }
    }
    fn finish(&mut self, now: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.0.finish(now, pool)
    }
    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
}

#[test]
fn a_device_that_fails_ends_all_queues() {
    let (device, mut far) = pair("device", "far", 512);
    let mut queues = spread(Box::new(Broken(device, true, true)), 3, options(64));
    let mut pools: Vec<_> = (0..3).map(|_| pool(100)).collect();
    let mut burst = Burst::new();
    (0..30).for_each(|n| burst.push(pools[2].packet(&numbered(n, 0)).unwrap()).unwrap());
    far.tx(0, &mut pools[2], &mut burst).unwrap();
    let error = queues[0].rx(0, &mut pools[0], &mut burst).unwrap_err();
    assert_eq!(error.to_string(), "port `device`: cannot receive: unplugged");
    for queue in 1..3 {
        assert_eq!(queues[queue].rx(0, &mut pools[queue], &mut burst).unwrap(), RxStatus::Received);
        assert_eq!(queues[queue].rx(0, &mut pools[queue], &mut burst).unwrap(), RxStatus::Ended);
    }
    assert_eq!(burst.len(), 30, "what came before is good");
    queues[1].tx(0, &mut pools[1], &mut burst).unwrap();
    assert!(queues[0].tx(0, &mut pools[0], &mut Burst::new()).is_err());
    (0..5).for_each(|n| burst.push(pools[2].packet(&numbered(n, 0)).unwrap()).unwrap());
    queues[2].tx(0, &mut pools[2], &mut burst).unwrap();
    assert_eq!(queues[2].counters().tx.dropped.get(DropReason::TxFailed), 5);
    for queue in [1, 2, 0] {
        // This device never takes anything, so the queue names what waited.
        let finished = queues[queue].finish(0, &mut pools[queue]);
        assert_eq!(finished.is_err(), queue == 0);
    }
    let total = sum(&queues);
    assert_eq!((total.taken(), total.tx.dropped.get(DropReason::TxFailed), total.tx.held), (35, 35, 0));
    assert_eq!(queues[0].counters().taken(), 0);
    drop((queues, far));
    pools.iter().for_each(assert_all_home);
}

#[test]
fn fragments_of_a_packet_and_what_is_not_ip_stay_together() {
    let body = udp(5, 6, &[9; 40]);
    let (src, dst) = (0x0a00_0001, 0x0a00_0002);
    let first = flow_hash(&ipv4(src, dst, UDP, 0x2000, &body), 7);
    let middle = flow_hash(&ipv4(src, dst, UDP, 0x2006, &[1; 48]), 7);
    let last = flow_hash(&ipv4(src, dst, UDP, 0x000c, &[2; 5]), 7);
    assert!(first != 0 && first == middle && first == last);
    assert_ne!(first, flow_hash(&ipv4(src, dst, UDP, 0, &body), 7));
    // Only the first fragment tells what is behind destination options.
    let fragment = |offset: u16| [&[60, 0][..], &offset.to_be_bytes(), &[0, 0, 0, 9]].concat();
    let options = [&[UDP, 0, 1, 4, 0, 0, 0, 0][..], &body].concat();
    let first = flow_hash(&ipv6(1 << 100, 2, 44, &[&fragment(1)[..], &options].concat()), 7);
    let last = flow_hash(&ipv6(1 << 100, 2, 44, &[&fragment(56)[..], &[3; 9]].concat()), 7);
    assert!(first != 0 && first == last);
    let arp = ethernet(0x0806, &[0; 28]);
    let lying = ethernet(0x0800, &[0x35; 40]);
    for frame in [arp, lying, ethernet(0x0800, &[]), ethernet(0x88cc, &[1; 50]), vec![], vec![1; 13]] {
        assert_eq!((flow_hash(&frame, 7), address_hash(&frame, 7)), (0, 0), "{frame:x?}");
    }
}

#[test]
fn tags_options_and_extension_headers_do_not_part_a_flow() {
    let body = udp(5, 6, &[9; 40]);
    let (src, dst) = (1 << 100, 2);
    let plain = ipv6(src, dst, UDP, &body);
    let hash = flow_hash(&plain, 7);
    // Hop-by-hop and destination options, a routing header that has been followed, a fragment that is the whole packet (RFC 6946).
    let header = |kind: u8, next: u8| (kind, vec![next, 0, 1, 4, 0, 0, 0, 0]);
    let chains = [
        vec![header(0, UDP)],
        vec![header(60, UDP)],
        vec![header(0, 60), header(60, UDP)],
        vec![(43, vec![UDP, 0, 253, 0, 0, 0, 0, 0])],
        vec![(44, vec![UDP, 0, 0, 0, 0, 0, 0, 9])],
    ];
    for chain in chains {
        let first = chain[0].0;
        let headers = chain.into_iter().flat_map(|(_, header)| header).chain(body.iter().copied());
        let frame = ipv6(src, dst, first, &headers.collect::<Vec<u8>>());
        assert_eq!(flow_hash(&frame, 7), hash, "{first}");
    }
    let mut optional = ipv4(1, 2, UDP, 0, &[&[1; 4][..], &body].concat());
    optional[14] = 0x46;
    let four = ipv4(1, 2, UDP, 0, &body);
    assert_eq!(flow_hash(&optional, 7), flow_hash(&four, 7));
    for frame in [plain, four] {
        let mut tagged = frame.clone();
        // A customer's tag, and in front of it a provider's.
        for tag in [[0x81, 0x00, 0x00, 0x05], [0x88, 0xA8, 0x60, 0x07]] {
            tagged.splice(12..12, tag);
            assert_eq!(flow_hash(&tagged, 7), flow_hash(&frame, 7));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_hash_sees_the_flow_and_nothing_else(
        v6 in any::<bool>(),
        (a, b) in any::<(u128, u128)>(),
        (p, q) in any::<(u16, u16)>(),
        seed in any::<u64>(),
        ttl in any::<u8>(),
        payload in prop::collection::vec(any::<u8>(), 0..60),
        tag in any::<u16>(),
    ) {
        let frame = |a: u128, b: u128, p, q, payload: &[u8]| match v6 {
            true => ipv6(a, b, UDP, &udp(p, q, payload)),
            false => ipv4(a as u32, b as u32, UDP, 0, &udp(p, q, payload)),
        };
        let there = frame(a, b, p, q, &[]);
        let hash = flow_hash(&there, seed);
        prop_assert_ne!(hash, 0);
        prop_assert_eq!(hash, flow_hash(&frame(b, a, q, p, &payload), seed));
        let mut other = frame(a, b, p, q, &payload);
        other[..12].fill(ttl);
        other[if v6 { 21 } else { 22 }] = ttl;
        prop_assert_eq!(hash, flow_hash(&other, seed));
        other.splice(12..12, [&[0x81, 0x00][..], &tag.to_be_bytes()].concat());
        prop_assert_eq!(hash, flow_hash(&other, seed), "a tag does not part a flow");
        // (One in 2^32 would be right to be equal: none of these is.)
        prop_assert_ne!(hash, flow_hash(&frame(a, b, p ^ 1, q, &[]), seed));
        prop_assert_ne!(hash, flow_hash(&frame(a ^ 1, b, p, q, &[]), seed));
        prop_assert_ne!(hash, flow_hash(&there, seed ^ 1));
    }

    #[test]
    fn the_hash_of_addresses_sees_them_and_nothing_else(
        v6 in any::<bool>(),
        (a, b) in any::<(u128, u128)>(),
        (p, q) in any::<(u16, u16)>(),
        seed in any::<u64>(),
        protocol in any::<u8>(),
        fragment in any::<u16>(),
        payload in prop::collection::vec(any::<u8>(), 0..60),
        tag in any::<u16>(),
    ) {
        let frame = |a: u128, b: u128, protocol, fragment, payload: &[u8]| match v6 {
            true => ipv6(a, b, protocol, payload),
            false => ipv4(a as u32, b as u32, protocol, fragment, payload),
        };
        let hash = address_hash(&frame(a, b, UDP, 0, &udp(p, q, &[])), seed);
        prop_assert_ne!(hash, 0);
        // Whatever is behind the header: for IPv6 also what pretends to be an extension header.
        let mut other = frame(a, b, protocol, fragment, &payload);
        prop_assert_eq!(hash, address_hash(&other, seed));
        prop_assert_eq!(hash, address_hash(&frame(b, a, protocol, fragment, &payload), seed));
        other.splice(12..12, [&[0x81, 0x00][..], &tag.to_be_bytes()].concat());
        prop_assert_eq!(hash, address_hash(&other, seed), "a tag does not part a flow");
        // What has no ports is the same by flows.
        prop_assert_eq!(hash, flow_hash(&frame(a, b, 47, 0, &payload), seed));
        prop_assert_ne!(hash, address_hash(&frame(a ^ 1, b, UDP, 0, &[]), seed));
        prop_assert_ne!(hash, address_hash(&frame(a, b, UDP, 0, &[]), seed ^ 1));
    }

    /// Whatever the device does to packets, and whoever is called when: every queue's books balance all the time.
    #[test]
    fn the_books_balance_at_every_step(
        calls in prop::collection::vec((0..3usize, any::<bool>(), 1..40usize), 0..150),
        order in Just((0..3).collect::<Vec<usize>>()).prop_shuffle(),
        ring in 1..80usize,
        slow in 1..60usize,
        (loss, duplicate, delay) in (0.0..0.5f64, 0.0..1.0f64, 0.0..0.7f64),
        seed in any::<u64>(),
    ) {
        let frames: Vec<_> = (0..40).map(|flow| numbered(flow, 0)).collect();
        let faults = Faults { loss, corrupt: 0.0, reorder: 0.0, duplicate, delay, delay_us: 100 };
        let null = NullPort::new("null", Supply::Frames(frames.into()), 0, Some(2000));
        let device = Fault::new(Slow(null, slow), faults, faults, seed).unwrap();
        let options = Spreading { ring, seed, patience: Duration::ZERO, ..Spreading::default() };
        let mut queues = spread(Box::new(device), 3, options);
        let memory = Memory::new(1200, 2048).unwrap();
        let mut pools: Vec<_> = (0..3).map(|_| memory.pool(400).unwrap()).collect();
        let (mut bursts, mut handed, mut taken) = ([(); 3].map(|()| Burst::new()), [0; 3], [0; 3]);
        for (step, (queue, rx, packets)) in calls.into_iter().enumerate() {
            let (port, pool, burst) = (&mut queues[queue], &mut pools[queue], &mut bursts[queue]);
            let before = burst.len() as u64;
            if rx {
                port.rx(step as u64 * 20_000, pool, burst).unwrap();
                handed[queue] += burst.len() as u64 - before;
            } else {
                let mut part = Burst::new();
                burst.drain_front(packets).for_each(|p| part.push(p).unwrap());
                let offered = part.len() as u64;
                port.tx(step as u64 * 20_000, pool, &mut part).unwrap();
                taken[queue] += offered - part.len() as u64;
                burst.drain().for_each(|p| part.push(p).unwrap());
                *burst = part;
            }
            for q in 0..3 {
                let counters = queues[q].counters();
                prop_assert_eq!((counters.delivered(), counters.taken()), (handed[q], taken[q]), "queue {}", q);
            }
        }
        for queue in order {
            pools[queue].free_all(&mut bursts[queue]);
            queues[queue].finish(1 << 40, &mut pools[queue]).unwrap();
        }
        for q in 0..3 {
            let counters = queues[q].counters();
            prop_assert_eq!((counters.delivered(), counters.taken()), (handed[q], taken[q]), "queue {}", q);
        }
        let total = sum(&queues);
        prop_assert_eq!((total.rx.held, total.tx.held), (0, 0));
        prop_assert_eq!(total.rx.packets + total.rx.made, handed.iter().sum::<u64>() + total.rx.dropped.total());
        drop(queues);
        for pool in &pools {
            prop_assert_eq!((pool.stats().free, pool.stats().unnamed), (400, 0));
        }
    }
}

/// A port that takes at most so many packets per call.
struct Slow(NullPort, usize);

impl Port for Slow {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn rx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        self.0.rx(now, pool, burst)
    }
    fn tx(&mut self, now: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let mut part = Burst::new();
        burst.drain_front(self.1).for_each(|p| part.push(p).unwrap());
        self.0.tx(now, pool, &mut part)
    }
    fn finish(&mut self, now: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.0.finish(now, pool)
    }
    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
}

#[test]
fn a_full_device_serves_the_queues_in_turn() {
    let null = NullPort::new("null", Supply::Nothing, 0, None);
    let mut queues = spread(Box::new(Slow(null, 50)), 3, options(1024));
    let mut pools: Vec<_> = (0..3).map(|_| pool(3000)).collect();
    let mut bursts = [(); 3].map(|()| Burst::new());
    let mut taken = [0; 3];
    for _ in 0..600 {
        for queue in [1, 2, 0] {
            while bursts[queue].room() > 0 {
                bursts[queue].push(pools[queue].packet(&[1; 60]).unwrap()).unwrap();
            }
            queues[queue].tx(0, &mut pools[queue], &mut bursts[queue]).unwrap();
            taken[queue] = queues[queue].counters().tx.packets;
        }
    }
    assert_eq!(sum(&queues).tx.packets, taken.iter().sum::<u64>());
    // 50 per call, shared; the rings' contents count as sent by those who filled them.
    assert!(taken.iter().all(|taken| (7_000..14_000).contains(taken)), "{taken:?}");
    for queue in [1, 2, 0] {
        pools[queue].free_all(&mut bursts[queue]);
        queues[queue].finish(0, &mut pools[queue]).unwrap();
    }
    pools.iter().for_each(assert_all_home);
}

#[test]
fn simple_patterns_of_flows_spread_evenly() {
    type Flow<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    let patterns: [(&str, Flow<'_>); 4] = [
        ("source port", &|n| ipv4(1, 2, UDP, 0, &udp(n as u16, 53, &[]))),
        ("destination", &|n| ipv4(1, 0x0a00_0000 + n, UDP, 0, &udp(1, 1, &[]))),
        // What a symmetric Toeplitz hash makes one and the same of.
        ("pairs of hosts", &|n| ipv4(0x0a00_0000 + n, 0x0a01_0000 + n, UDP, 0, &udp(9, 9, &[]))),
        ("IPv6 networks", &|n| {
            ipv6(0x2001 << 112, 0x2002 << 112 | u128::from(n) << 64, UDP, &udp(1, 1, &[]))
        }),
    ];
    let hashes: [fn(&[u8], u64) -> u32; 2] = [flow_hash, address_hash];
    for (what, flow) in patterns {
        // Addresses alone do not tell one port from another.
        for hash in &hashes[..if what == "source port" { 1 } else { 2 }] {
            for count in [2, 3, 4, 8] {
                let mut counts = vec![0; count];
                for n in 0..4096 {
                    counts[((u64::from(hash(&flow(n), 0)) * count as u64) >> 32) as usize] += 1;
                }
                let share = 4096 / count;
                let good = |n: &usize| n.abs_diff(share) < 5 * share.isqrt();
                assert!(counts.iter().all(good), "{what}: {counts:?}");
            }
        }
    }
}
