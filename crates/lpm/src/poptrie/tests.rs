use super::*;
use crate::fib::{Fib, FibWriter};
use crate::keys::{Pattern, Random, keys};
use crate::oracle::Oracle;
use crate::prefix::Prefix;
use crate::rib::Rib;
use crate::suite::edges;
use tidemill_lookup::probe::Recorder;
use tidemill_lookup::qsbr::Domain;

fn rib<A: Address>(list: &[(&str, u32)]) -> Rib<A> {
    list.iter().map(|&(p, l)| (p.parse().unwrap_or_else(|e| panic!("{e}")), Label(l))).collect()
}

/// Every node and leaf that the root leads to, as the invariants say; returns how many there are.
fn check<A: Address>(trie: &Poptrie<A>) -> [usize; 2] {
    fn walk<A: Address>(
        trie: &Poptrie<A>,
        node: Node,
        depth: u8,
        seen: &mut [std::collections::BTreeSet<usize>; 2],
    ) {
        assert!(depth < A::BITS, "a node behind the last bit");
        assert_eq!(node.vector & node.leafvec, 0);
        assert_eq!((node.vector | node.leafvec) & 1, 1, "nothing for slot 0");
        assert!(node.children() + node.leaves() > 1, "one label everywhere");
        for leaf in 0..node.leaves() {
            assert!(seen[1].insert(node.base0 as usize + leaf), "a leaf of two nodes");
            let label = trie.leaf(node.base0 as usize + leaf);
            assert!(leaf == 0 || label != trie.leaf(node.base0 as usize + leaf - 1), "equal neighbors");
        }
        for child in 0..node.children() as u32 {
            assert!(seen[0].insert((node.base1 + child) as usize), "a node with two parents");
            walk(trie, trie.node(node.base1 + child), depth + STRIDE, seen);
        }
    }
    let mut seen = Default::default();
    for entry in trie.root.iter().map(|entry| entry.load(Ordering::Relaxed)).filter(|entry| entry & NODE != 0)
    {
        walk(trie, trie.node(entry & !NODE), trie.root_bits, &mut seen);
        assert!(seen[0].insert((entry & !NODE) as usize), "two entries for a node");
    }
    seen.map(|numbers| numbers.len())
}

#[test]
fn the_layout_is_the_one_drawn() {
    let writer =
        Writer::<u32>::new(&rib(&[("10.0.0.0/8", 1), ("10.0.32.0/22", 2)]), 18, &Domain::new()).unwrap();
    let trie = writer.trie();
    assert_eq!([trie.nodes(), trie.leaves()], [1, 3]);
    assert_eq!(trie.root[0x0a00 << 2].load(Ordering::Relaxed), NODE);
    assert_eq!(trie.root[0x0a00 << 2 | 1].load(Ordering::Relaxed), 1);
    let node = trie.node(0);
    assert_eq!((node.vector, node.leafvec), (0, 1 | 1 << 32 | 1 << 36));
    assert_eq!([0, 1, 2].map(|leaf| trie.leaf(leaf).0), [1, 2, 1]);
    assert_eq!((trie.leaf_bits(), trie.bytes()), (8, (1 << 20) + 24 + 4));
}

#[test]
fn a_lookup_reads_the_root_the_nodes_on_the_way_and_a_leaf() {
    let table = rib(&[("2001:db8::/32", 1), ("2001:db8::1/128", 2)]);
    let writer = Writer::<u128>::new(&table, 16, &Domain::new()).unwrap();
    let probe = Recorder::new();
    let key = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap();
    assert_eq!(writer.fib().lookup_probed(key.into(), &probe), Label(2));
    // 112 bits behind the root, in steps of 6.
    let counts = probe.counts();
    assert_eq!((counts.steps, counts.reads, counts.dependent_reads), (19, 21, 20));
    assert_eq!(counts.read_bytes, 4 + 19 * 24 + 4);
}

#[test]
fn leaves_are_as_wide_as_the_labels_and_a_wider_one_asks_for_a_rebuild() {
    for (label, bits) in [(255, 8), (256, 16), (65_535, 16), (65_536, 32), (LABEL_MAX, 32)] {
        let table = rib(&[("10.0.0.0/24", label), ("10.0.1.0/24", 7), ("10.0.1.9/32", label)]);
        let mut writer = Writer::<u32>::new(&table, 16, &Domain::new()).unwrap();
        assert_eq!(writer.trie().leaf_bits(), bits, "{label}");
        for (key, label) in [(0x0a00_0001, label), (0x0a00_0101, 7), (0x0a00_0109, label), (0x0a00_0201, 0)] {
            assert_eq!(writer.fib().lookup(key), Label(label));
        }
        let mut wider = table.clone();
        let prefix = "10.0.1.0/25".parse().unwrap();
        wider.insert(prefix, Label(u32::MAX));
        let error = writer.patch(&wider, &[prefix]).unwrap_err();
        assert!(
            error.what.contains(&format!("label 4294967295 of 10.0.1.0/25 does not fit leaves of {bits}")),
            "{error}"
        );
        assert!(writer.patch(&table, &[]).is_err(), "what was refused half-way stays refused");
    }
    let error = Writer::<u32>::new(&rib(&[("10.0.0.0/8", u32::MAX)]), 16, &Domain::new()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "label 4294967295 of 10.0.0.0/8 does not fit into 31 bits: choose wider labels, or a structure that has them"
    );
    assert!(Writer::<u32>::new(&Rib::new(), 25, &Domain::new()).is_err());
}

