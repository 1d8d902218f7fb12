//! The memory system: private caches, slices with their caching and home agents (CHAs), DRAM; who has which line, and who has locked it.
//!
//! ```text
//! core -- L1 -- L2 --(interface)-- mesh -- CHA + slice of the LLC ------ DRAM channel
//!                                            |  per line: cores that have it (core-valid bits), its owner,
//!                                            |            metadata caches that have it, lock
//!                                            +-- accelerator: no L1, no L2, no interface
//! ```
//!
//! The LLC holds what private caches hold. A line has one owner or any number of sharers (MESI without telling E from M). Every access changes the
//! state of the caches at once and is answered with the time at which its data is there; until then the line is
//! outstanding, and if its core asks for it again, that waits for the same answer (MSHR merge). Others, and accelerators, that ask for a line on
//! its way from DRAM wait at its slice until it has come. What is limited - MSHRs, ports of slices, channels - is a [`Calendar`] or a count.
//!
//! Not modelled: TLBs (tables lie on huge pages), contention on links, DRAM rows and banks, changed lines that go back to DRAM, prefetchers (programs prefetch themselves).

use super::cache::Cache;
use super::calendar::{Calendar, Time};
use super::config::Config;
use super::mesh::{Mesh, scaled};
use super::pages::Pages;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Locks that are kept without a look at how old they are.
const MANY_LOCKS: usize = 1 << 16;

/// Bytes of a line.
pub const LINE: u64 = 64;

/// What the LLC knows about a line.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Cores that have it.
    cores: u64,
    /// The core that may write it, plus one.
    owner: u8,
    /// Slices whose metadata caches have it.
    near: u64,
    /// When it comes, or came, from DRAM.
    comes: Time,
}

/// When a line of the LLC has been locked: the last two times, which are apart.
type Locks = [(Time, Time); 2];

/// A core's own caches, and what its hardware threads share.
#[derive(Debug, Clone)]
struct Private {
    l1: Cache<()>,
    /// Whether the core may write the line.
    l2: Cache<bool>,
    outstanding: Vec<(u64, Time)>,
    front: Calendar,
}

/// Where accesses have been answered, and what else has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads and stores of cores, by lines.
    pub accesses: u64,
    /// Not in L1.
    pub l1_misses: u64,
    /// Not in L2 either.
    pub l2_misses: u64,
    /// From DRAM, for whomever.
    pub dram: u64,
    /// Accelerators' accesses.
    pub near: u64,
    /// Of a slice that is not the accelerator's own.
    pub near_elsewhere: u64,
    /// Accesses that waited for a line that was on its way, to their core or to its slice.
    pub merged: u64,
    /// Times that a line was asked of the core that owned it.
    pub snoops: u64,
    /// Times that a writer met a lock (a snoop miss).
    pub retries: u64,
}

