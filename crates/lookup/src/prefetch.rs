//! The cache hint.
//!
//! This module is one of the named homes of `unsafe`.

/// Asks the cache for the line that holds `address`. Never faults, whatever the address, and never changes what a
/// program computes. x86-64 and aarch64; nothing elsewhere and under Miri.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: PREFETCHT0 is a hint: it does not fault and does not access memory architecturally (Intel SDM,
    // volume 2, PREFETCHh). SSE is part of the x86-64 baseline.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: PRFM is a hint: it does not fault (Arm ARM, C6.2.PRFM) and touches neither flags nor stack.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::prefetch_read;

    #[test]
    fn any_address_is_allowed() {
        for address in [0, 1, 0xdead_beef, usize::MAX, 0x8000_0000_0000_0000] {
            prefetch_read(std::ptr::without_provenance::<u64>(address));
        }
        prefetch_read(&7_u8);
    }
}
