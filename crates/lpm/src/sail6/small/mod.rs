//! `sail-l`: prefixes pushed to a few levels, arrays of cells for each. IPv6.
//!
//! Source: Fu 2020, 3.6.1 (the levels), 3.4.2 (the arrays) and 3.5.4 (flags apart from the cells, so that 16 bits are enough for
//! large tables).
//!
//! # Memory
//! Levels 16, 24, 32, 40, 48 and 64, and 72, 80, ... 128 behind them. Level 16 is one chunk of 2^16 cells; a cell of a level that has
//! longer prefixes below leads to a chunk of the next level, with a cell for each of its next bits.
//! ```text
//! level i   flags   one bit per cell: 1, the cell is a label; 0, it is the number of a chunk of level i + 1
//!           cells   16 or 32 bits each, the same width everywhere
//!           owners  for the writer: the length of the prefix that the cell's label is from
//!
//! 2001:d00::/24 -> 1, 2001:db8::/32 -> 2
//!   level 16   cell 0x2001            flag 0, chunk 0 of level 24
//!   level 24   chunk 0, cell 0x0d     flag 0, chunk 0 of level 32
//!   level 32   chunk 0, cell 0xb8     2 (owner 32); every other cell 1 (owner 24)
//!
//! on chip    flags and cells of levels 16 to 40, flags of level 48
//! off chip   cells of level 48, all of the levels behind it
//! ```
//! # Cost
//! Flag and cell for each level on the path. That is at most 9 loads on chip and, up to /64, two off chip: a cell of level 48, and one of
//! level 64. The flags of level 64 are looked at only while there are prefixes beyond /64, which cost up to 18 loads off chip. A level
//! without chunks below it needs no flags, and then none are read.
//!
//! A change stores the cells whose label it changes, in the prefix's own level and in the chunks below it: one to 2^15 cells, and more
//! where a short prefix lies over many chunks. A chunk of 256 cells is 544 bytes with 16-bit cells; one of level 64 is 136 KB, for each
//! /48 that has longer prefixes.
//!
//! # Invariants
//! 1. A flag is 0 exactly where a prefix of the table lies inside the cell's region and is longer than it; else no chunk is there.
//! 2. A label cell holds the longest match of its whole region, and `owners` has that prefix's length (0 without a route).
//! 3. A chunk belongs to one cell or is in its level's list of free ones.
//!
//! # Where we depart from the source
//! It stops at /64: we go on in steps of 8 bits, since a host route would cost half a megabyte in steps of 16. It numbers chunks from
//! 1; with a flag for every cell 0 is a number too. It keeps next hops and chunk numbers of level 48 in two arrays, we in one, as it does
//! itself for CPUs: both are off chip. The cells of levels 16 to 40 are on chip with their labels (the source's BCN of level 16, for all
//! four). Labels or chunk numbers beyond 16 bits make every cell 32 bits wide. A level has 2^28 cells at most: 4,096 /48s with longer
//! prefixes.

#[cfg(test)]
mod tests;

use crate::copies::{self, Whole};
use crate::fib::{BuildError, Built, Fib, LABEL_31, Label, Outgrown, check_labels};
use crate::prefix::Prefix;
use crate::rib::Rib;
use std::collections::TryReserveError;
use std::ops::Range;
use tidemill_lookup::mem::collapse;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

const LEVELS: usize = 14;
/// The length at which each level ends.
const ENDS: [u8; LEVELS] = [16, 24, 32, 40, 48, 64, 72, 80, 88, 96, 104, 112, 120, 128];
/// The level of 48, at which the source parts on-chip and off-chip memory.
const SPLIT: usize = 4;
/// Cells of a level, at most: 4,096 chunks of level 64, which with cells of 32 bits and their owners are 1.4 GB. Beyond, the
/// structure is no longer one for small tables. (In tests of this folder less, so that they can go there.)
const CELLS_MAX: usize = if cfg!(test) { 1 << 25 } else { 1 << 28 };
/// Keys that are in flight together.
const BURST: usize = 32;

