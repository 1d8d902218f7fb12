//! What the encapsulation costs: nanoseconds per packet of 64 bytes (60 without the frame check sequence) in bursts of 256.
//!
//! `cargo run --release -p tidemill-gatekeeper --example encapsulate_rate -- [SECONDS]`
//!
//! A port gives the same frames round and round, and puts each back as it was when it has been sent. What passes from the end of its
//! receiving to the beginning of its sending is the node's work and the worker's (dispatch); the median of all bursts, so that a
//! busy machine, which interrupts a few, changes little. `frames 256` lie in the cache, as behind the gate, which has just read
//! them; `frames 262144` lie in half a gigabyte. `nothing` is a node in its place that does nothing; `alone` is the function in a
//! loop, without a graph.

use std::collections::VecDeque;
use std::error::Error;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, Memory, Packet, Pool};
use tidemill_gatekeeper::Tag;
use tidemill_gatekeeper::nodes::encapsulate::{self, Encapsulate};
use tidemill_gatekeeper::tunnel::{Endpoint, Outer, encapsulate};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_ip::{Adjacency, Interface, Kind, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family, Table};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::{EtherType, MacAddr, Protocol, ipv4, ipv6};

const LEN: usize = 60;
const GRANTORS: u16 = 4;

/// Gives packets in bursts, and takes them back.
struct Round {
    frames: usize,
    frame: [u8; LEN],
    queue: VecDeque<Packet>,
    counters: PortCounters,
    received: Instant,
    /// Nanoseconds of each full burst.
    took: Arc<Mutex<Vec<u32>>>,
}

/// Bursts that are kept of a run.
const KEPT: usize = 1 << 17;

/// The median over bursts, for one packet.
fn per_packet(mut took: Vec<u32>) -> f64 {
    took.sort_unstable();
    f64::from(took.get(took.len() / 2).copied().unwrap_or(0)) / BURST as f64
}

