//! SAIL_B and SAIL_U: bitmaps say how long the longest match is, one array of labels per level says where it leads.

use super::cells::{Cells, Numbers, Pen};
use super::{CHUNK, PIVOT, fits, narrow_or_wide};
use crate::copies::{self, Whole};
use crate::fib::{Built, Fib, Label, Outgrown};
use crate::prefix::Prefix;
use crate::rib::Rib;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Which levels have a bitmap. A prefix is expanded to the next one that is not shorter.
pub trait Form: Send + Sync + 'static {
    /// As in configurations.
    const NAME: &'static str;
    /// Ascending; the last one is 24.
    const LEVELS: &'static [u8];
    /// The first bit of the first level, such that all bits to which a prefix is expanded lie in one word of 64.
    const FIRST: usize;
}

/// Every level from 0 to 24.
#[derive(Debug, Clone, Copy)]
pub struct EveryLevel;

impl Form for EveryLevel {
    const NAME: &'static str = "sail-b";
    const LEVELS: &'static [u8] =
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24];
    const FIRST: usize = 1;
}

/// Levels 6, 12, 18 and 24.
#[derive(Debug, Clone, Copy)]
pub struct EverySixth;

impl Form for EverySixth {
    const NAME: &'static str = "sail-u";
    const LEVELS: &'static [u8] = &[6, 12, 18, 24];
    const FIRST: usize = 0;
}

/// SAIL_B or SAIL_U. `PLAIN` are the bits of a cell for a label, `FLAGGED` those of one that may be a chunk's number instead: 16
/// and 17, or 32 and 32 where a label or the number of chunks needs more.
pub struct Levels<F, const FLAGGED: u32, const PLAIN: u32> {
    /// The on-chip part. Bit `first_bit(k) + v`: something ends at level k with the bits v; at level 24, or below it.
    bits: Array<u64>,
    /// Labels of the levels below 24, numbered as their bits.
    short: Cells<PLAIN>,
    /// At level 24: a label, or the flag and a chunk's number.
    n24: Cells<FLAGGED>,
    /// Chunks of 256 labels.
    n32: Cells<PLAIN>,
    numbers: Numbers,
    /// The chunk of each /24 that has one; for changes only.
    chunks: BTreeMap<u32, usize>,
    form: PhantomData<F>,
}

impl<F, const FLAGGED: u32, const PLAIN: u32> Clone for Levels<F, FLAGGED, PLAIN> {
    fn clone(&self) -> Self {
        Levels {
            bits: self.bits.clone(),
            short: self.short.clone(),
            n24: self.n24.clone(),
            n32: self.n32.clone(),
            numbers: self.numbers.clone(),
            chunks: self.chunks.clone(),
            form: PhantomData,
        }
    }
}

/// Builds a `sail-b` of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer_b(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    writer::<EveryLevel>(rib)
}

/// Builds a `sail-u` of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer_u(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    writer::<EverySixth>(rib)
}

fn writer<F: Form>(rib: &Rib<u32>) -> Built<u32> {
    narrow_or_wide(
        F::NAME,
        rib,
        || Levels::<F, 17, 16>::build(rib).map(copies::writer),
        || Levels::<F, 32, 32>::build(rib).map(copies::writer),
    )
}

impl<F: Form, const FLAGGED: u32, const PLAIN: u32> Levels<F, FLAGGED, PLAIN> {
    const FLAG: u32 = Cells::<FLAGGED>::FLAG;

    /// The first bit of level number `k`; of one behind the last: how many bits there are.
    const fn first_bit(k: usize) -> usize {
        let (mut at, mut i) = (F::FIRST, 0);
        while i < k {
            at += 1 << F::LEVELS[i];
            i += 1;
        }
        at
    }

    const FIRST_24: usize = Self::first_bit(F::LEVELS.len() - 1);
    const BITS: usize = Self::first_bit(F::LEVELS.len());

