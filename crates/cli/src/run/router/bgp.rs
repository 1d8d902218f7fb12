//! BGP beside the router: what peers say goes into its routes, and the verbs that show it.

use super::Router;
use crate::run::config::Config;
use crate::run::service::{lock, now_ns};
use crate::usage;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidemill_bgp::config::BgpSection;
use tidemill_bgp::{
    Change, Export, PeerId, Redirect, Rib, RouteTarget, Runner, ShownFlow, ShownPath, ShownPeer, Speaker,
    State,
};
use tidemill_control::schema::Done;
use tidemill_control::schema::bgp::{
    Flowspec, Flowspecs, Monitor, MonitoredPeer, Monitors, Peer, Peers, Reset, Route, Routes, RoutesQuery,
    path,
};
use tidemill_control::{ApiError, Family, Registry, Request};
use tidemill_feed::AnyPrefix;
use tidemill_feed::bgp::Family as AddressFamily;
use tidemill_ip::Interfaces;
use tidemill_nf::flowspec::{Look, Places};
use tidemill_router::{RouterControl, RouterError};

/// Prefixes in one answer.
const PAGE: u32 = 10_000;
/// Bytes of AS paths and communities after which an answer ends, whatever it has: it is made while no session is served.
const PAGE_BYTES: usize = 1 << 20;
/// Communities of one path that are shown; it may have 16,000.
const COMMUNITIES: usize = 64;
/// How soon flow specifications that were given or withdrawn are applied.
const FLOWS_NS: u64 = 100_000_000;
/// How soon it is looked at whose they are to give, when routes have changed.
const ROUTES_NS: u64 = 1_000_000_000;
/// From one complaint about ways of redirects to the next.
const COMPLAINT_NS: u64 = 10_000_000_000;

/// Sessions, and what they have said that is not in the routes yet.
pub(crate) struct Bgp {
    runner: Runner,
    changes: Vec<Change>,
    followed: Followed,
    /// All that is announced, but for what is withheld.
    exports: Vec<Export>,
    /// What is announced while a Grantor answers.
    while_grantors: Vec<AnyPrefix>,
    withheld: BTreeSet<AnyPrefix>,
}

/// Which flow specifications packets meet.
#[derive(Default)]
struct Followed {
    revision: u64,
    /// Routes may have changed since.
    stirred: bool,
    looked_ns: u64,
    /// When ways without room were told of last.
    complained_ns: Option<u64>,
}

impl Followed {
    /// Has those applied that count.
    fn follow(&mut self, speaker: &Speaker, router: &Router, now_ns: u64) {
        let Some(control) = &router.flowspec else { return };
        lock(control).collect();
        let (revision, passed) = (speaker.flow_revision(), now_ns.abs_diff(self.looked_ns));
        let changed = revision != self.revision && passed >= FLOWS_NS;
        // A best path that is another peer's by the same next hop is no change that is told.
        let often = if self.stirred { ROUTES_NS } else { 10 * ROUTES_NS };
        if !(changed || passed >= often) {
            return;
        }
        (self.revision, self.stirred, self.looked_ns) = (revision, false, now_ns);
        let used: Vec<ShownFlow> = speaker.flows().into_iter().filter(|flow| flow.best).collect();
        let addresses = used.iter().filter_map(|flow| match flow.actions.redirect {
            Some(Redirect::Address(address)) => Some(address),
            _ => None,
        });
        let (places, settled) = router.redirects.places(router, &addresses.collect(), now_ns);
        if let Err(error) = settled
            && self.complains(now_ns)
        {
            router.trouble.complain("ways of redirects", &error.into());
        }
        let mut control = lock(control);
        control.set_places(places);
        control.set(used.into_iter().map(|flow| (flow.spec, flow.actions)));
    }

    /// Whether ways that there is no room for are to be told of: each look may find some.
    fn complains(&mut self, now_ns: u64) -> bool {
        let is_due = self.complained_ns.is_none_or(|before| now_ns.abs_diff(before) >= COMPLAINT_NS);
        if is_due {
            self.complained_ns = Some(now_ns);
        }
        is_due
    }
}

