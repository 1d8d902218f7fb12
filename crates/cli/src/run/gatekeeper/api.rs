//! The verbs that only a Gatekeeper has.

use super::Gatekeeper;
use crate::run::service::{lock, now_ns};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_control::schema::gate::{self, path};
use tidemill_control::schema::{self, Done};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_gatekeeper::config::{Action, PolicyConfig};
use tidemill_gatekeeper::{By, Decision, FlowLine, PolicyLine, Shown, TOP_WINDOW_NS, Verdict, Wanted};
use tidemill_ip::queue::ClassStats;
use tidemill_wire::flow::Addresses;

/// Flows in one answer, and lines of the most.
const PAGE: u32 = 10_000;
/// Milliseconds between two renewals where an operator does not say.
const STEP_MS: u32 = 5000;

/// Adds them.
pub(super) fn register(gatekeeper: &Arc<Gatekeeper>, registry: &mut Registry) {
    let to = gatekeeper.clone();
    registry.get(schema::path::OFFLOAD, "What is dropped and forwarded below", move |_: &Request| {
        let counters = lock(&to.gate).counters();
        Ok(to.below.as_ref().map_or_else(schema::Offload::default, |below| below.shown(&counters)))
    });
    let to = gatekeeper.clone();
    registry.get(path::FLOWS, "What is known of flows", move |r: &Request| flows(&to, &r.query()?));
    registry.takes::<gate::FlowsQuery>();
    let to = gatekeeper.clone();
    registry.get(path::FLOW, "What is known of one flow, and its policy", move |r: &Request| {
        flow(&to, &r.query()?)
    });
    registry.takes::<gate::FlowQuery>();
    let to = gatekeeper.clone();
    registry.post(path::FLOW, "Decide about a flow", move |r: &Request| decide(&to, &r.json()?));
    registry.takes::<gate::Decide>();
    let to = gatekeeper.clone();
    registry.get(path::FIB, "The policies", move |_: &Request| {
        Ok(gate::Fib { policies: lock(&to.gate).policies().iter().map(policy).collect() })
    });
    let to = gatekeeper.clone();
    registry.post(path::FIB, "Add or replace a policy until the next reload", move |r: &Request| {
        set_policy(&to, r.json()?)
    });
    registry.takes::<gate::Policy>();
    let to = gatekeeper.clone();
    registry.delete(path::FIB, "Take a policy away until the next reload", move |r: &Request| {
        remove_policy(&to, &r.query()?)
    });
    registry.takes::<gate::PolicyQuery>();
    let to = gatekeeper.clone();
    registry.get(path::SOLICITOR, "Requests on their way", move |_: &Request| Ok(solicitor(&to)));
    let to = gatekeeper.clone();
    registry.get(path::TOP, "Where the most is dropped", move |r: &Request| top(&to, &r.query()?));
    registry.takes::<gate::TopQuery>();
    let to = gatekeeper.clone();
    registry.get(path::COUNTERS, "All that the gate counts", move |_: &Request| {
        let counters = lock(&to.gate).counters();
        let counters = counters.iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Ok(gate::Counters { counters })
    });
}

fn address(text: &str) -> Result<IpAddr, ApiError> {
    text.parse().map_err(|_| ApiError::bad_request(format!("{text:?} is no address")))
}

fn pair(source: &str, destination: &str) -> Result<Addresses, ApiError> {
    match (address(source)?, address(destination)?) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Ok(Addresses::V4 { src: src.to_bits(), dst: dst.to_bits() }),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Ok(Addresses::V6 { src: src.to_bits(), dst: dst.to_bits() }),
        _ => Err(ApiError::bad_request("one address is IPv4, the other IPv6")),
    }
}

fn seconds(ns: u64) -> f64 {
    // Milliseconds are enough.
    (ns / 1_000_000) as f64 / 1e3
}

fn line(line: &FlowLine) -> gate::Flow {
    let mut flow = gate::Flow {
        state: line.state_name().into(),
        source: line.source.to_string(),
        destination: line.destination.to_string(),
        worker: line.worker as u32,
        ..gate::Flow::default()
    };
    match line.state {
        Shown::Request { level, allowance, idle_ns } => {
            (flow.level, flow.allowance, flow.idle_s) = (Some(level), Some(allowance), idle_ns.map(seconds));
        }
        Shown::Granted { rate_kib_s, bucket, left_ns, renewal_ns, direct, .. } => {
            (flow.rate_kib_s, flow.bucket, flow.direct) = (Some(rate_kib_s), Some(bucket), Some(direct));
            (flow.expires_s, flow.renewal_s) = (Some(seconds(left_ns)), renewal_ns.map(seconds));
        }
        Shown::Declined { left_ns } => flow.expires_s = Some(seconds(left_ns)),
        Shown::Program { number, left_ns } => {
            (flow.program, flow.expires_s) = (Some(number), Some(seconds(left_ns)));
        }
        Shown::Revoked => {}
    }
    flow
}

