//! Tables of many VRFs over one store.

use super::*;
use crate::dxr::update::check_references;
use std::collections::HashMap;

/// A table with the lengths of a full one, /24 and /22 above all.
fn base(rng: &mut StdRng, count: usize) -> Rib<u32> {
    let lens = [24, 24, 24, 24, 24, 22, 22, 23, 21, 20, 19, 16, 18, 32];
    std::iter::repeat_with(|| {
        let first =
            rng.random_range(0x0100_0000..0xe000_0000_u32) & 0xffff_fc00 | rng.random_range(0..4) << 8;
        let len = lens[rng.random_range(0..lens.len())];
        (Prefix::new(first & u32::mask(len), len).unwrap(), Label(rng.random_range(1..150)))
    })
    .take(count)
    .collect()
}

/// A VRF's own routes.
type Own = HashMap<Prefix<u32>, Option<Label>>;

fn with_own(base: &Rib<u32>, own: &Own) -> Rib<u32> {
    let mut rib = base.clone();
    for (&prefix, label) in own {
        match label {
            Some(label) => rib.insert(prefix, *label),
            None => rib.remove(prefix),
        };
    }
    rib
}

/// Some routes more, some changed, some fewer.
fn differences(rng: &mut StdRng, base: &[Prefix<u32>], count: usize) -> Own {
    let one = |i: usize| {
        let old = base[rng.random_range(0..base.len())];
        match i % 3 {
            0 => (Prefix::new(old.first() | 0x37, 32).unwrap(), Some(Label(200))),
            1 => (old, Some(Label(201))),
            _ => (old, None),
        }
    };
    (0..count).map(one).collect()
}

fn check_vrf(writer: &DxrWriter, base: &Rib<u32>, own: &Own, sample: &[u32]) {
    let list: List = with_own(base, own).iter().collect();
    let oracle = Oracle::new(&list);
    let mut keys = edges(own.keys());
    keys.extend(sample);
    let mut out = vec![Label(u32::MAX); keys.len()];
    writer.dxr().lookup_batch(&keys, &mut out);
    for (&key, label) in keys.iter().zip(out) {
        assert_eq!(label, oracle.lookup(key), "{}", key.to_ip());
    }
}

#[test]
fn two_hundred_vrfs() {
    let mut rng = StdRng::seed_from_u64(30);
    let (vrfs, routes) = if cfg!(miri) { (3, 30) } else { (200, 6_000) };
    let base = base(&mut rng, routes);
    let prefixes: Vec<Prefix<u32>> = base.iter().map(|(p, _)| p).collect();
    let sample: Vec<u32> = prefixes.iter().step_by(20).flat_map(|p| [p.first(), p.last()]).collect();
    for name in ["dxr-d16x4r", "dxr-d12x6r"] {
        let domain = Domain::new();
        let layout = Layout::parse(name).unwrap();
        let shared = Shared::new(&DxrConfig::new(layout), &domain);
        let first = shared.writer(&base).unwrap();
        let alone = first.dxr().bytes();
        assert_eq!(shared.stats().bytes + first.dxr().own_bytes(), alone);
        let before = shared.stats().bytes;
        let mut all: Vec<(DxrWriter, Own)> = (1..vrfs)
            .map(|_| {
                let own = differences(&mut rng, &prefixes, 10);
                (shared.writer(&with_own(&base, &own)).unwrap(), own)
            })
            .collect();
        let stats = shared.stats();
        assert_eq!(stats.tables, vrfs, "all in one store");
        let own_bytes = first.dxr().own_bytes();
        let more = (stats.bytes - before) as f64 / (vrfs - 1) as f64;
        println!(
            "{name}: {routes} routes, 10 of them different: {alone} bytes alone; {vrfs} tables share {} bytes; each more has \
             {own_bytes} bytes of its own and adds {more:.0} to what is shared",
            stats.bytes
        );
        // A difference makes at most one block, and a chunk of at most some twenty ranges (here).
        assert!(more <= 10.0 * (f64::from(4 << layout.x()) + 80.0), "{more}");
        let details: HashMap<_, _> = first.dxr().details().into_iter().collect();
        assert_eq!((details["own_bytes"], details["shared_by"]), (own_bytes as f64, vrfs as f64));

        for (writer, own) in all.iter().step_by(if cfg!(miri) { 1 } else { 9 }) {
            check_vrf(writer, &base, own, &sample);
        }
        // Changes of one leave the others alone.
        let mut reader = domain.register();
        for round in 0..if cfg!(miri) { 1 } else { 20 } {
            let at = round * 7 % all.len();
            let (writer, own) = &mut all[at];
            let more = differences(&mut rng, &prefixes, 5);
            let changed: Vec<_> = more.keys().copied().collect();
            own.extend(more);
            writer.patch(&with_own(&base, own), &changed).unwrap();
            reader.quiescent();
            let (neighbour, theirs) = &all[(at + 1) % all.len()];
            check_vrf(neighbour, &base, theirs, &sample[..sample.len() / 10]);
            let (writer, own) = &all[at];
            check_vrf(writer, &base, own, &sample[..sample.len() / 10]);
        }
        check_vrf(&first, &base, &Own::new(), &sample);
        let writers: Vec<&DxrWriter> = all.iter().map(|(writer, _)| writer).chain([&first]).collect();
        check_references(&writers);
    }
}