/// Checks that there are all interfaces whose packets are to meet no flow specification: where what was redirected comes back, it would be redirected again.
pub(super) fn spared_are_there(section: &BgpSection, interfaces: &Interfaces, name: &str) -> Result<()> {
    let is_gone = |interface: &&String| interfaces.by_name(interface).is_none();
    match section.flowspec_except.iter().find(is_gone) {
        None => Ok(()),
        Some(gone) => {
            let names: Vec<String> =
                interfaces.iter().map(|interface| format!("{:?}", interface.name)).collect();
            let what = format!("there is no interface {gone:?}; there are {}", names.join(", "));
            Err(usage(format!("{name}: bgp.flowspec_except: {what}")))
        }
    }
}

/// What the configuration says of redirects.
#[derive(Default)]
pub(super) struct Redirects {
    vrfs: BTreeMap<RouteTarget, u16>,
    /// Interfaces whose packets meet no flow specification.
    spared: Vec<String>,
}

impl Redirects {
    /// Of a configuration, with the VRFs and interfaces that there are.
    pub(super) fn new(config: &Config, control: &RouterControl, name: &str) -> Result<Self> {
        let Some(section) = &config.bgp else { return Ok(Redirects::default()) };
        let mut vrfs = BTreeMap::new();
        for (n, (target, vrf)) in section.redirects().map_err(usage)?.into_iter().enumerate() {
            let number = control.vrf(vrf).ok_or_else(|| {
                let what = "have an interface or [[vrf]] name it, or name one that is there";
                usage(format!("{name}: bgp.redirect[{n}].vrf: there is no VRF {vrf:?}: {what}"))
            })?;
            vrfs.insert(target, number);
        }
        spared_are_there(section, &control.settings().interfaces, name)?;
        Ok(Redirects { vrfs, spared: section.flowspec_except.clone() })
    }

    /// What redirects find now, to these addresses among others; and what there is no room for.
    fn places(
        &self,
        router: &Router,
        addresses: &BTreeSet<IpAddr>,
        now_ns: u64,
    ) -> (Places, Result<(), RouterError>) {
        let mut control = lock(&router.control);
        let (addresses, settled) = control.steer_to(now_ns, addresses);
        let spared = |name: &String| self.spared.contains(name);
        let spared = control.settings().interfaces.iter().map(|interface| spared(&interface.name)).collect();
        (Places { vrfs: self.vrfs.clone(), addresses, spared }, settled)
    }
}

impl Bgp {
    pub(crate) fn open(section: &BgpSection) -> Result<Self> {
        let config = section.runner().map_err(usage)?;
        Ok(Bgp {
            exports: config.speaker.exports.clone(),
            while_grantors: section.while_grantors(),
            runner: Runner::open(config)?,
            changes: Vec::new(),
            followed: Followed::default(),
            withheld: BTreeSet::new(),
        })
    }

    pub(crate) fn shut_down(&mut self) {
        self.runner.shut_down();
    }

    /// Takes other peers and announcements, and passwords that were changed in their files. What is as before stays as it is, so that what
    /// could not be taken over is tried again by the next reload.
    pub(crate) fn reload(&mut self, section: &BgpSection) -> Result<()> {
        let config = section.runner().map_err(usage)?.speaker;
        self.runner.set_peers(now_ns(), config.peers)?;
        (self.exports, self.while_grantors) = (config.exports, section.while_grantors());
        self.withheld.retain(|prefix| self.while_grantors.contains(prefix));
        self.announce();
        Ok(())
    }

    fn announce(&mut self) {
        let wanted = self.exports.iter().filter(|export| !self.withheld.contains(&export.prefix));
        let wanted = wanted.cloned().collect();
        self.runner.speaker_mut().set_exports(wanted);
    }
}

fn change(change: &Change) -> (AnyPrefix, Option<IpAddr>) {
    (change.prefix, change.next_hop)
}

