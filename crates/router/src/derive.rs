//! What follows from a configuration: tables, static routes, our own routes, the neighbors' timers.

use crate::config::{RouteConfig, RouterConfig};
use crate::control::{Routed, RouterError, Routes, static_name};
use crate::labels::NextHop;
use crate::plane::{Plane, RouteList, Source, integer};
use crate::resume::Before;
use crate::rules::{self, Rules};
use crate::settings::{self, ConfigError, vrf_index};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use tidemill_ip::neighbor::Key;
use tidemill_ip::neighbor::table::{Limits, Timers};
use tidemill_ip::{Interfaces, Owner, Settings};
use tidemill_lookup::numa::Copies;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::table::{Algorithm, Family};
use tidemill_lpm::{Label, Prefix, Rib};
use tidemill_port::number;
use tidemill_wire::{EtherType, MacAddr};

pub(crate) fn check_names(
    config: &RouterConfig,
    v4: &[(Label, String)],
    v6: &[(Label, String)],
) -> Result<(), ConfigError> {
    for (i, entry) in config.next_hop.iter().enumerate() {
        let known =
            |names: &[(Label, String)]| names.iter().any(|(_, name)| Some(name) == entry.name.as_ref());
        if entry.name.is_some() && !known(v4) && !known(v6) {
            let name = entry.name.as_deref().unwrap_or_default();
            let what = format!("no table names a next hop {name:?}: give its label, or remove the entry");
            return Err(ConfigError::new(format!("next_hop[{i}].name"), what));
        }
    }
    Ok(())
}

pub(crate) fn timers(config: &RouterConfig) -> Result<Timers, ConfigError> {
    let section = &config.neighbors;
    let seconds = |field: &str, value: f64| {
        let good = (0.01..=86_400.0).contains(&value);
        let wrong = || {
            ConfigError::new(
                format!("neighbors.{field}"),
                format!("{}: give 0.01 to 86400 seconds", number(value)),
            )
        };
        if good { Ok((value * 1e9) as u64) } else { Err(wrong()) }
    };
    let attempts = u8::try_from(section.attempts).ok().filter(|n| (1..=20).contains(n)).ok_or_else(|| {
        ConfigError::new("neighbors.attempts", format!("{}: give 1 to 20", section.attempts))
    })?;
    Ok(Timers {
        reachable_ns: seconds("reachable_s", section.reachable_s)?,
        retransmit_ns: seconds("retransmit_s", section.retransmit_s)?,
        solicits: attempts,
        probes: attempts,
        ..Timers::default()
    })
}

pub(crate) fn limits(config: &RouterConfig) -> Result<Limits, ConfigError> {
    let entries = config.neighbors.limit;
    if !(16..=1 << 20).contains(&entries) {
        let what = format!("{entries}: give 16 to {}", 1 << 20);
        return Err(ConfigError::new("neighbors.limit", what));
    }
    let default = Limits::default();
    Ok(Limits { entries, per_interface: entries.min(default.per_interface.max(entries / 2)), ..default })
}

pub(crate) fn fixed_neighbors(
    config: &RouterConfig,
    interfaces: &Interfaces,
) -> Result<Vec<(Key, MacAddr)>, ConfigError> {
    let fixed = config.neighbors.fixed.iter().enumerate().map(|(i, entry)| {
        let key = |field: &str| format!("neighbors.fixed[{i}].{field}");
        let interface = settings::interface_index(interfaces, &entry.interface, || key("interface"))?;
        let mac = settings::unicast_mac(&entry.mac, || key("mac"))?;
        Ok((Key { interface, address: entry.address }, mac))
    });
    fixed.collect()
}

pub(crate) fn named<A: Family>(rib: &Rib<A>) -> RouteList<A> {
    let some = rib.iter().filter(|(_, label)| *label != Label::NONE);
    some.map(|(prefix, label)| (prefix, NextHop::Named(label))).collect()
}

/// A family's half, what its labels mean, and what the file calls them.
pub(crate) type Made<A> = (Plane<A>, Rules, Vec<(Label, String)>);

#[allow(clippy::too_many_arguments)]
pub(crate) fn plane<A: Routed>(
    config: &RouterConfig,
    settings: &Settings,
    vrfs: &[String],
    ethertype: EtherType,
    routes: Routes<A>,
    before: Before<A>,
    domain: &Domain,
    copies: &Copies,
) -> Result<Made<A>, RouterError> {
    let (key, name) = match A::FAMILY {
        4 => ("router.algorithm", &config.router.algorithm),
        _ => ("router.algorithm6", &config.router.algorithm6),
    };
    let algorithm = Algorithm::parse::<A>(name).map_err(|error| ConfigError::new(key, error.to_string()))?;
    let rules = Rules::new(config, &settings.interfaces, &routes.names)?;
    let statics =
        static_routes::<A>(&config.route, config.route.len(), &settings.interfaces, vrfs, &routes.names)?;
    let mut first: Vec<Vec<(Source, RouteList<A>)>> = statics
        .into_iter()
        .zip(before.kernel)
        .enumerate()
        .map(|(vrf, (list, kernel))| {
            let own = own_routes::<A>(&settings.interfaces, vrf as u16, &[]);
            vec![(Source::Own, own), (Source::Static, list), (Source::Kernel, kernel)]
        })
        .collect();
    first[0].push((Source::Table, named(&routes.rib)));
    drop(routes.rib);
    let budget = Duration::from_millis(config.router.auto_ms.into());
    let plane = Plane::new(ethertype, &algorithm, budget, first, before.chosen, domain, copies)
        .map_err(|source| RouterError::Table { family: A::FAMILY, source })?;
    Ok((plane, rules, routes.names))
}

