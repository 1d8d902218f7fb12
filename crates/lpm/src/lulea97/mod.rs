//! Luleå as in 1997: bit vectors of a prefix tree's leaves, squeezed by a table of all the bit masks that there can be. IPv4.
//!
//! Source: M. Degermark, A. Brodnik, S. Carlsson, S. Pink, "Small forwarding tables for fast routing lookups", SIGCOMM 1997. What
//! has become of it on a CPU that counts bits is [`crate::lulea`].
//!
//! # Memory
//! The prefixes are expanded to the leaves of a complete binary tree. Cut at a depth of 16, it is a vector of 2^16 bits: a bit is set
//! where a leaf, or what is below the cut, begins: a *head*. Each head has a pointer. 16 bits in a row can be only 678 different
//! masks, since the tree is complete: 0, or one of 677, which a number of ten bits names.
//! ```text
//! codeword   | mask's number: 10 | six: 6 |      for 16 slots of the bit vector
//! base       heads before, for four codewords    16 bits
//! maptable   for each mask and slot: set bits up to there, less one: 677 rows of 16 x 4 bits
//! pointer    | 0 | label: 31 |   or   | 1 | kind: 2 | chunk's first word: 29 |
//!
//! slot x: pointer number base[x / 64] + six + maptable[mask][x % 16]
//!         a mask of 0 is named as that of one leaf is, row 0, with a six of one less
//!
//! level 1   codewords of 2^16 slots, bases, pointers           bits 0..16
//! chunk     256 slots                                           bits 16..24, and 24..32 below that
//!   sparse       up to 8 heads:  | count, head 1 .. head 7: 8 bytes | pointers |
//!   dense        up to 64:       | 16 codewords, their sixes counting from 0: 32 bytes | pointers |
//!   very dense   up to 256:      | 16 codewords, 4 bases: 40 bytes | pointers |
//!
//! 10.0.0.0/8 -> 1, 10.1.2.0/23 -> 2: the chunk of 10.1 has the heads 0, 2, 4, 8, 16, 32, 64, 128: it is sparse
//! ```
//! # Cost
//! Level 1: codeword, base, row of the maptable, pointer; a chunk the same, without a base if it is dense, or 8 bytes and a pointer if
//! it is sparse. At most 12 loads, the source's figure; the source has 4 to 5 bytes per prefix for its tables of 10,000 to
//! 40,000, and up to two million lookups a second on CPUs of 1997. The IPv4 table of 2026 (1,042,325 prefixes, 148 labels) takes
//! 3.0 bytes per prefix, with 32,993 heads at level 1 and 3,320 sparse, 11,320 dense and 2,895 very dense chunks; keys
//! spread over its prefixes make 6.7 loads of 30 bytes in all.
//!
//! A change makes anew the chunks of the /16s that the prefix covers. If the heads of level 1 change, or a label there, level 1 is
//! made from what its 65,536 slots have, and what is different is stored.
//!
//! # Where we depart from the source
//! * Pointers have 32 bits: 16 would name 2^14 chunks. Chunks have as many pointers as heads; the source's sparse ones always 8.
//! * Neighbors in the tree that have one label are one leaf. Prefixes end anywhere up to /32 (level 3 as in the source).
//! * The source has no updates.
//!
//! # Invariants
//! 1. Slot 0 is a head, at level 1 and in every chunk; a chunk has two heads at least.
//! 2. `slots` has for each /16 what its head's pointer says.
//! 3. A chunk belongs to one pointer, its words are in no other one's.

mod build;
#[cfg(test)]
mod tests;

