//! A plane against a model: random changes of all sources in two VRFs, some of which the table refuses.

use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use tidemill_ip::Interface;
use tidemill_ip::neighbor::table::{Limits, Timers};
use tidemill_lookup::numa::{Node, Topology};
use tidemill_lpm::fib::{FibWriter, Outgrown};
use tidemill_wire::MacAddr;

const VRFS: usize = 2;

/// A table that refuses changes while it is told to.
struct Flaky {
    inner: Box<dyn FibWriter<u32>>,
    full: Arc<AtomicBool>,
}

impl FibWriter<u32> for Flaky {
    fn fib(&self) -> Arc<dyn Fib<u32>> {
        self.inner.fib()
    }

    fn patch(&mut self, rib: &Rib<u32>, changed: &[Prefix<u32>]) -> Result<(), Outgrown> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(Outgrown { what: "told to".into() }),
            false => self.inner.patch(rib, changed),
        }
    }
}

/// Two memory nodes that are made up: memory comes from wherever it does, but each has its own copies.
fn two_nodes() -> Copies {
    let node = |id, cpu| Node { id, cpus: vec![cpu] };
    Copies::of(&Topology { nodes: vec![node(0, 0), node(1, 1)] }, &[Some(1), Some(0)])
}

fn flaky(domain: &Domain, full: &Arc<AtomicBool>, copies: &Copies) -> Table<u32> {
    let full = full.clone();
    let make = move |rib: &Rib<u32>, domain: &Domain, _| -> Result<Box<dyn FibWriter<u32>>, BuildError> {
        if full.load(Ordering::Relaxed) {
            let (structure, what, advice) = ("flaky".into(), "told to".into(), "wait".into());
            return Err(BuildError::TooLarge { structure, what, advice });
        }
        let inner = Algorithm::Auto.writer(rib, domain)?;
        Ok(Box::new(Flaky { inner, full: full.clone() }))
    };
    Table::with_copies(domain, Rib::new(), copies, make).unwrap()
}

fn via(interface: u16, host: u8) -> NextHop {
    NextHop::Via(interface, IpAddr::from([10, 0, 0, host]))
}

fn any_hop(rng: &mut StdRng) -> NextHop {
    let simple = |rng: &mut StdRng| match rng.random_range(0..4) {
        0 => NextHop::OnLink(rng.random_range(0..2)),
        1 => NextHop::Mac(rng.random_range(0..2), MacAddr([2, 0, 0, 0, 0, rng.random_range(1..3)])),
        _ => via(rng.random_range(0..2), rng.random_range(1..4)),
    };
    match rng.random_range(0..12) {
        0 => NextHop::Local,
        1 => NextHop::Blackhole,
        2 => NextHop::Unreachable,
        3 => NextHop::Kernel,
        4 => NextHop::Named(Label(rng.random_range(1..4))),
        5..8 => crate::rules::group((1..4).map(|weight| (simple(rng), weight)).collect()).unwrap(),
        _ => simple(rng),
    }
}

/// One of few prefixes around 10.0.0.0.
fn any_prefix(rng: &mut StdRng) -> Prefix<u32> {
    let len = [0, 8, 28, 29, 30, 31, 32, 32][rng.random_range(0..8)];
    Prefix::new(0x0a00_0000 + rng.random_range(0..16), len).unwrap()
}

#[derive(Default, Clone, PartialEq, Debug)]
struct Model {
    /// By VRF, prefix and source.
    routes: BTreeMap<(usize, Prefix<u32>), [Option<NextHop>; Source::ALL.len()]>,
}

impl Model {
    fn apply(&mut self, vrf: usize, source: Source, changes: &[RouteChange<u32>]) {
        for (prefix, hop) in changes {
            self.routes.entry((vrf, *prefix)).or_default()[source as usize] = hop.clone();
        }
    }

    fn best(sources: &[Option<NextHop>; Source::ALL.len()]) -> Option<&NextHop> {
        let first = sources.iter().flatten().next()?;
        let on_link: Vec<_> = match first {
            NextHop::Group(members) => members.iter().map(|(hop, _)| hop).collect(),
            hop => vec![hop],
        };
        match &sources[Source::Neighbor as usize] {
            Some(host @ NextHop::Via(interface, _)) if on_link.contains(&&NextHop::OnLink(*interface)) => {
                Some(host)
            }
            _ => Some(first),
        }
    }

    fn lookup(&self, vrf: usize, address: u32) -> Option<&NextHop> {
        let inside = self.routes.iter().filter(|((at, prefix), _)| *at == vrf && prefix.contains(address));
        let some = inside.filter_map(|((_, prefix), sources)| Some((prefix.len(), Self::best(sources)?)));
        some.max_by_key(|(len, _)| *len).map(|(_, hop)| hop)
    }

