//! The paths that routes have, and what they come to with the links and nexthop objects as they are.

use super::decode::{NextHop, PathKind, RawPath};
use super::intern::Interner;
use super::{Hop, KernelPath};
use std::collections::HashMap;
use std::sync::Arc;

/// No target: no hop lives, or the nexthop object is not known.
pub(super) const NOWHERE: u32 = u32::MAX;
/// Nexthop groups hold objects, never groups (Linux); deeper is nonsense.
const GROUP_DEPTH: u32 = 2;

/// What routes need to know of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkState {
    pub(super) admin: bool,
    pub(super) carrier: bool,
}

impl LinkState {
    pub(super) const REMOVED: LinkState = LinkState { admin: false, carrier: false };

    pub(super) fn up(self) -> bool {
        self.admin && self.carrier
    }
}

/// Paths by number, and what each comes to.
pub(super) struct Paths {
    raw: Interner<RawPath>,
    /// By path number.
    targets: Vec<u32>,
    resolved: Interner<KernelPath>,
    /// A link that is not in here lives: its routes are there, so it must be.
    links: HashMap<u32, LinkState>,
    objects: HashMap<u32, (NextHop, u32)>,
    /// Links or objects have changed since the targets were found.
    stale: bool,
    fresh: usize,
}

impl Paths {
    pub(super) fn new() -> Self {
        Paths {
            raw: Interner::new(),
            targets: Vec::new(),
            resolved: Interner::new(),
            links: HashMap::new(),
            objects: HashMap::new(),
            stale: false,
            fresh: 0,
        }
    }

    pub(super) fn raw(&self, number: u32) -> Option<&RawPath> {
        self.raw.get(number).map(Arc::as_ref)
    }

    pub(super) fn number_of(&self, path: &RawPath) -> Option<u32> {
        self.raw.number_of(path)
    }

    /// The number of a path; it is resolved at once.
    pub(super) fn number(&mut self, path: RawPath) -> u32 {
        let (number, new) = self.raw.intern(path);
        if new {
            self.fresh += 1;
            let target = self.resolve(number);
            if self.targets.len() <= number as usize {
                self.targets.resize(number as usize + 1, NOWHERE);
            }
            self.targets[number as usize] = target;
        }
        number
    }

    /// What a path comes to: a number for [`Paths::target`], or [`NOWHERE`].
    pub(super) fn target_of(&self, path: u32) -> u32 {
        self.targets.get(path as usize).copied().unwrap_or(NOWHERE)
    }

    pub(super) fn target(&self, number: u32) -> Option<Arc<KernelPath>> {
        self.resolved.get(number).cloned()
    }

    fn resolve(&mut self, number: u32) -> u32 {
        let path = self.raw(number).and_then(|path| match &path.kind {
            PathKind::Fixed(path) => Some(path.clone()),
            PathKind::Hops(hops) => self.living(hops.iter().copied()),
            PathKind::Object(id) => self.object(*id),
        });
        path.map_or(NOWHERE, |path| self.resolved.intern(path).0)
    }

    fn lives(&self, index: u32) -> bool {
        self.links.get(&index).is_none_or(|link| link.up())
    }

    fn living(&self, hops: impl Iterator<Item = Hop>) -> Option<KernelPath> {
        let mut hops: Vec<Hop> = hops.filter(|hop| self.lives(hop.index)).collect();
        hops.sort_unstable();
        (!hops.is_empty()).then_some(KernelPath::Via(hops))
    }

    fn object(&self, id: u32) -> Option<KernelPath> {
        let mut hops = Vec::new();
        let only = self.collect(id, 1, GROUP_DEPTH, &mut hops);
        match only {
            Some(fixed) if hops.is_empty() => Some(fixed),
            _ => self.living(hops.into_iter()),
        }
    }

    /// Gathers an object's hops; returns what else it may be.
    fn collect(&self, id: u32, weight: u32, depth: u32, hops: &mut Vec<Hop>) -> Option<KernelPath> {
        match &self.objects.get(&id)?.0 {
            NextHop::Path(KernelPath::Via(own)) => {
                hops.extend(own.iter().map(|hop| Hop { weight, ..*hop }));
                None
            }
            NextHop::Path(fixed) => Some(fixed.clone()),
            NextHop::Group(members) if depth > 0 => {
                let mut fixed = None;
                for &(member, weight) in members {
                    fixed = self.collect(member, weight, depth - 1, hops).or(fixed);
                }
                fixed
            }
            NextHop::Group(_) => None,
        }
    }

    /// Takes a link's new state.
    pub(super) fn set_link(&mut self, index: u32, state: LinkState) {
        self.stale |= self.lives(index) != state.up();
        self.links.insert(index, state);
    }