use crate::copies::{self, Whole};
use crate::fib::{BuildError, Built, Fib, Label, Outgrown, check_labels};
use crate::prefix::Prefix;
use crate::rib::Rib;
use crate::runs::Runs;
use build::Masks;
use tidemill_lookup::mem::{Array, collapse};
use tidemill_lookup::prefetch::prefetch_read;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// Slots of level 1.
const FIRST: usize = 1 << 16;
/// Slots of a chunk.
const SLOTS: usize = 256;
/// Most heads of a sparse, and of a dense, chunk.
const SPARSE: usize = 8;
const DENSE: usize = 64;
/// In a pointer: the rest is a chunk.
const CHUNK: u32 = 1 << 31;
/// A chunk's kind; neither: it is sparse.
const IS_DENSE: u32 = 1 << 29;
const IS_VERY_DENSE: u32 = 2 << 29;
/// A chunk's first word.
const PLACE: u32 = IS_DENSE - 1;
/// Words of a chunk before its pointers: of a sparse one, the codewords, the codewords and the bases.
const SPARSE_HEAD: usize = 2;
const DENSE_HEAD: usize = 8;
const VERY_DENSE_HEAD: usize = 10;
/// Keys in flight together.
const BURST: usize = 32;

/// A Luleå table.
#[derive(Debug, Clone)]
pub struct Lulea97 {
    /// The maptable.
    rows: Array<u64>,
    codes: Array<u16>,
    bases: Array<u16>,
    pointers: Array<u32>,
    chunks: Runs<u32>,
    /// How many chunks there are of each kind.
    kinds: [usize; 3],
    /// For each /16 its label or chunk, and the masks' numbers; lookups do not look here.
    slots: Vec<u32>,
    masks: Masks,
}

/// Builds the structure of `rib`, and its writer.
///
/// # Errors
/// A label of more than 31 bits; 2^29 words of chunks.
pub fn writer(rib: &Rib<u32>, _: &Domain) -> Built<u32> {
    copies::writer(Lulea97::build(rib)?)
}

/// The pointer's number among those of its four codewords.
#[inline(always)]
fn number(rows: &[u64], code: u16, slot: usize, read: &impl Fn(usize, usize)) -> usize {
    let row = &rows[usize::from(code >> 6)];
    read((&raw const *row).addr(), size_of::<u64>());
    usize::from(code & 0x3f) + (row >> (4 * (slot % 16)) & 15) as usize
}

impl Lulea97 {
    /// Builds the structure of `rib`.
    ///
    /// # Errors
    /// A label of more than 31 bits; 2^29 words of chunks.
    pub fn build(rib: &Rib<u32>) -> Result<Self, BuildError> {
        check_labels(rib, 31)?;
        let masks = Masks::new();
        let mut lulea = Lulea97 {
            rows: masks.rows(),
            codes: Array::new(),
            bases: Array::new(),
            pointers: Array::new(),
            chunks: Runs::new(),
            kinds: [0; 3],
            slots: vec![Label::NONE.0; FIRST],
            masks,
        };
        let full = |full: Outgrown| BuildError::TooLarge {
            structure: "lulea-1997".into(),
            what: full.what,
            advice: "split the table".into(),
        };
        lulea.set_slots(rib, Prefix::DEFAULT, &()).map_err(full)?;
        lulea.make_first(&());
        Ok(lulea)
    }

    /// The number of the pointer for a slot of level 1.
    #[inline(always)]
    fn first<P: Probe + ?Sized>(&self, slot: usize, probe: &P) -> usize {
        let (code, base) = (&self.codes[slot / 16], &self.bases[slot / 64]);
        probe.read((&raw const *code).addr(), 2, false);
        probe.read((&raw const *base).addr(), 2, false);
        usize::from(*base) + number(&self.rows, *code, slot, &|at, size| probe.read(at, size, true))
    }

