//! Readers in several threads while a writer patches and rebuilds, for every structure of the registry; `cargo xtask test
//! --tier model` also runs this under ThreadSanitizer, on the scalar forms (`--cfg scalar`: the sanitizer does not see what
//! intrinsics load).

use tidemill_lpm::suite::{concurrent, concurrent_default, concurrent_growth};
use tidemill_lpm::table::{Algorithm, Family};
use tidemill_lpm::{Domain, Rib};

/// Batches of changes for each structure.
const ROUNDS: usize = 120;

fn every_structure<A: Family>(seed: u64) {
    for algorithm in Algorithm::all::<A>() {
        println!("{algorithm}, IPv{}", A::FAMILY);
        concurrent::<A>(seed, ROUNDS, move |rib, domain| algorithm.writer(rib, domain));
    }
}

#[test]
fn ipv4_readers_see_the_old_or_the_new_label() {
    every_structure::<u32>(2);
}

#[test]
fn ipv6_readers_see_the_old_or_the_new_label() {
    every_structure::<u128>(3);
}

fn every_structure_grows<A: Family>(seed: u64) {
    for algorithm in Algorithm::all::<A>() {
        println!("{algorithm}, IPv{}", A::FAMILY);
        concurrent_growth::<A>(seed, move |rib, domain| algorithm.writer(rib, domain));
    }
}

/// From some 60 prefixes to ten times as many, and back.
#[test]
fn readers_of_a_table_that_grows_tenfold_see_the_old_or_the_new_label() {
    every_structure_grows::<u32>(5);
    every_structure_grows::<u128>(6);
}

/// The widest and the narrowest root and extension of DXR, which `all` does not list.
#[test]
fn other_layouts_of_dxr_too() {
    for name in ["dxr-d16r", "dxr-d20r", "dxr-d12x9r", "dxr-d16x1r"] {
        let algorithm = Algorithm::parse::<u32>(name).unwrap();
        concurrent::<u32>(4, ROUNDS, move |rib, domain| algorithm.writer(rib, domain));
    }
}

fn default_route_moves<A: Family>(seed: u64, names: &[&str]) {
    for name in names {
        let algorithm = Algorithm::parse::<A>(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        concurrent_default::<A>(seed, ROUNDS, move |rib, domain| algorithm.writer(rib, domain));
    }
}

/// Also for what comes and goes in the same batch, whose readers may go by the default route before.
#[test]
fn readers_beside_a_default_route_that_moves_see_the_old_or_the_new_label() {
    default_route_moves::<u32>(7, &["popdir-d16x3", "dxr-d16x4r", "rangetrie-d16", "binary-trie"]);
    default_route_moves::<u128>(8, &["lulea", "rangetrie-d16", "patricia"]);
}

fn every_structure_is_seen<A: Family>() {
    for algorithm in Algorithm::all::<A>() {
        let writer = algorithm.writer(&Rib::<A>::new(), &Domain::new());
        let writer = writer.unwrap_or_else(|error| panic!("{algorithm}: {error}"));
        let mut kernels = Vec::new();
        writer.fib().lookup_batch_each(&[], &mut |kernel, _| kernels.push(kernel));
        let plain_first = matches!(kernels[..], ["batch" | "scalar", ..]);
        assert!(plain_first && (kernels.len() == 1 || !cfg!(scalar)), "{algorithm}: {kernels:?}");
    }
}

/// With `--cfg scalar` there is no kernel but plain code: of others the sanitizer would see no load, and be content.
#[test]
fn the_scalar_forms_are_all_that_race_checkers_run() {
    every_structure_is_seen::<u32>();
    every_structure_is_seen::<u128>();
}
