//! What every FIB structure offers to the data plane.

use crate::prefix::{Address, Prefix};
use crate::rib::Rib;
use std::sync::Arc;
use tidemill_lookup::probe::Probe;

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
    fn lookup_batch(&self, keys: &[A], out: &mut [Label]) {
        assert_eq!(keys.len(), out.len(), "as many answers as keys");
        for (&key, out) in keys.iter().zip(out) {
            *out = self.lookup(key);
        }
    }

    /// Answers a burst by each of the structure's kernels that this CPU has, and calls `each` with the kernel's name and
    /// its answers: for checks. A structure with one way to answer has the one kernel `batch`.
    fn lookup_batch_each(&self, keys: &[A], each: &mut dyn FnMut(&'static str, &[Label])) {
        let mut out = vec![Label(u32::MAX); keys.len()];
        self.lookup_batch(keys, &mut out);
        each("batch", &out);
    }

    /// The structure and its parameters as in benchmarks and configurations: `dxr-d16x4r`.
    fn name(&self) -> String;

    /// Bytes that lookups can touch.
    fn bytes(&self) -> usize;

    /// Those of [`bytes`](Self::bytes) that lie where other structures have theirs too, and are counted once for all of them
    /// in a sum over structures; 0 for a structure on its own.
    fn shared_bytes(&self) -> usize {
        0
    }

    /// The answer of [`lookup`](Self::lookup), with every memory access told to `probe`. A structure that cannot be probed
    /// tells nothing.
    fn lookup_probed(&self, key: A, probe: &dyn Probe) -> Label {
        let _ = probe;
        self.lookup(key)
    }

    /// Figures of the structure's own, by name: how large its parts are, what they resolve.
    fn details(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
}

/// The control side's half of a structure: builds it and patches it, in place or as a [copy](crate::copies). The structure's
/// own page says what a reader may see while a patch is under way; in all of them every key is answered with its old or its
/// new label.
pub trait FibWriter<A: Address>: Send {
    /// The structure that readers are to use. After a [`patch`](Self::patch) it may be another one: publish that. What a patch takes out is
    /// used again when the domain's readers have moved on: who looks into a clone without a view, as whoever measures or
    /// verifies does, does so while nothing is patched, or its answers may be of no state, or a panic.
    fn fib(&self) -> Arc<dyn Fib<A>>;

    /// Brings the structure up to date with `rib` for the prefixes in `changed`, which have already been applied to
    /// `rib` (each named once; a prefix that did not really change is harmless).
    ///
    /// # Errors
    /// [`Outgrown`]: the structure has no room or no encoding for the change; [`after_failure`](Self::after_failure) says what it
    /// is like then. Build a new one from `rib` and publish that.
    fn patch(&mut self, rib: &Rib<A>, changed: &[Prefix<A>]) -> Result<(), Outgrown>;

    /// What a [`patch`](Self::patch) that has failed leaves.
    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Partly
    }

    /// [`patch`](Self::patch), with every store to what lookups can touch told to `probe`, and by most the loads of what was there. A
    /// structure that cannot be probed tells nothing.
    ///
    /// # Errors
    /// As [`patch`](Self::patch).
    fn patch_probed(
        &mut self,
        rib: &Rib<A>,
        changed: &[Prefix<A>],
        probe: &dyn Probe,
    ) -> Result<(), Outgrown> {
        let _ = probe;
        self.patch(rib, changed)
    }
}

/// What a patch that fails leaves of the structure that readers use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// It is as it was, and nobody has seen anything else. The writer is fit for the next patch, by a RIB without those changes.
    Untouched,
    /// The same, but readers may have seen some of the changes meanwhile.
    Restored,
    /// It is partly patched, and its writer refuses all patches.
    Partly,
}

/// A structure's writer, or why there is none.
pub type Built<A> = Result<Box<dyn FibWriter<A>>, BuildError>;

/// The widest label of a structure that needs a bit of 32 for itself.
pub(crate) const LABEL_31: u32 = u32::MAX >> 1;

/// What ranges have found, by the prefix whose label it is: they know where it begins only.
pub(crate) fn of_prefix<A: Address>(rib: &Rib<A>, found: BuildError) -> BuildError {
    match found {
        BuildError::LabelTooWide { width_bits, .. } => check_labels(rib, width_bits).err().unwrap_or(found),
        other => other,
    }
}

/// Whether all labels fit into so many bits.
pub(crate) fn check_labels<A: Address>(rib: &Rib<A>, width_bits: u8) -> Result<(), BuildError> {
    let greatest = u32::MAX >> (32 - width_bits);
    match rib.iter().find(|(_, label)| label.0 > greatest) {
        None => Ok(()),
        Some((prefix, label)) => {
            Err(BuildError::LabelTooWide { prefix: prefix.to_string(), label: label.0, width_bits })
        }
    }
}

/// A structure cannot take a patch and must be rebuilt whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: the structure must be rebuilt")]
pub struct Outgrown {
    /// What ran out, with its limit.
    pub what: String,
}

impl Outgrown {
    /// A label is too wide for the structure's encoding.
    pub(crate) fn label<A: Address>(prefix: Prefix<A>, label: Label, width_bits: u8) -> Self {
        Outgrown { what: format!("label {} of {prefix} does not fit into {width_bits} bits", label.0) }
    }
}

/// Why a structure cannot be built from a RIB.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A parameter is outside what the structure can be built with.
    #[error("{parameter} = {value} is not possible: {expected}")]
    Parameter {
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        value: u64,
        /// What is possible.
        expected: String,
    },
    /// A label is wider than the structure can store, or was told to. (Of 8 bits some structures need the greatest value for themselves.)
    #[error(
        "label {label} of {prefix} does not fit into {width_bits} bits: choose wider labels, or a structure that has them"
    )]
    LabelTooWide {
        /// The prefix.
        prefix: String,
        /// Its label.
        label: u32,
        /// The width that was asked for.
        width_bits: u8,
    },
    /// The table does not fit the structure under any encoding that its parameters allow.
    #[error("the table does not fit {structure}: {what}; {advice}")]
    TooLarge {
        /// The structure, with its parameters.
        structure: String,
        /// What ran out, with numbers.
        what: String,
        /// What to do.
        advice: String,
    },
    /// No memory for the structure.
    #[error("no memory for the table: {0}")]
    Memory(#[from] std::io::Error),
}
