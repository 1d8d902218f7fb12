//! The verbs that only a mitigator has.

use super::Mitigator;
use crate::run::service::{lock, now_ns};
use std::net::IpAddr;
use std::sync::Arc;
use tidemill_amp::{IpPrefix, Mode, Rule, Status, TopBy, Tuple, Wanted};
use tidemill_control::schema::amp::{self, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_wire::flow::Addresses;
use tidemill_wire::{FlowKey, Protocol};

/// Rules in one answer, and lines of the most.
const PAGE: u32 = 10_000;

/// Adds them.
pub(super) fn register(mitigator: &Arc<Mitigator>, registry: &mut Registry) {
    let to = mitigator.clone();
    registry.get(path::RULES, "What is known of flows", move |r: &Request| rules(&to, &r.query()?));
    registry.takes::<amp::RulesQuery>();
    let to = mitigator.clone();
    registry.get(path::TOP, "Where the most is kept away", move |r: &Request| top(&to, &r.query()?));
    registry.takes::<amp::TopQuery>();
    let to = mitigator.clone();
    registry.get(path::EXPLAIN, "What would happen to a packet, and why", move |r: &Request| {
        explain(&to, &r.query()?)
    });
    registry.takes::<amp::ExplainQuery>();
    let to = mitigator.clone();
    registry.get(path::COUNTERS, "All that the mitigator counts", move |_: &Request| {
        let counters = lock(&to.control).counters();
        let counters = counters.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Ok(amp::Counters { counters })
    });
}

fn shown(rule: &Rule, mode: Mode) -> amp::Rule {
    let (destination, source_port, destination_port) = parts(&rule.tuple, mode);
    amp::Rule {
        status: rule.status.text().into(),
        source: rule.tuple.source().to_string(),
        destination,
        source_port,
        destination_port,
        since_s: rule.since_s,
        expires_s: rule.left_s,
        packets: rule.hits.packets,
        bytes: rule.hits.bytes,
        worker: rule.worker as u32,
    }
}

/// What the mode leaves of the victim's address and of both ports.
fn parts(tuple: &Tuple, mode: Mode) -> (Option<String>, Option<u16>, Option<u16>) {
    let parts = mode as u8;
    (
        (parts >= 2).then(|| tuple.destination().to_string()),
        (parts >= 3).then_some(tuple.source_port),
        (parts >= 4).then_some(tuple.destination_port),
    )
}

fn rules(mitigator: &Mitigator, query: &amp::RulesQuery) -> Result<amp::Rules, ApiError> {
    let status = match query.status.as_deref() {
        None => None,
        Some("suspected") => Some(Status::Suspected),
        Some("solicited") => Some(Status::Solicited),
        Some("filtered") => Some(Status::Filtered),
        Some(other) => {
            let what = format!("status {other:?}: give suspected, solicited or filtered");
            return Err(ApiError::bad_request(what));
        }
    };
    let address = query.address.as_deref().map(|text| {
        IpPrefix::parse(text).map_err(|error| ApiError::bad_request(format!("address {text:?}: {error}")))
    });
    let cursor = query
        .after
        .as_deref()
        .map(|text| text.parse().map_err(|_| ApiError::bad_request("after: give what the last page said")));
    let wanted = Wanted {
        status,
        address: address.transpose()?,
        cursor: cursor.transpose()?,
        limit: query.limit.unwrap_or(PAGE).min(PAGE) as usize,
    };
    // Read beside the control side: a walk over millions of flows holds nobody up.
    let (mode, look) = {
        let control = lock(&mitigator.control);
        (control.settings().mode, control.look())
    };
    let page = look.rules(&wanted, now_ns());
    Ok(amp::Rules {
        rules: page.rules.iter().map(|rule| shown(rule, mode)).collect(),
        next: page.next.map(|next| next.to_string()),
    })
}

fn top(mitigator: &Mitigator, query: &amp::TopQuery) -> Result<amp::Top, ApiError> {
    let by = TopBy::parse(&query.by).ok_or_else(|| {
        ApiError::bad_request(format!("by {:?}: give rule, amplifier, victim or protocol", query.by))
    })?;
    let lines = query.limit.unwrap_or(PAGE).min(PAGE) as usize;
    let (look, dry_run) = {
        let control = lock(&mitigator.control);
        (control.look(), control.settings().dry_run)
    };
    let lines = look.top(by, lines, now_ns());
    let line = |line: &tidemill_amp::TopLine| amp::TopLine {
        what: line.key.to_string(),
        packets: line.hits.packets,
        bytes: line.hits.bytes,
        rules: line.rules,
    };
    Ok(amp::Top { lines: lines.iter().map(line).collect(), dry_run })
}

fn explain(mitigator: &Mitigator, query: &amp::ExplainQuery) -> Result<amp::Explained, ApiError> {
    let address = |text: &str| {
        text.parse::<IpAddr>().map_err(|_| ApiError::bad_request(format!("{text:?} is no address")))
    };
    let addresses = match (address(&query.source)?, address(&query.destination)?) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Addresses::V4 { src: src.to_bits(), dst: dst.to_bits() },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Addresses::V6 { src: src.to_bits(), dst: dst.to_bits() },
        _ => return Err(ApiError::bad_request("one address is IPv4, the other IPv6")),
    };
    let ports = Some((query.source_port, query.destination_port));
    let flow = FlowKey { addresses, protocol: Protocol::UDP, ports };
    let mut control = lock(&mitigator.control);
    let mode = control.settings().mode;
    let explained = control.explain(&flow, now_ns());
    let (destination, source_port, destination_port) =
        explained.rule.as_ref().map_or((None, None, None), |tuple| parts(tuple, mode));
    let verdict = if explained.drops { "drop" } else { "pass" };
    Ok(amp::Explained {
        verdict: verdict.into(),
        would_drop: explained.would_drop,
        because: because(&explained.because).into(),
        why: explained.because.to_string(),
        source: explained.rule.as_ref().map(|tuple| tuple.source().to_string()),
        destination,
        source_port,
        destination_port,
        workers: explained.workers.iter().map(|worker| *worker as u32).collect(),
        filters: explained.filters.iter().map(|worker| *worker as u32).collect(),
    })
}

/// A stable word for a reason.
fn because(because: &tidemill_amp::Because) -> &'static str {
    use tidemill_amp::Because;
    match because {
        Because::NotUdp => "not-udp",
        Because::NotAProtocol { .. } => "not-a-protocol",
        Because::Allowed { .. } => "allowed",
        Because::Unknown => "unknown",
        Because::Suspected { .. } => "suspected",
        Because::Solicited { .. } => "solicited",
        Because::Filtered { .. } => "filtered",
    }
}
