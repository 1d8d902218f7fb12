//! The batch in AVX-512 and AVX2, chosen once per structure, and the one key with the CPU's own bit count.
//!
//! ```text
//! round   v0 v1 v2 ...         vectors of 16 (8) keys: gather blocks, gather descriptors
//!         v0 v1 v2 ...         count bits, gather labels where a bit is set, store
//!         asides, if there is one in the round: key by key, in plain code
//! ```
//! The loads of a round do not wait for one another: that is worth 20 to 30 % over going through the whole lookup
//! vector by vector.
//!
//! This module is one of the named homes of `unsafe`, with its children. The gathers are `asm!`: they race with the
//! writer's stores, which Rust's own loads may not. Each lane reads one aligned 8-byte word of `descs`, or 4 bytes from an aligned
//! 2-byte one of `direct`, of which the other half is dropped; either way the CPU reads what counts at once, and on x86 a
//! load is never done before an earlier one, as an acquire load requires. Unaligned lanes otherwise only read `labels`,
//! where nothing that a reader can reach is ever stored to. Race checkers run on the scalar form.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;

use super::{Kernel, Popdir};
use crate::fib::Label;

/// Whether this CPU has what the kernel needs.
pub(super) fn is_supported(kernel: Kernel) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let counts = match kernel {
        Kernel::Avx2 => is_x86_feature_detected!("popcnt"),
        Kernel::Avx512 => is_x86_feature_detected!("popcnt") && is_x86_feature_detected!("avx512vpopcntdq"),
        _ => true,
    };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let counts = true;
    counts && kernel.is_supported()
}

/// The widest kernel that this CPU has.
pub(super) fn best() -> Kernel {
    Kernel::ALL.into_iter().rev().find(|&kernel| is_supported(kernel)).unwrap_or(Kernel::Scalar)
}

/// Answers one key.
#[inline]
pub(super) fn lookup(popdir: &Popdir, key: u32) -> Label {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        /// # Safety
        /// The CPU has `popcnt`.
        #[target_feature(enable = "popcnt")]
        unsafe fn counting(popdir: &Popdir, key: u32) -> Label {
            popdir.lookup_probed(key, &())
        }
        if popdir.kernel != Kernel::Scalar {
            // SAFETY: a structure has a kernel only if `is_supported` said so, and all but plain code want `popcnt`.
            return unsafe { counting(popdir, key) };
        }
    }
    popdir.lookup_probed(key, &())
}

/// Answers a batch with a kernel, or with plain code if the CPU does not have it; both slices have the same length.
#[inline]
pub(super) fn lookup_batch(kernel: Kernel, popdir: &Popdir, keys: &[u32], out: &mut [Label]) {
    match kernel {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: the CPU has the features (asked once by the standard library and remembered), and
        // `Fib::lookup_batch` has compared the lengths.
        Kernel::Avx512 if is_supported(kernel) => unsafe { avx512::lookup_batch(popdir, keys, out) },
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: as above.
        Kernel::Avx2 if is_supported(kernel) => unsafe { avx2::lookup_batch(popdir, keys, out) },
        _ => popdir.lookup_batch_scalar(keys, out),
    }
}
