//! What the gate's own nodes cost: the cases of `tidemill bench gate`, between stand-ins for the router's nodes, so that a change can be measured without building
//! the command. Its rates are higher than those of the whole router: compare runs of two builds, in turn.
//!
//! `cargo run --release -p tidemill-gatekeeper --example gate_rate worst|granted FLOWS [SECONDS]`
//!
//! `worst`: every packet of a new source, as many as there is room for and at least as many again. `granted`: each of one of so many flows that were granted.

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidemill_burst::{BURST, Burst, DropReason, Memory, Packet, Pool};
use tidemill_gatekeeper::config::{Action, PolicyConfig};
use tidemill_gatekeeper::{
    Counter, Decision, GatekeeperControl, GatekeeperSection, Host, Pair, Verdict as Says, splice,
};
use tidemill_graph::{Clock, Context, Engine, GraphBuilder, Limits, Node, Options, Verdict};
use tidemill_ip::{Adjacency, Interface, Interfaces, Kind, NextHops};
use tidemill_lookup::publish::Publisher;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family, Table};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::rng::Rng;
use tidemill_port::{Port, PortCounters, PortError, RxStatus};
use tidemill_wire::{EtherType, MacAddr, Protocol, ipv4};

const FRAME: usize = 60;
const FRAMES: usize = 8192;
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// The source of flow number `n`: a bijection (MurmurHash3's end).
fn source(n: u32) -> u32 {
    let n = (n ^ n >> 16).wrapping_mul(0x85eb_ca6b);
    let n = (n ^ n >> 13).wrapping_mul(0xc2b2_ae35);
    n ^ n >> 16
}

/// What was measured: packets and nanoseconds, when the table was to be full and at the end.
#[derive(Default)]
struct Measured([AtomicU64; 4]);

struct Front {
    worst: bool,
    flows: usize,
    duration: Duration,
    frame: [u8; FRAME],
    next: u32,
    random: Rng,
    start: Option<Instant>,
    given: u64,
    measured: Arc<Measured>,
    counters: PortCounters,
}

impl Port for Front {
    fn name(&self) -> &str {
        "front"
    }

    fn rx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        let elapsed = self.start.get_or_insert_with(Instant::now).elapsed();
        let set = |at: usize, n: u64| self.measured.0[at].store(n, Ordering::Relaxed);
        if self.given >= self.flows as u64 && self.measured.0[0].load(Ordering::Relaxed) == 0 {
            set(0, self.given);
            set(1, elapsed.as_nanos() as u64);
        }
        if elapsed >= self.duration && (!self.worst || self.given >= 2 * self.flows as u64) {
            set(2, self.given);
            set(3, elapsed.as_nanos() as u64);
            return Ok(RxStatus::Ended);
        }
        for packet in pool.take_into(BURST, burst) {
            let number = if self.worst {
                self.next = self.next.wrapping_add(1);
                self.next
            } else {
                self.random.below(self.flows as u64) as u32
            };
            packet.set_len(FRAME);
            if let Some(bytes) = packet.data_mut().first_chunk_mut::<FRAME>() {
                *bytes = self.frame;
                bytes[26..30].copy_from_slice(&source(number).to_be_bytes());
            }
            self.counters.rx.count(FRAME);
            self.given += 1;
        }
        Ok(RxStatus::Received)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.counters.tx.packets += burst.len() as u64;
        pool.free_all(burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[derive(Default)]
struct Back(PortCounters);

impl Port for Back {
    fn name(&self) -> &str {
        "back"
    }

    fn rx(&mut self, _: u64, _: &mut Pool, _: &mut Burst) -> Result<RxStatus, PortError> {
        Ok(RxStatus::Ended)
    }

    fn tx(&mut self, _: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.0.tx.packets += burst.len() as u64;
        pool.free_all(burst);
        Ok(())
    }

    fn counters(&self) -> PortCounters {
        self.0
    }
}

struct Ethernet;

impl Node for Ethernet {
    fn process(&mut self, _: &mut Context<'_>, burst: &mut [Packet], _: &mut [Verdict]) {
        burst.iter_mut().for_each(|packet| packet.l3 = 14);
    }
}

/// Lets everything go on by its first output.
struct Pass;

impl Node for Pass {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], _: &mut [Verdict]) {}
}

struct End;

impl Node for End {
    fn process(&mut self, _: &mut Context<'_>, _: &mut [Packet], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::Drop(DropReason::NoRoute));
    }
}

/// The part of a router that the gate is put into.
fn router() -> GraphBuilder {
    let mut graph = GraphBuilder::new(["front", "back"]);
    graph.node("ethernet", ["ip4", "ip6"], |_| Box::new(Ethernet));
    graph.input("front", "ethernet").input("back", "ethernet");
    graph.node("end", [""; 0], |_| Box::new(End));
    for family in ["ip4", "ip6"] {
        let name = |part: &str| format!("{family}-{part}");
        graph.node(&name("input"), ["lookup"], |_| Box::new(Pass)).edge("ethernet", family, &name("input"));
        graph.node(&name("lookup"), ["forward", "local"], |_| Box::new(Pass));
        graph.node(&name("forward"), ["out", "error"], |_| Box::new(Pass));
        graph.node(&name("neighbor"), ["out"], |_| Box::new(Pass));
        graph.edge(&name("input"), "lookup", &name("lookup")).edge(&name("lookup"), "local", "end");
        graph.edge(&name("lookup"), "forward", &name("forward"));
        graph.edge(&name("forward"), "out", "port:back").edge(&name("forward"), "error", "end");
        graph.edge(&name("neighbor"), "out", "end");
    }
    graph
}

