//! The writer: patches a structure while readers look up.

use super::build::{Range, Splice, flatten_from};
use super::edit::{Edit, Scratch};
use super::load::Load;
use super::{Dxr, DxrConfig};
use crate::fib::{BuildError, Fib, FibWriter, Outgrown};
use crate::prefix::Prefix;
use crate::ranges::outermost;
use crate::rib::Rib;
use std::sync::Arc;
use tidemill_lookup::probe::Probe;
use tidemill_lookup::qsbr::Domain;

/// The control side of a [`Dxr`].
#[derive(Debug)]
pub struct DxrWriter {
    fib: Arc<Dxr>,
    /// Why no patch is possible any more.
    outgrown: Option<Outgrown>,
    scratch: Scratch,
    /// A chunk's ranges before, those of a changed prefix, and the chunk's ranges then.
    ranges: [Vec<Range>; 3],
}

impl DxrWriter {
    /// Builds a structure from a RIB. `domain` is that of the workers who will read it.
    ///
    /// # Errors
    /// If a label is wider than configured, no split of the descriptor can encode the table, or memory is short.
    pub fn new(rib: &Rib<u32>, config: &DxrConfig, domain: &Domain) -> Result<Self, BuildError> {
        Ok(Self::of(Load::new(rib, config)?.alone(0, domain)?))
    }

    /// The writer of a structure that has no other.
    pub(super) fn of(fib: Arc<Dxr>) -> Self {
        DxrWriter { fib, outgrown: None, scratch: Scratch::default(), ranges: Default::default() }
    }

    /// The structure that readers use.
    pub fn dxr(&self) -> &Arc<Dxr> {
        &self.fib
    }

    /// [`FibWriter::patch`], with every store to the tables told to `probe`.
    ///
    /// # Errors
    /// As [`FibWriter::patch`].
    pub fn patch_probed<P: Probe>(
        &mut self,
        rib: &Rib<u32>,
        changed: &[Prefix<u32>],
        probe: &P,
    ) -> Result<(), Outgrown> {
        if let Some(outgrown) = &self.outgrown {
            return Err(outgrown.clone());
        }
        let DxrWriter { fib, scratch, ranges: [old, part, new], .. } = self;
        let mut books = fib.store.books();
        books.reclaim();
        let mut edit = Edit::patch(&fib.store, &fib.own, &mut books, scratch, probe);
        let (k, rest) = (fib.layout.k(), fib.layout.rest());
        let in_one_chunk =
            |a: &Prefix<u32>, b: &Prefix<u32>| a.len() > k && a.first() >> rest == b.first() >> rest;
        let result = outermost(changed).chunk_by(in_one_chunk).try_for_each(|inside| {
            let Some(&first) = inside.first() else { return Ok(()) };
            let Some(span) = Prefix::new(first.first(), k).filter(|_| first.len() > k) else {
                // Whole chunks, of which nothing stays.
                flatten_from(rib, first, new);
                return edit.fill(first, new);
            };
            edit.read((span.first() >> rest) as usize, old)?;
            let mut splice = Splice::new(span, old, new);
            for &prefix in inside {
                flatten_from(rib, prefix, part);
                splice.replace(prefix, part);
            }
            splice.finish();
            edit.fill(span, new)
        });
        let result = edit.finish(result).map_err(Outgrown::from);
        // Partly patched: another patch would not know which part.
        self.outgrown = result.as_ref().err().cloned();
        result
    }

    /// Compares the references with what is really linked by the structures that share this one's store.
    #[cfg(test)]
    pub(super) fn check_references(&self) {
        check_references(&[self]);
    }
}

/// Compares the references in a store with what is really linked by its structures, which are those of `writers`.
#[cfg(test)]
pub(super) fn check_references(writers: &[&DxrWriter]) {
    use crate::pool::Pool;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};
    let Some(first) = writers.first() else { return };
    let store = &first.fib.store;
    let (mut chunks, mut blocks) = (BTreeMap::new(), BTreeMap::new());
    let mut linked = |descs: &[AtomicU32]| {
        for chunk in descs.iter().filter_map(|desc| store.split.chunk(desc.load(Ordering::Relaxed))) {
            let run = store.chunk_run(chunk);
            *chunks.entry((run.unit, run.units)).or_insert(0) += 1;
        }
    };
    for writer in writers {
        assert!(Arc::ptr_eq(store, &writer.fib.store));
        for number in writer.fib.own.direct.iter() {
            *blocks.entry((u32::from(number.load(Ordering::Relaxed)), 1)).or_insert(0) += 1;
        }
        linked(&writer.fib.own.descs);
    }
    blocks.keys().for_each(|&(block, _)| linked(store.block(block as u16)));
    let live = |pool: &Pool| pool.live().map(|(run, refs)| ((run.unit, run.units), refs)).collect();
    let books = store.books();
    assert_eq!(chunks, live(&books.chunks), "references to chunks");
    assert_eq!(blocks, live(&books.blocks), "references to blocks");
    assert_eq!(books.tables, writers.len());
}

impl FibWriter<u32> for DxrWriter {
    fn fib(&self) -> Arc<dyn Fib<u32>> {
        self.fib.clone()
    }

    fn patch(&mut self, rib: &Rib<u32>, changed: &[Prefix<u32>]) -> Result<(), Outgrown> {
        self.patch_probed(rib, changed, &())
    }

    fn patch_probed(
        &mut self,
        rib: &Rib<u32>,
        changed: &[Prefix<u32>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        self.patch_probed(rib, changed, &probe)
    }
}
