//! Quiescent-state-based reclamation (QSBR).
//!
//! A worker holds references into published tables only between two burst boundaries. At each boundary it calls
//! [`Reader::quiescent`]: one load and one store to its own cache line, no read-modify-write, no fence instruction on
//! x86. The control side retires what it replaced, asks for a new epoch with [`Domain::advance`], and frees once
//! [`Domain::passed`] says that every worker that was awake has since reported. A worker about to sleep goes
//! [`Reader::offline`], so that nobody waits for it.
//!
//! ```text
//! writer:  swap root ---- advance() = 7 ........................ passed(7): free the old one
//! reader A: --burst--|quiescent: 6|---burst---|quiescent: 7|----
//! reader B: (offline) ................................................ never waited for
//! ```

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A point in the control side's time; see [`Domain::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

const OFFLINE: u64 = u64::MAX;

/// A reader's own cache line: the epoch that it last saw, or [`OFFLINE`].
#[repr(align(128))]
#[derive(Debug)]
struct Slot(AtomicU64);

#[derive(Debug)]
struct Shared {
    epoch: AtomicU64,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// The readers and writers that share one notion of "everyone has moved on". Cheap to clone.
#[derive(Debug, Clone)]
pub struct Domain(Arc<Shared>);

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Domain {
    /// A domain without readers.
    pub fn new() -> Self {
        Domain(Arc::new(Shared { epoch: AtomicU64::new(1), slots: Mutex::new(Vec::new()) }))
    }

    /// Registers the calling worker, online.
    pub fn register(&self) -> Reader {
        let slot = Arc::new(Slot(AtomicU64::new(OFFLINE)));
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot.clone());
        let mut reader = Reader { domain: self.clone(), slot };
        reader.online();
        reader
    }

    /// Starts a new epoch and returns it. What was unlinked before this call is out of every reader's reach once
    /// [`passed`](Self::passed) is true for the result.
    pub fn advance(&self) -> Epoch {
        // SeqCst pairs with the store and fence in `online`: either the reader that comes online sees the unlinked
        // root, or we see its slot.
        let epoch = Epoch(self.0.epoch.fetch_add(1, Ordering::SeqCst) + 1);
        fence(Ordering::SeqCst);
        epoch
    }

    /// The epoch now.
    pub fn current(&self) -> Epoch {
        Epoch(self.0.epoch.load(Ordering::Acquire))
    }

    /// Whether every reader has been quiescent, or was offline, since `epoch` began.
    pub fn passed(&self, epoch: Epoch) -> bool {
        fence(Ordering::SeqCst);
        let slots = self.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.iter().all(|slot| slot.0.load(Ordering::Acquire) >= epoch.0)
    }

    /// Sleeps in short steps until `epoch` has passed. Control side only: with a reader that neither reports nor
    /// goes offline this waits for ever.
    pub fn wait(&self, epoch: Epoch) {
        while !self.passed(epoch) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether both handles name the same domain.
    pub fn same(&self, other: &Domain) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// One worker's membership in a [`Domain`]. References obtained through it (see
/// [`View::get`](crate::publish::View::get)) cannot outlive the next [`quiescent`](Self::quiescent): the borrow
/// checker sees to that.
#[derive(Debug)]
pub struct Reader {
    domain: Domain,
    slot: Arc<Slot>,
}

impl Reader {
    /// Reports that the worker holds no reference into any published table. Call at burst boundaries.
    #[inline]
    pub fn quiescent(&mut self) {
        let now = self.domain.0.epoch.load(Ordering::Acquire);
        // Release: all our reads of the old version happen before the writer's Acquire in `passed`.
        self.slot.0.store(now, Ordering::Release);
    }

    /// Leaves the set of readers that are waited for, until [`online`](Self::online).
    pub fn offline(&mut self) {
        self.slot.0.store(OFFLINE, Ordering::Release);
    }

    /// Rejoins. Not on the packet path: this one has a fence.
    pub fn online(&mut self) {
        let now = self.domain.0.epoch.load(Ordering::SeqCst);
        self.slot.0.store(now, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether this reader takes part now.
    pub fn is_online(&self) -> bool {
        self.slot.0.load(Ordering::Relaxed) != OFFLINE
    }

    /// The domain that this reader belongs to.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.offline();
        let mut slots = self.domain.0.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_passes_when_every_online_reader_has_reported() {
        let domain = Domain::new();
        let (mut a, mut b) = (domain.register(), domain.register());
        let epoch = domain.advance();
        assert!(!domain.passed(epoch));
        a.quiescent();
        assert!(!domain.passed(epoch));
        b.offline();
        assert!(domain.passed(epoch));
        let next = domain.advance();
        b.online();
        assert!(!domain.passed(next), "a has not reported");
        a.quiescent();
        assert!(domain.passed(next));
        drop(a);
        drop(b);
        assert!(domain.passed(domain.advance()), "nobody left to wait for");
    }
}
