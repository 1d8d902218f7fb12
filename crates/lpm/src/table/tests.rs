//! The façade: coalescing, patches and rebuilds, errors that change nothing, and when a label may be used again.

mod default_route;

use super::*;

fn prefix(text: &str) -> Prefix<u32> {
    text.parse().unwrap()
}

fn trie() -> Algorithm {
    Algorithm::parse::<u32>("rangetrie-d16").unwrap()
}

fn announce(text: &str, label: u32) -> Change<u32> {
    Change::Announce(prefix(text), Label(label))
}

#[test]
fn the_last_change_of_a_prefix_counts() {
    let domain = Domain::new();
    let mut table = Table::new(&domain, Rib::new(), &trie()).unwrap();
    assert_eq!(table.generation(), 1);
    let changes = [
        announce("10.0.0.0/8", 1),
        announce("10.1.0.0/16", 2),
        announce("10.0.0.0/8", 3),
        Change::Withdraw(prefix("10.1.0.0/16")),
        Change::Withdraw(prefix("11.0.0.0/8")),
    ];
    let applied = table.apply(&changes).unwrap();
    assert_eq!((applied.changed, applied.how, applied.generation), (1, How::Patched, 2));
    assert_eq!((table.fib().lookup(0x0a01_0001), table.rib().len()), (Label(3), 1));
    let again = table.apply(&[announce("10.0.0.0/8", 3)]).unwrap();
    assert_eq!((again.changed, again.how, again.generation), (0, How::Unchanged, 2));
    assert_eq!(again.epoch, applied.epoch, "nothing to wait for beyond the last change");
}

#[test]
fn many_changes_rebuild_and_few_patch() {
    let domain = Domain::new();
    let mut table = Table::new(&domain, Rib::new(), &trie()).unwrap();
    let all: Vec<Change<u32>> =
        (0..20_000).map(|i| Change::Announce(Prefix::new(i << 12, 20).unwrap(), Label(i % 7))).collect();
    assert_eq!(table.apply(&all).unwrap().how, How::Rebuilt);
    assert_eq!(table.apply(&[announce("10.0.0.0/8", 9)]).unwrap().how, How::Patched);
    assert_eq!(table.fib().lookup(19_999 << 12), Label(19_999 % 7));
    let few: Rib<u32> = [(prefix("10.0.0.0/8"), Label(9))].into_iter().collect();
    let replaced = table.replace(few).unwrap();
    assert_eq!((replaced.changed, replaced.how), (20_000, How::Rebuilt));
    assert_eq!((table.fib().lookup(19_999 << 12), table.fib().lookup(0x0a00_0000)), (Label::NONE, Label(9)));
    assert_eq!(table.collect(), 0, "no reader, nothing waits");
}

#[test]
fn growth_is_answered_by_a_rebuild() {
    let domain = Domain::new();
    let mut table = Table::new(&domain, Rib::<u128>::new(), &Algorithm::Auto).unwrap();
    let mut rebuilt = 0;
    for i in 0..60_000_u128 {
        let spread = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff_ffff_ffff) << 80;
        let change = Change::Announce(Prefix::new(spread, 48).unwrap(), Label(1 + i as u32 % 3));
        rebuilt += usize::from(table.apply(&[change]).unwrap().how == How::Rebuilt);
    }
    assert!((1..20).contains(&rebuilt), "{rebuilt} rebuilds");
    for (prefix, label) in table.rib().iter() {
        assert_eq!(table.fib().lookup(prefix.last()), label);
    }
}

