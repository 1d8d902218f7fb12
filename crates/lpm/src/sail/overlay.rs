//! SAIL_M: several FIBs in one structure of three levels. Which level answers is the same for all of them, so the on-chip part is there
//! once; only labels are stored for each.

use super::cells::{Cells, Numbers, Pen};
use super::push::{self, Owners, Store};
use super::{CHUNK, fits, narrow_or_wide, too_many_chunks};
use crate::copies::{self, Whole};
use crate::fib::{Built, Fib, Label, Outgrown};
use crate::prefix::Prefix;
use crate::rib::Rib;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// SAIL_M. `PLAIN` and `FLAGGED` as in [`Levels`](super::Levels).
///
/// ```
/// use tidemill_lpm::{Label, Prefix, Rib, sail::Overlay};
///
/// let prefix: Prefix<u32> = "10.1.2.0/24".parse().unwrap();
/// let mut ribs = vec![Rib::new(); 2];
/// ribs[0].insert(Prefix::DEFAULT, Label(1));
/// let mut overlay = Overlay::<17, 16>::build(&ribs).unwrap();
/// ribs[1].insert(prefix, Label(7));
/// overlay.change_fib(&ribs, 1, prefix, &()).unwrap();
/// assert_eq!([0, 1].map(|fib| overlay.lookup_in(0x0a01_0203, fib)), [Label(1), Label(7)]);
/// ```
#[derive(Clone)]
pub struct Overlay<const FLAGGED: u32, const PLAIN: u32> {
    arrays: Arrays<FLAGGED, PLAIN>,
    owners: Owners,
}

/// What lookups read. A cell of `n16`, `n24` or `n32` is that of FIB 0, then of FIB 1, ...
#[derive(Clone)]
struct Arrays<const FLAGGED: u32, const PLAIN: u32> {
    fibs: usize,
    /// BC16: for each /16 the flag and a chunk of `n24`, or nothing. On chip, as `b24` is.
    root: Cells<FLAGGED>,
    /// B24: a bit for each /24 of a chunk of `n24`, set if it has labels and not a chunk of `n32`.
    b24: Array<u64>,
    n16: Cells<PLAIN>,
    /// N24; where the bit in `b24` is clear, the first label is C24, the number of the chunk.
    n24: Cells<PLAIN>,
    n32: Cells<PLAIN>,
    numbers: [Numbers; 2],
}

/// Words of `b24` for a chunk.
const CHUNK_WORDS: usize = CHUNK / 64;

/// Builds a `sail-m` of one FIB, and its writer.
///
/// # Errors
/// A label of more than 31 bits.
pub fn writer_m(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    narrow_or_wide(
        "sail-m",
        rib,
        || Overlay::<17, 16>::build(std::slice::from_ref(rib)).map(copies::writer),
        || Overlay::<32, 32>::build(std::slice::from_ref(rib)).map(copies::writer),
    )
}

impl<const FLAGGED: u32, const PLAIN: u32> Overlay<FLAGGED, PLAIN> {
    /// Overlays the FIBs of `ribs`; FIB number i is that of `ribs[i]`.
    ///
    /// # Errors
    /// A label, or the number of chunks, is too great for the cells: take `<32, 32>`.
    pub fn build(ribs: &[Rib<u32>]) -> Result<Self, Outgrown> {
        let fibs = ribs.len();
        let mut overlay = Overlay {
            arrays: Arrays {
                fibs,
                root: Cells::new(1 << 16),
                b24: Array::new(),
                n16: Cells::new(fibs << 16),
                n24: Cells::new(0),
                n32: Cells::new(0),
                numbers: Default::default(),
            },
            owners: Owners::new(fibs),
        };
        for (fib, rib) in ribs.iter().enumerate() {
            for entry in rib.iter() {
                push::announce(&mut overlay.arrays, &mut overlay.owners, fib, entry, &())?;
            }
        }
        Ok(overlay)
    }

    /// FIBs that are overlaid.
    pub fn fibs(&self) -> usize {
        self.arrays.fibs
    }

    /// Whether an address that a lookup or a change has told is in the on-chip part: the cells of level 16 and the bitmap of
    /// level 24.
    pub fn on_chip(&self, address: usize) -> bool {
        let Arrays { root, b24, .. } = &self.arrays;
        let bits = b24.as_ptr().addr()..b24.as_ptr().wrapping_add(b24.len()).addr();
        root.addresses().contains(&address) || bits.contains(&address)
    }

    /// Bytes of the on-chip part, however many FIBs there are.
    pub fn on_chip_bytes(&self) -> usize {
        self.arrays.root.bytes() + self.chunks()[0] * CHUNK / 8
    }

    /// Chunks in use: of level 24, and of level 32.
    pub fn chunks(&self) -> [usize; 2] {
        self.arrays.numbers.each_ref().map(Numbers::in_use)
    }

