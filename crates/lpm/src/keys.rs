//! Request patterns: the keys that benchmarks ask for, the same ones for the same seed on every machine.
//!
//! From Zec 2019, section 3.6 (RND, SEQ, REP) and Fu 2020, section 3.5.2 (prefix-based), with an adversarial one of
//! our own. RND, prefix-based and ADV say which keys are asked for; REP (see [`repeated`]) and SEQ say in which order: SEQ is the
//! driver's, since each of its keys is XORed with the result before. What is worst for one structure, [`worst`] asks that structure.

use crate::fib::Fib;
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use tidemill_lookup::probe::Recorder;

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Uniform over unicast space: IPv4 without 0/8, 10/8, 127/8 and 224/3 (Zec excludes multicast and reserved ranges);
    /// IPv6 within 2000::/3. Most of IPv6 is not routed, so this mostly measures misses there.
    Random,
    /// Every prefix with the same probability, then uniform inside it; the answer may be a longer prefix.
    PrefixBased,
    /// What is worst in this table: keys inside the longest prefixes (deep tries) and inside the most crowded /16 (IPv4) or
    /// /32 (IPv6) blocks (long searches), in turn.
    Adversarial,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Pattern; 3] = [Pattern::Random, Pattern::PrefixBased, Pattern::Adversarial];
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pattern::Random => "rnd",
            Pattern::PrefixBased => "prefix",
            Pattern::Adversarial => "adv",
        })
    }
}

/// A name that is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a request pattern: use rnd, prefix or adv")]
pub struct PatternError(String);

impl FromStr for Pattern {
    type Err = PatternError;
    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::ALL.into_iter().find(|p| p.to_string() == text).ok_or_else(|| PatternError(text.into()))
    }
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): tiny, and the same on
/// every machine and in every version of this program.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n` (the bias, under n / 2^64, does not matter here); 0 for `n = 0`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A uniform address.
    pub fn address<A: Address>(&mut self) -> A {
        A::from_u128(u128::from(self.bits()) << 64 | u128::from(self.bits()))
    }

    /// A uniform address inside `prefix`.
    pub fn within<A: Address>(&mut self, prefix: Prefix<A>) -> A {
        prefix.first() | (self.address::<A>() & !A::mask(prefix.len()))
    }
}

/// `count` keys of a pattern for a table. A table without prefixes gets random keys.
pub fn keys<A: Address>(rib: &Rib<A>, pattern: Pattern, count: usize, seed: u64) -> Vec<A> {
    let mut random = Random::new(seed);
    if pattern == Pattern::Random || rib.is_empty() {
        return (0..count).map(|_| unicast(&mut random)).collect();
    }
    let prefixes: Vec<Prefix<A>> = rib.iter().map(|(prefix, _)| prefix).collect();
    if pattern == Pattern::PrefixBased {
        return (0..count)
            .map(|_| {
                let prefix = prefixes[random.below(prefixes.len())];
                random.within(prefix)
            })
            .collect();
    }
    let (longest, crowded) = (longest(&prefixes), crowded(&prefixes));
    (0..count)
        .map(|i| {
            let from = if i % 2 == 0 { &longest } else { &crowded };
            let prefix = from[random.below(from.len())];
            random.within(prefix)
        })
        .collect()
}

/// So many prefixes at least make up the worst keys, where the table has them: the lines of a few would stay in the nearest cache.
const PLACES: usize = 256;