/// Latencies in picoseconds.
#[derive(Debug, Clone, Copy)]
struct Latencies {
    l1: Time,
    l2: Time,
    /// Half of what lies between a core's L2 and its tile's CHA, there and back.
    interface: Time,
    slice: Time,
    dram: Time,
    snoop: Time,
    retry: Time,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Memory {
    config: Config,
    ps: Latencies,
    mesh: Mesh,
    private: Vec<Private>,
    llc: Vec<Cache<Known>>,
    ports: Vec<Calendar>,
    channels: Vec<Calendar>,
    locks: HashMap<u64, Locks, FixedState>,
    /// With so many, those of long ago are forgotten.
    many_locks: usize,
    /// Where real tables lie in it.
    pub pages: Pages,
    /// What has happened.
    pub counts: Counts,
    /// Lines that metadata caches must forget: of a slice, a line.
    invalidated: Vec<(usize, u64)>,
    untimed: bool,
}

impl Memory {
    /// Empty caches. The configuration has been [checked](Config::check).
    pub fn new(config: &Config) -> Self {
        let ps = |cycles| config.ps(cycles);
        let cache = &config.cache;
        let interface = ps((cache.llc_cycles - cache.l2_cycles - cache.slice_cycles) / 2.0);
        let line = LINE as usize;
        let private = || Private {
            l1: Cache::new((cache.l1_kib << 10) / line, cache.l1_ways, false),
            l2: Cache::new((cache.l2_kib << 10) / line, cache.l2_ways, false),
            outstanding: Vec::new(),
            front: Calendar::new(ps(1.0)),
        };
        let slice_lines = (cache.llc_kib << 10) / line / config.slices;
        Memory {
            ps: Latencies {
                l1: ps(cache.l1_cycles),
                l2: ps(cache.l2_cycles),
                interface,
                slice: ps(cache.slice_cycles),
                // What is left of a load from memory in the slice next to the core.
                dram: ((config.dram.load_ns * 1e3).round() as Time).saturating_sub(ps(cache.llc_cycles)),
                snoop: ps(cache.snoop_cycles),
                retry: ps(cache.retry_cycles).max(1),
            },
            mesh: Mesh::new(config.slices, config.mesh.columns, ps(config.mesh.hop_cycles)),
            private: (0..config.cores).map(|_| private()).collect(),
            llc: (0..config.slices).map(|_| Cache::new(slice_lines, cache.llc_ways, true)).collect(),
            ports: vec![Calendar::new(ps(cache.slice_busy_cycles)); config.slices],
            channels: vec![Calendar::new((config.dram.line_ns * 1e3) as Time); config.dram.channels],
            locks: HashMap::with_hasher(FixedState::with_seed(0)),
            many_locks: MANY_LOCKS,
            pages: Pages::default(),
            counts: Counts::default(),
            invalidated: Vec::new(),
            untimed: false,
            config: config.clone(),
        }
    }

    /// The same caches and what is in them, with the latencies of a machine whose caches are of the same sizes. Nothing has been timed in
    /// them yet.
    pub fn retimed(&self, config: &Config) -> Self {
        let Memory { private, llc, pages, .. } = self.clone();
        Memory { private, llc, pages, ..Memory::new(config) }
    }

    /// The machine's numbers.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Runs something that changes what caches hold and takes no time, such as filling a table before an experiment.
    pub fn untimed<R>(&mut self, run: impl FnOnce(&mut Self) -> R) -> R {
        self.untimed = true;
        let result = run(self);
        self.untimed = false;
        result
    }

    /// A slot of a core's front end, which its hardware threads share: one cycle.
    #[inline]
    pub(super) fn front(&mut self, core: usize, at: Time) -> Time {
        self.private[core].front.reserve(at)
    }

    /// How long a message takes between a core and the CHA of a slice, one way.
    #[inline]
    pub fn to_slice_ps(&self, core: usize, slice: usize) -> Time {
        self.ps.interface + self.mesh.travel_ps(core, slice)
    }

    /// A load of a core: when the last of its lines is there.
    #[inline]
    pub fn load(&mut self, core: usize, address: u64, bytes: u64, at: Time) -> Time {
        lines(address, bytes).map(|line| self.access(core, line, at, false)).max().unwrap_or(at)
    }

    /// A store of a core: when the last of its lines is the core's.
    #[inline]
    pub fn store(&mut self, core: usize, address: u64, bytes: u64, at: Time) -> Time {
        lines(address, bytes).map(|line| self.access(core, line, at, true)).max().unwrap_or(at)
    }

    fn access(&mut self, core: usize, line: u64, at: Time, write: bool) -> Time {
        self.counts.accesses += 1;
        let private = &mut self.private[core];
        let pending = private.outstanding.iter().find(|&&(other, done)| other == line && done > at);
        let pending = pending.map(|&(_, done)| done);
        let owned = private.l2.peek(line).copied();
        if let Some(owned) = owned.filter(|owned| *owned || !write) {
            if let Some(done) = pending {
                private.l1.touch(line);
                private.l2.touch(line);
                self.counts.merged += 1;
                return done;
            }
            if private.l1.touch(line).is_some() {
                return at + self.ps.l1;
            }
            self.counts.l1_misses += 1;
            private.l2.touch(line);
            private.l1.fill(line, ());
            return at + if owned && write { self.ps.l1 } else { self.ps.l2 };
        }
        self.counts.l1_misses += 1;
        self.counts.l2_misses += 1;
        let issue = self.mshr(core, pending.unwrap_or(at).max(at));
        let done = self.fetch(core, line, issue, write);
        self.keep(core, line, write);
        if !self.untimed {
            self.private[core].outstanding.push((line, done));
        }
        done
    }

