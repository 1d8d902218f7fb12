//! The keys of a run, the patterns in which they are asked for, and the checksum of the answers (bench/README.md).

use super::reference::Reference;
use super::table::Table;
use anyhow::{Context, Result};
use std::path::Path;

/// Steele, Lea and Flood's SplitMix64: small, seeded, good enough to spread keys.
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        SplitMix(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// Where keys lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Spread {
    /// Over the whole space: all of IPv4, 2000::/3 of IPv6
    Uniform,
    /// A route of the table, each equally likely, and random bits behind its prefix
    Prefix,
}

impl Spread {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Spread::Uniform => "uniform",
            Spread::Prefix => "prefix",
        }
    }
}

/// Keys for a table.
pub(crate) fn generate(table: &Table, spread: Spread, count: usize, seed: u64) -> Vec<u128> {
    let mut random = SplitMix::new(seed);
    let all = u128::MAX >> (128 - table.bits());
    (0..count)
        .map(|_| match (spread, table.family) {
            (Spread::Uniform, 4) => random.wide() & all,
            (Spread::Uniform, _) => (random.wide() >> 3) | (1 << 125),
            (Spread::Prefix, _) => {
                let route = table.routes[random.below(table.routes.len())];
                let host = all.checked_shr(u32::from(route.length)).unwrap_or(0);
                route.address | (random.wide() & host)
            }
        })
        .collect()
}

/// Writes the key file of the runners.
pub(crate) fn write(path: &Path, family: u8, keys: &[u128]) -> Result<()> {
    let mut bytes = Vec::with_capacity(keys.len() * 16);
    for key in keys {
        match family {
            4 => bytes.extend_from_slice(&(*key as u32).to_le_bytes()),
            _ => bytes.extend_from_slice(&key.to_be_bytes()),
        }
    }
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// The patterns of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    Rnd,
    Seq,
    Rep,
}

impl Pattern {
    pub(crate) const ALL: [Pattern; 3] = [Pattern::Rnd, Pattern::Seq, Pattern::Rep];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Pattern::Rnd => "rnd",
            Pattern::Seq => "seq",
            Pattern::Rep => "rep",
        }
    }

    /// The checksum that a right pass has.
    pub(crate) fn expected(self, reference: &Reference, keys: &[u128]) -> String {
        let mut previous = 0;
        let labels = (0..keys.len()).map(|j| {
            let key = match self {
                Pattern::Rnd => keys[j],
                Pattern::Seq => keys[j] ^ u128::from(previous),
                Pattern::Rep => keys[j / 8 + j % 8],
            };
            previous = reference.lookup(key);
            previous
        });
        checksum(labels.flat_map(u32::to_le_bytes))
    }
}

/// FNV-1a, 64 bits.
pub(crate) fn checksum(bytes: impl Iterator<Item = u8>) -> String {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_documented_one() {
        assert_eq!(checksum([1_u32, 2, 3].into_iter().flat_map(u32::to_le_bytes)), "fd1f0f4381eb0395");
    }

    #[test]
    fn keys_lie_where_they_should() {
        let mut table = Table { family: 0, routes: Vec::new() };
        table.add("2001:db8::/32\t1").unwrap();
        table.add("2001:db8::1/128\t2").unwrap();
        assert!(generate(&table, Spread::Uniform, 100, 1).iter().all(|key| key >> 125 == 1));
        let keys = generate(&table, Spread::Prefix, 100, 1);
        assert!(keys.iter().all(|key| key >> 96 == 0x2001_0db8));
        assert!(keys.contains(&table.routes[1].address));
        assert_eq!(keys, generate(&table, Spread::Prefix, 100, 1));
        assert_ne!(keys, generate(&table, Spread::Prefix, 100, 2));
    }
}
