//! Update rates: what `Table::apply` takes, RIB included; what a patch stores; and what readers feel of it.
//!
//! | case | what |
//! |---|---|
//! | `update` | one change at a time |
//! | `update-batch` | 1000 changes at a time |
//! | `update-coalesced` | as many at a time as come within the window while the ones before are applied, at the highest rate that is kept up with |
//! | `update`, stores | the probe's stores for a change that makes a difference, one at a time (`changes`: how many were counted) |
//! | `read` | lookups by one thread: `alone`; `beside` a thread that updates a table of its own; of the table that is `updated` |

use crate::json::Params;
use crate::progress::Progress;
use anyhow::Result;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidemill_lookup::probe::Recorder;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::{Pattern, Random, keys};
use tidemill_lpm::{Algorithm, Change, Family, Label, Oracle, Prefix, Rib, Table};

/// Changes that are applied together: one by one, and a thousand.
const BATCHES: [usize; 2] = [1, 1000];
/// At most so many at once, however fast they are.
const BATCH_MAX: usize = 1 << 17;
/// Keys that are looked up afterwards, to see whether the answers are still right.
const CHECKED: usize = 65_536;
/// Routes that flap when there is no update file, if the table has twice as many.
const FLAPS: usize = 50_000;
/// Changes that are applied one by one with the probe, at most.
const PROBED: usize = 20_000;
/// The reader's keys, and how many it asks for between two burst boundaries.
const READ: usize = 1 << 18;
const BURST: usize = 256;

/// Withdrawals of as many random routes of the table (half of them at most), then their announcements; again, until there are
/// enough: half of the changes take a route away, half bring it back, so far apart that few meet in one batch and cancel
/// out.
pub(crate) fn flaps<A: Family>(rib: &Rib<A>, seed: u64) -> Vec<Change<A>> {
    let routes = some_routes(rib, seed);
    let once = || {
        let withdraw = routes.iter().map(|&(prefix, _)| Change::Withdraw(prefix));
        withdraw.chain(routes.iter().map(|&(prefix, label)| Change::Announce(prefix, label)))
    };
    let times = if routes.is_empty() { 0 } else { (2 * FLAPS).div_ceil(2 * routes.len()) };
    (0..times).flat_map(|_| once()).collect()
}

/// The same routes one after the other, each withdrawn and announced again: for what is counted change by change, so that of any number
/// of changes half take a route away and half bring one.
pub(crate) fn alternating<A: Family>(rib: &Rib<A>, seed: u64) -> Vec<Change<A>> {
    let routes = some_routes(rib, seed);
    let both = |&(prefix, label)| [Change::Withdraw(prefix), Change::Announce(prefix, label)];
    let times = if routes.is_empty() { 0 } else { FLAPS.div_ceil(routes.len()) };
    (0..times).flat_map(|_| routes.iter().flat_map(both)).collect()
}

/// How far announcements go on in the table for their next label: so that two that follow each other hardly ever have the same.
const NEXT_LABEL: usize = 7919;

/// A stream's order, of whichever family, on routes of this table: each prefix of the stream stands for a route, in the order of both, so that
/// neighbors stay near each other; what flaps there flaps here. An announcement gives its route the label of another one, so that it changes
/// something, unless a later one of the same batch does.
pub(crate) fn like<A: Family, B: Family>(rib: &Rib<A>, stream: &[Change<B>]) -> Vec<Change<A>> {
    let routes: Vec<(Prefix<A>, Label)> = rib.iter().collect();
    if routes.is_empty() {
        return Vec::new();
    }
    let mut prefixes: Vec<Prefix<B>> = stream.iter().map(Change::prefix).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    let mut from = 0;
    let mut made = Vec::with_capacity(stream.len());
    for change in stream {
        // It is one of them.
        let place = prefixes.binary_search(&change.prefix()).unwrap_or(0);
        let (prefix, _) = routes[place * routes.len() / prefixes.len()];
        made.push(match change {
            Change::Announce(..) => {
                from = (from + NEXT_LABEL) % routes.len();
                Change::Announce(prefix, routes[from].1)
            }
            Change::Withdraw(_) => Change::Withdraw(prefix),
        });
    }
    made
}

/// So many of the table's routes (half of them at most), in a random order.
fn some_routes<A: Family>(rib: &Rib<A>, seed: u64) -> Vec<(Prefix<A>, Label)> {
    let mut routes: Vec<(Prefix<A>, Label)> = rib.iter().collect();
    let count = routes.len().div_ceil(2).min(FLAPS);
    let mut random = Random::new(seed);
    for at in 0..count {
        let other = at + random.below(routes.len() - at);
        routes.swap(at, other);
    }
    routes.truncate(count);
    routes
}

/// What to measure.
pub(crate) struct Plan<'a, A: Family> {
    pub(crate) rib: &'a Rib<A>,
    pub(crate) algorithm: Algorithm,
    pub(crate) changes: &'a [Change<A>],
    pub(crate) runs: usize,
    pub(crate) slice: Duration,
    pub(crate) window: Duration,
}