/// `count` keys that are worst for this structure: each inside one of the prefixes where a lookup makes the most loads, by the access
/// probe. Random ones of all that make as many as the worst of all, and of [`PLACES`] at least. A table without prefixes gets random keys.
pub fn worst<A: Address>(rib: &Rib<A>, fib: &dyn Fib<A>, count: usize, seed: u64) -> Vec<A> {
    if rib.is_empty() {
        return keys(rib, Pattern::Random, count, seed);
    }
    let mut random = Random::new(seed);
    let loads = |key| {
        let recorder = Recorder::new();
        fib.lookup_probed(key, &recorder);
        recorder.counts().reads
    };
    let inside = rib.iter().map(|(prefix, _)| random.within(prefix));
    let mut places: Vec<(u64, A)> = inside.map(|key| (loads(key), key)).collect();
    places.sort_by_key(|&(loads, _)| Reverse(loads));
    let most = places[0].0;
    let alike = places.partition_point(|&(loads, _)| loads == most);
    places.truncate(alike.max(PLACES));
    (0..count).map(|_| places[random.below(places.len())].1).collect()
}

/// REP's order: lookup `j` asks for `keys[j / 8 + j % 8]`, so that each key is asked for 8 times, interleaved with 7 others
/// from a window that slides over the keys. As many lookups as keys.
pub fn repeated<A: Copy>(keys: &[A]) -> Vec<A> {
    (0..keys.len()).map(|j| keys[(j / 8 + j % 8) % keys.len()]).collect()
}

fn unicast<A: Address>(random: &mut Random) -> A {
    loop {
        let addr: A = random.address();
        if A::FAMILY == 6 {
            let two = A::from_u128(1 << 125);
            return two | (addr & !A::mask(3));
        }
        let first_byte = addr.to_u128() >> (A::BITS - 8);
        if !matches!(first_byte, 0 | 10 | 127 | 224..) {
            return addr;
        }
    }
}

/// At least this many prefixes make up each half of the adversarial keys, where the table has them.
const ADVERSARIES: usize = 1024;

/// The prefixes of the greatest lengths.
fn longest<A: Address>(prefixes: &[Prefix<A>]) -> Vec<Prefix<A>> {
    let mut of_length = [0_usize; 129];
    prefixes.iter().for_each(|p| of_length[usize::from(p.len())] += 1);
    let (mut least, mut there) = (A::BITS, of_length[usize::from(A::BITS)]);
    while least > 0 && there < ADVERSARIES {
        least -= 1;
        there += of_length[usize::from(least)];
    }
    prefixes.iter().copied().filter(|p| p.len() >= least).collect()
}

