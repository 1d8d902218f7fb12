//! Cross-products of addresses with short lists (cross-producting: Srinivasan, Varghese, Suri and Waldvogel, "Fast and Scalable Layer Four
//! Switching", SIGCOMM 1998; classes of 16 bits each that are made one in phases: Gupta and McKeown, "Packet Classification on Multiple Fields",
//! SIGCOMM 1999, "recursive flow classification"): for rules that change seldom, beside the [tuple space](crate::tuple) that has them all.
//!
//! ```text
//! source:       high 16 bits --table--> class \
//!               low 16 bits  --table--> class  > class of the source     \
//! destination:  likewise                         class of the destination > first block of a list
//! service:      destination port --table--> class (where there are some)  /
//! list:         the rules with such addresses, the first match first, 8 to a block: port ranges, a condition, the rule's number
//! everywhere:   another list, of the rules that ask for no address: for every key, where it may have an earlier rule
//! ```
//!
//! * A **class** is what the same rules fit: of 16 bits by their value, of two classes by the rules that are in both. So any mask
//!   over an address will do, prefix or not.
//! * A **condition** is what a rule asks for beside addresses and ranges (ethertype, protocol, flags, in-port, ...). There are 64 different ones at
//!   most; which of them a key meets is one word, made once for each key.
//! * Rules without addresses are in every list, where they are 16 at most and there is room for that; there is no list everywhere then.
//! * Where a list is longer than a block, **services** tell lists apart, too, if there are no more than [`MOST_SERVED`] of them with that: classes of destination
//!   ports, which the same rules' ranges have. Then the rules without addresses are in them, however many they are.
//! * Of rules over IPv6 addresses none is in it: [`Crossed`] asks a tuple space for those keys, too.
//!
//! | cost of | lines of 64 bytes |
//! |---|---|
//! | a lookup | 4 of tables of 128 KiB each (5 with services), one for each address, one of the lists' table, two for each block of 8 rules |
//! | a change | none here: a cross-product is made, and does not change. [`Crossed`] keeps account of what has changed since |
//! | a build | all pairs of classes: [`MOST_PAIRS`] for an address, [`MOST_LISTS`] of addresses. What would be larger is not made |
//!
//! What goes wrong for it: rules that all have addresses of their own on both sides (pairs of classes are many), masks of bits scattered over
//! 16 (classes are many), more than 64 conditions, many rules without addresses.

mod block;
mod build;
mod class;
mod condition;
mod crossed;
mod service;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
mod simd;
#[cfg(test)]
mod tests;

pub use build::{MOST_BLOCKS, MOST_EVERYWHERE, MOST_LISTS, NotCrossed};
pub use class::MOST_PAIRS;
pub use condition::MOST_CONDITIONS;
pub use crossed::{Crossed, LEAST};
pub use service::MOST_SERVED;

use crate::key::Key;
use crate::turned::GROUP;
use block::{Blocks, NO_RULE};
use condition::Conditions;
use tidemill_lookup::mem::{OnLines, Table};
use tidemill_lookup::prefetch::prefetch_read;

/// One address: the classes of its halves, and what class those make.
struct Address {
    high: Table<u16>,
    low: Table<u16>,
    /// Classes of the lower half.
    columns: usize,
    pairs: Table<u16>,
}

impl Address {
    /// Where its class stands.
    #[inline(always)]
    fn place(&self, address: u32) -> usize {
        let [high, low] = [self.high[(address >> 16) as usize], self.low[address as usize & 0xffff]];
        usize::from(high) * self.columns + usize::from(low)
    }

    #[inline(always)]
    fn prefetch(&self, place: usize) {
        prefetch_read(self.pairs.as_ptr().wrapping_add(place));
    }

    #[inline(always)]
    fn class(&self, place: usize) -> usize {
        usize::from(self.pairs[place])
    }

    fn bytes(&self) -> usize {
        2 * (self.high.len() + self.low.len() + self.pairs.len())
    }
}

/// The rules of one moment, numbered in the order in which they win. See the [module](self). All tables are of one arena: they are read at random, and
/// on pages of 4 KiB each would take one of the few places that a core has for translations.
struct Cross {
    source: Address,
    destination: Address,
    /// The class of each destination port; empty: all are of one.
    services: Table<u16>,
    /// Their classes.
    served: usize,
    /// By the classes of source, destination and service: where their list begins.
    lists: Table<u32>,
    /// Classes of destinations, times those of services.
    columns: usize,
    blocks: Blocks,
    /// Where the list of rules without addresses begins, if they are in no other.
    everywhere: Option<u32>,
    conditions: Conditions,
}

