//! What follows from `[nat]`, checked: every error names its key and says what to do.

use crate::nat::config::{Filtering, NatSection, Pooling, StaticProtocol};
use crate::nat::error::NatError;
use crate::nat::ip::{Endpoint, Family, Proto};
use crate::nat::ports::REGISTERED;
use crate::nat::state::State;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use tidemill_ip::{Interface, Interfaces, Owner, martian};
use tidemill_lpm::Prefix;

/// Addresses that a pool may have, of each family: their bitmaps of ports are 24 KiB each.
pub const MOST_ADDRESSES: usize = 4096;

/// Mappings that there can be.
pub const MOST_MAPPINGS: usize = 1 << 28;

/// Sessions that there can be.
pub const MOST_SESSIONS: usize = 1 << 30;

/// What nodes go by; published, so that a reload can change it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Whether an interface, by its number, is inside.
    pub inside: Vec<bool>,
    /// Whether it is outside.
    pub outside: Vec<bool>,
    /// Whose an address of the pool is, IPv4's in order.
    pub owners4: Vec<Whose>,
    /// The same of IPv6.
    pub owners6: Vec<Whose>,
    /// Sources that nobody outside has, IPv4's: from each of these addresses (as a number, rising) on, whether they are ours or somebody's inside. Of
    /// networks within networks the narrowest counts, as with routes.
    pub near4: Vec<(u128, bool)>,
    /// The same of IPv6.
    pub near6: Vec<(u128, bool)>,
    /// Timeouts.
    pub times: Times,
}

/// How long things are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// UDP sessions.
    pub udp_ms: u64,
    /// Whether packets from outside keep them.
    pub inbound_refresh: bool,
    /// TCP connections that are open.
    pub established_ms: u64,
    /// Others.
    pub transitory_ms: u64,
    /// ICMP queries.
    pub icmp_ms: u64,
    /// Fragments.
    pub fragment_ms: u64,
}

/// Who else has an address of the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Whose {
    /// Nobody.
    #[default]
    Pool,
    /// We: ping, and ICMP about what we have sent.
    Ours,
}

impl Rules {
    /// Whether packets that come in by this interface come from inside.
    #[inline(always)]
    pub fn is_inside(&self, interface: u16) -> bool {
        self.inside.get(usize::from(interface)).copied().unwrap_or(false)
    }

    /// Whether they come from outside.
    #[inline(always)]
    pub fn is_outside(&self, interface: u16) -> bool {
        self.outside.get(usize::from(interface)).copied().unwrap_or(false)
    }

    /// The first interface outside.
    pub(crate) fn first_outside(&self) -> u16 {
        self.outside.iter().position(|outside| *outside).unwrap_or_default() as u16
    }
}

/// Whether nobody outside has this address; `near` as in [`Rules`].
pub(crate) fn is_near(near: &[(u128, bool)], address: u128) -> bool {
    let behind = near.partition_point(|(first, _)| *first <= address);
    behind.checked_sub(1).is_some_and(|at| near[at].1)
}

/// What cannot change while packets flow: one family's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<A> {
    /// The pool's addresses, rising.
    pub pool: Vec<A>,
    /// The ports that may be given.
    pub ports: RangeInclusive<u16>,
    /// From whom packets reach what is mapped.
    pub filtering: Filtering,
    /// Whether a host's mappings all have one address.
    pub pooling: Pooling,
    /// Mappings of one host.
    pub host_mappings: u32,
    /// Sessions that one host has begun.
    pub host_sessions: u32,
    /// Mappings of one /64 (IPv6).
    pub network_mappings: usize,
    /// Sessions that one /64 has begun (IPv6).
    pub network_sessions: usize,
    /// Connections of one outside address, of IPv6 one /64, that it has begun.
    pub source_sessions: u32,
    /// Room.
    pub mappings: usize,
    /// Room.
    pub sessions: usize,
    /// Fragments that wait.
    pub fragments: usize,
    /// Static mappings of ports: protocol, inside, outside.
    pub fixed: Vec<(Proto, Endpoint<A>, Endpoint<A>)>,
    /// Addresses that are one inside host's: outside, inside.
    pub whole: Vec<(A, A)>,
    /// Ports by computation.
    pub deterministic: Option<Deterministic<A>>,
}

