//! Beside the suite: the picture, how nodes branch, what a change costs, and that withdrawals leave nothing behind.

use super::*;
use tidemill_lookup::probe::Recorder;

fn rib<A: Address>(prefixes: &[(&str, u32)]) -> Rib<A> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn loads<A: Address>(trie: &LcTrie<A>, key: A) -> (u32, u64) {
    let probe = Recorder::new();
    (Fib::lookup_probed(trie, key, &probe).0, probe.counts().reads)
}

#[test]
fn the_picture_on_the_page() {
    let trie =
        LcTrie::build(&rib::<u32>(&[("10.0.0.0/8", 1), ("10.1.0.0/18", 2), ("10.1.128.0/24", 3)])).unwrap();
    let node = trie.root[0x0a01];
    assert_eq!((node.branch, node.skip), (1, 0));
    assert_eq!(trie.parts[0x0a01].covering.1, 1);
    // Root, node, base; and what covers it.
    assert_eq!(loads(&trie, 0x0a01_0001), (2, 3));
    assert_eq!(loads(&trie, 0x0a01_8001), (3, 3));
    assert_eq!(loads(&trie, 0x0a01_4000), (1, 4));
    assert_eq!(loads(&trie, 0x0a02_0000), (1, 2));
    assert_eq!(loads(&trie, 0x0b00_0000), (0, 2));
    // 256 - 1 slots are the /8 alone; element 0 is no route.
    assert_eq!((trie.nodes(), trie.prefixes()), ((1 << 16) + 2, (255 + 2 + 1, 1)));
}

/// At least half of the slots have something in them, and two prefixes take one bit.
#[test]
fn nodes_branch_as_long_as_half_of_their_slots_are_filled() {
    let branch = |thirds: &[u32]| {
        let prefix = |&third: &u32| Prefix::new(0x0a01_0000 | third << 8, 24).unwrap();
        let rib: Rib<u32> = thirds.iter().map(|third| (prefix(third), Label(*third + 1))).collect();
        let trie = LcTrie::build(&rib).unwrap();
        for third in 0..=255 {
            let key = 0x0a01_0007 | third << 8;
            let expected = rib.lookup(key).map_or(Label::NONE, |(_, label)| label);
            assert_eq!(trie.lookup(key), expected, "{third}");
        }
        (trie.root[0x0a01].branch, trie.root[0x0a01].skip)
    };
    assert_eq!(branch(&[0, 1, 2, 3, 4, 5, 6, 7]), (4, 5), "half of 16");
    assert_eq!(branch(&[0, 2, 4, 7]), (3, 5));
    assert_eq!(branch(&[0, 3, 7]), (2, 5));
    assert_eq!(branch(&[0, 255]), (1, 0));
}

#[test]
fn a_change_of_a_label_is_one_store() {
    let mut rib =
        rib::<u32>(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.2.0/24", 3), ("10.1.3.0/24", 4)]);
    let mut trie = LcTrie::build(&rib).unwrap();
    for (text, key) in [("10.1.0.0/16", 0x0a01_0101), ("10.1.3.0/24", 0x0a01_0301)] {
        let prefix = text.parse().unwrap();
        rib.insert(prefix, Label(9));
        let probe = Recorder::new();
        trie.change(&rib, prefix, &probe).unwrap();
        assert_eq!((trie.lookup(key), probe.counts().writes), (Label(9), 1));
    }
}

/// Every length comes and goes, in both orders; in between every answer is right.
#[test]
fn withdrawals_leave_nothing_behind() {
    fn check<A: Address>() {
        let mut rib = Rib::<A>::new();
        let mut trie = LcTrie::build(&rib).unwrap();
        let empty = (trie.nodes(), trie.prefixes());
        let prefix = |len| Prefix::new(A::from_u128(u128::MAX / 3), len).unwrap();
        for reversed in [false, true] {
            for announce in [true, false] {
                for len in 0..=A::BITS {
                    let prefix = prefix(if reversed { A::BITS - len } else { len });
                    match announce {
                        true => rib.insert(prefix, Label(u32::from(len) + 1)),
                        false => rib.remove(prefix),
                    };
                    trie.change(&rib, prefix, &()).unwrap();
                    for key in [prefix.first(), prefix.last()] {
                        let expected = rib.lookup(key).map_or(Label::NONE, |(_, label)| label);
                        assert_eq!(trie.lookup(key), expected);
                    }
                }
            }
            assert_eq!((trie.nodes(), trie.prefixes()), empty);
        }
    }
    check::<u32>();
    check::<u128>();
}
