//! A table asked for 32 keys at once by AVX-512: hashes of eight keys in a vector, their heads by a gather, the filters' bits tested together.
//!
//! What comes of it are the chains that have something to compare, as in the scalar form ([`super::batch`]), which is the specification; chains are
//! walked as there. Words of keys are turned round once for each group, and only those that some table asks about.
//!
//! This module is one of the named homes of `unsafe`: gathers load by computed places.

use super::TupleSpace;
use super::batch::GROUP;
use super::reach::bit;
use super::table::{FILTER_BITS, FILTER_SHIFT, FIRST_FACTOR, First, LAST_FACTOR, Table};
use crate::cpu::Avx512;
use crate::key::Key;
use crate::rule::Rank;
use crate::turned::Turned;
use std::arch::x86_64::*;

const LANES: usize = 8;
const VECTORS: usize = GROUP / LANES;
/// So few keys are better asked for one by one: they are spread over the vectors.
const FEW: u32 = 8;

impl Avx512 {
    /// As [`TupleSpace::lookup_group`].
    #[inline(always)]
    pub(super) fn lookup_group(self, space: &TupleSpace, keys: &[Key], out: &mut [Rank]) {
        // SAFETY: `self` is there, so the CPU has these features.
        unsafe { lookup_group(space, keys, out) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn lookup_group(space: &TupleSpace, keys: &[Key], out: &mut [Rank]) {
    let n = keys.len().min(out.len()).min(GROUP);
    let (keys, out) = (&keys[..n], &mut out[..n]);
    // Lanes without a key have found the best there is.
    let mut best = [0_u64; GROUP];
    best[..n].fill(Rank::NONE.0);
    // The tables that each key may have a rule in, and all of them together.
    let (mut may, mut any) = ([u64::MAX; GROUP], u64::MAX);
    if let Some(reach) = &space.reach {
        may.iter_mut().zip(keys).for_each(|(may, key)| *may = reach.tables(key));
        any = may[..n].iter().fold(0_u64, |any, may| any | *may);
    }
    let mut rest = None;
    let mut turned = Turned::new();
    let mut firsts = [(0_u8, First::NONE); GROUP];
    for (at, &(bound, number)) in space.order.iter().enumerate() {
        if any & bit(number) == 0 {
            continue;
        }
        let mut open = [0_u8; VECTORS];
        for (open, best) in open.iter_mut().zip(best.as_chunks().0) {
            *open = _mm512_cmpgt_epu64_mask(load(best), _mm512_set1_epi64(bound.0 as i64));
        }
        let open_bits = u32::from_le_bytes(open);
        if open_bits.count_ones() <= FEW {
            rest = (open_bits != 0).then_some((at, open_bits));
            break;
        }
        if any != u64::MAX {
            let bit = _mm512_set1_epi64(bit(number) as i64);
            for (open, may) in open.iter_mut().zip(may.as_chunks().0) {
                *open &= _mm512_test_epi64_mask(load(may), bit);
            }
            if open == [0; VECTORS] {
                continue;
            }
        }
        let table = &space.tables[number as usize];
        let seen = ask(table, keys, open, &mut turned, &mut firsts);
        for &(_, first) in &firsts[..seen] {
            table.prefetch_entry(first);
        }
        for &(i, first) in &firsts[..seen] {
            let best = &mut best[usize::from(i)];
            *best = table.search(first, &keys[usize::from(i)], Rank(*best)).0.0.min(*best);
        }
    }
    out.iter_mut().zip(best).for_each(|(out, best)| *out = Rank(best));
    if let Some((from, mut bits)) = rest {
        let (mut open, mut left) = ([0; GROUP], 0);
        while bits != 0 {
            open[left] = bits.trailing_zeros() as u8;
            left += 1;
            bits &= bits - 1;
        }
        let may = space.reach.as_ref().map(|_| &may);
        space.lookup_rest(from, (open, left), keys, may, out);
    }
}

/// Lists the keys among the open ones that have something to compare in a table; how many.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn ask(
    table: &Table,
    keys: &[Key],
    open: [u8; VECTORS],
    turned: &mut Turned,
    firsts: &mut [(u8, First); GROUP],
) -> usize {
    let (first, last) = (_mm512_set1_epi64(FIRST_FACTOR as i64), _mm512_set1_epi64(LAST_FACTOR as i64));
    let mut hashes = [_mm512_setzero_si512(); VECTORS];
    for word in table.hashed_words() {
        let mask = _mm512_set1_epi64(table.mask().0[word] as i64);
        let values = turned.word(word, keys).as_chunks::<LANES>().0;
        for (hash, values) in hashes.iter_mut().zip(values) {
            let mixed = _mm512_xor_si512(*hash, _mm512_and_si512(load(values), mask));
            let product = _mm512_mullo_epi64(mixed, first);
            *hash = _mm512_xor_si512(product, _mm512_srli_epi64::<32>(product));
        }
    }
    let (heads, shift) = table.heads();
    let (shift, within) = (_mm_cvtsi32_si128(shift as i32), _mm512_set1_epi64(heads.len() as i64 - 1));
    let (one, bits) = (_mm512_set1_epi64(1 << 32), _mm512_set1_epi64(FILTER_BITS as i64));
    let mut seen = 0;
    for (vector, (hash, open)) in hashes.into_iter().zip(open).enumerate() {
        if open == 0 {
            continue;
        }
        let hash = _mm512_mullo_epi64(hash, last);
        let place = _mm512_and_si512(_mm512_srl_epi64(hash, shift), within);
        // SAFETY: a place is below the number of heads, which is a power of two: what is gathered is inside the slice.
        let found = unsafe {
            _mm512_mask_i64gather_epi64::<8>(_mm512_setzero_si512(), open, place, heads.as_ptr().cast())
        };
        let bit = _mm512_sllv_epi64(one, _mm512_and_si512(_mm512_srli_epi64::<FILTER_SHIFT>(hash), bits));
        let mut hits = _mm512_test_epi64_mask(found, bit);
        if hits != 0 {
            let found: [u64; LANES] = store(found);
            while hits != 0 {
                let lane = hits.trailing_zeros() as usize;
                firsts[seen] = ((vector * LANES + lane) as u8, First::of(found[lane]));
                seen += 1;
                hits &= hits - 1;
            }
        }
    }
    seen
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[u64; LANES]) -> __m512i {
    // SAFETY: the array is as long as the vector.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(vector: __m512i) -> [u64; LANES] {
    let mut words = [0; LANES];
    // SAFETY: the array is as long as the vector.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
    words
}
