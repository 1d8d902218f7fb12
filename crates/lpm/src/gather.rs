//! Gathers as instructions that the compiler does not look into: what they read, another thread may store to.
//!
//! This module is one of the named homes of `unsafe`: it makes the functions by which the kernels of DXR and Popdir load.

/// Defines a gather of 4-byte words: of lane `i`, if its bit in `mask` is set, the word at `base + index[i] * scale`;
/// `other[i]` if not.
macro_rules! avx512 {
    ($name:ident, $scale:literal) => {
        /// # Safety
        /// The word of every lane in `mask` is inside one allocation that `base` points into.
        #[inline]
        #[target_feature(enable = "avx512f")]
        unsafe fn $name(base: *const u8, index: __m512i, mask: __mmask16, other: __m512i) -> __m512i {
            let mut words = other;
            // SAFETY: loads only what the caller vouches for; writes only the two registers named. Not `pure`: another
            // thread may store between two executions.
            unsafe {
                core::arch::asm!(
                    concat!("vpgatherdd {words}{{{mask}}}, [{base} + {index}*", $scale, "]"),
                    words = inout(zmm_reg) words,
                    mask = inout(kreg) mask => _,
                    index = in(zmm_reg) index,
                    base = in(reg) base,
                    options(nostack, preserves_flags, readonly),
                );
            }
            words
        }
    };
}
pub(crate) use avx512;
