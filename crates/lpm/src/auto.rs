//! What `auto` means: the structure for a table, on this machine.
//!
//! [`Family::likely`] is fixed knowledge: what has measured best where we measured, best first. Where a table is large enough for
//! the choice to matter and the caller grants some time, the first few of them are built and asked; then the one that
//! this machine answers fastest with serves. Answers are the same either way.
//!
//! ```text
//! prefixes < 10,000, or no budget:  likely[0], or the next one that can hold the table            the same every time
//! else:  build likely[0], [1], .. while the budget lasts --> ROUNDS x (each of them, in turn: random, then routed keys)
//!        --> the least time; but likely[0] unless another one saves a tenth of its time
//! ```
//! Cost: the budget, overrun by one build at most (none if the builds are alike: the last one says whether the next still fits).
//! The candidates are in memory together until the choice is made.

use crate::fib::{BuildError, Fib, FibWriter, Label};
use crate::keys::{Pattern, Random, keys};
use crate::prefix::Prefix;
use crate::rib::Rib;
use crate::table::{Algorithm, Family};
use std::time::{Duration, Instant};
use tidemill_lookup::qsbr::Domain;

/// What `auto` may take of a start.
pub const BUDGET: Duration = Duration::from_millis(300);
/// A table with fewer prefixes is not worth measuring: all that it is made of stays in the nearest caches.
pub const MEASURE_FROM: usize = 10_000;
/// Keys of each kind, in bursts of `BURST`: more than the second-level caches hold lines for.
const KEYS: usize = 1 << 16;
const BURST: usize = 256;
/// Passes over the keys; the best one counts, which leaves out what the machine did beside.
const ROUNDS: usize = 5;
/// Another structure must save this share of the preferred one's time.
const MARGIN: f64 = 0.1;
/// A measurement takes about this share of a build.
const MEASURE_SHARE: f64 = 0.5;

/// A structure that has been chosen and built.
pub struct Chosen<A: Family> {
    /// Which.
    pub algorithm: Algorithm,
    /// Why, in a few words.
    pub why: String,
    /// The structure.
    pub writer: Box<dyn FibWriter<A>>,
}

/// Chooses by fixed knowledge and, where that may pay, a measurement of at most about `budget`; none if it is 0.
///
/// # Errors
/// That of the preferred structure, if none can hold the table.
pub fn choose<A: Family>(rib: &Rib<A>, domain: &Domain, budget: Duration) -> Result<Chosen<A>, BuildError> {
    let start = Instant::now();
    choose_from(&A::likely(), rib, domain, budget, &mut || start.elapsed())
}

/// A candidate, with the best time so far for each kind of keys.
struct Candidate<A: Family> {
    algorithm: Algorithm,
    writer: Box<dyn FibWriter<A>>,
    best: [Duration; 2],
}

impl<A: Family> Candidate<A> {
    fn ns_per_key(&self) -> f64 {
        self.best.iter().sum::<Duration>().as_secs_f64() * 1e9 / (2 * KEYS) as f64
    }
}

