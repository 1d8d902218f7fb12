//! This machine beside its model: the same tables, really looked up and simulated, so that one can see how far the model of a core may be believed.
//!
//! Time is handed in. What is compared is software only: nobody has an accelerator. A chain of multiplications tells the clock: where that differs from the model's, so do all
//! other rows.

use super::run::{Asking, Series, single};
use super::{Options, StudyError};
use crate::machine::memory::LINE;
use crate::machine::{Core, Memory};
use crate::mix::{FLOWTABLE, KEYSTORE, Mix};
use crate::tape::Tape;
use crate::workload::Filled;
use std::hint::black_box;
use tidemill_cachesim::random::Random;
use tidemill_flow::flowtable::FlowTable;
use tidemill_flow::keystore::Keystore;
use tidemill_flow::table::{HashTable, SizeError};
use tidemill_lookup::mem::Table;

/// A measurement beside its simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was done.
    pub what: String,
    /// Bytes that it goes over.
    pub bytes: u64,
    /// Nanoseconds each, measured: the least of some passes.
    pub measured_ns: f64,
    /// Nanoseconds each, simulated.
    pub simulated_ns: f64,
}

/// Passes, of which the quickest counts.
const PASSES: usize = 7;
/// Words of a line.
const WORDS: usize = LINE as usize / 4;

/// Measures and simulates. `seconds` is a clock; `options.config` the model of this machine.
///
/// # Errors
/// [`StudyError`].
pub fn rows(options: &Options, seconds: &dyn Fn() -> f64) -> Result<Vec<Row>, StudyError> {
    let mut rows = vec![multiplications(options, seconds)];
    for kib in [16, 256, 4 << 10, 64 << 10] {
        rows.push(chase(options, kib << 10, seconds)?);
    }
    for power in [8, 12, 16, 20].into_iter().filter(|&power| power <= options.most) {
        rows.push(table::<Keystore<2>>(options, power, KEYSTORE, seconds)?);
        rows.push(table::<FlowTable<2>>(options, power, FLOWTABLE, seconds)?);
    }
    Ok(rows)
}

fn least(mut pass: impl FnMut() -> f64) -> f64 {
    (0..PASSES).map(|_| pass()).fold(f64::INFINITY, f64::min)
}

/// A chain of multiplications of 64 bits: three cycles each, on all cores that there is a model of. Squares: a compiler has several multiplications by
/// one factor done by one.
fn multiplications(options: &Options, seconds: &dyn Fn() -> f64) -> Row {
    let count = 20_000_000_u32;
    let mut product = black_box(0x9e37_79b9_7f4a_7c15_u64);
    let measured_ns = least(|| {
        let from = seconds();
        for _ in 0..count {
            product = product.wrapping_mul(product);
        }
        product = black_box(product);
        (seconds() - from) * 1e9 / f64::from(count)
    });
    Row {
        what: "dependent multiplications".into(),
        bytes: 0,
        measured_ns,
        simulated_ns: 3.0 / options.config.ghz,
    }
}

/// A chain of loads through so many bytes.
fn chase(options: &Options, bytes: u64, seconds: &dyn Fn() -> f64) -> Result<Row, StudyError> {
    let lines = (bytes / LINE) as usize;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = Random::new(options.seed);
    for i in (1..lines).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    // The first word of each line says which is next. On huge pages, as tables are: the model has no TLB.
    let memory = |source| SizeError::Memory { bytes: bytes as usize, source };
    let mut chain: Table<u32> = Table::new(lines * WORDS).map_err(memory)?;
    for (&line, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
        chain[line as usize * WORDS] = next;
    }
    let loads = 200_000_usize;
    let mut at = 0;
    let measured_ns = least(|| {
        let from = seconds();
        for _ in 0..loads {
            at = chain[at as usize * WORDS];
        }
        black_box(at);
        (seconds() - from) * 1e9 / loads as f64
    });
    let mut memory = Memory::new(&options.config);
    let base = memory.pages.allot(bytes);
    memory.untimed(|memory| {
        for &line in &order {
            memory.load(0, base + u64::from(line) * LINE, 4, 0);
        }
    });
    let mut core = Core::new(&memory, 0);
    let count = 20_000;
    let mut done = 0;
    for &line in order.iter().cycle().take(count) {
        done = core.load(&mut memory, base + u64::from(line) * LINE, 4, done);
    }
    let simulated_ns = done as f64 / 1e3 / count as f64;
    Ok(Row { what: "dependent loads".into(), bytes, measured_ns, simulated_ns })
}

/// Lookups of a table, nine tenths full.
fn table<T: HashTable<2>>(
    options: &Options,
    power: u32,
    mix: Mix,
    seconds: &dyn Fn() -> f64,
) -> Result<Row, StudyError> {
    let mut memory = Memory::new(&options.config);
    let slots = 1_u64 << power;
    let table: Filled<T> = Filled::new(&mut memory, slots, slots * 9 / 10, options.seed)?;
    let mut random = Random::new(options.seed);
    let entries: Vec<u64> = (0..16_384).map(|_| random.below(table.len)).collect();
    let mut found = 0;
    let measured_ns = least(|| {
        let from = seconds();
        found += table.really(&entries);
        (seconds() - from) * 1e9 / entries.len() as f64
    });
    black_box(found);
    let simulated_ns = single(memory, &table, Series::Software(mix), options, Asking::default()).ns();
    // Something was looked up, and what the simulation ran is what was measured.
    debug_assert!(table.ask(0, &Tape::default()));
    Ok(Row {
        what: format!("lookups of {}", T::NAME),
        bytes: table.bytes() as u64,
        measured_ns,
        simulated_ns,
    })
}
