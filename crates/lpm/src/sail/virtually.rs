//! SAIL_L with virtual pushing: what Fu (5.2.1) leaves to the future, in the way that the family's page describes. Nothing is pushed from
//! one level to the next, so a change has a bounded cost; a lookup that finds nothing at one level asks the one above.

use super::cells::{Cells, Numbers, Pen};
use super::{CHUNK, fits, narrow_or_wide, too_many_chunks};
use crate::copies::{self, Whole};
use crate::fib::{Built, Fib, Label, Outgrown};
use crate::prefix::Prefix;
use crate::rib::Rib;
use std::ops::RangeInclusive;
use tidemill_lookup::mem::Array;
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Lengths that a word of `short` is for.
const STRIDE: u8 = 6;
/// Words of `short`: one for lengths 0 to 5, one for each /6, one for each /12.
const WORDS: usize = 1 + (1 << 6) + (1 << 12);
/// Keys in flight together.
const BURST: usize = 128;

/// The bits of a word of `short` on the way down along 5 bits of a key: those of lengths 0 to 5.
const PATHS: [u64; 32] = {
    let mut paths = [0; 32];
    let mut way = 0;
    while way < 32 {
        let mut len = 0;
        while len < STRIDE as usize {
            paths[way] |= 1 << (1 << len | way >> (5 - len));
            len += 1;
        }
        way += 1;
    }
    paths
};

/// SAIL_L with virtual pushing. `PLAIN` and `FLAGGED` as in [`Levels`](super::Levels).
#[derive(Clone)]
pub struct Virtually<const FLAGGED: u32, const PLAIN: u32> {
    /// For each /16 the flag and a chunk of `n24`, or 0. On chip, as `short` is.
    root: Cells<FLAGGED>,
    /// Which prefixes of at most 16 bits there are: a bit each, of 64 that belong together.
    short: Array<u64>,
    /// Their labels, numbered as their bits.
    labels: Cells<PLAIN>,
    /// For each /24 of a chunk: the label of a prefix of 17 to 24 bits, or the hole, or the flag and a chunk of `n32`.
    n24: Cells<FLAGGED>,
    /// For each address of a chunk the label of a prefix longer than 24, or the hole.
    n32: Cells<FLAGGED>,
    /// For each chunk of `n32` what the cell that leads to it would be. One store each, since their order is any.
    beside: Cells<32>,
    numbers: [Numbers; 2],
    /// How long the prefix is that each label of `n24`, `n32` and `beside` comes from; 0 for a hole. For changes only.
    owners: [Vec<u8>; 3],
}

/// Builds a `sail-lv` of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer_lv(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    narrow_or_wide(
        "sail-lv",
        rib,
        || Virtually::<17, 16>::build(rib).map(copies::writer),
        || Virtually::<32, 32>::build(rib).map(copies::writer),
    )
}

/// The word of `short` for number `k` of three strides of a key, and the five bits of the key that are the way down in it.
#[inline(always)]
fn word(key: u32, k: u32) -> (usize, usize) {
    let first = [0, 1, 1 + (1 << 6)][k as usize];
    let node = (u64::from(key) >> (32 - k * u32::from(STRIDE))) as usize;
    (first + node, (key << (k * u32::from(STRIDE)) >> 27) as usize)
}

impl<const FLAGGED: u32, const PLAIN: u32> Virtually<FLAGGED, PLAIN> {
    const FLAG: u32 = Cells::<FLAGGED>::FLAG;
    /// In place of a label: the level above answers. No chunk has this number.
    const HOLE: u32 = u32::MAX >> (32 - FLAGGED);

    /// Builds the structure of `rib`.
    ///
    /// # Errors
    /// A label, or the number of chunks, is too great for the cells.
    pub fn build(rib: &Rib<u32>) -> Result<Self, Outgrown> {
        let mut sail = Virtually {
            root: Cells::new(1 << 16),
            short: Array::zeroed(WORDS),
            labels: Cells::new(WORDS * 64),
            n24: Cells::new(0),
            n32: Cells::new(0),
            beside: Cells::new(0),
            numbers: Default::default(),
            owners: Default::default(),
        };
        rib.iter().try_for_each(|(prefix, label)| sail.announce(prefix, label, &()))?;
        Ok(sail)
    }

