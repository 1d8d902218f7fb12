//! Energy and area. The numbers of Table 4 are **inputs**, taken from the paper (McPAT, CACTI at 22 nm, which it ran); what is reckoned
//! here is activity times energy: how many queries there were, how long it took, and so what each solution draws.
//!
//! The paper's 48.2 is no measurement either: it is 84.82 / 1.76, a search of 1 MB of TCAM by a query of HALO.

/// A row of Table 4.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Tiles of the chip.
    pub area_tiles: f64,
    /// Whether it is used or not.
    pub static_mw: f64,
    /// For each query.
    pub query_nj: f64,
}

/// Table 4: TCAM by its size in KiB.
pub const TCAM: [(f64, Cost); 4] = [
    (1.0, Cost { area_tiles: 0.001, static_mw: 71.1, query_nj: 0.04 }),
    (10.0, Cost { area_tiles: 0.066, static_mw: 235.3, query_nj: 0.37 }),
    (100.0, Cost { area_tiles: 1.044, static_mw: 3850.5, query_nj: 13.84 }),
    (1024.0, Cost { area_tiles: 9.343, static_mw: 26_733.1, query_nj: 84.82 }),
];

/// Table 4: one accelerator.
pub const HALO: Cost = Cost { area_tiles: 0.012, static_mw: 97.2, query_nj: 1.76 };

/// 6.4: 1 MB holds about 100,000 rules of five fields. So 1 KB holds 100: each size of Table 4 holds a power of ten.
pub const RULES_PER_KIB: u64 = 100;

/// The smallest TCAM of Table 4 that holds so many rules; beyond the largest as many of the largest as it takes.
pub fn tcam(rules: u64) -> Cost {
    let kib = rules as f64 / RULES_PER_KIB as f64;
    if let Some((_, cost)) = TCAM.iter().find(|(size, _)| kib <= *size) {
        return *cost;
    }
    let (size, cost) = TCAM[3];
    cost.times((kib / size).ceil())
}

/// The same in SRAM: 45 % less power, 57 % less area (6.4, after its source).
pub fn sram(rules: u64) -> Cost {
    let Cost { area_tiles, static_mw, query_nj } = tcam(rules);
    Cost { area_tiles: area_tiles * 0.43, static_mw: static_mw * 0.55, query_nj: query_nj * 0.55 }
}

/// All accelerators: each draws its static power, a query is one accelerator's.
pub fn halo(slices: u64) -> Cost {
    Cost { query_nj: HALO.query_nj, ..HALO.times(slices as f64) }
}

impl Cost {
    fn times(self, n: f64) -> Cost {
        Cost { area_tiles: self.area_tiles * n, static_mw: self.static_mw * n, query_nj: self.query_nj * n }
    }

    /// Nanojoules of so many queries in so many seconds, at rest too.
    pub fn energy_nj(&self, queries: u64, seconds: f64) -> f64 {
        queries as f64 * self.query_nj + self.static_mw * seconds * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_48_is_a_quotient_of_its_table() {
        let quotient = TCAM[3].1.query_nj / HALO.query_nj;
        assert!((quotient - 48.2).abs() < 0.05, "{quotient}");
        assert_eq!(tcam(100_000), TCAM[3].1);
        // Each size holds its power of ten, and one rule more needs the next.
        for (i, rules) in [100, 1_000, 10_000].into_iter().enumerate() {
            assert_eq!((tcam(rules), tcam(rules + 1)), (TCAM[i].1, TCAM[i + 1].1));
        }
        assert_eq!(tcam(250_000).query_nj, 3.0 * 84.82);
    }

    #[test]
    fn energy_is_queries_and_time() {
        let cost = Cost { area_tiles: 1.0, static_mw: 2.0, query_nj: 3.0 };
        // 2 mW for a microsecond are 2 nJ.
        assert!((cost.energy_nj(10, 1e-6) - 32.0).abs() < 1e-9);
        assert_eq!(halo(16).static_mw, 16.0 * 97.2);
        assert!((sram(100_000).area_tiles / tcam(100_000).area_tiles - 0.43).abs() < 1e-12);
    }
}
