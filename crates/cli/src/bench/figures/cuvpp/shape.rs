//! Tables of any size with a given share of each prefix length.

use crate::bench::figures::{Setting, Subject};
use std::collections::BTreeMap;
use tidemill_lpm::keys::Random;
use tidemill_lpm::{Label, Prefix, Rib};

/// Labels of a made table.
const LABELS: usize = 100;

/// How many prefixes have each length. A default route is always among them, as in VPP, whose tables are never without.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shape {
    /// Whose it is.
    pub(super) name: String,
    /// The lengths that there are, each with its part of 1.
    shares: BTreeMap<u8, f64>,
}

impl Shape {
    /// RV-linx in the paper's words: 34 lengths, /48 and /32 have more than 73 %, and with /40, /44, /36 and /29 more than
    /// 90 %. What it leaves open: the six have 43.2, 30.4, 5.6, 4.8, 3.8 and 2.7 %; the others share the rest, each length below
    /// /28 half of what the next one has.
    pub(super) fn rv_linx() -> Self {
        let six = [(48, 0.432), (32, 0.304), (40, 0.056), (44, 0.048), (36, 0.038), (29, 0.027)];
        let others = [16].into_iter().chain(19..=28).chain([30, 31]).chain(33..=47).chain([56, 64]);
        let others = others.filter(|&len| six.iter().all(|&(of, _)| of != len));
        let weight = |len: u8| 0.5_f64.powi(28 - i32::from(len.min(28)));
        Self::new("RV-linx as the paper describes it", &six, others.map(|len| (len, weight(len))))
    }

    /// DT-IP6 in the paper's words: 513 prefixes of 17 lengths, more than 72 % of them /48, "few" /67, /17 and /16: one each. It
    /// does not name the others: here they are twelve from /24 to /46, all alike.
    pub(super) fn dt_ip6() -> Self {
        let one = 1.0 / 513.0;
        let others = [24, 29, 30, 32, 33, 34, 35, 36, 38, 40, 44, 46];
        let stated = [(48, 0.73), (67, one), (17, one), (16, one)];
        Self::new("DT-IP6 as the paper describes it", &stated, others.into_iter().map(|len| (len, 1.0)))
    }

    /// `others` share by weight what `stated` leaves.
    fn new(name: &str, stated: &[(u8, f64)], others: impl Iterator<Item = (u8, f64)> + Clone) -> Self {
        let left = 1.0 - stated.iter().map(|(_, share)| share).sum::<f64>();
        let weights: f64 = others.clone().map(|(_, weight)| weight).sum();
        let others = others.map(|(len, weight)| (len, left * weight / weights));
        let default = std::iter::once((0, 0.0));
        Shape { name: name.to_owned(), shares: default.chain(stated.iter().copied()).chain(others).collect() }
    }

    /// That of the user's table if there is one.
    pub(super) fn or_of_table(self, setting: &Setting<'_>) -> Self {
        let Some(Subject { name, table }) = setting.tables.first() else { return self };
        let mut shares = BTreeMap::from([(0, 0.0)]);
        for (prefix, _) in table.v6.iter() {
            *shares.entry(prefix.len()).or_default() += 1.0 / table.v6.len() as f64;
        }
        Shape { name: format!("the lengths of {name}"), shares }
    }

    /// How many lengths there are.
    pub(super) fn lengths(&self) -> usize {
        self.shares.len()
    }

    /// A table of so many prefixes, drawn from all addresses. Every length has one at least,
    /// and half of all that there can be at most; the commonest length has what is missing or too much.
    pub(super) fn table(&self, prefixes: usize, seed: u64) -> Rib<u128> {
        let mut counts: Vec<(u8, usize)> = Vec::new();
        for (&len, share) in &self.shares {
            let most = 1_usize << len.saturating_sub(1).min(40);
            counts.push((len, ((share * prefixes as f64).round() as usize).clamp(1, most)));
        }
        // By share, rarest first.
        counts.sort_by_key(|&(_, count)| count);
        let rarer: usize = counts.iter().rev().skip(1).map(|&(_, count)| count).sum();
        if let Some((_, count)) = counts.last_mut() {
            *count = prefixes.saturating_sub(rarer).max(1);
        }
        let mut random = Random::new(seed);
        let mut rib = Rib::new();
        for (len, count) in counts {
            let (before, mut tries) = (rib.len(), 0);
            // Few are drawn twice.
            while rib.len() < before + count && tries < 8 * count + 64 {
                tries += 1;
                let label = Label(1 + random.below(LABELS) as u32);
                if let Some(prefix) = Prefix::new(random.address(), len) {
                    rib.insert(prefix, label);
                }
            }
        }
        rib
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(rib: &Rib<u128>) -> BTreeMap<u8, usize> {
        let mut counts = BTreeMap::new();
        rib.iter().for_each(|(prefix, _)| *counts.entry(prefix.len()).or_default() += 1);
        counts
    }

    #[test]
    fn the_papers_two_have_what_it_says_of_them() {
        let (rv, dt) = (Shape::rv_linx(), Shape::dt_ip6());
        assert_eq!((rv.lengths(), dt.lengths()), (34, 17));
        for shape in [&rv, &dt] {
            assert!((shape.shares.values().sum::<f64>() - 1.0).abs() < 1e-9, "{}", shape.name);
        }
        let two = rv.shares[&48] + rv.shares[&32];
        let six = two + [40, 44, 36, 29].map(|len| rv.shares[&len]).iter().sum::<f64>();
        assert!(two > 0.73 && two < 0.74 && six > 0.9 && six < 0.91, "{two} {six}");
        assert!(rv.shares.iter().all(|(len, &share)| share <= 0.027 || [48, 32, 40, 44, 36].contains(len)));
        let counts = lengths(&dt.table(513, 1));
        assert_eq!([16, 17, 67].map(|len| counts[&len]), [1; 3]);
        assert!(counts[&48] * 100 >= 72 * 513 && counts.len() == 17);
    }

    #[test]
    fn tables_have_the_size_and_every_length() {
        for shape in [Shape::rv_linx(), Shape::dt_ip6()] {
            for prefixes in [200, 5_000] {
                let rib = shape.table(prefixes, 1);
                assert_eq!((rib.len(), lengths(&rib).len()), (prefixes, shape.lengths()), "{}", shape.name);
            }
        }
        // Not all of a length can be had: there are 8 of /3.
        let short = Shape::new("", &[(3, 0.9), (64, 0.1)], std::iter::empty());
        let counts = lengths(&short.table(1_000, 1));
        assert!(counts[&3] <= 8 && counts[&64] >= 900, "{counts:?}");
    }
}