/// The same, of `likely` first, by a clock that is handed in.
fn choose_from<A: Family>(
    likely: &[Algorithm],
    rib: &Rib<A>,
    domain: &Domain,
    budget: Duration,
    now: &mut dyn FnMut() -> Duration,
) -> Result<Chosen<A>, BuildError> {
    let measured = rib.len() >= MEASURE_FROM && !budget.is_zero();
    let mut refused: Vec<String> = Vec::new();
    let mut error = None;
    let mut candidates: Vec<Candidate<A>> = Vec::new();
    let mut left_out = 0;
    let others = Algorithm::all::<A>().into_iter().filter(|a| *a != Algorithm::Auto && !likely.contains(a));
    let mut longest = Duration::ZERO;
    for (at, algorithm) in likely.iter().copied().chain(others).enumerate() {
        let from = if measured { now() } else { Duration::ZERO };
        let fits = from + longest.mul_f64(1.0 + MEASURE_SHARE) <= budget;
        let another = measured && at < likely.len() && fits;
        if !(candidates.is_empty() || another) {
            left_out = likely.len().saturating_sub(at);
            break;
        }
        match algorithm.writer(rib, domain) {
            Ok(writer) => candidates.push(Candidate { algorithm, writer, best: [Duration::MAX; 2] }),
            Err(why) => {
                refused.push(algorithm.to_string());
                error.get_or_insert(why);
            }
        }
        if measured {
            longest = longest.max(now().saturating_sub(from));
        }
    }
    let reason = |more: String| {
        let refused = match refused.is_empty() {
            true => String::new(),
            false => format!("; {} cannot hold the table", refused.join(" and ")),
        };
        format!("{more}{refused}")
    };
    if candidates.len() > 1 {
        measure(&mut candidates, rib, budget, now);
        let at = fastest(&candidates.iter().map(Candidate::ns_per_key).collect::<Vec<_>>());
        let others = candidates.iter().enumerate().filter(|(i, _)| *i != at);
        let others: Vec<String> =
            others.map(|(_, other)| format!("{} {:.1}", other.algorithm, other.ns_per_key())).collect();
        let why = format!("measured: {:.1} ns a lookup, {}", candidates[at].ns_per_key(), others.join(", "));
        let Candidate { algorithm, writer, .. } = candidates.swap_remove(at);
        let why = match left_out {
            0 => why,
            count => format!("{why}; no time for {count} more"),
        };
        return Ok(Chosen { algorithm, why: reason(why), writer });
    }
    let family = A::FAMILY;
    match candidates.pop() {
        Some(Candidate { algorithm, writer, .. }) => {
            let why = if rib.len() < MEASURE_FROM {
                format!("usual for IPv{family}; {} prefixes are too few to measure", rib.len())
            } else if budget.is_zero() {
                format!("usual for IPv{family}; not measured")
            } else {
                format!("usual for IPv{family}; no time to measure")
            };
            Ok(Chosen { algorithm, why: reason(why), writer })
        }
        // There is at least one algorithm, so it has said why not.
        None => Err(error.unwrap_or(BuildError::Parameter {
            parameter: "address family",
            value: family.into(),
            expected: "one with a structure".into(),
        })),
    }
}

/// The index of the least time; the first one's unless another saves [`MARGIN`] of it.
fn fastest(ns: &[f64]) -> usize {
    let mut best = 0;
    for (i, &time) in ns.iter().enumerate().skip(1) {
        if time < ns[best] && time <= ns[0] * (1.0 - MARGIN) {
            best = i;
        }
    }
    best
}

/// Asks every candidate in turn, so that what else the machine does hits them all; stops between two rounds when the
/// budget is spent, after one round at least.
fn measure<A: Family>(
    candidates: &mut [Candidate<A>],
    rib: &Rib<A>,
    budget: Duration,
    now: &mut dyn FnMut() -> Duration,
) {
    let kinds = [keys(rib, Pattern::Random, KEYS, 1), routed(rib)];
    let mut out = vec![Label::NONE; BURST];
    for round in 0..ROUNDS {
        if round > 0 && now() >= budget {
            break;
        }
        for candidate in candidates.iter_mut() {
            let fib = candidate.writer.fib();
            for (keys, best) in kinds.iter().zip(&mut candidate.best) {
                let from = now();
                ask(fib.as_ref(), keys, &mut out);
                *best = (*best).min(now().saturating_sub(from));
            }
        }
    }
}

fn ask<A: Family>(fib: &dyn Fib<A>, keys: &[A], out: &mut [Label]) {
    for keys in keys.chunks(out.len()) {
        fib.lookup_batch(keys, &mut out[..keys.len()]);
        std::hint::black_box(&*out);
    }
}

