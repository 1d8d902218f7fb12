//! Rule sets and header traces as text: any bytes are read or refused with a message of one line; what is read is decided by every structure as
//! by the oracle, and masks hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_classify::oracle::Oracle;
use tidemill_classify::suite::{Rng, check_mask, key};
use tidemill_classify::text::{TextRule, in_order, read_headers, read_rules};
use tidemill_classify::{Grouping, Key, Rank, RuleSet, TupleSpace};

fuzz_target!(|data: &[u8]| {
    let mut keys: Vec<Key> = match read_headers(data) {
        Ok(headers) => headers.iter().take(50).map(|header| header.key).collect(),
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            Vec::new()
        }
    };
    let rules = match read_rules(data) {
        Ok(rules) => in_order(rules.iter().take(200).map(TextRule::matches)),
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            return;
        }
    };
    let set = RuleSet::from_list(&rules);
    let oracle = Oracle::new(&set);
    let mut rng = Rng::new(data.len() as u64);
    keys.extend((0..50).map(|_| key(&rules, &mut rng)));
    for grouping in Grouping::ALL {
        let space = TupleSpace::build(&set, grouping);
        space.check().unwrap_or_else(|what| panic!("{what}"));
        let mut batch = vec![Rank::NONE; keys.len()];
        space.lookup_batch(&keys, &mut batch);
        for (key, &batch) in keys.iter().zip(&batch) {
            let expected = oracle.lookup(key);
            let (wild, mask) = space.lookup_wild(key);
            assert_eq!([space.lookup(key), batch, wild], [expected; 3], "{key:?}");
            check_mask(&oracle, key, &mask, expected, &mut rng).unwrap_or_else(|what| panic!("{what}"));
        }
    }
});