type Way<A> = (Table<A>, Publisher<NextHops>);

/// A route of everything by the back.
fn way<A: Family>(domain: &Domain, back: &Interface, kind: EtherType) -> Result<Way<A>, Box<dyn Error>> {
    let all = Prefix::new(A::MIN, 0).ok_or("no such prefix")?;
    let rib: Rib<A> = [(all, Label(1))].into_iter().collect();
    let hops = vec![Adjacency::of(Kind::NoRoute), Adjacency::forward(1, back, MAC, kind)];
    Ok((Table::new(domain, rib, &Algorithm::Auto)?, Publisher::new(domain, NextHops::new(hops))))
}

fn frame() -> Result<[u8; FRAME], Box<dyn Error>> {
    let mut frame = [0; FRAME];
    frame[..14].copy_from_slice(&[2, 0x49, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0]);
    let payload = FRAME - 14 - ipv4::HEADER_LEN;
    ipv4::Repr::new(Ipv4Addr::UNSPECIFIED, DESTINATION, Protocol::UDP, payload).emit(&mut frame[14..])?;
    Ok(frame)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let worst = match arguments.first().map(String::as_str) {
        Some("worst") => true,
        Some("granted") => false,
        _ => return Err("give worst or granted".into()),
    };
    let flows: usize = arguments.get(1).ok_or("how many flows?")?.parse()?;
    let seconds: f64 = arguments.get(2).map_or(Ok(1.0), |text| text.parse())?;

    let domain = Domain::new();
    let mut back = Interface::of_port(1, "back");
    back.v4.push(("198.19.0.1".parse()?, "198.19.0.0/24".parse()?));
    let interfaces = Interfaces::new(vec![Interface::of_port(0, "front"), back.clone()], 2);
    let policy = PolicyConfig {
        prefix: "192.0.2.0/24".into(),
        action: Action::Grantor,
        grantors: vec!["198.19.0.2".into()],
    };
    let section = GatekeeperSection {
        front: vec!["front".into()],
        policy: vec![policy],
        flows,
        ..GatekeeperSection::default()
    };
    let mut control = GatekeeperControl::new(&section, &interfaces, 1, &domain)?;
    if !worst {
        let verdict = Says::Granted {
            rate_kib_s: u32::MAX,
            expire_s: 1_000_000,
            renew_ms: u32::MAX,
            step_ms: 1_000_000,
            direct: false,
        };
        let decision = |n: u32| {
            let flow = Pair::V4 { src: source(n), dst: DESTINATION.to_bits() };
            Decision { flow, verdict }
        };
        let made = control.decide_before_start(0, Clock::wall().now_ns(0), (0..flows as u32).map(decision));
        if made != flows {
            return Err(format!("of {flows} flows {made} found room").into());
        }
    }
    let mut graph = router();
    let (table4, hops4) = way::<u32>(&domain, &back, EtherType::IPV4)?;
    let (table6, hops6) = way::<u128>(&domain, &back, EtherType::IPV6)?;
    let (views4, views6) = ((table4.view(), hops4.view()), (table6.view(), hops6.view()));
    let host = Host { ways4: Box::new(move |_| views4.clone()), ways6: Box::new(move |_| views6.clone()) };
    splice(&mut graph, &control, host);

    let measured = Arc::<Measured>::default();
    let front = Front {
        worst,
        flows,
        duration: Duration::from_secs_f64(seconds),
        frame: frame()?,
        next: 0,
        random: Rng::new(1),
        start: None,
        given: 0,
        measured: measured.clone(),
        counters: PortCounters::default(),
    };
    let memory = Memory::new(FRAMES, 2048)?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: FRAMES,
        pin: true,
        limits: Limits::default(),
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let ports: Vec<Vec<Box<dyn Port>>> = vec![vec![Box::new(front)], vec![Box::<Back>::default()]];
    let outcome = Engine::new(graph.build()?, 1, ports, &memory, &domain, options)?.run(|_| {});
    if let Some(error) = outcome.errors.into_iter().next() {
        return Err(error.into());
    }
    let [filling, filling_ns, packets, ns] =
        [0, 1, 2, 3].map(|at: usize| measured.0[at].load(Ordering::Relaxed));
    let counters = control.counters();
    let right = if worst { Counter::Requests } else { Counter::Granted };
    if counters.get(right) != packets || !outcome.snapshot.ledger().balances() {
        return Err(format!("of {packets} packets not all are right: {counters:?}").into());
    }
    let rate = |packets: u64, ns: u64| packets as f64 * 1e3 / ns.max(1) as f64;
    print!("{:.2} Mpps", rate(packets, ns));
    if worst {
        let full = rate(packets - filling, ns - filling_ns);
        print!(" (filling {:.2}, full {full:.2})", rate(filling, filling_ns));
    }
    println!();
    Ok(())
}
