//! Beside the suite: the masks, the picture, every kind of chunk, loads, and that withdrawals leave nothing behind.

use super::*;
use tidemill_lookup::probe::Recorder;

fn rib(prefixes: &[(&str, u32)]) -> Rib<u32> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn loads(lulea: &Lulea97, key: u32) -> (u32, u64) {
    let probe = Recorder::new();
    (lulea.find(key, &probe).0, probe.counts().reads)
}

#[test]
fn there_are_as_many_masks_as_the_page_says() {
    let rows = Masks::new().rows();
    assert_eq!((rows.len(), rows[0], rows[676]), (677, 0, 0xfedc_ba98_7654_3210));
}

#[test]
fn the_picture_on_the_page() {
    let lulea = Lulea97::build(&rib(&[("10.0.0.0/8", 1), ("10.1.2.0/23", 2)])).unwrap();
    let chunk = lulea.slots[0x0a01];
    assert_eq!(chunk & !PLACE, CHUNK, "sparse");
    let head = &lulea.chunks[(chunk & PLACE) as usize..][..SPARSE_HEAD];
    assert_eq!(
        head.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>(),
        [8, 2, 4, 8, 16, 32, 64, 128]
    );
    assert_eq!(lulea.kinds, [1, 0, 0]);
    assert_eq!(loads(&lulea, 0x0a01_0300), (2, 6));
    assert_eq!(loads(&lulea, 0x0a01_0400), (1, 6));
    assert_eq!(loads(&lulea, 0x0a01_ff00), (1, 6));
    assert_eq!(loads(&lulea, 0x0a02_0000), (1, 4));
    // 10/8 divides 0/0 into 8 leaves beside it, and is itself divided at 10.1 into 8 and the chunk.
    assert_eq!(lulea.pointers.len(), 8 + 8 + 1);
}

/// Of k host routes in a row, each with its own label, the chunk of the last byte has k heads or some more.
#[test]
fn chunks_of_every_kind_answer_and_go() {
    let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.2.0.0/16", 2)]);
    let mut lulea = Lulea97::build(&rib).unwrap();
    let before = (lulea.pointers.clone(), lulea.codes.clone(), lulea.bases.clone());
    for (count, kinds, most) in [(1, [0, 2, 0], 10), (60, [0, 2, 0], 10), (250, [0, 1, 1], 11)] {
        let hosts: Vec<Prefix<u32>> = (0..count).map(|i| Prefix::new(0x0a02_0000 + i, 32).unwrap()).collect();
        for (&prefix, label) in hosts.iter().zip(10..) {
            rib.insert(prefix, Label(label));
            lulea.change(&rib, prefix, &()).unwrap();
        }
        assert_eq!(lulea.kinds, kinds, "{count}");
        for key in 0x0a01_fff0..0x0a02_0600 {
            assert_eq!(Some(lulea.find(key, &())), rib.lookup(key).map(|(_, label)| label), "{key:x}");
        }
        // Level 1: 4; dense: 3; very dense: 4.
        assert_eq!((0x0a02_0000..0x0a02_0200).map(|key| loads(&lulea, key).1).max(), Some(most));
        for &prefix in &hosts {
            rib.remove(prefix);
            lulea.change(&rib, prefix, &()).unwrap();
        }
        assert_eq!((lulea.kinds, lulea.chunks.used()), ([0; 3], 0));
        assert_eq!((&lulea.pointers, &lulea.codes, &lulea.bases), (&before.0, &before.1, &before.2));
    }
}

#[test]
fn a_change_inside_a_chunk_stores_one_pointer_at_level_1() {
    let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.2.0/23", 2)]);
    let mut lulea = Lulea97::build(&rib).unwrap();
    let prefix = "10.1.2.0/23".parse().unwrap();
    rib.insert(prefix, Label(3));
    let probe = Recorder::new();
    lulea.change(&rib, prefix, &probe).unwrap();
    // The chunk is written where it was.
    assert_eq!((probe.counts().writes, probe.counts().written_bytes), (1, 4 * (2 + 8)));
    rib.remove(prefix);
    lulea.change(&rib, prefix, &()).unwrap();
    assert_eq!((lulea.pointers.len(), lulea.chunks.used()), (9, 0));
}
