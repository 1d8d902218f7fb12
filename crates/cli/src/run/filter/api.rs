//! The verbs that only a filter has.

use super::Filter;
use crate::run::router::Router;
use crate::run::service::{lock, now_ns};
use std::net::IpAddr;
use std::sync::{Arc, TryLockError};
use tidemill_control::schema::Done;
use tidemill_control::schema::filter::{self, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_nf::filter::text::{Action, Direction, Network, protocol_name, protocol_number, read_network};
use tidemill_nf::filter::{FilterError, Line, LogLine, Wanted};

/// Connections in one answer.
const PAGE: u32 = 10_000;
/// Those with the most packets, if nobody says how many.
const TOP: u32 = 20;

/// Adds them.
pub(super) fn register(role: &Arc<Filter>, router: &Arc<Router>, registry: &mut Registry) {
    let to = role.clone();
    registry.get(path::RULES, "Rules with what they have counted", move |_: &Request| Ok(rules(&to)));
    let (to, around) = (role.clone(), router.clone());
    registry.post(path::RULES, "Read the file of rules again", move |_: &Request| load(&to, &around));
    let to = role.clone();
    registry.get(path::STATES, "Connections that are known", move |r: &Request| states(&to, &r.query()?));
    registry.takes::<filter::StatesQuery>();
    let to = role.clone();
    registry
        .get(path::TOP, "The connections with the most packets", move |r: &Request| top(&to, &r.query()?));
    registry.takes::<filter::TopQuery>();
    let to = role.clone();
    registry.get(path::SETS, "Tables of addresses", move |r: &Request| sets(&to, &r.query()?));
    registry.takes::<filter::SetsQuery>();
    let to = role.clone();
    registry.post(path::SETS, "Put addresses into a table", move |r: &Request| change(&to, &r.json()?, true));
    registry.takes::<filter::SetChange>();
    let to = role.clone();
    registry.delete(path::SETS, "Take addresses out of a table", move |r: &Request| {
        change(&to, &r.query()?, false)
    });
    registry.takes::<filter::SetChange>();
    let (to, around) = (role.clone(), router.clone());
    registry.get(path::LOG, "The last packets that were logged", move |_: &Request| Ok(log(&to, &around)));
    let to = role.clone();
    registry.get(path::COUNTERS, "All that the filter counts", move |_: &Request| {
        let counters = to.figures().into_iter().map(|(name, count, _)| (name.to_owned(), count)).collect();
        Ok(filter::Counters { counters })
    });
}

fn wrong(error: &FilterError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

fn rules(role: &Filter) -> filter::Rules {
    let control = lock(&role.control);
    let rules = control.rule_list().zip(0..).map(|((rule, hits), number)| filter::Rule {
        number,
        line: rule.place.line,
        rule: rule.text.clone(),
        label: rule.label.clone(),
        packets: hits.packets,
        bytes: hits.bytes,
        states: hits.states,
    });
    filter::Rules { rules: rules.collect(), version: control.rules().version() }
}

fn load(role: &Filter, router: &Router) -> Result<Done, ApiError> {
    let _one = lock(&role.loading);
    let section = lock(&role.control).section().clone();
    let version = role.load(router, &section).map_err(ApiError::bad_request)?;
    let control = lock(&role.control);
    let (rules, sets) = (control.rules().list().len(), control.set_list().len());
    let mut said = vec![format!("{rules} rules and {sets} tables loaded: version {version}")];
    said.extend(control.remarks());
    Ok(Done::from(said.join("; ")))
}

fn state(line: &Line) -> filter::State {
    filter::State {
        protocol: protocol_name(line.protocol),
        from: line.from.to_string(),
        to: line.to.to_string(),
        state: line.state.into(),
        expires_s: line.left_ms as f64 / 1e3,
        packets_from: line.packets_from.into(),
        packets_to: line.packets_to.into(),
        rule_in: line.rules[0],
        rule_out: line.rules[1],
        version: line.version,
        worker: line.worker as u32,
    }
}

fn states(role: &Filter, query: &filter::StatesQuery) -> Result<filter::States, ApiError> {
    let cursor = query
        .after
        .as_deref()
        .map(|text| text.parse().map_err(|_| ApiError::bad_request("after: give what the last page said")));
    let address = query
        .address
        .as_deref()
        .map(|text| text.parse().map_err(|_| ApiError::bad_request(format!("{text:?} is no address"))));
    let protocol = query.protocol.as_deref().map(|name| {
        protocol_number(name).ok_or_else(|| {
            ApiError::bad_request(format!("protocol {name:?}: give tcp, udp, icmp, icmp6 or a number"))
        })
    });
    let wanted = Wanted {
        address: address.transpose()?,
        protocol: protocol.transpose()?,
        cursor: cursor.transpose()?,
        limit: query.limit.unwrap_or(PAGE).clamp(1, PAGE) as usize,
    };
    let (lines, next) = lock(&role.control).states(&wanted, now_ns() / 1_000_000);
    Ok(filter::States { states: lines.iter().map(state).collect(), next: next.map(|next| next.to_string()) })
}

fn top(role: &Filter, query: &filter::TopQuery) -> Result<filter::States, ApiError> {
    let count = query.limit.unwrap_or(TOP).clamp(1, PAGE) as usize;
    let lines = lock(&role.control).top(count, now_ns() / 1_000_000);
    Ok(filter::States { states: lines.iter().map(state).collect(), next: None })
}

fn sets(role: &Filter, query: &filter::SetsQuery) -> Result<filter::Sets, ApiError> {
    let control = lock(&role.control);
    let mut list = control.set_list();
    let mut addresses = Vec::new();
    if let Some(name) = &query.name {
        let Some(set) = control.set(name) else {
            return Err(ApiError::bad_request(format!("there is no table <{name}>")));
        };
        list.retain(|line| line.name == *name);
        addresses.extend(set.v4.iter().map(|prefix| Network::V4(*prefix).to_string()));
        addresses.extend(set.v6.iter().map(|prefix| Network::V6(*prefix).to_string()));
    }
    let line = |line: tidemill_nf::filter::SetLine| filter::Set {
        name: line.name,
        ipv4: line.v4 as u64,
        ipv6: line.v6 as u64,
        files: line.files,
        is_const: line.is_const,
    };
    Ok(filter::Sets { sets: list.into_iter().map(line).collect(), addresses })
}

fn change(role: &Filter, change: &filter::SetChange, more: bool) -> Result<Done, ApiError> {
    let words = change.addresses.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty());
    let networks: Result<Vec<Network>, String> = words.map(read_network).collect();
    let networks = networks.map_err(ApiError::bad_request)?;
    if networks.is_empty() {
        return Err(ApiError::bad_request("addresses: give an address or a prefix"));
    }
    let name = &change.name;
    let once = || {
        let mut control = lock(&role.control);
        let changed = match more {
            true => control.add_to_set(name, &networks),
            false => control.delete_from_set(name, &networks),
        };
        changed.map_err(|error| wrong(&error))
    };
    let changed = match role.loading.try_lock() {
        Err(TryLockError::WouldBlock) => {
            // It counts at once; and again for the files that are being read meanwhile, which may be of before.
            let changed = once()?;
            let _one = lock(&role.loading);
            once()?;
            changed
        }
        _one => once()?,
    };
    let said = if more { "new in" } else { "gone from" };
    Ok(Done::from(format!("{changed} of {} {said} <{name}>", networks.len())))
}

fn log(role: &Filter, router: &Router) -> filter::Log {
    router.with_control(|router| {
        let interfaces = &router.settings().interfaces;
        let control = lock(&role.control);
        let line = |line: &LogLine| {
            let end = |address: IpAddr, port: u16| match (line.protocol, address) {
                (6 | 17, IpAddr::V4(address)) => format!("{address}:{port}"),
                (6 | 17, IpAddr::V6(address)) => format!("[{address}]:{port}"),
                _ => address.to_string(),
            };
            filter::Logged {
                time_s: line.ms as f64 / 1e3,
                action: match line.action {
                    Action::Pass => "pass",
                    Action::Drop => "block",
                    Action::Tell => "reject",
                }
                .into(),
                direction: if line.direction == Direction::In { "in" } else { "out" }.into(),
                interface: interfaces
                    .get(line.interface)
                    .map_or_else(|| line.interface.to_string(), |one| one.name.clone()),
                rule: line.rule,
                version: line.version,
                protocol: protocol_name(line.protocol),
                from: end(line.source, line.ports.0),
                to: end(line.destination, line.ports.1),
                bytes: line.bytes,
            }
        };
        filter::Log { lines: control.log_lines().map(line).collect() }
    })
}
