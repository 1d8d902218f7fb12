//! A look ahead at a burst: packets are read, and what they will ask is looked up for all of them at once, so that waits for memory overlap.
//!
//! Of the connections these are hints: a slot is good while nothing has moved or gone (`States::epoch`), and none found means none until the burst begins one like it. What rules say holds for the burst.

use super::{Filter, NOWHERE, Ways};
use crate::filter::half::AHEAD;
use crate::filter::net::Net;
use crate::filter::packet::{Load, Read, read};
use crate::filter::rules::{Asked, Rules};
use crate::filter::text::Action;
use tidemill_burst::{BURST, DropReason};
use tidemill_classify::{Key as RuleKey, Rank};
use tidemill_flow::flowtable::Slot;
use tidemill_flow::hash::KeyHash;
use tidemill_flow::key::Key;
use tidemill_lpm::Label;

/// Words of the bits by which begun connections are known: 16 for each packet of a burst.
const BEGUN: usize = BURST / 4;

/// Room for it.
pub(super) struct Ahead<A, const W: usize> {
    pub(super) reads: Vec<(Ways, Result<Read<A, W>, DropReason>)>,
    /// Of the connections' table, when it was asked.
    pub(super) epoch: u64,
    /// Of each packet: what was found, and what rules say on both ways, if they were asked.
    pub(super) hints: [Hint; BURST],
    /// Connections that the burst has begun, by bits of their hashes.
    begun: [u64; BEGUN],
    places: [u8; BURST],
    keys: [Key<W>; BURST],
    hashes: [u64; BURST],
    slots: [Option<Slot>; BURST],
    sources: Vec<A>,
    destinations: Vec<A>,
    labels: [Label; BURST],
    sets: [[u64; BURST]; 2],
    /// Of each way.
    rule_keys: [Vec<RuleKey>; 2],
    ranks: [[Rank; BURST]; 2],
    /// For packets before this place nothing has to be asked of the cache any more.
    pub(super) asked: usize,
    /// Connections that packets will begin: keys, and whether the lower end begins them.
    new: Vec<(Key<W>, bool)>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hint {
    pub(super) slot: Option<Slot>,
    pub(super) ranks: Option<[Rank; 2]>,
    /// Of its connection's key.
    hash: u64,
}

impl<A: Net<W>, const W: usize> Ahead<A, W> {
    pub(super) fn new() -> Self {
        Ahead {
            reads: Vec::with_capacity(BURST),
            epoch: 0,
            hints: [Hint::default(); BURST],
            begun: [0; BEGUN],
            places: [0; BURST],
            keys: [Key([0; W]); BURST],
            hashes: [0; BURST],
            slots: [None; BURST],
            sources: Vec::with_capacity(BURST),
            destinations: Vec::with_capacity(BURST),
            labels: [Label::NONE; BURST],
            sets: [[0; BURST]; 2],
            rule_keys: [Vec::with_capacity(BURST), Vec::with_capacity(BURST)],
            ranks: [[Rank::NONE; BURST]; 2],
            asked: 0,
            new: Vec::with_capacity(AHEAD),
        }
    }

    /// The packet at this place has begun a connection.
    pub(super) fn begins(&mut self, place: usize) {
        if let Some(hint) = self.hints.get(place) {
            self.begun[(hint.hash >> 6) as usize % BEGUN] |= 1 << (hint.hash & 63);
        }
    }

    /// Connections may have been begun by others than this burst.
    pub(super) fn begun_by_others(&mut self) {
        self.begun = [u64::MAX; BEGUN];
    }

