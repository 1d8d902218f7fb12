//! One address family's half of the control side: routes by source, the best of which workers see, and the next hops.

use crate::groups::{self, Member};
use crate::labels::{Labels, NextHop, Used};
use crate::offload::journal::Journal;
use crate::rules::Rules;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_ip::neighbor::Key;
use tidemill_ip::neighbor::table::Table as Neighbors;
use tidemill_ip::{Adjacency, Interfaces, Kind, NextHops};
use tidemill_lookup::numa::Copies;
use tidemill_lookup::publish::{Publisher, View};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::rib::{Change, last_of_each};
use tidemill_lpm::table::{Algorithm, Applied, Family, Table};
use tidemill_lpm::{BuildError, Fib, Label, Prefix, Rib};
use tidemill_wire::EtherType;

/// Where a route comes from, in order of preference: of several routes to one prefix the first counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Our addresses and the links that they are on (RFC 1812 5.2.4.3 leaves preference to the implementer; a link that
    /// we are on is the better news).
    Own,
    /// Configured, or added through the API.
    Static,
    /// The best paths of BGP peers.
    Bgp,
    /// The kernel's routing tables.
    Kernel,
    /// The table's file, and its updates.
    Table,
    /// A neighbor that has answered. Instead of an on-link route to just that address it is the one that counts.
    Neighbor,
}

impl Source {
    /// All sources in order of preference.
    pub const ALL: [Source; 6] =
        [Source::Own, Source::Static, Source::Bgp, Source::Kernel, Source::Table, Source::Neighbor];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Own => "own",
            Source::Static => "static",
            Source::Bgp => "bgp",
            Source::Kernel => "kernel",
            Source::Table => "table",
            Source::Neighbor => "neighbor",
        }
    }

    /// Whether its routes wait for room where a table has none: it says each once.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Source::Bgp | Source::Kernel | Source::Neighbor)
    }
}

/// A change of one source's routes: `None` withdraws.
pub(crate) type RouteChange<A> = (Prefix<A>, Option<NextHop>);

/// Routes of one source.
pub(crate) type RouteList<A> = Vec<(Prefix<A>, NextHop)>;

/// What the workers of one memory node look into: a table for each VRF, and the next hops of all.
#[derive(Clone)]
pub(crate) struct Views<A: Family> {
    pub(crate) fibs: Vec<View<Arc<dyn Fib<A>>>>,
    pub(crate) hops: View<NextHops>,
}

impl<A: Family> Views<A> {
    /// The table of the VRF without a name, which is there always.
    pub(crate) fn first(self) -> (View<Arc<dyn Fib<A>>>, View<NextHops>) {
        (self.fibs[0].clone(), self.hops)
    }
}

/// What adjacencies are made from, apart from the routes.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct World<'a> {
    pub(crate) interfaces: &'a Interfaces,
    pub(crate) neighbors: &'a Neighbors,
    pub(crate) rules: &'a Rules,
}

/// From this many VRFs on, `auto` is a structure of which they share what is alike, rather than the fastest for each.
const MANY_VRFS: usize = 8;

struct Vrf<A: Family> {
    /// By source.
    routes: [Rib<A>; Source::ALL.len()],
    table: Table<A>,
}

impl<A: Family> Vrf<A> {
    /// The route to exactly `prefix` that workers see.
    fn best(&self, labels: &Labels, down: &BTreeSet<u16>, prefix: Prefix<A>) -> Option<(Source, Label)> {
        let of = |source: Source| Some((source, self.routes[source as usize].get(prefix)?));
        let counts = |&(source, label): &(Source, Label)| !waits(labels, down, source, label);
        let first = Source::ALL.into_iter().filter_map(of).find(counts)?;
        // An on-link route says only where to ask.
        Some(of(Source::Neighbor).filter(|host| gleans(labels, first.1, host.1)).unwrap_or(first))
    }
}

/// Whether a route with this label asks for its destinations on the interface of the neighbor that `host` leads to.
fn gleans(labels: &Labels, label: Label, host: Label) -> bool {
    match (labels.hop(label), labels.hop(host)) {
        (Some(hop), Some(NextHop::Via(interface, _))) => hop.gleans(*interface),
        _ => false,
    }
}

/// Whether a source's route waits for a link: a static one that leads by links that are down alone. What other sources say of such a
/// link they take back themselves.
fn waits(labels: &Labels, down: &BTreeSet<u16>, source: Source, label: Label) -> bool {
    source == Source::Static && labels.hop(label).is_some_and(|hop| is_down(hop, down))
}

