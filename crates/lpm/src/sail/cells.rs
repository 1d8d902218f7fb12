//! Arrays of cells of many widths: 17 bits are a label or the number of a chunk, and which of both.

use std::ops::Range;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;

/// Cells of `BITS` bits (8, or 16 to 32) one behind the other, all zero at first. A cell of at most 25 bits is one load of 4 bytes
/// wherever it begins; those of 8, 16 and 32 bits are aligned.
pub(super) struct Cells<const BITS: u32> {
    /// Whole words of 64 bits, little endian, and one more so that a load of the last cell stays inside.
    bytes: Array<u8>,
    len: usize,
}

/// A word of 64 bits under change: what is stored into neighbours is stored together.
#[derive(Default)]
pub(super) struct Pen {
    word: Option<usize>,
    old: u64,
    new: u64,
}

const PAGE: usize = 4096;
static ZEROS: [u8; PAGE] = [0; PAGE];

impl<const BITS: u32> Clone for Cells<BITS> {
    /// Leaves pages without content alone: a large array in which little is used costs no memory for the rest.
    fn clone(&self) -> Self {
        let mut bytes = Array::<u8>::zeroed(self.bytes.len());
        for (to, from) in bytes.chunks_mut(PAGE).zip(self.bytes.chunks(PAGE)) {
            if from != &ZEROS[..from.len()] {
                to.copy_from_slice(from);
            }
        }
        Cells { bytes, len: self.len }
    }
}

impl<const BITS: u32> Cells<BITS> {
    /// See [`Whole::collapse`](crate::copies::Whole::collapse).
    pub(super) fn collapse(&self) {
        collapse(&self.bytes);
    }

    /// Set in a cell that is not a label.
    pub(super) const FLAG: u32 = 1 << (BITS - 1);

    fn bytes_for(len: usize) -> usize {
        ((len * BITS as usize).div_ceil(64) + 1) * 8
    }

    pub(super) fn new(len: usize) -> Self {
        Cells { bytes: Array::zeroed(Self::bytes_for(len)), len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds cells up to so many.
    pub(super) fn grow(&mut self, len: usize) {
        self.len = self.len.max(len);
        self.bytes.resize(Self::bytes_for(self.len), 0);
    }

    /// Bytes of so many cells.
    pub(super) fn bytes_of(cells: usize) -> usize {
        (cells * BITS as usize).div_ceil(8)
    }

    pub(super) fn bytes(&self) -> usize {
        Self::bytes_of(self.len)
    }

    /// Where the array is.
    pub(super) fn addresses(&self) -> Range<usize> {
        let start = self.bytes.as_ptr().addr();
        start..start + self.bytes.len()
    }

    #[inline(always)]
    pub(super) fn peek(&self, cell: usize) -> u32 {
        let at = cell * BITS as usize;
        let byte = at / 8;
        if BITS == 8 {
            return self.bytes.get(byte).copied().unwrap_or(0).into();
        }
        if BITS == 16 {
            return match self.bytes.get(byte..byte + 2) {
                Some(&[a, b]) => u32::from(u16::from_le_bytes([a, b])),
                _ => 0,
            };
        }
        match self.bytes.get(byte..byte + 4) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]) >> (at % 8) & (u32::MAX >> (32 - BITS)),
            _ => 0,
        }
    }

    #[inline(always)]
    fn at(&self, cell: usize) -> *const u8 {
        self.bytes.as_ptr().wrapping_add(cell * BITS as usize / 8)
    }

    /// The cell, told to `probe`.
    #[inline(always)]
    pub(super) fn get<P: Probe + ?Sized>(&self, cell: usize, dependent: bool, probe: &P) -> u32 {
        let size = match BITS {
            8 => 1,
            16 => 2,
            _ => 4,
        };
        probe.read(self.at(cell).addr(), size, dependent);
        self.peek(cell)
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, cell: usize) {
        prefetch_read(self.at(cell));
    }

    /// Changes a cell; [`flush`](Self::flush) when the last of a row is done.
    pub(super) fn put<P: Probe + ?Sized>(&mut self, pen: &mut Pen, cell: usize, value: u32, probe: &P) {
        let (at, mask) = (cell * BITS as usize, u64::MAX >> (64 - BITS));
        let (shift, value) = (at % 64, u64::from(value));
        self.turn(pen, at / 64, probe);
        pen.new = pen.new & !(mask << shift) | value << shift;
        if shift + BITS as usize > 64 {
            let below = 64 - shift;
            self.turn(pen, at / 64 + 1, probe);
            pen.new = pen.new & !(mask >> below) | value >> below;
        }
    }

    fn turn<P: Probe + ?Sized>(&mut self, pen: &mut Pen, word: usize, probe: &P) {
        if pen.word == Some(word) {
            return;
        }
        self.flush(pen, probe);
        let bytes = &self.bytes[8 * word..8 * word + 8];
        probe.read(bytes.as_ptr().addr(), 8, false);
        pen.old = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        (pen.word, pen.new) = (Some(word), pen.old);
    }

    pub(super) fn flush<P: Probe + ?Sized>(&mut self, pen: &mut Pen, probe: &P) {
        if let Some(word) = pen.word.take()
            && pen.new != pen.old
        {
            let bytes = &mut self.bytes[8 * word..8 * word + 8];
            bytes.copy_from_slice(&pen.new.to_le_bytes());
            probe.write(bytes.as_ptr().addr(), 8);
        }
    }

    /// Changes one cell.
    pub(super) fn set<P: Probe + ?Sized>(&mut self, cell: usize, value: u32, probe: &P) {
        let mut pen = Pen::default();
        self.put(&mut pen, cell, value, probe);
        self.flush(&mut pen, probe);
    }
}

/// Numbers of chunks: those in use, and those to be used again.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers {
    next: usize,
    free: Vec<usize>,
}

impl Numbers {
    /// A number below `limit`, unless there is none.
    pub(super) fn take(&mut self, limit: usize) -> Option<usize> {
        self.free.pop().or_else(|| {
            let number = self.next;
            (number < limit).then(|| {
                self.next += 1;
                number
            })
        })
    }

    pub(super) fn give_back(&mut self, number: usize) {
        self.free.push(number);
    }

    pub(super) fn in_use(&self) -> usize {
        self.next - self.free.len()
    }
}
