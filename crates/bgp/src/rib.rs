//! What all peers say: for each prefix its paths, and the next hop of the best one.
//!
//! ```text
//! 192.0.2.0/24 -> [peer 0, path 0, attributes 7] [peer 3, path 0, attributes 9]   told: 198.51.100.1
//! attributes 7 -> Arc<Attributes>, 812,000 paths -> next hop 2
//! next hop 2   -> 198.51.100.1, reached
//! ```
//!
//! Attributes and next hops are stored once; a path is 16 bytes. [`Change`]s are what a router has to know: the next hop of the
//! best path, when it is another one than was told last.
//!
//! What concerns a whole peer or a next hop takes no time where it is said, be it a million paths: each path has the *mark* of the
//! time when it was told, and a peer says from which mark on its paths count. [`Rib::sweep`] goes over all prefixes in slices and
//! carries out what follows from that.

use crate::attributes::Attributes;
use crate::best::{Candidate, Rank, best};
use crate::message::at;
use crate::update::Nlri;
use shared::{Reach, Shared};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::Family;

mod shared;
mod steer;

pub(crate) use steer::Giver;
pub use steer::Invalid;

/// The number of a peer in a [`Rib`].
pub type PeerId = u32;

/// Paths that one peer may have to one prefix (RFC 7911 sets no bound); more are left out.
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
    /// When it was told, as its peer counts: see [`Times`].
    mark: u32,
}

#[derive(Default)]
struct Entry {
    paths: Vec<Path>,
    told: Option<IpAddr>,
}

/// Which of a peer's paths of one family count. Marks are counted on by what ends or begins a session, so that they never run out.
#[derive(Clone, Copy, Default)]
struct Times {
    /// The mark of what is told now.
    now: u32,
    /// Paths with an earlier one are from before the peer's restart,
    stale: u32,
    /// ... and with one before this they are withdrawn; the sweep takes them away.
    dead: u32,
    fresh_paths: usize,
    stale_paths: usize,
}

struct Peer {
    rank: Rank,
    /// By family.
    times: [Times; 2],
    /// Up to which pass of the sweep its paths are compared again.
    again: u64,
}

/// The walk over all prefixes. What is wanted while one pass is under way needs that pass's rest, and the next one.
#[derive(Default)]
struct Sweep {
    /// The pass that is under way, or was the last.
    pass: u64,
    running: bool,
    /// The last prefix that it has been to.
    after: Option<AnyPrefix>,
    /// The last pass that is wanted.
    wanted: u64,
}

impl Sweep {
    /// Asks for all prefixes to be looked at. Returns up to which pass.
    fn ask(&mut self) -> u64 {
        self.wanted = self.pass + 1;
        self.wanted
    }

    fn is_due(&self) -> bool {
        self.running || self.wanted > self.pass
    }

    /// Where to go on, if there is anything to do.
    fn begin(&mut self) -> Option<Bound<AnyPrefix>> {
        if !self.is_due() {
            return None;
        }
        if !std::mem::replace(&mut self.running, true) {
            self.pass += 1;
        }
        Some(self.after.map_or(Bound::Unbounded, Bound::Excluded))
    }

    fn end(&mut self) {
        (self.running, self.after) = (false, None);
    }
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
    /// Whether its next hop can be reached, as far as anybody has said.
    pub reached: bool,
    /// The one in use.
    pub best: bool,
}

/// All paths of all peers.
#[derive(Default)]
pub struct Rib {
    prefixes: BTreeMap<AnyPrefix, Entry>,
    shared: Shared,
    peers: Vec<Peer>,
    /// Prefixes with a path by a next hop that is to be looked up.
    open: Vec<AnyPrefix>,
    sweep: Sweep,
}

impl Rib {
    /// Adds a peer.
    pub fn add_peer(&mut self, rank: Rank) -> PeerId {
        self.peers.push(Peer { rank, times: Default::default(), again: 0 });
        (self.peers.len() - 1) as PeerId
    }

    /// What decides between this peer's routes and others is another by now. The [sweep](Self::sweep) compares its paths anew.
    pub fn set_rank(&mut self, peer: PeerId, rank: Rank) {
        let Some(owner) = self.peers.get_mut(peer as usize) else { return };
        if std::mem::replace(&mut owner.rank, rank) != rank && count(owner) != [0; 2] {
            owner.again = self.sweep.ask();
        }
    }

