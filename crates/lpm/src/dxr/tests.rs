mod layouts;
mod outgrown;
mod sharing;
mod spread;

use super::build::{Census, choose_split, flatten};
use super::*;
use crate::fib::FibWriter;
use crate::oracle::{Oracle, scan};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tidemill_lookup::cache::{CacheConfig, Hierarchy};
use tidemill_lookup::probe::{Access, Recorder};
use tidemill_lookup::publish::Publisher;

type List = Vec<(Prefix<u32>, Label)>;

fn layouts() -> Vec<Layout> {
    let names = ["dxr-d16r", "dxr-d18r", "dxr-d20r", "dxr-d16x1r", "dxr-d16x4r", "dxr-d12x9r", "dxr-d8x8r"];
    names.iter().map(|name| Layout::parse(name).unwrap()).collect()
}

fn list(text: &[(&str, u32)]) -> List {
    text.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn build(list: &[(Prefix<u32>, Label)], config: &DxrConfig) -> DxrWriter {
    let rib: Rib<u32> = list.iter().copied().collect();
    Dxr::writer(&rib, config, &Domain::new()).unwrap()
}

/// Both ends of every prefix and their neighbours.
fn edges<'a>(prefixes: impl Iterator<Item = &'a Prefix<u32>>) -> Vec<u32> {
    let around = |p: &Prefix<u32>| {
        [p.first(), p.last(), p.first().wrapping_sub(1), p.last().wrapping_add(1), p.first() ^ 0x5a]
    };
    prefixes.flat_map(around).chain([0, 1, u32::MAX]).collect()
}

/// The encoding, and the words in use of all tables.
fn words(dxr: &Dxr) -> (Split, u8, Vec<u16>, [Vec<u32>; 2]) {
    let loaded = |table: &[AtomicU32], used: usize| -> Vec<u32> {
        table.iter().take(used).map(|word| word.load(Ordering::Relaxed)).collect()
    };
    let direct = dxr.own.direct.iter().map(|number| number.load(Ordering::Relaxed)).collect();
    let ranges = loaded(&dxr.store.ranges, dxr.store.used_ranges.load(Ordering::Relaxed));
    (dxr.split, dxr.label_bits, direct, [loaded(dxr.descs(), dxr.used_descs()), ranges])
}

/// Compares the scalar lookup and the batch of every kernel with `expected`.
fn check(dxr: &Dxr, keys: &[u32], expected: impl Fn(u32) -> Label, what: &str) {
    dxr.check().unwrap();
    for &key in keys {
        assert_eq!(dxr.lookup(key), expected(key), "{dxr} {what}: {}", key.to_ip());
    }
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
        let mut out = vec![Label(0xdead_beef); keys.len()];
        match kernel {
            Kernel::Scalar => dxr.lookup_batch_scalar(keys, &mut out),
            _ => simd::lookup_batch_with(kernel, dxr, keys, &mut out),
        }
        for (&key, &label) in keys.iter().zip(&out) {
            assert_eq!(label, expected(key), "{dxr} {kernel:?} {what}: {}", key.to_ip());
        }
    }
}

impl std::fmt::Display for Dxr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {} bits", self.layout, self.split, self.label_bits)
    }
}

/// A prefix near one of a few places, so that prefixes nest, touch and share chunks.
fn random_prefix(rng: &mut StdRng) -> Prefix<u32> {
    const PLACES: [u32; 4] = [0x0a01_02ff, 0x0a01_ff00, 0xffff_ffff, 0];
    let len = rng.random_range(0..=32);
    let keep = u32::mask(rng.random_range(0..=32));
    let place = PLACES[rng.random_range(0..PLACES.len())];
    Prefix::new(place & keep | rng.random::<u32>() & !keep, len).unwrap()
}

fn random_label(rng: &mut StdRng, bits: u8) -> Label {
    let widths = [1, 4, 8, 13, 16, 20, 32];
    let bits = bits.min(widths[rng.random_range(0..widths.len())]);
    Label(rng.random::<u32>() >> (32 - bits))
}

