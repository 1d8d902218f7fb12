//! Beside the suite: what is stored, what a lookup loads on either side, and that withdrawals leave nothing behind.

use super::*;
use tidemill_lookup::probe::{Access, Recorder};

fn rib(prefixes: &[(&str, u32)]) -> Rib<u128> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn address(text: &str) -> u128 {
    text.parse::<Prefix<u128>>().unwrap().first()
}

/// The answer, and loads on chip and off chip.
fn loads<C: Cell>(sail: &SailL<C>, key: u128) -> (Label, usize, usize) {
    let mut probe = Recorder::with_log();
    let label = sail.find(key, &probe);
    let log = probe.take();
    let on = |access: &&Access| matches!(access, Access::Read { address, .. } if sail.on_chip(*address));
    let on_chip = log.iter().filter(on).count();
    (label, on_chip, log.len() - on_chip)
}

/// A prefix of each of these lengths over one address, with its length for a label.
fn nested(lengths: impl Iterator<Item = u8>) -> Rib<u128> {
    let some = address("2001:db8:1234:5678:9abc:def0:1234:5678");
    lengths.map(|len| (Prefix::new(some, len).unwrap(), Label(len.into()))).collect()
}

#[test]
fn the_picture_on_the_page() {
    let sail = SailL::<u16>::build(&rib(&[("2001:d00::/24", 1), ("2001:db8::/32", 2)])).unwrap();
    assert_eq!([16, 24, 32, 40].map(|end| sail.chunks(end)), [1, 1, 1, 0]);
    assert!(!sail.levels[0].is_label(0x2001) && sail.levels[0].is_label(0x2002));
    assert!(!sail.levels[1].is_label(0x0d) && sail.levels[1].is_label(0x0e));
    let (bottom, at) = (&sail.levels[2], 0xb8);
    assert_eq!((bottom.cells[at], bottom.owners[at]), (2, 32));
    assert_eq!((bottom.cells[at + 1], bottom.owners[at + 1]), (1, 24));
    // Level 32 has nothing below it: its flags are not read.
    assert_eq!(loads(&sail, address("2001:db8::1")), (Label(2), 5, 0));
    assert_eq!(loads(&sail, address("2002::")), (Label::NONE, 2, 0));
}

/// The source's bound: two loads off chip.
#[test]
fn up_to_64_bits_two_loads_are_off_chip() {
    let table = nested(0..=64);
    let sail = SailL::<u16>::build(&table).unwrap();
    let key = address("2001:db8:1234:5678:9abc:def0:1234:5678");
    for depth in 0..128 {
        let key = key ^ 1 << (127 - depth);
        let (label, on_chip, off_chip) = loads(&sail, key);
        assert_eq!(label, table.lookup(key).unwrap().1);
        assert!(on_chip <= 9 && off_chip <= 2, "{depth}: {on_chip} and {off_chip}");
    }
    assert_eq!(loads(&sail, key), (Label(64), 9, 2));
}

#[test]
fn beyond_64_bits_every_level_costs_two_more() {
    let table = nested(0..=128);
    let sail = SailL::<u32>::build(&table).unwrap();
    let key = address("2001:db8:1234:5678:9abc:def0:1234:5678");
    assert_eq!(loads(&sail, key), (Label(128), 9, 18));
    // A key that leaves at 64 bits looks at the flags of that level now.
    assert_eq!(loads(&sail, key ^ 1 << 64), (Label(63), 9, 3));
}

#[test]
fn a_withdrawn_prefix_takes_its_chunks_along() {
    let mut rib = rib(&[("2001:db8::/32", 1), ("2001:db8:1::/48", 2)]);
    let mut sail = SailL::<u16>::build(&rib).unwrap();
    let before = (sail.details(), sail.levels.clone().map(|level| (level.cells, level.owners, level.flags)));
    let changes =
        ["2001:db8:1::7/128", "2001:db8:1:2::/64", "2001:db8::/37", "::/0", "3000::/5", "2001:db8:2::/49"];
    for text in changes {
        let prefix: Prefix<u128> = text.parse().unwrap();
        rib.insert(prefix, Label(7));
        sail.change(&rib, prefix, &()).unwrap();
        assert_eq!(sail.find(prefix.last(), &()), rib.lookup(prefix.last()).unwrap().1, "{text}");
        rib.remove(prefix);
        sail.change(&rib, prefix, &()).unwrap();
        let after =
            (sail.details(), sail.levels.clone().map(|level| (level.cells, level.owners, level.flags)));
        assert_eq!(after, before, "{text}");
    }
    for text in ["2001:db8::/32", "2001:db8:1::/48"] {
        let prefix = text.parse().unwrap();
        rib.remove(prefix);
        sail.change(&rib, prefix, &()).unwrap();
    }
    assert_eq!(sail.bytes(), (2 << 16) + (1 << 13), "level 16");
}

