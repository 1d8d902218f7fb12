//! What the mitigator would have made of a link's traffic: a capture of both directions in, what would have passed out.
//!
//! `cargo run --release -p tidemill-amp --example mitigate -- IN.pcap 10.0.0.0/8 OUT.pcapng`
//!
//! Packets from the prefix come from inside, all others from outside. A capture is fixed: victims complained of packets that the mitigator would have
//! kept from them, and would not have complained again. Prints the counters and what was kept away most.

use std::net::IpAddr;
use std::path::Path;
use tidemill_amp::{IpPrefix, MitigatorControl, MitigatorSection, Side, TopBy};
use tidemill_burst::{Burst, Memory, Packet};
use tidemill_lookup::qsbr::Domain;
use tidemill_port::{PcapPort, Playback, Port, RxStatus};
use tidemill_wire::flow::Addresses;
use tidemill_wire::{flow_key, vlan};

/// The side that a packet comes from, by its source address.
fn side(packet: &Packet, inside: &IpPrefix) -> Side {
    let l2 = vlan::L2::parse(packet.data()).ok();
    let key = l2.and_then(|l2| flow_key(packet.data(), l2.l3_offset));
    let source: Option<IpAddr> = key.map(|key| match key.addresses {
        Addresses::V4 { src, .. } => IpAddr::V4(src.into()),
        Addresses::V6 { src, .. } => IpAddr::V6(src.into()),
    });
    if source.is_some_and(|source| inside.contains(source)) { Side::Inside } else { Side::Outside }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, prefix, output] = &args[..] else { return Err("usage: mitigate IN PREFIX OUT".into()) };
    let inside = IpPrefix::parse(prefix)?;

    // The control side, and its one worker's half, which a graph would have otherwise.
    let names = ["outside".to_string(), "inside".to_string()];
    let control = MitigatorControl::new(&MitigatorSection::default(), &names, 1, &Domain::new())?;
    let mut mitigator = control.mitigator(0).ok_or("the worker's half is gone")?;
    let settings = control.settings().clone();

    let mut source = PcapPort::open("in", Some(&Playback::once(Path::new(input))), None, 1)?;
    let mut sink = PcapPort::open("out", None, Some(Path::new(output)), 1)?;
    let mut pool = Memory::new(1024, 32_768)?.pool(1024)?;
    let (mut burst, mut passed, mut now_ns, mut packets) = (Burst::new(), Burst::new(), 0, 0_u64);
    loop {
        let status = source[0].rx(now_ns, &mut pool, &mut burst)?;
        for packet in burst.drain() {
            // One by one: who answered whom must stay in order.
            now_ns = packet.timestamp_ns();
            let one = [(side(&packet, &inside), packet.data())];
            let mut drops = false;
            mitigator.decide(&settings, now_ns, &one, |(side, bytes)| (*side, *bytes), |_| drops = true);
            mitigator.tick(&settings, now_ns);
            packets += 1;
            if drops {
                pool.free(packet);
            } else if let Err(packet) = passed.push(packet) {
                pool.free(packet);
            }
        }
        sink[0].tx(now_ns, &mut pool, &mut passed)?;
        if status == RxStatus::Ended {
            break;
        }
    }
    sink[0].finish(now_ns, &mut pool)?;
    println!("{packets} packets");
    for (counter, n) in control.counters().nonzero() {
        println!("{:20} {n:>10}  {}", counter.name(), counter.help());
    }
    for line in control.top(TopBy::Victim, 10, now_ns) {
        println!(
            "{}: {} packets, {} bytes kept away by {} rules",
            line.key, line.hits.packets, line.hits.bytes, line.rules
        );
    }
    Ok(())
}
