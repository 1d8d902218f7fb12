//! The linear oracle: what every structure must answer.
//!
//! A list of prefixes is cut into disjoint intervals of addresses, each with the label of the longest prefix over
//! it. This is made straight from the list - no trie, no RIB, no FIB - so that a fault in those cannot hide here. It
//! follows the definition: walk the prefixes in address order, keep the ones that are open on a stack, and the
//! innermost open one (the longest) labels every address up to the next start or end.
//!
//! ```text
//! 10.0.0.0/8  -> 1   |----------------------------|
//! 10.1.0.0/16 -> 2        |--------|
//! intervals    0     |  1 |    2   |       1      |    0
//! ```

use crate::fib::Label;
use crate::prefix::{Address, Prefix};

/// One interval of addresses, both ends inside, that share an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval<A> {
    /// The first address.
    pub start: A,
    /// The last address.
    pub end: A,
    /// The longest match of every address from `start` to `end`.
    pub label: Label,
}

/// The whole address space as sorted, disjoint intervals without gaps; neighbours differ in their label.
#[derive(Debug, Clone)]
pub struct Oracle<A> {
    starts: Vec<A>,
    labels: Vec<Label>,
}

impl<A: Address> Oracle<A> {
    /// Cuts `prefixes`, in any order, into intervals. Of duplicates the last one wins.
    pub fn new(prefixes: &[(Prefix<A>, Label)]) -> Self {
        // By first address, then parents before children, then the order of the list.
        let mut order: Vec<(A, u8, u32)> =
            prefixes.iter().zip(0..).map(|(&(prefix, _), i)| (prefix.first(), prefix.len(), i)).collect();
        order.sort_unstable();
        let mut oracle = Oracle { starts: vec![A::MIN], labels: vec![Label::NONE] };
        // The open prefixes, outermost first: the last address and the label of each.
        let mut open: Vec<(A, Label)> = Vec::new();
        for (at, &(first, len, i)) in order.iter().enumerate() {
            if order.get(at + 1).is_some_and(|&(f, l, _)| (f, l) == (first, len)) {
                continue; // a later duplicate wins
            }
            let (prefix, label) = prefixes[i as usize];
            while let Some(&(last, _)) = open.last().filter(|(last, _)| *last < first) {
                open.pop();
                oracle.cut(last + A::one(), innermost(&open));
            }
            open.push((prefix.last(), label));
            oracle.cut(first, label);
        }
        while let Some((last, _)) = open.pop() {
            if last != A::MAX {
                oracle.cut(last + A::one(), innermost(&open));
            }
        }
        oracle
    }

    /// From `start` on the answer is `label`, until the next cut. Starts never go down.
    fn cut(&mut self, start: A, label: Label) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.labels.pop();
        }
        if self.labels.last() != Some(&label) {
            self.starts.push(start);
            self.labels.push(label);
        }
    }

    /// The longest match of `key`, by binary search.
    pub fn lookup(&self, key: A) -> Label {
        // The first interval starts at the lowest address, so there is always one at or before the key.
        self.labels[self.starts.partition_point(|&start| start <= key) - 1]
    }

    /// Number of intervals; at least one.
    #[allow(clippy::len_without_is_empty)] // it covers the whole address space: never empty
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The intervals by address: the first starts at the lowest address, the last ends at the highest.
    pub fn intervals(&self) -> impl Iterator<Item = Interval<A>> + '_ {
        (0..self.len()).map(|i| Interval {
            start: self.starts[i],
            end: self.starts.get(i + 1).map_or(A::MAX, |&next| next - A::one()),
            label: self.labels[i],
        })
    }
}

fn innermost<A>(open: &[(A, Label)]) -> Label {
    open.last().map_or(Label::NONE, |&(_, label)| label)
}

/// The definition itself: of all prefixes that contain `key` the longest, of duplicates the last. O(n).
pub fn scan<A: Address>(prefixes: &[(Prefix<A>, Label)], key: A) -> Label {
    let mut best: Option<(u8, Label)> = None;
    for &(prefix, label) in prefixes {
        if prefix.contains(key) && best.is_none_or(|(len, _)| prefix.len() >= len) {
            best = Some((prefix.len(), label));
        }
    }
    best.map_or(Label::NONE, |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn list<A: Address>(text: &[(&str, u32)]) -> Vec<(Prefix<A>, Label)> {
        text.iter().map(|&(p, l)| (p.parse().unwrap(), Label(l))).collect()
    }

    fn triples(list: &[(Prefix<u32>, Label)]) -> Vec<(u32, u32, u32)> {
        Oracle::new(list).intervals().map(|i| (i.start, i.end, i.label.0)).collect()
    }

    #[test]
    fn intervals_follow_the_picture() {
        assert_eq!(triples(&[]), [(0, u32::MAX, 0)]);
        assert_eq!(triples(&list(&[("0.0.0.0/0", 7)])), [(0, u32::MAX, 7)]);
        assert_eq!(
            triples(&list(&[("10.1.0.0/16", 2), ("10.0.0.0/8", 1)])),
            [
                (0, 0x09ff_ffff, 0),
                (0x0a00_0000, 0x0a00_ffff, 1),
                (0x0a01_0000, 0x0a01_ffff, 2),
                (0x0a02_0000, 0x0aff_ffff, 1),
                (0x0b00_0000, u32::MAX, 0)
            ]
        );
        // Siblings with one label are one interval; the last duplicate wins; the space's ends do not overflow.
        assert_eq!(
            triples(&list(&[
                ("255.255.255.255/32", 3),
                ("0.0.0.0/32", 9),
                ("0.0.0.0/32", 4),
                ("0.0.0.1/32", 4)
            ])),
            [(0, 1, 4), (2, u32::MAX - 1, 0), (u32::MAX, u32::MAX, 3)]
        );
    }

    fn agrees_with_the_scan<A: Address>(seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        for _ in 0..300 {
            let base = A::from_u128(rng.random());
            let list: Vec<(Prefix<A>, Label)> = (0..rng.random_range(0..40))
                .map(|_| {
                    let len = rng.random_range(0..=A::BITS);
                    let keep = A::mask(rng.random_range(0..=A::BITS));
                    let addr = (base & keep) | (A::from_u128(rng.random()) & !keep);
                    (Prefix::new(addr, len).unwrap(), Label(rng.random_range(0..4)))
                })
                .collect();
            let oracle = Oracle::new(&list);
            let one = A::one();
            let edges = list.iter().flat_map(|(p, _)| {
                let (first, last) = (p.first(), p.last());
                let before = if first == A::MIN { A::MAX } else { first - one };
                let after = if last == A::MAX { A::MIN } else { last + one };
                [first, last, before, after]
            });
            for key in edges.chain((0..50).map(|_| A::from_u128(rng.random()))) {
                assert_eq!(oracle.lookup(key), scan(&list, key), "key {} of {list:?}", key.to_ip());
            }
            let mut next = Some(A::MIN);
            let mut previous = None;
            for interval in oracle.intervals() {
                assert_eq!(Some(interval.start), next, "no gap, no overlap");
                assert!(interval.start <= interval.end);
                assert_ne!(Some(interval.label), previous, "neighbours are merged");
                previous = Some(interval.label);
                next = (interval.end != A::MAX).then(|| interval.end + one);
            }
            assert_eq!(next, None);
        }
    }

    #[test]
    fn intervals_answer_as_the_definition_does() {
        agrees_with_the_scan::<u32>(1);
        agrees_with_the_scan::<u128>(2);
    }
}
