//! The verbs that only a NAT has.

use super::Nat;
use crate::run::service::{lock, now_ns};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tidemill_control::schema::nat::{self, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_nf::nat::{Line, Proto, Role, Wanted};

/// Sessions in one answer.
const PAGE: u32 = 10_000;
/// Sessions of one explanation.
const EXPLAINED: usize = 100;

/// Adds them.
pub(super) fn register(role: &Arc<Nat>, registry: &mut Registry) {
    let to = role.clone();
    registry.get(
        path::SESSIONS,
        "Who talks to whom, and what that looks like outside",
        move |r: &Request| sessions(&to, &r.query()?),
    );
    registry.takes::<nat::SessionsQuery>();
    let to = role.clone();
    registry.get(path::EXPLAIN, "What an address or an endpoint is to the NAT", move |r: &Request| {
        explain(&to, &r.query()?)
    });
    registry.takes::<nat::ExplainQuery>();
    let to = role.clone();
    registry.get(path::COUNTERS, "All that the NAT counts", move |_: &Request| {
        let counters = to.figures().into_iter().map(|(name, count, _)| (name.to_owned(), count)).collect();
        Ok(nat::Counters { counters })
    });
}

fn line(line: &Line) -> nat::Session {
    let remote = match line.proto {
        Proto::Icmp => line.remote.address.to_string(),
        Proto::Tcp | Proto::Udp => line.remote.to_string(),
    };
    nat::Session {
        protocol: line.proto.name().into(),
        inside: line.inside.to_string(),
        outside: line.outside.to_string(),
        remote,
        state: line.tcp.map(str::to_owned),
        expires_s: line.left_ms as f64 / 1e3,
        from_outside: line.from_outside,
        packets_out: line.packets_out.into(),
        packets_in: line.packets_in.into(),
        worker: line.worker as u32,
    }
}

fn sessions(role: &Nat, query: &nat::SessionsQuery) -> Result<nat::Sessions, ApiError> {
    let cursor = query
        .after
        .as_deref()
        .map(|text| text.parse().map_err(|_| ApiError::bad_request("after: give what the last page said")));
    let address = query
        .address
        .as_deref()
        .map(|text| text.parse().map_err(|_| ApiError::bad_request(format!("{text:?} is no address"))));
    let proto = match query.protocol.as_deref() {
        None => None,
        Some(name) => Some(
            Proto::ALL
                .into_iter()
                .find(|proto| proto.name() == name)
                .ok_or_else(|| ApiError::bad_request(format!("protocol {name:?}: give tcp, udp or icmp")))?,
        ),
    };
    let wanted = Wanted {
        address: address.transpose()?,
        port: None,
        proto,
        cursor: cursor.transpose()?,
        limit: query.limit.unwrap_or(PAGE).clamp(1, PAGE) as usize,
    };
    let (lines, next) = lock(&role.control).sessions(&wanted, now_ns() / 1_000_000);
    Ok(nat::Sessions { sessions: lines.iter().map(line).collect(), next: next.map(|next| next.to_string()) })
}

fn explain(role: &Nat, query: &nat::ExplainQuery) -> Result<nat::Explained, ApiError> {
    let text = &query.endpoint;
    let (address, port) = match (text.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
        (Ok(address), _) => (address, None),
        (_, Ok(socket)) => (socket.ip(), Some(socket.port())),
        _ => return Err(ApiError::bad_request(format!("{text:?}: give an address, or one with a port"))),
    };
    let control = lock(&role.control);
    let configured = control.roles(address, port).iter().map(|role| told(address, role)).collect();
    let (mut lines, mut more) = (Vec::new(), false);
    let mut wanted = Wanted { address: Some(address), port, proto: None, cursor: None, limit: EXPLAINED + 1 };
    loop {
        let (page, next) = control.sessions(&wanted, now_ns() / 1_000_000);
        lines.extend(page);
        more |= lines.len() > EXPLAINED;
        wanted.cursor = next;
        if more || next.is_none() {
            break;
        }
    }
    lines.truncate(EXPLAINED);
    Ok(nat::Explained { configured, sessions: lines.iter().map(line).collect(), more })
}

fn told(address: IpAddr, role: &Role) -> String {
    match role {
        Role::Pool { whose } => format!("{address} is in the pool, and {whose}"),
        Role::Whole(other) => format!("{address} is {other} on the other side, with all ports (static)"),
        Role::Static(proto, other) => format!("{other} on the other side, {} (static)", proto.name()),
        Role::Ports(outside, first, last) => {
            format!("{address} is {outside}, ports {first} to {last} (deterministic)")
        }
        Role::Portless => {
            format!("{address} is not in nat.deterministic.inside: an inside host has no ports by it")
        }
        Role::Host(host) => format!("this port belongs to {host} (deterministic)"),
        Role::Network(first, length) => format!("this port belongs to {first}/{length} (deterministic)"),
    }
}
