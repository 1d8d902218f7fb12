//! Routes that a lookup structure has no room for: they are found among those that came with them, named, left out, and tried again.
//!
//! A table takes a batch of changes or refuses it whole. But a source such as the kernel says each thing once: what else is in its batch
//! must not be lost. So after a refusal what takes away goes first, then routes by next hops that are in use already, then the others, each
//! in halves down to the routes that do not fit. A refusal may cost a build of the table, so there are at most [`REFUSALS`] in one go; what has
//! not been looked at then waits with what was refused, and every [`AGAIN_NS`] some of it is tried again.
//!
//! # Invariant
//! What a source has said and is not in the table waits, or has been named. A route that waits has no older form of itself in the table: a
//! prefix whose new route does not fit has none from this source.

use crate::control::{Routed, RouterControl, RouterError, host_route};
use crate::plane::{RouteChange, Source, coalesce};
use std::collections::BTreeMap;
use std::ops::Bound;
use tidemill_ip::neighbor::Key;
use tidemill_lpm::Prefix;
use tidemill_lpm::table::Family;

/// Refusals in one go.
const REFUSALS: usize = 64;
/// The same when what waits is tried again.
const REFUSALS_AGAIN: usize = 8;
/// Changes of one batch then: few enough that refusals suffice to find one that does not fit.
const TOGETHER: usize = 32;
/// From one such trial to the next.
const AGAIN_NS: u64 = 10_000_000_000;

/// VRF, source, prefix.
type Place<A> = (usize, Source, Prefix<A>);

/// What waits for room.
#[doc(hidden)]
pub struct Waiting<A: Family> {
    changes: BTreeMap<Place<A>, Option<crate::NextHop>>,
    /// The last one that was tried again, if there are more behind it.
    last: Option<Place<A>>,
    /// The generation of all tables when the last round of trials began. While nothing changes nothing is tried.
    generation: u64,
    due_ns: u64,
}

impl<A: Family> Default for Waiting<A> {
    fn default() -> Self {
        Waiting { changes: BTreeMap::new(), last: None, generation: 0, due_ns: 0 }
    }
}

impl<A: Family> Waiting<A> {
    /// Routes of a VRF that wait.
    pub(crate) fn count(&self, vrf: usize) -> usize {
        self.changes.keys().filter(|place| place.0 == vrf).count()
    }
}

/// Changes that were not taken.
struct Rest<A: Family> {
    /// Each by itself.
    refused: Vec<RouteChange<A>>,
    /// Behind the last refusal that there could be, in their order.
    untried: Vec<RouteChange<A>>,
    /// What the structure said of the first.
    why: Option<String>,
    /// Refusals that there may still be.
    left: usize,
}

impl<A: Family> Rest<A> {
    fn new(why: Option<String>, left: usize) -> Self {
        Rest { refused: Vec::new(), untried: Vec::new(), why, left }
    }
}

impl RouterError {
    /// Whether these are routes that wait for room by themselves: no configuration names them.
    pub fn waits(&self) -> bool {
        matches!(self, RouterError::Refused { from, .. } if from.waits())
    }
}

/// The first of what does not fit, where no more of it can be told.
pub(crate) fn first(refused: Vec<RouterError>) -> Result<(), RouterError> {
    refused.into_iter().next().map_or(Ok(()), Err)
}

impl RouterControl {
    /// Changes routes of one source in one VRF, as far as they fit.
    ///
    /// # Errors
    /// [`RouterError::Refused`]: some do not. Those of BGP, of the kernel and of neighbors wait for room.
    pub(crate) fn change_as_fits<A: Routed>(
        &mut self,
        vrf: usize,
        source: Source,
        changes: &[RouteChange<A>],
    ) -> Result<(), RouterError> {
        let coalesced = coalesce(changes);
        let changes = coalesced.as_deref().unwrap_or(changes);
        let waiting = A::waiting(self);
        let news: Vec<RouteChange<A>>;
        let changes = match waiting.changes.is_empty() {
            true => changes,
            false => {
                // What waits already waits on; of what is said anew the old word counts no more.
                let mut is_new = |(prefix, hop): &&RouteChange<A>| {
                    let place = (vrf, source, *prefix);
                    let same = hop.is_some() && waiting.changes.get(&place) == Some(hop);
                    if !same {
                        waiting.changes.remove(&place);
                    }
                    !same
                };
                news = changes.iter().filter(&mut is_new).cloned().collect();
                &news[..]
            }
        };
        let why = match self.change(vrf, source, changes) {
            Ok(_) => return Ok(()),
            Err(RouterError::Table { source, .. }) => source.to_string(),
            Err(error) => return Err(error),
        };
        self.fit(vrf, source, changes.to_vec(), Rest::new(Some(why), REFUSALS))
    }

