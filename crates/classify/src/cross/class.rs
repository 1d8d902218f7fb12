//! Classes: what the same rules fit.

use hashbrown::HashMap;
use std::collections::BTreeMap;

/// The most pairs of classes of an address's halves, at two bytes each.
pub const MOST_PAIRS: usize = 1 << 22;

/// Values of 16 bits.
const VALUES: usize = 1 << 16;
/// Values that conditions on 16 bits may have together, and different masks.
const MOST_FITTING: usize = 1 << 21;
const MOST_MASKS: usize = 64;
/// Words that the rules of all classes may take, and that may be joined for the pairs of an address.
pub(super) const MOST_WORDS: usize = 1 << 22;
const MOST_JOINED: usize = 1 << 28;

/// Rules by number, a bit for each.
pub(super) type Set = Box<[u64]>;

/// Words of a set are a multiple of this.
pub(super) const STRIDE: usize = 8;

/// Words for so many rules.
pub(super) fn words(rules: usize) -> usize {
    rules.div_ceil(64).next_multiple_of(STRIDE)
}

/// The values of 16 bits by the rules that they fit.
pub(super) struct Classes {
    /// The class of each value.
    pub(super) of: Box<[u16]>,
    /// The rules of each class.
    pub(super) sets: Vec<Set>,
}

impl Classes {
    /// Of rules that ask for a value (which has no bits outside) under a mask, by their numbers. `None`: they are too many, or their masks too odd.
    pub(super) fn of(rules: impl Iterator<Item = (u32, u16, u16)>, words: usize) -> Option<Self> {
        // By mask and value: the rules.
        let mut asked: BTreeMap<(u16, u16), Set> = BTreeMap::new();
        for (number, value, mask) in rules {
            let set = asked.entry((mask, value)).or_insert_with(|| vec![0_u64; words].into());
            set[number as usize / 64] |= 1 << (number % 64);
            if asked.len() * words > MOST_WORDS {
                return None;
            }
        }
        let mut masks: Vec<u16> = asked.keys().map(|&(mask, _)| mask).collect();
        masks.dedup();
        let fitting: usize = asked.keys().map(|(mask, _)| 1_usize << mask.count_zeros()).sum();
        if masks.len() > MOST_MASKS || fitting > MOST_FITTING {
            return None;
        }
        let (of, firsts) = split(asked.keys().copied());
        if firsts.len() * words > MOST_WORDS {
            return None;
        }
        let set = |&first: &u16| {
            let mut set: Set = vec![0_u64; words].into();
            for fitting in masks.iter().filter_map(|&mask| asked.get(&(mask, first & mask))) {
                set.iter_mut().zip(fitting.iter()).for_each(|(word, more)| *word |= more);
            }
            set
        };
        let sets = firsts.iter().map(set).collect();
        Some(Classes { of, sets })
    }
}

/// Values by which of some masks and values they fit: the number of each, and the first value of each number.
fn split(asked: impl Iterator<Item = (u16, u16)>) -> (Box<[u16]>, Vec<u16>) {
    // Each mask and value moves what fits it out of whatever class it was in.
    let (mut class, mut made) = (vec![0_u32; VALUES], 1);
    let mut moved: HashMap<u32, u32> = HashMap::new();
    for (mask, value) in asked {
        moved.clear();
        let mut rest = 0_u16;
        loop {
            let class = &mut class[usize::from(value | rest)];
            *class = *moved.entry(*class).or_insert_with(|| {
                made += 1;
                made - 1
            });
            // The next value of the bits outside the mask, 0 after the last.
            rest = (rest | mask).wrapping_add(1) & !mask;
            if rest == 0 {
                break;
            }
        }
    }
    // Some have been left by all.
    let (mut numbers, mut firsts) = (vec![None; made as usize], Vec::new());
    let of = (0..=u16::MAX).zip(class).map(|(value, class)| {
        *numbers[class as usize].get_or_insert_with(|| {
            firsts.push(value);
            (firsts.len() - 1) as u16
        })
    });
    let of = of.collect();
    (of, firsts)
}

/// The classes of all pairs of two classes, row by row, and the rules of each. `None`: too many.
pub(super) fn join(rows: &[Set], columns: &[Set]) -> Option<(Vec<u16>, Vec<Set>)> {
    let (pairs, words) = (rows.len() * columns.len(), rows.first().map_or(0, |set| set.len()));
    if pairs > MOST_PAIRS || pairs * words > MOST_JOINED {
        return None;
    }
    let mut known: HashMap<Set, u16> = HashMap::new();
    let mut of = Vec::with_capacity(pairs);
    let mut both = vec![0_u64; words];
    for row in rows {
        for column in columns {
            both.iter_mut().zip(row.iter().zip(column.iter())).for_each(|(both, (a, b))| *both = a & b);
            let number = match known.get(&both[..]) {
                Some(&number) => number,
                None => {
                    let number = u16::try_from(known.len()).ok()?;
                    known.insert(both.as_slice().into(), number);
                    if known.len() * words > MOST_WORDS {
                        return None;
                    }
                    number
                }
            };
            of.push(number);
        }
    }
    let mut sets: Vec<(u16, Set)> = known.into_iter().map(|(set, number)| (number, set)).collect();
    sets.sort_unstable_by_key(|&(number, _)| number);
    Some((of, sets.into_iter().map(|(_, set)| set).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_of_one_class_if_they_fit_the_same_rules() {
        let prefix = |length: u32| !u16::MAX.checked_shr(length).unwrap_or(0);
        let rules: Vec<(u16, u16)> = vec![
            (0, 0),
            (0x8000, prefix(1)),
            (0xab00, prefix(8)),
            (0xabcd, prefix(16)),
            (0x0005, 0x000f),
            (0x0105, 0x0f0f),
        ];
        let asked = rules.iter().zip(0..).map(|(&(value, mask), number)| (number, value, mask));
        let classes = Classes::of(asked, words(rules.len())).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for value in 0..=u16::MAX {
            let fit = |number: usize| value & rules[number].1 == rules[number].0;
            let expected = (0..rules.len()).fold(0, |bits, number| bits | u64::from(fit(number)) << number);
            let class = classes.of[usize::from(value)];
            assert_eq!(classes.sets[usize::from(class)][0], expected, "{value:x}");
            seen.insert(expected);
        }
        assert_eq!(seen.len(), classes.sets.len(), "no two of the same rules");
    }

    #[test]
    fn what_would_be_too_large_is_not_made() {
        let exact = (0..=u16::MAX).map(|value| (u32::from(value), value, u16::MAX));
        // As many classes as there can be, each with a bit of its own: the sets are too large.
        assert!(Classes::of(exact, words(VALUES)).is_none());
        // The same with few rules.
        let few = (0..=u16::MAX).map(|value| (u32::from(value % 64), value, u16::MAX));
        let classes = Classes::of(few, words(1)).unwrap();
        assert_eq!((classes.sets.len(), classes.of[0xffff]), (VALUES, 0xffff));
        assert!(join(&classes.sets, &classes.sets).is_none());
        let odd = (0..=MOST_MASKS as u16).map(|i| (0, 0, 1 << 15 | i));
        assert!(Classes::of(odd, words(1)).is_none());
    }
}
