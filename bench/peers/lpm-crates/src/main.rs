//! A runner (protocol, patterns and checksum: bench/README.md) for crates of crates.io that do longest-prefix match. They answer
//! one key at a time; a batch is a loop.

#![forbid(unsafe_code)]

mod structures;

use ip_network_table_deps_treebitmap::IpLookupTable;
use iptrie::{Ipv4LCTrieMap, Ipv6LCTrieMap};
use poptrie::Poptrie;
use prefix_trie::PrefixMap;
use std::collections::HashMap;
use std::io::BufRead;
use std::net::IpAddr;
use std::ops::BitXor;
use std::time::{Duration, Instant};
use structures::{Route, Structure};

type Result<T> = std::result::Result<T, String>;

/// Lookups between two looks at the clock.
const BLOCK: usize = 4096;
/// Keys handed over at once.
const BATCH: usize = 256;

fn main() {
    if let Err(error) = run() {
        eprintln!("runner: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut options: HashMap<&str, &str> = HashMap::new();
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(format!("{pair:?} has no value")) };
        options.insert(name, value);
    }
    let option = |name| {
        options.get(name).copied().ok_or("usage: --structure NAME --table FILE --keys FILE".to_owned())
    };
    let (name, table, keys) = (option("--structure")?, option("--table")?, option("--keys")?);
    let routes = read_table(table)?;
    let keys = std::fs::read(keys).map_err(|error| format!("{keys}: {error}"))?;
    match routes.first() {
        Some((IpAddr::V4(_), ..)) => {
            let routes: Vec<Route<u32>> = (routes.into_iter())
                .filter_map(|(addr, len, label)| match addr {
                    IpAddr::V4(addr) => Some((addr.into(), len, label)),
                    IpAddr::V6(_) => None,
                })
                .collect();
            let keys: Vec<u32> = keys.as_chunks().0.iter().map(|&key| u32::from_le_bytes(key)).collect();
            match name {
                "crate-poptrie" => serve::<u32, Poptrie<_, _>>(name, &routes, &keys),
                "crate-prefix-trie" => serve::<u32, PrefixMap<_, _>>(name, &routes, &keys),
                "crate-treebitmap" => serve::<u32, IpLookupTable<_, _>>(name, &routes, &keys),
                "crate-iptrie" => serve::<u32, Ipv4LCTrieMap<_>>(name, &routes, &keys),
                _ => Err(format!("no structure {name}")),
            }
        }
        Some((IpAddr::V6(_), ..)) => {
            let routes: Vec<Route<u128>> = (routes.into_iter())
                .filter_map(|(addr, len, label)| match addr {
                    IpAddr::V6(addr) => Some((addr.into(), len, label)),
                    IpAddr::V4(_) => None,
                })
                .collect();
            let keys: Vec<u128> = keys.as_chunks().0.iter().map(|&key| u128::from_be_bytes(key)).collect();
            match name {
                "crate-poptrie" => serve::<u128, Poptrie<_, _>>(name, &routes, &keys),
                "crate-prefix-trie" => serve::<u128, PrefixMap<_, _>>(name, &routes, &keys),
                "crate-treebitmap" => serve::<u128, IpLookupTable<_, _>>(name, &routes, &keys),
                "crate-iptrie" => serve::<u128, Ipv6LCTrieMap<_>>(name, &routes, &keys),
                _ => Err(format!("no structure {name}")),
            }
        }
        None => Err("the table is empty".to_owned()),
    }
}

/// `prefix TAB label`.
fn read_table(path: &str) -> Result<Vec<(IpAddr, u8, u32)>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let parse = |line: &str| {
        let (prefix, label) = line.split_once('\t')?;
        let (addr, len) = prefix.split_once('/')?;
        Some((addr.parse().ok()?, len.parse().ok()?, label.parse().ok().filter(|&label| label > 0)?))
    };
    let line = |(number, line): (usize, &str)| {
        parse(line).ok_or_else(|| format!("{path}:{}: not `prefix TAB label`", number + 1))
    };
    text.lines().enumerate().map(line).collect()
}

