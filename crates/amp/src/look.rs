//! What operators read: rules, and where the most is kept away. A [`Look`] is taken from the control side and walks the tables without it: a walk over millions
//! of rules holds up neither reloads nor the offload.
//!
//! A flow that several workers know is one line: of the worker that knows the most of it (filtered before solicited before suspected), of the first of these.

use crate::allow::IpPrefix;
use crate::control::{Lifetimes, seconds};
use crate::flows::{Known, State, Status};
use crate::mitigator::Readers;
use crate::offload::{Account, Hits};
use crate::show::{Rule, RulesPage, TopBy, TopKey, TopLine, Wanted};
use crate::tuple::{Tuple, TupleKey};
use std::collections::HashMap;
use std::net::IpAddr;
use tidemill_flow::flowtable::{Flow, FlowReader};
use tidemill_flow::key::Key;

/// Rules on a page where the caller does not say.
const PAGE: usize = 1000;

/// The workers' tables, and what the offload has kept away. See the [module](self).
pub struct Look {
    pub(crate) workers: Vec<Readers>,
    pub(crate) suspect_s: u32,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) account: Option<Box<dyn Account>>,
}

impl Look {
    /// A page of what is known. Nothing is missing or twice but what comes, goes or is moved by an insertion meanwhile.
    /// One tuple comes once, whichever workers have it.
    pub fn rules(&self, wanted: &Wanted, now_ns: u64) -> RulesPage {
        let limit = if wanted.limit == 0 { PAGE } else { wanted.limit };
        let mut place = Place::from(wanted.cursor.unwrap_or_default());
        let now_s = seconds(now_ns);
        let (suspect_s, lifetimes) = (self.suspect_s, &self.lifetimes);
        let holds = |known: &Known| known.holds(now_s, suspect_s);
        let (mut all4, mut all6): (Vec<_>, Vec<_>) = self.workers.iter().cloned().unzip();
        let (mut rules, mut next) = (Vec::new(), None);
        while let Some((v4, v6)) = self.workers.get(place.worker) {
            let mut seen = 0;
            let mut visit = |tuple: Tuple, known: Option<Known>| {
                let Some(known) = known else { return };
                let shows = wanted.status.is_none_or(|status| status == known.status)
                    && wanted.address.is_none_or(|prefix| about(&tuple, &prefix));
                if !shows {
                    return;
                }
                seen += 1;
                if seen <= place.skip {
                    return;
                }
                if rules.len() < limit {
                    rules.push(rule(place.worker, tuple, known, now_s, suspect_s, lifetimes));
                } else if next.is_none() {
                    next = Some(Place { skip: seen - 1, ..place });
                }
            };
            let cursor = if place.v6 {
                v6.scan(place.bucket, 1, |key, flow| {
                    visit(key.tuple(), merged(place.worker, key, known(flow), &mut all6, holds));
                })
            } else {
                v4.scan(place.bucket, 1, |key, flow| {
                    visit(key.tuple(), merged(place.worker, key, known(flow), &mut all4, holds));
                })
            };
            if next.is_some() {
                break;
            }
            place = place.after(cursor);
        }
        if let Some(account) = &self.account {
            for rule in rules.iter_mut().filter(|rule| rule.status == Status::Filtered) {
                rule.hits += account.hits(&rule.tuple);
            }
        }
        RulesPage { rules, next: next.map(Place::into) }
    }

    /// What was kept away by the rules that hold now, the most first: at most `n` lines.
    pub fn top(&self, by: TopBy, n: usize, now_ns: u64) -> Vec<TopLine> {
        let now_s = seconds(now_ns);
        let mut lines: HashMap<TopKey, (Hits, u64)> = HashMap::new();
        let mut add = |tuple: &Tuple, hits: Hits, rules: u64| {
            let (sum, count) = lines.entry(top_key(by, tuple)).or_default();
            *sum += hits;
            *count += rules;
        };
        let holds = |known: &Known| known.status == Status::Filtered && known.holds(now_s, 0);
        let (mut all4, mut all6): (Vec<_>, Vec<_>) = self.workers.iter().cloned().unzip();
        for (worker, (v4, v6)) in self.workers.iter().enumerate() {
            v4.scan(0, usize::MAX, |key, flow| {
                let rule = merged(worker, key, known(flow), &mut all4, holds);
                rule.into_iter().for_each(|rule| add(&key.tuple(), rule.hits, 1));
            });
            v6.scan(0, usize::MAX, |key, flow| {
                let rule = merged(worker, key, known(flow), &mut all6, holds);
                rule.into_iter().for_each(|rule| add(&key.tuple(), rule.hits, 1));
            });
        }
        if let Some(account) = &self.account {
            account.collect(&mut |tuple, hits| add(&tuple, hits, 0));
        }
        let line = |(key, (hits, rules)): (TopKey, (Hits, u64))| TopLine { key, hits, rules };
        let mut lines: Vec<TopLine> = lines.into_iter().map(line).collect();
        let order =
            |line: &TopLine| (std::cmp::Reverse((line.hits.bytes, line.hits.packets, line.rules)), line.key);
        if n < lines.len() && n > 0 {
            lines.select_nth_unstable_by_key(n - 1, order);
        }
        lines.truncate(n);
        lines.sort_by_key(order);
        lines
    }
}

