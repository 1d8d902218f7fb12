use super::*;
use crate::message::FAMILIES;
use crate::path::AsPath;
use crate::testing::{any_attributes, nlri};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

fn rank(n: u8) -> Rank {
    Rank {
        internal: n.is_multiple_of(3),
        id: Ipv4Addr::new(0, 0, 0, n),
        address: IpAddr::from([10, 0, 0, n]),
        local_pref: 100,
    }
}

/// By peer, prefix and path identifier: attributes, stale.
type Model = BTreeMap<(PeerId, Nlri), (Arc<Attributes>, bool)>;

/// The best next hop of each prefix, straight from all paths; but for those by `lost` next hops.
fn expected(model: &Model, lost: &BTreeSet<IpAddr>) -> BTreeMap<AnyPrefix, IpAddr> {
    let mut by_prefix: BTreeMap<AnyPrefix, Vec<(PeerId, u32, Arc<Attributes>)>> = BTreeMap::new();
    for ((peer, nlri), (attributes, _)) in model {
        if !lost.contains(&attributes.next_hop) {
            by_prefix.entry(nlri.prefix).or_default().push((*peer, nlri.path, attributes.clone()));
        }
    }
    by_prefix
        .into_iter()
        .map(|(prefix, paths)| {
            let ranks: Vec<Rank> = paths.iter().map(|(peer, _, _)| rank(*peer as u8)).collect();
            let candidates = paths.iter().zip(&ranks).map(|((peer, path, attributes), rank)| Candidate {
                attributes,
                rank,
                peer: *peer,
                path: *path,
            });
            (prefix, paths[best(candidates).unwrap()].2.next_hop)
        })
        .collect()
}

/// Whatever is done in whatever order, with the sweep anywhere between: when it is through, what was told is the best of all paths.
#[test]
fn changes_add_up_to_the_best_of_all_paths() {
    let mut rng = StdRng::seed_from_u64(17);
    for round in 0..60 {
        // Next hops are looked up from the first step on, from a later one, or never.
        let follows_from = [0, 100, usize::MAX][round % 3];
        let mut rib = Rib::default();
        let peers: Vec<PeerId> = (0..4).map(|n| rib.add_peer(rank(n))).collect();
        let mut model = Model::new();
        let mut told: BTreeMap<AnyPrefix, IpAddr> = BTreeMap::new();
        let (mut lost, mut turned) = (BTreeSet::new(), BTreeSet::new());
        let pool: Vec<(Arc<Attributes>, Family)> = (0..12)
            .map(|n| {
                let family = FAMILIES[n % 2];
                (Arc::new(any_attributes(&mut rng, family, true, false)), family)
            })
            .collect();
        for step in 0..400 {
            let mut changes = Vec::new();
            let peer = peers[rng.random_range(0..peers.len())];
            let (attributes, family) = &pool[rng.random_range(0..pool.len())];
            let number = rng.random_range(0..6);
            let one = match family {
                Family::V4 => nlri(&format!("10.{number}.0.0/16")),
                Family::V6 => nlri(&format!("2001:db8:{number}::/48")),
            };
            let one = Nlri { path: rng.random_range(0..3), ..one };
            match rng.random_range(0..24) {
                0 => {
                    rib.withdraw_all(peer, Some(*family), false);
                    model.retain(|(p, nlri), _| (*p, nlri.family()) != (peer, *family));
                }
                1 => {
                    rib.mark_stale(peer, *family);
                    let mine = model.iter_mut().filter(|((p, n), _)| (*p, n.family()) == (peer, *family));
                    mine.for_each(|(_, value)| value.1 = true);
                }
                2 => {
                    rib.withdraw_all(peer, Some(*family), true);
                    model.retain(|(p, n), value| (*p, n.family(), value.1) != (peer, *family, true));
                }
                3 => {
                    rib.withdraw_all(peer, None, false);
                    model.retain(|(p, _), _| *p != peer);
                }
                4 if step >= follows_from => {
                    let hop = attributes.next_hop;
                    let reached = lost.remove(&hop) || !lost.insert(hop);
                    turned.insert(hop);
                    rib.hop_turned(hop, reached);
                }
                5..=9 => {
                    rib.withdraw(peer, one, &mut changes);
                    model.remove(&(peer, one));
                }
                _ => {
                    assert!(rib.announce(peer, one, attributes, &mut changes));
                    model.insert((peer, one), (attributes.clone(), false));
                }
            }
            let settles = rng.random();
            if step >= follows_from && settles {
                // Some are lost when they are asked for first.
                rib.look_up(
                    |hop| {
                        if rng.random_range(0..4) == 0 && !turned.contains(&hop) {
                            lost.insert(hop);
                        }
                        turned.insert(hop);
                        !lost.contains(&hop)
                    },
                    &mut changes,
                );
            }
            match settles {
                true => while rib.sweep(rng.random_range(1..5), &mut changes) {},
                false => drop(rib.sweep(rng.random_range(0..3), &mut changes)),
            }
            for change in changes {
                let before = match change.next_hop {
                    Some(hop) => told.insert(change.prefix, hop),
                    None => told.remove(&change.prefix),
                };
                let again = change.next_hop.is_some_and(|hop| turned.contains(&hop));
                assert!(before != change.next_hop || again, "told again");
            }
            rib.check();
            assert_eq!(rib.best().collect::<BTreeMap<_, _>>(), told);
            for (peer, paths) in peers.iter().map(|peer| (*peer, rib.paths(*peer))) {
                let of = |family| model.keys().filter(|(p, n)| (*p, n.family()) == (peer, family)).count();
                assert_eq!(paths, FAMILIES.map(of));
            }
            if settles {
                assert_eq!(told, expected(&model, &lost), "round {round} step {step}");
                let stale: usize = model.values().filter(|(_, stale)| *stale).count();
                let shown = rib.after(None).flat_map(|(_, paths)| paths);
                assert_eq!(shown.filter(|path| path.stale).count(), stale);
                // A hop that goes is forgotten, and asked for anew when it comes again.
                for hop in rib.gone() {
                    assert!(!model.values().any(|(attributes, _)| attributes.next_hop == hop));
                    turned.remove(&hop);
                    lost.remove(&hop);
                }
            }
        }
        for peer in peers {
            rib.withdraw_all(peer, None, false);
        }
        while rib.sweep(7, &mut Vec::new()) {}
        rib.check();
        assert_eq!((rib.len(), rib.attributes(), rib.next_hops()), (0, 0, 0), "nothing is left behind");
    }
}