fn is_down(hop: &NextHop, down: &BTreeSet<u16>) -> bool {
    match hop {
        NextHop::Via(number, _) | NextHop::Mac(number, _) | NextHop::OnLink(number) => down.contains(number),
        NextHop::Group(members) => members.iter().all(|(member, _)| is_down(member, down)),
        _ => false,
    }
}

/// One family's half of the control side.
pub struct Plane<A: Family> {
    ethertype: EtherType,
    domain: Domain,
    vrfs: Vec<Vrf<A>>,
    labels: Labels,
    /// On each memory node.
    hops: Vec<Publisher<NextHops>>,
    copies: Copies,
    /// Interfaces that are down.
    down: BTreeSet<u16>,
    /// What the buckets of groups hold.
    buckets: HashMap<Label, Vec<u32>>,
    /// Gateways by how many routes lead to them.
    gateways: HashMap<Key, usize>,
    /// Gateways that began or ceased to be needed.
    turned: Vec<Key>,
    /// What has changed in the first VRF, if somebody asks for that.
    pub(crate) journal: Option<Journal<A>>,
}

impl<A: Family> Plane<A> {
    /// Builds the tables from each VRF's first routes by source. `auto` may measure for `auto_budget`, all tables together,
    /// except where `chosen` says what it chose before.
    pub(crate) fn new(
        ethertype: EtherType,
        algorithm: &Algorithm,
        auto_budget: Duration,
        first: Vec<Vec<(Source, RouteList<A>)>>,
        chosen: Vec<Option<(Algorithm, String)>>,
        domain: &Domain,
        copies: &Copies,
    ) -> Result<Self, BuildError> {
        let mut chosen = chosen.into_iter();
        let mut plane = Plane {
            ethertype,
            domain: domain.clone(),
            vrfs: Vec::new(),
            labels: Labels::default(),
            hops: (0..copies.count())
                .map(|copy| {
                    let none = || NextHops::new(vec![Adjacency::of(Kind::NoRoute)]);
                    copies.on(copy, || Publisher::new(domain, none()))
                })
                .collect(),
            copies: copies.clone(),
            down: BTreeSet::new(),
            buckets: HashMap::new(),
            gateways: HashMap::new(),
            turned: Vec::new(),
            journal: None,
        };
        let vrfs = first.len();
        // What is shared is shared on one memory node.
        let share =
            || (0..copies.count()).map(|copy| copies.on(copy, || A::sharing(*algorithm, domain))).collect();
        let (sharing, why): (Option<Vec<_>>, _) = match algorithm {
            Algorithm::Auto if vrfs < MANY_VRFS => (None, String::new()),
            Algorithm::Auto => (share(), format!("{vrfs} VRFs share its memory")),
            _ if vrfs == 1 => (None, String::new()),
            _ => (share(), String::new()),
        };
        let mut budget = auto_budget;
        for sources in first {
            let mut routes: [Rib<A>; Source::ALL.len()] = Default::default();
            for (source, list) in sources {
                let rib = &mut routes[source as usize];
                for (prefix, hop) in list {
                    let (label, _) = plane.labels.take(&hop);
                    plane.count_gateways(source, &hop, true);
                    if let Some(before) = rib.insert(prefix, label) {
                        plane.drop_label(source, before);
                    }
                }
            }
            // The largest source is copied whole; what is preferred goes on top.
            let mut best = routes[Source::Table as usize].clone();
            for source in [Source::Kernel, Source::Bgp, Source::Static, Source::Own] {
                routes[source as usize].iter().for_each(|(prefix, label)| {
                    best.insert(prefix, label);
                });
            }
            let start = Instant::now();
            let table = match &sharing {
                Some(sharing) => Table::sharing(domain, best, sharing.clone(), why.clone(), copies)?,
                None => Table::resumed(domain, best, algorithm, budget, chosen.next().flatten(), copies)?,
            };
            budget = budget.saturating_sub(start.elapsed());
            plane.vrfs.push(Vrf { routes, table });
        }
        Ok(plane)
    }

