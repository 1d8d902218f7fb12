//! SAIL: lookups split by prefix length and by memory - a small part that says at which level the answer is (Fu's "on chip"), and large
//! arrays that hold it. IPv4, to the last bit.
//!
//! Source: Q. Fu, "High performance software packet processing" (2020), 3.3 to 3.5 and 5.2.1; first T. Yang et al., SIGCOMM 2014. Written
//! from its description, as a yardstick: the structures are plain data and are patched as [copies](crate::copies).
//!
//! # Memory
//! A cell is a label of 16 bits, and in arrays where it can be the number of a chunk instead, one bit more that says which: 17 bits, one
//! behind the other, each still one load of 4 bytes. A chunk is 256 cells, one for each value of the next 8 bits. A table with a label
//! or a number of chunks that does not fit is built with cells of 32 bits, 31 of them for the label. `sail-l8` is `sail-l` with labels of 8
//! bits, as the source has them, up to 254, and refuses others: what leads on at level 24 is the cell 255, and the number of the chunk is
//! in an array C24.
//! ```text
//!                    on chip                                          off chip
//! sail-b   [Levels]     a bit per prefix of 0..=24 bits, 4 MB            a label per bit; N24 may lead to a chunk of N32
//! sail-u   [Levels]     a bit per value of 6, 12, 18 and 24 bits, 2.03 MB the same
//! sail-l   [Pushed]     BCN16: 2^16 cells, 139 KB                       BCN24: chunks of level 24; N32: chunks of level 32
//! sail-l8  [Pushed]     the same                                        BN24: a label or the mark; C24: chunks of level 32; N32
//! sail-lv  [Virtually]  C16: 2^16 cells, and a bit per prefix of        a label per bit; N24 and N32 as above, and what N24
//!                       0..=16 bits: 173 KB                             would be beside each chunk of N32
//! sail-m   [Overlay]    C16: 2^16 cells; B24: a bit per cell of level   N16, N24, N32 with a label for each FIB; C24 in the
//!                       24: at most 2.13 MB                             place of the first label of N24
//!
//! 10.0.0.0/8 -> 1, 10.1.2.0/23 -> 2, 10.1.3.7/32 -> 3:
//! sail-b   B8[10], B23[10.1.2] and B24[10.1.3] are set; N8[10] = 1, N23[10.1.2] = 2, N24[10.1.3] = chunk 0: 2 but for [7] = 3
//! sail-u   the same, but for B12[10.0, 10.16, ... 10.240] in place of B8, and B24[10.1.2], N24[10.1.2] = 2 in place of B23, N23
//! sail-l   BCN16[10.0, 10.2 ... 10.255] = 1, BCN16[10.1] = chunk 0: 1 but for [2] = 2 and [3] = chunk 0 of N32: as above
//! sail-lv  bit 10/8; C16[10.1] = chunk 0: holes but for [2] = 2 and [3] = chunk 0 of N32: holes but for [7] = 3; beside it, 2
//! ```
//! # Cost
//! In loads and stores of up to 64 bits; a row of cells is stored a word at a time. Loads, stores on chip and the bounds of
//! `sail-b`, `sail-u` and `sail-lv` are asserted with the access probe.
//! ```text
//!           a lookup's loads        a change's stores
//!           on chip    off chip     on chip      off chip
//! sail-b    1..=25     0..=2        1 at most    2 at most, and what chunks below inherit: 64 for each
//! sail-u    1..=4      0..=2        1 at most    16 at most, and the same
//! sail-l    1          0..=2        what the prefix covers, all levels down
//! sail-l8   1          0..=3        the same
//! sail-lv   1..=4      0..=4        2 at most    174 at most; with wide cells 322
//! sail-m    1..=2      1..=2        what the prefix covers, all levels down
//! ```
//! `sail-b` and `sail-u` look for the longest level with a bit, as Fu's Algorithm 3 does; the bits of all prefixes that one change touches
//! share a word. `sail-l` and `sail-m` expand a prefix to its level and push it into all chunks below. A change of 0.0.0.0/0 looks
//! at every cell there is. Stores per change of a real stream, in the mean (Fu's Figure 3.11 has 1.8 to 2.3
//! for SAIL_L, with labels of 8 bits; `tests/real_sail.rs` has more on it). Of 2013 `sail-l8` alone is in that range, and it alone has a third load
//! off chip; `sail-l` keeps to Fu's two, with stores twice as many.
//! ```text
//! stream            sail-b   sail-u   sail-l   sail-l8   sail-lv   sail-m
//! of 2026            1.08     1.35     1.55     1.08      1.45      1.35
//! of 2013            1.10     2.23     3.60     1.91      2.98      3.18
//! ```
//! All of this is what one copy costs, while arrays do not grow. What it leaves out: a word is loaded before it is stored, and those that keep what
//! they have are loaded only; an array that a new chunk does not fit is moved to twice the room (a cost of the order of a chunk for each,
//! when spread over those before it); and the registry's structures are [copies](crate::copies), in which each change is made twice.
//!
//! # Virtual pushing
//! What Fu leaves to the future: an L form without the domino. In `sail-lv` nothing is pushed from one level to the next. A cell of
//! level 24 holds a label only if a prefix of 17 to 24 bits covers it, a cell of level 32 only for one of 25 to 32; else
//! it is a *hole*, and the lookup asks the level above. Where a cell of level 24 has to lead to a chunk, its own label stays beside that
//! chunk. So a change writes cells of one level and of one chunk (or what is beside the chunks that they lead to): 128 at most, and
//! twice 256 of new chunks. It loads no more words of cells than it stores at most, and beside them as many bytes of `owners`. That is a bound for
//! each change but for the one in some that makes an array move, which is amortised; with the second copy, twice.
//!
//! What is left are the prefixes of 0 to 16 bits, of which there are few but which cover most. They are expanded to nothing:
//! each has one bit, and one label. The bits are in words of 64 that belong to lengths 0 to 5, 6 to 11 and 12 to 17, numbered as a
//! heap: bit `2^d + v` is for the d further bits v. The longest match in a word is the highest bit that it has in common with the way of the key
//! (5 bits of which choose one of 32 masks), so three words are all that a lookup reads - 33 KB in all - and the highest bit's number
//! is that of the label. A change of 0.0.0.0/0 stores two words whatever the table.
//!
//! The price: an answer of 17 bits and more costs what it does in `sail-l`, two loads or three; a shorter one two to six instead of one.
//!
//! # Invariants
//! 1. A bit of level 24 of `sail-b` and `sail-u` is set if there is a prefix of its level, or a longer one, inside; each other bit
//!    if there is a prefix of its level. Cells behind clear bits mean nothing.
//! 2. A cell leads to a chunk if and only if there is a longer prefix below it (in one of the FIBs). Numbers of chunks that no
//!    cell leads to are free.
//! 3. Every label that a lookup reads comes from the longest prefix that covers the cell; in `sail-lv` of those of its level.
//!
//! Where we depart from the source:
//! * Chunks are numbered from 0, and label 0 is a label: it takes a flag to tell them apart, not a sign or a zero.
//! * BCN16 and its flags of 2^16 bits (Fu p. 67) are one array of 17 bits. `sail-l` has the same at level 24: Fu joins B24 and N24 in software
//!   and leaves C24 alone (as `sail-l8` does), and keeps B24 on chip in hardware; joined, one load says all, and the on-chip part is BCN16.
//!   `sail-m` has the two-dimensional split of Fu's Figure 3.5, with one FIB too.
//! * Algorithm 3 stops before level 0; here it does not.
//! * `sail-b` and `sail-u` read their on-chip part from the longest level on, one word at a time, although on a CPU all of one key's bits
//!   could be loaded at once: so they are what they are in hardware.

