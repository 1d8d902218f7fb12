//! What goes on for long: nothing is allocated; bytes that are no packets are no trouble.

use crate::allocations::allocations;
use crate::packets::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_nf::filter::settings::Plan;
use tidemill_nf::filter::{Fate, Filter, Net, Rules, Ways};

const RULES: &str = "table <bad> { 10.0.0.200/29, 2001:db8::c0/124 }\nblock log all\npass in on lan\npass out on wan\nblock quick from <bad>\n\
    pass in on wan proto tcp to port 80\npass out on lan proto tcp to port 80\n";

#[test]
fn nothing_is_allocated_while_packets_flow() {
    let plan = Plan {
        states: 300,
        states_per_source: 60,
        half_open: 50,
        half_open_per_source: 10,
        unanswered: 80,
        unanswered_per_source: 30,
        fragments: 64,
    };
    let mut lab = Lab::with(RULES, plan, true);
    let mut packets = Vec::new();
    for n in 0..400_u16 {
        let (inside, remote) = (ip(&format!("10.0.0.{}", n % 250 + 1)), ip("192.0.2.1"));
        let (inside6, remote6) = (ip(&format!("2001:db8::{:x}", n % 250 + 1)), ip("2001:db8:1::1"));
        for (inside, remote) in [(inside, remote), (inside6, remote6)] {
            packets.push((OUTWARD, packet(inside, remote, Body::Udp(2000 + n, 53))));
            packets.push((INWARD, packet(remote, inside, Body::Udp(53, 2000 + n))));
            packets.push((OUTWARD, packet(inside, remote, Body::Tcp(2000 + n, 80, segment(SYN, 1, 0)))));
            packets.push((INWARD, packet(remote, inside, Body::Tcp(2000 + n, 80, segment(SYN, 1, 0)))));
            packets.push((INWARD, packet(remote, inside, Body::Tcp(80, 2000 + n, segment(SYN | ACK, 1, 2)))));
            packets.push((OUTWARD, packet(inside, remote, Body::Echo(n, true))));
            packets.push((INWARD, error(remote, inside, &packet(inside, remote, Body::Udp(2000 + n, 53)))));
            packets.push((INWARD, packet(remote, inside, Body::Other(50))));
        }
        let long = tidemill_nf::filter::tcp::Segment { len: 100, ..segment(SYN, 1, 0) };
        let pieces = fragments(&packet(inside, remote, Body::Tcp(2000 + n, 80, long)), 48, n);
        packets.extend(pieces.into_iter().rev().map(|piece| (OUTWARD, piece)));
    }
    let mut fates = [0_u32; 4];
    let before = allocations();
    for _ in 0..10 {
        for (ways, bytes) in &packets {
            let fate = match bytes[0] >> 4 {
                6 => lab.v6.judge_one(lab.ms, &lab.rules, *ways, bytes),
                _ => lab.v4.judge_one(lab.ms, &lab.rules, *ways, bytes),
            };
            fates[match fate {
                Fate::Passes => 0,
                Fate::Drop(_) => 1,
                Fate::Waits(_) => 2,
                Fate::Tell(_) => 3,
            }] += 1;
        }
        lab.ms += 20_000;
        lab.v4.reclaim(lab.ms, 3);
        lab.v6.reclaim(lab.ms, 3);
        while lab.log.pop().is_some() {}
    }
    assert_eq!(allocations(), before, "allocated");
    assert!(fates[..3].iter().all(|count| *count > 1000), "{fates:?}");

    // The same in bursts, which are looked up ahead.
    let (v6, v4): (Vec<_>, Vec<_>) = packets.into_iter().partition(|(_, bytes)| bytes[0] >> 4 == 6);
    let before = allocations();
    for _ in 0..10 {
        judge_all(&mut lab.v4, &lab.rules, lab.ms, &v4);
        judge_all(&mut lab.v6, &lab.rules, lab.ms, &v6);
        lab.ms += 20_000;
        lab.v4.reclaim(lab.ms, 3);
        lab.v6.reclaim(lab.ms, 3);
        while lab.log.pop().is_some() {}
    }
    assert_eq!(allocations(), before, "allocated for a burst");
}

fn judge_all<A: Net<W>, const W: usize>(
    filter: &mut Filter<A, W>,
    rules: &Rules,
    ms: u64,
    packets: &[(Ways, Vec<u8>)],
) {
    for burst in packets.chunks(256) {
        filter.read(rules, burst.iter().map(|(ways, bytes)| (*ways, &bytes[..])));
        filter.look_up(rules);
        for (place, (_, bytes)) in burst.iter().enumerate() {
            filter.judge(place, ms, rules, bytes);
        }
    }
}

#[test]
fn any_bytes_are_judged() {
    let mut lab = Lab::with(RULES, plan(), true);
    let mut random = StdRng::seed_from_u64(11);
    let mut whole = Vec::new();
    for (inside, remote) in [("10.0.0.5", "192.0.2.1"), ("2001:db8::5", "2001:db8:1::1")] {
        let (inside, remote) = (ip(inside), ip(remote));
        for body in [
            Body::Udp(7, 8),
            Body::Tcp(7, 80, segment(SYN, 1, 0)),
            Body::Echo(7, true),
            Body::Other(50),
            Body::Icmp(3, 3),
        ] {
            whole.push(packet(inside, remote, body));
        }
        whole.push(error(remote, inside, &whole[0]));
    }
    let mut passed = 0;
    for _ in 0..40_000 {
        let mut bytes = whole[random.random_range(0..whole.len())].clone();
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        bytes.truncate(random.random_range(bytes.len() / 2..=bytes.len()));
        let ways = if random.random_bool(0.5) { OUTWARD } else { INWARD };
        passed += u32::from(lab.v4.judge_one(lab.ms, &lab.rules, ways, &bytes) == Fate::Passes);
        passed += u32::from(lab.v6.judge_one(lab.ms, &lab.rules, ways, &bytes) == Fate::Passes);
        lab.ms += 10;
    }
    assert!(passed > 100, "{passed}");
    assert_eq!(
        lab.v4.judge_one(lab.ms, &lab.rules, OUTWARD, &[]),
        Fate::Drop(tidemill_burst::DropReason::FilterMalformed)
    );
}
