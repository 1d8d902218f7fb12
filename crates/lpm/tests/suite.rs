//! Every structure in every form that configurations name passes its family's suite.

use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::dxr::Layout;
use tidemill_lpm::suite::beside;
use tidemill_lpm::{Address, Algorithm, Built, Family, Rib, lpm_suite};

fn parse<A: Family>(name: &str) -> Algorithm {
    Algorithm::parse::<A>(name).unwrap_or_else(|error| panic!("{error}"))
}

fn by_name<A: Family>(name: &str, rib: &Rib<A>, domain: &Domain) -> Built<A> {
    parse::<A>(name).writer(rib, domain)
}

/// In a store with another one.
fn shared<A: Family>(name: &str, rib: &Rib<A>, domain: &Domain) -> Built<A> {
    let sharing = A::sharing(parse::<A>(name), domain);
    beside(&sharing.unwrap_or_else(|| panic!("{name} shares nothing")), rib, domain)
}

/// The suite of each line's structure; and the list of them, by family and name.
macro_rules! suites {
    ($list:ident, $make:ident: $($module:ident, $address:ty, $name:literal;)*) => {
        $(lpm_suite!($module, $address, |rib, domain| $make($name, rib, domain));)*
        const $list: &[(u8, &str)] = &[$((<$address as Address>::FAMILY, $name)),*];
    };
}

suites! {
    ALONE, by_name:
    auto_v4, u32, "auto";
    auto_v6, u128, "auto";
    dxr_d16r, u32, "dxr-d16r";
    dxr_d18r, u32, "dxr-d18r";
    dxr_d16x4r, u32, "dxr-d16x4r";
    dxr_d12x9r, u32, "dxr-d12x9r";
    popdir_d16x3, u32, "popdir-d16x3";
    popdir_d12x7, u32, "popdir-d12x7";
    popdir_d19, u32, "popdir-d19";
    lulea, u128, "lulea";
    rangetrie_d12_v4, u32, "rangetrie-d12";
    rangetrie_d16_v4, u32, "rangetrie-d16";
    rangetrie_d20_v4, u32, "rangetrie-d20";
    rangetrie_d24_v4, u32, "rangetrie-d24";
    rangetrie_d12_v6, u128, "rangetrie-d12";
    rangetrie_d16_v6, u128, "rangetrie-d16";
    rangetrie_d20_v6, u128, "rangetrie-d20";
    rangetrie_d24_v6, u128, "rangetrie-d24";
    poptrie_d16_v4, u32, "poptrie-d16";
    poptrie_d18_v4, u32, "poptrie-d18";
    poptrie_d20_v4, u32, "poptrie-d20";
    poptrie_d13_v6, u128, "poptrie-d13";
    poptrie_d16_v6, u128, "poptrie-d16";
    poptrie_d18_v6, u128, "poptrie-d18";
    poptrie_d20_v6, u128, "poptrie-d20";
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

suites! {
    SHARED, shared:
    shared_auto_v4, u32, "auto";
    shared_auto_v6, u128, "auto";
    shared_dxr_d18r, u32, "dxr-d18r";
    shared_dxr_d16x4r, u32, "dxr-d16x4r";
    shared_lulea, u128, "lulea";
}

/// What is registered has its line above, and another one if it can share.
#[test]
fn every_name_is_in_the_suite() {
    fn check<A: Family>() {
        for algorithm in Algorithm::all::<A>() {
            let name = algorithm.to_string();
            let line = (A::FAMILY, &*name);
            assert!(ALONE.contains(&line), "{name} of IPv{} has no line", A::FAMILY);
            let shares = A::sharing(algorithm, &Domain::new()).is_some();
            assert_eq!(SHARED.contains(&line), shares, "{name} of IPv{}, in a store", A::FAMILY);
        }
    }
    check::<u32>();
    check::<u128>();
}

/// Other roots are the same code, and no list has them; who names them gets them.
#[test]
fn other_roots_are_taken_by_name_only() {
    fn check<A: Family>() {
        for name in ["rangetrie-d12", "rangetrie-d24", "poptrie-d16", "poptrie-d20"] {
            let algorithm = parse::<A>(name);
            assert_eq!(algorithm.to_string(), name);
            assert!(!Algorithm::all::<A>().contains(&algorithm), "{name} of IPv{}", A::FAMILY);
            assert!(ALONE.contains(&(A::FAMILY, name)), "{name} of IPv{} has no line", A::FAMILY);
        }
    }
    check::<u32>();
    check::<u128>();
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
    for name in ["poptrie-d25", "poptrie-d018", "poptrie-d+18", "poptrie-d", "rangetrie-d012", "rangetrie-"] {
        assert!(Algorithm::parse::<u32>(name).is_err(), "{name}");
    }
    let error = Algorithm::parse::<u128>("dxr-d18r").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"dxr-d18r\" is not an IPv6 lookup structure: use one of auto, lulea, rangetrie-d16, \
         rangetrie-d20, poptrie-d18, binary-trie, patricia, sail-l, tree-bitmap, lc-trie, hash-per-length, \
         cuvpp, bloom-lpm, sail-hybrid, two-way-trie, length-search, pbf, cuvpp-simd, cuvpp-lengths"
    );
    assert!(Algorithm::parse::<u32>("dxr-d40r").unwrap_err().to_string().contains("dxr-d16x4r, dxr-d18r"));
}
