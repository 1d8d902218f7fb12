//! Beside the suite: what is stored, what lookups and changes touch, and that withdrawals leave nothing behind.

use super::*;
use crate::keys::Random;
use tidemill_lookup::probe::Recorder;

fn rib<A: Address>(prefixes: &[(&str, u32)]) -> Rib<A> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

#[test]
fn the_picture_on_the_page() {
    let rib = rib::<u32>(&[("10.0.0.0/8", 1), ("10.32.0.0/11", 2), ("10.48.7.0/24", 3), ("10.64.0.0/10", 4)]);
    let trie = Patricia::build(&rib).unwrap();
    assert_eq!((size_of::<Node<u32>>(), size_of::<Node<u128>>()), (20, 32));
    assert_eq!(trie.nodes(), 6);
    let loads = |key: u32| {
        let probe = Recorder::new();
        (trie.find(key, &probe), probe.counts().reads, probe.counts().dependent_reads)
    };
    assert_eq!(loads(0x8000_0000), (Label::NONE, 1, 0), "no child");
    assert_eq!(loads(0x0b00_0000), (Label::NONE, 2, 1), "seen at the node that is skipped to");
    assert_eq!(loads(0x0a30_0701), (Label(3), 5, 4));
    assert_eq!(loads(0x0a30_0801), (Label(2), 5, 4));
    assert_eq!(loads(0x0a40_0000), (Label(4), 4, 3));
    assert_eq!(loads(0x0a80_0000), (Label(1), 2, 1));
}

/// Every node is needed (invariant 1), lies below its parent (2), and is reached once or free (3).
fn check<A: Address>(trie: &Patricia<A>, rib: &Rib<A>) {
    let mut seen = vec![false; trie.nodes.len()];
    trie.free.iter().for_each(|&at| assert!(!std::mem::replace(&mut seen[at as usize], true)));
    let (mut open, mut prefixes) = (vec![0], 0);
    while let Some(at) = open.pop() {
        assert!(!std::mem::replace(&mut seen[at as usize], true), "node {at}");
        let node = &trie.nodes[at as usize];
        let own = Prefix::new(node.first, node.len).unwrap();
        assert_eq!(rib.get(own).map_or(UNSET, |label| label.0), node.label, "{own}");
        prefixes += usize::from(node.label != UNSET);
        assert!(at == 0 || node.label != UNSET || node.children.iter().all(|&child| child != 0), "{own}");
        for side in 0..2 {
            let child = node.children[side];
            if child != 0 {
                let below = &trie.nodes[child as usize];
                assert!(below.len > node.len && node.contains(below.first), "{own}");
                assert_eq!(node.side(below.first), side, "{own}");
                open.push(child);
            }
        }
    }
    assert_eq!(prefixes, rib.len());
    assert!(seen.iter().all(|&seen| seen), "a node is lost");
    assert!(trie.nodes() <= 2 * rib.len() + 1);
}

fn nodes_come_and_go<A: Address>() {
    let (mut rib, mut random) = (Rib::<A>::new(), Random::new(7));
    let mut trie = Patricia::build(&rib).unwrap();
    for round in 0..3000_u32 {
        // Few addresses, so that prefixes nest and part everywhere.
        let addr = random.address::<A>() & (A::mask(4) | !A::mask(A::BITS - 4));
        let prefix = Prefix::new(addr, random.below(usize::from(A::BITS) + 1) as u8).unwrap();
        // Grow, then shrink.
        if random.below(4) < if round < 1500 { 3 } else { 1 } {
            rib.insert(prefix, Label(round));
        } else {
            let inside = rib.inside(prefix).last().map_or(prefix, |(prefix, _)| prefix);
            rib.remove(inside);
            trie.change(&rib, inside, &()).unwrap();
        }
        let probe = Recorder::new();
        trie.change(&rib, prefix, &probe).unwrap();
        assert!(probe.counts().writes <= 3, "two nodes and a link, or a label and two links");
        if round % 50 == 0 {
            check(&trie, &rib);
        }
    }
    check(&trie, &rib);
    let all: Vec<Prefix<A>> = rib.iter().map(|(prefix, _)| prefix).collect();
    assert!(all.len() > 10);
    for prefix in all {
        rib.remove(prefix);
        trie.change(&rib, prefix, &()).unwrap();
    }
    assert_eq!(trie.nodes(), 1, "the root");
    check(&trie, &rib);
}

#[test]
fn nodes_come_and_go_ipv4() {
    nodes_come_and_go::<u32>();
}

#[test]
fn nodes_come_and_go_ipv6() {
    nodes_come_and_go::<u128>();
}
