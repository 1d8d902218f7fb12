//! A cross-product with what has changed since it was made.
//!
//! ```text
//! the cross-product's rule, by its number --> its rank | none: it has gone, so the tuple space beside is asked for this key
//! rules that have come since, those over IPv6 addresses --> a tuple space of their own, asked for every key (the latter: for those that are IPv6)
//! ```

use super::block::NO_RULE;
use super::{Cross, NotCrossed};
use crate::key::{Field, IPV6, Key};
use crate::rule::{Match, Rank, Rule, RuleId};
use crate::tuple::{Grouping, TupleSpace};
use crate::turned::GROUP;
use std::sync::Arc;
use tidemill_lookup::mem::OnLines;

/// Changes after which it is worn, and as a part of the rules: the larger of both.
const FEW: usize = 64;
const PART: usize = 16;

/// Fewer rules are not worth a huge page of tables.
pub const LEAST: usize = 64;

/// Rules that a choice is made by.
const SAMPLE: usize = 1000;

/// What does not change.
struct Base {
    cross: Cross,
    /// By number.
    rules: Vec<(Rank, Match)>,
}

/// Rules as a cross-product, beside the [`TupleSpace`] that has the same rules: for many lookups of whole batches. Plain data with one owner, like that: who
/// changes the one changes the other.
#[derive(Clone)]
pub struct Crossed {
    base: Arc<Base>,
    /// Of the base's rules: what they have now; [`Rank::NONE`]: they have gone.
    ranks: Vec<Rank>,
    gone: usize,
    /// Rules that have come since, and all over IPv6 addresses.
    beside: TupleSpace,
    /// Of those: that are not over IPv6 addresses.
    came: usize,
}

impl std::fmt::Debug for Crossed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rules, gone, came) = (self.ranks.len(), self.gone, self.came);
        let mut shown = f.debug_struct("Crossed");
        shown.field("rules", &rules).field("gone", &gone).field("came", &came).finish_non_exhaustive()
    }
}

/// Whether a rule is about IPv6 addresses.
fn is_wide(matches: &Match) -> bool {
    let mask = matches.mask();
    let ipv6 = mask.get(Field::EtherType) == 0xffff && is_ipv6(matches.value());
    ipv6 && mask.0[..4].iter().any(|&word| word != 0)
}

#[inline(always)]
fn is_ipv6(key: &Key) -> bool {
    (key.0[4] >> 16) as u16 == IPV6
}

impl Crossed {
    /// The rules of a tuple space.
    ///
    /// # Errors
    /// Why there is none: see [`NotCrossed`].
    pub fn build(space: &TupleSpace) -> Result<Self, NotCrossed> {
        let mut beside = TupleSpace::new(Grouping::Merged);
        let (mut rules, mut matches) = (Vec::new(), Vec::new());
        for (id, rule) in space.rules() {
            if is_wide(&rule.matches) {
                beside.insert(id, &rule);
                continue;
            }
            if rule.matches.mask().0[1..4].iter().any(|&word| word != 0) {
                return Err(NotCrossed::AnyEtherType);
            }
            rules.push((Rank::new(rule.priority, id), rule.matches));
            matches.push(rule.matches);
        }
        let ranks = rules.iter().map(|&(rank, _)| rank).collect();
        let base = Arc::new(Base { cross: Cross::build(&matches)?, rules });
        Ok(Crossed { base, ranks, gone: 0, beside: beside.settled(), came: 0 })
    }

    /// The same, if there are [`LEAST`] rules, and its lookups touch fewer lines than the tuple space's do, for packets of a sample of the rules.
    pub fn choose(space: &TupleSpace) -> Option<Self> {
        let every = space.len().div_ceil(SAMPLE).max(1);
        let sample: Vec<Key> =
            space.rules().step_by(every).map(|(_, rule)| rule.matches.first_key()).collect();
        let tuples: usize = sample.iter().map(|key| space.lookup_counted(key).1.lines).sum();
        // A packet of a rule touches five here.
        if space.len() < LEAST || tuples <= 5 * sample.len() {
            return None;
        }
        let crossed = Crossed::build(space).ok()?;
        let lines: usize = sample.iter().map(|key| crossed.lines(key)).sum();
        (lines < tuples).then_some(crossed)
    }

    /// As in results and on the command line.
    pub const NAME: &str = "cross";

    /// Whether so much has changed since it was made that the tuple space answers.
    pub fn is_worn(&self) -> bool {
        self.changed() > FEW.max(self.ranks.len() / PART)
    }

    /// Whether more than half of it has changed: hardly ever do so many rules come back.
    pub fn is_outlived(&self) -> bool {
        2 * self.changed() > self.ranks.len()
    }

    /// Rules that it was made of.
    pub fn rules(&self) -> usize {
        self.ranks.len()
    }

    /// How many of them have gone, and how many have come since; those over IPv6 addresses do not count.
    pub fn changed(&self) -> usize {
        self.gone + self.came
    }

    /// Rules of the base that have gone, and rules that have come, but for those over IPv6 addresses.
    #[cfg(test)]
    pub(super) fn changes(&self) -> (usize, usize) {
        (self.gone, self.came)
    }

    /// Bytes that lookups may touch.
    pub fn bytes(&self) -> usize {
        self.base.cross.bytes() + 8 * self.ranks.len() + self.beside.bytes()
    }

    /// Lines of 64 bytes that a lookup touches, but for the tables of 16 bits, which stay in the caches.
    pub fn lines(&self, key: &Key) -> usize {
        let beside = if self.came > 0 || is_ipv6(key) { self.beside.lookup_counted(key).1.lines } else { 0 };
        self.base.cross.lines(key) + beside
    }

