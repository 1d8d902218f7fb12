//! The table of hosts: what was observed of each, bounded in every direction. One owner; time is handed in.
//!
//! A host is *known* by a service, a name, DHCP, or its hardware address; *bare* if it has only sent packets, which anybody can do in anybody's name. A
//! full table has a bare one give way, the one that was silent longest, and known ones only beyond seven eighths of the room: so a flood of
//! forged sources takes an eighth of it, and what is known stays.
//!
//! A host has room for [`OF_EACH`] facts (services, names, announcements). What it has beyond that is out of a room that all share, of one fact for each host that there is room for: so a
//! host may have many, and forged ones with all their ports are no more memory than [`BYTES_PER_HOST`] for each.

use crate::assets::banner::Protocol;
use crate::assets::observation::{Dhcp, Fact, Host, Observation};
use crate::assets::signature::Signature;
use crate::assets::text::Text;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use tidemill_wire::MacAddr;

/// Signatures kept of a host, those seen last: behind one address there may be several hosts.
pub const MOST_SYSTEMS: usize = 8;
/// Services kept of a host.
pub const MOST_SERVICES: usize = 128;
/// Names kept of a host.
pub const MOST_NAMES: usize = 8;
/// Announced services kept of a host.
pub const MOST_ANNOUNCED: usize = 32;
/// Services, names and announced services that each host has room for; more only while not all of that is taken which hosts share.
pub const OF_EACH: usize = 8;

/// Bytes that a host takes at most, with its part of what is shared; what maps, trees and lists leave empty as they grow is in it.
pub const BYTES_PER_HOST: f64 = {
    // A map that has just doubled: 7 of 16 places taken.
    let place = (size_of::<(Host, Asset)>() + 1) as f64 * 16.0 / 7.0;
    // Trees whose nodes are half empty.
    let lists = 2 * (size_of::<(u64, Host)>() + size_of::<Host>());
    let systems = MOST_SYSTEMS * size_of::<System>();
    // A node has places for eleven.
    let services = 11 * size_of::<(Place, Service)>();
    let texts = OF_EACH * (size_of::<Text>() + size_of::<Announced>());
    // One more fact may double a list.
    let shared = OF_EACH * size_of::<Announced>();
    place + (lists + systems + services + texts + shared) as f64
};

/// A service, by port and whether over UDP.
pub type Place = (u16, bool);

/// A service that a host announces, with its port if that is said.
pub type Announced = (Text, Option<u16>);

/// What is known of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// What it speaks; unknown until it has said something.
    pub protocol: Protocol,
    /// What it says of itself; empty if it says nothing.
    pub text: Text,
    /// When that was seen first, ms since the Unix epoch.
    pub first_ms: u64,
    /// And last.
    pub last_ms: u64,
}

/// A signature, and when it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// It.
    pub signature: Signature,
    /// When last, ms since the Unix epoch.
    pub last_ms: u64,
}

/// What is known of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Whom this is about.
    pub host: Host,
    /// Its hardware address.
    pub mac: Option<MacAddr>,
    /// When it was seen first, ms since the Unix epoch.
    pub first_ms: u64,
    /// And last.
    pub last_ms: u64,
    /// How it begins connections and answers.
    pub systems: Vec<System>,
    /// Its services.
    pub services: BTreeMap<Place, Service>,
    /// Its names, by mDNS.
    pub names: Vec<Text>,
    /// Services that it announces.
    pub announced: Vec<Announced>,
    /// What it has said to a DHCP server.
    pub dhcp: Option<Dhcp>,
    is_known: bool,
}

/// What a table has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Hosts that were new.
    pub added: u64,
    /// Hosts that were silent for too long.
    pub expired: u64,
    /// Bare hosts that gave way to others.
    pub evicted_bare: u64,
    /// Known hosts that gave way to others.
    pub evicted_known: u64,
    /// Facts that a host had no more room for.
    pub facts_full: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Assets {
    hosts: HashMap<Host, Asset>,
    /// Both kinds by when they were seen last.
    bare: BTreeSet<(u64, Host)>,
    known: BTreeSet<(u64, Host)>,
    /// All, for pages.
    order: BTreeSet<Host>,
    room: usize,
    /// Facts beyond [`OF_EACH`], of all hosts: at most `room`.
    shared: usize,
    idle_ms: u64,
    done: Done,
}

