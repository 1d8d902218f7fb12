//! Looking ahead: what a burst will ask of the tables, all at once, so that waits for memory overlap. The packets themselves are then done one after
//! the other, and find what has not changed meanwhile.
//!
//! | packet | is looked up |
//! |---|---|
//! | from inside | its session; its mapping where there is none |
//! | from outside | its mapping, the record of which says whose it is; then its session |
//!
//! A packet that is only to be noted in a session that was found, as nearly all are, needs nothing else ([`known`](State::known)).

use super::follow::note;
use super::{Mapping, Piece, Sort, State, TIME_SHIFT};
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::settings::Times;
use tidemill_burst::BURST;
use tidemill_flow::flowtable::{FlowTable, Slot};
use tidemill_flow::hash::KeyHash;
use tidemill_flow::key::Key;
use tidemill_lookup::prefetch::prefetch_read;

/// A packet that was read, whole and with ports: what will be asked about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<A> {
    pub(crate) piece: Piece,
    /// Whether it comes from inside: then `near` is the inside endpoint, else the outside one.
    pub(crate) out: bool,
    pub(crate) near: Endpoint<A>,
    pub(crate) remote: Endpoint<A>,
    /// Where in the packet what is behind the IP header begins.
    pub(crate) upper: u16,
}

/// A packet that was noted in its session, and what to write into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known<A> {
    pub(crate) proto: Proto,
    /// Whether it comes from inside: then its source becomes another, else its destination.
    pub(crate) out: bool,
    /// Where what is behind the IP header begins.
    pub(crate) upper: usize,
    /// What that end is.
    pub(crate) old: Endpoint<A>,
    /// What it becomes.
    pub(crate) new: Endpoint<A>,
}

/// What a look ahead has found of a packet: good as long as nothing has moved or gone since.
#[derive(Debug, Clone, Copy)]
struct Hint<A> {
    ask: Ask<A>,
    mapping: Option<u32>,
    session: Option<Slot>,
}

/// Room for a look ahead at a burst.
pub(super) struct Ahead<A, const E: usize, const S: usize> {
    /// By place in the burst; nothing of packets that were not read.
    hints: [Option<Hint<A>>; BURST],
    /// So many packets were looked at.
    count: usize,
    /// The state's [epoch](State::epoch) then.
    epoch: u64,
    ends: Lookups<E>,
    sessions: Lookups<S>,
}

/// Lookups in one table that are done together.
struct Lookups<const W: usize> {
    /// The places in the burst of the packets that they are for.
    places: [u8; BURST],
    keys: [Key<W>; BURST],
    hashes: [u64; BURST],
    slots: [Option<Slot>; BURST],
    count: usize,
}

impl<A: Copy, const E: usize, const S: usize> Ahead<A, E, S> {
    pub(super) fn new() -> Self {
        let (ends, sessions) = (Lookups::new(), Lookups::new());
        Ahead { hints: [None; BURST], count: 0, epoch: 0, ends, sessions }
    }

    #[inline]
    fn hint(&self, place: usize) -> Option<&Hint<A>> {
        self.hints[..self.count].get(place)?.as_ref()
    }
}

impl<const W: usize> Lookups<W> {
    fn new() -> Self {
        Lookups {
            places: [0; BURST],
            keys: [Key([0; W]); BURST],
            hashes: [0; BURST],
            slots: [None; BURST],
            count: 0,
        }
    }

    /// One more, for the packet at this place; at most one for each.
    #[inline(always)]
    fn add(&mut self, place: usize, key: Key<W>) {
        self.places[self.count] = place as u8;
        self.keys[self.count] = key;
        self.count += 1;
    }

    #[inline]
    fn look<V: tidemill_flow::flowtable::State>(&mut self, table: &FlowTable<W, V>) {
        let count = self.count;
        if count > 0 {
            table.hasher().hash_batch(&self.keys[..count], &mut self.hashes[..count]);
            table.lookup_batch(&self.hashes[..count], &self.keys[..count], &mut self.slots[..count]);
        }
    }

    /// The places of the packets, and what was found for each.
    #[inline(always)]
    fn found(&self) -> impl Iterator<Item = (usize, Option<Slot>)> {
        let count = self.count;
        let places = self.places[..count].iter().map(|place| usize::from(*place));
        places.zip(self.slots[..count].iter().copied())
    }
}

