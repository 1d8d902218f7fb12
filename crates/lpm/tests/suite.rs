//! Every structure in every form that configurations name passes its family's suite.

use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::dxr::Layout;
use tidemill_lpm::{Algorithm, Family, FibWriter, Rib, lpm_suite, popdir};

type Built<A> = Result<Box<dyn FibWriter<A>>, tidemill_lpm::BuildError>;

fn trie<A: Family>(root_bits: u8, rib: &Rib<A>, domain: &Domain) -> Built<A> {
    Algorithm::RangeTrie { root_bits }.writer(rib, domain)
}

fn poptrie<A: Family>(root_bits: u8, rib: &Rib<A>, domain: &Domain) -> Built<A> {
    Algorithm::Poptrie { root_bits }.writer(rib, domain)
}

fn dxr(d: u8, x: u8, rib: &Rib<u32>, domain: &Domain) -> Built<u32> {
    Algorithm::Dxr(Layout::new(d, x)?).writer(rib, domain)
}

fn popdir(d: u8, x: u8, rib: &Rib<u32>, domain: &Domain) -> Built<u32> {
    Algorithm::Popdir(popdir::Layout::new(d, x)?).writer(rib, domain)
}

lpm_suite!(rangetrie_d12_v6, u128, |rib, domain| trie(12, rib, domain));
lpm_suite!(rangetrie_d16_v6, u128, |rib, domain| trie(16, rib, domain));
lpm_suite!(rangetrie_d16_v4, u32, |rib, domain| trie(16, rib, domain));
lpm_suite!(poptrie_d16_v4, u32, |rib, domain| poptrie(16, rib, domain));
lpm_suite!(poptrie_d18_v4, u32, |rib, domain| poptrie(18, rib, domain));
lpm_suite!(poptrie_d13_v6, u128, |rib, domain| poptrie(13, rib, domain));
lpm_suite!(poptrie_d16_v6, u128, |rib, domain| poptrie(16, rib, domain));
lpm_suite!(lulea, u128, |rib, domain| Algorithm::Lulea.writer(rib, domain));
lpm_suite!(dxr_d16r, u32, |rib, domain| dxr(16, 0, rib, domain));
lpm_suite!(dxr_d18r, u32, |rib, domain| dxr(18, 0, rib, domain));
lpm_suite!(dxr_d16x4r, u32, |rib, domain| dxr(16, 4, rib, domain));
lpm_suite!(dxr_d12x9r, u32, |rib, domain| dxr(12, 9, rib, domain));
lpm_suite!(popdir_d16x3, u32, |rib, domain| popdir(16, 3, rib, domain));
lpm_suite!(popdir_d12x7, u32, |rib, domain| popdir(12, 7, rib, domain));
lpm_suite!(popdir_d19, u32, |rib, domain| popdir(19, 0, rib, domain));

/// A structure without parameters.
macro_rules! named {
    ($($name:ident, $address:ty, $text:literal;)*) => { $(
        lpm_suite!($name, $address, |rib, domain| Algorithm::Named($text).writer(rib, domain));
    )* };
}
named! {
    binary_trie_v4, u32, "binary-trie";
    binary_trie_v6, u128, "binary-trie";
    patricia_v4, u32, "patricia";
    patricia_v6, u128, "patricia";
    sail_l_v6, u128, "sail-l";
    dir_24_8_v4, u32, "dir-24-8";
    tree_bitmap_v4, u32, "tree-bitmap";
    tree_bitmap_v6, u128, "tree-bitmap";
    lc_trie_v4, u32, "lc-trie";
    lc_trie_v6, u128, "lc-trie";
    sail_b_v4, u32, "sail-b";
    sail_u_v4, u32, "sail-u";
    sail_l_v4, u32, "sail-l";
    sail_l8_v4, u32, "sail-l8";
    sail_lv_v4, u32, "sail-lv";
    sail_m_v4, u32, "sail-m";
    hash_per_length_v4, u32, "hash-per-length";
    hash_per_length_v6, u128, "hash-per-length";
    cuvpp_v4, u32, "cuvpp";
    cuvpp_v6, u128, "cuvpp";
    bloom_lpm_v4, u32, "bloom-lpm";
    bloom_lpm_v6, u128, "bloom-lpm";
    sail_hybrid_v6, u128, "sail-hybrid";
    two_way_trie_v4, u32, "two-way-trie";
    two_way_trie_v6, u128, "two-way-trie";
    length_search_v4, u32, "length-search";
    length_search_v6, u128, "length-search";
    pbf_v4, u32, "pbf";
    pbf_v6, u128, "pbf";
    lulea_1997_v4, u32, "lulea-1997";
    cuvpp_simd_v4, u32, "cuvpp-simd";
    cuvpp_simd_v6, u128, "cuvpp-simd";
    cuvpp_lengths_v4, u32, "cuvpp-lengths";
    cuvpp_lengths_v6, u128, "cuvpp-lengths";
}

#[test]
fn every_name_is_read_back() {
    fn check<A: Family>() {
        for algorithm in Algorithm::all::<A>() {
            assert_eq!(Algorithm::parse::<A>(&algorithm.to_string()), Ok(algorithm));
        }
    }
    check::<u32>();
    check::<u128>();
    assert_eq!(Algorithm::parse::<u32>("dxr-d12x9r"), Ok(Algorithm::Dxr(Layout::new(12, 9).unwrap())));
    assert_eq!(Algorithm::parse::<u128>("poptrie-d13"), Ok(Algorithm::Poptrie { root_bits: 13 }));
    for name in ["poptrie-d25", "poptrie-d018", "poptrie-d+18", "poptrie-d"] {
        assert!(Algorithm::parse::<u32>(name).is_err(), "{name}");
    }
    let error = Algorithm::parse::<u128>("dxr-d18r").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"dxr-d18r\" is not an IPv6 lookup structure: use one of auto, lulea, rangetrie-d12, \
         rangetrie-d16, rangetrie-d20, rangetrie-d24, poptrie-d16, poptrie-d18, poptrie-d20, binary-trie, \
         patricia, sail-l, tree-bitmap, lc-trie, hash-per-length, cuvpp, bloom-lpm, sail-hybrid, \
         two-way-trie, length-search, pbf, cuvpp-simd, cuvpp-lengths"
    );
    assert!(Algorithm::parse::<u32>("dxr-d40r").unwrap_err().to_string().contains("dxr-d16x4r, dxr-d18r"));
}
