//! What each inside host has, so that none has all of it: mappings and sessions are counted by host, and where hosts choose their own
//! addresses (IPv6) by network, too: a /64 is one link's, and whoever is on it may take any address of it.
//!
//! A host is known as long as it has a mapping; one with a static mapping always.

use super::{LANES, insert};
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::settings::Plan;
use tidemill_burst::DropReason;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::hash::{KeyHash, Keyed};
use tidemill_flow::key::Key;
use tidemill_flow::table::SizeError;

#[derive(Debug, Clone, Copy)]
struct Host<A> {
    address: A,
    /// The number of its address in the pool.
    at: Option<u16>,
    /// Mappings that are its, and whether it is there for ever (1).
    uses: u32,
    /// Of these, mappings that it keeps.
    mappings: u32,
    /// Sessions that it has begun.
    sessions: u32,
    /// Its network's number; of IPv4 none.
    network: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Network {
    hosts: u32,
    mappings: usize,
    sessions: usize,
}

/// See the [module](self).
pub(super) struct Hosts<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize> {
    numbers: FlowTable<E, u64>,
    hosts: Box<[Host<A>]>,
    free: Vec<u32>,
    /// By the upper half of their addresses.
    network_numbers: FlowTable<1, u64>,
    networks: Box<[Network]>,
    free_networks: Vec<u32>,
    most: Most,
}

/// What one may have.
struct Most {
    mappings: u32,
    sessions: u32,
    network_mappings: usize,
    network_sessions: usize,
}

/// The upper half of an IPv6 address: who has a link has all addresses of it.
pub(super) fn network<A: Into<u128>>(address: A) -> Key<1> {
    Key([(address.into() >> 64) as u64])
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Hosts<A, E, S, T> {
    pub(super) fn new(plan: &Plan<A>, secrets: [u128; 2]) -> Result<Self, SizeError> {
        let room = plan.mappings + plan.fixed.len() + plan.whole.len();
        let slots = |room: usize| room + room / 16 + LANES;
        let networks = if A::V6 { room } else { 0 };
        let none = Host { address: A::default(), at: None, uses: 0, mappings: 0, sessions: 0, network: None };
        Ok(Hosts {
            numbers: FlowTable::new(slots(room), Keyed::new(secrets[0]))?,
            hosts: vec![none; room].into(),
            free: (0..room as u32).rev().collect(),
            network_numbers: FlowTable::new(slots(networks), Keyed::new(secrets[1]))?,
            networks: vec![Network::default(); networks].into(),
            free_networks: (0..networks as u32).rev().collect(),
            most: Most {
                mappings: plan.host_mappings,
                sessions: plan.host_sessions,
                network_mappings: plan.network_mappings,
                network_sessions: plan.network_sessions,
            },
        })
    }

    /// Bytes of memory for each host that there is room for.
    pub(super) const BYTES_PER_HOST: f64 = {
        let slots = 17.0 / 16.0;
        let network = FlowTable::<1, u64>::BYTES_PER_SLOT * slots + size_of::<Network>() as f64 + 4.0;
        let own = FlowTable::<E, u64>::BYTES_PER_SLOT * slots + size_of::<Host<A>>() as f64 + 4.0;
        if A::V6 { own + network } else { own }
    };

    pub(super) fn bytes(&self) -> usize {
        self.numbers.bytes()
            + self.network_numbers.bytes()
            + self.hosts.len() * (size_of::<Host<A>>() + 4)
            + self.networks.len() * (size_of::<Network>() + 4)
    }

    fn key(&self, address: A) -> (Key<E>, u64) {
        let key = A::endpoint(Proto::Tcp, Endpoint { address, port: 0 });
        (key, self.numbers.hasher().hash(&key))
    }

    /// Whose number is chosen by a secret: where a new host looks for an address first.
    pub(super) fn hash(&self, address: A) -> u64 {
        self.key(address).1
    }

    pub(super) fn find(&self, address: A) -> Option<u32> {
        let (key, hash) = self.key(address);
        self.numbers.find(hash, &key).map(|slot| self.numbers.state(slot) as u32)
    }

    /// The host's number; of a new one, that nothing uses yet. `None`: there is no room.
    pub(super) fn find_or_make(&mut self, address: A) -> Option<u32> {
        if let Some(host) = self.find(address) {
            return Some(host);
        }
        let &number = self.free.last()?;
        let network = if A::V6 { Some(self.join(address)?) } else { None };
        let (key, hash) = self.key(address);
        let Some(slot) = insert(&mut self.numbers, hash, &key) else {
            self.part(network, address);
            return None;
        };
        self.numbers.set_word(slot, 0, number.into());
        self.free.pop();
        self.hosts[number as usize] = Host { address, at: None, uses: 0, mappings: 0, sessions: 0, network };
        Some(number)
    }

    /// The network of a new host.
    fn join(&mut self, address: A) -> Option<u32> {
        let key = network(address);
        let hash = self.network_numbers.hasher().hash(&key);
        let number = match self.network_numbers.find(hash, &key) {
            Some(slot) => self.network_numbers.state(slot) as u32,
            None => {
                let &number = self.free_networks.last()?;
                let slot = insert(&mut self.network_numbers, hash, &key)?;
                self.network_numbers.set_word(slot, 0, number.into());
                self.free_networks.pop();
                self.networks[number as usize] = Network::default();
                number
            }
        };
        self.networks[number as usize].hosts += 1;
        Some(number)
    }

    fn part(&mut self, number: Option<u32>, address: A) {
        let Some(number) = number else { return };
        let network_of = &mut self.networks[number as usize];
        network_of.hosts -= 1;
        if network_of.hosts == 0 {
            let key = network(address);
            self.network_numbers.remove(self.network_numbers.hasher().hash(&key), &key);
            self.free_networks.push(number);
        }
    }

    /// The number of the host's address in the pool, once it has one.
    pub(super) fn at(&self, host: u32) -> Option<usize> {
        self.hosts[host as usize].at.map(usize::from)
    }

    /// Gives it one, for as long as it is known.
    pub(super) fn settle(&mut self, host: u32, at: usize) {
        self.hosts[host as usize].at.get_or_insert(at as u16);
    }

    /// A mapping of it is there.
    pub(super) fn enroll(&mut self, host: u32) {
        self.hosts[host as usize].uses += 1;
    }

    /// That mapping is gone, or was not made: with the last one the host is forgotten.
    pub(super) fn leave(&mut self, host: u32) {
        self.hosts[host as usize].uses -= 1;
        self.forget_unused(host);
    }

    pub(super) fn forget_unused(&mut self, host: u32) {
        let Host { address, uses: 0, network, .. } = self.hosts[host as usize] else { return };
        let (key, hash) = self.key(address);
        self.numbers.remove(hash, &key);
        self.free.push(host);
        self.part(network, address);
    }

    /// Whether it may keep one more mapping.
    pub(super) fn may_keep(&self, host: u32) -> Result<(), DropReason> {
        let Host { mappings, network, .. } = self.hosts[host as usize];
        let of_network = network.map_or(0, |network| self.networks[network as usize].mappings);
        if mappings >= self.most.mappings || of_network >= self.most.network_mappings {
            return Err(DropReason::NatHostLimit);
        }
        Ok(())
    }

    /// Whether it may begin one more session.
    pub(super) fn may_begin(&self, host: u32) -> Result<(), DropReason> {
        let Host { sessions, network, .. } = self.hosts[host as usize];
        let of_network = network.map_or(0, |network| self.networks[network as usize].sessions);
        if sessions >= self.most.sessions || of_network >= self.most.network_sessions {
            return Err(DropReason::NatHostSessions);
        }
        Ok(())
    }

    /// It keeps one more mapping (`more`) or one less.
    pub(super) fn count_mapping(&mut self, host: u32, more: bool) {
        let host = &mut self.hosts[host as usize];
        host.mappings = if more { host.mappings + 1 } else { host.mappings - 1 };
        if let Some(network) = host.network {
            let network = &mut self.networks[network as usize];
            network.mappings = if more { network.mappings + 1 } else { network.mappings - 1 };
        }
    }

    /// It has begun one more session (`more`), or one has ended.
    pub(super) fn count_session(&mut self, host: u32, more: bool) {
        let host = &mut self.hosts[host as usize];
        host.sessions = if more { host.sessions + 1 } else { host.sessions - 1 };
        if let Some(network) = host.network {
            let network = &mut self.networks[network as usize];
            network.sessions = if more { network.sessions + 1 } else { network.sessions - 1 };
        }
    }

    /// Of a host: mappings that it keeps, sessions that it has begun.
    pub(super) fn counts(&self, address: A) -> (u32, u32) {
        self.find(address).map_or((0, 0), |host| {
            let Host { mappings, sessions, .. } = self.hosts[host as usize];
            (mappings, sessions)
        })
    }
}
