//! A small model of a cache hierarchy, fed by a [`Probe`].
//!
//! Each level is set-associative with true LRU. An access looks into level 1, then 2, and so on; every level that
//! missed is filled. Levels neither exclude nor invalidate each other, nothing is prefetched, stores allocate like
//! loads, addresses are taken as physical. That is enough to compare structures and sizes, not to predict a clock.
//!
//! ```text
//! L1 48 KB 12-way, 64 sets:   set = (address / 64) % 64    ways, most recent first: [ line | line | ... ]
//! ```

use crate::probe::Probe;
use std::cell::RefCell;

/// One level's geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelConfig {
    /// Capacity in bytes: a multiple of `ways * line_bytes`.
    pub size_bytes: usize,
    /// Lines per set.
    pub ways: usize,
}

/// A hierarchy's geometry. The default is 48 KB 12-way, 2 MB 16-way and 16 MB 16-way, with 64-byte lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bytes per line, a power of two; the same in all levels.
    pub line_bytes: usize,
    /// From the level next to the core outwards.
    pub levels: Vec<LevelConfig>,
}

impl Default for CacheConfig {
    fn default() -> Self {
        let level = |size_bytes, ways| LevelConfig { size_bytes, ways };
        CacheConfig {
            line_bytes: 64,
            levels: vec![level(48 << 10, 12), level(2 << 20, 16), level(16 << 20, 16)],
        }
    }
}

/// A geometry that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The line size.
    #[error("a cache line of {0} bytes is not possible: a power of two is")]
    Line(usize),
    /// A level.
    #[error(
        "cache level {level}: {size_bytes} bytes are not a multiple of {ways} ways of {line_bytes} bytes"
    )]
    Level {
        /// Counted from 1.
        level: usize,
        /// As configured.
        size_bytes: usize,
        /// As configured.
        ways: usize,
        /// As configured.
        line_bytes: usize,
    },
}

/// What a level saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// Lines found.
    pub hits: u64,
    /// Lines not found, and filled.
    pub misses: u64,
}

#[derive(Debug)]
struct Level {
    /// `sets * ways` line numbers, each set ordered from most to least recently used.
    lines: Vec<u64>,
    ways: usize,
    sets: u64,
    stats: LevelStats,
}

const EMPTY: u64 = u64::MAX;

impl Level {
    fn access(&mut self, line: u64) -> bool {
        let first = (line % self.sets) as usize * self.ways;
        let set = &mut self.lines[first..first + self.ways];
        let found = set.iter().position(|&l| l == line);
        // Rotating brings the line to the front; on a miss the least recently used one comes there, and goes.
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = line;
        match found {
            Some(_) => self.stats.hits += 1,
            None => self.stats.misses += 1,
        }
        found.is_some()
    }
}

/// A modelled cache hierarchy with its contents and statistics.
#[derive(Debug)]
pub struct Hierarchy {
    levels: Vec<Level>,
    line_shift: u32,
}

impl Hierarchy {
    /// An empty hierarchy.
    ///
    /// # Errors
    /// If a size is not a whole number of sets.
    pub fn new(config: &CacheConfig) -> Result<Self, CacheError> {
        let line_bytes = config.line_bytes;
        if !line_bytes.is_power_of_two() {
            return Err(CacheError::Line(line_bytes));
        }
        let level = |(i, &LevelConfig { size_bytes, ways }): (usize, &LevelConfig)| {
            let set_bytes = ways.checked_mul(line_bytes).filter(|&b| b > 0 && size_bytes > 0);
            match set_bytes.filter(|&b| size_bytes.is_multiple_of(b)) {
                Some(set_bytes) => Ok(Level {
                    lines: vec![EMPTY; size_bytes / line_bytes],
                    ways,
                    sets: (size_bytes / set_bytes) as u64,
                    stats: LevelStats::default(),
                }),
                None => Err(CacheError::Level { level: i + 1, size_bytes, ways, line_bytes }),
            }
        };
        let levels = config.levels.iter().enumerate().map(level).collect::<Result<_, _>>()?;
        Ok(Hierarchy { levels, line_shift: line_bytes.trailing_zeros() })
    }

