//! Services: destination ports that the same rules' ranges have. A third side of the cross-product, where lists are long and their number stays small.

use super::block::Part;
use super::class::{MOST_WORDS, Set};
use hashbrown::HashMap;

/// The most lists where services tell them apart, at four bytes each: few enough to stay in a second-level cache.
pub const MOST_SERVED: usize = 1 << 18;

/// The destination ports by the rules that take them.
pub(super) struct Services {
    /// The class of each port.
    pub(super) of: Box<[u16]>,
    /// The rules of each class.
    pub(super) sets: Vec<Set>,
}

impl Services {
    /// Of what lists have of rules, by their numbers. `None`: there would be one class only, or more than `most`.
    pub(super) fn of(parts: &[Option<Part>], words: usize, most: usize) -> Option<Self> {
        // Where a range begins, and behind its last port.
        let mut edges = Vec::with_capacity(2 * parts.len());
        for (part, number) in parts.iter().zip(0_usize..) {
            let Some([first, last]) = part.as_ref().map(Part::destinations) else { continue };
            edges.extend([(usize::from(first), number), (usize::from(last) + 1, number)]);
        }
        edges.sort_unstable();
        let mut edges = edges.into_iter().peekable();
        let (mut now, mut class): (Set, u16) = (vec![0; words].into(), 0);
        let mut known: HashMap<Set, u16> = HashMap::new();
        let (mut of, mut sets) = (Vec::with_capacity(1 << 16), Vec::new());
        for port in 0..1 << 16 {
            let mut other = port == 0;
            while let Some((_, number)) = edges.next_if(|&(at, _)| at == port) {
                now[number / 64] ^= 1 << (number % 64);
                other = true;
            }
            if other {
                class = *known.entry(now.clone()).or_insert_with(|| {
                    sets.push(now.clone());
                    (sets.len() - 1) as u16
                });
                if sets.len() > most || sets.len() * words > MOST_WORDS {
                    return None;
                }
            }
            of.push(class);
        }
        (sets.len() > 1).then(|| Services { of: of.into(), sets })
    }

    /// Of each class of addresses and each of ports the rules that are in both, row by row. `None`: they would take too much room.
    pub(super) fn within(&self, addresses: &[Set]) -> Option<Vec<Set>> {
        let words = self.sets.first().map_or(0, |set| set.len());
        if addresses.len() * self.sets.len() * words > MOST_WORDS {
            return None;
        }
        let mut within = Vec::with_capacity(addresses.len() * self.sets.len());
        for address in addresses {
            for service in &self.sets {
                within.push(address.iter().zip(service.iter()).map(|(a, b)| a & b).collect());
            }
        }
        Some(within)
    }
}

#[cfg(test)]
mod tests {
    use super::super::class::words;
    use super::*;

    #[test]
    fn ports_are_of_one_class_if_the_same_ranges_have_them() {
        let ranges = [(0, 65535), (80, 80), (80, 90), (91, 1024), (65535, 65535), (0, 0)];
        let part = |&(first, last): &(u16, u16)| {
            Some(Part { first: 7 << 16 | u32::from(first), span: u32::from(last - first), condition: 0 })
        };
        // One that no packet matches is nowhere.
        let parts: Vec<Option<Part>> = ranges.iter().map(part).chain([None]).collect();
        let services = Services::of(&parts, words(parts.len()), 100).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for port in 0..=u16::MAX {
            let bit = |(number, &(first, last)): (usize, &(u16, u16))| {
                u64::from((first..=last).contains(&port)) << number
            };
            let expected: u64 = ranges.iter().enumerate().map(bit).sum();
            let class = services.of[usize::from(port)];
            assert_eq!(services.sets[usize::from(class)][0], expected, "{port}");
            seen.insert(expected);
        }
        assert_eq!((seen.len(), services.sets.len()), (6, 6), "no two of the same rules");
        assert!(Services::of(&parts, words(parts.len()), 5).is_none(), "too many");
        assert!(Services::of(&parts[..1], words(1), 5).is_none(), "nothing to tell apart");
        let one: Set = [1 | 1 << 3].into_iter().chain([0; 7]).collect();
        let within = services.within(&[one]).unwrap();
        assert_eq!(within.len(), 6);
        assert!(within.iter().zip(&services.sets).all(|(both, service)| both[0] == service[0] & 9));
    }
}