/// Ports by computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deterministic<A> {
    /// The first inside address.
    pub first: A,
    /// Bits at the end of an address that are the host's own: 0 if a host is one address.
    pub own_bits: u8,
    /// Inside hosts.
    pub hosts: u32,
    /// Ports of each.
    pub ports: u16,
    /// The first port that is given.
    pub from: u16,
    /// Hosts that share one address.
    pub each: u32,
}

impl<A: Copy + Into<u128>> Deterministic<A> {
    /// The number of a host's address in the pool, and its ports; `None` for hosts that have none.
    pub fn of_host(&self, host: A) -> Option<(usize, RangeInclusive<u16>)> {
        let number = host.into().checked_sub(self.first.into())? >> self.own_bits;
        let number = u32::try_from(number).ok().filter(|number| *number < self.hosts)?;
        let first = self.from + (number % self.each) as u16 * self.ports;
        Some(((number / self.each) as usize, first..=first + (self.ports - 1)))
    }

    /// The number of the inside host (the first is 0) that this port of the pool's address number `at` belongs to.
    pub fn host_of(&self, at: usize, port: u16) -> Option<u32> {
        let block = u32::from(port.checked_sub(self.from)? / self.ports);
        let host = u32::try_from(at).ok()?.checked_mul(self.each)?.checked_add(block)?;
        (block < self.each && host < self.hosts).then_some(host)
    }

    /// The first address of the first host, and the last one of the last.
    pub fn bounds(&self) -> [u128; 2] {
        [self.address_of(0), self.address_of(self.hosts - 1) | ((1_u128 << self.own_bits) - 1)]
    }

    /// The first address of an inside host, by its number.
    pub fn address_of(&self, number: u32) -> u128 {
        self.first.into() + (u128::from(number) << self.own_bits)
    }

    /// The first of the addresses that are one host's, as this one is.
    pub fn block_of(&self, host: A) -> u128 {
        host.into() >> self.own_bits << self.own_bits
    }
}

/// Bytes that the tables of one worker take when they are full: of `mappings`, and of `sessions`. A family without an address in the pool has none.
pub fn table_bytes(section: &NatSection) -> [f64; 2] {
    type V4 = State<u32, 1, 2, 4>;
    type V6 = State<u128, 3, 5, 5>;
    let has = |v6: bool| section.pool.iter().any(|text| text.contains(':') == v6);
    let (mappings, sessions) = (section.mappings as f64, section.sessions as f64);
    let remotes = section.filtering == Filtering::AddressDependent;
    let of = |there: bool, mapping: f64, session: f64, remote: f64| match there {
        true => [mappings * mapping, sessions * (session + if remotes { remote } else { 0.0 })],
        false => [0.0; 2],
    };
    let v4 = of(has(false), V4::BYTES_PER_MAPPING, V4::BYTES_PER_SESSION, V4::BYTES_PER_REMOTE);
    let v6 = of(has(true), V6::BYTES_PER_MAPPING, V6::BYTES_PER_SESSION, V6::BYTES_PER_REMOTE);
    [v4[0] + v6[0], v4[1] + v6[1]]
}

/// Everything.
pub(crate) struct Checked {
    pub(crate) rules: Rules,
    pub(crate) v4: Option<Plan<u32>>,
    pub(crate) v6: Option<Plan<u128>>,
}

