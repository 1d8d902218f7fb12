//! Tests of what is particular to this structure; `tests/suite.rs` runs the family's suite over it.

mod sharing;

use super::lookup::{Kernel, below, look};
use super::node::{Ledger, Run};
use super::*;
use crate::fib::{AfterFailure, BuildError, Fib, FibWriter};
use crate::keys::Random;
use crate::oracle::Oracle;
use crate::rib::{Change, Rib};
use crate::suite::{edges, random_case};
use tidemill_lookup::probe::Recorder;
use tidemill_lookup::qsbr::Domain;

fn rib(list: &[(&str, u32)]) -> Rib<u128> {
    list.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn words(fib: &Lulea, from: usize, count: usize) -> Vec<u32> {
    fib.store.words[from..from + count].iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

#[test]
fn the_picture_of_the_page_is_what_is_built() {
    let rib = rib(&[("2001:db8::/32", 1), ("2001:db8:40::/48", 2)]);
    let writer = Writer::new(&rib, &Domain::new()).unwrap();
    let fib = writer.lulea();
    let block = fib.root(0x2001);
    assert!(!block.is_leaf() && !block.is_large());
    // The byte 0xb8 of 2001:0d.., then 0x00 and 0x40 of 2001:db8:...
    let mut entry = fib.store.entry(block.word() + 0x0d);
    for (ends, slot) in [([0xffff_b8b7, u32::MAX], 1), ([0xffff_ff00, u32::MAX], 0)] {
        assert_eq!(words(fib, entry.word(), 2), ends);
        entry = fib.store.entry(entry.word() + SMALL_HEAD + slot);
    }
    assert_eq!(words(fib, entry.word(), 5), [0xffff_403f, u32::MAX, 1, 2, 1]);
    let recorder = Recorder::new();
    assert_eq!(fib.lookup_probed(0x2001_0db8_0040 << 80, &recorder), Label(2));
    assert_eq!((recorder.counts().reads, recorder.counts().steps), (8, 3));
}

#[test]
fn a_node_of_many_runs_counts_bits() {
    let list: Vec<(Prefix<u128>, Label)> = (0..256)
        .filter(|i| i % 3 != 1)
        .map(|i: u128| (Prefix::new(0x2001_0d00 << 96 | i << 96, 32).unwrap(), Label(1 + i as u32)))
        .collect();
    let rib: Rib<u128> = list.iter().copied().collect();
    let writer = Writer::new(&rib, &Domain::new()).unwrap();
    let fib = writer.lulea();
    let node = fib.store.entry(fib.root(0x2001).word() + 0x0d);
    assert!(node.is_large());
    assert_eq!(node.word() % 16, 0, "it begins a line");
    assert_eq!(fib.store.extent(node, &()), ((LARGE_HEAD + 256) / UNIT, node.word() + LARGE_HEAD, 256));
    for i in 0..256_u128 {
        let label = if i % 3 == 1 { 0 } else { 1 + i as u32 };
        let key = 0x2001_0d00 << 96 | i << 96 | 77;
        assert_eq!(fib.lookup_probed(key, &()), Label(label), "{i}");
        fib.lookup_batch_each(&[key; 3], &mut |kernel, labels| {
            assert_eq!(labels, [Label(label); 3], "{kernel}")
        });
    }
}

#[test]
fn ends_below_are_counted() {
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let mut ends = random.bits().to_le_bytes();
        ends.sort_unstable();
        let near = ends[random.below(8)];
        for x in [near, near.wrapping_add(1), near.wrapping_sub(1), random.bits() as u8, 0, 128, 255] {
            let expected = ends.iter().filter(|&&end| end < x).count();
            assert_eq!(below(u64::from_le_bytes(ends), x), expected, "{ends:?} {x}");
        }
    }
}

/// Nodes of every number of runs at random places: each slot finds its run, and all are read as they were written.
#[test]
fn runs_are_found_and_read_as_they_were_written() {
    let (store, mut ledger) = Ledger::new(4096, &Domain::new()).unwrap();
    let mut random = Random::new(6);
    let sizes = (2..20).chain([31, 32, 33, 64, 100, 200, 255, 256]);
    for count in sizes {
        let mut starts = vec![0_u8];
        while starts.len() < count {
            starts.push(random.bits() as u8);
            starts.sort_unstable();
            starts.dedup();
        }
        let runs: Vec<Run> = (starts.iter().zip(1..))
            .map(|(&start, label)| Run { start, entry: Entry::leaf(Label(label)) })
            .collect();
        let unit = ledger.take(&store, node::words(count).div_ceil(UNIT)).unwrap();
        node::encode(&runs, unit as usize * UNIT, |word, value| {
            store.words[word].store(value, Ordering::Relaxed);
        });
        let entry = Entry::pointer(node::is_large(count), unit);
        let mut read = Vec::new();
        store.runs(entry, &mut read, &());
        assert_eq!(read, runs);
        assert_eq!(store.extent(entry, &()).2, count);
        for slot in 0..=u8::MAX {
            let at = starts.partition_point(|&start| start <= slot) - 1;
            let found = store.find(entry, slot, &());
            let last = starts.get(at + 1).map_or(u8::MAX, |&next| next - 1);
            assert_eq!((found.first, found.last, found.entry), (starts[at], last, runs[at].entry), "{slot}");
            assert_eq!(store.entry(found.word), runs[at].entry);
        }
    }
}

/// Runs of all lengths are taken and given back until nothing was never used: none lie in one another, and in the end all can be had in one piece.
#[test]
fn units_are_cut_and_joined() {
    let domain = Domain::new();
    let (store, mut ledger) = Ledger::new(2000, &domain).unwrap();
    let mut random = Random::new(8);
    let mut taken: Vec<(u32, usize)> = Vec::new();
    let mut owners = vec![false; 2000];
    let mut refused = 0;
    for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
        let units = 2 + random.below(135);
        match ledger.take(&store, units) {
            Ok(unit) => {
                let range = unit as usize..unit as usize + units;
                assert!(range.end <= 2000 && owners[range.clone()].iter().all(|owned| !owned), "{range:?}");
                owners[range].fill(true);
                taken.push((unit, units));
            }
            Err(_) => {
                refused += 1;
                for _ in 0..1 + random.below(taken.len()) {
                    let (unit, units) = taken.swap_remove(random.below(taken.len()));
                    owners[unit as usize..unit as usize + units].fill(false);
                    ledger.unlinked.push((unit, units));
                }
                ledger.retire();
                ledger.reclaim(&store);
            }
        }
        let used = NOWHERE / UNIT + taken.iter().map(|(_, units)| units).sum::<usize>();
        assert_eq!(store.used.load(Ordering::Relaxed), used);
    }
    assert!(refused > 5, "{refused}");
    ledger.unlinked.append(&mut taken);
    ledger.retire();
    ledger.reclaim(&store);
    ledger.join();
    let pieces = (0..).map_while(|_| ledger.take(&store, 136).ok()).count();
    assert_eq!(pieces, (2000 - NOWHERE / UNIT) / 136);
}

