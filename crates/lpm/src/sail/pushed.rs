//! SAIL_L: levels 16, 24 and 32, and everything pushed to them.

use super::cells::{Cells, Numbers, Pen};
use super::push::{self, Owners, Store};
use super::{CHUNK, fits, narrow_or_wide, too_many_chunks};
use crate::copies::{self, Whole};
use crate::fib::{BuildError, Built, Fib, Label, Outgrown};
use crate::prefix::Prefix;
use crate::rib::Rib;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Keys in flight together.
const BURST: usize = 128;

/// SAIL_L with cells of `ROOT` bits at level 16, of `MIDDLE` at level 24 and of `PLAIN` at level 32. A label takes `PLAIN` bits. `MIDDLE`
/// is `ROOT` where a cell of level 24 holds a label or a chunk's number: 17, 17 and 16, or three times 32. It is `PLAIN` where the
/// numbers have an array of their own, as the source has it with labels of 8 bits: 17, 8 and 8; the greatest label, 255, is not
/// possible then.
#[derive(Clone)]
pub struct Pushed<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> {
    arrays: Arrays<ROOT, MIDDLE, PLAIN>,
    owners: Owners,
}

/// What lookups read.
#[derive(Clone)]
struct Arrays<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> {
    /// For each /16 a label, or the flag and a chunk of `n24`. The on-chip part.
    root: Cells<ROOT>,
    /// The same for each /24 of a chunk, with a chunk of `n32`; or a label, or [`LEADS_ON`](Self::LEADS_ON).
    n24: Cells<MIDDLE>,
    /// Where `n24` leads on: the flag and the chunk of `n32`. As long as it has to be; empty if `n24` has the chunks itself.
    c24: Cells<ROOT>,
    n32: Cells<PLAIN>,
    /// Chunks of `n24` and of `n32`.
    numbers: [Numbers; 2],
}

/// Builds a `sail-l` of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer_l(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    narrow_or_wide(
        "sail-l",
        rib,
        || Pushed::<17, 17, 16>::build(rib).map(copies::writer),
        || Pushed::<32, 32, 32>::build(rib).map(copies::writer),
    )
}

/// The greatest label of `sail-l8`.
pub const NARROW_MOST: u32 = 254;

/// Builds a `sail-l8` of `rib`, and its writer.
///
/// # Errors
/// A label above [`NARROW_MOST`]; more chunks than there are numbers for.
pub fn writer_l8(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    if let Some((prefix, label)) = rib.iter().find(|(_, label)| label.0 > NARROW_MOST) {
        let (prefix, label) = (prefix.to_string(), label.0);
        return Err(BuildError::LabelTooWide { prefix, label, width_bits: 8 });
    }
    match Pushed::<17, 8, 8>::build(rib) {
        Ok(sail) => copies::writer(sail),
        Err(Outgrown { what }) => {
            Err(BuildError::TooLarge { structure: "sail-l8".into(), what, advice: "take sail-l".into() })
        }
    }
}

impl<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> Arrays<ROOT, MIDDLE, PLAIN> {
    const FLAG: u32 = Cells::<ROOT>::FLAG;
    /// Whether the chunks of level 32 have an array of their own.
    const APART: bool = {
        assert!(MIDDLE == ROOT || (MIDDLE == PLAIN && MIDDLE < ROOT), "a label, with a number or without");
        MIDDLE < ROOT
    };
    /// In a cell of `n24` that has no chunk's number: there is one in `c24`.
    const LEADS_ON: u32 = u32::MAX >> (32 - MIDDLE);

    /// A label, or the flag and a chunk of `n32`: where a cell of level 24 leads to.
    #[inline(always)]
    fn at_24<P: Probe + ?Sized>(&self, cell: usize, probe: &P) -> u32 {
        let found = self.n24.get(cell, true, probe);
        if Self::APART && found == Self::LEADS_ON {
            return self.c24.get(cell, true, probe);
        }
        found
    }
}

impl<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> Pushed<ROOT, MIDDLE, PLAIN> {
    const FLAG: u32 = Cells::<ROOT>::FLAG;

    /// Builds the structure of `rib`.
    ///
    /// # Errors
    /// A label, or the number of chunks, is too great for the cells.
    pub fn build(rib: &Rib<u32>) -> Result<Self, Outgrown> {
        let mut sail = Pushed {
            arrays: Arrays {
                root: Cells::new(1 << 16),
                n24: Cells::new(0),
                c24: Cells::new(0),
                n32: Cells::new(0),
                numbers: Default::default(),
            },
            owners: Owners::new(1),
        };
        for entry in rib.iter() {
            push::announce(&mut sail.arrays, &mut sail.owners, 0, entry, &())?;
        }
        Ok(sail)
    }

    /// Whether an address that a lookup or a change has told is in the on-chip part: the cells of level 16.
    pub fn on_chip(&self, address: usize) -> bool {
        self.arrays.root.addresses().contains(&address)
    }

    /// Bytes of the on-chip part.
    pub fn on_chip_bytes(&self) -> usize {
        self.arrays.root.bytes()
    }

    /// Chunks in use: of level 24, and of level 32.
    pub fn chunks(&self) -> [usize; 2] {
        self.arrays.numbers.each_ref().map(Numbers::in_use)
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u32, probe: &P) -> Label {
        let Arrays { root, n32, .. } = &self.arrays;
        probe.step();
        let found = root.get(key as usize >> 16, false, probe);
        if found & Self::FLAG == 0 {
            return Label(found);
        }
        probe.step();
        let found = self.arrays.at_24(Self::below(found, key >> 8), probe);
        if found & Self::FLAG == 0 {
            return Label(found);
        }
        probe.step();
        Label(n32.get(Self::below(found, key), true, probe))
    }