    /// How many paths a peer has, by family ([`at`]).
    pub fn paths(&self, peer: PeerId) -> [usize; 2] {
        self.peers.get(peer as usize).map_or([0; 2], count)
    }

    /// Prefixes that have a path, or had one that the [sweep](Self::sweep) has not taken away yet.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// How many different attributes there are.
    pub fn attributes(&self) -> usize {
        self.shared.len()
    }

    /// How many different next hops there are.
    pub fn next_hops(&self) -> usize {
        self.shared.hop_count()
    }

    /// Takes an announcement. Returns whether there was room: see [`PATHS_PER_PREFIX`].
    pub fn announce(
        &mut self,
        peer: PeerId,
        nlri: Nlri,
        attributes: &Arc<Attributes>,
        out: &mut Vec<Change>,
    ) -> bool {
        let Rib { prefixes, shared, peers, open, .. } = self;
        let Some(owner) = peers.get_mut(peer as usize) else { return false };
        let times = &mut owner.times[at(nlri.family())];
        let entry = prefixes.entry(nlri.prefix).or_default();
        let place = entry.paths.iter().position(|path| path.peer == peer && path.path == nlri.path);
        let number = match place.filter(|place| entry.paths[*place].mark >= times.dead) {
            Some(place) => {
                let path = &mut entry.paths[place];
                if std::mem::replace(&mut path.mark, times.now) < times.stale {
                    times.stale_paths -= 1;
                    times.fresh_paths += 1;
                }
                // The old ones last, for they may be the same.
                let number = shared.take(attributes);
                let before = std::mem::replace(&mut path.attributes, number);
                shared.give_back(before);
                if before == number {
                    return true;
                }
                number
            }
            None => {
                let alive = |path: &&Path| path.peer == peer && path.mark >= times.dead;
                if nlri.path != 0 && entry.paths.iter().filter(alive).count() >= PATHS_PER_PREFIX {
                    return false;
                }
                let number = shared.take(attributes);
                // One that the sweep has not come to.
                if let Some(place) = place {
                    shared.give_back(entry.paths.swap_remove(place).attributes);
                }
                entry.paths.push(Path { peer, path: nlri.path, attributes: number, mark: times.now });
                times.fresh_paths += 1;
                number
            }
        };
        if shared.hops.is_open(shared.hop_of(number)) {
            open.push(nlri.prefix);
        }
        tell(nlri.prefix, entry, shared, peers, None, out);
        true
    }

    /// Takes a withdrawal; of what is not there, nothing.
    pub fn withdraw(&mut self, peer: PeerId, nlri: Nlri, out: &mut Vec<Change>) {
        let Rib { prefixes, shared, peers, .. } = self;
        let Some(entry) = prefixes.get_mut(&nlri.prefix) else { return };
        let of = |path: &Path| path.peer == peer && path.path == nlri.path;
        let Some(place) = entry.paths.iter().position(of) else { return };
        let path = entry.paths.remove(place);
        shared.give_back(path.attributes);
        let times = &mut peers[peer as usize].times[at(nlri.family())];
        match path.mark {
            mark if mark < times.dead => {}
            mark if mark < times.stale => times.stale_paths -= 1,
            _ => times.fresh_paths -= 1,
        }
        tell(nlri.prefix, entry, shared, peers, None, out);
        if entry.paths.is_empty() {
            prefixes.remove(&nlri.prefix);
        }
    }

    /// Withdraws a peer's paths: all, or those of one family; only stale ones, if so asked. They count no longer; what follows
    /// from that is told by the [sweep](Self::sweep).
    pub fn withdraw_all(&mut self, peer: PeerId, family: Option<Family>, stale_only: bool) {
        let Some(owner) = self.peers.get_mut(peer as usize) else { return };
        for (place, times) in owner.times.iter_mut().enumerate() {
            let meant = family.is_none_or(|family| at(family) == place);
            let paths = times.stale_paths + if stale_only { 0 } else { times.fresh_paths };
            if !meant || paths == 0 {
                continue;
            }
            if !stale_only {
                times.now += 1;
                (times.stale, times.fresh_paths) = (times.now, 0);
            }
            (times.dead, times.stale_paths) = (times.stale, 0);
            self.sweep.ask();
        }
    }

