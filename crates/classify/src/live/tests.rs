use super::*;
use crate::key::Field;
use crate::pipeline::Instructions;
use crate::suite::{Rng, Shape, key};

fn rule(port: u16, priority: u64) -> Rule {
    Rule { matches: Match::any().exact(Field::DestinationPort, port.into()), priority }
}

#[test]
fn a_cross_product_is_told_what_changes_in_either_copy() {
    let domain = Domain::new();
    let mut rules = LiveRules::with_tables(&domain, Grouping::Exact, 2000, 2);
    let mut rng = Rng::new(3);
    let list: Vec<Rule> = (0..200).map(|_| Shape::Chains.rule(&mut rng)).collect();
    let mut ids: Vec<RuleId> = list.iter().map(|rule| rules.insert(*rule).unwrap()).collect();
    assert!(!rules.cross(), "nothing is published that it could be made of");
    let version = rules.commit();
    // Staged before it is made, and not in it.
    ids.push(rules.insert(Shape::Chains.rule(&mut rng)).unwrap());
    rules.remove(ids.swap_remove(7)).unwrap();
    assert!(rules.cross());
    assert_eq!(rules.commit(), version + 1);
    let keys: Vec<Key> = (0..300).map(|_| key(&list, &mut rng)).collect();
    let (mut found, mut expected) = (vec![Rank::NONE; 300], vec![Rank::NONE; 300]);
    for change in 0..40 {
        let crossed = rules.snapshot().crossed().unwrap();
        assert!(!crossed.is_worn());
        crossed.check(rules.snapshot().space()).unwrap();
        rules.snapshot().lookup_batch(&keys, &mut found);
        rules.snapshot().space().lookup_batch(&keys, &mut expected);
        assert_eq!(found, expected, "{change}");
        // Now a rule of another table, now one of this that gets another priority, goes, or comes back.
        match change % 4 {
            0 => {
                let entry = Entry { table: 1, instructions: Instructions::default() };
                rules.insert_entry(rule(change, 9), entry).unwrap();
            }
            1 => assert!(rules.set_priority(ids[usize::from(change)], 60)),
            2 => {
                rules.remove(ids.pop().unwrap()).unwrap();
            }
            _ => ids.push(rules.insert(list[usize::from(change)]).unwrap()),
        }
        rules.commit();
    }
    // Few rules are none to cross.
    ids.drain(..).for_each(|id| assert!(rules.remove(id).is_some()));
    rules.commit();
    assert!(rules.snapshot().crossed().unwrap().is_worn());
    rules.snapshot().lookup_batch(&keys, &mut found);
    assert_eq!(found, [Rank::NONE; 300]);
    assert!(rules.cross());
    rules.commit();
    assert!(rules.snapshot().crossed().is_none() && !rules.cross());
}

#[test]
fn a_commit_shows_all_its_changes_and_no_other() {
    let domain = Domain::new();
    let mut rules = LiveRules::new(&domain, Grouping::Exact, 100);
    let (view, mut reader) = (rules.view(), domain.register());
    let key = Key::ipv4(1, 2, 3, 4, 5);
    let id = rules.insert(rule(4, 7)).unwrap();
    assert_eq!(view.get(&reader).space().lookup(&key), Rank::NONE);
    assert_eq!(rules.commit(), 2);
    assert_eq!(view.get(&reader).space().lookup(&key).rule(), Some(id));
    rules.remove(id).unwrap();
    let other = rules.insert(rule(4, 1)).unwrap();
    assert_ne!(other, id, "a number that is seen is not given out");
    assert_eq!(view.get(&reader).space().lookup(&key).rule(), Some(id));
    assert_eq!(rules.commit(), 3);
    assert_eq!(view.get(&reader).space().lookup(&key).rule(), Some(other));
    assert_ne!(rules.insert(rule(9, 1)).unwrap(), id, "the reader has not been quiescent");
    reader.quiescent();
    assert_eq!(rules.insert(rule(8, 1)).unwrap(), id);
    // Not once for each commit: the copies change places.
    for _ in 0..20 {
        reader.quiescent();
        let id = rules.insert(rule(5, 5)).unwrap();
        rules.commit();
        reader.quiescent();
        rules.remove(id).unwrap();
        rules.commit();
    }
    assert!(rules.copies() <= 3, "{} copies", rules.copies());
    rules.snapshot().space().check().unwrap();
}

