//! Whatever comes in: nothing panics, the books balance, every frame comes home, and what was right stays right.

use crate::common::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tidemill_port::memory::Frame;
use tidemill_wire::{EtherType, MacAddr, Protocol, icmpv4, verify_checksums};

fn router(martians: &str) -> Router {
    let config = format!(
        "next_hops.ports = ['wan', 'lan']\nrouter.martians = '{martians}'\n[[interface]]\nport = 'lan'\n\
         addresses = ['10.0.0.1/24', '2001:470::1/64']\npromiscuous = true\nmtu = 9000\n\
         [[interface]]\nport = 'wan'\nmtu = 600\n[[next_hop]]\nlabel = 5\nkind = 'unreachable'\n\
         [[next_hop]]\nlabel = 6\nkind = 'local'\n"
    );
    let v4 = routes(&[("0.0.0.0/1", 2), ("20.0.0.0/8", 1), ("30.0.0.0/8", 5), ("40.0.0.0/8", 6)]);
    Router::new(
        &config,
        v4,
        routes(&[("2001::/16", 2), ("2001:20::/32", 1), ("2002::/16", 5), ("2003::/16", 6)]),
    )
}

/// Frames that are right, of every kind that some node cares about.
fn good(rng: &mut StdRng) -> Vec<u8> {
    let data: Vec<u8> = (0..rng.random_range(0..1500)).map(|_| rng.random()).collect();
    let four = ["20.1.1.1", "30.1.1.1", "40.1.1.1", "10.0.0.1", "10.0.0.9", "99.1.1.1", "200.1.1.1"];
    let six = ["2001:20::1", "2002::1", "2003::1", "2001:470::1", "2001:470::9", "2001:99::1", "3000::1"];
    let mut pick = |n| rng.random_range(0..n);
    let (a, b) = (pick(7), pick(7));
    let (ttl, df, kind) = ([1, 2, 64][pick(3)], pick(2) == 1, pick(4));
    let (more, offset) = [(false, 0), (true, 0), (true, 800), (false, 1600)][pick(4)];
    match kind {
        0 => udp6(six[a], six[b], &data, |ip| ip.set_hop_limit(ttl)),
        1 => {
            let echo = icmp4(icmpv4::Repr::EchoRequest { ident: 1, seq: 2 }, &data);
            frame(LAN, EtherType::IPV4, &ip4(four[a], four[b], Protocol::ICMP, &echo, |ip| ip.set_ttl(ttl)))
        }
        _ => udp4(four[a], four[b], &data, |ip| {
            ip.set_ttl(ttl);
            ip.set_fragment(df, more, offset);
        }),
    }
}

/// Flips, overwrites, cuts or lengthens.
fn mutate(rng: &mut StdRng, frame: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..5) {
        let at = if rng.random() { rng.random_range(0..60) } else { rng.random_range(0..2000) };
        match (rng.random_range(0..6), frame.get_mut(at)) {
            (0..3, Some(byte)) => *byte ^= 1 << rng.random_range(0..8),
            (3, Some(byte)) => *byte = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            (4, _) => frame.truncate(at),
            (5, _) => frame.resize(frame.len() + rng.random_range(0..64), 0),
            _ => {}
        }
    }
}

#[test]
fn right_frames_stay_right() {
    let mut rng = StdRng::seed_from_u64(1);
    let frames: Vec<Frame> = (0..4000).map(|_| input(good(&mut rng))).collect();
    for frame in &frames {
        verify_checksums(&frame.bytes).unwrap();
    }
    let run = router("off").run_with(frames, 2048, |_| {});
    let sent = run.sent.iter().flatten();
    assert!(sent.clone().count() > 1500, "{} sent; {}", sent.count(), run.drops());
    for frame in sent {
        verify_checksums(frame).unwrap();
        assert!(frame[..6] != LAN.0 && frame[6..12] != MacAddr::ZERO.0);
    }
}

#[test]
fn wrong_frames_do_no_harm() {
    for seed in 0..8 {
        let mut rng = StdRng::seed_from_u64(seed);
        let frames = (0..4000).map(|i| {
            let mut bytes = good(&mut rng);
            match i % 4 {
                0 => bytes = (0..rng.random_range(0..200)).map(|_| rng.random()).collect(),
                1 => rng.fill_bytes(&mut bytes[14..]),
                _ => {}
            }
            mutate(&mut rng, &mut bytes);
            let mut wire_len = 0;
            if rng.random_range(0..8) == 0 {
                wire_len = bytes.len() as u32 + rng.random_range(0..100);
            }
            Frame { bytes, time_ns: i * 1_000_000, wire_len }
        });
        // Few frames of memory: fragments and errors run out of them. `run_with` checks the books.
        let run = router(["off", "strict"][seed as usize % 2]).run_with(frames.collect(), 300, |_| {});
        assert!(run.snapshot.ledger().dropped_total() > 1000);
        assert!(run.sent[1].len() > 100);
    }
}
