//! Beyond the paper: other structures on the same accelerator, and what would be gained, in one table.
//!
//! Each is run as software, by its own instructions, and on the accelerator, which does the same search: it fetches what the structure's lookup touches, in order. (Its
//! hash unit, which structures for routes need not, is a few cycles.) Hash tables: 2^18 slots, nine tenths full, keys that are there; the key-value store's index is the paper's
//! table with keys of 32 bytes, as MemC3's (4.8). The cuckoo filter has as many keys, and is asked for them and as often for others.
//! Routes: 100,000 random prefixes, random addresses, so nothing is cached better than chance.

use super::run::{Asking, Series, stream};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::machine::memory::LINE;
use crate::machine::{Memory, Time};
use crate::mix::{Mix, STRUCTURES};
use crate::tape::{Tape, Touch};
use crate::workload::{Filled, KEY_BYTES, fib};
use tidemill_cachesim::random::Random;
use tidemill_flow::chaining::Chaining;
use tidemill_flow::cuckoo::Cuckoo;
use tidemill_flow::filter::CuckooFilter;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::HashTable;

const PREFIXES: u64 = 100_000;

/// Cycles a lookup: software, LOOKUP_B, LOOKUP_NB.
type Cycles = [f64; 3];

fn hashed<T: HashTable<W>, const W: usize>(mix: Mix, options: &Options) -> Result<Cycles, StudyError> {
    let slots = 1_u64 << options.most.min(18);
    let mut memory = Memory::new(&options.config);
    let table: Filled<T, W> = Filled::new(&mut memory, slots, slots * 9 / 10, options.seed)?;
    Ok(cycles(memory, mix, 8 * W as u64, options, &|random, tape| {
        table.ask(random.below(table.len), tape);
    }))
}

fn filtered(mix: Mix, options: &Options) -> Result<Cycles, StudyError> {
    let keys = (1_u64 << options.most.min(18)) * 9 / 10;
    let mut filter = CuckooFilter::new(keys as usize)?;
    let hash = |key: u64| tidemill_flow::hash::mix(key ^ options.seed << 40);
    let full = (0..keys).find(|&key| filter.insert(hash(key)).is_err()).unwrap_or(keys);
    Ok(cycles(Memory::new(&options.config), mix, KEY_BYTES, options, &|random, tape| {
        filter.contains_probed(hash(random.below(2 * full)), tape);
    }))
}

fn routed(mix: Mix, options: &Options) -> Result<Cycles, StudyError> {
    let fib = fib(mix.name, PREFIXES, options.seed)?;
    let memory = Memory::new(&options.config);
    Ok(cycles(memory, mix, KEY_BYTES, options, &|random, tape| {
        fib.lookup_probed(random.bits() as u32, tape);
    }))
}

fn cycles(
    mut memory: Memory,
    mix: Mix,
    key_bytes: u64,
    options: &Options,
    ask: &dyn Fn(&mut Random, &Tape),
) -> Cycles {
    let description = memory.pages.allot(LINE);
    // Many lookups, so that the caches hold what they can of the structure.
    let mut random = Random::new(options.seed.wrapping_add(1));
    let (tape, mut touches) = (Tape::default(), Vec::<Touch>::new());
    for _ in 0..options.lookups * 10 {
        ask(&mut random, &tape);
        tape.take(&mut memory, &mut touches);
        crate::workload::touch_all(&mut memory, 0, &touches);
    }
    [Series::Software(mix), Series::Blocking, Series::NonBlocking(options.config.halo.batch)].map(|series| {
        let mut random = Random::new(options.seed);
        let mut next = |memory: &mut Memory, touches: &mut Vec<Touch>| -> Time {
            ask(&mut random, &tape);
            tape.take(memory, touches);
            description
        };
        let asking = Asking { key_bytes, ..Asking::default() };
        stream(memory.clone(), &mut next, series, options, asking).ns() * options.config.ghz
    })
}

/// The table.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let case = |&mix: &Mix| -> Result<Vec<Point>, StudyError> {
        let cycles = match mix.name {
            "keystore-cuckoo" => hashed::<Keystore<2>, 2>(mix, options)?,
            "key-value" => hashed::<Keystore<4>, 4>(mix, options)?,
            "cuckoo" => hashed::<Cuckoo<2>, 2>(mix, options)?,
            "chaining" => hashed::<Chaining<2>, 2>(mix, options)?,
            "flowtable" => hashed::<FlowTable<2>, 2>(mix, options)?,
            "cuckoo-filter" => filtered(mix, options)?,
            _ => routed(mix, options)?,
        };
        let mut points = Vec::new();
        for (series, own) in ["software", "halo-blocking", "halo-nonblocking"].into_iter().zip(cycles) {
            for (panel, y) in
                [("cycles a lookup, overlapping", own), ("relative to its software", cycles[0] / own)]
            {
                let x = Place::Name(mix.name.into());
                points.push(Point { panel, series: series.into(), x, y, paper: None });
            }
        }
        Ok(points)
    };
    let points: Result<Vec<_>, _> =
        in_parallel(options.jobs, &STRUCTURES, progress, case).into_iter().collect();
    Ok(points?.into_iter().flatten().collect())
}