    /// Changes routes of one source in one VRF, all or none; of several changes to one prefix the last one counts.
    pub(crate) fn apply(
        &mut self,
        vrf: usize,
        source: Source,
        changes: &[RouteChange<A>],
        world: World<'_>,
    ) -> Result<Option<Applied>, BuildError> {
        let Plane { vrfs, labels, down, .. } = self;
        let Some(owner) = vrfs.get_mut(vrf) else { return Ok(None) };
        let coalesced = coalesce(changes);
        let changes = coalesced.as_deref().unwrap_or(changes);
        let mut before = Vec::with_capacity(changes.len());
        let mut best = Vec::with_capacity(changes.len());
        let (mut new, released) = (false, labels.released());
        for (prefix, hop) in changes {
            let rib = &mut owner.routes[source as usize];
            let old = match hop {
                Some(hop) => {
                    let (label, used) = labels.take(hop);
                    new |= used == Used::New;
                    rib.insert(*prefix, label)
                }
                None => rib.remove(*prefix),
            };
            before.push(old);
            best.push(match owner.best(labels, down, *prefix) {
                Some((_, label)) => Change::Announce(*prefix, label),
                None => Change::Withdraw(*prefix),
            });
        }
        // Next hops first: no worker may meet a label before its meaning.
        if new {
            self.publish(world);
        }
        let applied = match self.vrfs[vrf].table.apply(&best) {
            Ok(applied) => applied,
            Err(error) => {
                self.undo(vrf, source, changes, before, released);
                return Err(error);
            }
        };
        if let Some(journal) = self.journal.as_mut().filter(|_| vrf == 0) {
            journal.note(best.iter().map(Change::prefix));
        }
        for ((_, hop), old) in changes.iter().zip(before) {
            if let Some(hop) = hop {
                self.count_gateways(source, hop, true);
            }
            if let Some(old) = old {
                self.drop_label(source, old);
            }
        }
        self.rest();
        Ok(Some(applied))
    }

    /// `released` as it was before the changes.
    fn undo(
        &mut self,
        vrf: usize,
        source: Source,
        changes: &[RouteChange<A>],
        before: Vec<Option<Label>>,
        released: usize,
    ) {
        let Vrf { routes, table } = &mut self.vrfs[vrf];
        let rib = &mut routes[source as usize];
        for ((prefix, _), old) in changes.iter().zip(before).rev() {
            let failed = match old {
                Some(label) => rib.insert(*prefix, label),
                None => rib.remove(*prefix),
            };
            failed.into_iter().for_each(|label| {
                self.labels.give_back(label);
            });
        }
        // Whoever is without users now was new. At rest such labels would push the next ones up, beyond what narrow structures hold.
        if !table.glimpsed() {
            self.labels.free_unseen(released);
        }
        self.rest();
    }

    fn drop_label(&mut self, source: Source, label: Label) {
        if let Some(hop) = self.labels.hop(label).cloned() {
            self.count_gateways(source, &hop, false);
        }
        self.labels.give_back(label);
    }

    /// Counts the gateways that a rule names for labels of the table's file, as those of routes.
    pub(crate) fn count_rule(&mut self, hop: &NextHop, more: bool) {
        self.count_gateways(Source::Table, hop, more);
    }

    /// Gateways of routes are resolved beforehand and never given up; neighbors' own host routes are no reason to.
    fn count_gateways(&mut self, source: Source, hop: &NextHop, more: bool) {
        match hop {
            NextHop::Via(interface, address) if source != Source::Neighbor => {
                let key = Key { interface: *interface, address: *address };
                let users = self.gateways.entry(key).or_default();
                *users = if more { *users + 1 } else { users.saturating_sub(1) };
                let users = *users;
                if users == 0 {
                    self.gateways.remove(&key);
                }
                if users == usize::from(more) {
                    self.turned.push(key);
                }
            }
            NextHop::Group(members) => {
                members.iter().for_each(|(member, _)| self.count_gateways(source, member, more));
            }
            _ => {}
        }
    }

    /// Notes which interfaces are down. Returns the static routes of each VRF that wait from now on, or do no more: they are to be
    /// [applied](Self::apply) again.
    pub(crate) fn set_down(&mut self, interfaces: &Interfaces) -> Vec<Vec<RouteChange<A>>> {
        let down = (0..).zip(interfaces.iter()).filter(|(_, interface)| !interface.up);
        let before = std::mem::replace(&mut self.down, down.map(|(number, _)| number).collect());
        if before == self.down {
            return Vec::new();
        }
        let turned = |hop: &NextHop| is_down(hop, &before) != is_down(hop, &self.down);
        let of_vrf = |vrf| {
            let routes = self.of_source(vrf, Source::Static).filter(|(_, _, hop)| turned(hop));
            routes.map(|(prefix, _, hop)| (prefix, Some(hop.clone()))).collect()
        };
        (0..self.vrfs.len()).map(of_vrf).collect()
    }

