//! Every structure against the linear oracle, on rule sets of every shape.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidemill_classify::suite::{Case, Shape, run_booked, run_cached, run_piped};
use tidemill_classify::{Grouping, RuleSet, TupleSpace};

fn run(shape: Shape) {
    for grouping in Grouping::ALL {
        for seed in 0..12 {
            let changes = [10, 60, 300][seed as usize % 3];
            let case = Case::random(seed, shape, grouping, changes);
            case.check().unwrap_or_else(|what| panic!("{shape:?}, seed {seed}: {what}"));
        }
    }
}

fn cached(shape: Shape) {
    for grouping in Grouping::ALL {
        for seed in 0..6 {
            run_cached(seed, shape, grouping, 300)
                .unwrap_or_else(|what| panic!("{shape:?}, seed {seed}: {what}"));
        }
    }
}

fn piped(shape: Shape) {
    for grouping in Grouping::ALL {
        for seed in 0..8 {
            run_piped(seed, shape, grouping, 300)
                .unwrap_or_else(|what| panic!("{shape:?}, seed {seed}: {what}"));
        }
    }
}

fn booked(shape: Shape) {
    for grouping in Grouping::ALL {
        for seed in 0..6 {
            run_booked(seed, shape, grouping, 150)
                .unwrap_or_else(|what| panic!("{shape:?}, seed {seed}: {what}"));
        }
    }
}

/// Cases of seeds that nobody has chosen, for so long; `TIDEMILL_SEED=N` begins with that one instead.
fn random(time: Duration) {
    let given = std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = given.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 & 0xffff_ffff_ffff
    });
    let (start, mut cases) = (Instant::now(), 0);
    'all: for seed in first.. {
        for (shape, grouping) in Shape::ALL.into_iter().flat_map(|shape| Grouping::ALL.map(|g| (shape, g))) {
            let told = |what: String| panic!("{shape:?}, {grouping:?}, TIDEMILL_SEED={seed}: {what}");
            run_piped(seed, shape, grouping, 300).unwrap_or_else(told);
            run_booked(seed, shape, grouping, 150).unwrap_or_else(told);
            run_cached(seed, shape, grouping, 300).unwrap_or_else(told);
            Case::random(seed, shape, grouping, 100).check().unwrap_or_else(told);
            cases += 4;
            if start.elapsed() > time {
                break 'all;
            }
        }
    }
    println!("{cases} cases from seed {first} on");
}

#[test]
#[ignore = "seconds: cargo test --release -p tidemill-classify --test suite -- --ignored random_for_seconds"]
fn random_for_seconds() {
    random(Duration::from_secs(20));
}

#[test]
#[ignore = "minutes: cargo test --release -p tidemill-classify --test suite -- --ignored random_for_minutes"]
fn random_for_minutes() {
    random(Duration::from_secs(300));
}

macro_rules! shapes {
    ($($name:ident: $shape:ident,)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn as_the_oracle() {
                run(Shape::$shape);
            }

            #[test]
            fn nothing_stale() {
                cached(Shape::$shape);
            }

            #[test]
            fn several_tables() {
                piped(Shape::$shape);
            }

            #[test]
            fn as_the_list() {
                booked(Shape::$shape);
            }
        }
    )*};
}

shapes! {
    acl: Acl,
    firewall: Firewall,
    chains: Chains,
    ipv6: Ipv6,
    openflow: OpenFlow,
    mixed: Mixed,
    nested: Nested,
    duplicates: Duplicates,
    ranges: Ranges,
    wildcards: Wildcards,
    masks: Masks,
}

#[test]
fn merging_makes_fewer_tables_of_many_lengths() {
    let mut rng = tidemill_classify::suite::Rng::new(3);
    let rules: Vec<_> = (0..3000).map(|_| Shape::Chains.rule(&mut rng)).collect();
    let set = RuleSet::from_list(&rules);
    let [exact, merged] = Grouping::ALL.map(|grouping| TupleSpace::build(&set, grouping).tables());
    assert!(merged * 4 < exact, "{merged} of {exact}");
    assert_eq!(Grouping::for_set(&set), Grouping::Merged);
    let few: Vec<_> =
        rules.iter().filter(|rule| rule.matches.mask() == rules[0].matches.mask()).copied().collect();
    assert_eq!(Grouping::for_set(&RuleSet::from_list(&few)), Grouping::Exact);
}
