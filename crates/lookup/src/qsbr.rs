//! Quiescent-state-based reclamation (QSBR).
//!
//! A worker holds references into published tables only between two burst boundaries. At each boundary it calls
//! [`Reader::quiescent`]: two loads and one store to its own cache line, no read-modify-write, no fence instruction on
//! x86. The control side retires what it replaced, asks for a new epoch with [`Domain::advance`], and frees once
//! [`Domain::passed`] says that every worker that was awake has since reported. A worker about to sleep goes
//! [`Reader::offline`], so that nobody waits for it, and comes back by [`Reader::online`].
//!
//! Who goes before what it replaced may be freed leaves it to the domain, where it is freed by the next who publishes or changes something, or
//! goes, once every worker has moved on. Where nothing of that happens it stays.
//!
//! ```text
//! writer:  swap root ---- advance() = 7 ........................ passed(7): free the old one
//! reader A: --burst--|quiescent: 6|---burst---|quiescent: 7|----
//! reader B: (offline) ................................................ never waited for
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A point in the control side's time; see [`Domain::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

const OFFLINE: u64 = u64::MAX;

/// A reader's own cache line: the epoch that it last saw, or [`OFFLINE`].
#[repr(align(128))]
#[derive(Debug)]
struct Slot(AtomicU64);

/// What was unlinked by somebody who has gone since.
struct Left {
    since: Epoch,
    value: Box<dyn Send>,
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "since {}", self.since.0)
    }
}

#[derive(Debug)]
struct Shared {
    epoch: AtomicU64,
    slots: Mutex<Vec<Arc<Slot>>>,
    left: Mutex<Vec<Left>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
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
        Domain(Arc::new(Shared {
            epoch: AtomicU64::new(1),
            slots: Mutex::new(Vec::new()),
            left: Mutex::new(Vec::new()),
        }))
    }

    /// Registers the calling worker, online.
    pub fn register(&self) -> Reader {
        let slot = Arc::new(Slot(AtomicU64::new(OFFLINE)));
        locked(&self.0.slots).push(slot.clone());
        let mut reader = Reader { domain: self.clone(), slot };
        reader.online();
        reader
    }

    /// Starts a new epoch and returns it. What was unlinked before this call is out of every reader's reach once
    /// [`passed`](Self::passed) is true for the result. Nothing is dropped here: callers hold locks.
    pub fn advance(&self) -> Epoch {
        // SeqCst pairs with the store and fence in `online`: either the reader that comes online sees the unlinked
        // root, or we see its slot.
        let epoch = Epoch(self.0.epoch.fetch_add(1, Ordering::SeqCst) + 1);
        fence(Ordering::SeqCst);
        epoch
    }

    /// Takes over values, each unlinked before its epoch began, that a reader may still see, from a control side that goes. They are
    /// dropped when all readers have moved on, on the thread of whoever finds that out.
    pub(crate) fn leave(&self, all: impl Iterator<Item = (Epoch, Box<dyn Send>)>) {
        locked(&self.0.left).extend(all.map(|(since, value)| Left { since, value }));
        // The last reader may have gone since it was asked: then it has looked before there was anything.
        self.sweep();
    }

    /// Drops what was left and nobody can see any more. Not for [`advance`](Self::advance), which is called under locks that such a value's
    /// drop may want.
    pub(crate) fn sweep(&self) {
        let mut left = locked(&self.0.left);
        let all = std::mem::take(&mut *left).into_iter();
        let (over, waiting): (Vec<Left>, _) = all.partition(|one| self.passed(one.since));
        *left = waiting;
        drop(left);
        // Without the lock: what goes with them may come here again.
        over.into_iter().for_each(|one| drop(one.value));
    }

    /// The epoch now.
    pub fn current(&self) -> Epoch {
        Epoch(self.0.epoch.load(Ordering::Acquire))
    }

    /// Whether every reader has been quiescent, or was offline, since `epoch` began.
    pub fn passed(&self, epoch: Epoch) -> bool {
        fence(Ordering::SeqCst);
        let slots = locked(&self.0.slots);
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
/// checker sees to that. Where what is published is an `Arc`, a clone of it lives on: it is not freed, but nobody waits for who looks into it.
#[derive(Debug)]
pub struct Reader {
    domain: Domain,
    slot: Arc<Slot>,
}

impl Reader {
    /// Reports that the worker holds no reference into any published table. Call at burst boundaries. Who is offline stays so: only
    /// [`online`](Self::online) has the fence without which a writer could miss that somebody looks again.
    #[inline]
    pub fn quiescent(&mut self) {
        if !self.is_online() {
            return;
        }
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
        locked(&self.domain.0.slots).retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        self.domain.sweep();
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

    #[test]
    fn who_is_offline_stays_so_until_it_says_otherwise() {
        let domain = Domain::new();
        let mut reader = domain.register();
        reader.offline();
        reader.quiescent();
        assert!(!reader.is_online());
        assert!(domain.passed(domain.advance()));
        reader.online();
        assert!(!domain.passed(domain.advance()));
    }

    #[test]
    fn what_was_left_is_dropped_when_readers_have_moved_on_or_gone() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let dropped = Arc::new(());
        let leave = || domain.leave(std::iter::once((domain.advance(), Box::new(dropped.clone()) as _)));
        leave();
        assert_eq!(Arc::strong_count(&dropped), 2);
        reader.quiescent();
        domain.sweep();
        assert_eq!(Arc::strong_count(&dropped), 1, "all have moved on");
        leave();
        drop(reader);
        assert_eq!(Arc::strong_count(&dropped), 1, "when the reader goes");
        leave();
        assert_eq!(Arc::strong_count(&dropped), 1, "at once, where there is none");
    }

    /// Structures call it under the lock of their store, which the drop of another of them wants.
    #[test]
    fn a_new_epoch_drops_nothing() {
        struct Wants(Arc<Mutex<()>>);
        impl Drop for Wants {
            fn drop(&mut self) {
                assert!(self.0.try_lock().is_ok(), "dropped under the lock that it wants");
            }
        }
        let (domain, lock) = (Domain::new(), Arc::new(Mutex::new(())));
        let mut reader = domain.register();
        domain.leave(std::iter::once((domain.advance(), Box::new(Wants(lock.clone())) as _)));
        reader.quiescent();
        let held = locked(&lock);
        domain.advance();
        assert_eq!(Arc::strong_count(&lock), 2);
        drop(held);
        domain.sweep();
        assert_eq!(Arc::strong_count(&lock), 1);
    }
}
