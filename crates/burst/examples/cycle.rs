//! What the packet memory costs per packet: `cargo run --release -p tidemill-burst --example cycle`.
//!
//! Each line is the median of several runs of take - (touch) - free in bursts of 256, on one core, in CPU time where the
//! system tells it (Linux), so that a busy machine does not show.

use std::hint::black_box;
use std::time::Instant;
use tidemill_burst::{BURST, Burst, Memory, Pool};

const ROUNDS: usize = 20_000;

/// Seconds on the CPU.
fn cpu_s(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns: Option<f64> = stat.and_then(|stat| stat.split_whitespace().next()?.parse().ok());
    ns.map_or_else(|| since.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

fn median(name: &str, mut once: impl FnMut()) {
    let started = Instant::now();
    let mut runs: Vec<f64> = (0..7)
        .map(|_| {
            let start = cpu_s(started);
            (0..ROUNDS).for_each(|_| once());
            (cpu_s(started) - start) * 1e9 / (ROUNDS * BURST) as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<44} {:6.2} ns/packet  {:7.1} Mpps", runs[3], 1e3 / runs[3]);
}

fn fill(pool: &mut Pool, burst: &mut Burst) {
    while burst.room() > 0 {
        let Some(packet) = pool.take() else { break };
        if burst.push(packet).is_err() {
            break;
        }
    }
}

fn main() -> std::io::Result<()> {
    for frames in [512, 8192] {
        let memory = Memory::new(2 * frames, 2048)?;
        let mut pool = memory.pool(frames)?;
        let mut other = memory.pool(frames)?;
        let mut burst = Box::new(Burst::new());
        println!("{frames} frames, {:?} pages", memory.pages());
        median("take, free", || {
            fill(&mut pool, &mut burst);
            burst.drain().for_each(|packet| pool.free(black_box(packet)));
        });
        let template = black_box([7u8; 64]);
        median("take, copy 64 bytes in, free", || {
            fill(&mut pool, &mut burst);
            for packet in burst.iter_mut() {
                packet.set_len(64);
                packet.data_mut().copy_from_slice(&template);
            }
            burst.drain().for_each(|packet| pool.free(black_box(packet)));
        });
        median("the same, with a timestamp", || {
            fill(&mut pool, &mut burst);
            for packet in burst.iter_mut() {
                packet.set_len(64);
                packet.data_mut().copy_from_slice(&template);
                packet.set_timestamp_ns(1);
            }
            burst.drain().for_each(|packet| pool.free(black_box(packet)));
        });
        median("take, free from another pool (return ring)", || {
            fill(&mut pool, &mut burst);
            burst.drain().for_each(|packet| other.free(black_box(packet)));
        });
    }
    Ok(())
}