#[test]
fn a_change_stores_what_changes() {
    let mut rib = rib(&[("2001:db8::/32", 1), ("2001:db8:1::/48", 2)]);
    let mut sail = SailL::<u16>::build(&rib).unwrap();
    let mut stores = |text: &str, label: u32| {
        let prefix = text.parse().unwrap();
        rib.insert(prefix, Label(label));
        let probe = Recorder::new();
        sail.change(&rib, prefix, &probe).unwrap();
        (probe.counts().writes, probe.counts().written_bytes)
    };
    assert_eq!(stores("2001:db8:1::/48", 3), (1, 2));
    assert_eq!(stores("2001:db8:1::/48", 3), (0, 0));
    assert_eq!(stores("2001:db8:2::/47", 4), (2, 4));
    assert_eq!(stores("2001:db8::/45", 5), (5, 10), "eight cells, three of them of longer prefixes");
    assert_eq!(stores("2001:db8:1::/48", 4), (1, 2));
    // A new chunk with its flags, word by word; the cell and the flag that lead there; and one of its cells.
    let words = (2 << 16) / 8 + (1 << 13) / 8;
    assert_eq!(stores("2001:db8:1:1::/64", 6), (words + 3, 8 * words + 2 + 8 + 2));
}

/// Chunks of level 64 up to the limit of cells: then an error, and no attempt with wider cells that would take more.
#[test]
fn there_is_a_limit_of_cells() {
    let first = address("2001::");
    let chunks = CELLS_MAX as u128 >> 16;
    let table = |count: u128| -> Rib<u128> {
        (0..count).map(|i| (Prefix::new(first + (i << 80), 49).unwrap(), Label(1))).collect()
    };
    let (full, more) = (table(chunks), table(chunks + 1));
    let mut sail = SailL::<u16>::build(&full).unwrap();
    assert_eq!(sail.chunks(64), chunks as usize);
    let last = Prefix::new(first + (chunks << 80), 49).unwrap();
    let error = sail.change(&more, last, &()).unwrap_err();
    assert!(error.what.contains("cells of a level at most"), "{error}");
    drop(sail);
    let before = BUILDS.get();
    let error = writer(&more, &Domain::new()).err().unwrap();
    assert_eq!(BUILDS.get() - before, 1, "wider cells make no room");
    assert!(matches!(error, BuildError::TooLarge { .. }), "{error}");
    let none = Vec::<u64>::new().try_reserve(usize::MAX).unwrap_err();
    assert!(matches!(BuildError::from(Lack::Memory(none.clone())), BuildError::Memory(_)));
    assert!(Outgrown::from(Lack::Memory(none)).what.starts_with("no memory for a chunk"));
}

#[test]
fn numbers_beyond_16_bits_make_cells_of_32() {
    let wide = rib(&[("2001:db8::/32", 0x1_0000)]);
    assert!(matches!(SailL::<u16>::build(&wide), Err(BuildError::LabelTooWide { width_bits: 16, .. })));
    assert_eq!(SailL::<u32>::build(&wide).unwrap().find(address("2001:db8::"), &()), Label(0x1_0000));
    // More chunks of one level than 16 bits can number.
    let first = address("2001::");
    let many = |count: u128| -> Rib<u128> {
        (0..count).map(|i| (Prefix::new(first + (i << 88), 41).unwrap(), Label(1))).collect()
    };
    let mut full = many(1 << 16);
    let mut sail = SailL::<u16>::build(&full).unwrap();
    let more = Prefix::new(first + (1 << 16 << 88), 41).unwrap();
    full.insert(more, Label(1));
    assert!(sail.change(&full, more, &()).is_err());
    assert!(matches!(SailL::<u16>::build(&full), Err(BuildError::TooLarge { .. })));
    assert_eq!(SailL::<u32>::build(&full).unwrap().find(more.first(), &()), Label(1));
    assert_eq!(writer(&full, &Domain::new()).unwrap().fib().lookup(more.first()), Label(1));
}