fn policy(line: &PolicyLine) -> gate::FibPolicy {
    gate::FibPolicy {
        prefix: line.prefix.clone(),
        action: line.action.name().into(),
        grantors: line.grantors.iter().map(IpAddr::to_string).collect(),
        ours: line.ours,
    }
}

fn flows(gatekeeper: &Gatekeeper, query: &gate::FlowsQuery) -> Result<gate::Flows, ApiError> {
    if let Some(state) = query.state.as_deref()
        && !["request", "granted", "declined", "program", "revoked"].contains(&state)
    {
        return Err(ApiError::bad_request(format!(
            "state {state:?}: give request, granted, declined, program or revoked"
        )));
    }
    let cursor = query
        .after
        .as_deref()
        .map(|text| text.parse().map_err(|_| ApiError::bad_request("after: give what the last page said")));
    let wanted = Wanted {
        state: query.state.clone(),
        address: query.address.as_deref().map(address).transpose()?,
        cursor: cursor.transpose()?,
        limit: query.limit.unwrap_or(PAGE).clamp(1, PAGE) as usize,
    };
    let page = lock(&gatekeeper.gate).flows(&wanted, now_ns());
    let next = page.next.map(|next| next.to_string());
    Ok(gate::Flows { flows: page.flows.iter().map(line).collect(), next })
}

fn flow(gatekeeper: &Gatekeeper, query: &gate::FlowQuery) -> Result<gate::FlowAnswer, ApiError> {
    let pair = pair(&query.source, &query.destination)?;
    let mut control = lock(&gatekeeper.gate);
    let policy = control.policy_of(address(&query.destination)?);
    let default = control.default_action();
    Ok(gate::FlowAnswer {
        action: policy.as_ref().map_or(default, |policy| policy.action).name().into(),
        prefix: policy.map(|policy| policy.prefix),
        grantor: control.grantor_of(&pair).map(|grantor| grantor.to_string()),
        flows: control.flow(&pair, now_ns()).iter().map(line).collect(),
    })
}

/// What is in no record cannot be changed while one is made.
fn changeable(gatekeeper: &Gatekeeper) -> Result<(), ApiError> {
    if gatekeeper.recorded {
        let what =
            "this run is recorded, and a record cannot hold changes of the gate: run it without --record";
        return Err(ApiError::conflict(what));
    }
    Ok(())
}

/// KiB/s that a flow's state has room for.
const MOST_RATE: u32 = (1 << 24) - 1;
/// How long the workers may take to read a decision.
const PATIENCE: Duration = Duration::from_secs(2);

/// What an address is that nobody sends from, and that nothing is forwarded to, whatever martians are let through.
fn no_machine(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("the unspecified address"),
        _ if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(address) if address.is_broadcast() => Some("the broadcast address"),
        _ => None,
    }
}

/// Whether a worker knows a flow as an operator has just decided about it.
fn is_decided(gatekeeper: &Gatekeeper, flow: &Addresses, verdict: &Verdict) -> bool {
    let lines = lock(&gatekeeper.gate).flow(flow, now_ns());
    lines.iter().any(|line| match (&line.state, verdict) {
        (Shown::Granted { rate_kib_s, .. }, Verdict::Granted { rate_kib_s: wanted, .. }) => {
            rate_kib_s == wanted
        }
        (Shown::Declined { .. }, Verdict::Declined { .. }) => true,
        _ => false,
    })
}

