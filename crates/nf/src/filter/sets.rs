//! Sets of addresses: of an address the numbers of all sets that it is in, as bits, by one longest-prefix match.
//!
//! ```text
//! <bad>   10.0.0.0/8          the match        10.1.0.0/16 -> label 2 -> bits 0b11
//! <vip>   10.1.0.0/16                          10.0.0.0/8  -> label 1 -> bits 0b01
//! ```

use crate::filter::text::Network;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Algorithm, BuildError, Family, Fib, Label, Prefix, Rib, Table};

/// A set, as its owner has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressSet {
    /// IPv4.
    pub v4: BTreeSet<Prefix<u32>>,
    /// IPv6.
    pub v6: BTreeSet<Prefix<u128>>,
}

impl AddressSet {
    /// Of these.
    pub fn of(networks: &[Network]) -> Self {
        let mut set = AddressSet::default();
        networks.iter().for_each(|network| {
            set.add(*network);
        });
        set
    }

    /// Puts one in; whether it was not there.
    pub fn add(&mut self, network: Network) -> bool {
        match network {
            Network::V4(prefix) => self.v4.insert(prefix),
            Network::V6(prefix) => self.v6.insert(prefix),
        }
    }

    /// Takes one out; whether it was there.
    pub fn delete(&mut self, network: Network) -> bool {
        match network {
            Network::V4(prefix) => self.v4.remove(&prefix),
            Network::V6(prefix) => self.v6.remove(&prefix),
        }
    }

    /// Addresses and prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One family of all sets.
#[derive(Clone, Default)]
pub struct Index<A> {
    /// None: no set has an address.
    fib: Option<Arc<dyn Fib<A>>>,
    /// By label.
    bits: Box<[u64]>,
}

impl<A: Family> Index<A> {
    fn new<'a>(
        domain: &Domain,
        sets: impl Iterator<Item = &'a BTreeSet<Prefix<A>>>,
    ) -> Result<Self, BuildError> {
        let mut all: BTreeMap<Prefix<A>, u64> = BTreeMap::new();
        for (set, number) in sets.zip(0_u32..64) {
            for prefix in set {
                *all.entry(*prefix).or_default() |= 1 << number;
            }
        }
        if all.is_empty() {
            return Ok(Index { fib: None, bits: Box::new([]) });
        }
        // In order a prefix comes behind those that cover it.
        let mut above: Vec<(Prefix<A>, u64)> = Vec::new();
        let (mut labels, mut bits) = (HashMap::from([(0_u64, 0_u32)]), vec![0]);
        let mut rib = Rib::new();
        for (prefix, own) in all {
            while above.last().is_some_and(|(outer, _)| !outer.covers(prefix)) {
                above.pop();
            }
            let mask = own | above.last().map_or(0, |(_, mask)| *mask);
            above.push((prefix, mask));
            let label = *labels.entry(mask).or_insert_with(|| {
                bits.push(mask);
                bits.len() as u32 - 1
            });
            rib.insert(prefix, Label(label));
        }
        let table = Table::new(domain, rib, &Algorithm::Auto)?;
        Ok(Index { fib: Some(table.fib().clone()), bits: bits.into() })
    }

    /// The sets that an address is in.
    #[inline]
    pub(crate) fn of(&self, address: A) -> u64 {
        let label = self.fib.as_ref().map_or(Label::NONE, |fib| fib.lookup(address));
        self.bits.get(label.0 as usize).copied().unwrap_or(0)
    }

    /// The same of many; `out` is as long as `addresses`, and `labels` at least.
    pub(crate) fn of_batch(&self, addresses: &[A], labels: &mut [Label], out: &mut [u64]) {
        let Some(fib) = &self.fib else { return out.fill(0) };
        let labels = &mut labels[..addresses.len()];
        fib.lookup_batch(addresses, labels);
        for (label, out) in labels.iter().zip(out) {
            *out = self.bits.get(label.0 as usize).copied().unwrap_or(0);
        }
    }

    fn bytes(&self) -> usize {
        self.bits.len() * 8 + self.fib.as_ref().map_or(0, |fib| fib.bytes())
    }
}

/// All sets, as workers look into them.
#[derive(Clone, Default)]
pub struct Sets {
    pub(crate) v4: Index<u32>,
    pub(crate) v6: Index<u128>,
}

impl Sets {
    /// Set `n` is bit `n`.
    pub(crate) fn new<'a>(
        domain: &Domain,
        sets: impl Iterator<Item = &'a AddressSet> + Clone,
    ) -> Result<Self, BuildError> {
        Ok(Sets {
            v4: Index::new(domain, sets.clone().map(|set| &set.v4))?,
            v6: Index::new(domain, sets.map(|set| &set.v6))?,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn check<A: Family>(seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let domain = Domain::new();
        let mut address = move || {
            let low = random.random_range(0..1_u128 << 12);
            (
                A::from_u128(low << (A::BITS - 12)),
                random.random_range(0..=12_u8),
                random.random_range(0..4_usize),
            )
        };
        let mut sets: Vec<BTreeSet<Prefix<A>>> = vec![BTreeSet::new(); 4];
        for count in [0, 1, 5, 60] {
            for _ in 0..count {
                let (bits, length, set) = address();
                sets[set].extend(Prefix::new(bits, length));
            }
            let index = Index::new(&domain, sets.iter()).unwrap();
            let keys: Vec<A> = (0..500).map(|_| address().0).collect();
            let (mut labels, mut out) = (vec![Label::NONE; 500], vec![7; 500]);
            index.of_batch(&keys, &mut labels, &mut out);
            for (key, out) in keys.into_iter().zip(out) {
                let expected = sets.iter().zip(0..).fold(0_u64, |all, (set, n)| {
                    all | u64::from(set.iter().any(|prefix| prefix.contains(key))) << n
                });
                assert_eq!((index.of(key), out), (expected, expected), "{:?}", key.to_ip());
            }
        }
    }

    #[test]
    fn an_address_is_in_the_sets_that_a_walk_finds() {
        for seed in 0..6 {
            check::<u32>(seed);
            check::<u128>(seed);
        }
    }
}