    /// The word of the pointer for a slot of a chunk.
    #[inline(always)]
    fn place<P: Probe + ?Sized>(&self, chunk: u32, x: u8, probe: &P) -> usize {
        let read = |at: usize, size: usize| probe.read(at, size, true);
        let (word, slot) = ((chunk & PLACE) as usize, usize::from(x));
        if chunk & (IS_DENSE | IS_VERY_DENSE) == 0 {
            let head: &[u32] = &self.chunks[word..word + SPARSE_HEAD];
            read(head.as_ptr().addr(), 8);
            let heads = u64::from(head[1]) << 32 | u64::from(head[0]);
            let [count, heads @ ..] = heads.to_le_bytes();
            let up_to: u8 = heads.iter().map(|&head| u8::from(head <= x)).sum();
            return word + SPARSE_HEAD + usize::from(up_to.min(count - 1));
        }
        let half = |at: usize, i: usize| {
            let pair = &self.chunks[at + i / 2];
            read((&raw const *pair).addr(), 4);
            (pair >> (16 * (i % 2))) as u16
        };
        let at = number(&self.rows, half(word, slot / 16), slot, &read);
        if chunk & IS_DENSE != 0 {
            return word + DENSE_HEAD + at;
        }
        word + VERY_DENSE_HEAD + at + usize::from(half(word + DENSE_HEAD, slot / 64))
    }

    /// What the pointer for a slot of a chunk says.
    #[inline(always)]
    fn visit<P: Probe + ?Sized>(&self, chunk: u32, x: u8, probe: &P) -> u32 {
        let pointer = &self.chunks[self.place(chunk, x, probe)];
        probe.step();
        probe.read((&raw const *pointer).addr(), 4, true);
        *pointer
    }

    #[inline(always)]
    fn find<P: Probe + ?Sized>(&self, key: u32, probe: &P) -> Label {
        let pointer = &self.pointers[self.first((key >> 16) as usize, probe)];
        probe.step();
        probe.read((&raw const *pointer).addr(), 4, true);
        let mut entry = *pointer;
        for x in [(key >> 8) as u8, key as u8] {
            if entry & CHUNK == 0 {
                break;
            }
            entry = self.visit(entry, x, probe);
        }
        Label(entry)
    }
}

impl Fib<u32> for Lulea97 {
    fn lookup(&self, key: u32) -> Label {
        self.find(key, &())
    }

    /// Level by level: the chunks of a burst are asked for together.
    fn lookup_batch(&self, keys: &[u32], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        let ask = |entry: u32| prefetch_read(self.chunks.as_ptr().wrapping_add((entry & PLACE) as usize));
        for (keys, out) in keys.chunks(BURST).zip(out.chunks_mut(BURST)) {
            for (out, &key) in out.iter_mut().zip(keys) {
                out.0 = self.pointers[self.first((key >> 16) as usize, &())];
                ask(out.0);
            }
            for shift in [8, 0] {
                for (out, &key) in out.iter_mut().zip(keys).filter(|(out, _)| out.0 & CHUNK != 0) {
                    out.0 = self.visit(out.0, (key >> shift) as u8, &());
                    ask(out.0);
                }
            }
        }
    }

    fn name(&self) -> String {
        "lulea-1997".into()
    }

    fn bytes(&self) -> usize {
        let first = 8 * self.rows.len() + 2 * (self.codes.len() + self.bases.len()) + 4 * self.pointers.len();
        first + 4 * self.chunks.used()
    }

    fn lookup_probed(&self, key: u32, probe: &dyn Probe) -> Label {
        self.find(key, probe)
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        let [sparse, dense, very_dense] = self.kinds.map(|count| count as f64);
        let heads = self.pointers.len() as f64;
        vec![("heads", heads), ("sparse", sparse), ("dense", dense), ("very_dense", very_dense)]
    }
}

impl Whole<u32> for Lulea97 {
    fn collapse(&self) {
        collapse(&self.pointers);
        collapse(&self.chunks);
    }

    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<u32>,
        prefix: Prefix<u32>,
        probe: &P,
    ) -> Result<(), Outgrown> {
        let region = Prefix::new(prefix.first(), prefix.len().min(16)).unwrap_or(prefix);
        let same_heads = self.set_slots(rib, region, probe)?;
        if !same_heads {
            self.make_first(probe);
            return Ok(());
        }
        for slot in (region.first() >> 16) as usize..=(region.last() >> 16) as usize {
            let (at, entry) = (self.first(slot, &()), self.slots[slot]);
            build::set(&mut self.pointers[at], entry, probe);
        }
        Ok(())
    }
}
