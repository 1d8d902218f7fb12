//! New mappings: whose address of the pool, which port.

use super::{Piece, Refused, Sort, State, insert};
use crate::nat::config::Pooling;
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::ports::REGISTERED;
use crate::nat::tcp::Tcp;
use tidemill_burst::DropReason;
use tidemill_flow::hash::{KeyHash, mix};

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
    /// Makes a mapping.
    pub(super) fn map(&mut self, proto: Proto, inside: Endpoint<A>) -> Result<u32, DropReason> {
        if self.free.is_empty() {
            return Err(DropReason::NatTableFull);
        }
        if let Some((outside, _)) = self.plan.whole.iter().find(|(_, host)| *host == inside.address) {
            let outside = Endpoint { address: *outside, port: inside.port };
            return self.take_whole(proto, inside, outside);
        }
        let key = A::endpoint(Proto::Tcp, Endpoint { address: inside.address, port: 0 });
        let hash = self.hosts.hasher().hash(&key);
        let known = self.hosts.find(hash, &key).map(|slot| self.hosts.word(slot, 0));
        if known.is_some_and(|host| host as u32 >= self.plan.host_mappings) {
            return Err(DropReason::NatHostLimit);
        }
        let (at, port) = self.port_for(proto, inside, hash, known.map(|host| (host >> 32) as usize))?;
        let outside = Endpoint { address: self.plan.pool[at], port };
        let Some(slot) = insert(&mut self.hosts, hash, &key) else {
            self.ports[at][proto as usize].give_back(port);
            return Err(DropReason::NatTableFull);
        };
        let host = known.unwrap_or((at as u64) << 32) + 1;
        self.hosts.set_word(slot, 0, host);
        self.enroll(proto, inside, outside, at, Sort::Dynamic).inspect_err(|_| {
            self.ports[at][proto as usize].give_back(port);
            self.leave_host(inside.address);
        })
    }

    /// The mapping of a whole address, by a packet from outside.
    pub(super) fn map_whole(
        &mut self,
        proto: Proto,
        outside: Endpoint<A>,
        piece: Piece,
    ) -> Result<u32, Refused> {
        let whole = self.plan.whole.iter().find(|(address, _)| *address == outside.address);
        let Some((_, host)) = whole else { return Err(Refused::Unmapped) };
        let may_begin = match piece {
            Piece::Tcp(flags) => Tcp::may_begin_outside(flags),
            Piece::Udp | Piece::Request => true,
            Piece::Reply => false,
        };
        if !may_begin {
            return Err(Refused::Drop(DropReason::NatUnasked));
        }
        // As with sessions, one half is kept for what goes out.
        if self.free.len() <= self.mappings.len() / 2 {
            return Err(Refused::Drop(DropReason::NatTableFull));
        }
        let inside = Endpoint { address: *host, port: outside.port };
        self.take_whole(proto, inside, outside).map_err(Refused::Drop)
    }

    fn take_whole(
        &mut self,
        proto: Proto,
        inside: Endpoint<A>,
        outside: Endpoint<A>,
    ) -> Result<u32, DropReason> {
        let at = self.plan.pool.binary_search(&outside.address).map_err(|_| DropReason::NatUnmapped)?;
        if !self.ports[at][proto as usize].take(outside.port) {
            return Err(DropReason::NatPortsExhausted);
        }
        self.enroll(proto, inside, outside, at, Sort::Whole)
            .inspect_err(|_| self.ports[at][proto as usize].give_back(outside.port))
    }

    /// An address of the pool, by number, and a port of it, which is taken.
    fn port_for(
        &mut self,
        proto: Proto,
        inside: Endpoint<A>,
        hash: u64,
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
        let first = own.unwrap_or((hash >> 32) as usize % shared);
        // A new host looks at a few addresses beside its own; one that has an address keeps it, if told so.
        let tries = if own.is_some() && self.plan.pooling == Pooling::Paired { 1 } else { shared.min(16) };
        for number in first..first + tries {
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
