//! Which structure to use, and why: from what has been measured, without measuring anything.

use super::memory::Memory;
use clap::ValueEnum;

/// What is wanted most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The geometric mean of rnd, rep and (IPv4) prefix: what a router's bursts are like
    Mix,
    /// Random keys
    Rnd,
    /// Each lookup waits for the one before
    Seq,
    /// Each key eight times
    Rep,
    /// Keys inside the table's prefixes
    Prefix,
    /// The least memory
    Bytes,
}

/// What one structure has shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) bytes: usize,
    /// M lookups/s by case.
    pub(super) rates: Vec<(&'static str, f64)>,
    /// Thousands of updates per second: one by one, coalesced.
    pub(super) updates: Option<(f64, f64)>,
}

impl Shown {
    fn rate(&self, case: &str) -> f64 {
        self.rates.iter().find(|(name, _)| *name == case).map_or(0.0, |(_, rate)| *rate)
    }

    /// The more, the better. The table's own keys are IPv6's only ones, so `prefix` falls back on `rnd`.
    pub(super) fn score(&self, by: By) -> f64 {
        let has = |case: &str| self.rates.iter().any(|(name, _)| *name == case);
        match by {
            By::Mix => {
                let cases: Vec<f64> =
                    ["rnd", "rep", "prefix"].into_iter().filter(|c| has(c)).map(|c| self.rate(c)).collect();
                let product: f64 = cases.iter().product();
                if cases.is_empty() { 0.0 } else { product.powf(1.0 / cases.len() as f64) }
            }
            By::Rnd => self.rate("rnd"),
            By::Seq => self.rate("seq"),
            By::Rep => self.rate("rep"),
            By::Prefix if has("prefix") => self.rate("prefix"),
            By::Prefix => self.rate("rnd"),
            By::Bytes => 1e12 / self.bytes.max(1) as f64,
        }
    }
}

/// Structures whose rates differ by less than this are equally fast: the smaller one leaves more of the caches to packets.
const LEVEL: f64 = 0.05;

/// The one to use: the smallest of those that are about as fast as the fastest.
pub(super) fn choose(shown: &[Shown], by: By) -> Option<usize> {
    let best = shown.iter().map(|one| one.score(by)).fold(0.0, f64::max);
    let level = |at: &usize| shown[*at].score(by) >= best * (1.0 - LEVEL);
    (0..shown.len()).filter(level).min_by_key(|&at| shown[at].bytes)
}

/// Why, in a few sentences.
pub(super) fn why(shown: &[Shown], at: usize, by: By, memory: &Memory) -> Vec<String> {
    let chosen = &shown[at];
    let mb = |bytes: usize| match bytes {
        0..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.2} MB", bytes as f64 / 1e6),
    };
    let mut lines = Vec::new();
    let size = mb(chosen.bytes);
    lines.push(match memory.holds(chosen.bytes) {
        Some(cache) if cache.sharers > 1 => {
            format!(
                "{size}: fits L{} ({}, shared by {} processors)",
                cache.level,
                mb(cache.bytes),
                cache.sharers
            )
        }
        Some(cache) => format!("{size}: fits L{} ({})", cache.level, mb(cache.bytes)),
        None if memory.caches.is_empty() => size,
        None => format!("{size}: fits no cache"),
    });
    let others = || shown.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, one)| one);
    let rates = chosen.rates.iter().map(|&(case, rate)| {
        let next = others().max_by(|a, b| a.rate(case).total_cmp(&b.rate(case)));
        match next.filter(|next| next.rate(case) > 0.0) {
            Some(next) => format!("{case} {rate:.0} M/s ({:.2}x of {})", rate / next.rate(case), next.name),
            None => format!("{case} {rate:.0} M/s"),
        }
    });
    lines.push(rates.collect::<Vec<_>>().join(", "));
    if let Some(bound) = memory.bound(chosen.bytes).filter(|&bound| bound > 0.0) {
        let share = 100.0 * chosen.rate("rnd") / bound;
        lines.push(format!(
            "rnd is {share:.0} % of the machine's bound: {bound:.0} M random loads/s in a region of that size"
        ));
    }
    let fastest = others().max_by(|a, b| a.score(by).total_cmp(&b.score(by)));
    if let Some(fastest) = fastest.filter(|other| other.score(by) > chosen.score(by)) {
        lines.push(format!(
            "{} is {:.0} % faster, which is within the noise, and takes {}",
            fastest.name,
            100.0 * (fastest.score(by) / chosen.score(by) - 1.0),
            mb(fastest.bytes)
        ));
    }
    if let Some((single, coalesced)) = chosen.updates {
        lines.push(format!("{single:.0} k updates/s one by one, {coalesced:.0} k/s coalesced"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::memory::{Cache, Point};

    fn shown(name: &str, bytes: usize, rnd: f64, rep: f64) -> Shown {
        Shown {
            name: name.into(),
            bytes,
            rates: vec![("rnd", rnd), ("rep", rep)],
            updates: Some((500.0, 1200.0)),
        }
    }

    #[test]
    fn of_equally_fast_ones_the_smallest() {
        let list = [shown("a", 9, 100.0, 100.0), shown("b", 5, 98.0, 98.0), shown("c", 1, 50.0, 50.0)];
        assert_eq!(choose(&list, By::Mix), Some(1));
        assert_eq!(choose(&list[..1], By::Mix), Some(0));
        assert_eq!(choose(&list, By::Bytes), Some(2));
        assert_eq!(choose(&[], By::Mix), None);
        let list = [shown("a", 9, 100.0, 400.0), shown("b", 5, 150.0, 200.0)];
        assert_eq!(
            [By::Mix, By::Rnd, By::Prefix, By::Rep].map(|by| choose(&list, by)),
            [0, 1, 1, 0].map(Some)
        );
        assert!((list[0].score(By::Mix) - 200.0).abs() < 1e-9);
    }

    #[test]
    fn the_reasons_have_figures() {
        let cache = |level, bytes, sharers| Cache { level, bytes, sharers };
        let point = Point { bytes: 4 << 20, dependent_ns: vec![9.0], independent: vec![400.0], gather: None };
        let caches = vec![cache(1, 48 << 10, 1), cache(2, 2 << 20, 2)];
        let memory = Memory { clock_ghz: 3.0, caches, points: vec![point] };
        let list = [shown("a", 1_900_000, 196.0, 400.0), shown("b", 5_000_000, 200.0, 400.0)];
        let lines = why(&list, 0, By::Mix, &memory);
        let text = lines.join("; ");
        for part in [
            "1.90 MB: fits L2 (2.10 MB, shared by 2 processors)",
            "rnd 196 M/s (0.98x of b)",
            "rnd is 49 % of the machine's bound: 400 M",
            "b is 1 % faster",
            "500 k updates/s one by one, 1200 k/s coalesced",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(why(&list, 1, By::Mix, &memory)[0].contains("fits no cache"));
    }
}
