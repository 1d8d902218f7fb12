//! Revocation: what was decided under an old version of a policy counts no more, at once, and no flow is looked for.
//!
//! ```text
//!   Grantor 3 says:  version 40   40   41   41   42         "below 42, for all"
//!   its ranks        ------- 7 -------  -- 8 --  - 9 -       first living rank of Grantor 3: 9
//!   flows keep       7 7 7 7            8 8      9           7 and 8 are dead
//! ```
//!
//! A version has 32 bits and is any number that rises; a flow has 8 bits for it, its **rank**: versions counted in the order in which they were first heard
//! of, from 1 to 255 and around. Rank 0 is that of decisions which cannot be revoked (an operator's). Ranks are counted for all Grantors together, so that
//! a flow whose Grantor has failed is judged by the one that stands in; each Grantor has its first living rank. A new rank is begun only by a Grantor that
//! has used the newest one already for an older version: if a hundred Grantors go from 41 to 42, that is one rank. And by a revocation, while another Grantor
//! has the newest one for a version that it has not begun by a revocation itself: what that one has decided as a stand-in is to fall as well.
//!
//! **One hole is left.** Where a decision under the new version comes before its revocation, that version may have got the rank in which another Grantor
//! decides as a stand-in; what that one has decided so stands until it ends, or that Grantor revokes again. To begin a rank for the revocation would close it, and would revoke what
//! has been decided under the new version, which nobody has revoked. A Grantor that revokes first and decides then leaves no hole, and ours does: what is left are decisions of
//! its other workers and datagrams that overtake the revocation on the way, and a revocation whose first datagram is lost.
//!
//! **One worker owns one of these for each family**, and hears of revocations as it hears of decisions: nothing is shared, no flow is visited.
//!
//! * [`Revocations::rank`] when a decision comes: the rank that its flow keeps, or that it counts no more.
//! * [`Revocations::revoke`] when a revocation comes.
//! * [`Revocations::stands`] for each packet of a flow with a rank: two loads and a comparison; while there are revocations for a prefix, at most
//!   [`MOST_PREFIXES`] comparisons more.
//!
//! **What a gate does with it** (`now` is the packet's time):
//!
//! * A granted flow that does not stand: its expiry becomes `now` + grace if that is earlier, its rank 0, its renewal `now`: so this packet and those of
//!   the grace pass within the flow's rate, the first with DSCP 2 and through the Grantor, direct or not. What the Grantor answers replaces all of
//!   it; without an answer the flow is a request when the grace is over. The grace counts from the flow's next packet, so one that was silent loses nothing.
//! * A declined flow that does not stand is a request at once.
//! * What expires flows step by step also forgets those that do not stand and have been silent for its idle time. It has been through the whole table
//!   within the `settle` time that is given to [`Revocations::new`]: after that no flow has a dead rank, and the rank can be used again.
//!
//! **Where it errs, it revokes too much**, which costs a renewal and no packet, never too little:
//!
//! * ranks are [`LIVING`] at most, so decisions under a version that is so many ranks old are revoked by the one that comes then;
//! * if a Grantor begins more than [`LIVING`] versions in the settle time, several share a rank and are revoked together, and a
//!   revocation that would need one more is told [`Late`]: it is to be said again later;
//! * of a Grantor's versions the last [`HELD`] are known apart; decisions under a still earlier one that come late count no more, and a revocation
//!   below a number among those takes all of them;
//! * revocations for prefixes that are more than [`MOST_PREFIXES`] at a time are widened to all destinations.

/// The rank of a decision that cannot be revoked.
pub const UNRANKED: u8 = 0;
/// Ranks that can be alive at a time.
pub const LIVING: u8 = 127;
/// Versions of a Grantor that are known apart.
pub const HELD: usize = 8;
/// Revocations for a prefix that are looked at, at a time.
pub const MOST_PREFIXES: usize = 16;

/// Grantors that there is room for; more cost an allocation each time that their number has doubled.
const ROOM: usize = 64;

/// Too many new versions in a short time: nothing is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {LIVING} versions in a short time: revoke again in a minute")]
pub struct Late;

/// What is revoked, as one worker sees it for one family, whose addresses are `A`.
#[derive(Debug, Clone)]
pub struct Revocations<A> {
    /// The newest rank.
    newest: u8,
    /// When the last ranks were begun, the next one's place and how many there were.
    begun_ns: [u64; LIVING as usize],
    begun: usize,
    settle_ns: u64,
    /// By Grantor: its first living rank.
    first: Vec<u8>,
    /// By Grantor: its last versions, the oldest first.
    known: Vec<Known>,
    prefixes: Vec<Prefix<A>>,
}

