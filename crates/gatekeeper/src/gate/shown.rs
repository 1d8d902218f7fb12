//! What is revoked, for who looks on.

use super::Gate;
use crate::decision::revocation::Revocations;
use crate::family::Paired;
use std::sync::{Arc, Mutex};

impl<A: Paired<W>, const W: usize> Gate<A, W> {
    /// What is revoked, to be looked at beside this worker.
    pub(crate) fn revocations(&self) -> Arc<Mutex<Revocations<A>>> {
        self.shown.clone()
    }

    /// Shows what is revoked now, if that has changed. Returns false if somebody looks at it just now: nobody is waited for.
    pub(crate) fn show_revoked(&mut self) -> bool {
        if !self.is_shown
            && let Ok(mut shown) = self.shown.try_lock()
        {
            self.revoked.copy_to(&mut shown);
            self.is_shown = true;
        }
        self.is_shown
    }
}
