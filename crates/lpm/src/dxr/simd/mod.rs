//! The batch in AVX-512 and AVX2, chosen once per structure.
//!
//! Per round of up to 256 keys: the descriptors of all keys are gathered, what they resolve is stored, and the rest is
//! packed into a list; then the list is searched, one key per lane, all lanes in step.
//!
//! ```text
//! keys   k0 k1 k2 ... k15      gather direct, gather descs
//! out    l0 -- l2 ... l15      labels from descriptors
//! list   (k1, desc1, 1) (k17, desc17, 17) ...      16 at a time: gather, compare, halve
//! ```
//!
//! A range entry, short or long, is brought into one form in which the words ascend with the starts: the start in the top
//! bits and what follows it below. A key with ones below its start compares not less than the entry of its start.
//!
//! This module is one of the named homes of `unsafe`, with its children. The gathers are `asm!`: they race with the
//! writer's stores, which Rust's own loads may not. Each lane reads one aligned 4-byte word of `direct` or `descs`, which
//! the CPU does at once, and on x86 a load is never done before an earlier one, as an acquire load requires. Unaligned
//! lanes only read `ranges`, where nothing that a reader can reach is ever stored to. Race checkers run on the scalar form.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;

use super::Dxr;
use crate::fib::Label;

/// Keys per round.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const ROUND: usize = 256;

/// The code that answers a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    /// Plain code; everywhere.
    Scalar,
    /// 8 keys at a time.
    Avx2,
    /// 16 keys at a time; needs AVX-512 F.
    Avx512,
}

impl Kernel {
    /// All of them, narrow to wide.
    pub const ALL: [Kernel; 3] = [Kernel::Scalar, Kernel::Avx2, Kernel::Avx512];

    /// `scalar`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Scalar => "scalar",
            Kernel::Avx2 => "avx2",
            Kernel::Avx512 => "avx512",
        }
    }

    /// Whether this CPU has what the kernel needs.
    pub fn is_supported(self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(any(miri, scalar))))]
        return match self {
            Kernel::Scalar => true,
            Kernel::Avx2 => is_x86_feature_detected!("avx2"),
            Kernel::Avx512 => is_x86_feature_detected!("avx512f"),
        };
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, scalar)))))]
        return self == Kernel::Scalar;
    }

    /// The widest kernel that this CPU has.
    pub fn best() -> Kernel {
        Self::ALL.into_iter().rev().find(|kernel| kernel.is_supported()).unwrap_or(Kernel::Scalar)
    }

    /// This kernel if the CPU has it, else plain code.
    pub(super) fn or_scalar(self) -> Kernel {
        if self.is_supported() { self } else { Kernel::Scalar }
    }
}

/// Answers a batch with the structure's kernel; both slices have the same length.
#[inline]
pub(super) fn lookup_batch(dxr: &Dxr, keys: &[u32], out: &mut [Label]) {
    lookup_batch_with(dxr.kernel, dxr, keys, out);
}

/// Answers a batch with a kernel, or with plain code if the CPU does not have it.
#[inline]
pub(super) fn lookup_batch_with(kernel: Kernel, dxr: &Dxr, keys: &[u32], out: &mut [Label]) {
    match kernel {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the CPU has the feature (asked once by the standard library and remembered: one load), and
        // `Fib::lookup_batch` has compared the lengths.
        Kernel::Avx512 if kernel.is_supported() => unsafe { avx512::lookup_batch(dxr, keys, out) },
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: as above.
        Kernel::Avx2 if kernel.is_supported() => unsafe { avx2::lookup_batch(dxr, keys, out) },
        _ => dxr.lookup_batch_scalar(keys, out),
    }
}
