//! The control side's half of a judge: another engine, another companion, the end.

use super::{Bounds, Notify, Rings, companion};
use crate::error::PolicyError;
use crate::policy::Engine;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What the control side tells a judge or its companion.
pub(super) struct Orders {
    /// There is something for the one who runs the engine.
    pub(super) changed: AtomicBool,
    engine: Mutex<Option<Box<Engine>>>,
    /// New rings for the judge, when its companion is another.
    pub(super) rings: Mutex<Option<Rings>>,
    pub(super) rings_changed: AtomicBool,
    pub(super) stop: AtomicBool,
    /// The companion sleeps, or is about to.
    pub(super) idle: AtomicBool,
}

impl Orders {
    pub(super) fn new() -> Arc<Orders> {
        Arc::new(Orders {
            changed: AtomicBool::new(false),
            engine: Mutex::new(None),
            rings: Mutex::new(None),
            rings_changed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            idle: AtomicBool::new(false),
        })
    }

    /// Another engine, if there is one. The old one is given back to be dropped by the caller.
    pub(super) fn swap(&self, engine: &mut Box<Engine>) -> Option<Box<Engine>> {
        if !self.changed.load(Ordering::Acquire) {
            return None;
        }
        // First this: an engine that comes behind it is seen the next time.
        self.changed.store(false, Ordering::Release);
        let fresh = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        fresh.succeed(engine);
        fresh.around().counts.swapped();
        Some(std::mem::replace(engine, fresh))
    }
}

/// The control side's half.
pub struct Handle {
    pub(super) orders: Arc<Orders>,
    pub(super) thread: Option<JoinHandle<()>>,
    pub(super) notify: Option<Notify>,
    pub(super) worker: usize,
    pub(super) bounds: Bounds,
}

impl Handle {
    /// Puts another engine in the place of the one that answers now, between two batches: no question is lost, and each is answered by the old one or
    /// the new one. If the companion has ended, another is started. The policy's `queue` and `wait_ms` stay those that the judge was made
    /// with.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn replace(&mut self, engine: Engine) -> Result<(), PolicyError> {
        if let (Some(thread), Some(notify)) = (&self.thread, &self.notify)
            && thread.is_finished()
        {
            let around = engine.around().clone();
            let (rings, thread) = companion::start(
                Box::new(engine),
                self.orders.clone(),
                notify.clone(),
                self.bounds,
                self.worker,
            )?;
            *self.orders.rings.lock().unwrap_or_else(PoisonError::into_inner) = Some(rings);
            self.orders.rings_changed.store(true, Ordering::Release);
            self.thread = Some(thread);
            around.counts.swapped();
            return Ok(());
        }
        *self.orders.engine.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(engine));
        self.orders.changed.store(true, Ordering::Release);
        self.wake();
        Ok(())
    }

    /// Whether the companion is there.
    pub fn alive(&self) -> bool {
        self.thread.as_ref().is_none_or(|thread| !thread.is_finished())
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Handle {
    /// Ends the companion. One that hangs in its script's last batch is left to itself: it ends with that batch.
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        self.wake();
    }
}