    /// When an MSHR is free.
    fn mshr(&mut self, core: usize, at: Time) -> Time {
        let most = self.config.cache.mshr;
        let outstanding = &mut self.private[core].outstanding;
        if outstanding.len() >= 4 * most {
            // Those that are done first are of no interest any more.
            outstanding.sort_unstable_by_key(|&(_, done)| done);
            outstanding.drain(..2 * most);
        }
        let mut later: Vec<Time> = Vec::new();
        if outstanding.len() >= most {
            later.extend(outstanding.iter().map(|&(_, done)| done).filter(|&done| done > at));
        }
        if later.len() < most {
            return at;
        }
        later.sort_unstable();
        later[later.len() - most]
    }

    /// Brings a line to a core's tile, for reading or for writing.
    fn fetch(&mut self, core: usize, line: u64, issue: Time, write: bool) -> Time {
        let home = self.mesh.home(line);
        let mut arrive = issue + self.ps.l2 + self.to_slice_ps(core, home);
        if write {
            arrive = self.past_lock(line, arrive);
        }
        let (mut data, known) = self.slice(home, line, arrive);
        let (mut known, me) = (known, 1_u64 << core);
        if known.owner != 0 && usize::from(known.owner) != core + 1 {
            data += self.snoop(home, line, known.owner, write);
            known.owner = 0;
        }
        if write {
            let others = known.cores & !me;
            data = data.max(start_of_invalidations(data, others, |other| {
                2 * self.mesh.travel_ps(home, other) + self.ps.snoop
            }));
            self.take_from(line, others, known.near);
            known = Known { cores: me, owner: core as u8 + 1, near: 0, ..known };
        } else {
            known.cores |= me;
        }
        self.note(home, line, known);
        data + self.to_slice_ps(core, home)
    }

    /// A line in its slice, or brought there: when, and what is known about it.
    fn slice(&mut self, home: usize, line: u64, arrive: Time) -> (Time, Known) {
        let start = if self.untimed { arrive } else { self.ports[home].reserve(arrive) };
        let data = start + self.ps.slice;
        if let Some(known) = self.llc[home].touch(line) {
            if known.comes > data && !self.untimed {
                // Who is asked later and asks for an earlier time would have brought it himself.
                self.counts.merged += u64::from(known.comes <= data + self.ps.dram);
                known.comes = known.comes.min(data + self.ps.dram);
            }
            return (if self.untimed { data } else { data.max(known.comes) }, *known);
        }
        self.counts.dram += 1;
        let mut known = Known::default();
        if !self.untimed {
            let channel = scaled(line ^ 0x5555, self.channels.len());
            known.comes = self.channels[channel].reserve(data) + self.ps.dram;
        }
        if let Some((gone, known)) = self.llc[home].fill(line, known) {
            self.take_from(gone, known.cores, known.near);
        }
        (data.max(known.comes), known)
    }

    fn note(&mut self, home: usize, line: u64, known: Known) {
        if let Some(kept) = self.llc[home].peek(line) {
            *kept = known;
        }
    }

    /// Asks a line of its owner, who keeps it for reading at most.
    fn snoop(&mut self, home: usize, line: u64, owner: u8, write: bool) -> Time {
        self.counts.snoops += 1;
        let owner = usize::from(owner) - 1;
        if write {
            self.drop_private(owner, line);
        } else if let Some(owned) = self.private[owner].l2.peek(line) {
            *owned = false;
        }
        2 * self.mesh.travel_ps(home, owner) + self.ps.snoop
    }