pub(crate) fn check(section: &NatSection, interfaces: &Interfaces) -> Result<Checked, NatError> {
    let times = times(section)?;
    let inside = named("inside", &section.inside, interfaces)?;
    let outside = named("outside", &section.outside, interfaces)?;
    if let Some(both) = interfaces.iter().zip(inside.iter().zip(&outside)).find(|(_, (i, o))| **i && **o) {
        let what = format!("interface {:?} is inside, too: leave it out in one of them", both.0.name);
        return Err(NatError::config("outside", what));
    }
    if !(1..=MOST_MAPPINGS).contains(&section.mappings) {
        return Err(NatError::config("mappings", format!("{}: give 1 to 2^28", section.mappings)));
    }
    if !(1..=MOST_SESSIONS).contains(&section.sessions) {
        return Err(NatError::config("sessions", format!("{}: give 1 to 2^30", section.sessions)));
    }
    if section.host_mappings == 0 {
        return Err(NatError::config("host_mappings", "0: a host could have no session: give 1 or more"));
    }
    if section.host_sessions == 0 {
        return Err(NatError::config("host_sessions", "0: a host could have no session: give 1 or more"));
    }
    if section.source_sessions == 0 {
        let what = "0: nobody could be answered who comes from outside: give 1 or more";
        return Err(NatError::config("source_sessions", what));
    }
    if !(1..=3600).contains(&section.handover_s) {
        return Err(NatError::config("handover_s", format!("{}: give 1 to 3600", section.handover_s)));
    }
    if section.fragments > 65_536 {
        return Err(NatError::config("fragments", format!("{}: give at most 65536", section.fragments)));
    }
    one_vrf(interfaces, &inside, &outside)?;
    let (pool4, pool6) = pool(section)?;
    let (v4, v6) = (plan::<u32, 1, 2, 4>(section, pool4)?, plan::<u128, 3, 5, 5>(section, pool6)?);
    are_inside(section, interfaces, &inside, &outside)?;
    is_no_link_outside(interfaces, &inside, &outside, v4.as_ref())?;
    is_no_link_outside(interfaces, &inside, &outside, v6.as_ref())?;
    let owner = |address: IpAddr| match interfaces.iter().find(|interface| interface.has(address)) {
        None => Ok(Whose::Pool),
        Some(interface) if interface.owner == Owner::Us => Ok(Whose::Ours),
        Some(interface) => {
            let what = format!(
                "{address} is the kernel's, of interface {:?}, which would refuse what it has not sent itself: give that owner = \"us\", or another address",
                interface.name
            );
            Err(NatError::config("pool", what))
        }
    };
    let pool4 = v4.iter().flat_map(|plan| &plan.pool).map(|a| owner(IpAddr::V4((*a).into())));
    let owners4 = pool4.collect::<Result<_, _>>()?;
    let pool6 = v6.iter().flat_map(|plan| &plan.pool).map(|a| owner(IpAddr::V6((*a).into())));
    let owners6 = pool6.collect::<Result<_, _>>()?;
    let near4 = v4.as_ref().map(|plan| near(interfaces, &inside, &outside, plan)).unwrap_or_default();
    let near6 = v6.as_ref().map(|plan| near(interfaces, &inside, &outside, plan)).unwrap_or_default();
    Ok(Checked { rules: Rules { inside, outside, owners4, owners6, near4, near6, times }, v4, v6 })
}

/// An interface's addresses of a family as numbers, each with the first and the last of its link.
fn links<A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    interface: &Interface,
) -> Vec<[u128; 3]> {
    if A::V6 {
        let of = |(own, link): &(Ipv6Addr, Prefix<u128>)| [u128::from(*own), link.first(), link.last()];
        return interface.v6.iter().map(of).collect();
    }
    let of =
        |(own, link): &(Ipv4Addr, Prefix<u32>)| [u32::from(*own), link.first(), link.last()].map(u128::from);
    interface.v4.iter().map(of).collect()
}

