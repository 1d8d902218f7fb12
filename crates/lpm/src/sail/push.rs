//! Three-level pushing, as SAIL_L and SAIL_M do it: every prefix is expanded to level 16, 24 or 32, and where a cell has a chunk
//! below it, what would be its label is in the chunk's cells.
//!
//! The control side remembers for each cell how long the prefix is that its label comes from. So a change needs to look at no
//! prefix but the changed one, and at the one that answers when it is withdrawn.

use super::CHUNK;
use super::cells::Pen;
use crate::fib::{Label, Outgrown};
use crate::prefix::Prefix;
use crate::rib::Rib;
use std::ops::RangeInclusive;
use tidemill_lookup::probe::Probe;

/// Where levels end.
const ENDS: [u8; 3] = [16, 24, 32];

/// The arrays of a structure. A cell has a place at its level (0, 1, 2 for 16, 24, 32): the first bits of the key at level
/// 0, else 256 times the chunk's number and the next 8 bits. It has a label for each of the FIBs, or a chunk.
pub(super) trait Store {
    /// FIBs that are overlaid.
    fn fibs(&self) -> usize;

    /// The chunk that a cell leads to.
    fn child(&self, level: usize, cell: usize) -> Option<usize>;

    /// The label of a cell that leads to none.
    fn label(&self, level: usize, cell: usize, fib: usize) -> u32;

    /// Stores a label in a cell that leads to none, or that [`point`](Self::point) has freed of its chunk just before.
    fn put<P: Probe + ?Sized>(&mut self, at: (usize, usize, usize), label: u32, pen: &mut Pen, probe: &P);

    /// Ends a row of stores at this level.
    fn flush<P: Probe + ?Sized>(&mut self, level: usize, pen: &mut Pen, probe: &P);

    /// A chunk of the level, all of whose cells are to be stored to.
    fn take<P: Probe + ?Sized>(&mut self, level: usize, probe: &P) -> Result<usize, Outgrown>;

    /// A chunk that no cell leads to any more.
    fn give_back(&mut self, level: usize, chunk: usize);

    /// Leads a cell to a chunk, or to none.
    fn point<P: Probe + ?Sized>(&mut self, level: usize, cell: usize, chunk: Option<usize>, probe: &P);

    /// Whether cells can hold the label.
    fn fits(&self, prefix: Prefix<u32>, label: Label) -> Result<(), Outgrown>;
}

/// How long the prefix is that each label comes from, for each cell and FIB; 0 if there is none too. For changes only.
#[derive(Debug, Clone)]
pub(super) struct Owners {
    fibs: usize,
    levels: [Vec<u8>; 3],
}

impl Owners {
    pub(super) fn new(fibs: usize) -> Self {
        Owners { fibs, levels: [vec![0; fibs << 16], Vec::new(), Vec::new()] }
    }

    fn of(&mut self, level: usize, cell: usize, fib: usize) -> &mut u8 {
        let (owners, at) = (&mut self.levels[level], cell * self.fibs + fib);
        if at >= owners.len() {
            owners.resize((cell / CHUNK + 1) * CHUNK * self.fibs, 0);
        }
        &mut owners[at]
    }
}

/// The place at `level` of the cell in which `first` lies, in the given chunk.
fn place(first: u32, level: usize, chunk: usize) -> usize {
    match level {
        0 => first as usize >> 16,
        _ => chunk * CHUNK + (first as usize >> (32 - ENDS[level])) % CHUNK,
    }
}

/// A prefix has this label now, in one of the FIBs.
pub(super) fn announce<S: Store, P: Probe + ?Sized>(
    store: &mut S,
    owners: &mut Owners,
    fib: usize,
    (prefix, label): (Prefix<u32>, Label),
    probe: &P,
) -> Result<(), Outgrown> {
    store.fits(prefix, label)?;
    let (mut level, mut cell) = (0, place(prefix.first(), 0, 0));
    while prefix.len() > ENDS[level] {
        let chunk = match store.child(level, cell) {
            Some(chunk) => chunk,
            None => split(store, owners, level, cell, probe)?,
        };
        level += 1;
        cell = place(prefix.first(), level, chunk);
    }
    let count = 1 << (ENDS[level] - prefix.len());
    spread(store, owners, fib, level, cell, count, 0..=prefix.len(), (prefix.len(), label.0), probe);
    Ok(())
}