mod cells;
mod levels;
mod overlay;
mod push;
mod pushed;
#[cfg(test)]
mod tests;
mod virtually;

pub use levels::{EveryLevel, EverySixth, Form, Levels, writer_b, writer_u};
pub use overlay::{Overlay, writer_m};
pub use pushed::{NARROW_MOST, Pushed, writer_l, writer_l8};
pub use virtually::{Virtually, writer_lv};

use crate::fib::{BuildError, Built, Label, Outgrown, check_labels};
use crate::prefix::Prefix;
use crate::rib::Rib;

/// The pivot level: longer prefixes are in chunks.
const PIVOT: u8 = 24;
/// Cells of a chunk.
const CHUNK: usize = 256;

/// Whether cells for a label of so many bits hold it; wide ones have a bit of 32 for themselves.
fn fits<const PLAIN: u32>(prefix: Prefix<u32>, label: Label) -> Result<(), Outgrown> {
    let width_bits = PLAIN.min(31);
    match label.0 >> width_bits {
        0 => Ok(()),
        _ => Err(Outgrown::label(prefix, label, width_bits as u8)),
    }
}

fn too_many_chunks(limit: usize) -> Outgrown {
    Outgrown { what: format!("more than {limit} chunks") }
}

/// Builds the structure with cells of 16 bits, or, if the table does not fit, of 32.
fn narrow_or_wide(
    name: &str,
    rib: &Rib<u32>,
    narrow: impl FnOnce() -> Result<Built<u32>, Outgrown>,
    wide: impl FnOnce() -> Result<Built<u32>, Outgrown>,
) -> Built<u32> {
    check_labels(rib, 31)?;
    if check_labels(rib, 16).is_ok()
        && let Ok(built) = narrow()
    {
        return built;
    }
    wide().map_err(|Outgrown { what }| BuildError::TooLarge {
        structure: name.into(),
        what,
        advice: "take another structure".into(),
    })?
}