#[test]
fn names_are_layouts() {
    assert_eq!(Layout::parse("dxr-d16x4r"), Some(Layout::D16X4R));
    assert_eq!(Layout::parse("dxr-d18r"), Some(Layout::D18R));
    for layout in layouts() {
        assert_eq!(Layout::parse(&layout.to_string()), Some(layout));
    }
    for bad in
        ["dxr-d15r", "dxr-d25r", "dxr-d17x1r", "dxr-d16x9r", "dxr-d16x0r", "dxr-d+16x4r", "dxr-d7x9r", "dxr"]
    {
        assert_eq!(Layout::parse(bad), None, "{bad}");
    }
    assert_eq!(
        Layout::new(17, 3).unwrap_err().to_string(),
        "d = 17 is not possible: with an extension table, the direct table indexes 8 to 16 bits"
    );
}

#[test]
fn an_empty_table_has_no_route() {
    for layout in layouts() {
        let writer = build(&[], &DxrConfig::new(layout));
        check(writer.dxr(), &[0, 1, 0x0a00_0001, u32::MAX], |_| Label::NONE, "empty");
        writer.check_references();
    }
}

#[test]
fn the_picture_of_the_page_is_what_is_built() {
    let writer = build(&list(&[("10.0.0.0/8", 1), ("10.1.2.0/24", 2)]), &DxrConfig::new(Layout::D16X4R));
    let dxr = writer.dxr();
    let words: Vec<u32> = (0..2).map(|i| dxr.store.ranges[i].load(Ordering::Relaxed)).collect();
    assert_eq!(words, [0x0202_0001, 0x0301], "three short entries in two words");
    let stats = dxr.stats();
    assert_eq!((stats.direct_bytes, stats.desc_bytes, stats.range_bytes), (131_072, 3 * 64, 8));
    assert_eq!(stats.resolved, 1.0 - 1.0 / f64::from(1 << 20));

    // Two loads for a key that a descriptor resolves; a search of three entries takes two steps.
    let mut recorder = Recorder::with_log();
    assert_eq!(dxr.lookup_probed(0x0a01_1000, &recorder), Label(1));
    let log = recorder.take();
    assert!(matches!(
        log[..],
        [Access::Read { size: 2, dependent: false, .. }, Access::Read { dependent: true, .. }]
    ));
    assert_eq!(dxr.lookup_probed(0x0a01_0203, &recorder), Label(2));
    let counts = recorder.counts();
    assert_eq!((counts.reads, counts.dependent_reads, counts.steps), (5, 4, 2));
    let cache = RefCell::new(Hierarchy::new(&CacheConfig::default()).unwrap());
    dxr.lookup_probed(0x0a01_0203, &cache);
    assert_eq!(cache.borrow().stats()[0].misses, 3, "direct, descriptor and ranges on a line each");
}

#[test]
fn a_small_static_table_is_small() {
    let five = list(&[
        ("0.0.0.0/0", 1),
        ("10.0.0.0/24", 2),
        ("10.0.1.0/24", 3),
        ("10.0.2.0/24", 4),
        ("192.168.7.0/24", 5),
    ]);
    let writer = build(&five, &DxrConfig::new(Layout::parse("dxr-d12x9r").unwrap()));
    // Zec 4.1: about 15 KB.
    assert!(writer.dxr().bytes() < 15 << 10, "{}", writer.dxr().bytes());
}

#[test]
fn random_tables_answer_as_the_definition_does() {
    let mut rng = StdRng::seed_from_u64(1);
    for round in 0..if cfg!(miri) { 1 } else { 15 } {
        let bits = [8, 16, 32][round % 3];
        let count = rng.random_range(0..60);
        let list: List =
            (0..count).map(|_| (random_prefix(&mut rng), random_label(&mut rng, bits))).collect();
        let keys = edges(list.iter().map(|(prefix, _)| prefix));
        for layout in layouts() {
            let config = DxrConfig { label_bits: Some(bits), ..DxrConfig::new(layout) };
            let writer = build(&list, &config);
            check(writer.dxr(), &keys, |key| scan(&list, key), &format!("round {round}"));
            writer.check_references();
        }
    }
}

#[test]
fn nested_prefixes_of_every_length() {
    for (place, labels) in [(0x0a01_0203, 0), (u32::MAX, 1 << 20), (0, 300)] {
        let list: List = (0..=32)
            .map(|len| (Prefix::new(place, len).unwrap(), Label(labels + u32::from(len) + 1)))
            .collect();
        let keys = edges(list.iter().map(|(prefix, _)| prefix));
        for layout in layouts() {
            check(build(&list, &DxrConfig::new(layout)).dxr(), &keys, |key| scan(&list, key), "nested");
        }
    }
}