    pub(super) fn link(&self, index: u32) -> Option<LinkState> {
        self.links.get(&index).copied()
    }

    /// Forgets the links that are not `known`: their routes are gone by now.
    pub(super) fn keep_links(&mut self, known: impl Fn(u32) -> bool) {
        self.links.retain(|index, _| known(*index));
    }

    pub(super) fn set_object(&mut self, id: u32, object: NextHop, generation: u32) {
        let same = self.objects.get(&id).is_some_and(|(old, _)| *old == object);
        self.stale |= !same;
        self.objects.insert(id, (object, generation));
    }

    /// Removes an object, and it from its groups; a group without members goes too (Linux `remove_nexthop`).
    pub(super) fn remove_object(&mut self, id: u32) {
        if self.objects.remove(&id).is_none() {
            return;
        }
        self.stale = true;
        self.objects.retain(|_, (object, _)| match object {
            NextHop::Group(members) => {
                members.retain(|&(member, _)| member != id);
                !members.is_empty()
            }
            NextHop::Path(_) => true,
        });
    }

    /// The kernel drops a dead link's nexthop objects without a word (Linux `nexthop_flush_dev`).
    pub(super) fn flush_objects(&mut self, index: u32) -> bool {
        let uses = |object: &NextHop| matches!(object, NextHop::Path(KernelPath::Via(hops)) if hops.iter().any(|hop| hop.index == index));
        let dead: Vec<u32> =
            self.objects.iter().filter(|(_, (object, _))| uses(object)).map(|(&id, _)| id).collect();
        for &id in &dead {
            self.remove_object(id);
        }
        !dead.is_empty()
    }

    /// Removes the objects that no dump from `since` on has seen.
    pub(super) fn sweep_objects(&mut self, since: u32) {
        let before = self.objects.len();
        self.objects.retain(|_, (_, seen)| *seen >= since);
        self.stale |= self.objects.len() != before;
    }

    /// Which paths the kernel has dropped without a word when link `index` died, by path number: (IPv4, IPv6).
    ///
    /// Down: the routes without a hop on a link that is up. Removed: in IPv4 every route with a hop on it (Linux
    /// `fib_sync_down_dev`).
    pub(super) fn dropped(&self, index: u32, removed: bool) -> Option<(Vec<bool>, Vec<bool>)> {
        let (mut v4, mut v6) = (vec![false; self.raw.end()], vec![false; self.raw.end()]);
        let down = |hop: &Hop| self.links.get(&hop.index).is_some_and(|link| !link.admin);
        let mut any = false;
        for (number, path) in self.raw.iter() {
            let (gone_v4, gone_v6) = match &path.kind {
                PathKind::Hops(hops) if hops.iter().any(|hop| hop.index == index) => {
                    let all = hops.iter().all(down);
                    (all || removed, all)
                }
                PathKind::Object(id) => {
                    let gone = !self.objects.contains_key(id);
                    (gone, gone)
                }
                _ => (false, false),
            };
            v4[number as usize] = gone_v4;
            v6[number as usize] = gone_v6;
            any |= gone_v4 || gone_v6;
        }
        any.then_some((v4, v6))
    }

    /// Finds the targets again if links or objects changed; `true` if any target did.
    pub(super) fn settle(&mut self) -> bool {
        if !std::mem::take(&mut self.stale) {
            return false;
        }
        let numbers: Vec<u32> = self.raw.iter().map(|(number, _)| number).collect();
        let mut changed = false;
        for number in numbers {
            let target = self.resolve(number);
            changed |= std::mem::replace(&mut self.targets[number as usize], target) != target;
        }
        changed
    }

    /// Whether so many paths have come since the last [`Paths::keep`] that it is worth a scan of all routes.
    pub(super) fn crowded(&self) -> bool {
        self.fresh > 1024.max(self.raw.len() / 2)
    }

    /// Forgets paths and targets that no route has.
    pub(super) fn keep(&mut self, raw: &[bool], targets: &[bool]) {
        let has = |in_use: &[bool], number: u32| in_use.get(number as usize).copied().unwrap_or(false);
        self.raw.keep(|number| has(raw, number));
        // What a path comes to stays with it, used at the moment or not.
        let mut kept = targets.to_vec();
        kept.resize(self.resolved.end(), false);
        for (number, _) in self.raw.iter() {
            if let Some(kept) = kept.get_mut(self.target_of(number) as usize) {
                *kept = true;
            }
        }
        self.resolved.keep(|number| has(&kept, number));
        self.fresh = 0;
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.raw.len()
    }

    pub(super) fn ends(&self) -> (usize, usize) {
        (self.raw.end(), self.resolved.end())
    }
}
