//! Any sequence of changes to a table: a structure answers as the linear oracle does, singly and in bursts, at both ends of every prefix
//! that was named, beside them, and at random addresses.
//!
//! Input: a byte that chooses the structure, its lowest bit the family; then what `common/lpm.rs` reads. One run is one structure's: of four
//! runs one is of those that take a megabyte and more without a route (direct tables, bitmaps).

#![no_main]

#[path = "common/lpm.rs"]
mod lpm;

use libfuzzer_sys::fuzz_target;
use lpm::Record;
use std::sync::LazyLock;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::dxr::Layout;
use tidemill_lpm::rib::Change;
use tidemill_lpm::suite::{Case, run_case};
use tidemill_lpm::{Address, Algorithm, Family, Label, Rib};

fn case<A: Address>(data: &[u8]) -> Option<Case<A>> {
    let (base, records) = lpm::read::<A>(data)?;
    let mut case = Case { seed: base as u64, table: Vec::new(), batches: vec![Vec::new()] };
    for Record { what, prefix, low, .. } in records {
        let label = Label([0, 1, 2, 3, 200, 256, 0x1_0000, 0x7fff_ffff][usize::from(low & 7)]);
        let batch = case.batches.last_mut()?;
        match what {
            0 | 1 => batch.push(Change::Withdraw(prefix)),
            2 => case.table.push((prefix, label)),
            3 => case.batches.push(Vec::new()),
            _ => batch.push(Change::Announce(prefix, label)),
        }
    }
    Some(case)
}

/// A structure is heavy with so many bytes without a route.
const HEAVY: usize = 1 << 20;
/// So many of the 128 values of a choice are light ones'.
const LIGHT: usize = 96;

/// The light ones, and the heavy ones.
fn structures<A: Family>(more: &[Algorithm]) -> [Vec<Algorithm>; 2] {
    let empty = |algorithm: &Algorithm| algorithm.writer(&Rib::<A>::new(), &Domain::new());
    let heavy = |algorithm: &Algorithm| empty(algorithm).map_or(0, |writer| writer.fib().bytes()) >= HEAVY;
    let all = Algorithm::all::<A>().into_iter().chain(more.iter().copied());
    let (heavy, light) = all.filter(|&algorithm| algorithm != Algorithm::Auto).partition(heavy);
    [light, heavy]
}

fn check<A: Family>(choice: usize, data: &[u8], [light, heavy]: &[Vec<Algorithm>; 2]) {
    let (among, at) = if choice < LIGHT { (light, choice) } else { (heavy, choice - LIGHT) };
    let (Some(algorithm), Some(case)) = (among.get(at % among.len().max(1)), case::<A>(data)) else { return };
    if let Err(failure) = run_case(&case, &|rib: &Rib<A>, domain: &Domain| algorithm.writer(rib, domain)) {
        panic!("{algorithm}: {failure}");
    }
}

static V4: LazyLock<[Vec<Algorithm>; 2]> = LazyLock::new(|| {
    let dxr = [(16, 0), (8, 8)].into_iter().filter_map(|(d, x)| Layout::new(d, x).ok()).map(Algorithm::Dxr);
    structures::<u32>(&dxr.collect::<Vec<_>>())
});
static V6: LazyLock<[Vec<Algorithm>; 2]> = LazyLock::new(|| structures::<u128>(&[]));

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    match choice & 1 {
        0 => check::<u32>(usize::from(choice >> 1), data, &V4),
        _ => check::<u128>(usize::from(choice >> 1), data, &V6),
    }
});
