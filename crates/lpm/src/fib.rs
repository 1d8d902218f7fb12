//! What every FIB structure offers to the data plane.

use crate::prefix::Address;

/// A next hop as the structures see it: a small integer, opaque to them (Zec 5.3). 0 is "no route", which is a
/// result, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Label(pub u32);

impl Label {
    /// No route.
    pub const NONE: Label = Label(0);
}

/// A FIB: the data plane's view of a routing table. Readers only; how it is built and patched is the business of
/// the structure's own writer.
pub trait Fib<A: Address>: Send + Sync {
    /// Longest match of one address.
    fn lookup(&self, key: A) -> Label;

    /// Longest match of a burst: `out[i]` answers `keys[i]`.
    ///
    /// # Panics
    /// If the lengths differ.
    fn lookup_batch(&self, keys: &[A], out: &mut [Label]);

    /// The structure and its parameters as in benchmarks and configurations: `dxr-d16x4r`.
    fn name(&self) -> String;

    /// Bytes that lookups can touch.
    fn bytes(&self) -> usize;
}