/// The static routes of one family, by VRF. The first `configured` of `routes` are the configuration's, which must
/// not name a prefix twice; a later one replaces them.
pub(crate) fn static_routes<A: Routed>(
    routes: &[RouteConfig],
    configured: usize,
    interfaces: &Interfaces,
    vrfs: &[String],
    names: &[(Label, String)],
) -> Result<Vec<RouteList<A>>, ConfigError> {
    let mut by_vrf: Vec<BTreeMap<Prefix<A>, (usize, NextHop)>> = vec![BTreeMap::new(); vrfs.len()];
    for (i, route) in routes.iter().enumerate() {
        let key = |field: &str| match i < configured {
            true => format!("route[{i}].{field}"),
            false => format!("the added route to {}: {field}", route.prefix),
        };
        let vrf = vrf_number(vrfs, route, &key)?;
        let prefix = prefix_of(route, &key)?;
        let Some(prefix) = prefix.of::<A>() else { continue };
        let name = static_name(&route.prefix);
        let label = names.iter().find(|(_, known)| *known == name).map(|(label, _)| *label);
        let hop = rules::route(route, interfaces, vrf, label, &key)?;
        let before = by_vrf[usize::from(vrf)].insert(prefix, (i, hop));
        if let Some((twin, _)) = before.filter(|_| i < configured) {
            let what = format!("route[{twin}] is to {} already: remove one", route.prefix);
            return Err(ConfigError::new(key("prefix"), what));
        }
    }
    let list = |routes: BTreeMap<_, (usize, NextHop)>| {
        routes.into_iter().map(|(prefix, (_, hop))| (prefix, hop)).collect()
    };
    Ok(by_vrf.into_iter().map(list).collect())
}

pub(crate) fn vrf_number(
    vrfs: &[String],
    route: &RouteConfig,
    key: &dyn Fn(&str) -> String,
) -> Result<u16, ConfigError> {
    match &route.vrf {
        None => Ok(0),
        Some(vrf) => vrf_index(vrfs, vrf, || key("vrf")),
    }
}

/// A prefix of either family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Either {
    V4(Prefix<u32>),
    V6(Prefix<u128>),
}

impl Either {
    pub(crate) fn of<A: Family>(self) -> Option<Prefix<A>> {
        match self {
            Either::V4(prefix) if A::FAMILY == 4 => {
                Prefix::new(A::from_u128(prefix.first().into()), prefix.len())
            }
            Either::V6(prefix) if A::FAMILY == 6 => Prefix::new(A::from_u128(prefix.first()), prefix.len()),
            _ => None,
        }
    }
}

pub(crate) fn prefix_of(route: &RouteConfig, key: &dyn Fn(&str) -> String) -> Result<Either, ConfigError> {
    let text = &route.prefix;
    match (text.parse::<Prefix<u32>>(), text.parse::<Prefix<u128>>()) {
        (Ok(prefix), _) => Ok(Either::V4(prefix)),
        (_, Ok(prefix)) => Ok(Either::V6(prefix)),
        (v4, v6) => {
            let error = if text.contains(':') { v6.err() } else { v4.err() };
            let error = error.map_or_else(String::new, |error| error.to_string());
            let what = if error.contains(text.as_str()) { error } else { format!("{text}: {error}") };
            Err(ConfigError::new(key("prefix"), what))
        }
    }
}

/// The routes that follow from our addresses in one VRF.
///
/// `kernel` are addresses that the kernel has on devices that are no ports of ours.
pub(crate) fn own_routes<A: Family>(interfaces: &Interfaces, vrf: u16, kernel: &[IpAddr]) -> RouteList<A> {
    let host = |address: A| Prefix::new(address, A::BITS);
    let (mut local, mut links) = (Vec::new(), Vec::new());
    for (number, interface) in interfaces.iter().enumerate().filter(|(_, interface)| interface.vrf == vrf) {
        let v4 = interface.v4.iter().map(|(address, prefix)| (IpAddr::V4(*address), prefix.len()));
        let v6 = interface.v6.iter().map(|(address, prefix)| (IpAddr::V6(*address), prefix.len()));
        let ours = if interface.owner == Owner::Kernel { NextHop::Kernel } else { NextHop::Local };
        for (address, len) in v4.chain(v6) {
            let Some(address) = integer::<A>(address) else { continue };
            let Some(prefix) = Prefix::new(address, len) else { continue };
            local.extend(host(address).map(|host| (host, ours.clone())));
            if len < A::BITS {
                links.push((prefix, NextHop::OnLink(number as u16)));
            }
            if A::FAMILY == 4 && len + 1 < A::BITS {
                let all = if interface.owner == Owner::Kernel { NextHop::Kernel } else { NextHop::Broadcast };
                links.extend(host(prefix.last()).map(|host| (host, all)));
            }
        }
    }
    let elsewhere = kernel.iter().filter_map(|address| host(integer::<A>(*address)?));
    local.extend(elsewhere.map(|host| (host, NextHop::Kernel)));
    // Of two equal prefixes the first counts: our own address before another link's broadcast address.
    local.extend(links);
    let mut routes: RouteList<A> = Vec::new();
    for (prefix, hop) in local {
        if !routes.iter().any(|(known, _)| *known == prefix) {
            routes.push((prefix, hop));
        }
    }
    routes
}
