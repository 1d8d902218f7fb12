//! HALO's software baseline, to be compared with: exact matches and one table for each mask, all of them DPDK's cuckoo hashing with optimistic
//! versions (ISCA 2019, sections 2.2, 3.3 and 5.2), by [`Keystore`], which [`tidemill_flow`] has for the same purpose.
//!
//! It is the layers' cost and nothing else: rules do not change, entries never go, a full table takes no more and is not searched for room; nothing is
//! allocated for keys. The switch has the [cache](crate::cache).

use crate::key::{Key, Mask};
use crate::rule::Rank;
use crate::tuple::TupleSpace;
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key as FlowKey;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::{HashTable, SizeError};

/// Keys that go through the layers together.
const GROUP: usize = 32;
/// Entries of a mask's table, as in the paper (section 5.2).
pub const TUPLE: usize = 1024;
/// The most masks.
pub const MASKS: usize = 256;

/// The baseline. See the [module](self).
pub struct CuckooLayers {
    exact: Option<Keystore<8>>,
    tuples: Vec<(Mask, Keystore<8>)>,
    hasher: Keyed<8>,
}

impl std::fmt::Debug for CuckooLayers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CuckooLayers").field("tuples", &self.tuples.len()).finish_non_exhaustive()
    }
}

impl CuckooLayers {
    /// No entries; room for so many exact matches, 0 for none.
    ///
    /// # Errors
    /// A table that cannot be made.
    pub fn new(exact: usize, secret: u128) -> Result<Self, SizeError> {
        let exact = (exact > 0).then(|| Keystore::new(exact)).transpose()?;
        Ok(CuckooLayers { exact, tuples: Vec::new(), hasher: Keyed::new(secret) })
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> usize {
        let tuples: usize = self.tuples.iter().map(|(_, table)| table.bytes()).sum();
        tuples + self.exact.as_ref().map_or(0, HashTable::bytes)
    }

    /// Masks.
    pub fn masks(&self) -> usize {
        self.tuples.len()
    }

    /// The first match of each key, always by the same rules; `out` is as long as `keys`.
    pub fn classify(&mut self, rules: &TupleSpace, keys: &[Key], out: &mut [Rank]) {
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            self.group(rules, keys, out);
        }
    }

    fn group(&mut self, rules: &TupleSpace, keys: &[Key], out: &mut [Rank]) {
        let n = keys.len().min(out.len());
        // Places of the keys that nothing has decided yet.
        let (mut open, mut left): ([u8; GROUP], usize) = (std::array::from_fn(|i| i as u8), n);
        let (mut whole, mut hashes) = ([FlowKey([0; 8]); GROUP], [0; GROUP]);
        let (mut asked, mut of_asked, mut values) = ([FlowKey([0; 8]); GROUP], [0; GROUP], [None; GROUP]);
        let mut missed = 0;
        if let Some(exact) = &self.exact {
            whole.iter_mut().zip(keys).for_each(|(whole, key)| whole.0 = key.0);
            self.hasher.hash_batch(&whole[..n], &mut hashes[..n]);
            exact.get_batch(&hashes[..n], &whole[..n], &mut values[..n]);
            left = take(&values, &mut open, left, out);
            missed = bits(&open[..left]);
        }
        for (mask, table) in &self.tuples {
            if left == 0 {
                break;
            }
            let places = open[..left].iter().map(|&i| usize::from(i));
            asked.iter_mut().zip(places).for_each(|(asked, i)| asked.0 = keys[i].masked(mask).0);
            self.hasher.hash_batch(&asked[..left], &mut of_asked[..left]);
            table.get_batch(&of_asked[..left], &asked[..left], &mut values[..left]);
            left = take(&values, &mut open, left, out);
        }
        for i in open[..left].iter().map(|&i| usize::from(i)) {
            let (found, mask) = rules.lookup_wild(&keys[i]);
            out[i] = found;
            self.keep(&keys[i], &mask, found);
        }
        let Some(exact) = &mut self.exact else { return };
        for i in (0..n).filter(|i| missed >> i & 1 != 0) {
            if full(exact) || exact.insert(hashes[i], &whole[i], out[i].0).is_err() {
                break;
            }
        }
    }