#[test]
fn what_a_dropped_table_had_alone_is_used_again_after_the_grace_period() {
    let mut rng = StdRng::seed_from_u64(31);
    let base = base(&mut rng, if cfg!(miri) { 10 } else { 500 });
    let prefixes: Vec<Prefix<u32>> = base.iter().map(|(p, _)| p).collect();
    let own = differences(&mut rng, &prefixes, 60);
    let other = differences(&mut rng, &prefixes, 60);
    for layout in [Layout::D16X4R, Layout::D18R, Layout::parse("dxr-d16r").unwrap()] {
        let domain = Domain::new();
        let mut reader = domain.register();
        let shared = Shared::new(&DxrConfig::new(layout), &domain);
        let first = shared.writer(&base).unwrap();
        let second = shared.writer(&with_own(&base, &own)).unwrap();
        let used = shared.stats().bytes;
        // Somebody may still look into it: the writer is gone, the structure is not.
        let (fib, writer) = (second.fib(), second);
        drop(writer);
        let third = shared.writer(&with_own(&base, &other)).unwrap();
        let grown = shared.stats().bytes;
        assert!(grown > used && shared.stats().tables == 3, "{layout}");
        let list: List = with_own(&base, &own).iter().collect();
        for key in edges(own.keys()) {
            assert_eq!(fib.lookup(key), scan(&list, key), "{layout}: a structure that is still held");
        }
        drop((fib, third));
        check_references(&[&first]);
        // Until the reader reports, nothing is used again...
        let fourth = shared.writer(&with_own(&base, &own)).unwrap();
        let larger = shared.stats().bytes;
        assert!(larger > grown, "{layout}: {larger} after {grown}");
        // ... and then everything.
        reader.quiescent();
        drop(fourth);
        reader.quiescent();
        for _ in 0..4 {
            let again = shared.writer(&with_own(&base, &other)).unwrap();
            check_vrf(&again, &base, &other, &[]);
            check_references(&[&first, &again]);
            drop(again);
            reader.quiescent();
        }
        assert_eq!(shared.stats().bytes, larger, "{layout}");
        check_vrf(&first, &base, &Own::new(), &[]);
    }
}

/// Two tables that share all but a little; the one is changed, dropped and built again while readers look into the other.
#[test]
fn readers_of_one_vrf_do_not_notice_the_others() {
    let mut rng = StdRng::seed_from_u64(32);
    let base = base(&mut rng, if cfg!(miri) { 10 } else { 300 });
    let prefixes: Vec<Prefix<u32>> = base.iter().map(|(p, _)| p).collect();
    let list: List = base.iter().collect();
    let oracle = Oracle::new(&list);
    let keys = edges(prefixes.iter());
    for layout in [Layout::D16X4R, Layout::D18R] {
        let domain = Domain::new();
        let shared = Shared::new(&DxrConfig::new(layout), &domain);
        let red = shared.writer(&base).unwrap();
        let publisher = Publisher::new(&domain, red.dxr().clone());
        let (stop, looked) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (view, mut reader) = (publisher.view(), domain.register());
                let (stop, looked, keys, oracle) = (&stop, &looked, &keys, &oracle);
                scope.spawn(move || {
                    let mut out = vec![Label::NONE; keys.len()];
                    while !stop.load(Ordering::Relaxed) {
                        view.get(&reader).lookup_batch(keys, &mut out);
                        reader.quiescent();
                        for (&key, &label) in keys.iter().zip(&out) {
                            assert_eq!(label, oracle.lookup(key), "{}", key.to_ip());
                        }
                        looked.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut round = 0;
            while round < 3 || (looked.load(Ordering::Relaxed) < 20 && round < 10_000) {
                round += 1;
                let mut own = differences(&mut rng, &prefixes, 20);
                let mut blue = shared.writer(&with_own(&base, &own)).unwrap();
                for _ in 0..3 {
                    let more = differences(&mut rng, &prefixes, 20);
                    let changed: Vec<_> = more.keys().copied().collect();
                    own.extend(more);
                    if blue.patch(&with_own(&base, &own), &changed).is_err() {
                        break;
                    }
                    check_vrf(&blue, &base, &own, &[]);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(publisher);
    }
}