    /// Takes what fits of changes that do not fit all together, each prefix once.
    fn fit<A: Routed>(
        &mut self,
        vrf: usize,
        source: Source,
        changes: Vec<RouteChange<A>>,
        mut rest: Rest<A>,
    ) -> Result<(), RouterError> {
        let (gone, come): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, hop)| hop.is_none());
        self.halve(vrf, source, gone, &mut rest)?;
        // A next hop that is in use needs no label.
        let labels = A::plane(self).labels();
        let known =
            |change: &RouteChange<A>| change.1.as_ref().is_some_and(|hop| labels.label(hop).is_some());
        let (known, new): (Vec<_>, Vec<_>) = come.into_iter().partition(known);
        self.halve(vrf, source, known, &mut rest)?;
        self.halve(vrf, source, new, &mut rest)?;
        let Rest { mut refused, mut untried, why, .. } = rest;
        let all_tried = untried.is_empty();
        refused.append(&mut untried);
        let Some((first, _)) = refused.first() else { return Ok(()) };
        let (count, first) = (refused.len(), first.to_string());
        // The older form of a route is not what its source says any more.
        let plane = A::plane(self);
        let older =
            |(prefix, hop): &&RouteChange<A>| hop.is_some() && plane.route(vrf, source, *prefix).is_some();
        let older: Vec<RouteChange<A>> =
            refused.iter().filter(older).map(|(prefix, _)| (*prefix, None)).collect();
        let mut kept = Rest::new(None, REFUSALS);
        self.halve(vrf, source, older, &mut kept)?;
        if source.waits() {
            let generation = if all_tried { self.generation() } else { 0 };
            let waiting = A::waiting(self);
            // What has been tried needs another table first.
            if waiting.changes.is_empty() || !all_tried {
                waiting.generation = generation;
            }
            let places = refused.into_iter().map(|(prefix, hop)| ((vrf, source, prefix), hop));
            waiting.changes.extend(places);
        }
        let vrf = self.vrfs.get(vrf).cloned().unwrap_or_default();
        let why = why.unwrap_or_default();
        Err(RouterError::Refused { family: A::FAMILY, vrf, from: source, count, first, why })
    }

    /// Applies changes, in halves where they are refused; `rest` gets those that are refused by themselves, and those for which there
    /// have been refusals enough.
    fn halve<A: Routed>(
        &mut self,
        vrf: usize,
        source: Source,
        changes: Vec<RouteChange<A>>,
        rest: &mut Rest<A>,
    ) -> Result<(), RouterError> {
        let mut parts = vec![changes];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            if rest.left == 0 {
                rest.untried.append(&mut part);
                continue;
            }
            match self.change(vrf, source, &part) {
                Ok(_) => {}
                Err(RouterError::Table { source: why, .. }) => {
                    rest.left -= 1;
                    if rest.why.is_none() || part.len() == 1 && rest.refused.is_empty() {
                        rest.why = Some(why.to_string());
                    }
                    match part.len() {
                        1 => rest.refused.append(&mut part),
                        len => {
                            parts.push(part.split_off(len / 2));
                            parts.push(part);
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tries some of what waits again, now and then, if anything has changed since; and to build what had no memory.
    ///
    /// # Errors
    /// What a table's refusal is not.
    pub(crate) fn try_again<A: Routed>(&mut self, now_ns: u64) -> Result<(), RouterError> {
        let waiting = A::waiting(self);
        let (due, none) = (now_ns >= waiting.due_ns, waiting.changes.is_empty());
        if !due || none && !A::plane(self).is_broken() {
            return Ok(());
        }
        A::waiting(self).due_ns = now_ns.saturating_add(AGAIN_NS);
        A::plane(self).mend();
        if none {
            return Ok(());
        }
        let waiting = A::waiting(self);
        let (from, seen) = (waiting.last.take(), waiting.generation);
        let generation = self.generation();
        if from.is_none() {
            if generation == seen {
                return Ok(());
            }
            A::waiting(self).generation = generation;
        }
        let waiting = A::waiting(self);
        let behind = (from.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let all: Vec<_> = waiting.changes.range(behind).map(|(place, hop)| (*place, hop.clone())).collect();
        let mut fitted = 0;
        let mut rest = Rest::new(None, REFUSALS_AGAIN);
        let mut at = 0;
        while at < all.len() && rest.left > 0 {
            let (vrf, source, _) = all[at].0;
            let like = |(place, _): &&(Place<A>, _)| (place.0, place.1) == (vrf, source);
            let run: Vec<_> = all[at..].iter().take_while(like).take(TOGETHER).cloned().collect();
            let mut changes: Vec<RouteChange<A>> = Vec::with_capacity(run.len());
            for ((_, _, prefix), hop) in &run {
                A::waiting(self).changes.remove(&(vrf, source, *prefix));
                if source != Source::Neighbor || self.is_wanted(vrf, *prefix, hop.as_ref()) {
                    changes.push((*prefix, hop.clone()));
                }
            }
            let tried = changes.len();
            self.halve(vrf, source, changes, &mut rest)?;
            let untried = rest.untried.first().map(|(prefix, _)| *prefix);
            at += run.iter().position(|((_, _, prefix), _)| Some(*prefix) == untried).unwrap_or(run.len());
            let left: Vec<_> = rest.refused.drain(..).chain(rest.untried.drain(..)).collect();
            fitted += tried - left.len();
            let places = left.into_iter().map(|(prefix, hop)| ((vrf, source, prefix), hop));
            A::waiting(self).changes.extend(places);
        }
        let more = at > 0 && at < all.len();
        A::waiting(self).last = more.then(|| all[at - 1].0);
        if fitted > 0 {
            let left = A::waiting(self).changes.len();
            self.notes.push(format!(
                "IPv{} table: {fitted} routes fit now that had been refused; {left} wait for room",
                A::FAMILY
            ));
        }
        Ok(())
    }

    /// Whether a neighbor is still to have a host route that waits.
    fn is_wanted<A: Routed>(&mut self, vrf: usize, prefix: Prefix<A>, hop: Option<&crate::NextHop>) -> bool {
        let Some(crate::NextHop::Via(interface, address)) = hop else { return hop.is_none() };
        let key = Key { interface: *interface, address: *address };
        let known = self.neighbors.get(key).is_some_and(|neighbor| neighbor.mac.is_some());
        known && host_route(A::plane(self), vrf, key, prefix.first(), known).is_some()
    }
}