/// Who cannot come from outside, as [`Rules`] has it: ourselves, and who is known to be inside by a link, `static`, or `deterministic`. What a router
/// inside leads to is not.
fn near<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize>(
    interfaces: &Interfaces,
    inside: &[bool],
    outside: &[bool],
    plan: &Plan<A>,
) -> Vec<(u128, bool)> {
    // They are all of one VRF.
    let vrf = vrf(interfaces, inside);
    let sides = interfaces.iter().zip(inside.iter().zip(outside));
    let (mut networks, mut own) = (Vec::new(), Vec::new());
    for (interface, (inside, outside)) in sides.filter(|(interface, _)| Some(interface.vrf) == vrf) {
        for [address, first, last] in links::<A, E, S, T>(interface) {
            if *inside || *outside {
                networks.push((first, last, *inside));
            }
            if interface.owner == Owner::Us {
                own.push((address, address, true));
            }
        }
    }
    if let Some(rule) = plan.deterministic {
        let [first, last] = rule.bounds();
        networks.push((first, last, true));
    }
    let fixed = plan.fixed.iter().map(|(_, inside, _)| inside.address);
    let hosts = fixed.chain(plan.whole.iter().map(|(_, host)| *host)).map(Into::<u128>::into);
    networks.extend(hosts.map(|host| (host, host, true)));
    networks.append(&mut own);
    // The narrowest last, each over what it lies in.
    networks.sort_by_key(|(first, last, _)| std::cmp::Reverse(last - first));
    let mut near = BTreeMap::from([(0_u128, false)]);
    for (first, last, is_near) in networks {
        if let Some(behind) = last.checked_add(1) {
            let side = near.range(..=behind).next_back().is_some_and(|(_, side)| *side);
            near.insert(behind, side);
        }
        near.insert(first, is_near);
    }
    near.into_iter().collect()
}

/// The VRF that all interfaces of a NAT are of.
fn vrf(interfaces: &Interfaces, inside: &[bool]) -> Option<u16> {
    interfaces.iter().zip(inside).find(|(_, inside)| **inside).map(|(interface, _)| interface.vrf)
}

/// An interface of this side whose link an address is on.
fn on_link<'a>(interfaces: &'a Interfaces, side: &[bool], address: IpAddr) -> Option<&'a Interface> {
    let mut all = interfaces.iter().zip(side);
    all.find(|(interface, side)| **side && interface.on_link(address)).map(|(interface, _)| interface)
}

/// What static mappings lead to is neither here nor outside: that would have no answer, or one that is not translated.
fn are_inside(
    section: &NatSection,
    interfaces: &Interfaces,
    inside: &[bool],
    outside: &[bool],
) -> Result<(), NatError> {
    let vrf = vrf(interfaces, inside);
    for (i, config) in section.fixed.iter().enumerate() {
        let text = &config.internal;
        let parsed = text.parse::<IpAddr>().or_else(|_| text.parse().map(|socket: SocketAddr| socket.ip()));
        let Ok(address) = parsed else { continue };
        let wrong = |what: String| {
            let what = format!("{address}: {what}: give an inside host's address");
            NatError::config(format!("static[{i}].internal"), what)
        };
        let mut all = interfaces.iter().filter(|interface| Some(interface.vrf) == vrf);
        if let Some(own) = all.find(|interface| interface.has(address)) {
            return Err(wrong(format!("is interface {:?}'s own", own.name)));
        }
        let links = (on_link(interfaces, outside, address), on_link(interfaces, inside, address));
        if let (Some(link), None) = links {
            return Err(wrong(format!("is on the link of interface {:?}, which is outside", link.name)));
        }
    }
    Ok(())
}

/// Whose ports are computed is inside: if they are all of a link outside, nobody there could answer, for [`near`] has them inside.
fn is_no_link_outside<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize>(
    interfaces: &Interfaces,
    inside: &[bool],
    outside: &[bool],
    plan: Option<&Plan<A>>,
) -> Result<(), NatError> {
    match on_link_outside::<A, E, S, T>(interfaces, inside, outside, plan) {
        Some((what, true)) => {
            Err(NatError::config("deterministic.inside", format!("{what}: give inside hosts' prefix")))
        }
        _ => Ok(()),
    }
}

/// On which link outside all those are whose ports are computed, in words, and whether they are all of it; `None`: on none, or on one inside, too. Where they are a part a route may
/// lead inside to them.
pub(crate) fn on_link_outside<A, const E: usize, const S: usize, const T: usize>(
    interfaces: &Interfaces,
    inside: &[bool],
    outside: &[bool],
    plan: Option<&Plan<A>>,
) -> Option<(String, bool)>
where
    A: Family<E, S, T> + Into<u128>,
{
    let bounds = plan?.deterministic?.bounds();
    let around = |from: u128, to: u128| from <= bounds[0] && bounds[1] <= to;
    if has_link::<A, E, S, T>(interfaces, inside, around).is_some() {
        return None;
    }
    let whole = has_link::<A, E, S, T>(interfaces, outside, |from, to| [from, to] == bounds);
    let link = whole.or_else(|| has_link::<A, E, S, T>(interfaces, outside, around))?;
    let [first, last] = bounds.map(|bits| A::of_bits(bits).ip());
    let what = format!("{first} to {last} is on the link of interface {:?}, which is outside", link.name);
    Some((what, whole.is_some()))
}