    /// Marks a peer's paths of one family as being from before its restart.
    pub fn mark_stale(&mut self, peer: PeerId, family: Family) {
        let Some(owner) = self.peers.get_mut(peer as usize) else { return };
        let times = &mut owner.times[at(family)];
        times.now += 1;
        times.stale = times.now;
        times.stale_paths += std::mem::take(&mut times.fresh_paths);
    }

    /// Looks up the next hops that have come since the last call, and compares the paths by them: those by a next hop that cannot
    /// be reached are not used (RFC 4271, 9.1.2). Without any call all can be reached.
    pub fn look_up(&mut self, mut reached: impl FnMut(IpAddr) -> bool, out: &mut Vec<Change>) {
        let Rib { prefixes, shared, peers, open, sweep } = self;
        let noted = shared.hops.is_followed();
        for number in shared.hops.asked() {
            let address = shared.hops.get(number).address;
            // What turns, or was there before anybody asked, stands in prefixes that nobody has noted.
            if shared.hops.answer(number, reached(address), noted, sweep.pass + 1) {
                sweep.ask();
            }
        }
        for prefix in open.drain(..) {
            if let Some(entry) = prefixes.get_mut(&prefix) {
                tell(prefix, entry, shared, peers, None, out);
            }
        }
    }

    /// A next hop leads elsewhere than it did, or nowhere any more, or somewhere again. The [sweep](Self::sweep) compares the paths
    /// by it, and tells of those that are in use although their next hop is the same.
    pub fn hop_turned(&mut self, address: IpAddr, reached: bool) {
        let pass = self.sweep.pass + 1;
        if let Some(hop) = self.shared.hops.find(address) {
            hop.reach = if reached { Reach::Reached } else { Reach::Lost };
            hop.again = pass;
            self.sweep.ask();
        }
    }

    /// Has the next [`look_up`](Self::look_up) ask again for the next hops that could not be reached.
    pub fn ask_lost(&mut self) {
        self.shared.hops.ask_lost();
    }

    /// The next hops that no path has any more, since the last call.
    pub fn gone(&mut self) -> Vec<IpAddr> {
        self.shared.hops.gone()
    }

    /// Goes on with what concerns many prefixes at once, for so many prefixes. Returns whether there is more to do.
    pub fn sweep(&mut self, at_most: usize, out: &mut Vec<Change>) -> bool {
        let mut left = at_most;
        while left > 0
            && let Some(from) = self.sweep.begin()
        {
            let Rib { prefixes, shared, peers, sweep, .. } = self;
            let (mut seen, mut empty) = (0, Vec::new());
            for (prefix, entry) in prefixes.range_mut((from, Bound::Unbounded)).take(left) {
                seen += 1;
                sweep.after = Some(*prefix);
                review(*prefix, entry, shared, peers, sweep.pass, out);
                if entry.paths.is_empty() {
                    empty.push(*prefix);
                }
            }
            empty.iter().for_each(|prefix| drop(prefixes.remove(prefix)));
            if seen < left {
                sweep.end();
            }
            // An empty table is a pass, too.
            left -= seen.max(1);
        }
        self.sweep.is_due()
    }

    /// The next hop of each prefix's best path, in order.
    pub fn best(&self) -> impl Iterator<Item = (AnyPrefix, IpAddr)> {
        self.prefixes.iter().filter_map(|(prefix, entry)| Some((*prefix, entry.told?)))
    }

    /// The paths of one prefix.
    pub fn get(&self, prefix: AnyPrefix) -> Option<Vec<ShownPath>> {
        let entry = self.prefixes.get(&prefix)?;
        Some(self.show(prefix, entry)).filter(|paths| !paths.is_empty())
    }

    /// The prefixes behind `after`, in order, with their paths.
    pub fn after(&self, after: Option<AnyPrefix>) -> impl Iterator<Item = (AnyPrefix, Vec<ShownPath>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let from = self.prefixes.range((from, Bound::Unbounded));
        from.map(|(prefix, entry)| (*prefix, self.show(*prefix, entry)))
    }

    fn show(&self, prefix: AnyPrefix, entry: &Entry) -> Vec<ShownPath> {
        let best = choose(prefix, entry, &self.shared, &self.peers);
        let family = at(family_of(prefix));
        let shown = |(place, path): (usize, &Path)| {
            let times = &self.peers[path.peer as usize].times[family];
            (path.mark >= times.dead).then(|| ShownPath {
                peer: path.peer,
                path: path.path,
                attributes: self.shared.get(path.attributes).clone(),
                stale: path.mark < times.stale,
                reached: self.shared.hop(path.attributes).reach != Reach::Lost,
                best: best == Some(place),
            })
        };
        entry.paths.iter().enumerate().filter_map(shown).collect()
    }

