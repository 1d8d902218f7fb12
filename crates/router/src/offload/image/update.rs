//! Single prefixes made anew.

use super::{Entry, FIRST, Full, Image, NODE, STRIDE, leaf, place, slot};
use std::sync::atomic::AtomicU64;
use tidemill_lpm::{Address, Label, Prefix, Rib};

/// Shorter prefixes are as good as everything.
const BROADEST: u8 = 8;

impl Image {
    /// Whether so much lies in a prefix that [`build`](Self::build) is the better way.
    pub fn is_broad<A: Address>(prefix: Prefix<A>) -> bool {
        prefix.len() < BROADEST
    }

    /// Makes what lies in a prefix what the RIB says of it now.
    ///
    /// # Errors
    /// It does not fit; the image is to be built anew then.
    pub fn update<A: Address>(
        &mut self,
        words: &[AtomicU64],
        rib: &Rib<A>,
        prefix: Prefix<A>,
    ) -> Result<(), Full> {
        if prefix.len() > FIRST {
            let slot = slot(prefix.first());
            let before = self.read_direct::<A>(words, slot);
            let entry = self.patch(words, rib, prefix, FIRST, before)?;
            self.set_direct::<A>(words, slot, entry);
            return Ok(());
        }
        for slot in slot(prefix.first())..=slot(prefix.last()) {
            let address = A::from_u128(slot as u128) << usize::from(A::BITS - FIRST);
            let Some(block) = Prefix::new(address, FIRST) else { continue };
            let before = self.read_direct::<A>(words, slot);
            self.give_back_all(words, before);
            let routes: Vec<_> = inside(rib, block, FIRST);
            let entry = self.block(words, &routes, FIRST, inherited(rib, block))?;
            self.set_direct::<A>(words, slot, entry);
        }
        Ok(())
    }

    fn read_direct<A: Address>(&self, words: &[AtomicU64], slot: usize) -> Entry {
        super::load_half(words, self.direct::<A>(slot))
    }

    /// The entry of the block of `depth` bits that a longer prefix lies in, which was `before`.
    fn patch<A: Address>(
        &mut self,
        words: &[AtomicU64],
        rib: &Rib<A>,
        prefix: Prefix<A>,
        depth: u8,
        before: Entry,
    ) -> Result<Entry, Full> {
        let mut places = self.get(words, before);
        let (first, last) = (place(prefix.first(), depth), place(prefix.last(), depth));
        if prefix.len() > depth + STRIDE {
            places[first] = self.patch(words, rib, prefix, depth + STRIDE, places[first])?;
        } else {
            places[first..=last]
                .iter()
                .filter(|entry| **entry & NODE != 0)
                .for_each(|entry| self.give_back_all(words, *entry));
            places[first..=last].fill(inherited(rib, prefix));
            self.paint(words, &inside(rib, prefix, depth), depth, &mut places)?;
        }
        self.give_back(words, before);
        self.put(words, &places)
    }
}

/// The routes within a block that are longer than so many bits.
fn inside<A: Address>(rib: &Rib<A>, block: Prefix<A>, depth: u8) -> Vec<(Prefix<A>, Label)> {
    rib.inside(block).filter(|(prefix, _)| prefix.len() > depth).collect()
}

/// The entry of a block that has no route within it.
fn inherited<A: Address>(rib: &Rib<A>, block: Prefix<A>) -> Entry {
    rib.covering(block).map_or(0, |(_, label)| leaf(label))
}