#[test]
fn a_table_that_cannot_be_built_changes_nothing() {
    let domain = Domain::new();
    let rib: Rib<u32> =
        [(prefix("10.0.0.0/8"), Label(1)), (prefix("10.1.0.0/16"), Label(2))].into_iter().collect();
    let mut table = Table::new(&domain, rib, &trie()).unwrap();
    let changes = [
        announce("10.0.0.0/8", 5),
        Change::Withdraw(prefix("10.1.0.0/16")),
        announce("10.2.0.0/16", u32::MAX),
    ];
    let error = table.apply(&changes).unwrap_err();
    assert!(error.to_string().contains("does not fit into 31 bits"), "{error}");
    for (addr, label) in [(0x0a00_0001, 1), (0x0a01_0001, 2), (0x0a02_0001, 1)] {
        assert_eq!(table.fib().lookup(addr), Label(label));
    }
    assert_eq!(table.rib().len(), 2);
    assert_eq!(table.rib().get(prefix("10.0.0.0/8")), Some(Label(1)));
    let wide: Rib<u32> = [(prefix("0.0.0.0/1"), Label(u32::MAX))].into_iter().collect();
    assert!(table.replace(wide).is_err());
    assert_eq!((table.rib().len(), table.fib().lookup(0x0a01_0001)), (2, Label(2)));
}

/// A structure that is patched as a copy is as before when a patch fails: it is built once, in vain, and not a second time to restore it.
#[test]
fn a_refusal_costs_one_build_where_nothing_was_touched() {
    for (name, restored) in [("sail-l8", 0), ("rangetrie-d16", 1)] {
        let algorithm = Algorithm::parse::<u32>(name).unwrap();
        let domain = Domain::new();
        let builds = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = builds.clone();
        let mut table = Table::with(&domain, Rib::new(), move |rib, domain| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            algorithm.writer(rib, domain)
        })
        .unwrap();
        table.apply(&[announce("10.0.0.0/8", 1)]).unwrap();
        let (reader, before) = (domain.register(), builds.load(std::sync::atomic::Ordering::Relaxed));
        let refused = [announce("10.0.0.0/8", 2), announce("11.0.0.0/8", u32::MAX)];
        assert!(table.apply(&refused).is_err());
        let more = builds.load(std::sync::atomic::Ordering::Relaxed) - before;
        assert_eq!((more, table.glimpsed()), (1 + restored, restored > 0), "{name}");
        assert_eq!(table.view().get(&reader).lookup(0x0a00_0001), Label(1), "{name}");
        table.apply(&[announce("11.0.0.0/8", 3), Change::Withdraw(prefix("10.0.0.0/8"))]).unwrap();
        let answers = [0x0a00_0001, 0x0b00_0001].map(|key| table.view().get(&reader).lookup(key));
        assert_eq!(answers, [Label::NONE, Label(3)], "{name}");
    }
}

/// One that undoes what it has done is not built a second time either; but somebody may have seen it.
#[test]
fn a_refusal_that_was_undone_costs_one_build() {
    let prefix = |text: &str| text.parse::<Prefix<u128>>().unwrap();
    let builds = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = builds.clone();
    let domain = Domain::new();
    let first: Rib<u128> = [(prefix("2001:db8::/32"), Label(1))].into_iter().collect();
    let mut table = Table::with(&domain, first, move |rib, domain| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Algorithm::Lulea.writer(rib, domain)
    })
    .unwrap();
    let changes = [("2001:db8::/32", 2), ("2001:db8:1::/48", 3), ("3000::/16", u32::MAX)];
    let refused = changes.map(|(text, label)| Change::Announce(prefix(text), Label(label)));
    assert!(table.apply(&refused).is_err());
    assert_eq!(builds.load(std::sync::atomic::Ordering::Relaxed), 2);
    assert!(table.glimpsed() && !table.is_broken());
    let key = prefix("2001:db8:1::/48").first();
    assert_eq!(table.fib().lookup(key), Label(1));
    assert_eq!(table.apply(&refused[..2]).unwrap().how, How::Patched);
    assert_eq!((table.fib().lookup(key), table.fib().lookup(key - 1)), (Label(3), Label(2)));
}

