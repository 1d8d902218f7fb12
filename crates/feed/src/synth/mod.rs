//! Generated tables that look like the Internet's.
//!
//! The two built-in [`Profile`]s were taken from the tables that RIPE RIS saw from AS3333 on 2026-05-11 (1,042,325 IPv4 and
//! 246,175 IPv6 prefixes); they hold counts only, no prefix. The same seed gives the same table, on every machine and in
//! every version of this crate until the profiles change.
//!
//! A table smaller than its profile's is a sample of regions (/16s, /32s) of a full one, so that lengths and nesting
//! stay; a larger one is denser.

mod generate;
mod profile;

pub use profile::{Profile, ProfileError};

use crate::labels::Labels;
use crate::table::{Counts, LoadedTable};
use tidemill_lpm::{Address, Rib};

/// What to generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynthOptions {
    /// IPv4 prefixes.
    pub v4: usize,
    /// IPv6 prefixes.
    pub v6: usize,
    /// Labels `1..=next_hops`: each origin has one, by a hash.
    pub next_hops: u32,
    /// The same seed, the same table.
    pub seed: u64,
}

impl Default for SynthOptions {
    fn default() -> Self {
        SynthOptions { v4: 1_042_000, v6: 246_000, next_hops: 148, seed: 1 }
    }
}

/// Why no table was generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SynthError {
    /// More prefixes than the used blocks have room for.
    #[error("{asked} IPv{family} prefixes do not fit: at most {most} do")]
    TooMany {
        /// 4 or 6.
        family: u8,
        /// The number asked for.
        asked: usize,
        /// The number that fits.
        most: u64,
    },
    /// No label to give.
    #[error("a table needs at least one next hop, and at most {}", Labels::DIRECT_MAX)]
    NextHops,
    /// A profile's text is wrong.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A profile of the other family.
    #[error("the profile is for IPv{0}")]
    Family(u8),
}

const V4_2026: &str = include_str!("v4-2026.profile");
const V6_2026: &str = include_str!("v6-2026.profile");

/// The built-in profile of a family, `4` or `6`.
///
/// # Errors
/// Never in a crate that passes its tests: the profiles are embedded.
pub fn internet(family: u8) -> Result<Profile, SynthError> {
    Ok(if family == 4 { V4_2026.parse()? } else { V6_2026.parse()? })
}

/// Generates both families from the built-in profiles.
///
/// # Errors
/// If the numbers do not fit.
pub fn table(options: &SynthOptions) -> Result<LoadedTable, SynthError> {
    let SynthOptions { v4, v6, next_hops, seed } = *options;
    Ok(LoadedTable {
        v4: rib(&internet(4)?, v4, next_hops, seed)?,
        v6: rib(&internet(6)?, v6, next_hops, seed)?,
        labels: Labels::numbers(next_hops),
        counts: Counts { records: (v4 + v6) as u64, routes: (v4 + v6) as u64, ..Counts::default() },
    })
}

/// Generates exactly `prefixes` prefixes like those of a profile.
///
/// # Errors
/// If they do not fit, or the profile is of the other family.
pub fn rib<A: Address>(
    profile: &Profile,
    prefixes: usize,
    next_hops: u32,
    seed: u64,
) -> Result<Rib<A>, SynthError> {
    if profile.family != A::FAMILY {
        return Err(SynthError::Family(profile.family));
    }
    if next_hops == 0 || next_hops > Labels::DIRECT_MAX {
        return Err(SynthError::NextHops);
    }
    generate::rib(profile, prefixes, next_hops, seed)
}
