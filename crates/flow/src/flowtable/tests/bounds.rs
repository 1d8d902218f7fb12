//! The bounds that the documentation states, held for every operation.

use super::{Lines, key};
use crate::flowtable::tags::{LANES, bits};
use crate::flowtable::{FlowTable, Outcome, State};
use crate::hash::KeyHash;
use crate::suite::flows::Masked;
use std::cell::Cell;
use tidemill_lookup::probe::Probe;

/// Fills a table until `refusals` insertions have failed: what each operation touches. Returns the load at the first failure.
fn fill<const W: usize, S: State>(hash: Masked<W>, slots: usize, refusals: u64) -> f64 {
    let mut table = FlowTable::<W, S, Masked<W>>::new(slots, hash).unwrap();
    let (lookup, insert) =
        (FlowTable::<W, S, Masked<W>>::LOOKUP_LINES, FlowTable::<W, S, Masked<W>>::INSERT_LINES);
    let probe = Lines::default();
    let mut first = None;
    for i in 0.. {
        let (key, hash) = (key(i), hash.hash(&key(i)));
        assert_eq!(table.find_probed(hash, &key, &probe), None);
        let (miss, writes) = probe.take();
        assert!(miss <= lookup && writes == 0, "a miss touches {miss} lines, {writes} stores");

        let moves = table.counters().moves;
        let outcome = table.find_or_insert_probed(1, hash, &key, &probe);
        let (lines, writes) = probe.take();
        let moves = table.counters().moves - moves;
        assert!(lines <= insert, "an insertion touches {lines} lines, at most {insert}");
        assert!(moves <= 1, "{moves} moves");
        if outcome == Outcome::Full {
            assert_eq!((writes, moves), (0, 0), "a failed insertion stores");
            first.get_or_insert(table.len() as f64 / table.slots() as f64);
            if table.counters().failed == refusals {
                break;
            }
        } else {
            let slot = outcome.slot();
            assert!(slot.is_some() && table.find_probed(hash, &key, &probe) == slot);
            let (hit, writes) = probe.take();
            assert!(hit <= lookup && writes == 0, "a hit touches {hit} lines");
        }
    }
    first.unwrap()
}

/// Fills a table by batches until as many searches have failed: what each call touches and asks for.
fn fill_by_batches<const W: usize, S: State>(hash: Masked<W>, slots: usize, refusals: u64) {
    let mut table = FlowTable::<W, S, Masked<W>>::new(slots, hash).unwrap();
    let (lookup, insert) =
        (FlowTable::<W, S, Masked<W>>::LOOKUP_LINES, FlowTable::<W, S, Masked<W>>::INSERT_LINES);
    let probe = Lines::default();
    for call in 0.. {
        let keys: [_; 70] = std::array::from_fn(|i| key(call * 70 + i as u64));
        let hashes = keys.map(|key| hash.hash(&key));
        let (before, mut out) = (table.counters(), [Outcome::Full; 70]);
        table.find_or_insert_batch_probed(1, &hashes, &keys, &mut out, &probe);
        let (lines, _) = probe.take();
        let after = table.counters();
        let searches = (after.moves - before.moves + after.failed - before.failed) as usize;
        let most = keys.len() * lookup + searches * (insert - lookup);
        assert!(lines <= most, "a batch with {searches} searches touches {lines} lines, at most {most}");
        if after.failed >= refusals {
            break;
        }
    }
}

#[test]
fn batches_are_bounded_until_the_table_is_full_and_beyond() {
    fill_by_batches::<1, u64>(Masked::good(1), 3000, 20);
    fill_by_batches::<2, u64>(Masked::good(2), 10_000, 20);
    fill_by_batches::<2, [u64; 8]>(Masked::good(4), 5000, 20);
    fill_by_batches::<5, [u64; 2]>(Masked::good(5), 20_000, 20);
}

#[test]
fn every_operation_is_bounded_until_the_table_is_full_and_beyond() {
    assert!(fill::<1, u64>(Masked::good(1), 3000, 100) > 0.9);
    assert!(fill::<2, u64>(Masked::good(2), 10_000, 100) > 0.9);
    assert!(fill::<2, ()>(Masked::good(3), 10_000, 100) > 0.9);
    assert!(fill::<2, [u64; 8]>(Masked::good(4), 5000, 100) > 0.9);
    assert!(fill::<5, [u64; 2]>(Masked::good(5), 20_000, 100) > 0.9);
    assert_eq!(fill::<5, [u64; 2]>(Masked::good(6), 31, 100), 1.0);
}

#[test]
fn every_operation_is_bounded_whatever_the_hashes() {
    for (set, clear) in [
        (0, u64::MAX),
        (u64::MAX, 0),
        (0, 0xffff),
        (3, 0xfffc),
        (0, u64::MAX << 32),
        (0, 0xffff << 32),
        (0, 0x1fff_ffff << 32),
        (0, 0xff),
        (0, 0x07ff_ffff_0000_ffff),
    ] {
        fill::<1, u64>(Masked { set, clear, ..Masked::good(1) }, 3000, 300);
        fill::<5, [u64; 2]>(Masked { set, clear, ..Masked::good(2) }, 3000, 300);
    }
}