impl Assets {
    /// One for so many hosts, each of which is forgotten after so long a silence.
    pub fn new(room: usize, idle_ms: u64) -> Self {
        Assets {
            hosts: HashMap::new(),
            bare: BTreeSet::new(),
            known: BTreeSet::new(),
            order: BTreeSet::new(),
            room: room.max(1),
            shared: 0,
            idle_ms,
            done: Done::default(),
        }
    }

    /// Hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Those of them that are known by more than packets.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// What it has done so far.
    pub fn done(&self) -> Done {
        self.done
    }

    /// A host.
    pub fn get(&self, host: Host) -> Option<&Asset> {
        self.hosts.get(&host)
    }

    /// Hosts in order, from the one behind `after` on: addresses first.
    pub fn after(&self, after: Option<Host>) -> impl Iterator<Item = &Asset> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((from, Bound::Unbounded)).filter_map(|host| self.hosts.get(host))
    }

    /// Takes in what was observed at `now_ms`, ms since the Unix epoch.
    pub fn observe(&mut self, now_ms: u64, Observation { host, fact }: Observation) {
        let mut asset = match self.take(host) {
            Some(asset) => asset,
            None => {
                self.make_room();
                self.done.added += 1;
                new(host, now_ms)
            }
        };
        asset.last_ms = asset.last_ms.max(now_ms);
        if let Fact::Granted(mac) = fact
            && let Some(before) = self.take(Host::Mac(mac))
        {
            // What it has said before it had an address.
            asset.dhcp = before.dhcp.or(asset.dhcp);
            asset.first_ms = asset.first_ms.min(before.first_ms);
        }
        let may_grow = asset.facts() < OF_EACH || self.shared + asset.shared() < self.room;
        if !learn(&mut asset, now_ms, fact, may_grow) {
            self.done.facts_full += 1;
        }
        self.put(asset);
        self.bound_known();
    }

    fn take(&mut self, host: Host) -> Option<Asset> {
        let asset = self.hosts.remove(&host)?;
        let list = if asset.is_known { &mut self.known } else { &mut self.bare };
        list.remove(&(asset.last_ms, host));
        self.order.remove(&host);
        self.shared -= asset.shared();
        Some(asset)
    }

    fn put(&mut self, asset: Asset) {
        let list = if asset.is_known { &mut self.known } else { &mut self.bare };
        list.insert((asset.last_ms, asset.host));
        self.order.insert(asset.host);
        self.shared += asset.shared();
        self.hosts.insert(asset.host, asset);
    }

    /// Has one give way if there is no room for another.
    fn make_room(&mut self) {
        if self.hosts.len() < self.room {
            return;
        }
        if let Some((_, host)) = self.bare.first().or(self.known.first()).copied() {
            self.evict(host);
        }
    }

    fn evict(&mut self, host: Host) {
        match self.take(host) {
            Some(asset) if asset.is_known => self.done.evicted_known += 1,
            Some(_) => self.done.evicted_bare += 1,
            None => {}
        }
    }

    /// An eighth stays for newcomers, of tables that have eighths.
    fn bound_known(&mut self) {
        while self.known.len() > self.room - self.room / 8 {
            let Some((_, host)) = self.known.first().copied() else { return };
            self.evict(host);
        }
    }

    /// Forgets who was silent for too long.
    pub fn expire(&mut self, now_ms: u64) {
        let ended = now_ms.saturating_sub(self.idle_ms);
        loop {
            let first = [self.bare.first(), self.known.first()].into_iter().flatten().min();
            let Some((last_ms, host)) = first.copied() else { return };
            if last_ms >= ended {
                return;
            }
            self.take(host);
            self.done.expired += 1;
        }
    }

    /// Whether all lists say the same; for tests.
    #[doc(hidden)]
    pub fn is_consistent(&self) -> bool {
        let lists = self.bare.len() + self.known.len();
        let is_in = |asset: &Asset| {
            let list = if asset.is_known { &self.known } else { &self.bare };
            list.contains(&(asset.last_ms, asset.host)) && self.order.contains(&asset.host)
        };
        lists == self.hosts.len()
            && self.order.len() == lists
            && lists <= self.room
            && self.shared <= self.room
            && self.shared == self.hosts.values().map(Asset::shared).sum::<usize>()
            && self.hosts.values().all(is_in)
    }
}

