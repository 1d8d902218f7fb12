//! A flood of new flows into a full table: what packets cost, and what is left for the flows that were there.
//!
//! A table is filled until a key has no room, then hammered with new keys, an eighth of its slots, so that what was
//! left of room by luck is gone. Then batches come in which a share of the packets belongs to new flows, each seen once, and the
//! rest to flows that were there, in random order; all go through find-or-insert.
//!
//! Packets are served in the order in which they come, so flows that were there get their share of what the core serves:
//! `existing_mpps` is that many of their packets a second, and `kept` is the rate of all packets over the rate without a
//! flood: what each flow keeps, when its packets are the same share of what comes. That is the operator's figure. What the flood does to the
//! lookups themselves, its own work taken out, is `lookup` `kept`: time spent in batches of lookups of
//! flows that were there, each 256 of them after 256 packets of the flood, over the same without a flood.

use super::keys::{Block, FLOOD, Keys, drawn};
use super::lines::{Lines, Summary};
use super::tables::Subject;
use super::work::{Filled, MOST, Plan, rate};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use tidemill_lpm::keys::Random;

/// Percent of the packets that belong to new flows.
pub(super) const SHARES: [u64; 4] = [10, 50, 90, 100];
/// Packets of the flood between two looks at the lookups of other flows, and lookups of these.
const BURST: usize = MOST;
/// Packets whose lines are counted, one by one and in batches.
const PROBED: u64 = 1 << 14;

/// What one run gave.
pub(super) struct Flooded {
    /// Flows that were there, and slots.
    pub(super) flows: u64,
    pub(super) slots: usize,
    /// Packets of a batch.
    pub(super) batch: usize,
    /// Without a flood: M packets/s of flows that were there, through find-or-insert.
    pub(super) quiet_mpps: f64,
    /// M packets/s with each of [`SHARES`].
    pub(super) mpps: [f64; SHARES.len()],
    /// Flows of the flood that found room all the same, of its packets, over all shares.
    pub(super) admitted: f64,
    /// M lookups/s of flows that were there, without and between packets of the flood.
    pub(super) quiet_mlps: f64,
    pub(super) mlps: f64,
    /// Lines that a packet of the flood touches that searches for room.
    pub(super) lines: Option<Summary>,
    /// Lines that a batch of packets of the flood touches: what a packet costs is that over the packets.
    pub(super) batch_lines: Option<Summary>,
}

pub(super) fn flood<const W: usize, T: Subject<W>>(plan: &Plan<W>) -> Result<Flooded> {
    let mut filled = plan.filled::<T>(1.0)?;
    let (flows, slots) = (filled.flows, filled.table.capacity());
    let packets = plan.lookups;
    let quiet = plan.find_or_insert(&mut filled.table, drawn(flows, packets, plan.seed))?;
    let quiet_mlps = between(plan, &mut filled, None)?;
    let mut next = FLOOD;
    let hammer = (slots / 8) as u64;
    plan.find_or_insert(&mut filled.table, next..next + hammer)?;
    next += hammer;

    let (mut new, mut admitted) = (0, 0);
    let mut mpps = [0.0; SHARES.len()];
    for (share, mpps) in SHARES.iter().zip(&mut mpps) {
        let first = next;
        let mut random = Random::new(plan.seed ^ share);
        let numbers: Vec<u64> = (0..packets)
            .map(|_| {
                if (random.below(100) as u64) < *share {
                    next += 1;
                    next - 1
                } else {
                    random.below(flows as usize) as u64
                }
            })
            .collect();
        let met = plan.find_or_insert(&mut filled.table, numbers.into_iter())?;
        if met.found != packets as u64 - (next - first) {
            let there = packets as u64 - (next - first);
            bail!("WRONG: {}: {} of {there} packets found their flow in a flood", T::NAME, met.found);
        }
        (new, admitted) = (new + next - first, admitted + met.inserted);
        *mpps = rate(met.packets, met.time);
    }
    let mlps = between(plan, &mut filled, Some(next))?;
    next += packets as u64;
    let probe = Lines::default();
    let lines = (next..next + PROBED)
        .map(|i| {
            let key = plan.keys.key(i);
            filled.table.find_or_insert_probed(plan.keys.hash(&key), &key, i + 1, &probe);
            probe.take()
        })
        .collect();
    next += PROBED;
    let batch_lines = (0..PROBED / plan.batch as u64).map(|i| {
        let first = next + i * plan.batch as u64;
        let keys: Vec<_> = (first..first + plan.batch as u64).map(|i| plan.keys.key(i)).collect();
        let hashes: Vec<u64> = keys.iter().map(|key| plan.keys.hash(key)).collect();
        filled.table.find_or_insert_batch_probed(&hashes, &keys, &vec![1; keys.len()], &probe);
        probe.take()
    });
    let batch_lines = Summary::of(batch_lines.collect());
    Ok(Flooded {
        flows,
        slots,
        batch: plan.batch,
        quiet_mpps: rate(quiet.packets, quiet.time),
        mpps,
        admitted: admitted as f64 / new as f64,
        quiet_mlps,
        mlps,
        lines: Summary::of(lines).filter(|lines| lines.max > 0.0),
        batch_lines: batch_lines.filter(|lines| lines.max > 0.0),
    })
}

/// M lookups/s of flows that are there, a burst after each burst of the flood that begins with this number, if there is one.
fn between<const W: usize, T: Subject<W>>(
    plan: &Plan<W>,
    filled: &mut Filled<T>,
    flood: Option<u64>,
) -> Result<f64> {
    let (keys, table): (&Keys<W>, &mut T) = (&plan.keys, &mut filled.table);
    let (mut asked, mut new) = (Block::new(keys), Block::new(keys));
    let (mut room, mut answers, values) = ([0; MOST], [None; BURST], [1; MOST]);
    let mut time = Duration::ZERO;
    let bursts = plan.lookups / BURST;
    let mut numbers = drawn(filled.flows, bursts * BURST, plan.seed);
    for burst in 0..bursts as u64 {
        // Made before the flood, so that making them does not bring anything back into the cache.
        asked.fill(keys, numbers.by_ref().take(BURST));
        if let Some(first) = flood {
            let first = first + burst * BURST as u64;
            new.fill(keys, first..first + BURST as u64);
            for (from, out) in (0..BURST).step_by(plan.batch).zip(answers.chunks_mut(plan.batch)) {
                let (end, values) = (from + out.len(), &values[..out.len()]);
                let hashes = new.hashes(from, &mut room[..out.len()]);
                table.find_or_insert(hashes, &new.keys[from..end], values, out);
            }
        }
        let start = Instant::now();
        for (from, out) in (0..BURST).step_by(plan.batch).zip(answers.chunks_mut(plan.batch)) {
            let hashes = asked.hashes(from, &mut room[..out.len()]);
            table.get_batch(hashes, &asked.keys[from..from + out.len()], out);
        }
        time += start.elapsed();
        if let Some(i) = (0..BURST).find(|&i| answers[i] != Some(asked.value(i))) {
            bail!("WRONG: {}: {:?} looked up in a flood, not {}", T::NAME, answers[i], asked.value(i));
        }
    }
    Ok(rate((bursts * BURST) as u64, time))
}