    /// Builds the structure of `rib`.
    ///
    /// # Errors
    /// A label, or the number of chunks, is too great for the cells.
    pub fn build(rib: &Rib<u32>) -> Result<Self, Outgrown> {
        let mut sail = Levels {
            bits: Array::zeroed(Self::BITS.div_ceil(64)),
            short: Cells::new(Self::FIRST_24),
            n24: Cells::new(1 << PIVOT),
            n32: Cells::new(0),
            numbers: Numbers::default(),
            chunks: BTreeMap::new(),
            form: PhantomData,
        };
        // Parents come first: what is stored last is the longest. A chunk is made at its first long prefix, of all of them.
        let mut last_chunk = None;
        for (prefix, label) in rib.iter() {
            fits::<PLAIN>(prefix, label)?;
            if prefix.len() > PIVOT {
                let slot = prefix.first() >> 8;
                if last_chunk.replace(slot) != Some(slot) {
                    sail.refresh(rib, slot, 1, F::LEVELS.len() - 1, &())?;
                }
                continue;
            }
            let k = Self::level(prefix.len());
            let (first, count) = Self::cells(prefix, k);
            for cell in first..first + count {
                let at = Self::first_bit(k) + cell as usize;
                sail.bits[at / 64] |= 1 << (at % 64);
                if F::LEVELS[k] == PIVOT {
                    sail.n24.set(cell as usize, label.0, &());
                } else {
                    sail.short.set(at, label.0, &());
                }
            }
        }
        Ok(sail)
    }

    /// Whether an address that a lookup or a change has told is in the on-chip part: the bitmaps.
    pub fn on_chip(&self, address: usize) -> bool {
        let start = self.bits.as_ptr().addr();
        (start..start + self.on_chip_bytes()).contains(&address)
    }

    /// Bytes of the on-chip part.
    pub fn on_chip_bytes(&self) -> usize {
        self.bits.len() * 8
    }

    /// Chunks in use.
    pub fn chunks(&self) -> usize {
        self.numbers.in_use()
    }

    /// The number of the level that a prefix of at most 24 bits is expanded to.
    fn level(len: u8) -> usize {
        F::LEVELS.iter().position(|&level| level >= len).unwrap_or(F::LEVELS.len() - 1)
    }

    /// The cells of level number `k` that a prefix covers: the first, and how many.
    fn cells(prefix: Prefix<u32>, k: usize) -> (u32, u32) {
        let level = F::LEVELS[k];
        ((u64::from(prefix.first()) >> (32 - level)) as u32, 1 << (level - prefix.len()))
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u32, probe: &P) -> Label {
        for (k, &level) in F::LEVELS.iter().enumerate().rev() {
            let cell = (u64::from(key) >> (32 - level)) as usize;
            let at = Self::first_bit(k) + cell;
            let word = &self.bits[at / 64];
            probe.step();
            probe.read((&raw const *word).addr(), 8, false);
            if word >> (at % 64) & 1 == 0 {
                continue;
            }
            if level < PIVOT {
                return Label(self.short.get(at, false, probe));
            }
            let found = self.n24.get(cell, false, probe);
            if found & Self::FLAG == 0 {
                return Label(found);
            }
            let at = (found & !Self::FLAG) as usize * CHUNK + key as usize % CHUNK;
            return Label(self.n32.get(at, true, probe));
        }
        Label::NONE
    }

