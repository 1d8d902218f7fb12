//! Which of several routes to one prefix is used (RFC 4271, 9.1.2; RFC 4456, 9).
//!
//! In this order: the highest LOCAL_PREF; the shortest AS path (RFC 4456's sets count as one); the lowest origin; the lowest
//! MULTI_EXIT_DISC among routes of one neighbor AS; routes of another AS before our own AS's; the lowest BGP identifier
//! (ORIGINATOR_ID, where there is one); the shortest CLUSTER_LIST; the lowest address of the peer; the lowest path
//! identifier (of peers with one address, those of the first). Left out: the cost of the way to the next hop, which an IGP would know.
//!
//! MULTI_EXIT_DISC compares some routes and not others, so that no order of all routes does: A before B before C before A is
//! possible. Hence routes are eliminated, step by step, among all of them at once.

use crate::attributes::Attributes;
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr};

/// What of a peer decides between routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    /// It is of our own AS.
    pub internal: bool,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// Its address.
    pub address: IpAddr,
    /// For routes without a LOCAL_PREF.
    pub local_pref: u32,
}

/// A route to choose.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Its peer.
    pub rank: &'a Rank,
    /// The peer's number: two of one address may tell the same (a session, and BMP).
    pub peer: u32,
    /// Its path identifier.
    pub path: u32,
}

impl Candidate<'_> {
    /// What routes are compared by before MULTI_EXIT_DISC.
    fn first(&self) -> (Reverse<u32>, usize, u8) {
        let preference = self.attributes.local_pref.unwrap_or(self.rank.local_pref);
        (Reverse(preference), self.attributes.as_path.len(), self.attributes.origin as u8)
    }

    fn med(&self) -> u32 {
        // Missing is the lowest (RFC 4271, 9.1.2.2 c).
        self.attributes.med.unwrap_or(0)
    }

    /// ... and behind it.
    fn last(&self) -> (bool, Ipv4Addr, u16, IpAddr, (u32, u32)) {
        let id = self.attributes.originator.unwrap_or(self.rank.id);
        (self.rank.internal, id, self.attributes.clusters, self.rank.address, (self.peer, self.path))
    }
}