#[test]
fn a_small_structure_is_copied_while_a_reader_stays_and_a_large_one_is_waited_for() {
    let domain = Domain::new();
    let mut rules = LiveRules::new(&domain, Grouping::Exact, 20_000);
    let (view, mut reader) = (rules.view(), domain.register());
    let key = Key::ipv4(1, 2, 3, 4, 5);
    let mut commits = 0;
    let mut commit = |rules: &mut LiveRules| {
        commits += 1;
        rules.insert(rule(4, commits)).unwrap();
        rules.commit();
        // Whoever begins now sees it.
        assert_eq!(view.get(&domain.register()).space().lookup(&key).priority(), commits);
    };
    for _ in 0..=MOST_COPIES {
        commit(&mut rules);
    }
    assert_eq!((rules.waits(), rules.copies()), (0, MOST_COPIES as u64 + 1));
    // As many as that and the spare may be looked at: it is not for ever.
    commit(&mut rules);
    assert_eq!(rules.waits(), 1);
    reader.quiescent();
    commit(&mut rules);
    commit(&mut rules);
    assert_eq!(rules.waits(), 1, "they are free again");
    // A large one has its spare, and no other.
    reader.quiescent();
    for port in 5..9000 {
        rules.insert(rule(port, 1)).unwrap();
    }
    commit(&mut rules);
    assert_eq!(rules.waits(), 1);
    commit(&mut rules);
    assert_eq!(rules.waits(), 2);
    reader.quiescent();
    commit(&mut rules);
    rules.snapshot().space().check().unwrap();
}

#[test]
fn a_reader_that_is_away_leaves_few_copies() {
    for (ports, may_wait) in [(5..9000, 0), (5..6, MOST_COPIES)] {
        let domain = Domain::new();
        let mut rules = LiveRules::new(&domain, Grouping::Exact, 20_000);
        ports.for_each(|port| assert!(rules.insert(rule(port, 1)).is_ok()));
        rules.commit();
        let mut reader = domain.register();
        let commit = |rules: &mut LiveRules| {
            rules.insert(rule(4, 1)).unwrap();
            rules.commit();
        };
        // The first has a spare that nobody looks at; copies of the next ones may wait.
        (0..=may_wait).for_each(|_| commit(&mut rules));
        assert_eq!(rules.waits(), 0, "{may_wait}");
        let start = std::time::Instant::now();
        (0..6).for_each(|_| commit(&mut rules));
        assert!(start.elapsed() >= PATIENCE * (1 + 2 + 4 + 8 + 16 + 32), "{:?}", start.elapsed());
        assert_eq!((rules.waits(), rules.copies()), (6, 7 + may_wait as u64), "{may_wait}");
        reader.quiescent();
        commit(&mut rules);
        assert_eq!(rules.waits(), 6, "all of them are free again");
    }
}

#[test]
fn remembered_changes_tell_what_they_concern() {
    let domain = Domain::new();
    let mut rules = LiveRules::new(&domain, Grouping::Exact, 1000);
    let (key, mask) = (Key::ipv4(1, 2, 3, 4, 5), Mask::prefix(Field::DestinationPort, 16));
    rules.insert(rule(5, 7)).unwrap();
    let version = rules.commit();
    assert!(rules.snapshot().still_holds(version - 1, &key, &mask), "another port");
    assert!(!rules.snapshot().still_holds(version - 1, &key, &Mask::NONE), "any port may be that one");
    rules.insert(rule(4, 7)).unwrap();
    rules.commit();
    assert!(!rules.snapshot().still_holds(version, &key, &mask));
    assert!(rules.snapshot().still_holds(version + 1, &key, &mask));
    for port in 100..100 + REMEMBERED as u16 {
        rules.insert(rule(port, 7)).unwrap();
        rules.commit();
    }
    assert!(rules.snapshot().still_holds(version + 1, &key, &mask));
    rules.insert(rule(5000, 7)).unwrap();
    rules.commit();
    assert!(!rules.snapshot().still_holds(version + 1, &key, &mask), "a change is forgotten");
}