/// A cell of 16 or 32 bits.
pub trait Cell:
    Copy + PartialEq + Default + TryFrom<u32> + Into<u32> + Send + Sync + std::fmt::Debug + 'static
{
}
impl Cell for u16 {}
impl Cell for u32 {}

/// The bits of a key that choose among the cells of a chunk.
const fn stride(level: usize) -> u8 {
    if level == 0 { ENDS[0] } else { ENDS[level] - ENDS[level - 1] }
}

/// Those bits.
#[inline(always)]
fn digit(key: u128, level: usize) -> usize {
    (key >> (128 - ENDS[level]) & ((1 << stride(level)) - 1)) as usize
}

#[derive(Debug, Clone, Default)]
struct Level<C> {
    flags: Vec<u64>,
    cells: Vec<C>,
    owners: Vec<u8>,
    free: Vec<u32>,
    /// Chunks in use.
    chunks: usize,
}

impl<C: Cell> Level<C> {
    #[inline(always)]
    fn is_label(&self, at: usize) -> bool {
        self.flags[at / 64] >> (at % 64) & 1 != 0
    }

    fn store<P: Probe + ?Sized>(&mut self, at: usize, cell: C, is_label: bool, probe: &P) {
        if self.cells[at] != cell {
            self.cells[at] = cell;
            probe.write((&raw const self.cells[at]).addr(), size_of::<C>());
        }
        if self.is_label(at) != is_label {
            self.flags[at / 64] ^= 1 << (at % 64);
            probe.write((&raw const self.flags[at / 64]).addr(), 8);
        }
    }

    /// A chunk of `1 << stride` equal labels.
    fn allocate<P: Probe + ?Sized>(
        &mut self,
        stride: u8,
        label: C,
        owner: u8,
        probe: &P,
    ) -> Result<u32, Lack> {
        let size = 1_usize << stride;
        let chunk = match self.free.pop() {
            Some(chunk) => chunk,
            None if self.cells.len() + size > CELLS_MAX => {
                return Err(Lack::Room);
            }
            None => {
                // `resize` would abort where there is none.
                self.cells.try_reserve(size)?;
                self.owners.try_reserve(size)?;
                self.flags.try_reserve(size / 64)?;
                let chunk = self.cells.len() >> stride;
                self.cells.resize(self.cells.len() + size, label);
                self.owners.resize(self.cells.len(), owner);
                self.flags.resize(self.cells.len() / 64, u64::MAX);
                chunk as u32
            }
        };
        let first = (chunk as usize) << stride;
        self.cells[first..first + size].fill(label);
        self.owners[first..first + size].fill(owner);
        self.flags[first / 64..(first + size) / 64].fill(u64::MAX);
        // As stores of 64 bits.
        let cells = self.cells[first..first + size].chunks(8 / size_of::<C>());
        cells.for_each(|word| probe.write(word.as_ptr().addr(), size_of_val(word)));
        let flags = &self.flags[first / 64..(first + size) / 64];
        flags.iter().for_each(|word| probe.write((&raw const *word).addr(), size_of_val(word)));
        self.chunks += 1;
        Ok(chunk)
    }

    fn release(&mut self, chunk: u32) {
        self.chunks -= 1;
        self.free.push(chunk);
        if self.chunks == 0 {
            *self = Self::default();
        }
    }
}

/// Why there is no chunk, or no cell for a label.
#[derive(Debug)]
enum Lack {
    /// The cells are too narrow for a label.
    Label(Outgrown),
    /// The cells are too narrow for the number of one more chunk of the level that ends here.
    Number(u8),
    /// A level has all the cells that it may have.
    Room,
    Memory(TryReserveError),
}

impl From<TryReserveError> for Lack {
    fn from(error: TryReserveError) -> Self {
        Lack::Memory(error)
    }
}