pub(crate) fn known(flow: Flow<State>) -> Known {
    Known::new(flow.stamp, flow.state)
}

/// What all workers together know of a flow that worker `at` knows as `own`: none if it does not hold, or if another worker stands for it.
fn merged<const W: usize>(
    at: usize,
    key: &Key<W>,
    own: Known,
    all: &mut [FlowReader<W, State>],
    holds: impl Fn(&Known) -> bool,
) -> Option<Known> {
    if !holds(&own) {
        return None;
    }
    let mut sum = own;
    for (worker, table) in all.iter_mut().enumerate().filter(|(worker, _)| *worker != at) {
        let Some(other) = table.get(key).map(known).filter(&holds) else { continue };
        if other.status > own.status || other.status == own.status && worker < at {
            return None;
        }
        sum.hits += other.hits;
        if other.status == own.status && other.until_s > sum.until_s {
            (sum.until_s, sum.lifetime) = (other.until_s, other.lifetime);
        }
    }
    Some(sum)
}

fn about(tuple: &Tuple, prefix: &IpPrefix) -> bool {
    prefix.contains(tuple.source()) || prefix.contains(tuple.destination())
}

fn rule(
    worker: usize,
    tuple: Tuple,
    known: Known,
    now_s: u32,
    suspect_s: u32,
    lifetimes: &Lifetimes,
) -> Rule {
    let (until_s, since_s) = match known.status {
        Status::Suspected => (known.until_s.saturating_add(suspect_s), None),
        Status::Solicited => (known.until_s, None),
        Status::Filtered => (known.until_s, lifetimes.since(&known, now_s)),
    };
    let left_s = until_s.saturating_sub(now_s);
    Rule { worker, tuple, status: known.status, left_s, since_s, hits: known.hits }
}

fn top_key(by: TopBy, tuple: &Tuple) -> TopKey {
    let given = |address: IpAddr| (!address.is_unspecified()).then_some(address);
    match by {
        TopBy::Rule => TopKey::Rule(*tuple),
        TopBy::Amplifier => TopKey::Address(given(tuple.source())),
        TopBy::Victim => TopKey::Address(given(tuple.destination())),
        TopBy::Protocol => TopKey::Port(Some(tuple.source_port).filter(|&port| port != 0)),
    }
}

/// Where a page ends: worker, family, bucket, and flows of that bucket that were shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    worker: usize,
    v6: bool,
    bucket: usize,
    skip: usize,
}

impl Place {
    /// The next bucket, given what a scan says.
    fn after(self, cursor: usize) -> Self {
        let Place { worker, v6, .. } = self;
        match (cursor, v6) {
            (0, false) => Place { worker, v6: true, bucket: 0, skip: 0 },
            (0, true) => Place { worker: worker + 1, v6: false, bucket: 0, skip: 0 },
            (bucket, v6) => Place { worker, v6, bucket, skip: 0 },
        }
    }
}

/// 5 bits of flows, 42 of buckets, 1 of family, the rest of workers.
impl From<u64> for Place {
    fn from(cursor: u64) -> Self {
        Place {
            skip: (cursor & 31) as usize,
            bucket: (cursor >> 5) as usize & ((1 << 42) - 1),
            v6: cursor >> 47 & 1 != 0,
            worker: (cursor >> 48) as usize,
        }
    }
}

impl From<Place> for u64 {
    fn from(place: Place) -> u64 {
        (place.worker as u64) << 48
            | u64::from(place.v6) << 47
            | (place.bucket as u64) << 5
            | place.skip as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_go_round() {
        for cursor in [0, 31, 1 << 5, (1 << 47) - 1, 1 << 47, 0x1234_5678_9abc_def0] {
            assert_eq!(u64::from(Place::from(cursor)), cursor);
        }
    }
}
