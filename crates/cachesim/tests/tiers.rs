//! Tiers: what they promise of each other, what crosses between them, and a single cache that they have to equal.
#![allow(clippy::unwrap_used)] // a test may

use tidemill_cachesim::log::KeyInfo;
use tidemill_cachesim::model::Alias;
use tidemill_cachesim::random::Random;
use tidemill_cachesim::run::{HashName, Run, Ways};
use tidemill_cachesim::tiers::{Inclusion, TierCounts, Tiers, TiersConfig, Write};
use tidemill_cachesim::{Log, Op, Policy, Request};

const KEYS: usize = 200;

fn cache(policy: Policy, ways: Ways, capacity: usize) -> Run {
    Run { policy, ways, capacity, hash: HashName::Crc32, seed: 1 }
}

fn lru(capacity: usize) -> Run {
    cache(Policy::Lru, Ways::Full, capacity)
}

fn made(requests: Vec<Request>) -> Log {
    Log::new(requests, (0..KEYS as u64).map(|id| KeyInfo::number(id, 20)).collect()).unwrap()
}

/// Of 20 requests so many are sets, deletes, changes.
fn log(seed: u64, sets: u64, deletes: u64, changes: u64) -> Log {
    let (mut random, popular) = (Random::new(seed), Alias::zipf(KEYS, 0.7).unwrap());
    let mut draw = || {
        let op = match random.below(20) {
            n if n < sets => Op::Set,
            n if n < sets + deletes => Op::Delete,
            n if n < sets + deletes + changes => Op::Change,
            _ => Op::Get,
        };
        Request::new(op, popular.draw(&mut random), 10 + random.below(90) as u32)
    };
    made((0..20_000).map(|_| draw()).collect())
}

const WHOLE: [(Inclusion, Write); 4] = [
    (Inclusion::Inclusive, Write::Through),
    (Inclusion::Inclusive, Write::Back),
    (Inclusion::NonInclusive, Write::Through),
    (Inclusion::NonInclusive, Write::Back),
];

#[test]
fn tiers_keep_their_promises_after_every_request() {
    let l0 = cache(Policy::Fifo, Ways::Sets(1), 4);
    for (inclusion, write) in WHOLE {
        for (l1, l2) in [
            (lru(20), lru(60)),
            (cache(Policy::Random, Ways::Sets(4), 32), cache(Policy::Sieve, Ways::Full, 40)),
            (cache(Policy::S3Fifo, Ways::Full, 30), cache(Policy::Clock, Ways::Sets(8), 32)),
            // L2 is the smaller one: what L1 has goes with it.
            (lru(50), lru(16)),
        ] {
            let log = log(3, 4, 1, 1);
            let config = TiersConfig { l0: Some(l0), l1, l2: Some(l2), inclusion, write };
            let mut tiers = Tiers::new(&log, config).unwrap();
            for (i, request) in log.requests().iter().take(5000).enumerate() {
                tiers.request(*request);
                tiers.check().unwrap_or_else(|e| panic!("{config:?}, request {i}: {e}"));
            }
        }
    }
}

fn counts(log: &Log, l1: Run, l2: Option<Run>, (inclusion, write): (Inclusion, Write)) -> TierCounts {
    Tiers::new(log, TiersConfig { l0: None, l1, l2, inclusion, write }).unwrap().run(1000)
}

#[test]
fn two_lru_tiers_that_share_nothing_are_one_lru() {
    let log = log(8, 3, 1, 0);
    for write in [Write::Through, Write::Back] {
        let (l1, l2) = (lru(25), lru(50));
        let both = counts(&log, l1, Some(l2), (Inclusion::NonInclusive, write));
        let one = lru(75).run(&log, 1000).unwrap();
        assert_eq!((both.gets, both.l1_hits + both.l2_hits), (one.gets, one.hits));
        let alone = l1.run(&log, 1000).unwrap();
        assert_eq!(both.l1_hits, alone.hits, "what L1 has does not depend on L2");
        assert_eq!(counts(&log, l1, None, (Inclusion::NonInclusive, write)).l1_hits, alone.hits);
    }
}