    /// A rule has come.
    pub fn insert(&mut self, id: RuleId, rule: &Rule) {
        let rank = Rank::new(rule.priority, id);
        match self.place(rank, &rule.matches) {
            Some(place) if self.ranks[place] == Rank::NONE => {
                self.ranks[place] = rank;
                self.gone -= 1;
            }
            _ => {
                let put = self.beside.insert(id, rule);
                debug_assert!(put, "{id:?} is there already");
                self.came += usize::from(put && !is_wide(&rule.matches));
            }
        }
    }

    /// A rule has gone.
    pub fn remove(&mut self, id: RuleId, rule: &Rule) {
        let rank = Rank::new(rule.priority, id);
        match self.place(rank, &rule.matches) {
            Some(place) if self.ranks[place] == rank => {
                self.ranks[place] = Rank::NONE;
                self.gone += 1;
            }
            _ => {
                let taken = self.beside.remove(id, rule);
                debug_assert!(taken, "{id:?} is not there");
                self.came -= usize::from(taken && !is_wide(&rule.matches));
            }
        }
    }

    /// The base's rule with this match whose place in the order this rank has: its own, or that of another number if no other rule of the base
    /// has its priority.
    fn place(&self, rank: Rank, matches: &Match) -> Option<usize> {
        let rules = &self.base.rules;
        let place = rules.binary_search_by_key(&rank, |&(rank, _)| rank).or_else(|_| {
            let priority = |at: usize| rules.get(at).map(|(rank, _)| rank.priority());
            let first = rules.partition_point(|(other, _)| other.priority() > rank.priority());
            let alone = priority(first) == Some(rank.priority()) && priority(first + 1) != priority(first);
            if alone { Ok(first) } else { Err(first) }
        });
        place.ok().filter(|&place| rules[place].1 == *matches)
    }

    /// The first matches of many keys, as `space` has them, which has the same rules; `out` is as long as `keys`, and what lies beyond the shorter is not
    /// looked at.
    pub fn lookup_batch(&self, space: &TupleSpace, keys: &[Key], out: &mut [Rank]) {
        if self.is_worn() {
            return space.lookup_batch(keys, out);
        }
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            let mut numbers = OnLines([NO_RULE; GROUP]);
            self.base.cross.find(keys, &mut numbers);
            self.finish(space, keys, &numbers, out);
        }
    }

    /// The same without vectors: the specification of [`lookup_batch`](Self::lookup_batch), and what it is where the CPU has none.
    pub fn lookup_batch_scalar(&self, space: &TupleSpace, keys: &[Key], out: &mut [Rank]) {
        if self.is_worn() {
            return space.lookup_batch_scalar(keys, out);
        }
        for (keys, out) in keys.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            let mut numbers = OnLines([NO_RULE; GROUP]);
            self.base.cross.find_scalar(keys, &mut numbers);
            self.finish(space, keys, &numbers, out);
        }
    }

    /// From the base's rules to those that there are.
    #[inline(always)]
    fn finish(&self, space: &TupleSpace, keys: &[Key], numbers: &[u32; GROUP], out: &mut [Rank]) {
        let keys = &keys[..keys.len().min(out.len())];
        let (mut lost, mut wide) = (0_u32, 0_u32);
        for (i, ((key, &number), out)) in keys.iter().zip(numbers).zip(&mut *out).enumerate() {
            let now = self.ranks.get(number as usize).copied();
            *out = now.unwrap_or(Rank::NONE);
            lost |= u32::from(now == Some(Rank::NONE)) << i;
            wide |= u32::from(is_ipv6(key)) << i;
        }
        if lost != 0 {
            ask(space, keys, lost, out);
        }
        let asked = if self.came > 0 { u32::MAX } else { wide };
        if asked & !lost != 0 && !self.beside.is_empty() {
            ask(&self.beside, keys, asked & !lost, out);
        }
    }

    /// What is wrong, if anything is; `space` has the same rules: for tests.
    ///
    /// # Errors
    /// The first thing found.
    pub fn check(&self, space: &TupleSpace) -> Result<(), String> {
        self.beside.check()?;
        let there = self.ranks.iter().zip(&self.base.rules).filter(|(rank, _)| **rank != Rank::NONE);
        let mut all: Vec<(Rank, Match)> = there.map(|(&rank, &(_, matches))| (rank, matches)).collect();
        if !all.is_sorted_by_key(|&(rank, _)| rank) || all.len() + self.gone != self.ranks.len() {
            return Err(format!("{} rules of {}, {} gone", all.len(), self.ranks.len(), self.gone));
        }
        let ranked = |(id, rule): (RuleId, Rule)| (Rank::new(rule.priority, id), rule.matches);
        let came = self.beside.rules().filter(|(_, rule)| !is_wide(&rule.matches)).count();
        all.extend(self.beside.rules().map(ranked));
        all.sort_unstable_by_key(|&(rank, _)| rank);
        if came != self.came || !space.rules().map(ranked).eq(all) {
            return Err(format!("{came} of {} have come, or not the same rules", self.came));
        }
        Ok(())
    }
}

/// Asks for those keys of a group whose bits are set: `out` has what they had, and gets what is better.
fn ask(space: &TupleSpace, keys: &[Key], mut which: u32, out: &mut [Rank]) {
    let (mut some, mut places, mut found) = ([Key::default(); GROUP], [0; GROUP], [Rank::NONE; GROUP]);
    let mut n = 0;
    while which != 0 {
        let place = which.trailing_zeros() as usize;
        if let Some(key) = keys.get(place) {
            (some[n], places[n]) = (*key, place);
            n += 1;
        }
        which &= which - 1;
    }
    space.lookup_batch(&some[..n], &mut found[..n]);
    for (&place, found) in places.iter().zip(&found[..n]) {
        out[place] = out[place].min(*found);
    }
}
