//! What is common to the kernels: which one this CPU has, and three groups under way at once.
//!
//! A kernel is four steps of a group: it begins (places, home's tags asked for), compares tags (entries asked for), looks away (into the other
//! buckets of those that need it) and compares keys. Each step of one group comes after steps of others, so that what it has asked for is there.
//!
//! This module is one of the named homes of `unsafe`: it calls kernels that are compiled for CPUs that have been asked what they have. They run
//! for the table's owner only, on the one thread that writes, so their plain loads race with nothing.

use super::{GROUP, Group};
use crate::flowtable::State;
use crate::flowtable::store::Store;
use crate::key::Key;
use crate::simd::{has_avx2, has_avx512};

/// A kernel that this CPU has: nobody makes one without asking.
#[derive(Clone, Copy, Debug)]
pub(in crate::flowtable) struct Kernel(Vectors);

#[derive(Clone, Copy, Debug)]
enum Vectors {
    Avx512,
    Avx2,
}

/// Words of a key that a vector of AVX-512 has room for.
const MOST_WORDS: usize = 8;

impl Kernel {
    /// The best for keys of `W` words.
    #[inline(always)]
    pub(in crate::flowtable) fn best<const W: usize>() -> Option<Kernel> {
        if W <= MOST_WORDS && has_avx512() {
            return Some(Kernel(Vectors::Avx512));
        }
        has_avx2().then_some(Kernel(Vectors::Avx2))
    }

    /// All of them for keys of `W` words.
    #[cfg(test)]
    pub(in crate::flowtable) fn all<const W: usize>() -> Vec<Kernel> {
        let avx512 = (W <= MOST_WORDS && has_avx512()).then_some(Kernel(Vectors::Avx512));
        let avx2 = has_avx2().then_some(Kernel(Vectors::Avx2));
        avx512.into_iter().chain(avx2).collect()
    }
}

impl<const W: usize, S: State> Store<W, S> {
    /// As [`look`](Self::look), by a kernel.
    #[inline(always)]
    pub(in crate::flowtable) fn look_by<const INSERT: bool>(
        &self,
        kernel: Kernel,
        hashes: &[[u64; GROUP]],
        keys: &[[Key<W>; GROUP]],
        done: &mut impl FnMut(&Group, usize),
    ) {
        match kernel.0 {
            // SAFETY: the kernel is there, so this CPU has said that it has AVX-512 and what else it wants.
            Vectors::Avx512 => unsafe { self.look_avx512::<INSERT>(hashes, keys, done) },
            // SAFETY: likewise AVX2.
            Vectors::Avx2 => unsafe { self.look_avx2::<INSERT>(hashes, keys, done) },
        }
    }
}

/// Takes groups through the steps of a kernel, and tells `done` each with the number of its first key.
#[inline(always)]
pub(super) fn piped<const W: usize>(
    hashes: &[[u64; GROUP]],
    keys: &[[Key<W>; GROUP]],
    begin: impl Fn(&mut Group, &[u64; GROUP]),
    tags: impl Fn(&mut Group),
    away: impl Fn(&mut Group),
    end: impl Fn(&mut Group, &[Key<W>; GROUP]),
    done: &mut impl FnMut(&Group, usize),
) {
    let mut groups = [const { Group::new() }; 3];
    let n = hashes.len().min(keys.len());
    for (group, hashes) in groups.iter_mut().zip(&hashes[..n]).take(2) {
        begin(group, hashes);
    }
    if n > 0 {
        tags(&mut groups[0]);
    }
    for k in 0..n {
        away(&mut groups[k % 3]);
        if k + 2 < n {
            begin(&mut groups[(k + 2) % 3], &hashes[k + 2]);
        }
        if k + 1 < n {
            tags(&mut groups[(k + 1) % 3]);
        }
        let group = &mut groups[k % 3];
        end(group, &keys[k]);
        done(group, k * GROUP);
    }
}

/// What vectors have written, read back one by one from memory: extracting it from registers would cost more.
#[inline(always)]
pub(super) fn read_back<T: Copy>(numbers: &[T; GROUP], i: usize) -> T {
    // SAFETY: a reference to an element.
    unsafe { std::ptr::from_ref(&numbers[i]).read_volatile() }
}
