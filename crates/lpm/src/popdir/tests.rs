use super::*;
use crate::fib::FibWriter;
use crate::oracle::{Oracle, scan};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_lookup::probe::{Access, Recorder};
use tidemill_lookup::qsbr::Domain;

type List = Vec<(Prefix<u32>, Label)>;

/// Under Miri a build takes seconds, whatever the layout: there are 2^19 chunks.
fn layouts() -> Vec<Layout> {
    ["popdir-d12x7", "popdir-d19", "popdir-d16x3", "popdir-d8x11"][..if cfg!(miri) { 1 } else { 4 }]
        .iter()
        .map(|name| Layout::parse(name).unwrap())
        .collect()
}

fn list(text: &[(&str, u32)]) -> List {
    text.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn build(list: &[(Prefix<u32>, Label)], layout: Layout) -> Writer {
    Writer::new(&list.iter().copied().collect(), layout, &Domain::new()).unwrap()
}

/// Both ends of every prefix and their neighbours.
fn edges<'a>(prefixes: impl Iterator<Item = &'a Prefix<u32>>) -> Vec<u32> {
    let around = |p: &Prefix<u32>| {
        [p.first(), p.last(), p.first().wrapping_sub(1), p.last().wrapping_add(1), p.first() ^ 0x5a]
    };
    prefixes.flat_map(around).chain([0, 1, u32::MAX]).collect()
}

/// Compares single lookups and the batch of every kernel with `expected`.
fn check(popdir: &Popdir, keys: &[u32], expected: impl Fn(u32) -> Label, what: &str) {
    if !cfg!(miri) {
        popdir.check().unwrap();
    }
    let name = format!("{} {what}", popdir.layout);
    for &key in keys {
        assert_eq!(popdir.lookup(key), expected(key), "{name}: {}", key.to_ip());
        assert_eq!(popdir.lookup_probed(key, &()), expected(key), "{name}: {}, probed", key.to_ip());
    }
    popdir.lookup_batch_each(keys, &mut |kernel, labels| {
        for (&key, &label) in keys.iter().zip(labels) {
            assert_eq!(label, expected(key), "{name} {kernel}: {}", key.to_ip());
        }
    });
}

fn check_references(writer: &Writer) {
    if !cfg!(miri) {
        writer.check_references();
    }
}

/// A prefix near one of a few places, so that prefixes nest, touch and share chunks.
fn random_prefix(rng: &mut StdRng, longest: u8) -> Prefix<u32> {
    const PLACES: [u32; 4] = [0x0a01_02ff, 0x0a01_ff00, 0xffff_ffff, 0];
    let len = rng.random_range(0..=longest);
    let keep = u32::mask(rng.random_range(0..=longest));
    let place = PLACES[rng.random_range(0..PLACES.len())];
    Prefix::new(place & keep | rng.random::<u32>() & !keep, len).unwrap()
}

fn random_label(rng: &mut StdRng, bits: u8) -> Label {
    Label(rng.random::<u32>() >> (32 - rng.random_range(1..=bits)))
}

#[test]
fn names_are_layouts() {
    assert_eq!(Layout::parse("popdir-d16x3"), Some(Layout::D16X3));
    assert_eq!(Layout::parse("popdir-d19"), Some(Layout::D19));
    for layout in layouts() {
        assert_eq!(Layout::parse(&layout.to_string()), Some(layout));
    }
    for bad in [
        "popdir-d18",
        "popdir-d16x4",
        "popdir-d17x2",
        "popdir-d7x12",
        "popdir-d19x0",
        "popdir-d+16x3",
        "popdir",
    ] {
        assert_eq!(Layout::parse(bad), None, "{bad}");
    }
    let error = Layout::new(18, 1).unwrap_err().to_string();
    assert_eq!(error, "d = 18 is not possible: the direct table indexes 8 to 16 bits, or 19 without blocks");
}

#[test]
fn descriptors_are_read_back() {
    for desc in [
        Desc::Label(0),
        Desc::Label(u32::MAX),
        Desc::Run { map: 0x8000_0002, base: 7 },
        Desc::Aside { base: u32::MAX },
    ] {
        assert_eq!(Desc::decode(desc.encode()), desc);
    }
    // The changes before and at a /24: number 1 is the top bit, number 31 the last but one.
    assert_eq!((place(change_bit(1), 0x0000_00ff), place(change_bit(1), 0x0000_0100)), (0, 1));
    assert_eq!((place(change_bit(31), 0x0000_1eff), place(change_bit(31), 0xffff_ff00)), (0, 1));
    assert_eq!(place(!ASIDE, u32::MAX), 31);
}

