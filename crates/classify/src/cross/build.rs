//! Making a cross-product: classes of 16 bits, of addresses, and a list for each pair of those.

use super::block::{Block, Part};
use super::class::{Classes, STRIDE, Set, words};
use super::condition::Conditions;
use super::{Address, Cross};
use crate::rule::Match;
use hashbrown::HashMap;

/// The most pairs of classes of addresses, at four bytes each.
pub const MOST_LISTS: usize = 1 << 23;
/// The most blocks of all lists, at 128 bytes each.
pub const MOST_BLOCKS: usize = 1 << 17;
/// The most rules without addresses: they are looked at for every key.
pub const MOST_EVERYWHERE: usize = 128;
/// Words of rules that are compared for all pairs.
const MOST_COMPARED: usize = 1 << 30;
/// Rules that are looked at for all pairs, however few of them come to be in lists.
const MOST_LOOKED_AT: usize = 1 << 30;

/// Lists, each stored once.
struct Lists {
    blocks: Vec<Block>,
    /// Where the list of these numbers begins.
    known: HashMap<Box<[u32]>, u32>,
}

impl Lists {
    /// Where a list begins. `None`: there is no room.
    fn place(&mut self, numbers: &[u32], parts: &[Option<Part>]) -> Option<u32> {
        if let Some(&first) = self.known.get(numbers) {
            return Some(first);
        }
        let first = self.blocks.len() as u32;
        self.blocks.extend(Block::list(numbers, parts));
        self.known.insert(numbers.into(), first);
        (self.blocks.len() <= MOST_BLOCKS).then_some(first)
    }
}

/// The numbers of a list while it is made.
struct Numbers<'a> {
    parts: &'a [Option<Part>],
    conditions: &'a Conditions,
    list: Vec<u32>,
    /// Conditions of which every packet has an earlier match.
    settled: u64,
}

impl Numbers<'_> {
    fn begin(&mut self) {
        self.list.clear();
        self.settled = 0;
    }

    /// Another rule, behind the others, unless no packet gets to it.
    fn add(&mut self, number: u32) {
        let Some(part) = &self.parts[number as usize] else { return };
        if self.settled >> part.condition & 1 != 0 {
            return;
        }
        self.list.push(number);
        if part.has_every_port() {
            self.settled |= self.conditions.within[usize::from(part.condition)];
        }
    }
}

impl Cross {
    /// Rules in the order in which they win; none asks for words 1 to 3 of a key. `None`: it would be too large, or has too many conditions.
    pub(super) fn build(rules: &[Match]) -> Option<Self> {
        let (conditions, parts) = Conditions::of(rules)?;
        let words = words(rules.len());
        let half = |shift: u32| {
            let here = rules.iter().zip(0..).filter(|(rule, _)| rule.mask().0[0] != 0);
            let of = |(rule, number): (&Match, u32)| {
                let [value, mask] = [rule.value().0[0], rule.mask().0[0]].map(|word| (word >> shift) as u16);
                (number, value, mask)
            };
            Classes::of(here.map(of), words)
        };
        let (source, sources) = Address::new(half(48)?, half(32)?)?;
        let (destination, destinations) = Address::new(half(16)?, half(0)?)?;
        let mut lists = Lists { blocks: Vec::new(), known: HashMap::new() };
        let mut numbers = Numbers { parts: &parts, conditions: &conditions, list: Vec::new(), settled: 0 };
        let of_pairs = pairs(&sources, &destinations, &mut numbers, &mut lists)?;
        numbers.begin();
        rules.iter().zip(0..).filter(|(rule, _)| rule.mask().0[0] == 0).for_each(|(_, i)| numbers.add(i));
        if numbers.list.len() > MOST_EVERYWHERE {
            return None;
        }
        let everywhere = lists.place(&numbers.list, &parts)?;
        Some(Cross {
            source,
            destination,
            lists: of_pairs,
            columns: destinations.len(),
            blocks: lists.blocks,
            everywhere,
            conditions,
        })
    }
}

/// How many rules all pairs of classes have together, whose sets are of so many words.
fn looked_at(sources: &[Set], destinations: &[Set], words: usize) -> usize {
    let classes = |sets: &[Set]| {
        let mut classes = vec![0_usize; 64 * words];
        for set in sets {
            for (word, mut rules) in set.iter().copied().enumerate() {
                while rules != 0 {
                    classes[64 * word + rules.trailing_zeros() as usize] += 1;
                    rules &= rules - 1;
                }
            }
        }
        classes
    };
    let of_each = classes(sources).into_iter().zip(classes(destinations));
    of_each.map(|(sources, destinations)| sources * destinations).sum()
}

/// Of each pair of classes, row by row: where the list of the rules that are in both begins.
fn pairs(
    sources: &[Set],
    destinations: &[Set],
    numbers: &mut Numbers<'_>,
    lists: &mut Lists,
) -> Option<Vec<u32>> {
    let (pairs, words) = (sources.len() * destinations.len(), sources.first().map_or(0, |set| set.len()));
    if pairs > MOST_LISTS || pairs * words > MOST_COMPARED {
        return None;
    }
    if looked_at(sources, destinations, words) > MOST_LOOKED_AT {
        return None;
    }
    let mut of_pairs = Vec::with_capacity(pairs);
    for source in sources {
        for destination in destinations {
            numbers.begin();
            let [source, destination] = [source, destination].map(|set| set.as_chunks::<STRIDE>().0);
            for (i, (source, destination)) in source.iter().zip(destination).enumerate() {
                let both: [u64; STRIDE] = std::array::from_fn(|word| source[word] & destination[word]);
                if both == [0; STRIDE] {
                    continue;
                }
                for (mut rules, word) in both.into_iter().zip(i * STRIDE..) {
                    while rules != 0 {
                        numbers.add(word as u32 * 64 + rules.trailing_zeros());
                        rules &= rules - 1;
                    }
                }
            }
            of_pairs.push(lists.place(&numbers.list, numbers.parts)?);
        }
    }
    Some(of_pairs)
}
