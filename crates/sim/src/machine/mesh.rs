//! The mesh: a tile for each slice of the last-level cache, each with its caching and home agent (CHA), the first of them with a core.
//! Messages go along rows, then along columns; a hop takes a fixed time. Contention on links is not modelled: a lookup moves a few
//! lines, and a link passes one in every other cycle.
//!
//! ```text
//!   0 -- 1 -- 2 -- 3
//!   |    |    |    |        from 1 to 14: 1 column + 3 rows = 4 hops
//!   4 -- 5 -- 6 -- 7
//!   ...
//!  12 --13 --14 --15
//! ```

use super::calendar::Time;

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Mesh {
    columns: usize,
    tiles: usize,
    hop_ps: u64,
}

impl Mesh {
    /// So many tiles in rows of `columns`.
    pub fn new(tiles: usize, columns: usize, hop_ps: u64) -> Self {
        Mesh { columns: columns.max(1), tiles: tiles.max(1), hop_ps }
    }

    /// Hops between two tiles.
    #[inline]
    pub fn hops(&self, from: usize, to: usize) -> u64 {
        let (a, b) = (from % self.tiles, to % self.tiles);
        let columns = (a % self.columns).abs_diff(b % self.columns);
        let rows = (a / self.columns).abs_diff(b / self.columns);
        (columns + rows) as u64
    }

    /// How long a message takes.
    #[inline]
    pub fn travel_ps(&self, from: usize, to: usize) -> Time {
        self.hops(from, to) * self.hop_ps
    }

    /// The slice that is home to a line: a hash of its number, as address decoders spread consecutive lines.
    #[inline]
    pub fn home(&self, line: u64) -> usize {
        scaled(line, self.tiles)
    }
}

/// A number below `n` by all bits of `x`.
#[inline]
pub fn scaled(x: u64, n: usize) -> usize {
    let mixed = tidemill_cachesim::random::mix(x.wrapping_add(0x9e37_79b9_7f4a_7c15));
    ((u128::from(mixed) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_columns_and_rows() {
        let mesh = Mesh::new(16, 4, 10);
        assert_eq!((mesh.hops(0, 0), mesh.hops(0, 15), mesh.hops(1, 14), mesh.hops(14, 1)), (0, 6, 4, 4));
        assert_eq!(mesh.travel_ps(0, 15), 60);
        // From a corner and from the middle, on average over all tiles.
        let mean = |from| (0..16).map(|to| mesh.hops(from, to)).sum::<u64>() as f64 / 16.0;
        assert_eq!((mean(0), mean(5)), (3.0, 2.0));
    }

    #[test]
    fn lines_are_spread_evenly_over_the_slices() {
        let mesh = Mesh::new(16, 4, 1);
        let mut lines = [0_u32; 16];
        (0..16_000).for_each(|line| lines[mesh.home(line)] += 1);
        assert!(lines.iter().all(|n| (850..1150).contains(n)), "{lines:?}");
    }
}
