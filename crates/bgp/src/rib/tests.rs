use super::*;
use crate::message::FAMILIES;
use crate::path::AsPath;
use crate::testing::{any_attributes, nlri};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
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

/// The best next hop of each prefix, straight from all paths.
fn expected(model: &Model) -> BTreeMap<AnyPrefix, IpAddr> {
    let mut by_prefix: BTreeMap<AnyPrefix, Vec<(PeerId, u32, Arc<Attributes>)>> = BTreeMap::new();
    for ((peer, nlri), (attributes, _)) in model {
        by_prefix.entry(nlri.prefix).or_default().push((*peer, nlri.path, attributes.clone()));
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

#[test]
fn changes_add_up_to_the_best_of_all_paths() {
    let mut rng = StdRng::seed_from_u64(17);
    for round in 0..40 {
        let mut rib = Rib::default();
        let peers: Vec<PeerId> = (0..4).map(|n| rib.add_peer(rank(n))).collect();
        let mut model = Model::new();
        let mut told: BTreeMap<AnyPrefix, IpAddr> = BTreeMap::new();
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
            match rng.random_range(0..20) {
                0 => {
                    rib.withdraw_all(peer, Some(*family), false, &mut changes);
                    model.retain(|(p, nlri), _| (*p, nlri.family()) != (peer, *family));
                }
                1 => {
                    rib.mark_stale(peer, *family);
                    let mine = model.iter_mut().filter(|((p, n), _)| (*p, n.family()) == (peer, *family));
                    mine.for_each(|(_, value)| value.1 = true);
                }
                2 => {
                    rib.withdraw_all(peer, Some(*family), true, &mut changes);
                    model.retain(|(p, n), value| (*p, n.family(), value.1) != (peer, *family, true));
                }
                3 => {
                    rib.withdraw_all(peer, None, false, &mut changes);
                    model.retain(|(p, _), _| *p != peer);
                }
                4..=8 => {
                    rib.withdraw(peer, one, &mut changes);
                    model.remove(&(peer, one));
                }
                _ => {
                    assert!(rib.announce(peer, one, attributes, &mut changes));
                    model.insert((peer, one), (attributes.clone(), false));
                }
            }
            for change in changes {
                let before = match change.next_hop {
                    Some(hop) => told.insert(change.prefix, hop),
                    None => told.remove(&change.prefix),
                };
                assert_ne!(before, change.next_hop, "told again");
            }
            assert_eq!(told, expected(&model), "round {round} step {step}");
            assert_eq!(rib.best().collect::<BTreeMap<_, _>>(), told);
            rib.check();
        }
        for peer in peers {
            rib.withdraw_all(peer, None, false, &mut Vec::new());
        }
        rib.check();
        assert_eq!((rib.len(), rib.attributes()), (0, 0), "nothing is left behind");
    }
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