/// Flaps of a table's prefixes: the invariants hold, nothing is lost, and the answers are right.
fn flaps<A: Address>(root_bits: u8, seed: u64) {
    let mut random = Random::new(seed);
    let base: A = random.address();
    let mut table = Rib::<A>::new();
    let len = |random: &mut Random| 8 + random.below(usize::from(A::BITS) - 7) as u8;
    let prefixes: Vec<Prefix<A>> = (0..300)
        .map(|_| {
            let keep = 8 + random.below(usize::from(A::BITS) - 8) as u8;
            let addr = (base & A::mask(keep)) | (random.address::<A>() & !A::mask(keep));
            Prefix::new(addr, len(&mut random)).unwrap()
        })
        .collect();
    let domain = Domain::new();
    let mut writer = Writer::new(&table, root_bits, &domain).unwrap();
    for round in 0..if cfg!(miri) { 3 } else { 150 } {
        let mut changed: Vec<Prefix<A>> = (0..=round % 7).map(|_| prefixes[random.below(300)]).collect();
        changed.sort_unstable();
        changed.dedup();
        for &prefix in &changed {
            if random.below(3) == 0 || table.remove(prefix).is_none() {
                table.insert(prefix, Label(1 + random.below(4) as u32));
            }
        }
        writer.patch(&table, &changed).unwrap();
        assert_eq!(
            check(writer.trie()),
            [writer.trie().nodes(), writer.trie().leaves()],
            "no reader: all comes back"
        );
    }
    let list: Vec<_> = table.iter().collect();
    let (fib, oracle) = (writer.fib(), Oracle::new(&list));
    for key in prefixes.iter().copied().flat_map(edges).chain(keys(&table, Pattern::PrefixBased, 500, 1)) {
        assert_eq!(fib.lookup(key), oracle.lookup(key), "{}", key.to_ip());
    }
    let everything: Vec<Prefix<A>> = list.iter().map(|&(prefix, _)| prefix).collect();
    writer.patch(&Rib::new(), &everything).unwrap();
    assert_eq!(check(writer.trie()), [0, 0]);
    assert_eq!([writer.trie().nodes(), writer.trie().leaves()], [0, 0]);
}

#[test]
fn patches_keep_the_invariants_and_lose_no_space() {
    flaps::<u32>(12, 1);
    flaps::<u32>(18, 2);
    flaps::<u128>(16, 3);
    flaps::<u128>(13, 4);
}

#[test]
fn a_patch_writes_the_node_its_leaves_and_its_siblings() {
    let mut table =
        rib::<u32>(&[("10.0.0.0/24", 1), ("10.0.1.0/24", 2), ("10.0.0.9/32", 3), ("10.0.1.9/32", 4)]);
    let mut writer = Writer::new(&table, 18, &Domain::new()).unwrap();
    let (prefix, probe) = ("10.0.0.8/32".parse().unwrap(), Recorder::new());
    table.insert(prefix, Label(5));
    writer.patch_probed(&table, &[prefix], &probe).unwrap();
    // The node of 10.0.0.8/30 gets three leaves (5, 3, 1), and is the only child of its parent.
    let counts = probe.counts();
    assert_eq!((counts.writes, counts.written_bytes), (3 + 1 + 1, 3 * 4 + 24 + 8));
    assert_eq!(writer.fib().lookup(0x0a00_0008), Label(5));
}

#[test]
fn what_a_reader_may_see_is_not_used_again() {
    let domain = Domain::new();
    let table = rib::<u32>(&[("10.0.0.0/24", 1), ("10.0.1.0/24", 2)]);
    let mut writer = Writer::new(&table, 18, &domain).unwrap();
    let mut reader = domain.register();
    let before = writer.trie().leaves();
    let mut changed = table.clone();
    let prefix = "10.0.1.0/24".parse().unwrap();
    for label in 3..10 {
        changed.insert(prefix, Label(label));
        writer.patch(&changed, &[prefix]).unwrap();
    }
    assert_eq!(writer.trie().leaves(), 8 * before, "seven versions wait");
    reader.quiescent();
    writer.patch(&changed, &[]).unwrap();
    assert_eq!(writer.trie().leaves(), before);
}