/// Rates, run by run, in thousands of changes per second.
pub(crate) struct Rates {
    pub(crate) kups: Vec<f64>,
    /// Changes at a time, on average.
    pub(crate) batch: f64,
    /// The share of the changes that was left after coalescing and made a difference.
    pub(crate) changed: f64,
    /// The answers are right afterwards.
    pub(crate) sound: bool,
}

/// Takes a case, a metric, its values and parameters.
pub(super) type Line<'a> = dyn FnMut(&str, &'static str, &[f64], Params) -> Result<()> + 'a;

/// Which table the other thread updates while one reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nobody,
    ItsOwn,
    Ours,
}

impl<A: Family> Plan<'_, A> {
    /// All of it, line by line; stores are counted of `probed`. False if an answer was wrong.
    pub(super) fn report(&self, probed: &[Change<A>], line: &mut Line<'_>) -> Result<bool> {
        let mut sound = true;
        let mut rates = |case: &str, rates: Rates, more: &[(&str, serde_json::Value)]| -> Result<()> {
            sound &= rates.sound;
            let mut params = Params::new();
            params.insert("batch".into(), crate::json::significant(rates.batch).into());
            params.insert("changed_share".into(), crate::json::significant(rates.changed).into());
            params.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
            if rates.kups.is_empty() { Ok(()) } else { line(case, "kups", &rates.kups, params) }
        };
        rates("update", self.rate(BATCHES[0])?, &[])?;
        rates("update-batch", self.rate(BATCHES[1])?, &[])?;
        let window_ms = self.window.as_millis() as u64;
        rates("update-coalesced", self.coalesced()?, &[("coalesce_ms", window_ms.into())])?;
        if let Some((stores, params)) = self.stores(probed)? {
            line("update", "stores", &[stores], params)?;
        }
        if !self.changes.is_empty() {
            let cases = [
                ("read-alone", Beside::Nobody),
                ("read-beside", Beside::ItsOwn),
                ("read-updated", Beside::Ours),
            ];
            let mut read: [Vec<f64>; 3] = Default::default();
            for _ in 0..self.runs {
                for ((_, beside), rates) in cases.iter().zip(&mut read) {
                    rates.push(self.read(*beside)?);
                }
            }
            for ((case, _), rates) in cases.iter().zip(&read) {
                line(case, "reader_mlps", rates, Params::new())?;
            }
        }
        Ok(sound)
    }

    /// So many changes at a time, until the runs or the changes are used up.
    pub(crate) fn rate(&self, batch: usize) -> Result<Rates> {
        self.apply(batch, |batch, _| batch)
    }

    /// As many changes at a time as come while the ones before are applied and the window lasts.
    pub(crate) fn coalesced(&self) -> Result<Rates> {
        let window = self.window.as_secs_f64();
        self.apply(BATCHES[1], |batch, took| {
            let wanted = batch as f64 * window / took.as_secs_f64().max(1e-9);
            (wanted as usize).clamp(batch.div_ceil(2), batch * 2).min(BATCH_MAX)
        })
    }

    fn apply(&self, first: usize, next: impl Fn(usize, Duration) -> usize) -> Result<Rates> {
        let mut table = Table::new(&Domain::new(), self.rib.clone(), &self.algorithm)?;
        let (mut kups, mut done, mut batches, mut changed, mut batch) = (Vec::new(), 0, 0, 0, first);
        while kups.len() < self.runs {
            let (start, before) = (Instant::now(), done);
            while start.elapsed() < self.slice && done < self.changes.len() {
                let part = &self.changes[done..(done + batch).min(self.changes.len())];
                let from = Instant::now();
                changed += table.apply(part)?.changed;
                batch = next(batch, from.elapsed());
                done += part.len();
                batches += 1;
            }
            if done == before {
                break;
            }
            kups.push((done - before) as f64 / start.elapsed().as_secs_f64() / 1e3);
        }
        let sound = self.still_right(&table, done);
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        Ok(Rates { kups, batch: share(done, batches), changed: share(changed, done), sound })
    }

    fn still_right(&self, table: &Table<A>, done: usize) -> bool {
        let mut truth: HashMap<Prefix<A>, Label> = self.rib.iter().collect();
        for change in &self.changes[..done] {
            match *change {
                Change::Announce(prefix, label) => truth.insert(prefix, label),
                Change::Withdraw(prefix) => truth.remove(&prefix),
            };
        }
        let oracle = Oracle::new(&truth.into_iter().collect::<Vec<_>>());
        let asked = keys(self.rib, Pattern::PrefixBased, CHECKED, 1);
        let mut answers = vec![Label::NONE; asked.len()];
        table.fib().lookup_batch(&asked, &mut answers);
        let wrong =
            asked.iter().zip(&answers).filter(|&(&key, &answer)| oracle.lookup(key) != answer).count();
        if wrong > 0 {
            let name = table.fib().name();
            eprintln!(
                "tidemill: WRONG: {name}: {wrong} of {CHECKED} answers after {done} updates: run `fib verify`"
            );
        }
        wrong == 0
    }

    /// Stores to the structure per change, one change at a time, over those that change the table (`changes`, until the time of all runs is
    /// used up); `None` if it does not tell the probe. What a rebuild stores is not counted (`rebuilds`, if there are some).
    fn stores(&self, probed: &[Change<A>]) -> Result<Option<(f64, Params)>> {
        let domain = Domain::new();
        let mut rib = self.rib.clone();
        let mut writer = self.algorithm.writer(&rib, &domain)?;
        let recorder = Recorder::new();
        let some = &probed[..probed.len().min(PROBED)];
        let progress = Progress::new(format!("stores of {}", self.algorithm), some.len() as u64);
        let most = self.slice * self.runs.try_into().unwrap_or(u32::MAX);
        let (start, mut changes, mut rebuilds) = (Instant::now(), 0_u64, 0_u64);
        for change in some {
            if changes > 0 && start.elapsed() > most {
                break;
            }
            progress.add(1);
            if !rib.apply(change) {
                continue;
            }
            changes += 1;
            if writer.patch_probed(&rib, &[change.prefix()], &recorder).is_err() {
                rebuilds += 1;
                writer = self.algorithm.writer(&rib, &domain)?;
            }
        }
        let mut params = Params::from_iter([("changes".into(), changes.into())]);
        if rebuilds > 0 {
            params.insert("rebuilds".into(), rebuilds.into());
        }
        let writes = recorder.counts().writes;
        Ok((writes > 0).then(|| (writes as f64 / changes.max(1) as f64, params)))
    }

    /// M lookups/s of one reader in bursts, with what happens beside it.
    fn read(&self, beside: Beside) -> Result<f64> {
        let domain = Domain::new();
        let mut table = Table::new(&domain, self.rib.clone(), &self.algorithm)?;
        let mut other = match beside {
            Beside::ItsOwn => Some(Table::new(&Domain::new(), self.rib.clone(), &self.algorithm)?),
            _ => None,
        };
        let asked = keys(self.rib, Pattern::PrefixBased, READ, 1);
        let view = table.view();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (asked, done, slice) = (&asked, &done, self.slice);
            let reader = scope.spawn(move || {
                let _done = SetOnDrop(done);
                let mut reader = domain.register();
                let mut answers = vec![Label::NONE; BURST];
                let (start, mut lookups) = (Instant::now(), 0);
                while start.elapsed() < slice {
                    for keys in asked.chunks(BURST) {
                        view.get(&reader).lookup_batch(keys, &mut answers[..keys.len()]);
                        black_box(&answers);
                        reader.quiescent();
                    }
                    lookups += asked.len();
                }
                lookups as f64 / start.elapsed().as_secs_f64() / 1e6
            });
            if beside != Beside::Nobody {
                let updated = other.as_mut().unwrap_or(&mut table);
                for part in self.changes.chunks(BATCHES[1]).cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    updated.apply(part)?;
                }
            }
            reader.join().map_err(|_| anyhow::anyhow!("the reader's thread failed"))
        })
    }
}

