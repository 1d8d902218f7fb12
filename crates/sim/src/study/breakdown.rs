//! Figure 10: what a lookup's latency is made of, its lines in the LLC or in DRAM.
//!
//! Each lookup waits for the one before. Parts are found by leaving them out: the table's lines are in L1 (an accelerator has them at once), or
//! locks are not taken; what is left is computing.
//!
//! Further panels ask what our differences from the paper come from: LOOKUP_B without the way from the core to the accelerator and back, a DRAM that answers
//! sooner, locks by their share of the instructions.

use super::run::{Asking, Series, single};
use super::{Options, Place, Point, Progress, StudyError};
use crate::machine::Memory;
use crate::mix::Mix;
use crate::program::{Parts, WHOLE};
use crate::workload::Filled;
use tidemill_flow::keystore::Keystore;

/// Nanoseconds of a lookup.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Breakdown {
    /// What is left.
    pub compute: f64,
    /// Lines of the table.
    pub data: f64,
    /// Locks.
    pub lock: f64,
}

impl Breakdown {
    /// Together.
    pub fn all(&self) -> f64 {
        self.compute + self.data + self.lock
    }
}

fn table(options: &Options) -> Result<(Memory, Filled<Keystore<2>>), StudyError> {
    let mut memory = Memory::new(&options.config);
    let table = Filled::new(&mut memory, 1 << 14, (1 << 14) * 3 / 4, options.seed)?;
    Ok((memory, table))
}

/// Nanoseconds of a LOOKUP_B, its lines in the LLC, if the way between core and accelerator took no time; each waits for the one before.
///
/// # Errors
/// [`StudyError`].
pub fn without_the_way(options: &Options) -> Result<f64, StudyError> {
    let (memory, table) = table(options)?;
    let parts = Parts { way: false, ..WHOLE };
    let asking = Asking { serial: true, parts, placed: Some(true), ..Asking::default() };
    Ok(single(memory, &table, Series::Blocking, options, asking).ns())
}

/// The same with a DRAM whose loads take a core so many nanoseconds.
///
/// # Errors
/// The machine's last-level cache takes longer.
pub fn with_dram(options: &Options, load_ns: f64) -> Result<Options, StudyError> {
    let mut options = options.clone();
    options.config.dram.load_ns = load_ns;
    super::check(&options.config, || format!("DRAM of {load_ns} ns"))?;
    Ok(options)
}

/// How many times faster an accelerator has data from DRAM than a core, if a core's load from there takes so many nanoseconds.
///
/// # Errors
/// [`StudyError`].
pub fn dram_gain(options: &Options, load_ns: f64) -> Result<f64, StudyError> {
    let options = with_dram(options, load_ns)?;
    let (memory, table) = table(&options)?;
    let data = |series| {
        let ns = |parts| {
            let asking = Asking { serial: true, parts, placed: Some(false), ..Asking::default() };
            single(memory.clone(), &table, series, &options, asking).ns()
        };
        ns(WHOLE) - ns(Parts { data: false, ..WHOLE })
    };
    Ok(data(Series::Software(options.mix)) / data(Series::Blocking))
}

/// Kinds of lookups, by the buckets and entries that they look at: of a key in its first bucket, in its other one, in none.
pub const KINDS: [(&str, f64, f64); 3] =
    [("first bucket", 1.0, 1.0), ("other bucket", 2.0, 1.0), ("absent", 2.0, 0.0)];

/// Percent of a lookup's instructions that are its locks'.
pub fn lock_instructions(mix: &Mix, buckets: f64, entries: f64) -> f64 {
    let all = mix.instructions(buckets, entries);
    100.0 * (1.0 - mix.without_lock().instructions(buckets, entries) / all)
}

/// A core's load from DRAM, in nanoseconds: ours, less, and what gem5's own DDR4-2400 makes of it where the row is open: 10 + 14.16 + 3.33 + 10 ns
/// (controller, column, transfer, controller) behind an LLC that has answered after 25.7.
pub const DRAM_NS: [f64; 4] = [90.0, 80.0, 70.0, 63.2];