    /// Takes a line from some cores and metadata caches.
    fn take_from(&mut self, line: u64, cores: u64, near: u64) {
        for core in bits(cores) {
            self.drop_private(core, line);
        }
        self.invalidated.extend(bits(near).map(|slice| (slice, line)));
    }

    fn drop_private(&mut self, core: usize, line: u64) {
        let private = &mut self.private[core];
        private.l1.remove(line);
        private.l2.remove(line);
        private.outstanding.retain(|&(other, _)| other != line);
    }

    /// Puts a line into a core's caches.
    fn keep(&mut self, core: usize, line: u64, owned: bool) {
        let private = &mut self.private[core];
        if let Some(kept) = private.l2.touch(line) {
            *kept |= owned;
        } else if let Some((gone, _)) = private.l2.fill(line, owned) {
            private.l1.remove(gone);
            let home = self.mesh.home(gone);
            if let Some(known) = self.llc[home].peek(gone) {
                known.cores &= !(1 << core);
                if usize::from(known.owner) == core + 1 {
                    known.owner = 0;
                }
            }
        }
        let private = &mut self.private[core];
        if private.l1.touch(line).is_none() {
            private.l1.fill(line, ());
        }
    }

    // Locks.

    /// Locks a line for a time: a writer that asks for it meanwhile meets a snoop miss and tries again (4.4). Locks of several queries
    /// on one line that overlap count as one; of those that are apart the last two are kept.
    pub fn lock(&mut self, line: u64, from: Time, until: Time) {
        if self.locks.len() >= self.many_locks {
            let horizon = from.saturating_sub(1_000_000_000);
            self.locks.retain(|_, locks| locks.iter().any(|&(_, end)| end > horizon));
            // Where all of them are of late, not again before there are twice as many.
            self.many_locks = MANY_LOCKS.max(2 * self.locks.len());
        }
        let locks = self.locks.entry(line).or_default();
        let mut all = (from, until);
        for lock in locks.iter_mut().filter(|lock| lock.0 <= until && from <= lock.1) {
            all = (all.0.min(lock.0), all.1.max(lock.1));
            *lock = (0, 0);
        }
        let [first, second] = locks;
        let oldest = if first.1 <= second.1 { first } else { second };
        if oldest.1 <= all.1 {
            *oldest = all;
        }
    }

    /// How many there are, and how many there may be before those of long ago are forgotten.
    #[cfg(test)]
    pub(super) fn locks(&self) -> (usize, usize) {
        (self.locks.len(), self.many_locks)
    }

    /// When a writer that asks at a time is let in.
    fn past_lock(&mut self, line: u64, at: Time) -> Time {
        let Some(locks) = self.locks.get(&line).filter(|_| !self.untimed) else { return at };
        let mut at = at;
        while let Some(&(_, until)) = locks.iter().find(|&&(from, until)| (from..until).contains(&at)) {
            let tries = (until - at).div_ceil(self.ps.retry);
            self.counts.retries += tries;
            at += tries * self.ps.retry;
        }
        at
    }

    // What accelerators and devices do.

    /// An accelerator's load: when the last line is at its slice.
    #[inline]
    pub fn near_load(&mut self, slice: usize, address: u64, bytes: u64, at: Time) -> Time {
        lines(address, bytes).map(|line| self.near(slice, line, at, false)).max().unwrap_or(at)
    }

    /// An accelerator's store: when it has been written in the line's slice.
    pub fn near_store(&mut self, slice: usize, address: u64, bytes: u64, at: Time) -> Time {
        lines(address, bytes).map(|line| self.near(slice, line, at, true)).max().unwrap_or(at)
    }

    fn near(&mut self, slice: usize, line: u64, at: Time, write: bool) -> Time {
        let home = self.mesh.home(line);
        self.counts.near += 1;
        self.counts.near_elsewhere += u64::from(home != slice);
        let way = self.mesh.travel_ps(slice, home);
        let (mut data, mut known) = self.slice(home, line, at + way);
        if known.owner != 0 {
            data += self.snoop(home, line, known.owner, write);
            known.owner = 0;
        }
        if write {
            self.take_from(line, known.cores, known.near);
            known = Known { comes: known.comes, ..Known::default() };
        }
        self.note(home, line, known);
        if write { data } else { data + way }
    }