    /// Panics where counts and what is there disagree: for tests. What the sweep has not come to may be as it was.
    #[doc(hidden)]
    pub fn check(&self) {
        let mut users: HashMap<u32, u32> = HashMap::new();
        let mut paths = vec![[[0; 2]; 2]; self.peers.len()];
        let settled = !self.sweep.is_due() && self.open.is_empty();
        for (prefix, entry) in &self.prefixes {
            let family = at(family_of(*prefix));
            assert!(!entry.paths.is_empty(), "{prefix} has no path");
            for path in &entry.paths {
                *users.entry(path.attributes).or_default() += 1;
                let times = &self.peers[path.peer as usize].times[family];
                match path.mark {
                    mark if mark < times.dead => assert!(!settled, "{prefix} has a path that is gone"),
                    mark => paths[path.peer as usize][family][usize::from(mark < times.stale)] += 1,
                }
            }
            if settled {
                let best = choose(*prefix, entry, &self.shared, &self.peers);
                let hop = best.map(|place| self.shared.hop(entry.paths[place].attributes).address);
                assert_eq!(entry.told, hop, "{prefix}");
            }
        }
        self.shared.check(&users);
        for (peer, paths) in self.peers.iter().zip(paths) {
            assert_eq!(peer.times.map(|times| [times.fresh_paths, times.stale_paths]), paths);
        }
    }
}

fn count(peer: &Peer) -> [usize; 2] {
    peer.times.map(|times| times.fresh_paths + times.stale_paths)
}

fn family_of(prefix: AnyPrefix) -> Family {
    match prefix {
        AnyPrefix::V4(_) => Family::V4,
        AnyPrefix::V6(_) => Family::V6,
    }
}

/// Looks at a prefix for the sweep: paths that are gone, others that are to be compared again.
fn review(
    prefix: AnyPrefix,
    entry: &mut Entry,
    shared: &mut Shared,
    peers: &[Peer],
    pass: u64,
    out: &mut Vec<Change>,
) {
    let family = at(family_of(prefix));
    let mut concerned = false;
    entry.paths.retain(|path| {
        let peer = &peers[path.peer as usize];
        let gone = path.mark < peer.times[family].dead;
        concerned |= gone || peer.again >= pass || shared.hop(path.attributes).again >= pass;
        if gone {
            shared.give_back(path.attributes);
        }
        !gone
    });
    if concerned {
        tell(prefix, entry, shared, peers, Some(pass), out);
    }
}

/// The place of the best path of those that count.
fn choose(prefix: AnyPrefix, entry: &Entry, shared: &Shared, peers: &[Peer]) -> Option<usize> {
    let family = at(family_of(prefix));
    let counts = |(_, path): &(usize, &Path)| {
        path.mark >= peers[path.peer as usize].times[family].dead
            && shared.hop(path.attributes).reach != Reach::Lost
    };
    let paths = entry.paths.iter().enumerate().filter(counts);
    // Most prefixes have one path from each of a few peers.
    let mut few = paths.clone();
    let first = few.next()?.0;
    if few.next().is_none() {
        return Some(first);
    }
    let candidate = |(_, path): (usize, &Path)| Candidate {
        attributes: shared.get(path.attributes),
        rank: &peers[path.peer as usize].rank,
        peer: path.peer,
        path: path.path,
    };
    let place = best(paths.clone().map(candidate))?;
    paths.clone().nth(place).map(|(place, _)| place)
}

/// Tells where the best path leads, if that is news: another next hop, or one that is to be told of again in this pass of the sweep.
fn tell(
    prefix: AnyPrefix,
    entry: &mut Entry,
    shared: &Shared,
    peers: &[Peer],
    pass: Option<u64>,
    out: &mut Vec<Change>,
) {
    let hop = choose(prefix, entry, shared, peers).map(|place| shared.hop(entry.paths[place].attributes));
    let next_hop = hop.map(|hop| hop.address);
    let again = hop.zip(pass).is_some_and(|(hop, pass)| hop.again >= pass);
    if entry.told != next_hop || again {
        entry.told = next_hop;
        out.push(Change { prefix, next_hop });
    }
}

#[cfg(test)]
mod tests;
