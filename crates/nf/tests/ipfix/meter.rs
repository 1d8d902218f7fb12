//! The meter beside a map, packet by packet.

use etherparse::PacketBuilder;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidemill_nf::ipfix::{Ended, Meter, Record, Times};

const TIMES: Times = Times { idle_ms: 5000, active_ms: 20_000 };

/// A frame, its flow as text, and its bytes from the IP header on.
pub(crate) fn frame(random: &mut StdRng, hosts: u8) -> (Vec<u8>, String, u64) {
    let (a, b) = (random.random_range(1..=hosts), random.random_range(1..=hosts));
    let v6 = random.random_bool(0.5);
    let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
    let (from, to): (IpAddr, IpAddr) = match v6 {
        false => (Ipv4Addr::new(10, 0, 0, a).into(), Ipv4Addr::new(192, 0, 2, b).into()),
        true => (
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, a.into()).into(),
            Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, b.into()).into(),
        ),
    };
    let step = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from.octets(), to.octets(), 64),
        _ => panic!("of one family"),
    };
    let payload = vec![0; random.random_range(0..1000)];
    let (mut frame, port) = (Vec::new(), random.random_range(1..4_u16));
    let what = match random.random_range(0..3) {
        0 => {
            step.udp(port, 53).write(&mut frame, &payload).unwrap();
            format!("17 {port} 53 0")
        }
        1 => {
            let step = step.tcp(port, 80, 1, 1);
            let step = if random.random_bool(0.02) { step.fin() } else { step };
            step.write(&mut frame, &payload).unwrap();
            format!("6 {port} 80 0")
        }
        _ if v6 => {
            step.icmpv6_echo_request(port, 1).write(&mut frame, &payload).unwrap();
            format!("58 0 0 {}", 128 << 8)
        }
        _ => {
            step.icmpv4_echo_request(port, 1).write(&mut frame, &payload).unwrap();
            format!("1 0 0 {}", 8 << 8)
        }
    };
    let bytes = frame.len() as u64 - 14;
    (frame, format!("{from} {to} {what}"), bytes)
}

fn flow(record: &Record) -> String {
    let Record { source, destination, protocol, ports, icmp, .. } = record;
    format!("{source} {destination} {protocol} {} {} {icmp}", ports.0, ports.1)
}

#[test]
fn every_packet_is_in_one_record() {
    let mut random = StdRng::seed_from_u64(1);
    let mut meter = Meter::new(20_000, TIMES, 5).unwrap();
    // Packets and bytes of each flow.
    let mut sent: HashMap<String, (u64, u64)> = HashMap::new();
    let mut told = sent.clone();
    let mut reasons: HashMap<Ended, u32> = HashMap::new();
    let mut tell = |record: Record| {
        assert!(record.first_ms <= record.last_ms && record.packets > 0);
        let told = told.entry(flow(&record)).or_default();
        (told.0, told.1) = (told.0 + record.packets, told.1 + record.bytes);
        *reasons.entry(record.ended).or_default() += 1;
    };
    let mut now_ms = 1_000_000;
    let mut busy = false;
    for turn in 0..2000 {
        now_ms += if turn % 97 == 0 { random.random_range(0..20_000) } else { random.random_range(0..300) };
        let frames: Vec<_> = (0..random.random_range(0..40)).map(|_| frame(&mut random, 12)).collect();
        for (_, flow, bytes) in &frames {
            let sent = sent.entry(flow.clone()).or_default();
            (sent.0, sent.1) = (sent.0 + 1, sent.1 + bytes);
        }
        meter.count(now_ms, frames.iter().map(|(frame, ..)| (frame.as_slice(), 0)));
        // Sometimes nobody has time.
        busy = if turn % 50 == 0 { random.random_bool(0.5) } else { busy };
        meter.sweep(now_ms, 10, |record| {
            if !busy {
                tell(record);
            }
            !busy
        });
    }
    meter.drain(&mut tell);
    assert!(meter.is_empty() && meter.waited() > 100);
    assert_eq!(sent, told);
    assert_eq!(meter.outsiders(), Default::default());
    assert!(reasons.values().all(|count| *count > 20) && reasons.len() == 4, "{reasons:?}");
}

#[test]
fn what_has_no_room_is_counted() {
    let mut meter = Meter::new(31, TIMES, 5).unwrap();
    let mut random = StdRng::seed_from_u64(2);
    let frames: Vec<_> = (0..5000).map(|_| frame(&mut random, 200)).collect();
    meter.count(1000, frames.iter().map(|(frame, ..)| (frame.as_slice(), 0)));
    meter.count(1000, [(&[0_u8; 60][..], 0), (&[0; 5][..], 0)].into_iter());
    let mut cut = frames[0].0.clone();
    cut[14] = 0;
    meter.count(1000, [(cut.as_slice(), 0)].into_iter());
    let (mut packets, mut bytes) = (0, 0);
    meter.drain(|record| (packets, bytes) = (packets + record.packets, bytes + record.bytes));
    let outsiders = meter.outsiders();
    assert_eq!((outsiders.not_ip, outsiders.malformed), (2, 1));
    assert!(outsiders.full > 4000 && packets > 60, "{outsiders:?} {packets}");
    assert_eq!(packets + outsiders.full, 5000);
    assert_eq!(bytes + outsiders.full_bytes, frames.iter().map(|(.., bytes)| bytes).sum::<u64>());
}

/// The connection's own times and reasons: a second after a FIN; idle; long.
#[test]
fn flows_end_by_what_they_are() {
    let mut meter = Meter::new(100, TIMES, 5).unwrap();
    let segment = |fin: bool| {
        let step =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(9, 80, 1, 1);
        let mut frame = Vec::new();
        (if fin { step.fin() } else { step.psh() }).write(&mut frame, &[0; 10]).unwrap();
        frame
    };
    let mut told = Vec::new();
    let mut step = |now_ms: u64, fin: Option<bool>| {
        meter.count(now_ms, fin.map(segment).iter().map(|frame| (frame.as_slice(), 3)));
        meter.sweep(now_ms, 1, |record| {
            told.push((now_ms, record.ended, record.packets, record.flags, record.first_ms, record.last_ms));
            true
        });
    };
    // It goes on every 4 s for 40 s, then says that it is over, and 500 ms later once more.
    (0..=10).for_each(|n| step(n * 4000, Some(false)));
    step(41_000, Some(true));
    step(41_500, Some(false));
    step(42_400, None);
    step(42_600, None);
    // Another one is silent.
    step(50_000, Some(false));
    step(54_900, None);
    step(55_000, None);
    assert_eq!(
        told,
        [
            (20_000, Ended::Active, 6, 8, 0, 20_000),
            // What is told next begins with the packet after that, and so does its time.
            (42_600, Ended::Over, 7, 9, 24_000, 41_500),
            (55_000, Ended::Idle, 1, 8, 50_000, 50_000),
        ]
    );
    assert!(meter.is_empty());
}