#[test]
fn chunks_larger_than_the_papers_field_get_another_split() {
    // 40,000 host routes in one /16 with alternating labels: more than 2^12 ranges, more than 2^15.
    let hosts: List =
        (0..40_000).map(|i| (Prefix::new(0x0a01_0000 + i, 32).unwrap(), Label(1 + i % 2 * 70_000))).collect();
    let oracle = Oracle::new(&hosts);
    let keys: Vec<u32> = (0x0a00_ff00..0x0a01_a000).collect();
    for layout in layouts() {
        let writer = build(&hosts, &DxrConfig::new(layout));
        check(writer.dxr(), &keys, |key| oracle.lookup(key), "hosts");
    }
    let d16 = build(&hosts, &DxrConfig::new(Layout::parse("dxr-d16r").unwrap()));
    assert_eq!(d16.dxr().split, Split { count_bits: 16, unit_shift: 3 }, "bases in units of 8 words");
}

#[test]
fn a_table_that_no_split_can_encode_is_refused() {
    let census = |chunks, words, largest| Census { chunks, words, largest, label: 1 };
    let split = |census| super::build::best_split(Layout::new(16, 0).unwrap(), &census, 1 << 10);
    assert_eq!(split(census(10, 100, 10)), Some(Split { count_bits: 16, unit_shift: 0 }));
    // Room for growth, then none; then larger units.
    assert_eq!(split(census(1 << 10, 1 << 18, 1 << 11)).unwrap().unit_shift, 0);
    assert_eq!(split(census(1 << 10, 1 << 20, 1 << 14)).unwrap().unit_shift, 5);
    assert_eq!(split(census(1 << 16, 1 << 32, 1 << 16)), None);
    assert_eq!(split(census(1 << 16, 1 << 25, 1 << 16)), None);

    let rib: Rib<u32> = list(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 256)]).into_iter().collect();
    let with = |label_bits| {
        let config = DxrConfig { label_bits: Some(label_bits), ..DxrConfig::default() };
        Dxr::writer(&rib, &config, &Domain::new()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(with(16), Ok(()));
    assert_eq!(
        with(8).unwrap_err(),
        "label 256 of 10.1.0.0/16 does not fit into 8 bits: choose wider labels, or a structure that has them"
    );
    assert_eq!(with(9).unwrap_err(), "label_bits = 9 is not possible: labels are 8, 16 or 32 bits wide");
}

#[test]
fn labels_wider_than_a_descriptor_become_chunks_of_one_range() {
    let wide =
        list(&[("0.0.0.0/0", u32::MAX), ("10.0.0.0/8", 0x8000_0000), ("10.1.2.3/32", 5), ("11.0.0.0/8", 7)]);
    let mut ranges = Vec::new();
    let rib: Rib<u32> = wide.iter().copied().collect();
    flatten(Prefix::DEFAULT, Label::NONE, rib.iter(), &mut ranges);
    let census = Census::new(Layout::D18R, Prefix::DEFAULT, &ranges, 32);
    let with_wide = |inline| census.with_wide(ranges.iter(), 32, inline);
    let (split, census) = choose_split(Layout::D18R, 1 << 10, census, with_wide).unwrap();
    assert!(split.encode_label(u32::MAX).is_none() && split.encode_label(7).is_some());
    assert_eq!((census.largest, census.chunks), (3, 1 + 2), "one of three ranges, one for each wide label");
    for layout in layouts() {
        let writer = build(&wide, &DxrConfig::new(layout));
        assert_eq!(writer.dxr().label_bits(), 32);
        check(writer.dxr(), &edges(wide.iter().map(|(p, _)| p)), |key| scan(&wide, key), "wide");
    }
}

#[test]
fn equal_chunks_and_blocks_are_stored_once() {
    let same: List =
        (0..256_u32).map(|i| (Prefix::new(0x0a00_0100 | i << 16, 24).unwrap(), Label(3))).collect();
    let writer = build(&same, &DxrConfig::new(Layout::D16X4R));
    let stats = writer.dxr().stats();
    assert_eq!((stats.desc_bytes, stats.range_bytes), (2 * 64, 8));
}

#[test]
fn batches_of_every_length_agree() {
    let mut rng = StdRng::seed_from_u64(2);
    let list: List = (0..200).map(|_| (random_prefix(&mut rng), random_label(&mut rng, 16))).collect();
    let oracle = Oracle::new(&list);
    let keys: Vec<u32> = (0..600).map(|_| random_prefix(&mut rng).first()).collect();
    for layout in [Layout::D16X4R, Layout::D18R] {
        let writer = build(&list, &DxrConfig::new(layout));
        for len in (0..70).chain([255, 256, 257, 511, 512, 600]) {
            check(writer.dxr(), &keys[600 - len..], |key| oracle.lookup(key), &format!("{len} keys"));
        }
    }
}

#[test]
fn patches_keep_up_with_the_rib() {
    for (layout, seed) in layouts().into_iter().zip(10..) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut rib = Rib::new();
        let (domain, mut rebuilt) = (Domain::new(), 0);
        let config = DxrConfig { label_bits: Some(16), ..DxrConfig::new(layout) };
        let mut writer = Dxr::writer(&rib, &config, &domain).unwrap();
        let mut reader = domain.register();
        let mut known: BTreeMap<Prefix<u32>, Label> = BTreeMap::new();
        for round in 0..if cfg!(miri) { 3 } else { 60 } {
            let changed: Vec<_> = (0..rng.random_range(1..8))
                .map(|_| {
                    let old = known.keys().nth(rng.random_range(0..known.len().max(1))).copied();
                    let prefix =
                        old.filter(|_| rng.random_bool(0.6)).unwrap_or_else(|| random_prefix(&mut rng));
                    if rng.random_bool(0.4) {
                        known.remove(&prefix);
                        rib.remove(prefix);
                    } else {
                        let label = random_label(&mut rng, 16);
                        known.insert(prefix, label);
                        rib.insert(prefix, label);
                    }
                    prefix
                })
                .collect();
            if let Err(outgrown) = writer.patch(&rib, &changed) {
                assert_eq!(writer.patch(&rib, &[]), Err(outgrown), "no patch after that");
                writer = Dxr::writer(&rib, &config, &domain).unwrap();
                rebuilt += 1;
            }
            if rng.random_bool(0.7) {
                reader.quiescent();
            }
            writer.check_references();
            let list: List = known.iter().map(|(&p, &l)| (p, l)).collect();
            let keys = edges(known.keys().chain(&changed));
            check(writer.dxr(), &keys, |key| scan(&list, key), &format!("round {round}"));
        }
        assert!(rebuilt < 20, "{layout}: {rebuilt} rebuilds");
        reader.offline();
        let all: Vec<_> = known.keys().copied().collect();
        writer.patch(&Rib::new(), &all).unwrap();
        check(writer.dxr(), &edges(known.keys()), |_| Label::NONE, "all withdrawn");
    }
}

