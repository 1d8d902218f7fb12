//! How fast packets go from one DPDK device to another through the `Port` trait, both ways, on one core, without a look at
//! them: `cargo run --release -p tidemill-port --features dpdk --example dpdk_rate -- [SECONDS [BURST [DEVICE DEVICE]]]`. The devices
//! are two of `net_null` if none are named. Counts the thread's CPU time, so that a busy machine does not show. The same of
//! DPDK's own:
//!
//! ```text
//! dpdk-testpmd -l 0,1 --no-pci --in-memory --vdev=net_null0 --vdev=net_null1 -- --forward-mode=io --stats-period 1
//! ```

use std::time::{Duration, Instant};
use tidemill_burst::{Burst, Memory};
use tidemill_port::Port;
use tidemill_port::dpdk::{Options, open};

/// Nanoseconds on the CPU.
fn cpu_ns(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns: Option<f64> = stat.and_then(|stat| stat.split_whitespace().next()?.parse().ok());
    ns.unwrap_or_else(|| since.elapsed().as_nanos() as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: f64 = arguments.first().map_or(Ok(3.0), |text| text.parse())?;
    let burst = arguments.get(1).map(|text| text.parse()).transpose()?;
    let options = Options { burst, ..Options::default() };
    let device = |at: usize, default: &str| arguments.get(at).map_or(default, String::as_str).to_owned();
    let memory = Memory::new(8192, 2048)?;
    let mut pool = memory.pool(8192)?;
    let one = |device: String| -> Result<_, Box<dyn std::error::Error>> {
        let mut queues = open(&device, &device, &options, std::slice::from_ref(&memory))?;
        Ok(queues.remove(0))
    };
    let mut a = one(device(2, "net_null0"))?;
    let mut b = one(device(3, "net_null1"))?;
    let mut burst = Box::new(Burst::new());
    let (started, mut now_ns) = (Instant::now(), 0);
    let (mut marked, mut before, mut rates) = (cpu_ns(started), 0, Vec::new());
    let mut slice = Instant::now();
    while started.elapsed() < Duration::from_secs_f64(seconds) {
        for _ in 0..1000 {
            now_ns += 10_000;
            a.rx(now_ns, &mut pool, &mut burst)?;
            b.tx(now_ns, &mut pool, &mut burst)?;
            pool.free_all(&mut burst);
            b.rx(now_ns, &mut pool, &mut burst)?;
            a.tx(now_ns, &mut pool, &mut burst)?;
            pool.free_all(&mut burst);
        }
        if slice.elapsed() >= Duration::from_millis(200) {
            let (sent, now) = (a.counters().tx.packets + b.counters().tx.packets, cpu_ns(started));
            if sent > before {
                rates.push((now - marked) / (sent - before) as f64);
            }
            (marked, before, slice) = (now, sent, Instant::now());
        }
    }
    rates.sort_by(f64::total_cmp);
    let Some(median) = rates.get(rates.len() / 2) else { return Err("nothing was forwarded".into()) };
    println!(
        "{:.2} ns per packet, {:.1} Mpps (median of {}; best {:.2} ns)",
        median,
        1e3 / median,
        rates.len(),
        rates[0]
    );
    a.finish(now_ns, &mut pool)?;
    b.finish(now_ns, &mut pool)?;
    let stats = pool.stats();
    if (stats.free, stats.unnamed) != (stats.frames, 0) {
        return Err(format!("not all frames are home: {stats:?}").into());
    }
    Ok(())
}
