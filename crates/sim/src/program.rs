//! The programs that a core runs: a lookup in software, one by LOOKUP_B, several by LOOKUP_NB and SNAPSHOT_READ, one in a TCAM.
//!
//! Each takes the time at which its input is there and returns that of its result. A program that looks up keys as they come
//! passes 0: nothing but the core's window holds a lookup back. One that needs the last result for the next key passes that.

use crate::halo::tcam::Tcam;
use crate::halo::{Accelerators, Destination, Query};
use crate::machine::memory::{LINE, Memory};
use crate::machine::{Core, Step, Time};
use crate::mix::{CHECK, MASK, Mix};
use crate::tape::Touch;

/// One lookup of a table.
#[derive(Debug, Clone, Copy)]
pub struct Lookup<'a> {
    /// The table's description.
    pub table: u64,
    /// The key.
    pub key: u64,
    /// Its bytes.
    pub key_bytes: u64,
    /// Whether it is masked first.
    pub masked: bool,
    /// What the table's lookup touches.
    pub touches: &'a [Touch],
}

impl Lookup<'_> {
    fn query(&self, to: Destination) -> Query<'_> {
        let Lookup { table, key, key_bytes, masked, touches } = *self;
        Query { table, key, key_bytes, masked, touches, to }
    }
}

/// What of a lookup is left out, to see what it costs: Figure 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Whether lines of the table are where they are; else in L1.
    pub data: bool,
    /// Whether locks are taken.
    pub lock: bool,
    /// Whether the way from a core to an accelerator and back takes its time.
    pub way: bool,
}

/// All of it.
pub const WHOLE: Parts = Parts { data: true, lock: true, way: true };

/// Software, one lookup at a time.
#[derive(Debug)]
pub struct Software {
    mix: Mix,
    parts: Parts,
    /// Wrong guesses that have gathered.
    wrong: f64,
}

impl Software {
    /// With the instructions of a table.
    pub fn new(mix: Mix, parts: Parts) -> Self {
        Software { mix: if parts.lock { mix } else { mix.without_lock() }, parts, wrong: 0.0 }
    }

    fn guess(&mut self, core: &mut Core, kind: usize, decided: Time) {
        self.wrong += self.mix.wrong[kind];
        if self.wrong >= 1.0 {
            self.wrong -= 1.0;
            core.mispredict(decided);
        }
    }

    fn read(&self, core: &mut Core, memory: &mut Memory, address: u64, bytes: u64, ready: Time) -> Time {
        if self.parts.data {
            return core.load(memory, address, bytes, ready);
        }
        let chain_cycles = memory.config().cache.l1_cycles;
        core.work(memory, &Step { instructions: 1.0, loads: 1.0, stores: 0.0, chain_cycles }, ready)
    }

    /// A lookup: when its result is there.
    pub fn lookup(&mut self, core: &mut Core, memory: &mut Memory, lookup: &Lookup<'_>, after: Time) -> Time {
        let mix = self.mix;
        let mut key = core.load(memory, lookup.key, lookup.key_bytes, after);
        if lookup.masked {
            key = core.work(memory, &MASK, key);
        }
        let hashed = core.work(memory, &mix.hash, key);
        let hashed = core.work(memory, &mix.base.and(mix.lock[0]), hashed);
        let (mut value, mut buckets) = (hashed, 0);
        for touch in lookup.touches {
            match *touch {
                Touch::Step => {
                    if buckets > 0 {
                        core.branch(0, true, value);
                    }
                    buckets += 1;
                }
                Touch::Read { address, bytes, dependent: false } => {
                    let there = self.read(core, memory, address, bytes, hashed);
                    value = core.work(memory, &mix.bucket.and(mix.lock[1]), there);
                    self.guess(core, 1, value);
                }
                Touch::Read { address, bytes, dependent: true } => {
                    let there = self.read(core, memory, address, bytes, value);
                    value = core.work(memory, &mix.entry, there);
                    self.guess(core, 2, value);
                }
                Touch::Write { address, bytes } => {
                    core.store(memory, address, bytes, value);
                }
            }
        }
        if buckets == 1 {
            core.branch(0, false, value);
        }
        self.guess(core, 0, value);
        value
    }

