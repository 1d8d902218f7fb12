//! What only one family has, or one is enough for: IPv6's headers, ports by computation (RFC 7422), checksums.

use crate::packets::*;
use tidemill_burst::DropReason;
use tidemill_nf::header::InHeader;
use tidemill_nf::nat::settings::Deterministic;
use tidemill_nf::nat::{Fate, Nat, Proto, Share, Way};

#[test]
fn rfc8200_fragments_of_one_packet_may_go_on_with_other_headers() {
    // Destination options behind the fragment header: only the first fragment shows what comes after them.
    let (inside, remote) = (end(u128::inside(1), 4000), end(u128::remote(1), 53));
    let plain = udp(inside, remote, &[7; 400]);
    let mut sent = plain[..40].to_vec();
    sent[6] = 60;
    sent.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
    sent.extend_from_slice(&plain[40..]);
    sent[4..6].copy_from_slice(&((plain.len() - 40 + 8) as u16).to_be_bytes());
    for order in [[0, 1, 2], [1, 0, 2]] {
        let mut lab = Lab::<u128, 3, 5, 5>::new(plan(1));
        let pieces = fragments::<u128, 3, 5, 5>(&sent, 160, 7);
        let mut waited = None;
        for at in order {
            match lab.send(Way::Leaving, &pieces[at]) {
                (Fate::Waits(token), packet) => waited = Some((token, packet)),
                (Fate::First(first, _), packet) => {
                    assert_eq!(u128::read(&packet[8..]), u128::pool(1));
                    if let Some((token, mut packet)) = waited.take() {
                        assert_eq!(token, first);
                        assert_eq!(lab.resume(Way::Leaving, token, &mut packet), Fate::Translated);
                        assert_eq!(u128::read(&packet[8..]), u128::pool(1));
                    }
                }
                (fate, packet) => {
                    assert_eq!((fate, u128::read(&packet[8..])), (Fate::Translated, u128::pool(1)), "{at}");
                }
            }
        }
        assert!(waited.is_none());
    }
    // What is there twice is seen: the first one's bytes begin at its options.
    let mut lab = Lab::<u128, 3, 5, 5>::new(plan(1));
    let (pieces, others) =
        (fragments::<u128, 3, 5, 5>(&sent, 160, 7), fragments::<u128, 3, 5, 5>(&sent, 152, 7));
    assert!(matches!(lab.send(Way::Leaving, &pieces[0]).0, Fate::First(..)));
    assert_eq!(lab.send(Way::Leaving, &others[1]).0, Fate::Drop(DropReason::NatFragmentRefused));
}

#[test]
fn whole_addresses_side_by_side_are_in_nobodys_way() {
    let mut plan = plan::<u32, 1, 2, 4>(42);
    plan.whole = (1..=40).map(|n| (u32::pool(n), u32::inside(100 + n))).collect();
    let mut lab = Lab::new(plan);
    let looks: Vec<u32> =
        (1..=90).map(|host| lab.out(end(u32::inside(host), 9), end(u32::remote(1), 53)).address).collect();
    assert!([41, 42].iter().all(|n| looks.contains(&u32::pool(*n))), "both are used");
    assert!(looks.iter().all(|address| *address > u32::pool(40)));
    // Nothing but whole ones: nobody else has a place.
    let mut plan = crate::packets::plan::<u32, 1, 2, 4>(1);
    plan.whole = vec![(u32::pool(1), u32::inside(100))];
    let (fate, _) =
        Lab::new(plan).send(Way::Leaving, &udp(end(u32::inside(1), 9), end(u32::remote(1), 53), b""));
    assert_eq!(fate, Fate::Tell(DropReason::NatPortsExhausted));
}

#[test]
fn rfc7422_ports_are_computed_and_say_whose_they_are() {
    let mut plan = plan::<u32, 1, 2, 4>(4);
    plan.ports = 1024..=65535;
    let (first, own_bits, hosts, ports) = (u32::inside(0), 0, 128, 2016);
    let rule = Deterministic { first, own_bits, hosts, ports, from: 1024, each: 32 };
    plan.deterministic = Some(rule);
    plan.host_mappings = u32::MAX;
    plan.mappings = 5000;
    plan.sessions = 5000;
    let mut lab = Lab::new(plan);
    for host in [0, 1, 31, 32, 63, 127] {
        let (at, ports) = rule.of_host(u32::inside(host)).unwrap();
        for n in 0..5 {
            let looks = lab.out(end(u32::inside(host), 40_000 + n), end(u32::remote(1), 53));
            assert_eq!(looks.address, u32::pool(1 + at as u8));
            assert!(ports.contains(&looks.port), "{host}: {looks:?} of {ports:?}");
            assert_eq!(rule.host_of(at, looks.port), Some(u32::from(host)));
        }
    }
    let (fate, _) = lab.send(Way::Leaving, &udp(end(u32::inside(200), 1), end(u32::remote(1), 53), b""));
    assert_eq!(fate, Fate::Tell(DropReason::NatHostUnknown));
    // A block, and no more.
    let many: Vec<Fate> = (0..2100_u16)
        .map(|n| lab.send(Way::Leaving, &udp(end(u32::inside(9), 1 + n), end(u32::remote(1), 53), b"")).0)
        .collect();
    assert_eq!(many.iter().filter(|fate| **fate == Fate::Translated).count(), 2016);
    assert_eq!(many.last(), Some(&Fate::Tell(DropReason::NatPortsExhausted)));
    // Every port of every address is one host's at most.
    let all: usize =
        (0..4).map(|at| (0..=u16::MAX).filter(|port| rule.host_of(at, *port).is_some()).count()).sum();
    assert_eq!(all, 128 * 2016);
}