impl From<Lack> for Outgrown {
    fn from(lack: Lack) -> Self {
        match lack {
            Lack::Label(outgrown) => outgrown,
            Lack::Number(end) => {
                Outgrown { what: format!("sail-l has no number for one more chunk of level {end}") }
            }
            Lack::Room => Outgrown { what: format!("sail-l has {CELLS_MAX} cells of a level at most") },
            Lack::Memory(error) => Outgrown { what: format!("no memory for a chunk of sail-l ({error})") },
        }
    }
}

impl From<Lack> for BuildError {
    fn from(lack: Lack) -> Self {
        match lack {
            Lack::Memory(error) => BuildError::Memory(std::io::Error::other(error)),
            other => BuildError::TooLarge {
                structure: "sail-l".into(),
                what: Outgrown::from(other).what,
                advice: "use sail-hybrid".into(),
            },
        }
    }
}

/// The table; cells are `u16` or `u32`.
#[derive(Debug, Clone)]
pub struct SailL<C> {
    levels: [Level<C>; LEVELS],
}

/// Builds the structure with 16-bit cells if labels and chunk numbers fit, else with 32-bit cells, and its writer.
///
/// # Errors
/// A label of more than 31 bits; a level of more than 2^28 cells; no memory.
pub fn writer(rib: &Rib<u128>, _: &Domain) -> Built<u128> {
    if check_labels(rib, SailL::<u16>::WIDTH).is_ok() {
        match SailL::<u16>::of(rib) {
            Ok(narrow) => return copies::writer(narrow),
            // Wider cells have numbers for more chunks. They make neither room nor memory, and building takes long.
            Err(Lack::Label(_) | Lack::Number(_)) => {}
            Err(lack) => return Err(lack.into()),
        }
    }
    copies::writer(SailL::<u32>::build(rib)?)
}