    /// Longest match in one of the FIBs.
    ///
    /// # Panics
    /// If there is no such FIB.
    pub fn lookup_in(&self, key: u32, fib: usize) -> Label {
        self.find(key, fib, &())
    }

    /// The same, with every memory access told to `probe`.
    ///
    /// # Panics
    /// As [`lookup_in`](Self::lookup_in).
    pub fn lookup_in_probed(&self, key: u32, fib: usize, probe: &dyn Probe) -> Label {
        self.find(key, fib, probe)
    }

    /// Longest match of a burst, each key in a FIB of its own: `out[i]` answers `keys[i]`, a key and its FIB.
    ///
    /// # Panics
    /// If the lengths differ, or there is no such FIB.
    pub fn lookup_batch_in(&self, keys: &[(u32, usize)], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        self.lock_step(keys.len(), |i| keys[i], out);
    }

    /// Brings FIB number `fib` up to date for `prefix`, as [`Whole::change`] does. `ribs`: of all the FIBs, since a chunk stays as long
    /// as one of them needs it.
    ///
    /// # Errors
    /// [`Outgrown`]: a label, or the number of chunks, is too great for the cells. Build another one.
    ///
    /// # Panics
    /// If there are not as many RIBs as FIBs, or there is no such FIB.
    pub fn change_fib<P: Probe + ?Sized>(
        &mut self,
        ribs: &[Rib<u32>],
        fib: usize,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        assert_eq!(ribs.len(), self.fibs(), "a RIB for each FIB");
        let Overlay { arrays, owners } = self;
        match ribs[fib].get(prefix) {
            Some(label) => push::announce(arrays, owners, fib, (prefix, label), probe),
            None => push::withdraw(arrays, owners, ribs, fib, prefix, probe),
        }
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u32, fib: usize, probe: &P) -> Label {
        let Arrays { fibs, root, b24, n16, n24, n32, .. } = &self.arrays;
        assert!(fib < *fibs, "there is no FIB {fib}");
        probe.step();
        let found = root.get(key as usize >> 16, false, probe);
        if found & Cells::<FLAGGED>::FLAG == 0 {
            return Label(n16.get((key as usize >> 16) * fibs + fib, false, probe));
        }
        let cell = Self::below(found, key >> 8);
        probe.step();
        probe.read((&raw const b24[cell / 64]).addr(), 8, true);
        if b24[cell / 64] >> (cell % 64) & 1 == 1 {
            return Label(n24.get(cell * fibs + fib, true, probe));
        }
        let found = n24.get(cell * fibs, true, probe);
        probe.step();
        Label(n32.get(Self::below(found, key) * fibs + fib, true, probe))
    }

    /// The cell of a chunk that a cell leads to, by the last 8 bits of `key`.
    #[inline(always)]
    fn below(found: u32, key: u32) -> usize {
        (found & !Cells::<FLAGGED>::FLAG) as usize * CHUNK + key as usize % CHUNK
    }

    /// One level after the other for all keys of a burst.
    #[inline(always)]
    fn lock_step(&self, keys: usize, key: impl Fn(usize) -> (u32, usize), out: &mut [Label]) {
        const BURST: usize = 64;
        let Arrays { fibs, root, b24, n16, n24, n32, .. } = &self.arrays;
        let mut cells = [0; BURST];
        for start in (0..keys).step_by(BURST) {
            let burst = start..keys.min(start + BURST);
            for i in burst.clone() {
                let (key, fib) = key(i);
                assert!(fib < *fibs, "there is no FIB {fib}");
                let found = root.peek(key as usize >> 16);
                // Cells of level 16 are told from others by their sign.
                cells[i - start] = if found & Cells::<FLAGGED>::FLAG == 0 {
                    let cell = (key as usize >> 16) * fibs + fib;
                    n16.prefetch(cell);
                    !(cell as isize)
                } else {
                    let cell = Self::below(found, key >> 8);
                    n24.prefetch(cell * fibs + fib);
                    prefetch_read(b24.as_ptr().wrapping_add(cell / 64));
                    cell as isize
                };
            }
            for i in burst {
                let cell = cells[i - start];
                if cell < 0 {
                    out[i] = Label(n16.peek(!cell as usize));
                    continue;
                }
                let (cell, (key, fib)) = (cell as usize, key(i));
                out[i] = Label(if b24[cell / 64] >> (cell % 64) & 1 == 1 {
                    n24.peek(cell * fibs + fib)
                } else {
                    n32.peek(Self::below(n24.peek(cell * fibs), key) * fibs + fib)
                });
            }
        }
    }
}

impl<const FLAGGED: u32, const PLAIN: u32> Store for Arrays<FLAGGED, PLAIN> {
    fn fibs(&self) -> usize {
        self.fibs
    }

