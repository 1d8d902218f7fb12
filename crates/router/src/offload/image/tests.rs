//! Images against the linear oracle, built whole and patched, and their lines against their own books.

use super::*;
use crate::offload::layout::NODES;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_lpm::oracle::Oracle;
use tidemill_lpm::{Prefix, Rib};

const LINES: u32 = NODES + 60_000;

fn memory() -> Vec<AtomicU64> {
    // What was there before is nobody's.
    (0..(LINES + 1) as usize * LINE).map(|at| AtomicU64::new(at as u64 * 0x9e37_79b9)).collect()
}

/// A prefix near others, of a length that tables have, or of any.
fn prefix<A: Address>(rng: &mut StdRng) -> Prefix<A> {
    let usual: &[u8] = if A::FAMILY == 4 { &[16, 20, 22, 24, 32] } else { &[20, 32, 44, 48, 64, 128] };
    let len = match rng.random_range(0..4) {
        0 => rng.random_range(8..=A::BITS),
        _ => usual[rng.random_range(0..usual.len())],
    };
    // Few different bits in front, so that prefixes lie within each other.
    let near = u128::from(rng.random_range(0..3_u32)) << 125 | u128::from(rng.random_range(0..4_u32)) << 110;
    let far = rng.random::<u128>() >> rng.random_range(16..128_u32);
    let address = A::from_u128((near ^ far) >> (128 - u32::from(A::BITS)));
    Prefix::new(address, len).unwrap()
}

/// Both ends of each prefix, and their neighbors.
fn addresses<A: Address>(rib: &Rib<A>) -> Vec<A> {
    let around = |prefix: Prefix<A>| {
        let (first, last) = (prefix.first(), prefix.last());
        let before = if first == A::MIN { first } else { first - A::one() };
        let behind = if last == A::MAX { last } else { last + A::one() };
        [first, last, before, behind]
    };
    rib.iter().flat_map(|(prefix, _)| around(prefix)).collect()
}

fn check<A: Address>(image: &Image, words: &[AtomicU64], rib: &Rib<A>, what: &str) {
    let oracle = Oracle::new(&rib.iter().collect::<Vec<_>>());
    for address in addresses(rib).into_iter().chain([A::MIN, A::MAX]) {
        let found = image.lookup(words, address);
        assert_eq!(found, oracle.lookup(address).0.min(BEYOND), "{what}: {}", address.to_ip());
    }
}

fn random<A: Address>(rng: &mut StdRng, count: usize) -> Rib<A> {
    (0..count).map(|_| (prefix(rng), Label(rng.random_range(1..50)))).collect()
}

#[test]
fn an_image_that_is_built_answers_as_the_oracle() {
    let mut rng = StdRng::seed_from_u64(1);
    let words = memory();
    let mut image = Image::new(1, LINES);
    for count in [0, 1, 30, 1500] {
        let (mut rib4, mut rib6) = (random(&mut rng, count), random(&mut rng, count));
        if count == 30 {
            rib4.insert(Prefix::DEFAULT, Label(50));
            rib6.insert(Prefix::DEFAULT, Label(50));
        }
        image.build(&words, &rib4, &rib6).unwrap();
        check(&image, &words, &rib4, "IPv4");
        check(&image, &words, &rib6, "IPv6");
        assert_eq!(image.lines(), Image::measure(&rib4, &rib6), "{count}");
    }
}

/// Prefixes of both families that an image has not heard of.
type Stale = (Vec<Prefix<u32>>, Vec<Prefix<u128>>);

