//! Entries of one address family by what they say of both addresses: a hash table that is asked once for each pair of prefix lengths that
//! entries have (tuple space search; Srinivasan, Suri and Varghese, "Packet classification using tuple space search", SIGCOMM 1999).
//! So a list of 100,000 prefixes of 20 lengths costs 20 questions, and one of ten prefixes of one length costs one.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use tidemill_lpm::{Address, Prefix};

/// The first entries about a pair of prefixes, by number in the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ports {
    /// That says nothing of a port.
    any: Option<u32>,
    /// By port, in order.
    one: Vec<(u16, u32)>,
}

/// The index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Space<A: Address> {
    /// Lengths of source and destination that occur.
    lengths: Vec<(u8, u8)>,
    entries: HashMap<(Prefix<A>, Prefix<A>), Ports, RandomState>,
}

impl<A: Address> Default for Space<A> {
    fn default() -> Self {
        Space { lengths: Vec::new(), entries: HashMap::default() }
    }
}

impl<A: Address> Space<A> {
    /// Adds the next entry of the list; without a prefix it is about all addresses.
    pub(super) fn add(
        &mut self,
        number: u32,
        source: Option<Prefix<A>>,
        destination: Option<Prefix<A>>,
        port: Option<u16>,
    ) {
        let key = (source.unwrap_or(Prefix::DEFAULT), destination.unwrap_or(Prefix::DEFAULT));
        let lengths = (key.0.len(), key.1.len());
        if !self.lengths.contains(&lengths) {
            self.lengths.push(lengths);
        }
        let ports = self.entries.entry(key).or_default();
        match port {
            None => ports.any = ports.any.or(Some(number)),
            Some(port) => {
                if let Err(at) = ports.one.binary_search_by_key(&port, |one| one.0) {
                    ports.one.insert(at, (port, number));
                }
            }
        }
    }

    /// The first entry that all of this fits.
    pub(super) fn find(&self, source: A, destination: A, port: u16) -> Option<u32> {
        let fit = self.lengths.iter().filter_map(|&(source_len, destination_len)| {
            let key = (Prefix::new(source, source_len)?, Prefix::new(destination, destination_len)?);
            let ports = self.entries.get(&key)?;
            let one = ports.one.binary_search_by_key(&port, |one| one.0).ok().map(|at| ports.one[at].1);
            match (ports.any, one) {
                (Some(any), Some(one)) => Some(any.min(one)),
                (any, one) => any.or(one),
            }
        });
        fit.min()
    }
}