fn decide(gatekeeper: &Gatekeeper, decide: &gate::Decide) -> Result<Done, ApiError> {
    changeable(gatekeeper)?;
    let flow = pair(&decide.source, &decide.destination)?;
    let verdict = match decide.rate_kib_s {
        None => Verdict::Declined { expire_s: decide.expire_s },
        Some(rate_kib_s) => Verdict::Granted {
            rate_kib_s,
            expire_s: decide.expire_s,
            renew_ms: decide.renew_ms.unwrap_or_else(|| decide.expire_s.saturating_mul(750)),
            step_ms: decide.step_ms.unwrap_or(STEP_MS),
            direct: decide.direct,
        },
    };
    match decide.rate_kib_s {
        Some(0) => {
            return Err(ApiError::bad_request(
                "a rate of 0 KiB/s would let nothing pass: give 1 or more, or decline the flow",
            ));
        }
        Some(rate) if rate > MOST_RATE => {
            return Err(ApiError::bad_request(format!("a rate of {rate} KiB/s: give at most {MOST_RATE}")));
        }
        _ => {}
    }
    if decide.expire_s == 0 {
        return Err(ApiError::bad_request(
            "a decision for 0 seconds would be over as it begins: give 1 or more",
        ));
    }
    let destination = address(&decide.destination)?;
    for end in [address(&decide.source)?, destination] {
        if let Some(what) = no_machine(end) {
            return Err(ApiError::bad_request(format!(
                "{end} is {what}, which is nobody's: no packet of such a flow comes by the gate: give machines' addresses"
            )));
        }
    }
    {
        let mut gate = lock(&gatekeeper.gate);
        // What no Grantor decides about, nobody asks a flow about.
        let policy = gate.policy_of(destination);
        let action = policy.as_ref().map_or(gate.default_action(), |policy| policy.action);
        if action != Action::Grantor {
            let whose =
                policy.map_or("the default".into(), |policy| format!("the policy for {}", policy.prefix));
            let what = format!(
                "{whose} says {} for {destination}: flows to there are not decided about (tidemill gate fib --add gives it Grantors)",
                action.name()
            );
            return Err(ApiError::conflict(what));
        }
        if !gate.decide(&Decision { flow, verdict }) {
            return Err(ApiError::conflict("the workers have too many decisions waiting: say it again"));
        }
    }
    // They read it between two bursts, and wake for it.
    let started = Instant::now();
    while !is_decided(gatekeeper, &flow, &verdict) {
        if started.elapsed() > PATIENCE {
            let what = "no worker has taken the decision: their tables are full (gatekeeper.flows), or they are stuck";
            return Err(ApiError::conflict(what));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Done::default())
}

fn set_policy(gatekeeper: &Gatekeeper, policy: gate::Policy) -> Result<Done, ApiError> {
    changeable(gatekeeper)?;
    let action = match policy.action.as_str() {
        "grantor" => Action::Grantor,
        "route" => Action::Route,
        "drop" => Action::Drop,
        other => {
            return Err(ApiError::bad_request(format!("action {other:?}: give grantor, route or drop")));
        }
    };
    let policy = PolicyConfig { prefix: policy.prefix, action, grantors: policy.grantors };
    let mut gate = lock(&gatekeeper.gate);
    gate.set_policy(&policy).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(Done { done: gate.remarks_of(&policy) })
}

fn remove_policy(gatekeeper: &Gatekeeper, query: &gate::PolicyQuery) -> Result<Done, ApiError> {
    changeable(gatekeeper)?;
    let gone = lock(&gatekeeper.gate).remove_policy(&query.prefix);
    if !gone.map_err(|error| ApiError::bad_request(error.to_string()))? {
        return Err(ApiError::not_found(format!("there is no policy for {}", query.prefix)));
    }
    Ok(Done::default())
}

fn top(gatekeeper: &Gatekeeper, query: &gate::TopQuery) -> Result<gate::Top, ApiError> {
    let by = By::ALL.into_iter().find(|by| by.name() == query.by).ok_or_else(|| {
        ApiError::bad_request(format!("by {:?}: give flow, source or destination", query.by))
    })?;
    let now_ns = now_ns();
    let (lines, begun) = {
        let mut gate = lock(&gatekeeper.gate);
        (gate.top(by, query.limit.unwrap_or(PAGE).min(PAGE) as usize, now_ns), gate.top_has_begun())
    };
    let line = |line: &tidemill_gatekeeper::TopLine| gate::TopLine {
        source: line.source.map(|address| address.to_string()),
        destination: line.destination.map(|address| address.to_string()),
        packets: line.packets,
        low: line.low,
        high: line.high,
        window_s: seconds(line.window_ns),
        age_s: seconds(now_ns.saturating_sub(line.ended_ns)),
        workers: line.workers as u32,
    };
    Ok(gate::Top { begun, window_s: seconds(TOP_WINDOW_NS), lines: lines.iter().map(line).collect() })
}

fn solicitor(gatekeeper: &Gatekeeper) -> gate::Solicitor {
    let (levels, bits_per_s, capacity) = {
        let control = lock(&gatekeeper.gate);
        let capacity = control.section().request_queue as u64;
        (control.solicitors().sum(), control.request_bits_per_s(), capacity)
    };
    let total = levels.total();
    let seen = levels.0.iter().enumerate().filter(|(_, level)| level.arrived > 0);
    let level = |(dscp, level): (usize, &ClassStats)| gate::SolicitorLevel {
        dscp: dscp as u8,
        waiting: level.waiting,
        sent: level.sent,
        refused: level.refused,
        evicted: level.evicted,
        wait_p50_us: level.wait_ns(0.5).map(micros),
        wait_p99_us: level.wait_ns(0.99).map(micros),
        wait_max_us: (level.sent > 0).then(|| micros(level.longest_ns)),
    };
    gate::Solicitor {
        bits_per_s,
        capacity,
        waiting: total.waiting,
        sent: total.sent,
        sent_bytes: total.sent_bytes,
        refused: total.refused,
        evicted: total.evicted,
        levels: seen.map(level).collect(),
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_nobody_are_not_decided_about() {
        for (address, what) in [
            ("0.0.0.0", "the unspecified address"),
            ("::", "the unspecified address"),
            ("224.0.0.1", "a multicast address"),
            ("239.255.255.255", "a multicast address"),
            ("ff02::1", "a multicast address"),
            ("255.255.255.255", "the broadcast address"),
        ] {
            assert_eq!(no_machine(address.parse().unwrap()), Some(what), "{address}");
        }
        // Loopback and reserved ones come where `router.martians` is off.
        for address in
            ["0.0.0.1", "223.255.255.255", "240.0.0.1", "127.0.0.1", "::1", "fe80::1", "2001:db8::1"]
        {
            assert_eq!(no_machine(address.parse().unwrap()), None, "{address}");
        }
    }
}
