//! Any sequence of changes to a table: every structure of both families answers as the linear oracle does, singly and in
//! bursts, at both ends of every prefix that was named, beside them, and at random addresses.
//!
//! Input: one address byte by byte (the base), then records of four bytes: what to do, a prefix length, and two bytes that are
//! XORed into the base at a place that the first byte chooses - so that neighbours and nested prefixes are easy to find. Of the
//! structures that take a megabyte and more without a route (direct tables, bitmaps) the base's last byte chooses one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::dxr::Layout;
use tidemill_lpm::rib::Change;
use tidemill_lpm::suite::{Case, run_case};
use tidemill_lpm::{Address, Algorithm, Family, Label, Prefix, Rib};

fn case<A: Address>(data: &[u8]) -> Option<Case<A>> {
    let (base, records) = data.split_at_checked(16)?;
    let base = u128::from_be_bytes(base.try_into().ok()?);
    let mut case = Case { seed: base as u64, table: Vec::new(), batches: vec![Vec::new()] };
    for record in records.chunks_exact(4).take(200) {
        let [what, len, high, low] = record else { continue };
        let place = u32::from(what >> 3 & 7) * 16;
        let bits = base ^ (u128::from(u16::from_be_bytes([*high, *low])) << 112 >> place);
        let addr = A::from_u128(bits >> (128 - u32::from(A::BITS)));
        let prefix = Prefix::new(addr, (u16::from(*len) % (u16::from(A::BITS) + 1)) as u8)?;
        let label = [0, 1, 2, 3, 200, 256, 0x1_0000, 0x7fff_ffff][usize::from(low & 7)];
        let batch = case.batches.last_mut()?;
        match what & 7 {
            0 | 1 => batch.push(Change::Withdraw(prefix)),
            2 => case.table.push((prefix, Label(label))),
            3 => case.batches.push(Vec::new()),
            _ => batch.push(Change::Announce(prefix, Label(label))),
        }
    }
    Some(case)
}

/// A structure is heavy with so many bytes without a route.
const HEAVY: usize = 1 << 20;

/// What is run each time, and of what one is chosen.
fn structures<A: Family>(more: &[Algorithm]) -> [Vec<Algorithm>; 2] {
    let empty = |algorithm: &Algorithm| algorithm.writer(&Rib::<A>::new(), &Domain::new());
    let heavy = |algorithm: &Algorithm| empty(algorithm).map_or(0, |writer| writer.fib().bytes()) >= HEAVY;
    let all = Algorithm::all::<A>().into_iter().chain(more.iter().copied());
    let (heavy, light) = all.filter(|&algorithm| algorithm != Algorithm::Auto).partition(heavy);
    [light, heavy]
}

fn check<A: Family>(data: &[u8], [light, heavy]: &[Vec<Algorithm>; 2]) {
    let Some(case) = case::<A>(data) else { return };
    let one = heavy.get(usize::from(data[15]) % heavy.len().max(1));
    for algorithm in light.iter().chain(one) {
        if let Err(failure) = run_case(&case, &|rib: &Rib<A>, domain: &Domain| algorithm.writer(rib, domain))
        {
            panic!("{algorithm}: {failure}");
        }
    }
}

static V4: LazyLock<[Vec<Algorithm>; 2]> = LazyLock::new(|| {
    let dxr = [(16, 0), (8, 8)].into_iter().filter_map(|(d, x)| Layout::new(d, x).ok()).map(Algorithm::Dxr);
    structures::<u32>(&dxr.collect::<Vec<_>>())
});
static V6: LazyLock<[Vec<Algorithm>; 2]> = LazyLock::new(|| structures::<u128>(&[]));

fuzz_target!(|data: &[u8]| {
    check::<u128>(data, &V6);
    check::<u32>(data, &V4);
});