impl Router {
    /// Prefixes that are announced while a Grantor answers.
    pub(in crate::run) fn while_grantors(&self) -> Vec<AnyPrefix> {
        lock(&self.feeds).bgp.as_ref().map_or_else(Vec::new, |bgp| bgp.while_grantors.clone())
    }

    /// Announces all but these from now on.
    pub(in crate::run) fn withhold(&self, withheld: BTreeSet<AnyPrefix>) {
        let mut feeds = lock(&self.feeds);
        let Some(bgp) = &mut feeds.bgp else { return };
        for prefix in withheld.difference(&bgp.withheld) {
            let line = format!("warning: {prefix} is withdrawn: none of its Grantors answers");
            self.trouble.note("bgp", &line);
        }
        for prefix in bgp.withheld.difference(&withheld) {
            self.trouble.note("bgp", &format!("{prefix} is announced again: a Grantor answers"));
        }
        if bgp.withheld != withheld {
            bgp.withheld = withheld;
            bgp.announce();
        }
    }

    /// Hears what peers say, and takes it over if `apply`. Returns whether there was anything.
    pub(super) fn hear_bgp(&self, bgp: &mut Option<Bgp>, now_ns: u64, apply: bool) -> bool {
        let Some(Bgp { runner, changes, followed, .. }) = bgp else { return false };
        let progress = runner.poll(now_ns, changes);
        followed.stirred |= progress.bytes > 0 || progress.more || !changes.is_empty();
        followed.follow(runner.speaker(), self, now_ns);
        runner.take_notes().iter().for_each(|note| self.trouble.note("bgp", note));
        let busy = progress.bytes > 0 || progress.more;
        if !apply {
            return busy;
        }
        let mut control = lock(&self.control);
        let rib = runner.speaker_mut().rib_mut();
        // What other routes have changed first; then the next hops that are new.
        for (address, reached) in control.bgp_turned() {
            rib.hop_turned(address, reached);
        }
        rib.look_up(|address| control.bgp_reaches(address), changes);
        followed.stirred |= !changes.is_empty();
        let list: Vec<_> = changes.drain(..).map(|one| change(&one)).collect();
        if !list.is_empty() {
            if let Err(error) = control.bgp(now_ns, &list) {
                self.trouble.complain("routes from BGP", &anyhow::Error::from(error));
            }
            self.applied.fetch_add(list.len() as u64, Ordering::Relaxed);
        }
        // No route leads by these any more.
        if control.bgp_forget(&rib.gone()) {
            rib.ask_lost();
        }
        !list.is_empty() || busy
    }
}

/// Adds the verbs.
pub(super) fn register(router: &Arc<Router>, registry: &mut Registry) {
    let to = router.clone();
    registry.get(path::PEERS, "BGP peers and their sessions", move |_: &Request| peers(&to));
    let to = router.clone();
    registry.get(path::ROUTES, "Paths that BGP peers have told", move |asked: &Request| {
        routes(&to, &asked.query()?)
    });
    registry.takes::<RoutesQuery>();
    let to = router.clone();
    registry.get(path::FLOWSPEC, "Flow specifications of BGP peers", move |_: &Request| flowspecs(&to));
    let to = router.clone();
    registry.get(path::BMP, "BMP routers and their peers", move |_: &Request| monitors(&to));
    let to = router.clone();
    registry.post(path::RESET, "Have a BGP session begin anew", move |asked: &Request| {
        reset(&to, &asked.json()?)
    });
    registry.takes::<Reset>();
}

fn none() -> ApiError {
    ApiError::conflict("there is no BGP here: give the configuration a section [bgp]")
}

fn with<T>(router: &Router, work: impl FnOnce(&mut Bgp) -> Result<T, ApiError>) -> Result<T, ApiError> {
    lock(&router.feeds).bgp.as_mut().ok_or_else(none).and_then(work)
}

