//! Bytes that are no packets, and packets with bytes changed, cut and added: nothing panics, what is not translated stays, and what was
//! right is right afterwards.

use crate::packets::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_nf::nat::config::Filtering;
use tidemill_nf::nat::{Fate, Way};
use tidemill_wire::verify_checksums;

fn right<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(packet: &[u8]) -> bool {
    let mut frame = vec![0; 12];
    frame.extend_from_slice(if A::V6 { &[0x86, 0xdd] } else { &[8, 0] });
    frame.extend_from_slice(packet);
    verify_checksums(&frame).is_ok()
}

fn run<A: Net<E, S, T>, const E: usize, const S: usize, const T: usize>(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut lab = Lab::<A, E, S, T>::with(|plan| plan.filtering = Filtering::EndpointIndependent);
    let (inside, remote, pool) = (end(A::inside(1), 4000), end(A::remote(1), 53), end(A::pool(1), 4000));
    let looks = lab.out(inside, remote);
    assert_eq!(looks, pool);
    let about = udp(looks, remote, b"question");
    let seeds = [
        (Way::Leaving, udp(inside, remote, b"question")),
        (Way::Leaving, tcp(inside, remote, SYN)),
        (Way::Leaving, echo(inside.address, remote.address, 7, false)),
        (Way::ToPool, udp(remote, looks, b"answer")),
        (Way::ToPool, error(A::remote(2), looks.address, &about)),
        (Way::Leaving, error(inside.address, remote.address, &udp(remote, inside, b"late"))),
        (Way::Hairpin, udp(end(A::inside(2), 9), looks, b"hello")),
        (Way::Own, error(looks.address, remote.address, &udp(remote, inside, b"late"))),
        (Way::Leaving, fragments::<A, E, S, T>(&udp(inside, remote, &[7; 100]), 48, 9).swap_remove(1)),
    ];
    let mut translated = 0;
    for _ in 0..20_000 {
        let (way, packet) = &seeds[random.random_range(0..seeds.len())];
        let mut packet = packet.clone();
        for _ in 0..random.random_range(0..3) {
            let at = random.random_range(0..packet.len());
            packet[at] = random.random();
        }
        match random.random_range(0..6) {
            0 => packet.truncate(random.random_range(0..=packet.len())),
            1 => packet.extend((0..random.random_range(0..20)).map(|_| random.random::<u8>())),
            _ => {}
        }
        lab.ms += random.random_range(0..3) * 1000;
        let was_right = right::<A, E, S, T>(&packet);
        // That what is not translated stays is looked at in there.
        let (fate, got) = lab.send(*way, &packet);
        if matches!(fate, Fate::Translated | Fate::First(..)) {
            translated += 1;
            assert_eq!(got.len(), packet.len());
            assert!(!was_right || right::<A, E, S, T>(&got), "{packet:x?} became {got:x?}");
        }
    }
    assert!(translated > 1000, "{translated}");
    for _ in 0..20_000 {
        let len = random.random_range(0..80);
        let bytes: Vec<u8> = (0..len).map(|_| random.random()).collect();
        let way = [Way::Leaving, Way::ToPool, Way::Hairpin, Way::Own][random.random_range(0..4)];
        lab.send(way, &bytes);
    }
}

#[test]
fn nothing_panics_and_what_was_right_stays_right() {
    run::<u32, 1, 2, 4>(1);
    run::<u128, 3, 5, 5>(2);
}