#[test]
fn an_empty_table_has_no_route() {
    for layout in layouts() {
        let writer = build(&[], layout);
        check(writer.popdir(), &[0, 1, 0x0a00_0001, u32::MAX], |_| Label::NONE, "empty");
        check_references(&writer);
    }
}

#[test]
fn the_picture_of_the_page_is_what_is_built() {
    let writer = build(&list(&[("10.0.0.0/8", 1), ("10.1.2.0/24", 2)]), Layout::D16X3);
    let popdir = writer.popdir();
    let Labels::One(labels) = &popdir.tables.labels else { panic!("labels below 256 take a byte") };
    let labels: Vec<u8> = labels[..3].iter().map(|label| label.load(Ordering::Relaxed)).collect();
    assert_eq!(labels, [1, 2, 1]);
    // Three blocks: without routes, 10/8, and 10.1/16.
    assert_eq!(popdir.bytes(), (2 << 16) + 3 * 64 + 3);

    // A key in a chunk of one label takes two loads, another one three.
    let mut recorder = Recorder::with_log();
    assert_eq!(popdir.lookup_probed(0x0a01_2000, &recorder), Label(1));
    let log = recorder.take();
    assert!(
        matches!(
            log[..],
            [Access::Read { size: 2, dependent: false, .. }, Access::Read { size: 8, dependent: true, .. }]
        ),
        "{log:?}"
    );
    assert_eq!(popdir.lookup_probed(0x0a01_0203, &recorder), Label(2));
    let counts = recorder.counts();
    assert_eq!((counts.reads, counts.dependent_reads, counts.read_bytes), (3, 2, 2 + 8 + 1));
}

#[test]
#[cfg_attr(miri, ignore = "minutes; the others go the same ways")]
fn labels_take_as_many_bytes_as_the_widest_needs() {
    for (widest, width) in [(255, 1), (256, 2), (65_535, 2), (65_536, 4), (u32::MAX, 4)] {
        let routes =
            list(&[("0.0.0.0/0", 3), ("10.1.2.0/24", widest), ("10.1.3.0/25", 7), ("10.2.0.0/16", widest)]);
        let keys = edges(routes.iter().map(|(prefix, _)| prefix));
        for layout in layouts() {
            let writer = build(&routes, layout);
            assert_eq!(writer.popdir().label_width(), width);
            check(writer.popdir(), &keys, |key| scan(&routes, key), "widths");
        }
    }
}

#[test]
fn a_wider_label_means_a_rebuild_only_where_labels_are_stored() {
    let domain = Domain::new();
    for layout in layouts() {
        let mut rib: Rib<u32> = list(&[("10.1.2.0/24", 1), ("10.2.0.0/16", 2)]).into_iter().collect();
        let mut writer = Writer::new(&rib, layout, &domain).unwrap();
        // A whole chunk's label is in the descriptor.
        let (wide, narrow) = ("10.3.0.0/16".parse().unwrap(), "10.1.3.0/24".parse().unwrap());
        rib.insert(wide, Label(1 << 30));
        writer.patch(&rib, &[wide]).unwrap();
        assert_eq!(writer.popdir().lookup(0x0a03_0001), Label(1 << 30));
        rib.insert(narrow, Label(256));
        let error = writer.patch(&rib, &[narrow]).unwrap_err();
        assert!(error.what.contains("label 256 is wider than this table's 1 bytes"), "{error}");
        assert!(writer.patch(&rib, &[]).is_err(), "no patch from then on");
    }
}

