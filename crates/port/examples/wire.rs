//! Network interfaces as a cable, or measured: what a port costs by itself. Needs root; Linux.
//!
//! ```sh
//! alias wire='cargo run --release -p tidemill-port --features xdp --example wire --'
//! wire bridge left right                         # until interrupted
//! wire rate left right                           # two ends of one veth: frames of 60 bytes, for 3 s
//! wire rate left right 1514 'kind="af_xdp"'      # the rest is the ports' configuration, in TOML
//! wire forward source left right sink 60 'kind="af_xdp"' 'mode="generic"'
//!                                                # source--left and right--sink are veth; left to right is measured
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemill_burst::{Burst, Memory, Pool};
use tidemill_port::{OpenContext, Port, PortCounters, PortSpec, RxStatus};

type Error = Box<dyn std::error::Error + Send + Sync>;

const SECONDS: u64 = 3;
/// Frames of each thread's pool.
const FRAMES: usize = 8192;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}

struct Lab {
    memory: Arc<Memory>,
    keys: String,
}

impl Lab {
    fn open(&self, interface: &str) -> Result<Box<dyn Port>, Error> {
        let spec: PortSpec = toml::from_str(&format!("name = \"{interface}\"\n{}", self.keys))?;
        let memory = [self.memory.clone()];
        let context = OpenContext { base: ".".as_ref(), table: None, memory: &memory };
        let open = spec.open_beside_kernel(1, &context)?;
        open.notes.iter().for_each(|note| eprintln!("{note}"));
        if let Some(rule) = open.rule {
            rule.set(&tidemill_port::Ownership::default())?;
        }
        open.queues.into_iter().next().ok_or_else(|| "no queue".into())
    }

    fn pool(&self) -> Result<Pool, Error> {
        Ok(self.memory.pool(FRAMES)?)
    }
}

/// Sends frames of this length until told to stop.
fn source(
    mut port: Box<dyn Port>,
    mut pool: Pool,
    len: usize,
    stop: &AtomicBool,
) -> Result<PortCounters, Error> {
    let mut frame = vec![0; len.max(14)];
    frame[..6].fill(0xFF);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    let mut burst = Burst::new();
    while !stop.load(Ordering::Relaxed) {
        while burst.room() > 0
            && let Some(packet) = pool.packet(&frame)
        {
            if let Err(packet) = burst.push(packet) {
                pool.free(packet);
            }
        }
        port.tx(now_ns(), &mut pool, &mut burst)?;
    }
    pool.free_all(&mut burst);
    port.finish(now_ns(), &mut pool)?;
    Ok(port.counters())
}

/// Receives until told to stop.
fn sink(mut port: Box<dyn Port>, mut pool: Pool, stop: &AtomicBool) -> Result<PortCounters, Error> {
    let mut burst = Burst::new();
    while !stop.load(Ordering::Relaxed) {
        port.rx(now_ns(), &mut pool, &mut burst)?;
        pool.free_all(&mut burst);
    }
    port.finish(now_ns(), &mut pool)?;
    Ok(port.counters())
}

/// Passes packets both ways until told to stop: what each has counted.
fn bridge(
    mut ports: [Box<dyn Port>; 2],
    mut pool: Pool,
    stop: &AtomicBool,
) -> Result<[PortCounters; 2], Error> {
    let (mut there, mut back, mut idle) = (Burst::new(), Burst::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let [a, b] = &mut ports;
        let went = a.rx(now_ns(), &mut pool, &mut there)?;
        b.tx(now_ns(), &mut pool, &mut there)?;
        let came = b.rx(now_ns(), &mut pool, &mut back)?;
        a.tx(now_ns(), &mut pool, &mut back)?;
        idle = if [went, came].contains(&RxStatus::Received) { 0 } else { idle + 1 };
        if idle > 64 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    pool.free_all(&mut there);
    pool.free_all(&mut back);
    for port in &mut ports {
        port.finish(now_ns(), &mut pool)?;
    }
    Ok(ports.map(|port| port.counters()))
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, Error>>) -> Result<T, Error> {
    thread.join().map_err(|_| "a thread panicked")?
}

fn main() -> Result<(), Error> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let Some((mode, rest)) = arguments.split_first() else {
        return Err("give bridge, rate or forward, and interfaces".into());
    };
    let count = if mode == "forward" { 4 } else { 2 };
    let (interfaces, rest) = rest.split_at_checked(count).ok_or("give more interfaces")?;
    let (len, keys) = match rest.split_first() {
        Some((len, keys)) if !len.contains('=') => (len.parse()?, keys),
        _ => (60, rest),
    };
    let keys = if keys.is_empty() { "kind = \"af_packet\"".to_owned() } else { keys.join("\n") };
    let lab = Lab { memory: Memory::new(4 * FRAMES, 2048)?, keys };
    let stop = AtomicBool::new(false);
    let ports = interfaces.iter().map(|interface| lab.open(interface)).collect::<Result<Vec<_>, _>>()?;
    let mut pools = (0..ports.len()).map(|_| lab.pool()).collect::<Result<Vec<_>, _>>()?.into_iter();
    let mut pool = || pools.next().ok_or("no pool");
    let mut ports = ports.into_iter();
    let mut port = || ports.next().ok_or("no port");
    let started = Instant::now();
    let mpps = |packets: u64| packets as f64 / started.elapsed().as_secs_f64() / 1e6;
    match mode.as_str() {
        "bridge" => bridge([port()?, port()?], pool()?, &stop).map(drop),
        "rate" => std::thread::scope(|scope| {
            let (a, b, pool_a, pool_b) = (port()?, port()?, pool()?, pool()?);
            let sends = scope.spawn(|| source(a, pool_a, len, &stop));
            let receives = scope.spawn(|| sink(b, pool_b, &stop));
            std::thread::sleep(Duration::from_secs(SECONDS));
            stop.store(true, Ordering::Relaxed);
            let (sent, received) = (joined(sends)?, joined(receives)?);
            println!(
                "{len} bytes: sent {:.3} Mpps, refused {:.3}, received {:.3}, lost in rings {:.3}",
                mpps(sent.tx.packets),
                mpps(sent.tx.dropped.total()),
                mpps(received.delivered()),
                mpps(received.rx.dropped.total())
            );
            Ok(())
        }),
        "forward" => std::thread::scope(|scope| {
            let (outside, left, right, end) = (port()?, port()?, port()?, port()?);
            let (pool_a, pool_b, pool_c) = (pool()?, pool()?, pool()?);
            let sends = scope.spawn(|| source(outside, pool_a, len, &stop));
            let passes = scope.spawn(|| bridge([left, right], pool_b, &stop));
            let receives = scope.spawn(|| sink(end, pool_c, &stop));
            std::thread::sleep(Duration::from_secs(SECONDS));
            stop.store(true, Ordering::Relaxed);
            let (sent, [left, right], received) = (joined(sends)?, joined(passes)?, joined(receives)?);
            println!(
                "{len} bytes: sent {:.3} Mpps; forwarder: in {:.3}, lost {:.3}, out {:.3}, refused {:.3}; received {:.3}, lost {:.3}",
                mpps(sent.tx.packets),
                mpps(left.delivered()),
                mpps(left.rx.dropped.total()),
                mpps(right.tx.packets),
                mpps(right.tx.dropped.total()),
                mpps(received.delivered()),
                mpps(received.rx.dropped.total())
            );
            Ok(())
        }),
        other => Err(format!("{other}: give bridge, rate or forward").into()),
    }
}