/// A prefix is not in one of the FIBs any more.
pub(super) fn withdraw<S: Store, P: Probe + ?Sized>(
    store: &mut S,
    owners: &mut Owners,
    ribs: &[Rib<u32>],
    fib: usize,
    prefix: Prefix<u32>,
    probe: &P,
) -> Result<(), Outgrown> {
    let mut path = Vec::with_capacity(2);
    let (mut level, mut cell) = (0, place(prefix.first(), 0, 0));
    while prefix.len() > ENDS[level] {
        let Some(chunk) = store.child(level, cell) else { return Ok(()) };
        path.push(cell);
        level += 1;
        cell = place(prefix.first(), level, chunk);
    }
    let count = 1 << (ENDS[level] - prefix.len());
    let to = answer(store, &ribs[fib], prefix)?;
    spread(store, owners, fib, level, cell, count, prefix.len()..=prefix.len(), to, probe);
    while let Some(cell) = path.pop() {
        let at = Prefix::new(prefix.first(), ENDS[path.len()]).unwrap_or(prefix);
        let needed = |rib: &Rib<u32>| rib.inside(at).any(|(inner, _)| inner.len() > at.len());
        if ribs.iter().any(needed) {
            break;
        }
        join(store, owners, ribs, path.len(), cell, at, probe)?;
    }
    Ok(())
}

/// The longest prefix that covers `prefix`: its length, and its label.
fn answer<S: Store>(store: &S, rib: &Rib<u32>, prefix: Prefix<u32>) -> Result<(u8, u32), Outgrown> {
    let Some((covering, label)) = rib.covering(prefix) else { return Ok((0, 0)) };
    store.fits(covering, label)?;
    Ok((covering.len(), label.0))
}

/// Stores a label, with the length of its prefix, into `count` cells from `cell` on and the chunks below them: where the label
/// comes from a prefix of one of the lengths in `of`.
#[allow(clippy::too_many_arguments)] // where, which, what and to whom
fn spread<S: Store, P: Probe + ?Sized>(
    store: &mut S,
    owners: &mut Owners,
    fib: usize,
    level: usize,
    cell: usize,
    count: usize,
    of: RangeInclusive<u8>,
    to: (u8, u32),
    probe: &P,
) {
    let mut pen = Pen::default();
    let mut below = Vec::new();
    for cell in cell..cell + count {
        if let Some(chunk) = store.child(level, cell) {
            below.push(chunk);
            continue;
        }
        let owner = owners.of(level, cell, fib);
        if of.contains(owner) {
            *owner = to.0;
            store.put((level, cell, fib), to.1, &mut pen, probe);
        }
    }
    store.flush(level, &mut pen, probe);
    for chunk in below {
        spread(store, owners, fib, level + 1, chunk * CHUNK, CHUNK, of.clone(), to, probe);
    }
}

/// Gives a cell a chunk, which answers as the cell did.
fn split<S: Store, P: Probe + ?Sized>(
    store: &mut S,
    owners: &mut Owners,
    level: usize,
    cell: usize,
    probe: &P,
) -> Result<usize, Outgrown> {
    let chunk = store.take(level + 1, probe)?;
    let old: Vec<(u8, u32)> =
        (0..store.fibs()).map(|fib| (*owners.of(level, cell, fib), store.label(level, cell, fib))).collect();
    let mut pen = Pen::default();
    for cell in chunk * CHUNK..(chunk + 1) * CHUNK {
        for (fib, &(owner, label)) in old.iter().enumerate() {
            *owners.of(level + 1, cell, fib) = owner;
            store.put((level + 1, cell, fib), label, &mut pen, probe);
        }
    }
    store.flush(level + 1, &mut pen, probe);
    store.point(level, cell, Some(chunk), probe);
    Ok(chunk)
}

/// Takes the chunk from the cell of `prefix`: no FIB needs it.
fn join<S: Store, P: Probe + ?Sized>(
    store: &mut S,
    owners: &mut Owners,
    ribs: &[Rib<u32>],
    level: usize,
    cell: usize,
    prefix: Prefix<u32>,
    probe: &P,
) -> Result<(), Outgrown> {
    let Some(chunk) = store.child(level, cell) else { return Ok(()) };
    if level == 0 {
        // Left over only if the RIB is ahead of the structure.
        for cell in chunk * CHUNK..(chunk + 1) * CHUNK {
            if let Some(below) = store.child(1, cell) {
                store.point(1, cell, None, &());
                store.give_back(2, below);
            }
        }
    }
    store.give_back(level + 1, chunk);
    store.point(level, cell, None, probe);
    let mut pen = Pen::default();
    for (fib, rib) in ribs.iter().enumerate() {
        let (owner, label) = answer(store, rib, prefix)?;
        *owners.of(level, cell, fib) = owner;
        store.put((level, cell, fib), label, &mut pen, probe);
    }
    store.flush(level, &mut pen, probe);
    Ok(())
}
