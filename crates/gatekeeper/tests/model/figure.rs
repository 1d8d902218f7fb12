//! The model.

use tidemill_gatekeeper::Verdict;
use tidemill_gatekeeper::flow::{Act, Shown};

const TICK: i128 = 16_777_216;
/// Units of a full bucket.
pub(crate) const FULL: i128 = 1_024_000_000_000;

/// The first whole tick at this time or after it.
fn up(ns: i128) -> i128 {
    (ns + TICK - 1) / TICK * TICK
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Last {
    pub(crate) at_ns: i128,
    pub(crate) level: u32,
    /// Packets that this level is still good for.
    pub(crate) good_for: u32,
}

/// A flow, in the model.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Model {
    Request {
        last: Option<Last>,
    },
    Granted {
        rate_kib_s: i128,
        /// What the bucket held, in units, and when that was.
        held: i128,
        held_at_ns: i128,
        expires_at_ns: i128,
        renews_at_ns: Option<i128>,
        step_ns: i128,
        direct: bool,
    },
    Declined {
        expires_at_ns: i128,
    },
}

/// How many times two picoseconds can be doubled until there would be more than these.
fn log2_of_ps(ns: i128) -> u32 {
    let mut level = 0;
    while 1_i128 << (level + 1) <= ns * 1000 {
        level += 1;
    }
    level.min(63)
}

impl Model {
    pub(crate) const NEW: Model = Model::Request { last: None };

    /// As it is at this time: what has expired is new, and the bucket has what has run into it.
    pub(crate) fn at(self, now_ns: i128) -> Model {
        match self {
            Model::Granted { expires_at_ns, .. } | Model::Declined { expires_at_ns }
                if now_ns >= expires_at_ns =>
            {
                Model::NEW
            }
            Model::Granted { rate_kib_s, held, held_at_ns, expires_at_ns, renews_at_ns, step_ns, direct } => {
                let held = FULL.min(held + (now_ns - held_at_ns) * 1024);
                let held_at_ns = now_ns;
                Model::Granted { rate_kib_s, held, held_at_ns, expires_at_ns, renews_at_ns, step_ns, direct }
            }
            other => other,
        }
    }

    /// Units that a packet takes.
    pub(crate) fn cost(rate_kib_s: i128, bytes: u32) -> i128 {
        (i128::from(bytes) * 1_000_000_000 + rate_kib_s - 1) / rate_kib_s
    }

    pub(crate) fn packet(&mut self, now_ns: i128, bytes: u32) -> Act {
        *self = self.at(now_ns);
        match self {
            Model::Request { last: last @ None } => {
                *last = Some(Last { at_ns: now_ns, level: 38, good_for: 7 });
                Act::Request { dscp: 41 }
            }
            Model::Request { last: Some(last) } => {
                let own = log2_of_ps(now_ns - last.at_ns);
                last.at_ns = now_ns;
                if own < last.level && last.good_for > 0 {
                    last.good_for -= 1;
                } else {
                    last.level = own;
                    last.good_for = 7;
                }
                Act::Request { dscp: if last.level > 60 { 63 } else { last.level as u8 + 3 } }
            }
            Model::Granted { rate_kib_s, held, expires_at_ns, renews_at_ns, step_ns, direct, .. } => {
                if *rate_kib_s == 0 || Model::cost(*rate_kib_s, bytes) > *held {
                    return Act::OverRate;
                }
                *held -= Model::cost(*rate_kib_s, bytes);
                match *renews_at_ns {
                    Some(due) if now_ns >= due => {
                        let next = up(now_ns) + *step_ns;
                        *renews_at_ns = (next < *expires_at_ns).then_some(next);
                        Act::Granted { dscp: 2, direct: false }
                    }
                    _ => Act::Granted { dscp: 1, direct: *direct },
                }
            }
            Model::Declined { .. } => Act::Declined,
        }
    }

    pub(crate) fn decide(&mut self, now_ns: i128, verdict: &Verdict) {
        let expiry = |expire_s: u32| {
            let holds_ns = i128::from(expire_s) * 1_000_000_000;
            up(now_ns + holds_ns.min(((1 << 28) - 1) * TICK))
        };
        *self = match (self.at(now_ns), *verdict) {
            (_, Verdict::Declined { expire_s }) => Model::Declined { expires_at_ns: expiry(expire_s) },
            (before, Verdict::Granted { rate_kib_s, expire_s, renew_ms, step_ms, direct }) => {
                let expires_at_ns = expiry(expire_s);
                let renews_at_ns = up(now_ns + i128::from(renew_ms) * 1_000_000);
                Model::Granted {
                    rate_kib_s: i128::from(rate_kib_s.min((1 << 24) - 1)),
                    held: if let Model::Granted { held, .. } = before { held } else { FULL },
                    held_at_ns: now_ns,
                    expires_at_ns,
                    renews_at_ns: (renews_at_ns < expires_at_ns).then_some(renews_at_ns),
                    step_ns: up(i128::from(step_ms) * 1_000_000).min(65_535 * TICK),
                    direct,
                }
            }
            (_, Verdict::Bpf { .. }) => *self,
        };
    }

    /// From when on the flow may be reclaimed, as it is now.
    pub(crate) fn reclaimable_from(&self, idle_ns: i128) -> i128 {
        match *self {
            Model::Request { last: None } => 0,
            Model::Request { last: Some(last) } => last.at_ns + idle_ns,
            Model::Granted { expires_at_ns, .. } | Model::Declined { expires_at_ns } => {
                expires_at_ns + idle_ns
            }
        }
    }

    pub(crate) fn show(&self, now_ns: i128) -> Shown {
        match self.at(now_ns) {
            Model::Request { last: None } => Shown::Request { level: 38, allowance: 8, idle_ns: None },
            Model::Request { last: Some(Last { at_ns, level, good_for }) } => Shown::Request {
                level: level as u8,
                allowance: good_for as u8,
                idle_ns: Some((now_ns - at_ns) as u64),
            },
            Model::Granted { rate_kib_s, held, expires_at_ns, renews_at_ns, step_ns, direct, .. } => {
                Shown::Granted {
                    rate_kib_s: rate_kib_s as u32,
                    bucket: (held * rate_kib_s / 1_000_000_000) as u64,
                    left_ns: (expires_at_ns - now_ns) as u64,
                    renewal_ns: renews_at_ns.map(|at_ns| (at_ns - now_ns).max(0) as u64),
                    step_ns: step_ns as u64,
                    direct,
                }
            }
            Model::Declined { expires_at_ns } => Shown::Declined { left_ns: (expires_at_ns - now_ns) as u64 },
        }
    }
}