    /// Whether an address that a lookup or a change has told is in the on-chip part: the cells of level 16, and the bitmaps of
    /// lengths 0 to 16.
    pub fn on_chip(&self, address: usize) -> bool {
        let start = self.short.as_ptr().addr();
        self.root.addresses().contains(&address) || (start..start + WORDS * 8).contains(&address)
    }

    /// Bytes of the on-chip part.
    pub fn on_chip_bytes(&self) -> usize {
        self.root.bytes() + WORDS * 8
    }

    /// Chunks in use: of level 24, and of level 32.
    pub fn chunks(&self) -> [usize; 2] {
        self.numbers.each_ref().map(Numbers::in_use)
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u32, probe: &P) -> Label {
        probe.step();
        let found = self.root.get(key as usize >> 16, false, probe);
        if found != 0 {
            probe.step();
            let found = self.n24.get(Self::below(found, key >> 8), true, probe);
            if found & Self::FLAG == 0 {
                return Label(found);
            }
            if found != Self::HOLE {
                probe.step();
                let host = self.n32.get(Self::below(found, key), true, probe);
                if host != Self::HOLE {
                    return Label(host);
                }
                let beside = self.beside.get((found & !Self::FLAG) as usize, true, probe);
                if beside != Self::HOLE {
                    return Label(beside);
                }
            }
        }
        self.find_short(key, probe)
    }

    /// The longest match of at most 16 bits.
    #[inline(always)]
    fn find_short<P: Probe + ?Sized>(&self, key: u32, probe: &P) -> Label {
        for k in (0..3).rev() {
            let (at, way) = word(key, k);
            probe.step();
            probe.read((&raw const self.short[at]).addr(), 8, false);
            let there = self.short[at] & PATHS[way];
            if there != 0 {
                return Label(self.labels.get(at * 64 + there.ilog2() as usize, true, probe));
            }
        }
        Label::NONE
    }

    /// The cell of a chunk that a cell leads to, by the last 8 bits of `key`.
    #[inline(always)]
    fn below(found: u32, key: u32) -> usize {
        (found & !Self::FLAG) as usize * CHUNK + key as usize % CHUNK
    }

