//! The verbs that only a Grantor has.

use super::Grantor;
use crate::run::service::{lock, now_ns};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tidemill_control::schema::Done;
use tidemill_control::schema::grantor::{self, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_grantor::{Counter, Decision, Record, Revoked};
use tidemill_wire::flow::Addresses;

/// Questions in an answer, if nobody says how many.
const PAGE: u32 = 100;
/// Gatekeepers that may not hear a revocation and are named.
const NAMED: usize = 16;

/// Adds them.
pub(super) fn register(grantor: &Arc<Grantor>, registry: &mut Registry) {
    let to = grantor.clone();
    registry
        .get(path::POLICY, "The policy that decides, and who asks it", move |_: &Request| Ok(policy(&to)));
    let to = grantor.clone();
    registry.get(path::QUESTIONS, "The last questions and their answers", move |r: &Request| {
        Ok(questions(&to, &r.query()?))
    });
    registry.takes::<grantor::QuestionsQuery>();
    let to = grantor.clone();
    registry.get(path::COUNTERS, "All that the Grantor counts", move |_: &Request| {
        Ok(grantor::Counters { counters: lock(&to.control).numbers().into_iter().collect() })
    });
    let to = grantor.clone();
    registry
        .post(path::REVOKE, "Take back what was decided so far", move |r: &Request| revoke(&to, &r.json()?));
    registry.takes::<grantor::Revoke>();
}

fn policy(grantor: &Grantor) -> grantor::Policy {
    let (control, now_ns) = (lock(&grantor.control), now_ns());
    let counts = control.counts();
    let tables = control.policy().library().list();
    grantor::Policy {
        name: control.policy().name().to_owned(),
        version: control.version(now_ns),
        decisions: control.section().decisions.name().into(),
        tables: tables
            .into_iter()
            .map(|(file, table)| grantor::Table { file, prefixes: table.prefixes() as u64 })
            .collect(),
        gatekeepers: control
            .gatekeepers()
            .map(|(address, ours, last_ns)| grantor::Gatekeeper {
                address: address.to_string(),
                ours: ours.to_string(),
                heard_s: last_ns.map(|last_ns| seconds(last_ns, now_ns)),
            })
            .collect(),
        ended: control.ended() as u32,
        asked: counts.asked,
        merged: counts.merged,
        failed: counts.failures(),
    }
}

/// From one time to another; milliseconds are enough.
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns.saturating_sub(from_ns) / 1_000_000) as f64 / 1e3
}

fn question(record: &Record, now_ns: u64) -> grantor::Question {
    let (source, destination) = match record.question.flow {
        Addresses::V4 { src, dst } => (IpAddr::V4(Ipv4Addr::from(src)), IpAddr::V4(Ipv4Addr::from(dst))),
        Addresses::V6 { src, dst } => (IpAddr::V6(Ipv6Addr::from(src)), IpAddr::V6(Ipv6Addr::from(dst))),
    };
    let (decision, rate_kib_s, expire_s) = match record.answer.decision {
        Decision::None => ("none", None, None),
        Decision::Declined { expire_s } => ("declined", None, Some(expire_s)),
        Decision::Granted { rate_kib_s, expire_s, .. } => ("granted", Some(rate_kib_s), Some(expire_s)),
        Decision::Program { expire_s, .. } => ("program", None, Some(expire_s)),
    };
    grantor::Question {
        ago_s: seconds(record.now_ns, now_ns),
        gatekeeper: record.gatekeeper.to_string(),
        source: source.to_string(),
        destination: destination.to_string(),
        dscp: record.question.dscp,
        protocol: record.question.protocol,
        source_port: record.question.source_port,
        destination_port: record.question.destination_port,
        decision: decision.into(),
        rate_kib_s,
        expire_s,
        forward: record.answer.forward,
        failure: record.answer.failure.map(|failure| failure.name().into()),
    }
}

fn questions(grantor: &Grantor, query: &grantor::QuestionsQuery) -> grantor::Questions {
    let mut control = lock(&grantor.control);
    let waiting = control.counters().get(Counter::Waiting);
    let (limit, now_ns) = (query.limit.unwrap_or(PAGE) as usize, now_ns());
    let questions = control.questions().take(limit).map(|record| question(record, now_ns)).collect();
    grantor::Questions { waiting, questions }
}

fn revoke(grantor: &Grantor, revoke: &grantor::Revoke) -> Result<Done, ApiError> {
    let to = revoke.prefix.as_deref().map(tidemill_grantor::section::range).transpose();
    let to = to.map_err(ApiError::bad_request)?;
    let revoked = lock(&grantor.control).revoke(to, now_ns());
    revoked.map(|revoked| done(&revoked)).map_err(|error| ApiError::conflict(error.to_string()))
}

/// What has come of a revocation, in words.
fn done(revoked: &Revoked) -> Done {
    let Revoked { version, told, unheard } = revoked;
    let whom = match (told.len(), unheard.len()) {
        (0, 0) => "no Gatekeeper of this family has asked or probed: nobody is told".to_owned(),
        (0, _) => "no Gatekeeper of this family is heard now".to_owned(),
        (1, _) => "1 Gatekeeper is told".to_owned(),
        (told, _) => format!("{told} Gatekeepers are told"),
    };
    let mut done = vec![format!("what was decided before version {version} counts no more: {whom}")];
    if !unheard.is_empty() {
        let mut names: Vec<String> = unheard.iter().take(NAMED).map(IpAddr::to_string).collect();
        if let Some(more) = unheard.len().checked_sub(NAMED).filter(|more| *more > 0) {
            names.push(format!("{more} more"));
        }
        done.push(format!(
            "{} not heard now ({}): no probe of theirs counts; it is sent to them all the same, but what was decided there may hold until it expires",
            unheard.len(),
            names.join(", ")
        ));
    }
    Done { done }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who may not hear it is not among those who are told.
    #[test]
    fn a_revocation_says_how_many_are_told_and_who_is_not_heard() {
        let gate = |last: u8| IpAddr::from([10, 0, 0, last]);
        let gates = |from: u8, count: u8| (from..from + count).map(gate).collect();
        for (told, unheard, wanted) in [
            (0, 0, &["no Gatekeeper of this family has asked or probed: nobody is told"][..]),
            (1, 0, &["1 Gatekeeper is told"]),
            (3, 0, &["3 Gatekeepers are told"]),
            (0, 1, &["no Gatekeeper of this family is heard now", "\n1 not heard now (10.0.0.100): "]),
            (2, 2, &["2 Gatekeepers are told", "\n2 not heard now (10.0.0.100, 10.0.0.101): "]),
            (2, 20, &["\n20 not heard now (10.0.0.100, ", " 10.0.0.115, 4 more): "]),
        ] {
            let done = done(&Revoked { version: 7, told: gates(1, told), unheard: gates(100, unheard) }).done;
            assert_eq!(done.len(), 1 + usize::from(unheard > 0));
            assert!(done[0].starts_with("what was decided before version 7 counts no more: "), "{done:?}");
            let said = done.join("\n");
            assert!(wanted.iter().all(|part| said.contains(part)), "{said}");
            assert!(unheard > 0 || said.ends_with(wanted[0]), "{said}");
        }
    }
}
