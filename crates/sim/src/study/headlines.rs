//! What the paper states in numbers, ours beside it, and ours once more with the one thing that we think makes the difference taken away.
//!
//! A cause is an experiment, not an opinion: `tests/causes.rs` holds the last column to the paper's, within a fifth of it. What each cause is, is said in [`Headline::cause`].

use super::breakdown::{
    Breakdown, DRAM_NS, KINDS, breakdowns, dram_gain, lock_instructions, with_dram, without_the_way,
};
use super::functions::{self, BESIDE, Function};
use super::run::Series;
use super::smt::losses;
use super::tuples::{self, Where};
use super::{Options, Place, Point, Progress, StudyError, in_parallel};
use crate::halo::energy;
use crate::machine::Memory;
use crate::workload::Filled;
use tidemill_flow::keystore::Keystore;

/// A number that the paper states.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// What it is of, with its figure.
    pub name: &'static str,
    /// The paper's: from, to.
    pub paper: [f64; 2],
    /// Ours: from, to.
    pub ours: [f64; 2],
    /// Ours without what makes the difference; the same as `ours` where there is nothing to explain.
    pub without: [f64; 2],
    /// What makes the difference.
    pub cause: &'static str,
}

const fn same(value: f64) -> [f64; 2] {
    [value, value]
}

/// How a headline is found.
type Find = fn(&Options) -> Result<Headline, StudyError>;

/// All of them, in the paper's order.
pub const ALL: [Find; 9] =
    [locks, single, single_dram, computing, data_llc, data_dram, tuple_space, functions, energy_quotient];
/// Those that run two threads on a core.
pub const BESIDE_A_SWITCH: [Find; 2] = [beside_software, beside_halo];

fn locks(options: &Options) -> Result<Headline, StudyError> {
    let [software, _] = breakdowns(options, true)?;
    let shares = KINDS.map(|(_, buckets, entries)| lock_instructions(&options.mix, buckets, entries));
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shares.iter().copied().fold(0.0, f64::max);
    Ok(Headline {
        name: "locks of software, percent (3.4)",
        paper: same(13.1),
        ours: same(100.0 * software[0].lock / software[0].all()),
        without: [least, most],
        cause: "a lookup waits for guesses and loads, never for its locks; without that, by their instructions",
    })
}

fn single(options: &Options) -> Result<Headline, StudyError> {
    let [software, halo] = breakdowns(options, true)?;
    Ok(Headline {
        name: "single lookups in the LLC (9)",
        paper: same(3.3),
        ours: same(software[0].all() / halo[0].all()),
        without: same(software[0].all() / without_the_way(options)?),
        cause: "LOOKUP_B waits for the way to the accelerator and back, as a load from the LLC does; without it",
    })
}

/// The paper's large tables are partly in the LLC (6.1), it does not say how much of them.
fn single_dram(options: &Options) -> Result<Headline, StudyError> {
    let [software, halo] = breakdowns(options, true)?;
    let sooner = with_dram(options, DRAM_NS[DRAM_NS.len() - 1])?;
    let [near_software, near_halo] = breakdowns(&sooner, true)?;
    let way = halo[0].all() - without_the_way(options)?;
    let gain = |software: [Breakdown; 2], halo: [Breakdown; 2], way: f64| {
        let dram = software[1].all() / (halo[1].all() - way);
        [dram, (software[0].all() + software[1].all()) / (halo[0].all() + halo[1].all() - 2.0 * way)]
    };
    Ok(Headline {
        name: "single lookups beyond the LLC (9): all lines in DRAM, half of them",
        paper: same(2.1),
        ours: gain(software, halo, 0.0),
        without: gain(near_software, near_halo, way),
        cause: "the same way, and a DRAM of 90 ns; without the way, with gem5's DDR4 at open rows",
    })
}

/// The paper's locks, of software's time (3.4).
const LOCKS: f64 = 0.131;

fn computing(options: &Options) -> Result<Headline, StudyError> {
    let [software, halo] = breakdowns(options, true)?;
    let way = halo[0].all() - without_the_way(options)?;
    let less = |halo: f64, software: f64| 100.0 * (1.0 - halo / software);
    // Together with locks, less what the paper has of these.
    let without_locks = software[0].compute + software[0].lock - LOCKS * software[0].all();
    Ok(Headline {
        name: "computing less, percent (10)",
        paper: same(48.1),
        ours: same(less(halo[0].compute, software[0].compute)),
        without: same(less(halo[0].compute - way, without_locks)),
        cause: "the way counts as the accelerator's computing here, and locks as software's; without it, without the paper's 13.1 percent of these",
    })
}

fn data_llc(options: &Options) -> Result<Headline, StudyError> {
    let [software, halo] = breakdowns(options, true)?;
    let ours = same(software[0].data / halo[0].data);
    let name = "data from the LLC, times faster (10)";
    Ok(Headline { name, paper: same(4.1), ours, without: ours, cause: "" })
}

fn data_dram(options: &Options) -> Result<Headline, StudyError> {
    let [software, halo] = breakdowns(options, true)?;
    Ok(Headline {
        name: "data from DRAM, times faster (10)",
        paper: same(1.6),
        ours: same(software[1].data / halo[1].data),
        without: same(dram_gain(options, DRAM_NS[DRAM_NS.len() - 1])?),
        cause: "what is saved is the way, of 90 ns; of gem5's DDR4 at open rows",
    })
}

