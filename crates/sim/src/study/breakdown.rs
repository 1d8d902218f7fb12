//! Figure 10: what a lookup's latency is made of, its lines in the LLC or in DRAM.
//!
//! Each lookup waits for the one before. Parts are found by leaving them out: the table's lines are in L1 (an accelerator has them at once), or
//! locks are not taken; what is left is computing.

use super::run::{Asking, Series, single};
use super::{Options, Place, Point, StudyError};
use crate::machine::Memory;
use crate::program::Parts;
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

/// Of software and of LOOKUP_B, with lines in the LLC and in DRAM: in this order, software first. `serial`: each lookup waits for the one before.
///
/// # Errors
/// [`StudyError`].
pub fn breakdowns(options: &Options, serial: bool) -> Result<[[Breakdown; 2]; 2], StudyError> {
    let mut memory = Memory::new(&options.config);
    let table: Filled<Keystore<2>> = Filled::new(&mut memory, 1 << 14, (1 << 14) * 3 / 4, options.seed)?;
    let of = |series, in_llc| {
        let ns = |parts| {
            let asking = Asking { serial, parts, placed: Some(in_llc) };
            single(memory.clone(), &table, series, options, asking).ns()
        };
        let whole = ns(Parts { data: true, lock: true });
        let data = whole - ns(Parts { data: false, lock: true });
        let lock = whole - ns(Parts { data: true, lock: false });
        Breakdown { compute: whole - data - lock, data, lock }
    };
    Ok([Series::Software(options.mix), Series::Blocking].map(|series| [of(series, true), of(series, false)]))
}

/// The figure, and what the paper's text says of it.
///
/// # Errors
/// [`StudyError`].
pub fn figure(options: &Options) -> Result<Vec<Point>, StudyError> {
    let mut points = Vec::new();
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
    }
    Ok(points)
}
