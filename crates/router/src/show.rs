//! What the router shows of itself.

use crate::control::{Routed, RouterControl};
use crate::labels::NextHop;
use crate::plane::{Plane, Source, integer};
use std::net::IpAddr;
use tidemill_ip::{Interfaces, Kind};
use tidemill_lpm::table::Family;
use tidemill_lpm::{Label, Prefix};

/// A route, to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteView {
    /// The VRF; empty for the one without a name.
    pub vrf: String,
    /// Its prefix.
    pub prefix: String,
    /// Where it comes from.
    pub source: Source,
    /// `forward`, `local`, `kernel`, `blackhole`, ...
    pub kind: &'static str,
    /// Where it leads, if it forwards.
    pub hops: Vec<ShownHop>,
    /// Whether packets follow it.
    pub best: bool,
}

/// A next hop, to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownHop {
    /// The FIB's label, 0 if it has none.
    pub label: u32,
    /// The interface's name.
    pub interface: String,
    /// The neighbor's address, where it is known.
    pub via: Option<IpAddr>,
    /// Its MAC address, where it is known.
    pub mac: Option<String>,
    /// Its share among several.
    pub weight: u32,
    /// `resolved`, `on-link`, `unresolved`, `down`, or the kind that it is of.
    pub state: &'static str,
}

impl NextHop {
    /// The kind's stable name.
    pub fn kind(&self) -> &'static str {
        match self {
            NextHop::Local => "local",
            NextHop::Kernel => "kernel",
            NextHop::Broadcast => "broadcast",
            NextHop::Blackhole => "blackhole",
            NextHop::Unreachable => "unreachable",
            NextHop::Prohibited => "prohibited",
            NextHop::OnLink(_) => "connected",
            NextHop::Via(..) | NextHop::Mac(..) | NextHop::Named(_) => "forward",
            NextHop::Group(_) => "multipath",
        }
    }
}

/// Which routes to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// All of them.
    All,
    /// Those to exactly this prefix.
    Prefix(IpAddr, u8),
    /// The one that a packet to this address follows.
    Address(IpAddr),
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither an address nor a prefix, such as 192.0.2.0/24");
        match text.split_once('/') {
            None => text.parse().map(Wanted::Address).map_err(|_| wrong()),
            Some((address, len)) => {
                let address: IpAddr = address.parse().map_err(|_| wrong())?;
                let max = if address.is_ipv4() { 32 } else { 128 };
                let len = len.parse().ok().filter(|len| *len <= max).ok_or_else(wrong)?;
                Ok(Wanted::Prefix(address, len))
            }
        }
    }
}

impl RouterControl {
    /// The routes that are wanted of one VRF (all VRFs without a name), at most `limit` behind the first `skip`, and
    /// whether there are more.
    pub fn routes(
        &mut self,
        vrf: Option<&str>,
        wanted: Wanted,
        skip: usize,
        limit: usize,
    ) -> (Vec<RouteView>, bool) {
        // One more than asked for, to know that there are more.
        let mut page = Page { skip, room: limit.saturating_add(1), list: Vec::new() };
        let names: Vec<_> = self.vrfs.iter().cloned().enumerate().collect();
        for (number, name) in names {
            if vrf.is_none_or(|vrf| vrf == name) {
                routes_of::<u32>(self, number, &name, wanted, &mut page);
                routes_of::<u128>(self, number, &name, wanted, &mut page);
            }
        }
        let mut list = page.list;
        let more = list.len() > limit;
        list.truncate(limit);
        (list, more)
    }

    /// All next hops in use, IPv4 and IPv6: the family, the kind, where it leads.
    pub fn next_hops(&mut self) -> Vec<(u8, &'static str, ShownHop)> {
        let mut list = next_hops_of::<u32>(self);
        list.extend(next_hops_of::<u128>(self));
        list
    }

    /// The VRFs' names; the first one has none.
    pub fn vrfs(&self) -> &[String] {
        &self.vrfs
    }

    /// The port of this number.
    pub fn port_name(&self, number: u16) -> &str {
        self.ports.get(usize::from(number)).map_or("", |port| &port.name)
    }
}

/// A part of a long list.
struct Page {
    skip: usize,
    room: usize,
    list: Vec<RouteView>,
}

