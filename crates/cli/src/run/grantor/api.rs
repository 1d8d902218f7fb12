//! The verbs that only a Grantor has.

use super::Grantor;
use crate::run::service::{lock, now_ns};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use tidemill_control::schema::Done;
use tidemill_control::schema::grantor::{self, path};
use tidemill_control::{ApiError, Registry, Request};
use tidemill_grantor::{Counter, Decision, Record};
use tidemill_wire::flow::Addresses;

/// Questions in an answer, if nobody says how many.
const PAGE: u32 = 100;

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
    let control = lock(&grantor.control);
    let counts = control.counts();
    let tables = control.policy().library().list();
    grantor::Policy {
        name: control.policy().name().to_owned(),
        version: control.version(now_ns()),
        decisions: control.section().decisions.name().into(),
        tables: tables
            .into_iter()
            .map(|(file, table)| grantor::Table { file, prefixes: table.prefixes() as u64 })
            .collect(),
        gatekeepers: control
            .gatekeepers()
            .map(|(address, ours)| grantor::Gatekeeper {
                address: address.to_string(),
                ours: ours.to_string(),
            })
            .collect(),
        ended: control.ended() as u32,
        asked: counts.asked,
        merged: counts.merged,
        failed: counts.failures(),
    }
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
        // Milliseconds are enough.
        ago_s: (now_ns.saturating_sub(record.now_ns) / 1_000_000) as f64 / 1e3,
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
    let (version, told) =
        lock(&grantor.control).revoke(to, now_ns()).map_err(|error| ApiError::conflict(error.to_string()))?;
    let whom = match told {
        0 => "no Gatekeeper of this family has been heard from: nobody is told".to_owned(),
        1 => "1 Gatekeeper is told".to_owned(),
        told => format!("{told} Gatekeepers are told"),
    };
    Ok(Done { done: vec![format!("what was decided before version {version} counts no more: {whom}")] })
}
