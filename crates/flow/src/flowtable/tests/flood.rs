//! A flood of new flows into a table that has no room for them.

use super::{Lines, key};
use crate::flowtable::insert::Effort;
use crate::flowtable::{FlowTable, LONGEST_REST, Outcome};
use crate::hash::{KeyHash, Keyed};
use crate::key::Key;
use tidemill_lookup::probe::Probe;

const BATCH: usize = 32;

struct Flood {
    table: FlowTable<2>,
    /// Keys of the flows that were there before.
    there: Vec<Key<2>>,
    next: u64,
}

impl Flood {
    fn full() -> Self {
        Self::full_of(100)
    }

    /// A table of so many buckets, filled with a batch after the other until nothing has got in for a while.
    fn full_of(buckets: usize) -> Self {
        let table = FlowTable::new(31 * buckets, Keyed::new(7)).unwrap();
        let mut flood = Flood { table, there: Vec::new(), next: 0 };
        let mut calm = 0;
        while calm < 500 {
            let keys = flood.new_keys(BATCH);
            let out = flood.batch(0, &keys);
            let new = keys.iter().zip(&out).filter(|(_, out)| matches!(out, Outcome::New(_)));
            let before = flood.there.len();
            flood.there.extend(new.map(|(key, _)| *key));
            calm = if flood.there.len() == before { calm + 1 } else { 0 };
        }
        assert_eq!(flood.there.len(), flood.table.len());
        let load = flood.table.len() as f64 / flood.table.slots() as f64;
        assert!(load > 0.97, "full at a load of {load}");
        flood
    }

    fn new_keys(&mut self, count: usize) -> Vec<Key<2>> {
        let from = self.next;
        self.next += count as u64;
        (from..self.next).map(key).collect()
    }

    fn batch(&mut self, now: u32, keys: &[Key<2>]) -> Vec<Outcome> {
        let hashes: Vec<u64> = keys.iter().map(|key| self.table.hasher().hash(key)).collect();
        let mut out = vec![Outcome::Full; keys.len()];
        self.table.find_or_insert_batch(now, &hashes, keys, &mut out);
        out
    }

    fn batch_probed(&mut self, now: u32, keys: &[Key<2>], probe: &impl Probe) -> Vec<Outcome> {
        let hashes: Vec<u64> = keys.iter().map(|key| self.table.hasher().hash(key)).collect();
        let mut out = vec![Outcome::Full; keys.len()];
        self.table.find_or_insert_batch_probed(now, &hashes, keys, &mut out, probe);
        out
    }

    /// Half flows that are there, half new.
    fn mixed(&mut self, round: usize) -> Vec<Key<2>> {
        let mut keys = self.new_keys(BATCH / 2);
        for i in 0..BATCH / 2 {
            let at = (round * 61 + i * 13) % self.there.len();
            keys.insert(2 * i, self.there[at]);
        }
        keys
    }
}

/// Searches that may fail in this many batches in a row: after 1, 3, 7, 15, 31 batches, then every 64th.
fn most_failures(batches: u64) -> u64 {
    7 + batches / (u64::from(LONGEST_REST) + 1)
}

