//! Tests of what is particular to this structure; the family's suite runs over it too.
use super::*;
use crate::fib::{Fib, FibWriter};
use crate::oracle::Oracle;
use crate::prefix::Prefix;
use crate::rib::Rib;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tidemill_lookup::qsbr::Domain;

    rib, 16, domain
)?) as _));
    Box::new(Writer::new(rib, 16, domain)?) as _
));
    rib, 12, domain
)?) as _));

#[test]
fn smoke() {
    let mut rng = StdRng::seed_from_u64(1);
    for _ in 0..200 {
        let base: u128 = rng.random();
        let mut rib = Rib::<u128>::new();
        let domain = Domain::new();
        let mut w = Writer::new(&rib, 12, &domain).unwrap();
        for _ in 0..60 {
            let keep = u128::mask(rng.random_range(0..=128));
            let p = Prefix::new((base & keep) | (rng.random::<u128>() & !keep), rng.random_range(0..=128))
                .unwrap();
            rib.insert(p, Label(rng.random_range(0..5)));
            w.patch(&rib, &[p]).unwrap();
        }
        let list: Vec<_> = rib.iter().collect();
        let oracle = Oracle::new(&list);
        let keys: Vec<u128> = oracle.intervals().flat_map(|i| [i.start, i.end]).collect();
        let mut out = vec![Label(9); keys.len()];
        for s in lookup::Search::all() {
            w.trie().burst(s, &keys, &mut out);
            for (k, o) in keys.iter().zip(&out) {
                assert_eq!(*o, oracle.lookup(*k));
                assert_eq!(*o, w.trie().lookup(*k));
            }
        }
    }
}
