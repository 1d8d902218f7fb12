//! Verifying under updates: an update file in batches, with the checks repeated on the way and at its end.

use super::check::{Checker, Tally};
use super::{Job, Verify};
use crate::progress::Progress;
use crate::tables::report_left_out;
use crate::usage;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::Path;
use tidemill_feed::{FamilyChange, UpdateOptions, Updates};
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::{Algorithm, Change, Family, Label, Oracle, Prefix, Rib, Table};

/// Checks on the way, besides the one at the end.
const STOPS: usize = 4;

/// Changes that are kept at most: what is read may have no end.
const MOST_CHANGES: usize = 1 << 26;

/// Picks a family's changes.
pub(crate) trait OfFamily: Sized + Family {
    /// The change, if it is of this family.
    fn of(change: FamilyChange) -> Option<Change<Self>>;
}

impl OfFamily for u32 {
    fn of(change: FamilyChange) -> Option<Change<u32>> {
        match change {
            FamilyChange::V4(change) => Some(change),
            FamilyChange::V6(_) => None,
        }
    }
}

impl OfFamily for u128 {
    fn of(change: FamilyChange) -> Option<Change<u128>> {
        match change {
            FamilyChange::V4(_) => None,
            FamilyChange::V6(change) => Some(change),
        }
    }
}

/// Reads a family's changes from a file, with labels that go on from the table's.
pub(crate) fn read<A: OfFamily>(
    file: &Path,
    labels: &tidemill_feed::Labels,
    load: &crate::tables::LoadArgs,
) -> Result<Vec<Change<A>>> {
    let options = UpdateOptions {
        label_by: load.label_by(),
        mask_host_bits: load.mask_host_bits,
        skip_wrong: load.skip_wrong,
        ..UpdateOptions::default()
    };
    let mut updates = Updates::open(file, labels.clone(), options)?;
    let mut changes = Vec::new();
    for update in &mut updates {
        if changes.len() >= MOST_CHANGES {
            let name = file.display();
            return Err(usage(format!("{name}: more than {MOST_CHANGES} updates: give a shorter file")));
        }
        changes.extend(A::of(update?.change));
    }
    report_left_out(updates.counts());
    Ok(changes)
}

pub(super) fn run<A: OfFamily>(
    job: &Job,
    (file, changes): (&Path, &[Change<A>]),
    list: Vec<(Prefix<A>, Label)>,
    algorithm: &Algorithm,
    tally: &mut Tally,
) -> Result<()> {
    let args: &Verify = job.args;
    let rib: Rib<A> = list.iter().copied().collect();
    let mut table = Table::new(&Domain::new(), rib, algorithm)?;
    // What the oracle is made from is kept apart from the table's own RIB.
    let mut truth: HashMap<Prefix<A>, Label> = list.into_iter().collect();
    let stop_every = changes.len().div_ceil(STOPS + 1).max(1);
    let progress = Progress::new(format!("updates, {}", table.fib().name()), changes.len() as u64);
    let (mut done, mut next_stop) = (0, stop_every);
    for batch in changes.chunks(args.batch) {
        if let Err(error) = table.apply(batch) {
            // Labels of the updates go on from the table's.
            return job
                .left_out(algorithm, A::FAMILY, error)
                .with_context(|| format!("{}: change {}", file.display(), done + 1));
        }
        for change in batch {
            match *change {
                Change::Announce(prefix, label) => truth.insert(prefix, label),
                Change::Withdraw(prefix) => truth.remove(&prefix),
            };
        }
        done += batch.len();
        progress.add(batch.len() as u64);
        if done < next_stop && done < changes.len() {
            continue;
        }
        next_stop += stop_every;
        let list: Vec<(Prefix<A>, Label)> = truth.iter().map(|(&prefix, &label)| (prefix, label)).collect();
        let oracle = Oracle::new(&list);
        let mut checker = Checker::new(table.fib().as_ref(), &oracle, args.json);
        checker.edges(&list)?;
        checker.sample(&list, args.sample, args.seed)?;
        if args.all && A::FAMILY == 4 && done == changes.len() {
            checker.all()?;
        }
        checker.report(A::FAMILY, &format!("after {done} updates"), tally)?;
    }
    Ok(())
}