/// What is known of a Grantor's versions.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Version and rank, both rising; a version between two has the rank of the lower.
    held: [(u32, u8); HELD],
    count: usize,
    /// Below this nothing counts.
    below: u32,
    /// The highest version that a revocation, of whatever destinations, has begun: nothing older has its rank by this Grantor.
    revoked: Option<u32>,
}

impl Known {
    /// The rank of a version, or of the versions that it falls among.
    fn rank(&self, version: u32) -> Option<u8> {
        let at = self.versions().partition_point(|(known, _)| *known <= version);
        at.checked_sub(1).map(|at| self.held[at].1)
    }

    fn versions(&self) -> &[(u32, u8)] {
        &self.held[..self.count]
    }

    /// Forgets the oldest.
    fn shift(&mut self) {
        self.held.rotate_left(1);
        self.count = self.count.saturating_sub(1);
    }

    /// Adds one that is higher; the oldest gives way.
    fn push(&mut self, version: u32, rank: u8) {
        if self.count == HELD {
            self.shift();
        }
        self.held[self.count] = (version, rank);
        self.count += 1;
    }
}

/// A Grantor's revocation for some destinations.
#[derive(Debug, Clone, Copy)]
struct Prefix<A> {
    grantor: u16,
    first: A,
    last: A,
    below: u32,
    /// The first living rank.
    rank: u8,
    since_ns: u64,
}

impl<A: Copy + Ord> Prefix<A> {
    fn is_about(&self, grantor: u16, destination: A) -> bool {
        self.grantor == grantor && self.first <= destination && destination <= self.last
    }
}

impl<A: Copy + Ord> Revocations<A> {
    /// Nothing is revoked. Within `settle_ns`, whoever forgets silent flows has been through them all.
    pub fn new(settle_ns: u64) -> Self {
        Revocations {
            newest: 1,
            begun_ns: [0; LIVING as usize],
            begun: 0,
            settle_ns,
            first: Vec::with_capacity(ROOM),
            known: Vec::with_capacity(ROOM),
            prefixes: Vec::with_capacity(MOST_PREFIXES),
        }
    }

    /// Within so long from now on, whoever forgets silent flows has been through them all.
    pub fn settle_within(&mut self, ns: u64) {
        self.settle_ns = ns;
    }

    /// Begun so many ranks ago: 0 to 254.
    #[inline(always)]
    fn age(&self, rank: u8) -> u8 {
        self.newest.wrapping_sub(rank).wrapping_sub(u8::from(rank > self.newest))
    }

    /// Whether a decision with this rank, about a flow to `destination` that this Grantor is in charge of, still counts.
    #[inline(always)]
    pub fn stands(&self, grantor: u16, destination: A, rank: u8) -> bool {
        if rank == UNRANKED {
            return true;
        }
        let (age, oldest) = (self.age(rank), self.first.get(usize::from(grantor)));
        age <= oldest.map_or(LIVING - 1, |first| self.age(*first))
            && (self.prefixes.is_empty() || !self.revoked_by_prefix(grantor, destination, age))
    }

    fn revoked_by_prefix(&self, grantor: u16, destination: A, age: u8) -> bool {
        self.prefixes
            .iter()
            .any(|prefix| prefix.is_about(grantor, destination) && age > self.age(prefix.rank))
    }

    /// The rank of a decision that has come: of this Grantor, about a flow to `destination`, under this version. `None`: it counts no more.
    pub fn rank(&mut self, now_ns: u64, grantor: u16, destination: A, version: u32) -> Option<u8> {
        self.settle(now_ns);
        let known = self.known(grantor);
        let prefix = |prefix: &Prefix<A>| prefix.is_about(grantor, destination) && version < prefix.below;
        if version < self.known[known].below || self.prefixes.iter().any(prefix) {
            return None;
        }
        let newest = self.known[known].versions().last().map(|(version, _)| *version);
        if newest.is_none_or(|newest| version > newest) {
            // Without a rank of its own it shares that of the version before.
            let _ = self.hold(now_ns, known, version);
        }
        // One that shares the rank of a version that is revoked is not begun with.
        self.known[known].rank(version).filter(|rank| self.stands(grantor, destination, *rank))
    }

