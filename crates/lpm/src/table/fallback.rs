//! The default route above a structure that does not have it.
//!
//! ```text
//! worker --View--> default route: label 7 --> structure, without it: "no route" is 7
//! ```
//! In a structure, a default route is in every place that no other route covers, so that a change of it changes thousands of words or all of
//! them. Here it is one label beside the structure: a change publishes another one of these, above the same structure, and a burst, which
//! goes by one of them from beginning to end, has one default route. What it costs: a call more for each burst, and a pass over
//! its answers.

use crate::fib::{Fib, Label};
use crate::prefix::Address;
use std::sync::Arc;
use tidemill_lookup::probe::Probe;

/// `fib`, with `default` for what it has no route for.
pub(super) fn over<A: Address>(fib: Arc<dyn Fib<A>>, default: Label) -> Arc<dyn Fib<A>> {
    if default == Label::NONE { fib } else { Arc::new(Fallback { fib, default }) }
}

struct Fallback<A: Address> {
    fib: Arc<dyn Fib<A>>,
    default: Label,
}

impl<A: Address> Fallback<A> {
    fn fill(&self, labels: &mut [Label]) {
        let default = self.default;
        for label in labels {
            // Stored in any case, so that the compiler takes several at a time.
            *label = if *label == Label::NONE { default } else { *label };
        }
    }
}

/// Its name, bytes and figures are the structure's.
impl<A: Address> Fib<A> for Fallback<A> {
    fn lookup(&self, key: A) -> Label {
        match self.fib.lookup(key) {
            Label::NONE => self.default,
            label => label,
        }
    }

    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        self.fib.lookup_batch(keys, out);
        self.fill(out);
    }

    fn lookup_batch_each(&self, keys: &[A], each: &mut dyn FnMut(&'static str, &[Label])) {
        self.fib.lookup_batch_each(keys, &mut |kernel, found| {
            let mut labels = found.to_vec();
            self.fill(&mut labels);
            each(kernel, &labels);
        });
    }

    fn name(&self) -> String {
        self.fib.name()
    }

    fn bytes(&self) -> usize {
        self.fib.bytes()
    }

    fn shared_bytes(&self) -> usize {
        self.fib.shared_bytes()
    }

    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        match self.fib.lookup_probed(key, probe) {
            Label::NONE => {
                probe.read((&raw const self.default).addr(), size_of::<Label>(), false);
                self.default
            }
            label => label,
        }
    }

    fn details(&self) -> Vec<(&'static str, f64)> {
        self.fib.details()
    }
}
