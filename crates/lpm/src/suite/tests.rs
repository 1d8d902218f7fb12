//! The suite itself must find faults, and make them small.

use super::*;
use crate::prefix::Prefix;
use std::sync::Arc;

/// Answers from the RIB, except that it never sees prefixes longer than `blind`, and patches nothing at all if `deaf`. One
/// kernel of two answers 7 for the default route if `sloppy`.
struct Faulty {
    rib: Rib<u32>,
    blind: u8,
    sloppy: bool,
}

impl Fib<u32> for Faulty {
    fn lookup(&self, key: u32) -> Label {
        let seen = (0..=self.blind).rev().filter_map(|len| self.rib.get(Prefix::new(key, len)?));
        seen.take(1).next().unwrap_or(Label::NONE)
    }
    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        keys.iter().zip(out).for_each(|(&key, out)| *out = self.lookup(key));
    }
    fn lookup_batch_each(&self, keys: &[u32], each: &mut dyn FnMut(&'static str, &[Label])) {
        let mut out = vec![Label::NONE; keys.len()];
        self.lookup_batch(keys, &mut out);
        each("right", &out);
        if self.sloppy && self.rib.get(Prefix::DEFAULT).is_some() {
            out.fill(Label(7));
        }
        each("second", &out);
    }
    fn name(&self) -> String {
        "faulty".into()
    }
    fn bytes(&self) -> usize {
        0
    }
}

struct FaultyWriter {
    fib: Arc<Faulty>,
    deaf: bool,
}

impl FibWriter<u32> for FaultyWriter {
    fn fib(&self) -> Arc<dyn Fib<u32>> {
        self.fib.clone()
    }
    fn patch(&mut self, _: &Rib<u32>, _: &[Prefix<u32>]) -> Result<(), Outgrown> {
        if self.deaf { Ok(()) } else { Err(Outgrown { what: "everything".into() }) }
    }
}

fn make(blind: u8, deaf: bool) -> impl Make<u32> {
    move |rib, _| {
        Ok(Box::new(FaultyWriter { fib: Arc::new(Faulty { rib: rib.clone(), blind, sloppy: false }), deaf }))
    }
}

