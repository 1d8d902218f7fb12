//! Many structures over one [`Store`]: the tables of VRFs, which are much alike.

use super::load::Load;
use super::store::Store;
use super::{DxrConfig, DxrWriter};
use crate::fib::{BuildError, FibWriter};
use crate::rib::Rib;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tidemill_lookup::qsbr::Domain;

/// Builds structures that share equal chunks and extension blocks, each with a direct table of its own. Cheap to clone.
///
/// What a structure costs is its own tables ([`Dxr::own_bytes`](super::Dxr::own_bytes): 2 * 2^D bytes, or 4 * 2^K for a layout
/// without extension table, of which only ranges can be shared) and the blocks and chunks that no other has. A patch of one
/// never changes what another answers, and readers do not notice that anything is shared; writers take turns. When a structure
/// is dropped, what it alone referred to is used again after the grace period.
///
/// A store that has no room or no encoding for a structure is left to those that are in it, and a larger one is made for
/// this and further ones. Those that outgrow the old store follow by being rebuilt; it is freed with the last.
#[derive(Debug, Clone)]
pub struct Shared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: DxrConfig,
    domain: Domain,
    /// The store for further structures.
    store: Mutex<Option<Arc<Store>>>,
}

/// What the structures of a [`Shared`] have in common now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedStats {
    /// Structures that use the store.
    pub tables: usize,
    /// Bytes of the store in use: blocks and chunks.
    pub bytes: usize,
    /// Bytes of it that there are, for updates and further structures too.
    pub reserved_bytes: usize,
}

impl Shared {
    /// Structures of one kind, for the readers of `domain`.
    pub fn new(config: &DxrConfig, domain: &Domain) -> Self {
        Shared(Arc::new(Inner { config: *config, domain: domain.clone(), store: Mutex::default() }))
    }

    /// Builds a structure that shares what it can with those built before.
    ///
    /// # Errors
    /// As [`DxrWriter::new`].
    pub fn writer(&self, rib: &Rib<u32>) -> Result<DxrWriter, BuildError> {
        let load = Load::new(rib, &self.0.config)?;
        let mut current = self.0.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = 0;
        if let Some(store) = &*current {
            let full = store.books().full;
            if !full
                && load.label_bits <= store.label_bits
                && let Ok(dxr) = load.join(store)?
            {
                return Ok(DxrWriter::of(dxr));
            }
            room = (store.used_ranges.load(Ordering::Relaxed) as u64).max(1);
        }
        let dxr = load.alone(room, &self.0.domain)?;
        *current = Some(dxr.store.clone());
        Ok(DxrWriter::of(dxr))
    }

    /// [`writer`](Self::writer) in the form that [`Table::with`](crate::table::Table::with) takes: a VRF's table then shares
    /// what it can with the others, now and after each rebuild.
    ///
    /// # Panics
    /// The function, if it is called for another domain than [`new`](Self::new) was (a wiring bug).
    pub fn make(
        &self,
    ) -> impl Fn(&Rib<u32>, &Domain) -> Result<Box<dyn FibWriter<u32>>, BuildError> + Send + Clone + 'static
    {
        let shared = self.clone();
        move |rib, domain| {
            assert!(
                shared.0.domain.same(domain),
                "the tables of VRFs that share belong to different domains"
            );
            Ok(Box::new(shared.writer(rib)?))
        }
    }

    /// What is shared now.
    pub fn stats(&self) -> SharedStats {
        let current = self.0.store.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map_or_else(SharedStats::default, |store| SharedStats {
            tables: store.books().tables,
            bytes: store.bytes(),
            reserved_bytes: 4 * (store.blocks.len() + store.ranges.len()),
        })
    }
}