    /// Accesses every line that `size` bytes at `address` touch.
    pub fn access(&mut self, address: usize, size: usize) {
        let first = address as u64 >> self.line_shift;
        let last = (address as u64).saturating_add(size.max(1) as u64 - 1) >> self.line_shift;
        for line in first..=last {
            let _ = self.levels.iter_mut().any(|level| level.access(line));
        }
    }

    /// Hits and misses per level, innermost first. The misses of the last one went to memory.
    pub fn stats(&self) -> Vec<LevelStats> {
        self.levels.iter().map(|level| level.stats).collect()
    }

    /// Sets the statistics to zero and keeps the contents: call it after a warm-up.
    pub fn reset_stats(&mut self) {
        self.levels.iter_mut().for_each(|level| level.stats = LevelStats::default());
    }
}

impl Probe for RefCell<Hierarchy> {
    fn read(&self, address: usize, size: usize, _dependent: bool) {
        self.borrow_mut().access(address, size);
    }
    fn write(&self, address: usize, size: usize) {
        self.borrow_mut().access(address, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(hierarchy: &Hierarchy) -> Vec<(u64, u64)> {
        hierarchy.stats().iter().map(|s| (s.hits, s.misses)).collect()
    }

    /// 2 sets of 2 ways, then 2 sets of 4: lines 0, 2, 4 share a set in both.
    fn small() -> Hierarchy {
        let levels = vec![LevelConfig { size_bytes: 256, ways: 2 }, LevelConfig { size_bytes: 512, ways: 4 }];
        Hierarchy::new(&CacheConfig { line_bytes: 64, levels }).unwrap()
    }

    #[test]
    fn the_least_recently_used_line_goes() {
        let mut h = small();
        for line in [0, 2, 0, 4] {
            h.access(line * 64, 4);
        }
        // 0 miss, 2 miss, 0 hit, 4 miss and evicts 2, which was used longest ago.
        assert_eq!(stats(&h), [(1, 3), (0, 3)]);
        h.access(0, 1);
        assert_eq!(stats(&h), [(2, 3), (0, 3)], "0 stayed in level 1");
        h.access(2 * 64, 1);
        assert_eq!(stats(&h), [(2, 4), (1, 3)], "2 was only in level 2");
        h.access(64, 1);
        assert_eq!(stats(&h), [(2, 5), (1, 4)], "the other set is untouched and empty");
        h.reset_stats();
        h.access(64, 1);
        assert_eq!(stats(&h), [(1, 0), (0, 0)]);
    }

    #[test]
    fn an_access_across_a_line_boundary_touches_both_lines() {
        let probe = RefCell::new(small());
        probe.read(62, 4, false);
        probe.write(64, 8);
        probe.read(usize::MAX, 8, true);
        assert_eq!(stats(&probe.borrow()), [(1, 3), (0, 3)]);
    }

    #[test]
    fn a_loop_larger_than_a_set_always_misses_under_lru() {
        let mut h = small();
        for _ in 0..10 {
            for line in [0, 2, 4] {
                h.access(line * 64, 4);
            }
        }
        assert_eq!(stats(&h), [(0, 30), (27, 3)]);
    }

    #[test]
    fn impossible_geometries_are_named() {
        let with = |line_bytes, size_bytes, ways| {
            let config = CacheConfig { line_bytes, levels: vec![LevelConfig { size_bytes, ways }] };
            Hierarchy::new(&config).err().map(|e| e.to_string())
        };
        assert_eq!(with(64, 48 << 10, 12), None);
        assert_eq!(with(0, 4096, 1).unwrap(), "a cache line of 0 bytes is not possible: a power of two is");
        for (size, ways) in [(100, 1), (0, 1), (4096, 0), (4096, usize::MAX)] {
            assert!(with(64, size, ways).unwrap().starts_with("cache level 1: "), "{size} {ways}");
        }
        assert!(Hierarchy::new(&CacheConfig::default()).is_ok());
    }
}