#[test]
fn a_full_table_is_outgrown_and_still_answers() {
    for layout in [Layout::D18R, Layout::D16X4R] {
        let domain = Domain::new();
        let reader = domain.register();
        let mut rib: Rib<u32> = list(&[("10.0.0.0/8", 1)]).into_iter().collect();
        let mut writer = Dxr::writer(&rib, &DxrConfig::new(layout), &domain).unwrap();
        let mut outgrown = None;
        for i in 0..200_000_u32 {
            let prefix = Prefix::new(0x0a00_0000 | i.wrapping_mul(0x9e37_79b9) >> 8, 28).unwrap();
            rib.insert(prefix, Label(i % 60_000));
            if let Err(error) = writer.patch(&rib, &[prefix]) {
                outgrown = Some((prefix, error.to_string()));
                break;
            }
        }
        let (prefix, error) = outgrown.expect("the reader is never quiescent, so space runs out");
        assert!(
            error.starts_with("no space for a") && error.ends_with(": the structure must be rebuilt"),
            "{error}"
        );
        let label = writer.dxr().lookup(prefix.first());
        let new = rib.lookup(prefix.first()).unwrap().1;
        rib.remove(prefix);
        let old = rib.lookup(prefix.first()).unwrap().1;
        assert!(label == old || label == new);
        let inside: Vec<u32> =
            rib.iter().map(|(p, _)| p.first()).filter(|&key| !prefix.contains(key)).collect();
        check(writer.dxr(), &inside, |key| rib.lookup(key).unwrap().1, "outgrown");
        drop(reader);
    }
    // A label that no chunk of this table can hold, and a chunk that no count of this split can.
    let rib: Rib<u32> = list(&[("10.0.0.0/8", 70_000)]).into_iter().collect();
    let mut writer = build(&[], &DxrConfig::default());
    let error = writer.patch(&rib, &[Prefix::DEFAULT]).unwrap_err();
    assert_eq!(error.what, "label 70000 is wider than the labels of this table");
}

