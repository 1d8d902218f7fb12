//! Receive-side scaling in software: one queue pair of a device becomes several, one per worker.
//!
//! ```text
//!            queue 0 (worker 0)                      queue 1 (worker 1)
//! device --rx--> hash --own share--> worker 0
//!                     \--ring---------------------->  rx --> worker 1
//! device <-tx-- round robin <--own-- worker 0
//!                           \<--ring---------------  tx <-- worker 1
//! ```
//!
//! Queue 0 alone touches the device. It looks at every packet's flow and keeps its own share; the others' shares go over
//! in bounded lock-free rings, without a copy. A flow always belongs to the same queue, and its packets stay in order,
//! both ways. All fragments of a packet stay together: what has no ports (also in the first fragment) goes by its
//! addresses alone, and so does every packet where that is asked for ([`SpreadBy::Addresses`]). What is not IP belongs to
//! queue 0.
//!
//! Nobody waits. A full ring drops received packets as [`SpreadFull`](DropReason::SpreadFull) and leaves packets to send
//! in the burst. A worker that sleeps is woken when another has put something into its ring.
//!
//! # The books
//! The equations of [`PortCounters`] hold for each queue and for their sum:
//! * A queue counts a packet as received when it takes it from its ring, as sent when it puts it into one. What the
//!   device, or a full ring, drops is on queue 0's account.
//! * Queue 0 shows the device's counters less what the other queues count. If the device has sent less than the others
//!   have handed over, the rest is taken from what it holds; and what it has dropped of theirs, having sent nothing of
//!   worker 0's to take it from, counts as made.
//!
//! # The end
//! Queues finish in any order. When the device ends, queue 0 says so only after all others have finished, so that what
//! they still have to send is sent; if it has to finish first, it waits for them as long as they send, and a moment
//! longer. After that they count what they are to send as [`TxFailed`](DropReason::TxFailed). What is in a ring whose
//! queue has finished is dropped as [`PortClosed`](DropReason::PortClosed).
//!
//! Whoever gives up its end of a ring says so, then empties the ring; whoever puts something into a ring looks
//! afterwards whether the other end is still there, and if not, takes it back. With a fence between the two steps of
//! both, at least one of them sees what the other did, so that nothing is left behind.

use crate::{Direction, Port, PortCounters, PortError, RxStatus, Wake, Waker};
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, DropCounts, DropReason, Packet, Pool};
use tidemill_wire::flow::{Addresses, flow_key};
use tidemill_wire::{EtherType, ipv4, ipv6, vlan};

/// Bursts that queue 0 takes from each ring in one call, at most.
const ROUNDS: usize = 16;

/// By what a device's packets are spread over its queues, whoever does it: the device, the kernel, or we.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpreadBy {
    /// Addresses, protocol and ports, and both directions of a flow to one queue where that can be had.
    #[default]
    Sessions,
    /// The same, for somebody to whom the two directions of a flow are two flows.
    Flows,
    /// The two addresses alone: all that one host sends to another comes to one queue, whatever its ports.
    Addresses,
}

/// How to spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spreading {
    /// Packets that each ring holds. Up to `ring * (queues - 1)` of worker 0's frames can wait in rings.
    pub ring: usize,
    /// Goes into the hash, so that nobody outside can aim at one worker. Ports with the same seed send both directions
    /// of a flow to the same worker.
    pub seed: u64,
    /// What goes into the hash. Of whatever it is, both directions come to one queue.
    pub by: SpreadBy,
    /// How long queue 0, when it has to finish first, waits for others that send nothing.
    pub patience: Duration,
}

impl Default for Spreading {
    fn default() -> Self {
        Spreading { ring: 4 * BURST, seed: 0, by: SpreadBy::Sessions, patience: Duration::from_millis(100) }
    }
}

/// The seed of all devices of this process, so that both directions of a flow go to one worker, and of no other process: who does not know it
/// cannot aim at one worker.
pub(crate) fn secret() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    static SECRET: OnceLock<u64> = OnceLock::new();
    *SECRET.get_or_init(|| RandomState::new().hash_one(0))
}

