//! Every cache beside an obvious model of itself, request by request: who is kept, and who goes.
#![allow(clippy::unwrap_used)] // a test may

mod plain;

use plain::Plain;
use std::collections::HashSet;
use tidemill_cachesim::log::KeyInfo;
use tidemill_cachesim::model::Alias;
use tidemill_cachesim::random::Random;
use tidemill_cachesim::run::{HashName, Run, Ways};
use tidemill_cachesim::slab::{CHUNK_BYTES, Chunks, Slab, SlabPolicy, class};
use tidemill_cachesim::{Cache, Log, Op, Policy, Request};

const KEYS: u32 = 120;

/// Requests of several kinds of clients: popular keys, scans, loops a little larger than the cache, bursts of one key, deletes.
fn requests(seed: u64, capacity: u32, len: usize) -> Vec<(Op, u32)> {
    let mut random = Random::new(seed);
    let popular = Alias::zipf(KEYS as usize, 0.8).unwrap();
    let mut requests = Vec::new();
    while requests.len() < len {
        let span = 1 + random.below(60) as u32;
        let start = random.below(KEYS.into()) as u32;
        let kind = random.below(5);
        let deletes = random.below(4) == 0;
        for i in 0..span {
            let key = match kind {
                0 | 1 => popular.draw(&mut random),
                2 => start + i,
                3 => start + i % (capacity + 1),
                _ => start,
            };
            let op = match random.below(20) {
                0..3 if deletes => Op::Delete,
                3 => Op::Set,
                4 => Op::Change,
                _ => Op::Get,
            };
            requests.push((op, key % KEYS));
        }
    }
    requests.truncate(len);
    requests
}

fn keys(n: u32) -> Vec<KeyInfo> {
    (0..n).map(|id| KeyInfo::number(id.into(), 8)).collect()
}

/// Both answer alike; nothing is kept beyond the room there is.
fn compare(cache: &mut dyn Cache, models: &mut [Plain], of: impl Fn(u32) -> usize, seed: u64, what: &str) {
    for (i, (op, key)) in requests(seed, cache.capacity() as u32, 3000).into_iter().enumerate() {
        let at = format!("{what}, seed {seed}, request {i}: {op:?} {key}");
        let model = &mut models[of(key)];
        match op {
            Op::Delete => assert_eq!(cache.remove(key), model.remove(key), "{at}"),
            Op::Get | Op::Set | Op::Change => {
                let found = cache.get(key);
                assert_eq!(found, model.get(key), "{at}");
                assert_eq!(cache.contains(key), found, "{at}");
                if !found && op != Op::Change {
                    assert_eq!(cache.insert(key), model.insert(key), "{at}");
                    assert!(cache.contains(key), "{at}");
                }
            }
        }
        assert_eq!(cache.len(), models.iter().map(Plain::len).sum::<usize>(), "{at}");
    }
}

#[test]
fn fully_associative_caches_do_as_their_models() {
    let log = Log::new(Vec::new(), keys(KEYS)).unwrap();
    for policy in Policy::ALL.into_iter().filter(|policy| *policy != Policy::Random) {
        for capacity in [1, 2, 3, 7, 10, 20, 33, 64, 119, 120, 200] {
            for seed in 0..6 {
                let run = Run { policy, ways: Ways::Full, capacity, hash: HashName::Crc32, seed };
                let mut models = [Plain::new(policy, capacity)];
                compare(&mut run.cache(&log).unwrap(), &mut models, |_| 0, seed, &format!("{run:?}"));
            }
        }
    }
}

#[test]
fn every_set_is_a_small_cache_of_its_own() {
    let log = Log::new(Vec::new(), keys(KEYS)).unwrap();
    let policies = [Policy::Fifo, Policy::Lru, Policy::Clock, Policy::Sieve, Policy::S3Fifo];
    for (policy, hash) in policies.into_iter().flat_map(|p| [(p, HashName::Crc32), (p, HashName::Lookup3)]) {
        for ways in [1, 2, 3, 4, 8, 16] {
            for sets in [1, 2, 5, 8] {
                let seed = (ways * 100 + sets) as u64;
                let run = Run { policy, ways: Ways::Sets(ways), capacity: ways * sets, hash, seed };
                let hashes = hash.of(&log);
                let mut models: Vec<Plain> = (0..sets).map(|_| Plain::new(policy, ways)).collect();
                let of = |key: u32| hashes[key as usize] as usize % sets;
                compare(&mut run.cache(&log).unwrap(), &mut models, of, seed, &format!("{run:?}"));
            }
        }
    }
}

