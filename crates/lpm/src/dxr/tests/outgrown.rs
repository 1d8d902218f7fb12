//! Tables that outgrow their encoding, one test for each way, under running readers: the table moves to a structure that
//! holds it, and every answer meanwhile is the old or the new one.

use super::*;
use crate::rib::Change;
use crate::table::{How, Table};

/// A table whose structures are built by `config`.
fn table(domain: &Domain, rib: Rib<u32>, config: DxrConfig) -> Table<u32> {
    let make = move |rib: &Rib<u32>, domain: &Domain| {
        Ok(Box::new(Dxr::writer(rib, &config, domain)?) as Box<dyn FibWriter<u32>>)
    };
    Table::with(domain, rib, make).unwrap()
}

/// Runs `change` while readers ask each of `keys` and get one of its answers.
fn under_readers<T>(
    domain: &Domain,
    table: &mut Table<u32>,
    keys: &[(u32, Vec<u32>)],
    change: impl FnOnce(&mut Table<u32>) -> T,
) -> T {
    let (stop, looked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (view, mut reader) = (table.view(), domain.register());
            let (stop, looked) = (&stop, &looked);
            scope.spawn(move || {
                let asked: Vec<u32> = keys.iter().map(|&(key, _)| key).collect();
                let mut out = vec![Label::NONE; asked.len()];
                while !stop.load(Ordering::Relaxed) {
                    view.get(&reader).lookup_batch(&asked, &mut out);
                    reader.quiescent();
                    for ((key, answers), label) in keys.iter().zip(&out) {
                        assert!(
                            answers.contains(&label.0),
                            "{}: {label:?}, not one of {answers:?}",
                            key.to_ip()
                        );
                    }
                    looked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        /// Stops the readers, also when this thread fails.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stop = Stop(&stop);
        // Whoever fails stops looking, so that there is no waiting for ever.
        let wait = |more: u64| {
            let until = looked.load(Ordering::Relaxed) + more;
            (0..20_000).take_while(|_| looked.load(Ordering::Relaxed) < until).for_each(|_| {
                std::thread::sleep(std::time::Duration::from_micros(100));
            });
        };
        wait(4);
        let result = change(table);
        wait(4);
        drop(stop);
        result
    })
}

fn announce(prefix: u32, len: u8, label: u32) -> Change<u32> {
    Change::Announce(Prefix::new(prefix, len).unwrap(), Label(label))
}

/// What is there now, at the first address of every prefix.
fn now(table: &Table<u32>) -> Vec<(u32, Vec<u32>)> {
    let firsts = table.rib().iter().map(|(prefix, _)| prefix.first());
    firsts.map(|key| (key, vec![table.rib().lookup(key).unwrap().1.0])).collect()
}

fn verify(table: &Table<u32>) {
    let list: List = table.rib().iter().collect();
    let oracle = Oracle::new(&list);
    let keys = edges(list.iter().map(|(p, _)| p));
    let mut out = vec![Label::NONE; keys.len()];
    table.fib().lookup_batch(&keys, &mut out);
    for (key, label) in keys.iter().zip(out) {
        assert_eq!(label, oracle.lookup(*key), "{}", key.to_ip());
    }
}

#[test]
fn a_label_over_16_bits() {
    for layout in [Layout::D18R, Layout::D16X4R] {
        let domain = Domain::new();
        let rib =
            list(&[("10.0.0.0/8", 65_535), ("10.1.2.0/24", 2), ("11.0.0.0/9", 3)]).into_iter().collect();
        let mut table = table(&domain, rib, DxrConfig::new(layout));
        let mut keys = now(&table);
        keys.push((0x0a01_0203, vec![2, 70_000, u32::MAX]));
        under_readers(&domain, &mut table, &keys, |table| {
            let wide = |label| [announce(0x0a01_0203, 32, label)];
            assert_eq!(table.apply(&wide(70_000)).unwrap().how, How::Rebuilt, "16 bits do not hold it");
            assert_eq!(table.apply(&wide(u32::MAX)).unwrap().how, How::Patched, "32 bits do");
        });
        verify(&table);
    }
    // A width that was asked for is not left: an error, and the table as before.
    let domain = Domain::new();
    let rib = list(&[("10.0.0.0/8", 1)]).into_iter().collect();
    let mut table = table(&domain, rib, DxrConfig { label_bits: Some(16), ..DxrConfig::default() });
    let keys = now(&table);
    let error = under_readers(&domain, &mut table, &keys, |table| {
        table.apply(&[announce(0x0a00_0000, 8, 70_000)]).unwrap_err().to_string()
    });
    assert_eq!(
        error,
        "label 70000 of 10.0.0.0/8 does not fit into 16 bits: choose wider labels, or a structure that has them"
    );
    verify(&table);
}

#[test]
fn a_chunk_of_more_ranges_than_the_split_counts() {
    // 3 words in each of 2^16 chunks, and room for as many more: bases take 19 bits, which leaves 12 for counts.
    let each = 0..if cfg!(miri) { 4 } else { 1 << 16 };
    let rib: Rib<u32> =
        each.map(|i| (Prefix::new(i << 16 | 0x0101, 32).unwrap(), Label(1 + i % 60_000))).collect();
    let domain = Domain::new();
    let mut table = table(&domain, rib, DxrConfig::new(Layout::parse("dxr-d16r").unwrap()));
    let bits =
        |table: &Table<u32>| table.fib().details().iter().find(|(name, _)| *name == "count_bits").unwrap().1;
    assert!(cfg!(miri) || bits(&table) == 12.0, "{}", bits(&table));
    let mut keys: Vec<_> = now(&table).into_iter().step_by(97).collect();
    keys.push((0x0002_0002, vec![0, 1]));
    under_readers(&domain, &mut table, &keys, |table| {
        let mut rebuilt = 0;
        for part in 0..if cfg!(miri) { 1 } else { 5 } {
            // Every other address, so that no two ranges merge.
            let hosts: Vec<_> =
                (0..1000).map(|i| announce(0x0002_0000 + 2 * (part * 1000 + i) + 2, 32, 1)).collect();
            rebuilt += u32::from(table.apply(&hosts).unwrap().how == How::Rebuilt);
        }
        assert!(cfg!(miri) || (1..=2).contains(&rebuilt), "{rebuilt}");
    });
    assert!(cfg!(miri) || bits(&table) > 12.0);
    verify(&table);
}

#[test]
fn more_chunks_than_there_is_room_for() {
    for layout in [Layout::D18R, Layout::D16X4R] {
        let domain = Domain::new();
        let rib = list(&[("10.0.0.0/8", 1), ("11.0.0.0/8", 2)]).into_iter().collect();
        let mut table = table(&domain, rib, DxrConfig::new(layout));
        let mut keys = now(&table);
        let host = |i: u32| 0x0a00_0000 | (i + 1).wrapping_mul(0x9e37_79b9) >> 8;
        let count = if cfg!(miri) { 20 } else { 8_000 };
        keys.extend((0..count).step_by(50).map(|i| (host(i), vec![1, 3 + i % 60_000])));
        let rebuilt = under_readers(&domain, &mut table, &keys, |table| {
            let changes: Vec<_> = (0..count).map(|i| announce(host(i), 32, 3 + i % 60_000)).collect();
            changes.chunks(500).filter(|part| table.apply(part).unwrap().how == How::Rebuilt).count()
        });
        // How often depends on when the readers let go of what is replaced.
        assert!(cfg!(miri) || rebuilt > 0);
        verify(&table);
    }
}

/// 2^16 different blocks: /20s in each /16, with two labels for each of them.
fn all_blocks_different() -> Rib<u32> {
    let count = if cfg!(miri) { 10 } else { 1 << 16 };
    let prefix = |i: u32, k: u32| Prefix::new(i << 16 | k << 12, 20).unwrap();
    (0..count)
        .flat_map(|i| [(prefix(i, 0), Label(1 + i % 256)), (prefix(i, 1), Label(1 + (i >> 8)))])
        .collect()
}

#[test]
fn a_table_with_as_many_blocks_as_there_are_numbers_is_still_patched() {
    let domain = Domain::new();
    let mut table = table(&domain, all_blocks_different(), DxrConfig::new(Layout::D16X4R));
    let blocks = table.fib().details().iter().find(|(name, _)| *name == "descriptor_bytes").unwrap().1 / 64.0;
    assert!(cfg!(miri) || blocks == 65_536.0, "{blocks}");
    let mut keys: Vec<_> = now(&table).into_iter().step_by(101).collect();
    keys.push((0x0003_2000, vec![0, 3]));
    under_readers(&domain, &mut table, &keys, |table| {
        for i in 0..if cfg!(miri) { 4 } else { 400 } {
            assert_eq!(table.apply(&[announce(i << 16 | 0x2000, 20, 3)]).unwrap().how, How::Patched);
        }
    });
    verify(&table);
}

#[test]
fn more_blocks_than_there_are_numbers() {
    let (domain, rib) = (Domain::new(), all_blocks_different());
    let shared = Shared::new(&DxrConfig::new(Layout::D16X4R), &domain);
    let mut red = Table::with(&domain, rib.clone(), shared.make()).unwrap();
    let mut blue = Table::with(&domain, rib, shared.make()).unwrap();
    assert_eq!(shared.stats().tables, 2);
    let before = shared.stats();
    // What blue changes it no longer has in common with red, and no block number is left.
    let mut keys: Vec<_> = now(&blue).into_iter().step_by(101).collect();
    keys.push((0x0003_2000, vec![0, 3]));
    let hows = under_readers(&domain, &mut blue, &keys, |blue| {
        let reds: Vec<_> = now(&red).into_iter().step_by(101).collect();
        under_readers(&domain, &mut red, &reds, |_| {
            [2, 3, 4].map(|i| blue.apply(&[announce(i << 16 | 0x2000, 20, 3)]).unwrap().how)
        })
    });
    if !cfg!(miri) {
        assert_eq!(hows, [How::Rebuilt, How::Patched, How::Patched], "in a store of its own");
        assert_eq!(shared.stats().tables, 1);
        assert!(shared.stats().bytes <= before.bytes + 1024);
    }
    // Red is alone in the old store, once nobody can look into blue's old structure any more.
    assert_eq!(blue.collect(), 0);
    assert_eq!(red.apply(&[announce(7 << 16 | 0x2000, 20, 3)]).unwrap().how, How::Patched);
    verify(&red);
    verify(&blue);
}