    /// Each hop in use, members of groups included; and how often gateways are used.
    fn used(&self) -> (BTreeSet<NextHop>, HashMap<Key, usize>) {
        let (mut hops, mut gateways) = (BTreeSet::new(), HashMap::new());
        for sources in self.routes.values() {
            for (source, hop) in Source::ALL.into_iter().zip(sources) {
                let Some(hop) = hop else { continue };
                let mut each = vec![hop];
                if let NextHop::Group(members) = hop {
                    each.extend(members.iter().map(|(member, _)| member));
                }
                for hop in each {
                    hops.insert(hop.clone());
                    if let NextHop::Via(interface, address) = hop
                        && source != Source::Neighbor
                    {
                        *gateways.entry(Key { interface: *interface, address: *address }).or_default() += 1;
                    }
                }
            }
        }
        (hops, gateways)
    }
}

fn kinds(hop: Option<&NextHop>) -> &'static [Kind] {
    match hop {
        None => &[Kind::NoRoute],
        Some(NextHop::Local) => &[Kind::Local],
        Some(NextHop::Kernel) => &[Kind::Kernel],
        Some(NextHop::Broadcast) => &[Kind::Broadcast],
        Some(NextHop::Blackhole) => &[Kind::Blackhole],
        Some(NextHop::Unreachable) => &[Kind::Unreachable],
        Some(NextHop::Prohibited) => &[Kind::Prohibited],
        Some(NextHop::OnLink(_)) => &[Kind::Glean],
        Some(NextHop::Via(..)) => &[Kind::Unresolved],
        Some(NextHop::Mac(..)) => &[Kind::Forward],
        Some(NextHop::Named(_)) => &[Kind::Unknown],
        Some(NextHop::Group(_)) => &[Kind::Group],
    }
}

/// Returns how many changes were refused.
fn run(seed: u64, rounds: usize) -> usize {
    let mut rng = StdRng::seed_from_u64(seed);
    let domain = Domain::new();
    let full = Arc::new(AtomicBool::new(false));
    let none = (0..VRFS).map(|_| Vec::new()).collect();
    let copies = if seed.is_multiple_of(2) { Copies::one() } else { two_nodes() };
    let (auto, zero) = (Algorithm::Auto, Duration::ZERO);
    let mut plane =
        Plane::<u32>::new(EtherType::IPV4, &auto, zero, none, Vec::new(), &domain, &copies).unwrap();
    plane.vrfs.iter_mut().for_each(|vrf| vrf.table = flaky(&domain, &full, &copies));
    let interfaces = Interfaces::new((0..2).map(|n| Interface::of_port(n, "port")).collect(), 2);
    let neighbors = Neighbors::new(Timers::default(), Limits::default());
    let rules = Rules::default();
    let world = World { interfaces: &interfaces, neighbors: &neighbors, rules: &rules };
    let of_worker = plane.views();
    let views = [of_worker(0), of_worker(1)];
    let same = std::ptr::eq(
        Arc::as_ptr(views[0].fibs[0].get(&domain.register())).cast::<u8>(),
        Arc::as_ptr(views[1].fibs[0].get(&domain.register())).cast::<u8>(),
    );
    assert_eq!(same, copies.count() == 1, "workers on two nodes look into two tables");
    let mut reader = domain.register();
    let (mut model, mut gateways) = (Model::default(), HashSet::new());
    // What a packet on its way carries, and what it meant when it was looked up.
    let mut carried: Vec<(Label, NextHop)> = Vec::new();
    let mut refused = 0;
    for round in 0..rounds {
        let (vrf, source) = (rng.random_range(0..VRFS), Source::ALL[rng.random_range(0..Source::ALL.len())]);
        let last = round + 2 * VRFS * Source::ALL.len() > rounds;
        let changes: Vec<RouteChange<u32>> = match last {
            // In the end everything goes.
            true => {
                let (source, vrf) =
                    (Source::ALL[round % Source::ALL.len()], round / Source::ALL.len() % VRFS);
                let gone = plane.difference(vrf, source, &[]);
                plane.apply(vrf, source, &gone, world).unwrap();
                model.apply(vrf, source, &gone);
                Vec::new()
            }
            false => (0..rng.random_range(1..6))
                .map(|_| (any_prefix(&mut rng), rng.random_bool(0.6).then(|| any_hop(&mut rng))))
                .collect(),
        };
        let refuse = rng.random_bool(0.2);
        full.store(refuse, Ordering::Relaxed);
        match plane.apply(vrf, source, &changes, world) {
            Ok(_) => model.apply(vrf, source, &changes),
            Err(_) => {
                assert!(refuse);
                refused += 1;
            }
        }
        full.store(false, Ordering::Relaxed);

        for vrf in 0..VRFS {
            for address in (0x0a00_0000..0x0a00_0011).chain([0x0b00_0000]) {
                let expected = model.lookup(vrf, address);
                for views in &views {
                    let label = views.fibs[vrf].get(&reader).lookup(address);
                    let found = plane.labels.hop(label);
                    assert_eq!(found, expected, "seed {seed} round {round}: VRF {vrf}, {address:x}");
                    let adjacency = views.hops.get(&reader).get(label.0);
                    let kinds = kinds(expected);
                    assert!(kinds.contains(&adjacency.kind), "seed {seed} round {round}: {expected:?}");
                    if let Some(hop) = expected {
                        carried.push((label, hop.clone()));
                    }
                }
            }
        }
        for (prefix, sources) in
            model.routes.iter().filter(|((at, _), _)| *at == 0).map(|(key, s)| (key.1, s))
        {
            let best = plane.best(0, prefix).map(|source| sources[source as usize].as_ref());
            assert_eq!(best.flatten(), Model::best(sources), "seed {seed} round {round}");
        }
        for (label, hop) in &carried {
            assert_eq!(
                plane.labels.hop(*label),
                Some(hop),
                "seed {seed} round {round}: a packet still carries it"
            );
            for views in &views {
                assert!(kinds(Some(hop)).contains(&views.hops.get(&reader).get(label.0).kind));
            }
        }
        let (used, held) = model.used();
        assert_eq!(plane.gateways, held, "seed {seed} round {round}");
        for key in plane.turned() {
            if held.contains_key(&key) {
                gateways.insert(key)
            } else {
                gateways.remove(&key)
            };
        }
        assert_eq!(gateways, held.keys().copied().collect(), "seed {seed} round {round}: told of each turn");
        for hop in &used {
            assert!(plane.labels.label(hop).is_some());
        }
        if rng.random_bool(0.5) {
            reader.quiescent();
            carried.clear();
            plane.collect();
            if rng.random_bool(0.5) {
                // A table that refuses a change refuses to be built without it, too: its labels wait for it to be mended.
                plane.mend();
                assert!(!plane.is_broken());
                reader.quiescent();
                plane.collect();
                // Everything at rest has passed: what is left is in use, all of it and nothing else.
                let left: BTreeSet<_> =
                    plane.labels.iter().filter_map(|(_, entry)| entry.map(|(hop, _)| hop.clone())).collect();
                assert_eq!(left, used, "seed {seed} round {round}");
            }
        }
    }
    plane.mend();
    reader.quiescent();
    plane.collect();
    assert_eq!(model.used().0.len() + model.used().1.len(), 0);
    assert!(plane.labels.iter().all(|(_, entry)| entry.is_none()) && plane.gateways.is_empty());
    plane.publish(world);
    assert!(plane.buckets.is_empty());
    assert!(plane.next_hops() < 80, "labels are used again: {}", plane.next_hops());
    refused
}

