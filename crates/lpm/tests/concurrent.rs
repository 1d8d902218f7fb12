//! Readers in several threads while a writer patches and rebuilds, for every structure of the registry and those that share; `cargo xtask test
//! --tier model` also runs this under ThreadSanitizer, on the scalar forms (`--cfg scalar`: the sanitizer does not see what
//! intrinsics load).

use std::cell::OnceCell;
use tidemill_lookup::numa::Copies;
use tidemill_lpm::suite::{beside, concurrent, concurrent_default, concurrent_growth, edges, random_case};
use tidemill_lpm::table::{Algorithm, Family, Sharing, Table};
use tidemill_lpm::{Built, Change, Domain, Label, Prefix, Rib};

/// Batches of changes for each structure.
const ROUNDS: usize = 120;
/// Times that a reader goes through all keys beside tables that come and go.
const PASSES: usize = 400;

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

/// The widest and the narrowest root and extension of DXR, and narrow roots of tries, which `all` does not list.
#[test]
fn other_layouts_too() {
    for name in ["dxr-d16r", "dxr-d20r", "dxr-d12x9r", "dxr-d16x1r", "rangetrie-d12", "poptrie-d16"] {
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

fn sharing<A: Family>(name: &str, domain: &Domain) -> Sharing<A> {
    let algorithm = Algorithm::parse::<A>(name).unwrap_or_else(|error| panic!("{error}"));
    A::sharing(algorithm, domain).unwrap_or_else(|| panic!("{name} shares nothing"))
}

/// Builds structures beside others of one store; what a rebuild makes comes to those that are there.
fn in_a_store<A: Family>(name: &'static str) -> impl Fn(&Rib<A>, &Domain) -> Built<A> + Send + 'static {
    let store = OnceCell::new();
    move |rib, domain| beside(store.get_or_init(|| sharing::<A>(name, domain)), rib, domain)
}

/// IPv4's is what `auto` is in the tables of many VRFs, and a layout without blocks.
#[test]
fn readers_of_a_table_that_shares_see_the_old_or_the_new_label() {
    for name in ["dxr-d16x4r", "dxr-d18r"] {
        concurrent::<u32>(9, ROUNDS, in_a_store(name));
        concurrent_growth::<u32>(10, in_a_store(name));
    }
    concurrent::<u128>(11, ROUNDS, in_a_store("lulea"));
    concurrent_growth::<u128>(12, in_a_store("lulea"));
}

/// Readers look into one table of a store; others are made of most of its routes, changed, and dropped.
fn others_come_and_go<A: Family>(name: &str) {
    let case = (1..).map(random_case::<A>).find(|case| case.table.len() > 30);
    let case = case.unwrap_or_else(|| random_case(1));
    let rib: Rib<A> = case.table.iter().map(|&(prefix, label)| (prefix, Label(label.0 % 200))).collect();
    let prefixes: Vec<Prefix<A>> = rib.iter().map(|(prefix, _)| prefix).collect();
    let label = |rib: &Rib<A>, key: A| rib.lookup(key).map_or(Label::NONE, |(_, label)| label);
    let keys: Vec<A> = prefixes.iter().copied().flat_map(edges).collect();
    let expected: Vec<Label> = keys.iter().map(|&key| label(&rib, key)).collect();
    let domain = Domain::new();
    let sharing = sharing::<A>(name, &domain);
    let table = |rib: Rib<A>| {
        let table = Table::sharing(&domain, rib, vec![sharing.clone()], name.into(), &Copies::one());
        table.unwrap_or_else(|error| panic!("{error}"))
    };
    let stays = table(rib.clone());
    std::thread::scope(|scope| {
        let (view, mut reader) = (stays.view(), domain.register());
        let (keys, expected) = (&keys, &expected);
        // It ends by itself, whatever happens here.
        let looks = scope.spawn(move || {
            let mut labels = vec![Label(u32::MAX); keys.len()];
            for _ in 0..PASSES {
                view.get(&reader).lookup_batch(keys, &mut labels);
                assert_eq!(labels, *expected);
                reader.quiescent();
            }
        });
        for round in 0.. {
            let most = rib.iter().enumerate().filter(|(i, _)| i % 5 != round % 5);
            let mut other = table(most.map(|(_, route)| route).collect());
            for (i, batch) in prefixes.chunks(8).enumerate() {
                let change = |(at, &prefix): (usize, &Prefix<A>)| match (round + i + at) % 3 {
                    0 => Change::Withdraw(prefix),
                    n => Change::Announce(prefix, Label(200 + n as u32)),
                };
                let batch: Vec<Change<A>> = batch.iter().enumerate().map(change).collect();
                other.apply(&batch).unwrap_or_else(|error| panic!("{error}"));
            }
            for &key in keys {
                assert_eq!(other.fib().lookup(key), label(other.rib(), key), "{}", key.to_ip());
            }
            if looks.is_finished() {
                break;
            }
        }
        looks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn readers_of_one_table_of_a_store_do_not_notice_the_others() {
    others_come_and_go::<u32>("dxr-d16x4r");
    others_come_and_go::<u32>("dxr-d18r");
    others_come_and_go::<u128>("lulea");
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
