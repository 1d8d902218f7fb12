//! How fast packets come out of a null port and go into another, on one core:
//! `cargo run --release -p tidemill-port --example null_rate`. Counts the thread's CPU time where the system tells it
//! (Linux), so that a busy machine does not show. Captures named on the command line are played too, from the file and
//! from memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;
use tidemill_burst::{Burst, Memory};
use tidemill_port::generator::{GeneratorPort, Kind, PublicV4, Sizes, Traffic};
use tidemill_port::{NullPort, PcapPort, Playback, Port, RxStatus, Supply};

const PACKETS: u64 = 4_000_000;

/// Seconds on the CPU.
fn cpu_s(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns: Option<f64> = stat.and_then(|stat| stat.split_whitespace().next()?.parse().ok());
    ns.map_or_else(|| since.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

fn rate(name: &str, mut source: impl FnMut() -> Box<dyn Port>) -> Result<(), Box<dyn std::error::Error>> {
    let mut pool = Memory::new(1024, 2048)?.pool(1024)?;
    let mut burst = Box::new(Burst::new());
    let (mut rates, started) = (Vec::new(), Instant::now());
    for _ in 0..7 {
        let (mut source, mut sink) = (source(), NullPort::new("out", Supply::Nothing, 0, None));
        let start = cpu_s(started);
        while source.rx(0, &mut pool, &mut burst)? == RxStatus::Received {
            sink.tx(0, &mut pool, &mut burst)?;
        }
        rates.push(sink.counters().tx.packets as f64 / (cpu_s(started) - start) / 1e6);
    }
    rates.sort_by(f64::total_cmp);
    println!("{name:<40} {:6.1} Mpps (median of 7; {:.1} to {:.1})", rates[3], rates[0], rates[6]);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let v4 = |n: u32| -> Vec<IpAddr> {
        (0..n).map(|i| Ipv4Addr::from_bits(i.wrapping_mul(0x9E37_79B1)).into()).collect()
    };
    let v6: Vec<IpAddr> =
        (0..65536u128).map(|i| Ipv6Addr::from_bits(0x2000 << 112 | i << 64).into()).collect();
    for (name, frame_len, addresses) in [
        ("64 bytes, 2^16 IPv4 destinations", 64, v4(1 << 16)),
        ("64 bytes, 2^20 IPv4 destinations", 64, v4(1 << 20)),
        ("64 bytes, 2^16 IPv6 destinations", 64, v6),
        ("1518 bytes, 2^16 IPv4 destinations", 1518, v4(1 << 16)),
    ] {
        let supply = Supply::Destinations { frame_len, addresses: addresses.into() };
        rate(name, || Box::new(NullPort::new("in", supply.clone(), 0, Some(PACKETS))))?;
    }
    let frames = Supply::Frames(vec![vec![7; 60]; 256].into());
    rate("60-byte frames as they are", || Box::new(NullPort::new("in", frames.clone(), 0, Some(PACKETS))))?;
    for file in std::env::args().skip(1) {
        for preload in [false, true] {
            let playback = Playback { repeat: 20, preload, ..Playback::once(&file) };
            // Opened once before the clock runs, so that an error shows and the file is in the page cache.
            PcapPort::open("in", Some(&playback), None, 1)?;
            let how = if preload { "from memory" } else { "from the file" };
            let open = || match PcapPort::open("in", Some(&playback), None, 1).map(|mut ports| ports.pop()) {
                Ok(Some(port)) => Box::new(port) as Box<dyn Port>,
                _ => Box::new(NullPort::new("in", Supply::Nothing, 0, None)),
            };
            rate(&format!("{file} {how}"), open)?;
        }
    }
    rate("generator, UDP, 64 bytes, random", || {
        let traffic = Traffic {
            seed: 1,
            limit: Some(PACKETS / 4),
            rate_pps: None,
            sizes: Sizes::Even(vec![64]),
            mix: vec![(Kind::Udp, 1)],
            sources: Box::new(PublicV4),
            destinations: Box::new(PublicV4),
        };
        match GeneratorPort::new("in", traffic) {
            Ok(port) => Box::new(port) as Box<dyn Port>,
            Err(_) => Box::new(NullPort::new("in", Supply::Nothing, 0, None)),
        }
    })?;
    Ok(())
}