#[test]
fn a_right_structure_passes() {
    let stats = run_many(3, 40, make(32, false), |_| {}).unwrap();
    assert!(stats.rebuilds > 20 && stats.changes > stats.rebuilds, "{stats:?}");
    for (name, case) in edge_cases() {
        run_case(&case, &make(32, false)).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[test]
fn a_blind_structure_fails_with_one_prefix() {
    let failure = run_many(3, 200, make(24, false), |_| {}).unwrap_err();
    assert_eq!(failure.case.prefixes().count(), 1, "{failure}");
    assert!(failure.case.prefixes().all(|prefix| prefix.len() > 24), "{failure}");
    assert!(failure.to_string().contains("looked up singly after"), "{failure}");
}

#[test]
fn a_deaf_structure_fails_with_few_changes() {
    let failure = run_many(3, 200, make(32, true), |_| {}).unwrap_err();
    assert!(failure.case.prefixes().count() <= 2, "{failure}");
    assert_eq!(failure.case.batches.len(), 1, "{failure}");
}

#[test]
fn a_wrong_kernel_is_named() {
    let failure = run_many(
        3,
        200,
        |rib: &Rib<u32>, _: &Domain| {
            let fib = Arc::new(Faulty { rib: rib.clone(), blind: 32, sloppy: true });
            Ok(Box::new(FaultyWriter { fib, deaf: false }) as Box<dyn FibWriter<u32>>)
        },
        |_| {},
    )
    .unwrap_err();
    assert_eq!(failure.case.prefixes().count(), 1, "{failure}");
    assert!(failure.to_string().contains("looked up in a burst (second) after"), "{failure}");
}

#[test]
fn a_panic_is_a_failure_too() {
    let case = Case { seed: 1, table: vec![(Prefix::<u32>::DEFAULT, Label(1)); 4], batches: vec![] };
    let failure = run_case(&case, &|rib: &Rib<u32>, domain: &Domain| {
        assert!(rib.is_empty(), "on purpose");
        make(32, false)(rib, domain)
    })
    .unwrap_err();
    assert_eq!(failure.case.table.len(), 1);
    assert!(failure.to_string().starts_with("panicked: on purpose"), "{failure}");
}

#[test]
fn a_case_with_labels_that_are_refused_is_run_with_narrower_ones() {
    let wide = (Prefix::<u32>::DEFAULT, Label(1 << 30 | 7));
    let case = Case { seed: 1, table: vec![wide], batches: vec![vec![Change::Withdraw(wide.0)]] };
    let stats = run_case(&case, &|rib: &Rib<u32>, domain: &Domain| {
        crate::fib::check_labels(rib, 30)?;
        make(32, false)(rib, domain)
    })
    .unwrap();
    let plain = run_case(&case.narrowed(0xffff), &make(32, false)).unwrap();
    assert_eq!((stats.tables, stats.refused), (1, 1));
    assert!(stats.lookups > plain.lookups, "{stats:?}: the last state, too, in both");
}

/// Labels of 8 bits, and a structure that refuses one that it says it can store.
#[test]
fn a_structure_refuses_what_is_wider_than_it_says_and_no_more() {
    let run = |most: u32, width_bits: u8, label: u32| {
        let case = Case { seed: 1, table: vec![(Prefix::<u32>::DEFAULT, Label(label))], batches: vec![] };
        run_case(&case, &|rib: &Rib<u32>, domain: &Domain| match rib.iter().find(|(_, l)| l.0 > most) {
            None => make(32, false)(rib, domain),
            Some((prefix, label)) => {
                let (prefix, label) = (prefix.to_string(), label.0);
                Err(BuildError::LabelTooWide { prefix, label, width_bits })
            }
        })
    };
    assert_eq!(run(254, 8, 254).unwrap().refused, 0);
    for label in [255, 0xffff, 0x7fff_ffff] {
        let stats = run(254, 8, label).unwrap();
        assert!(stats.refused == 1 && stats.lookups > 0, "{stats:?}");
    }
    for (most, width_bits, label) in [(200, 8, 201), (254, 16, 255), (0xffff, 4, 0x1_5432), (100, 4, 965)] {
        let sound = width_bits == 4 && most == 0xffff;
        let found = run(most, width_bits, label);
        assert_eq!(found.is_ok(), sound, "{most}, {width_bits} bits, {label}");
        if let Err(failure) = found {
            assert!(matches!(failure.fault, Fault::Build { .. }), "{failure}");
        }
    }
}

/// Of a large case some prefixes are asked for after each batch, others each time, and those that change.
#[test]
fn a_fault_in_a_large_case_is_found() {
    let case = large_case::<u32>(3);
    let make = |blind: usize| {
        move |rib: &Rib<u32>, domain: &Domain| {
            let mut rib = rib.clone();
            let some: Vec<_> = rib.iter().map(|(prefix, _)| prefix).step_by(100).take(blind).collect();
            for prefix in some {
                rib.remove(prefix);
            }
            crate::binarytrie::writer(&rib, domain)
        }
    };
    let (stats, refused) = try_case(&case, &make(0)).unwrap();
    assert!(stats.states == case.batches.len() && stats.lookups > 100_000 && refused.is_none(), "{stats:?}");
    // One in a hundred is left out.
    assert!(matches!(try_case(&case, &make(usize::MAX)), Err(Fault::Wrong { batches: 0, .. })));
}

#[test]
fn large_cases_have_prefixes_of_all_kinds() {
    fn check<A: Address>(shortest: u8) {
        let case = large_case::<A>(1);
        assert_eq!((case.table.len(), case.batches.len()), (100_000, 6));
        let of = |lens: std::ops::RangeInclusive<u8>| {
            case.table.iter().filter(|(prefix, _)| lens.contains(&prefix.len())).count()
        };
        assert_eq!(of(shortest..=A::BITS), 100_000);
        assert!(of(shortest..=24) > 1_000 && of(25..=32) > 1_000 && of(A::BITS..=A::BITS) > 100);
        let mut long: Vec<A> =
            case.prefixes().filter(|p| p.len() > 48).map(|p| p.first() & A::mask(48)).collect();
        long.sort_unstable();
        long.dedup();
        assert!(long.len() <= 200, "{}", long.len());
        let rib: Rib<A> = case.table.iter().copied().collect();
        assert!(rib.len() > 50_000, "{}", rib.len());
    }
    check::<u32>(4);
    check::<u128>(16);
}
