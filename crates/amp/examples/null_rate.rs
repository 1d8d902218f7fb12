//! The rate of the whole path: a source of minimum-size DNS answers, the mitigator, a sink.
//!
//! `cargo run --release -p tidemill-amp --example null_rate -- [FLOWS] [SECONDS] [filtered|suspected]`
//!
//! Frames have 60 bytes, 64 with the frame check sequence; flows come in turn. `filtered` (the default): every flow's victim has complained before, so
//! that every packet is looked up, counted and dropped; `suspected`: nobody complains, everything is looked up and passes. Prints the rate per
//! core and the time per packet of each node and port (dispatch included). The first rate counts the time that the worker had a core (Linux), the
//! second all time: they differ on a busy machine.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidemill_amp::{MitigatorControl, MitigatorSection, graph};
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_graph::{Clock, Engine, Limits, Options};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{NullPort, Port, PortCounters, PortError, RxStatus, Supply};
use tidemill_wire::{checksum, icmpv4, ipv4};

/// The source, which also notes how long its thread has had a core: at the first call, and at the end.
struct Timed(NullPort, Arc<[AtomicU64; 2]>);

fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

impl Port for Timed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn rx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<RxStatus, PortError> {
        if self.1[0].load(Ordering::Relaxed) == 0 {
            self.1[0].store(cpu_ns(), Ordering::Relaxed);
        }
        self.0.rx(now_ns, pool, burst)
    }

    fn tx(&mut self, now_ns: u64, pool: &mut Pool, burst: &mut Burst) -> Result<(), PortError> {
        self.0.tx(now_ns, pool, burst)
    }

    fn finish(&mut self, now_ns: u64, pool: &mut Pool) -> Result<(), PortError> {
        self.1[1].store(cpu_ns(), Ordering::Relaxed);
        self.0.finish(now_ns, pool)
    }

    fn counters(&self) -> PortCounters {
        self.0.counters()
    }
}

/// An answer of amplifier `n`, and the victim's complaint: complete frames.
fn frames(n: u32) -> [Vec<u8>; 2] {
    let link = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let (amplifier, victim) = ((0x0900_0000 + n).to_be_bytes(), [10, 0, 0, 1]);
    let header = |protocol: u8, src: [u8; 4], dst: [u8; 4], payload: usize| {
        let mut bytes = vec![0x45, 0, 0, (20 + payload) as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        bytes.extend_from_slice(&src);
        bytes.extend_from_slice(&dst);
        ipv4::fill_checksum(&mut bytes);
        bytes
    };
    let mut answer = header(17, amplifier, victim, 26);
    answer.extend_from_slice(&[0, 53, 0x9c, 0x40, 0, 26, 0, 0]);
    answer.resize(46, 0);
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&answer[..28]);
    icmpv4::fill_checksum(&mut message);
    debug_assert!(checksum::is_valid(&message));
    let complaint = [header(1, victim, amplifier, message.len()), message].concat();
    [[&link[..], &answer].concat(), [&link[..], &complaint].concat()]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flows: u32 = arguments.first().map_or(Ok(1000), |text| text.parse())?;
    let seconds: f64 = arguments.get(1).map_or(Ok(3.0), |text| text.parse())?;
    let filtered = arguments.get(2).is_none_or(|text| text == "filtered");

    let domain = Domain::new();
    let names = ["outside".to_string(), "inside".to_string()];
    let section = MitigatorSection {
        entries: (flows as usize).max(1 << 18),
        icmp_rate: 0,
        ..MitigatorSection::default()
    };
    let control = MitigatorControl::new(&section, &names, 1, &domain)?;
    let (answers, complaints): (Vec<_>, Vec<_>) = (0..flows).map(frames).map(|[a, b]| (a, b)).unzip();
    // Each flow once, then what its victim says about it: the inside port comes second in each round.
    let supply = |frames: Vec<Vec<u8>>| Supply::Frames(frames.into());
    let outside = NullPort::new("outside", supply(answers), 0, None);
    let inside = match filtered {
        true => NullPort::new("inside", supply(complaints), 0, Some(flows.into())),
        false => NullPort::new("inside", Supply::Nothing, 0, None),
    };

    let memory = Memory::new(4096, 2048)?;
    let options = Options {
        clock: Clock::wall(),
        frames_per_worker: 4096,
        pin: true,
        limits: Limits { packets: None, duration: Some(Duration::from_secs_f64(seconds)) },
        traces: Vec::new(),
        describe: |_| String::new(),
    };
    let cpu: Arc<[AtomicU64; 2]> = Arc::default();
    let queues: Vec<Vec<Box<dyn Port>>> =
        vec![vec![Box::new(Timed(outside, cpu.clone()))], vec![Box::new(inside)]];
    let built = graph(&control).build()?;
    let outcome = Engine::new(built, 1, queues, &memory, &domain, options)?.run(|_| {});
    let snapshot = outcome.snapshot;
    let ledger = snapshot.ledger();
    println!(
        "in {} out {} dropped {:?} balances {}",
        ledger.received,
        ledger.out,
        ledger.dropped,
        ledger.balances()
    );
    for (counter, n) in control.counters().nonzero() {
        println!("  {:20} {n}", counter.name());
    }
    let cpu_ns = cpu[1].load(Ordering::Relaxed).saturating_sub(cpu[0].load(Ordering::Relaxed));
    println!(
        "{:.2} Mpps per core ({:.2} by the wall clock)",
        ledger.received as f64 * 1e3 / cpu_ns.max(1) as f64,
        ledger.mpps
    );
    let per_packet = |ns: u64| ns as f64 / ledger.received.max(1) as f64;
    for (name, ns) in ["outside", "inside"].iter().zip(&snapshot.port_ns) {
        println!("  port:{name:15} {:6.2} ns/packet", per_packet(ns.0 + ns.1));
    }
    for node in &snapshot.nodes {
        println!("  mitigate             {:6.2} ns/packet", per_packet(node.busy_ns));
    }
    Ok(())
}
