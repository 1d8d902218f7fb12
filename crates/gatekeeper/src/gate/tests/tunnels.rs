//! What a Grantor would take for ours does not reach it from the front, by no policy, order or driver: neither as it is nor inside one of ours.

use super::*;
use crate::offload::PASSES;
use tidemill_decision::GRANTOR_PORT;
use tidemill_wire::{Protocol, ipv4, ipv6};

/// A packet of IPv4: a header of 24 bytes, so that options are seen to be skipped, and two ports.
fn v4(protocol: Protocol, port: u16, fragment: u16) -> Vec<u8> {
    let mut ip = vec![0; 60];
    (ip[0], ip[3], ip[8], ip[9]) = (0x46, 60, 64, protocol.0);
    ip[6..8].copy_from_slice(&fragment.to_be_bytes());
    ip[20..24].fill(1);
    ip[26..28].copy_from_slice(&port.to_be_bytes());
    let check = tidemill_wire::checksum::checksum(&ip[..24]);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    assert!(ipv4::check(&ip).is_ok());
    ip
}

/// A packet of IPv6 whose upper layer comes behind these extension headers, of eight bytes each.
fn v6(protocol: Protocol, port: u16, extensions: &[u8]) -> Vec<u8> {
    let mut ip = vec![0; 40];
    (ip[0], ip[7]) = (0x60, 64);
    let mut next = 6;
    for extension in extensions {
        ip[next] = *extension;
        next = ip.len();
        // Destination options and hop-by-hop options: PadN. A fragment header has its offset there.
        ip.extend(if *extension == 44 { [0; 8] } else { [0, 0, 1, 4, 0, 0, 0, 0] });
    }
    ip[next] = protocol.0;
    ip.extend([0x12, 0x34]);
    ip.extend(port.to_be_bytes());
    ip.extend([0; 16]);
    let len = (ip.len() - 40) as u16;
    ip[4..6].copy_from_slice(&len.to_be_bytes());
    assert!(ipv6::check(&ip).is_ok());
    ip
}

/// Policies: the Grantor's own address is where everything is routed, or where a Grantor decides and grants past itself.
fn none_reaches_a_grantor<A: Paired<W>, const W: usize>(
    address: impl Fn(u32) -> A,
    packets: &[(Vec<u8>, bool)],
) where
    Prefix<A>: std::str::FromStr<Err: std::fmt::Debug>,
{
    let host = |n| Prefix::new(address(n), A::BITS).unwrap();
    // Grantor 9 is where the default routes, 8 where a policy does, 7 is protected itself and has granted; 6 is named no more; 4 is protected itself and is asked, 3 has declined,
    // and 2 is where a policy drops.
    let given = [
        policy(host(50), Action::Grantor, &[address(9), address(8), address(6)]),
        policy(host(8), Action::Route, &[]),
        policy(host(7), Action::Grantor, &[address(7)]),
        policy(host(4), Action::Grantor, &[address(4)]),
        policy(host(3), Action::Grantor, &[address(3)]),
        policy(host(51), Action::Grantor, &[address(2)]),
        policy(host(2), Action::Drop, &[]),
    ];
    for (order, driver) in WAYS {
        let domain = Domain::new();
        let reader = domain.register();
        let mut control = Policies::new(&domain, Action::Route, &given, A::MIN, Vec::new()).unwrap();
        control.set(&[policy(host(50), Action::Grantor, &[address(9), address(8)])]).unwrap();
        // So no packet to a Grantor is forwarded below.
        let passes = control.passes();
        let label = |n| passes.lookup(address(n)).map(|(_, label)| label);
        assert_eq!([9, 8, 7, 6, 5].map(|n| label(n) == Some(PASSES)), [false, false, false, false, true]);
        let (fib, choices) = control.views();
        let choices = || choices.get(&reader);
        let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
        let mut gate = Gate::<A, W>::new(&size(100), Catalog::new(&[]).unwrap()).unwrap();
        let direct = Verdict::Granted {
            rate_kib_s: 1 << 20,
            expire_s: 99,
            renew_ms: 90_000,
            step_ms: 1000,
            direct: true,
        };
        // The policies of now have been seen: flows that come later are not looked up in them by the paper's order.
        let now = Now { ns: SECOND, rules, order, driver, grace_ns: 0, ip: &|_| &TCP };
        gate.decide(&now, &mut Counters::default(), &[], &mut []);
        for (destination, verdict) in [(7, direct), (3, Verdict::Declined { expire_s: 99 })] {
            let flow = (address(77), address(destination));
            assert_eq!(gate.impose(2 * SECOND, rules.of(flow.1), flow, &verdict, None, None), Applied::Done);
        }
        let mut counters = Counters::default();
        let (mut forged, mut asked) = (0, 0);
        for (ip, is_dressed) in packets {
            let ip = &ip[..];
            let seen = [9, 8, 7, 6, 5, 4, 3, 2].map(|destination| Seen {
                source: address(77),
                destination: address(destination),
                bytes: ip.len() as u32,
            });
            let of = |_| ip;
            let choices = || control.choices();
            let rules = Rules { policies: &**fib.get(&reader), choices: &choices };
            let now = Now { ns: 3 * SECOND, rules, order, driver, grace_ns: 0, ip: &of };
            let mut fates = [Fate::OverRate; 8];
            gate.decide(&now, &mut counters, &seen, &mut fates);
            let expected = if *is_dressed { Fate::Forged } else { Fate::Route };
            assert_eq!(fates[..4], [expected; 4], "{order:?} {driver:?} {ip:02x?}");
            assert_eq!(fates[4], Fate::Route, "nobody's address: {ip:02x?}");
            // No request of it, which would reach the Grantor in one of our own, and no flow.
            let asks = matches!(fates[5], Fate::Request(_));
            assert!(if *is_dressed { fates[5] == Fate::Forged } else { asks }, "{fates:?} {ip:02x?}");
            assert_eq!(fates[6], if *is_dressed { Fate::Forged } else { Fate::Declined }, "{ip:02x?}");
            assert_eq!(fates[7], Fate::PolicyDrop, "{order:?} {driver:?} {ip:02x?}");
            forged += 6 * u64::from(*is_dressed);
            asked += u64::from(asks);
            assert_eq!(counters.get(Counter::FlowsMade), asked.min(1));
        }
        assert_eq!(counters.get(Counter::TunnelForged), forged);
        assert_eq!(counters.get(Counter::Front), 8 * packets.len() as u64);
        // Each packet is counted once.
        let once = [
            Counter::Bypassed,
            Counter::Requests,
            Counter::Granted,
            Counter::Declined,
            Counter::PolicyDropped,
            Counter::TunnelForged,
        ];
        let sum = once.map(|counter| counters.get(counter)).iter().sum::<u64>();
        assert_eq!((sum, counters.get(Counter::Requests)), (8 * packets.len() as u64, asked));
    }
}