    /// Has the gateways on an interface looked at again.
    pub(crate) fn turn(&mut self, interface: u16) {
        let on = self.gateways.keys().filter(|key| key.interface == interface);
        self.turned.extend(on);
    }

    /// Gateways that began or ceased to be needed since the last call, in order.
    pub(crate) fn turned(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.turned)
    }

    /// Whether a route leads to this neighbor.
    pub(crate) fn is_gateway(&self, key: &Key) -> bool {
        self.gateways.contains_key(key)
    }

    /// Publishes the adjacencies of all labels as things stand.
    pub(crate) fn publish(&mut self, world: World<'_>) {
        let adjacency = |(_, entry): (Label, Option<(&NextHop, &[Label])>)| match entry {
            Some((hop, _)) => self.adjacency(hop, world),
            None => Adjacency::of(Kind::Unknown),
        };
        let mut all: Vec<Adjacency> = self.labels.iter().map(adjacency).collect();
        all[0] = Adjacency::of(Kind::NoRoute);
        let mut table = NextHops::new(all);
        let before = std::mem::take(&mut self.buckets);
        for (label, entry) in self.labels.iter() {
            let Some((NextHop::Group(members), labels)) = entry else { continue };
            let member = |((hop, weight), label): (&(NextHop, u32), &Label)| Member {
                label: *label,
                weight: *weight,
                alive: alive(hop, world),
            };
            let members: Vec<Member> = members.iter().zip(labels).map(member).collect();
            let buckets = groups::spread(&members, before.get(&label).map_or(&[], Vec::as_slice));
            table.set_group(label.0, &buckets);
            self.buckets.insert(label, buckets);
        }
        if table != *self.hops[0].current() {
            for (copy, hops) in self.hops.iter_mut().enumerate() {
                self.copies.on(copy, || hops.publish(table.clone()));
            }
        }
    }

    fn adjacency(&self, hop: &NextHop, world: World<'_>) -> Adjacency {
        let on = |number: u16, make: &dyn Fn(&tidemill_ip::Interface) -> Adjacency| match world
            .interfaces
            .get(number)
        {
            Some(interface) if interface.up => make(interface),
            Some(_) => Adjacency::of(Kind::Down),
            None => Adjacency::of(Kind::Unknown),
        };
        match hop {
            NextHop::Local => Adjacency::of(Kind::Local),
            NextHop::Kernel => Adjacency::of(Kind::Kernel),
            NextHop::Broadcast => Adjacency::of(Kind::Broadcast),
            NextHop::Blackhole => Adjacency::of(Kind::Blackhole),
            NextHop::Unreachable => Adjacency::of(Kind::Unreachable),
            NextHop::Prohibited => Adjacency::of(Kind::Prohibited),
            NextHop::Mac(number, mac) => {
                on(*number, &|interface| Adjacency::forward(*number, interface, *mac, self.ethertype))
            }
            NextHop::OnLink(number) => {
                on(*number, &|interface| match world.rules.on_link(*number).filter(|_| !interface.resolves) {
                    Some(mac) => Adjacency::forward(*number, interface, mac, self.ethertype),
                    None => Adjacency::glean(*number, interface),
                })
            }
            NextHop::Via(number, address) => on(*number, &|interface| {
                let known = world.neighbors.get(Key { interface: *number, address: *address });
                match known.and_then(|neighbor| neighbor.mac) {
                    Some(mac) => Adjacency::forward(*number, interface, mac, self.ethertype),
                    None => Adjacency::unresolved(*number, interface, *address),
                }
            }),
            NextHop::Named(label) => match world.rules.named(*label) {
                Some(NextHop::Named(_)) | None => Adjacency::of(Kind::Unknown),
                Some(hop) => self.adjacency(&hop, world),
            },
            // Set when all members have theirs.
            NextHop::Group(_) => Adjacency::of(Kind::Unknown),
        }
    }

    /// Whether the neighbor `address` on `interface` may have a host route: no better route leads elsewhere.
    pub(crate) fn is_gleaned(&self, vrf: usize, interface: u16, address: A) -> bool {
        self.without(vrf, Source::Neighbor, address).is_some_and(|hop| hop.gleans(interface))
    }

    /// Where the best route to an address leads but for those of `left_out`, and of neighbors.
    pub(crate) fn without(&self, vrf: usize, left_out: Source, address: A) -> Option<&NextHop> {
        let (vrf, host) = (self.vrfs.get(vrf)?, Prefix::new(address, A::BITS)?);
        let mut best: Option<(u8, Label)> = None;
        for source in Source::ALL.into_iter().filter(|source| ![Source::Neighbor, left_out].contains(source))
        {
            if let Some((prefix, label)) = self.covering(vrf, source, host)
                && best.is_none_or(|(len, _)| prefix.len() > len)
            {
                best = Some((prefix.len(), label));
            }
        }
        best.and_then(|(_, label)| self.labels.hop(label))
    }

    /// The longest of a source's routes that cover `host` and do not wait.
    fn covering(&self, vrf: &Vrf<A>, source: Source, host: Prefix<A>) -> Option<(Prefix<A>, Label)> {
        let mut within = host;
        loop {
            let (prefix, label) = vrf.routes[source as usize].covering(within)?;
            if !waits(&self.labels, &self.down, source, label) {
                return Some((prefix, label));
            }
            within = Prefix::new(host.first(), prefix.len().checked_sub(1)?)?;
        }
    }

    /// Host routes of neighbors that other routes, changed just now, no longer leave to them.
    pub(crate) fn overruled(&self, vrf: usize, changes: &[RouteChange<A>]) -> Vec<RouteChange<A>> {
        let Some(hosts) = self.vrfs.get(vrf).map(|vrf| &vrf.routes[Source::Neighbor as usize]) else {
            return Vec::new();
        };
        let inside: Vec<_> = match changes.len() < hosts.len() {
            true => changes.iter().flat_map(|(prefix, _)| hosts.inside(*prefix)).collect(),
            false => hosts.iter().collect(),
        };
        let gleaned = |host: Prefix<A>, label| match self.labels.hop(label) {
            Some(NextHop::Via(interface, _)) => self.is_gleaned(vrf, *interface, host.first()),
            _ => false,
        };
        let gone = inside.into_iter().filter(|(host, label)| !gleaned(*host, *label));
        gone.map(|(host, _)| (host, None)).collect()
    }

    /// The changes that make a source's routes of a VRF the ones in `wanted`.
    pub(crate) fn difference(
        &self,
        vrf: usize,
        source: Source,
        wanted: &[(Prefix<A>, NextHop)],
    ) -> Vec<RouteChange<A>> {
        let Some(vrf) = self.vrfs.get(vrf) else { return Vec::new() };
        let have = &vrf.routes[source as usize];
        let mut keep = std::collections::HashSet::with_capacity(wanted.len());
        let mut changes = Vec::new();
        for (prefix, hop) in wanted {
            keep.insert(*prefix);
            if have.get(*prefix).and_then(|label| self.labels.hop(label)) != Some(hop) {
                changes.push((*prefix, Some(hop.clone())));
            }
        }
        let gone = have.iter().filter(|(prefix, _)| !keep.contains(prefix));
        changes.extend(gone.map(|(prefix, _)| (prefix, None)));
        changes
    }

    /// The route of exactly this prefix from one source.
    pub(crate) fn route(&self, vrf: usize, source: Source, prefix: Prefix<A>) -> Option<&NextHop> {
        self.labels.hop(self.vrfs.get(vrf)?.routes[source as usize].get(prefix)?)
    }

    /// Every route of one VRF, in order of the prefixes within each source.
    pub(crate) fn routes(&self, vrf: usize) -> impl Iterator<Item = (Source, Prefix<A>, &NextHop)> {
        let sources = self.vrfs.get(vrf).into_iter().flat_map(|vrf| Source::ALL.into_iter().zip(&vrf.routes));
        sources.flat_map(move |(source, rib)| {
            rib.iter().filter_map(move |(prefix, label)| Some((source, prefix, self.labels.hop(label)?)))
        })
    }

    /// The routes of one VRF from one source.
    pub(crate) fn of_source(
        &self,
        vrf: usize,
        source: Source,
    ) -> impl Iterator<Item = (Prefix<A>, Label, &NextHop)> {
        let rib = self.vrfs.get(vrf).map(|vrf| &vrf.routes[source as usize]);
        let routes = rib.into_iter().flat_map(Rib::iter);
        routes.filter_map(|(prefix, label)| Some((prefix, label, self.labels.hop(label)?)))
    }

    /// The best route to an address.
    pub(crate) fn lookup(&self, vrf: usize, address: A) -> Option<(Prefix<A>, &NextHop)> {
        let (prefix, label) = self.vrfs.get(vrf)?.table.rib().lookup(address)?;
        Some((prefix, self.labels.hop(label)?))
    }

    /// Whether the source's route to `prefix` is the one in use.
    pub(crate) fn is_best(&self, vrf: usize, source: Source, prefix: Prefix<A>) -> bool {
        self.best(vrf, prefix) == Some(source)
    }

    /// Which source's route to `prefix` is the one in use.
    pub(crate) fn best(&self, vrf: usize, prefix: Prefix<A>) -> Option<Source> {
        self.vrfs.get(vrf)?.best(&self.labels, &self.down, prefix).map(|(source, _)| source)
    }

    /// How many routes one source has in one VRF.
    pub(crate) fn count(&self, vrf: usize, source: Source) -> usize {
        self.vrfs.get(vrf).map_or(0, |vrf| vrf.routes[source as usize].len())
    }

    pub(crate) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The adjacency that workers see for a next hop in use.
    pub(crate) fn published(&self, hop: &NextHop) -> Option<Adjacency> {
        self.labels.label(hop).map(|label| *self.hops[0].current().get(label.0))
    }

    pub(crate) fn table(&self, vrf: usize) -> Option<&Table<A>> {
        self.vrfs.get(vrf).map(|vrf| &vrf.table)
    }

    /// The adjacencies now published, and the number that counts their changes.
    #[cfg(all(feature = "xdp", target_os = "linux"))]
    pub(crate) fn hops(&self) -> (&NextHops, u64) {
        (self.hops[0].current(), self.hops[0].generation())
    }

    pub(crate) fn next_hops(&self) -> usize {
        self.hops[0].current().len()
    }

    /// What each worker looks into: the copy of its memory node.
    pub(crate) fn views(&self) -> impl Fn(usize) -> Views<A> + Send + Sync + 'static {
        let copies = self.copies.clone();
        let views: Vec<_> = (0..copies.count()).map(|copy| self.copy(copy)).collect();
        move |worker| views[copies.of_worker(worker)].clone()
    }

    /// One copy.
    fn copy(&self, copy: usize) -> Views<A> {
        let fibs = self.vrfs.iter().map(|vrf| vrf.table.copy(copy)).collect();
        Views { fibs, hops: self.hops[copy].view() }
    }

    /// Whether a refused change has left a table partly patched, for want of memory.
    pub(crate) fn is_broken(&self) -> bool {
        self.vrfs.iter().any(|vrf| vrf.table.is_broken())
    }

    /// Builds such tables anew, where there is memory for it now.
    pub(crate) fn mend(&mut self) {
        self.vrfs.iter_mut().for_each(|vrf| {
            vrf.table.mend();
        });
        self.rest();
    }

    /// Starts the grace period of labels that nothing has any more; one that a broken table may show waits until that is mended.
    fn rest(&mut self) {
        if !self.is_broken() {
            self.labels.rest(&self.domain);
        }
    }

    pub(crate) fn collect(&mut self) -> usize {
        self.labels.collect(&self.domain);
        let tables = self.vrfs.iter_mut().map(|vrf| vrf.table.collect()).sum::<usize>();
        tables + self.hops.iter_mut().map(Publisher::collect).sum::<usize>()
    }
}

