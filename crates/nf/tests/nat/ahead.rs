//! Looking ahead makes no difference: the same bursts through a NAT that looks ahead, and through one that takes each packet as it comes.

use crate::packets::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_flow::key::Key;
use tidemill_nf::nat::config::Filtering;
use tidemill_nf::nat::settings::Whose;
use tidemill_nf::nat::{Endpoint, Fate, Nat, Now, Proto, Share, Token, Way};

/// What both go through, and what came of it, so that all of it is known to have been there.
#[derive(Debug, Default)]
struct Seen {
    translated: u32,
    refused: u32,
    fragments: u32,
    elsewhere: u32,
    /// Sessions that were there and are not.
    ended: u32,
}

/// All sessions as they lie in the table, words and all.
fn sessions<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    nat: &Nat<A, E, S, T>,
) -> Vec<(Key<S>, [u64; T])> {
    let mut all = Vec::new();
    nat.state().reader().scan(0, usize::MAX, |key, flow| all.push((*key, flow.state)));
    all
}

/// A packet of one of a few conversations; `looks` are outside endpoints that packets have left with.
fn any_packet<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(
    random: &mut StdRng,
    looks: &[Endpoint<A>],
) -> (Way, Vec<u8>) {
    let mut below = |most: usize| random.random_range(0..most);
    let port = [53, 80, 1024, 4000][below(4)];
    let inside = end(A::inside(1 + below(5) as u8), port);
    let remote = end(A::remote(1 + below(3) as u8), 50 + below(3) as u16);
    let near = match below(10) {
        0..3 => end(A::pool(1), 8080),
        3 => end(A::pool(2), 5353),
        4 => end(A::pool(3), port),
        5 => end(A::pool(1), 1000 + below(4000) as u16),
        _ => looks.get(below(64)).copied().unwrap_or(end(A::pool(3), port)),
    };
    let flags = [SYN, SYN | ACK, ACK, ACK, ACK, ACK, FIN | ACK, RST][below(8)];
    let kind = below(8);
    let sent = |from: Endpoint<A>, to: Endpoint<A>, ident: u16| match kind {
        0..4 => tcp(from, to, flags),
        4..6 => udp(from, to, b"data"),
        6 => echo(from.address, to.address, ident, false),
        _ => echo(from.address, to.address, ident, true),
    };
    let pieces = |from: Endpoint<A>, to: Endpoint<A>| {
        fragments::<A, E, S, T>(&udp(from, to, &[7; 100]), 48, flags.into())
    };
    let (way, mut ip) = match below(24) {
        0..7 => (Way::Leaving, sent(inside, remote, inside.port)),
        7..11 => (Way::Leaving, tcp(end(A::inside(1), 80), remote, flags)),
        11..19 => (Way::ToPool, sent(remote, near, near.port)),
        19 => (Way::Hairpin, sent(inside, near, inside.port)),
        20 => (Way::ToPool, error(A::remote(9), near.address, &udp(near, remote, b"data"))),
        21 => (Way::Leaving, error(inside.address, remote.address, &udp(remote, inside, b"data"))),
        22 => (Way::Leaving, pieces(inside, remote).swap_remove(below(3))),
        _ => (Way::ToPool, pieces(remote, near).swap_remove(below(3))),
    };
    let (fault, at) = (below(40), below(ip.len()));
    match fault {
        0 => ip.truncate(at),
        1 => ip[at] ^= 0x10,
        _ => {}
    }
    (way, ip)
}