/// An interface of this side that has such a link, from its first address to its last.
fn has_link<'a, A: Family<E, S, T>, const E: usize, const S: usize, const T: usize>(
    interfaces: &'a Interfaces,
    side: &[bool],
    is: impl Fn(u128, u128) -> bool,
) -> Option<&'a Interface> {
    let has =
        |interface: &Interface| links::<A, E, S, T>(interface).iter().any(|[_, from, to]| is(*from, *to));
    let mut all = interfaces.iter().zip(side);
    all.find(|(interface, side)| **side && has(interface)).map(|(interface, _)| interface)
}

/// Hosts of two VRFs may have the same address, and what tells them apart is gone outside.
fn one_vrf(interfaces: &Interfaces, inside: &[bool], outside: &[bool]) -> Result<(), NatError> {
    let sides = inside.iter().zip(outside);
    let mut all =
        interfaces.iter().zip(sides).filter(|(_, (i, o))| **i || **o).map(|(interface, _)| interface);
    let Some(first) = all.next() else { return Ok(()) };
    let Some(other) = all.find(|interface| interface.vrf != first.vrf) else { return Ok(()) };
    let key =
        if inside[usize::from(interfaces.by_name(&other.name).unwrap_or(0))] { "inside" } else { "outside" };
    let what = format!(
        "interfaces {:?} and {:?} are of two VRFs, whose hosts may have the same addresses: a NAT translates within one; name interfaces of one",
        first.name, other.name
    );
    Err(NatError::config(key, what))
}

fn named(key: &str, names: &[String], interfaces: &Interfaces) -> Result<Vec<bool>, NatError> {
    let known = || interfaces.iter().map(|i| format!("{:?}", i.name)).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return Err(NatError::config(key, format!("is empty: name at least one interface of {}", known())));
    }
    let mut flags = vec![false; interfaces.iter().count()];
    for (i, name) in names.iter().enumerate() {
        match interfaces.by_name(name) {
            Some(at) if flags[usize::from(at)] => {
                let what = format!("{name:?} is there twice: leave one out");
                return Err(NatError::config(format!("{key}[{i}]"), what));
            }
            Some(at) => flags[usize::from(at)] = true,
            None => {
                let what = format!("there is no interface {name:?}; there are {}", known());
                return Err(NatError::config(format!("{key}[{i}]"), what));
            }
        }
    }
    Ok(flags)
}

fn times(section: &NatSection) -> Result<Times, NatError> {
    let at_least = |key: &str, value: u32, least: u32, source: &str| match value {
        value if (least..=31_536_000).contains(&value) => Ok(u64::from(value) * 1000),
        value => Err(NatError::config(key, format!("{value}: give {least} ({source}) to 31536000"))),
    };
    if !(1..=60).contains(&section.fragment_s) {
        return Err(NatError::config("fragment_s", format!("{}: give 1 to 60", section.fragment_s)));
    }
    Ok(Times {
        udp_ms: at_least("udp_s", section.udp_s, 120, "RFC 4787, REQ-5")?,
        inbound_refresh: section.inbound_refresh,
        established_ms: at_least("tcp_established_s", section.tcp_established_s, 7440, "RFC 5382, REQ-5")?,
        transitory_ms: at_least("tcp_transitory_s", section.tcp_transitory_s, 240, "RFC 5382, REQ-5")?,
        icmp_ms: at_least("icmp_s", section.icmp_s, 60, "RFC 5508, REQ-2")?,
        fragment_ms: u64::from(section.fragment_s) * 1000,
    })
}