/// Checks every kernel, the single lookup and the specification at the edges of all prefixes.
fn check(fib: &Lulea, rib: &Rib<u128>, seed: u64) {
    let list: Vec<(Prefix<u128>, Label)> = rib.iter().collect();
    let oracle = Oracle::new(&list);
    let mut keys: Vec<u128> = list.iter().flat_map(|&(prefix, _)| edges(prefix)).collect();
    let mut random = Random::new(seed);
    keys.extend((0..64).map(|_| random.address::<u128>()));
    let expected: Vec<Label> = keys.iter().map(|&key| oracle.lookup(key)).collect();
    for (&key, &label) in keys.iter().zip(&expected) {
        assert_eq!(fib.lookup_probed(key, &()), label, "{key:x}");
        assert_eq!(fib.quick(key, look), label, "{key:x}");
        assert_eq!(fib.lookup(key), label, "{key:x}");
    }
    fib.lookup_batch_each(&keys, &mut |kernel, labels| assert_eq!(labels, expected, "{kernel}"));
}

#[test]
fn every_kernel_answers_as_the_oracle_does() {
    for seed in 0..60 {
        let case = random_case::<u128>(seed);
        let mut rib: Rib<u128> = case.table.iter().copied().collect();
        let domain = Domain::new();
        let mut writer = Writer::new(&rib, &domain).unwrap();
        check(writer.lulea(), &rib, seed);
        for batch in &case.batches {
            batch.iter().for_each(|change| _ = rib.apply(change));
            let changed: Vec<Prefix<u128>> = batch.iter().map(|change| change.prefix()).collect();
            if writer.patch(&rib, &changed).is_err() {
                writer = Writer::new(&rib, &domain).unwrap();
            }
            check(writer.lulea(), &rib, seed);
        }
    }
    assert!(Kernel::all().contains(&Kernel::best()));
}