/// Of software and of LOOKUP_B, with lines in the LLC and in DRAM: in this order, software first. `serial`: each lookup waits for the one before.
///
/// # Errors
/// [`StudyError`].
pub fn breakdowns(options: &Options, serial: bool) -> Result<[[Breakdown; 2]; 2], StudyError> {
    let (memory, table) = table(options)?;
    let of = |series, in_llc| {
        let ns = |parts| {
            let asking = Asking { serial, parts, placed: Some(in_llc), ..Asking::default() };
            single(memory.clone(), &table, series, options, asking).ns()
        };
        let whole = ns(WHOLE);
        let data = whole - ns(Parts { data: false, ..WHOLE });
        let lock = whole - ns(Parts { lock: false, ..WHOLE });
        Breakdown { compute: whole - data - lock, data, lock }
    };
    Ok([Series::Software(options.mix), Series::Blocking].map(|series| [of(series, true), of(series, false)]))
}

/// Steps of the figure, not all of one length: two panels, what software takes once more, each DRAM.
const STEPS: usize = 3 + DRAM_NS.len();

/// The figure, and what the paper's text says of it.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    // What the machine cannot be is to be found before anything is run.
    DRAM_NS.iter().try_for_each(|&load_ns| with_dram(options, load_ns).map(|_| ()))?;
    let mut points = Vec::new();
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done, STEPS);
    };
    for (panel, text, serial) in [
        (
            "each waits for the last: parts of software's time in the LLC",
            "each waits: what the text says",
            true,
        ),
        (
            "overlapping lookups: parts of software's time in the LLC",
            "overlapping: what the text says",
            false,
        ),
    ] {
        let [software, halo] = breakdowns(options, serial)?;
        let unit = software[0].all();
        for (name, parts) in [("software", software), ("halo-blocking", halo)] {
            for (place, parts) in ["LLC", "DRAM"].into_iter().zip(parts) {
                for (part, ns) in [("compute", parts.compute), ("data", parts.data), ("lock", parts.lock)] {
                    let x = Place::Name(format!("{name}, {place}"));
                    points.push(Point { panel, series: part.into(), x, y: ns / unit, paper: None });
                }
            }
        }
        let said = [
            ("data from the LLC, times faster", software[0].data / halo[0].data, 4.1),
            ("data from DRAM, times faster", software[1].data / halo[1].data, 1.6),
            ("computing less, percent", 100.0 * (1.0 - halo[0].compute / software[0].compute), 48.1),
            ("locks of software, percent", 100.0 * software[0].lock / unit, 13.1),
            ("a lookup in the LLC, times faster", unit / halo[0].all(), 3.3),
        ];
        points.extend(said.into_iter().map(|(name, y, paper)| Point {
            panel: text,
            series: "halo-blocking".into(),
            x: Place::Name(name.into()),
            y,
            paper: Some(paper),
        }));
        step();
    }
    points.extend(causes(options, step)?);
    Ok(points)
}

/// What the differences come from.
fn causes(options: &Options, mut step: impl FnMut()) -> Result<Vec<Point>, StudyError> {
    let mut points = Vec::new();
    let mut put = |panel, series: &str, x, y, paper| {
        points.push(Point { panel, series: series.into(), x, y, paper });
    };
    let [software, _] = breakdowns(options, true)?;
    let without = without_the_way(options)?;
    let panel = "each waits: a lookup in the LLC without the way to the accelerator, times faster";
    put(panel, "halo-blocking", Place::Name("LLC".into()), software[0].all() / without, Some(3.3));
    step();
    for load_ns in DRAM_NS {
        let panel = "data from DRAM, times faster, by a core's load from DRAM, ns";
        put(panel, "halo-blocking", Place::Number(load_ns), dram_gain(options, load_ns)?, Some(1.6));
        step();
    }
    for (name, buckets, entries) in KINDS {
        let panel = "locks of software, percent of its instructions (the paper: of its time)";
        let share = lock_instructions(&options.mix, buckets, entries);
        put(panel, options.mix.name, Place::Name(name.into()), share, Some(13.1));
    }
    Ok(points)
}