    /// Says that the metadata cache of a slice has a line: its core-valid bit.
    pub fn metadata_kept(&mut self, slice: usize, line: u64, kept: bool) {
        let home = self.mesh.home(line);
        if let Some(known) = self.llc[home].peek(line) {
            known.near = if kept { known.near | 1 << slice } else { known.near & !(1 << slice) };
        }
    }

    /// Lines that metadata caches have lost since the last call.
    pub fn metadata_lost(&mut self) -> Option<(usize, u64)> {
        self.invalidated.pop()
    }

    /// SNAPSHOT_READ: when the line was read in its slice, and when its value is at the core. Nobody's ownership changes, and
    /// nothing is kept.
    pub fn snapshot(&mut self, core: usize, address: u64, at: Time) -> (Time, Time) {
        let line = address / LINE;
        let home = self.mesh.home(line);
        let (read, _) = self.slice(home, line, at + self.ps.l2 + self.to_slice_ps(core, home));
        (read, read + self.to_slice_ps(core, home))
    }

    /// A device writes into the LLC (DDIO): no core has the line after that.
    pub fn device_write(&mut self, address: u64, bytes: u64) {
        let untimed = std::mem::replace(&mut self.untimed, true);
        for line in lines(address, bytes) {
            let home = self.mesh.home(line);
            let (_, known) = self.slice(home, line, 0);
            self.take_from(line, known.cores, known.near);
            self.note(home, line, Known::default());
        }
        self.untimed = untimed;
    }

    /// Puts the lines of some bytes into the LLC and nowhere else, or into DRAM only: where Figure 10 wants them.
    pub fn place(&mut self, address: u64, bytes: u64, in_llc: bool) {
        self.device_write(address, bytes);
        for line in lines(address, bytes).filter(|_| !in_llc) {
            let home = self.mesh.home(line);
            self.llc[home].remove(line);
        }
    }

    /// What channels have served and how long requests have waited for them.
    pub fn dram_load(&self) -> (u64, Time) {
        let sum = |of: fn(&Calendar) -> u64| self.channels.iter().map(of).sum();
        (sum(Calendar::served), sum(Calendar::waited_ps))
    }

    /// What is wrong with the books: a core that has what the LLC has not, an owner that is not alone. For tests.
    ///
    /// # Errors
    /// The first thing found.
    pub fn check(&mut self, lines: impl IntoIterator<Item = u64>) -> Result<(), String> {
        for line in lines {
            let home = self.mesh.home(line);
            let known = self.llc[home].peek(line).copied();
            let has: u64 = (0..self.private.len())
                .map(|i| u64::from(self.private[i].l2.peek(line).is_some()) << i)
                .sum();
            let known_cores = known.map_or(0, |known| known.cores);
            if has != known_cores {
                return Err(format!("line {line}: cores {has:b} have it, core-valid bits {known_cores:b}"));
            }
            for core in 0..self.private.len() {
                let private = &mut self.private[core];
                if private.l1.peek(line).is_some() && private.l2.peek(line).is_none() {
                    return Err(format!("line {line}: core {core} has it in L1 only"));
                }
                if private.l2.peek(line) == Some(&mut true)
                    && known
                        .is_none_or(|known| known.cores != 1 << core || usize::from(known.owner) != core + 1)
                {
                    return Err(format!("line {line}: core {core} may write it: {known:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Invalidations go out at once; the last answer counts.
fn start_of_invalidations(at: Time, cores: u64, round_ps: impl Fn(usize) -> Time) -> Time {
    at + bits(cores).map(round_ps).max().unwrap_or(0)
}

#[inline]
fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

/// The lines of some bytes.
#[inline]
pub fn lines(address: u64, bytes: u64) -> impl Iterator<Item = u64> {
    address / LINE..=(address + bytes.max(1) - 1) / LINE
}