#[test]
fn a_table_emptied_by_patches_holds_the_root_only() {
    let domain = Domain::new();
    let mut rib = Rib::new();
    let mut writer = Writer::new(&rib, &domain).unwrap();
    let bytes = writer.fib().bytes();
    assert_eq!(bytes, (ROOT + NOWHERE) * 4);
    let mut random = Random::new(3);
    let prefixes: Vec<Prefix<u128>> = (0..300)
        .map(|i| {
            let addr = 0x2001_0db8 << 96 | random.bits() as u128 & random.bits() as u128;
            Prefix::new(addr << 32 | random.bits() as u128, 17 + (i % 112) as u8).unwrap()
        })
        .collect();
    for round in 0..3 {
        for (i, &prefix) in prefixes.iter().enumerate() {
            rib.insert(prefix, Label(1 + i as u32 % 7));
            writer.patch(&rib, &[prefix]).unwrap();
        }
        check(writer.lulea(), &rib, round);
        // What patches made is what a build makes, but for its order, and for runs in large nodes that have become like their neighbors.
        let (patched, built) = (writer.fib().bytes(), Writer::new(&rib, &domain).unwrap().fib().bytes());
        assert!(
            patched >= built && patched - built <= (built - bytes) / 4,
            "{patched} bytes, {built} if built"
        );
        for &prefix in &prefixes {
            rib.remove(prefix);
            writer.patch(&rib, &[prefix]).unwrap();
        }
        assert_eq!(writer.fib().bytes(), bytes);
    }
}

#[test]
fn a_patch_tells_its_loads_and_stores() {
    let domain = Domain::new();
    let mut rib = rib(&[("2001:db8::/32", 1), ("2001:db8:1::/48", 2)]);
    let mut writer = Writer::new(&rib, &domain).unwrap();
    let prefix = "2001:db8:1::/48".parse().unwrap();
    // Each reads root, block and the nodes on its way; then the block's slots up to the one that is not as the first, fourteen of them.
    for (label, stores, loads) in [(5, 1, 27), (1, 1, 48), (2, 10, 24)] {
        // A new label is one store. With the label around it both nodes below the /24 are of one label, and one store leaves them
        // out. To have them again takes two words and two entries, two words and three entries, and the store that shows them.
        rib.insert(prefix, Label(label));
        let recorder = Recorder::new();
        writer.patch_probed(&rib, &[prefix], &recorder).unwrap();
        assert_eq!((recorder.counts().writes, recorder.counts().reads), (stores, loads), "{label}");
    }
}

/// In a large node a route that goes and comes back is one store each, although its slot is like its neighbors meanwhile; when all have
/// gone, so has the node.
#[test]
fn a_slot_of_a_large_node_flaps_by_one_store() {
    let domain = Domain::new();
    let cover = ("2001:d00::/24".parse::<Prefix<u128>>().unwrap(), Label(1));
    let inner = |i: u128| Prefix::new(0x2001_0d00 << 96 | (2 * i + 1) << 96, 32).unwrap();
    let mut rib: Rib<u128> = [cover].into_iter().collect();
    let mut writer = Writer::new(&rib, &domain).unwrap();
    let alone = writer.fib().bytes();
    (0..20).for_each(|i| _ = rib.insert(inner(i), Label(2 + i as u32)));
    writer.patch(&rib, &(0..20).map(inner).collect::<Vec<_>>()).unwrap();
    let node = writer.lulea().store.entry(writer.lulea().root(0x2001).word() + 0x0d);
    assert!(!node.is_leaf() && node.is_large());
    let bytes = writer.fib().bytes();
    for i in [0, 7, 8, 19] {
        for label in [None, Some(Label(30)), None, Some(Label(1)), Some(Label(2 + i as u32))] {
            let before = rib.lookup(inner(i).first()).map(|(_, label)| label);
            match label {
                Some(label) => rib.insert(inner(i), label),
                None => rib.remove(inner(i)),
            };
            let recorder = Recorder::new();
            writer.patch_probed(&rib, &[inner(i)], &recorder).unwrap();
            let differs = rib.lookup(inner(i).first()).map(|(_, label)| label) != before;
            assert_eq!(recorder.counts().writes, u64::from(differs), "{i} {label:?}");
            check(writer.lulea(), &rib, i as u64);
        }
    }
    assert_eq!(writer.fib().bytes(), bytes);
    // With the last one goes the node.
    (0..20).for_each(|i| _ = rib.remove(inner(i)));
    for i in (0..20).rev() {
        writer.patch(&rib, &[inner(i)]).unwrap();
    }
    check(writer.lulea(), &rib, 1);
    assert_eq!(writer.fib().bytes(), alone);
}