impl Page {
    fn extend<T>(&mut self, mut all: impl Iterator<Item = T>, view: impl Fn(T) -> RouteView) {
        while self.skip > 0 && all.next().is_some() {
            self.skip -= 1;
        }
        if self.skip == 0 {
            let room = self.room.saturating_sub(self.list.len());
            self.list.extend(all.take(room).map(view));
        }
    }
}

fn routes_of<A: Routed>(
    control: &mut RouterControl,
    vrf: usize,
    name: &str,
    wanted: Wanted,
    page: &mut Page,
) {
    let (plane, world) = A::split(control);
    let plane: &Plane<A> = plane;
    let view = |source, prefix: Prefix<A>, hop: &NextHop| RouteView {
        vrf: name.into(),
        prefix: prefix.to_string(),
        source,
        kind: hop.kind(),
        hops: shown(plane, world.interfaces, hop),
        best: plane.is_best(vrf, source, prefix),
    };
    let exact = |prefix: Prefix<A>| {
        let hop = move |source| Some((source, plane.route(vrf, source, prefix)?));
        Source::ALL.into_iter().filter_map(hop)
    };
    match wanted {
        Wanted::All => page.extend(plane.routes(vrf), |(source, prefix, hop)| view(source, prefix, hop)),
        Wanted::Prefix(address, len) => {
            let Some(prefix) = integer::<A>(address).and_then(|address| Prefix::new(address, len)) else {
                return;
            };
            page.extend(exact(prefix), |(source, hop)| view(source, prefix, hop));
        }
        Wanted::Address(address) => {
            let Some((prefix, hop)) = integer::<A>(address).and_then(|a| plane.lookup(vrf, a)) else {
                return;
            };
            let source = plane.best(vrf, prefix).unwrap_or(Source::Table);
            page.extend(std::iter::once(()), |()| view(source, prefix, hop));
        }
    }
}

fn next_hops_of<A: Routed>(control: &mut RouterControl) -> Vec<(u8, &'static str, ShownHop)> {
    let (plane, world) = A::split(control);
    let mut list = Vec::new();
    for (label, entry) in plane.labels().iter() {
        let used = entry.filter(|(hop, _)| plane.labels().label(hop) == Some(label));
        let Some((hop, _)) = used else { continue };
        for mut shown in shown(plane, world.interfaces, hop) {
            shown.label = label.0;
            list.push((A::FAMILY, hop.kind(), shown));
        }
    }
    list
}

fn shown<A: Family>(plane: &Plane<A>, interfaces: &Interfaces, hop: &NextHop) -> Vec<ShownHop> {
    match hop {
        NextHop::Group(members) => {
            let one = |(member, weight): &(NextHop, u32)| {
                let weight = *weight;
                shown(plane, interfaces, member).into_iter().map(move |hop| ShownHop { weight, ..hop })
            };
            members.iter().flat_map(one).collect()
        }
        hop => {
            let adjacency = plane.published(hop);
            let state = match adjacency.map(|adjacency| adjacency.kind) {
                Some(Kind::Forward) => "resolved",
                Some(Kind::Glean) => "on-link",
                Some(Kind::Unresolved) => "unresolved",
                Some(Kind::Down) => "down",
                Some(Kind::Unknown) | None => "unknown",
                Some(_) => hop.kind(),
            };
            let forwards = adjacency.filter(|adjacency| adjacency.kind == Kind::Forward);
            let mac = forwards.and_then(|adjacency| {
                adjacency.header().first_chunk::<6>().map(|mac| tidemill_wire::MacAddr(*mac).to_string())
            });
            let (number, via) = match hop {
                NextHop::Via(number, address) => (Some(*number), Some(*address)),
                NextHop::Mac(number, _) | NextHop::OnLink(number) => (Some(*number), None),
                _ => (forwards.map(|adjacency| adjacency.interface), None),
            };
            let name =
                number.and_then(|number| interfaces.get(number)).map_or("", |interface| &interface.name);
            let label = plane.labels().label(hop).map_or(0, |Label(label)| label);
            vec![ShownHop { label, interface: name.into(), via, mac, weight: 1, state }]
        }
    }
}