#[cfg(test)]
thread_local! {
    /// Structures that were built, or begun, by this thread.
    static BUILDS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl<C: Cell> SailL<C> {
    /// Bits of a label.
    const WIDTH: u8 = if size_of::<C>() == 2 { 16 } else { 31 };

    /// Builds the structure of `rib`.
    ///
    /// # Errors
    /// A label, or the number of a chunk, that does not fit the cells; a level of more than 2^28 cells; no memory.
    pub fn build(rib: &Rib<u128>) -> Result<Self, BuildError> {
        check_labels(rib, Self::WIDTH)?;
        Ok(Self::of(rib)?)
    }

    fn of(rib: &Rib<u128>) -> Result<Self, Lack> {
        #[cfg(test)]
        BUILDS.with(|builds| builds.set(builds.get() + 1));
        let mut sail = SailL { levels: std::array::from_fn(|_| Level::default()) };
        sail.levels[0].allocate(stride(0), C::default(), 0, &())?;
        for (prefix, label) in rib.iter() {
            sail.announce(prefix, label, &())?;
        }
        Ok(sail)
    }

    /// Chunks in use of the level that ends at this length; 0 if none does.
    pub fn chunks(&self, end: u8) -> usize {
        ENDS.iter().position(|&e| e == end).map_or(0, |level| self.levels[level].chunks)
    }

    /// Whether the source has what is at this address of the table's memory in on-chip memory.
    pub fn on_chip(&self, address: usize) -> bool {
        self.levels[..=SPLIT].iter().enumerate().any(|(i, level)| {
            let flags = level.flags.as_ptr_range();
            let cells = level.cells.as_ptr_range();
            (flags.start.addr()..flags.end.addr()).contains(&address)
                || i < SPLIT && (cells.start.addr()..cells.end.addr()).contains(&address)
        })
    }

    /// Bytes on chip and off chip.
    fn sides(&self) -> (usize, usize) {
        let (mut on, mut off) = (0, 0);
        for (i, level) in self.levels.iter().enumerate() {
            let cells = level.chunks << stride(i);
            *(if i < SPLIT { &mut on } else { &mut off }) += cells * size_of::<C>();
            *(if i <= SPLIT { &mut on } else { &mut off }) += if i + 1 < LEVELS { cells / 8 } else { 0 };
        }
        (on, off)
    }

    fn announce<P: Probe + ?Sized>(
        &mut self,
        prefix: Prefix<u128>,
        label: Label,
        probe: &P,
    ) -> Result<(), Lack> {
        let narrow = |value: u32| C::try_from(value).ok().filter(|_| value <= LABEL_31);
        let too_wide = || Lack::Label(Outgrown::label(prefix, label, Self::WIDTH));
        let cell = narrow(label.0).ok_or_else(too_wide)?;
        let (mut chunk, mut i) = (0, 0);
        while ENDS[i] < prefix.len() {
            let at = chunk << stride(i) | digit(prefix.first(), i);
            let (level, owner) = (&self.levels[i], self.levels[i].owners[at]);
            chunk = level.cells[at].into() as usize;
            if level.is_label(at) {
                let label = level.cells[at];
                let end = ENDS[i + 1];
                let new = self.levels[i + 1].allocate(stride(i + 1), label, owner, probe)?;
                self.levels[i].store(at, narrow(new).ok_or(Lack::Number(end))?, false, probe);
                chunk = new as usize;
            }
            i += 1;
        }
        let own = |owner: u8| (owner <= prefix.len()).then_some((cell, prefix.len()));
        self.repaint(i, Self::cells_of(chunk, i, prefix), &own, probe);
        Ok(())
    }

    /// What is left when `prefix` is not in `rib` any more, or never was.
    fn withdraw<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix<u128>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let above = |region: Prefix<u128>| -> Result<(C, u8), Outgrown> {
            let (from, label) = rib.covering(region).unwrap_or((Prefix::DEFAULT, Label::NONE));
            let cell = C::try_from(label.0).map_err(|_| Outgrown::label(from, label, Self::WIDTH))?;
            Ok((cell, from.len()))
        };
        let (mut chunk, mut i) = (0, 0);
        while ENDS[i] < prefix.len() {
            let at = chunk << stride(i) | digit(prefix.first(), i);
            if self.levels[i].is_label(at) {
                return Ok(());
            }
            chunk = self.levels[i].cells[at].into() as usize;
            let region = Prefix::new(prefix.first(), ENDS[i]).unwrap_or(prefix);
            if rib.inside(region).all(|(p, _)| p == region) {
                self.release(i + 1, chunk as u32);
                let (cell, owner) = above(region)?;
                self.levels[i].owners[at] = owner;
                self.levels[i].store(at, cell, true, probe);
                return Ok(());
            }
            i += 1;
        }
        let inherited = above(prefix)?;
        let own = |owner: u8| (owner == prefix.len()).then_some(inherited);
        self.repaint(i, Self::cells_of(chunk, i, prefix), &own, probe);
        Ok(())
    }

    /// The cells of `chunk` that `prefix` covers, which ends in this level.
    fn cells_of(chunk: usize, level: usize, prefix: Prefix<u128>) -> Range<usize> {
        let first = chunk << stride(level) | digit(prefix.first(), level);
        first..first + (1 << (ENDS[level] - prefix.len()))
    }

    /// Gives the labels of these cells, and of all below them, what `new` says to their owners' lengths.
    fn repaint<P: Probe + ?Sized>(
        &mut self,
        level: usize,
        cells: Range<usize>,
        new: &impl Fn(u8) -> Option<(C, u8)>,
        probe: &P,
    ) {
        for at in cells {
            if self.levels[level].is_label(at) {
                if let Some((label, owner)) = new(self.levels[level].owners[at]) {
                    self.levels[level].owners[at] = owner;
                    self.levels[level].store(at, label, true, probe);
                }
            } else {
                let first = (self.levels[level].cells[at].into() as usize) << stride(level + 1);
                self.repaint(level + 1, first..first + (1 << stride(level + 1)), new, probe);
            }
        }
    }

    /// Frees a chunk and those below it.
    fn release(&mut self, level: usize, chunk: u32) {
        let first = (chunk as usize) << stride(level);
        for word in first / 64..(first + (1 << stride(level))) / 64 {
            let mut links = !self.levels[level].flags[word];
            while links != 0 {
                let at = word * 64 + links.trailing_zeros() as usize;
                self.release(level + 1, self.levels[level].cells[at].into());
                links &= links - 1;
            }
        }
        self.levels[level].release(chunk);
    }

    /// The cell at `at`, and whether it is a label. Loads depend on earlier ones from the second level on.
    #[inline(always)]
    fn cell<P: Probe + ?Sized>(&self, i: usize, at: usize, probe: &P) -> (u32, bool) {
        let level = &self.levels[i];
        probe.step();
        let is_label = match self.levels.get(i + 1) {
            Some(below) if below.chunks > 0 => {
                probe.read((&raw const level.flags[at / 64]).addr(), 8, i > 0);
                level.is_label(at)
            }
            _ => true,
        };
        probe.read((&raw const level.cells[at]).addr(), size_of::<C>(), i > 0);
        (level.cells[at].into(), is_label)
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u128, probe: &P) -> Label {
        let (mut i, mut at) = (0, digit(key, 0));
        loop {
            let (cell, is_label) = self.cell(i, at, probe);
            if is_label {
                return Label(cell);
            }
            i += 1;
            at = (cell as usize) << stride(i) | digit(key, i);
        }
    }

    /// A level at a time for all keys, the next level's lines on their way meanwhile.
    fn burst(&self, keys: &[u128], out: &mut [Label]) {
        let mut places = [0_usize; BURST];
        let mut waiting: [u8; BURST] = std::array::from_fn(|k| k as u8);
        let mut count = keys.len();
        for (place, &key) in places.iter_mut().zip(keys) {
            *place = digit(key, 0);
            prefetch_read(&self.levels[0].flags[*place / 64]);
            prefetch_read(&self.levels[0].cells[*place]);
        }
        for i in 0..LEVELS {
            let mut left = 0;
            for n in 0..count {
                let k = usize::from(waiting[n]);
                let (cell, is_label) = self.cell(i, places[k], &());
                if is_label {
                    out[k] = Label(cell);
                    continue;
                }
                let at = (cell as usize) << stride(i + 1) | digit(keys[k], i + 1);
                prefetch_read(&self.levels[i + 1].flags[at / 64]);
                prefetch_read(&self.levels[i + 1].cells[at]);
                places[k] = at;
                waiting[left] = k as u8;
                left += 1;
            }
            count = left;
            if count == 0 {
                return;
            }
        }
    }
}

