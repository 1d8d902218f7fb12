//! Two network interfaces as a cable, or measured: what an `af_packet` port costs by itself. Needs root.
//!
//! ```sh
//! cargo run --release -p tidemill-port --example wire -- bridge left right     # until interrupted
//! cargo run --release -p tidemill-port --example wire -- rate left right 60    # two ends of one veth: 60-byte frames
//! ```

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
    use tidemill_burst::{Burst, Memory};
    use tidemill_port::packet::{Options, open};
    use tidemill_port::{Port, RxStatus};

    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [mode, a, b, rest @ ..] = arguments.as_slice() else {
        return Err("give bridge or rate, and two interfaces".into());
    };
    let now_ns =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
    let port = |name: &String| open(name, name, 1, &Options::default()).map(|mut queues| queues.remove(0));
    let memory = Memory::new(16384, 2048)?;
    let mut pool = memory.pool(8192)?;
    let mut burst = Burst::new();
    if mode == "bridge" {
        let (mut ports, mut back) = ([port(a)?, port(b)?], Burst::new());
        let mut idle = 0;
        loop {
            let [a, b] = &mut ports;
            let there = a.rx(now_ns(), &mut pool, &mut burst)?;
            b.tx(now_ns(), &mut pool, &mut burst)?;
            let here = b.rx(now_ns(), &mut pool, &mut back)?;
            a.tx(now_ns(), &mut pool, &mut back)?;
            idle = if [there, here].contains(&RxStatus::Received) { 0 } else { idle + 1 };
            if idle > 64 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
    let len: usize = rest.first().map_or(Ok(60), |len| len.parse())?;
    let (mut sender, mut receiver) = (port(a)?, port(b)?);
    let mut frame = vec![0; len.max(14)];
    frame[..6].fill(0xFF);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    let receive = std::thread::spawn(move || {
        let mut pool = memory.pool(8192).ok()?;
        let (mut burst, started) = (Burst::new(), Instant::now());
        while started.elapsed() < Duration::from_secs(4) {
            receiver.rx(now_ns(), &mut pool, &mut burst).ok()?;
            pool.free_all(&mut burst);
        }
        Some((receiver.counters(), receiver.freezes()))
    });
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        while burst.room() > 0 {
            let packet = pool.packet(&frame).ok_or("no frame")?;
            if burst.push(packet).is_err() {
                break;
            }
        }
        sender.tx(now_ns(), &mut pool, &mut burst)?;
    }
    let sent = sender.counters().tx;
    let (received, freezes) = receive.join().ok().flatten().ok_or("the receiver failed")?;
    let mpps = |packets: u64| packets as f64 / 3e6;
    println!(
        "{len} bytes: sent {:.2} Mpps, received {:.2} Mpps, lost in the ring {:.2} Mpps ({freezes} times full)",
        mpps(sent.packets),
        mpps(received.delivered()),
        mpps(received.rx.dropped.total()),
    );
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("af_packet ports are Linux's");
}
