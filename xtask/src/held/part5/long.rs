//! An IPv6 table of long prefixes, and a stream of updates to it: real tables have few beyond /48, and none of them nested as deeply as
//! the structures' second tables, third levels and pivot levels are for.

use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::PathBuf;

/// /48s below which all of it is: structures that have 100 KB for each are to fit into a laptop.
const SITES: u64 = 1500;
/// Prefixes of 49 to 128 bits in each, besides a nest: prefixes of many lengths over one address.
const SCATTERED: u64 = 16;
/// Changes.
pub(super) const UPDATES: u64 = 60_000;

/// The files, which go when this does.
pub(super) struct LongRoutes {
    folder: PathBuf,
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// Any address in a /48.
    fn inside(&mut self, site: u128) -> u128 {
        site | (u128::from(self.bits()) << 64 | u128::from(self.bits())) >> 48
    }
}

fn prefix(address: u128, len: u64) -> String {
    let network = address >> (128 - len) << (128 - len);
    format!("{}/{len}", std::net::Ipv6Addr::from(network))
}

/// The table's prefixes.
fn prefixes(random: &mut Random) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..SITES {
        let site = 0x2001_u128 << 112 | u128::from(random.below(1 << 32)) << 80;
        if random.below(2) == 0 {
            all.push(prefix(site, 48));
        }
        let deep = random.inside(site);
        all.extend((49..=128).filter(|_| random.below(3) == 0).map(|len| prefix(deep, len)));
        all.extend((0..SCATTERED).map(|_| prefix(random.inside(site), 49 + random.below(80))));
    }
    all.sort_unstable();
    all.dedup();
    all
}

impl LongRoutes {
    pub(super) fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("tidemill-held-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let files = LongRoutes { folder };
        let mut random = Random(5);
        let prefixes = prefixes(&mut random);
        let (mut table, mut updates) = (String::new(), String::new());
        for prefix in &prefixes {
            writeln!(table, "{prefix}\t{}", 1 + random.below(148))?;
        }
        for i in 0..UPDATES {
            let old = &prefixes[random.below(prefixes.len() as u64) as usize];
            match i % 3 {
                0 => writeln!(updates, "W\t{old}")?,
                1 => writeln!(updates, "A\t{old}")?,
                _ => {
                    // Beside one that is there.
                    let site: std::net::Ipv6Addr = old.split('/').next().unwrap_or_default().parse()?;
                    let site = u128::from(site) >> 80 << 80;
                    writeln!(updates, "A\t{}", prefix(random.inside(site), 49 + random.below(80)))?;
                }
            }
        }
        std::fs::write(files.table(), table)?;
        std::fs::write(files.updates(), updates)?;
        Ok(files)
    }

    pub(super) fn table(&self) -> String {
        self.folder.join("long.v6.txt").to_string_lossy().into_owned()
    }

    pub(super) fn updates(&self) -> String {
        self.folder.join("long.updates.txt").to_string_lossy().into_owned()
    }
}

impl Drop for LongRoutes {
    fn drop(&mut self) {
        // Left behind in the worst case.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_long_and_nested() {
        let all = prefixes(&mut Random(5));
        let of = |text: &str| -> (u128, u32) {
            let (address, len) = text.split_once('/').unwrap();
            (u128::from(address.parse::<std::net::Ipv6Addr>().unwrap()), len.parse().unwrap())
        };
        let all: Vec<(u128, u32)> = all.iter().map(|text| of(text)).collect();
        assert!(all.len() > 50_000 && all.iter().filter(|(_, len)| *len > 64).count() > 30_000);
        let mut sites: Vec<u128> = all.iter().map(|(address, _)| address >> 80).collect();
        sites.sort_unstable();
        sites.dedup();
        assert!(sites.len() as u64 <= SITES);
        // Somewhere more than twelve prefixes cover one address: more than the filters of `sail-hybrid` answer for in the plain way.
        let covering =
            |key: u128| all.iter().filter(|(a, len)| key >> (128 - len) == a >> (128 - len)).count();
        let host = all.iter().filter(|(_, len)| *len >= 120).map(|(address, _)| *address);
        assert!(host.take(200).map(covering).max() > Some(20));
    }
}
