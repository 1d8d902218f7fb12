//! The accelerators, one at each slice, and the distributor in front of them (4.3, 4.4).

use crate::machine::calendar::Calendar;
use crate::machine::config::Distributor;
use crate::machine::memory::{LINE, Memory, lines};
use crate::machine::mesh::scaled;
use crate::machine::{Config, Time};
use crate::tape::Touch;

/// Where a result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// To a register of the core that asked: LOOKUP_B.
    Register,
    /// To 8 bytes of memory: LOOKUP_NB.
    Memory(u64),
}

/// What a lookup instruction says, and what the lookup will touch.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Where the table's description is: what RAX has.
    pub table: u64,
    /// Where the key is.
    pub key: u64,
    /// Its bytes.
    pub key_bytes: u64,
    /// Whether the table has a mask.
    pub masked: bool,
    /// What the table's own lookup touches.
    pub touches: &'a [Touch],
    /// See [`Destination`].
    pub to: Destination,
}

/// When a query was taken and answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// An accelerator has it: a LOOKUP_NB's entry of the store queue is free.
    pub accepted: Time,
    /// Its result is where it goes.
    pub done: Time,
    /// By which accelerator.
    pub slice: usize,
}

/// What the accelerators have done: what energy is reckoned by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// Queries.
    pub queries: u64,
    /// Descriptions of tables that were not in the metadata cache.
    pub metadata_misses: u64,
    /// Descriptions that were taken away: somebody wrote them, or the LLC let them go.
    pub metadata_lost: u64,
    /// Keys hashed.
    pub hashes: u64,
    /// Lines compared: buckets and entries, one that is read again at once only the first time.
    pub compares: u64,
    /// Queries that met a busy bit.
    pub held_back: u64,
    /// Lines locked, one for each line of each read.
    pub locks: u64,
}

impl Activity {
    /// What has been done since then.
    pub(crate) fn since(&self, then: &Activity) -> Activity {
        Activity {
            queries: self.queries - then.queries,
            metadata_misses: self.metadata_misses - then.metadata_misses,
            metadata_lost: self.metadata_lost - then.metadata_lost,
            hashes: self.hashes - then.hashes,
            compares: self.compares - then.compares,
            held_back: self.held_back - then.held_back,
            locks: self.locks - then.locks,
        }
    }
}

/// One accelerator.
#[derive(Debug)]
struct Accelerator {
    /// Until when each entry of the scoreboard is taken.
    scoreboard: Vec<Time>,
    /// Descriptions' lines, the most recently used first.
    metadata: Vec<u64>,
    hash: Calendar,
    compare: Calendar,
}

/// All of them. See the [module](self).
#[derive(Debug)]
pub struct Accelerators {
    units: Vec<Accelerator>,
    config: Config,
    hash_ps: f64,
    compare_ps: Time,
    mask_ps: Time,
    step_ps: Time,
    /// What they have done.
    pub activity: Activity,
    /// Whether buckets and entries are locked while a query is under way.
    pub locking: bool,
    /// Whether lines of the table are where they are; else they are there at once, to see what they cost.
    pub data: bool,
    /// Whether the way between a core and an accelerator takes its time; likewise.
    pub way: bool,
}

impl Query<'_> {
    /// The line of the first bucket.
    fn first_line(&self) -> Option<u64> {
        self.touches.iter().find_map(|touch| match *touch {
            Touch::Read { address, .. } => Some(address / LINE),
            _ => None,
        })
    }
}

impl Accelerators {
    /// One for each slice of the machine.
    pub fn new(config: &Config) -> Self {
        let unit = || Accelerator {
            scoreboard: vec![0; config.halo.scoreboard],
            metadata: Vec::new(),
            hash: Calendar::new(config.ps(1.0)),
            compare: Calendar::new(config.ps(config.halo.compare_cycles)),
        };
        Accelerators {
            units: (0..config.slices).map(|_| unit()).collect(),
            hash_ps: config.halo.hash_cycles * 1e3 / config.ghz,
            compare_ps: config.ps(config.halo.compare_cycles),
            mask_ps: config.ps(config.halo.mask_cycles),
            step_ps: config.ps(config.halo.step_cycles),
            config: config.clone(),
            activity: Activity::default(),
            locking: true,
            data: true,
            way: true,
        }
    }

    /// The slice whose accelerator gets a query.
    pub fn slice_of(&self, query: &Query<'_>) -> usize {
        let line = match self.config.halo.distributor {
            Distributor::Table => query.table / LINE,
            Distributor::Key => query.key / LINE,
            // The hash that spreads lines over slices is this one too (`Mesh::home`).
            Distributor::Bucket => query.first_line().unwrap_or(query.table / LINE),
        };
        scaled(line, self.config.slices)
    }