    /// The packet at this place, which is of a connection, had none when the burst was looked up, and none has been begun since that may be it.
    pub(super) fn has_none(&self, place: usize) -> bool {
        self.hints.get(place).is_some_and(|hint| {
            hint.slot.is_none() && self.begun[(hint.hash >> 6) as usize % BEGUN] & 1 << (hint.hash & 63) == 0
        })
    }
}

impl<A: Net<W>, const W: usize> Filter<A, W> {
    /// Reads a burst's packets from their IP headers on. Ask [`owner`](Self::owner) then, and [`look_up`](Self::look_up) before the first is judged.
    pub fn read<'a>(&mut self, rules: &Rules, packets: impl Iterator<Item = (Ways, &'a [u8])>) {
        self.ahead.reads.clear();
        let read = |(ways, ip): (Ways, &[u8])| (ways, read::<A, W>(ip, rules.vrf(ways.from)));
        self.ahead.reads.extend(packets.take(BURST).map(read));
    }

    /// Looks up what the burst's packets will ask, all at once, so that waits for memory overlap: first their connections, then rules for those that have none.
    pub fn look_up(&mut self, rules: &Rules) {
        let ahead = &mut *self.ahead;
        ahead.epoch = self.states.epoch();
        ahead.asked = 0;
        ahead.begun = [0; BEGUN];
        let hints = &mut ahead.hints[..ahead.reads.len()];
        hints.fill(Hint::default());
        let mut count = 0;
        for (place, (_, read)) in ahead.reads.iter().enumerate() {
            if let Ok(read) = read
                && read.is_of_connection()
            {
                ahead.places[count] = place as u8;
                ahead.keys[count] = read.key;
                count += 1;
            }
        }
        let table = &self.states.table;
        table.hasher().hash_batch(&ahead.keys[..count], &mut ahead.hashes[..count]);
        table.lookup_batch(&ahead.hashes[..count], &ahead.keys[..count], &mut ahead.slots[..count]);
        for (at, place) in ahead.places[..count].iter().enumerate() {
            let (hint, slot) = (&mut hints[usize::from(*place)], ahead.slots[at]);
            (hint.slot, hint.hash) = (slot, ahead.hashes[at]);
            slot.iter().for_each(|slot| table.prefetch_state(*slot));
        }
        // Those that rules will be asked about.
        let (mut asking, unknown) = (0, |hint: &Hint| hint.slot.is_none());
        ahead.sources.clear();
        ahead.destinations.clear();
        ahead.rule_keys.iter_mut().for_each(Vec::clear);
        for (place, (_, read)) in ahead.reads.iter().enumerate() {
            let Ok(read) = read else { continue };
            if matches!(read.load, Load::Later) || !unknown(&hints[place]) {
                continue;
            }
            ahead.places[asking] = place as u8;
            ahead.sources.push(read.source);
            ahead.destinations.push(read.destination);
            asking += 1;
        }
        if asking == 0 {
            // Nobody begins anything.
            ahead.asked = usize::MAX;
            return;
        }
        let index = A::index(rules.sets());
        let [of_source, of_destination] = &mut ahead.sets;
        index.of_batch(&ahead.sources, &mut ahead.labels, &mut of_source[..asking]);
        index.of_batch(&ahead.destinations, &mut ahead.labels, &mut of_destination[..asking]);
        for (at, place) in ahead.places[..asking].iter().enumerate() {
            let Some((ways, Ok(read))) = ahead.reads.get(usize::from(*place)) else { continue };
            let (asked, sets) = (Asked::of(read), (of_source[at], of_destination[at]));
            let [inward, outward] = &mut ahead.rule_keys;
            inward.push(asked.key(false, ways.from, sets));
            outward.push(asked.key(true, ways.to, sets));
        }
        for (way, ranks) in ahead.ranks.iter_mut().enumerate() {
            let keys = &ahead.rule_keys[way];
            rules.ask(way == 1, keys, &mut ranks[..keys.len()]);
        }
        for (at, place) in ahead.places[..asking].iter().enumerate() {
            hints[usize::from(*place)].ranks = Some([ahead.ranks[0][at], ahead.ranks[1][at]]);
        }
    }

    /// Asks the cache for what beginning connections touches, for the next [`AHEAD`] packets of the burst. One alone gains nothing by it.
    pub(super) fn ask_ahead(&mut self, place: usize, rules: &Rules) {
        self.ahead.asked = place.saturating_add(AHEAD);
        self.ahead.new.clear();
        for at in place..self.ahead.asked {
            if let Some(new) = self.may_begin(at, rules) {
                self.ahead.new.push(new);
            }
        }
        if self.ahead.new.len() > 1 {
            self.states.ask_ahead(&self.ahead.new);
        }
    }

    /// The connection that the packet at this place begins, by what was looked up: its key, and whether its lower end begins it. Blocked ones begin none, so a
    /// flood of them asks for nothing.
    fn may_begin(&self, place: usize, rules: &Rules) -> Option<(Key<W>, bool)> {
        let (ways, Ok(read)) = self.ahead.reads.get(place)? else { return None };
        let [inward, outward] = self.ahead.hints.get(place)?.ranks?;
        let decisions = [rules.decision(false, inward), rules.decision(true, outward)];
        let begins = read.is_of_connection()
            && ways.to != NOWHERE
            && decisions.iter().all(|decision| decision.action == Action::Pass)
            && decisions.iter().any(|decision| decision.keep_state);
        (begins && self.owner_of_key(&read.key) == self.worker).then_some((read.key, read.from_low))
    }
}