    /// One level after the other for all keys of a burst, what they need next prefetched as soon as it is known.
    fn lock_step(&self, keys: &[u32], out: &mut [Label]) {
        let mut cells = [0; BURST];
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            for (&key, cell) in keys.iter().zip(&mut cells) {
                let found = self.root.peek(key as usize >> 16);
                let on = found != 0;
                *cell = if on { Self::below(found, key >> 8) } else { usize::MAX };
                let next = if on { *cell } else { 0 };
                self.n24.prefetch(next);
                prefetch_read(&raw const self.short[word(key, 2).0]);
            }
            for ((&key, out), &cell) in keys.iter().zip(&mut *out).zip(&cells) {
                let mut found = if cell == usize::MAX { Self::HOLE } else { self.n24.peek(cell) };
                if found & Self::FLAG != 0 && found != Self::HOLE {
                    let chunk = found;
                    found = self.n32.peek(Self::below(chunk, key));
                    if found == Self::HOLE {
                        found = self.beside.peek((chunk & !Self::FLAG) as usize);
                    }
                }
                *out = if found == Self::HOLE { self.find_short(key, &()) } else { Label(found) };
            }
        }
    }

    fn announce<P: Probe + ?Sized>(
        &mut self,
        prefix: Prefix<u32>,
        label: Label,
        probe: &P,
    ) -> Result<(), Outgrown> {
        fits::<PLAIN>(prefix, label)?;
        let (first, len) = (prefix.first(), prefix.len());
        if len <= 16 {
            let (at, bit) = Self::bit(prefix);
            self.labels.set(at * 64 + bit, label.0, probe);
            return {
                self.store_short(at, self.short[at] | 1 << bit, probe);
                Ok(())
            };
        }
        let slot = first as usize >> 16;
        if self.root.peek(slot) == 0 {
            let chunk = self.take(0, probe)?;
            self.root.set(slot, chunk as u32 | Self::FLAG, probe);
        }
        let cell = Self::below(self.root.peek(slot), first >> 8);
        if len <= 24 {
            self.spread_24(cell, 1 << (24 - len), 0..=len, (len, label.0), probe);
            return Ok(());
        }
        if !self.leads_on(cell) {
            let chunk = self.take(1, probe)?;
            self.beside.grow(chunk + 1);
            self.owners[2].resize(self.owners[2].len().max(chunk + 1), 0);
            self.owners[2][chunk] = self.owners[0][cell];
            self.beside.set(chunk, self.n24.peek(cell), probe);
            self.n24.set(cell, chunk as u32 | Self::FLAG, probe);
        }
        let cell = Self::below(self.n24.peek(cell), first);
        self.spread_32(cell, 1 << (32 - len), 0..=len, (len, label.0), probe);
        Ok(())
    }

    fn withdraw<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let (first, len) = (prefix.first(), prefix.len());
        if len <= 16 {
            let (at, bit) = Self::bit(prefix);
            self.store_short(at, self.short[at] & !(1 << bit), probe);
            return Ok(());
        }
        let slot = first as usize >> 16;
        if self.root.peek(slot) == 0 {
            return Ok(());
        }
        let cell = Self::below(self.root.peek(slot), first >> 8);
        if len <= 24 {
            let to = self.answer(rib, prefix, 17)?;
            self.spread_24(cell, 1 << (24 - len), len..=len, to, probe);
        } else if self.leads_on(cell) {
            let to = self.answer(rib, prefix, 25)?;
            let chunk = self.n24.peek(cell);
            self.spread_32(Self::below(chunk, first), 1 << (32 - len), len..=len, to, probe);
            if Self::nothing_below(rib, first, 24) {
                let chunk = (chunk & !Self::FLAG) as usize;
                self.owners[0][cell] = self.owners[2][chunk];
                self.n24.set(cell, self.beside.peek(chunk), probe);
                self.numbers[1].give_back(chunk);
            }
        }
        if Self::nothing_below(rib, first, 16) {
            let chunk = (self.root.peek(slot) & !Self::FLAG) as usize;
            // Left over only if the RIB is ahead of the structure.
            for cell in chunk * CHUNK..(chunk + 1) * CHUNK {
                if self.leads_on(cell) {
                    self.numbers[1].give_back((self.n24.peek(cell) & !Self::FLAG) as usize);
                }
            }
            self.root.set(slot, 0, probe);
            self.numbers[0].give_back(chunk);
        }
        Ok(())
    }

    fn nothing_below(rib: &Rib<u32>, first: u32, len: u8) -> bool {
        let at = Prefix::new(first, len).unwrap_or(Prefix::DEFAULT);
        !rib.inside(at).any(|(inner, _)| inner.len() > len)
    }

    /// The label of the longest prefix that covers `prefix`, and its length; the hole if it is shorter than `shortest`.
    fn answer(&self, rib: &Rib<u32>, prefix: Prefix<u32>, shortest: u8) -> Result<(u8, u32), Outgrown> {
        match rib.covering(prefix).filter(|(covering, _)| covering.len() >= shortest) {
            None => Ok((0, Self::HOLE)),
            Some((covering, label)) => {
                fits::<PLAIN>(covering, label)?;
                Ok((covering.len(), label.0))
            }
        }
    }

    /// The word of `short` and the bit of a prefix of at most 16 bits.
    fn bit(prefix: Prefix<u32>) -> (usize, usize) {
        let (k, len) = (prefix.len() / STRIDE, prefix.len() % STRIDE);
        let (at, way) = word(prefix.first(), k.into());
        (at, 1 << len | way >> (5 - len))
    }

    fn store_short<P: Probe + ?Sized>(&mut self, at: usize, word: u64, probe: &P) {
        probe.read((&raw const self.short[at]).addr(), 8, false);
        if self.short[at] != word {
            self.short[at] = word;
            probe.write((&raw const self.short[at]).addr(), 8);
        }
    }

    /// Whether a cell of `n24` leads to a chunk.
    fn leads_on(&self, cell: usize) -> bool {
        let found = self.n24.peek(cell);
        found & Self::FLAG != 0 && found != Self::HOLE
    }

    /// A chunk of `n24` or of `n32`, all of it holes.
    fn take<P: Probe + ?Sized>(&mut self, below: usize, probe: &P) -> Result<usize, Outgrown> {
        // The last number would be the hole.
        let limit = Self::FLAG as usize - 1;
        let chunk = self.numbers[below].take(limit).ok_or_else(|| too_many_chunks(limit))?;
        let cells = if below == 0 { &mut self.n24 } else { &mut self.n32 };
        cells.grow((chunk + 1) * CHUNK);
        let mut pen = Pen::default();
        for cell in chunk * CHUNK..(chunk + 1) * CHUNK {
            cells.put(&mut pen, cell, Self::HOLE, probe);
        }
        cells.flush(&mut pen, probe);
        let owners = &mut self.owners[below];
        owners.resize(cells.len(), 0);
        owners[chunk * CHUNK..(chunk + 1) * CHUNK].fill(0);
        Ok(chunk)
    }

    /// Stores a label and the length of its prefix into the cells of `n24` from `cell` on, or beside the chunks that they lead to,
    /// where what is there comes from a prefix of one of the lengths in `of`.
    fn spread_24<P: Probe + ?Sized>(
        &mut self,
        cell: usize,
        count: usize,
        of: RangeInclusive<u8>,
        (len, label): (u8, u32),
        probe: &P,
    ) {
        let [owners, _, owners_beside] = &mut self.owners;
        let mut pen = Pen::default();
        for cell in cell..cell + count {
            let found = self.n24.peek(cell);
            if found & Self::FLAG != 0 && found != Self::HOLE {
                let chunk = (found & !Self::FLAG) as usize;
                if of.contains(&owners_beside[chunk]) {
                    owners_beside[chunk] = len;
                    self.beside.set(chunk, label, probe);
                }
            } else if of.contains(&owners[cell]) {
                owners[cell] = len;
                self.n24.put(&mut pen, cell, label, probe);
            }
        }
        self.n24.flush(&mut pen, probe);
    }

    /// The same for cells of `n32`.
    fn spread_32<P: Probe + ?Sized>(
        &mut self,
        cell: usize,
        count: usize,
        of: RangeInclusive<u8>,
        (len, label): (u8, u32),
        probe: &P,
    ) {
        let mut pen = Pen::default();
        for cell in cell..cell + count {
            if of.contains(&self.owners[1][cell]) {
                self.owners[1][cell] = len;
                self.n32.put(&mut pen, cell, label, probe);
            }
        }
        self.n32.flush(&mut pen, probe);
    }
}

