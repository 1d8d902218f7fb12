//! The requirements of RFC 4787 (UDP), RFC 5382 (TCP), RFC 5508 (ICMP) and RFC 7422, each under its number, of IPv4 and IPv6.
//!
//! Not here, for they are about something that a NAT of ours does not have: RFC 4787 REQ-7 (addresses by DHCP), REQ-10 and RFC 5382 REQ-6 (application
//! gateways), RFC 5508 REQ-9 (interfaces that are told nothing). REQ-3 of that about options: `one_family.rs`.
//! RFC 4787 REQ-13 is the router's (`crates/router`) but for what it leaves to us: here, and in `node.rs`. REQ-11 (the same behaviour always) is what the model holds: `model.rs`.

use crate::packets::*;
use tidemill_burst::DropReason;
use tidemill_nf::nat::config::{Filtering, Pooling};
use tidemill_nf::nat::settings::Whose;
use tidemill_nf::nat::{Fate, Proto, Way};

pub(crate) const HOUR_MS: u64 = 3_600_000;

both! {
    fn rfc4787_req1_rfc5382_req1_a_mapping_is_the_endpoints_whatever_it_sends_to<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(3));
        let inside = end(A::inside(1), 4000);
        let looks = lab.out(inside, end(A::remote(1), 53));
        for (remote, port) in [(1, 54), (2, 53), (3, 9999)] {
            assert_eq!(lab.out(inside, end(A::remote(remote), port)), looks);
        }
        assert_ne!(lab.out(end(A::inside(1), 4001), end(A::remote(1), 53)), looks);
        assert_ne!(lab.out(end(A::inside(2), 4000), end(A::remote(1), 53)), looks);
        let looks = lab.tcp_out(inside, end(A::remote(1), 80), SYN).unwrap();
        assert_eq!(lab.tcp_out(inside, end(A::remote(2), 81), SYN).unwrap(), looks);
    }

    fn rfc4787_req2_a_hosts_mappings_have_one_address<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(8));
        let mut addresses = Vec::new();
        for host in 1..=40 {
            let first = lab.out(end(A::inside(host), 2000), end(A::remote(1), 53)).address;
            for port in 2001..2010 {
                assert_eq!(lab.out(end(A::inside(host), port), end(A::remote(1), 53)).address, first);
            }
            let tcp = lab.tcp_out(end(A::inside(host), 2000), end(A::remote(1), 53), SYN).unwrap();
            assert_eq!(tcp.address, first);
            addresses.push(first);
        }
        addresses.sort();
        addresses.dedup();
        assert!(addresses.len() > 4, "all of the pool is used: {addresses:?}");
    }

    fn rfc4787_req2_paired_means_paired_and_arbitrary_goes_on_with_another<A>() {
        for (pooling, fate) in [(Pooling::Paired, None), (Pooling::Arbitrary, Some(()))] {
            let mut plan = plan::<A, E, S, T>(2);
            (plan.ports, plan.pooling) = (2000..=2003, pooling);
            let mut lab = Lab::new(plan);
            let first = lab.out(end(A::inside(1), 3000), end(A::remote(1), 53)).address;
            for port in 3001..=3003 {
                assert_eq!(lab.out(end(A::inside(1), port), end(A::remote(1), 53)).address, first);
            }
            let (fifth, packet) = lab.send(Way::Leaving, &udp(end(A::inside(1), 3004), end(A::remote(1), 53), b""));
            match fate {
                None => assert_eq!(fifth, Fate::Tell(DropReason::NatPortsExhausted)),
                Some(()) => assert_ne!(ends::<A, E, S, T>(&packet).0.address, first),
            }
        }
    }

    fn rfc4787_req3_rfc5382_req7_no_port_is_given_twice<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| {
            (plan.ports, plan.host_mappings) = (5000..=5099, 1000);
        });
        let mut given = std::collections::HashSet::new();
        for n in 0..100_u16 {
            let inside = end(A::inside((n % 7) as u8), 1024 + n);
            assert!(given.insert(lab.out(inside, end(A::remote(1), 53))));
        }
        let (fate, _) = lab.send(Way::Leaving, &udp(end(A::inside(1), 9000), end(A::remote(1), 53), b""));
        assert_eq!(fate, Fate::Tell(DropReason::NatPortsExhausted));
        // TCP's are others, and each is one endpoint's, too.
        let mut given = std::collections::HashSet::new();
        for n in 0..100_u16 {
            let inside = end(A::inside((n % 7) as u8), 1024 + n);
            assert!(given.insert(lab.tcp_out(inside, end(A::remote(1), 53), SYN).unwrap()));
        }
        let refused = lab.tcp_out(end(A::inside(1), 9000), end(A::remote(1), 53), SYN);
        assert_eq!(refused, Err(Fate::Tell(DropReason::NatPortsExhausted)));
    }

    fn rfc4787_req3a_well_known_ports_stay_well_known<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        for host in 1..=20 {
            for port in [1, 500, 1023, 1024, 5060, 65535] {
                let looks = lab.out(end(A::inside(host), port), end(A::remote(1), 53));
                assert_eq!(looks.port < 1024, port < 1024, "{port} became {}", looks.port);
            }
        }
    }

    fn rfc4787_req4_parity_is_kept_as_long_as_there_are_such_ports<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.ports = 5000..=5019);
        for host in 1..=10 {
            let looks = lab.out(end(A::inside(host), 5000), end(A::remote(1), 53));
            assert_eq!(looks.port % 2, 0);
        }
        let looks = lab.out(end(A::inside(11), 5000), end(A::remote(1), 53));
        assert_eq!(looks.port % 2, 1, "an odd one is better than none");
    }

    fn rfc4787_section4_2_3_neighbouring_ports_stay_neighbours_where_they_are_free<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let looks = [6000, 6001].map(|port| lab.out(end(A::inside(1), port), end(A::remote(1), 53)).port);
        assert_eq!(looks[1], looks[0] + 1);
    }

    fn rfc4787_req5_a_udp_mapping_lives_as_long_as_configured<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
        let looks = lab.out(inside, remote);
        lab.ms += 300_000 - 1;
        assert_eq!(lab.back(remote, looks), Ok(inside));
        lab.ms += 1;
        assert_eq!(lab.back(remote, looks), Err(Fate::Drop(DropReason::NatUnmapped)));
        assert_eq!(lab.nat.state().mappings(), 0);
    }

    fn rfc4787_req6_packets_from_inside_refresh_and_those_from_outside_only_if_told<A>() {
        for inbound_refresh in [false, true] {
            let mut lab = Lab::<A, E, S, T>::new(plan(1));
            lab.times.inbound_refresh = inbound_refresh;
            let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
            let looks = lab.out(inside, remote);
            for _ in 0..10 {
                lab.ms += 200_000;
                assert_eq!(lab.out(inside, remote), looks);
            }
            lab.ms += 200_000;
            assert_eq!(lab.back(remote, looks), Ok(inside));
            lab.ms += 200_000;
            assert_eq!(lab.back(remote, looks).is_ok(), inbound_refresh);
        }
    }

    fn rfc4787_req8_rfc5382_req3_filtering<A>() {
        use Filtering::{AddressAndPortDependent, AddressDependent, EndpointIndependent};
        for (filtering, other_port, other_address) in [
            (EndpointIndependent, true, true),
            (AddressDependent, true, false),
            (AddressAndPortDependent, false, false),
        ] {
            let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = filtering);
            let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
            let looks = lab.out(inside, remote);
            let passes = |reached: Result<_, _>| match reached {
                Ok(reached) => {
                    assert_eq!(reached, inside);
                    true
                }
                Err(fate) => {
                    assert_eq!(fate, Fate::Drop(DropReason::NatFiltered));
                    false
                }
            };
            assert!(passes(lab.back(remote, looks)));
            assert_eq!(passes(lab.back(end(A::remote(1), 54), looks)), other_port);
            assert_eq!(passes(lab.back(end(A::remote(2), 53), looks)), other_address);
            let looks = lab.tcp_out(inside, remote, SYN).unwrap();
            assert_eq!(passes(lab.tcp_in(end(A::remote(1), 54), looks, SYN)), other_port);
            assert_eq!(passes(lab.tcp_in(end(A::remote(2), 53), looks, SYN)), other_address);
            // The filter goes with its session.
            lab.ms += 200_000;
            lab.out(inside, end(A::remote(3), 53));
            lab.ms += 200_000;
            let looks = lab.out(inside, end(A::remote(3), 53));
            assert_eq!(passes(lab.back(end(A::remote(1), 53), looks)), filtering == EndpointIndependent);
        }
    }

    fn rfc4787_req9_rfc5382_req8_hairpin_with_the_outside_source<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = Filtering::EndpointIndependent);
        let (alice, bob) = (end(A::inside(1), 4000), end(A::inside(2), 5000));
        let remote = end(A::remote(1), 53);
        let (alices, bobs) = (lab.out(alice, remote), lab.out(bob, remote));
        let (fate, packet) = lab.send(Way::Hairpin, &udp(alice, bobs, b"hello"));
        assert_eq!((fate, ends::<A, E, S, T>(&packet)), (Fate::Translated, (alices, bob)));
        let (fate, packet) = lab.send(Way::Hairpin, &udp(bob, alices, b"hello back"));
        assert_eq!((fate, ends::<A, E, S, T>(&packet)), (Fate::Translated, (bobs, alice)));
        let bobs = lab.tcp_out(bob, remote, SYN).unwrap();
        let (fate, packet) = lab.send(Way::Hairpin, &tcp(alice, bobs, SYN));
        let (source, to) = ends::<A, E, S, T>(&packet);
        assert_eq!((fate, to), (Fate::Translated, bob));
        let (fate, packet) = lab.send(Way::Hairpin, &tcp(bob, source, SYN | ACK));
        assert_eq!((fate, ends::<A, E, S, T>(&packet)), (Fate::Translated, (bobs, alice)));
        // Oneself, too: 5 of STUN's tests do that.
        let (fate, packet) = lab.send(Way::Hairpin, &udp(alice, alices, b"me"));
        assert_eq!((fate, ends::<A, E, S, T>(&packet)), (Fate::Translated, (alices, alice)));
        let before = lab.nat.state().mappings();
        let (fate, _) = lab.send(Way::Hairpin, &udp(end(A::inside(3), 1), end(A::pool(1), 9), b""));
        assert_eq!((fate, lab.nat.state().mappings()), (Fate::Drop(DropReason::NatUnmapped), before));
    }

    fn rfc4787_req12_rfc5382_req10_rfc5508_req4_errors_end_nothing<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
        let looks = lab.tcp_out(inside, remote, SYN).unwrap();
        let about = tcp(looks, remote, SYN);
        for _ in 0..3 {
            let (fate, _) = lab.send(Way::ToPool, &error(A::remote(9), looks.address, &about));
            assert_eq!(fate, Fate::Translated, "whoever sends it: RFC 4787 REQ-12a");
        }
        assert_eq!(lab.tcp_in(remote, looks, SYN | ACK), Ok(inside));
    }

    fn rfc4787_req13_who_is_told_of_a_narrow_link_knows_what_it_is_about<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
        let sent = udp(inside, remote, &[5; 1300]);
        let (_, out) = lab.send(Way::Leaving, &sent);
        let (looks, _) = ends::<A, E, S, T>(&out);
        let upper = if A::V6 { 40 } else { 20 };
        // Fragmentation needed, or packet too big: of 1280 bytes at most.
        let (kind, code) = if A::V6 { (2, 0) } else { (3, 4) };
        let mut message = icmp(A::remote(9), looks.address, kind, [0, 0, 5, 0], &out[..upper + 8 + 400]);
        message[upper + 1] = code;
        if !A::V6 {
            message[upper + 2..upper + 4].fill(0);
            let check = tidemill_wire::checksum::checksum(&message[upper..]);
            message[upper + 2..upper + 4].copy_from_slice(&check.to_be_bytes());
        }
        let (fate, told) = lab.send(Way::ToPool, &message);
        assert_eq!(fate, Fate::Translated);
        ends::<A, E, S, T>(&told);
        assert_eq!((told[upper], told[upper + 1], &told[upper + 4..upper + 8]), (kind, code, &[0, 0, 5, 0][..]));
        assert_eq!(A::read(&told[A::SOURCE + A::BYTES..]), inside.address);
        assert_eq!(told[upper + 8..], sent[..upper + 8 + 400]);
    }

    fn rfc4787_req14_fragments_in_any_order<A>() {
        let payload: Vec<u8> = (0..3000_u32).map(|n| (n * 7) as u8).collect();
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2]] {
            let mut lab = Lab::<A, E, S, T>::new(plan(1));
            let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
            let sent = udp(inside, remote, &payload);
            let pieces = fragments::<A, E, S, T>(&sent, 800, 77);
            let (mut out, mut waiting) = (Vec::new(), Vec::new());
            for at in order {
                let (fate, packet) = lab.send(Way::Leaving, &pieces[at]);
                match fate {
                    Fate::Waits(token) => waiting.push((token, packet)),
                    Fate::First(first, _) => {
                        out.push(packet);
                        for (token, mut packet) in waiting.drain(..) {
                            assert_eq!(token, first);
                            assert_eq!(lab.resume(Way::Leaving, token, &mut packet), Fate::Translated);
                            out.push(packet);
                        }
                    }
                    Fate::Translated => out.push(packet),
                    fate => panic!("{fate:?}"),
                }
            }
            let whole = joined::<A, E, S, T>(&out);
            let (source, destination) = ends::<A, E, S, T>(&whole);
            assert_eq!(destination, remote);
            let upper = whole.len() - payload.len();
            assert_eq!(&whole[upper..], payload);
            // And back.
            let pieces = fragments::<A, E, S, T>(&udp(remote, source, &payload), 1200, 9);
            let back: Vec<_> = pieces.iter().map(|piece| lab.send(Way::ToPool, piece).1).collect();
            assert_eq!(ends::<A, E, S, T>(&joined::<A, E, S, T>(&back)), (remote, inside));
        }
    }

    fn rfc4787_req14a_a_flood_of_fragments_leaves_the_rest_alone<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
        let looks = lab.out(inside, remote);
        for n in 0..5000_u16 {
            let pieces = fragments::<A, E, S, T>(&udp(end(A::remote(2), 1), end(A::pool(1), 2), &[0; 100]), 48, n);
            assert!(matches!(lab.send(Way::ToPool, &pieces[1]).0, Fate::Waits(_)), "{n}");
        }
        // What comes early waits and passes, both ways, however the flood goes on.
        for n in 0..200 {
            let question = fragments::<A, E, S, T>(&udp(inside, remote, &[3; 100]), 48, 10_000 + n);
            let answer = fragments::<A, E, S, T>(&udp(remote, looks, &[4; 100]), 48, 10_000 + n);
            let lone = fragments::<A, E, S, T>(&udp(end(A::remote(2), 1), end(A::pool(1), 2), &[0; 100]), 48, 10_000 + n);
            for (way, pieces) in [(Way::Leaving, question), (Way::ToPool, answer)] {
                let (fate, mut early) = lab.send(way, &pieces[2]);
                let Fate::Waits(token) = fate else { panic!("{way:?} {n}: {fate:?}") };
                lab.send(Way::ToPool, &lone[1]);
                assert_eq!(lab.send(way, &pieces[0]).0, Fate::First(token, None), "{way:?} {n}");
                assert_eq!(lab.resume(way, token, &mut early), Fate::Translated, "{way:?} {n}");
                assert_eq!(lab.send(way, &pieces[1]).0, Fate::Translated, "{way:?} {n}");
            }
        }
        // What comes in order passes, in any number, both ways.
        for n in 0..500 {
            let question = fragments::<A, E, S, T>(&udp(inside, remote, &[3; 100]), 48, n);
            let answer = fragments::<A, E, S, T>(&udp(remote, looks, &[4; 100]), 48, n);
            for (way, pieces) in [(Way::Leaving, question), (Way::ToPool, answer)] {
                assert!(matches!(lab.send(way, &pieces[0]).0, Fate::First(..)), "{way:?} {n}");
                for piece in &pieces[1..] {
                    assert_eq!(lab.send(way, piece).0, Fate::Translated, "{way:?} {n}");
                }
            }
        }
        assert_eq!(lab.back(remote, looks), Ok(inside));
        assert_eq!(lab.out(inside, remote), looks);
    }

    fn overlapping_fragments_and_those_of_refused_packets_are_refused<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
        let pieces = fragments::<A, E, S, T>(&udp(inside, remote, &[1; 400]), 80, 1);
        let other = fragments::<A, E, S, T>(&udp(inside, remote, &[2; 400]), 160, 1);
        assert!(matches!(lab.send(Way::Leaving, &pieces[0]).0, Fate::First(..)));
        assert_eq!(lab.send(Way::Leaving, &pieces[3]).0, Fate::Translated);
        let refused = Fate::Drop(DropReason::NatFragmentRefused);
        assert_eq!(lab.send(Way::Leaving, &other[1]).0, refused, "its second half is piece 3");
        assert_eq!(lab.send(Way::Leaving, &pieces[1]).0, refused, "and with it the whole packet");
        // The first fragment must have the header: what is too small is no way round.
        let tiny = fragments::<A, E, S, T>(&tcp(inside, remote, SYN), 8, 2);
        assert_eq!(lab.send(Way::Leaving, &tiny[0]).0, Fate::Drop(DropReason::NatMalformed));
        assert_eq!(lab.send(Way::Leaving, &tiny[1]).0, refused);
        // Nothing is mapped: later fragments of that go, too.
        let unasked = fragments::<A, E, S, T>(&udp(remote, end(A::pool(1), 7), &[0; 100]), 48, 3);
        assert_eq!(lab.send(Way::ToPool, &unasked[0]).0, Fate::Drop(DropReason::NatUnmapped));
        assert_eq!(lab.send(Way::ToPool, &unasked[1]).0, refused);
    }

    fn fragments_do_not_wait_for_a_first_one_that_was_refused<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let sent = udp(end(A::remote(1), 53), end(A::pool(1), 7), &[0; 100]);
        let pieces = fragments::<A, E, S, T>(&sent, 48, 3);
        let (fate, mut packet) = lab.send(Way::ToPool, &pieces[1]);
        let Fate::Waits(token) = fate else { panic!("{fate:?}") };
        assert_eq!(lab.nat.settled().count(), 0);
        assert_eq!(lab.send(Way::ToPool, &pieces[0]).0, Fate::Drop(DropReason::NatUnmapped));
        assert_eq!(lab.nat.settled().collect::<Vec<_>>(), [token]);
        let fate = lab.resume(Way::ToPool, token, &mut packet);
        assert_eq!(fate, Fate::Drop(DropReason::NatFragmentRefused));
        // Once is enough.
        assert_eq!(lab.send(Way::ToPool, &pieces[2]).0, Fate::Drop(DropReason::NatFragmentRefused));
        assert_eq!(lab.nat.settled().count(), 0);
    }

    fn fragments_of_one_way_say_nothing_of_anothers<A>() {
        // Found by the fuzz target: what passes as our own must not let an inside host's fragment out as it is.
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let sent = udp(end(A::inside(1), 4000), end(A::remote(1), 53), &[1; 100]);
        let pieces = fragments::<A, E, S, T>(&sent, 48, 1);
        assert!(matches!(lab.send(Way::Own, &pieces[0]).0, Fate::First(..)));
        assert!(matches!(lab.send(Way::Leaving, &pieces[1]).0, Fate::Waits(_)));
    }

    fn rfc5382_req2_connections_open_and_close_both_ways<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = Filtering::EndpointIndependent);
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
        let looks = lab.tcp_out(inside, remote, SYN).unwrap();
        assert_eq!(lab.tcp_in(remote, looks, SYN | ACK), Ok(inside));
        assert_eq!(lab.tcp_out(inside, remote, ACK), Ok(looks));
        // From outside, to what is mapped.
        let caller = end(A::remote(2), 4444);
        assert_eq!(lab.tcp_in(caller, looks, ACK), Err(Fate::Drop(DropReason::NatUnasked)));
        assert_eq!(lab.tcp_in(caller, looks, SYN), Ok(inside));
        assert_eq!(lab.tcp_out(inside, caller, SYN | ACK), Ok(looks));
        assert_eq!(lab.tcp_in(caller, looks, ACK), Ok(inside));
        for (from, flags) in [(true, FIN | ACK), (false, ACK), (false, FIN | ACK), (true, ACK)] {
            match from {
                true => assert_eq!(lab.tcp_out(inside, remote, flags), Ok(looks)),
                false => assert_eq!(lab.tcp_in(remote, looks, flags), Ok(inside)),
            }
        }
    }

    fn rfc5382_req2a_both_may_open_at_once<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = Filtering::AddressAndPortDependent);
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
        let looks = lab.tcp_out(inside, remote, SYN).unwrap();
        assert_eq!(lab.tcp_in(remote, looks, SYN), Ok(inside));
        assert_eq!(lab.tcp_out(inside, remote, SYN | ACK), Ok(looks));
        lab.ms += 2 * HOUR_MS;
        assert_eq!(lab.tcp_in(remote, looks, ACK), Ok(inside), "it is open");
    }

    fn rfc5382_req4_an_unasked_syn_gets_no_answer<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = Filtering::AddressAndPortDependent);
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
        let looks = lab.tcp_out(inside, remote, SYN).unwrap();
        // Dropped without a word, also where the address is an interface's.
        for owner in [Whose::Pool, Whose::Ours] {
            lab.owners = vec![owner];
            let other = end(A::remote(2), 80);
            assert_eq!(lab.tcp_in(other, looks, SYN), Err(Fate::Drop(DropReason::NatFiltered)));
            let nobody = end(A::pool(1), 9);
            assert_eq!(lab.tcp_in(other, nobody, SYN), Err(Fate::Drop(DropReason::NatUnmapped)));
        }
    }

    fn rfc5382_req5_timeouts<A>() {
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
        let open = |lab: &mut Lab<A, E, S, T>| {
            let looks = lab.tcp_out(inside, remote, SYN).unwrap();
            assert_eq!(lab.tcp_in(remote, looks, SYN | ACK), Ok(inside));
            looks
        };
        let gone = Err(Fate::Drop(DropReason::NatUnmapped));
        // Open: 2 hours and 4 minutes, refreshed by either side.
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let looks = open(&mut lab);
        lab.ms += 7_440_000 - 1;
        assert_eq!(lab.tcp_in(remote, looks, ACK), Ok(inside));
        lab.ms += 7_440_000 - 1;
        assert_eq!(lab.tcp_out(inside, remote, ACK), Ok(looks));
        lab.ms += 7_440_000;
        assert_eq!(lab.tcp_in(remote, looks, ACK), gone);
        // Opening, closed, reset: 4 minutes.
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let looks = lab.tcp_out(inside, remote, SYN).unwrap();
        lab.ms += 240_000 - 1;
        assert_eq!(lab.tcp_in(remote, looks, RST | ACK), Ok(inside));
        lab.ms += 240_000;
        assert_eq!(lab.tcp_in(remote, looks, SYN | ACK), gone);
        let looks = open(&mut lab);
        assert!(lab.tcp_out(inside, remote, FIN | ACK).is_ok());
        lab.ms += HOUR_MS;
        assert_eq!(lab.tcp_in(remote, looks, ACK), Ok(inside), "half closed is open");
        assert!(lab.tcp_in(remote, looks, FIN | ACK).is_ok());
        lab.ms += 240_000;
        assert_eq!(lab.tcp_in(remote, looks, ACK), gone);
    }

    fn rfc5382_req9_rfc5508_req3_req4_errors_from_outside<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 80));
        for proto in [Proto::Tcp, Proto::Udp, Proto::Icmp] {
            let sent = match proto {
                Proto::Tcp => tcp(inside, remote, SYN),
                Proto::Udp => udp(inside, remote, b"question"),
                Proto::Icmp => echo(inside.address, remote.address, 77, false),
            };
            let (fate, out) = lab.send(Way::Leaving, &sent);
            assert_eq!(fate, Fate::Translated);
            let (looks, _) = ends::<A, E, S, T>(&out);
            // A router on the way says what it got; eight bytes behind the header are enough.
            let upper = if A::V6 { 40 } else { 20 };
            for quoted in [&out[..], &out[..upper + 8]] {
                let message = error(A::remote(9), looks.address, quoted);
                let (fate, packet) = lab.send(Way::ToPool, &message);
                assert_eq!(fate, Fate::Translated);
                ends::<A, E, S, T>(&packet);
                assert_eq!(A::read(&packet[A::SOURCE..]), A::remote(9), "who says it stays");
                assert_eq!(A::read(&packet[A::SOURCE + A::BYTES..]), inside.address);
                // The packet as its sender knows it, checksums and all; type and code as they were (REQ-4).
                assert_eq!(packet[upper + 8..], sent[..quoted.len()]);
                assert_eq!(packet[upper..upper + 2], message[upper..upper + 2]);
                let mut wrong = message.clone();
                wrong[upper + 3] ^= 1;
                let (fate, _) = lab.send(Way::ToPool, &wrong);
                assert_eq!(fate, Fate::Drop(DropReason::NatMalformed), "REQ-3");
            }
            let mut other = out.clone();
            other[upper + usize::from(proto == Proto::Icmp) * 4] ^= 0x40;
            let message = error(A::remote(9), looks.address, &other);
            let (fate, _) = lab.send(Way::ToPool, &message);
            assert_eq!(fate, Fate::Drop(DropReason::NatErrorUnmatched), "of no session: {proto:?}");
        }
    }

    fn rfc5508_req3_of_what_is_quoted_the_headers_count_and_the_rest_comes_back<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
        let sent = udp(inside, remote, &[5; 200]);
        let (_, out) = lab.send(Way::Leaving, &sent);
        let (looks, _) = ends::<A, E, S, T>(&out);
        let upper = if A::V6 { 40 } else { 20 };
        // REQ-3c: the datagram's own checksum is not looked at.
        let mut damaged = out.clone();
        damaged[upper + 6] ^= 0x55;
        let (fate, packet) = lab.send(Way::ToPool, &error(A::remote(9), looks.address, &damaged));
        assert_eq!(fate, Fate::Translated);
        ends::<A, E, S, T>(&packet);
        let quoted = &packet[upper + 8..];
        assert_eq!(A::read(&quoted[A::SOURCE..]), inside.address);
        assert_eq!(quoted[upper..upper + 2], inside.port.to_be_bytes());
        // REQ-3d: extensions behind 128 bytes of the packet (RFC 4884), which say how long that is.
        let extension: [u8; 12] = [0x20, 0, 0, 0, 0, 8, 1, 1, 0, 1, 0x61, 64];
        let length = if A::V6 { [16, 0, 0, 0] } else { [0, 32, 0, 0] };
        let body = [&out[..128], &extension].concat();
        let message = icmp(A::remote(9), looks.address, A::KINDS[2], length, &body);
        let (fate, packet) = lab.send(Way::ToPool, &message);
        assert_eq!(fate, Fate::Translated);
        ends::<A, E, S, T>(&packet);
        assert_eq!(packet[upper + 4..upper + 8], length);
        assert_eq!(packet[upper + 8..], [&sent[..128], &extension].concat());
    }

    fn rfc5508_req6_errors_neither_refresh_a_session_nor_end_it<A>() {
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
        for (proto, life_ms) in [(Proto::Icmp, 60_000), (Proto::Udp, 300_000), (Proto::Tcp, 240_000)] {
            let mut lab = Lab::<A, E, S, T>::new(plan(1));
            let sent = match proto {
                Proto::Tcp => tcp(inside, remote, SYN),
                Proto::Udp => udp(inside, remote, b"question"),
                Proto::Icmp => echo(inside.address, remote.address, 77, false),
            };
            let (_, out) = lab.send(Way::Leaving, &sent);
            let (looks, _) = ends::<A, E, S, T>(&out);
            let answer = match proto {
                // It would open the connection.
                Proto::Tcp => None,
                Proto::Udp => Some(udp(remote, looks, b"answer")),
                Proto::Icmp => Some(echo(remote.address, looks.address, looks.port, true)),
            };
            let came = answer.map(|answer| lab.send(Way::ToPool, &answer).1);
            lab.ms += life_ms - 1;
            let about = error(A::remote(9), looks.address, &out);
            assert_eq!(lab.send(Way::ToPool, &about).0, Fate::Translated, "{proto:?}");
            if let Some(came) = came {
                let refused = error(inside.address, remote.address, &came);
                assert_eq!(lab.send(Way::Leaving, &refused).0, Fate::Translated, "{proto:?}");
            }
            assert_eq!(lab.nat.state().sessions(), 1, "{proto:?}");
            lab.ms += 1;
            let gone = Fate::Drop(DropReason::NatErrorUnmatched);
            assert_eq!(lab.send(Way::ToPool, &about).0, gone, "{proto:?}");
            assert_eq!(lab.nat.state().sessions(), 0, "{proto:?}");
        }
    }

    fn rfc5508_req1_req2_queries<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let idents: Vec<u16> = (1..=3)
            .map(|host| {
                let (fate, packet) = lab.send(Way::Leaving, &echo(A::inside(host), A::remote(1), 1000, false));
                assert_eq!(fate, Fate::Translated);
                ends::<A, E, S, T>(&packet).0.port
            })
            .collect();
        for (host, ident) in (1..=3).zip(&idents) {
            let reached = lab.come(&echo(A::remote(1), A::pool(1), *ident, true));
            assert_eq!(reached, Ok(end(A::inside(host), 1000)));
            let elsewhere = lab.come(&echo(A::remote(2), A::pool(1), *ident, true));
            assert_eq!(elsewhere, Err(Fate::Drop(DropReason::NatFiltered)));
        }
        // The identifier is the endpoint's, whatever it asks.
        let (_, packet) = lab.send(Way::Leaving, &echo(A::inside(1), A::remote(2), 1000, false));
        assert_eq!(ends::<A, E, S, T>(&packet).0.port, idents[0]);
        lab.ms += 60_000 - 1;
        assert!(lab.come(&echo(A::remote(1), A::pool(1), idents[0], true)).is_ok());
        lab.ms += 1;
        assert!(lab.come(&echo(A::remote(1), A::pool(1), idents[0], true)).is_err());
        // Nobody pings what is inside.
        let ping = lab.come(&echo(A::remote(1), A::pool(1), idents[1], false));
        assert_eq!(ping, Err(Fate::Drop(DropReason::NatUnmapped)));
        lab.owners = vec![Whose::Ours];
        let ping = lab.come(&echo(A::remote(1), A::pool(1), 5, false));
        assert_eq!(ping, Err(Fate::Passed), "but the address may be ours");
    }

    fn rfc5508_req5_errors_from_inside<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let (inside, remote) = (end(A::inside(1), 4000), end(A::remote(1), 53));
        let looks = lab.out(inside, remote);
        let answer = udp(remote, looks, b"late answer");
        let (_, let_in) = lab.send(Way::ToPool, &answer);
        let upper = if A::V6 { 40 } else { 20 };
        // The host itself, and a router of ours inside: nobody's inside address shows.
        for source in [inside.address, A::inside(99)] {
            let (fate, packet) = lab.send(Way::Leaving, &error(source, remote.address, &let_in));
            assert_eq!(fate, Fate::Translated);
            ends::<A, E, S, T>(&packet);
            assert_eq!(A::read(&packet[A::SOURCE..]), looks.address);
            assert_eq!(packet[upper + 8..], answer);
        }
        // Our own (the node behind us has no way on): its source is right already.
        let (fate, packet) = lab.send(Way::Own, &error(A::pool(1), remote.address, &let_in));
        assert_eq!((fate, &packet[upper + 8..]), (Fate::Translated, &answer[..]));
        let other = udp(remote, end(A::inside(7), 1), b"");
        let (fate, _) = lab.send(Way::Leaving, &error(inside.address, remote.address, &other));
        assert_eq!(fate, Fate::Drop(DropReason::NatErrorUnmatched));
    }

    fn rfc5508_req5_errors_about_what_came_in_without_a_session<A>() {
        for filtering in [Filtering::EndpointIndependent, Filtering::AddressDependent] {
            let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = filtering);
            let inside = end(A::inside(1), 4000);
            let looks = lab.out(inside, end(A::remote(1), 53));
            // Another port of his: the filter lets it in, and there is nothing to remember.
            let answer = udp(end(A::remote(1), 99), looks, b"large");
            let (_, let_in) = lab.send(Way::ToPool, &answer);
            assert_eq!(lab.nat.state().sessions(), 1);
            let upper = if A::V6 { 40 } else { 20 };
            for (way, source) in [(Way::Own, A::pool(1)), (Way::Leaving, inside.address)] {
                let (fate, packet) = lab.send(way, &error(source, A::remote(1), &let_in));
                assert_eq!(fate, Fate::Translated);
                ends::<A, E, S, T>(&packet);
                assert_eq!(packet[upper + 8..], answer);
                assert_eq!(A::read(&packet[A::SOURCE..]), looks.address);
            }
            // What has not come in is nobody's; least of all does it show where a host is.
            for quoted in [tcp(end(A::remote(1), 99), inside, ACK), udp(end(A::remote(1), 99), end(inside.address, 1), b"")] {
                let (fate, _) = lab.send(Way::Own, &error(A::pool(1), A::remote(1), &quoted));
                assert_eq!(fate, Fate::Drop(DropReason::NatErrorUnmatched));
            }
            // About a packet that only went through.
            let through = udp(end(A::remote(1), 99), end(A::remote(2), 1), b"");
            assert_eq!(lab.send(Way::Own, &error(A::pool(1), A::remote(1), &through)).0, Fate::Passed);
        }
    }

    fn rfc5508_req6_req7_errors_about_hairpins<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = Filtering::EndpointIndependent);
        let (alice, bob, remote) = (end(A::inside(1), 4000), end(A::inside(2), 5000), end(A::remote(1), 53));
        let (alices, bobs) = (lab.out(alice, remote), lab.out(bob, remote));
        let sent = udp(alice, bobs, b"hello");
        let (_, came) = lab.send(Way::Hairpin, &sent);
        // Our own about it (the way to Bob is too narrow) is to an address of the pool, and from nobody inside.
        let gate = A::inside(254);
        let (fate, packet) = lab.send(Way::FromUs, &error(gate, alices.address, &came));
        assert_eq!(fate, Fate::Translated);
        ends::<A, E, S, T>(&packet);
        assert_eq!(A::read(&packet[A::SOURCE..]), gate);
        assert_eq!(A::read(&packet[A::SOURCE + A::BYTES..]), alice.address);
        assert_eq!(packet[if A::V6 { 48 } else { 28 }..], sent);
        let (fate, packet) = lab.send(Way::Hairpin, &error(bob.address, alices.address, &came));
        assert_eq!(fate, Fate::Translated);
        ends::<A, E, S, T>(&packet);
        assert_eq!(A::read(&packet[A::SOURCE..]), bobs.address);
        assert_eq!(A::read(&packet[A::SOURCE + A::BYTES..]), alice.address);
        let upper = if A::V6 { 40 } else { 20 };
        assert_eq!(packet[upper + 8..], sent);
    }

    fn errors_go_to_who_has_sent_what_they_are_about<A>() {
        let mut plan = plan::<A, E, S, T>(2);
        plan.filtering = Filtering::EndpointIndependent;
        let mut lab = Lab::new(plan);
        let (alice, bob, remote) = (end(A::inside(1), 4000), end(A::inside(2), 5000), end(A::remote(1), 53));
        let (alices, bobs) = (lab.out(alice, remote), lab.out(bob, remote));
        let unmatched = Fate::Drop(DropReason::NatErrorUnmatched);
        let other = if alices.address == A::pool(1) { A::pool(2) } else { A::pool(1) };
        let about = udp(alices, remote, b"question");
        for (to, fate) in [(other, unmatched), (alices.address, Fate::Translated)] {
            assert_eq!(lab.send(Way::ToPool, &error(A::remote(9), to, &about)).0, fate);
        }
        let (_, came) = lab.send(Way::ToPool, &udp(remote, alices, b"answer"));
        for (to, fate) in [(A::remote(7), unmatched), (remote.address, Fate::Translated)] {
            assert_eq!(lab.send(Way::Leaving, &error(alice.address, to, &came)).0, fate);
        }
        let (_, came) = lab.send(Way::Hairpin, &udp(alice, bobs, b"hello"));
        for (to, fate) in [(other, unmatched), (alices.address, Fate::Translated)] {
            assert_eq!(lab.send(Way::Hairpin, &error(bob.address, to, &came)).0, fate);
        }
    }

    fn rfc5508_req8_who_can_have_no_session_is_told<A>() {
        let mut lab = Lab::<A, E, S, T>::with(|plan| plan.host_mappings = 3);
        let remote = end(A::remote(1), 53);
        for port in 1..=3 {
            lab.out(end(A::inside(1), port), remote);
        }
        let (fate, _) = lab.send(Way::Leaving, &udp(end(A::inside(1), 4), remote, b""));
        assert_eq!(fate, Fate::Tell(DropReason::NatHostLimit));
        lab.out(end(A::inside(2), 4), remote);
        let mut lab = Lab::<A, E, S, T>::with(|plan| (plan.mappings, plan.sessions) = (100, 50));
        let fates: Vec<Fate> = (1..=60)
            .map(|port| lab.send(Way::Leaving, &udp(end(A::inside(1), port), remote, b"")).0)
            .collect();
        assert_eq!(fates.iter().filter(|fate| **fate == Fate::Translated).count(), 50);
        assert_eq!(fates.last(), Some(&Fate::Tell(DropReason::NatTableFull)));
        assert_eq!(lab.nat.state().mappings(), 50, "no mapping stays without a session");
    }

    fn rfc5508_req10_req11_other_messages_do_not_pass<A>() {
        let mut lab = Lab::<A, E, S, T>::new(plan(1));
        let redirect = if A::V6 { 137 } else { 5 };
        let (fate, _) = lab.send(Way::ToPool, &icmp(A::remote(1), A::pool(1), redirect, [0; 4], b"12345678"));
        assert_eq!(fate, Fate::Drop(DropReason::NatProtocol));
        let (fate, _) = lab.send(Way::Leaving, &ip(A::inside(1), A::remote(1), tidemill_wire::Protocol::GRE, b"12345678"));
        assert_eq!(fate, Fate::Drop(DropReason::NatProtocol));
    }
}