/// A change is refused half-way, and then there is no memory to build the table without it.
#[test]
fn what_could_not_be_restored_is_mended() {
    let domain = Domain::new();
    let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let refuses = full.clone();
    let first: Rib<u32> = [(prefix("10.0.0.0/8"), Label(1))].into_iter().collect();
    let mut table = Table::with(&domain, first, move |rib, domain| {
        if refuses.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(BuildError::Memory(std::io::Error::from(std::io::ErrorKind::OutOfMemory)));
        }
        trie().writer(rib, domain)
    })
    .unwrap();
    full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(table.apply(&[announce("10.0.0.0/8", 5), announce("11.0.0.0/8", u32::MAX)]).is_err());
    assert!(table.is_broken() && table.glimpsed());
    assert_eq!((table.rib().get(prefix("10.0.0.0/8")), table.rib().len()), (Some(Label(1)), 1));
    // While there is none, nothing is taken; the RIB stays as it is.
    assert!(!table.mend());
    assert!(table.apply(&[announce("12.0.0.0/8", 2)]).is_err() && table.rib().len() == 1);
    full.store(false, std::sync::atomic::Ordering::Relaxed);
    let applied = table.apply(&[announce("10.0.0.0/8", 1)]).unwrap();
    assert_eq!((applied.changed, applied.how, table.is_broken()), (0, How::Rebuilt, false));
    let answers = [0x0a00_0001, 0x0b00_0001, 0x0c00_0001].map(|key| table.fib().lookup(key));
    assert_eq!(answers, [Label(1), Label::NONE, Label::NONE]);
    table.apply(&[announce("12.0.0.0/8", 2)]).unwrap();
    assert_eq!(table.fib().lookup(0x0c00_0001), Label(2));
}

#[test]
fn a_label_is_free_when_every_worker_has_moved_on() {
    let domain = Domain::new();
    let mut table =
        Table::new(&domain, [(prefix("10.0.0.0/8"), Label(1))].into_iter().collect(), &trie()).unwrap();
    let (view, mut worker) = (table.view(), domain.register());
    assert_eq!(view.get(&worker).lookup(0x0a00_0001), Label(1));
    let applied = table.apply(&[Change::Withdraw(prefix("10.0.0.0/8"))]).unwrap();
    assert_eq!(applied.epoch, table.epoch());
    assert!(!domain.passed(applied.epoch), "the worker may still hold label 1");
    worker.quiescent();
    assert!(domain.passed(applied.epoch));
    assert_eq!(view.get(&worker).lookup(0x0a00_0001), Label::NONE);
    assert_eq!(view.generation(), table.generation());
}

#[test]
fn auto_keeps_what_holds_the_table_and_moves_on_from_what_does_not() {
    let domain = Domain::new();
    let mut table = Table::new(&domain, Rib::<u32>::new(), &Algorithm::Auto).unwrap();
    let first = <u32 as Family>::likely()[0];
    assert_eq!(table.fib().name(), first.to_string());
    assert!(table.why().contains("0 prefixes are too few to measure"), "{}", table.why());
    let all: Vec<Change<u32>> =
        (0..60_000).map(|i| Change::Announce(Prefix::new(i << 12, 20).unwrap(), Label(1 + i % 7))).collect();
    // Four times as large as when it was chosen, and worth a measurement, had there been a budget.
    assert_eq!(table.apply(&all).unwrap().how, How::Rebuilt);
    assert!(table.why().contains("not measured"), "{}", table.why());
    let trie = Table::new(&domain, Rib::<u32>::new(), &trie()).unwrap();
    assert_eq!(trie.why(), "", "nobody asked");

    // The trie's labels have 31 bits: the root moves to a structure that takes the label, and readers with it.
    let mut table = Table::new(&domain, Rib::<u128>::new(), &Algorithm::Auto).unwrap();
    let wide = Change::Announce("2001:db8::/32".parse().unwrap(), Label(u32::MAX));
    match table.apply(&[wide]) {
        Ok(_) => assert_eq!(table.fib().lookup(0x2001_0db8 << 96), Label(u32::MAX)),
        Err(error) => assert!(error.to_string().contains("31 bits"), "no IPv6 structure takes it: {error}"),
    }
}

