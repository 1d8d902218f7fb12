//! Making a cross-product: classes of 16 bits, of addresses, and a list for each pair of those. It is made of sets of rules, a bit for each, 32 MiB of them at most for
//! either half of an address, for each address, and for the services: with the lists' table no more than 200 MiB at once.

use super::block::{Block, Blocks, Part};
use super::class::{self, Classes, STRIDE, Set, words};
use super::condition::{Conditions, MOST_CONDITIONS};
use super::service::{MOST_SERVED, Services};
use super::{Address, Cross};
use crate::rule::Match;
use hashbrown::HashMap;
use std::io;
use tidemill_lookup::mem::{Arena, Element, Table};

/// The most pairs of classes of addresses, at four bytes each.
pub const MOST_LISTS: usize = 1 << 23;
/// The most blocks of all lists, at 128 bytes each.
pub const MOST_BLOCKS: usize = 1 << 17;
/// The most rules without addresses.
pub const MOST_EVERYWHERE: usize = 128;

/// Why rules have no cross-product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCrossed {
    /// Classes of addresses, pairs of them, or blocks of lists would be too many.
    #[error("it would be too large")]
    TooLarge,
    /// There are more than [`MOST_CONDITIONS`].
    #[error("its rules have more than {} conditions beside addresses and ports", MOST_CONDITIONS)]
    Conditions,
    /// There are more than [`MOST_EVERYWHERE`] that a packet gets to.
    #[error("it has more than {} rules without addresses", MOST_EVERYWHERE)]
    Everywhere,
    /// A rule asks for bits of an IPv6 address, and not for the ethertype.
    #[error("a rule asks for bits of an IPv6 address, and not for the ethertype")]
    AnyEtherType,
    /// The kernel has none.
    #[error("there is no memory for it")]
    NoMemory,
}
/// As many of them, two blocks, are in every list, if there is room: more make every list longer, and are looked at by themselves.
const FEW_EVERYWHERE: usize = 16;
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
    /// Whether one of them takes more than one block.
    fn has_long(&self) -> bool {
        self.blocks.len() > self.known.len()
    }

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
    /// Whether a list is of one service.
    served: bool,
}

impl<'a> Numbers<'a> {
    fn new(parts: &'a [Option<Part>], conditions: &'a Conditions) -> Self {
        Numbers { parts, conditions, list: Vec::new(), settled: 0, served: false }
    }

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
        if part.has_every_port(self.served) {
            self.settled |= self.conditions.within[usize::from(part.condition)];
        }
    }
}

impl Cross {
    /// Rules in the order in which they win; none asks for words 1 to 3 of a key.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn build(rules: &[Match]) -> Result<Self, NotCrossed> {
        let (conditions, parts) = Conditions::of(rules).ok_or(NotCrossed::Conditions)?;
        let words = words(rules.len());
        let half = |shift: u32| {
            let here = rules.iter().zip(0..).filter(|(rule, _)| rule.mask().0[0] != 0);
            let of = |(rule, number): (&Match, u32)| {
                let [value, mask] = [rule.value().0[0], rule.mask().0[0]].map(|word| (word >> shift) as u16);
                (number, value, mask)
            };
            Classes::of(here.map(of), words)
        };
        let address = |shift: u32| Classed::new(half(shift + 16)?, half(shift)?);
        let (source, sources) = address(32).ok_or(NotCrossed::TooLarge)?;
        let (destination, destinations) = address(0).ok_or(NotCrossed::TooLarge)?;
        let of_address = destinations.len();
        let mut numbers = Numbers::new(&parts, &conditions);
        rules.iter().zip(0..).filter(|(rule, _)| rule.mask().0[0] == 0).for_each(|(_, i)| numbers.add(i));
        let everywhere = std::mem::take(&mut numbers.list);
        if everywhere.len() > MOST_EVERYWHERE {
            return Err(NotCrossed::Everywhere);
        }
        let product =
            Product::of([sources, destinations], &everywhere, &mut numbers).ok_or(NotCrossed::TooLarge)?;
        let served = product.columns / of_address;
        let made = || -> io::Result<Self> {
            let mut arena = Arena::new(source.bytes() + destination.bytes() + product.bytes())?;
            Ok(Cross {
                // A block's two lines are a pair of lines where they begin at an even one.
                blocks: Blocks::new(&mut arena, &product.lists.blocks)?,
                source: source.placed(&mut arena)?,
                destination: destination.placed(&mut arena)?,
                services: placed(&mut arena, &product.services)?,
                served,
                lists: placed(&mut arena, &product.heads)?,
                columns: product.columns,
                everywhere: product.everywhere,
                conditions,
            })
        };
        made().map_err(|_| NotCrossed::NoMemory)
    }
}