/// Asks for a mapping's record, which may lie on two lines.
#[inline(always)]
fn ask_record<A>(mappings: &[Mapping<A>], mapping: u32) {
    let record = &mappings[mapping as usize..][..1];
    prefetch_read(record.as_ptr());
    prefetch_read(record.as_ptr_range().end.cast::<u8>().wrapping_sub(1));
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
    /// Looks up what a burst will ask, all at once, so that waits for memory overlap; `asks` are its packets in order, at most [`BURST`], and `None`
    /// those that are not looked at. Then ask of each what is [`known`](Self::known), or [`turn_to`](Self::turn_to) it, when it is its turn.
    pub(crate) fn look_ahead(&mut self, asks: impl Iterator<Item = Option<Ask<A>>>) {
        let now = self.epoch();
        let Ahead { hints, count, epoch, ends, sessions } = &mut *self.ahead;
        let mut place = 0;
        (ends.count, sessions.count) = (0, 0);
        for (hint, ask) in hints.iter_mut().zip(asks) {
            *hint = ask.map(|ask| Hint { ask, mapping: None, session: None });
            match ask {
                Some(Ask { out: true, piece, near, remote, .. }) => {
                    sessions.add(place, A::session(piece.proto(), near, remote));
                }
                Some(Ask { piece, near, .. }) => ends.add(place, A::endpoint(piece.proto(), near)),
                None => {}
            }
            place += 1;
        }
        (*count, *epoch) = (place, now);
        ends.look(&self.outside);
        for (place, slot) in ends.found() {
            if let (Some(hint), Some(slot)) = (&mut hints[place], slot) {
                let mapping = self.outside.state(slot) as u32;
                hint.mapping = Some(mapping);
                ask_record(&self.mappings, mapping);
            }
        }
        for (place, _) in ends.found() {
            if let Some(Hint { ask, mapping: Some(mapping), .. }) = &hints[place] {
                let Mapping { proto, inside, .. } = self.mappings[*mapping as usize];
                sessions.add(place, A::session(proto, inside, ask.remote));
            }
        }
        sessions.look(&self.sessions);
        ends.count = 0;
        for (place, slot) in sessions.found() {
            let Some(hint) = &mut hints[place] else { continue };
            hint.session = slot;
            match slot {
                Some(slot) => self.sessions.prefetch_state(slot),
                None if hint.ask.out => ends.add(place, A::endpoint(hint.ask.piece.proto(), hint.ask.near)),
                None => {}
            }
        }
        ends.look(&self.inside);
        for (place, slot) in ends.found() {
            if let (Some(hint), Some(slot)) = (&mut hints[place], slot) {
                let mapping = self.inside.state(slot) as u32;
                hint.mapping = Some(mapping);
                ask_record(&self.mappings, mapping);
            }
        }
    }

    /// Notes the packet at this place of the burst in its session, as [`leave`](Self::leave) or [`enter`](Self::enter) would: where the look ahead has found
    /// that, it lives, and nothing else is to be done. `None`: one of these has to say what becomes of the packet, and nothing has changed.
    ///
    /// A session in this worker's table is this worker's, with all its packets, and its mapping is there as long as it is.
    #[inline]
    pub(crate) fn known(&mut self, place: usize, now_ms: u64, times: &Times) -> Option<Known<A>> {
        let Hint { ask, session, .. } = self.ahead.hint(place)?;
        let (Ask { piece, out, near, remote, upper }, slot) = (*ask, (*session)?);
        // Who asks for an identifier asks the address: whether somebody is there to answer, `enter` knows.
        if self.ahead.epoch != self.epoch() || (!out && piece == Piece::Request) {
            return None;
        }
        let state = self.sessions.state(slot);
        let (proto, inside, far) = A::of_session(&self.sessions.key(slot));
        let (mapping, outside) = A::of_state(&state);
        let (old, new) = if out { (inside, outside) } else { (outside, inside) };
        let is_it = proto == piece.proto() && far == remote && old == near;
        if !is_it || state[0] >> TIME_SHIFT <= now_ms {
            return None;
        }
        let noted = note([state[0], state[1]], now_ms, times, piece, out, || self.is_dynamic(mapping));
        if noted.turn.is_some() {
            return None;
        }
        self.sessions.set_word(slot, 0, noted.words[0]);
        self.sessions.set_word(slot, 1, noted.words[1]);
        Some(Known { proto, out, upper: upper.into(), old, new })
    }

    /// The packet at this place of the burst is next; `None`: one that was not looked at ahead.
    #[inline]
    pub(crate) fn turn_to(&mut self, place: Option<usize>) {
        self.turn = place;
    }

    /// Another one wherever a session's slot may have become another's.
    fn epoch(&self) -> u64 {
        self.sessions.counters().moves.wrapping_add(self.ended)
    }

    fn hint(&self) -> Option<&Hint<A>> {
        self.ahead.hint(self.turn?)
    }

    /// The mapping that was found ahead, if it is still this one.
    #[inline]
    pub(super) fn hinted(&self, is: impl Fn(&Mapping<A>) -> bool) -> Option<u32> {
        let mapping = self.hint()?.mapping?;
        let about = self.mappings.get(mapping as usize)?;
        (about.sort != Sort::Free && is(about)).then_some(mapping)
    }

    /// The slot of a session.
    #[inline]
    pub(super) fn find_session(&self, key: &Key<S>) -> Option<Slot> {
        if let Some(Hint { session: Some(slot), .. }) = self.hint()
            && self.ahead.epoch == self.epoch()
            && self.sessions.key(*slot) == *key
        {
            return Some(*slot);
        }
        self.sessions.find(self.sessions.hasher().hash(key), key)
    }
}

#[cfg(test)]
mod tests;