/// Two tables whose labels differ everywhere; readers must see one of them for every key, and at the end the last.
fn readers_see_old_or_new(layout: Layout, kernel: Kernel) {
    let domain = Domain::new();
    let mut rng = StdRng::seed_from_u64(3);
    let prefixes: Vec<Prefix<u32>> = std::iter::repeat_with(|| random_prefix(&mut rng))
        .filter(|prefix| prefix.len() >= 10)
        .take(if cfg!(miri) { 10 } else { 300 })
        .collect();
    // Label = key's own prefix number * 2 + round parity: any stale or foreign chunk shows.
    let table = |parity: u32| -> Rib<u32> {
        prefixes.iter().zip(0..).map(|(&p, i)| (p, Label(2 * (i % 100) + parity + 2))).collect()
    };
    let ribs = [table(0), table(1)];
    let lists: [List; 2] = [ribs[0].iter().collect(), ribs[1].iter().collect()];
    let oracles = lists.each_ref().map(|list| Oracle::new(list));
    let keys = edges(prefixes.iter());
    let config = DxrConfig { kernel: Some(kernel), ..DxrConfig::new(layout) };
    let writer = Dxr::writer(&ribs[0], &config, &domain).unwrap();
    let mut publisher = Publisher::new(&domain, writer.dxr().clone());
    let mut writer = Some(writer);
    let (stop, looked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (view, mut reader) = (publisher.view(), domain.register());
            let (stop, looked, keys, oracles) = (stop.clone(), looked.clone(), &keys, &oracles);
            scope.spawn(move || {
                let mut out = vec![Label::NONE; keys.len()];
                while !stop.load(Ordering::Relaxed) {
                    view.get(&reader).lookup_batch(keys, &mut out);
                    reader.quiescent();
                    for (&key, &label) in keys.iter().zip(&out) {
                        let (old, new) = (oracles[0].lookup(key), oracles[1].lookup(key));
                        assert!(
                            label == old || label == new,
                            "{}: {label:?}, not {old:?} or {new:?}",
                            key.to_ip()
                        );
                    }
                    looked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut round = 0;
        let least = if cfg!(miri) { 2 } else { 8 };
        while round < least || looked.load(Ordering::Relaxed) < 6 {
            round += 1;
            let rib = &ribs[round % 2];
            let batch = rng.random_range(1..=prefixes.len());
            let patched = prefixes.chunks(batch).try_for_each(|changed| match writer.as_mut() {
                Some(writer) => writer.patch(rib, changed),
                None => Ok(()),
            });
            if patched.is_err() {
                // As a table does: build a new one and swap the root.
                let next = Dxr::writer(rib, &config, &domain).unwrap();
                publisher.publish(next.dxr().clone());
                writer = Some(next);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn readers_see_old_or_new_labels_during_patches() {
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_supported()) {
        for layout in [Layout::D18R, Layout::D16X4R] {
            readers_see_old_or_new(layout, kernel);
        }
    }
}

#[test]
fn a_table_that_breaks_an_invariant_is_told() {
    let sample = list(&[("10.0.0.0/8", 1), ("10.1.2.0/24", 2), ("10.1.2.3/32", 300)]);
    let writer = build(&sample, &DxrConfig::new(Layout::D16X4R));
    let dxr = writer.dxr();
    dxr.check().unwrap();
    let slot = &dxr.own.direct[0x0a01];
    let number = slot.swap(u16::MAX, Ordering::Relaxed);
    let told = dxr.check().unwrap_err();
    assert!(told.starts_with("slot 2561 names block 65535 of "), "{told}");
    slot.store(number, Ordering::Relaxed);
    let chunk_of = |desc: &AtomicU32| dxr.split.chunk(desc.load(Ordering::Relaxed));
    let chunk = dxr.store.block(number).iter().find_map(chunk_of).unwrap();
    let first = (chunk.base as usize) << dxr.split.unit_shift;
    dxr.store.ranges[first].store(u32::MAX, Ordering::Relaxed);
    let told = dxr.check().unwrap_err();
    assert!(told.contains("does not start with 0 and ascend"), "{told}");
}

#[test]
fn the_accesses_of_a_patch_are_told_to_the_probe() {
    let mut rib: Rib<u32> = list(&[("10.0.0.0/8", 1)]).into_iter().collect();
    let mut writer = build(&list(&[("10.0.0.0/8", 1)]), &DxrConfig::new(Layout::D18R));
    let host: Prefix<u32> = "10.1.2.3/32".parse().unwrap();
    let mut patch = |writer: &mut DxrWriter, prefix: Prefix<u32>, label| {
        rib.insert(prefix, Label(label));
        let recorder = Recorder::new();
        writer.patch_probed(&rib, &[prefix], &recorder).unwrap();
        (recorder.counts().reads, recorder.counts().writes)
    };
    assert_eq!(patch(&mut writer, host, 2), (1, 3 + 1), "one slot; three long ranges, the slot");
    assert_eq!(patch(&mut writer, host, 2), (1 + 3, 0), "nothing changed, nothing stored");

    let mut writer = build(&list(&[("10.0.0.0/8", 1)]), &DxrConfig::new(Layout::D16X4R));
    let block = 1 + 16;
    assert_eq!(
        patch(&mut writer, host, 2),
        (block, 3 + 16 + 1),
        "the block was that of all 10.0.0.0/8: a new one"
    );
    assert_eq!(patch(&mut writer, host, 3), (block + 3, 3 + 1), "its own block: the descriptor in place");
    let net = "10.1.65.0/24".parse().unwrap();
    assert_eq!(patch(&mut writer, net, 4), (block, 2 + 1), "three short ranges, the descriptor");
    let whole = "10.1.128.0/17".parse().unwrap();
    assert_eq!(patch(&mut writer, whole, 5), (block, 8), "eight descriptors, no ranges");
}

/// Two slots share a block; one leaves it. A reader who read the first slot before that may look into the block still, so that the
/// second slot, whose alone it is now, may not have it changed in place.
#[test]
fn a_block_that_was_shared_stays_as_it_is_while_a_reader_may_be_there() {
    let domain = Domain::new();
    let mut rib: Rib<u32> = list(&[("10.0.0.0/24", 1), ("11.0.0.0/24", 1)]).into_iter().collect();
    let mut writer = DxrWriter::new(&rib, &DxrConfig::new(Layout::D16X4R), &domain).unwrap();
    let mut reader = domain.register();
    let number = |writer: &DxrWriter, slot: usize| writer.dxr().own.direct[slot].load(Ordering::Relaxed);
    let shared = number(&writer, 0x0a00);
    assert_eq!(shared, number(&writer, 0x0b00));
    let block = |writer: &DxrWriter| -> Vec<u32> {
        writer.dxr().store.block(shared).iter().map(|desc| desc.load(Ordering::Relaxed)).collect()
    };
    let before = block(&writer);
    let mut change = |writer: &mut DxrWriter, prefix: &str, label| {
        let prefix = prefix.parse().unwrap();
        rib.insert(prefix, Label(label));
        writer.patch(&rib, &[prefix]).unwrap();
    };
    change(&mut writer, "10.0.0.0/24", 2);
    change(&mut writer, "11.0.0.0/24", 3);
    assert_eq!(block(&writer), before, "what the reader is about to read");
    assert_eq!(writer.dxr().lookup(0x0b00_0001), Label(3));
    // What nobody can be in by another way is changed in place.
    reader.quiescent();
    let now = number(&writer, 0x0b00);
    change(&mut writer, "11.0.0.0/24", 4);
    assert_eq!(number(&writer, 0x0b00), now);
    assert_eq!(writer.dxr().lookup(0x0b00_0001), Label(4));
}
