//! Sessions as another process takes them over: what is left of each, apart from any worker's numbers and clock.

use super::{ANSWERED, FROM_OUTSIDE, Sort, State, Statics, TIME_SHIFT};
use crate::nat::image::LONGEST_MS;
use crate::nat::ip::{About, Endpoint, Family, Proto};
use crate::nat::settings::Times;
use crate::nat::tcp::Tcp;
use tidemill_burst::DropReason;
use tidemill_flow::flowtable::Slot;
use tidemill_flow::key::Key;

/// A session to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved<A> {
    /// What it is about.
    pub about: About<A>,
    /// With whom.
    pub remote: Endpoint<A>,
    /// How long it would have lived on without another packet, milliseconds.
    pub left_ms: u64,
    /// What TCP has seen, as in [`crate::nat::tcp`]; 0 of other protocols.
    pub tcp: u8,
    /// Whether it was begun from outside.
    pub from_outside: bool,
    /// Whether that was answered.
    pub answered: bool,
    /// Whether its mapping was static: it goes on only where it is so again.
    pub is_static: bool,
    /// Packets from inside and from outside.
    pub packets: (u32, u32),
}

/// A session as a reader finds it; `None` of one whose time is over.
pub(crate) fn save<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    now_ms: u64,
    statics: &Statics<A>,
    key: &Key<S>,
    state: &[u64; T],
) -> Option<Saved<A>> {
    let about = A::about(key, state);
    Some(Saved {
        about,
        remote: A::of_session(key).2,
        // Packets that come while tables are read are later than its clock.
        left_ms: (state[0] >> TIME_SHIFT).checked_sub(now_ms).filter(|left_ms| *left_ms > 0)?.min(LONGEST_MS),
        tcp: if about.proto == Proto::Tcp { state[0] as u8 } else { 0 },
        from_outside: state[0] & FROM_OUTSIDE != 0,
        answered: state[0] & ANSWERED != 0,
        is_static: statics.host_at(about.proto, about.outside).is_some(),
        packets: ((state[1] >> 32) as u32, state[1] as u32),
    })
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
    /// Goes on with a session of another process, with its mapping: before packets flow, once for each.
    ///
    /// # Errors
    /// It does not fit the configuration, belongs to another worker, or is more than one may have.
    pub fn restore(&mut self, now_ms: u64, times: &Times, saved: &Saved<A>) -> Result<(), DropReason> {
        let About { proto, inside, outside } = saved.about;
        let mine = self.share.workers < 2
            || (self.worker_of_host(inside.address) == self.share.worker
                && self.worker_of(proto, outside) == self.share.worker);
        if !mine {
            return Err(DropReason::NatUnmapped);
        }
        let mapping = match (self.find_inside(proto, inside), self.find_outside(proto, outside)) {
            // A dynamic one in the place of a static one would let in whom only that has let in.
            (Some(mapping), Some(other))
                if mapping == other && !(saved.is_static && self.is_dynamic(mapping)) =>
            {
                mapping
            }
            (None, None) => self.map_as(saved)?,
            _ => return Err(DropReason::NatUnmapped),
        };
        let restored = self.restore_of(mapping, saved.remote, saved.from_outside, saved.answered);
        match restored {
            Ok(slot) => {
                // Nobody's life is longer than here, whatever it was there.
                let longest_ms = match proto {
                    Proto::Tcp => Tcp(saved.tcp).timeout_ms(times),
                    Proto::Udp => times.udp_ms,
                    Proto::Icmp => times.icmp_ms,
                };
                let until_ms = now_ms + saved.left_ms.min(longest_ms);
                let low = self.sessions.word(slot, 0) & 0xff00;
                let packets = u64::from(saved.packets.0) << 32 | u64::from(saved.packets.1);
                self.sessions.set_word(slot, 0, until_ms << TIME_SHIFT | low | u64::from(saved.tcp));
                self.sessions.set_word(slot, 1, packets);
                Ok(())
            }
            Err(reason) => {
                self.unmap_idle(mapping);
                Err(reason)
            }
        }
    }

    fn restore_of(
        &mut self,
        mapping: u32,
        remote: Endpoint<A>,
        from_outside: bool,
        answered: bool,
    ) -> Result<Slot, DropReason> {
        let key = self.session_of(mapping, remote);
        if self.find_session(&key).is_some() {
            return Err(DropReason::NatUnmapped);
        }
        let slot = self.begin(mapping, remote, key, !from_outside)?;
        if answered && self.answer(mapping, remote.address).is_ok() {
            let low = self.sessions.word(slot, 0);
            self.sessions.set_word(slot, 0, low | ANSWERED);
        }
        Ok(slot)
    }

    /// A session's mapping, as another process has made it.
    fn map_as(&mut self, saved: &Saved<A>) -> Result<u32, DropReason> {
        let About { proto, inside, outside } = saved.about;
        let unfit = DropReason::NatUnmapped;
        let at = self.plan.pool.binary_search(&outside.address).map_err(|_| unfit)?;
        if self.plan.pool.binary_search(&inside.address).is_ok() {
            return Err(unfit);
        }
        let whole = self.statics.address_of(inside.address);
        let owner = self.statics.host_of(outside.address);
        let sort = match (whole, owner) {
            (Some(address), Some(_)) if address == outside.address && inside.port == outside.port => {
                Sort::Whole
            }
            (None, None) if !saved.is_static => Sort::Dynamic,
            _ => return Err(unfit),
        };
        if let Some(rule) = self.plan.deterministic {
            let (of, ports) = rule.of_host(inside.address).ok_or(unfit)?;
            if of != at || !ports.contains(&outside.port) {
                return Err(unfit);
            }
        }
        let host = self.hosts.find_or_make(inside.address).ok_or(DropReason::NatTableFull)?;
        let taken = self.ports[at][proto as usize].take(outside.port);
        let made = if taken { self.enroll(proto, inside, outside, at, sort, host) } else { Err(unfit) };
        match made {
            Ok(_) => self.hosts.settle(host, at),
            Err(_) => {
                if taken {
                    self.ports[at][proto as usize].give_back(outside.port);
                }
                self.hosts.forget_unused(host);
            }
        }
        made
    }
}