/// Makes `queues` queues of a port that has one: the first belongs to worker 0, which must poll it. With one queue (or
/// none) the port is returned as it is.
pub fn spread(port: Box<dyn Port>, queues: usize, options: Spreading) -> Vec<Box<dyn Port>> {
    if queues <= 1 {
        return vec![port];
    }
    let ring = || ArrayQueue::new(options.ring.max(1));
    let lane = |_| Lane { rx: ring(), tx: ring(), closed: AtomicBool::new(false), waker: OnceLock::new() };
    let shared = Arc::new(Shared {
        lanes: (1..queues).map(lane).collect(),
        ended: AtomicBool::new(false),
        refuses: AtomicBool::new(false),
        leader: OnceLock::new(),
    });
    let follower = |lane| -> Box<dyn Port> {
        let name = port.name().to_owned();
        Box::new(Follower { name, lane, shared: shared.clone(), counters: PortCounters::default() })
    };
    let followers: Vec<_> = (0..queues - 1).map(follower).collect();
    let leader = Leader {
        device: port,
        shared,
        options,
        incoming: Vec::with_capacity(BURST),
        staging: Burst::new(),
        next: 0,
        quota: BURST,
        pumped: false,
        received: Passed::default(),
        sent: Passed::default(),
        rx_dropped: DropCounts::default(),
        tx_dropped: DropCounts::default(),
    };
    std::iter::once(Box::new(leader) as Box<dyn Port>).chain(followers).collect()
}

/// The hash of a frame's flow, the same in both directions: addresses, protocol and ports; of a packet without ports,
/// and of every fragment, the addresses alone. 0 if it is not IP, and never else.
///
/// Toeplitz with a symmetric key will not do here: it sees nothing but the exclusive or of all 16-bit words of addresses
/// and ports, so that flows between neighbouring pairs of hosts all get one hash.
pub fn flow_hash(frame: &[u8], seed: u64) -> u32 {
    let Some(key) = l3_offset(frame).and_then(|at| flow_key(frame, at)) else { return 0 };
    // Not every fragment of an IPv6 packet tells the protocol behind the headers that were cut.
    let protocol = key.ports.map_or(0, |_| key.protocol.0);
    hash(key.addresses, key.ports.unwrap_or_default(), protocol, seed)
}

/// The hash of the addresses of a frame's IP header, the same in both directions, whatever is behind that header. 0 if it has none, and never else.
pub fn address_hash(frame: &[u8], seed: u64) -> u32 {
    let Some(packet) = l3_offset(frame).and_then(|at| frame.get(at..)) else { return 0 };
    let addresses = if ipv4::check_header(packet).is_ok() {
        Addresses::V4 { src: ipv4::src_u32(packet), dst: ipv4::dst_u32(packet) }
    } else if ipv6::check_header(packet).is_ok() {
        Addresses::V6 { src: ipv6::src_u128(packet), dst: ipv6::dst_u128(packet) }
    } else {
        return 0;
    };
    hash(addresses, (0, 0), 0, seed)
}

/// Where a frame's IP header begins.
fn l3_offset(frame: &[u8]) -> Option<usize> {
    let l2 = vlan::L2::parse(frame).ok()?;
    (l2.ethertype == EtherType::IPV4 || l2.ethertype == EtherType::IPV6).then_some(l2.l3_offset)
}

fn hash(addresses: Addresses, (src_port, dst_port): (u16, u16), protocol: u8, seed: u64) -> u32 {
    let (src, dst) = match addresses {
        Addresses::V4 { src, dst } => (u64::from(src), u64::from(dst)),
        Addresses::V6 { src, dst } => (fold(src, seed), fold(dst, seed)),
    };
    let end = |address: u64, port: u16| mix(address ^ u64::from(port) << 48 ^ seed);
    // The sum does not know which end is which.
    let ends = end(src, src_port).wrapping_add(end(dst, dst_port));
    let hash = mix(ends ^ u64::from(protocol));
    ((hash >> 32) as u32).max(1)
}

