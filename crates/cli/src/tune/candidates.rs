//! The candidates on a table: all are built and asked briefly, the best few then in turn, at length.
//!
//! Every answer is stored and checksummed, and every checksum must be the oracle's. Who goes first changes from run to
//! run, so that a drift of the machine favours nobody.

use super::advice::{By, Shown};
use super::{Pace, Stop};
use crate::bench::pass::{Order, expected, on_huge_pages, timed_pass};
use crate::bench::statistics::median;
use crate::bench::updates::Plan;
use crate::progress::Progress;
use crate::tables::{every, routes};
use anyhow::{Result, anyhow};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidemill_lookup::mem::Array;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::{Pattern, keys, repeated};
use tidemill_lpm::{Algorithm, Change, Family, Fib, Oracle, Rib};

/// How many are asked at length.
const FINALISTS: usize = 6;
/// Passes of the brief look; the best counts.
const LOOKS: usize = 3;
/// Keys per call in the cases without dependence.
const BATCH: usize = 256;

/// One candidate's figures; those of the long look are empty for one that did not get there.
pub(super) struct Candidate<A: Family> {
    pub(super) algorithm: Algorithm,
    pub(super) name: String,
    pub(super) bytes: usize,
    pub(super) build_ms: f64,
    /// M lookups/s of the brief look, by case.
    pub(super) brief: Vec<(&'static str, f64)>,
    /// M lookups/s by case, run by run.
    pub(super) rates: Vec<(&'static str, Vec<f64>)>,
    /// Thousands of updates per second one by one, coalesced.
    pub(super) updates: Option<(Vec<f64>, Vec<f64>)>,
    pub(super) fib: Option<Arc<dyn Fib<A>>>,
}

impl<A: Family> Candidate<A> {
    pub(super) fn shown(&self) -> Shown {
        let rates = match self.rates.is_empty() {
            true => self.brief.clone(),
            false => self.rates.iter().map(|(case, rates)| (*case, median(rates))).collect(),
        };
        let updates = self.updates.as_ref().map(|(one, many)| (median(one), median(many)));
        Shown { name: self.name.clone(), bytes: self.bytes, rates, updates }
    }
}

/// What came of a family's table.
pub(super) struct Tried<A: Family> {
    /// The best of the long look first.
    pub(super) finalists: Vec<Candidate<A>>,
    /// The others, the best of the brief look first.
    pub(super) others: Vec<Candidate<A>>,
    /// Structures that cannot hold the table, and why.
    pub(super) refused: Vec<(Algorithm, String)>,
    /// The right checksum, by case.
    pub(super) checksums: Vec<(&'static str, String)>,
    /// The keys of `rnd`.
    pub(super) keys: Arc<Array<A>>,
}

/// Keys in order, and the checksums that their answers must have: of the first few, and of all.
struct Case<A> {
    name: &'static str,
    order: Order,
    keys: Arc<Array<A>>,
    brief: usize,
    expected: [String; 2],
}

/// Tries `named`, or everything.
pub(super) fn try_all<A: Family>(
    rib: &Rib<A>,
    named: Option<&[Algorithm]>,
    changes: &[Change<A>],
    by: By,
    pace: &Pace,
    stop: &Stop,
) -> Result<Tried<A>> {
    let pool = match named {
        Some(named) => named.to_vec(),
        None => pool::<A>(pace.quick),
    };
    let cases = cases(rib, pace)?;
    let mut tried = Tried {
        finalists: Vec::new(),
        others: Vec::new(),
        refused: Vec::new(),
        checksums: cases.iter().map(|case| (case.name, case.expected[1].clone())).collect(),
        keys: cases[0].keys.clone(),
    };
    let progress = Progress::new(format!("tune, IPv{}: a first look", A::FAMILY), pool.len() as u64);
    for algorithm in pool {
        stop.check()?;
        progress.message(algorithm.to_string());
        match brief_look(rib, algorithm, &cases) {
            Ok(candidate) => {
                tried.finalists.push(candidate);
                let brief = |candidate: &Candidate<A>| candidate.shown().score(by);
                tried.finalists.sort_by(|a, b| brief(b).total_cmp(&brief(a)));
                // Only as many are kept in memory as go on.
                let out = tried.finalists.drain(FINALISTS.min(tried.finalists.len())..);
                tried.others.extend(out.map(|candidate| Candidate { fib: None, ..candidate }));
            }
            Err(Failure::Refused(why)) => tried.refused.push((algorithm, why)),
            Err(Failure::Wrong(error)) => return Err(error),
        }
        progress.add(1);
    }
    drop(progress);
    let brief = |candidate: &Candidate<A>| candidate.shown().score(by);
    tried.others.sort_by(|a, b| brief(b).total_cmp(&brief(a)));
    long_look(&mut tried.finalists, &cases, pace, stop)?;
    updates(&mut tried.finalists, rib, changes, pace, stop)?;
    tried.finalists.sort_by(|a, b| b.shown().score(by).total_cmp(&a.shown().score(by)));
    Ok(tried)
}

/// All structures of the registry but yardsticks; and, if there is time, whatever other numbers their names can have: `dxr-d18r` stands for
/// `dxr-d12r` to `dxr-d24r`, and each of these with an extension, `dxr-d12x1r` and so on, as far as the registry knows them.
fn pool<A: Family>(quick: bool) -> Vec<Algorithm> {
    let mut pool = every::<A>();
    pool.retain(|algorithm| !algorithm.is_yardstick());
    if quick {
        return pool;
    }
    for known in pool.clone() {
        let name = known.to_string();
        let Some((stem, rest)) = name.find(|c: char| c.is_ascii_digit()).map(|at| name.split_at(at)) else {
            continue;
        };
        let suffix = &rest[rest.rfind(|c: char| c.is_ascii_digit()).map_or(0, |last| last + 1)..];
        for (d, x) in (12..=24).flat_map(|d| (0..=12).map(move |x| (d, x))) {
            let extension = if x == 0 { String::new() } else { format!("x{x}") };
            if let Ok(other) = Algorithm::parse::<A>(&format!("{stem}{d}{extension}{suffix}"))
                && !pool.contains(&other)
            {
                pool.push(other);
            }
        }
    }
    pool
}

/// IPv4: RND, SEQ, REP over unicast space, and keys inside the table's prefixes. IPv6, nearly all of which is not routed: the
/// first three inside the table's prefixes.
fn cases<A: Family>(rib: &Rib<A>, pace: &Pace) -> Result<Vec<Case<A>>> {
    let oracle = Oracle::new(&routes(rib));
    let of = |pattern| on_huge_pages(keys(rib, pattern, pace.keys, 1));
    let independent = Order::Independent { batch: BATCH };
    let four = A::FAMILY == 4;
    let base = of(if four { Pattern::Random } else { Pattern::PrefixBased });
    let mut plan = vec![
        ("rnd", independent, base.clone()),
        ("seq", Order::Dependent, base.clone()),
        ("rep", independent, on_huge_pages(repeated(&base))),
    ];
    if four {
        plan.push(("prefix", independent, of(Pattern::PrefixBased)));
    }
    let brief = pace.brief_keys.min(pace.keys);
    // The oracle takes a fraction of a second per case: the cases share the cores.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (plan.into_iter())
            .map(|(name, order, keys)| {
                let oracle = &oracle;
                scope.spawn(move || {
                    let expected = [&keys[..brief], &keys[..]].map(|keys| expected(oracle, keys, order));
                    Case { name, order, keys, brief, expected }
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.collect::<Result<_, _>>().map_err(|_| anyhow!("the oracle's thread failed"))
    })
}

enum Failure {
    Refused(String),
    Wrong(anyhow::Error),
}

fn wrong(name: &str, case: &str, found: &str, wanted: &str) -> anyhow::Error {
    anyhow!(
        "{name}, {case}: WRONG: checksum {found}, the oracle's is {wanted}: run `tidemill fib verify` with it"
    )
}

fn brief_look<A: Family>(
    rib: &Rib<A>,
    algorithm: Algorithm,
    cases: &[Case<A>],
) -> Result<Candidate<A>, Failure> {
    let start = Instant::now();
    let writer = algorithm.writer(rib, &Domain::new()).map_err(|why| Failure::Refused(why.to_string()))?;
    let build_ms = start.elapsed().as_secs_f64() * 1e3;
    let fib = writer.fib();
    let mut brief = Vec::new();
    for case in cases {
        let mut best = Duration::MAX;
        for _ in 0..LOOKS {
            let pass = timed_pass(fib.as_ref(), &case.keys[..case.brief], case.order);
            if pass.checksum != case.expected[0] {
                return Err(Failure::Wrong(wrong(&fib.name(), case.name, &pass.checksum, &case.expected[0])));
            }
            best = best.min(pass.time.max(Duration::from_nanos(1)));
        }
        brief.push((case.name, case.brief as f64 / best.as_secs_f64() / 1e6));
    }
    let (name, bytes) = (fib.name(), fib.bytes());
    let (rates, updates) = (Vec::new(), None);
    Ok(Candidate { algorithm, name, bytes, build_ms, brief, rates, updates, fib: Some(fib) })
}

fn long_look<A: Family>(
    finalists: &mut [Candidate<A>],
    cases: &[Case<A>],
    pace: &Pace,
    stop: &Stop,
) -> Result<()> {
    let steps = (pace.runs * cases.len() * finalists.len()) as u64;
    let progress = Progress::new(format!("tune, IPv{}: the best in turn", A::FAMILY), steps);
    for candidate in finalists.iter_mut() {
        candidate.rates = cases.iter().map(|case| (case.name, Vec::new())).collect();
    }
    let count = finalists.len();
    for run in 0..pace.runs {
        for (at, case) in cases.iter().enumerate() {
            for i in 0..count {
                stop.check()?;
                let Candidate { name, fib, rates, .. } = &mut finalists[(i + run) % count];
                let Some(fib) = fib else { continue };
                progress.message(format!("{name} {}", case.name));
                let (mut time, mut lookups) = (Duration::ZERO, 0);
                while time < pace.slice {
                    let pass = timed_pass(fib.as_ref(), &case.keys, case.order);
                    if pass.checksum != case.expected[1] {
                        return Err(wrong(name, case.name, &pass.checksum, &case.expected[1]));
                    }
                    time += pass.time.max(Duration::from_nanos(1));
                    lookups += case.keys.len();
                }
                rates[at].1.push(lookups as f64 / time.as_secs_f64() / 1e6);
                progress.add(1);
            }
        }
    }
    Ok(())
}

fn updates<A: Family>(
    finalists: &mut [Candidate<A>],
    rib: &Rib<A>,
    changes: &[Change<A>],
    pace: &Pace,
    stop: &Stop,
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let progress = Progress::new(format!("tune, IPv{}: updates", A::FAMILY), finalists.len() as u64);
    for candidate in finalists {
        stop.check()?;
        progress.message(candidate.name.clone());
        let plan = Plan {
            rib,
            algorithm: candidate.algorithm,
            changes,
            runs: pace.runs.min(3),
            slice: pace.slice,
            window: super::WINDOW,
        };
        let (single, coalesced) = (plan.rate(1)?, plan.coalesced()?);
        if !(single.sound && coalesced.sound) {
            return Err(anyhow!(
                "{}: WRONG answers after updates: run `tidemill fib verify`",
                candidate.name
            ));
        }
        candidate.updates = Some((single.kups, coalesced.kups));
        progress.add(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_has_every_layout_once() {
        for quick in [true, false] {
            let names: Vec<String> = pool::<u32>(quick).iter().map(Algorithm::to_string).collect();
            let mut once = names.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), names.len());
            let has = |name: &str| names.iter().any(|known| known == name);
            assert!(has("dxr-d16x4r") && has("rangetrie-d16") && !has("auto"));
            assert_eq!([has("dxr-d20r"), has("dxr-d12x9r")], [!quick; 2]);
        }
        let six = pool::<u128>(false);
        assert!(six.iter().all(|algorithm| !algorithm.to_string().starts_with("dxr")));
    }
}
