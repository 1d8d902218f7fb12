//! Workers look up while rules change: every answer is one of a single version, by the structure and through a cache.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_classify::cache::{Cache, Settings};
use tidemill_classify::live::LiveRules;
use tidemill_classify::{Field, Grouping, Key, Match, Rank, Rule};
use tidemill_lookup::qsbr::Domain;

const COMMITS: u32 = 200;

/// Matches of different masks that all match the keys below.
fn matches(i: u32) -> Match {
    let addresses = Match::any().prefix(Field::Ipv4Source, 0x0a00_0000, 8 + i % 17);
    match i % 3 {
        0 => addresses,
        1 => addresses.exact(Field::Protocol, 6),
        _ => addresses.port_range(tidemill_classify::Side::Destination, 50..=90),
    }
}

fn keys() -> Vec<Key> {
    (0..40).map(|i| Key::ipv4(0x0a00_0000 + i, 7, i as u16, 80, 6)).collect()
}

/// With every commit the rule that matches goes, and another of the version's own priority comes: whoever sees tables of two versions finds
/// another priority, or none.
#[test]
fn every_answer_is_of_one_version() {
    for grouping in Grouping::ALL {
        let domain = Domain::new();
        let mut rules = LiveRules::new(&domain, grouping, 1000);
        let mut last = rules.insert(Rule { matches: matches(2), priority: 2 }).unwrap();
        assert_eq!(rules.commit(), 2);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (view, mut reader, stop) = (rules.view(), domain.register(), &stop);
                scope.spawn(move || {
                    let (keys, mut out) = (keys(), [Rank::NONE; 40]);
                    let mut cache = Cache::new(Settings::default(), 3).unwrap();
                    let mut now = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let snapshot = view.get(&reader);
                        snapshot.space().lookup_batch(&keys, &mut out);
                        assert!(out.iter().all(|&found| found.priority() == snapshot.version()));
                        assert_eq!(
                            snapshot.space().lookup_wild(&keys[now % 40]).0.priority(),
                            snapshot.version()
                        );
                        cache.classify(snapshot, now as u32, &keys, &mut out);
                        assert!(out.iter().all(|&found| found.priority() == snapshot.version()));
                        reader.quiescent();
                        now += 1;
                    }
                });
            }
            for version in 3..COMMITS {
                let rule = Rule { matches: matches(version), priority: version.into() };
                let next = rules.insert(rule).unwrap();
                rules.remove(last).unwrap();
                assert_eq!(rules.commit(), u64::from(version));
                last = next;
            }
            stop.store(true, Ordering::Relaxed);
        });
        rules.snapshot().space().check().unwrap();
    }
}
