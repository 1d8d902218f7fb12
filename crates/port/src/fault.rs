//! The fault injector: wraps any port and does to its packets what a bad line does. Seeded, so that a run repeats.
//!
//! Each packet meets, in this order: loss, duplication, corruption (one bit), delay, reordering. Everything is counted:
//! a lost packet as [`InjectedLoss`](DropReason::InjectedLoss), a duplicate as made, one that waits as held.

use crate::rng::Rng;
use crate::{Direction, Port, PortCounters, PortError, RxStatus, Wake, Waker, number};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tidemill_burst::{BURST, Burst, DropReason, Packet, Pool};

/// What happens to the packets of one direction; all probabilities are between 0 and 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Probability that a packet is overtaken by the one to four that follow it.
    pub reorder: f64,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet is delayed.
    pub delay: f64,
    /// The longest delay in microseconds; delays are spread evenly from 0.
    pub delay_us: u64,
}

impl Faults {
    pub(crate) fn check(&self, port: &str) -> Result<(), PortError> {
        let Faults { loss, corrupt, reorder, duplicate, delay, .. } = *self;
        let named = [
            ("loss", loss),
            ("corrupt", corrupt),
            ("reorder", reorder),
            ("duplicate", duplicate),
            ("delay", delay),
        ];
        match named.iter().find(|(_, p)| !(0.0..=1.0).contains(p)) {
            Some((key, p)) => {
                let p = number(*p);
                Err(PortError::config(port, format!("{key} = {p} is not a probability (0 to 1)")))
            }
            None => Ok(()),
        }
    }
}

/// A port with faults.
pub struct Fault<P> {
    inner: P,
    rx: Line,
    tx: Line,
    /// Between the inner port and the line.
    scratch: Box<Burst>,
    /// Packets that passed the line and that the inner port has not taken yet.
    sending: Box<Burst>,
}

/// Packets on their way.
struct Line {
    faults: Faults,
    rng: Rng,
    /// Through with everything.
    ready: VecDeque<Packet>,
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// To be overtaken by so many more.
    overtaken: Vec<(u32, Packet)>,
    serial: u64,
    count: Direction,
}

struct Delayed {
    due_ns: u64,
    serial: u64,
    packet: Packet,
}

