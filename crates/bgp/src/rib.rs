//! What all peers say: for each prefix its paths, and the next hop of the best one.
//!
//! ```text
//! 192.0.2.0/24 -> [peer 0, path 0, attributes 7] [peer 3, path 0, attributes 9]   told: 198.51.100.1
//! attributes 7 -> Arc<Attributes>, 812,000 paths
//! ```
//!
//! Attributes are stored once; a path is 16 bytes. [`Change`]s are what a router has to know: the next hop of the best path,
//! when it is another one than was told last.

use crate::attributes::Attributes;
use crate::best::{Candidate, Rank, best};
use crate::message::at;
use crate::update::Nlri;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::Family;

/// The number of a peer in a [`Rib`].
pub type PeerId = u32;

/// Paths that one peer may have to one prefix; more are as wrong as too many prefixes.
pub const PATHS_PER_PREFIX: usize = 64;

/// The best path of a prefix leads elsewhere than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// The next hop; `None`: there is no path any more.
    pub next_hop: Option<IpAddr>,
}

#[derive(Clone, Copy)]
struct Path {
    peer: PeerId,
    path: u32,
    attributes: u32,
    /// From before the peer's restart.
    stale: bool,
}

#[derive(Default)]
struct Entry {
    paths: Vec<Path>,
    told: Option<IpAddr>,
}

/// Attributes by number, with how many paths have them.
#[derive(Default)]
struct Shared {
    numbers: HashMap<Arc<Attributes>, u32>,
    values: Vec<(Arc<Attributes>, u32)>,
    free: Vec<u32>,
}

impl Shared {
    /// The number of these attributes, for one more path. The routes of one update come one after the other.
    fn take(&mut self, attributes: &Arc<Attributes>) -> u32 {
        if let Some(&number) = self.numbers.get(attributes) {
            self.values[number as usize].1 += 1;
            return number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.values[number as usize] = (attributes.clone(), 1);
                number
            }
            None => {
                self.values.push((attributes.clone(), 1));
                (self.values.len() - 1) as u32
            }
        };
        self.numbers.insert(attributes.clone(), number);
        number
    }

    fn give_back(&mut self, number: u32) {
        let (value, users) = &mut self.values[number as usize];
        *users -= 1;
        if *users == 0 {
            self.numbers.remove(value);
            self.free.push(number);
        }
    }

    fn get(&self, number: u32) -> &Arc<Attributes> {
        &self.values[number as usize].0
    }
}

struct Peer {
    rank: Rank,
    /// Paths by family.
    paths: [usize; 2],
}

/// A path as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPath {
    /// Whose it is.
    pub peer: PeerId,
    /// Its identifier.
    pub path: u32,
    /// Its attributes.
    pub attributes: Arc<Attributes>,
    /// From before the peer's restart.
    pub stale: bool,
    /// The one in use.
    pub best: bool,
}

/// All paths of all peers.
#[derive(Default)]
pub struct Rib {
    prefixes: BTreeMap<AnyPrefix, Entry>,
    shared: Shared,
    peers: Vec<Peer>,
}

impl Rib {
    /// Adds a peer.
    pub fn add_peer(&mut self, rank: Rank) -> PeerId {
        self.peers.push(Peer { rank, paths: [0; 2] });
        (self.peers.len() - 1) as PeerId
    }

    /// What decides between this peer's routes and others is another by now. Its paths are compared anew, if it has any.
    pub fn set_rank(&mut self, peer: PeerId, rank: Rank, out: &mut Vec<Change>) {
        let Rib { prefixes, shared, peers } = self;
        let Some(owner) = peers.get_mut(peer as usize) else { return };
        if std::mem::replace(&mut owner.rank, rank) == rank || owner.paths == [0; 2] {
            return;
        }
        for (prefix, entry) in prefixes {
            if entry.paths.iter().any(|path| path.peer == peer) {
                tell(*prefix, entry, shared, peers, out);
            }
        }
    }

    /// How many paths a peer has, by family ([`at`]).
    pub fn paths(&self, peer: PeerId) -> [usize; 2] {
        self.peers.get(peer as usize).map_or([0; 2], |peer| peer.paths)
    }

    /// Prefixes that have a path.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// How many different attributes there are.
    pub fn attributes(&self) -> usize {
        self.shared.numbers.len()
    }

    /// Takes an announcement. Returns whether there was room: see [`PATHS_PER_PREFIX`].
    pub fn announce(
        &mut self,
        peer: PeerId,
        nlri: Nlri,
        attributes: &Arc<Attributes>,
        out: &mut Vec<Change>,
    ) -> bool {
        let Rib { prefixes, shared, peers } = self;
        let Some(owner) = peers.get_mut(peer as usize) else { return false };
        let entry = prefixes.entry(nlri.prefix).or_default();
        let place = entry.paths.iter().position(|path| path.peer == peer && path.path == nlri.path);
        match place {
            Some(place) => {
                let path = &mut entry.paths[place];
                path.stale = false;
                // The old ones last, for they may be the same.
                let before = std::mem::replace(&mut path.attributes, shared.take(attributes));
                shared.give_back(before);
                if before == entry.paths[place].attributes {
                    return true;
                }
            }
            None if nlri.path != 0
                && entry.paths.iter().filter(|path| path.peer == peer).count() >= PATHS_PER_PREFIX =>
            {
                return false;
            }
            None => {
                let attributes = shared.take(attributes);
                entry.paths.push(Path { peer, path: nlri.path, attributes, stale: false });
                owner.paths[at(nlri.family())] += 1;
            }
        }
        tell(nlri.prefix, entry, shared, peers, out);
        true
    }