impl<const FLAGGED: u32, const PLAIN: u32> Fib<u32> for Virtually<FLAGGED, PLAIN> {
    fn lookup(&self, key: u32) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        self.lock_step(keys, out);
    }

    fn name(&self) -> String {
        "sail-lv".into()
    }

    fn bytes(&self) -> usize {
        let [n24, n32] = self.chunks();
        let flagged = Cells::<FLAGGED>::bytes_of((n24 + n32) * CHUNK);
        self.on_chip_bytes() + self.labels.bytes() + flagged + Cells::<32>::bytes_of(n32)
    }

    fn lookup_probed(&self, key: u32, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let [n24, n32] = self.chunks();
        vec![
            ("on_chip_bytes", self.on_chip_bytes() as f64),
            ("chunks_24", n24 as f64),
            ("chunks_32", n32 as f64),
            ("label_bits", f64::from(PLAIN.min(31))),
        ]
    }
}

impl<const FLAGGED: u32, const PLAIN: u32> Whole<u32> for Virtually<FLAGGED, PLAIN> {
    fn collapse(&self) {
        self.labels.collapse();
        self.n24.collapse();
        self.n32.collapse();
        self.beside.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        match rib.get(prefix) {
            Some(label) => self.announce(prefix, label, probe),
            None => self.withdraw(rib, prefix, probe),
        }
    }
}