#[test]
fn a_flood_into_a_full_table_loses_nothing_and_is_counted() {
    let mut flood = Flood::full();
    let before = flood.table.counters();
    let (mut found, mut new, mut full) = (0, 0, 0);
    let batches = 2000;
    for round in 0..batches {
        let keys = flood.mixed(round);
        let out = flood.batch(round as u32, &keys);
        for (i, outcome) in out.iter().enumerate() {
            assert_eq!(matches!(outcome, Outcome::Found(_)), i % 2 == 0, "{outcome:?} for packet {i}");
            match outcome {
                Outcome::Found(slot) => {
                    assert_eq!(flood.table.stamp(*slot), round as u32);
                    found += 1;
                }
                Outcome::New(_) => new += 1,
                Outcome::Full => full += 1,
            }
        }
    }
    assert_eq!(found + new + full, batches as u64 * BATCH as u64);
    let counters = flood.table.counters();
    assert_eq!(counters.inserted - before.inserted, new);
    assert_eq!(counters.failed + counters.skipped - before.failed - before.skipped, full);
    assert!(full > new * 50, "{new} got in, {full} did not");
    // After a search that succeeds they are tried more often again.
    let moves = counters.moves - before.moves;
    let failed = counters.failed - before.failed;
    assert!(
        failed <= (moves + 1) * 7 + most_failures(batches as u64),
        "{failed} searches failed, {moves} did not"
    );
    assert_eq!(flood.table.len() as u64, flood.there.len() as u64 + new);
    for key in &flood.there {
        assert!(flood.table.find(flood.table.hasher().hash(key), key).is_some());
    }
}

/// No slot is free: every search fails, and all but few batches do without.
#[test]
fn a_flood_is_searched_for_in_one_batch_of_many() {
    let mut table = FlowTable::<2>::new(62, Keyed::new(1)).unwrap();
    for i in 0..10_000 {
        table.find_or_insert(0, table.hasher().hash(&key(i)), &key(i));
    }
    let mut flood = Flood { there: Vec::new(), table, next: 10_000 };
    assert_eq!(flood.table.len(), 62);
    // Two batches without new flows: whatever rest was left, up to 63.
    for _ in 0..64 {
        flood.batch(0, &[]);
    }
    let start = flood.table.counters();
    let mut failures = Vec::new();
    for batch in 0..640_u64 {
        let keys = flood.new_keys(BATCH);
        let before = flood.table.counters();
        assert_eq!(flood.batch(0, &keys), [Outcome::Full; BATCH]);
        let failed = flood.table.counters().failed - before.failed;
        assert!(failed <= 1, "{failed} searches in one batch");
        if failed == 1 {
            failures.push(batch);
        }
    }
    // The single insertions before have failed more than often enough.
    assert_eq!(failures, (0..10).map(|i| 64 * i).collect::<Vec<_>>());
    assert_eq!(flood.table.counters().skipped - start.skipped, 640 * 32 - 10);
}

/// In a row: after 1, 3, 7, ... batches.
#[test]
fn a_flood_is_searched_for_less_and_less() {
    let mut flood = Flood { there: Vec::new(), table: FlowTable::new(31, Keyed::new(1)).unwrap(), next: 0 };
    let mut failures = Vec::new();
    for batch in 0..400_u64 {
        let keys = flood.new_keys(BATCH);
        let before = flood.table.counters().failed;
        flood.batch(0, &keys);
        if flood.table.counters().failed != before {
            failures.push(batch);
        }
    }
    assert_eq!(failures, [0, 2, 6, 14, 30, 62, 126, 190, 254, 318, 382]);
    assert_eq!(flood.table.len(), 31);
}

/// What a packet of a flood touches while searches rest: two lines of tags, and here and there a key with the same tag.
#[test]
fn a_flood_costs_a_lookup_for_each_packet() {
    let mut flood = Flood::full();
    let probe = Lines::default();
    let (mut all, mut most, packets) = (0, 0, 20_000);
    for key in flood.new_keys(packets) {
        let place = flood.table.store.place(flood.table.hasher().hash(&key));
        for mut effort in [Effort::Look, Effort::None] {
            let outcome = flood.table.find_or_insert_one(0, place, &key, &mut effort, &mut [], || 0, &probe);
            let (lines, writes) = probe.take();
            if outcome == Outcome::Full {
                assert_eq!(writes, 0);
                all += lines;
                most = most.max(lines);
            }
        }
    }
    let mean = all as f64 / (2 * packets) as f64;
    assert!(most <= FlowTable::<2>::LOOKUP_LINES, "a packet touches {most} lines");
    assert!(mean < 2.1, "a packet touches {mean} lines");
}

