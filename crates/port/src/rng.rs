//! Seeded randomness: small, fast, and the same in every version of this program, so that a seed names a run for ever.
//!
//! Source: SplitMix64 (Steele, Lea, Flood 2014) for seeding and mixing, xoshiro256** (Blackman, Vigna 2018).

/// A generator of pseudo-random numbers. Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

/// Spreads the bits of `x`: a bijection on 64 bits.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Rng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        let word = |i: u64| mix(seed.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        Rng([word(0), word(1), word(2), word(3)])
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`; 0 if `n` is 0. (Lemire's multiplication; the bias is below 2^-32 for `n` below 2^32.)
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True with this probability. Draws a number only if the answer is open.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_fixed_and_spread_out() {
        // xoshiro256** on the state [1, 2, 3, 4], from the authors' program.
        let mut rng = Rng([1, 2, 3, 4]);
        assert_eq!([rng.bits(), rng.bits(), rng.bits()], [11520, 0, 1_509_978_240]);
        // SplitMix64 from 0, as published with Java's SplittableRandom.
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF);
        let mut rng = Rng::new(1);
        let mut seen = [0; 10];
        (0..10_000).for_each(|_| seen[rng.below(10) as usize] += 1);
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        let hits = (0..10_000).filter(|_| rng.chance(0.25)).count();
        assert!((2300..2700).contains(&hits), "{hits}");
        assert!(!rng.chance(0.0) && rng.chance(1.0));
    }
}
