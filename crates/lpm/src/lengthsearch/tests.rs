//! Beside the suite: what is stored, what lookups and changes touch, and that it is the same however it came about.

use super::*;
use crate::copies::Whole;
use crate::keys::Random;
use crate::prefix::Prefix;
use tidemill_lookup::probe::{Access, Recorder};

fn rib<A: Address>(prefixes: &[(&str, u32)]) -> Rib<A> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn contents<A: Address>(table: &HashTable<A>) -> Vec<(Prefix<A>, u32)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_unstable();
    all
}

/// The answer, the lengths asked for, and the buckets read.
fn asked<A: Address>(structure: &LengthSearch<A>, key: A) -> (Label, u64, usize) {
    let mut probe = Recorder::with_log();
    let label = structure.find(key, &probe);
    let steps = probe.counts().steps;
    let bucket = |access: &&Access| matches!(access, Access::Read { size: 64, dependent: true, .. });
    (label, steps, probe.take().iter().filter(bucket).count())
}

const PICTURE: [(&str, u32); 5] =
    [("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.2.0/24", 3), ("10.2.3.0/24", 4), ("20.5.6.0/24", 5)];

#[test]
fn the_picture_on_the_page() {
    let structure = LengthSearch::build(&rib::<u32>(&PICTURE)).unwrap();
    assert_eq!(structure.levels().collect::<Vec<_>>(), [8, 16, 24]);
    let words = [
        ("10.0.0.0/8", 1),
        ("10.1.0.0/16", 2 | MARKER),
        ("10.1.2.0/24", 3),
        ("10.2.0.0/16", 1 | MARKER),
        ("10.2.3.0/24", 4),
        ("20.5.0.0/16", NONE | MARKER),
        ("20.5.6.0/24", 5),
    ];
    assert_eq!(contents(&structure.table), words.map(|(prefix, word)| (prefix.parse().unwrap(), word)));
    assert_eq!((structure.markers(), structure.worst_probes()), ((2, 1), 2));
    assert_eq!(asked(&structure, 0x0a02_0909), (Label(1), 2, 2), "from the marker");
    assert_eq!(asked(&structure, 0x0a01_0909), (Label(2), 2, 2));
    assert_eq!(asked(&structure, 0x0a01_0209), (Label(3), 2, 2));
    assert_eq!(asked(&structure, 0x0a09_0909), (Label(1), 2, 2), "no /16, then /8");
    assert_eq!(asked(&structure, 0x1405_0909), (Label::NONE, 2, 2));
}

#[test]
fn a_lookup_asks_for_as_many_lengths_as_the_page_says() {
    let mut random = Random::new(3);
    for lens in [1_u8, 2, 3, 4, 7, 8, 40, 128] {
        let mut rib = Rib::<u128>::new();
        for _ in 0..2000 {
            let addr = random.address::<u128>() & (u128::mask(8) | !u128::mask(100));
            rib.insert(
                Prefix::new(addr, 128 - random.below(usize::from(lens)) as u8).unwrap(),
                Label(random.below(9) as u32),
            );
        }
        let structure = LengthSearch::build(&rib).unwrap();
        let levels = structure.levels().count();
        assert_eq!(levels, usize::from(lens));
        assert_eq!(structure.worst_probes(), ((levels + 1) as f64).log2().ceil() as u32);
        let keys = rib.iter().map(|(prefix, _)| random.within(prefix)).collect::<Vec<_>>();
        let most = keys.iter().map(|&key| asked(&structure, key).1).max();
        // Of 128 levels only the shortest takes one more than the others.
        let expected = u64::from(structure.worst_probes()) - u64::from(levels == 128);
        assert_eq!(most, Some(expected), "{levels} levels");
    }
}

/// The buckets' words that a change stores.
fn stores(structure: &mut LengthSearch<u32>, rib: &Rib<u32>, prefix: &str) -> u64 {
    let probe = Recorder::new();
    structure.change(rib, prefix.parse().unwrap(), &probe).unwrap();
    probe.counts().writes
}