/// What batches touch, by their scalar form, lines that are asked for in vain among them: of a flood alone, and of a flood in the same
/// bursts as flows that are there. Batches are longer than a group, and not whole groups.
#[test]
fn a_batch_of_a_flood_costs_a_lookup_for_each_packet() {
    let (lookup, insert) = (FlowTable::<2>::LOOKUP_LINES, FlowTable::<2>::INSERT_LINES);
    // So many that a batch seldom meets a line twice.
    let mut flood = Flood::full_of(4000);
    let probe = Lines::default();
    for of_flows in [false, true] {
        let (mut all, mut packets, mut searches) = (0, 0, 0);
        for round in 0..600 {
            let mut keys = flood.new_keys(70);
            if of_flows {
                keys = [flood.mixed(round), flood.mixed(round + 1), flood.mixed(round + 2)].concat();
                keys.truncate(70);
            }
            let before = flood.table.counters();
            let out = flood.batch_probed(0, &keys, &probe);
            assert!(!of_flows || out.iter().step_by(2).all(|out| matches!(out, Outcome::Found(_))));
            let after = flood.table.counters();
            let searched = (after.failed - before.failed + after.inserted - before.inserted) as usize;
            let (lines, _) = probe.take();
            let most = keys.len() * lookup + searched * (insert - lookup);
            assert!(lines <= most, "{lines} lines of a batch that searched {searched} times, at most {most}");
            assert!(after.failed - before.failed <= 1);
            if searched == 0 {
                (all, packets) = (all + lines, packets + keys.len());
            }
            searches += searched;
        }
        let mean = all as f64 / packets as f64;
        assert!((1.9..2.1).contains(&mean), "a packet touches {mean} lines, flows among them: {of_flows}");
        assert!(packets > 500 * 70 && searches < 100, "{packets} packets, {searches} searches");
    }
}

/// At the bound nobody looks for room; at a load of 0.8 hardly a home has strays. So a packet of a flood asks for its home's tags, and seldom for anything else.
#[test]
fn a_flood_at_the_bound_costs_one_line_for_each_packet() {
    let mut flood =
        Flood { table: FlowTable::new(31 * 4000, Keyed::new(7)).unwrap(), there: Vec::new(), next: 0 };
    let most = flood.table.slots() / 5 * 4;
    flood.table.keep_free(most);
    while flood.table.len() < most {
        let keys = flood.new_keys(BATCH);
        flood.batch(0, &keys);
    }
    let probe = Lines::default();
    let (mut all, mut packets) = (0, 0);
    for _ in 0..200 {
        let keys = flood.new_keys(70);
        let out = flood.batch_probed(0, &keys, &probe);
        assert!(out.iter().all(|out| *out == Outcome::Full));
        (all, packets) = (all + probe.take().0, packets + keys.len());
    }
    let mean = all as f64 / packets as f64;
    assert!((0.95..1.2).contains(&mean), "a packet touches {mean} lines");
}

/// The scalar form, group after group, does what the vectors do with three groups under way: same outcomes in the same slots.
#[test]
fn the_form_that_is_probed_does_the_same() {
    for most in [usize::MAX, 2800] {
        let mut tables = [0, 1].map(|_| Flood {
            there: Vec::new(),
            table: FlowTable::new(3100, Keyed::new(3)).unwrap(),
            next: 0,
        });
        tables.iter_mut().for_each(|flood| flood.table.keep_free(most));
        for round in 0..400_u64 {
            // Until it is full: new flows, flows that are there, and each twice in a batch now and then.
            let number = |i: u64| crate::hash::mix(round << 8 | i) % (round * 40 + 10);
            let keys: Vec<Key<2>> = (0..1 + round % 150).map(|i| key(number(i))).collect();
            let [one, other] = &mut tables;
            let outcomes = one.batch(round as u32, &keys);
            assert_eq!(outcomes, other.batch_probed(round as u32, &keys, &()), "round {round}");
            assert_eq!(one.table.counters(), other.table.counters(), "round {round}");
            if round == 200 {
                tables.iter_mut().for_each(|flood| flood.table.rekey(Keyed::new(4)).unwrap());
            }
            if round > 220 {
                tables.iter_mut().for_each(|flood| _ = flood.table.migrate(1));
            }
        }
        let counters = tables[0].table.counters();
        assert!(counters.skipped > 1000, "{counters:?}");
        assert!(most != usize::MAX || counters.failed > 5 && counters.moves > 20, "{counters:?}");
    }
}

