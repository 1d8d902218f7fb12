//! The writer: patches a structure while readers look up.

use super::build::{Range, flatten};
use super::edit::{Edit, Scratch};
use super::load::Load;
use super::{Dxr, DxrConfig};
use crate::fib::{BuildError, Fib, FibWriter, Label, Outgrown};
use crate::prefix::Prefix;
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
    ranges: Vec<Range>,
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
        DxrWriter { fib, outgrown: None, scratch: Scratch::default(), ranges: Vec::new() }
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
        let DxrWriter { fib, scratch, ranges, .. } = self;
        let mut books = fib.store.books();
        books.reclaim();
        let mut edit = Edit::patch(&fib.store, &fib.own, &mut books, scratch, probe);
        let result = spans(fib.layout.k(), changed).into_iter().try_for_each(|span| {
            let outer = rib.covering(span).map_or(Label::NONE, |(_, label)| label);
            flatten(span, outer, rib.inside(span), ranges);
            edit.fill(span, ranges)
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
    use super::pool::Pool;
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

/// The prefixes' chunks: each prefix cut to at most `k` bits, without those inside others.
fn spans(k: u8, changed: &[Prefix<u32>]) -> Vec<Prefix<u32>> {
    let mut spans: Vec<_> = changed.iter().filter_map(|p| Prefix::new(p.first(), p.len().min(k))).collect();
    // By address and then length: what covers comes before what is covered.
    spans.sort_unstable();
    spans.dedup_by(|next, kept| kept.covers(*next));
    spans
}