/// Two images that take turns, as generations do: each hears late, and of several changes at once.
#[test]
fn images_that_are_patched_in_turn_answer_as_the_oracle_and_lose_no_line() {
    let mut rng = StdRng::seed_from_u64(2);
    let words = [memory(), memory()];
    let mut images = [Image::new(1, LINES), Image::new(1, LINES)];
    let (mut rib4, mut rib6) = (random::<u32>(&mut rng, 600), random::<u128>(&mut rng, 600));
    for (image, words) in images.iter_mut().zip(&words) {
        image.build(words, &rib4, &rib6).unwrap();
    }
    let mut stale: [Stale; 2] = Default::default();
    for turn in 0..60 {
        for _ in 0..rng.random_range(1..30) {
            let (p4, p6) = (change(&mut rng, &mut rib4), change(&mut rng, &mut rib6));
            stale.iter_mut().for_each(|(stale4, stale6)| {
                stale4.push(p4);
                stale6.push(p6);
            });
        }
        let at = turn % 2;
        let (image, words) = (&mut images[at], &words[at]);
        let (stale4, stale6) = std::mem::take(&mut stale[at]);
        stale4.into_iter().for_each(|prefix| image.update(words, &rib4, prefix).unwrap());
        stale6.into_iter().for_each(|prefix| image.update(words, &rib6, prefix).unwrap());
        check(image, words, &rib4, "IPv4, patched");
        check(image, words, &rib6, "IPv6, patched");
        assert_eq!(image.lines(), Image::measure(&rib4, &rib6), "turn {turn}: as many lines as a new one");
    }
    // When all routes are gone, so are their nodes.
    let (image, words) = (&mut images[0], &words[0]);
    let (gone4, gone6): (Vec<_>, Vec<_>) =
        (rib4.iter().map(|(prefix, _)| prefix).collect(), rib6.iter().map(|(prefix, _)| prefix).collect());
    gone4.iter().for_each(|prefix| {
        rib4.remove(*prefix);
        image.update(words, &rib4, *prefix).unwrap();
    });
    gone6.iter().for_each(|prefix| {
        rib6.remove(*prefix);
        image.update(words, &rib6, *prefix).unwrap();
    });
    for (stale4, stale6) in &stale[..1] {
        stale4.iter().for_each(|prefix| image.update(words, &rib4, *prefix).unwrap());
        stale6.iter().for_each(|prefix| image.update(words, &rib6, *prefix).unwrap());
    }
    assert_eq!(image.lines(), NODES);
    assert!(gone4.iter().all(|prefix| image.lookup(words, prefix.first()) == 0));
    assert!(gone6.iter().all(|prefix| image.lookup(words, prefix.first()) == 0));
}

/// Announces or withdraws something.
fn change<A: Address>(rng: &mut StdRng, rib: &mut Rib<A>) -> Prefix<A> {
    let there = rib.iter().nth(rng.random_range(0..rib.len().max(1))).map(|(prefix, _)| prefix);
    match there.filter(|_| rng.random_range(0..2) == 0) {
        Some(prefix) if rng.random_range(0..3) > 0 => {
            rib.remove(prefix);
            prefix
        }
        Some(prefix) => {
            rib.insert(prefix, Label(rng.random_range(1..50)));
            prefix
        }
        None => {
            let prefix = prefix(rng);
            rib.insert(prefix, Label(rng.random_range(1..50)));
            prefix
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_and_what_fits_again_is_taken() {
    let mut rng = StdRng::seed_from_u64(3);
    let words = memory();
    let (many, few) = (random::<u128>(&mut rng, 2000), random::<u128>(&mut rng, 50));
    let room = Image::measure(&Rib::new(), &few).max(NODES + 40);
    let mut image = Image::new(1, room);
    assert_eq!(image.build(&words, &Rib::new(), &many), Err(Full));
    image.build(&words, &Rib::new(), &few).unwrap();
    check(&image, &words, &few, "few");
    // One after the other until there is no room; then those that fit, anew.
    let mut growing = few.clone();
    let refused = many.iter().find(|(prefix, label)| {
        growing.insert(*prefix, *label);
        image.update(&words, &growing, *prefix).is_err()
    });
    assert!(refused.is_some());
    image.build(&words, &Rib::new(), &few).unwrap();
    check(&image, &words, &few, "few again");
    assert_eq!(Image::new(1, NODES - 1).build(&words, &Rib::new(), &Rib::new()), Err(Full));
}

#[test]
fn routes_to_nearly_everything_are_better_written_anew() {
    let broad =
        ["0.0.0.0/0", "0.0.0.0/7", "10.0.0.0/8"].map(|text| Image::is_broad::<u32>(text.parse().unwrap()));
    assert_eq!(broad, [true, true, false]);
    assert!(Image::is_broad::<u128>("2000::/3".parse().unwrap()));
}

#[test]
fn labels_beyond_the_room_for_next_hops_are_one() {
    let words = memory();
    let mut image = Image::new(1, LINES);
    let routes = [("10.0.0.0/8", HOPS - 2), ("10.1.0.0/16", HOPS - 1), ("10.1.1.0/24", u32::MAX)];
    let rib: Rib<u32> =
        routes.iter().map(|(prefix, label)| (prefix.parse().unwrap(), Label(*label))).collect();
    image.build(&words, &rib, &Rib::new()).unwrap();
    let found = [0x0a00_0001, 0x0a01_0001, 0x0a01_0101, 0x0b00_0000].map(|at: u32| image.lookup(&words, at));
    assert_eq!(found, [HOPS - 2, BEYOND, BEYOND, 0]);
}
