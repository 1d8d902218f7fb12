//! What is asked of a LaKe, and where it lies: drawn by ratio, as the paper's figures have it, or found by caches on a log.

use super::{Config, ConfigError, in_range};
use crate::log::{Log, Op};
use crate::policy::Policy;
use crate::random::Random;
use crate::run::{HashName, Run, Ways};

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A value.
    Get,
    /// To store one: in LaKe and, written through, in the host.
    Set,
    /// To forget one; also all else that only memcached can do.
    Delete,
}

/// Where a query's key is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the shared cache, bucket and chunk.
    OnChip,
    /// In the DRAM.
    Dram,
    /// Not in LaKe.
    Nowhere,
}

/// A query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// What.
    pub ask: Ask,
    /// Where.
    pub place: Place,
}

/// The shared cache: direct-mapped, 1,024 entries (4.2.4).
pub const SHARED_ENTRIES: usize = 1024;

/// Gets, of which these parts (0 to 1) are found on the chip and in the DRAM; the rest is the host's.
///
/// # Errors
/// No parts, or more than all.
pub fn drawn(count: usize, on_chip: f64, dram: f64, seed: u64) -> Result<Vec<Query>, ConfigError> {
    in_range("part found on the chip", on_chip, 0.0, 1.0)?;
    in_range("part found in the DRAM", dram, 0.0, 1.0)?;
    // Parts such as 0.9 and 0.1 may come to a little more than one.
    in_range("parts found, together", on_chip + dram, 0.0, 1.0 + 1e-9)?;
    let mut random = Random::new(seed);
    let mut draw = || {
        let at = random.unit();
        let place = match at {
            at if at < on_chip => Place::OnChip,
            at if at < on_chip + dram => Place::Dram,
            _ => Place::Nowhere,
        };
        Query { ask: Ask::Get, place }
    };
    Ok((0..count).map(|_| draw()).collect())
}

/// A log's requests with the places where their keys are then; the first `warm` are left out. Bucket and chunk are taken to be in the shared cache together, and
/// every value in one chunk of 64 bytes: assumed. A key that was missed counts as kept from the next request on, before the host's reply can be back, and also where [`super::simulate`]
/// then loses the query: so under overload more is hit than would be. The hash table has 8 ways (4.2.3), LRU (assumed), and room for `entries` values.
///
/// # Errors
/// See [`ConfigError`].
pub fn found(
    log: &Log,
    config: &Config,
    entries: usize,
    warm: usize,
    seed: u64,
) -> Result<Vec<Query>, ConfigError> {
    let cache = |ways, capacity| {
        Run { policy: Policy::Lru, ways: Ways::Sets(ways), capacity, hash: HashName::Crc32, seed }.cache(log)
    };
    let mut table = cache(8, entries)?;
    // Without DRAM the table itself is on the chip.
    let mut shared = (config.variant.on_chip && config.variant.dram)
        .then(|| cache(1, SHARED_ENTRIES.min(entries)))
        .transpose()?;
    let mut queries = Vec::with_capacity(log.requests().len().saturating_sub(warm));
    for (i, request) in log.requests().iter().enumerate() {
        let key = request.key;
        let place = match (table.contains(key), shared.as_ref()) {
            (false, _) => Place::Nowhere,
            (true, Some(shared)) if shared.contains(key) => Place::OnChip,
            (true, None) if !config.variant.dram => Place::OnChip,
            (true, _) => Place::Dram,
        };
        let ask = match request.op() {
            Op::Get => Ask::Get,
            Op::Set => Ask::Set,
            Op::Change | Op::Delete => Ask::Delete,
        };
        if ask == Ask::Delete {
            table.remove(key);
            shared.as_mut().map(|shared| shared.remove(key));
        } else {
            if !table.get(key)
                && let Some(evicted) = table.insert(key)
            {
                shared.as_mut().map(|shared| shared.remove(evicted));
            }
            if let Some(shared) = &mut shared
                && !shared.get(key)
            {
                shared.insert(key);
            }
        }
        if i >= warm {
            queries.push(Query { ask, place });
        }
    }
    Ok(queries)
}