/// Page faults of this thread so far that needed no disk (proc(5), `stat`, field 10).
#[cfg(all(target_os = "linux", not(miri)))]
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // Behind the name, which may have spaces.
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Its memory is there from the start: filling it takes none of the 70 faults that touching its pages first would.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn filling_a_table_takes_no_page_fault() {
    // Less than what huge pages are asked for, with which a few faults would do.
    let mut table = FlowTable::<2>::new(8000, crate::hash::Keyed::new(1)).unwrap();
    let pages = table.bytes() / 4096;
    assert!((60..120).contains(&pages), "{pages} pages");
    let fill = |table: &mut FlowTable<2>, numbers: std::ops::Range<u64>| {
        for i in numbers {
            let key = key(i);
            table.find_or_insert(0, table.hasher().hash(&key), &key);
        }
    };
    // The code's own pages first, and those of the stack; likewise of what counts.
    fill(&mut FlowTable::new(31, crate::hash::Keyed::new(1)).unwrap(), 0..100);
    faults();
    let before = faults();
    fill(&mut table, 0..7600);
    let taken = faults() - before;
    assert!(taken < 10, "{taken} page faults");
    assert!(table.len() as f64 > 0.94 * table.slots() as f64);
}

/// Keys of one hash fill what they may of their two buckets, and leave the rest to others.
#[test]
fn keys_of_one_hash_are_bounded() {
    let hash = Masked { clear: u64::MAX, ..Masked::good(1) };
    let mut table = FlowTable::<2, u64, _>::new(3100, hash).unwrap();
    let new = (0..100).filter(|&i| matches!(table.find_or_insert(0, 0, &key(i)), Outcome::New(_))).count();
    let buckets = if table.store.alternate(0, 1) == 0 { 1 } else { 2 };
    assert_eq!(new, buckets * crate::flowtable::MOST_EQUAL_TAGS);
}

/// Good hashes: how full the table is when the first insertion fails.
#[test]
fn the_first_failure_is_bounded_from_below() {
    for (slots, seeds) in [(1 << 10, 40), (1 << 12, 20), (1 << 15, 6), (1 << 17, 2), (1 << 20, 1)] {
        for seed in 0..seeds {
            let hash = Masked::<1>::good(seed);
            let mut table = FlowTable::<1, (), _>::new(slots, hash).unwrap();
            let refused =
                (0..).find(|&i| table.find_or_insert(0, hash.hash(&key(i)), &key(i)) == Outcome::Full);
            let load = table.len() as f64 / table.slots() as f64;
            // The least seen: 0.9795.
            assert!(refused.is_some() && load > 0.96, "{slots} slots, seed {seed}: {load:.4}");
        }
    }
}

/// Flows whose entry of 40 bytes lies across two lines, as a part of all, at this load.
fn across_lines(load: f64) -> f64 {
    let hash = Masked::<1>::good(9);
    let mut table = FlowTable::<1, [u64; 3], _>::new(31 * 1000, hash).unwrap();
    let flows = (load * table.slots() as f64) as u64;
    let mut across = 0;
    for i in 0..flows {
        let slot = table.find_or_insert(0, hash.hash(&key(i)), &key(i)).slot().unwrap();
        let entry = table.store.entry(slot.index());
        let (first, last) = (entry.as_ptr().addr(), std::ptr::from_ref(&entry[entry.len() - 1]).addr());
        across += u32::from(first / 64 != last / 64);
    }
    f64::from(across) / flows as f64
}

/// Half of the slots lie across two lines. They are taken last.
#[test]
fn entries_lie_on_one_line_while_there_is_room() {
    let parts = [0.2, 0.4, 0.8].map(across_lines);
    assert!(parts[0] < 0.01 && parts[1] < 0.06, "{parts:?}");
    assert!((0.34..0.42).contains(&parts[2]), "{parts:?}");
}

type Table = FlowTable<2, u64, Masked<2>>;

/// A table of 200 buckets, 6200 slots, and as many of these flows as it has room for.
fn filled(flows: u64) -> Table {
    let mut table = Table::new(6200, Masked::good(1)).unwrap();
    for i in 0..flows {
        table.find_or_insert(0, table.hasher().hash(&key(i)), &key(i));
    }
    table
}

