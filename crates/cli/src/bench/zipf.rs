//! Ranks by Zipf's law, for keys that are asked for.

use tidemill_port::rng::Rng;

/// Ranks by Zipf's law, from a table of sums.
pub(super) struct Zipf(Vec<f64>);

impl Zipf {
    pub(super) fn new(keys: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf(sums.collect())
    }

    pub(super) fn next(&self, rng: &mut Rng) -> u64 {
        self.at(rng.unit())
    }

    /// The rank at this share of all draws.
    fn at(&self, share: f64) -> u64 {
        let wanted = share * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|sum| *sum < wanted) as u64
    }

    /// The ranks at so many equal steps, and one more: behind the last.
    pub(super) fn quantiles(&self, steps: u32) -> Vec<u32> {
        let inner = (0..steps).map(|step| self.at(f64::from(step) / f64::from(steps)) as u32);
        inner.chain([self.0.len() as u32]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_has_its_shares() {
        let (zipf, mut rng) = (Zipf::new(1000, 0.99), Rng::new(1));
        let mut counts = vec![0_u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.next(&mut rng) as usize] += 1);
        let all: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        let share = |rank: usize| f64::from(counts[rank]) / 1e5;
        assert!((share(0) - 1.0 / all).abs() < 0.01 && (share(9) - 10_f64.powf(-0.99) / all).abs() < 0.01);
        // The table of the flood's program says the same: entries from one rank to the next.
        let steps = zipf.quantiles(1 << 16);
        let entries = |rank: u32| steps.iter().filter(|at| **at == rank).count() as f64 / 65536.0;
        assert_eq!((steps.len(), steps[0], steps[1 << 16]), (65537, 0, 1000));
        assert!(
            (entries(0) - 1.0 / all).abs() < 1e-4 && (entries(9) - 10_f64.powf(-0.99) / all).abs() < 1e-4
        );
    }
}
