//! Looking ahead: what a burst will ask of the tables, all at once, so that waits for memory overlap. The packets themselves are then done one after
//! the other, and find what has not changed meanwhile.

use super::{Mapping, Sort, State};
use crate::nat::ip::{Endpoint, Family, Proto};
use tidemill_burst::BURST;
use tidemill_flow::flowtable::Slot;
use tidemill_flow::hash::KeyHash;
use tidemill_flow::key::Key;
use tidemill_lookup::prefetch::prefetch_read;

/// What will be asked about a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<A> {
    pub(crate) proto: Proto,
    /// Whether it comes from inside: then `near` is the inside endpoint, else the outside one.
    pub(crate) out: bool,
    pub(crate) near: Endpoint<A>,
    pub(crate) remote: Endpoint<A>,
}

/// What a look ahead has found: good as long as nothing has moved or gone since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hint {
    mapping: u32,
    session: Option<Slot>,
    epoch: u64,
}

/// Room for a look ahead at a burst.
pub(super) struct Ahead<A, const E: usize, const S: usize> {
    asks: Vec<(u8, Ask<A>)>,
    places: [u8; BURST],
    hashes: [u64; BURST],
    ends: [Key<E>; BURST],
    keys: [Key<S>; BURST],
    slots: [Option<Slot>; BURST],
    hints: [Option<Hint>; BURST],
}

impl<A, const E: usize, const S: usize> Ahead<A, E, S> {
    pub(super) fn new() -> Self {
        Ahead {
            asks: Vec::with_capacity(BURST),
            places: [0; BURST],
            hashes: [0; BURST],
            ends: [Key([0; E]); BURST],
            keys: [Key([0; S]); BURST],
            slots: [None; BURST],
            hints: [None; BURST],
        }
    }
}

impl<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize> State<A, E, S, T> {
    /// Looks up what a burst will ask, all at once, so that waits for memory overlap; `asks` come with their packets' places in the burst.
    /// Then [`turn_to`](Self::turn_to) each packet before it is its turn.
    pub(crate) fn look_ahead(&mut self, asks: impl Iterator<Item = (u8, Ask<A>)>) {
        let epoch = self.epoch();
        let Ahead { asks: list, places, hashes, ends, keys, slots, hints } = &mut *self.ahead;
        hints.fill(None);
        list.clear();
        list.extend(asks.take(BURST));
        for out in [true, false] {
            let table = if out { &self.inside } else { &self.outside };
            let mut count = 0;
            for (place, ask) in list.iter().filter(|(_, ask)| ask.out == out) {
                places[count] = *place;
                ends[count] = A::endpoint(ask.proto, ask.near);
                count += 1;
            }
            table.hasher().hash_batch(&ends[..count], &mut hashes[..count]);
            table.lookup_batch(&hashes[..count], &ends[..count], &mut slots[..count]);
            for (place, slot) in places[..count].iter().zip(&slots[..count]) {
                let mapping = slot.map(|slot| table.state(slot) as u32);
                hints[usize::from(*place)] = mapping.map(|mapping| Hint { mapping, session: None, epoch });
            }
        }
        let mut count = 0;
        for (place, ask) in list.iter() {
            if let Some(hint) = hints[usize::from(*place)] {
                // It may lie on two lines.
                let mapping = &self.mappings[hint.mapping as usize..][..1];
                prefetch_read(mapping.as_ptr());
                prefetch_read(mapping.as_ptr_range().end.cast::<u8>().wrapping_sub(1));
                places[count] = *place;
                keys[count] = A::session(hint.mapping, ask.remote);
                count += 1;
            }
        }
        self.sessions.hasher().hash_batch(&keys[..count], &mut hashes[..count]);
        self.sessions.lookup_batch(&hashes[..count], &keys[..count], &mut slots[..count]);
        for (place, slot) in places[..count].iter().zip(&slots[..count]) {
            if let Some(hint) = &mut hints[usize::from(*place)] {
                hint.session = *slot;
                slot.iter().for_each(|slot| self.sessions.prefetch_state(*slot));
            }
        }
    }

    /// The packet at this place of the burst is next; `None`: one that was not looked at ahead.
    #[inline]
    pub(crate) fn turn_to(&mut self, place: Option<usize>) {
        self.hint = place.and_then(|place| self.ahead.hints.get(place).copied().flatten());
    }

    pub(super) fn epoch(&self) -> u64 {
        self.sessions.counters().moves.wrapping_add(self.ended)
    }

    /// The mapping that was found ahead, if it is still this one.
    #[inline]
    pub(super) fn hinted(&self, is: impl Fn(&Mapping<A>) -> bool) -> Option<u32> {
        let mapping = self.hint?.mapping;
        let about = self.mappings.get(mapping as usize)?;
        (about.sort != Sort::Free && is(about)).then_some(mapping)
    }

    /// The slot of a session.
    #[inline]
    pub(super) fn find_session(&self, key: &Key<S>) -> Option<Slot> {
        if let Some(Hint { session: Some(slot), epoch, .. }) = self.hint
            && epoch == self.epoch()
            && self.sessions.key(slot) == *key
        {
            return Some(slot);
        }
        self.sessions.find(self.sessions.hasher().hash(key), key)
    }
}