    /// A Grantor's decisions under versions lower than `below` count no more: for the destinations from `first` to `last`, or for all.
    ///
    /// # Errors
    /// [`Late`].
    pub fn revoke(&mut self, now_ns: u64, grantor: u16, to: Option<(A, A)>, below: u32) -> Result<(), Late> {
        self.settle(now_ns);
        let known = self.known(grantor);
        // The first version that still counts, and its rank.
        let versions = self.known[known].versions();
        let rank = match versions.iter().find(|(version, _)| *version >= below) {
            Some((_, rank)) => *rank,
            None => self.hold_apart(now_ns, known, below)?,
        };
        self.known[known].revoked = self.known[known].revoked.max(Some(below));
        if let Some((first, last)) = to {
            let new = Prefix { grantor, first, last, below, rank, since_ns: now_ns };
            let same = |old: &&mut Prefix<A>| (old.grantor, old.first, old.last) == (grantor, first, last);
            if let Some(old) = self.prefixes.iter_mut().find(same) {
                if old.below < below {
                    *old = new;
                }
                return Ok(());
            }
            if self.prefixes.len() < MOST_PREFIXES {
                self.prefixes.push(new);
                return Ok(());
            }
        }
        self.known[known].below = self.known[known].below.max(below);
        if self.age(rank) < self.age(self.first[known]) {
            self.first[known] = rank;
        }
        Ok(())
    }

    /// Makes `to` the same, in the memory that it has as far as that suffices: for who looks at it beside the worker.
    pub fn copy_to(&self, to: &mut Self) {
        let Revocations { newest, begun_ns, begun, settle_ns, first, known, prefixes } = to;
        (*newest, *begun_ns, *begun, *settle_ns) = (self.newest, self.begun_ns, self.begun, self.settle_ns);
        first.clone_from(&self.first);
        known.clone_from(&self.known);
        prefixes.clone_from(&self.prefixes);
    }

    /// Ranks that were begun so far: each may have revoked what the oldest one stood for.
    pub fn begun(&self) -> usize {
        self.begun
    }

    /// Revocations for prefixes that are looked at now.
    pub fn prefixes(&self) -> usize {
        self.prefixes.len()
    }

    /// Lets go of what no flow can have any more, and nobody says any more.
    fn settle(&mut self, now_ns: u64) {
        self.prefixes.retain(|prefix| now_ns.saturating_sub(prefix.since_ns) < self.settle_ns);
    }

    /// The place of a Grantor.
    fn known(&mut self, grantor: u16) -> usize {
        let grantor = usize::from(grantor);
        if self.first.len() <= grantor {
            // As old as anything that lives: 126 ranks before the newest.
            let oldest = (0..LIVING - 1).fold(self.newest, |rank, _| before(rank));
            self.first.resize(grantor + 1, oldest);
            self.known.resize_with(grantor + 1, Known::default);
        }
        grantor
    }

    /// Gives a version that is higher than all of its Grantor's a rank of its own.
    fn hold(&mut self, now_ns: u64, known: usize, version: u32) -> Result<u8, Late> {
        let used = self.known[known].versions().last().map(|(_, rank)| *rank);
        if used == Some(self.newest) {
            self.begin(now_ns)?;
        }
        self.known[known].push(version, self.newest);
        Ok(self.newest)
    }

    /// The same for a version that a revocation begins: no decision that is older has its rank, whosever it is.
    fn hold_apart(&mut self, now_ns: u64, known: usize, version: u32) -> Result<u8, Late> {
        let newest = self.newest;
        let own = self.known[known].versions().iter().any(|(_, rank)| *rank == newest);
        let older = |other: &Known| {
            let mut versions = other.versions().iter();
            versions.any(|(version, rank)| *rank == newest && Some(*version) != other.revoked)
        };
        if own || self.known.iter().any(older) {
            let begun = self.begin(now_ns);
            // Where there is no rank for it: better one with what stand-ins have decided than none.
            if own {
                begun?;
            }
        }
        self.known[known].push(version, self.newest);
        Ok(self.newest)
    }

    /// Begins a rank.
    fn begin(&mut self, now_ns: u64) -> Result<(), Late> {
        let place = self.begun % self.begun_ns.len();
        if self.begun >= self.begun_ns.len() && now_ns.saturating_sub(self.begun_ns[place]) < self.settle_ns {
            return Err(Late);
        }
        self.begun_ns[place] = now_ns;
        self.begun += 1;
        self.newest = if self.newest == u8::MAX { 1 } else { self.newest + 1 };
        // What is too old now is dead for good.
        let oldest = (0..LIVING - 1).fold(self.newest, |rank, _| before(rank));
        for place in 0..self.first.len() {
            if self.age(self.first[place]) >= LIVING {
                self.first[place] = oldest;
            }
        }
        for place in 0..self.prefixes.len() {
            if self.age(self.prefixes[place].rank) >= LIVING {
                self.prefixes[place].rank = oldest;
            }
        }
        for place in 0..self.known.len() {
            while self.known[place].versions().first().is_some_and(|(_, rank)| self.age(*rank) >= LIVING) {
                self.known[place].shift();
            }
        }
        Ok(())
    }
}

/// The rank before this one.
fn before(rank: u8) -> u8 {
    if rank == 1 { u8::MAX } else { rank - 1 }
}

#[cfg(test)]
mod tests;
