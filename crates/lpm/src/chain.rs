//! Lookups that are long chains of loads, each found by the one before, as coroutines.
//!
//! A trie of one bit per node reads 20 to 40 nodes for a key, one after the other; beyond the caches each is a hundred nanoseconds in
//! which nothing else happens. Here a lookup awaits [`prefetch`] before it reads a node, and others go on meanwhile
//! ([`tidemill_lookup::drive`]; Fu 2020, 2.5 and 4.5.4). Keys of a burst leave at different depths, so places are refilled at once.
//!
//! Members whose loads do not wait for one another (hashes by length), or which go in lock step by hand because their chains are short and
//! alike (LC-trie, range trie, `lengthsearch`), have nothing to gain here; `two-way-trie` answers key by key as its paper's does.
//! The number of coroutines is fixed: a FIB is shared by all workers, and what [`Adaptive`](tidemill_lookup::drive::Adaptive) learns is one's own.

use crate::fib::{Fib, Label};
use crate::prefix::Address;
use std::future::Future;
use tidemill_lookup::drive::{Prefetch, coroutine, prefetch};
use tidemill_lookup::prefetch::prefetch_read;

/// Lookups side by side.
pub const WIDTH: usize = 16;

/// The nodes down to this depth are in the cache, for every key has come by: 2^10 of them are 32 KB at most. No lookup is suspended there.
pub(crate) const IN_CACHE: u8 = 10;

/// A structure whose lookups are chains of loads.
pub trait Chain<A: Address>: Fib<A> {
    /// The answer of [`lookup`](Fib::lookup), as a coroutine: it awaits [`prefetch`] before each load that may miss.
    fn find_suspended(&self, key: A) -> impl Future<Output = Label>;
}

/// [`Fib::lookup_batch`] by coroutines.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn lookup_batch<A: Address>(chain: &impl Chain<A>, keys: &[A], out: &mut [Label]) {
    assert_eq!(keys.len(), out.len(), "as many answers as keys");
    coroutine(keys.len(), WIDTH, |i| chain.find_suspended(keys[i]), |i, label| out[i] = label);
}

/// Asks for a node, whose end may lie on another line than its beginning; to be awaited.
#[inline(always)]
pub(crate) fn ask<T>(node: *const T) -> Prefetch {
    if !64_usize.is_multiple_of(size_of::<T>().max(1)) {
        prefetch_read(node.cast::<u8>().wrapping_add(size_of::<T>().saturating_sub(1)));
    }
    prefetch(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binarytrie::BinaryTrie;
    use crate::keys::{Pattern, Random, keys};
    use crate::patricia::Patricia;
    use crate::prefix::Prefix;
    use crate::rib::Rib;
    use tidemill_lookup::drive::group;

    fn agree<A: Address>(rib: &Rib<A>, chain: &impl Chain<A>) {
        let mut asked: Vec<A> = Pattern::ALL.iter().flat_map(|&pattern| keys(rib, pattern, 300, 7)).collect();
        asked.extend(rib.iter().flat_map(|(prefix, _)| [prefix.first(), prefix.last()]));
        for count in [0, 1, 2, WIDTH - 1, WIDTH, WIDTH + 1, 256, asked.len()] {
            let asked = &asked[asked.len() - count..];
            let plain: Vec<Label> = asked.iter().map(|&key| chain.lookup(key)).collect();
            let (mut batch, mut grouped) = (vec![Label(u32::MAX); count], vec![Label(u32::MAX); count]);
            chain.lookup_batch(asked, &mut batch);
            group(count, 8, |i| chain.find_suspended(asked[i]), |i, label| grouped[i] = label);
            assert!(batch == plain && grouped == plain, "{}: {count} keys", chain.name());
        }
    }

    /// Prefixes of every length, the first of them in one another; so chains of every length.
    fn rib<A: Address>() -> Rib<A> {
        let mut random = Random::new(3);
        let nested = (0..=A::BITS).map(|len| (A::from_u128(0x0a01_0203 << 3), len));
        let others: Vec<(A, u8)> =
            (0..2000).map(|i| (random.address::<A>(), (i % (u32::from(A::BITS) + 1)) as u8)).collect();
        let prefixes = nested.chain(others).map(|(first, len)| Prefix::new(first & A::mask(len), len));
        prefixes.flatten().zip(1..).map(|(prefix, label)| (prefix, Label(label))).collect()
    }

    #[test]
    fn bursts_answer_as_the_plain_lookup() {
        agree(&rib::<u32>(), &BinaryTrie::build(&rib::<u32>()).unwrap());
        agree(&rib::<u128>(), &BinaryTrie::build(&rib::<u128>()).unwrap());
        agree(&rib::<u32>(), &Patricia::build(&rib::<u32>()).unwrap());
        agree(&rib::<u128>(), &Patricia::build(&rib::<u128>()).unwrap());
        agree(&Rib::<u32>::new(), &Patricia::build(&Rib::<u32>::new()).unwrap());
    }
}