    /// Takes a withdrawal; of what is not there, nothing.
    pub fn withdraw(&mut self, peer: PeerId, nlri: Nlri, out: &mut Vec<Change>) {
        let Some(entry) = self.prefixes.get_mut(&nlri.prefix) else { return };
        let of = |path: &Path| path.peer == peer && path.path == nlri.path;
        if remove(nlri.prefix, entry, of, &mut self.shared, &mut self.peers, out) {
            self.prefixes.remove(&nlri.prefix);
        }
    }

    /// Withdraws a peer's paths: all, or those of one family; only stale ones, if so asked. Looks at all prefixes.
    pub fn withdraw_all(
        &mut self,
        peer: PeerId,
        family: Option<Family>,
        stale_only: bool,
        out: &mut Vec<Change>,
    ) {
        if self.paths(peer).iter().sum::<usize>() == 0 {
            return;
        }
        let Rib { prefixes, shared, peers } = self;
        prefixes.retain(|prefix, entry| {
            let of = |path: &Path| path.peer == peer && (path.stale || !stale_only);
            let meant = family.is_none_or(|family| family == family_of(*prefix));
            !(meant && remove(*prefix, entry, of, shared, peers, out))
        });
    }

    /// Marks a peer's paths of one family as being from before its restart.
    pub fn mark_stale(&mut self, peer: PeerId, family: Family) {
        for (prefix, entry) in &mut self.prefixes {
            if family_of(*prefix) == family {
                entry.paths.iter_mut().filter(|path| path.peer == peer).for_each(|path| path.stale = true);
            }
        }
    }

    /// The next hop of each prefix's best path, in order.
    pub fn best(&self) -> impl Iterator<Item = (AnyPrefix, IpAddr)> {
        self.prefixes.iter().filter_map(|(prefix, entry)| Some((*prefix, entry.told?)))
    }

    /// The paths of one prefix.
    pub fn get(&self, prefix: AnyPrefix) -> Option<Vec<ShownPath>> {
        self.prefixes.get(&prefix).map(|entry| self.show(entry))
    }

    /// The prefixes behind `after`, in order, with their paths.
    pub fn after(&self, after: Option<AnyPrefix>) -> impl Iterator<Item = (AnyPrefix, Vec<ShownPath>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.prefixes.range((from, Bound::Unbounded)).map(|(prefix, entry)| (*prefix, self.show(entry)))
    }

    fn show(&self, entry: &Entry) -> Vec<ShownPath> {
        let best = choose(entry, &self.shared, &self.peers);
        let shown = |(place, path): (usize, &Path)| ShownPath {
            peer: path.peer,
            path: path.path,
            attributes: self.shared.get(path.attributes).clone(),
            stale: path.stale,
            best: best == Some(place),
        };
        entry.paths.iter().enumerate().map(shown).collect()
    }

    /// Panics where counts and what is there disagree: for tests.
    #[doc(hidden)]
    pub fn check(&self) {
        let mut users = vec![0; self.shared.values.len()];
        let mut paths = vec![[0; 2]; self.peers.len()];
        for (prefix, entry) in &self.prefixes {
            assert!(!entry.paths.is_empty(), "{prefix} has no path");
            for path in &entry.paths {
                users[path.attributes as usize] += 1;
                paths[path.peer as usize][at(family_of(*prefix))] += 1;
            }
            let best = choose(entry, &self.shared, &self.peers);
            let hop = best.map(|place| self.shared.get(entry.paths[place].attributes).next_hop);
            assert_eq!(entry.told, hop, "{prefix}");
        }
        for (number, (value, count)) in self.shared.values.iter().enumerate() {
            assert_eq!(users[number], *count, "attributes {number}");
            let known = self.shared.numbers.get(value).is_some_and(|known| *known == number as u32);
            assert!(*count == 0 || known, "attributes {number}");
        }
        for (peer, paths) in self.peers.iter().zip(paths) {
            assert_eq!(peer.paths, paths);
        }
    }
}

fn family_of(prefix: AnyPrefix) -> Family {
    match prefix {
        AnyPrefix::V4(_) => Family::V4,
        AnyPrefix::V6(_) => Family::V6,
    }
}

/// Removes paths of an entry. Returns whether it is empty.
fn remove(
    prefix: AnyPrefix,
    entry: &mut Entry,
    of: impl Fn(&Path) -> bool,
    shared: &mut Shared,
    peers: &mut [Peer],
    out: &mut Vec<Change>,
) -> bool {
    let before = entry.paths.len();
    entry.paths.retain(|path| {
        let gone = of(path);
        if gone {
            shared.give_back(path.attributes);
            peers[path.peer as usize].paths[at(family_of(prefix))] -= 1;
        }
        !gone
    });
    if entry.paths.len() < before {
        tell(prefix, entry, shared, peers, out);
    }
    entry.paths.is_empty()
}

fn choose(entry: &Entry, shared: &Shared, peers: &[Peer]) -> Option<usize> {
    if entry.paths.len() < 2 {
        return entry.paths.len().checked_sub(1);
    }
    let candidate = |path: &Path| Candidate {
        attributes: shared.get(path.attributes),
        rank: &peers[path.peer as usize].rank,
        peer: path.peer,
        path: path.path,
    };
    best(entry.paths.iter().map(candidate))
}

/// Tells where the best path leads, if that is news.
fn tell(prefix: AnyPrefix, entry: &mut Entry, shared: &Shared, peers: &[Peer], out: &mut Vec<Change>) {
    let best = choose(entry, shared, peers);
    let next_hop = best.map(|place| shared.get(entry.paths[place].attributes).next_hop);
    if entry.told != next_hop {
        entry.told = next_hop;
        out.push(Change { prefix, next_hop });
    }
}

#[cfg(test)]
mod tests;
