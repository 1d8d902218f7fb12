//! Beside the suite: what is stored, what a lookup loads, and that withdrawals leave nothing behind.

use super::*;
use tidemill_lookup::probe::{Access, Recorder};

fn rib(prefixes: &[(&str, u32)]) -> Rib<u32> {
    prefixes.iter().map(|&(prefix, label)| (prefix.parse().unwrap(), Label(label))).collect()
}

#[test]
fn the_picture_on_the_page() {
    let trie = TwoWayTrie::build(&rib(&[("0.0.0.0/0", 1), ("128.0.0.0/2", 2)])).unwrap();
    assert_eq!(trie.nodes[..], [Node([PREFIX, 1]), Node([2, 0]), Node([PREFIX, 0])]);
    assert_eq!(trie.table.len(), 2);
    // Nodes of the trie, and buckets of the table.
    let loads = |key: u32| {
        let mut probe = Recorder::with_log();
        let label = trie.find(key, &probe);
        let steps = probe.counts().steps;
        let log = probe.take();
        let buckets = log.iter().filter(|access| matches!(access, Access::Read { size: 64, .. })).count();
        (label, steps, buckets)
    };
    assert_eq!(loads(0), (Label(1), 1, 1));
    assert_eq!(loads(0x8000_0000), (Label(2), 3, 1));
    assert_eq!(loads(0xc000_0000), (Label(1), 2, 1), "the table is asked for one length only");
}

#[test]
fn the_table_is_not_asked_for_what_nothing_matches() {
    let trie = TwoWayTrie::build(&rib(&[("10.0.0.0/8", 1)])).unwrap();
    let probe = Recorder::new();
    assert_eq!(trie.find(0x0b00_0000, &probe), Label::NONE);
    assert_eq!((probe.counts().reads, probe.counts().read_bytes), (8, 64));
}

#[test]
fn a_withdrawn_prefix_takes_its_nodes_along() {
    let mut rib = rib(&[("10.0.0.0/8", 1), ("10.1.0.0/16", 2)]);
    let mut trie = TwoWayTrie::build(&rib).unwrap();
    let before = trie.nodes();
    assert_eq!(before, 17);
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
    assert_eq!((trie.nodes(), trie.nodes[0], trie.table.len()), (1, Node([0; 2]), 0), "the root");
}