fn peers(router: &Router) -> Result<Peers, ApiError> {
    let now_ns = now_ns();
    let one = |peer: ShownPeer| Peer {
        name: peer.name,
        address: peer.address.to_string(),
        asn: peer.asn,
        state: peer.state.map_or("idle", |state| state.name()).into(),
        since_s: (peer.since_ns > 0).then(|| now_ns.saturating_sub(peer.since_ns) as f64 / 1e9),
        id: peer.id.map(|id| id.to_string()),
        hold_s: peer.hold_s,
        paths4: peer.paths[0] as u64,
        paths6: peer.paths[1] as u64,
        flowspecs: peer.flows as u64,
        announced: peer.announced as u64,
        synchronized4: peer.synchronized[0],
        synchronized6: peer.synchronized[1],
        stale: peer.stale.contains(&true),
        established: peer.established,
        ended: peer.ended,
        received: peer.stats.received,
        updates: peer.stats.updates,
        sent: peer.stats.sent,
        treated_as_withdraw: peer.stats.treated_as_withdraw,
        discarded: peer.stats.discarded,
        loops: peer.loops,
        wrong_first_as: peer.wrong_first_as,
        martians: peer.martians,
        too_many_paths: peer.too_many_paths,
    };
    with(router, |bgp| Ok(Peers { peers: bgp.runner.speaker().peers().map(one).collect() }))
}

/// What peers are called, by their numbers in the table.
fn names(runner: &Runner) -> BTreeMap<PeerId, String> {
    let peers = runner.speaker().peers().map(|peer| (peer.number, peer.name));
    let mut names: BTreeMap<PeerId, String> = peers.collect();
    for router in runner.exporters() {
        names.extend(
            router.peers.iter().map(|peer| (peer.number, format!("{}/{}", router.name, peer.address))),
        );
    }
    names
}

fn prefix(text: &str) -> Result<AnyPrefix, ApiError> {
    match text.contains(':') {
        true => text.parse().map(AnyPrefix::V6).map_err(|error| ApiError::bad_request(format!("{error}"))),
        false => text.parse().map(AnyPrefix::V4).map_err(|error| ApiError::bad_request(format!("{error}"))),
    }
}

fn routes(router: &Router, query: &RoutesQuery) -> Result<Routes, ApiError> {
    let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE) as usize;
    let exact = query.prefix.as_deref().map(prefix).transpose()?;
    let after = query.after.as_deref().map(prefix).transpose()?;
    with(router, |bgp| {
        let names = names(&bgp.runner);
        if let Some(peer) = query.peer.as_ref().filter(|peer| !names.values().any(|name| name == *peer)) {
            return Err(ApiError::not_found(format!("there is no peer {peer:?}: see `tidemill bgp peers`")));
        }
        let rib = bgp.runner.speaker().rib();
        let peer = query.peer.as_deref();
        let Some(prefix) = exact else { return Ok(page(rib, &names, peer, after, limit)) };
        let paths = rib.get(prefix).unwrap_or_default().into_iter().filter(|path| is_of(path, &names, peer));
        Ok(Routes { routes: paths.map(|path| route(prefix, path, &names)).collect(), next: None })
    })
}

/// Whether a path is of the peer that is asked for, if one is.
fn is_of(path: &ShownPath, names: &BTreeMap<PeerId, String>, peer: Option<&str>) -> bool {
    peer.is_none() || names.get(&path.peer).map(String::as_str) == peer
}

/// The paths of the prefixes behind `after`, of one peer if so asked: about `limit` of them, or [`PAGE_BYTES`].
fn page(
    rib: &Rib,
    names: &BTreeMap<PeerId, String>,
    peer: Option<&str>,
    after: Option<AnyPrefix>,
    limit: usize,
) -> Routes {
    let (mut routes, mut bytes, mut last, mut more) = (Vec::new(), 0, None, false);
    // A peer with few paths among a million: the page ends in time all the same.
    for (seen, (prefix, paths)) in rib.after(after).enumerate() {
        if routes.len() >= limit || bytes >= PAGE_BYTES || seen >= 10 * PAGE as usize {
            more = true;
            break;
        }
        for path in paths.into_iter().filter(|path| is_of(path, names, peer)) {
            let route = route(prefix, path, names);
            let communities = route.communities.iter().chain(&route.large_communities);
            bytes += route.as_path.len() + communities.map(String::len).sum::<usize>();
            routes.push(route);
        }
        last = Some(prefix);
    }
    let next = last.filter(|_| more).map(|prefix| prefix.to_string());
    Routes { routes, next }
}

