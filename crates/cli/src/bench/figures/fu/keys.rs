//! Keys as the paper has them.

use tidemill_lpm::keys::Random;
use tidemill_lpm::{Prefix, Rib};

/// One of so many destinations before is asked for again by every second packet of [`trace`].
const RECENT: usize = 64;
/// Addresses of a prefix that [`trace`] asks for.
const HOSTS: usize = 16;

/// For each prefix the same number of keys, all of one prefix behind those of the prefix before, in the table's order (3.5.2).
pub(super) fn in_order(rib: &Rib<u32>, count: usize, seed: u64) -> Vec<u32> {
    let prefixes: Vec<Prefix<u32>> = rib.iter().map(|(prefix, _)| prefix).collect();
    let mut random = Random::new(seed);
    let at = |i: usize| prefixes.get((i as u128 * prefixes.len() as u128 / count.max(1) as u128) as usize);
    (0..count).map(|i| at(i).map_or(0, |&prefix| random.within(prefix))).collect()
}

/// Uniform over all addresses: the paper leaves none out.
pub(super) fn random(count: usize, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.address()).collect()
}

/// In place of a router's traffic: some prefixes are asked for much more often than others (Zipf's law, exponent 1, which are drawn by the
/// seed), some hosts of a prefix too, and of two packets one goes where one of the packets just before has gone.
pub(super) fn trace(rib: &Rib<u32>, count: usize, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut prefixes: Vec<Prefix<u32>> = rib.iter().map(|(prefix, _)| prefix).collect();
    for at in 0..prefixes.len() {
        let other = at + random.below(prefixes.len() - at);
        prefixes.swap(at, other);
    }
    if prefixes.is_empty() {
        return self::random(count, seed);
    }
    let mut keys: Vec<u32> = Vec::with_capacity(count);
    for i in 0..count {
        let key = if i > 0 && random.below(2) == 0 {
            keys[i - 1 - random.below(i.min(RECENT))]
        } else {
            let prefix = prefixes[zipf(&mut random, prefixes.len())];
            // The same hosts each time.
            let host =
                Random::new(zipf(&mut random, HOSTS) as u64 ^ u64::from(prefix.first())).address::<u32>();
            prefix.first() | (host & (prefix.last() ^ prefix.first()))
        };
        keys.push(key);
    }
    keys
}

/// Below `n`; i with a probability of nearly 1 / (i + 1) over the sum of all.
fn zipf(random: &mut Random, n: usize) -> usize {
    let uniform = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
    (((n as f64 + 1.0).powf(uniform) - 1.0) as usize).min(n.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use tidemill_lpm::Label;

    fn rib() -> Rib<u32> {
        (1..=200_u32).map(|i| (Prefix::new(i << 20, 16).unwrap(), Label(i))).collect()
    }

    #[test]
    fn each_prefix_has_as_many_keys_and_its_turn() {
        let keys = in_order(&rib(), 1000, 1);
        let blocks: Vec<u32> = keys.iter().map(|key| key >> 20).collect();
        assert_eq!(blocks, (1..=200).flat_map(|i| [i; 5]).collect::<Vec<_>>());
        assert!(keys.iter().all(|&key| rib().lookup(key).is_some()));
        assert_eq!(in_order(&Rib::new(), 3, 1), [0; 3]);
    }

    #[test]
    fn a_trace_has_favourites_and_returns_to_them() {
        let keys = trace(&rib(), 20_000, 1);
        assert!(keys.iter().all(|&key| rib().lookup(key).is_some()));
        let mut count: HashMap<u32, usize> = HashMap::new();
        keys.iter().for_each(|key| *count.entry(key >> 20).or_default() += 1);
        let most = count.values().max().unwrap();
        assert!(*most > 10 * 20_000 / 200, "{most}: ten times what is even");
        assert!(count.len() > 100, "{}: nearly all are asked for", count.len());
        let again = (RECENT..keys.len()).filter(|&i| keys[i - RECENT..i].contains(&keys[i])).count();
        assert!(again > keys.len() / 2, "{again}");
        assert_eq!(trace(&Rib::new(), 5, 1), random(5, 1));
    }
}
