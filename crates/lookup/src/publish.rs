//! A root pointer with one writer and lock-free, wait-free readers.
//!
//! [`Publisher::publish`] swaps the root and retires the old value; it is dropped once the [`Domain`] says that every worker has passed a
//! burst boundary: by its publisher, or where that has gone, by whoever publishes next in the domain or leaves it. [`View::get`] is one `Acquire` load - a plain `mov` on x86.
//!
//! This module is one of the named homes of `unsafe`.

use crate::qsbr::{Domain, Epoch, Reader};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Root<T> {
    value: AtomicPtr<T>,
    generation: AtomicU64,
    domain: Domain,
}

impl<T> Drop for Root<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` and the root is its only owner; no view is left, since
        // views hold an `Arc` of the root.
        drop(unsafe { Box::from_raw(self.value.load(Ordering::Relaxed)) });
    }
}

/// An unlinked value that a reader may still be looking at. A raw pointer, not a `Box`: a `Box` claims to be the only
/// way to its content, which is not true before the grace period is over.
struct Retired<T> {
    since: Epoch,
    value: NonNull<T>,
}

impl<T> Drop for Retired<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw` in `new` or `publish`, and this is its only owner. The value was unlinked before epoch
        // `since`. We are dropped by `collect` and by the domain that we were left to, both of which do so once every reader has
        // been quiescent or offline since then, so that nobody sees it; and with the domain itself, which every reader holds.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

// SAFETY: it is the owner of a `T`, and is only ever used to drop it.
unsafe impl<T: Send> Send for Retired<T> {}
// SAFETY: `&Retired` gives access to nothing.
unsafe impl<T> Sync for Retired<T> {}

/// The writing side of a published value.
pub struct Publisher<T: Send + Sync + 'static> {
    root: Arc<Root<T>>,
    retired: VecDeque<Retired<T>>,
}

/// The reading side of a published value; one per worker and table, cheap to clone.
pub struct View<T: Send + Sync>(Arc<Root<T>>);

// SAFETY: a root hands out `&T` to several threads and drops `T` on one of them, which needs exactly `T: Send + Sync`.
unsafe impl<T: Send + Sync> Send for Root<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Root<T> {}

impl<T: Send + Sync> Clone for View<T> {
    fn clone(&self) -> Self {
        View(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> Publisher<T> {
    /// Publishes `value` as generation 1.
    pub fn new(domain: &Domain, value: T) -> Self {
        let root = Root {
            value: AtomicPtr::new(Box::into_raw(Box::new(value))),
            generation: AtomicU64::new(1),
            domain: domain.clone(),
        };
        Publisher { root: Arc::new(root), retired: VecDeque::new() }
    }

    /// A handle for a worker.
    pub fn view(&self) -> View<T> {
        View(self.root.clone())
    }

    /// The value now published.
    pub fn current(&self) -> &T {
        // SAFETY: only `publish` (by `&mut self`) replaces the root, so it outlives this borrow.
        unsafe { &*self.root.value.load(Ordering::Relaxed) }
    }

    /// Replaces the value and returns the new generation. The old value is dropped by a later
    /// [`collect`](Self::collect) (also called here), never while a worker can see it.
    ///
    /// What others left to the domain is dropped here, too, as by `touch` and `collect`, and where a publisher or a reader goes: hold no lock
    /// that the drop of anything published in this domain wants.
    pub fn publish(&mut self, value: T) -> u64 {
        let old = self.root.value.swap(Box::into_raw(Box::new(value)), Ordering::SeqCst);
        // All is in its place before anything is dropped: that may panic.
        let generation = self.count();
        let since = self.root.domain.advance();
        self.retired.extend(NonNull::new(old).map(|value| Retired { since, value }));
        self.collect();
        generation
    }

    /// Counts a change made inside the value (a patch) as a new generation.
    pub fn touch(&mut self) -> u64 {
        let generation = self.count();
        self.root.domain.sweep();
        generation
    }

    fn count(&mut self) -> u64 {
        self.root.generation.fetch_add(1, Ordering::Release) + 1
    }

    /// The generation now published.
    pub fn generation(&self) -> u64 {
        self.root.generation.load(Ordering::Acquire)
    }

    /// Drops the retired values that no worker can see any more; returns how many still wait.
    pub fn collect(&mut self) -> usize {
        let domain = &self.root.domain;
        domain.sweep();
        while let Some(oldest) = self.retired.pop_front_if(|oldest| domain.passed(oldest.since)) {
            drop(oldest);
        }
        self.retired.len()
    }

    /// The same, again and again until none waits or so much time has passed. Readers never wait for this; it waits for
    /// them. Others get the processor meanwhile: a reader, too, that has been waiting for it.
    pub fn collect_within(&mut self, patience: Duration) -> usize {
        self.collect_until(patience, std::thread::yield_now)
    }

    /// The same without giving the processor away, which may be for as long as the scheduler likes: for a time that is short beside that.
    pub fn collect_spinning(&mut self, patience: Duration) -> usize {
        self.collect_until(patience, std::hint::spin_loop)
    }

    fn collect_until(&mut self, patience: Duration, pause: fn()) -> usize {
        let start = Instant::now();
        loop {
            let waiting = self.collect();
            if waiting == 0 || start.elapsed() >= patience {
                return waiting;
            }
            pause();
        }
    }

    /// The domain whose readers may look.
    pub fn domain(&self) -> &Domain {
        &self.root.domain
    }
}

impl<T: Send + Sync + 'static> Drop for Publisher<T> {
    fn drop(&mut self) {
        // What still waits is the domain's to free: not under a reader, and we do not wait for a worker that hangs. All of it, before anything is
        // dropped: if that panics, what is still here would be dropped unasked.
        let all = self.retired.drain(..).map(|one| (one.since, Box::new(one) as Box<dyn Send>));
        self.root.domain.leave(all);
    }
}

impl<T: Send + Sync> View<T> {
    /// The value published now; good until the reader's next quiescent state.
    ///
    /// # Panics
    /// If `reader` belongs to another domain (a wiring bug).
    #[inline]
    pub fn get<'a>(&'a self, reader: &'a Reader) -> &'a T {
        assert!(self.0.domain.same(reader.domain()), "view and reader belong to different domains");
        assert!(reader.is_online(), "an offline reader must not look");
        // SAFETY: an unlinked value is freed only after every online reader has been quiescent, and
        // `quiescent` takes `&mut Reader`, which the returned borrow forbids. The value itself is kept by the root.
        unsafe { &*self.0.value.load(Ordering::Acquire) }
    }

    /// The generation now published.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    struct Counted(u64, u64, Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0 = 0xdead;
            self.2.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn readers_see_whole_values_and_old_ones_are_freed_after_them() {
        let (domain, drops) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let mut publisher = Publisher::new(&domain, Counted(0, 0, drops.clone()));
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (view, stop, domain) = (publisher.view(), stop.clone(), domain.clone());
                std::thread::spawn(move || {
                    let mut reader = domain.register();
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let value = view.get(&reader);
                        assert_eq!(value.0, value.1, "torn or freed");
                        assert!(value.0 >= last, "went back in time");
                        last = value.0;
                        reader.quiescent();
                    }
                })
            })
            .collect();
        let values = if cfg!(miri) { 50 } else { 2_000 };
        for i in 1..=values {
            publisher.publish(Counted(i, i, drops.clone()));
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
        assert_eq!(publisher.collect(), 0);
        assert_eq!(drops.load(Ordering::SeqCst), values as usize, "all but the current one");
        assert_eq!(publisher.generation(), values + 1);
        drop(publisher);
        assert_eq!(drops.load(Ordering::SeqCst), values as usize + 1);
    }