    fn way_ps(&self, memory: &Memory, core: usize, slice: usize) -> Time {
        if self.way { memory.to_slice_ps(core, slice) } else { 0 }
    }

    /// A query leaves a core at a time: all that becomes of it.
    pub fn lookup(&mut self, memory: &mut Memory, core: usize, at: Time, query: &Query<'_>) -> Answer {
        let slice = self.slice_of(query);
        let way = self.way_ps(memory, core, slice);
        let by_bucket = self.config.halo.distributor == Distributor::Bucket;
        let arrives = if by_bucket {
            let tile = core % self.config.slices;
            let at = at + self.way_ps(memory, core, tile);
            self.hashed(memory, tile, at, query) + memory.mesh().travel_ps(tile, slice)
        } else {
            at + way
        };
        let unit = &mut self.units[slice];
        let (place, free) =
            unit.scoreboard.iter().copied().enumerate().min_by_key(|&(_, until)| until).unwrap_or((0, 0));
        let mut start = arrives;
        if free > arrives {
            // The busy bit is set: the distributor, which is at the core's tile, sends it when the bit is cleared.
            self.activity.held_back += 1;
            start = free + 2 * memory.mesh().travel_ps(core, slice);
        }
        let accepted = start;
        self.activity.queries += 1;
        let hashed = if by_bucket { start } else { self.hashed(memory, slice, start, query) };
        let done = self.search(memory, slice, hashed, query);
        self.units[slice].scoreboard[place] = done;
        let done = match query.to {
            Destination::Register => done + way,
            Destination::Memory(result) => memory.near_store(slice, result, 8, done),
        };
        Answer { accepted, done, slice }
    }

    /// A query's first steps: when the unit of this slice knows the key's hash.
    fn hashed(&mut self, memory: &mut Memory, slice: usize, start: Time, query: &Query<'_>) -> Time {
        let now = self.metadata(memory, slice, query.table / LINE, start) + self.step_ps;
        let now = memory.near_load(slice, query.key, query.key_bytes, now) + self.step_ps;
        let now = now + if query.masked { self.mask_ps } else { 0 };
        self.activity.hashes += 1;
        let words = query.key_bytes.div_ceil(8) as f64;
        self.units[slice].hash.reserve(now) + (self.hash_ps * words) as Time + self.step_ps
    }

    /// The others, from then on: when its result is in the result queue.
    fn search(&mut self, memory: &mut Memory, slice: usize, hashed: Time, query: &Query<'_>) -> Time {
        let (mut now, mut last) = (hashed, None);
        for touch in query.touches {
            if let Touch::Read { address, bytes, .. } = *touch {
                if self.data {
                    now = memory.near_load(slice, address, bytes, now);
                }
                // Lines go through the comparators one after the other. One that is read again is fetched again: accelerators keep none.
                let mut compared = now;
                for _ in lines(address, bytes).filter(|&line| last != Some(line)) {
                    self.activity.compares += 1;
                    compared = compared.max(self.units[slice].compare.reserve(now) + self.compare_ps);
                }
                last = lines(address, bytes).last();
                now = compared + self.step_ps;
            }
        }
        if self.locking {
            for touch in query.touches {
                if let Touch::Read { address, bytes, .. } = *touch {
                    for line in lines(address, bytes) {
                        self.activity.locks += 1;
                        memory.lock(line, hashed, now);
                    }
                }
            }
        }
        now
    }

    /// The table's description is at the accelerator.
    fn metadata(&mut self, memory: &mut Memory, slice: usize, line: u64, at: Time) -> Time {
        while let Some((slice, line)) = memory.metadata_lost() {
            let kept = &mut self.units[slice].metadata;
            let before = kept.len();
            kept.retain(|&other| other != line);
            self.activity.metadata_lost += (before - kept.len()) as u64;
        }
        let kept = &mut self.units[slice].metadata;
        if let Some(place) = kept.iter().position(|&other| other == line) {
            kept[..=place].rotate_right(1);
            return at;
        }
        self.activity.metadata_misses += 1;
        kept.insert(0, line);
        let gone = if kept.len() > self.config.halo.metadata_tables { kept.pop() } else { None };
        let at = memory.near_load(slice, line * LINE, LINE, at);
        memory.metadata_kept(slice, line, true);
        if let Some(gone) = gone {
            memory.metadata_kept(slice, gone, false);
        }
        at
    }
}
