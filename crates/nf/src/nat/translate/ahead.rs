//! A burst's packets: read and looked up together, then translated one after the other.

use super::{Fate, Nat, Now, Way, remote_port};
use crate::nat::counters::Counter;
use crate::nat::ip::{Endpoint, Family};
use crate::nat::packet::{Side, Upper, header, replace, upper};
use crate::nat::state::{Ask, Known};

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> Nat<A, E, S, T> {
    /// Looks up what a burst will ask, all at once. Call it before the burst's packets are [translated](Self::translate_next), with each of them in
    /// order; at most [`BURST`](tidemill_burst::BURST).
    pub fn look_ahead<'a>(&mut self, packets: impl Iterator<Item = (Way, &'a [u8])>) {
        self.state.look_ahead(packets.map(|(way, ip)| ask::<A, E, S, T>(way, ip)));
    }

    /// As [`translate`](Self::translate), of the packet at this place of the burst that was looked at ahead, and has not changed since.
    #[inline]
    pub fn translate_next(&mut self, place: usize, now: &Now<'_>, way: Way, ip: &mut [u8]) -> Fate {
        let Some(Known { proto, out, upper, old, new }) = self.state.known(place, now.ms, now.times) else {
            return self.translate_found(place, now, way, ip);
        };
        self.settled = [None; 2];
        let (side, counter) =
            if out { (Side::Source, Counter::Out) } else { (Side::Destination, Counter::In) };
        replace::<A, E, S, T>(ip, upper, proto, side, old, new);
        self.counters.one(counter);
        Fate::Translated
    }

    /// The same of one that needs more than its session.
    #[inline(never)]
    fn translate_found(&mut self, place: usize, now: &Now<'_>, way: Way, ip: &mut [u8]) -> Fate {
        self.state.turn_to(Some(place));
        let fate = self.translate(now, way, ip);
        self.state.turn_to(None);
        fate
    }
}

/// What will be asked about a packet, if that is known beforehand.
#[inline]
fn ask<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    way: Way,
    ip: &[u8],
) -> Option<Ask<A>> {
    let out = match way {
        Way::Leaving => true,
        Way::ToPool => false,
        Way::Hairpin | Way::Own | Way::FromUs => return None,
    };
    let header = header::<A>(ip)?;
    if header.fragment.is_some() {
        return None;
    }
    let Upper::Piece(piece, from, to) = upper::<A, E, S, T>(ip, &header).ok()? else { return None };
    let source = Endpoint { address: header.source, port: from };
    let destination = Endpoint { address: header.destination, port: to };
    let (near, far) = if out { (source, destination) } else { (destination, source) };
    let remote = Endpoint { port: remote_port(piece, far.port), ..far };
    Some(Ask { piece, out, near, remote, upper: u16::try_from(header.upper).ok()? })
}
