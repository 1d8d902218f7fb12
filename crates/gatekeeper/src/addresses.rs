//! A few addresses of one family, about which every packet from the front is asked.

use crate::family::Gated;

/// To be asked by a look at one bit, and a search where that is set: of strangers' addresses by as many in 64 as ends of six bits are among these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressSet<A> {
    /// By the last six bits of an address: whether there is one that ends so.
    ends: u64,
    sorted: Vec<A>,
}

impl<A> Default for AddressSet<A> {
    fn default() -> Self {
        AddressSet { ends: 0, sorted: Vec::new() }
    }
}

impl<A: Gated> AddressSet<A> {
    pub(crate) fn new(mut addresses: Vec<A>) -> Self {
        addresses.sort_unstable();
        let ends = addresses.iter().fold(0, |ends, address| ends | 1 << (address.words()[1] & 63));
        AddressSet { ends, sorted: addresses }
    }

    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether this is one of them.
    #[inline(always)]
    pub fn has(&self, address: A) -> bool {
        self.ends >> (address.words()[1] & 63) & 1 != 0 && self.is_there(address)
    }

    #[cold]
    fn is_there(&self, address: A) -> bool {
        self.sorted.binary_search(&address).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_what_it_was_made_of() {
        let all = [9, 1 << 6 | 9, 63, u32::MAX, 0x0a00_0001];
        let set = AddressSet::new(all.to_vec());
        assert!(set.len() == all.len() && all.iter().all(|address| set.has(*address)));
        // Of the same ends, and of others.
        let others = [2 << 6 | 9, 62, 0, 1 << 31 | 63, 0x0a00_0041];
        assert!(others.iter().all(|address| !set.has(*address)));
        assert!(!AddressSet::<u128>::default().has(0));
        // Whatever the upper half is.
        assert!(
            AddressSet::new(vec![1_u128 << 64]).has(1 << 64) && !AddressSet::new(vec![1_u128 << 64]).has(0)
        );
    }
}
