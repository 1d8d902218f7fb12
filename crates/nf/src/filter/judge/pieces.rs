//! Fragments: they go as the first one of their packet goes, and wait for it.

use super::{Fate, Filter, Ways};
use crate::filter::counters::Counter;
use crate::filter::net::Net;
use crate::filter::packet::{Read, first_piece};
use crate::filter::rules::Rules;
use crate::nat::fragments::{Known, Token, Whole};
use tidemill_burst::DropReason;

/// What a fragment belongs to, which came in by this VRF.
fn packet<A: Net<W>, const W: usize>(ends: (A, A), protocol: u8, ident: u32, vrf: u16) -> Whole<A> {
    Whole {
        source: ends.0,
        destination: ends.1,
        ident,
        // Behind IPv6's fragment header each may go on with another one; the identification is enough (RFC 8200, section 4.5).
        protocol: if A::V6 { 0 } else { protocol },
        way: vrf,
        from_inside: false,
    }
}

impl<A: Net<W>, const W: usize> Filter<A, W> {
    /// A packet that cannot be read: if it is a first fragment, no other one of its packet passes, and none waits for it.
    pub(super) fn refuse_rest(&mut self, now_ms: u64, rules: &Rules, ways: Ways, ip: &[u8]) {
        let Some((source, destination, protocol, piece)) = first_piece::<A>(ip) else { return };
        let (start, end) = piece.bytes;
        let whole = packet::<A, W>((source, destination), protocol, piece.ident, rules.vrf(ways.from));
        let (token, _) = self.fragments.meet(now_ms, rules.times.fragment_ms, whole, start..end, piece.more);
        self.fragments.learn(token, Known::Refused);
        self.settled = Some(token);
    }

    /// A fragment.
    pub(super) fn piece(
        &mut self,
        place: usize,
        now_ms: u64,
        rules: &Rules,
        ways: Ways,
        read: &Read<A, W>,
        ip: &[u8],
    ) -> Fate {
        const REFUSED: Fate = Fate::Drop(DropReason::FilterFragmentRefused);
        let Some(piece) = read.fragment else { return REFUSED };
        let (start, end) = piece.bytes;
        // All but the last are multiples of eight bytes.
        if piece.more && !(end - start).is_multiple_of(8) {
            return REFUSED;
        }
        let whole = packet::<A, W>((read.source, read.destination), read.protocol, piece.ident, read.vrf);
        let met = self.fragments.meet(now_ms, rules.times.fragment_ms, whole, start..end, piece.more);
        match met {
            (token, Known::Refused) => {
                // Those that have waited need not any longer.
                if self.fragments.take_waiting(token) {
                    self.settled = Some(token);
                }
                REFUSED
            }
            (token, _) if start == 0 => {
                let fate = self.whole(place, now_ms, rules, ways, read, ip);
                let known = match fate {
                    Fate::Passes => Known::Addresses(read.source, read.destination),
                    _ => Known::Refused,
                };
                self.fragments.learn(token, known);
                self.settled = Some(token);
                fate
            }
            (_, Known::Addresses(..)) => {
                self.counters.one(Counter::Fragments);
                Fate::Passes
            }
            (token, Known::Nothing | Known::Worker(_)) => {
                self.counters.one(Counter::FragmentsHeld);
                Fate::Waits(token)
            }
        }
    }

    /// A fragment that has waited.
    pub fn resume(&mut self, now_ms: u64, token: Token) -> Fate {
        match self.fragments.look(now_ms, token) {
            None => Fate::Drop(DropReason::FilterFragmentTimeout),
            Some(Known::Refused) => Fate::Drop(DropReason::FilterFragmentRefused),
            Some(Known::Addresses(..)) => {
                self.counters.one(Counter::Fragments);
                self.counters.one(Counter::Passed);
                Fate::Passes
            }
            Some(Known::Nothing | Known::Worker(_)) => Fate::Waits(token),
        }
    }
}
