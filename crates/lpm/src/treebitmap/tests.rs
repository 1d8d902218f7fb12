//! Beside the suite: the picture, what a lookup loads at most, and that withdrawals leave nothing behind.

use super::*;
use crate::copies::Whole;
use crate::prefix::Prefix;
use tidemill_lookup::probe::Recorder;

fn rib<A: Address>(prefixes: &[(&str, u32)]) -> Rib<A> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

fn loads<A: Address, B: Bitmap>(tree: &TreeBitmap<B>, key: A) -> (u32, u64) {
    let probe = Recorder::new();
    (tree.find(key, &probe).0, probe.counts().reads)
}

#[test]
fn the_picture_on_the_page() {
    let tree = TreeBitmap::<u16>::build(&rib::<u32>(&[("10.0.0.0/8", 1), ("10.0.0.0/14", 2)])).unwrap();
    let entry = tree.root[slot(0x0a00_0000_u32)];
    let node = tree.nodes[entry.node as usize];
    assert_eq!((entry.label, node.internal, node.external), (1, 1 << 1, 0));
    assert_eq!((tree.nodes(), tree.results()), (1, 1));
    assert_eq!(loads(&tree, 0x0a00_0000_u32), (2, 3));
    assert_eq!(loads(&tree, 0x0a04_0000_u32), (1, 2));
    assert_eq!(loads(&tree, 0x0a08_0000_u32), (1, 1));
    assert_eq!(Fib::<u32>::bytes(&tree), 8 * 8192 + 12 + 4);
}

#[test]
fn the_most_loads_are_those_on_the_page() {
    fn deepest<A: Address, B: Bitmap>() -> u64 {
        let rib = [(Prefix::new(A::MAX, A::BITS).unwrap(), Label(1))].into_iter().collect();
        let (label, loads) = loads(&TreeBitmap::<B>::build(&rib).unwrap(), A::MAX);
        assert_eq!(label, 1);
        loads
    }
    assert_eq!((deepest::<u32, u16>(), deepest::<u128, u16>()), (7, 31));
    assert_eq!((deepest::<u32, u64>(), deepest::<u128, u64>()), (6, 22));
}

/// Every length comes and goes, in both orders; in between every answer is right.
#[test]
fn withdrawals_leave_nothing_behind() {
    fn check<A: Address, B: Bitmap>() {
        let mut rib = Rib::<A>::new();
        let mut tree = TreeBitmap::<B>::build(&rib).unwrap();
        let prefix = |len| Prefix::new(A::from_u128(u128::MAX / 3), len).unwrap();
        for reversed in [false, true] {
            for announce in [true, false] {
                for len in 0..=A::BITS {
                    let prefix = prefix(if reversed { A::BITS - len } else { len });
                    match announce {
                        true => rib.insert(prefix, Label(u32::from(len) + 1)),
                        false => rib.remove(prefix),
                    };
                    // The second time there is nothing to do.
                    tree.change(&rib, prefix, &()).unwrap();
                    tree.change(&rib, prefix, &()).unwrap();
                    for key in [prefix.first(), prefix.last()] {
                        let expected = rib.lookup(key).map_or(Label::NONE, |(_, label)| label);
                        assert_eq!(tree.find(key, &()), expected);
                    }
                }
            }
            assert_eq!((tree.nodes(), tree.results()), (0, 0));
        }
    }
    check::<u32, u16>();
    check::<u32, u64>();
    check::<u128, u16>();
    check::<u128, u64>();
}