#[test]
fn what_is_dressed_as_ours_does_not_reach_a_grantor() {
    let (tunnel4, tunnel6) = (Protocol::IPV4, Protocol::IPV6);
    let (udp, tcp) = (Protocol::UDP, Protocol::TCP);
    none_reaches_a_grantor::<u32, 1>(
        |n| 10 << 24 | n,
        &[
            (v4(tunnel4, 0, 0), true),
            (v4(tunnel6, 0, 0), true),
            // The first part of one, and another.
            (v4(tunnel4, 0, 0x2000), true),
            (v4(tunnel4, 0, 0x0010), true),
            (v4(udp, GRANTOR_PORT, 0), true),
            (v4(udp, GRANTOR_PORT + 1, 0), false),
            (v4(tcp, GRANTOR_PORT, 0), false),
            (v4(Protocol::ICMP, 0, 0), false),
            // Too short to be read.
            (vec![0x45], true),
        ],
    );
    none_reaches_a_grantor::<u128, 4>(
        |n| 0xfd00 << 112 | u128::from(n),
        &[
            (v6(tunnel6, 0, &[]), true),
            (v6(tunnel4, 0, &[]), true),
            (v6(tunnel6, 0, &[0, 60]), true),
            (v6(tunnel6, 0, &[60, 44]), true),
            (v6(udp, GRANTOR_PORT, &[]), true),
            (v6(udp, GRANTOR_PORT, &[60]), true),
            (v6(udp, GRANTOR_PORT + 1, &[60]), false),
            (v6(tcp, GRANTOR_PORT, &[]), false),
            (v6(Protocol::ICMPV6, 0, &[]), false),
            // More headers than anybody follows.
            (v6(tcp, 0, &[60; 40]), true),
        ],
    );
}

/// The code point goes, congestion marks and all else stay, and the checksum is right.
#[test]
fn a_code_point_is_cleared_and_nothing_else() {
    for class in 0..=255_u8 {
        let mut ip = v4(Protocol::TCP, 1, 0);
        ip[1] = class;
        ip[10..12].fill(0);
        let check = tidemill_wire::checksum::checksum(&ip[..24]);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        let mut expected = ip.clone();
        expected[1] &= 3;
        expected[10..12].fill(0);
        let check = tidemill_wire::checksum::checksum(&expected[..24]);
        expected[10..12].copy_from_slice(&check.to_be_bytes());
        u32::clear_dscp(&mut ip);
        assert_eq!(ip, expected, "{class:#x}");

        let mut ip = v6(Protocol::TCP, 1, &[]);
        ip[..4].copy_from_slice(&(6 << 28 | u32::from(class) << 20 | 0xa_bcde).to_be_bytes());
        let mut expected = ip.clone();
        expected[..4].copy_from_slice(&(6 << 28 | u32::from(class & 3) << 20 | 0xa_bcde).to_be_bytes());
        u128::clear_dscp(&mut ip);
        assert_eq!(ip, expected, "{class:#x}");
    }
}
