//! Who may say what becomes of packets to a destination: who has told the best route to it (RFC 8955, 6; RFC 9117, 4).

use super::{Entry, Path, PeerId, Rib, choose};
use crate::attributes::Attributes;
use crate::best::Rank;
use crate::flowspec::{covers, length};
use tidemill_feed::AnyPrefix;
use tidemill_lpm::Prefix;

/// Why a flow specification is not for its peer to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It names no destination's prefix.
    #[error("it has no destination prefix")]
    NoDestination,
    /// Nobody has told a route to all of the destination.
    #[error("there is no route to its destination")]
    NoRoute,
    /// The best route is another's.
    #[error("the best route to its destination is not from who gives it")]
    Originator,
    /// It has come by another AS than the best route.
    #[error("it was received from another AS than the best route to its destination")]
    Neighbor,
    /// A part of the destination is reached by way of another AS.
    #[error("{0}, a part of its destination, is reached by way of another AS")]
    MoreSpecific(AnyPrefix),
    /// There are too many routes to look at.
    #[error("there are too many routes to parts of such destinations to look at them all")]
    TooMany,
}

/// Who gives a flow specification.
pub(crate) struct Giver<'a> {
    pub(crate) peer: PeerId,
    /// Of our own AS.
    pub(crate) internal: bool,
    pub(crate) attributes: &'a Attributes,
}

impl Rib {
    /// What decides between a peer's routes and others.
    pub(crate) fn rank(&self, peer: PeerId) -> Option<&Rank> {
        self.peers.get(peer as usize).map(|peer| &peer.rank)
    }

    /// Whether a flow specification may be about packets to `destination`. `left` is how many more specific routes may still be looked at.
    pub(crate) fn may_steer(
        &self,
        giver: &Giver<'_>,
        destination: AnyPrefix,
        left: &mut usize,
    ) -> Result<(), Invalid> {
        let theirs = giver.attributes;
        // Begun in our own AS (RFC 9117, 4.1).
        let own = giver.internal && theirs.as_path.is_empty();
        let mut covering =
            (0..=length(destination)).rev().filter_map(|length| shortened(destination, length));
        let best = covering.find_map(|prefix| self.best_of(prefix, self.prefixes.get(&prefix)?));
        let Some((path, attributes)) = best else { return if own { Ok(()) } else { Err(Invalid::NoRoute) } };
        let same = match (attributes.originator, theirs.originator) {
            (None, None) => path.peer == giver.peer,
            (one, other) => one == other,
        };
        if !same && !own {
            return Err(Invalid::Originator);
        }
        let neighbor = attributes.as_path.neighbor();
        if !giver.internal && theirs.as_path.neighbor() != neighbor {
            return Err(Invalid::Neighbor);
        }
        for (prefix, entry) in self.prefixes.range(destination..) {
            if !covers(destination, *prefix) {
                break;
            }
            *left = left.checked_sub(1).ok_or(Invalid::TooMany)?;
            let other = self.best_of(*prefix, entry);
            if other.is_some_and(|(_, other)| other.as_path.neighbor() != neighbor) {
                return Err(Invalid::MoreSpecific(*prefix));
            }
        }
        Ok(())
    }

    fn best_of(&self, prefix: AnyPrefix, entry: &Entry) -> Option<(Path, &Attributes)> {
        let place = choose(prefix, entry, &self.shared, &self.peers)?;
        let path = *entry.paths.get(place)?;
        let attributes: &Attributes = self.shared.get(path.attributes);
        Some((path, attributes))
    }
}

/// The first bits of a prefix.
fn shortened(prefix: AnyPrefix, length: u8) -> Option<AnyPrefix> {
    match prefix {
        AnyPrefix::V4(prefix) => Prefix::new(prefix.first(), length).map(AnyPrefix::V4),
        AnyPrefix::V6(prefix) => Prefix::new(prefix.first(), length).map(AnyPrefix::V6),
    }
}
