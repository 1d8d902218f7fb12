//! What the CPU at hand has, for the forms that are compiled for more than every one has.

/// It has AVX-512 as this crate's vectors need it: F, DQ and VL, which servers have together. Each `simd.rs` adds what it does with it.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// None if it has not.
    #[inline(always)]
    pub(crate) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        has.then_some(Avx512(()))
    }
}