#[test]
fn random_tables_answer_as_the_definition_does() {
    let mut rng = StdRng::seed_from_u64(1);
    for round in 0..if cfg!(miri) { 1 } else { 20 } {
        // Every other table has no prefix beyond /24.
        let (bits, longest) = ([8, 16, 32][round % 3], [24, 32][round % 2]);
        let count = rng.random_range(0..60);
        let list: List =
            (0..count).map(|_| (random_prefix(&mut rng, longest), random_label(&mut rng, bits))).collect();
        let keys = edges(list.iter().map(|(prefix, _)| prefix));
        for layout in layouts() {
            let writer = build(&list, layout);
            check(writer.popdir(), &keys, |key| scan(&list, key), &format!("round {round}"));
            check_references(&writer);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes; the others go the same ways")]
fn nested_prefixes_of_every_length() {
    for (place, labels) in [(0x0a01_0203, 0), (u32::MAX, 1 << 20), (0, 300)] {
        let list: List = (0..=32)
            .map(|len| (Prefix::new(place, len).unwrap(), Label(labels + u32::from(len) + 1)))
            .collect();
        let keys = edges(list.iter().map(|(prefix, _)| prefix));
        for layout in layouts() {
            check(build(&list, layout).popdir(), &keys, |key| scan(&list, key), "nested");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes; the others go the same ways")]
fn a_chunk_of_host_routes_and_one_of_slash_24s() {
    let mut hosts: List =
        (0..8_192).map(|i| (Prefix::new(0x0a01_0000 + i, 32).unwrap(), Label(1 + i % 2 * 70_000))).collect();
    hosts.extend((0..32).map(|i| (Prefix::new(0x0a02_0000 + (i << 8), 24).unwrap(), Label(1 + i))));
    let oracle = Oracle::new(&hosts);
    let keys: Vec<u32> = (0x0a00_ff00..0x0a01_2100).chain(0x0a01_ff00..0x0a02_2100).collect();
    for layout in layouts() {
        let writer = build(&hosts, layout);
        check(writer.popdir(), &keys, |key| oracle.lookup(key), "hosts");
        assert_eq!(writer.popdir().used().asides, 1 + 2 * 8_192);
        assert_eq!(writer.popdir().used().labels, 32);
    }
}

#[test]
fn patches_keep_the_books() {
    let mut rng = StdRng::seed_from_u64(2);
    let domain = Domain::new();
    for layout in layouts() {
        let mut rib = Rib::new();
        let mut writer = Writer::new(&rib, layout, &domain).unwrap();
        let mut seen = vec![];
        for round in 0..if cfg!(miri) { 3 } else { 60 } {
            let longest = if round % 3 == 0 { 32 } else { 24 };
            let changed: Vec<Prefix<u32>> =
                (0..rng.random_range(1..12)).map(|_| random_prefix(&mut rng, longest)).collect();
            for &prefix in &changed {
                if rng.random_range(0..3) == 0 {
                    rib.remove(prefix);
                } else {
                    rib.insert(prefix, random_label(&mut rng, 8));
                }
            }
            seen.extend(changed.iter().copied());
            if writer.patch(&rib, &changed).is_err() {
                writer = Writer::new(&rib, layout, &domain).unwrap();
            }
            let list: List = rib.iter().collect();
            check(writer.popdir(), &edges(seen.iter()), |key| scan(&list, key), &format!("round {round}"));
            check_references(&writer);
        }
        // What is left when everything is withdrawn is the empty table.
        let all: Vec<Prefix<u32>> = rib.iter().map(|(prefix, _)| prefix).collect();
        all.iter().for_each(|&prefix| {
            rib.remove(prefix);
        });
        writer.patch(&rib, &all).unwrap();
        check(writer.popdir(), &edges(seen.iter()), |_| Label::NONE, "withdrawn");
        check_references(&writer);
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes; the others go the same ways")]
fn space_is_used_again_after_the_grace_period() {
    let domain = Domain::new();
    let mut reader = domain.register();
    for layout in layouts() {
        let mut rib: Rib<u32> = list(&[("10.1.0.0/24", 1)]).into_iter().collect();
        let mut writer = Writer::new(&rib, layout, &domain).unwrap();
        let prefix = "10.1.7.0/24".parse().unwrap();
        let mut flap = |reader: &mut tidemill_lookup::qsbr::Reader, quiescent: bool| {
            (0..12_000).find(|i| {
                rib.insert(prefix, Label(1 + i % 200));
                if quiescent {
                    reader.quiescent();
                }
                writer.patch(&rib, &[prefix]).is_err()
            })
        };
        assert_eq!(flap(&mut reader, true), None, "{layout}");
        assert!(
            flap(&mut reader, false).is_some(),
            "{layout}: a reader that never moves on keeps everything"
        );
    }
}

#[test]
fn a_patch_tells_its_loads_and_stores() {
    let mut rib: Rib<u32> = list(&[("10.0.0.0/8", 1)]).into_iter().collect();
    let mut writer = Writer::new(&rib, Layout::D16X3, &Domain::new()).unwrap();
    let prefix = "10.1.2.0/24".parse().unwrap();
    rib.insert(prefix, Label(2));
    let recorder = Recorder::new();
    writer.patch_probed(&rib, &[prefix], &recorder).unwrap();
    let counts = recorder.counts();
    assert_eq!((counts.writes, counts.written_bytes), (3 + 8 + 1, 3 + 64 + 2), "a run, a block, a slot");
    assert_eq!((counts.reads, counts.read_bytes), (1 + 8, 2 + 64), "a slot, a block of one label");
    // Now the same again from another place: run and block are there already but for the slot.
    let other = "10.2.2.0/24".parse().unwrap();
    rib.insert(other, Label(2));
    let recorder = Recorder::new();
    writer.patch_probed(&rib, &[other], &recorder).unwrap();
    assert_eq!(recorder.counts().written_bytes, 2);
    // A block that one slot has changes in place, by one store.
    let one = "10.1.3.0/24".parse().unwrap();
    let both = "10.2.3.0/24".parse().unwrap();
    for (prefix, bytes) in [(one, 64 + 2), (both, 2)] {
        rib.insert(prefix, Label(2));
        let recorder = Recorder::new();
        writer.patch_probed(&rib, &[prefix], &recorder).unwrap();
        assert_eq!(recorder.counts().written_bytes, bytes);
    }
    rib.insert(one, Label(3));
    let recorder = Recorder::new();
    writer.patch_probed(&rib, &[one], &recorder).unwrap();
    rib.insert(one, Label(4));
    let recorder = Recorder::new();
    writer.patch_probed(&rib, &[one], &recorder).unwrap();
    let counts = recorder.counts();
    assert_eq!((counts.writes, counts.written_bytes), (4 + 1, 4 + 8));
    assert_eq!((counts.reads, counts.read_bytes), (1 + 8 + 4, 2 + 64 + 4), "and the run that was there");
    check_references(&writer);
}

/// Two slots share a block; one leaves it. A reader who read the first slot before that may look into the block still, so that the
/// second slot, whose alone it is now, may not have it changed in place.
#[test]
fn a_block_that_was_shared_stays_as_it_is_while_a_reader_may_be_there() {
    let domain = Domain::new();
    let mut rib: Rib<u32> = list(&[("10.0.0.0/24", 1), ("11.0.0.0/24", 1)]).into_iter().collect();
    let mut writer = Writer::new(&rib, Layout::D16X3, &domain).unwrap();
    let mut reader = domain.register();
    let number = |writer: &Writer, slot: usize| writer.popdir().tables.direct[slot].load(Ordering::Relaxed);
    let shared = number(&writer, 0x0a00);
    assert_eq!(shared, number(&writer, 0x0b00));
    let block = |writer: &Writer| -> Vec<u64> {
        let descs = &writer.popdir().tables.descs[usize::from(shared) << 3..][..8];
        descs.iter().map(|desc| desc.load(Ordering::Relaxed)).collect()
    };
    let before = block(&writer);
    let mut change = |writer: &mut Writer, prefix: &str, label| {
        let prefix = prefix.parse().unwrap();
        rib.insert(prefix, Label(label));
        writer.patch(&rib, &[prefix]).unwrap();
        check_references(writer);
    };
    change(&mut writer, "10.0.0.0/24", 2);
    change(&mut writer, "11.0.0.0/24", 3);
    assert_eq!(block(&writer), before, "what the reader is about to read");
    assert_eq!(writer.popdir().lookup(0x0b00_0001), Label(3));
    // What nobody can be in by another way is changed in place, as soon as the reader has passed.
    reader.quiescent();
    let now = number(&writer, 0x0b00);
    change(&mut writer, "11.0.0.0/24", 4);
    assert_eq!(number(&writer, 0x0b00), now);
    assert_eq!(writer.popdir().lookup(0x0b00_0001), Label(4));
}
