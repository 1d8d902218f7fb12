//! Static mappings, whole addresses, and who may come from outside; of IPv4 and IPv6.

use crate::packets::*;
use crate::requirements::HOUR_MS;
use tidemill_burst::DropReason;
use tidemill_nf::nat::config::Filtering;
use tidemill_nf::nat::{Fate, Proto, Way};

both! {
    fn static_mappings_are_always_there_and_for_everybody<A>() {
        let server = end(A::inside(5), 80);
        let public = end(A::pool(1), 8080);
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            plan.fixed = vec![(Proto::Tcp, server, public)];
            plan.filtering = Filtering::AddressAndPortDependent;
        });
        let client = end(A::remote(3), 3333);
        assert_eq!(lab.tcp_in(client, public, SYN), Ok(server));
        assert_eq!(lab.tcp_out(server, client, SYN | ACK), Ok(public));
        assert_eq!(lab.tcp_in(client, public, ACK), Ok(server));
        lab.ms += 24 * HOUR_MS;
        assert_eq!(lab.tcp_in(client, public, ACK), Err(Fate::Drop(DropReason::NatUnasked)));
        assert_eq!(lab.tcp_in(client, public, SYN), Ok(server));
        // What it sends looks like that; nobody else gets its port.
        assert_eq!(lab.tcp_out(server, end(A::remote(8), 25), SYN), Ok(public));
        let other = lab.tcp_out(end(A::inside(6), 8080), client, SYN).unwrap();
        assert_ne!(other, public);
        assert_eq!(lab.back(client, public), Err(Fate::Drop(DropReason::NatUnmapped)), "UDP is another");
        lab.out(end(A::inside(7), 7), client);
    }

    fn from_outside_nobody_comes_as_one_of_the_pool_or_of_those_inside<A>() {
        let (alice, server, public) = (end(A::inside(1), 4000), end(A::inside(9), 53), end(A::pool(1), 5353));
        let remote = end(A::remote(1), 53);
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            plan.fixed = vec![(Proto::Udp, server, public), (Proto::Tcp, server, public)];
            plan.filtering = Filtering::EndpointIndependent;
        });
        lab.near = vec![(A::inside(0).into(), true), (A::inside(32).into(), false)];
        let alices = lab.out(alice, remote);
        let before = lab.nat.state().sessions();
        let martian = Fate::Drop(DropReason::MartianSource);
        let forged = |lab: &mut Lab<A, E, S, T>| {
            for from in [public, alices, alice, server, end(A::inside(31), 7)] {
                for to in [public, alices] {
                    assert_eq!(lab.send(Way::ToPool, &udp(from, to, b"round and round")).0, martian);
                    assert_eq!(lab.send(Way::ToPool, &tcp(from, to, SYN)).0, martian);
                }
            }
        };
        forged(&mut lab);
        assert_eq!(lab.nat.state().sessions(), before);
        assert_eq!(lab.back(end(A::inside(32), 7), public), Ok(server));
        // What they say to each other, and to themselves, is theirs: nobody else passes by it.
        for (from, to, becomes) in
            [(alice, public, (alices, server)), (server, alices, (public, alice)), (server, public, (public, server))]
        {
            let (fate, packet) = lab.send(Way::Hairpin, &udp(from, to, b"hello"));
            assert_eq!((fate, ends::<A, E, S, T>(&packet)), (Fate::Translated, becomes));
        }
        forged(&mut lab);
        forged(&mut lab);
        // Half of a hairpin, from another worker, has an address of the pool, as our own errors may.
        let (fate, packet) = lab.send(Way::FromUs, &udp(alices, public, b"hello"));
        assert_eq!((fate, ends::<A, E, S, T>(&packet)), (Fate::Translated, (alices, server)));
        // Errors are nobody's question: a router on their way may have an address that somebody inside has, but none of the pool.
        let about = udp(alices, remote, b"out");
        assert_eq!(lab.send(Way::ToPool, &error(A::inside(7), alices.address, &about)).0, Fate::Translated);
        assert_eq!(lab.send(Way::ToPool, &error(A::pool(1), alices.address, &about)).0, martian);
        assert_eq!(lab.send(Way::FromUs, &error(A::pool(1), alices.address, &about)).0, Fate::Translated);
        // Nor has anybody inside one of the pool: what answers him would leave.
        let before = lab.nat.state().mappings();
        for (way, to) in [(Way::Leaving, remote), (Way::Hairpin, public)] {
            assert_eq!(lab.send(way, &udp(end(A::pool(1), 5), to, b"")).0, martian);
        }
        assert_eq!(lab.nat.state().mappings(), before);
    }

    fn a_forged_syn_to_a_static_mapping_is_forgotten_soon<A>() {
        let (server, public, client) = (end(A::inside(5), 80), end(A::pool(1), 8080), end(A::remote(3), 3333));
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.fixed = vec![(Proto::Tcp, server, public)]);
        let gone = Err(Fate::Drop(DropReason::NatUnasked));
        for is_there in [false, true] {
            assert_eq!(lab.tcp_in(client, public, SYN), Ok(server));
            assert_eq!(lab.tcp_out(server, client, SYN | ACK), Ok(public));
            if is_there {
                assert_eq!(lab.tcp_in(client, public, ACK), Ok(server));
            }
            lab.ms += 240_000;
            assert_eq!(lab.tcp_in(client, public, ACK), if is_there { Ok(server) } else { gone });
        }
    }

    fn errors_about_protocols_without_ports_find_whole_addresses<A>() {
        let gre = tidemill_wire::Protocol::GRE;
        let (server, public, remote, other) = (A::inside(5), A::pool(2), A::remote(1), A::inside(6));
        let mut plan = plan::<A, E, S, T>(2);
        plan.whole = vec![(public, server)];
        let mut lab = Lab::new(plan);
        let upper = if A::V6 { 40 } else { 20 };
        let (sent, came) = (ip(server, remote, gre, b"tunnel.."), ip(remote, public, gre, b"tunnel.."));
        let (_, out) = lab.send(Way::Leaving, &sent);
        let (_, into) = lab.send(Way::ToPool, &came);
        for (way, message, source, to, quoted) in [
            (Way::ToPool, error(A::remote(9), public, &out), A::remote(9), server, &sent),
            (Way::Leaving, error(server, remote, &into), public, remote, &came),
            (Way::Own, error(A::pool(1), remote, &into), A::pool(1), remote, &came),
        ] {
            let (fate, packet) = lab.send(way, &message);
            assert_eq!(fate, Fate::Translated, "{way:?}");
            ends::<A, E, S, T>(&packet);
            assert_eq!((A::read(&packet[A::SOURCE..]), A::read(&packet[A::SOURCE + A::BYTES..])), (source, to));
            assert_eq!(&packet[upper + 8..], &quoted[..]);
        }
        // Nobody else has one.
        let (fate, _) = lab.send(Way::Leaving, &error(other, remote, &ip(remote, other, gre, b"tunnel..")));
        assert_eq!(fate, Fate::Drop(DropReason::NatErrorUnmatched));
        let (fate, _) = lab.send(Way::ToPool, &error(remote, A::pool(1), &ip(A::pool(1), remote, gre, b"tunnel..")));
        assert_eq!(fate, Fate::Drop(DropReason::NatErrorUnmatched));
    }

    /// Their checksums would be wrong, and they would be lost at the other end in silence.
    fn protocols_whose_checksums_cover_addresses_are_refused<A>() {
        let (server, public, remote) = (A::inside(5), A::pool(2), A::remote(1));
        let mut plan = plan::<A, E, S, T>(2);
        plan.whole = vec![(public, server)];
        let mut lab = Lab::new(plan);
        let refused: &[u8] = if A::V6 { &[33, 89, 103, 112, 135, 136, 139] } else { &[33, 51, 136, 139] };
        let good: &[u8] = if A::V6 { &[47, 50] } else { &[47, 50, 89, 103] };
        let lost = Fate::Drop(DropReason::NatProtocol);
        for (protocols, fate) in [(refused, lost), (good, Fate::Translated)] {
            for protocol in protocols.iter().map(|number| tidemill_wire::Protocol(*number)) {
                let (out, into) = (ip(server, remote, protocol, b"anything"), ip(remote, public, protocol, b"anything"));
                assert_eq!(lab.send(Way::Leaving, &out).0, fate, "{protocol:?}");
                assert_eq!(lab.send(Way::ToPool, &into).0, fate, "{protocol:?}");
            }
        }
    }

    fn who_is_outside_keeps_nothing_that_nobody_inside_answers<A>() {
        let (inside, remote, caller) = (end(A::inside(1), 4000), end(A::remote(1), 80), end(A::remote(2), 99));
        for is_reset in [false, true] {
            let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = Filtering::EndpointIndependent);
            let looks = lab.tcp_out(inside, remote, SYN).unwrap();
            assert_eq!(lab.tcp_in(caller, looks, SYN), Ok(inside));
            if is_reset {
                assert!(lab.tcp_out(inside, caller, SYN | ACK).is_ok() && lab.tcp_in(caller, looks, ACK).is_ok());
                assert!(lab.tcp_out(inside, caller, RST).is_ok());
            }
            for _ in 0..3 {
                lab.ms += 79_000;
                let flags = if is_reset { ACK } else { SYN };
                assert_eq!(lab.tcp_in(caller, looks, flags), Ok(inside));
            }
            lab.ms += 3_000;
            assert_eq!(lab.tcp_in(caller, looks, SYN), Err(Fate::Drop(DropReason::NatUnmapped)));
            assert_eq!(lab.nat.state().mappings(), 0);
        }
    }

    fn a_whole_address_is_one_hosts_with_all_that_it_speaks<A>() {
        let (server, public) = (A::inside(5), A::pool(2));
        let mut plan = plan::<A, E, S, T>(2);
        plan.whole = vec![(public, server)];
        let mut lab = Lab::new(plan);
        let client = end(A::remote(3), 3333);
        assert_eq!(lab.tcp_in(client, end(public, 22), SYN), Ok(end(server, 22)));
        assert_eq!(lab.tcp_out(end(server, 22), client, SYN | ACK), Ok(end(public, 22)));
        assert_eq!(lab.back(client, end(public, 53)), Ok(end(server, 53)));
        assert_eq!(lab.out(end(server, 53), client), end(public, 53));
        assert_eq!(lab.out(end(server, 999), client), end(public, 999));
        assert_eq!(lab.come(&echo(A::remote(1), public, 7, false)), Ok(end(server, 7)));
        let (fate, packet) = lab.send(Way::Leaving, &echo(server, A::remote(1), 7, true));
        assert_eq!((fate, ends::<A, E, S, T>(&packet).0), (Fate::Translated, end(public, 7)));
        let gre = tidemill_wire::Protocol::GRE;
        let (fate, packet) = lab.send(Way::ToPool, &ip(A::remote(1), public, gre, b"tunnel"));
        assert_eq!((fate, A::read(&packet[A::SOURCE + A::BYTES..])), (Fate::Translated, server));
        let (fate, packet) = lab.send(Way::Leaving, &ip(server, A::remote(1), gre, b"tunnel"));
        assert_eq!((fate, A::read(&packet[A::SOURCE..])), (Fate::Translated, public));
        // A neighbour inside reaches it by that address, with ping, too.
        let (fate, packet) = lab.send(Way::Hairpin, &echo(A::inside(1), public, 7, false));
        let (source, to) = ends::<A, E, S, T>(&packet);
        assert_eq!((fate, to.address, source.address), (Fate::Translated, server, A::pool(1)));
        let (fate, packet) = lab.send(Way::Hairpin, &echo(server, A::pool(1), source.port, true));
        assert_eq!((fate, ends::<A, E, S, T>(&packet)), (Fate::Translated, (end(public, 7), end(A::inside(1), 7))));
        // Nobody else gets it.
        for host in 10..60 {
            assert_eq!(lab.out(end(A::inside(host), 9), client).address, A::pool(1));
        }
    }
}