#[test]
fn every_answer_is_the_models_whatever_changes_or_is_refused() {
    let refused: usize = (0..30).map(|seed| run(seed, 150)).sum();
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_route_that_is_withdrawn_leaves_the_next_best_one() {
    let domain = Domain::new();
    let (auto, zero, none) = (Algorithm::Auto, Duration::ZERO, vec![Vec::new()]);
    let mut plane =
        Plane::<u32>::new(EtherType::IPV4, &auto, zero, none, Vec::new(), &domain, &Copies::one()).unwrap();
    let interfaces = Interfaces::default();
    let neighbors = Neighbors::new(Timers::default(), Limits::default());
    let rules = Rules::default();
    let world = World { interfaces: &interfaces, neighbors: &neighbors, rules: &rules };
    let prefix: Prefix<u32> = "10.0.0.1/32".parse().unwrap();
    for source in Source::ALL {
        plane.apply(0, source, &[(prefix, Some(NextHop::Named(Label(source as u32 + 1))))], world).unwrap();
    }
    for source in Source::ALL {
        assert_eq!(plane.best(0, prefix), Some(source));
        assert_eq!(plane.lookup(0, 0x0a00_0001).unwrap().1, &NextHop::Named(Label(source as u32 + 1)));
        plane.apply(0, source, &[(prefix, None)], world).unwrap();
    }
    assert_eq!(plane.lookup(0, 0x0a00_0001), None);
    assert_eq!(plane.apply(1, Source::Own, &[], world).unwrap(), None, "no such VRF");
}

#[test]
fn many_vrfs_share_what_is_alike() {
    let domain = Domain::new();
    let plane = |vrfs: u32, algorithm: &str| {
        let routes = |vrf: u32| -> RouteList<u32> {
            let prefix = |i: u32| Prefix::new(0x0a00_0000 + (i << 6), 26).unwrap();
            (0..2000).map(|i| (prefix(i), NextHop::Named(Label(1 + i % 7 + u32::from(i == vrf))))).collect()
        };
        let first = (0..vrfs).map(|vrf| vec![(Source::Static, routes(vrf))]).collect();
        let algorithm = Algorithm::parse::<u32>(algorithm).unwrap();
        let (zero, copies) = (Duration::ZERO, two_nodes());
        Plane::<u32>::new(EtherType::IPV4, &algorithm, zero, first, Vec::new(), &domain, &copies).unwrap()
    };
    let shared = |plane: &Plane<u32>| -> Vec<usize> {
        plane.vrfs.iter().map(|vrf| vrf.table.fib().shared_bytes()).collect()
    };
    let many = MANY_VRFS as u32;
    for (vrfs, algorithm, shares) in [
        (many, "auto", true),
        (many - 1, "auto", false),
        (2, "dxr-d16x4r", true),
        (1, "dxr-d16x4r", false),
        (2, "popdir-d16x3", false),
    ] {
        let mut plane = plane(vrfs, algorithm);
        let bytes = shared(&plane);
        assert_eq!(bytes.iter().all(|&bytes| bytes > 0), shares, "{vrfs} VRFs, {algorithm}: {bytes:?}");
        let why = plane.vrfs[0].table.why().to_owned();
        assert_eq!(why.contains("VRFs share"), shares && algorithm == "auto", "{why}");
        for vrf in 0..vrfs {
            let hop = |i: u32| plane.lookup(vrf as usize, 0x0a00_0000 + (i << 6)).unwrap().1.clone();
            assert_eq!(hop(vrf), NextHop::Named(Label(2 + vrf % 7)));
            assert_eq!(hop(1000 + vrf), NextHop::Named(Label(1 + (1000 + vrf) % 7)));
        }
        plane.collect();
    }
    // A further table takes what is different in it: a chunk of 64 ranges and a block of 16 descriptors.
    let vrfs = many as usize;
    let (some, twice) = (shared(&plane(many, "auto"))[0], shared(&plane(2 * many, "auto"))[0]);
    assert!(
        twice - some <= vrfs * (64 * 4 + 16 * 4),
        "{some} bytes for {many} VRFs, {twice} for twice as many"
    );
}

#[test]
fn many_vrfs_share_ipv6_too() {
    let domain = Domain::new();
    let plane = |vrfs: u32, algorithm: &str| {
        let routes = |vrf: u32| -> RouteList<u128> {
            let prefix = |i: u32| Prefix::new((0x2001_0db8 << 96) + (u128::from(i) << 80), 48).unwrap();
            (0..2000).map(|i| (prefix(i), NextHop::Named(Label(1 + i % 7 + u32::from(i == vrf))))).collect()
        };
        let first = (0..vrfs).map(|vrf| vec![(Source::Static, routes(vrf))]).collect();
        let algorithm = Algorithm::parse::<u128>(algorithm).unwrap();
        let (zero, copies) = (Duration::ZERO, two_nodes());
        Plane::<u128>::new(EtherType::IPV6, &algorithm, zero, first, Vec::new(), &domain, &copies).unwrap()
    };
    let many = MANY_VRFS as u32;
    for (vrfs, algorithm, shares) in [(many, "auto", true), (2, "lulea", true), (2, "rangetrie-d16", false)] {
        let plane = plane(vrfs, algorithm);
        let fibs = plane.vrfs.iter().map(|vrf| vrf.table.fib());
        assert!(fibs.clone().all(|fib| (fib.shared_bytes() > 0) == shares), "{algorithm}");
        assert!(fibs.clone().all(|fib| fib.name() == "lulea" || !shares), "{algorithm}");
        for vrf in 0..vrfs {
            let key = |i: u32| (0x2001_0db8 << 96) + (u128::from(i) << 80) + 1;
            let hop = |i: u32| plane.lookup(vrf as usize, key(i)).unwrap().1.clone();
            assert_eq!(hop(vrf), NextHop::Named(Label(2 + vrf % 7)));
            let fib = plane.vrfs[vrf as usize].table.fib();
            let label = plane.labels().label(&hop(vrf));
            assert_eq!(Some(fib.lookup(key(vrf))), label, "{algorithm}, VRF {vrf}");
        }
    }
    // A further table takes what is different in it: a block and three nodes, of which one is of 256 entries at most.
    let shared = |vrfs: u32| plane(vrfs, "auto").vrfs[0].table.fib().shared_bytes();
    let (some, twice) = (shared(many), shared(2 * many));
    let most = many as usize * (1024 + 2 * 1088 + 100);
    assert!(twice > some && twice - some <= most, "{some} bytes for {many} VRFs, {twice} for twice as many");
}