#[test]
fn an_l2_as_large_as_l1_is_worth_nothing_if_it_is_inclusive() {
    let log = log(2, 2, 0, 0);
    let alone = counts(&log, lru(40), None, WHOLE[0]);
    let tiered = counts(&log, lru(40), Some(lru(40)), WHOLE[0]);
    // L2 does not see the hits in L1: it is even in the way.
    assert!(tiered.miss_ratio() >= alone.miss_ratio());
    let other = counts(&log, lru(40), Some(lru(40)), WHOLE[3]);
    assert!(other.miss_ratio() < alone.miss_ratio() - 0.05, "{other:?} {alone:?}");
}

#[test]
fn a_hit_in_l0_is_one_and_its_key_goes_with_l1s() {
    let get = |key| Request::new(Op::Get, key, 100);
    let log = made([0, 0, 1, 0, 2, 0].map(get).to_vec());
    let config = TiersConfig {
        l0: Some(lru(8)),
        l1: lru(2),
        l2: None,
        inclusion: Inclusion::Inclusive,
        write: Write::Through,
    };
    let counts = Tiers::new(&log, config).unwrap().run(0);
    // 0 is in L0 at its second and third get; L1 has not seen these, and gives it up for 2.
    assert_eq!((counts.l0_hits, counts.l1_hits, counts.gets), (2, 0, 6));
}

/// Frames have 46 bytes, the key's 20, and the value; an evicted value has 16 and the key's.
#[test]
fn bytes_that_cross_are_counted() {
    let request = |op, key| Request::new(op, key, 100);
    let cross = |log: &Log, kind| counts_all(log, lru(1), Some(lru(2)), kind);
    let (up, down, set, done, evicted) = (66, 166, 166, 60, 136);

    let gets = made(vec![request(Op::Get, 0), request(Op::Get, 0), request(Op::Get, 1), request(Op::Get, 0)]);
    let inclusive = cross(&gets, WHOLE[0]);
    assert_eq!((inclusive.dma_bytes, inclusive.l1_hits, inclusive.l2_hits), (3 * (up + down), 1, 1));
    let other = cross(&gets, WHOLE[3]);
    assert_eq!((other.dma_bytes, other.l2_hits), (3 * (up + down) + 2 * evicted, 1));
    assert_eq!(other.wire_bytes, 4 * (up + 24));

    let sets = made(vec![request(Op::Set, 0), request(Op::Set, 0), request(Op::Set, 1), request(Op::Set, 1)]);
    let [through, inclusive_back, _, back] = WHOLE.map(|kind| cross(&sets, kind));
    assert_eq!((through.dma_bytes, through.written_back), (4 * (set + done), 0));
    assert_eq!((back.dma_bytes, back.written_back), (evicted, 1), "key 0, when key 1 came");
    // The first set of each crosses, to make room in L2; the second of key 0 is written back.
    assert_eq!((inclusive_back.dma_bytes, inclusive_back.written_back), (2 * (set + done) + evicted, 1));

    let deletes = made(vec![request(Op::Set, 0), request(Op::Delete, 0), request(Op::Get, 0)]);
    let deleted = cross(&deletes, WHOLE[3]);
    assert_eq!((deleted.dma_bytes, deleted.l1_hits, deleted.written_back), (up + done + up + down, 0, 0));
    // At 1000 bytes a second of requests.
    let rate = deleted.dma_rate(1000.0);
    assert!((rate - 1000.0 * deleted.dma_bytes as f64 / deleted.wire_bytes as f64).abs() < 1e-9);
}

fn counts_all(log: &Log, l1: Run, l2: Option<Run>, (inclusion, write): (Inclusion, Write)) -> TierCounts {
    Tiers::new(log, TiersConfig { l0: None, l1, l2, inclusion, write }).unwrap().run(0)
}