    #[test]
    fn what_a_reader_may_still_see_outlives_its_publisher_and_is_freed_behind_it() {
        let (domain, drops) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let mut publisher = Publisher::new(&domain, Counted(1, 1, drops.clone()));
        let (view, mut reader) = (publisher.view(), domain.register());
        let value = view.get(&reader);
        publisher.publish(Counted(2, 2, drops.clone()));
        drop(publisher);
        assert_eq!((value.0, drops.load(Ordering::SeqCst)), (1, 0));
        reader.quiescent();
        assert_eq!(drops.load(Ordering::SeqCst), 0, "nobody has looked");
        let mut another = Publisher::new(&domain, ());
        another.touch();
        assert_eq!(drops.load(Ordering::SeqCst), 1, "whoever changes something next frees it");
        drop(view);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn who_has_nothing_to_collect_frees_what_others_left() {
        let (domain, drops) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let mut another = Publisher::new(&domain, ());
        let ways: [fn(&mut Publisher<()>) -> usize; 2] =
            [Publisher::collect, |publisher| publisher.collect_within(Duration::ZERO)];
        for (freed, collect) in (1..).zip(ways) {
            let mut reader = domain.register();
            let mut publisher = Publisher::new(&domain, Counted(1, 1, drops.clone()));
            publisher.publish(Counted(2, 2, Arc::default()));
            drop(publisher);
            reader.quiescent();
            assert_eq!(drops.load(Ordering::SeqCst), freed - 1);
            collect(&mut another);
            assert_eq!(drops.load(Ordering::SeqCst), freed);
        }
    }

    /// A value whose drop panics takes no other with it that a reader still sees.
    #[test]
    fn a_drop_that_panics_frees_nothing_under_a_reader() {
        struct Loud(u64, bool, Arc<AtomicUsize>);
        impl Drop for Loud {
            fn drop(&mut self) {
                self.2.fetch_add(1, Ordering::SeqCst);
                assert!(!self.1, "a drop that panics");
            }
        }
        let (domain, drops) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let (mut a, mut b) = (domain.register(), domain.register());
        let mut publisher = Publisher::new(&domain, Loud(0, true, drops.clone()));
        let view = publisher.view();
        publisher.publish(Loud(1, false, drops.clone()));
        b.quiescent();
        let held = view.get(&b);
        publisher.publish(Loud(2, false, drops.clone()));
        a.quiescent();
        // Nobody sees the first any more, and `b` the second.
        let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(publisher)));
        assert!(gone.is_err());
        assert_eq!((drops.load(Ordering::SeqCst), held.0), (1, 1));
        b.quiescent();
        drop(b);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }
}
