//! The packet path allocates nothing: hits, misses, entries thrown away after a change, expiry.

#![allow(clippy::unwrap_used)]

#[path = "../../lookup/tests/common/allocations.rs"]
mod allocations;

use allocations::allocations;
use tidemill_classify::cache::{Cache, Settings};
use tidemill_classify::live::LiveRules;
use tidemill_classify::pipeline::{Action, Entry, Instructions, Output, Walker, WayId, Ways};
use tidemill_classify::suite::{Rng, Shape, key};
use tidemill_classify::yardstick::CuckooLayers;
use tidemill_classify::{Crossed, Grouping, Key, Rank, Rule, RuleId, RuleSet, TupleSpace};
use tidemill_lookup::qsbr::Domain;

#[test]
fn classifying_allocates_nothing() {
    [false, true].into_iter().for_each(classifying_allocates);
}

fn classifying_allocates(filters: bool) {
    let (domain, mut rng) = (Domain::new(), Rng::new(5));
    let mut rules = LiveRules::new(&domain, Grouping::Merged, 5000);
    let mut list: Vec<Rule> = Vec::new();
    let mut cache =
        Cache::new(Settings { exact: 31, signatures: 300, megaflows: 500, masks: 40, filters }, 9).unwrap();
    let (view, mut reader, mut out) = (rules.view(), domain.register(), vec![Rank::NONE; 256]);
    let mut worker = rules.counters().worker();
    for now in 0..40 {
        for _ in 0..50 {
            list.push(Shape::Mixed.rule(&mut rng));
            rules.insert(*list.last().unwrap()).unwrap();
        }
        rules.commit();
        // The first time the rules decide, then a megaflow, then one whose mask is known.
        let mut keys: Vec<Key> = (0..64).map(|_| key(&list, &mut rng)).collect();
        keys.extend_from_within(..);
        keys.extend_from_within(..);
        let before = allocations();
        cache.classify(view.get(&reader), now, &keys, &mut out);
        view.get(&reader).space().lookup_batch(&keys, &mut out);
        out.iter().for_each(|&found| worker.add(found, 60));
        cache.maintain(view.get(&reader), now, 3, 4);
        assert_eq!(allocations() - before, 0, "burst {now}");
        reader.quiescent();
    }
    let counters = cache.counters();
    assert!(counters.outdated > 0 && counters.misses > 0 && counters.megaflow_hits > 0, "{counters:?}");
    assert!(filters || counters.signature_hits > 0, "{counters:?}");
    assert!(counters.not_kept > counters.turned_away && cache.masks() > 5, "{counters:?}");
    assert!(counters.turned_away > 0, "{counters:?}");
}

/// HALO's baseline is compared with the caches: it must not pay for what they do without.
#[test]
fn the_baseline_allocates_for_masks_only() {
    let mut rng = Rng::new(7);
    let list: Vec<Rule> = (0..50).map(|_| Shape::Acl.rule(&mut rng)).collect();
    let space = TupleSpace::build(&RuleSet::from_list(&list), Grouping::Exact);
    let mut layers = CuckooLayers::new(100, 9).unwrap();
    let keys: Vec<Key> = (0..3000).map(|_| key(&list, &mut rng)).collect();
    let (mut out, mut others) = (vec![Rank::NONE; keys.len()], vec![Rank::NONE; keys.len()]);
    layers.classify(&space, &keys, &mut out);
    let (before, masks) = (allocations(), layers.masks());
    layers.classify(&space, &keys, &mut others);
    assert_eq!((allocations() - before, layers.masks()), (0, masks));
    assert!(out == others && masks > 5);
}

#[test]
fn cross_products_allocate_when_made_and_changed_only() {
    let mut rng = Rng::new(8);
    let list: Vec<Rule> =
        (0..300).map(|i| [Shape::Acl, Shape::Ipv6][usize::from(i % 8 == 0)].rule(&mut rng)).collect();
    let mut space = TupleSpace::build(&RuleSet::from_list(&list), Grouping::Merged);
    let mut crossed = Crossed::build(&space).unwrap();
    // Keys of rules that have gone and of those that have come, IPv6 and other ones.
    for (id, i) in (300..).map(RuleId).zip(0..20) {
        let (gone, came) = (RuleId(i as u32), Shape::Acl.rule(&mut rng));
        space.remove(gone, &list[i]);
        crossed.remove(gone, &list[i]);
        space.insert(id, &came);
        crossed.insert(id, &came);
    }
    assert!(!crossed.is_worn());
    let keys: Vec<Key> = (0..3000).map(|_| key(&list, &mut rng)).collect();
    let mut out = vec![Rank::NONE; keys.len()];
    let before = allocations();
    crossed.lookup_batch(&space, &keys, &mut out);
    crossed.lookup_batch_scalar(&space, &keys, &mut out);
    assert_eq!(allocations() - before, 0);
    assert!(out.iter().any(|&found| found != Rank::NONE));
}

#[test]
fn ways_through_tables_allocate_nothing() {
    let (domain, mut rng) = (Domain::new(), Rng::new(6));
    let mut rules = LiveRules::with_tables(&domain, Grouping::Merged, 5000, 3);
    let mut list: Vec<Rule> = Vec::new();
    let mut cache =
        Cache::new(Settings { exact: 200, signatures: 100, megaflows: 500, masks: 40, filters: true }, 9)
            .unwrap();
    let mut ways = Ways::new(100);
    let (view, mut reader, mut out) = (rules.view(), domain.register(), vec![WayId(0); 256]);
    let mut full = 0;
    for now in 0..40 {
        for _ in 0..50 {
            list.push(Shape::Mixed.rule(&mut rng));
            let table = rng.below(3) as u8;
            let goto = Some(table + 1).filter(|&next| next < 3);
            let entry = Entry {
                table,
                instructions: Instructions { actions: vec![Action::Output(Output::Port(1))], goto },
            };
            rules.insert_entry(*list.last().unwrap(), entry).unwrap();
        }
        rules.commit();
        let mut keys: Vec<Key> = (0..128).map(|_| key(&list, &mut rng)).collect();
        keys.extend_from_within(..);
        let before = allocations();
        let snapshot = view.get(&reader);
        cache.classify(Walker::new(snapshot, &mut ways), now, &keys, &mut out);
        let rules: usize = out.iter().map(|&id| ways.get(id).rules().count()).sum();
        cache.maintain(Walker::new(snapshot, &mut ways), now, 3, 4);
        assert_eq!(allocations() - before, 0, "burst {now}, {rules} rules");
        full += usize::from(ways.len() == 100);
        reader.quiescent();
    }
    let counters = cache.counters();
    assert!(full > 5 && counters.not_kept > 0, "{full} times full, {counters:?}");
    assert!(counters.turned_away > 0, "{counters:?}");
}