    /// Lookups as a batch does them: first buckets asked for, then entries, then lookups that find everything there.
    pub fn batch(
        &mut self,
        core: &mut Core,
        memory: &mut Memory,
        lookups: &[Lookup<'_>],
        prefetches: &Step,
        after: Time,
    ) -> Time {
        let half = Step {
            instructions: prefetches.instructions / 2.0,
            loads: prefetches.loads / 2.0,
            stores: prefetches.stores / 2.0,
            chain_cycles: prefetches.chain_cycles,
        };
        let hashed: Vec<Time> = lookups
            .iter()
            .map(|lookup| {
                let key = core.load(memory, lookup.key, lookup.key_bytes, after);
                let hashed = core.work(memory, &self.mix.hash, key);
                let hashed = core.work(memory, &half, hashed);
                for touch in lookup.touches {
                    if let Touch::Read { address, dependent: false, .. } = *touch {
                        core.prefetch(memory, address, hashed);
                    }
                }
                hashed
            })
            .collect();
        for (lookup, hashed) in lookups.iter().zip(hashed) {
            let mut there = hashed;
            for touch in lookup.touches {
                match *touch {
                    Touch::Read { address, dependent: false, .. } => {
                        there = core.load(memory, address, 8, hashed)
                    }
                    Touch::Read { address, dependent: true, .. } => {
                        let at = core.work(memory, &half, there);
                        core.prefetch(memory, address, at);
                        break;
                    }
                    _ => {}
                }
            }
        }
        let mix = self.mix;
        // The hashes are there already.
        self.mix.hash = Step::default();
        let done =
            lookups.iter().map(|lookup| self.lookup(core, memory, lookup, after)).max().unwrap_or(after);
        self.mix = mix;
        done
    }
}

/// One LOOKUP_B. Whether it `stalls`, so that nothing enters until its result is there (5.1), or is like a load that the window may pass (4.5): the
/// paper says both.
pub fn blocking(
    core: &mut Core,
    memory: &mut Memory,
    halo: &mut Accelerators,
    lookup: &Lookup<'_>,
    after: Time,
    stalls: bool,
) -> Time {
    let seat = core.seat();
    let query = lookup.query(Destination::Register);
    let done = core.ask(memory, after, |memory, at| halo.lookup(memory, seat, at, &query).done);
    if stalls {
        core.stall_until(done);
    }
    done
}

/// Lines of results, used in turn.
#[derive(Debug)]
pub struct Results {
    first: u64,
    lines: u64,
    next: u64,
}

impl Results {
    /// So many lines.
    pub fn new(memory: &mut Memory, lines: u64) -> Self {
        Results { first: memory.pages.allot(lines * LINE), lines: lines.max(1), next: 0 }
    }

    fn take(&mut self) -> u64 {
        self.next += 1;
        self.first + self.next % self.lines * LINE
    }
}

/// Some LOOKUP_NBs, up to eight to a line of results, then SNAPSHOT_READs of each line until all eight are there: when the last is.
pub fn nonblocking(
    core: &mut Core,
    memory: &mut Memory,
    halo: &mut Accelerators,
    results: &mut Results,
    lookups: &[Lookup<'_>],
    after: Time,
) -> Time {
    let seat = core.seat();
    let mut waiting = Vec::with_capacity(3);
    for group in lookups.chunks(memory.config().halo.batch) {
        let line = results.take();
        // Zeros, so that what has come can be told from what has not.
        core.store(memory, line, LINE, after);
        let mut last = after;
        for (i, lookup) in group.iter().enumerate() {
            let query = lookup.query(Destination::Memory(line + 8 * i as u64));
            core.send(memory, after, |memory, at| {
                let answer = halo.lookup(memory, seat, at, &query);
                last = last.max(answer.done);
                answer.accepted
            });
        }
        waiting.push((line, last));
    }
    let mut done = after;
    for (line, last) in waiting {
        let mut ask_at = after;
        loop {
            let mut read_at = 0;
            let there = core.ask(memory, ask_at, |memory, at| {
                let (read, there) = memory.snapshot(seat, line, at);
                read_at = read;
                there
            });
            let seen = core.work(memory, &CHECK, there);
            // The loop's end is a guess: that it goes on is right until it does not.
            core.branch(15, read_at < last, seen);
            if read_at >= last {
                done = done.max(seen);
                break;
            }
            ask_at = seen;
        }
    }
    done
}

/// One search of a TCAM, which the core waits for as for LOOKUP_B.
pub fn search(
    core: &mut Core,
    memory: &mut Memory,
    tcam: &mut Tcam,
    lookup: &Lookup<'_>,
    after: Time,
) -> Time {
    let seat = core.seat();
    let key = core.load(memory, lookup.key, lookup.key_bytes, after);
    let done = core.ask(memory, key, |memory, at| tcam.lookup(memory, seat, at));
    core.stall_until(done);
    done
}