/// The pool's addresses by family, rising.
fn pool(section: &NatSection) -> Result<(Vec<u32>, Vec<u128>), NatError> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    if section.pool.is_empty() {
        return Err(NatError::config(
            "pool",
            "is empty: give the addresses that inside hosts shall look like",
        ));
    }
    for (i, text) in section.pool.iter().enumerate() {
        let wrong = |what: String| NatError::config(format!("pool[{i}]"), format!("{text:?}: {what}"));
        let (first, last) = range(text).map_err(|()| {
            wrong("give an address, a range \"first-last\" of one family, or a prefix".into())
        })?;
        let (from, to) = (bits(first), bits(last));
        if from > to {
            return Err(wrong(format!("{first} is behind {last}: turn them round")));
        }
        if to - from >= MOST_ADDRESSES as u128 {
            return Err(wrong(format!("more than {MOST_ADDRESSES} addresses: give fewer")));
        }
        if let Some(why) = martian::sort_of(first).or_else(|| martian::sort_of(last)) {
            return Err(wrong(format!("{why} cannot be an outside address: give others")));
        }
        match first {
            IpAddr::V4(_) => v4.extend((from..=to).map(|a| a as u32)),
            IpAddr::V6(_) => v6.extend(from..=to),
        }
    }
    v4.sort_unstable();
    v6.sort_unstable();
    let twice4 = v4.windows(2).find(|two| two[0] == two[1]).map(|two| IpAddr::V4(two[0].into()));
    let twice6 = v6.windows(2).find(|two| two[0] == two[1]).map(|two| IpAddr::V6(two[0].into()));
    if let Some(twice) = twice4.or(twice6) {
        return Err(NatError::config("pool", format!("{twice} is there twice: leave one out")));
    }
    if v4.len().max(v6.len()) > MOST_ADDRESSES {
        let what = format!("more than {MOST_ADDRESSES} addresses of one family: give fewer");
        return Err(NatError::config("pool", what));
    }
    Ok((v4, v6))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

fn range(text: &str) -> Result<(IpAddr, IpAddr), ()> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (IpAddr, IpAddr) =
            (first.trim().parse().map_err(drop)?, last.trim().parse().map_err(drop)?);
        return if first.is_ipv4() == last.is_ipv4() { Ok((first, last)) } else { Err(()) };
    }
    if !text.contains('/') {
        return text.parse().map(|address| (address, address)).map_err(drop);
    }
    if let Ok(prefix) = text.parse::<Prefix<u32>>() {
        return Ok((IpAddr::V4(prefix.first().into()), IpAddr::V4(prefix.last().into())));
    }
    let prefix = text.parse::<Prefix<u128>>().map_err(drop)?;
    Ok((IpAddr::V6(prefix.first().into()), IpAddr::V6(prefix.last().into())))
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, NatError> {
    let ports = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (0 < first && first <= last).then_some(first..=last)
    });
    ports.ok_or_else(|| NatError::config("ports", format!("{text:?}: give \"first-last\", of 1 to 65535")))
}

