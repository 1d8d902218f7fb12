//! Static mappings, sorted: found in the steps of a binary search, however many there are.

use crate::nat::ip::{Endpoint, Proto};
use crate::nat::settings::Plan;

/// See the [module](self).
pub(crate) struct Statics<A> {
    /// Mappings of ports: what they look like, and their hosts.
    ports: Box<[(Proto, Endpoint<A>, A)]>,
    /// Whole addresses and their hosts.
    addresses: Box<[(A, A)]>,
    /// Hosts and their whole addresses.
    hosts: Box<[(A, A)]>,
}

impl<A: Copy + Ord> Statics<A> {
    pub(crate) fn new(plan: &Plan<A>) -> Self {
        let ports = plan.fixed.iter().map(|(proto, inside, outside)| (*proto, *outside, inside.address));
        let mut ports: Vec<_> = ports.collect();
        let mut addresses = plan.whole.clone();
        let mut hosts: Vec<(A, A)> = addresses.iter().map(|(outside, host)| (*host, *outside)).collect();
        ports.sort_unstable();
        addresses.sort_unstable();
        hosts.sort_unstable();
        Statics { ports: ports.into(), addresses: addresses.into(), hosts: hosts.into() }
    }

    /// The inside host that what looks like this always is: by its port, or by the whole address.
    pub(crate) fn host_at(&self, proto: Proto, outside: Endpoint<A>) -> Option<A> {
        self.host_of_port(proto, outside).or_else(|| self.host_of(outside.address))
    }

    /// The inside host that a port of the pool always is.
    fn host_of_port(&self, proto: Proto, outside: Endpoint<A>) -> Option<A> {
        let at = self.ports.binary_search_by(|(p, end, _)| (*p, *end).cmp(&(proto, outside))).ok()?;
        Some(self.ports[at].2)
    }

    /// The inside host that has a whole address of the pool.
    pub(crate) fn host_of(&self, outside: A) -> Option<A> {
        second(&self.addresses, outside)
    }

    /// The whole address that an inside host has.
    pub(crate) fn address_of(&self, host: A) -> Option<A> {
        second(&self.hosts, host)
    }
}

fn second<A: Copy + Ord>(pairs: &[(A, A)], first: A) -> Option<A> {
    let at = pairs.binary_search_by(|(one, _)| one.cmp(&first)).ok()?;
    Some(pairs[at].1)
}
