//! Numbers drawn by weight with one load and one comparison: the alias method (Walker 1977, in Vose's form of 1991).

use crate::random::Random;

/// A distribution over 0, 1, ...: 8 bytes a number.
#[derive(Debug)]
pub struct Alias(Vec<(u32, u32)>);

impl Alias {
    /// By weights, one at least, that are finite and from 0; `None` for others.
    pub fn new(weights: &[f64]) -> Option<Self> {
        let total: f64 = weights.iter().sum();
        let right = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
        let few = u32::try_from(weights.len()).is_ok();
        if !right || !few || !total.is_finite() || total <= 0.0 {
            return None;
        }
        let mut share: Vec<f64> =
            weights.iter().map(|weight| weight * weights.len() as f64 / total).collect();
        let mut columns: Vec<(u32, u32)> = (0..weights.len() as u32).map(|i| (u32::MAX, i)).collect();
        let all = 0..weights.len() as u32;
        let (mut small, mut large): (Vec<u32>, Vec<u32>) = all.partition(|&i| share[i as usize] < 1.0);
        // A column has room for 1: what a small share leaves is a large one's.
        while let (Some(&lack), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            columns[lack as usize] = ((share[lack as usize] * f64::from(u32::MAX)) as u32, rich);
            share[rich as usize] -= 1.0 - share[lack as usize];
            if share[rich as usize] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        Some(Alias(columns))
    }

    /// By Zipf's law: number `i` of `n` weighs `(i + 1)^-exponent`. `None`: nothing to draw from, or no such exponent.
    pub fn zipf(n: usize, exponent: f64) -> Option<Self> {
        let weights: Vec<f64> = (1..=n).map(|rank| (rank as f64).powf(-exponent)).collect();
        Alias::new(&weights)
    }

    /// Draws one.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u32 {
        let bits = random.bits();
        let column = (((bits >> 32) * self.0.len() as u64) >> 32) as u32;
        let (share, other) = self.0[column as usize];
        if (bits as u32) < share { column } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_as_often_as_they_weigh() {
        let weights = [5.0, 0.0, 1.0, 3.0, 1.0];
        let alias = Alias::new(&weights).unwrap();
        let (mut random, mut counts) = (Random::new(1), [0_u32; 5]);
        (0..100_000).for_each(|_| counts[alias.draw(&mut random) as usize] += 1);
        for (count, weight) in counts.into_iter().zip(weights) {
            // Ten standard deviations.
            assert!(
                (f64::from(count) - weight * 10_000.0).abs() <= 1500.0 * f64::from(weight > 0.0),
                "{counts:?}"
            );
        }
        let even = Alias::zipf(3, 0.0).unwrap();
        assert!((0..1000).all(|_| even.draw(&mut random) < 3));
        for wrong in [&[][..], &[0.0], &[f64::NAN], &[-1.0, 2.0], &[f64::INFINITY]] {
            assert!(Alias::new(wrong).is_none(), "{wrong:?}");
        }
    }
}