/// Random addresses inside random prefixes, as [`Pattern::PrefixBased`], without a list of all prefixes.
fn routed<A: Family>(rib: &Rib<A>) -> Vec<A> {
    let mut random = Random::new(2);
    let every = (rib.len() / KEYS).max(1);
    let some: Vec<Prefix<A>> = rib.iter().step_by(every).map(|(prefix, _)| prefix).collect();
    if some.is_empty() {
        return vec![A::from_u128(0); KEYS];
    }
    (0..KEYS)
        .map(|_| {
            let prefix = some[random.below(some.len())];
            random.within(prefix)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn rib(prefixes: u32, label: u32) -> Rib<u32> {
        (0..prefixes).map(|i| (Prefix::new(i << 14, 18).unwrap(), Label(1 + (i + label) % 200))).collect()
    }

    fn names(names: &[&str]) -> Vec<Algorithm> {
        names.iter().map(|name| Algorithm::parse::<u32>(name).unwrap()).collect()
    }

    /// A clock that goes on by these milliseconds, call by call, then stands.
    fn clock(steps: impl IntoIterator<Item = u64>) -> impl FnMut() -> Duration {
        let (mut steps, mut now) = (steps.into_iter().collect::<VecDeque<u64>>(), 0);
        move || {
            now += steps.pop_front().unwrap_or(0);
            Duration::from_millis(now)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "tables of ten thousand prefixes")]
    fn small_tables_and_no_budget_never_look_at_the_clock() {
        let domain = Domain::new();
        let likely = names(&["rangetrie-d16", "dxr-d18r"]);
        for (table, budget, why) in [
            (rib(MEASURE_FROM as u32 - 1, 0), BUDGET, "9999 prefixes are too few"),
            (rib(MEASURE_FROM as u32, 0), Duration::ZERO, "not measured"),
        ] {
            let chosen = choose_from(&likely, &table, &domain, budget, &mut || panic!("the clock")).unwrap();
            assert_eq!(chosen.algorithm, likely[0]);
            assert!(chosen.why.contains(why), "{}", chosen.why);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "tables of ten thousand prefixes")]
    fn the_faster_one_is_taken_and_the_budget_is_kept() {
        let domain = Domain::new();
        let likely = names(&["rangetrie-d16", "dxr-d18r", "dxr-d16x4r"]);
        let table = rib(MEASURE_FROM as u32, 0);
        // Two builds of 100 ms each: a third would not fit into 300 ms. Then passes of 4 ms and 2 ms.
        let build = [0, 100, 0, 100, 0];
        let pass = |ms| [0, ms, 0, ms];
        let run = |first: u64, second: u64, after: u64| {
            let steps = build.into_iter().chain(pass(first)).chain(pass(second)).chain([after]);
            choose_from(&likely, &table, &domain, BUDGET, &mut clock(steps)).unwrap()
        };
        // With the budget spent behind the first round there is no second one, in which the clock stands.
        let late = |first: u64, second: u64| run(first, second, 300);
        assert_eq!(run(4, 2, 0).algorithm, likely[0], "a tie at 0 in later rounds is the first one's");
        let chosen = late(4, 2);
        assert_eq!(chosen.algorithm, likely[1]);
        assert!(chosen.why.starts_with("measured: 30.5 ns a lookup, rangetrie-d16 61.0"), "{}", chosen.why);
        assert!(chosen.why.ends_with("no time for 1 more"), "{}", chosen.why);
        assert_eq!(chosen.writer.fib().name(), "dxr-d18r");
        assert_eq!(late(20, 19).algorithm, likely[0], "5 % are not worth it");
    }

    #[test]
    #[cfg_attr(miri, ignore = "tables of ten thousand prefixes")]
    fn what_cannot_hold_the_table_is_passed_over() {
        let domain = Domain::new();
        let mut table = rib(MEASURE_FROM as u32, 0);
        table.insert("10.0.0.0/8".parse().unwrap(), Label(u32::MAX)); // the trie's labels have 31 bits
        let likely = names(&["rangetrie-d16", "dxr-d18r"]);
        for budget in [Duration::ZERO, BUDGET] {
            let chosen = choose_from(&likely, &table, &domain, budget, &mut clock([])).unwrap();
            assert_eq!(chosen.algorithm, likely[1]);
            assert!(chosen.why.contains("rangetrie-d16 cannot hold the table"), "{}", chosen.why);
        }
        let last = choose_from(&names(&["rangetrie-d12"]), &table, &domain, BUDGET, &mut clock([])).unwrap();
        assert_eq!(last.writer.fib().lookup(0x0a00_0001), table.lookup(0x0a00_0001).unwrap().1);
    }

    #[test]
    fn margins() {
        assert_eq!(fastest(&[10.0]), 0);
        assert_eq!(fastest(&[10.0, 9.1]), 0);
        assert_eq!(fastest(&[10.0, 9.0, 8.9, 9.5]), 2);
        assert_eq!(fastest(&[10.0, 9.5, 9.2]), 0);
    }
}