#[test]
fn after_a_flood_the_room_that_expiry_makes_is_used() {
    let mut flood = Flood::full();
    let before = flood.table.len();
    // Every other bucket is emptied: who has a bucket there gets in at once, without a search.
    let mut gone = 0;
    for bucket in 0..100 {
        gone += flood.table.expire(1, |_, _, _| bucket % 2 == 0);
    }
    assert!(gone > before / 3 && flood.table.len() == before - gone);
    let keys = flood.new_keys(gone / 4);
    let out = flood.batch(5, &keys);
    let new = out.iter().filter(|out| matches!(out, Outcome::New(_))).count();
    assert!(new * 10 > keys.len() * 5, "{new} of {} got in at once", keys.len());
    // All get in that search, once the longest rest is over.
    for _ in 0..=LONGEST_REST {
        flood.batch(5, &[]);
    }
    let (failed, skipped) = (flood.table.counters().failed, flood.table.counters().skipped);
    let keys = flood.new_keys(gone / 4);
    let out = flood.batch(6, &keys);
    assert!(out.iter().all(|out| matches!(out, Outcome::New(_))));
    assert_eq!((flood.table.counters().failed, flood.table.counters().skipped), (failed, skipped));
}

/// A flood while the table hashes anew: flows under the old hash are found in every batch, and searches rest all the same.
#[test]
fn a_flood_while_the_table_hashes_anew() {
    let mut flood = Flood::full();
    flood.table.rekey(Keyed::new(8)).unwrap();
    for round in 0..400 {
        let keys = flood.mixed(round);
        let out = flood.batch(1, &keys);
        assert!(out.iter().step_by(2).all(|out| matches!(out, Outcome::Found(_))));
        flood.table.migrate(1);
    }
    let probe = Lines::default();
    // What still lies under the old hash costs two lookups and a look for room.
    let mut old = 0;
    for key in flood.there.clone() {
        let place = flood.table.store.place(flood.table.hasher().hash(&key));
        let left = flood.table.left_to_migrate();
        let effort = &mut Effort::None;
        let outcome = flood.table.find_or_insert_one(0, place, &key, effort, &mut [], || 0, &probe);
        let (lines, writes) = probe.take();
        assert!(matches!(outcome, Outcome::Found(_)));
        if writes <= 1 && left == flood.table.left_to_migrate() {
            assert!(lines <= 2 * FlowTable::<2>::LOOKUP_LINES, "{lines} lines");
            old += 1;
        }
    }
    assert!(old > 0);
}

/// A search that succeeds ends the row of failures.
#[test]
fn after_a_flood_a_search_that_succeeds_shortens_the_rests() {
    let mut flood = Flood::full();
    assert_eq!(flood.table.failures, LONGEST_REST.ilog2());
    for _ in 0..20 {
        flood.table.expire(1, |_, _, _| true);
    }
    // The longest rest is over before others have taken the room.
    for _ in 0..=LONGEST_REST {
        flood.batch(0, &[]);
    }
    let moves = flood.table.counters().moves;
    let keys = flood.new_keys(BATCH);
    flood.batch(0, &keys);
    assert!(flood.table.counters().moves > moves, "no search has succeeded");
    assert!(flood.table.failures <= 1, "{} failures in a row", flood.table.failures);
}