    /// The cell of a chunk that a flagged cell leads to, by the last 8 bits of `key`.
    #[inline(always)]
    fn below(found: u32, key: u32) -> usize {
        (found & !Self::FLAG) as usize * CHUNK + key as usize % CHUNK
    }

    /// One level after the other for all keys of a burst: what a key needs next is prefetched as soon as it is known. What does
    /// not belong into the list of waiting keys is written too, and overwritten by the next, so that no branch depends on the data.
    fn lock_step(&self, keys: &[u32], out: &mut [Label]) {
        let Arrays { root, n24, n32, .. } = &self.arrays;
        let (mut cells, mut places) = ([0; BURST], [0; BURST]);
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            let mut waiting = 0;
            for (i, (&key, out)) in keys.iter().zip(&mut *out).enumerate() {
                let found = root.peek(key as usize >> 16);
                let on = usize::from(found & Self::FLAG != 0);
                let cell = Self::below(found, key >> 8) * on;
                n24.prefetch(cell);
                *out = Label(found);
                (cells[waiting], places[waiting]) = (cell, i);
                waiting += on;
            }
            for i in 0..std::mem::take(&mut waiting) {
                let (found, place) = (self.arrays.at_24(cells[i], &()), places[i]);
                out[place] = Label(found);
                let on = usize::from(found & Self::FLAG != 0);
                let cell = Self::below(found, keys[place]) * on;
                n32.prefetch(cell);
                (cells[waiting], places[waiting]) = (cell, place);
                waiting += on;
            }
            for i in 0..waiting {
                out[places[i]] = Label(n32.peek(cells[i]));
            }
        }
    }
}

impl<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> Store for Arrays<ROOT, MIDDLE, PLAIN> {
    fn fibs(&self) -> usize {
        1
    }

    fn child(&self, level: usize, cell: usize) -> Option<usize> {
        let found = match level {
            0 => self.root.peek(cell),
            1 => self.at_24(cell, &()),
            _ => 0,
        };
        (found & Self::FLAG != 0).then_some((found & !Self::FLAG) as usize)
    }

    fn label(&self, level: usize, cell: usize, _: usize) -> u32 {
        match level {
            0 => self.root.peek(cell),
            1 => self.n24.peek(cell),
            _ => self.n32.peek(cell),
        }
    }

    fn put<P: Probe + ?Sized>(
        &mut self,
        (level, cell, _): (usize, usize, usize),
        label: u32,
        pen: &mut Pen,
        probe: &P,
    ) {
        match level {
            0 => self.root.put(pen, cell, label, probe),
            1 => self.n24.put(pen, cell, label, probe),
            _ => self.n32.put(pen, cell, label, probe),
        }
    }

    fn flush<P: Probe + ?Sized>(&mut self, level: usize, pen: &mut Pen, probe: &P) {
        match level {
            0 => self.root.flush(pen, probe),
            1 => self.n24.flush(pen, probe),
            _ => self.n32.flush(pen, probe),
        }
    }

    fn take<P: Probe + ?Sized>(&mut self, level: usize, _: &P) -> Result<usize, Outgrown> {
        let limit = Self::FLAG as usize;
        let chunk = self.numbers[level - 1].take(limit).ok_or_else(|| too_many_chunks(limit))?;
        match level {
            1 => self.n24.grow((chunk + 1) * CHUNK),
            _ => self.n32.grow((chunk + 1) * CHUNK),
        }
        Ok(chunk)
    }

    fn give_back(&mut self, level: usize, chunk: usize) {
        self.numbers[level - 1].give_back(chunk);
    }

    fn point<P: Probe + ?Sized>(&mut self, level: usize, cell: usize, chunk: Option<usize>, probe: &P) {
        // Without a chunk the cell gets its label next, by the same store.
        let Some(chunk) = chunk else { return };
        let value = chunk as u32 | Self::FLAG;
        match level {
            0 => self.root.set(cell, value, probe),
            _ if Self::APART => {
                self.c24.grow((cell / CHUNK + 1) * CHUNK);
                self.c24.set(cell, value, probe);
                self.n24.set(cell, Self::LEADS_ON, probe);
            }
            _ => self.n24.set(cell, value, probe),
        }
    }

    fn fits(&self, prefix: Prefix<u32>, label: Label) -> Result<(), Outgrown> {
        if Self::APART && label.0 == Self::LEADS_ON {
            return Err(Outgrown { what: format!("label {} of {prefix} marks cells that lead on", label.0) });
        }
        fits::<PLAIN>(prefix, label)
    }
}

impl<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> Fib<u32> for Pushed<ROOT, MIDDLE, PLAIN> {
    fn lookup(&self, key: u32) -> Label {
        self.find(key, &())
    }

    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        self.lock_step(keys, out);
    }

    fn name(&self) -> String {
        if PLAIN == 8 { "sail-l8".into() } else { "sail-l".into() }
    }

    fn bytes(&self) -> usize {
        let [n24, n32] = self.chunks();
        let chunks = Cells::<MIDDLE>::bytes_of(n24 * CHUNK) + Cells::<PLAIN>::bytes_of(n32 * CHUNK);
        self.on_chip_bytes() + chunks + self.arrays.c24.bytes()
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

impl<const ROOT: u32, const MIDDLE: u32, const PLAIN: u32> Whole<u32> for Pushed<ROOT, MIDDLE, PLAIN> {
    fn collapse(&self) {
        self.arrays.n24.collapse();
        self.arrays.c24.collapse();
        self.arrays.n32.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let Pushed { arrays, owners } = self;
        match rib.get(prefix) {
            Some(label) => push::announce(arrays, owners, 0, (prefix, label), probe),
            None => push::withdraw(arrays, owners, std::slice::from_ref(rib), 0, prefix, probe),
        }
    }
}