/// Bytes of ours that are in memory.
fn resident() -> usize {
    let pages = |text: String| text.split(' ').nth(1)?.parse::<usize>().ok();
    std::fs::read_to_string("/proc/self/statm").ok().and_then(pages).unwrap_or(0) * 4096
}

/// Bytes of ours on huge pages.
fn on_huge_pages() -> usize {
    let kilobytes = |text: String| {
        let size = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
        size.trim().strip_suffix(" kB")?.parse::<usize>().ok()
    };
    std::fs::read_to_string("/proc/self/smaps_rollup").ok().and_then(kilobytes).unwrap_or(0) << 10
}

fn serve<A, S>(name: &str, routes: &[Route<A>], keys: &[A]) -> Result<()>
where
    A: Copy + From<u32> + BitXor<Output = A>,
    S: Structure<A>,
{
    if keys.is_empty() || !keys.len().is_multiple_of(BLOCK) {
        return Err(format!("{} keys: not a multiple of {BLOCK}", keys.len()));
    }
    let huge = on_huge_pages();
    let repeated: Vec<A> = (0..keys.len()).map(|j| keys[j / 8 + j % 8]).collect();
    // The allocator's choice, by which `keys` lie alike: all of it but the ends, at best.
    let most = on_huge_pages().saturating_sub(huge) >= size_of_val(&repeated[..]) / 2;
    let key_pages = if most { "2 MB" } else { "4 KB" };
    let (before, start) = (resident(), Instant::now());
    let (structure, rejected) = S::build(routes);
    let (seconds, bytes) = (start.elapsed().as_secs_f64(), resident().saturating_sub(before));
    println!(
        "{{\"v\":1,\"ready\":true,\"subject\":\"peer:{name}\",\"routes\":{},\"rejected\":{rejected},\
         \"build_seconds\":{seconds:.6},\"bytes\":{bytes},\"params\":{{\"batch\":{BATCH},\
         \"key_pages\":\"{key_pages}\"}}}}",
        routes.len() - rejected
    );
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (time, checksum) = match line.trim() {
            "run rnd" => pass(keys, |keys, out| batches(&structure, keys, out)),
            "run rep" => pass(&repeated, |keys, out| batches(&structure, keys, out)),
            "run seq" => {
                let mut previous = 0;
                pass(keys, |keys, out| {
                    for (&key, out) in keys.iter().zip(out) {
                        previous = structure.lookup(key ^ A::from(previous));
                        *out = previous;
                    }
                })
            }
            "quit" => return Ok(()),
            _ => {
                println!("{{\"v\":1,\"error\":\"unknown command\"}}");
                continue;
            }
        };
        println!(
            "{{\"v\":1,\"bench\":\"lpm\",\"subject\":\"peer:{name}\",\"case\":\"{}\",\"lookups\":{},\
             \"seconds\":{:.9},\"checksum\":\"{checksum:016x}\"}}",
            line.trim().trim_start_matches("run "),
            keys.len(),
            time.as_secs_f64()
        );
    }
    Ok(())
}

fn batches<A: Copy, S: Structure<A>>(structure: &S, keys: &[A], out: &mut [u32]) {
    for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
        for (&key, out) in keys.iter().zip(out) {
            *out = structure.lookup(key);
        }
    }
}

/// Answers block after block; the clock stops while a block goes into the checksum.
fn pass<A>(keys: &[A], mut answer: impl FnMut(&[A], &mut [u32])) -> (Duration, u64) {
    let mut labels = [0; BLOCK];
    let (mut time, mut checksum) = (Duration::ZERO, 0xcbf2_9ce4_8422_2325_u64);
    for block in keys.chunks(BLOCK) {
        let start = Instant::now();
        answer(block, &mut labels);
        time += start.elapsed();
        for byte in labels.iter().flat_map(|label| label.to_le_bytes()) {
            checksum = (checksum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    (time, checksum)
}
