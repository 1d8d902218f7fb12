//! The two ports of the measurement: amplifiers outside, a victim inside. Both belong to one worker.
//!
//! Where rules are needed they are learnt first, as from a wire: flows come in by lots, and the victim's ICMP messages follow. Then
//! the clock starts.

use super::frames::Template;
use crate::sim::port_unreachable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_burst::{Burst, Pool};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

/// Flows that come in before their messages follow: nothing is suspected for long.
const LOT: u64 = 32_768;

/// What comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    /// Every packet of a flow that never was.
    New,
    /// Flows that are suspected.
    Known,
    /// Flows that are filtered.
    Filtered,
    /// Half of filtered flows, a quarter of suspected ones, a quarter of other traffic.
    Mixed,
    /// From a port that is no amplifier's.
    Passing,
}

impl Mix {
    /// Whether rules have to be learnt before.
    pub(super) fn needs_rules(self) -> bool {
        matches!(self, Mix::Filtered | Mix::Mixed)
    }

    /// The part of the packets that has to be dropped.
    pub(super) fn dropped(self) -> f64 {
        match self {
            Mix::Filtered => 1.0,
            Mix::Mixed => 0.5,
            Mix::New | Mix::Known | Mix::Passing => 0.0,
        }
    }
}

/// What both ports know of each other. One thread has both: nothing here orders anything.
#[derive(Debug, Default)]
struct Shared {
    /// Flows that have come in, to be learnt.
    sent: AtomicU64,
    /// Flows whose messages have been sent.
    confirmed: AtomicU64,
    /// Packets since the clock was started, and how long it ran, nanoseconds; zero until it has stopped.
    packets: AtomicU64,
    elapsed_ns: AtomicU64,
    /// When the last burst came in, nanoseconds after `epoch`.
    received_ns: AtomicU64,
    /// What bursts took from coming in to going out, nanoseconds.
    latencies: std::sync::Mutex<Vec<u32>>,
}

/// What to measure.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) mix: Mix,
    pub(super) v6: bool,
    /// Flows that come over and over.
    pub(super) flows: u64,
    pub(super) duration: Duration,
    /// Packets of a burst at most.
    pub(super) burst: usize,
    /// Whether every burst is timed.
    pub(super) latency: bool,
    /// Whether what is outside is learnt by anybody: a bridge that looks at nothing needs no rules.
    pub(super) learns: bool,
}

/// What was measured.
pub(super) struct Measured(Arc<Shared>);

impl Measured {
    /// Packets that came in while the clock ran.
    pub(super) fn packets(&self) -> u64 {
        self.0.packets.load(Ordering::Relaxed)
    }

    /// For how long, nanoseconds.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.0.elapsed_ns.load(Ordering::Relaxed)
    }

    /// Nanoseconds that each burst took, ascending.
    pub(super) fn latencies(&self) -> Vec<u32> {
        let mut all =
            std::mem::take(&mut *self.0.latencies.lock().unwrap_or_else(|broken| broken.into_inner()));
        all.sort_unstable();
        all
    }
}

/// The amplifiers.
struct Outside {
    plan: Plan,
    responses: Template,
    others: Template,
    shared: Arc<Shared>,
    /// Packets so far; which flow is next, and of the others in a mixture.
    at: u64,
    flow: u64,
    second: u64,
    start: Option<Instant>,
    epoch: Instant,
    counters: PortCounters,
}

/// The victim.
struct Inside {
    plan: Plan,
    responses: Template,
    shared: Arc<Shared>,
    epoch: Instant,
    /// Kept here while the clock runs: no lock between two readings of the clock.
    latencies: Vec<u32>,
    counters: PortCounters,
}

/// Bursts that are timed at most.
const TIMED: usize = 1 << 20;

/// The ports, and where to read what they have measured.
pub(super) fn pair(plan: &Plan) -> (Box<dyn Port>, Box<dyn Port>, Measured) {
    let (shared, epoch) = (Arc::new(Shared::default()), Instant::now());
    let responses = Template::new(plan.v6, 53);
    let outside = Outside {
        plan: plan.clone(),
        responses: responses.clone(),
        others: Template::new(plan.v6, 443),
        shared: shared.clone(),
        at: 0,
        flow: 0,
        second: 0,
        start: None,
        epoch,
        counters: PortCounters::default(),
    };
    let latencies = if plan.latency { Vec::with_capacity(TIMED) } else { Vec::new() };
    let inside = Inside {
        plan: plan.clone(),
        responses,
        shared: shared.clone(),
        epoch,
        latencies,
        counters: PortCounters::default(),
    };
    (Box::new(outside), Box::new(inside), Measured(shared))
}

impl Plan {
    fn to_learn(&self) -> u64 {
        if self.learns && self.mix.needs_rules() { self.flows } else { 0 }
    }
}

