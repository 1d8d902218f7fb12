//! Every layout, and every number of threads.

use super::*;
use std::num::NonZeroUsize;

/// D + X from 16 to 24 in every way.
fn every_layout() -> Vec<Layout> {
    let all = (8..=24).flat_map(|d| (0..=16).filter_map(move |x| Layout::new(d, x).ok()));
    let step = if cfg!(miri) { 17 } else { 1 };
    all.step_by(step).collect()
}

#[test]
fn every_layout_answers_and_follows_changes() {
    let layouts = every_layout();
    assert!(cfg!(miri) || layouts.len() == 9 + 80, "9 without extension table, 80 with one");
    let mut rng = StdRng::seed_from_u64(20);
    for (i, layout) in layouts.into_iter().enumerate() {
        let bits = [8, 16, 32][i % 3];
        let mut list: List =
            (0..60).map(|_| (random_prefix(&mut rng), random_label(&mut rng, bits))).collect();
        // Both ends of a chunk, and of what one slot of the direct table covers.
        for edge in
            [0x0b00_0000_u32, 0x0b00_0000 | u32::MAX >> layout.k(), 0x0b00_0000 | u32::MAX >> layout.d()]
        {
            list.push((Prefix::new(edge, 32).unwrap(), random_label(&mut rng, bits)));
        }
        let mut known: BTreeMap<_, _> = list.into_iter().collect();
        let mut rib: Rib<u32> = known.iter().map(|(&p, &l)| (p, l)).collect();
        let config = DxrConfig { label_bits: Some(bits), ..DxrConfig::new(layout) };
        let mut writer = Dxr::writer(&rib, &config, &Domain::new()).unwrap();
        for round in 0..4 {
            let list: List = known.iter().map(|(&p, &l)| (p, l)).collect();
            check(writer.dxr(), &edges(known.keys()), |key| scan(&list, key), &format!("round {round}"));
            writer.check_references();
            let mut changed: Vec<Prefix<u32>> =
                known.keys().copied().filter(|p| p.len() > 4 && rng.random_bool(0.2)).collect();
            changed.extend((0..3).map(|_| random_prefix(&mut rng)).filter(|p| p.len() > 4));
            for &prefix in &changed {
                if rng.random_bool(0.5) {
                    known.remove(&prefix);
                    rib.remove(prefix);
                } else {
                    let label = random_label(&mut rng, bits);
                    known.insert(prefix, label);
                    rib.insert(prefix, label);
                }
            }
            writer.patch(&rib, &changed).unwrap();
        }
    }
}

#[test]
fn any_number_of_threads_builds_the_same() {
    let mut rng = StdRng::seed_from_u64(21);
    for (bits, count) in [(8, 0), (8, 300), (16, 1000), (32, 300)] {
        let count = if cfg!(miri) { count / 20 } else { count };
        let mut list: List =
            (0..count).map(|_| (random_prefix(&mut rng), random_label(&mut rng, bits))).collect();
        // Much that is equal in different parts, and a label that only descriptors of some splits hold.
        list.extend((0..200).map(|i| (Prefix::new((i * 0x0140_0000) | 0x100, 24).unwrap(), Label(7))));
        list.extend(
            (0..count as u32)
                .map(|i| (Prefix::new(i << 21, 20).unwrap(), Label(9 + ((i % 5) << (bits / 2))))),
        );
        let rib: Rib<u32> = list.into_iter().collect();
        for layout in layouts() {
            let with = |threads| {
                let config =
                    DxrConfig { threads: NonZeroUsize::new(threads).unwrap(), ..DxrConfig::new(layout) };
                let writer = Dxr::writer(&rib, &config, &Domain::new()).unwrap();
                writer.check_references();
                words(writer.dxr())
            };
            let one = with(1);
            for threads in [2, 3, 16] {
                assert!(with(threads) == one, "{layout}, {bits} bits, {threads} threads");
            }
        }
    }
}

/// Distributes them over a store that is in use, too.
#[test]
fn threads_share_as_one_does() {
    let mut rng = StdRng::seed_from_u64(22);
    let list: List = (0..200).map(|_| (random_prefix(&mut rng), random_label(&mut rng, 16))).collect();
    let ribs: [Rib<u32>; 2] = [list[..150].iter().copied().collect(), list[50..].iter().copied().collect()];
    for layout in layouts() {
        let stores = [1, 4].map(|threads| {
            let config = DxrConfig { threads: NonZeroUsize::new(threads).unwrap(), ..DxrConfig::new(layout) };
            let shared = Shared::new(&config, &Domain::new());
            let writers = ribs.each_ref().map(|rib| shared.writer(rib).unwrap());
            crate::dxr::update::check_references(&[&writers[0], &writers[1]]);
            writers.map(|writer| words(writer.dxr()))
        });
        assert!(stores[0] == stores[1], "{layout}");
    }
}
