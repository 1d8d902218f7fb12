//! One run of one table at one load, on a new table each time; and how full a table gets.

use super::tables::Subject;
use super::work::{How, Plan, Which, rate};
use anyhow::{Result, bail};
use std::time::Duration;

/// What a run gave.
pub(super) struct Round {
    /// The load that was reached: a table that has no room before is measured as full as it is.
    pub(super) load: f64,
    pub(super) flows: u64,
    pub(super) slots: usize,
    pub(super) bytes: usize,
    pub(super) rates: Vec<Rate>,
}

/// Millions per second.
pub(super) struct Rate {
    pub(super) case: &'static str,
    pub(super) metric: &'static str,
    pub(super) value: f64,
    pub(super) checksum: Option<String>,
}

/// The lookups, and in which order they are measured; who goes first changes from run to run.
const LOOKUPS: [(&str, Which, How); 4] = [
    ("hit", Which::Hits, How::Batched),
    ("hit-single", Which::Hits, How::Plain),
    ("miss", Which::Misses, How::Batched),
    ("miss-single", Which::Misses, How::Plain),
];

pub(super) fn round<const W: usize, T: Subject<W>>(plan: &Plan<W>, load: f64, run: usize) -> Result<Round> {
    let mut filled = plan.filled::<T>(load)?;
    let (flows, slots, bytes) = (filled.flows, filled.table.capacity(), filled.table.bytes());
    if flows == 0 {
        bail!("{}: no room for one key in {slots} slots", T::NAME);
    }
    let update =
        |case, time: Duration| Rate { case, metric: "mops", value: rate(flows, time), checksum: None };
    let mut rates = Vec::new();
    for i in 0..LOOKUPS.len() {
        let (case, which, how) = LOOKUPS[(i + run) % LOOKUPS.len()];
        let (time, checksum) = plan.lookups(&filled, which, how)?;
        let value = rate(plan.lookups as u64, time);
        rates.push(Rate { case, metric: "mlps", value, checksum: Some(checksum.text()) });
    }
    let place = |rate: &Rate| LOOKUPS.iter().position(|(case, ..)| *case == rate.case);
    rates.sort_by_key(place);
    rates.push(update("insert", filled.time));
    rates.push(update("remove", plan.remove_all(&mut filled)?));
    drop(filled);

    // The same from nothing by find-or-insert, and then by packets of the flows that are there.
    let mut filled =
        super::work::Filled { table: plan.empty::<T>()?, flows: 0, time: Duration::ZERO, full: false };
    let met = plan.find_or_insert(&mut filled.table, 0..flows)?;
    rates.push(update("find-or-insert", met.time));
    // What had no room here (one failure may end a batch's insertions) has no flow: ask for those that are all in.
    if met.inserted == flows {
        let numbers = super::keys::drawn(flows, plan.lookups, plan.seed);
        let again = plan.find_or_insert(&mut filled.table, numbers)?;
        if again.found != again.packets {
            bail!("WRONG: {}: find-or-insert found {} of {}", T::NAME, again.found, again.packets);
        }
        let value = rate(again.packets, again.time);
        rates.push(Rate { case: "find-or-insert-hit", metric: "mops", value, checksum: None });
        filled.flows = flows;
        plan.lookups(&filled, Which::Hits, How::Batched)?;
    }
    Ok(Round { load: flows as f64 / slots as f64, flows, slots, bytes, rates })
}

/// Keys over slots when the first has no room. Inserting stops at the last slot.
pub(super) fn occupancy<const W: usize, T: Subject<W>>(plan: &Plan<W>) -> Result<f64> {
    let filled = plan.filled::<T>(1.0)?;
    Ok(filled.flows as f64 / filled.table.capacity() as f64)
}