impl Outside {
    /// Gives up to `want` packets.
    fn give(&mut self, want: usize, pool: &mut Pool, burst: &mut Burst) {
        let (mix, flows) = (self.plan.mix, self.plan.flows);
        // A division for each packet would be seen.
        let next = |flow: &mut u64, most: u64| {
            let this = *flow;
            *flow = if this + 1 == most { 0 } else { this + 1 };
            this
        };
        for packet in pool.take_into(want, burst) {
            let (template, flow) = match mix {
                Mix::New => (&self.responses, next(&mut self.flow, super::frames::FLOWS)),
                Mix::Known | Mix::Filtered => (&self.responses, next(&mut self.flow, flows)),
                Mix::Passing => (&self.others, next(&mut self.flow, flows)),
                Mix::Mixed => match self.at % 4 {
                    0 | 1 => (&self.responses, next(&mut self.flow, flows)),
                    // Flows behind those that are filtered.
                    2 => (&self.responses, flows + next(&mut self.second, flows)),
                    _ => (&self.others, self.second),
                },
            };
            packet.set_len(template.len());
            template.write(flow, packet.data_mut());
            self.at += 1;
            self.counters.rx.count(template.len());
        }
    }

    /// One lot of the flows to be learnt.
    fn teach(&mut self, to_learn: u64, pool: &mut Pool, burst: &mut Burst) {
        let end = to_learn.min(self.shared.confirmed.load(Ordering::Relaxed) + LOT);
        while self.at < end && burst.room() > 0 {
            let Some(mut packet) = pool.take() else { break };
            packet.set_len(self.responses.len());
            self.responses.write(self.at, packet.data_mut());
            self.counters.rx.count(self.responses.len());
            self.at += u64::from(burst.push(packet).is_ok());
        }
        self.shared.sent.store(self.at, Ordering::Relaxed);
    }
}

impl Port for Outside {
    fn name(&self) -> &str {
        "outside"
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let Some(start) = self.start else {
            let to_learn = self.plan.to_learn();
            if self.shared.confirmed.load(Ordering::Relaxed) < to_learn {
                self.teach(to_learn, pool, burst);
                return Ok(RxStatus::Received);
            }
            self.at = 0;
            self.start = Some(Instant::now());
            return Ok(RxStatus::Received);
        };
        if self.shared.elapsed_ns.load(Ordering::Relaxed) != 0 {
            return Ok(RxStatus::Ended);
        }
        // Everything given before has gone its way.
        let elapsed = start.elapsed();
        if elapsed >= self.plan.duration {
            self.shared.packets.store(self.at, Ordering::Relaxed);
            self.shared.elapsed_ns.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
            return Ok(RxStatus::Ended);
        }
        self.give(burst.room().min(self.plan.burst), pool, burst);
        if self.plan.latency {
            self.shared.received_ns.store(self.epoch.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        swallow(&mut self.counters, pool, burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl Port for Inside {
    fn name(&self) -> &str {
        "inside"
    }

    fn rx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let (sent, mut confirmed) =
            (self.shared.sent.load(Ordering::Relaxed), self.shared.confirmed.load(Ordering::Relaxed));
        if confirmed == self.plan.to_learn() {
            return Ok(RxStatus::Ended);
        }
        while confirmed < sent && burst.room() > 0 {
            let Some(mut packet) = pool.take() else { break };
            let Some(frame) = port_unreachable(&self.responses.frame(confirmed)[14..]) else { break };
            packet.set_len(frame.len());
            packet.data_mut().copy_from_slice(&frame);
            self.counters.rx.count(frame.len());
            confirmed += u64::from(burst.push(packet).is_ok());
        }
        self.shared.confirmed.store(confirmed, Ordering::Relaxed);
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        if self.plan.latency && !burst.is_empty() {
            let received_ns = self.shared.received_ns.load(Ordering::Relaxed);
            let took_ns = self.epoch.elapsed().as_nanos() as u64 - received_ns;
            if received_ns != 0 && self.latencies.len() < TIMED {
                self.latencies.push(u32::try_from(took_ns).unwrap_or(u32::MAX));
            }
        }
        swallow(&mut self.counters, pool, burst);
        Ok(())
    }

    fn finish(&mut self, _now_ns: u64, _pool: &mut Pool) -> Result<(), PortError> {
        let latencies = std::mem::take(&mut self.latencies);
        *self.shared.latencies.lock().unwrap_or_else(|broken| broken.into_inner()) = latencies;
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

fn swallow(counters: &mut PortCounters, pool: &mut Pool, burst: &mut Burst) {
    counters.tx.packets += burst.len() as u64;
    counters.tx.bytes += burst.iter().map(|packet| packet.len() as u64).sum::<u64>();
    pool.free_all(burst);
}