/// RFC 4271, 9.1.2: a path whose next hop cannot be reached is no path, however good it is; nor does its MULTI_EXIT_DISC beat any.
#[test]
fn a_path_that_leads_nowhere_loses_to_one_that_leads_somewhere() {
    let hop = |n: u8| IpAddr::from([10, 0, 0, n]);
    let path = |n: u8, asns: &[u32], med: u32| {
        Arc::new(Attributes { med: Some(med), ..Attributes::new(hop(n), AsPath::sequence(asns)) })
    };
    let mut rib = Rib::default();
    let peers: Vec<PeerId> = [1, 4, 2].map(|n| rib.add_peer(rank(n))).into();
    let one = nlri("192.0.2.0/24");
    rib.look_up(|_| true, &mut Vec::new());
    let mut changes = Vec::new();
    // The second beats the first by its MULTI_EXIT_DISC, and loses to the third by its peer's identifier; without it the first is best.
    let all = [path(1, &[7], 9), path(2, &[7], 5), path(3, &[8], 0)];
    for (peer, attributes) in peers.iter().zip(&all) {
        rib.announce(*peer, one, attributes, &mut changes);
    }
    assert_eq!(changes.last(), Some(&Change { prefix: one.prefix, next_hop: Some(hop(3)) }));
    rib.look_up(|address| address != hop(2), &mut changes);
    assert_eq!(changes.last(), Some(&Change { prefix: one.prefix, next_hop: Some(hop(1)) }));
    let reached: Vec<bool> = rib.get(one.prefix).unwrap().iter().map(|path| path.reached).collect();
    assert_eq!(reached, [true, false, true]);
    let sweep = |rib: &mut Rib| {
        let mut changes = Vec::new();
        while rib.sweep(1, &mut changes) {}
        rib.check();
        changes.into_iter().map(|change| change.next_hop).collect::<Vec<_>>()
    };
    rib.hop_turned(hop(2), true);
    assert_eq!(sweep(&mut rib), [Some(hop(3))]);
    // It leads elsewhere: told, though it is the same.
    rib.hop_turned(hop(3), true);
    assert_eq!(sweep(&mut rib), [Some(hop(3))]);
    for (gone, next) in [(3, Some(hop(2))), (2, Some(hop(1))), (1, None)] {
        rib.hop_turned(hop(gone), false);
        assert_eq!(sweep(&mut rib), [next]);
    }
    assert_eq!(rib.get(one.prefix).unwrap().len(), 3);
    // There was no room to know them all: they are asked for again.
    rib.ask_lost();
    rib.look_up(|address| address == hop(1), &mut Vec::new());
    assert_eq!(sweep(&mut rib), [Some(hop(1))]);
}