fn fold(address: u128, seed: u64) -> u64 {
    mix((address >> 64) as u64 ^ seed) ^ address as u64
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The queue, of `queues`, that packets of this hash belong to.
#[inline]
fn queue_of(hash: u32, queues: usize) -> usize {
    ((u64::from(hash) * queues as u64) >> 32) as usize
}

/// What all queues of a port share.
struct Shared {
    /// One for each queue but the first.
    lanes: Box<[Lane]>,
    /// Nothing will be put into a receive ring any more.
    ended: AtomicBool,
    /// Nothing will be taken from a transmit ring any more, or sent.
    refuses: AtomicBool,
    /// Wakes worker 0.
    leader: OnceLock<Waker>,
}

/// What queue 0 and one other queue share.
struct Lane {
    /// From queue 0.
    rx: ArrayQueue<Packet>,
    /// To queue 0.
    tx: ArrayQueue<Packet>,
    /// The other queue has finished: it takes nothing more, and sends nothing more.
    closed: AtomicBool,
    /// Wakes the other queue's worker.
    waker: OnceLock<Waker>,
}

impl Shared {
    fn all_closed(&self) -> bool {
        self.lanes.iter().all(|lane| lane.closed.load(Ordering::Acquire))
    }
}

/// Packets and bytes that went through rings.
#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    packets: u64,
    bytes: u64,
}

impl Passed {
    #[inline]
    fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Takes these out of a direction's packets; returns how many packets more these are than it has.
    fn leave(&self, direction: &mut Direction) -> u64 {
        let there = direction.packets.min(self.packets);
        direction.packets -= there;
        direction.bytes = direction.bytes.saturating_sub(self.bytes);
        self.packets - there
    }
}

/// Queue 0: the one that has the device. As any queue in cache lines of its own: others' lie beside it.
#[repr(align(128))]
struct Leader {
    device: Box<dyn Port>,
    shared: Arc<Shared>,
    options: Spreading,
    /// Room to sort a burst in.
    incoming: Vec<Packet>,
    /// Taken from another queue's ring, and not yet by the device.
    staging: Burst,
    /// Whose turn it is to send.
    next: usize,
    /// Packets that queue 0 may still send in this turn of its own; the others' turns are one `staging` each.
    quota: usize,
    /// Whether the last call sent for another queue.
    pumped: bool,
    /// Put into receive rings.
    received: Passed,
    /// Taken from transmit rings.
    sent: Passed,
    rx_dropped: DropCounts,
    tx_dropped: DropCounts,
}

