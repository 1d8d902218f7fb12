//! What goes on for long: nothing is allocated, floods end at the tables' edges, and when they are over there is room again.

use crate::allocations::allocations;
use crate::packets::*;
use tidemill_burst::DropReason;
use tidemill_nf::nat::config::Filtering;
use tidemill_nf::nat::{Fate, Now, Way};

#[test]
fn nothing_is_allocated_while_packets_flow() {
    let mut lab = Lab::<u32, 1, 2, 4>::with(|plan| {
        plan.filtering = Filtering::EndpointIndependent;
        (plan.mappings, plan.sessions, plan.host_mappings) = (300, 400, 1000);
    });
    let remote = end(u32::remote(1), 53);
    let mut burst: Vec<(Way, Vec<u8>)> = Vec::new();
    for n in 0..400_u16 {
        let inside = end(u32::inside((n % 200) as u8), 2000 + n);
        burst.push((Way::Leaving, udp(inside, remote, b"question")));
        burst.push((Way::Leaving, tcp(inside, remote, SYN)));
        burst.push((Way::ToPool, udp(remote, end(u32::pool(1), 2000 + n), b"answer")));
        burst.push((Way::ToPool, tcp(remote, end(u32::pool(1), 2000 + n), SYN | ACK)));
        burst.push((Way::Hairpin, udp(inside, end(u32::pool(1), 2001 + n), b"hello")));
        burst.push((Way::Leaving, echo(inside.address, remote.address, n, false)));
        let about = udp(end(u32::pool(1), 2000 + n), remote, b"question");
        burst.push((Way::ToPool, error(u32::remote(2), u32::pool(1), &about)));
        let pieces = fragments::<u32, 1, 2, 4>(&udp(inside, remote, &[0; 100]), 48, n);
        burst.extend(pieces.into_iter().rev().map(|piece| (Way::Leaving, piece)));
    }
    let mut fates = [0_u32; 3];
    let mut packet = [0_u8; 256];
    let before = allocations();
    for _ in 0..20 {
        for (way, bytes) in &burst {
            let packet = &mut packet[..bytes.len()];
            packet.copy_from_slice(bytes);
            let now = Now { ms: lab.ms, times: &lab.times, owners: &lab.owners, near: &[] };
            match lab.nat.translate(&now, *way, packet) {
                Fate::Translated | Fate::First(..) => fates[0] += 1,
                Fate::Tell(_) | Fate::Drop(DropReason::NatTableFull) => fates[1] += 1,
                _ => fates[2] += 1,
            }
        }
        lab.ms += 50_000;
        lab.nat.reclaim(lab.ms, 4);
    }
    assert_eq!(allocations(), before, "allocated");
    assert!(fates.iter().all(|count| *count > 1000), "{fates:?}");
}

#[test]
fn a_scan_from_inside_fills_the_tables_and_goes_away() {
    let mut lab = Lab::<u32, 1, 2, 4>::with(|plan| (plan.mappings, plan.sessions) = (500, 1000));
    let (old, remote) = (end(u32::inside(9), 9), end(u32::remote(1), 80));
    let looks = lab.tcp_out(old, remote, SYN).unwrap();
    assert_eq!(lab.tcp_in(remote, looks, SYN | ACK), Ok(old));
    let mut refused = 0;
    for n in 0..5000_u32 {
        let target = end(n.wrapping_mul(0x9e37_79b9), 1 + (n % 1000) as u16);
        refused += u32::from(lab.tcp_out(end(u32::inside(1), 1024 + (n % 400) as u16), target, SYN).is_err());
    }
    assert_eq!((refused, lab.nat.state().sessions()), (5000 - 999, 1000), "without a limit");
    assert_eq!(lab.tcp_in(remote, looks, ACK), Ok(old), "what was there goes on");
    lab.ms += 240_000;
    assert_eq!(lab.tcp_in(remote, looks, ACK), Ok(old));
    assert_eq!((lab.nat.state().sessions(), lab.nat.state().mappings()), (1, 1));
    for n in 0..400_u16 {
        lab.out(end(u32::inside(1), 2000 + n), remote);
    }
}