impl<C: Cell> Fib<u128> for SailL<C> {
    fn lookup(&self, key: u128) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[u128], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            self.burst(keys, out);
        }
    }

    fn name(&self) -> String {
        "sail-l".into()
    }

    fn bytes(&self) -> usize {
        let (on, off) = self.sides();
        on + off
    }

    fn lookup_probed(&self, key: u128, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        const NAMES: [&str; LEVELS] = [
            "chunks_16",
            "chunks_24",
            "chunks_32",
            "chunks_40",
            "chunks_48",
            "chunks_64",
            "chunks_72",
            "chunks_80",
            "chunks_88",
            "chunks_96",
            "chunks_104",
            "chunks_112",
            "chunks_120",
            "chunks_128",
        ];
        let (on, off) = self.sides();
        let sides = [("on_chip_bytes", on as f64), ("off_chip_bytes", off as f64)];
        let cell = [("cell_bits", size_of::<C>() as f64 * 8.0)];
        let chunks = NAMES.into_iter().zip(self.levels.iter().map(|level| level.chunks as f64));
        sides.into_iter().chain(cell).chain(chunks).collect()
    }
}

impl<C: Cell> Whole<u128> for SailL<C> {
    fn collapse(&self) {
        for level in &self.levels {
            collapse(&level.flags);
            collapse(&level.cells);
        }
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u128>,
        prefix: Prefix<u128>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        match rib.get(prefix) {
            Some(label) => Ok(self.announce(prefix, label, probe)?),
            None => self.withdraw(rib, prefix, probe),
        }
    }
}
