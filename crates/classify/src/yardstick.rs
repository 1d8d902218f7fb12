//! HALO's software baseline, to be compared with: exact matches and one table for each mask, all of them DPDK's cuckoo hashing with optimistic
//! versions (ISCA 2019, sections 2.2, 3.3 and 5.2), by [`Keystore`], which [`tidemill_flow`] has for the same purpose.
//!
//! It is the layers' cost and nothing else: rules do not change, entries never go, a full table takes no more. The switch has the
//! [cache](crate::cache).

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
        let mut open: Vec<usize> = (0..n).collect();
        let (mut asked, mut hashes, mut values) = ([FlowKey([0; 8]); GROUP], [0; GROUP], [None; GROUP]);
        let mut missed = Vec::new();
        if let Some(exact) = &self.exact {
            asked.iter_mut().zip(keys).for_each(|(asked, key)| asked.0 = key.0);
            self.hasher.hash_batch(&asked[..n], &mut hashes[..n]);
            exact.get_batch(&hashes[..n], &asked[..n], &mut values[..n]);
            open.retain(|&i| take(values[i], &mut out[i]));
            missed.extend(open.iter().map(|&i| (hashes[i], asked[i], i)));
        }
        for (mask, table) in &self.tuples {
            if open.is_empty() {
                break;
            }
            let n = open.len();
            asked.iter_mut().zip(&open).for_each(|(asked, &i)| asked.0 = keys[i].masked(mask).0);
            self.hasher.hash_batch(&asked[..n], &mut hashes[..n]);
            table.get_batch(&hashes[..n], &asked[..n], &mut values[..n]);
            let mut at = 0;
            open.retain(|&i| {
                at += 1;
                take(values[at - 1], &mut out[i])
            });
        }
        for i in open {
            let (found, mask) = rules.lookup_wild(&keys[i]);
            out[i] = found;
            self.keep(&keys[i], &mask, found);
        }
        let Some(exact) = &mut self.exact else { return };
        for (hash, key, i) in missed {
            // A full table keeps what it has, and is not searched for room in vain.
            if exact.len() * 20 < exact.capacity() * 19 && exact.insert(hash, &key, out[i].0).is_err() {
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
        let masked = FlowKey(key.masked(mask).0);
        // One without room is found by the rules every time.
        let _ = self.tuples[at].1.insert(self.hasher.hash(&masked), &masked, found.0);
    }
}

/// Takes an answer, if there is one; whether there is none.
fn take(value: Option<u64>, out: &mut Rank) -> bool {
    if let Some(value) = value {
        *out = Rank(value);
    }
    value.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Rng, Shape, key};
    use crate::{Grouping, RuleSet, oracle::Oracle};

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
}