fn run<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(seed: u64, seen: &mut Seen) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut plan = plan::<A, E, S, T>(3);
    let filterings =
        [Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent];
    plan.filtering = filterings[(seed % 3) as usize];
    plan.fixed = vec![
        (Proto::Tcp, end(A::inside(1), 80), end(A::pool(1), 8080)),
        (Proto::Udp, end(A::inside(2), 53), end(A::pool(2), 5353)),
    ];
    plan.whole = vec![(A::pool(3), A::inside(3))];
    (plan.mappings, plan.sessions) = (random.random_range(20..100), random.random_range(30..120));
    (plan.host_sessions, plan.source_sessions) = (random.random_range(10..40), random.random_range(2..12));
    let workers = if (seed / 3).is_multiple_of(2) { 1 } else { 3 };
    let make = || Nat::<A, E, S, T>::new(plan.clone(), Share { worker: 0, workers }, 77).unwrap();
    let (mut ahead, mut plain) = (make(), make());
    let mut times = times();
    times.inbound_refresh = random.random_bool(0.5);
    let owners = [Whose::Pool, Whose::Ours, Whose::Pool];
    let (mut ms, mut looks): (u64, Vec<Endpoint<A>>) = (1_000_000, Vec::new());
    let waits = [0, 0, 1, 1000, 30_000, 60_000, 100_000, 240_000, 300_000, 7_440_000];
    for round in 0..200 {
        let count = random.random_range(1..80);
        let burst: Vec<(Way, Vec<u8>)> =
            (0..count).map(|_| any_packet::<A, E, S, T>(&mut random, &looks)).collect();
        let before = ahead.state().sessions();
        ahead.look_ahead(burst.iter().map(|(way, ip)| (*way, &ip[..])));
        // Between the look ahead and the packets, too, time goes by, and sessions end.
        ms += waits[random.random_range(0..waits.len())] * u64::from(random.random_bool(0.3));
        if random.random_bool(0.3) {
            let buckets = random.random_range(1..4);
            ahead.reclaim(ms, buckets);
            plain.reclaim(ms, buckets);
        }
        seen.ended += (before - ahead.state().sessions()) as u32;
        let now = Now { ms, times: &times, owners: &owners, near: &[] };
        let mut waiting: Vec<(Way, Token, Vec<u8>)> = Vec::new();
        for (place, (way, ip)) in burst.iter().enumerate() {
            let (mut one, mut other) = (ip.clone(), ip.clone());
            let fate = ahead.translate_next(place, &now, *way, &mut one);
            let said = format!("seed {seed}, round {round}, packet {place}: {way:?} {ip:02x?}");
            assert_eq!(fate, plain.translate(&now, *way, &mut other), "{said}");
            assert_eq!(one, other, "{said}");
            assert!(ahead.settled().eq(plain.settled()), "{said}");
            match fate {
                Fate::Translated | Fate::Passed => seen.translated += 1,
                Fate::First(..) => seen.fragments += 1,
                Fate::Waits(token) => waiting.push((*way, token, one.clone())),
                Fate::Elsewhere(_) => seen.elsewhere += 1,
                Fate::Drop(_) | Fate::Tell(_) => seen.refused += 1,
            }
            let upper = if A::V6 { 40 } else { 20 };
            if fate == Fate::Translated && *way == Way::Leaving && one.len() >= upper + 6 {
                looks.insert(0, raw_ends::<A, E, S, T>(&one).0);
                looks.truncate(64);
            }
        }
        for (way, token, mut ip) in waiting {
            let mut other = ip.clone();
            let fate = ahead.resume(&now, way, token, &mut ip);
            assert_eq!(fate, plain.resume(&now, way, token, &mut other), "seed {seed}, round {round}");
            assert_eq!(ip, other, "seed {seed}, round {round}");
        }
        assert_eq!(sessions(&ahead), sessions(&plain), "seed {seed}, round {round}");
        assert!(ahead.counters().iter().eq(plain.counters().iter()), "seed {seed}, round {round}");
        assert_eq!(ahead.state().mappings(), plain.state().mappings(), "seed {seed}, round {round}");
    }
}

#[test]
fn nobody_can_tell_whether_packets_were_looked_at_ahead() {
    let mut seen = Seen::default();
    for seed in 0..12 {
        run::<u32, 1, 2, 4>(seed, &mut seen);
        run::<u128, 3, 5, 5>(seed + 100, &mut seen);
    }
    let Seen { translated, refused, fragments, elsewhere, ended } = seen;
    assert!(translated > 10_000 && refused > 10_000, "{translated}, {refused}");
    assert!(fragments > 200 && elsewhere > 1000 && ended > 500, "{fragments}, {elsewhere}, {ended}");
}

#[test]
fn a_look_ahead_is_right_though_the_burst_itself_changes_all() {
    // Small tables, nearly full, so that entries move while a burst goes through; one looks ahead, the other does not.
    let small = || {
        Lab::<u32, 1, 2, 4>::with(|plan| {
            plan.filtering = Filtering::EndpointIndependent;
            (plan.mappings, plan.sessions) = (600, 600);
        })
    };
    let (mut ahead, mut plain) = (small(), small());
    let mut random = StdRng::seed_from_u64(3);
    for _ in 0..300 {
        let burst: Vec<(Way, Vec<u8>)> = (0..200)
            .map(|_| {
                let inside = end(u32::inside(random.random_range(0..200)), random.random_range(3000..3005));
                let remote = end(u32::remote(1), random.random_range(1..20));
                match random.random_range(0..3) {
                    0 => (Way::Leaving, udp(inside, remote, b"")),
                    1 => (Way::Leaving, tcp(inside, remote, SYN)),
                    _ => (Way::ToPool, tcp(remote, end(u32::pool(1), random.random_range(3000..3200)), SYN)),
                }
            })
            .collect();
        ahead.nat.look_ahead(burst.iter().map(|(way, ip)| (*way, &ip[..])));
        for (place, (way, ip)) in burst.iter().enumerate() {
            let (mut one, mut other) = (ip.clone(), ip.clone());
            let now = Now { ms: ahead.ms, times: &ahead.times, owners: &ahead.owners, near: &[] };
            let fate = ahead.nat.translate_next(place, &now, *way, &mut one);
            assert_eq!((fate, one), (plain.nat.translate(&now, *way, &mut other), other));
        }
        ahead.ms += 5_000;
        ahead.nat.reclaim(ahead.ms, 3);
        plain.nat.reclaim(ahead.ms, 3);
    }
    assert_eq!(
        ahead.nat.counters().iter().collect::<Vec<_>>(),
        plain.nat.counters().iter().collect::<Vec<_>>()
    );
}
