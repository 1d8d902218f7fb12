//! Beside the suite: the picture, the width of cells, what a change stores, and that blocks come back.

use super::*;
use tidemill_lookup::probe::Recorder;

fn rib(prefixes: &[(&str, u32)]) -> Rib<u32> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn loads<C: Cell>(dir: &Dir24<C>, key: u32) -> (Label, u64) {
    let probe = Recorder::new();
    (dir.find(key, &probe), probe.counts().reads)
}

#[test]
fn the_picture_on_the_page() {
    let dir = Dir24::<u16>::build(&rib(&[("10.0.0.0/8", 1), ("10.0.0.128/25", 2)])).unwrap();
    assert_eq!(dir.blocks(), 1);
    assert_eq!((dir.first[0x0a_0000], dir.first[0x0a_0001], dir.first[0x0a_ffff]), (0x8000, 1, 1));
    assert_eq!((dir.second[127], dir.second[128]), (1, 2));
    assert_eq!(loads(&dir, 0x0a00_0000), (Label(1), 2));
    assert_eq!(loads(&dir, 0x0a00_0080), (Label(2), 2));
    assert_eq!(loads(&dir, 0x0a00_0180), (Label(1), 1));
    assert_eq!(loads(&dir, 0x0b00_0000), (Label::NONE, 1));
    assert_eq!(Fib::bytes(&dir), (32 << 20) + 512);
}

#[test]
fn a_label_of_16_bits_takes_wider_cells() {
    let (narrow, wide) = (rib(&[("10.0.0.0/8", 0x7fff)]), rib(&[("10.0.0.0/8", 0x8000)]));
    assert!(matches!(Dir24::<u16>::build(&wide), Err(BuildError::LabelTooWide { label: 0x8000, .. })));
    let domain = Domain::new();
    let mut writer = super::writer(&narrow, &domain).unwrap();
    assert_eq!(writer.fib().bytes(), 32 << 20);
    assert!(writer.patch(&wide, &["10.0.0.0/8".parse().unwrap()]).is_err());
    let writer = super::writer(&wide, &domain).unwrap();
    assert_eq!((writer.fib().bytes(), writer.fib().lookup(0x0a00_0000)), (64 << 20, Label(0x8000)));
}

/// 2^15 divided /24s are as many as 15 bits can name.
#[test]
fn one_block_too_many_takes_wider_cells() {
    let prefix = |i: u32| Prefix::new(i << 8, 32).unwrap();
    let mut rib: Rib<u32> = (0..1 << 15).map(|i| (prefix(i), Label(1))).collect();
    let mut dir = Dir24::<u16>::build(&rib).unwrap();
    assert_eq!(dir.blocks(), 1 << 15);
    rib.insert(prefix(1 << 15), Label(1));
    assert!(dir.change(&rib, prefix(1 << 15), &()).is_err());
    assert!(matches!(Dir24::<u16>::build(&rib), Err(BuildError::TooLarge { .. })));
    let wide = Dir24::<u32>::build(&rib).unwrap();
    assert_eq!((wide.blocks(), loads(&wide, 1 << 23)), ((1 << 15) + 1, (Label(1), 2)));
}

#[test]
fn a_change_stores_what_changes_and_gives_blocks_back() {
    let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2)]);
    let mut dir = Dir24::<u16>::build(&rib).unwrap();
    let mut change = |text: &str, label: Option<u32>| {
        let prefix: Prefix<u32> = text.parse().unwrap();
        match label {
            Some(label) => rib.insert(prefix, Label(label)),
            None => rib.remove(prefix),
        };
        let probe = Recorder::new();
        dir.change(&rib, prefix, &probe).unwrap();
        (probe.counts().writes, dir.blocks())
    };
    assert_eq!(change("10.2.3.0/24", Some(3)), (1, 0));
    // Of the block 255 cells are new: one has the label 0, as fresh memory does.
    assert_eq!(change("10.2.3.4/32", Some(0)), (256, 1));
    assert_eq!(change("10.2.3.5/32", Some(3)), (0, 1), "what is around it says the same");
    assert_eq!(change("10.0.0.0/8", Some(4)), (65_536 - 256 - 1, 1));
    assert_eq!(change("10.2.3.4/32", None), (1, 0));
    assert_eq!(change("10.2.3.0/24", None), (256, 1), "the /32 shows");
    assert_eq!(change("10.2.3.5/32", None), (1, 0));
    assert_eq!(change("10.0.0.0/8", None), (65_536 - 256, 0));
}