fn tuple_space(options: &Options) -> Result<Headline, StudyError> {
    let mut memory = Memory::new(&options.config);
    let tables: Vec<Filled<Keystore<2>>> = tuples::tables(&mut memory, 20, options)?;
    let ns = |series, packets| tuples::run(memory.clone(), &tables, series, packets, Where::Last, options);
    let software = ns(Series::Software(options.mix), 1);
    let gain = |packets| software / ns(Series::NonBlocking(options.config.halo.batch), packets);
    Ok(Headline {
        name: "tuple space, 20 tuples (11)",
        paper: same(23.4),
        ours: same(gain(1)),
        without: [gain(2), gain(4)],
        cause: "one packet at a time waits for its queries' latency; two to four at a time",
    })
}

/// What the paper's functions gain.
const FUNCTIONS: [f64; 2] = [2.3, 2.7];

/// A function of Figure 13 as it is, and with what makes the difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worked {
    /// Times faster as it is.
    pub bare: f64,
    /// Instructions beside lookups: the fewest of [`BESIDE`] with which it gains no more than the paper's do; the most if there are none.
    pub beside: f64,
    /// Times faster with these.
    pub gain: f64,
}

/// A function by itself.
///
/// # Errors
/// [`StudyError`].
pub fn worked(function: Function, options: &Options) -> Result<Worked, StudyError> {
    let series = Series::NonBlocking(options.config.halo.batch);
    let gain = |beside: f64| -> Result<f64, StudyError> {
        let entries = function.sizes()[1];
        let ns = |series| functions::run::<Keystore<2>>(function, entries, series, beside, options);
        Ok(ns(Series::Software(options.mix))? / ns(series)?)
    };
    let [least, more @ ..] = BESIDE;
    let bare = gain(least)?;
    let mut worked = Worked { bare, beside: least, gain: bare };
    for beside in more {
        if worked.gain <= FUNCTIONS[1] {
            break;
        }
        worked = Worked { bare, beside, gain: gain(beside)? };
    }
    Ok(worked)
}

fn functions(options: &Options) -> Result<Headline, StudyError> {
    let all = functions::ALL.into_iter().map(|function| worked(function, options));
    let all: Vec<Worked> = all.collect::<Result<_, _>>()?;
    let ends = |of: fn(&Worked) -> f64| {
        let least = all.iter().map(of).fold(f64::INFINITY, f64::min);
        [least, all.iter().map(of).fold(0.0, f64::max)]
    };
    Ok(Headline {
        name: "network functions (13)",
        paper: FUNCTIONS,
        ours: ends(|worked| worked.bare),
        without: ends(|worked| worked.gain),
        cause: "ours do little beside lookups; with as many instructions beside as bring each to 2.7 or less",
    })
}

fn energy_quotient(_: &Options) -> Result<Headline, StudyError> {
    let ours = same(energy::tcam(100_000).query_nj / energy::HALO.query_nj);
    let name = "energy of a query in TCAM, times HALO's (Table 4, an input)";
    Ok(Headline { name, paper: same(48.2), ours, without: ours, cause: "" })
}

/// Flows of the switch beside.
const FLOWS: u64 = 100_000;

fn beside_software(options: &Options) -> Result<Headline, StudyError> {
    let software = Series::Software(options.mix);
    Ok(Headline {
        name: "lost beside software, percent (12)",
        paper: [17.0, 26.0],
        ours: losses(software, FLOWS, false, options)?,
        without: losses(software, FLOWS, true, options)?,
        cause: "two of our functions need little of L1, or never had it; over 24 KiB, all hot",
    })
}

fn beside_halo(options: &Options) -> Result<Headline, StudyError> {
    let ours = losses(Series::Blocking, FLOWS, false, options)?;
    let name = "lost beside LOOKUP_B, percent (12: less than)";
    Ok(Headline { name, paper: same(3.2), ours, without: ours, cause: "" })
}

/// The page.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options, progress: Progress<'_>) -> Result<Vec<Point>, StudyError> {
    let all: Vec<Find> = ALL.into_iter().chain(BESIDE_A_SWITCH).collect();
    let headlines: Result<Vec<Headline>, StudyError> =
        in_parallel(options.jobs, &all, progress, |find| find(options)).into_iter().collect();
    Ok(headlines?.iter().flat_map(Headline::points).collect())
}

impl Headline {
    /// A panel: as it is, and without the cause.
    fn points(&self) -> Vec<Point> {
        let mut columns = vec![("as it is", self.ours)];
        if !self.cause.is_empty() {
            columns.push((self.cause, self.without));
        }
        let is_one = self.paper[0] == self.paper[1] && columns.iter().all(|(_, ys)| ys[0] == ys[1]);
        let ends: &[&str] = if is_one { &["ours"] } else { &["ours, least", "ours, most"] };
        let mut points = Vec::new();
        for (column, ys) in columns {
            for ((series, y), paper) in ends.iter().zip(ys).zip(self.paper) {
                let x = Place::Name(column.into());
                points.push(Point { panel: self.name, series: (*series).into(), x, y, paper: Some(paper) });
            }
        }
        points
    }

    /// Whether some number without the cause is within a fifth of what the paper states: ranges have to meet.
    pub fn is_explained(&self) -> bool {
        let [low, high] = self.without;
        low.is_finite() && high.is_finite() && low <= 1.2 * self.paper[1] && high >= 0.8 * self.paper[0]
    }
}