    /// Makes `count` cells of level number `k` right, which share a word of the bitmap: from `first` on.
    fn refresh<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        first: u32,
        count: u32,
        k: usize,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let level = F::LEVELS[k];
        // What ends at the level before, or above, is that level's.
        let shortest = if k == 0 { 0 } else { F::LEVELS[k - 1] + 1 };
        let mut pen = Pen::default();
        let (mut set, mut clear) = (0_u64, 0_u64);
        let start = Self::first_bit(k);
        for cell in first..first + count {
            let at = start + cell as usize;
            let place = host(u64::from(cell) << (32 - level), level);
            let native = rib.covering(place).filter(|(prefix, _)| prefix.len() >= shortest);
            if let Some((prefix, label)) = native {
                fits::<PLAIN>(prefix, label)?;
            }
            let mut value = native.map(|(_, label)| label.0);
            if level == PIVOT {
                if rib.inside(place).any(|(prefix, _)| prefix.len() > PIVOT) {
                    value = Some(self.chunk(rib, cell, probe)? as u32 | Self::FLAG);
                } else if let Some(chunk) = self.chunks.remove(&cell) {
                    self.numbers.give_back(chunk);
                }
            }
            match value {
                Some(value) if level == PIVOT => self.n24.put(&mut pen, cell as usize, value, probe),
                Some(value) => self.short.put(&mut pen, at, value, probe),
                None => {}
            }
            let bits = if value.is_some() { &mut set } else { &mut clear };
            *bits |= 1 << (at % 64);
        }
        match level {
            PIVOT => self.n24.flush(&mut pen, probe),
            _ => self.short.flush(&mut pen, probe),
        }
        let word = &mut self.bits[(start + first as usize) / 64];
        let new = *word & !clear | set;
        probe.read((&raw const *word).addr(), 8, false);
        if *word != new {
            *word = new;
            probe.write((&raw const *word).addr(), 8);
        }
        Ok(())
    }

    /// The chunk of a /24, made if there is none, with what the RIB says.
    fn chunk<P: Probe + ?Sized>(&mut self, rib: &Rib<u32>, slot: u32, probe: &P) -> Result<usize, Outgrown> {
        let chunk = match self.chunks.get(&slot) {
            Some(&chunk) => chunk,
            None => {
                let limit = Self::FLAG as usize;
                let chunk = self.numbers.take(limit).ok_or_else(|| super::too_many_chunks(limit))?;
                self.n32.grow((chunk + 1) * CHUNK);
                self.chunks.insert(slot, chunk);
                chunk
            }
        };
        let place = host(u64::from(slot) << 8, PIVOT);
        let mut labels = [0; CHUNK];
        let longer = rib.inside(place).filter(|(prefix, _)| prefix.len() > PIVOT);
        for (prefix, label) in rib.covering(place).into_iter().chain(longer) {
            fits::<PLAIN>(prefix, label)?;
            let within = if prefix.len() <= PIVOT { place } else { prefix };
            let first = within.first() as usize % CHUNK;
            labels[first..first + (1 << (32 - within.len()))].fill(label.0);
        }
        let mut pen = Pen::default();
        for (i, label) in labels.into_iter().enumerate() {
            self.n32.put(&mut pen, chunk * CHUNK + i, label, probe);
        }
        self.n32.flush(&mut pen, probe);
        Ok(chunk)
    }
}

/// The prefix of `len` bits that begins at `first`.
fn host(first: u64, len: u8) -> Prefix<u32> {
    Prefix::new(first as u32, len).unwrap_or(Prefix::DEFAULT)
}

impl<F: Form, const FLAGGED: u32, const PLAIN: u32> Fib<u32> for Levels<F, FLAGGED, PLAIN> {
    fn lookup(&self, key: u32) -> Label {
        self.find(key, &())
    }

    fn name(&self) -> String {
        F::NAME.into()
    }

    fn bytes(&self) -> usize {
        self.on_chip_bytes()
            + self.short.bytes()
            + self.n24.bytes()
            + Cells::<PLAIN>::bytes_of(self.chunks() * CHUNK)
    }

    fn lookup_probed(&self, key: u32, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("on_chip_bytes", self.on_chip_bytes() as f64),
            ("chunks", self.chunks() as f64),
            ("label_bits", f64::from(PLAIN.min(31))),
        ]
    }
}

impl<F: Form, const FLAGGED: u32, const PLAIN: u32> Whole<u32> for Levels<F, FLAGGED, PLAIN> {
    fn collapse(&self) {
        collapse(&self.bits);
        self.short.collapse();
        self.n24.collapse();
        self.n32.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        if prefix.len() > PIVOT {
            return self.refresh(rib, prefix.first() >> 8, 1, F::LEVELS.len() - 1, probe);
        }
        let k = Self::level(prefix.len());
        let (first, count) = Self::cells(prefix, k);
        self.refresh(rib, first, count, k, probe)?;
        if F::LEVELS[k] < PIVOT {
            // What chunks inherit. One that the RIB does not need any more goes when its prefix is named.
            let inside: Vec<u32> =
                self.chunks.range(prefix.first() >> 8..=prefix.last() >> 8).map(|(&slot, _)| slot).collect();
            for slot in inside {
                self.chunk(rib, slot, probe)?;
            }
        }
        Ok(())
    }
}