/// Even if the thread panics: else the other would go on for ever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of three IPv4 prefixes on an IPv6 table: who comes when, and that an announcement changes its route.
    #[test]
    fn a_stream_keeps_its_order_on_another_table() {
        let list = (0..6_u128).map(|i| (Prefix::new(i << 120, 16).unwrap(), Label(1 + i as u32)));
        let rib: Rib<u128> = list.collect();
        let four = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        let [a, b, c] = ["10.0.0.0/8", "11.0.0.0/8", "192.0.2.0/24"].map(four);
        let announce = |prefix| Change::Announce(prefix, Label(9));
        let stream = [announce(c), announce(a), Change::Withdraw(c), announce(b), announce(c), announce(c)];
        let made = like(&rib, &stream);
        let places: Vec<u128> = made.iter().map(|change| change.prefix().first() >> 120).collect();
        assert_eq!(places, [4, 0, 4, 2, 4, 4]);
        let announces = |change: &Change<u128>| matches!(change, Change::Announce(..));
        let kinds: Vec<bool> = made.iter().map(announces).collect();
        assert_eq!(kinds, [true, true, false, true, true, true]);
        let labels: Vec<u32> = made
            .iter()
            .filter_map(|change| match change {
                Change::Announce(_, label) => Some(label.0),
                Change::Withdraw(_) => None,
            })
            .collect();
        assert!(labels.iter().all(|label| (1..=6).contains(label)), "the table's");
        assert!(labels.windows(2).all(|two| two[0] != two[1]), "{labels:?}");
        assert!(like(&Rib::<u128>::new(), &stream).is_empty() && like::<u128, u32>(&rib, &[]).is_empty());
    }
}