/// The prefixes of the blocks that hold the most.
fn crowded<A: Address>(prefixes: &[Prefix<A>]) -> Vec<Prefix<A>> {
    let block_len = if A::FAMILY == 4 { 16 } else { 32 };
    let block = |p: &Prefix<A>| p.first() & A::mask(block_len);
    let mut blocks: Vec<&[Prefix<A>]> = prefixes.chunk_by(|a, b| block(a) == block(b)).collect();
    blocks.sort_by_key(|block| Reverse(block.len()));
    let mut chosen = Vec::new();
    for block in blocks {
        if chosen.len() >= ADVERSARIES {
            break;
        }
        chosen.extend_from_slice(block);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::Label;
    use crate::table::{Algorithm, Family};
    use tidemill_lookup::qsbr::Domain;

    #[test]
    fn the_same_seed_gives_the_same_keys() {
        // The first outputs of SplitMix64 for seed 1234567, as published with its reference code.
        let mut random = Random::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6457827717110365317, 3203168211198807973]);
        let rib: Rib<u32> = [("10.0.0.0/8", 1), ("192.0.2.0/24", 2)]
            .map(|(p, l)| (p.parse().unwrap(), Label(l)))
            .into_iter()
            .collect();
        for pattern in Pattern::ALL {
            let (a, b) = (keys(&rib, pattern, 500, 7), keys(&rib, pattern, 500, 7));
            assert_eq!(a, b);
            assert_ne!(a, keys(&rib, pattern, 500, 8));
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
            let routed = a.iter().filter(|&&k| rib.lookup(k).is_some()).count();
            match pattern {
                Pattern::Random => assert_eq!(routed, 0, "10/8 is private: {routed}"),
                _ => assert_eq!(routed, 500),
            }
        }
        assert_eq!(keys(&Rib::<u128>::new(), Pattern::Adversarial, 9, 1).iter().max().unwrap() >> 125, 1);
    }

    #[test]
    fn rep_asks_eight_times_for_each_key_in_a_window_of_eight() {
        let keys: Vec<u32> = (0..64).collect();
        let order = repeated(&keys);
        assert_eq!(order.len(), 64);
        assert_eq!(order[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(order[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(order.iter().filter(|&&k| k == 7).count(), 8);
    }

    #[test]
    fn adversarial_keys_lie_in_the_longest_prefixes_and_the_fullest_blocks() {
        let mut rib = Rib::<u32>::new();
        for i in 0..2000_u32 {
            rib.insert(Prefix::new(i << 19, 13).unwrap(), Label(1)); // everywhere
            rib.insert(Prefix::new(0x5000_0000 + (i << 5), 27).unwrap(), Label(2)); // two crowded /16
            rib.insert(Prefix::new(i << 20 | 77, 32).unwrap(), Label(3));
        }
        for (i, key) in keys(&rib, Pattern::Adversarial, 1000, 1).into_iter().enumerate() {
            let (prefix, _) = rib.lookup(key).unwrap();
            assert!(if i % 2 == 0 { prefix.len() == 32 } else { key >> 20 == 0x500 }, "{prefix}");
        }
    }

    fn worst_for<A: Family>(name: &str, rib: &Rib<A>) -> Vec<A> {
        let writer = Algorithm::parse::<A>(name).unwrap().writer(rib, &Domain::new()).unwrap();
        let keys = worst(rib, &*writer.fib(), 1000, 1);
        assert_eq!(keys.len(), 1000);
        keys
    }

    #[test]
    fn the_worst_keys_are_each_structures_own() {
        let mut rib = Rib::<u32>::new();
        for i in 0..300_u32 {
            rib.insert(Prefix::new(i << 20, 20).unwrap(), Label(1 + i % 2));
            // Of a chunk that a host route cuts Popdir searches the ranges; of others with several labels it counts bits.
            rib.insert(Prefix::new(i << 20 | 0x2_0045, 32).unwrap(), Label(3));
            rib.insert(Prefix::new(i << 20 | 0x4_0100, 24).unwrap(), Label(4));
        }
        let chunk = |key: u32| key & 0xf_e000;
        assert!(worst_for("popdir-d16x3", &rib).into_iter().all(|key| chunk(key) == 0x2_0000));
        // That one asks for /32 and /24 before; some others have a chain of colliding ones on their way.
        let shortest =
            worst_for("hash-per-length", &rib).into_iter().filter(|key| key & 0xf_f000 == 0).count();
        assert!(shortest > 600, "{shortest} of 1000 in a third of the prefixes");
        let few = rib.iter().filter(|(prefix, _)| prefix.len() < 32 || prefix.first() >> 20 < 9);
        let keys = worst_for::<u32>("popdir-d16x3", &few.collect());
        let cut = keys.iter().filter(|&&key| chunk(key) == 0x2_0000).count();
        assert!((1..200).contains(&cut), "{cut} of 1000 in nine places of 256");
        assert_eq!(worst_for::<u32>("popdir-d16x3", &Rib::new()).len(), 1000);
    }

    #[test]
    fn the_worst_of_ipv6_are_the_longest_chains() {
        let mut rib = Rib::<u128>::new();
        for i in 0..300_u128 {
            rib.insert(Prefix::new(0x2001_0db8_u128 << 96 | i << 80, 48).unwrap(), Label(1));
            rib.insert(Prefix::new(0x2001_0db9_u128 << 96 | i << 80 | 7, 128).unwrap(), Label(2));
        }
        let longest = |key| rib.lookup(key).is_some_and(|(prefix, _)| prefix.len() == 128);
        assert!(worst_for("lulea", &rib).into_iter().all(longest));
    }
}
