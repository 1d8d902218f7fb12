//! Who wants it all: from outside, by datagrams, connections, ports that change and fragments; from inside, by scans and addresses. Everybody else goes on.

use crate::packets::*;
use tidemill_burst::DropReason;
use tidemill_nf::nat::config::Filtering;
use tidemill_nf::nat::{Counter, Endpoint, Fate, Proto, Way};

/// Somebody outside, by number: another address each 100.
fn somebody<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(n: u32) -> Endpoint<A> {
    // Of IPv6 another /64.
    let address = A::remote(0).bits() + (u128::from(n / 100) << if A::V6 { 64 } else { 8 });
    end(A::of_bits(address), 1024 + (n % 100) as u16)
}

impl<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize> Lab<A, E, S, T> {
    /// A connection from outside, with the handshake both ways.
    fn call(&mut self, caller: Endpoint<A>, public: Endpoint<A>, server: Endpoint<A>) -> Result<(), Fate> {
        self.tcp_in(caller, public, SYN)?;
        assert_eq!(self.tcp_out(server, caller, SYN | ACK), Ok(public));
        assert_eq!(self.tcp_in(caller, public, ACK)?, server);
        Ok(())
    }
}

both! {
    fn datagrams_from_outside_close_no_static_mapping<A>() {
        let (resolver, names) = (end(A::inside(5), 53), end(A::pool(1), 53));
        let (server, public) = (end(A::inside(6), 80), end(A::pool(1), 8080));
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            plan.fixed = vec![(Proto::Udp, resolver, names), (Proto::Tcp, server, public)];
            (plan.sessions, plan.host_sessions) = (800, 100);
        });
        for n in 0..3000 {
            assert_eq!(lab.back(somebody(n), names), Ok(resolver), "{n}");
            // It answers, and that leaves, whatever there is room for.
            assert_eq!(lab.out(resolver, somebody(n)), names, "{n}");
        }
        assert!(lab.nat.state().sessions() <= 100, "an eighth");
        // Its answers have used up nothing that it needs for itself.
        assert_eq!(lab.nat.state().host_counts(A::inside(5)).1, 0);
        for n in 0..100 {
            lab.out(end(A::inside(5), 2000 + n), end(A::remote(1), 53));
        }
        assert_eq!(lab.call(somebody(1_000_000), public, server), Ok(()));
        // An error about an answer that was not noted finds the resolver.
        let about = udp(names, somebody(2999), b"answer");
        let (fate, _) = lab.send(Way::ToPool, &error(A::remote(9), names.address, &about));
        assert_eq!(fate, Fate::Translated);
        lab.nat.reclaim(lab.ms, 0);
        assert!(lab.nat.counters().get(Counter::Unnoted) > 2000);
    }

    fn connections_from_outside_close_no_static_mapping<A>() {
        let (server, public) = (end(A::inside(6), 80), end(A::pool(1), 8080));
        let (other, others) = (end(A::inside(7), 22), end(A::pool(1), 22));
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            plan.fixed = vec![(Proto::Tcp, server, public), (Proto::Tcp, other, others)];
            (plan.sessions, plan.source_sessions) = (800, 50);
        });
        // SYNs of forged senders, which the server answers; one caller is slow, but not that slow.
        for n in 0..3000 {
            assert_eq!(lab.tcp_in(somebody(n), public, SYN), Ok(server), "{n}");
            assert_eq!(lab.tcp_out(server, somebody(n), SYN | ACK), Ok(public), "{n}");
            let slow = somebody(1_000_000 + n);
            match n % 150 {
                10 => assert_eq!(lab.tcp_in(slow, others, SYN), Ok(other)),
                40 => assert_eq!(lab.tcp_out(other, somebody(1_000_000 + n - 30), SYN | ACK), Ok(others)),
                90 => assert_eq!(lab.tcp_in(somebody(1_000_000 + n - 80), others, ACK), Ok(other), "{n}"),
                _ => {}
            }
        }
        assert!(lab.nat.state().sessions() <= 100 + 20, "{}", lab.nat.state().sessions());
        lab.nat.reclaim(lab.ms, 0);
        assert!(lab.nat.counters().get(Counter::SessionsEvicted) > 2800);
        // What was answered stays through the flood.
        lab.ms += 3_600_000;
        assert_eq!(lab.tcp_in(somebody(1_000_010), others, ACK), Ok(other));
        // One address has its part and no more: its handshakes are not ended.
        let calls: Vec<_> = (0..80).map(|n| lab.call(somebody(2_000_000 + n), public, server)).collect();
        let limit = Err(Fate::Drop(DropReason::NatSourceLimit));
        assert_eq!((calls.iter().filter(|call| call.is_ok()).count(), &calls[79]), (50, &limit));
        // Many addresses fill what one mapping may have, and the other one is as open as before.
        let calls: Vec<_> = (0..400).map(|n| lab.call(somebody(3_000_000 + 50 * n), public, server)).collect();
        assert_eq!(calls.iter().filter(|call| call.is_ok()).count(), 150 - 50);
        assert_eq!(calls.last(), Some(&Err(Fate::Drop(DropReason::NatTableFull))));
        assert_eq!(lab.call(somebody(4_000_000), others, other), Ok(()));
        // And one half of the room is for inside.
        for n in 0..400 {
            lab.out(end(A::inside(1 + (n / 40) as u8), 2000 + n), end(A::remote(1), 53));
        }
    }

    fn connections_that_are_over_hold_no_place<A>() {
        let (server, public) = (end(A::inside(6), 80), end(A::pool(1), 8080));
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            plan.fixed = vec![(Proto::Tcp, server, public)];
            (plan.sessions, plan.source_sessions) = (800, 3);
        });
        // A busy server: more connections within a few minutes than may be open at once, all of few addresses.
        for n in 0..1000 {
            let caller = somebody(n);
            assert_eq!(lab.call(caller, public, server), Ok(()), "{n}");
            let (first, last) = if n % 2 == 0 { (true, false) } else { (false, true) };
            for from_outside in [first, last] {
                match from_outside {
                    true => assert_eq!(lab.tcp_in(caller, public, FIN | ACK), Ok(server)),
                    false => assert_eq!(lab.tcp_out(server, caller, FIN | ACK), Ok(public)),
                }
            }
            // What comes late still finds them.
            assert_eq!(lab.tcp_in(caller, public, ACK), Ok(server));
            assert_eq!(lab.tcp_out(server, caller, ACK), Ok(public));
        }
        // The same ports again.
        assert_eq!(lab.call(somebody(999), public, server), Ok(()));
        assert!(lab.nat.state().sessions() <= 101);
        // One that only one side has closed is open.
        for n in 2000..2003 {
            assert_eq!(lab.call(somebody(n), public, server), Ok(()));
            assert_eq!(lab.tcp_in(somebody(n), public, FIN | ACK), Ok(server));
        }
        let refused = lab.call(somebody(2003), public, server);
        assert_eq!(refused, Err(Fate::Drop(DropReason::NatSourceLimit)));
    }

    fn a_whole_addresses_answers_leave_it_its_sessions<A>() {
        let (host, address) = (A::inside(5), A::pool(1));
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            plan.whole = vec![(address, host)];
            (plan.sessions, plan.host_sessions) = (800, 100);
        });
        for n in 0..3000 {
            assert_eq!(lab.back(somebody(n), end(address, 53)), Ok(end(host, 53)), "{n}");
            assert_eq!(lab.out(end(host, 53), somebody(n)), end(address, 53), "{n}");
        }
        assert_eq!(lab.nat.state().host_counts(host).1, 0);
        for n in 0..90 {
            assert_eq!(lab.tcp_out(end(host, 2000 + n), end(A::remote(1), 80), SYN), Ok(end(address, 2000 + n)));
        }
    }

    fn forged_handshakes_close_no_static_mapping<A>() {
        let (server, public) = (end(A::inside(6), 80), end(A::pool(1), 8080));
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            plan.fixed = vec![(Proto::Tcp, server, public)];
            plan.sessions = 800;
        });
        // Whoever forges his address guesses no sequence number: the server answers his ACK with a reset.
        for n in 0..3000 {
            assert_eq!(lab.call(somebody(n), public, server), Ok(()), "{n}");
            assert_eq!(lab.tcp_out(server, somebody(n), RST), Ok(public), "{n}");
        }
        assert!(lab.nat.state().sessions() <= 100);
        for n in 0..150 {
            assert_eq!(lab.call(somebody(1_000_000 + n), public, server), Ok(()));
        }
        let refused = lab.call(somebody(2_000_000), public, server);
        assert_eq!(refused, Err(Fate::Drop(DropReason::NatTableFull)), "150 are what one mapping may have");
    }

    fn one_host_leaves_room_for_the_others<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            (plan.sessions, plan.host_sessions, plan.mappings, plan.host_mappings) = (1000, 300, 500, 100);
        });
        let scanner = end(A::inside(1), 4000);
        let fates: Vec<Fate> =
            (0..2000).map(|n| lab.send(Way::Leaving, &udp(scanner, somebody(n), b"who is there")).0).collect();
        assert_eq!(fates.iter().filter(|fate| **fate == Fate::Translated).count(), 300);
        assert_eq!(fates.last(), Some(&Fate::Tell(DropReason::NatHostSessions)));
        assert_eq!(lab.nat.state().host_counts(A::inside(1)), (1, 300));
        // What it has goes on; others have theirs.
        assert!(lab.back(somebody(7), end(A::pool(1), 4000)).is_ok());
        lab.out(scanner, somebody(7));
        for n in 0..100 {
            lab.out(end(A::inside(2), 3000 + n), somebody(5));
        }
        let (fate, _) = lab.send(Way::Leaving, &udp(end(A::inside(2), 9), somebody(5), b""));
        assert_eq!(fate, Fate::Tell(DropReason::NatHostLimit));
        lab.ms += 300_000;
        lab.out(scanner, somebody(8));
        assert_eq!(lab.nat.state().host_counts(A::inside(1)), (1, 1));
    }

    fn rfc4787_req6_ports_that_change_keep_no_mapping_and_no_hole<A>() {
        for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
            let mut lab = Lab::<A, E, S, T>::with(|plan| (plan.filtering, plan.host_mappings) = (filtering, 1));
            let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
            let looks = lab.tcp_out(inside, remote, SYN).unwrap();
            let port = |n: u16| end(A::remote(1), 1000 + n);
            for n in 1..=2 {
                lab.ms += 100_000;
                assert_eq!(lab.tcp_in(port(n), looks, SYN), Ok(inside));
            }
            // The host is silent for 300 s: nobody new comes in, and the port counts for it no longer.
            lab.ms += 100_000;
            assert_eq!(lab.tcp_in(port(3), looks, SYN), Err(Fate::Drop(DropReason::NatUnmapped)));
            assert!(lab.tcp_out(end(A::inside(1), 4001), remote, SYN).is_ok());
            for n in 4..10 {
                lab.ms += 20_000;
                assert!(lab.tcp_in(port(n), looks, SYN).is_err());
            }
            lab.ms += 240_000;
            lab.nat.reclaim(lab.ms, usize::MAX);
            assert_eq!(lab.nat.state().mappings(), 0);
            // Whom it answers keeps it, as a session of its own does.
            let looks = lab.tcp_out(inside, remote, SYN).unwrap();
            assert_eq!(lab.call(port(20), looks, inside), Ok(()));
            lab.ms += 3_600_000;
            assert_eq!(lab.tcp_in(port(20), looks, ACK), Ok(inside));
            assert_eq!(lab.tcp_in(port(21), looks, SYN), Ok(inside), "the hole is open for it, too");
            // A no is no answer.
            let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = filtering);
            let looks = lab.tcp_out(inside, remote, SYN).unwrap();
            lab.ms += 200_000;
            assert_eq!(lab.tcp_in(port(1), looks, SYN), Ok(inside));
            assert!(lab.tcp_out(inside, port(1), RST | ACK).is_ok());
            lab.ms += 100_000;
            assert_eq!(lab.tcp_in(port(2), looks, SYN), Err(Fate::Drop(DropReason::NatUnmapped)));
        }
    }

    fn scans_of_a_whole_address_take_nobodys_room<A>() {
        let (server, public) = (A::inside(5), A::pool(2));
        let mut plan = plan::<A, E, S, T>(2);
        plan.whole = vec![(public, server)];
        (plan.mappings, plan.sessions, plan.host_mappings) = (200, 800, 60);
        let mut lab = Lab::new(plan);
        for n in 0..60 {
            lab.out(end(A::inside(1), 2000 + n), end(A::remote(1), 53));
        }
        for n in 1..400_u16 {
            let caller = somebody(n.into());
            assert_eq!(lab.tcp_in(caller, end(public, n), SYN), Ok(end(server, n)), "ordinary mappings are in nobody's way");
            assert_eq!(lab.back(caller, end(public, n)), Ok(end(server, n)));
            assert_eq!(lab.out(end(server, n), caller), end(public, n));
            assert_eq!(lab.come(&echo(caller.address, public, n, false)), Ok(end(server, n)));
            let (fate, packet) = lab.send(Way::Leaving, &echo(server, caller.address, n, true));
            assert_eq!((fate, ends::<A, E, S, T>(&packet).0), (Fate::Translated, end(public, n)));
        }
        assert!(lab.nat.state().mappings() <= 200);
        // What one of them says that was not noted is understood all the same.
        let about = udp(end(public, 399), somebody(399), b"answer");
        let (fate, packet) = lab.send(Way::ToPool, &error(A::remote(9), public, &about));
        assert_eq!((fate, A::read(&packet[A::SOURCE + A::BYTES..])), (Fate::Translated, server));
        let came = udp(somebody(399), end(server, 399), b"in");
        let (fate, _) = lab.send(Way::Leaving, &error(server, somebody::<A, E, S, T>(399).address, &came));
        assert_eq!(fate, Fate::Translated);
        assert_eq!(lab.call(somebody(5000), end(public, 443), end(server, 443)), Ok(()));
    }

    fn rfc4787_req2_a_host_with_a_static_mapping_has_its_address<A>() {
        let mut plan = plan::<A, E, S, T>(8);
        let statics = (1..=8).map(|n| (Proto::Tcp, end(A::inside(n), 443), end(A::pool(9 - n), 443)));
        plan.fixed = statics.collect();
        let mut lab = Lab::new(plan);
        for n in 1..=8 {
            assert_eq!(lab.out(end(A::inside(n), 5000), end(A::remote(1), 53)).address, A::pool(9 - n));
        }
    }

    fn a_new_host_comes_to_every_address_of_the_pool<A>() {
        let mut plan = plan::<A, E, S, T>(60);
        plan.ports = 2000..=2001;
        let mut lab = Lab::new(plan);
        let mut mapped = 0;
        for host in 1..=120 {
            // It asks again where it was told that there is no port.
            let asks = (0..4).find(|_| {
                lab.send(Way::Leaving, &udp(end(A::inside(host), 5000), end(A::remote(1), 53), b"")).0 == Fate::Translated
            });
            mapped += u32::from(asks.is_some());
        }
        assert_eq!(mapped, 120, "two ports of sixty addresses");
    }
}

