//! The rule sets of the data collection with their verified first matches: the 1K and 10K sets here, all of them by `tidemill
//! classify verify --data`. Needs TIDEMILL_DATA.

#![allow(clippy::unwrap_used)]

use std::io::BufReader;
use std::path::{Path, PathBuf};
use tidemill_classify::oracle::Oracle;
use tidemill_classify::text::{Header, TextRule, in_order, read_headers, read_rules};
use tidemill_classify::{Crossed, Grouping, Rank, RuleId, RuleSet, TupleSpace};

fn data(test: &str) -> Option<PathBuf> {
    let data = std::env::var_os("TIDEMILL_DATA").map(|data| PathBuf::from(data).join("acl"));
    if data.is_none() {
        println!("skipped: {test} (TIDEMILL_DATA is not set)");
    }
    data
}

fn open(path: &Path) -> BufReader<std::io::Cursor<Vec<u8>>> {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    BufReader::new(std::io::Cursor::new(zstd::decode_all(file).unwrap()))
}

/// Set, rules, headers, of the provenance.
const SETS: [(&str, usize, usize); 9] = [
    ("wustl-acl1", 753, 8_140),
    ("wustl-fw1", 270, 2_830),
    ("wustl-ipc1", 1_550, 17_020),
    ("wustl-acl1_10K", 9_603, 97_000),
    ("wustl-fw1_10K", 9_311, 93_250),
    ("wustl-ipc1_10K", 9_037, 90_640),
    ("cbgen-acl1_100k", 99_318, 99_318),
    ("cbgen-fw1_100k", 88_978, 89_542),
    ("cbgen-ipc1_100k", 99_233, 99_233),
];

/// Those that are made into a cross-product.
const CROSSED: [&str; 5] = ["wustl-acl1", "wustl-fw1", "wustl-ipc1", "wustl-acl1_10K", "wustl-ipc1_10K"];

fn set(data: &Path, name: &str) -> (Vec<TextRule>, Vec<Header>) {
    let rules =
        read_rules(open(&data.join(format!("{name}.rules.zst")))).unwrap_or_else(|e| panic!("{name}: {e}"));
    let headers =
        read_headers(open(&data.join(format!("{name}.trace.zst")))).unwrap_or_else(|e| panic!("{name}: {e}"));
    (rules, headers)
}

#[test]
fn every_structure_finds_the_verified_first_match() {
    let Some(data) = data("every_structure_finds_the_verified_first_match") else { return };
    for (name, rules_expected, headers_expected) in SETS {
        let (rules, headers) = set(&data, name);
        assert_eq!((rules.len(), headers.len()), (rules_expected, headers_expected), "{name}");
        let rules = RuleSet::from_list(&in_order(rules.iter().map(|rule| rule.five_tuple)));
        let keys: Vec<_> = headers.iter().map(|header| header.key).collect();
        for grouping in Grouping::ALL {
            let space = TupleSpace::build(&rules, grouping);
            let mut found = vec![Rank::NONE; keys.len()];
            space.lookup_batch(&keys, &mut found);
            for (header, found) in headers.iter().zip(&found) {
                let expected =
                    header.first_match.unwrap_or_else(|| panic!("{name}: a header without first match"));
                assert_eq!(
                    found.rule(),
                    expected.map(RuleId),
                    "{name}, {}: {:?}",
                    grouping.name(),
                    header.key
                );
                if rules.len() < 2000 {
                    assert_eq!(space.lookup_wild(&header.key).0, *found);
                }
            }
        }
        let space = TupleSpace::build(&rules, Grouping::for_set(&rules));
        let crossed = Crossed::choose(&space);
        // The others have too many pairs of addresses.
        assert_eq!(crossed.is_some(), CROSSED.contains(&name), "{name}");
        if let Some(crossed) = crossed {
            crossed.check(&space).unwrap();
            let mut found = [vec![Rank::NONE; keys.len()], vec![Rank::NONE; keys.len()]];
            crossed.lookup_batch(&space, &keys, &mut found[0]);
            crossed.lookup_batch_scalar(&space, &keys, &mut found[1]);
            for (i, header) in headers.iter().enumerate() {
                let expected = header.first_match.flatten().map(RuleId);
                let answers = [found[0][i].rule(), found[1][i].rule()];
                assert_eq!(answers, [expected; 2], "{name}, crossed: {:?}", header.key);
            }
        }
        println!("{name}: {:?}", Grouping::for_set(&rules));
    }
}

#[test]
fn the_oracle_finds_the_verified_first_match() {
    let Some(data) = data("the_oracle_finds_the_verified_first_match") else { return };
    for (name, ..) in &SETS[..3] {
        let (rules, headers) = set(&data, name);
        let oracle = Oracle::new(&RuleSet::from_list(&in_order(rules.iter().map(|rule| rule.five_tuple))));
        for header in &headers {
            assert_eq!(oracle.lookup(&header.key).rule(), header.first_match.unwrap().map(RuleId), "{name}");
        }
    }
}