/// The same in an arena.
fn placed<T: Element + Copy>(arena: &mut Arena, items: &[T]) -> io::Result<Table<T>> {
    let mut table = arena.table(items.len())?;
    table.copy_from_slice(items);
    Ok(table)
}

/// An address while the rest is made.
struct Classed {
    high: Box<[u16]>,
    low: Box<[u16]>,
    columns: usize,
    pairs: Vec<u16>,
}

impl Classed {
    /// Also the rules of each class. `None`: too many pairs.
    fn new(high: Classes, low: Classes) -> Option<(Self, Vec<Set>)> {
        let (pairs, sets) = class::join(&high.sets, &low.sets)?;
        Some((Classed { columns: low.sets.len(), high: high.of, low: low.of, pairs }, sets))
    }

    /// That it takes of an arena.
    fn bytes(&self) -> usize {
        [self.high.len(), self.low.len(), self.pairs.len()].map(Arena::bytes_for::<u16>).iter().sum()
    }

    fn placed(&self, arena: &mut Arena) -> io::Result<Address> {
        let [high, low] = [placed(arena, &self.high)?, placed(arena, &self.low)?];
        Ok(Address { high, low, columns: self.columns, pairs: placed(arena, &self.pairs)? })
    }
}

/// A list for each pair of classes: of sources, and of destinations or those with a service.
struct Product {
    /// Row by row, where a pair's list begins.
    heads: Vec<u32>,
    columns: usize,
    lists: Lists,
    /// The class of each destination port; empty: all are of one.
    services: Box<[u16]>,
    /// The list of the rules without addresses, where they are in no other.
    everywhere: Option<u32>,
}

impl Product {
    /// That it takes of an arena.
    fn bytes(&self) -> usize {
        let ports = Arena::bytes_for::<u16>(self.services.len());
        ports + Arena::bytes_for::<u32>(self.heads.len()) + Blocks::bytes_for(self.lists.blocks.len())
    }

    /// Of the rules of each class of addresses, in which those without addresses are not.
    fn of(
        [mut sources, mut destinations]: [Vec<Set>; 2],
        everywhere: &[u32],
        numbers: &mut Numbers<'_>,
    ) -> Option<Self> {
        toggle(&mut sources, everywhere);
        toggle(&mut destinations, everywhere);
        let few = everywhere.len() <= FEW_EVERYWHERE;
        let plain = few.then(|| Product::new(&sources, &destinations, numbers)).flatten();
        if plain.as_ref().is_some_and(|plain| !plain.lists.has_long()) {
            return plain;
        }
        let best = Product::served(&sources, &destinations, numbers).or(plain);
        if best.is_some() || everywhere.is_empty() {
            return best;
        }
        toggle(&mut sources, everywhere);
        toggle(&mut destinations, everywhere);
        let mut plain = Product::new(&sources, &destinations, numbers)?;
        plain.everywhere = Some(plain.lists.place(everywhere, numbers.parts)?);
        Some(plain)
    }

    /// With services, if that is not too large.
    fn served(sources: &[Set], destinations: &[Set], numbers: &mut Numbers<'_>) -> Option<Self> {
        let words = sources.first().map_or(0, |set| set.len());
        let most = MOST_SERVED / (sources.len() * destinations.len());
        let services = Services::of(numbers.parts, words, most)?;
        let destinations = services.within(destinations)?;
        numbers.served = true;
        let made = Product::new(sources, &destinations, numbers);
        numbers.served = false;
        Some(Product { services: services.of, ..made? })
    }

    /// Of the rules that are in both classes. `None`: there would be too many.
    fn new(sources: &[Set], destinations: &[Set], numbers: &mut Numbers<'_>) -> Option<Self> {
        let (pairs, words) = (sources.len() * destinations.len(), sources.first().map_or(0, |set| set.len()));
        if pairs > MOST_LISTS || pairs * words > MOST_COMPARED {
            return None;
        }
        if looked_at(sources, destinations, words) > MOST_LOOKED_AT {
            return None;
        }
        let mut lists = Lists { blocks: Vec::new(), known: HashMap::new() };
        let (mut heads, columns) = (Vec::with_capacity(pairs), destinations.len());
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
                heads.push(lists.place(&numbers.list, numbers.parts)?);
            }
        }
        Some(Product { heads, columns, lists, services: Box::default(), everywhere: None })
    }
}

/// Puts rules into sets that have none of them, or takes them out of sets that have all of them.
fn toggle(sets: &mut [Set], rules: &[u32]) {
    for set in sets {
        rules.iter().for_each(|&rule| set[rule as usize / 64] ^= 1 << (rule % 64));
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
