use super::*;
use std::collections::HashSet;

fn evenly<A: Outer>(headers: impl Iterator<Item = Vec<u8>>, what: &str) {
    let mut buckets = [0; 16];
    let mut labels = HashSet::new();
    for header in headers {
        let hash = A::flow_hash(&header);
        buckets[hash as usize % 16] += 1;
        labels.insert(hash & 0xf_ffff);
    }
    assert!(buckets.iter().all(|count| (850..1150).contains(count)), "{what}: {buckets:?}");
    // Of 16,000 draws from 2^20, about 120 hit one drawn before.
    assert!(labels.len() > 15_700, "{what}: {} labels", labels.len());
}

#[test]
fn flows_that_differ_in_few_bits_are_spread_evenly() {
    let header = |len: usize, at: usize, n: u32| {
        let mut header = vec![0x20; len];
        header[at..at + 4].copy_from_slice(&n.to_be_bytes());
        header
    };
    for (what, at) in [("sources", 12), ("destinations", 16)] {
        evenly::<u32>((0..16_000).map(|n| header(20, at, n)), what);
        evenly::<u32>((0..16_000).map(|n| header(20, at, n << 16)), what);
    }
    for (what, at) in [("sources", 20), ("networks", 12), ("destinations", 36)] {
        evenly::<u128>((0..16_000).map(|n| header(40, at, n)), what);
    }
}

#[test]
fn a_way_there_is_no_way_back() {
    let mut header = [0; 20];
    header[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let there = u32::flow_hash(&header);
    header[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    assert_ne!(u32::flow_hash(&header), there);
}

#[test]
fn endpoints_say_what_they_are_between() {
    let endpoint = Endpoint::new(0xc000_0201_u32, 0x0a14_1e28);
    assert_eq!(
        (endpoint.source().text(), endpoint.grantor().text()),
        ("192.0.2.1".into(), "10.20.30.40".into())
    );
    // The sum is that of the header without length, code point and checksum.
    let sum = checksum::sum(&endpoint.front[LINK..]);
    assert_eq!(endpoint.sum, sum);
    assert_eq!(
        endpoint.front[12..],
        [8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 4, 0, 0, 192, 0, 2, 1, 10, 20, 30, 40]
    );
}
