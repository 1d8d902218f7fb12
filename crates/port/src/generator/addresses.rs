//! Where a generator's addresses come from.

use crate::rng::{Rng, mix};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// An endless supply of addresses. A table-driven one ("an address inside a random route") is the caller's to write.
pub trait AddressSource: Send {
    /// The next address; all randomness comes from `rng`.
    fn next(&mut self, rng: &mut Rng) -> IpAddr;
}

impl<F: FnMut(&mut Rng) -> IpAddr + Send> AddressSource for F {
    fn next(&mut self, rng: &mut Rng) -> IpAddr {
        self(rng)
    }
}

/// Uniform over the IPv4 addresses that may appear in the public Internet (not those of RFC 6890's table that are not
/// globally reachable, nor multicast).
#[derive(Debug, Clone, Copy, Default)]
pub struct PublicV4;

/// Uniform over 2000::/3, without the documentation, Teredo and 6to4 ranges.
#[derive(Debug, Clone, Copy, Default)]
pub struct PublicV6;

/// The entries of a list, uniformly at random.
#[derive(Debug, Clone)]
pub struct Uniform(Arc<[IpAddr]>);

/// The entries of a list, in turn.
#[derive(Debug, Clone)]
pub struct InTurn(Arc<[IpAddr]>, usize);

/// The entries of a list by Zipf's law: the i-th (from 1) with probability proportional to `i^-s`.
///
/// Rejection-inversion (Hoermann, Derflinger 1996): no table, constant time, any exponent from 0.
#[derive(Debug, Clone)]
pub struct Zipf {
    addresses: Arc<[IpAddr]>,
    exponent: f64,
    /// The integral of the density at 1.5 less 1, at n + 0.5, and the shortcut for the first entries.
    low: f64,
    high: f64,
    shortcut: f64,
}

impl AddressSource for PublicV4 {
    fn next(&mut self, rng: &mut Rng) -> IpAddr {
        loop {
            let address = Ipv4Addr::from_bits(rng.bits() as u32);
            if is_public_v4(address) {
                return address.into();
            }
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127, ..] | [224..=255, ..] => true,
        [100, b, ..] => b & 0xC0 == 64,
        [169, 254, ..] | [192, 168, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] => true,
        [172, b, ..] => b & 0xF0 == 16,
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        _ => false,
    };
    !special
}

impl AddressSource for PublicV6 {
    fn next(&mut self, rng: &mut Rng) -> IpAddr {
        loop {
            let bits = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
            let address = Ipv6Addr::from_bits(bits & !(7 << 125) | 1 << 125);
            // 2001::/23 (protocol assignments, Teredo), 2001:db8::/32, 2002::/16, 3fff::/20.
            match address.segments() {
                [0x2001, 0..=0x01FF, ..] | [0x2001, 0x0DB8, ..] | [0x2002, ..] | [0x3FFF, 0..=0x0FFF, ..] => {
                }
                _ => return address.into(),
            }
        }
    }
}

impl Uniform {
    /// From a list; `None` if it is empty.
    pub fn new(addresses: impl Into<Arc<[IpAddr]>>) -> Option<Self> {
        let addresses = addresses.into();
        (!addresses.is_empty()).then_some(Uniform(addresses))
    }
}

impl AddressSource for Uniform {
    fn next(&mut self, rng: &mut Rng) -> IpAddr {
        self.0[rng.below(self.0.len() as u64) as usize]
    }
}

impl InTurn {
    /// From a list; `None` if it is empty.
    pub fn new(addresses: impl Into<Arc<[IpAddr]>>) -> Option<Self> {
        let addresses = addresses.into();
        (!addresses.is_empty()).then_some(InTurn(addresses, 0))
    }
}

impl AddressSource for InTurn {
    fn next(&mut self, _rng: &mut Rng) -> IpAddr {
        let address = self.0[self.1];
        self.1 = (self.1 + 1) % self.0.len();
        address
    }
}