#[test]
fn random_evicts_anybody_and_only_when_it_must() {
    let log = Log::new(Vec::new(), keys(KEYS)).unwrap();
    for ways in [Ways::Full, Ways::Sets(4)] {
        let run = Run { policy: Policy::Random, ways, capacity: 40, hash: HashName::Crc32, seed: 9 };
        let (mut cache, mut kept) = (run.cache(&log).unwrap(), HashSet::new());
        let mut evictions = vec![0; KEYS as usize];
        for (op, key) in requests(5, 40, 100_000) {
            match op {
                Op::Delete => assert_eq!(cache.remove(key), kept.remove(&key)),
                _ if cache.get(key) => assert!(kept.contains(&key)),
                _ => {
                    let was_full = kept.len() == cache.capacity();
                    let evicted = cache.insert(key);
                    assert!(ways != Ways::Full || evicted.is_some() == was_full);
                    if let Some(evicted) = evicted {
                        assert!(kept.remove(&evicted), "{evicted} was not kept");
                        evictions[evicted as usize] += 1;
                    }
                    assert!(kept.insert(key), "{key} was kept");
                }
            }
            assert_eq!(cache.len(), kept.len());
        }
        assert!(evictions.iter().all(|&n| n > 0), "everybody's turn comes: {evictions:?}");
        // Evenly drawn keys are kept as often as there is room for them.
        let mut random = Random::new(3);
        let even = (0..200_000).map(|_| Request::new(Op::Get, random.below(KEYS.into()) as u32, 1)).collect();
        let counts = run.run(&Log::new(even, keys(KEYS)).unwrap(), 1000).unwrap();
        assert!((counts.miss_ratio() - 2.0 / 3.0).abs() < 0.02, "{ways}: {counts:?}");
    }
}

#[test]
fn a_slab_is_a_small_cache_for_each_size() {
    for (policy, plain) in [(SlabPolicy::Lru, Policy::Lru), (SlabPolicy::Fifo, Policy::Fifo)] {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let chunks = [0; 6].map(|_: usize| random.below(7) as usize);
            let mut slab = Slab::new(KEYS as usize, Chunks(chunks), policy);
            let mut models: Vec<Plain> = chunks.iter().map(|&n| Plain::new(plain, n)).collect();
            for (i, (op, key)) in requests(seed, 20, 4000).into_iter().enumerate() {
                let at = format!("{chunks:?}, seed {seed}, request {i}: {op:?} {key}");
                let found = models.iter_mut().any(|model| model.get(key));
                match op {
                    Op::Delete => {
                        assert_eq!(slab.remove(key), found, "{at}");
                        models.iter_mut().for_each(|model| {
                            model.remove(key);
                        });
                    }
                    Op::Get | Op::Change => assert_eq!(slab.get(key), found, "{at}"),
                    Op::Set => {
                        let bytes = random.below(2200) as u32;
                        let class = CHUNK_BYTES.iter().position(|&most| bytes <= most);
                        assert_eq!(tidemill_cachesim::slab::class(bytes), class);
                        for (other, model) in models.iter_mut().enumerate() {
                            if Some(other) != class {
                                model.remove(key);
                            }
                        }
                        let room = class.filter(|&class| chunks[class] > 0);
                        if let Some(class) = room
                            && !models[class].get(key)
                        {
                            models[class].insert(key);
                        }
                        assert_eq!(slab.put(key, bytes), room.is_some(), "{at}");
                    }
                }
                let lens: Vec<usize> = models.iter().map(Plain::len).collect();
                assert_eq!(slab.used().to_vec(), lens, "{at}");
            }
        }
    }
    assert_eq!([0, 64, 65, 2048, 2049].map(class), [Some(0), Some(0), Some(1), Some(5), None]);
    let bytes = Chunks::TYPES.map(|(_, chunks)| chunks.bytes());
    assert_eq!(bytes[0], 70 * 1024 * 4032);
    assert!(bytes[2] < bytes[3] && bytes[3] < bytes[1] && bytes[1] < bytes[0] && bytes[0] < bytes[4]);
}

#[test]
fn a_slab_of_one_size_counts_as_a_cache_does() {
    let of = |(op, key): (Op, u32)| Request::new(if op == Op::Change { Op::Get } else { op }, key, 1);
    let log = Log::new(requests(78, 30, 50_000).into_iter().map(of).collect(), keys(KEYS)).unwrap();
    for (policy, plain) in [(SlabPolicy::Lru, Policy::Lru), (SlabPolicy::Fifo, Policy::Fifo)] {
        let mut slab = Slab::new(KEYS as usize, Chunks([30, 0, 0, 0, 0, 0]), policy);
        let run = Run { policy: plain, ways: Ways::Full, capacity: 30, hash: HashName::Crc32, seed: 4 };
        let counts = run.run(&log, 10_000).unwrap();
        assert!(counts.evictions > 0);
        assert_eq!(slab.run(&log, 10_000), counts, "{plain}");
    }
}

#[test]
fn passes_count_what_caches_say() {
    let requests: Vec<Request> =
        requests(77, 30, 50_000).into_iter().map(|(op, key)| Request::new(op, key, 1)).collect();
    let log = Log::new(requests, keys(KEYS)).unwrap();
    for policy in Policy::ALL {
        let run = Run { policy, ways: Ways::Full, capacity: 30, hash: HashName::Crc32, seed: 4 };
        let mut cache = run.cache(&log).unwrap();
        let (mut gets, mut hits, mut deletes) = (0, 0, 0);
        for (i, request) in log.requests().iter().enumerate() {
            let counted = u64::from(i >= 10_000);
            match request.op() {
                Op::Delete => {
                    deletes += counted;
                    cache.remove(request.key);
                }
                op => {
                    let found = cache.get(request.key);
                    if op == Op::Get {
                        gets += counted;
                        hits += counted * u64::from(found);
                    }
                    if !found && op != Op::Change {
                        cache.insert(request.key);
                    }
                }
            }
        }
        let counts = run.run(&log, 10_000).unwrap();
        assert_eq!((counts.gets, counts.hits, counts.deletes), (gets, hits, deletes), "{policy}");
        assert_eq!(counts.gets + counts.writes + counts.deletes, 40_000);
    }
}