/// A peer of many paths that goes: each slice looks at so many prefixes and no more, what is told meanwhile counts, and it may
/// come back before the sweep is through.
#[test]
fn a_peer_goes_in_slices() {
    const MANY: u32 = 1000;
    let prefixes = |n: u32| nlri(&format!("10.{}.{}.0/24", n / 256, n % 256));
    let attributes = |n: u8| Arc::new(Attributes::new(IpAddr::from([10, 0, 0, n]), AsPath::sequence(&[1])));
    let mut rib = Rib::default();
    let peer = rib.add_peer(rank(1));
    for n in 0..MANY {
        rib.announce(peer, prefixes(n), &attributes(1), &mut Vec::new());
    }
    rib.withdraw_all(peer, None, false);
    assert_eq!((rib.paths(peer), rib.len()), ([0; 2], MANY as usize));
    let mut changes = Vec::new();
    assert!(rib.sweep(100, &mut changes));
    assert_eq!((changes.len(), rib.len()), (100, MANY as usize - 100));
    // It is back, with another next hop; first what the sweep has been to, then what it has not.
    changes.clear();
    for n in [0, 50, 500, 999] {
        rib.announce(peer, prefixes(n), &attributes(2), &mut changes);
    }
    assert_eq!((changes.len(), rib.paths(peer)), (4, [4, 0]));
    // And gone again, and back.
    rib.withdraw_all(peer, None, false);
    rib.announce(peer, prefixes(500), &attributes(2), &mut changes);
    let mut slices = 0;
    loop {
        let before = changes.len();
        let more = rib.sweep(100, &mut changes);
        assert!(changes.len() - before <= 100);
        slices += 1;
        if !more {
            break;
        }
    }
    assert!((9..25).contains(&slices), "{slices}");
    rib.check();
    assert_eq!((rib.len(), rib.paths(peer)), (1, [1, 0]));
    assert_eq!(rib.best().collect::<Vec<_>>(), [(prefixes(500).prefix, IpAddr::from([10, 0, 0, 2]))]);
}

#[test]
fn a_peer_has_so_many_paths_to_one_prefix() {
    let mut rib = Rib::default();
    let peer = rib.add_peer(rank(1));
    let attributes = Arc::new(Attributes::new(IpAddr::from([10, 0, 0, 1]), AsPath::default()));
    let path = |path: u32| Nlri { path, ..nlri("192.0.2.0/24") };
    for n in 0..PATHS_PER_PREFIX as u32 {
        assert!(rib.announce(peer, path(n), &attributes, &mut Vec::new()));
    }
    assert!(!rib.announce(peer, path(9999), &attributes, &mut Vec::new()));
    assert!(rib.announce(peer, path(1), &attributes, &mut Vec::new()), "one that it has");
    rib.withdraw(peer, path(0), &mut Vec::new());
    assert!(rib.announce(peer, path(9999), &attributes, &mut Vec::new()));
    rib.check();
}

#[test]
fn pages_go_on_behind_a_prefix() {
    let mut rib = Rib::default();
    let peer = rib.add_peer(rank(1));
    let attributes = Arc::new(Attributes::new(IpAddr::from([10, 0, 0, 1]), AsPath::sequence(&[1])));
    for n in 0..10 {
        rib.announce(peer, nlri(&format!("10.{n}.0.0/16")), &attributes, &mut Vec::new());
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page: Vec<_> = rib.after(after).take(3).collect();
        let Some((last, paths)) = page.last() else { break };
        assert!(paths.len() == 1 && paths[0].best);
        after = Some(*last);
        seen.extend(page.into_iter().map(|(prefix, _)| prefix));
    }
    assert_eq!(seen, rib.best().map(|(prefix, _)| prefix).collect::<Vec<_>>());
    assert_eq!(seen.len(), 10);
    assert_eq!(rib.get(seen[0]).map(|paths| paths.len()), Some(1));
}
