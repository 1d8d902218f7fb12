//! Beyond the paper: many cores at once, on one table or on a table each, with the paper's distributor and with one that spreads a table's queries over
//! all slices.
//!
//! By the table's address, all queries for one table meet in one accelerator: with more cores than it can serve they wait there, whatever
//! the other slices do. By the key, they go everywhere, and each accelerator keeps the table's description. By the bucket, they go where its line is, and
//! what is before that, the key's fetch and hash, is done at the core's own tile.

use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::halo::Accelerators;
use crate::machine::config::Distributor;
use crate::machine::{Config, Core, Memory};
use crate::mix::LOOP;
use crate::program::{self, Lookup, Results, Software, WHOLE};
use crate::tape::{Tape, Touch};
use crate::workload::{Filled, Packets};
use tidemill_cachesim::random::Random;
use tidemill_flow::keystore::Keystore;

/// Cores, and slices.
const CORES: [usize; 6] = [1, 4, 8, 16, 32, 64];
/// Slots of all tables together.
const SLOTS: u64 = 1 << 16;

/// What a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Cores that look up.
    pub cores: usize,
    /// Whether each has a table of its own.
    pub own: bool,
    /// `None`: software.
    pub distributor: Option<Distributor>,
}

/// At least 16 slices, as large as those of the machine that was given, and a core for each.
fn machine(case: Case, options: &Options) -> Result<Config, StudyError> {
    let mut config = options.config.clone();
    config.slices = case.cores.max(16);
    config.cores = config.slices;
    config.mesh.columns = config.slices.isqrt();
    config.cache.llc_kib = (options.config.cache.llc_kib * config.slices / options.config.slices).max(1);
    config.halo.distributor = case.distributor.unwrap_or(config.halo.distributor);
    super::check(&config, || {
        format!("{} slices, each of cache.llc_kib / slices of the machine that was given", config.slices)
    })?;
    Ok(config)
}

/// Million lookups a second, of all cores; and in a hundred, those that met a busy bit.
///
/// # Errors
/// [`StudyError`].
pub fn run(case: Case, options: &Options) -> Result<(f64, f64), StudyError> {
    let config = machine(case, options)?;
    let mut memory = Memory::new(&config);
    let tables = if case.own { case.cores as u64 } else { 1 };
    let seed = |i: u64| options.seed.wrapping_add(i);
    let tables: Vec<Filled<Keystore<2>>> = (0..tables)
        .map(|i| Filled::new(&mut memory, SLOTS / tables, SLOTS / tables * 3 / 4, seed(i)))
        .collect::<Result<_, _>>()?;
    let mut halo = Accelerators::new(&config);
    let mut seats: Vec<(Core, Results, Packets, Random, Software, u64)> = (0..case.cores)
        .map(|i| {
            let results = Results::new(&mut memory, 64);
            let packets = Packets::new(&mut memory);
            let software = Software::new(options.mix, WHOLE);
            (Core::new(&memory, i), results, packets, Random::new(seed(100 + i as u64)), software, 0)
        })
        .collect();
    let (tape, mut touches) = (Tape::default(), vec![Vec::<Touch>::new(); config.halo.batch]);
    let each = (options.lookups / 4).max(64);
    // The core that is least far goes on, until all have done theirs.
    while let Some(i) = (0..seats.len()).filter(|&i| seats[i].5 < each).min_by_key(|&i| (seats[i].0.now(), i))
    {
        let (core, results, packets, random, software, n) = &mut seats[i];
        let table = &tables[i % tables.len()];
        for (j, touches) in touches.iter_mut().enumerate() {
            table.ask(random.below(table.len), &tape);
            tape.take(&mut memory, touches);
            let next = packets.come(&mut memory, *n + j as u64);
            if case.distributor.is_none() {
                core.prefetch(&mut memory, next, 0);
            }
        }
        let lookup = |(j, touches)| -> Lookup<'_> { table.lookup(packets.key(*n + j as u64), touches) };
        let lookups: Vec<Lookup<'_>> =
            touches.iter().enumerate().map(|(j, touches)| lookup((j, touches.as_slice()))).collect();
        lookups.iter().for_each(|_| {
            core.work(&mut memory, &LOOP, 0);
        });
        if case.distributor.is_some() {
            program::nonblocking(core, &mut memory, &mut halo, results, &lookups, 0);
        } else {
            for lookup in &lookups {
                software.lookup(core, &mut memory, lookup, 0);
            }
        }
        *n += lookups.len() as u64;
    }
    // Each core by its own time, so that one that ends late does not count against all.
    let rate: f64 = seats.iter().map(|seat| seat.5 as f64 / (seat.0.idle_at() as f64 / 1e6)).sum();
    Ok((rate, 100.0 * halo.activity.held_back as f64 / halo.activity.queries.max(1) as f64))
}

/// The figure.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let kinds = [
        ("software, one table", false, None),
        ("halo-nonblocking, one table", false, Some(Distributor::Table)),
        ("halo-nonblocking, one table, by key", false, Some(Distributor::Key)),
        ("halo-nonblocking, one table, by bucket", false, Some(Distributor::Bucket)),
        ("halo-nonblocking, a table each", true, Some(Distributor::Table)),
    ];
    let cases: Vec<(&str, Case)> = CORES
        .into_iter()
        .flat_map(|cores| kinds.map(|(name, own, distributor)| (name, Case { cores, own, distributor })))
        .collect();
    // What the machine cannot be is to be found before the first minute.
    cases.iter().try_for_each(|&(_, case)| machine(case, options).map(|_| ()))?;
    let case = |&(name, case): &(&str, Case)| -> Result<[Point; 2], StudyError> {
        let (rate, held) = run(case, options)?;
        let point = |panel, y| Point {
            panel,
            series: name.into(),
            x: Place::Number(case.cores as f64),
            y,
            paper: None,
        };
        Ok([point("million lookups a second", rate), point("queries that met a busy bit, percent", held)])
    };
    let points: Result<Vec<_>, _> = in_parallel(options.jobs, &cases, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