    fn child(&self, level: usize, cell: usize) -> Option<usize> {
        let flag = Cells::<FLAGGED>::FLAG;
        match level {
            0 => Some(self.root.peek(cell)).filter(|found| found & flag != 0).map(|found| found & !flag),
            1 => (self.b24[cell / 64] >> (cell % 64) & 1 == 0).then(|| self.n24.peek(cell * self.fibs)),
            _ => None,
        }
        .map(|chunk| chunk as usize)
    }

    fn label(&self, level: usize, cell: usize, fib: usize) -> u32 {
        let at = cell * self.fibs + fib;
        match level {
            0 => self.n16.peek(at),
            1 => self.n24.peek(at),
            _ => self.n32.peek(at),
        }
    }

    fn put<P: Probe + ?Sized>(
        &mut self,
        (level, cell, fib): (usize, usize, usize),
        label: u32,
        pen: &mut Pen,
        probe: &P,
    ) {
        let at = cell * self.fibs + fib;
        match level {
            0 => self.n16.put(pen, at, label, probe),
            1 => self.n24.put(pen, at, label, probe),
            _ => self.n32.put(pen, at, label, probe),
        }
    }

    fn flush<P: Probe + ?Sized>(&mut self, level: usize, pen: &mut Pen, probe: &P) {
        match level {
            0 => self.n16.flush(pen, probe),
            1 => self.n24.flush(pen, probe),
            _ => self.n32.flush(pen, probe),
        }
    }

    fn take<P: Probe + ?Sized>(&mut self, level: usize, probe: &P) -> Result<usize, Outgrown> {
        let limit = Cells::<FLAGGED>::FLAG as usize;
        let chunk = self.numbers[level - 1].take(limit).ok_or_else(|| too_many_chunks(limit))?;
        let cells = (chunk + 1) * CHUNK;
        if level == 1 {
            self.n24.grow(cells * self.fibs);
            self.b24.resize(self.b24.len().max(cells / 64), 0);
            for word in &mut self.b24[chunk * CHUNK_WORDS..(chunk + 1) * CHUNK_WORDS] {
                *word = u64::MAX;
                probe.write((&raw const *word).addr(), 8);
            }
        } else {
            self.n32.grow(cells * self.fibs);
        }
        Ok(chunk)
    }

    fn give_back(&mut self, level: usize, chunk: usize) {
        self.numbers[level - 1].give_back(chunk);
    }

    fn point<P: Probe + ?Sized>(&mut self, level: usize, cell: usize, chunk: Option<usize>, probe: &P) {
        if level == 0 {
            let value = chunk.map_or(0, |chunk| chunk as u32 | Cells::<FLAGGED>::FLAG);
            return self.root.set(cell, value, probe);
        }
        let (word, bit) = (&mut self.b24[cell / 64], 1 << (cell % 64));
        match chunk {
            Some(_) => *word &= !bit,
            None => *word |= bit,
        }
        probe.write((&raw const *word).addr(), 8);
        if let Some(chunk) = chunk {
            self.n24.set(cell * self.fibs, chunk as u32, probe);
        }
    }

    fn fits(&self, prefix: Prefix<u32>, label: Label) -> Result<(), Outgrown> {
        fits::<PLAIN>(prefix, label)
    }
}

/// As a member of the registry: with one FIB.
impl<const FLAGGED: u32, const PLAIN: u32> Fib<u32> for Overlay<FLAGGED, PLAIN> {
    fn lookup(&self, key: u32) -> Label {
        self.lookup_in(key, 0)
    }

    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        self.lock_step(keys.len(), |i| (keys[i], 0), out);
    }

    fn name(&self) -> String {
        "sail-m".into()
    }

    fn bytes(&self) -> usize {
        let [n24, n32] = self.chunks();
        let cells = (1 << 16) + (n24 + n32) * CHUNK;
        self.on_chip_bytes() + Cells::<PLAIN>::bytes_of(cells * self.fibs())
    }

    fn lookup_probed(&self, key: u32, probe: &dyn Probe) -> Label {
        self.find(key, 0, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let [n24, n32] = self.chunks();
        vec![
            ("fibs", self.fibs() as f64),
            ("on_chip_bytes", self.on_chip_bytes() as f64),
            ("chunks_24", n24 as f64),
            ("chunks_32", n32 as f64),
            ("label_bits", f64::from(PLAIN.min(31))),
        ]
    }
}

/// With one FIB.
impl<const FLAGGED: u32, const PLAIN: u32> Whole<u32> for Overlay<FLAGGED, PLAIN> {
    fn collapse(&self) {
        collapse(&self.arrays.b24);
        self.arrays.n16.collapse();
        self.arrays.n24.collapse();
        self.arrays.n32.collapse();
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        self.change_fib(std::slice::from_ref(rib), 0, prefix, probe)
    }
}