fn new(host: Host, now_ms: u64) -> Asset {
    let mac = match host {
        Host::Mac(mac) => Some(mac),
        Host::Ip(_) => None,
    };
    Asset {
        host,
        mac,
        first_ms: now_ms,
        last_ms: now_ms,
        systems: Vec::new(),
        services: BTreeMap::new(),
        names: Vec::new(),
        announced: Vec::new(),
        dhcp: None,
        is_known: false,
    }
}

/// Adds to a list what is not in it; `false` if there is no room.
fn add<T: PartialEq>(list: &mut Vec<T>, one: T, most: usize) -> bool {
    let is_there = list.contains(&one);
    if !is_there && list.len() < most {
        list.push(one);
        return true;
    }
    is_there
}

/// Returns whether there was room for it. `may_grow`: whether there is any for a fact that it has not.
fn learn(asset: &mut Asset, now_ms: u64, fact: Fact, may_grow: bool) -> bool {
    let most = |most| if may_grow { most } else { 0 };
    asset.is_known |= !matches!(fact, Fact::Present | Fact::System(_));
    match fact {
        Fact::Present => true,
        Fact::Link(mac) | Fact::Granted(mac) => {
            asset.mac = Some(mac);
            true
        }
        Fact::System(signature) => {
            system(asset, now_ms, signature);
            true
        }
        Fact::Answers(port) => {
            let silent = (Protocol::Unknown, Text::EMPTY);
            service(asset, now_ms, (port, false), silent, most(MOST_SERVICES))
        }
        Fact::Says(udp, port, said) => {
            service(asset, now_ms, (port, udp), (said.protocol, said.text), most(MOST_SERVICES))
        }
        Fact::Dhcp(dhcp) => {
            asset.mac = Some(dhcp.client);
            asset.dhcp = Some(dhcp);
            true
        }
        Fact::Name(name) => add(&mut asset.names, name, most(MOST_NAMES)),
        Fact::Announces(name, port) => add(&mut asset.announced, (name, port), most(MOST_ANNOUNCED)),
    }
}

fn system(asset: &mut Asset, now_ms: u64, signature: Signature) {
    let fresh = System { signature, last_ms: now_ms };
    if let Some(same) = asset.systems.iter_mut().find(|system| system.signature.is_like(&signature)) {
        *same = fresh;
        return;
    }
    if asset.systems.len() == MOST_SYSTEMS
        && let Some((oldest, _)) = asset.systems.iter().enumerate().min_by_key(|(_, system)| system.last_ms)
    {
        asset.systems.remove(oldest);
    }
    asset.systems.push(fresh);
}

/// Likewise, of a service that has said this.
fn service(
    asset: &mut Asset,
    now_ms: u64,
    place: Place,
    (protocol, text): (Protocol, Text),
    most: usize,
) -> bool {
    let count = asset.services.len();
    match asset.services.get_mut(&place) {
        Some(service) => {
            service.last_ms = now_ms;
            // What was said once stays until something else is said.
            if protocol != Protocol::Unknown && (protocol, text.is_empty()) != (service.protocol, true) {
                (service.protocol, service.text) = (protocol, text);
            }
            true
        }
        None if count < most => {
            asset.services.insert(place, Service { protocol, text, first_ms: now_ms, last_ms: now_ms });
            true
        }
        None => false,
    }
}

impl Asset {
    /// Its address, if it has one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Ip(address) => Some(address),
            Host::Mac(_) => None,
        }
    }

    /// Services, names and announced ones.
    fn facts(&self) -> usize {
        self.services.len() + self.names.len() + self.announced.len()
    }

    /// Those of them that are out of what all share.
    fn shared(&self) -> usize {
        self.facts().saturating_sub(OF_EACH)
    }
}