#[test]
fn rfc7422_ports_of_customers_networks_are_one_workers() {
    let first = 0xfd00 << 112;
    let rule = Deterministic { first, own_bits: 64, hosts: 64, ports: 2000, from: 1024, each: 32 };
    let of = |customer: u128, n: u128| first + (customer << 64) + n;
    let mut plan = plan::<u128, 3, 5, 5>(2);
    plan.deterministic = Some(rule);
    for customer in 0..64 {
        let (at, ports) = rule.of_host(of(customer, 7)).unwrap();
        let own = |workers| {
            let nat = |worker| Nat::new(plan.clone(), Share { worker, workers }, 3).unwrap();
            let nats: Vec<_> = (0..workers).map(nat).collect();
            let worker = nats[0].state().worker_of_host(of(customer, 1));
            for n in 0..50 {
                assert_eq!(nats[0].state().worker_of_host(of(customer, n << 30)), worker);
            }
            for port in [*ports.start(), *ports.end()] {
                let looks = end(u128::pool(1 + at as u8), port);
                assert_eq!(nats[0].state().worker_of(Proto::Udp, looks), worker);
            }
        };
        if customer < 4 {
            own(3);
        }
    }
    let mut lab = Lab::new(plan.clone());
    for n in 0..50 {
        let looks = lab.out(end(of(5, n << 40), 4000), end(u128::remote(1), 53));
        let at = if looks.address == u128::pool(1) { 0 } else { 1 };
        assert_eq!(rule.host_of(at, looks.port), Some(5));
    }
    let (fate, _) = lab.send(Way::Leaving, &udp(end(of(64, 1), 1), end(u128::remote(1), 53), b""));
    assert_eq!(fate, Fate::Tell(DropReason::NatHostUnknown));
}

#[test]
fn a_datagram_without_a_checksum_stays_without_one() {
    let mut lab = Lab::<u32, 1, 2, 4>::new(plan(1));
    let mut sent = udp(end(u32::inside(1), 4000), end(u32::remote(1), 53), b"none");
    sent[26..28].fill(0);
    let (fate, packet) = lab.send(Way::Leaving, &sent);
    assert_eq!((fate, &packet[26..28]), (Fate::Translated, &[0, 0][..]));
}

#[test]
fn a_damaged_packet_stays_damaged() {
    let mut lab = Lab::<u32, 1, 2, 4>::new(plan(1));
    let mut sent = tcp(end(u32::inside(1), 4000), end(u32::remote(1), 53), SYN);
    *sent.last_mut().unwrap() ^= 1;
    let (fate, packet) = lab.send(Way::Leaving, &sent);
    assert_eq!(fate, Fate::Translated);
    assert!(std::panic::catch_unwind(|| ends::<u32, 1, 2, 4>(&packet)).is_err());
}

#[test]
fn rfc5508_req3_options_of_what_is_quoted_are_passed_over_and_its_checksum_is_looked_at() {
    let mut lab = Lab::<u32, 1, 2, 4>::new(plan(1));
    let plain = udp(end(u32::inside(1), 4000), end(u32::remote(1), 53), b"question");
    // Four times no operation.
    let mut sent = [&plain[..20], &[1; 4], &plain[20..]].concat();
    sent[0] = 0x46;
    sent[2..4].copy_from_slice(&((plain.len() + 4) as u16).to_be_bytes());
    sent[10..12].fill(0);
    let check = tidemill_wire::checksum::checksum(&sent[..24]);
    sent[10..12].copy_from_slice(&check.to_be_bytes());
    let (fate, out) = lab.send(Way::Leaving, &sent);
    assert_eq!((fate, u32::read(&out[12..])), (Fate::Translated, u32::pool(1)));
    let (fate, packet) = lab.send(Way::ToPool, &error(u32::remote(9), u32::pool(1), &out));
    assert_eq!((fate, &packet[28..]), (Fate::Translated, &sent[..]), "REQ-3b");
    let mut wrong = out;
    wrong[10] ^= 1;
    let (fate, _) = lab.send(Way::ToPool, &error(u32::remote(9), u32::pool(1), &wrong));
    assert_eq!(fate, Fate::Drop(DropReason::NatMalformed), "REQ-3a");
}
