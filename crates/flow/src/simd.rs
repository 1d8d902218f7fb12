//! What the CPU at hand does better than the one that everything is compiled for; a cache line compared at once.
//!
//! This module is one of the named homes of `unsafe`: functions compiled for CPUs that have been asked what they have, and loads of
//! SSE2, which every x86-64 has, written as assembly: a vector's load beside another thread's store is nothing that Rust knows.

use crate::words::{AtomicU64, Ordering};

/// What a CPU may have beyond the baseline, the more the higher; zero is not asked yet.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BASELINE: u8 = 1;
/// AVX2 and the bit instructions of its time.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AVX2: u8 = 2;
/// AVX-512 as servers have it since 2017, and [`AVX2`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
const AVX512: u8 = 3;

/// What this CPU has. Asked once: the library would look at each name every time. Nothing else is published by it, so it needs no
/// order: two threads that find it unasked both ask, and hear the same.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn has() -> u8 {
    use std::sync::atomic::AtomicU8;
    static HAS: AtomicU8 = AtomicU8::new(0);
    #[cold]
    fn ask() -> u8 {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let has = match (avx2, avx512) {
            (true, true) => AVX512,
            (true, false) => AVX2,
            (false, _) => BASELINE,
        };
        HAS.store(has, Ordering::Relaxed);
        has
    }
    match HAS.load(Ordering::Relaxed) {
        0 => ask(),
        has => has,
    }
}

/// Whether this CPU has what kernels for AVX-512 want.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn has_avx512() -> bool {
    has() == AVX512
}

/// Runs `f` compiled for the instructions that this CPU has (AVX-512, or AVX2, with BMI), or as it is. What `f` calls must be
/// inlined into it to gain.
#[inline(always)]
pub(crate) fn on_this_cpu<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
        #[inline]
        fn avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        #[inline]
        fn avx2<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        if has_avx512() {
            // SAFETY: this CPU has just said that it has them.
            return unsafe { avx512(f) };
        }
        if has() == AVX2 {
            // SAFETY: as above.
            return unsafe { avx2(f) };
        }
    }
    f()
}

/// One bit for each of the 32 halves of 16 bits that equals `half`. The words may be written meanwhile: each is read whole, and
/// what was written before one of them is there (acquire).
#[inline(always)]
pub(crate) fn equal_halves(words: &[AtomicU64; 8], half: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, scalar))))]
    {
        use std::arch::x86_64::{__m128i, _mm_set1_epi16};
        let (low, high): (u32, u32);
        // SAFETY: reads the 64 bytes of `words` and nothing else, 16 at a time, of which x86-64 reads each aligned word whole
        // and in order; not `nomem`, so the compiler keeps the order too. SSE2 is part of the x86-64 baseline.
        unsafe {
            let wanted: __m128i = _mm_set1_epi16(half as i16);
            std::arch::asm!(
                "movdqu {a}, [{p}]",
                "movdqu {b}, [{p} + 16]",
                "movdqu {c}, [{p} + 32]",
                "movdqu {d}, [{p} + 48]",
                "pcmpeqw {a}, {w}",
                "pcmpeqw {b}, {w}",
                "pcmpeqw {c}, {w}",
                "pcmpeqw {d}, {w}",
                "packsswb {a}, {b}",
                "packsswb {c}, {d}",
                "pmovmskb {low:e}, {a}",
                "pmovmskb {high:e}, {c}",
                p = in(reg) words.as_ptr(),
                w = in(xmm_reg) wanted,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                low = lateout(reg) low,
                high = lateout(reg) high,
                options(readonly, nostack, preserves_flags),
            );
        }
        low | high << 16
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, scalar)))))]
    equal_halves_scalar(words, half)
}

/// The same, a word at a time: the specification of [`equal_halves`], and what the checkers of races see.
#[cfg_attr(all(target_arch = "x86_64", not(any(miri, loom, scalar))), allow(dead_code))]
pub(crate) fn equal_halves_scalar(words: &[AtomicU64; 8], half: u16) -> u32 {
    const ONES: u64 = 0x0001_0001_0001_0001;
    const LOW_BITS: u64 = ONES * 0x7fff;
    let four = |word: u64| {
        let difference = word ^ (ONES * u64::from(half));
        // The high bit of each half that is zero, without borrows between halves.
        let zero = !(((difference & LOW_BITS) + LOW_BITS) | difference | LOW_BITS);
        // Bit 15 of half i to bit i.
        ((zero >> 15).wrapping_mul(0x0001_0002_0004_0008) >> 48) as u32 & 0xf
    };
    (0..8).map(|i| four(words[i].load(Ordering::Acquire)) << (4 * i)).sum()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn both_forms_find_the_same_halves() {
        let bucket = |halves: [u16; 32]| {
            std::array::from_fn(|i| {
                AtomicU64::new((0..4).map(|j| u64::from(halves[4 * i + j]) << (16 * j)).sum())
            })
        };
        for at in 0..32 {
            for (background, half) in
                [(0, 1), (0, 0xffff), (0x8000, 0), (1, 0), (0x7fff, 0x8000), (0xffff, 0xfffe)]
            {
                let mut halves = [background; 32];
                halves[at] = half;
                let words: [AtomicU64; 8] = bucket(halves);
                assert_eq!(equal_halves(&words, half), 1 << at, "{background} {half}");
                assert_eq!(equal_halves_scalar(&words, half), 1 << at, "{background} {half}");
                assert_eq!(equal_halves_scalar(&words, background), !(1 << at));
            }
        }
        let mut x = 1_u64;
        for _ in 0..2_000 {
            let words: [AtomicU64; 8] = std::array::from_fn(|_| {
                x = crate::hash::mix(x.wrapping_add(1));
                AtomicU64::new(x & 0x0003_0003_8003_0003)
            });
            for half in 0..=3 {
                assert_eq!(
                    equal_halves(&words, half),
                    equal_halves_scalar(&words, half),
                    "{words:x?} {half}"
                );
            }
        }
    }
}