fn route(prefix: AnyPrefix, path: ShownPath, names: &BTreeMap<PeerId, String>) -> Route {
    let of = &path.attributes;
    let plain = |one: &u32| format!("{}:{}", one >> 16, one & 0xffff);
    let large = |[a, b, c]: &[u32; 3]| format!("{a}:{b}:{c}");
    let communities: Vec<String> = of.communities.iter().take(COMMUNITIES).map(plain).collect();
    let left = COMMUNITIES - communities.len();
    let large_communities: Vec<String> = of.large_communities.iter().take(left).map(large).collect();
    let all = of.communities.len() + of.large_communities.len();
    Route {
        prefix: prefix.to_string(),
        peer: names.get(&path.peer).cloned().unwrap_or_default(),
        path: path.path,
        next_hop: of.next_hop.to_string(),
        as_path: of.as_path.to_string(),
        origin: of.origin.name().into(),
        med: of.med,
        local_pref: of.local_pref,
        more_communities: (all - communities.len() - large_communities.len()) as u64,
        communities,
        large_communities,
        stale: path.stale,
        reachable: path.reached,
        best: path.best,
    }
}

fn flowspecs(router: &Router) -> Result<Flowspecs, ApiError> {
    with(router, |bgp| {
        let control = router.flowspec.as_ref().map(lock);
        let one = |flow: ShownFlow| {
            let look = control.as_ref().map_or(Look::Absent, |control| control.look(&flow.spec));
            let (state, why) = match (flow.verdict, flow.best, look) {
                (Err(why), ..) => ("invalid", why.to_string()),
                (Ok(()), false, _) => ("unused", "another peer's counts".into()),
                (Ok(()), true, Look::Applied(_)) => ("applied", String::new()),
                (Ok(()), true, Look::Refused(why)) => ("refused", why.to_owned()),
                (Ok(()), true, Look::Absent) => ("pending", String::new()),
            };
            let counts = match look {
                Look::Applied(counts) if flow.best => counts,
                _ => Default::default(),
            };
            Flowspec {
                family: if flow.spec.family() == AddressFamily::V4 { "ipv4" } else { "ipv6" }.into(),
                rule: flow.spec.to_string(),
                actions: flow.actions.to_string(),
                peer: flow.name,
                state: state.into(),
                why: Some(why).filter(|why| !why.is_empty()),
                packets: counts.packets,
                bytes: counts.bytes,
                dropped: counts.dropped,
                dropped_bytes: counts.dropped_bytes,
            }
        };
        Ok(Flowspecs { flowspecs: bgp.runner.speaker().flows().into_iter().map(one).collect() })
    })
}

fn monitors(router: &Router) -> Result<Monitors, ApiError> {
    with(router, |bgp| {
        let rib = bgp.runner.speaker().rib();
        let peer = |peer: &tidemill_bgp::bmp::ShownBmpPeer| {
            let [paths4, paths6] = rib.paths(peer.number).map(|paths| paths as u64);
            MonitoredPeer { address: peer.address.to_string(), asn: peer.asn, up: peer.up, paths4, paths6 }
        };
        let one = |router: tidemill_bgp::ShownExporter| Monitor {
            peers: router.peers.iter().map(peer).collect(),
            name: router.name,
            address: router.address.to_string(),
            system: router.system,
            connected: router.connected,
            messages: router.stats.messages,
            updates: router.stats.updates,
            ignored: router.stats.ignored,
            malformed: router.stats.malformed,
            loops: router.stats.loops,
            martians: router.stats.martians,
            too_many_paths: router.stats.too_many_paths,
        };
        Ok(Monitors { routers: bgp.runner.exporters().map(one).collect() })
    })
}