/// One family's part; `None` without addresses.
fn plan<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize>(
    section: &NatSection,
    pool: Vec<A>,
) -> Result<Option<Plan<A>>, NatError> {
    let ports = port_range(&section.ports)?;
    let (mut fixed, mut whole) = (Vec::new(), Vec::new());
    for (i, config) in section.fixed.iter().enumerate() {
        let wrong = |key: &str, what: String| NatError::config(format!("static[{i}].{key}"), what);
        let (external, internal) = match config.protocol {
            None => {
                let address = |key: &str, text: &str| {
                    text.parse::<IpAddr>().map(|ip| (ip, 0)).map_err(|_| {
                        wrong(key, format!("{text:?}: give an address; with a port also \"protocol\""))
                    })
                };
                (address("external", &config.external)?, address("internal", &config.internal)?)
            }
            Some(_) => {
                let socket = |key: &str, text: &str| match text.parse::<SocketAddr>() {
                    Ok(socket) if socket.port() > 0 => Ok((socket.ip(), socket.port())),
                    _ => {
                        Err(wrong(key, format!("{text:?}: give an address and a port, as \"192.0.2.1:443\"")))
                    }
                };
                (socket("external", &config.external)?, socket("internal", &config.internal)?)
            }
        };
        if external.0.is_ipv4() != internal.0.is_ipv4() {
            let what = format!("{}: external is of the other family: give two of one", internal.0);
            return Err(wrong("internal", what));
        }
        if let Some(why) = martian::sort_of(internal.0) {
            let what = format!("{}: {why} is no host's: give an inside host's", internal.0);
            return Err(wrong("internal", what));
        }
        let (Some(outside), Some(inside)) = (A::of_ip(external.0), A::of_ip(internal.0)) else { continue };
        if pool.binary_search(&outside).is_err() {
            return Err(wrong("external", format!("{}: is not in nat.pool: add it there", external.0)));
        }
        if pool.binary_search(&inside).is_ok() {
            let what = format!("{}: is in nat.pool, which is outside: give an inside address", internal.0);
            return Err(wrong("internal", what));
        }
        match config.protocol {
            None => whole.push((outside, inside)),
            Some(protocol) => {
                let proto = match protocol {
                    StaticProtocol::Tcp => Proto::Tcp,
                    StaticProtocol::Udp => Proto::Udp,
                };
                fixed.push((
                    proto,
                    Endpoint { address: inside, port: internal.1 },
                    Endpoint { address: outside, port: external.1 },
                ));
            }
        }
        let clash = |what: &str| Err(wrong(what, "is what another static mapping has: leave one out".into()));
        let same = |a: &(A, A)| a.0 == outside || a.1 == inside;
        if whole.iter().filter(|pair| same(pair)).count() > usize::from(config.protocol.is_none()) {
            return clash("external");
        }
        if config.protocol.is_none()
            && fixed.iter().any(|(_, i, o)| o.address == outside || i.address == inside)
        {
            return clash("external");
        }
        if let Some((last, before)) = fixed.split_last() {
            if before.iter().any(|(proto, _, out)| (*proto, *out) == (last.0, last.2)) {
                return clash("external");
            }
            if before.iter().any(|(proto, ins, _)| (*proto, *ins) == (last.0, last.1)) {
                return clash("internal");
            }
        }
    }
    let deterministic = match &section.deterministic {
        Some(config) => deterministic::<A, E, S, T>(config, &pool, &ports, &fixed, &whole)?,
        None => None,
    };
    if fixed.len() > section.mappings {
        let what = format!("{}: there are {} static mappings: give more", section.mappings, fixed.len());
        return Err(NatError::config("mappings", what));
    }
    Ok((!pool.is_empty()).then_some(Plan {
        pool,
        ports,
        filtering: section.filtering,
        pooling: section.pooling,
        host_mappings: section.host_mappings,
        host_sessions: section.host_sessions,
        network_mappings: three_quarters(section.mappings),
        network_sessions: three_quarters(section.sessions),
        source_sessions: section.source_sessions,
        mappings: section.mappings,
        sessions: section.sessions,
        fragments: section.fragments,
        fixed,
        whole,
        deterministic,
    }))
}

/// What one link may have, whatever addresses its hosts take.
fn three_quarters(room: usize) -> usize {
    room - room / 4
}

/// A prefix of either family: its first address, its length, its family's bits.
fn any_prefix(text: &str) -> Result<(u128, u8, u8), String> {
    if text.contains(':') {
        let prefix: Prefix<u128> = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
        return Ok((prefix.first(), prefix.len(), 128));
    }
    let prefix: Prefix<u32> = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
    Ok((prefix.first().into(), prefix.len(), 32))
}

