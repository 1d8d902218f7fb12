//! Any sequence of changes to a table: the range trie (both families) and DXR answer as the linear oracle does, singly and in
//! bursts, at both ends of every prefix that was named, beside them, and at random addresses.
//!
//! Input: one address byte by byte (the base), then records of four bytes: what to do, a prefix length, and two bytes that are
//! XORed into the base at a place that the first byte chooses - so that neighbours and nested prefixes are easy to find.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lookup::qsbr::Domain;
use tidemill_lpm::dxr::Layout;
use tidemill_lpm::rib::Change;
use tidemill_lpm::suite::{Case, run_case};
use tidemill_lpm::{Address, Algorithm, Family, Label, Prefix, Rib, popdir};

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

fn check<A: Family>(data: &[u8], algorithms: &[Algorithm]) {
    let Some(case) = case::<A>(data) else { return };
    for algorithm in algorithms {
        if let Err(failure) = run_case(&case, &|rib: &Rib<A>, domain: &Domain| algorithm.writer(rib, domain))
        {
            panic!("{algorithm}: {failure}");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let trie = Algorithm::RangeTrie { root_bits: 12 };
    check::<u128>(data, &[trie]);
    let dxr = [(16, 0), (8, 8)].map(|(d, x)| Layout::new(d, x).map(Algorithm::Dxr).unwrap_or(trie));
    let popdir = [popdir::Layout::D16X3, popdir::Layout::D19].map(Algorithm::Popdir);
    check::<u32>(data, &[trie, dxr[0], dxr[1], popdir[0], popdir[1]]);
});
