//! Ports and nodes that the tests share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test file uses a part

use std::sync::Arc;
use tidemill_burst::{Burst, DropReason, Packet, Pool};
use tidemill_graph::trace::TraceRequest;
use tidemill_graph::*;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};

/// Gives `total` packets, numbered in their first bytes; takes and remembers the numbers of what is sent.
pub struct Script {
    pub name: &'static str,
    pub total: u64,
    pub counters: PortCounters,
    pub sent: Sent,
    pub fail_at: Option<u64>,
}

impl Port for Script {
    fn name(&self) -> &str {
        self.name
    }
    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.counters.rx.packets == self.total {
            return Ok(RxStatus::Ended);
        }
        while self.counters.rx.packets < self.total && burst.room() > 0 {
            if Some(self.counters.rx.packets) == self.fail_at {
                let source = std::io::Error::other("unplugged");
                return Err(PortError::Device { port: self.name.into(), action: "cannot receive", source });
            }
            let mut data = [0; 64];
            data[..8].copy_from_slice(&self.counters.rx.packets.to_be_bytes());
            let Some(mut packet) = pool.packet(&data) else { break };
            packet.set_timestamp_ns(self.counters.rx.packets * 1000);
            self.counters.rx.count(64);
            burst.push(packet).unwrap();
        }
        Ok(RxStatus::Received)
    }
    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        for packet in burst.drain() {
            self.counters.tx.count(packet.len());
            self.sent.lock().unwrap().push(number(&packet));
            pool.free(packet);
        }
        Ok(())
    }
    fn counters(&self) -> PortCounters {
        self.counters
    }
}

pub fn number(packet: &Packet) -> u64 {
    u64::from_be_bytes(packet.data()[..8].try_into().unwrap())
}

/// By the packet's number: forwards, drops, consumes, copies, keeps for a while.
pub struct Mixed {
    pub kept: Vec<Packet>,
    pub release_after: usize,
}

impl Node for Mixed {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], verdicts: &mut [Verdict]) {
        for (packet, verdict) in burst.iter_mut().zip(verdicts) {
            *verdict = match number(packet) % 7 {
                0 => Verdict::Drop(DropReason::NoRoute),
                1 => Verdict::Consume,
                2 => Verdict::Keep,
                3 => {
                    if let Some(copy) = packet.duplicate(cx.pool) {
                        cx.emit(1, copy);
                    }
                    Verdict::Next(0)
                }
                n => Verdict::Next((n % 2) as u8),
            };
        }
    }
    fn keep(&mut self, _: &mut Context<'_>, packet: Packet) {
        self.kept.push(packet);
    }
    fn tick(&mut self, cx: &mut Context<'_>) {
        while self.kept.len() > self.release_after {
            cx.release(0, self.kept.remove(0));
        }
    }
    fn surrender(&mut self, pool: &mut Pool) {
        self.kept.drain(..).for_each(|packet| pool.free(packet));
    }
    fn explain(&self, packet: &Packet) -> Option<String> {
        Some(format!("number {}", number(packet)))
    }
}

/// Makes `copies` more of every packet.
pub struct Multiply(pub usize);

impl Node for Multiply {
    fn process(&mut self, cx: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        for packet in burst.iter() {
            for _ in 0..self.0 {
                if let Some(copy) = packet.duplicate(cx.pool) {
                    cx.emit(0, copy);
                }
            }
        }
    }
}

pub fn options(frames_per_worker: usize, traces: Vec<TraceRequest>) -> Options {
    Options {
        clock: Clock::Capture,
        frames_per_worker,
        pin: false,
        limits: Limits::default(),
        traces,
        describe: |data| format!("{} bytes", data.len()),
    }
}

pub type Sent = Arc<std::sync::Mutex<Vec<u64>>>;

pub fn script(name: &'static str, total: u64) -> (Box<dyn Port>, Sent) {
    let sent = Sent::default();
    (
        Box::new(Script {
            name,
            total,
            counters: PortCounters::default(),
            sent: sent.clone(),
            fail_at: None,
        }),
        sent,
    )
}

pub fn mixed_graph(release_after: usize) -> Graph {
    let mut g = GraphBuilder::new(["a", "b"]);
    g.node("mixed", ["b", "a"], move |_| Box::new(Mixed { kept: Vec::with_capacity(4096), release_after }));
    g.input("a", "mixed").edge("mixed", "b", "port:b").edge("mixed", "a", "port:a");
    g.build().unwrap()
}