impl Leader {
    /// Keeps what is ours of a burst, of which the first `before` packets are old, and hands over the rest.
    fn share_out(&mut self, pool: &mut Pool, burst: &mut Burst, before: usize) {
        let lanes = &self.shared.lanes;
        let mut passed = false;
        self.incoming.extend(burst.drain());
        for (i, mut packet) in self.incoming.drain(..).enumerate() {
            let queue = if i < before {
                0
            } else {
                // The flow's, whatever the queue is chosen by.
                packet.hash = flow_hash(packet.data(), self.options.seed);
                let hash = match self.options.by {
                    SpreadBy::Sessions | SpreadBy::Flows => packet.hash,
                    SpreadBy::Addresses => address_hash(packet.data(), self.options.seed),
                };
                queue_of(hash, lanes.len() + 1)
            };
            let Some(lane) = queue.checked_sub(1).map(|lane| &lanes[lane]) else {
                // It was in this burst before.
                burst.push(packet).unwrap_or_else(|packet| pool.free(packet));
                continue;
            };
            let (bytes, closed) = (packet.len(), lane.closed.load(Ordering::Relaxed));
            let refused = if closed { Err(packet) } else { lane.rx.push(packet) };
            match refused {
                Ok(()) => {
                    passed = true;
                    self.received.add(bytes);
                }
                Err(packet) => {
                    let reason = if closed { DropReason::PortClosed } else { DropReason::SpreadFull };
                    self.rx_dropped.count(reason);
                    pool.free(packet);
                }
            }
        }
        if passed {
            fence(Ordering::SeqCst);
            for lane in lanes.iter().filter(|lane| lane.closed.load(Ordering::Relaxed)) {
                while let Some(packet) = lane.rx.pop() {
                    self.received.packets -= 1;
                    self.received.bytes -= packet.len() as u64;
                    self.rx_dropped.count(DropReason::PortClosed);
                    pool.free(packet);
                }
            }
            // A worker that sleeps has nothing in its ring, so it is enough to look there.
            for lane in lanes.iter().filter(|lane| !lane.rx.is_empty()) {
                lane.waker.get().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Sends for all queues, in turn, until nothing waits or the device is full.
    fn send(&mut self, now_ns: u64, pool: &mut Pool, own: &mut Burst) -> Result<(), PortError> {
        if !self.send_staged(now_ns, pool)? {
            return Ok(());
        }
        let mut offered = false;
        for _ in 0..ROUNDS {
            let mut moved = false;
            for _ in 0..=self.shared.lanes.len() {
                let from = self.next;
                self.next = if from == self.shared.lanes.len() { 0 } else { from + 1 };
                let room = match from.checked_sub(1) {
                    Some(lane) => {
                        moved |= self.stage(lane, pool);
                        self.send_staged(now_ns, pool)?
                    }
                    None => std::mem::replace(&mut offered, true) || self.send_own(now_ns, pool, own)?,
                };
                if !room {
                    return Ok(());
                }
            }
            if !moved {
                break;
            }
        }
        Ok(())
    }

    /// Takes a burst from a transmit ring; whether there was anything.
    fn stage(&mut self, lane: usize, pool: &mut Pool) -> bool {
        while self.staging.room() > 0
            && let Some(packet) = self.shared.lanes[lane].tx.pop()
        {
            self.sent.add(packet.len());
            self.staging.push(packet).unwrap_or_else(|packet| pool.free(packet));
        }
        self.pumped |= !self.staging.is_empty();
        !self.staging.is_empty()
    }

    /// Whether the device has taken all that was staged.
    fn send_staged(&mut self, now_ns: u64, pool: &mut Pool) -> Result<bool, PortError> {
        if !self.staging.is_empty() {
            self.device.tx(now_ns, pool, &mut self.staging)?;
        }
        Ok(self.staging.is_empty())
    }

    /// Whether the device has taken all of our own.
    fn send_own(&mut self, now_ns: u64, pool: &mut Pool, own: &mut Burst) -> Result<bool, PortError> {
        let before = own.len();
        // Also when there is nothing: the device may hold packets that are due.
        self.device.tx(now_ns, pool, own)?;
        self.quota = self.quota.saturating_sub(before - own.len());
        if own.is_empty() || self.quota == 0 {
            self.quota = BURST;
        } else {
            // Cut short: our turn goes on next time, as a staged burst's does.
            self.next = 0;
        }
        Ok(own.is_empty())
    }

    /// Sends what the other queues have still to send, for as long as they seem to work.
    fn wait_for_others(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        let (mut quiet, mut none) = (Instant::now(), Burst::new());
        while !self.shared.all_closed() && quiet.elapsed() < self.options.patience {
            self.tx(now_ns, pool, &mut none)?;
            if self.pumped {
                quiet = Instant::now();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    /// Sends what waits in rings now; a full device gets a few chances.
    fn send_rest(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        let waits = |leader: &Self| {
            !leader.staging.is_empty() || leader.shared.lanes.iter().any(|lane| !lane.tx.is_empty())
        };
        let mut none = Burst::new();
        for _ in 0..1000 {
            if !waits(self) {
                break;
            }
            self.send(now_ns, pool, &mut none)?;
        }
        Ok(())
    }
}

impl Port for Leader {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let mut status = Ok(RxStatus::Ended);
        if !self.shared.ended.load(Ordering::Relaxed) {
            let before = burst.len();
            status = self.device.rx(now_ns, pool, burst);
            if burst.len() > before {
                self.share_out(pool, burst, before);
            }
            if matches!(status, Ok(RxStatus::Ended) | Err(_)) {
                self.shared.ended.store(true, Ordering::Release);
            }
        }
        Ok(match status? {
            // Worker 0 stays awake while others send.
            RxStatus::Idle { .. } | RxStatus::Ended if self.pumped => RxStatus::Received,
            RxStatus::Ended if !self.shared.all_closed() => RxStatus::Idle { next_due_ns: None },
            status => status,
        })
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.pumped = false;
        let sent = self.send(now_ns, pool, burst);
        if sent.is_err() {
            self.shared.refuses.store(true, Ordering::Release);
        }
        sent
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.shared.ended.store(true, Ordering::Release);
        let waited = self.wait_for_others(now_ns, pool);
        self.shared.refuses.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let sent = waited.and_then(|()| self.send_rest(now_ns, pool));
        let reason = if sent.is_err() { DropReason::TxFailed } else { DropReason::TxFull };
        for lane in &self.shared.lanes {
            while let Some(packet) = lane.tx.pop() {
                self.sent.add(packet.len());
                self.tx_dropped.count(reason);
                pool.free(packet);
            }
        }
        for packet in self.staging.drain() {
            self.tx_dropped.count(reason);
            pool.free(packet);
        }
        let finished = self.device.finish(now_ns, pool);
        sent.and(finished)
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.device.counters();
        counters.rx.dropped.add(&self.rx_dropped);
        // Only a device that makes packets has handed over more than it has received.
        let more = self.received.leave(&mut counters.rx);
        counters.rx.made = counters.rx.made.saturating_sub(more);
        counters.tx.dropped.add(&self.tx_dropped);
        counters.tx.held += self.staging.len() as u64;
        let more = self.sent.leave(&mut counters.tx);
        let held = more.min(counters.tx.held);
        counters.tx.held -= held;
        counters.tx.made += more - held;
        counters
    }

    fn wake(&mut self, waker: &Waker) -> Wake<'_> {
        self.shared.leader.get_or_init(|| waker.clone());
        self.device.wake(waker)
    }

    fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.refuses.store(true, Ordering::Release);
    }
}

/// Any queue but the first.
#[repr(align(128))]
struct Follower {
    name: String,
    lane: usize,
    shared: Arc<Shared>,
    counters: PortCounters,
}

impl Port for Follower {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        // Before the packets: what was handed over before the device ended must be seen.
        let ended = self.shared.ended.load(Ordering::Acquire);
        let before = burst.len();
        while burst.room() > 0
            && let Some(packet) = self.shared.lanes[self.lane].rx.pop()
        {
            self.counters.rx.count(packet.len());
            burst.push(packet).unwrap_or_else(|packet| pool.free(packet));
        }
        Ok(match burst.len() > before {
            true => RxStatus::Received,
            false if ended && burst.room() > 0 => RxStatus::Ended,
            false => RxStatus::Idle { next_due_ns: None },
        })
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let ring = &self.shared.lanes[self.lane].tx;
        let counters = &mut self.counters.tx;
        let mut fail = |packet: Packet| {
            counters.dropped.count(DropReason::TxFailed);
            pool.free(packet);
        };
        if self.shared.refuses.load(Ordering::Acquire) {
            burst.drain().for_each(fail);
            return Ok(());
        }
        if burst.is_empty() {
            return Ok(());
        }
        // Nobody else puts anything in, so what has room now still has it below.
        let mut put = Passed::default();
        for packet in burst.drain_front(ring.capacity() - ring.len()) {
            let bytes = packet.len();
            match ring.push(packet) {
                Ok(()) => put.add(bytes),
                Err(packet) => fail(packet),
            }
        }
        fence(Ordering::SeqCst);
        if self.shared.refuses.load(Ordering::Relaxed) {
            while let Some(packet) = ring.pop() {
                put.packets = put.packets.wrapping_sub(1);
                put.bytes = put.bytes.wrapping_sub(packet.len() as u64);
                fail(packet);
            }
        }
        counters.packets = counters.packets.wrapping_add(put.packets);
        counters.bytes = counters.bytes.wrapping_add(put.bytes);
        self.shared.leader.get().into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        let lane = &self.shared.lanes[self.lane];
        lane.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        while let Some(packet) = lane.rx.pop() {
            self.counters.rx.count(packet.len());
            self.counters.rx.dropped.count(DropReason::PortClosed);
            pool.free(packet);
        }
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn wake(&mut self, waker: &Waker) -> Wake<'_> {
        self.shared.lanes[self.lane].waker.get_or_init(|| waker.clone());
        Wake::Told
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.lanes[self.lane].closed.store(true, Ordering::Release);
    }
}
