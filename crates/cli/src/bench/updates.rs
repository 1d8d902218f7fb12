//! Update rates: what `Table::apply` takes, RIB included, one change at a time and in batches.

use anyhow::Result;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::keys::{Pattern, Random, keys};
use tidemill_lpm::{Algorithm, Change, Family, Label, Oracle, Prefix, Rib, Table};

/// Changes that are applied together: one by one, and as a router that coalesces a few milliseconds of updates would.
pub(super) const BATCHES: [usize; 2] = [1, 1000];
/// Keys that are looked up afterwards, to see whether the answers are still right.
const CHECKED: usize = 65_536;
/// Routes that flap when there is no update file.
const FLAPS: usize = 50_000;

/// Withdrawals of random routes of the table, each followed by its announcement: half of the changes take a route
/// away, half bring it back, and at the end the table is as before.
pub(super) fn flaps<A: Family>(rib: &Rib<A>, seed: u64) -> Vec<Change<A>> {
    let routes: Vec<(Prefix<A>, Label)> = rib.iter().collect();
    if routes.is_empty() {
        return Vec::new();
    }
    let mut random = Random::new(seed);
    let chosen: Vec<(Prefix<A>, Label)> = (0..FLAPS).map(|_| routes[random.below(routes.len())]).collect();
    // A batch withdraws, the next one announces the same: within a batch they would cancel out.
    let batch = BATCHES[1];
    (chosen.chunks(batch))
        .flat_map(|part| {
            let withdraw = part.iter().map(|&(prefix, _)| Change::Withdraw(prefix));
            withdraw.chain(part.iter().map(|&(prefix, label)| Change::Announce(prefix, label)))
        })
        .collect()
}

/// What to measure.
pub(super) struct Plan<'a, A: Family> {
    pub(super) rib: &'a Rib<A>,
    pub(super) algorithm: Algorithm,
    pub(super) changes: &'a [Change<A>],
    pub(super) runs: usize,
    pub(super) slice: Duration,
}

impl<A: Family> Plan<'_, A> {
    /// Thousands of changes per second, run by run, until the runs or the changes are used up; and whether the answers
    /// are right afterwards.
    pub(super) fn measure(&self, batch: usize) -> Result<(Vec<f64>, bool)> {
        let mut table = Table::new(&Domain::new(), self.rib.clone(), &self.algorithm)?;
        let mut batches = self.changes.chunks(batch);
        let (mut rates, mut done) = (Vec::new(), 0);
        while rates.len() < self.runs {
            let (start, before) = (Instant::now(), done);
            while start.elapsed() < self.slice {
                let Some(part) = batches.next() else { break };
                table.apply(part)?;
                done += part.len();
            }
            if done == before {
                break;
            }
            rates.push((done - before) as f64 / start.elapsed().as_secs_f64() / 1e3);
        }
        Ok((rates, self.still_right(&table, done)))
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
}
