//! Every structure against the linear oracle, on rule sets of every shape.

#![allow(clippy::unwrap_used)]

use tidemill_classify::suite::{Case, Shape, run_cached, run_piped};
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
