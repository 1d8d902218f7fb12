//! What HALO is compared with: a TCAM that holds all rules, and its form in SRAM (sub-tables in blocks of SRAM, searched at once).
//!
//! One search finds the best of all rules, whatever the tuples are. The memory stands in the middle of the mesh; a search there is pipelined, one per
//! cycle, and takes [`TcamConfig`](crate::machine::config::TcamConfig)'s cycles. It has no need to be asked where data lies and
//! is never full: what it costs is in [`super::energy`].

use crate::machine::calendar::Calendar;
use crate::machine::{Config, Memory, Time};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ternary cells.
    Tcam,
    /// SRAM blocks.
    Sram,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Tcam {
    search: Calendar,
    search_ps: Time,
    tile: usize,
    /// Searches.
    pub queries: u64,
}

impl Tcam {
    /// One for the machine.
    pub fn new(config: &Config, kind: Kind) -> Self {
        let cycles = match kind {
            Kind::Tcam => config.tcam.tcam_cycles,
            Kind::Sram => config.tcam.sram_cycles,
        };
        let rows = config.slices.div_ceil(config.mesh.columns);
        let tile = rows / 2 * config.mesh.columns + config.mesh.columns / 2;
        Tcam { search: Calendar::new(config.ps(1.0)), search_ps: config.ps(cycles), tile, queries: 0 }
    }

    /// A search with a key that the core sends along: when the result is in a register.
    pub fn lookup(&mut self, memory: &Memory, core: usize, at: Time) -> Time {
        self.queries += 1;
        let way = memory.to_slice_ps(core, self.tile);
        self.search.reserve(at + way) + self.search_ps + way
    }
}