/// The place of the best one; `None` of none.
pub fn best<'a>(candidates: impl Iterator<Item = Candidate<'a>> + Clone) -> Option<usize> {
    let first = candidates.clone().map(|candidate| candidate.first()).min()?;
    let left = candidates.enumerate().filter(|(_, candidate)| candidate.first() == first);
    let beaten = |candidate: &Candidate<'_>| {
        let neighbor = candidate.attributes.as_path.neighbor();
        left.clone().any(|(_, other)| {
            other.attributes.as_path.neighbor() == neighbor && other.med() < candidate.med()
        })
    };
    let last = left.clone().filter(|(_, candidate)| !beaten(candidate));
    last.min_by_key(|(_, candidate)| candidate.last()).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Origin;
    use crate::path::{AsPath, Segment, SegmentKind};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    /// Attributes, peer, the peer's number and the path identifier.
    type Route = (Attributes, Rank, (u32, u32));

    /// RFC 4271, 9.1.2.2, as it is written: remove from consideration.
    fn as_written(all: &[Route]) -> Option<usize> {
        let mut left: Vec<usize> = (0..all.len()).collect();
        let preference = |n: &usize| all[*n].0.local_pref.unwrap_or(all[*n].1.local_pref);
        let highest = left.iter().map(preference).max()?;
        left.retain(|n| preference(n) == highest);
        let shortest = left.iter().map(|n| all[*n].0.as_path.len()).min()?;
        left.retain(|n| all[*n].0.as_path.len() == shortest);
        let lowest = left.iter().map(|n| all[*n].0.origin).min()?;
        left.retain(|n| all[*n].0.origin == lowest);
        // "for m = all routes still under consideration, for n = all ...: if neighborAS(m) == neighborAS(n) and MED(n) < MED(m)"
        for m in left.clone() {
            for n in left.clone() {
                let (one, other) = (&all[m].0, &all[n].0);
                let same = one.as_path.neighbor() == other.as_path.neighbor();
                if same && other.med.unwrap_or(0) < one.med.unwrap_or(0) {
                    left.retain(|kept| *kept != m);
                    break;
                }
            }
        }
        if left.iter().any(|n| !all[*n].1.internal) {
            left.retain(|n| !all[*n].1.internal);
        }
        let id = |n: &usize| all[*n].0.originator.unwrap_or(all[*n].1.id);
        let lowest = left.iter().map(id).min()?;
        left.retain(|n| id(n) == lowest);
        let shortest = left.iter().map(|n| all[*n].0.clusters).min()?;
        left.retain(|n| all[*n].0.clusters == shortest);
        let lowest = left.iter().map(|n| all[*n].1.address).min()?;
        left.retain(|n| all[*n].1.address == lowest);
        left.into_iter().min_by_key(|n| all[*n].2)
    }

    fn route(rng: &mut StdRng) -> Route {
        let length = rng.random_range(0..3);
        let mut path = AsPath::sequence(&(0..length).map(|_| rng.random_range(1..4)).collect::<Vec<_>>());
        if rng.random_range(0..6) == 0 {
            let set = Segment { kind: SegmentKind::Set, asns: [8, 9].into() };
            path = AsPath(path.0.iter().cloned().chain([set]).collect());
        }
        let next_hop = IpAddr::from([10, 0, 0, 1]);
        let attributes = Attributes {
            origin: [Origin::Igp, Origin::Igp, Origin::Egp, Origin::Incomplete][rng.random_range(0..4)],
            med: [None, Some(0), Some(1), Some(2)][rng.random_range(0..4)],
            local_pref: [None, None, Some(100), Some(200)][rng.random_range(0..4)],
            originator: [None, Some(Ipv4Addr::from(rng.random_range(1..4)))][rng.random_range(0..2)],
            clusters: rng.random_range(0..2),
            ..Attributes::new(next_hop, path)
        };
        let rank = Rank {
            internal: rng.random(),
            id: Ipv4Addr::from(rng.random_range(1..4)),
            address: IpAddr::from([10, 0, 0, rng.random_range(1..4)]),
            local_pref: [100, 200][rng.random_range(0..2)],
        };
        // No two are the same in everything.
        (attributes, rank, (rng.random_range(0..3), rng.random()))
    }

    fn choose(all: &[Route]) -> Option<usize> {
        best(all.iter().map(|(attributes, rank, path)| Candidate {
            attributes,
            rank,
            peer: path.0,
            path: path.1,
        }))
    }

    #[test]
    fn the_best_is_what_the_text_says() {
        let mut rng = StdRng::seed_from_u64(4271);
        assert_eq!(choose(&[]), None);
        for round in 0..20_000 {
            let all: Vec<_> = (0..rng.random_range(1..7)).map(|_| route(&mut rng)).collect();
            let (ours, theirs) = (choose(&all), as_written(&all));
            assert_eq!(ours.map(|n| &all[n]), theirs.map(|n| &all[n]), "round {round}: {all:#?}");
        }
    }

    #[test]
    fn the_order_in_which_routes_came_does_not_matter() {
        let mut rng = StdRng::seed_from_u64(9);
        for _ in 0..5_000 {
            let mut all: Vec<_> = (0..rng.random_range(2..6)).map(|_| route(&mut rng)).collect();
            let before = choose(&all).map(|n| all[n].clone());
            let turns = rng.random_range(1..all.len());
            all.rotate_left(turns);
            all.swap(0, turns.min(1));
            assert_eq!(choose(&all).map(|n| all[n].clone()), before);
        }
    }

    /// The well-known circle: pairwise, each of three routes would lose to another.
    #[test]
    fn med_makes_no_order() {
        let make = |asn: u32, med: u32, id: u8| {
            let attributes = Attributes {
                med: Some(med),
                ..Attributes::new(IpAddr::from([10, 0, 0, 1]), AsPath::sequence(&[asn]))
            };
            let rank = Rank {
                internal: false,
                id: Ipv4Addr::new(0, 0, 0, id),
                address: IpAddr::from([10, 0, 0, id]),
                local_pref: 100,
            };
            (attributes, rank, (0, 0))
        };
        let [a, b, c] = [make(1, 10, 1), make(2, 5, 2), make(1, 5, 3)];
        assert_eq!(choose(&[a.clone(), b.clone()]), Some(0), "the lower identifier");
        assert_eq!(choose(&[b.clone(), c.clone()]), Some(0), "the lower identifier");
        assert_eq!(choose(&[c.clone(), a.clone()]), Some(0), "the lower MED");
        assert_eq!(choose(&[a, b, c]), Some(1));
    }
}