impl Port for Round {
    fn name(&self) -> &str {
        "round"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        while self.queue.len() < self.frames
            && let Some(packet) = pool.packet(&self.frame)
        {
            self.queue.push_back(packet);
        }
        for n in 0..BURST {
            let Some(mut packet) = self.queue.pop_front() else { break };
            packet.l3 = 14;
            packet.label = Tag { grantor: n as u16 % GRANTORS, dscp: 41 }.label();
            self.counters.rx.count(LEN);
            if burst.push(packet).is_err() {
                break;
            }
        }
        self.received = Instant::now();
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        let took = self.received.elapsed().as_nanos();
        if let Ok(mut all) = self.took.lock()
            && burst.len() == BURST
            && all.len() < KEPT
        {
            all.push(u32::try_from(took).unwrap_or(u32::MAX));
        }
        for mut packet in burst.drain() {
            self.counters.tx.count(packet.len());
            let outer = packet.len() - LEN;
            if packet.cut_front(outer) && self.queue.len() < self.frames {
                packet.data_mut().copy_from_slice(&self.frame);
                self.queue.push_back(packet);
            } else {
                pool.free(packet);
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.queue.drain(..).for_each(|packet| pool.free(packet));
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

/// Sends everything on.
struct Nothing;

impl Node for Nothing {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

/// Nanoseconds per packet between the port's queues; with `nothing`, of the worker alone.
fn in_the_graph<A: Outer + Family>(
    nothing: bool,
    frame: [u8; LEN],
    ethertype: EtherType,
    frames: usize,
    duration: Duration,
) -> Result<f64, Box<dyn Error>> {
    let domain = Domain::new();
    let everything = Prefix::new(A::MIN, 0).ok_or("no prefix")?;
    let rib: Rib<A> = [(everything, Label(1))].into_iter().collect();
    let table = Table::new(&domain, rib, &Algorithm::Auto)?;
    let endpoints = (1..=GRANTORS).map(|n| Endpoint::new(A::MAX, A::from_u128(n.into()))).collect();
    let endpoints = Publisher::new(&domain, endpoints);
    let hop = Adjacency::forward(0, &Interface::of_port(0, "round"), MacAddr([2; 6]), ethertype);
    let hops = Publisher::new(&domain, NextHops::new(vec![Adjacency::of(Kind::NoRoute), hop]));
    let mut graph = GraphBuilder::new(["round"]);
    let views = (endpoints.view(), table.view(), hops.view());
    graph.input("round", "encapsulate").node("encapsulate", encapsulate::OUTPUTS, move |worker| {
        let (endpoints, fib, hops) = views.clone();
        if nothing {
            return Box::new(Nothing);
        }
        Box::new(Encapsulate::<A>::new(worker, endpoints, fib, hops))
    });
    for output in encapsulate::OUTPUTS {
        graph.edge("encapsulate", output, "port:round");
    }
    let memory = Memory::new(frames, 2048)?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: frames,
        pin: true,
        limits: Limits { packets: None, duration: Some(duration) },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let queue = VecDeque::with_capacity(frames + BURST);
    let took = Arc::new(Mutex::new(Vec::with_capacity(KEPT)));
    let counters = PortCounters::default();
    let port = Round { frames, frame, queue, counters, received: Instant::now(), took: took.clone() };
    let queues: Vec<Vec<Box<dyn Port>>> = vec![vec![Box::new(port)]];
    let snapshot = Engine::new(graph.build()?, 1, queues, &memory, &domain, options)?.run(|_| {}).snapshot;
    let ledger = snapshot.ledger();
    if !ledger.balances() || ledger.out == 0 || !ledger.dropped.is_empty() {
        return Err(format!("{ledger:?}").into());
    }
    let took = took.lock().map_err(|_| "the worker has panicked")?;
    Ok(per_packet(took.clone()))
}

/// Nanoseconds per packet of the function alone.
fn alone<A: Outer>(frame: [u8; LEN], duration: Duration) -> Result<f64, Box<dyn Error>> {
    let mut pool = Memory::new(BURST, 2048)?.pool(BURST)?;
    let mut burst: Vec<Packet> = (0..BURST).map_while(|_| pool.packet(&frame)).collect();
    let endpoint = Endpoint::new(A::MAX, A::MIN);
    let (start, mut took) = (Instant::now(), Vec::with_capacity(KEPT));
    while start.elapsed() < duration && took.len() < KEPT {
        let before = Instant::now();
        for packet in &mut burst {
            packet.l3 = 14;
            let _ = black_box(encapsulate(packet, &endpoint, 41));
        }
        took.push(u32::try_from(before.elapsed().as_nanos()).unwrap_or(u32::MAX));
        for packet in &mut burst {
            let outer = packet.len() - LEN;
            let _ = packet.cut_front(outer);
            packet.data_mut().copy_from_slice(&frame);
        }
    }
    burst.drain(..).for_each(|packet| pool.free(packet));
    Ok(per_packet(took))
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(0.5), |text| text.parse())?;
    let duration = Duration::from_secs_f64(seconds);
    let (mut frame4, mut frame6) = ([0; LEN], [0; LEN]);
    let [a, b] = [[198, 51, 100, 7], [203, 0, 113, 80]].map(std::net::Ipv4Addr::from);
    ipv4::Repr::new(a, b, Protocol::UDP, LEN - 34).emit(&mut frame4[14..])?;
    let (a, b) = ("2001:db8:a::7".parse()?, "2001:db8:b::80".parse()?);
    ipv6::Repr::new(a, b, Protocol::UDP, LEN - 54).emit(&mut frame6[14..])?;
    let graph = |v6, nothing, frames| match v6 {
        false => in_the_graph::<u32>(nothing, frame4, EtherType::IPV4, frames, duration),
        true => in_the_graph::<u128>(nothing, frame6, EtherType::IPV6, frames, duration),
    };
    println!("{:4} {:>13} {:>13} {:>13} {:>13}", "ns", "alone", "nothing", "frames 256", "frames 262144");
    for (name, v6) in [("IPv4", false), ("IPv6", true)] {
        let alone = if v6 { alone::<u128>(frame6, duration)? } else { alone::<u32>(frame4, duration)? };
        let (nothing, warm) = (graph(v6, true, BURST)?, graph(v6, false, BURST)?);
        println!("{name} {alone:13.2} {nothing:13.2} {warm:13.2} {:13.2}", graph(v6, false, 1 << 18)?);
    }
    Ok(())
}