#[test]
fn a_change_touches_the_markers_that_it_is_the_best_match_of() {
    let mut rib = rib::<u32>(&PICTURE);
    for i in 0..100 {
        rib.insert(Prefix::new(0x0a80_0000 | i << 8, 24).unwrap(), Label(7));
    }
    let mut structure = LengthSearch::build(&rib).unwrap();
    let change = |structure: &mut LengthSearch<u32>, rib: &mut Rib<u32>, prefix: &str, label| {
        rib.apply(&match label {
            Some(label) => crate::Change::Announce(prefix.parse().unwrap(), Label(label)),
            None => crate::Change::Withdraw(prefix.parse().unwrap()),
        });
        let count = stores(structure, rib, prefix);
        assert_eq!(
            contents(&structure.table),
            contents(&LengthSearch::over(rib, &structure.levels, &()).table)
        );
        count
    };
    // Entries have four words to store: the key, the label, the length, and perhaps the count of those gone past.
    assert_eq!(change(&mut structure, &mut rib, "10.128.7.0/24", Some(8)), 1, "a label");
    assert_eq!(change(&mut structure, &mut rib, "10.0.0.0/8", Some(9)), 3, "and 10.2/16's and 10.128/16's");
    assert!(change(&mut structure, &mut rib, "10.2.0.0/16", Some(3)) <= 2, "it was a marker");
    assert_eq!(change(&mut structure, &mut rib, "10.0.0.0/8", Some(1)), 2, "10.2/16 has its own now");
    assert_eq!(change(&mut structure, &mut rib, "0.0.0.0/0", Some(6)), 1, "no markers");
    assert!(change(&mut structure, &mut rib, "30.1.2.0/24", Some(6)) >= 6, "an entry, and a marker");
    assert!(change(&mut structure, &mut rib, "30.1.2.0/24", None) >= 2);
    assert!(change(&mut structure, &mut rib, "10.1.2.0/25", Some(6)) > 300, "a new length: all anew");
    assert!(change(&mut structure, &mut rib, "10.1.2.0/25", None) < 10);
    assert_eq!(structure.levels().collect::<Vec<_>>(), [8, 16, 24, 25], "it stays");
    assert!(change(&mut structure, &mut rib, "10.1.2.128/25", Some(6)) < 20, "so it is not new again");
}

/// Changes in any order, with the RIB ahead, lead to what a build makes.
fn changes_converge<A: Address>() {
    let (mut rib, mut random) = (Rib::<A>::new(), Random::new(11));
    let mut structure = LengthSearch::build(&rib).unwrap();
    for round in 0..600_u32 {
        let mut changed = Vec::new();
        for _ in 0..1 + random.below(8) {
            let addr = random.address::<A>() & (A::mask(5) | !A::mask(A::BITS - 5));
            let mut prefix = Prefix::new(addr, random.below(usize::from(A::BITS) + 1) as u8).unwrap();
            if random.below(4) < if round < 300 { 3 } else { 1 } {
                rib.insert(prefix, Label(random.below(20) as u32));
            } else {
                prefix = rib.inside(prefix).last().map_or(prefix, |(prefix, _)| prefix);
                rib.remove(prefix);
            }
            changed.push(prefix);
            if random.below(3) == 0 {
                // Meanwhile others have been changed, but not yet named.
                let early = changed[random.below(changed.len())];
                structure.change(&rib, early, &()).unwrap();
            }
        }
        for &prefix in changed.iter().rev() {
            structure.change(&rib, prefix, &()).unwrap();
        }
        let anew = LengthSearch::over(&rib, &structure.levels, &());
        assert_eq!(contents(&structure.table), contents(&anew.table), "round {round}");
        assert_eq!(contents(&structure.markers), contents(&anew.markers), "round {round}");
        assert_eq!(structure.default, anew.default);
    }
    let all: Vec<Prefix<A>> = rib.iter().map(|(prefix, _)| prefix).collect();
    assert!(all.len() > 10);
    for prefix in all {
        rib.remove(prefix);
        structure.change(&rib, prefix, &()).unwrap();
    }
    assert_eq!((structure.table.len(), structure.markers.len()), (0, 0));
}

#[test]
fn changes_converge_ipv4() {
    changes_converge::<u32>();
}

#[test]
fn changes_converge_ipv6() {
    changes_converge::<u128>();
}

#[test]
fn labels_of_more_than_30_bits_are_refused() {
    let mut rib = rib::<u32>(&[("10.0.0.0/8", (1 << 30) - 1)]);
    let mut structure = LengthSearch::build(&rib).unwrap();
    assert_eq!(structure.find(0x0a00_0000, &()), Label((1 << 30) - 1));
    let prefix = "10.1.0.0/16".parse().unwrap();
    rib.insert(prefix, Label(1 << 30));
    assert!(matches!(LengthSearch::build(&rib), Err(BuildError::LabelTooWide { width_bits: 30, .. })));
    assert!(structure.change(&rib, prefix, &()).is_err());
}