/// Whether a member of a group can send: not by an interface that is down, nor to a neighbor that has not answered.
fn alive(hop: &NextHop, world: World<'_>) -> bool {
    let up = |number: &u16| world.interfaces.get(*number).is_some_and(|interface| interface.up);
    match hop {
        NextHop::Via(number, address) => {
            let known = world.neighbors.get(Key { interface: *number, address: *address });
            up(number) && known.is_some_and(|neighbor| neighbor.mac.is_some())
        }
        NextHop::Mac(number, _) | NextHop::OnLink(number) => up(number),
        _ => true,
    }
}

/// The last change of each prefix, in their order; `None` if all are.
pub(crate) fn coalesce<A: Family>(changes: &[RouteChange<A>]) -> Option<Vec<RouteChange<A>>> {
    let last = last_of_each(changes.iter().map(|(prefix, _)| *prefix));
    if last.len() == changes.len() {
        return None;
    }
    let mut places: Vec<usize> = last.into_iter().map(|(_, at)| at).collect();
    places.sort_unstable();
    Some(places.into_iter().map(|at| changes[at].clone()).collect())
}

/// An address as an integer of its family.
pub(crate) fn integer<A: Family>(address: IpAddr) -> Option<A> {
    match (address, A::FAMILY) {
        (IpAddr::V4(v4), 4) => Some(A::from_u128(u32::from(v4).into())),
        (IpAddr::V6(v6), 6) => Some(A::from_u128(v6.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