impl Cross {
    /// The number of the first match of each key, [`NO_RULE`] if there is none. `keys` are [`GROUP`] at most, and those of `out` beyond them are of
    /// no meaning.
    #[inline]
    fn find(&self, keys: &[Key], out: &mut [u32; GROUP]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(avx512) = crate::cpu::Avx512::new() {
            avx512.find(self, keys, out);
            return;
        }
        self.find_scalar(keys, out);
    }

    /// The same without vectors: the specification.
    fn find_scalar(&self, keys: &[Key], out: &mut [u32; GROUP]) {
        let mut heads = OnLines([0; GROUP]);
        self.heads(keys, &mut heads);
        for ((key, &head), out) in keys.iter().zip(&*heads).zip(out) {
            let (ports, met) = (ports(key), self.conditions.met(key));
            *out = self.walk(head, NO_RULE, ports, met);
            if let Some(everywhere) = self.everywhere {
                *out = self.walk(everywhere, *out, ports, met);
            }
        }
    }

    /// Where the lists of keys begin, phase by phase for all of them, so that waits for memory overlap. The lists are on their way.
    #[inline(always)]
    fn heads(&self, keys: &[Key], heads: &mut [u32; GROUP]) {
        let mut places = OnLines([[0; 2]; GROUP]);
        for (place, key) in places.iter_mut().zip(keys) {
            *place = [self.source.place((key.0[0] >> 32) as u32), self.destination.place(key.0[0] as u32)];
            self.source.prefetch(place[0]);
            self.destination.prefetch(place[1]);
        }
        let mut entries = OnLines([0; GROUP]);
        for ((entry, place), key) in entries.iter_mut().zip(*places).zip(keys) {
            let column = self.destination.class(place[1]) * self.served + self.service(key);
            *entry = self.source.class(place[0]) * self.columns + column;
            prefetch_read(self.lists.as_ptr().wrapping_add(*entry));
        }
        for ((head, entry), _) in heads.iter_mut().zip(*entries).zip(keys) {
            *head = self.lists[entry];
            self.blocks.prefetch(*head);
        }
    }

    #[inline(always)]
    fn service(&self, key: &Key) -> usize {
        let port = ports(key) as u16;
        self.services.get(usize::from(port)).map_or(0, |&class| usize::from(class))
    }

    /// The first rule of a list that matches, if that is less than `best`, else `best`.
    #[inline(always)]
    fn walk(&self, head: u32, best: u32, ports: u32, met: u64) -> u32 {
        let mut at = head as usize;
        loop {
            let block = self.blocks.block(at);
            if block.number[0] >= best {
                return best;
            }
            if let Some(lane) = block.first_match(ports, met) {
                return block.number[lane].min(best);
            }
            if block.is_last() {
                return best;
            }
            at += 1;
        }
    }

    /// Lines of 64 bytes that a lookup touches, but for the tables of 16 bits, which stay in the caches.
    fn lines(&self, key: &Key) -> usize {
        let (mut heads, mut blocks) = ([0; GROUP], 0);
        self.heads(std::slice::from_ref(key), &mut heads);
        let (ports, met, mut best) = (ports(key), self.conditions.met(key), NO_RULE);
        for head in [Some(heads[0]), self.everywhere].into_iter().flatten() {
            for block in (head as usize..).map(|at| self.blocks.block(at)) {
                if block.number[0] >= best {
                    break;
                }
                blocks += 1;
                let found = block.first_match(ports, met).map(|lane| block.number[lane]);
                best = best.min(found.unwrap_or(NO_RULE));
                if found.is_some() || block.is_last() {
                    break;
                }
            }
        }
        3 + 2 * blocks
    }

    fn bytes(&self) -> usize {
        let ports = 2 * self.services.len();
        self.source.bytes() + self.destination.bytes() + ports + 4 * self.lists.len() + self.blocks.bytes()
    }
}

/// Source and destination port of a key in one word.
#[inline(always)]
fn ports(key: &Key) -> u32 {
    (key.0[4] >> 32) as u32
}