impl Zipf {
    /// From a population, most popular first; `None` if it is empty or the exponent is not a number from 0.
    pub fn new(addresses: impl Into<Arc<[IpAddr]>>, exponent: f64) -> Option<Self> {
        let addresses = addresses.into();
        if !Self::takes(addresses.len(), exponent) {
            return None;
        }
        let n = addresses.len() as f64;
        let mut zipf = Zipf { addresses, exponent, low: 0.0, high: 0.0, shortcut: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(n + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-exponent));
        Some(zipf)
    }

    /// Whether there is a law for so many addresses with this exponent.
    pub(crate) fn takes(n: usize, exponent: f64) -> bool {
        n > 0 && exponent.is_finite() && exponent >= 0.0
    }

    /// A population of `n` random public IPv4 addresses.
    pub fn population_v4(n: usize, exponent: f64, seed: u64) -> Option<Self> {
        let mut rng = Rng::new(mix(seed));
        Self::new((0..n).map(|_| PublicV4.next(&mut rng)).collect::<Vec<_>>(), exponent)
    }

    /// The integral of `x^-s` from 1, up to a constant.
    fn integral(&self, x: f64) -> f64 {
        let one_less = 1.0 - self.exponent;
        if one_less.abs() < 1e-9 { x.ln() } else { (x.powf(one_less) - 1.0) / one_less }
    }

    fn inverse(&self, y: f64) -> f64 {
        let one_less = 1.0 - self.exponent;
        if one_less.abs() < 1e-9 { y.exp() } else { (1.0 + y * one_less).max(0.0).powf(1.0 / one_less) }
    }

    fn rank(&self, rng: &mut Rng) -> usize {
        let n = self.addresses.len();
        loop {
            let u = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let k = x.round().clamp(1.0, n as f64);
            if k - x <= self.shortcut || u >= self.integral(k + 0.5) - k.powf(-self.exponent) {
                return (k as usize).min(n) - 1;
            }
        }
    }
}

impl AddressSource for Zipf {
    fn next(&mut self, rng: &mut Rng) -> IpAddr {
        self.addresses[self.rank(rng)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_follows_its_law() {
        let n = 1000;
        let addresses: Vec<IpAddr> = (0..n).map(|i| Ipv4Addr::from_bits(i).into()).collect();
        for exponent in [0.0, 0.6, 1.0, 1.2] {
            let mut zipf = Zipf::new(addresses.clone(), exponent).unwrap();
            let mut rng = Rng::new(5);
            let mut seen = vec![0u32; n as usize];
            let draws = 200_000;
            for _ in 0..draws {
                let IpAddr::V4(a) = zipf.next(&mut rng) else { unreachable!() };
                seen[a.to_bits() as usize] += 1;
            }
            let weight: f64 = (1..=n).map(|i| f64::from(i).powf(-exponent)).sum();
            for rank in [1, 2, 3, 10, 100] {
                let expected = f64::from(draws) * f64::from(rank as u32).powf(-exponent) / weight;
                let got = f64::from(seen[rank - 1]);
                assert!(
                    (got - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "s {exponent} rank {rank}: {got}, expected {expected}"
                );
            }
        }
        assert!(Zipf::new(Vec::new(), 1.0).is_none() && Zipf::new(addresses, f64::NAN).is_none());
    }

    #[test]
    fn public_addresses_are_public() {
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let IpAddr::V4(a) = PublicV4.next(&mut rng) else { unreachable!() };
            assert!(!a.is_private() && !a.is_loopback() && !a.is_multicast() && !a.is_link_local(), "{a}");
            assert!(!a.is_documentation() && !a.is_broadcast() && a.octets()[0] != 0, "{a}");
            let IpAddr::V6(a) = PublicV6.next(&mut rng) else { unreachable!() };
            assert_eq!(a.segments()[0] >> 13, 1, "{a}");
        }
    }
}