    fn keep(&mut self, key: &Key, mask: &Mask, found: Rank) {
        let at = match self.tuples.iter().position(|(other, _)| other == mask) {
            Some(at) => at,
            None if self.tuples.len() < MASKS => {
                let Ok(table) = Keystore::new(TUPLE) else { return };
                self.tuples.push((*mask, table));
                self.tuples.len() - 1
            }
            None => return,
        };
        let table = &mut self.tuples[at].1;
        if !full(table) {
            let masked = FlowKey(key.masked(mask).0);
            // One without room is found by the rules every time.
            let _ = table.insert(self.hasher.hash(&masked), &masked, found.0);
        }
    }
}

/// Whether a table takes no more: it keeps what it has, and is not searched for room in vain (248 buckets).
fn full(table: &Keystore<8>) -> bool {
    table.len() * 20 >= table.capacity() * 19
}

/// Takes the answers that there are to the open keys, in their order; how many are left open.
fn take(values: &[Option<u64>; GROUP], open: &mut [u8; GROUP], left: usize, out: &mut [Rank]) -> usize {
    let mut kept = 0;
    for (at, value) in values[..left].iter().enumerate() {
        match value {
            Some(value) => out[usize::from(open[at])] = Rank(*value),
            None => {
                open[kept] = open[at];
                kept += 1;
            }
        }
    }
    kept
}

/// Places as bits.
fn bits(places: &[u8]) -> u32 {
    places.iter().fold(0, |bits, place| bits | 1 << place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Rng, Shape, key};
    use crate::{Field, Grouping, Match, Rule, RuleSet, oracle::Oracle};

    #[test]
    fn the_baseline_answers_as_the_oracle_does() {
        for (exact, shape) in
            [(0, Shape::Acl), (31, Shape::Mixed), (1000, Shape::Chains), (8, Shape::OpenFlow)]
        {
            let mut rng = Rng::new(exact as u64);
            let list: Vec<_> = (0..200).map(|_| shape.rule(&mut rng)).collect();
            let set = RuleSet::from_list(&list);
            let (space, oracle) = (TupleSpace::build(&set, Grouping::Exact), Oracle::new(&set));
            let mut layers = CuckooLayers::new(exact, 3).unwrap();
            let pool: Vec<Key> = (0..500).map(|_| key(&list, &mut rng)).collect();
            for round in 0..40 {
                let keys: Vec<Key> = (0..round * 3).map(|_| pool[rng.below(pool.len())]).collect();
                let (mut found, mut expected) = (vec![Rank(0); keys.len()], vec![Rank(0); keys.len()]);
                layers.classify(&space, &keys, &mut found);
                oracle.lookup_batch(&keys, &mut expected);
                assert_eq!(found, expected, "{shape:?}, {exact} exact matches, round {round}");
            }
            assert!(layers.masks() > 1 && layers.bytes() > 0);
        }
    }

    #[test]
    fn full_tables_keep_what_they_have() {
        let matches = Match::any().exact(Field::MacSource, 7);
        let set = RuleSet::from_list(&[Rule { matches, priority: 1 }]);
        let space = TupleSpace::build(&set, Grouping::Exact);
        let mut layers = CuckooLayers::new(500, 3).unwrap();
        let keys: Vec<Key> = (0..3000).map(|mac| Key::default().with(Field::MacSource, mac)).collect();
        let mut found = vec![Rank(0); keys.len()];
        for _ in 0..2 {
            layers.classify(&space, &keys, &mut found);
            let matched: Vec<usize> = (0..keys.len()).filter(|&i| found[i] != Rank::NONE).collect();
            assert_eq!(matched, [7]);
            // No search of the last twentieth.
            let tables = [layers.exact.as_ref().unwrap(), &layers.tuples[0].1];
            let counts = tables.map(|table| (table.len(), table.capacity()));
            assert_eq!(counts, [(479, 504), (973, 1024)]);
        }
    }
}
