//! New mappings: whose address of the pool, which port.

use super::{Piece, Sort, State};
use crate::nat::config::Pooling;
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::ports::REGISTERED;
use crate::nat::tcp::Tcp;
use tidemill_burst::DropReason;
use tidemill_flow::hash::mix;

/// Addresses that a new host looks at.
const BESIDE: usize = 16;

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
    /// Makes a mapping.
    pub(super) fn map(&mut self, proto: Proto, inside: Endpoint<A>) -> Result<u32, DropReason> {
        // Nobody inside has an address of the pool: what answers it would leave again.
        if self.is_pool(inside.address) {
            return Err(DropReason::MartianSource);
        }
        if let Some(host) = self.hosts.find(inside.address) {
            self.hosts.may_keep(host)?;
        }
        if !self.make_mapping_room(|state| !state.free.is_empty()) {
            return Err(DropReason::NatTableFull);
        }
        let host = self.hosts.find_or_make(inside.address).ok_or(DropReason::NatTableFull)?;
        let made = self.map_of(proto, inside, host);
        if made.is_err() {
            self.hosts.forget_unused(host);
        }
        made
    }

    fn map_of(&mut self, proto: Proto, inside: Endpoint<A>, host: u32) -> Result<u32, DropReason> {
        self.hosts.may_keep(host)?;
        if let Some(address) = self.statics.address_of(inside.address) {
            return self.take_whole(proto, inside, Endpoint { address, port: inside.port }, host);
        }
        let (at, port) = self.port_for(proto, inside, self.hosts.at(host))?;
        let outside = Endpoint { address: self.plan.pool[at], port };
        let made = self.enroll(proto, inside, outside, at, Sort::Dynamic, host);
        match made {
            Ok(_) => self.hosts.settle(host, at),
            Err(_) => self.ports[at][proto as usize].give_back(port),
        }
        made
    }

    /// The mapping of a whole address, by a packet from outside.
    pub(super) fn map_whole(
        &mut self,
        inside: Endpoint<A>,
        outside: Endpoint<A>,
        piece: Piece,
    ) -> Result<u32, DropReason> {
        let may_begin = match piece {
            Piece::Tcp(flags) => Tcp::may_begin_outside(flags),
            Piece::Udp | Piece::Request => true,
            Piece::Reply => false,
        };
        if !may_begin {
            return Err(DropReason::NatUnasked);
        }
        // As with sessions: what nobody inside keeps takes one half at most, and what need not be followed one quarter.
        let half = self.mappings.len() / 2;
        let has_room = match piece {
            Piece::Tcp(_) => {
                self.make_mapping_room(|state| state.unkept < half.max(1) && !state.free.is_empty())
            }
            _ => self.unkept < half / 2 && !self.free.is_empty(),
        };
        if !has_room {
            return Err(DropReason::NatTableFull);
        }
        let host = self.hosts.find(inside.address).ok_or(DropReason::NatTableFull)?;
        self.take_whole(piece.proto(), inside, outside, host)
    }

    fn take_whole(
        &mut self,
        proto: Proto,
        inside: Endpoint<A>,
        outside: Endpoint<A>,
        host: u32,
    ) -> Result<u32, DropReason> {
        let at = self.plan.pool.binary_search(&outside.address).map_err(|_| DropReason::NatUnmapped)?;
        if !self.ports[at][proto as usize].take(outside.port) {
            return Err(DropReason::NatPortsExhausted);
        }
        self.enroll(proto, inside, outside, at, Sort::Whole, host)
            .inspect_err(|_| self.ports[at][proto as usize].give_back(outside.port))
    }

    /// An address of the pool, by number, and a port of it, which is taken.
    fn port_for(
        &mut self,
        proto: Proto,
        inside: Endpoint<A>,
        paired: Option<usize>,
    ) -> Result<(usize, u16), DropReason> {
        if let Some(deterministic) = self.plan.deterministic {
            let (at, block) = deterministic.of_host(inside.address).ok_or(DropReason::NatHostUnknown)?;
            let start = block.start() + (self.draw() % u64::from(deterministic.ports)) as u16;
            let start = if block.contains(&inside.port) { inside.port } else { start };
            let ports = &mut self.ports[at][proto as usize];
            let parity = (proto == Proto::Udp).then_some(inside.port & 1);
            // All of a block is better than parity.
            let port =
                ports.search(block.clone(), start, parity).or_else(|| ports.search(block, start, None));
            return port.map(|port| (at, port)).ok_or(DropReason::NatPortsExhausted);
        }
        let shared = self.shared.len();
        if shared == 0 {
            return Err(DropReason::NatPortsExhausted);
        }
        let own = paired.and_then(|at| self.shared.binary_search(&(at as u16)).ok());
        let first = own.unwrap_or((self.hosts.hash(inside.address) >> 32) as usize % shared);
        // A new host looks at a few addresses beside its own; one that has an address keeps it, if told so.
        let is_bound = own.is_some() && self.plan.pooling == Pooling::Paired;
        let tries = if is_bound { 1 } else { shared.min(BESIDE) };
        // Where these have none, each try goes on where the last one has ended, so that a host that asks again comes to all of them.
        let further = if is_bound { 0 } else { (shared - tries).min(BESIDE) };
        for step in 0..tries + further {
            let mut number = first + step;
            if step >= tries {
                number = self.further;
                self.further = (number + 1) % shared;
            }
            let at = usize::from(self.shared[number % shared]);
            if let Some(port) = self.port_of(at, proto, inside.port) {
                return Ok((at, port));
            }
        }
        Err(DropReason::NatPortsExhausted)
    }

    fn port_of(&mut self, at: usize, proto: Proto, wanted: u16) -> Option<u16> {
        let range = match (proto, wanted < REGISTERED) {
            (Proto::Icmp, _) => 0..=u16::MAX,
            (_, true) => 1..=REGISTERED - 1,
            (_, false) => REGISTERED..=u16::MAX,
        };
        let start = self.draw() as u16;
        let ports = &mut self.ports[at][proto as usize];
        if ports.take(wanted) {
            return Some(wanted);
        }
        let span = u32::from(range.end() - range.start()) + 1;
        let start = range.start() + (u32::from(start) % span) as u16;
        // Parity is RTP's concern, which is UDP's; a port of the other one is better than none, and so is one above 1024.
        let parity = (proto == Proto::Udp).then_some(wanted & 1);
        let high = *range.start() != 1;
        ports
            .search(range.clone(), start, parity)
            .or_else(|| ports.search(range, start, None))
            .or_else(|| if high { None } else { ports.search(REGISTERED..=u16::MAX, start, None) })
    }

    fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        mix(self.secret ^ mix(self.drawn))
    }
}