/// One family's ports by computation; `None` if none of the prefixes is of it.
fn deterministic<A: Family<E, S, T> + Into<u128>, const E: usize, const S: usize, const T: usize>(
    config: &crate::nat::config::DeterministicConfig,
    pool: &[A],
    ports: &RangeInclusive<u16>,
    fixed: &[(Proto, Endpoint<A>, Endpoint<A>)],
    whole: &[(A, A)],
) -> Result<Option<Deterministic<A>>, NatError> {
    let wrong = |key: &str, what: String| NatError::config(format!("deterministic.{key}"), what);
    let mut mine = None;
    if config.inside.all().is_empty() {
        return Err(wrong("inside", "is empty: give an IPv4 or an IPv6 prefix, or one of each".into()));
    }
    for text in config.inside.all() {
        let prefix = any_prefix(text).map_err(|what| wrong("inside", format!("{what}: give a prefix")))?;
        if (prefix.2 == 128) == A::V6 && mine.replace((text, prefix)).is_some() {
            return Err(wrong("inside", format!("{text:?}: is the second of its family: give one of each")));
        }
    }
    let Some((text, (first, length, bits))) = mine else { return Ok(None) };
    if pool.is_empty() {
        let what = format!("{text:?}: nat.pool has no address of that family: add some, or leave it out");
        return Err(wrong("inside", what));
    }
    let host_length = if A::V6 { config.host_length6 } else { 32 };
    if !(64..=128).contains(&config.host_length6) {
        let what = format!("{}: give 64 to 128", config.host_length6);
        return Err(wrong("host_length6", what));
    }
    if length > host_length || host_length - length > 24 {
        let (least, of) = (host_length - 24, if A::V6 { " (host_length6 - 24 to host_length6)" } else { "" });
        return Err(wrong("inside", format!("{text}: give a prefix of length {least} to {host_length}{of}")));
    }
    let last = first | ((1_u128 << (bits - length)) - 1);
    if let Some(why) = [first, last].into_iter().find_map(|end| martian::sort_of(A::of_bits(end).ip())) {
        return Err(wrong("inside", format!("{text}: {why} is no host's: give inside hosts' prefix")));
    }
    if let Some(own) = pool.iter().find(|own| (first..=last).contains(&Into::<u128>::into(**own))) {
        let what =
            format!("{text}: has {} of nat.pool, which is outside: give inside hosts' prefix", own.ip());
        return Err(wrong("inside", what));
    }
    if !whole.is_empty() {
        let what =
            "a whole address is an inside host's (static without a protocol): leave one of the two out";
        return Err(wrong("inside", what.into()));
    }
    let per_host = config.ports_per_host;
    if !(2..=32_256).contains(&per_host) || per_host % 2 == 1 {
        return Err(wrong("ports_per_host", format!("{per_host}: give an even number, 2 to 32256")));
    }
    // Well-known ports are nobody's (RFC 7422, section 2); blocks begin with an even one.
    let from = u32::from((*ports.start()).max(REGISTERED)).next_multiple_of(2);
    let there = (u32::from(*ports.end()) + 1).saturating_sub(from);
    let each = there / u32::from(per_host);
    let hosts = 1_u32 << (host_length - length);
    if u64::from(each) * (pool.len() as u64) < u64::from(hosts) {
        let what = format!(
            "{per_host}: {hosts} hosts of {text} need {} addresses with {each} hosts each, and nat.pool has {}: give fewer ports, or more \
             addresses",
            if each == 0 { "more".into() } else { hosts.div_ceil(each).to_string() },
            pool.len()
        );
        return Err(wrong("ports_per_host", what));
    }
    // Ports that there are begin below 65536.
    let (own_bits, from) = (bits - host_length, from as u16);
    let rule = Deterministic { first: A::of_bits(first), own_bits, hosts, ports: per_host, from, each };
    // A port says whose it is, or it says nothing.
    for (_, inside, outside) in fixed {
        let owner = pool.binary_search(&outside.address).ok().and_then(|at| rule.host_of(at, outside.port));
        if let Some(owner) = owner.map(|number| rule.address_of(number))
            && owner != rule.block_of(inside.address)
        {
            let what = format!(
                "{}, port {}, which is static for {}, is among the ports of {}: give that another port, below {from} or of its own host",
                outside.address.ip(),
                outside.port,
                inside.address.ip(),
                A::of_bits(owner).ip()
            );
            return Err(wrong("inside", what));
        }
    }
    Ok(Some(rule))
}

#[cfg(test)]
mod tests;
