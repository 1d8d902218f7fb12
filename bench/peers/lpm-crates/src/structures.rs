//! The crates, each behind the one trait that passes need. Labels are stored as values; keys are integers, turned into
//! what the crate wants where it is asked.

use ip_network_table_deps_treebitmap::IpLookupTable;
use iptrie::map::LCTrieMap;
use iptrie::{Ipv4LCTrieMap, Ipv4Prefix, Ipv4RTrieMap, Ipv6LCTrieMap, Ipv6Prefix, Ipv6RTrieMap};
use poptrie::Poptrie;
use prefix_trie::PrefixMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A route: address, length, label.
pub(crate) type Route<A> = (A, u8, u32);

/// A structure with a table in it.
pub(crate) trait Structure<A> {
    /// Builds it; returns it with the number of routes that it refused.
    fn build(routes: &[Route<A>]) -> (Self, usize)
    where
        Self: Sized;
    /// The label of the longest match; 0 is no route.
    fn lookup(&self, key: A) -> u32;
}

impl Structure<u32> for Poptrie<(u32, u8), u32> {
    fn build(routes: &[Route<u32>]) -> (Self, usize) {
        // One by one it would take hours: each insertion shifts what is behind.
        (routes.iter().map(|&(addr, len, label)| ((addr, len), label)).collect(), 0)
    }
    #[inline(always)]
    fn lookup(&self, key: u32) -> u32 {
        Poptrie::lookup(self, key).copied().unwrap_or(0)
    }
}

impl Structure<u128> for Poptrie<(u128, u8), u32> {
    fn build(routes: &[Route<u128>]) -> (Self, usize) {
        // One by one it would take hours: each insertion shifts what is behind.
        (routes.iter().map(|&(addr, len, label)| ((addr, len), label)).collect(), 0)
    }
    #[inline(always)]
    fn lookup(&self, key: u128) -> u32 {
        Poptrie::lookup(self, key).copied().unwrap_or(0)
    }
}

impl Structure<u32> for PrefixMap<(u32, u8), u32> {
    fn build(routes: &[Route<u32>]) -> (Self, usize) {
        (routes.iter().map(|&(addr, len, label)| ((addr, len), label)).collect(), 0)
    }
    #[inline(always)]
    fn lookup(&self, key: u32) -> u32 {
        self.get_lpm(&(key, 32)).map_or(0, |(_, label)| *label)
    }
}

impl Structure<u128> for PrefixMap<(u128, u8), u32> {
    fn build(routes: &[Route<u128>]) -> (Self, usize) {
        (routes.iter().map(|&(addr, len, label)| ((addr, len), label)).collect(), 0)
    }
    #[inline(always)]
    fn lookup(&self, key: u128) -> u32 {
        self.get_lpm(&(key, 128)).map_or(0, |(_, label)| *label)
    }
}

impl Structure<u32> for IpLookupTable<Ipv4Addr, u32> {
    fn build(routes: &[Route<u32>]) -> (Self, usize) {
        let mut map = IpLookupTable::with_capacity(routes.len());
        routes.iter().for_each(|&(addr, len, label)| _ = map.insert(addr.into(), len.into(), label));
        (map, 0)
    }
    #[inline(always)]
    fn lookup(&self, key: u32) -> u32 {
        self.longest_match(key.into()).map_or(0, |(_, _, label)| *label)
    }
}

impl Structure<u128> for IpLookupTable<Ipv6Addr, u32> {
    fn build(routes: &[Route<u128>]) -> (Self, usize) {
        let mut map = IpLookupTable::with_capacity(routes.len());
        routes.iter().for_each(|&(addr, len, label)| _ = map.insert(addr.into(), len.into(), label));
        (map, 0)
    }
    #[inline(always)]
    fn lookup(&self, key: u128) -> u32 {
        self.longest_match(key.into()).map_or(0, |(_, _, label)| *label)
    }
}

/// Its quickest form: level-compressed, for lookups only. A default route is always there, here with label 0.
impl Structure<u32> for Ipv4LCTrieMap<u32> {
    fn build(routes: &[Route<u32>]) -> (Self, usize) {
        let mut map = Ipv4RTrieMap::with_root_and_capacity(0, routes.len() + 1);
        let mut refused = 0;
        for &(addr, len, label) in routes {
            match Ipv4Prefix::new(addr.into(), len) {
                Ok(prefix) => _ = map.insert(prefix, label),
                Err(_) => refused += 1,
            }
        }
        (map.compress(), refused)
    }
    #[inline(always)]
    fn lookup(&self, key: u32) -> u32 {
        *LCTrieMap::lookup(self, &Ipv4Addr::from(key)).1
    }
}

impl Structure<u128> for Ipv6LCTrieMap<u32> {
    fn build(routes: &[Route<u128>]) -> (Self, usize) {
        let mut map = Ipv6RTrieMap::with_root_and_capacity(0, routes.len() + 1);
        let mut refused = 0;
        for &(addr, len, label) in routes {
            match Ipv6Prefix::new(addr.into(), len) {
                Ok(prefix) => _ = map.insert(prefix, label),
                Err(_) => refused += 1,
            }
        }
        (map.compress(), refused)
    }
    #[inline(always)]
    fn lookup(&self, key: u128) -> u32 {
        *LCTrieMap::lookup(self, &Ipv6Addr::from(key)).1
    }
}