#[test]
fn nodes_are_used_again_only_when_no_reader_can_see_them() {
    let domain = Domain::new();
    let mut reader = domain.register();
    let mut rib = rib(&[("2001:db8::/32", 1), ("2001:db8:1::/48", 2)]);
    let mut writer = Writer::new(&rib, &domain).unwrap();
    let flap = |writer: &mut Writer, rib: &mut Rib<u128>| {
        let prefix = "2001:db8:7::/48".parse().unwrap();
        if rib.remove(prefix).is_none() {
            rib.insert(prefix, Label(3));
        }
        writer.patch(rib, &[prefix]).unwrap();
        writer.fib().bytes()
    };
    let first = flap(&mut writer, &mut rib);
    assert!(flap(&mut writer, &mut rib) > first, "the reader may still look at the old node");
    reader.quiescent();
    flap(&mut writer, &mut rib);
    reader.offline();
    let before = writer.fib().bytes();
    for _ in 0..100 {
        assert!(flap(&mut writer, &mut rib) <= before);
    }
}

#[test]
fn a_label_of_31_bits_is_held_and_one_of_32_refused() {
    let rib: Rib<u128> = (0..40)
        .map(|i: u32| {
            let addr = 0x2001_0db8 << 96 | u128::from(i) << (70 + i % 40);
            (Prefix::new(addr, 20 + 2 * i as u8).unwrap(), Label(Entry::LABEL_MAX - i))
        })
        .collect();
    check(Writer::new(&rib, &Domain::new()).unwrap().lulea(), &rib, 1);
    let rib = self::rib(&[("2001:db8::/32", u32::MAX)]);
    let Err(error) = Writer::new(&rib, &Domain::new()) else { panic!("32 bits do not fit") };
    assert!(error.to_string().contains("2001:db8::/32"), "{error}");
    assert!(matches!(error, BuildError::LabelTooWide { label: u32::MAX, width_bits: 31, .. }), "{error}");
}

/// The same change with a label that fits.
fn narrow(change: &Change<u128>) -> Change<u128> {
    match *change {
        Change::Announce(prefix, label) => Change::Announce(prefix, Label(label.0 % 300)),
        withdraw => withdraw,
    }
}

/// A label that fits no entry comes last in a batch: what the batch has done before is undone, and the writer goes on.
#[test]
fn a_patch_that_fails_is_undone() {
    for seed in 0..30 {
        let case = random_case::<u128>(seed);
        let mut rib: Rib<u128> = case.table.iter().map(|&(p, l)| (p, Label(l.0 % 300))).collect();
        let domain = Domain::new();
        let mut reader = domain.register();
        let mut writer = Writer::new(&rib, &domain).unwrap();
        let bytes = writer.fib().bytes();
        for batch in &case.batches {
            let before = rib.clone();
            for change in batch {
                rib.apply(&narrow(change));
            }
            let last: Prefix<u128> = "ffff:ffff::/32".parse().unwrap();
            rib.insert(last, Label(u32::MAX));
            let mut changed: Vec<Prefix<u128>> = batch.iter().map(|change| change.prefix()).collect();
            changed.push(last);
            assert!(writer.patch(&rib, &changed).is_err());
            assert_eq!(writer.after_failure(), AfterFailure::Restored);
            rib = before;
            check(writer.lulea(), &rib, seed);
            reader.quiescent();
        }
        // Nothing that a failed patch has made is lost.
        writer.patch(&rib, &[]).unwrap();
        assert_eq!(writer.fib().bytes(), bytes);
        // And then as if nothing had been.
        for batch in &case.batches {
            for change in batch {
                rib.apply(&narrow(change));
            }
            let changed: Vec<Prefix<u128>> = batch.iter().map(|change| change.prefix()).collect();
            if writer.patch(&rib, &changed).is_err() {
                writer = Writer::new(&rib, &domain).unwrap();
            }
            reader.quiescent();
            check(writer.lulea(), &rib, seed);
        }
    }
}