#[test]
fn a_number_used_again_counts_from_nothing() {
    let domain = Domain::new();
    let mut rules = LiveRules::new(&domain, Grouping::Exact, 1);
    let mut worker = rules.counters().worker();
    let id = rules.insert(rule(1, 1)).unwrap();
    assert_eq!(rules.insert(rule(2, 1)), Err(Full(1)));
    rules.commit();
    worker.add(rules.set().rank(id).unwrap(), 60);
    worker.add(Rank::NONE, 60);
    assert_eq!(rules.counters().get(id), Hits { packets: 1, bytes: 60 });
    rules.remove(id).unwrap();
    rules.commit();
    assert_eq!(rules.insert(rule(2, 1)), Ok(id));
    assert_eq!(rules.counters().get(id), Hits::default());
}

#[test]
fn another_priority_takes_no_room_and_no_number() {
    for grouping in Grouping::ALL {
        let domain = Domain::new();
        let mut rules = LiveRules::new(&domain, grouping, 2);
        let mut worker = rules.counters().worker();
        let (key, mask) = (Key::ipv4(1, 2, 3, 4, 5), Mask::prefix(Field::DestinationPort, 16));
        let [first, second] = [5, 5].map(|priority| rules.insert(rule(4, priority)).unwrap());
        let version = rules.commit();
        worker.add(rules.set().rank(second).unwrap(), 60);
        assert!(rules.set_priority(second, 6));
        assert_eq!(rules.snapshot().space().lookup(&key).rule(), Some(first));
        rules.commit();
        assert_eq!(rules.snapshot().space().lookup(&key), Rank::new(6, second));
        assert!(!rules.snapshot().still_holds(version, &key, &mask));
        assert_eq!(rules.counters().get(second), Hits { packets: 1, bytes: 60 });
        // In the other copy, too; what is as it was is no change.
        assert!(rules.set_priority(second, 4) && rules.set_priority(first, 5));
        assert_eq!(rules.commit(), version + 2);
        assert_eq!(rules.snapshot().space().lookup(&key), Rank::new(5, first));
        rules.snapshot().space().check().unwrap();
        rules.remove(second).unwrap();
        rules.commit();
        assert!(!rules.set_priority(second, 7));
        assert_eq!((rules.commit(), rules.snapshot().space().len()), (version + 3, 1));
    }
}

/// Commits that do not wait leave numbers behind that readers may still see: they are waited for where there are no others.
#[test]
fn a_full_table_changes_its_rules_while_a_reader_looks_them_up() {
    let domain = Domain::new();
    let mut rules = LiveRules::new(&domain, Grouping::Exact, 4);
    let mut ids: Vec<RuleId> = (0..4).map(|port| rules.insert(rule(port, 1)).unwrap()).collect();
    rules.commit();
    let (view, mut reader) = (rules.view(), domain.register());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::black_box(view.get(&reader).space().lookup(&Key::ipv4(1, 2, 3, 4, 5)));
                std::thread::sleep(Duration::from_micros(50));
                reader.quiescent();
            }
        });
        let mut full = 0;
        for turn in 0..500_u16 {
            rules.remove(ids.remove(0)).unwrap();
            rules.commit();
            let id = loop {
                match rules.insert(rule(4 + turn, 1)) {
                    Ok(id) => break id,
                    Err(_) => full += 1,
                }
            };
            ids.push(id);
            rules.commit();
        }
        stop.store(true, Ordering::Relaxed);
        // The reader comes by some twenty times in the time that is waited, unless the machine has it wait.
        assert!(full < 50, "{full} times in vain");
    });
    assert_eq!(rules.room(), 0);
}