fn reset(router: &Router, asked: &Reset) -> Result<Done, ApiError> {
    with(router, |Bgp { runner, changes, .. }| {
        let speaker = runner.speaker_mut();
        if !speaker.peers().any(|peer| peer.name == asked.peer) {
            let what = format!("there is no peer {:?}: see `tidemill bgp peers`", asked.peer);
            return Err(ApiError::not_found(what));
        }
        Ok(Done::from(match speaker.reset(now_ns(), &asked.peer, changes) {
            true => format!("{}: its session begins anew", asked.peer),
            false => format!("{}: it has no session", asked.peer),
        }))
    })
}

/// BGP as metrics; nothing where there is none.
pub(super) fn metrics(router: &Router) -> Vec<Family> {
    let feeds = lock(&router.feeds);
    let Some(Bgp { runner, .. }) = &feeds.bgp else { return Vec::new() };
    let mut flowspecs =
        Family::gauge("bgp_flowspecs", "Flow specifications that are applied, and that cannot be");
    if let Some(control) = &router.flowspec {
        let (applied, refused) = lock(control).count();
        flowspecs.add(&[("state", "applied")], applied as u64);
        flowspecs.add(&[("state", "refused")], refused as u64);
    }
    let mut up = Family::gauge("bgp_peer_up", "Whether a peer's session is established");
    let mut paths = Family::gauge("bgp_peer_paths", "Paths that a peer has told");
    let mut announced = Family::gauge("bgp_peer_announced", "Prefixes announced to a peer");
    let mut stale =
        Family::gauge("bgp_peer_stale", "Whether a peer's routes from before its restart are kept");
    let mut sessions = Family::counter("bgp_peer_sessions", "Sessions that were established");
    let mut updates = Family::counter("bgp_peer_updates", "UPDATEs received");
    let mut malformed = Family::counter(
        "bgp_peer_malformed",
        "What of UPDATEs was malformed: routes withdrawn, attributes left out",
    );
    let mut loops = Family::counter("bgp_peer_loops", "Routes not used because they had come through us");
    let mut wrong_first_as = Family::counter(
        "bgp_peer_wrong_first_as",
        "Routes not used because their path does not begin with the peer's AS",
    );
    let mut martians = Family::counter(
        "bgp_peer_martians",
        "Routes not used because nobody routes their prefixes: loopback, link-local, multicast and such",
    );
    let mut too_many_paths = Family::counter(
        "bgp_peer_too_many_paths",
        "Paths left out because the peer had told as many to their prefixes as there may be",
    );
    for peer in runner.speaker().peers() {
        let name = peer.name.as_str();
        let of = [("peer", name)];
        up.add(&of, u64::from(peer.state == Some(State::Established)));
        for (family, count) in ["ipv4", "ipv6"].into_iter().zip(peer.paths) {
            paths.add(&[("peer", name), ("family", family)], count as u64);
        }
        announced.add(&of, peer.announced as u64);
        stale.add(&of, u64::from(peer.stale.contains(&true)));
        sessions.add(&of, peer.established);
        updates.add(&of, peer.stats.updates);
        for (kind, count) in
            [("withdrawn", peer.stats.treated_as_withdraw), ("discarded", peer.stats.discarded)]
        {
            malformed.add(&[("peer", name), ("then", kind)], count);
        }
        loops.add(&of, peer.loops);
        wrong_first_as.add(&of, peer.wrong_first_as);
        martians.add(&of, peer.martians);
        too_many_paths.add(&of, peer.too_many_paths);
    }
    let mut monitors = Family::gauge("bgp_bmp_up", "Whether a BMP router is connected");
    for exporter in runner.exporters() {
        monitors.add(&[("router", exporter.name.as_str())], u64::from(exporter.connected));
    }
    let rib = runner.speaker().rib();
    let one = |mut family: Family, value: u64| {
        family.add(&[], value);
        family
    };
    let mut all = vec![
        one(Family::gauge("bgp_prefixes", "Prefixes that a peer has a path to"), rib.len() as u64),
        one(Family::gauge("bgp_next_hops", "Different next hops of all paths"), rib.next_hops() as u64),
        one(
            Family::counter("bgp_refused", "Connections of strangers, and of peers that may not now"),
            runner.refused(),
        ),
    ];
    let of_peers = [
        up,
        paths,
        announced,
        stale,
        sessions,
        updates,
        malformed,
        loops,
        wrong_first_as,
        martians,
        too_many_paths,
        monitors,
        flowspecs,
    ];
    all.extend(of_peers.into_iter().filter(|family| !family.is_empty()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tidemill_bgp::best::Rank;
    use tidemill_bgp::{AsPath, Attributes, Nlri};

    /// Pages, from the first to the last, of one peer's routes.
    fn pages(rib: &Rib, names: &BTreeMap<PeerId, String>, peer: Option<&str>, limit: usize) -> Vec<Routes> {
        let (mut list, mut after) = (Vec::new(), None);
        loop {
            let one = page(rib, names, peer, after, limit);
            after = one.next.as_deref().map(|next| prefix(next).unwrap());
            list.push(one);
            if after.is_none() {
                return list;
            }
        }
    }

    /// A peer may tell 65,000 bytes of attributes with each prefix: what is shown at once has bounds.
    #[test]
    fn pages_of_routes_end_by_their_size_too() {
        let mut rib = Rib::default();
        let hop = IpAddr::from([10, 0, 0, 1]);
        let rank = Rank { internal: false, id: Ipv4Addr::new(10, 0, 0, 1), address: hop, local_pref: 100 };
        let number = rib.add_peer(rank);
        let names = BTreeMap::from([(number, "one".to_owned())]);
        let long = Attributes {
            communities: (0..16_000).collect(),
            large_communities: vec![[1, 2, 3]; 10].into(),
            ..Attributes::new(hop, AsPath::sequence(&vec![64_496; 15_000]))
        };
        let few = Attributes { communities: (0..60).collect(), ..long.clone() };
        for (attributes, second) in [(long, 0_u8), (few, 1)] {
            let attributes = Arc::new(attributes);
            for third in 0..50 {
                let prefix = prefix(&format!("10.{second}.{third}.0/24")).unwrap();
                rib.announce(number, Nlri { prefix, path: 0 }, &attributes, &mut Vec::new());
            }
        }
        let list = pages(&rib, &names, None, PAGE as usize);
        let size = |page: &Routes| page.routes.iter().map(|route| route.as_path.len()).sum::<usize>();
        let longest = 15_000 * "64496 ".len();
        assert!(list.iter().all(|page| size(page) <= PAGE_BYTES + longest), "{}", list.len());
        assert!((8..20).contains(&list.len()), "{}", list.len());
        let routes: Vec<&Route> = list.iter().flat_map(|page| &page.routes).collect();
        assert_eq!((routes.len(), routes[99].prefix.as_str()), (100, "10.1.49.0/24"));
        assert!(routes.is_sorted_by(|a, b| prefix(&a.prefix).unwrap() < prefix(&b.prefix).unwrap()));
        let shown =
            |route: &Route| (route.communities.len(), route.large_communities.len(), route.more_communities);
        assert_eq!((shown(routes[0]), shown(routes[99])), ((64, 0, 15_946), (60, 4, 6)));
        // By number, and of somebody who has none.
        assert_eq!(pages(&rib, &names, Some("one"), 7)[0].routes.len(), 7);
        assert_eq!(pages(&rib, &names, Some("two"), 7), [Routes::default()]);
    }

    /// Looks come ten times a second while flow specifications change.
    #[test]
    fn ways_without_room_are_told_of_once_in_a_while() {
        let mut followed = Followed::default();
        let told: Vec<u64> = (0..=250).filter(|look| followed.complains(look * FLOWS_NS)).collect();
        assert_eq!(told, [0, 100, 200]);
    }
}
