//! Two copies of a structure: readers have one, the writer changes the other, and then they change places.
//!
//! ```text
//! readers --> active                        active <-- readers
//!             spare   <-- patch, behind       spare: left behind by one batch, free when the last reader has gone
//! ```
//! So a structure need not be one that can be read while it is changed: it is plain data with one owner ([`Whole`]), and every
//! batch of changes becomes visible at once, for all keys. It costs the structure's memory once more, and every change is made
//! twice. The structures that the data plane is made for ([`crate::popdir`], [`crate::dxr`], [`crate::rangetrie`], ...) are patched in place
//! instead; those that are here to be compared with them use this.
//!
//! Source: the idea is that of Ramalhete and Correia's Left-Right (2015); here readers announce nothing, since whoever publishes
//! the structure ([`crate::Table`]) knows when they have gone. Should some still look when the next patch comes, the
//! structure is copied.

use crate::fib::{AfterFailure, Built, Fib, FibWriter, Outgrown};
use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use std::sync::Arc;
use tidemill_lookup::probe::Probe;

/// A structure that only its owner changes.
pub trait Whole<A: Address>: Fib<A> + Clone + 'static {
    /// Makes the structure right for what `prefix` covers, as `rib` says now; whether the prefix is in the structure, and with
    /// which label, is for the structure to find out. Other prefixes may be ahead of the structure in `rib`, which will be named in
    /// calls to follow. Every load and store of what lookups can touch is told to `probe`.
    ///
    /// # Errors
    /// There is no room or no encoding for the change: the structure is not used any more.
    fn change<P: Probe + ?Sized>(
        &mut self,
        rib: &Rib<A>,
        prefix: Prefix<A>,
        probe: &P,
    ) -> Result<(), Outgrown>;

    /// Calls [`tidemill_lookup::mem::collapse`] for the large arrays that lookups touch: a copy has been made.
    fn collapse(&self);
}

/// The writer of a [`Whole`] structure.
pub struct Writer<A: Address, S> {
    active: Arc<S>,
    /// The other copy, once there is one.
    spare: Option<Arc<S>>,
    /// Prefixes in which the spare may differ from the active copy.
    behind: Vec<Prefix<A>>,
}

impl<A: Address, S: Whole<A>> Writer<A, S> {
    /// A writer for what has been built.
    pub fn new(structure: S) -> Self {
        structure.collapse();
        Writer { active: Arc::new(structure), spare: None, behind: Vec::new() }
    }

    /// The structure that readers use, with all that its own type offers.
    pub fn active(&self) -> &S {
        &self.active
    }

    fn copied(&self) -> S {
        let copy = S::clone(&self.active);
        copy.collapse();
        copy
    }
}

impl<A: Address, S: Whole<A>> FibWriter<A> for Writer<A, S> {
    fn fib(&self) -> Arc<dyn Fib<A>> {
        self.active.clone()
    }

    fn patch(&mut self, rib: &Rib<A>, changed: &[Prefix<A>]) -> Result<(), Outgrown> {
        if changed.is_empty() {
            return Ok(());
        }
        // `into_inner`: only if readers, and who publishes for them, have let it go.
        let mut copy = self.spare.take().and_then(Arc::into_inner).unwrap_or_else(|| {
            self.behind.clear();
            self.copied()
        });
        for prefix in self.behind.iter().chain(changed) {
            copy.change(rib, *prefix, &())?;
        }
        self.behind.clear();
        self.behind.extend_from_slice(changed);
        self.spare = Some(std::mem::replace(&mut self.active, Arc::new(copy)));
        Ok(())
    }

    /// What was being changed is thrown away.
    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Untouched
    }

    /// Tells what the changes do to a structure that has seen all those before. The spare has not seen the last ones - what came
    /// then and goes now would be no change to it - so the active copy itself is changed, or, while somebody looks at it, a new copy of it.
    fn patch_probed(
        &mut self,
        rib: &Rib<A>,
        changed: &[Prefix<A>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        self.spare = None;
        self.behind.clear();
        if Arc::get_mut(&mut self.active).is_none() {
            self.active = Arc::new(self.copied());
        }
        let Some(active) = Arc::get_mut(&mut self.active) else { return Ok(()) };
        changed.iter().try_for_each(|&prefix| active.change(rib, prefix, probe))
    }
}

/// The [`Writer`] of a structure, as the registry wants it.
pub fn writer<A: Address, S: Whole<A>>(structure: S) -> Built<A> {
    Ok(Box::new(Writer::new(structure)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binarytrie::BinaryTrie;
    use crate::fib::Label;

    /// Two copies change places; who does not let go of one keeps it as it is, and a third one is made.
    #[test]
    fn a_copy_that_is_looked_at_does_not_change() {
        let mut rib = Rib::<u32>::new();
        let mut writer = Writer::new(BinaryTrie::build(&rib).unwrap());
        let mut held = Vec::new();
        for i in 0..20_u32 {
            let prefix = Prefix::new(i << 24, 8).unwrap();
            rib.insert(prefix, Label(i + 1));
            writer.patch(&rib, &[prefix]).unwrap();
            if i % 3 == 0 {
                held.push((i, writer.fib()));
            }
            let fib = writer.fib();
            assert!((0..20).all(|j| fib.lookup(j << 24) == if j <= i { Label(j + 1) } else { Label::NONE }));
            let looked_at = Arc::strong_count(&writer.active);
            assert_eq!(looked_at, if i % 3 == 0 { 3 } else { 2 });
        }
        for (i, fib) in held {
            assert!((0..20).all(|j| fib.lookup(j << 24) == if j <= i { Label(j + 1) } else { Label::NONE }));
        }
    }

    /// Withdrawn right after it was announced, and the other way round: every change is told, whoever looks on, and with patches
    /// that nobody is told of in between.
    #[test]
    fn the_probe_hears_of_a_prefix_that_comes_and_goes() {
        let mut rib = Rib::<u32>::new();
        let mut writer = Writer::new(BinaryTrie::build(&rib).unwrap());
        let prefix = Prefix::new(10 << 24, 8).unwrap();
        let other = Prefix::new(11 << 24, 8).unwrap();
        let mut looks_on = None;
        for turn in 0..24_u32 {
            let comes = turn % 2 == 0;
            if comes {
                rib.insert(prefix, Label(turn + 1))
            } else {
                rib.remove(prefix)
            };
            looks_on = (turn % 3 == 0).then(|| (writer.fib(), writer.fib().lookup(10 << 24)));
            let probe = tidemill_lookup::probe::Recorder::new();
            writer.patch_probed(&rib, &[prefix], &probe).unwrap();
            assert!(probe.counts().writes > 0, "turn {turn}");
            let now = if comes { Label(turn + 1) } else { Label::NONE };
            assert_eq!(writer.fib().lookup(10 << 24), now);
            if let Some((fib, before)) = &looks_on {
                assert_eq!(fib.lookup(10 << 24), *before, "a reader's copy stays as it is");
            }
            if turn % 5 == 0 {
                rib.insert(other, Label(turn + 1));
                writer.patch(&rib, &[other]).unwrap();
                assert_eq!([10 << 24, 11 << 24].map(|key| writer.fib().lookup(key)), [now, Label(turn + 1)]);
            }
        }
        assert!(looks_on.is_none());
    }
}