#[test]
fn each_prefix_once_with_its_last_change() {
    let prefixes = ["10.0.0.0/8", "9.0.0.0/8", "10.0.0.0/8", "10.0.0.0/9", "9.0.0.0/8"].map(prefix);
    let last = last_of_each(prefixes.into_iter());
    assert_eq!(last, [(prefixes[1], 4), (prefixes[0], 2), (prefixes[3], 3)]);
}

#[test]
fn all_copies_change_together_or_not_at_all() {
    use tidemill_lookup::numa::{Copies, Node, Topology};
    let node = |id, cpu| Node { id, cpus: vec![cpu] };
    // Made up: where their memory lies does not matter here.
    let three = Topology { nodes: vec![node(0, 0), node(1, 1), node(2, 2)] };
    let copies = Copies::of(&three, &[Some(0), Some(1), Some(2)]);
    let named = ["dxr-d16x4r", "poptrie-d18", "auto"].map(|name| Algorithm::parse::<u32>(name).unwrap());
    for algorithm in named.into_iter().chain([trie()]) {
        let name = algorithm.to_string();
        let domain = Domain::new();
        let (budget, mut expected) = (Duration::ZERO, Rib::new());
        let mut table = Table::resumed(&domain, Rib::new(), &algorithm, budget, None, &copies).unwrap();
        let mut reader = domain.register();
        let mut random = 7_u64;
        for round in 0..60 {
            let mut changes = Vec::new();
            // Few, which are patched, and now and then many, which rebuild.
            for _ in 0..if round % 20 == 19 { 3000 } else { 20 } {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (address, len) = ((random >> 32) as u32 & 0x0fff_ffff, 8 + (random >> 8) as u8 % 25);
                let prefix = Prefix::new(address & (u32::MAX << (32 - len)), len).unwrap();
                changes.push(match random >> 20 & 3 {
                    0 => Change::Withdraw(prefix),
                    n => Change::Announce(prefix, Label(n as u32)),
                });
            }
            changes.iter().for_each(|change| {
                expected.apply(change);
            });
            table.apply(&changes).unwrap();
            for change in changes.iter().take(50) {
                let address = change.prefix().first();
                let want = expected.lookup(address).map_or(Label::NONE, |(_, label)| label);
                for copy in 0..3 {
                    let found = table.copy(copy).get(&reader).lookup(address);
                    assert_eq!(found, want, "{name}, round {round}: copy {copy}");
                }
            }
            reader.quiescent();
            table.collect();
        }
        let roots: Vec<_> =
            (0..3).map(|copy| Arc::as_ptr(table.copy(copy).get(&reader)).cast::<u8>()).collect();
        assert!(roots[0] != roots[1] && roots[1] != roots[2] && roots[0] != roots[2], "{name}");
    }
    // One of three that cannot be built: none has changed.
    let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let refuses = full.clone();
    let domain = Domain::new();
    let mut table = Table::with_copies(&domain, Rib::new(), &copies, move |rib, domain, copy| {
        if copy == 2 && refuses.load(std::sync::atomic::Ordering::Relaxed) {
            let (structure, what, advice) = ("one".into(), "told to".into(), "wait".into());
            return Err(BuildError::TooLarge { structure, what, advice });
        }
        trie().writer(rib, domain)
    })
    .unwrap();
    let many: Vec<Change<u32>> =
        (0..2000).map(|i| Change::Announce(Prefix::new(i << 12, 20).unwrap(), Label(5))).collect();
    full.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(table.apply(&many).is_err() && table.rib().is_empty());
    let reader = domain.register();
    assert!((0..3).all(|copy| table.copy(copy).get(&reader).lookup(5 << 12) == Label::NONE));
    full.store(false, std::sync::atomic::Ordering::Relaxed);
    table.apply(&many).unwrap();
    assert!((0..3).all(|copy| table.copy(copy).get(&reader).lookup(5 << 12) == Label(5)));
}