#[test]
fn one_link_leaves_room_for_the_others() {
    let mut lab = Lab::<u128, 3, 5, 5>::with(|plan| {
        (plan.sessions, plan.network_sessions, plan.host_sessions) = (1000, 750, 100);
        (plan.mappings, plan.network_mappings) = (1000, 300);
    });
    // One host that takes another address of its /64 for each port.
    let of_link = |link: u128, n: u128| 0xfd00 << 112 | link << 64 | n << 20 | 1;
    let remote = end(u128::remote(1), 53);
    let fates: Vec<Fate> =
        (0..400).map(|n| lab.send(Way::Leaving, &udp(end(of_link(1, n), 4000), remote, b"")).0).collect();
    assert_eq!(fates.iter().filter(|fate| **fate == Fate::Translated).count(), 300);
    assert_eq!(fates.last(), Some(&Fate::Tell(DropReason::NatHostLimit)));
    let more: Vec<Fate> = (0..1000)
        .map(|n| lab.send(Way::Leaving, &udp(end(of_link(1, n % 300), 4000), somebody(n as u32), b"")).0)
        .collect();
    assert_eq!(more.iter().filter(|fate| **fate == Fate::Translated).count(), 450);
    assert_eq!(more.last(), Some(&Fate::Tell(DropReason::NatHostSessions)));
    for n in 0..200 {
        lab.out(end(of_link(2, n), 4000), remote);
    }
    lab.ms += 300_000;
    lab.nat.reclaim(lab.ms, usize::MAX);
    assert_eq!((lab.nat.state().mappings(), lab.nat.state().sessions()), (0, 0));
    assert!(!lab.nat.state().is_host(of_link(1, 1)));
    lab.out(end(of_link(1, 399), 4000), remote);
}
