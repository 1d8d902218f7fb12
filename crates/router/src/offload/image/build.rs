//! Routes written whole.

use super::{Entry, FIRST, Full, Image, NODES, STRIDE, leaf, place, slot};
use std::sync::atomic::AtomicU64;
use tidemill_lpm::{Address, Label, Prefix, Rib};

/// Routes by address and then length.
pub(super) type Routes<'a, A> = &'a [(Prefix<A>, Label)];

impl Image {
    /// Lines that an image of these routes has, if it is written whole.
    pub fn measure(rib4: &Rib<u32>, rib6: &Rib<u128>) -> u32 {
        let mut image = Image::new(0, u32::MAX);
        // No line is written, and none is missing.
        match image.build(&[], rib4, rib6) {
            Ok(()) => image.lines(),
            Err(Full) => u32::MAX,
        }
    }

    /// Writes all routes; what was there goes.
    ///
    /// # Errors
    /// They do not fit; the image is to be built anew then.
    pub fn build(&mut self, words: &[AtomicU64], rib4: &Rib<u32>, rib6: &Rib<u128>) -> Result<(), Full> {
        if self.end - self.start < NODES {
            return Err(Full);
        }
        self.next = self.start + NODES;
        self.free.iter_mut().for_each(Vec::clear);
        self.family(words, rib4)?;
        self.family(words, rib6)
    }

    fn family<A: Address>(&mut self, words: &[AtomicU64], rib: &Rib<A>) -> Result<(), Full> {
        let routes: Vec<(Prefix<A>, Label)> = rib.iter().collect();
        let mut slots: Vec<Entry> = vec![0; 1 << FIRST];
        for (prefix, label) in routes.iter().filter(|(prefix, _)| prefix.len() <= FIRST) {
            slots[slot(prefix.first())..=slot(prefix.last())].fill(leaf(*label));
        }
        for routes in deeper(&routes, FIRST).chunk_by(|a, b| slot(a.0.first()) == slot(b.0.first())) {
            let Some((prefix, _)) = routes.first() else { continue };
            let entry = &mut slots[slot(prefix.first())];
            *entry = self.block(words, routes, FIRST, *entry)?;
        }
        for (slot, entry) in slots.into_iter().enumerate() {
            self.set_direct::<A>(words, slot, entry);
        }
        Ok(())
    }

    /// The entry of a block of `depth` bits: of routes that are longer than that, and of `inherited` between them.
    pub(super) fn block<A: Address>(
        &mut self,
        words: &[AtomicU64],
        routes: Routes<'_, A>,
        depth: u8,
        inherited: Entry,
    ) -> Result<Entry, Full> {
        if routes.is_empty() {
            return Ok(inherited);
        }
        let mut places = [inherited; 256];
        self.paint(words, routes, depth, &mut places)?;
        self.put(words, &places)
    }

    /// Writes routes of a block, all longer than its `depth` bits, over what its places have from shorter ones.
    pub(super) fn paint<A: Address>(
        &mut self,
        words: &[AtomicU64],
        routes: Routes<'_, A>,
        depth: u8,
        places: &mut [Entry; 256],
    ) -> Result<(), Full> {
        // A parent comes before its children.
        for (prefix, label) in routes.iter().filter(|(prefix, _)| prefix.len() <= depth + STRIDE) {
            places[place(prefix.first(), depth)..=place(prefix.last(), depth)].fill(leaf(*label));
        }
        let same = |a: &(Prefix<A>, Label), b: &(Prefix<A>, Label)| {
            place(a.0.first(), depth) == place(b.0.first(), depth)
        };
        for routes in deeper(routes, depth + STRIDE).chunk_by(same) {
            let Some((prefix, _)) = routes.first() else { continue };
            let entry = &mut places[place(prefix.first(), depth)];
            *entry = self.block(words, routes, depth + STRIDE, *entry)?;
        }
        Ok(())
    }
}

/// The routes that are longer than so many bits.
fn deeper<A: Address>(routes: Routes<'_, A>, depth: u8) -> Vec<(Prefix<A>, Label)> {
    routes.iter().filter(|(prefix, _)| prefix.len() > depth).copied().collect()
}
