//! Beside the suite: what is stored, what a lookup loads, and that withdrawals leave nothing behind.

use super::*;
use tidemill_lookup::probe::Recorder;

fn rib(prefixes: &[(&str, u32)]) -> Rib<u32> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

#[test]
fn the_picture_on_the_page() {
    let trie = BinaryTrie::build(&rib(&[("0.0.0.0/0", 1), ("128.0.0.0/2", 2)])).unwrap();
    assert_eq!(trie.nodes(), 3);
    let loads = |key: u32| {
        let probe = Recorder::new();
        (trie.find(key, &probe), probe.counts().reads)
    };
    assert_eq!(loads(0), (Label(1), 1));
    assert_eq!(loads(0x8000_0000), (Label(2), 3));
    assert_eq!(loads(0xc000_0000), (Label(1), 2));
}

#[test]
fn a_withdrawn_prefix_takes_its_nodes_along() {
    let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2)]);
    let mut trie = BinaryTrie::build(&rib).unwrap();
    let before = trie.nodes();
    for text in ["10.1.2.3/32", "10.0.0.0/15", "0.0.0.0/0", "11.0.0.0/8"] {
        let prefix = text.parse().unwrap();
        rib.insert(prefix, Label(7));
        trie.change(&rib, prefix, &()).unwrap();
        assert_eq!(trie.find(prefix.first(), &()), rib.lookup(prefix.first()).unwrap().1);
        rib.remove(prefix);
        trie.change(&rib, prefix, &()).unwrap();
        assert_eq!(trie.nodes(), before, "{text}");
    }
    for text in ["10.0.0.0/8", "10.1.0.0/16"] {
        let prefix = text.parse().unwrap();
        rib.remove(prefix);
        trie.change(&rib, prefix, &()).unwrap();
    }
    assert_eq!(trie.nodes(), 1, "the root");
}