/// While flows lie under two hashes a lookup is at most two, and an insertion two lookups, a search and what moves.
#[test]
fn a_table_that_hashes_anew_is_bounded_by_twice_as_much() {
    let mut table = filled(6000);
    table.rekey(Masked::good(2)).unwrap();
    let probe = Lines::default();
    for i in 0..7000 {
        let (key, hash) = (key(i), table.hasher().hash(&key(i)));
        table.find_probed(hash, &key, &probe);
        let lookup = probe.take().0;
        let moves = table.counters().moves;
        table.find_or_insert_probed(0, hash, &key, &probe);
        let insertion = probe.take().0;
        assert!(lookup <= 2 * Table::LOOKUP_LINES, "{lookup} lines");
        assert!(insertion <= Table::LOOKUP_LINES + Table::INSERT_LINES + 2, "{insertion} lines");
        assert!(table.counters().moves - moves <= 1);
    }
}

/// A round of expiry, so many buckets a call; then another one in which all flows go.
fn rounds_of_expiry(table: &mut Table, buckets: usize) {
    let (all, each) = (table.store.buckets as usize, buckets.max(1));
    let asked = |call: usize| call * each..all.min((call * each).saturating_add(each));
    let mut seen = Vec::new();
    for asked in (0..all.div_ceil(each)).map(asked) {
        let (swept, before) = (table.counters().swept, seen.len());
        table.expire(buckets, |key, _, _| {
            seen.push(*key);
            false
        });
        assert_eq!(table.counters().swept - swept, asked.len() as u64, "{buckets} buckets a call");
        for key in &seen[before..] {
            let slot = table.find(table.hasher().hash(key), key).unwrap();
            assert!(
                asked.contains(&(slot.index() / LANES)),
                "{asked:?} were asked for, not that of {slot:?}"
            );
        }
    }
    let visits = seen.len();
    seen.sort_unstable();
    seen.dedup();
    // Each once, and the next round begins at the first bucket.
    assert_eq!((visits, seen.len(), table.expire_cursor), (table.len(), table.len(), 0));
    for asked in (0..all.div_ceil(each)).map(asked) {
        let used = |bucket: usize| bits(table.store.tags(bucket as u32, &()).used()).count();
        let (there, len) = (asked.map(used).sum::<usize>(), table.len());
        let gone = table.expire(buckets, |_, _, _| true);
        assert_eq!((gone, table.len()), (there, len - there), "{buckets} buckets a call");
    }
    assert!(table.is_empty());
}

/// Whether the table is empty, full, or hashes anew meanwhile.
#[test]
fn a_sweep_visits_the_buckets_asked_for_and_a_round_all_flows() {
    for (flows, anew) in [(0, false), (3000, false), (7000, false), (6000, true), (7000, true)] {
        for buckets in [0, 1, 7, 200, usize::MAX] {
            let mut table = filled(flows);
            assert!(flows < 7000 || table.counters().failed > 100, "it is full");
            if anew {
                table.rekey(Masked::good(2)).unwrap();
                assert!(table.migrate(50) > 0);
            }
            rounds_of_expiry(&mut table, buckets);
        }
    }
}

/// Counts the loads of one word: heads, by which migration tells whose turn it is.
#[derive(Default)]
struct Heads(Cell<usize>);

impl Probe for Heads {
    fn read(&self, _: usize, size: usize, _: bool) {
        self.0.set(self.0.get() + usize::from(size == 8));
    }
}

/// What a call looks at are flows of the buckets asked for; each that comes over is an insertion at most, and two lines more. All
/// have come over after three rounds where there is room; where there is none each call is bounded all the same.
#[test]
fn a_step_of_a_migration_looks_at_the_buckets_asked_for() {
    const CASES: [(u64, usize, usize); 5] =
        [(5270, 1, 3), (5270, 7, 3), (5270, 64, 3), (7000, 1, 1), (7000, 7, 1)];
    for (flows, buckets, rounds) in CASES {
        let mut table = filled(flows);
        let all = table.store.buckets as usize;
        table.rekey(Masked::good(2)).unwrap();
        let probe = (Lines::default(), Heads::default());
        for _ in 0..(rounds * all).div_ceil(buckets) {
            let (left, moves) = (table.left_to_migrate(), table.counters().moves);
            let cursor = table.rekey_cursor as usize;
            let now = table.migrate_probed(buckets, &probe);
            let (lines, heads) = (probe.0.take().0, probe.1.0.take());
            assert!(heads <= buckets * LANES, "{heads} flows of {buckets} buckets were looked at");
            assert!(left - now <= heads, "{} came over, {heads} were looked at", left - now);
            assert!(table.counters().moves - moves <= (left - now) as u64);
            let entries = 1 + LANES * Table::ENTRY_LINES;
            let most = buckets * entries + heads * (Table::INSERT_LINES + 2);
            assert!(lines <= most, "{lines} lines, at most {most}");
            assert!(now == 0 || table.rekey_cursor as usize == (cursor + buckets) % all);
        }
        assert!(flows == 7000 || table.left_to_migrate() == 0, "{} are left", table.left_to_migrate());
        if table.left_to_migrate() == 0 {
            table.migrate_probed(buckets, &probe);
            assert_eq!((probe.0.take().0, probe.1.0.take()), (0, 0), "nothing is left to look at");
        }
    }
}