impl Delayed {
    fn key(&self) -> (u64, u64) {
        (self.due_ns, self.serial)
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Line {
    fn new(faults: Faults, seed: u64) -> Self {
        Line {
            faults,
            rng: Rng::new(seed),
            ready: VecDeque::with_capacity(4 * BURST),
            delayed: BinaryHeap::with_capacity(4 * BURST),
            overtaken: Vec::with_capacity(BURST),
            serial: 0,
            count: Direction::default(),
        }
    }

    fn held(&self) -> usize {
        self.ready.len() + self.delayed.len() + self.overtaken.len()
    }

    fn enter(&mut self, now_ns: u64, pool: &mut Pool, packet: Packet) {
        if self.rng.chance(self.faults.loss) {
            self.count.dropped.count(DropReason::InjectedLoss);
            pool.free(packet);
            return;
        }
        if self.rng.chance(self.faults.duplicate)
            && let Some(copy) = packet.duplicate(pool)
        {
            self.count.made += 1;
            self.disturb(now_ns, copy);
        }
        self.disturb(now_ns, packet);
    }

    fn disturb(&mut self, now_ns: u64, mut packet: Packet) {
        if self.rng.chance(self.faults.corrupt) {
            let bit = self.rng.below(8 * packet.len() as u64);
            if let Some(byte) = packet.data_mut().get_mut(bit as usize / 8) {
                *byte ^= 1 << (bit % 8);
                packet.clear_checked();
            }
        }
        if self.rng.chance(self.faults.delay) {
            let delay_ns = self.rng.below(self.faults.delay_us.saturating_mul(1000).saturating_add(1));
            self.serial += 1;
            let delayed = Delayed { due_ns: now_ns.saturating_add(delay_ns), serial: self.serial, packet };
            self.delayed.push(Reverse(delayed));
        } else if self.rng.chance(self.faults.reorder) {
            self.overtaken.push((1 + self.rng.below(4) as u32, packet));
        } else {
            self.pass(packet);
        }
    }

    /// A packet gets through, and perhaps lets others go that it has overtaken.
    fn pass(&mut self, packet: Packet) {
        self.ready.push_back(packet);
        let mut at = 0;
        while at < self.overtaken.len() {
            self.overtaken[at].0 -= 1;
            if self.overtaken[at].0 == 0 {
                let (_, packet) = self.overtaken.remove(at);
                self.ready.push_back(packet);
            } else {
                at += 1;
            }
        }
    }

    fn release_due(&mut self, now_ns: u64) {
        while self.delayed.peek().is_some_and(|Reverse(first)| first.due_ns <= now_ns) {
            if let Some(Reverse(Delayed { packet, .. })) = self.delayed.pop() {
                self.pass(packet);
            }
        }
    }

    /// Nobody follows who could overtake.
    fn release_overtaken(&mut self) {
        self.ready.extend(self.overtaken.drain(..).map(|(_, packet)| packet));
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.delayed.peek().map(|Reverse(first)| first.due_ns)
    }

    fn leave(&mut self, burst: &mut Burst) {
        while burst.room() > 0 {
            let Some(packet) = self.ready.pop_front() else { break };
            if let Err(packet) = burst.push(packet) {
                self.ready.push_front(packet);
                break;
            }
        }
    }
}

impl<P: Port> Fault<P> {
    /// Wraps `inner`. The seed and the order of calls and packets decide everything.
    pub fn new(inner: P, rx: Faults, tx: Faults, seed: u64) -> Result<Self, PortError> {
        rx.check(inner.name())?;
        tx.check(inner.name())?;
        let (rx, tx) = (Line::new(rx, seed), Line::new(tx, !seed));
        Ok(Fault { inner, rx, tx, scratch: Box::default(), sending: Box::default() })
    }

    fn forward(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        loop {
            self.tx.leave(&mut self.sending);
            self.inner.tx(now_ns, pool, &mut self.sending)?;
            if !self.sending.is_empty() || self.tx.ready.is_empty() {
                return Ok(());
            }
        }
    }
}

impl<P: Port> Port for Fault<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let before = burst.len();
        self.rx.release_due(now_ns);
        self.rx.leave(burst);
        let mut status = RxStatus::Received;
        // While packets wait for room the inner port is left alone, so that no more than a burst's worth piles up.
        if burst.room() > 0 {
            let result = self.inner.rx(now_ns, pool, &mut self.scratch);
            for packet in self.scratch.drain() {
                self.rx.enter(now_ns, pool, packet);
            }
            status = match result {
                Ok(status) => status,
                Err(error) => {
                    self.rx.leave(burst);
                    return Err(error);
                }
            };
            if status != RxStatus::Received {
                self.rx.release_overtaken();
            }
            self.rx.release_due(now_ns);
            self.rx.leave(burst);
        }
        if burst.len() > before || !self.rx.ready.is_empty() {
            return Ok(RxStatus::Received);
        }
        Ok(match (status, self.rx.next_due_ns()) {
            (RxStatus::Idle { next_due_ns: Some(a) }, Some(b)) => {
                RxStatus::Idle { next_due_ns: Some(a.min(b)) }
            }
            (RxStatus::Idle { next_due_ns: None } | RxStatus::Ended, Some(b)) => {
                RxStatus::Idle { next_due_ns: Some(b) }
            }
            (status, _) => status,
        })
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.tx.release_due(now_ns);
        if burst.is_empty() {
            self.tx.release_overtaken();
        }
        // While the inner port is full, the worker keeps its packets.
        if self.tx.ready.len() < BURST {
            for packet in burst.drain() {
                self.tx.enter(now_ns, pool, packet);
            }
        }
        self.forward(now_ns, pool)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.rx.release_overtaken();
        self.rx.release_due(u64::MAX);
        for packet in self.rx.ready.drain(..) {
            self.rx.count.dropped.count(DropReason::PortClosed);
            pool.free(packet);
        }
        self.tx.release_overtaken();
        self.tx.release_due(u64::MAX);
        // A release can set others free, which were waiting to be overtaken.
        self.tx.release_overtaken();
        let mut sent = self.forward(now_ns, pool);
        // A full port gets a few more chances to send the rest.
        for _ in 0..1000 {
            if sent.is_err() || (self.sending.is_empty() && self.tx.ready.is_empty()) {
                break;
            }
            sent = self.forward(now_ns, pool);
        }
        let reason = if sent.is_err() { DropReason::TxFailed } else { DropReason::TxFull };
        for packet in self.sending.drain().chain(self.tx.ready.drain(..)) {
            self.tx.count.dropped.count(reason);
            pool.free(packet);
        }
        let finished = self.inner.finish(now_ns, pool);
        sent.and(finished)
    }

    fn counters(&self) -> PortCounters {
        let mut counters = self.inner.counters();
        counters.rx.add(&self.rx.count);
        counters.tx.add(&self.tx.count);
        counters.rx.held += self.rx.held() as u64;
        counters.tx.held += (self.tx.held() + self.sending.len()) as u64;
        counters
    }

    fn wake(&mut self, waker: &Waker) -> Wake<'_> {
        self.inner.wake(waker)
    }

    fn has_ended(&self) -> bool {
        self.inner.has_ended() && self.rx.ready.is_empty() && self.rx.next_due_ns().is_none()
    }
}
